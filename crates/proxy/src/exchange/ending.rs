//! What an exchange leaves behind: its report, and the places that it gives back.

use std::net::SocketAddr;

use config::snapshot::Endpoint;
use telemetry::cause::Cause;
use telemetry::events::{ExchangeFinished, Fault, LabelId, Stages};
use wire::buffer::Buffer;
use wire::head::Version;

use crate::connection::connections::Connections;
use crate::connection::debug_log::cut;
use crate::connection::transport::Tls;
use crate::cx::Cx;
use crate::exchange::checking::report_check;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::fault::{consequence, is_warned_of};
use crate::exchange::record::Word;
use crate::exchange::{Exchange, ExchangeKind};
use crate::keys::{ExchangeKey, StreamKey, label};
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::text::Text;
use crate::tools::time::Time;
use crate::upstream::Upstreams;

impl Exchange {
    /// Reports that it is over.
    fn report(&self, cause: Option<Cause>, now: Time, connections: &Connections, cx: &mut Cx) {
        if let Some(detached) = &self.detached {
            return match &detached.check {
                Some(run) => report_check(self, run, cause, cx),
                // Its exchange says what it was.
                None if detached.hedge_of.is_some() => {}
                None => self.report_copy(detached, cause, now, connections, cx),
            };
        }
        let record = &self.record;
        let stages = if self.snapshot.access_log.stage_times {
            record.stamps.stages(now)
        } else {
            record.stamps.total_only(now)
        };
        let route = self.route.as_ref();
        let listener = label(self.listener().id.0);
        let cluster = route.and_then(|route| route.cluster).map(|id| label(id.0));
        let failures = match cause.filter(|cause| is_warned_of(*cause)) {
            Some(cause) => {
                let at = cx.wall_clock_zero.saturating_add(now.as_nanos());
                cx.emitter.note_failure(cluster, listener, cause, at)
            }
            None => 0,
        };
        let counts = Counts { listener, cluster, cause, failures, stages };
        if failures > 0 || cx.emitter.is_recorded(stages.total, self.progress.is_tunnel) {
            let counts = counts.event(self, cx.wall_clock_zero);
            self.report_with_words(counts, now, connections, cx);
        } else {
            cx.emitter.exchange_counted(&counts.event(self, cx.wall_clock_zero));
        }
    }

    /// Reports it with its addresses, its words and those of its TLS.
    #[inline(never)]
    fn report_with_words(
        &self,
        counts: ExchangeFinished<'_>,
        now: Time,
        connections: &Connections,
        cx: &mut Cx,
    ) {
        let record = &self.record;
        let connection = connections.get(self.downstream.connection);
        let endpoint = self.endpoint_text(connections);
        let client = match record.client {
            Some(ip) => Text::of_ip(&PeerAddress::from(SocketAddr::new(ip, 0))),
            None => connection.map_or(Text::EMPTY, |connection| Text::of_ip(&connection.peer)),
        };
        let words = &record.words;
        let tls = connection.and_then(|connection| connection.tls.as_deref());
        let tls = tls.map(Tls::words).unwrap_or_default();
        if cx.emitter.is_debug() {
            let cause = counts.cause.map_or("done", Cause::as_str);
            let detail = record.cause_detail.as_ref().map_or(&[][..], Detail::as_bytes);
            let words = format_args!(
                "end: {cause}, status {}, {}us, {} {}",
                counts.status,
                counts.stages.total / 1_000,
                String::from_utf8_lossy(endpoint.as_bytes()),
                cut(detail)
            );
            cx.debug(self.downstream, words, now);
        }
        cx.emitter.exchange_finished(&ExchangeFinished {
            subset: subset_of(self).map_or(&[], str::as_bytes),
            endpoint: endpoint.as_bytes(),
            client: client.as_bytes(),
            method: words.word(Word::Method),
            target: words.word(Word::Target),
            host: words.word(Word::Host),
            request_id: words.word(Word::RequestId),
            user_agent: words.word(Word::UserAgent),
            server_name: tls.server_name.as_bytes(),
            tls_version: tls.version.as_bytes(),
            tls_cipher: tls.cipher.as_bytes(),
            peer_identity: tls.peer_identity.as_bytes(),
            cause_detail: record.cause_detail.as_ref().map_or(&[], Detail::as_bytes),
            failed_attempts: record.failed_attempts.as_deref().unwrap_or_default(),
            captures: record.captures.as_ref().map_or(&[], Buffer::filled),
            ..counts
        });
    }
}

/// What has been found out of an exchange that is over.
struct Counts {
    listener: LabelId,
    cluster: Option<LabelId>,
    cause: Option<Cause>,
    failures: u32,
    stages: Stages,
}

