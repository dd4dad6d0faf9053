//! Control's part in what sources beside the file deliver: what is handed to the builder, what cannot be bound, how long
//! resources wait for what they name, and which source gets which verdict.

mod noting;
mod refusals;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::Snapshot;
use config::{
    NamesChanged, Printable, ResourceKind, ResourceName, Unbound, Update, Verdict, Waits,
};
use telemetry::events::{SourceHeard, SourceKind};
use tokio::sync::{mpsc, oneshot};

use self::noting::Noting;
use self::refusals::Refusals;
pub(super) use self::refusals::{Refusal, ShownRefusals};
use super::handing::Handing;
use super::{Running, State};
use crate::builder::Reading;
use crate::clock;
use crate::pace::Pace;
use crate::source::{Delivery, Following, RestoredPart, Restores, Source};
use crate::workers::{BindFailure, Workers};

/// What sources deliver, as far as control has it.
#[derive(Debug)]
pub(super) struct Deliveries {
    following: Following,
    asked: Question,
    waits: BTreeMap<ResourceName, Wait>,
    /// What listeners and clusters serve without, as it did not arrive in time.
    missing: BTreeMap<ResourceName, Vec<ResourceName>>,
    /// What the file is read without, until it is taken up.
    left_out: BTreeSet<ResourceName>,
    /// What other sources may have.
    wanted: BTreeSet<ResourceName>,
    /// The resources of which the last version of a source is refused.
    refused: Refusals,
    /// Which source delivered what it has, and the version that was accepted last.
    accepted: BTreeMap<ResourceName, AcceptedVersion>,
    /// By source, how many of these are its own.
    counts: BTreeMap<&'static str, u64>,
    /// By source, the version that was accepted last of any of its resources.
    versions: BTreeMap<&'static str, Arc<str>>,
    /// Lines of the log about resources that are refused.
    pace_of_refusals: Pace,
    /// The others.
    pace: Pace,
    /// What came of the builder's last answer and is not taken note of yet.
    noting: VecDeque<Noting>,
}

/// The version of a resource that was accepted last.
#[derive(Clone, Debug)]
pub(super) struct AcceptedVersion {
    pub(super) source: &'static str,
    pub(super) version: Arc<str>,
}

/// How much of what a source has said is used.
#[derive(Clone, Debug, Default)]
pub(super) struct OfSource {
    /// Resources of which it delivered what is accepted.
    pub(super) accepted: u64,
    /// Those of which its last version is refused.
    pub(super) refused: u64,
    /// Its word for the version that was accepted last.
    pub(super) version: Option<Arc<str>>,
}

/// What the builder is asked: one thing at a time.
#[derive(Debug, Default)]
enum Question {
    #[default]
    None,
    /// It is to be asked, for the first time or again.
    Due(BuildRequest),
    /// The builder has it.
    Open(BuildRequest),
}

/// What the builder is asked.
#[derive(Debug)]
struct BuildRequest {
    what: Asked,
    /// What the system does not let this process have.
    unbound: Vec<Unbound>,
}

#[derive(Debug)]
enum Asked {
    Updates {
        source: &'static str,
        updates: Arc<[Update]>,
        reply: oneshot::Sender<Vec<Verdict>>,
        restored: Option<RestoredPart>,
    },
    Waited(BTreeSet<ResourceName>),
}

/// What a listener or a cluster waits for.
#[derive(Debug)]
struct Wait {
    /// Monotonic time, ns.
    since: u64,
    names: Vec<ResourceName>,
    /// Whether that was too long.
    is_over: bool,
}

impl Deliveries {
    /// Starts the sources, which get what is wanted once they have what is restored of each.
    pub(super) fn start(
        sources: Vec<Box<dyn Source>>,
        wanted: BTreeSet<ResourceName>,
        demanded: BTreeSet<ResourceName>,
    ) -> (Self, mpsc::Receiver<Delivery>, Restores) {
        let (following, delivered, restores) = Following::start(sources);
        let new = |names: &BTreeSet<ResourceName>| NamesChanged {
            new: names.iter().cloned().collect(),
            gone: Vec::new(),
        };
        following.want(&new(&wanted), &new(&demanded));
        let deliveries = Self {
            following,
            asked: Question::None,
            waits: BTreeMap::new(),
            missing: BTreeMap::new(),
            left_out: BTreeSet::new(),
            wanted,
            refused: Refusals::default(),
            accepted: BTreeMap::new(),
            counts: BTreeMap::new(),
            versions: BTreeMap::new(),
            pace_of_refusals: Pace::about("refused resources, which `refused` of /sources has,"),
            pace: Pace::about("resources of sources"),
            noting: VecDeque::new(),
        };
        (deliveries, delivered, restores)
    }

