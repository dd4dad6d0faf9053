//! The Autobahn suite gives the same verdicts through Strait as without it.
//!
//! The suite's own runner needs a Python that is no longer made; kosoku runs the suite's case files
//! on a runner of its own. The cases about compression are left out: they are about the server.
//! What the server itself gets wrong, it gets wrong both ways; what counts is the difference.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;
use crate::python;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::WebSocketSuite], holds };

const PATIENCE: Duration = Duration::from_secs(120);

fn holds(lab: &Lab) -> Result<()> {
    let server = python::Echo::start(lab)?;
    let strait = Strait::in_front_of(lab, server.address())?;
    let direct = verdicts(lab, "direct", server.address())?;
    let through = verdicts(lab, "through", strait.address())?;
    ensure!(direct.len() > 250, "only {} cases", direct.len());
    ensure!(direct.len() == through.len(), "{} and {} cases", direct.len(), through.len());
    for (case, verdict) in &direct {
        let other = through.get(case).with_context(|| format!("{case} is missing"))?;
        ensure!(verdict == other, "case {case}: direct {verdict}, through Strait {other}");
    }
    let good = direct.values().filter(|verdict| !verdict.contains("FAILED")).count();
    ensure!(good + 5 > direct.len(), "the server fails too often for a comparison");
    Ok(())
}

/// Case ⇒ what the suite says of messages and of the end.
fn verdicts(lab: &Lab, name: &str, server: SocketAddr) -> Result<BTreeMap<String, String>> {
    let suite = Peer::WebSocketSuite.program().context("the suite")?;
    let folder = lab.folder().join(name);
    let report = folder.to_string_lossy();
    let server = server.to_string();
    let options = ["-p", "4", "-x", "12.*", "-x", "13.*", "-o", &report, &server];
    // It exits with 1 if a case failed, which is compared, not judged.
    let printed = Process::run(lab.folder(), suite, &options, PATIENCE)?.output;
    let index = std::fs::read_to_string(folder.join("index.json")).context(printed)?;
    let index: serde_json::Value = serde_json::from_str(&index)?;
    let servers = index.as_object().context("an object of servers")?.values();
    let cases = servers.filter_map(serde_json::Value::as_object).flatten();
    // "Non-strict" is a good verdict that hangs on which of two rightful frames came first.
    let verdict = |case: &serde_json::Value, field: &str| {
        let verdict = case.get(field).and_then(serde_json::Value::as_str);
        verdict.unwrap_or_default().replace("NON-STRICT", "OK")
    };
    Ok(cases
        .map(|(name, case)| {
            let verdict =
                format!("{}, {}", verdict(case, "behavior"), verdict(case, "behaviorClose"));
            (name.clone(), verdict)
        })
        .collect())
}
