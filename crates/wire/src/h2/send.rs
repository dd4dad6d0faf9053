//! Messages to the peer: heads, data, trailers.
//!
//! A header block is written where it will be sent from, behind room for its frame's header. Only
//! one that is longer than a frame is moved, to make room for more headers.

use std::borrow::Cow;

use super::connection::{Http2, Http2Role};
use super::frame::{FrameHeader, PAYLOAD_LEN_MIN, flag, kind};
use super::hpack::{Encoder, Secrecy};
use super::stream::{Half, Stream, StreamKind, signed};
use crate::buffer::Buffer;
use crate::h1::{Decimal, field, keeps_length};
use crate::head::{
    FieldEntry, Framing, Head, Known, Method, Place, RequestHead, ResponseHead, Span, Spelling,
};
use crate::octets;

/// Bytes of what [`Http2::begin_data`] gives.
pub const DATA_HEADER_LEN: usize = FrameHeader::LEN;

/// Bytes of data in one frame. Longer ones would hold up other streams, and what has to be said
/// about the connection.
pub(super) const DATA_LEN_MAX: u32 = PAYLOAD_LEN_MIN;

/// The scheme of a request, which HTTP/1 does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Http => b"http",
            Self::Https => b"https",
        }
    }
}

/// How a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestForm {
    /// As it is.
    Same,
    /// As an extended `CONNECT` to the first of the protocols that its head offers (RFC 8441).
    /// One that came as such is sent so in either form.
    Upgrade,
}

/// No sending of this head takes more bytes than this.
#[must_use]
pub fn head_len_max<K>(head: &Head<'_, K>) -> usize {
    block_len_max(head.block.len() + head.index.added.len(), head.len())
}

/// No reply with these fields takes more bytes than this.
#[must_use]
pub fn reply_len_max(fields: &[(&[u8], &[u8])]) -> usize {
    block_len_max(fields.iter().map(|(name, value)| name.len() + value.len()).sum(), fields.len())
}

/// No sending of this trailer section takes more bytes than this.
#[must_use]
pub fn trailers_len_max(section: &[u8]) -> usize {
    block_len_max(section.len(), section.iter().filter(|&&octet| octet == b'\n').count())
}

/// A block of so many fields with so many bytes, in as many frames as that takes.
fn block_len_max(bytes: usize, fields: usize) -> usize {
    /// Pseudo fields, `content-length` and `te`.
    const OWN_FIELDS_MAX: usize = 8;
    const OWN_BYTES_MAX: usize = 128;
    let fields_len = (fields + OWN_FIELDS_MAX) * Encoder::FIELD_LEN_MAX;
    let block_len = Encoder::BEGIN_LEN_MAX + OWN_BYTES_MAX + bytes + fields_len;
    let frames = block_len / PAYLOAD_LEN_MIN as usize + 1;
    block_len + frames * FrameHeader::LEN
}

/// Heads.
impl Http2 {
    /// Opens a stream with a request, and returns its number; `None` if there is no free slot.
    ///
    /// # Panics
    ///
    /// When `out` has less room than [`head_len_max`] and the head needs it.
    pub fn send_request(
        &mut self,
        head: &RequestHead<'_>,
        scheme: Scheme,
        form: RequestForm,
        is_end: bool,
        out: &mut Buffer,
    ) -> Option<u32> {
        if self.free_slots() == 0 {
            return None;
        }
        let id = self.streams.take_own_id()?;
        let protocol = protocol(head, form);
        let start = begin_block(&mut self.encoder, out);
        self.encode_request_line(head, scheme, protocol, out);
        let facts = &head.index.request;
        let is_left_out = |known: Known| match known {
            Known::Host => true,
            Known::SecWebsocketKey => protocol.is_some(),
            _ => false,
        };
        let length = Length { declared: facts.declared, framing: facts.framing, is_end };
        self.encode_fields(head, &length, is_left_out, out);
        if facts.accepts_trailers {
            self.encoder.known_field(Known::Te, b"te", b"trailers", Secrecy::Open, out);
        }
        self.end_block(start, id, is_end, out);

        let kind = match head.method() {
            _ if protocol.is_some() => StreamKind::ExtendedConnect,
            Method::Connect => StreamKind::Connect,
            Method::Head => StreamKind::Head,
            _ => StreamKind::Plain,
        };
        let window = self.stream_window();
        let mut stream = Stream::new(id, kind, self.new_send_window(), window);
        stream.sending = if is_end { Half::End } else { Half::Body };
        self.streams.open(stream);
        Some(id)
    }

