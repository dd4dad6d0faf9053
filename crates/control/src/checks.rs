//! Health checks: the [`Checker`] says what is due, workers find out, and what follows is logged and counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use config::checks::{
    CheckEvent, CheckResult, CheckTask, Checked, Checker, HealthChange, HealthWord,
    RememberedCheck, Warmed,
};
use config::snapshot::{ClusterId, EndpointId, Snapshot};
use serde_json::{Value, json};
use telemetry::events::CheckCounted;
use telemetry::{Collector, ENDPOINTS_PER_BLOCK};

use crate::clock;
use crate::names::address_text;
use crate::outliers::{now, random};
use crate::pace::Pace;

/// Endpoints that are unhealthy or degraded of which another process hears.
const REMEMBERED_MAX: usize = 4_096;

/// Endpoints that are healthy of which another process hears, each with [`MARK_DIGITS`] bytes.
const HEALTHY_MAX: usize = 1 << 18;

/// Hexadecimal digits of the mark of a healthy endpoint.
const MARK_DIGITS: usize = 8;

/// What an endpoint says of itself in a response to a request.
const SAID_SO: &str = "the endpoint reported failure: x-envoy-immediate-health-check-fail";

/// The health checks of this process.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    checker: Checker,
    pace: Pace,
    /// The same for clusters that have warmed: those of a start leave the lines of endpoints room.
    pace_of_warming: Pace,
}

impl Checks {
    /// A configuration is in effect, or about to be.
    pub(crate) fn on_snapshot<F>(&mut self, snapshot: &Snapshot<F>, is_adopted: bool) -> Checked {
        let checked = match is_adopted {
            true => self.checker.on_adopted_snapshot(snapshot, now(), random),
            false => self.checker.on_snapshot(snapshot, now(), random),
        };
        self.log(&checked);
        checked
    }

    /// Clusters that wait for the first checks of their endpoints.
    pub(crate) fn warming(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.checker.warming()
    }

    /// When [`Checks::end_warming`] has something to do, as time from now.
    pub(crate) fn next_late_warming_in(&self) -> Option<Duration> {
        self.checker.next_late_warming().map(|until| until.saturating_sub(now()))
    }

    /// Has clusters serve that have waited long enough, or all of them.
    pub(crate) fn end_warming(&mut self, all: bool) -> Checked {
        let checked = self.checker.end_late_warming(if all { Duration::MAX } else { now() });
        self.log(&checked);
        checked
    }

    /// When [`Checks::poll`] has something to do, as time from now.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.checker.next_deadline().map(|deadline| deadline.saturating_sub(now()))
    }

    /// The checks that are due, by worker. An endpoint falls to the same worker each time, which has a connection to it, and
    /// counts it beside its neighbours.
    pub(crate) fn poll(&mut self, workers: u32) -> BTreeMap<u32, Vec<CheckTask>> {
        let mut by_worker = BTreeMap::<u32, Vec<CheckTask>>::new();
        for task in self.checker.poll(now()) {
            let block = task.endpoint.0.slot / ENDPOINTS_PER_BLOCK;
            by_worker.entry(block % workers.max(1)).or_default().push(task);
        }
        by_worker
    }

    /// A check ended.
    pub(crate) fn on_checked<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        number: u64,
        result: CheckResult,
        collector: &mut Collector,
    ) -> Checked {
        let has_passed = match &result {
            CheckResult::Passed | CheckResult::Degraded => Some(true),
            CheckResult::Failed { .. } => Some(false),
            CheckResult::Undecided => None,
        };
        let checked = self.checker.on_result(snapshot, (number, result), (now(), random()));
        for cluster in &checked.counted {
            let cluster = Arc::clone(cluster);
            collector.check_counted(CheckCounted { cluster, has_passed });
        }
        self.log(&checked);
        checked
    }

    /// An endpoint said that it is not healthy.
    pub(crate) fn on_failed_itself<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        endpoint: (ClusterId, EndpointId),
    ) -> Checked {
        let checked = self.checker.on_failed_itself(snapshot, endpoint, SAID_SO, now());
        self.log(&checked);
        checked
    }

    /// Some time has passed.
    pub(crate) fn on_upkeep<F>(&mut self, snapshot: &Snapshot<F>) {
        self.pace.end_second();
        self.pace_of_warming.end_second();
        self.checker.look_at_activity(snapshot, now(), random);
    }

    /// How many endpoints of a cluster are unhealthy.
    pub(crate) fn unhealthy(&self, cluster: ClusterId) -> usize {
        self.checker.unhealthy(cluster)
    }

    /// What checks say of an endpoint; none without checks.
    pub(crate) fn word(&self, cluster: ClusterId, endpoint: EndpointId) -> Option<HealthWord> {
        self.checker.word(cluster, endpoint)
    }

    /// Writes down which endpoints are unhealthy, and which are degraded, for the process that takes this one's place.
    pub(crate) fn write(&self) -> [Value; 2] {
        let all = self.checker.remembered(now(), REMEMBERED_MAX).into_iter();
        let (unhealthy, degraded): (Vec<_>, Vec<_>) = all.partition(|one| one.reason.is_some());
        [unhealthy, degraded].map(|all| all.iter().map(written).collect())
    }

    /// Writes down which endpoints are healthy, as one text: thousands of them take some bytes each.
    pub(crate) fn write_healthy(&self) -> String {
        marks_text(&self.checker.marks_of_healthy(HEALTHY_MAX))
    }

    /// Goes on with what another process wrote down, which `is_newer` than what this one knows if this one takes back what it gave.
    /// What cannot be read is left out.
    pub(crate) fn adopt<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (listed, healthy): ([&[Value]; 2], &str),
        is_newer: bool,
    ) -> Checked {
        let listed: Vec<_> = listed.into_iter().flatten().filter_map(read).collect();
        if !listed.is_empty() {
            let degraded = listed.iter().filter(|one| one.reason.is_none()).count();
            let unhealthy = listed.len() - degraded;
            tracing::info!(unhealthy, degraded, "endpoints stay as they are after the handover");
        }
        // A list that is full does not say of the others that they are healthy.
        let is_newer = is_newer && listed.len() < REMEMBERED_MAX;
        self.checker.adopt(snapshot, (&listed, &marks(healthy)), is_newer, now())
    }

    fn log(&mut self, checked: &Checked) {
        checked.events.iter().for_each(|event| self.pace.log(|| log(event)));
        checked.warmed.iter().for_each(|warmed| self.pace_of_warming.log(|| log_warmed(warmed)));
    }
}

