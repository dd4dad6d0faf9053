//! Watches the configuration file, and the files that it names.
//!
//! What is watched are directories, not files: editors rename a new file over the old one, and
//! Kubernetes swaps a symbolic link two levels up, and both leave a watch on the old file behind.
//! So the directory that a path names is watched, and the one in which the file really lies. A
//! directory that is not there yet is waited for in the nearest one above it that is.
//!
//! The kernel is asked for what can make a difference: a file that was written and closed, and names that appear, go or
//! change. A log that is written in one of the directories wakes nothing. An event concerns the files if it is about a
//! name that was looked up on the way to one of them; another one cannot change what a path leads to. The ways are looked
//! up again only if an event may have changed one.
//!
//! A folder above those may be replaced, and another file system may be mounted over one: neither is an event there. Whether the
//! watched directories are still where they were is looked at now and then.
//!
//! A change is reported once things have been quiet for [`QUIET`]; whether any content differs is for
//! the receiver to see. All of it happens on a thread, since looking at a directory may wait for a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::wildcard::{fits_path, is_pattern};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::mpsc;

use crate::clock;

/// Silence after which what was written is taken to be whole.
const QUIET: Duration = Duration::from_millis(100);

/// Longest time, ns, that a noisy directory can put a change off.
const PATIENCE_MAX: u64 = 1_000_000_000;

/// Between two looks at events of which none concerned the files: others may come by the thousand.
const PACE: Duration = Duration::from_millis(10);

/// Between two looks at files that cannot be watched, and attempts to watch them; and whether watched directories are where they were.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

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

/// Tells when a file may have changed.
#[derive(Debug)]
pub(crate) struct FileWatch {
    changed: mpsc::Receiver<Noticed>,
}

/// What may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Noticed {
    /// Any file, or where one lies.
    Anything,
    /// What files of these names hold, of those that are watched.
    Files(BTreeSet<OsString>),
}

/// Says which files are watched. The watch ends when this is dropped.
#[derive(Debug)]
pub(crate) struct WatchList {
    paths: Paths,
    /// A byte makes the thread look at the list.
    bell: OwnedFd,
}

/// The files that are watched.
#[derive(Clone, Debug)]
struct Paths(Arc<Mutex<Vec<PathBuf>>>);

