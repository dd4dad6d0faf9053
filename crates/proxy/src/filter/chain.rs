//! Hop 6: the chain of filters, and the bodies that filters want to see.
//!
//! A request whose filter waits, for an answer or for the whole body, is parked as its canonical
//! encoding: plain bytes that a save can write down, read again when it goes on. A response that
//! waits for its body is parked in the same way, and nothing of it has gone downstream then.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::h1::{
    ConnectionField, HeadLimits, Scan, decode_request, decode_response, encode_request,
    encode_response,
};
use wire::head::{Framing, Head, Known, RequestHead, ResponseHead, Version};
use wire::path::Slashes;

use crate::agenda::Note;
use crate::connection::ExchangeKey;
use crate::cx::Cx;
use crate::exchange::encoding::connection_field;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::{Exchange, QueuedRequest, Stage, Wait};
use crate::filter::{BodyNeed, Filter, Part, Question, Verdict};
use crate::ops::Op;
use crate::proxy::Proxy;
use crate::tools::time::Time;

/// Bounds on a head that this proxy encoded itself: none but what it was read with.
const OWN_HEAD: HeadLimits = HeadLimits {
    request_line_bytes_max: u32::MAX,
    head_bytes_max: u32::MAX,
    fields_max: u16::MAX,
    slashes: Slashes::Keep,
};

/// Room to begin with for a body whose length is not known.
const GATHER_BYTES_FIRST: usize = 4 << 10;

/// Where in its chain a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChainStep {
    /// The filter at this place looks at the head.
    Head(usize),
    /// It looks at the body, if it needs all of it.
    Body(usize),
}

impl ChainStep {
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Head(place) | Self::Body(place) => place,
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Head(place) => Self::Body(place),
            Self::Body(place) => Self::Head(place + 1),
        }
    }
}

/// Filters of a chain that look at bodies as they pass, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BodyObservers {
    /// At the request's.
    request: Places,
    /// Those that take part in the response, whether they stream or gather.
    response: Places,
}

/// Places of a chain, which has no more than a set of them can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Places(u64);

impl Places {
    fn insert(&mut self, place: usize) {
        debug_assert!(place < config::snapshot::FILTERS_MAX, "the configuration bounds chains");
        self.0 |= 1 << place;
    }

    const fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BodyObservers {
    /// Those that a chain has when a request begins.
    pub(crate) fn at_requests(filters: &[Box<dyn Filter>]) -> Self {
        let mut observers = Self::default();
        for (place, filter) in filters.iter().enumerate() {
            if filter.bodies().request == BodyNeed::Stream {
                observers.request.insert(place);
            }
        }
        observers
    }
}

/// A request's body that a filter wanted whole.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) body: Buffer,
    /// The trailer section, if it came.
    pub(crate) trailers: Vec<u8>,
}

/// A response that waits until a filter has seen all of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) head: Buffer,
    pub(crate) body: Buffer,
    /// Bytes of the body that the filters take.
    pub(crate) bytes_max: usize,
}

impl Exchange {
    /// Shows a piece of the request's body to the filters that look on.
    pub(crate) fn show_request_data(&mut self, data: &[u8]) {
        let observers = self.observers.request;
        if !observers.is_empty() {
            self.show(observers, |filter, slot| filter.on_request_data(data, slot));
        }
    }

    /// Whether anything here has to see the request's data.
    pub(crate) fn reads_request_data(&self) -> bool {
        let has_bound = self.listener().http.body_bytes_max.is_some() && !self.progress.is_tunnel;
        has_bound
            || self.call.is_some()
            || !self.observers.request.is_empty()
            || matches!(self.stage, Stage::Gathering { .. } | Stage::Buffering { .. })
    }

    /// Whether anything here has to see the response's data.
    pub(crate) const fn reads_response_data(&self) -> bool {
        self.call.is_some() || self.held.is_some() || !self.observers.response.is_empty()
    }

