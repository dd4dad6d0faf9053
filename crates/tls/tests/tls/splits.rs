//! Bytes that come in other pieces than they were sent in, and what stands behind a handshake.

use std::io::Write as _;
use std::sync::Arc;

use rustls::{ClientConnection, ServerConnection};
use tls::{ClientContext, Handshake, KeyKind, ServerContext, Verify, Version};

use crate::authority::{Authority, AuthorityExt as _, leaf_of};
use crate::kit::{
    End, Side, client, client_options, establish, rustls_client, rustls_server, server,
    server_options,
};

/// Contexts for one version.
fn contexts(version: Version) -> (Arc<ClientContext>, Arc<ServerContext>) {
    let authority = Authority::new("root");
    let mut accepting = server_options(&authority.certificate(KeyKind::EcdsaP256, &["a.example"]));
    accepting.versions = version..=version;
    let connecting = client_options(Verify::Roots(authority.roots()));
    (client(connecting), server(accepting))
}

#[test]
fn it_does_not_matter_how_bytes_are_cut() {
    for version in Version::ALL {
        let (connecting, accepting) = contexts(version);
        for piece_len in [1, 2, 3, 4, 5, 6, 7, 100, 1000] {
            let ours = Side::connect(&connecting, "a.example");
            let mut pair = establish(ours, Side::accept(&accepting), piece_len);
            assert_eq!(pair.client.facts().version, version);
            pair.chat();
        }
    }
}

#[test]
fn each_flight_can_be_cut_in_two_anywhere() {
    for version in Version::ALL {
        let (connecting, accepting) = contexts(version);
        // The first cut that cuts nothing is the last.
        for at in 1.. {
            let mut server = Handshake::accept(&accepting);
            let mut client = Handshake::connect(&connecting, "a.example").unwrap();
            let mut is_cut = false;
            while !(server.is_done() && client.is_done()) {
                is_cut |= deliver(&mut client, &mut server, at);
                is_cut |= deliver(&mut server, &mut client, at);
            }
            let mut rest = Vec::new();
            server.poll_output(&mut rest);
            client.poll_output(&mut rest);
            assert!(server.finish().is_ok() && client.finish().is_ok());
            if !is_cut {
                break;
            }
        }
    }
}

/// Brings a flight over in two pieces: whether there were two.
fn deliver(from: &mut Handshake, to: &mut Handshake, at: usize) -> bool {
    let mut flight = Vec::new();
    from.poll_output(&mut flight);
    let (piece, _) = flight.split_at(at.min(flight.len()));
    let consumed = to.on_bytes(piece).unwrap();
    assert!(consumed <= piece.len());
    let (_, rest) = flight.split_at(consumed);
    let consumed = to.on_bytes(rest).unwrap();
    assert!(to.is_done() || consumed == rest.len());
    at < flight.len()
}

#[test]
fn data_right_behind_the_clients_last_message_is_left_to_the_connection() {
    let authority = Authority::new("root");
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let accepting = server(server_options(&certificate));
    let config = Arc::new(rustls_client(&authority));
    let mut theirs = ClientConnection::new(config, "a.example".try_into().unwrap()).unwrap();
    let mut ours = Handshake::accept(&accepting);
    let data = vec![3; 50_000];
    while !ours.is_done() {
        let mut flight = Vec::new();
        if !theirs.is_handshaking() {
            theirs.writer().write_all(&data).unwrap();
        }
        while theirs.wants_write() {
            theirs.write_tls(&mut flight).unwrap();
        }
        let consumed = ours.on_bytes(&flight).unwrap();
        let mut answer = Vec::new();
        ours.poll_output(&mut answer);
        let mut rest = &answer[..];
        while !rest.is_empty() {
            theirs.read_tls(&mut rest).unwrap();
            theirs.process_new_packets().unwrap();
        }
        if ours.is_done() {
            let unread = flight.split_off(consumed);
            assert!(unread.len() > data.len());
            let established = Box::new(ours.finish().unwrap());
            let mut end = End::Ours { established, unread };
            assert_eq!(end.hear(&[]), data);
            return;
        }
    }
    unreachable!("the loop ends with the handshake");
}

