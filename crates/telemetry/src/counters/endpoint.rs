//! Counted from the exchanges of one endpoint and the connections to it, for the admin's own pages.

use std::sync::OnceLock;

use crate::cause::Cause;
use crate::cell::Counter;
use crate::events::{ExchangeFinished, UpstreamConnectFailed, UpstreamPaused};

/// Why a connection to an endpoint cannot be established, or a client's handshake fails: errors of the kernel by
/// name, times that were over, and what a handshake of TLS can fail for. Anything else is `other`.
pub(crate) const REASONS: [&str; 63] = [
    "other",
    // Of the kernel.
    "EACCES",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "EAFNOSUPPORT",
    "EAGAIN",
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "EINVAL",
    "ENETDOWN",
    "ENETUNREACH",
    "ENOBUFS",
    "ENOENT",
    "ENOMEM",
    "EPERM",
    "EPIPE",
    "EPROTOTYPE",
    "ETIMEDOUT",
    "out_of_descriptors",
    // Of time.
    "timeout",
    "tls_timeout",
    // Of TLS.
    "alert_received",
    "alpn_mismatch",
    "bad_record",
    "certificate_bad_encoding",
    "certificate_bad_signature",
    "certificate_expired",
    "certificate_not_accepted",
    "certificate_not_valid_yet",
    "certificate_of_authority",
    "certificate_purpose_invalid",
    "certificate_refused",
    "certificate_required",
    "certificate_revocation_unknown",
    "certificate_revoked",
    "certificate_signature_unsupported",
    "certificate_unhandled_extension",
    "certificate_unknown_issuer",
    "incompatible",
    "internal",
    "message_invalid",
    "message_unexpected",
    "misbehaved",
    "name_mismatch",
    "no_application_protocol",
    "no_cipher_suite",
    "no_group",
    "no_signature_scheme",
    "no_version",
    "not_tls",
    "overflow",
    "peer_gone",
    "record_too_long",
    "server_name_invalid",
    "signature_failed",
    "signature_refused",
    "signature_timed_out",
    "signature_wrong",
    "too_many_bytes",
    "unfinished",
];

/// The place of a reason among [`REASONS`].
fn place(reason: &str) -> usize {
    REASONS.iter().position(|known| *known == reason).unwrap_or(0)
}

/// Whether an exchange fails with this cause because a connection could not be established, which is an
/// event of its own.
const fn is_of_connect(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ConnectFailed
            | Cause::ConnectTimeout
            | Cause::OutOfDescriptors
            | Cause::UpstreamTlsFailed
    )
}

/// Reasons that are reported before they occur.
pub(crate) const FROM_THE_START: [&str; 2] = ["ECONNREFUSED", "timeout"];

/// A counter for each of [`REASONS`], which take memory from the first failure on.
#[derive(Debug, Default)]
pub(crate) struct ReasonCounters(OnceLock<Box<[Counter; REASONS.len()]>>);

impl ReasonCounters {
    pub(crate) fn increment(&self, reason: &str) {
        let counters = self.0.get_or_init(|| Box::new(std::array::from_fn(|_| Counter::default())));
        if let Some(counter) = counters.get(place(reason)) {
            counter.increment();
        }
    }

    /// The number of those with the reason at this place.
    pub(crate) fn value(&self, place: usize) -> u64 {
        self.0.get().and_then(|counters| counters.get(place)).map_or(0, Counter::value)
    }
}

/// Reasons of an endpoint that are counted without a counter for each of [`REASONS`].
const FEW_MAX: usize = 3;

/// Bits of a number that count; those above are the place of a reason and one.
const COUNT_BITS: u32 = 48;

/// The same for one of tens of thousands of endpoints, each of which fails for a few reasons: these are numbers that say which
/// reason they count. Written by one thread.
#[derive(Debug, Default)]
pub(crate) struct FewReasons {
    few: [Counter; FEW_MAX],
    others: ReasonCounters,
}

