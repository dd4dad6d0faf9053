//! A peer of HTTP/2 in words: frames made from parts, and what comes back as text.
//!
//! A conversation reads as lists of lines. What a connection found is `request 1 GET /a end`,
//! `data 1 "abc"` and so on; what it writes is `SETTINGS ack`, `RST_STREAM 1 PROTOCOL_ERROR`. Nothing
//! of the code that is tested reads or writes the peer's side.

use wire::buffer::Buffer;
use wire::h2::{ConnectionError, Element, ErrorCode, Http2, Limits, PREFACE, Scratch};
use wire::head::{Head, RequestHead, ResponseHead};

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

/// Types of frames, by number.
const KINDS: [&str; 10] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
];

/// A frame of this type, by name or number.
pub(crate) fn frame(kind: &str, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let number = KINDS.iter().position(|name| *name == kind);
    let number = number.unwrap_or_else(|| kind.parse().expect("a type"));
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = len[1..].to_vec();
    bytes.extend([u8::try_from(number).unwrap(), flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header block of `name: value` lines, none of them in any table.
pub(crate) fn block(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        // The colon that a pseudo field begins with is not the one.
        let colon = line.match_indices(": ").map(|(at, _)| at);
        let colon = colon.last().expect("a colon and a space");
        literal(&line[..colon], &line[colon + 2..], &mut bytes);
    }
    bytes
}

/// A literal without indexing, with a new name.
pub(crate) fn literal(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        let len = text.len();
        if len < 127 {
            out.push(u8::try_from(len).unwrap());
        } else {
            out.push(127);
            let mut rest = len - 127;
            while rest >= 128 {
                out.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            out.push(u8::try_from(rest).unwrap());
        }
        out.extend(text.as_bytes());
    }
}

/// The pseudo fields of `GET /`.
pub(crate) const GET: [&str; 4] = [":method: GET", ":scheme: http", ":path: /", ":authority: a"];
/// The pseudo fields of `POST /`.
pub(crate) const POST: [&str; 4] = [":method: POST", ":scheme: http", ":path: /", ":authority: a"];

/// HEADERS of these lines in one frame.
pub(crate) fn headers(stream: u32, flags: u8, lines: &[&str]) -> Vec<u8> {
    frame("HEADERS", flags | END_HEADERS, stream, &block(lines))
}

/// HEADERS of these lines and more.
pub(crate) fn headers_and(stream: u32, flags: u8, lines: &[&str], more: &[&str]) -> Vec<u8> {
    headers(stream, flags, &[lines, more].concat())
}

pub(crate) fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_STREAM, &GET)
}

pub(crate) fn post(stream: u32) -> Vec<u8> {
    headers(stream, 0, &POST)
}

pub(crate) fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame("DATA", flags, stream, bytes)
}

pub(crate) fn reset(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame("RST_STREAM", 0, stream, &code.0.to_be_bytes())
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame("WINDOW_UPDATE", 0, stream, &increment.to_be_bytes())
}

pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        payload.extend(id.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame("SETTINGS", 0, 0, &payload)
}

pub(crate) fn ack() -> Vec<u8> {
    frame("SETTINGS", ACK, 0, b"")
}

pub(crate) fn goaway(last: u32, code: ErrorCode, text: &[u8]) -> Vec<u8> {
    let payload = [&last.to_be_bytes()[..], &code.0.to_be_bytes(), text].concat();
    frame("GOAWAY", 0, 0, &payload)
}

/// One side of a connection, with what a caller keeps around it.
pub(crate) struct Side {
    pub(crate) h2: Http2,
    pub(crate) limits: Limits,
    pub(crate) scratch: Scratch,
    pub(crate) out: Buffer,
    /// Input that is not consumed.
    unread: Vec<u8>,
    /// Whether data is passed on at once.
    pub(crate) takes_data: bool,
    /// Whether all is written down and read back between two pieces of input.
    pub(crate) is_moved: bool,
}

/// The result of some input.
pub(crate) type Heard = Result<Vec<String>, ConnectionError>;

impl Side {
    pub(crate) fn new(h2: Http2, limits: Limits) -> Self {
        let out = Buffer::new(1 << 20);
        Self {
            h2,
            limits,
            scratch: Scratch::default(),
            out,
            unread: Vec::new(),
            takes_data: true,
            is_moved: false,
        }
    }

