//! The new process gives everything back in its probation: the same conversation with the sides exchanged, while the first one
//! waits. If nothing comes of it, the probation continues.
//!
//! The former process keeps its configuration. Where the new one has got another one meanwhile, what differs stays there and
//! drains. Control of a process that drains is not played: where requests would wait for it, nothing is given back then.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Add, Range};
use std::sync::Arc;
use std::time::Duration;

use ::handover::{
    Deadlines, Difference, Giver, Message as Frame, Part, PartKind, Phase, Taker, UnusedSocket,
};
use config::AgreedKind;
use proxy::Snapshot;
use proxy::save::Differing;
use proxy::time::Time;
use wiped::Wiped;
use worker::{KeptListener, Message};

use super::faults::{HandoverFault, Side, Stopped};
use super::{FORM, Handover, REPORT, TOTALS};
use crate::random::Random;
use crate::simulation::Simulation;
use crate::simulation::errands::Errand;

/// Of a thousand handovers, those whose new process asks for that, in the runs that have it.
const ASKS: u32 = 700;

/// How long the former process may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How attempts to give everything back ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// The former process has everything back, and the new one has ended as it should.
    pub completed: usize,
    /// The former process did not take it: the new one has it still, and the probation continued.
    pub refused: usize,
    /// The former process ended meanwhile: the new one goes on alone.
    pub former_ended: usize,
    /// The new process ended meanwhile: the former one goes on with what it has.
    pub new_ended: usize,
}

impl Add for Returns {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            completed: self.completed + other.completed,
            refused: self.refused + other.refused,
            former_ended: self.former_ended + other.former_ended,
            new_ended: self.new_ended + other.new_ended,
        }
    }
}

/// A request of the new process to the former one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReturnAsked {
    at: Time,
    /// Whether the former process has read it.
    is_heard: bool,
}

/// Everything is being given back.
#[derive(Debug)]
pub(super) struct Returning {
    /// The handover in whose probation that is.
    pub(super) first: Box<Handover>,
    /// Whether the former process serves by now: it can only end then, or be the process.
    pub(super) serves: bool,
    /// Whether it went on alone.
    is_alone: bool,
}

impl Simulation {
    /// In some runs the new process finds in its probation that it is unwell.
    pub(super) fn plan_return(&mut self) {
        let now = self.now();
        let number = self.handovers as u64;
        let Some(it) = self.handover.as_deref().filter(|_| self.scenario.has_returns) else {
            return;
        };
        let mut random = Random::new(self.scenario.seed).split("returns", 1 + number);
        if random.chance(ASKS) {
            let at = now + random.span(it.probation);
            self.errand(at, Errand::GiveBack);
        }
    }

    /// The new process asks the former one to take everything back, if that stands by.
    pub(in crate::simulation) fn ask_to_take_back(&mut self) {
        let now = self.now();
        let (process, is_draining) = (self.process.clone(), self.is_draining);
        let Some(it) = self.handover.as_deref_mut() else { return };
        let stands_by = it.taker.as_ref().is_some_and(Taker::stands_by);
        let is_busy = it.returning.is_some() || it.is_stopped(Side::Taker);
        let needs_control = self.scenario.may_wait_for_control() && it.has_reloaded;
        // What a source delivers during the probation does not reach the former process here.
        let needs_control = needs_control || self.scenario.deliveries.is_some();
        if is_busy || needs_control || !stands_by || is_draining || process != it.to {
            return;
        }
        it.return_asked = Some(ReturnAsked { at: now, is_heard: false });
        let frame = Frame::TakeBack { reason: "it is unwell".to_owned() };
        self.send(false, &frame.encode(), 0, Vec::new());
    }

    /// The former process has read that.
    pub(super) fn on_return_asked(&mut self) {
        let asked = self.handover.as_deref_mut().and_then(|it| it.return_asked.as_mut());
        if let Some(asked) = asked {
            asked.is_heard = true;
        }
    }

