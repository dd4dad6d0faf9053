//! `listeners` to [`Listener`]s.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::file::one_or_several::OneOrSeveral;
use crate::file::{self, OrNone};
use crate::findings::{Findings, Problem};
use crate::hosts::{Host, HostIndex};
use crate::map::Map;
use crate::resource::cluster::breakers::Breakers;
use crate::resource::listener::accept_rate::AcceptRate;
use crate::resource::listener::addresses::{Addresses, Taken, take_addresses};
use crate::resource::listener::chain_names::ChainNames;
use crate::resource::listener::chains::ListenerChains;
use crate::resource::listener::file::{Protocol, Timeouts, WeightedCluster};
use crate::resource::listener::http::{http, proxy_protocol};
use crate::resource::listener::parts::{filters, handlers};
use crate::resource::listener::{hidden, resolved};
use crate::resource::route::tables::Tables;
use crate::resource::tls::build as tls;
use crate::resource::tls::build::Spoken;
use crate::sections::context::Context;
use crate::sections::names::{Names, Once};
use crate::sections::options::{http2, keepalive, or_none, rpc};
use crate::snapshot::{
    ChainMatch, ClusterId, Detected, DownstreamTimeouts, Handlers, ListenSocket, Listener,
    ListenerChain, ListenerId, ListenerProtocol, ListenerTls, OriginalDestination, Relay,
    RouteTable, RouteTableId,
};
use crate::text::tree::Site;

pub(crate) fn build<F>(
    file: &file::File,
    site: &Site<'_>,
    names: (&mut Names<'_, RouteTableId>, &mut Names<'_, ClusterId>),
    tables: &Tables,
    context: &mut Context<'_, '_, F>,
) -> Vec<Arc<Listener<F>>> {
    let (table_names, cluster_names) = names;
    let mut once = Once::default();
    let mut addresses = Addresses::default();
    let admin = file.admin.as_ref();
    let running = context.former.map(|former| &former.startup);
    for (key, asked, running) in [
        (
            "address",
            admin.and_then(|admin| admin.address.as_ref()),
            running.and_then(|running| running.admin.as_ref()),
        ),
        (
            "metrics",
            admin.and_then(|admin| admin.metrics.as_ref()),
            running.and_then(|running| running.metrics.as_ref()),
        ),
    ] {
        if let Some(address) = asked {
            let site = site.key("admin");
            let site = site.key(key);
            let line = context.findings.line_name(site.at().line);
            let owner = format!("the admin interface on {line}");
            addresses.take(Taken::by_admin(address, owner), &site, context.findings);
        }
        if let Some(address) = running.filter(|running| Some(*running) != asked) {
            // It cannot be taken by what it only seems to make room for.
            let owner = "the admin interface, until a restart,".to_owned();
            addresses.keep(Taken::by_admin(address, owner));
        }
    }
    let site = site.key("listeners");
    if file.listeners.is_empty() && site.is_written() && site.node().items().is_empty() {
        let problem = Problem::new("without a listener there is no traffic", "add one");
        site.warning(context.findings, problem);
    }
    let former: Map<&str, &Arc<Listener<F>>> = context
        .former
        .iter()
        .flat_map(|former| former.listeners.iter().map(|listener| (&*listener.name, listener)))
        .collect();
    let mut listeners = Vec::with_capacity(file.listeners.len());
    for (entry, site) in file.listeners.iter().zip(site.items()) {
        let is_new = once.check(&entry.name, "listener", &site, context.findings);
        take_addresses(entry, &site.key("address"), &mut addresses, context.findings);
        let listener = listener(
            entry,
            &site,
            former.get(entry.name.as_str()).copied(),
            (table_names, cluster_names),
            tables,
            context,
        );
        if is_new {
            listeners.push(listener);
        }
    }
    listeners
}

/// A listener that a source has delivered. Whether other listeners have its addresses is found out when they are bound.
pub(crate) fn delivered<F>(
    file: &file::Listener,
    site: &Site<'_>,
    former: Option<&Arc<Listener<F>>>,
    names: (&mut Names<'_, RouteTableId>, &mut Names<'_, ClusterId>),
    tables: &Tables,
    context: &mut Context<'_, '_, F>,
) -> Arc<Listener<F>> {
    let mut addresses = Addresses::default();
    take_addresses(file, &site.key("address"), &mut addresses, context.findings);
    listener(file, site, former, names, tables, context)
}

