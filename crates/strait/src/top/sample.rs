//! What the admin interface said, as rows of figures, and the rates between two of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// An answer as it came.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// What `/ready?verbose` says.
    pub(super) state: String,
    /// What `/stats` says of its memory.
    pub(super) memory: String,
    /// The page that was asked for.
    pub(super) body: Vec<u8>,
}

/// Resident memory of a process, bytes; 0 where it says nothing of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) resident: u64,
    /// How much it may have; 0 for any.
    pub(super) max: u64,
}

impl Memory {
    /// Reads it from lines of metrics.
    pub(super) fn of(text: &str) -> Self {
        let find = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(known, _)| *known == name);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
        };
        Self {
            resident: find("process_resident_memory_bytes"),
            max: find("strait_memory_max_bytes"),
        }
    }
}

/// The figures of an entry that only grow, unless the process is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) exchanges: u64,
    pub(super) failed: u64,
    pub(super) connections: u64,
    pub(super) connect_failures: u64,
    pub(super) timed: u64,
    pub(super) seconds: f64,
}

/// What happened between two looks, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) exchanges: f64,
    pub(super) failed: f64,
    pub(super) connections: f64,
    /// The mean time of exchanges.
    pub(super) latency: Option<Duration>,
}

/// One look at some entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) at: Duration,
    counts: BTreeMap<String, Counts>,
}

impl Look {
    pub(super) fn new(at: Duration, entries: &[Value]) -> Self {
        let counts = entries.iter().map(|entry| (text(entry, "/name").to_owned(), counts(entry)));
        Self { at, counts: counts.collect() }
    }

    /// What an entry did since the look before; none if that did not see it, or saw another process.
    pub(super) fn rates(&self, before: &Self, name: &str) -> Option<Rates> {
        let (now, then) = (self.counts.get(name)?, before.counts.get(name)?);
        let seconds = self.at.checked_sub(before.at)?.as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let grown = |now: u64, then: u64| now.checked_sub(then).map(float);
        let timed = grown(now.timed, then.timed)?;
        let latency = (timed > 0.0).then(|| (now.seconds - then.seconds).max(0.0) / timed);
        Some(Rates {
            exchanges: grown(now.exchanges, then.exchanges)? / seconds,
            failed: (grown(now.failed, then.failed)?
                + grown(now.connect_failures, then.connect_failures)?)
                / seconds,
            connections: grown(now.connections, then.connections)? / seconds,
            latency: latency.and_then(|it| Duration::try_from_secs_f64(it).ok()),
        })
    }
}

fn counts(entry: &Value) -> Counts {
    Counts {
        exchanges: number(entry, "/exchanges/total"),
        failed: number(entry, "/exchanges/failed_total"),
        connections: number(entry, "/connections/total"),
        connect_failures: number(entry, "/connections/failed_total"),
        timed: number(entry, "/exchanges/timed_total"),
        seconds: entry.pointer("/exchanges/seconds_total").and_then(Value::as_f64).unwrap_or(0.0),
    }
}

/// A number of an entry, 0 if it has none.
pub(super) fn number(entry: &Value, pointer: &str) -> u64 {
    entry.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// A text of an entry, empty if it has none.
pub(super) fn text<'e>(entry: &'e Value, pointer: &str) -> &'e str {
    entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with three digits")]
const fn float(count: u64) -> f64 {
    count as f64
}
