//! `strait explain`: the listener, route and cluster of a request, and why.
//!
//! The functions that carry traffic decode, filter and route the request, and each step is printed.
//! In the end a whole worker's state takes the request's bytes, and does what a running process would
//! do, except that nothing is sent.

mod client;
mod request;
mod trial;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use config::Outside as _;
use config::chains::ConnectionFacts;
use config::explain::Verdict as RuleVerdict;
use config::hash::Hashed;
use config::hosts::{Host, HostTable};
use config::matching::{Asked, Criterion, Place, Searches};
use config::snapshot::{
    Action, Address, ChainId, Cluster, ClusterId, Detected, Endpoint, Forward,
    Listener as ListenerConfig, ListenerProtocol, RouteTable, Rule, TlsMode,
};
use config::targets::Target;
use config::view::Group;
use config::{CertificateUse, CertificateUser};
use proxy::Snapshot;
use proxy::filter::{Filter, Verdict};
use proxy::misdirected::is_misdirected;
use proxy::route;
use tls::{Certificate, PeerCertificate};
use wire::h1::{HeadLimits, Scan, decode_request};
use wire::head::{HeadIndex, Method, RequestHead};
use wire::tls::ServerName;

use crate::Failure;
use crate::arguments::Explain;
use crate::data_path::address_text;
use crate::serve::loader;
use client::Client;
use request::Request;
use trial::{Trial, try_out};

type Listener = ListenerConfig<Box<dyn Filter>>;

/// Prints the steps of one request.
pub(crate) fn explain(explain: &Explain) -> Result<(), Failure> {
    let mut loader = loader()?;
    let text = control::read_text(&explain.config).map_err(Failure::Config)?;
    let name = explain.config.display().to_string();
    let snapshot = loader
        .load_with(&name, &text, &control::Files::beside(&explain.config))
        .map_err(|errors| Failure::Config(control::Refused::Invalid(errors)))?;
    let request = match (&explain.method, &explain.url, &explain.tls) {
        (Some(method), Some(url), _) => Request::new(method, url, &explain.headers),
        (.., host) => {
            let host = host.as_deref().unwrap_or_default();
            Request::new("GET", &format!("https://{host}/"), &[])
        }
    };
    let request = request.map_err(Failure::Explain)?;
    let (listener, why) = choose_listener(&snapshot, explain.listener.as_deref(), &request)
        .map_err(Failure::Explain)?;
    let mut story = Story::default();
    story.line("listener", format!("{} ({}), {why}", listener.name, addresses_text(listener)));
    if let Some((seen, chain)) = describe_chain(&mut story, listener, &request) {
        let certificate = certificate(explain)?;
        let mut client = client_of(seen, &request, certificate.as_ref());
        let trial = try_out(&snapshot, listener, &mut client, &request);
        let shown_by = shown_by(listener, chain);
        let is_secured = describe_tls(&mut story, &snapshot, seen, &shown_by, &request, client);
        if is_secured && explain.tls.is_none() {
            let certificate = certificate.filter(|_| is_client_known(seen, &request));
            let client = certificate.and_then(|certificate| certificate.as_peer());
            describe_misdirected(&mut story, listener, chain, &request);
            describe_request(&mut story, &snapshot, seen, &request, client.as_ref(), &trial);
        }
    }
    Ok(io::stdout().lock().write_all(story.text.as_bytes())?)
}

/// The client's certificate and key from the command line, if any.
fn certificate(explain: &Explain) -> Result<Option<Arc<Certificate>>, Failure> {
    let (Some(chain), Some(key)) = (&explain.cert, &explain.key) else { return Ok(None) };
    // Named on the command line, and not in the configuration's folder.
    let files = control::Files::beside(Path::new("."));
    let read = |path: &Path| {
        let content = files.read(path);
        content.map_err(|error| Failure::Explain(format!("{}: {error}", path.display())))
    };
    let certificate = Certificate::from_pem(&read(chain)?, &read(key)?, files.now())
        .map_err(|error| Failure::Explain(format!("{}: {error}", chain.display())))?;
    Ok(Some(Arc::new(certificate)))
}

/// Whether the listener asks clients for certificates.
fn is_client_known(listener: &Listener, request: &Request) -> bool {
    let asks = listener.tls.as_ref().is_some_and(|tls| tls.source.client.is_some());
    asks && is_secure(listener, request)
}

