//! `error_pages`: what replies to failures say, in place of a line of plain text.
//!
//! A page is text with variables. Some of them hold what the client sent, so their values are escaped for the
//! type of the page; see `Form`.

pub(crate) mod build;

use std::ops::RangeInclusive;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::findings::Problem;
use crate::nearest;
use crate::resource::access_log::file::Status;

/// Bytes of a page: each reply has a copy of it.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Variables of a page, so that a client's long request id does not make a large reply of a small page.
const VARIABLES_MAX: usize = 32;

/// The causes that a reply may have. `telemetry` has all causes and this crate does not see it; a test of
/// `proxy` compares the two.
pub const CAUSES: [&str; 55] = [
    "request_invalid",
    "request_framing_invalid",
    "request_header_underscore",
    "request_host_invalid",
    "request_target_invalid",
    "request_line_too_long",
    "request_head_too_large",
    "request_body_invalid",
    "request_body_too_large",
    "request_not_implemented",
    "request_version_unsupported",
    "request_expectation_unknown",
    "http2_invalid",
    "http2_abuse",
    "http2_ping_timeout",
    "request_head_timeout",
    "request_body_timeout",
    "request_too_slow",
    "stalled",
    "no_host",
    "no_route",
    "request_misdirected",
    "request_too_early",
    "filter_reply",
    "no_cluster",
    "no_endpoint",
    "no_original_destination",
    "pending_overflow",
    "requests_overflow",
    "concurrency_limited",
    "pending_timeout",
    "filter_timeout",
    "client_exchanges_overflow",
    "overloaded",
    "buffered_overflow",
    "request_timeout",
    "connection_age",
    "drain_timeout",
    "out_of_descriptors",
    "connect_failed",
    "connect_timeout",
    "upstream_tls_failed",
    "upstream_closed",
    "stream_refused",
    "upstream_going_away",
    "stream_reset",
    "response_unasked",
    "response_invalid",
    "response_head_too_large",
    "response_body_too_large",
    "try_timeout",
    "response_head_timeout",
    "response_body_timeout",
    "response_truncated",
    "request_write_timeout",
];

/// A page, and the failures that it is used for: all of `status` and `cause` that are present must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["body"]}, {"required": ["file"]}]))]
pub struct ErrorPage {
    /// Statuses: `503`, `5xx`, `500-504`. Absent: all from 400 on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// Causes, from the list in [METRICS.md](../METRICS.md). Absent: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cause: Vec<String>,
    /// The page. `{{status}}`, `{{reason}}`, `{{cause}}`, `{{request_id}}`, `{{host}}` and `{{date}}` are replaced by
    /// the status, its phrase, the cause, `x-request-id`, the host of the request without port, and the date of the
    /// reply. At most 64 KiB, with at most 32 variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Instead of `body`: path of a file with the page, relative to the folder of the configuration, and watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its `content-type`. Absent: `text/plain` for a `body`; for a `file`, by its extension, which must be .html,
    /// .htm, .txt, .json or .xml; both in UTF-8. Values of variables are escaped for HTML, XML and JSON, and unchanged
    /// in `text/plain`. In other types, all characters except letters, digits and `-._~:/` are percent-encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// Pages in the order of the file. The first that is for a failure is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages(pub(crate) Arc<[Page]>);

/// A page, ready to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub(crate) statuses: Box<[RangeInclusive<u16>]>,
    pub(crate) causes: Box<[Box<str>]>,
    pub(crate) source: Source,
    pub(crate) content_type: Box<str>,
    pub(crate) pieces: Pieces,
}

/// Pieces of text, each with the variable behind it.
pub(crate) type Pieces = Box<[(Box<str>, Option<Variable>)]>;

/// Where the text of a page stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Body(Box<str>),
    File(Box<str>),
}

/// What a variable stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The status, in digits.
    Status,
    /// Its standard phrase.
    Reason,
    /// The cause, in the words of the access log; empty if there is none.
    Cause,
    /// `x-request-id`; empty if there is none.
    RequestId,
    /// The request's host without its port; empty if there is none.
    Host,
    /// The date of the reply (RFC 9110, section 5.6.7).
    Date,
}

impl Variable {
    const ALL: [(&str, Self); 6] = [
        ("status", Self::Status),
        ("reason", Self::Reason),
        ("cause", Self::Cause),
        ("request_id", Self::RequestId),
        ("host", Self::Host),
        ("date", Self::Date),
    ];
}

