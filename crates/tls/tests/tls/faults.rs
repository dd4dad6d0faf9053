//! Failed handshakes, and the alert that each side gets.

use std::sync::Arc;

use tls::{
    Alert, CipherSuite, Group, Handshake, HandshakeError, KeyKind, ServerContext, Verify, Version,
};
use wire::tls::record::RECORD_LEN_MAX;

use crate::authority::{Authority, AuthorityExt as _, leaf_of};
use crate::kit::{Side, client, client_options, establish, fail, server, server_options};

fn any_server() -> Arc<ServerContext> {
    let certificate = Authority::new("root").certificate(KeyKind::EcdsaP256, &["a.example"]);
    server(server_options(&certificate))
}

/// What a client says first, with the big key share of a group that resists quantum computers.
fn hello() -> Vec<u8> {
    let mut options = client_options(Verify::Nothing);
    options.groups = Vec::new();
    let mut client = Handshake::connect(&client(options), "a.example").unwrap();
    let mut hello = Vec::new();
    client.poll_output(&mut hello);
    hello
}

/// How a server takes these bytes, and what it says then.
fn take(bytes: &[u8]) -> (Result<usize, HandshakeError>, Vec<u8>) {
    let mut server = Handshake::accept(&any_server());
    let result = server.on_bytes(bytes);
    let mut output = Vec::new();
    server.poll_output(&mut output);
    if let Err(error) = &result {
        // It stays so.
        assert_eq!(server.on_bytes(bytes), Err(error.clone()));
        assert_eq!(server.on_bytes(&[]), Err(error.clone()));
        assert!(!server.is_done());
        assert_eq!(server.finish().unwrap_err(), *error);
    }
    (result, output)
}

/// The alert in the clear that this is.
fn alert(output: &[u8]) -> Alert {
    let &[21, 3, _, 0, 2, 2, code] = output else { panic!("{output:?}") };
    Alert::from_code(code)
}

#[test]
fn what_is_not_tls_is_recognised_and_not_answered() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n"[..],
        b"G",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
        &[0; 100],
        &[0x80, 46, 1, 3, 1],
    ] {
        let (result, output) = take(bytes);
        assert_eq!(result, Err(HandshakeError::NotTls));
        assert_eq!(output, []);
    }
    let mut connecting = Side::connect(&client(client_options(Verify::Nothing)), "a.example");
    let Side::Ours { handshake, .. } = &mut connecting else { unreachable!("it is ours") };
    let result = handshake.on_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(result, Err(HandshakeError::NotTls));
}

#[test]
fn garbage_is_answered_with_the_alert_that_the_error_names() {
    let decode = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0];
    let cases: [(&[u8], &str); 7] = [
        (&decode, "message_invalid"),
        // A message that a client does not begin with.
        (&[22, 3, 1, 0, 4, 20, 0, 0, 0], "message_unexpected"),
        // A record without anything in it.
        (&[22, 3, 1, 0, 0], "message_invalid"),
        // Longer than any record, and longer than what may follow a header.
        (&[22, 3, 1, 0xff, 0xff], "record_too_long"),
        (&[22, 3, 1, 0x40, 0x19], "record_too_long"),
        // Longer than a hello's may be, though not than one under a key.
        (&[22, 3, 1, 0x40, 0x01], "record_too_long"),
        // A message that is longer than any.
        (&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff], "too_many_bytes"),
    ];
    for (bytes, word) in cases {
        let (result, output) = take(bytes);
        let error = result.unwrap_err();
        assert_eq!(error.word(), word, "{bytes:?}");
        assert_eq!(Some(alert(&output)), error.alert(), "{error} {bytes:?}");
    }
    // Alerts, and no answer to them.
    let (result, output) = take(&[21, 3, 1, 0, 2, 2, 40]);
    assert_eq!(result, Err(HandshakeError::AlertReceived(Alert::HANDSHAKE_FAILURE)));
    assert_eq!(output, []);
    // But to a warning, nothing: if it says that the peer goes, it goes.
    let (result, output) = take(&[21, 3, 1, 0, 2, 1, 0]);
    assert_eq!((result, output), (Ok(7), Vec::new()));
}

