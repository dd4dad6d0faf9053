//! What is shown, and what keys do. Nothing here draws or asks.

use std::time::Duration;

use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::sample::{Answer, Look, Memory, Rates, number, text};
use crate::admin_client::encode;
use crate::arguments::TopOptions;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Clusters and what they carry.
    Clusters,
    /// Listeners and what they carry.
    Listeners,
    /// Where endpoints and clusters come from.
    Sources,
    /// The slowest recent requests.
    Slow,
    /// Clusters of rules that have several by weight, with the share of the requests that each got.
    Weights,
}

impl View {
    pub(super) const ALL: [(Self, &str); 5] = [
        (Self::Clusters, "clusters"),
        (Self::Listeners, "listeners"),
        (Self::Sources, "sources"),
        (Self::Slow, "slow"),
        (Self::Weights, "weights"),
    ];
}

/// By which figure entries are sorted, downwards but for the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopSort {
    /// Exchanges that are over.
    Exchanges,
    /// Connections that are open.
    Active,
    /// Exchanges that wait for a connection.
    Pending,
    /// Exchanges and connects that failed.
    Failures,
    /// The name, upwards.
    Name,
}

impl TopSort {
    const ALL: [Self; 5] =
        [Self::Exchanges, Self::Active, Self::Pending, Self::Failures, Self::Name];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Exchanges => "exchanges",
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Failures => "failures",
            Self::Name => "name",
        }
    }
}

/// What to ask of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub(super) path: String,
}

/// What follows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    Quit,
}

/// Rows under titles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// The first is the widest, and leans left; numbers lean right.
    pub(super) titles: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct Top {
    admin: String,
    pub(super) view: View,
    pub(super) sort: TopSort,
    pub(super) filter: String,
    /// Whether keys are letters of the filter.
    pub(super) is_typing: bool,
    /// The cluster whose endpoints are shown.
    pub(super) detail: Option<String>,
    pub(super) selected: usize,
    /// The first row that is shown.
    pub(super) offset: usize,
    height: usize,
    /// What `/ready?verbose` said last.
    pub(super) state: String,
    pub(super) memory: Memory,
    /// Why there is no answer.
    pub(super) error: Option<String>,
    entries: Vec<Value>,
    /// The place of the first row that is known: of a cluster's endpoints, only those on the screen are.
    first_known: usize,
    /// Of lines, where the answer is text.
    lines: Vec<String>,
    pub(super) matched: u64,
    looks: [Look; 2],
}

impl Top {
    pub(super) fn new(options: &TopOptions) -> Self {
        Self {
            admin: options.admin.clone(),
            view: options.view,
            sort: options.sort,
            filter: options.filter.clone().unwrap_or_default(),
            is_typing: false,
            detail: None,
            selected: 0,
            offset: 0,
            height: 0,
            state: String::new(),
            memory: Memory::default(),
            error: None,
            entries: Vec::new(),
            first_known: 0,
            lines: Vec::new(),
            matched: 0,
            looks: Default::default(),
        }
    }

    pub(super) fn admin(&self) -> &str {
        &self.admin
    }

    /// How many rows fit.
    pub(super) fn set_height(&mut self, rows: usize) {
        self.height = rows;
        self.scroll();
    }

    /// What has to be known to show this: no more entries than reach the end of the screen, and of a cluster's endpoints those on it.
    pub(super) fn question(&self) -> PageRequest {
        let (sort, filter) = (self.sort.word(), encode(&self.filter));
        let limit = self.offset.saturating_add(self.height).max(1);
        let path = match (&self.detail, self.view) {
            (Some(name), _) => {
                let (rows, first) = (self.height.max(1), self.offset);
                format!("/clusters?endpoints={rows}&endpoints_from={first}&name={}", encode(name))
            }
            (None, View::Clusters) => {
                format!("/clusters?endpoints=no&sort={sort}&limit={limit}&filter={filter}")
            }
            (None, View::Listeners) => {
                format!("/listeners?sort={sort}&limit={limit}&filter={filter}")
            }
            (None, View::Weights) => format!("/routes?rules=weighted&limit={limit}"),
            (None, View::Sources) => "/sources".to_owned(),
            (None, View::Slow) => "/slow?format=text".to_owned(),
        };
        PageRequest { path }
    }

