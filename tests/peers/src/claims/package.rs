//! What `packaging/` holds, and the programs that read it.

mod systemd_accepts_the_unit;
mod systemd_hands_sockets_over;

use std::path::PathBuf;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] =
    &[systemd_accepts_the_unit::CLAIM, systemd_hands_sockets_over::CLAIM];

/// A file of `packaging/`.
pub(super) fn packaging(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}
