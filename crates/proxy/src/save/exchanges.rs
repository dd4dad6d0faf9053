//! Exchanges as they are written down, and what makes one of the other.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use config::edits::operators::KEPT_BYTES_MAX;
use config::snapshot::{Action, ChainId, ClusterId, Forward, Rule};
use config::targets::{Share, Target};
use serde::{Deserialize, Serialize};
use telemetry::FAILED_ATTEMPTS_BYTES_MAX;
use telemetry::captures::CAPTURES_BYTES_MAX;
use wire::buffer::Buffer;

use super::connections::{
    CodecSettings, SavedCodec, SavedOutbox, restore_codec, restore_outbox, save_codec, save_outbox,
};
use super::{Companions, GONE, SavedSide, before, cause_named, since};
use crate::connection::codec::streams::Tail;
use crate::connection::connections::Connections;
use crate::connection::{ConnectionRole, UpstreamState};
use crate::cx::Cx;
use crate::exchange::attempts::Attempt;
use crate::exchange::calls::Call;
use crate::exchange::detached::Detached;
use crate::exchange::progress::Progress;
use crate::exchange::record::{ExchangeRecord, Stamps, Waits, Words};
use crate::exchange::route::edits_response;
use crate::exchange::{
    Deadlines, Exchange, ExchangeKind, Form, Handshake, QueuedRequest, Request, Route, Stage, Wait,
};
use crate::filter::Question;
use crate::filter::filter_chain::{BodyObservers, FilterStep, Gathered, Held};
use crate::keys::{ConnKey, ExchangeKey, StreamKey};
use crate::listen::clients::{ClientPlace, Part};
use crate::listen::listeners::ListenerKey;
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::buffers::Buffers;
use crate::tools::detail::Detail;
use crate::tools::pinned::Pinned;
use crate::tools::text::Text;
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
    /// How long it was stalled, if it was.
    stalled: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SavedStage {
    Suspended {
        step: FilterStep,
        topic: String,
        payload: Vec<u8>,
        head: Vec<u8>,
    },
    Gathering {
        filter: usize,
        head: Vec<u8>,
    },
    Buffering(SavedRequest),
    Waiting(SavedRequest),
    /// How long it has paused.
    Pausing(SavedRequest, Duration),
    Attempting,
    Responding,
    Finishing,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRequest {
    outbox: SavedOutbox,
    form: SavedForm,
}

#[derive(Debug, Serialize, Deserialize)]
enum SavedForm {
    Alone { codec: SavedCodec, is_personal: bool },
    Stream { head: Vec<u8>, tail: Tail },
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

/// A rule by its table and by what it matches, and which it is of several that match the same: where it
/// stands may be another place in the next configuration, or another rule's.
#[derive(Debug, Serialize, Deserialize)]
struct SavedRule {
    table: String,
    condition: String,
    nth: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedRoute {
    rule: Option<SavedRule>,
    cluster: Option<String>,
    endpoint: Option<Vec<u8>>,
    hash: Option<NonZeroU64>,
    subset: Option<NonZeroU64>,
    cookie: Option<NonZeroU64>,
    share: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedRecord {
    /// Time since each stamp, none for those that are not set.
    stamps: [Option<u64>; Stamps::COUNT],
    waits: Waits,
    status: u16,
    is_reply: bool,
    is_tunnel: bool,
    attempts: u8,
    interim_responses: u8,
    request_bytes: u64,
    response_bytes: u64,
    cause: Option<String>,
    cause_detail: Option<Vec<u8>>,
    failed_attempts: Vec<u8>,
    client: Option<IpAddr>,
    words: Vec<u8>,
    lengths: [u16; 5],
    captures: Vec<u8>,
}

impl Cx {
    fn save_record(
        &mut self,
        mut record: ExchangeRecord,
        progress: Progress,
        now: Time,
    ) -> SavedRecord {
        let text = record.words.text.take();
        let captures = record.captures.take();
        let saved = SavedRecord {
            stamps: record.stamps.all_mut().map(|stamp| since(*stamp, now)),
            waits: record.stamps.waits,
            status: record.status,
            is_reply: record.is_reply,
            is_tunnel: progress.is_tunnel,
            attempts: progress.attempts,
            interim_responses: progress.interim_responses,
            request_bytes: progress.request_bytes,
            response_bytes: record.response_bytes,
            cause: record.cause.map(|cause| cause.as_str().to_owned()),
            cause_detail: record.cause_detail.map(|detail| detail.as_bytes().to_vec()),
            failed_attempts: record.failed_attempts.map_or_else(Vec::new, <[u8]>::into_vec),
            client: record.client,
            words: text.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
            lengths: record.words.lengths,
            captures: captures.as_ref().map_or(&[][..], Buffer::filled).to_vec(),
        };
        for text in [text, captures].into_iter().flatten() {
            self.buffers.give_back(text);
        }
        saved
    }
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
            if let Some(stream) = self.stream_mut(side) {
                stream.exchange = key;
                continue;
            }
            match self.get_mut(side.connection).map(|connection| &mut connection.role) {
                Some(ConnectionRole::Downstream(role)) => role.exchange = Some(key),
                Some(ConnectionRole::Upstream(role)) => match &mut role.state {
                    UpstreamState::Connecting { exchange, .. } => *exchange = Some(key),
                    UpstreamState::Busy { exchange } => *exchange = key,
                    UpstreamState::Idle(_) | UpstreamState::Shared { .. } => {}
                },
                None => {}
            }
        }
    }
}

/// An exchange that is out of the table and not written down yet.
#[derive(Debug)]
pub(super) struct StandingExchange {
    exchange: Exchange,
    downstream: Option<SavedSide>,
    upstream: Option<SavedSide>,
    detached: Option<Box<Detached>>,
    copies: Vec<u32>,
    stalled: Option<u64>,
}

impl Cx {
    fn write_stage(&mut self, stage: Stage, now: Time) -> SavedStage {
        match stage {
            Stage::Suspended { step, question, head } => {
                let saved = SavedStage::Suspended {
                    step,
                    topic: question.topic.to_string(),
                    payload: question.payload.to_vec(),
                    head: head.filled().to_vec(),
                };
                self.buffers.give_back(head);
                saved
            }
            Stage::Gathering { filter, head } => {
                let saved = SavedStage::Gathering { filter, head: head.filled().to_vec() };
                self.buffers.give_back(head);
                saved
            }
            Stage::Buffering { request } => {
                SavedStage::Buffering(save_request(request, &mut self.buffers, now))
            }
            // One that retries is on an agenda only, which is empty between two events.
            Stage::Retrying { request } | Stage::Waiting { request } => {
                SavedStage::Waiting(save_request(request, &mut self.buffers, now))
            }
            Stage::Pausing { request, since } => {
                let saved = save_request(request, &mut self.buffers, now);
                SavedStage::Pausing(saved, now - since)
            }
            Stage::Attempting { .. } => SavedStage::Attempting,
            Stage::Responding { .. } => SavedStage::Responding,
            Stage::Finishing => SavedStage::Finishing,
        }
    }

    /// Writes an exchange down.
    pub(super) fn write_exchange(
        &mut self,
        standing: StandingExchange,
        now: Time,
    ) -> SavedExchange {
        let StandingExchange { mut exchange, downstream, upstream, detached, copies, stalled } =
            standing;
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
        self.drop_bodies(&mut exchange);
        let route = exchange.route.as_ref().map(|route| self.write_route(&exchange, route));
        let filters = exchange.listener().filter_sources.iter();
        let filters = filters.map(|source| source.name().to_owned()).collect();
        SavedExchange {
            downstream,
            detached,
            copies,
            upstream,
            filters,
            kind: exchange.kind,
            stage: self.write_stage(exchange.stage, now),
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
            stalled,
        }
    }

    /// Whether a snapshot is the newest, whose names are known.
    fn is_newest(&self, snapshot: &Pinned) -> bool {
        Arc::ptr_eq(self.snapshot.shared(), snapshot.shared())
    }

    fn write_route(&mut self, exchange: &Exchange, route: &Route) -> SavedRoute {
        let is_newest = self.is_newest(&exchange.snapshot);
        let rule = route.rule.and_then(|(table, place)| {
            let table = exchange.snapshot.route_table(table)?;
            let named = match is_newest {
                true => self.found.identity(table, place as usize),
                false => table.name_of(place as usize),
            };
            let (condition, nth) = named?;
            let nth = u32::try_from(nth).ok()?;
            Some(SavedRule { table: table.name.to_string(), condition, nth })
        });
        let cluster = exchange.cluster();
        let endpoint = cluster
            .zip(route.endpoint)
            .and_then(|(cluster, place)| cluster.endpoints.get(place))
            .map(|endpoint| Text::of_address(Some(&endpoint.address)).as_bytes().to_vec());
        let Route { hash, subset, cookie, share, .. } = *route;
        let cluster = cluster.map(|cluster| cluster.name.to_string());
        SavedRoute { rule, cluster, endpoint, hash, subset, cookie, share }
    }

    fn restore_route(&mut self, snapshot: &Pinned, saved: &SavedRoute) -> Route {
        // A listener that exchanges come to does not drain: it is seen as the newest snapshot has it.
        debug_assert!(self.is_newest(snapshot), "names are those of the newest snapshot");
        let found = saved.rule.as_ref().and_then(|saved| {
            let table = self.names().route_table(&saved.table, snapshot)?;
            let table = snapshot.route_table(table)?;
            Some((table, self.found.rule(table, &saved.condition, saved.nth)?))
        });
        let rule = found.and_then(|(table, place)| Some((table.id, u32::try_from(place).ok()?)));
        let cluster = saved.cluster.as_ref().map(|name| {
            let id = self.names().cluster(name, snapshot);
            id.and_then(|id| snapshot.cluster(id))
        });
        let endpoint = saved.endpoint.as_ref().zip(cluster.flatten());
        let endpoint =
            endpoint.and_then(|(address, cluster)| self.found.endpoint(cluster, address));
        let id = cluster.map(|found| found.map_or(ClusterId(GONE), |cluster| cluster.id));
        let rules = found.and_then(|(table, place)| Some((table, table.rules.get(place)?)));
        // The weights may be others now.
        let share = rules.and_then(|(_, rule)| share_of(rule, id?, saved.share));
        let has_edits = rules.is_some_and(|(table, rule)| edits_response(table, rule, share));
        let SavedRoute { hash, subset, cookie, .. } = *saved;
        Route { endpoint, hash, subset, cookie, share, has_edits, ..Route::new(rule, id) }
    }
}

impl Proxy {
    /// Takes an exchange out of the table and of all lists that have it.
    pub(super) fn uproot_exchange(
        &mut self,
        key: ExchangeKey,
        companions: &Companions,
        now: Time,
    ) -> Option<StandingExchange> {
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
        let downstream = (!is_detached).then(|| companions.side(exchange.downstream));
        let detached = exchange.detached.clone();
        let copies = exchange.copies.take();
        let place = |copy: &ExchangeKey| companions.exchange_places.get(&copy.to_bits()).copied();
        let copies = copies.iter().flatten().filter_map(place).collect();
        exchange.end_copies(&mut self.cx);
        self.cx.timers.remove(exchange.timer);
        let cluster = exchange.route.as_ref().and_then(|route| route.cluster);
        if let (Stage::Waiting { .. }, Some(cluster)) = (&exchange.stage, cluster) {
            let exchanges = &self.exchanges;
            let is_waiting = |key| exchanges.get(key).is_some();
            self.upstream.pools.give_up(cluster, exchange.client, is_waiting);
        }
        self.listen.clients.remove(exchange.client, Part::Exchange);
        Some(StandingExchange { exchange, downstream, upstream, detached, copies, stalled })
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

    pub(super) fn restore_exchange(
        &mut self,
        saved: SavedExchange,
        connections: &[ConnKey],
        now: Time,
    ) -> Option<ExchangeKey> {
        let side = |side: SavedSide| {
            let connection = connections.get(side.connection as usize).copied()?;
            Some(StreamKey { connection, slot: side.slot })
        };
        let upstream = saved.upstream.and_then(side);
        let (downstream, listener, chain, client) = self.restored_downstream(&saved, side)?;
        let client = match saved.record.client {
            Some(named) => self.listen.clients.enter(Some(named), Part::Exchange).0,
            None => {
                self.listen.clients.add(client, Part::Exchange);
                client
            }
        };
        let state = self.listen.listeners.get(listener);
        let listener = state.listener().seen_by(chain);
        let (snapshot, place) = state.pin();
        let route = saved.route.map(|route| self.cx.restore_route(&snapshot, &route));
        let timer = self.cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let deadlines = restore_deadlines(&saved.deadlines, now);
        let (_, first) = deadlines.first();
        let mut words = Words { text: None, lengths: saved.record.lengths };
        if !saved.record.words.is_empty() {
            words.text = Some(self.cx.buffers.lease_with(&saved.record.words));
        }
        let captures =
            saved.record.captures.get(..CAPTURES_BYTES_MAX.min(saved.record.captures.len()));
        let captures = captures.filter(|captures| !captures.is_empty()).map(|captures| {
            // With room for those of the response.
            let mut buffer = self.cx.buffers.lease(CAPTURES_BYTES_MAX);
            buffer.push(captures);
            buffer
        });
        let has_filters = saved.detached.is_none();
        let slot_bytes = listener.filters.iter().map(|f| f.slot_bytes()).sum::<usize>();
        let slot_bytes = if has_filters { slot_bytes } else { 0 };
        let names = listener.filter_sources.iter().map(|source| source.name());
        let is_same_chain = names.clone().eq(saved.filters.iter().map(String::as_str));
        // In another chain, a filter that waited is run again where it stands now.
        let waits = match &saved.stage {
            SavedStage::Suspended { step, .. } => Some(step.place()),
            SavedStage::Gathering { filter, .. } => Some(*filter),
            _ => None,
        };
        let again = waits.filter(|_| !is_same_chain).map(|filter| {
            let name = saved.filters.get(filter).map(String::as_str);
            names.clone().position(|other| Some(other) == name).unwrap_or(filter)
        });
        let observers = if !has_filters {
            BodyObservers::default()
        } else if is_same_chain {
            saved.observers
        } else {
            BodyObservers::at_requests(&listener.filters)
        };
        let gathered = saved.gathered.map(|saved| restore_gathered(saved, &mut self.cx.buffers));
        let kept = saved.kept.get(..KEPT_BYTES_MAX.min(saved.kept.len()));
        let kept = kept.filter(|kept| !kept.is_empty());
        let kept = kept.map(|kept| self.cx.buffers.lease_with(kept));
        let held = saved.held.map(|saved| restore_held(&saved, &mut self.cx.buffers));
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
            counted_at: None,
            // How long it took where it comes from is not known.
            measured_from: None,
            attempt: Attempt::Counted,
            stall: None,
            kind: saved.kind,
            stage: Stage::Finishing,
            request: saved.request,
            route,
            timer,
            deadlines,
            // Slots of another chain would mean nothing to this one's filters.
            slots: saved
                .slots
                .filter(|slots| is_same_chain && slots.len() == slot_bytes)
                .or_else(|| (slot_bytes > 0).then(|| vec![0; slot_bytes]))
                .map(Vec::into_boxed_slice),
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
            is_request_slow: saved.is_request_slow,
            is_response_slow: saved.is_response_slow,
        });
        self.cx.timers.set_owner(timer, TimerOwner::Exchange(key).into());
        self.cx.timers.arm(timer, first);
        self.connections.join_exchange(key, downstream, upstream);
        if let Some(exchange) = self.exchanges.get_mut(key)
            && exchange.forward().is_some_and(|forward| forward.retry.is_some())
        {
            exchange.count_retries(&mut self.upstream.pools, &mut self.cx);
        }
        if let Some(upstream) = upstream {
            self.bound_kept_request(key, upstream);
        }
        match (again, saved.stage) {
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
        let restored = self.exchanges.get_mut(key);
        if let Some(exchange) = restored.filter(|exchange| exchange.upstream().is_some()) {
            self.upstream.pools.is_counting |= exchange.endpoint_to_count().is_some();
            exchange.hold(&mut self.listen.clients, &mut self.upstream.pools);
            if saved.stalled.is_some() || exchange.awaits_client() {
                let since = saved.stalled.map_or(now, |age| before(age, now));
                self.exchanges.on_stalled(key, since);
            }
        }
        Some(key)
    }

    fn restore_stage(
        &mut self,
        key: ExchangeKey,
        saved: SavedStage,
        upstream: Option<StreamKey>,
        now: Time,
    ) {
        let stage = match (saved, upstream) {
            (SavedStage::Attempting, Some(upstream)) => Stage::Attempting { upstream },
            (SavedStage::Responding, Some(upstream)) => Stage::Responding { upstream },
            (SavedStage::Suspended { step, topic, payload, head }, _) => {
                let head = self.cx.buffers.lease_with(&head);
                let question = Question { topic: topic.into(), payload: payload.into() };
                self.cx.ops.push_back(Op::Ask { exchange: key, question: question.clone() });
                Stage::Suspended { step, question, head }
            }
            (SavedStage::Gathering { filter, head }, _) => {
                Stage::Gathering { filter, head: self.cx.buffers.lease_with(&head) }
            }
            (SavedStage::Buffering(saved), _) => {
                let mut request = restore_request(saved, &mut self.cx.buffers, now);
                self.keep_as_ruled(key, &mut request);
                Stage::Buffering { request }
            }
            (SavedStage::Waiting(saved), _) => {
                let mut request = restore_request(saved, &mut self.cx.buffers, now);
                self.keep_as_ruled(key, &mut request);
                return self.ask(key, request, None, now);
            }
            (SavedStage::Pausing(saved, length), _) => {
                let mut request = restore_request(saved, &mut self.cx.buffers, now);
                self.keep_as_ruled(key, &mut request);
                let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
                Stage::Pausing { request, since: before(length, now) }
            }
            (SavedStage::Finishing | SavedStage::Attempting | SavedStage::Responding, _) => {
                Stage::Finishing
            }
        };
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.stage = stage;
        }
    }

    /// What was kept of a request because its rule had a `retry` is not, if it has none now.
    fn keep_as_ruled(&mut self, key: ExchangeKey, request: &mut QueuedRequest) {
        if self.exchanges.get(key).is_some_and(|exchange| !exchange.progress.has_retries) {
            request.outbox.keep_less(&mut self.cx.buffers);
        }
    }
}

fn save_request(mut request: QueuedRequest, buffers: &mut Buffers, now: Time) -> SavedRequest {
    let outbox = save_outbox(&mut request.outbox, buffers);
    let form = match request.form {
        Form::Alone { codec, is_personal } => {
            SavedForm::Alone { codec: save_codec(codec, buffers, now), is_personal }
        }
        Form::Stream { head, tail } => {
            let saved = SavedForm::Stream { head: head.filled().to_vec(), tail };
            buffers.give_back(head);
            saved
        }
    };
    SavedRequest { outbox, form }
}

fn restore_request(saved: SavedRequest, buffers: &mut Buffers, now: Time) -> QueuedRequest {
    let outbox = restore_outbox(&saved.outbox, buffers);
    let form = match saved.form {
        SavedForm::Alone { codec, is_personal } => {
            // Of a connection to come, which is none of HTTP/2.
            let codec = restore_codec(codec, &CodecSettings::default(), buffers, now);
            Form::Alone { codec, is_personal }
        }
        SavedForm::Stream { head, tail } => Form::Stream { head: buffers.lease_with(&head), tail },
    };
    QueuedRequest { outbox, form }
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

fn restore_gathered(saved: SavedGathered, buffers: &mut Buffers) -> Box<Gathered> {
    Box::new(Gathered { body: buffers.lease_with(&saved.body), trailers: saved.trailers })
}

fn restore_held(saved: &SavedHeld, buffers: &mut Buffers) -> Box<Held> {
    let (head, body) = (buffers.lease_with(&saved.head), buffers.lease_with(&saved.body));
    Box::new(Held { head, body, bytes_max: saved.bytes_max })
}

/// The place of a cluster among the weights of a rule: where it was, or else the first with this cluster.
fn share_of(rule: &Rule, cluster: ClusterId, place: Option<u32>) -> Option<u32> {
    let Action::Forward(Forward { target: Target::Shares(shares), .. }) = &rule.action else {
        return None;
    };
    let place = usize::try_from(place?).ok()?;
    let is_same = |share: &Share| share.cluster == cluster;
    let found = match shares.clusters().get(place).is_some_and(is_same) {
        true => Some(place),
        false => shares.clusters().iter().position(is_same),
    };
    found.and_then(|place| u32::try_from(place).ok())
}

fn restore_record(
    saved: &SavedRecord,
    words: Words,
    captures: Option<Buffer>,
    now: Time,
) -> ExchangeRecord {
    let mut stamps = Stamps::NONE;
    for (stamp, age) in stamps.all_mut().into_iter().zip(saved.stamps) {
        *stamp = age.map_or(Time::NEVER, |age| before(age, now));
    }
    stamps.waits = saved.waits;
    let cause = saved.cause.as_ref();
    ExchangeRecord {
        stamps,
        status: saved.status,
        is_reply: saved.is_reply,
        response_bytes: saved.response_bytes,
        cause: cause.and_then(|word| cause_named(word)),
        cause_detail: saved.cause_detail.clone().map(Detail::from_bytes),
        failed_attempts: restore_failed_attempts(&saved.failed_attempts),
        client: saved.client,
        words,
        captures,
    }
}

fn restore_failed_attempts(saved: &[u8]) -> Option<Box<[u8]>> {
    let kept = saved.get(..FAILED_ATTEMPTS_BYTES_MAX).unwrap_or(saved);
    (!kept.is_empty()).then(|| kept.into())
}

fn restore_progress(saved: &SavedRecord) -> Progress {
    Progress {
        is_tunnel: saved.is_tunnel,
        has_response: saved.status != 0,
        is_response_complete: false,
        // By what its rule says now.
        has_retries: false,
        is_retry: false,
        attempts: saved.attempts,
        interim_responses: saved.interim_responses,
        request_bytes: saved.request_bytes,
    }
}