/// The client of the request, as the connection sees it.
fn client_of(
    listener: &Listener,
    request: &Request,
    certificate: Option<&Arc<Certificate>>,
) -> Client {
    if is_secure(listener, request) {
        Client::secure(listener.protocol, &request.server_name, certificate.cloned())
    } else {
        Client::plain(listener.protocol)
    }
}

/// Whether the client begins with TLS: as the URL says, or else as the listener wants.
fn is_secure(listener: &Listener, request: &Request) -> bool {
    let is_strict = listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Strict);
    request.is_secure.unwrap_or(is_strict)
}

/// Describes the TLS handshake, if there is one; returns whether the request is sent after it.
fn describe_tls(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    shown_by: &CertificateUser,
    request: &Request,
    client: Client,
) -> bool {
    let is_strict = listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Strict);
    let facts = match client.into_facts() {
        None if is_strict => {
            story.line("tls", "is all that this listener takes: ask with https://");
            return false;
        }
        None => return true,
        Some(_) if listener.tls.is_none() => {
            if listener.relay.is_some() {
                story.line("tls", "is not ended here");
                describe_relay(story, snapshot, listener);
            } else {
                story.line("tls", "is not ended by this listener: ask with http://");
            }
            return false;
        }
        Some(Ok(facts)) => facts,
        Some(Err(error)) => {
            story.line("tls", format!("fails: {error}"));
            return false;
        }
    };
    let protocol =
        facts.alpn.as_deref().map_or_else(|| "no protocol".into(), String::from_utf8_lossy);
    let group = facts.group.map_or_else(String::new, |group| format!(", {group}"));
    let (version, suite) = (facts.version, facts.cipher_suite);
    story.line("tls", format!("{version}, {suite}{group}, {protocol}"));
    let shown = facts.peer.as_ref().map(|peer| peer.fingerprint);
    let all = config::certificates(snapshot);
    let is_shown = |used: &&CertificateUse| {
        used.user == *shown_by && Some(used.source.certificate.fingerprint()) == shown
    };
    if let Some(used) = all.iter().find(is_shown) {
        story.line("shows", used.to_string());
        let (name, certificate) = (&request.server_name, &used.source.certificate);
        let verdict = if covers(certificate.names(), name) {
            format!("the certificate is for {name}")
        } else {
            format!("the certificate is not for {name}: clients that verify it refuse it")
        };
        story.line("name", verdict);
    }
    true
}

/// The listener or chain whose certificate a connection of this chain gets: several may have the
/// same certificate.
fn shown_by(listener: &Listener, chain: Option<ChainId>) -> CertificateUser {
    let name = Arc::clone(&listener.name);
    match listener.chains.iter().find(|each| Some(each.id) == chain) {
        Some(chain) => CertificateUser::Chain(name, Arc::clone(&chain.name)),
        None => CertificateUser::Listener(name),
    }
}

/// Whether one of a certificate's names is `host`, or has `*` for its first label (RFC 9525,
/// section 6.3).
fn covers(names: &[Box<str>], host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let parent = host.split_once('.').map(|(_, parent)| parent);
    names.iter().any(|name| match name.strip_prefix("*.") {
        Some(suffix) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(suffix)),
        None => name.eq_ignore_ascii_case(host),
    })
}

/// Describes the steps of a request after the listener.
fn describe_request(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    request: &Request,
    client: Option<&PeerCertificate>,
    trial: &Trial,
) {
    if listener.protocol == ListenerProtocol::Tcp {
        return describe_relay(story, snapshot, listener);
    }
    describe_head(story, snapshot, listener, request, client);
    let outcome = outcome(snapshot, trial);
    if story.asks_dns && outcome.ends_with("cause no_endpoint") {
        // Nothing is asked here.
        return story.line("outcome", "forwarded to one of the addresses that DNS has");
    }
    story.line("outcome", outcome);
}

/// The output of `explain`, a line for each step.
#[derive(Debug, Default)]
struct Story {
    text: String,
    /// Whether the request goes where DNS says.
    asks_dns: bool,
}

impl Story {
    fn line(&mut self, step: &str, text: impl AsRef<str>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{step:<9} {}", text.as_ref());
    }
}

