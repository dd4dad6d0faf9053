//! The texts in which metrics are reported: Prometheus' and the plain one of `/stats`.

use std::fmt::Write as _;

use crate::histogram::HistogramTotals;
use crate::metrics::{Bound, Family, Samples, seconds};

/// Quantiles in the plain text.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999")];

/// Writes a family in the Prometheus text format 0.0.4.
#[derive(Debug)]
pub(crate) struct PrometheusText<'o> {
    family: &'static Family,
    out: &'o mut String,
}

impl<'o> PrometheusText<'o> {
    /// Writes the family's `HELP` and `TYPE`.
    pub(crate) fn begin(family: &'static Family, out: &'o mut String) -> Self {
        let Family { name, kind, help, .. } = family;
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
        Self { family, out }
    }

    fn name(&mut self, suffix: &str, labels: &[&str], last: Option<(&str, &str)>) {
        write_name(self.out, self.family, suffix, labels, last);
        self.out.push(' ');
    }
}

impl Samples for PrometheusText<'_> {
    fn number(&mut self, labels: &[&str], value: u64) {
        self.name("", labels, None);
        let _ = writeln!(self.out, "{value}");
    }

    fn decimal(&mut self, labels: &[&str], value: f64) {
        self.name("", labels, None);
        let _ = writeln!(self.out, "{value}");
    }

    fn histogram(&mut self, labels: &[&str], bounds: &[Bound], times: &HistogramTotals) {
        for bound in bounds {
            self.name("_bucket", labels, Some(("le", bound.text)));
            let _ = writeln!(self.out, "{}", times.count_up_to(bound.ns));
        }
        let count = times.count();
        self.name("_bucket", labels, Some(("le", "+Inf")));
        let _ = writeln!(self.out, "{count}");
        self.name("_sum", labels, None);
        let _ = writeln!(self.out, "{}", seconds(times.sum));
        self.name("_count", labels, None);
        let _ = writeln!(self.out, "{count}");
    }
}

/// Writes a family as lines `name value`.
#[derive(Debug)]
pub(crate) struct StatsText<'o> {
    family: &'static Family,
    filter: &'o Glob,
    out: &'o mut String,
}

impl<'o> StatsText<'o> {
    pub(crate) fn new(family: &'static Family, filter: &'o Glob, out: &'o mut String) -> Self {
        Self { family, filter, out }
    }

    fn line(&mut self, suffix: &str, labels: &[&str], value: std::fmt::Arguments<'_>) {
        let start = self.out.len();
        write_name(self.out, self.family, suffix, labels, None);
        if self.filter.is_match(self.out.get(start..).unwrap_or_default()) {
            let _ = writeln!(self.out, " {value}");
        } else {
            self.out.truncate(start);
        }
    }
}

impl Samples for StatsText<'_> {
    fn number(&mut self, labels: &[&str], value: u64) {
        self.line("", labels, format_args!("{value}"));
    }

    fn decimal(&mut self, labels: &[&str], value: f64) {
        self.line("", labels, format_args!("{value}"));
    }

    fn histogram(&mut self, labels: &[&str], _bounds: &[Bound], times: &HistogramTotals) {
        self.line("_count", labels, format_args!("{}", times.count()));
        self.line("_sum", labels, format_args!("{}", seconds(times.sum)));
        for (share, word) in QUANTILES {
            if let Some(value) = times.quantile(share) {
                let suffix = format!("_{word}");
                self.line(&suffix, labels, format_args!("{}", seconds(value)));
            }
        }
    }
}

/// A pattern in which `*` stands for anything, and of which a text has to have the parts in their order.
#[derive(Debug)]
pub struct Glob {
    parts: Vec<Box<str>>,
}

impl Glob {
    /// A pattern out of its text; an empty one for all.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        let parts = pattern.split('*').filter(|part| !part.is_empty()).map(Box::from).collect();
        Self { parts }
    }

    /// Whether `text` has its parts.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        let mut rest = text;
        self.parts.iter().all(|part| match rest.split_once(&**part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }
}

/// Writes `name{label="value",…}`.
fn write_name(
    out: &mut String,
    family: &Family,
    suffix: &str,
    labels: &[&str],
    last: Option<(&str, &str)>,
) {
    debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
    out.push_str(family.name);
    out.push_str(suffix);
    let mut separator = '{';
    for (label, value) in family.labels.iter().copied().zip(labels.iter().copied()).chain(last) {
        out.push(separator);
        separator = ',';
        out.push_str(label);
        out.push_str("=\"");
        write_label_value(out, value);
        out.push('"');
    }
    if separator == ',' {
        out.push('}');
    }
}

/// Backslash, quote and line feed are what the format wants escaped.
fn write_label_value(out: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_part_of_the_name_and_a_star_is_anything() {
        for (pattern, text, is_match) in [
            ("", "anything", true),
            ("*", "", true),
            ("stage", "strait_exchange_stage_seconds", true),
            ("stage*total", "strait_exchange_stage_seconds{stage=\"total\"}", true),
            ("total*stage", "strait_exchange_stage_seconds{stage=\"total\"}", false),
            ("aa*a", "aa", false),
            ("aa*a", "aaa", true),
            ("Stage", "stage", false),
        ] {
            assert_eq!(Glob::new(pattern).is_match(text), is_match, "{pattern} in {text}");
        }
    }

    #[test]
    fn label_values_cannot_end_their_quotes_or_their_line() {
        let mut out = String::new();
        write_label_value(&mut out, "a\"} 1\nb\\");
        assert_eq!(out, "a\\\"} 1\\nb\\\\");
    }
}