fn listener<F>(
    file: &file::Listener,
    site: &Site<'_>,
    // Of the same name. With another socket it is another listener, but may lend its filters.
    former: Option<&Arc<Listener<F>>>,
    (table_names, cluster_names): (&mut Names<'_, RouteTableId>, &mut Names<'_, ClusterId>),
    tables: &Tables,
    context: &mut Context<'_, '_, F>,
) -> Arc<Listener<F>> {
    let socket = ListenSocket {
        backlog: file.backlog,
        fast_open: file.fast_open,
        keepalive: keepalive(file.keepalive.as_ref(), site, context.findings),
        original_destination: original_destination(file, site, context.findings),
        mode: file.mode,
    };
    if file.mode.is_some() && !file.has_unix() {
        crate::sections::startup::refuse_mode(&site.key("mode"), context.findings);
    }
    let name: Arc<str> = Arc::from(file.name.as_str());
    let addresses = file.address.as_slice();
    let is_same_socket =
        |former: &&Arc<Listener<F>>| *former.addresses == *addresses && former.socket == socket;
    let id = former.filter(is_same_socket).map(|former| former.id);
    let id: ListenerId = id.unwrap_or_else(|| context.ids.listener());
    let names = (&mut *table_names, &mut *cluster_names);
    let has_chains = !file.chains.is_empty();
    let own = former.map(|former| &**former);
    let ends =
        resolve_ends(&Ends::of_listener(file), site, own, has_chains, names, tables, context);
    let proxy_protocol = proxy_protocol(file, site, tables, context.findings);
    let http = http(&file.http, proxy_protocol, &site.key("http"), context);
    let connections_per_client_max =
        file.connections_per_client_max.unwrap_or_else(|| half_of(file.connections_max));
    let mut listener = Listener {
        id,
        source: resolved::listener(file, ends.built(), &http, connections_per_client_max),
        name,
        addresses: addresses.into(),
        socket,
        protocol: ends.protocol,
        tls: ends.tls,
        relay: ends.relay,
        chains: ListenerChains::default(),
        chain_names: None,
        has_default: ends.is_some,
        filters: ends.filters,
        filter_sources: ends.filter_sources,
        handlers: ends.handlers,
        route_tables: ends.route_tables,
        hosts: ends.hosts,
        http,
        http2: http2(&file.http2, &site.key("http2"), context.findings),
        rpc: rpc(file.rpc),
        timeouts: timeouts(&file.timeouts),
        connections_max: file.connections_max,
        connections_per_client_max,
        accept_rate: file
            .accept_rate
            .map(|rate| AcceptRate::new(rate, own.and_then(|former| former.accept_rate.as_ref()))),
        requests_max: file.requests_max,
        breakers: Breakers::new(own.map(|former| &former.breakers)),
        exchanges_per_client_max: file.exchanges_per_client_max,
        buffered_bytes_max: match file.buffered_max {
            OrNone::None => None,
            OrNone::Some(size) => Some(size.0),
        },
    };
    let names = (&mut *table_names, &mut *cluster_names);
    let chains = chains(file, site, (former, &listener), names, tables, context);
    listener.chains = ListenerChains::new(chains, context.kinds.protocols());
    hidden::warn(&listener, &site.key("chains"), context.findings);
    listener.chain_names = ChainNames::new(&listener);
    if listener.tls.is_some() && !listener.has_default {
        let rule = "connections without a matching chain are closed, so no connection uses this: chains have their own `tls`";
        let hint = "move it into the chains that need it";
        site.key("tls").warning(context.findings, Problem::new(rule, hint));
    }
    match former {
        Some(former) if is_same(former, &listener) => Arc::clone(former),
        _ => Arc::new(listener),
    }
}

fn timeouts(file: &Timeouts) -> DownstreamTimeouts {
    DownstreamTimeouts {
        request_head: file.request_head.into(),
        detect: file.detect.into(),
        tls_handshake: file.tls_handshake.into(),
        idle: file.idle.into(),
        request_body: file.request_body.into(),
        filter: file.filter.into(),
        response_write: file.response_write.into(),
        tunnel_idle: file.tunnel_idle.into(),
        connection_age: or_none(file.connection_age),
        connection_age_grace: file.connection_age_grace.into(),
    }
}

