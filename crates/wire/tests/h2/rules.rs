//! The rules of RFC 9113 for an endpoint, one by one.
//!
//! Each case of h2spec 2.2.1 (groups `generic`, `http2` and `hpack`) is here, by its claim and with
//! the code that it expects; so are rules that it does not try, and those for a client.

use std::slice::from_ref;

use wire::h2::{ErrorCode, Limits};

use super::kit::*;

const PROTOCOL: ErrorCode = ErrorCode::PROTOCOL_ERROR;
const CLOSED: ErrorCode = ErrorCode::STREAM_CLOSED;
const SIZE: ErrorCode = ErrorCode::FRAME_SIZE_ERROR;
const FLOW: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
const COMPRESSION: ErrorCode = ErrorCode::COMPRESSION_ERROR;

/// After `before`, which is in order, `input` ends the connection with this code.
#[track_caller]
fn ends_connection(before: &[Vec<u8>], input: &[u8], code: ErrorCode) {
    let mut side = Side::server();
    side.hear(&before.concat()).expect("what comes before is in order");
    assert_eq!(side.fails_with(input).1, code);
}

/// After `before`, which is in order, `input` resets this stream with this code, and the
/// connection goes on.
#[track_caller]
fn resets(before: &[Vec<u8>], input: &[u8], stream: u32, code: ErrorCode) {
    let mut side = Side::server();
    side.hear(&before.concat()).expect("what comes before is in order");
    side.said();
    let heard = side.hear(input).expect("the connection goes on");
    let last = heard.last().expect("it is found");
    let is_answered = last.starts_with(&format!("malformed {stream} "));
    assert!(is_answered || last.starts_with(&format!("failed {stream} ")), "{heard:?}");
    if is_answered {
        assert_eq!(code, PROTOCOL);
        assert!(side.answer(stream, 400), "a request that is malformed can be answered");
        // As a caller does once all of its answer is sent; how little it makes of it is no matter.
        side.h2.reset(stream, ErrorCode::NO_ERROR);
        let said = side.said();
        let reset = format!("RST_STREAM {stream} {code:?}");
        assert!(
            matches!(&said[..], [head, last] if head.ends_with(" end") && *last == reset),
            "{said:?}"
        );
        assert!(!side.h2.is_open(stream));
        return goes_on(&mut side);
    }
    let said = side.said();
    assert!(said.contains(&format!("RST_STREAM {stream} {code:?}")), "{said:?}");
    assert!(!side.h2.is_open(stream));
    goes_on(&mut side);
}

/// After `before`, `input` does no harm: these elements come of it.
#[track_caller]
fn is_accepted(before: &[Vec<u8>], input: &[u8], expected: &[&str]) -> Side {
    let mut side = Side::server();
    side.hear(&before.concat()).expect("what comes before is in order");
    assert_eq!(side.hear(input), Ok(lines(expected)));
    goes_on(&mut side);
    side
}

#[track_caller]
fn goes_on(side: &mut Side) {
    assert_eq!(side.hear(&frame("PING", 0, 0, b"hey you!")), Ok(Vec::new()));
    let said = side.said();
    assert_eq!(said.last().unwrap(), "PING ack hey you!");
}

fn priority(stream: u32, on: u32) -> Vec<u8> {
    frame("PRIORITY", 0, stream, &[&on.to_be_bytes()[..], &[10]].concat())
}

mod beginning {
    use wire::h2::{ConnectionError, Http2, PREFACE};

    use super::*;

    #[test]
    fn the_server_sends_settings_first() {
        let limits = Limits::default();
        let mut side = Side::new(Http2::server(&limits), limits);
        assert_eq!(
            side.said(),
            ["SETTINGS 3=100 6=65536 4=65536 8=1", "WINDOW_UPDATE 0 6488065"]
                .map(|line| line.replace("3=100 6=65536 4=65536 8=1", "3=100 4=65536 6=65536 8=1"))
        );
    }

    #[test]
    fn the_client_sends_the_preface_and_refuses_pushes() {
        let limits = Limits { header_table_bytes_max: 0, ..Limits::default() };
        let mut side = Side::new(Http2::client(&limits), limits);
        let expected = ["PREFACE", "SETTINGS 1=0 2=0 4=65536 6=65536", "WINDOW_UPDATE 0 6488065"];
        assert_eq!(side.said(), expected);
    }

    #[test]
    fn the_preface_may_come_in_pieces() {
        let limits = Limits::default();
        let mut side = Side::new(Http2::server(&limits), limits);
        for octet in PREFACE {
            assert_eq!(side.hear(&[*octet]), Ok(Vec::new()));
        }
        assert!(!side.h2.has_peer_settings());
        assert_eq!(side.hear(&settings(&[])), Ok(lines(&["settings"])));
        assert!(side.h2.has_peer_settings());
    }

    #[test]
    fn any_other_preface_is_refused_at_its_first_octet() {
        let limits = Limits::default();
        for place in 0..PREFACE.len() {
            let mut side = Side::new(Http2::server(&limits), limits);
            let mut preface = PREFACE.to_vec();
            preface[place] ^= 0x20;
            assert_eq!(side.hear(&preface[..place]), Ok(Vec::new()));
            let error = side.fails_with(&preface[place..=place]);
            assert_eq!(error, (ConnectionError::PrefaceInvalid, PROTOCOL));
        }
    }

