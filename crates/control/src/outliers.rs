//! Endpoints that are ejected: reports of workers and times that are over go to the [`Detector`], whose events are logged and
//! counted.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use config::checks::Checked;
use config::outlier::{Detector, Ejected, Event, Happened, OutlierKind, Remembered};
use config::snapshot::{ClusterId, EndpointId, Snapshot};
use serde_json::{Value, json};
use telemetry::Collector;
use telemetry::events::{EjectionCounted, HealthOfCluster};

use crate::clock;
use crate::names::address_text;
use crate::pace::Pace;

/// The ejections of this process.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    detector: Detector,
    pace: Pace,
}

impl Outliers {
    /// A configuration is in effect.
    pub(crate) fn on_snapshot<F>(&mut self, snapshot: &Snapshot<F>) {
        let events = self.detector.on_snapshot(snapshot, now());
        events.iter().for_each(|event| self.pace.log(|| log(event)));
    }

    /// A worker saw an endpoint reach a bound.
    pub(crate) fn on_reached<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (cluster, endpoint, kind): (ClusterId, EndpointId, OutlierKind),
        collector: &mut Collector,
    ) {
        if let Some(cluster) = snapshot.cluster(cluster) {
            let events = self.detector.on_reached(cluster, endpoint, kind, (now(), random()));
            self.count(&events, collector);
        }
    }

    /// Other endpoints of these clusters pass their checks than before, and these have passed one.
    pub(crate) fn on_checked<F>(&mut self, snapshot: &Snapshot<F>, checked: &Checked) {
        let passed = checked.passed.iter();
        let passed = passed.filter_map(|(id, endpoint)| Some((snapshot.cluster(*id)?, *endpoint)));
        let taken_back: Vec<Event> = passed
            .flat_map(|(cluster, endpoint)| self.detector.on_check_passed(cluster, endpoint, now()))
            .collect();
        let changed = checked.changed.iter().filter_map(|id| snapshot.cluster(*id));
        let panics: Vec<Event> = changed.flat_map(|it| self.detector.recount(it)).collect();
        taken_back.iter().chain(&panics).for_each(|event| self.pace.log(|| log(event)));
    }

    /// Writes down which endpoints are ejected, for the process that takes this one's place.
    pub(crate) fn write<F>(&self, snapshot: &Snapshot<F>) -> Value {
        let all = self.detector.remembered(snapshot, now()).into_iter().map(|one| {
            let ejection = one.ejection.map(|(kind, left)| {
                let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                json!({ "reason": kind.as_str(), "left_ms": left_ms })
            });
            json!({
                "cluster": &*one.cluster,
                "endpoint": address_text(&one.endpoint),
                "times": one.times,
                "ejection": ejection,
            })
        });
        all.collect()
    }

    /// Goes on with what the process before this one wrote down; what cannot be read is left out. None of it is counted again.
    pub(crate) fn adopt<F>(&mut self, snapshot: &Snapshot<F>, written: &[Value]) {
        let remembered: Vec<_> = written.iter().filter_map(read).collect();
        let events = self.detector.adopt(snapshot, &remembered, now());
        events.iter().for_each(|event| self.pace.log(|| log(event)));
        let ejected = self.detector.all_ejections().count();
        if ejected > 0 {
            tracing::info!(ejected, "endpoints stay ejected after the handover");
        }
    }

    /// When [`Outliers::on_deadlines`] has something to do, as time from now.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.detector.next_deadline().map(|deadline| deadline.saturating_sub(now()))
    }

    /// A time of ejection or an interval is over.
    pub(crate) fn on_deadlines<F>(&mut self, snapshot: &Snapshot<F>, collector: &mut Collector) {
        let events = self.detector.on_deadlines(snapshot, now(), random);
        self.count(&events, collector);
    }

    fn count(&mut self, events: &[Event], collector: &mut Collector) {
        for event in events {
            self.pace.log(|| log(event));
            let (kind, is_denied) = match &event.happened {
                Happened::Ejected { kind, .. } => (kind, false),
                Happened::Kept { kind, .. } => (kind, true),
                Happened::Returned { .. } | Happened::PanicBegan | Happened::PanicEnded => continue,
            };
            let cluster = Arc::clone(&event.cluster);
            collector.ejection_counted(EjectionCounted { cluster, kind: kind.as_str(), is_denied });
        }
    }

    /// Some time has passed: says how much was not logged of a second that is over.
    pub(crate) fn end_second(&mut self) {
        self.pace.end_second();
    }

    /// Brings the gauges up to date.
    pub(crate) fn describe<F>(
        &self,
        snapshot: &Snapshot<F>,
        unhealthy: impl Fn(ClusterId) -> usize,
        collector: &mut Collector,
    ) {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let clusters = snapshot.clusters.iter().filter(|(_, cluster)| cluster.has_health());
        let described = clusters.map(|(_, cluster)| HealthOfCluster {
            cluster: Arc::clone(&cluster.name),
            ejected: count(self.detector.ejections(cluster.id).count()),
            unhealthy: count(unhealthy(cluster.id)),
            degraded: u64::from(cluster.view.degraded()),
            is_panicking: cluster.is_panicking(),
            is_warming: cluster.warming.waits(),
        });
        collector.health_of_clusters(described.collect());
    }

    /// The ejection of an endpoint, while it is ejected.
    pub(crate) fn ejection(&self, cluster: ClusterId, endpoint: EndpointId) -> Option<Ejected> {
        self.detector.ejection(cluster, endpoint)
    }
}

