//! Bolt, the protocol of SOFARPC, in versions 1 and 2 (sofa-bolt's `RpcProtocol` and `RpcProtocolV2`).
//!
//! ```text
//!  version 1   │ 1 │ type │ command (2) │ 1 │ number (4) │ codec │ timeout (4) or status (2) │ lengths │
//!  version 2   │ 2 │ checks │ type │ command (2) │ 1 │ number (4) │ codec │ switch │ timeout or status │ lengths │
//!
//!  lengths: of the class name (2), the header (2) and the content (4); these three follow in that order,
//!  and behind them, in version 2 with `checks` 2 and bit 0 of `switch`, a CRC-32 of all before it (4)
//! ```
//!
//! All numbers are big-endian. The header is pairs of texts, each with its length (4) in front. The class name is a field
//! here, [`CLASS`], and the content with its checksum is the body. The checksum of a frame whose number or fields
//! have changed follows from the former one, without a look at the content: content that was damaged before
//! is still found damaged by its receiver.

use std::ops::Range;

use super::{Asked, Call, Frame, FrameKind, HeadBuilder, Reply, RpcError, RpcProtocol};
use crate::buffer::Buffer;
use crate::head::{Head, RequestHead, ResponseHead};

/// The protocol.
#[derive(Clone, Copy, Debug)]
pub struct Bolt;

/// The name of the field that stands for the class name: none that a header may hold by an edit.
pub const CLASS: &[u8] = b":class";

/// Fields of a header that name the service, the first that is there, and the one that names the method.
const KEYS: [&[u8]; 3] = [b"sofa_head_target_service", b"service", b"sofa_head_method_name"];

/// Java reads the lengths of class name and header as signed numbers.
const SECTION_BYTES_MAX: usize = 0x7fff;

/// Java reads the length of the content as a signed number.
const CONTENT_BYTES_MAX: u32 = 0x7fff_ffff;

/// Command codes: those that Java knows, and GoAway, which MOSN adds.
mod command {
    pub(super) const HEARTBEAT: u16 = 0;
    pub(super) const REQUEST: u16 = 1;
    pub(super) const RESPONSE: u16 = 2;
    pub(super) const GO_AWAY: u16 = 100;
}

/// Status of a response (sofa-bolt's `ResponseStatus`).
mod status {
    pub(super) const SUCCESS: u16 = 0;
    pub(super) const ERROR: u16 = 1;
    pub(super) const SERVER_THREADPOOL_BUSY: u16 = 4;
    pub(super) const ERROR_COMM: u16 = 5;
    pub(super) const NO_PROCESSOR: u16 = 6;
    pub(super) const TIMEOUT: u16 = 7;
    pub(super) const CLIENT_SEND_ERROR: u16 = 8;
    pub(super) const CODEC_EXCEPTION: u16 = 9;
    pub(super) const CONNECTION_CLOSED: u16 = 0x10;
}

/// Whether two of these names differ in their case at most.
fn has_twins(names: &mut [&[u8]]) -> bool {
    const FEW: usize = 32;
    if names.len() <= FEW {
        let are_twins = |(place, name): (usize, &&[u8])| {
            names.iter().skip(place + 1).any(|other| name.eq_ignore_ascii_case(other))
        };
        return names.iter().enumerate().any(are_twins);
    }
    let lower = |name: &&[u8]| name.to_ascii_lowercase();
    names.sort_by_cached_key(lower);
    names.windows(2).any(|pair| matches!(pair, [a, b] if a.eq_ignore_ascii_case(b)))
}

/// What frames of a connection look like, beside their numbers: [`Asked::form`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Form {
    /// 1 or 2.
    version: u8,
    /// Of version 2: 2 if frames may have checksums.
    checks: u8,
    codec: u8,
    switch: u8,
    /// The CRC-32 of the head of this frame, if it has a checksum.
    head_crc: u32,
}