    #[test]
    fn the_first_frame_is_settings() {
        let limits = Limits::default();
        for first in [get(1), ack(), frame("PING", 0, 0, &[0; 8]), frame("200", 0, 0, b"")] {
            let mut side = Side::new(Http2::server(&limits), limits);
            let error = side.fails_with(&[&PREFACE[..], &first].concat());
            assert_eq!(error, (ConnectionError::FirstFrameInvalid, PROTOCOL));
            let mut side = Side::new(Http2::client(&limits), limits);
            assert_eq!(side.fails_with(&first).1, PROTOCOL);
        }
    }
}

mod frames {
    use super::*;

    #[test]
    fn what_nobody_knows_is_ignored() {
        is_accepted(&[], &frame("22", 0xff, 7, b"whatever"), &[]);
        is_accepted(&[], &frame("255", 0, 0, &[7; 16_384]), &[]);
        // Flags that are undefined, and the reserved bit.
        let mut ping = frame("PING", 0x16, 0, b"flagged!");
        ping[5] |= 0x80;
        let mut side = is_accepted(&[], &ping, &[]);
        side.hear(&ping).unwrap();
        assert_eq!(side.said(), ["PING ack flagged!"]);
        let mut headers = get(1);
        headers[5] |= 0x80;
        is_accepted(&[], &headers, &["request 1 GET / end"]);
    }

    #[test]
    fn a_frame_may_have_16_kib_and_no_more() {
        let full = [b'x'; 16_384];
        let text = format!("data 1 {:?} end", "x".repeat(16_384));
        is_accepted(&[post(1)], &data(1, END_STREAM, &full), &[&text]);
        let longer = [b'x'; 16_385];
        ends_connection(&[post(1)], &data(1, END_STREAM, &longer), SIZE);
        ends_connection(&[], &frame("HEADERS", END_HEADERS, 1, &longer), SIZE);
        ends_connection(&[], &frame("200", 0, 1, &longer), SIZE);
    }

    #[test]
    fn a_header_block_is_not_interrupted() {
        let block = block(&GET);
        let (front, back) = block.split_at(7);
        let open = frame("HEADERS", END_STREAM, 1, front);
        let whole = frame("CONTINUATION", END_HEADERS, 1, back);
        is_accepted(from_ref(&open), &whole, &["request 1 GET / end"]);
        for other in [
            priority(1, 0),
            priority(3, 0),
            get(3),
            post(1),
            data(1, 0, b""),
            frame("PING", 0, 0, &[0; 8]),
            frame("22", 0, 0, b""),
            frame("22", 0, 1, b""),
            frame("CONTINUATION", END_HEADERS, 3, back),
            frame("CONTINUATION", END_HEADERS, 0, back),
        ] {
            ends_connection(from_ref(&open), &other, PROTOCOL);
        }
    }

    #[test]
    fn a_header_block_may_come_in_many_pieces() {
        let block = block(&GET);
        let mut input = frame("HEADERS", END_STREAM, 1, &block[..1]);
        for octet in &block[1..] {
            input.extend(frame("CONTINUATION", 0, 1, &[*octet]));
        }
        input.extend(frame("CONTINUATION", END_HEADERS, 1, b""));
        is_accepted(&[], &input, &["request 1 GET / end"]);
    }

    #[test]
    fn a_continuation_continues_something() {
        let more = frame("CONTINUATION", END_HEADERS, 1, &block(&GET));
        ends_connection(&[], &more, PROTOCOL);
        ends_connection(&[get(1)], &more, PROTOCOL);
        ends_connection(&[post(1)], &more, PROTOCOL);
        ends_connection(&[post(1), data(1, 0, b"x")], &more, PROTOCOL);
        ends_connection(&[post(1), reset(1, ErrorCode::CANCEL)], &more, PROTOCOL);
        let block = block(&GET);
        let (front, back) = block.split_at(7);
        let whole =
            [frame("HEADERS", END_STREAM, 1, front), frame("CONTINUATION", END_HEADERS, 1, back)];
        ends_connection(&whole, &more, PROTOCOL);
    }

    #[test]
    fn padding_is_dropped_and_checked() {
        let padded = |flags, kind: &str, padding: u8, text: &[u8]| {
            let payload = [&[padding], text, &vec![0; usize::from(padding)]].concat();
            frame(kind, flags | PADDED, 1, &payload)
        };
        let head = padded(END_HEADERS, "HEADERS", 8, &block(&POST));
        is_accepted(&[], &head, &["request 1 POST /"]);
        is_accepted(from_ref(&head), &padded(END_STREAM, "DATA", 255, b"x"), &["data 1 \"x\" end"]);
        is_accepted(from_ref(&head), &padded(0, "DATA", 9, b""), &[]);
        is_accepted(from_ref(&head), &padded(END_STREAM, "DATA", 0, b""), &["end 1"]);
        for (kind, flags) in [("DATA", PADDED), ("HEADERS", PADDED | END_HEADERS | END_STREAM)] {
            ends_connection(from_ref(&head), &frame(kind, flags, 1, b"\x02x"), PROTOCOL);
            ends_connection(from_ref(&head), &frame(kind, flags, 1, b"\x01"), PROTOCOL);
            ends_connection(from_ref(&head), &frame(kind, flags, 1, b""), SIZE);
        }
        let no_room = frame("HEADERS", PRIORITY | PADDED | END_HEADERS, 1, b"\x00\x00\x00\x00\x00");
        ends_connection(&[], &no_room, SIZE);
        ends_connection(&[], &frame("HEADERS", PRIORITY | END_HEADERS, 1, &[0; 4]), SIZE);
    }

