//! The thread that keeps the file up to date.
//!
//! Control notes changes under a lock that the thread holds for moments only, never over a disk. Of each name the last
//! change waits, and one file is written at a time: [`DELAY`] after the first change, and so late that writing takes no
//! more than a part of the time. That an answer was given again changes its time alone, which is written every
//! [`REFRESH`].

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::snapshot::StateFolder;
use config::{RESOURCES_MAX, ResourceKind, holds_key};
use telemetry::events::StateWrites;
use tokio::sync::oneshot;

use super::disk::{self, STATE_BYTES_MAX};
use super::form::encode;
use super::{Change, KeptAnswer, LastGood, NameKey, ResourceChange, ResourceKey};
use crate::clock;

/// From the first change to the file with it.
const DELAY: Duration = Duration::from_secs(1);

/// Between two files that differ in times alone.
const REFRESH: Duration = Duration::from_secs(60);

/// Between two attempts, while files cannot be written.
const RETRY: Duration = Duration::from_secs(10);

/// Between two warnings that files cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A write that takes longer is said to hang.
const HANGING_AFTER: Duration = Duration::from_secs(30);

/// Changes that wait while a disk hangs or another process writes: more names than sources may have at a time.
const WAITING_MAX: usize = 4 * RESOURCES_MAX;

/// Writing takes at most one in so many parts of the time.
const SHARE: u32 = 10;

/// How long the end of the process waits for the last file.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Control's end of the thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: Arc<Path>,
    shared: Arc<Shared>,
    ended: oneshot::Receiver<()>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

/// What waits for the thread, and what came of its files.
#[derive(Debug, Default)]
struct Waiting {
    /// Of each name the last.
    answers: BTreeMap<NameKey, Option<KeptAnswer>>,
    resources: BTreeMap<ResourceKey, ResourceChange>,
    /// Since when something waits that is another; monotonic time, ns.
    since: Option<u64>,
    /// The same for what differs in its time.
    refreshed_since: Option<u64>,
    /// Whether what waits is written at once.
    is_urgent: bool,
    /// Whether another process writes the file.
    is_held: bool,
    end: Option<End>,
    /// Since when a file is being written, if one is; monotonic time, ns.
    writing_since: Option<u64>,
    /// Whether it counts as one that failed already.
    is_hanging: bool,
    /// Changes that there was no room for.
    left_out: u64,
    writes: StateWrites,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After what waits was written.
    Written,
    /// At once: another process writes the file.
    Now,
}

