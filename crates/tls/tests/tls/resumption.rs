//! Connections that go on from earlier ones.

use std::sync::Arc;

use tls::{
    ClientAuth, ClientContext, HandshakeError, HandshakeFacts, KeyKind, Resumption, Roots,
    ServerContext, SharedTickets, TicketKey, Verify, Version,
};

use crate::authority::{Authority, AuthorityExt as _, HOUR, PairExt as _, leaf_of};
use crate::kit::{End, Side, client, client_options, establish, server, server_options, talk};

/// Connects, sends data each way, and returns what the server negotiated.
fn visit(connecting: &Arc<ClientContext>, accepting: &Arc<ServerContext>) -> HandshakeFacts {
    let ours = Side::connect(connecting, "a.example");
    let mut pair = establish(ours, Side::accept(accepting), usize::MAX);
    pair.chat();
    assert_eq!(pair.client.facts().is_resumed, pair.server.facts().is_resumed);
    assert!(pair.client.facts().peer.is_some());
    pair.server.facts().clone()
}

#[test]
fn a_client_that_comes_back_is_known() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    for version in Version::ALL {
        let mut accepting = server_options(&certificate);
        accepting.versions = version..=version;
        let accepting = server(accepting);
        let connecting = client(client_options(Verify::Roots(authority.roots())));
        assert!(!visit(&connecting, &accepting).is_resumed);
        for _ in 0..3 {
            let facts = visit(&connecting, &accepting);
            assert!(facts.is_resumed, "{version}");
            assert_eq!(facts.server_name.as_deref(), Some("a.example"));
        }
    }
}

#[test]
fn a_server_without_tickets_knows_nobody() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    for version in Version::ALL {
        let mut accepting = server_options(&certificate);
        accepting.versions = version..=version;
        accepting.resumption = Resumption::Off;
        let accepting = server(accepting);
        let connecting = client(client_options(Verify::Roots(authority.roots())));
        for _ in 0..3 {
            assert!(!visit(&connecting, &accepting).is_resumed, "{version}");
        }
    }
}

#[test]
fn tickets_are_good_for_their_context_only() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let connecting = client(client_options(Verify::Roots(authority.roots())));
    let open = server(server_options(&certificate));
    assert!(!visit(&connecting, &open).is_resumed);
    let mut options = server_options(&certificate);
    options.client_auth = ClientAuth::Required(authority.roots());
    let mut ours = Side::connect(&connecting, "a.example");
    let (_, result) = talk(&mut ours, &mut Side::accept(&server(options)), usize::MAX);
    assert_eq!(result.unwrap_err().ours(), HandshakeError::CertificateRequired);
}

#[test]
fn who_a_client_is_stays_known() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    for version in Version::ALL {
        let mut accepting = server_options(&certificate);
        accepting.versions = version..=version;
        accepting.client_auth = ClientAuth::Required(authority.roots());
        let accepting = server(accepting);
        let mut connecting = client_options(Verify::Roots(authority.roots()));
        connecting.certificate =
            Some(authority.certificate(KeyKind::EcdsaP256, &["spiffe://example/b"]));
        let connecting = client(connecting);
        let first = visit(&connecting, &accepting);
        let second = visit(&connecting, &accepting);
        assert!(!first.is_resumed && second.is_resumed);
        assert!(second.peer.is_some());
        assert_eq!(first.peer, second.peer);
    }
}

#[test]
fn a_client_that_would_not_be_let_in_now_is_not_let_in_by_its_ticket() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let listed = |seconds| {
        let roots = Roots::from_pem(authority.pem().as_bytes()).unwrap();
        let list = authority.revocations(&[], seconds);
        Arc::new(roots.with_revocations(list.as_bytes()).unwrap())
    };
    let mut cases = Vec::new();
    for version in Version::ALL {
        for (roots, seconds, word) in [
            (authority.roots(), 2, Some("certificate_expired")),
            // The list of revoked certificates has expired.
            (listed(2), HOUR, Some("certificate_revocation_unknown")),
            (listed(HOUR), HOUR, None),
        ] {
            let mut accepting = server_options(&certificate);
            accepting.versions = version..=version;
            accepting.client_auth = ClientAuth::Required(roots);
            let mut connecting = client_options(Verify::Roots(authority.roots()));
            let mut leaf = leaf_of(KeyKind::EcdsaP256, &["spiffe://example/b"]);
            leaf.validity.end = seconds;
            connecting.certificate = Some(authority.issue(&leaf).certificate());
            let (connecting, accepting) = (client(connecting), server(accepting));
            visit(&connecting, &accepting);
            cases.push((connecting, accepting, word));
        }
    }
    let begin = crate::authority::now();
    while crate::authority::now() < begin + 4 {
        std::hint::spin_loop();
    }
    for (connecting, accepting, word) in cases {
        let Some(word) = word else {
            assert!(visit(&connecting, &accepting).is_resumed);
            continue;
        };
        let mut ours = Side::connect(&connecting, "a.example");
        let mut theirs = Side::accept(&accepting);
        let (received, result) = talk(&mut ours, &mut theirs, usize::MAX);
        let error = result.unwrap_err().ours();
        assert_eq!(error.word(), word);
        assert_eq!(received, Ok(()));
        // The client's side was done before, so that it is its connection that hears of it.
        let Ok(End::Ours { mut established, mut unread }) = ours.finish() else { panic!("ours") };
        let heard = loop {
            match established.records.open(&mut unread) {
                Ok((0, _)) => panic!("nothing was said"),
                Ok((n, _)) => drop(unread.drain(..n)),
                Err(error) => break error,
            }
        };
        let alert = error.alert().unwrap().code();
        assert_eq!(heard, wire::tls::record::RecordError::AlertReceived(alert));
    }
}

#[test]
fn contexts_that_share_keys_take_each_others_tickets() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let context = |keys: &[u8], scope: u8| {
        let mut options = server_options(&certificate);
        let keys = keys.iter().map(|byte| Arc::new(TicketKey::new(&[*byte; 80]).unwrap()));
        let shared = SharedTickets { keys: keys.collect(), scope: [scope; 32] };
        options.resumption = Resumption::SharedTickets(shared);
        server(options)
    };
    let first = context(&[1], 0);
    for (second, is_resumed) in [
        (context(&[1], 0), true),
        (context(&[2, 1], 0), true),
        (context(&[2], 0), false),
        (context(&[1], 1), false),
    ] {
        for version in Version::ALL {
            let mut options = client_options(Verify::Roots(authority.roots()));
            options.versions = version..=version;
            let client = client(options);
            assert!(!visit(&client, &first).is_resumed);
            assert_eq!(visit(&client, &second).is_resumed, is_resumed, "{version}");
        }
    }
}
