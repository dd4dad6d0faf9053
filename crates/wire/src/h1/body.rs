//! Bodies: framed bytes ⇒ data and trailers, and back (RFC 9112, sections 6 and 7).
//!
//! The decoder hands out slices of its input and the encoder says what to write around the
//! caller's data, so that neither copies a body. Chunks are not kept: what comes in two may leave
//! as one, and chunk extensions, which are for the next hop only, end here.

use serde::{Deserialize, Serialize};

use super::error::{BodyError, HeadError, Stop, Truncated};
use super::field_line::field;
use super::parsing::Parsing;
use super::scan::Scan;
use crate::head::{Framing, Known};

/// Bounds on what the chunked coding puts around data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyLimits {
    /// Bytes of the line with a chunk's size and extensions, without its line end.
    pub chunk_line_bytes_max: u32,
    /// Bytes of the trailer section with the empty line that ends it. The section is handed out
    /// whole: a buffer of this capacity can hold every one that is accepted.
    pub trailers_bytes_max: u32,
    /// Fields of the trailer section.
    pub fields_max: u16,
    /// How strictly it is read. With [`Parsing::Tolerant`], trailers are to be seen through
    /// [`allowed_trailers`].
    pub parsing: Parsing,
}

/// Decodes a body.
///
/// ```text
///                 ┌────────────────────── next chunk ◄─────────────────────┐
///                 ▼                                                        │
///  Chunked ─► Size ─► (Blank) ─► (Extension) ─► SizeLf ─► Data ─► DataCr ─► DataLf ───┘
///                                       └─ size 0 ─► Trailers ─► Complete
///  Length ─► Complete        UntilClose ─ on_eof ─► Complete        None = Complete
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyDecoder {
    state: State,
}

/// The element at the front of the decoder's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyElement<'i> {
    /// Nothing yet; the caller still consumes the bytes that were returned as consumed.
    NeedMore,
    /// Data; never empty.
    Data(&'i [u8]),
    /// The body is over, without trailers.
    End,
    /// The body is over, with these valid field lines, each with its line end.
    Trailers(&'i [u8]),
}

impl BodyDecoder {
    /// A decoder at the beginning of a body.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Complete,
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::SIZE,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Whether the body is over.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// Whether what comes next is of the chunked coding.
    #[must_use]
    pub const fn is_chunked(&self) -> bool {
        !matches!(self.state, State::Complete | State::UntilClose | State::Length { .. })
    }

    /// Decodes the next element, and returns how many bytes of `input` were consumed.
    ///
    /// The slices of an element lie in those bytes. Call again with what follows them until the
    /// element is an end.
    ///
    /// # Errors
    ///
    /// When the bytes are not valid chunks. The end of the body is then unknown.
    pub fn decode<'i>(
        &mut self,
        input: &'i [u8],
        limits: &BodyLimits,
    ) -> Result<(usize, BodyElement<'i>), BodyError> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            match &mut self.state {
                State::Complete => return Ok((at, BodyElement::End)),
                State::UntilClose if rest.is_empty() => return Ok((at, BodyElement::NeedMore)),
                State::UntilClose => return Ok((input.len(), BodyElement::Data(rest))),
                State::Length { left } | State::Data { left } => {
                    let data = take(rest, left);
                    if *left == 0 {
                        self.state = self.state.after_data();
                    }
                    let element = match data {
                        [] => BodyElement::NeedMore,
                        data => BodyElement::Data(data),
                    };
                    return Ok((at + data.len(), element));
                }
                State::Trailers { scan } => {
                    let Some(section) = trailers(rest, scan, limits)? else {
                        return Ok((at, BodyElement::NeedMore));
                    };
                    self.state = State::Complete;
                    let element = match section {
                        [] => BodyElement::End,
                        section => BodyElement::Trailers(section),
                    };
                    return Ok((at + section.len() + 2, element));
                }
                framing => {
                    let Some(&octet) = rest.first() else {
                        return Ok((at, BodyElement::NeedMore));
                    };
                    self.state = framing.on_octet(octet, limits)?;
                    at += 1;
                }
            }
        }
    }

    /// Whether only the end of the connection ends this body.
    #[must_use]
    pub const fn ends_with_connection(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// How many bytes at least are still to come that are data and nothing else, and not the last
    /// of the body: they need not be read to go on.
    #[must_use]
    pub const fn passthrough_max(&self) -> u64 {
        match self.state {
            State::UntilClose => u64::MAX,
            State::Length { left } => left - 1,
            _ => 0,
        }
    }

    /// `n` bytes of data passed through; no more than [`BodyDecoder::passthrough_max`] said.
    pub const fn on_passed(&mut self, n: u64) {
        debug_assert!(n <= self.passthrough_max(), "more than data passed through");
        if let State::Length { left } = &mut self.state {
            *left -= n;
        }
    }

    /// The peer will send nothing more.
    ///
    /// # Errors
    ///
    /// When the body is not over and does not end so.
    pub fn on_eof(&mut self) -> Result<(), Truncated> {
        match self.state {
            State::Complete => Ok(()),
            State::UntilClose => {
                self.state = State::Complete;
                Ok(())
            }
            _ => Err(Truncated),
        }
    }
}