    /// The former process connects as a taker, as it was asked to.
    pub(super) fn begin_return(&mut self) {
        let now = self.now();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(asked) = it.return_asked.take_if(|it| it.is_heard) else { return };
        // Its end is what comes next.
        if it.taker.is_none() {
            return;
        }
        if self.scenario.may_wait_for_control() && it.has_reloaded {
            return;
        }
        let stands_by = it.giver.as_ref().is_some_and(|it| it.phase() == Phase::Probation);
        let is_late = now > asked.at + CONNECT_TIMEOUT;
        if is_late || !stands_by || self.is_draining {
            self.returns.refused += 1;
            return;
        }
        let Some(mut first) = self.handover.take() else { return };
        let random = first.random.split("return", 0);
        let fault = HandoverFault::of(&mut random.split("fault", 0), self.scenario.is_strict);
        let deadlines = Deadlines {
            probation: Duration::ZERO,
            total: *random
                .split("total", 0)
                .pick(&[Duration::from_secs(60), Duration::from_secs(4)]),
            ..Deadlines::default()
        };
        let at = now.as_nanos();
        let giver = Giver::new("sim", FORM, 9, 0, deadlines, at);
        let taker = Taker::of_former("sim", vec![FORM], 9, deadlines, at);
        let (from, to) = (first.to.clone(), first.from.clone());
        self.handover = Some(Box::new(Handover {
            control: first.control.take(),
            // A former process that is stopped before it serves is not ended: it only does not take anything.
            fault: fault.map(|(fault, at)| (fault.without_end(), at)),
            slow_frame: first.slow_frame,
            stopped: first.stopped.take().map(Stopped::with_sides_exchanged),
            returning: Some(Returning { first, serves: false, is_alone: false }),
            ..Handover::new((giver, from), (taker, to), random)
        }));
        self.begin_again(true);
    }

    /// Both sides of a conversation are done with it: after one that gave everything back, or did not, the first one goes on, if
    /// there is something left of it.
    pub(super) fn end_handover(&mut self) {
        let Some(mut it) = self.handover.take() else { return };
        let Some(Returning { mut first, is_alone, .. }) = it.returning.take() else { return };
        if self.process == it.to {
            let count = match is_alone {
                true => &mut self.returns.new_ended,
                false => &mut self.returns.completed,
            };
            *count += 1;
            return;
        }
        let has_ended = |workers: Range<usize>| {
            self.threads.get(workers).is_some_and(|it| it.iter().all(Option::is_none))
        };
        first.control = it.control.take();
        first.has_reloaded |= it.has_reloaded;
        first.stopped = it.stopped.take().map(Stopped::with_sides_exchanged);
        if has_ended(it.to.clone()) {
            first.giver = None;
            first.to_giver.clear();
            self.returns.former_ended += 1;
        } else if has_ended(it.from.clone()) {
            first.taker = None;
            first.to_taker.clear();
            self.returns.new_ended += 1;
        } else {
            self.returns.refused += 1;
        }
        self.handover = Some(first);
        self.errand(self.now(), Errand::GoOnWithHandover);
    }

    /// What the configuration of the process says that connections are agreed on, where the other one has another configuration.
    pub(super) fn parts(&self) -> Vec<Part> {
        let is_return = self.handover.as_deref().is_some_and(|it| it.returning.is_some());
        let snapshot = self.snapshot.as_ref().filter(|_| is_return);
        snapshot.map(|snapshot| parts(snapshot)).unwrap_or_default()
    }

    /// The former process finds where its configuration differs: what that concerns stays.
    pub(super) fn compare(&self, theirs: &[Part]) -> Vec<Difference> {
        let Some(it) = self.handover.as_deref().filter(|it| it.returning.is_some()) else {
            return Vec::new();
        };
        let own = it.control.as_ref().map(|it| parts(&it.snapshot)).unwrap_or_default();
        let (differing, differences) = differing(&own, theirs);
        let differing = Arc::new(differing);
        let workers = it.to.clone();
        workers.for_each(|number| self.post(number, Message::Differing(Arc::clone(&differing))));
        differences
    }

    /// Listeners that the other process has and the former one has not: that goes on to accept there.
    pub(super) fn unused_listeners(&self) -> Vec<UnusedSocket> {
        let control = self.handover.as_deref().and_then(|it| it.control.as_ref());
        let is_used = |name: &Arc<str>| {
            control.is_some_and(|it| it.listeners_of.iter().any(|(own, _)| own == name))
        };
        let names: BTreeSet<_> = self.listeners_of.iter().map(|(name, _)| name).collect();
        let unused = names.into_iter().filter(|name| !is_used(name));
        let unused =
            unused.map(|name| UnusedSocket::Listener { name: name.to_string(), address: None });
        unused.collect()
    }

