//! The programs of the benchmark do what the method describes.

#![forbid(unsafe_code)]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bench::frames::{Frame, Frames, PREFACE, kind};
use bench::requests::{request, response};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A program that goes with the test.
struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    /// Starts a program that prints the address it listens on.
    fn start(path: &str, arguments: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(path).args(arguments).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().map_err(io::Error::other)?;
        Ok(Self { child, address })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn relay_to(upstream: SocketAddr) -> io::Result<Program> {
    let upstream = upstream.to_string();
    let arguments = ["--listen", "127.0.0.1:0", "--upstream", &upstream];
    Program::start(env!("CARGO_BIN_EXE_relay"), &arguments)
}

fn upstream() -> io::Result<Program> {
    upstream_of("http1")
}

fn upstream_of(protocol: &str) -> io::Result<Program> {
    let arguments = ["--listen", "127.0.0.1:0", "--protocol", protocol];
    Program::start(env!("CARGO_BIN_EXE_upstream"), &arguments)
}

/// The number behind `name` in a line of JSON.
fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()?.parse().ok()
}

fn load(target: SocketAddr, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_load"))
        .args(["--target", &target.to_string()])
        .args(arguments)
        .output()?;
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// What a program that ends by itself printed.
fn output_of(path: &str, target: SocketAddr, arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new(path);
    command.args(["--target", &target.to_string()]).args(arguments);
    String::from_utf8(command.output()?.stdout).map_err(io::Error::other)
}

/// Answers each request with `response` over TLS, and closes behind those that ask for it.
fn tls_service(response: Vec<u8>) -> io::Result<SocketAddr> {
    let key = rcgen::generate_simple_self_signed(["bench.test".to_owned()]);
    let key = key.map_err(io::Error::other)?;
    let secret = key.signing_key.serialize_der();
    let secret = PrivateKeyDer::try_from(secret).map_err(io::Error::other)?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .map_err(io::Error::other)?;
    let (config, response) = (Arc::new(config), Arc::new(response));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            let Ok(connection) = ServerConnection::new(Arc::clone(&config)) else { return };
            let response = Arc::clone(&response);
            thread::spawn(move || _ = answer(StreamOwned::new(connection, socket), &response));
        }
    });
    Ok(address)
}

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>, response: &[u8]) -> io::Result<()> {
    let mut head = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            read => head.extend_from_slice(bytes.get(..read).unwrap_or_default()),
        }
        if head.ends_with(b"\r\n\r\n") {
            stream.write_all(response)?;
            if head.windows(5).any(|word| word == b"close") {
                stream.conn.send_close_notify();
                return stream.flush();
            }
            head.clear();
        }
    }
}

#[test]
fn each_request_of_the_load_over_tls_has_its_own_handshake_whole_or_not() {
    let service = tls_service(response()).unwrap();
    let cases =
        [("1.2", "no", false), ("1.3", "no", false), ("1.2", "yes", true), ("1.3", "yes", true)];
    for (version, resume, is_resumed) in cases {
        let options = ["--connections", "8", "--seconds", "1"];
        let arguments = [&options[..], &["--version", version, "--resume", resume]].concat();
        let result = output_of(env!("CARGO_BIN_EXE_tls-load"), service, &arguments).unwrap();
        assert_eq!(number(&result, "errors"), Some(0), "{result}");
        let requests = number(&result, "requests").unwrap();
        assert!(requests > 16, "{result}");
        let whole = requests - number(&result, "resumed").unwrap();
        assert_eq!(whole <= 8, is_resumed, "{result}");
        assert!(is_resumed || whole == requests, "{result}");
    }
}

#[test]
fn responses_over_tls_that_are_cut_off_or_no_success_are_errors() {
    let whole = response();
    let failure = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec();
    for response in [whole[..whole.len() - 1].to_vec(), failure, Vec::new()] {
        let service = tls_service(response).unwrap();
        let arguments = ["--connections", "2", "--seconds", "1"];
        let result = output_of(env!("CARGO_BIN_EXE_tls-load"), service, &arguments).unwrap();
        assert_eq!(number(&result, "requests"), Some(0), "{result}");
        assert!(number(&result, "errors").unwrap() > 0, "{result}");
    }
}

