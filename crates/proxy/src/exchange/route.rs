//! Hop 7: a request to a rule.
//!
//! `strait explain` asks the same functions as the data path does, so that it cannot tell a
//! different story.

use std::sync::Arc;

use config::chains::ConnectionFacts;
use config::matching::{Asked, PathMatch, Searches};
use config::rewrite::{HostRewrite, Rewriting};
use config::snapshot::{
    Action, ClusterId, Decision, Detected, Forward, HandledRule, Handlers, Listener, Redirect,
    RedirectPath, RouteTable, Rule,
};
use config::targets::Chosen;
use telemetry::cause::Cause;
use wire::head::{Method, RequestHead};
use wire::path::{PathError, Slashes};

use crate::Snapshot;
use crate::connection::Connection;
use crate::exchange::{Exchange, Route};
use crate::filter::Filter;
use crate::listen::misdirected;
use crate::tools::random::Random;

/// The table for requests to the host of this one.
///
/// # Errors
///
/// [`Cause::NoHost`].
pub fn table<'s>(
    snapshot: &'s Snapshot,
    listener: &Listener<Box<dyn Filter>>,
    head: &RequestHead<'_>,
) -> Result<&'s Arc<RouteTable>, Cause> {
    let found = listener.hosts.find_authority(head.host(), || head.authority());
    let table = found.and_then(|id| snapshot.route_table(id));
    table.ok_or(Cause::NoHost)
}

/// The rule that a handler in front of the tables has answered with, and the handler's name, if one decides.
///
/// # Errors
///
/// [`Cause::NoRoute`] if a handler says that there is none, or the rule is gone; with the reason.
pub fn handled<'s, 'h>(
    snapshot: &'s Snapshot,
    handlers: &'h Handlers,
    asked: &Asked<'_>,
) -> Result<Option<(Found<'s>, &'h str)>, String> {
    let handled = match handlers.decide(asked) {
        Decision::PassedOn => return Ok(None),
        Decision::Refused(handler) => {
            return Err(format!("the handler {handler} has no rule for this request"));
        }
        Decision::Rule(handled) => handled,
    };
    let table = snapshot.route_table(handled.table);
    let found = table.and_then(|table| {
        let place = table.place_of(handled.rule)?;
        Some((Found { table, place, rule: table.rules.get(place)? }, handled.handler))
    });
    found.map(Some).ok_or_else(|| {
        let HandledRule { handler, rule, .. } = handled;
        format!("the handler {handler} answers with the rule {rule}, which is gone")
    })
}

/// Why a request meets no rule.
#[derive(Debug)]
pub(crate) struct Missed {
    pub(crate) cause: Cause,
    /// In words, if the cause does not say it.
    pub(crate) why: Option<String>,
}

impl From<Cause> for Missed {
    fn from(cause: Cause) -> Self {
        Self { cause, why: None }
    }
}

/// The rule that a request meets: a handler's, or that of the route tables. A `CONNECT` without a path is the tables' alone.
#[inline]
pub(crate) fn meet<'s>(
    snapshot: &'s Snapshot,
    listener: &Listener<Box<dyn Filter>>,
    asked: &mut Asked<'_>,
    searches: &mut Searches,
    mut die: impl FnMut() -> u64,
) -> Result<Found<'s>, Missed> {
    let asks_tunnel = asked.head.method() == Method::Connect && !asked.head.is_extended_connect();
    if !listener.handlers.is_empty() && !asks_tunnel {
        asked.die = die();
        let handled = handled(snapshot, &listener.handlers, asked);
        let missed = |why| Missed { cause: Cause::NoRoute, why: Some(why) };
        if let Some((found, _)) = handled.map_err(missed)? {
            return Ok(found);
        }
    }
    let table = table(snapshot, listener, asked.head)?;
    if table.casts_dice && asked.die == 0 {
        asked.die = die();
    }
    let (place, rule) = if asks_tunnel {
        let words = || format!("no rule of route table {} has connect in its upgrades", table.name);
        find_tunnel(table, asked, searches).map_err(|cause| Missed { cause, why: Some(words()) })?
    } else {
        find(table, asked, searches)?
    };
    Ok(Found { table, place, rule })
}

