//! How listeners read HTTP and rewrite it, and which PROXY protocol headers they believe.

use std::sync::Arc;

use wire::path::Slashes;

use crate::cidr::Cidr;
use crate::file::one_or_several::OneOrSeveral;
use crate::file::{self, OrNone};
use crate::findings::{Findings, Problem};
use crate::resource::error_pages::build as error_pages;
use crate::resource::listener::file::{ClientCertDetail, Http, ProxyProtocol};
use crate::resource::route::tables::Tables;
use crate::sections::context::Context;
use crate::snapshot::{ClientCertDetails, HttpOptions, RouteTable};
use crate::text::tree::Site;

/// Fields with an option of their own: what a client says there is never its own to say.
const FORWARDED_OWN: [(&str, &str); 5] = [
    ("x-forwarded-client-cert", "use `forward_client_cert`"),
    ("x-forwarded-for", "use `trusted_hops`"),
    ("x-forwarded-host", "use `trusted_hops`"),
    ("x-forwarded-port", "use `trusted_hops`"),
    ("x-forwarded-proto", "use `trusted_hops`"),
];

fn forwarded_allowed(
    names: &[String],
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Arc<[Box<[u8]>]> {
    let mut allowed: Vec<Box<[u8]>> = Vec::with_capacity(names.len());
    for (name, site) in names.iter().zip(site.items()) {
        let lower = name.to_ascii_lowercase();
        let is_forwarded =
            lower.strip_prefix("x-forwarded-").is_some_and(crate::sections::http::is_token);
        if let Some((_, hint)) = FORWARDED_OWN.iter().find(|(own, _)| *own == lower) {
            let rule = "this field has an option of its own";
            site.error(findings, Problem::new(rule, *hint));
        } else if !is_forwarded || lower.contains('_') {
            let rule = "these names begin with `x-forwarded-`; all others go through as it is";
            site.error(findings, Problem::new(rule, "write x-forwarded-prefix, for instance"));
        } else if allowed.iter().any(|known| **known == *lower.as_bytes()) {
            let problem = Problem::new("this name occurs twice", "remove one of the two");
            site.error(findings, problem);
        } else {
            allowed.push(lower.into_bytes().into());
        }
    }
    allowed.into()
}

/// What matches on where connections come from, if anything does that a listener leads to.
fn matches_sources(file: &file::Listener, tables: &Tables) -> Option<String> {
    if file.chains.iter().any(|chain| !chain.matches.sources.is_empty()) {
        return Some("chains".to_owned());
    }
    let names = file.chains.iter().map(|chain| &chain.routes).chain([&file.routes]);
    let mut names = names.flatten().flat_map(OneOrSeveral::as_slice);
    let asks = |name: &&String| tables.named(name).is_some_and(RouteTable::asks_sources);
    names.find(asks).map(|name| format!("rules of {name}"))
}

/// Whose PROXY protocol headers are believed.
pub(crate) fn proxy_protocol(
    file: &file::Listener,
    site: &Site<'_>,
    tables: &Tables,
    findings: &mut Findings<'_>,
) -> Option<Arc<[Cidr]>> {
    let is_unix = file.has_unix();
    match &file.proxy_protocol {
        ProxyProtocol::Any(false) => None,
        ProxyProtocol::Any(true) => {
            if let Some(who) = matches_sources(file, tables).filter(|_| !is_unix) {
                let rule = format!("any peer can claim a source address, and {who} match on it");
                let hint =
                    "write { from: [10.0.0.0/8] }, with the addresses of the proxies in front";
                site.key("proxy_protocol").warning(findings, Problem::new(rule, hint));
            }
            Some(Arc::new([]))
        }
        ProxyProtocol::Listed(sources) => {
            if is_unix {
                let rule = "connections to a unix socket have no source address";
                let hint = "write true; the permissions of the socket say who may connect";
                site.key("proxy_protocol").key("from").error(findings, Problem::new(rule, hint));
            }
            Some(sources.from.as_slice().into())
        }
    }
}

pub(crate) fn http<F>(
    file: &Http,
    proxy_protocol: Option<Arc<[Cidr]>>,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> HttpOptions {
    let Context { files, findings, .. } = context;
    let pages = site.key("error_pages");
    let error_pages = error_pages::build(&file.error_pages, &pages, files, findings);
    // One that was cut is not known to be too large, nor to be too small.
    let is_known = !site.is_cut("request_line_max") && !site.is_cut("head_max");
    if is_known && file.request_line_max > file.head_max {
        let rule =
            format!("a request line is part of its head, which has at most {}", file.head_max);
        let key =
            if site.key("request_line_max").is_written() { "request_line_max" } else { "head_max" };
        let hint =
            format!("write {} or less, or allow longer heads with `head_max`", file.head_max);
        site.key(key).error(findings, Problem::new(rule, hint));
    }
    if file.via.as_deref().is_some_and(|via| !crate::sections::http::is_token(via)) {
        let rule = "a name in `via` consists of letters, digits and !#$%&'*+-.^_`|~";
        site.key("via").error(findings, Problem::new(rule, "write strait, for instance"));
    }
    // The bounds of these sizes, in the schema, are far below 4 GiB.
    let bytes = |size: crate::units::Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    HttpOptions {
        error_pages,
        request_line_bytes_max: bytes(file.request_line_max),
        head_bytes_max: bytes(file.head_max),
        fields_max: file.fields_max,
        body_bytes_max: match file.body_max {
            OrNone::None => None,
            OrNone::Some(size) => Some(size.0),
        },
        request_buffer_bytes_max: bytes(file.request_buffer),
        request_rate_bytes_min: bytes(file.request_rate_min),
        response_rate_bytes_min: bytes(file.response_rate_min),
        slashes: if file.merge_slashes { Slashes::Merge } else { Slashes::Keep },
        trusted_hops: file.trusted_hops,
        forwarded: file.forwarded,
        forwarded_allowed: forwarded_allowed(
            &file.forwarded_allowed,
            &site.key("forwarded_allowed"),
            findings,
        ),
        underscores: file.headers_with_underscores,
        forward_client_cert: file.forward_client_cert,
        client_cert_details: ClientCertDetails {
            cert: file.client_cert_details.contains(&ClientCertDetail::Cert),
            chain: file.client_cert_details.contains(&ClientCertDetail::Chain),
            subject: file.client_cert_details.contains(&ClientCertDetail::Subject),
            uri: file.client_cert_details.contains(&ClientCertDetail::Uri),
            dns: file.client_cert_details.contains(&ClientCertDetail::Dns),
        },
        via: file.via.as_deref().map(Arc::from),
        request_id: file.request_id,
        trust_timeouts: file.trust_timeouts,
        trust_retries: file.trust_retries,
        grpc_web: file.grpc_web,
        proxy_protocol,
    }
}
