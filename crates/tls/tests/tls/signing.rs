//! Handshakes that wait for their signature, with every provider.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};

use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::Decode as _;
use rcgen::KeyPair;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tls::batch;
use tls::signing::{
    Batched, CryptoThread, Inline, JOBS_MAX, KeyOperations, ProviderId, SignError, SignJob,
    Signature, Signed, Tally, WAIT_NANOS_MAX,
};
use tls::{
    Alert, Certificate, ClientAuth, ClientContext, Group, Handshake, HandshakeError, KeyKind,
    Resumption, ServerContext, Verify, Version,
};
use x509_cert::der::pem::{self, LineEnding};

use crate::authority::{Authority, AuthorityExt as _, Pair, PairExt as _, algorithm, leaf_of};
use crate::kit::{
    End, Failed, Side, client, client_options, establish, fail, server, server_options,
};
use crate::kit::{Pair as Ends, talk};
use crate::remote::{Remote, TIMEOUT_NANOS};

const PROVIDER: ProviderId = ProviderId(7);

/// A key and a certificate of each kind that matters, by an authority that made them all.
struct Keys {
    authority: Authority,
    pairs: Vec<(&'static str, Pair)>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let authority = Authority::new("root");
    let rsa: [(&str, &[u8]); 5] = [
        ("rsa2048", include_bytes!("../keys/2048.der")),
        ("rsa2048-other", include_bytes!("../keys/2048-other.der")),
        ("rsa2048-e3", include_bytes!("../keys/2048-e3.der")),
        ("rsa3072", include_bytes!("../keys/3072.der")),
        ("rsa4096", include_bytes!("../keys/4096.der")),
    ];
    let read = |der: &[u8]| {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.to_vec()));
        KeyPair::from_der_and_sign_algo(&der, &rcgen::PKCS_RSA_SHA256).unwrap()
    };
    let rsa = rsa.into_iter().map(|(name, der)| (name, KeyKind::Rsa, read(der)));
    let others = [
        ("p256", KeyKind::EcdsaP256),
        ("p384", KeyKind::EcdsaP384),
        ("p521", KeyKind::EcdsaP521),
        ("ed25519", KeyKind::Ed25519),
    ];
    let others = others.into_iter().map(|(name, kind)| (name, kind, pki::key(algorithm(kind))));
    let issue = |(name, kind, key): (_, _, KeyPair)| {
        (name, authority.issue_for(&leaf_of(kind, &["a.example"]), &key))
    };
    let pairs = rsa.chain(others).map(issue).collect();
    Keys { authority, pairs }
});

/// Whether the key is in this process.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Here,
    Elsewhere,
}

fn pair(name: &str) -> &'static Pair {
    &KEYS.pairs.iter().find(|(known, _)| *known == name).unwrap().1
}

fn certificate(pair: &Pair, place: Place) -> Arc<Certificate> {
    let (chain, key) = (pair.chain.as_bytes(), pair.key.as_bytes());
    Arc::new(match place {
        Place::Here => Certificate::from_pem_for(PROVIDER, chain, key).unwrap(),
        Place::Elsewhere => Certificate::from_chain_for(PROVIDER, chain).unwrap(),
    })
}

fn accepting(name: &str, place: Place, version: Version) -> Arc<ServerContext> {
    let mut options = server_options(&certificate(pair(name), place));
    options.versions = version..=version;
    options.resumption = Resumption::Off;
    server(options)
}

fn connecting() -> Arc<ClientContext> {
    client(client_options(Verify::Roots(KEYS.authority.roots())))
}

/// A remote signer that has all keys.
fn remote() -> Remote {
    let of = |(_, pair): &(&str, Pair)| {
        let certificate = certificate(pair, Place::Elsewhere);
        (certificate.key_handle().unwrap().fingerprint(), pair.key.clone())
    };
    Remote::start(KEYS.pairs.iter().map(of).collect())
}

/// A remote signer that never answers.
fn silent() -> Remote {
    let (socket, there) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    std::thread::spawn(move || std::io::copy(&mut &there, &mut std::io::sink()));
    Remote::behind(socket)
}

/// A client and a server, and what is on its way to each.
struct Meeting {
    client: Handshake,
    server: Handshake,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
}

impl Meeting {
    fn new(context: &Arc<ServerContext>) -> Self {
        Self::with(&connecting(), context)
    }

