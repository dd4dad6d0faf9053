//! `rewrite` of a rule: the path and the host under which a request goes on.
//!
//! A rewritten path is brought into its one spelling again: dot segments that a rewrite puts together are resolved, and
//! it begins with one slash, so that it is never taken for another host.

pub(crate) mod build;

use std::fmt;
use std::sync::Arc;

use regex_automata::meta::{Cache, Regex};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Input, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::head::RequestHead;
use wire::host::Authority;
use wire::path::{PathError, Slashes, normalise};

use crate::findings::Problem;
use crate::resource::route::matching::{
    Case, PathKind, PathMatch, REGEX_BYTES_MAX, Template, parse_part, whole,
};

/// How a request is changed before it is forwarded: its path by one of `prefix`, `regex` with `with`, and `template`;
/// its host by one of `host`, `host_header` and `host_endpoint`. The query does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("not" = {"anyOf": [
    {"required": ["host", "host_header"]},
    {"required": ["host", "host_endpoint"]},
    {"required": ["host_header", "host_endpoint"]},
]}))]
pub struct RewriteKey {
    /// Replaces the prefix or segments that the rule matched, or the whole of a `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A regular expression; `with` replaces each part of the path that it matches. Between `^` and `$` it matches the
    /// whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The replacement for `regex`: `\1` to `\9` are its groups, `\0` is the whole match, and `\\` a backslash. It may
    /// have parameters after a `?`, which are put before those of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// The new path, with variables of the rule's `template` as `{name}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether the upstream gets the path and query from before the rewrite as `x-envoy-original-path`, instead of any
    /// value that the client sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub original_path: bool,
    /// The new host, optionally with a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The header field that contains the new host. If it is missing or not a valid host, the host does not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_header: Option<String>,
    /// Whether the new host is the host name of the endpoint that is selected, without a port: the name that led to its
    /// address, or its `host`. For an endpoint without one, the host does not change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_endpoint: bool,
}

/// How a request is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// Its path; none for no change.
    pub path: Option<PathRewrite>,
    /// Whether the path from before stands in `x-envoy-original-path`.
    pub keeps_path: bool,
    /// Its host; none for no change.
    pub host: Option<HostRewrite>,
}

/// How a path is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// This stands in for what the rule matched.
    Prefix(Box<str>),
    /// What an expression matches is replaced.
    Regex(Arc<Substitution>),
    /// It is put together from variables of the rule's template.
    Template(Arc<Substitution>),
}

/// How a host is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRewrite {
    /// This one, with a port if any.
    Fixed(Box<str>),
    /// The one in this header field, whose name is in lower case.
    Header(Box<str>),
    /// That of the endpoint, which is known once one is chosen.
    Endpoint,
}

/// An expression, and what stands in for what it matches.
#[derive(Debug)]
pub struct Substitution {
    /// As written.
    pub pattern: Box<str>,
    /// As written.
    pub with: Box<str>,
    regex: Regex,
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    /// The number of a group.
    Group(usize),
}

impl PartialEq for Substitution {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.with == other.with
    }
}

impl Eq for Substitution {}

/// Groups that a substitution may name, the whole among them.
const GROUPS_MAX: usize = 10;

/// Replacements in one path: an expression that matches next to nothing makes no path endless.
const REPLACED_MAX: usize = 1_000;

/// What a worker keeps for rewriting.
#[derive(Debug, Default)]
pub struct Rewriting {
    caches: Vec<(Arc<Substitution>, Cache)>,
    /// The path and query as they are put together.
    raw: Vec<u8>,
    /// The same, in their one spelling.
    normal: Vec<u8>,
}

/// Expressions that a worker keeps memory for.
const CACHES_MAX: usize = 32;

impl Rewrite {
    /// Changes the head of a request that a rule with this path has taken. `host` goes before the rule's own.
    ///
    /// # Errors
    ///
    /// If what comes out is no path.
    pub fn apply(
        &self,
        head: &mut RequestHead<'_>,
        matched: &PathMatch,
        host: Option<&str>,
        slashes: Slashes,
        rewriting: &mut Rewriting,
    ) -> Result<(), PathError> {
        // `OPTIONS *` has no path.
        if let Some(path) = self.path.as_ref().filter(|_| head.path() != b"*") {
            if self.keeps_path {
                let original = &mut rewriting.raw;
                original.clear();
                original.extend_from_slice(head.path());
                if let Some(query) = head.query() {
                    original.push(b'?');
                    original.extend_from_slice(query);
                }
                head.set(b"x-envoy-original-path", original);
            }
            path.apply(head, matched, slashes, rewriting)?;
        }
        match (host, &self.host) {
            (Some(host), _) => head.set_authority(host.as_bytes()),
            (None, Some(HostRewrite::Fixed(host))) => head.set_authority(host.as_bytes()),
            (None, Some(HostRewrite::Header(name))) => {
                rewriting.raw.clear();
                rewriting.raw.extend_from_slice(head.find(name.as_bytes()).unwrap_or_default());
                if Authority::parse(&rewriting.raw).is_some_and(|it| !it.host.is_empty()) {
                    head.set_authority(&rewriting.raw);
                }
            }
            (None, Some(HostRewrite::Endpoint) | None) => {}
        }
        Ok(())
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_ref().map(|path| match path {
            PathRewrite::Prefix(prefix) => format!("the prefix becomes {prefix}"),
            PathRewrite::Regex(it) => format!("{} becomes {}", it.pattern, it.with),
            PathRewrite::Template(it) => format!("the path becomes {}", it.with),
        });
        let host = self.host.as_ref().map(|host| match host {
            HostRewrite::Fixed(host) => format!("the host becomes {host}"),
            HostRewrite::Header(name) => format!("the host becomes that in {name}"),
            HostRewrite::Endpoint => "the host becomes that of the endpoint".to_owned(),
        });
        let parts: Vec<_> = path.into_iter().chain(host).collect();
        f.write_str(&parts.join(", "))
    }
}

