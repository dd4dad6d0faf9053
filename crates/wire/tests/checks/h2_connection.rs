//! Properties of a connection, whatever the peer sends.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the property
//! tests: no input panics, no cut into pieces changes what is found or said, also when the
//! connection is written down and read back between two pieces, and every head that comes out is
//! one in HTTP/1 and over another connection of HTTP/2.

use wire::buffer::Buffer;
use wire::h1::{ConnectionField, HeadLimits, Scan, decode_request, encode_request};
use wire::h2::{
    ConnectionError, Element, Http2, Limits, PREFACE, RequestForm, Scheme, Scratch, head_len_max,
};
use wire::head::{Head, HeadIndex, Known, Method, RequestHead};
use wire::path::Slashes;

/// The result of some input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Elements in words, with neighbouring pieces of data as one.
    pub(crate) found: Vec<Found>,
    pub(crate) error: Option<ConnectionError>,
    /// The output after all input.
    pub(crate) said: Vec<u8>,
    pub(crate) open: Vec<u32>,
}

/// An element, without what hangs on the pieces of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Data { stream: u32, bytes: Vec<u8>, is_end: bool },
    Other(String),
}

/// Checks everything on `data`: an octet that says how, and what the peer sends.
pub(crate) fn check(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    let input = if how & 1 != 0 { [hello(how), bytes.to_vec()].concat() } else { bytes.to_vec() };
    check_cuts(how, &input);
}

/// What makes it past the handshake.
fn hello(how: u8) -> Vec<u8> {
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    const ACK: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
    let preface: &[u8] = if is_client(how) { b"" } else { PREFACE };
    [preface, SETTINGS, ACK].concat()
}

fn is_client(how: u8) -> bool {
    how & 2 != 0
}

/// Limits that most inputs reach, or none.
fn limits(how: u8) -> Limits {
    if how & 4 == 0 {
        return Limits::default();
    }
    Limits {
        head: HeadLimits {
            request_line_bytes_max: 40,
            head_bytes_max: 200,
            fields_max: 4,
            slashes: Slashes::Keep,
        },
        header_table_bytes_max: 100,
        streams_max: 2,
        stream_window_bytes_max: 20,
        connection_window_bytes_max: 0,
        work_max: 2_000,
        ..Limits::default()
    }
}

/// Checks that no cut changes what comes out, and returns that.
pub(crate) fn check_cuts(how: u8, input: &[u8]) -> Outcome {
    let whole = run(how, &[input], false);
    let step = input.len() / 100 + 1;
    for cut in (0..=input.len()).step_by(step) {
        let (front, back) = input.split_at(cut);
        let cut_in_two = run(how, &[front, back], true);
        assert_eq!(cut_in_two, whole, "cut at {cut} of {}", input.escape_ascii());
    }
    let each: Vec<&[u8]> = input.chunks(step).collect();
    assert_eq!(run(how, &each, true), whole, "in pieces: {}", input.escape_ascii());
    whole
}

/// Feeds a connection with `pieces`, answering what it finds; it may move between two pieces.
fn run(how: u8, pieces: &[&[u8]], is_moved: bool) -> Outcome {
    let limits = limits(how);
    let mut h2 = if is_client(how) { Http2::client(&limits) } else { Http2::server(&limits) };
    let mut scratch = Scratch::default();
    let mut out = Buffer::new(1 << 16);
    let mut outcome = Outcome::default();
    if is_client(how) {
        ask(&mut h2, &mut out);
    }
    let mut unread = Vec::new();
    'pieces: for piece in pieces {
        unread.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let rest = unread.get(at..).unwrap_or_default();
            let (n, element) = match h2.decode(rest, &limits, &mut scratch) {
                Ok(found) => found,
                Err(error) => {
                    outcome.error = Some(error);
                    break 'pieces;
                }
            };
            at += n;
            if let Element::NeedMore = element {
                break;
            }
            on_element(&mut h2, element, &mut out, &mut outcome);
        }
        unread.drain(..at);
        assert!(unread.len() < wire::h2::INPUT_LEN_MIN);
        if is_moved {
            let bytes = postcard::to_stdvec(&h2).expect("it can be written down");
            h2 = postcard::from_bytes(&bytes).expect("it can be read back");
        }
    }
    outcome.open = h2.streams().collect();
    h2.send_control(&mut out);
    assert!(!h2.has_control());
    outcome.said = out.filled().to_vec();
    outcome
}

/// Opens streams with a few requests.
fn ask(h2: &mut Http2, out: &mut Buffer) {
    for text in ["GET / HTTP/1.1\r\nhost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"] {
        let mut index = HeadIndex::default();
        let limits = Limits::default().head;
        let head = decode_request(text.as_bytes(), &mut Scan::default(), &limits, &mut index);
        let (head, _) = head.expect("a valid head").expect("a whole head");
        h2.send_request(&head, Scheme::Http, RequestForm::Same, false, out);
    }
}

