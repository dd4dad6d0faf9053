//! Control's part in what is kept in the folder `state`: what the keeper gets to write, and what of it still serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::snapshot::{DnsName, StartupOptions};
use config::{ResourceKind, ResourceName, Update, Verdict};
use serde_json::{Value, json};
use telemetry::Collector;
use telemetry::events::{SourceKind, SourceResources, StateWrites};
use tokio::sync::oneshot;

use super::Running;
use super::handing::Handing;
use crate::clock;
use crate::dns::{self, DnsReport, Known};
use crate::last_good::{
    Age, Change, DeliveredResources, Divided, Keeper, KeptResource, LastGood, NameKey, ResourceKey,
    Resumed, ResumedPart, Serves,
};
use crate::source::{Restored, RestoredPart, Restores};
use crate::workers::Workers;

/// Restored resources that were refused, of which the log has a line each.
const REFUSED_LOGGED_MAX: usize = 20;

/// How long a handover waits for what this process has learnt to be in the file, ns.
const HURRY_MAX: u64 = 1_000_000_000;

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct KeptState {
    /// None without `state`.
    keeper: Option<Keeper>,
    /// What sources have delivered, if another process may take this one's place.
    delivered: Option<DeliveredResources>,
    /// Whether this process began with what sources had delivered to another one.
    is_resumed: bool,
    /// Of that, what each source has.
    resumed: BTreeMap<&'static str, BTreeMap<ResourceName, Update>>,
    /// Where what is restored comes from, in messages.
    origin: &'static str,
    /// Sources that wait for what is restored of them.
    restores: Restores,
    /// The folder's content, while it is read for a process that has taken another's place.
    reading: Option<oneshot::Receiver<LastGood>>,
    /// Until when a handover waits for the file; monotonic time, ns.
    hurry_until: u64,
    /// What the folder had of each source and serves as it was, with when that was accepted.
    restored: BTreeMap<&'static str, BTreeMap<ResourceName, u64>>,
    /// What the folder had of sources that have said nothing yet and was refused: it stays in the file until they say what
    /// there is, since it may be accepted at the next start.
    refused: BTreeMap<&'static str, BTreeSet<ResourceName>>,
    /// Why the file could not be used when it was read, if it could not.
    unusable: Option<String>,
    /// Of what a version before the last one serves, with its source.
    served_before: BTreeMap<ResourceName, (Arc<str>, Why)>,
}

/// Why another version serves than the one that was accepted last.
#[derive(Debug)]
enum Why {
    /// That one waits for what it names.
    Waits,
    /// It is gone, and what names it goes on with it.
    IsNamed,
    /// It does not go with these, which go on with the one before.
    Refuses(BTreeSet<ResourceName>),
}

impl KeptState {
    /// Begins to keep what names stand for, if there is a folder. `restores` wait for [`Self::restore`].
    pub(super) fn start(
        startup: &StartupOptions,
        known: &Known,
        restores: Restores,
        hands_over: bool,
        is_held: bool,
    ) -> Self {
        // Of a process without sources nothing is delivered.
        let is_handed_on = hands_over && !restores.is_empty();
        let delivered = is_handed_on.then(DeliveredResources::default);
        let mut kept = Self { restores, delivered, origin: "`state`", ..Self::default() };
        let Some(folder) = &startup.state else { return kept };
        let mut first = LastGood::default();
        first.answers.extend(known.iter().filter_map(|(name, it)| it.kept_as(name)));
        match Keeper::start(folder.clone(), first, is_held) {
            Ok(keeper) => kept.keeper = Some(keeper),
            Err(error) => {
                let folder = folder.path.display();
                tracing::warn!(
                    "{folder}: answers of sources are not stored, because the thread cannot be started: {error}"
                );
            }
        }
        kept
    }

    /// Reads what the process left whose place this one has taken, on a thread that may wait for a disk.
    pub(super) fn read(&mut self) {
        let Some(keeper) = &self.keeper else { return self.restore(LastGood::default()) };
        let (sender, receiver) = oneshot::channel();
        let folder = keeper.folder().to_owned();
        self.reading = Some(receiver);
        tokio::task::spawn_blocking(move || sender.send(LastGood::read(&folder)));
    }

    /// Waits for what is being read, for ever if nothing is.
    pub(super) async fn read_state(&mut self) -> LastGood {
        let Some(reading) = &mut self.reading else { return std::future::pending().await };
        // What reads it may have had no thread.
        let last_good = reading.await.unwrap_or_default();
        self.reading = None;
        last_good
    }

