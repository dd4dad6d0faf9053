//! A proxy as a program on this machine.

use std::path::{Path, PathBuf};

use crate::bench::kinds::ProxyKind;
use crate::bench::machine::first_line_with;

/// A program that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// Name in results.
    pub(crate) name: String,
    /// Which proxy.
    pub(crate) kind: ProxyKind,
    pub(crate) path: PathBuf,
}

impl Binary {
    /// A proxy of this commit, or one that is installed.
    pub(crate) fn new(kind: ProxyKind, path: PathBuf) -> Self {
        Self { name: kind.name().to_owned(), kind, path }
    }

    /// Strait of another commit.
    pub(crate) fn against(reference: &str, path: PathBuf) -> Self {
        Self { name: format!("strait@{reference}"), kind: ProxyKind::Strait, path }
    }

    /// One line about its version.
    pub(crate) fn version(&self, root: &Path) -> String {
        let of = |argument, mark| first_line_with(root, &self.path, argument, mark);
        match self.kind {
            ProxyKind::Strait | ProxyKind::StraitLog | ProxyKind::StraitBatched => {
                of("--version", "strait")
            }
            ProxyKind::Haproxy => of("-v", "version"),
            ProxyKind::Nginx => of("-v", "version"),
            // The program prints where it was started from before the version.
            ProxyKind::Envoy => {
                let line = of("--version", "version: ");
                let version = line.split_once("version: ").map_or(line.as_str(), |(_, v)| v);
                format!("envoy {version}")
            }
            ProxyKind::Relay => "relay of this commit".to_owned(),
        }
    }
}
