//! Counted from the exchanges of one endpoint and the connections to it, for the admin's own pages.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cause::Cause;
use crate::cell::Counter;
use crate::events::{ExchangeFinished, Fault, LabelId, UpstreamConnectFailed, UpstreamPaused};

/// Endpoints whose slots follow each other, and whose counters stand together in memory: of tens of thousands, each counter, and
/// each pointer to one, counts.
pub const ENDPOINTS_PER_BLOCK: u32 = 16;

/// Why a connection to an endpoint cannot be established, or a client's handshake fails: errors of the kernel by
/// name, times that were over, and what a handshake of TLS can fail for. Anything else is `other`.
pub(crate) const REASONS: [&str; 63] = words();

/// The same with what they mean, for the documentation.
pub(crate) const REASONS_EXPLAINED: [(&str, &str); 63] = [
    ("other", "anything else"),
    // Of the kernel.
    ("EACCES", "the socket file of the endpoint denies access"),
    ("EADDRINUSE", "the local address or port is in use"),
    ("EADDRNOTAVAIL", "no local port is free, or the address is none of this machine's"),
    ("EAFNOSUPPORT", "the machine has no addresses of this kind, such as IPv6"),
    ("EAGAIN", "the accept queue of the endpoint's unix socket is full"),
    ("ECONNABORTED", "the connection was aborted"),
    ("ECONNREFUSED", "nothing listens on the port"),
    ("ECONNRESET", "the peer reset the connection"),
    ("EHOSTDOWN", "the machine does not answer in its network"),
    ("EHOSTUNREACH", "no route leads to the machine, or a firewall rejects the connection"),
    ("EINVAL", "the kernel does not accept the address"),
    ("ENETDOWN", "the network interface is down"),
    ("ENETUNREACH", "no route leads to the network"),
    ("ENOBUFS", "the kernel has no memory for the connection"),
    ("ENOENT", "the socket file of the endpoint does not exist"),
    ("ENOMEM", "the kernel has no memory for the connection"),
    ("EPERM", "a local firewall rule denies the connection"),
    ("EPIPE", "the peer closed the connection"),
    ("EPROTOTYPE", "the endpoint's unix socket is not a stream socket"),
    ("ETIMEDOUT", "the kernel gave up connecting"),
    ("out_of_descriptors", "the process has no file descriptor left"),
    // Of time.
    ("timeout", "`connect_timeout` of the cluster expired before TCP was connected"),
    (
        "tls_timeout",
        "the handshake was not complete at the end of `connect_timeout` of the cluster, or of `timeouts.tls_handshake` of the listener",
    ),
    // Of TLS.
    (
        "alert_received",
        "the peer refused the handshake with an alert, which the detail in the log names",
    ),
    (
        "alpn_mismatch",
        "the upstream selected another application protocol than the `protocol` of its cluster",
    ),
    ("bad_record", "a record is not authentic"),
    ("certificate_bad_encoding", "the peer's certificate cannot be parsed"),
    ("certificate_bad_signature", "its issuer did not sign the peer's certificate"),
    ("certificate_expired", "the peer's certificate has expired"),
    (
        "certificate_not_accepted",
        "the peer's certificate contains none of the names that the configuration accepts",
    ),
    ("certificate_not_valid_yet", "the peer's certificate is not valid yet"),
    ("certificate_of_authority", "the peer presents a CA certificate (CA:TRUE)"),
    (
        "certificate_purpose_invalid",
        "the peer's certificate is not for servers, or not for clients",
    ),
    ("certificate_refused", "the peer's certificate violates another rule"),
    ("certificate_required", "the client presented no certificate, and the listener requires one"),
    (
        "certificate_revocation_unknown",
        "no current CRL tells whether the peer's certificate is revoked",
    ),
    ("certificate_revoked", "the peer's certificate is revoked"),
    (
        "certificate_signature_unsupported",
        "the peer's certificate is signed with an unsupported algorithm",
    ),
    ("certificate_unhandled_extension", "the peer's certificate has an unknown critical extension"),
    ("certificate_unknown_issuer", "no trusted CA has signed the peer's certificate"),
    ("incompatible", "the peer does not support something else that is required"),
    ("internal", "something failed in Strait, which the detail in the log names"),
    ("message_invalid", "a handshake message cannot be decoded"),
    ("message_unexpected", "a handshake message came when another was due"),
    ("misbehaved", "the peer violated a rule of TLS"),
    ("name_mismatch", "the upstream's certificate is for other names"),
    ("no_application_protocol", "no application protocol (ALPN) in common"),
    ("no_cipher_suite", "no cipher suite in common"),
    ("no_group", "no group for the key exchange in common"),
    ("no_signature_scheme", "no signature algorithm in common"),
    ("no_version", "no version of TLS in common"),
    ("not_tls", "the peer does not use TLS"),
    (
        "overflow",
        "`limits.handshakes_max` was reached, and this handshake had made no progress for the longest time",
    ),
    ("peer_gone", "the peer closed the connection during the handshake"),
    ("record_too_long", "a record is longer than TLS allows"),
    ("server_name_invalid", "the name for the endpoint is neither a host name nor an IP address"),
    ("signature_failed", "the private key, or what has it, made no signature"),
    ("signature_refused", "what has the private key refused to sign"),
    ("signature_timed_out", "what has the private key did not sign in time"),
    ("signature_wrong", "the signature does not match the certificate"),
    ("too_many_bytes", "the handshake is longer than any handshake needs to be"),
    ("unfinished", "the handshake was not complete when it ended"),
];

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time only")]
const fn words() -> [&'static str; REASONS_EXPLAINED.len()] {
    let mut words = [""; REASONS_EXPLAINED.len()];
    let mut place = 0;
    while place < words.len() {
        words[place] = REASONS_EXPLAINED[place].0;
        place += 1;
    }
    words
}

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
        self.add(place(reason), 1);
    }

    fn add(&self, place: usize, count: u64) {
        let counters = self.0.get_or_init(|| Box::new(std::array::from_fn(|_| Counter::default())));
        if let Some(counter) = counters.get(place) {
            counter.add(count);
        }
    }

    fn reset(&self) {
        self.0.get().into_iter().flat_map(|counters| counters.iter()).for_each(|it| it.set(0));
    }

    /// The number of those with the reason at this place.
    pub(crate) fn value(&self, place: usize) -> u64 {
        self.0.get().and_then(|counters| counters.get(place)).map_or(0, Counter::value)
    }
}

