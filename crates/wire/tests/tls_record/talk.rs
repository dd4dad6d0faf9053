//! Exchanges with rustls as the peer, while our side is saved and restored.

use proptest::collection::vec;
use proptest::prelude::*;
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ServerConnection, client::Resumption};
use wire::buffer::Buffer;
use wire::tls::record::{
    Cipher, FRAGMENT_LEN_MAX, Opened, Protocol, RecordLayer, SealError, Secrets, Sizing, Suite,
    TlsRole,
};

use super::checks::moved;
use super::kit::*;

fn text(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

fn tls13(cipher: Cipher) -> Suite {
    Suite { protocol: Protocol::Tls13, cipher }
}

#[test]
fn data_goes_both_ways_in_every_suite() {
    for (suite, role) in suites_and_roles() {
        for is_moved in [false, true] {
            let mut pair = Pair::new(suite, role);
            pair.is_moved = is_moved;
            for len in [1, 100, 1_369, 1_370, 16_384, 16_385, 100_000, 3] {
                pair.chat(&text(len));
            }
        }
    }
}

#[test]
fn no_cut_of_the_stream_changes_what_comes() {
    for (suite, role) in suites_and_roles() {
        let mut pair = Pair::new(suite, role);
        let stream =
            [pair.theirs_says(b"one"), pair.theirs_says(&text(60)), pair.theirs_says(b"3")]
                .concat();
        let expected = [b"one", &text(60)[..], b"3"].concat();
        // From the same beginning, each time.
        let start = postcard::to_stdvec(&pair.ours).unwrap();
        let early = std::mem::take(&mut pair.unread);
        let stream = [early, stream].concat();
        for cut in 0..=stream.len() {
            pair.ours = postcard::from_bytes(&start).unwrap();
            let (front, back) = stream.split_at(cut);
            let mut data = pair.ours_hears(front).unwrap();
            pair.ours = postcard::from_bytes(&postcard::to_stdvec(&pair.ours).unwrap()).unwrap();
            data.extend(pair.ours_hears(back).unwrap());
            assert_eq!(data, expected, "{suite:?} {role:?} {cut}");
            assert!(pair.unread.is_empty());
        }
        // And octet by octet.
        pair.ours = postcard::from_bytes(&start).unwrap();
        pair.is_moved = true;
        let octets = stream.iter().flat_map(|octet| pair.ours_hears(&[*octet]).unwrap());
        assert!(octets.eq(expected), "{suite:?} {role:?}");
    }
}

#[test]
fn keys_change_on_both_sides_before_and_after_a_move() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305] {
        for role in [TlsRole::Client, TlsRole::Server] {
            for is_moved in [false, true] {
                let mut pair = Pair::new(tls13(cipher), role);
                pair.is_moved = is_moved;
                for _ in 0..3 {
                    // Theirs, which asks for ours.
                    pair.theirs.refresh_traffic_keys().unwrap();
                    pair.chat(&text(5_000));
                    assert!(!pair.ours.has_control());
                    // Several requests have one answer.
                    pair.theirs.refresh_traffic_keys().unwrap();
                    pair.theirs.refresh_traffic_keys().unwrap();
                    pair.theirs.refresh_traffic_keys().unwrap();
                    let asked = pair.theirs_says(b"");
                    assert_eq!(pair.ours_hears(&asked).unwrap(), b"");
                    assert!(pair.ours.has_control());
                    let answer = pair.ours_says(b"");
                    assert_eq!(answer.len(), 5 + 5 + 1 + 16);
                    assert_eq!(pair.theirs_hears(&answer).unwrap(), b"");
                    pair.chat(b"goes on");
                }
            }
        }
    }
}

#[test]
fn tickets_are_handed_out() {
    for is_moved in [false, true] {
        let mut pair = Pair::new(tls13(Cipher::Aes128Gcm), TlsRole::Client);
        pair.is_moved = is_moved;
        pair.chat(b"hello");
        // As many as rustls sends.
        assert_eq!(pair.tickets.len(), 2);
        assert!(pair.tickets.iter().all(|ticket| ticket.len() > 32));
    }
}