/// Where in a body the decoder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Complete,
    /// `left` is not zero.
    Length {
        left: u64,
    },
    UntilClose,
    /// In the digits of a size.
    Size {
        size: u64,
        line_bytes: u32,
    },
    /// In white space behind a size.
    Blank {
        size: u64,
        line_bytes: u32,
    },
    /// Between a size and the end of its line.
    Extension {
        size: u64,
        line_bytes: u32,
    },
    /// Before the LF of a size line.
    SizeLf {
        size: u64,
    },
    /// `left` is not zero.
    Data {
        left: u64,
    },
    /// Before the CR behind a chunk's data.
    DataCr,
    /// Before the LF behind a chunk's data.
    DataLf,
    /// Behind the last chunk's size line.
    Trailers {
        scan: Scan,
    },
}

impl State {
    const SIZE: Self = Self::Size { size: 0, line_bytes: 0 };

    /// The state after all data of a known length.
    fn after_data(self) -> Self {
        match self {
            Self::Data { .. } => Self::DataCr,
            _ => Self::Complete,
        }
    }

    /// The state after one octet of framing.
    fn on_octet(self, octet: u8, limits: &BodyLimits) -> Result<Self, BodyError> {
        match self {
            Self::Size { size, line_bytes } => on_size_octet(octet, size, line_bytes, limits),
            Self::Blank { size, .. } if octet == b'\r' => Ok(Self::SizeLf { size }),
            Self::Blank { size, line_bytes } if matches!(octet, b' ' | b'\t') => {
                Ok(Self::Blank { size, line_bytes: longer(line_bytes, limits)? })
            }
            Self::Blank { size, line_bytes } if octet == b';' => {
                Ok(Self::Extension { size, line_bytes: longer(line_bytes, limits)? })
            }
            Self::Blank { .. } => Err(BodyError::ChunkSizeInvalid),
            Self::Extension { size, .. } if octet == b'\r' => Ok(Self::SizeLf { size }),
            Self::Extension { size, line_bytes } if crate::octets::is_value_octet(octet) => {
                Ok(Self::Extension { size, line_bytes: longer(line_bytes, limits)? })
            }
            Self::Extension { .. } if octet == b'\n' => Err(BodyError::ChunkLineBreakInvalid),
            Self::Extension { .. } => Err(BodyError::ChunkExtensionInvalid),
            Self::SizeLf { size: 0 } if octet == b'\n' => {
                Ok(Self::Trailers { scan: Scan::default() })
            }
            Self::SizeLf { size: left } if octet == b'\n' => Ok(Self::Data { left }),
            Self::DataCr if octet == b'\r' => Ok(Self::DataLf),
            Self::DataLf if octet == b'\n' => Ok(Self::SIZE),
            Self::SizeLf { .. } | Self::DataCr | Self::DataLf => {
                Err(BodyError::ChunkLineBreakInvalid)
            }
            // Not between data; `decode` does not ask.
            Self::Complete
            | Self::Length { .. }
            | Self::UntilClose
            | Self::Data { .. }
            | Self::Trailers { .. } => Ok(self),
        }
    }
}

