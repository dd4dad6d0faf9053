//! `tls` of listeners, chains and clusters.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tls::{
    CertificateError, ClientAuth, ClientContext, ClientOptions, ContextError, EarlySessions,
    OwnTickets, ProcessSessions, Resumption, ServerContext, ServerOptions, SharedTickets, Verify,
};

use crate::file;
use crate::findings::{Findings, Problem};
use crate::hosts::Host;
use crate::resource::assignment::endpoints;
use crate::resource::tls::file::{
    CipherSuite, ClientMode, Group, Mode, Signing, Verify as FileVerify, Version,
};
use crate::sections::context::{Context, share};
use crate::sections::options::or_none;
use crate::snapshot::{
    CertificateSource, ClientTrust, ClusterProtocol, ClusterTls, ClusterTlsSource,
    ListenerProtocol, ListenerTls, ListenerTlsSource, TicketKeySource,
};
use crate::text::tree::Site;

/// What a listener speaks, as far as ALPN has to fit it.
#[derive(Clone, Copy)]
pub(crate) struct Spoken {
    pub(crate) protocol: ListenerProtocol,
    /// Whether what is not HTTP is relayed.
    pub(crate) relays: bool,
}

/// How the TLS of a listener, or of a chain, is ended: `name` is that of both. `site` is that of `tls`.
pub(crate) fn listener<F>(
    (name, file): ((&str, &str), &file::ListenerTls),
    spoken: Spoken,
    site: &Site<'_>,
    former: Option<&Arc<ListenerTls>>,
    context: &mut Context<'_, '_, F>,
) -> Option<Arc<ListenerTls>> {
    let mistakes = context.findings.errors_len();
    let certificates = certificates(&file.certificates, &site.key("certificates"), context);
    warn_permissive(file, &site.key("mode"), context.findings);
    let client = file.client.as_ref().and_then(|client| {
        let site = site.key("client");
        let names = names(&client.names, &site.key("names"), context.findings);
        let (ca, crl) = (Some(client.ca.as_str()), client.crl.as_deref());
        let roots = context.files.roots(ca, crl, &site, context.findings)?;
        let is_required = client.mode == ClientMode::Required;
        let connection_age_max = or_none(client.connection_age_max);
        Some(ClientTrust { roots, names, is_required, connection_age_max })
    });
    let range = (file.min_version, file.max_version);
    let parameters = parameters(range, &file.cipher_suites, &file.groups, site, context.findings);
    let source = ListenerTlsSource {
        certificates,
        versions: parameters.versions,
        cipher_suites: parameters.cipher_suites,
        groups: parameters.groups,
        alpn: listener_alpn(file.alpn.as_deref(), spoken, &site.key("alpn"), context.findings),
        client,
        session_tickets: file.session_tickets,
        ticket_keys: ticket_keys(file, site, context),
        early_data: file.early_data,
    };
    if file.early_data {
        check_early_data(file, spoken, site, context.findings);
    }
    // Of what is not whole, a context would report mistakes that are not in the file.
    if context.findings.errors_len() > mistakes
        || site.node().has_cut()
        || context.files.missing().next().is_some()
    {
        return None;
    }
    let reusable = former.filter(|former| former.source.makes_the_same(&source));
    let made = match reusable {
        Some(former) => Arc::clone(&former.context),
        None => match ServerContext::new(server_options(name, &source, context.sessions)) {
            Ok(made) => Arc::new(made),
            Err(error) => {
                refuse(&error, site, context.findings);
                return None;
            }
        },
    };
    Some(share(ListenerTls { context: made, mode: file.mode, source }, former))
}

