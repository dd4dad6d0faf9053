//! The files of `packaging/`, and the programs that read them.

mod kubernetes_accepts_the_manifests;
mod logrotate_loses_no_line;
mod man_reads_the_pages;
mod promtool_accepts_the_scrape_configuration;
mod systemd_accepts_the_unit;
mod systemd_hands_sockets_over;
mod the_build_stage_builds;
mod the_debian_package_installs;
mod the_image_runs;

use std::path::PathBuf;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    systemd_accepts_the_unit::CLAIM,
    systemd_hands_sockets_over::CLAIM,
    logrotate_loses_no_line::CLAIM,
    man_reads_the_pages::CLAIM,
    promtool_accepts_the_scrape_configuration::CLAIM,
    the_debian_package_installs::CLAIM,
    the_image_runs::CLAIM,
];

/// Those that are tried only if their name is asked for.
pub(super) const ASKED: &[Claim] =
    &[kubernetes_accepts_the_manifests::CLAIM, the_build_stage_builds::CLAIM];

/// The repository.
pub(super) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `packaging/`.
pub(super) fn packaging(name: &str) -> PathBuf {
    repository().join("packaging").join(name)
}
