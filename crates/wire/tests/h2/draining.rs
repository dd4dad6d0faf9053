//! How a connection comes to its end, from either side.

use wire::h1::{Scan, decode_request};
use wire::h2::{ErrorCode, RequestForm, Scheme};
use wire::head::HeadIndex;

use super::kit::*;

fn ask(side: &mut Side) -> Option<u32> {
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let text = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let head = decode_request(text, &mut scan, &side.limits.head, &mut index);
    let (head, _) = head.unwrap().unwrap();
    side.h2.send_request(&head, Scheme::Http, RequestForm::Same, true, &mut side.out)
}

#[test]
fn a_server_ends_in_two_phases_and_loses_no_request() {
    let mut side = Side::server();
    side.hear(&get(1)).unwrap();
    side.h2.drain();
    side.h2.drain();
    assert_eq!(side.said(), ["GOAWAY 2147483647 NO_ERROR"]);
    // Sent before the client knew.
    assert_eq!(side.hear(&get(3)), Ok(lines(&["request 3 GET / end"])));
    side.h2.go_away(ErrorCode::NO_ERROR);
    side.h2.go_away(ErrorCode::NO_ERROR);
    assert_eq!(side.said(), ["GOAWAY 3 NO_ERROR"]);
    // Sent although it knew, or might.
    let late = [get(5), data(5, END_STREAM, b"")].concat();
    assert_eq!(side.hear(&late), Ok(lines(&["failed 5 Refused"])));
    assert_eq!(side.said(), ["RST_STREAM 5 REFUSED_STREAM"]);
    assert!(side.answer(1, 200));
    assert!(!side.h2.is_finished());
    assert!(side.answer(3, 200));
    assert!(side.h2.is_finished());
}

#[test]
fn a_drain_that_is_not_final_leaves_the_connection_open() {
    let mut side = Side::server();
    side.h2.drain();
    side.said();
    assert!(!side.h2.is_finished(), "a request may be on its way");
    side.h2.go_away(ErrorCode::NO_ERROR);
    assert!(!side.h2.is_finished(), "it has to be written");
    side.said();
    assert!(side.h2.is_finished());
}

#[test]
fn the_caller_may_end_it_with_a_code() {
    let mut side = Side::server();
    side.hear(&get(1)).unwrap();
    side.h2.go_away(ErrorCode::ENHANCE_YOUR_CALM);
    assert_eq!(side.said(), ["GOAWAY 1 ENHANCE_YOUR_CALM"]);
    side.h2.go_away(ErrorCode::NO_ERROR);
    assert_eq!(side.said(), Vec::<String>::new());
}

#[test]
fn a_failed_connection_names_the_last_request_that_it_took() {
    let mut side = Side::server();
    side.hear(&[get(1), get(7)].concat()).unwrap();
    side.hear(&frame("PING", 0, 1, &[0; 8])).unwrap_err();
    assert_eq!(side.said(), ["GOAWAY 7 PROTOCOL_ERROR"]);
    assert!(side.h2.has_peer_settings() && side.h2.is_finished());
}

#[test]
fn a_client_learns_which_requests_may_be_sent_again() {
    let mut side = Side::client();
    assert_eq!([ask(&mut side), ask(&mut side), ask(&mut side)], [Some(1), Some(3), Some(5)]);
    side.said();
    // The first phase closes nothing, but there is nothing new.
    let first = goaway(0x7fff_ffff, ErrorCode::NO_ERROR, b"");
    assert_eq!(side.hear(&first), Ok(lines(&["goaway 2147483647 NO_ERROR \"\""])));
    assert_eq!((side.h2.free_slots(), ask(&mut side)), (0, None));
    assert_eq!(side.h2.open_streams(), 3);
    let second = goaway(3, ErrorCode::NO_ERROR, b"maintenance");
    assert_eq!(side.hear(&second), Ok(lines(&["goaway 3 NO_ERROR \"maintenance\""])));
    assert_eq!(side.h2.streams().collect::<Vec<_>>(), [1, 3]);
    // It cannot be taken back.
    assert_eq!(
        side.hear(&goaway(5, ErrorCode::NO_ERROR, b"")),
        Ok(lines(&["goaway 3 NO_ERROR \"\""]))
    );
    let answers =
        [headers(1, END_STREAM, &[":status: 200"]), headers(3, END_STREAM, &[":status: 200"])];
    side.hear(&answers.concat()).unwrap();
    assert!(side.h2.is_finished());
}

#[test]
fn slots_follow_what_the_server_allows() {
    let mut side = Side::client();
    assert_eq!(side.h2.free_slots(), 100, "our own bound");
    side.hear(&settings(&[(3, 2)])).unwrap();
    assert_eq!(side.h2.free_slots(), 2);
    assert_eq!([ask(&mut side), ask(&mut side), ask(&mut side)], [Some(1), Some(3), None]);
    side.hear(&headers(1, END_STREAM, &[":status: 200"])).unwrap();
    assert_eq!((side.h2.free_slots(), ask(&mut side)), (1, Some(5)));
    side.hear(&settings(&[(3, 0)])).unwrap();
    assert_eq!(side.h2.free_slots(), 0);
    assert_eq!(side.h2.open_streams(), 2);
}

#[test]
fn a_client_that_drains_opens_nothing_more() {
    let mut side = Side::client();
    ask(&mut side);
    side.said();
    side.h2.go_away(ErrorCode::NO_ERROR);
    // A server that took it for the end would not answer.
    assert!(side.said().is_empty());
    assert_eq!(ask(&mut side), None);
    assert_eq!(
        side.hear(&headers(1, END_STREAM, &[":status: 200"])),
        Ok(lines(&["response 1 200 end"]))
    );
    assert!(side.h2.is_finished());

    let mut side = Side::client();
    side.said();
    side.h2.go_away(ErrorCode::NO_ERROR);
    assert_eq!(side.said(), ["GOAWAY 0 NO_ERROR"], "nothing is under way");
}

#[test]
fn a_goaway_that_ends_a_connection_in_error_says_why() {
    for (input, text) in [
        (data(1, 0, b"x"), "a frame on an idle stream"),
        (frame("PUSH_PROMISE", 0, 1, &[0; 4]), "a push, although pushes are disabled"),
        (settings(&[]).repeat(600), "the peer does not read the replies to its frames"),
        (frame("HEADERS", END_HEADERS, 1, &[0x80]), "in a header block: an index without an entry"),
    ] {
        let mut side = Side::server();
        side.hear(&input).unwrap_err();
        let said = side.said_bytes();
        assert!(said.ends_with(text.as_bytes()), "{text}: {}", said.escape_ascii());
        assert!(text.len() <= 64 && text.is_ascii());
    }
    // One that ends it in order has nothing to say.
    let mut side = Side::server();
    side.h2.go_away(ErrorCode::NO_ERROR);
    assert_eq!(side.said_bytes().len(), 17);
}