/// Reasons of an endpoint that are counted without a counter for each of [`REASONS`].
const FEW_MAX: usize = 3;

const NANOS_IN_MS: u64 = 1_000_000;

const _: () =
    assert!(Cause::ALL.len() < 255 && REASONS.len() < 64, "each has to fit into its bits");

/// Bits of a number that count; the 6 above are the place of a reason and one.
const COUNT_BITS: u32 = 26;

const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

/// The same for one of tens of thousands of endpoints, each of which fails for a few reasons: these are numbers that say which
/// reason they count. Written by one thread.
#[derive(Debug, Default)]
struct FewReasons {
    few: [AtomicU32; FEW_MAX],
    /// Other reasons, and what the numbers have no room for.
    others: ReasonCounters,
}

impl FewReasons {
    fn increment(&self, reason: &str) {
        let place = place(reason);
        for number in &self.few {
            let value = number.load(Ordering::Relaxed);
            if value != 0 && reason_of(value) != Some(place) {
                continue;
            }
            let mut count = value & COUNT_MAX;
            if count == COUNT_MAX {
                self.others.add(place, count.into());
                count = 0;
            }
            // A place fits into its bits.
            let reason = u32::try_from(place + 1).unwrap_or(1) << COUNT_BITS;
            number.store(reason | (count + 1), Ordering::Relaxed);
            return;
        }
        self.others.add(place, 1);
    }

    /// The number of those with the reason at this place.
    fn value(&self, place: usize) -> u64 {
        let mut few = self.few.iter().map(|number| number.load(Ordering::Relaxed));
        let found = few.find(|value| reason_of(*value) == Some(place));
        found.map_or(0, |value| u64::from(value & COUNT_MAX)) + self.others.value(place)
    }

    fn reset(&self) {
        self.few.iter().for_each(|number| number.store(0, Ordering::Relaxed));
        self.others.reset();
    }
}

/// The place of the reason that a number counts, if it counts one.
fn reason_of(value: u32) -> Option<usize> {
    usize::try_from(value >> COUNT_BITS).ok()?.checked_sub(1)
}

/// Endpoints whose slots follow each other, on one worker. Exists once the worker had an event of one of them.
#[derive(Debug, Default)]
pub(crate) struct EndpointsBlock([EndpointBlock; ENDPOINTS_PER_BLOCK as usize]);

impl EndpointsBlock {
    /// The one with this label, which begins anew if it has got the slot of another. None if another has got its slot. Only the
    /// one writer may call this.
    pub(crate) fn count(&self, id: LabelId) -> Option<&EndpointBlock> {
        let block = self.at(id)?;
        let generation = block.generation.load(Ordering::Relaxed);
        if generation < id.generation {
            block.begin(id.generation);
        }
        (generation <= id.generation).then_some(block)
    }

    /// The one with this label, if no other has or had its slot.
    pub(crate) fn read(&self, id: LabelId) -> Option<&EndpointBlock> {
        let is_it = |it: &&EndpointBlock| it.generation.load(Ordering::Acquire) == id.generation;
        self.at(id).filter(is_it)
    }

    fn at(&self, id: LabelId) -> Option<&EndpointBlock> {
        self.0.get(usize::try_from(id.slot % ENDPOINTS_PER_BLOCK).ok()?)
    }
}

/// One endpoint on one worker. Not on cache lines of its own, as other blocks are: a worker has its memory from a part of the heap
/// that others hardly use, and there may be tens of thousands of them.
#[derive(Debug, Default)]
pub(crate) struct EndpointBlock {
    pub(crate) exchanges: Counter,
    pub(crate) failed: Counter,
    connect_failures: FewReasons,
    /// Which of the endpoints that had its slot it is.
    generation: AtomicU32,
    /// The last error in one number, see [`EndpointBlock::note`]; 0 for none.
    last_error: Counter,
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
    /// Wall-clock time, ns since the Unix epoch, in whole ms.
    pub at: u64,
}