/// Digits, then a line end or `;`. White space before either is `BWS` (RFC 9112, section 7.1.1), which
/// some services send and every reader of responses skips; in a request it is refused.
fn on_size_octet(
    octet: u8,
    size: u64,
    line_bytes: u32,
    limits: &BodyLimits,
) -> Result<State, BodyError> {
    let digit = match octet {
        b'0'..=b'9' => octet - b'0',
        b'a'..=b'f' => octet - b'a' + 10,
        b'A'..=b'F' => octet - b'A' + 10,
        b'\r' if line_bytes > 0 => return Ok(State::SizeLf { size }),
        b'\n' if line_bytes > 0 => return Err(BodyError::ChunkLineBreakInvalid),
        b';' if line_bytes > 0 => {
            return Ok(State::Extension { size, line_bytes: longer(line_bytes, limits)? });
        }
        b' ' | b'\t' if line_bytes > 0 && limits.parsing == Parsing::Tolerant => {
            return Ok(State::Blank { size, line_bytes: longer(line_bytes, limits)? });
        }
        _ => return Err(BodyError::ChunkSizeInvalid),
    };
    let line_bytes = longer(line_bytes, limits)?;
    let size = size
        .checked_mul(16)
        .and_then(|size| size.checked_add(u64::from(digit)))
        // As for `Content-Length`: some receivers use signed integers.
        .filter(|&size| i64::try_from(size).is_ok())
        .ok_or(BodyError::ChunkSizeInvalid)?;
    Ok(State::Size { size, line_bytes })
}

fn longer(line_bytes: u32, limits: &BodyLimits) -> Result<u32, BodyError> {
    if line_bytes < limits.chunk_line_bytes_max {
        Ok(line_bytes + 1)
    } else {
        Err(BodyError::ChunkLineTooLong)
    }
}

/// Up to `left` bytes from the front of `rest`, and counts them off.
fn take<'i>(rest: &'i [u8], left: &mut u64) -> &'i [u8] {
    let len = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
    *left -= len as u64;
    rest.get(..len).unwrap_or_default()
}

/// The lines of a trailer section without the empty one at its end, or `None` if more bytes are
/// needed.
fn trailers<'i>(
    rest: &'i [u8],
    scan: &mut Scan,
    limits: &BodyLimits,
) -> Result<Option<&'i [u8]>, BodyError> {
    if !scan.is_due(rest) {
        return Ok(None);
    }
    let bytes_max = limits.trailers_bytes_max as usize;
    let window = rest.get(..bytes_max).unwrap_or(rest);
    match trailers_len(window, limits) {
        Ok(len) => Ok(Some(window.get(..len).unwrap_or_default())),
        Err(Refusal::More) if rest.len() < bytes_max => {
            scan.on_unfinished(rest, &[bytes_max]);
            Ok(None)
        }
        Err(Refusal::More) => Err(BodyError::TrailersTooLarge),
        Err(Refusal::Wrong(error)) => Err(error),
    }
}

enum Refusal {
    More,
    Wrong(BodyError),
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::More => Self::More,
            Stop::Wrong(error) => Self::Wrong(BodyError::TrailerInvalid(error)),
        }
    }
}

