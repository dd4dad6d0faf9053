//! Warnings that requests fail, at a bounded rate.
//!
//! A worker hands one record of each kind of failure on in [`REPORT_INTERVAL`], with how many there were
//! since the last; so a flood of failures fills no queue. What is left behind a burst follows within ten seconds. Control adds them up and warns of each kind once in
//! [`WARNING_INTERVAL`]. A kind is a cluster, or without one a listener, and a cause.

use std::collections::BTreeMap;
use std::fmt;

use crate::access_log::{Line, push_escaped};
use crate::cause::Cause;
use crate::events::{ExchangeFinished, LabelId};

/// Between two records of one kind of failure from one worker, ns.
const REPORT_INTERVAL: u64 = 1_000_000_000;

/// Between two warnings of one kind of failure, ns.
const WARNING_INTERVAL: u64 = 60_000_000_000;

/// Kinds of failures that a worker tells apart at a time. One more takes the place of the kind that was
/// reported longest ago.
const WORKER_KINDS_MAX: usize = 64;

/// Kinds of failures that control tells apart at a time.
const KINDS_MAX: usize = 256;

/// What a worker knows of failures that control is yet to hear of.
#[derive(Debug)]
pub(crate) struct FailureCounts {
    kinds: Vec<Count>,
}

#[derive(Debug)]
struct Count {
    of: (Option<LabelId>, LabelId, Cause),
    /// Since the last report.
    failed: u32,
    /// Wall-clock time, ns.
    reported_at: u64,
}

impl Default for FailureCounts {
    fn default() -> Self {
        Self { kinds: Vec::with_capacity(WORKER_KINDS_MAX) }
    }
}

impl FailureCounts {
    /// Counts a failure of a cluster, if it has one, and a listener. Gives how many to report, if it is time:
    /// 0 otherwise. `at` is wall-clock time, ns; a clock that was set back is no reason to wait.
    pub(crate) fn note(
        &mut self,
        cluster: Option<LabelId>,
        listener: LabelId,
        cause: Cause,
        at: u64,
    ) -> u32 {
        let of = (cluster, listener, cause);
        let place = match self.kinds.iter().position(|kind| kind.of == of) {
            Some(place) => place,
            None => self.place_for(Count { of, failed: 0, reported_at: 0 }),
        };
        let Some(kind) = self.kinds.get_mut(place) else { return 0 };
        kind.failed = kind.failed.saturating_add(1);
        if at.abs_diff(kind.reported_at) < REPORT_INTERVAL {
            return 0;
        }
        kind.reported_at = at;
        std::mem::take(&mut kind.failed)
    }

    /// What has failed since the last report of each kind, without words, to be reported now.
    pub(crate) fn take_rest(&mut self) -> impl Iterator<Item = ExchangeFinished<'static>> {
        self.kinds.iter_mut().filter(|kind| kind.failed > 0).map(|kind| {
            let (cluster, listener, cause) = kind.of;
            let failures = std::mem::take(&mut kind.failed);
            let cause = Some(cause);
            ExchangeFinished { cluster, listener, cause, failures, ..ExchangeFinished::EMPTY }
        })
    }

    fn place_for(&mut self, kind: Count) -> usize {
        if self.kinds.len() < WORKER_KINDS_MAX {
            self.kinds.push(kind);
            return self.kinds.len() - 1;
        }
        let oldest = self.kinds.iter().enumerate().min_by_key(|(_, kind)| kind.reported_at);
        let place = oldest.map_or(0, |(place, _)| place);
        if let Some(former) = self.kinds.get_mut(place) {
            *former = kind;
        }
        place
    }
}

/// A warning: requests fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureWarning {
    /// What they were for: the name of a cluster or, of requests without one, of a listener.
    pub of: FailureOf,
    /// Why they failed: a word of the causes.
    pub cause: &'static str,
    /// How many since the last warning of these.
    pub failed: u64,
    /// What is known of the last one's cause, escaped.
    pub detail: String,
    /// The endpoint of the last one, escaped; empty if it had none.
    pub endpoint: String,
}

/// What requests that fail were for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureOf {
    /// The cluster of this name.
    Cluster(Box<str>),
    /// The listener of this name.
    Listener(Box<str>),
}

impl fmt::Display for FailureOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) => write!(f, "cluster {name}"),
            Self::Listener(name) => write!(f, "listener {name}"),
        }
    }
}

/// Failures of all workers, until they are warned of.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    kinds: BTreeMap<(FailureOf, Cause), Failed>,
}

#[derive(Debug, Default)]
struct Failed {
    failed: u64,
    detail: Vec<u8>,
    endpoint: Vec<u8>,
    warned_at: Option<u64>,
}