impl FewReasons {
    fn increment(&self, reason: &str) {
        let of_reason = place(reason) as u64 + 1;
        let is_it = |counter: &&Counter| [0, of_reason].contains(&(counter.value() >> COUNT_BITS));
        match self.few.iter().find(is_it) {
            Some(counter) if counter.value() == 0 => counter.set((of_reason << COUNT_BITS) | 1),
            Some(counter) => counter.increment(),
            None => self.others.increment(reason),
        }
    }

    /// The number of those with the reason at this place.
    fn value(&self, place: usize) -> u64 {
        let of_reason = place as u64 + 1;
        let mut few = self.few.iter().map(Counter::value);
        let found = few.find(|value| value >> COUNT_BITS == of_reason);
        found.map_or_else(|| self.others.value(place), |value| value & ((1 << COUNT_BITS) - 1))
    }
}

/// One endpoint on one worker. Exists once the worker had an event of that endpoint. Not on cache lines of its own, as other
/// blocks are: a worker has its memory from a part of the heap that others hardly use, and there may be tens of thousands of them.
#[derive(Debug, Default)]
pub(crate) struct EndpointBlock {
    pub(crate) exchanges: Counter,
    pub(crate) failed: Counter,
    connect_failures: FewReasons,
    /// The cause of the last error, as its place in [`Cause::ALL`] and one.
    pub(crate) last_cause: Counter,
    /// The reason, as its place in [`REASONS`] and one; 0 for none.
    pub(crate) last_reason: Counter,
    /// Wall-clock time, ns.
    pub(crate) last_at: Counter,
    /// Until when it is not connected to; wall-clock time, ns, 0 for never.
    pub(crate) paused_until: Counter,
}

/// What an endpoint has counted, for the admin's own pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Exchanges that ended with this endpoint as their last.
    pub exchanges_total: u64,
    /// Of these, such as failed because of it.
    pub exchanges_failed_total: u64,
    /// Connections that could not be established, by reason: those that occurred.
    pub connect_failures: Vec<(&'static str, u64)>,
    /// What failed last.
    pub last_error: Option<EndpointError>,
    /// Until when some worker does not connect to it, since it refused; wall-clock time, ns since the Unix epoch, 0 for
    /// never. It may be over.
    pub paused_until: u64,
}

/// What failed last at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointError {
    /// Why: a word of the causes.
    pub cause: &'static str,
    /// Why a connection could not be established, if that was it.
    pub reason: Option<&'static str>,
    /// Wall-clock time, ns since the Unix epoch.
    pub at: u64,
}

impl EndpointBlock {
    pub(crate) fn exchange_finished(&self, event: &ExchangeFinished<'_>) {
        self.exchanges.increment();
        if let Some(cause) = event.cause.filter(|_| event.is_upstreams_fault) {
            self.failed.increment();
            // What the failed connect left says more.
            if !is_of_connect(cause) {
                self.note(cause, 0, event.started_at.saturating_add(event.stages.total));
            }
        }
    }

    pub(crate) fn connect_failed(&self, event: &UpstreamConnectFailed) {
        self.connect_failures.increment(event.reason);
        self.note(event.cause, place(event.reason) as u64 + 1, event.at);
    }

    pub(crate) fn paused(&self, event: &UpstreamPaused) {
        self.paused_until.set(event.until);
    }

    fn note(&self, cause: Cause, reason: u64, at: u64) {
        self.last_cause.set(cause as u64 + 1);
        self.last_reason.set(reason);
        self.last_at.set(at);
    }

