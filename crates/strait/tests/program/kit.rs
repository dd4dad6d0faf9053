//! A running Strait, a service behind it and a client before it, all on ports that the system
//! chooses. Children end with the test, also with one that fails.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self as unix, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

/// Longer than anything takes, so that only what never happens runs into it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The file of a scratch directory that `SSLKEYLOGFILE` names.
pub(crate) const KEY_LOG: &str = "keys.log";

/// Asks again and again until there is something.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE.as_secs(), what, ask)
}

/// As [`until`], for what takes its time.
#[expect(clippy::disallowed_methods, reason = "other processes have to be waited for")]
pub(crate) fn until_within<T>(seconds: u64, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A port for a listener whose address must stay the same, where zero would be another each time.
///
/// It lies below those that the kernel takes for connections and for port zero, so that no other
/// program gets it by chance, and it is claimed for this process by a name that goes with it.
pub(crate) fn claim_port() -> u16 {
    static CLAIMED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let claim = |port: &u16| {
        let name = unix::SocketAddr::from_abstract_name(format!("strait-program-port-{port}"));
        let claim = UnixListener::bind_addr(&name.unwrap()).ok()?;
        // A server of this machine may have it.
        TcpListener::bind(("0.0.0.0", *port)).ok()?;
        CLAIMED.lock().unwrap().push(claim);
        Some(())
    };
    (19_000..20_000).find(|port| claim(port).is_some()).expect("a port is free")
}

/// The program, to be run to its end.
pub(crate) fn strait(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_strait")).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A directory of a test's own.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("strait-program-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running Strait.
pub(crate) struct Strait {
    child: Child,
    scratch: Scratch,
    log: Arc<Mutex<Vec<Value>>>,
    stdout: Arc<Mutex<String>>,
    /// Standard output, if it is open and not read.
    _unread: Option<ChildStdout>,
    pub(crate) listener: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Strait {
    /// Runs `config`, with an admin interface added, and waits until it is ready.
    pub(crate) fn run(config: &str) -> Self {
        Self::run_in(Scratch::new(), config)
    }

    pub(crate) fn run_in(scratch: Scratch, config: &str) -> Self {
        let file = scratch.write("strait.yaml", &with_admin(config));
        Self::start(scratch, &["run", "-c", &file])
    }

    /// Runs `config` where no more than so many files may be open.
    pub(crate) fn run_limited(config: &str, open_files: u32) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write("strait.yaml", &with_admin(config));
        Self::start_with(scratch, &["run", "-c", &file], IsRead::Yes, Some(open_files))
    }

    /// Runs `config` by a shell's command, in which `"$0" "$@"` are the program and its arguments, with
    /// this standard input and these variables.
    pub(crate) fn run_by(
        script: &str,
        input: Stdio,
        variables: &[(&str, &str)],
        config: &str,
    ) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write("strait.yaml", &with_admin(config));
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_strait")]);
        command.envs(variables.iter().copied()).stdin(input);
        Self::spawn(scratch, command, &["run", "-c", &file], IsRead::Yes)
    }

    /// Lets it have no more than so many files open from now on.
    pub(crate) fn limit_open_files(&self, limit: u64) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
    }

    /// Runs `config` with a standard output that is not read.
    pub(crate) fn run_unread(config: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write("strait.yaml", &with_admin(config));
        Self::start_with(scratch, &["run", "-c", &file], IsRead::No, None)
    }

    /// Starts the program with these arguments, which name ports that are zero.
    pub(crate) fn start(scratch: Scratch, arguments: &[&str]) -> Self {
        Self::start_with(scratch, arguments, IsRead::Yes, None)
    }

    fn start_with(
        scratch: Scratch,
        arguments: &[&str],
        is_read: IsRead,
        open_files: Option<u32>,
    ) -> Self {
        let mut command = match open_files {
            None => Command::new(env!("CARGO_BIN_EXE_strait")),
            Some(limit) => {
                let mut command = Command::new("sh");
                let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
                command.args(["-c", &script, env!("CARGO_BIN_EXE_strait")]);
                command
            }
        };
        command.stdin(Stdio::null());
        Self::spawn(scratch, command, arguments, is_read)
    }

    fn spawn(scratch: Scratch, mut command: Command, arguments: &[&str], is_read: IsRead) -> Self {
        let mut child = command
            .args(arguments)
            .env("SSLKEYLOGFILE", scratch.path(KEY_LOG))
            .args(["--log-format", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (log, stdout) = (Arc::default(), Arc::default());
        let (lines, into) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        thread::spawn(move || keep_log(lines, &into));
        let mut unread = child.stdout.take();
        if is_read == IsRead::Yes {
            let (pipe, into) = (unread.take().unwrap(), Arc::clone(&stdout));
            thread::spawn(move || keep_text(pipe, &into));
        }
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let (listener, admin) = (nowhere, nowhere);
        let mut strait = Self { child, scratch, log, stdout, _unread: unread, listener, admin };
        strait.wait_for_log("ready");
        // Where the admin interface has a unix socket, its second address is a port.
        let at = ["admin", "metrics"].map(|key| strait.address_logged("starting", key));
        strait.admin = at.into_iter().flatten().next().unwrap();
        strait.listener = strait.logged("listening", "address");
        strait
    }

    /// An address that was logged.
    pub(crate) fn logged(&self, message: &str, key: &str) -> SocketAddr {
        self.address_logged(message, key).unwrap()
    }

    fn address_logged(&self, message: &str, key: &str) -> Option<SocketAddr> {
        let log = self.log.lock().unwrap();
        let entry = log.iter().find(|entry| entry["message"] == message);
        entry.and_then(|entry| entry[key].as_str())?.parse().ok()
    }

    /// Waits for a message that contains `part`.
    pub(crate) fn wait_for_log(&mut self, part: &str) -> String {
        self.wait_for_entry(part)["message"].as_str().unwrap().to_owned()
    }

    /// The first line of the log whose message has this part, with its fields.
    pub(crate) fn wait_for_entry(&mut self, part: &str) -> Value {
        let (log, child) = (Arc::clone(&self.log), &mut self.child);
        until(&format!("{part:?} in the log"), || {
            let log = log.lock().unwrap();
            let has_part =
                |entry: &&Value| entry["message"].as_str().is_some_and(|it| it.contains(part));
            let found = log.iter().find(has_part).cloned();
            let ended = child.try_wait().unwrap();
            assert!(found.is_some() || ended.is_none(), "it ended: {ended:?} {log:?}");
            found
        })
    }

    /// All that was logged.
    pub(crate) fn all_logged(&self) -> String {
        format!("{:?}", self.log.lock().unwrap())
    }

    /// How often each of these, made of the letters of base64, stands in memory that the program may
    /// write to.
    pub(crate) fn count_in_memory(&self, needles: &[String]) -> Vec<usize> {
        use std::os::unix::fs::FileExt as _;
        let memory = fs::File::open(format!("/proc/{}/mem", self.child.id())).unwrap();
        let mut counts = vec![0; needles.len()];
        for region in self.proc("maps").lines().filter(|line| line.contains(" rw")) {
            let (begin, rest) = region.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let [begin, end] = [begin, end].map(|place| u64::from_str_radix(place, 16).unwrap());
            let mut octets = vec![0; usize::try_from(end - begin).unwrap()];
            // Some regions of the kernel's cannot be read.
            if memory.read_exact_at(&mut octets, begin).is_err() {
                continue;
            }
            let is_other =
                |octet: &u8| !octet.is_ascii_alphanumeric() && !matches!(octet, b'+' | b'/' | b'=');
            for text in octets.split(is_other) {
                for (count, needle) in counts.iter_mut().zip(needles) {
                    let needle = needle.as_bytes();
                    *count += text.windows(needle.len()).filter(|part| *part == needle).count();
                }
            }
        }
        counts
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A file about it in `/proc`.
    pub(crate) fn proc(&self, file: &str) -> String {
        read(Path::new(&format!("/proc/{}/{file}", self.child.id())))
    }

    /// The processes that it has started and not waited for, ended or not.
    pub(crate) fn children(&self) -> Vec<String> {
        let stats = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("stat"));
        let stats = stats.filter_map(|path| fs::read_to_string(path).ok());
        let parent = self.child.id().to_string();
        // Behind the name in brackets: the state, and the parent.
        let is_child = |stat: &String| {
            let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').nth(1));
            fields.flatten() == Some(parent.as_str())
        };
        stats.filter(is_child).collect()
    }

    /// How long its thread of this name has worked, in ticks of 10 ms.
    pub(crate) fn thread_ticks(&self, name: &str) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let stats = tasks.map(|task| read(&task.unwrap().path().join("stat")));
        let stat = stats.filter_map(|stat| {
            let (front, rest) = stat.rsplit_once(')')?;
            // The kernel cuts names off at 15 bytes.
            front.ends_with(&name[..name.len().min(15)]).then(|| rest.to_owned())
        });
        let field = |rest: String| rest.split(' ').nth(12)?.parse().ok();
        stat.filter_map(field).next().unwrap()
    }

    /// How many messages contain `part` so far.
    pub(crate) fn times_logged(&self, part: &str) -> usize {
        let log = self.log.lock().unwrap();
        let messages = log.iter().filter_map(|entry| entry["message"].as_str());
        messages.filter(|message| message.contains(part)).count()
    }

    /// Waits for `part` on standard output, and gives all that is there.
    pub(crate) fn wait_for_output(&self, part: &str) -> String {
        until(&format!("{part:?} on standard output"), || {
            let stdout = self.stdout.lock().unwrap();
            stdout.contains(part).then(|| stdout.clone())
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Writes a file beside the configuration.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.scratch.write(name, text);
    }

    /// Puts another configuration in the place of the file, as editors do.
    pub(crate) fn rewrite(&self, config: &str) {
        self.scratch.write("strait.yaml.new", &with_admin(config));
        fs::rename(self.path("strait.yaml.new"), self.path("strait.yaml")).unwrap();
    }

    /// Waits until configuration `version` is in effect.
    pub(crate) fn wait_for_version(&self, version: u64) {
        until(&format!("version {version}"), || {
            (self.config()["version"] == version).then_some(())
        });
    }

    /// Waits until a configuration has been refused, and says why.
    pub(crate) fn wait_for_error(&self) -> String {
        until("an error", || {
            let error = self.config()["last_error"].clone();
            (!error.is_null()).then(|| error.to_string())
        })
    }

    pub(crate) fn config(&self) -> Value {
        self.admin_json("/config")
    }

    pub(crate) fn admin_json(&self, path: &str) -> Value {
        serde_json::from_slice(&get(self.admin, path).body).unwrap()
    }

    /// The value of a metric, of the first series if it has several.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let stats = get(self.admin, &format!("/stats?filter={name}")).text();
        let line = stats.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {stats:?}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("its end", || child.try_wait().unwrap())
    }
}

impl Drop for Strait {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often each of these stands in memory that a process may write to. Each has two octets, or more.
pub(crate) fn count_octets_in_memory(pid: u32, needles: &[Vec<u8>]) -> Vec<usize> {
    use std::os::unix::fs::FileExt as _;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let begins = |octets: &[u8]| usize::from(octets[0]) << 8 | usize::from(octets[1]);
    let mut by_beginning = vec![Vec::new(); 1 << 16];
    for (place, needle) in needles.iter().enumerate() {
        by_beginning[begins(needle)].push(place);
    }
    let mut counts = vec![0; needles.len()];
    let maps = read(Path::new(&format!("/proc/{pid}/maps")));
    for region in maps.lines().filter(|line| line.contains(" rw")) {
        let (begin, rest) = region.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [begin, end] = [begin, end].map(|place| u64::from_str_radix(place, 16).unwrap());
        let mut octets = vec![0; usize::try_from(end - begin).unwrap()];
        // Some regions of the kernel's cannot be read.
        if memory.read_exact_at(&mut octets, begin).is_err() {
            continue;
        }
        for at in 0..octets.len() - 1 {
            for place in &by_beginning[begins(&octets[at..])] {
                counts[*place] += usize::from(octets[at..].starts_with(&needles[*place]));
            }
        }
    }
    counts
}

/// Whether standard output is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsRead {
    Yes,
    No,
}

/// The configuration with an admin interface, unless it has one.
pub(crate) fn with_admin(config: &str) -> String {
    if config.lines().any(|line| line.starts_with("admin:")) {
        return config.to_owned();
    }
    format!("admin: {{ address: 127.0.0.1:0, metrics: 127.0.0.1:0 }}\n{config}")
}

fn keep_log(lines: impl BufRead, into: &Mutex<Vec<Value>>) {
    for line in lines.lines().map_while(Result::ok) {
        let entry = serde_json::from_str(&line).unwrap_or(Value::String(line));
        into.lock().unwrap().push(entry);
    }
}

fn keep_text(mut pipe: impl Read, into: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = pipe.read(&mut buffer) {
        into.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
}

/// A service that answers every request with its name and the head that it got. Requests for
/// `/gate` wait until the gate is opened.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    waiting: u32,
}

impl Service {
    pub(crate) fn start(name: &'static str) -> Self {
        Self::start_at(name, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn start_at(name: &'static str, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Arc::new(Gate::default());
        let into = Arc::clone(&gate);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let gate = Arc::clone(&into);
                thread::spawn(move || serve(name, stream, &gate));
            }
        });
        Self { address, gate }
    }

    /// Waits until a request waits at the gate.
    pub(crate) fn wait_at_gate(&self) {
        until("a request at the gate", || {
            (self.gate.state.lock().unwrap().waiting > 0).then_some(())
        });
    }

    pub(crate) fn open_gate(&self) {
        self.gate.state.lock().unwrap().is_open = true;
        self.gate.changed.notify_all();
    }
}

fn serve(name: &str, stream: TcpStream, gate: &Gate) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(head) = read_head(&mut reader) {
        let mut body = vec![0; content_length(&head)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        if head.starts_with("GET /gate ") {
            let mut state = gate.state.lock().unwrap();
            state.waiting += 1;
            drop(gate.changed.wait_while(state, |state| !state.is_open).unwrap());
        }
        let body = format!("{name}\n{head}");
        let length = body.len();
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nx-powered-by: test\r\n\r\n{body}"
        );
        if writer.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Everything up to an empty line, or none at the end.
pub(crate) fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

fn content_length(head: &str) -> usize {
    field(head, "content-length").map_or(0, |length| length.parse().unwrap())
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// A kept connection.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        text(&self.body)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        Self::try_connect(to).unwrap()
    }

    /// As [`Client::connect`]; none if the connection is reset before `connect` has returned.
    pub(crate) fn try_connect(to: SocketAddr) -> Option<Self> {
        let stream = match TcpStream::connect(to) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            stream => stream.unwrap(),
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self { reader: BufReader::new(stream) })
    }

    /// Its own address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.reader.get_ref().local_addr().unwrap()
    }

    pub(crate) fn send(&mut self, request: &str) {
        self.reader.get_mut().write_all(request.as_bytes()).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Response {
        let head = read_head(&mut self.reader).expect("a response");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if field(&head, "transfer-encoding") == Some("chunked") {
            self.read_chunks()
        } else {
            let mut body = vec![0; content_length(&head)];
            self.reader.read_exact(&mut body).unwrap();
            body
        };
        Response { status, head, body }
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).unwrap();
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                return body;
            }
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.request("GET", path)
    }

    /// The answer, or none if the other side has closed the connection instead.
    pub(crate) fn try_get(&mut self, path: &str) -> Option<Response> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let is_open = self.reader.get_mut().write_all(request.as_bytes()).is_ok();
        let has_more = is_open && self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        has_more.then(|| self.receive())
    }

    pub(crate) fn request(&mut self, method: &str, path: &str) -> Response {
        self.send(&format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
        self.receive()
    }

    /// Whether the other side has closed the connection and said nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.reader.fill_buf(), Ok(&[]))
    }
}

