//! Control's part in what is kept in the folder `state`: what the keeper gets to write, and what of it still serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::snapshot::{DnsName, StartupOptions};
use config::{ResourceKind, ResourceName, Update, Verdict};
use serde_json::{Value, json};
use telemetry::Collector;
use telemetry::events::{SourceKind, SourceResources};

use super::Running;
use super::handover::Handing;
use crate::clock;
use crate::dns::{self, DnsReport, Known};
use crate::last_good::{Age, Change, Keeper, KeptResource, LastGood, NameKey, ResourceKey};
use crate::source::Source;
use crate::workers::Workers;

/// Restored resources that were refused, of which the log has a line each.
const REFUSED_LOGGED_MAX: usize = 20;

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// None without `state`.
    keeper: Option<Keeper>,
    /// What the folder had of each source and serves as it was, with when that was accepted.
    restored: BTreeMap<&'static str, BTreeMap<ResourceName, u64>>,
    /// What the folder had of sources that have said nothing yet and was refused: it stays in the file until they say what
    /// there is, since it may be accepted at the next start.
    refused: BTreeMap<&'static str, BTreeSet<ResourceName>>,
}

/// What sources are to deliver first, by their names.
pub(super) type Restored = BTreeMap<Arc<str>, Vec<Update>>;

impl Kept {
    /// Begins to keep what names stand for and what the folder had of these sources, if there is a folder.
    pub(super) fn start(
        startup: &StartupOptions,
        last_good: LastGood,
        known: &Known,
        sources: &[Box<dyn Source>],
        is_held: bool,
    ) -> (Self, Restored) {
        let mut kept = Self::default();
        let Some(folder) = &startup.state else { return (kept, Restored::new()) };
        let mut first = LastGood::default();
        first.answers.extend(known.iter().filter_map(|(name, status)| {
            let answer = status.kept().filter(|answer| !answer.endpoints.is_empty());
            Some((NameKey::from(&**name), answer?))
        }));
        let mut restored = Restored::new();
        for (key, resource) in last_good.resources {
            let source = sources.iter().find(|source| *source.name() == *key.source);
            let Some(source) = source.map(|source| source.name()) else { continue };
            restored.entry(Arc::clone(&key.source)).or_default().push(Update {
                kind: key.name.kind,
                name: Arc::from(&*key.name.name),
                version: Arc::clone(&resource.version),
                content: Some(resource.content.clone()),
            });
            kept.restored.entry(source).or_default().insert(key.name.clone(), resource.at);
            first.resources.insert(key, resource);
        }
        match Keeper::start(Arc::clone(folder), first, is_held) {
            Ok(keeper) => kept.keeper = Some(keeper),
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("{folder}: what sources give is not kept: no thread: {error}");
            }
        }
        (kept, restored)
    }

    /// What the folder had of a source was checked.
    pub(super) fn on_restored(&mut self, source: &'static str, verdicts: &[Verdict]) {
        let Some(restored) = self.restored.get_mut(source) else { return };
        let refused = verdicts.iter().filter_map(|it| Some((&it.name, it.refused.as_ref()?)));
        let mut names = BTreeSet::new();
        for (name, errors) in refused {
            restored.remove(name);
            if names.len() < REFUSED_LOGGED_MAX {
                tracing::warn!(source, %name, "not restored, and waits for its source:\n{errors}");
            }
            names.insert(name.clone());
        }
        if names.len() > REFUSED_LOGGED_MAX {
            let more = names.len() - REFUSED_LOGGED_MAX;
            tracing::warn!(source, more, "and others that are not restored");
        }
        if !names.is_empty() {
            self.refused.insert(source, names);
        }
        if let Some((count, accepted)) = oldest(restored) {
            tracing::warn!(
                source,
                count,
                %accepted,
                "resources that `state` has serve until their source says otherwise"
            );
        }
    }

    /// A source has delivered these.
    pub(super) fn on_delivered(
        &mut self,
        source: &'static str,
        updates: Vec<Update>,
        verdicts: &[Verdict],
    ) {
        self.end_restored(source, verdicts);
        // Of what was refused, it says what there is from here on.
        let mut unnamed = self.refused.remove(source).unwrap_or_default();
        let Some(keeper) = &self.keeper else { return };
        // Of several updates of a resource the last counts.
        let mut updates: BTreeMap<(ResourceKind, Arc<str>), Update> =
            updates.into_iter().map(|it| ((it.kind, Arc::clone(&it.name)), it)).collect();
        let (at, of) = (clock::wall_ns(), Arc::<str>::from(source));
        for verdict in verdicts {
            unnamed.remove(&verdict.name);
        }
        let unnamed = unnamed
            .into_iter()
            .map(|name| Change::Resource(ResourceKey { source: Arc::clone(&of), name }, None));
        let accepted = verdicts.iter().filter(|verdict| verdict.refused.is_none());
        let changes = accepted.filter_map(|Verdict { name, .. }| {
            let update = updates.remove(&(name.kind, Arc::from(&*name.name)))?;
            let key = ResourceKey { source: Arc::clone(&of), name: name.clone() };
            let version = update.version;
            let kept = update.content.map(|content| KeptResource { version, content, at });
            Some(Change::Resource(key, kept))
        });
        keeper.note(changes.chain(unnamed), true);
    }

    /// A source has delivered: what the folder had of it serves no longer, but for what it gave a version of that was refused.
    fn end_restored(&mut self, source: &'static str, verdicts: &[Verdict]) {
        let Some(restored) = self.restored.get_mut(source) else { return };
        let refused = verdicts.iter().filter(|verdict| verdict.refused.is_some());
        let refused: BTreeSet<_> = refused.map(|verdict| &verdict.name).collect();
        restored.retain(|name, _| refused.contains(name));
        if restored.is_empty() {
            self.restored.remove(source);
            tracing::info!(source, "the source says what there is: `state` serves no longer");
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
            Some(format!("source {source}: {count} restored, accepted {age}"))
        });
        let failure = self.keeper.iter().filter_map(|keeper| {
            let failure = keeper.writes().1?;
            Some(format!("state {} cannot be written: {failure}", keeper.folder().display()))
        });
        restored.chain(failure)
    }

    /// What came of writing.
    pub(super) fn count(&self, collector: &mut Collector) {
        if let Some(keeper) = &self.keeper {
            collector.state_writes(keeper.writes().0);
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
            "last_error": failure,
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
        self.count_answer(SourceKind::Dns, ResourceKind::Assignment, report.failure());
        let (name, is_answered) = (Arc::clone(report.name()), report.failure().is_none());
        let change = self.config.dns.on_report(report);
        if is_answered {
            self.keep_answer(&name, change.is_some());
        }
        self.note_answers(change);
    }

    /// Of two processes the one that clients reach writes the file.
    pub(super) fn hold_kept(&self) {
        if let Some(keeper) = &self.kept.keeper {
            keeper.hold(matches!(self.handing, Handing::Taking | Handing::Given(_)));
        }
    }

    fn keep_answer(&self, name: &DnsName, is_other: bool) {
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

/// How many there are, and how old the oldest is; none if there are none.
fn oldest(restored: &BTreeMap<ResourceName, u64>) -> Option<(usize, Age)> {
    let at = restored.values().min()?;
    Some((restored.len(), Age::of(*at)))
}
