//! A proxy, and the peers that talk to it by script.
//!
//! The kit plays the worker and the kernel: what a peer says waits until the proxy reads it, what
//! the proxy sends can be heard. Every conversation is held several times: as it stands, byte by
//! byte, and with every connection saved, sent through the frames of a handover and restored into
//! another proxy, under another configuration with other ids, between any two events. No peer may
//! notice.

#[expect(unreachable_pub, reason = "others include it, too")]
#[path = "../../../wire/tests/rpc/pico.rs"]
pub(crate) mod pico;

#[path = "handover.rs"]
mod handover;

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use config::checks::{CheckResult, CheckTask, Checker};
use config::memory::MemoryPressure;
use config::outlier::{Detector, Event, Happened};
use config::snapshot::{Address, EndpointId};
use proxy::SkipHandshake as _;
use proxy::filter::{Filter, Question};
use proxy::save::{
    BalancingPlace, ClusterBalancing, GroupMax, NotSaved, RestoreError, Saved, Saving, Unmovable,
};
use proxy::time::Time;
use proxy::{
    Bells, ConnKey, ConnectFailure, ExchangeKey, Load, Op, PeerAddress, Proxy, SLICES_MAX,
    Settings, Share, Snapshot,
};
use telemetry::cause::Cause;
use telemetry::{
    Collector, Emitter, EndpointTotals, FailureWarning, LogField, LogFormat, LogReader, LogStyle,
    Names, ProcessFacts, RouteNames,
};
use wiped::Pieces;
use wire::tls::record::RecordLayer;

/// How a conversation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// As the script has it.
    Plain,
    /// Everything that peers say comes byte by byte.
    ByteByByte,
    /// Connections move to another proxy between any two events.
    Moving,
}

