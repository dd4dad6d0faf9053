//! One process takes another's place: the conversation of the crate `handover` between two groups of workers, whose control is
//! played here, as `strait::handover` carries it out.
//!
//! Frames take their time. At any of them a process may end, with all handles that it has, or be stopped for a while, or until the
//! other one ends it.
//! What comes back was not touched, by the network's counts; a connection that one process uses while another has it breaks
//! the run's promise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use ::handover::{Deadlines, GivenGroup, Giver, Message, Phase, Refused, Taker};
use config::checks::Checker;
use config::outlier::Detector;
use proxy::Snapshot;
use proxy::time::Time;
use wiped::Wiped;
use worker::{Given, Moving, Taken};

use self::faults::{HandoverFault, Side, Stopped};
use self::returning::{ReturnAsked, Returning};
use super::Simulation;
use super::counts::Reported;
use super::errands::Errand;
use super::scenario::WORKERS_MAX;
use crate::configuration::Loading;
use crate::random::Random;
use crate::world::{SimListener, SimSocket};

mod faults;
mod giving;
mod returning;
mod taking;

pub use self::returning::Returns;

/// Between two reports of what a process counts.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// What processes say of what they count, and the number of the report behind it.
const TOTALS: &str = "totals";
const REPORT: &str = "report";

/// A form of connections that both sides read.
const FORM: u16 = 1;

/// A frame on its way.
#[derive(Debug)]
struct Frame {
    due: Time,
    bytes: Vec<u8>,
    /// Descriptors that go with it, and those of them that are connections.
    descriptors: usize,
    sockets: Vec<SimSocket>,
}

/// A group that was given away, until the other process is the process.
#[derive(Debug)]
struct GivenAway {
    worker: usize,
    /// What goes in front of its bytes.
    head: Vec<u8>,
    moving: Moving<SimSocket>,
    traffic: Vec<Option<(u64, u64)>>,
    is_sent: bool,
}

/// Workers that were asked for groups.
#[derive(Debug)]
struct Collecting {
    answers: Vec<(usize, Receiver<Given<SimSocket>>)>,
    groups: Vec<GivenGroup>,
    groups_max: u32,
    is_probe: bool,
    is_busy: bool,
}

/// A batch that the new process's workers have.
#[derive(Debug)]
struct Taking {
    batch: u32,
    answers: Vec<Receiver<Taken<SimSocket>>>,
    refused: Vec<Refused>,
}

/// What control of a process has, beside what both processes share here.
struct Control {
    loading: Loading,
    snapshot: Arc<Snapshot>,
    detector: Detector,
    checker: Checker,
    checks_open: BTreeSet<u64>,
    /// Its handles on the listening sockets.
    listeners_of: Vec<(Arc<str>, SimListener)>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("version", &self.snapshot.version).finish_non_exhaustive()
    }
}

/// A handover under way.
#[derive(Debug)]
pub(super) struct Handover {
    /// None once its process has ended.
    giver: Option<Giver>,
    taker: Option<Taker>,
    from: Range<usize>,
    /// The new process's workers, once it has some.
    to: Range<usize>,
    workers: usize,
    /// Control of the process that is not the process, once there is one.
    control: Option<Control>,
    to_taker: VecDeque<Frame>,
    to_giver: VecDeque<Frame>,
    /// Frames that have arrived.
    arrived: u32,
    fault: Option<(HandoverFault, u32)>,
    /// Of a thousand frames, those that are late.
    slow_frame: u32,
    stopped: Option<Stopped>,
    /// Whether the taker may end a giver that is silent.
    may_end_giver: bool,
    /// Whether the giver may end a taker that is silent.
    may_end_taker: bool,
    /// Whether the new process has got another configuration since it took over.
    pub(super) has_reloaded: bool,
    probation: Duration,
    /// When it is over, ns; 0 before it begins.
    probation_until: u64,
    given: BTreeMap<u32, GivenAway>,
    group_next: u32,
    next: BTreeMap<usize, u32>,
    only_idle: bool,
    pending: u32,
    collecting: Option<Collecting>,
    descriptors: VecDeque<SimSocket>,
    taking: VecDeque<Taking>,
    is_accepting: bool,
    /// Whether the giver has begun to give.
    has_begun: bool,
    /// What the taker counts by itself, as the giver knows it, and the number of that report.
    counted_there: (Vec<u8>, Vec<u8>),
    /// When either side reports again what it counts, ns.
    report_at: u64,
    /// Workers of the giver that have not read yet that they are not to accept.
    unaware: BTreeSet<usize>,
    /// Whether the taker has asked the giver to take everything back.
    return_asked: Option<ReturnAsked>,
    /// What there is of that while it is under way: the giver is the new process then.
    returning: Option<Returning>,
    random: Random,
}

