//! The connection: what it holds, what it says, and the loop over frames.

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::control::Pending;
use super::error::{ConnectionError, ErrorCode, MessageError, StreamError};
use super::frame::{FrameHeader, MAX_31, kind};
use super::hpack::{Decoder, Encoder, TABLE_BYTES_DEFAULT};
use super::message::Scratch;
use super::settings::{Settings, WINDOW_DEFAULT};
use super::stream::{ReceiveWindow, Streams, signed};
use super::{Limits, PREFACE};
use crate::h1::HeadError;
use crate::head::{RequestHead, ResponseHead};

/// One side of one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Http2 {
    pub(super) role: Http2Role,
    pub(super) reading: Reading,
    /// The header block that began and has not ended.
    pub(super) block: Option<Box<HeaderBlock>>,
    pub(super) streams: Streams,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) ours: Settings,
    pub(super) theirs: Settings,
    /// Whether the peer has acknowledged our settings.
    pub(super) is_acknowledged: bool,
    /// The connection's send window.
    pub(super) send_window: i32,
    /// The connection's receive window.
    pub(super) receive: ReceiveWindow,
    pub(super) receive_window_max: u32,
    pub(super) pending: Pending,
    pub(super) ending: Ending,
    pub(super) budget: Budget,
    /// Milliseconds since the beginning, as the caller reported them; it wraps after 49 days.
    pub(super) clock_millis: u32,
    /// The connection cannot go on.
    pub(super) failure: Option<ConnectionError>,
}

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Http2Role {
    /// The side that opens streams.
    Client,
    /// The side that answers streams.
    Server,
}

/// An element that the peer sent.
#[derive(Debug)]
pub enum Element<'b> {
    /// Nothing yet; the caller still consumes the bytes that were returned as consumed.
    NeedMore,
    /// Nothing yet, and [`Http2::owes_many_answers`]: there may be more to read.
    AnswersDue,
    /// A request, on a new stream.
    Request {
        /// Its stream.
        stream: u32,
        /// Its head.
        head: RequestHead<'b>,
        /// Whether it has neither body nor trailers.
        is_end: bool,
    },
    /// A request that can be read and not be served: it is over a limit, or its path or host is
    /// refused. The stream is open; it should be answered, and reset if it did not end.
    Unacceptable {
        /// Its stream.
        stream: u32,
        /// The error. [`HeadError::kind`] determines the answer.
        error: HeadError,
        /// Whether nothing more comes on the stream.
        is_end: bool,
    },
    /// A request that breaks a rule of HTTP/2 which concerns it alone (RFC 9113, section 8.1.1), in
    /// its head or behind it. The stream is open, or still is; it should be answered and then reset.
    /// Further frames on it are dropped, and the answer is followed by RST_STREAM with
    /// PROTOCOL_ERROR, whatever the code that [`Http2::reset`] is given.
    Malformed {
        /// Its stream, for which [`Element::Request`] may have been returned before.
        stream: u32,
        /// The rule that the request broke.
        error: MessageError,
        /// Whether nothing more comes on the stream.
        is_end: bool,
    },
    /// The final response on a stream.
    Response {
        /// Its stream.
        stream: u32,
        /// Its head.
        head: ResponseHead<'b>,
        /// Whether it has neither body nor trailers.
        is_end: bool,
    },
    /// An interim response (1xx), before the final one.
    Interim {
        /// Its stream.
        stream: u32,
        /// Its head.
        head: ResponseHead<'b>,
    },
    /// A piece of a body; never empty. Call [`Http2::on_taken`] when it was passed on.
    Data {
        /// Its stream.
        stream: u32,
        /// The piece.
        bytes: &'b [u8],
        /// Whether it was the last, and there are no trailers.
        is_end: bool,
    },
    /// The end of a body, without a last piece or trailers.
    End {
        /// Its stream.
        stream: u32,
    },
    /// The end of a body, with these valid field lines, each with its line end.
    Trailers {
        /// Its stream.
        stream: u32,
        /// The lines.
        section: &'b [u8],
    },
    /// The peer reset a stream, which is closed now.
    Reset {
        /// The stream.
        stream: u32,
        /// The code that the peer sent.
        code: ErrorCode,
    },
    /// The peer broke a rule on a stream, which is reset from here and closed now. It may be one
    /// that nothing was said of before, or that was closed already.
    Failed {
        /// The stream.
        stream: u32,
        /// The rule that the peer broke.
        error: StreamError,
    },
    /// More may be sent on this stream, or on all, where nothing could be before.
    WindowOpened {
        /// The stream, or `None` for all.
        stream: Option<u32>,
    },
    /// The peer's settings have changed, and with them perhaps [`Http2::free_slots`].
    SettingsChanged,
    /// The peer will take no more streams. Those that were opened from here and are above
    /// `last_stream` were not processed, and are closed now.
    GoingAway {
        /// The last that the peer may have processed.
        last_stream: u32,
        /// The code that the peer sent.
        code: ErrorCode,
        /// The peer's debug data, or the beginning of it.
        debug: &'b [u8],
    },
    /// The peer has answered a [`Http2::ping`].
    PingAnswered {
        /// The opaque data of the PING.
        opaque: [u8; 8],
    },
}

