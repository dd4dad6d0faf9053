//! Go's client meets each rule over HTTP/1.1 and HTTP/2, and nginx sees what the rule makes of its requests, over either.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::{ASKS, Routed};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::GoClient, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    let client = Peer::GoClient.program().context("h2client")?.to_string_lossy().into_owned();
    let mut asks = String::new();
    for ask in ASKS {
        write!(asks, "{}\t{}", ask.method, ask.target)?;
        for (name, value) in ask.fields {
            write!(asks, "\t{name}: {value}")?;
        }
        asks.push('\n');
    }
    lab.write("asks", asks)?;
    for protocol in ["http1", "http2"] {
        let routed = Routed::start(lab, protocol)?;
        let versions = ["1", "2"];
        for version in versions {
            let heard = lab.run(&client, &[version, &routed.strait.url(""), "asks"])?.ok()?;
            let lines: Vec<_> = heard.lines().collect();
            ensure!(lines.len() == ASKS.len(), "{heard}");
            for (ask, line) in ASKS.iter().zip(lines) {
                let way = || format!("from HTTP/{version} to {protocol}");
                routed.check(ask, line).with_context(way)?;
            }
        }
        routed.check_copies(versions.len())?;
        std::fs::remove_file(&routed.lab_log)?;
    }
    Ok(())
}
