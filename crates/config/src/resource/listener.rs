//! Listeners, and what they ask of their clients.

pub mod accept_rate;
mod addresses;
pub(crate) mod build;
pub mod chain;
pub mod chain_names;
pub mod chains;
pub(crate) mod delivered;
pub mod file;
pub(crate) mod handlers;
mod hidden;
mod http;
mod parts;
mod resolved;

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use wire::detect::Detected;
use wire::path::Slashes;

use crate::address::Address;
use crate::cidr::Cidr;
use crate::file_mode::FileMode;
use crate::hosts::{Host, HostIndex};
use crate::resource::cluster::breakers::Breakers;
use crate::resource::error_pages::ErrorPages;
use crate::resource::filter::FilterSource;
use crate::resource::listener::accept_rate::AcceptRate;
use crate::resource::listener::chain::SourceType;
use crate::resource::listener::chain_names::ChainNames;
use crate::resource::listener::chains::ListenerChains;
use crate::resource::listener::file::{
    ForwardClientCert, Forwarded as ForwardedFields, HeadersWithUnderscores as Underscores,
    OriginalDestination, Protocol as ListenerProtocol,
};
use crate::resource::listener::handlers::Handlers;
use crate::resource::route::RouteTable;
use crate::resource::tls::{ClientTrust, ListenerTls};
use crate::snapshot::connection_options::{Http2Options, Keepalive, RpcOptions};
use crate::snapshot::id::{ChainId, ClusterId, ListenerId, RouteTableId};

/// What bounds connections of any listener, so that a worker that takes up a snapshot need not look at
/// all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerBounds {
    /// Whether a listener or a chain bounds the age of connections.
    pub has_connection_age: bool,
    /// The smallest `buffered_bytes_max`, or none if no listener has one.
    pub buffered_bytes_least: Option<u64>,
    /// Whether a listener or a route table has error pages, which need words of the request.
    pub has_error_pages: bool,
}

impl ListenerBounds {
    pub(crate) fn of<F>(listeners: &[Arc<Listener<F>>], tables: &[Arc<RouteTable>]) -> Self {
        Self {
            has_connection_age: listeners.iter().any(|listener| listener.bounds_connection_age()),
            buffered_bytes_least: listeners
                .iter()
                .filter_map(|listener| listener.buffered_bytes_max)
                .min(),
            has_error_pages: listeners.iter().any(|it| !it.http.error_pages.is_empty())
                || tables.iter().any(|it| !it.error_pages.is_empty()),
        }
    }

    /// Holds for what `other` holds for as well.
    pub(crate) fn widen(&mut self, other: Self) {
        let least = [self.buffered_bytes_least, other.buffered_bytes_least];
        self.has_connection_age |= other.has_connection_age;
        self.buffered_bytes_least = least.into_iter().flatten().min();
        self.has_error_pages |= other.has_error_pages;
    }
}

/// A bound address and what happens to its connections.
#[derive(Debug)]
pub struct Listener<F> {
    /// Stable name.
    pub id: ListenerId,
    /// What it was built from, all but its chains. A listener as a chain sees it has that of its listener.
    pub source: Arc<file::Listener>,
    /// Name in the file.
    pub name: Arc<str>,
    /// Addresses to bind: at least one.
    pub addresses: Arc<[Address]>,
    /// Options of the listening socket.
    pub socket: ListenSocket,
    /// What its connections speak.
    pub protocol: ListenerProtocol,
    /// How their TLS is ended, if it is.
    pub tls: Option<Arc<ListenerTls>>,
    /// Where connections go that speak something else, or all of them.
    pub relay: Option<Relay>,
    /// What connections meet that match.
    pub chains: ListenerChains<F>,
    /// The chains by server name, if a request may belong to another one than its connection.
    pub chain_names: Option<Box<ChainNames>>,
    /// Whether there is something for those that match none of the chains.
    pub has_default: bool,
    /// The filter chain, in order.
    pub filters: Arc<[F]>,
    /// What each filter was built from, in the same order.
    pub filter_sources: Arc<[FilterSource]>,
    /// What decides about requests before the route tables are asked.
    pub handlers: Handlers,
    /// The route tables, in the order of the file.
    pub route_tables: Vec<RouteTableId>,
    /// Host name ⇒ route table.
    pub hosts: HostIndex<RouteTableId>,
    /// How HTTP is read and rewritten here.
    pub http: HttpOptions,
    /// What one connection of HTTP/2 may hold.
    pub http2: Http2Options,
    /// What one connection of an RPC protocol may hold.
    pub rpc: RpcOptions,
    /// How long its peers may take.
    pub timeouts: DownstreamTimeouts,
    /// Connections open at a time, in the process.
    pub connections_max: NonZeroU32,
    /// The same of one client.
    pub connections_per_client_max: NonZeroU32,
    /// New connections a second, in the process, or none for no bound.
    pub accept_rate: Option<AcceptRate>,
    /// Requests at a time, in the process, or none for no bound.
    pub requests_max: Option<NonZeroU32>,
    /// What of that is in use.
    pub breakers: Breakers,
    /// Exchanges of one client at a time, in the process, or none for no bound.
    pub exchanges_per_client_max: Option<NonZeroU32>,
    /// Bytes that its clients may hold in buffers, in the process, or none for no bound.
    pub buffered_bytes_max: Option<u64>,
}

