//! Of 300 scripts from seeds (policies of retries, timeouts and outlier detection, and what services do with one request after the
//! other), Envoy and Strait give the client the same statuses and the endpoints the same numbers of attempts;
//! docs/configuration/retries.md lists the differences that the scripts leave out.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::{python, say};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Python, Peer::Envoy], holds };

const SCRIPTS: u32 = 150;

/// Others are tried by hand: `tests/peers/upstreams/envoy_failures.py` says how.
const SEEDS: [u64; 2] = [1, 2];

fn holds(lab: &Lab) -> Result<()> {
    for seed in SEEDS {
        let printed = python::compare_failures(lab, seed, SCRIPTS)?;
        let last = printed.lines().last().unwrap_or_default();
        ensure!(
            last.contains(": 150 scripts, ") && last.contains(", 0 scripts differ, "),
            "{printed}"
        );
        say::line(format_args!("{last}"));
    }
    Ok(())
}