fn trailers_len(window: &[u8], limits: &BodyLimits) -> Result<usize, Refusal> {
    let mut at = 0;
    let mut left = limits.fields_max;
    loop {
        match window.get(at..).unwrap_or_default() {
            [b'\r', b'\n', ..] => return Ok(at),
            [] | [b'\r'] => return Err(Refusal::More),
            [b'\r', ..] => return Err(Stop::Wrong(HeadError::LineBreakInvalid).into()),
            _ => {}
        }
        let (field, next) = field(window, at)?;
        let is_dropped = limits.parsing == Parsing::Tolerant && !field.known.is_hop_by_hop();
        if !field.known.is_allowed_in_trailers() && !is_dropped {
            return Err(Refusal::Wrong(BodyError::TrailerForbidden));
        }
        left = left.checked_sub(1).ok_or(Refusal::Wrong(BodyError::TrailersTooLarge))?;
        at = next;
    }
}

/// The lines of a valid trailer section that are allowed in trailers (RFC 9110, section 6.5.1),
/// copied to `room` if some are not. The others have no meaning there, but services send them:
/// `date`, `content-length`.
pub fn allowed_trailers<'s>(section: &'s [u8], room: &'s mut Vec<u8>) -> &'s [u8] {
    kept_trailers(section, room, |_, known| known.is_allowed_in_trailers())
}

/// The lines of a valid trailer section whose names `is_kept` lets through, in `room` if some are
/// not kept.
pub fn kept_trailers<'s>(
    section: &'s [u8],
    room: &'s mut Vec<u8>,
    mut is_kept: impl FnMut(&[u8], Known) -> bool,
) -> &'s [u8] {
    let (mut at, mut is_whole) = (0, true);
    while let Ok((entry, next)) = field(section, at) {
        let is_line_kept = is_kept(entry.name().of(section), entry.known);
        if is_whole && !is_line_kept {
            is_whole = false;
            room.clear();
            room.extend_from_slice(section.get(..at).unwrap_or_default());
        } else if is_line_kept && !is_whole {
            room.extend_from_slice(section.get(at..next).unwrap_or_default());
        }
        at = next;
    }
    if is_whole { section } else { room }
}

/// Encodes a body: gives the bytes to write around the caller's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyEncoder {
    framing: Framing,
    is_complete: bool,
}

/// The framing around one piece of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framed {
    prefix: [u8; Self::PREFIX_BYTES_MAX],
    prefix_start: u8,
    is_chunk: bool,
}

/// The framing around the trailer section, if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    is_chunked: bool,
}

impl BodyEncoder {
    /// An encoder at the beginning of a body.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let is_complete = matches!(framing, Framing::None | Framing::Length(0));
        Self { framing, is_complete }
    }

    /// Whether the body is over: all of its declared length was announced, or [`BodyEncoder::end`]
    /// was called.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether only the end of the connection ends this body.
    #[must_use]
    pub fn ends_with_connection(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Whether data is written as it is, with nothing around it.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        matches!(self.framing, Framing::Length(_) | Framing::UntilClose) && !self.is_complete
    }

    /// Announces `len` bytes of data, and says what to write before and behind them.
    ///
    /// # Errors
    ///
    /// When they are more than the declared length, or there is no body, or it is over.
    pub fn begin(&mut self, len: usize) -> Result<Framed, BodyError> {
        if len == 0 {
            // A chunk of no bytes would be the last.
            return Ok(Framed::default());
        }
        if self.is_complete {
            return Err(BodyError::TooLong);
        }
        match &mut self.framing {
            Framing::None => Err(BodyError::TooLong),
            Framing::UntilClose => Ok(Framed::default()),
            Framing::Chunked => Ok(Framed::chunk(len)),
            Framing::Length(left) => {
                *left = left.checked_sub(len as u64).ok_or(BodyError::TooLong)?;
                self.is_complete = *left == 0;
                Ok(Framed::default())
            }
        }
    }

    /// Ends the body, and says what to write before and behind the trailer section.
    ///
    /// # Errors
    ///
    /// When less than the declared length was announced.
    pub fn end(&mut self) -> Result<Tail, BodyError> {
        if let (Framing::Length(1..), false) = (self.framing, self.is_complete) {
            return Err(BodyError::TooShort);
        }
        let is_chunked = self.framing == Framing::Chunked && !self.is_complete;
        self.is_complete = true;
        Ok(Tail { is_chunked })
    }
}