fn server_options(
    name: (&str, &str),
    source: &ListenerTlsSource,
    sessions: &ProcessSessions,
) -> ServerOptions {
    let ListenerTlsSource {
        certificates,
        versions,
        cipher_suites,
        groups,
        alpn,
        client,
        session_tickets,
        ticket_keys,
        early_data,
    } = source;
    let shared = || SharedTickets {
        keys: ticket_keys.iter().map(|source| Arc::clone(&source.key)).collect(),
        scope: client.as_ref().map(ClientTrust::digest).unwrap_or_default(),
    };
    ServerOptions {
        certificates: certificates.iter().map(|source| Arc::clone(&source.certificate)).collect(),
        versions: versions.clone(),
        cipher_suites: cipher_suites.clone(),
        groups: groups.clone(),
        alpn: alpn.clone(),
        client_auth: match client {
            None => ClientAuth::Off,
            Some(ClientTrust { roots, is_required: true, .. }) => {
                ClientAuth::Required(Arc::clone(&roots.roots))
            }
            Some(ClientTrust { roots, is_required: false, .. }) => {
                ClientAuth::Optional(Arc::clone(&roots.roots))
            }
        },
        client_names: client.as_ref().map_or_else(Vec::new, |client| client.names.clone()),
        resumption: match session_tickets {
            false => Resumption::Off,
            true if *early_data => Resumption::EarlyData(EarlySessions::new(
                Arc::clone(&sessions.early),
                early_scope(name, source),
            )),
            true if ticket_keys.is_empty() => {
                let (ring, scope) = (Arc::clone(&sessions.ring), own_scope(source));
                Resumption::OwnTickets(OwnTickets { ring, scope })
            }
            true => Resumption::SharedTickets(shared()),
        },
    }
}

/// The scope of the process's own tickets and sessions: the same in every process that would agree on the same with a client.
fn own_scope(source: &ListenerTlsSource) -> [u8; 32] {
    let ListenerTlsSource { certificates, versions, cipher_suites, groups, alpn, client, .. } =
        source;
    let clients = client.as_ref().map(ClientTrust::digest);
    let parameters = format!("{versions:?} {cipher_suites:?} {groups:?} {alpn:?} {clients:?}");
    let mut parts: Vec<&[u8]> = vec![parameters.as_bytes()];
    parts.extend(certificates.iter().map(|source| &source.chain_pem[..]));
    SharedTickets::scope_of(&parts)
}

/// That of sessions whose early data may be a request: who has such a one on the way does not choose where it goes.
fn early_scope((listener, chain): (&str, &str), source: &ListenerTlsSource) -> [u8; 32] {
    // Names have no control characters.
    let name = format!("{listener}\0{chain}");
    SharedTickets::scope_of(&[&own_scope(source), name.as_bytes()])
}

/// Early data may be sent again by each hop that saw it, so that only requests that are safe can be
/// in it, and each session is good for it once. `site` is that of `tls`.
fn check_early_data(
    file: &file::ListenerTls,
    spoken: Spoken,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let problem = if spoken.protocol == ListenerProtocol::Tcp || spoken.relays {
        let rule = "relayed bytes cannot be early data, because it is not known whether they may be repeated";
        Problem::new(rule, "remove it here, and use a separate listener or chain for HTTP")
    } else if !file.session_tickets {
        let rule = "without `session_tickets`, no client can resume a session";
        Problem::new(rule, "remove one of the two")
    } else if site.key("session_ticket_files").is_written() {
        let rule = "each ticket may be used once, which processes that share keys cannot know";
        Problem::new(rule, "remove `session_ticket_files`, or this")
    } else if file.max_version.0 == tls::Version::Tls12 {
        Problem::new("TLS 1.2 has no early data", "remove `max_version`, or this")
    } else {
        return;
    };
    site.key("early_data").error(findings, problem);
}

