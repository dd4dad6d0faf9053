//! DNS as a source of endpoints.
//!
//! Each name has a task on control's runtime that asks for it, reports what came of it, and sleeps until the
//! answer's time to live ends, or for a shorter time after a failure, of a part of the answer among them. A task
//! reports once and then waits, so that there is never more than one report of a name, however fast its answers
//! change. What a name stands for is kept here; a failure leaves it as it is.

mod failover;
mod failure;
mod left_out;
mod message;
mod round;
mod schedule;
mod stub;
mod system;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::{DnsAnswer, DnsFamily, DnsMode, DnsName, Resolvers};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

pub(crate) use self::left_out::names_json;
pub use self::message::records_of_dns_answer;

use self::failure::{Absence, Failure};
use self::round::{Found, resolve};
use self::schedule::Failures;
use self::system::{Paths, System};
use crate::clock;
use crate::last_good::{Age, KeptAnswer, LastGood, NameKey};

/// Rounds that run at a time, each with two sockets or, in mode `srv`, some more: of names that were answered last time or
/// are new, and as many of others, which may wait for servers that are silent.
const ROUNDS_AT_ONCE: usize = 64;

/// How long a round may be one of the first kind.
const PROMPT_MAX: Duration = Duration::from_millis(300);

/// How long one round may take, whatever servers and aliases there are.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Reports that wait for control. Tasks wait while it is full.
const REPORTS_MAX: usize = 256;

/// Within this time the names are asked for that were asked for before, when the servers change.
const SPREAD: Duration = Duration::from_secs(1);

/// The names that are followed.
#[derive(Debug)]
pub(crate) struct Dns {
    system: Arc<System>,
    resolvers: Resolvers,
    /// The same of a configuration that waits for first answers, if it says otherwise.
    waiting: Option<(Arc<System>, Resolvers)>,
    names: BTreeMap<Arc<DnsName>, Followed>,
    rounds: Arc<Rounds>,
    reports: mpsc::Sender<DnsReport>,
    lines: Lines,
}

/// Room for rounds.
#[derive(Debug)]
struct Rounds {
    prompt: Semaphore,
    slow: Semaphore,
}

impl Default for Rounds {
    fn default() -> Self {
        let [prompt, slow] = [(); 2].map(|()| Semaphore::new(ROUNDS_AT_ONCE));
        Self { prompt, slow }
    }
}

/// What came of one round.
#[derive(Debug)]
pub(crate) struct DnsReport {
    name: Arc<DnsName>,
    result: Result<Found, Failure>,
    /// Until the next round.
    wait: Duration,
    /// Which task reports: one that was stopped is not listened to.
    task: u64,
}

/// A name that is asked for.
#[derive(Debug)]
struct Followed {
    status: Status,
    /// Who is asked for it.
    system: Arc<System>,
    task: u64,
    abort: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// What is known of a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    answer: Option<DnsAnswer>,
    /// Wall-clock time, ns.
    answered_at: u64,
    /// Whether a former process was answered, and this one was not.
    is_restored: bool,
    /// Addresses of the answer that are not used.
    dropped: usize,
    /// When it is asked for next; monotonic time, ns.
    next_at: u64,
    /// Why it could not be asked for since when, wall-clock time, ns; and how often in a row.
    failure: Option<(Failure, u64, u32)>,
    /// The same of a part of the answer, whose former addresses stay.
    partial: Option<(Failure, u64, u32)>,
    /// Why the answer has no addresses, and since when, wall-clock time, ns.
    absence: Option<(Absence, u64)>,
}

/// Names, with what is known of them.
pub(crate) type Known = BTreeMap<Arc<DnsName>, Status>;

/// What a name stands for now, or none if it is not followed any more.
pub(crate) type Change = (Arc<DnsName>, Option<DnsAnswer>);

impl DnsReport {
    /// Which name it is of.
    pub(crate) const fn name(&self) -> &Arc<DnsName> {
        &self.name
    }

    /// Why there was no answer, or not all of one.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        let failure = match &self.result {
            Ok(found) => found.failure.as_ref(),
            Err(failure) => Some(failure),
        };
        failure.map(Failure::word)
    }

    /// Whether there was an answer.
    pub(crate) const fn is_answer(&self) -> bool {
        self.result.is_ok()
    }
}