/// Holds a conversation in every variant.
pub(crate) fn hold(config: &str, script: impl Fn(&mut Talk<'_>)) {
    hold_with(config, kinds_of_ours, script);
}

/// As [`hold`], with filters of the test's own.
pub(crate) fn hold_with(config: &str, kinds: Kinds, script: impl Fn(&mut Talk<'_>)) {
    hold_setting(&Setting::new(config, kinds, &Files::default()), script);
}

/// Holds a conversation whose configuration names files.
pub(crate) fn hold_with_files(config: &str, files: &Files, script: impl Fn(&mut Talk<'_>)) {
    hold_setting(&Setting::new(config, kinds_of_ours, files), script);
}

fn hold_setting(setting: &Setting, script: impl Fn(&mut Talk<'_>)) {
    for variant in [Variant::Plain, Variant::ByteByByte, Variant::Moving] {
        // Shown if the script fails.
        println!("in variant {variant:?}");
        let mut talk = Talk::new(setting, variant);
        script(&mut talk);
        talk.assert_at_rest();
    }
}

/// The files that configurations name, read in 2026.
#[derive(Clone, Debug)]
pub(crate) struct Files(config::outside::Memory);

impl Default for Files {
    fn default() -> Self {
        Self(config::outside::Memory::new(1_780_000_000))
    }
}

impl Files {
    pub(crate) fn insert(&mut self, path: &str, content: &[u8]) {
        self.0.insert(path, content);
    }
}

/// The filters that a configuration may name.
pub(crate) type Kinds = fn() -> config::FilterKinds<Box<dyn Filter>>;

/// A configuration, under one set of ids and under another.
pub(crate) struct Setting {
    config: String,
    files: Files,
    kinds: Kinds,
    snapshots: [(Arc<Snapshot>, Arc<Names>); 2],
}

impl Setting {
    /// Without filters.
    pub(crate) fn of(config: &str) -> Self {
        Self::with(config, kinds_of_ours)
    }

    /// With filters of the test's own.
    pub(crate) fn with(config: &str, kinds: Kinds) -> Self {
        Self::new(config, kinds, &Files::default())
    }

    fn new(config: &str, kinds: Kinds, files: &Files) -> Self {
        let has_log = config.contains("\naccess_log:");
        let log = if has_log { "" } else { "access_log: { output: stdout }\n" };
        let config = format!("{config}{log}");
        let snapshots = [&[&config[..]][..], &[FORMER, &config]].map(|texts| {
            let mut loader = loader(&config, kinds());
            let mut load = |text| {
                let loaded = loader.load_with("test.yaml", text, &files.0);
                loaded.unwrap_or_else(|errors| panic!("{errors}"))
            };
            let snapshot = texts.iter().map(|text| load(text)).last().expect("there is a text");
            let names = names_of(&snapshot);
            (snapshot, names)
        });
        Self { config, files: files.clone(), kinds, snapshots }
    }
}

/// A loader for this configuration and others: one that says how long requests wait for clusters has a source that is asked
/// for these on demand.
fn loader(
    config: &str,
    kinds: config::FilterKinds<Box<dyn Filter>>,
) -> config::Loader<Box<dyn Filter>> {
    let mut loader = config::Loader::new(kinds).expect("the schema is one of ours");
    if config.contains("on_demand_timeout") {
        loader.expect_sources();
        loader.expect_demands();
    }
    loader
}

fn names_of(snapshot: &Snapshot) -> Arc<Names> {
    let mut names = Names::default();
    for listener in &snapshot.listeners {
        names.insert_listener(label(listener.id.0), Arc::clone(&listener.name));
    }
    for (id, cluster) in snapshot.clusters.iter() {
        names.insert_cluster(label(id), Arc::clone(&cluster.name));
    }
    for (id, table) in snapshot.route_tables.iter() {
        let rules = table.rules.iter().map(|rule| (rule.slot.number(), rule.label()));
        names.insert_route(label(id), RouteNames::new(Arc::clone(&table.name), rules, []));
    }
    Arc::new(names)
}

fn kinds_of_ours() -> config::FilterKinds<Box<dyn Filter>> {
    let mut kinds = config::FilterKinds::new();
    kinds.register_protocol(&pico::Pico);
    kinds.register_protocol(&wire::rpc::bolt::Bolt);
    kinds
}

/// A proxy and its peers.
pub(crate) struct Talk<'s> {
    setting: &'s Setting,
    proxy: Proxy,
    retired: usize,
    /// Connections that were closed for what their listener's clients held, by looks.
    overflows: Vec<u32>,
    log: LogReader,
    /// The counters of this proxy, and of those before it if they are kept.
    counts: Vec<Collector>,
    keeps_counts: bool,
    pub(crate) now: Time,
    variant: Variant,
    /// Bytes of what peers say that come at a time; 0 for all.
    piece_bytes: usize,
    /// The loader for further configurations, once there are any.
    loader: Option<config::Loader<Box<dyn Filter>>>,
    /// The latest configuration, and who ejects its endpoints.
    snapshot: Arc<Snapshot>,
    detector: Detector,
    /// How checks ended.
    checked: Vec<(u64, CheckResult)>,
    /// Endpoints that said so.
    failed_themselves: Vec<EndpointId>,
    /// What that one did, and was not asked for yet.
    detected: Vec<Event>,
    moves: u32,
    is_draining: bool,
    /// Whether the worker always has something else to do.
    is_busy: bool,
    /// Whether all that happens does in one turn of a worker.
    is_one_turn: bool,
    peers: Vec<PeerState>,
    /// Where clients come from.
    address: IpAddr,
    asked: Vec<(ExchangeKey, Question)>,
    lines: String,
    /// Lines of the debug log that were not asked for yet.
    debug: Vec<String>,
}

/// One peer of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(usize);

struct PeerState {
    key: Option<ConnKey>,
    /// Where a client connects from.
    from: Option<PeerAddress>,
    /// Where the proxy connects to, for upstreams.
    address: Option<Address>,
    /// The mark of the connection to it.
    mark: Option<u32>,
    is_connecting: bool,
    /// Said, and not read yet.
    said: Vec<u8>,
    has_ended: bool,
    is_end_told: bool,
    /// Heard, and not looked at yet.
    heard: Vec<u8>,
    /// Bytes that it takes before it has to be emptied.
    room: usize,
    is_shut: bool,
    is_closed: bool,
    /// Bytes that were sent and are in the kernel.
    undelivered: usize,
    is_reset: bool,
}

impl<'s> Talk<'s> {
    /// A conversation that is about to begin.
    pub(crate) fn new(setting: &'s Setting, variant: Variant) -> Self {
        let now = Time::from_nanos(1_000_000_000);
        let mut log = log_reader();
        let (proxy, counts) = fresh_proxy(setting, 0, &mut log, now);
        let mut detector = Detector::default();
        let snapshot = Arc::clone(&setting.snapshots[0].0);
        detector.on_snapshot(&snapshot, now - Time::from_nanos(0));
        Self {
            setting,
            proxy,
            retired: 0,
            overflows: Vec::new(),
            log,
            counts: vec![counts],
            keeps_counts: false,
            now,
            variant,
            piece_bytes: 0,
            loader: None,
            snapshot,
            detector,
            checked: Vec::new(),
            failed_themselves: Vec::new(),
            detected: Vec::new(),
            moves: 0,
            is_draining: false,
            is_busy: false,
            is_one_turn: false,
            peers: Vec::new(),
            address: IpAddr::from([192, 0, 2, 7]),
            asked: Vec::new(),
            lines: String::new(),
            debug: Vec::new(),
        }
    }

    /// How this conversation is held, where a test cannot be the same in all variants.
    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    /// Says that the conversation ends here in this variant, for what the place names.
    pub(crate) fn leave_out(&self) {
        println!("the remainder is left out in variant {:?}", self.variant);
    }

    // Downstream peers.

    /// Clients that connect from now on have this address.
    pub(crate) fn comes_from(&mut self, address: &str) {
        self.address = address.parse().expect("an address");
    }

    /// A client connects to the first listener.
    pub(crate) fn client(&mut self) -> Peer {
        self.try_client().expect("the proxy takes the connection")
    }

    /// A client of the first listener that has a handshake of TLS behind it, which left this to the
    /// proxy.
    pub(crate) fn client_behind(&mut self, records: RecordLayer) -> Peer {
        let peer = self.client();
        let key = self.peers[peer.0].key.expect("it is open");
        self.proxy.begin_records(key, records, self.now);
        peer
    }

    /// An upstream that the proxy connects to and that has a handshake of TLS behind it, which left this to the proxy.
    pub(crate) fn upstream_behind(&mut self, records: RecordLayer) -> Peer {
        let peer = self.connecting();
        let key = self.peers[peer.0].key.expect("it is open");
        self.proxy.begin_records(key, records, self.now);
        self.establish(peer);
        peer
    }

    /// A client of the first listener that was going to `original`.
    pub(crate) fn intercepted(&mut self, original: &str) -> Peer {
        let original = original.parse().expect("an address");
        self.accept(0, Some(original)).expect("the proxy takes the connection")
    }

    /// A client connects to the listener at this place of the configuration.
    pub(crate) fn client_of(&mut self, listener: usize) -> Peer {
        self.accept(listener, None).expect("the proxy takes the connection")
    }

    /// A client tries to connect to the first listener.
    pub(crate) fn try_client(&mut self) -> Option<Peer> {
        self.accept(0, None)
    }

    fn accept(&mut self, listener: usize, original: Option<SocketAddr>) -> Option<Peer> {
        let listener = self.proxy.snapshot().listeners[listener].id;
        let peer = PeerAddress::from(SocketAddr::new(self.address, 40_000));
        let local = original.unwrap_or_else(|| "198.51.100.1:8080".parse().unwrap());
        let local = PeerAddress::from(local);
        let from = Some(peer.clone());
        let key = self.proxy.on_accepted(listener, peer, local, original, self.now)?;
        let client = Peer(self.peers.len());
        self.peers.push(PeerState { from, ..PeerState::new(Some(key), None) });
        // The proxy may call an upstream at once.
        self.settle();
        Some(client)
    }

    // Upstream peers.

    /// The upstream that the proxy connects to next; the connection is established.
    pub(crate) fn upstream(&mut self) -> Peer {
        let peer = self.connecting();
        self.establish(peer);
        peer
    }

    /// The upstream that the proxy tries to connect to; nothing is decided yet.
    pub(crate) fn connecting(&self) -> Peer {
        let found = self.peers.iter().zip(0..).find(|(peer, _)| peer.is_connecting);
        let (_, place) = found.expect("the proxy connects to an upstream");
        Peer(place)
    }

    /// Whether the proxy tries to connect to an upstream.
    pub(crate) fn is_connecting(&self) -> bool {
        self.peers.iter().any(|peer| peer.is_connecting)
    }

    /// The connection is established.
    pub(crate) fn establish(&mut self, peer: Peer) {
        let state = &mut self.peers[peer.0];
        state.is_connecting = false;
        let key = state.key.unwrap();
        self.proxy.on_connected(key, Ok(()), self.now);
        self.settle();
    }

    /// The connection is refused.
    pub(crate) fn refuse(&mut self, peer: Peer) {
        let state = &mut self.peers[peer.0];
        state.is_connecting = false;
        let key = state.key.unwrap();
        let failure = ConnectFailure { cause: Cause::ConnectFailed, errno: "ECONNREFUSED" };
        self.proxy.on_connected(key, Err(failure), self.now);
        self.settle();
    }

    /// The address that this upstream was called by.
    pub(crate) fn address(&self, peer: Peer) -> &Address {
        self.peers[peer.0].address.as_ref().expect("an upstream has an address")
    }

    /// The mark of the connection to this upstream.
    pub(crate) fn mark(&self, peer: Peer) -> Option<u32> {
        self.peers[peer.0].mark
    }

    // Actions of peers.

    /// The peer says something.
    pub(crate) fn says(&mut self, peer: Peer, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let piece_bytes = match (self.variant, self.piece_bytes) {
            (Variant::ByteByByte, _) => 1,
            (Variant::Plain | Variant::Moving, 0) => text.len().max(1),
            (Variant::Plain | Variant::Moving, bytes) => bytes.max(text.len() / PIECES_MAX),
        };
        for piece in text.chunks(piece_bytes) {
            self.peers[peer.0].said.extend_from_slice(piece);
            self.settle();
        }
    }

    /// From now on, the peers' bytes come in pieces of this size, or whole if it is 0.
    pub(crate) fn cuts(&mut self, piece_bytes: usize) {
        self.piece_bytes = piece_bytes;
    }

    /// Peers say something so close together that the proxy reads it all before it sends anything.
    pub(crate) fn say_together(&mut self, words: &[(Peer, &str)]) {
        for (peer, text) in words {
            let key = self.peers[peer.0].key.expect("the connection is open");
            assert!(self.proxy.read_bytes_max(key) >= text.len(), "the proxy reads");
            self.proxy.on_received(key, &mut text.as_bytes().to_vec(), self.now);
        }
        self.settle();
    }

    /// The peer says nothing more (FIN).
    pub(crate) fn ends(&mut self, peer: Peer) {
        self.peers[peer.0].has_ended = true;
        self.settle();
    }

    /// The kernel reports that both sides have ended, or that the connection is broken, and the
    /// proxy does not reads.
    pub(crate) fn hangs_up(&mut self, peer: Peer) {
        if let Some(key) = self.peers[peer.0].key {
            assert_eq!(self.proxy.read_bytes_max(key), 0, "the proxy does not read");
            self.proxy.on_hangup(key, self.now);
        }
        self.settle();
    }

    /// The peer resets the connection.
    pub(crate) fn breaks(&mut self, peer: Peer) {
        if let Some(key) = self.peers[peer.0].key {
            self.proxy.on_broken(key, "ECONNRESET", self.now);
        }
        self.settle();
    }

    /// The kernel takes no more bytes for the peer. What it said before can still be read.
    pub(crate) fn takes_no_more(&mut self, peer: Peer) {
        if let Some(key) = self.peers[peer.0].key {
            self.proxy.on_send_failed(key, "EPIPE", self.now);
        }
        self.settle();
    }

    /// The peer takes only so many bytes from now on, until it is given more room.
    pub(crate) fn takes(&mut self, peer: Peer, bytes: usize) {
        self.peers[peer.0].room = bytes;
        if let Some(key) = self.peers[peer.0].key {
            self.send(key);
        }
        self.settle();
    }

    /// Control has the endpoint at this place of the first cluster checked, by the check at that place.
    pub(crate) fn checks(&mut self, number: u64, endpoint: usize, check: u16) {
        let (_, cluster) = self.snapshot.clusters.iter().next().expect("there is one");
        let endpoint = cluster.endpoints[endpoint].id;
        let task = CheckTask { number, cluster: cluster.id, endpoint, check };
        self.proxy.on_check(task, self.now);
        self.settle();
    }

    /// Clusters that ask for it are new, and wait for the first checks of their endpoints.
    pub(crate) fn warms(&self) -> Checker {
        let mut checker = Checker::default();
        checker.on_snapshot(&self.snapshot, Duration::ZERO, || 0);
        checker
    }

    /// They wait no longer.
    pub(crate) fn has_warmed(&mut self, mut checker: Checker) {
        let warmed = checker.end_late_warming(Duration::MAX).warmed;
        let warmed: Vec<_> = warmed.into_iter().map(|warmed| warmed.id).collect();
        self.proxy.on_warmed(&warmed, self.now);
        self.settle();
    }

    /// How checks ended since this was asked last.
    pub(crate) fn checked(&mut self) -> Vec<(u64, CheckResult)> {
        std::mem::take(&mut self.checked)
    }

    /// How many responses said since this was asked last that their endpoint is not healthy.
    pub(crate) fn failed_themselves(&mut self) -> usize {
        std::mem::take(&mut self.failed_themselves).len()
    }

    /// So many bytes of what was sent are in the kernel: the peer has not acknowledged them.
    pub(crate) fn has_undelivered(&mut self, peer: Peer, bytes: usize) {
        self.peers[peer.0].undelivered = bytes;
    }

    /// Time passes.
    pub(crate) fn passes(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.proxy.next_deadline().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.proxy.on_deadlines(self.now);
            self.settle();
        }
        self.now = until;
        let now = self.now - Time::from_nanos(0);
        self.detected.extend(self.detector.on_deadlines(&self.snapshot, now, || 0));
        self.proxy.on_deadlines(self.now);
        self.settle();
        self.proxy.end_aged(self.now);
        self.settle();
    }

    /// The worker has other things to do, so that a signature may wait for others.
    pub(crate) const fn is_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Whether all that follows happens in one turn of a worker.
    pub(crate) fn is_one_turn(&mut self, is_one_turn: bool) {
        self.is_one_turn = is_one_turn;
        self.settle();
    }

    /// Control says how near the process is to its bound on memory.
    pub(crate) fn has_memory(&mut self, memory: MemoryPressure) {
        self.proxy.set_memory(memory, self.now);
        self.settle();
    }

    /// The proxy begins to drain.
    pub(crate) fn drains(&mut self) {
        self.is_draining = true;
        self.proxy.drain(self.now);
        self.settle();
    }

    /// The peer's connection goes to another worker, with all that belongs to it.
    pub(crate) fn leaves(&mut self, peer: Peer) {
        let key = self.peers[peer.0].key.expect("the connection is open");
        let saved = self.save(key);
        for key in &saved.connections {
            let place = self.place(*key);
            self.peers[place].key = None;
        }
        self.settle();
    }

    /// The peer's connection leaves, and comes back when the worker has drained. For variants in which the
    /// proxy stays.
    pub(crate) fn comes_back_drained(&mut self, peer: Peer) {
        let key = self.peers[peer.0].key.take().expect("the connection is open");
        let saved = self.save(key);
        assert_eq!(saved.connections, [key], "it is moved alone");
        self.drains();
        let keys = self.proxy.restore(&saved.bytes, self.now).expect("what was saved");
        self.peers[peer.0].key = keys.first().copied();
        self.proxy.on_restored(&keys, self.now);
        self.settle();
    }

    /// The peer's connection is written down with all that belongs to it, another configuration takes the
    /// place of this one, and the connection comes back. For variants in which the proxy stays.
    pub(crate) fn comes_back_to(&mut self, peer: Peer, config: &str) {
        let key = self.peers[peer.0].key.expect("the connection is open");
        let saved = self.save(key);
        let places: Vec<_> = saved.connections.iter().map(|key| self.place(*key)).collect();
        places.iter().for_each(|place| self.peers[*place].key = None);
        self.reconfigures(config);
        let keys = self.proxy.restore(&saved.bytes, self.now).expect("what was saved");
        for (place, key) in places.iter().zip(&keys) {
            self.peers[*place].key = Some(*key);
        }
        self.proxy.on_restored(&keys, self.now);
        self.settle();
    }

    /// Another configuration takes the place of this one. For variants in which the proxy stays.
    pub(crate) fn reconfigures(&mut self, config: &str) {
        let loader = self.loader.get_or_insert_with(|| {
            let mut loader = loader(&self.setting.config, (self.setting.kinds)());
            // The same text first, so that the ids and what follows are as in the proxy.
            let former = loader.load_with("test.yaml", &self.setting.config, &self.setting.files.0);
            former.expect("a valid configuration");
            loader
        });
        let snapshot = loader.load_with("test.yaml", config, &self.setting.files.0);
        let snapshot = snapshot.expect("a valid configuration");
        let now = self.now - Time::from_nanos(0);
        self.detected.extend(self.detector.on_snapshot(&snapshot, now));
        self.snapshot = Arc::clone(&snapshot);
        self.proxy.on_snapshot(snapshot, self.now);
        self.settle();
    }

    /// As after a handover, of which all connections are new.
    pub(crate) fn ends_surplus(&mut self) {
        self.proxy.end_surplus(Time::from_nanos(0), self.now);
        self.settle();
    }

    /// What became of endpoints that failed, since this was asked last.
    pub(crate) fn detected(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.detected).into_iter().map(|event| event.happened).collect()
    }

    /// Snapshots that the proxy gave back.
    pub(crate) fn retired(&self) -> usize {
        self.retired
    }

    /// The question that a filter asks; the kit keeps the key of its exchange.
    pub(crate) fn question(&self) -> Question {
        self.asked.last().expect("a filter asks").1.clone()
    }

    /// How many questions were asked and not answered.
    pub(crate) fn questions(&self) -> usize {
        self.asked.len()
    }

    /// The answer to the last question.
    pub(crate) fn answers(&mut self, payload: &[u8]) {
        let (exchange, _) = self.asked.pop().expect("a filter asks");
        self.asked.clear();
        self.proxy.on_answer(exchange, payload, self.now);
        self.settle();
    }

    // Observations of peers.

    /// Everything that the peer heard since the last look.
    pub(crate) fn heard(&mut self, peer: Peer) -> String {
        let heard = std::mem::take(&mut self.peers[peer.0].heard);
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// As [`Talk::heard`], byte by byte.
    pub(crate) fn heard_bytes(&mut self, peer: Peer) -> Vec<u8> {
        std::mem::take(&mut self.peers[peer.0].heard)
    }

    /// The peer heard exactly this since the last look.
    #[track_caller]
    pub(crate) fn hears(&mut self, peer: Peer, text: &str) {
        let heard = self.heard(peer);
        assert_eq!(heard, text, "in variant {:?}", self.variant);
    }

    /// The peer heard a message that begins with `start`, and holds these lines.
    #[track_caller]
    pub(crate) fn hears_about(&mut self, peer: Peer, start: &str, lines: &[&str]) -> String {
        let heard = self.heard(peer);
        assert!(heard.starts_with(start), "{heard:?} in variant {:?}", self.variant);
        for line in lines {
            assert!(heard.contains(line), "{line:?} in {heard:?} in variant {:?}", self.variant);
        }
        heard
    }

    /// Bytes of what the peer said that the proxy did not read.
    pub(crate) fn unread(&self, peer: Peer) -> usize {
        self.peers[peer.0].said.len()
    }

    /// Whether the proxy closed the connection.
    pub(crate) fn is_closed(&self, peer: Peer) -> bool {
        self.peers[peer.0].is_closed
    }

    /// Whether the proxy reset the connection.
    pub(crate) fn is_reset(&self, peer: Peer) -> bool {
        self.peers[peer.0].is_reset
    }

    /// Whether the proxy sent FIN, or closed.
    pub(crate) fn is_shut(&self, peer: Peer) -> bool {
        self.peers[peer.0].is_shut || self.is_closed(peer)
    }

    /// The access log so far.
    pub(crate) fn log(&mut self) -> &str {
        let mut out = Vec::new();
        self.log.poll(self.now.as_nanos(), &mut out, usize::MAX);
        self.lines.push_str(&String::from_utf8(out).expect("the log is UTF-8"));
        &self.lines
    }

    /// The lines of the debug log since this was asked, without their times, of a configuration that has
    /// `# debug log` in it.
    pub(crate) fn debug_lines(&mut self) -> Vec<String> {
        self.keep_debug_lines();
        std::mem::take(&mut self.debug)
    }

    fn keep_debug_lines(&mut self) {
        let lines = std::iter::from_fn(|| self.log.take_debug_line());
        let plain = |line: String| line.split_once(' ').unwrap_or_default().1.to_owned();
        self.debug.extend(lines.map(|(_, line)| plain(line)));
    }

    /// The log begins anew.
    pub(crate) fn forgets_log(&mut self) {
        self.log();
        self.lines.clear();
    }

    /// Keeps the counters when all connections move.
    pub(crate) fn keeps_counts(&mut self) {
        self.keeps_counts = true;
    }

    /// The counts under this name that are not 0, by the values of its labels. See [`Talk::keeps_counts`].
    pub(crate) fn counted(&mut self, name: &str) -> BTreeMap<String, u64> {
        let mut counted = BTreeMap::new();
        for collector in &mut self.counts {
            let mut lines = String::new();
            collector.readings().write_stats(
                &ProcessFacts::default(),
                &format!("{name}*"),
                &mut lines,
            );
            for line in lines.lines() {
                let (labels, value) = line[name.len()..].rsplit_once(' ').expect("a value");
                let values = labels.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
                *counted.entry(values).or_default() += value.parse::<u64>().unwrap();
            }
        }
        counted.retain(|_, count| *count > 0);
        counted
    }

    /// What the endpoint at this place of a cluster has counted, where connections do not move.
    pub(crate) fn endpoint_totals(&mut self, cluster: &str, place: usize) -> EndpointTotals {
        let (snapshot, _) = &self.setting.snapshots[self.moves as usize % 2];
        let found = snapshot.clusters.iter().find(|(_, found)| &*found.name == cluster);
        let (_, cluster) = found.expect("the configuration has the cluster");
        let id = label(cluster.endpoints[place].id.0);
        self.counts.last_mut().expect("this proxy's").endpoint_totals(id)
    }

    /// The warnings of requests that failed, as the program logs them.
    pub(crate) fn warnings(&mut self) -> Vec<FailureWarning> {
        self.log();
        self.log.take_warnings(self.now.as_nanos())
    }

    /// Ten seconds have passed, as the worker counts them.
    pub(crate) fn goes_quiet(&mut self) {
        self.proxy.on_quiet();
        self.settle();
    }

    /// How many connections each look has closed since this was asked.
    pub(crate) fn overflows(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.overflows)
    }

    /// What a peer's connection is written down as, with all that belongs to it; it goes on here. For variants in
    /// which the proxy stays.
    pub(crate) fn saved(&mut self, peer: Peer) -> Vec<u8> {
        let (bytes, places) = self.take_out(peer);
        self.put_back(&places, &bytes);
        bytes.join().into_vec()
    }

    /// Has a peer's connection, with all that belongs to it, go on from what `kept` returns for what it is written down as: in a
    /// fresh proxy, if nothing else is connected. For variants in which the proxy stays.
    pub(crate) fn goes_on_from(&mut self, peer: Peer, kept: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let (bytes, places) = self.take_out(peer);
        if self.proxy.load().connections == 0 {
            self.perform();
            self.log();
            self.moves += 1;
            let (proxy, counts) = fresh_proxy(self.setting, self.moves, &mut self.log, self.now);
            self.proxy = proxy;
            self.counts.push(counts);
        }
        self.put_back(&places, &kept(bytes.join().into_vec()).into());
    }

    fn take_out(&mut self, peer: Peer) -> (Pieces, Vec<usize>) {
        let saved = self.save(self.peers[peer.0].key.expect("the connection is open"));
        let places: Vec<_> = saved.connections.iter().map(|key| self.place(*key)).collect();
        places.iter().for_each(|place| self.peers[*place].key = None);
        (saved.bytes, places)
    }

    fn put_back(&mut self, places: &[usize], bytes: &Pieces) {
        let keys = self.proxy.restore(bytes, self.now).expect("what was saved");
        for (place, key) in places.iter().zip(&keys) {
            self.peers[*place].key = Some(*key);
        }
        self.proxy.on_restored(&keys, self.now);
        self.settle();
    }

    /// A peer's connection begins to leave as one of a large group does. For variants in which the proxy stays.
    pub(crate) fn begins_to_leave(&mut self, peer: Peer, max: GroupMax) -> Saving {
        let key = self.peers[peer.0].key.expect("the connection is open");
        let saving = self.proxy.begin_save(key, max, 1, self.now);
        let saving = saving.expect("it can be moved");
        assert!(saving.is_large());
        saving
    }

    /// Why a peer's connection does not even begin to leave.
    pub(crate) fn refuses_to_leave(&mut self, peer: Peer, max: GroupMax) -> Unmovable {
        let key = self.peers[peer.0].key.expect("the connection is open");
        let saving = self.proxy.begin_save(key, max, usize::MAX, self.now);
        saving.expect_err("it cannot be moved").why
    }

    /// The next connection or exchange is found, looked at or taken, and what can happen happens. Says whether all have left.
    pub(crate) fn goes_on_leaving(&mut self, saving: &mut Saving) -> Result<bool, Unmovable> {
        let result = self.proxy.save_part(saving, 1, self.now);
        if let Err(NotSaved { connections, .. }) = &result {
            connections.iter().for_each(|key| self.proxy.on_kept(*key, self.now));
        }
        self.settle();
        result.map(|()| saving.is_encoded()).map_err(|refused| refused.why)
    }

    /// The worker is asked to have a client's next requests on connections of their own.
    pub(crate) fn sets_apart(&mut self, peer: Peer) {
        let key = self.peers[peer.0].key.expect("the connection is open");
        self.proxy.set_apart(key, self.now);
    }

    /// All have left, and come back.
    pub(crate) fn leaves_and_comes_back(&mut self, mut saving: Saving) {
        let places: Vec<_> = saving.taken().iter().map(|key| self.place(*key)).collect();
        self.proxy.on_saved(&mut saving, self.now);
        self.settle();
        let saved = self.proxy.finish_save(saving);
        self.restore(vec![(saved.bytes, places)]);
        self.settle();
    }

    /// Takes up what was written down elsewhere, with a peer for each connection.
    pub(crate) fn takes_up(&mut self, bytes: &[u8]) -> Result<Vec<Peer>, RestoreError> {
        let keys = self.restores(bytes)?;
        Ok(self.goes_on_with(&keys))
    }

    /// The same of what another worker gave away.
    pub(crate) fn takes_up_within_bounds(
        &mut self,
        bytes: &[u8],
    ) -> Result<Vec<Peer>, RestoreError> {
        let keys = self.proxy.restore_within_bounds(&bytes.to_vec().into(), self.now)?;
        Ok(self.goes_on_with(&keys))
    }

    fn goes_on_with(&mut self, keys: &[ConnKey]) -> Vec<Peer> {
        let mut peers = Vec::new();
        for key in keys {
            let mut state = PeerState::new(Some(*key), None);
            state.is_connecting = self.proxy.awaits_connection(*key);
            peers.push(Peer(self.peers.len()));
            self.peers.push(state);
        }
        self.proxy.on_restored(keys, self.now);
        self.settle();
        peers
    }

    /// Takes up what was written down elsewhere.
    pub(crate) fn restores(&mut self, bytes: &[u8]) -> Result<Vec<ConnKey>, RestoreError> {
        self.proxy.restore(&bytes.to_vec().into(), self.now)
    }

    /// What it has learned of clusters and endpoints.
    pub(crate) fn learned(&self) -> Vec<Vec<ClusterBalancing>> {
        learned(&self.proxy, self.now)
    }

    /// Goes on with what another process says that it has learned.
    pub(crate) fn learns(&mut self, learned: &[ClusterBalancing]) {
        self.proxy.restore_balancing(learned, self.now);
    }

    /// The proxy itself, for what no peer can notice.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    // The worker's and the kernel's part.

    /// Lets everything happen that can.
    fn settle(&mut self) {
        loop {
            self.proxy.bound_growth(self.now);
            self.perform();
            if !self.is_one_turn {
                self.proxy.admit_handshakes();
                for _ in 0..self.proxy.begin_turn() {
                    self.proxy.resume_held(self.now);
                }
            }
            self.proxy.on_signatures(!self.is_busy, self.now);
            self.perform();
            if self.variant == Variant::Moving && !self.is_draining {
                self.move_everyone();
                self.perform();
            }
            if !self.deliver() && (self.is_one_turn || !self.proxy.has_held()) {
                break;
            }
        }
    }

    /// Hands one peer's words to the proxy, if it reads.
    fn deliver(&mut self) -> bool {
        for place in 0..self.peers.len() {
            let Some(key) = self.peers[place].key else { continue };
            let bytes_max = self.proxy.read_bytes_max(key);
            let is_leaving = self.proxy.is_leaving(key);
            let peer = &mut self.peers[place];
            if bytes_max == 0 || peer.is_connecting || is_leaving {
                continue;
            }
            if !peer.said.is_empty() {
                let n = peer.said.len().min(bytes_max);
                let mut bytes: Vec<u8> = peer.said.drain(..n).collect();
                self.proxy.on_received(key, &mut bytes, self.now);
                return true;
            }
            if peer.has_ended && !peer.is_end_told {
                peer.is_end_told = true;
                self.proxy.on_read_closed(key, self.now);
                return true;
            }
        }
        false
    }

    fn perform(&mut self) {
        while let Some(op) = self.proxy.poll_op(self.now) {
            match op {
                Op::Send(key) if self.proxy.is_leaving(key) => {}
                Op::Send(key) => self.send(key),
                Op::Connect { connection, address, options } => {
                    self.proxy.on_connecting(connection, self.now);
                    let mut peer = PeerState::new(Some(connection), Some(address));
                    peer.mark = options.mark.map(NonZeroU32::get);
                    peer.is_connecting = true;
                    self.peers.push(peer);
                }
                Op::SendNow(key, bytes) => {
                    // Bytes without room are lost.
                    if let Some(peer) = self.peer_mut(key) {
                        let n = bytes.len().min(peer.room);
                        peer.heard.extend_from_slice(&bytes[..n]);
                        peer.room -= if peer.room == usize::MAX { 0 } else { n };
                    }
                }
                Op::Undelivered(key) => {
                    let bytes = self.peer_mut(key).map_or(0, |peer| peer.undelivered);
                    self.proxy.on_undelivered(key, bytes, self.now);
                }
                Op::ShutdownWrite(key) => {
                    if let Some(peer) = self.peer_mut(key) {
                        peer.is_shut = true;
                    }
                }
                Op::Close(key) | Op::Reset(key) => {
                    if let Some(peer) = self.peer_mut(key) {
                        (peer.key, peer.is_closed, peer.is_connecting) = (None, true, false);
                        peer.is_reset = matches!(op, Op::Reset(_));
                    }
                }
                Op::Ask { exchange, question } => self.asked.push((exchange, question)),
                Op::BufferedOverflow { closed, .. } => self.overflows.push(closed),
                Op::OutlierFound { cluster, endpoint, kind } => {
                    let cluster = self.snapshot.cluster(cluster).expect("it was asked");
                    let at = (self.now - Time::from_nanos(0), 0);
                    self.detected.extend(self.detector.on_reached(cluster, endpoint, kind, at));
                }
                Op::Checked { number, result } => self.checked.push((number, result)),
                Op::FailedItself { endpoint, .. } => self.failed_themselves.push(endpoint),
                Op::Retire(_) => self.retired += 1,
                Op::Wake(_) => {}
                Op::Read(_) | Op::CloseListener(_) => {}
            }
        }
    }

    fn send(&mut self, key: ConnKey) {
        let Some(place) = self.peers.iter().position(|peer| peer.key == Some(key)) else { return };
        while self.proxy.has_unsent(key) && !self.peers[place].is_connecting {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.proxy.unsent(key, &mut slices);
            let waiting: Vec<u8> =
                slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
            let peer = &mut self.peers[place];
            let n = waiting.len().min(peer.room);
            peer.heard.extend_from_slice(&waiting[..n]);
            peer.room -= if peer.room == usize::MAX { 0 } else { n };
            self.proxy.on_sent(key, n, self.now, self.now);
            if n < waiting.len() {
                break;
            }
        }
    }

    fn peer_mut(&mut self, key: ConnKey) -> Option<&mut PeerState> {
        self.peers.iter_mut().find(|peer| peer.key == Some(key))
    }

    /// Takes every connection to a fresh proxy with other ids.
    fn move_everyone(&mut self) {
        if self.proxy.load().handshakes > 0 {
            // They are finished where they began.
            return;
        }
        let mut saved = Vec::new();
        for place in 0..self.peers.len() {
            let Some(key) = self.peers[place].key else { continue };
            if let Some(group) = self.save_in_parts(key) {
                let places: Vec<_> = group.connections.iter().map(|key| self.place(*key)).collect();
                saved.push((group.bytes, places));
            }
        }
        // Health checks stay behind.
        self.perform();
        // Connections that wait to be used go first, so that an exchange that waits for one need
        // not call another.
        saved.sort_by_key(|(_, places)| {
            places.iter().any(|place| self.peers[*place].address.is_none())
        });
        let staying = self.proxy.load().connections;
        if staying > 0 {
            // Two attempts end where they began. What could move comes back.
            assert!(self.setting.config.contains("hedge: "), "everything can be moved");
            return self.restore(saved);
        }
        self.assert_empty();
        self.log();
        self.keep_debug_lines();
        // It would look at all that ever were.
        self.log = log_reader();
        self.moves += 1;
        if !self.keeps_counts {
            self.counts.clear();
        }
        let learned = learned(&self.proxy, self.now);
        let (proxy, counts) = fresh_proxy(self.setting, self.moves, &mut self.log, self.now);
        self.proxy = proxy;
        learned.iter().for_each(|part| self.proxy.restore_balancing(part, self.now));
        self.counts.push(counts);
        // On the way to another process.
        let (groups, places): (Vec<_>, Vec<_>) =
            saved.into_iter().map(|(bytes, places)| ((bytes, places.len()), places)).unzip();
        let arrived = handover::pass(&groups).into_iter().map(|bytes| Pieces::behind(0, bytes));
        self.restore(arrived.zip(places).collect());
    }

    /// Groups go on in the proxy, whose connections are of these peers.
    fn restore(&mut self, saved: Vec<(Pieces, Vec<usize>)>) {
        for (bytes, places) in saved {
            let mut restoring = self.proxy.begin_restore(&bytes).expect("what was saved");
            while !restoring.is_placed() {
                let part = self.proxy.restore_part(&mut restoring, &bytes, 1, self.now);
                part.expect("what was saved");
            }
            let keys = restoring.keys();
            for (place, key) in places.iter().zip(keys) {
                self.peers[*place].key = Some(*key);
                // As a worker asks the socket.
                if self.proxy.asks_direct_source(*key)
                    && let Some(from) = &self.peers[*place].from
                {
                    self.proxy.on_direct_source(*key, from.clone());
                }
            }
            self.proxy.on_restored(keys, self.now);
        }
    }

    /// Takes a group out of the proxy, as a worker does.
    fn save(&mut self, key: ConnKey) -> Saved {
        let saving = self.proxy.begin_save(key, GroupMax::ANY, usize::MAX, self.now);
        let mut saving = saving.expect("it can be moved");
        let saved = self.proxy.save_part(&mut saving, usize::MAX, self.now);
        saved.expect("all of it was looked at");
        self.proxy.on_saved(&mut saving, self.now);
        self.proxy.finish_save(saving)
    }

    /// Writes a group down as a large one is: in many steps.
    fn save_in_parts(&mut self, key: ConnKey) -> Option<Saved> {
        let mut saving = self.proxy.begin_save(key, GroupMax::ANY, 1, self.now).ok()?;
        while !saving.is_encoded() {
            if let Err(refused) = self.proxy.save_part(&mut saving, 1, self.now) {
                for key in refused.connections {
                    self.proxy.on_kept(key, self.now);
                }
                return None;
            }
        }
        // Nothing is served that waits for their room: it goes as well.
        Some(self.proxy.finish_save(saving))
    }

    fn place(&self, key: ConnKey) -> usize {
        self.peers.iter().position(|peer| peer.key == Some(key)).expect("the kit knows every key")
    }

    fn assert_empty(&self) {
        let load = self.proxy.load();
        let Load { exchanges, waiting, counted, stalled, .. } = load;
        assert_eq!((exchanges, waiting, counted, stalled), (0, 0, 0, 0));
        assert_eq!(load.clients, 0, "every client is forgotten");
        assert_eq!(load.buffers.leased, 0, "every buffer came back");
    }

    /// When no peer is connected any more, nothing is held.
    pub(crate) fn assert_at_rest(&mut self) {
        self.variant = Variant::Plain;
        // An exchange that loses its upstream may connect to another.
        let mut place = 0;
        while place < self.peers.len() {
            self.breaks(Peer(place));
            place += 1;
        }
        assert_eq!(self.proxy.load().connections, 0);
        self.assert_empty();
    }
}

impl PeerState {
    fn new(key: Option<ConnKey>, address: Option<Address>) -> Self {
        Self {
            key,
            from: None,
            is_connecting: address.is_some(),
            address,
            mark: None,
            said: Vec::new(),
            has_ended: false,
            is_end_told: false,
            heard: Vec::new(),
            room: usize::MAX,
            is_shut: false,
            is_reset: false,
            is_closed: false,
            undelivered: 0,
        }
    }
}

/// Pieces that what a peer says is cut into at most, where the bytes of one are given.
const PIECES_MAX: usize = 64;

/// Another configuration, whose names take the first ids.
const FORMER: &str = "
listeners: [{ name: former, address: 127.0.0.1:1, routes: former }]
routes: [{ name: former, hosts: ['*'], rules: [{ match: { prefix: / }, cluster: former }] }]
clusters: [{ name: former, endpoints: ['127.0.0.1:2'] }]
";

/// Lines with what is captured, if anything is, and else with every field.
fn style_of(captures: &config::snapshot::Captures) -> LogStyle {
    let all = LogStyle::all(LogFormat::Json).with_captures(captures.digest, None);
    let names = captures.request.iter().chain(&captures.response);
    let fields = names.enumerate();
    let fields: Vec<LogField> =
        fields.map(|(place, name)| LogField::Captured { name: name.clone(), place }).collect();
    if fields.is_empty() { all } else { all.with_fields(&fields) }
}

fn log_reader() -> LogReader {
    let mut log = LogReader::new();
    log.set_style(Some(LogStyle::all(LogFormat::Json)));
    log
}

/// What a proxy has learned of clusters and endpoints, in parts.
fn learned(proxy: &Proxy, now: Time) -> Vec<Vec<ClusterBalancing>> {
    let (mut parts, mut next) = (Vec::new(), Some(BalancingPlace::default()));
    while let Some(from) = next {
        let (part, from) = proxy.save_balancing(from, now);
        parts.push(part);
        next = from;
    }
    parts
}

fn fresh_proxy(
    setting: &Setting,
    moves: u32,
    log: &mut LogReader,
    now: Time,
) -> (Proxy, Collector) {
    let (snapshot, names) = &setting.snapshots[moves as usize % setting.snapshots.len()];
    log.set_style(Some(style_of(&snapshot.access_log.captures)));
    log.set_names(Arc::clone(names));
    let (mut emitter, reports) = Emitter::new(1 << 14);
    log.add_worker(reports.records);
    let mut collector = Collector::new("test");
    collector.set_names(Arc::clone(names));
    collector.add_worker(reports.counters);
    emitter.set_access_log(true);
    if setting.config.contains("# debug log") {
        log.add_debug_lines(emitter.set_debug());
    }
    let share = Share { worker: 0, workers: 1 };
    let settings = Settings { share, seed: u64::from(moves), bells: Bells::new(1) };
    (Proxy::new(settings, Arc::clone(snapshot), emitter, now), collector)
}

const fn label(id: config::snapshot::Id) -> telemetry::events::LabelId {
    telemetry::events::LabelId { slot: id.slot, generation: id.generation }
}