    /// Takes what came. What was asked before a key was pressed is passed over.
    pub(super) fn on_answer(
        &mut self,
        question: &PageRequest,
        answer: Result<Answer, String>,
        at: Duration,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.error = Some(error),
        };
        self.error = None;
        self.state = printable(&answer.state);
        self.memory = Memory::of(&answer.memory);
        if *question != self.question() {
            return;
        }
        let mut page: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        clean(&mut page);
        let listed = ["/clusters", "/listeners", "/rules", "/sources"]
            .iter()
            .find_map(|key| page.pointer(key));
        self.entries = listed.and_then(Value::as_array).cloned().unwrap_or_default();
        self.lines = match listed {
            Some(_) => Vec::new(),
            None => printable(&String::from_utf8_lossy(&answer.body))
                .lines()
                .map(str::to_owned)
                .collect(),
        };
        self.first_known = if self.detail.is_some() { self.offset } else { 0 };
        self.matched = page.pointer("/matched").and_then(Value::as_u64).unwrap_or_default();
        // Entries that were not on the screen before have no rates yet.
        let before = std::mem::take(&mut self.looks[1]);
        self.looks = [before, Look::new(at, &self.entries)];
        self.scroll();
    }

    /// Does what a key says.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Then {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Then::Quit,
            code if self.is_typing => self.on_letter(code),
            KeyCode::Char('q') => return Then::Quit,
            KeyCode::Esc if self.detail.is_some() => self.leave_detail(),
            KeyCode::Esc if !self.filter.is_empty() => self.set_filter(String::new()),
            KeyCode::Esc => return Then::Quit,
            KeyCode::Char('/') if self.has_names() => self.is_typing = true,
            KeyCode::Char('s') if self.has_names() => {
                let next = TopSort::ALL.iter().cycle().skip_while(|it| **it != self.sort).nth(1);
                self.sort = next.copied().unwrap_or(self.sort);
                self.go_to(0);
            }
            KeyCode::Char(digit @ '1'..='5') => {
                let place = usize::from(digit as u8 - b'1');
                self.show_view(place);
            }
            KeyCode::Tab => {
                let place = View::ALL.iter().position(|(view, _)| *view == self.view);
                self.show_view((place.unwrap_or(0) + 1) % View::ALL.len());
            }
            KeyCode::Up | KeyCode::Char('k') => self.go_to(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go_to(self.selected.saturating_add(1)),
            KeyCode::PageUp => self.go_to(self.selected.saturating_sub(self.height)),
            KeyCode::PageDown => self.go_to(self.selected.saturating_add(self.height)),
            KeyCode::Home | KeyCode::Char('g') => self.go_to(0),
            KeyCode::End | KeyCode::Char('G') => self.go_to(usize::MAX),
            KeyCode::Enter if self.view == View::Clusters && self.detail.is_none() => {
                let entry = self.entries.get(self.selected);
                self.detail = entry.map(|entry| text(entry, "/name").to_owned());
                self.go_to(0);
            }
            _ => {}
        }
        Then::GoOn
    }

    fn on_letter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.set_filter(String::new());
            }
            KeyCode::Backspace => {
                let mut filter = self.filter.clone();
                filter.pop();
                self.set_filter(filter);
            }
            KeyCode::Char(letter) => self.set_filter(format!("{}{letter}", self.filter)),
            _ => {}
        }
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.go_to(0);
    }

    fn show_view(&mut self, place: usize) {
        if let Some((view, _)) = View::ALL.get(place) {
            self.view = *view;
            self.leave_detail();
        }
    }

    fn leave_detail(&mut self) {
        self.detail = None;
        self.clear();
        self.go_to(0);
    }

    /// What was shown is of something else.
    fn clear(&mut self) {
        self.entries.clear();
        self.lines.clear();
        self.first_known = 0;
        self.matched = 0;
    }

    /// Whether what is listed has names, by which it is filtered and sorted.
    pub(super) fn has_names(&self) -> bool {
        self.detail.is_none() && matches!(self.view, View::Clusters | View::Listeners)
    }

    fn go_to(&mut self, row: usize) {
        self.selected = row;
        self.scroll();
    }

    /// How many rows there are, of which not all are known.
    pub(super) fn rows_in_all(&self) -> usize {
        match (&self.detail, self.view) {
            (Some(_), _) => {
                let count = self.entries.first().map(|it| number(it, "/endpoints_in_all/count"));
                usize::try_from(count.unwrap_or_default()).unwrap_or(usize::MAX)
            }
            (None, View::Clusters | View::Listeners) => {
                usize::try_from(self.matched).unwrap_or(usize::MAX)
            }
            (None, View::Weights) => weight_rows(&self.entries).len(),
            (None, View::Sources) => self.entries.len(),
            (None, View::Slow) => self.lines.len(),
        }
    }

    /// Keeps the selected row on the screen.
    fn scroll(&mut self) {
        self.selected = self.selected.min(self.rows_in_all().saturating_sub(1));
        let last = self.offset.saturating_add(self.height.max(1)) - 1;
        if self.selected < self.offset {
            self.offset = self.selected;
        } else if self.selected > last {
            self.offset = self.selected + 1 - self.height.max(1);
        }
    }

    /// The rows on the screen, which are empty as far as they are not known yet.
    pub(super) fn screen_table(&self) -> Table {
        let mut table = self.table();
        let unseen = self.offset.saturating_sub(self.first_known).min(table.rows.len());
        table.rows.drain(..unseen);
        let unknown = self.first_known.saturating_sub(self.offset).min(self.height);
        table.rows.splice(..0, std::iter::repeat_n(Vec::new(), unknown));
        table.rows.truncate(self.height);
        table
    }

    /// All rows that are known, the first ones first.
    pub(super) fn table(&self) -> Table {
        match (&self.detail, self.view) {
            (Some(_), _) => endpoint_table(self.entries.first().unwrap_or(&Value::Null)),
            (None, View::Clusters) => {
                let rows = self.entries.iter().map(|it| cluster_row(it, self.rates(it)));
                Table { titles: CLUSTER_TITLES.to_vec(), rows: rows.collect() }
            }
            (None, View::Listeners) => {
                let rows = self.entries.iter().map(|it| listener_row(it, self.rates(it)));
                Table { titles: LISTENER_TITLES.to_vec(), rows: rows.collect() }
            }
            (None, View::Weights) => {
                let rows = weight_rows(&self.entries);
                Table { titles: WEIGHT_TITLES.to_vec(), rows }
            }
            (None, View::Sources) => {
                let rows = self.entries.iter().map(source_row);
                Table { titles: SOURCE_TITLES.to_vec(), rows: rows.collect() }
            }
            (None, View::Slow) => {
                let rows = self.lines.iter().map(|line| vec![line.clone()]);
                Table { titles: vec!["SLOWEST RECENT REQUESTS"], rows: rows.collect() }
            }
        }
    }

    fn rates(&self, entry: &Value) -> Option<Rates> {
        let [before, now] = &self.looks;
        now.rates(before, text(entry, "/name"))
    }
}

