//! The worst recent requests, with where their time went.
//!
//! Two windows of time stand side by side: one that fills and the one before it, so that what is
//! shown reaches back between one and two windows. Each keeps the [`ENTRIES_MAX`] longest. Once the
//! filling one is full, its shortest entry is the floor below which workers do not report: for a
//! worker the list costs one comparison an exchange.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::access_log::style::LogFormat;
use crate::access_log::{Clock, Line, LogStyle, push_escaped, push_tenths, write_json_members};
use crate::events::Stages;
use crate::log_record;
use crate::names::NameHistory;

/// Requests that a window keeps.
const ENTRIES_MAX: usize = 32;
/// Length of a window, ns: five minutes.
const WINDOW: u64 = 300 * 1_000_000_000;
/// Stages that are parts of `total`: all between the first, which comes before it, and the last.
const PARTS: std::ops::Range<usize> = 1..Stages::NAMES.len() - 1;

/// Bytes of one request as a process wrote it that this one takes the place of: more than the longest record as text.
const SAVED_BYTES_MAX: usize = 64 << 10;

/// The worst requests of the running window and of the one before.
#[derive(Debug, Default)]
pub(crate) struct SlowRequests {
    current: Vec<Entry>,
    former: Vec<Entry>,
    /// When the current window began; none before the first look at a clock.
    began_at: Option<u64>,
    /// That clock at the last look.
    now: u64,
}

/// A request as it is shown, with the names of its time, since names may change. What is shown lasts longer than what workers
/// record, and goes to the next process as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    total: u64,
    /// The members of its JSON object.
    json: Box<str>,
    /// The same for people: a headline, and a row for each stage.
    text: Box<str>,
}

impl Entry {
    /// None if the record cannot be read.
    fn new(record: &[u8], total: u64, names: &NameHistory, clock: &mut Clock) -> Option<Self> {
        let (_, event) = log_record::decode(record)?;
        let (mut json, mut text) = (Vec::with_capacity(512), Vec::with_capacity(512));
        let parts = breakdown(&event.stages, total);
        let line = Line::new(event, names);
        write_json_members(&line, &LogStyle::all(LogFormat::Json).fields, clock, &mut json);
        write_shares(&parts, total, &mut json);
        write_text(&line, total, clock, &mut text);
        write_rows(&parts, total, &mut text);
        // Both are escaped.
        let string = |bytes| String::from_utf8(bytes).map(String::into_boxed_str).ok();
        Some(Self { total, json: string(json)?, text: string(text)? })
    }

    /// Whether it may be shown: another process may have written it.
    fn is_valid(&self) -> bool {
        let is_shown = |byte: u8| byte == b'\n' || (0x20..0x7f).contains(&byte);
        let is_object =
            || serde_json::from_str::<IgnoredAny>(&format!("{{{}}}", self.json)).is_ok();
        self.json.len().max(self.text.len()) <= SAVED_BYTES_MAX
            && self.json.bytes().chain(self.text.bytes()).all(is_shown)
            && !self.json.is_empty()
            && is_object()
    }
}

/// What goes to the next process.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSlow {
    /// How long the current window has lasted, ns.
    age: u64,
    current: Vec<Entry>,
    former: Vec<Entry>,
}

impl SlowRequests {
    /// Begins a new window if the current one is over. `now` is ns of a clock that does not step.
    pub(crate) fn advance(&mut self, now: u64) {
        self.now = now;
        let began_at = *self.began_at.get_or_insert(now);
        let age = now.saturating_sub(began_at);
        if age < WINDOW {
            return;
        }
        self.former = std::mem::take(&mut self.current);
        if age >= 2 * WINDOW {
            self.former.clear();
        }
        self.began_at = Some(now);
    }

    /// The total that a request has to exceed to be among the worst.
    pub(crate) fn floor(&self) -> u64 {
        if self.current.len() < ENTRIES_MAX {
            return 0;
        }
        self.current.iter().map(|entry| entry.total).min().unwrap_or(0)
    }

    /// Takes a candidate, if it is among the worst.
    pub(crate) fn offer(
        &mut self,
        record: &[u8],
        total: u64,
        names: &NameHistory,
        clock: &mut Clock,
    ) {
        if total <= self.floor() {
            return;
        }
        if let Some(entry) = Entry::new(record, total, names, clock) {
            insert(&mut self.current, entry);
        }
    }