    /// Shows a piece of the response's body to the filters that look on.
    pub(crate) fn show_response_data(&mut self, data: &[u8]) {
        let observers = self.observers.response;
        if !observers.is_empty() {
            self.show(observers, |filter, slot| {
                if filter.bodies().response == BodyNeed::Stream {
                    filter.on_response_data(data, slot);
                }
            });
        }
    }

    fn show(&mut self, observers: Places, mut see: impl FnMut(&dyn Filter, &mut [u8])) {
        let filters = Arc::clone(&self.listener().filters);
        for (place, filter) in filters.iter().enumerate() {
            if observers.contains(place) {
                see(&**filter, slot_of(&filters, self.slots.as_deref_mut(), place));
            }
        }
    }
}

impl Cx {
    pub(crate) fn park(&mut self, head: &RequestHead<'_>) -> Buffer {
        let mut encoded = self.buffers.lease(head.encoded_len_max() + never_indexed_len(head));
        encode_request(head, connection_field(head.upgrade().is_some()), &mut encoded);
        push_never_indexed(head, &mut encoded);
        encoded
    }

    /// Queues a gathered body behind its request's head.
    pub(crate) fn push_gathered(
        &mut self,
        gathered: Gathered,
        is_complete: bool,
        request: &mut QueuedRequest,
    ) {
        let Gathered { body, trailers } = gathered;
        request.push_data(body.filled(), &mut self.buffers);
        if is_complete {
            request.push_end(&trailers, &mut self.buffers);
        }
        self.buffers.give_back(body);
    }

    /// Gives back what an exchange that is over had gathered.
    pub(crate) fn drop_bodies(&mut self, exchange: &mut Exchange) {
        if let Some(gathered) = exchange.gathered.take() {
            self.buffers.give_back(gathered.body);
        }
        if let Some(held) = exchange.held.take() {
            self.buffers.give_back(held.head);
            self.buffers.give_back(held.body);
        }
    }
}

impl Exchanges {
    // Requests.

    /// Gives an exchange what its chain's filters want to have.
    #[inline]
    pub(crate) fn begin_chain(&mut self, key: ExchangeKey) {
        let Some(exchange) = self.get_mut(key) else { return };
        let filters = &exchange.listener().filters;
        let bytes = filters.iter().map(|filter| filter.slot_bytes()).sum::<usize>();
        exchange.observers = BodyObservers::at_requests(filters);
        if bytes > 0 {
            exchange.slots = Some(vec![0; bytes].into_boxed_slice());
        }
    }

    fn suspend(
        &mut self,
        key: ExchangeKey,
        step: ChainStep,
        question: Question,
        head: &RequestHead<'_>,
        now: Time,
        cx: &mut Cx,
    ) {
        let head = cx.park(head);
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.stage = Stage::Suspended { step, question: question.clone(), head };
        let timeout = exchange.listener().timeouts.filter;
        self.set_deadline(key, Wait::Filter, now + timeout, cx);
        cx.ops.push_back(Op::Ask { exchange: key, question });
    }

    // Responses.

    /// Shows the response's head to the chain, in the reverse order of the request. Says how many
    /// bytes the body may have if a filter wants all of it.
    pub(crate) fn run_response_chain(
        &mut self,
        key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        cx: &mut Cx,
    ) -> Option<usize> {
        let exchange = self.get_mut(key)?;
        let snapshot = exchange.snapshot.clone();
        let listener = snapshot.listeners.get(exchange.listener)?.seen_by(exchange.chain);
        let mut gather_bytes_max = None;
        let mut participants = Places::default();
        for (place, filter) in listener.filters.iter().enumerate().rev() {
            let slot = slot_of(&listener.filters, exchange.slots.as_deref_mut(), place);
            if filter.on_response(head, slot) == Part::Done {
                continue;
            }
            participants.insert(place);
            if let BodyNeed::Gather { bytes_max } = filter.bodies().response {
                gather_bytes_max =
                    Some(gather_bytes_max.map_or(bytes_max, |max: usize| max.min(bytes_max)));
            }
        }
        exchange.observers.response = participants;
        if let Some(pseudonym) = &listener.http.via {
            crate::exchange::forwarded::append_via(head, pseudonym, &mut cx.scratch);
        }
        gather_bytes_max
    }