impl Form {
    const fn to_bits(self) -> u64 {
        let [crc0, crc1, crc2, crc3] = self.head_crc.to_be_bytes();
        u64::from_be_bytes([
            self.version,
            self.checks,
            self.codec,
            self.switch,
            crc0,
            crc1,
            crc2,
            crc3,
        ])
    }

    const fn from_bits(bits: u64) -> Self {
        let [version, checks, codec, switch, crc0, crc1, crc2, crc3] = bits.to_be_bytes();
        let head_crc = u32::from_be_bytes([crc0, crc1, crc2, crc3]);
        Self { version, checks, codec, switch, head_crc }
    }

    /// Whether a checksum follows the content.
    const fn has_checksum(self) -> bool {
        self.version == 2 && self.checks == 2 && self.switch & 1 == 1
    }
}

/// The fixed part of a head, behind what differs between the versions.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    form: Form,
    kind: u8,
    command: u16,
    id: u32,
    /// The timeout of a request in ms, or the status of a response.
    extra: u32,
    class_len: usize,
    header_len: usize,
    content_len: u32,
    /// Bytes of this part.
    len: usize,
}

impl Fixed {
    /// Reads it, or gives `None` if bytes are missing.
    fn read(input: &[u8]) -> Result<Option<Self>, RpcError> {
        // The first octet that fits no frame decides.
        let (version, checks, behind) = match input {
            [] | [2] => return Ok(None),
            [1, behind @ ..] => (1, 0, behind),
            [2, checks @ (1 | 2), behind @ ..] => (2, *checks, behind),
            [2, ..] => return Err(RpcError::Malformed("no variant of Bolt 2")),
            [..] => return Err(RpcError::Malformed("no version of Bolt")),
        };
        let kind = match behind.first() {
            None => return Ok(None),
            Some(kind @ 0..=2) => *kind,
            Some(_) => return Err(RpcError::Malformed("no type of a Bolt frame")),
        };
        let (extra_len, switch_len) = (if kind == 0 { 2 } else { 4 }, usize::from(version == 2));
        let Some((&[_, c0, c1, ver2, i0, i1, i2, i3, codec], behind)) = behind.split_first_chunk()
        else {
            return Ok(None);
        };
        if ver2 != 1 {
            return Err(RpcError::Malformed("no version of a Bolt command"));
        }
        let len = input.len() - behind.len() + switch_len + extra_len + 8;
        let Some(rest) = behind.get(..switch_len + extra_len + 8) else { return Ok(None) };
        let (switch, rest) = rest.split_at(switch_len);
        let (extra, lengths) = rest.split_at(extra_len);
        let extra = extra.iter().fold(0, |all, octet| all << 8 | u32::from(*octet));
        let Some(&[k0, k1, h0, h1, n0, n1, n2, n3]) = lengths.first_chunk() else {
            return Ok(None);
        };
        let switch = switch.first().copied().unwrap_or_default();
        Ok(Some(Self {
            form: Form { version, checks, codec, switch, head_crc: 0 },
            kind,
            command: u16::from_be_bytes([c0, c1]),
            id: u32::from_be_bytes([i0, i1, i2, i3]),
            extra,
            class_len: usize::from(u16::from_be_bytes([k0, k1])),
            header_len: usize::from(u16::from_be_bytes([h0, h1])),
            content_len: u32::from_be_bytes([n0, n1, n2, n3]),
            len,
        }))
    }

