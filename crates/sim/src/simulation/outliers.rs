//! The part of control that ejects endpoints: [`Detector`](config::outlier::Detector), on the time of the simulation.

use std::sync::Arc;
use std::time::Duration;

use config::health::EndpointHealth;
use config::outlier::{Event, Happened, OutlierKind};
use config::snapshot::{ClusterId, EndpointId};
use proxy::Snapshot;
use proxy::time::Time;

use super::Simulation;
use super::errands::Errand;

impl Simulation {
    /// A configuration takes the place of the one before.
    pub(super) fn detect_in(&mut self, snapshot: &Arc<Snapshot>) {
        let now = self.since_start();
        let events = self.detector.on_snapshot(snapshot, now);
        self.snapshot = Some(Arc::clone(snapshot));
        self.check_ejections(&events);
    }

    /// A worker saw an endpoint reach a bound.
    pub(super) fn on_outlier(
        &mut self,
        cluster: ClusterId,
        endpoint: EndpointId,
        kind: OutlierKind,
    ) {
        let at = (self.since_start(), self.random.next());
        let snapshot = self.snapshot.as_ref().expect("there is a configuration from the start");
        if let Some(cluster) = snapshot.cluster(cluster) {
            let events = self.detector.on_reached(cluster, endpoint, kind, at);
            self.check_ejections(&events);
        }
    }

    /// A time of ejection or an interval is over, or was when this was planned.
    pub(super) fn on_outliers_due(&mut self) {
        let now = self.since_start();
        let snapshot = self.snapshot.as_ref().expect("there is a configuration from the start");
        let events = self.detector.on_deadlines(snapshot, now, || self.random.next());
        self.check_ejections(&events);
    }

    /// No more endpoints are ejected than may be.
    fn check_ejections(&mut self, events: &[Event]) {
        let snapshot = self.snapshot.as_ref().expect("there is a configuration from the start");
        for event in events {
            if !matches!(event.happened, Happened::Ejected { .. }) {
                continue;
            }
            self.ejections += 1;
            let mut clusters = snapshot.clusters.iter();
            let Some((_, cluster)) = clusters.find(|(_, it)| it.name == event.cluster) else {
                continue;
            };
            let share = cluster.source.outlier.as_ref().expect("it ejects").ejection.share_max;
            let share: f64 = share.to_string().trim_end_matches('%').parse().expect("a number");
            let count = cluster.endpoints.len();
            let max = (count as f64 * share / 100.0).floor().max(1.0);
            let ejected = cluster
                .endpoints
                .iter()
                .filter(|it| it.health.get().is_some_and(EndpointHealth::is_ejected))
                .count();
            if ejected as f64 > max {
                let words = format!("{ejected} of {count} endpoints are ejected, {max} may be");
                self.ledger.violate(words);
            }
        }
        if let Some(due) = self.detector.next_deadline() {
            self.errand(Time::from_nanos(0) + due, Errand::Outliers);
        }
    }

    pub(super) fn since_start(&self) -> Duration {
        self.now() - Time::from_nanos(0)
    }
}
