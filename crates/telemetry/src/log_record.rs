//! The compact form in which a finished exchange travels from its worker to the log reader.
//!
//! ```text
//! u32 length of all | u8 flags | u8 version | u16 status | u8 cause | u8 attempts | u32 slot of the rule | u32 failures
//! 3 x (u32 slot, u32 generation): listener, route table, cluster
//! 3 x u64: request bytes, response bytes, start | 12 x u64: stages
//! u8 gRPC status | 2 x u64: messages up and down | 15 x u16: lengths of texts
//! texts: subset, endpoint, client, method, target, host, request id, user agent, server name, version of TLS,
//!        cipher suite, peer identity, detail of the cause, failed attempts, captured header fields
//! ```
//!
//! Numbers are little-endian. A record never leaves the process, so nothing here is a format that
//! others read. Texts are cut at the bounds below when they are copied.
//!
//! It is written by hand because each logged request pays for it: `postcard` makes a shorter record (233 bytes in place of 363
//! for a plain GET) with five times the instructions (2,636 in place of 517), a sixth of what the whole exchange costs.

use crate::captures::CAPTURES_BYTES_MAX;
use crate::cause::Cause;
use crate::events::{ExchangeFinished, Fault, GrpcCall, LabelId, Stages};

/// Bytes kept of the endpoint's and the client's address: a unix socket's path has 108 at most.
const ADDRESS_BYTES_MAX: usize = 112;
/// Bytes kept of the method.
const METHOD_BYTES_MAX: usize = 32;
/// Bytes kept of the target.
pub(crate) const TARGET_BYTES_MAX: usize = 1024;
/// Bytes kept of the host: a name has 253 at most, and a port.
const HOST_BYTES_MAX: usize = 264;
/// Bytes kept of the request id.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Bytes kept of the user agent.
const USER_AGENT_BYTES_MAX: usize = 256;
/// Bytes kept of the version of TLS.
const TLS_VERSION_BYTES_MAX: usize = 8;
/// Bytes kept of the cipher suite.
const TLS_CIPHER_BYTES_MAX: usize = 48;
/// Bytes kept of the peer's identity.
const PEER_IDENTITY_BYTES_MAX: usize = 512;
/// Bytes kept of what was said about the cause.
const CAUSE_DETAIL_BYTES_MAX: usize = 160;

/// Bytes kept of the attempts that failed.
pub const FAILED_ATTEMPTS_BYTES_MAX: usize = 256;

/// Bytes kept of the subset.
const SUBSET_BYTES_MAX: usize = 256;

/// The bounds of the texts, in their order.
const TEXTS_MAX: [usize; 15] = [
    SUBSET_BYTES_MAX,
    ADDRESS_BYTES_MAX,
    ADDRESS_BYTES_MAX,
    METHOD_BYTES_MAX,
    TARGET_BYTES_MAX,
    HOST_BYTES_MAX,
    REQUEST_ID_BYTES_MAX,
    USER_AGENT_BYTES_MAX,
    HOST_BYTES_MAX,
    TLS_VERSION_BYTES_MAX,
    TLS_CIPHER_BYTES_MAX,
    PEER_IDENTITY_BYTES_MAX,
    CAUSE_DETAIL_BYTES_MAX,
    FAILED_ATTEMPTS_BYTES_MAX,
    CAPTURES_BYTES_MAX,
];
/// Bytes before the texts.
const FIXED_BYTES: usize = 18 + 24 + 24 + 8 * Stages::NAMES.len() + 17 + 2 * TEXTS_MAX.len();
/// Bytes of the longest record.
pub(crate) const LOG_RECORD_BYTES_MAX: usize = FIXED_BYTES
    + SUBSET_BYTES_MAX
    + 2 * ADDRESS_BYTES_MAX
    + METHOD_BYTES_MAX
    + TARGET_BYTES_MAX
    + HOST_BYTES_MAX
    + REQUEST_ID_BYTES_MAX
    + USER_AGENT_BYTES_MAX
    + HOST_BYTES_MAX
    + TLS_VERSION_BYTES_MAX
    + TLS_CIPHER_BYTES_MAX
    + PEER_IDENTITY_BYTES_MAX
    + CAUSE_DETAIL_BYTES_MAX
    + FAILED_ATTEMPTS_BYTES_MAX
    + CAPTURES_BYTES_MAX;

