//! Memory of connections and requests, counted by the allocator.
//!
//! The world here is not the simulated network, which has memory of its own, but one that has
//! everything before the counting begins: every client sends the same request whenever it is its
//! turn, and every service gives the same answer.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the test's own world stops where it is wrong"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use config::snapshot::Address;
use config::{FilterKinds, Loader};
use proxy::filter::Filter;
use proxy::time::Time;
use proxy::{Bells, ConnKey, ConnectOptions, Proxy, Settings, Share};
use telemetry::{Emitter, LOG_QUEUE_BYTES, LogFormat, LogReader, LogStyle};
use worker::{
    AcceptError, Accepted, ConnectError, ConnectState, Event, Mailboxes, Ready, Spliced, Worker,
    World,
};

/// Bytes that an idle connection may cost: the published figure of 400 bytes for a process is more
/// than this, because the kernel's descriptor table and the allocator's own needs are in it. Each
/// connection here comes from an address of its own, for which the table of clients has 24 bytes.
const CONNECTION_BYTES_MAX: i64 = 360;

/// Passes everything on to the system's allocator, and counts what this thread asks for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: i64) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: every call goes to the system's allocator as it came, and its answer back.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller keeps to the contract of this same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(1, signed(bytes) - signed(layout.size()));
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONFIGURATION: &str = "
admin: { address: 127.0.0.1:9901 }
workers: 1
limits: { connections_max: 2000000 }
listeners:
  - name: edge
    address: 10.0.0.1:80
    connections_max: 2000000
    timeouts: { idle: 1h }
    routes: all
routes:
  - name: all
    rules:
      - { match: { path: /healthz }, respond: { body: ok } }
      - { match: { prefix: / }, cluster: service }
clusters:
  - name: service
    endpoints: [10.1.0.0:9000, 10.1.0.1:9000]
    timeouts: { idle: 1h }
";

/// A connection, by its place in the world's table.
#[derive(Debug)]
struct Socket(usize);

/// The state of one connection.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    key: Option<ConnKey>,
    is_client: bool,
    /// Whether its message is there to be read.
    has_message: bool,
}

/// A world of clients that send a request when the test asks, and services that answer at once.
#[derive(Debug)]
struct Stage {
    now: u64,
    ends: Vec<End>,
    events: VecDeque<Event>,
    request: &'static [u8],
    response: &'static [u8],
    /// Clients that are still to connect; each asks once when it has.
    clients: usize,
    /// Requests that are still to be sent, one after the other, each by the next client.
    requests: u64,
    next: usize,
    answered: u64,
}

impl Stage {
    /// A world with room for so many connections, so that it needs no memory later.
    fn new(ends_max: usize, request: &'static [u8], response: &'static [u8]) -> Self {
        Self {
            now: 1_000_000_000,
            ends: Vec::with_capacity(ends_max),
            events: VecDeque::with_capacity(1_024),
            request,
            response,
            clients: 0,
            requests: 0,
            next: 0,
            answered: 0,
        }
    }

    /// The peer at this connection sends its message.
    fn say(&mut self, place: usize) {
        let end = &mut self.ends[place];
        end.has_message = true;
        if let Some(key) = end.key {
            let ready = Ready { is_readable: true, is_writable: true, ..Ready::default() };
            self.events.push_back(Event::Socket { key, ready });
        }
    }

    fn ask_next(&mut self) {
        self.requests -= 1;
        let count = self.ends.len();
        let mut others = (1..=count).map(|step| (self.next + step) % count);
        self.next = others.find(|place| self.ends[*place].is_client).unwrap();
        self.say(self.next);
    }
}

impl World for Stage {
    type Socket = Socket;
    type Listener = ();

    const SPLICE_BYTES_MIN: usize = 64 << 10;

    fn now(&mut self) -> Time {
        self.now += 100;
        Time::from_nanos(self.now)
    }

    fn wall_clock(&mut self) -> u64 {
        self.now
    }

    fn give_way(&mut self) {}

    fn wake(&mut self, _workers: u64) {}

    fn wait(&mut self, _until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        if self.events.is_empty() && self.requests > 0 {
            self.ask_next();
        }
        if self.clients > 0 {
            events.push(Event::Accept(0));
        }
        events.extend(self.events.drain(..));
        Ok(())
    }

    fn watch_listener(&mut self, (): &(), _token: u32) -> io::Result<()> {
        Ok(())
    }

    fn unwatch_listener(&mut self, (): &()) {}

    fn listens_at(&self, (): &(), _: &Address) -> bool {
        true
    }