/// Bytes of a GOAWAY's text that are handed out.
pub(super) const DEBUG_LEN_MAX: u32 = 128;

/// No element takes more bytes than this before something of it is consumed: a buffer for input
/// has to be at least so large.
pub const INPUT_LEN_MIN: usize = FrameHeader::LEN + 8 + DEBUG_LEN_MAX as usize;

/// Where in the input the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reading {
    /// In the preface, of which this much was seen.
    Preface { seen: u8 },
    /// Before the first frame.
    FirstFrame,
    /// Before a frame.
    Frame,
    /// In data; `left` is not zero.
    Data { stream: u32, left: u32, padding: u8, is_end: bool },
    /// In a frame that holds a piece of the header block.
    Fragment { left: u32, padding: u8, is_last: bool },
    /// In SETTINGS, whose windows were these before.
    Settings { left: u32, window_before: u32 },
    /// In bytes of no use; `left` is not zero.
    Skip { left: u32 },
}

/// A header block that has not ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HeaderBlock {
    pub(super) stream: u32,
    pub(super) purpose: Purpose,
    pub(super) is_end: bool,
    pub(super) bytes: Vec<u8>,
}

/// The purpose of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    Request,
    Response,
    Trailers,
    /// To keep the decoder in step, and nothing else.
    Ignore,
    /// To keep the decoder in step; then the stream is reset.
    Fail(StreamError),
}

/// How far the connection is on its way to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ending {
    /// The last stream that we have said to take, if we have said so.
    pub(super) ours: Option<u32>,
    /// The last stream that the peer has said to take, if it has said so.
    pub(super) theirs: Option<u32>,
}

/// A decoded element, without the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Nothing,
    AnswersDue,
    Request {
        stream: u32,
        is_end: bool,
    },
    Unacceptable {
        stream: u32,
        error: HeadError,
        is_end: bool,
    },
    Malformed {
        stream: u32,
        error: MessageError,
        is_end: bool,
    },
    Response {
        stream: u32,
        is_end: bool,
    },
    Interim {
        stream: u32,
    },
    /// `len` bytes before those that follow the step.
    Data {
        stream: u32,
        len: usize,
        is_end: bool,
    },
    End {
        stream: u32,
    },
    Trailers {
        stream: u32,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
    },
    Failed {
        stream: u32,
        error: StreamError,
    },
    WindowOpened {
        stream: Option<u32>,
    },
    SettingsChanged,
    /// The text is `len` bytes before those that follow the step.
    GoingAway {
        last_stream: u32,
        code: ErrorCode,
        len: usize,
    },
    PingAnswered {
        opaque: [u8; 8],
    },
}

/// How many bytes were read and what they were, or `None` if more are needed.
pub(super) type Step = Option<(usize, Found)>;

/// The beginning.
impl Http2 {
    /// A server's side of a new connection.
    #[must_use]
    pub fn server(limits: &Limits) -> Self {
        Self::new(Http2Role::Server, Reading::Preface { seen: 0 }, limits)
    }

    /// A client's side of a new connection.
    #[must_use]
    pub fn client(limits: &Limits) -> Self {
        Self::new(Http2Role::Client, Reading::FirstFrame, limits)
    }

    fn new(role: Http2Role, reading: Reading, limits: &Limits) -> Self {
        let ours = Settings::ours(role, limits);
        // A window cannot be made smaller than the default (section 6.9.2).
        let receive_window_max = limits.connection_window_bytes_max.clamp(WINDOW_DEFAULT, MAX_31);
        let mut receive = ReceiveWindow::new(WINDOW_DEFAULT);
        receive.on_taken(receive_window_max - WINDOW_DEFAULT);
        Self {
            role,
            reading,
            block: None,
            streams: Streams::new(),
            // A peer that has not read our settings goes by the default.
            decoder: Decoder::new(ours.header_table_bytes_max.max(TABLE_BYTES_DEFAULT)),
            encoder: Encoder::new(limits.header_table_bytes_max),
            ours,
            theirs: Settings::default(),
            is_acknowledged: false,
            send_window: signed(WINDOW_DEFAULT),
            receive,
            receive_window_max,
            pending: Pending::at_start(),
            ending: Ending::default(),
            budget: Budget::new(limits),
            clock_millis: 0,
            failure: None,
        }
    }
}

