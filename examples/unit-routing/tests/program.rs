//! The binary as its users meet it.
#![expect(clippy::unwrap_used, reason = "a test that finds nothing has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unit-routing");

/// The configuration of the example, on ports of this test.
fn config(service: SocketAddr) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("strait.yaml");
    let text = fs::read_to_string(file).unwrap();
    text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("127.0.0.1:9002", &service.to_string())
}

fn write(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers each connection's request with the unit that the request names.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let unit = head.iter().find_map(|line| line.strip_prefix("x-unit: "));
            let body = format!("service of {}\n", unit.unwrap_or("none"));
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n");
            let _ = socket.write_all(format!("{head}\r\n{body}").as_bytes());
        }
    });
    address
}

/// Status and body of the response to a request with these fields.
fn ask(address: SocketAddr, fields: &str) -> (String, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap_or_default();
    (status.to_owned(), body.trim_end().to_owned())
}

#[test]
fn users_reach_their_units() {
    let file = write("users.yaml", &config(service()));
    let mut command = Command::new(PROGRAM);
    command.args(["run", "-c"]).arg(&file).args(["--log-format", "json"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut log = BufReader::new(running.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let listening = log.find(|line| line.contains("\"listening\"")).unwrap();
    // What it logs from now on is read, so that it does not wait.
    thread::spawn(move || log.for_each(drop));
    let (_, rest) = listening.split_once("\"address\":\"").unwrap();
    let address: SocketAddr = rest.split('"').next().unwrap().parse().unwrap();
    for (fields, status, body) in [
        ("", "200", "no unit"),
        ("x-user: 4711\r\n", "200", "unit a"),
        ("x-user: 4750\r\n", "200", "service of b"),
        ("x-user: 4799\r\nx-unit: a\r\n", "200", "service of b"),
    ] {
        assert_eq!(ask(address, fields), (status.to_owned(), body.to_owned()), "{fields:?}");
    }
    let (status, body) = ask(address, "x-user: 1\r\nx-user: 50\r\n");
    assert_eq!(status, "404");
    assert!(body.contains("no_route"), "{body}");
}

/// What a command prints, and whether it has succeeded.
fn output(arguments: &[&str], file: &Path) -> (bool, String) {
    let (command, more) = arguments.split_first().unwrap();
    let output = Command::new(PROGRAM).args([command, "-c"]).arg(file).args(more).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn all_commands_know_the_handler() {
    let text = config(SocketAddr::from(([127, 0, 0, 1], 9002)));
    let file = write("commands.yaml", &text);
    let asked = ["explain", "-H", "x-user: 50", "GET", "http://127.0.0.1/"];
    let (is_ok, said) = output(&asked, &file);
    assert!(is_ok && said.contains("unit: answers with rule 1 of units: b: prefix"), "{said}");
    let (_, said) = output(&["explain", "-H", "x-user: x", "GET", "http://127.0.0.1/"], &file);
    assert!(said.contains("the handler unit has no rule for this request"), "{said}");
    let (_, said) = output(&["explain", "GET", "http://127.0.0.1/"], &file);
    assert!(said.contains("unit: pass the request on"), "{said}");
    let (is_ok, said) = output(&["check", "--print"], &file);
    assert!(is_ok && said.contains("header: x-user"), "{said}");
    for (from, to, expected) in [
        ("to: 49", "to: 50", "50 belongs to unit 0 of the list as well"),
        ("rule: b", "rule: c", "this handler answers with the rule `c` of `units`"),
        ("table: units", "table: other", "rules of the route table `other`"),
        ("to: 49", "to: 300", "255"),
        ("header: x-user", "heder: x-user", "header"),
    ] {
        let file = write("wrong.yaml", &text.replace(from, to));
        let (is_ok, said) = output(&["check"], &file);
        assert!(!is_ok && said.contains(expected), "{expected}: {said}");
    }
}
