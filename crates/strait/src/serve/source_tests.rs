//! A whole process with a source of resources, on real sockets: the folder of files of docs/new-source.md, asked for
//! clusters once a request needs them.

use std::fs;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use config::snapshot::Address;
use config::{ResourceName, Update, Verdict};
use control::{ConfigFile, Source};

use self::folder::Folder;
use super::serve;
use crate::activation::Activation;
use crate::arguments::{Log, LogFormat, LogLevel, TakeOver};
use crate::filter_list::loader;
use crate::secrecy::CoreDumps;

#[path = "../../../control/tests/sources/folder.rs"]
mod folder;

const CONFIG: &str = "
workers: 2
admin: { address: '127.0.0.1:0' }
resolvers: { on_demand_timeout: 20s }
listeners: [{ name: edge, address: '127.0.0.1:0', routes: all }]
routes:
  - name: all
    rules:
      - { match: { prefix: /web }, cluster: web }
      - { match: { prefix: /apart }, cluster: apart }
      - { match: { prefix: /none }, cluster: none }
      - { match: { prefix: /wrong }, cluster: wrong }
      - { match: { prefix: /other }, cluster: other }
";

/// Delivers what it is asked for from a folder, and says of the rest that it has none.
#[derive(Debug)]
struct OnDemand {
    /// What there is.
    store: PathBuf,
    /// What was asked for.
    shown: PathBuf,
    folder: Folder,
    lacking: Vec<ResourceName>,
}

impl Source for OnDemand {
    fn name(&self) -> &'static str {
        self.folder.name()
    }

    fn is_on_demand(&self) -> bool {
        true
    }

    fn subscribe(&mut self, names: &[ResourceName]) {
        self.folder.subscribe(names);
        for name in names {
            let file = format!("{}.yaml", name.to_string().replacen('/', ".", 1));
            // In one step: the folder is read at any time.
            if fs::copy(self.store.join(&file), self.shown.join("part")).is_ok() {
                fs::rename(self.shown.join("part"), self.shown.join(file)).unwrap();
            } else {
                self.lacking.push(name.clone());
            }
        }
    }

    fn unsubscribe(&mut self, names: &[ResourceName]) {
        self.folder.unsubscribe(names);
    }

    fn on_restored(&mut self, resources: &[Update]) {
        self.folder.on_restored(resources);
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>> {
        if self.lacking.is_empty() {
            return self.folder.next();
        }
        let gone = std::mem::take(&mut self.lacking).into_iter().map(|name| Update {
            kind: name.kind,
            name: (*name.name).into(),
            version: "none".into(),
            content: None,
        });
        let gone = gone.collect();
        Box::pin(std::future::ready(gone))
    }

    fn on_verdict(&mut self, verdict: &Verdict) {
        self.folder.on_verdict(verdict);
    }
}

/// A service that answers each connection's first request with its name.
fn service(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", name.len());
                let _ = write!(stream, "{head}connection: close\r\n\r\n{name}");
            });
        }
    });
    address
}

/// The status and the body of an answer.
fn ask(to: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn a_process_asks_a_source_for_clusters_once_a_request_needs_them() {
    let scratch = std::env::temp_dir().join(format!("strait-on-demand-{}", std::process::id()));
    let _ = fs::remove_dir_all(&scratch);
    let (store, shown) = (scratch.join("store"), scratch.join("shown"));
    fs::create_dir_all(&store).unwrap();
    fs::create_dir_all(&shown).unwrap();
    let web = service("web");
    let apart = service("apart");
    for (file, content) in [
        ("cluster.web", format!("{{ name: web, endpoints: ['{web}'] }}")),
        ("cluster.apart", "{ name: apart }".to_owned()),
        ("assignment.apart", format!("{{ name: apart, endpoints: ['{apart}'] }}")),
        ("cluster.wrong", "{ name: wrong, endpoints: ['10.0.0.1:0'] }".to_owned()),
        ("cluster.other", format!("{{ name: other, endpoints: ['{web}'] }}")),
    ] {
        fs::write(store.join(format!("{file}.yaml")), content).unwrap();
    }
    let folder = Folder::new(shown.clone());
    let heard = std::sync::Arc::clone(&folder.heard);
    let source = OnDemand { store, shown, folder, lacking: Vec::new() };
    let config = ConfigFile::fixed("test", CONFIG.to_owned(), loader().unwrap());
    let (sender, came) = channel();
    let serving = thread::spawn(move || {
        serve(
            config,
            vec![Box::new(source)],
            CoreDumps::ALLOWED,
            Activation::default(),
            None,
            |came| {
                let (_, addresses) = came.listeners.first().unwrap();
                let Some(Address::Tcp(listener)) = addresses.first() else {
                    panic!("{addresses:?}")
                };
                sender.send((*listener, came.admin.unwrap())).unwrap();
                Ok(())
            },
        )
    });
    let (listener, admin) = came.recv().unwrap();
    // Several at once, on both workers.
    let clients: Vec<_> =
        (0..8).map(|_| thread::spawn(move || ask(listener, "GET", "/web"))).collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), (200, "web".to_owned()));
    }
    // Its endpoints are asked for as well.
    assert_eq!(ask(listener, "GET", "/apart"), (200, "apart".to_owned()));
    assert_eq!(ask(listener, "GET", "/none").0, 503);
    assert_eq!(ask(listener, "GET", "/wrong").0, 503);
    let counted = |outcome: &str| {
        let (_, page) = ask(admin, "GET", "/metrics");
        let start = format!("strait_on_demand_requests_total{{outcome=\"{outcome}\"}} ");
        let found = page.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("{start} is in {page}")).parse::<u64>().unwrap()
    };
    // Control counts before it answers.
    assert_eq!(counted("missing"), 2);
    assert!((2..=9).contains(&counted("found")), "{}", counted("found"));
    assert_eq!((counted("expired"), counted("overflow")), (0, 0));
    let heard = heard.lock().unwrap().join("\n");
    assert!(heard.contains("cluster/web 1: accepted"), "{heard}");
    assert!(
        heard.contains("wanted: cluster/none")
            && heard.contains("nothing can be reached at port 0"),
        "{heard}"
    );
    assert!(!heard.contains("cluster/other"), "no request needed it: {heard}");
    assert_eq!(ask(admin, "POST", "/drain").0, 202);
    serving.join().unwrap().unwrap();
    fs::remove_dir_all(&scratch).unwrap();
}

