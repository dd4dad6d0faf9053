//! A client and a server of ours with each other, over random scripts; and HPACK with another's.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::h1::{Scan, decode_request};
use wire::h2::{Element, ErrorCode, Http2, Limits, RequestForm, Scheme, trailers_len_max};
use wire::head::HeadIndex;

use super::kit::*;

#[path = "../checks/hpack.rs"]
mod hpack;

/// The next action of one side.
#[derive(Clone, Debug)]
enum Act {
    /// The client asks, with a body or not.
    Ask { fields: Vec<(String, String)>, has_body: bool },
    /// The server answers one of the requests that it knows.
    Answer { which: usize, interim: bool, fields: Vec<(String, String)> },
    /// One of both sends so much of a body, if it may, and perhaps ends it.
    Data { from_client: bool, which: usize, len: usize, is_end: bool },
    /// One of both ends a body with trailers.
    Trailers { from_client: bool, which: usize },
    /// One of both resets a stream.
    Reset { from_client: bool, which: usize },
    /// So much of what was sent arrives, in each direction.
    Arrive { bytes: usize },
    /// One of both moves to another process.
    Move { client: bool },
}

fn act() -> impl Strategy<Value = Act> {
    let name = prop_oneof![Just("x-a".to_owned()), Just("user-agent".to_owned()), "x-[a-f]{1,9}"];
    let fields = vec((name, "[ -~]{0,3}[a-z=;]{1,40}"), 0..6).prop_map(|fields| {
        fields.into_iter().map(|(name, value)| (name, value.trim().to_owned())).collect()
    });
    let which = 0usize..4;
    prop_oneof![
        4 => (fields.clone(), any::<bool>())
            .prop_map(|(fields, has_body)| Act::Ask { fields, has_body }),
        4 => (which.clone(), prop::bool::weighted(0.2), fields)
            .prop_map(|(which, interim, fields)| Act::Answer { which, interim, fields }),
        6 => (any::<bool>(), which.clone(), 0usize..200, prop::bool::weighted(0.3)).prop_map(
            |(from_client, which, len, is_end)| Act::Data { from_client, which, len, is_end }
        ),
        1 => (any::<bool>(), which.clone())
            .prop_map(|(from_client, which)| Act::Trailers { from_client, which }),
        1 => (any::<bool>(), which)
            .prop_map(|(from_client, which)| Act::Reset { from_client, which }),
        6 => (0usize..300).prop_map(|bytes| Act::Arrive { bytes }),
        1 => any::<bool>().prop_map(|client| Act::Move { client }),
    ]
}

/// What was said on a stream in one direction: text, and whether it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    text: String,
    is_over: bool,
}

/// One side, what it sent, and what it received.
struct Party {
    side: Side,
    sent: BTreeMap<u32, Message>,
    received: BTreeMap<u32, Message>,
    /// Streams that are not compared, because one side reset them.
    broken: Vec<u32>,
    /// Bytes on their way to this side.
    wire: Vec<u8>,
    unread: Vec<u8>,
}

