//! The control thread's end of the records: access log lines and slow requests.
//!
//! [`LogReader::poll`] is to be called every few milliseconds while records come, also with
//! the access log off, since slow requests come the same way. It appends lines to a buffer, which
//! the caller writes to the output; meanwhile the queues fill, and when they are full workers drop
//! records and count them.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use crate::access_log::style::LogFormat;
use crate::access_log::{Clock, Line, LogStyle, write_combined, write_json, write_text};
use crate::debug_lines::DebugSource;
use crate::emitter::LogRecordSource;
use crate::failures::{FailureWarning, Failures};
use crate::log_record::{self, Audience, LOG_RECORD_BYTES_MAX};
use crate::names::{NameHistory, Names};
use crate::slow::SlowRequests;

/// Bytes taken from a queue at a time before their room is given back to the worker.
const BATCH_BYTES_MAX: usize = 64 * 1024;
const _: () = assert!(BATCH_BYTES_MAX >= LOG_RECORD_BYTES_MAX, "a batch holds a record at least");

/// Turns the workers' records into lines, and keeps the slow ones.
#[derive(Debug, Default)]
pub struct LogReader {
    sources: Vec<LogRecordSource>,
    /// Of the workers that have a debug log, in their order.
    debug: Vec<DebugSource>,
    /// Where the next poll begins, so that no worker's records wait behind another's.
    first: usize,
    /// Holds the record that lies across the end of a queue's memory.
    spliced: Vec<u8>,
    lines: Lines,
    floor: u64,
}

/// The result of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Lines appended.
    pub lines: u64,
    /// Whether the output's bound ended it, so that there is more to be had at once.
    pub has_more: bool,
}

impl LogReader {
    /// A reader without workers and with the access log off.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a worker.
    pub fn add_worker(&mut self, source: LogRecordSource) {
        source.worker.slow_floor.set(self.floor);
        self.sources.push(source);
    }

    /// Adds the debug log of the next worker.
    pub fn add_debug_lines(&mut self, source: DebugSource) {
        self.debug.push(source);
    }

    /// Takes a line of the debug log, with its worker; none if there is none.
    pub fn take_debug_line(&mut self) -> Option<(usize, String)> {
        let lines = self.debug.iter_mut().enumerate();
        lines.filter_map(|(worker, source)| Some((worker, source.take()?))).next()
    }

    /// Takes the names of a new snapshot, before the workers get it. The names before are kept once
    /// more, for exchanges that began under them.
    pub fn set_names(&mut self, names: Arc<Names>) {
        self.lines.names.set(names);
    }

    /// How lines are written from now on, or that they are not.
    pub fn set_style(&mut self, style: Option<LogStyle>) {
        self.lines.style = style;
    }

    /// Takes what the workers handed on and appends its lines to `out`, until all that was there is
    /// taken or `out` holds `out_bytes_max` (the line that passes the bound is whole). `now` is ns
    /// of a clock that does not step, any one.
    pub fn poll(&mut self, now: u64, out: &mut Vec<u8>, out_bytes_max: usize) -> Polled {
        self.lines.slow.advance(now);
        let mut polled = Polled::default();
        let count = self.sources.len();
        for turn in 0..count {
            let place = (self.first + turn) % count;
            let Some(source) = self.sources.get_mut(place) else { continue };
            let is_empty =
                self.lines.take(source, &mut self.spliced, out, out_bytes_max, &mut polled.lines);
            if !is_empty {
                polled.has_more = true;
                self.first = place;
                break;
            }
        }
        if !polled.has_more {
            self.first = if count == 0 { 0 } else { (self.first + 1) % count };
        }
        self.publish_floor();
        polled
    }

    /// How many records were taken so far.
    #[must_use]
    pub const fn records_taken(&self) -> u64 {
        self.lines.records
    }

    /// Whether there is a debug log. Its lines wake nothing.
    #[must_use]
    pub const fn has_debug_lines(&self) -> bool {
        !self.debug.is_empty()
    }