impl Handover {
    /// The first worker of the process that has not left yet.
    pub(super) fn giver(&self) -> Option<usize> {
        self.giver.as_ref().map(|_| self.from.start)
    }

    /// What the giver says of what it counts: one that gives everything back leaves out what the other process knows.
    const fn reported(&self) -> Reported {
        if self.is_return() { Reported::OwnToGive } else { Reported::All }
    }

    /// A worker has read its mail.
    pub(super) fn on_turn(&mut self, worker: usize) {
        self.unaware.remove(&worker);
    }
}

impl Handover {
    /// One that begins, with the workers of each side, and in which nothing is slow or ends.
    fn new(
        (giver, from): (Giver, Range<usize>),
        (taker, to): (Taker, Range<usize>),
        random: Random,
    ) -> Self {
        Self {
            giver: Some(giver),
            taker: Some(taker),
            workers: to.len(),
            from,
            to,
            control: None,
            to_taker: VecDeque::new(),
            to_giver: VecDeque::new(),
            arrived: 0,
            fault: None,
            slow_frame: 0,
            stopped: None,
            has_reloaded: false,
            may_end_giver: random.split("end", 0).chance(700),
            may_end_taker: random.split("end", 1).chance(600),
            probation: Duration::ZERO,
            probation_until: 0,
            given: BTreeMap::new(),
            group_next: 0,
            next: BTreeMap::new(),
            only_idle: true,
            pending: 0,
            collecting: None,
            descriptors: VecDeque::new(),
            taking: VecDeque::new(),
            is_accepting: true,
            has_begun: false,
            counted_there: Default::default(),
            report_at: 0,
            unaware: BTreeSet::new(),
            return_asked: None,
            returning: None,
            random,
        }
    }
}

impl Simulation {
    /// Whether the process may get another configuration or drain: as in production, both wait as long as connections are between two
    /// workers, or two processes.
    pub(super) fn may_change(&self) -> bool {
        let is_free = |it: &Handover| {
            let is_rolled_back =
                self.process == it.from && it.giver.as_ref().is_some_and(Giver::is_over);
            is_rolled_back || self.process == it.to && !it.is_stopped(Side::Taker)
        };
        self.moves.is_empty() && self.handover.as_deref().is_none_or(is_free)
    }

