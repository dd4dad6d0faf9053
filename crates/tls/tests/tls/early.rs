//! Data that clients send along with their hello, and what becomes of it.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::client::Resumption as ClientResumption;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use tls::{
    EARLY_DATA_BYTES_MAX, EarlyHandshake, EarlySessions, Established, Group, Handshake,
    HandshakeError, KeyKind, Resumption, ServerContext,
};
use wire::buffer::Buffer;
use wire::tls::record::Opened;

use crate::authority::{Authority, AuthorityExt as _};
use crate::kit::{rustls_client, server, server_options};

/// A server that takes early data, and a client that sends some.
fn both(authority: &Authority) -> (Arc<ServerContext>, Arc<ClientConfig>) {
    let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
    let mut options = server_options(&certificate);
    options.resumption = Resumption::EarlyData(EarlySessions::default());
    let mut config = rustls_client(authority);
    config.enable_early_data = true;
    config.resumption = ClientResumption::in_memory_sessions(8);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    (server(options), Arc::new(config))
}

/// A client's connection, with bytes on the way to it and from it.
struct Client {
    connection: ClientConnection,
    heard: Vec<u8>,
}

impl Client {
    /// Says hello, and `early` behind it if it may.
    fn new(config: &Arc<ClientConfig>, early: &[u8]) -> Self {
        let name = "a.example".try_into().unwrap();
        let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        if let Some(mut writer) = connection.early_data() {
            writer.write_all(early).unwrap();
        }
        Self { connection, heard: Vec::new() }
    }

    fn says(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn hears(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).unwrap();
            self.connection.process_new_packets().unwrap();
            let _would_block = self.connection.reader().read_to_end(&mut self.heard);
        }
    }
}

fn polled(handshake: &mut Handshake) -> Vec<u8> {
    let mut out = Vec::new();
    handshake.poll_output(&mut out);
    out
}

/// The records of a server that sends this.
fn sealed(established: &mut Established, data: &[u8]) -> Vec<u8> {
    let mut out = Buffer::new(established.records.sealed_len(data.len()));
    established.records.seal(&[data], &mut out).unwrap();
    out.filled().to_vec()
}

/// Comes for the first time, or without early data: the server's side, once it is done.
fn come(context: &Arc<ServerContext>, client: &mut Client) -> Established {
    let mut handshake = Handshake::accept(context);
    let mut unread = Vec::new();
    while !handshake.is_done() {
        unread.extend(client.says());
        let n = handshake.on_bytes(&unread).unwrap();
        unread.drain(..n);
        assert!(!handshake.may_begin_early());
        client.hears(&polled(&mut handshake));
    }
    let mut established = handshake.finish().unwrap();
    client.hears(&sealed(&mut established, b"first"));
    established
}

/// Takes the hello of a client that comes back with early data.
fn begin(context: &Arc<ServerContext>, hello: &[u8]) -> (Established, EarlyHandshake, Vec<u8>) {
    let mut handshake = Handshake::accept(context);
    assert_eq!(handshake.on_bytes(hello).unwrap(), hello.len());
    assert!(handshake.may_begin_early());
    let flight = polled(&mut handshake);
    let (established, early) = handshake.into_early().unwrap();
    (established, early, flight)
}

#[test]
fn a_client_that_comes_back_is_answered_before_it_has_finished() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    come(&context, &mut Client::new(&config, b""));
    // The ticket of a connection that began early is as good as that of another.
    for _ in 0..3 {
        let mut client = Client::new(&config, b"GET /");
        let (mut established, mut early, mut flight) = begin(&context, &client.says());
        assert!(established.facts.is_resumed);
        assert_eq!(established.facts.server_name.as_deref(), Some("a.example"));
        let mut data = Vec::new();
        assert_eq!(early.on_bytes(&[], &mut data), Ok(0));
        assert_eq!(data, b"GET /");
        assert!(!early.is_done());

        flight.extend(sealed(&mut established, b"answer"));
        client.hears(&flight);
        assert_eq!(client.heard, b"answer");
        assert!(client.connection.is_early_data_accepted());
        assert_eq!(client.connection.handshake_kind(), Some(HandshakeKind::Resumed));

        // It goes on with early data until it knows, and then with its Finished and data.
        client.connection.writer().write_all(b"more").unwrap();
        let rest = client.says();
        let (mut at, mut unread) = (0, Vec::new());
        for piece in rest.chunks(7) {
            unread.extend_from_slice(piece);
            let n = early.on_bytes(&unread, &mut data).unwrap();
            unread.drain(..n);
            at += n;
        }
        assert!(early.is_done() && at < rest.len());
        assert_eq!(data, b"GET /");
        let (_, opened) = established.records.open(&mut unread).unwrap();
        assert!(matches!(opened, Opened::Data { bytes: b"more", .. }), "{opened:?}");

        let tickets = early.into_tickets();
        assert_eq!(tickets.len(), 1);
        for ticket in &tickets {
            let mut out = Buffer::new(established.records.ticket_len(ticket));
            assert!(established.records.send_ticket(ticket, &mut out));
            client.hears(out.filled());
        }
        client.hears(&sealed(&mut established, b" and more"));
        assert_eq!(client.heard, b"answer and more");
    }
}

#[test]
fn a_hello_that_was_sent_again_gets_nothing_done() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    come(&context, &mut Client::new(&config, b""));
    let hello = Client::new(&config, b"GET /").says();
    drop(begin(&context, &hello));
    let mut again = Handshake::accept(&context);
    assert_eq!(again.on_bytes(&hello).unwrap(), hello.len());
    assert!(!again.may_begin_early());
    polled(&mut again);
    assert_eq!(again.into_early().err(), Some(HandshakeError::Unfinished));
}