    fn write(&self, out: &mut Buffer) {
        let Form { version, checks, codec, switch, .. } = self.form;
        out.push(&[version]);
        if version == 2 {
            out.push(&[checks]);
        }
        out.push(&[self.kind]);
        out.push(&self.command.to_be_bytes());
        out.push(&[1]);
        out.push(&self.id.to_be_bytes());
        out.push(&[codec]);
        if version == 2 {
            out.push(&[switch]);
        }
        let extra = self.extra.to_be_bytes();
        out.push(extra.get(if self.kind == 0 { 2 } else { 0 }..).unwrap_or_default());
        for len in [self.class_len, self.header_len] {
            out.push(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        }
        out.push(&self.content_len.to_be_bytes());
    }

    fn head_len(&self) -> usize {
        self.len + self.class_len + self.header_len
    }
}

impl RpcProtocol for Bolt {
    fn name(&self) -> &'static str {
        "bolt"
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>, RpcError> {
        let Some(fixed) = Fixed::read(input)? else { return Ok(None) };
        let kind = match (fixed.kind, fixed.command) {
            (1, command::REQUEST) => FrameKind::Request,
            (2, command::REQUEST) => FrameKind::OneWay,
            (0, command::RESPONSE) => FrameKind::Response,
            (1 | 2, command::HEARTBEAT) => FrameKind::Heartbeat,
            (0, command::HEARTBEAT) => FrameKind::HeartbeatAnswer,
            (1 | 2, command::GO_AWAY) => FrameKind::GoAway,
            _ => return Err(RpcError::Malformed("no command of Bolt")),
        };
        if fixed.content_len > CONTENT_BYTES_MAX {
            return Err(RpcError::Malformed("the content has a negative length"));
        }
        let mut form = fixed.form;
        let head_len = fixed.head_len();
        let checksum_len = if form.has_checksum() { 4 } else { 0 };
        if let Some(head) = input.get(..head_len).filter(|_| checksum_len > 0) {
            form.head_crc = crc32fast::hash(head);
        }
        Ok(Some(Frame {
            kind,
            asked: Asked { id: fixed.id.into(), form: form.to_bits() },
            head_len,
            body_len: u64::from(fixed.content_len) + checksum_len,
        }))
    }