    /// Sends each source what the folder has of it, unless this process began with what another handed on.
    pub(super) fn restore(&mut self, mut last_good: LastGood) {
        self.unusable = last_good.unusable.take().or_else(|| self.unusable.take());
        let mut resumed = std::mem::take(&mut self.resumed);
        let mut parts = BTreeMap::new();
        if !self.is_resumed {
            let sources: Vec<_> = self.restores.keys().copied().collect();
            let divided = last_good.divide(&sources);
            self.restored = divided.accepted;
            parts = divided.parts;
            self.note(divided.changes);
        }
        for (source, sender) in std::mem::take(&mut self.restores) {
            let known = resumed.remove(source).unwrap_or_default();
            let restored = parts.remove(source).unwrap_or_default();
            // One whose task has ended needs none.
            let _ = sender.send(Restored { known, ..restored });
        }
    }

    /// Takes note of what this process began with that another handed on.
    pub(super) fn resume(&mut self, resumed: &Resumed, wanted: &BTreeSet<ResourceName>) {
        if resumed.delivered.is_empty() {
            return;
        }
        self.is_resumed = true;
        self.origin = "the old process";
        let sources: Vec<_> = self.restores.keys().copied().collect();
        let Divided { accepted, changes, .. } = resumed.delivered.divide(&sources);
        self.restored = accepted;
        self.note(changes);
        let refused = resumed.late.iter().filter(|(_, verdict)| verdict.refused.is_some());
        let refused: BTreeSet<_> = refused.map(|(_, verdict)| verdict.name.clone()).collect();
        for part in &resumed.parts {
            let ResumedPart { source, part: which, updates, verdicts } = part;
            part.apply_to(self.resumed.entry(source).or_default());
            self.on_restored(source, *which, verdicts);
            if *which == RestoredPart::Later {
                self.on_later_restored(source, updates, verdicts, (&refused, wanted));
            }
        }
    }

    /// What sources have delivered, for a process that takes this one's place.
    pub(super) fn delivered(&self) -> DeliveredResources {
        self.delivered.clone().unwrap_or_default()
    }

    /// A part of what the folder had of a source was checked.
    pub(super) fn on_restored(
        &mut self,
        source: &'static str,
        part: RestoredPart,
        verdicts: &[Verdict],
    ) {
        let Some(restored) = self.restored.get_mut(source) else { return };
        let refused = verdicts.iter().filter_map(|it| Some((&it.name, it.refused.as_ref()?)));
        let mut names = BTreeSet::new();
        for (name, errors) in refused {
            if part == RestoredPart::Serving {
                restored.remove(name);
            }
            if names.len() < REFUSED_LOGGED_MAX {
                let reasons = errors.first(&format!("/config?resource={name}"));
                tracing::warn!(source, %name, "not restored; waits for its source:\n{reasons}");
            }
            names.insert(name.clone());
        }
        if names.len() > REFUSED_LOGGED_MAX {
            let more = names.len() - REFUSED_LOGGED_MAX;
            tracing::warn!(source, more, "further resources are not restored");
        }
        if !names.is_empty() {
            self.refused.entry(source).or_default().extend(names);
        }
        if let Some((count, accepted)) = oldest(restored).filter(|_| part == RestoredPart::Serving)
        {
            tracing::warn!(
                source,
                count,
                %accepted,
                from = self.origin,
                "restored resources are used until their source delivers"
            );
        }
    }

    /// A source has delivered: what comes of each of these follows.
    pub(super) fn begin_delivered(&mut self, source: &'static str, verdicts: &[Verdict]) {
        self.end_restored(source, verdicts);
        // Of what was refused, it says what there is from here on.
        let mut unnamed = self.refused.remove(source).unwrap_or_default();
        if unnamed.is_empty() {
            return;
        }
        for verdict in verdicts {
            unnamed.remove(&verdict.name);
        }
        let of = Arc::<str>::from(source);
        let key = |name| ResourceKey { source: Arc::clone(&of), name };
        let changes = unnamed.into_iter();
        self.note(changes.map(|name| Change::Resource(key(name), None, Serves::Last)).collect());
    }

    /// A source has delivered these, with which resources turned out not to go with what it delivered, and what something
    /// names.
    pub(super) fn on_delivered(
        &mut self,
        source: &'static str,
        updates: &[Update],
        verdicts: &[Verdict],
        (refused_late, wanted): (&BTreeSet<ResourceName>, &BTreeSet<ResourceName>),
    ) {
        if self.keeper.is_none() && self.delivered.is_none() {
            return;
        }
        let of = Arc::<str>::from(source);
        let mut changes = Vec::new();
        let at = clock::wall_ns();
        for (update, verdict) in updates.iter().zip(verdicts) {
            if verdict.refused.is_some() {
                continue;
            }
            let name = &verdict.name;
            let why = why_former(verdict, update.content.is_some(), refused_late, wanted);
            let serves = if why.is_some() { Serves::Former } else { Serves::Last };
            match why {
                Some(why) => drop(self.served_before.insert(name.clone(), (Arc::clone(&of), why))),
                None => drop(self.served_before.remove(name)),
            }
            let version = Arc::clone(&update.version);
            let content = update.content.clone();
            let kept = content.map(|content| KeptResource { version, content, at });
            let key = ResourceKey { source: Arc::clone(&of), name: name.clone() };
            changes.push(Change::Resource(key, kept, serves));
        }
        self.note(changes);
    }

