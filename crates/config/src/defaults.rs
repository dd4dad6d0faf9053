//! What holds when a file does not say. Each with the reason for its value.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use crate::units::{Period, Size};

/// Time for a handover: ten thousand connections move in a second, and handshakes that hold it up last ten.
pub const HANDOVER_TIMEOUT: Period = Period::from_secs(60);

/// How long a process keeps its listening sockets after a handover: what a new program gets wrong at its first
/// requests shows by then.
pub const HANDOVER_PROBATION: Period = Period::from_secs(30);

/// Bytes of a request line. URLs beyond 8 KiB break browsers and other proxies long before us.
pub const REQUEST_LINE_MAX: Size = Size::from_kib(8);

/// Bytes of a head. A head lives in one 64 KiB block together with what is added to it on the way
/// (`x-forwarded-*`, `via`, `x-request-id`), for which 4 KiB are kept.
pub const HEAD_MAX: Size = Size::from_kib(60);

/// Fields of a head. Browsers send about 20; Envoy's default is the same.
pub const FIELDS_MAX: u16 = 100;

/// Most services read `//admin/` as `/admin/`, so a rule for the one has to hold for the other. As in
/// nginx; Envoy keeps them apart.
pub const MERGE_SLASHES: bool = true;

/// Time for a head: longer than a phone's bad minute needs, short enough against slow senders.
pub const REQUEST_HEAD_TIMEOUT: Period = Period::from_secs(10);

/// Time for a connection's first bytes: longer than a lost SYN's acknowledgement takes on a near
/// network, and no more than a client of a service that speaks first bears.
pub const DETECT_TIMEOUT: Period = Period::from_millis(500);

/// Time for a TLS handshake: two round trips and a signature take a second on a bad network; as
/// long as for a head, with which it shares its kind of slow sender.
pub const TLS_HANDSHAKE_TIMEOUT: Period = Period::from_secs(10);

/// The oldest version of TLS: what is before 1.2 is broken, and many clients still have nothing newer.
pub const TLS_MIN_VERSION: tls::Version = tls::Version::Tls12;

/// The newest version of TLS there is.
pub const TLS_MAX_VERSION: tls::Version = tls::Version::Tls13;

/// Silence between requests: just above the 60 s after which browsers and balancers give up.
pub const DOWNSTREAM_IDLE_TIMEOUT: Period = Period::from_secs(75);

/// Silence within a request body, in which a healthy sender always sends something.
pub const REQUEST_BODY_TIMEOUT: Period = Period::from_secs(30);

/// Time that an exchange may hold a connection while its client stands still and others wait: as long as
/// those may wait at most.
pub const STALL_TIMEOUT: Period = Period::from_secs(5);

/// Of a listener's connections, the part that one client may have: none can have all, and a load
/// balancer that is the only client still has many.
pub const CONNECTIONS_PER_CLIENT_DIVISOR: u32 = 2;

/// Bytes that clients of a listener may hold in buffers: 8,000 that take nothing of a response, with a full
/// queue of 128 KiB each, and half of the memory of a small machine.
pub const BUFFERED_MAX: Size = Size::from_kib(1 << 20);

/// Bytes of a request body that wait here for the rest, where connections of the cluster are short: what
/// stands behind its head in one buffer, and more than most forms and calls of APIs have.
pub const REQUEST_BUFFER: Size = Size::from_kib(16);

/// Bytes a second of a request body below which its client is taken for slow on purpose. As Kestrel; the
/// slowest modem sent more.
pub const REQUEST_RATE_MIN: Size = Size(240);

/// The same of a response that waits for its client.
pub const RESPONSE_RATE_MIN: Size = Size(240);

/// Time in which a downstream must take at least one byte of its response.
pub const RESPONSE_WRITE_TIMEOUT: Period = Period::from_secs(60);

/// Silence in a tunnel. WebSocket peers that care send pings; the others must not live for ever.
pub const TUNNEL_IDLE_TIMEOUT: Period = Period::from_secs(3_600);