/// The filter chains of a listener, in the order of the file. `former`: the listener of that name before.
fn chains<F>(
    file: &file::Listener,
    site: &Site<'_>,
    (former, listener): (Option<&Arc<Listener<F>>>, &Listener<F>),
    (table_names, cluster_names): (&mut Names<'_, RouteTableId>, &mut Names<'_, ClusterId>),
    tables: &Tables,
    context: &mut Context<'_, '_, F>,
) -> Vec<ListenerChain<F>> {
    let mut once = Once::default();
    let mut chains = Vec::with_capacity(file.chains.len());
    let mut by_match = Map::default();
    for (entry, site) in file.chains.iter().zip(site.key("chains").items()) {
        once.check(&entry.name, "chain", &site, context.findings);
        let former = former.and_then(|former| former.chains.named(&entry.name));
        // With another socket its listener is another one.
        let id = former.filter(|former| former.listener.id == listener.id).map(|former| former.id);
        let former = former.map(|chain| &chain.listener);
        let names = (&mut *table_names, &mut *cluster_names);
        let ends = resolve_ends(
            &Ends::of_chain(&file.name, entry),
            &site,
            former,
            false,
            names,
            tables,
            context,
        );
        let matches = chain_match(&entry.matches, &site.key("match"), context.findings);
        let server_names = site.key("match");
        let server_names = server_names.key("server_names");
        match &ends.tls {
            Some(tls) => {
                let names = &entry.matches.server_names;
                tls::warn_uncovered(tls, names, &server_names, context.findings);
            }
            None => warn_unended(entry, &matches, &ends, &site, context.findings),
        }
        if let Some(same) = by_match.insert(matches.clone(), &entry.name) {
            let rule = format!("chain {same:?} matches the same connections");
            let hint = "remove one of the two, or let one ask for more";
            site.key("match").error(context.findings, Problem::new(rule, hint));
        }
        let chain = ListenerChain {
            id: id.unwrap_or_else(|| context.ids.chain()),
            name: Arc::from(entry.name.as_str()),
            source: resolved::chain(entry, ends.built()),
            matches,
            listener: ends.of_same_socket(listener),
        };
        chains.push(chain);
    }
    chains
}

/// Warns of a chain for TLS that neither ends it nor passes it through.
fn warn_unended<F>(
    file: &file::ListenerChain,
    matches: &ChainMatch,
    ends: &BuiltEnds<F>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let is_for_tls = !matches.server_names.is_empty()
        || !matches.alpn.is_empty()
        || *matches.protocols == [Detected::Tls];
    let is_read = ends.protocol != ListenerProtocol::Tcp && ends.relay.is_none();
    if is_for_tls && is_read && file.tls.is_none() && !site.is_cut("tls") {
        let rule =
            "matching connections begin with TLS, which is not terminated here: each gets 400";
        let hint = "add `tls`, or pass it through with `protocol: tcp` and a cluster";
        site.key("match").warning(findings, Problem::new(rule, hint));
    }
}

/// Where connections of a listener, or of one of its chains, end: what the file says.
struct Ends<'f> {
    /// The listener, and the chain if it is one.
    name: (&'f str, &'f str),
    protocol: Protocol,
    tls: Option<&'f file::ListenerTls>,
    has_filters: bool,
    has_handlers: bool,
    routes: Option<&'f OneOrSeveral<String>>,
    cluster: Option<&'f str>,
    clusters: &'f [WeightedCluster],
}

impl<'f> Ends<'f> {
    fn of_listener(file: &'f file::Listener) -> Self {
        Self {
            name: (&file.name, ""),
            protocol: file.protocol,
            tls: file.tls.as_ref(),
            has_filters: !file.filters.is_empty(),
            has_handlers: !file.handlers.is_empty(),
            routes: file.routes.as_ref(),
            cluster: file.cluster.as_deref(),
            clusters: &file.clusters,
        }
    }

