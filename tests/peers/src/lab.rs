//! The environment of a claim.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::folder::Folder;
use crate::process::{Finished, Process};

/// Strait's program and a folder that the claim has for itself.
#[derive(Debug)]
pub(crate) struct Lab {
    /// Strait's program.
    pub(crate) strait: PathBuf,
    /// The program of the previous version, if it was built.
    pub(crate) previous: Option<PathBuf>,
    /// The folder.
    pub(crate) folder: Folder,
}

/// How long a client that should need a second or two may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

impl Lab {
    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.folder().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<Finished> {
        Process::run(self.folder(), program, arguments, PATIENCE)
    }

    /// Runs curl, silent but for errors, and hands over what it printed.
    pub(crate) fn curl(&self, arguments: &[&str]) -> Result<String> {
        let quiet = ["--silent", "--show-error", "--max-time", "50"];
        self.run("curl", &[&quiet, arguments].concat())?.ok()
    }
}