impl Counts {
    /// The event without its words.
    #[expect(
        clippy::inline_always,
        reason = "counting alone needs few of the fields: those that are not read are never written"
    )]
    #[inline(always)]
    fn event<'e>(&self, exchange: &'e Exchange, wall_clock_zero: u64) -> ExchangeFinished<'e> {
        let Self { listener, cluster, cause, failures, stages } = *self;
        let (record, progress) = (&exchange.record, &exchange.progress);
        let route = exchange.route.as_ref();
        let rule = exchange.rule();
        let table = route.and_then(|route| route.rule).map(|(table, _)| label(table.0));
        let share = route.and_then(|route| route.share);
        ExchangeFinished {
            listener,
            rule: table.zip(rule.map(|rule| rule.slot.number())),
            weighted: share.and_then(|share| {
                let shares = rule?.shares()?.clusters();
                Some(shares.get(usize::try_from(share).ok()?)?.slot.number())
            }),
            cluster,
            endpoint_id: endpoint_of(exchange).map(|endpoint| label(endpoint.id.0)),
            version: version_of(exchange),
            status: record.status,
            cause,
            fault: cause.map_or(Fault::None, |cause| fault_of(exchange, cause)),
            failures,
            is_reply: record.is_reply,
            request_bytes: progress.request_bytes,
            response_bytes: record.response_bytes,
            grpc: exchange.call.as_ref().map(|call| call.outcome()),
            attempts: progress.attempts,
            is_tunnel: progress.is_tunnel,
            started_at: wall_clock_zero.saturating_add(record.stamps.began.as_nanos()),
            stages,
            ..ExchangeFinished::EMPTY
        }
    }
}

impl Exchange {
    /// The address of the endpoint that was chosen last; empty if none was.
    pub(crate) fn endpoint_text(&self, connections: &Connections) -> Text {
        let onward = self.connect_target(connections);
        let endpoint = endpoint_of(self).map(|endpoint| &endpoint.address);
        Text::of_address(endpoint.or(onward.as_ref()))
    }
}

/// Whose fault it is that an exchange ended for this cause.
fn fault_of(exchange: &Exchange, cause: Cause) -> Fault {
    match cause {
        // A call whose service has not answered at all.
        Cause::TunnelIdleTimeout if !exchange.progress.has_response => Fault::Upstream,
        _ => consequence(cause).side.into(),
    }
}

/// The subset that it asked for, if there is such a one.
fn subset_of(exchange: &Exchange) -> Option<&str> {
    let subset = exchange.route.as_ref()?.subset?;
    exchange.cluster()?.view.subset_name(subset)
}

/// The endpoint that was chosen last, if one was.
fn endpoint_of(exchange: &Exchange) -> Option<&Endpoint> {
    let place = exchange.route.as_ref()?.endpoint?;
    exchange.cluster()?.endpoints.get(place)
}

/// As [`ExchangeFinished::version`] has it.
const fn version_of(exchange: &Exchange) -> u8 {
    match (exchange.kind, exchange.request.version) {
        (ExchangeKind::Tcp, _) => 1,
        (ExchangeKind::Tls, _) => 2,
        (ExchangeKind::Rpc, _) => 3,
        (ExchangeKind::Http | ExchangeKind::Connect, Version::Http10) => 10,
        (ExchangeKind::Http | ExchangeKind::Connect, Version::Http11) => 11,
        (ExchangeKind::Http | ExchangeKind::Connect, Version::Http2) => 20,
    }
}

impl Exchanges {
    /// Takes an exchange out and tells what it was; returns its downstream connection.
    pub(crate) fn remove_exchange(
        &mut self,
        key: ExchangeKey,
        cause: Option<Cause>,
        now: Time,
        upstream: &mut Upstreams,
        connections: &Connections,
        listen: &mut Listen,
        cx: &mut Cx,
    ) -> Option<StreamKey> {
        let exchange = self.table.get_mut(key)?;
        self.hedges -= usize::from(exchange.hedge_of().is_some());
        exchange.let_go(&mut listen.clients, &mut self.stalls, &mut upstream.pools);
        exchange.end_retries(&mut upstream.pools);
        listen.clients.remove(exchange.client, Part::Exchange);
        exchange.give_listener_request(cx.share.member());
        cx.timers.remove(exchange.timer);
        // What happened first is why; the rest follows from it.
        let cause = exchange.record.cause.or(cause);
        exchange.report(cause, now, connections, cx);
        let downstream = exchange.downstream;
        exchange.end_copies(cx);
        let record = &mut exchange.record;
        for text in [&mut record.words.text, &mut record.captures] {
            if let Some(text) = text.take() {
                cx.buffers.give_back(text);
            }
        }
        cx.drop_bodies(exchange);
        self.table.discard(key);
        if cx.has_former_snapshots() {
            cx.retire_former();
        }
        Some(downstream)
    }
}