    /// Whether no worker has handed on anything that was not taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.iter().all(|source| source.records.slots() == 0)
    }

    /// Parks this thread until a worker hands a record on, or for so long.
    pub fn park(&self, timeout: Duration) {
        for source in &self.sources {
            source.worker.log_bell.await_ring();
        }
        fence(Ordering::SeqCst);
        if self.is_empty() {
            std::thread::park_timeout(timeout);
        }
        for source in &self.sources {
            source.worker.log_bell.stop_awaiting();
        }
    }

    /// The warnings that are due of requests that fail, of what was polled. `now` is as for
    /// [`LogReader::poll`].
    pub fn take_warnings(&mut self, now: u64) -> Vec<FailureWarning> {
        self.lines.failures.take_due(now)
    }

    /// Appends the slow requests as JSON.
    pub fn write_slow_json(&self, out: &mut Vec<u8>) {
        self.lines.slow.write_json(out);
    }

    /// Appends the slow requests as text for people.
    pub fn write_slow_text(&self, out: &mut Vec<u8>) {
        self.lines.slow.write_text(out);
    }

    /// The slow requests, for the process that takes this one's place.
    #[must_use]
    pub fn save_slow(&self) -> Vec<u8> {
        self.lines.slow.save()
    }

    /// Adds slow requests that another process had [saved](Self::save_slow). What cannot be read is left out.
    pub fn adopt_slow(&mut self, saved: &[u8]) {
        self.lines.slow.adopt(saved);
        self.publish_floor();
    }

    fn publish_floor(&mut self) {
        let floor = self.lines.slow.floor();
        if self.floor != floor {
            self.floor = floor;
            for source in &self.sources {
                source.worker.slow_floor.set(floor);
            }
        }
    }
}

/// Formats records as lines, and keeps the slow requests.
#[derive(Debug, Default)]
struct Lines {
    names: NameHistory,
    style: Option<LogStyle>,
    clock: Clock,
    slow: SlowRequests,
    failures: Failures,
    /// Records taken.
    records: u64,
}

impl Lines {
    /// Takes the records that a worker has handed on by now; false if `out` was full before the
    /// last of them.
    fn take(
        &mut self,
        source: &mut LogRecordSource,
        spliced: &mut Vec<u8>,
        out: &mut Vec<u8>,
        out_bytes_max: usize,
        lines: &mut u64,
    ) -> bool {
        let mut left = source.records.slots();
        while left > 0 {
            let Ok(chunk) = source.records.read_chunk(left.min(BATCH_BYTES_MAX)) else { break };
            let (front, back) = chunk.as_slices();
            let mut taken = 0;
            let mut is_full = false;
            while let Some(record) = record_at(front, back, taken, spliced) {
                is_full = out.len() >= out_bytes_max;
                if is_full {
                    break;
                }
                taken += record.len();
                *lines += u64::from(self.on_record(record, out));
            }
            chunk.commit(taken);
            if is_full {
                return false;
            }
            if taken == 0 {
                break;
            }
            left -= taken;
        }
        true
    }

    /// Turns one record into a line, a slow request, or both; returns whether it was a line.
    fn on_record(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        self.records += 1;
        let Some((Audience { is_log, is_slow, is_failure }, event)) = log_record::decode(record)
        else {
            debug_assert!(false, "a worker wrote a record that cannot be read");
            return false;
        };
        if is_slow {
            let total = event.stages.total;
            self.slow.offer(record, total, &self.names, &mut self.clock);
        }
        let style = self.style.as_mut().filter(|_| is_log);
        if style.is_none() && !is_failure {
            return false;
        }
        let line = Line::new(event, &self.names);
        if is_failure {
            self.failures.note(&line);
        }
        let Some(style) = style else { return false };
        if !style.takes(&line) {
            return false;
        }
        match style.format {
            LogFormat::Json => write_json(&line, style, &mut self.clock, out),
            LogFormat::Text => write_text(&line, style, &mut self.clock, out),
            LogFormat::Combined => write_combined(&line, style, &mut self.clock, out),
        }
        true
    }
}

