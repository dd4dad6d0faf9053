//! Windows, of streams and of the connection, in both directions.

use wire::h1::{Scan, decode_request};
use wire::h2::{ConnectionError, ErrorCode, Http2, Limits, PREFACE, RequestForm, Scheme};
use wire::head::HeadIndex;

use super::kit::*;

fn small() -> Limits {
    Limits {
        stream_window_bytes_max: 100,
        connection_window_bytes_max: 65_535,
        ..Limits::default()
    }
}

/// A server whose peer keeps to its settings and has one request open.
fn receiving(limits: Limits) -> Side {
    let mut side = Side::server_with(limits);
    side.hear(&post(1)).unwrap();
    side.takes_data = false;
    side
}

/// A server that has answered stream 1 with a head.
fn sending(before: &[Vec<u8>]) -> Side {
    let mut side = Side::server();
    side.hear(&[before, &[get(1)]].concat().concat()).unwrap();
    assert!(side.h2.send_reply(1, 200, &[], None, false, &mut side.out));
    side.said();
    side
}

#[test]
fn a_window_is_given_back_once_half_of_it_was_passed_on() {
    let mut side = receiving(small());
    side.hear(&data(1, 0, &[b'x'; 100])).unwrap();
    side.h2.on_taken(1, 49);
    assert!(!side.h2.has_control());
    side.h2.on_taken(1, 1);
    assert_eq!(side.said(), ["WINDOW_UPDATE 1 50"]);
    side.hear(&data(1, 0, &[b'x'; 50])).unwrap();
    // More than was received counts for nothing.
    side.h2.on_taken(1, 1_000_000);
    assert_eq!(side.said(), ["WINDOW_UPDATE 1 100"]);
    side.h2.on_taken(1, 100);
    side.h2.on_taken(3, 100);
    assert!(!side.h2.has_control());
}

#[test]
fn more_than_the_window_is_an_error() {
    let mut side = receiving(small());
    side.hear(&data(1, 0, &[b'x'; 60])).unwrap();
    assert_eq!(side.hear(&data(1, 0, &[b'x'; 41])), Ok(lines(&["failed 1 WindowExceeded"])));
    assert_eq!(side.said(), ["RST_STREAM 1 FLOW_CONTROL_ERROR"]);
    // An empty frame is always within it.
    let mut side = receiving(small());
    side.hear(&data(1, 0, &[b'x'; 100])).unwrap();
    assert_eq!(side.hear(&data(1, END_STREAM, b"")), Ok(lines(&["end 1"])));
    // That of the connection is for all streams together.
    let limits = Limits { connection_window_bytes_max: 0, ..Limits::default() };
    let mut side = receiving(limits);
    side.hear(&post(3)).unwrap();
    let full = [b'x'; 16_384];
    for stream in [1, 3, 1] {
        side.hear(&data(stream, 0, &full)).unwrap();
    }
    side.hear(&data(3, 0, &full[..16_383])).unwrap();
    assert_eq!(side.hear(&data(3, 0, b"x")), Err(ConnectionError::WindowExceeded));
    assert_eq!(side.said(), ["GOAWAY 3 FLOW_CONTROL_ERROR"]);
}

#[test]
fn padding_counts_and_is_given_back_at_once() {
    let mut side = receiving(small());
    let padded = frame("DATA", PADDED, 1, &[&[59][..], &[b'x'; 40], &[0; 59]].concat());
    side.hear(&padded).unwrap();
    assert_eq!(side.hear(&data(1, 0, b"x")).unwrap(), ["failed 1 WindowExceeded"]);
    let mut side = receiving(small());
    side.hear(&padded).unwrap();
    assert_eq!(side.said(), ["WINDOW_UPDATE 1 60"], "even if the caller takes no data");
    side.h2.on_taken(1, 40);
    side.hear(&data(1, 0, &[b'x'; 60])).unwrap();
}