    #[test]
    fn nobody_pushes() {
        let promise = frame("PUSH_PROMISE", END_HEADERS, 1, &[0, 0, 0, 2]);
        ends_connection(&[get(1)], &promise, PROTOCOL);
        assert_eq!(Side::client().fails_with(&promise).1, PROTOCOL);
    }
}

mod streams {
    use super::*;

    #[test]
    fn an_idle_stream_takes_headers_and_priority_only() {
        ends_connection(&[], &data(1, 0, b"x"), PROTOCOL);
        ends_connection(&[], &reset(1, ErrorCode::CANCEL), PROTOCOL);
        ends_connection(&[], &window_update(1, 1), PROTOCOL);
        ends_connection(&[get(3)], &reset(5, ErrorCode::CANCEL), PROTOCOL);
        is_accepted(&[priority(1, 0)], &get(1), &["request 1 GET / end"]);
        is_accepted(&[priority(5, 1)], &get(3), &["request 3 GET / end"]);
        is_accepted(&[priority(2, 1)], &get(1), &["request 1 GET / end"]);
    }

    #[test]
    fn behind_its_end_a_stream_takes_no_message() {
        resets(&[get(1)], &data(1, 0, b"x"), 1, CLOSED);
        resets(&[get(1)], &data(1, END_STREAM, b""), 1, CLOSED);
        resets(&[get(1)], &get(1), 1, CLOSED);
        is_accepted(&[get(1)], &window_update(1, 100), &[]);
        is_accepted(&[get(1)], &priority(1, 0), &[]);
        is_accepted(&[get(1)], &reset(1, ErrorCode::CANCEL), &["reset 1 CANCEL"]);
    }

    #[test]
    fn a_stream_that_the_peer_has_reset_is_closed() {
        let before = [post(1), reset(1, ErrorCode::CANCEL)];
        ends_connection(&before, &data(1, 0, b"x"), CLOSED);
        ends_connection(&before, &get(1), CLOSED);
        is_accepted(&before, &priority(1, 0), &[]);
        is_accepted(&before, &window_update(1, 1), &[]);
        is_accepted(&before, &reset(1, ErrorCode::CANCEL), &[]);
    }

    /// A request that was answered to the end.
    fn answered() -> Side {
        let mut side = Side::server();
        side.hear(&get(1)).unwrap();
        assert!(side.answer(1, 204));
        assert!(!side.h2.is_open(1) && !side.answer(1, 204));
        side.said();
        side
    }

    #[test]
    fn a_stream_that_came_to_its_end_is_closed() {
        assert_eq!(answered().fails_with(&data(1, END_STREAM, b"x")).1, CLOSED);
        assert_eq!(answered().fails_with(&get(1)).1, CLOSED);
        let more = frame("CONTINUATION", END_HEADERS, 1, b"");
        assert_eq!(answered().fails_with(&more).1, PROTOCOL);
        for harmless in [priority(1, 0), window_update(1, 1), reset(1, ErrorCode::NO_ERROR)] {
            let mut side = answered();
            assert_eq!(side.hear(&harmless), Ok(Vec::new()));
            goes_on(&mut side);
        }
    }

    #[test]
    fn what_was_on_the_way_when_a_stream_was_reset_is_ignored() {
        let mut side = Side::server();
        side.hear(&post(1)).unwrap();
        side.h2.reset(1, ErrorCode::CANCEL);
        assert_eq!(side.said(), ["RST_STREAM 1 CANCEL"]);
        let late = [
            data(1, 0, b"late"),
            window_update(1, 1),
            headers(1, END_STREAM, &["x-late: 1"]),
            reset(1, ErrorCode::CANCEL),
        ];
        assert_eq!(side.hear(&late.concat()), Ok(Vec::new()));
        // It counts in the connection's window all the same, and is given back.
        assert_eq!(side.hear(&get(3)), Ok(lines(&["request 3 GET / end"])));
        assert_eq!(side.said(), Vec::<String>::new());
    }

    #[test]
    fn clients_count_upwards_in_odd_numbers() {
        ends_connection(&[], &get(2), PROTOCOL);
        ends_connection(&[], &get(0), PROTOCOL);
        ends_connection(&[get(5)], &get(3), PROTOCOL);
        ends_connection(&[get(5)], &get(4), PROTOCOL);
        is_accepted(&[get(1)], &get(0x7fff_ffff), &["request 2147483647 GET / end"]);
    }

    #[test]
    fn one_stream_too_many_is_refused() {
        let before: Vec<_> = (0..100).map(|n| get(2 * n + 1)).collect();
        resets(&before, &get(201), 201, ErrorCode::REFUSED_STREAM);
        // A place that comes free is given again, and the decoder stays in step.
        let mut side = Side::server_with(Limits { streams_max: 1, ..Limits::default() });
        side.hear(&get(1)).unwrap();
        // Entered in the table by a request that goes nowhere.
        let entered = [&block(&GET)[..], b"\x40\x03x-a\x011"].concat();
        let refused = frame("HEADERS", END_STREAM | END_HEADERS, 3, &entered);
        assert_eq!(side.hear(&refused), Ok(lines(&["failed 3 Refused"])));
        side.answer(1, 204);
        let from_table = [&block(&GET)[..], b"\xbe"].concat();
        let next = frame("HEADERS", END_STREAM | END_HEADERS, 5, &from_table);
        assert_eq!(side.hear(&next), Ok(lines(&["request 5 GET / x-a=1 end"])));
    }

