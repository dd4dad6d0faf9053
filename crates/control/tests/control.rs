//! Control with workers that are only a list of what they were sent.
#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::checks::CheckTask;
use config::memory::MemoryPressure;
use config::reports::{
    ConnectionSide, ConnectionSummaries, ConnectionSummary, Question, ReportBody,
};
use config::snapshot::{Address, ClusterId, EndpointId, Id, ListenerId, Snapshot};
use config::{FilterKinds, Loader, ResourceName, Update, Verdict};
use control::{
    AdminSocket, Answerers, BindFailure, Bound, ConfigFile, ConnectionId, ConnectionWork, Control,
    DeliveredResources, EarlyAdmin, ExplainRequest, ExplainStep, FormerState, GroupMax,
    HandoverChange, HandoverFact, HandoverQuestion, HandoverStep, KeptAdmin, ListedRows, LogWriter,
    Moved, NotMoved, OldProcess, Outcome, OwnState, Parts, Report, ServiceManager, Source, Workers,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use telemetry::{Collector, FormerTotals, LogReader};
use tokio::sync::mpsc::{Sender, channel};

const CONFIG: &str = "
listeners:
  - { name: edge, address: '127.0.0.1:1', routes: all }
routes:
  - { name: all, rules: [{ match: { prefix: / }, respond: {} }] }
";

#[path = "sources/bulk.rs"]
mod bulk;
#[path = "sources/folder.rs"]
mod folder;
#[path = "sources/on_demand.rs"]
mod on_demand;

/// Certificates of `config`'s tests.
mod certificate {
    pub(crate) const SITE: &str = include_str!("../../config/tests/certificates/site.pem");
    pub(crate) const SITE_KEY: &str = include_str!("../../config/tests/certificates/site.key");
    pub(crate) const TENANTS: &str = include_str!("../../config/tests/certificates/tenants.pem");
    pub(crate) const TENANTS_KEY: &str =
        include_str!("../../config/tests/certificates/tenants.key");
}

/// Bytes that are resident, for the test that bounds them.
static RESIDENT: AtomicU64 = AtomicU64::new(0);

/// Workers that note what they are sent.
#[derive(Debug)]
struct Notebook {
    noted: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicBool>,
    holds_moves: Arc<AtomicBool>,
    /// Whether the second worker takes nothing up.
    is_stuck: Arc<AtomicBool>,
    reports: Sender<Report<Self>>,
}

/// Notes what it is to move, and takes until it need not hold on.
struct Mover {
    notes: Arc<Mutex<Vec<String>>>,
    holds: Arc<AtomicBool>,
}

impl control::Mover for Mover {
    fn move_group(
        &self,
        connection: ConnectionId,
        to: u32,
        _: GroupMax,
    ) -> Result<Moved, NotMoved> {
        self.notes.lock().unwrap().push(format!("move {connection} to {to}"));
        while self.holds.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        self.notes.lock().unwrap().push(format!("moved {connection}"));
        if connection.slot == 0 {
            return Err(NotMoved::Stays);
        }
        Ok(Moved { connection: ConnectionId { worker: to, ..connection }, group: 2 })
    }

    fn set_apart(&self, connection: ConnectionId) {
        self.notes.lock().unwrap().push(format!("set apart {connection}"));
    }

    fn work(&self, _: u32) -> Vec<ConnectionWork> {
        Vec::new()
    }
}

impl Notebook {
    fn note(&self, text: String) {
        self.noted.lock().unwrap().push(text);
    }
}

/// Keeps nothing.
#[derive(Debug)]
struct NoStorer;

impl control::Storer for NoStorer {
    fn open(&mut self) -> std::io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn store(
        &mut self,
        _: Vec<config::Agreed>,
        _: OwnState,
        _: u64,
    ) -> Result<control::StoredCounts, String> {
        Err("nothing is kept".to_owned())
    }

    fn finish(&mut self, _: OwnState) {}
}

/// How a process ends whose place another has taken.
const REPLACED: Outcome = Outcome::Replaced { successor: 4711, was_to_end: false };

impl Workers for Notebook {
    type Filter = ();
    type Asker = u32;
    type Sockets = ();
    type Handles = Vec<(Arc<str>, Vec<std::os::fd::OwnedFd>)>;
    type Mover = Mover;

    fn count(&self) -> u32 {
        2
    }

    fn check(&mut self, worker: u32, tasks: Box<[CheckTask]>) {
        self.note(format!("worker {worker} checks {}", tasks.len()));
    }

    fn bind(&mut self, snapshot: &Snapshot<()>) -> Result<Bound<()>, Vec<BindFailure>> {
        let failure = |listener: &Arc<str>| {
            let (address, reason) = ("somewhere".to_owned(), "taken".to_owned());
            BindFailure::Listener { listener: Arc::clone(listener), address, reason }
        };
        if self.refuses.load(Ordering::Relaxed) {
            return Err(vec![failure(&snapshot.listeners.first().unwrap().name)]);
        }
        let added = snapshot.changes.listeners_added.iter();
        let added = added.map(|id| &snapshot.listener(*id).unwrap().1.name);
        let failures: Vec<_> = added.filter(|it| it.starts_with("taken")).map(failure).collect();
        if !failures.is_empty() {
            return Err(failures);
        }
        Ok(Bound { sockets: (), addresses: Vec::new() })
    }

    fn mover(&self) -> Option<Mover> {
        let (notes, holds) = (Arc::clone(&self.noted), Arc::clone(&self.holds_moves));
        Some(Mover { notes, holds })
    }

    fn handles(&self, _: Option<&[ListenerId]>) -> std::io::Result<Self::Handles> {
        Ok(vec![("edge".into(), Vec::new())])
    }

    fn publish(&mut self, snapshot: &Arc<Snapshot<()>>, (): ()) {
        let removed = snapshot.changes.listeners_removed.len();
        let version = snapshot.version;
        self.note(format!("version {version}, {removed} listeners removed"));
        let count = if self.is_stuck.load(Ordering::Relaxed) { 1 } else { 2 };
        for worker in 0..count {
            let body = ReportBody::TakenUp(version);
            self.reports.try_send(Report::<Self> { worker, body }).unwrap();
        }
    }

    fn answer(&mut self, worker: u32, asker: u32, payload: Arc<[u8]>) {
        self.note(format!("{asker} on {worker}: {}", String::from_utf8_lossy(&payload)));
    }

    fn warmed(&mut self, clusters: &Arc<[ClusterId]>) {
        self.note(format!("{} clusters warmed", clusters.len()));
    }

    fn set_memory(&mut self, memory: MemoryPressure) {
        self.note(format!("memory is {:?}, {} to go", memory.level, memory.excess_bytes));
    }

    fn describe(&mut self, worker: u32, first: u32, request: u64) {
        self.note(format!("describe {worker} from {first}, request {request}"));
    }

    fn ask_alive(&mut self, worker: u32, request: u64) {
        self.note(format!("ask {worker} for a sign of life, request {request}"));
    }

    fn list_former(&mut self, request: u32, worker: u32, slot: u32) {
        self.note(format!("the old process lists {worker} from {slot}, request {request}"));
    }

    fn leave_former(&mut self) {
        self.note("leave the old process".to_owned());
    }

    fn drain(&mut self) {
        self.note("drain".to_owned());
    }

    fn end_now(&mut self) {}

    fn stop(&mut self) {
        self.note("stop".to_owned());
    }

    fn resident_bytes() -> Option<u64> {
        Some(RESIDENT.load(Ordering::Relaxed))
    }

    fn memory_bytes_max() -> Option<u64> {
        None
    }

    fn release_free_memory() {}

    fn note_signals(_: &[i32]) -> std::io::Result<()> {
        Ok(())
    }

    fn has_come(_: i32) -> bool {
        false
    }

    fn take_signal(_: i32) -> Option<bool> {
        Some(false)
    }

    fn pass_on(_: u32, _: i32) -> bool {
        false
    }

    fn explain(
        snapshot: &Arc<Snapshot<()>>,
        request: &ExplainRequest,
    ) -> Result<Vec<ExplainStep>, String> {
        if request.url.starts_with("ftp") {
            return Err("only http".to_owned());
        }
        let clusters = snapshot.clusters.iter().map(|(_, cluster)| cluster);
        let endpoints = clusters.flat_map(|cluster| {
            cluster.endpoints.iter().map(|endpoint| ExplainStep {
                endpoint: Some(endpoint.id),
                cluster: Some(cluster.id),
                ..ExplainStep::new("endpoint", "one")
            })
        });
        let asked = ExplainStep::new("asked", format!("{request:?}"));
        Ok([asked].into_iter().chain(endpoints).collect())
    }

    fn set_socket_options(&self, _: &Snapshot<()>) {}

    fn bind_lost(&mut self, _: &Snapshot<()>) -> Vec<ListenerId> {
        Vec::new()
    }

    fn flush(&mut self) {}
}

/// A control thread and all its ends.
struct Running {
    noted: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicBool>,
    holds_moves: Arc<AtomicBool>,
    is_stuck: Arc<AtomicBool>,
    reports: Sender<Report<Notebook>>,
    steps: Sender<HandoverStep<Notebook>>,
    admin: SocketAddr,
    thread: JoinHandle<Outcome>,
}

impl Running {
    fn start(config: ConfigFile<()>) -> Self {
        Self::start_with(config, Vec::new())
    }

    fn start_with(config: ConfigFile<()>, sources: Vec<Box<dyn Source>>) -> Self {
        Self::start_as(config, sources, false, None)
    }

    fn start_as(
        mut config: ConfigFile<()>,
        sources: Vec<Box<dyn Source>>,
        is_taking_over: bool,
        delivered: Option<DeliveredResources>,
    ) -> Self {
        config.expect_sources(&sources);
        let candidate = config.load().unwrap();
        let mut candidate = config.warm::<Notebook>(candidate, &EarlyAdmin::default()).unwrap();
        if let Some(delivered) = delivered {
            candidate = config.restore(candidate, delivered).unwrap();
        }
        let mut first = config.keep(candidate);
        let (noted, refuses): (Arc<Mutex<Vec<_>>>, Arc<AtomicBool>) = Default::default();
        let holds_moves = Arc::new(AtomicBool::default());
        let is_stuck = Arc::new(AtomicBool::default());
        let (sender, reports) = channel(64);
        let workers = Notebook {
            noted: Arc::clone(&noted),
            refuses: Arc::clone(&refuses),
            holds_moves: Arc::clone(&holds_moves),
            is_stuck: Arc::clone(&is_stuck),
            reports: sender.clone(),
        };
        let (steps, handover) = channel(16);
        let socket = AdminSocket::bind(&"127.0.0.1:0".parse().unwrap(), None).unwrap();
        let admin = socket.local_address().unwrap().unwrap();
        let mut answerers = Answerers::default();
        answerers.register("shout", |payload: Arc<[u8]>| async move {
            payload.to_ascii_uppercase().into()
        });
        let control = Control::new(Parts {
            hands_over: Some(std::fs::File::open("/dev/null").unwrap().into()),
            storer: Box::new(NoStorer),
            had_connections: false,
            sources,
            config,
            log: LogWriter::start(LogReader::new(), &mut first).unwrap(),
            first,
            addresses: Vec::new(),
            workers,
            reports,
            collector: Collector::new("0.0.0"),
            admin: Some(socket),
            metrics: None,
            answerers,
            service_manager: ServiceManager::default(),
            handover,
            is_taking_over,
            is_init: false,
            stale_sockets: Vec::new(),
            version: "0.0.0",
        });
        let thread = std::thread::spawn(move || control.run());
        Self { noted, refuses, holds_moves, is_stuck, reports: sender, steps, admin, thread }
    }

    fn fixed() -> Self {
        Self::start(ConfigFile::fixed("test", CONFIG.to_owned(), loader()))
    }

    fn report(&self, worker: u32, body: ReportBody<(), u32>) {
        self.reports.blocking_send(Report::<Notebook> { worker, body }).unwrap();
    }

    /// Waits until the workers were sent `text`.
    fn wait_for(&self, text: &str) {
        until(text, || self.noted.lock().unwrap().iter().any(|noted| noted == text));
    }

    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    /// Another process is the one that serves from now on.
    fn commit(&self, successor: u32) {
        let (reply, known) = tokio::sync::oneshot::channel();
        let kept_admin = KeptAdmin::default();
        let change = HandoverChange::Committed { successor, is_return: false, kept_admin, reply };
        self.steps.blocking_send(HandoverStep::Became(change)).unwrap();
        // What comes on other ways may be heard before it otherwise.
        known.blocking_recv().unwrap();
    }

    /// The handover is over, and this process goes on.
    fn roll_back(&self) {
        let totals = FormerTotals::default();
        let (reply, _ends) = tokio::sync::oneshot::channel();
        let change = HandoverChange::RolledBack { totals, reply };
        self.steps.blocking_send(HandoverStep::Became(change)).unwrap();
    }

    fn end(self) -> Outcome {
        for worker in 0..2 {
            self.report(worker, ReportBody::Stopped);
        }
        self.thread.join().unwrap()
    }
}

fn loader() -> Loader<()> {
    Loader::new(FilterKinds::new()).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "another thread has to be waited for")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain waited for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn question(asker: u32, topic: &str) -> ReportBody<(), u32> {
    let payload = b"hello".as_slice().into();
    ReportBody::Question { exchange: asker, question: Question { topic: topic.into(), payload } }
}

#[test]
fn a_process_gives_to_one_other_at_a_time_and_answers_until_that_has_taken_over() {
    let running = Running::fixed();
    let begin = || {
        let (reply, begun) = tokio::sync::oneshot::channel();
        running.steps.blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply))).unwrap();
        begun.blocking_recv().unwrap()
    };
    assert_eq!(begin().unwrap_err(), "this process is starting");
    running.report(0, ReportBody::Started);
    running.report(1, ReportBody::Started);
    until("ready", || running.ask("GET", "/ready").contains("ready"));
    let begun = begin().unwrap();
    assert!(begun.handles.len() == 1 && begun.admin.is_some() && begun.metrics.is_none());
    assert_eq!(begin().unwrap_err(), "this process is in a handover already");
    running.roll_back();
    let again = begin().unwrap();
    assert!(running.ask("GET", "/ready").contains("ready"));

    running.commit(4711);
    // The queue is the other process's, once this one has let go of it.
    let listener = std::net::TcpListener::from(again.admin.unwrap().socket);
    until("the queue", || {
        let client = TcpStream::connect(running.admin).unwrap();
        listener.accept().is_ok_and(|(_, peer)| peer == client.local_addr().unwrap())
    });
    let totals = FormerTotals::default();
    let accept_again = HandoverChange::AcceptAgain { totals };
    running.steps.blocking_send(HandoverStep::Became(accept_again)).unwrap();
    until("ready", || running.ask("GET", "/ready").contains("ready"));

    begin().unwrap();
    running.commit(4711);
    let (reply, is_said) = tokio::sync::oneshot::channel();
    running.steps.blocking_send(HandoverStep::Became(HandoverChange::Finish(reply))).unwrap();
    is_said.blocking_recv().unwrap();
    running.wait_for("drain");
    running.report(0, ReportBody::Stopped);
    running.report(1, ReportBody::Stopped);
    assert_eq!(running.thread.join().unwrap(), REPLACED);
}

