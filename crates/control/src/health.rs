//! What is known of the health of endpoints: by their checks, and by how attempts end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::checks::{CheckResult, CheckTask, Checked, HealthWord};
use config::outlier::{Ejected, OutlierKind};
use config::snapshot::{ClusterId, EndpointId, Snapshot};
use serde_json::{Map, Value, json};
use telemetry::Collector;

use crate::checks::Checks;
use crate::outliers::Outliers;

/// The health of all endpoints.
#[derive(Debug, Default)]
pub(crate) struct Health {
    checks: Checks,
    outliers: Outliers,
    /// Large clusters whose endpoints are to be counted again.
    recounts: BTreeSet<ClusterId>,
    /// Clusters that waited for the first checks of their endpoints, and whose requests workers do not serve yet.
    warmed: Vec<ClusterId>,
    /// Whether none of the clusters that the process began with waits any more.
    has_started: bool,
    /// Why what another process wrote down could not be read last, which is in the log.
    unread: Option<String>,
}

/// Endpoints of a cluster that are counted again at each change; those of larger ones are at each upkeep.
const RECOUNTED_MAX: usize = 200;

/// What is known of the health of one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownHealth {
    /// What its checks say; none without checks.
    pub(crate) checked: Option<HealthWord>,
    /// Its ejection, while it is ejected.
    pub(crate) ejected: Option<Ejected>,
}

impl Health {
    /// With the first configuration of the process. Where that takes another's place, no cluster is new.
    pub(crate) fn start<F>(snapshot: &Snapshot<F>, is_taking_over: bool) -> Self {
        let mut health = Self::default();
        health.take_up(snapshot, is_taking_over);
        health
    }

    /// A configuration is about to be in effect.
    pub(crate) fn on_snapshot<F>(&mut self, snapshot: &Snapshot<F>) {
        self.take_up(snapshot, false);
    }

    fn take_up<F>(&mut self, snapshot: &Snapshot<F>, is_adopted: bool) {
        let checked = self.checks.on_snapshot(snapshot, is_adopted);
        self.outliers.on_snapshot(snapshot);
        self.outliers.on_checked(snapshot, &checked);
        self.note_warmed(&checked);
        self.has_started |= self.checks.warming().len() == 0;
    }

    fn note_warmed(&mut self, checked: &Checked) {
        self.warmed.extend(checked.warmed.iter().map(|warmed| warmed.id));
    }

    /// Takes the clusters that have warmed, for the workers.
    pub(crate) fn take_warmed(&mut self) -> Vec<ClusterId> {
        self.has_started |= self.checks.warming().len() == 0;
        std::mem::take(&mut self.warmed)
    }

    /// Whether none of the clusters that the process began with waits for the first checks of its endpoints.
    pub(crate) const fn has_started(&self) -> bool {
        self.has_started
    }

    /// Clusters that wait for the first checks of their endpoints.
    pub(crate) fn warming(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.checks.warming()
    }

