//! Watches the configuration file, and the files that it names.
//!
//! What is watched are directories, not files: editors rename a new file over the old one, and
//! Kubernetes swaps a symbolic link two levels up, and both leave a watch on the old file behind.
//! So the directory that a path names is watched, and the one in which the file really lies. A
//! directory that is not there yet is waited for in the nearest one above it that is.
//! A change is reported once things have been quiet for [`QUIET`]; whether any content differs is for
//! the receiver to see.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};

/// Silence after which what was written is taken to be whole.
const QUIET: Duration = Duration::from_millis(100);

/// Longest time that a noisy directory can put a change off.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// Tells when a file may have changed. Ends when dropped.
#[derive(Debug)]
pub(crate) struct FileWatch {
    changed: mpsc::Receiver<()>,
}

/// Says which files are watched.
#[derive(Debug)]
pub(crate) struct WatchList {
    paths: watch::Sender<Vec<PathBuf>>,
}

impl FileWatch {
    /// Watches `paths` from now on. To be called on the runtime.
    ///
    /// # Errors
    ///
    /// The kernel has no watch left, or there is no directory for one of them.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Result<(Self, WatchList), notify::Error> {
        let (noticed_sender, noticed) = mpsc::channel(1);
        let names = Names::default();
        let named = Names::clone(&names);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that events were lost: any file may have changed.
            let may_concern = event.map_or(true, |event| {
                may_concern(&event, &named.lock().unwrap_or_else(PoisonError::into_inner))
            });
            if may_concern {
                // Full means that it is known already.
                let _ = noticed_sender.try_send(());
            }
        })?;
        let mut places = Places { watcher, names, directories: BTreeSet::new() };
        places.follow(&paths)?;
        let (paths, listed) = watch::channel(paths);
        let (changed_sender, changed) = mpsc::channel(1);
        tokio::spawn(gather(places, listed, noticed, changed_sender));
        Ok((Self { changed }, WatchList { paths }))
    }

    /// The next change. Loses none when it is dropped before its end; never ends if the watch broke.
    pub(crate) async fn changed(&mut self) {
        if self.changed.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl WatchList {
    /// Watches `paths` in place of those before. If they are others, a change is reported, since what was
    /// written before they were watched is not seen by the watch.
    pub(crate) fn set(&self, paths: Vec<PathBuf>) {
        self.paths.send_if_modified(|listed| {
            let is_other = *listed != paths;
            *listed = paths;
            is_other
        });
    }
}

/// The names of the watched files, for the watcher's own thread.
type Names = Arc<Mutex<BTreeSet<OsString>>>;

/// The watched directories.
#[derive(Debug)]
struct Places {
    watcher: RecommendedWatcher,
    names: Names,
    /// Without links, so that none stands twice: the kernel has one watch for each.
    directories: BTreeSet<PathBuf>,
}

impl Places {
    /// Watches the directories in which the files lie now. Goes on after an error, and tells the
    /// first.
    fn follow(&mut self, paths: &[PathBuf]) -> Result<(), notify::Error> {
        let (mut names, mut directories) = (BTreeSet::new(), BTreeSet::new());
        for path in paths {
            names.extend(path.file_name().map(OsStr::to_owned));
            directories.extend(directory(path));
            if let Ok(real) = path.canonicalize() {
                names.extend(real.file_name().map(OsStr::to_owned));
                directories.insert(parent(&real));
            }
        }
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        for former in self.directories.difference(&directories) {
            // It fails if the directory is gone, and the watch with it.
            let _ = self.watcher.unwatch(former);
        }
        let mut result = Ok(());
        for place in &directories {
            // Again for those that are watched: one may have been removed and made anew.
            let watched = self.watcher.watch(place, RecursiveMode::NonRecursive);
            result = result.and(watched);
        }
        self.directories = directories;
        result
    }
}

/// The directory that `path` names, or the nearest one above it that is there.
fn directory(path: &Path) -> Option<PathBuf> {
    let named = parent(path);
    let mut above =
        named.ancestors().map(|place| if place == Path::new("") { Path::new(".") } else { place });
    above.find_map(|place| place.canonicalize().ok())
}

/// Makes one change out of a burst of events.
async fn gather(
    mut places: Places,
    mut listed: watch::Receiver<Vec<PathBuf>>,
    mut noticed: mpsc::Receiver<()>,
    changed: mpsc::Sender<()>,
) {
    loop {
        tokio::select! {
            first = noticed.recv() => if first.is_none() { return },
            Ok(()) = listed.changed() => {}
            () = changed.closed() => return,
        }
        let quiet =
            async { while let Ok(Some(())) = tokio::time::timeout(QUIET, noticed.recv()).await {} };
        // Running out of patience is as good as quiet.
        let _ = tokio::time::timeout(PATIENCE_MAX, quiet).await;
        let paths = listed.borrow_and_update().clone();
        if let Err(error) = places.follow(&paths) {
            tracing::warn!("files of the configuration are not watched ({error}): send SIGHUP");
        }
        if changed.send(()).await.is_err() {
            return;
        }
    }
}

/// Whether an event may mean that a file of these names reads differently now. Reading does not,
/// and neither does writing to another file of the directory; whatever else happens there may,
/// through links.
fn may_concern(event: &Event, names: &BTreeSet<OsString>) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => {
            let is_ours = |name: &OsStr| names.contains(name);
            event.paths.iter().any(|path| path.file_name().is_some_and(is_ours))
        }
        EventKind::Access(_) => false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
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
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of its own, removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("strait-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    async fn expect_change(watch: &mut FileWatch) {
        tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.expect("a change");
    }

    #[tokio::test]
    async fn a_file_written_in_place_and_one_renamed_over_it_are_noticed() {
        let scratch = Scratch::new("watch-rename");
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, "a").unwrap();
        let (mut watch, _list) = FileWatch::new(vec![path.clone()]).unwrap();
        fs::write(&path, "b").unwrap();
        expect_change(&mut watch).await;
        fs::write(scratch.0.join("new"), "c").unwrap();
        fs::rename(scratch.0.join("new"), &path).unwrap();
        expect_change(&mut watch).await;
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
            expect_change(&mut watch).await;
            assert_eq!(fs::read_to_string(dir.join("strait.yaml")).unwrap(), version);
        }
        // The file that the links lead to now is watched, too.
        fs::write(dir.join("3/strait.yaml"), "4").unwrap();
        expect_change(&mut watch).await;
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
    fn reading_and_the_data_of_other_files_are_no_change() {
        use notify::event::{CreateKind, DataChange};
        let ours = BTreeSet::from([OsString::from("strait.yaml")]);
        let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        for (kind, path, concerns) in [
            (data, "/d/strait.yaml", true),
            (data, "/d/access.log", false),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), "/d/strait.yaml", true),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), "/d/access.log", false),
            (EventKind::Access(AccessKind::Any), "/d/strait.yaml", false),
            (EventKind::Create(CreateKind::Any), "/d/..data", true),
        ] {
            let event = Event::new(kind).add_path(PathBuf::from(path));
            assert_eq!(may_concern(&event, &ours), concerns, "{event:?}");
        }
    }
}
