//! `clusters` to [`Cluster`]s.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::file;
use crate::file::one_or_several::OneOrSeveral;
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::resource::assignment::endpoints;
use crate::resource::assignment::locality::build as localities;
use crate::resource::cluster::adaptive::Adaptive;
use crate::resource::cluster::assigned::{Assigned, Choosing};
use crate::resource::cluster::balance::Balancer;
use crate::resource::cluster::breakers::Breakers;
use crate::resource::cluster::checks::build as checks;
use crate::resource::cluster::file::{Endpoints, EndpointsFile, Protocol, ProxyProtocol};
use crate::resource::cluster::health::{Activity, Warming};
use crate::resource::cluster::outlier::Outlier;
use crate::resource::cluster::preconnect::Preconnect;
use crate::resource::cluster::priority::{Bounds, Priority};
use crate::resource::cluster::resolved;
use crate::resource::cluster::slow_start::SlowStart;
use crate::resource::cluster::subsets::Metadata;
use crate::resource::cluster::subsets::build as subsets;
use crate::resource::cluster::transports::Transports;
use crate::resource::cluster::transports::build as transports;
use crate::resource::cluster::unchanged;
use crate::resource::listener::file::OriginalDestination;
use crate::resource::route::file::named_by_rule;
use crate::resource::route::tunnels::opens_tunnels;
use crate::resource::{self, Assignment};
use crate::sections::context::{Context, share};
use crate::sections::delivered::{Lowered, lowered};
use crate::sections::names::{Names, Once};
use crate::sections::options::{http2, keepalive, or_none, rpc};
use crate::snapshot::{Address, Cluster, ClusterId, EndpointId, EndpointsFrom, UpstreamTimeouts};
use crate::text::tree::{self, Site};

/// The clusters of the text, and how many of them were lowered: the others are the former ones.
pub(crate) fn build<F>(
    file: &file::File,
    site: &Site<'_>,
    names: &Names<'_, ClusterId>,
    context: &mut Context<'_, '_, F>,
) -> (Vec<Arc<Cluster>>, usize) {
    let mut once = Once::default();
    let mut lowered = 0;
    let relayed_to = relayed_to(file);
    let mut clusters = Vec::with_capacity(file.clusters.len());
    for (entry, site) in file.clusters.iter().zip(site.items()) {
        let is_new = once.check(&entry.name, "cluster", &site, context.findings);
        let known = names.known.get(entry.name.as_str()).map(|(id, _)| *id);
        // An entry without a name of its own was reported, and is looked at for its other mistakes.
        let id = known.unwrap_or_else(|| context.ids.cluster(&entry.name));
        let former = context.former.and_then(|former| former.cluster(id));
        let is_relayed_to = relayed_to.contains_key(entry.name.as_str());
        if let Some(former) = former.filter(|_| is_new && site.node().is_known)
            && unchanged::is_same(former, is_relayed_to, context)
        {
            unchanged::warn(former, &site, context);
            clusters.push(Arc::clone(former));
            continue;
        }
        let written = site.node().is_known.then(|| as_written(&site, context.findings)).flatten();
        let entry = written.as_ref().unwrap_or(entry);
        let cluster = cluster(entry, id, is_relayed_to, &site, former, context);
        lowered += 1;
        if is_new {
            clusters.push(share(cluster, former));
        }
    }
    (clusters, lowered)
}

/// An entry whose text is known again. In the file, what was lowered of it stands for it, which says more than the text.
fn as_written(site: &Site<'_>, findings: &mut Findings<'_>) -> Option<file::Cluster> {
    let read = tree::deserialize(site.node());
    let problem = |message| Problem::new(message, "see docs/configuration/reference.md");
    read.map_err(|mismatch| site.error(findings, problem(mismatch.message))).ok()
}

/// The names of the clusters to which bytes go that are no HTTP: relayed connections, and tunnels of
/// `CONNECT`.
fn relayed_to(file: &file::File) -> Map<&str, ()> {
    let of_listeners = file.listeners.iter().flat_map(|listener| {
        let own = (&listener.cluster, listener.clusters.as_slice());
        let chains =
            listener.chains.iter().map(|chain| (&chain.cluster, chain.clusters.as_slice()));
        chains.chain([own])
    });
    let of_listeners = of_listeners.flat_map(|(one, several)| {
        let several = several.iter().map(|weighted| weighted.cluster.as_str());
        one.as_deref().into_iter().chain(several)
    });
    let rules = file.routes.iter().flat_map(|table| &table.rules);
    let of_rules =
        rules.filter(|rule| opens_tunnels(rule)).filter_map(|rule| rule.cluster.as_deref());
    of_listeners.chain(of_rules).map(|name| (name, ())).collect()
}

