//! What former processes had counted: each series by its family's name and its labels, as text.
//!
//! A process that takes another's place goes on with its counters and histograms, so that to a scraper they only
//! grow, and with both ends of each gauge that is a difference, so that a connection which was opened there and ends here
//! is one that ended. Other gauges are of this process alone. The text is a line for each series:
//!
//! ```text
//! family TAB label TAB … TAB kind and values, separated by spaces
//! ```
//!
//! Names live longer than layouts: what a later version does not know is kept and passed on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Bound::{Included, Unbounded};
use std::time::Duration;

use crate::block::ListenerBlock;
use crate::cell::Counter;
use crate::histogram::HistogramTotals;
use crate::metrics::exchange::{ROUTE_EXCHANGES, WEIGHTED_EXCHANGES};
use crate::metrics::{
    BOUNDS_COARSE, BOUNDS_FINE, Bound, Family, MetricType, Samples, View, families,
};
use crate::names::{NameSets, RouteNames};
use crate::totals::ClusterTotals;

// The families of what is open.
const CONNECTIONS: &str = "strait_downstream_connections_active";
const EXCHANGES: &str = "strait_exchanges_active";
const TUNNELS: &str = "strait_tunnels_active";
const UPSTREAMS: &str = "strait_upstream_connections_active";

/// Series at most; what is beyond is not carried on.
const SERIES_MAX: usize = 1 << 20;

/// What former processes had counted.
#[derive(Clone, Debug, Default)]
pub struct FormerTotals {
    families: BTreeMap<String, Series>,
}

/// By their labels, as the text has them: each escaped, with a tabulator behind it. Those that begin with one label are neighbours.
type Series = BTreeMap<Box<str>, Value>;

#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Decimal(f64),
    /// What began and what ended.
    Level(u64, u64),
    /// Whether it is reported with the fine bounds.
    Histogram(bool, Box<HistogramTotals>),
}