/// What checks say of an endpoint, as the admin interface shows it.
pub(crate) fn word_json(word: &HealthWord) -> Value {
    let lasted = u64::try_from(now().saturating_sub(word.since).as_nanos());
    let since = clock::wall_ns().saturating_sub(lasted.unwrap_or(u64::MAX));
    json!({ "state": word.word, "since": clock::rfc3339(since), "reason": word.reason })
}

fn written(one: &RememberedCheck) -> Value {
    json!({
        "endpoint": address_text(&one.endpoint),
        "check": format!("{:016x}", one.fingerprint),
        "reason": one.reason,
        "lasted_ms": u64::try_from(one.lasted.as_millis()).unwrap_or(u64::MAX),
    })
}

fn read(one: &Value) -> Option<RememberedCheck> {
    Some(RememberedCheck {
        endpoint: one["endpoint"].as_str()?.parse().ok()?,
        fingerprint: u64::from_str_radix(one["check"].as_str()?, 16).ok()?,
        reason: one["reason"].as_str().map(Into::into),
        lasted: Duration::from_millis(one["lasted_ms"].as_u64()?),
    })
}

fn marks_text(marks: &[u32]) -> String {
    let mut text = String::with_capacity(marks.len() * MARK_DIGITS);
    for mark in marks {
        // A string takes whatever comes.
        let _ = write!(text, "{mark:08x}");
    }
    text
}

/// Those that can be read.
fn marks(text: &str) -> Vec<u32> {
    let (all, _) = text.as_bytes().as_chunks::<MARK_DIGITS>();
    let read = all.iter().take(HEALTHY_MAX).filter_map(|digits| {
        let digits = str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok()
    });
    read.collect()
}

fn log_warmed(warmed: &Warmed) {
    let Warmed { cluster, endpoints, passed, unchecked, after, .. } = warmed;
    let cluster = &**cluster;
    match unchecked {
        0 => tracing::info!(
            cluster,
            endpoints,
            passed,
            ?after,
            "cluster serves: each of its endpoints has been checked"
        ),
        _ => tracing::warn!(
            cluster,
            endpoints,
            passed,
            unchecked,
            ?after,
            "cluster serves before each of its endpoints has been checked: initial_check_timeout is over, or the process drains"
        ),
    }
}

fn log(event: &CheckEvent) {
    let (cluster, endpoint) = (&*event.cluster, address_text(&event.endpoint));
    let after = event.after;
    match &event.change {
        HealthChange::Unhealthy(unfit) => tracing::warn!(
            cluster,
            endpoint,
            reason = &*unfit.reason,
            failures = unfit.failures,
            "endpoint unhealthy: its checks fail, and it gets no requests"
        ),
        HealthChange::Degraded => tracing::warn!(
            cluster,
            endpoint,
            ?after,
            "endpoint degraded: it says so by x-envoy-degraded, and gets only requests that healthy ones are too few for"
        ),
        HealthChange::Healthy => tracing::info!(
            cluster,
            endpoint,
            ?after,
            "endpoint healthy: its checks pass, and it gets requests again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written_and_others_are_left_out() {
        for all in [&[][..], &[0], &[1, 0xdead_beef, u32::MAX]] {
            let text = marks_text(all);
            assert_eq!((marks(&text), text.len()), (all.to_vec(), all.len() * MARK_DIGITS));
        }
        for (text, read) in [
            ("0000000", &[][..]),
            ("000000070000", &[7]),
            ("not-hex!00000007", &[7]),
            // Eight bytes are no eight characters.
            ("\u{e9}\u{e9}\u{e9}0\u{e9}00000000", &[]),
        ] {
            assert_eq!(marks(text), read, "{text}");
        }
    }

    #[test]
    fn the_marks_of_many_endpoints_are_bounded() {
        let text = "00000001".repeat(HEALTHY_MAX + 1);
        assert_eq!(marks(&text).len(), HEALTHY_MAX);
    }
}