    fn encode_request_line(
        &mut self,
        head: &RequestHead<'_>,
        scheme: Scheme,
        protocol: Option<&[u8]>,
        out: &mut Buffer,
    ) {
        let encoder = &mut self.encoder;
        let secrecy =
            if head.index.request.is_target_secret { Secrecy::Secret } else { Secrecy::Open };
        encoder.method(if protocol.is_some() { b"CONNECT" } else { head.method_bytes() }, out);
        // RFC 9113, section 8.5: a plain CONNECT has an authority only.
        if head.method() != Method::Connect || protocol.is_some() {
            encoder.scheme(scheme.name(), out);
            encoder.path(&target(head), secrecy, out);
        }
        let host = head.index.fields.iter().find(|field| field.known == Known::Host);
        if let Some(host) = host.filter(|host| host.value_len > 0) {
            encoder.authority(head.bytes(host.value()), secrecy_of(host), out);
        }
        if let Some(protocol) = protocol {
            encoder.protocol(protocol, out);
        }
    }

    /// Answers a stream: with an interim response (1xx), of which there may be several, or with
    /// the final one, whose body is delimited by `framing`. Whether the stream was open for it.
    ///
    /// A 101 that answers an extended `CONNECT` becomes the 200 that it is in HTTP/2.
    ///
    /// # Panics
    ///
    /// When `out` has less room than [`head_len_max`] and the head needs it.
    pub fn send_response(
        &mut self,
        stream: u32,
        head: &ResponseHead<'_>,
        framing: Framing,
        is_end: bool,
        out: &mut Buffer,
    ) -> bool {
        let Some(kind) = self.kind_of_unanswered(stream) else { return false };
        let is_upgrade = kind == StreamKind::ExtendedConnect && head.status() == 101;
        let status = if is_upgrade { 200 } else { head.status() };
        debug_assert!(status != 101, "there is no changing of protocols in HTTP/2");
        let start = begin_block(&mut self.encoder, out);
        self.encoder.status(Decimal::new(u64::from(status)).digits(), out);
        let length = Length { declared: head.index.response.framing, framing, is_end };
        if is_upgrade {
            let is_accept = |name: &[u8]| name.eq_ignore_ascii_case(b"sec-websocket-accept");
            self.encode_fields_but(head, &length, |_, name| is_accept(name), out);
        } else {
            self.encode_fields(head, &length, |_| false, out);
        }
        self.end_block(start, stream, is_end, out);
        self.on_response_sent(stream, status, is_end);
        true
    }

    /// Answers a stream with a response made from parts: the status, `fields` in order, whose
    /// names are trusted to be in lower case, and `content-length` if there is one.
    ///
    /// # Panics
    ///
    /// When `out` has less room than [`reply_len_max`] and the head needs it.
    pub fn send_reply(
        &mut self,
        stream: u32,
        status: u16,
        fields: &[(&[u8], &[u8])],
        content_length: Option<u64>,
        is_end: bool,
        out: &mut Buffer,
    ) -> bool {
        if self.kind_of_unanswered(stream).is_none() {
            return false;
        }
        let start = begin_block(&mut self.encoder, out);
        self.encoder.status(Decimal::new(u64::from(status)).digits(), out);
        for (name, value) in fields {
            self.encoder.field(name, value, Secrecy::Open, out);
        }
        if let Some(length) = content_length {
            self.encode_length(length, out);
        }
        self.end_block(start, stream, is_end, out);
        self.on_response_sent(stream, status, is_end);
        true
    }

