//! Watches the configuration file, and the files that it names.
//!
//! What is watched are directories, not files: editors rename a new file over the old one, and
//! Kubernetes swaps a symbolic link two levels up, and both leave a watch on the old file behind.
//! So the directory that a path names is watched, and the one in which the file really lies. A
//! directory that is not there yet is waited for in the nearest one above it that is.
//! An event concerns the files if it is about a name that was looked up on the way to one of them; another one
//! cannot change what a path leads to. The ways are looked up again only if an event may have changed one.
//! A change is reported once things have been quiet for [`QUIET`]; whether any content differs is for
//! the receiver to see.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::wildcard::{fits_path, is_pattern};
use notify::event::{AccessKind, AccessMode, ModifyKind, RemoveKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};

/// Silence after which what was written is taken to be whole.
const QUIET: Duration = Duration::from_millis(100);

/// Longest time that a noisy directory can put a change off.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// Tells when a file may have changed. Ends when dropped.
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
        let ways = Ways::default();
        let known = Ways::clone(&ways);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let mut known = known.lock();
            // An error means that events were lost: any file may have changed.
            let concerned = event.map_or(Some(Concern::Way), |event| known.note(&event));
            if let Some(concern) = concerned {
                known.are_changed |= concern == Concern::Way;
                // Full means that it is known already.
                let _ = noticed_sender.try_send(());
            }
        })?;
        let mut places = Places { watcher, ways, directories: BTreeSet::new() };
        places.follow(&paths)?;
        let (paths, listed) = watch::channel(paths);
        let (changed_sender, changed) = mpsc::channel(1);
        tokio::spawn(gather(places, listed, noticed, changed_sender));
        Ok((Self { changed }, WatchList { paths }))
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
        self.paths.send_if_modified(|listed| {
            let is_other = *listed != paths;
            *listed = paths;
            is_other
        });
    }
}

/// What the watcher's own thread has to know of the ways to the watched files.
#[derive(Clone, Debug, Default)]
struct Ways(Arc<Mutex<WayNames>>);

#[derive(Debug, Default)]
struct WayNames {
    known: Known,
    /// Whether a way may be another since.
    are_changed: bool,
    /// The files that may hold something else.
    changed: BTreeSet<OsString>,
}

impl WayNames {
    /// Notes what an event may have changed, and says of which kind that is.
    fn note(&mut self, event: &Event) -> Option<Concern> {
        let concerned = concern(event, &self.known)?;
        if concerned == Concern::Content {
            let names = event.paths.iter().filter(|path| self.known.has(path));
            for name in names.filter_map(|path| path.file_name()) {
                // What a link leads to has another name than the file that is watched.
                if !self.known.files.contains(name) {
                    return Some(Concern::Way);
                }
                self.changed.insert(name.to_owned());
            }
        }
        Some(concerned)
    }
}

/// The names that were looked up on the ways.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    names: BTreeSet<OsString>,
    /// Those of the watched files themselves.
    files: BTreeSet<OsString>,
    /// Paths whose last part stands for all names that fit it.
    patterns: Vec<PathBuf>,
}

impl Known {
    /// Adds the way to `path`.
    fn add(&mut self, path: &Path) {
        add_names(path, LINKS_MAX, &mut self.names);
        if is_pattern(path) {
            self.patterns.push(path.to_owned());
        }
    }

    fn has(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.names.contains(name))
            || self.patterns.iter().any(|pattern| fits_path(pattern, path))
    }
}

impl Ways {
    fn lock(&self) -> MutexGuard<'_, WayNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watched directories.
#[derive(Debug)]
struct Places {
    watcher: RecommendedWatcher,
    ways: Ways,
    /// Without links, so that none stands twice: the kernel has one watch for each.
    directories: BTreeSet<PathBuf>,
}

impl Places {
    /// Watches the directories in which the files lie now. Goes on after an error, and tells the
    /// first.
    fn follow(&mut self, paths: &[PathBuf]) -> Result<(), notify::Error> {
        let mut looked_up = LookedUp::new(paths);
        let mut result = Ok(());
        for _ in 0..LOOKS_MAX {
            let LookedUp { known, directories } = looked_up;
            {
                let mut ways = self.ways.lock();
                ways.are_changed = false;
                ways.known = known;
            }
            let watched = self.watch(directories);
            result = result.and(watched);
            // What changed before it was watched was not seen.
            looked_up = LookedUp::new(paths);
            if looked_up.known == self.ways.lock().known {
                break;
            }
        }
        result
    }