impl Keeper {
    /// Starts the thread, with what the file has to begin with. While it is held, it writes nothing.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(folder: StateFolder, kept: LastGood, is_held: bool) -> io::Result<Self> {
        let StateFolder { path: folder, keeps_keys } = folder;
        let since = Some(clock::monotonic_ns());
        let waiting = Waiting { since, is_held, ..Waiting::default() };
        let shared = Arc::new(Shared { waiting: Mutex::new(waiting), wake: Condvar::new() });
        let (ends, ended) = oneshot::channel();
        let writing = Writing {
            folder: Arc::clone(&folder),
            keeps_keys,
            shared: Arc::clone(&shared),
            has_had_any: !kept.is_empty(),
            kept,
            timing: Timing::default(),
            warned_at: None,
            is_first: true,
        };
        std::thread::Builder::new().name("strait-state".to_owned()).spawn(move || {
            writing.run();
            // The process may have given up on this.
            let _ = ends.send(());
        })?;
        Ok(Self { folder, shared, ended })
    }

    /// Takes note of changes. `is_other` if more than times are others.
    pub(crate) fn note(&self, changes: impl IntoIterator<Item = Change>, is_other: bool) {
        let mut waiting = self.shared.lock();
        for change in changes {
            let has_room = waiting.answers.len() + waiting.resources.len() < WAITING_MAX;
            let (key, change) = match change {
                Change::Answer(key, answer) if has_room || waiting.answers.contains_key(&key) => {
                    waiting.answers.insert(key, answer);
                    continue;
                }
                Change::Answer(..) => {
                    waiting.left_out += 1;
                    continue;
                }
                Change::Resource(key, kept, serves) => (key, ResourceChange::new(kept, serves)),
                Change::Serves(key) => (key, ResourceChange::serves()),
            };
            match waiting.resources.remove(&key) {
                Some(former) => drop(waiting.resources.insert(key, former.then(change))),
                None if has_room => drop(waiting.resources.insert(key, change)),
                None => waiting.left_out += 1,
            }
        }
        let now = clock::monotonic_ns();
        let since = if is_other { &mut waiting.since } else { &mut waiting.refreshed_since };
        let is_first = since.is_none();
        since.get_or_insert(now);
        drop(waiting);
        if is_first {
            self.shared.wake.notify_one();
        }
    }

    /// Holds files back while another process writes them, or no longer.
    pub(crate) fn hold(&self, is_held: bool) {
        let mut waiting = self.shared.lock();
        let was_held = std::mem::replace(&mut waiting.is_held, is_held);
        if was_held && !is_held {
            // The other process may have written what it knew.
            waiting.since.get_or_insert_with(clock::monotonic_ns);
            drop(waiting);
            self.shared.wake.notify_one();
        }
    }

    /// Has what waits written at once: another process is about to read it.
    pub(crate) fn hurry(&self) {
        let mut waiting = self.shared.lock();
        if waiting.failure.is_some() {
            waiting.since.get_or_insert_with(clock::monotonic_ns);
        }
        let is_waiting = waiting.since.is_some() || waiting.refreshed_since.is_some();
        waiting.is_urgent = (is_waiting || waiting.writing_since.is_some()) && !waiting.is_held;
        drop(waiting);
        self.shared.wake.notify_one();
    }

    /// Whether something is to be written at once, and is not yet.
    pub(crate) fn is_hurrying(&self) -> bool {
        self.shared.lock().is_urgent
    }

    /// Why the last file could not be written, if it could not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What came of writing so far, and why the last file could not be written, if it could not.
    pub(crate) fn writes(&self) -> (StateWrites, Option<String>) {
        self.writes_at(clock::monotonic_ns())
    }

    /// The same at this moment, monotonic time in ns.
    fn writes_at(&self, now: u64) -> (StateWrites, Option<String>) {
        let mut waiting = self.shared.lock();
        let taken = waiting.writing_since.map(|at| now.saturating_sub(at));
        let hangs = taken.filter(|taken| *taken > ns(HANGING_AFTER));
        if hangs.is_some() && !std::mem::replace(&mut waiting.is_hanging, true) {
            waiting.writes.failed += 1;
            let folder = self.folder.display();
            tracing::warn!("{folder}: the disk hangs: the last answers of sources are not written");
        }
        let failure = hangs.map(|taken| {
            format!("a write has not ended for {}s: the disk hangs", taken / 1_000_000_000)
        });
        let left_out = waiting.left_out;
        let lost = (left_out > 0).then(|| format!("{left_out} changes were dropped (waiting_max)"));
        (waiting.writes, failure.or_else(|| waiting.failure.clone()).or(lost))
    }

    /// Ends the thread, with a last file unless it is held; gives up on one that takes too long.
    pub(crate) async fn close(self) {
        self.shared.end();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.ended).await.is_err() {
            let folder = self.folder.display();
            tracing::warn!(
                "{folder}: the disk is slow: the last answers of sources may be missing there"
            );
        }
    }
}

impl Shared {
    fn end(&self) {
        let mut waiting = self.lock();
        waiting.end = Some(if waiting.is_held { End::Now } else { End::Written });
        drop(waiting);
        self.wake.notify_one();
    }

    /// Nothing panics while it is held.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own.
struct Writing {
    folder: Arc<Path>,
    /// Whether private keys are among what is kept.
    keeps_keys: bool,
    shared: Arc<Shared>,
    kept: LastGood,
    /// Whether there was anything to keep: until then the file of before is left alone, whatever is wrong with it.
    has_had_any: bool,
    timing: Timing,
    /// Monotonic time, ns.
    warned_at: Option<u64>,
    /// Whether no file was written yet.
    is_first: bool,
}

/// When the next file may be written; monotonic time, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    /// Not before this.
    free_at: u64,
    /// Since when a file is to be written again that could not be.
    failed_since: Option<u64>,
}