impl Framed {
    /// The longest prefix: 64 bits in hexadecimal and a line end.
    pub const PREFIX_BYTES_MAX: usize = 18;

    fn chunk(len: usize) -> Self {
        let mut prefix = [0; Self::PREFIX_BYTES_MAX];
        let mut left = len;
        let mut start = Self::PREFIX_BYTES_MAX;
        for (place, octet) in prefix.iter_mut().enumerate().rev() {
            *octet = match place {
                17 => b'\n',
                16 => b'\r',
                _ if left == 0 => break,
                _ => {
                    let digit = HEX.get(left % 16).copied().unwrap_or_default();
                    left /= 16;
                    digit
                }
            };
            start = place;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most PREFIX_BYTES_MAX")]
        let prefix_start = start as u8;
        Self { prefix, prefix_start, is_chunk: true }
    }

    /// To be written before the data.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        match self.is_chunk {
            true => self.prefix.get(usize::from(self.prefix_start)..).unwrap_or_default(),
            false => b"",
        }
    }

    /// To be written behind the data.
    #[must_use]
    pub fn suffix(&self) -> &'static [u8] {
        if self.is_chunk { b"\r\n" } else { b"" }
    }
}

impl Tail {
    /// To be written before the trailer lines.
    #[must_use]
    pub fn before_trailers(&self) -> &'static [u8] {
        if self.is_chunked { b"0\r\n" } else { b"" }
    }

    /// To be written behind the trailer lines.
    #[must_use]
    pub fn after_trailers(&self) -> &'static [u8] {
        if self.is_chunked { b"\r\n" } else { b"" }
    }

    /// Whether trailers can be written at all. Other framings have no place for them.
    #[must_use]
    pub fn takes_trailers(&self) -> bool {
        self.is_chunked
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BodyLimits = BodyLimits {
        chunk_line_bytes_max: 8,
        trailers_bytes_max: 16,
        fields_max: 2,
        parsing: Parsing::Strict,
    };

    /// The first element that a new decoder of chunks finds in `input`.
    fn first<'i>(
        input: &'i [u8],
        limits: &BodyLimits,
    ) -> Result<(usize, BodyElement<'i>), BodyError> {
        BodyDecoder::new(Framing::Chunked).decode(input, limits)
    }

    #[test]
    fn a_body_of_known_length_ends_there() {
        let mut decoder = BodyDecoder::new(Framing::Length(5));
        assert_eq!(decoder.decode(b"", &LIMITS), Ok((0, BodyElement::NeedMore)));
        assert_eq!(decoder.decode(b"ab", &LIMITS), Ok((2, BodyElement::Data(b"ab"))));
        assert_eq!(decoder.clone().on_eof(), Err(Truncated));
        assert_eq!(decoder.decode(b"cdefg", &LIMITS), Ok((3, BodyElement::Data(b"cde"))));
        assert!(decoder.is_complete());
        assert_eq!(decoder.decode(b"fg", &LIMITS), Ok((0, BodyElement::End)));
        assert_eq!(decoder.on_eof(), Ok(()));
    }

    #[test]
    fn all_but_the_last_byte_of_a_plain_body_may_pass_through() {
        let mut decoder = BodyDecoder::new(Framing::Length(5));
        assert_eq!(decoder.passthrough_max(), 4);
        decoder.on_passed(3);
        assert_eq!(decoder.passthrough_max(), 1);
        decoder.on_passed(1);
        assert_eq!(decoder.passthrough_max(), 0);
        assert_eq!(decoder.decode(b"ef", &LIMITS), Ok((1, BodyElement::Data(b"e"))));
        assert!(decoder.is_complete());
        assert_eq!(decoder.passthrough_max(), 0);

        let mut decoder = BodyDecoder::new(Framing::UntilClose);
        decoder.on_passed(1 << 40);
        assert_eq!(decoder.passthrough_max(), u64::MAX);
        // Chunks have something around them.
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        assert_eq!(decoder.passthrough_max(), 0);
        assert_eq!(decoder.decode(b"5\r\nab", &LIMITS), Ok((5, BodyElement::Data(b"ab"))));
        assert_eq!(decoder.passthrough_max(), 0);
        let is_transparent = |framing| BodyEncoder::new(framing).is_transparent();
        assert!(is_transparent(Framing::Length(1)) && is_transparent(Framing::UntilClose));
        assert!(!is_transparent(Framing::Length(0)) && !is_transparent(Framing::Chunked));
    }

    #[test]
    fn no_body_is_over_at_once() {
        for framing in [Framing::None, Framing::Length(0)] {
            let mut decoder = BodyDecoder::new(framing);
            assert!(decoder.is_complete());
            assert_eq!(decoder.decode(b"next", &LIMITS), Ok((0, BodyElement::End)));
        }
    }

    #[test]
    fn a_body_until_close_is_over_when_the_peer_closes() {
        let mut decoder = BodyDecoder::new(Framing::UntilClose);
        assert_eq!(decoder.decode(b"ab", &LIMITS), Ok((2, BodyElement::Data(b"ab"))));
        assert_eq!(decoder.decode(b"", &LIMITS), Ok((0, BodyElement::NeedMore)));
        assert!(!decoder.is_complete());
        assert_eq!(decoder.on_eof(), Ok(()));
        assert!(decoder.is_complete());
    }

    #[test]
    fn a_chunked_body_that_is_cut_off_is_not_over() {
        let whole = b"2;a\r\nab\r\n0\r\nx: 1\r\n\r\n";
        for cut in 0..whole.len() {
            let mut decoder = BodyDecoder::new(Framing::Chunked);
            let mut input = &whole[..cut];
            loop {
                let (n, element) = decoder.decode(input, &LIMITS).unwrap();
                input = &input[n..];
                if element == BodyElement::NeedMore {
                    break;
                }
            }
            assert_eq!(decoder.on_eof(), Err(Truncated), "{cut}");
        }
    }

    #[test]
    fn framing_is_consumed_with_the_data_behind_it() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        let input = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nnext";
        assert_eq!(decoder.decode(input, &LIMITS), Ok((6, BodyElement::Data(b"abc"))));
        assert_eq!(decoder.decode(&input[6..], &LIMITS), Ok((7, BodyElement::Data(b"de"))));
        assert_eq!(decoder.decode(&input[13..], &LIMITS), Ok((7, BodyElement::End)));
        assert!(decoder.is_complete());
    }

    #[test]
    fn an_unfinished_trailer_section_is_remembered() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        assert_eq!(decoder.decode(b"0\r\nx: 1", &LIMITS), Ok((3, BodyElement::NeedMore)));
        let mut scan = Scan::default();
        scan.on_unfinished(b"x: 1", &[16]);
        assert_eq!(decoder.state, State::Trailers { scan });
    }

    #[test]
    fn limits_are_met_exactly() {
        let decode = |input| first(input, &LIMITS);
        assert_eq!(decode(b"00000001\r\nx"), Ok((11, BodyElement::Data(b"x"))));
        assert_eq!(decode(b"000000001"), Err(BodyError::ChunkLineTooLong));
        assert_eq!(decode(b"1;abcdef\r\nx"), Ok((11, BodyElement::Data(b"x"))));
        assert_eq!(decode(b"1;abcdefg"), Err(BodyError::ChunkLineTooLong));
        let trailers = b"0\r\nx: 1\r\ny: 345\r\n\r\n";
        assert_eq!(decode(trailers), Ok((19, BodyElement::Trailers(b"x: 1\r\ny: 345\r\n"))));
        assert_eq!(decode(b"0\r\nx: 1\r\ny: 3456\r\n\r\n"), Err(BodyError::TrailersTooLarge));
        assert_eq!(decode(b"0\r\nxxxxxxxxxxxxxxx"), Ok((3, BodyElement::NeedMore)));
        assert_eq!(decode(b"0\r\nxxxxxxxxxxxxxxxx"), Err(BodyError::TrailersTooLarge));
        assert_eq!(
            decode(b"0\r\na:\r\nb:\r\n\r\n"),
            Ok((13, BodyElement::Trailers(b"a:\r\nb:\r\n")))
        );
        assert_eq!(decode(b"0\r\na:\r\nb:\r\nc:\r\n\r\n"), Err(BodyError::TrailersTooLarge));
    }

    #[test]
    fn the_largest_chunk_fits_63_bits() {
        let limits = BodyLimits { chunk_line_bytes_max: 32, ..LIMITS };
        let decode = |input| first(input, &limits);
        assert_eq!(decode(b"7fffffffffffffff\r\nx"), Ok((19, BodyElement::Data(b"x"))));
        assert_eq!(decode(b"8000000000000000"), Err(BodyError::ChunkSizeInvalid));
        assert_eq!(decode(b"10000000000000000"), Err(BodyError::ChunkSizeInvalid));
    }

    #[test]
    fn chunks_are_written_in_hexadecimal() {
        for (len, prefix) in [
            (1, "1\r\n"),
            (15, "f\r\n"),
            (16, "10\r\n"),
            (1024, "400\r\n"),
            (usize::MAX, "ffffffffffffffff\r\n"),
        ] {
            let framed = BodyEncoder::new(Framing::Chunked).begin(len).unwrap();
            assert_eq!(framed.prefix(), prefix.as_bytes());
            assert_eq!(framed.suffix(), b"\r\n");
        }
    }

    #[test]
    fn nothing_is_no_chunk() {
        let mut encoder = BodyEncoder::new(Framing::Chunked);
        let framed = encoder.begin(0).unwrap();
        assert_eq!((framed.prefix(), framed.suffix()), (&b""[..], &b""[..]));
        assert!(!encoder.is_complete());
        let tail = encoder.end().unwrap();
        assert_eq!((tail.before_trailers(), tail.after_trailers()), (&b"0\r\n"[..], &b"\r\n"[..]));
        assert!(tail.takes_trailers() && encoder.is_complete());
        assert_eq!(encoder.begin(1), Err(BodyError::TooLong));
        assert!(!encoder.end().unwrap().takes_trailers(), "the end is written once");
    }

    #[test]
    fn a_declared_length_is_kept_to() {
        let mut encoder = BodyEncoder::new(Framing::Length(5));
        assert_eq!(encoder.begin(3).unwrap().prefix(), b"");
        assert_eq!(encoder.clone().begin(3), Err(BodyError::TooLong));
        assert_eq!(encoder.clone().end(), Err(BodyError::TooShort));
        assert!(!encoder.is_complete());
        encoder.begin(2).unwrap();
        assert!(encoder.is_complete());
        assert_eq!(encoder.begin(1), Err(BodyError::TooLong));
        let tail = encoder.end().unwrap();
        assert_eq!((tail.before_trailers(), tail.after_trailers()), (&b""[..], &b""[..]));
    }

    #[test]
    fn other_framings_add_nothing() {
        let mut none = BodyEncoder::new(Framing::None);
        assert!(none.is_complete());
        assert_eq!(none.begin(1), Err(BodyError::TooLong));
        assert!(none.end().is_ok());
        let mut until_close = BodyEncoder::new(Framing::UntilClose);
        assert_eq!(until_close.begin(7).unwrap(), Framed::default());
        assert!(!until_close.is_complete());
        assert!(!until_close.end().unwrap().takes_trailers());
        assert!(until_close.is_complete());
    }
}
