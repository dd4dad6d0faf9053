//! s_client updates its keys, asks for new ones of the other side, and goes on, while processes take each other's place: all on one
//! connection, in the records that each process continues where the one before stopped.

use anyhow::{Result, ensure};

use super::{NAME, SITE, issue_site};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl::Session;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

/// Processes that take the place of the one before.
const UPGRADES: usize = 5;

fn holds(lab: &Lab) -> Result<()> {
    issue_site(lab)?;
    let origin = Origin::start()?;
    let socket = lab.folder().join("handover/strait.sock");
    let handover = format!("handover: {{ socket: \"{}\", probation: 0s }}", socket.display());
    let options = Options { listener: SITE, file: &handover, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let (program, file) = (lab.strait.to_string_lossy(), strait.file().to_string_lossy());
    let mut session =
        Session::connect(lab, strait.address(), NAME, &["-tls1_3", "-CAfile", "ca.pem"])?;
    session.prints("Verify return code: 0")?;
    let request = "GET /bytes/1000 HTTP/1.1\r\nhost: shop.example\r\n\r\n";
    for _ in 0..UPGRADES {
        // Its own keys alone, then those of both sides.
        session.commands("k", "KEYUPDATE")?;
        let output = lab.run(&program, &["upgrade", "--config", &file])?.ok()?;
        ensure!(output.contains("0 stay and drain"), "{output}");
        session.commands("K", "KEYUPDATE")?;
        session.types(request)?;
        ensure!(session.body(1000)?.len() == 1000);
    }
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened == 1.0, "{opened} connections were opened, and not one");
    let generation = strait.metric("strait_generation")?;
    ensure!(generation == UPGRADES as f64, "generation {generation}");
    Ok(())
}
