//! Properties of gRPC and gRPC-Web, for any bytes.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the property
//! tests: no cut into pieces changes what a machine says, also when it is saved between two pieces;
//! base64 is what another implementation makes of it; and what is written is read again as the
//! same.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::buffer::Buffer;
use wire::grpc::health::{HealthError, decode_response, encode_request};
use wire::grpc::web::{
    Encoding, RequestDecoder, ResponseEncoder, data_len_max, response_encoding, trailers_len_max,
};
use wire::grpc::{
    GrpcVariant, MESSAGE_PREFIX_LEN, MessageCounter, Status, TextError, convert_content_type,
    decode_message, encode_message, encode_timeout, is_grpc, parse_timeout,
};
use wire::h1::{BodyDecoder, BodyElement, BodyLimits};
use wire::head::Framing;

/// Checks everything on `data`: as the value of each field, as a body, and as a trailer section.
pub(crate) fn check(data: &[u8]) {
    check_content_type(data);
    check_message(data);
    if let Some(timeout) = parse_timeout(data) {
        check_timeout(timeout);
    }
    if let Some(status) = Status::parse(data) {
        assert_eq!(status.digits().as_bytes(), data);
    }
    check_counts(data);
    check_request(data);
    check_health(data);
    for encoding in [Encoding::Binary, Encoding::Text] {
        check_response(encoding, data, trailer_section(data).as_deref());
    }
}

/// Checks that a timeout is written as no less and hardly more.
pub(crate) fn check_timeout(timeout: Duration) {
    let text = encode_timeout(timeout);
    let written = parse_timeout(text.as_bytes()).expect("what was written can be read");
    let longest = Duration::from_secs(99_999_999 * 3600);
    let least = timeout.clamp(Duration::from_nanos(1), longest);
    assert!(written >= least, "{timeout:?} as {text:?}");
    assert!(written - least <= least / 100_000, "{timeout:?} as {text:?}");
}

/// Checks that the kind of a content type can be changed and changed back.
fn check_content_type(value: &[u8]) {
    let _ = response_encoding(Encoding::Text, value);
    for kind in [GrpcVariant::Grpc, GrpcVariant::Web, GrpcVariant::WebText] {
        let mut converted = Vec::new();
        let was_grpc = convert_content_type(value, kind, &mut converted);
        assert_eq!(was_grpc, is_grpc(value).is_some(), "{}", value.escape_ascii());
        if was_grpc {
            assert_eq!(is_grpc(&converted), Some(kind), "{}", value.escape_ascii());
            let mut again = Vec::new();
            assert!(convert_content_type(&converted, kind, &mut again));
            assert_eq!(again, converted);
        } else {
            assert_eq!(converted, b"");
        }
    }
}

/// Checks that any message can be written as a field value and read again.
fn check_message(message: &[u8]) {
    let mut value = Vec::new();
    encode_message(message, &mut value);
    assert!(value.len() <= 3 * message.len());
    assert!(value.iter().all(|octet| matches!(octet, b' '..=b'~')), "{}", value.escape_ascii());
    assert_eq!(value.trim_ascii(), value);
    let mut back = Vec::new();
    decode_message(&value, &mut back);
    assert_eq!(back, message, "{}", value.escape_ascii());
    // One that comes from a peer may be anything.
    back.clear();
    decode_message(message, &mut back);
    assert!(back.len() <= message.len());
}

/// Checks that no cut changes the count of messages.
fn check_counts(body: &[u8]) {
    let expected = messages(body);
    for_each_cut(body, |pieces| {
        let mut counter = MessageCounter::default();
        for piece in pieces {
            counter.on_data(piece);
            counter = saved(&counter);
        }
        let counted = (counter.messages(), counter.is_between_messages());
        assert_eq!(counted, expected, "{} pieces of {}", pieces.len(), body.escape_ascii());
    });
}

/// Whole messages in a body, and whether it ends with one.
fn messages(body: &[u8]) -> (u64, bool) {
    let mut rest = body;
    let mut messages = 0;
    while let Some((&[flag, a, b, c, d], behind)) = rest.split_first_chunk::<MESSAGE_PREFIX_LEN>() {
        let Some((_, behind)) = behind.split_at_checked(u32::from_be_bytes([a, b, c, d]) as usize)
        else {
            break;
        };
        messages += u64::from(flag < 0x80);
        rest = behind;
    }
    (messages, rest.is_empty())
}

/// Checks that no cut changes what a request in text holds, or that it is refused.
fn check_request(text: &[u8]) {
    let (octets, is_text) = reference(text);
    for_each_cut(text, |pieces| {
        let (decoded, result) = request(pieces);
        assert_eq!(result.is_ok(), is_text, "{} pieces of {}", pieces.len(), text.escape_ascii());
        // The last group of a refused text may have given octets before the error.
        let checked = decoded.get(..octets.len()).unwrap_or_default();
        assert_eq!(checked, octets, "{} pieces of {}", pieces.len(), text.escape_ascii());
        assert!(decoded.len() - checked.len() <= if is_text { 0 } else { 2 });
        assert_eq!((decoded, result), request(&[text]), "{} pieces", pieces.len());
    });
}

/// Decodes text that comes in `pieces`.
pub(crate) fn request(pieces: &[&[u8]]) -> (Vec<u8>, Result<(), TextError>) {
    let mut decoder = RequestDecoder::new(Encoding::Text);
    let mut octets = Vec::new();
    for piece in pieces {
        let mut out = Buffer::new(piece.len());
        let result = decoder.decode(piece, &mut out);
        octets.extend_from_slice(out.filled());
        if result.is_err() {
            return (octets, result);
        }
        decoder = saved(&decoder);
    }
    (octets, decoder.on_eof())
}