#[test]
fn a_stream_comes_whole_in_a_response_and_is_not_counted_otherwise() {
    let arguments = ["--listen", "127.0.0.1:0", "--http", "yes"];
    let service = Program::start(env!("CARGO_BIN_EXE_stream"), &arguments).unwrap();
    let mut connection = TcpStream::connect(service.address).unwrap();
    connection.write_all(b"GET /3 HTTP/1.1\r\nHost: bench.test\r\n\r\n").unwrap();
    let mut plain = Vec::new();
    connection.read_to_end(&mut plain).unwrap();
    assert!(plain.len() > 3 << 20);
    let mut wrong = plain.clone();
    let last = wrong.len() - (64 << 10);
    wrong[last] += 1;
    let short = plain[..plain.len() - 1].to_vec();
    for (response, is_right) in [(plain, true), (wrong, false), (short, false)] {
        let arguments = ["--mib", "3", "--seconds", "1", "--tls", "yes"];
        let target = tls_service(response).unwrap();
        let result = output_of(env!("CARGO_BIN_EXE_stream"), target, &arguments).unwrap();
        assert_eq!(number(&result, "errors") == Some(0), is_right, "{result}");
        assert_eq!(number(&result, "requests") > Some(0), is_right, "{result}");
    }
}

#[test]
fn the_relay_passes_on_every_byte_and_each_end_on_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = relay_to(listener.local_addr().unwrap()).unwrap();
    let sent: Vec<u8> =
        (0..32u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let mut downstream = TcpStream::connect(relay.address).unwrap();
    let (mut upstream, _) = listener.accept().unwrap();
    let mut writer = downstream.try_clone().unwrap();
    let copy = sent.clone();
    // At first nothing is read: more than all socket buffers hold is on its way.
    let writing = thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    upstream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent, "downstream to upstream, with its end");
    upstream.write_all(&sent[..1 << 20]).unwrap();
    drop(upstream);
    received.clear();
    downstream.read_to_end(&mut received).unwrap();
    assert!(received == sent[..1 << 20], "upstream to downstream after the other direction ended");
}

#[test]
fn the_relay_closes_a_connection_whose_upstream_refuses_and_lives_on() {
    // An address of this test's own: the port that it leaves is not another program's the next moment.
    let listener = TcpListener::bind("127.83.84.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    let relay = relay_to(address).unwrap();
    drop(listener);
    let mut downstream = TcpStream::connect(relay.address).unwrap();
    assert!(matches!(downstream.read(&mut [0; 1]), Ok(0) | Err(_)));
    let _listener = TcpListener::bind(address).unwrap();
    TcpStream::connect(relay.address).expect("still listening");
}

#[test]
fn the_upstream_answers_each_request_however_they_are_cut() {
    let upstream = upstream().unwrap();
    let mut stream = TcpStream::connect(upstream.address).unwrap();
    stream.set_nodelay(true).unwrap();
    let requests = [request(true), request(false), request(true)].concat();
    for piece in requests.chunks(37) {
        stream.write_all(piece).unwrap();
    }
    let mut answers = vec![0; 3 * response().len()];
    stream.read_exact(&mut answers).unwrap();
    assert_eq!(answers, response().repeat(3));
}

#[test]
fn the_upstream_answers_each_stream_of_http2() {
    let upstream = upstream_of("http2").unwrap();
    let mut stream = TcpStream::connect(upstream.address).unwrap();
    let mut opening = PREFACE.to_vec();
    for number in 0..50 {
        let frame =
            Frame { kind: kind::HEADERS, flags: 5, stream: 2 * number + 1, payload: b"\x82" };
        frame.push(&mut opening);
    }
    stream.write_all(&opening).unwrap();
    let (mut frames, mut ended) = (Frames::default(), Vec::new());
    let mut bytes = vec![0; 4096];
    while ended.len() < 50 {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "the connection ended");
        let outcome = frames.feed(&bytes[..read], |frame| {
            if frame.kind == kind::DATA {
                assert_eq!((frame.flags, frame.payload.len()), (1, 1024));
                ended.push(frame.stream);
            }
            Ok(())
        });
        outcome.unwrap();
    }
    assert_eq!(ended, (0..50).map(|number| 2 * number + 1).collect::<Vec<_>>());
}