    #[test]
    fn a_priority_makes_sense_or_is_an_error() {
        for weight in [0, 255] {
            let on_nothing = frame("PRIORITY", 0, 1, &[0, 0, 0, 0, weight]);
            is_accepted(&[get(1)], &on_nothing, &[]);
        }
        is_accepted(&[get(1)], &frame("PRIORITY", 0, 3, &[0x80, 0, 0, 1, 9]), &[]);
        ends_connection(&[], &priority(1, 1), PROTOCOL);
        resets(&[get(1)], &priority(1, 1), 1, PROTOCOL);
        ends_connection(&[], &priority(0, 1), PROTOCOL);
        resets(&[get(1)], &frame("PRIORITY", 0, 1, &[0; 4]), 1, SIZE);
        ends_connection(&[], &frame("PRIORITY", 0, 1, &[0; 6]), SIZE);
        // On a stream that is closed too.
        let closed = [post(1), reset(1, ErrorCode::CANCEL)];
        resets(&closed, &frame("PRIORITY", 0, 1, &[0; 4]), 1, SIZE);
        resets(&closed, &priority(1, 1), 1, PROTOCOL);
        ends_connection(&[], &priority(2, 2), PROTOCOL);
        let with_priority = |on: u8| {
            let payload = [&[0, 0, 0, on, 10][..], &block(&GET)].concat();
            frame("HEADERS", END_HEADERS | END_STREAM | PRIORITY, 1, &payload)
        };
        is_accepted(&[], &with_priority(0), &["request 1 GET / end"]);
        is_accepted(&[], &with_priority(3), &["request 1 GET / end"]);
        resets(&[], &with_priority(1), 1, PROTOCOL);
    }

    #[test]
    fn a_reset_names_its_stream_and_code() {
        is_accepted(&[post(1)], &reset(1, ErrorCode(0xff)), &["reset 1 0xff"]);
        ends_connection(&[post(1)], &reset(0, ErrorCode::CANCEL), PROTOCOL);
        ends_connection(&[post(1)], &frame("RST_STREAM", 0, 1, &[0; 3]), SIZE);
        ends_connection(&[post(1)], &frame("RST_STREAM", 0, 1, &[0; 5]), SIZE);
        ends_connection(&[post(1)], &reset(2, ErrorCode::CANCEL), PROTOCOL);
    }

    #[test]
    fn messages_are_on_streams() {
        ends_connection(&[], &data(0, 0, b"x"), PROTOCOL);
        ends_connection(&[post(1)], &data(2, 0, b"x"), PROTOCOL);
    }
}

mod connection {
    use super::*;

    #[test]
    fn settings_are_acknowledged() {
        let mut side = is_accepted(&[], &settings(&[(1, 0), (0x99, 7)]), &["settings"]);
        side.hear(&settings(&[])).unwrap();
        side.hear(&settings(&[(4, 70_000)])).unwrap();
        assert_eq!(side.said(), ["SETTINGS ack", "SETTINGS ack"]);
        // An acknowledgement of other data answers no PING of ours.
        is_accepted(&[ack()], &ack(), &[]);
    }

    #[test]
    fn settings_are_well_formed() {
        ends_connection(&[], &frame("SETTINGS", ACK, 0, &[0; 6]), SIZE);
        ends_connection(&[], &frame("SETTINGS", 0, 1, &[]), PROTOCOL);
        ends_connection(&[], &frame("SETTINGS", ACK, 1, &[]), PROTOCOL);
        for len in [1, 3, 5, 7] {
            ends_connection(&[], &frame("SETTINGS", 0, 0, &vec![0; len]), SIZE);
        }
    }

    #[test]
    fn settings_are_in_their_range() {
        ends_connection(&[], &settings(&[(2, 2)]), PROTOCOL);
        ends_connection(&[], &settings(&[(4, 0x8000_0000)]), FLOW);
        ends_connection(&[], &settings(&[(5, 16_383)]), PROTOCOL);
        ends_connection(&[], &settings(&[(5, 16_777_216)]), PROTOCOL);
        ends_connection(&[], &settings(&[(8, 2)]), PROTOCOL);
        assert_eq!(Side::client().fails_with(&settings(&[(2, 1)])).1, PROTOCOL);
        let mut client = Side::client();
        assert!(!client.h2.allows_extended_connect());
        client.hear(&settings(&[(2, 0), (8, 1)])).unwrap();
        assert!(client.h2.allows_extended_connect());
        assert_eq!(client.fails_with(&settings(&[(8, 0)])).1, PROTOCOL);
    }

