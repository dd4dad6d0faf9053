//! Frames from the peer: what each does to the connection and its streams.

use super::budget::Work;
use super::connection::{DEBUG_LEN_MAX, Found, HeaderBlock, Http2, Purpose, Reading, Step};
use super::error::{ConnectionError, ErrorCode, MessageError, StreamError};
use super::frame::{FrameHeader, MAX_31, flag, kind, number};
use super::hpack::Line;
use super::message::{HeadBuilder, Refusal, Scratch, TrailersBuilder};
use super::settings::{SETTING_LEN, WINDOW_DEFAULT};
use super::stream::{Half, Standing, Stream, StreamKind};
use super::{Http2Role, Limits};
use crate::head::Method;

/// Header blocks longer than this many times the head that they may hold are not read to their
/// end. Up to there, the answer says that the head is too long.
const BLOCK_LEN_FACTOR_MAX: usize = 2;

impl Http2 {
    /// Reads a frame's header, and what stands in front of its payload or all of it.
    pub(super) fn on_frame(
        &mut self,
        rest: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Step, ConnectionError> {
        let Some((header, payload)) = FrameHeader::decode(rest) else { return Ok(None) };
        if header.len > self.ours.frame_bytes_max {
            return Err(ConnectionError::FrameTooLarge);
        }
        if let Some(block) = &self.block
            && (header.kind != kind::CONTINUATION || header.stream != block.stream)
        {
            return Err(ConnectionError::ContinuationExpected);
        }
        match header.kind {
            kind::DATA => self.on_data_frame(header, payload),
            kind::HEADERS => self.on_headers_frame(header, payload, limits, scratch),
            kind::PRIORITY => self.on_priority_frame(header, payload),
            kind::RST_STREAM => self.on_reset_frame(header, payload),
            kind::SETTINGS => self.on_settings_frame(header),
            kind::PUSH_PROMISE => Err(ConnectionError::PushForbidden),
            kind::PING => self.on_ping_frame(header, payload),
            kind::GOAWAY => self.on_goaway_frame(header, payload),
            kind::WINDOW_UPDATE => self.on_window_update_frame(header, payload),
            kind::CONTINUATION => self.on_continuation_frame(header),
            _ => {
                self.budget.spend(Work::Idle)?;
                Ok(self.ignore(header))
            }
        }
    }

    /// Goes on behind the frame.
    fn ignore(&mut self, header: FrameHeader) -> Step {
        self.reading = Self::skipping(header.len);
        Some((FrameHeader::LEN, Found::Nothing))
    }

    fn standing(&self, stream: u32) -> Standing {
        self.streams.standing(stream, self.role == Http2Role::Server)
    }
}

/// DATA (RFC 9113, section 6.1).
impl Http2 {
    fn on_data_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        let Some((prefix, padding)) = padding(header, payload, 0)? else { return Ok(None) };
        let standing = self.standing(header.stream);
        match standing {
            Standing::Idle => return Err(ConnectionError::StreamIdle),
            Standing::Impossible => return Err(ConnectionError::StreamIdInvalid),
            Standing::Ended => return Err(ConnectionError::StreamClosed),
            Standing::Open | Standing::Reset | Standing::Past => {}
        }
        if !self.receive.on_received(header.len) {
            return Err(ConnectionError::WindowExceeded);
        }
        let len = header.len - prefix - u32::from(padding);
        let is_end = header.has(flag::END_STREAM);
        if len == 0 && !is_end {
            self.budget.spend(Work::DataEmpty)?;
        }
        let Some(stream) = self.streams.get_mut(header.stream) else {
            // The caller will not get this data, so it counts as taken.
            self.receive.on_taken(header.len);
            return self.on_data_of_no_use(header, standing);
        };
        if stream.is_malformed {
            self.receive.on_taken(header.len);
            self.budget.spend(Work::Idle)?;
            if is_end {
                self.on_end(header.stream);
            }
            return Ok(self.ignore(header));
        }
        let error = match stream.receiving {
            Half::Head => Some(MessageError::DataMisplaced.into()),
            Half::End => Some(StreamError::Closed),
            Half::Body if !stream.receive.on_received(header.len) => {
                Some(StreamError::WindowExceeded)
            }
            Half::Body => stream.on_announced(len, is_end).err().map(StreamError::from),
        };
        if let Some(error) = error {
            self.receive.on_taken(header.len);
            self.reading = Self::skipping(header.len);
            let found = match error {
                StreamError::Malformed(error) => self.fail_message(header.stream, error, is_end)?,
                error => self.fail_stream(header.stream, error)?,
            };
            return Ok(Some((FrameHeader::LEN, found)));
        }
        self.budget.on_data(len);
        // Padding counts as taken at once.
        stream.untaken = stream.untaken.saturating_add(len);
        stream.receive.on_taken(header.len - len);
        if !is_end && stream.begins_update(self.ours.window) {
            self.pending.on_update_due(stream.id);
        }
        self.receive.on_taken(header.len - len);
        let n = FrameHeader::LEN + prefix as usize;
        if len > 0 {
            self.reading = Reading::Data { stream: header.stream, left: len, padding, is_end };
            return Ok(Some((n, Found::Nothing)));
        }
        self.reading = Self::skipping(u32::from(padding));
        if !is_end {
            return Ok(Some((n, Found::Nothing)));
        }
        self.on_end(header.stream);
        Ok(Some((n, Found::End { stream: header.stream })))
    }