/// Does what a proxy would, in a way that hangs on nothing but the element.
fn on_element(h2: &mut Http2, element: Element<'_>, out: &mut Buffer, outcome: &mut Outcome) {
    let text = match &element {
        Element::Request { stream, head, is_end } => {
            check_request(head);
            h2.send_reply(*stream, 200, &[(b"x-a", b"1")], None, stream % 3 == 0, out);
            format!("request {stream} {} {is_end}", head_text(head))
        }
        Element::Response { stream, head, is_end } => {
            format!("response {stream} {} {} {is_end}", head.status(), head_text(head))
        }
        Element::Interim { stream, head } => {
            format!("interim {stream} {} {}", head.status(), head_text(head))
        }
        &Element::Data { stream, bytes, is_end } => {
            assert!(!bytes.is_empty());
            h2.on_taken(stream, bytes.len());
            return on_data(outcome, stream, bytes, is_end);
        }
        Element::End { stream } => {
            if let Some(header) = h2.begin_data(*stream, 0, true) {
                out.push(&header);
            }
            format!("end {stream}")
        }
        other => format!("{other:?}"),
    };
    outcome.found.push(Found::Other(text));
}

fn on_data(outcome: &mut Outcome, stream: u32, bytes: &[u8], is_end: bool) {
    match outcome.found.last_mut() {
        Some(Found::Data { stream: before, bytes: all, is_end: was_end })
            if *before == stream && !*was_end =>
        {
            all.extend_from_slice(bytes);
            *was_end = is_end;
        }
        _ => outcome.found.push(Found::Data { stream, bytes: bytes.to_vec(), is_end }),
    }
}

fn head_text<K>(head: &Head<'_, K>) -> String {
    let fields = head.iter();
    let fields = fields.map(|(name, value)| [name, b": ", value].concat());
    let fields: Vec<_> = fields.map(|field| field.escape_ascii().to_string()).collect();
    fields.join(", ")
}

/// All that a request says and that goes on.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    method: Vec<u8>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    host: Vec<u8>,
    upgrade: Option<Vec<u8>>,
    accepts_trailers: bool,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

fn said(head: &RequestHead<'_>) -> Said {
    let is_connect = head.method() == Method::Connect;
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> =
        head.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    fields.sort();
    Said {
        // In HTTP/1 an extended CONNECT is a GET.
        method: if is_connect { Vec::new() } else { head.method_bytes().to_vec() },
        path: head.path().to_vec(),
        query: head.query().map(<[u8]>::to_vec),
        host: head.host().to_vec(),
        upgrade: head.upgrade().map(<[u8]>::to_vec),
        accepts_trailers: head.accepts_trailers(),
        fields,
    }
}

/// Sends a request on over both versions and compares what arrives.
fn check_request(head: &RequestHead<'_>) {
    let expected = said(head);
    let wide = HeadLimits {
        request_line_bytes_max: 1 << 20,
        head_bytes_max: 1 << 20,
        fields_max: u16::MAX,
        slashes: Slashes::Keep,
    };

    let mut out = Buffer::new(head.encoded_len_max());
    let has_upgrade = head.upgrade().is_some();
    let field = if has_upgrade { ConnectionField::Upgrade } else { ConnectionField::Default };
    encode_request(head, field, &mut out);
    let mut index = HeadIndex::default();
    let again = decode_request(out.filled(), &mut Scan::default(), &wide, &mut index);
    let (again, n) = again.expect("what is sent on is valid").expect("and whole");
    assert_eq!(n, out.len());
    let mut in_http1 = said(&again);
    if has_upgrade {
        in_http1.method.clear();
    }
    // What has no declared length is chunked there, and what is empty has none.
    assert_eq!(in_http1, expected, "{}", out.filled().escape_ascii());

    let limits = Limits { head: wide, ..Limits::default() };
    let (mut client, mut server) = (Http2::client(&limits), Http2::server(&limits));
    let mut out = Buffer::new(head_len_max(head) + 1000);
    client.send_control(&mut out);
    let before = out.len();
    let form = RequestForm::Same;
    let sent = client.send_request(head, Scheme::Http, form, false, &mut out);
    assert_eq!(sent, Some(1));
    assert!(out.len() - before <= head_len_max(head));
    let mut scratch = Scratch::default();
    let mut at = 0;
    loop {
        let rest = out.filled().get(at..).unwrap_or_default();
        let (n, element) = server.decode(rest, &limits, &mut scratch).expect("valid frames");
        at += n;
        match element {
            Element::SettingsChanged => {}
            Element::Request { head, .. } => {
                let mut in_http2 = said(&head);
                // An empty host is not sent.
                let has_host = head.field(Known::Host).is_some();
                if !has_host {
                    in_http2.fields.push((b"host".to_vec(), Vec::new()));
                    in_http2.fields.sort();
                }
                assert_eq!(in_http2, expected);
                break;
            }
            // HTTP/2 refuses a request without a host.
            Element::Unacceptable { .. } => {
                assert!(expected.host.is_empty());
                break;
            }
            other => unreachable!("{other:?} of {expected:?}"),
        }
    }
}