    /// Parks a response until its body is whole.
    pub(crate) fn hold_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        bytes_max: usize,
        cx: &mut Cx,
    ) {
        let mut encoded = cx.buffers.lease(head.encoded_len_max() + never_indexed_len(head));
        let framing = head.framing();
        encode_response(head, Version::Http11, framing, ConnectionField::Default, &mut encoded);
        push_never_indexed(head, &mut encoded);
        let bytes = match framing {
            Framing::Length(n) => usize::try_from(n).unwrap_or(usize::MAX),
            _ => GATHER_BYTES_FIRST,
        };
        let body = cx.buffers.lease(bytes.min(bytes_max));
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.held = Some(Box::new(Held { head: encoded, body, bytes_max }));
    }

    fn show_response_body(&mut self, key: ExchangeKey, head: &mut ResponseHead<'_>, body: &[u8]) {
        let Some(exchange) = self.get_mut(key) else { return };
        let filters = Arc::clone(&exchange.listener().filters);
        for (place, filter) in filters.iter().enumerate().rev() {
            let is_gathering = matches!(filter.bodies().response, BodyNeed::Gather { .. });
            if is_gathering && exchange.observers.response.contains(place) {
                let slot = slot_of(&filters, exchange.slots.as_deref_mut(), place);
                filter.on_response_body(head, body, slot);
            }
        }
    }
}

impl Proxy {
    /// Runs the chain from a step on, then routes.
    pub(crate) fn run_chain(
        &mut self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        first: ChainStep,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let filters = Arc::clone(&exchange.listener().filters);
        let mut step = first;
        while let Some(filter) = filters.get(step.place()) {
            let slot = slot_of(&filters, exchange.slots.as_deref_mut(), step.place());
            let verdict = match (step, filter.bodies().request) {
                (ChainStep::Head(_), _) => filter.on_request(head, slot),
                (ChainStep::Body(_), BodyNeed::None | BodyNeed::Stream) => Verdict::Continue,
                (ChainStep::Body(place), BodyNeed::Gather { bytes_max }) => {
                    let gathered = exchange.gathered.as_ref();
                    let body = gathered.map_or(&[][..], |gathered| gathered.body.filled());
                    if body.len() > bytes_max {
                        return self.fail(key, Cause::RequestBodyTooLarge, now);
                    }
                    // What comes on a stream behind a request for another protocol is of that.
                    let is_upgrade = head.upgrade().is_some() && !exchange.downstream.is_alone();
                    if !exchange.request.is_complete && !is_upgrade {
                        return self.gather_request(key, place, bytes_max, head, now);
                    }
                    filter.on_request_body(head, body, slot)
                }
            };
            match verdict {
                Verdict::Continue => step = step.next(),
                Verdict::Reply(reply) => return self.reply_from_filter(key, &reply, now),
                Verdict::Suspend(question) => {
                    return self.exchanges.suspend(key, step, question, head, now, &mut self.cx);
                }
            }
        }
        self.route(key, head, now);
    }

    /// The answer that a suspended exchange waits for.
    pub fn on_answer(&mut self, key: ExchangeKey, answer: &[u8], now: Time) {
        self.handle_answer(key, answer, now);
        self.settle(now);
    }

    fn handle_answer(&mut self, key: ExchangeKey, answer: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if !matches!(exchange.stage, Stage::Suspended { .. }) {
            return;
        }
        let stage = std::mem::replace(&mut exchange.stage, Stage::Finishing);
        let Stage::Suspended { step, head, .. } = stage else { return };
        exchange.deadlines.clear(Wait::Filter);
        self.with_parked(key, head, now, |proxy, head| {
            let Some(exchange) = proxy.exchanges.get_mut(key) else { return };
            let filters = Arc::clone(&exchange.listener().filters);
            let Some(filter) = filters.get(step.place()) else { return };
            let slot = slot_of(&filters, exchange.slots.as_deref_mut(), step.place());
            match filter.on_answer(answer, head, slot) {
                Verdict::Continue => proxy.run_chain(key, head, step.next(), now),
                Verdict::Reply(reply) => proxy.reply_from_filter(key, &reply, now),
                Verdict::Suspend(question) => {
                    proxy.exchanges.suspend(key, step, question, head, now, &mut proxy.cx);
                }
            }
        });
        if let Some(exchange) = self.exchanges.get(key) {
            self.cx.agenda.push(Note::Resume(exchange.downstream));
        }
    }

