//! Handshakes with the `openssl` program of the system, another implementation. Where there is none,
//! that is said, and a failure in CI.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tls::{
    Certificate, ClientAuth, ClientContext, ClientOptions, Established, Handshake, KeyKind,
    Resumption, ServerContext, ServerOptions, Verify, Version,
};
use wire::buffer::Buffer;
use wire::tls::record::Opened;

use crate::authority::{Authority, AuthorityExt as _, leaf_of};

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

fn is_there() -> bool {
    let found = Command::new("openssl").arg("version").stdout(Stdio::null()).status();
    if found.is_err() {
        assert!(std::env::var_os("CI").is_none(), "no `openssl` here");
        println!("skipped: no `openssl` here");
    }
    found.is_ok()
}

fn openssl(arguments: &[&str]) -> Running {
    let child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    Running(child.unwrap())
}

/// Does a handshake over a socket: the connection, and what was read behind it.
fn shake_hands(mut handshake: Handshake, socket: &mut TcpStream) -> (Established, Vec<u8>) {
    let mut unread = Vec::new();
    loop {
        let mut output = Vec::new();
        handshake.poll_output(&mut output);
        socket.write_all(&output).unwrap();
        if handshake.is_done() {
            return (handshake.finish().unwrap(), unread);
        }
        read_some(socket, &mut unread);
        let consumed = handshake.on_bytes(&unread).unwrap();
        unread.drain(..consumed);
    }
}

fn read_some(socket: &mut TcpStream, unread: &mut Vec<u8>) {
    let mut piece = [0; 4096];
    let n = socket.read(&mut piece).unwrap();
    assert!(n > 0, "the peer went away");
    unread.extend_from_slice(&piece[..n]);
}

fn say(established: &mut Established, socket: &mut TcpStream, data: &[u8]) {
    let mut out = Buffer::new(established.records.sealed_len(data.len()));
    established.records.seal(&[data], &mut out).unwrap();
    socket.write_all(out.filled()).unwrap();
}

/// Reads up to the end of a line.
fn hear_line(
    established: &mut Established,
    socket: &mut TcpStream,
    unread: &mut Vec<u8>,
) -> Vec<u8> {
    let mut heard = Vec::new();
    while heard.last() != Some(&b'\n') {
        let (consumed, opened) = established.records.open(unread).unwrap();
        let needs_more = match opened {
            Opened::NeedMore { .. } => true,
            Opened::Data { bytes, .. } => {
                heard.extend_from_slice(bytes);
                false
            }
            Opened::Ticket(ticket) => {
                assert!(established.tickets.as_mut().unwrap().keep(&ticket));
                false
            }
            Opened::End => panic!("the peer went away"),
        };
        unread.drain(..consumed);
        if needs_more {
            read_some(socket, unread);
        }
    }
    heard
}

const KINDS: [KeyKind; 4] =
    [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::Ed25519, KeyKind::Rsa];

fn server_context(certificate: &Arc<Certificate>, version: Version) -> Arc<ServerContext> {
    let options = ServerOptions {
        certificates: vec![Arc::clone(certificate)],
        versions: version..=version,
        cipher_suites: Vec::new(),
        groups: Vec::new(),
        alpn: vec![(*b"h2").into()],
        client_auth: ClientAuth::Off,
        client_names: Vec::new(),
        resumption: Resumption::Tickets,
    };
    Arc::new(ServerContext::new(options).unwrap())
}

#[test]
fn a_client_of_openssl_is_served() {
    if !is_there() {
        return;
    }
    let authority = Authority::new("root");
    for kind in KINDS {
        let certificate = authority.certificate(kind, &["a.example"]);
        for version in Version::ALL {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let flags = "s_client -quiet -servername a.example -alpn h2 -connect";
            let mut arguments: Vec<&str> = flags.split(' ').collect();
            arguments.push(&address);
            let mut client = openssl(&arguments);
            let mut socket = listener.accept().unwrap().0;
            let handshake = Handshake::accept(&server_context(&certificate, version));
            let (mut established, mut unread) = shake_hands(handshake, &mut socket);
            assert_eq!(established.facts.version, version);
            assert_eq!(established.facts.alpn.as_deref(), Some(&b"h2"[..]));
            assert_eq!(established.facts.server_name.as_deref(), Some("a.example"));
            client.0.stdin.as_mut().unwrap().write_all(b"ping\n").unwrap();
            let heard = hear_line(&mut established, &mut socket, &mut unread);
            assert_eq!(heard, b"ping\n");
            say(&mut established, &mut socket, b"pong\n");
            let mut line = String::new();
            BufReader::new(client.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "pong\n");
        }
    }
}

#[test]
fn a_server_of_openssl_is_connected_to_and_its_tickets_are_good() {
    if !is_there() {
        return;
    }
    let authority = Authority::new("root");
    let folder = tempfile();
    // OpenSSL 3.0 reads no key of Ed25519 that rcgen writes (RFC 5958, with the public key behind it).
    for kind in KINDS.into_iter().filter(|kind| *kind != KeyKind::Ed25519) {
        let files = authority.issue(&leaf_of(kind, &["a.example"]));
        let path = folder.join(format!("{kind:?}.pem"));
        std::fs::write(&path, [files.chain, files.key].concat()).unwrap();
        for version in Version::ALL {
            let flags = "s_server -rev -alpn h2 -accept 127.0.0.1:0 -cert";
            let mut arguments: Vec<&str> = flags.split(' ').collect();
            arguments.push(path.to_str().unwrap());
            let mut server = openssl(&arguments);
            let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
            let address =
                lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(String::from));
            let address = address.unwrap();

            let options = ClientOptions {
                verify: Verify::Roots(authority.roots()),
                certificate: None,
                versions: version..=version,
                cipher_suites: Vec::new(),
                groups: Vec::new(),
                alpn: vec![(*b"h2").into()],
                names: Vec::new(),
            };
            let context = Arc::new(ClientContext::new(options).unwrap());
            for is_resumed in [false, true] {
                let mut socket = TcpStream::connect(&address).unwrap();
                let handshake = Handshake::connect(&context, "a.example").unwrap();
                let (mut established, mut unread) = shake_hands(handshake, &mut socket);
                assert_eq!(established.facts.version, version);
                assert_eq!(established.facts.alpn.as_deref(), Some(&b"h2"[..]));
                assert_eq!(established.facts.is_resumed, is_resumed, "{kind} {version}");
                say(&mut established, &mut socket, b"ping\n");
                let heard = hear_line(&mut established, &mut socket, &mut unread);
                assert_eq!(heard, b"gnip\n");
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A folder of this test's own.
fn tempfile() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("tls-openssl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