    /// Data for a stream that is closed.
    fn on_data_of_no_use(
        &mut self,
        header: FrameHeader,
        standing: Standing,
    ) -> Result<Step, ConnectionError> {
        if standing == Standing::Reset {
            // The peer may not know yet.
            self.budget.spend(Work::Idle)?;
        } else {
            self.fail_stream(header.stream, StreamError::Closed)?;
        }
        Ok(self.ignore(header))
    }

    /// Hands out what there is of the data.
    pub(super) fn on_data(
        &mut self,
        rest: &[u8],
        id: u32,
        left: u32,
        padding: u8,
        is_end: bool,
    ) -> Result<Step, ConnectionError> {
        if self.streams.get(id).is_none() {
            // The stream was reset since the frame began.
            return Ok(self.skip(rest, left + u32::from(padding)));
        }
        let n = rest.len().min(left as usize);
        if n == 0 {
            return Ok(None);
        }
        let len = crate::octets::narrow(n);
        let left = left.saturating_sub(len);
        let is_last = is_end && left == 0;
        self.reading = match left {
            0 => Self::skipping(u32::from(padding)),
            left => Reading::Data { stream: id, left, padding, is_end },
        };
        if is_last {
            self.on_end(id);
        }
        Ok(Some((n, Found::Data { stream: id, len: n, is_end: is_last })))
    }
}

/// HEADERS and CONTINUATION (RFC 9113, sections 6.2 and 6.10).
impl Http2 {
    fn on_headers_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Step, ConnectionError> {
        const PRIORITY_LEN: u32 = 5;
        let has_priority = header.has(flag::PRIORITY);
        let priority_len = if has_priority { PRIORITY_LEN } else { 0 };
        let Some((prefix, padding)) = padding(header, payload, priority_len)? else {
            return Ok(None);
        };
        let priority = payload.get((prefix - priority_len) as usize..).unwrap_or_default();
        let is_end = header.has(flag::END_STREAM);
        let mut purpose = self.purpose(header.stream, is_end)?;
        if has_priority && depends_on(priority) == Some(header.stream) && purpose != Purpose::Ignore
        {
            purpose = Purpose::Fail(StreamError::PriorityOnItself);
        }
        let left = header.len - prefix - u32::from(padding);
        let is_last = header.has(flag::END_HEADERS);
        let n = FrameHeader::LEN + prefix as usize;
        let block = HeaderBlock { stream: header.stream, purpose, is_end, bytes: Vec::new() };
        let fragment = payload.get(prefix as usize..(prefix + left) as usize);
        if let Some(fragment) = fragment.filter(|_| is_last) {
            // The usual block is in one frame, and that is there.
            self.reading = Self::skipping(u32::from(padding));
            let found = self.on_block(&block, fragment, limits, scratch)?;
            return Ok(Some((n + fragment.len(), found)));
        }
        self.block = Some(Box::new(block));
        self.reading = Reading::Fragment { left, padding, is_last };
        Ok(Some((n, Found::Nothing)))
    }