    fn accept(&mut self, (): &()) -> Result<Option<Accepted<Socket>>, AcceptError> {
        if self.clients == 0 {
            return Ok(None);
        }
        self.clients -= 1;
        let place = self.ends.len();
        self.ends.push(End { is_client: true, ..End::default() });
        let ip = Ipv4Addr::from(u32::try_from(place).unwrap() | 10 << 24);
        let (peer, local) = (SocketAddr::from((ip, 1024)), SocketAddr::from(([10, 0, 0, 1], 80)));
        let socket = Socket(place);
        Ok(Some(Accepted { socket, peer: Some(peer), local: Some(local), original: None }))
    }

    fn peer_address(&self, _: &Socket) -> io::Result<Option<SocketAddr>> {
        Ok(None)
    }

    fn connect(
        &mut self,
        _address: &Address,
        _options: &ConnectOptions,
    ) -> Result<(Socket, ConnectState), ConnectError> {
        self.ends.push(End::default());
        Ok((Socket(self.ends.len() - 1), ConnectState::Connected))
    }

    fn watch(&mut self, socket: &Socket, key: ConnKey) -> io::Result<()> {
        self.ends[socket.0].key = Some(key);
        if self.ends[socket.0].is_client {
            self.say(socket.0);
        }
        Ok(())
    }

    fn watch_reads(&mut self, socket: &Socket, key: ConnKey) -> io::Result<()> {
        self.watch(socket, key)
    }

    fn watch_writes(&mut self, _socket: &Socket, _key: ConnKey) -> io::Result<()> {
        Ok(())
    }

    fn unwatch(&mut self, _socket: &Socket) {}

    fn take_error(&mut self, _socket: &Socket) -> io::Result<()> {
        Ok(())
    }

    fn recv(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        let end = &mut self.ends[socket.0];
        if !std::mem::take(&mut end.has_message) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let message = if end.is_client { self.request } else { self.response };
        buffer[..message.len()].copy_from_slice(message);
        Ok(message.len())
    }

    fn send(&mut self, socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Every message here is sent whole at once.
        if self.ends[socket.0].is_client {
            self.answered += 1;
        } else {
            self.say(socket.0);
        }
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn splice(&mut self, _: &Socket, _: &Socket, _: &mut [u8]) -> io::Result<Spliced> {
        Err(ErrorKind::Unsupported.into())
    }

    fn undelivered(&mut self, _socket: &Socket) -> usize {
        0
    }

    fn shutdown_write(&mut self, _socket: &Socket) {}

    fn shutdown(&mut self, _socket: &Socket) {}

    fn abort(&mut self, _socket: &Socket) {}

    fn reset(&mut self, _socket: Socket) {}
}

/// A worker in such a world, and the reader of its log.
struct Bench {
    worker: Worker<Stage>,
    log: LogReader,
    lines: Vec<u8>,
    allocations: u64,
    bytes: i64,
    _reports: std::sync::mpsc::Receiver<worker::Report>,
}

impl Bench {
    fn new(stage: Stage, access_log: &str) -> Self {
        Self::with(stage, CONFIGURATION, access_log)
    }

    fn with(stage: Stage, configuration: &str, access_log: &str) -> Self {
        let mut loader = Loader::new(FilterKinds::<Box<dyn Filter>>::new()).unwrap();
        let text = format!("{configuration}{access_log}");
        let snapshot = loader.load("memory.yaml", &text).unwrap_or_else(|e| panic!("{e}"));
        let id = snapshot.listeners[0].id;
        let (emitter, reports) = Emitter::new(LOG_QUEUE_BYTES);
        let mut log = LogReader::new();
        log.set_style(Some(LogStyle::all(LogFormat::Json)));
        log.add_worker(reports.records);
        let share = Share { worker: 0, workers: 1 };
        let settings = Settings { share, seed: 1, bells: Bells::new(1) };
        let proxy = Proxy::new(settings, snapshot, emitter, Time::from_nanos(stage.now));
        let (mut mailboxes, _reports) = Mailboxes::new(1);
        let mailbox = mailboxes.mailboxes.pop().unwrap();
        let settings = worker::Settings {
            stage_times: true,
            group_part_max: worker::GROUP_PART_MAX,
            accepts: true,
        };
        let worker = Worker::new(stage, proxy, vec![(id, ())], mailbox, settings).unwrap();
        Self { worker, log, lines: Vec::new(), allocations: 0, bytes: 0, _reports }
    }

