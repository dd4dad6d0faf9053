//! Published attacks, and honest peers that look a little like them.

use wire::h2::{ConnectionError, ErrorCode, Limits, Work};

use super::kit::*;

/// Sends what `piece` makes, again and again, until the connection ends, and says why and after
/// how many.
#[track_caller]
fn endured(side: &mut Side, mut piece: impl FnMut(u32) -> Vec<u8>) -> (ConnectionError, u32) {
    for n in 0..100_000 {
        let heard = match side.hear(&piece(n)) {
            Ok(heard) => heard,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::ENHANCE_YOUR_CALM, "{error:?}");
                let said = side.said();
                assert_eq!(said.last().map(|last| last.contains("ENHANCE_YOUR_CALM")), Some(true));
                return (error, n);
            }
        };
        // Answers every request that can be answered, as the proxy does.
        for malformed in heard.iter().filter_map(|line| line.strip_prefix("malformed ")) {
            let stream = malformed.split(' ').next().expect("a number").parse().unwrap();
            assert!(side.answer(stream, 400));
            side.h2.reset(stream, ErrorCode::NO_ERROR);
        }
        side.said();
    }
    panic!("it goes on for ever");
}

fn too_much(work: Work) -> ConnectionError {
    ConnectionError::TooMuchWork(work)
}

#[test]
fn rapid_reset_ends_the_connection() {
    let attack = |n: u32| [get(2 * n + 1), reset(2 * n + 1, ErrorCode::CANCEL)].concat();
    let (error, n) = endured(&mut Side::server(), attack);
    assert_eq!(error, too_much(Work::Reset));
    assert_eq!(n, 500);
    // At a rate that time forgives it may go on.
    let mut side = Side::server();
    for n in 0..2_000 {
        side.hear(&attack(n)).expect("25 a second are nothing");
        if n % 25 == 24 {
            side.h2.on_time(1_000);
        }
    }
}

#[test]
fn resets_of_what_ran_for_a_while_are_no_attack() {
    // 90 calls at a time, each cancelled after a second.
    let mut side = Side::server();
    let mut id = 1;
    for _ in 0..600 {
        let streams: Vec<u32> = (0..90).map(|n| id + 2 * n).collect();
        id += 180;
        for &stream in &streams {
            side.hear(&get(stream)).unwrap();
        }
        side.h2.on_time(1_000);
        for &stream in &streams {
            side.hear(&reset(stream, ErrorCode::CANCEL)).expect("they held their streams");
        }
        side.said();
    }
    // 10 at a time with deadlines of 70 ms, 143 a second.
    let mut side = Side::server();
    for n in 0..60_000 {
        side.hear(&get(2 * n + 1)).unwrap();
        side.h2.on_time(7);
        if let Some(stream) = (2 * n + 1).checked_sub(20) {
            side.hear(&reset(stream, ErrorCode::CANCEL)).expect("70 ms are no time for an attack");
        }
    }
}

#[test]
fn waiting_just_long_enough_gains_no_more_than_the_streams_that_it_holds() {
    // All streams at once, held until a reset is no longer early: as many as a client may ask for.
    let mut side = Side::server();
    let mut id = 1;
    for _ in 0..10_000 {
        let streams: Vec<u32> = (0..100).map(|n| id + 2 * n).collect();
        id += 200;
        for &stream in &streams {
            side.hear(&get(stream)).unwrap();
        }
        side.h2.on_time(40);
        for &stream in &streams {
            side.hear(&reset(stream, ErrorCode::CANCEL)).expect("2,500 a second");
        }
        side.said();
    }
    // A millisecond less, and it ends as if they were reset at once.
    let mut side = Side::server();
    let (mut id, mut cancelled) = (1, 0);
    let error = 'end: loop {
        let streams: Vec<u32> = (0..100).map(|n| id + 2 * n).collect();
        id += 200;
        for &stream in &streams {
            side.hear(&get(stream)).unwrap();
        }
        side.h2.on_time(39);
        for &stream in &streams {
            if let Err(error) = side.hear(&reset(stream, ErrorCode::CANCEL)) {
                break 'end error;
            }
            cancelled += 1;
        }
        side.said();
    };
    assert_eq!((error, cancelled), (too_much(Work::Reset), 500));
    // Where more streams are allowed, the budget bounds them: 2,500 a second, and 50,000 once.
    let mut side = Side::server_with(Limits { streams_max: 1_000, ..Limits::default() });
    let (mut id, mut cancelled) = (1, 0);
    let error = 'end: loop {
        let streams: Vec<u32> = (0..1_000).map(|n| id + 2 * n).collect();
        id += 2_000;
        for &stream in &streams {
            side.hear(&get(stream)).unwrap();
        }
        side.h2.on_time(40);
        for &stream in &streams {
            if let Err(error) = side.hear(&reset(stream, ErrorCode::CANCEL)) {
                break 'end error;
            }
            cancelled += 1;
        }
        side.said();
    };
    assert_eq!(error, too_much(Work::Cancel));
    assert_eq!(cancelled, 55_000, "50,000, and two seconds' worth");
}