    fn watch(&mut self, directories: BTreeSet<PathBuf>) -> Result<(), notify::Error> {
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
            known.add(path);
            known.files.extend(path.file_name().map(ToOwned::to_owned));
            directories.extend(directory(path));
            if let Ok(real) = path.canonicalize() {
                directories.insert(parent(&real));
            }
        }
        // One may be moved away.
        directories.iter().for_each(|place| known.add(place));
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

/// Adds the names that are looked up on the way to `path`, those of links and of what they lead to among them.
fn add_names(path: &Path, links_max: u32, names: &mut BTreeSet<OsString>) {
    let mut place = PathBuf::new();
    for component in path.components() {
        place.push(component);
        let Component::Normal(name) = component else { continue };
        names.insert(name.to_owned());
        let Some(links_max) = links_max.checked_sub(1) else { continue };
        if let Ok(to) = place.read_link() {
            add_names(&parent(&place).join(to), links_max, names);
        }
    }
}

/// Makes one change out of a burst of events.
async fn gather(
    mut places: Places,
    mut listed: watch::Receiver<Vec<PathBuf>>,
    mut noticed: mpsc::Receiver<()>,
    changed: mpsc::Sender<Noticed>,
) {
    loop {
        let mut are_others = false;
        tokio::select! {
            first = noticed.recv() => if first.is_none() { return },
            Ok(()) = listed.changed() => are_others = true,
            () = changed.closed() => return,
        }
        let quiet =
            async { while let Ok(Some(())) = tokio::time::timeout(QUIET, noticed.recv()).await {} };
        // Running out of patience is as good as quiet.
        let _ = tokio::time::timeout(PATIENCE_MAX, quiet).await;
        are_others |= listed.has_changed().unwrap_or_default();
        let (are_changed, names) = {
            let mut ways = places.ways.lock();
            (ways.are_changed, std::mem::take(&mut ways.changed))
        };
        let mut noticed = Noticed::Files(names);
        if are_others || are_changed {
            noticed = Noticed::Anything;
            let paths = listed.borrow_and_update().clone();
            if let Err(error) = places.follow(&paths) {
                tracing::warn!("files of the configuration are not watched ({error}): send SIGHUP");
            }
        }
        if changed.send(noticed).await.is_err() {
            return;
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

/// What an event may have changed. Reading changes nothing.
fn concern(event: &Event, known: &Known) -> Option<Concern> {
    let is_known = |path: &PathBuf| known.has(path);
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => {
            event.paths.iter().any(is_known).then_some(Concern::Content)
        }
        EventKind::Access(_) => None,
        // The events of both names come before.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => None,
        // A file in the place of another leads nowhere else.
        EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_))
            if !event.paths.is_empty() =>
        {
            let mut known = event.paths.iter().filter(|path| known.has(path)).peekable();
            known.peek()?;
            let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|it| it.is_file());
            Some(if known.all(is_file) { Concern::Content } else { Concern::Way })
        }
        EventKind::Remove(RemoveKind::File) => {
            event.paths.iter().any(is_known).then_some(Concern::Way)
        }
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => Some(Concern::Way),
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
        use notify::event::{CreateKind, DataChange};
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
            known.add(&dir.join(name));
        }
        let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let created = EventKind::Create(CreateKind::Any);
        let moved = |mode| EventKind::Modify(ModifyKind::Name(mode));
        let (content, way) = (Some(Concern::Content), Some(Concern::Way));
        for (kind, paths, concerned) in [
            (data, &["strait.yaml"][..], content),
            (data, &["access.log"], None),
            (closed, &["1/strait.yaml"], content),
            (closed, &["access.log"], None),
            (EventKind::Access(AccessKind::Any), &["strait.yaml"], None),
            (created, &["part"], None),
            (moved(RenameMode::From), &["part"], None),
            // It fits a pattern.
            (moved(RenameMode::From), &["more/new.yaml"], way),
            (moved(RenameMode::To), &["endpoints.yaml"], content),
            (moved(RenameMode::Both), &["part", "endpoints.yaml"], None),
            // It is gone.
            (moved(RenameMode::From), &["later"], way),
            (created, &["later"], way),
            // A link, and a folder.
            (created, &["strait.yaml"], way),
            (moved(RenameMode::To), &["..data"], way),
            (moved(RenameMode::To), &["1"], way),
            (EventKind::Remove(RemoveKind::File), &["part"], None),
            (EventKind::Remove(RemoveKind::File), &["endpoints.yaml"], way),
            // The watched folder itself, and events that were lost.
            (EventKind::Remove(RemoveKind::Folder), &[""], way),
            (EventKind::Other, &[], way),
        ] {
            let mut event = Event::new(kind);
            event.paths = paths.iter().map(|path| dir.join(path)).collect();
            assert_eq!(concern(&event, &known), concerned, "{event:?}");
        }
    }
}