#[test]
fn a_stream_comes_whole_through_the_relay_and_is_not_counted_otherwise() {
    let service =
        Program::start(env!("CARGO_BIN_EXE_stream"), &["--listen", "127.0.0.1:0"]).unwrap();
    let ask = |target: SocketAddr| {
        let output = Command::new(env!("CARGO_BIN_EXE_stream"))
            .args(["--target", &target.to_string(), "--mib", "3", "--seconds", "1"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let relay = relay_to(service.address).unwrap();
    let result = ask(relay.address);
    assert_eq!(number(&result, "errors"), Some(0), "{result}");
    let mib = number(&result, "requests").unwrap();
    assert!(mib > 0 && mib.is_multiple_of(3), "{result}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let wrong = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            // As long as it should be, with the numbers wrong.
            _ = stream.write_all(&vec![0; 3 << 20]);
        }
    });
    let result = ask(wrong);
    assert_eq!(number(&result, "requests"), Some(0), "{result}");
    assert!(number(&result, "errors").unwrap() > 0, "{result}");
}

#[test]
fn the_load_keeps_its_rate_and_finds_no_errors_through_the_relay() {
    let upstream = upstream().unwrap();
    let relay = relay_to(upstream.address).unwrap();
    for body in ["no", "yes"] {
        let arguments = ["--connections", "8", "--seconds", "1", "--rate", "500", "--body", body];
        let result = load(relay.address, &arguments).unwrap();
        assert_eq!(number(&result, "requests"), Some(500), "{result}");
        assert_eq!(number(&result, "errors"), Some(0), "{result}");
    }
    let result = load(relay.address, &["--connections", "8", "--seconds", "1"]).unwrap();
    assert!(number(&result, "requests").unwrap() > 500, "as fast as answered: {result}");
}

#[test]
fn a_stall_counts_for_every_request_that_it_kept_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stall = Duration::from_millis(400);
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let length = request(false).len();
        let mut bytes = vec![0; length];
        for count in 0.. {
            if count == 300 {
                // Waits on something that never comes.
                let poller = ::io::Poller::new().unwrap();
                poller.wait(Some(stall), &mut ::io::Events::new()).unwrap();
            }
            if stream.read_exact(&mut bytes).is_err() || stream.write_all(&response()).is_err() {
                return;
            }
        }
    });
    let arguments = ["--connections", "1", "--seconds", "1", "--rate", "1000"];
    let result = load(address, &arguments).unwrap();
    assert_eq!(number(&result, "requests"), Some(1000), "{result}");
    // 400 of 1000 requests fell into the stall; a closed loop would have seen one.
    assert!(number(&result, "p90_ns").unwrap() > 200_000_000, "{result}");
    assert!(number(&result, "max_ns").unwrap() > 390_000_000, "{result}");
}

#[test]
fn requests_that_are_never_answered_are_counted_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let arguments = ["--connections", "2", "--seconds", "1", "--rate", "10"];
    let result = load(listener.local_addr().unwrap(), &arguments).unwrap();
    assert_eq!(number(&result, "requests"), Some(0), "{result}");
    assert_eq!(number(&result, "unanswered"), Some(10), "{result}");
    assert!(number(&result, "p50_ns").unwrap() > 2_000_000_000, "{result}");
}

#[test]
fn idle_connections_and_open_streams_stay_until_the_input_ends_and_closed_ones_are_counted() {
    let cases = [("http1", &["--connections", "100"][..]), ("silent", &STREAMS)];
    for (protocol, arguments) in cases {
        let upstream = upstream_of(protocol).unwrap();
        let run = |target: SocketAddr| {
            let mut child = Command::new(env!("CARGO_BIN_EXE_idle"))
                .args(["--target", &target.to_string()])
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "open 100");
            (child, lines)
        };
        let (mut child, mut lines) = run(upstream.address);
        drop(child.stdin.take());
        assert_eq!(lines.next().unwrap().unwrap(), "closed 0");
        child.wait().unwrap();

        let (mut child, mut lines) = run(upstream.address);
        drop(upstream);
        drop(child.stdin.take());
        assert_eq!(lines.next().unwrap().unwrap(), "closed 100");
        child.wait().unwrap();
    }
}

#[test]
fn idle_connections_of_tls_stay_until_the_input_ends() {
    let service = tls_service(response()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_idle"))
        .args(["--target", &service.to_string(), "--connections", "50", "--tls", "yes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "open 50");
    drop(child.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "closed 0");
    child.wait().unwrap();
}

const STREAMS: [&str; 4] = ["--connections", "100", "--streams", "10"];