    /// Has sources follow others, of which those on demand follow the ones that are `demanded`.
    pub(super) fn want(&mut self, names: NamesChanged, demanded: &NamesChanged) {
        self.following.want(&names, demanded);
        for name in &names.gone {
            self.wanted.remove(name);
        }
        self.wanted.extend(names.new);
    }

    /// Has sources on demand follow one more of them, once.
    pub(super) fn follow(&self, name: ResourceName) {
        self.following.demand(name);
    }

    /// What other sources may have and something names.
    pub(super) const fn wanted(&self) -> &BTreeSet<ResourceName> {
        &self.wanted
    }

    /// Why the last version of a resource is refused, and since when: that of the source that delivered what serves, if one did, since
    /// what others say of it changes nothing.
    pub(super) fn refused(&self, name: &ResourceName) -> Option<&Refusal> {
        self.refused.find(self.accepted.get(name).map(|accepted| accepted.source), name)
    }

    /// Which source delivered a resource, and the version that was accepted last.
    pub(super) fn accepted(&self, name: &ResourceName) -> Option<&AcceptedVersion> {
        self.accepted.get(name)
    }

    /// What the last version of a resource waits for.
    pub(super) fn waits_for(&self, name: &ResourceName) -> &[ResourceName] {
        self.waits.get(name).map(|wait| &*wait.names).unwrap_or_default()
    }

    /// What a resource serves without, since it did not arrive within `resolvers.initial_fetch_timeout`.
    pub(super) fn missing(&self, name: &ResourceName) -> &[ResourceName] {
        self.missing.get(name).map(|names| &**names).unwrap_or_default()
    }

    /// The same of the route configuration that the table of this name is a virtual host of.
    pub(super) fn accepted_with_host(&self, table: &str) -> Option<&AcceptedVersion> {
        let mut names = table.rmatch_indices('/').map(|(end, _)| table.get(..end));
        names.find_map(|name| self.accepted(&ResourceName::new(ResourceKind::Route, name?)))
    }

    /// The resources that wait for this one, serve without it, or are refused for the lack of it.
    pub(super) fn lacking(&self, name: &ResourceName) -> Vec<ResourceName> {
        let waits = self.waits.iter().map(|(user, wait)| (user, &wait.names));
        let lacking = waits.chain(&self.missing).filter(|(_, names)| names.contains(name));
        lacking.map(|(user, _)| user.clone()).collect()
    }

    /// Takes note of what was accepted.
    pub(super) fn note_accepted(
        &mut self,
        source: &'static str,
        updates: &[Update],
        verdicts: &[Verdict],
    ) {
        for (update, Verdict { name, version, refused, .. }) in updates.iter().zip(verdicts) {
            if refused.is_some() {
                continue;
            }
            self.versions.insert(source, Arc::clone(version));
            if update.content.is_none() {
                // What another source has delivered stays.
                if self.accepted.get(name).is_some_and(|it| it.source == source) {
                    self.accepted.remove(name);
                    *self.counts.entry(source).or_default() -= 1;
                }
            } else {
                let version = Arc::clone(version);
                let accepted = AcceptedVersion { source, version };
                *self.counts.entry(source).or_default() += 1;
                if let Some(former) = self.accepted.insert(name.clone(), accepted) {
                    *self.counts.entry(former.source).or_default() -= 1;
                }
            }
        }
    }

    /// How much of what a source has said is used.
    pub(super) fn of_source(&self, source: &str) -> OfSource {
        OfSource {
            accepted: self.counts.get(source).copied().unwrap_or_default(),
            refused: u64::try_from(self.refused.len_of(source)).unwrap_or(u64::MAX),
            version: self.versions.get(source).cloned(),
        }
    }

    /// The first ones that are refused of a source, or of all, and how many there are.
    pub(super) fn shown_refusals(&self, source: Option<&str>) -> ShownRefusals {
        self.refused.shown(source)
    }