impl FormerTotals {
    /// Reads what [`Readings::write_totals`](crate::Readings::write_totals) or its sibling wrote; lines that cannot be read are left
    /// out. Of ten thousand clusters that takes some 10 ms.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let mut former = Self::default();
        for line in String::from_utf8_lossy(text).lines().take(SERIES_MAX) {
            let Some((family, rest)) = line.split_once('\t') else { continue };
            let (labels, value) = rest.split_at(rest.rfind('\t').map_or(0, |end| end + 1));
            let Some(value) = Value::read(value).filter(|value| !value.is_nothing()) else {
                continue;
            };
            let series = match former.families.get_mut(family) {
                Some(series) => series,
                None => former.families.entry(family.to_owned()).or_default(),
            };
            series.insert(labels.into(), value);
        }
        former
    }

    /// Adds what other processes had counted. A series of another kind stays as it is.
    pub(crate) fn add(&mut self, other: &Self) {
        for (family, series) in &other.families {
            let into = self.families.entry(family.clone()).or_default();
            for (labels, value) in series {
                match into.get_mut(labels) {
                    Some(there) => there.add(value),
                    None => drop(into.insert(labels.clone(), value.clone())),
                }
            }
        }
    }

    /// Forgets what was counted for listeners, route tables and clusters of these names. Costs what there is of them.
    pub(crate) fn forget(&mut self, gone: &NameSets<'_>) {
        for (series, names) in self.named(gone) {
            for name in names {
                let of_name: Vec<_> =
                    of_label(series, name).map(|(labels, _)| labels.clone()).collect();
                of_name.iter().for_each(|labels| drop(series.remove(labels)));
            }
        }
    }

    /// Forgets what was counted for those of other names.
    pub(crate) fn forget_others(&mut self, named: &NameSets<'_>) {
        for (series, names) in self.named(named) {
            series.retain(|labels, _| {
                let first = labels.split('\t').next().map(unescaped).unwrap_or_default();
                names.contains(&*first)
            });
        }
    }

    /// Forgets what this version does not know.
    pub(crate) fn forget_unknown(&mut self) {
        let known: BTreeSet<_> = families().map(|(_, family)| family.name).collect();
        self.families.retain(|family, _| known.contains(&**family));
    }

    /// The same of a process that has ended: nothing of what began there is open.
    pub(crate) fn all_ended(mut self) -> Self {
        for value in self.families.values_mut().flat_map(BTreeMap::values_mut) {
            if let Value::Level(up, down) = value {
                *down = *up;
            }
        }
        self
    }

    /// Calls the rules of a table as they are called `now`, by what they were called `before`, and forgets what was counted for
    /// others.
    pub(crate) fn rename_rules(&mut self, before: &RouteNames, now: &RouteNames) {
        for family in [ROUTE_EXCHANGES, WEIGHTED_EXCHANGES] {
            let Some(series) = self.families.get_mut(family) else { continue };
            let is_weighted = family == WEIGHTED_EXCHANGES;
            let weighted = if is_weighted { now.weighted().collect() } else { BTreeSet::new() };
            let renaming = Renaming { before, now, weighted };
            let of_table = of_label(series, &now.name).map(|(labels, _)| labels);
            let other = of_table.filter_map(|labels| {
                let renamed = renaming.labels(labels);
                (renamed.as_deref() != Some(&**labels)).then(|| (labels.clone(), renamed))
            });
            let others: Vec<_> = other.collect();
            let counts: Vec<_> =
                others.iter().map(|(labels, renamed)| (renamed, series.remove(labels))).collect();
            for (renamed, value) in counts {
                let (Some(labels), Some(value)) = (renamed, value) else { continue };
                match series.get_mut(&**labels) {
                    Some(there) => there.add(&value),
                    None => drop(series.insert(labels.as_str().into(), value)),
                }
            }
        }
    }

    /// The series of each family of which the first label is one of these names, and these.
    fn named<'f, 'n>(
        &'f mut self,
        names: &'f NameSets<'n>,
    ) -> impl Iterator<Item = (&'f mut Series, &'f BTreeSet<&'n str>)> {
        let labels: BTreeMap<_, _> = families()
            .filter_map(|(_, family)| Some((family.name, names.of_label(family.labels.first()?)?)))
            .collect();
        let known = move |(name, series): (&String, &'f mut Series)| {
            Some((series, *labels.get(name.as_str())?))
        };
        self.families.iter_mut().filter_map(known)
    }

    /// Whether nothing was counted, or nothing is known of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// What left this process and did not come back, by the families of what is open: as what ended.
    pub(crate) fn away(view: &View<'_>) -> Self {
        let mut away = Self::default();
        let mut note = |family: &str, name: &str, count: u64| {
            if count != 0 {
                let series = away.families.entry(family.to_owned()).or_default();
                series.insert(labels_text(&[name]).into(), Value::Level(0, count));
            }
        };
        for (listener, blocks) in &view.listeners {
            let sum = |of: fn(&ListenerBlock) -> &Counter| total_wrapping(blocks, of);
            note(CONNECTIONS, listener, sum(|block| &block.connections.away));
            note(EXCHANGES, listener, sum(|block| &block.exchanges.away));
            note(TUNNELS, listener, sum(|block| &block.exchanges.tunnels_away));
        }
        for (cluster, blocks) in &view.clusters {
            note(UPSTREAMS, cluster, total_wrapping(blocks, |block| &block.away));
        }
        away
    }

    /// What left since `before` was taken, without what there is less of. Of either, what is not noted is 0.
    pub(crate) fn left_since(&self, before: &Self) -> Self {
        let mut left = Self::default();
        let noted = self.families.iter().chain(&before.families);
        let noted = noted.flat_map(|(family, series)| series.keys().map(move |it| (family, it)));
        for (family, labels) in noted {
            let more = self.ended(family, labels).wrapping_sub(before.ended(family, labels));
            if i64::try_from(more).is_ok_and(|more| more > 0) {
                let into = left.families.entry(family.clone()).or_default();
                into.insert(labels.clone(), Value::Level(0, more));
            }
        }
        left
    }

    /// What of a series has ended.
    fn ended(&self, family: &str, labels: &str) -> u64 {
        let value = self.families.get(family).and_then(|series| series.get(labels));
        if let Some(Value::Level(_, ended)) = value { *ended } else { 0 }
    }

    /// What was open in these processes and is not in this one, which `away` is of: as what ended. What came here left there, and is
    /// less than none of what left here.
    pub(crate) fn not_in(&self, away: &Self) -> Self {
        let mut lost = Self::default();
        for (family, series) in &self.families {
            for (labels, value) in series {
                let Value::Level(up, down) = value else { continue };
                let open = up.wrapping_sub(*down).wrapping_add(away.ended(family, labels));
                if i64::try_from(open).is_ok_and(|open| open > 0) {
                    let into = lost.families.entry(family.clone()).or_default();
                    into.insert(labels.clone(), Value::Level(0, open));
                }
            }
        }
        lost
    }

    /// All that a process has counted, with what those before it had.
    pub(crate) fn write(&self, view: &View<'_>) -> String {
        let mut text = String::new();
        let mut known = BTreeSet::new();
        for (_, family) in families().filter(|(_, family)| is_carried(family)) {
            known.insert(family.name);
            let mut writer = SeriesText { family: family.name, out: &mut text };
            self.samples(family, view, &mut writer);
        }
        for (family, series) in &self.families {
            if !known.contains(&**family) {
                for (labels, value) in series {
                    write_series(family, labels, value, &mut text);
                }
            }
        }
        text
    }

    /// The samples of a family, with what former processes had counted.
    pub(crate) fn samples(&self, family: &Family, view: &View<'_>, out: &mut dyn Samples) {
        let Some(series) = self.families.get(family.name).filter(|_| is_carried(family)) else {
            return (family.samples)(view, out);
        };
        let mut adding = Adding { series, seen: BTreeSet::new(), labels: String::new(), out };
        (family.samples)(view, &mut adding);
        let Adding { seen, out, .. } = adding;
        for (labels, value) in series.iter().filter(|(labels, _)| !seen.contains(&***labels)) {
            let labels: Vec<_> = labels.split_terminator('\t').map(unescaped).collect();
            // Of another version, with other labels.
            if labels.len() == family.labels.len() {
                let labels: Vec<_> = labels.iter().map(|label| &**label).collect();
                value.report(&labels, out);
            }
        }
    }
}