    /// Goes on with a head that was parked, and gives its buffer back.
    pub(crate) fn with_parked(
        &mut self,
        key: ExchangeKey,
        encoded: Buffer,
        now: Time,
        go_on: impl FnOnce(&mut Self, &mut RequestHead<'_>),
    ) {
        if self.read_parked(&encoded, go_on).is_none() {
            // Another worker saved it, and it was damaged on its way.
            self.fail(key, Cause::RequestInvalid, now);
        }
        self.cx.buffers.give_back(encoded);
    }

    /// Looks at a head that was parked; none if it is damaged.
    pub(crate) fn read_parked<T>(
        &mut self,
        encoded: &Buffer,
        look: impl FnOnce(&mut Self, &mut RequestHead<'_>) -> T,
    ) -> Option<T> {
        let mut index = self.cx.request_index.take().unwrap_or_default();
        let bytes = encoded.filled();
        let seen = match decode_request(bytes, &mut Scan::default(), &OWN_HEAD, &mut index) {
            Ok(Some((mut head, n))) => {
                read_never_indexed(&mut head, bytes.get(n..).unwrap_or_default());
                Some(look(self, &mut head))
            }
            Ok(None) | Err(_) => None,
        };
        self.cx.request_index = Some(index);
        seen
    }

    /// Waits for the rest of the body, for the filter at this place.
    fn gather_request(
        &mut self,
        key: ExchangeKey,
        filter: usize,
        bytes_max: usize,
        head: &mut RequestHead<'_>,
        now: Time,
    ) {
        let bytes = match head.framing() {
            Framing::Length(n) => usize::try_from(n).unwrap_or(usize::MAX),
            _ => GATHER_BYTES_FIRST.min(bytes_max),
        };
        if bytes > bytes_max {
            return self.fail(key, Cause::RequestBodyTooLarge, now);
        }
        // A client that waits for a 100 gets it here; there is nothing left to expect.
        head.remove_known(Known::Expect);
        let head = self.cx.park(head);
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.stage = Stage::Gathering { filter, head };
        if exchange.gathered.is_none() {
            let body = self.cx.buffers.lease(bytes);
            exchange.gathered = Some(Box::new(Gathered { body, trailers: Vec::new() }));
        }
        let (downstream, timeout) =
            (exchange.downstream, exchange.listener().timeouts.request_body);
        if std::mem::take(&mut exchange.request.expects_continue) {
            self.connections.send_status(downstream, 100, &mut self.cx);
        }
        self.exchanges.set_deadline(key, Wait::RequestBody, now + timeout, &mut self.cx);
    }

    /// A piece of a body that a filter waits for.
    pub(crate) fn gather_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Stage::Gathering { filter, .. } = exchange.stage else { return };
        let need = exchange.listener().filters.get(filter).map(|filter| filter.bodies().request);
        let Some(gathered) = &mut exchange.gathered else { return };
        let bytes = gathered.body.len() + data.len();
        if matches!(need, Some(BodyNeed::Gather { bytes_max }) if bytes > bytes_max) {
            return self.fail(key, Cause::RequestBodyTooLarge, now);
        }
        gather(&mut gathered.body, data, &mut self.cx.buffers);
    }

    /// The body that a filter waited for is whole.
    pub(crate) fn on_request_gathered(&mut self, key: ExchangeKey, trailers: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if let Some(gathered) = &mut exchange.gathered {
            gathered.trailers = trailers.to_vec();
        }
        let stage = std::mem::replace(&mut exchange.stage, Stage::Finishing);
        let Stage::Gathering { filter, head } = stage else { return };
        self.with_parked(key, head, now, |proxy, head| {
            proxy.run_chain(key, head, ChainStep::Body(filter), now);
        });
    }

    /// A piece of a response that waits for its body.
    pub(crate) fn gather_response_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(held) = &mut exchange.held else { return };
        if held.body.len() + data.len() > held.bytes_max {
            return self.fail(key, Cause::ResponseBodyTooLarge, now);
        }
        gather(&mut held.body, data, &mut self.cx.buffers);
    }