/// The names of clusters in rules, listeners and chains.
pub(crate) fn named(file: &file::File) -> impl Iterator<Item = &str> {
    let rules = file.routes.iter().flat_map(|table| &table.rules);
    let of_listeners = file.listeners.iter().flat_map(named_by_listener);
    rules.flat_map(named_by_rule).chain(of_listeners)
}

/// The names of clusters in a listener and its chains.
pub(crate) fn named_by_listener(listener: &file::Listener) -> impl Iterator<Item = &str> {
    let chains = listener.chains.iter().map(|chain| (&chain.cluster, &chain.clusters));
    let ends = chains.chain([(&listener.cluster, &listener.clusters)]);
    let names = ends.flat_map(|(one, several)| {
        one.iter().chain(several.iter().map(|weighted| &weighted.cluster))
    });
    names.map(String::as_str)
}

pub(crate) fn cluster<F>(
    file: &file::Cluster,
    id: ClusterId,
    is_relayed_to: bool,
    site: &Site<'_>,
    former: Option<&Arc<Cluster>>,
    context: &mut Context<'_, '_, F>,
) -> Cluster {
    let protocol = file.protocol;
    check_proxy_protocol(file, site, context.findings);
    let transports = transports::build(file, is_relayed_to, former, site, context);
    let original_destination = original_destination(file, former, site, context);
    let (assignment, endpoints_from) = assignment(file, id, (&transports, former), site, context);
    let balancer = balancer(file, site, context.findings);
    let selectors = subsets::selectors(file, site, context.findings);
    let outlier = outlier(file, site, context.findings);
    let source = resolved::cluster(file, &transports);
    let checks = checks::checks(&source, site, context.findings);
    let initial_check_timeout = initial_check_timeout(file, site, context.findings);
    let has_health = outlier.is_some() || !checks.is_empty();
    let former_breakers = match former {
        Some(former) => Some(&former.breakers),
        None => context.ids.breakers(id),
    };
    let breakers = Breakers::new(former_breakers);
    let localities = localities::rule(file, balancer, site, context.findings);
    let choice = Choosing {
        balancer,
        selectors: selectors.as_ref(),
        localities: localities.as_ref(),
        transports: &transports,
        has_health,
        bounds_connections: file.connections_per_endpoint_max.is_some(),
        drained: context.drained.of(&file.name),
    };
    let Assigned { endpoints, places_by_id, view, left_out } =
        Assigned::new(&assignment, &endpoints_from, choice, former, &mut context.ids);
    Cluster {
        id,
        source,
        name: Arc::from(file.name.as_str()),
        endpoints,
        endpoints_from,
        left_out,
        original_destination,
        places_by_id,
        balancer,
        localities,
        slow_start: slow_start(file, balancer, site, context.findings),
        activity: Activity::new(!checks.is_empty(), former.map(|former| &former.activity)),
        initial_check_timeout,
        warming: Warming::new(
            initial_check_timeout.is_some(),
            former.map(|former| &former.warming),
        ),
        checks,
        outlier,
        panic: file.panic,
        view,
        selectors,
        transports,
        protocol,
        http2: http2(&file.http2, &site.key("http2"), context.findings),
        rpc: rpc(file.rpc),
        response_parsing: file.response_parsing.0,
        interim_responses_max: file.interim_responses_max,
        timeouts: timeouts(file),
        bounds: Bounds {
            connections_max: file.connections_max,
            pending_max: file.pending_max,
            requests_max: file.requests_max,
            retry_budget: file.retry_budget,
        },
        high: file.high_priority.as_deref().copied().unwrap_or_default(),
        connections_per_endpoint_max: connections_per_endpoint_max(file, site, context.findings),
        adaptive: adaptive(file, former, site, context.findings),
        requests_per_connection_max: file.requests_per_connection_max,
        preconnect: preconnect(file, site, context.findings),
        breakers,
        proxy_protocol: file.proxy_protocol,
        keepalive: keepalive(file.keepalive.as_ref(), site, context.findings),
        fast_open: file.fast_open,
        mark: file.mark,
    }
}