/// What another implementation makes of `text`, group by group, and whether all of it is base64.
fn reference(text: &[u8]) -> (Vec<u8>, bool) {
    let mut octets = Vec::new();
    for group in text.chunks(4) {
        match STANDARD.decode(group) {
            Ok(decoded) => octets.extend(decoded),
            Err(_) => return (octets, false),
        }
    }
    (octets, true)
}

/// Checks that no cut changes a response, and that it can be taken apart again.
pub(crate) fn check_response(encoding: Encoding, body: &[u8], section: Option<&[u8]>) {
    let whole = response(encoding, &[body], section, Flush::AtEnd);
    let decoded = unwrapped(encoding, &whole);
    let frame = decoded.strip_prefix(body).expect("the body comes first");
    match section {
        None => assert_eq!(frame, b""),
        Some(section) => assert_eq!(frame, trailers_frame(section), "{}", section.escape_ascii()),
    }
    if encoding == Encoding::Text {
        assert_eq!(whole, STANDARD.encode(&decoded).into_bytes());
    }
    for_each_cut(body, |pieces| {
        assert_eq!(response(encoding, pieces, section, Flush::AtEnd), whole);
        let flushed = response(encoding, pieces, section, Flush::Always);
        assert_eq!(unwrapped(encoding, &flushed), decoded, "{} pieces", pieces.len());
    });
}

/// When a response is flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    AtEnd,
    Always,
}

/// The response whose body comes in `pieces`.
fn response(encoding: Encoding, pieces: &[&[u8]], section: Option<&[u8]>, flush: Flush) -> Vec<u8> {
    let mut encoder = ResponseEncoder::new(encoding);
    let mut bytes = Vec::new();
    for piece in pieces {
        let mut out = Buffer::new(data_len_max(piece.len()));
        encoder.encode(piece, &mut out);
        if flush == Flush::Always {
            encoder.flush(&mut out);
        }
        bytes.extend_from_slice(out.filled());
        encoder = saved(&encoder);
    }
    let mut out = Buffer::new(trailers_len_max(section.unwrap_or_default()));
    match section {
        Some(section) => encoder.encode_trailers(section, &mut out),
        None => encoder.flush(&mut out),
    }
    bytes.extend_from_slice(out.filled());
    bytes
}

/// A response without its encoding.
fn unwrapped(encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Binary => bytes.to_vec(),
        Encoding::Text => {
            let (octets, result) = request(&[bytes]);
            result.expect("what was written can be read");
            octets
        }
    }
}

/// The frame that a section becomes.
fn trailers_frame(section: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in section.split_inclusive(|&octet| octet == b'\n') {
        let mut parts = line.splitn(2, |&octet| octet == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        lines.extend(name.to_ascii_lowercase());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.trim_ascii());
        lines.extend_from_slice(b"\r\n");
    }
    let len = u32::try_from(lines.len()).expect("inputs are small");
    [&[0x80], &len.to_be_bytes()[..], &lines].concat()
}

/// `data` as a trailer section, if it is one.
fn trailer_section(data: &[u8]) -> Option<Vec<u8>> {
    let limits = BodyLimits {
        chunk_line_bytes_max: 8,
        trailers_bytes_max: u32::MAX,
        fields_max: u16::MAX,
        parsing: wire::h1::Parsing::Strict,
    };
    let body = [b"0\r\n", data, b"\r\n"].concat();
    match BodyDecoder::new(Framing::Chunked).decode(&body, &limits) {
        Ok((_, BodyElement::Trailers(section))) if section == data => Some(data.to_vec()),
        _ => None,
    }
}

/// Calls `check` with `data` in two pieces, cut at each of a few hundred places, and in many.
fn for_each_cut(data: &[u8], check: impl Fn(&[&[u8]])) {
    let step = data.len() / 300 + 1;
    for cut in (0..=data.len()).step_by(step) {
        let (front, back) = data.split_at(cut);
        check(&[front, back]);
    }
    let each: Vec<&[u8]> = data.chunks(step).collect();
    check(&each);
}

/// `machine` written down and read back.
fn saved<T: Serialize + DeserializeOwned>(machine: &T) -> T {
    let bytes = postcard::to_stdvec(machine).expect("a machine can be written down");
    assert!(bytes.len() <= 24, "a machine is small");
    postcard::from_bytes(&bytes).expect("a machine can be read back")
}

/// An answer of the health service says the same whatever comes behind its message, and nothing before that is whole.
fn check_health(data: &[u8]) {
    let said = decode_response(data);
    if let Some([_, len @ ..]) = data.first_chunk::<MESSAGE_PREFIX_LEN>().filter(|_| said.is_ok()) {
        let end = MESSAGE_PREFIX_LEN + u32::from_be_bytes(*len) as usize;
        let until = |end| decode_response(data.get(..end).expect("it was whole"));
        assert_eq!((until(end), until(end - 1)), (said, Err(HealthError::Cut)));
    }
    if let Ok(service) = str::from_utf8(data)
        && service.len() <= 127
    {
        // Field 1 is a name here, and a number in an answer.
        let request = encode_request(service);
        let expected = if service.is_empty() { Ok(()) } else { Err(HealthError::Malformed) };
        assert_eq!(decode_response(&request).map(drop), expected.or(Ok(())));
    }
}
