//! Frames about the connection: SETTINGS, PING, GOAWAY (RFC 9113, sections 6.5, 6.7 and 6.8).

use super::super::Http2Role;
use super::super::budget::Work;
use super::super::connection::{DEBUG_LEN_MAX, Found, Http2, Reading, Step};
use super::super::error::{ConnectionError, ErrorCode};
use super::super::frame::{FrameHeader, MAX_31, flag, number};
use super::super::settings::{SETTING_LEN, WINDOW_DEFAULT};

impl Http2 {
    pub(super) fn on_settings_frame(
        &mut self,
        header: FrameHeader,
    ) -> Result<Step, ConnectionError> {
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
    pub(in crate::h2) fn on_settings(
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
    pub(in crate::h2) fn on_settings_end(
        &mut self,
        window_before: u32,
    ) -> Result<(), ConnectionError> {
        let by = i64::from(self.theirs.window) - i64::from(window_before);
        if by != 0 {
            // It is as much work as if each of them were opened by itself.
            let streams = crate::octets::narrow(self.streams.len());
            self.budget.spend_times(Work::WindowUpdate, streams)?;
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
    pub(in crate::h2) fn new_send_window(&self) -> u32 {
        match self.reading {
            Reading::Settings { window_before, .. } => window_before,
            _ => self.theirs.window,
        }
    }

    /// The receive window of a new stream. Before the peer has acknowledged our settings, it may
    /// use the default.
    pub(in crate::h2) fn stream_window(&self) -> u32 {
        if self.is_acknowledged { self.ours.window } else { self.ours.window.max(WINDOW_DEFAULT) }
    }

    pub(super) fn on_ping_frame(
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

    pub(super) fn on_goaway_frame(
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