impl Timing {
    /// When what waits is to be written, if anything does.
    fn due_at(&self, since: Option<u64>, refreshed_since: Option<u64>) -> Option<u64> {
        let other = since.map(|at| at.saturating_add(ns(DELAY)));
        let refreshed = refreshed_since.map(|at| at.saturating_add(ns(REFRESH)));
        let due = [other, refreshed, self.failed_since].into_iter().flatten().min()?;
        Some(due.max(self.free_at))
    }

    fn on_written(&mut self, began: u64, ended: u64) {
        let pause = ended.saturating_sub(began).saturating_mul(SHARE.into());
        *self = Self { free_at: ended.saturating_add(pause), failed_since: None };
    }

    fn on_failed(&mut self, ended: u64) {
        *self = Self { free_at: ended.saturating_add(ns(RETRY)), failed_since: Some(ended) };
    }
}

impl Writing {
    fn run(mut self) {
        disk::remove_abandoned(&self.folder);
        loop {
            let (end, is_due) = self.wait();
            if end == Some(End::Now) {
                return;
            }
            if is_due {
                self.write();
            }
            if end.is_some() {
                return;
            }
        }
    }

    /// Waits until a file is to be written, and takes what is to be in it.
    fn wait(&mut self) -> (Option<End>, bool) {
        let shared = Arc::clone(&self.shared);
        let mut waiting = shared.lock();
        loop {
            let due_at = self.timing.due_at(waiting.since, waiting.refreshed_since);
            let due_at = due_at.filter(|_| !waiting.is_held);
            let now = clock::monotonic_ns();
            let due_at = due_at.map(|at| if waiting.is_urgent { at.min(now) } else { at });
            if waiting.end.is_some() || due_at.is_some_and(|at| at <= now) {
                break;
            }
            waiting = match due_at {
                Some(at) => {
                    let wait = Duration::from_nanos(at - now);
                    let woken = shared.wake.wait_timeout(waiting, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => shared.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let Waiting { since, refreshed_since, end, .. } = *waiting;
        (waiting.since, waiting.refreshed_since) = (None, None);
        let (answers, resources) =
            (std::mem::take(&mut waiting.answers), std::mem::take(&mut waiting.resources));
        drop(waiting);
        apply(&mut self.kept, self.keeps_keys, answers, resources);
        self.has_had_any |= !self.kept.is_empty();
        if !self.has_had_any {
            shared.lock().is_urgent = false;
            return (end, false);
        }
        (end, self.timing.due_at(since, refreshed_since).is_some())
    }

    fn write(&mut self) {
        let began = clock::monotonic_ns();
        self.shared.lock().writing_since = Some(began);
        let written = self.write_file();
        let ended = clock::monotonic_ns();
        let folder = self.folder.display();
        let mut waiting = self.shared.lock();
        (waiting.writing_since, waiting.is_hanging) = (None, false);
        let is_waiting = waiting.since.is_some() || waiting.refreshed_since.is_some();
        // One attempt is made.
        waiting.is_urgent &= is_waiting && written.is_ok();
        match written {
            Ok(None) => {
                waiting.since.get_or_insert(began);
            }
            Ok(Some(bytes)) => {
                self.timing.on_written(began, ended);
                waiting.writes.written += 1;
                (waiting.writes.bytes, waiting.writes.at) = (bytes, clock::wall_ns());
                if waiting.failure.take().is_some() {
                    self.warned_at = None;
                    drop(waiting);
                    tracing::info!("{folder}: the last answers of sources are written again");
                }
            }
            Err(error) => {
                self.timing.on_failed(ended);
                waiting.writes.failed += 1;
                waiting.failure = Some(error.to_string());
                drop(waiting);
                let is_due =
                    self.warned_at.is_none_or(|at| ended.saturating_sub(at) > ns(WARNING_INTERVAL));
                if is_due {
                    self.warned_at = Some(ended);
                    tracing::warn!(
                        "{folder}: the last answers of sources cannot be written: {error}; a start without \
                         the sources will not have them: free disk space, or let the user of this process \
                         write there"
                    );
                }
            }
        }
    }

    /// Returns how many bytes it has; none if it was held meanwhile.
    fn write_file(&mut self) -> io::Result<Option<u64>> {
        let resources = self.kept.resources.values();
        let all = resources.chain(self.kept.serving.values().flatten());
        let texts = all.map(|kept| kept.content.len() as u64);
        let too_large = || {
            let text = format!("it has more than {STATE_BYTES_MAX} bytes (state_bytes_max)");
            io::Error::new(io::ErrorKind::FileTooLarge, text)
        };
        if texts.sum::<u64>() > STATE_BYTES_MAX {
            return Err(too_large());
        }
        let content = encode(&self.kept)?;
        if content.len() as u64 > STATE_BYTES_MAX {
            return Err(too_large());
        }
        if self.is_first {
            disk::put_aside_unusable(&self.folder);
        }
        let is_written = disk::write(&self.folder, &content, || !self.shared.lock().is_held)?;
        self.is_first = false;
        Ok(is_written.then_some(content.len() as u64))
    }
}

/// Takes changes up. Private keys are not kept unless they are asked for, and answers without addresses not at all: a start gains
/// nothing by them.
fn apply(
    kept: &mut LastGood,
    keeps_keys: bool,
    answers: BTreeMap<NameKey, Option<KeptAnswer>>,
    resources: BTreeMap<ResourceKey, ResourceChange>,
) {
    for (key, answer) in answers {
        match answer.filter(|answer| !answer.endpoints.is_empty()) {
            Some(answer) => drop(kept.answers.insert(key, answer)),
            None => drop(kept.answers.remove(&key)),
        }
    }
    for (key, mut change) in resources {
        if key.name.kind == ResourceKind::Secret && !keeps_keys {
            change.retain(|secret| !holds_key(&secret.content));
        }
        kept.change(key, change);
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use config::ResourceName;

    use super::super::{KeptResource, Serves};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn without_keys(folder: &Arc<Path>) -> StateFolder {
        StateFolder { path: Arc::clone(folder), keeps_keys: false }
    }

    #[test]
    fn a_file_is_due_a_moment_after_a_change_and_later_for_times_alone() {
        let mut timing = Timing::default();
        assert_eq!(timing.due_at(None, None), None);
        assert_eq!(timing.due_at(Some(5 * SECOND), None), Some(6 * SECOND));
        assert_eq!(timing.due_at(None, Some(5 * SECOND)), Some(65 * SECOND));
        assert_eq!(timing.due_at(Some(5 * SECOND), Some(SECOND)), Some(6 * SECOND));
        // Ten times as long as it took.
        timing.on_written(10 * SECOND, 13 * SECOND);
        assert_eq!(timing.due_at(Some(13 * SECOND), None), Some(43 * SECOND));
        assert_eq!(timing.due_at(None, None), None);
        timing.on_failed(50 * SECOND);
        assert_eq!(timing.due_at(None, None), Some(60 * SECOND));
        assert_eq!(timing.due_at(Some(50 * SECOND), None), Some(60 * SECOND));
        timing.on_written(60 * SECOND, 60 * SECOND);
        assert_eq!(timing.due_at(None, None), None);
    }

    #[test]
    fn the_end_waits_for_a_last_file_that_no_other_process_writes() {
        let name = format!("strait-keeper-{}", std::process::id());
        let folder: Arc<Path> = std::env::temp_dir().join(name).into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for (is_held, is_held_later, is_written) in
            [(true, true, false), (false, true, false), (true, false, true), (false, false, true)]
        {
            let _ = std::fs::remove_dir_all(&folder);
            let content = KeptResource { version: "1".into(), content: "x".into(), at: 1 };
            let name = ResourceName::new(ResourceKind::Cluster, "web");
            let key = ResourceKey { source: "folder".into(), name };
            let resources = [(key, content)].into();
            let kept = LastGood { resources, ..LastGood::default() };
            let keeper = Keeper::start(without_keys(&folder), kept, is_held).unwrap();
            keeper.hold(is_held_later);
            runtime.block_on(keeper.close());
            assert_eq!(folder.exists(), is_written, "{is_held} {is_held_later}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_write_that_hangs_is_reported_once_and_what_waits_for_it_has_a_bound() {
        let folder: Arc<Path> = Path::new("/nowhere").into();
        let shared = Arc::new(Shared::default());
        let (_ends, ended) = oneshot::channel();
        let keeper = Keeper { folder, shared: Arc::clone(&shared), ended };
        shared.lock().writing_since = Some(5 * SECOND);
        assert_eq!(keeper.writes_at(35 * SECOND), (StateWrites::default(), None));
        for now in [40, 50] {
            let (writes, failure) = keeper.writes_at(now * SECOND);
            assert_eq!(writes.failed, 1);
            assert!(failure.is_some_and(|it| it.contains("s: the disk hangs")));
        }
        let gone = |number: usize| {
            let name = ResourceName::new(ResourceKind::Cluster, &number.to_string());
            Change::Resource(ResourceKey { source: "folder".into(), name }, None, Serves::Last)
        };
        keeper.note((0..WAITING_MAX + 3).map(gone), true);
        keeper.note([gone(0)], true);
        let waiting = shared.lock();
        assert_eq!((waiting.resources.len(), waiting.left_out), (WAITING_MAX, 3));
    }

    /// However long the pause behind the file before would have to be.
    #[test]
    fn what_another_process_is_about_to_read_is_written_at_once() {
        let name = format!("strait-keeper-hurry-{}", std::process::id());
        let folder: Arc<Path> = std::env::temp_dir().join(name).into();
        let _ = std::fs::remove_dir_all(&folder);
        let name = ResourceName::new(ResourceKind::Cluster, "web");
        let key = ResourceKey { source: "folder".into(), name };
        let of = |text: &str| {
            let kept = KeptResource { version: "1".into(), content: text.into(), at: 1 };
            Change::Resource(key.clone(), Some(kept), Serves::Last)
        };
        let keeper = Keeper::start(without_keys(&folder), LastGood::default(), false).unwrap();
        keeper.hurry();
        while keeper.is_hurrying() {
            std::thread::yield_now();
        }
        assert!(!folder.exists(), "there is nothing to keep");
        for text in ["x", "y", "z"] {
            keeper.note([of(text)], true);
            keeper.hurry();
            while keeper.is_hurrying() {
                std::thread::yield_now();
            }
            let found = LastGood::read(&folder);
            assert_eq!(&*found.resources[&key].content, text);
        }
        keeper.hold(true);
        keeper.note([of("a")], true);
        keeper.hurry();
        assert!(!keeper.is_hurrying(), "the other process writes");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(keeper.close());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn nothing_is_written_before_there_is_anything_to_keep() {
        let name = format!("strait-keeper-nothing-{}", std::process::id());
        let folder: Arc<Path> = std::env::temp_dir().join(name).into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let keeper = Keeper::start(without_keys(&folder), LastGood::default(), false).unwrap();
        runtime.block_on(keeper.close());
        assert!(!folder.exists());
    }

    #[test]
    fn private_keys_are_kept_if_they_are_asked_for_alone_and_so_are_versions_before_them() {
        let key = |kind, name: &str| ResourceKey {
            source: "folder".into(),
            name: ResourceName::new(kind, name),
        };
        let content =
            |text: &str| KeptResource { version: "1".into(), content: text.into(), at: 1 };
        let (site, trust) = (key(ResourceKind::Secret, "site"), key(ResourceKind::Secret, "trust"));
        let mut kept = LastGood::default();
        let of = |text: &str| {
            let change = |text| ResourceChange::new(Some(content(text)), Serves::Last);
            let both = [(site.clone(), change(text)), (trust.clone(), change("ca: x"))];
            BTreeMap::from(both)
        };
        apply(&mut kept, false, BTreeMap::new(), of("ca: y"));
        assert_eq!(kept.resources.len(), 2);
        for text in [
            "{ name: site, chain: x, key: y }",
            "{ name: site, ticket_key: y }",
            "name: site\nca: |\n  -----BEGIN EC PRIVATE KEY-----\n  MIIEvQIBADANBgkqhkiG9w0BAQ\n  -----END EC PRIVATE KEY-----\n",
            "{",
        ] {
            kept.resources.insert(site.clone(), content("ca: y"));
            apply(&mut kept, true, BTreeMap::new(), of(text));
            assert_eq!(&*kept.resources[&site].content, text);
            apply(&mut kept, false, BTreeMap::new(), of(text));
            assert_eq!(kept.resources.keys().collect::<Vec<_>>(), [&trust], "{text}");
        }
    }
}
