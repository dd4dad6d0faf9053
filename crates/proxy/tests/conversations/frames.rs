//! Peers that speak HTTP/2.
//!
//! Heads are written as those of HTTP/1, and what a peer receives is printed as text, a line for
//! each element, so that a script reads like those of HTTP/1.

use std::fmt::Write as _;

use wire::buffer::Buffer;
use wire::h1::{HeadLimits, Scan, decode_request, decode_response};
use wire::h2::{
    Element, ErrorCode, Http2, Limits, RequestForm, Scheme, Scratch, head_len_max, trailers_len_max,
};
use wire::head::{HeadIndex, Method};

use crate::kit::{Peer, Talk};
use wire::path::Slashes;

/// A peer with its codec.
pub(crate) struct Speaker {
    pub(crate) peer: Peer,
    pub(crate) codec: Http2,
    limits: Limits,
    unread: Vec<u8>,
    /// Whether it gives windows back.
    pub(crate) takes: bool,
}

/// A field that clients want in no compression table.
pub(crate) const NEVER_INDEXED: &[u8] = b"x-api-key";

impl Speaker {
    /// A client that connects, and knows that HTTP/2 is spoken.
    pub(crate) fn client(talk: &mut Talk<'_>) -> Self {
        Self::client_with(talk, Limits::default())
    }

    pub(crate) fn client_with(talk: &mut Talk<'_>, limits: Limits) -> Self {
        let peer = talk.client();
        let mut this = Self::new(peer, Http2::client(&limits), limits);
        this.greet(talk);
        this
    }

    /// The upstream that the proxy connects to next.
    pub(crate) fn upstream(talk: &mut Talk<'_>) -> Self {
        Self::upstream_with(talk, Limits::default())
    }

    pub(crate) fn upstream_with(talk: &mut Talk<'_>, limits: Limits) -> Self {
        let peer = talk.upstream();
        let mut this = Self::new(peer, Http2::server(&limits), limits);
        this.greet(talk);
        this
    }

    pub(crate) fn new(peer: Peer, codec: Http2, limits: Limits) -> Self {
        Self { peer, codec, limits, unread: Vec::new(), takes: true }
    }

    /// Says what has to be said about the connection.
    pub(crate) fn greet(&mut self, talk: &mut Talk<'_>) {
        if self.codec.has_control() {
            self.say(talk, 0, |_, _| {});
        }
    }

    /// Says what has to be said about the connection, and then what takes up to `room` bytes.
    fn say(
        &mut self,
        talk: &mut Talk<'_>,
        room: usize,
        write: impl FnOnce(&mut Http2, &mut Buffer),
    ) {
        let mut out = Buffer::new(room + CONTROL_BYTES_MAX);
        self.codec.send_control(&mut out);
        write(&mut self.codec, &mut out);
        talk.says(self.peer, out.filled());
    }

    /// Asks for something; the head ends the request, or a body follows.
    pub(crate) fn asks(&mut self, talk: &mut Talk<'_>, head: &str, is_end: bool) -> u32 {
        self.asks_as(talk, head, is_end, RequestForm::Same)
    }

    pub(crate) fn asks_as(
        &mut self,
        talk: &mut Talk<'_>,
        head: &str,
        is_end: bool,
        form: RequestForm,
    ) -> u32 {
        let mut index = HeadIndex::default();
        let text = head.as_bytes();
        let decoded = decode_request(text, &mut Scan::default(), &HEAD, &mut index);
        let (mut head, _) = decoded.unwrap().expect("a whole head");
        head.set_never_indexed(NEVER_INDEXED);
        let mut stream = None;
        self.say(talk, head_len_max(&head), |codec, out| {
            stream = codec.send_request(&head, Scheme::Http, form, is_end, out);
        });
        stream.expect("there is a slot")
    }

