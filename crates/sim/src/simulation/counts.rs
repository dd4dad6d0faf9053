//! What processes count, each with what it knows of those before and behind it: what a scraper sees of the one that serves.
//!
//! Counters never go back, whichever process serves, but by what one that was killed had not reported yet; and where everything has
//! ended nothing is open.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use proxy::Snapshot;
use proxy::time::Time;
use telemetry::{Collector, CounterSource, FormerTotals, ProcessFacts};

use super::Simulation;
use super::handovers::Handover;
use crate::configuration::{ON_DEMAND, names};

/// How long connections may take to be back with their workers that another process did not take.
const RETURN_TIME: Duration = Duration::from_secs(2);

/// The gauges of what is open.
const OPEN: [&str; 3] =
    ["strait_downstream_connections_active{", "strait_exchanges_active{", "strait_tunnels_active{"];

/// Counters, by name.
pub(super) type Shown = BTreeMap<String, u64>;

/// What each process counts, in the order in which they were started.
#[derive(Debug, Default)]
pub(super) struct Counts {
    processes: Vec<Process>,
    /// What was last seen of the process that serves, by its first worker.
    seen: (usize, Shown),
    /// What processes showed when they reported what they count.
    reported: Vec<Shown>,
    /// Whether a process was killed, and with it what it had not reported.
    pub(super) is_incomplete: bool,
}

/// What a process says of what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    /// All of it, to the process that takes its place.
    All,
    /// What it counts by itself, to the process that has its place back.
    OwnToGive,
    /// The same, to the process whose place it took.
    Own,
}

#[derive(Debug)]
struct Process {
    workers: Range<usize>,
    collector: Collector,
    /// The first worker of the one that took its place.
    successor: Option<usize>,
    /// Whether that is the one whose place this one had.
    has_given_back: bool,
    /// When what it gave in vain is back, or lost.
    lost_at: Option<Time>,
    /// Whether what ended with the process before this one still counts as open.
    has_lost_former: bool,
    /// Whether it has ended: it says nothing more.
    is_over: bool,
}

impl Counts {
    /// A process starts, with these workers.
    pub(super) fn begin(&mut self, first: usize, sources: Vec<CounterSource>, snapshot: &Snapshot) {
        let workers = first..first + sources.len();
        let mut collector = Collector::new("sim");
        sources.into_iter().for_each(|source| collector.add_worker(source));
        collector.set_names(names(snapshot));
        let (successor, lost_at, has_lost_former, is_over) = (None, None, false, false);
        self.processes.push(Process {
            workers,
            collector,
            successor,
            has_given_back: false,
            lost_at,
            has_lost_former,
            is_over,
        });
    }

    fn process(&mut self, first: usize) -> &mut Process {
        let found = self.processes.iter_mut().find(|it| it.workers.start == first);
        found.expect("each process counts")
    }

    /// What the process of this first worker counts.
    pub(super) fn of(&mut self, first: usize) -> &mut Collector {
        &mut self.process(first).collector
    }

