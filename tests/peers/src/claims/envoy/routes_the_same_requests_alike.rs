//! Of 300 route tables from a seed, and 100 requests to each, Envoy and Strait choose the same rule, cluster, path, host and
//! header fields; docs/configuration/routing.md lists the differences that the tables leave out.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::{python, say};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Python, Peer::Envoy], holds };

const TABLES: u32 = 300;
const REQUESTS: u32 = 100;

/// Others are tried by hand: `tests/peers/upstreams/envoy_routes.py` says how.
const SEEDS: [u64; 2] = [1, 2];

fn holds(lab: &Lab) -> Result<()> {
    for seed in SEEDS {
        let printed = python::compare_routes(lab, seed, TABLES, REQUESTS)?;
        let last = printed.lines().last().unwrap_or_default();
        ensure!(
            last.contains(" 30000 requests, ") && last.contains(", 0 differences"),
            "{printed}"
        );
        say::line(format_args!("{last}"));
    }
    Ok(())
}
