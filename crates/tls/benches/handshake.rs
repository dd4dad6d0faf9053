//! What a handshake costs each side, in memory, without sockets.

use std::sync::Arc;

use divan::Bencher;
use rcgen::{CertificateParams, KeyPair, RsaKeySize};
use tls::{
    Certificate, ClientAuth, ClientContext, ClientOptions, Established, Group, Handshake, Roots,
    ServerContext, ServerOptions, Verify, Version,
};
use wire::tls::record::Opened;

fn main() {
    divan::main();
}

/// Seconds at which the certificates are read: they are good for centuries.
const NOW: u64 = 1_800_000_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
enum Case {
    P256,
    P256Resumed,
    P256WithMlKem,
    Rsa2048,
    Rsa2048InTls12,
}

const CASES: [Case; 5] =
    [Case::P256, Case::P256WithMlKem, Case::P256Resumed, Case::Rsa2048, Case::Rsa2048InTls12];

fn contexts(case: Case) -> (Arc<ClientContext>, Arc<ServerContext>) {
    let key = match case {
        Case::P256 | Case::P256Resumed | Case::P256WithMlKem => KeyPair::generate(),
        Case::Rsa2048 | Case::Rsa2048InTls12 => {
            KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048)
        }
    };
    let key = key.expect("keys can be made");
    let parameters = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
    let pem = parameters.self_signed(&key).expect("it can be signed").pem();
    let certificate = Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes(), NOW)
        .expect("it fits");
    let versions = match case {
        Case::Rsa2048InTls12 => Version::Tls12..=Version::Tls12,
        _ => Version::Tls13..=Version::Tls13,
    };
    let groups = match case {
        Case::P256WithMlKem => vec![Group::X25519MlKem768],
        _ => vec![Group::X25519],
    };
    let server = ServerContext::new(ServerOptions {
        certificates: vec![Arc::new(certificate)],
        versions: versions.clone(),
        cipher_suites: Vec::new(),
        groups: groups.clone(),
        alpn: vec![(*b"h2").into()],
        client_auth: ClientAuth::Off,
        client_names: Vec::new(),
        session_tickets: matches!(case, Case::P256Resumed),
        shared_tickets: None,
    });
    let roots = Roots::from_pem(pem.as_bytes()).expect("one root");
    let client = ClientContext::new(ClientOptions {
        verify: Verify::Roots(Arc::new(roots)),
        certificate: None,
        versions,
        cipher_suites: Vec::new(),
        groups,
        alpn: vec![(*b"h2").into()],
        names: Vec::new(),
    });
    (Arc::new(client.expect("a context")), Arc::new(server.expect("a context")))
}

type Contexts = (Arc<ClientContext>, Arc<ServerContext>);

/// Both sides, and the bytes that the one whose turn it is gets.
struct Sides {
    client: Option<Handshake>,
    server: Option<Handshake>,
    flight: Vec<u8>,
    /// What came of it.
    ends: Vec<Established>,
}

impl Sides {
    fn new() -> Self {
        Self { client: None, server: None, flight: Vec::new(), ends: Vec::new() }
    }

    /// The client's turns are even, the server's odd.
    fn turn(&mut self, contexts: &Contexts, turn: usize) {
        let side = match turn {
            0 => self
                .client
                .insert(Handshake::connect(&contexts.0, "a.example").expect("the name is one")),
            1 => self.server.insert(Handshake::accept(&contexts.1)),
            _ if turn.is_multiple_of(2) => self.client.as_mut().expect("it is not done"),
            _ => self.server.as_mut().expect("it is not done"),
        };
        side.on_bytes(&self.flight).expect("it goes well");
        self.flight.clear();
        side.poll_output(&mut self.flight);
        if side.is_done() {
            let done = if turn.is_multiple_of(2) { self.client.take() } else { self.server.take() };
            let done = done.expect("it was there a line ago");
            self.ends.push(done.finish().expect("it is done"));
        }
    }

    fn is_done(&self) -> bool {
        self.ends.len() == 2
    }
}

/// A whole handshake, after which the client keeps the ticket that it got.
fn visit(contexts: &Contexts) {
    let mut sides = Sides::new();
    for turn in 0.. {
        sides.turn(contexts, turn);
        if sides.is_done() {
            break;
        }
    }
    for end in &mut sides.ends {
        let Some(tickets) = &mut end.tickets else { continue };
        if let Ok((_, Opened::Ticket(ticket))) = end.records.open(&mut sides.flight) {
            assert!(tickets.keep(&ticket), "it is one");
        }
    }
}

/// What both sides do in a whole handshake.
#[divan::bench(args = CASES)]
fn whole(bencher: Bencher<'_, '_>, case: Case) {
    let contexts = contexts(case);
    bencher.bench_local(|| visit(&contexts));
}

/// What one side does at its turn: the client at 0 and 2, the server at 1 and 3, each with making
/// the handshake at first and the record layer at last. In TLS 1.2 the client has a turn more.
#[divan::bench(args = CASES, consts = [0, 1, 2, 3, 4])]
fn turn<const TURN: usize>(bencher: Bencher<'_, '_>, case: Case) {
    let contexts = contexts(case);
    let before = || {
        if matches!(case, Case::P256Resumed) {
            visit(&contexts);
        }
        let mut sides = Sides::new();
        (0..TURN).for_each(|turn| sides.turn(&contexts, turn));
        sides
    };
    if before().is_done() {
        return;
    }
    bencher.with_inputs(before).bench_local_values(|mut sides| {
        sides.turn(&contexts, TURN);
        sides
    });
}
