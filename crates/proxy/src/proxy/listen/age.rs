//! Connections that are old enough end, between requests or with GOAWAY.

use telemetry::cause::Cause;

use crate::keys::{ConnKey, ExchangeKey};
use crate::listen::age::{AskedToGo, Due};
use crate::proxy::Proxy;
use crate::tools::detail::Detail;
use crate::tools::time::Time;
use crate::upstream::age::is_aged;

/// Connections that one call looks at: some hundred microseconds of work.
const LOOKED_AT_ONCE: u32 = 16_384;

/// Connections that one call does something about; the others are found by the next.
const ENDED_AT_ONCE_MAX: usize = 1_024;

impl Proxy {
    /// Looks for connections that are over their age. Called every second.
    pub fn end_aged(&mut self, now: Time) {
        if self.cx.has_part_of_group {
            return;
        }
        self.close_asked(now);
        if !self.upstream.own.is_empty() {
            self.upstream.end_own(now, &mut self.connections, &mut self.cx);
            self.settle(now);
        }
        let has_ages =
            self.cx.snapshot.listener_bounds.has_connection_age || self.upstream.has_ages;
        if !has_ages {
            return;
        }
        let mut due = Vec::new();
        let (range, next) = self.connections.table.range(self.listen.age_next, LOOKED_AT_ONCE);
        let mut first_left = None;
        for (key, connection) in range {
            let of_downstream = || self.listen.due(connection, now);
            let of_upstream = || {
                let cluster = self.cx.snapshot.cluster(connection.upstream()?.cluster)?;
                is_aged(connection, cluster, now).then_some(Due::End)
            };
            let Some(what) = of_downstream().or_else(of_upstream) else { continue };
            if due.len() == ENDED_AT_ONCE_MAX {
                first_left = Some(key.index());
                break;
            }
            due.push((key, what));
        }
        self.listen.age_next = first_left.or(next).unwrap_or(0);
        for (key, what) in due {
            match what {
                Due::Goaway => {
                    self.connections.on_aged(key, now, &mut self.cx);
                    self.listen.close_later(key, false, &self.connections, now);
                }
                Due::End => {
                    self.upstream.end_aged(key, now, &mut self.connections, &mut self.cx);
                }
            }
            self.settle(now);
        }
    }

    /// Closes connections that were asked to go, and have not done so for as long as they may.
    fn close_asked(&mut self, now: Time) {
        let connections = &self.connections;
        self.listen.asked_to_go.retain(|it| connections.get(it.key).is_some());
        let due: Vec<_> = self.listen.asked_to_go.extract_if(.., |it| it.until <= now).collect();
        for AskedToGo { key, is_surplus, .. } in due {
            let Some(connection) = self.connections.get(key) else { continue };
            let words =
                "connections_max or connections_per_client_max of the listener, after an upgrade";
            let aged = if is_surplus { None } else { self.listen.why_aged(connection) };
            let why = aged.unwrap_or_else(|| Detail::of(&words));
            self.abort_downstream(key, Cause::ConnectionAge, Some(why), now);
            self.settle(now);
        }
    }

    /// The exchanges that a connection has.
    pub(super) fn exchanges_on(&self, key: ConnKey) -> Vec<ExchangeKey> {
        let Some(connection) = self.connections.get(key) else { return Vec::new() };
        let streams = connection.multiplex().map(|all| all.streams.exchanges()).unwrap_or_default();
        connection.exchange().into_iter().chain(streams).collect()
    }

    /// Ends a downstream connection, with the exchanges that it has.
    pub(super) fn abort_downstream(
        &mut self,
        key: ConnKey,
        cause: Cause,
        why: Option<Detail>,
        now: Time,
    ) {
        for exchange in self.exchanges_on(key) {
            if let Some(why) = &why {
                self.exchanges.note_detail(exchange, || why.clone());
            }
            self.abort(exchange, cause, now);
        }
        if self.connections.get(key).is_some() {
            self.close_downstream(key, Some(cause), now);
        }
    }
}