#[test]
fn a_hello_with_any_octet_changed_is_taken_or_refused_and_nothing_else() {
    let hello = hello();
    let context = any_server();
    for at in 0..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 0xff;
        let mut server = Handshake::accept(&context);
        let result = server.on_bytes(&changed);
        let mut output = Vec::new();
        server.poll_output(&mut output);
        match result {
            // A record or a message that is longer now.
            Ok(_) if output.is_empty() => assert!((3..9).contains(&at), "{at}"),
            Ok(_) => {}
            Err(HandshakeError::NotTls) => assert!(at < 2 && output.is_empty()),
            Err(error) => match output[..] {
                // Seen before or after the server has answered.
                [21, ..] => assert_eq!(Some(alert(&output)), error.alert(), "{at} {error}"),
                _ => assert_eq!(output[0], 22),
            },
        }
        assert!(!server.is_done());
    }
}

#[test]
fn less_than_a_hello_is_waited_with() {
    let hello = hello();
    let context = any_server();
    for n in 0..hello.len() {
        let mut server = Handshake::accept(&context);
        assert_eq!(server.on_bytes(&hello[..n]), Ok(0));
        let mut output = Vec::new();
        server.poll_output(&mut output);
        assert!(output.is_empty() && !server.is_done());
    }
}

/// The message in these records, in records of `len` octets.
fn in_records_of(len: usize, records: &[u8]) -> Vec<u8> {
    let (_, message) = records.split_at(5);
    let mut cut = Vec::new();
    for piece in message.chunks(len) {
        cut.extend_from_slice(&[22, 3, 1]);
        cut.extend_from_slice(&u16::try_from(piece.len()).unwrap().to_be_bytes());
        cut.extend_from_slice(piece);
    }
    cut
}

#[test]
fn a_hello_may_span_records() {
    let hello = hello();
    assert!(hello.len() > 1400, "{} octets with a big key share", hello.len());
    for len in [1, 2, 3, 4, 5, 100, 1000] {
        let (result, output) = take(&in_records_of(len, &hello));
        assert!(result.is_ok(), "{result:?}");
        // The server's own.
        assert_eq!(output[0], 22);
    }
}

#[test]
fn big_key_shares_come_in_any_pieces() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    for piece_len in [1, 500, 1400, usize::MAX] {
        let mut accepting = server_options(&certificate);
        accepting.groups = vec![Group::X25519MlKem768];
        let mut connecting = client_options(Verify::Roots(authority.roots()));
        connecting.groups = vec![Group::X25519MlKem768];
        let ours = Side::connect(&client(connecting), "a.example");
        establish(ours, Side::accept(&server(accepting)), piece_len).chat();
    }
}