impl Paths {
    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileWatch {
    /// Watches `paths` from now on, on a thread.
    ///
    /// # Errors
    ///
    /// The kernel has no pipe or thread left.
    pub(crate) fn new(paths: Vec<PathBuf>) -> io::Result<(Self, WatchList)> {
        let mut watching = Watching::default();
        watching.follow(&paths);
        let (ring, bell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let paths = Paths(Arc::new(Mutex::new(paths)));
        let (sender, changed) = mpsc::channel(1);
        let thread = Thread { watching, paths: paths.clone(), ring, changed: sender };
        std::thread::Builder::new().name("strait-watch".to_owned()).spawn(move || thread.run())?;
        Ok((Self { changed }, WatchList { paths, bell }))
    }

    /// The next change. Loses none when it is dropped before its end; never ends if the watch broke.
    pub(crate) async fn changed(&mut self) -> Noticed {
        match self.changed.recv().await {
            Some(noticed) => noticed,
            None => std::future::pending().await,
        }
    }
}

impl WatchList {
    /// Watches `paths` in place of those before. If they are others, a change is reported, since what was
    /// written before they were watched is not seen by the watch.
    pub(crate) fn set(&self, paths: Vec<PathBuf>) {
        let mut listed = self.paths.lock();
        if *listed != paths {
            *listed = paths;
            drop(listed);
            // Full means that the thread has yet to look.
            let _ = retry_on_intr(|| rustix::io::write(&self.bell, &[0]));
        }
    }
}

/// The thread.
#[derive(Debug)]
struct Thread {
    watching: Watching,
    paths: Paths,
    ring: OwnedFd,
    changed: mpsc::Sender<Noticed>,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The list may be another.
    Rung,
    /// It is time to look at what is not watched.
    Due,
    /// There may be events, or the time is over.
    Other,
    /// The watch is to end.
    Ended,
}

impl Thread {
    fn run(mut self) {
        while let Some(noticed) = self.next() {
            if self.changed.blocking_send(noticed).is_err() {
                return;
            }
        }
    }

    /// Waits for a change, and makes one out of a burst of events. None once the watch is to end.
    fn next(&mut self) -> Option<Noticed> {
        let mut changed = Changed::default();
        let mut are_others = false;
        let mut timeout = None;
        while !(are_others || changed.is_any()) {
            // Without looking at events while it lasts.
            let woken = self.wait(timeout)?;
            are_others |= woken != Woken::Other;
            self.watching.places.read(&mut changed);
            timeout = (timeout.is_none()).then_some(PACE);
        }
        let began = clock::monotonic_ns();
        loop {
            let woken = self.wait(Some(QUIET))?;
            let was_quiet = !self.watching.places.read(&mut changed) && woken != Woken::Rung;
            are_others |= woken == Woken::Rung;
            // Running out of patience is as good as quiet.
            if was_quiet || clock::monotonic_ns().saturating_sub(began) > PATIENCE_MAX {
                break;
            }
        }
        if !are_others && !changed.is_way {
            return Some(Noticed::Files(changed.files));
        }
        let paths = self.paths.lock().clone();
        self.watching.follow(&paths);
        Some(Noticed::Anything)
    }

    /// Waits for the list and for events, or for the list alone and so long. None once the watch is to end.
    fn wait(&self, timeout: Option<Duration>) -> Option<Woken> {
        let ring = PollFd::new(&self.ring, PollFlags::IN);
        let events = self.watching.places.inotify.as_ref().filter(|_| timeout.is_none());
        let events = events.map(|events| PollFd::new(events, PollFlags::IN));
        let mut polled: Vec<_> = std::iter::once(ring).chain(events).collect();
        let timespec = Timespec::try_from(timeout.unwrap_or(RETRY_INTERVAL)).ok();
        let waited = retry_on_intr(|| poll(&mut polled, timespec.as_ref()));
        debug_assert!(waited.is_ok(), "these are open, and fit");
        let found = polled.first().map_or(PollFlags::empty(), PollFd::revents);
        match self.rung(found) {
            Woken::Ended => None,
            Woken::Other if timeout.is_none() && waited == Ok(0) && self.watching.is_due() => {
                Some(Woken::Due)
            }
            woken => Some(woken),
        }
    }

    /// Takes the rings of the bell, if there are any.
    fn rung(&self, found: PollFlags) -> Woken {
        if !found.intersects(PollFlags::IN | PollFlags::HUP) {
            return Woken::Other;
        }
        let mut taken = [0; 64];
        match retry_on_intr(|| rustix::io::read(&self.ring, &mut taken)) {
            Ok(0) => Woken::Ended,
            _ => Woken::Rung,
        }
    }
}

/// What events may have changed.
#[derive(Debug, Default)]
struct Changed {
    /// Whether a way may be another since.
    is_way: bool,
    /// The files that may hold something else.
    files: BTreeSet<OsString>,
}

impl Changed {
    fn is_any(&self) -> bool {
        self.is_way || !self.files.is_empty()
    }

    /// Notes what an event may have changed, and whether that is anything.
    fn note(&mut self, flags: ReadFlags, path: Option<&Path>, known: &Known) -> bool {
        let Some(concerned) = concern_of(flags, path, known) else { return false };
        match path.and_then(Path::file_name) {
            // What a link leads to lies elsewhere than the file that is watched, or has another name.
            Some(name)
                if concerned == Concern::Content
                    && path.is_some_and(|path| known.files.contains(path)) =>
            {
                if !self.files.contains(name) {
                    self.files.insert(name.to_owned());
                }
            }
            _ => self.is_way = true,
        }
        true
    }
}

/// The names that were looked up on the ways.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    names: BTreeSet<OsString>,
    /// The watched files themselves, in folders without links.
    files: BTreeSet<PathBuf>,
    /// Paths whose last part stands for all names that fit it.
    patterns: Vec<PathBuf>,
}

impl Known {
    /// Adds the way to `path`, and the folders of links on it, which may be replaced, to `directories`.
    fn add(&mut self, path: &Path, directories: &mut BTreeSet<PathBuf>) {
        add_names(path, LINKS_MAX, &mut self.names, directories);
        if is_pattern(path) {
            self.patterns.push(path.to_owned());
        }
    }

    fn has(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.names.contains(name))
            || self.patterns.iter().any(|pattern| fits_path(pattern, path))
    }
}

/// The watched directories, and whether these are all.
#[derive(Debug, Default)]
struct Watching {
    places: Places,
    /// Why some files are not watched, as was said last.
    failure: Option<String>,
}

impl Watching {
    /// Whether something may have changed without an event.
    fn is_due(&self) -> bool {
        self.failure.is_some() || self.places.are_elsewhere()
    }