impl Dns {
    /// Nothing is asked yet. Reports come from the receiver.
    pub(crate) fn new(resolvers: Resolvers) -> (Self, mpsc::Receiver<DnsReport>) {
        Self::with_paths(resolvers, Paths::default())
    }

    fn with_paths(resolvers: Resolvers, paths: Paths) -> (Self, mpsc::Receiver<DnsReport>) {
        let (reports, received) = mpsc::channel(REPORTS_MAX);
        let system = Arc::new(System::new(resolvers.clone(), paths));
        let (names, lines) = (BTreeMap::new(), Lines::default());
        let (waiting, rounds) = (None, Arc::default());
        (Self { system, resolvers, waiting, names, rounds, reports, lines }, received)
    }

    /// Follows these names and no others. Returns those that are followed no more, and those that begin with what is known
    /// of the same host with other options.
    pub(crate) fn follow(&mut self, names: &BTreeSet<Arc<DnsName>>) -> Vec<Change> {
        self.waiting = None;
        let system = Arc::clone(&self.system);
        self.follow_by(&system, names)
    }

    /// The same with names of a configuration that waits for first answers: those that it alone has are asked for as its `resolvers` say.
    pub(crate) fn follow_beside(
        &mut self,
        in_effect: &BTreeSet<Arc<DnsName>>,
        waiting: &BTreeSet<Arc<DnsName>>,
        resolvers: &Resolvers,
    ) -> Vec<Change> {
        let former = self.waiting.take().filter(|(_, it)| asks_alike(it, resolvers));
        if former.is_some() || !asks_alike(&self.resolvers, resolvers) {
            let system = former.map_or_else(|| self.system_of(resolvers), |(system, _)| system);
            self.waiting = Some((system, resolvers.clone()));
        }
        let system = self.waiting.as_ref().map_or(&self.system, |(system, _)| system);
        let system = Arc::clone(system);
        // Others were asked for as another configuration said that waited.
        let stays = |name: &Arc<DnsName>, followed: &Followed| {
            in_effect.contains(name) || Arc::ptr_eq(&followed.system, &system)
        };
        self.names.retain(|name, followed| stays(name, followed) || !waiting.contains(name));
        self.follow_by(&system, &in_effect.union(waiting).cloned().collect())
    }

    fn system_of(&self, resolvers: &Resolvers) -> Arc<System> {
        Arc::new(System::new(resolvers.clone(), self.system.paths().clone()))
    }

    fn follow_by(&mut self, system: &Arc<System>, names: &BTreeSet<Arc<DnsName>>) -> Vec<Change> {
        let new = names.iter().filter(|name| !self.names.contains_key(*name));
        let new: Vec<_> =
            new.map(|name| (name, self.known_of_host(name).unwrap_or_default())).collect();
        let mut changes = Vec::new();
        self.names.retain(|name, _| {
            let stays = names.contains(name);
            if !stays {
                changes.push((Arc::clone(name), None));
            }
            stays
        });
        for (name, status) in new {
            let answer = status.answer.clone();
            changes.extend(answer.map(|answer| (Arc::clone(name), Some(answer))));
            self.start(Arc::clone(name), status, Arc::clone(system), Duration::ZERO);
        }
        changes
    }

    /// What is known of a host and port that are followed with other options, as far as `name` wants it.
    fn known_of_host(&self, name: &DnsName) -> Option<Status> {
        let first = DnsName {
            host: Arc::clone(&name.host),
            port: name.port,
            mode: DnsMode::Strict,
            family: DnsFamily::All,
            ttl_min: Duration::ZERO,
            ttl_max: Duration::ZERO,
        };
        let of_host = self.names.range::<DnsName, _>(&first..);
        let of_host = of_host.take_while(|(it, _)| it.host == name.host && it.port == name.port);
        let known =
            of_host.filter(|(it, _)| (it.mode == DnsMode::Srv) == (name.mode == DnsMode::Srv));
        let wanted = known.filter_map(|(it, followed)| {
            let status = followed.status.of(name)?;
            Some((it.family == name.family, status))
        });
        wanted.max_by_key(|(is_same, status)| (*is_same, status.answered_at)).map(|(_, it)| it)
    }