    /// Both windows, for the process that takes this one's place.
    pub(crate) fn save(&self) -> Vec<u8> {
        let age = self.now.saturating_sub(self.began_at.unwrap_or(self.now));
        let (current, former) = (self.current.clone(), self.former.clone());
        serde_json::to_vec(&SavedSlow { age, current, former }).unwrap_or_default()
    }

    /// Adds what another process had saved. Nothing of what cannot be read, or may not be shown.
    pub(crate) fn adopt(&mut self, saved: &[u8]) {
        let Ok(SavedSlow { age, current, former }) = serde_json::from_slice(saved) else { return };
        let began_at = self.now.saturating_sub(age.min(WINDOW));
        self.began_at = Some(self.began_at.map_or(began_at, |own| own.min(began_at)));
        for (own, other) in [(&mut self.current, current), (&mut self.former, former)] {
            // What returns to this process may have come from it.
            let other = other.into_iter().take(ENTRIES_MAX).filter(Entry::is_valid);
            for entry in other {
                if !own.contains(&entry) {
                    insert(own, entry);
                }
            }
        }
    }

    /// The worst of both windows, longest first.
    fn worst(&self) -> Vec<&Entry> {
        let mut entries: Vec<_> = self.current.iter().chain(&self.former).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.total));
        entries.truncate(ENTRIES_MAX);
        entries
    }

    /// Appends a JSON object: `requests` holds objects with the fields of the access log, and
    /// `percent` with the share of each stage in the duration.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"window_seconds\":");
        out.extend_from_slice((WINDOW / 1_000_000_000).to_string().as_bytes());
        out.extend_from_slice(b",\"requests\":[");
        for (place, entry) in self.worst().into_iter().enumerate() {
            out.extend_from_slice(if place == 0 { b"\n{" } else { b",\n{" });
            out.extend_from_slice(entry.json.as_bytes());
            out.push(b'}');
        }
        out.extend_from_slice(b"\n]}\n");
    }

    /// Appends the same for people: a headline for each request, and a row for each stage.
    pub(crate) fn write_text(&self, out: &mut Vec<u8>) {
        let worst = self.worst();
        out.extend_from_slice(b"The longest requests of the last five to ten minutes");
        out.extend_from_slice(if worst.is_empty() { b": none.\n" } else { b", longest first.\n" });
        for entry in worst {
            out.extend_from_slice(entry.text.as_bytes());
        }
    }
}

/// Adds a request to a window, in place of the shortest if that is full.
fn insert(window: &mut Vec<Entry>, entry: Entry) {
    if window.len() < ENTRIES_MAX {
        window.push(entry);
    } else if let Some(least) = window.iter_mut().min_by_key(|entry| entry.total)
        && least.total < entry.total
    {
        *least = entry;
    }
}

/// Appends the member `percent`.
fn write_shares(parts: &[Part], total: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"percent\":{");
    for (place, part) in parts.iter().filter(|part| part.is_share).enumerate() {
        out.extend_from_slice(if place == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(part.name.as_bytes());
        out.extend_from_slice(b"\":");
        push_tenths(out, per_mille(part.ns, total));
    }
    out.push(b'}');
}

/// Appends the headline of a request.
fn write_text(line: &Line<'_>, total: u64, clock: &mut Clock, out: &mut Vec<u8>) {
    let event = &line.event;
    out.push(b'\n');
    push_right(out, &millis(total), 12);
    out.extend_from_slice(format!(" ms  {}  ", event.status).as_bytes());
    for (separator, text) in [("", event.method), (" ", event.host), ("", event.target)] {
        out.extend_from_slice(separator.as_bytes());
        push_escaped(out, text);
    }
    out.extend_from_slice(b"\n                 ");
    clock.push_iso(event.started_at, out);
    for (key, text) in [
        ("client", event.client),
        ("route", line.route.as_bytes()),
        ("cluster", line.cluster.as_bytes()),
        ("failed_attempts", event.failed_attempts),
        ("endpoint", event.endpoint),
        ("cause", event.cause.map_or("", |cause| cause.as_str()).as_bytes()),
        ("cause_detail", event.cause_detail),
        ("request_id", event.request_id),
    ] {
        if !text.is_empty() {
            out.extend_from_slice(format!("  {key} ").as_bytes());
            push_escaped(out, text);
        }
    }
    out.extend_from_slice(format!("  attempts {}\n", event.attempts).as_bytes());
}