/// Getters.
impl Http2 {
    /// Which side this is.
    #[must_use]
    pub fn role(&self) -> Http2Role {
        self.role
    }

    /// How many streams are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// The numbers of the streams that are open, in order.
    pub fn streams(&self) -> impl Iterator<Item = u32> {
        self.streams.ids()
    }

    /// Whether a stream is open, in either direction.
    #[must_use]
    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some()
    }

    /// How many more streams a client may open now.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        let is_ending = self.ending.theirs.is_some() || self.ending.ours.is_some();
        if self.role == Http2Role::Server
            || is_ending
            || self.failure.is_some()
            || !self.streams.has_own_ids()
        {
            return 0;
        }
        let max = self.theirs.streams_max.min(self.ours.streams_max);
        usize::try_from(max).unwrap_or(usize::MAX).saturating_sub(self.streams.len())
    }

    /// Whether a header block has begun and has not ended: until it does, nothing else can come.
    #[must_use]
    pub fn is_amid_head(&self) -> bool {
        self.block.is_some()
    }

    /// Whether the peer has sent its settings: until then, what it allows is a guess. While it sends
    /// some, what it allows is not known either; [`Element::SettingsChanged`] says when it is.
    #[must_use]
    pub fn has_peer_settings(&self) -> bool {
        use Reading::{FirstFrame, Preface, Settings};
        !matches!(self.reading, Preface { .. } | FirstFrame | Settings { .. })
    }

    /// Whether the peer takes an extended `CONNECT` (RFC 8441).
    #[must_use]
    pub fn allows_extended_connect(&self) -> bool {
        self.theirs.allows_extended_connect
    }

    /// How many bytes a DATA frame may have on this stream now: 0 for one that is closed.
    #[must_use]
    pub fn sendable(&self, stream: u32) -> usize {
        let window = self.streams.get(stream).map_or(0, |stream| stream.send_window);
        let bytes = window.min(self.send_window).min(signed(super::send::DATA_LEN_MAX));
        usize::try_from(bytes).unwrap_or_default()
    }

    /// Why the connection cannot go on, if it cannot.
    #[must_use]
    pub fn failure(&self) -> Option<ConnectionError> {
        self.failure
    }

    /// Whether the connection may be closed: one side has sent GOAWAY, no stream is open, and
    /// nothing waits to be written.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_ending = self.ending.theirs.is_some()
            || self.ending.ours.is_some_and(|last| last < MAX_31)
            || self.failure.is_some();
        let has_streams = self.streams.len() > 0 && self.failure.is_none();
        is_ending && !has_streams && !self.has_control()
    }
}

/// Reports of the caller.
impl Http2 {
    /// `millis` whole milliseconds have passed since the last call.
    pub fn on_time(&mut self, millis: u32) {
        self.clock_millis = self.clock_millis.wrapping_add(millis);
        self.budget.on_time(millis);
    }

    /// The connection has been without streams for a while: gives back what storage it can.
    pub fn on_idle(&mut self) {
        self.streams.shrink();
        self.pending.shrink();
    }
}

