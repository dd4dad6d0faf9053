//! What a load takes from outside of its text: the files that the text names, and the time.
//!
//! This crate opens no file and reads no clock, so that a test, a simulation and a fuzzer can say
//! what there is. The control path has the real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use tls::{Roots, RootsError};

/// A symbolic link on the way to a file leads to nothing: what an error of the kind `NotFound` may hold.
#[derive(Debug, thiserror::Error)]
#[error("{} is a symbolic link to {}, which does not exist", link.display(), target.display())]
pub struct DanglingLink {
    /// The link.
    pub link: PathBuf,
    /// What it leads to, as it stands there.
    pub target: PathBuf,
}

impl DanglingLink {
    /// Whether this is why a file is not found.
    #[must_use]
    pub fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Where the files of a configuration come from, and what time it is.
pub trait Outside {
    /// The content of a file. `path` is as the text has it; what a relative one is relative to is
    /// for the implementation to know. Asked once for each path of a load. The content is wiped when it
    /// is no longer needed: it has to be the only copy.
    ///
    /// # Errors
    ///
    /// Why it cannot be read: an error of the text, at each place that names the file. It may hold a [`DanglingLink`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The content of a file that the text includes; as [`Self::read`], but it is text of the configuration as well.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn read_included(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path)
    }

    /// A file that holds the endpoints of clusters; as [`Self::read`], but it is no secret, unless it lies elsewhere.
    /// Asked also apart from loads of the text, since such a file is taken up by itself.
    ///
    /// # Errors
    ///
    /// Why it cannot be read: an error of the text, at the first place that names the file.
    fn read_endpoints(&self, path: &Path) -> io::Result<EndpointsFile> {
        Ok(EndpointsFile { content: self.read(path)?, is_elsewhere: self.is_link(path) })
    }

    /// The files whose names fit the last part of `pattern` ([`crate::wildcard::fits`]), as paths in the form of `pattern` and in the
    /// order of their names.
    ///
    /// # Errors
    ///
    /// Why its folder cannot be read.
    fn list(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let _ = pattern;
        Ok(Vec::new())
    }

    /// What the file at `path` is called in reports.
    fn name(&self, path: &Path) -> String {
        path.display().to_string()
    }

    /// What names the file that reports name so, whatever its spelling: links and `..` are followed, where there are any.
    fn real_name(&self, name: &str) -> PathBuf {
        // As components, a path has no `.` but for one at its beginning.
        let path = Path::new(name);
        path.strip_prefix(".").unwrap_or(path).components().collect()
    }

    /// Whether a symbolic link stands at `path`.
    fn is_link(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// The permission bits of the file at `path`, as chmod(1) has them; none where there are none.
    fn mode(&self, path: &Path) -> Option<u32> {
        let _ = path;
        None
    }

    /// Whether the file at `path` could be opened for appending by this process, or made. Nothing is
    /// written or made.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check_append(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// The value of a variable of the environment; none if it is not set.
    ///
    /// # Errors
    ///
    /// [`NotText`] if it is not UTF-8.
    fn variable(&self, name: &str) -> Result<Option<String>, NotText> {
        let _ = name;
        Ok(None)
    }

    /// Whom the system trusts. Asked once, for as long as any cluster needs it.
    ///
    /// # Errors
    ///
    /// If it has no trusted certificates.
    fn system_roots(&self) -> Result<Roots, RootsError>;

    /// Seconds since the Unix epoch, which the validity of certificates is compared with.
    fn now(&self) -> u64;
}

/// What was read as a file of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsFile {
    /// The whole of it.
    pub content: Vec<u8>,
    /// Whether a link led out of the folder in which the file was named. Who may write that folder may then have no right to
    /// read the content, so that reports do not show it.
    pub is_elsewhere: bool,
}

/// A value that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotText;

/// A few files in memory at a fixed time; without any, what a text that names none needs.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    files: BTreeMap<PathBuf, Vec<u8>>,
    modes: BTreeMap<PathBuf, u32>,
    links: BTreeSet<PathBuf>,
    variables: BTreeMap<String, String>,
    /// PEM.
    trusted: Vec<u8>,
    now: u64,
}

impl Memory {
    /// No files, at `now`.
    #[must_use]
    pub const fn new(now: u64) -> Self {
        Self {
            files: BTreeMap::new(),
            modes: BTreeMap::new(),
            links: BTreeSet::new(),
            variables: BTreeMap::new(),
            trusted: Vec::new(),
            now,
        }
    }

    /// Puts a file at `path`, in the place of one that is there.
    pub fn insert(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), content.into());
    }

    /// Gives the file at `path` these permissions.
    pub fn set_mode(&mut self, path: impl Into<PathBuf>, mode: u32) {
        self.modes.insert(path.into(), mode);
    }

    /// Puts a symbolic link at `path`.
    pub fn link(&mut self, path: impl Into<PathBuf>) {
        self.links.insert(path.into());
    }

    /// Sets a variable of the environment.
    pub fn set_variable(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.variables.insert(name.into(), value.into());
    }

    /// Has the system trust these authorities (PEM).
    pub fn trust(&mut self, pem: impl Into<Vec<u8>>) {
        self.trusted = pem.into();
    }

    /// Takes the file at `path` away.
    pub fn remove(&mut self, path: &Path) {
        self.files.remove(path);
    }
}

impl Outside for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let is_meant = |path: &&PathBuf| {
            path.parent() == pattern.parent() && crate::wildcard::fits_path(pattern, path)
        };
        Ok(self.files.keys().filter(is_meant).cloned().collect())
    }

    fn is_link(&self, path: &Path) -> bool {
        self.links.contains(path)
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        self.modes.get(path).copied()
    }

    fn variable(&self, name: &str) -> Result<Option<String>, NotText> {
        Ok(self.variables.get(name).cloned())
    }

    /// A file can be made in a folder that has one.
    fn check_append(&self, path: &Path) -> io::Result<()> {
        let is_beside = |file: &PathBuf| file.parent() == path.parent();
        let is_here = path.parent().is_none_or(|folder| matches!(folder.to_str(), Some("" | ".")));
        if is_here || self.files.is_empty() || self.files.keys().any(is_beside) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn system_roots(&self) -> Result<Roots, RootsError> {
        Roots::from_pem(&self.trusted)
    }

    fn now(&self) -> u64 {
        self.now
    }
}
