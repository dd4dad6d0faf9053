//! Decoded fields ⇒ heads and trailer sections, in the form that HTTP/1 gives them.
//!
//! A head is written as one block, `GET /path HTTP/1.1` and so on, with its index beside it: so
//! whatever works on heads works on these, and the encoder of HTTP/1 sends the block as it is.
//! Nothing is read twice: where each field begins and ends is known while it is written.
//!
//! The first rule that a message breaks decides what it is. A head that keeps to the rules of
//! HTTP/2 and still cannot be served (it is over a limit, or its path has no normal form) is
//! refused as in HTTP/1, with an answer; any other is malformed (RFC 9113, section 8.1.1).

use std::fmt;

use super::error::MessageError;
use super::hpack::{COLON, LINE_END, Line, Name, Pseudo, Secrecy};
use crate::h1::{
    HeadError, HeadLimits, Stop, TargetScan, content_length, finish_response_framing, is_continue,
    reason_phrase,
};
use crate::head::{
    FieldEntry, Framing, HeadIndex, Known, Method, Span, Spelling, Version, lookalike,
};
use crate::host::{Authority, around_root_dot};
use crate::octets::{self, NameScan};

/// Room for what is decoded, of which a thread needs one.
///
/// An element borrows from it. To keep a head, take `block` and `index` out, and put others in
/// their place if the room is to be used again.
#[derive(Default)]
pub struct Scratch {
    /// The block of the head, or the trailer section, that was decoded last.
    pub block: Vec<u8>,
    /// The index over the head that was decoded last.
    pub index: HeadIndex,
    /// A field that is in no table.
    pub(super) literal: Vec<u8>,
    /// Pseudo fields until the first line is written, then the crumbs of a cookie.
    aside: Vec<u8>,
}

impl fmt::Debug for Scratch {
    /// Lengths only: what is inside belongs to a peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("block", &self.block.len()).finish_non_exhaustive()
    }
}

/// Why a message goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It breaks a rule.
    Malformed(MessageError),
    /// It cannot be served; the answer may say why.
    Unacceptable(HeadError),
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        Self::Malformed(error)
    }
}

impl From<HeadError> for Refusal {
    fn from(error: HeadError) -> Self {
        Self::Unacceptable(error)
    }
}

/// Writes a head, field by field.
pub(super) struct HeadBuilder<'s> {
    block: &'s mut Vec<u8>,
    index: &'s mut HeadIndex,
    aside: &'s mut Vec<u8>,
    limits: &'s HeadLimits,
    phase: Phase,
    /// A host was named, by `:authority` or `host`.
    has_host: bool,
    has_authority: bool,
    content_length: Option<u64>,
    expect: Option<Span>,
    cookie: Option<Secrecy>,
    fields_left: u16,
}

/// How far a head is.
enum Phase {
    /// Before the first field that is not a pseudo field.
    Pseudo(PseudoFields),
    /// Behind the first line.
    Fields,
}

/// The pseudo fields of a head, as ranges of what was put aside.
#[derive(Clone, Copy, Default)]
struct PseudoFields {
    authority: Option<Aside>,
    method: Option<Aside>,
    path: Option<Aside>,
    protocol: Option<Aside>,
    scheme: Option<Aside>,
    status: Option<Aside>,
}

/// A value that was put aside.
#[derive(Clone, Copy)]
struct Aside {
    start: usize,
    end: usize,
    secrecy: Secrecy,
}

impl Aside {
    fn of(self, aside: &[u8]) -> &[u8] {
        aside.get(self.start..self.end).unwrap_or_default()
    }
}

impl<'s> HeadBuilder<'s> {
    /// A builder of a head in the room that is given; the field that is in no table has its own.
    pub(super) fn new(scratch: &'s mut Scratch, limits: &'s HeadLimits) -> (Self, &'s mut Vec<u8>) {
        let Scratch { block, index, literal, aside } = scratch;
        block.clear();
        index.clear();
        aside.clear();
        let this = Self {
            block,
            index,
            aside,
            limits,
            phase: Phase::Pseudo(PseudoFields::default()),
            has_host: false,
            has_authority: false,
            content_length: None,
            expect: None,
            cookie: None,
            fields_left: limits.fields_max,
        };
        (this, literal)
    }

