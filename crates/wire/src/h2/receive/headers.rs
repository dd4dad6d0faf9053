//! HEADERS and CONTINUATION (RFC 9113, sections 6.2 and 6.10).

use super::super::budget::Work;
use super::super::connection::{Found, HeaderBlock, Http2, Purpose, Reading, Step};
use super::super::error::{ConnectionError, MessageError, StreamError};
use super::super::frame::{FrameHeader, flag};
use super::super::hpack::Line;
use super::super::message::{HeadBuilder, Refusal, Scratch, TrailersBuilder};
use super::super::stream::{Half, Stream, StreamKind, StreamState};
use super::super::{Http2Role, Limits};
use super::padding;
use super::streams::depends_on;
use crate::head::Method;

/// Header blocks longer than this many times the head that they may hold are not read to their
/// end. Up to there, the answer says that the head is too long.
const BLOCK_LEN_FACTOR_MAX: usize = 2;

impl Http2 {
    pub(super) fn on_headers_frame(
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
    pub(super) fn purpose(&mut self, id: u32, is_end: bool) -> Result<Purpose, ConnectionError> {
        let is_server = self.role == Http2Role::Server;
        match self.state_of(id) {
            StreamState::Impossible => Err(ConnectionError::StreamIdInvalid),
            StreamState::Idle if is_server => Ok(self.purpose_of_new(id)),
            StreamState::Idle => Err(ConnectionError::StreamIdInvalid),
            StreamState::Open => {
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
            StreamState::Reset => {
                self.budget.spend(Work::Idle)?;
                Ok(Purpose::Ignore)
            }
            StreamState::Ended => Err(ConnectionError::StreamClosed),
            // Section 5.1.1: a client goes upwards. A stream of ours may have been reset so long
            // ago that it was forgotten.
            StreamState::Past if is_server => Err(ConnectionError::StreamIdInvalid),
            StreamState::Past => {
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

    pub(super) fn on_continuation_frame(
        &mut self,
        header: FrameHeader,
    ) -> Result<Step, ConnectionError> {
        if self.block.is_none() {
            return Err(ConnectionError::ContinuationUnexpected);
        }
        self.budget.spend(Work::Continuation)?;
        let is_last = header.has(flag::END_HEADERS);
        self.reading = Reading::Fragment { left: header.len, padding: 0, is_last };
        Ok(Some((FrameHeader::LEN, Found::Nothing)))
    }

    /// Gathers what there is of a header block.
    pub(in crate::h2) fn on_fragment(
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