#[test]
fn a_server_that_does_not_remember_reads_over_early_data() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    come(&context, &mut Client::new(&config, b""));
    let (other, _) = both(&authority);
    let mut client = Client::new(&config, b"GET /");
    let mut established = come(&other, &mut client);
    assert!(!established.facts.is_resumed && !client.connection.is_early_data_accepted());
    let mut said = {
        client.connection.writer().write_all(b"GET / again").unwrap();
        client.says()
    };
    let (_, opened) = established.records.open(&mut said).unwrap();
    assert!(matches!(opened, Opened::Data { bytes: b"GET / again", .. }), "{opened:?}");
}

/// Goes on with a handshake in which early data is refused, with `more` behind the early data: how the
/// server takes it, and what the client hears.
fn refuse(
    context: &Arc<ServerContext>,
    client: &mut Client,
    more: &[u8],
) -> (Result<Established, HandshakeError>, Result<(), rustls::Error>) {
    let mut handshake = Handshake::accept(context);
    let mut unread = [&client.says(), more].concat();
    let mut heard = Ok(());
    loop {
        let result = handshake.on_bytes(&unread);
        let output = polled(&mut handshake);
        let mut rest = &output[..];
        while !rest.is_empty() && heard.is_ok() {
            client.connection.read_tls(&mut rest).unwrap();
            heard = client.connection.process_new_packets().map(|_| ());
        }
        match result {
            Err(error) => return (Err(error), heard),
            Ok(_) if handshake.is_done() => return (handshake.finish(), heard),
            Ok(n) => drop(unread.drain(..n)),
        }
        assert!(!handshake.may_begin_early());
        let said = client.says();
        assert!(!said.is_empty() || !output.is_empty(), "the handshake is stuck");
        unread.extend(said);
    }
}

/// Servers that refuse the early data of a client that was at another: one that takes early data of
/// others, one that takes none, and one that asks for another hello first.
fn refusing(authority: &Authority) -> [Arc<ServerContext>; 3] {
    [
        (Resumption::EarlyData(EarlySessions::default()), Group::X25519),
        (Resumption::Tickets, Group::X25519),
        (Resumption::Tickets, Group::Secp384r1),
    ]
    .map(|(resumption, group)| {
        let certificate = authority.certificate(KeyKind::EcdsaP256, &["a.example"]);
        let mut options = server_options(&certificate);
        options.resumption = resumption;
        options.groups = vec![group];
        server(options)
    })
}

#[test]
fn refused_early_data_is_skipped_up_to_what_was_announced() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    for refusing in refusing(&authority) {
        for (len, record_len) in [
            (8_200, None),
            (3_500, Some(512)),
            (16_384, None),
            (16_384, Some(512)),
            (16_384, Some(64)),
        ] {
            let mut config = ClientConfig::clone(&config);
            config.max_fragment_size = record_len;
            let config = Arc::new(config);
            come(&context, &mut Client::new(&config, b""));
            let mut client = Client::new(&config, &vec![b'x'; len]);
            let (result, heard) = refuse(&refusing, &mut client, b"");
            assert_eq!(heard, Ok(()), "{len} {record_len:?}");
            assert!(
                !result.unwrap().facts.is_resumed && !client.connection.is_early_data_accepted()
            );
        }
    }
}

#[test]
fn more_early_data_than_announced_is_answered_with_an_alert() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    for refusing in refusing(&authority) {
        come(&context, &mut Client::new(&config, b""));
        let mut client = Client::new(&config, &[b'x'; 16_384]);
        // One more octet, sealed with whatever.
        let more = [&[23, 3, 3, 0, 18][..], &[7; 18]].concat();
        let (result, heard) = refuse(&refusing, &mut client, &more);
        assert_eq!(result.err(), Some(HandshakeError::MessageUnexpected));
        let alert = rustls::AlertDescription::UnexpectedMessage;
        assert_eq!(heard, Err(rustls::Error::AlertReceived(alert)));
    }
}

#[test]
fn without_an_offer_of_early_data_nothing_is_skipped() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    let mut client = Client::new(&config, b"");
    let more = [&[23, 3, 3, 0, 40][..], &[7; 40]].concat();
    let (result, heard) = refuse(&context, &mut client, &more);
    assert_eq!(result.err(), Some(HandshakeError::BadRecord));
    let alert = rustls::AlertDescription::BadRecordMac;
    assert_eq!(heard, Err(rustls::Error::AlertReceived(alert)));
}

#[test]
fn nothing_is_taken_from_a_client_that_does_not_finish_well() {
    let authority = Authority::new("root");
    let (context, config) = both(&authority);
    let too_much = vec![b'x'; EARLY_DATA_BYTES_MAX as usize];
    for (early, is_whole) in [(&b"GET /"[..], true), (&too_much, true), (&too_much, false)] {
        come(&context, &mut Client::new(&config, b""));
        let mut client = Client::new(&config, early);
        let said = client.says();
        let (_, mut rest, flight) = begin(&context, &said);
        let mut data = Vec::new();
        rest.on_bytes(&[], &mut data).unwrap();
        assert_eq!(data, early);
        let mut last = match is_whole {
            true => {
                client.hears(&flight);
                client.says()
            }
            // A record of what it said already, so that there is more than is allowed.
            false => said[said.len() - 1_000..].to_vec(),
        };
        *last.last_mut().unwrap() ^= 1;
        let error = rest.on_bytes(&last, &mut data).unwrap_err();
        assert!(!rest.is_done(), "{error}");
        assert_eq!(data, early);
    }
}
