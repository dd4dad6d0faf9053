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

mod events;
mod places;
mod ways;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::mpsc;

use self::events::Changed;
use self::places::Places;
use crate::clock;

/// Silence after which what was written is taken to be whole.
const QUIET: Duration = Duration::from_millis(100);

/// Longest time, ns, that a noisy directory can put a change off.
const PATIENCE_MAX: u64 = 1_000_000_000;

/// Between two looks at events of which none concerned the files: others may come by the thousand.
const PACE: Duration = Duration::from_millis(10);

/// Between two looks at files that cannot be watched, and attempts to watch them; and whether watched directories are where they were;
/// ns.
const RETRY_INTERVAL: u64 = 10_000_000_000;

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
        let look_at = clock::monotonic_ns().saturating_add(RETRY_INTERVAL);
        let thread = Thread { watching, paths: paths.clone(), ring, changed: sender, look_at };
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
    /// When to look at what is no event; monotonic time, ns.
    look_at: u64,
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
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Woken> {
        let ring = PollFd::new(&self.ring, PollFlags::IN);
        let events = self.watching.places.inotify.as_ref().filter(|_| timeout.is_none());
        let events = events.map(|events| PollFd::new(events, PollFlags::IN));
        let mut polled: Vec<_> = std::iter::once(ring).chain(events).collect();
        let until_look = Duration::from_nanos(self.look_at.saturating_sub(clock::monotonic_ns()));
        let timespec = Timespec::try_from(timeout.unwrap_or(until_look)).ok();
        let waited = retry_on_intr(|| poll(&mut polled, timespec.as_ref()));
        debug_assert!(waited.is_ok(), "these are open, and fit");
        let found = polled.first().map_or(PollFlags::empty(), PollFd::revents);
        match self.rung(found) {
            Woken::Ended => None,
            // Also where there are events all the time.
            Woken::Other if self.is_due() => Some(Woken::Due),
            woken => Some(woken),
        }
    }

    /// Whether it is time to look at what is no event, and something may have changed.
    fn is_due(&mut self) -> bool {
        let now = clock::monotonic_ns();
        if now < self.look_at {
            return false;
        }
        self.look_at = now.saturating_add(RETRY_INTERVAL);
        self.watching.is_due()
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
                RETRY_INTERVAL / 1_000_000_000
            ),
            None if self.failure.is_some() => {
                tracing::info!("all files of the configuration are watched again");
            }
            _ => {}
        }
        self.failure = failure;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
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
    fn what_could_not_be_watched_is_once_it_can() {
        let scratch = Scratch::new("watch-again");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        // What the kernel refuses to watch with.
        let other = fs::File::open("/dev/null").unwrap();
        let mut watching = Watching::default();
        watching.places.inotify = Some(other.into());
        watching.follow(std::slice::from_ref(&path));
        assert!(watching.failure.is_some() && watching.places.directories.is_empty());
        watching.places.inotify = None;
        watching.follow(std::slice::from_ref(&path));
        assert!(watching.failure.is_none(), "{:?}", watching.failure);
        assert!(watching.places.directories.values().any(|it| it.ends_with(&scratch.0)));
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
}