    fn with(connecting: &Arc<ClientContext>, accepting: &Arc<ServerContext>) -> Self {
        let client = Handshake::connect(connecting, "a.example").unwrap();
        let server = Handshake::accept(accepting);
        Self { client, server, to_client: Vec::new(), to_server: Vec::new() }
    }

    /// Lets both say what they can, until neither can say more.
    fn go_on(&mut self) {
        loop {
            self.client.poll_output(&mut self.to_server);
            let consumed = self.server.on_bytes(&self.to_server).unwrap();
            self.to_server.drain(..consumed);
            self.server.poll_output(&mut self.to_client);
            let consumed = self.client.on_bytes(&self.to_client).unwrap();
            self.to_client.drain(..consumed);
            if consumed == 0 {
                return;
            }
        }
    }

    /// As far as the signature.
    fn job(&mut self) -> SignJob {
        self.go_on();
        assert!(self.server.is_waiting());
        self.server.pending().unwrap()
    }

    /// Both are done: talks a little.
    fn finish(self) {
        assert!(self.client.is_done() && self.server.is_done());
        assert!(!self.server.is_waiting());
        let end = |handshake: Handshake, unread| End::Ours {
            established: Box::new(handshake.finish().unwrap()),
            unread,
        };
        let (client, server) = (end(self.client, self.to_client), end(self.server, self.to_server));
        Ends { client, server }.chat();
    }
}

/// Gives all results to their handshakes, the last first.
fn resume(meetings: &mut [Meeting], results: Vec<Signed>) {
    for Signed { token, result } in results.into_iter().rev() {
        let meeting = &mut meetings[usize::try_from(token).unwrap()];
        meeting.server.on_signature(result).unwrap();
        meeting.go_on();
    }
}

fn poll_all(operations: &mut impl KeyOperations, now: u64) -> Vec<Signed> {
    std::iter::from_fn(|| operations.poll(now)).collect()
}

/// Has all handshakes wait at the same time, and lets them end. `wait` sleeps until there may be
/// results.
fn meet<O: KeyOperations>(operations: &mut O, mut meetings: Vec<Meeting>, wait: impl Fn(&mut O)) {
    for (meeting, token) in meetings.iter_mut().zip(0..) {
        operations.submit(token, meeting.job(), 0);
    }
    assert!(meetings.iter().all(|meeting| meeting.server.is_waiting()));
    operations.flush(0);
    let mut results = Vec::new();
    while results.len() < meetings.len() {
        match operations.poll(0) {
            Some(result) => results.push(result),
            None => wait(operations),
        }
    }
    resume(&mut meetings, results);
    meetings.into_iter().for_each(Meeting::finish);
}

/// Eight at a time, with each key alone and with all mixed.
fn meet_all<O: KeyOperations>(operations: &mut O, place: Place, wait: impl Fn(&mut O)) {
    let names: Vec<&str> = KEYS.pairs.iter().map(|(name, _)| *name).collect();
    for version in Version::ALL {
        for name in &names {
            let context = accepting(name, place, version);
            meet(operations, (0..8).map(|_| Meeting::new(&context)).collect(), &wait);
        }
        let contexts: Vec<_> = names.iter().map(|name| accepting(name, place, version)).collect();
        let mixed = contexts.iter().chain(&contexts).map(Meeting::new).collect();
        meet(operations, mixed, &wait);
    }
}

fn never<O>(_: &mut O) {
    panic!("there had to be a result");
}

/// A crypto thread, and the channel that reports its results.
fn crypto_thread(operations: impl KeyOperations + Send + 'static) -> (CryptoThread, Receiver<()>) {
    let (wake, woken) = channel();
    let wake = move || {
        let _test_is_over = wake.send(());
    };
    (CryptoThread::spawn(operations, wake).unwrap(), woken)
}

#[test]
fn signatures_are_made_inline() {
    meet_all(&mut Inline::default(), Place::Here, never);
}

#[test]
fn signatures_are_made_in_batches() {
    let mut batched = Batched::default();
    meet_all(&mut batched, Place::Here, never);
    let Tally { inline, batched, failed, .. } = batched.take_tally();
    assert_eq!(failed, 0);
    if batch::is_available() {
        // Eight with each key of RSA; and of those that are mixed, six with the shortest and two with
        // each of the others.
        assert_eq!(batched, 2 * (5 * 8 + 6 + 2 + 2));
    }
    // Each key eight times alone, and twice mixed, in both versions.
    assert_eq!(inline + batched, 2 * 9 * (8 + 2));
}

