//! The files that a configuration names, from the disk: read once for each load, and remembered by a
//! digest, so that a later look tells whether any has changed. Contents are not kept: there are keys
//! among them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use config::Outside;
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};
use tls::{Roots, RootsError};
use zeroize::Zeroizing;

use crate::clock;

/// Bytes of a file that a configuration names: bundles of every authority there is have half of one.
const NAMED_BYTES_MAX: u64 = 8 << 20;

/// Reads the files of one load, relative to a folder.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    seen: RefCell<Seen>,
}

/// What the files of a load were like.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<PathBuf, State>);

/// What a file was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It had content with this digest.
    Digest(u64),
    /// It could not be read.
    Unreadable(ErrorKind),
    /// It could not be opened, for lack of descriptors: that says nothing of it.
    Starved,
}

impl Files {
    /// The files beside the configuration file at `path`.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        Self { folder: path.parent().unwrap_or(path).to_owned(), seen: RefCell::default() }
    }

    /// What was read.
    pub(crate) fn into_seen(self) -> Seen {
        self.seen.into_inner()
    }
}

impl Outside for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let path = self.folder.join(path);
        let content = read(&path);
        self.seen.borrow_mut().0.insert(path, State::of(&content));
        let content = content.map(|mut content| std::mem::take(&mut *content));
        content.map_err(|error| with_user(error, geteuid()))
    }

    fn system_roots(&self) -> Result<Roots, RootsError> {
        Roots::system()
    }

    fn now(&self) -> u64 {
        clock::wall_ns() / 1_000_000_000
    }
}

impl Seen {
    /// Where the files are, or should be.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Whether any could not be read for lack of descriptors.
    pub(crate) fn is_starved(&self) -> bool {
        self.0.values().any(|state| *state == State::Starved)
    }

    /// Whether any file is not as it was.
    pub(crate) fn is_changed(&self) -> bool {
        self.0.iter().any(|(path, state)| State::at(path) != *state)
    }

    /// Takes the files for seen as they are.
    pub(crate) fn refresh(&mut self) {
        for (path, state) in &mut self.0 {
            *state = State::at(path);
        }
    }
}

impl State {
    /// That of the file at `path`, of whose content nothing stays in memory.
    fn at(path: &Path) -> Self {
        Self::of(&read(path))
    }

    fn of_error(error: &io::Error) -> Self {
        if is_starved(error) { Self::Starved } else { Self::Unreadable(error.kind()) }
    }

    pub(crate) fn of(content: &io::Result<impl AsRef<[u8]>>) -> Self {
        match content {
            Ok(content) => {
                let mut hasher = DefaultHasher::new();
                hasher.write(content.as_ref());
                Self::Digest(hasher.finish())
            }
            Err(error) => Self::of_error(error),
        }
    }
}

/// Whether a file could not be opened because the process, or the system, has no descriptor left.
pub(crate) fn is_starved(error: &io::Error) -> bool {
    let lack = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| lack.contains(&code))
}

/// Says to whom a file is denied: a service often runs as another user than who looks at its log.
fn with_user(error: io::Error, user: Uid) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            let text = format!("permission denied for the user with the id {}", user.as_raw());
            io::Error::new(ErrorKind::PermissionDenied, text)
        }
        _ => error,
    }
}

/// Nothing but a regular file is read: a pipe could keep control waiting for ever.
///
/// What is read has one place in memory, which is wiped when it has to be larger.
fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.len() > NAMED_BYTES_MAX {
        return Err(too_large());
    }
    let mut file = File::open(path)?;
    // With room for one octet more, in which the end is seen.
    let expected = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let mut content = Zeroizing::new(vec![0; expected.saturating_add(1)]);
    let mut filled = 0;
    loop {
        let room = content.get_mut(filled..).unwrap_or_default();
        if room.is_empty() {
            // It is being written.
            let mut larger = Zeroizing::new(vec![0; filled.saturating_mul(2)]);
            larger.get_mut(..filled).unwrap_or_default().copy_from_slice(&content);
            content = larger;
            continue;
        }
        match file.read(room) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled as u64 > NAMED_BYTES_MAX {
            return Err(too_large());
        }
    }
    content.truncate(filled);
    Ok(content)
}

fn too_large() -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("larger than {NAMED_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_denied_a_file_is_told_and_other_errors_stay() {
        let user = Uid::from_raw(1000);
        let denied = with_user(ErrorKind::PermissionDenied.into(), user);
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
        assert_eq!(denied.to_string(), "permission denied for the user with the id 1000");
        assert_eq!(with_user(ErrorKind::NotFound.into(), user).kind(), ErrorKind::NotFound);
    }
}
