//! h2spec's cases of HTTP/2 and HPACK, strict ones included.

mod a_port_for_both_versions_passes_but_for_a_wrong_preface;
mod every_case_passes;

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIMS: &[Claim] =
    &[every_case_passes::CLAIM, a_port_for_both_versions_passes_but_for_a_wrong_preface::CLAIM];

/// What h2spec prints about a server in front of Go's; it exits with 1 if a case failed.
///
/// Some cases do something wrong to a request after they sent it, and take an answer that was
/// faster for a failure; hence the path.
fn run(lab: &Lab, server: SocketAddr) -> Result<String> {
    let program = Peer::H2spec.program().context("h2spec")?;
    let port = server.port().to_string();
    let arguments = ["--strict", "--path", "/slow", "--host", "127.0.0.1", "--port", &port];
    Ok(lab.run(&program.to_string_lossy(), &arguments)?.output)
}