    /// The kind of a stream's request, if its final response has not been sent.
    fn kind_of_unanswered(&self, id: u32) -> Option<StreamKind> {
        let stream = self.streams.get(id).filter(|_| self.role == Http2Role::Server)?;
        (stream.sending == Half::Head).then_some(stream.kind)
    }

    fn on_response_sent(&mut self, id: u32, status: u16, is_end: bool) {
        let Some(stream) = self.streams.get_mut(id).filter(|_| status >= 200) else { return };
        stream.sending = if is_end { Half::End } else { Half::Body };
        self.close_if_over(id);
    }

    fn encode_fields<K>(
        &mut self,
        head: &Head<'_, K>,
        length: &Length,
        is_left_out: impl Fn(Known) -> bool,
        out: &mut Buffer,
    ) {
        self.encode_fields_but(head, length, |known, _| is_left_out(known), out);
    }

    fn encode_fields_but<K>(
        &mut self,
        head: &Head<'_, K>,
        length: &Length,
        is_left_out: impl Fn(Known, &[u8]) -> bool,
        out: &mut Buffer,
    ) {
        let mut has_length = false;
        for entry in &head.index.fields {
            let name = head.bytes(entry.name());
            if is_left_out(entry.known, name) {
                continue;
            }
            if entry.known == Known::ContentLength {
                if !keeps_length(length.declared, length.framing) {
                    continue;
                }
                has_length = true;
            }
            let value = head.bytes(entry.value());
            self.encode_field(entry.known, name, value, secrecy_of(entry), out);
        }
        // With data, its length is useful to the receiver.
        if let (Framing::Length(length), false, false) = (length.framing, length.is_end, has_length)
        {
            self.encode_length(length, out);
        }
    }

    fn encode_length(&mut self, length: u64, out: &mut Buffer) {
        let (known, length) = (Known::ContentLength, Decimal::new(length));
        self.encoder.known_field(known, known.name(), length.digits(), Secrecy::Open, out);
    }

    /// Writes a field with its name in lower case.
    fn encode_field(
        &mut self,
        known: Known,
        name: &[u8],
        value: &[u8],
        secrecy: Secrecy,
        out: &mut Buffer,
    ) {
        let encoder = &mut self.encoder;
        if known != Known::Other {
            encoder.known_field(known, known.name(), value, secrecy, out);
        } else if !name.iter().any(u8::is_ascii_uppercase) {
            encoder.known_field(known, name, value, secrecy, out);
        } else {
            let mut room = [0; NAME_LEN_USUAL];
            match room.get_mut(..name.len()) {
                Some(lower) => {
                    lower.copy_from_slice(name);
                    lower.make_ascii_lowercase();
                    encoder.known_field(known, lower, value, secrecy, out);
                }
                None => {
                    encoder.known_field(known, &name.to_ascii_lowercase(), value, secrecy, out);
                }
            }
        }
    }

    /// Puts headers around the block that began at `start`: as many as its length takes.
    fn end_block(&self, start: usize, stream: u32, is_end: bool, out: &mut Buffer) {
        let block_start = start + FrameHeader::LEN;
        let len_max = self.theirs.frame_bytes_max as usize;
        let block_len = out.len().saturating_sub(block_start);
        let more = block_len.saturating_sub(1) / len_max;
        for _ in 0..more {
            out.push(&[0; FrameHeader::LEN]);
        }
        // From the last on, each piece moves back behind the room for its header.
        for place in (0..=more).rev() {
            let from = block_start + place * len_max;
            let len = if place == more { block_len - place * len_max } else { len_max };
            let to = from + place * FrameHeader::LEN;
            let end_headers = if place == more { flag::END_HEADERS } else { 0 };
            let end_stream = if is_end { flag::END_STREAM } else { 0 };
            let (kind, flags) = match place {
                0 => (kind::HEADERS, end_headers | end_stream),
                _ => (kind::CONTINUATION, end_headers),
            };
            let header = FrameHeader { len: octets::narrow(len), kind, flags, stream };
            let filled = out.filled_mut();
            if place > 0 {
                filled.copy_within(from..from + len, to);
            }
            if let Some(room) = filled.get_mut(to - FrameHeader::LEN..to) {
                room.copy_from_slice(&header.encode());
            }
        }
    }
}