    /// Takes in a field of a request.
    #[inline]
    pub(super) fn push_request(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        match (line.name, &self.phase) {
            (_, _) if !line.is_value_valid => Err(MessageError::FieldValueInvalid.into()),
            (Name::Field(known), Phase::Fields) => self.request_field(known, line),
            (Name::Field(known), Phase::Pseudo(pseudo)) => {
                self.request_line(*pseudo)?;
                self.request_field(known, line)
            }
            (Name::Pseudo(pseudo), _) => self.pseudo(pseudo, line),
            (Name::Invalid, _) => Err(MessageError::FieldNameInvalid.into()),
        }
    }

    /// Takes in a field of a response.
    #[inline]
    pub(super) fn push_response(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        match (line.name, &self.phase) {
            (_, _) if !line.is_value_valid => Err(MessageError::FieldValueInvalid.into()),
            (Name::Field(known), Phase::Fields) => self.response_field(known, line),
            (Name::Field(known), Phase::Pseudo(pseudo)) => {
                self.status_line(*pseudo)?;
                self.response_field(known, line)
            }
            (Name::Pseudo(pseudo), _) => self.pseudo(pseudo, line),
            (Name::Invalid, _) => Err(MessageError::FieldNameInvalid.into()),
        }
    }

    fn pseudo(&mut self, pseudo: Pseudo, line: &Line<'_>) -> Result<(), Refusal> {
        let Phase::Pseudo(seen) = &mut self.phase else {
            return Err(MessageError::PseudoFieldMisplaced.into());
        };
        let slot = match pseudo {
            Pseudo::Authority => &mut seen.authority,
            Pseudo::Method => &mut seen.method,
            Pseudo::Path => &mut seen.path,
            Pseudo::Protocol => &mut seen.protocol,
            Pseudo::Scheme => &mut seen.scheme,
            Pseudo::Status => &mut seen.status,
            Pseudo::Unknown => return Err(MessageError::PseudoFieldUnknown.into()),
        };
        if slot.is_some() {
            return Err(MessageError::PseudoFieldRepeated.into());
        }
        if self.aside.len() + line.bytes.len() > self.limits.head_bytes_max as usize {
            return Err(HeadError::HeadTooLarge.into());
        }
        let start = self.aside.len();
        self.aside.extend_from_slice(line.value());
        *slot = Some(Aside { start, end: self.aside.len(), secrecy: line.secrecy });
        Ok(())
    }

    /// Writes a field as it came.
    #[inline]
    fn copy(&mut self, known: Known, line: &Line<'_>) -> Result<FieldEntry, Refusal> {
        self.fields_left = self.fields_left.checked_sub(1).ok_or(HeadError::FieldsTooMany)?;
        let start = self.block.len();
        let end = start + line.bytes.len();
        // The empty line behind all others has its place too.
        if end + LINE_END.len() > self.limits.head_bytes_max as usize {
            return Err(HeadError::HeadTooLarge.into());
        }
        self.block.extend_from_slice(line.bytes);
        let value_start = start + line.name_len + COLON.len();
        let entry = FieldEntry {
            name_start: octets::narrow(start),
            value_start: octets::narrow(value_start),
            value_len: octets::narrow(end - LINE_END.len() - value_start),
            name_len: u16::try_from(line.name_len).map_err(|_| HeadError::HeadTooLarge)?,
            known,
            spelling: match line.secrecy {
                Secrecy::Open => Spelling::Canonical,
                Secrecy::Secret => Spelling::Secret,
            },
        };
        self.index.push(entry);
        Ok(entry)
    }