    /// The purpose of a header block that begins now (section 5.1).
    fn purpose(&mut self, id: u32, is_end: bool) -> Result<Purpose, ConnectionError> {
        let is_server = self.role == Http2Role::Server;
        match self.standing(id) {
            Standing::Impossible => Err(ConnectionError::StreamIdInvalid),
            Standing::Idle if is_server => Ok(self.purpose_of_new(id)),
            Standing::Idle => Err(ConnectionError::StreamIdInvalid),
            Standing::Open => {
                let stream = self.streams.get(id);
                if stream.is_some_and(|stream| stream.is_malformed) {
                    self.budget.spend(Work::Idle)?;
                    return Ok(Purpose::Ignore);
                }
                Ok(match stream.map(|stream| stream.receiving) {
                    Some(Half::Head) => Purpose::Response,
                    Some(Half::Body) if is_end => Purpose::Trailers,
                    Some(Half::Body) => Purpose::Fail(MessageError::EndMissing.into()),
                    Some(Half::End) | None => Purpose::Fail(StreamError::Closed),
                })
            }
            Standing::Reset => {
                self.budget.spend(Work::Idle)?;
                Ok(Purpose::Ignore)
            }
            Standing::Ended => Err(ConnectionError::StreamClosed),
            // Section 5.1.1: a client goes upwards. A stream of ours may have been reset so long
            // ago that it was forgotten.
            Standing::Past if is_server => Err(ConnectionError::StreamIdInvalid),
            Standing::Past => {
                self.budget.spend(Work::Idle)?;
                Ok(Purpose::Ignore)
            }
        }
    }

    fn purpose_of_new(&mut self, id: u32) -> Purpose {
        self.streams.on_peer_used(id);
        let is_over = self.ending.ours.is_some_and(|last| id > last);
        let is_full = self.streams.len() >= self.ours.streams_max as usize;
        if is_over || is_full { Purpose::Fail(StreamError::Refused) } else { Purpose::Request }
    }

    fn on_continuation_frame(&mut self, header: FrameHeader) -> Result<Step, ConnectionError> {
        if self.block.is_none() {
            return Err(ConnectionError::ContinuationUnexpected);
        }
        self.budget.spend(Work::Continuation)?;
        let is_last = header.has(flag::END_HEADERS);
        self.reading = Reading::Fragment { left: header.len, padding: 0, is_last };
        Ok(Some((FrameHeader::LEN, Found::Nothing)))
    }