    /// How many resources of a kind sources have delivered.
    pub(super) fn accepted_len(&self, kind: ResourceKind) -> usize {
        self.accepted.keys().filter(|name| name.kind == kind).count()
    }

    /// How many resources of a kind have a last version that is refused.
    pub(super) fn refused_len(&self, kind: ResourceKind) -> usize {
        self.refused.len_of_kind(kind)
    }

    /// Whether a resource, or a version of it, waits, or is waited for.
    pub(super) fn is_warming(&self, name: &ResourceName) -> bool {
        self.waits.contains_key(name) || self.wanted.contains(name)
    }

    /// The resources of a kind that wait, and those that are waited for.
    pub(super) fn warming(&self, kind: ResourceKind) -> BTreeSet<&str> {
        let waits = self.waits.values().map(|wait| &wait.names);
        let named = waits.chain(self.missing.values()).flatten();
        // A rule leads to any cluster that is not there.
        let clusters = self.wanted.iter().filter(|name| name.kind == ResourceKind::Cluster);
        let all = self.waits.keys().chain(named).chain(clusters);
        all.filter(|name| name.kind == kind).map(|name| &*name.name).collect()
    }

    /// Takes note of what could not be bound: the builder is asked again, without these.
    pub(super) fn on_unbindable(&mut self, failures: Vec<BindFailure>) {
        if let Question::Open(mut asked) | Question::Due(mut asked) = mem::take(&mut self.asked) {
            asked.unbound.extend(failures.iter().map(unbound));
            self.asked = Question::Due(asked);
        }
    }

    /// Says how many lines were not logged of a second that is over.
    pub(super) fn end_second(&mut self) {
        self.pace_of_refusals.end_second();
        self.pace.end_second();
    }

    /// A configuration of the file counts.
    pub(super) fn on_file_taken(&mut self) {
        self.left_out.clear();
    }

    fn note_waits(&mut self, waits: Vec<Waits>) {
        for Waits { name, waits_for: names, missing } in waits {
            match missing.is_empty() {
                true => drop(self.missing.remove(&name)),
                false => drop(self.missing.insert(name.clone(), missing)),
            }
            if names.is_empty() {
                if self.waits.remove(&name).is_some() {
                    self.pace.log(|| tracing::info!("{name} no longer waits"));
                }
                continue;
            }
            // One that is over says nothing of what is waited for now.
            if let Some(wait) = self.waits.get_mut(&name).filter(|wait| !wait.is_over) {
                if wait.names == names {
                    continue;
                }
                // That some have come makes those that are left wait no longer.
                if names.iter().all(|it| wait.names.contains(it)) {
                    self.pace.log(|| tracing::info!("{name} still waits for {}", listed(&names)));
                    wait.names = names;
                    continue;
                }
            }
            self.pace.log(|| tracing::info!("{name} waits for {}", listed(&names)));
            let since = clock::monotonic_ns();
            self.waits.insert(name, Wait { since, names, is_over: false });
        }
    }
}

impl<W: Workers> Running<W> {
    /// Reads the file again without what other sources have delivered and cannot be bound, which the file made serve.
    ///
    /// # Errors
    ///
    /// The failures, if it is the file's own that cannot be bound.
    pub(super) fn leave_out(
        &mut self,
        failures: Vec<BindFailure>,
        snapshot: &Snapshot<W::Filter>,
    ) -> Result<(), Vec<BindFailure>> {
        let left_out = &mut self.config.deliveries.left_out;
        let unbound: Vec<Unbound> = failures.iter().map(unbound).collect();
        if unbound.iter().any(|it| snapshot.is_in_file(&it.name) || left_out.contains(&it.name)) {
            left_out.clear();
            return Err(failures);
        }
        left_out.extend(unbound.iter().map(|it| it.name.clone()));
        self.config.builder.leave_out(unbound);
        self.read_config(Reading::Anyway);
        Ok(())
    }

    /// Whether what sources say can be handed over: while it cannot, they wait.
    pub(super) fn takes_deliveries(&self) -> bool {
        let is_idle = !self.config.builder.is_busy() && self.handing == Handing::None;
        let is_free = matches!(self.config.deliveries.asked, Question::None);
        is_idle && is_free && matches!(self.state, State::Starting | State::Ready)
    }

