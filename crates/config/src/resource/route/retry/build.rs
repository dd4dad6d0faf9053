//! `retry` of a rule to a [`RetryPolicy`].

use std::time::Duration;

use crate::findings::{Findings, Problem};
use crate::resource::access_log::build::statuses;
use crate::resource::route::matching::build::header;
use crate::resource::route::retry::{Hedge, Retry, RetryMethods, RetryOn, RetryPolicy};
use crate::resource::tls::build::twice;
use crate::text::tree::Site;

/// When requests of a rule are sent again; none if something is wrong, which is reported. `whole` bounds all attempts
/// together, and `site` is that of the rule.
pub(crate) fn policy(
    (file, hedge): (&Retry, Option<Hedge>),
    whole: Option<Duration>,
    rule_site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<RetryPolicy> {
    let site = &rule_site.key("retry");
    let at = site.key("status");
    let hint = "write 429, 5xx or 500-504, for instance";
    let statuses = statuses(&file.status, hint, &at, findings);
    for (range, site) in statuses.iter().zip(at.items()) {
        if *range.start() < 400 {
            let rule = "only statuses from 400 on can be retried";
            site.error(findings, Problem::new(rule, hint));
            return None;
        }
    }
    for (name, at) in file.headers.iter().zip(site.key("headers").items()) {
        if let Err(problem) = header(name) {
            at.error(findings, problem);
        }
    }
    if let Some(name) = &file.reset_header
        && let Err(problem) = header(name)
    {
        site.key("reset_header").error(findings, problem);
    }
    let on = site.key("on");
    for (place, (word, site)) in file.on.iter().zip(on.items()).enumerate() {
        if file.on.iter().take(place).any(|former| former == word) {
            twice(&site, findings);
        }
    }
    match (file.on.contains(&RetryOn::RetriableStatus), file.status.is_empty()) {
        (true, true) if !at.is_written() => {
            let rule = "`retriable_status` needs `status`, the statuses that it is for";
            on.error(findings, Problem::new(rule, "add `status: [429]`, for instance"));
        }
        (false, false) => {
            let rule = "`status` is for `retriable_status`, which `on` does not contain";
            at.error(findings, Problem::new(rule, "add `retriable_status` to `on`"));
        }
        _ => {}
    }
    let headers = site.key("headers");
    match (file.on.contains(&RetryOn::RetriableHeaders), file.headers.is_empty()) {
        (true, true) if !headers.is_written() => {
            let rule = "`retriable_headers` needs `headers`, the fields that it is for";
            on.error(findings, Problem::new(rule, "add `headers: [x-busy]`, for instance"));
        }
        (false, false) => {
            let rule = "`headers` is for `retriable_headers`, which `on` does not contain";
            headers.error(findings, Problem::new(rule, "add `retriable_headers` to `on`"));
        }
        _ => {}
    }
    let asks_grpc = file.on.iter().any(|word| word.grpc_status().is_some());
    if asks_grpc && file.methods == RetryMethods::Idempotent {
        let rule = "calls of gRPC are POST, which is not idempotent: none is sent again";
        let hint = "add `methods: any` if a call may be made twice";
        on.warning(findings, Problem::new(rule, hint));
    }
    if file.backoff.base > file.backoff.max {
        let rule = "the first pause is longer than the longest";
        site.key("backoff").error(findings, Problem::new(rule, "write `max` no less than `base`"));
    }
    let try_timeout: Option<Duration> = file.try_timeout.map(Into::into);
    if try_timeout.zip(whole).is_some_and(|(each, whole)| each >= whole) {
        let rule = "`timeout` of the rule ends the request before an attempt takes so long";
        let hint = "write less than `timeout`, which bounds all attempts together";
        site.key("try_timeout").warning(findings, Problem::new(rule, hint));
    }
    if hedge.is_some() {
        check_hedge(file, &rule_site.key("hedge"), findings);
    }
    Some(RetryPolicy::new(file, hedge, statuses))
}

/// Looks whether there may be another attempt beside one that takes too long. `site` is that of `hedge`.
fn check_hedge(file: &Retry, site: &Site<'_>, findings: &mut Findings<'_>) {
    let (rule, hint) = match (file.try_timeout, file.attempts_max) {
        (None, _) => {
            let rule = "`hedge` needs a `try_timeout` in `retry`: when another attempt begins";
            (rule, "add `try_timeout: 100ms` to `retry`, for instance")
        }
        (Some(_), 1) => {
            let rule = "with `attempts_max: 1` there is no other attempt";
            (rule, "write `attempts_max: 2` or more in `retry`")
        }
        _ => return,
    };
    site.error(findings, Problem::new(rule, hint));
}