    /// What each process counts, or has counted that has ended.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Collector> {
        self.processes.iter_mut().map(|it| &mut it.collector)
    }

    fn shown(&mut self, first: usize) -> Shown {
        let mut stats = String::new();
        self.of(first).readings().write_stats(&ProcessFacts::default(), "", &mut stats);
        // What loops did is said anew where a worker's gauges are looked at.
        let is_counter = |name: &str| {
            !name.starts_with("strait_worker_")
                && (name.contains("_total") || name.contains("_count"))
        };
        let lines = stats.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse::<u64>().ok()?)).filter(|(name, _)| is_counter(name))
        });
        lines.collect()
    }

    /// A process reports what it counts: the report, and its number.
    pub(super) fn report(&mut self, first: usize, reported: Reported) -> (Vec<u8>, Vec<u8>) {
        let shown = self.shown(first);
        let collector = self.of(first);
        let totals = match reported {
            Reported::All => collector.readings_to_give().write_totals(),
            Reported::OwnToGive => collector.readings_to_give().write_own_totals(),
            Reported::Own => collector.readings().write_own_totals(),
        };
        let number = u32::try_from(self.reported.len()).expect("few reports");
        self.reported.push(shown);
        (totals, number.to_be_bytes().to_vec())
    }

    /// The process of `first` takes the place of the other one, which has reported so much.
    pub(super) fn succeed(&mut self, before: usize, first: usize, number: Option<&[u8]>) {
        self.process(before).successor = Some(first);
        self.go_on_from(first, number);
    }

    /// The process of `first` has its place back from the other one, which has reported so much and goes on counting.
    pub(super) fn give_back(&mut self, before: usize, first: usize, totals: &[u8], number: &[u8]) {
        let returned = self.process(before);
        returned.successor = Some(first);
        returned.has_given_back = true;
        // The conversation in which this one was the process before it is over.
        returned.has_lost_former = true;
        let process = self.process(first);
        process.successor = None;
        if !totals.is_empty() {
            // A process gives back once.
            let number = before as u64;
            process.collector.set_returned_totals(number, FormerTotals::read(totals));
        }
        self.go_on_from(first, Some(number));
    }

    /// The process before that of `first` has ended: what was open there and did not come here is open no more.
    pub(super) fn former_has_ended(&mut self, first: usize) {
        self.process(first).has_lost_former = true;
    }

    /// The process of `first` has its place back from one that has ended, to which it began to give then, if it did.
    pub(super) fn take_back(
        &mut self,
        first: usize,
        totals: &[u8],
        number: &[u8],
        lost_at: Option<Time>,
    ) {
        let process = self.process(first);
        process.successor = None;
        process.has_given_back = false;
        process.lost_at = lost_at.map(|now| now + RETURN_TIME);
        process.collector.go_on_from(FormerTotals::read(totals));
        self.go_on_from(first, Some(number));
    }

    /// From here on, the process of `first` shows no less than that.
    fn go_on_from(&mut self, first: usize, number: Option<&[u8]>) {
        let number = number.and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
        let shown = number.and_then(|number| self.reported.get(number as usize));
        let mut shown = shown.cloned().unwrap_or_default();
        // What it has shown itself counts as well, where it was the one that serves all along.
        if self.seen.0 == first {
            for (name, before) in std::mem::take(&mut self.seen.1) {
                let count = shown.entry(name).or_default();
                *count = before.max(*count);
            }
        }
        self.seen = (first, shown);
    }

    /// The process of `first` begins to give what it has.
    pub(super) fn begin_giving(&mut self, first: usize) {
        let process = self.process(first);
        if process.lost_at.take().is_some() {
            process.collector.lose_given();
        }
        process.collector.begin_giving();
    }

    /// Those that end what they still have report it to the one that took their place.
    fn pass_on(&mut self, is_leaving: impl Fn(usize) -> bool) {
        for place in 0..self.processes.len() {
            let Some(process) = self.processes.get_mut(place) else { return };
            let Some(successor) = process.successor.filter(|_| !process.is_over) else { continue };
            if is_leaving(process.workers.start) {
                self.pass_on_to(place, successor);
            }
        }
    }
}

impl Counts {
    /// A process reports to the one that has its place.
    fn pass_on_to(&mut self, place: usize, successor: usize) {
        let Some(process) = self.processes.get_mut(place) else { return };
        let readings = process.collector.readings_to_give();
        if process.has_given_back {
            let totals = FormerTotals::read(&readings.write_own_totals());
            let number = process.workers.start as u64;
            self.of(successor).set_returned_totals(number, totals);
        } else {
            let totals = FormerTotals::read(&readings.write_totals());
            self.of(successor).set_former_totals(totals);
        }
    }

    /// Whether a process lives whose place that of `first` took, or that gave its place back to it.
    fn has_former(&self, first: usize) -> bool {
        self.processes.iter().any(|it| it.successor == Some(first) && !it.is_over)
    }
}