// What the admin interface's own pages show.
impl FormerTotals {
    /// What had begun and what had ended, of a series with this one label.
    pub(crate) fn level(&self, family: &str, name: &str) -> (u64, u64) {
        self.of(family, name).fold((0, 0), |(up, down), (_, value)| match value {
            Value::Level(more_up, more_down) => (up + more_up, down + more_down),
            Value::Number(_) | Value::Decimal(_) | Value::Histogram(..) => (up, down),
        })
    }

    /// The count of one series.
    pub(crate) fn number(&self, family: &str, labels: &[&str]) -> u64 {
        // Most processes are the first: there is nothing to look for.
        let Some(series) = self.families.get(family) else { return 0 };
        match series.get(&*labels_text(labels)) {
            Some(Value::Number(count)) => *count,
            _ => 0,
        }
    }

    /// The counts of a cluster, without what is open; and how many connections had been closed.
    pub(crate) fn cluster_totals(&self, name: &str) -> (ClusterTotals, u64) {
        let count = |family, is_counted: &dyn Fn(&str) -> bool| {
            let all = self.of(family, name);
            // Classes and causes are plain words.
            let all = all
                .filter(|(labels, _)| labels.split_terminator('\t').nth(1).is_none_or(is_counted));
            let numbers = all.map(|(_, value)| if let Value::Number(n) = value { *n } else { 0 });
            numbers.sum::<u64>()
        };
        let any = |_: &str| true;
        let failed = count("strait_upstream_exchanges_failed_total", &any);
        // An older version does not say which of those without a response failed.
        let failed = failed.max(count("strait_upstream_exchanges_total", &|class| class == "5xx"));
        let (opened, closed) = self.level("strait_upstream_connections_active", name);
        let mut times = HistogramTotals::default();
        for (_, value) in self.of("strait_upstream_exchange_seconds", name) {
            if let Value::Histogram(_, totals) = value {
                times.add_totals(totals);
            }
        }
        let totals = ClusterTotals {
            connections_total: opened,
            connect_failures_total: count("strait_upstream_connect_failures_total", &any),
            exchanges_total: count("strait_upstream_exchanges_total", &any),
            exchanges_failed_total: failed,
            exchanges_timed_total: times.count(),
            exchange_time_total: Duration::from_nanos(times.sum),
            retries_total: count("strait_upstream_retries_total", &any),
            ..ClusterTotals::default()
        };
        (totals, closed)
    }

