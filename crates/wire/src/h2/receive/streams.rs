//! Frames about streams: PRIORITY, RST_STREAM, WINDOW_UPDATE (RFC 9113, sections 6.3, 6.4 and 6.9).

use super::super::Http2Role;
use super::super::budget::Work;
use super::super::connection::{Found, Http2, Step};
use super::super::error::{ConnectionError, ErrorCode, StreamError};
use super::super::frame::{FrameHeader, MAX_31, number};
use super::super::stream::{Half, StreamState};

impl Http2 {
    /// Priorities were taken out of the protocol; what is left is that they must make sense.
    pub(super) fn on_priority_frame(
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
        match self.state_of(header.stream) {
            StreamState::Open | StreamState::Ended | StreamState::Past | StreamState::Reset => {
                let found = self.fail_stream(header.stream, error)?;
                self.reading = Self::skipping(header.len);
                Ok(Some((FrameHeader::LEN, found)))
            }
            // A stream that is idle cannot be reset.
            StreamState::Idle | StreamState::Impossible => Err(match error {
                StreamError::FrameSizeInvalid => ConnectionError::FrameSizeInvalid,
                _ => ConnectionError::PriorityOnItself,
            }),
        }
    }

    pub(super) fn on_reset_frame(
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
        match self.state_of(header.stream) {
            StreamState::Impossible => return Err(ConnectionError::StreamIdInvalid),
            StreamState::Idle => return Err(ConnectionError::StreamIdle),
            StreamState::Open => {}
            StreamState::Ended | StreamState::Past | StreamState::Reset => {
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

    pub(super) fn on_window_update_frame(
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
            return match self.state_of(id) {
                StreamState::Idle => Err(ConnectionError::StreamIdle),
                StreamState::Impossible => Err(ConnectionError::StreamIdInvalid),
                StreamState::Open | StreamState::Ended | StreamState::Past | StreamState::Reset => {
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

/// The stream that a priority depends on (RFC 7540, section 6.3).
pub(super) fn depends_on(priority: &[u8]) -> Option<u32> {
    number(priority).map(|number| number & MAX_31)
}