#[test]
fn a_closed_stream_gives_back_the_window_of_the_connection() {
    let limits = Limits { connection_window_bytes_max: 65_535, ..Limits::default() };
    let full = [b'x'; 16_384];
    for is_reset_here in [true, false] {
        let mut side = receiving(limits);
        side.hear(&[data(1, 0, &full), data(1, 0, &full)].concat()).unwrap();
        assert!(!side.h2.has_control(), "the caller took nothing");
        if is_reset_here {
            side.h2.reset(1, ErrorCode::CANCEL);
            assert_eq!(side.said(), ["RST_STREAM 1 CANCEL", "WINDOW_UPDATE 0 32768"]);
        } else {
            side.hear(&reset(1, ErrorCode::CANCEL)).unwrap();
            assert_eq!(side.said(), ["WINDOW_UPDATE 0 32768"]);
        }
        side.h2.on_taken(1, 32_768);
        assert!(!side.h2.has_control(), "it is given back once");
    }
}

#[test]
fn a_stream_that_is_not_taken_stops_no_other() {
    let mut side = Side::server();
    side.takes_data = false;
    let full = [b'x'; 16_384];
    for n in 0..99 {
        side.hear(&post(2 * n + 1)).unwrap();
        for _ in 0..4 {
            side.hear(&data(2 * n + 1, 0, &full)).unwrap();
        }
    }
    side.hear(&post(199)).unwrap();
    for _ in 0..1_000 {
        side.hear(&data(199, 0, &full)).unwrap();
        side.h2.on_taken(199, full.len());
        side.said();
    }
}

#[test]
fn a_frame_may_be_reset_in_its_middle() {
    let mut side = receiving(Limits { connection_window_bytes_max: 65_535, ..Limits::default() });
    let padded = frame("DATA", PADDED, 1, &[&[9][..], &[b'x'; 990], &[0; 9]].concat());
    assert_eq!(side.hear(&padded[..500]).unwrap().len(), 1);
    side.h2.reset(1, ErrorCode::CANCEL);
    assert_eq!(side.hear(&[&padded[500..], &get(3)].concat()).unwrap(), ["request 3 GET / end"]);
    side.said();
    // All of it is given back: the rest of the window can be used.
    side.hear(&post(5)).unwrap();
    for n in [16_384, 16_384, 16_384, 16_383 - 1000] {
        side.hear(&data(5, 0, &vec![b'x'; n])).unwrap();
    }
    assert_eq!(side.said(), ["WINDOW_UPDATE 0 1000"]);
    side.h2.on_taken(5, 65_535);
    assert_eq!(side.said(), ["WINDOW_UPDATE 0 64535", "WINDOW_UPDATE 5 64535"]);
}

#[test]
fn before_the_peer_has_acknowledged_it_may_go_by_the_default() {
    let limits = small();
    let mut side = Side::new(Http2::server(&limits), limits);
    side.takes_data = false;
    side.hear(&[&PREFACE[..], &settings(&[]), &post(1), &post(3)].concat()).unwrap();
    side.hear(&data(1, 0, &[b'x'; 1000])).unwrap();
    side.hear(&data(3, 0, &[b'x'; 30])).unwrap();
    side.hear(&ack()).unwrap();
    assert_eq!(side.hear(&data(1, 0, b"x")).unwrap(), ["failed 1 WindowExceeded"]);
    assert_eq!(side.hear(&data(3, 0, &[b'x'; 71])).unwrap(), ["failed 3 WindowExceeded"]);
}

