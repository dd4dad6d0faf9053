//! A snapshot written back as a file: every default filled in, secrets masked.
//!
//! What comes out is itself a configuration (a test loads it), but for what is masked. Route
//! tables and clusters stand in the order of their ids, which for a first load is that of the file.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use serde_json::{Value as Json, json};
use wire::path::Slashes;

use crate::certificates::certificates;
use crate::dns::{DnsName, EndpointAddress, HostPort};
use crate::error_pages;
use crate::file::cluster::{Endpoints, EndpointsDns, EndpointsFile, WeightedEndpoint};
use crate::file::{self, OrNone, Timeout};
use crate::filters::FILTER_NOUN;
use crate::rewrite::Rewrite;
use crate::secrets::{MASK, is_secret_name};
use crate::shape::{Kind, Shape};
use crate::snapshot::{
    AccessLog, AccessLogCondition, AccessLogFormat, AccessLogOutput, Action, Address,
    CertificateSource, Chain, ChainMatch, ClientCertDetails, Cluster, ClusterId, ClusterProtocol,
    ClusterTls, ClusterTlsSource, Detected, EndpointsFrom, Forward, ForwardClientCert,
    ForwardedFields, HandoverOptions, Http2Options, Keepalive, Limits, ListedEndpoint, Listener,
    ListenerProtocol, ListenerTls, ListenerTlsSource, OriginalDestination, ProxyProtocolVersion,
    Redirect, RedirectPath, Resolvers, Respond, ResponseParsing, RouteTable, Rule, Signing,
    Snapshot, StartupOptions, TlsMode, Underscores,
};
use crate::targets::{Share, ShareKey, ShareRewrite, Sticky, Target};
use crate::units::{Period, Size};

/// The whole of `snapshot` in the form of a file.
#[must_use]
pub fn effective<F>(snapshot: &Snapshot<F>) -> Json {
    let file = file::File {
        // What is shown is all of it.
        include: Vec::new(),
        admin: admin(&snapshot.startup),
        workers: workers(&snapshot.startup),
        handover: handover(&snapshot.startup.handover),
        listeners: snapshot.listeners.iter().map(|entry| listener(entry, snapshot)).collect(),
        routes: snapshot.route_tables.iter().map(|(_, entry)| table(entry, snapshot)).collect(),
        clusters: snapshot.clusters.iter().map(|(_, entry)| cluster(entry)).collect(),
        resolvers: resolvers(&snapshot.resolvers),
        limits: limits(&snapshot.limits),
        metrics: snapshot.metrics,
        access_log: access_log(&snapshot.access_log),
    };
    // Serialising cannot fail: all keys are text.
    let mut shown = serde_json::to_value(file).unwrap_or_default();
    redact(&mut shown, SHAPE.as_ref());
    shown
}

fn admin(startup: &StartupOptions) -> Option<file::Admin> {
    let StartupOptions { admin, admin_mode, admin_hosts, metrics, .. } = startup;
    (admin.is_some() || metrics.is_some()).then(|| file::Admin {
        address: admin.clone(),
        mode: *admin_mode,
        hosts: admin_hosts.iter().map(ToString::to_string).collect(),
        metrics: metrics.clone(),
    })
}

fn handover(options: &HandoverOptions) -> file::Handover {
    file::Handover {
        socket: options.socket.as_ref().map(|path| path.to_string_lossy().into_owned()),
        timeout: Timeout(Period(options.timeout)),
        probation: Period(options.probation),
        users: options.users.to_vec(),
    }
}

/// [`effective`] as YAML, with what the certificates are as comments.
#[must_use]
pub fn effective_yaml<F>(snapshot: &Snapshot<F>) -> String {
    let mut yaml = String::new();
    write_yaml(&effective(snapshot), 0, &mut yaml);
    for (place, used) in certificates(snapshot).iter().enumerate() {
        if place == 0 {
            yaml.push_str("# Certificates:\n");
        }
        // Names and paths may hold anything but the end of a line, which would end the comment.
        let line = used.to_string().replace(|c: char| c.is_control(), " ");
        yaml.push_str(&format!("# - {line}\n"));
    }
    yaml
}

