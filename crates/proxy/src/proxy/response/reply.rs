//! Responses that the proxy makes itself: direct responses, redirects, filters' replies, faults.
//!
//! All carry `server: strait`, unless a rule or a filter takes it away: edits of rules apply to them, and filters see their
//! heads, but not their bodies.
//! A reply to a fault is an error page of the configuration, or plain text: the status in words, and the cause
//! in the vocabulary of the access log.

use std::sync::Arc;

use config::snapshot::{Redirect, RedirectPath, Respond};
use telemetry::cause::Cause;
use wire::h1::reason_phrase;
use wire::head::{Framing, Method, RequestHead, ResponseHead};

use crate::connection::codec::elements::WholeReply;
use crate::exchange::fault::{Side, consequence};
use crate::exchange::pages::FilledPage;
use crate::exchange::{Deadlines, calls};
use crate::filter;
use crate::keys::ExchangeKey;
use crate::proxy::Proxy;
use crate::tools::sent::Sent;
use crate::tools::time::Time;

/// What a reply consists of.
#[derive(Clone, Copy)]
struct Content<'a> {
    status: u16,
    fields: &'a [(&'a [u8], &'a [u8])],
    body: &'a [u8],
    cause: Option<Cause>,
    /// Whether an error page may stand for the body.
    takes_page: bool,
}

impl Content<'_> {
    /// Nothing but a status.
    const fn of(status: u16) -> Self {
        Self { status, fields: &[], body: b"", cause: None, takes_page: false }
    }
}

/// What says that a reply is the proxy's own.
const SERVER: (&[u8], &[u8]) = (b"server", b"strait");

const TEXT_PLAIN: (&[u8], &[u8]) = (b"content-type", b"text/plain; charset=utf-8");

/// Tells a client that a bound of the cluster or the process is reached, so that it does not try again at once.
const OVERLOADED: (&[u8], &[u8]) = (b"x-envoy-overloaded", b"true");

/// Whether a request is refused since its cluster has too many, or the process too little memory.
const fn is_overflow(cause: Option<Cause>) -> bool {
    matches!(
        cause,
        Some(
            Cause::Overloaded
                | Cause::PendingOverflow
                | Cause::ConcurrencyLimited
                | Cause::RequestsOverflow
        )
    )
}

impl Proxy {
    /// A route's direct response.
    pub(in crate::proxy) fn respond(&mut self, key: ExchangeKey, respond: &Respond, now: Time) {
        let own = respond.fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let has_type =
            respond.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let plain = (!has_type && !respond.body.is_empty()).then_some(TEXT_PLAIN);
        let fields: Vec<_> = [SERVER].into_iter().chain(plain).chain(own).collect();
        let (status, body) = (respond.status, &respond.body[..]);
        let takes_page = body.is_empty() && !has_type;
        let content = Content { status, fields: &fields, body, cause: None, takes_page };
        self.reply(key, &content, now);
    }

    /// A route's redirect.
    pub(in crate::proxy) fn redirect(
        &mut self,
        key: ExchangeKey,
        redirect: &Redirect,
        head: &RequestHead<'_>,
        now: Time,
    ) {
        let needs_host = redirect.scheme.is_some() || redirect.port.is_some();
        if needs_host && redirect.host.is_none() && head.host().is_empty() {
            // A URL without a host is none (RFC 9110, section 4.2.1), and clients take the path's beginning for one.
            let words =
                "a redirect to another scheme or port needs a host, and the request has none";
            return self.fail_with(key, Cause::RequestHostInvalid, &words, now);
        }
        let location = location(redirect, head);
        let fields = [SERVER, (&b"location"[..], &location[..])];
        let status = redirect.status;
        self.reply(key, &Content { fields: &fields, ..Content::of(status) }, now);
    }

    /// To a request that was to go no further than this proxy.
    pub(in crate::proxy) fn reply_as_last(&mut self, key: ExchangeKey, method: Method, now: Time) {
        if method == Method::Trace {
            // A request with credentials in it is not shown to a script that can send one.
            let words = "TRACE is not answered: it would show credentials to scripts";
            return self.fail_with(key, Cause::RequestNotImplemented, &words, now);
        }
        self.reply(key, &Content { fields: &[SERVER], ..Content::of(200) }, now);
    }

    /// A filter's reply.
    pub(in crate::proxy) fn reply_from_filter(
        &mut self,
        key: ExchangeKey,
        reply: &filter::Reply,
        now: Time,
    ) {
        let body = plain_reason(reply.status, reply.reason);
        let (status, body, cause) = (reply.status, &body[..], Some(Cause::FilterReply));
        let fields = &[SERVER, TEXT_PLAIN];
        self.reply(key, &Content { status, fields, body, cause, takes_page: true }, now);
    }

    /// The reply that a fault becomes.
    pub(in crate::proxy) fn reply_to_fault(
        &mut self,
        key: ExchangeKey,
        status: u16,
        cause: Cause,
        now: Time,
    ) {
        if consequence(cause).side == Side::Downstream {
            self.exchanges.stop_reading(key, &mut self.connections, &self.cx);
        }
        let body = plain_reason(status, cause.as_str());
        let (body, cause) = (&body[..], Some(cause));
        let all = [SERVER, TEXT_PLAIN, OVERLOADED];
        let fields = if is_overflow(cause) { &all[..] } else { &all[..2] };
        self.reply(key, &Content { status, fields, body, cause, takes_page: true }, now);
    }

