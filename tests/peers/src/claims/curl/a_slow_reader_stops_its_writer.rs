//! A client that reads slowly holds back the upstream; Strait does not gather what it has not read.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

/// Far below what the upstream would send in the meantime, far above what one exchange needs.
const GATHERED_BYTES_MAX: u64 = 4 << 20;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    lab.curl(&["-o", "/dev/null", &strait.url("/bytes/1000000")])?;
    let before = strait.resident_bytes()?;
    let url = strait.url("/bytes/60000000");
    let slow = ["--silent", "--limit-rate", "20M", "-o", "slow", &url];
    let mut curl = Process::start(lab.folder(), "curl", &slow)?;
    let mut most = before;
    wait::until("curl to end", wait::SOON, || {
        most = most.max(strait.resident_bytes().unwrap_or(u64::MAX));
        !curl.is_running()
    })?;
    crate::pattern::check(std::fs::File::open(lab.folder().join("slow"))?, 60_000_000)?;
    let gathered = most - before;
    ensure!(gathered < GATHERED_BYTES_MAX, "{gathered} bytes more than before");
    Ok(())
}