    /// Begins to replace the process, unless something else is under way.
    pub(super) fn begin_handover(&mut self) {
        let latest = self.snapshot.as_ref().map(|snapshot| snapshot.version);
        let workers = self.process.clone();
        let is_up_to_date = workers.clone().all(|number| {
            let thread = self.threads.get_mut(number).and_then(Option::as_mut);
            thread.is_some_and(|it| Some(it.worker.proxy().snapshot().version) == latest)
        });
        if self.is_draining || self.is_silent {
            return;
        }
        if self.handover.is_some() || !self.moves.is_empty() || !is_up_to_date {
            let later = self.now() + Duration::from_millis(5);
            return self.errand(later, Errand::Handover);
        }
        let mut random = self.random.split("handover", self.handovers as u64);
        self.handovers += 1;
        let mut fault = HandoverFault::of(&mut random.split("fault", 0), self.scenario.is_strict);
        let may_end_taker = random.split("end", 1).chance(600);
        if !may_end_taker {
            fault = fault.map(|(fault, at)| (fault.without_end(), at));
        }
        let noticed_within = fault.map_or(Duration::ZERO, |(fault, _)| fault.noticed_within());
        let probation = random.span(Duration::from_secs(2)) + noticed_within;
        // A short one must not fail for connections that cannot move: they stay.
        let totals = [Duration::from_secs(60), Duration::from_secs(4)];
        let total = *random.split("total", 0).pick(&totals);
        let deadlines = Deadlines { probation, total, ..Deadlines::default() };
        let slow_frames: &[u32] = if self.scenario.is_strict { &[20] } else { &[20, 20, 300] };
        let slow_frame = *random.split("slow frames", 0).pick(slow_frames);
        let now = self.now().as_nanos();
        let mut giver = Giver::new("sim", FORM, 9, 0, deadlines, now);
        giver.learn(&[TOTALS, REPORT]);
        let taker = Taker::new("sim", vec![FORM], 9, false, deadlines, now);
        let count = random.length_between(1, WORKERS_MAX);
        self.handover = Some(Box::new(Handover {
            workers: count,
            fault,
            slow_frame,
            may_end_taker,
            probation: deadlines.probation,
            ..Handover::new((giver, workers), (taker, 0..0), random)
        }));
        self.begin_again(true);
        self.errand(self.now(), Errand::GoOnWithHandover);
    }

    /// Does what is due.
    pub(super) fn go_on_with_handover(&mut self) {
        let now = self.now();
        self.continue_stopped(now);
        self.let_frames_arrive(now);
        self.begin_return();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let (giver_stands, taker_stands) = (it.is_stopped(Side::Giver), it.is_stopped(Side::Taker));
        if let Some(giver) = it.giver.as_mut().filter(|_| !giver_stands) {
            giver.on_time(now.as_nanos());
        }
        if let Some(taker) = it.taker.as_mut().filter(|_| !taker_stands) {
            taker.on_time(now.as_nanos());
        }
        self.fail_in_probation();
        self.act();
        self.go_on_collecting();
        self.go_on_taking();
        self.report_counts();
        self.act();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let is_over = it.giver.as_ref().is_none_or(Giver::is_over)
            && it.taker.as_ref().is_none_or(Taker::is_over);
        if is_over {
            return self.end_handover();
        }
        let is_probation = |giver: &Giver| giver.phase() == Phase::Probation;
        let is_quiet = it.stopped.is_some() || it.giver.as_ref().is_some_and(is_probation);
        let most = Duration::from_micros(if is_quiet { 20_000 } else { 400 });
        let at = now + it.random.span(most);
        self.errand(at, Errand::GoOnWithHandover);
    }

    fn let_frames_arrive(&mut self, now: Time) {
        loop {
            let Some(it) = self.handover.as_deref_mut() else { return };
            let is_due = |frames: &VecDeque<Frame>| frames.front().is_some_and(|it| it.due <= now);
            let to_taker = is_due(&it.to_taker) && !it.is_stopped(Side::Taker);
            let to_giver = is_due(&it.to_giver) && !it.is_stopped(Side::Giver);
            if !to_taker && !to_giver {
                break;
            }
            if let Some((fault, _)) = it.fault.take_if(|(_, at)| *at <= it.arrived) {
                self.fail(fault);
                continue;
            }
            it.arrived += 1;
            let at = now.as_nanos();
            if to_taker && let Some(frame) = it.to_taker.pop_front() {
                it.descriptors.extend(frame.sockets);
                if let Some(taker) = &mut it.taker {
                    taker.on_frame(&frame.bytes, frame.descriptors, at);
                }
            } else if let Some(frame) = it.to_giver.pop_front()
                && let Some(giver) = &mut it.giver
            {
                giver.on_frame(&frame.bytes, 0, at);
            }
            self.act();
        }
        // The end of a process is behind all that it sent.
        let Some(it) = self.handover.as_deref_mut() else { return };
        let (giver_stands, taker_stands) = (it.is_stopped(Side::Giver), it.is_stopped(Side::Taker));
        if it.giver.is_none()
            && !taker_stands
            && it.to_taker.is_empty()
            && let Some(taker) = it.taker.as_mut()
        {
            taker.on_closed(now.as_nanos());
        }
        if it.taker.is_none()
            && !giver_stands
            && it.to_giver.is_empty()
            && let Some(giver) = it.giver.as_mut()
        {
            giver.on_closed();
        }
    }