/// The destinations of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audience {
    /// The access log.
    pub(crate) is_log: bool,
    /// The list of slow requests.
    pub(crate) is_slow: bool,
    /// Warnings of failures.
    pub(crate) is_failure: bool,
}

const FLAG_LOG: u8 = 1;
const FLAG_SLOW: u8 = 2;
const FLAG_RULE: u8 = 4;
const FLAG_CLUSTER: u8 = 8;
const FLAG_REPLY: u8 = 16;
const FLAG_TUNNEL: u8 = 32;
const FLAG_GRPC: u8 = 64;
const FLAG_FAILURE: u8 = 128;
/// Encodes "no gRPC status".
const GRPC_STATUS_NONE: u8 = u8::MAX;
/// Encodes "no cause".
const CAUSE_NONE: u8 = u8::MAX;
const _: () = assert!(Cause::ALL.len() < CAUSE_NONE as usize);

/// Writes a record to `buffer` and returns it.
pub(crate) fn encode<'b>(
    event: &ExchangeFinished<'_>,
    audience: Audience,
    buffer: &'b mut [u8; LOG_RECORD_BYTES_MAX],
) -> &'b [u8] {
    let mut flags = 0;
    for (is_set, flag) in [
        (audience.is_log, FLAG_LOG),
        (audience.is_slow, FLAG_SLOW),
        (audience.is_failure, FLAG_FAILURE),
        (event.rule.is_some(), FLAG_RULE),
        (event.cluster.is_some(), FLAG_CLUSTER),
        (event.is_reply, FLAG_REPLY),
        (event.is_tunnel, FLAG_TUNNEL),
        (event.grpc.is_some(), FLAG_GRPC),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    let (table, rule) = event.rule.unwrap_or_default();
    let cluster = event.cluster.unwrap_or_default();
    let texts = [
        event.subset,
        event.endpoint,
        event.client,
        event.method,
        event.target,
        event.host,
        event.request_id,
        event.user_agent,
        event.server_name,
        event.tls_version,
        event.tls_cipher,
        event.peer_identity,
        event.cause_detail,
        event.failed_attempts,
        event.captures,
    ];
    let mut bytes = FIXED_BYTES;
    let mut lengths = [0u16; TEXTS_MAX.len()];
    for ((length, text), max) in lengths.iter_mut().zip(texts).zip(TEXTS_MAX) {
        let kept = text.len().min(max);
        bytes += kept;
        *length = u16::try_from(kept).unwrap_or(0);
    }

    let mut writer = Writer { rest: buffer.as_mut_slice() };
    writer.put(u32::try_from(bytes).unwrap_or(0).to_le_bytes());
    writer.put([flags, event.version]);
    writer.put(event.status.to_le_bytes());
    writer.put([event.cause.map_or(CAUSE_NONE, |cause| cause as u8), event.attempts]);
    writer.put(rule.to_le_bytes());
    writer.put(event.failures.to_le_bytes());
    for id in [event.listener, table, cluster] {
        writer.put(id.slot.to_le_bytes());
        writer.put(id.generation.to_le_bytes());
    }
    for number in [event.request_bytes, event.response_bytes, event.started_at] {
        writer.put(number.to_le_bytes());
    }
    for time in event.stages.values() {
        writer.put(time.to_le_bytes());
    }
    let call = event.grpc.unwrap_or_default();
    writer.put([call.status.unwrap_or(GRPC_STATUS_NONE)]);
    for messages in [call.request_messages, call.response_messages] {
        writer.put(messages.to_le_bytes());
    }
    for length in lengths {
        writer.put(length.to_le_bytes());
    }
    for (text, length) in texts.into_iter().zip(lengths) {
        writer.put_text(text.get(..usize::from(length)).unwrap_or_default());
    }
    buffer.get(..bytes).unwrap_or_default()
}