/// Until when an endpoint is ejected, in wall-clock time as RFC 3339 writes it.
pub(crate) fn ejected_until(ejected: &Ejected) -> String {
    let left = u64::try_from(ejected.until.saturating_sub(now()).as_nanos()).unwrap_or(u64::MAX);
    clock::rfc3339(clock::wall_ns().saturating_add(left))
}

/// An ejection as the admin interface shows it.
pub(crate) fn ejected_json(ejected: &Ejected) -> Value {
    json!({
        "reason": ejected.kind.as_str(),
        "until": ejected_until(ejected),
        "times": ejected.times,
    })
}

fn read(one: &Value) -> Option<Remembered> {
    let ejection = match &one["ejection"] {
        Value::Null => None,
        ejection => {
            let reason = ejection["reason"].as_str()?;
            let kind = OutlierKind::ALL.into_iter().find(|kind| kind.as_str() == reason)?;
            Some((kind, Duration::from_millis(ejection["left_ms"].as_u64()?)))
        }
    };
    Some(Remembered {
        cluster: one["cluster"].as_str()?.into(),
        endpoint: one["endpoint"].as_str()?.parse().ok()?,
        times: u32::try_from(one["times"].as_u64()?).ok()?,
        ejection,
    })
}

/// The time since the machine booted: what another process has handed over began before this one did.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(clock::boot_ns())
}

pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn log(event: &Event) {
    let cluster = &*event.cluster;
    match &event.happened {
        Happened::Ejected { endpoint, kind, length, times } => tracing::warn!(
            cluster,
            endpoint = address_text(endpoint),
            reason = kind.as_str(),
            ?length,
            times,
            "endpoint ejected: its attempts fail, and it gets no requests for a while"
        ),
        Happened::Kept { endpoint, kind } => tracing::warn!(
            cluster,
            endpoint = address_text(endpoint),
            reason = kind.as_str(),
            "endpoint not ejected although its attempts fail: ejection.share_max of the cluster is reached"
        ),
        Happened::Returned { endpoint } => tracing::info!(
            cluster,
            endpoint = address_text(endpoint),
            "endpoint is used again: its ejection is over, or it has passed a health check"
        ),
        Happened::PanicBegan => tracing::warn!(
            cluster,
            "panic: too few endpoints are available, so all get requests, including ejected and unhealthy ones"
        ),
        Happened::PanicEnded => {
            tracing::info!(cluster, "panic ended: enough endpoints are available");
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::events::EJECTION_REASONS;

    use super::*;

    #[test]
    fn health_may_have_lasted_for_longer_than_the_process() {
        assert!(now() > Duration::from_nanos(clock::monotonic_ns()), "it does not begin with it");
    }

    #[test]
    fn metrics_have_a_word_for_each_reason() {
        assert_eq!(OutlierKind::ALL.map(OutlierKind::as_str), EJECTION_REASONS);
    }
}