    /// The series of a family whose first label is this name.
    fn of(&self, family: &str, name: &str) -> impl Iterator<Item = (&str, &Value)> {
        let series = self.families.get(family).into_iter();
        let all = series.flat_map(move |series| of_label(series, name));
        all.map(|(labels, value)| (&**labels, value))
    }
}

/// The series whose first label is this name.
fn of_label<'s>(
    series: &'s Series,
    name: &str,
) -> impl Iterator<Item = (&'s Box<str>, &'s Value)> + use<'s> {
    let first = labels_text(&[name]);
    let behind = series.range::<str, _>((Included(&*first), Unbounded));
    behind.take_while(move |(labels, _)| labels.starts_with(&*first))
}

/// How rules of a table were called, and how they are.
struct Renaming<'n> {
    before: &'n RouteNames,
    now: &'n RouteNames,
    /// The weighted clusters that there are, with the slots of their rules.
    weighted: BTreeSet<(u32, &'n str)>,
}

impl Renaming<'_> {
    /// The labels that a series of a rule, or of one of its weighted clusters, has now; none if that is not there any more.
    fn labels(&self, labels: &str) -> Option<String> {
        let labels: Vec<_> = labels.split_terminator('\t').skip(1).map(unescaped).collect();
        let (label, clusters) = labels.split_first()?;
        let slot = self.before.slot_of(label).or_else(|| self.slot_by_place(label))?;
        let cluster = clusters.first().map(String::as_str);
        if cluster.is_some_and(|cluster| !self.weighted.contains(&(slot, cluster))) {
            return None;
        }
        let labels = [&self.now.name, self.now.rule(slot)?].into_iter();
        Some(labels_text(&labels.chain(cluster).collect::<Vec<_>>()))
    }

    /// The slot of a rule by what earlier versions called it: its place, and its name or what it matches.
    fn slot_by_place(&self, label: &str) -> Option<u32> {
        let (place, text) = label.split_once(' ')?;
        let is_text = |label: &str| {
            let number = label.strip_prefix(text);
            number.is_some_and(|number| number.is_empty() || number.starts_with(" ("))
        };
        let there = self.before.rule_at(place.parse().ok()?).filter(|(_, label)| is_text(label));
        there.map(|(slot, _)| slot).or_else(|| self.before.slot_of(text))
    }
}

/// The sum of numbers that go both ways.
fn total_wrapping<B>(blocks: &[&B], of: impl Fn(&B) -> &Counter) -> u64 {
    blocks.iter().map(|block| of(block).value()).fold(0, u64::wrapping_add)
}

/// What goes along: all but gauges of other kinds, and the process's own figures.
fn is_carried(family: &Family) -> bool {
    const LEVELS: [&str; 4] = [CONNECTIONS, EXCHANGES, TUNNELS, UPSTREAMS];
    let is_level = LEVELS.contains(&family.name);
    let is_own = family.name.starts_with("process_");
    !is_own && (family.kind != MetricType::Gauge || is_level)
}

