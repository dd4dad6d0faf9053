//! Pico, the RPC protocol of the tests, and the page that shows it.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::buffer::Buffer;
use wire::head::{HeadIndex, RequestHead};
use wire::rpc::{
    Asked, Call, Frame, FrameKind, HeadBuilder, Reply, RpcError, RpcProtocol, head_len_max, park,
    parked_len, unpark_request,
};

#[expect(unreachable_pub, reason = "others include it, too")]
#[path = "rpc/pico.rs"]
mod pico;

use pico::Pico;

/// A call, encoded, and the octets behind its head.
fn encoded(fields: &[(Vec<u8>, Vec<u8>)], is_one_way: bool, body_len: u64) -> Vec<u8> {
    let kind = if is_one_way { FrameKind::OneWay } else { FrameKind::Request };
    let asked = Asked { id: 7, form: 0 };
    let frame = Frame { kind, asked, head_len: 1, body_len };
    let block = b"servicemethodorderspay";
    let mut index = HeadIndex::default();
    let mut builder = HeadBuilder::new(block, &mut index);
    builder.push_field(0..7, 13..19);
    builder.push_field(7..13, 19..22);
    let call = Call { service: 13..19, method: 19..22, ..Call::default() };
    let mut head = builder.request(&frame, call);
    for (name, value) in fields {
        head.append(name, value);
    }
    let mut out = Buffer::new(head_len_max(&head));
    Pico.encode_request(&head, body_len, &mut out).expect("it fits");
    Pico.set_id(out.filled_mut(), 7);
    out.filled().to_vec()
}

/// Name and value of each field.
fn fields_of(head: &RequestHead<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Fields with a prefix that no field has which means something to HTTP.
fn fields() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let name = vec(any::<u8>(), 0..20).prop_map(|name| [b"p-", &name[..]].concat());
    vec((name, vec(any::<u8>(), 0..200)), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_encoded_is_decoded_and_parked_again(
        fields in fields(),
        is_one_way in any::<bool>(),
        body_len in 0..=u64::from(u32::MAX),
    ) {
        let bytes = encoded(&fields, is_one_way, body_len);
        for n in 0..12 {
            prop_assert_eq!(Pico.frame(&bytes[..n]).unwrap(), None, "{} octets", n);
        }
        let frame = Pico.frame(&bytes).unwrap().unwrap();
        prop_assert_eq!((frame.head_len, frame.body_len), (bytes.len(), body_len));
        let mut index = HeadIndex::default();
        let head = Pico.decode_request(&frame, HeadBuilder::new(&bytes, &mut index)).unwrap();
        let rpc = head.rpc().unwrap();
        prop_assert_eq!((rpc.service(), rpc.method()), (&b"orders"[..], &b"pay"[..]));
        prop_assert_eq!((rpc.is_one_way(), rpc.asked().id), (is_one_way, 7));
        prop_assert_eq!(&fields_of(&head)[2..], &fields[..]);
        let mut parked = Buffer::new(parked_len(&head));
        park(&head, head.framing(), 0, &mut parked);
        let mut other = HeadIndex::default();
        let again = unpark_request(parked.filled(), &mut other).unwrap();
        prop_assert_eq!(fields_of(&again), fields_of(&head));
        prop_assert_eq!((again.path(), again.framing()), (head.path(), head.framing()));
    }

    #[test]
    fn octets_never_panic(bytes in vec(any::<u8>(), 0..200), kind in 0..8u8) {
        let bytes = [&[kind][..], &bytes].concat();
        let Ok(Some(frame)) = Pico.frame(&bytes) else { return Ok(()) };
        let Some(head) = bytes.get(..frame.head_len) else { return Ok(()) };
        let mut index = HeadIndex::default();
        if let Ok(head) = Pico.decode_request(&frame, HeadBuilder::new(head, &mut index)) {
            fields_of(&head);
        }
        if let Ok(head) = Pico.decode_response(&frame, HeadBuilder::new(head, &mut index)) {
            prop_assert!((100..=999).contains(&head.status()));
        }
        let mut other = HeadIndex::default();
        if let Some(head) = unpark_request(&bytes, &mut other) {
            fields_of(&head);
        }
    }
}

#[test]
fn the_first_octet_decides_whether_a_frame_begins() {
    for octet in 0..=u8::MAX {
        let frame = Pico.frame(&[octet]);
        let is_kind = (1..=6).contains(&octet);
        assert_eq!(frame.is_ok(), is_kind, "{octet}");
    }
}

#[test]
fn a_field_that_does_not_fit_is_refused() {
    let mut index = HeadIndex::default();
    let frame =
        Frame { kind: FrameKind::Request, asked: Asked::default(), head_len: 1, body_len: 0 };
    let mut head = HeadBuilder::new(b"", &mut index).request(&frame, Call::default());
    head.append(b"long", &vec![b'x'; 70_000]);
    let mut out = Buffer::new(head_len_max(&head));
    assert_eq!(Pico.encode_request(&head, 0, &mut out), Err(RpcError::HeadTooLarge));
}

#[test]
fn a_reply_has_the_number_of_its_call() {
    let mut out = Buffer::new(wire::rpc::REPLY_BYTES_MAX);
    let reply = Reply { status: 503, reason: "busy" };
    Pico.encode_reply(Asked { id: 9, form: 0 }, &reply, &mut out);
    assert_eq!(out.filled(), b"\x03\x02\0\0\0\0\0\x09\0\0\0\x04busy");
}

#[test]
fn the_page_about_new_protocols_shows_the_one_that_is_tested() {
    let page = include_str!("../../../docs/new-protocol.md");
    assert!(page.contains(include_str!("rpc/pico.rs").trim_end()), "copy rpc/pico.rs");
}
