//! What workers report, and what control makes of it.

use std::time::Duration;

use worker::{Report, ReportBody};

use super::Simulation;
use super::errands::Errand;

impl Simulation {
    pub(super) fn read_reports(&mut self) {
        while let Some((worker, body)) = self.next_report() {
            match body {
                ReportBody::Question { exchange, question } if question.is_for_cluster() => {
                    self.on_demand(worker, exchange);
                }
                ReportBody::Question { exchange, question } => {
                    let at = self.now() + self.random.span(Duration::from_millis(50));
                    let payload = question.payload;
                    self.errand(at, Errand::Answer { worker, exchange, payload });
                }
                ReportBody::Retired(snapshot) => {
                    self.snapshots_retired += 1;
                    drop(snapshot);
                }
                ReportBody::ListenerBroken { listener, errno } => {
                    self.ledger.violate(format!("listener {listener:?} broke: {errno}"));
                }
                // Control of the other process does what follows there.
                ReportBody::OutlierFound { .. }
                | ReportBody::Checked { .. }
                | ReportBody::FailedItself { .. }
                    if !self.process.contains(&worker) => {}
                ReportBody::OutlierFound { cluster, endpoint, kind } => {
                    self.on_outlier(cluster, endpoint, kind);
                }
                ReportBody::Checked { number, result } => self.on_check_reported(number, result),
                ReportBody::FailedItself { cluster, endpoint } => {
                    self.on_failed_itself(cluster, endpoint);
                }
                ReportBody::GroupLost { connections, reason } => {
                    self.ledger.violate(format!("{connections} connections are lost: {reason}"));
                }
                ReportBody::Started
                | ReportBody::TakenUp(_)
                | ReportBody::Stopped
                | ReportBody::Failed(_)
                | ReportBody::Described { .. }
                | ReportBody::OutOfDescriptors(_)
                | ReportBody::BufferedOverflow { .. }
                | ReportBody::Drained { .. } => {}
            }
        }
    }

    fn next_report(&self) -> Option<(usize, ReportBody)> {
        self.reports.iter().find_map(|(first, reports)| {
            let Report { worker, body } = reports.try_recv().ok()?;
            Some((first + usize::try_from(worker).expect("few workers"), body))
        })
    }
}