/// Refuses a header for a protocol whose connections have many clients.
fn check_proxy_protocol(file: &file::Cluster, site: &Site<'_>, findings: &mut Findings<'_>) {
    let (rule, hint) = match file.protocol {
        _ if !file.proxy_protocol.is_sent() => return,
        Protocol::Http1 => return,
        Protocol::Rpc(_) => (
            "a PROXY header names the only client of a connection, and an RPC connection has many",
            "remove it",
        ),
        Protocol::Http2 => (
            "a PROXY header names the only client of a connection, and an HTTP/2 connection has many",
            "write `protocol: http1`, or leave the client to `x-forwarded-for`",
        ),
    };
    site.key("proxy_protocol").error(findings, Problem::new(rule, hint));
}

fn timeouts(file: &file::Cluster) -> UpstreamTimeouts {
    let timeouts = &file.timeouts;
    UpstreamTimeouts {
        connect: file.connect_timeout.into(),
        pending: timeouts.pending.into(),
        response_head: timeouts.response_head.into(),
        response_body: timeouts.response_body.into(),
        request_write: timeouts.request_write.into(),
        stall: or_none(timeouts.stall),
        idle: timeouts.idle.into(),
        connection_age: or_none(timeouts.connection_age),
    }
}

/// The bound of connections to each endpoint.
fn connections_per_endpoint_max(
    file: &file::Cluster,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<NonZeroU32> {
    let max = file.connections_per_endpoint_max?;
    if file.original_destination {
        let rule = "a cluster with `original_destination` has no endpoints of its own";
        let hint = "remove it; `connections_max` limits the connections to all";
        site.key("connections_per_endpoint_max").error(findings, Problem::new(rule, hint));
    }
    Some(max)
}

/// How long a new cluster waits for the first checks of its endpoints.
fn initial_check_timeout(
    file: &file::Cluster,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Duration> {
    let timeout = file.initial_check_timeout?;
    if file.checks.is_empty() {
        let rule = "the cluster has no `checks`, so there is nothing to wait for";
        let hint = "add `checks`, or remove this";
        site.key_error(findings, "initial_check_timeout", Problem::new(rule, hint));
    }
    Some(timeout.0)
}

/// What an endpoint gets that came lately.
fn slow_start(
    file: &file::Cluster,
    balancer: Balancer,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<SlowStart> {
    if file.slow_start.is_some() && (balancer.is_by_hash() || file.original_destination) {
        let rule = "a slow start needs a balancer without a hash";
        let hint = "remove it, or write another `balance`, such as least_request";
        site.key_error(findings, "slow_start", Problem::new(rule, hint));
    }
    file.slow_start
}

/// What connections are opened before requests need them.
fn preconnect(
    file: &file::Cluster,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Preconnect> {
    let ratio = file.preconnect?;
    let no_use = match (file.proxy_protocol, file.original_destination) {
        (ProxyProtocol::Off, false) => None,
        (ProxyProtocol::Off, true) => {
            Some("a cluster with `original_destination` has no endpoints of its own")
        }
        (ProxyProtocol::V1 | ProxyProtocol::V2, _) => {
            Some("with `proxy_protocol`, a connection is one client's, which is not known before")
        }
    };
    if let Some(rule) = no_use {
        site.key_error(findings, "preconnect", Problem::new(rule, "remove it"));
    }
    if !(1_000..=Preconnect::THOUSANDTHS_MAX).contains(&ratio.thousandths()) {
        let rule = "the connections for each active request are from 1 to 3";
        let hint = "write 1.5 for half as many more as are in use";
        site.key("preconnect").error(findings, Problem::new(rule, hint));
    }
    Preconnect::new(ratio)
}

/// The bound of requests that follows how long responses take.
fn adaptive(
    file: &file::Cluster,
    former: Option<&Arc<Cluster>>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Adaptive> {
    let policy = file.adaptive_concurrency?;
    let (least, most) = (policy.min_rtt.concurrency, policy.concurrency_max);
    if least > most {
        let rule =
            format!("the minimum of the limit is above its maximum, concurrency_max: {most}");
        let problem = Problem::new(rule, format!("write at most {most}"));
        let site = site.key("adaptive_concurrency");
        site.key("min_rtt").key("concurrency").error(findings, problem);
    }
    Some(Adaptive::new(policy, former.and_then(|former| former.adaptive.as_ref())))
}

fn outlier(file: &file::Cluster, site: &Site<'_>, findings: &mut Findings<'_>) -> Option<Outlier> {
    let outlier = file.outlier.as_ref()?;
    let outlier_site = site.key("outlier");
    if file.original_destination {
        let rule = "a cluster with `original_destination` has no endpoints that could be ejected";
        outlier_site.error(findings, Problem::new(rule, "remove it"));
    }
    if outlier.ejection.max.0 < outlier.ejection.base.0 {
        let rule = "the longest ejection is not shorter than the first";
        let hint = format!("write at least {}", outlier.ejection.base);
        outlier_site.key("ejection").key("max").error(findings, Problem::new(rule, hint));
    }
    Some(outlier.clone())
}

/// How requests are shared among its endpoints, if it has any of its own.
fn balancer(file: &file::Cluster, site: &Site<'_>, findings: &mut Findings<'_>) -> Balancer {
    let site = site.key("balance");
    if file.original_destination && file.balance.is_some() {
        let rule = "a cluster with `original_destination` has no endpoints to choose among";
        site.error(findings, Problem::new(rule, "remove it"));
    }
    Balancer::build(file.balance.unwrap_or_default()).unwrap_or_else(|(of, key, problem)| {
        site.key(of).key(key).error(findings, problem);
        Balancer::RoundRobin
    })
}

/// The endpoints, and where they come from.
fn assignment<F>(
    file: &file::Cluster,
    id: ClusterId,
    (transports, former): (&Transports, Option<&Arc<Cluster>>),
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> (Arc<Assignment>, EndpointsFrom) {
    let is_assigned = is_assigned(file, site, context);
    let site = site.key("endpoints");
    match &file.endpoints {
        None if is_assigned => {
            (context.assignments.of(&file.name, former), EndpointsFrom::Assignment)
        }
        None => Default::default(),
        Some(Endpoints::List(entries)) => {
            // What TLS needs for sockets of the file system is said where that stands.
            let list = endpoints::lower(entries, &|_| true, &site, context.findings);
            let (from, assignment) = list.split();
            match from {
                EndpointsFrom::Names(_) => (Arc::new(context.names.assignment(&from, id)), from),
                _ => (Arc::new(assignment), from),
            }
        }
        Some(Endpoints::Dns(dns)) => {
            let from = endpoints::lower_dns(dns, &site, context.findings);
            (Arc::new(context.names.assignment(&from, id)), from)
        }
        Some(Endpoints::File(EndpointsFile { file })) => {
            let site = site.key("file");
            let files = &mut context.endpoint_files;
            let assignment = files.assignment(file, id, &site, context.findings);
            let none = Metadata::new();
            let is_nameless = |endpoint: &resource::Endpoint| {
                let metadata = endpoint.traits.metadata.as_deref().unwrap_or(&none);
                endpoint.address.is_unix() && !transports.allow_unix(metadata)
            };
            if assignment.endpoints.iter().any(is_nameless) {
                site.error(context.findings, endpoints::unix_needs_name());
            }
            (assignment, EndpointsFrom::File(Arc::from(file.as_str())))
        }
    }
}

/// Whether a source delivers its endpoints: where there are sources, and the text says nothing else.
fn is_assigned<F>(file: &file::Cluster, site: &Site<'_>, context: &Context<'_, '_, F>) -> bool {
    let keys = ["endpoints", "original_destination"];
    context.has_sources && !file.original_destination && !keys.iter().any(|key| site.has_key(key))
}

/// Whether the cluster says by one way, and by one only, where it is.
fn original_destination<F>(
    file: &file::Cluster,
    former: Option<&Arc<Cluster>>,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Option<EndpointId> {
    let has_endpoints = site.key("endpoints").is_written() || site.is_cut("endpoints");
    if file.original_destination && has_endpoints {
        let rule = "a cluster with `original_destination` has no endpoints";
        let hint = "keep one of the two";
        site.key("original_destination").error(context.findings, Problem::new(rule, hint));
    } else if !file.original_destination
        && !has_endpoints
        && !site.is_cut("original_destination")
        && !is_assigned(file, site, context)
    {
        let rule = "a cluster has `endpoints`, or `original_destination`";
        site.error(context.findings, Problem::new(rule, "add `endpoints: [ADDRESS]`"));
    }
    let known = former.and_then(|former| former.original_destination);
    file.original_destination.then(|| known.unwrap_or_else(|| context.ids.endpoint()))
}

/// Warns of clusters that connect to where connections were going, if no listener knows that.
pub(crate) fn warn_aimless(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let knows =
        |listener: &file::Listener| listener.original_destination != OriginalDestination::Off;
    let may_know = |site: Site<'_>| site.is_cut("original_destination");
    if site.is_cut("listeners")
        || file.listeners.iter().any(knows)
        || site.key("listeners").items().any(may_know)
    {
        return;
    }
    let sites = site.key("clusters");
    let clusters = file.clusters.iter().zip(sites.items());
    for (_, site) in clusters.filter(|(entry, _)| entry.original_destination) {
        let rule = "no listener finds original destinations: each request gets 503";
        let hint = "write `original_destination: redirect` or `tproxy` in a listener";
        site.key("original_destination").warning(findings, Problem::new(rule, hint));
    }
}

/// Warns of limits for requests of high priority where no rule has any, in a file that is all there is.
pub(crate) fn warn_without_priority(
    file: &file::File,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let rules = file.routes.iter().flat_map(|table| &table.rules);
    if rules.into_iter().any(|rule| rule.priority == Some(Priority::High)) {
        return;
    }
    let sites = site.key("clusters");
    for (_, site) in
        file.clusters.iter().zip(sites.items()).filter(|(it, _)| it.high_priority.is_some())
    {
        let hint = "write `priority: high` in the rules of urgent requests, or remove this";
        let problem = Problem::new("no rule has requests of high priority", hint);
        site.key("high_priority").warning(findings, problem);
    }
}

/// Warns of endpoints that are where a listener listens whose connections may go there.
pub(crate) fn warn_loops(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let mut listeners: Map<&Address, &file::Listener> = Map::default();
    for listener in &file.listeners {
        listeners.extend(listener.address.as_slice().iter().map(|address| (address, listener)));
    }
    let sites = site.key("clusters");
    for (cluster, site) in file.clusters.iter().zip(sites.items()) {
        let endpoints = site.key("endpoints");
        for (endpoint, site) in cluster.listed_endpoints().iter().zip(endpoints.items()) {
            let found = endpoint.address().address();
            let found = found.and_then(|address| listening_at(&listeners, address));
            if let Some(listener) = found.filter(|found| leads_to(file, found, &cluster.name)) {
                let name = &listener.name;
                let rule = format!("listener {name} listens on this address, and forwards to it");
                let hint = "write the address of the upstream, or requests loop without end";
                site.warning(findings, Problem::new(rule, hint));
            }
        }
    }
}

/// The listener that a connection to `address` comes to.
fn listening_at<'a>(
    listeners: &Map<&Address, &'a file::Listener>,
    address: &Address,
) -> Option<&'a file::Listener> {
    let any = match address {
        Address::Tcp(address) if address.ip().is_loopback() => {
            let any = match address.ip() {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            Some(Address::Tcp(SocketAddr::new(any, address.port())))
        }
        Address::Tcp(_) | Address::Unix(_) => None,
    };
    listeners.get(address).or_else(|| listeners.get(any.as_ref()?)).copied()
}

/// Whether a listener, or a chain of it, has a way to the cluster of this name.
fn leads_to(file: &file::File, listener: &file::Listener, cluster: &str) -> bool {
    let chains = listener.chains.iter();
    let chains = chains.map(|chain| (&chain.routes, &chain.cluster, &chain.clusters));
    let mut ends = chains.chain([(&listener.routes, &listener.cluster, &listener.clusters)]);
    ends.any(|(routes, one, several)| {
        let names = routes.as_ref().map_or(&[][..], OneOrSeveral::as_slice);
        let mut tables = file.routes.iter().filter(|table| names.contains(&table.name));
        one.as_deref() == Some(cluster)
            || several.iter().any(|weighted| weighted.cluster == cluster)
            || tables.any(|table| {
                table.rules.iter().any(|rule| rule.cluster.as_deref() == Some(cluster))
            })
    })
}

/// A cluster that another source than the file delivers.
pub(crate) fn delivered<F>(
    file: &file::Cluster,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Lowered<Arc<Cluster>> {
    // If it is refused, nothing names the id, and it is free again.
    let id = context.ids.hold(&file.name);
    let former = context.former.and_then(|former| former.cluster(id));
    for tls in former.iter().flat_map(|former| former.transports.tls()) {
        context.files.know(tls.source.certificate.as_slice(), tls.source.roots.as_ref());
    }
    // Whether a listener relays to it may change at any time.
    let cluster = cluster(file, id, true, site, former, context);
    lowered(share(cluster, former), BTreeSet::new(), context)
}
