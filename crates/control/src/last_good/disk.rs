//! The file on the disk: replaced as a whole, private to its user.

use std::fmt;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::LastGood;
use super::form::{Wrong, decode};

/// Bytes of the file: what a source may deliver, as JSON writes it, and as much again.
pub(super) const STATE_BYTES_MAX: u64 = 512 << 20;

/// Its name in the folder.
const NAME: &str = "last-good";

/// The name of one that could not be used, once another has taken its place.
const UNUSABLE: &str = "last-good.unusable";

/// What files end in that are being written.
const UNFINISHED: &str = ".tmp";

/// A file that was begun so long ago is one of a process that died over it.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// Why a file is not used.
#[derive(Debug)]
pub(super) struct Unusable {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Unreadable(io::Error),
    NotAFile,
    TooLarge,
    OfOthers {
        uid: u32,
        mode: u32,
    },
    /// The same of the folder.
    FolderOfOthers {
        uid: u32,
        mode: u32,
    },
    Wrong(Wrong),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the last good answers of sources are not used: ", self.path.display())?;
        let hint = match &self.reason {
            Reason::Unreadable(error) => {
                write!(f, "the file cannot be read: {error}")?;
                match Errno::from_io_error(error) {
                    Some(Errno::LOOP) => {
                        "it is a symbolic link, and those are not followed: remove it"
                    }
                    Some(Errno::NOTDIR) => "name a folder in `state`, and not a file",
                    Some(Errno::ACCESS | Errno::PERM) => {
                        "let the user of this process read it, and enter its folder"
                    }
                    _ => "see whether the disk is in order",
                }
            }
            Reason::NotAFile => {
                f.write_str("it is not a regular file")?;
                "remove it"
            }
            Reason::TooLarge => {
                write!(f, "the file has more than {STATE_BYTES_MAX} bytes (state_bytes_max)")?;
                "remove it"
            }
            Reason::OfOthers { uid, mode } => {
                let mode = mode & 0o7777;
                write!(
                    f,
                    "the file belongs to user {uid}, with mode {mode:04o}: other users may have written it"
                )?;
                "remove it, or give it to the user of this process with mode 0600"
            }
            Reason::FolderOfOthers { uid, mode } => {
                f.write_str(&of_others(*uid, *mode))?;
                HINT_OF_FOLDER
            }
            Reason::Wrong(wrong) => {
                write!(f, "the file {wrong}")?;
                "no action is needed: once a source answers, a new file is written, and this one is renamed to last-good.unusable"
            }
        };
        write!(f, "; {hint}. The process starts without it")
    }
}

/// What is wrong with a folder that others may write to: they could put an old file back.
fn of_others(uid: u32, mode: u32) -> String {
    let mode = mode & 0o7777;
    format!("the folder belongs to user {uid}, with mode {mode:04o}: other users may write to it")
}

const HINT_OF_FOLDER: &str = "use a subfolder, which Strait creates for this process alone";

/// Whether a folder, or a file, is one that only the user of this process, or root, writes to; if not, whose it is.
fn is_private(found: &Metadata) -> Result<(), (u32, u32)> {
    let (uid, mode) = (found.uid(), found.mode());
    let is_own = uid == geteuid().as_raw() || uid == 0;
    if is_own && mode & 0o022 == 0 { Ok(()) } else { Err((uid, mode)) }
}

