//! `checks` of a cluster to [`HealthCheck`]s.

use std::sync::Arc;

use crate::defaults;
use crate::file;
use crate::findings::{Findings, Problem};
use crate::resource::access_log::build::statuses;
use crate::resource::access_log::file::Status;
use crate::resource::cluster::checks::{
    Check, CheckMethod, GrpcCheck, HealthCheck, HttpCheck, Probe, TcpCheck,
};
use crate::resource::cluster::file::Protocol;
use crate::sections::http;
use crate::text::tree::Site;
use crate::xxhash::xxh64;

/// What a check calls itself, in the field where clients do.
const USER_AGENT: &str = "strait-health-check";

/// The checks of a cluster, all but those with a mistake, which is reported. `site` is that of the cluster.
pub(crate) fn checks(
    file: &file::Cluster,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Arc<[HealthCheck]> {
    let at = site.key("checks");
    if file.original_destination && !file.checks.is_empty() {
        let rule = "a cluster with `original_destination` has no endpoints that could be checked";
        at.error(findings, Problem::new(rule, "remove it"));
    }
    let transport = serde_json::to_string(&(
        file.protocol,
        (&file.tls, &file.transports),
        file.proxy_protocol,
        file.mark,
        (file.connect_timeout, &file.timeouts),
    ));
    let transport = transport.expect("options are text");
    let mut built: Vec<HealthCheck> = Vec::new();
    for (check, site) in file.checks.iter().zip(at.items()) {
        let Some(probe) = probe(file, check, &site, findings) else { continue };
        let asked = serde_json::to_string(check).expect("options are text");
        let request = match &probe {
            Probe::Http { request, .. } | Probe::Grpc { request, .. } => &**request,
            Probe::Tcp { .. } => &[],
        };
        let said = [transport.as_bytes(), asked.as_bytes(), request].join(&0);
        let fingerprint = xxh64(&said, 0);
        if built.iter().any(|other| other.fingerprint == fingerprint) {
            let rule = "this check occurs twice";
            site.error(findings, Problem::new(rule, "remove one of the two"));
            continue;
        }
        built.push(HealthCheck {
            probe,
            timeout: check.timeout.0,
            port: check.port,
            reuse: check.reuse,
            pace: Arc::new(check.pace()),
            fingerprint,
        });
    }
    built.into()
}

fn probe(
    file: &file::Cluster,
    check: &Check,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Probe> {
    match (&check.http, &check.grpc, &check.tcp) {
        (Some(asked), None, None) => {
            if let Protocol::Rpc(_) = file.protocol {
                let rule = "the endpoints do not speak HTTP";
                let hint = "write `tcp: {}`, which checks that they can be connected to";
                site.key_error(findings, "http", Problem::new(rule, hint));
                return None;
            }
            http_probe(asked, &file.name, &site.key("http"), findings)
        }
        (None, Some(asked), None) => {
            if file.protocol != Protocol::Http2 {
                let rule = "gRPC needs HTTP/2";
                let hint = "write `protocol: http2` in the cluster, or check with `http` or `tcp`";
                site.key_error(findings, "grpc", Problem::new(rule, hint));
                return None;
            }
            grpc_probe(asked, &file.name, &site.key("grpc"), findings)
        }
        (None, None, Some(asked)) => tcp_probe(asked, &site.key("tcp"), findings),
        (None, None, None) if ["http", "grpc", "tcp"].iter().any(|key| site.is_cut(key)) => None,
        _ => {
            let rule = "a check is one of `http`, `grpc` and `tcp`";
            site.error(
                findings,
                Problem::new(rule, "write `http: { path: /healthz }`, for instance"),
            );
            None
        }
    }
}

/// What may stand in `expect`.
const EXPECT_HINT: &str = "write 200-299, for instance";

fn http_probe(
    asked: &HttpCheck,
    cluster: &str,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Probe> {
    let is_target_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    let mut is_good = true;
    if !asked.path.starts_with('/') || !asked.path.bytes().all(is_target_byte) {
        let rule = "the path of a check begins with `/` and has no spaces and no fragment";
        site.key("path").error(findings, Problem::new(rule, "write /healthz, for instance"));
        is_good = false;
    }
    let is_none = |status: &Status| matches!(status, Status::Several(text) if text == "none");
    if asked.expect.iter().any(is_none) {
        let rule = "an endpoint that is healthy answers with a status";
        site.key("expect").error(findings, Problem::new(rule, EXPECT_HINT));
        is_good = false;
    }
    if asked.method == CheckMethod::Head && asked.body.is_some() {
        let rule = "an answer to HEAD has no body";
        site.key("body")
            .error(findings, Problem::new(rule, "write `method: GET`, or remove `body`"));
        is_good = false;
    }
    let host = host(asked.host.as_deref(), cluster, site, findings)?;
    let mut fields = String::new();
    let headers = site.key("headers");
    for (name, value) in &asked.headers {
        let lower = name.to_ascii_lowercase();
        let is_own = if lower == "host" {
            Err(Problem::new("the host belongs under `host`", "write `host: NAME` beside `path`"))
        } else {
            http::check_field(&lower)
        };
        let checked = is_own.and_then(|()| http::check_value(value));
        match checked {
            Ok(()) => fields.push_str(&format!("{lower}: {value}\r\n")),
            Err(problem) => {
                headers.key(name).error(findings, problem);
                is_good = false;
            }
        }
    }
    if !asked.headers.keys().any(|name| name.eq_ignore_ascii_case("user-agent")) {
        fields.push_str(&format!("user-agent: {USER_AGENT}\r\n"));
    }
    let (method, path) = (asked.method.as_str(), &asked.path);
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n");
    let expect = site.key("expect");
    let statuses = match expect.is_written() {
        true => statuses(&asked.expect, EXPECT_HINT, &expect, findings),
        false => [defaults::CHECK_EXPECT].into(),
    };
    is_good.then(|| Probe::Http {
        request: request.into_bytes().into(),
        statuses,
        body: asked.body.as_ref().map(|body| body.as_bytes().into()),
    })
}

fn grpc_probe(
    asked: &GrpcCheck,
    cluster: &str,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Probe> {
    use wire::grpc::health::{PATH, SERVICE_BYTES_MAX, encode_request};
    if asked.service.len() > SERVICE_BYTES_MAX {
        let rule = format!("the name of a service has up to {SERVICE_BYTES_MAX} bytes");
        site.key("service")
            .error(findings, Problem::new(rule, "write the name as the service has it"));
        return None;
    }
    let host = host(asked.host.as_deref(), cluster, site, findings)?;
    let message = encode_request(&asked.service);
    let len = message.len();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {USER_AGENT}\r\ncontent-type: application/grpc\r\n\
         te: trailers\r\ncontent-length: {len}\r\n\r\n"
    );
    Some(Probe::Grpc { request: request.into_bytes().into(), message: message.into() })
}

fn tcp_probe(asked: &TcpCheck, site: &Site<'_>, findings: &mut Findings<'_>) -> Option<Probe> {
    let expect: Box<[Box<[u8]>]> = asked.expect.iter().map(|hex| hex.0.clone()).collect();
    if asked.send.is_some() && expect.is_empty() {
        let rule = "`send` without `expect` checks nothing more than the connection";
        let hint = "add `expect`, or remove `send`";
        site.key("send").warning(findings, Problem::new(rule, hint));
    }
    let send = asked.send.as_ref().map_or_else(Box::default, |hex| hex.0.clone());
    Some(Probe::Tcp { send, expect })
}

/// The host that is asked for.
fn host<'h>(
    asked: Option<&'h str>,
    cluster: &'h str,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<String> {
    if let Some(host) = asked {
        let checked = http::check_authority(host);
        return checked
            .map(|()| host.to_ascii_lowercase())
            .map_err(|problem| site.key("host").error(findings, problem))
            .ok();
    }
    // The name of a cluster may be anything.
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let host = cluster.bytes().map(|byte| match is_host_byte(byte) {
        true => char::from(byte.to_ascii_lowercase()),
        false => '-',
    });
    Some(host.collect())
}