impl Simulation {
    /// The counts of the process that serves.
    pub(super) fn counted(&mut self) -> &mut Collector {
        self.counts.of(self.process.start)
    }

    /// Control looks at what the process counts that serves.
    pub(super) fn look_at_counts(&mut self) {
        let first = self.process.start;
        // Until it ends its probation, one says that in the conversation.
        let handover = self.handover.as_deref();
        self.counts.pass_on(|process| !handover.is_some_and(|it| it.reports(process)));
        self.lose_what_ended();
        let shown = self.counts.shown(first);
        let (seen_of, seen) = std::mem::replace(&mut self.counts.seen, (first, shown.clone()));
        // What a configuration does not name any more is forgotten.
        if seen_of != first || self.scenario.swaps > 0 || self.scenario.deliveries.is_some() {
            return;
        }
        // A cluster on demand may come again.
        let is_passing = |name: &str| self.scenario.has_demands && name.contains(ON_DEMAND);
        for (name, before) in seen.into_iter().filter(|(name, _)| !is_passing(name)) {
            let after = shown.get(&name).copied().unwrap_or_default();
            if after < before {
                self.ledger.violate(format!("{name} went from {before} to {after}"));
            }
        }
    }

    /// A worker has ended, and its process with it if it was the last one.
    pub(super) fn note_end_of(&mut self, number: usize, is_killed: bool) {
        let of_worker = |it: &&mut Process| it.workers.contains(&number) && !it.is_over;
        let Some(process) = self.counts.processes.iter_mut().find(of_worker) else { return };
        let first = process.workers.start;
        if is_killed {
            self.counts.is_incomplete = true;
            process.is_over = true;
        }
        self.end_process_of(first);
    }

    /// A process whose workers have ended reports to the one that took its place, and ends: once the one before it has, whose reports
    /// it passes on.
    fn end_process_of(&mut self, first: usize) {
        let waits = self.counts.has_former(first);
        let process = self.counts.process(first);
        let mut threads = process.workers.clone();
        if threads.any(|number| self.threads.get(number).is_some_and(Option::is_some)) {
            return;
        }
        let Some(successor) = process.successor else { return };
        if !process.is_over {
            if waits {
                return;
            }
            process.is_over = true;
            let place = self.counts.processes.iter().position(|it| it.workers.start == first);
            self.counts.pass_on_to(place.expect("it was found above"), successor);
        }
        self.counts.process(successor).has_lost_former = true;
        self.lose_what_ended();
        // That one may have waited for this.
        self.end_process_of(successor);
    }

    /// What ended with another process counts as open no more, for the process that serves.
    fn lose_what_ended(&mut self) {
        let (now, first) = (self.now(), self.process.start);
        let giver = self.handover.as_deref().and_then(Handover::giver);
        let process = self.counts.process(first);
        if giver == Some(first) {
            return;
        }
        if process.lost_at.take_if(|at| *at <= now).is_some() {
            process.collector.lose_given();
        }
        // What is open in another one is not lost.
        let is_quiet = process.lost_at.is_none() && !self.counts.has_former(first);
        let process = self.counts.process(first);
        if is_quiet && std::mem::take(&mut process.has_lost_former) {
            process.collector.lose_former();
        }
    }

    /// Nothing is open any more, whatever was lost with processes that were killed.
    pub(super) fn check_that_nothing_is_open(&mut self) {
        self.look_at_counts();
        // One that was killed as the last one shows nothing.
        let is_over = self.counts.process(self.process.start).is_over;
        if is_over || self.scenario.swaps > 0 || self.scenario.deliveries.is_some() {
            return;
        }
        let mut stats = String::new();
        self.counted().readings().write_stats(&ProcessFacts::default(), "_active", &mut stats);
        let is_open =
            |line: &&str| OPEN.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0");
        for line in stats.lines().filter(is_open) {
            self.ledger.violate(format!("where nothing is open: {line}"));
        }
    }
}