    /// Takes note of why versions before the last ones serve, which the file has in that order already.
    pub(super) fn on_later_restored(
        &mut self,
        source: &'static str,
        updates: &[Update],
        verdicts: &[Verdict],
        (refused_late, wanted): (&BTreeSet<ResourceName>, &BTreeSet<ResourceName>),
    ) {
        let of = Arc::<str>::from(source);
        let mut changes = Vec::new();
        for (update, verdict) in updates.iter().zip(verdicts) {
            if verdict.refused.is_some() {
                continue;
            }
            let name = verdict.name.clone();
            match why_former(verdict, update.content.is_some(), refused_late, wanted) {
                Some(why) => drop(self.served_before.insert(name, (Arc::clone(&of), why))),
                None => changes.push(Change::Serves(ResourceKey { source: Arc::clone(&of), name })),
            }
        }
        self.note(changes);
    }

    /// The last versions of these serve by now; and this is all that something names.
    pub(super) fn on_serving<'n>(
        &mut self,
        names: impl Iterator<Item = &'n ResourceName>,
        wanted: &BTreeSet<ResourceName>,
    ) {
        if self.served_before.is_empty() {
            return;
        }
        let names: BTreeSet<&ResourceName> = names.collect();
        let mut changes = Vec::new();
        self.served_before.retain(|name, (source, why)| {
            let is_former = match why {
                Why::Waits => !names.contains(name),
                Why::IsNamed => wanted.contains(name),
                Why::Refuses(others) => {
                    others.retain(|other| !names.contains(other));
                    !others.is_empty()
                }
            };
            if !is_former {
                let key = ResourceKey { source: Arc::clone(source), name: name.clone() };
                changes.push(Change::Serves(key));
            }
            is_former
        });
        self.note(changes);
    }

    fn note(&mut self, changes: Vec<Change>) {
        if let Some(delivered) = &mut self.delivered {
            changes.iter().cloned().for_each(|change| delivered.note(change));
        }
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !changes.is_empty()) {
            keeper.note(changes, true);
        }
    }

    /// A handover is about to begin: what this process has learnt has to be in the file that the other one reads.
    pub(super) fn hurry(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.hurry();
            self.hurry_until = clock::monotonic_ns().saturating_add(HURRY_MAX);
        }
    }

    /// Whether it is not there yet and is waited for.
    pub(super) fn is_hurrying(&self) -> bool {
        let is_hurrying = self.keeper.as_ref().is_some_and(Keeper::is_hurrying);
        is_hurrying && clock::monotonic_ns() < self.hurry_until
    }

    /// Why another process would not find there what this one has learnt, if it would not.
    pub(super) fn missing(&self) -> Option<String> {
        let keeper = self.keeper.as_ref()?;
        let (folder, failure) = (keeper.folder().display(), keeper.failure()?);
        Some(format!(
            "{folder}: the last answers of sources cannot be written, and the new process would start without them: {failure}: \
             free disk space, or let the user of this process write there"
        ))
    }

    /// A source has delivered: what the folder had of it serves no longer, but for what it gave a version of that was refused.
    fn end_restored(&mut self, source: &'static str, verdicts: &[Verdict]) {
        let Some(restored) = self.restored.get_mut(source) else { return };
        let refused = verdicts.iter().filter(|verdict| verdict.refused.is_some());
        let refused: BTreeSet<_> = refused.map(|verdict| &verdict.name).collect();
        restored.retain(|name, _| refused.contains(name));
        if restored.is_empty() {
            self.restored.remove(source);
            let from = self.origin;
            tracing::info!(
                source,
                from,
                "the source has delivered: restored resources are replaced"
            );
        }
    }

    /// How many resources of each source are as the folder had them.
    pub(super) fn restored(&self) -> impl Iterator<Item = SourceResources> {
        self.restored.iter().map(|(source, names)| SourceResources {
            source: SourceKind::Named(source),
            state: "restored",
            count: u64::try_from(names.len()).unwrap_or(u64::MAX),
        })
    }

    /// The same, and what is wrong, for people.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let restored = self.restored.iter().filter_map(|(source, names)| {
            let (count, age) = oldest(names)?;
            let from = self.origin;
            Some(format!("source {source}: {count} restored from {from}, accepted {age}"))
        });
        let failure = self.keeper.iter().filter_map(|keeper| {
            let failure = keeper.writes().1?;
            Some(format!("state {} cannot be written: {failure}", keeper.folder().display()))
        });
        let unusable = self.unusable().map(|unusable| format!("state {unusable}"));
        restored.chain(failure).chain(unusable)
    }

    /// Why the file is not used, until another one has taken its place.
    fn unusable(&self) -> Option<&str> {
        let is_replaced = self.keeper.as_ref().is_none_or(|keeper| keeper.writes().0.written > 0);
        self.unusable.as_deref().filter(|_| !is_replaced)
    }

    /// What came of writing, and of reading.
    pub(super) fn count(&self, collector: &mut Collector) {
        if let Some(keeper) = &self.keeper {
            let unusable = u64::from(self.unusable.is_some());
            collector.state_writes(StateWrites { unusable, ..keeper.writes().0 });
        }
    }

    /// For the admin interface.
    pub(super) fn to_json(&self) -> Value {
        let Some(keeper) = &self.keeper else { return Value::Null };
        let (writes, failure) = keeper.writes();
        json!({
            "folder": keeper.folder().display().to_string(),
            "written_at": Some(writes.at).filter(|at| *at > 0).map(clock::rfc3339),
            "bytes": writes.bytes,
            "writes_total": writes.written,
            "failures_total": writes.failed,
            "last_error": failure.as_deref().or_else(|| self.unusable()),
        })
    }

    /// Writes what is left, unless another process does.
    pub(super) async fn close(self) {
        if let Some(keeper) = self.keeper {
            keeper.close().await;
        }
    }
}

