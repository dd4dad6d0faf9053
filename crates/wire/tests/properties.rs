//! Properties of any message that a peer may send, and of many that it may not: heads and bodies
//! made from parts, whole and damaged.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use wire::buffer::Buffer;
use wire::h1::{
    ConnectionField, Scan, decode_request, encode_reply, encode_request, reply_len_max,
};
use wire::head::{Framing, HeadIndex, Known, Method, Version};

#[path = "checks/h1_chunked.rs"]
mod h1_chunked;
#[path = "checks/h1_head.rs"]
mod h1_head;
#[path = "checks/path.rs"]
mod path;

use h1_head::WIDE;

/// A request in parts, all of them valid.
#[derive(Clone, Debug)]
struct Parts {
    method: String,
    path: String,
    query: Option<String>,
    host: String,
    framing: Framing,
    /// Name, white space, value, white space.
    fields: Vec<(String, String, String, String)>,
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let mut text = format!("{} {}{query} HTTP/1.1\r\n", self.method, self.path);
        let middle = self.fields.len() / 2;
        for (place, (name, before, value, after)) in self.fields.iter().enumerate() {
            if place == middle {
                text.push_str(&self.own_lines());
            }
            text.push_str(&format!("{name}:{before}{value}{after}\r\n"));
        }
        if self.fields.is_empty() {
            text.push_str(&self.own_lines());
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    fn own_lines(&self) -> String {
        let length = match self.framing {
            Framing::None | Framing::UntilClose => String::new(),
            Framing::Length(length) => format!("content-length: {length}\r\n"),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        };
        format!("Host: {}\r\n{length}", self.host)
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let method = prop_oneof![
        select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]).prop_map(str::to_owned),
        "[A-Z!#$%&'*+.^_`|~0-9-]{1,12}".prop_filter("other forms", |method| method != "CONNECT"),
    ];
    let framing = prop_oneof![
        Just(Framing::None),
        Just(Framing::Chunked),
        (0..=i64::MAX as u64).prop_map(Framing::Length),
    ];
    let field = (
        "x-[a-zA-Z0-9_.!-]{0,20}",
        select(vec!["", " ", " ", "\t", "  ", " \t "]),
        "([!-~\u{80}-\u{fff}]([ -~\t]{0,30}[!-~])?)?",
        select(vec!["", "", " ", "\t "]),
    )
        .prop_map(|(name, before, value, after)| (name, before.into(), value, after.into()));
    (
        method,
        "(/[a-zA-Z0-9_~!$&'()*+,;=:@-]{0,10}){1,5}",
        proptest::option::of("[!-\"$-~]{0,20}"),
        "[a-z0-9-]{1,10}(\\.[a-z]{1,5}){0,2}(:[0-9]{1,4})?",
        framing,
        vec(field, 0..8),
    )
        .prop_map(|(method, path, query, host, framing, fields)| Parts {
            method,
            path,
            query,
            host,
            framing,
            fields,
        })
}

/// A response in parts, and bytes that may make it invalid.
fn response() -> impl Strategy<Value = Vec<u8>> {
    let line = select(vec![
        "Content-Length: 5",
        "content-length: 0",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Connection: keep-alive, X-Hop",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Upgrade: h2c",
        "X-Hop: 1",
        "Date: now",
        "Trailer: x",
        "Set-Cookie: a=b",
        "X:  spaced\t",
        "TE: trailers",
    ]);
    let status = select(vec![100, 101, 103, 200, 204, 206, 301, 304, 404, 500, 999]);
    let first = (select(vec!["1.0", "1.1"]), status, select(vec!["", " ", " OK", " a b\u{e9}"]));
    (first, vec(line, 0..7)).prop_map(|((version, status, reason), lines)| {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        format!("HTTP/{version} {status}{reason}\r\n{lines}\r\n").into_bytes()
    })
}

/// `bytes` with a few octets replaced, inserted or removed.
fn damaged(mut bytes: Vec<u8>, damage: &[(Index, u8, u8)]) -> Vec<u8> {
    for (place, kind, octet) in damage {
        let mut tail = bytes.split_off(place.index(bytes.len() + 1));
        match kind {
            0 => bytes.push(*octet),
            1 => {
                bytes.push(*octet);
                tail.drain(..tail.len().min(1));
            }
            2 => drop(tail.drain(..tail.len().min(1))),
            _ => bytes.extend(tail.iter().take(30)),
        }
        bytes.append(&mut tail);
    }
    bytes
}

fn damage() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    let octet = prop_oneof![select(b"\r\n\t :,;/?%.\0\x0b\x7f\x80".to_vec()), any::<u8>()];
    vec((any::<Index>(), 0..4u8, octet), 1..4)
}