/// The length of the record at the front of `bytes`, once its first four bytes are there.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let (length, _) = bytes.split_first_chunk()?;
    usize::try_from(u32::from_le_bytes(*length)).ok()
}

/// Reads a record back. `None` would be a bug in this crate, since only [`encode`] writes records.
pub(crate) fn decode(record: &[u8]) -> Option<(Audience, ExchangeFinished<'_>)> {
    let mut reader = Reader { rest: record };
    let _length = reader.take::<4>()?;
    let [flags, version] = reader.take()?;
    let status = u16::from_le_bytes(reader.take()?);
    let [cause, attempts] = reader.take()?;
    let rule = u32::from_le_bytes(reader.take()?);
    let failures = u32::from_le_bytes(reader.take()?);
    let mut ids = [LabelId::default(); 3];
    for id in &mut ids {
        id.slot = u32::from_le_bytes(reader.take()?);
        id.generation = u32::from_le_bytes(reader.take()?);
    }
    let [listener, table, cluster] = ids;
    let request_bytes = reader.number()?;
    let response_bytes = reader.number()?;
    let started_at = reader.number()?;
    let stages = Stages {
        accept: reader.number()?,
        read_head: reader.number()?,
        route: reader.number()?,
        request_body: reader.number()?,
        retries: reader.number()?,
        pool_wait: reader.number()?,
        connect: reader.number()?,
        upstream_write: reader.number()?,
        first_byte: reader.number()?,
        response: reader.number()?,
        downstream_write: reader.number()?,
        total: reader.number()?,
    };
    let [grpc_status] = reader.take()?;
    let call = GrpcCall {
        status: (grpc_status != GRPC_STATUS_NONE).then_some(grpc_status),
        request_messages: reader.number()?,
        response_messages: reader.number()?,
    };
    let mut lengths = [0u16; TEXTS_MAX.len()];
    for length in &mut lengths {
        *length = u16::from_le_bytes(reader.take()?);
    }
    let mut texts = [&[][..]; TEXTS_MAX.len()];
    for (text, length) in texts.iter_mut().zip(lengths) {
        *text = reader.text(usize::from(length))?;
    }
    let [subset, endpoint, client, method, target, host, request_id, user_agent, ..] = texts;
    let [
        ..,
        server_name,
        tls_version,
        tls_cipher,
        peer_identity,
        cause_detail,
        failed_attempts,
        captures,
    ] = texts;
    let has = |flag| flags & flag != 0;
    let audience =
        Audience { is_log: has(FLAG_LOG), is_slow: has(FLAG_SLOW), is_failure: has(FLAG_FAILURE) };
    let event = ExchangeFinished {
        listener,
        rule: has(FLAG_RULE).then_some((table, rule)),
        // What is counted does not go along.
        weighted: None,
        cluster: has(FLAG_CLUSTER).then_some(cluster),
        subset,
        endpoint,
        client,
        method,
        target,
        host,
        request_id,
        user_agent,
        server_name,
        tls_version,
        tls_cipher,
        peer_identity,
        version,
        status,
        cause: Cause::ALL.get(usize::from(cause)).copied(),
        failures,
        // Counted, and in no line.
        fault: Fault::None,
        endpoint_id: None,
        cause_detail,
        failed_attempts,
        captures,
        is_reply: has(FLAG_REPLY),
        request_bytes,
        response_bytes,
        attempts,
        grpc: has(FLAG_GRPC).then_some(call),
        is_tunnel: has(FLAG_TUNNEL),
        started_at,
        stages,
    };
    Some((audience, event))
}