#[test]
fn no_more_is_sent_than_both_windows_allow() {
    let mut side = sending(&[]);
    assert_eq!(side.h2.sendable(1), 16_384, "a frame at a time");
    for n in [16_384, 16_384, 16_384, 16_383] {
        assert_eq!(side.h2.sendable(1), n);
        assert!(side.send_data(1, &vec![b'x'; n], false));
    }
    assert_eq!(side.said(), ["DATA 1 16384", "DATA 1 16384", "DATA 1 16384", "DATA 1 16383"]);
    assert_eq!(side.h2.sendable(1), 0);
    // The end needs no window.
    assert_eq!(side.hear(&window_update(1, 9)), Ok(lines(&["window 1"])));
    assert_eq!(side.h2.sendable(1), 0);
    assert_eq!(side.hear(&window_update(0, 5)), Ok(lines(&["window all"])));
    assert_eq!(side.h2.sendable(1), 5);
    assert_eq!(side.hear(&window_update(0, 5)), Ok(Vec::new()), "it was open");
    assert_eq!(side.h2.sendable(1), 9);
    assert!(side.send_data(1, b"123456789", false) && side.send_data(1, b"", true));
    assert!(!side.h2.is_open(1));
    assert_eq!((side.h2.sendable(1), side.send_data(1, b"", true)), (0, false));
}

#[test]
#[should_panic = "more data than the windows allow"]
fn sending_more_is_a_bug() {
    let mut side = sending(&[settings(&[(4, 3)])]);
    side.h2.begin_data(1, 4, false);
}

#[test]
fn settings_change_the_windows_of_open_streams() {
    let mut side = sending(&[settings(&[(4, 1)])]);
    assert_eq!(side.h2.sendable(1), 1);
    // The last of several values counts.
    side.hear(&settings(&[(4, 100), (4, 10)])).unwrap();
    assert_eq!(side.h2.sendable(1), 10);
    assert!(side.send_data(1, b"1234567", false));
    // Below zero, and up again.
    side.hear(&settings(&[(4, 3)])).unwrap();
    assert_eq!(side.h2.sendable(1), 0);
    assert_eq!(side.hear(&window_update(1, 4)), Ok(Vec::new()));
    assert_eq!(side.h2.sendable(1), 0);
    assert_eq!(side.hear(&window_update(1, 1)), Ok(lines(&["window 1"])));
    assert_eq!(side.h2.sendable(1), 1);
    side.hear(&settings(&[(4, 0x7fff_fff0)])).unwrap();
    assert_eq!(side.h2.sendable(1), 16_384);
}

#[test]
fn a_stream_that_is_opened_amid_settings_has_the_window_that_they_say() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let said = settings(&[(4, 100), (3, 9)]);
    for at in 0..said.len() {
        let mut side = Side::client();
        side.hear(&said[..at]).unwrap();
        let mut index = HeadIndex::default();
        let head = decode_request(GET, &mut Scan::default(), &Limits::default().head, &mut index);
        let (head, _) = head.unwrap().unwrap();
        let form = RequestForm::Same;
        assert_eq!(side.h2.send_request(&head, Scheme::Http, form, false, &mut side.out), Some(1));
        side.hear(&said[at..]).unwrap();
        assert_eq!(side.h2.sendable(1), 100, "cut at {at}");
    }
}

#[test]
fn control_is_written_in_whole_frames_into_any_room() {
    let mut side = Side::server();
    side.hear(&[get(1), post(3)].concat()).unwrap();
    side.hear(&[settings(&[]), frame("PING", 0, 0, b"12345678")].concat()).unwrap();
    side.h2.reset(1, ErrorCode::CANCEL);
    side.h2.drain();
    side.h2.ping(*b"87654321");
    let mut all = Vec::new();
    let mut writes = 0;
    while side.h2.has_control() {
        let mut out = wire::buffer::Buffer::new(17);
        side.h2.send_control(&mut out);
        assert!(!out.is_empty());
        all.extend(frames(out.filled()));
        writes += 1;
    }
    let expected = [
        "SETTINGS ack",
        "GOAWAY 2147483647 NO_ERROR",
        "PING ack 12345678",
        "RST_STREAM 1 CANCEL",
        "PING 87654321",
    ];
    assert_eq!(all, expected);
    assert_eq!(writes, 5);
}