    #[test]
    fn pings_are_answered_with_what_they_hold() {
        let mut side = Side::server();
        let two = [frame("PING", 0, 0, b"12345678"), frame("PING", 0, 0, b"abcdefgh")].concat();
        side.hear(&two).unwrap();
        assert_eq!(side.said(), ["PING ack 12345678", "PING ack abcdefgh"]);
        assert_eq!(
            side.hear(&frame("PING", ACK, 0, b"12345678")),
            Ok(lines(&["pong \"12345678\""]))
        );
        assert_eq!(side.said(), Vec::<String>::new());
        side.h2.ping(*b"are you?");
        assert_eq!(side.said(), ["PING are you?"]);
        ends_connection(&[], &frame("PING", 0, 1, &[0; 8]), PROTOCOL);
        ends_connection(&[], &frame("PING", 0, 0, &[0; 6]), SIZE);
        ends_connection(&[], &frame("PING", ACK, 0, &[0; 9]), SIZE);
    }

    #[test]
    fn goaway_is_heard_whatever_its_code() {
        is_accepted(&[], &goaway(0, ErrorCode(0xff), b"bye"), &["goaway 0 0xff \"bye\""]);
        let long = goaway(0, ErrorCode::NO_ERROR, &[b'x'; 1000]);
        let text = format!("goaway 0 NO_ERROR {:?}", "x".repeat(128));
        is_accepted(&[], &long, &[&text]);
        let mut on_stream = goaway(0, ErrorCode::NO_ERROR, b"");
        on_stream[8] = 1;
        ends_connection(&[], &on_stream, PROTOCOL);
        ends_connection(&[], &frame("GOAWAY", 0, 0, &[0; 7]), SIZE);
    }

    #[test]
    fn windows_grow_by_something_and_not_for_ever() {
        ends_connection(&[], &window_update(0, 0), PROTOCOL);
        resets(&[get(1)], &window_update(1, 0), 1, PROTOCOL);
        ends_connection(&[], &frame("WINDOW_UPDATE", 0, 0, &[0; 3]), SIZE);
        ends_connection(&[get(1)], &frame("WINDOW_UPDATE", 0, 1, &[0; 5]), SIZE);
        ends_connection(&[get(1)], &window_update(2, 1), PROTOCOL);
        let rest = 0x7fff_ffff - 65_535;
        is_accepted(&[get(1)], &[window_update(0, rest), window_update(1, rest)].concat(), &[]);
        ends_connection(&[window_update(0, rest)], &window_update(0, 1), FLOW);
        resets(&[get(1), window_update(1, rest)], &window_update(1, 1), 1, FLOW);
        // The reserved bit is none of the number.
        is_accepted(&[], &window_update(0, 0x8000_0001), &[]);
        // An initial window that makes a window too large.
        ends_connection(&[get(1), window_update(1, 1)], &settings(&[(4, 0x7fff_ffff)]), FLOW);
    }
}

mod compression {
    use super::*;

    fn is_lost(block: &[u8]) {
        ends_connection(&[], &frame("HEADERS", END_HEADERS | END_STREAM, 1, block), COMPRESSION);
    }

    fn with(field: &[u8]) -> Vec<u8> {
        [&block(&GET), field].concat()
    }