impl<F> Listener<F> {
    /// The clusters that it and its chains relay to, whether they are there or not, as often as they are named.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        let relays = self.chains.iter().map(|chain| &chain.listener.relay).chain([&self.relay]);
        relays.flatten().flat_map(|relay| relay.clusters.iter().map(|(id, _)| *id))
    }

    /// The route tables of it and of its chains.
    pub(crate) fn all_route_tables(&self) -> impl Iterator<Item = RouteTableId> {
        let of_chains = self.chains.iter().flat_map(|chain| &chain.listener.route_tables);
        of_chains.chain(&self.route_tables).copied()
    }

    /// The listener as connections of this chain see it, and as those see it that have none, or
    /// whose chain is gone.
    #[must_use]
    #[inline]
    pub fn seen_by(&self, chain: Option<ChainId>) -> &Self {
        // Most connections have none, and each request asks often.
        chain.map_or(self, |id| self.seen_by_chain(id))
    }

    /// Whether its connections have to be and to prove what those of `other` have to: what is spoken, whether there is TLS and which
    /// certificate, and whether they say where they come from. New contents of the same files are no difference.
    pub(crate) fn admits_like(&self, other: &Self) -> bool {
        let proof = |of: &Self| {
            let tls = of.tls.as_ref()?;
            let client = tls.source.client.as_ref();
            let client =
                client.map(|ClientTrust { roots, names, is_required, connection_age_max: _ }| {
                    (roots.path.clone(), roots.crl.clone(), names.clone(), *is_required)
                });
            Some((tls.mode, client))
        };
        self.protocol == other.protocol
            && self.http.proxy_protocol == other.http.proxy_protocol
            && proof(self) == proof(other)
    }

    /// Whether it, or one of its chains, bounds the age of connections.
    fn bounds_connection_age(&self) -> bool {
        let client = self.tls.as_ref().and_then(|tls| tls.source.client.as_ref());
        self.timeouts.connection_age.is_some()
            || client.is_some_and(|client| client.connection_age_max.is_some())
            || self.chains.iter().any(|chain| chain.listener.bounds_connection_age())
    }

    #[inline(never)]
    fn seen_by_chain(&self, id: ChainId) -> &Self {
        self.chains.find(id).map_or(self, |(_, chain)| &chain.listener)
    }
}

/// What some connections of a listener meet in place of what it has itself.
#[derive(Debug)]
pub struct ListenerChain<F> {
    /// Stable name.
    pub id: ChainId,
    /// Name in the file.
    pub name: Arc<str>,
    /// What it was built from.
    pub source: Arc<chain::ListenerChain>,
    /// The connections it is for.
    pub matches: ChainMatch,
    /// The listener as these connections see it.
    pub listener: Listener<F>,
}

/// What a connection must be like. An empty list asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChainMatch {
    /// Names that a TLS client asks for; none of them is [`Host::Any`].
    pub server_names: Vec<Host>,
    /// Protocols that a TLS client offers.
    pub alpn: Vec<Box<[u8]>>,
    /// What the first bytes are.
    pub protocols: Vec<Detected>,
    /// Where connections come from directly, before a PROXY header names another address.
    pub direct_sources: Vec<Cidr>,
    /// Whether they come from this machine.
    pub source_type: SourceType,
    /// Where connections come from.
    pub sources: Vec<Cidr>,
    /// The port of that.
    pub source_ports: Vec<NonZeroU16>,
    /// Where connections were going.
    pub destinations: Vec<Cidr>,
    /// The port of that.
    pub destination_ports: Vec<NonZeroU16>,
}

impl ChainMatch {
    /// Whether the first bytes have to be looked at.
    #[must_use]
    pub const fn needs_bytes(&self) -> bool {
        !self.server_names.is_empty() || !self.alpn.is_empty() || !self.protocols.is_empty()
    }
}

/// Clusters of which each relayed connection goes to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The clusters with their shares; at least one.
    pub clusters: Box<[(ClusterId, NonZeroU16)]>,
}