/// Appends a row for each stage.
fn write_rows(parts: &[Part], total: u64, out: &mut Vec<u8>) {
    for part in parts {
        push_right(out, &millis(part.ns), 12);
        out.extend_from_slice(b" ms  ");
        if part.is_share {
            let mut percent = Vec::new();
            push_tenths(&mut percent, per_mille(part.ns, total));
            push_right(out, &String::from_utf8_lossy(&percent), 5);
            out.extend_from_slice(b" %  ");
        } else {
            out.extend_from_slice(b" before  ");
        }
        out.extend_from_slice(part.name.as_bytes());
        out.push(b'\n');
    }
}

/// A stage of a request.
#[derive(Debug)]
struct Part {
    name: &'static str,
    ns: u64,
    /// Whether it is a part of the total; `accept` comes before it.
    is_share: bool,
}

/// The stages that a request had, and what none of them accounts for. Empty without stage times.
fn breakdown(stages: &Stages, total: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Stages::NAMES
        .into_iter()
        .zip(stages.values())
        .enumerate()
        .take(PARTS.end)
        .filter(|(_, (_, ns))| *ns != 0)
        .map(|(place, (name, ns))| Part { name, ns, is_share: PARTS.contains(&place) })
        .collect();
    if !parts.is_empty() {
        let known = parts
            .iter()
            .filter(|part| part.is_share)
            .fold(0u64, |known, part| known.saturating_add(part.ns));
        let ns = total.saturating_sub(known);
        parts.push(Part { name: "other", ns, is_share: true });
    }
    parts
}

/// A part in thousandths of the whole, rounded.
fn per_mille(part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    u64::try_from((part * 1_000 + whole / 2) / whole).unwrap_or(u64::MAX)
}

/// Milliseconds with three decimals.
fn millis(ns: u64) -> String {
    let micros = ns / 1_000 + u64::from(ns % 1_000 >= 500);
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}

