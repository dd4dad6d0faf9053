//! A connection that is written down and read back goes on as if nothing had happened.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::h2::hpack::{Encoder, Secrecy};
use wire::h2::{ErrorCode, Limits, Work};

use super::kit::*;

#[path = "../checks/h2_connection.rs"]
mod h2_connection;

/// A header block whose fields are entered in the table, or are there by now.
fn entered(encoder: &mut Encoder, more: &[&str]) -> Vec<u8> {
    let mut out = wire::buffer::Buffer::new(4096);
    encoder.begin(&mut out);
    for line in GET.iter().chain(more) {
        let (name, value) = line.rsplit_once(": ").expect("a colon and a space");
        encoder.field(name.as_bytes(), value.as_bytes(), Secrecy::Open, &mut out);
    }
    out.filled().to_vec()
}

#[test]
fn both_tables_are_kept() {
    let mut side = Side::server();
    side.is_moved = true;
    let mut encoder = Encoder::new(4096);
    let mut lens = Vec::new();
    for n in 0..4 {
        let stream = 2 * n + 1;
        let block = entered(&mut encoder, &["user-agent: a long name of an agent", "x-a: b"]);
        let request = frame("HEADERS", END_STREAM | END_HEADERS, stream, &block);
        let expected =
            format!("request {stream} GET / user-agent=a long name of an agent x-a=b end");
        assert_eq!(side.hear(&request), Ok(vec![expected]));
        let fields: [(&[u8], &[u8]); 2] = [(b"server", b"strait"), (b"x-few", b"some value")];
        assert!(side.h2.send_reply(stream, 200, &fields, None, true, &mut side.out));
        lens.push((block.len(), side.said()));
    }
    assert!(lens[0].0 > lens[3].0 && lens[2].0 == lens[3].0, "{lens:?}");
    assert_eq!(lens[3].1, ["HEADERS 7 3 end"], "three indices");
    assert_eq!(lens[1].1, ["HEADERS 3 21 end"]);
}

#[test]
fn a_header_block_goes_on_in_its_middle() {
    let mut input = Vec::new();
    let block = block(&[&GET[..], &["x-a: 1", "cookie: c=d"]].concat());
    for (place, piece) in block.chunks(5).enumerate() {
        let is_last = (place + 1) * 5 >= block.len();
        let flags = if is_last { END_HEADERS } else { 0 };
        let kind = if place == 0 { "HEADERS" } else { "CONTINUATION" };
        input.extend(frame(kind, flags, 1, piece));
    }
    input.extend(data(1, END_STREAM, b"body"));
    let mut side = Side::server();
    side.is_moved = true;
    let mut heard = Vec::new();
    for octet in &input {
        heard.extend(side.hear(&[*octet]).unwrap());
    }
    let pieces = ["data 1 \"b\"", "data 1 \"o\"", "data 1 \"d\"", "data 1 \"y\" end"];
    assert_eq!(heard[0], "request 1 GET / x-a=1 cookie=c=d");
    assert_eq!(heard[1..], pieces);
}

#[test]
fn windows_halves_and_accounts_are_kept() {
    let limits = Limits { work_max: 1_000, ..Limits::default() };
    let mut side = Side::server_with(limits);
    side.is_moved = true;
    side.takes_data = false;
    // Half-closed from both sides, and a window below zero.
    side.hear(&[settings(&[(4, 10)]), get(1), post(3)].concat()).unwrap();
    for stream in [1, 3] {
        assert!(side.h2.send_reply(stream, 200, &[], None, false, &mut side.out));
    }
    assert!(side.send_data(3, b"1234567890", true) && side.send_data(1, b"123456", false));
    side.hear(&settings(&[(4, 0)])).unwrap();
    side.hear(&data(3, 0, &[b'x'; 16_384])).unwrap();
    side.said();
    assert_eq!(side.hear(&window_update(1, 6)), Ok(Vec::new()));
    assert_eq!(side.hear(&window_update(1, 2)), Ok(lines(&["window 1"])));
    assert_eq!(side.h2.sendable(1), 2);
    side.h2.on_taken(3, 16_384);
    side.hear(&data(3, 0, &[b'x'; 16_384])).unwrap();
    side.h2.on_taken(3, 16_384);
    assert_eq!(side.said(), ["WINDOW_UPDATE 3 32768"]);
    assert_eq!(side.hear(&data(3, END_STREAM, b"")), Ok(lines(&["end 3"])));
    assert_eq!(side.h2.streams().collect::<Vec<_>>(), [1]);
    let mut n = 5;
    let error = loop {
        let attack = [get(n), reset(n, ErrorCode::CANCEL)].concat();
        if let Err(error) = side.hear(&attack) {
            break error;
        }
        n += 2;
    };
    assert_eq!(error, wire::h2::ConnectionError::TooMuchWork(Work::Reset));
}