pub(crate) fn get(from: SocketAddr, path: &str) -> Response {
    Client::connect(from).get(path)
}

/// As [`get`], just after a listener made room for another: the kernel resets what waits in the
/// queue of a socket that closes, and clients try again.
pub(crate) fn get_from_either(from: SocketAddr, path: &str) -> Response {
    until("an answer", || {
        let mut client = Client { reader: BufReader::new(TcpStream::connect(from).ok()?) };
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        client.reader.get_mut().write_all(request.as_bytes()).ok()?;
        let is_answered = client.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        is_answered.then(|| client.receive())
    })
}

/// A configuration with one listener that forwards everything to `service`.
pub(crate) fn forward_to(service: SocketAddr) -> String {
    format!(
        "workers: 2
listeners:
  - {{ name: edge, address: 127.0.0.1:0, routes: all }}
routes:
  - {{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: service }}] }}
clusters:
  - {{ name: service, endpoints: ['{service}'] }}
"
    )
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A small file system for the folder `$DISK`, that is there for this process alone.
pub(crate) const WITH_A_SMALL_DISK: &str = r#"exec unshare --mount sh -c 'mount -t tmpfs -o size=64k,mode=700 none "$DISK" && exec "$0" "$@"' "$0" "$@""#;

/// Whether [`WITH_A_SMALL_DISK`] works here; says so if not.
pub(crate) fn can_mount(folder: &Path) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", WITH_A_SMALL_DISK, "true"]).env("DISK", folder);
    let can_mount = command.status().is_ok_and(|status| status.success());
    if !can_mount {
        println!("skipped: nothing can be mounted here");
    }
    can_mount
}