/// The shape of a file, for the secrets marked in it. Filters have masked theirs already.
static SHAPE: LazyLock<Option<Shape>> = LazyLock::new(|| {
    let schema = crate::schema::compiled(&crate::filters::FilterKinds::<()>::new());
    Shape::new(&schema, "").ok()
});

/// Masks what the shape marks as secret, and what stands under a name that says so. Names of filters
/// say nothing of the kind.
pub(crate) fn redact(value: &mut Json, shape: Option<&Shape>) {
    if shape.is_some_and(|shape| shape.is_secret) {
        *value = MASK.into();
        return;
    }
    let kind = shape.map(|shape| &shape.kind);
    match value {
        Json::Array(items) => {
            let inner = match kind {
                Some(Kind::List { items, .. }) => Some(items.as_ref()),
                _ => None,
            };
            items.iter_mut().for_each(|item| redact(item, inner));
        }
        Json::Object(entries) => {
            let is_filter =
                matches!(kind, Some(Kind::Object(object)) if object.noun() == FILTER_NOUN);
            for (key, value) in entries {
                let inner = match kind {
                    Some(Kind::Object(object)) => {
                        let field = object.fields.iter().find(|field| field.name == *key);
                        field.map(|field| &field.shape)
                    }
                    Some(Kind::Map(values)) => Some(values.as_ref()),
                    _ => None,
                };
                let is_public = is_filter || inner.is_some_and(|inner| inner.is_public);
                if !is_public && is_secret_name(key) {
                    *value = MASK.into();
                    continue;
                }
                redact(value, inner);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

fn workers(startup: &StartupOptions) -> file::Workers {
    let count = match startup.workers {
        Some(count) => file::WorkerCount::Exactly(count),
        None => file::WorkerCount::default(),
    };
    file::Workers::Options(file::WorkerOptions { count, pin: startup.pins_workers })
}

fn listener<F>(listener: &Listener<F>, snapshot: &Snapshot<F>) -> file::Listener {
    let tables = listener.route_tables.iter().filter_map(|id| snapshot.route_table(*id));
    let sources = listener.filter_sources.iter();
    let timeouts = &listener.timeouts;
    let http = &listener.http;
    let relayed = listener.relay.iter().flat_map(|relay| &relay.clusters);
    let weighted = |(id, weight): &(ClusterId, NonZeroU16)| {
        let name = snapshot.cluster(*id).map(|cluster| cluster.name.to_string());
        file::listener::WeightedCluster { cluster: name.unwrap_or_default(), weight: *weight }
    };
    file::Listener {
        name: listener.name.to_string(),
        address: listener.address.clone(),
        filters: sources.map(|source| json!({ source.name(): source.shown() })).collect(),
        protocol: match listener.protocol {
            ListenerProtocol::Auto => file::listener::Protocol::Auto,
            ListenerProtocol::Http1 => file::listener::Protocol::Http1,
            ListenerProtocol::Http2 => file::listener::Protocol::Http2,
            ListenerProtocol::Tcp => file::listener::Protocol::Tcp,
        },
        tls: listener.tls.as_deref().map(listener_tls),
        routes: (listener.protocol != ListenerProtocol::Tcp && listener.has_default).then(|| {
            file::listener::Names::Several(tables.map(|table| table.name.to_string()).collect())
        }),
        cluster: None,
        clusters: relayed.map(weighted).collect(),
        chains: listener.chains.iter().map(|entry| chain(entry, snapshot)).collect(),
        http: file::listener::Http {
            error_pages: error_pages::shown(&http.error_pages),
            request_line_max: Size(http.request_line_bytes_max.into()),
            head_max: Size(http.head_bytes_max.into()),
            fields_max: http.fields_max,
            merge_slashes: http.slashes == Slashes::Merge,
            body_max: http.body_bytes_max.map_or(OrNone::None, |max| OrNone::Some(Size(max))),
            request_buffer: Size(http.request_buffer_bytes_max.into()),
            request_rate_min: Size(http.request_rate_bytes_min.into()),
            response_rate_min: Size(http.response_rate_bytes_min.into()),
            trusted_hops: http.trusted_hops,
            forwarded: match http.forwarded {
                ForwardedFields::Off => file::listener::Forwarded::Off,
                ForwardedFields::XForwarded => file::listener::Forwarded::XForwarded,
                ForwardedFields::Forwarded => file::listener::Forwarded::Forwarded,
                ForwardedFields::Both => file::listener::Forwarded::Both,
            },
            forward_client_cert: match http.forward_client_cert {
                ForwardClientCert::Sanitize => file::listener::ForwardClientCert::Sanitize,
                ForwardClientCert::ForwardOnly => file::listener::ForwardClientCert::ForwardOnly,
                ForwardClientCert::AppendForward => {
                    file::listener::ForwardClientCert::AppendForward
                }
                ForwardClientCert::SanitizeSet => file::listener::ForwardClientCert::SanitizeSet,
                ForwardClientCert::AlwaysForwardOnly => {
                    file::listener::ForwardClientCert::AlwaysForwardOnly
                }
            },
            forwarded_allowed: {
                let names = http.forwarded_allowed.iter();
                names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
            },
            headers_with_underscores: match http.underscores {
                Underscores::Refuse => file::listener::HeadersWithUnderscores::Refuse,
                Underscores::Drop => file::listener::HeadersWithUnderscores::Drop,
                Underscores::DropReserved => file::listener::HeadersWithUnderscores::DropReserved,
                Underscores::Pass => file::listener::HeadersWithUnderscores::Pass,
            },
            client_cert_details: client_cert_details(http.client_cert_details),
            via: http.via.as_deref().map(str::to_owned),
            request_id: http.request_id,
            grpc_web: http.grpc_web,
        },
        http2: http2(&listener.http2),
        proxy_protocol: match http.proxy_protocol.as_deref() {
            None => file::listener::ProxyProtocol::Any(false),
            Some([]) => file::listener::ProxyProtocol::Any(true),
            Some(from) => {
                let from = from.to_vec();
                let sources = file::listener::ProxyProtocolSources { from };
                file::listener::ProxyProtocol::Listed(sources)
            }
        },
        timeouts: file::listener::Timeouts {
            request_head: timeout(timeouts.request_head),
            detect: timeout(timeouts.detect),
            tls_handshake: timeout(timeouts.tls_handshake),
            idle: timeout(timeouts.idle),
            request_body: timeout(timeouts.request_body),
            filter: timeout(timeouts.filter),
            response_write: timeout(timeouts.response_write),
            tunnel_idle: timeout(timeouts.tunnel_idle),
            connection_age: timeouts
                .connection_age
                .map_or(OrNone::None, |age| OrNone::Some(timeout(age))),
            connection_age_grace: timeout(timeouts.connection_age_grace),
        },
        connections_max: listener.connections_max,
        connections_per_client_max: Some(listener.connections_per_client_max),
        exchanges_per_client_max: listener.exchanges_per_client_max,
        buffered_max: listener
            .buffered_bytes_max
            .map_or(OrNone::None, |bytes| OrNone::Some(Size(bytes))),
        mode: matches!(listener.address, Address::Unix(_)).then_some(listener.socket.mode),
        backlog: listener.socket.backlog,
        fast_open: listener.socket.fast_open,
        keepalive: listener.socket.keepalive.map(keepalive),
        original_destination: match listener.socket.original_destination {
            OriginalDestination::Off => file::listener::OriginalDestination::Off,
            OriginalDestination::Redirect => file::listener::OriginalDestination::Redirect,
            OriginalDestination::Tproxy => file::listener::OriginalDestination::Tproxy,
        },
    }
}

fn listener_tls(tls: &ListenerTls) -> file::ListenerTls {
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
    } = &tls.source;
    let protocol = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    file::ListenerTls {
        certificates: certificates.iter().map(|source| certificate_files(source)).collect(),
        mode: match tls.mode {
            TlsMode::Strict => file::tls::Mode::Strict,
            TlsMode::Permissive => file::tls::Mode::Permissive,
        },
        min_version: version(*versions.start()),
        max_version: version(*versions.end()),
        cipher_suites: suites(cipher_suites),
        groups: Some(groups.iter().copied().map(file::tls::Group).collect()),
        alpn: Some(alpn.iter().map(|name| protocol(name)).collect()),
        client: client.as_ref().map(|client| file::tls::Client {
            ca: client.roots.path.as_deref().unwrap_or_default().to_owned(),
            crl: client.roots.crl.as_deref().map(str::to_owned),
            names: client.names.iter().map(ToString::to_string).collect(),
            connection_age_max: client
                .connection_age_max
                .map_or(OrNone::None, |age| OrNone::Some(timeout(age))),
            mode: if client.is_required {
                file::tls::ClientMode::Required
            } else {
                file::tls::ClientMode::Optional
            },
        }),
        session_tickets: *session_tickets,
        session_ticket_files: ticket_keys.iter().map(|key| key.path.to_string()).collect(),
        early_data: *early_data,
    }
}

fn client_cert_details(details: ClientCertDetails) -> Vec<file::listener::ClientCertDetail> {
    use file::listener::ClientCertDetail;

    let ClientCertDetails { cert, chain, subject, uri, dns } = details;
    let each = [
        (cert, ClientCertDetail::Cert),
        (chain, ClientCertDetail::Chain),
        (subject, ClientCertDetail::Subject),
        (uri, ClientCertDetail::Uri),
        (dns, ClientCertDetail::Dns),
    ];
    each.into_iter().filter_map(|(is_said, detail)| is_said.then_some(detail)).collect()
}

fn cluster_tls(tls: &ClusterTls) -> file::ClusterTls {
    let ClusterTlsSource { roots, names, certificate, versions, cipher_suites, groups, alpn: _ } =
        &tls.source;
    file::ClusterTls {
        server_name: tls.server_name.as_deref().map(str::to_owned),
        names: names.iter().map(ToString::to_string).collect(),
        ca: roots.as_ref().and_then(|roots| roots.path.as_deref()).map(str::to_owned),
        crl: roots.as_ref().and_then(|roots| roots.crl.as_deref()).map(str::to_owned),
        verify: match roots {
            Some(_) => file::tls::Verify::On,
            None => file::tls::Verify::Off,
        },
        certificate: certificate.as_deref().map(certificate_files),
        min_version: version(*versions.start()),
        max_version: version(*versions.end()),
        cipher_suites: suites(cipher_suites),
        groups: Some(groups.iter().copied().map(file::tls::Group).collect()),
    }
}

fn certificate_files(source: &CertificateSource) -> file::tls::CertificateFiles {
    file::tls::CertificateFiles {
        chain: source.chain.to_string(),
        key: source.key.to_string(),
        ocsp: source.ocsp.as_deref().map(str::to_owned),
        signing: match source.signing {
            Signing::Inline => file::tls::Signing::Inline,
            Signing::Batched => file::tls::Signing::Batched,
            Signing::Thread => file::tls::Signing::Thread,
        },
    }
}

const fn version(version: tls::Version) -> file::tls::Version {
    match version {
        tls::Version::Tls12 => file::tls::Version::Tls12,
        tls::Version::Tls13 => file::tls::Version::Tls13,
    }
}

/// As written, since that some stand there is not the same as that all do.
fn suites(suites: &[tls::CipherSuite]) -> Option<Vec<file::tls::CipherSuite>> {
    (!suites.is_empty()).then(|| suites.iter().copied().map(file::tls::CipherSuite).collect())
}

fn chain<F>(chain: &Chain<F>, snapshot: &Snapshot<F>) -> file::Chain {
    let seen = listener(&chain.listener, snapshot);
    let ChainMatch { server_names, alpn, protocols, sources, destinations, destination_ports } =
        &chain.matches;
    let protocol = |protocol: &Detected| match protocol {
        Detected::Http1 => file::chain::Detected::Http1,
        Detected::Http2 => file::chain::Detected::Http2,
        Detected::Tls => file::chain::Detected::Tls,
        Detected::Other => file::chain::Detected::Other,
    };
    file::Chain {
        name: chain.name.to_string(),
        matches: file::chain::Match {
            server_names: server_names.iter().map(ToString::to_string).collect(),
            alpn: alpn.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            protocols: protocols.iter().map(protocol).collect(),
            sources: sources.clone(),
            destinations: destinations.clone(),
            destination_ports: destination_ports.clone(),
        },
        protocol: seen.protocol,
        tls: seen.tls,
        filters: seen.filters,
        routes: seen.routes,
        cluster: seen.cluster,
        clusters: seen.clusters,
    }
}

fn table<F>(table: &RouteTable, snapshot: &Snapshot<F>) -> file::RouteTable {
    file::RouteTable {
        name: table.name.to_string(),
        hosts: table.hosts.iter().map(ToString::to_string).collect(),
        error_pages: error_pages::shown(&table.error_pages),
        rules: table.rules.iter().map(|entry| rule(entry, snapshot)).collect(),
    }
}

fn rule<F>(rule: &Rule, snapshot: &Snapshot<F>) -> file::route::Rule {
    let mut matches = file::route::Match::default();
    rule.path.show(&mut matches);
    rule.also.iter().for_each(|criterion| criterion.show(&mut matches));
    let mut shown = file::route::Rule { matches, ..file::route::Rule::default() };
    match &rule.action {
        Action::Forward(Forward { target, rewrite, timeout: bound, upgrades }) => {
            show_target(target, snapshot, &mut shown);
            shown.rewrite = rewrite.as_deref().map(Rewrite::key);
            shown.timeout = Some(bound.map_or(OrNone::None, |bound| OrNone::Some(timeout(bound))));
            shown.upgrades = Some(upgrades.iter().map(ToString::to_string).collect());
        }
        Action::Respond(respond) => shown.respond = Some(self::respond(respond)),
        Action::Redirect(redirect) => shown.redirect = Some(self::redirect(redirect)),
    }
    shown
}

fn show_target<F>(target: &Target, snapshot: &Snapshot<F>, shown: &mut file::route::Rule) {
    let name = |id: ClusterId| snapshot.cluster(id).map(|cluster| cluster.name.to_string());
    match target {
        Target::Cluster(id) => shown.cluster = name(*id),
        Target::Shares(shares) => {
            let share = |share: &Share| {
                let host = share.host.as_deref().map(str::to_owned);
                let rewrite = host.map(|host| ShareRewrite { host });
                let cluster = name(share.cluster).unwrap_or_default();
                ShareKey { cluster, weight: share.weight, rewrite }
            };
            shown.clusters = Some(shares.clusters().iter().map(share).collect());
            shown.sticky = shares.sticky().map(Sticky::of);
        }
        Target::Named(named) => {
            shown.cluster_header = Some(named.header.to_string());
            let mut names: Vec<String> = target.clusters().filter_map(name).collect();
            names.sort();
            shown.among = named.is_listed.then_some(names);
        }
    }
}

fn respond(respond: &Respond) -> file::route::Respond {
    let fields = respond.fields.iter();
    file::route::Respond {
        status: respond.status,
        // It was text when it was read.
        body: String::from_utf8_lossy(&respond.body).into_owned(),
        headers: fields.map(|(name, value)| (name.to_string(), value.to_string())).collect(),
    }
}

fn redirect(redirect: &Redirect) -> file::route::Redirect {
    let (path, prefix) = match &redirect.path {
        None => (None, None),
        Some(RedirectPath::Whole(path)) => (Some(path.to_string()), None),
        Some(RedirectPath::Prefix(prefix)) => (None, Some(prefix.to_string())),
    };
    file::route::Redirect {
        scheme: redirect.scheme.as_deref().map(|scheme| match scheme {
            "https" => file::route::Scheme::Https,
            _ => file::route::Scheme::Http,
        }),
        host: redirect.host.as_deref().map(str::to_owned),
        path,
        prefix,
        status: redirect.status,
        strip_query: redirect.strip_query,
    }
}

fn resolvers(resolvers: &Resolvers) -> file::Resolvers {
    file::Resolvers {
        servers: resolvers.servers.iter().map(ToString::to_string).collect(),
        timeout: resolvers.timeout.map(|timeout| Timeout(Period(timeout))),
        initial_fetch_timeout: Period(resolvers.initial_fetch_timeout),
    }
}

/// Where a cluster's endpoints come from.
fn endpoints(cluster: &Cluster) -> Endpoints {
    let entry = |address: EndpointAddress, weight: u16| {
        file::cluster::Endpoint::Weighted(WeightedEndpoint { address, weight })
    };
    match &cluster.endpoints_from {
        EndpointsFrom::Addresses => {
            let listed = cluster.endpoints.iter().map(|endpoint| {
                entry(EndpointAddress::Address(endpoint.address.clone()), endpoint.weight)
            });
            Endpoints::List(listed.collect())
        }
        EndpointsFrom::Names(listed) => {
            let listed = listed.iter().map(|listed| match listed {
                ListedEndpoint::Address { address, weight } => {
                    entry(EndpointAddress::Address(address.clone()), *weight)
                }
                ListedEndpoint::Name { name, weight } => {
                    let DnsName { host, port, .. } = &**name;
                    // Only a name of mode `srv` has none, and no list has one of these.
                    let port = port.unwrap_or(NonZeroU16::MIN);
                    let host = HostPort { host: host.clone(), port };
                    entry(EndpointAddress::Host(host), *weight)
                }
            });
            Endpoints::List(listed.collect())
        }
        EndpointsFrom::Dns(name) => Endpoints::Dns(EndpointsDns {
            dns: name.to_string(),
            mode: name.mode,
            family: name.family,
            ttl_min: Period(name.ttl_min),
            ttl_max: Period(name.ttl_max),
        }),
        EndpointsFrom::File(file) => Endpoints::File(EndpointsFile { file: file.to_string() }),
    }
}

fn cluster(cluster: &Cluster) -> file::Cluster {
    let timeouts = &cluster.timeouts;
    file::Cluster {
        name: cluster.name.to_string(),
        endpoints: cluster.original_destination.is_none().then(|| endpoints(cluster)),
        original_destination: cluster.original_destination.is_some(),
        balance: cluster.original_destination.is_none().then(|| cluster.balancer.into()),
        protocol: match cluster.protocol {
            ClusterProtocol::Http1 => file::cluster::Protocol::Http1,
            ClusterProtocol::Http2 => file::cluster::Protocol::Http2,
        },
        http2: http2(&cluster.http2),
        response_parsing: match cluster.response_parsing {
            ResponseParsing::Strict => file::cluster::ResponseParsing::Strict,
            ResponseParsing::Tolerant => file::cluster::ResponseParsing::Tolerant,
        },
        interim_responses_max: cluster.interim_responses_max,
        tls: cluster.tls.as_deref().map(cluster_tls),
        connect_timeout: timeout(timeouts.connect),
        timeouts: file::cluster::Timeouts {
            pending: timeout(timeouts.pending),
            response_head: timeout(timeouts.response_head),
            response_body: timeout(timeouts.response_body),
            request_write: timeout(timeouts.request_write),
            stall: timeouts.stall.map_or(OrNone::None, |stall| OrNone::Some(timeout(stall))),
            idle: timeout(timeouts.idle),
        },
        connections_max: cluster.connections_max,
        pending_max: cluster.pending_max,
        proxy_protocol: match cluster.proxy_protocol {
            None => file::cluster::ProxyProtocol::Off,
            Some(ProxyProtocolVersion::V1) => file::cluster::ProxyProtocol::V1,
            Some(ProxyProtocolVersion::V2) => file::cluster::ProxyProtocol::V2,
        },
        keepalive: cluster.keepalive.map(keepalive),
        fast_open: cluster.fast_open,
        mark: cluster.mark,
    }
}

fn http2(options: &Http2Options) -> file::Http2 {
    file::Http2 {
        streams_max: options.streams_max,
        stream_window_max: Size(options.stream_window_bytes_max.into()),
        connection_window_max: Size(options.connection_window_bytes_max.into()),
        header_table_max: Size(options.header_table_bytes_max.into()),
        frame_max: Size(options.frame_bytes_max.into()),
        work_max: options.work_max,
        work_per_second: options.work_per_second,
        early_reset: Period(options.early_reset),
        ping: options.ping.map(|ping| file::http2::Ping {
            interval: Period(ping.interval),
            timeout: Period(ping.timeout),
        }),
    }
}

fn limits(limits: &Limits) -> file::Limits {
    file::Limits {
        connections_max: limits.connections_max,
        handshakes_max: limits.handshakes_max,
        discard_max: Size(limits.discard_bytes_max),
        linger_timeout: Period(limits.linger_timeout),
        linger_max: Period(limits.linger_max),
        drain_delay: Period(limits.drain_delay),
        drain_timeout: timeout(limits.drain_timeout),
    }
}

fn access_log(log: &AccessLog) -> file::AccessLog {
    file::AccessLog {
        output: log.output.as_ref().map(|output| match output {
            AccessLogOutput::Stdout => "stdout".to_owned(),
            AccessLogOutput::Stderr => "stderr".to_owned(),
            AccessLogOutput::File(path) => path.display().to_string(),
        }),
        format: match log.format {
            AccessLogFormat::Json => file::access_log::Format::Json,
            AccessLogFormat::Text => file::access_log::Format::Text,
            AccessLogFormat::Combined => file::access_log::Format::Combined,
        },
        fields: log.field_names(),
        only: log.only.iter().map(log_condition).collect(),
        except: log.except.iter().map(log_condition).collect(),
        stage_times: log.stage_times,
    }
}

fn log_condition(condition: &AccessLogCondition) -> file::access_log::Condition {
    use file::access_log::Status;
    let status = |range: &RangeInclusive<u16>| match (*range.start(), *range.end()) {
        (0, _) => Status::Several("none".to_owned()),
        (first, last) if first == last => Status::One(first),
        (first, last) => Status::Several(format!("{first}-{last}")),
    };
    file::access_log::Condition {
        status: condition.statuses.iter().map(status).collect(),
        prefixes: condition.prefixes.iter().map(ToString::to_string).collect(),
        slower_than: condition.slower_than.map(Period),
        one_in: condition.one_in,
    }
}

const fn keepalive(keepalive: Keepalive) -> file::listener::Keepalive {
    file::listener::Keepalive {
        idle: Period(keepalive.idle),
        interval: Period(keepalive.interval),
        probes: keepalive.probes,
    }
}

const fn timeout(duration: std::time::Duration) -> Timeout {
    Timeout(Period(duration))
}

/// Writes `value` as block YAML; scalars as JSON, which YAML 1.2 contains, unless they are words.
fn write_yaml(value: &Json, indent: usize, out: &mut String) {
    match value {
        Json::Object(entries) => {
            for (key, value) in entries {
                out.extend(std::iter::repeat_n(' ', indent));
                out.push_str(&yaml_text(key));
                out.push(':');
                write_inner(value, indent, out);
            }
        }
        Json::Array(items) => {
            for item in items {
                out.extend(std::iter::repeat_n(' ', indent));
                out.push('-');
                match item {
                    Json::Object(entries) if !entries.is_empty() => {
                        // The first key stands behind the dash, the others below it.
                        let mut inner = String::new();
                        write_yaml(item, indent + 2, &mut inner);
                        out.push(' ');
                        out.push_str(inner.trim_start_matches(' '));
                    }
                    _ => write_inner(item, indent, out),
                }
            }
        }
        // So that nothing is taken for a variable when it is read again.
        Json::String(text) => out.push_str(&yaml_text(&text.replace("${", "$${"))),
        Json::Null | Json::Bool(_) | Json::Number(_) => out.push_str(&value.to_string()),
    }
}

/// What stands behind a key or a dash.
fn write_inner(value: &Json, indent: usize, out: &mut String) {
    let is_block = match value {
        Json::Object(entries) => !entries.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    };
    if is_block {
        out.push('\n');
        return write_yaml(value, indent + 2, out);
    }
    out.push(' ');
    match value {
        Json::Object(_) => out.push_str("{}"),
        Json::Array(_) => out.push_str("[]"),
        scalar => write_yaml(scalar, indent, out),
    }
    out.push('\n');
}

/// `text` without quotes if it stays text that way.
fn yaml_text(text: &str) -> String {
    let is_word_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/');
    let is_word = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '/')
        && text.bytes().all(is_word_byte)
        && !matches!(text, "null" | "true" | "false");
    let is_unit = text.parse::<Period>().is_ok() || text.parse::<Size>().is_ok();
    let is_plain = is_word || (is_unit && text.parse::<f64>().is_err());
    if is_plain { text.to_owned() } else { Json::from(text).to_string() }
}