/// Writes to a buffer that [`LOG_RECORD_BYTES_MAX`] makes long enough.
struct Writer<'b> {
    rest: &'b mut [u8],
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((place, rest)) = std::mem::take(&mut self.rest).split_first_chunk_mut() {
            *place = bytes;
            self.rest = rest;
        }
    }

    fn put_text(&mut self, text: &[u8]) {
        if let Some((place, rest)) = std::mem::take(&mut self.rest).split_at_mut_checked(text.len())
        {
            place.copy_from_slice(text);
            self.rest = rest;
        }
    }
}

struct Reader<'r> {
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, length: usize) -> Option<&'r [u8]> {
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::exchange;

    const ALL: Audience = Audience { is_log: true, is_slow: true, is_failure: true };

    fn round_trip(event: &ExchangeFinished<'_>, audience: Audience) -> (Audience, String) {
        let mut buffer = [0xaa; LOG_RECORD_BYTES_MAX];
        let record = encode(event, audience, &mut buffer);
        assert_eq!(length(record), Some(record.len()));
        let (audience, event) = decode(record).unwrap();
        (audience, format!("{event:?}"))
    }

    #[test]
    fn what_was_written_is_read() {
        let event = exchange();
        let bare = ExchangeFinished { rule: None, cluster: None, cause: None, ..event };
        let edges = ExchangeFinished {
            cause: Cause::ALL.last().copied(),
            is_reply: true,
            grpc: Some(GrpcCall { status: Some(16), request_messages: 3, response_messages: 4 }),
            is_tunnel: true,
            failures: u32::MAX,
            attempts: u8::MAX,
            started_at: u64::MAX,
            endpoint: b"",
            ..event
        };
        for event in [event, bare, edges] {
            for (is_log, is_slow) in [(true, false), (false, true), (true, true)] {
                let audience = Audience { is_log, is_slow, is_failure: is_log && is_slow };
                assert_eq!(round_trip(&event, audience), (audience, format!("{event:?}")));
            }
        }
    }

    #[test]
    fn texts_are_cut_at_their_bounds_and_the_longest_record_fits() {
        for (extra, cut) in [(0, 0), (1, 1), (60_000, 60_000)] {
            let text = |max: usize| vec![b'x'; max + extra];
            let texts = TEXTS_MAX.map(text);
            let [subset, endpoint, client, method, target, host, request_id, user_agent, ..] =
                &texts;
            let [
                ..,
                server_name,
                tls_version,
                tls_cipher,
                peer_identity,
                cause_detail,
                failed_attempts,
                captures,
            ] = &texts;
            let event = ExchangeFinished {
                subset,
                endpoint,
                client,
                method,
                target,
                host,
                request_id,
                user_agent,
                server_name,
                tls_version,
                tls_cipher,
                peer_identity,
                cause_detail,
                failed_attempts,
                captures,
                ..exchange()
            };
            let mut buffer = [0; LOG_RECORD_BYTES_MAX];
            let record = encode(&event, ALL, &mut buffer);
            assert_eq!(record.len(), LOG_RECORD_BYTES_MAX);
            let (_, found) = decode(record).unwrap();
            assert_eq!(found.target.len(), target.len() - cut);
            assert_eq!(found.user_agent.len(), user_agent.len() - cut);
            assert_eq!(found.peer_identity.len(), peer_identity.len() - cut);
            assert_eq!(found.cause_detail.len(), cause_detail.len() - cut);
        }
    }

    #[test]
    fn a_record_cut_short_is_refused_at_every_byte() {
        let mut buffer = [0; LOG_RECORD_BYTES_MAX];
        let record = encode(&exchange(), ALL, &mut buffer).to_vec();
        for n in 0..record.len() {
            assert!(decode(&record[..n]).is_none(), "{n} bytes");
        }
    }
}