#[test]
fn signatures_are_made_on_another_thread() {
    let (mut one_by_one, woken) = crypto_thread(Inline::default());
    meet_all(&mut one_by_one, Place::Here, |_| woken.recv().unwrap());
    let (mut in_batches, woken) = crypto_thread(Batched::default());
    meet_all(&mut in_batches, Place::Here, |_| woken.recv().unwrap());
    // As without a thread, but for the sizes of batches.
    let Tally { inline, batched, failed, .. } = in_batches.take_tally();
    assert_eq!((inline + batched, failed), (2 * 9 * (8 + 2), 0));
}

#[test]
fn signatures_are_made_where_the_key_is() {
    meet_all(&mut remote(), Place::Elsewhere, Remote::wait);
}

#[test]
fn a_lone_signature_is_not_made_in_a_batch() {
    let mut batched = Batched::default();
    let context = accepting("rsa2048", Place::Here, Version::Tls13);
    meet(&mut batched, vec![Meeting::new(&context)], never);
    let waited = u64::from(batch::is_available());
    let sizes = [0, waited, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(batched.take_tally(), Tally { inline: 1, sizes, ..Tally::default() });
    assert_eq!(batched.take_tally(), Tally::default());
}

#[test]
fn batches_are_as_large_as_is_cheapest() {
    if !batch::is_available() {
        return;
    }
    let context = accepting("rsa2048", Place::Here, Version::Tls13);
    let other = accepting("rsa2048-other", Place::Here, Version::Tls13);
    for (count, sizes) in [
        (2, [0, 0, 1, 0, 0, 0, 0, 0, 0]),
        (4, [0, 0, 0, 0, 1, 0, 0, 0, 0]),
        (5, [0, 1, 0, 0, 1, 0, 0, 0, 0]),
        (7, [0, 0, 0, 0, 0, 0, 0, 1, 0]),
        (8, [0, 0, 0, 0, 0, 0, 0, 0, 1]),
        (11, [0, 0, 0, 1, 0, 0, 0, 0, 1]),
    ] {
        let mut batched = Batched::default();
        let contexts = [&context, &other].into_iter().cycle();
        meet(&mut batched, contexts.take(count).map(Meeting::new).collect(), never);
        assert_eq!(batched.take_tally().sizes, sizes, "{count}");
        assert!(batched.is_empty());
    }
}

#[test]
fn a_key_in_its_older_form_joins_batches_too() {
    let whole = PrivateKeyInfoRef::from_der(include_bytes!("../keys/2048.der")).unwrap();
    let older = pem::encode_string("RSA PRIVATE KEY", LineEnding::LF, whole.private_key.as_bytes());
    let pair = Pair { key: older.unwrap(), ..pair("rsa2048").clone() };
    let mut options = server_options(&certificate(&pair, Place::Here));
    options.resumption = Resumption::Off;
    let context = server(options);
    let mut batched = Batched::default();
    meet(&mut batched, (0..3).map(|_| Meeting::new(&context)).collect(), never);
    let expected = if batch::is_available() { 3 } else { 0 };
    assert_eq!(batched.take_tally().batched, expected);
}

#[test]
fn nothing_waits_for_others_beyond_its_deadline() {
    if !batch::is_available() {
        return;
    }
    let mut batched = Batched::default();
    let context = accepting("rsa2048", Place::Here, Version::Tls13);
    let mut meetings = [Meeting::new(&context), Meeting::new(&context)];
    assert_eq!(batched.next_deadline(), None);
    batched.submit(0, meetings[0].job(), 1_000);
    batched.submit(1, meetings[1].job(), 2_000);
    let deadline = 1_000 + WAIT_NANOS_MAX;
    assert_eq!(batched.next_deadline(), Some(deadline));
    assert_eq!(batched.poll(deadline - 1), None);
    assert_eq!(batched.len(), 2);
    let results = poll_all(&mut batched, deadline);
    assert_eq!(results.len(), 2);
    assert_eq!(batched.next_deadline(), None);
    resume(&mut meetings, results);
    meetings.into_iter().for_each(Meeting::finish);
}

#[test]
fn what_was_cancelled_is_not_made() {
    let mut batched = Batched::default();
    let context = accepting("rsa2048", Place::Here, Version::Tls13);
    let mut meetings: Vec<_> = (0..3).map(|_| Meeting::new(&context)).collect();
    for (meeting, token) in meetings.iter_mut().zip(0..) {
        batched.submit(token, meeting.job(), 0);
    }
    batched.cancel(1);
    batched.flush(0);
    let results = poll_all(&mut batched, 0);
    assert_eq!(results.iter().map(|signed| signed.token).collect::<Vec<_>>(), [0, 2]);
    if batch::is_available() {
        assert_eq!(batched.take_tally().sizes[2], 1);
    }
}

#[test]
fn more_than_the_thread_may_be_given_are_made_at_once() {
    // One that says when it has a job, and is busy until the test says so.
    struct Blocked(Receiver<()>, Inline, Sender<()>);
    impl KeyOperations for Blocked {
        fn submit(&mut self, token: u64, job: SignJob, now: u64) {
            let _test_is_over = self.2.send(());
            let _test_is_over = self.0.recv();
            self.1.submit(token, job, now);
        }
        fn poll(&mut self, now: u64) -> Option<Signed> {
            self.1.poll(now)
        }
        fn flush(&mut self, _: u64) {}
        fn next_deadline(&self) -> Option<u64> {
            None
        }
        fn cancel(&mut self, _: u64) {}
        fn take_tally(&mut self) -> Tally {
            self.1.take_tally()
        }
    }
    let ((release, blocked), (busy, is_busy)) = (channel(), channel());
    let (mut thread, woken) = crypto_thread(Blocked(blocked, Inline::default(), busy));
    let job = Meeting::new(&accepting("p256", Place::Here, Version::Tls13)).job();
    let elsewhere = Meeting::new(&accepting("p256", Place::Elsewhere, Version::Tls13)).job();
    // The thread has taken the first ones off the queue, and takes no more.
    thread.submit(0, job.clone(), 0);
    is_busy.recv().unwrap();
    let many = u64::try_from(JOBS_MAX).unwrap() + 8;
    (1..many).for_each(|token| thread.submit(token, job.clone(), 0));
    thread.submit(many, job, 0);
    thread.submit(many + 1, elsewhere, 0);
    let results = poll_all(&mut thread, 0);
    let find = |token| results.iter().find(|signed| signed.token == token).unwrap();
    assert!(find(many).result.is_ok());
    assert_eq!(find(many + 1).result, Err(SignError::Refused));
    drop(release);
    let mut count = results.len();
    while count < usize::try_from(many).unwrap() + 2 {
        woken.recv().unwrap();
        count += poll_all(&mut thread, 0).len();
    }
}

#[test]
fn a_signer_that_does_not_answer_is_not_waited_for_forever() {
    let mut silent = silent();
    let mut meeting = Meeting::new(&accepting("p256", Place::Elsewhere, Version::Tls13));
    silent.submit(4, meeting.job(), 5);
    assert_eq!(silent.next_deadline(), Some(5 + TIMEOUT_NANOS));
    assert_eq!(silent.poll(4 + TIMEOUT_NANOS), None);
    let signed = silent.poll(5 + TIMEOUT_NANOS).unwrap();
    assert_eq!(silent.next_deadline(), None);
    let error = meeting.server.on_signature(signed.result).unwrap_err();
    assert_eq!(error, HandshakeError::SignatureMissing(SignError::TimedOut));
    assert_eq!(error.word(), "signature_timed_out");
}

#[test]
fn while_it_waits_it_takes_nothing_and_has_nothing_to_say() {
    for version in Version::ALL {
        let mut meeting = Meeting::new(&accepting("rsa2048", Place::Here, version));
        let mut hello = Vec::new();
        meeting.client.poll_output(&mut hello);
        let hello_len = hello.len();
        // What some clients say early, which means nothing in TLS 1.3, and an alert.
        hello.extend_from_slice(&[20, 3, 3, 0, 1, 1]);
        hello.extend_from_slice(&[21, 3, 3, 0, 2, 2, 80]);
        assert_eq!(meeting.server.on_bytes(&hello), Ok(hello_len));
        assert!(meeting.server.is_waiting() && !meeting.server.is_done());
        let job = meeting.server.pending().unwrap();
        assert!(meeting.server.pending().is_none());
        assert_eq!(meeting.server.on_bytes(&hello[hello_len..]), Ok(0));
        assert_eq!(meeting.server.on_bytes(&[0; 40_000]), Ok(0));
        let mut output = Vec::new();
        meeting.server.poll_output(&mut output);
        assert_eq!(output, []);

        meeting.server.on_signature(job.sign()).unwrap();
        assert!(!meeting.server.is_waiting() && meeting.server.pending().is_none());
        meeting.server.poll_output(&mut output);
        assert!(!output.is_empty());
        // Now it looks at them.
        let error = meeting.server.on_bytes(&hello[hello_len..]).unwrap_err();
        match version {
            Version::Tls12 => assert_eq!(error, HandshakeError::MessageUnexpected),
            Version::Tls13 => {
                assert_eq!(error, HandshakeError::AlertReceived(Alert::INTERNAL_ERROR));
            }
        }
    }
}

#[test]
fn it_is_not_done_while_it_waits() {
    let mut meeting = Meeting::new(&accepting("p256", Place::Here, Version::Tls13));
    let job = meeting.job();
    assert_eq!(job.key.provider(), PROVIDER);
    assert_eq!(meeting.server.finish().unwrap_err(), HandshakeError::Unfinished);
}

#[test]
fn a_signature_that_nobody_waits_for_is_nothing() {
    let mut meeting = Meeting::new(&accepting("p256", Place::Here, Version::Tls13));
    meeting.server.on_signature(Err(SignError::Failed)).unwrap();
    let signature = meeting.job().sign();
    meeting.server.on_signature(signature.clone()).unwrap();
    meeting.server.on_signature(Err(SignError::Failed)).unwrap();
    meeting.client.on_signature(Err(SignError::Failed)).unwrap();
    meeting.go_on();
    meeting.server.on_signature(signature).unwrap();
    meeting.finish();
}

/// How both sides end when the server gets this for its signature.
fn end_with(meeting: &mut Meeting, result: Result<Signature, SignError>) -> HandshakeError {
    let error = meeting.server.on_signature(result).unwrap_err();
    assert_eq!(meeting.server.on_bytes(&[]), Err(error.clone()));
    meeting.server.poll_output(&mut meeting.to_client);
    // An alert in the clear, and nothing of the flight.
    assert!(matches!(meeting.to_client[..], [21, 3, 3, 0, 2, 2, 80]), "{:?}", meeting.to_client);
    let result = meeting.client.on_bytes(&meeting.to_client);
    assert_eq!(result, Err(HandshakeError::AlertReceived(Alert::INTERNAL_ERROR)));
    error
}

#[test]
fn without_a_signature_the_peer_gets_an_internal_error_alert() {
    for version in Version::ALL {
        let context = accepting("rsa2048", Place::Here, version);
        for error in [SignError::Failed, SignError::Refused, SignError::TimedOut] {
            let mut meeting = Meeting::new(&context);
            let _job = meeting.job();
            let end = end_with(&mut meeting, Err(error));
            assert_eq!(end, HandshakeError::SignatureMissing(error));
            assert_eq!(end.word(), error.word());
        }
    }
}

/// Makes a signature that is none.
type Spoil = fn(&SignJob) -> Vec<u8>;

fn good(job: &SignJob) -> Vec<u8> {
    job.sign().unwrap().octets().to_vec()
}

#[test]
fn a_wrong_signature_is_never_sent() {
    for version in Version::ALL {
        for (name, _) in &KEYS.pairs {
            let context = accepting(name, Place::Here, version);
            let spoilt: [Spoil; 5] = [
                |job| {
                    let mut octets = good(job);
                    *octets.last_mut().unwrap() ^= 1;
                    octets
                },
                |job| good(job)[1..].to_vec(),
                |_| Vec::new(),
                |_| vec![0; 70_000],
                // A right one, of something else.
                |job| good(&SignJob { message: (*b"something else").into(), ..job.clone() }),
            ];
            for spoil in spoilt {
                let mut meeting = Meeting::new(&context);
                let octets = spoil(&meeting.job());
                let end = end_with(&mut meeting, Ok(Signature::from_elsewhere(octets)));
                assert_eq!(end, HandshakeError::SignatureMissing(SignError::Wrong));
            }
            let mut meeting = Meeting::new(&context);
            let octets = good(&meeting.job());
            meeting.server.on_signature(Ok(Signature::from_elsewhere(octets))).unwrap();
            meeting.go_on();
            meeting.finish();
        }
    }
}

#[test]
fn a_client_that_was_asked_to_try_again_is_waited_with_and_failed_alike() {
    let mut options = server_options(&certificate(pair("rsa2048"), Place::Here));
    options.groups = vec![Group::Secp256r1];
    options.resumption = Resumption::Off;
    let accepting = server(options);
    let mut options = client_options(Verify::Roots(KEYS.authority.roots()));
    options.groups = vec![Group::X25519, Group::Secp256r1];
    let connecting = client(options);
    let mut meeting = Meeting::with(&connecting, &accepting);
    let signature = meeting.job().sign();
    meeting.server.on_signature(signature).unwrap();
    meeting.go_on();
    meeting.finish();
    let mut meeting = Meeting::with(&connecting, &accepting);
    let _job = meeting.job();
    end_with(&mut meeting, Err(SignError::Failed));
}

#[test]
fn a_handshake_may_be_dropped_while_it_waits() {
    let context = accepting("rsa2048", Place::Here, Version::Tls13);
    // More often than there are stacks.
    for n in 0..600 {
        let mut meeting = Meeting::new(&context);
        meeting.go_on();
        assert!(meeting.server.is_waiting(), "{n}");
        if n % 2 == 0 {
            assert!(meeting.server.pending().is_some());
        }
    }
    // All at once, from the middle.
    let mut meetings: Vec<_> = (0..200).map(|_| Meeting::new(&context)).collect();
    meetings.iter_mut().for_each(Meeting::go_on);
    while !meetings.is_empty() {
        drop(meetings.swap_remove(meetings.len() / 2));
    }
}

#[test]
fn those_that_find_no_stack_sign_at_once_where_they_can() {
    let here = accepting("p256", Place::Here, Version::Tls13);
    let elsewhere = accepting("p256", Place::Elsewhere, Version::Tls13);
    let mut waiting = Vec::new();
    let mut meeting = Meeting::new(&here);
    meeting.go_on();
    while meeting.server.is_waiting() {
        waiting.push(meeting);
        assert!(waiting.len() <= 256);
        meeting = Meeting::new(&here);
        meeting.go_on();
    }
    assert_eq!(waiting.len(), 256);
    meeting.finish();

    let mut lost = Meeting::new(&elsewhere);
    lost.client.poll_output(&mut lost.to_server);
    let error = lost.server.on_bytes(&lost.to_server).unwrap_err();
    assert_eq!(error, HandshakeError::SignatureMissing(SignError::KeyElsewhere));
    let mut output = Vec::new();
    lost.server.poll_output(&mut output);
    assert_eq!(output, [21, 3, 3, 0, 2, 2, 80]);

    // One goes, and there is room.
    drop(waiting.pop());
    let signature = Meeting::new(&elsewhere).job();
    assert!(!signature.key.is_here());
    assert_eq!(signature.sign(), Err(SignError::KeyElsewhere));
}

#[test]
fn who_comes_again_is_not_waited_with() {
    for version in Version::ALL {
        let mut options = server_options(&certificate(pair("rsa2048"), Place::Here));
        options.versions = version..=version;
        let (accepting, connecting) = (server(options), connecting());
        let mut meeting = Meeting::with(&connecting, &accepting);
        let signature = meeting.job().sign();
        meeting.server.on_signature(signature).unwrap();
        meeting.go_on();
        meeting.finish();
        let mut again = Meeting::with(&connecting, &accepting);
        again.go_on();
        assert!(again.server.is_done(), "{version}");
        again.finish();
    }
}

#[test]
fn clients_sign_at_once_or_not_at_all() {
    let authority = &KEYS.authority;
    for version in Version::ALL {
        let mut options =
            server_options(&authority.certificate(KeyKind::EcdsaP256, &["a.example"]));
        options.versions = version..=version;
        options.client_auth = ClientAuth::Required(authority.roots());
        let accepting = server(options);
        let with = |place| {
            let mut options = client_options(Verify::Roots(authority.roots()));
            options.certificate = Some(certificate(pair("rsa2048"), place));
            Side::connect(&client(options), "a.example")
        };
        let mut ends = establish(with(Place::Here), Side::accept(&accepting), usize::MAX);
        assert!(ends.server.facts().peer.is_some());
        ends.chat();
        let (connecting, _) = fail(with(Place::Elsewhere), Side::accept(&accepting));
        let error = HandshakeError::SignatureMissing(SignError::KeyElsewhere);
        assert_eq!(connecting, Err(Failed::Ours(error)));
    }
}

#[test]
fn handshakes_that_do_not_wait_go_on_beside_those_that_do() {
    let waiting = accepting("rsa2048", Place::Here, Version::Tls13);
    let inline = server(server_options(&pair("rsa2048").certificate()));
    let mut first = Meeting::new(&waiting);
    let job = first.job();
    let mut other = Meeting::new(&inline);
    other.go_on();
    other.finish();
    let mut second = Meeting::new(&waiting);
    let second_job = second.job();
    let (mut connecting, mut accepting) =
        (Side::connect(&connecting(), "a.example"), Side::accept(&inline));
    assert_eq!(talk(&mut connecting, &mut accepting, 1), (Ok(()), Ok(())));
    second.server.on_signature(second_job.sign()).unwrap();
    first.server.on_signature(job.sign()).unwrap();
    first.go_on();
    second.go_on();
    first.finish();
    second.finish();
}

#[test]
fn a_signer_that_lacks_the_key_says_so() {
    let mut remote = Remote::start(Vec::new());
    let mut meeting = Meeting::new(&accepting("p256", Place::Elsewhere, Version::Tls13));
    remote.submit(4, meeting.job(), 0);
    remote.wait();
    let signed = remote.poll(0).unwrap();
    assert_eq!(signed, Signed { token: 4, result: Err(SignError::Failed) });
    end_with(&mut meeting, signed.result);
}

/// Kibibytes of memory that each stack of its own has, of those that a thread has or keeps: they
/// have 128 KiB of addresses and a page in front that cannot be touched.
fn stacks() -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut sizes, mut is_behind_guard, mut is_stack) = (Vec::new(), false, false);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [range, rights, ..] = words[..]
            && let Some((from, to)) = range.split_once('-')
        {
            let at = |text| usize::from_str_radix(text, 16).unwrap();
            let len = at(to) - at(from);
            is_stack = is_behind_guard && rights == "rw-p" && len == 128 << 10;
            is_behind_guard = rights == "---p" && len == 4096;
        } else if let (["Rss:", size, "kB"], true) = (&words[..], is_stack) {
            sizes.push(size.parse().unwrap());
        }
    }
    sizes
}