/// Reading.
impl Http2 {
    /// Decodes the next element, and returns how many bytes of `input` were consumed.
    ///
    /// Call again with what follows them until more bytes are needed. How the input is cut into
    /// pieces changes nothing but the pieces of data.
    ///
    /// # Errors
    ///
    /// When the connection cannot go on. [`Http2::send_control`] then writes GOAWAY, behind which
    /// the connection should be closed; all streams are lost.
    pub fn decode<'b>(
        &mut self,
        input: &'b [u8],
        limits: &Limits,
        scratch: &'b mut Scratch,
    ) -> Result<(usize, Element<'b>), ConnectionError> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        match self.read(input, limits, scratch) {
            Ok((n, found)) => Ok((n, found.element(input, n, scratch))),
            Err(error) => {
                self.fail(error);
                Err(error)
            }
        }
    }

    fn read(
        &mut self,
        input: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<(usize, Found), ConnectionError> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            match self.step(rest, limits, scratch)? {
                None => return Ok((at, Found::Nothing)),
                Some((n, Found::Nothing)) => {
                    at += n;
                    if self.owes_many_answers() {
                        return Ok((at, Found::AnswersDue));
                    }
                }
                Some((n, found)) => return Ok((at + n, found)),
            }
        }
    }

    /// One step over `rest`.
    #[inline]
    fn step(
        &mut self,
        rest: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Step, ConnectionError> {
        match self.reading {
            Reading::Frame => self.on_frame(rest, limits, scratch),
            Reading::Data { stream, left, padding, is_end } => {
                self.on_data(rest, stream, left, padding, is_end)
            }
            Reading::Fragment { left, padding, is_last } => {
                self.on_fragment(rest, left, padding, is_last, limits, scratch)
            }
            Reading::Settings { left, window_before } => {
                self.on_settings(rest, left, window_before)
            }
            Reading::Skip { left } => Ok(self.skip(rest, left)),
            Reading::FirstFrame => self.on_first_frame(rest),
            Reading::Preface { seen } => self.on_preface(rest, seen),
        }
    }

    fn on_preface(&mut self, rest: &[u8], seen: u8) -> Result<Step, ConnectionError> {
        let expected = PREFACE.get(usize::from(seen)..).unwrap_or_default();
        let n = rest.len().min(expected.len());
        if rest.get(..n) != expected.get(..n) {
            return Err(ConnectionError::PrefaceInvalid);
        }
        if n == expected.len() {
            self.reading = Reading::FirstFrame;
            return Ok(Some((n, Found::Nothing)));
        }
        if n == 0 {
            return Ok(None);
        }
        let n_seen = u8::try_from(n).unwrap_or_default();
        self.reading = Reading::Preface { seen: seen.saturating_add(n_seen) };
        Ok(Some((n, Found::Nothing)))
    }

    /// RFC 9113, section 3.4: the first frame is SETTINGS, and no acknowledgement.
    fn on_first_frame(&mut self, rest: &[u8]) -> Result<Step, ConnectionError> {
        let Some((header, _)) = FrameHeader::decode(rest) else { return Ok(None) };
        if header.kind != kind::SETTINGS || header.has(super::frame::flag::ACK) {
            return Err(ConnectionError::FirstFrameInvalid);
        }
        self.reading = Reading::Frame;
        Ok(Some((0, Found::Nothing)))
    }

    pub(super) fn skip(&mut self, rest: &[u8], left: u32) -> Step {
        let n = rest.len().min(left as usize);
        if n == 0 {
            return None;
        }
        let left = left.saturating_sub(crate::octets::narrow(n));
        self.reading = if left == 0 { Reading::Frame } else { Reading::Skip { left } };
        Some((n, Found::Nothing))
    }

    /// The state that skips `left` bytes.
    pub(super) fn skipping(left: u32) -> Reading {
        if left == 0 { Reading::Frame } else { Reading::Skip { left } }
    }

    fn fail(&mut self, error: ConnectionError) {
        self.failure = Some(error);
        self.block = None;
        let last = self.ending.ours.map_or(MAX_31, |last| last).min(self.streams.last_peer());
        self.ending.ours = Some(last);
        self.pending.on_failure(last, error.code());
    }
}

impl Found {
    /// The element, with its bytes. Those of pieces end where the step over `input` did.
    fn element<'b>(self, input: &'b [u8], n: usize, scratch: &'b mut Scratch) -> Element<'b> {
        let piece = |len: usize| input.get(n.saturating_sub(len)..n).unwrap_or_default();
        let Scratch { block, index, .. } = scratch;
        match self {
            Self::Nothing => Element::NeedMore,
            Self::AnswersDue => Element::AnswersDue,
            Self::Request { stream, is_end } => {
                Element::Request { stream, head: RequestHead::resume(block, index), is_end }
            }
            Self::Unacceptable { stream, error, is_end } => {
                Element::Unacceptable { stream, error, is_end }
            }
            Self::Malformed { stream, error, is_end } => {
                Element::Malformed { stream, error, is_end }
            }
            Self::Response { stream, is_end } => {
                Element::Response { stream, head: ResponseHead::resume(block, index), is_end }
            }
            Self::Interim { stream } => {
                Element::Interim { stream, head: ResponseHead::resume(block, index) }
            }
            Self::Data { stream, len, is_end } => {
                Element::Data { stream, bytes: piece(len), is_end }
            }
            Self::End { stream } => Element::End { stream },
            Self::Trailers { stream } => Element::Trailers { stream, section: block },
            Self::Reset { stream, code } => Element::Reset { stream, code },
            Self::Failed { stream, error } => Element::Failed { stream, error },
            Self::WindowOpened { stream } => Element::WindowOpened { stream },
            Self::SettingsChanged => Element::SettingsChanged,
            Self::GoingAway { last_stream, code, len } => {
                Element::GoingAway { last_stream, code, debug: piece(len) }
            }
            Self::PingAnswered { opaque } => Element::PingAnswered { opaque },
        }
    }
}
