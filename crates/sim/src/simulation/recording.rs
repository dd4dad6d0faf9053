//! What is written down of a run: events by the counters that move, and the access log.

use std::fmt::Write as _;

use telemetry::ProcessFacts;

use super::Simulation;

impl Simulation {
    /// Writes down what the workers count, as it happens, from now on.
    pub fn record_events(&mut self) {
        self.events = Some(String::new());
        self.record(None);
        self.events = Some(String::new());
    }

    /// The recorded lines: one for each counter that moved in a turn.
    #[must_use]
    pub fn events(&self) -> &str {
        self.events.as_deref().unwrap_or_default()
    }

    /// The lines of the access log, in the order of the workers' events.
    #[must_use]
    pub fn log_text(&self) -> &[u8] {
        &self.log_text
    }

    /// Writes down which counters moved. Counts of turns and of buffers are left out: they follow
    /// from how the work was done, not from what happened.
    pub(super) fn record(&mut self, worker: Option<usize>) {
        let mut stats = String::new();
        self.counted().readings().write_stats(&ProcessFacts::default(), "_total", &mut stats);
        // Finer times would change with every look at the clock.
        let tenths = self.now().as_nanos() / 100_000_000;
        for line in stats.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            let kept = self.counters.insert(name.to_owned(), value).unwrap_or(0);
            let is_work = ["strait_worker_", "strait_buffer", "process_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if value > kept
                && !is_work
                && let (Some(events), Some(worker)) = (&mut self.events, worker)
            {
                let (seconds, tenths) = (tenths / 10, tenths % 10);
                let added = value - kept;
                let _ = writeln!(events, "{seconds}.{tenths} worker {worker}: {name} +{added}");
            }
        }
    }

    pub(super) fn read_log(&mut self) {
        let now = self.now().as_nanos();
        self.log.poll(now, &mut self.log_text, usize::MAX);
    }
}