impl Route {
    /// Chooses the cluster of a request, and what its endpoint is chosen by. `is_by_hash`: whether a cluster's balancer goes by
    /// a hash.
    #[inline]
    pub(crate) fn choose<'f>(
        &mut self,
        forward: &'f Forward,
        asked: &Asked<'_>,
        is_by_hash: impl FnOnce(ClusterId) -> bool,
        searches: &mut Searches,
        random: &mut Random,
    ) -> Option<Chosen<'f>> {
        let chosen = forward.target.choose(asked, searches);
        self.subset = forward.subset.as_ref().and_then(|subset| subset.hash(asked, searches));
        let chosen = chosen?;
        (self.cluster, self.share) = (Some(chosen.cluster), chosen.share);
        self.priority = forward.priority;
        if let Some(hashing) = forward.hashing.as_ref().filter(|_| is_by_hash(chosen.cluster)) {
            let hashed = hashing.hash(asked, searches, || random.next());
            (self.hash, self.cookie) = (hashed.hash, hashed.cookie);
        }
        self.takes_endpoint_host = takes_endpoint_host(forward, chosen.host);
        Some(chosen)
    }
}

/// A rule, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    /// The table.
    pub table: &'s Arc<RouteTable>,
    /// The place of the rule there.
    pub place: usize,
    /// The rule.
    pub rule: &'s Rule,
}

/// The first rule of a table that a request meets, and its place there.
///
/// # Errors
///
/// [`Cause::NoRoute`].
#[inline]
pub fn find<'s>(
    table: &'s RouteTable,
    asked: &Asked<'_>,
    searches: &mut Searches,
) -> Result<(usize, &'s Rule), Cause> {
    table.find(asked, searches).ok_or(Cause::NoRoute)
}

/// The first rule of a table that lets a `CONNECT` request through, which has no path, and its place there.
///
/// # Errors
///
/// [`Cause::RequestNotImplemented`] if no rule does.
pub fn find_tunnel<'s>(
    table: &'s RouteTable,
    asked: &Asked<'_>,
    searches: &mut Searches,
) -> Result<(usize, &'s Rule), Cause> {
    let mut takes_it = |(_, rule): &(usize, &Rule)| match &rule.action {
        Action::Forward(forward) => {
            forward.upgrades.iter().any(|name| **name == *"connect")
                && rule.meets(asked, &table.values, searches)
        }
        Action::Respond(_) | Action::Redirect(_) => false,
    };
    let found = table.rules.iter().enumerate().find(&mut takes_it);
    found.ok_or(Cause::RequestNotImplemented)
}

/// Whether the response to a request is edited that a rule of this table has taken.
#[inline]
pub(crate) fn edits_response(table: &RouteTable, rule: &Rule, share: Option<u32>) -> bool {
    let edits = || table.edits_for(rule, share).into_iter().flatten();
    table.has_edits && edits().any(|edits| !edits.response.is_empty())
}

/// Whether a request that this takes has the host of the endpoint that each attempt chooses. `host` is that of its share
/// of the weights.
#[inline]
pub(crate) fn takes_endpoint_host(forward: &Forward, host: Option<&str>) -> bool {
    let rewrite = forward.rewrite.as_ref().filter(|_| host.is_none());
    rewrite.is_some_and(|rewrite| rewrite.host == Some(HostRewrite::Endpoint))
}

/// Changes a request as the rule that took it says. `host` is that of its share of the weights.
///
/// # Errors
///
/// If what comes out is no path.
#[inline]
pub fn rewrite(
    forward: &Forward,
    host: Option<&str>,
    matched: &PathMatch,
    head: &mut RequestHead<'_>,
    slashes: Slashes,
    rewriting: &mut Rewriting,
) -> Result<(), PathError> {
    match (&forward.rewrite, host) {
        (Some(rewrite), host) => rewrite.apply(head, matched, host, slashes, rewriting),
        (None, Some(host)) => {
            head.set_authority(host.as_bytes());
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// Changes a request into the one that a redirect asks its client for, where its path is to be rewritten.
///
/// # Errors
///
/// If what comes out is no path.
pub fn rewrite_for(
    redirect: &Redirect,
    matched: &PathMatch,
    head: &mut RequestHead<'_>,
    slashes: Slashes,
    rewriting: &mut Rewriting,
) -> Result<(), PathError> {
    let Some(RedirectPath::Rewritten(rewrite)) = &redirect.path else { return Ok(()) };
    // `OPTIONS *` has no path.
    if head.path() == b"*" {
        return Ok(());
    }
    if redirect.strip_query {
        head.set_query(None);
    }
    rewrite.apply(head, matched, slashes, rewriting)
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
    if connection.tls.is_none() || asks_tunnel {
        return false;
    }
    let alpn: &[u8] = if connection.multiplex().is_some() { b"h2" } else { b"http/1.1" };
    let facts = ConnectionFacts {
        protocol: Some(Detected::Tls),
        alpn: &[alpn],
        ..connection.address_facts()
    };
    misdirected::is_misdirected(listener, exchange.chain, head.host(), &facts)
}

/// Whether every protocol that an `Upgrade` field names may be let through.
#[must_use]
pub fn allows_upgrade(allowed: &[Box<str>], value: &[u8]) -> bool {
    wire::upgrade::all_allowed(value, allowed)
}
