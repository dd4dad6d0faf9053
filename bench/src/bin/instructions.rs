//! One operation many times, for a program that counts instructions.
//!
//! `instructions --case exchange-get --count 1000` does the operation a hundred times to warm up,
//! then a thousand times inside [`measured`], which callgrind counts. `--case list` names
//! the cases. `cargo xtask instructions` runs them all.
//!
//! A case `choice-BALANCER-ENDPOINTS` is a whole exchange, too, of a cluster with so many endpoints. `cargo xtask bench
//! balance` has callgrind count the choice of the endpoint alone.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io;
use std::io::{IoSlice, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use bench::arguments::Arguments;
use config::snapshot::ListenerId;
use proxy::filter::Filter;
use proxy::time::Time;
use proxy::{Bells, ConnKey, Op, PeerAddress, Proxy, SLICES_MAX, Settings, Share, Snapshot};
use telemetry::Emitter;
use wire::buffer::Buffer;
use wire::h1::{
    BodyDecoder, BodyElement, BodyLimits, ConnectionField, HeadLimits, Scan, decode_request,
    decode_response, encode_request,
};
use wire::head::{Framing, HeadIndex, Method};
use wire::path::Slashes;

/// A case, by the name that results have.
type Case = (&'static str, fn() -> Box<dyn FnMut()>);

const CASES: [Case; 24] = [
    ("decode-request", decode_request_case),
    ("decode-response", decode_response_case),
    ("encode-request", encode_request_case),
    ("decode-chunk", decode_chunk_case),
    ("exchange-get", || exchange_case(REQUEST)),
    ("exchange-browser", || exchange_case(BROWSER)),
    ("exchange-policies", policies_case),
    ("exchange-h2", exchange_h2_case),
    ("exchange-handover", handover_case),
    ("connection-10", || connection_case(10)),
    ("connection-10000", || connection_case(10_000)),
    ("paths-10", || rules_case(PATHS, 10)),
    ("paths-10000", || rules_case(PATHS, 10_000)),
    ("values-10", || rules_case(VALUES, 10)),
    ("values-1000", || rules_case(VALUES, 1_000)),
    ("regexes-10", || rules_case(REGEXES, 10)),
    ("regexes-1000", || rules_case(REGEXES, 1_000)),
    ("everything", || everything_case("GET")),
    ("not-met", || everything_case("PUT")),
    ("one-prefix", || everything_case("")),
    ("change-10", || change_case(10)),
    ("change-10000", || change_case(10_000)),
    ("change-rule-100", || change_rule_case(100)),
    ("change-rule-10000", || change_rule_case(10_000)),
];

const WARM_UP: u32 = 100;

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["case", "count"])?;
    let name: String = arguments.require("case")?;
    if name == "list" {
        let mut out = io::stdout().lock();
        return CASES.iter().try_for_each(|(name, _)| writeln!(out, "{name}"));
    }
    let count = arguments.find("count")?.unwrap_or(1000);
    let case = CASES.iter().find(|(case, _)| *case == name);
    let operation = case.map(|(_, prepare)| prepare()).or_else(|| choice_case_named(&name));
    let mut operation = operation.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("there is no case `{name}`"))
    })?;
    (0..WARM_UP).for_each(|_| operation());
    measured(&mut *operation, count);
    Ok(())
}

/// The function whose instructions are counted.
#[inline(never)]
fn measured(operation: &mut dyn FnMut(), count: u32) {
    for _ in 0..black_box(count) {
        operation();
    }
}

const LIMITS: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 64 << 10,
    fields_max: 100,
    slashes: Slashes::Keep,
};