/// The listener that the request comes to, and why this one.
fn choose_listener<'s>(
    snapshot: &'s Snapshot,
    name: Option<&str>,
    request: &Request,
) -> Result<(&'s Arc<Listener>, &'static str), String> {
    let all = || {
        let each = snapshot.listeners.iter();
        let each = each.map(|found| format!("{} ({})", found.name, addresses_text(found)));
        each.collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = name {
        let found = snapshot.listeners.iter().find(|listener| &*listener.name == name);
        let found = found.map(|listener| (listener, "from --listener"));
        return found.ok_or_else(|| format!("there is no listener {name}; there are: {}", all()));
    }
    if let Some(port) = request.port {
        let mut listeners = snapshot.listeners.iter();
        if let Some(listener) = listeners.find(|it| address_of(it, port, request).is_some()) {
            return Ok((listener, "which has the URL's port"));
        }
    }
    if let Some(port) = request.port.filter(|_| request.names_port) {
        return Err(format!(
            "nothing listens on port {port} for this URL; there are: {}; write the port of one, or \
             --listener NAME",
            all()
        ));
    }
    match &*snapshot.listeners {
        [only] => Ok((only, "the only one")),
        _ => Err(format!("the URL fits no listener; say --listener NAME, one of: {}", all())),
    }
}

/// Where a listener listens.
fn addresses_text(listener: &Listener) -> String {
    let each = listener.addresses.iter().map(address_text);
    each.collect::<Vec<_>>().join(", ")
}

/// The address of a listener that takes a request to this port.
fn address_of(listener: &Listener, port: u16, request: &Request) -> Option<SocketAddr> {
    let is_for = |address: &SocketAddr| {
        let is_ours = request.ip.is_none_or(|ip| address.ip() == ip);
        address.port() == port && (is_ours || address.ip().is_unspecified())
    };
    tcp_addresses(listener).find(is_for)
}

fn tcp_addresses(listener: &Listener) -> impl Iterator<Item = SocketAddr> {
    listener.addresses.iter().filter_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    })
}

/// Where the request's connection goes: to the address with the URL's port, or to the first.
fn destination(listener: &Listener, request: &Request) -> Option<SocketAddr> {
    let of_port = request.port.and_then(|port| address_of(listener, port, request));
    of_port.or_else(|| tcp_addresses(listener).next())
}

/// Describes the filter chain of a connection that carries HTTP, and returns the listener with that
/// chain's settings; none if no chain matches.
fn describe_chain<'s>(
    story: &mut Story,
    listener: &'s Arc<Listener>,
    request: &Request,
) -> Option<(&'s Listener, Option<ChainId>)> {
    if listener.chains.is_empty() {
        return Some((listener, None));
    }
    let is_secure = is_secure(listener, request);
    let protocol = match listener.protocol {
        _ if is_secure => Detected::Tls,
        ListenerProtocol::Http2 => Detected::Http2,
        ListenerProtocol::Auto | ListenerProtocol::Http1 | ListenerProtocol::Tcp => Detected::Http1,
    };
    let name = ServerName::parse(request.server_name.as_bytes());
    let server_name = name.as_ref().filter(|_| is_secure).map(ServerName::as_str);
    let alpn = if is_secure { &client::ALPN[..] } else { &[] };
    let what = match server_name {
        Some(name) => format!("TLS for {name} from here"),
        None if is_secure => "TLS without a name from here".to_owned(),
        None => "plain HTTP from here".to_owned(),
    };
    let destination = destination(listener, request);
    let protocol = Some(protocol);
    let facts = ConnectionFacts { source: None, destination, protocol, server_name, alpn };
    let chain = listener.chains.choose(&facts);
    match chain {
        Some(chain) => story.line("chain", format!("{}: is for {what}", chain.name)),
        None if listener.has_default => {
            story.line("chain", format!("none matches {what}; the listener's own follows"));
        }
        None => {
            story.line("outcome", "the connection is closed (no_chain): no chain matches it");
            return None;
        }
    }
    Some((chain.map_or(&**listener, |chain| &chain.listener), chain.map(|chain| chain.id)))
}

