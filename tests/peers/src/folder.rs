//! A folder that lives as long as its claim.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Removed when dropped, unless [`Folder::keep`] was called.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    is_kept: bool,
}

/// Characters of a claim's name in that of its folder: the path of a socket below it has at most 107 bytes.
const NAME_CHARS_MAX: usize = 48;

impl Folder {
    /// A new, empty folder for `name`, readable by servers that give up their rights.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let name: String = name.replace("::", "-").chars().take(NAME_CHARS_MAX).collect();
        let name = format!("strait-peers-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { path, is_kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder for inspection.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            // What is left behind is in the system's folder for temporary files.
            _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
