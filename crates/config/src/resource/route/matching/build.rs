//! `routes[].rules[].match` to criteria.

use std::sync::Arc;

use crate::cidr::Cidr;
use crate::findings::{Findings, Problem};
use crate::resource::route::clients::{ClientMatch, ClientName};
use crate::resource::route::file as route;
use crate::resource::route::matching::{
    Case, Criterion, Listed, PathKind, PathMatch, Patterns, Place, Template, ValueKey, build_value,
};
use crate::resource::route::patterns as written;
use crate::resource::route::patterns::path_text;
use crate::resource::runtime::Fraction;
use crate::resource::runtime::build::Values;
use crate::resource::tls::build::peer_name;
use crate::resource::tls::build::twice;
use crate::sections::http::is_token;
use crate::text::tree::Site;

/// A rule's condition on the path; `site` is that of `match`. None if something is wrong, which is reported.
pub(crate) fn path(
    file: &route::Match,
    site: &Site<'_>,
    patterns: &mut Patterns,
    findings: &mut Findings<'_>,
) -> Option<PathMatch> {
    let route::Match { path, prefix, segments, regex, template, case, .. } = file;
    let keys = [path, prefix, segments, regex, template];
    let names = ["path", "prefix", "segments", "regex", "template"];
    let (text, key) =
        keys.into_iter().zip(names).find_map(|(text, key)| Some((text.as_ref()?, key)))?;
    if *case == Case::Insensitive && matches!(key, "regex" | "template") {
        let hint = match key {
            "regex" => "write (?i) at the beginning of the expression",
            _ => "use `regex`, with (?i) at its beginning",
        };
        let rule = "`case` is for `path`, `prefix` and `segments`";
        site.key_error(findings, "case", Problem::new(rule, hint));
        return None;
    }
    let built = match key {
        "regex" => regex_of(text, patterns),
        "template" => template_of(text, patterns),
        _ => fixed(key, text),
    };
    match built {
        Ok((text, how)) => {
            let is_prefix = !matches!(how, PathKind::Exact);
            let is_fixed = !matches!(how, PathKind::Regex(_) | PathKind::Template(..));
            if let Some(problem) = written::suspicious(&text, is_prefix).filter(|_| is_fixed) {
                site.key(key).warning(findings, problem);
            }
            Some(PathMatch { text, how, case: *case })
        }
        Err(problem) => {
            site.key(key).error(findings, problem);
            None
        }
    }
}

fn fixed(key: &str, text: &str) -> Result<(Arc<str>, PathKind), Problem> {
    let how = match key {
        "path" => PathKind::Exact,
        "prefix" => PathKind::Prefix,
        _ => PathKind::Segments,
    };
    if text == "*" {
        let problem = match how {
            PathKind::Exact => return Ok((Arc::from("*"), how)),
            PathKind::Prefix => ("a prefix begins with `/`", "write / to match everything"),
            _ => ("segments begin with `/`", "write `prefix: /` to match everything"),
        };
        return Err(Problem::new(problem.0, problem.1));
    }
    let normal = path_text(text, how == PathKind::Prefix)?;
    if how == PathKind::Segments && normal.ends_with('/') {
        let rule = "`segments` end without a slash: what follows begins with one";
        let hint = match normal.trim_end_matches('/') {
            "" => "write `prefix: /` to match everything".to_owned(),
            fixed => format!("write {fixed:?}"),
        };
        return Err(Problem::new(rule, hint));
    }
    Ok((normal, how))
}

fn regex_of(text: &str, patterns: &mut Patterns) -> Result<(Arc<str>, PathKind), Problem> {
    let place = patterns.add(text, Case::Sensitive)?;
    Ok((text.into(), PathKind::Regex(place)))
}

fn template_of(text: &str, patterns: &mut Patterns) -> Result<(Arc<str>, PathKind), Problem> {
    let template = Arc::new(Template::parse(text)?);
    let place = patterns.add_template(text, &template)?;
    Ok((text.into(), PathKind::Template(place, template)))
}

/// What a rule asks for beside a path; `site` is that of `match`. None if something is wrong, which is reported.
pub(crate) fn criteria(
    file: &route::Match,
    site: &Site<'_>,
    values: &mut Values<'_>,
    patterns: &mut Patterns,
    findings: &mut Findings<'_>,
) -> Option<Box<[Criterion]>> {
    let mut builder = Builder { site, patterns, findings, criteria: Vec::new(), is_sound: true };
    builder.methods(file.methods.as_deref());
    builder.values("headers", &file.headers, header);
    builder.values("query", &file.query, |name| Ok(Place::Query(name.into())));
    builder.values("cookies", &file.cookies, cookie);
    builder.sources(file.sources.as_deref());
    builder.client(file.client.as_deref());
    builder.criteria.extend(file.grpc.map(Criterion::Grpc));
    builder.fraction(file, values);
    let Builder { criteria, is_sound, .. } = builder;
    is_sound.then(|| criteria.into())
}

struct Builder<'b, 'f> {
    site: &'b Site<'b>,
    patterns: &'b mut Patterns,
    findings: &'b mut Findings<'f>,
    criteria: Vec<Criterion>,
    /// Whether nothing was wrong so far.
    is_sound: bool,
}

/// Methods that are registered (RFC 9110, section 16.1, and RFC 5789): they are written in upper case.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

