//! Hop 6: an exchange goes from filter to filter, and waits where one asks or wants the whole body.

use std::sync::Arc;

use telemetry::cause::Cause;
use wire::buffer::Buffer;
use wire::h1::{HeadLimits, Scan, decode_request, decode_response};
use wire::head::{Framing, Head, HeadIndex, Known, Method, RequestHead, ResponseHead};
use wire::path::Slashes;
use wire::rpc;

use crate::agenda::Note;
use crate::exchange::Wait;
use crate::exchange::filtering::slot_of;
use crate::exchange::stage::{Stage, Suspended};
use crate::filter::filter_chain::GATHER_BYTES_FIRST;
use crate::filter::filter_chain::gather;
use crate::filter::filter_chain::{FilterStep, Gathered, Held};
use crate::filter::{BodyNeed, Verdict};
use crate::keys::ExchangeKey;
use crate::proxy::Proxy;
use crate::proxy::receive::elements::Following;
use crate::tools::time::Time;

/// Bounds on a head that this proxy encoded itself: none but what it was read with.
const OWN_HEAD: HeadLimits = HeadLimits {
    request_line_bytes_max: u32::MAX,
    head_bytes_max: u32::MAX,
    fields_max: u16::MAX,
    slashes: Slashes::Keep,
};

impl Proxy {
    /// Runs the chain from a step on, then routes.
    pub(crate) fn run_filters(
        &mut self,
        key: ExchangeKey,
        head: &mut RequestHead<'_>,
        first: FilterStep,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if exchange.listener().filters.is_empty() {
            return self.route(key, head, now);
        }
        let filters = Arc::clone(&exchange.listener().filters);
        let mut step = first;
        while let Some(filter) = filters.get(step.place()) {
            let slot = slot_of(&filters, exchange.slots.as_deref_mut(), step.place());
            let verdict = match (step, filter.bodies().request) {
                (FilterStep::Head(_), _) => filter.on_request(head, slot),
                (FilterStep::Body(_), BodyNeed::None | BodyNeed::Stream) => Verdict::Continue,
                (FilterStep::Body(place), BodyNeed::Gather { bytes_max }) => {
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
                    let timeout = exchange.listener().timeouts.filter;
                    let (exchanges, cx) = (&mut self.exchanges, &mut self.cx);
                    return exchanges.suspend(key, step, question, timeout, head, now, cx);
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
        let Some(Suspended { step, question, head }) = exchange.take_suspended() else { return };
        let until = exchange.deadlines.get(Wait::Filter);
        exchange.deadlines.clear(Wait::Filter);
        self.with_parked(key, head, now, |proxy, head| {
            if question.is_for_cluster() {
                return proxy.on_cluster_answer(key, answer, head, until, now);
            }
            let exchange = proxy.exchanges.get_mut(key).expect("it was found above");
            let filters = Arc::clone(&exchange.listener().filters);
            let Some(filter) = filters.get(step.place()) else { return };
            let slot = slot_of(&filters, exchange.slots.as_deref_mut(), step.place());
            match filter.on_answer(answer, head, slot) {
                Verdict::Continue => proxy.run_filters(key, head, step.next(), now),
                Verdict::Reply(reply) => proxy.reply_from_filter(key, &reply, now),
                Verdict::Suspend(question) => {
                    let timeout = exchange.listener().timeouts.filter;
                    let (exchanges, cx) = (&mut proxy.exchanges, &mut proxy.cx);
                    exchanges.suspend(key, step, question, timeout, head, now, cx);
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
    pub(super) fn read_parked<T>(
        &mut self,
        encoded: &Buffer,
        look: impl FnOnce(&mut Self, &mut RequestHead<'_>) -> T,
    ) -> Option<T> {
        let mut index = self.cx.request_index.take().unwrap_or_default();
        let bytes = encoded.filled();
        if rpc::is_parked(bytes) {
            let head = rpc::unpark_request(bytes, &mut index);
            let seen = head.map(|mut head| look(self, &mut head));
            self.cx.request_index = Some(index);
            return seen;
        }
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
        exchange.begin_gathering(filter, head);
        exchange.record.stamps.await_body(now);
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
    pub(super) fn gather_request_data(&mut self, key: ExchangeKey, data: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Stage::Gathering { filter, .. } = *exchange.stage() else { return };
        let need = exchange.listener().filters.get(filter).map(|filter| filter.bodies().request);
        let Some(gathered) = &mut exchange.gathered else { return };
        let bytes = gathered.body.len() + data.len();
        if matches!(need, Some(BodyNeed::Gather { bytes_max }) if bytes > bytes_max) {
            return self.fail(key, Cause::RequestBodyTooLarge, now);
        }
        gather(&mut gathered.body, data, &mut self.cx.buffers);
    }

    /// The body that a filter waited for is whole.
    pub(super) fn on_request_gathered(&mut self, key: ExchangeKey, trailers: &[u8], now: Time) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        if let Some(gathered) = &mut exchange.gathered {
            gathered.trailers = trailers.to_vec();
        }
        let Some((filter, head)) = exchange.take_gathering() else { return };
        self.with_parked(key, head, now, |proxy, head| {
            proxy.run_filters(key, head, FilterStep::Body(filter), now);
        });
    }

    /// A piece of a response that waits for its body.
    pub(in crate::proxy) fn gather_response_data(
        &mut self,
        key: ExchangeKey,
        data: &[u8],
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let Some(held) = &mut exchange.held else { return };
        if held.body.len() + data.len() > held.bytes_max {
            return self.fail(key, Cause::ResponseBodyTooLarge, now);
        }
        gather(&mut held.body, data, &mut self.cx.buffers);
    }

    /// The response is whole: if it was held, shows it to the filters that waited for it and begins
    /// to send it. Says whether it goes on.
    pub(in crate::proxy) fn release_response(&mut self, key: ExchangeKey, now: Time) -> bool {
        let Some(exchange) = self.exchanges.get_mut(key) else { return false };
        let Some(held) = exchange.held.take() else { return true };
        let Held { head: encoded, body, .. } = *held;
        let method = exchange.request.method;
        let mut index = self.cx.response_index.take().unwrap_or_default();
        let decoded = unpark_response(encoded.filled(), &mut index, method);
        let is_whole = decoded.is_some();
        match decoded {
            Some(mut head) => {
                self.exchanges.show_response_body(key, &mut head, body.filled());
                self.begin_response(
                    key,
                    &head,
                    head.framing(),
                    Following { bytes: body.len(), is_end: false },
                );
                self.send_held_body(key, body.filled());
            }
            // Another worker saved it, and it was damaged on its way.
            None => self.fail(key, Cause::ResponseInvalid, now),
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

/// Reads the head of a response that was parked; none if it is damaged.
fn unpark_response<'b>(
    bytes: &'b [u8],
    index: &'b mut HeadIndex,
    method: Method,
) -> Option<ResponseHead<'b>> {
    if rpc::is_parked(bytes) {
        return rpc::unpark_response(bytes, index);
    }
    let decoded = decode_response(bytes, &mut Scan::default(), &OWN_HEAD, index, method);
    let (mut head, n) = decoded.ok().flatten()?;
    read_never_indexed(&mut head, bytes.get(n..).unwrap_or_default());
    Some(head)
}

/// Reads what [`push_never_indexed`](crate::exchange::filtering::push_never_indexed) wrote.
fn read_never_indexed<K>(head: &mut Head<'_, K>, names: &[u8]) {
    for name in names.split(|octet| *octet == b'\n').filter(|name| !name.is_empty()) {
        head.set_never_indexed(name);
    }
}