impl EndpointBlock {
    /// Another endpoint has got the slot. Who reads meanwhile sees the former one without some of its counts, which is gone.
    fn begin(&self, generation: u32) {
        let counters = [&self.exchanges, &self.failed, &self.last_error, &self.paused_until];
        counters.into_iter().for_each(|counter| counter.set(0));
        self.connect_failures.reset();
        self.generation.store(generation, Ordering::Release);
    }

    pub(crate) fn exchange_finished(&self, event: &ExchangeFinished<'_>) {
        self.exchanges.increment();
        if let Some(cause) = event.cause.filter(|_| event.fault == Fault::Upstream) {
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

    /// Notes the last error: 48 bits of its wall-clock time in ms, the place of its cause in [`Cause::ALL`] and one, and that of its
    /// reason in [`REASONS`] and one, or 0 for none.
    fn note(&self, cause: Cause, reason: u64, at: u64) {
        self.last_error.set((at / NANOS_IN_MS) << 16 | (cause as u64 + 1) << 8 | reason);
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
        let noted = self.last_error.value();
        let [reason, cause, ..] = noted.to_le_bytes().map(|byte| usize::from(byte).checked_sub(1));
        let cause = Cause::ALL.get(cause?)?.as_str();
        let reason = reason.and_then(|place| REASONS.get(place).copied());
        Some(EndpointError { cause, reason, at: (noted >> 16) * NANOS_IN_MS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::LabelId;
    use crate::sample::exchange;

    fn connect_failed(cause: Cause, reason: &'static str, at: u64) -> UpstreamConnectFailed {
        let (label, at) = (LabelId::default(), at * NANOS_IN_MS);
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
        let expected = EndpointError { cause: "upstream_tls_failed", reason, at: 8 * NANOS_IN_MS };
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
    fn a_reason_is_counted_beyond_what_its_number_has_room_for() {
        let reasons = FewReasons::default();
        let place = place("timeout");
        reasons.few[1].store(
            ((u32::try_from(place).unwrap() + 1) << COUNT_BITS) | (COUNT_MAX - 1),
            Ordering::Relaxed,
        );
        reasons.increment("ECONNREFUSED");
        for more in 1..=4 {
            reasons.increment("timeout");
            assert_eq!(reasons.value(place), u64::from(COUNT_MAX) - 1 + more);
        }
    }

    #[test]
    fn an_endpoint_begins_anew_in_the_slot_of_another() {
        let block = EndpointsBlock::default();
        let id = |generation| LabelId { slot: 37, generation };
        let totals = |generation| {
            let mut totals = EndpointTotals::default();
            block.read(id(generation))?.add_to(&mut totals);
            Some(totals)
        };
        for reason in REASONS {
            block.count(id(0)).unwrap().connect_failed(&connect_failed(
                Cause::ConnectFailed,
                reason,
                5,
            ));
        }
        block.count(LabelId { slot: 38, generation: 0 }).unwrap().exchange_finished(&exchange());
        assert_eq!(totals(0).unwrap().connect_failures.len(), REASONS.len());
        assert_eq!(totals(1), None);
        block.count(id(1)).unwrap().exchange_finished(&exchange());
        let expected = EndpointTotals { exchanges_total: 1, ..EndpointTotals::default() };
        assert_eq!((totals(0), totals(1)), (None, Some(expected)));
        assert!(block.count(id(0)).is_none(), "it is gone");
        assert!(size_of::<EndpointBlock>() <= 72, "there are tens of thousands of them");
    }

    #[test]
    fn an_exchange_fails_because_of_its_endpoint_or_for_something_else() {
        let block = EndpointBlock::default();
        let failed =
            |fault| ExchangeFinished { cause: Some(Cause::UpstreamClosed), fault, ..exchange() };
        block.exchange_finished(&failed(Fault::Proxy));
        block.exchange_finished(&failed(Fault::Upstream));
        let mut totals = EndpointTotals::default();
        block.add_to(&mut totals);
        assert_eq!((totals.exchanges_total, totals.exchanges_failed_total), (2, 1));
        let error = totals.last_error.unwrap();
        assert_eq!((error.cause, error.reason), ("upstream_closed", None));
        let ended_at = (exchange().started_at + exchange().stages.total) / NANOS_IN_MS;
        assert_eq!(error.at, ended_at * NANOS_IN_MS);

        let at = ended_at + 1;
        block.connect_failed(&connect_failed(Cause::ConnectFailed, "ECONNREFUSED", at));
        let cause = Some(Cause::ConnectFailed);
        block.exchange_finished(&ExchangeFinished { cause, ..failed(Fault::Upstream) });
        let mut totals = EndpointTotals::default();
        block.add_to(&mut totals);
        let error = totals.last_error.unwrap();
        assert_eq!((error.reason, error.at), (Some("ECONNREFUSED"), at * NANOS_IN_MS));
        assert_eq!(totals.exchanges_failed_total, 2);
    }
}
