//! What filters and rules make of a request's head.

use std::net::IpAddr;
use std::sync::Arc;

use config::explain::Verdict as RuleVerdict;
use config::hosts::{Host, HostTable, port_of};
use config::matching::{Asked, Criterion, Place, Searches};
use config::snapshot::{Action, Forward, RouteTable, Rule};
use config::targets::Target;
use proxy::filter::Verdict;
use proxy::request_fields::{PreviewFacts, preview};
use proxy::route::{self, Found};
use proxy::{PeerAddress, Snapshot};
use tls::PeerCertificate;
use wire::h1::{HeadLimits, Scan, decode_request};
use wire::head::{HeadIndex, Method, RequestHead};

use super::cluster::describe_forward;
use super::request::Request;
use super::tls::is_secure;
use super::{Listener, Story};

/// The client that sends the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client<'c> {
    /// Its address, if that is said.
    pub(super) from: Option<IpAddr>,
    pub(super) certificate: Option<&'c PeerCertificate>,
    /// The ends of its connection: its own, and that of the process.
    pub(super) ends: &'c (PeerAddress, PeerAddress),
}

/// Describes the steps from the head's bytes to the endpoints.
pub(super) fn describe_head(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    request: &Request,
    client: Client<'_>,
) {
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    match decode_request(&request.head, &mut scan, &limits_of(listener), &mut index) {
        Ok(Some((mut head, _))) => {
            story.line("request", request_line(&head));
            let (peer, local) = client.ends;
            let facts = PreviewFacts {
                peer,
                local,
                options: &listener.http,
                is_secure: is_secure(listener, request),
                client_cert: client.certificate,
            };
            let seen = preview(&mut head, &facts);
            let client = Client { from: seen.client.or(client.from), ..client };
            if !seen.is_let_through {
                story.line("request", "has a header field with `_`, which the listener refuses");
            } else if describe_filters(story, listener, &mut head)
                && describe_handlers(story, snapshot, listener, &head, client)
            {
                describe_routes(story, snapshot, listener, &head, client);
            }
        }
        Ok(None) => story.line("request", "is not a complete head"),
        Err(error) => story.line("request", format!("is refused: {error}")),
    }
}

pub(super) const fn limits_of(listener: &Listener) -> HeadLimits {
    HeadLimits {
        request_line_bytes_max: listener.http.request_line_bytes_max,
        head_bytes_max: listener.http.head_bytes_max,
        fields_max: listener.http.fields_max,
        slashes: listener.http.slashes,
    }
}

/// Whether it is a `CONNECT` that has no path, for which routing has rules of its own.
pub(super) fn is_tunnel(head: &RequestHead<'_>) -> bool {
    head.method() == Method::Connect && !head.is_extended_connect()
}

fn request_line(head: &RequestHead<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let host = request_host(head);
    if is_tunnel(head) {
        return format!("{} host {host}", text(head.method_bytes()));
    }
    let query = head.query().map_or_else(String::new, |query| format!(" query {}", text(query)));
    let method = text(head.method_bytes());
    format!("{method} host {host} path {}{query}", text(head.path()))
}

/// The host, or what stands for it: a path alone was asked for.
fn request_host(head: &RequestHead<'_>) -> String {
    match head.host() {
        b"" => "(none; give one as -H 'Host: NAME')".to_owned(),
        host => String::from_utf8_lossy(host).into_owned(),
    }
}

/// Runs the filter chain; returns whether the request continues after it.
fn describe_filters(story: &mut Story, listener: &Listener, head: &mut RequestHead<'_>) -> bool {
    for (filter, source) in listener.filters.iter().zip(listener.filter_sources.iter()) {
        let before = request_line(head);
        let mut slot = vec![0; filter.slot_bytes()];
        let name = source.name();
        match filter.on_request(head, &mut slot) {
            Verdict::Continue if request_line(head) == before => {
                story.line("filter", format!("{name}: continues"));
            }
            Verdict::Continue => {
                story.line(
                    "filter",
                    format!("{name}: changes the request to {}", request_line(head)),
                );
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
                    format!("{name}: asks {topic}; the following depends on the answer"),
                );
                return false;
            }
        }
    }
    true
}