#[test]
fn making_the_server_reset_is_no_better() {
    // A stream that is opened well and then broken.
    let by_window = |n: u32| [get(2 * n + 1), window_update(2 * n + 1, 0)].concat();
    let by_length = |n: u32| {
        let head = headers_and(2 * n + 1, 0, &POST, &["content-length: 1"]);
        [head, data(2 * n + 1, END_STREAM, b"ab")].concat()
    };
    let by_head = |n: u32| headers_and(2 * n + 1, END_STREAM, &GET, &["connection: x"]);
    let by_data = |n: u32| [get(2 * n + 1), data(2 * n + 1, END_STREAM, b"")].concat();
    for attack in [&by_window as &dyn Fn(u32) -> Vec<u8>, &by_length, &by_head, &by_data] {
        let (error, n) = endured(&mut Side::server(), attack);
        assert_eq!(error, too_much(Work::Reset));
        assert!(n <= 500, "{n}");
    }
}

#[test]
fn a_client_that_cancels_every_other_request_passes() {
    let mut side = Side::server();
    for n in 0..20_000 {
        let (kept, cancelled) = (4 * n + 1, 4 * n + 3);
        side.hear(&[get(kept), get(cancelled)].concat()).unwrap();
        side.hear(&reset(cancelled, ErrorCode::CANCEL)).unwrap();
        assert!(side.answer(kept, 200));
        side.said();
    }
}

#[test]
fn a_client_that_closes_all_its_tabs_passes() {
    let mut side = Side::server();
    for n in 0..4u32 {
        let streams = (100 * n..100 * (n + 1)).map(|n| 2 * n + 1);
        for stream in streams.clone() {
            side.hear(&get(stream)).unwrap();
        }
        for stream in streams {
            side.hear(&reset(stream, ErrorCode::CANCEL)).unwrap();
        }
    }
}

#[test]
fn uploads_that_are_cut_short_after_the_answer_are_paid_for() {
    let mut side = Side::server();
    for n in 0..2_000 {
        let stream = 2 * n + 1;
        side.hear(&post(stream)).unwrap();
        assert!(side.answer(stream, 413));
        if n % 2 == 0 {
            side.h2.reset(stream, ErrorCode::NO_ERROR);
        } else {
            side.hear(&reset(stream, ErrorCode::CANCEL)).unwrap();
        }
        side.said();
    }
}

#[test]
fn a_flood_of_continuations_ends_the_connection() {
    let open = frame("HEADERS", END_STREAM, 1, &block(&GET));
    for piece in [&b""[..], b"\x00", &block(&["x-a: 1"])] {
        let mut side = Side::server();
        side.hear(&open).unwrap();
        let (error, n) = endured(&mut side, |_| frame("CONTINUATION", 0, 1, piece));
        assert_eq!(error, too_much(Work::Continuation));
        assert_eq!(n, 1000);
    }
    // Full frames run into the bound on what is gathered.
    let mut side = Side::server();
    side.hear(&open).unwrap();
    let full = block(&[format!("x-a: {}", "x".repeat(16_000)).as_str()]);
    let (error, n) = endured(&mut side, |_| frame("CONTINUATION", 0, 1, &full));
    assert_eq!(error, ConnectionError::HeaderBlockTooLarge);
    assert_eq!(n, 8);
}