    /// Watches the directories in which the files lie now. What cannot be watched is looked at again and again.
    fn follow(&mut self, paths: &[PathBuf]) {
        let failure = self.places.follow(paths).err().map(|error| error.to_string());
        match &failure {
            Some(error) if failure != self.failure => tracing::warn!(
                "files of the configuration are not watched ({error}): Strait looks at them every {} seconds instead",
                RETRY_INTERVAL.as_secs()
            ),
            None if self.failure.is_some() => {
                tracing::info!("all files of the configuration are watched again");
            }
            _ => {}
        }
        self.failure = failure;
    }
}

/// The watched directories.
#[derive(Debug, Default)]
struct Places {
    /// None as long as the kernel has none for this process.
    inotify: Option<OwnedFd>,
    known: Known,
    /// Without links, by the kernel's numbers of their watches.
    directories: BTreeMap<i32, PathBuf>,
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
    fn read(&self, changed: &mut Changed) -> bool {
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
    fn follow(&mut self, paths: &[PathBuf]) -> io::Result<()> {
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
    fn are_elsewhere(&self) -> bool {
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

/// How often ways are looked up that change while they are.
const LOOKS_MAX: usize = 3;

/// Where the watched files lie.
struct LookedUp {
    known: Known,
    directories: BTreeSet<PathBuf>,
}

impl LookedUp {
    fn new(paths: &[PathBuf]) -> Self {
        let (mut known, mut directories) = (Known::default(), BTreeSet::new());
        for path in paths {
            known.add(path, &mut directories);
            let folder = parent(path).canonicalize().ok();
            let file = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
            known.files.extend(file);
            directories.extend(directory(path));
            if let Ok(real) = path.canonicalize() {
                directories.insert(parent(&real));
            }
        }
        // One may be moved away.
        let mut more = BTreeSet::new();
        directories.iter().for_each(|place| known.add(place, &mut more));
        directories.extend(more);
        Self { known, directories }
    }
}

/// The directory that `path` names, or the nearest one above it that is there.
fn directory(path: &Path) -> Option<PathBuf> {
    let named = parent(path);
    let mut above =
        named.ancestors().map(|place| if place == Path::new("") { Path::new(".") } else { place });
    above.find_map(|place| place.canonicalize().ok())
}

/// Links on the way to a file that are followed, as in the kernel.
const LINKS_MAX: u32 = 40;

/// Adds the names that are looked up on the way to `path`, those of links and of what they lead to among them, and the folders in which
/// these links lie.
fn add_names(
    path: &Path,
    links_max: u32,
    names: &mut BTreeSet<OsString>,
    directories: &mut BTreeSet<PathBuf>,
) {
    let mut place = PathBuf::new();
    for component in path.components() {
        place.push(component);
        let Component::Normal(name) = component else { continue };
        names.insert(name.to_owned());
        let Some(links_max) = links_max.checked_sub(1) else { continue };
        if let Ok(to) = place.read_link() {
            directories.extend(parent(&place).canonicalize());
            add_names(&parent(&place).join(to), links_max, names, directories);
        }
    }
}

/// What an event may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    /// What a file holds.
    Content,
    /// Where a path leads.
    Way,
}

/// What an event may have changed at this path.
fn concern_of(flags: ReadFlags, path: Option<&Path>, known: &Known) -> Option<Concern> {
    let whole = ReadFlags::QUEUE_OVERFLOW
        | ReadFlags::UNMOUNT
        | ReadFlags::DELETE_SELF
        | ReadFlags::MOVE_SELF
        | ReadFlags::IGNORED;
    if flags.intersects(whole) {
        return Some(Concern::Way);
    }
    let path = path.filter(|path| known.has(path))?;
    // A file in the place of another leads nowhere else.
    let is_file = || path.symlink_metadata().is_ok_and(|it| it.is_file());
    let is_content = flags.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB)
        || flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && is_file();
    Some(if is_content { Concern::Content } else { Concern::Way })
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    async fn expect_change(watch: &mut FileWatch) -> Noticed {
        let changed = tokio::time::timeout(Duration::from_secs(10), watch.changed());
        changed.await.expect("a change")
    }

    #[tokio::test]
    async fn a_file_written_in_place_and_one_renamed_over_it_are_noticed() {
        let scratch = Scratch::new("watch-rename");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        let (mut watch, _list) = FileWatch::new(vec![path.clone()]).unwrap();
        let it = Noticed::Files([OsString::from("strait.yaml")].into());
        fs::write(&path, "b").unwrap();
        assert_eq!(expect_change(&mut watch).await, it);
        fs::write(scratch.0.join("new"), "c").unwrap();
        fs::rename(scratch.0.join("new"), &path).unwrap();
        assert_eq!(expect_change(&mut watch).await, it);
    }

    #[tokio::test]
    async fn a_link_swapped_two_levels_up_is_noticed_again_and_again() {
        let scratch = Scratch::new("watch-links");
        let dir = &scratch.0;
        for version in ["1", "2", "3"] {
            fs::create_dir(dir.join(version)).unwrap();
            fs::write(dir.join(version).join("strait.yaml"), version).unwrap();
        }
        symlink("1", dir.join("..data")).unwrap();
        symlink("..data/strait.yaml", dir.join("strait.yaml")).unwrap();
        let (mut watch, _list) = FileWatch::new(vec![dir.join("strait.yaml")]).unwrap();
        for version in ["2", "3"] {
            symlink(version, dir.join("..new")).unwrap();
            fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
            assert_eq!(expect_change(&mut watch).await, Noticed::Anything);
            assert_eq!(fs::read_to_string(dir.join("strait.yaml")).unwrap(), version);
        }
        // The file that the links lead to now is watched, too.
        fs::write(dir.join("3/strait.yaml"), "4").unwrap();
        expect_change(&mut watch).await;
    }

    #[tokio::test]
    async fn a_folder_that_is_a_link_in_a_folder_of_no_file_may_be_swapped() {
        let scratch = Scratch::new("watch-releases");
        let dir = &scratch.0;
        for version in ["1", "2", "3"] {
            let release = dir.join("releases").join(version);
            fs::create_dir_all(&release).unwrap();
            fs::write(release.join("web.yaml"), version).unwrap();
        }
        symlink("releases/1", dir.join("current")).unwrap();
        let path = dir.join("current/web.yaml");
        let (mut watch, _list) = FileWatch::new(vec![path.clone()]).unwrap();
        for version in ["2", "3"] {
            symlink(format!("releases/{version}"), dir.join("new")).unwrap();
            fs::rename(dir.join("new"), dir.join("current")).unwrap();
            assert_eq!(expect_change(&mut watch).await, Noticed::Anything);
            assert_eq!(fs::read_to_string(&path).unwrap(), version);
        }
    }

    #[tokio::test]
    async fn what_a_link_leads_to_is_not_another_file_of_the_same_name() {
        let scratch = Scratch::new("watch-namesakes");
        let dir = &scratch.0;
        for folder in ["a", "b"] {
            fs::create_dir(dir.join(folder)).unwrap();
            fs::write(dir.join(folder).join("endpoints.yaml"), "1").unwrap();
        }
        symlink("b/endpoints.yaml", dir.join("web.yaml")).unwrap();
        let paths = ["web.yaml", "a/endpoints.yaml"].map(|path| dir.join(path)).to_vec();
        let (mut watch, _list) = FileWatch::new(paths).unwrap();
        fs::write(dir.join("b/endpoints.yaml"), "2").unwrap();
        assert_eq!(expect_change(&mut watch).await, Noticed::Anything);
        fs::write(dir.join("a/endpoints.yaml"), "2").unwrap();
        let it = Noticed::Files([OsString::from("endpoints.yaml")].into());
        assert_eq!(expect_change(&mut watch).await, it);
    }

    #[tokio::test]
    async fn files_of_another_list_are_watched_wherever_they_lie_or_will_lie() {
        let scratch = Scratch::new("watch-list");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        let (mut watch, list) = FileWatch::new(vec![path.clone()]).unwrap();
        let later = scratch.0.join("tls/new/site.pem");
        list.set(vec![path.clone(), later.clone()]);
        // What happened before it was watched is for the receiver to see.
        expect_change(&mut watch).await;
        fs::create_dir_all(later.parent().unwrap()).unwrap();
        expect_change(&mut watch).await;
        fs::write(&later, "1").unwrap();
        expect_change(&mut watch).await;
        fs::write(scratch.0.join("tls/new/temporary"), "2").unwrap();
        fs::rename(scratch.0.join("tls/new/temporary"), &later).unwrap();
        expect_change(&mut watch).await;
        // The same list is no change, and neither is one file less.
        list.set(vec![path.clone(), later.clone()]);
        list.set(vec![path.clone()]);
        expect_change(&mut watch).await;
        fs::write(&later, "3").unwrap();
        let changed = tokio::time::timeout(QUIET * 4, watch.changed()).await;
        assert!(changed.is_err(), "it is not watched any more");
    }

    #[test]
    fn an_event_concerns_the_content_of_a_file_or_the_way_to_it_or_nothing() {
        let scratch = Scratch::new("watch-events");
        let dir = &scratch.0;
        fs::create_dir(dir.join("1")).unwrap();
        fs::write(dir.join("1/strait.yaml"), "a").unwrap();
        fs::write(dir.join("endpoints.yaml"), "a").unwrap();
        fs::write(dir.join("part"), "a").unwrap();
        symlink("1", dir.join("..data")).unwrap();
        symlink("..data/strait.yaml", dir.join("strait.yaml")).unwrap();
        let mut known = Known::default();
        for name in ["strait.yaml", "endpoints.yaml", "later/secret.pem", "more/*.yaml"] {
            known.add(&dir.join(name), &mut BTreeSet::new());
        }
        let (content, way) = (Some(Concern::Content), Some(Concern::Way));
        let folder = ReadFlags::ISDIR;
        for (flags, path, concerned) in [
            (ReadFlags::CLOSE_WRITE, Some("1/strait.yaml"), content),
            (ReadFlags::CLOSE_WRITE, Some("access.log"), None),
            (ReadFlags::ATTRIB, Some("strait.yaml"), content),
            (ReadFlags::CREATE, Some("part"), None),
            (ReadFlags::MOVED_FROM, Some("part"), None),
            // It fits a pattern.
            (ReadFlags::MOVED_FROM, Some("more/new.yaml"), way),
            (ReadFlags::MOVED_TO, Some("endpoints.yaml"), content),
            // It is gone.
            (ReadFlags::MOVED_FROM | folder, Some("later"), way),
            (ReadFlags::CREATE | folder, Some("later"), way),
            // A link, and a folder.
            (ReadFlags::CREATE, Some("strait.yaml"), way),
            (ReadFlags::MOVED_TO, Some("..data"), way),
            (ReadFlags::MOVED_TO | folder, Some("1"), way),
            (ReadFlags::DELETE, Some("part"), None),
            (ReadFlags::DELETE | folder, Some("other"), None),
            (ReadFlags::DELETE, Some("endpoints.yaml"), way),
            // The watched folder itself, and events that were lost.
            (ReadFlags::DELETE_SELF, Some(""), way),
            (ReadFlags::IGNORED, Some(""), way),
            (ReadFlags::QUEUE_OVERFLOW, None, way),
        ] {
            let path = path.map(|path| dir.join(path));
            assert_eq!(concern_of(flags, path.as_deref(), &known), concerned, "{flags:?} {path:?}");
        }
    }

    #[test]
    fn what_could_not_be_watched_is_once_it_can() {
        let scratch = Scratch::new("watch-again");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        // What the kernel refuses to watch with.
        let other = fs::File::open("/dev/null").unwrap();
        let places = Places { inotify: Some(other.into()), ..Places::default() };
        let mut watching = Watching { places, failure: None };
        watching.follow(std::slice::from_ref(&path));
        assert!(watching.failure.is_some() && watching.places.directories.is_empty());
        watching.places.inotify = None;
        watching.follow(std::slice::from_ref(&path));
        assert!(watching.failure.is_none(), "{:?}", watching.failure);
        assert!(watching.places.directories.values().any(|it| it.ends_with(&scratch.0)));
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

    #[tokio::test]
    async fn noise_beside_the_files_puts_a_change_off_for_a_second_at_most_and_is_none_itself() {
        let scratch = Scratch::new("watch-noise");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        let (mut watch, list) = FileWatch::new(vec![path.clone()]).unwrap();
        let dir = scratch.0.clone();
        let noise = std::thread::spawn(move || {
            for number in 0..2000 {
                fs::write(dir.join(format!("part-{number}")), "c").unwrap();
            }
        });
        noise.join().unwrap();
        let changed = tokio::time::timeout(QUIET * 2, watch.changed()).await;
        assert!(changed.is_err(), "{changed:?}");
        fs::write(&path, "b").unwrap();
        let it = Noticed::Files([OsString::from("strait.yaml")].into());
        assert_eq!(expect_change(&mut watch).await, it);
        drop(list);
        let ended = tokio::time::timeout(Duration::from_secs(10), watch.changed.recv()).await;
        assert_eq!(ended, Ok(None), "the thread ends with the list");
    }

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
}