    /// A server that has shaken hands.
    pub(crate) fn server() -> Self {
        Self::server_with(Limits::default())
    }

    pub(crate) fn server_with(limits: Limits) -> Self {
        let mut side = Self::new(Http2::server(&limits), limits);
        let hello = [&PREFACE[..], &settings(&[]), &ack()].concat();
        assert_eq!(side.hear(&hello), Ok(vec!["settings".to_owned()]));
        side.said();
        // What that cost is long ago.
        side.h2.on_time(1_000);
        side
    }

    /// A client that has shaken hands.
    pub(crate) fn client() -> Self {
        Self::client_with(Limits::default())
    }

    pub(crate) fn client_with(limits: Limits) -> Self {
        let mut side = Self::new(Http2::client(&limits), limits);
        let hello = [settings(&[]), ack()].concat();
        assert_eq!(side.hear(&hello), Ok(vec!["settings".to_owned()]));
        side.said();
        // What that cost is long ago.
        side.h2.on_time(1_000);
        side
    }

    /// Decodes `input`, behind the rest of earlier input.
    pub(crate) fn hear(&mut self, input: &[u8]) -> Heard {
        self.unread.extend_from_slice(input);
        let unread = std::mem::take(&mut self.unread);
        let mut at = 0;
        let mut all = Vec::new();
        loop {
            let rest = &unread[at..];
            let (n, element) = self.h2.decode(rest, &self.limits, &mut self.scratch)?;
            let text = describe(&element);
            let taken = match element {
                Element::Data { stream, bytes, .. } => Some((stream, bytes.len())),
                _ => None,
            };
            let needs_more = matches!(element, Element::NeedMore);
            at += n;
            if let Some((stream, n)) = taken.filter(|_| self.takes_data) {
                self.h2.on_taken(stream, n);
            }
            if needs_more {
                break;
            }
            if !matches!(text.as_str(), "answers due") {
                all.push(text);
            }
        }
        self.unread = unread[at..].to_vec();
        assert!(self.unread.len() < wire::h2::INPUT_LEN_MIN, "{} bytes wait", self.unread.len());
        if self.is_moved {
            self.h2 = saved(&self.h2);
        }
        Ok(all)
    }

    /// What the connection has to say about itself, and what was written before.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.h2.send_control(&mut self.out);
        assert!(!self.h2.has_control(), "the buffer has room for all");
        let frames = frames(self.out.filled());
        self.out.clear();
        frames
    }

    /// [`Side::said`] as bytes.
    pub(crate) fn said_bytes(&mut self) -> Vec<u8> {
        self.h2.send_control(&mut self.out);
        let bytes = self.out.filled().to_vec();
        self.out.clear();
        bytes
    }

    /// Hears what has to end the connection, and says the code for it.
    #[track_caller]
    pub(crate) fn fails_with(&mut self, input: &[u8]) -> (ConnectionError, ErrorCode) {
        let error = self.hear(input).expect_err("the connection cannot go on");
        let said = self.said();
        let goaway = said.last().expect("a last word");
        let name = goaway.split(' ').nth(2).expect("a code");
        assert!(goaway.starts_with("GOAWAY "), "{goaway}");
        assert_eq!(name, format!("{:?}", error.code()));
        assert_eq!(self.hear(b"x"), Err(error), "and that is all");
        assert_eq!(self.h2.failure(), Some(error));
        assert!(self.h2.is_finished());
        (error, error.code())
    }

    /// Sends a piece of a body.
    pub(crate) fn send_data(&mut self, stream: u32, bytes: &[u8], is_end: bool) -> bool {
        let Some(header) = self.h2.begin_data(stream, bytes.len(), is_end) else { return false };
        self.out.push(&header);
        self.out.push(bytes);
        true
    }

    /// Answers with this status and nothing else.
    pub(crate) fn answer(&mut self, stream: u32, status: u16) -> bool {
        self.h2.send_reply(stream, status, &[], None, true, &mut self.out)
    }
}

