//! Bolt, on frames that a Java client and server of SOFARPC exchanged (`rpc/bolt`), and on damaged ones.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::buffer::Buffer;
use wire::head::HeadIndex;
use wire::rpc::bolt::{Bolt, CLASS};
use wire::rpc::{
    Asked, CHECKSUM_BYTES_MAX, Frame, FrameKind, HeadBuilder, REPLY_BYTES_MAX, Reply, RpcError,
    RpcProtocol, head_len_max,
};

const CAPTURES: [(&str, &str); 4] = [
    ("v1", include_str!("rpc/bolt/v1.hex")),
    ("v2", include_str!("rpc/bolt/v2.hex")),
    ("v2-crc", include_str!("rpc/bolt/v2-crc.hex")),
    ("sofarpc", include_str!("rpc/bolt/sofarpc-hessian2.hex")),
];

/// Every frame of the captures.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let octets = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        digits
            .map(|pair| {
                u8::from_str_radix(str::from_utf8(pair).expect("the capture is sound"), 16)
                    .expect("the capture is sound")
            })
            .collect()
    };
    let lines = CAPTURES.iter().flat_map(|(name, text)| text.lines().map(move |it| (*name, it)));
    lines.filter_map(|(name, line)| Some((name, octets(line.split_once("> ")?.1.trim())))).collect()
}

/// A frame as it goes on, with another number and further fields.
fn forwarded(bytes: &[u8], id: u64, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let frame = Bolt.frame(bytes).expect("the capture is sound").expect("the capture is sound");
    let (head, body) = bytes.split_at(frame.head_len);
    assert_eq!(body.len() as u64, frame.body_len);
    let mut index = HeadIndex::default();
    let builder = HeadBuilder::new(head, &mut index);
    let mut out = Buffer::new(100_000);
    if frame.kind == FrameKind::Response {
        let mut head = Bolt.decode_response(&frame, builder).expect("the capture is sound");
        fields.iter().for_each(|(name, value)| head.append(name, value));
        assert!(head_len_max(&head) < 100_000);
        let asked = Asked { id, form: frame.asked.form };
        Bolt.encode_response(asked, &head, frame.body_len, &mut out).expect("the capture is sound");
    } else {
        let mut head = Bolt.decode_request(&frame, builder).expect("the capture is sound");
        fields.iter().for_each(|(name, value)| head.append(name, value));
        Bolt.encode_request(&head, frame.body_len, &mut out).expect("the capture is sound");
        Bolt.set_id(out.filled_mut(), id);
    }
    let mut sent = out.filled().to_vec();
    let len = Bolt.checksum_len(&sent);
    assert!(len <= CHECKSUM_BYTES_MAX);
    let (content, checksum) = body.split_at(body.len() - len);
    let mut checksum = checksum.to_vec();
    if len > 0 {
        Bolt.amend_checksum(frame.asked.form, &sent, content.len() as u64, &mut checksum);
    }
    sent.extend(content);
    sent.extend(checksum);
    sent
}

/// Whether the checksum behind a frame is that of the frame, as its receiver looks.
fn is_intact(bytes: &[u8]) -> bool {
    let (frame, checksum) = bytes.split_last_chunk::<4>().expect("the capture is sound");
    crc32(frame) == u32::from_be_bytes(*checksum)
}

/// The CRC-32 of zlib, bit by bit: not as the product computes it.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn captured_frames_are_told_from_their_first_octets_on() {
    assert_eq!(frames().len(), 15);
    for (name, bytes) in frames() {
        let fixed = if bytes[0] == 1 { 20 } else { 22 };
        for n in 0..fixed {
            assert_eq!(Bolt.frame(&bytes[..n]).unwrap(), None, "{name}: {n} octets");
        }
        let frame = Bolt.frame(&bytes).unwrap().unwrap();
        assert_eq!(frame.head_len as u64 + frame.body_len, bytes.len() as u64, "{name}");
    }
}

#[test]
fn captured_frames_go_on_as_they_came() {
    for (name, bytes) in frames() {
        let id = Bolt.frame(&bytes).unwrap().unwrap().asked.id;
        assert!(forwarded(&bytes, id, &[]) == bytes, "{name}");
    }
}