impl Builder<'_, '_> {
    fn methods(&mut self, file: Option<&Listed<String>>) {
        let Some(file) = file else { return };
        let (methods, is_inverted) = file.parts();
        let site = self.site.key("methods");
        let site = if is_inverted { site.key("not") } else { site };
        let mut known: Vec<Box<str>> = Vec::with_capacity(methods.len());
        for (method, site) in methods.iter().zip(site.items()) {
            match check_method(method) {
                Ok(()) if known.iter().any(|known| **known == **method) => {
                    self.is_sound = false;
                    twice(&site, self.findings);
                }
                Ok(()) => known.push(method.as_str().into()),
                Err(problem) => {
                    self.is_sound = false;
                    site.error(self.findings, problem);
                }
            }
        }
        self.criteria.push(Criterion::Methods { methods: known.into(), is_inverted });
    }

    fn values<'k>(
        &mut self,
        key: &str,
        file: impl IntoIterator<Item = (&'k String, &'k ValueKey)>,
        place: impl Fn(&str) -> Result<Place, Problem>,
    ) {
        let site = self.site.key(key);
        let mut seen: Vec<Place> = Vec::new();
        for (name, value) in file {
            let place = match place(name) {
                Ok(place) if seen.contains(&place) => {
                    let problem = Problem::new(
                        "header names ignore case, so this one occurs twice",
                        "keep one of the two",
                    );
                    site.key_error(self.findings, name, problem);
                    self.is_sound = false;
                    continue;
                }
                Ok(place) => place,
                Err(problem) => {
                    site.key_error(self.findings, name, problem);
                    self.is_sound = false;
                    continue;
                }
            };
            seen.push(place.clone());
            match build_value(value, &site.key(name), self.patterns, self.findings) {
                Some(value) => self.criteria.push(Criterion::Value(place, value)),
                None => self.is_sound = false,
            }
        }
    }

    fn sources(&mut self, file: Option<&Listed<Cidr>>) {
        let Some(file) = file else { return };
        let (ranges, is_inverted) = file.parts();
        self.criteria.push(Criterion::Sources { ranges: ranges.into(), is_inverted });
    }

    fn client(&mut self, file: Option<&[String]>) {
        let Some(written) = file else { return };
        let site = self.site.key("client");
        let mut names: Vec<ClientName> = Vec::with_capacity(written.len());
        for (name, site) in written.iter().zip(site.items()) {
            match client_name(name) {
                Ok(name) if names.contains(&name) => twice(&site, self.findings),
                Ok(name) => names.push(name),
                Err(problem) => site.error(self.findings, problem),
            }
        }
        self.is_sound &= names.len() == written.len();
        self.criteria.push(Criterion::Client(ClientMatch::Named(names.into())));
    }

    fn fraction(&mut self, file: &route::Match, values: &mut Values<'_>) {
        let Some(file) = &file.fraction else { return };
        let built = values.fraction(file, &self.site.key("fraction"), self.findings);
        self.is_sound &= built.is_some();
        // All of them is no condition.
        let is_condition = |it: &Fraction| it.runtime.is_some() || !it.percent.is_whole();
        self.criteria.extend(built.filter(is_condition).map(Criterion::Fraction));
    }
}

fn check_method(method: &str) -> Result<(), Problem> {
    if !is_token(method) {
        return Err(Problem::new("a method is a token", "write GET, for instance"));
    }
    let upper = method.to_ascii_uppercase();
    if upper != *method && METHODS.contains(&upper.as_str()) {
        let rule = "methods are in upper case, and case counts";
        return Err(Problem::new(rule, format!("write {upper}")));
    }
    Ok(())
}

/// The header field of this name, if rules may ask for it.
pub(crate) fn header(name: &str) -> Result<Place, Problem> {
    let lower = name.to_ascii_lowercase();
    let meant = match lower.as_str() {
        ":method" => "write `methods: [...]` in `match`",
        ":path" => "write `path`, `prefix` or `query` in `match`",
        ":authority" | "host" => "write the name under `hosts` of the table",
        ":scheme" => "use separate route tables for the listeners with and without TLS",
        _ if !is_token(&lower) => {
            let rule = "a header name consists of letters, digits and !#$%&'*+-.^_`|~";
            return Err(Problem::new(rule, "write a name such as x-team"));
        }
        _ => return Ok(Place::Header(lower.into())),
    };
    Err(Problem::new("rules cannot match this header field", meant))
}

/// The cookie of this name.
pub(crate) fn cookie(name: &str) -> Result<Place, Problem> {
    if !is_token(name) {
        let rule = "a cookie name consists of letters, digits and !#$%&'*+-.^_`|~";
        return Err(Problem::new(rule, "write a name such as session"));
    }
    Ok(Place::Cookie(name.into()))
}

fn client_name(text: &str) -> Result<ClientName, Problem> {
    if text == "*" {
        return Ok(ClientName::Any);
    }
    let name = peer_name(text)?;
    Ok(match name.strip_suffix('*') {
        Some(prefix) => ClientName::UriPrefix(prefix.into()),
        None if name.contains("://") => ClientName::Uri(name),
        None if name.parse::<std::net::IpAddr>().is_ok() => ClientName::Address(name),
        None => ClientName::Host(name),
    })
}