/// An element in words.
pub(crate) fn describe(element: &Element<'_>) -> String {
    let end = |is_end: &bool| if *is_end { " end" } else { "" };
    match element {
        Element::NeedMore => "more".to_owned(),
        Element::AnswersDue => "answers due".to_owned(),
        Element::Request { stream, head, is_end } => {
            format!("request {stream} {}{}", request(head), end(is_end))
        }
        Element::Unacceptable { stream, error, is_end } => {
            format!("unacceptable {stream} {error:?}{}", end(is_end))
        }
        Element::Malformed { stream, error, is_end } => {
            format!("malformed {stream} {error:?}{}", end(is_end))
        }
        Element::Response { stream, head, is_end } => {
            format!("response {stream} {}{}", response(head), end(is_end))
        }
        Element::Interim { stream, head } => format!("interim {stream} {}", response(head)),
        Element::Data { stream, bytes, is_end } => {
            format!("data {stream} {:?}{}", String::from_utf8_lossy(bytes), end(is_end))
        }
        Element::End { stream } => format!("end {stream}"),
        Element::Trailers { stream, section } => {
            format!("trailers {stream} {:?}", String::from_utf8_lossy(section))
        }
        Element::Reset { stream, code } => format!("reset {stream} {code:?}"),
        Element::Failed { stream, error } => format!("failed {stream} {error:?}"),
        Element::WindowOpened { stream: None } => "window all".to_owned(),
        Element::WindowOpened { stream: Some(stream) } => format!("window {stream}"),
        Element::SettingsChanged => "settings".to_owned(),
        Element::GoingAway { last_stream, code, debug } => {
            format!("goaway {last_stream} {code:?} {:?}", String::from_utf8_lossy(debug))
        }
        Element::PingAnswered { opaque } => format!("pong {:?}", String::from_utf8_lossy(opaque)),
    }
}

fn request(head: &RequestHead<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let query = head.query().map(|query| format!("?{}", text(query))).unwrap_or_default();
    let target = format!("{}{query}", text(head.path()));
    format!("{} {target}{}", text(head.method_bytes()), fields(head))
}

fn response(head: &ResponseHead<'_>) -> String {
    format!("{}{}", head.status(), fields(head))
}

/// Fields but the host that the other side of these conversations always names.
fn fields<K>(head: &Head<'_, K>) -> String {
    let lines = head.iter().filter(|field| *field != (&b"host"[..], &b"a"[..]));
    lines
        .map(|(name, value)| {
            format!(" {}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        })
        .collect()
}

/// Frames in words; header blocks by their length.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(rest) = bytes.strip_prefix(PREFACE) {
        all.push("PREFACE".to_owned());
        bytes = rest;
    }
    while !bytes.is_empty() {
        let len = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let (kind, flags) = (KINDS[usize::from(bytes[3])], bytes[4]);
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let stream = number(5);
        let payload = &bytes[9..9 + len];
        all.push(match kind {
            "SETTINGS" if flags & ACK != 0 => "SETTINGS ack".to_owned(),
            "SETTINGS" => {
                let settings = payload.chunks(6).map(|setting| {
                    let value = u32::from_be_bytes(setting[2..].try_into().unwrap());
                    format!(" {}={value}", setting[1])
                });
                format!("SETTINGS{}", settings.collect::<String>())
            }
            "PING" => {
                let ack = if flags & ACK != 0 { " ack" } else { "" };
                format!("PING{ack} {}", String::from_utf8_lossy(payload))
            }
            "GOAWAY" => format!("GOAWAY {} {:?}", number(9), ErrorCode(number(13))),
            "RST_STREAM" => format!("RST_STREAM {stream} {:?}", ErrorCode(number(9))),
            "WINDOW_UPDATE" => format!("WINDOW_UPDATE {stream} {}", number(9)),
            kind => {
                let end =
                    if kind != "CONTINUATION" && flags & END_STREAM != 0 { " end" } else { "" };
                let more = if kind != "DATA" && flags & END_HEADERS == 0 { " more" } else { "" };
                format!("{kind} {stream} {len}{end}{more}")
            }
        });
        bytes = &bytes[9 + len..];
    }
    all
}

/// Written down and read back.
pub(crate) fn saved<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let bytes = postcard::to_stdvec(value).expect("it can be written down");
    postcard::from_bytes(&bytes).expect("it can be read back")
}

/// Lines to compare with.
pub(crate) fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}