    fn act(&mut self) {
        loop {
            let Some(it) = self.handover.as_deref_mut() else { return };
            let (giver_stands, taker_stands) =
                (it.is_stopped(Side::Giver), it.is_stopped(Side::Taker));
            let giver = it.giver.as_mut().filter(|_| !giver_stands).and_then(Giver::poll);
            let taker = it.taker.as_mut().filter(|_| !taker_stands).and_then(Taker::poll);
            if giver.is_none() && taker.is_none() {
                return;
            }
            if let Some(action) = giver {
                self.on_giver(action);
            }
            if let Some(action) = taker {
                self.on_taker(action);
            }
        }
    }

    /// Either side reports what it counts, ten times a second.
    fn report_counts(&mut self) {
        let now = self.now().as_nanos();
        let Some(it) = self.handover.as_deref_mut().filter(|it| it.report_at <= now) else {
            return;
        };
        it.report_at = later(now, REPORT_INTERVAL);
        let (from, to) = (it.from.start, it.to.start);
        let reported = it.reported();
        let (giver_stands, taker_stands) = (it.is_stopped(Side::Giver), it.is_stopped(Side::Taker));
        if let Some(giver) = it.giver.as_mut().filter(|_| !giver_stands)
            && giver.phase() == Phase::Probation
        {
            giver.update(&states(self.counts.report(from, reported)));
        }
        // The one before is read.
        let mut frames = Vec::new();
        if let Some(taker) = it.taker.as_ref().filter(|_| !taker_stands && !it.to.is_empty())
            && taker.stands_by()
            // One that takes everything back says nothing of that.
            && !it.is_return()
            && it.to_giver.is_empty()
        {
            let states = states(self.counts.report(to, Reported::Own));
            let reports = states.iter().flat_map(|(topic, value)| taker.frames_of(topic, value));
            frames.extend(reports);
        }
        frames.iter().for_each(|frame| self.send(false, frame, 0, Vec::new()));
        self.look_at_counts();
    }

    /// The new process ends, as it should, before its probation is over: the former one has nothing to stand in for.
    pub(super) fn end_probation(&mut self) {
        if self.handover.is_some() {
            self.send(false, &Message::Committed.encode(), 0, Vec::new());
        }
    }

    fn send(
        &mut self,
        is_to_taker: bool,
        bytes: &[u8],
        descriptors: usize,
        sockets: Vec<SimSocket>,
    ) {
        let now = self.now();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let frames = if is_to_taker { &mut it.to_taker } else { &mut it.to_giver };
        let is_slow = it.random.chance(it.slow_frame);
        let most = if is_slow { Duration::from_millis(300) } else { Duration::from_micros(200) };
        let earliest = frames.back().map_or(now, |last| last.due);
        let due = (now + it.random.span(most)).max(earliest);
        frames.push_back(Frame { due, bytes: bytes.to_vec(), descriptors, sockets });
    }
}

/// What a process counts and the number of the report, by topic.
fn states((totals, number): (Vec<u8>, Vec<u8>)) -> [(String, Wiped); 2] {
    [(TOTALS.to_owned(), totals.into()), (REPORT.to_owned(), number.into())]
}

/// The time that is `after` from `now`.
fn later(now: u64, after: Duration) -> u64 {
    now.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
}