/// Says whether the request belongs to another filter chain than its connection matched.
fn describe_misdirected(
    story: &mut Story,
    listener: &Listener,
    met: Option<ChainId>,
    request: &Request,
) {
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let head = decode_request(&request.head, &mut scan, &limits_of(listener), &mut index);
    let Ok(Some((head, _))) = head else { return };
    if !is_secure(listener, request) || is_tunnel(&head) {
        return;
    }
    let destination = destination(listener, request);
    let alpn: &[u8] = match listener.seen_by(met).protocol {
        ListenerProtocol::Http1 => b"http/1.1",
        _ => b"h2",
    };
    let (protocol, alpn) = (Some(Detected::Tls), &[alpn][..]);
    let facts = ConnectionFacts { source: None, destination, protocol, server_name: None, alpn };
    if is_misdirected(listener, met, head.host(), &facts) {
        let (host, asked) = (String::from_utf8_lossy(head.host()), &request.server_name);
        story.line(
            "request",
            format!(
                "for {host} belongs to another chain than a connection for {asked}: a client that \
                 shares the connection gets 421, and asks again over its own"
            ),
        );
    }
}

/// Describes where a TCP listener forwards its bytes.
fn describe_relay(story: &mut Story, snapshot: &Snapshot, listener: &Listener) {
    let relay = listener.relay.iter().flat_map(|relay| &relay.clusters);
    for (id, weight) in relay {
        if let Some(cluster) = snapshot.cluster(*id) {
            story.line("relay", format!("cluster {}, weight {weight}", cluster.name));
        }
    }
    story.line("outcome", "the bytes are relayed as they come; no request is read here");
}

/// Describes the steps from the head's bytes to the endpoints.
fn describe_head(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    request: &Request,
    client: Option<&PeerCertificate>,
) {
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    match decode_request(&request.head, &mut scan, &limits_of(listener), &mut index) {
        Ok(Some((mut head, _))) => {
            story.line("request", request_line(&head));
            if describe_filters(story, listener, &mut head) {
                describe_routes(story, snapshot, listener, &head, client);
            }
        }
        Ok(None) => story.line("request", "is no whole head"),
        Err(error) => story.line("request", format!("is refused: {error}")),
    }
}

const fn limits_of(listener: &Listener) -> HeadLimits {
    HeadLimits {
        request_line_bytes_max: listener.http.request_line_bytes_max,
        head_bytes_max: listener.http.head_bytes_max,
        fields_max: listener.http.fields_max,
        slashes: listener.http.slashes,
    }
}

/// Whether it is a `CONNECT` that has no path, for which routing has rules of its own.
fn is_tunnel(head: &RequestHead<'_>) -> bool {
    head.method() == Method::Connect && !head.is_extended_connect()
}

fn request_line(head: &RequestHead<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if is_tunnel(head) {
        return format!("{} host {}", text(head.method_bytes()), text(head.host()));
    }
    let query = head.query().map_or_else(String::new, |query| format!(" query {}", text(query)));
    let method = text(head.method_bytes());
    format!("{method} host {} path {}{query}", text(head.host()), text(head.path()))
}

/// Runs the filter chain; returns whether the request continues after it.
fn describe_filters(story: &mut Story, listener: &Listener, head: &mut RequestHead<'_>) -> bool {
    for (filter, source) in listener.filters.iter().zip(listener.filter_sources.iter()) {
        let before = request_line(head);
        let mut slot = vec![0; filter.slot_bytes()];
        let name = source.name();
        match filter.on_request(head, &mut slot) {
            Verdict::Continue if request_line(head) == before => {
                story.line("filter", format!("{name}: goes on"));
            }
            Verdict::Continue => {
                story.line("filter", format!("{name}: goes on as {}", request_line(head)));
            }
            Verdict::Reply(reply) => {
                let (status, reason) = (reply.status, reply.reason);
                story.line("filter", format!("{name}: answers {status} {reason}"));
                return false;
            }
            Verdict::Suspend(question) => {
                let topic = &question.topic;
                story.line(
                    "filter",
                    format!("{name}: asks {topic}; what follows hangs on the answer"),
                );
                return false;
            }
        }
    }
    true
}

fn describe_routes(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    head: &RequestHead<'_>,
    client: Option<&PeerCertificate>,
) {
    let host = String::from_utf8_lossy(head.host()).into_owned();
    let found = listener.hosts.find(head.host());
    for id in &listener.route_tables {
        let Some(table) = snapshot.route_table(*id) else { continue };
        let hosts = table.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let closest = closest(&table.hosts, head.host());
        if found == Some(*id) {
            let pattern = closest.filter(|pattern| !matches!(pattern, Host::Exact(_)));
            let pattern = pattern.map_or_else(String::new, |pattern| format!(" by {pattern}"));
            story.line("routes", format!("{}: has host {host}{pattern} ({hosts})", table.name));
            if is_tunnel(head) {
                describe_tunnel_rules(story, snapshot, table, head, client);
            } else {
                describe_rules(story, snapshot, table, head, client);
            }
        } else {
            let why = match closest {
                Some(pattern) => format!("another has a closer host than {pattern}"),
                None => format!("{host} is not among its hosts"),
            };
            story.line("routes", format!("{}: passed over, {why} ({hosts})", table.name));
        }
    }
}