#[test]
fn the_way_of_a_request_is_asked_of_the_data_path_with_the_state_of_the_process() {
    let config = CONFIG.replace("respond: {}", "cluster: web");
    let config = format!("{config}clusters:\n  - {{ name: web, endpoints: ['127.0.0.1:2'] }}\n");
    let running = Running::start(ConfigFile::fixed("test", config, loader()));
    let answer = running.ask(
        "GET",
        "/explain?url=http%3A%2F%2Fa%2F&method=PUT&header=a:+b&header=c:%20d&listener=edge&from=::1",
    );
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let request = "ExplainRequest { method: \\\"PUT\\\", url: \\\"http://a/\\\", headers: \
                   [\\\"a: b\\\", \\\"c: d\\\"], tls: None, listener: Some(\\\"edge\\\"), from: Some(::1) }";
    for part in ["starting, configuration version 1 of test", request, "\"text\": \"one\""] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    for (query, status, hint) in [
        ("", "200", "/explain?url=http://HOST/PATH"),
        ("?method=GET", "400", "url: write /explain?url="),
        ("?uri=x", "400", "uri: unknown argument; there are url, "),
        ("?url=ftp", "400", "only http"),
        ("?url=/&from=a", "400", "from: a is no IP address"),
        (&format!("?url=/{}", "&header=a:b".repeat(101)), "400", "header: at most 100"),
    ] {
        let answer = running.ask("GET", &format!("/explain{query}"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(hint), "{hint} in {answer}");
    }
    running.end();
}

/// A configuration with so many clusters.
fn with_clusters(count: u16) -> String {
    let clusters = (0..count).map(|n| {
        format!("  - {{ name: c{n:05}, endpoints: ['127.0.0.1:{}', '127.0.0.2:1'] }}\n", n + 1)
    });
    format!("{CONFIG}clusters:\n{}", clusters.collect::<String>())
}

#[test]
fn large_pages_come_in_pieces_and_nobody_waits_for_those_who_do_not_read() {
    let running = Running::start(ConfigFile::fixed("test", with_clusters(3000), loader()));
    let mut slow = Vec::new();
    for path in ["/config", "/clusters", "/listeners"] {
        let mut stream = TcpStream::connect(running.admin).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        slow.push((path, stream));
    }
    assert!(running.ask("GET", "/healthz").contains("ok"));
    for (path, mut stream) in slow {
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let (head, chunks) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let page: serde_json::Value = serde_json::from_str(&joined(chunks)).expect(path);
        let clusters = match path {
            "/config" => &page["effective"]["clusters"],
            "/clusters" => &page["clusters"],
            _ => continue,
        };
        let clusters = clusters.as_array().unwrap();
        assert_eq!(clusters.len(), 3000, "{path}");
        assert_eq!(clusters[2999]["name"], "c02999");
        assert_eq!(clusters[2999]["endpoints"].as_array().unwrap().len(), 2);
    }
    running.end();
}

/// The body out of its chunks.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let (chunk, rest) = rest.split_at(usize::from_str_radix(size, 16).unwrap());
        body.push_str(chunk);
        chunks = rest.strip_prefix("\r\n").unwrap();
    }
    body
}

#[test]
fn clusters_are_listed_as_the_query_says() {
    let running = Running::start(ConfigFile::fixed("test", with_clusters(1200), loader()));
    let listed = |query: &str| -> (u64, Vec<String>, serde_json::Value) {
        let answer = running.ask("GET", &format!("/clusters?{query}"));
        let body = joined(answer.split_once("\r\n\r\n").unwrap().1);
        let page: serde_json::Value = serde_json::from_str(&body).unwrap();
        let clusters = page["clusters"].as_array().unwrap();
        let names = clusters.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        (page["matched"].as_u64().unwrap(), names, page["clusters"][0]["endpoints"].clone())
    };
    let (matched, names, endpoints) = listed("filter=c*11&limit=2&endpoints=no&sort=exchanges");
    assert_eq!((matched, names), (120, vec!["c00011".to_owned(), "c00110".to_owned()]));
    assert_eq!(endpoints, 2);
    let (matched, names, endpoints) = listed("limit=1&sort=name");
    assert_eq!((matched, names), (1200, vec!["c00000".to_owned()]));
    assert_eq!(endpoints[1]["address"], "127.0.0.2:1");
    let (_, _, endpoints) = listed("limit=1&endpoints=1&endpoints_from=1");
    assert_eq!(endpoints.as_array().unwrap().len(), 1);
    assert_eq!(endpoints[0]["address"], "127.0.0.2:1");
    assert_eq!(listed("limit=1&endpoints=9&endpoints_from=2").2, serde_json::json!([]));
    let (matched, names, _) = listed("name=c00001");
    assert_eq!((matched, names), (1, vec!["c00001".to_owned()]));
    assert_eq!(listed("filter=nothing"), (0, Vec::new(), serde_json::Value::Null));
    for (query, hint) in [
        ("sort=size", "sort: one of name, active, pending, exchanges, failures"),
        ("limit=x", "limit: a number"),
        ("endpoints=yes", "endpoints: no or a number, or leave it out"),
        ("endpoints=1&endpoints_from=x", "endpoints_from: a number, from 0"),
        ("endpoints_from=1", "endpoints_from: write &endpoints=NUMBER, too"),
        (
            "order=x",
            "order: unknown argument; there are name, filter, sort, limit, endpoints, endpoints_from and rules",
        ),
    ] {
        let answer = running.ask("GET", &format!("/clusters?{query}"));
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(hint), "{answer}");
    }
    running.end();
}

#[test]
fn a_handover_begins_once_a_changed_configuration_is_in_effect() {
    let folder = std::env::temp_dir().join(format!("strait-control-begin-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("strait.yaml");
    std::fs::write(&path, CONFIG).unwrap();
    let running = Running::start(ConfigFile::new(&path, loader()));
    running.report(0, ReportBody::Started);
    running.report(1, ReportBody::Started);
    until("ready", || running.ask("GET", "/ready").contains("ready"));
    // Large enough that some of the handovers are asked for while it is read.
    let rule = |number| format!("      - {{ match: {{ path: /{number} }}, respond: {{}} }}\n");
    let rules = (0..5_000).map(rule).collect::<String>();
    for version in 0..20 {
        let (listeners, _) = CONFIG.split_once("routes:\n").unwrap();
        let first = rule(10_000 + version);
        let text = format!("{listeners}routes:\n  - name: all\n    rules:\n{first}{rules}");
        std::fs::write(&path, text).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the watch takes a while to notice")]
        std::thread::sleep(Duration::from_millis(10 * version));
        let (reply, begun) = tokio::sync::oneshot::channel();
        running.steps.blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply))).unwrap();
        let begun = begun.blocking_recv().unwrap();
        assert!(begun.is_ok(), "{:?}", begun.err());
        running.roll_back();
    }
    assert_eq!(running.end(), Outcome::Drained);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn it_is_ready_when_every_worker_has_started_and_not_while_draining() {
    let control = Running::fixed();
    assert!(control.ask("GET", "/ready").contains(" 503 "));
    control.report(0, ReportBody::Started);
    until("one worker", || control.ask("GET", "/ready").contains("starting: 1 of 2"));
    control.report(1, ReportBody::Started);
    until("both workers", || control.ask("GET", "/ready").contains(" 200 "));
    assert!(control.ask("POST", "/drain").contains(" 202 "));
    control.wait_for("drain");
    assert!(control.ask("GET", "/ready").contains("draining\n"));
    assert!(control.ask("POST", "/drain").contains(" 202 "), "a second time is no second drain");
    assert_eq!(*control.noted.lock().unwrap(), ["drain"]);
    assert_eq!(control.end(), Outcome::Drained);
}