impl Party {
    fn new(h2: Http2, limits: Limits) -> Self {
        Self {
            side: Side::new(h2, limits),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            broken: Vec::new(),
            wire: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn stream(&self, which: usize) -> Option<u32> {
        let open: Vec<u32> = self.side.h2.streams().collect();
        open.get(which % open.len().max(1)).copied()
    }

    fn on_sent(&mut self, stream: u32, text: &str, is_over: bool) {
        let message = self.sent.entry(stream).or_default();
        message.text.push_str(text);
        message.is_over |= is_over;
    }

    /// Takes in the first `n` bytes of what is on its way.
    fn arrive(&mut self, n: usize) {
        let n = n.min(self.wire.len());
        self.unread.extend(self.wire.drain(..n));
        let unread = std::mem::take(&mut self.unread);
        let mut at = 0;
        loop {
            let Side { h2, limits, scratch, .. } = &mut self.side;
            let (n, element) = h2.decode(&unread[at..], limits, scratch).expect("valid frames");
            at += n;
            let (stream, text, is_over) = match element {
                Element::NeedMore => break,
                Element::Request { stream, head, is_end } => {
                    (stream, fields_text(head.iter()), is_end)
                }
                Element::Response { stream, head, is_end } => {
                    (stream, fields_text(head.iter()), is_end)
                }
                Element::Interim { stream, head } => (stream, fields_text(head.iter()), false),
                Element::Data { stream, bytes, is_end } => {
                    h2.on_taken(stream, bytes.len());
                    (stream, String::from_utf8(bytes.to_vec()).unwrap(), is_end)
                }
                Element::End { stream } => (stream, String::new(), true),
                Element::Trailers { stream, section } => {
                    (stream, String::from_utf8(section.to_vec()).unwrap(), true)
                }
                Element::Reset { stream, .. } => {
                    self.broken.push(stream);
                    continue;
                }
                Element::SettingsChanged | Element::WindowOpened { .. } => continue,
                other => panic!("{other:?}"),
            };
            let message = self.received.entry(stream).or_default();
            message.text.push_str(&text);
            message.is_over |= is_over;
        }
        self.unread = unread[at..].to_vec();
    }
}

fn fields_text<'h>(fields: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields = fields.filter(|(name, _)| *name != b"host");
    fields.map(|(name, value)| format!("{}: {}\r\n", text(name), text(value))).collect()
}

fn lines_of(fields: &[(String, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

const TRAILERS: &str = "x-checksum: 1\r\ngrpc-status: 0\r\n";

/// Runs a script between two parties and lets everything arrive.
fn play(acts: &[Act], limits: Limits) -> (Party, Party) {
    let mut client = Party::new(Http2::client(&limits), limits);
    let mut server = Party::new(Http2::server(&limits), limits);
    for act in acts {
        perform(act, &mut client, &mut server);
        flush(&mut client, &mut server);
        flush(&mut server, &mut client);
    }
    while !client.wire.is_empty() || !server.wire.is_empty() {
        client.arrive(usize::MAX);
        server.arrive(usize::MAX);
        flush(&mut client, &mut server);
        flush(&mut server, &mut client);
    }
    (client, server)
}

fn flush(from: &mut Party, to: &mut Party) {
    to.wire.extend(from.side.said_bytes());
}

fn perform(act: &Act, client: &mut Party, server: &mut Party) {
    match act {
        Act::Ask { fields, has_body } => {
            let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", lines_of(fields));
            let mut index = HeadIndex::default();
            let side = &mut client.side;
            let head = &side.limits.head;
            let head = decode_request(text.as_bytes(), &mut Scan::default(), head, &mut index);
            let (head, _) = head.unwrap().unwrap();
            // What is about the connection comes first.
            side.h2.send_control(&mut side.out);
            let form = RequestForm::Same;
            let stream = side.h2.send_request(&head, Scheme::Https, form, !has_body, &mut side.out);
            if let Some(stream) = stream {
                client.on_sent(stream, &lines_of(fields), !has_body);
            }
        }
        Act::Answer { which, interim, fields } => {
            let Some(stream) = server.stream(*which) else { return };
            let side = &mut server.side;
            side.h2.send_control(&mut side.out);
            let parts: Vec<(&[u8], &[u8])> =
                fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            let status = if *interim { 103 } else { 200 };
            if side.h2.send_reply(stream, status, &parts, None, false, &mut side.out) {
                server.on_sent(stream, &lines_of(fields), false);
            }
        }
        Act::Data { from_client, which, len, is_end } => {
            let party = if *from_client { client } else { server };
            let Some(stream) = party.stream(*which) else { return };
            let side = &mut party.side;
            side.h2.send_control(&mut side.out);
            let text = "d".repeat(side.h2.sendable(stream).min(*len));
            if side.send_data(stream, text.as_bytes(), *is_end) {
                party.on_sent(stream, &text, *is_end);
            }
        }
        Act::Trailers { from_client, which } => {
            let party = if *from_client { client } else { server };
            let Some(stream) = party.stream(*which) else { return };
            let side = &mut party.side;
            side.h2.send_control(&mut side.out);
            let before = side.out.len();
            if side.h2.send_trailers(stream, TRAILERS.as_bytes(), &mut side.out) {
                assert!(side.out.len() - before <= trailers_len_max(TRAILERS.as_bytes()));
                party.on_sent(stream, TRAILERS, true);
            }
        }
        Act::Reset { from_client, which } => {
            let party = if *from_client { client } else { server };
            let Some(stream) = party.stream(*which) else { return };
            party.side.h2.reset(stream, ErrorCode::CANCEL);
            party.broken.push(stream);
        }
        Act::Arrive { bytes } => {
            server.arrive(*bytes);
            client.arrive(*bytes);
        }
        Act::Move { client: true } => client.side.h2 = saved(&client.side.h2),
        Act::Move { client: false } => server.side.h2 = saved(&server.side.h2),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_one_says_the_other_hears(acts in vec(act(), 0..60), is_tight in any::<bool>()) {
        let tight = Limits {
            header_table_bytes_max: 150,
            streams_max: 3,
            stream_window_bytes_max: 70,
            connection_window_bytes_max: 0,
            ..Limits::default()
        };
        let limits = if is_tight { tight } else { Limits::default() };
        let (client, server) = play(&acts, limits);
        let broken = [&client.broken[..], &server.broken].concat();
        for (from, to) in [(&client, &server), (&server, &client)] {
            for (stream, sent) in &from.sent {
                if broken.contains(stream) {
                    continue;
                }
                let received = to.received.get(stream).cloned().unwrap_or_default();
                prop_assert_eq!(&received, sent, "stream {}", stream);
            }
            prop_assert!(to.received.len() <= from.sent.len());
        }
        let open: Vec<u32> = client.side.h2.streams().collect();
        prop_assert_eq!(open, server.side.h2.streams().collect::<Vec<_>>());
    }

    #[test]
    fn another_decoder_reads_the_same(blocks in vec(hpack_block(), 0..8)) {
        hpack::check(&blocks.concat());
    }

    #[test]
    fn another_encoder_is_understood(
        blocks in vec(vec(("[a-f:]{1,3}", "[ -~]{0,60}"), 0..8), 1..8),
    ) {
        let mut theirs = loona_hpack::Encoder::new();
        let mut ours = wire::h2::hpack::Decoder::new(4096);
        for fields in blocks {
            let fields: hpack::Fields = fields
                .into_iter()
                .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
                .collect();
            let pairs = fields.iter().map(|(name, value)| (&name[..], &value[..]));
            let bytes = theirs.encode(pairs);
            let expected: hpack::Fields = fields.into_iter().map(hpack::trimmed).collect();
            prop_assert_eq!(hpack::decoded(&mut ours, &bytes), Ok(expected));
        }
    }
}

/// A block of representations that are right, more or less, with its length in front.
fn hpack_block() -> impl Strategy<Value = Vec<u8>> {
    let string = prop_oneof![
        vec(any::<u8>(), 0..12)
            .prop_map(|text| { [&[u8::try_from(text.len()).unwrap()][..], &text].concat() }),
        // Padding is right in some.
        vec(any::<u8>(), 1..5).prop_map(|mut text| {
            *text.last_mut().unwrap() |= 0x1f;
            [&[0x80 | u8::try_from(text.len()).unwrap()][..], &text].concat()
        }),
        Just(b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff".to_vec()),
    ];
    let field = prop_oneof![
        4 => (0x81u8..0xc4).prop_map(|octet| vec![octet]),
        3 => (0x41u8..0x7f, string.clone()).prop_map(|(octet, value)| [&[octet][..], &value].concat()),
        3 => (prop_oneof![Just(0x40u8), Just(0), Just(0x10)], string.clone(), string.clone())
            .prop_map(|(octet, name, value)| [&[octet][..], &name, &value].concat()),
        2 => (0x01u8..0x0f, string).prop_map(|(octet, value)| [&[octet][..], &value].concat()),
        1 => any::<u8>().prop_map(|octet| vec![octet]),
    ];
    let update = prop_oneof![8 => Just(vec![]), 1 => (0x20u8..0x3f).prop_map(|octet| vec![octet])];
    (update, vec(field, 0..7)).prop_map(|(update, fields)| {
        let mut block = [update, fields.concat()].concat();
        block.truncate(255);
        [&[u8::try_from(block.len()).unwrap()][..], &block].concat()
    })
}
