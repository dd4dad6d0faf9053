//! The directories that are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::events::Changed;
use super::ways::{Known, LookedUp};

/// Bytes of events that are read at a time; the longest name fits.
const EVENT_BYTES: usize = 4096;

/// What the kernel reports. A file that is written counts once it is closed.
const WATCHED: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// How often ways are looked up that change while they are.
const LOOKS_MAX: usize = 3;

/// The watched directories.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// None as long as the kernel has none for this process.
    pub(super) inotify: Option<OwnedFd>,
    known: Known,
    /// Without links, by the kernel's numbers of their watches.
    pub(super) directories: BTreeMap<i32, PathBuf>,
    /// What these were when they were looked up.
    identities: Vec<(PathBuf, Option<Identity>)>,
}

/// A directory, wherever it is: the numbers of its file system and its inode.
type Identity = (u64, u64);

/// What is at this path now.
fn identity(directory: &Path) -> Option<Identity> {
    let found = directory.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

impl Places {
    fn begin(&mut self) -> io::Result<()> {
        if self.inotify.is_none() {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
            self.inotify = Some(inotify.map_err(|error| match error {
                Errno::MFILE => io::Error::other(
                    "no watch is left: raise fs.inotify.max_user_instances, or the limit on open files",
                ),
                error => error.into(),
            })?);
        }
        Ok(())
    }

    /// Reads the events that there are, and says whether any concerned the files.
    pub(super) fn read(&self, changed: &mut Changed) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut buffer = [const { MaybeUninit::uninit() }; EVENT_BYTES];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let mut is_any = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => return is_any,
                // Events may have been lost.
                Err(_) => {
                    changed.is_way = true;
                    return true;
                }
            };
            let directory = self.directories.get(&event.wd());
            let flags = event.events();
            // What was watched before is of no concern.
            if directory.is_none() && !flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                continue;
            }
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let path = directory.zip(name).map(|(directory, name)| directory.join(name));
            let path = path.as_deref().or_else(|| directory.map(PathBuf::as_path));
            is_any |= changed.note(flags, path, &self.known);
        }
    }

    /// Watches the directories in which the files lie now. Goes on after an error, and tells the
    /// first.
    pub(super) fn follow(&mut self, paths: &[PathBuf]) -> io::Result<()> {
        self.begin()?;
        let mut looked_up = LookedUp::new(paths);
        let mut result = Ok(());
        for _ in 0..LOOKS_MAX {
            let LookedUp { known, directories } = looked_up;
            self.known = known;
            let watched = self.watch(directories);
            result = result.and(watched);
            // What changed before it was watched was not seen.
            looked_up = LookedUp::new(paths);
            if looked_up.known == self.known {
                break;
            }
        }
        result
    }

    /// Whether one of the watched directories is another by now.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.identities.iter().any(|(directory, before)| identity(directory) != *before)
    }

    fn watch(&mut self, directories: BTreeSet<PathBuf>) -> io::Result<()> {
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let identify = |directory: &PathBuf| (directory.clone(), identity(directory));
        self.identities = directories.iter().map(identify).collect();
        let mut result = Ok(());
        let mut watched = BTreeMap::new();
        for directory in directories {
            // Again for those that are watched: one may have been removed and made anew.
            match inotify::add_watch(inotify, &directory, WATCHED) {
                Ok(number) => drop(watched.insert(number, directory)),
                Err(error) => {
                    // The watch of before may hold on, as where the process may not read the directory any more.
                    let before = self.directories.iter().find(|(_, it)| **it == directory);
                    watched.extend(before.map(|(number, it)| (*number, it.clone())));
                    let error = match error {
                        Errno::NOSPC => {
                            io::Error::other("no watch is left: raise fs.inotify.max_user_watches")
                        }
                        error => error.into(),
                    };
                    result = result.and(Err(error));
                }
            }
        }
        let gone = self.directories.keys().filter(|number| !watched.contains_key(number));
        for number in gone {
            // It fails if the directory is gone, and the watch with it.
            let _ = inotify::remove_watch(inotify, *number);
        }
        self.directories = watched;
        result
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;
    use crate::scratch::Scratch;

    /// A folder above the watched ones is replaced, of which the kernel says nothing there.
    #[test]
    fn directories_that_are_replaced_from_above_are_noticed_once() {
        let scratch = Scratch::new("watch-above");
        let [now, next, former] = ["now", "next", "former"].map(|name| scratch.0.join(name));
        for folder in [&now, &next] {
            fs::create_dir_all(folder.join("a/b")).unwrap();
            fs::write(folder.join("a/b/file"), "").unwrap();
        }
        let file = now.join("a/b/file");
        let mut places = Places::default();
        places.follow(std::slice::from_ref(&file)).unwrap();
        assert!(!places.are_elsewhere());
        fs::rename(&now, former).unwrap();
        fs::rename(&next, &now).unwrap();
        let mut changed = Changed::default();
        assert!(!places.read(&mut changed) && places.are_elsewhere());
        places.follow(std::slice::from_ref(&file)).unwrap();
        assert!(!places.are_elsewhere());
        fs::write(&file, "more").unwrap();
        assert!(places.read(&mut changed) && changed.is_any());
    }

    #[test]
    fn what_is_written_beside_the_files_is_no_event() {
        let scratch = Scratch::new("watch-beside");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        let mut places = Places::default();
        places.follow(std::slice::from_ref(&path)).unwrap();
        let mut log = fs::File::create(scratch.0.join("access.log")).unwrap();
        let mut changed = Changed::default();
        // That it is new is one, which concerns no file.
        let mut buffer = [const { MaybeUninit::uninit() }; EVENT_BYTES];
        let inotify = places.inotify.as_ref().unwrap();
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        assert_eq!(reader.next().unwrap().events(), ReadFlags::CREATE);
        for _ in 0..100 {
            log.write_all(b"a line").unwrap();
            fs::read(&path).unwrap();
        }
        assert_eq!(reader.next().unwrap_err(), Errno::WOULDBLOCK);
        drop(log);
        assert!(!places.read(&mut changed) && !changed.is_any());
        fs::write(&path, "b").unwrap();
        assert!(places.read(&mut changed) && !changed.is_way);
        assert!(changed.files.contains(OsStr::new("strait.yaml")));
    }
}