    /// Goes on with names of which something is known already.
    pub(crate) fn resume(&mut self, known: Known) {
        let now = clock::monotonic_ns();
        for (name, status) in known {
            let wait = Duration::from_nanos(status.next_at.saturating_sub(now));
            self.start(name, status, Arc::clone(&self.system), wait);
        }
    }

    /// Stops, and hands over what is known.
    pub(crate) fn into_known(mut self) -> Known {
        let names = std::mem::take(&mut self.names);
        names.into_iter().map(|(name, followed)| (name, followed.status.clone())).collect()
    }

    /// Asks as `resolvers` says from now on, and, if that is another way, for all names again.
    pub(crate) fn set_resolvers(&mut self, resolvers: &Resolvers) {
        let is_same = asks_alike(&self.resolvers, resolvers);
        self.resolvers = resolvers.clone();
        if is_same {
            return;
        }
        self.system = self.system_of(resolvers);
        for followed in self.names.values_mut() {
            followed.system = Arc::clone(&self.system);
        }
        self.ask_again();
    }

    /// Asks for all names again within a moment, whatever is known of them.
    pub(crate) fn ask_again(&mut self) {
        for (name, followed) in std::mem::take(&mut self.names) {
            let wait = if followed.status.answer.is_some() { spread() } else { Duration::ZERO };
            self.start(name, followed.status.clone(), Arc::clone(&followed.system), wait);
        }
    }

    /// Asks for nothing any more.
    pub(crate) fn stop(&mut self) {
        self.names.clear();
    }

    fn start(&mut self, name: Arc<DnsName>, status: Status, system: Arc<System>, wait: Duration) {
        let task = random();
        let asking = Asking {
            name: Arc::clone(&name),
            system: Arc::clone(&system),
            rounds: Arc::clone(&self.rounds),
            reports: self.reports.clone(),
            former: status.answer.clone(),
            task,
        };
        let abort = tokio::spawn(asking.run(wait)).abort_handle();
        self.names.insert(name, Followed { status, system, task, abort });
    }

    /// Takes what a former process was answered for what a name stands for, until there is an answer.
    pub(crate) fn restore(&mut self, name: &Arc<DnsName>, kept: &KeptAnswer) -> Option<Change> {
        let followed = self.names.get(name)?;
        let (mut status, system) = (followed.status.clone(), Arc::clone(&followed.system));
        let (answered, addresses) = (Age::of(kept.at), kept.endpoints.len());
        let reason = self.reason(name);
        if self.lines.has_room() {
            tracing::warn!(
                %name,
                %reason,
                %answered,
                addresses,
                "DNS does not answer: addresses from `state` are used until it does"
            );
        }
        status.answer = Some(Arc::clone(&kept.endpoints));
        status.answered_at = kept.at;
        status.is_restored = true;
        // Its task begins anew, and knows them.
        self.start(Arc::clone(name), status, system, Duration::ZERO);
        Some((Arc::clone(name), Some(Arc::clone(&kept.endpoints))))
    }

    /// The same for all names of which `last_good` has an answer that is newer than what is known: another process was
    /// answered, and this one was not.
    pub(crate) fn restore_newer(&mut self, last_good: &LastGood) -> Vec<Change> {
        let is_older = |status: &Status, kept: &KeptAnswer| {
            !status.is_answered() || (status.is_restored && status.answered_at < kept.at)
        };
        let names = self.names.iter().filter_map(|(name, followed)| {
            let kept = last_good.answer(name)?;
            is_older(&followed.status, kept).then(|| (Arc::clone(name), kept))
        });
        let names: Vec<_> = names.collect();
        let mut changes = Vec::new();
        for (name, kept) in names {
            changes.extend(self.restore(&name, kept));
        }
        changes
    }

    /// Takes note of a round. Returns what the name stands for, if that is new.
    pub(crate) fn on_report(&mut self, report: DnsReport) -> Option<Change> {
        let DnsReport { name, result, wait, task } = report;
        let followed = self.names.get_mut(&name).filter(|followed| followed.task == task)?;
        let (status, lines) = (&mut followed.status, &mut self.lines);
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        status.next_at = clock::monotonic_ns().saturating_add(wait);
        match result {
            Ok(found) => status.on_found(&name, found, lines).map(|answer| (name, Some(answer))),
            Err(failure) => {
                status.on_failure(&name, failure, lines);
                None
            }
        }
    }

