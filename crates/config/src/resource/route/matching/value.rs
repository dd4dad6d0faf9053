//! A condition on one value of a request: of a header field, a query parameter or a cookie.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::regexes::{Patterns, Regexes, Searches};
use crate::findings::{Findings, Problem};
use crate::text::tree::Site;

/// A condition on a value: a text that it must equal, or a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ValueKey {
    /// The value equals this text.
    Text(String),
    /// Another condition.
    Map(Box<ValueMap>),
}

/// A condition on a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["exact"]}, {"required": ["prefix"]}, {"required": ["suffix"]},
    {"required": ["contains"]}, {"required": ["regex"]}, {"required": ["range"]},
    {"required": ["present"]}, {"required": ["not"]},
]))]
pub struct ValueMap {
    /// The value equals this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// The value begins with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The value ends with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// The value contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// A regular expression matches the whole value, in linear time. `\d`, `\w` and `.` refer to ASCII.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Two whole numbers: the value is a whole number from the first to below the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Vec<i64>>,
    /// Whether there is a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// A condition that must not match. It does not match a missing value, either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Not>,
    /// Whether a missing value counts as an empty one.
    #[serde(skip_serializing_if = "is_false")]
    pub missing_as_empty: bool,
    /// Whether the case of ASCII letters matters.
    #[serde(skip_serializing_if = "is_default")]
    pub case: Case,
}

/// An inverted condition: a text, or a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Not {
    /// The value equals this text.
    Text(String),
    /// Another condition.
    Map(NotMap),
}

/// An inverted condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["exact"]}, {"required": ["prefix"]}, {"required": ["suffix"]},
    {"required": ["contains"]}, {"required": ["regex"]}, {"required": ["range"]},
]))]
pub struct NotMap {
    /// The value equals this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// The value begins with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The value ends with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// The value contains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// A regular expression matches the whole value, in linear time. `\d`, `\w` and `.` refer to ASCII.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Two whole numbers: the value is a whole number from the first to below the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Vec<i64>>,
}

/// Whether the case of ASCII letters matters.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Upper and lower case differ.
    #[default]
    Sensitive,
    /// Upper and lower case are equal.
    Insensitive,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_false(value: &bool) -> bool {
    !*value
}

pub(super) fn is_default(case: &Case) -> bool {
    *case == Case::default()
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    test: Test,
    is_inverted: bool,
    missing_as_empty: bool,
    case: Case,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Present(bool),
    Exact(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Contains(Box<str>),
    /// With its place among the table's.
    Regex(Box<str>, u32),
    /// From the first to below the second.
    Range(i64, i64),
}

impl Value {
    /// Met by this value alone.
    #[must_use]
    pub fn exactly(text: &str) -> Self {
        let test = Test::Exact(text.into());
        Self { test, is_inverted: false, missing_as_empty: false, case: Case::default() }
    }

    /// Whether it says nothing of what the value is.
    pub(super) const fn asks_only_for_presence(&self) -> bool {
        matches!(self.test, Test::Present(_))
    }

    /// Whether `value` meets it; none if there is no value.
    pub(super) fn is_met(
        &self,
        value: Option<&[u8]>,
        regexes: &Arc<Regexes>,
        searches: &mut Searches,
    ) -> bool {
        if let Test::Present(is_asked) = self.test {
            return value.is_some() == is_asked;
        }
        let value = if self.missing_as_empty { Some(value.unwrap_or_default()) } else { value };
        value.is_some_and(|value| self.holds(value, regexes, searches) != self.is_inverted)
    }

    fn holds(&self, value: &[u8], regexes: &Arc<Regexes>, searches: &mut Searches) -> bool {
        let is_same = |a: &[u8], b: &str| match self.case {
            Case::Sensitive => a == b.as_bytes(),
            Case::Insensitive => a.eq_ignore_ascii_case(b.as_bytes()),
        };
        match &self.test {
            Test::Present(is_asked) => *is_asked,
            Test::Exact(text) => is_same(value, text),
            Test::Prefix(text) => value.get(..text.len()).is_some_and(|start| is_same(start, text)),
            Test::Suffix(text) => {
                let start = value.len().checked_sub(text.len());
                start.and_then(|start| value.get(start..)).is_some_and(|end| is_same(end, text))
            }
            Test::Contains(text) => match self.case {
                Case::Sensitive => memchr::memmem::find(value, text.as_bytes()).is_some(),
                Case::Insensitive => value.windows(text.len()).any(|part| is_same(part, text)),
            },
            Test::Regex(_, place) => searches.is_match(regexes, *place, value),
            Test::Range(start, end) => number(value).is_some_and(|it| (*start..*end).contains(&it)),
        }
    }

    /// The value that it asks for, if it is met by nothing else.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        match &self.test {
            Test::Exact(text)
                if !self.is_inverted
                    && self.case == Case::Sensitive
                    // An absent value is looked up by nothing.
                    && !(self.missing_as_empty && text.is_empty()) =>
            {
                Some(text.as_bytes())
            }
            _ => None,
        }
    }
}