fn ticket_keys<F>(
    file: &file::ListenerTls,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Vec<Arc<TicketKeySource>> {
    let list = site.key("session_ticket_files");
    if !file.session_tickets && list.is_written() {
        let rule = "without `session_tickets`, these are not used";
        list.error(context.findings, Problem::new(rule, "remove one of the two"));
        return Vec::new();
    }
    let mut keys: Vec<Arc<TicketKeySource>> = Vec::with_capacity(file.session_ticket_files.len());
    for (path, site) in file.session_ticket_files.iter().zip(list.items()) {
        let Some(key) = context.files.ticket_key(path, &site, context.findings) else { continue };
        if keys.iter().any(|other| other.digest == key.digest) {
            twice(&site, context.findings);
        } else {
            keys.push(key);
        }
    }
    keys
}

fn certificates<F>(
    files: &[file::tls::CertificateFiles],
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Vec<Arc<CertificateSource>> {
    let mut certificates: Vec<(Arc<CertificateSource>, Site<'_>)> = Vec::with_capacity(files.len());
    for (file, site) in files.iter().zip(site.items()) {
        let Some(source) = context.files.certificate(file, &site, context.findings) else {
            continue;
        };
        certificates.push((source, site));
    }
    let certificates = without_outdated_rivals(certificates, context);
    warn_of_rivals(&certificates, context.findings);
    certificates.into_iter().map(|(source, _)| source).collect()
}

/// Says which certificates no client will ever get, since others precede them.
fn warn_of_rivals(
    certificates: &[(Arc<CertificateSource>, Site<'_>)],
    findings: &mut Findings<'_>,
) {
    for (place, (source, site)) in certificates.iter().enumerate() {
        let is_rival = |(other, _): &&(Arc<CertificateSource>, Site<'_>)| {
            is_for_the_same(&other.certificate, &source.certificate)
        };
        if let Some((_, rival)) = certificates.iter().take(place).find(is_rival) {
            let line = findings.line_name(rival.key("chain").at().line);
            let rule = format!("the certificate on {line} has the same names and kind of key");
            let hint = "remove one of them: clients get the first";
            site.key("chain").warning(findings, Problem::new(rule, hint));
        }
    }
}

/// Leaves out those outside of their dates whose names others have that are valid: clients would get them rather than the others where
/// their keys are cheaper to sign with.
fn without_outdated_rivals<'s, F>(
    certificates: Vec<(Arc<CertificateSource>, Site<'s>)>,
    context: &mut Context<'_, '_, F>,
) -> Vec<(Arc<CertificateSource>, Site<'s>)> {
    let valid = certificates.iter().filter(|(source, _)| context.files.validity(source).is_ok());
    let valid: Vec<_> = valid.map(|(source, _)| Arc::clone(source)).collect();
    let names: BTreeSet<&str> =
        valid.iter().flat_map(|it| it.certificate.names()).map(AsRef::as_ref).collect();
    let mut kept = Vec::with_capacity(certificates.len());
    for (source, site) in certificates {
        let has_others = source.certificate.names().iter().all(|name| names.contains(&**name));
        let outdated = context.files.validity(&source).err();
        let Some(error) = outdated.filter(|_| has_others && !valid.is_empty()) else {
            kept.push((source, site));
            continue;
        };
        let rule = "clients do not get this certificate, since others for its names are valid";
        let hint = match error {
            CertificateError::NotValidYet { .. } => {
                "reload the configuration once it is valid (SIGHUP)"
            }
            _ => "remove it, or renew it",
        };
        site.key("chain").passing_warning(context.findings, Problem::new(rule, hint));
    }
    kept
}

/// Whether no client would ever get one rather than the other.
fn is_for_the_same(a: &tls::Certificate, b: &tls::Certificate) -> bool {
    let names = |certificate: &tls::Certificate| {
        let mut names = certificate.names().to_vec();
        names.sort_unstable();
        names.dedup();
        names
    };
    a.key_kind() == b.key_kind() && names(a) == names(b)
}

/// Protocols that are offered to clients: none that the listener cannot speak.
fn listener_alpn(
    written: Option<&[String]>,
    spoken: Spoken,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Vec<Box<[u8]>> {
    let (known, rule): (&[&str], _) = match spoken.protocol {
        ListenerProtocol::Auto => {
            (&["h2", "http/1.1", "http/1.0"], "an `auto` listener speaks h2, http/1.1 and http/1.0")
        }
        ListenerProtocol::Http1 => {
            (&["http/1.1", "http/1.0"], "an `http1` listener speaks http/1.1 and http/1.0")
        }
        ListenerProtocol::Http2 => (&["h2"], "an `http2` listener speaks h2"),
        // Clients of RPC name no protocol, and none is agreed on.
        ListenerProtocol::Tcp | ListenerProtocol::Rpc(_) => (&[], ""),
    };
    let Some(written) = written else {
        return known.iter().map(|name| name.as_bytes().into()).collect();
    };
    let is_open = spoken.protocol == ListenerProtocol::Tcp || spoken.relays;
    let mut alpn: Vec<Box<[u8]>> = Vec::with_capacity(written.len());
    for (name, site) in written.iter().zip(site.items()) {
        if name.is_empty() || name.len() > usize::from(u8::MAX) {
            let rule = "the name of a protocol has 1 to 255 bytes";
            site.error(findings, Problem::new(rule, "write h2 or http/1.1, for instance"));
        } else if alpn.iter().any(|other| **other == *name.as_bytes()) {
            twice(&site, findings);
        } else if !is_open && !known.contains(&name.as_str()) {
            let hint = crate::nearest::hint(name, known.iter().copied(), "remove it");
            site.error(findings, Problem::new(rule, hint));
        } else {
            alpn.push(name.as_bytes().into());
        }
    }
    alpn
}

pub(crate) fn twice(site: &Site<'_>, findings: &mut Findings<'_>) {
    site.error(findings, Problem::new("this occurs twice", "remove one of the two"));
}

/// What of a cluster TLS with its endpoints depends on.
#[derive(Clone, Copy)]
pub(crate) struct ToCluster {
    pub(crate) protocol: ClusterProtocol,
    pub(crate) is_relayed_to: bool,
    /// Whether any of these endpoints is a socket of the file system.
    pub(crate) has_unix_endpoints: bool,
}

/// How TLS is spoken with endpoints of a cluster. `site` is that of `tls`.
pub(crate) fn cluster<F>(
    file: &file::ClusterTls,
    ToCluster { protocol, is_relayed_to, has_unix_endpoints }: ToCluster,
    site: &Site<'_>,
    former: Option<&Arc<ClusterTls>>,
    context: &mut Context<'_, '_, F>,
) -> Option<Arc<ClusterTls>> {
    let mistakes = context.findings.errors_len();
    let (server_name, names) = peer_names(file, has_unix_endpoints, site, context.findings);
    let roots = trust(file, site, context);
    let certificate = file.certificate.as_ref().and_then(|file| {
        if file.signing != Signing::Inline {
            let rule = "`signing` does not apply to client certificates";
            let hint = "remove this: it is for certificates that are presented to clients";
            let site = site.key("certificate");
            site.key("signing").error(context.findings, Problem::new(rule, hint));
        }
        context.files.certificate(file, &site.key("certificate"), context.findings)
    });
    let range = (file.min_version, file.max_version);
    let parameters = parameters(range, &file.cipher_suites, &file.groups, site, context.findings);
    let alpn: Option<&[u8]> = match protocol {
        ClusterProtocol::Http1 => Some(b"http/1.1"),
        ClusterProtocol::Http2 => Some(b"h2"),
        ClusterProtocol::Rpc(_) => None,
    };
    let source = ClusterTlsSource {
        roots,
        names,
        certificate,
        versions: parameters.versions,
        cipher_suites: parameters.cipher_suites,
        groups: parameters.groups,
        alpn: alpn.into_iter().map(Into::into).collect(),
    };
    if context.findings.errors_len() > mistakes
        || site.node().has_cut()
        || context.files.missing().next().is_some()
    {
        return None;
    }
    let reusable = former.filter(|former| {
        former.source.makes_the_same(&source) && former.server_name == server_name
    });
    let make = |alpn: &[Box<[u8]>]| ClientContext::new(client_options(&source, alpn)).map(Arc::new);
    let made = match reusable {
        Some(former) => Ok(Arc::clone(&former.context)),
        None => make(&source.alpn),
    };
    let relay_made = match reusable.and_then(|former| former.relay_context.as_ref()) {
        _ if !is_relayed_to => Ok(None),
        Some(former) => Ok(Some(Arc::clone(former))),
        None => make(&[]).map(Some),
    };
    let (made, relay_context) = match (made, relay_made) {
        (Ok(made), Ok(relay_made)) => (made, relay_made),
        (Err(error), _) | (_, Err(error)) => {
            refuse(&error, site, context.findings);
            return None;
        }
    };
    // What is renewed is for new handshakes.
    let renewed = former
        .filter(|former| source.is_renewal_of(&former.source) && former.server_name == server_name);
    let serial = match renewed {
        Some(former) => former.serial,
        None => context.ids.cluster_tls_serial(),
    };
    let tls = ClusterTls { context: made, relay_context, server_name, source, serial };
    Some(share(tls, former))
}

fn client_options(source: &ClusterTlsSource, alpn: &[Box<[u8]>]) -> ClientOptions {
    // The source's own protocols are those of one of two contexts.
    let ClusterTlsSource { roots, names, certificate, versions, cipher_suites, groups, alpn: _ } =
        source;
    ClientOptions {
        verify: match roots {
            Some(roots) => Verify::Roots(Arc::clone(&roots.roots)),
            None => Verify::Nothing,
        },
        certificate: certificate.as_ref().map(|source| Arc::clone(&source.certificate)),
        versions: versions.clone(),
        cipher_suites: cipher_suites.clone(),
        groups: groups.clone(),
        alpn: alpn.to_vec(),
        names: names.clone(),
    }
}

/// The name that endpoints are asked for, and those that count.
fn peer_names(
    file: &file::ClusterTls,
    has_unix_endpoints: bool,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> (Option<Arc<str>>, Vec<Box<str>>) {
    let server_name = file.server_name.as_deref().and_then(|name| match server_name(name) {
        Ok(name) => Some(name),
        Err(problem) => {
            site.key("server_name").error(findings, problem);
            None
        }
    });
    let names = names(&file.names, &site.key("names"), findings);
    let is_written = |key: &str| site.has_key(key);
    if file.verify == FileVerify::Off {
        for key in ["ca", "crl", "names"].into_iter().filter(|key| is_written(key)) {
            let rule = "with `verify: off`, this is not checked";
            site.key(key).error(findings, Problem::new(rule, "remove one of the two"));
        }
        if !site.is_cut("verify") {
            let rule = "an attacker on the path to this cluster can read and change everything";
            let hint = "name the CA of its endpoints with `ca`";
            site.key("verify").warning(findings, Problem::new(rule, hint));
        }
    } else if !is_written("server_name")
        && !is_written("names")
        && !site.is_cut("verify")
        && has_unix_endpoints
    {
        site.error(findings, endpoints::unix_needs_name());
    } else if site.key("names").is_written() && file.names.is_empty() {
        let items = site.key("names");
        if items.node().items().is_empty() && !is_written("server_name") {
            let problem =
                Problem::new("the list needs at least one name", "add one, or `server_name`");
            items.error(findings, problem);
        }
    }
    (server_name, names)
}

/// A required certificate that clients get around by leaving TLS out.
fn warn_permissive(file: &file::ListenerTls, site: &Site<'_>, findings: &mut Findings<'_>) {
    let is_required = file.client.as_ref().is_some_and(|it| it.mode == ClientMode::Required);
    if is_required && file.mode == Mode::Permissive {
        let rule = "clients without TLS are served without the certificate that `client` requires";
        let hint =
            "write `mode: strict`, or `mode: optional` in `client` until all clients speak TLS";
        site.warning(findings, Problem::new(rule, hint));
    }
}

/// Names of which a peer's certificate has to have one. `site` is that of the list.
fn names(written: &[String], site: &Site<'_>, findings: &mut Findings<'_>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::with_capacity(written.len());
    for (name, site) in written.iter().zip(site.items()) {
        match peer_name(name) {
            Ok(name) if names.contains(&name) => twice(&site, findings),
            Ok(name) => names.push(name),
            Err(problem) => site.error(findings, problem),
        }
    }
    names
}

/// A name that can be asked for: a host (RFC 6066, section 3).
fn server_name(text: &str) -> Result<Arc<str>, Problem> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        let hint = format!("write `names: [{text:?}]` to have it in their certificates");
        return Err(Problem::new("the server name (SNI) is a host name, not an address", hint));
    }
    match text.parse()? {
        Host::Exact(name) if !name.starts_with('[') => Ok(name),
        Host::Exact(_) | Host::Suffix(_) | Host::Prefix(_) | Host::Any => {
            let rule = "the server name (SNI) is one host name";
            Err(Problem::new(rule, "write a name such as api.example.com"))
        }
    }
}

/// A name that a certificate may have: a host, an address or a URI.
pub(crate) fn peer_name(text: &str) -> Result<Box<str>, Problem> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(address.to_string().into());
    }
    if text.contains("://") {
        let is_sound = |b: u8| b.is_ascii_graphic();
        if text.strip_suffix('*').unwrap_or(text).contains('*') {
            let rule = "in a URI, `*` may occur at the end only";
            return Err(Problem::new(rule, "write spiffe://example.org/ns/shop/*, for instance"));
        }
        return match text.split_once("://") {
            Some((scheme, rest))
                if !scheme.is_empty() && !rest.is_empty() && text.bytes().all(is_sound) =>
            {
                Ok(text.into())
            }
            _ => {
                let rule = "a URI has a scheme, and no spaces";
                Err(Problem::new(rule, "write spiffe://example.org/ns/shop/sa/api, for instance"))
            }
        };
    }
    match text.parse()? {
        Host::Exact(name) if !name.starts_with('[') => Ok((*name).into()),
        Host::Exact(name) => {
            let plain = name.trim_matches(['[', ']']);
            Err(Problem::new("addresses have no brackets here", format!("write {plain:?}")))
        }
        Host::Suffix(_) | Host::Prefix(_) | Host::Any => {
            let rule = "names must be complete; a certificate with `*` matches them, too";
            Err(Problem::new(rule, "write a name such as api.example.com"))
        }
    }
}

/// The CAs of endpoints, if certificates are checked.
fn trust<F>(
    file: &file::ClusterTls,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Option<Arc<crate::snapshot::RootsSource>> {
    if site.is_cut("ca") || site.is_cut("crl") || site.is_cut("verify") {
        return None;
    }
    match file.verify {
        FileVerify::Off => None,
        FileVerify::On => {
            context.files.roots(file.ca.as_deref(), file.crl.as_deref(), site, context.findings)
        }
    }
}

/// What both kinds of `tls` have.
struct Parameters {
    versions: RangeInclusive<tls::Version>,
    cipher_suites: Vec<tls::CipherSuite>,
    groups: Vec<tls::Group>,
}

fn parameters(
    (Version(min), Version(max)): (Version, Version),
    suites: &Option<Vec<CipherSuite>>,
    groups: &Option<Vec<Group>>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Parameters {
    if min > max {
        let key = if site.key("max_version").is_written() { "max_version" } else { "min_version" };
        let rule = "`max_version` is older than `min_version`";
        let hint = "exchange `min_version` and `max_version`, or remove one of them";
        site.key(key).error(findings, Problem::new(rule, hint));
    }
    let versions = min..=max;
    let known_suites = known_suites(suites, &versions, &site.key("cipher_suites"), findings);
    let known_groups = known_groups(groups, &versions, &site.key("groups"), findings);
    Parameters { versions, cipher_suites: known_suites, groups: known_groups }
}

fn known_suites(
    written: &Option<Vec<CipherSuite>>,
    versions: &RangeInclusive<tls::Version>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Vec<tls::CipherSuite> {
    let mut known = Vec::new();
    for (CipherSuite(suite), site) in written.iter().flatten().zip(site.items()) {
        // An empty range is reported where it stands.
        if !versions.is_empty() && !versions.contains(&suite.version()) {
            let key = if suite.version() > *versions.end() { "max_version" } else { "min_version" };
            let rule = format!("this suite is of {}, which `{key}` rules out", suite.version());
            site.error(findings, Problem::new(rule, "remove it, or allow that version"));
        } else if known.contains(suite) {
            twice(&site, findings);
        } else {
            known.push(*suite);
        }
    }
    known
}

fn known_groups(
    written: &Option<Vec<Group>>,
    versions: &RangeInclusive<tls::Version>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Vec<tls::Group> {
    let Some(written) = written else { return tls::Group::DEFAULT.to_vec() };
    let mut known = Vec::new();
    for (Group(group), site) in written.iter().zip(site.items()) {
        if *versions.end() == tls::Version::Tls12 && !versions.is_empty() && !group.is_in_tls12() {
            let rule = "this group is of TLS 1.3, which `max_version` rules out";
            site.error(findings, Problem::new(rule, "remove it, or allow that version"));
        } else if known.contains(group) {
            twice(&site, findings);
        } else {
            known.push(*group);
        }
    }
    let is_whole = known.len() == site.node().items().len();
    if is_whole
        && *versions.start() == tls::Version::Tls12
        && !known.is_empty()
        && !known.iter().any(|group: &tls::Group| group.is_in_tls12())
    {
        let hint = "add x25519, or write `min_version: \"1.3\"`";
        site.error(findings, Problem::new("none of these groups is in TLS 1.2", hint));
    }
    known
}

/// Reports why there is no context. Most of it cannot be: it was looked at before.
fn refuse(error: &ContextError, site: &Site<'_>, findings: &mut Findings<'_>) {
    let (key, hint) = match error {
        ContextError::NoSuiteForKeys => {
            ("cipher_suites", "add suites for the kinds of keys that the certificates have")
        }
        ContextError::CipherSuiteOfOtherVersion(_) => ("cipher_suites", "remove it"),
        ContextError::NoGroup(_) => ("groups", "add x25519"),
        ContextError::AlpnInvalid => ("alpn", "write h2 or http/1.1"),
        ContextError::NameInvalid(_) => ("names", "write a name such as api.example.com"),
        ContextError::NoCertificate => ("certificates", "add one"),
        ContextError::VersionsEmpty => ("max_version", "allow a version"),
        ContextError::Refused(_) => ("", "see the other options here"),
    };
    let problem = Problem::new(error.to_string(), hint);
    match key {
        "" => site.error(findings, problem),
        key => site.key(key).error(findings, problem),
    }
}

/// Warns of names that connections of a chain ask for, and that no certificate of the chain has.
pub(crate) fn warn_uncovered(
    tls: &ListenerTls,
    server_names: &[String],
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let certificates = &tls.source.certificates;
    let names: Vec<&str> = certificates
        .iter()
        .flat_map(|source| source.certificate.names())
        .map(AsRef::as_ref)
        .collect();
    for (name, site) in server_names.iter().zip(site.items()) {
        let Ok(host) = name.parse() else { continue };
        if !names.iter().any(|name| covers(name, &host)) {
            let hint = match names.as_slice() {
                [] => "they have no names".to_owned(),
                names => {
                    let shown: Vec<&str> = names.iter().copied().take(NAMES_SHOWN_MAX).collect();
                    let dots = if names.len() > NAMES_SHOWN_MAX { ", …" } else { "" };
                    format!("they have: {}{dots}", shown.join(", "))
                }
            };
            let rule = "no certificate of this chain contains this name, so clients refuse it";
            site.warning(findings, Problem::new(rule, hint));
        }
    }
}

/// Names of certificates that a warning lists.
const NAMES_SHOWN_MAX: usize = 8;

/// Whether a certificate with `name` is for `host`. A `*` stands for one label (RFC 9525, section 6.3).
fn covers(name: &str, host: &Host) -> bool {
    match (host, name.strip_prefix("*.")) {
        (Host::Exact(host), None) => **host == *name,
        (Host::Exact(host), Some(rest)) => {
            host.split_once('.').is_some_and(|(_, above)| above == rest)
        }
        (Host::Suffix(suffix), Some(rest)) => **suffix == *rest,
        (Host::Suffix(_) | Host::Prefix(_) | Host::Any, _) => false,
    }
}