#[test]
fn data_right_behind_the_servers_last_message_is_left_to_the_connection() {
    for version in Version::ALL {
        let authority = Authority::new("root");
        let files = authority.issue(&leaf_of(KeyKind::EcdsaP256, &["a.example"]));
        let mut config = rustls_server(&files);
        config.send_half_rtt_data = true;
        let mut theirs = ServerConnection::new(Arc::new(config)).unwrap();
        let mut options = client_options(Verify::Roots(authority.roots()));
        options.versions = version..=version;
        let mut ours = Handshake::connect(&client(options), "a.example").unwrap();
        theirs.writer().write_all(b"at once").unwrap();
        let mut unread = Vec::new();
        while !ours.is_done() {
            let mut flight = Vec::new();
            ours.poll_output(&mut flight);
            let mut rest = &flight[..];
            while !rest.is_empty() {
                theirs.read_tls(&mut rest).unwrap();
                theirs.process_new_packets().unwrap();
            }
            while theirs.wants_write() {
                theirs.write_tls(&mut unread).unwrap();
            }
            let consumed = ours.on_bytes(&unread).unwrap();
            unread.drain(..consumed);
        }
        assert!(!unread.is_empty());
        ours.poll_output(&mut Vec::new());
        let mut end = End::Ours { established: Box::new(ours.finish().unwrap()), unread };
        assert_eq!(end.hear(&[]), b"at once", "{version}");
    }
}

#[test]
fn handshakes_that_take_turns_on_a_thread_do_not_mix() {
    let (connecting, accepting) = contexts(Version::Tls13);
    let mut sides: Vec<(Handshake, Handshake)> = (0..8)
        .map(|_| {
            let client = Handshake::connect(&connecting, "a.example").unwrap();
            (client, Handshake::accept(&accepting))
        })
        .collect();
    for _ in 0..2 {
        for (client, server) in &mut sides {
            let mut flight = Vec::new();
            client.poll_output(&mut flight);
            server.on_bytes(&flight).unwrap();
        }
        for (client, server) in sides.iter_mut().rev() {
            let mut flight = Vec::new();
            server.poll_output(&mut flight);
            client.on_bytes(&flight).unwrap();
        }
    }
    for (mut client, server) in sides {
        client.poll_output(&mut Vec::new());
        // A traffic secret of another connection would be refused here.
        assert!(client.finish().is_ok() && server.finish().is_ok());
    }
}

#[test]
fn a_handshake_is_not_finished_before_its_end() {
    let (connecting, accepting) = contexts(Version::Tls13);
    let mut client = Handshake::connect(&connecting, "a.example").unwrap();
    let mut server = Handshake::accept(&accepting);
    let mut flight = Vec::new();
    client.poll_output(&mut flight);
    server.on_bytes(&flight).unwrap();
    assert!(!server.is_done());
    let error = server.finish().unwrap_err();
    assert_eq!((error.word(), error.alert()), ("unfinished", None));

    let mut server = Handshake::accept(&accepting);
    server.on_bytes(&flight).unwrap();
    let mut flight = Vec::new();
    server.poll_output(&mut flight);
    // A client whose handshake was renewed cannot go on with another's answer.
    let mut other = Handshake::connect(&connecting, "a.example").unwrap();
    assert!(other.on_bytes(&flight).is_err());
    // Its last output was not taken.
    let mut client = Handshake::connect(&connecting, "a.example").unwrap();
    let mut hello = Vec::new();
    client.poll_output(&mut hello);
    let mut server = Handshake::accept(&accepting);
    server.on_bytes(&hello).unwrap();
    let mut flight = Vec::new();
    server.poll_output(&mut flight);
    client.on_bytes(&flight).unwrap();
    assert!(client.is_done());
    assert_eq!(client.finish().unwrap_err().word(), "unfinished");
}