const CLUSTER_TITLES: [&str; 9] =
    ["CLUSTER", "ENDPOINTS", "REQ/S", "FAIL/S", "LATENCY", "ACTIVE", "IDLE", "PENDING", "REQUESTS"];

fn cluster_row(entry: &Value, rates: Option<Rates>) -> Vec<String> {
    let count = |pointer| number(entry, pointer).to_string();
    vec![
        text(entry, "/name").to_owned(),
        count("/endpoints"),
        rate(rates.map(|it| it.exchanges)),
        rate(rates.map(|it| it.failed)),
        rates.and_then(|it| it.latency).map_or_else(|| "-".to_owned(), time),
        count("/connections/active"),
        count("/connections/idle"),
        count("/exchanges/pending"),
        count("/exchanges/total"),
    ]
}

const LISTENER_TITLES: [&str; 7] =
    ["LISTENER", "ADDRESS", "REQ/S", "CONN/S", "ACTIVE", "RUNNING", "REQUESTS"];

fn listener_row(entry: &Value, rates: Option<Rates>) -> Vec<String> {
    let count = |pointer| number(entry, pointer).to_string();
    vec![
        text(entry, "/name").to_owned(),
        text(entry, "/bound/0").to_owned(),
        rate(rates.map(|it| it.exchanges)),
        rate(rates.map(|it| it.connections)),
        count("/connections/active"),
        count("/exchanges/active"),
        count("/exchanges/total"),
    ]
}

/// Endpoints of a cluster, with the share of the requests that each has by its weight beside the one that it got.
fn endpoint_table(cluster: &Value) -> Table {
    let endpoints = cluster.pointer("/endpoints").and_then(Value::as_array);
    let endpoints = endpoints.map_or(&[][..], Vec::as_slice);
    let sums = [("/weight", "/weight"), ("/exchanges/total", "/exchanges_total")];
    let in_all = cluster.pointer("/endpoints_in_all").unwrap_or(&Value::Null);
    let sums = sums.map(|(pointer, sum)| (pointer, number(in_all, sum)));
    let rows = endpoints.iter().map(|entry| {
        let failures = entry.pointer("/connect_failures").and_then(Value::as_object);
        let failures = failures.into_iter().flatten().filter_map(|(_, count)| count.as_u64());
        let error = ["cause", "reason", "at"].map(|key| text(entry, &format!("/last_error/{key}")));
        vec![
            text(entry, "/address").to_owned(),
            health_word(entry).to_owned(),
            number(entry, "/weight").to_string(),
            share(entry, sums[0]),
            share(entry, sums[1]),
            number(entry, "/exchanges/total").to_string(),
            number(entry, "/exchanges/failed_total").to_string(),
            failures.sum::<u64>().to_string(),
            error.join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
        ]
    });
    Table { rows: rows.collect(), titles: ENDPOINT_TITLES.to_vec() }
}