impl Relay {
    /// The cluster for a connection, by a random number.
    #[must_use]
    pub fn choose(&self, random: u64) -> Option<ClusterId> {
        let total = self.clusters.iter().map(|(_, weight)| u64::from(weight.get())).sum::<u64>();
        let mut left = random.checked_rem(total)?;
        self.clusters.iter().find_map(|(cluster, weight)| {
            let weight = u64::from(weight.get());
            let is_it = left < weight;
            left = left.saturating_sub(weight);
            is_it.then_some(*cluster)
        })
    }
}

/// Options of a listening socket; a change of these needs a new socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenSocket {
    /// Queue of connections not yet accepted.
    pub backlog: NonZeroU32,
    /// Queue of TCP Fast Open requests, or none to leave Fast Open off.
    pub fast_open: Option<NonZeroU32>,
    /// TCP keepalive of accepted connections.
    pub keepalive: Option<Keepalive>,
    /// How it is known where its connections were going.
    pub original_destination: OriginalDestination,
    /// Permissions of the file of a unix socket, or none for [`FileMode::GROUP`], and for those that there are where another process has
    /// made it.
    pub mode: Option<FileMode>,
}

/// How HTTP is read and rewritten on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// What replies to failures say.
    pub error_pages: ErrorPages,
    /// Bytes of a request line (method, target, version).
    pub request_line_bytes_max: u32,
    /// Bytes of a head, request line included.
    pub head_bytes_max: u32,
    /// Fields of a head.
    pub fields_max: u16,
    /// Bytes of a request body, or none for no bound.
    pub body_bytes_max: Option<u64>,
    /// Bytes of a request body that have to be there before the request takes one of the last
    /// connections; 0 for none.
    pub request_buffer_bytes_max: u32,
    /// Bytes a second that a client has to send of a request body; 0 for none.
    pub request_rate_bytes_min: u32,
    /// Bytes a second that a client has to take of a response; 0 for none.
    pub response_rate_bytes_min: u32,
    /// What several slashes in a row are in the path of a request.
    pub slashes: Slashes,
    /// Proxies in front of this one whose `x-forwarded-*`, `forwarded` and `x-request-id` are
    /// believed. 0 means that the peer is the client and that those fields are replaced.
    pub trusted_hops: u8,
    /// Which fields tell the upstream about the client.
    pub forwarded: ForwardedFields,
    /// Names, in lower case, that begin with `x-forwarded-` and go through though no hop is trusted.
    pub forwarded_allowed: Arc<[Box<[u8]>]>,
    /// What becomes of fields with `_` in their names.
    pub underscores: Underscores,
    /// What becomes of `x-forwarded-client-cert`.
    pub forward_client_cert: ForwardClientCert,
    /// What is said there of a client's certificate.
    pub client_cert_details: ClientCertDetails,
    /// Pseudonym for `via`, or none to leave that field alone.
    pub via: Option<Arc<str>>,
    /// Whether a request without `x-request-id` gets one.
    pub request_id: bool,
    /// Whether requests may say how long they may take.
    pub trust_timeouts: bool,
    /// Whether requests say when they are sent again.
    pub trust_retries: bool,
    /// Whether calls of gRPC-Web go on as calls of gRPC.
    pub grpc_web: bool,
    /// Whether each connection begins with a PROXY protocol header (versions 1 and 2), and where it
    /// has to come from for that; from anywhere, if the list is empty.
    pub proxy_protocol: Option<Arc<[Cidr]>>,
}

/// Filters of a chain, at most.
pub const FILTERS_MAX: usize = 64;

/// What is said of a client's certificate, beside its digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCertDetails {
    /// All of it.
    pub cert: bool,
    /// The same with those that lead from it to one that is known.
    pub chain: bool,
    /// Whom it is about.
    pub subject: bool,
    /// Its URIs.
    pub uri: bool,
    /// Its host names.
    pub dns: bool,
}

/// How long a downstream may take. Each has a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownstreamTimeouts {
    /// From a head's first byte (or the accepted connection) to its last.
    pub request_head: Duration,
    /// For the first bytes of a connection that may be relayed.
    pub detect: Duration,
    /// For the TLS handshake, from the accepted connection on.
    pub tls_handshake: Duration,
    /// Between requests on a kept connection.
    pub idle: Duration,
    /// Between two pieces of a request body.
    pub request_body: Duration,
    /// For a filter that waits for the answer to a question.
    pub filter: Duration,
    /// Without progress while response bytes wait to be taken by the downstream.
    pub response_write: Duration,
    /// Without a byte either way in a tunnel.
    pub tunnel_idle: Duration,
    /// Age from which on a client is asked to connect again, or none.
    pub connection_age: Option<Duration>,
    /// What such a connection may still take.
    pub connection_age_grace: Duration,
}