/// How values are escaped. What no form lets through, control characters and bytes beyond ASCII, is
/// percent-encoded in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As character references: safe as text and in quoted attributes.
    Markup,
    /// As in a string of JSON, with `<` and `>` escaped as well.
    Json,
    /// As they are.
    Plain,
    /// All but letters, digits and `-._~:/` percent-encoded.
    Other,
}

impl Form {
    fn of(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/plain" => Self::Plain,
            "text/html" | "text/xml" | "application/xml" => Self::Markup,
            "application/json" => Self::Json,
            other if other.ends_with("+xml") => Self::Markup,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Other,
        }
    }

    fn push(self, value: &[u8], out: &mut Vec<u8>) {
        for &octet in value {
            let safe = octet.is_ascii_alphanumeric() || b"-._~:/".contains(&octet);
            let shown = octet.is_ascii_graphic() || octet == b' ';
            match (self, octet) {
                (_, octet) if safe => out.push(octet),
                (Self::Markup, b'&' | b'<' | b'>' | b'"' | b'\'' | b'`') => {
                    out.extend_from_slice(format!("&#{octet};").as_bytes());
                }
                (Self::Json, b'"' | b'\\' | b'<' | b'>' | b'&' | b'\'') => {
                    out.extend_from_slice(format!("\\u{octet:04x}").as_bytes());
                }
                (Self::Markup | Self::Json | Self::Plain, octet) if shown => out.push(octet),
                _ => out.extend_from_slice(format!("%{octet:02X}").as_bytes()),
            }
        }
    }
}