impl PathRewrite {
    /// Changes the path of a request that a rule with this path has taken.
    ///
    /// # Errors
    ///
    /// If what comes out is no path.
    pub fn apply(
        &self,
        head: &mut RequestHead<'_>,
        matched: &PathMatch,
        slashes: Slashes,
        rewriting: &mut Rewriting,
    ) -> Result<(), PathError> {
        let path = head.path();
        let mut raw = std::mem::take(&mut rewriting.raw);
        raw.clear();
        // More than one slash would make a host of what stands behind it.
        raw.push(b'/');
        match self {
            Self::Prefix(new) => {
                raw.extend_from_slice(new.as_bytes());
                raw.extend_from_slice(path.get(matched.replaced_len(path)..).unwrap_or_default());
            }
            Self::Regex(substitution) | Self::Template(substitution) => {
                rewriting.replace(substitution, path, &mut raw);
            }
        }
        let query = memchr::memchr(b'?', &raw);
        let (path, own_query) = raw.split_at(query.unwrap_or(raw.len()));
        rewriting.normal.clear();
        let normalised = normalise(path, slashes, &mut rewriting.normal);
        if normalised.is_ok() {
            let slashes = rewriting.normal.iter().take_while(|octet| **octet == b'/').count();
            let path = rewriting.normal.get(slashes.saturating_sub(1)..).unwrap_or_default();
            head.set_path(path);
            if let Some(own) = own_query.get(1..).filter(|own| !own.is_empty()) {
                rewriting.normal.clear();
                rewriting.normal.extend_from_slice(own);
                if let Some(query) = head.query().filter(|query| !query.is_empty()) {
                    rewriting.normal.push(b'&');
                    rewriting.normal.extend_from_slice(query);
                }
                head.set_query(Some(&rewriting.normal));
            }
        }
        rewriting.raw = raw;
        normalised
    }
}

impl Rewriting {
    /// Forgets everything, as when the configuration has changed.
    pub fn clear(&mut self) {
        self.caches.clear();
    }

    /// Appends `path` to `out` with what the expression matches replaced.
    fn replace(&mut self, substitution: &Arc<Substitution>, path: &[u8], out: &mut Vec<u8>) {
        let Some(cache) = self.cache(substitution) else { return };
        let mut slots = [None; GROUPS_MAX * 2];
        let (mut at, mut copied) = (0, 0);
        for _ in 0..REPLACED_MAX {
            let input = Input::new(path).span(Span { start: at, end: path.len() });
            if substitution.regex.search_slots_with(cache, &input, &mut slots).is_none() {
                break;
            }
            let Some((start, end)) = group(&slots, 0) else { break };
            out.extend_from_slice(path.get(copied..start).unwrap_or_default());
            for part in &*substitution.parts {
                match part {
                    Part::Text(text) => out.extend_from_slice(text),
                    Part::Group(place) => {
                        let group = group(&slots, *place);
                        let text = group.and_then(|(start, end)| path.get(start..end));
                        out.extend_from_slice(text.unwrap_or_default());
                    }
                }
            }
            copied = end;
            if end >= path.len() {
                break;
            }
            // What matches nothing matches at the next octet again.
            at = if end == start { end + 1 } else { end };
        }
        out.extend_from_slice(path.get(copied..).unwrap_or_default());
    }

    fn cache(&mut self, substitution: &Arc<Substitution>) -> Option<&mut Cache> {
        let found = self.caches.iter().position(|(kept, _)| Arc::ptr_eq(kept, substitution));
        let place = found.unwrap_or_else(|| {
            if self.caches.len() >= CACHES_MAX {
                self.caches.remove(0);
            }
            self.caches.push((Arc::clone(substitution), substitution.regex.create_cache()));
            self.caches.len() - 1
        });
        self.caches.get_mut(place).map(|(_, cache)| cache)
    }
}

/// Where a group begins and ends.
fn group(slots: &[Option<NonMaxUsize>], place: usize) -> Option<(usize, usize)> {
    let start = slots.get(place * 2).copied().flatten()?;
    let end = slots.get(place * 2 + 1).copied().flatten()?;
    Some((start.get(), end.get()))
}