/// A source by the name of the folder that says nothing.
#[derive(Debug)]
struct Silent;

impl Source for Silent {
    fn name(&self) -> &'static str {
        "folder"
    }

    fn subscribe(&mut self, _: &[ResourceName]) {}

    fn unsubscribe(&mut self, _: &[ResourceName]) {}

    fn on_restored(&mut self, _: &[Update]) {}

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn on_verdict(&mut self, _: &Verdict) {}
}

/// A process of the test below: the folder `shown` of its folder is its source, or one that says nothing.
#[test]
#[ignore = "a process of another test"]
fn a_process_with_a_source() {
    let Some(folder) = std::env::var_os("STRAIT_TEST_FOLDER").map(PathBuf::from) else { return };
    let name = std::env::var_os("STRAIT_TEST_NAME").unwrap();
    let is_second = name == "second";
    let source: Box<dyn Source> =
        if is_second { Box::new(Silent) } else { Box::new(Folder::new(folder.join("shown"))) };
    let config = ConfigFile::new(&folder.join("strait.yaml"), loader().unwrap());
    let file = folder.join(name);
    let take_over = is_second.then_some(TakeOver::Required);
    let (log_level, log_format) = (LogLevel::Info, LogFormat::Text);
    crate::logging::start(&Log { log_level, log_format }).unwrap();
    let came = |came: &super::Came| {
        fs::write(folder.join("part"), came.admin.unwrap().to_string()).unwrap();
        fs::rename(folder.join("part"), &file).unwrap();
        Ok(())
    };
    serve(config, vec![source], CoreDumps::ALLOWED, Activation::default(), take_over, came)
        .unwrap();
}

/// A child that ends with the test.
struct Child(std::process::Child);

impl Child {
    fn start(folder: &std::path::Path, name: &str) -> (Self, SocketAddr) {
        let log = fs::File::create(folder.join(format!("{name}.log"))).unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve::source_tests::a_process_with_a_source"]);
        command.args(["--ignored", "--nocapture"]);
        command.env("STRAIT_TEST_FOLDER", folder).env("STRAIT_TEST_NAME", name);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = Self(command.spawn().unwrap());
        let file = folder.join(name);
        let admin = until(name, || {
            assert!(child.0.try_wait().unwrap().is_none(), "{}", said(folder, name));
            fs::read_to_string(&file).ok()
        });
        (child, admin.parse().unwrap())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(folder: &std::path::Path, name: &str) -> String {
    fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "another process has to be waited for")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("in vain waited for {what}");
}

#[test]
fn connections_of_delivered_listeners_move_and_their_resources_serve_while_the_source_is_silent() {
    let folder = std::env::temp_dir().join(format!("strait-delivered-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    for name in ["shown", "private"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::set_permissions(
        folder.join("private"),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let web = service("web");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let socket = folder.join("private/socket");
    let config = format!(
        "workers: 2\nadmin: {{ address: '127.0.0.1:0' }}\nhandover: {{ socket: '{}', probation: 1s }}\n\
         listeners: [{{ name: edge, address: '127.0.0.1:0', routes: all }}]\n\
         routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: web }}] }}]\n",
        socket.display()
    );
    fs::write(folder.join("strait.yaml"), config).unwrap();
    for (file, content) in [
        ("cluster.web", format!("{{ name: web, endpoints: ['{web}'] }}")),
        ("listener.fleet", format!("{{ name: fleet, address: '127.0.0.1:{port}', routes: paths }}")),
        (
            "route.paths",
            "{ name: paths, virtual_hosts: [{ name: any, rules: [{ match: { prefix: / }, cluster: web }] }] }"
                .to_owned(),
        ),
    ] {
        fs::write(folder.join("shown").join(format!("{file}.yaml")), content).unwrap();
    }
    let (mut first, _) = Child::start(&folder, "first");
    let fleet = SocketAddr::from(([127, 0, 0, 1], port));
    let mut kept = until("the delivered listener", || TcpStream::connect(fleet).ok());
    kept.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut asked = |what: &str| {
        write!(kept, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nweb") {
            let mut part = [0; 1024];
            let count = kept.read(&mut part).unwrap();
            assert_ne!(count, 0, "{what}: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..count]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    };
    asked("before");
    let (_second, admin) = Child::start(&folder, "second");
    // Its end says that the other one serves, and that all connections went.
    let status = until("the end of the first", || first.0.try_wait().unwrap());
    assert!(status.success(), "{}", said(&folder, "first"));
    asked("after");
    assert_eq!(ask(fleet, "GET", "/"), (200, "web".to_owned()));
    let (_, ready) = ask(admin, "GET", "/ready?verbose");
    assert!(ready.contains("source folder: 3 restored from the old process"), "{ready}");
    let log = said(&folder, "second");
    assert!(log.contains("restored resources are used until their source delivers"), "{log}");
    assert!(!log.contains("its connections stay"), "{log}");
    assert_eq!(ask(admin, "POST", "/drain").0, 202);
    fs::remove_dir_all(&folder).unwrap();
}