impl Failures {
    /// Notes failures of which `line` is the last.
    pub(crate) fn note(&mut self, line: &Line<'_>) {
        let Some(cause) = line.event.cause else { return };
        let of = match line.cluster {
            "" => FailureOf::Listener(line.listener.into()),
            name => FailureOf::Cluster(name.into()),
        };
        let key = (of, cause);
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&key) {
            return;
        }
        let kind = self.kinds.entry(key).or_default();
        kind.failed += u64::from(line.event.failures);
        // The rest of a burst has no words.
        if !line.event.endpoint.is_empty() || !line.event.cause_detail.is_empty() {
            kind.detail = line.event.cause_detail.to_vec();
            kind.endpoint = line.event.endpoint.to_vec();
        }
    }

    /// The warnings that are due. `now` is ns of a clock that does not step.
    pub(crate) fn take_due(&mut self, now: u64) -> Vec<FailureWarning> {
        if self.kinds.is_empty() {
            return Vec::new();
        }
        let is_due = |kind: &Failed| {
            kind.warned_at.is_none_or(|at| now.saturating_sub(at) >= WARNING_INTERVAL)
        };
        // What did not fail for so long is forgotten.
        self.kinds.retain(|_, kind| kind.failed > 0 || !is_due(kind));
        let due = self.kinds.iter_mut().filter(|(_, kind)| kind.failed > 0 && is_due(kind));
        due.map(|((of, cause), kind)| {
            kind.warned_at = Some(now);
            FailureWarning {
                of: of.clone(),
                cause: cause.as_str(),
                failed: std::mem::take(&mut kind.failed),
                detail: escaped(&kind.detail),
                endpoint: escaped(&kind.endpoint),
            }
        })
        .collect()
    }
}

/// A peer's octets, for a terminal.
fn escaped(octets: &[u8]) -> String {
    let mut text = Vec::new();
    push_escaped(&mut text, octets);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{NameHistory, Names};
    use crate::sample::exchange;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_worker_reports_each_kind_once_a_second_with_all_of_them() {
        let label = |slot| LabelId { slot, generation: 0 };
        let mut counts = FailureCounts::default();
        for (cluster, cause, at, expected) in [
            (0, Cause::ConnectFailed, 10 * SECOND, 1),
            (0, Cause::ConnectFailed, 10 * SECOND + 1, 0),
            (0, Cause::ConnectTimeout, 10 * SECOND + 1, 1),
            (1, Cause::ConnectFailed, 10 * SECOND + 1, 1),
            (0, Cause::ConnectFailed, 11 * SECOND - 1, 0),
            (0, Cause::ConnectFailed, 11 * SECOND, 3),
            // The clock was set back.
            (0, Cause::ConnectFailed, 5 * SECOND, 1),
        ] {
            let reported = counts.note(Some(label(cluster)), label(0), cause, at);
            assert_eq!(reported, expected, "{cluster} {cause:?} {at}");
        }
        for slot in 0..1_000 {
            counts.note(Some(label(slot)), label(0), Cause::NoEndpoint, 20 * SECOND);
        }
        assert_eq!(counts.kinds.len(), WORKER_KINDS_MAX);
    }

    #[test]
    fn what_is_left_of_a_burst_is_reported_without_another_failure() {
        let label = LabelId { slot: 7, generation: 0 };
        let mut counts = FailureCounts::default();
        let noted =
            (0..150).map(|n| counts.note(Some(label), label, Cause::ConnectFailed, SECOND + n));
        assert_eq!(noted.sum::<u32>(), 1);
        let rest: Vec<_> = counts.take_rest().collect();
        let [event] = &rest[..] else { panic!("{rest:?}") };
        assert_eq!(
            (event.cluster, event.cause, event.failures),
            (Some(label), Some(Cause::ConnectFailed), 149)
        );
        assert_eq!(counts.take_rest().count(), 0);
    }

    #[test]
    fn each_kind_is_warned_of_once_a_minute_with_all_of_them() {
        let mut names = Names::default();
        names.insert_cluster(exchange().cluster.unwrap(), "api".into());
        names.insert_listener(exchange().listener, "edge".into());
        let mut history = NameHistory::default();
        history.set(names.into());
        let mut failures = Failures::default();
        let fail = |failures: &mut Failures, cause, count| {
            let event = ExchangeFinished {
                cause: Some(cause),
                cause_detail: b"\x1b[2J",
                failures: count,
                ..exchange()
            };
            failures.note(&Line::new(event, &history));
        };
        fail(&mut failures, Cause::ConnectFailed, 1);
        // The rest of a burst, which says nothing else.
        let rest = ExchangeFinished {
            listener: exchange().listener,
            cluster: exchange().cluster,
            cause: Some(Cause::ConnectFailed),
            failures: 2,
            ..ExchangeFinished::EMPTY
        };
        failures.note(&Line::new(rest, &history));
        let first = failures.take_due(0);
        let expected = FailureWarning {
            of: FailureOf::Cluster("api".into()),
            cause: "connect_failed",
            failed: 3,
            detail: r"\x1b[2J".to_owned(),
            endpoint: "127.0.0.1:9000".to_owned(),
        };
        assert_eq!(first, [expected]);
        fail(&mut failures, Cause::ConnectFailed, 500);
        fail(&mut failures, Cause::ConnectFailed, 7);
        assert_eq!(failures.take_due(59 * SECOND), []);
        fail(&mut failures, Cause::UpstreamClosed, 2);
        let other = failures.take_due(59 * SECOND);
        assert_eq!(
            other.iter().map(|it| (it.cause, it.failed)).collect::<Vec<_>>(),
            [("upstream_closed", 2)]
        );
        let again = failures.take_due(60 * SECOND);
        assert_eq!(
            again.iter().map(|it| (it.cause, it.failed)).collect::<Vec<_>>(),
            [("connect_failed", 507)]
        );
        assert_eq!(failures.take_due(300 * SECOND), []);
        assert!(failures.kinds.is_empty(), "forgotten");
        let of_listener = ExchangeFinished {
            cluster: None,
            cause: Some(Cause::OutOfDescriptors),
            failures: 1,
            ..exchange()
        };
        failures.note(&Line::new(of_listener, &history));
        assert_eq!(failures.take_due(400 * SECOND)[0].of.to_string(), "listener edge");
    }
}
