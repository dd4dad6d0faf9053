//! Hop 7: host, path and client to a rule.
//!
//! `strait explain` asks the same functions as the data path does, so that it cannot tell a
//! different story.

use std::sync::Arc;

use config::snapshot::{Action, Listener, RouteTable, Rule};
use telemetry::cause::Cause;
use tls::PeerCertificate;

use crate::Snapshot;
use crate::filter::Filter;

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

/// Whether every protocol that an `Upgrade` field names may be let through.
#[must_use]
pub fn allows_upgrade(allowed: &[Box<str>], value: &[u8]) -> bool {
    wire::upgrade::all_allowed(value, allowed)
}