    /// Gathers what there is of a header block.
    pub(super) fn on_fragment(
        &mut self,
        rest: &[u8],
        left: u32,
        padding: u8,
        is_last: bool,
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Step, ConnectionError> {
        let fragment = rest.get(..left as usize).unwrap_or(rest);
        if fragment.is_empty() && left > 0 {
            return Ok(None);
        }
        let n = fragment.len();
        let left = left.saturating_sub(crate::octets::narrow(n));
        if let Some(block) = &mut self.block {
            let len_max = BLOCK_LEN_FACTOR_MAX * limits.head.head_bytes_max as usize;
            if block.bytes.len() + n > len_max {
                return Err(ConnectionError::HeaderBlockTooLarge);
            }
            block.bytes.extend_from_slice(fragment);
        }
        if left > 0 {
            self.reading = Reading::Fragment { left, padding, is_last };
            return Ok(Some((n, Found::Nothing)));
        }
        self.reading = Self::skipping(u32::from(padding));
        let found = match self.block.take_if(|_| is_last) {
            Some(block) => self.on_block(&block, &block.bytes, limits, scratch)?,
            None => Found::Nothing,
        };
        Ok(Some((n, found)))
    }

    /// Reads a whole header block.
    fn on_block(
        &mut self,
        block: &HeaderBlock,
        bytes: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Found, ConnectionError> {
        let id = block.stream;
        let purpose = match block.purpose {
            // The stream was reset from here since the block began.
            Purpose::Response | Purpose::Trailers if self.streams.get(id).is_none() => {
                Purpose::Ignore
            }
            purpose => purpose,
        };
        match purpose {
            Purpose::Request => self.on_request(id, block.is_end, bytes, limits, scratch),
            Purpose::Response => self.on_response(id, block.is_end, bytes, limits, scratch),
            Purpose::Trailers => self.on_trailers(id, bytes, limits, scratch),
            Purpose::Ignore => {
                self.read_fields(bytes, &mut scratch.literal, |_| Ok(()))?.ok();
                Ok(Found::Nothing)
            }
            Purpose::Fail(error) => {
                self.read_fields(bytes, &mut scratch.literal, |_| Ok(()))?.ok();
                match error {
                    StreamError::Malformed(error) => self.fail_message(id, error, block.is_end),
                    error => self.fail_stream(id, error),
                }
            }
        }
    }

    fn on_request(
        &mut self,
        id: u32,
        is_end: bool,
        bytes: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Found, ConnectionError> {
        let (mut head, literal) = HeadBuilder::new(scratch, &limits.head);
        let read = self.read_fields(bytes, literal, |line| head.push_request(line))?;
        let (body_left, found) = match read.and_then(|()| head.finish_request(is_end)) {
            Ok(body_left) => (body_left, Found::Request { stream: id, is_end }),
            Err(Refusal::Unacceptable(error)) => {
                (None, Found::Unacceptable { stream: id, error, is_end })
            }
            Err(Refusal::Malformed(error)) => {
                self.budget.spend(Work::Reset)?;
                (None, Found::Malformed { stream: id, error, is_end })
            }
        };
        let window = self.stream_window();
        // Other kinds make no difference on this side.
        let kind = match scratch.index.upgrade {
            Some(_) => StreamKind::ExtendedConnect,
            None => StreamKind::Plain,
        };
        let mut stream = Stream::new(id, kind, self.new_send_window(), window);
        stream.on_head(body_left, is_end);
        stream.opened_millis = self.clock_millis;
        stream.is_malformed = matches!(found, Found::Malformed { .. });
        self.streams.open(stream);
        Ok(found)
    }

    fn on_response(
        &mut self,
        id: u32,
        is_end: bool,
        bytes: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Found, ConnectionError> {
        let kind = self.streams.get(id).map_or(StreamKind::Plain, |stream| stream.kind);
        let to = match kind {
            StreamKind::Plain => Method::Get,
            StreamKind::Head => Method::Head,
            StreamKind::Connect | StreamKind::ExtendedConnect => Method::Connect,
        };
        let (mut head, literal) = HeadBuilder::new(scratch, &limits.head);
        let read = self.read_fields(bytes, literal, |line| head.push_response(line))?;
        match read.and_then(|()| head.finish_response(to, is_end)) {
            Ok((100..=199, _)) => Ok(Found::Interim { stream: id }),
            Ok((_, body_left)) => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.on_head(body_left, is_end);
                }
                self.close_if_over(id);
                Ok(Found::Response { stream: id, is_end })
            }
            Err(Refusal::Unacceptable(_)) => self.fail_stream(id, StreamError::HeadTooLarge),
            Err(Refusal::Malformed(error)) => self.fail_stream(id, error.into()),
        }
    }

    fn on_trailers(
        &mut self,
        id: u32,
        bytes: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Found, ConnectionError> {
        let (mut trailers, literal) = TrailersBuilder::new(scratch, &limits.head);
        let read = self.read_fields(bytes, literal, |line| trailers.push(line))?;
        let found = match read {
            Ok(()) if trailers.finish() => Found::Trailers { stream: id },
            Ok(()) => Found::End { stream: id },
            Err(Refusal::Unacceptable(_)) => {
                return self.fail_stream(id, StreamError::TrailersTooLarge);
            }
            Err(Refusal::Malformed(error)) => return self.fail_message(id, error, true),
        };
        if let Some(Err(error)) = self.streams.get_mut(id).map(|open| open.on_announced(0, true)) {
            return self.fail_message(id, error, true);
        }
        self.on_end(id);
        Ok(found)
    }

    /// Decodes a header block to its end, whatever `push` says of its fields, and says what it
    /// said first. What expands beyond all measure is charged.
    fn read_fields(
        &mut self,
        bytes: &[u8],
        literal: &mut Vec<u8>,
        mut push: impl FnMut(&Line<'_>) -> Result<(), Refusal>,
    ) -> Result<Result<(), Refusal>, ConnectionError> {
        // An honest block says each entry of the table once, and the rest in its own bytes.
        let honest_len = self.decoder.table_size_max() as usize + 2 * bytes.len();
        let mut len = 0;
        let mut refused = 0u32;
        let mut result = Ok(());
        let mut fields = self.decoder.fields(bytes);
        while let Some(line) = fields.next(literal) {
            len += line.bytes.len();
            match result {
                Ok(()) => result = push(&line),
                Err(_) => refused += 1,
            }
        }
        fields.end()?;
        let excess = crate::octets::narrow(len.saturating_sub(honest_len) / 64);
        self.budget.spend_times(Work::Expansion, excess.saturating_add(refused))?;
        Ok(result)
    }
}

/// Frames about streams (RFC 9113, sections 6.3, 6.4 and 6.9).
impl Http2 {
    /// Priorities were taken out of the protocol; what is left is that they must make sense.
    fn on_priority_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        const LEN: u32 = 5;
        if header.stream == 0 {
            return Err(ConnectionError::StreamIdInvalid);
        }
        let error = if header.len != LEN {
            StreamError::FrameSizeInvalid
        } else {
            let Some(priority) = payload.get(..LEN as usize) else { return Ok(None) };
            if depends_on(priority) != Some(header.stream) {
                self.budget.spend(Work::Priority)?;
                return Ok(self.ignore(header));
            }
            StreamError::PriorityOnItself
        };
        match self.standing(header.stream) {
            Standing::Open | Standing::Ended | Standing::Past | Standing::Reset => {
                let found = self.fail_stream(header.stream, error)?;
                self.reading = Self::skipping(header.len);
                Ok(Some((FrameHeader::LEN, found)))
            }
            // A stream that is idle cannot be reset.
            Standing::Idle | Standing::Impossible => Err(match error {
                StreamError::FrameSizeInvalid => ConnectionError::FrameSizeInvalid,
                _ => ConnectionError::PriorityOnItself,
            }),
        }
    }

    fn on_reset_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        const LEN: u32 = 4;
        if header.len != LEN {
            return Err(ConnectionError::FrameSizeInvalid);
        }
        let Some(code) = number(payload) else { return Ok(None) };
        let n = FrameHeader::LEN + LEN as usize;
        match self.standing(header.stream) {
            Standing::Impossible => return Err(ConnectionError::StreamIdInvalid),
            Standing::Idle => return Err(ConnectionError::StreamIdle),
            Standing::Open => {}
            Standing::Ended | Standing::Past | Standing::Reset => {
                self.budget.spend(Work::Idle)?;
                return Ok(Some((n, Found::Nothing)));
            }
        }
        let Some(stream) = self.streams.close(header.stream) else {
            return Ok(Some((n, Found::Nothing)));
        };
        self.receive.on_taken(stream.untaken);
        match self.role {
            // A server may refuse a request.
            Http2Role::Client => {}
            // The error was charged when it was found.
            Http2Role::Server if stream.is_malformed => {}
            Http2Role::Server if stream.sending == Half::End => self.budget.on_request_finished(),
            Http2Role::Server => {
                self.budget.on_reset(self.clock_millis.wrapping_sub(stream.opened_millis))?;
            }
        }
        Ok(Some((n, Found::Reset { stream: header.stream, code: ErrorCode(code) })))
    }

    fn on_window_update_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        const LEN: u32 = 4;
        if header.len != LEN {
            return Err(ConnectionError::FrameSizeInvalid);
        }
        let Some(increment) = number(payload).map(|number| number & MAX_31) else {
            return Ok(None);
        };
        self.budget.spend(Work::WindowUpdate)?;
        let found = if header.stream == 0 {
            self.on_connection_window(increment)?
        } else {
            self.on_stream_window(header.stream, increment)?
        };
        Ok(Some((FrameHeader::LEN + LEN as usize, found)))
    }

    fn on_connection_window(&mut self, increment: u32) -> Result<Found, ConnectionError> {
        if increment == 0 {
            return Err(ConnectionError::WindowIncrementZero);
        }
        let before = self.send_window;
        let after = before.checked_add_unsigned(increment);
        self.send_window = after.ok_or(ConnectionError::WindowOverflow)?;
        let has_opened = before <= 0 && self.send_window > 0;
        Ok(if has_opened { Found::WindowOpened { stream: None } } else { Found::Nothing })
    }

    fn on_stream_window(&mut self, id: u32, increment: u32) -> Result<Found, ConnectionError> {
        let Some(stream) = self.streams.get_mut(id) else {
            return match self.standing(id) {
                Standing::Idle => Err(ConnectionError::StreamIdle),
                Standing::Impossible => Err(ConnectionError::StreamIdInvalid),
                Standing::Open | Standing::Ended | Standing::Past | Standing::Reset => {
                    Ok(Found::Nothing)
                }
            };
        };
        if increment == 0 {
            return self.fail_stream(id, StreamError::WindowIncrementZero);
        }
        let before = stream.send_window;
        let Some(after) = before.checked_add_unsigned(increment) else {
            return self.fail_stream(id, StreamError::WindowOverflow);
        };
        stream.send_window = after;
        let has_opened = before <= 0 && after > 0;
        Ok(if has_opened { Found::WindowOpened { stream: Some(id) } } else { Found::Nothing })
    }
}

/// Frames about the connection (RFC 9113, sections 6.5, 6.7 and 6.8).
impl Http2 {
    fn on_settings_frame(&mut self, header: FrameHeader) -> Result<Step, ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::StreamIdInvalid);
        }
        if header.has(flag::ACK) {
            if header.len != 0 {
                return Err(ConnectionError::FrameSizeInvalid);
            }
            self.on_settings_acknowledged()?;
        } else {
            if !(header.len as usize).is_multiple_of(SETTING_LEN) {
                return Err(ConnectionError::FrameSizeInvalid);
            }
            self.budget.spend(Work::Settings)?;
            self.reading =
                Reading::Settings { left: header.len, window_before: self.theirs.window };
        }
        Ok(Some((FrameHeader::LEN, Found::Nothing)))
    }

    /// Takes in one setting, or ends the frame.
    pub(super) fn on_settings(
        &mut self,
        rest: &[u8],
        left: u32,
        window_before: u32,
    ) -> Result<Step, ConnectionError> {
        if left == 0 {
            self.reading = Reading::Frame;
            self.on_settings_end(window_before)?;
            return Ok(Some((0, Found::SettingsChanged)));
        }
        let Some(setting) = rest.first_chunk::<SETTING_LEN>() else { return Ok(None) };
        let their_role = match self.role {
            Http2Role::Server => Http2Role::Client,
            Http2Role::Client => Http2Role::Server,
        };
        self.theirs.on_setting(*setting, their_role)?;
        self.encoder.set_size_allowed(self.theirs.header_table_bytes_max);
        let left = left.saturating_sub(crate::octets::narrow(SETTING_LEN));
        self.reading = Reading::Settings { left, window_before };
        Ok(Some((SETTING_LEN, Found::Nothing)))
    }

    /// Section 6.9.2: the windows of all streams change by as much as the initial one.
    pub(super) fn on_settings_end(&mut self, window_before: u32) -> Result<(), ConnectionError> {
        let by = i64::from(self.theirs.window) - i64::from(window_before);
        if by != 0 {
            for stream in self.streams.iter_mut() {
                let window = i64::from(stream.send_window) + by;
                stream.send_window =
                    i32::try_from(window).map_err(|_| ConnectionError::SettingWindowTooLarge)?;
            }
        }
        self.pending.on_settings()
    }

    /// From now on the peer goes by our settings.
    fn on_settings_acknowledged(&mut self) -> Result<(), ConnectionError> {
        if self.is_acknowledged {
            return self.budget.spend(Work::Idle);
        }
        let by = i64::from(self.ours.window) - i64::from(self.stream_window());
        self.is_acknowledged = true;
        for stream in self.streams.iter_mut() {
            stream.receive.shift(by);
        }
        self.decoder.set_size_allowed(self.ours.header_table_bytes_max);
        Ok(())
    }

    /// The send window of a new stream. Within a SETTINGS frame, that is the window before it: at
    /// its end, this stream's window changes with all others.
    pub(super) fn new_send_window(&self) -> u32 {
        match self.reading {
            Reading::Settings { window_before, .. } => window_before,
            _ => self.theirs.window,
        }
    }

    /// The receive window of a new stream. Before the peer has acknowledged our settings, it may
    /// use the default.
    pub(super) fn stream_window(&self) -> u32 {
        if self.is_acknowledged { self.ours.window } else { self.ours.window.max(WINDOW_DEFAULT) }
    }

    fn on_ping_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        const LEN: u32 = 8;
        if header.stream != 0 {
            return Err(ConnectionError::StreamIdInvalid);
        }
        if header.len != LEN {
            return Err(ConnectionError::FrameSizeInvalid);
        }
        let Some(&opaque) = payload.first_chunk::<8>() else { return Ok(None) };
        self.budget.spend(Work::Ping)?;
        let found = if header.has(flag::ACK) {
            Found::PingAnswered { opaque }
        } else {
            self.pending.on_ping(opaque)?;
            Found::Nothing
        };
        Ok(Some((FrameHeader::LEN + LEN as usize, found)))
    }

    fn on_goaway_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        const FIXED_LEN: u32 = 8;
        if header.stream != 0 {
            return Err(ConnectionError::StreamIdInvalid);
        }
        let Some(text_len) = header.len.checked_sub(FIXED_LEN) else {
            return Err(ConnectionError::FrameSizeInvalid);
        };
        let taken = FIXED_LEN + text_len.min(DEBUG_LEN_MAX);
        let Some(payload) = payload.get(..taken as usize) else { return Ok(None) };
        let last = number(payload).unwrap_or_default() & MAX_31;
        let code = number(payload.get(4..).unwrap_or_default()).unwrap_or_default();
        self.budget.spend(Work::Idle)?;
        // It cannot grow again.
        let last_stream = self.ending.theirs.map_or(last, |before| before.min(last));
        self.ending.theirs = Some(last_stream);
        if self.role == Http2Role::Client {
            self.close_above(last_stream);
        }
        self.reading = Self::skipping(header.len - taken);
        let len = payload.len().saturating_sub(FIXED_LEN as usize);
        let found = Found::GoingAway { last_stream, code: ErrorCode(code), len };
        Ok(Some((FrameHeader::LEN + taken as usize, found)))
    }
}