    /// A worker saw an endpoint reach a bound.
    pub(crate) fn on_reached<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        found: (ClusterId, EndpointId, OutlierKind),
        collector: &mut Collector,
    ) {
        self.outliers.on_reached(snapshot, found, collector);
    }

    /// A check ended.
    pub(crate) fn on_checked<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        (number, result): (u64, CheckResult),
        collector: &mut Collector,
    ) {
        let checked = self.checks.on_checked(snapshot, number, result, collector);
        self.after(snapshot, checked);
    }

    /// An endpoint said that it is not healthy.
    pub(crate) fn on_failed_itself<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        endpoint: (ClusterId, EndpointId),
    ) {
        let checked = self.checks.on_failed_itself(snapshot, endpoint);
        self.after(snapshot, checked);
    }

    fn after<F>(&mut self, snapshot: &Snapshot<F>, mut checked: Checked) {
        self.note_warmed(&checked);
        // Where thousands of endpoints fail together, one count of them is for all.
        let is_large = |id: &ClusterId| {
            snapshot.cluster(*id).is_some_and(|it| it.endpoints.len() > RECOUNTED_MAX)
        };
        self.recounts.extend(checked.changed.iter().copied().filter(&is_large));
        checked.changed.retain(|id| !is_large(id));
        if !checked.changed.is_empty() || !checked.passed.is_empty() {
            self.outliers.on_checked(snapshot, &checked);
        }
    }

    /// When [`Health::on_due`] has something to do, as time from now; with checks or without.
    pub(crate) fn next_in(&self, checks: bool) -> Option<Duration> {
        let checks = self.checks.next_in().filter(|_| checks);
        let late_warming = self.checks.next_late_warming_in();
        self.outliers.next_in().into_iter().chain(checks).chain(late_warming).min()
    }

    /// A time of ejection or an interval is over, or checks are due. Returns these, by worker, if there are to be any.
    pub(crate) fn on_due<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        workers: Option<u32>,
        collector: &mut Collector,
    ) -> BTreeMap<u32, Vec<CheckTask>> {
        self.outliers.on_deadlines(snapshot, collector);
        let late = self.checks.end_warming(false);
        self.after(snapshot, late);
        workers.map(|workers| self.checks.poll(workers)).unwrap_or_default()
    }

    /// No checks are made any more: no cluster waits for them.
    pub(crate) fn on_drain<F>(&mut self, snapshot: &Snapshot<F>) {
        let ended = self.checks.end_warming(true);
        self.after(snapshot, ended);
    }

    /// Some time has passed.
    pub(crate) fn on_upkeep<F>(&mut self, snapshot: &Snapshot<F>) {
        self.outliers.end_second();
        self.checks.on_upkeep(snapshot);
        if !self.recounts.is_empty() {
            let changed = std::mem::take(&mut self.recounts);
            self.outliers.on_checked(snapshot, &Checked { changed, ..Checked::default() });
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn gauge<F>(&self, snapshot: &Snapshot<F>, collector: &mut Collector) {
        self.outliers.describe(snapshot, |cluster| self.checks.unhealthy(cluster), collector);
    }

    /// What is known of an endpoint. Who shows it puts it in words, on another thread.
    pub(crate) fn of_endpoint(&self, cluster: ClusterId, endpoint: EndpointId) -> KnownHealth {
        KnownHealth {
            checked: self.checks.word(cluster, endpoint),
            ejected: self.outliers.ejection(cluster, endpoint),
        }
    }

    /// Writes it down for the process that takes this one's place.
    pub(crate) fn write<F>(&self, snapshot: &Snapshot<F>) -> Map<String, Value> {
        let (ejections, [unhealthy, degraded]) =
            (self.outliers.write(snapshot), self.checks.write());
        let lists = [
            ("ejections", json!(ejections)),
            ("unhealthy", json!(unhealthy)),
            ("degraded", json!(degraded)),
            // A version that does not know it begins with healthy ones anew.
            ("healthy", json!(self.checks.write_healthy())),
        ];
        lists.into_iter().map(|(key, list)| (key.to_owned(), list)).collect()
    }

    /// Reads what another process wrote down, if it is there. Logs once why that is of no use.
    pub(crate) fn read(&mut self, written: &[u8]) -> Option<Value> {
        if written.is_empty() {
            return None;
        }
        let read = serde_json::from_slice::<Value>(written).map_err(|error| error.to_string());
        let read = read
            .and_then(|it| if it.is_object() { Ok(it) } else { Err("it is no object".to_owned()) });
        let error = match read {
            Ok(written) => return Some(written),
            Err(error) => error,
        };
        if self.unread.as_ref() != Some(&error) {
            tracing::warn!(
                "what another process knew of endpoints (health, drained ones, overrides of `runtime`) cannot be read, and is ignored: \
                 {error}"
            );
            self.unread = Some(error);
        }
        None
    }

    /// Goes on with what another process wrote down, which `is_newer` if this one takes back what it gave; what cannot be read is left
    /// out. None of it is counted again.
    pub(crate) fn adopt<F>(&mut self, snapshot: &Snapshot<F>, written: &Value, is_newer: bool) {
        let list = |key| written.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        self.outliers.adopt(snapshot, list("ejections"));
        let unwell = [list("unhealthy"), list("degraded")];
        let healthy = written.get("healthy").and_then(Value::as_str).unwrap_or_default();
        let checked = self.checks.adopt(snapshot, (unwell, healthy), is_newer);
        self.after(snapshot, checked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_wrote_down_is_read_or_it_is_said_why_not() {
        let mut health = Health::default();
        // An earlier version says nothing.
        assert_eq!((health.read(b""), health.unread.take()), (None, None));
        assert_eq!(health.read(b"{}"), Some(json!({})));
        assert_eq!(health.unread, None);
        for (written, why) in [
            (&b"{\"ejections\":[}"[..], "expected value at line 1 column 15"),
            (b"[]", "it is no object"),
            (b"\xff", "expected value at line 1 column 1"),
        ] {
            assert_eq!(health.read(written), None);
            assert_eq!(health.unread.as_deref(), Some(why));
        }
    }
}
