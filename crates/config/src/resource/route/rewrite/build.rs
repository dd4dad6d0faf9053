//! `rewrite` of a rule to a [`Rewrite`].

use std::sync::Arc;

use crate::findings::{Findings, Problem};
use crate::resource::route::matching::build as matching;
use crate::resource::route::matching::{PathKind, PathMatch, Place};
use crate::resource::route::rewrite::{
    HostRewrite, PathRewrite, Rewrite, RewriteKey, Substitution,
};
use crate::sections::http;
use crate::text::tree::Site;

/// How requests are changed; none if they are not, or something is wrong, which is reported. `matched` is the rule's
/// condition on the path, as far as that could be read.
pub(crate) fn rewrite(
    file: &RewriteKey,
    matched: Option<&PathMatch>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Rewrite> {
    let path = path(file, matched, site, findings);
    let host = match (&file.host, &file.host_header) {
        (None, None) if file.host_endpoint => Some(HostRewrite::Endpoint),
        (Some(host), _) => {
            if let Err(problem) = http::check_authority(host) {
                site.key("host").error(findings, problem);
            }
            Some(HostRewrite::Fixed(host.to_ascii_lowercase().into()))
        }
        (None, Some(name)) => match matching::header(name) {
            Ok(Place::Header(name)) => Some(HostRewrite::Header(name)),
            Ok(_) => None,
            Err(problem) => {
                site.key("host_header").error(findings, problem);
                None
            }
        },
        (None, None) => None,
    };
    if site.is_written() && site.node().entries().is_empty() {
        let problem =
            Problem::new("this rewrites nothing", "add `prefix`, `regex`, `template` or `host`");
        site.error(findings, problem);
    }
    let has_path =
        ["prefix", "regex", "template"].iter().any(|key| site.has_key(key) || site.is_cut(key));
    if file.original_path && !has_path {
        let rule = "the path is not rewritten, so there is no original path";
        let hint = "remove it, or add `prefix`, `regex` or `template`";
        site.key("original_path").error(findings, Problem::new(rule, hint));
    }
    Some(Rewrite { path, keeps_path: file.original_path, host })
}

/// How a path is changed; none if it is not, or something is wrong, which is reported. `site` is that of the keys.
pub(crate) fn path(
    file: &RewriteKey,
    matched: Option<&PathMatch>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<PathRewrite> {
    let RewriteKey { prefix, regex, with, template, .. } = file;
    let keys = [("prefix", prefix), ("regex", regex), ("template", template)];
    let mut written = keys.iter().filter(|(_, text)| text.is_some()).map(|(key, _)| *key);
    let first = written.next();
    if let Some(second) = written.next() {
        let rule = "a path is rewritten in one way";
        site.key_error(
            findings,
            second,
            Problem::new(rule, "keep one of `prefix`, `regex` and `template`"),
        );
        return None;
    }
    if let Some(key) = ["regex", "with"].into_iter().find(|key| site.has_key(key))
        && regex.is_some() != with.is_some()
        && !site.is_cut("regex")
        && !site.is_cut("with")
    {
        let rule = "`regex` and `with` stand together";
        let hint = if key == "regex" { "add `with`, such as /\\1" } else { "add `regex`" };
        site.key_error(findings, key, Problem::new(rule, hint));
        return None;
    }
    let built = match first? {
        "prefix" => {
            let prefix = prefix.as_deref()?;
            match http::check_location(prefix) {
                Ok(()) if prefix.contains(['?', '#']) => {
                    let rule = "a prefix has no query and no fragment";
                    Err(("prefix", Problem::new(rule, "use `regex` with `with` for a new query")))
                }
                Ok(()) => Ok(PathRewrite::Prefix(prefix.into())),
                Err(problem) => Err(("prefix", problem)),
            }
        }
        "regex" => {
            let built = Substitution::of_regex(regex.as_deref()?, with.as_deref()?);
            let key = |is_with| if is_with { "with" } else { "regex" };
            if built.is_ok() {
                warn_foreign_group(with.as_deref()?, &site.key("with"), findings);
            }
            built
                .map(|it| PathRewrite::Regex(Arc::new(it)))
                .map_err(|(is_with, it)| (key(is_with), it))
        }
        _ => match matched.map(|matched| (&matched.how, &matched.text)) {
            Some((PathKind::Template(_, pattern), text)) => {
                let built = Substitution::of_template(text, pattern, template.as_deref()?);
                let built = built.map(|it| PathRewrite::Template(Arc::new(it)));
                built.map_err(|problem| ("template", problem))
            }
            Some(_) => {
                let rule = "`match` has no template whose variables this could use";
                Err(("template", Problem::new(rule, "add `template` to `match`, or use `regex`")))
            }
            None => return None,
        },
    };
    match built {
        Ok(path) if matched.is_some_and(|matched| !path.fits(matched)) => {
            let rule = "`match` has no prefix that this could replace";
            let problem = Problem::new(rule, "use `regex` or `template` here");
            site.key("prefix").error(findings, problem);
            None
        }
        Ok(path) => Some(path),
        Err((key, problem)) => {
            site.key(key).error(findings, problem);
            None
        }
    }
}

/// Warns of a group as nginx and others write it.
fn warn_foreign_group(with: &str, site: &Site<'_>, findings: &mut Findings<'_>) {
    let mut behind = with.split('$').skip(1).filter_map(|text| text.chars().next());
    if let Some(digit) = behind.find(char::is_ascii_digit) {
        let rule = format!("`${digit}` is not replaced by a group");
        site.warning(findings, Problem::new(rule, format!("write `\\{digit}`")));
    }
}