/// Asks the route handlers; returns whether the route tables decide.
fn describe_handlers(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    head: &RequestHead<'_>,
    client: Client<'_>,
) -> bool {
    if listener.handlers.is_empty() || is_tunnel(head) {
        return true;
    }
    let asked = asked(head, client);
    match route::handled(snapshot, &listener.handlers, &asked) {
        Ok(None) => {
            let names: Vec<&str> = listener.handlers.names().collect();
            story.line("handlers", format!("{}: pass the request on", names.join(", ")));
            true
        }
        Ok(Some((met, handler))) => {
            let (what, place, table) = (rule_text(snapshot, met.rule), met.place, &met.table.name);
            story.line(
                "handlers",
                format!("{handler}: answers with rule {place} of {table}: {what}"),
            );
            describe_met(story, snapshot, met, &asked);
            false
        }
        Err(why) => {
            story.line("handlers", why);
            false
        }
    }
}

fn describe_routes(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    head: &RequestHead<'_>,
    client: Client<'_>,
) {
    let host = request_host(head);
    let found = listener.hosts.find_authority(head.host(), || head.authority());
    for id in &listener.route_tables {
        let Some(table) = snapshot.route_table(*id) else { continue };
        let hosts = table.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let port = port_of(head.authority());
        let colon = if port.is_empty() { &b""[..] } else { b":" };
        let authority = [head.host(), colon, port].concat();
        let asked = if table.has_ports { &*authority } else { head.host() };
        let closest = closest(&table.hosts, asked);
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
                None if head.host().is_empty() => "the request has no host".to_owned(),
                None => format!("{host} is not among its hosts"),
            };
            story.line("routes", format!("{}: skipped, {why} ({hosts})", table.name));
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
    table: &Arc<RouteTable>,
    head: &RequestHead<'_>,
    client: Client<'_>,
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
                describe_met(story, snapshot, Found { table, place, rule }, &asked);
            }
            RuleVerdict::PassedOver(why) => {
                story.line(&step, format!("{what}: skipped, {why}"));
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

/// Describes what the rule that a request meets makes of it.
fn describe_met(story: &mut Story, snapshot: &Snapshot, met: Found<'_>, asked: &Asked<'_>) {
    describe_edits(story, snapshot, met, asked);
    let Found { rule, .. } = met;
    if let Action::Forward(forward) = &rule.action {
        describe_forward(story, snapshot, forward, asked.head, asked);
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
fn describe_edits(story: &mut Story, snapshot: &Snapshot, met: Found<'_>, asked: &Asked<'_>) {
    let Found { table, place, rule } = met;
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
    for line in config::explain::edits(snapshot, table, place, &shares) {
        story.line("headers", line);
    }
}

/// As [`describe_rules`], for a request that no rule's path counts for.
fn describe_tunnel_rules(
    story: &mut Story,
    snapshot: &Snapshot,
    table: &RouteTable,
    head: &RequestHead<'_>,
    client: Client<'_>,
) {
    let (asked, mut searches) = (asked(head, client), Searches::default());
    let found = route::find_tunnel(table, &asked, &mut searches).ok().map(|(place, _)| place);
    for (place, rule) in table.rules.iter().enumerate() {
        let what = rule_text(snapshot, rule);
        let verdict = if found == Some(place) {
            "allows tunnels".to_owned()
        } else if found.is_some_and(|found| found < place) {
            "not reached".to_owned()
        } else {
            match table.unmet(rule, &asked, &mut searches) {
                None => "skipped, connect is not among its upgrades".to_owned(),
                Some(why) => format!("skipped, {why}"),
            }
        };
        story.line(&format!("rule {place}"), format!("{what}: {verdict}"));
        if let (true, Action::Forward(forward)) = (found == Some(place), &rule.action) {
            describe_forward(story, snapshot, forward, head, &asked);
        }
    }
}

/// The request as rules see it. Where it comes from is not known here, and its die is at 0.
fn asked<'r>(head: &'r RequestHead<'r>, client: Client<'r>) -> Asked<'r> {
    Asked { head, source: client.from, client: client.certificate, die: 0 }
}

fn rule_text(snapshot: &Snapshot, rule: &Rule) -> String {
    let path = &rule.path;
    let action = match &rule.action {
        Action::Forward(forward) => target_text(snapshot, &forward.target),
        Action::Respond(respond) => format!("respond {}", respond.status),
        Action::Redirect(redirect) => format!("redirect {}", redirect.status),
    };
    let also: String =
        rule.also.iter().map(|criterion| format!(", {}", criterion.shown())).collect();
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