    #[test]
    fn a_block_that_cannot_be_decoded_ends_the_connection() {
        // A literal that is cut off.
        is_lost(&[0, 0]);
        is_lost(&with(b"\x40\x08x-t"));
        // Indices without entries.
        is_lost(&with(&[0x80 | 70]));
        is_lost(&with(&[0x7f, 7, 1, b'x']));
        is_lost(&with(&[0x80]));
        // A size update at the end, and one that is too large.
        is_lost(&with(&[0x20]));
        is_lost(&[&[0x3f, 0xe2, 0x1f][..], &block(&GET)].concat());
        // Strings that end in padding of more than seven bits, in zeros, or hold the end symbol.
        is_lost(&with(b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"));
        is_lost(&with(b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"));
        is_lost(&with(b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"));
    }

    #[test]
    fn each_representation_is_accepted() {
        let head = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];
        for (field, expected) in [
            (&b""[..], "request 1 GET / end"),
            (b"\x58\x01x", "request 1 GET / cache-control=x end"),
            (b"\x58\x86\xa8\xeb\x10\x64\x9c\xbf", "request 1 GET / cache-control=no-cache end"),
            (b"\x40\x01x\x01y", "request 1 GET / x=y end"),
            (b"\x40\x82\xf3\x1f\x01y", "request 1 GET / xb=y end"),
            (b"\x0f\x09\x01x", "request 1 GET / cache-control=x end"),
            (b"\x0f\x09\x81\x1f", "request 1 GET / cache-control=a end"),
            (b"\x00\x01x\x01y", "request 1 GET / x=y end"),
            (b"\x00\x81\x1f\x81\x1f", "request 1 GET / a=a end"),
            (b"\x1f\x09\x01x", "request 1 GET / cache-control=x end"),
            (b"\x1f\x09\x81\x1f", "request 1 GET / cache-control=a end"),
            (b"\x10\x01x\x01y", "request 1 GET / x=y end"),
            (b"\x10\x81\x1f\x81\x1f", "request 1 GET / a=a end"),
        ] {
            for updates in [&b""[..], b"\x20", b"\x20\x3f\xe1\x1f"] {
                let bytes = [updates, &head, field].concat();
                let frame = frame("HEADERS", END_HEADERS | END_STREAM, 1, &bytes);
                is_accepted(&[], &frame, &[expected]);
            }
        }
    }
}

mod messages {
    use super::*;

    /// A request of these lines is malformed.
    #[track_caller]
    fn is_malformed(fields: &[&str]) {
        resets(&[], &headers(1, END_STREAM, fields), 1, PROTOCOL);
        resets(&[], &headers(1, 0, fields), 1, PROTOCOL);
    }

    #[test]
    fn pseudo_fields_are_those_of_a_request_and_come_first() {
        let [method, scheme, path, authority] = GET;
        is_malformed(&[method, scheme, path, authority, ":test: ok"]);
        is_malformed(&[method, scheme, path, authority, ":status: 200"]);
        is_malformed(&[method, scheme, path, "x-test: ok", authority]);
        is_malformed(&["x-test: ok", method, scheme, path, authority]);
        is_malformed(&[method, scheme, ":path: "]);
        is_malformed(&[scheme, path, authority]);
        is_malformed(&[method, path, authority]);
        is_malformed(&[method, scheme, authority]);
        for twice in GET {
            is_malformed(&[method, scheme, path, authority, twice]);
        }
        is_malformed(&[]);
        // In any order.
        let turned = headers(1, END_STREAM, &[authority, path, scheme, method]);
        is_accepted(&[], &turned, &["request 1 GET / end"]);
    }

    #[test]
    fn names_and_values_are_clean() {
        for line in [
            "X-Test: ok",
            "x_T: ok",
            "x test: ok",
            ": ok",
            "x\u{7f}: ok",
            "x-a: a\u{0}",
            "x-a: a\r\nb: c",
            "x-a: a\nb",
            "x-a: \u{1}",
        ] {
            is_malformed(&[&GET[..], &[line]].concat());
        }
        is_malformed(&[":method: GE T", ":scheme: http", ":path: /", ":authority: a"]);
        is_malformed(&[":method: ", ":scheme: http", ":path: /", ":authority: a"]);
        is_malformed(&[":method: GET", ":scheme: ", ":path: /", ":authority: a"]);
        is_malformed(&[":method: GET", ":scheme: 1x", ":path: /", ":authority: a"]);
        for path in ["a", "*", "http://a/", "/a b", "/a#b", "/\u{e9}", "?a"] {
            let path = format!(":path: {path}");
            is_malformed(&[":method: GET", ":scheme: http", &path, ":authority: a"]);
        }
        // White space around a value is none of it, in whatever section.
        for line in ["x-a:  a", "x-a: a\t", "x-a: \t a \t "] {
            let request = headers_and(1, END_STREAM, &GET, &[line]);
            is_accepted(&[], &request, &["request 1 GET / x-a=a end"]);
            let trailers = headers(1, END_STREAM, &[line]);
            is_accepted(&[post(1)], &trailers, &["trailers 1 \"x-a: a\\r\\n\""]);
        }
        let length = headers_and(1, 0, &POST, &["content-length:  5 "]);
        is_accepted(&[], &length, &["request 1 POST / content-length=5"]);
        let everything = ["x-a: \"q\" \u{e9} \t z", "x!#$%&'*+-.^_`|~0: ok"];
        let bytes = headers_and(1, END_STREAM, &GET, &everything);
        let expected = "request 1 GET / x-a=\"q\" \u{e9} \t z x!#$%&'*+-.^_`|~0=ok end";
        is_accepted(&[], &bytes, &[expected]);
    }

    #[test]
    fn fields_about_the_connection_have_no_place() {
        for line in [
            "connection: keep-alive",
            "connection: x",
            "keep-alive: 5",
            "proxy-connection: x",
            "transfer-encoding: chunked",
            "upgrade: x",
            "te: trailers, deflate;q=0.5",
            "te: gzip",
        ] {
            is_malformed(&[&GET[..], &[line]].concat());
        }
        let bytes = headers_and(1, END_STREAM, &GET, &["te: trailers", "http2-settings: x"]);
        is_accepted(&[], &bytes, &["request 1 GET / end"]);
    }

    #[test]
    fn the_length_is_that_of_the_data() {
        let post = |length: &str| {
            headers_and(1, 0, &POST, &[format!("content-length: {length}").as_str()])
        };
        resets(&[post("1")], &data(1, END_STREAM, b"test"), 1, PROTOCOL);
        resets(&[post("1")], &data(1, 0, b"te"), 1, PROTOCOL);
        resets(&[post("9"), data(1, 0, b"te")], &data(1, END_STREAM, b"st"), 1, PROTOCOL);
        resets(&[post("9"), data(1, 0, b"test")], &data(1, END_STREAM, b""), 1, PROTOCOL);
        let trailers = headers(1, END_STREAM, &["x-a: 1"]);
        resets(&[post("9"), data(1, 0, b"test")], &trailers, 1, PROTOCOL);
        let expected = ["data 1 \"te\"", "data 1 \"st\" end"];
        is_accepted(
            &[post("4")],
            &[data(1, 0, b"te"), data(1, END_STREAM, b"st")].concat(),
            &expected,
        );
        is_accepted(&[post("0")], &data(1, END_STREAM, b""), &["end 1"]);
        for line in ["content-length: 1", "content-length: x", "content-length: "] {
            let request = headers_and(1, END_STREAM, &POST, &[line]);
            resets(&[], &request, 1, PROTOCOL);
        }
        is_malformed(&[&POST[..], &["content-length: 0", "content-length: 0"]].concat());
    }

    #[test]
    fn trailers_end_the_stream_and_hold_no_pseudo_field() {
        let before = [post(1), data(1, 0, b"x")];
        let good = headers(1, END_STREAM, &["x-a: 1", "x-b: 2"]);
        is_accepted(&before, &good, &["trailers 1 \"x-a: 1\\r\\nx-b: 2\\r\\n\""]);
        is_accepted(&before, &headers(1, END_STREAM, &[]), &["end 1"]);
        resets(&before, &headers(1, 0, &["x-a: 1"]), 1, PROTOCOL);
        resets(&[post(1)], &post(1), 1, PROTOCOL);
        for line in [":method: GET", ":status: 200", "X-A: 1", "x-a: a\u{0}", "connection: close"] {
            resets(&before, &headers(1, END_STREAM, &["x-b: 1", line]), 1, PROTOCOL);
        }
        // What means nothing behind a body is left out, and the rest stays.
        for line in ["content-length: 1", "host: a", "date: now", "content-type: a/b"] {
            let trailers = headers(1, END_STREAM, &["x-b: 1", line]);
            is_accepted(&before, &trailers, &["trailers 1 \"x-b: 1\\r\\n\""]);
        }
        is_accepted(&before, &headers(1, END_STREAM, &["date: now"]), &["end 1"]);
    }

    #[test]
    fn a_host_is_named_once() {
        let hosted = |lines: &[&str]| headers_and(1, END_STREAM, &GET, lines);
        is_accepted(&[], &hosted(&["host: a"]), &["request 1 GET / end"]);
        is_accepted(&[], &hosted(&["host: A", "host: a"]), &["request 1 GET / end"]);
        is_malformed(&[&GET[..], &["host: b"]].concat());
        let [method, scheme, path, _] = GET;
        let by_field = headers(1, END_STREAM, &[method, scheme, path, "host: b"]);
        is_accepted(&[], &by_field, &["request 1 GET / host=b end"]);
        is_malformed(&[method, scheme, path, "host: b", "host: b"]);
        let missing = headers(1, END_STREAM, &[method, scheme, path]);
        is_accepted(&[], &missing, &["unacceptable 1 HostMissing end"]);
    }

    #[test]
    fn connect_names_an_authority_and_nothing_else() {
        let connect = [":method: CONNECT", ":authority: b:443"];
        is_accepted(&[], &headers(1, 0, &connect), &["request 1 CONNECT  host=b:443"]);
        is_malformed(&[":method: CONNECT"]);
        is_malformed(&[":method: CONNECT", ":authority: "]);
        is_malformed(&[":method: CONNECT", ":authority: b:443", ":path: /"]);
        is_malformed(&[":method: CONNECT", ":authority: b:443", ":scheme: http"]);
        // RFC 8441.
        fn extended<'l>(lines: &[&'l str]) -> Vec<&'l str> {
            [&[":method: CONNECT", ":protocol: websocket"], lines].concat()
        }
        let good = extended(&[":scheme: http", ":path: /chat", ":authority: a"]);
        is_accepted(&[], &headers(1, 0, &good), &["request 1 CONNECT /chat"]);
        is_malformed(&extended(&[":scheme: http", ":path: /chat"]));
        is_malformed(&extended(&[":scheme: http", ":authority: a"]));
        is_malformed(&extended(&[":path: /", ":authority: a"]));
        is_malformed(&[&GET[..], &[":protocol: websocket"]].concat());
        let spaced = [":method: CONNECT", ":protocol: web socket", ":scheme: http", ":path: /"];
        is_malformed(&[&spaced[..], &[":authority: a"]].concat());
    }
}

mod responses {
    use wire::h2::{RequestForm, Scheme};
    use wire::head::{HeadIndex, RequestHead};

    use super::*;

    /// A client that asked with this method.
    fn asked(method: &str) -> Side {
        use wire::h1::{Scan, decode_request};
        let mut side = Side::client();
        let text = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
        let mut index = HeadIndex::default();
        let head = if method == "CONNECT" {
            let text = "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n";
            let (head, _) = decode_request(
                text.as_bytes(),
                &mut Scan::default(),
                &side.limits.head,
                &mut index,
            )
            .unwrap()
            .unwrap();
            return sent(side, &head, false);
        } else {
            decode_request(text.as_bytes(), &mut Scan::default(), &side.limits.head, &mut index)
        };
        let (head, _) = head.unwrap().unwrap();
        let stream =
            side.h2.send_request(&head, Scheme::Http, RequestForm::Same, true, &mut side.out);
        assert_eq!(stream, Some(1));
        side.said();
        side
    }

    fn sent(mut side: Side, head: &RequestHead<'_>, is_end: bool) -> Side {
        let form = RequestForm::Same;
        let stream = side.h2.send_request(head, Scheme::Http, form, is_end, &mut side.out);
        assert_eq!(stream, Some(1));
        side.said();
        side
    }

    #[track_caller]
    fn is_heard(method: &str, input: &[Vec<u8>], expected: &[&str]) {
        assert_eq!(asked(method).hear(&input.concat()), Ok(lines(expected)));
    }

    #[track_caller]
    fn is_malformed(method: &str, input: &[Vec<u8>]) {
        let mut side = asked(method);
        let heard = side.hear(&input.concat()).unwrap();
        let last = heard.last().expect("something");
        assert!(last.starts_with("failed 1 Malformed"), "{heard:?}");
        assert_eq!(side.said(), ["RST_STREAM 1 PROTOCOL_ERROR"]);
    }

    #[test]
    fn a_response_has_interim_ones_before_it_and_an_end() {
        let ok = headers(1, END_STREAM, &[":status: 200"]);
        is_heard("GET", from_ref(&ok), &["response 1 200 end"]);
        let early = headers(1, 0, &[":status: 103", "link: </a>"]);
        let expected = ["interim 1 103 link=</a>", "interim 1 103 link=</a>", "response 1 200 end"];
        is_heard("GET", &[early.clone(), early, ok], &expected);
        let head = headers(1, 0, &[":status: 200", "content-length: 4"]);
        let body = data(1, END_STREAM, b"body");
        let expected = ["response 1 200 content-length=4", "data 1 \"body\" end"];
        is_heard("GET", &[head, body], &expected);
        let trailers = headers(1, END_STREAM, &["grpc-status: 0"]);
        is_heard(
            "GET",
            &[headers(1, 0, &[":status: 200"]), data(1, 0, b"x"), trailers],
            &["response 1 200", "data 1 \"x\"", "trailers 1 \"grpc-status: 0\\r\\n\""],
        );
    }

    #[test]
    fn a_malformed_response_is_reset() {
        for lines in [
            &[][..],
            &["x-a: 1"],
            &[":status: 20"],
            &[":status: 2000"],
            &[":status: 099"],
            &[":status: 20x"],
            &[":status: 101"],
            &[":status: 200", ":status: 200"],
            &[":status: 200", ":path: /"],
            &[":status: 200", "connection: close"],
            &[":status: 200", "x-a: 1", ":status: 200"],
            &[":status: 200", "te: gzip", "transfer-encoding: chunked"],
        ] {
            is_malformed("GET", &[headers(1, 0, lines)]);
        }
        is_malformed("GET", &[headers(1, END_STREAM, &[":status: 103"])]);
        is_malformed("GET", &[headers(1, END_STREAM, &[":status: 200", "content-length: 1"])]);
        is_malformed("GET", &[data(1, 0, b"x")]);
        let head = headers(1, 0, &[":status: 200", "content-length: 1"]);
        is_malformed("GET", &[head.clone(), data(1, 0, b"xx")]);
        is_malformed("GET", &[head.clone(), data(1, END_STREAM, b"")]);
        is_malformed("GET", &[head.clone(), head]);
    }

    #[test]
    fn some_responses_have_no_body_whatever_they_say() {
        let long = |status: &str, flags| headers(1, flags, &[status, "content-length: 9"]);
        is_heard(
            "HEAD",
            &[long(":status: 200", END_STREAM)],
            &["response 1 200 content-length=9 end"],
        );
        is_heard(
            "GET",
            &[long(":status: 304", END_STREAM)],
            &["response 1 304 content-length=9 end"],
        );
        is_heard("GET", &[long(":status: 204", END_STREAM)], &["response 1 204 end"]);
        let empty = data(1, END_STREAM, b"");
        is_heard(
            "HEAD",
            &[long(":status: 200", 0), empty],
            &["response 1 200 content-length=9", "end 1"],
        );
        is_malformed("HEAD", &[long(":status: 200", 0), data(1, 0, b"x")]);
        is_malformed("GET", &[long(":status: 304", 0), data(1, 0, b"x")]);
    }

    #[test]
    fn a_tunnel_carries_what_it_likes() {
        let open = headers(1, 0, &[":status: 200", "content-length: 1"]);
        let expected = ["response 1 200", "data 1 \"bytes\"", "data 1 \"more\" end"];
        is_heard("CONNECT", &[open, data(1, 0, b"bytes"), data(1, END_STREAM, b"more")], &expected);
    }

    #[test]
    fn a_server_answers_what_it_was_asked() {
        let mut side = asked("GET");
        assert_eq!(side.fails_with(&headers(3, 0, &[":status: 200"])).1, PROTOCOL);
        assert_eq!(asked("GET").fails_with(&headers(2, 0, &[":status: 200"])).1, PROTOCOL);
        assert_eq!(asked("GET").fails_with(&data(3, 0, b"x")).1, PROTOCOL);
        let twice =
            [headers(1, END_STREAM, &[":status: 200"]), headers(1, END_STREAM, &[":status: 200"])];
        assert_eq!(asked("GET").fails_with(&twice.concat()).1, CLOSED);
        // On a stream that was reset it is late.
        let mut side = asked("GET");
        side.h2.reset(1, ErrorCode::CANCEL);
        assert_eq!(side.hear(&twice.concat()), Ok(Vec::new()));
    }

    #[test]
    fn a_head_over_the_limits_is_cancelled() {
        let long = format!("x-a: {}", "x".repeat(14_000));
        let head = headers(1, 0, &[":status: 200", &long]);
        let mut side = asked("GET");
        side.limits.head.head_bytes_max = 10_000;
        assert_eq!(side.hear(&head), Ok(lines(&["failed 1 HeadTooLarge"])));
        assert_eq!(side.said(), ["RST_STREAM 1 CANCEL"]);
        let mut side = asked("GET");
        side.limits.head.head_bytes_max = 10_000;
        let trailers = [headers(1, 0, &[":status: 200"]), headers(1, END_STREAM, &[&long])];
        let expected = ["response 1 200", "failed 1 TrailersTooLarge"];
        assert_eq!(side.hear(&trailers.concat()), Ok(lines(&expected)));
    }
}