    /// The same as the process knows them.
    pub(super) fn kept_listeners(&self, unused: &[UnusedSocket]) -> Arc<[KeptListener]> {
        let listeners = self.snapshot.iter().flat_map(|snapshot| snapshot.listeners.iter());
        let is_unused = |name: &str| {
            let mut unused = unused.iter();
            unused.any(|it| matches!(it, UnusedSocket::Listener { name: it, .. } if it == name))
        };
        let kept = listeners.filter(|it| is_unused(&it.name));
        let mut kept: Vec<_> = kept.map(|it| KeptListener { id: it.id, address: None }).collect();
        kept.sort_by_key(|kept| kept.id);
        kept.into()
    }

    /// The former process is the process again, with what the other one has counted by itself.
    pub(super) fn on_returned(&mut self, states: &BTreeMap<String, Wiped>, is_alone: bool) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(returning) = &mut it.returning else { return };
        returning.is_alone = is_alone;
        let first = &returning.first;
        let said = |topic: &str, known: &[u8]| {
            states.get(topic).map_or_else(|| known.to_vec(), |it| it.to_vec())
        };
        let totals = said(TOTALS, &first.counted_there.0);
        let number = said(REPORT, &first.counted_there.1);
        it.has_reloaded = first.has_reloaded;
        let workers = it.to.clone();
        self.counts.give_back(it.from.start, workers.start, &totals, &number);
        workers.clone().for_each(|number| self.post(number, Message::AcceptAgain));
        self.process = workers.clone();
        self.exchange_control();
        if is_alone {
            self.counts.former_has_ended(workers.start);
        }
        self.look_at_counts();
        workers.for_each(|number| self.post(number, Message::SocketsAreOwn));
        self.read_again();
    }

    /// A taker cannot go on. One that serves ends; a former process that does not yet only stands by as before.
    pub(super) fn stop_taker(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let stands_by = it.returning.as_ref().is_some_and(|it| !it.serves);
        let workers = it.to.clone();
        it.descriptors.clear();
        it.taking.clear();
        if !stands_by {
            self.end_process(workers);
        }
    }
}

/// What a configuration says that connections are agreed on.
fn parts(snapshot: &Snapshot) -> Vec<Part> {
    let part = |agreed: config::Agreed| {
        let kind = match agreed.kind {
            AgreedKind::Listener => PartKind::Listener,
            AgreedKind::Chain => PartKind::Chain,
            AgreedKind::Cluster => PartKind::Cluster,
        };
        Part { kind, name: agreed.name, fingerprint: agreed.fingerprint }
    };
    config::agreed(snapshot).into_iter().map(part).collect()
}

/// As `strait::handover::differences` has it: for workers, and to be said.
fn differing(own: &[Part], theirs: &[Part]) -> (Differing, Vec<Difference>) {
    let found = |parts: &[Part], wanted: &Part| {
        let mut parts = parts.iter();
        let found = parts.find(|it| (it.kind, &it.name) == (wanted.kind, &wanted.name));
        found.map(|it| it.fingerprint)
    };
    let (mut differing, mut differences) = (Differing::default(), Vec::new());
    for part in theirs {
        let here = found(own, part);
        if here == Some(part.fingerprint) {
            continue;
        }
        let names = match part.kind {
            PartKind::Listener => &mut differing.listeners,
            PartKind::Chain => &mut differing.chains,
            PartKind::Cluster => &mut differing.clusters,
        };
        names.insert(part.name.clone());
        let (kind, name, is_missing) = (part.kind, part.name.clone(), here.is_none());
        differences.push(Difference { kind, name, is_missing });
    }
    for part in own.iter().filter(|it| it.kind == PartKind::Chain) {
        let listener = part.name.split('/').next().unwrap_or_default();
        let mut listeners = theirs.iter().filter(|it| it.kind == PartKind::Listener);
        let is_new = found(theirs, part) != Some(part.fingerprint);
        if is_new && listeners.any(|it| it.name == listener) {
            differing.chains_new.insert(part.name.clone());
        }
    }
    (differing, differences)
}

impl Handover {
    /// Whether the new process gives everything back.
    pub(super) const fn is_return(&self) -> bool {
        self.returning.is_some()
    }

    /// Whether a process is part of the conversation, or of one that waits for it: what it counts it says there.
    pub(in crate::simulation) fn reports(&self, process: usize) -> bool {
        let first = self.returning.as_ref().and_then(|it| it.first.giver());
        self.giver() == Some(process) || first == Some(process)
    }
}