    fn reply(&mut self, key: ExchangeKey, content: &Content<'_>, now: Time) {
        let exchange = self.exchanges.get_mut(key);
        let call = exchange.and_then(|exchange| exchange.call.as_deref_mut());
        if let Some(call) = call.filter(|_| content.status >= 400) {
            // A client of gRPC reads its own fields, and no other status (its PROTOCOL-HTTP2).
            let status = calls::status_of(content.cause, content.status);
            let own = call.reply(status, content.body.trim_ascii_end());
            let own = own.iter().map(|(name, value)| (*name, &value[..]));
            let cause = content.cause;
            let overloaded = is_overflow(cause).then_some(OVERLOADED);
            let fields: Vec<_> = [SERVER].into_iter().chain(overloaded).chain(own).collect();
            return self.reply_plain(
                key,
                &Content { fields: &fields, cause, ..Content::of(200) },
                now,
            );
        }
        let page = self.exchanges.get(key).filter(|_| content.takes_page).and_then(|exchange| {
            exchange.error_page(content.status, content.cause, self.cx.date(now).as_bytes())
        });
        let Some(FilledPage { content_type, body }) = &page else {
            return self.reply_plain(key, content, now);
        };
        let others = content.fields.iter().copied().filter(|(name, _)| *name != TEXT_PLAIN.0);
        let fields: Vec<_> = others.chain([(TEXT_PLAIN.0, &content_type[..])]).collect();
        self.reply_plain(key, &Content { fields: &fields, body, ..*content }, now);
    }

    fn reply_plain(&mut self, key: ExchangeKey, content: &Content<'_>, now: Time) {
        let date = self.cx.date(now);
        let fields = [(&b"date"[..], date.as_bytes())];
        let fields: Vec<_> = fields.into_iter().chain(content.fields.iter().copied()).collect();
        let Some(exchange) = self.exchanges.get(key) else { return };
        let filters = Arc::clone(&exchange.listener().filters);
        if filters.is_empty() && !exchange.has_edits() {
            return self.send_own(key, content, &fields, now);
        }
        let mut index = self.cx.response_index.take().unwrap_or_default();
        let mut head = ResponseHead::of_parts(content.status, &fields, &mut index);
        if exchange.has_edits() {
            let cause = content.cause;
            exchange.edit_response(&mut head, cause, &self.connections, &mut self.cx, now);
        }
        for filter in filters.iter().rev() {
            filter.on_reply(&mut head);
        }
        let fields: Vec<_> = head.iter().collect();
        self.send_own(key, content, &fields, now);
        self.cx.response_index = Some(index);
    }

    /// Sends a reply with these fields, whatever `content` has for them.
    fn send_own(
        &mut self,
        key: ExchangeKey,
        content: &Content<'_>,
        fields: &[(&[u8], &[u8])],
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.begin_finishing();
        exchange.deadlines = Deadlines::default();
        exchange.record.status = content.status;
        exchange.progress.has_response = true;
        exchange.record.is_reply = true;
        exchange.record.cause = content.cause;
        let request = &exchange.request;
        let downstream = exchange.downstream;
        let is_call = exchange.call.is_some();
        let has_body = request.method != Method::Head && !matches!(content.status, 204 | 304);
        if has_body {
            exchange.record.response_bytes = content.body.len() as u64;
        }
        self.connections.discard_request(downstream, &self.cx);
        let framing = Framing::Length(content.body.len() as u64);
        let field = self.settle_life(key, framing);
        // Frames say where a reply without a body ends.
        let is_told = !(is_call && content.body.is_empty() && !downstream.is_alone());
        let length =
            (is_told && !matches!(content.status, 204 | 304)).then_some(content.body.len() as u64);
        let body = if has_body { content.body } else { &[] };
        let is_sent = self.connections.send_reply(
            downstream,
            &WholeReply { status: content.status, fields, length, body, field },
            &mut self.cx,
        );
        if is_sent {
            self.on_response_sent(key, Sent::nothing(now), true, now);
        }
    }
}

/// `Not Found: no_route`, and a line end.
fn plain_reason(status: u16, reason: &str) -> Vec<u8> {
    [reason_phrase(status), b": ", reason.as_bytes(), b"\n"].concat()
}

/// The `location` of a redirect.
fn location(redirect: &Redirect, head: &RequestHead<'_>) -> Vec<u8> {
    let mut location = Vec::new();
    // A reference relative to the request's own URL needs neither scheme nor host (RFC 9110,
    // section 10.2.2); a client knows its own scheme better than a proxy behind another one does.
    let has_authority =
        redirect.scheme.is_some() || redirect.host.is_some() || redirect.port.is_some();
    if has_authority {
        if let Some(scheme) = &redirect.scheme {
            location.extend_from_slice(scheme.as_bytes());
            location.push(b':');
        }
        location.extend_from_slice(b"//");
        match &redirect.host {
            Some(host) => location.extend_from_slice(host.as_bytes()),
            None => location.extend_from_slice(head.host()),
        }
        if let Some(port) = redirect.port {
            location.push(b':');
            location.extend_from_slice(port.to_string().as_bytes());
        }
    }
    let (mut has_query, mut fragment) = (false, "");
    match &redirect.path {
        Some(RedirectPath::Whole(whole)) => {
            let path = whole.split('#').next().unwrap_or_default();
            fragment = whole.get(path.len()..).unwrap_or_default();
            has_query = path.contains('?');
            location.extend_from_slice(path.as_bytes());
        }
        // The head has the new one. `//host` at its beginning would be taken for another host, and a rewritten path
        // begins with one slash; one that stays stands behind an authority.
        Some(RedirectPath::Rewritten(_)) | None => location.extend_from_slice(head.path()),
    }
    let has_own = matches!(redirect.path, Some(RedirectPath::Rewritten(_)));
    if (!redirect.strip_query || has_own)
        && !has_query
        && let Some(query) = head.query()
    {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location.extend_from_slice(fragment.as_bytes());
    location
}
