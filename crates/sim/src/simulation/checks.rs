//! The part of control that checks endpoints: [`Checker`](config::checks::Checker), on the time of the simulation.

use std::sync::Arc;
use std::time::Duration;

use config::checks::{CheckResult, CheckTask, Checked};
use config::snapshot::{ClusterId, EndpointId};
use proxy::Snapshot;
use proxy::time::Time;
use worker::Message;

use super::Simulation;
use super::errands::Errand;

impl Simulation {
    /// A configuration takes the place of the one before.
    pub(super) fn check_in(&mut self, snapshot: &Arc<Snapshot>) {
        let now = self.since_start();
        let checked = self.checker.on_snapshot(snapshot, now, || self.checks_random.next());
        self.after_checks(&checked);
    }

    /// The same in a process that goes on with the connections of another.
    pub(super) fn check_in_adopted(&mut self, snapshot: &Arc<Snapshot>) {
        let now = self.since_start();
        let random = &mut self.checks_random;
        let checked = self.checker.on_adopted_snapshot(snapshot, now, || random.next());
        self.after_checks(&checked);
    }

    /// Some endpoints are due, or were when this was planned.
    pub(super) fn on_checks_due(&mut self) {
        let now = self.since_start();
        self.end_warming(now);
        if !self.makes_checks() {
            return self.plan_checks();
        }
        if self.handover.is_some() {
            // None begins while connections move.
            let later = self.now() + Duration::from_millis(10);
            return self.errand(later, Errand::Checks);
        }
        for task in self.checker.poll(now) {
            let workers = u32::try_from(self.process.len()).expect("few workers");
            let place = usize::try_from(task.endpoint.0.slot % workers).expect("few workers");
            let worker = self.process.start + place;
            self.begin_check(worker, task);
        }
        self.plan_checks();
    }

    /// Has clusters serve that have waited until then for the first checks of their endpoints.
    pub(super) fn end_warming(&mut self, until: Duration) {
        let late = self.checker.end_late_warming(until);
        if !late.warmed.is_empty() {
            self.after_checks(&late);
        }
    }

    fn begin_check(&mut self, worker: usize, task: CheckTask) {
        match self.try_post(worker, Message::Check([task].into())) {
            Ok(()) => {
                self.checks_open.insert(task.number);
            }
            Err(_) => self.on_checked(task.number, CheckResult::Undecided),
        }
    }

    /// A worker says how a check went.
    pub(super) fn on_check_reported(&mut self, number: u64, result: CheckResult) {
        if !self.checks_open.remove(&number) {
            self.ledger.violate(format!("the check {number} ended twice, or never began"));
        }
        self.checks_ended += usize::from(result != CheckResult::Undecided);
        let result = match result {
            // As if its answer had said so.
            CheckResult::Passed if self.degraded_random.chance(100) => CheckResult::Degraded,
            result => result,
        };
        self.on_checked(number, result);
    }

    fn on_checked(&mut self, number: u64, result: CheckResult) {
        let at = (self.since_start(), self.checks_random.next());
        let snapshot = self.snapshot.clone().expect("there is a configuration from the start");
        let checked = self.checker.on_result(&snapshot, (number, result), at);
        self.after_checks(&checked);
    }

    /// An endpoint said of itself that it is not healthy.
    pub(super) fn on_failed_itself(&mut self, cluster: ClusterId, endpoint: EndpointId) {
        let now = self.since_start();
        let snapshot = self.snapshot.clone().expect("there is a configuration from the start");
        let checked =
            self.checker.on_failed_itself(&snapshot, (cluster, endpoint), "it said so", now);
        self.after_checks(&checked);
    }

    fn after_checks(&mut self, checked: &Checked) {
        let now = self.since_start();
        let snapshot = self.snapshot.clone().expect("there is a configuration from the start");
        for (cluster, endpoint) in &checked.passed {
            if let Some(cluster) = snapshot.cluster(*cluster) {
                self.detector.on_check_passed(cluster, *endpoint, now);
            }
        }
        for cluster in checked.changed.iter().filter_map(|id| snapshot.cluster(*id)) {
            self.detector.recount(cluster);
        }
        if !checked.warmed.is_empty() {
            let warmed: Arc<[ClusterId]> = checked.warmed.iter().map(|warmed| warmed.id).collect();
            self.post_all(|_| Message::Warmed(Arc::clone(&warmed)));
        }
        self.plan_checks();
    }

    const fn makes_checks(&self) -> bool {
        !self.is_draining && !self.is_silent
    }

    fn plan_checks(&mut self) {
        let due = self.checker.next_deadline().filter(|_| self.makes_checks());
        let late_warming = self.checker.next_late_warming();
        if let Some(due) = due.into_iter().chain(late_warming).min() {
            let due = Time::from_nanos(0) + due;
            self.errand(due.max(self.now()), Errand::Checks);
        }
    }

    /// Each check that a worker was asked for has ended, whatever became of its endpoint.
    pub(super) fn check_that_checks_ended(&mut self) {
        let all_run = self.threads.iter().all(Option::is_some);
        if all_run && !self.has_failed() && !self.checks_open.is_empty() {
            self.ledger.violate(format!("checks without an end: {:?}", self.checks_open));
        }
    }
}
