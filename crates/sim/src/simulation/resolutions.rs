//! The part of control that asks DNS for endpoints, and what workers do with the answers.
//!
//! A worker to which nothing else happens gets a configuration with other answers in a turn of its own. In that turn it closes
//! the idle connections to addresses that are no endpoints any more, and no others: those in use go on, and so do all
//! connections of a logical name. New connections go to addresses that are endpoints, at any time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::reports::{ConnectionSide, ConnectionSummary};
use proxy::time::Time;
use proxy::{ConnKey, Snapshot};

use super::Simulation;
use super::errands::Errand;
use crate::named::{NamedEndpoints, named};
use crate::random::Random;

/// Of a thousand answers, those that wait while something else is built, and for how long.
const BUSY: u32 = 300;
const BUSY_MAX: Duration = Duration::from_secs(2);

/// What a worker has to do may not be due for so long, for a turn to be one without.
const QUIET: Duration = Duration::from_millis(1);

/// What became of connections when workers heard of other addresses.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// Idle ones that were closed, and ones in use that were not, to addresses that are no endpoints any more.
    pub(super) closed: usize,
    pub(super) kept: usize,
    /// Those to a former address of a logical name.
    pub(super) kept_as_logical: usize,
}

impl Simulation {
    pub(super) fn plan_resolutions(&mut self, begin: Time) {
        let mut random = Random::new(self.scenario.seed).split("resolutions", 2);
        for _ in 0..self.scenario.resolutions.unwrap_or(0) {
            let at = begin + random.span(Duration::from_secs(20));
            self.errand(at, Errand::Resolve);
        }
    }

    /// Answers are noted, and linked now unless something else is being built: then with that, or behind it.
    pub(super) fn resolve(&mut self) {
        if self.is_draining || !self.configurations.resolve() {
            return;
        }
        let mut random = self.random.split("resolve", self.errands_total);
        if random.chance(BUSY) {
            let at = self.now() + random.span(BUSY_MAX);
            self.errand(at, Errand::LinkNoted);
        } else {
            self.link_noted();
        }
    }

    pub(super) fn link_noted(&mut self) {
        let Some(snapshot) = self.configurations.link_noted().filter(|_| !self.is_draining) else {
            return;
        };
        let quiet: Vec<_> = self.process.clone().filter(|number| self.is_quiet(*number)).collect();
        self.publish(&snapshot);
        self.note_reload_in_probation();
        for number in quiet {
            let before = self.connections_to_named(number);
            let former = self.named_of(number);
            let version = self.configuration_of(number).map(|it| it.1);
            self.turn(number);
            // What it had not read yet may have led elsewhere meanwhile.
            if version.is_none_or(|version| version + 1 != snapshot.version) {
                continue;
            }
            self.check_connections(number, &before, &former, &snapshot);
        }
    }

    /// Whether nothing happens in a worker's next turn.
    fn is_quiet(&mut self, number: usize) -> bool {
        let has_events = self.network.borrow().has_events(number);
        let later = self.now() + QUIET;
        let Some(Some(thread)) = self.threads.get_mut(number) else { return false };
        !has_events
            && !self.stopped.contains(&number)
            && thread.runs_at.is_none()
            && thread.worker.next_deadline().is_none_or(|deadline| deadline > later)
    }

    /// The connections of a worker to the cluster, and where they lead.
    fn connections_to_named(&mut self, number: usize) -> Vec<(ConnectionSummary, SocketAddr)> {
        let now = self.now();
        let targets = self.network.borrow().targets(number);
        let Some(Some(thread)) = self.threads.get_mut(number) else { return Vec::new() };
        let proxy = thread.worker.proxy();
        let Some(id) = named(proxy.snapshot()).map(|cluster| cluster.id) else { return Vec::new() };
        let is_named =
            |it: &ConnectionSummary| matches!(it.side, ConnectionSide::Upstream(of, _) if of == id);
        let connections = proxy.describe(0, u32::MAX, now).connections.into_iter();
        let connections = connections.filter(is_named).filter_map(|it| {
            let target = targets.get(&ConnKey::new(it.slot, it.generation).to_bits())?;
            Some((it, *target))
        });
        connections.collect()
    }