/// What a connection that is over its age may still take for what runs on it: most downloads and calls
/// end in this time, and a client whose certificate was revoked has no longer.
pub const CONNECTION_AGE_GRACE: Period = Period::from_secs(60);

/// Bound on a whole exchange: long enough for downloads, short enough to end what hangs.
pub const EXCHANGE_TIMEOUT: Period = Period::from_secs(3_600);

/// Time that a filter may wait for the answer to a question: what users still wait for.
pub const FILTER_TIMEOUT: Period = Period::from_secs(10);

/// Time that an exchange waits for a connection: as long as for one that is being established.
pub const PENDING_TIMEOUT: Period = Period::from_secs(5);

/// Time to connect: two lost SYNs (1 s and 2 s later) may be made up for.
pub const CONNECT_TIMEOUT: Period = Period::from_secs(5);

/// Time to the response's head: what users still wait for.
pub const RESPONSE_HEAD_TIMEOUT: Period = Period::from_secs(60);

/// Silence within a response body.
pub const RESPONSE_BODY_TIMEOUT: Period = Period::from_secs(60);

/// Time in which an upstream must take at least one byte of a request.
pub const REQUEST_WRITE_TIMEOUT: Period = Period::from_secs(60);

/// Time in the pool: below the 65 to 75 s after which common servers close, so that we close first.
pub const UPSTREAM_IDLE_TIMEOUT: Period = Period::from_secs(60);

/// An answer of DNS is used for at least so long: servers that say 0 are asked once a second.
pub const DNS_TTL_MIN: Period = Period::from_secs(1);

/// An answer of DNS is used for at most so long: what a name was moved away from is noticed within minutes.
pub const DNS_TTL_MAX: Period = Period::from_secs(300);

/// Time that first answers may take. As Envoy's `initial_fetch_timeout`.
pub const INITIAL_FETCH_TIMEOUT: Period = Period::from_secs(15);

/// Time that a request waits for its cluster. As Envoy's filter `on_demand`.
pub const ON_DEMAND_TIMEOUT: Period = Period::from_secs(5);

/// Queue of connections not yet accepted; the kernel lowers it to `net.core.somaxconn` (4096).
pub const BACKLOG: NonZeroU32 = non_zero(4_096);

/// Downstream connections of the process and of a listener: a hundred thousand idle ones take
/// about 40 MB.
pub const DOWNSTREAM_CONNECTIONS_MAX: NonZeroU32 = non_zero(100_000);

/// TLS handshakes of the process: each holds some 25 KB, so about 100 MB; a core makes a few
/// thousand in a second, so more than these wait in vain.
pub const HANDSHAKES_MAX: NonZeroU32 = non_zero(4_096);

/// Connections of a cluster; Envoy's breaker has the same.
pub const UPSTREAM_CONNECTIONS_MAX: NonZeroU32 = non_zero(1_024);

/// Exchanges of a cluster that wait for a connection; Envoy's breaker has the same.
pub const PENDING_MAX: u32 = 1_024;

/// Interim responses before the final one: a service that reports its progress every second for a minute.
pub const INTERIM_RESPONSES_MAX: u8 = 64;

/// Silence before the first keepalive probe: below the 350 s of common NAT gateways.
pub const KEEPALIVE_IDLE: Period = Period::from_secs(60);

/// Time between keepalive probes.
pub const KEEPALIVE_INTERVAL: Period = Period::from_secs(10);

/// Unanswered keepalive probes: a peer that is gone is noticed within 90 s.
pub const KEEPALIVE_PROBES: NonZeroU32 = non_zero(3);

/// Bytes read from a request body that no exchange wants any more: what a common socket buffer holds.
pub const DISCARD_MAX: Size = Size::from_kib(256);

/// Bytes of copies that mirroring may hold: some thousand requests as browsers send them, and a few long bodies.
pub const MIRRORED_MAX: Size = Size::from_kib(32 * 1024);