    fn of_chain(listener: &'f str, file: &'f file::ListenerChain) -> Self {
        Self {
            name: (listener, &file.name),
            protocol: file.protocol,
            tls: file.tls.as_ref(),
            has_filters: !file.filters.is_empty(),
            has_handlers: !file.handlers.is_empty(),
            routes: file.routes.as_ref(),
            cluster: file.cluster.as_deref(),
            clusters: &file.clusters,
        }
    }
}

/// Where connections end, resolved.
struct BuiltEnds<F> {
    protocol: ListenerProtocol,
    tls: Option<Arc<ListenerTls>>,
    relay: Option<Relay>,
    filters: Arc<[F]>,
    filter_sources: Arc<[crate::resource::filter::FilterSource]>,
    handlers: Handlers,
    route_tables: Vec<RouteTableId>,
    hosts: HostIndex<RouteTableId>,
    /// Whether the file says where.
    is_some: bool,
}

impl<F> BuiltEnds<F> {
    /// What the file does not say by itself.
    fn built(&self) -> resolved::Built<'_> {
        resolved::Built {
            filters: &self.filter_sources,
            handlers: &self.handlers,
            tls: self.tls.as_deref(),
        }
    }

    /// The listener with these ends.
    fn of_same_socket(self, listener: &Listener<F>) -> Listener<F> {
        Listener {
            id: listener.id,
            source: Arc::clone(&listener.source),
            name: Arc::clone(&listener.name),
            addresses: Arc::clone(&listener.addresses),
            socket: listener.socket,
            protocol: self.protocol,
            tls: self.tls,
            relay: self.relay,
            chains: ListenerChains::default(),
            chain_names: None,
            has_default: true,
            filters: self.filters,
            filter_sources: self.filter_sources,
            handlers: self.handlers,
            route_tables: self.route_tables,
            hosts: self.hosts,
            http: listener.http.clone(),
            http2: listener.http2,
            rpc: listener.rpc,
            timeouts: listener.timeouts,
            connections_max: listener.connections_max,
            connections_per_client_max: listener.connections_per_client_max,
            accept_rate: listener.accept_rate.clone(),
            requests_max: listener.requests_max,
            breakers: listener.breakers.clone(),
            exchanges_per_client_max: listener.exchanges_per_client_max,
            buffered_bytes_max: listener.buffered_bytes_max,
        }
    }
}

/// Resolves where connections end. `may_be_none`: there are chains for those that matter.
fn resolve_ends<F>(
    file: &Ends<'_>,
    site: &Site<'_>,
    former: Option<&Listener<F>>,
    may_be_none: bool,
    (table_names, cluster_names): (&mut Names<'_, RouteTableId>, &mut Names<'_, ClusterId>),
    tables: &Tables,
    context: &mut Context<'_, '_, F>,
) -> BuiltEnds<F> {
    let (filter_sources, filters) = filters(&site.key("filters"), former, context);
    let (route_tables, hosts) = match file.routes {
        Some(names) => routes(names, &site.key("routes"), table_names, tables, context.findings),
        None => Default::default(),
    };
    let handlers = handlers(&site.key("handlers"), &route_tables, former, tables, context);
    let relay = relay(file, site, cluster_names, context.findings);
    let is_written = |key: &str| site.key(key).is_written() || site.is_cut(key);
    let is_some = ["routes", "cluster", "clusters"].into_iter().any(is_written);
    let protocol = protocol(file, site, is_some || !may_be_none, context.findings);
    let ends_name = file.name;
    let tls = file.tls.and_then(|file| {
        let spoken = Spoken { protocol, relays: relay.is_some() };
        let former = former.and_then(|former| former.tls.as_ref());
        tls::listener((ends_name, file), spoken, &site.key("tls"), former, context)
    });
    BuiltEnds {
        protocol,
        tls,
        relay,
        filters,
        filter_sources,
        handlers,
        route_tables,
        hosts,
        is_some,
    }
}

