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
use crate::filter::Filter;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::tools::detail::Detail;
use crate::tools::spread::{latest, spread};
use crate::tools::time::Time;

/// What is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Its client is asked to connect again, and it is closed later.
    Goaway,
    /// It takes no further request: of an upstream connection.
    End,
}

impl Listen {
    pub(crate) fn due(&self, connection: &Connection, now: Time) -> Option<Due> {
        let downstream = connection.downstream()?;
        let listener = self.listeners.get(downstream.listener).listener();
        let seen = listener.seen_by(downstream.chain);
        let age_max = AgeMax::of(seen, connection)?.spread;
        let age = Duration::from_nanos(now.nanos_since(connection.opened));
        (age >= age_max && !downstream.is_aged).then_some(Due::Goaway)
    }

    /// Which bound a connection was beyond that was asked to go for its age, if one has it.
    pub(crate) fn why_aged(&self, connection: &Connection) -> Option<Detail> {
        let downstream = connection.downstream()?;
        let listener = self.listeners.get(downstream.listener).listener();
        let seen = listener.seen_by(downstream.chain);
        let AgeMax { option, bound, .. } = AgeMax::of(seen, connection)?;
        let grace = seen.timeouts.connection_age_grace;
        Some(Detail::of(&format_args!(
            "{option} of the listener: {bound:?}, and timeouts.connection_age_grace: {grace:?}"
        )))
    }

    /// Has a connection that was asked to go closed once it has had as long as old ones have for that. `is_surplus`: whether it is there
    /// beyond a bound.
    pub(crate) fn close_later(
        &mut self,
        key: ConnKey,
        is_surplus: bool,
        connections: &Connections,
        now: Time,
    ) {
        let Some(downstream) = connections.get(key).and_then(Connection::downstream) else {
            return;
        };
        let listener = self.listeners.get(downstream.listener).listener();
        let grace = listener.seen_by(downstream.chain).timeouts.connection_age_grace;
        self.asked_to_go.push(AskedToGo { key, until: now + grace, is_surplus });
    }

    /// The same of a connection that was asked to go where it comes from. However often it moves, it has no longer than the oldest of those
    /// that stay.
    pub(crate) fn close_restored(&mut self, key: ConnKey, connections: &Connections, now: Time) {
        let Some(connection) = connections.get(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let seen = self.listeners.get(downstream.listener).listener().seen_by(downstream.chain);
        let grace = seen.timeouts.connection_age_grace;
        let oldest = AgeMax::of(seen, connection).map(|it| connection.opened + it.latest);
        let until = oldest.map_or(now, |oldest| oldest.min(now)) + grace;
        self.asked_to_go.push(AskedToGo { key, until, is_surplus: false });
    }
}

/// A downstream connection that was asked to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedToGo {
    pub(crate) key: ConnKey,
    /// When it is closed.
    pub(crate) until: Time,
    /// Whether for a bound, and not for its age.
    pub(crate) is_surplus: bool,
}

/// The age from which on a connection has to end.
#[derive(Clone, Copy)]
struct AgeMax {
    /// What the configuration says.
    option: &'static str,
    bound: Duration,
    /// That of this connection: many that are opened together do not end together.
    spread: Duration,
    /// The latest that there is.
    latest: Duration,
}

impl AgeMax {
    /// The bound that is reached first, if there is one.
    fn of(listener: &Listener<Box<dyn Filter>>, connection: &Connection) -> Option<Self> {
        let of = |option, bound: Duration, least| {
            let (spread, latest) = (spread(bound, least, connection.opened), latest(bound, least));
            Self { option, bound, spread, latest }
        };
        let age = listener.timeouts.connection_age;
        let age = age.map(|age| of("timeouts.connection_age", age, 900));
        // A bound that is meant for certificates is never exceeded.
        let certificate = of_certificate(listener, connection);
        let certificate = certificate.map(|age| of("tls.client.connection_age_max", age, 800));
        age.into_iter().chain(certificate).min_by_key(|it| it.spread)
    }
}

/// The bound on the age of connections whose client has a certificate, if this one has.
fn of_certificate(
    listener: &Listener<Box<dyn Filter>>,
    connection: &Connection,
) -> Option<Duration> {
    let client = listener.tls.as_ref()?.source.client.as_ref()?;
    let has_certificate = connection.tls.as_deref().is_some_and(|tls| tls.client_cert().is_some());
    client.connection_age_max.filter(|_| has_certificate)
}