/// The request of wrk.
const REQUEST: &[u8] = b"GET /bench HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &[u8] = b"GET /static/js/app.bundle.min.js?v=20260114&theme=dark HTTP/1.1\r\n\
    Host: www.shop.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: */*\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Referer: https://www.shop.example.com/catalogue/chairs\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=3f9a1c77b2e84d0d; theme=dark; consent=1\r\n\r\n";

/// A head like that of `upstream`, with its 1 KiB behind it.
fn response() -> Vec<u8> {
    let mut response = b"HTTP/1.1 200 OK\r\nServer: upstream\r\nContent-Type: text/plain\r\n\
        Date: Sat, 21 Nov 2026 08:00:00 GMT\r\nContent-Length: 1024\r\n\r\n"
        .to_vec();
    response.resize(response.len() + 1024, b'a');
    response
}

fn decode_request_case() -> Box<dyn FnMut()> {
    let mut index = HeadIndex::default();
    Box::new(move || {
        let head = decode_request(black_box(BROWSER), &mut Scan::default(), &LIMITS, &mut index);
        black_box(&head.expect("a valid head"));
    })
}

fn decode_response_case() -> Box<dyn FnMut()> {
    let (mut index, response) = (HeadIndex::default(), response());
    Box::new(move || {
        let mut scan = Scan::default();
        let bytes = black_box(&response[..]);
        let head = decode_response(bytes, &mut scan, &LIMITS, &mut index, Method::Get);
        black_box(&head.expect("a valid head"));
    })
}

fn encode_request_case() -> Box<dyn FnMut()> {
    let mut buffer = Buffer::new(4096);
    let mut index = HeadIndex::default();
    Box::new(move || {
        let head = decode_request(BROWSER, &mut Scan::default(), &LIMITS, &mut index);
        let (head, _) = head.expect("a valid head").expect("a whole head");
        encode_request(&head, ConnectionField::Default, &mut buffer);
        black_box(buffer.filled());
        buffer.clear();
    })
}

fn decode_chunk_case() -> Box<dyn FnMut()> {
    const LIMITS: BodyLimits = BodyLimits {
        chunk_line_bytes_max: 256,
        trailers_bytes_max: 8 << 10,
        fields_max: 100,
        parsing: wire::h1::Parsing::Strict,
    };
    let mut body = b"400\r\n".to_vec();
    body.resize(body.len() + 1024, b'a');
    body.extend_from_slice(b"\r\n0\r\n\r\n");
    Box::new(move || {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        let mut rest = black_box(&body[..]);
        while !decoder.is_complete() {
            let (n, element) = decoder.decode(rest, &LIMITS).expect("a valid body");
            if let BodyElement::Data(data) = element {
                black_box(data);
            }
            rest = rest.get(n..).unwrap_or_default();
        }
    })
}

const CONFIG: &str = "
listeners:
  - { name: bench, address: 127.0.0.1:8080, routes: all, http: { forwarded: off, request_id: false } }
routes:
  - { name: all, hosts: [\"*\"], rules: [{ match: { prefix: / }, cluster: upstream }] }
clusters:
  - { name: upstream, endpoints: [127.0.0.1:9000] }
access_log: { stage_times: false }
";

/// One GET through the whole proxy, between a kept downstream and a kept upstream connection.
fn exchange_case(request: &'static [u8]) -> Box<dyn FnMut()> {
    let (mut bench, mut request) = (Bench::new(), request.to_vec());
    Box::new(move || bench.exchange(&mut request))
}

/// What a client of HTTP/2 sends before its first request: the preface, empty SETTINGS, and the
/// acknowledgement of ours.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x00";

/// Leave for the KiB of one response (WINDOW_UPDATE of the connection), and the request of
/// `exchange-get`, in static and literal fields (HEADERS with both ends). The last four octets of each
/// frame's header are its stream.
const STREAM: &[u8] = b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x04\x00\
    \x00\x00\x1a\x01\x05\x00\x00\x00\x01\
    \x82\x86\x04\x06/bench\x01\x0e127.0.0.1:8080";

/// Where the stream of the request stands in [`STREAM`].
const STREAM_ID: std::ops::Range<usize> = 18..22;

/// The same GET on a stream of HTTP/2, towards an upstream of HTTP/1.
fn exchange_h2_case() -> Box<dyn FnMut()> {
    let mut bench = Bench::new();
    bench.proxy.on_received(bench.client, &mut OPENING.to_vec(), bench.now);
    perform(&mut bench.proxy, &mut None, bench.now);
    let (mut request, mut stream) = (STREAM.to_vec(), 1_u32);
    Box::new(move || {
        let id = request.get_mut(STREAM_ID).expect("the frames are longer");
        id.copy_from_slice(&stream.to_be_bytes());
        stream += 2;
        // A connection has so many requests in each turn.
        bench.proxy.begin_turn();
        bench.exchange(&mut request);
    })
}

/// Where connections come from that the last of many chains is for.
const LAST_SOURCE: &str = "10.255.255.255";

/// A connection with one GET, to a listener with so many chains, each of which is for one source.
fn connection_case(chains: u32) -> Box<dyn FnMut()> {
    use std::fmt::Write as _;
    let mut config = String::from(
        "
routes:
  - { name: all, hosts: [\"*\"], rules: [{ match: { prefix: / }, respond: { status: 200 } }] }
access_log: { stage_times: false }
listeners:
  - name: bench
    address: 127.0.0.1:8080
    http: { forwarded: off, request_id: false }
    chains:
",
    );
    let last: std::net::Ipv4Addr = LAST_SOURCE.parse().expect("an address");
    for chain in (0..chains).rev() {
        let source = std::net::Ipv4Addr::from(u32::from(last) - chain);
        writeln!(
            config,
            "      - {{ name: c{chain}, match: {{ sources: [{source}] }}, routes: all }}"
        )
        .expect("a string takes all");
    }
    let mut bench = Bench::with(&config, LAST_SOURCE);
    let mut request =
        b"GET /bench HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n".to_vec();
    Box::new(move || bench.connection(&mut request))
}

/// The GET of `exchange-get` in a process that another may replace.
fn handover_case() -> Box<dyn FnMut()> {
    let config = format!(
        "handover: {{ socket: /run/bench/handover.sock, fd_store: connections }}\n{CONFIG}"
    );
    let (mut bench, mut request) = (Bench::with(&config, LAST_SOURCE), REQUEST.to_vec());
    Box::new(move || bench.exchange(&mut request))
}

/// The GET of `exchange-get`, where the rule and the cluster have every policy for failures, and nothing fails.
fn policies_case() -> Box<dyn FnMut()> {
    let config = "
clusters:
  - name: upstream
    endpoints: [127.0.0.1:9000]
    checks: [{ http: { path: /healthz }, interval: 1h, interval_quiet: 1h }]
    outlier: { errors_5xx: 5, errors_gateway: 5, errors_local: 5, success_rate: {}, failure_percentage: {} }
    connections_max: 1024
    pending_max: 1024
    requests_max: 1024
    adaptive_concurrency: {}
    retry_budget: { share: 20%, at_least: 3 }
    requests_per_connection_max: 1000000
    timeouts: { connection_age: 1h }
access_log: { stage_times: false }
listeners:
  - name: bench
    address: 127.0.0.1:8080
    routes: all
    requests_max: 10000
    accept_rate: 5000
    http: { forwarded: off, request_id: false }
routes:
- name: all
  rules:
  - match: { prefix: / }
    cluster: upstream
    timeout: 3s
    retry:
      on: [gateway_error, reset, connect_failure, refused_stream, retriable_status]
      status: [429]
      try_timeout: 500ms
      reset_header: retry-after
      elsewhere: previous_endpoints
";
    let mut bench = Bench::with(config, LAST_SOURCE);
    let mut request = REQUEST.to_vec();
    Box::new(move || bench.exchange(&mut request))
}

/// What a rule matches, and the request that meets it, with its number for `NUMBER`.
type Rules = (&'static str, &'static str);

/// Rules on paths of their own.
const PATHS: Rules =
    ("prefix: /team-NUMBER/", "GET /team-NUMBER/bench HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n");

/// Rules on one path, each for a value of a header field.
const VALUES: Rules = (
    "prefix: /, headers: { x-team: team-NUMBER }",
    "GET /bench HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nx-team: team-NUMBER\r\n\r\n",
);

/// Rules with regular expressions.
const REGEXES: Rules = (
    "regex: '/team-NUMBER/[0-9]+/orders'",
    "GET /team-NUMBER/42/orders HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
);

/// The GET of `exchange-get`, for the last of so many rules.
fn rules_case((matched, request): Rules, rules: u32) -> Box<dyn FnMut()> {
    use std::fmt::Write as _;
    let with = |text: &str, number: u32| text.replace("NUMBER", &format!("{number:05}"));
    let mut config = String::from(
        "
clusters:
  - { name: upstream, endpoints: [127.0.0.1:9000] }
access_log: { stage_times: false }
listeners:
  - { name: bench, address: 127.0.0.1:8080, routes: all, http: { forwarded: off, request_id: false } }
routes:
- name: all
  rules:
",
    );
    for rule in 0..rules {
        let matched = with(matched, rule);
        writeln!(config, "  - {{ match: {{ {matched} }}, cluster: upstream }}")
            .expect("a string takes all");
    }
    let mut bench = Bench::with(&config, LAST_SOURCE);
    let mut request = with(request, rules - 1).into_bytes();
    Box::new(move || bench.exchange(&mut request))
}

/// A rule that uses all that rules can, for `METHOD`.
const EVERYTHING: &str = include_str!("../../configs/everything.yaml");

/// A GET with a field for [`EVERYTHING`], whose rule for this method stands before that of one prefix.
fn everything_case(method: &str) -> Box<dyn FnMut()> {
    let rule = match method {
        "" => String::new(),
        method => EVERYTHING.replace("METHOD", method),
    };
    let config = format!(
        "
access_log: {{ stage_times: false }}
listeners:
  - {{ name: bench, address: 127.0.0.1:8080, routes: all, http: {{ forwarded: off, request_id: false }} }}
clusters:
  - {{ name: upstream, balance: maglev, endpoints: [127.0.0.1:9000] }}
  - {{ name: other, balance: maglev, endpoints: [127.0.0.1:9000] }}
routes:
- name: all
  rules:
{rule}
      - {{ match: {{ prefix: / }}, cluster: upstream }}
"
    );
    let mut bench = Bench::with(&config, "127.0.0.1");
    let mut request = b"GET /bench HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nx-user: 7\r\n\r\n".to_vec();
    Box::new(move || bench.exchange(&mut request))
}

/// The case `choice-BALANCER-ENDPOINTS`.
fn choice_case_named(name: &str) -> Option<Box<dyn FnMut()>> {
    let (balancer, endpoints) = name.strip_prefix("choice-")?.rsplit_once('-')?;
    Some(choice_case(balancer, endpoints.parse().ok()?))
}

/// A GET of the cluster of so many endpoints, each of which has got some requests before.
fn choice_case(balancer: &str, endpoints: u32) -> Box<dyn FnMut()> {
    // The smallest table and ring of all sizes, so that both are as large as for many endpoints.
    let balance = match balancer {
        "maglev" => "{ maglev: { table: 524287 } }",
        "ring_hash" => "{ ring_hash: { size_min: 500000 } }",
        plain => plain,
    };
    let addresses = (0..endpoints).map(|number| {
        let ip = std::net::Ipv4Addr::from(0x0a01_0000 + number);
        format!("\"{ip}:9000\"")
    });
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    let config = format!(
        "
access_log: {{ stage_times: false }}
listeners:
  - {{ name: bench, address: 127.0.0.1:8080, routes: all, http: {{ forwarded: off, request_id: false }} }}
routes:
  - {{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: upstream, hash: [{{ header: x-user }}] }}] }}
clusters:
  - {{ name: upstream, balance: {balance}, connections_max: 100000, endpoints: [{addresses}] }}
"
    );
    let mut bench = Bench::with(&config, LAST_SOURCE);
    let mut user = 0_u32;
    let mut operation = move || {
        user = user.wrapping_add(1);
        let mut request =
            format!("GET /bench HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nx-user: {user}\r\n\r\n")
                .into_bytes();
        bench.exchange_among(&mut request);
    };
    (0..4 * endpoints).for_each(|_| operation());
    Box::new(operation)
}

/// A worker takes up a configuration with so many listeners in which one endpoint has changed.
fn change_case(listeners: u16) -> Box<dyn FnMut()> {
    use std::fmt::Write as _;
    let text = |endpoint: u16| {
        let mut text = format!(
            "
clusters:
  - {{ name: upstream, endpoints: [127.0.0.1:{endpoint}] }}
access_log: {{ stage_times: false }}
listeners:
"
        );
        for port in 1..=listeners {
            writeln!(
                text,
                "  - {{ name: l{port}, address: 127.0.0.1:{port}, protocol: tcp, cluster: upstream }}"
            )
            .expect("a string takes all");
        }
        text
    };
    changes_between(text(40_001), text(40_002))
}

/// A worker takes up one of two configurations after the other.
fn changes_between(one: String, other: String) -> Box<dyn FnMut()> {
    let mut loader = loader();
    // Each differs from the one before it as the first does from the last.
    let [first, second, third] = [&one, &other, &one]
        .map(|text| loader.load("bench.yaml", text).expect("a valid configuration"));
    let mut bench = Bench::of(first, "127.0.0.1");
    let mut next = [second, third].into_iter().cycle();
    Box::new(move || {
        black_box(&bench.reports);
        bench.proxy.on_snapshot(next.next().expect("it has no end"), bench.now);
        perform(&mut bench.proxy, &mut None, bench.now);
    })
}

/// A worker takes up a configuration with so many rules, in tables of a hundred, of which one has changed.
fn change_rule_case(rules: u32) -> Box<dyn FnMut()> {
    use std::fmt::Write as _;
    const TABLE_RULES: u32 = 100;
    let tables = rules / TABLE_RULES;
    let text = |timeout: u32| {
        let names: Vec<_> = (0..tables).map(|table| format!("t{table}")).collect();
        let names = names.join(", ");
        let mut text = format!(
            "
clusters:
  - {{ name: upstream, endpoints: [127.0.0.1:9000] }}
access_log: {{ stage_times: false }}
listeners: [{{ name: bench, address: 127.0.0.1:8080, routes: [{names}] }}]
routes:
"
        );
        for table in 0..tables {
            write!(text, "- name: t{table}\n  hosts: [h{table}.example]\n  rules:\n")
                .expect("a string takes all");
            for rule in 0..TABLE_RULES {
                let is_changed = table == tables / 2 && rule == TABLE_RULES / 2;
                let timeout = if is_changed { timeout } else { 30 };
                writeln!(
                    text,
                    "  - {{ match: {{ prefix: /r{rule}/ }}, cluster: upstream, timeout: {timeout}s }}"
                )
                .expect("a string takes all");
            }
        }
        text
    };
    changes_between(text(31), text(32))
}

fn loader() -> config::Loader<Box<dyn Filter>> {
    config::Loader::new(config::FilterKinds::new()).expect("no filter is defined twice")
}

/// A proxy between a client and an upstream.
struct Bench {
    proxy: Proxy,
    listener: ListenerId,
    source: PeerAddress,
    client: ConnKey,
    upstream: Option<ConnKey>,
    response: Vec<u8>,
    now: Time,
    /// The ends that control reads are kept, so that events cost as much as in the product.
    reports: telemetry::Reports,
}

impl Bench {
    fn new() -> Self {
        Self::with(CONFIG, "127.0.0.1")
    }

    /// A proxy with this configuration, and a client from this address.
    fn with(config: &str, source: &str) -> Self {
        Self::of(loader().load("bench.yaml", config).expect("a valid configuration"), source)
    }

    fn of(snapshot: Arc<Snapshot>, source: &str) -> Self {
        let listener = snapshot.listeners.first().expect("the configuration has one").id;
        let share = Share { worker: 0, workers: 1 };
        let settings = Settings { share, seed: 1, bells: Bells::new(1) };
        let now = Time::from_nanos(1_000_000_000);
        let (emitter, reports) = Emitter::new(1 << 16);
        let mut proxy = Proxy::new(settings, snapshot, emitter, now);
        let source = SocketAddr::new(source.parse().expect("an address"), 40000).into();
        let client = accept(&mut proxy, listener, &source, now);
        let (upstream, response) = (None, response());
        Self { proxy, listener, source, client, upstream, response, now, reports }
    }

    /// A connection, with a request that is answered from here, to its end.
    fn connection(&mut self, request: &mut [u8]) {
        black_box(&self.reports);
        self.now = self.now + std::time::Duration::from_micros(10);
        let client = accept(&mut self.proxy, self.listener, &self.source, self.now);
        self.proxy.on_received(client, black_box(request), self.now);
        perform(&mut self.proxy, &mut None, self.now);
        self.proxy.on_read_closed(client, self.now);
        perform(&mut self.proxy, &mut None, self.now);
        assert_eq!(self.proxy.load().connections, 1, "only the first connection is left");
    }

    /// A request, and its response.
    fn exchange(&mut self, request: &mut [u8]) {
        black_box(&self.reports);
        self.now = self.now + std::time::Duration::from_micros(10);
        self.proxy.on_received(self.client, black_box(request), self.now);
        perform(&mut self.proxy, &mut self.upstream, self.now);
        let upstream = self.upstream.expect("the proxy connected");
        self.proxy.on_received(upstream, black_box(&mut self.response), self.now);
        perform(&mut self.proxy, &mut None, self.now);
        let load = self.proxy.load();
        let over = (load.exchanges, load.connections, load.idle);
        assert_eq!(over, (0, 2, 1), "the exchange is over, and both connections stay");
    }

    /// The same where the cluster has several endpoints: each has its connection, which stays.
    fn exchange_among(&mut self, request: &mut [u8]) {
        black_box(&self.reports);
        self.now = self.now + std::time::Duration::from_micros(10);
        self.proxy.on_received(self.client, black_box(request), self.now);
        let upstream = perform_among(&mut self.proxy, self.now).expect("a connection was chosen");
        self.proxy.on_received(upstream, black_box(&mut self.response), self.now);
        perform(&mut self.proxy, &mut None, self.now);
        let load = self.proxy.load();
        assert_eq!(load.exchanges, 0, "the exchange is over");
        assert_eq!(load.connections, load.idle + 1, "and its connection is idle");
    }
}

/// A client connects.
fn accept(proxy: &mut Proxy, listener: ListenerId, source: &PeerAddress, now: Time) -> ConnKey {
    let local = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], 8080)));
    proxy.on_accepted(listener, source.clone(), local, None, now).expect("there is room")
}

/// As [`perform`], of a request. Gives the connection that it was sent over.
fn perform_among(proxy: &mut Proxy, now: Time) -> Option<ConnKey> {
    let mut upstream = None;
    while let Some(op) = proxy.poll_op(now) {
        match op {
            Op::Send(key) => {
                upstream = Some(key);
                send(proxy, key, now);
            }
            Op::Connect { connection, .. } => proxy.on_connected(connection, Ok(()), now),
            _ => {}
        }
    }
    upstream
}

/// Sends all that waits on a connection.
#[inline]
fn send(proxy: &mut Proxy, key: ConnKey, now: Time) {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = proxy.unsent(key, &mut slices);
    let sent = slices.iter().take(count).map(|slice| slice.len()).sum();
    proxy.on_sent(key, sent, now, now);
}

/// Does what the proxy asks for, as a kernel would that takes everything at once.
fn perform(proxy: &mut Proxy, upstream: &mut Option<ConnKey>, now: Time) {
    while let Some(op) = proxy.poll_op(now) {
        match op {
            Op::Send(key) => send(proxy, key, now),
            Op::Connect { connection, .. } => {
                *upstream = Some(connection);
                proxy.on_connected(connection, Ok(()), now);
            }
            _ => {}
        }
    }
}
