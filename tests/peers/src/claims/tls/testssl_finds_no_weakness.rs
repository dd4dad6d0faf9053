//! testssl.sh, which tries every version, kind of cipher suite and attack that it knows on a listener
//! with defaults, finds nothing that it calls worse than low.
//!
//! Two of its sections are left out. It would have the server choose among suites that are all good,
//! where Strait leaves that to the client; and of tickets it says that they do not work if
//! s_client leaves before they come.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Testssl], holds };

/// It takes half a minute, much of it waiting for what vulnerable servers would say.
const PATIENCE: Duration = Duration::from_secs(240);

/// Versions, kinds of suites, forward secrecy, attacks.
const SECTIONS: [&str; 4] = ["-p", "-s", "-f", "-U"];

const HARMLESS: [&str; 3] = ["OK", "INFO", "LOW"];

/// A warning that its own OpenSSL has no engine for the ciphers of GOST.
const OF_THE_MACHINE: &str = "engine_problem";

/// A finding of each section, the last one included.
const FOUND: [&str; 6] = ["SSLv2", "TLS1_3", "cipherlist_STRONG", "PFS", "heartbleed", "RC4"];

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured_with_both_keys(lab, origin.address())?;
    let url = format!("https://{}:{}/", super::NAME, strait.address().port());
    let place = ["--ip", "127.0.0.1", "--nodns", "none"];
    let output = ["--quiet", "--color", "0", "--warnings", "off", "--jsonfile", "findings.json"];
    let options = [&SECTIONS[..], &place, &output, &[&url]].concat();
    // What it exits with is a count of whatever it found.
    let printed = Process::run(lab.folder(), "testssl", &options, PATIENCE)?.output;

    let findings = std::fs::read(lab.folder().join("findings.json")).with_context(|| printed)?;
    let findings: Vec<Value> = serde_json::from_slice(&findings)?;
    let word = |finding: &Value, key| finding.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut seen = Vec::new();
    for finding in &findings {
        let id = word(finding, "id").context("a finding has a name")?;
        let severity = word(finding, "severity").context("a finding has a severity")?;
        ensure!(id == OF_THE_MACHINE || HARMLESS.contains(&&*severity), "{finding}");
        seen.push(id);
    }
    for id in FOUND {
        ensure!(seen.iter().any(|seen| seen == id), "no {id} among {seen:?}");
    }
    Ok(())
}
