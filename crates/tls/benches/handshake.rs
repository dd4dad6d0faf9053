//! What a handshake costs each side, in memory, without sockets.

use std::cell::RefCell;
use std::sync::Arc;

use divan::Bencher;
use rcgen::{CertificateParams, KeyPair, RsaKeySize};
use tls::signing::{Batched, Inline, KeyOperations, ProviderId};
use tls::{
    Certificate, ClientAuth, ClientContext, ClientOptions, Established, Group, Handshake,
    Resumption, Roots, ServerContext, ServerOptions, Verify, Version,
};
use wire::tls::record::Opened;

fn main() {
    divan::main();
}

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

fn contexts(case: Case) -> Contexts {
    contexts_for(case, None)
}

/// As `contexts`, for servers that wait while `provider` signs.
fn contexts_for(case: Case, provider: Option<ProviderId>) -> Contexts {
    let key = match case {
        Case::P256 | Case::P256Resumed | Case::P256WithMlKem => KeyPair::generate(),
        Case::Rsa2048 | Case::Rsa2048InTls12 => {
            KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048)
        }
    };
    let key = key.expect("keys can be made");
    let parameters = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
    let pem = parameters.self_signed(&key).expect("it can be signed").pem();
    let (chain, key) = (pem.as_bytes(), key.serialize_pem());
    let certificate = match provider {
        None => Certificate::from_pem(chain, key.as_bytes()),
        Some(provider) => Certificate::from_pem_for(provider, chain, key.as_bytes()),
    };
    let certificate = certificate.expect("it fits");
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
        resumption: match case {
            Case::P256Resumed => Resumption::Tickets,
            _ => Resumption::Off,
        },
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

/// Eight handshakes at a time.
#[derive(Clone, Copy, Debug)]
enum Eight {
    P256,
    /// Each signs for itself.
    Rsa2048Inline,
    /// One after the other, and each waits for it.
    Rsa2048Waited,
    /// All at once, and each waits for it.
    Rsa2048Batched,
    Rsa2048InlineInTls12,
    Rsa2048BatchedInTls12,
}

const EIGHTS: [Eight; 6] = [
    Eight::P256,
    Eight::Rsa2048Inline,
    Eight::Rsa2048Waited,
    Eight::Rsa2048Batched,
    Eight::Rsa2048InlineInTls12,
    Eight::Rsa2048BatchedInTls12,
];

impl Eight {
    const fn case(self) -> Case {
        match self {
            Self::P256 => Case::P256,
            Self::Rsa2048Inline | Self::Rsa2048Waited | Self::Rsa2048Batched => Case::Rsa2048,
            Self::Rsa2048InlineInTls12 | Self::Rsa2048BatchedInTls12 => Case::Rsa2048InTls12,
        }
    }

    fn operations(self) -> Option<Box<dyn KeyOperations>> {
        match self {
            Self::P256 | Self::Rsa2048Inline | Self::Rsa2048InlineInTls12 => None,
            Self::Rsa2048Waited => Some(Box::new(Inline::default())),
            Self::Rsa2048Batched | Self::Rsa2048BatchedInTls12 => {
                Some(Box::new(Batched::default()))
            }
        }
    }
}

/// Handshakes in flight.
const EIGHT: usize = 8;

/// Lets those servers go on that wait for a signature.
fn sign(all: &mut [Sides], operations: &mut dyn KeyOperations) {
    for (sides, token) in all.iter_mut().zip(0..) {
        let job = sides.server.as_mut().and_then(Handshake::pending).expect("it waits");
        operations.submit(token, job, 0);
    }
    operations.flush(0);
    while let Some(signed) = operations.poll(0) {
        let sides = usize::try_from(signed.token).ok().and_then(|token| all.get_mut(token));
        let Sides { server: Some(server), flight, .. } = sides.expect("it is one of them") else {
            unreachable!("it waits")
        };
        server.on_signature(signed.result).expect("it is good");
        server.poll_output(flight);
    }
}

fn eight_turns(
    all: &mut [Sides],
    contexts: &Contexts,
    operations: &mut Option<Box<dyn KeyOperations>>,
    turn: usize,
) {
    for sides in all.iter_mut().filter(|sides| !sides.is_done()) {
        sides.turn(contexts, turn);
    }
    if let (1, Some(operations)) = (turn, operations) {
        sign(all, &mut **operations);
    }
}

/// What both sides do in eight whole handshakes.
#[divan::bench(args = EIGHTS)]
fn eight(bencher: Bencher<'_, '_>, eight: Eight) {
    let mut operations = eight.operations();
    let contexts = contexts_for(eight.case(), operations.as_ref().map(|_| ProviderId(1)));
    bencher.bench_local(|| {
        let mut all: Vec<Sides> = (0..EIGHT).map(|_| Sides::new()).collect();
        for turn in 0.. {
            eight_turns(&mut all, &contexts, &mut operations, turn);
            if all.iter().all(Sides::is_done) {
                break;
            }
        }
    });
}

/// What eight servers do with the hellos of clients.
#[divan::bench(args = EIGHTS)]
fn eight_answers(bencher: Bencher<'_, '_>, eight: Eight) {
    let mut operations = eight.operations();
    let contexts = contexts_for(eight.case(), operations.as_ref().map(|_| ProviderId(1)));
    let before = || {
        let mut all: Vec<Sides> = (0..EIGHT).map(|_| Sides::new()).collect();
        all.iter_mut().for_each(|sides| sides.turn(&contexts, 0));
        all
    };
    bencher.with_inputs(before).bench_local_values(|mut all| {
        eight_turns(&mut all, &contexts, &mut operations, 1);
        all
    });
}

/// What the same do with the last words of clients, and to let the connections go.
#[divan::bench(args = EIGHTS)]
fn eight_ends(bencher: Bencher<'_, '_>, eight: Eight) {
    let operations = RefCell::new(eight.operations());
    let provider = operations.borrow().as_ref().map(|_| ProviderId(1));
    let contexts = contexts_for(eight.case(), provider);
    let before = || {
        let mut all: Vec<Sides> = (0..EIGHT).map(|_| Sides::new()).collect();
        for turn in 0..3 {
            eight_turns(&mut all, &contexts, &mut operations.borrow_mut(), turn);
        }
        all
    };
    bencher.with_inputs(before).bench_local_values(|mut all| {
        all.iter_mut().for_each(|sides| sides.turn(&contexts, 3));
        drop(all);
    });
}
