//! Heads and bodies as the filters of an exchange see them, and a head that is parked while one waits.

use std::sync::Arc;
use std::time::Duration;

use wire::buffer::Buffer;
use wire::h1::{ConnectionField, encode_request, encode_response};
use wire::head::{Framing, Head, RequestHead, ResponseHead, Version};
use wire::rpc;

use crate::cx::Cx;
use crate::exchange::encoding::connection_field;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::stage::{Stage, Suspended};
use crate::exchange::{Exchange, Wait};
use crate::filter::filter_chain::GATHER_BYTES_FIRST;
use crate::filter::filter_chain::{BodyObservers, FilterSet, FilterStep, Gathered, Held};
use crate::filter::{BodyNeed, Filter, Part, Question};
use crate::keys::ExchangeKey;
use crate::ops::Op;
use crate::tools::time::Time;

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
            || self.copies.is_some()
            || self.call.is_some()
            || !self.observers.request.is_empty()
            || matches!(self.stage(), Stage::Gathering { .. } | Stage::Buffering { .. })
    }

    /// Whether anything here has to see the response's data.
    pub(crate) const fn reads_response_data(&self) -> bool {
        self.call.is_some()
            || self.held.is_some()
            || self.detached.is_some()
            || !self.observers.response.is_empty()
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

    fn show(&mut self, observers: FilterSet, mut see: impl FnMut(&dyn Filter, &mut [u8])) {
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
        if head.rpc().is_some() {
            let mut parked = self.buffers.lease(rpc::parked_len(head));
            rpc::park(head, head.framing(), 0, &mut parked);
            return parked;
        }
        let mut encoded = self.buffers.lease(head.encoded_len_max() + never_indexed_len(head));
        encode_request(head, connection_field(head.upgrade().is_some()), &mut encoded);
        push_never_indexed(head, &mut encoded);
        encoded
    }

    /// As [`Cx::park`], of a response.
    fn park_response(&mut self, head: &ResponseHead<'_>, framing: Framing) -> Buffer {
        if head.rpc_code().is_some() {
            let mut parked = self.buffers.lease(rpc::parked_len(head));
            rpc::park(head, framing, head.status(), &mut parked);
            return parked;
        }
        let mut encoded = self.buffers.lease(head.encoded_len_max() + never_indexed_len(head));
        encode_response(head, Version::Http11, framing, ConnectionField::Default, &mut encoded);
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
        if let Some(host) = exchange.route.as_mut().and_then(|route| route.host_before.take()) {
            self.buffers.give_back(host);
        }
        if let Some(gathered) = exchange.gathered.take() {
            self.buffers.give_back(gathered.body);
        }
        if let Some(kept) = exchange.kept.take() {
            self.buffers.give_back(kept);
        }
        if let Some(held) = exchange.held.take() {
            self.buffers.give_back(held.head);
            self.buffers.give_back(held.body);
        }
    }
}

impl Exchange {
    /// Shows the response's head to the chain, in the reverse order of the request. Says how many
    /// bytes the body may have if a filter wants all of it.
    #[inline]
    pub(crate) fn run_response_chain(
        &mut self,
        head: &mut ResponseHead<'_>,
        cx: &mut Cx,
    ) -> Option<usize> {
        if self.detached.is_some() {
            // No client gets it, and no filter has seen the request.
            return None;
        }
        let listener = self.snapshot.listeners.get(self.listener)?.seen_by(self.chain);
        let mut gather_bytes_max = None;
        let mut participants = FilterSet::default();
        for (place, filter) in listener.filters.iter().enumerate().rev() {
            let slot = slot_of(&listener.filters, self.slots.as_deref_mut(), place);
            if filter.on_response(head, slot) == Part::Done {
                continue;
            }
            participants.insert(place);
            if let BodyNeed::Gather { bytes_max } = filter.bodies().response {
                gather_bytes_max =
                    Some(gather_bytes_max.map_or(bytes_max, |max: usize| max.min(bytes_max)));
            }
        }
        self.observers.response = participants;
        if let Some(pseudonym) = listener.http.via.as_ref().filter(|_| head.rpc_code().is_none()) {
            crate::exchange::forwarded::append_via(head, pseudonym, &mut cx.scratch);
        }
        gather_bytes_max
    }

    /// Gives it what its chain's filters want to have.
    #[inline]
    pub(crate) fn begin_chain(&mut self) {
        let filters = &self.listener().filters;
        let bytes = filters.iter().map(|filter| filter.slot_bytes()).sum::<usize>();
        self.observers = BodyObservers::at_requests(filters);
        if bytes > 0 {
            self.slots = Some(vec![0; bytes].into_boxed_slice());
        }
    }
}

impl Exchanges {
    // Requests.

    pub(crate) fn suspend(
        &mut self,
        key: ExchangeKey,
        step: FilterStep,
        question: Question,
        timeout: Duration,
        head: &RequestHead<'_>,
        now: Time,
        cx: &mut Cx,
    ) {
        let head = cx.park(head);
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.begin_suspension(Suspended { step, question: question.clone(), head });
        self.set_deadline(key, Wait::Filter, now + timeout, cx);
        cx.ops.push_back(Op::Ask { exchange: key, question });
    }

    // Responses.

    /// Parks a response until its body is whole.
    pub(crate) fn hold_response(
        &mut self,
        key: ExchangeKey,
        head: &ResponseHead<'_>,
        bytes_max: usize,
        cx: &mut Cx,
    ) {
        let framing = head.framing();
        let encoded = cx.park_response(head, framing);
        let bytes = match framing {
            Framing::Length(n) => usize::try_from(n).unwrap_or(usize::MAX),
            _ => GATHER_BYTES_FIRST,
        };
        let body = cx.buffers.lease(bytes.min(bytes_max));
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.held = Some(Box::new(Held { head: encoded, body, bytes_max }));
    }

    pub(crate) fn show_response_body(
        &mut self,
        key: ExchangeKey,
        head: &mut ResponseHead<'_>,
        body: &[u8],
    ) {
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

/// The bytes of one filter in an exchange's slots.
pub(crate) fn slot_of<'s>(
    filters: &[Box<dyn Filter>],
    slots: Option<&'s mut [u8]>,
    place: usize,
) -> &'s mut [u8] {
    let Some(slots) = slots else { return &mut [] };
    let start = filters.iter().take(place).map(|filter| filter.slot_bytes()).sum::<usize>();
    let bytes = filters.get(place).map_or(0, |filter| filter.slot_bytes());
    slots.get_mut(start..start + bytes).unwrap_or_default()
}

/// Bytes that [`push_never_indexed`] writes.
fn never_indexed_len<K>(head: &Head<'_, K>) -> usize {
    head.never_indexed().map(|name| name.len() + 1).sum()
}

/// Writes behind a parked head what its encoding cannot say: the names of what must not get into a
/// compression table, each with a line end.
pub(crate) fn push_never_indexed<K>(head: &Head<'_, K>, encoded: &mut Buffer) {
    for name in head.never_indexed() {
        encoded.push(name);
        encoded.push(b"\n");
    }
}
