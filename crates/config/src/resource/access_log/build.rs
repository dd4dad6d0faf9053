//! `access_log` to what the data path captures and the log writes.

use std::ops::RangeInclusive;
use std::path::Path as FilePath;
use std::sync::Arc;

use crate::access_log::{FIELDS, REQUEST_HEADERS, RESPONSE_HEADERS};
use crate::file;
use crate::findings::{Findings, Problem};
use crate::nearest;
use crate::resource::access_log::file::{Condition, Format, Status};
use crate::sections::context::Context;
use crate::sections::files::digest;
use crate::sections::http;
use crate::snapshot::{AccessLog, AccessLogCondition, AccessLogField, AccessLogOutput, Captures};
use crate::text::tree::Site;

/// Header fields of one side: their values are kept with each exchange.
const CAPTURES_MAX: usize = 32;

pub(crate) fn build<F>(
    file: &file::AccessLog,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> AccessLog {
    let output = file.output.as_deref().and_then(|text| output(text, &site.key("output"), context));
    let findings = &mut *context.findings;
    let format = file.format;
    let (mut request, mut response) = (Vec::new(), Vec::new());
    let fields = file.fields.as_ref().map(|names| {
        if format == Format::Combined {
            let rule = "the Combined Log Format has fixed fields";
            let hint = "remove `fields`, or write `format: json` or `text`";
            site.key("fields").error(findings, Problem::new(rule, hint));
        }
        fields(names, &site.key("fields"), (&mut request, &mut response), findings)
    });
    if format == Format::Combined {
        request = vec!["referer".into()];
    }
    AccessLog {
        captures: Arc::new(captures(request, response)),
        output,
        format,
        fields,
        only: conditions(&file.only, &site.key("only"), findings),
        except: conditions(&file.except, &site.key("except"), findings),
        stage_times: file.stage_times,
    }
}

fn output<F>(
    text: &str,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Option<AccessLogOutput> {
    let Context { files, findings, .. } = context;
    match text {
        "stdout" => Some(AccessLogOutput::Stdout),
        "stderr" => Some(AccessLogOutput::Stderr),
        path if path.contains('/') && !path.ends_with('/') && !path.contains('\0') => {
            files.check_append(FilePath::new(path), site, findings);
            Some(AccessLogOutput::File(Arc::from(FilePath::new(path))))
        }
        other => {
            let hint = match nearest::nearest(other, ["stdout", "stderr"]) {
                Some(known) => format!("did you mean `{known}`?"),
                None => {
                    "write stdout, stderr, /var/log/strait/access.log or ./access.log".to_owned()
                }
            };
            let rule = "the access log goes to stdout, stderr or to a path with a `/` in it";
            site.error(findings, Problem::new(rule, hint));
            None
        }
    }
}

/// Names of header fields, requests' and responses', as they are found in a list of fields.
type Headers<'h> = (&'h mut Vec<Box<str>>, &'h mut Vec<Box<str>>);

fn fields(
    names: &[String],
    site: &Site<'_>,
    (request, response): Headers<'_>,
    findings: &mut Findings<'_>,
) -> Arc<[AccessLogField]> {
    let mut fields: Vec<AccessLogField> = Vec::with_capacity(names.len());
    for (name, site) in names.iter().zip(site.items()) {
        match field(name, request, response) {
            Ok(field) if fields.contains(&field) => {
                let problem = Problem::new("this field occurs twice", "remove one of the two");
                site.error(findings, problem);
            }
            Ok(field) => fields.push(field),
            Err(problem) => site.error(findings, problem),
        }
    }
    fields.into()
}

fn field(
    name: &str,
    request: &mut Vec<Box<str>>,
    response: &mut Vec<Box<str>>,
) -> Result<AccessLogField, Problem> {
    if let Some(header) = name.strip_prefix(REQUEST_HEADERS) {
        return header_field(header, request).map(AccessLogField::Request);
    }
    if let Some(header) = name.strip_prefix(RESPONSE_HEADERS) {
        return header_field(header, response).map(AccessLogField::Response);
    }
    let known = FIELDS.into_iter().find(|known| *known == name);
    known.map(AccessLogField::Named).ok_or_else(|| {
        let hint = match nearest::nearest(name, FIELDS) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "docs/access-log.md has the fields; header fields are request_headers.accept, \
                     response_headers.server"
                .to_owned(),
        };
        Problem::new("the access log has no field of this name", hint)
    })
}

/// The place of a header field among those that are captured.
fn header_field(name: &str, known: &mut Vec<Box<str>>) -> Result<usize, Problem> {
    let name = name.to_ascii_lowercase();
    if !http::is_token(&name) {
        let rule = "a header name consists of letters, digits and !#$%&'*+-.^_`|~";
        return Err(Problem::new(rule, "write a name such as request_headers.x-tenant"));
    }
    if let Some(place) = known.iter().position(|known| **known == *name) {
        return Ok(place);
    }
    if known.len() >= CAPTURES_MAX {
        let rule = format!("at most {CAPTURES_MAX} header fields of one side are logged");
        return Err(Problem::new(rule, "remove some"));
    }
    known.push(name.into());
    Ok(known.len() - 1)
}

fn captures(request: Vec<Box<str>>, response: Vec<Box<str>>) -> Captures {
    if request.is_empty() && response.is_empty() {
        return Captures::default();
    }
    let text = format!("{}\n\n{}", request.join("\n"), response.join("\n"));
    let [a, b, c, d, ..] = digest(text.as_bytes()).to_le_bytes();
    let digest = u32::from_le_bytes([a, b, c, d]);
    Captures { request: request.into(), response: response.into(), digest }
}

fn conditions(
    entries: &[Condition],
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Arc<[AccessLogCondition]> {
    let conditions = entries.iter().zip(site.items()).map(|(entry, site)| {
        if *entry == Condition::default() && site.node().entries().is_empty() {
            let rule = "a condition without keys matches every exchange";
            let hint = "add one of status, prefixes, slower_than and one_in";
            site.error(findings, Problem::new(rule, hint));
        }
        for (prefix, site) in entry.prefixes.iter().zip(site.key("prefixes").items()) {
            if !prefix.starts_with('/') && prefix != "*" {
                let hint = format!("write {:?}", format!("/{prefix}"));
                site.error(findings, Problem::new("a path begins with `/`", hint));
            }
        }
        AccessLogCondition {
            statuses: statuses(&entry.status, STATUS_HINT, &site.key("status"), findings),
            prefixes: entry.prefixes.iter().map(|prefix| prefix.as_str().into()).collect(),
            slower_than: entry.slower_than.map(|period| period.0),
            one_in: entry.one_in,
        }
    });
    conditions.collect()
}

/// What may stand in a condition.
const STATUS_HINT: &str = "write 503, 5xx, 400-499, or none where none was sent";

/// The statuses of a list. `hint` says what may stand in it.
pub(crate) fn statuses(
    entries: &[Status],
    hint: &'static str,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Box<[RangeInclusive<u16>]> {
    let mut statuses = Vec::with_capacity(entries.len());
    for (entry, site) in entries.iter().zip(site.items()) {
        match entry {
            Status::One(status) => statuses.push(*status..=*status),
            Status::Several(text) => match several(text) {
                Some(range) => statuses.push(range),
                None => {
                    let rule = "a status is a number, a class or a range of them";
                    let problem = match text.parse() {
                        Ok(100..=599_u16) => {
                            Problem::new(rule, format!("remove the quotes: {text}"))
                        }
                        _ => Problem::new(rule, hint),
                    };
                    site.error(findings, problem);
                }
            },
        }
    }
    statuses.into()
}

/// `5xx`, `400-499`, `none`.
fn several(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "none" {
        return Some(0..=0);
    }
    let is_status = |status: &u16| (100..=599).contains(status);
    if let Some(class) = text.strip_suffix("xx") {
        let first = class.parse::<u16>().ok()?.checked_mul(100).filter(is_status)?;
        return Some(first..=first + 99);
    }
    let (first, last) = text.split_once('-')?;
    let status = |text: &str| text.parse::<u16>().ok().filter(is_status);
    let (first, last) = (status(first)?, status(last)?);
    (first <= last).then_some(first..=last)
}
