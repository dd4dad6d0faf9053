//! An upstream that does not read its request holds back the client; once it reads, all of it arrives.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::Pattern;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

const LEN: usize = 50_000_000;

/// Far below the upload, far above what one exchange needs.
const GATHERED_BYTES_MAX: u64 = 4 << 20;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    let path = lab.folder().join("upload");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    lab.curl(&["-T", &path.to_string_lossy(), &strait.url(&format!("/check/{LEN}"))])?;
    let before = strait.resident_bytes()?;
    let url = strait.url(&format!("/hold/check/{LEN}"));
    let upload = ["--silent", "-T", &path.to_string_lossy(), "-o", "held", &url];
    let mut curl = Process::start(lab.folder(), "curl", &upload)?;
    wait::until("the upstream to hold", wait::SOON, || origin.waiting() == 1)?;
    // Until nothing moves any more, memory is what the stalled exchange costs.
    let (mut moved, mut quiet) = (curl.moved_bytes()?, 0);
    wait::until("the upload to stall", wait::SOON, || {
        let now = curl.moved_bytes().unwrap_or_default();
        quiet = if now == moved { quiet + 1 } else { 0 };
        moved = now;
        quiet == 20
    })?;
    let gathered = strait.resident_bytes()?.saturating_sub(before);
    ensure!(curl.is_running(), "curl is done although the upstream has not read");
    ensure!(gathered < GATHERED_BYTES_MAX, "{gathered} bytes more than before");
    origin.release();
    ensure!(curl.wait(wait::SOON)?.success(), "{}", curl.output());
    let verdict = std::fs::read_to_string(lab.folder().join("held"))?;
    ensure!(verdict == "as sent", "{verdict}");
    Ok(())
}