/// The record that begins `at` bytes into `front` and `back` taken as one, if all of it is there.
/// One that lies across the two is put together in `spliced`.
fn record_at<'r>(
    front: &'r [u8],
    back: &'r [u8],
    at: usize,
    spliced: &'r mut Vec<u8>,
) -> Option<&'r [u8]> {
    let whole = |bytes: &'r [u8]| bytes.get(..log_record::length(bytes).filter(|n| *n > 0)?);
    let Some(rest) = front.get(at..).filter(|rest| !rest.is_empty()) else {
        return whole(back.get(at - front.len()..)?);
    };
    if let Some(record) = whole(rest) {
        return Some(record);
    }
    spliced.clear();
    spliced.extend_from_slice(rest);
    spliced.extend(back.iter().take(LOG_RECORD_BYTES_MAX));
    whole(spliced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emitter::Emitter;
    use crate::events::{ExchangeFinished, Stages};
    use crate::sample::exchange;

    fn pair(queue_bytes: usize) -> (Emitter, LogReader) {
        let (mut emitter, reports) = Emitter::new(queue_bytes);
        emitter.set_access_log(true);
        let mut reader = LogReader::new();
        reader.set_style(Some(LogStyle::all(LogFormat::Json)));
        reader.add_worker(reports.records);
        (emitter, reader)
    }

    fn finish(emitter: &mut Emitter, place: usize, target_bytes: usize) {
        let target = format!("/{place}/{}", "x".repeat(target_bytes));
        emitter.exchange_finished(&ExchangeFinished { target: target.as_bytes(), ..exchange() });
    }

    fn places(out: &[u8]) -> Vec<usize> {
        let text = std::str::from_utf8(out).unwrap();
        text.lines()
            .map(|line| line.split("\"target\":\"/").nth(1).unwrap())
            .map(|rest| rest.split('/').next().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn every_record_becomes_a_line_wherever_the_queue_wraps() {
        // Lengths that share no factor with the queue's put its end at every place of a record.
        let (mut emitter, mut reader) = pair(4_099);
        let mut out = Vec::new();
        for place in 0..2_000 {
            finish(&mut emitter, place, place % 97);
            if place % 5 == 0 {
                reader.poll(0, &mut out, usize::MAX);
            }
        }
        reader.poll(0, &mut out, usize::MAX);
        assert_eq!(places(&out), (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let (mut emitter, mut reader) = pair(4_096);
        for place in 0..100 {
            finish(&mut emitter, place, 0);
        }
        let mut out = Vec::new();
        let polled = reader.poll(0, &mut out, usize::MAX);
        let counters = &reader.sources[0].worker.records;
        assert_eq!(counters.logged.value(), polled.lines);
        assert_eq!(counters.log_dropped.value(), 100 - polled.lines);
        assert!((5..50).contains(&polled.lines), "{polled:?}");
        assert_eq!(places(&out), (0..usize::try_from(polled.lines).unwrap()).collect::<Vec<_>>());

        finish(&mut emitter, 100, 0);
        out.clear();
        assert_eq!(reader.poll(0, &mut out, usize::MAX).lines, 1, "there is room again");
        assert_eq!(places(&out), [100]);
    }

    #[test]
    fn a_full_output_leaves_the_rest_for_the_next_poll() {
        let (mut emitter, mut reader) = pair(1 << 16);
        for place in 0..10 {
            finish(&mut emitter, place, 0);
        }
        let (mut out, mut polls) = (Vec::new(), 0);
        loop {
            let bound = out.len() + 1;
            let polled = reader.poll(0, &mut out, bound);
            polls += 1;
            assert!(polled.lines <= 1);
            if !polled.has_more {
                break;
            }
        }
        assert_eq!((places(&out), polls), ((0..10).collect(), 10));
    }

    #[test]
    fn workers_take_turns_when_the_output_is_short() {
        let (mut first, mut reader) = pair(1 << 16);
        let (mut second, reports) = Emitter::new(1 << 16);
        second.set_access_log(true);
        reader.add_worker(reports.records);
        for _ in 0..3 {
            finish(&mut first, 1, 0);
            finish(&mut second, 2, 0);
        }
        let mut out = Vec::new();
        reader.poll(0, &mut out, usize::MAX);
        assert_eq!(places(&out), [1, 1, 1, 2, 2, 2]);
        finish(&mut first, 1, 0);
        finish(&mut second, 2, 0);
        out.clear();
        reader.poll(0, &mut out, usize::MAX);
        assert_eq!(places(&out), [2, 1]);
    }

    #[test]
    fn an_exchange_keeps_its_names_through_one_change_of_configuration() {
        let (mut emitter, mut reader) = pair(1 << 16);
        let mut names = Names::default();
        names.insert_listener(exchange().listener, "edge".into());
        names.insert_cluster(exchange().cluster.unwrap(), "api".into());
        let mut line = |names: Names| {
            reader.set_names(Arc::new(names));
            finish(&mut emitter, 0, 0);
            let mut out = Vec::new();
            reader.poll(0, &mut out, usize::MAX);
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            (value["listener"].clone(), value["cluster"].clone())
        };
        assert_eq!(line(names.clone()), ("edge".into(), "api".into()));
        assert_eq!(line(Names::default()), ("edge".into(), "api".into()));
        assert_eq!(line(Names::default()), (serde_json::Value::Null, serde_json::Value::Null));
    }

    #[test]
    fn a_parked_reader_is_woken_by_the_next_record_and_waits_for_none_that_is_there() {
        let (mut emitter, mut reader) = pair(1 << 16);
        emitter.set_access_log(true);
        emitter.exchange_finished(&exchange());
        let block = Arc::clone(&reader.sources[0].worker);
        let parked = std::thread::spawn(move || {
            // The first is there already.
            while reader.records_taken() < 2 {
                reader.park(Duration::from_secs(1_000_000));
                reader.poll(0, &mut Vec::new(), usize::MAX);
            }
        });
        while !block.log_bell.is_awaited() {
            std::thread::yield_now();
        }
        // It may be missed once, if it comes while the reader begins to wait.
        while !parked.is_finished() {
            emitter.exchange_finished(&exchange());
            std::thread::yield_now();
        }
        parked.join().unwrap();
    }

    #[test]
    fn slow_requests_come_also_with_the_log_off_and_stop_below_the_floor() {
        let (mut emitter, mut reader) = pair(1 << 20);
        emitter.set_access_log(false);
        let mut out = Vec::new();
        let finish = |emitter: &mut Emitter, total| {
            let stages = Stages { total, ..Stages::default() };
            emitter.exchange_finished(&ExchangeFinished { stages, ..exchange() });
        };
        for total in 1..=32 {
            finish(&mut emitter, total * 1_000);
        }
        assert_eq!(reader.poll(0, &mut out, usize::MAX), Polled::default());
        assert!(out.is_empty());
        reader.write_slow_json(&mut out);
        assert_eq!(String::from_utf8_lossy(&out).matches("duration_us").count(), 32);

        finish(&mut emitter, 1_000);
        assert_eq!(reader.sources[0].records.slots(), 0, "no worse than the least of the worst");
        let tunnel = ExchangeFinished {
            grpc: None,
            is_tunnel: true,
            stages: Stages { total: u64::MAX, ..Stages::default() },
            ..exchange()
        };
        emitter.exchange_finished(&tunnel);
        assert_eq!(reader.sources[0].records.slots(), 0, "a tunnel is long and not slow");
        finish(&mut emitter, 33_000);
        assert_ne!(reader.sources[0].records.slots(), 0);
    }
}