impl Value {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        if kind == "d" {
            return words.next()?.parse().ok().map(Self::Decimal);
        }
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        Some(match (kind, &*numbers?) {
            ("n", [number]) => Self::Number(*number),
            ("l", [up, down]) => Self::Level(*up, *down),
            ("f" | "c", [sum, buckets @ ..]) => {
                Self::Histogram(kind == "f", Box::new(HistogramTotals::of(*sum, buckets)?))
            }
            _ => return None,
        })
    }

    /// Whether it is what a series has that nothing was counted of.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Decimal(number) => *number == 0.0,
            Self::Level(up, down) => (*up, *down) == (0, 0),
            Self::Histogram(_, totals) => totals.is_empty(),
        }
    }

    fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Number(sum), Self::Number(more)) => *sum = sum.wrapping_add(*more),
            (Self::Decimal(sum), Self::Decimal(more)) => *sum += more,
            (Self::Level(up, down), Self::Level(more_up, more_down)) => {
                *up = up.wrapping_add(*more_up);
                *down = down.wrapping_add(*more_down);
            }
            (Self::Histogram(_, sum), Self::Histogram(_, more)) => sum.add_totals(more),
            (
                Self::Number(_) | Self::Decimal(_) | Self::Level(..) | Self::Histogram(..),
                Self::Number(_) | Self::Decimal(_) | Self::Level(..) | Self::Histogram(..),
            ) => {}
        }
    }

    fn write(&self, out: &mut String) {
        let _ = match self {
            Self::Number(number) => write!(out, "n {number}"),
            Self::Decimal(number) => write!(out, "d {number}"),
            Self::Level(up, down) => write!(out, "l {up} {down}"),
            Self::Histogram(is_fine, totals) => {
                let kind = if *is_fine { 'f' } else { 'c' };
                let _ = write!(out, "{kind} {}", totals.sum);
                totals.buckets().iter().try_for_each(|bucket| write!(out, " {bucket}"))
            }
        };
    }

    fn report(&self, labels: &[&str], out: &mut dyn Samples) {
        match self {
            Self::Number(number) => out.number(labels, *number),
            Self::Decimal(number) => out.decimal(labels, *number),
            Self::Level(up, down) => out.level(labels, *up, *down),
            Self::Histogram(true, totals) => out.histogram(labels, &BOUNDS_FINE, totals),
            Self::Histogram(false, totals) => out.histogram(labels, &BOUNDS_COARSE, totals),
        }
    }
}

/// Adds what former processes had counted to samples that it passes on.
struct Adding<'a> {
    series: &'a Series,
    /// Those of them that were added.
    seen: BTreeSet<&'a str>,
    /// The labels that are looked for.
    labels: String,
    out: &'a mut dyn Samples,
}

impl<'a> Adding<'a> {
    fn former(&mut self, labels: &[&str]) -> Option<&'a Value> {
        self.labels.clear();
        labels.iter().for_each(|label| push_label(label, &mut self.labels));
        let (labels, value) = self.series.get_key_value(&*self.labels)?;
        self.seen.insert(labels);
        Some(value)
    }
}

impl Samples for Adding<'_> {
    fn number(&mut self, labels: &[&str], value: u64) {
        let former = match self.former(labels) {
            Some(Value::Number(former)) => *former,
            _ => 0,
        };
        self.out.number(labels, value.wrapping_add(former));
    }

    fn decimal(&mut self, labels: &[&str], value: f64) {
        let former = match self.former(labels) {
            Some(Value::Decimal(former)) => *former,
            _ => 0.0,
        };
        self.out.decimal(labels, value + former);
    }

    fn level(&mut self, labels: &[&str], up: u64, down: u64) {
        let (former_up, former_down) = match self.former(labels) {
            Some(Value::Level(up, down)) => (*up, *down),
            _ => (0, 0),
        };
        self.out.level(labels, up.wrapping_add(former_up), down.wrapping_add(former_down));
    }

    fn histogram(&mut self, labels: &[&str], bounds: &[Bound], times: &HistogramTotals) {
        let mut times = times.clone();
        if let Some(Value::Histogram(_, former)) = self.former(labels) {
            times.add_totals(former);
        }
        self.out.histogram(labels, bounds, &times);
    }
}

/// Writes series as lines.
struct SeriesText<'o> {
    family: &'static str,
    out: &'o mut String,
}