/// Why an endpoint gets no requests, or what its checks and its source say.
fn health_word(entry: &Value) -> &str {
    let is_ejected = entry.pointer("/ejected").is_some_and(|it| !it.is_null());
    match entry.pointer("/drained").and_then(Value::as_bool) {
        Some(true) => "drained",
        _ if is_ejected => "ejected",
        _ => match (text(entry, "/health/state"), text(entry, "/reported")) {
            (checked, "" | "healthy" | "unknown") | (checked @ "unhealthy", _) => checked,
            (_, reported) => reported,
        },
    }
}

const ENDPOINT_TITLES: [&str; 9] = [
    "ENDPOINT",
    "HEALTH",
    "WEIGHT",
    "WANTED",
    "SHARE",
    "REQUESTS",
    "FAILED",
    "CONNECT-FAILURES",
    "LAST-ERROR",
];

const WEIGHT_TITLES: [&str; 7] =
    ["CLUSTER", "WEIGHT", "WANTED", "SHARE", "REQUESTS", "ROUTE", "RULE"];

/// A row for each weighted cluster of each rule.
fn weight_rows(rules: &[Value]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for rule in rules {
        let clusters = rule.pointer("/clusters").and_then(Value::as_array);
        let clusters = clusters.map_or(&[][..], Vec::as_slice);
        let sum = |pointer| clusters.iter().map(|entry| number(entry, pointer)).sum::<u64>();
        let sums = ["/weight", "/exchanges_total"].map(|pointer| (pointer, sum(pointer)));
        rows.extend(clusters.iter().map(|entry| {
            vec![
                text(entry, "/name").to_owned(),
                number(entry, "/weight").to_string(),
                share(entry, sums[0]),
                share(entry, sums[1]),
                number(entry, "/exchanges_total").to_string(),
                text(rule, "/route").to_owned(),
                text(rule, "/rule").to_owned(),
            ]
        }));
    }
    rows
}

/// What part of a sum an entry has.
fn share(entry: &Value, (pointer, sum): (&str, u64)) -> String {
    match sum {
        0 => "-".to_owned(),
        sum => format!("{:.1}%", number(entry, pointer) as f64 * 100.0 / sum as f64),
    }
}

const SOURCE_TITLES: [&str; 5] = ["SOURCE", "AGE", "ACCEPTED", "REFUSED", "STATES"];

fn source_row(entry: &Value) -> Vec<String> {
    let counts = |pointer| entry.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let refused = counts("/refused_total").filter_map(|(_, count)| count.as_u64());
    let states = counts("/states").filter(|(_, count)| count.as_u64() != Some(0));
    let states: Vec<_> = states.map(|(state, count)| format!("{state}={count}")).collect();
    let age = entry.pointer("/age_seconds").and_then(Value::as_u64);
    vec![
        text(entry, "/name").to_owned(),
        age.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s")),
        number(entry, "/accepted_total").to_string(),
        refused.sum::<u64>().to_string(),
        states.join(","),
    ]
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 100.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

/// A time with three digits.
fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        _ if micros < 1e3 => format!("{micros:.0}us"),
        _ if micros < 1e6 => format!("{:.2}ms", micros / 1e3),
        _ => format!("{:.2}s", micros / 1e6),
    }
}

impl Table {
    /// The columns' widths.
    pub(super) fn widths(&self) -> Vec<usize> {
        let width = |(place, title): (usize, &&str)| {
            let cells = self.rows.iter().filter_map(|row| row.get(place));
            cells.map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or(0)
        };
        self.titles.iter().enumerate().map(width).collect()
    }

    /// For scripts: columns with spaces between them, and `-` where there is nothing.
    pub(super) fn to_text(&self) -> String {
        let widths = self.widths();
        let titles = self.titles.iter().map(|title| (*title).to_owned()).collect();
        let mut text = String::new();
        for row in [&titles].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| {
                let cell = if cell.is_empty() { "-" } else { cell };
                format!("{cell:<width$}")
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }
}

/// Replaces what would move the cursor or turn text around in all texts of a page: names and targets are others' text. A line feed
/// would make two lines of one, too.
fn clean(page: &mut Value) {
    match page {
        Value::String(text) => *text = printable(text).replace('\n', "\u{fffd}"),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The same for lines of text.
fn printable(text: &str) -> String {
    let turns = |letter: char| matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_bad = |letter: char| letter != '\n' && letter.is_control() || turns(letter);
    text.chars().map(|letter| if is_bad(letter) { '\u{fffd}' } else { letter }).collect()
}