#[test]
fn no_peer_can_make_a_handshake_long() {
    // A message of the longest kind there is, in records that hold one octet each: it ends before
    // the bound of rustls.
    let mut message = vec![1, 0, 0xff, 0xf0];
    message.resize(0xfff4, 0);
    let context = any_server();
    for record_len in [1, 10, 16 << 10] {
        let mut server = Handshake::accept(&context);
        let mut records = vec![22, 3, 1, 0, 0];
        records.extend_from_slice(&message);
        let records = in_records_of(record_len, &records);
        let mut unread = Vec::new();
        let mut failure = None;
        for piece in records.chunks(1000) {
            unread.extend_from_slice(piece);
            match server.on_bytes(&unread) {
                Ok(consumed) => drop(unread.drain(..consumed)),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            assert!(unread.len() < RECORD_LEN_MAX);
        }
        let error = failure.unwrap();
        assert_eq!(error.word(), "too_many_bytes", "{record_len} {error}");
        let mut output = Vec::new();
        server.poll_output(&mut output);
        assert_eq!(Some(alert(&output)), error.alert());
    }
}

#[test]
fn nothing_in_common_is_said_by_what_it_is() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let accepting = || server_options(&certificate);
    let connecting = || client_options(Verify::Roots(authority.roots()));
    let mut cases = Vec::new();

    let (mut ours, mut theirs) = (connecting(), accepting());
    ours.versions = Version::Tls13..=Version::Tls13;
    theirs.versions = Version::Tls12..=Version::Tls12;
    cases.push((ours, theirs, "no_version"));
    let (mut ours, mut theirs) = (connecting(), accepting());
    ours.versions = Version::Tls12..=Version::Tls12;
    theirs.versions = Version::Tls13..=Version::Tls13;
    cases.push((ours, theirs, "no_version"));
    for version in Version::ALL {
        let (mut ours, mut theirs) = (connecting(), accepting());
        ours.versions = version..=version;
        theirs.groups = vec![Group::Secp384r1];
        cases.push((ours, theirs, "no_group"));
    }
    for suites in [
        [CipherSuite::Tls13Aes128GcmSha256, CipherSuite::Tls13Aes256GcmSha384],
        [CipherSuite::EcdheEcdsaWithAes128GcmSha256, CipherSuite::EcdheEcdsaWithAes256GcmSha384],
    ] {
        let [one, other] = suites;
        let (mut ours, mut theirs) = (connecting(), accepting());
        ours.versions = one.version()..=one.version();
        ours.cipher_suites = vec![one];
        theirs.versions = other.version()..=other.version();
        theirs.cipher_suites = vec![other];
        cases.push((ours, theirs, "no_cipher_suite"));
    }
    let (mut ours, mut theirs) = (connecting(), accepting());
    ours.alpn = vec![(*b"h2").into()];
    theirs.alpn = vec![(*b"http/1.1").into()];
    cases.push((ours, theirs, "no_application_protocol"));
    // A suite for keys of RSA, which the server has not.
    let (mut ours, theirs) = (connecting(), accepting());
    ours.versions = Version::Tls12..=Version::Tls12;
    ours.cipher_suites = vec![CipherSuite::EcdheRsaWithAes128GcmSha256];
    cases.push((ours, theirs, "no_cipher_suite"));

    for (ours, theirs, word) in cases {
        let ours = Side::connect(&client(ours), "a.example");
        let (received, result) = fail(ours, Side::accept(&server(theirs)));
        let error = result.unwrap_err().ours();
        assert_eq!(error.word(), word, "{error}");
        let received = received.unwrap_err().ours();
        assert_eq!(received, HandshakeError::AlertReceived(error.alert().unwrap()), "{error}");
    }
}

#[test]
fn a_client_before_tls_1_2_gets_a_protocol_version_alert() {
    for minor in 0..3 {
        // A hello without a session, with one suite and no extension.
        let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, minor];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
        let (result, output) = take(&hello);
        assert_eq!(result, Err(HandshakeError::NoVersion), "3.{minor}");
        assert_eq!(alert(&output), Alert::PROTOCOL_VERSION);
    }
}

#[test]
fn protocols_are_agreed_on_in_the_servers_order() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().into()).collect();
    for version in Version::ALL {
        for (ours, theirs, expected) in [
            (&["h2", "http/1.1"][..], &["h2", "http/1.1"][..], Some("h2")),
            (&["http/1.1", "h2"], &["h2", "http/1.1"], Some("h2")),
            (&["http/1.1"], &["h2", "http/1.1"], Some("http/1.1")),
            (&[], &["h2"], None),
            (&["h2"], &[], None),
        ] {
            let mut accepting = server_options(&certificate);
            accepting.versions = version..=version;
            accepting.alpn = names(theirs);
            let mut connecting = client_options(Verify::Roots(authority.roots()));
            connecting.alpn = names(ours);
            let ours = Side::connect(&client(connecting), "a.example");
            let pair = establish(ours, Side::accept(&server(accepting)), usize::MAX);
            for facts in [pair.client.facts(), pair.server.facts()] {
                assert_eq!(facts.alpn.as_deref(), expected.map(str::as_bytes));
            }
        }
    }
}

#[test]
fn a_name_that_is_none_cannot_be_connected_to() {
    let context = client(client_options(Verify::Nothing));
    for name in ["", "a b", "a..b", "-", "http://a.example"] {
        let error = Handshake::connect(&context, name).unwrap_err();
        assert_eq!(error, HandshakeError::ServerNameInvalid, "{name}");
    }
    for name in ["a", "a.example", "a.example.", "1.2.3.4", "::1"] {
        assert!(Handshake::connect(&context, name).is_ok(), "{name}");
    }
}

