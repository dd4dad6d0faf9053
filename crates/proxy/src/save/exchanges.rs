//! Exchanges as they are written down, and what makes one of the other.

mod filters;
mod stages;

use std::time::Duration;

use config::edits::operators::KEPT_BYTES_MAX;
use config::retry::AskedRetries;
use config::snapshot::ChainId;
use serde::{Deserialize, Serialize};
use telemetry::captures::CAPTURES_BYTES_MAX;
use telemetry::events::Relocated;
use wire::buffer::Buffer;

use self::filters::Filtered;
pub(super) use self::stages::SavedStage;
use super::companions::Companions;
use super::records::{SavedRecord, restore_progress, restore_record};
use super::routes::SavedRoute;
use super::{SavedSide, before};
use crate::connection::Connection;
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::exchange::attempts::Attempt;
use crate::exchange::calls::Call;
use crate::exchange::detached::Detached;
use crate::exchange::progress::Progress;
use crate::exchange::record::Words;
use crate::exchange::stage::{Current, Stage};
use crate::exchange::{Deadlines, Exchange, ExchangeKind, Handshake, Request, Route, Wait};
use crate::filter::filter_chain::{BodyObservers, FilterStep, Gathered, Held};
use crate::keys::{ConnKey, ExchangeKey, StreamKey, label};
use crate::listen::clients::{ClientPlace, Part};
use crate::listen::listeners::ListenerKey;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::buffers::Buffers;
use crate::tools::pinned::Pinned;
use crate::tools::time::Time;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedExchange {
    /// None of one that is detached.
    pub(super) downstream: Option<SavedSide>,
    /// What it is without a downstream.
    pub(super) detached: Option<Box<Detached>>,
    /// Places of its copies among the exchanges, as long as it is not whole.
    pub(super) copies: Vec<u32>,
    pub(super) upstream: Option<SavedSide>,
    kind: ExchangeKind,
    pub(super) stage: SavedStage,
    request: Request,
    route: Option<SavedRoute>,
    deadlines: Vec<(u8, Duration)>,
    /// Names of the chain's filters, which the slots belong to.
    filters: Vec<String>,
    slots: Option<Vec<u8>>,
    observers: BodyObservers,
    gathered: Option<SavedGathered>,
    /// What edits of the response need of the request.
    kept: Vec<u8>,
    held: Option<SavedHeld>,
    record: SavedRecord,
    call: Option<Box<Call>>,
    handshake: Option<Box<Handshake>>,
    is_response_complete: bool,
    is_request_slow: bool,
    is_response_slow: bool,
    /// What it asks for beside the `retry` of its rule. Which endpoints it has tried is forgotten.
    asked_retries: Option<AskedRetries>,
    /// How long it was stalled, if it was.
    stalled: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedGathered {
    body: Vec<u8>,
    trailers: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedHeld {
    head: Vec<u8>,
    body: Vec<u8>,
    bytes_max: usize,
}

impl Connections {
    /// Makes the connections of a restored exchange know it.
    fn join_exchange(
        &mut self,
        key: ExchangeKey,
        downstream: StreamKey,
        upstream: Option<StreamKey>,
    ) {
        for side in [Some(downstream), upstream].into_iter().flatten() {
            self.join(side, key);
        }
    }
}

/// An exchange that is out of the table and not written down yet.
#[derive(Debug)]
pub(super) struct TakenExchange {
    exchange: Exchange,
    downstream: Option<SavedSide>,
    upstream: Option<SavedSide>,
    detached: Option<Box<Detached>>,
    copies: Vec<u32>,
    stalled: Option<u64>,
}

impl TakenExchange {
    /// Whether its request is yet to be given to a connection.
    pub(super) const fn may_begin(&self) -> bool {
        self.upstream.is_none() && !matches!(self.exchange.stage(), Stage::Finishing)
    }
}

impl Cx {
    /// Writes an exchange down.
    pub(super) fn write_exchange(&mut self, saving: TakenExchange, now: Time) -> SavedExchange {
        let TakenExchange { mut exchange, downstream, upstream, detached, copies, stalled } =
            saving;
        let gathered = exchange.gathered.as_ref().map(|gathered| SavedGathered {
            body: gathered.body.filled().to_vec(),
            trailers: gathered.trailers.clone(),
        });
        let held = exchange.held.as_ref().map(|held| SavedHeld {
            head: held.head.filled().to_vec(),
            body: held.body.filled().to_vec(),
            bytes_max: held.bytes_max,
        });
        let kept = exchange.kept.as_ref().map_or(&[][..], Buffer::filled).to_vec();
        let route = exchange.route.as_ref().map(|route| self.write_route(&exchange, route));
        self.drop_bodies(&mut exchange);
        let stage = self.write_stage(exchange.take_stage(), now);
        let filters = exchange.listener().filter_sources.iter();
        let filters = filters.map(|source| source.name().to_owned()).collect();
        SavedExchange {
            downstream,
            detached,
            copies,
            upstream,
            filters,
            kind: exchange.kind,
            stage,
            request: exchange.request,
            route,
            deadlines: exchange.deadlines.remaining(now),
            slots: exchange.slots.map(Vec::from),
            observers: exchange.observers,
            gathered,
            kept,
            held,
            record: self.save_record(exchange.record, exchange.progress, now),
            call: exchange.call,
            handshake: exchange.handshake,
            is_response_complete: exchange.progress.is_response_complete,
            is_request_slow: exchange.is_request_slow,
            is_response_slow: exchange.is_response_slow,
            asked_retries: exchange.own_retries.and_then(|own| own.asked).map(|(asked, _)| asked),
            stalled,
        }
    }
}

impl Exchange {
    /// What it counts as on its way.
    fn relocated(&self) -> Relocated {
        let listener = label(self.listener().id.0);
        Relocated::Exchange { listener, is_tunnel: self.progress.is_tunnel }
    }
}

impl Proxy {
    /// Takes an exchange out of the table and of all lists that have it.
    pub(super) fn take_exchange(
        &mut self,
        key: ExchangeKey,
        companions: &Companions,
        now: Time,
    ) -> Option<TakenExchange> {
        let stalled = self.exchanges.get(key).and_then(|it| self.exchanges.stalled_for(it, now));
        let mut exchange = self.exchanges.table.remove(key)?;
        exchange.let_go(
            &mut self.listen.clients,
            &mut self.exchanges.stalls,
            &mut self.upstream.pools,
        );
        exchange.end_retries(&mut self.upstream.pools);
        let upstream = exchange.upstream().map(|side| companions.side(side));
        let is_detached = exchange.detached.is_some();
        if !is_detached {
            self.cx.emitter.left(exchange.relocated());
        }
        let downstream = (!is_detached).then(|| companions.side(exchange.downstream));
        let detached = exchange.detached.clone();
        let copies = exchange.copies.take();
        let place = |copy: &ExchangeKey| companions.place_of_exchange(*copy);
        let copies = copies.iter().flatten().filter_map(place).collect();
        exchange.end_copies(&mut self.cx);
        self.cx.timers.remove(exchange.timer);
        if let (Stage::Waiting { .. }, Some(pool)) = (exchange.stage(), exchange.pool()) {
            let exchanges = &self.exchanges;
            let is_waiting = |key| exchanges.get(key).is_some();
            self.upstream.pools.give_up(pool, exchange.client, is_waiting);
        }
        self.listen.clients.remove(exchange.client, Part::Exchange);
        exchange.give_listener_request(self.cx.share.member());
        Some(TakenExchange { exchange, downstream, upstream, detached, copies, stalled })
    }

    /// The downstream of a saved exchange, with its listener, chain and client; none if that is not there.
    fn restored_downstream(
        &self,
        saved: &SavedExchange,
        side: impl Fn(SavedSide) -> Option<StreamKey>,
    ) -> Option<(StreamKey, ListenerKey, Option<ChainId>, ClientPlace)> {
        if saved.detached.is_some() {
            // Which one makes no difference to what has no client.
            let listener = self.listen.listeners.find(self.cx.snapshot.listeners.first()?.id)?;
            return Some((StreamKey::NONE, listener, None, ClientPlace::COPIES));
        }
        let downstream = side(saved.downstream?)?;
        let role = self.connections.get(downstream.connection)?.downstream()?;
        Some((downstream, role.listener, role.chain, role.client))
    }

    /// The route of a saved exchange. What is under way keeps the priority that it began with, whatever its rule says now, and so do the
    /// bounds that count it.
    fn restored_route(
        &mut self,
        saved: &SavedExchange,
        upstream: Option<StreamKey>,
        snapshot: &Pinned,
    ) -> Option<Route> {
        let mut route = self.cx.restore_route(snapshot, saved.route.as_ref()?);
        let connection = upstream.and_then(|it| self.connections.get(it.connection));
        if let Some(side) = connection.and_then(Connection::upstream) {
            route.priority = side.priority;
        }
        Some(route)
    }

    pub(super) fn restore_exchange(
        &mut self,
        mut saved: SavedExchange,
        connections: &[ConnKey],
        now: Time,
    ) -> Option<ExchangeKey> {
        let side = |side: SavedSide| {
            let connection = connections.get(side.connection as usize).copied()?;
            Some(StreamKey { connection, slot: side.slot })
        };
        let upstream = saved.upstream.and_then(side);
        let (downstream, listener, chain, client) = self.restored_downstream(&saved, side)?;
        let state = self.listen.listeners.get(listener);
        let client = match saved.record.client {
            Some(named) => self.listen.clients.enter(Some(named), state.id, Part::Exchange).0,
            None => {
                self.listen.clients.add(client, Part::Exchange);
                client
            }
        };
        let listener = state.listener().seen_by(chain);
        let (snapshot, place) = state.pin();
        let Filtered { slots, observers, again } = Filtered::new(&mut saved, listener);
        let route = self.restored_route(&saved, upstream, &snapshot);
        let timer = self.cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let deadlines = restore_deadlines(&saved.deadlines, now);
        let (_, first) = deadlines.first();
        let Buffered { words, captures, gathered, kept, held } =
            self.cx.restore_buffers(&mut saved);
        let detached = saved.detached;
        if let Some(detached) = &detached {
            // It was within a bound where it began.
            self.cx.copied_bytes = self.cx.copied_bytes.saturating_add(detached.bytes);
        }
        let key = self.exchanges.table.insert(Exchange {
            snapshot,
            listener: place,
            chain,
            downstream,
            client,
            is_holding: false,
            holds_request: false,
            holds_listener_request: false,
            counted_at: None,
            // How long it took where it comes from is not known.
            measured_from: None,
            attempt: Attempt::Counted,
            stall: None,
            kind: saved.kind,
            stage: Current::NEW,
            request: saved.request,
            route,
            timer,
            deadlines,
            slots,
            observers,
            gathered,
            kept,
            held,
            progress: Progress {
                is_response_complete: saved.is_response_complete,
                ..restore_progress(&saved.record)
            },
            record: restore_record(&saved.record, words, captures, now),
            call: saved.call,
            handshake: saved.handshake,
            copies: None,
            detached,
            own_retries: None,
            is_request_slow: saved.is_request_slow,
            is_response_slow: saved.is_response_slow,
        });
        self.cx.timers.set_owner(timer, TimerOwner::Exchange(key).into());
        self.cx.timers.arm(timer, first);
        self.connections.join_exchange(key, downstream, upstream);
        // Of one that is over but for its response the bound may have refused it, so that it never counted.
        if !matches!(saved.stage, SavedStage::Finishing)
            && let Some(exchange) = self.exchanges.get_mut(key)
        {
            exchange.hold_listener_request(self.cx.share.member());
        }
        self.count_restored(key, saved.asked_retries, upstream.is_some());
        if let Some(upstream) = upstream {
            self.bound_kept_request(key, upstream);
        }
        self.go_on_restored(key, again, saved.stage, upstream, now);
        self.hold_restored(key, saved.stalled, now);
        Some(key)
    }

    /// A restored exchange goes on where it was, or asks a filter again that waited in another chain.
    fn go_on_restored(
        &mut self,
        key: ExchangeKey,
        again: Option<usize>,
        stage: SavedStage,
        upstream: Option<StreamKey>,
        now: Time,
    ) {
        match (again, stage) {
            (
                Some(first),
                SavedStage::Suspended { head, .. } | SavedStage::Gathering { head, .. },
            ) => {
                let head = self.cx.buffers.lease_with(&head);
                self.with_parked(key, head, now, |proxy, head| {
                    proxy.run_filters(key, head, FilterStep::Head(first), now);
                });
            }
            (_, stage) => self.restore_stage(key, stage, upstream, now),
        }
    }

    /// A restored exchange counts in this worker, and with its retries in the budget of its cluster.
    fn count_restored(
        &mut self,
        key: ExchangeKey,
        asked: Option<AskedRetries>,
        has_upstream: bool,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if exchange.detached.is_none() {
            self.cx.emitter.came(exchange.relocated());
        }
        if let Some(asked) = asked {
            exchange.ask_for_retries(asked);
        }
        if exchange.may_have_retries() {
            // The first attempt is none, whether it is under way or has begun to be answered.
            let is_retry = exchange.progress.attempts > u8::from(has_upstream);
            exchange.count_retries(is_retry, &mut self.upstream.pools, &mut self.cx);
        }
    }

    /// A restored exchange that has an upstream connection counts at its endpoint, and may have been stalled for so long.
    fn hold_restored(&mut self, key: ExchangeKey, stalled: Option<u64>, now: Time) {
        let restored = self.exchanges.get_mut(key);
        let Some(exchange) = restored.filter(|exchange| exchange.upstream().is_some()) else {
            return;
        };
        self.upstream.pools.is_counting |= exchange.endpoint_to_count().is_some();
        exchange.hold(&mut self.listen.clients, &mut self.upstream.pools);
        exchange.hold_request(&mut self.upstream.pools, &mut self.cx);
        if stalled.is_some() || exchange.awaits_client() {
            let since = stalled.map_or(now, |age| before(age, now));
            self.exchanges.on_stalled(key, since);
        }
    }
}

fn restore_deadlines(saved: &[(u8, Duration)], now: Time) -> Deadlines {
    let mut deadlines = Deadlines::default();
    for (wait, left) in saved {
        if let Some(wait) = Wait::ALL.get(usize::from(*wait)) {
            deadlines.set(*wait, now + *left);
        }
    }
    deadlines
}

/// What a restored exchange has in buffers of this worker.
struct Buffered {
    words: Words,
    captures: Option<Buffer>,
    gathered: Option<Box<Gathered>>,
    kept: Option<Buffer>,
    held: Option<Box<Held>>,
}

impl Cx {
    fn restore_buffers(&mut self, saved: &mut SavedExchange) -> Buffered {
        let (words, captures) = self.restore_words(&saved.record);
        let gathered = saved.gathered.take();
        let gathered = gathered.map(|saved| restore_gathered(saved, &mut self.buffers));
        let kept = saved.kept.get(..KEPT_BYTES_MAX.min(saved.kept.len()));
        let kept = kept.filter(|kept| !kept.is_empty());
        let kept = kept.map(|kept| self.buffers.lease_with(kept));
        let held = saved.held.take().map(|saved| restore_held(&saved, &mut self.buffers));
        Buffered { words, captures, gathered, kept, held }
    }

    /// Words and captures of a saved exchange, in buffers of this worker.
    fn restore_words(&mut self, record: &SavedRecord) -> (Words, Option<Buffer>) {
        let mut words = Words { text: None, lengths: record.lengths };
        if !record.words.is_empty() {
            words.text = Some(self.buffers.lease_with(&record.words));
        }
        let captures = record.captures.get(..CAPTURES_BYTES_MAX.min(record.captures.len()));
        let captures = captures.filter(|captures| !captures.is_empty()).map(|captures| {
            // With room for those of the response.
            let mut buffer = self.buffers.lease(CAPTURES_BYTES_MAX);
            buffer.push(captures);
            buffer
        });
        (words, captures)
    }
}

fn restore_gathered(saved: SavedGathered, buffers: &mut Buffers) -> Box<Gathered> {
    Box::new(Gathered { body: buffers.lease_with(&saved.body), trailers: saved.trailers })
}

fn restore_held(saved: &SavedHeld, buffers: &mut Buffers) -> Box<Held> {
    let (head, body) = (buffers.lease_with(&saved.head), buffers.lease_with(&saved.body));
    Box::new(Held { head, body, bytes_max: saved.bytes_max })
}
