//! Properties of gRPC: messages, segments and trailers made from parts, whole and damaged.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use wire::grpc::web::Encoding;
use wire::grpc::{MessageCounter, encode_timeout, parse_timeout};

#[path = "checks/grpc.rs"]
mod checks;

fn octets() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

/// Segments of a text, each padded for itself.
fn text(segments: &[Vec<u8>]) -> Vec<u8> {
    segments.iter().map(|segment| STANDARD.encode(segment)).collect::<String>().into_bytes()
}

/// Messages with their prefixes.
fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    for message in messages {
        let len = u32::try_from(message.len()).expect("messages are short");
        body.push(u8::from(message.first().is_some_and(|octet| octet % 2 == 1)));
        body.extend_from_slice(&len.to_be_bytes());
        body.extend_from_slice(message);
    }
    body
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_body_has_the_messages_that_it_was_made_of(messages in vec(octets(), 0..8)) {
        let body = framed(&messages);
        checks::check(&body);
        let mut counter = MessageCounter::default();
        counter.on_data(&body);
        prop_assert_eq!(counter.messages(), messages.len() as u64);
        prop_assert!(counter.is_between_messages());
    }

    #[test]
    fn a_text_holds_its_segments(segments in vec(octets(), 0..8)) {
        let text = text(&segments);
        checks::check(&text);
        prop_assert_eq!(checks::request(&[&text]), (segments.concat(), Ok(())));
    }

    #[test]
    fn a_damaged_text_holds(
        segments in vec(octets(), 0..4),
        place in any::<Index>(),
        octet in prop_oneof![select(b"=A/+ \r\n-_".to_vec()), any::<u8>()],
        is_inserted in any::<bool>(),
    ) {
        let mut text = text(&segments);
        let at = place.index(text.len() + 1);
        if is_inserted || at == text.len() {
            text.insert(at, octet);
        } else {
            text[at] = octet;
        }
        checks::check(&text);
        text.truncate(at);
        checks::check(&text);
    }

    #[test]
    fn a_response_holds(
        body in octets(),
        lines in vec(("[A-Za-z][a-zA-Z0-9-]{0,9}-bin", "[ \t]{0,2}", "[!-~]{0,20}"), 0..5),
    ) {
        let section: String =
            lines.iter().map(|(name, space, value)| format!("{name}:{space}{value}\r\n")).collect();
        checks::check(section.as_bytes());
        for encoding in [Encoding::Binary, Encoding::Text] {
            checks::check_response(encoding, &body, Some(section.as_bytes()));
        }
    }

    #[test]
    fn a_timeout_is_written_as_no_less_and_hardly_more(
        nanos in any::<u64>(),
        bits in 0..64u32,
        seconds in any::<u64>(),
    ) {
        checks::check_timeout(Duration::from_nanos(nanos >> bits));
        checks::check_timeout(Duration::from_secs(seconds >> bits));
    }

    #[test]
    fn what_reads_as_a_timeout_is_written_as_the_same_time(value in "[1-9][0-9]{0,7}[HMSmun]") {
        let timeout = parse_timeout(value.as_bytes()).unwrap();
        let again = parse_timeout(encode_timeout(timeout).as_bytes());
        prop_assert!(again.is_some_and(|again| again >= timeout));
    }

    #[test]
    fn a_field_value_holds(
        value in "[aA]pplication/gr[pP]c(-web)?(-text)?(-base64)?(\\+[a-z+]{0,4})?[ ;,]{0,2}[a-z=]{0,3}",
    ) {
        checks::check(value.as_bytes());
    }

    #[test]
    fn anything_holds(bytes in vec(any::<u8>(), 0..60)) {
        checks::check(&bytes);
    }
}