/// What the host of a mirrored request ends with: Envoy's.
pub const MIRROR_HOST_SUFFIX: &str = "-shadow";

/// Time a closing connection is still read from: a few round trips.
pub const LINGER_TIMEOUT: Period = Period::from_secs(2);

/// Time for the last bytes of a connection to reach a client that reads slowly: what the kernel holds of
/// a response, some MiB, at 100 kbit/s.
pub const LINGER_MAX: Period = Period::from_secs(300);

/// Time in which a process that is to end still accepts: none, since only a load balancer that asks
/// `/ready` needs it.
pub const DRAIN_DELAY: Period = Period::from_secs(0);

/// Time for running exchanges in a drain: as Kubernetes' grace period.
pub const DRAIN_TIMEOUT: Period = Period::from_secs(30);

/// The statuses that a health check of HTTP expects.
pub const CHECK_EXPECT: RangeInclusive<u16> = 200..=299;

/// Status of a direct response.
pub const RESPOND_STATUS: u16 = 200;

/// Status of a redirect. As in Envoy.
pub const REDIRECT_STATUS: u16 = 301;

/// Weight of an endpoint.
pub const WEIGHT: std::num::NonZeroU16 = std::num::NonZeroU16::MIN;

/// The hosts of a route table that names none: all.
pub const HOST: &str = "*";

/// The only upgrade that is common and safe to let through.
pub const UPGRADE: &str = "websocket";

/// [`UPGRADE`] as rules have it: one list in memory, however many rules there are.
pub static UPGRADES: LazyLock<Arc<[Box<str>]>> = LazyLock::new(|| Arc::new([UPGRADE.into()]));

/// Streams of a connection: the least that RFC 9113, section 6.5.2, recommends.
pub const STREAMS_MAX: NonZeroU32 = non_zero(100);

/// Calls of a connection: clients of RPC usually have one for each address, and thousands of calls on it.
pub const RPC_REQUESTS_MAX: NonZeroU32 = non_zero(4_096);

/// What a buffer holds beside a little of the body.
pub const RPC_HEAD_MAX: Size = Size::from_kib(60);

/// Java's Dubbo takes 8 MiB (`payload`); Bolt names no bound.
pub const RPC_BODY_MAX: Size = Size::from_kib(8 << 10);

/// 5 Mbit/s for one stream at 100 ms of distance.
pub const STREAM_WINDOW_MAX: Size = Size::from_kib(64);

/// Every stream may stand still, and none holds up another.
pub const CONNECTION_WINDOW_MAX: Size = Size::from_kib(6_400);

/// What every peer begins with, so that nothing has to be said about it.
pub const HEADER_TABLE_MAX: Size = Size::from_kib(4);

/// The least there is. Longer frames only hold up what comes behind them.
pub const FRAME_MAX: Size = Size::from_kib(16);

/// Work that a peer of HTTP/2 may cause beyond what is useful: 500 early resets, by a client that closes
/// as many pages at once.
pub const WORK_MAX: NonZeroU32 = non_zero(50_000);

/// Work that each second forgives: 25 early resets, for ever.
pub const WORK_PER_SECOND: u32 = 2_500;

/// A reset after this time costs 1, and a hundredth of what it costs before: a client can make no more of
/// them in a second than `STREAMS_MAX` allows, which are 2,500, and as many are forgiven. Below the
/// deadlines that calls usually have, from 50 ms on.
pub const EARLY_RESET: Period = Period::from_millis(40);

/// Short of what most middleboxes forget a connection after.
pub const PING_INTERVAL: Period = Period::from_secs(30);

/// A peer that takes longer is as good as gone.
pub const PING_TIMEOUT: Period = Period::from_secs(10);

const fn non_zero(value: u32) -> NonZeroU32 {
    match NonZeroU32::new(value) {
        Some(value) => value,
        None => NonZeroU32::MIN,
    }
}