/// What a client and a server say to this record during their handshake, which is heard by rustls on the
/// other side.
fn answers(version: Version, record: &[u8]) -> Vec<(HandshakeError, rustls::Error)> {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let mut accepting = server_options(&certificate);
    accepting.versions = version..=version;
    let mut server = Handshake::accept(&server(accepting));
    let name = "a.example".try_into().unwrap();
    let config = Arc::new(crate::kit::rustls_client(&authority));
    let mut client = rustls::ClientConnection::new(config, name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    server.on_bytes(&hello).unwrap();
    let error = server.on_bytes(record).unwrap_err();
    let mut output = Vec::new();
    server.poll_output(&mut output);
    let mut rest = &output[..];
    let mut heard = Ok(());
    while !rest.is_empty() && heard.is_ok() {
        client.read_tls(&mut rest).unwrap();
        heard = client.process_new_packets().map(|_| ());
    }
    let mut answers = vec![(error, heard.unwrap_err())];
    if version == Version::Tls13 {
        let files = authority.issue(&leaf_of(KeyKind::EcdsaP256, &["a.example"]));
        let config = Arc::new(crate::kit::rustls_server(&files));
        let mut server = rustls::ServerConnection::new(config).unwrap();
        let options = client_options(Verify::Roots(authority.roots()));
        let mut client = Handshake::connect(&self::client(options), "a.example").unwrap();
        let (mut hello, mut flight) = (Vec::new(), Vec::new());
        client.poll_output(&mut hello);
        server.read_tls(&mut &hello[..]).unwrap();
        server.process_new_packets().unwrap();
        server.write_tls(&mut flight).unwrap();
        let len = 5 + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
        client.on_bytes(&flight[..len]).unwrap();
        let error = client.on_bytes(record).unwrap_err();
        let mut output = Vec::new();
        client.poll_output(&mut output);
        server.read_tls(&mut &output[..]).unwrap();
        answers.push((error, server.process_new_packets().unwrap_err()));
    }
    answers
}

#[test]
fn what_may_not_come_amid_a_handshake_is_answered_at_once() {
    use rustls::AlertDescription as Code;
    for version in Version::ALL {
        for (record, error, alert) in [
            // A heartbeat, of which only the type is there.
            (&[24][..], HandshakeError::MessageUnexpected, Code::UnexpectedMessage),
            (&[24, 3, 3, 0x10, 0], HandshakeError::MessageUnexpected, Code::UnexpectedMessage),
            (b"GET /", HandshakeError::MessageUnexpected, Code::UnexpectedMessage),
            // Longer than any record.
            (&[23, 3, 3, 0x48, 0], HandshakeError::RecordTooLong, Code::RecordOverflow),
            (&[22, 3, 3, 0x40, 1], HandshakeError::RecordTooLong, Code::RecordOverflow),
        ] {
            for answer in answers(version, record) {
                let received = rustls::Error::AlertReceived(alert);
                assert_eq!(answer, (error.clone(), received), "{version} {record:?}");
            }
        }
    }
}

#[test]
fn records_that_were_changed_are_refused_on_both_sides() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    for version in Version::ALL {
        let mut accepting = server_options(&certificate);
        accepting.versions = version..=version;
        let accepting = server(accepting);
        let connecting = client(client_options(Verify::Roots(authority.roots())));
        for changed in 0..2 {
            let mut ends = [
                Handshake::connect(&connecting, "a.example").unwrap(),
                Handshake::accept(&accepting),
            ];
            let mut failure = None;
            'talk: for turn in 0..6 {
                let mut flight = Vec::new();
                ends[turn % 2].poll_output(&mut flight);
                // Not the hello, of which nothing is under a key.
                if turn >= 1 && turn % 2 == changed {
                    let middle = flight.len() / 2;
                    flight[middle] ^= 1;
                }
                if let Err(error) = ends[1 - turn % 2].on_bytes(&flight) {
                    failure = Some(error);
                    break 'talk;
                }
            }
            let error = failure.unwrap();
            // In TLS 1.2, the server's first flight is in the clear, and signed.
            assert!(!["internal", "unfinished"].contains(&error.word()), "{error}");
        }
    }
}