    /// Turns until so many requests have been answered, and counts what only the worker does.
    fn turn_until(&mut self, answered: u64) {
        while self.worker.world().answered < answered {
            let (allocations, bytes) = (ALLOCATIONS.get(), LIVE_BYTES.get());
            assert!(self.worker.turn().unwrap());
            self.allocations += ALLOCATIONS.get() - allocations;
            self.bytes += LIVE_BYTES.get() - bytes;
            self.lines.clear();
            self.log.poll(0, &mut self.lines, usize::MAX);
        }
    }

    fn add_clients(&mut self, count: usize) {
        self.worker.world().clients = count;
        let answered = self.worker.world().answered + count as u64;
        self.turn_until(answered);
    }

    fn add_requests(&mut self, count: u64) {
        self.worker.world().requests = count;
        let answered = self.worker.world().answered + count;
        self.turn_until(answered);
    }
}

const GET: &[u8] = b"GET /things/1?a=b HTTP/1.1\r\nHost: memory.example\r\nUser-Agent: test\r\n\
    Accept: */*\r\n\r\n";
const POST: &[u8] = b"POST /things HTTP/1.1\r\nHost: memory.example\r\nContent-Length: 11\r\n\r\n\
    Hello there";
const CHUNKED: &[u8] = b"PUT /things HTTP/1.1\r\nHost: memory.example\r\n\
    Transfer-Encoding: chunked\r\n\r\nb\r\nHello there\r\n0\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";
const OK_CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    5\r\nhello\r\n0\r\n\r\n";

#[test]
fn steady_state_allocates_nothing() {
    for access_log in ["", "access_log: { output: stdout, format: json }"] {
        for (request, response) in
            [(GET, OK), (POST, OK), (CHUNKED, OK), (GET, OK_CHUNKED), (CHUNKED, OK_CHUNKED)]
        {
            let mut bench = Bench::new(Stage::new(1_000, request, response), access_log);
            bench.add_clients(100);
            bench.add_requests(1_000);
            let before = bench.allocations;
            assert!(before > 0, "the counter counts");
            bench.add_requests(20_000);
            let allocations = bench.allocations - before;
            let request = request.escape_ascii();
            assert_eq!(allocations, 0, "{request} with {access_log:?}");
        }
    }
}

/// A rule that asks for all that a rule can, and then chooses by all that a request has.
const MATCHED: &str = r#"
runtime: { most: 99.9999 }
listeners: [{ name: edge, address: "10.0.0.1:80", timeouts: { idle: 1h }, routes: all }]
routes:
  - name: all
    rules:
      - { match: { regex: "/users/([0-9]+)" }, cluster: web }
      - match:
          prefix: /things/
          methods: [GET, HEAD]
          headers: { user-agent: { prefix: te }, x-none: { present: false }, accept: { regex: "[*]/.*" }, x-tags: { contains: b } }
          query: { a: { regex: "[a-z]+" }, c: "d e" }
          cookies: { sess: { not: none } }
          sources: { not: [10.99.0.0/16] }
          grpc: false
          fraction: { percent: 1, runtime: most }
        clusters:
          - { cluster: web, weight: 3, headers: { request: { append: { x-share: "%UPSTREAM_CLUSTER%" } } } }
          - { cluster: web, weight: 1, headers: { response: { append: { x-share: "%UPSTREAM_HOST% %REQ(x-unit)%" } } } }
        headers:
          request:
            remove: [accept]
            set: { x-client: "%DOWNSTREAM_REMOTE_ADDRESS% %START_TIME%", x-line: "%REQ(:method)% %REQ(:path)% %PROTOCOL%" }
            set_if_present: { x-tags: "%REQ(x-none?x-tags):4%" }
            append_if_absent: { x-new: new }
          response: { set: { x-facts: "%REQ(user-agent)% %RESP(content-length)% %RESPONSE_CODE% %DURATION%" } }
        sticky: { header: user-agent }
        rewrite: { prefix: /v2/, host: api.internal }
        hash: [{ cookie: { name: sess, ttl: 1h } }, { header: x-tags }, { query: a }, { constant: c }, client_ip]
        subset: { version: v2, unit: { header: x-unit } }
      - { match: { prefix: / }, respond: { status: 404 } }
clusters:
  - name: web
    balance: BALANCE
    subsets: { by: [[version, unit]] }
    endpoints:
      - { address: "10.1.0.0:9000", metadata: { version: v2, unit: a } }
      - { address: "10.1.0.1:9000", metadata: { version: v2, unit: a } }
      - { address: "10.1.0.2:9000", metadata: { version: v2, unit: b } }
"#;
const MATCHING: &[u8] =
    b"GET /things/1?a=b&c=d%20e HTTP/1.1\r\nHost: memory.example\r\nUser-Agent: test\r\n\
    Accept: */*\r\nX-Tags: a\r\nX-Tags: b\r\nX-Unit: a\r\nCookie: sess=1; b=2\r\n\r\n";

#[test]
fn criteria_and_choices_allocate_nothing() {
    for balance in ["round_robin", "least_request", "maglev", "{ ring_hash: { load_max: 150 } }"] {
        let configuration = MATCHED.replace("BALANCE", balance);
        let mut bench = Bench::with(Stage::new(1_000, MATCHING, OK), &configuration, "");
        bench.add_clients(100);
        bench.add_requests(1_000);
        let (before, connected) = (bench.allocations, bench.worker.world().ends.len());
        assert!(connected > 100, "requests are forwarded: {connected}");
        bench.add_requests(20_000);
        assert_eq!(bench.allocations - before, 0, "{balance}");
    }
}

/// A cluster of so many endpoints, each with the next of a hundred units.
fn with_endpoints(endpoints: u32, options: &str) -> String {
    let line = |number: u32| {
        let unit = number % 100;
        let ip = Ipv4Addr::from(0x0a01_0000 + number);
        format!("{{ address: \"{ip}:9000\", metadata: {{ unit: u{unit} }} }}")
    };
    let endpoints: Vec<_> = (0..endpoints).map(line).collect();
    let endpoints = endpoints.join(", ");
    format!(
        "listeners: [{{ name: a, address: 10.0.0.1:80, protocol: tcp, cluster: web }}]\n\
         clusters: [{{ name: web, {options} endpoints: [{endpoints}] }}]\n"
    )
}

/// Bytes that a configuration keeps, without what reading it took.
fn bytes_of(configuration: &str) -> (i64, Arc<proxy::Snapshot>) {
    let mut loader = Loader::<Box<dyn Filter>>::new(FilterKinds::new()).unwrap();
    let before = LIVE_BYTES.get();
    let snapshot = loader.load("memory.yaml", configuration).unwrap();
    (LIVE_BYTES.get() - before, snapshot)
}

/// What an option of a cluster of a thousand endpoints keeps beside what the same keeps without it.
fn bytes_beside(option: &str, plain: &str) -> i64 {
    let (plain, _) = bytes_of(&with_endpoints(1_000, plain));
    let (with, _) = bytes_of(&with_endpoints(1_000, option));
    with - plain
}

#[test]
fn a_hundred_subsets_of_a_thousand_endpoints_take_little() {
    let bytes = bytes_beside("subsets: { by: [[unit]] },", "");
    println!("100 subsets of 1,000 endpoints: {bytes} bytes");
    assert!((1..=64 << 10).contains(&bytes), "{bytes} bytes");
}

#[test]
fn workers_share_the_table_of_maglev() {
    const TABLE: i64 = 4 * 65_537;
    let bytes = bytes_beside("balance: { maglev: { table: 65537 } },", "");
    println!("a table of 65,537 entries: {bytes} bytes");
    assert!((TABLE..TABLE + 1024).contains(&bytes), "{bytes} bytes");
    // What eight workers have of their own.
    let (_, snapshot) = bytes_of(&with_endpoints(1_000, "balance: { maglev: { table: 65537 } },"));
    let workers = 8;
    let before = LIVE_BYTES.get();
    let mut proxies = Vec::new();
    for worker in 0..workers {
        let settings =
            Settings { share: Share { worker, workers }, seed: 1, bells: Bells::new(workers) };
        let (emitter, reports) = Emitter::new(1 << 10);
        let proxy = Proxy::new(settings, Arc::clone(&snapshot), emitter, Time::from_nanos(1));
        proxies.push((proxy, reports));
    }
    let each = (LIVE_BYTES.get() - before) / i64::from(workers);
    println!("a worker beside it: {each} bytes");
    assert!(each < TABLE / 2, "{each} bytes of each of {} workers", proxies.len());
}

#[test]
fn idle_connections_cost_memory_linearly() {
    let mut bench = Bench::new(Stage::new(1_100_000, GET, OK), "");
    let mut costs = Vec::new();
    let mut former = (0, bench.bytes);
    for count in [100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000] {
        bench.add_clients(count - former.0);
        let (added, bytes) = (count - former.0, bench.bytes - former.1);
        let cost = bytes / signed(added);
        println!("{count:>9} idle connections: {:>12} bytes, {cost} for each more", bench.bytes);
        costs.push(cost);
        former = (count, bench.bytes);
    }
    let (least, most) = (*costs.iter().min().unwrap(), *costs.iter().max().unwrap());
    assert!(most * 100 <= least * 115, "from {least} to {most} bytes a connection");
    assert!(most <= CONNECTION_BYTES_MAX, "{most} bytes a connection");
}