/// The pattern of these that a host matches best, as look-ups among those of all tables go.
fn closest<'h>(hosts: &'h [Host], host: &[u8]) -> Option<&'h Host> {
    let mut table = HostTable::default();
    for (place, pattern) in hosts.iter().enumerate() {
        // A host that stands twice is refused before.
        let _ = table.insert(pattern, place);
    }
    hosts.get(table.find(host)?)
}

fn describe_rules(
    story: &mut Story,
    snapshot: &Snapshot,
    table: &RouteTable,
    head: &RequestHead<'_>,
    client: Option<&PeerCertificate>,
) {
    let asked = asked(head, client);
    let verdicts = table.explain(&asked, &mut Searches::default());
    for (place, (rule, verdict)) in verdicts.into_iter().enumerate() {
        let step = format!("rule {place}");
        let what = rule_text(snapshot, rule);
        match verdict {
            RuleVerdict::Matched => {
                story.line(&step, format!("{what}: matches"));
                describe_fraction(story, rule);
                describe_edits(story, table, place, rule, &asked);
                if let Action::Forward(forward) = &rule.action {
                    describe_forward(story, snapshot, forward, head, &asked);
                }
            }
            RuleVerdict::PassedOver(why) => {
                story.line(&step, format!("{what}: passed over, {why}"));
            }
            RuleVerdict::NotReached { would_match: true } => {
                story.line(&step, format!("{what}: not reached, though it would match"));
            }
            RuleVerdict::NotReached { would_match: false } => {
                story.line(&step, format!("{what}: not reached"));
            }
        }
    }
}

/// Says which share a rule takes, where a value of `runtime` may decide about it.
fn describe_fraction(story: &mut Story, rule: &Rule) {
    for criterion in &rule.also {
        if let Criterion::Fraction(fraction) = criterion
            && fraction.runtime.is_some()
        {
            story.line("fraction", fraction.shown());
        }
    }
}

/// Describes how header fields of the request and of its response are edited.
fn describe_edits(
    story: &mut Story,
    table: &RouteTable,
    place: usize,
    rule: &Rule,
    asked: &Asked<'_>,
) {
    if !table.has_edits {
        return;
    }
    let shares: Vec<u32> = match &rule.action {
        Action::Forward(Forward { target: target @ Target::Shares(shares), .. }) => {
            let has_value = |place: &Place| place.find(asked.head, &mut Vec::new()).is_some();
            if shares.sticky().is_some_and(has_value) {
                let chosen = target.choose(asked, &mut Searches::default());
                chosen.and_then(|chosen| chosen.share).into_iter().collect()
            } else {
                let all = shares.clusters().iter().zip(0..);
                all.filter(|(share, _)| share.weight > 0).map(|(_, place)| place).collect()
            }
        }
        _ => Vec::new(),
    };
    for line in config::explain::edits(table, place, &shares) {
        story.line("headers", line);
    }
}

/// As [`describe_rules`], for a request that no rule's path counts for.
fn describe_tunnel_rules(
    story: &mut Story,
    snapshot: &Snapshot,
    table: &RouteTable,
    head: &RequestHead<'_>,
    client: Option<&PeerCertificate>,
) {
    let (asked, mut searches) = (asked(head, client), Searches::default());
    let found = route::find_tunnel(table, &asked, &mut searches).ok().map(|(place, _)| place);
    for (place, rule) in table.rules.iter().enumerate() {
        let what = rule_text(snapshot, rule);
        let verdict = if found == Some(place) {
            "lets tunnels through".to_owned()
        } else if found.is_some_and(|found| found < place) {
            "not reached".to_owned()
        } else {
            match table.unmet(rule, &asked, &mut searches) {
                None => "passed over, connect is not among its upgrades".to_owned(),
                Some(why) => format!("passed over, {why}"),
            }
        };
        story.line(&format!("rule {place}"), format!("{what}: {verdict}"));
        if let (true, Action::Forward(forward)) = (found == Some(place), &rule.action) {
            describe_forward(story, snapshot, forward, head, &asked);
        }
    }
}

