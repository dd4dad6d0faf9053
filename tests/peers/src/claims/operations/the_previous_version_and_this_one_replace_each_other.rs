//! The previous version and this one replace each other, back and forth, while clients of all kinds work: nothing is lost, as with one
//! version. If they save connections in different forms, the new process takes the listening sockets, and connections stay with the old
//! one and drain.
//!
//! `tests/peers/previous` names the commit; `cargo xtask peers previous` builds it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::handover_load::{Load, while_clients_work};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::say;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::H2load], holds };

/// Times that each version replaces the other.
const ROUNDS: u32 = 5;

/// What `strait upgrade` prints where the new process does not read the form of the old one.
const OTHER_FORM: &str = "does not read connections in form";

fn holds(lab: &Lab) -> Result<()> {
    let previous = lab.previous.as_deref();
    let previous = previous.context("it is not built: cargo xtask peers previous")?;
    let load = Load { seconds: 20, body_bytes: 256 << 20 };
    while_clients_work(lab, &load, |strait| {
        for round in 0..ROUNDS {
            // Either version's command asks either version's process.
            let command = if round % 2 == 0 { &*lab.strait } else { previous };
            if !has_replaced(lab, strait, command, previous)? {
                say::line("the versions save connections in different forms: none move");
                return Ok(());
            }
            let is_replaced = has_replaced(lab, strait, command, &lab.strait)?;
            ensure!(is_replaced, "this version does not read the form that the previous one does");
        }
        let generation = strait.metric("strait_generation")?;
        ensure!(generation == f64::from(2 * ROUNDS), "generation {generation}");
        Ok(())
    })
}

/// Whether `program` has the running process's place now, with all that moved; if not, it reads another form.
fn has_replaced(lab: &Lab, strait: &Strait, command: &Path, program: &Path) -> Result<bool> {
    let (command, file) = (command.to_string_lossy(), strait.file().to_string_lossy());
    let program = program.to_string_lossy();
    let arguments = ["upgrade", "--config", &file, "--binary", &program];
    let finished = lab.run(&command, &arguments)?;
    let (is_done, output) = (finished.status.success(), finished.output);
    if output.contains(OTHER_FORM) {
        ensure!(is_done, "to {program}: {output}");
        return Ok(false);
    }
    let has_all = output.contains("groups of connections moved, 0 stay and drain");
    ensure!(is_done && has_all, "to {program}: {output}");
    Ok(true)
}
