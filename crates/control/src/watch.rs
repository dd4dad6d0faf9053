//! Watches the configuration file.
//!
//! What is watched are directories, not the file: editors rename a new file over the old one, and
//! Kubernetes swaps a symbolic link two levels up, and both leave a watch on the old file behind.
//! So the directory that the path names is watched, and the one in which the file really lies.
//! A change is told once things have been quiet for [`QUIET`]; whether the content differs is for
//! the receiver to see.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Silence after which what was written is taken to be whole.
const QUIET: Duration = Duration::from_millis(100);

/// Longest time that a noisy directory can put a change off.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// Tells when the file may have changed. Ends when dropped.
#[derive(Debug)]
pub(crate) struct FileWatch {
    changed: mpsc::Receiver<()>,
}

impl FileWatch {
    /// Watches `path` from now on. To be called on the runtime.
    ///
    /// # Errors
    ///
    /// The kernel has no watch left, or there is no such directory.
    pub(crate) fn new(path: &Path) -> Result<Self, notify::Error> {
        let (noticed_sender, noticed) = mpsc::channel(1);
        let name = path.file_name().map(OsStr::to_owned);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that events were lost: any file may have changed.
            if event.map_or(true, |event| may_concern(&event, name.as_deref())) {
                // Full means that it is known already.
                let _ = noticed_sender.try_send(());
            }
        })?;
        let mut places = Places { watcher, path: path.to_owned(), real: None };
        places.watcher.watch(&parent(path), RecursiveMode::NonRecursive)?;
        places.follow();
        let (changed_sender, changed) = mpsc::channel(1);
        tokio::spawn(gather(places, noticed, changed_sender));
        Ok(Self { changed })
    }

    /// The next change. Loses none when it is dropped before its end; never ends if the watch broke.
    pub(crate) async fn changed(&mut self) {
        if self.changed.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// The watched directories.
#[derive(Debug)]
struct Places {
    watcher: RecommendedWatcher,
    path: PathBuf,
    /// Where the file lies once all links are followed, if that is another directory.
    real: Option<PathBuf>,
}

impl Places {
    /// Watches the directory in which the file lies now.
    fn follow(&mut self) {
        let real = self.path.canonicalize().ok().map(|path| parent(&path));
        let named = parent(&self.path).canonicalize().ok();
        let real = real.filter(|real| Some(real) != named.as_ref());
        if real == self.real {
            return;
        }
        if let Some(former) = self.real.take() {
            // It fails if the directory is gone, and the watch with it.
            let _ = self.watcher.unwatch(&former);
        }
        if let Some(real) = real
            && self.watcher.watch(&real, RecursiveMode::NonRecursive).is_ok()
        {
            self.real = Some(real);
        }
    }
}

/// Makes one change out of a burst of events.
async fn gather(mut places: Places, mut noticed: mpsc::Receiver<()>, changed: mpsc::Sender<()>) {
    loop {
        tokio::select! {
            first = noticed.recv() => if first.is_none() { return },
            () = changed.closed() => return,
        }
        let quiet =
            async { while let Ok(Some(())) = tokio::time::timeout(QUIET, noticed.recv()).await {} };
        // Running out of patience is as good as quiet.
        let _ = tokio::time::timeout(PATIENCE_MAX, quiet).await;
        places.follow();
        if changed.send(()).await.is_err() {
            return;
        }
    }
}

/// Whether an event may mean that the file named `name` reads differently now. Reading does not,
/// and neither does writing to another file of the directory; whatever else happens there may,
/// through links.
fn may_concern(event: &Event, name: Option<&OsStr>) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => {
            event.paths.iter().any(|path| path.file_name() == name)
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
        let mut watch = FileWatch::new(&path).unwrap();
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
        let mut watch = FileWatch::new(&dir.join("strait.yaml")).unwrap();
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

    #[test]
    fn reading_and_the_data_of_other_files_are_no_change() {
        use notify::event::{CreateKind, DataChange};
        let ours = OsStr::new("strait.yaml");
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
            assert_eq!(may_concern(&event, Some(ours)), concerns, "{event:?}");
        }
    }
}