/// The request as rules see it. Where it comes from is not known here, and its die is at 0.
fn asked<'r>(head: &'r RequestHead<'r>, client: Option<&'r PeerCertificate>) -> Asked<'r> {
    Asked { head, source: None, client, die: 0 }
}

fn rule_text(snapshot: &Snapshot, rule: &Rule) -> String {
    let path = &rule.path;
    let action = match &rule.action {
        Action::Forward(forward) => target_text(snapshot, &forward.target),
        Action::Respond(respond) => format!("respond {}", respond.status),
        Action::Redirect(redirect) => format!("redirect {}", redirect.status),
    };
    let also: String = rule.also.iter().map(|criterion| format!(", {criterion}")).collect();
    let name = rule.name.as_ref().map_or_else(String::new, |name| format!("{name}: "));
    format!("{name}{path}{also} -> {action}")
}

/// Where a rule forwards to, in a few words.
fn target_text(snapshot: &Snapshot, target: &Target) -> String {
    let name = |id| snapshot.cluster(id).map(|cluster| cluster.name.to_string());
    let names: Vec<String> = target.clusters().filter_map(name).collect();
    match target {
        Target::Cluster(_) => format!("cluster {}", names.join("")),
        Target::Shares(_) => format!("clusters {}", names.join(", ")),
        Target::Named(named) => format!("cluster of header {}", named.header),
    }
}

/// Describes where a request goes that a rule has taken, and as what.
fn describe_forward(
    story: &mut Story,
    snapshot: &Snapshot,
    forward: &Forward,
    head: &RequestHead<'_>,
    asked: &Asked<'_>,
) {
    let chosen = forward.target.choose(asked, &mut Searches::default());
    match &forward.target {
        Target::Cluster(_) => {}
        Target::Shares(shares) => {
            for share in shares.clusters() {
                let name = snapshot.cluster(share.cluster).map_or("", |cluster| &cluster.name);
                let percent = f64::from(share.weight) * 100.0 / f64::from(shares.sum());
                let weight = share.weight;
                story
                    .line("share", format!("{name}, weight {weight} ({percent:.1} % of requests)"));
            }
            let by = shares.sticky().filter(|place| place.find(head, &mut Vec::new()).is_some());
            story.line(
                "chosen",
                by.map_or_else(|| "by the die of each request".to_owned(), |by| format!("by {by}")),
            );
            if by.is_none() {
                for share in shares.clusters().iter().filter(|share| share.weight > 0) {
                    describe_cluster(story, snapshot, forward, share.cluster, asked);
                }
                return;
            }
        }
        Target::Named(named) if chosen.is_none() => {
            let header = &named.header;
            return story
                .line("cluster", format!("header {header} names none that the rule allows"));
        }
        Target::Named(_) => {}
    }
    if let Some(chosen) = chosen {
        describe_cluster(story, snapshot, forward, chosen.cluster, asked);
    }
}

fn describe_cluster(
    story: &mut Story,
    snapshot: &Snapshot,
    forward: &Forward,
    id: ClusterId,
    asked: &Asked<'_>,
) {
    let Some(cluster) = snapshot.cluster(id) else { return };
    let timeout = forward.timeout.map_or_else(|| "none".to_owned(), |bound| format!("{bound:?}"));
    story.line("cluster", format!("{}, timeout {timeout}", cluster.name));
    if let Some(retry) = &forward.retry {
        story.line("retry", retry.to_string());
    }
    if cluster.original_destination.is_some() {
        story.line("endpoint", "wherever the connection was going");
    }
    for name in cluster.endpoints_from.names() {
        story.line("endpoint", format!("the addresses of {name}"));
        story.asks_dns = true;
    }
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let first = cluster.view.levels(subset).first();
    for (place, endpoint) in cluster.endpoints.iter().enumerate() {
        let group = first.filter(|group| group.inner(place).is_some());
        story.line("endpoint", endpoint_text(group, endpoint));
    }
    describe_subset(story, forward, cluster, asked);
    describe_hash(story, forward, cluster, asked);
    if let Some(asked) = asked.head.upgrade() {
        let verdict = if route::allows_upgrade(&forward.upgrades, asked) {
            "is let through: what follows is a tunnel"
        } else {
            "is not among the rule's upgrades: the field is taken out"
        };
        story.line("upgrade", format!("{} {verdict}", String::from_utf8_lossy(asked)));
    }
}