    /// Whether a name has an answer.
    pub(crate) fn is_answered(&self, name: &DnsName) -> bool {
        self.names.get(name).is_some_and(|followed| followed.status.answer.is_some())
    }

    /// Whether the last question about a name failed.
    pub(crate) fn has_failed(&self, name: &DnsName) -> bool {
        self.names.get(name).is_some_and(|followed| followed.status.failure.is_some())
    }

    /// What a name stands for, and since when, if DNS has said so.
    pub(crate) fn answer(&self, name: &DnsName) -> Option<KeptAnswer> {
        self.names.get(name)?.status.kept()
    }

    /// What all names stand for, as far as they have addresses.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (NameKey, KeptAnswer)> {
        self.names.iter().filter_map(|(name, followed)| followed.status.kept_as(name))
    }

    /// Why a name has no answer yet.
    pub(crate) fn reason(&self, name: &DnsName) -> String {
        let failure = self.names.get(name).and_then(|followed| followed.status.failure.as_ref());
        failure.map_or_else(|| "no answer yet".to_owned(), |(failure, ..)| failure.to_string())
    }

    /// The names that are followed.
    pub(crate) fn keys(&self) -> BTreeSet<NameKey> {
        self.names.keys().map(|name| NameKey::from(&**name)).collect()
    }

    /// How many names are in which state.
    pub(crate) fn states(&self) -> BTreeMap<&'static str, u64> {
        let mut states = BTreeMap::from(Status::STATES.map(|it| (it, 0)));
        for followed in self.names.values() {
            *states.entry(followed.status.state()).or_default() += 1;
        }
        states
    }

    /// The names without an answer or addresses, or whose last question failed, and why, a line each.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let names = self.names.iter().filter(|(_, it)| it.status.state() != "fresh");
        let lines = names.map(|(name, followed)| {
            let status = &followed.status;
            let reason =
                status.trouble().map_or_else(|| "no answer yet".to_owned(), |it| it.message);
            if status.is_restored {
                let age = Age::of(status.answered_at);
                return format!("host name {name}: restored, answered {age}, {reason}");
            }
            format!("host name {name}: {}, {reason}", status.state())
        });
        lines.collect()
    }

    /// What is known of each name, for the admin interface.
    pub(crate) fn describe(&self) -> Vec<(Arc<DnsName>, Status)> {
        let names = self.names.iter();
        names.map(|(name, followed)| (Arc::clone(name), followed.status.clone())).collect()
    }
}

/// Whether both say the same of who is asked, and for how long.
fn asks_alike(one: &Resolvers, other: &Resolvers) -> bool {
    one.servers == other.servers && one.timeout == other.timeout
}

impl Status {
    /// Whether anything was ever answered.
    pub(crate) const fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// When this process was answered; wall-clock time, ns.
    pub(crate) fn answered_at(&self) -> Option<u64> {
        (self.is_answered() && !self.is_restored).then_some(self.answered_at)
    }

    /// What another process was answered.
    pub(crate) fn restored(kept: &KeptAnswer) -> Self {
        let answer = Some(Arc::clone(&kept.endpoints));
        Self { answer, answered_at: kept.at, is_restored: true, ..Self::default() }
    }

    /// What `name` stands for, if it has addresses.
    pub(crate) fn kept_as(&self, name: &DnsName) -> Option<(NameKey, KeptAnswer)> {
        let answer = self.kept().filter(|answer| !answer.endpoints.is_empty())?;
        Some((NameKey::from(name), answer))
    }

    /// What it stands for.
    pub(crate) fn kept(&self) -> Option<KeptAnswer> {
        Some(KeptAnswer { endpoints: Arc::clone(self.answer.as_ref()?), at: self.answered_at })
    }

    /// The same for a name of the same host and port; none if nothing of it goes with that one's options.
    fn of(&self, name: &DnsName) -> Option<Self> {
        let mut endpoints = self.answer.as_ref()?.to_vec();
        name.family.select(&mut endpoints, |it| it.address.is_ipv4());
        if name.mode == DnsMode::Logical {
            endpoints.truncate(1);
        }
        let answer = Some(endpoints.into()).filter(|it: &DnsAnswer| !it.is_empty())?;
        Some(Self { answer: Some(answer), ..self.clone() })
    }