    /// Writes a field whose line is made here.
    fn add(&mut self, known: Known, parts: &[&[u8]], secrecy: Secrecy) -> Result<Span, Refusal> {
        let name = known.name();
        let start = self.block.len();
        let value_len: usize = parts.iter().map(|part| part.len()).sum();
        let value_start = start + name.len() + COLON.len();
        let value_end = value_start + value_len;
        if value_end + 2 * LINE_END.len() > self.limits.head_bytes_max as usize {
            return Err(HeadError::HeadTooLarge.into());
        }
        self.fields_left = self.fields_left.checked_sub(1).ok_or(HeadError::FieldsTooMany)?;
        self.block.extend_from_slice(name);
        self.block.extend_from_slice(COLON);
        for part in parts {
            self.block.extend_from_slice(part);
        }
        self.block.extend_from_slice(LINE_END);
        let value = Span::block(value_start, value_end);
        self.index.push(FieldEntry {
            name_start: octets::narrow(start),
            value_start: value.start,
            value_len: value.len,
            name_len: u16::try_from(name.len()).unwrap_or(u16::MAX),
            known,
            spelling: match secrecy {
                Secrecy::Open => Spelling::Canonical,
                Secrecy::Secret => Spelling::Secret,
            },
        });
        Ok(value)
    }

    /// A field of either kind of head.
    #[inline]
    fn field(&mut self, known: Known, line: &Line<'_>) -> Result<(), Refusal> {
        match known {
            Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade => Err(MessageError::ConnectionField.into()),
            Known::ContentLength => {
                let length = content_length(line.value());
                let length = length.map_err(|_| MessageError::ContentLengthInvalid)?;
                if self.content_length.replace(length).is_some() {
                    return Err(MessageError::ContentLengthInvalid.into());
                }
                self.copy(known, line).map(drop)
            }
            // As in HTTP/1, what is for the next hop only goes no further.
            known if known.is_hop_by_hop() => {
                self.fields_left =
                    self.fields_left.checked_sub(1).ok_or(HeadError::FieldsTooMany)?;
                Ok(())
            }
            known => self.copy(known, line).map(drop),
        }
    }
}