#[test]
fn what_waits_to_be_written_is_kept() {
    let mut side = Side::server();
    side.hear(&[get(1), settings(&[]), frame("PING", 0, 0, b"12345678")].concat()).unwrap();
    side.h2.reset(1, ErrorCode::CANCEL);
    side.h2.drain();
    side.h2.ping(*b"abcdefgh");
    side.h2 = saved(&side.h2);
    let expected = [
        "SETTINGS ack",
        "GOAWAY 2147483647 NO_ERROR",
        "PING ack 12345678",
        "RST_STREAM 1 CANCEL",
        "PING abcdefgh",
    ];
    assert_eq!(side.said(), expected);
    side.h2 = saved(&side.h2);
    assert!(!side.h2.has_control());
}

#[test]
fn an_idle_connection_is_small() {
    let mut side = Side::server();
    let idle = postcard::to_stdvec(&side.h2).unwrap().len();
    assert!(idle < 120, "{idle} bytes written down");
    assert!(size_of_val(&side.h2) <= 600, "{} bytes", size_of_val(&side.h2));
    for n in 0..100 {
        side.hear(&get(2 * n + 1)).unwrap();
    }
    for n in 0..100 {
        side.answer(2 * n + 1, 200);
    }
    side.said();
    side.h2.on_idle();
    let idle_again = postcard::to_stdvec(&side.h2).unwrap().len();
    assert!(idle_again < idle + 20, "{idle_again} bytes written down");
}

/// A frame of some sense.
fn sensible_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => (0u32..6).prop_map(|n| 2 * n + 1), 1 => 0u32..12];
    let flags = prop_oneof![Just(0u8), Just(END_STREAM), Just(END_STREAM | PADDED)];
    let code = prop_oneof![Just(ErrorCode::CANCEL), Just(ErrorCode::NO_ERROR)];
    let text = vec(any::<u8>(), 0..30);
    let line = prop_oneof![
        "x-[a-c]: [a-z]{0,9}",
        "cookie: [a-z]{0,5}",
        "content-length: [0-3]",
        "te: trailers",
        "host: [ab]",
        "(connection|X-Y|:late): x",
    ];
    let pseudo = prop_oneof![
        4 => Just(GET.map(str::to_owned).to_vec()),
        2 => Just(POST.map(str::to_owned).to_vec()),
        2 => Just(vec![":status: 200".to_owned()]),
        1 => Just(vec![":status: 103".to_owned()]),
        1 => Just(vec![]),
        1 => "(/[a.%2]{0,6}|\\*)".prop_map(|path| {
            let [method, scheme, _, authority] = GET.map(str::to_owned);
            vec![method, scheme, format!(":path: {path}"), authority]
        }),
    ];
    let message = (stream.clone(), flags.clone(), pseudo, vec(line, 0..4), 0usize..60).prop_map(
        |(stream, flags, pseudo, lines, cut)| {
            let all: Vec<String> = [pseudo, lines].concat();
            let block = block(&all.iter().map(String::as_str).collect::<Vec<_>>());
            let flags = flags & END_STREAM;
            if cut >= block.len() || cut % 2 == 0 {
                return frame("HEADERS", flags | END_HEADERS, stream, &block);
            }
            let (front, back) = block.split_at(cut);
            let front = frame("HEADERS", flags, stream, front);
            [front, frame("CONTINUATION", END_HEADERS, stream, back)].concat()
        },
    );
    prop_oneof![
        8 => message,
        4 => (stream.clone(), flags, text).prop_map(|(s, flags, text)| data(s, flags, &text)),
        2 => (stream.clone(), code).prop_map(|(s, code)| reset(s, code)),
        1 => (stream.clone(), 0u32..50).prop_map(|(s, n)| window_update(s, n)),
        1 => (1u16..6, 0u32..40_000).prop_map(|(id, n)| settings(&[(id, n)])),
        1 => Just(ack()),
        1 => Just(frame("PING", 0, 0, b"12345678")),
        1 => (0u32..9, vec(any::<u8>(), 0..90))
            .prop_map(|(last, text)| goaway(last, ErrorCode::NO_ERROR, &text)),
        1 => (stream, 0u32..9)
            .prop_map(|(s, on)| frame("PRIORITY", 0, s, &[&on.to_be_bytes()[..], &[1]].concat())),
        1 => (10u8..20, vec(any::<u8>(), 0..40))
            .prop_map(|(kind, text)| frame(&kind.to_string(), 0, 0, &text)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_cut_and_no_move_changes_anything(
        how in any::<u8>(),
        frames in vec(sensible_frame(), 1..12),
    ) {
        h2_connection::check(&[&[how | 1], &frames.concat()[..]].concat());
    }

    #[test]
    fn damaged_frames_are_no_worse(
        how in any::<u8>(),
        frames in vec(sensible_frame(), 1..6),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut input = frames.concat();
        for (place, octet) in damage {
            let place = place.index(input.len());
            input[place] = octet;
        }
        h2_connection::check(&[&[how | 1], &input[..]].concat());
    }
}
