//! DATA (RFC 9113, section 6.1).

use super::super::budget::Work;
use super::super::connection::{Found, Http2, Reading, Step};
use super::super::error::{ConnectionError, MessageError, StreamError};
use super::super::frame::{FrameHeader, flag};
use super::super::stream::{Half, StreamState};
use super::padding;

impl Http2 {
    pub(super) fn on_data_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        let Some((prefix, padding)) = padding(header, payload, 0)? else { return Ok(None) };
        let state = self.state_of(header.stream);
        match state {
            StreamState::Idle => return Err(ConnectionError::StreamIdle),
            StreamState::Impossible => return Err(ConnectionError::StreamIdInvalid),
            StreamState::Ended => return Err(ConnectionError::StreamClosed),
            StreamState::Open | StreamState::Reset | StreamState::Past => {}
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
            return self.on_data_of_no_use(header, state);
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
        state: StreamState,
    ) -> Result<Step, ConnectionError> {
        if state == StreamState::Reset {
            // The peer may not know yet.
            self.budget.spend(Work::Idle)?;
        } else {
            self.fail_stream(header.stream, StreamError::Closed)?;
        }
        Ok(self.ignore(header))
    }

    /// Hands out what there is of the data.
    pub(in crate::h2) fn on_data(
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