impl Substitution {
    /// An expression, each match of which `with` stands in for.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them; the flag says whether it is `with`.
    pub(crate) fn of_regex(pattern: &str, with: &str) -> Result<Self, (bool, Problem)> {
        let hir = parse_part(pattern, Case::Sensitive).map_err(|problem| (false, problem))?;
        let groups = hir.properties().explicit_captures_len();
        let parts = parts_of(with, groups).map_err(|problem| (true, problem))?;
        Self::new(pattern, with, &hir, parts).map_err(|problem| (false, problem))
    }

    /// A template's variables in another order.
    ///
    /// # Errors
    ///
    /// What is wrong with `with`.
    pub(crate) fn of_template(
        pattern: &str,
        template: &Template,
        with: &str,
    ) -> Result<Self, Problem> {
        let parts = parts_of_template(with, &template.names())?;
        Self::new(pattern, with, &whole(template.hir())?, parts)
    }

    fn new(
        pattern: &str,
        with: &str,
        hir: &regex_syntax::hir::Hir,
        parts: Vec<Part>,
    ) -> Result<Self, Problem> {
        let config = Regex::config().utf8_empty(false).nfa_size_limit(Some(4 * REGEX_BYTES_MAX));
        let regex = Regex::builder().configure(config).build_from_hir(hir).map_err(|_| {
            let rule = "this regular expression is too large once it is compiled";
            Problem::new(rule, "write smaller numbers of repetitions, or fewer groups")
        })?;
        Ok(Self { pattern: pattern.into(), with: with.into(), regex, parts: parts.into() })
    }
}

fn parts_of(with: &str, groups: usize) -> Result<Vec<Part>, Problem> {
    let mut parts = Vec::new();
    let mut rest = with;
    while let Some(at) = rest.find('\\') {
        let (text, escape) = rest.split_at(at);
        push_text(&mut parts, text)?;
        let Some(next) = escape.chars().nth(1) else {
            return Err(Problem::new("a `\\` is at the end", "write `\\\\` for the sign itself"));
        };
        match next.to_digit(10).and_then(|digit| usize::try_from(digit).ok()) {
            Some(place) if place > groups => {
                let rule =
                    format!("the expression has {groups} groups, and `\\{place}` is none of them");
                return Err(Problem::new(rule, "put what it stands for in parentheses"));
            }
            Some(place) => parts.push(Part::Group(place)),
            None if next == '\\' => push_text(&mut parts, "%5C")?,
            None => {
                let rule = format!("`\\{next}` is no group");
                return Err(Problem::new(rule, "write `\\1` to `\\9`, or `\\0` for all of it"));
            }
        }
        rest = escape.get(1 + next.len_utf8()..).unwrap_or_default();
    }
    push_text(&mut parts, rest)?;
    Ok(parts)
}

fn parts_of_template(with: &str, names: &[&str]) -> Result<Vec<Part>, Problem> {
    if !with.starts_with('/') {
        return Err(Problem::new(
            "a path begins with `/`",
            format!("write {:?}", format!("/{with}")),
        ));
    }
    let mut parts = Vec::new();
    let mut rest = with;
    while let Some(at) = rest.find('{') {
        let (text, variable) = rest.split_at(at);
        push_text(&mut parts, text)?;
        let Some((name, behind)) = variable.get(1..).unwrap_or_default().split_once('}') else {
            return Err(Problem::new("a `{` is not closed", "add a `}` behind the variable"));
        };
        let Some(place) = names.iter().position(|known| *known == name) else {
            let rule = format!("the rule's template has no variable `{name}`");
            let hint = crate::nearest::hint(name, names.iter().copied(), "give it one, as {name}");
            return Err(Problem::new(rule, hint));
        };
        parts.push(Part::Group(place + 1));
        rest = behind;
    }
    push_text(&mut parts, rest)?;
    Ok(parts)
}

/// Text that a path or its query may hold.
fn push_text(parts: &mut Vec<Part>, text: &str) -> Result<(), Problem> {
    let wrong = text.chars().find(|c| {
        !c.is_ascii_graphic()
            || matches!(c, '"' | '#' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')
    });
    if let Some(wrong) = wrong {
        let rule = format!("{wrong:?} must be percent-encoded in a path");
        return Err(Problem::new(rule, "encode it, as %20 for a space"));
    }
    if !text.is_empty() {
        parts.push(Part::Text(text.as_bytes().into()));
    }
    Ok(())
}

impl PathRewrite {
    /// Whether it can be done with what the rule matches, beside what the types say.
    pub(crate) fn fits(&self, matched: &PathMatch) -> bool {
        match self {
            Self::Prefix(_) => !matches!(matched.how, PathKind::Regex(_) | PathKind::Template(..)),
            Self::Regex(_) => true,
            Self::Template(_) => matches!(matched.how, PathKind::Template(..)),
        }
    }
}