    /// `GET` of a path.
    pub(crate) fn gets(&mut self, talk: &mut Talk<'_>, path: &str) -> u32 {
        self.asks(talk, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"), true)
    }

    /// Asks for something with a body, in one go.
    pub(crate) fn posts(&mut self, talk: &mut Talk<'_>, path: &str, body: &[u8]) -> u32 {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut index = HeadIndex::default();
        let decoded = decode_request(head.as_bytes(), &mut Scan::default(), &HEAD, &mut index);
        let (head, _) = decoded.unwrap().expect("a whole head");
        let mut stream = None;
        self.say(talk, head_len_max(&head) + body.len(), |codec, out| {
            stream = codec.send_request(&head, Scheme::Http, RequestForm::Same, false, out);
            let stream = stream.expect("there is a slot");
            out.push(&codec.begin_data(stream, body.len(), true).expect("it may be sent"));
            out.push(body);
        });
        stream.expect("there is a slot")
    }

    /// Answers a stream; the head ends the response, or a body follows.
    pub(crate) fn answers(&mut self, talk: &mut Talk<'_>, stream: u32, head: &str, is_end: bool) {
        let mut index = HeadIndex::default();
        let text = head.as_bytes();
        let decoded = decode_response(text, &mut Scan::default(), &HEAD, &mut index, Method::Get);
        let (head, _) = decoded.unwrap().expect("a whole head");
        self.say(talk, head_len_max(&head), |codec, out| {
            codec.send_response(stream, &head, head.framing(), is_end, out);
        });
    }

    /// Sends a piece of a body.
    pub(crate) fn sends(&mut self, talk: &mut Talk<'_>, stream: u32, data: &[u8], is_end: bool) {
        self.say(talk, data.len(), |codec, out| {
            let header = codec.begin_data(stream, data.len(), is_end).expect("it may be sent");
            out.push(&header);
            out.push(data);
        });
    }

    /// Ends a body with trailers.
    pub(crate) fn ends_with(&mut self, talk: &mut Talk<'_>, stream: u32, trailers: &str) {
        self.say(talk, trailers_len_max(trailers.as_bytes()), |codec, out| {
            codec.send_trailers(stream, trailers.as_bytes(), out);
        });
    }

    /// Resets a stream.
    pub(crate) fn resets(&mut self, talk: &mut Talk<'_>, stream: u32, code: ErrorCode) {
        self.say(talk, 0, |codec, out| {
            codec.reset(stream, code);
            codec.send_control(out);
        });
    }

    /// Does something with the codec and says what comes of it.
    pub(crate) fn does(&mut self, talk: &mut Talk<'_>, act: impl FnOnce(&mut Http2)) {
        self.say(talk, 0, |codec, out| {
            act(codec);
            codec.send_control(out);
        });
    }

    /// The elements received since the last call, one a line; pieces of a body are put together.
    pub(crate) fn hears(&mut self, talk: &mut Talk<'_>) -> String {
        let mut printed = String::new();
        loop {
            self.unread.extend(talk.heard_bytes(self.peer));
            if !self.read(&mut printed) {
                break;
            }
            self.greet(talk);
        }
        printed
    }

    /// Reads what there is; says whether that was anything.
    fn read(&mut self, printed: &mut String) -> bool {
        let mut scratch = Scratch::default();
        let mut last_data = None;
        let input = std::mem::take(&mut self.unread);
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let (n, element) = match self.codec.decode(rest, &self.limits, &mut scratch) {
                Ok(decoded) => decoded,
                Err(error) => panic!("the proxy broke a rule: {error}"),
            };
            at += n;
            let mut taken = None;
            let data = last_data.take();
            match element {
                Element::NeedMore => break,
                Element::AnswersDue => {}
                Element::Request { stream, head, is_end } => {
                    let path = String::from_utf8_lossy(head.path()).into_owned();
                    let method = String::from_utf8_lossy(head.method_bytes()).into_owned();
                    let _ = write!(printed, "{stream}: {method} {path}");
                    if head.accepts_trailers() {
                        printed.push_str("; te: trailers");
                    }
                    if head.never_indexed().any(|name| name == NEVER_INDEXED) {
                        printed.push_str("; never indexed");
                    }
                    print_fields(printed, head.iter(), is_end);
                }
                Element::Response { stream, head, is_end } => {
                    let _ = write!(printed, "{stream}: {}", head.status());
                    print_fields(printed, head.iter(), is_end);
                }
                Element::Interim { stream, head } => {
                    let _ = write!(printed, "{stream}: {}", head.status());
                    print_fields(printed, head.iter(), false);
                }
                Element::Data { stream, bytes, is_end } => {
                    if data == Some(stream) {
                        printed.pop();
                    } else {
                        let _ = write!(printed, "{stream}: data ");
                    }
                    let text = String::from_utf8_lossy(bytes);
                    let _ = writeln!(printed, "{text}{}", end(is_end));
                    taken = Some((stream, bytes.len()));
                    last_data = (!is_end).then_some(stream);
                }
                Element::End { stream } => {
                    if data == Some(stream) {
                        printed.pop();
                        printed.push_str(" END\n");
                    } else {
                        let _ = writeln!(printed, "{stream}: END");
                    }
                }
                Element::Trailers { stream, section } => {
                    let section = String::from_utf8_lossy(section).replace("\r\n", "; ");
                    let _ = writeln!(printed, "{stream}: trailers {section}END");
                }
                Element::Reset { stream, code } => {
                    let _ = writeln!(printed, "{stream}: reset {code:?}");
                }
                Element::GoingAway { last_stream, code, .. } => {
                    let _ = writeln!(printed, "going away after {last_stream}: {code:?}");
                }
                Element::Unacceptable { stream, error, .. } => {
                    panic!("what the proxy says on {stream} cannot be read: {error}");
                }
                Element::Malformed { stream, error, .. } => {
                    panic!("the proxy broke a rule on {stream}: {error}");
                }
                Element::Failed { stream, error } => {
                    panic!("the proxy broke a rule on {stream}: {error}");
                }
                Element::WindowOpened { .. }
                | Element::SettingsChanged
                | Element::PingAnswered { .. } => last_data = data,
            }
            if let Some((stream, n)) = taken.filter(|_| self.takes) {
                self.codec.on_taken(stream, n);
            }
        }
        self.unread = input[at..].to_vec();
        at > 0
    }
}

fn print_fields<'h>(
    printed: &mut String,
    fields: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    is_end: bool,
) {
    for (name, value) in fields {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        let _ = write!(printed, "; {}: {value}", name.to_lowercase());
    }
    let _ = writeln!(printed, "{}", end(is_end));
}

const fn end(is_end: bool) -> &'static str {
    if is_end { " END" } else { "" }
}

/// Room for the frames that say something about a connection, and a frame's header.
const CONTROL_BYTES_MAX: usize = 16 << 10;

/// The fields of a head as a peer reads them.
pub(crate) const HEAD: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 60 << 10,
    fields_max: 200,
    slashes: Slashes::Keep,
};