fn chain_match(
    file: &file::chain::ChainMatch,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> ChainMatch {
    let mut server_names = Vec::new();
    for (name, site) in file.server_names.iter().zip(site.key("server_names").items()) {
        match name.parse() {
            Ok(Host::Any) => {
                let hint = "remove `server_names` to match every name";
                site.error(findings, Problem::new("`*` alone matches everything", hint));
            }
            Ok(host @ Host::Prefix(_)) => {
                let rule =
                    format!("a server name may contain `*` at its beginning only, unlike {host}");
                let hint = "write the whole name, or \"*.suffix\"";
                site.error(findings, Problem::new(rule, hint));
            }
            Ok(host) => server_names.push(host),
            Err(problem) => site.error(findings, problem),
        }
    }
    ChainMatch {
        server_names,
        alpn: file.alpn.iter().map(|name| name.as_bytes().into()).collect(),
        protocols: file.protocols.clone(),
        direct_sources: file.direct_sources.clone(),
        source_type: file.source_type,
        sources: file.sources.clone(),
        source_ports: file.source_ports.clone(),
        destinations: file.destinations.clone(),
        destination_ports: file.destination_ports.clone(),
    }
}

fn original_destination(
    file: &file::Listener,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> OriginalDestination {
    if file.original_destination == OriginalDestination::Off {
        return OriginalDestination::Off;
    }
    if file.has_unix() {
        let rule = "connections to a unix socket have no other destination";
        let problem = Problem::new(rule, "remove this, or listen on an IP address");
        site.key("original_destination").error(findings, problem);
    }
    file.original_destination
}

/// Whether nothing changed. Filters cannot be compared; their sources can.
fn is_same<F>(former: &Listener<F>, new: &Listener<F>) -> bool {
    // Taken apart, so that a new field cannot be forgotten here.
    let Listener {
        id,
        source,
        name,
        addresses,
        socket,
        protocol,
        tls,
        relay,
        chains,
        // It follows from the chains.
        chain_names: _,
        has_default,
        filters: _,
        filter_sources,
        handlers,
        route_tables,
        hosts,
        http,
        http2,
        rpc,
        timeouts,
        connections_max,
        connections_per_client_max,
        accept_rate,
        requests_max,
        breakers: _,
        exchanges_per_client_max,
        buffered_bytes_max,
    } = former;
    *id == new.id
        && *source == new.source
        && *name == new.name
        && *addresses == new.addresses
        && *socket == new.socket
        && *filter_sources == new.filter_sources
        && *handlers == new.handlers
        && *route_tables == new.route_tables
        && *hosts == new.hosts
        && *protocol == new.protocol
        && *tls == new.tls
        && *relay == new.relay
        && *has_default == new.has_default
        && chains.len() == new.chains.len()
        && chains.iter().zip(&new.chains).all(|(former, new)| {
            former.id == new.id
                && former.name == new.name
                && former.source == new.source
                && former.matches == new.matches
                && is_same(&former.listener, &new.listener)
        })
        && *http == new.http
        && *http2 == new.http2
        && *rpc == new.rpc
        && *timeouts == new.timeouts
        && *connections_max == new.connections_max
        && *connections_per_client_max == new.connections_per_client_max
        && *accept_rate == new.accept_rate
        && *requests_max == new.requests_max
        && *exchanges_per_client_max == new.exchanges_per_client_max
        && *buffered_bytes_max == new.buffered_bytes_max
}

/// The tables of a listener and the index of their hosts. A host that two of them claim would go
/// to one of them by accident.
fn routes(
    file: &OneOrSeveral<String>,
    site: &Site<'_>,
    names: &mut Names<'_, RouteTableId>,
    tables: &Tables,
    findings: &mut Findings<'_>,
) -> (Vec<RouteTableId>, HostIndex<RouteTableId>) {
    let mut ids = Vec::new();
    let mut hosts = HostIndex::default();
    let mut add = |name: &str, site: &Site<'_>| {
        for id in names.resolve_all(name, "route table", site, findings) {
            if ids.contains(&id) {
                let problem =
                    Problem::new("this route table occurs twice", "remove one of the two");
                return site.error(findings, problem);
            }
            ids.push(id);
            let Some(table) = tables.find(id) else { continue };
            for host in &table.hosts {
                if let Err(other) = hosts.insert(host, table.has_ports, id) {
                    site.error(findings, claimed_twice(host, tables.find(other), table));
                }
            }
        }
    };
    match file {
        OneOrSeveral::One(name) => add(name, site),
        OneOrSeveral::Several(names) => {
            names.iter().zip(site.items()).for_each(|(name, site)| add(name, &site));
        }
    }
    (ids, hosts)
}

fn claimed_twice(host: &Host, other: Option<&Arc<RouteTable>>, table: &RouteTable) -> Problem {
    let (other, name) = (other.map_or("another", |table| table.name.as_ref()), &table.name);
    let rule = format!("route tables `{other}` and `{name}` both contain the host {host}");
    Problem::new(rule, format!("remove {host} from one of them, or put their rules together"))
}

/// What the connections speak, and whether there is what that needs.
fn protocol(
    file: &Ends<'_>,
    site: &Site<'_>,
    is_needed: bool,
    findings: &mut Findings<'_>,
) -> ListenerProtocol {
    // What is written and wrong is reported as such.
    let is_written = |key: &str| site.key(key).is_written() || site.is_cut(key);
    let relays = is_written("cluster") || is_written("clusters");
    let mut refuse = |key: &str, rule: &'static str, hint: &'static str| {
        let place = if key.is_empty() { *site } else { site.key(key) };
        place.error(findings, Problem::new(rule, hint));
    };
    match file.protocol {
        Protocol::Tcp => {
            if !relays && is_needed {
                refuse("protocol", "a `tcp` listener needs a cluster", "add `cluster: NAME`");
            }
            if is_written("routes") {
                let hint = "remove them, or write `protocol: auto`";
                refuse("routes", "a `tcp` listener has no routes: it does not read HTTP", hint);
            }
            if file.has_filters {
                let hint = "remove them, or write `protocol: auto`";
                refuse("filters", "a `tcp` listener has no filters: it does not read HTTP", hint);
            }
            if file.has_handlers {
                let hint = "remove them, or write `protocol: auto`";
                refuse("handlers", "a `tcp` listener has no handlers: it does not read HTTP", hint);
            }
        }
        Protocol::Http1 | Protocol::Http2 | Protocol::Rpc(_) if relays => {
            let key = if is_written("cluster") { "cluster" } else { "clusters" };
            let rule = match file.protocol {
                Protocol::Http2 => "an `http2` listener relays nothing",
                Protocol::Rpc(_) => "a listener of an RPC protocol relays nothing",
                _ => "an `http1` listener relays nothing",
            };
            let hint =
                "write `protocol: auto` or `tcp`, or name the cluster in a rule of a route table";
            refuse(key, rule, hint);
        }
        Protocol::Http1 | Protocol::Http2 | Protocol::Rpc(_) | Protocol::Auto => {}
    }
    if file.protocol != Protocol::Tcp && !is_written("routes") && is_needed {
        let hint = "add `routes: NAME`, or write `protocol: tcp`";
        let rule = match file.protocol {
            Protocol::Rpc(_) => "a listener that accepts calls needs `routes`",
            _ => "a listener that accepts HTTP needs `routes`",
        };
        refuse("", rule, hint);
    }
    file.protocol
}

/// Where connections are relayed to, if anywhere.
fn relay(
    file: &Ends<'_>,
    site: &Site<'_>,
    names: &mut Names<'_, ClusterId>,
    findings: &mut Findings<'_>,
) -> Option<Relay> {
    if file.cluster.is_some() && !file.clusters.is_empty() {
        let problem =
            Problem::new("`cluster` and `clusters` exclude each other", "keep one of them");
        site.key("clusters").error(findings, problem);
    }
    let mut clusters = Vec::new();
    if let Some(name) = file.cluster {
        let id = names.resolve(name, "cluster", &site.key("cluster"), findings);
        clusters.extend(id.map(|id| (id, crate::defaults::WEIGHT)));
    }
    for (entry, site) in file.clusters.iter().zip(site.key("clusters").items()) {
        let id = names.resolve(&entry.cluster, "cluster", &site.key("cluster"), findings);
        clusters.extend(id.map(|id| (id, entry.weight)));
    }
    (!clusters.is_empty()).then(|| Relay { clusters: clusters.into() })
}

/// What one client may have of a listener's connections, if the file does not say.
fn half_of(connections_max: NonZeroU32) -> NonZeroU32 {
    let half = connections_max.get().div_ceil(crate::defaults::CONNECTIONS_PER_CLIENT_DIVISOR);
    NonZeroU32::new(half).unwrap_or(NonZeroU32::MIN)
}