/// Bodies.
impl Http2 {
    /// Announces a piece of a body of up to [`Http2::sendable`] bytes, and says what to write in
    /// front of it; `None` if the stream is closed, or it is not time for a body.
    ///
    /// # Panics
    ///
    /// When the piece is longer than that.
    pub fn begin_data(
        &mut self,
        stream: u32,
        len: usize,
        is_end: bool,
    ) -> Option<[u8; DATA_HEADER_LEN]> {
        let sendable = self.sendable(stream);
        let open = self.streams.get_mut(stream)?;
        if open.sending != Half::Body {
            return None;
        }
        assert!(len <= sendable, "more data than the windows allow");
        let len = octets::narrow(len);
        let taken = signed(len);
        open.send_window = open.send_window.saturating_sub(taken);
        self.send_window = self.send_window.saturating_sub(taken);
        self.budget.on_data(len);
        let flags = if is_end { flag::END_STREAM } else { 0 };
        if is_end {
            open.sending = Half::End;
            self.close_if_over(stream);
        }
        Some(FrameHeader { len, kind: kind::DATA, flags, stream }.encode())
    }

    /// Ends a body with a trailer section: valid field lines, each with its line end. Whether the
    /// stream was open for it.
    ///
    /// # Panics
    ///
    /// When `out` has less room than [`trailers_len_max`] and the section needs it.
    pub fn send_trailers(&mut self, stream: u32, section: &[u8], out: &mut Buffer) -> bool {
        let Some(open) = self.streams.get_mut(stream).filter(|open| open.sending == Half::Body)
        else {
            return false;
        };
        open.sending = Half::End;
        let start = begin_block(&mut self.encoder, out);
        let mut at = 0;
        while let Ok((entry, next)) = field(section, at) {
            let (name, value) = (entry.name().of(section), entry.value().of(section));
            self.encode_field(entry.known, name, value, Secrecy::Open, out);
            at = next;
        }
        debug_assert_eq!(at, section.len(), "the section was valid");
        self.end_block(start, stream, true, out);
        self.close_if_over(stream);
        true
    }
}

/// The body length that a head declares, and the one to send.
struct Length {
    declared: Framing,
    framing: Framing,
    is_end: bool,
}

/// Leaves room for a frame's header and begins a block behind it.
fn begin_block(encoder: &mut Encoder, out: &mut Buffer) -> usize {
    let start = out.len();
    out.push(&[0; FrameHeader::LEN]);
    encoder.begin(out);
    start
}

fn secrecy_of(entry: &FieldEntry) -> Secrecy {
    match entry.spelling {
        Spelling::Secret => Secrecy::Secret,
        Spelling::Added | Spelling::Canonical | Spelling::Spaced => Secrecy::Open,
    }
}

/// The protocol of an extended `CONNECT`, if the request is to be one.
fn protocol<'h>(head: &'h RequestHead<'_>, form: RequestForm) -> Option<&'h [u8]> {
    if form == RequestForm::Upgrade || head.is_extended_connect() {
        octets::list(head.upgrade()?).next()
    } else {
        None
    }
}

/// Path and query, which are adjacent in the block if they are unchanged.
fn target<'h>(head: &'h RequestHead<'_>) -> Cow<'h, [u8]> {
    let facts = &head.index.request;
    let (path, Some(query)) = (facts.path, facts.query) else {
        return Cow::Borrowed(head.path());
    };
    let is_next = query.start == path.start + path.len + 1;
    if path.place == Place::Block && query.place == Place::Block && is_next {
        let len = path.len + 1 + query.len;
        return Cow::Borrowed(head.bytes(Span { len, ..path }));
    }
    Cow::Owned([head.bytes(path), b"?", head.bytes(query)].concat())
}

/// Names up to here are put in lower case without an allocation.
const NAME_LEN_USUAL: usize = 64;