#[test]
fn rustls_takes_the_tickets_and_resumes_with_them() {
    let suite = tls13(Cipher::Aes256Gcm);
    let key_log = std::sync::Arc::new(Secrets0::default());
    let mut config = (*client_config(suite, &key_log)).clone();
    config.resumption = Resumption::in_memory_sessions(4);
    let config = std::sync::Arc::new(config);
    let server_config = server_config(suite, &key_log);
    let mut server = ServerConnection::new(server_config.clone()).unwrap();
    let client = UnbufferedClientConnection::new(config.clone(), name()).unwrap();

    let (client, mut unread) = shake_hands(client, &mut server);
    let (extracted, mut kernel) = client.dangerous_into_kernel_connection().unwrap();
    let (receive_secret, send_secret) = (key_log.find(SERVER), key_log.find(CLIENT));
    let secrets = Secrets {
        suite,
        receive: direction(suite, &extracted.rx, &receive_secret),
        send: direction(suite, &extracted.tx, &send_secret),
    };
    let mut layer = RecordLayer::new(TlsRole::Client, &secrets, Sizing::Full).unwrap();
    let mut rest = &mut unread[..];
    let mut tickets = 0;
    loop {
        let (n, opened) = layer.open(rest).unwrap();
        match opened {
            Opened::Ticket(ticket) => kernel.handle_new_session_ticket(&ticket).unwrap(),
            Opened::NeedMore { .. } => break,
            other => panic!("{other:?}"),
        }
        tickets += 1;
        rest = &mut rest[n..];
    }
    assert_eq!(tickets, 2);

    let mut server = ServerConnection::new(server_config).unwrap();
    let again = UnbufferedClientConnection::new(config, name()).unwrap();
    shake_hands(again, &mut server);
    assert_eq!(server.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

/// Up to the end of a handshake: the client, and what came behind it.
fn shake_hands(
    mut client: UnbufferedClientConnection,
    server: &mut ServerConnection,
) -> (UnbufferedClientConnection, Vec<u8>) {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    loop {
        let UnbufferedStatus { discard, state } = client.process_tls_records(&mut to_client);
        let mut is_done = false;
        match state.unwrap() {
            ConnectionState::EncodeTlsData(mut state) => {
                let Err(EncodeError::InsufficientSize(needed)) = state.encode(&mut []) else {
                    unreachable!("it needs room");
                };
                let mut room = vec![0; needed.required_size];
                let n = state.encode(&mut room).unwrap();
                to_server.extend_from_slice(&room[..n]);
            }
            ConnectionState::TransmitTlsData(state) => {
                state.done();
                let mut rest = &to_server[..];
                while !rest.is_empty() {
                    server.read_tls(&mut rest).unwrap();
                    server.process_new_packets().unwrap();
                }
                to_server.clear();
            }
            ConnectionState::BlockedHandshake => {}
            ConnectionState::WriteTraffic(_) => is_done = true,
            other => panic!("{other:?}"),
        }
        to_client.drain(..discard);
        if is_done {
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
            return (client, to_client);
        }
        // A flight at a time: nothing comes behind the handshake before it is over.
        if to_client.is_empty() && server.is_handshaking() {
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
        }
    }
}

#[test]
fn either_side_ends_and_the_other_goes_on() {
    for (suite, role) in suites_and_roles() {
        let mut pair = Pair::new(suite, role);
        pair.is_moved = true;
        pair.theirs.send_close_notify();
        let said = pair.theirs_says(b"");
        assert_eq!(pair.ours_hears(&said).unwrap(), b"");
        assert!(pair.ours.is_ended() && pair.ours.is_open_for_data());
        assert_eq!(pair.ours_hears(b"whatever follows").unwrap(), b"");
        let said = pair.ours_says(b"still");
        assert_eq!(pair.theirs_hears(&said).unwrap(), b"still");

        let mut pair = Pair::new(suite, role);
        pair.is_moved = true;
        pair.ours.send_close();
        pair.ours.send_close();
        let mut out = Buffer::new(100);
        assert_eq!(pair.ours.seal(&[b"more"], &mut out), Err(SealError::Closed));
        assert!(!pair.ours.has_control(), "the end is said all the same");
        pair.theirs.read_tls(&mut out.filled()).unwrap();
        assert!(pair.theirs.process_new_packets().unwrap().peer_has_closed());
        let said = pair.theirs_says(b"still");
        assert_eq!(pair.ours_hears(&said).unwrap(), b"still");
        assert_eq!(pair.ours.sealed_len(0), 0);
    }
}

#[test]
fn idle_connections_hold_no_contexts() {
    let mut pair = Pair::new(tls13(Cipher::Aes128Gcm), TlsRole::Server);
    assert!(!pair.ours.has_contexts());
    pair.chat(b"a");
    assert!(pair.ours.has_contexts());
    pair.ours.release_contexts();
    assert!(!pair.ours.has_contexts());
    pair.chat(b"b");
    pair.ours.on_idle();
    assert!(!pair.ours.has_contexts());
    pair.chat(b"c");
}

#[test]
fn records_are_small_at_first_and_after_a_pause() {
    for (suite, role) in suites_and_roles() {
        let mut pair = Pair::new(suite, role);
        let lens = |said: &[u8]| {
            let mut lens = Vec::new();
            let mut rest = said;
            while let [_, _, _, high, low, ..] = *rest {
                let len = 5 + usize::from(u16::from_be_bytes([high, low]));
                lens.push(len);
                rest = &rest[len..];
            }
            lens
        };
        let said = pair.ours_says(&text(200_000));
        let before = lens(&said);
        assert!(before[..48].iter().all(|len| (1_390..=1_398).contains(len)), "{before:?}");
        assert!(before[48..55].iter().all(|len| *len > FRAGMENT_LEN_MAX), "{before:?}");
        pair.theirs_hears(&said).unwrap();
        pair.ours.on_idle();
        let said = pair.ours_says(&text(2_000));
        assert_eq!(lens(&said).len(), 2);
        pair.theirs_hears(&said).unwrap();
        let full = Pair::with(suite, role, Sizing::Full).ours_says(&text(20_000));
        assert_eq!(lens(&full).len(), 2);
    }
}

#[test]
fn short_rooms_are_filled_with_whole_records() {
    let suite = tls13(Cipher::Aes128Gcm);
    let mut pair = Pair::with(suite, TlsRole::Server, Sizing::Full);
    for (room, data_len, taken) in [
        (0, 10, 0),
        (22, 10, 0),
        (23, 10, 1),
        (32, 10, 10),
        (1_000, 5_000, 978),
        (32 << 10, 40_000, 16_384 + 16_340),
        (20_000, 40_000, 16_384),
        (40_000, 20_000, 20_000),
    ] {
        let mut out = Buffer::new(room);
        let data = text(data_len);
        let sealed = pair.ours.seal(&[&data[..data_len / 2], &data[data_len / 2..]], &mut out);
        let sealed = sealed.unwrap();
        assert_eq!((sealed.taken, sealed.written), (taken, out.len()), "{room} {data_len}");
        assert!(pair.theirs_hears(out.filled()).unwrap() == data[..taken]);
    }
}

/// An action of one side.
#[derive(Clone, Debug)]
enum Turn {
    Ours { lens: Vec<usize>, room: usize },
    Theirs { len: usize, piece_len: usize },
    TheirKeys,
    Move,
    Idle,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let len = || prop_oneof![0..20usize, 1_300..1_400usize, 0..40_000usize];
    let turn = prop_oneof![
        (vec(len(), 0..5), 30..70_000usize).prop_map(|(lens, room)| Turn::Ours { lens, room }),
        (len(), 1..20_000usize).prop_map(|(len, piece_len)| Turn::Theirs { len, piece_len }),
        Just(Turn::TheirKeys),
        Just(Turn::Move),
        Just(Turn::Idle),
    ];
    vec(turn, 1..15)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_said_arrives(suite in 0..6usize, is_client in any::<bool>(), turns in turns()) {
        let suite = suites()[suite];
        let mut pair = Pair::new(suite, if is_client { TlsRole::Client } else { TlsRole::Server });
        for turn in turns {
            match turn {
                Turn::Ours { lens, room } => {
                    let data = text(lens.iter().sum());
                    let mut rest = &data[..];
                    let mut pieces = Vec::new();
                    for len in lens {
                        let (piece, behind) = rest.split_at(len);
                        pieces.push(piece);
                        rest = behind;
                    }
                    let mut heard = Vec::new();
                    let mut out = Buffer::new(room);
                    while heard.len() < data.len() {
                        let mut left: Vec<&[u8]> = Vec::new();
                        let mut skip = heard.len();
                        for piece in &pieces {
                            let n = skip.min(piece.len());
                            left.push(&piece[n..]);
                            skip -= n;
                        }
                        let sealed = pair.ours.seal(&left, &mut out).unwrap();
                        prop_assert!(sealed.taken > 0 && sealed.written == out.len());
                        heard.extend(pair.theirs_hears(out.filled()).unwrap());
                        out.clear();
                    }
                    prop_assert!(heard == data);
                }
                Turn::Theirs { len, piece_len } => {
                    let data = text(len);
                    let said = pair.theirs_says(&data);
                    let mut heard = Vec::new();
                    for piece in said.chunks(piece_len) {
                        heard.extend(pair.ours_hears(piece).unwrap());
                    }
                    prop_assert!(heard == data);
                }
                Turn::TheirKeys => {
                    let _ = pair.theirs.refresh_traffic_keys();
                }
                Turn::Move => pair = Pair { ours: moved(pair.ours), ..pair },
                Turn::Idle => pair.ours.on_idle(),
            }
        }
    }
}