/// What a former process left in `folder`; none if there is no file.
pub(super) fn read(folder: &Path) -> Result<Option<LastGood>, Unusable> {
    let path = folder.join(NAME);
    if let Ok(found) = std::fs::metadata(folder)
        && let Err((uid, mode)) = is_private(&found)
    {
        return Err(Unusable { path: folder.into(), reason: Reason::FolderOfOthers { uid, mode } });
    }
    match read_file(&path) {
        Ok(found) => Ok(Some(found)),
        Err(Reason::Unreadable(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(Unusable { path, reason }),
    }
}

fn read_file(path: &Path) -> Result<LastGood, Reason> {
    // Neither a link to elsewhere nor a pipe, which would keep the start waiting.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(Reason::Unreadable)?;
    let found = file.metadata().map_err(Reason::Unreadable)?;
    if !found.is_file() {
        return Err(Reason::NotAFile);
    }
    is_private(&found).map_err(|(uid, mode)| Reason::OfOthers { uid, mode })?;
    let mut content = Vec::new();
    let mut file = file.take(STATE_BYTES_MAX + 1);
    file.read_to_end(&mut content).map_err(Reason::Unreadable)?;
    if content.len() as u64 > STATE_BYTES_MAX {
        return Err(Reason::TooLarge);
    }
    decode(&content).map_err(Reason::Wrong)
}

/// Replaces the file in `folder`, which is made if it is missing, unless `may_replace` says no once all of it is on the disk.
/// Returns whether it did. After an error, the file of before is there.
///
/// # Errors
///
/// What the system says.
pub(super) fn write(
    folder: &Path,
    content: &[u8],
    may_replace: impl FnOnce() -> bool,
) -> io::Result<bool> {
    if !folder.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    is_private(&std::fs::metadata(folder)?).map_err(|(uid, mode)| {
        let text = format!("{}: {HINT_OF_FOLDER}", of_others(uid, mode));
        io::Error::new(ErrorKind::PermissionDenied, text)
    })?;
    // Two processes may have the same number, each in a namespace of its own.
    let random = RandomState::new().hash_one(std::process::id());
    write_by(folder, &format!("{NAME}.{random:016x}{UNFINISHED}"), content, may_replace)
}

/// The same, by way of a file of this name.
fn write_by(
    folder: &Path,
    unfinished: &str,
    content: &[u8],
    may_replace: impl FnOnce() -> bool,
) -> io::Result<bool> {
    let unfinished = folder.join(unfinished);
    let written = replace(folder, &unfinished, content, may_replace);
    if !matches!(written, Ok(true)) {
        // It may not be there.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn replace(
    folder: &Path,
    unfinished: &Path,
    content: &[u8],
    may_replace: impl FnOnce() -> bool,
) -> io::Result<bool> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    fill(&mut file, content)?;
    if !may_replace() {
        return Ok(false);
    }
    std::fs::rename(unfinished, folder.join(NAME))?;
    // The name is on the disk as well then.
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Puts a file aside that cannot be used, before another takes its place: another version may read it, or its owner mend it.
pub(super) fn put_aside_unusable(folder: &Path) {
    // Where others may write to the folder, nothing is known to be wrong with the file.
    let is_of_file = |it: Unusable| !matches!(it.reason, Reason::FolderOfOthers { .. });
    if read(folder).is_err_and(is_of_file) {
        // What cannot be moved is replaced.
        let _ = std::fs::rename(folder.join(NAME), folder.join(UNUSABLE));
    }
}

fn fill(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

/// Removes what processes began to write and did not finish.
pub(super) fn remove_abandoned(folder: &Path) {
    // What is not removed is in the way of nothing.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_unfinished =
            name.to_str().is_some_and(|it| it.starts_with(NAME) && it.ends_with(UNFINISHED));
        let modified = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_unfinished && modified().is_some_and(|age| age > ABANDONED_AFTER) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock;
    use crate::last_good::form::encode;

    /// A folder that goes with this.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = format!("strait-last-good-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(path);
            let _ = std::fs::remove_dir_all(&path);
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> =
                entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_is_replaced_whole_and_for_its_user_alone() {
        let scratch = Scratch::new("replaced");
        let folder = scratch.0.join("a/b");
        assert!(read(&folder).unwrap().is_none());
        let content = encode(&LastGood::default()).unwrap();
        for _ in 0..2 {
            assert!(write(&folder, &content, || true).unwrap());
            assert_eq!(read(&folder).unwrap(), Some(LastGood::default()));
        }
        assert_eq!((mode(&folder), mode(&folder.join(NAME))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_file_that_others_may_have_written_is_refused() {
        let scratch = Scratch::new("others");
        write(&scratch.0, &encode(&LastGood::default()).unwrap(), || true).unwrap();
        let path = scratch.0.join(NAME);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        let text = read(&scratch.0).unwrap_err().to_string();
        assert!(
            text.contains("with mode 0620: other users may have written it; remove it"),
            "{text}"
        );
        std::fs::rename(&path, scratch.0.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(read(&scratch.0).unwrap_err().to_string().contains("cannot be read"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read(&scratch.0).unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_neither_read_nor_written() {
        let scratch = Scratch::new("shared");
        let content = encode(&LastGood::default()).unwrap();
        write(&scratch.0, &content, || true).unwrap();
        std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o777)).unwrap();
        let text = read(&scratch.0).unwrap_err().to_string();
        assert!(text.contains("mode 0777: other users may write to it; use a subfolder"), "{text}");
        let error = write(&scratch.0, &content, || true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        write(&scratch.0.join("own"), &content, || true).unwrap();
        assert!(read(&scratch.0.join("own")).unwrap().is_some());
    }

    #[test]
    fn a_full_disk_is_an_error_and_leaves_the_file_of_before() {
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(fill(&mut full, b"a").unwrap_err().kind(), ErrorKind::StorageFull);
        let scratch = Scratch::new("full");
        let content = encode(&LastGood::default()).unwrap();
        write(&scratch.0, &content, || true).unwrap();
        // A folder stands where the file is to be written.
        std::fs::create_dir(scratch.0.join("taken")).unwrap();
        write_by(&scratch.0, "taken", b"another", || true).unwrap_err();
        assert_eq!(std::fs::read(scratch.0.join(NAME)).unwrap(), *content);
        // And below a file there is no folder.
        write(&scratch.0.join(NAME).join("below"), &content, || true).unwrap_err();
    }

    #[test]
    fn a_file_that_may_not_take_its_place_any_more_is_gone() {
        let scratch = Scratch::new("held");
        let content = encode(&LastGood::default()).unwrap();
        write(&scratch.0, &content, || true).unwrap();
        assert!(!write(&scratch.0, b"another", || false).unwrap());
        assert_eq!(std::fs::read(scratch.0.join(NAME)).unwrap(), *content);
        assert_eq!(scratch.names(), [NAME]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_put_aside_and_one_that_can_is_not() {
        let scratch = Scratch::new("aside");
        put_aside_unusable(&scratch.0);
        let content = encode(&LastGood::default()).unwrap();
        write(&scratch.0, &content, || true).unwrap();
        put_aside_unusable(&scratch.0);
        assert_eq!(scratch.names(), [NAME]);
        std::fs::write(scratch.0.join(NAME), b"of another version").unwrap();
        put_aside_unusable(&scratch.0);
        assert_eq!(scratch.names(), [UNUSABLE]);
    }

    #[test]
    fn what_a_process_did_not_finish_long_ago_is_removed() {
        let scratch = Scratch::new("abandoned");
        std::fs::create_dir(&scratch.0).unwrap();
        for (name, age) in [("last-good.1.tmp", 0), ("last-good.2.tmp", 3600), ("more.tmp", 3600)] {
            let file = File::create(scratch.0.join(name)).unwrap();
            let at = std::time::UNIX_EPOCH + Duration::from_nanos(clock::wall_ns());
            file.set_modified(at - Duration::from_secs(age)).unwrap();
        }
        remove_abandoned(&scratch.0);
        assert_eq!(scratch.names(), ["last-good.1.tmp", "more.tmp"]);
    }
}