/// The endpoints that the request may go to, where the cluster has subsets or priorities.
fn describe_subset(story: &mut Story, forward: &Forward, cluster: &Cluster, asked: &Asked<'_>) {
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let levels = cluster.view.levels(subset);
    if let Some(selectors) = &cluster.selectors {
        let is_found = subset.is_some_and(|subset| cluster.view.has_subset(subset));
        let words = match (is_found, selectors.fallback()) {
            (true, _) => "as the rule asks".to_owned(),
            (false, fallback) => format!("none such, fallback {fallback}"),
        };
        story.line("subset", words);
    }
    let is_split = levels.len() > 1 || levels.iter().any(|group| !group.is_whole());
    for group in levels.iter().filter(|_| is_split) {
        let endpoints = (0..group.len()).filter_map(|at| cluster.endpoints.get(group.place(at)?));
        let mut texts: Vec<String> = Vec::new();
        let mut priority = 0;
        for endpoint in endpoints {
            priority = endpoint.priority;
            texts.push(endpoint.address.to_string());
        }
        story.line("priority", format!("{priority}: {}", texts.join(", ")));
    }
    if levels.is_empty() && !cluster.endpoints.is_empty() {
        story.line("endpoint", "none may be chosen: 503");
    }
}

/// The endpoint that the request's hash leads to, where the cluster goes by that.
fn describe_hash(story: &mut Story, forward: &Forward, cluster: &Cluster, asked: &Asked<'_>) {
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let Some(group) = cluster.view.levels(subset).first() else { return };
    let Some(table) = group.hash_table() else { return };
    let hashing = forward.hashing.as_deref();
    let hashed = hashing.map(|it| it.hash(asked, &mut Searches::default(), || 1));
    let words = match hashed.unwrap_or_default() {
        Hashed { hash: None, .. } => "none: a draw decides".to_owned(),
        Hashed { cookie: Some(_), .. } => {
            "of a cookie that the client is given: a draw decides, once".to_owned()
        }
        Hashed { hash: Some(hash), .. } => {
            let place = table.place(hash.get(), 0).and_then(|inner| group.place(inner));
            let endpoint = place.and_then(|place| cluster.endpoints.get(place));
            let to = endpoint.map_or_else(|| "no endpoint".to_owned(), |it| it.address.to_string());
            format!("leads to {to}")
        }
    };
    story.line("hash", words);
}

/// An endpoint, with its share of the requests like this one; `group`: those that get them, if it is one of them.
fn endpoint_text(group: Option<&Group>, endpoint: &Endpoint) -> String {
    let weight = endpoint.weight;
    let all = group.and_then(|group| u32::try_from(group.weight_sum()).ok());
    let percent = all.map_or(0.0, |all| f64::from(weight) * 100.0 / f64::from(all.max(1)));
    format!("{} (weight {weight}, {percent:.1} % of requests)", address_text(&endpoint.address))
}

/// The outcome of the request in a running process.
fn outcome(snapshot: &Snapshot, trial: &Trial) -> String {
    match trial {
        Trial::Forwarded(cluster, address) => {
            let cluster = cluster.and_then(|id| snapshot.cluster(id));
            let cluster = cluster.map_or("", |cluster| &cluster.name);
            format!("forwarded to cluster {cluster}, this time {}", address_text(address))
        }
        Trial::ForwardedOnward => "forwarded to where the connection was going".to_owned(),
        Trial::Answered { head, body } => answer_text(head, body),
        Trial::Suspended(topic) => format!("waits for an answer about {topic}"),
        Trial::Refused => "the connection is closed without an answer".to_owned(),
    }
}

/// An answer of the proxy's own in a line. The body of a refusal says the cause behind the reason
/// phrase.
fn answer_text(head: &str, body: &str) -> String {
    let line = head.lines().next().unwrap_or_default();
    let mut words = line.splitn(3, ' ').skip(1);
    let (status, reason) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let cause = body.strip_prefix(reason).and_then(|rest| rest.strip_prefix(": "));
    let location = head.lines().find_map(|line| line.strip_prefix("location: "));
    match (location, cause) {
        (Some(location), _) => format!("answered here with {status}, to {location}"),
        (None, Some(cause)) => format!("answered here with {status}, cause {}", cause.trim_end()),
        (None, None) => format!("answered here with {status}"),
    }
}