/// A request whose only entry in the table is `name: value`, and one octet says it again.
fn bomb(stream: u32, name: &str, value_len: usize, times: usize) -> Vec<u8> {
    let mut block = block(&GET);
    if stream == 1 {
        let mut field = Vec::new();
        literal(name, &"x".repeat(value_len), &mut field);
        field[0] = 0x40;
        block.extend(field);
    }
    block.extend(vec![0xbe; times]);
    frame("HEADERS", END_STREAM | END_HEADERS, stream, &block)
}

#[test]
fn a_header_bomb_is_defused_and_ends_the_connection() {
    // 12,000 octets that say 48 MB.
    for name in ["x-bomb", "cookie", "te"] {
        let mut side = Side::server();
        let (error, n) = endured(&mut side, |n| bomb(2 * n + 1, name, 4000, 12_000));
        assert_eq!((error, n), (too_much(Work::Expansion), 0), "{name}");
        assert!(side.scratch.block.len() <= 64 << 10);
    }
    // Below the limit of a head, 65 octets that say 60 KB, over and over.
    for name in ["x-bomb", "cookie"] {
        let mut side = Side::server();
        let mut n = 0;
        let error = loop {
            match side.hear(&bomb(2 * n + 1, name, 4000, 15)) {
                Ok(_) => assert!(side.answer(2 * n + 1, 200)),
                Err(error) => break error,
            }
            side.said();
            n += 1;
        };
        assert_eq!(error, too_much(Work::Expansion), "{name}");
        assert!(n < 100, "{n}");
    }
    // Crumbs of nothing.
    let (error, n) = endured(&mut Side::server(), |n| bomb(2 * n + 1, "cookie", 0, 16_000));
    assert_eq!(error, too_much(Work::Expansion));
    assert!(n < 50, "{n}");
}

#[test]
fn ninety_cookies_pass_and_are_one_field() {
    let crumbs: Vec<String> = (0..90).map(|n| format!("cookie: name{n}=value{n}")).collect();
    let crumbs: Vec<&str> = crumbs.iter().map(String::as_str).collect();
    let mut side = Side::server();
    for n in 0..1_000 {
        let stream = 2 * n + 1;
        let heard = side.hear(&headers_and(stream, END_STREAM, &GET, &crumbs)).unwrap();
        let [request] = &heard[..] else { panic!("{heard:?}") };
        assert!(
            request.starts_with(&format!("request {stream} GET / cookie=name0=value0; name1="))
        );
        assert!(request.ends_with("; name89=value89 end"));
        side.answer(stream, 200);
        side.said();
    }
    // From the table too, which takes an octet for each.
    let mut side = Side::server();
    let mut first = block(&GET);
    for n in 0..90 {
        let mut crumb = Vec::new();
        literal("cookie", &format!("c{n}"), &mut crumb);
        crumb[0] = 0x40;
        first.extend(crumb);
    }
    let again = [block(&GET), (0xbe..0xbe + 60).collect()].concat();
    for n in 0..1_000 {
        let block = if n == 0 { &first } else { &again };
        let frame = frame("HEADERS", END_STREAM | END_HEADERS, 2 * n + 1, block);
        side.hear(&frame).unwrap();
        side.answer(2 * n + 1, 200);
        side.said();
    }
}