    fn decode_request<'b>(
        &self,
        frame: &Frame,
        mut head: HeadBuilder<'b>,
    ) -> Result<RequestHead<'b>, RpcError> {
        let bytes = head.bytes();
        let fixed = fixed_of(bytes)?;
        let class = push_class(&fixed, &mut head);
        let mut call = Call { service: class, ..Call::default() };
        let mut rank = KEYS.len();
        let mut names = Vec::with_capacity(16);
        for (name, value) in Header::of(&fixed, bytes) {
            let (name, value) = (name?, value?);
            let Some(name) = name else { continue };
            let text = bytes.get(name.clone()).unwrap_or_default();
            names.push(text);
            let Some(value) = value else { continue };
            if let Some(key) = KEYS.iter().position(|known| *known == text) {
                match key {
                    2 => call.method = value.clone(),
                    key if key < rank => (rank, call.service) = (key, value.clone()),
                    _ => {}
                }
            }
            head.push_field(name, value);
        }
        if has_twins(&mut names) {
            // Which of two counts is the receiver's matter, and may not be what rules go by.
            return Err(RpcError::Malformed("a key of the header occurs twice"));
        }
        // That of a one-way call is -1.
        call.timeout_millis = if fixed.extra > CONTENT_BYTES_MAX { 0 } else { fixed.extra };
        Ok(head.request(frame, call))
    }

    fn decode_response<'b>(
        &self,
        frame: &Frame,
        mut head: HeadBuilder<'b>,
    ) -> Result<ResponseHead<'b>, RpcError> {
        let bytes = head.bytes();
        let fixed = fixed_of(bytes)?;
        push_class(&fixed, &mut head);
        for (name, value) in Header::of(&fixed, bytes) {
            if let (Some(name), Some(value)) = (name?, value?) {
                head.push_field(name, value);
            }
        }
        let code = u16::try_from(fixed.extra).unwrap_or(u16::MAX);
        Ok(head.response(frame, http_status(code), code))
    }

    fn encode_request(
        &self,
        head: &RequestHead<'_>,
        body_len: u64,
        out: &mut Buffer,
    ) -> Result<(), RpcError> {
        let Some(rpc) = head.rpc() else { return Err(RpcError::Unexpected) };
        let kind = if rpc.is_one_way() { 2 } else { 1 };
        let form = Form::from_bits(rpc.asked().form);
        let timeout = match rpc.timeout_millis() {
            0 => NO_TIMEOUT,
            millis => millis,
        };
        encode(form, (kind, command::REQUEST), 0, timeout, head, body_len, out)
    }

    fn set_id(&self, head: &mut [u8], id: u64) {
        let at = if head.first() == Some(&2) { 6 } else { 5 };
        if let Some(place) = head.get_mut(at..at + 4) {
            place.copy_from_slice(&u32::try_from(id).unwrap_or(u32::MAX).to_be_bytes());
        }
    }

    fn encode_response(
        &self,
        asked: Asked,
        head: &ResponseHead<'_>,
        body_len: u64,
        out: &mut Buffer,
    ) -> Result<(), RpcError> {
        // As the service wrote it: a checksum follows the content if one came with it.
        let form = Form::from_bits(head.rpc_form());
        let id = u32::try_from(asked.id).unwrap_or(u32::MAX);
        let code = head.rpc_code().unwrap_or(status::ERROR);
        encode(form, (0, command::RESPONSE), id, code.into(), head, body_len, out)
    }

    fn encode_reply(&self, asked: Asked, reply: &Reply<'_>, out: &mut Buffer) {
        // Java takes no content where the status says all, and reads whatever there is.
        write_empty(asked, (command::RESPONSE, own_status(reply.status)), out);
    }

    fn encode_heartbeat_answer(&self, asked: Asked, out: &mut Buffer) {
        write_empty(asked, (command::HEARTBEAT, status::SUCCESS), out);
    }

    fn checksum_len(&self, head: &[u8]) -> usize {
        let fixed = Fixed::read(head).ok().flatten();
        if fixed.is_some_and(|fixed| fixed.form.has_checksum()) { 4 } else { 0 }
    }

    fn amend_checksum(&self, form: u64, head: &[u8], content_len: u64, checksum: &mut [u8]) {
        let Some(place) = checksum.first_chunk_mut::<4>() else { return };
        // CRC-32 is linear: of the same content behind another head, it differs by what the heads
        // differ in, moved on by the length of the content.
        let differs = Form::from_bits(form).head_crc ^ crc32fast::hash(head);
        let mut moved = crc32fast::Hasher::new_with_initial(differs);
        moved.combine(&crc32fast::Hasher::new_with_initial_len(0, content_len));
        *place = (u32::from_be_bytes(*place) ^ moved.finalize()).to_be_bytes();
    }
}

/// The fixed part of a head that is there whole.
fn fixed_of(head: &[u8]) -> Result<Fixed, RpcError> {
    let fixed = Fixed::read(head)?.filter(|fixed| fixed.head_len() <= head.len());
    fixed.ok_or(RpcError::Malformed("the head is cut off"))
}

/// Adds the class name as a field; says where it is.
fn push_class(fixed: &Fixed, head: &mut HeadBuilder<'_>) -> Range<usize> {
    let place = fixed.len..fixed.len + fixed.class_len;
    head.push_own_field(CLASS, place.clone());
    place
}

/// A timeout of -1: there is none.
const NO_TIMEOUT: u32 = u32::MAX;

/// A length of -1: there is no text.
const NULL: u32 = u32::MAX;

/// The pairs of a header, by their places. A text that is null has none.
struct Header<'b> {
    bytes: &'b [u8],
    at: usize,
    end: usize,
}

type Text = Result<Option<Range<usize>>, RpcError>;

impl<'b> Header<'b> {
    fn of(fixed: &Fixed, bytes: &'b [u8]) -> Self {
        let at = fixed.len + fixed.class_len;
        Self { bytes, at, end: at + fixed.header_len }
    }