#[test]
fn handshakes_need_less_than_half_of_a_stack() {
    for version in Version::ALL {
        for group in Group::ALL {
            for (name, place) in [("rsa2048", Place::Here), ("rsa4096", Place::Elsewhere)]
                .into_iter()
                .chain(KEYS.pairs.iter().map(|(name, _)| (*name, Place::Elsewhere)))
            {
                if version == Version::Tls12 && !group.is_in_tls12() {
                    continue;
                }
                let mut options = server_options(&certificate(pair(name), place));
                options.versions = version..=version;
                options.groups = vec![group];
                options.client_auth = ClientAuth::Optional(KEYS.authority.roots());
                let accepting = server(options);
                let mut options = client_options(Verify::Roots(KEYS.authority.roots()));
                options.groups = vec![group];
                let mut meeting = Meeting::with(&client(options), &accepting);
                // Which is verified there, as what comes from elsewhere is.
                let message = meeting.job();
                let here = certificate(pair(name), Place::Here);
                let key = Arc::clone(here.key_handle().unwrap());
                let signature = SignJob { key, ..message }.sign().unwrap();
                let signature = Signature::from_elsewhere(signature.octets().to_vec());
                meeting.server.on_signature(Ok(signature)).unwrap();
                meeting.go_on();
                meeting.finish();
            }
        }
    }
    let sizes = stacks();
    println!("stacks, KiB: {sizes:?}");
    assert!(sizes.iter().any(|size| *size > 0));
    assert!(sizes.iter().all(|size| *size <= 64), "{sizes:?}");
}