    fn on_found(&mut self, name: &DnsName, found: Found, lines: &mut Lines) -> Option<DnsAnswer> {
        let Found { endpoints, dropped, absence, failure, .. } = found;
        self.note_partial(name, failure, lines);
        let since = self.absence.filter(|(known, _)| Some(*known) == absence).map(|(_, at)| at);
        self.absence = absence.map(|it| (it, since.unwrap_or_else(clock::wall_ns)));
        let (is_restored, had_failed) =
            (std::mem::take(&mut self.is_restored), self.failure.take().is_some());
        if is_restored && lines.has_room() {
            tracing::info!(%name, "DNS answers: addresses of the old process are replaced");
        } else if had_failed && lines.has_room() {
            tracing::info!(%name, "DNS answers again");
        }
        if dropped > 0 && dropped != self.dropped && lines.has_room() {
            tracing::warn!(
                %name,
                dropped,
                "some addresses of a DNS answer are ignored: 0.0.0.0, multicast and similar, or more than the limit"
            );
        }
        self.dropped = dropped;
        self.answered_at = clock::wall_ns();
        if self.answer.as_ref().is_some_and(|answer| **answer == *endpoints) {
            return None;
        }
        if endpoints.is_empty() && lines.has_room() {
            let reason = absence.map_or_else(String::new, |it| it.to_string());
            tracing::warn!(%name, reason, "DNS has no addresses for this name: its clusters get no endpoints from it");
        }
        let answer: DnsAnswer = endpoints.into();
        self.answer = Some(Arc::clone(&answer));
        Some(answer)
    }

    /// Takes note of what failed of an answer that has other parts.
    fn note_partial(&mut self, name: &DnsName, failure: Option<Failure>, lines: &mut Lines) {
        let Some(failure) = failure else {
            if self.partial.take().is_some() && lines.has_room() {
                tracing::info!(%name, "DNS answers in full again");
            }
            return;
        };
        let former = self.partial.take().filter(|(known, ..)| known.word() == failure.word());
        if former.is_none() && lines.has_room() {
            tracing::warn!(%name, reason = %failure, "DNS answered in part: for the other part, the last addresses stay");
        }
        let (since, count) =
            former.map_or_else(|| (clock::wall_ns(), 0), |(_, at, count)| (at, count));
        self.partial = Some((failure, since, count.saturating_add(1)));
    }

    fn on_failure(&mut self, name: &DnsName, failure: Failure, lines: &mut Lines) {
        match &mut self.failure {
            Some((known, _, count)) if known.word() == failure.word() => {
                *count = count.saturating_add(1);
                *known = failure;
            }
            former => {
                let stays = match &self.answer {
                    Some(answer) if answer.is_empty() => "it still has no addresses",
                    Some(_) => "the last addresses stay",
                    None => "it has no addresses yet",
                };
                if lines.has_room() {
                    tracing::warn!(%name, reason = %failure, "DNS failed: {stays}");
                }
                let count = former.as_ref().map_or(1, |(.., count)| count.saturating_add(1));
                *former = Some((failure, clock::wall_ns(), count));
            }
        }
    }

    const STATES: [&str; 7] =
        ["fresh", "partial", "empty", "stale", "restored", "failed", "waiting"];

