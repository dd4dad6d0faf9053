//! Ten thousand clients that leave anywhere in their handshakes leave no connection and no memory
//! behind.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::python;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Python], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    // The first ones bring what stays: caches, buffers, pages of the program.
    abort(lab, &strait, "0", "200")?;
    let before = strait.resident_bytes()?;
    abort(lab, &strait, "200", "10000")?;
    let most = before + super::LEFT_BYTES_MAX;
    let now = || strait.resident_bytes().unwrap_or(u64::MAX);
    wait::until("memory to be given back", wait::SOON, || now() <= most)
        .with_context(|| format!("{} bytes, {before} before", now()))?;
    python::speak_tls(lab, strait.address(), &["byte_by_byte"])?;
    Ok(())
}

fn abort(lab: &Lab, strait: &Strait, first: &str, count: &str) -> Result<()> {
    python::speak_tls(lab, strait.address(), &["abort", first, count])?;
    super::nothing_is_left(strait, &["strait_downstream_connections_active"])?;
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    let shaken = strait.metric("strait_tls_handshakes_total")?;
    let failed = strait.metric("strait_tls_handshakes_failed_total")?;
    ensure!(shaken > 0.0 && failed > 0.0, "{shaken} came to their end, {failed} failed");
    // Some leave before a byte is read, so that there was no handshake.
    ensure!(shaken + failed <= opened, "{shaken} and {failed} of {opened}");
    Ok(())
}