proptest! {
    #[test]
    fn a_path_of_any_octets_has_one_spelling(
        parts in vec(prop_oneof![
            select(&["/", ".", "..", "%2e", "%2F", "%c3", "%7b", "{", "a", "%61", "+", "%2B", "//"][..])
                .prop_map(|part: &str| part.as_bytes().to_vec()),
            any::<u8>().prop_map(|octet| vec![octet]),
        ], 0..16),
        seed in any::<u8>(),
    ) {
        path::check(&[&[seed, b'/'][..], &parts.concat()].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_request_says_what_its_parts_say(parts in parts()) {
        let bytes = parts.bytes();
        h1_head::check(&bytes);
        let request = h1_head::request(&bytes).unwrap().unwrap();
        prop_assert_eq!(request.len, bytes.len());
        prop_assert_eq!(&request.method, parts.method.as_bytes());
        prop_assert_eq!(&request.path, parts.path.as_bytes());
        prop_assert_eq!(request.query, parts.query.map(String::into_bytes));
        prop_assert_eq!(&request.authority, parts.host.as_bytes());
        prop_assert_eq!(&request.host[..], parts.host.split(':').next().unwrap().as_bytes());
        prop_assert_eq!(request.framing, parts.framing);
        prop_assert!(request.persistent);
        let fields: Vec<_> = request
            .fields
            .iter()
            .filter(|(name, _)| name.starts_with(b"x-"))
            .map(|(name, value)| (&name[..], &value[..]))
            .collect();
        let expected: Vec<_> = parts
            .fields
            .iter()
            .map(|(name, _, value, _)| (name.as_bytes(), value.as_bytes()))
            .collect();
        prop_assert_eq!(fields, expected);
    }

    #[test]
    fn a_canonical_request_is_sent_on_octet_by_octet(parts in parts()) {
        let mut parts = parts;
        if parts.framing == Framing::Chunked {
            parts.framing = Framing::None;
        }
        for (_, before, value, after) in &mut parts.fields {
            *before = " ".into();
            after.clear();
            value.push('.');
        }
        let bytes = parts.bytes();
        let request = h1_head::request(&bytes).unwrap().unwrap();
        prop_assert_eq!(request.encoded, bytes);
    }

    #[test]
    fn a_changed_request_is_read_as_changed(
        parts in parts(),
        path in "(/[a-z]{0,5}){1,3}",
        query in proptest::option::of("[a-z=]{0,5}"),
        host in "[a-zA-Z]{1,8}(:80)?",
        id in "[a-f0-9]{1,36}",
    ) {
        let bytes = parts.bytes();
        let mut index = HeadIndex::default();
        let decoded = decode_request(&bytes, &mut Scan::default(), &WIDE, &mut index);
        let (mut head, _) = decoded.unwrap().unwrap();
        let fields = head.len();
        head.set_path(path.as_bytes());
        head.set_query(query.as_ref().map(String::as_bytes));
        head.set_authority(host.as_bytes());
        head.set_known(Known::XRequestId, b"replaced");
        head.set(b"X-Request-ID", id.as_bytes());
        head.append(b"x-added", b"1");
        head.append(b"X-Added", b"2");
        prop_assert_eq!(head.len(), fields + 3);
        let mut out = Buffer::new(head.encoded_len_max());
        encode_request(&head, ConnectionField::Default, &mut out);

        let again = h1_head::request(out.filled()).unwrap().unwrap();
        prop_assert_eq!(again.path, path.into_bytes());
        prop_assert_eq!(again.query, query.map(String::into_bytes));
        prop_assert_eq!(&again.authority, host.as_bytes());
        let host_alone = host.split(':').next().unwrap().to_ascii_lowercase();
        prop_assert_eq!(&again.host, host_alone.as_bytes());
        prop_assert_eq!(head.host(), host_alone.as_bytes());
        prop_assert_eq!(again.framing, parts.framing);
        let found: Vec<_> = again
            .fields
            .iter()
            .filter(|(name, _)| {
                name.eq_ignore_ascii_case(b"x-added") || name.eq_ignore_ascii_case(b"x-request-id")
            })
            .map(|(_, value)| &value[..])
            .collect();
        prop_assert_eq!(found, vec![id.as_bytes(), b"1", b"2"]);
    }

    #[test]
    fn a_damaged_request_holds(parts in parts(), damage in damage()) {
        h1_head::check(&damaged(parts.bytes(), &damage));
    }

    #[test]
    fn a_response_holds(bytes in response()) {
        h1_head::check(&bytes);
        if let Ok(Some(response)) = h1_head::response(&bytes, Method::Get) {
            let has_body = response.framing != Framing::None;
            prop_assert_eq!(has_body, !matches!(response.status, 100..=199 | 204 | 304));
            prop_assert!(response.framing != Framing::UntilClose || !response.persistent);
        }
    }

    #[test]
    fn a_damaged_response_holds(bytes in response(), damage in damage()) {
        h1_head::check(&damaged(bytes, &damage));
    }

    #[test]
    fn a_reply_is_a_response(
        status in 200..600u16,
        values in vec("[!-~]{1,20}", 0..4),
        length in any::<u32>(),
    ) {
        let fields: Vec<(&[u8], &[u8])> =
            values.iter().map(|value| (&b"x"[..], value.as_bytes())).collect();
        let mut out = Buffer::new(reply_len_max(&fields));
        let length = u64::from(length);
        encode_reply(status, &fields, Some(length), ConnectionField::Close, &mut out);
        let reply = h1_head::response(out.filled(), Method::Get).unwrap().unwrap();
        prop_assert_eq!((reply.status, reply.version), (status, Version::Http11));
        prop_assert!(!reply.persistent);
        let bodiless = matches!(status, 204 | 304);
        let framing = if bodiless { Framing::None } else { Framing::Length(length) };
        prop_assert_eq!(reply.framing, framing);
    }

    #[test]
    fn a_body_comes_out_as_it_went_in(
        data in vec(any::<u8>(), 0..200),
        trailers in select(vec!["", "x: 1\r\n", "grpc-status: 0\r\ny:\r\n"]),
    ) {
        let bytes = h1_chunked::encoded(&data, trailers.as_bytes());
        h1_chunked::check(&bytes);
        let body = h1_chunked::decoded(&[&bytes]);
        prop_assert!(body.is_complete);
        prop_assert_eq!(body.data, data);
        prop_assert_eq!(body.trailers, trailers.as_bytes());
    }

    #[test]
    fn a_damaged_body_holds(
        data in vec(any::<u8>(), 0..40),
        damage in damage(),
        trailers in select(vec!["", "x: 1\r\n"]),
    ) {
        h1_chunked::check(&damaged(h1_chunked::encoded(&data, trailers.as_bytes()), &damage));
    }
}
