//! `error_pages` of listeners and route tables, with the files that they name.

use std::sync::Arc;

use crate::findings::{Findings, Problem};
use crate::nearest;
use crate::resource::access_log::build::statuses;
use crate::resource::error_pages::{CAUSES, ErrorPage, ErrorPages, Page, Source, pieces};
use crate::sections::files::Files;
use crate::sections::http;
use crate::text::tree::Site;

/// Builds the pages at `site`.
pub(crate) fn build(
    entries: &[ErrorPage],
    site: &Site<'_>,
    files: &mut Files<'_>,
    findings: &mut Findings<'_>,
) -> ErrorPages {
    let pages = entries.iter().zip(site.items());
    ErrorPages(pages.filter_map(|(entry, site)| page(entry, &site, files, findings)).collect())
}

fn page(
    entry: &ErrorPage,
    site: &Site<'_>,
    files: &mut Files<'_>,
    findings: &mut Findings<'_>,
) -> Option<Page> {
    let hint = "write 503, 5xx or 400-499, for instance";
    let statuses = statuses(&entry.status, hint, &site.key("status"), findings);
    for (range, site) in statuses.iter().zip(site.key("status").items()) {
        if *range.start() < 400 {
            let rule = "an error page is for statuses from 400 on";
            site.error(findings, Problem::new(rule, hint));
        }
    }
    for (cause, site) in entry.cause.iter().zip(site.key("cause").items()) {
        if !CAUSES.contains(&cause.as_str()) {
            let hint = match nearest::nearest(cause, CAUSES) {
                Some(known) => format!("did you mean `{known}`?"),
                None => "docs/METRICS.md has the causes; connect_failed is one".to_owned(),
            };
            site.error(findings, Problem::new("no reply has this cause", hint));
        }
    }
    let (text, source, place) = match (&entry.body, &entry.file) {
        (Some(body), _) => (Arc::from(body.as_str()), Source::Body(body.as_str().into()), "body"),
        (None, Some(path)) => {
            let text = files.text(path, &site.key("file"), findings)?;
            (text, Source::File(path.as_str().into()), "file")
        }
        (None, None) => return None,
    };
    let content_type = content_type(entry, site, findings)?;
    let pieces = pieces(&text).map_err(|problem| site.key(place).error(findings, problem)).ok()?;
    let causes = entry.cause.iter().map(|cause| cause.as_str().into()).collect();
    Some(Page { statuses, causes, source, content_type, pieces })
}

fn content_type(
    entry: &ErrorPage,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Box<str>> {
    if let Some(content_type) = &entry.content_type {
        let checked = check_content_type(content_type);
        return checked.map_err(|problem| site.key("content_type").error(findings, problem)).ok();
    }
    let Some(path) = &entry.file else {
        if entry.body.as_ref().is_some_and(|body| body.trim_start().starts_with('<')) {
            let rule = "this looks like HTML, and is sent as text/plain";
            let hint = "add `content_type: text/html; charset=utf-8`";
            site.key("body").warning(findings, Problem::new(rule, hint));
        }
        return Some("text/plain; charset=utf-8".into());
    };
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let known = match ending {
        "html" | "htm" => "text/html; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml; charset=utf-8",
        _ => {
            let rule = "the extension of this file does not show its type";
            let hint = "add `content_type: text/html; charset=utf-8`, for instance";
            site.key("file").error(findings, Problem::new(rule, hint));
            return None;
        }
    };
    Some(known.into())
}

/// Checks the beginning of a content type (RFC 9110, section 8.3.1).
fn check_content_type(text: &str) -> Result<Box<str>, Problem> {
    http::check_value(text)?;
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    match essence.split_once('/') {
        Some((kind, subtype)) if http::is_token(kind) && http::is_token(subtype) => Ok(text.into()),
        _ => {
            let rule = "a content type is two words with `/` between";
            Err(Problem::new(rule, "write text/html; charset=utf-8, for instance"))
        }
    }
}
