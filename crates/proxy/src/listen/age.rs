//! Connections that are over their age: their clients are asked to connect again, and what is left
//! of them after a grace is closed.
//!
//! A connection stores only whether it announces its end. When it has to is computed
//! from when it was opened, so that a configuration that changes holds for open connections too.
//! They are looked at once a second, some at a time, which costs no timer; where there are so many
//! that not all are looked at, one is noticed some seconds late.

use std::time::Duration;

use config::snapshot::Listener;

use crate::connection::Connection;
use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
use crate::filter::Filter;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::tools::spread::spread;
use crate::tools::time::Time;

/// What is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Its client is asked to connect again.
    Goaway,
    /// It is closed.
    Close,
    /// It takes no further request: of an upstream connection.
    End,
}

impl Listen {
    pub(crate) fn due(&self, connection: &Connection, now: Time) -> Option<Due> {
        let downstream = connection.downstream()?;
        let listener = self.listeners.get(downstream.listener).listener();
        let seen = listener.seen_by(downstream.chain);
        let age_max = age_max(seen, connection)?;
        let age = Duration::from_nanos(now.nanos_since(connection.opened));
        if age >= age_max.saturating_add(seen.timeouts.connection_age_grace) {
            Some(Due::Close)
        } else {
            (age >= age_max && !downstream.is_aged).then_some(Due::Goaway)
        }
    }

    /// Has a connection that was asked to go closed once it has had as long as old ones have for that.
    pub(crate) fn close_later(&mut self, key: ConnKey, connections: &Connections, now: Time) {
        let Some(downstream) = connections.get(key).and_then(Connection::downstream) else {
            return;
        };
        let listener = self.listeners.get(downstream.listener).listener();
        let grace = listener.seen_by(downstream.chain).timeouts.connection_age_grace;
        self.surplus.push((key, now + grace));
    }
}

/// The age from which on a connection has to end, if it has to.
fn age_max(listener: &Listener<Box<dyn Filter>>, connection: &Connection) -> Option<Duration> {
    let client = listener.tls.as_ref().and_then(|tls| tls.source.client.as_ref());
    let bound = client.and_then(|client| client.connection_age_max);
    let bound = bound
        .filter(|_| connection.tls.as_deref().is_some_and(|tls| Tls::client_cert(tls).is_some()));
    let age = listener.timeouts.connection_age;
    let age = age.map(|age| spread(age, 900, connection.opened));
    // A bound that is meant for certificates is never exceeded.
    let bound = bound.map(|bound| spread(bound, 800, connection.opened));
    match (age, bound) {
        (Some(age), Some(bound)) => Some(age.min(bound)),
        (age, bound) => age.or(bound),
    }
}
