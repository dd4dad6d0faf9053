//! Hop 7: host, path and client to a rule.
//!
//! `strait explain` asks the same functions as the data path does, so that it cannot tell a
//! different story.

use std::sync::Arc;

use config::chains::ConnectionFacts;
use config::snapshot::{Action, Detected, Listener, RouteTable, Rule};
use telemetry::cause::Cause;
use tls::PeerCertificate;
use wire::head::{Method, RequestHead};

use crate::Snapshot;
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::filter::Filter;
use crate::listen::misdirected;

/// The rule for a request with this host (lower case, no port) and path (normalised, no query) from
/// a client with this certificate, with its table and its place there.
///
/// # Errors
///
/// [`Cause::NoHost`] or [`Cause::NoRoute`].
pub fn find<'s>(
    snapshot: &'s Snapshot,
    listener: &Listener<Box<dyn Filter>>,
    host: &[u8],
    path: &[u8],
    client: Option<&PeerCertificate>,
) -> Result<(&'s Arc<RouteTable>, usize, &'s Rule), Cause> {
    let table = listener.hosts.find(host).and_then(|id| snapshot.route_table(id));
    let table = table.ok_or(Cause::NoHost)?;
    let (place, rule) = table.find(path, client).ok_or(Cause::NoRoute)?;
    Ok((table, place, rule))
}

/// The rule for a `CONNECT` request to this host from a client with this certificate: the first of
/// its table that allows it.
///
/// # Errors
///
/// [`Cause::NoHost`], or [`Cause::RequestNotImplemented`] if no rule does.
pub fn find_tunnel<'s>(
    snapshot: &'s Snapshot,
    listener: &Listener<Box<dyn Filter>>,
    host: &[u8],
    client: Option<&PeerCertificate>,
) -> Result<(&'s Arc<RouteTable>, usize, &'s Rule), Cause> {
    let table = listener.hosts.find(host).and_then(|id| snapshot.route_table(id));
    let table = table.ok_or(Cause::NoHost)?;
    let takes_it = |(_, rule): &(usize, &Rule)| match &rule.action {
        _ if !rule.client.is_met_by(client) => false,
        Action::Forward(forward) => forward.upgrades.iter().any(|name| **name == *"connect"),
        Action::Respond(_) | Action::Redirect(_) => false,
    };
    let found = table.rules.iter().enumerate().find(takes_it);
    let (place, rule) = found.ok_or(Cause::RequestNotImplemented)?;
    Ok((table, place, rule))
}

/// Whether a request has to come over another connection, since its host belongs to another chain
/// of the listener than the one that the connection met by its server name.
pub(crate) fn is_misdirected(
    exchange: &Exchange,
    connection: &Connection,
    head: &RequestHead<'_>,
) -> bool {
    let listener = exchange.snapshot.listeners.get(exchange.listener);
    let Some(listener) = listener.filter(|listener| listener.chain_names.is_some()) else {
        return false;
    };
    // The host of a plain CONNECT is where the tunnel leads, and says nothing of who is asked.
    let asks_tunnel = head.method() == Method::Connect && !head.is_extended_connect();
    let Some(downstream) = connection.downstream() else { return false };
    if connection.tls.is_none() || asks_tunnel {
        return false;
    }
    let destination = downstream.original.as_deref().copied();
    let alpn: &[u8] = if connection.multiplex().is_some() { b"h2" } else { b"http/1.1" };
    let facts = ConnectionFacts {
        source: connection.peer.ip(),
        destination: destination.or_else(|| connection.local.socket_address()),
        protocol: Some(Detected::Tls),
        server_name: None,
        alpn: &[alpn],
    };
    misdirected::is_misdirected(listener, exchange.chain, head.host(), &facts)
}

/// Whether every protocol that an `Upgrade` field names may be let through.
#[must_use]
pub fn allows_upgrade(allowed: &[Box<str>], value: &[u8]) -> bool {
    wire::upgrade::all_allowed(value, allowed)
}