/// More than fit, if each waited for what its client says.
#[test]
fn only_while_draining_the_admin_address_is_let_go() {
    let control = Running::fixed();
    assert!(control.ask("POST", "/release").contains(" 409 "));
    assert!(control.ask("POST", "/drain").contains(" 202 "));
    assert!(control.ask("GET", "/ready").contains(" 503 "), "it is there while draining");
    assert!(control.ask("POST", "/release").contains(" 200 "));
    let successor = std::net::TcpListener::bind(control.admin);
    assert!(successor.is_ok(), "{successor:?}");
    assert_eq!(control.end(), Outcome::Drained);
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let control = Running::fixed();
    let mut silent: Vec<_> = (0..64).map(|_| TcpStream::connect(control.admin).unwrap()).collect();
    for _ in 0..3 {
        assert!(control.ask("GET", "/healthz").contains(" 200 "));
    }
    // Those that have been silent longest made room, and no others.
    let mut byte = [0];
    assert_eq!(silent[0].read(&mut byte).unwrap_or(0), 0);
    let last = silent.last_mut().unwrap();
    last.set_nonblocking(true).unwrap();
    assert_eq!(last.read(&mut byte).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(control.end(), Outcome::Drained);
}

/// They wait for an answer that takes its time; who comes later waits with them.
#[test]
fn connections_that_are_being_answered_are_not_closed_for_others() {
    let control = Running::fixed();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(control.admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        stream
    };
    let waiting: Vec<_> = (0..64).map(|_| ask("/connections")).collect();
    until("all questions", || control.noted.lock().unwrap().len() == 64);
    let mut later = ask("/healthz");
    for request in 0..128 {
        let connections = ConnectionSummaries::default();
        until("a question", || control.noted.lock().unwrap().len() > request);
        let request = u64::try_from(request).unwrap();
        control.report(0, ReportBody::Described { request, connections });
    }
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    }
    let mut answer = String::new();
    later.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    assert_eq!(control.end(), Outcome::Drained);
}

#[test]
fn a_question_is_answered_where_it_was_asked_and_an_unknown_topic_never() {
    let control = Running::fixed();
    control.report(1, question(7, "whisper"));
    control.report(1, question(8, "shout"));
    control.wait_for("8 on 1: HELLO");
    assert_eq!(control.noted.lock().unwrap().len(), 1);
    assert_eq!(control.end(), Outcome::Drained);
}

#[test]
fn a_worker_that_cannot_go_on_stops_the_others_and_ends_the_process_with_its_reason() {
    let control = Running::fixed();
    control.report(1, ReportBody::Failed("epoll".to_owned()));
    control.wait_for("stop");
    assert_eq!(control.thread.join().unwrap(), Outcome::Failed("worker 1: epoll".to_owned()));
}

#[test]
fn retired_snapshots_are_freed_here() {
    let control = Running::fixed();
    let mut loader = loader();
    let snapshot = loader.load("other", CONFIG).unwrap();
    drop(loader);
    let weak = Arc::downgrade(&snapshot);
    control.report(0, ReportBody::Retired(snapshot));
    until("its end", || weak.upgrade().is_none());
    assert_eq!(control.end(), Outcome::Drained);
}

/// Has the workers of a process without connections say so, from a request on.
fn describe_none(control: &Running, from: u64) {
    for worker in 0..2u32 {
        let request = from + u64::from(worker);
        control.wait_for(&format!("describe {worker} from 0, request {request}"));
        let connections = ConnectionSummaries::default();
        control.report(worker, ReportBody::Described { request, connections });
    }
}

#[test]
fn the_connections_of_the_process_before_are_shown_behind_the_own_ones() {
    let control = Running::fixed();
    let old = |lists_connections| OldProcess { pid: 4711, lists_connections };
    let step = |step| control.steps.blocking_send(step).unwrap();
    let shown = |path: &str, act: &dyn Fn()| {
        let page = std::thread::scope(|scope| {
            let page = scope.spawn(|| control.ask("GET", path));
            act();
            page.join().unwrap()
        });
        let (_, body) = page.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<serde_json::Value>(body).unwrap()
    };
    let listed = |request, place: (u32, u32), rows: &[&str], next| {
        let (worker, slot) = place;
        control.wait_for(&format!("the old process lists {worker} from {slot}, request {request}"));
        let rows = rows.iter().map(|id| format!("{{\"id\":\"{id}\",\"state\":\"idle\"}}"));
        step(HandoverStep::Heard(HandoverFact::Listed { request, rows: rows.collect(), next }));
    };
    let ids = |page: &serde_json::Value| -> Vec<String> {
        let rows = page["connections"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let page = shown("/connections", &|| describe_none(&control, 0));
    assert_eq!((ids(&page), page["old_process"].is_null()), (vec![], true));

    step(HandoverStep::Heard(HandoverFact::FormerStays(old(false))));
    let page = shown("/connections", &|| describe_none(&control, 2));
    assert_eq!(page["old_process"]["error"], "its version does not list its connections");

    step(HandoverStep::Heard(HandoverFact::FormerStays(old(true))));
    let page = shown("/connections?limit=3", &|| {
        describe_none(&control, 4);
        // One is damaged.
        listed(0, (0, 0), &["0.1.0", "0.2.7", "x"], Some((1, 0)));
        listed(1, (1, 0), &["1.0.0", "1.4.0"], Some((2, 0)));
    });
    assert_eq!(ids(&page), ["4711:0.1.0", "4711:0.2.7", "4711:1.0.0"]);
    assert_eq!(page["connections"][0]["process"], 4711);
    let next = "/connections?limit=3&after=4711:1.4";
    assert_eq!(page["next"], next);
    let page = shown(next, &|| {
        listed(2, (1, 4), &["1.4.0"], Some((2, 0)));
        listed(3, (2, 0), &[], None);
    });
    assert_eq!((ids(&page), page["next"].is_null()), (vec!["4711:1.4.0".to_owned()], true));
    assert_eq!(page["old_process"], serde_json::json!({ "pid": 4711, "error": null }));
    // One that goes in circles ends, and so does one that says nothing.
    let page = shown("/connections?after=4711:0.0", &|| listed(4, (0, 0), &[], Some((0, 0))));
    assert_eq!(page["old_process"]["error"].as_str(), None);
    let page = shown("/connections?after=4711:0.0", &|| {
        step(HandoverStep::Heard(HandoverFact::Listed {
            request: 77,
            rows: Vec::new(),
            next: None,
        }));
    });
    assert_eq!(page["old_process"]["error"], "it did not answer in time");
    let page = shown("/connections?after=4712:0.0", &|| {});
    assert_eq!((ids(&page), page["old_process"].is_null()), (vec![], true), "it has ended");

    let moved = |id: &str| control.ask("POST", &format!("/connections/move?connection={id}&to=1"));
    let answer = moved("4711:0.2.7");
    assert!(answer.contains(" 409 ") && answer.contains("belongs to process 4711"), "{answer}");
    step(HandoverStep::Heard(HandoverFact::FormerEnded { pid: 12, returned: None }));
    assert!(moved("4711:0.2.7").contains(" 409 "), "another has ended");
    step(HandoverStep::Heard(HandoverFact::FormerEnded { pid: 4711, returned: None }));
    until("its end", || {
        let answer = moved("4711:0.2.7");
        answer.contains(" 404 ") && answer.contains("process 4711 has ended")
    });
    assert_eq!(control.end(), Outcome::Drained);
}

#[test]
fn connections_are_listed_for_the_process_that_took_over() {
    let control = Running::fixed();
    let list = |worker, slot| {
        let (reply, listed) = tokio::sync::oneshot::channel();
        control
            .steps
            .blocking_send(HandoverStep::Ask(HandoverQuestion::List { worker, slot, reply }))
            .unwrap();
        listed
    };
    let listed = list(0, 5);
    control.wait_for("describe 0 from 5, request 0");
    let mut connections = some_connections();
    connections[0].target = "ä".repeat(5000);
    let connections = ConnectionSummaries { connections, next: Some(9) };
    control.report(0, ReportBody::Described { request: 0, connections });
    let ListedRows { rows, next } = listed.blocking_recv().unwrap();
    assert_eq!((rows.len(), next), (3, Some((0, 9))));
    assert!(rows.iter().all(|(_, row)| (100..1500).contains(&row.len())), "{rows:?}");
    let row: serde_json::Value = serde_json::from_str(&rows[0].1).unwrap();
    assert_eq!((&row["listener"], &row["peer"]), (&"edge".into(), &"192.0.2.1:5".into()));

    let listed = list(0, 9);
    control.wait_for("describe 0 from 9, request 1");
    control.report(
        0,
        ReportBody::Described { request: 1, connections: ConnectionSummaries::default() },
    );
    assert_eq!(listed.blocking_recv().unwrap().next, Some((1, 0)), "the next worker's");
    assert_eq!(list(2, 0).blocking_recv().unwrap().next, None, "there is none");
    assert_eq!(list(u32::MAX, u32::MAX).blocking_recv().unwrap().next, None);
    assert!(list(1, 0).blocking_recv().is_err(), "a worker that does not answer");
    // One that has ended has none.
    control.report(1, ReportBody::Stopped);
    assert_eq!(list(1, 0).blocking_recv().unwrap().next, Some((2, 0)));
    control.report(0, ReportBody::Stopped);
    assert_eq!(control.thread.join().unwrap(), Outcome::Drained);
}

#[test]
fn connections_are_asked_for_and_shown() {
    let control = Running::fixed();
    let reports = control.reports.clone();
    let noted = Arc::clone(&control.noted);
    let answering = std::thread::spawn(move || {
        for (worker, request) in [(0, 0), (1, 1)] {
            let asked = format!("describe {worker} from 0, request {request}");
            until(&asked, || noted.lock().unwrap().contains(&asked));
            let connections = if worker == 0 { some_connections() } else { Vec::new() };
            let connections = ConnectionSummaries { connections, next: None };
            let body = ReportBody::Described { request, connections };
            reports.blocking_send(Report::<Notebook> { worker, body }).unwrap();
        }
    });
    let page = control.ask("GET", "/connections");
    answering.join().unwrap();
    let (_, body) = page.split_once("\r\n\r\n").unwrap();
    let page: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(page["next"].is_null(), "{page}");
    let shown = page["connections"].as_array().unwrap().iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        (text("listener") + &text("cluster"), text("peer"), row["streams"].as_u64())
    });
    let expected = [
        ("edge", "192.0.2.1:5", Some(3)),
        ("edge", "unix", None),
        ("(removed)", "(removed)", None),
    ];
    let expected = expected.map(|(name, peer, n)| (name.to_owned(), peer.to_owned(), n));
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert_eq!(page["connections"][1]["id"], "0.1.3");
    assert_eq!(control.end(), Outcome::Drained);
}