/// Requests.
impl HeadBuilder<'_> {
    #[inline]
    fn request_field(&mut self, known: Known, line: &Line<'_>) -> Result<(), Refusal> {
        match known {
            Known::Other => {
                let field = self.copy(known, line)?;
                let name = field.name().of(self.block);
                let scan = NameScan::new(name);
                self.index.has_unusual_names |= lookalike::is_unusual(name, scan);
                Ok(())
            }
            Known::Cookie => self.crumb(line),
            Known::Host => self.host(line),
            Known::Expect => {
                self.expect = Some(self.copy(known, line)?.value());
                Ok(())
            }
            Known::Te if line.value().eq_ignore_ascii_case(b"trailers") => {
                self.index.request.accepts_trailers = true;
                self.field(known, line)
            }
            Known::Te => Err(MessageError::TeInvalid.into()),
            _ => self.field(known, line),
        }
    }

    /// RFC 9113, section 8.2.3: the crumbs of a cookie are one field in HTTP/1. It is written when
    /// there are no more, and counts once. Empty ones add nothing: a separator at an end would be
    /// white space that readers of the field in HTTP/1 drop.
    fn crumb(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        if self.aside.len() + line.bytes.len() > self.limits.head_bytes_max as usize {
            return Err(HeadError::HeadTooLarge.into());
        }
        let before = self.cookie.replace(line.secrecy);
        if let Some(before) = before {
            if !self.aside.is_empty() && !line.value().is_empty() {
                self.aside.extend_from_slice(b"; ");
            }
            if before == Secrecy::Secret {
                self.cookie = Some(before);
            }
        }
        self.aside.extend_from_slice(line.value());
        Ok(())
    }

    /// RFC 9113, section 8.3.1: `:authority` takes the place of `host`, which may repeat it.
    fn host(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        if self.has_authority {
            let authority = self.index.fields.first().map(|field| field.value().of(self.block));
            let (host, port) = around_root_dot(line.value());
            let is_same = authority
                .and_then(|it| it.split_at_checked(host.len()))
                .is_some_and(|(front, rest)| front.eq_ignore_ascii_case(host) && rest == port);
            return if is_same { Ok(()) } else { Err(MessageError::HostRepeated.into()) };
        }
        if self.has_host {
            return Err(MessageError::HostRepeated.into());
        }
        self.has_host = true;
        let (host, port) = authority_parts(line.value())?;
        let value = if host.len() == line.value().len() {
            self.copy(Known::Host, line)?.value()
        } else {
            self.add(Known::Host, &[host, port], line.secrecy)?
        };
        self.set_host(value)
    }

    fn set_host(&mut self, value: Span) -> Result<(), Refusal> {
        let is_authority = self.index.on_host_set(value.of(self.block), value);
        if is_authority { Ok(()) } else { Err(HeadError::HostInvalid.into()) }
    }

    /// Writes the request line, and `host` if there is `:authority` (RFC 9113, section 8.3.1).
    fn request_line(&mut self, pseudo: PseudoFields) -> Result<(), Refusal> {
        self.phase = Phase::Fields;
        // The block is written to while parts of it are read.
        let aside = std::mem::take(self.aside);
        let result = self.request_line_from(pseudo, &aside);
        *self.aside = aside;
        self.aside.clear();
        result
    }

    fn request_line_from(&mut self, pseudo: PseudoFields, aside: &[u8]) -> Result<(), Refusal> {
        use MessageError::{MethodInvalid, PseudoFieldMisplaced, PseudoFieldMissing};

        if pseudo.status.is_some() {
            return Err(PseudoFieldMisplaced.into());
        }
        let method_bytes = pseudo.method.ok_or(PseudoFieldMissing)?.of(aside);
        if !octets::is_token(method_bytes) {
            return Err(MethodInvalid.into());
        }
        let method = Method::from_bytes(method_bytes);
        let facts = &mut self.index.request;
        facts.method = method;
        facts.version = Version::Http2;
        facts.persistent = true;
        facts.method_span = Span::block(0, method_bytes.len());

        let target = match (method, pseudo.protocol) {
            // Section 8.5.
            (Method::Connect, None) => {
                if pseudo.scheme.is_some() || pseudo.path.is_some() {
                    return Err(PseudoFieldMisplaced.into());
                }
                pseudo.authority.ok_or(PseudoFieldMissing)?
            }
            (Method::Connect, Some(_)) if pseudo.authority.is_none() => {
                return Err(PseudoFieldMissing.into());
            }
            (method, Some(_)) if method != Method::Connect => {
                return Err(PseudoFieldMisplaced.into());
            }
            _ => {
                let scheme = pseudo.scheme.ok_or(PseudoFieldMissing)?.of(aside);
                if !is_scheme(scheme) {
                    return Err(MessageError::SchemeInvalid.into());
                }
                pseudo.path.ok_or(PseudoFieldMissing)?
            }
        };
        let target_start = self.first_line(method_bytes, target.of(aside))?;
        self.index.request.is_target_secret = target.secrecy == Secrecy::Secret;
        match pseudo.protocol {
            None if method == Method::Connect => {}
            None => self.resolve_target(target_start, method)?,
            Some(protocol) => {
                // The method does not determine the form of the target here.
                self.resolve_target(target_start, Method::Other)?;
                self.index.request.line_end = None;
                let protocol = protocol.of(aside);
                if !octets::is_token(protocol) {
                    return Err(MessageError::FieldValueInvalid.into());
                }
                self.index.upgrade = Some(self.index.add(protocol));
            }
        }
        if let Some(authority) = pseudo.authority {
            let (host, port) = authority_parts(authority.of(aside))?;
            let value = self.add(Known::Host, &[host, port], authority.secrecy)?;
            self.has_authority = true;
            self.has_host = true;
            self.set_host(value)?;
            if method == Method::Connect && self.index.host.len == 0 {
                return Err(MessageError::AuthorityInvalid.into());
            }
        }
        Ok(())
    }

    /// Writes the first line and says where its target begins.
    fn first_line(&mut self, method: &[u8], target: &[u8]) -> Result<usize, Refusal> {
        const VERSION: &[u8] = b" HTTP/1.1";
        let len = method.len() + 1 + target.len() + VERSION.len();
        if len > self.limits.request_line_bytes_max as usize {
            return Err(HeadError::LineTooLong.into());
        }
        self.block.extend_from_slice(method);
        self.block.push(b' ');
        let target_start = self.block.len();
        for part in [target, VERSION, LINE_END] {
            self.block.extend_from_slice(part);
        }
        Ok(target_start)
    }

    /// Reads the target of the first line as HTTP/1 does, in origin form or `*`.
    fn resolve_target(&mut self, start: usize, method: Method) -> Result<(), Refusal> {
        const BEHIND_LEN: usize = " HTTP/1.1\r\n".len();
        let line_end = self.block.len();
        let target_end = line_end.saturating_sub(BEHIND_LEN);
        match self.block.get(start..target_end).unwrap_or_default() {
            [b'/', ..] => {}
            b"*" if method == Method::Options => {}
            _ => return Err(MessageError::PathInvalid.into()),
        }
        self.index.request.line_end = Some(octets::narrow(line_end));
        let scan = match TargetScan::new(self.block, start) {
            Ok(scan) if scan.end == target_end => scan,
            Ok(_) | Err(Stop::More | Stop::Wrong(_)) => {
                return Err(MessageError::PathInvalid.into());
            }
        };
        Ok(scan.resolve(self.block, start, method, self.limits.slashes, self.index)?)
    }

    /// Ends the head of a request, with which the request ends or not, and says how many bytes of
    /// a body are to come, if that is known.
    pub(super) fn finish_request(mut self, is_end: bool) -> Result<Option<u64>, Refusal> {
        if let Phase::Pseudo(pseudo) = self.phase {
            self.request_line(pseudo)?;
        }
        if !self.has_host {
            return Err(HeadError::HostMissing.into());
        }
        if let Some(secrecy) = self.cookie {
            let crumbs = std::mem::take(self.aside);
            let result = self.add(Known::Cookie, &[&crumbs], secrecy);
            *self.aside = crumbs;
            result?;
        }
        if let Some(expect) = self.expect {
            self.index.request.expects_continue = is_continue(expect.of(self.block));
        }
        let (framing, left) = match (self.index.request.method, self.content_length) {
            // The tunnel's bytes follow, which are no body.
            (Method::Connect, length) => {
                if length.is_some() {
                    let (known, name) = (Known::ContentLength, Known::ContentLength.name());
                    self.index.remove_from(0, self.block, known, name);
                }
                (Framing::None, None)
            }
            (_, Some(1..)) if is_end => return Err(MessageError::ContentLengthWrong.into()),
            (_, Some(length)) => (Framing::Length(length), Some(length)),
            (_, None) if is_end => (Framing::None, Some(0)),
            (_, None) => (Framing::Chunked, None),
        };
        self.index.request.declared = framing;
        self.index.request.framing = framing;
        self.block.extend_from_slice(LINE_END);
        Ok(left)
    }
}