#[test]
fn floods_of_cheap_frames_end_the_connection() {
    for (bytes, work, expected) in [
        (settings(&[(3, 100)]), Work::Settings, 500),
        (settings(&[]), Work::Settings, 500),
        (ack(), Work::Idle, 10_000),
        (frame("PING", 0, 0, &[0; 8]), Work::Ping, 10_000),
        (frame("PING", ACK, 0, &[0; 8]), Work::Ping, 10_000),
        (frame("PRIORITY", 0, 3, &[0; 5]), Work::Priority, 2_500),
        (window_update(0, 1), Work::WindowUpdate, 10_000),
        (window_update(1, 1), Work::WindowUpdate, 10_000),
        (data(1, 0, b""), Work::DataEmpty, 1_000),
        (frame("DATA", PADDED, 1, &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Work::DataEmpty, 1_000),
        (frame("99", 0, 0, b""), Work::Idle, 10_000),
        (goaway(0, ErrorCode::NO_ERROR, b""), Work::Idle, 10_000),
    ] {
        let mut side = Side::server();
        side.hear(&post(1)).unwrap();
        let (error, n) = endured(&mut side, |_| bytes.clone());
        assert_eq!(error, too_much(work));
        assert_eq!(n, expected, "{work:?}");
    }
}

#[test]
fn settings_that_change_the_windows_of_many_streams_cost_by_the_streams() {
    let window = |n: u32| settings(&[(4, 60_000 + n % 2)]);
    for (streams, expected) in [(0, 500), (1, 476), (100, 83)] {
        let mut side = Side::server();
        (0..streams).for_each(|n| drop(side.hear(&post(2 * n + 1)).unwrap()));
        let (error, n) = endured(&mut side, window);
        let work = if streams < 2 { Work::Settings } else { Work::WindowUpdate };
        assert_eq!((error, n), (too_much(work), expected), "{streams}");
    }
    // What changes no window costs no more for them.
    let mut side = Side::server();
    (0..100).for_each(|n| drop(side.hear(&post(2 * n + 1)).unwrap()));
    let (error, n) = endured(&mut side, |_| settings(&[(4, 65_535), (3, 7)]));
    assert_eq!((error, n), (too_much(Work::Settings), 500));
}

#[test]
fn a_peer_that_changes_its_windows_now_and_then_passes() {
    // As one does that measures how much is on its way: a handful of times, whatever is open.
    let limits = Limits { streams_max: 1_000, ..Limits::default() };
    let mut side = Side::server_with(limits);
    (0..1_000).for_each(|n| drop(side.hear(&post(2 * n + 1)).unwrap()));
    for doubled in 0..8 {
        side.hear(&settings(&[(4, 70_000 << doubled)])).unwrap();
        assert_eq!(side.said(), ["SETTINGS ack"]);
    }
    // And for ever, if what is on its way pays for it.
    let piece = data(1, 0, &[b'x'; 10_000]);
    for n in 0..100 {
        for _ in 0..60 {
            side.hear(&piece).unwrap();
            side.said();
        }
        side.hear(&settings(&[(4, 60_000 + n % 2)])).unwrap();
        side.said();
        side.h2.on_time(1_000);
    }
}

#[test]
fn data_pays_for_no_attack() {
    // Ten messages as small as they earn anything, and then what costs the same as ever.
    let message = data(1, 0, b"\0\0\0\0\0").repeat(10);
    type Attack = fn(u32) -> Vec<u8>;
    let attacks: [(Attack, Work, u32); 4] = [
        (|n| [get(2 * n + 3), reset(2 * n + 3, ErrorCode::CANCEL)].concat(), Work::Reset, 500),
        (|_| settings(&[]), Work::Settings, 500),
        (|n| frame("PRIORITY", 0, 2 * n + 3, &[0; 5]), Work::Priority, 2_500),
        (|_| data(1, 0, b""), Work::DataEmpty, 1_000),
    ];
    for (attack, work, expected) in attacks {
        let mut side = Side::server();
        side.hear(&post(1)).unwrap();
        let (error, n) = endured(&mut side, |n| [message.clone(), attack(n)].concat());
        assert_eq!((error, n), (too_much(work), expected));
    }
    // Data on a closed stream earns nothing, and costs.
    let mut side = Side::server();
    side.hear(&post(1)).unwrap();
    side.h2.reset(1, ErrorCode::NO_ERROR);
    let (error, n) = endured(&mut side, |_| data(1, 0, &[b'x'; 1_000]));
    assert_eq!((error, n), (too_much(Work::Idle), 10_000));
}

#[test]
fn a_request_that_is_answered_pays_for_one_reset() {
    let mut side = Side::server();
    let attack = |n: u32| {
        let (first, second) = (6 * n + 1, 6 * n + 3);
        let pair = [first, second].map(|id| [get(id), reset(id, ErrorCode::CANCEL)].concat());
        pair.concat()
    };
    for n in 0..499 {
        side.hear(&attack(n)).expect("one of two is paid for");
        side.hear(&get(6 * n + 5)).unwrap();
        assert!(side.answer(6 * n + 5, 200));
        side.said();
    }
    assert_eq!(side.hear(&attack(499)), Err(too_much(Work::Reset)));
}

#[test]
fn many_answers_at_once_are_to_be_written_before_more_is_read() {
    let mut side = Side::server();
    side.hear(&frame("PING", 0, 0, &[7; 8]).repeat(15)).unwrap();
    assert!(!side.h2.owes_many_answers());
    side.hear(&frame("PING", 0, 0, &[7; 8])).unwrap();
    assert!(side.h2.owes_many_answers());
    assert_eq!(side.said().len(), 16);
    assert!(!side.h2.owes_many_answers());
}

#[test]
fn answers_that_nobody_reads_are_bounded() {
    let ping = frame("PING", 0, 0, b"12345678");
    for (frame, count) in [(ping, 32), (settings(&[]), 16)] {
        let mut side = Side::server();
        side.hear(&frame.repeat(count)).unwrap();
        assert_eq!(side.hear(&frame), Err(ConnectionError::AnswersUndelivered));
        assert_eq!(side.said(), ["GOAWAY 0 ENHANCE_YOUR_CALM"]);
    }
    let mut side = Side::server_with(Limits { streams_max: 0, ..Limits::default() });
    for n in 0..256 {
        side.hear(&get(2 * n + 1)).unwrap();
    }
    assert_eq!(side.hear(&get(601)), Err(ConnectionError::AnswersUndelivered));
}

#[test]
fn a_keystroke_a_frame_passes() {
    let mut side = Side::server();
    side.hear(&post(1)).unwrap();
    for _ in 0..50_000 {
        side.hear(&data(1, 0, b"x")).unwrap();
        side.said();
    }
}

#[test]
fn a_chat_in_small_messages_passes() {
    // As gRPC has them: each at least five octets, with a ping and window updates now and then.
    let mut side = Side::server();
    side.hear(&post(1)).unwrap();
    assert!(side.h2.send_reply(1, 200, &[], None, false, &mut side.out));
    for _ in 0..50_000 {
        let message = [
            data(1, 0, b"\0\0\0\0\0"),
            frame("PING", 0, 0, &[7; 8]),
            window_update(0, 5),
            window_update(1, 5),
        ];
        side.hear(&message.concat()).unwrap();
        assert!(side.send_data(1, b"\0\0\0\0\0", false));
        side.said();
    }
}

#[test]
fn a_window_opened_by_single_octets_ends_the_connection() {
    let mut side = Side::server();
    side.hear(&settings(&[(4, 0)])).unwrap();
    side.h2.on_time(1_000);
    side.hear(&get(1)).unwrap();
    assert!(side.h2.send_reply(1, 200, &[], None, false, &mut side.out));
    let mut sent = 0;
    let error = loop {
        match side.hear(&window_update(1, 1)) {
            Ok(heard) => assert_eq!(heard, ["window 1"]),
            Err(error) => break error,
        }
        assert_eq!(side.h2.sendable(1), 1);
        assert!(side.send_data(1, b"x", false));
        side.said();
        sent += 1;
    };
    assert_eq!((error, sent), (too_much(Work::WindowUpdate), 10_000));
}

#[test]
fn a_window_that_is_never_opened_costs_nothing_here() {
    // What it holds is the caller's to end, by a deadline: `sendable` says that nothing can go.
    let mut side = Side::server();
    side.hear(&settings(&[(4, 0)])).unwrap();
    let streams: Vec<_> = (0..100).map(|n| 2 * n + 1).collect();
    for &stream in &streams {
        side.hear(&get(stream)).unwrap();
        assert!(side.h2.send_reply(stream, 200, &[], None, false, &mut side.out));
        assert_eq!(side.h2.sendable(stream), 0);
    }
    side.said();
    for &stream in &streams {
        side.h2.reset(stream, ErrorCode::CANCEL);
    }
    assert_eq!(side.said().len(), 100);
    assert_eq!(side.h2.open_streams(), 0);
}

#[test]
fn a_server_may_say_no_as_often_as_it_likes() {
    use wire::h1::{Scan, decode_request};
    use wire::h2::{RequestForm, Scheme};
    use wire::head::HeadIndex;

    let mut side = Side::client();
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let text = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let head = decode_request(text, &mut scan, &side.limits.head, &mut index);
    let (head, _) = head.unwrap().unwrap();
    for _ in 0..2_000 {
        let form = RequestForm::Same;
        let stream = side.h2.send_request(&head, Scheme::Http, form, true, &mut side.out).unwrap();
        let expected = format!("reset {stream} REFUSED_STREAM");
        assert_eq!(side.hear(&reset(stream, ErrorCode::REFUSED_STREAM)), Ok(vec![expected]));
        side.out.clear();
    }
}