impl SeriesText<'_> {
    /// What is 0 is so without being said: most series of most clusters.
    fn line(&mut self, labels: &[&str], value: &Value) {
        if !value.is_nothing() {
            write_series(self.family, &labels_text(labels), value, self.out);
        }
    }
}

impl Samples for SeriesText<'_> {
    fn number(&mut self, labels: &[&str], value: u64) {
        self.line(labels, &Value::Number(value));
    }

    fn decimal(&mut self, labels: &[&str], value: f64) {
        self.line(labels, &Value::Decimal(value));
    }

    fn level(&mut self, labels: &[&str], up: u64, down: u64) {
        self.line(labels, &Value::Level(up, down));
    }

    fn histogram(&mut self, labels: &[&str], bounds: &[Bound], times: &HistogramTotals) {
        if !times.is_empty() {
            let is_fine = bounds.len() == BOUNDS_FINE.len();
            self.line(labels, &Value::Histogram(is_fine, Box::new(times.clone())));
        }
    }
}

/// `labels` are as [`Series`] has them.
fn write_series(family: &str, labels: &str, value: &Value, out: &mut String) {
    out.push_str(family);
    out.push('\t');
    out.push_str(labels);
    value.write(out);
    out.push('\n');
}

fn labels_text(labels: &[&str]) -> String {
    let mut text = String::new();
    labels.iter().for_each(|label| push_label(label, &mut text));
    text
}

fn push_label(label: &str, text: &mut String) {
    for character in label.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            other => text.push(other),
        }
    }
    text.push('\t');
}

fn unescaped(text: &str) -> String {
    let mut characters = text.chars();
    let mut out = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => break,
            },
            other => other,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_damage_is_left_out() {
        let mut histogram = HistogramTotals::default();
        histogram.sum = 9;
        let mut text = String::new();
        for value in [
            Value::Number(7),
            Value::Decimal(0.5),
            Value::Level(9, 4),
            Value::Histogram(true, Box::new(histogram)),
        ] {
            write_series("strait_x_total", &labels_text(&["a\tb\\\n", "c"]), &value, &mut text);
        }
        for line in text.lines() {
            let former = FormerTotals::read(line.as_bytes());
            let [(labels, value)] =
                &former.families["strait_x_total"].iter().collect::<Vec<_>>()[..]
            else {
                panic!("{line}");
            };
            let read: Vec<_> = labels.split_terminator('\t').map(unescaped).collect();
            assert_eq!(read, ["a\tb\\\n", "c"]);
            let mut again = String::new();
            write_series("strait_x_total", labels, value, &mut again);
            assert_eq!(again.trim_end(), line);
            for end in 0..line.len() {
                let _ = FormerTotals::read(&line.as_bytes()[..end]);
            }
        }
        assert!(
            FormerTotals::read(b"\xff\nx\nx\tz 1\nx\tn\nx\tl 1\nx\tf 1 2\n").families.is_empty()
        );
    }

    #[test]
    fn what_several_processes_counted_is_added_by_series() {
        let lines = |number: u32, up: u32, down: u32| {
            format!("strait_x_total\ta\tn {number}\nstrait_y\tb\tl {up} {down}\nstrait_z\td 0.5\n")
        };
        let mut sum = FormerTotals::read(lines(1, 5, 2).as_bytes());
        sum.add(&FormerTotals::read(lines(2, 1, 4).as_bytes()));
        sum.add(&FormerTotals::read(b"strait_x_total\tc\tn 7\nstrait_z\tn 3\n"));
        let number =
            |family: &str, label: &str| match &sum.families[family][&*labels_text(&[label])] {
                Value::Number(number) => *number,
                other => panic!("{other:?}"),
            };
        assert_eq!((number("strait_x_total", "a"), number("strait_x_total", "c")), (3, 7));
        assert_eq!(sum.level("strait_y", "b"), (6, 6));
        let Value::Decimal(decimal) = sum.families["strait_z"][""] else { panic!() };
        assert!((decimal - 1.0).abs() < 1e-9, "another kind adds nothing");
    }
}