fn push_right(out: &mut Vec<u8>, text: &str, width: usize) {
    out.extend_from_slice(format!("{text:>width$}").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::events::ExchangeFinished;
    use crate::log_record::{Audience, LOG_RECORD_BYTES_MAX, encode};
    use crate::names::Names;
    use crate::sample::exchange;

    fn offer(slow: &mut SlowRequests, event: &ExchangeFinished<'_>) {
        let mut names = Names::default();
        names.insert_cluster(exchange().cluster.unwrap(), "api".into());
        let mut history = NameHistory::default();
        history.set(Arc::new(names));
        let mut buffer = [0; LOG_RECORD_BYTES_MAX];
        let record = encode(
            event,
            Audience { is_log: false, is_slow: true, is_failure: false },
            &mut buffer,
        );
        slow.offer(record, event.stages.total, &history, &mut Clock::default());
    }

    fn offer_total(slow: &mut SlowRequests, total: u64) {
        offer(
            slow,
            &ExchangeFinished { stages: Stages { total, ..Stages::default() }, ..exchange() },
        );
    }

    fn totals(slow: &SlowRequests) -> Vec<u64> {
        slow.worst().iter().map(|entry| entry.total).collect()
    }

    fn text(slow: &SlowRequests) -> String {
        let mut out = Vec::new();
        slow.write_text(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn json(slow: &SlowRequests) -> String {
        let mut out = Vec::new();
        slow.write_json(&mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["requests"].as_array().map(Vec::len), Some(slow.worst().len()));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_worst_are_kept_and_the_floor_follows_the_least_of_them() {
        let mut slow = SlowRequests::default();
        for total in 1..=100 {
            offer_total(&mut slow, total);
            let expected = if total < 32 { 0 } else { total - 31 };
            assert_eq!(slow.floor(), expected, "after {total}");
        }
        offer_total(&mut slow, 69);
        assert_eq!(totals(&slow), (69..=100).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_request_is_shown_for_one_window_at_least_and_two_at_most() {
        let start = 7;
        let mut slow = SlowRequests::default();
        slow.advance(start);
        offer_total(&mut slow, 1);
        slow.advance(start + WINDOW - 1);
        assert_eq!((totals(&slow), slow.current.len()), (vec![1], 1));
        slow.advance(start + WINDOW);
        assert_eq!((totals(&slow), slow.floor()), (vec![1], 0));
        offer_total(&mut slow, 2);
        assert_eq!(totals(&slow), [2, 1]);
        json(&slow);
        slow.advance(start + 2 * WINDOW);
        assert_eq!(totals(&slow), [2]);
        offer_total(&mut slow, 3);
        slow.advance(start + 4 * WINDOW - 1);
        assert_eq!(totals(&slow), [3], "what was in the window that just ended");
        offer_total(&mut slow, 4);
        slow.advance(start + 6 * WINDOW - 1);
        assert!(totals(&slow).is_empty(), "both windows are over");
    }

    #[test]
    fn the_breakdown_adds_up_and_names_what_no_stage_accounts_for() {
        let mut slow = SlowRequests::default();
        let stages = Stages {
            accept: 5_000_000,
            route: 250_000,
            first_byte: 500_000,
            total: 1_000_000,
            ..Stages::default()
        };
        offer(&mut slow, &ExchangeFinished { stages, ..exchange() });
        assert!(
            json(&slow).contains(r#""percent":{"route":25.0,"first_byte":50.0,"other":25.0}"#),
            "{}",
            json(&slow)
        );
        let text = text(&slow);
        for row in [
            "1.000 ms  200  GET shop.example.com/api/items?page=2",
            "5.000 ms   before  accept",
            "0.250 ms   25.0 %  route",
            "0.500 ms   50.0 %  first_byte",
            "0.250 ms   25.0 %  other",
        ] {
            assert!(text.lines().any(|line| line.trim_start() == row), "{row} in {text}");
        }
        assert!(text.contains("client 192.0.2.7  cluster api  endpoint"), "{text}");
    }

    #[test]
    fn stages_that_overlap_leave_nothing_over() {
        let mut slow = SlowRequests::default();
        let stages = Stages { response: u64::MAX, route: u64::MAX, total: 10, ..Stages::default() };
        offer(&mut slow, &ExchangeFinished { stages, ..exchange() });
        assert!(json(&slow).contains(r#""other":0.0"#), "{}", json(&slow));
    }

    #[test]
    fn another_process_goes_on_with_both_windows() {
        let mut slow = SlowRequests::default();
        slow.advance(7);
        offer_total(&mut slow, 1);
        slow.advance(7 + WINDOW);
        offer_total(&mut slow, 2);
        slow.advance(7 + WINDOW + WINDOW / 2);
        let mut other = SlowRequests::default();
        other.advance(WINDOW * 9);
        offer_total(&mut other, 3);
        other.adopt(&slow.save());
        assert_eq!(totals(&other), [3, 2, 1]);
        json(&other);
        // It returns what it has to the one that it is from.
        slow.adopt(&other.save());
        assert_eq!(totals(&slow), [3, 2, 1]);
        assert_eq!(text(&slow), text(&other));
        // Windows end as they would have.
        other.advance(WINDOW * 9 + WINDOW / 2);
        assert_eq!(totals(&other), [3, 2]);
    }

    #[test]
    fn what_another_process_saved_is_not_believed() {
        let saved = |json: &str, text: &str| {
            let entry = Entry { total: 9, json: json.into(), text: text.into() };
            let current = vec![entry; 100];
            serde_json::to_vec(&SavedSlow { age: u64::MAX, current, former: Vec::new() }).unwrap()
        };
        let long = "x".repeat(SAVED_BYTES_MAX + 1);
        for (json, text, is_taken) in [
            ("\"a\":1", "9 ms\n", true),
            ("", "9 ms\n", false),
            ("\"a\":1}, {\"b\":2", "9 ms\n", false),
            ("\"a\"", "9 ms\n", false),
            ("\"a\":1", "\u{1b}[31m", false),
            ("\"a\":1", "\u{e9}", false),
            ("\"a\":1", &long, false),
        ] {
            let mut slow = SlowRequests::default();
            slow.adopt(&saved(json, text));
            assert_eq!(totals(&slow).len(), usize::from(is_taken), "{json} {text:.20}");
        }
        let mut slow = SlowRequests::default();
        for garbage in [&b""[..], b"{}", b"[1,2", b"{\"age\":-1,\"current\":[],\"former\":[]}"] {
            slow.adopt(garbage);
        }
        assert!(totals(&slow).is_empty());
    }

    #[test]
    fn an_empty_list_is_a_valid_answer() {
        let slow = SlowRequests::default();
        assert_eq!(json(&slow), "{\"window_seconds\":300,\"requests\":[\n]}\n");
        assert!(text(&slow).ends_with("minutes: none.\n"));
    }

    #[test]
    fn hostile_text_stays_on_its_line() {
        let mut slow = SlowRequests::default();
        let event = ExchangeFinished { target: b"/a\r\nb\x1b[31m\xff", host: b"\n", ..exchange() };
        offer(&mut slow, &event);
        let all = json(&slow) + &text(&slow);
        assert!(all.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)));
        assert!(all.contains(r"\x0a/a\x0d\x0ab\x1b[31m\xff"), "{all}");
    }
}