impl ErrorPages {
    /// The page for a reply with this status and cause, if there is one. Statuses below 400 have none.
    #[must_use]
    pub fn find(&self, status: u16, cause: Option<&str>) -> Option<&Page> {
        self.0.iter().find(|page| status >= 400 && page.is_for(status, cause))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Page {
    fn is_for(&self, status: u16, cause: Option<&str>) -> bool {
        let has_status = self.statuses.iter().any(|range| range.contains(&status));
        let has_cause = self.causes.iter().any(|known| Some(&**known) == cause);
        (has_status || self.statuses.is_empty()) && (has_cause || self.causes.is_empty())
    }

    /// Its `content-type`.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The page with these values, escaped, for its variables.
    #[must_use]
    pub fn fill<'v>(&self, value: impl Fn(Variable) -> &'v [u8]) -> Vec<u8> {
        let form = Form::of(&self.content_type);
        let mut out = Vec::new();
        for (text, variable) in &*self.pieces {
            out.extend_from_slice(text.as_bytes());
            if let Some(variable) = variable {
                form.push(value(*variable), &mut out);
            }
        }
        out
    }
}

/// Text and the variables in it, or why it is no page. `{{` begins a variable where a word and `}}` follow; elsewhere it is text.
pub(crate) fn pieces(text: &str) -> Result<Pieces, Problem> {
    if text.len() > PAGE_BYTES_MAX {
        let rule = format!("an error page has at most {} KiB", PAGE_BYTES_MAX >> 10);
        return Err(Problem::new(rule, "let it refer to images, scripts and styles"));
    }
    let mut pieces = Vec::new();
    let (mut start, mut from) = (0, 0);
    while let Some(found) = text.get(from..).and_then(|rest| rest.find("{{")) {
        let open = from + found;
        let Some((name, end)) = word_at(text, open) else {
            from = open + 1;
            continue;
        };
        let known = Variable::ALL.into_iter().find(|(known, _)| *known == name);
        let Some((_, variable)) = known else {
            let line = text.get(..open).unwrap_or_default().matches('\n').count() + 1;
            let names = Variable::ALL.into_iter().map(|(name, _)| name);
            let rule =
                format!("line {line} of the page has `{{{{{name}}}}}`, which is no variable");
            return Err(Problem::new(rule, nearest::hint(name, names, "")));
        };
        pieces.push((text.get(start..open).unwrap_or_default().into(), Some(variable)));
        (start, from) = (end, end);
    }
    if pieces.len() > VARIABLES_MAX {
        let rule = format!("an error page has at most {VARIABLES_MAX} variables");
        return Err(Problem::new(rule, "write what is the same each time as it is"));
    }
    pieces.push((text.get(start..).unwrap_or_default().into(), None));
    Ok(pieces.into())
}

/// The word between `{{`, which stands at `open`, and `}}`, with the place behind that.
fn word_at(text: &str, open: usize) -> Option<(&str, usize)> {
    let (inner, _) = text.get(open + 2..)?.split_once("}}")?;
    let word = inner.trim_matches(' ');
    let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_word.then_some((word, open + 2 + inner.len() + 2))
}

/// The pages as a file has them.
pub(crate) fn shown(pages: &ErrorPages) -> Vec<ErrorPage> {
    let shown = |page: &Page| ErrorPage {
        status: page.statuses.iter().map(shown_statuses).collect(),
        cause: page.causes.iter().map(ToString::to_string).collect(),
        body: match &page.source {
            Source::Body(text) => Some(text.to_string()),
            Source::File(_) => None,
        },
        file: match &page.source {
            Source::Body(_) => None,
            Source::File(path) => Some(path.to_string()),
        },
        content_type: Some(page.content_type.to_string()),
    };
    pages.0.iter().map(shown).collect()
}

fn shown_statuses(range: &RangeInclusive<u16>) -> Status {
    match (*range.start(), *range.end()) {
        (first, last) if first == last => Status::One(first),
        (first, last) => Status::Several(format!("{first}-{last}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(content_type: &str, text: &str, value: &[u8]) -> String {
        let page = Page {
            statuses: Box::default(),
            causes: Box::default(),
            source: Source::Body(text.into()),
            content_type: content_type.into(),
            pieces: pieces(text).unwrap(),
        };
        String::from_utf8(page.fill(|_| value)).unwrap()
    }

    #[test]
    fn values_are_escaped_for_the_type_of_the_page() {
        let value = b"a<b>&\"'`\\/ {{host}}\r\n\xff\x00";
        for (content_type, want) in [
            ("text/html", "a&#60;b&#62;&#38;&#34;&#39;&#96;\\/ {{host}}%0D%0A%FF%00"),
            (
                "Text/HTML ; charset=utf-8",
                "a&#60;b&#62;&#38;&#34;&#39;&#96;\\/ {{host}}%0D%0A%FF%00",
            ),
            ("application/xhtml+xml", "a&#60;b&#62;&#38;&#34;&#39;&#96;\\/ {{host}}%0D%0A%FF%00"),
            (
                "application/problem+json",
                "a\\u003cb\\u003e\\u0026\\u0022\\u0027`\\u005c/ {{host}}%0D%0A%FF%00",
            ),
            ("text/plain", "a<b>&\"'`\\/ {{host}}%0D%0A%FF%00"),
            ("application/javascript", "a%3Cb%3E%26%22%27%60%5C/%20%7B%7Bhost%7D%7D%0D%0A%FF%00"),
        ] {
            assert_eq!(filled(content_type, "{{host}}", value), want, "{content_type}");
        }
    }

    #[test]
    fn variables_are_words_in_two_braces() {
        for (text, want) in [
            ("", ""),
            ("no variable", "no variable"),
            ("{{status}}", "V"),
            ("a{{ status }}b{{cause}}{{date}}c", "aVbVVc"),
            ("{{{status}}}", "{V}"),
            ("{ {status} } {{ {{status}} {{", "{ {status} } {{ V {{"),
            ("{\"a\":{\"b\":{{status}}}}", "{\"a\":{\"b\":V}}"),
            ("{{1}} {{A}} {{}} {{a b}}", "{{1}} {{A}} {{}} {{a b}}"),
        ] {
            assert_eq!(filled("text/plain", text, b"V"), want, "{text}");
        }
        let problem = pieces("one\ntwo {{ stauts }}").unwrap_err();
        assert!(problem.rule.contains("line 2 of the page has `{{stauts}}`"), "{problem}");
        assert!(problem.hint.contains("`status`"), "{problem}");
        assert!(pieces(&"{{host}}".repeat(VARIABLES_MAX)).is_ok());
        assert!(pieces(&"{{host}}".repeat(VARIABLES_MAX + 1)).is_err());
        assert!(pieces(&"x".repeat(PAGE_BYTES_MAX)).is_ok());
        assert!(pieces(&"x".repeat(PAGE_BYTES_MAX + 1)).is_err());
    }
}