    pub(super) fn on_delivery(&mut self, delivery: Delivery) {
        let Delivery { source, updates, verdicts: reply, restored } = delivery;
        if restored.is_none() {
            // Also if there is nothing new.
            let (source, at) = (SourceKind::Named(source), clock::wall_ns());
            self.collector.source_heard(&SourceHeard { source, at });
        }
        let updates = updates.into();
        self.ask_deliveries(Asked::Updates { source, updates, reply, restored });
    }

    fn ask_deliveries(&mut self, what: Asked) {
        self.config.deliveries.asked = Question::Due(BuildRequest { what, unbound: Vec::new() });
        self.hand_deliveries();
    }

    /// Asks the builder what is to be asked, once it has time.
    pub(super) fn hand_deliveries(&mut self) {
        if self.config.builder.is_busy() || self.handing != Handing::None {
            return;
        }
        let asked = match mem::take(&mut self.config.deliveries.asked) {
            Question::Due(asked) => asked,
            other => {
                self.config.deliveries.asked = other;
                return;
            }
        };
        self.hand_along();
        let config = &mut self.config;
        let unbound = asked.unbound.clone();
        match &asked.what {
            Asked::Updates { source, updates, .. } => {
                config.builder.updates((*source).into(), Arc::clone(updates), unbound);
            }
            Asked::Waited(names) => config.builder.waited(names.clone(), unbound),
        }
        config.deliveries.asked = Question::Open(asked);
    }

    fn report_verdict(&mut self, source: &'static str, verdict: &Verdict, is_late: bool) {
        self.config.deliveries.refused.note(source, verdict, is_late);
        let is_late_part = !verdict.missing.is_empty();
        let failure = match &verdict.refused {
            _ if is_late_part => Some("initial_fetch_timeout"),
            Some(_) => Some("invalid"),
            None => None,
        };
        // What turns out later is no word of the source.
        let at = if is_late { 0 } else { clock::wall_ns() };
        self.count_answers((SourceKind::Named(source), verdict.name.kind), 1, failure, at);
        if let Some(errors) = &verdict.refused {
            let name = &verdict.name;
            self.config.deliveries.pace_of_refusals.log(|| {
                let reasons = errors.first(&format!("/config?resource={name}"));
                tracing::error!(source, %name, "refused; the previous version stays in use:\n{reasons}");
            });
        } else if is_late_part {
            let Verdict { name, version, missing, .. } = verdict;
            self.config.deliveries.pace_of_refusals.log(|| {
                let missing = listed(missing);
                tracing::warn!(
                    source, %name, version = %Printable(version),
                    "in use without {missing}, which did not arrive within resolvers.initial_fetch_timeout"
                );
            });
        } else if is_late && verdict.waits_for.is_empty() {
            let Verdict { name, version, .. } = verdict;
            self.config.deliveries.pace.log(|| {
                tracing::info!(source, %name, version = %Printable(version), "accepted again, because resources that it refers to have changed");
            });
        }
    }

    /// Ends the waits that took longer than `resolvers.initial_fetch_timeout`: listeners serve without the route
    /// configurations that are not there, clusters without endpoints, and what needs secrets is refused until they are there.
    pub(super) fn end_waits(&mut self) {
        if !self.takes_deliveries() {
            return;
        }
        let timeout = self.config.snapshot.resolvers.initial_fetch_timeout;
        let late = self.config.deliveries.late(timeout);
        if !late.is_empty() {
            self.ask_deliveries(Asked::Waited(late));
        }
    }
}

impl Deliveries {
    /// What has waited for too long, from now on.
    fn late(&mut self, timeout: Duration) -> BTreeSet<ResourceName> {
        let now = clock::monotonic_ns();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut late = BTreeSet::new();
        for (name, wait) in &mut self.waits {
            if wait.is_over || timeout_ns == 0 || now.saturating_sub(wait.since) < timeout_ns {
                continue;
            }
            wait.is_over = true;
            late.insert(name.clone());
        }
        late
    }
}

fn unbound(failure: &BindFailure) -> Unbound {
    match failure {
        BindFailure::Cluster { cluster, reason } => Unbound {
            name: ResourceName::new(ResourceKind::Cluster, cluster),
            reason: reason.clone(),
        },
        BindFailure::Listener { listener, address, reason } => Unbound {
            name: ResourceName::new(ResourceKind::Listener, listener),
            reason: format!("cannot listen on {address}: {reason}"),
        },
    }
}

fn listed(names: &[ResourceName]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