#[test]
fn a_connection_moves_while_the_process_serves_and_the_answer_says_what_came_of_it() {
    let control = Running::fixed();
    assert!(control.ask("POST", "/connections/move?connection=0.1.3&to=1").contains("starting"));
    control.report(0, ReportBody::Started);
    control.report(1, ReportBody::Started);
    until("ready", || control.ask("GET", "/ready").contains(" 200 "));
    for (connection, status, part) in [
        ("0.1.3", 200, "\"id\": \"1.1.3\",\n  \"moved\": 2"),
        ("0.0.3", 409, "it drains, and cannot move"),
        ("1.1.3", 409, "on worker 1 already"),
        ("2.1.3", 404, "no connection 2.1.3"),
    ] {
        let answer =
            control.ask("POST", &format!("/connections/move?connection={connection}&to=1"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(part), "{answer}");
    }
    let stats = control.ask("GET", "/stats?filter=moves_total");
    let counts = ["request\",result=\"moved\"} 1", "request\",result=\"refused\"} 1"];
    assert!(counts.iter().all(|count| stats.contains(count)), "{stats}");
    let (reply, begun) = tokio::sync::oneshot::channel();
    control.steps.blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply))).unwrap();
    begun.blocking_recv().unwrap().unwrap();
    let answer = control.ask("POST", "/connections/move?connection=0.1.3&to=1");
    assert!(answer.contains(" 409 ") && answer.contains("a handover is under way"), "{answer}");
    control.roll_back();
    assert_eq!(control.end(), Outcome::Drained);
}