/// Responses.
impl HeadBuilder<'_> {
    #[inline]
    fn response_field(&mut self, known: Known, line: &Line<'_>) -> Result<(), Refusal> {
        match known {
            Known::Other => self.copy(known, line).map(drop),
            _ => self.field(known, line),
        }
    }

    /// RFC 9113, section 8.3.2.
    fn status_line(&mut self, pseudo: PseudoFields) -> Result<(), Refusal> {
        self.phase = Phase::Fields;
        let PseudoFields { authority, method, path, protocol, scheme, status } = pseudo;
        if [authority, method, path, protocol, scheme].iter().any(Option::is_some) {
            return Err(MessageError::PseudoFieldMisplaced.into());
        }
        let digits = status.ok_or(MessageError::PseudoFieldMissing)?.of(self.aside);
        let status = match *digits {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                [a, b, c].iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'))
            }
            _ => return Err(MessageError::StatusInvalid.into()),
        };
        // Section 8.6: there is no changing of protocols.
        if status == 101 {
            return Err(MessageError::StatusInvalid.into());
        }
        let reason = reason_phrase(status);
        for part in [b"HTTP/1.1 ", digits, b" "] {
            self.block.extend_from_slice(part);
        }
        let reason_start = self.block.len();
        self.block.extend_from_slice(reason);
        let facts = &mut self.index.response;
        facts.status = status;
        facts.version = Version::Http2;
        facts.persistent = true;
        facts.reason = Span::block(reason_start, self.block.len());
        self.block.extend_from_slice(LINE_END);
        facts.line_end = Some(octets::narrow(self.block.len()));
        self.aside.clear();
        Ok(())
    }

    /// Ends the head of a response to a request of method `to`, and says its status and how many
    /// bytes of a body are to come, if that is known.
    pub(super) fn finish_response(
        mut self,
        to: Method,
        is_end: bool,
    ) -> Result<(u16, Option<u64>), Refusal> {
        if let Phase::Pseudo(pseudo) = self.phase {
            self.status_line(pseudo)?;
        }
        let status = self.index.response.status;
        let declared = match self.content_length {
            Some(length) => Framing::Length(length),
            None if is_end => Framing::Length(0),
            None => Framing::Chunked,
        };
        finish_response_framing(self.block, self.index, declared, to);
        let left = match self.index.response.framing {
            Framing::Length(1..) if is_end => return Err(MessageError::ContentLengthWrong.into()),
            Framing::Length(length) => Some(length),
            Framing::None if to == Method::Connect && (200..=299).contains(&status) => None,
            Framing::None => Some(0),
            Framing::Chunked | Framing::UntilClose => None,
        };
        if status < 200 && is_end {
            return Err(MessageError::StatusInvalid.into());
        }
        self.block.extend_from_slice(LINE_END);
        Ok((status, left))
    }
}