    fn text(&mut self) -> Text {
        const CUT: RpcError = RpcError::Malformed("a text of the header is cut off");
        let len = self.bytes.get(self.at..self.end).and_then(<[u8]>::first_chunk).ok_or(CUT)?;
        self.at += 4;
        let len = match u32::from_be_bytes(*len) {
            NULL => return Ok(None),
            len => len as usize,
        };
        let end = self.at.checked_add(len).filter(|end| *end <= self.end).ok_or(CUT)?;
        let place = self.at..end;
        self.at = end;
        Ok(Some(place))
    }
}

impl Iterator for Header<'_> {
    type Item = (Text, Text);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let name = self.text();
        if name.is_err() {
            self.at = self.end;
            return Some((name, Ok(None)));
        }
        let value = self.text();
        if value.is_err() {
            self.at = self.end;
        }
        Some((name, value))
    }
}

fn encode<K>(
    form: Form,
    (kind, command): (u8, u16),
    id: u32,
    extra: u32,
    head: &Head<'_, K>,
    body_len: u64,
    out: &mut Buffer,
) -> Result<(), RpcError> {
    let class = head.find(CLASS).unwrap_or_default();
    let fields = || head.iter().filter(|(name, _)| *name != CLASS);
    let header_len: usize = fields().map(|(name, value)| 8 + name.len() + value.len()).sum();
    if class.len().max(header_len) > SECTION_BYTES_MAX {
        return Err(RpcError::HeadTooLarge);
    }
    let checksum_len = if form.has_checksum() { 4 } else { 0 };
    let content_len = body_len.checked_sub(checksum_len).and_then(|len| u32::try_from(len).ok());
    let content_len = content_len.filter(|len| *len <= CONTENT_BYTES_MAX);
    let content_len = content_len.ok_or(RpcError::BodyTooLarge)?;
    let class_len = class.len();
    let fixed =
        Fixed { form, kind, command, id, extra, class_len, header_len, content_len, len: 0 };
    fixed.write(out);
    out.push(class);
    for (name, value) in fields() {
        for text in [name, value] {
            out.push(&u32::try_from(text.len()).unwrap_or(NULL - 1).to_be_bytes());
            out.push(text);
        }
    }
    Ok(())
}

/// Writes a whole response without anything, as its request looked.
fn write_empty(asked: Asked, (command, status): (u16, u16), out: &mut Buffer) {
    let form = Form::from_bits(asked.form);
    let before = out.len();
    let fixed = Fixed {
        form,
        kind: 0,
        command,
        id: u32::try_from(asked.id).unwrap_or(u32::MAX),
        extra: status.into(),
        class_len: 0,
        header_len: 0,
        content_len: 0,
        len: 0,
    };
    fixed.write(out);
    if form.has_checksum() {
        let crc = crc32fast::hash(out.filled().get(before..).unwrap_or_default());
        out.push(&crc.to_be_bytes());
    }
}

/// What a status is as one of HTTP.
const fn http_status(code: u16) -> u16 {
    match code {
        status::SUCCESS => 200,
        status::SERVER_THREADPOOL_BUSY => 503,
        status::ERROR_COMM | status::CLIENT_SEND_ERROR | status::CONNECTION_CLOSED => 502,
        status::NO_PROCESSOR => 404,
        status::TIMEOUT => 504,
        status::CODEC_EXCEPTION => 400,
        _ => 500,
    }
}

/// What a reply of the proxy's own has for a status. SOFARPC's clients try again on
/// `SERVER_THREADPOOL_BUSY`: it stands for what says that the call was not sent.
const fn own_status(status: u16) -> u16 {
    match status {
        200..=299 => status::SUCCESS,
        404 => status::NO_PROCESSOR,
        408 | 504 => status::TIMEOUT,
        425 | 429 | 503 => status::SERVER_THREADPOOL_BUSY,
        400..=499 => status::CODEC_EXCEPTION,
        502 => status::ERROR_COMM,
        _ => status::ERROR,
    }
}