    /// Adds what this worker knows.
    pub(crate) fn add_to(&self, totals: &mut EndpointTotals) {
        totals.exchanges_total += self.exchanges.value();
        totals.exchanges_failed_total += self.failed.value();
        for (place, reason) in REASONS.into_iter().enumerate() {
            let count = self.connect_failures.value(place);
            match totals.connect_failures.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, total)) => *total += count,
                None if count > 0 => totals.connect_failures.push((reason, count)),
                None => {}
            }
        }
        totals.paused_until = totals.paused_until.max(self.paused_until.value());
        let last = self.last_error();
        if last.map(|error| error.at) > totals.last_error.map(|error| error.at) {
            totals.last_error = last;
        }
    }

    fn last_error(&self) -> Option<EndpointError> {
        let known = |counter: &Counter| usize::try_from(counter.value().checked_sub(1)?).ok();
        let cause = Cause::ALL.get(known(&self.last_cause)?)?.as_str();
        let reason = known(&self.last_reason).and_then(|place| REASONS.get(place).copied());
        Some(EndpointError { cause, reason, at: self.last_at.value() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::LabelId;
    use crate::sample::exchange;

    fn connect_failed(cause: Cause, reason: &'static str, at: u64) -> UpstreamConnectFailed {
        let label = LabelId::default();
        UpstreamConnectFailed { cluster: label, endpoint: label, cause, reason, at }
    }

    #[test]
    fn reasons_are_counted_and_the_last_error_of_all_workers_is_shown() {
        let (one, two) = (EndpointBlock::default(), EndpointBlock::default());
        one.exchange_finished(&exchange());
        one.connect_failed(&connect_failed(Cause::ConnectFailed, "ECONNREFUSED", 5));
        one.connect_failed(&connect_failed(Cause::ConnectFailed, "a new errno", 6));
        two.connect_failed(&connect_failed(Cause::ConnectFailed, "ECONNREFUSED", 7));
        two.connect_failed(&connect_failed(Cause::UpstreamTlsFailed, "certificate_expired", 8));
        let label = LabelId::default();
        for until in [30, 20] {
            one.paused(&UpstreamPaused { cluster: label, endpoint: label, until });
        }
        let mut totals = EndpointTotals::default();
        two.add_to(&mut totals);
        one.add_to(&mut totals);
        assert_eq!((totals.exchanges_total, totals.paused_until), (1, 20));
        assert_eq!(
            totals.connect_failures,
            [("ECONNREFUSED", 2), ("certificate_expired", 1), ("other", 1)]
        );
        let reason = Some("certificate_expired");
        let expected = EndpointError { cause: "upstream_tls_failed", reason, at: 8 };
        assert_eq!(totals.last_error, Some(expected));
    }

    #[test]
    fn each_reason_is_counted_however_many_there_are() {
        let reasons = FewReasons::default();
        for round in 1..=3 {
            for (place, reason) in REASONS.iter().enumerate().rev() {
                (0..=place).for_each(|_| reasons.increment(reason));
                assert_eq!(reasons.value(place), round * (place as u64 + 1), "{reason}");
            }
        }
        let few = FewReasons::default();
        few.increment("ECONNREFUSED");
        few.increment("timeout");
        few.increment("ECONNREFUSED");
        assert!(few.others.0.get().is_none(), "it takes no more memory");
        assert_eq!((few.value(place("ECONNREFUSED")), few.value(place("timeout"))), (2, 1));
    }

    #[test]
    fn an_exchange_fails_because_of_its_endpoint_or_for_something_else() {
        let block = EndpointBlock::default();
        let failed = |is_upstreams_fault| ExchangeFinished {
            cause: Some(Cause::UpstreamClosed),
            is_upstreams_fault,
            ..exchange()
        };
        block.exchange_finished(&failed(false));
        block.exchange_finished(&failed(true));
        let mut totals = EndpointTotals::default();
        block.add_to(&mut totals);
        assert_eq!((totals.exchanges_total, totals.exchanges_failed_total), (2, 1));
        let error = totals.last_error.unwrap();
        assert_eq!((error.cause, error.reason), ("upstream_closed", None));
        assert_eq!(error.at, exchange().started_at + exchange().stages.total);

        let at = error.at + 1;
        block.connect_failed(&connect_failed(Cause::ConnectFailed, "ECONNREFUSED", at));
        let cause = Some(Cause::ConnectFailed);
        block.exchange_finished(&ExchangeFinished { cause, ..failed(true) });
        let mut totals = EndpointTotals::default();
        block.add_to(&mut totals);
        let error = totals.last_error.unwrap();
        assert_eq!((error.reason, error.at), (Some("ECONNREFUSED"), at));
        assert_eq!(totals.exchanges_failed_total, 2);
    }
}