    fn state(&self) -> &'static str {
        match (&self.answer, &self.failure) {
            (Some(_), _) if self.is_restored => "restored",
            (None, None) => "waiting",
            (None, Some(_)) => "failed",
            (Some(_), Some(_)) => "stale",
            (Some(_), None) if self.partial.is_some() => "partial",
            (Some(answer), None) if answer.is_empty() => "empty",
            (Some(_), None) => "fresh",
        }
    }

    /// Why the state is no better.
    fn trouble(&self) -> Option<Trouble> {
        let failure = self.failure.as_ref().or(self.partial.as_ref());
        let failed = failure.map(|(failure, since, count)| Trouble {
            reason: failure.word(),
            message: failure.to_string(),
            since: *since,
            count: Some(*count),
        });
        failed.or_else(|| {
            let (absence, since) = self.absence?;
            let (reason, message) = (absence.word(), absence.to_string());
            Some(Trouble { reason, message, since, count: None })
        })
    }

    /// For the admin interface.
    fn to_json(&self, name: &DnsName, now: u64) -> Value {
        let endpoints = self.answer.as_ref().map(|answer| {
            answer
                .iter()
                .map(|it| json!({ "address": it.address, "weight": it.weight, "priority": it.priority, "host": it.host }))
        });
        json!({
            "name": name.to_string(),
            "mode": name.mode,
            "family": name.family,
            "state": self.state(),
            "endpoints": endpoints.map(Iterator::collect::<Vec<_>>),
            "addresses_dropped": self.dropped,
            "answered_at": self.answer.as_ref().map(|_| clock::rfc3339(self.answered_at)),
            "next_in_seconds": self.next_at.saturating_sub(now) / 1_000_000_000,
            "last_error": self.trouble().map(|it| json!({
                "reason": it.reason,
                "message": it.message,
                "since": clock::rfc3339(it.since),
                "count": it.count,
            })),
        })
    }
}

/// What is wrong with a name.
struct Trouble {
    reason: &'static str,
    message: String,
    /// Wall-clock time, ns.
    since: u64,
    /// How often in a row; none if that is no matter.
    count: Option<u32>,
}

/// Lines of the log within some time: a server that is gone concerns every name.
#[derive(Debug, Default)]
struct Lines {
    /// Monotonic time, ns.
    since: u64,
    written: u32,
    left_out: u64,
}

impl Lines {
    const MAX: u32 = 20;
    const INTERVAL: u64 = 10_000_000_000;

    /// Whether another may be written. Reports how many were not, once there is room again.
    fn has_room(&mut self) -> bool {
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.since) > Self::INTERVAL {
            let left_out = std::mem::take(&mut self.left_out);
            if left_out > 0 {
                tracing::warn!(
                    left_out,
                    "further messages about DNS are omitted: see host_names of /config"
                );
            }
            *self = Self { since: now, ..Self::default() };
        }
        let has_room = self.written < Self::MAX;
        if has_room {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        has_room
    }
}

/// The task of one name.
struct Asking {
    name: Arc<DnsName>,
    system: Arc<System>,
    rounds: Arc<Rounds>,
    reports: mpsc::Sender<DnsReport>,
    former: Option<DnsAnswer>,
    task: u64,
}

impl Asking {
    async fn run(mut self, wait: Duration) {
        let mut failures = Failures::default();
        tokio::time::sleep(wait).await;
        loop {
            let result = self.round(failures.is_whole()).await;
            if let Ok(found) = &result {
                self.former = Some(found.endpoints.as_slice().into());
            }
            let wait = failures.next_wait(&self.name, &result, random());
            let (name, task) = (Arc::clone(&self.name), self.task);
            if self.reports.send(DnsReport { name, result, wait, task }).await.is_err() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// `has_failed`: the round before did. A round that takes long goes on among others that do, or, where these have no
    /// room, begins anew once they have: names whose servers are silent keep no others waiting.
    async fn round(&self, has_failed: bool) -> Result<Found, Failure> {
        let former = self.former.as_deref().unwrap_or_default();
        // In a place of its own: the task is small while it sleeps.
        let resolve = || Box::pin(resolve(&self.system, &self.name, former));
        // The semaphores are never closed.
        if !has_failed {
            let prompt = self.rounds.prompt.acquire().await;
            let mut round = resolve();
            if let Ok(result) = tokio::time::timeout(PROMPT_MAX, &mut round).await {
                return result;
            }
            let slow = self.rounds.slow.try_acquire();
            drop(prompt);
            if slow.is_ok() {
                return within_round(round).await;
            }
        }
        let _slow = self.rounds.slow.acquire().await;
        within_round(resolve()).await
    }
}

async fn within_round(
    round: impl Future<Output = Result<Found, Failure>>,
) -> Result<Found, Failure> {
    tokio::time::timeout(ROUND_MAX, round).await.unwrap_or(Err(Failure::Timeout))
}

fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}

fn spread() -> Duration {
    let share = f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    SPREAD.mul_f64(share)
}