/// The parts around the dot of the root, of an authority that is validated where it is set.
fn authority_parts(authority: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    let (host, port) = around_root_dot(authority);
    let is_whole = host.len() == authority.len();
    // `a..` is none, though `a.` is.
    let is_sound = is_whole || Authority::parse(authority).is_some();
    if is_sound { Ok((host, port)) } else { Err(HeadError::HostInvalid) }
}

/// RFC 3986, section 3.1.
fn is_scheme(scheme: &[u8]) -> bool {
    let is_rest = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'-' | b'.');
    match scheme {
        b"http" | b"https" => true,
        [first, rest @ ..] => first.is_ascii_alphabetic() && rest.iter().all(is_rest),
        [] => false,
    }
}

/// Writes a trailer section, field by field.
pub(super) struct TrailersBuilder<'s> {
    section: &'s mut Vec<u8>,
    limits: &'s HeadLimits,
    fields_left: u16,
}

impl<'s> TrailersBuilder<'s> {
    /// As [`HeadBuilder::new`].
    pub(super) fn new(scratch: &'s mut Scratch, limits: &'s HeadLimits) -> (Self, &'s mut Vec<u8>) {
        let Scratch { block, literal, .. } = scratch;
        block.clear();
        (Self { section: block, limits, fields_left: limits.fields_max }, literal)
    }

    pub(super) fn push(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        match line.name {
            _ if !line.is_value_valid => Err(MessageError::FieldValueInvalid.into()),
            Name::Field(known) if known.is_allowed_in_trailers() => self.copy(line),
            Name::Field(known) if known.is_hop_by_hop() => {
                Err(MessageError::TrailerForbidden.into())
            }
            // Fields without a meaning in trailers may be left out (RFC 9110, section 6.5.1), and
            // services send them: `date`, and `content-type` behind an error of gRPC.
            Name::Field(_) => self.count(),
            Name::Pseudo(_) => Err(MessageError::PseudoFieldMisplaced.into()),
            Name::Invalid => Err(MessageError::FieldNameInvalid.into()),
        }
    }

    fn count(&mut self) -> Result<(), Refusal> {
        self.fields_left = self.fields_left.checked_sub(1).ok_or(HeadError::FieldsTooMany)?;
        Ok(())
    }

    fn copy(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        self.count()?;
        let len = self.section.len() + line.bytes.len();
        if len > self.limits.head_bytes_max as usize {
            return Err(HeadError::HeadTooLarge.into());
        }
        self.section.extend_from_slice(line.bytes);
        Ok(())
    }

    /// Ends the section and says whether there is anything in it.
    pub(super) fn finish(self) -> bool {
        !self.section.is_empty()
    }
}