impl<W: Workers> Running<W> {
    /// Takes note of what DNS said of a name.
    pub(super) fn on_resolved(&mut self, report: DnsReport) {
        let (name, is_answered) = (Arc::clone(report.name()), report.is_answer());
        let mut count =
            |failure| self.count_answer(SourceKind::Dns, ResourceKind::Assignment, failure);
        if is_answered {
            count(None);
        }
        if let Some(failure) = report.failure() {
            count(Some(failure));
        }
        let change = self.config.dns.on_report(report);
        if is_answered {
            self.keep_answer(&name, change.is_some());
        }
        self.note_answers(change);
    }

    /// Of two processes the one that clients reach writes the file.
    pub(super) fn hold_kept(&self) {
        if let Some(keeper) = &self.kept.keeper {
            let is_others = matches!(self.handing, Handing::Taking { .. })
                || self.handing.successor().is_some();
            // What that one left has to be read before it is replaced.
            keeper.hold(is_others || self.kept.reading.is_some());
        }
    }

    /// Takes what the process left whose place this one has taken.
    pub(super) fn take_state(&mut self, last_good: LastGood) {
        let changes = self.config.dns.restore_newer(&last_good);
        self.note_answers(changes);
        self.kept.restore(last_good);
        self.hold_kept();
    }

    pub(super) fn keep_answer(&self, name: &DnsName, is_other: bool) {
        let Some(keeper) = &self.kept.keeper else { return };
        if let Some(answer) = self.config.dns.answer(name) {
            keeper.note([Change::Answer(NameKey::from(name), Some(answer))], is_other);
        }
    }

    /// These names are asked for no more.
    pub(super) fn forget_answers(&self, gone: &[dns::Change]) {
        let Some(keeper) = self.kept.keeper.as_ref().filter(|_| !gone.is_empty()) else { return };
        let followed = self.config.dns.keys();
        let gone = gone.iter().map(|(name, _)| NameKey::from(&**name));
        let gone = gone.filter(|key| !followed.contains(key));
        let changes: Vec<_> = gone.map(|key| Change::Answer(key, None)).collect();
        if !changes.is_empty() {
            keeper.note(changes, true);
        }
    }
}

/// Why the version before serves after an update that was accepted, if it does.
fn why_former(
    verdict: &Verdict,
    is_there: bool,
    refused_late: &BTreeSet<ResourceName>,
    wanted: &BTreeSet<ResourceName>,
) -> Option<Why> {
    use ResourceKind::{Assignment, Route, Secret};
    if !verdict.waits_for.is_empty() {
        return Some(Why::Waits);
    }
    match verdict.name.kind {
        Assignment | Route | Secret if !is_there => {
            wanted.contains(&verdict.name).then_some(Why::IsNamed)
        }
        Secret | Route if is_there && !refused_late.is_empty() => {
            Some(Why::Refuses(refused_late.clone()))
        }
        _ => None,
    }
}

/// How many there are, and how old the oldest is; none if there are none.
fn oldest(restored: &BTreeMap<ResourceName, u64>) -> Option<(usize, Age)> {
    let at = restored.values().min()?;
    Some((restored.len(), Age::of(*at)))
}