/// A decimal number, as Envoy reads one: with a sign, if any, and white space around it.
fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.is_inverted { "not " } else { "" };
        match &self.test {
            Test::Present(true) => f.write_str("present"),
            Test::Present(false) => f.write_str("absent"),
            Test::Exact(text) => write!(f, "{not}{text:?}"),
            Test::Prefix(text) => write!(f, "{not}prefix {text:?}"),
            Test::Suffix(text) => write!(f, "{not}suffix {text:?}"),
            Test::Contains(text) => write!(f, "{not}containing {text:?}"),
            Test::Regex(text, _) => write!(f, "{not}regex {text:?}"),
            Test::Range(start, end) => write!(f, "{not}from {start} to below {end}"),
        }?;
        if self.case == Case::Insensitive {
            f.write_str(" in any case")?;
        }
        if self.missing_as_empty { f.write_str(", absent as empty") } else { Ok(()) }
    }
}

/// A condition out of the file, and its regular expression among the table's. None if something is wrong with it, which
/// is reported.
pub(crate) fn build(
    key: &ValueKey,
    site: &Site<'_>,
    patterns: &mut Patterns,
    findings: &mut Findings<'_>,
) -> Option<Value> {
    let map = match key {
        ValueKey::Text(text) => return Some(Value::exactly(text)),
        ValueKey::Map(map) => map.as_ref(),
    };
    let ValueMap { exact, prefix, suffix, contains, regex, range, .. } = map.clone();
    let plain = NotMap { exact, prefix, suffix, contains, regex, range };
    let mut builder = Builder { case: map.case, patterns, findings };
    let (test, is_inverted) = match (&map.present, &map.not) {
        (Some(is_asked), _) => (builder.present(*is_asked, map, site), false),
        (None, Some(Not::Text(text))) => (Some(Test::Exact(text.as_str().into())), true),
        (None, Some(Not::Map(not))) => (builder.test(not, &site.key("not")), true),
        (None, None) => (builder.test(&plain, site), false),
    };
    let (missing_as_empty, case) = (map.missing_as_empty, map.case);
    Some(Value { test: test?, is_inverted, missing_as_empty, case })
}

struct Builder<'b, 'f> {
    case: Case,
    patterns: &'b mut Patterns,
    findings: &'b mut Findings<'f>,
}

impl Builder<'_, '_> {
    fn test(&mut self, map: &NotMap, site: &Site<'_>) -> Option<Test> {
        let NotMap { exact, prefix, suffix, contains, regex, range } = map;
        if let Some(text) = exact {
            return Some(Test::Exact(text.as_str().into()));
        }
        if let Some(text) = prefix {
            return self.part("prefix", text, site).map(Test::Prefix);
        }
        if let Some(text) = suffix {
            return self.part("suffix", text, site).map(Test::Suffix);
        }
        if let Some(text) = contains {
            return self.part("contains", text, site).map(Test::Contains);
        }
        if let Some(text) = regex {
            let place = match self.patterns.add(text, self.case) {
                Ok(place) => place,
                Err(problem) => {
                    site.key("regex").error(self.findings, problem);
                    return None;
                }
            };
            return Some(Test::Regex(text.as_str().into(), place));
        }
        self.range(range.as_deref()?, site)
    }

    /// A part of a value, which every value has if it is empty.
    fn part(&mut self, key: &str, text: &str, site: &Site<'_>) -> Option<Box<str>> {
        if text.is_empty() {
            let hint = "write `present: true` for any value";
            let problem = Problem::new("every value contains the empty text", hint);
            site.key(key).error(self.findings, problem);
            return None;
        }
        Some(text.into())
    }

    fn range(&mut self, range: &[i64], site: &Site<'_>) -> Option<Test> {
        let problem = match range {
            [start, end] if start < end => {
                if self.case == Case::Insensitive {
                    let problem = Problem::new("numbers have no case", "remove `case`");
                    site.key("range").error(self.findings, problem);
                }
                return Some(Test::Range(*start, *end));
            }
            [start, end] => Problem::new(
                "a range leads from a number to below a larger one, so this one is empty",
                if start == end {
                    format!("write [{start}, {}] for {start} alone", start.saturating_add(1))
                } else {
                    format!("write [{end}, {start}]")
                },
            ),
            _ => Problem::new("a range has two numbers", "write [18, 99] for 18 to 98"),
        };
        site.key("range").error(self.findings, problem);
        None
    }

    /// What else stands beside `present` says nothing.
    fn present(&mut self, is_asked: bool, map: &ValueMap, site: &Site<'_>) -> Option<Test> {
        for (key, stands) in
            [("missing_as_empty", map.missing_as_empty), ("case", map.case == Case::Insensitive)]
        {
            if stands {
                let rule = format!("`{key}` has no effect beside `present`");
                site.key_error(self.findings, key, Problem::new(rule, "remove it"));
                return None;
            }
        }
        Some(Test::Present(is_asked))
    }
}
