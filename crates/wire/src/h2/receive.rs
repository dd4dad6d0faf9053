//! Frames from the peer: what each does to the connection and its streams.

mod connection;
mod data;
mod headers;
mod streams;

use super::budget::Work;
use super::connection::{Found, Http2, Step};
use super::error::{ConnectionError, ErrorCode, MessageError, StreamError};
use super::frame::{FrameHeader, flag, kind};
use super::message::Scratch;
use super::stream::{Half, Stream, StreamState};
use super::{Http2Role, Limits};

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

    fn state_of(&self, stream: u32) -> StreamState {
        self.streams.state_of(stream, self.role == Http2Role::Server)
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