    /// The endpoints by the configuration that a worker has.
    fn named_of(&mut self, number: usize) -> NamedEndpoints {
        let configuration = self.configuration_of(number);
        let served = configuration.and_then(|it| self.served.get(&it));
        served.map(|served| served.named.clone()).unwrap_or_default()
    }

    /// What a worker has done with its connections in the turn in which it got this configuration, where nothing but answers
    /// differs.
    fn check_connections(
        &mut self,
        number: usize,
        before: &[(ConnectionSummary, SocketAddr)],
        former: &NamedEndpoints,
        snapshot: &Arc<Snapshot>,
    ) {
        let now = self.named_of(number);
        let has_it = self.configuration_of(number).is_some_and(|it| it.1 == snapshot.version);
        if !has_it || self.has_failed() {
            return;
        }
        let after = self.connections_to_named(number);
        for (connection, target) in before {
            let key = (connection.slot, connection.generation);
            let later = after.iter().find(|(it, _)| (it.slot, it.generation) == key);
            // A request of the same turn may have got it before the configuration came.
            if later.is_some_and(|(it, _)| it.requests > connection.requests) {
                continue;
            }
            let is_open = later.is_some();
            let is_idle = connection.state == "idle";
            let is_removed = is_removed(*target, former, &now);
            // One that takes no more requests, and is in no pool, ends with the last byte that it has to send, as of a reset.
            if is_removed && is_idle && connection.outbox_bytes > 0 {
                continue;
            }
            // What begins for whichever request comes has none to go on for.
            let is_unused = connection.state == "connecting" && connection.streams == Some(0);
            if is_open == (is_removed && is_idle) && !(is_removed && is_unused) {
                let what = if is_open { "stays open" } else { "is closed" };
                self.ledger.violate(format!(
                    "worker {number}: {connection:?} to {target} {what} ({later:?}) as {former:?} becomes {now:?}"
                ));
            }
            let is_elsewhere = !now.addresses.contains(target);
            self.resolved.closed += usize::from(!is_open);
            self.resolved.kept += usize::from(is_open && is_removed);
            self.resolved.kept_as_logical += usize::from(is_open && !is_removed && is_elsewhere);
        }
    }

    /// No connection of a worker is idle whose address is no endpoint any more.
    pub(super) fn check_idle(&mut self, number: usize) {
        let now = self.named_of(number);
        if self.scenario.resolutions.is_none() || now.is_logical && !now.addresses.is_empty() {
            return;
        }
        for (connection, target) in self.connections_to_named(number) {
            let is_there = now.addresses.contains(&target);
            // What ends once its last bytes are sent has some.
            if connection.state == "idle" && connection.outbox_bytes == 0 && !is_there {
                let what =
                    format!("worker {number}: {connection:?} to {target} is idle, of {now:?}");
                self.ledger.violate(what);
            }
        }
    }

    /// In its last turn a worker began to connect to endpoints of the configuration that it had before, or has now.
    pub(super) fn check_connects(&mut self, number: usize, before: Option<(usize, u64)>) {
        let connects = self.network.borrow_mut().take_connects(number);
        if self.scenario.resolutions.is_none() || connects.is_empty() {
            return;
        }
        let (Some(before), Some(after)) = (before, self.configuration_of(number)) else { return };
        let addresses = &self.ledger.versions.named_addresses;
        let is_endpoint = |address: &SocketAddr| {
            let mut meanwhile = self.served.range(before..=after);
            meanwhile.any(|(_, served)| served.named.addresses.contains(address))
        };
        let connects = connects.into_iter().filter(|it| addresses.contains(it));
        let wrong: Vec<_> = connects.filter(|it| !is_endpoint(it)).collect();
        for address in wrong {
            let what = format!("worker {number} connects to {address}, which is no endpoint");
            self.ledger.violate(what);
        }
    }
}

/// Whether a connection leads to no endpoint any more. The one endpoint of a logical name is there whatever its address is.
fn is_removed(target: SocketAddr, former: &NamedEndpoints, now: &NamedEndpoints) -> bool {
    match former.is_logical && !former.addresses.is_empty() && !now.addresses.is_empty() {
        true => false,
        false => !now.addresses.contains(&target),
    }
}