    /// The response is whole: if it was held, shows it to the filters that waited for it and begins
    /// to send it. Says whether it goes on.
    pub(crate) fn release_response(&mut self, key: ExchangeKey, now: Time) -> bool {
        let Some(exchange) = self.exchanges.get_mut(key) else { return false };
        let Some(held) = exchange.held.take() else { return true };
        let Held { head: encoded, body, .. } = *held;
        let method = exchange.request.method;
        let mut index = self.cx.response_index.take().unwrap_or_default();
        let bytes = encoded.filled();
        let decoded = decode_response(bytes, &mut Scan::default(), &OWN_HEAD, &mut index, method);
        let is_whole = matches!(decoded, Ok(Some(_)));
        match decoded {
            Ok(Some((mut head, n))) => {
                read_never_indexed(&mut head, bytes.get(n..).unwrap_or_default());
                self.exchanges.show_response_body(key, &mut head, body.filled());
                self.begin_response(key, &head, head.framing(), (body.len(), false));
                self.send_held_body(key, body.filled());
            }
            // Another worker saved it, and it was damaged on its way.
            Ok(None) | Err(_) => self.fail(key, Cause::ResponseInvalid, now),
        }
        self.cx.response_index = Some(index);
        self.cx.buffers.give_back(encoded);
        self.cx.buffers.give_back(body);
        is_whole
    }

    fn send_held_body(&mut self, key: ExchangeKey, body: &[u8]) {
        if let Some(exchange) = self.exchanges.get(key)
            && !body.is_empty()
        {
            self.connections.send_data(exchange.downstream, body, &mut self.cx);
        }
    }
}

/// The bytes of one filter in an exchange's slots.
fn slot_of<'s>(
    filters: &[Box<dyn Filter>],
    slots: Option<&'s mut [u8]>,
    place: usize,
) -> &'s mut [u8] {
    let Some(slots) = slots else { return &mut [] };
    let start = filters.iter().take(place).map(|filter| filter.slot_bytes()).sum::<usize>();
    let bytes = filters.get(place).map_or(0, |filter| filter.slot_bytes());
    slots.get_mut(start..start + bytes).unwrap_or_default()
}

/// Appends to a body, which grows by at least its own length, so that its bytes are not copied
/// again and again.
fn gather(body: &mut Buffer, data: &[u8], buffers: &mut crate::tools::buffers::Buffers) {
    if body.spare_len() < data.len() {
        let more = data.len().max(body.len());
        let narrow = std::mem::replace(body, Buffer::new(0));
        *body = buffers.widen(narrow, more);
    }
    body.push(data);
}

/// Bytes that [`push_never_indexed`] writes.
fn never_indexed_len<K>(head: &Head<'_, K>) -> usize {
    head.never_indexed().map(|name| name.len() + 1).sum()
}

/// Writes behind a parked head what its encoding cannot say: the names of what must not get into a
/// compression table, each with a line end.
fn push_never_indexed<K>(head: &Head<'_, K>, encoded: &mut Buffer) {
    for name in head.never_indexed() {
        encoded.push(name);
        encoded.push(b"\n");
    }
}

/// Reads what [`push_never_indexed`] wrote.
fn read_never_indexed<K>(head: &mut Head<'_, K>, names: &[u8]) {
    for name in names.split(|octet| *octet == b'\n').filter(|name| !name.is_empty()) {
        head.set_never_indexed(name);
    }
}