#[test]
fn a_call_of_sofarpc_names_its_service_and_method() {
    let (_, bytes) = frames().into_iter().find(|(name, _)| *name == "sofarpc").unwrap();
    let frame = Bolt.frame(&bytes).unwrap().unwrap();
    let mut index = HeadIndex::default();
    let head = Bolt
        .decode_request(&frame, HeadBuilder::new(&bytes[..frame.head_len], &mut index))
        .unwrap();
    let rpc = head.rpc().unwrap();
    assert_eq!((rpc.service(), rpc.method()), (&b"demo.Echo:1.0"[..], &b"echo"[..]));
    assert_eq!(head.path(), b"/demo.Echo:1.0/echo");
    assert_eq!(rpc.timeout_millis(), 3_000);
    assert_eq!(head.find(b"app"), Some(&b"echo-client"[..]));
    assert_eq!(head.find(CLASS), Some(&b"com.alipay.sofa.rpc.core.request.SofaRequest"[..]));
}

#[test]
fn a_call_without_a_header_is_of_its_class() {
    let (_, bytes) = frames().into_iter().next().unwrap();
    let frame = Bolt.frame(&bytes).unwrap().unwrap();
    let mut index = HeadIndex::default();
    let head = Bolt
        .decode_request(&frame, HeadBuilder::new(&bytes[..frame.head_len], &mut index))
        .unwrap();
    assert_eq!(head.path(), b"/demo.BoltV2$Req/");
}

#[test]
fn checksums_follow_numbers_and_fields() {
    for (_, bytes) in frames().into_iter().filter(|(name, _)| *name == "v2-crc") {
        assert!(is_intact(&bytes), "as it came");
        for id in [0, 1, 0x0102_0304, 0xffff_ffff] {
            let sent = forwarded(&bytes, id, &[]);
            assert_eq!(Bolt.frame(&sent).unwrap().unwrap().asked.id, id);
            assert!(is_intact(&sent), "{id}");
            assert!(is_intact(&forwarded(&bytes, id, &[(b"zone", b"gz"), (b"", b"")])), "{id}");
        }
    }
}

#[test]
fn what_was_damaged_before_is_found_damaged_behind() {
    for (_, bytes) in frames().into_iter().filter(|(name, _)| *name == "v2-crc") {
        let head_len = Bolt.frame(&bytes).unwrap().unwrap().head_len;
        for place in head_len..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[place] ^= 1 << bit;
                let sent = forwarded(&damaged, 99, &[(b"zone", b"gz")]);
                assert!(!is_intact(&sent), "octet {place}, bit {bit}");
            }
        }
    }
}