#[test]
fn nothing_that_needs_every_connection_in_its_place_begins_while_one_is_on_its_way() {
    let folder = std::env::temp_dir().join(format!("strait-control-moves-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("strait.yaml");
    std::fs::write(&path, CONFIG).unwrap();
    let control = Arc::new(Running::start(ConfigFile::new(&path, loader())));
    control.report(0, ReportBody::Started);
    control.report(1, ReportBody::Started);
    until("ready", || control.ask("GET", "/ready").contains(" 200 "));
    let begin_to_move = |slot| {
        control.holds_moves.store(true, Ordering::Relaxed);
        let asking = Arc::clone(&control);
        let path = format!("/connections/move?connection=0.{slot}.0&to=1");
        let asked = std::thread::spawn(move || asking.ask("POST", &path));
        control.wait_for(&format!("move 0.{slot}.0 to 1"));
        asked
    };
    let moved = |asked: JoinHandle<String>| {
        control.holds_moves.store(false, Ordering::Relaxed);
        assert!(asked.join().unwrap().contains(" 200 "));
    };
    let asked = begin_to_move(1);
    std::fs::write(&path, CONFIG.replace("/ }", "/x }")).unwrap();
    // Until it was read, and a little more.
    #[expect(clippy::disallowed_methods, reason = "nothing tells that something has not happened")]
    std::thread::sleep(Duration::from_millis(300));
    let (reply, mut begun) = tokio::sync::oneshot::channel();
    control.steps.blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply))).unwrap();
    assert!(control.ask("GET", "/config").contains("\"version\": 1"));
    assert!(begun.try_recv().is_err());
    moved(asked);
    let begun = begun.blocking_recv().unwrap().unwrap();
    assert_eq!(begun.snapshot.version, 2, "first the configuration, then the handover");
    control.roll_back();
    until("the end of the handover", || !control.ask("GET", "/handover").contains("giving"));

    let asked = begin_to_move(2);
    control.ask("POST", "/drain");
    assert!(control.ask("GET", "/ready").contains("draining"));
    moved(asked);
    control.wait_for("drain");
    let expected = [
        "move 0.1.0 to 1",
        "moved 0.1.0",
        "version 2, 0 listeners removed",
        "move 0.2.0 to 1",
        "moved 0.2.0",
        "drain",
    ];
    assert_eq!(*control.noted.lock().unwrap(), expected);
    let control = Arc::into_inner(control).unwrap();
    assert_eq!(control.end(), Outcome::Drained);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn workers_learn_how_near_the_memory_is_to_its_bound_and_what_is_to_close() {
    const MIB: u64 = 1 << 20;
    let folder = std::env::temp_dir().join(format!("strait-control-memory-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("strait.yaml");
    std::fs::write(&path, format!("{CONFIG}limits: {{ memory_max: 100MiB }}\n")).unwrap();
    let control = Running::start(ConfigFile::new(&path, loader()));
    for (mib, note) in [
        (80, "memory is Elevated, 0 to go"),
        (91, "memory is High, 0 to go"),
        (97, "memory is Critical, 0 to go"),
        (97, "memory is Critical, 7340032 to go"),
        (76, "memory is Elevated, 0 to go"),
        (74, "memory is Normal, 0 to go"),
    ] {
        RESIDENT.store(mib * MIB, Ordering::Relaxed);
        control.wait_for(note);
    }
    let metrics = control.ask("GET", "/metrics");
    assert!(metrics.contains("\nstrait_memory_max_bytes 104857600\n"), "{metrics}");
    assert!(metrics.contains("\nstrait_memory_level 0\n"));
    RESIDENT.store(97 * MIB, Ordering::Relaxed);
    until("the level to rise", || control.ask("GET", "/metrics").contains("strait_memory_level 3"));
    std::fs::write(&path, CONFIG).unwrap();
    let is_unbounded = || control.ask("GET", "/metrics").contains("\nstrait_memory_max_bytes 0\n");
    until("the bound to go", is_unbounded);
    assert!(control.ask("GET", "/metrics").contains("strait_memory_level 0"));
    control.end();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// One of HTTP/2, one of a unix socket, and one to an endpoint of a cluster that is gone.
fn some_connections() -> Vec<ConnectionSummary> {
    let (first, gone) = (Id { slot: 0, generation: 0 }, Id { slot: 9, generation: 0 });
    let row = |slot, side, peer, streams| ConnectionSummary {
        slot,
        generation: 3,
        side,
        peer,
        state: "idle",
        age: Duration::from_secs(1),
        requests: 1,
        streams,
        inbox_bytes: 0,
        outbox_bytes: 0,
        target: String::new(),
    };
    let client = ConnectionSide::Downstream(ListenerId(first));
    let service = ConnectionSide::Upstream(ClusterId(gone), EndpointId(gone));
    vec![
        row(0, client, Some(SocketAddr::from(([192, 0, 2, 1], 5))), Some(3)),
        row(1, client, None, None),
        row(2, service, None, None),
    ]
}

#[test]
fn a_configuration_whose_listeners_cannot_be_bound_leaves_no_trace() {
    let name = format!("strait-control-{}.yaml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, CONFIG).unwrap();
    let control = Running::start(ConfigFile::new(&path, loader()));
    control.refuses.store(true, Ordering::Relaxed);
    std::fs::write(&path, CONFIG.replace("edge", "rim")).unwrap();
    until("the refusal", || control.ask("GET", "/config").contains("listener rim: cannot listen"));
    assert_eq!(*control.noted.lock().unwrap(), [""; 0]);

    // Had the refused one counted, going back would remove its listener.
    control.refuses.store(false, Ordering::Relaxed);
    std::fs::write(&path, format!("{CONFIG}\n")).unwrap();
    control.wait_for("version 2, 0 listeners removed");
    assert_eq!(control.end(), Outcome::Drained);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_told_once_for_each_change() {
    let folder = std::env::temp_dir().join(format!("strait-control-gone-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("strait.yaml");
    std::fs::write(&path, CONFIG).unwrap();
    let control = Running::start(ConfigFile::new(&path, loader()));
    let refused = |times: u32| {
        let line = format!("strait_config_rejected_total {times}\n");
        control.ask("GET", "/metrics").contains(&line)
    };
    let put = |content: &[u8]| {
        std::fs::write(folder.join("new"), content).unwrap();
        std::fs::rename(folder.join("new"), &path).unwrap();
    };
    put(b"\nlisteners: \xff");
    until("the text", || control.ask("GET", "/config").contains("line 2 is not UTF-8"));
    put(b"\xff");
    until("the other text", || control.ask("GET", "/config").contains("line 1 is not UTF-8"));
    std::fs::remove_file(&path).unwrap();
    until("its absence", || control.ask("GET", "/config").contains("No such file"));
    std::fs::create_dir(&path).unwrap();
    until("the directory", || control.ask("GET", "/config").contains("is a directory"));
    std::fs::remove_dir(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    until("the pipe", || control.ask("GET", "/config").contains("not a regular file"));
    // Something else happens beside it, and it is looked at again.
    std::fs::write(folder.join("other"), "").unwrap();
    put(CONFIG.as_bytes());
    control.wait_for("version 2, 0 listeners removed");
    assert!(control.ask("GET", "/config").contains("\"last_error\": null"));
    assert!(refused(5), "{}", control.ask("GET", "/stats"));
    assert_eq!(control.end(), Outcome::Drained);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it has to stay away for some time")]
fn a_file_that_is_away_for_an_instant_is_not_missed() {
    let name = format!("strait-control-instant-{}.yaml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, CONFIG).unwrap();
    let control = Running::start(ConfigFile::new(&path, loader()));
    std::fs::remove_file(&path).unwrap();
    let began = Instant::now();
    // Longer than the watch waits for quiet.
    until("a while", || began.elapsed() > Duration::from_millis(300));
    std::fs::write(&path, format!("{CONFIG}\n")).unwrap();
    control.wait_for("version 2, 0 listeners removed");
    assert!(control.ask("GET", "/metrics").contains("strait_config_rejected_total 0\n"));
    assert_eq!(control.end(), Outcome::Drained);
    std::fs::remove_file(&path).unwrap();
}

/// What is linked meanwhile, here an endpoint that is drained, says nothing of the file.
#[test]
#[expect(clippy::disallowed_methods, reason = "it has to be away before an endpoint is drained")]
fn a_file_that_is_gone_is_missed_though_endpoints_change_meanwhile() {
    let name = format!("strait-control-gone-{}.yaml", std::process::id());
    let path = std::env::temp_dir().join(name);
    let clusters = "clusters: [{ name: web, endpoints: ['10.0.0.1:80', '10.0.0.2:80'] }]\n";
    let text = format!("{}{clusters}", CONFIG.replace("respond: {}", "cluster: web"));
    std::fs::write(&path, text).unwrap();
    let control = Running::start(ConfigFile::new(&path, loader()));
    std::fs::remove_file(&path).unwrap();
    let began = Instant::now();
    // Longer than the watch waits for quiet.
    until("a while", || began.elapsed() > Duration::from_millis(300));
    let drained = control.ask("POST", "/clusters/web/endpoints/10.0.0.1:80?health=drain");
    assert!(drained.contains(" 200 "), "{drained}");
    until("its absence", || control.ask("GET", "/config").contains("No such file"));
    assert_eq!(control.end(), Outcome::Drained);
}

/// A certificate that is replaced as Kubernetes does it, and one that is written in place.
#[test]
fn a_changed_certificate_is_taken_up_and_one_that_does_not_fit_is_not() {
    let folder = std::env::temp_dir().join(format!("strait-control-tls-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let put = |version: &str, certificate: &str, key: &str| {
        let version = folder.join(version);
        std::fs::create_dir_all(&version).unwrap();
        std::fs::write(version.join("tls.crt"), certificate).unwrap();
        std::fs::write(version.join("tls.key"), key).unwrap();
    };
    put("first", certificate::SITE, certificate::SITE_KEY);
    put("second", certificate::TENANTS, certificate::TENANTS_KEY);
    put("third", certificate::SITE, certificate::TENANTS_KEY);
    let link = |version: &str| {
        let new = folder.join("..new");
        std::os::unix::fs::symlink(version, &new).unwrap();
        std::fs::rename(new, folder.join("..data")).unwrap();
    };
    link("first");
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
    }
    let path = folder.join("strait.yaml");
    let tls = "tls: { certificates: [{ chain: tls.crt, key: tls.key }] }, routes: all";
    std::fs::write(&path, CONFIG.replace("routes: all", tls)).unwrap();

    let control = Running::start(ConfigFile::new(&path, loader()));
    let config = control.ask("GET", "/config");
    assert!(config.contains("\"CN=shop.example.com\""), "{config}");
    let expiry = "strait_tls_certificate_expiry_timestamp_seconds\
                  {listener=\"edge\",cluster=\"\",file=\"tls.crt\"} 49";
    assert!(control.ask("GET", "/metrics").contains(expiry));
    link("second");
    control.wait_for("version 2, 0 listeners removed");
    assert!(control.ask("GET", "/config").contains("\"CN=tenants.example.com\""));
    link("third");
    until("the refusal", || control.ask("GET", "/config").contains("does not fit the certificate"));
    std::fs::write(folder.join("third/tls.key"), certificate::SITE_KEY).unwrap();
    control.wait_for("version 3, 0 listeners removed");
    assert_eq!(control.end(), Outcome::Drained);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_unix_admin_socket_is_for_one_process_and_goes_with_it() {
    let name = format!("strait-admin-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let address = Address::Unix(Arc::from(path.as_path()));
    let first = AdminSocket::bind(&address, None).unwrap();
    assert_eq!(
        AdminSocket::bind(&address, None).unwrap_err().kind(),
        std::io::ErrorKind::AddrInUse
    );
    drop(first);
    assert!(!path.exists());
    // What a process that was killed left behind is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(AdminSocket::bind(&address, None).unwrap());
    // What another process has put there since stays.
    let first = AdminSocket::bind(&address, None).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(first);
    assert!(path.exists());
    std::fs::remove_file(&path).unwrap();
    drop(other);
    // So does anything else.
    std::fs::write(&path, "mine").unwrap();
    assert!(AdminSocket::bind(&address, None).is_err());
    assert_eq!(read(&path), "mine");
    std::fs::remove_file(&path).unwrap();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A process with a folder of files as its source.
struct WithFolder {
    path: PathBuf,
    heard: Arc<Mutex<Vec<String>>>,
    running: Running,
}

impl WithFolder {
    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("strait-control-{name}-{}", std::process::id()))
    }

    fn start(name: &str, text: String) -> Self {
        let path = Self::path(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self::start_at(path, text)
    }

    fn start_at(path: PathBuf, text: String) -> Self {
        let file = path.join("strait.conf");
        std::fs::write(&file, text).unwrap();
        let config = ConfigFile::new(&file, loader());
        let source = folder::Folder::new(path.clone());
        let heard = Arc::clone(&source.heard);
        let running = Running::start_with(config, vec![Box::new(source)]);
        running.report(0, ReportBody::Started);
        running.report(1, ReportBody::Started);
        Self { path, heard, running }
    }

    fn write(&self, name: &str, content: &str) {
        // By renaming, so that no half of it is read.
        let (part, path) = (self.path.join("part"), self.path.join(format!("{name}.yaml")));
        std::fs::write(&part, content).unwrap();
        std::fs::rename(part, path).unwrap();
    }

    fn hears(&self, text: &str) {
        until(text, || self.heard.lock().unwrap().iter().any(|heard| heard.starts_with(text)));
    }

    fn end(self) {
        self.running.end();
        std::fs::remove_dir_all(&self.path).unwrap();
    }
}

#[test]
fn a_source_delivers_clusters_and_hears_what_became_of_each() {
    let web = |port: u16| format!("{{ name: web, endpoints: ['10.0.0.1:{port}'] }}");
    let folder = WithFolder::start("source", CONFIG.replace("respond: {}", "cluster: web"));
    let running = &folder.running;
    folder.hears("wanted: cluster/web");
    folder.write("cluster.web", &web(80));
    folder.hears("cluster/web 1: accepted");
    running.wait_for("version 2, 0 listeners removed");
    let shown = running.ask("GET", "/config?resource=cluster/web");
    assert!(shown.contains("10.0.0.1:80") && shown.contains("\"version\": \"1\""), "{shown}");
    assert!(shown.contains("\"source\": \"folder\""), "{shown}");
    // A wrong one leaves the version before it.
    folder.write("cluster.web", &web(0));
    folder.hears("cluster/web 2: folder cluster/web version 2:1:");
    let shown = running.ask("GET", "/config?resource=cluster/web");
    assert!(shown.contains("10.0.0.1:80") && shown.contains("\"state\": \"refused\""), "{shown}");
    assert!(shown.contains("\"rule\": "), "{shown}");
    let sources = running.ask("GET", "/sources");
    let sources: serde_json::Value =
        serde_json::from_str(sources.split_once("\r\n\r\n").unwrap().1).unwrap();
    let shown = sources["sources"].as_array().unwrap().iter().find(|it| it["name"] == "folder");
    let shown = shown.unwrap();
    assert_eq!(shown["accepted_total"], 1);
    assert_eq!(shown["refused_total"]["invalid"], 1);
    assert!(shown["last_accepted_at"].is_string() && shown["age_seconds"].is_u64(), "{shown}");
    assert!(shown["last_heard_at"].as_str() >= shown["last_accepted_at"].as_str(), "{shown}");
    assert_eq!((&shown["state"], &shown["version"]), (&"refused".into(), &"1".into()));
    assert_eq!(shown["states"], serde_json::json!({ "accepted": 1, "refused": 1 }));
    let of_file = &sources["sources"][0];
    assert_eq!((&of_file["name"], &of_file["version"]), (&"file".into(), &2.into()));
    let dns = sources["sources"].as_array().unwrap().iter().find(|it| it["name"] == "dns").unwrap();
    assert_eq!(
        (&dns["state"], &dns["last_heard_at"]),
        (&"waiting".into(), &serde_json::Value::Null)
    );
    let config = running.ask("GET", "/config");
    let config: serde_json::Value =
        serde_json::from_str(&joined(config.split_once("\r\n\r\n").unwrap().1)).unwrap();
    let of_folder = config["sources"].as_array().unwrap().iter().find(|it| it["name"] == "folder");
    let of_folder = of_folder.unwrap();
    assert!(of_folder["last_heard_at"].is_string(), "{of_folder}");
    // Both pages say what it was refused, and why.
    assert_eq!((&of_folder["refused_count"], &sources["refused_count"]), (&1.into(), &1.into()));
    assert_eq!(of_folder["refused"], sources["refused"]);
    assert_eq!(of_folder["refused"], shown["refused"]);
    assert_eq!(sources["refused"][0]["source"], "folder");
    assert_eq!(sources["refused"][0]["version"], "2");
    assert_eq!(sources["refused"][0]["resource"], "cluster/web");
    assert_eq!(sources["refused"][0]["errors"][0]["path"].as_str(), Some("endpoints[0]"));
    let metrics = running.ask("GET", "/metrics");
    for (kind, state, count) in [
        ("listener", "active", 1),
        ("route", "active", 1),
        ("cluster", "active", 1),
        ("cluster", "refused", 1),
        ("cluster", "warming", 0),
    ] {
        let line =
            format!("strait_config_resources{{kind=\"{kind}\",state=\"{state}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    folder.write("cluster.web", &web(81));
    folder.hears("cluster/web 3: accepted");
    running.wait_for("version 3, 0 listeners removed");
    std::fs::remove_file(folder.path.join("cluster.web.yaml")).unwrap();
    folder.hears("cluster/web 4: accepted");
    running.wait_for("version 4, 0 listeners removed");
    let shown = running.ask("GET", "/config?resource=cluster/web");
    assert!(shown.contains("\"state\": \"warming\""), "{shown}");
    assert!(running.ask("GET", "/config?resource=cluster/other").contains("404"));
    let metrics = running.ask("GET", "/metrics");
    assert!(
        metrics.contains("strait_source_answers_total{source=\"folder\",kind=\"cluster\"} 3"),
        "{metrics}"
    );
    assert!(
        metrics.contains(
            "strait_source_failures_total{source=\"folder\",kind=\"cluster\",reason=\"invalid\"} 1"
        ),
        "{metrics}"
    );
    folder.end();
}

#[test]
fn no_more_than_two_configurations_wait_for_a_worker_and_what_changes_meanwhile_is_put_together() {
    let web = |port: u16| format!("{{ name: web, endpoints: ['10.0.0.1:{port}'] }}");
    let folder = WithFolder::start("stuck", CONFIG.replace("respond: {}", "cluster: web"));
    let running = &folder.running;
    folder.write("cluster.web", &web(80));
    folder.hears("cluster/web 1: accepted");
    until("both workers", || {
        running.ask("GET", "/metrics").contains("strait_config_take_up_seconds_count 2\n")
    });
    running.is_stuck.store(true, Ordering::Relaxed);
    folder.write("cluster.web", &web(81));
    folder.hears("cluster/web 2: accepted");
    folder.write("cluster.web", &web(82));
    folder.hears("cluster/web 3: accepted");
    folder.write("cluster.web", &web(83));
    // A reload waits as well; control answers meanwhile.
    let reload = || std::fs::write(folder.path.join("strait.conf"), format!("{CONFIG}# again\n"));
    reload().unwrap();
    #[expect(clippy::disallowed_methods, reason = "that nothing happens takes time to see")]
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.ask("GET", "/ready").contains("ready"));
    assert_eq!(running.noted.lock().unwrap().last().unwrap(), "version 4, 0 listeners removed");
    assert!(running.ask("GET", "/config").contains("\"workers\": [\n    4,\n    2\n  ]"));
    running.is_stuck.store(false, Ordering::Relaxed);
    running.report(1, ReportBody::TakenUp(4));
    folder.hears("cluster/web 4: accepted");
    running.wait_for("version 6, 0 listeners removed");
    until("all of them", || {
        running.ask("GET", "/metrics").contains("strait_config_take_up_seconds_count 6\n")
    });
    folder.end();
}

/// A listener with these routes.
fn listener(name: &str, port: u16, routes: &str) -> String {
    format!("{{ name: {name}, address: '127.0.0.1:{port}', routes: {routes} }}")
}

const SHOP: &str = "{ name: shop, virtual_hosts: [{ name: any, rules: [] }] }";

#[test]
fn a_listener_waits_for_its_routes_and_one_that_cannot_be_bound_is_refused_alone() {
    let folder = WithFolder::start("listeners", CONFIG.to_owned());
    let running = &folder.running;
    folder.write("listener.rim", &listener("rim", 7, "shop"));
    folder.hears("listener/rim 1: accepted, waits for route/shop");
    folder.hears("wanted: route/shop");
    folder.write("route.shop", SHOP);
    folder.hears("route/shop 2: accepted");
    running.wait_for("version 2, 0 listeners removed");
    assert!(running.ask("GET", "/config?resource=listener/rim").contains("\"routes\""));
    // Both at once.
    let (part, ready) = (folder.path.join("listener.a.yaml"), listener("a", 8, "shop"));
    std::fs::write(part, ready).unwrap();
    folder.write("listener.taken", &listener("taken", 9, "shop"));
    folder.hears("listener/a ");
    folder.hears("listener/taken ");
    let heard = folder.heard.lock().unwrap().join("\n");
    assert!(heard.contains(": accepted"), "{heard}");
    let said = ":1:1: cannot listen on somewhere: taken; free the address";
    assert!(heard.contains(said), "{heard}");
    let shows = |name: &str, state: &str| {
        let shown = running.ask("GET", &format!("/config?resource=listener/{name}"));
        assert!(shown.contains(&format!("\"state\": \"{state}\"")), "{shown}");
    };
    shows("a", "active");
    shows("taken", "refused");
    folder.end();
}

#[test]
fn a_file_that_lets_a_listener_serve_is_not_refused_because_that_cannot_be_bound() {
    let folder = WithFolder::start("file", CONFIG.to_owned());
    for name in ["rim", "taken"] {
        folder.write(&format!("listener.{name}"), &listener(name, 7, "shop"));
        folder.hears(&format!("listener/{name} "));
    }
    let text = CONFIG.replace("name: all,", "name: shop, rules: [] }\n  - { name: all,");
    std::fs::write(folder.path.join("strait.conf"), text).unwrap();
    let said = "cannot listen on somewhere: taken";
    until(said, || folder.heard.lock().unwrap().iter().any(|heard| heard.contains(said)));
    folder.running.wait_for("version 2, 0 listeners removed");
    let shown = folder.running.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("\"state\": \"active\""), "{shown}");
    let shown = folder.running.ask("GET", "/config");
    assert!(shown.contains("\"last_error\": null"), "{shown}");
    folder.end();
}

/// A PEM text as a block of YAML.
fn indented(pem: &str) -> String {
    pem.trim().replace('\n', "\n  ")
}

#[test]
fn a_listener_waits_no_longer_than_the_timeout_for_its_routes() {
    let text = format!("{CONFIG}resolvers: {{ initial_fetch_timeout: 20ms }}\n");
    let folder = WithFolder::start("waits", text);
    folder.write("listener.rim", &listener("rim", 7, "shop"));
    folder.hears("listener/rim 1: accepted, waits for route/shop");
    folder.running.wait_for("version 2, 0 listeners removed");
    folder.hears("listener/rim 1: accepted, without route/shop");
    let missing = "\"missing\": [\n    \"route/shop\"\n  ]";
    let shown = folder.running.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("200 OK") && shown.contains(missing), "{shown}");
    let shown = folder.running.ask("GET", "/config?resource=route/shop");
    assert!(shown.contains("\"warming\"") && shown.contains("\"listener/rim\""), "{shown}");
    folder.write("route.shop", SHOP);
    folder.running.wait_for("version 3, 0 listeners removed");
    folder.hears("listener/rim 1: accepted");
    let shown = folder.running.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("\"missing\": []"), "{shown}");
    // The route configuration, and the table of its virtual host.
    for resource in ["route/shop", "route/shop/any"] {
        let shown = folder.running.ask("GET", &format!("/config?resource={resource}"));
        assert!(shown.contains("\"listener/rim\"") && shown.contains("\"active\""), "{shown}");
        assert!(shown.contains("\"version\": \"2\"") && shown.contains("\"folder\""), "{shown}");
    }
    folder.end();
}

#[test]
fn a_listener_whose_secret_does_not_come_in_time_is_refused_until_it_does() {
    let text = format!("{CONFIG}resolvers: {{ initial_fetch_timeout: 20ms }}\n");
    let folder = WithFolder::start("late-secret", text);
    let running = &folder.running;
    let secret = "tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] }";
    let rim = format!("{{ name: rim, address: '127.0.0.1:7', routes: all, {secret} }}");
    folder.write("listener.rim", &rim);
    folder.hears("listener/rim 1: accepted, waits for secret/site");
    let late = "secret/site did not arrive within resolvers.initial_fetch_timeout";
    folder.hears("listener/rim 1: folder listener/rim version 1:1:");
    let shown = running.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("\"state\": \"refused\"") && shown.contains(late), "{shown}");
    let metrics = running.ask("GET", "/metrics");
    let failure = "strait_source_failures_total{source=\"folder\",kind=\"listener\",\
                   reason=\"initial_fetch_timeout\"} 1\n";
    assert!(metrics.contains(failure), "{metrics}");
    let (site, key) = (indented(certificate::SITE), indented(certificate::SITE_KEY));
    folder.write("secret.site", &format!("name: site\nchain: |\n  {site}\nkey: |\n  {key}\n"));
    folder.hears("listener/rim 1: accepted");
    running.wait_for("version 2, 0 listeners removed");
    let shown = running.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("\"state\": \"active\""), "{shown}");
    let shown = running.ask("GET", "/config?resource=secret/site");
    assert!(shown.contains("\"listener/rim\"") && !shown.contains("PRIVATE"), "{shown}");
    folder.end();
}

#[test]
fn a_source_assigns_endpoints_to_a_cluster_of_the_file_and_to_its_own() {
    let text = CONFIG.replace("respond: {}", "cluster: web");
    let text = format!(
        "{text}clusters: [{{ name: web }}]\nresolvers: {{ initial_fetch_timeout: 20ms }}\n"
    );
    let folder = WithFolder::start("assignment", text);
    let running = &folder.running;
    let assignment = |name: &str, endpoints: &str| {
        folder.write(
            &format!("assignment.{name}"),
            &format!("{{ name: {name}, endpoints: [{endpoints}] }}"),
        );
    };
    folder.hears("wanted: assignment/web");
    assert!(running.ask("GET", "/config?resource=assignment/web").contains("200 OK"));
    assignment("web", "'10.0.0.1:80', { address: '10.0.0.2:80', health: draining }");
    folder.hears("assignment/web 1: accepted");
    running.wait_for("version 2, 0 listeners removed");
    let shown = running.ask("GET", "/config?resource=assignment/web");
    assert!(shown.contains("10.0.0.1:80") && shown.contains("\"draining\""), "{shown}");
    // Its own cluster serves after a while without.
    folder.write("cluster.own", "{ name: own }");
    folder.hears("cluster/own 2: accepted, waits for assignment/own");
    folder.hears("wanted: assignment/own");
    running.wait_for("version 3, 0 listeners removed");
    assignment("own", "'10.0.0.3:80'");
    running.wait_for("version 4, 0 listeners removed");
    assignment("own", "'10.0.0.3:80', '10.0.0.3:80'");
    folder.hears("assignment/own 4: folder assignment/own version 4:1:");
    let shown = running.ask("GET", "/config?resource=assignment/own");
    assert!(shown.contains("\"state\": \"refused\"") && shown.contains("10.0.0.3:80"), "{shown}");
    let metrics = running.ask("GET", "/metrics");
    for line in [
        "strait_config_resources{kind=\"assignment\",state=\"active\"} 2\n",
        "strait_config_resources{kind=\"assignment\",state=\"refused\"} 1\n",
        "strait_source_answers_total{source=\"folder\",kind=\"assignment\"} 2\n",
        "strait_source_answers_total{source=\"folder\",kind=\"cluster\"} 2\n",
        "strait_source_failures_total{source=\"folder\",kind=\"assignment\",reason=\"invalid\"} 1\n",
        "strait_source_failures_total{source=\"folder\",kind=\"cluster\",reason=\"initial_fetch_timeout\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    folder.end();
}

#[test]
fn a_source_hears_later_that_what_it_delivered_does_not_go_with_what_came() {
    let folder = WithFolder::start("late", CONFIG.to_owned());
    let routes = |name: &str| SHOP.replace("shop", name);
    folder.write("listener.rim", &listener("rim", 7, "[shop, late]"));
    folder.hears("listener/rim 1: accepted, waits for route/late route/shop");
    folder.write("route.shop", &routes("shop"));
    folder.hears("route/shop 2: accepted");
    folder.write("route.late", &routes("late"));
    folder.hears("listener/rim 1: folder listener/rim version 1:1:");
    let shown = folder.running.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("\"state\": \"refused\"") && !shown.contains("effective"), "{shown}");
    folder.end();
}

/// A source by the name of the folder that says nothing.
#[derive(Debug)]
struct Silent(Arc<Mutex<Vec<String>>>);

impl Source for Silent {
    fn name(&self) -> &'static str {
        "folder"
    }

    fn subscribe(&mut self, _: &[ResourceName]) {}

    fn unsubscribe(&mut self, _: &[ResourceName]) {}

    fn on_restored(&mut self, resources: &[Update]) {
        let names = resources.iter().map(|it| format!("{}/{}", it.kind.word(), it.name));
        let names = names.collect::<Vec<_>>().join(" ");
        self.0.lock().unwrap().push(format!("restored: {names}"));
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn on_verdict(&mut self, _: &Verdict) {}
}

#[test]
fn what_a_source_delivered_serves_after_a_restart_until_it_says_otherwise() {
    let web = |port: u16| format!("{{ name: web, endpoints: ['10.0.0.1:{port}'] }}");
    let begin = |name: &str| {
        let path = WithFolder::path(name);
        let state = path.join("state");
        let text = CONFIG.replace("respond: {}", "cluster: web");
        (format!("{text}state: {}\n", state.display()), state.join("last-good"), path)
    };
    let (text, kept, path) = begin("state");
    let folder = WithFolder::start("state", text.clone());
    folder.write("cluster.web", &web(80));
    folder.hears("cluster/web 1: accepted");
    folder.write("cluster.api", "{ name: api, endpoints: ['10.0.0.2:80'] }");
    folder.write("cluster.bad", "{ name: bad, endpoints: ['10.0.0.2:0'] }");
    let (site, key) = (indented(certificate::SITE), indented(certificate::SITE_KEY));
    let secret = format!("name: site\nchain: |\n  {site}\nkey: |\n  {key}\n");
    folder.write("secret.site", &secret);
    folder.write("secret.trust", &format!("name: trust\nca: |\n  {site}\n"));
    for name in ["cluster/api", "secret/site", "secret/trust"] {
        until(name, || {
            let heard = folder.heard.lock().unwrap();
            heard.iter().any(|it| it.starts_with(name) && it.ends_with(": accepted"))
        });
    }
    folder.hears("cluster/bad");
    // Nothing of the process is waited for: what was accepted last is written at its end.
    assert_eq!(folder.running.end(), Outcome::Drained);
    let names = |kept: &Path| -> Vec<String> {
        let text = read(kept);
        let content = text.split_once('\n').unwrap().1;
        let content: serde_json::Value = serde_json::from_str(content).unwrap();
        let resources = content["resources"].as_array().unwrap().clone();
        resources.iter().map(|it| it["resource"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&kept), ["cluster/api", "cluster/web", "secret/trust"]);
    assert!(!read(&kept).contains("PRIVATE KEY"), "keys are not kept");

    // The source is silent.
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let config = ConfigFile::new(&path.join("strait.conf"), loader());
    let running = Running::start_with(config, vec![Box::new(Silent(Arc::clone(&heard)))]);
    running.report(0, ReportBody::Started);
    running.report(1, ReportBody::Started);
    running.wait_for("version 2, 0 listeners removed");
    let shown = running.ask("GET", "/config?resource=cluster/web");
    assert!(shown.contains("10.0.0.1:80") && shown.contains("\"state\": \"active\""), "{shown}");
    let expected = "restored: cluster/api cluster/web secret/trust";
    until(expected, || heard.lock().unwrap().iter().any(|it| it == expected));
    let metrics = running.ask("GET", "/metrics");
    let restored = "strait_source_resources{source=\"folder\",state=\"restored\"}";
    assert!(metrics.contains(&format!("{restored} 3\n")), "{metrics}");
    let ready = running.ask("GET", "/ready?verbose");
    assert!(ready.contains("source folder: 3 restored from `state`, accepted "), "{ready}");
    let sources = running.ask("GET", "/sources");
    assert!(sources.contains("\"folder\": \"/") && sources.contains("\"last_error\": null"));
    assert_eq!(running.end(), Outcome::Drained);
    assert_eq!(names(&kept).len(), 3, "it is not less after a start without the source");

    // It speaks, and one has gone meanwhile.
    std::fs::remove_file(path.join("cluster.api.yaml")).unwrap();
    std::fs::remove_file(path.join("cluster.bad.yaml")).unwrap();
    std::fs::write(path.join("cluster.web.yaml"), web(81)).unwrap();
    let folder = WithFolder::start_at(path.clone(), text);
    folder.hears(expected);
    folder.hears("cluster/web 1: accepted");
    folder.hears("cluster/api 1: accepted");
    let shown = folder.running.ask("GET", "/config?resource=cluster/web");
    assert!(shown.contains("10.0.0.1:81"), "{shown}");
    assert!(folder.running.ask("GET", "/config?resource=cluster/api").contains("404"));
    until("the end of what was restored", || {
        !folder.running.ask("GET", "/metrics").contains(restored)
    });
    assert!(!folder.running.ask("GET", "/ready?verbose").contains("restored"));
    assert_eq!(folder.running.end(), Outcome::Drained);
    assert_eq!(names(&kept), ["cluster/web", "secret/trust"]);

    // The file has one of them by now.
    let text =
        format!("{CONFIG}clusters:\n  - {}\nstate: {}\n", web(82), path.join("state").display());
    std::fs::write(path.join("strait.conf"), text).unwrap();
    let config = ConfigFile::new(&path.join("strait.conf"), loader());
    let running = Running::start_with(config, vec![Box::new(Silent(heard))]);
    until("the others", || running.ask("GET", "/metrics").contains(&format!("{restored} 1\n")));
    assert!(running.ask("GET", "/config?resource=cluster/web").contains("10.0.0.1:82"));
    assert_eq!(running.end(), Outcome::Drained);
    assert_eq!(
        names(&kept),
        ["cluster/web", "secret/trust"],
        "it may be accepted at the next start"
    );
    std::fs::remove_dir_all(&path).unwrap();
}

/// The resources in a file, or those that serve in place of them.
fn kept_in(file: &Path, part: &str) -> Vec<String> {
    let text = read(file);
    let content: serde_json::Value =
        serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    let resources = content.get(part).unwrap().as_array().unwrap().clone();
    resources.iter().map(|it| it["resource"].as_str().unwrap().to_owned()).collect()
}

/// A configuration with a folder `state` below `path`, and the file in it.
fn with_state(path: &Path, text: &str) -> (String, PathBuf) {
    let state = path.join("state");
    (format!("{text}state: {}\n", state.display()), state.join("last-good"))
}

#[test]
fn keys_that_are_asked_for_serve_after_a_restart_and_are_gone_once_they_are_not() {
    let path = WithFolder::path("keys");
    let state = path.join("state");
    let (file, config) = (state.join("last-good"), path.join("strait.conf"));
    let with =
        |keys: bool| format!("{CONFIG}state: {{ folder: {}, keys: {keys} }}\n", state.display());
    let folder = WithFolder::start("keys", with(true));
    let (site, key) = (indented(certificate::SITE), indented(certificate::SITE_KEY));
    folder.write("secret.site", &format!("name: site\nchain: |\n  {site}\nkey: |\n  {key}\n"));
    let tls = "tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] }";
    let listener = listener("rim", 7, "all").replacen("routes", &format!("{tls}, routes"), 1);
    folder.write("listener.rim", &listener);
    for name in ["listener/rim", "secret/site"] {
        until(name, || {
            let heard = folder.heard.lock().unwrap();
            heard.iter().any(|it| it.starts_with(name) && it.ends_with(": accepted"))
        });
    }
    assert_eq!(folder.running.end(), Outcome::Drained);
    assert_eq!(kept_in(&file, "resources"), ["listener/rim", "secret/site"]);
    assert!(read(&file).contains("PRIVATE KEY"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    for keys in [true, false] {
        std::fs::write(&config, with(keys)).unwrap();
        let source = Silent(Arc::clone(&heard));
        let running =
            Running::start_with(ConfigFile::new(&config, loader()), vec![Box::new(source)]);
        until("what was restored", || {
            let shown = running.ask("GET", "/config?resource=listener/rim");
            shown.contains("\"state\": \"active\"")
        });
        assert_eq!(running.end(), Outcome::Drained);
        assert_eq!(read(&file).contains("PRIVATE KEY"), keys);
    }
    assert_eq!(kept_in(&file, "resources"), ["listener/rim"]);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_version_that_waits_and_one_that_is_gone_leave_what_serves_for_the_next_start() {
    let (text, file) = with_state(&WithFolder::path("serving"), CONFIG);
    let folder = WithFolder::start("serving", text);
    let running = &folder.running;
    folder.write("cluster.web", "{ name: web, endpoints: ['10.0.0.1:80'] }");
    folder.write("cluster.api", "{ name: api }");
    folder.write("assignment.api", "{ name: api, endpoints: ['10.0.0.2:80'] }");
    let is_active = |running: &Running, name: &str, address: &str| {
        running.ask("GET", &format!("/clusters?name={name}")).contains(address)
    };
    let both_serve = |running: &Running| {
        is_active(running, "web", "10.0.0.1:80") && is_active(running, "api", "10.0.0.2:80")
    };
    until("both", || both_serve(running));
    // The first waits from now on, and the endpoints of the second are gone: what was there serves.
    let waiting = "{ name: web, endpoints: ['10.0.0.3:80'], tls: { ca: 'secret:trust' } }";
    folder.write("cluster.web", waiting);
    until("what it waits for", || {
        let heard = folder.heard.lock().unwrap();
        heard.iter().any(|it| it.starts_with("cluster/web") && it.contains("waits for secret"))
    });
    std::fs::remove_file(folder.path.join("assignment.api.yaml")).unwrap();
    until("its end", || {
        let heard = folder.heard.lock().unwrap();
        heard.iter().filter(|it| it.starts_with("assignment/api")).count() == 2
    });
    assert!(both_serve(running));
    assert_eq!(folder.running.end(), Outcome::Drained);
    assert_eq!(kept_in(&file, "resources"), ["cluster/api", "cluster/web"]);
    assert_eq!(kept_in(&file, "serving"), ["cluster/web", "assignment/api"]);

    // A start without the source, and one after that.
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    for _ in 0..2 {
        let config = ConfigFile::new(&folder.path.join("strait.conf"), loader());
        let source = Silent(Arc::clone(&heard));
        let running = Running::start_with(config, vec![Box::new(source)]);
        let restored = "restored: cluster/api cluster/web";
        until(restored, || heard.lock().unwrap().pop().is_some_and(|it| it == restored));
        assert!(both_serve(&running));
        assert_eq!(running.end(), Outcome::Drained);
        assert_eq!(kept_in(&file, "serving"), ["cluster/web", "assignment/api"]);
    }

    // The source is back, with what the first waits for; nothing names the endpoints any more.
    std::fs::remove_file(folder.path.join("cluster.api.yaml")).unwrap();
    let site = certificate::SITE.trim().replace('\n', "\n  ");
    let trust = format!("name: trust\nca: |\n  {site}\n");
    std::fs::write(folder.path.join("secret.trust.yaml"), trust).unwrap();
    let folder = WithFolder::start_at(folder.path.clone(), read(&folder.path.join("strait.conf")));
    folder.hears("cluster/api 1: accepted");
    until("the version that waited", || is_active(&folder.running, "web", "10.0.0.3:80"));
    assert_eq!(folder.running.end(), Outcome::Drained);
    assert_eq!(kept_in(&file, "resources"), ["cluster/web", "secret/trust"]);
    assert_eq!(kept_in(&file, "serving"), [""; 0]);
    std::fs::remove_dir_all(&folder.path).unwrap();
}

#[test]
fn a_route_configuration_that_a_listener_refuses_leaves_the_one_before_for_the_next_start() {
    let path = WithFolder::path("refuses");
    let (text, file) = with_state(&path, CONFIG);
    let folder = WithFolder::start("refuses", text);
    let route = |host: &str| {
        format!("{{ name: shop, virtual_hosts: [{{ name: any, hosts: [{host}], rules: [] }}] }}")
    };
    let other = "{ name: other, virtual_hosts: [{ name: any, hosts: [a.test], rules: [] }] }";
    folder.write("route.shop", &route("b.test"));
    folder.write("route.other", other);
    folder.write("listener.rim", &listener("rim", 7, "[shop, other]"));
    let hears = |name: &str, part: &str| {
        until(&format!("{part} of {name}"), || {
            let heard = folder.heard.lock().unwrap();
            heard.iter().any(|it| it.starts_with(name) && it.contains(part))
        });
    };
    hears("listener/rim", ": accepted");
    // Two with the same host do not go together.
    folder.write("route.shop", &route("a.test"));
    hears("listener/rim", "a.test");
    let shown = folder.running.ask("GET", "/config?resource=listener/rim");
    assert_eq!(folder.running.end(), Outcome::Drained);
    assert_eq!(kept_in(&file, "resources"), ["listener/rim", "route/other", "route/shop"]);
    assert_eq!(kept_in(&file, "serving"), ["route/shop"]);

    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let config = ConfigFile::new(&path.join("strait.conf"), loader());
    let running = Running::start_with(config, vec![Box::new(Silent(Arc::clone(&heard)))]);
    let restored = "restored: listener/rim route/other route/shop";
    until(restored, || heard.lock().unwrap().iter().any(|it| it == restored));
    let again = running.ask("GET", "/config?resource=listener/rim");
    let state = |page: &str| page.lines().find(|it| it.contains("\"state\"")).map(str::to_owned);
    assert_eq!(state(&again), state(&shown), "{again}");
    assert!(again.contains("b.test") == shown.contains("b.test"), "{again}{shown}");
    assert_eq!(running.end(), Outcome::Drained);
    assert_eq!(kept_in(&file, "serving"), ["route/shop"]);

    // It goes with them again.
    std::fs::write(path.join("route.shop.yaml"), route("c.test")).unwrap();
    let folder = WithFolder::start_at(path.clone(), read(&path.join("strait.conf")));
    folder.hears("route/shop 1: accepted");
    assert_eq!(folder.running.end(), Outcome::Drained);
    assert_eq!(kept_in(&file, "serving"), [""; 0]);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_process_that_takes_over_restores_what_the_other_one_had_learnt_by_then() {
    let path = WithFolder::path("taking");
    let (text, file) = with_state(&path, &CONFIG.replace("respond: {}", "cluster: web"));
    let giver = WithFolder::start("taking", text);
    let web = |port: u16| format!("{{ name: web, endpoints: ['10.0.0.1:{port}'] }}");
    giver.write("cluster.web", &web(80));
    until("the first file", || file.exists());
    // The other process starts, and what it finds is out of date when it takes over.
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let config = ConfigFile::new(&path.join("strait.conf"), loader());
    let sources: Vec<Box<dyn Source>> = vec![Box::new(Silent(Arc::clone(&heard)))];
    let taker = Running::start_as(config, sources, true, None);
    giver.write("cluster.web", &web(81));
    giver.hears("cluster/web 2: accepted");
    until("ready", || giver.running.ask("GET", "/ready").contains("ready"));
    let (reply, begun) = tokio::sync::oneshot::channel();
    giver.running.steps.blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply))).unwrap();
    begun.blocking_recv().unwrap().unwrap();
    assert!(read(&file).contains("10.0.0.1:81"), "it is written before the handover begins");
    assert!(heard.lock().unwrap().is_empty(), "the other one waits");

    giver.running.commit(4711);
    let (reply, taken) = tokio::sync::oneshot::channel();
    let state = FormerState::default();
    let step = HandoverStep::Became(HandoverChange::TakenOver {
        state,
        generation: 1,
        is_return: false,
        reply,
    });
    taker.steps.blocking_send(step).unwrap();
    taken.blocking_recv().unwrap();
    taker.report(0, ReportBody::Started);
    taker.report(1, ReportBody::Started);
    let restored = "restored: cluster/web";
    until(restored, || heard.lock().unwrap().iter().any(|it| it == restored));
    let shown = taker.ask("GET", "/config?resource=cluster/web");
    assert!(shown.contains("10.0.0.1:81"), "{shown}");
    // And it is the one that writes the file.
    assert_eq!(giver.running.end(), REPLACED);
    assert_eq!(taker.end(), Outcome::Drained);
    assert!(read(&file).contains("10.0.0.1:81"));
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_process_begins_with_what_sources_delivered_to_the_one_whose_place_it_takes() {
    let text = CONFIG.replace("respond: {}", "cluster: web");
    let giver = WithFolder::start("resumed", text);
    let web = |port: u16| format!("{{ name: web, endpoints: ['10.0.0.1:{port}'] }}");
    giver.write("cluster.web", &web(80));
    giver.hears("cluster/web 1: accepted");
    let site = certificate::SITE.trim().replace('\n', "\n  ");
    let key = certificate::SITE_KEY.trim().replace('\n', "\n  ");
    let secret = format!("name: site\nchain: |\n  {site}\nkey: |\n  {key}\n");
    giver.write("secret.site", &secret);
    let rim = "name: rim\naddress: 127.0.0.1:7\nroutes: all\n\
               tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] }\n";
    giver.write("listener.rim", rim);
    let heard = |text: &str| {
        let heard = giver.heard.lock().unwrap();
        heard.iter().any(|it| it.starts_with(text) && it.ends_with(": accepted"))
    };
    until("the listener", || heard("listener/rim") && heard("secret/site"));
    // One that waits, and is handed on as one that does.
    giver.write(
        "cluster.web",
        "{ name: web, endpoints: ['10.0.0.3:80'], tls: { ca: 'secret:trust' } }",
    );
    until("what it waits for", || {
        let heard = giver.heard.lock().unwrap();
        heard.iter().any(|it| it.contains("accepted, waits for secret/trust"))
    });
    until("ready", || giver.running.ask("GET", "/ready").contains("ready"));
    let begin = || {
        let (reply, begun) = tokio::sync::oneshot::channel();
        giver
            .running
            .steps
            .blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply)))
            .unwrap();
        let begun = begun.blocking_recv().unwrap().unwrap();
        begun.delivered.encode().unwrap()
    };
    let bytes = begin();
    assert!(String::from_utf8_lossy(&bytes).contains("PRIVATE KEY"), "keys go along");
    let delivered = DeliveredResources::decode(&bytes).unwrap();

    // What it begins with, as a whole.
    let file = giver.path.join("strait.conf");
    let silent: Arc<Mutex<Vec<String>>> = Arc::default();
    let sources = || -> Vec<Box<dyn Source>> { vec![Box::new(Silent(Arc::clone(&silent)))] };
    let mut config = ConfigFile::new(&file, loader());
    config.expect_sources(&sources());
    let candidate = config.load().unwrap();
    assert_eq!(candidate.snapshot().listeners.len(), 1);
    let candidate = config.restore(candidate, delivered.clone()).unwrap();
    let snapshot = candidate.snapshot();
    let names: Vec<_> = snapshot.listeners.iter().map(|it| it.name.to_string()).collect();
    assert!(names.contains(&"rim".to_owned()) && names.len() == 2, "{names:?}");
    assert_eq!(snapshot.changes.listeners_added.len(), 2);
    assert_eq!(snapshot.changes.clusters_added.len(), 1);

    let config = ConfigFile::new(&file, loader());
    let taker = Running::start_as(config, sources(), true, Some(delivered));
    taker.report(0, ReportBody::Started);
    taker.report(1, ReportBody::Started);
    giver.running.commit(4711);
    assert!(silent.lock().unwrap().is_empty(), "its source waits");
    let (reply, taken) = tokio::sync::oneshot::channel();
    let step = HandoverStep::Became(HandoverChange::TakenOver {
        state: FormerState::default(),
        generation: 1,
        is_return: false,
        reply,
    });
    taker.steps.blocking_send(step).unwrap();
    taken.blocking_recv().unwrap();
    let restored = until_heard(&silent, "restored: ");
    assert!(
        ["cluster/web", "listener/rim", "secret/site"].iter().all(|it| restored.contains(it)),
        "{restored}"
    );
    let ready = taker.ask("GET", "/ready?verbose");
    assert!(ready.contains("source folder: 3 restored from the old process, accepted "), "{ready}");
    let shown = taker.ask("GET", "/config?resource=listener/rim");
    assert!(shown.contains("\"state\": \"active\"") && shown.contains("folder"), "{shown}");
    let shown = taker.ask("GET", "/config?resource=cluster/web");
    assert!(
        shown.contains("\"waits_for\": [\n    \"secret/trust\"\n  ]"),
        "as it did there: {shown}"
    );
    assert!(taker.ask("GET", "/clusters?name=web").contains("10.0.0.1:80"));
    // And hands on in its turn.
    let (reply, begun) = tokio::sync::oneshot::channel();
    taker.steps.blocking_send(HandoverStep::Ask(HandoverQuestion::Begin(reply))).unwrap();
    let begun = begun.blocking_recv().unwrap().unwrap();
    assert_eq!(begun.delivered.len(), 3);
    assert_eq!(giver.running.end(), REPLACED);
    taker.roll_back();
    assert_eq!(taker.end(), Outcome::Drained);

    // Its source speaks after a takeover, and has one no longer.
    let delivered = DeliveredResources::decode(&bytes).unwrap();
    std::fs::remove_file(giver.path.join("listener.rim.yaml")).unwrap();
    giver_writes(&giver.path, "cluster.web", &web(81));
    let source = folder::Folder::new(giver.path.clone());
    let heard = Arc::clone(&source.heard);
    let config = ConfigFile::new(&file, loader());
    let taker = Running::start_as(config, vec![Box::new(source)], true, Some(delivered));
    taker.report(0, ReportBody::Started);
    taker.report(1, ReportBody::Started);
    let (reply, _) = tokio::sync::oneshot::channel();
    let step = HandoverStep::Became(HandoverChange::TakenOver {
        state: FormerState::default(),
        generation: 1,
        is_return: false,
        reply,
    });
    taker.steps.blocking_send(step).unwrap();
    until("the source", || {
        heard.lock().unwrap().iter().any(|it| it.starts_with("cluster/web 1: accepted"))
    });
    assert!(taker.ask("GET", "/config?resource=listener/rim").contains("404"));
    assert!(taker.ask("GET", "/config?resource=cluster/web").contains("10.0.0.1:81"));
    until("the end of what was restored", || {
        !taker.ask("GET", "/ready?verbose").contains("restored")
    });
    assert_eq!(taker.end(), Outcome::Drained);
    std::fs::remove_dir_all(&giver.path).unwrap();
}

fn until_heard(heard: &Mutex<Vec<String>>, start: &str) -> String {
    let found = || heard.lock().unwrap().iter().find(|it| it.starts_with(start)).cloned();
    until(start, || found().is_some());
    found().unwrap()
}

fn giver_writes(path: &Path, name: &str, content: &str) {
    std::fs::write(path.join("part"), content).unwrap();
    std::fs::rename(path.join("part"), path.join(format!("{name}.yaml"))).unwrap();
}

#[test]
fn the_page_about_new_sources_shows_the_one_that_is_tested() {
    let page = include_str!("../../../docs/new-source.md");
    assert!(page.contains(include_str!("sources/folder.rs").trim_end()), "copy sources/folder.rs");
}