/// Ends of streams.
impl Http2 {
    /// The peer's half of a stream is over.
    fn on_end(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.receiving = Half::End;
            self.close_if_over(id);
        }
    }

    pub(super) fn close_if_over(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id).filter(|stream| stream.is_over()) else { return };
        if stream.is_malformed {
            // The request was answered, but the stream error is still due (section 8.1.1).
            self.reset(id, ErrorCode::PROTOCOL_ERROR);
        } else {
            let stream = self.streams.close(id);
            self.receive.on_taken(stream.map_or(0, |stream| stream.untaken));
            self.budget.on_request_finished();
        }
    }

    /// Takes out a stream that is to be reset from here.
    pub(super) fn close_by_reset(&mut self, id: u32) {
        if let Some(stream) = self.streams.reset(id) {
            self.receive.on_taken(stream.untaken);
            if stream.sending == Half::End && !stream.is_malformed {
                self.budget.on_request_finished();
            }
        }
    }

    /// Closes what the peer will not process.
    fn close_above(&mut self, last: u32) {
        while let Some(id) = self.streams.ids().last().filter(|&id| id > last) {
            self.close_by_reset(id);
        }
    }

    /// A message on an open stream breaks a rule. A request that was not answered yet can still be;
    /// `is_end`: nothing more comes of it. Anything else is reset.
    fn fail_message(
        &mut self,
        id: u32,
        error: MessageError,
        is_end: bool,
    ) -> Result<Found, ConnectionError> {
        let is_server = self.role == Http2Role::Server;
        let unanswered = |stream: &&mut Stream| is_server && stream.sending == Half::Head;
        let Some(stream) = self.streams.get_mut(id).filter(unanswered) else {
            return self.fail_stream(id, error.into());
        };
        stream.is_malformed = true;
        if is_end {
            stream.receiving = Half::End;
        }
        self.budget.spend(Work::Reset)?;
        Ok(Found::Malformed { stream: id, error, is_end })
    }

    /// Resets a stream on which the peer broke a rule.
    pub(super) fn fail_stream(
        &mut self,
        id: u32,
        error: StreamError,
    ) -> Result<Found, ConnectionError> {
        match (self.role, error) {
            (Http2Role::Client, _) => {}
            (Http2Role::Server, StreamError::Refused) => self.budget.spend(Work::Refused)?,
            (Http2Role::Server, _) => self.budget.spend(Work::Reset)?,
        }
        self.close_by_reset(id);
        self.pending.on_provoked_reset(id, error.code())?;
        Ok(Found::Failed { stream: id, error })
    }
}

/// How many octets stand in front of a payload that may be padded, beside `fixed` others, and how
/// much padding behind it; `None` if they are not there yet.
fn padding(
    header: FrameHeader,
    payload: &[u8],
    fixed: u32,
) -> Result<Option<(u32, u8)>, ConnectionError> {
    let is_padded = header.has(flag::PADDED);
    let prefix = u32::from(is_padded) + fixed;
    let Some(payload_len) = header.len.checked_sub(prefix) else {
        return Err(ConnectionError::FrameSizeInvalid);
    };
    if payload.len() < prefix as usize {
        return Ok(None);
    }
    let padding = payload.first().copied().filter(|_| is_padded).unwrap_or_default();
    if u32::from(padding) > payload_len {
        return Err(ConnectionError::PaddingInvalid);
    }
    Ok(Some((prefix, padding)))
}

/// The stream that a priority depends on (RFC 7540, section 6.3).
fn depends_on(priority: &[u8]) -> Option<u32> {
    number(priority).map(|number| number & MAX_31)
}
