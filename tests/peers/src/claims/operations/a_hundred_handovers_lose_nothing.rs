//! A hundred processes take each other's place while clients of all kinds work: no client sees an error or connects anew, every byte is
//! the right one, and what clients counted, exchanges that finished and lines of the access log are as many.

use anyhow::{Result, ensure};

use super::handover_load::{Load, while_clients_work};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::H2load], holds };

const HANDOVERS: u32 = 100;

fn holds(lab: &Lab) -> Result<()> {
    let load = Load { seconds: 40, body_bytes: 1 << 30 };
    while_clients_work(lab, &load, |strait| upgrade_often(lab, strait))
}

fn upgrade_often(lab: &Lab, strait: &Strait) -> Result<()> {
    let (program, file) = (lab.strait.to_string_lossy(), strait.file().to_string_lossy());
    for _ in 0..HANDOVERS {
        let output = lab.run(&program, &["upgrade", "--config", &file])?.ok()?;
        ensure!(output.contains("groups of connections moved, 0 stay and drain"), "{output}");
    }
    let generation = strait.metric("strait_generation")?;
    ensure!(generation == f64::from(HANDOVERS), "generation {generation}");
    Ok(())
}