#[test]
fn statuses_are_those_of_http_and_back() {
    for (code, http) in [(0, 200), (1, 500), (2, 500), (4, 503), (5, 502), (6, 404), (7, 504)] {
        let bytes = [1, 0, 0, 2, 1, 0, 0, 0, 7, 1, 0, code, 0, 0, 0, 0, 0, 0, 0, 0];
        let frame = Bolt.frame(&bytes).unwrap().unwrap();
        let mut index = HeadIndex::default();
        let head = Bolt.decode_response(&frame, HeadBuilder::new(&bytes, &mut index)).unwrap();
        assert_eq!((head.status(), head.rpc_code()), (http, Some(code.into())));
    }
    for (http, code) in
        [(404, 6), (503, 4), (429, 4), (504, 7), (408, 7), (502, 5), (400, 9), (413, 9), (500, 1)]
    {
        let mut out = Buffer::new(REPLY_BYTES_MAX);
        let asked = Asked { id: 7, form: u64::from_be_bytes([1, 0, 1, 0, 0, 0, 0, 0]) };
        Bolt.encode_reply(asked, &Reply { status: http, reason: "why" }, &mut out);
        let expected = [1, 0, 0, 2, 1, 0, 0, 0, 7, 1, 0, code, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(out.filled(), expected, "{http}");
    }
}

#[test]
fn replies_and_heartbeats_look_as_their_requests_do() {
    for (name, bytes) in frames() {
        let frame = Bolt.frame(&bytes).unwrap().unwrap();
        let mut out = Buffer::new(REPLY_BYTES_MAX);
        Bolt.encode_heartbeat_answer(frame.asked, &mut out);
        let answer = Bolt.frame(out.filled()).unwrap().unwrap();
        assert_eq!((answer.kind, answer.asked.id), (FrameKind::HeartbeatAnswer, frame.asked.id));
        assert_eq!(out.filled()[0], bytes[0]);
        if name == "v2-crc" {
            assert!(is_intact(out.filled()));
        }
    }
}

#[test]
fn what_is_no_frame_is_told_as_early_as_it_can_be() {
    for (bytes, rule) in [
        (&b"\x03"[..], "no version of Bolt"),
        (b"GET /", "no version of Bolt"),
        (b"\x02\x03", "no variant of Bolt 2"),
        (b"\x01\x03", "no type of a Bolt frame"),
        (b"\x01\x01\x00\x01\x02\0\0\0\0\x01", "no version of a Bolt command"),
        (b"\x01\x01\x00\x07\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0", "no command of Bolt"),
        (b"\x01\x00\x00\x01\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0", "no command of Bolt"),
        (
            b"\x01\x01\x00\x01\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff",
            "the content has a negative length",
        ),
    ] {
        assert_eq!(Bolt.frame(bytes), Err(RpcError::Malformed(rule)), "{bytes:?}");
    }
}

/// A request with this header.
fn with_header(header: &[u8]) -> Vec<u8> {
    let len = u16::try_from(header.len()).expect("the capture is sound").to_be_bytes();
    [&b"\x01\x01\x00\x01\x01\0\0\0\x07\x01\0\0\0\0\0\0"[..], &len, &[0; 4], header].concat()
}

#[test]
fn headers_may_have_nulls_and_no_texts_that_are_cut_off() {
    let decoded = |header: &[u8]| {
        let bytes = with_header(header);
        let frame = Bolt.frame(&bytes).unwrap().unwrap();
        let mut index = HeadIndex::default();
        let head = Bolt.decode_request(&frame, HeadBuilder::new(&bytes, &mut index))?;
        Ok(head.iter().count())
    };
    const NULL: &[u8] = b"\xff\xff\xff\xff";
    let text = b"\0\0\0\x01a".as_slice();
    // The class is a field, too.
    assert_eq!(decoded(b""), Ok(1));
    assert_eq!(decoded(&[text, text].concat()), Ok(2));
    let other = b"\0\0\0\x01b".as_slice();
    assert_eq!(decoded(&[other, NULL, NULL, text, text, text].concat()), Ok(2));
    let capital = b"\0\0\0\x01A".as_slice();
    let twice = Err(RpcError::Malformed("a key of the header occurs twice"));
    assert_eq!(decoded(&[text, text, capital, text].concat()), twice);
    assert_eq!(decoded(&[text, text, text, NULL].concat()), twice);
    let key = b"\0\0\0\x07service".as_slice();
    assert_eq!(decoded(&[key, text].concat()), Ok(2));
    assert_eq!(decoded(&[key, text, key, text].concat()), twice);
    let cut = Err(RpcError::Malformed("a text of the header is cut off"));
    for header in [&text[..3], text, &[text, b"\0\0\0\x02a"].concat(), b"\x7f\xff\xff\xff"] {
        assert_eq!(decoded(header), cut, "{header:?}");
    }
}

#[test]
fn sections_beyond_what_java_reads_are_refused() {
    let bytes = with_header(b"");
    let frame = Bolt.frame(&bytes).unwrap().unwrap();
    for (len, is_fine) in [(0x7fff - 9, true), (0x7fff - 8, false)] {
        let mut index = HeadIndex::default();
        let mut head = Bolt.decode_request(&frame, HeadBuilder::new(&bytes, &mut index)).unwrap();
        head.append(b"a", &vec![b'x'; len]);
        let mut out = Buffer::new(head_len_max(&head));
        let encoded = Bolt.encode_request(&head, 0, &mut out);
        assert_eq!(encoded.is_ok(), is_fine, "{len}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn octets_never_panic(
        place in 0..15usize,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let (_, mut bytes) = frames().swap_remove(place);
        for (at, octet) in changes {
            let at = at.index(bytes.len().min(40));
            bytes[at] = octet;
        }
        bytes.truncate(1 + cut.index(bytes.len()));
        let Ok(Some(frame)) = Bolt.frame(&bytes) else { return Ok(()) };
        let Frame { head_len, .. } = frame;
        let Some(head) = bytes.get(..head_len) else { return Ok(()) };
        let mut index = HeadIndex::default();
        let mut out = Buffer::new(200_000);
        if let Ok(head) = Bolt.decode_request(&frame, HeadBuilder::new(head, &mut index)) {
            prop_assert!(head_len_max(&head) <= 200_000);
            let _ = Bolt.encode_request(&head, frame.body_len, &mut out);
            Bolt.set_id(out.filled_mut(), 7);
            prop_assert!(out.len() <= head_len_max(&head));
        }
        if let Ok(head) = Bolt.decode_response(&frame, HeadBuilder::new(head, &mut index)) {
            out.clear();
            let _ = Bolt.encode_response(frame.asked, &head, frame.body_len, &mut out);
            prop_assert!(out.len() <= head_len_max(&head));
        }
    }
}
