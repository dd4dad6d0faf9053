//! Frames about the connection: what waits to be written, and in which order it is.
//!
//! Each kind of frame has a producer, and the producers stand in a list: the first that has
//! something to say writes first. The queues that a peer can fill are bounded; a peer that keeps
//! asking and does not read the answers loses its connection.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::connection::Http2;
use super::error::{ConnectionError, ErrorCode};
use super::frame::{FrameHeader, MAX_31, flag, kind, push_frame};
use super::settings::{SENT_MAX, SETTING_LEN};
use super::stream::Half;
use super::{Http2Role, PREFACE};
use crate::buffer::Buffer;

/// Control frames that wait to be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The preface, if any, and settings.
    is_opening: bool,
    settings_acks: u8,
    goaway: Option<(u32, ErrorCode)>,
    /// Pings to be answered.
    pings: VecDeque<[u8; 8]>,
    resets: VecDeque<(u32, ErrorCode)>,
    /// Streams whose window is to be given back.
    updates: VecDeque<u32>,
    own_ping: Option<[u8; 8]>,
}

/// Acknowledgements that may wait. Honest peers do not change settings faster than they are
/// acknowledged.
const SETTINGS_ACKS_MAX: u8 = 16;

/// Answers to pings that may wait. Honest peers have one or two on the way.
const PINGS_MAX: usize = 32;

/// Resets that a peer may have provoked and not read.
const RESETS_MAX: usize = 256;

/// Everything has been written, or the buffer is full.
type Produced = Result<(), Full>;

/// The buffer has no room for another frame.
struct Full;

/// In order. Settings come first because nothing may come before, their acknowledgement next
/// because it says what the frames behind it go by. GOAWAY comes early to stop new streams, and
/// resets before windows, because they free more.
const PRODUCERS: [fn(&mut Http2, &mut Buffer) -> Produced; 8] = [
    Http2::send_opening,
    Http2::send_settings_acks,
    Http2::send_goaway,
    Http2::send_ping_answers,
    Http2::send_resets,
    Http2::send_connection_window,
    Http2::send_stream_windows,
    Http2::send_own_ping,
];

impl Pending {
    pub(super) fn at_start() -> Self {
        Self {
            is_opening: true,
            settings_acks: 0,
            goaway: None,
            pings: VecDeque::new(),
            resets: VecDeque::new(),
            updates: VecDeque::new(),
            own_ping: None,
        }
    }

    pub(super) fn on_settings(&mut self) -> Result<(), ConnectionError> {
        if self.settings_acks >= SETTINGS_ACKS_MAX {
            return Err(ConnectionError::AnswersUndelivered);
        }
        self.settings_acks += 1;
        Ok(())
    }

    pub(super) fn on_ping(&mut self, opaque: [u8; 8]) -> Result<(), ConnectionError> {
        if self.pings.len() >= PINGS_MAX {
            return Err(ConnectionError::AnswersUndelivered);
        }
        self.pings.push_back(opaque);
        Ok(())
    }

    /// A reset that the peer provoked.
    pub(super) fn on_provoked_reset(
        &mut self,
        stream: u32,
        code: ErrorCode,
    ) -> Result<(), ConnectionError> {
        if self.resets.len() >= RESETS_MAX {
            return Err(ConnectionError::AnswersUndelivered);
        }
        self.resets.push_back((stream, code));
        Ok(())
    }

    pub(super) fn on_update_due(&mut self, stream: u32) {
        self.updates.push_back(stream);
    }

    fn is_half_full(&self) -> bool {
        self.settings_acks >= SETTINGS_ACKS_MAX / 2
            || self.pings.len() >= PINGS_MAX / 2
            || self.resets.len() >= RESETS_MAX / 2
    }

    /// Nothing but GOAWAY makes sense any more.
    pub(super) fn on_failure(&mut self, last_stream: u32, code: ErrorCode) {
        let is_opening = self.is_opening;
        *self = Self { is_opening, goaway: Some((last_stream, code)), ..Self::at_start() };
    }

    /// Gives back storage that is not needed now.
    pub(super) fn shrink(&mut self) {
        self.pings.shrink_to_fit();
        self.resets.shrink_to_fit();
        self.updates.shrink_to_fit();
    }
}

/// Commands about the connection.
impl Http2 {
    /// Says that the connection will end, and still takes new streams: those that the peer opened
    /// before it knew. [`Http2::go_away`] follows after a round trip (RFC 9113, section 6.8).
    pub fn drain(&mut self) {
        if self.ending.ours.is_none() {
            self.ending.ours = Some(MAX_31);
            self.pending.goaway = Some((MAX_31, ErrorCode::NO_ERROR));
        }
    }

    /// Takes no more streams; those that are open go on. A server does not hear of that from a client with open streams, unless something
    /// is wrong: it opens none, and some servers take the frame for the end of the connection, which comes once they are over.
    pub fn go_away(&mut self, code: ErrorCode) {
        let last = self.streams.last_peer();
        if self.ending.ours.is_none_or(|before| before > last) || code != ErrorCode::NO_ERROR {
            let last = self.ending.ours.map_or(last, |before| before.min(last));
            self.ending.ours = Some(last);
            let is_said = self.role == Http2Role::Server
                || code != ErrorCode::NO_ERROR
                || self.streams.len() == 0;
            if is_said {
                self.pending.goaway = Some((last, code));
            }
        }
    }

    /// Sends a keep-alive PING; its answer is [`Element::PingAnswered`].
    ///
    /// [`Element::PingAnswered`]: super::Element::PingAnswered
    pub fn ping(&mut self, opaque: [u8; 8]) {
        self.pending.own_ping = Some(opaque);
    }

    /// Closes a stream in both directions. Nothing happens if it is closed.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if let Some(open) = self.streams.get(stream) {
            // Section 8.1.1, whatever the answer before it was for.
            let code = if open.is_malformed { ErrorCode::PROTOCOL_ERROR } else { code };
            self.close_by_reset(stream);
            self.pending.resets.push_back((stream, code));
        }
    }

    /// `n` bytes of data that came on a stream were passed on, or thrown away.
    pub fn on_taken(&mut self, stream: u32, n: usize) {
        // The window of a closed stream was given back when it was closed.
        let Some(stream) = self.streams.get_mut(stream) else { return };
        let n = crate::octets::narrow(n).min(stream.untaken);
        stream.untaken -= n;
        self.receive.on_taken(n);
        if stream.receiving == Half::Body {
            stream.receive.on_taken(n);
            if stream.begins_update(self.ours.window) {
                self.pending.on_update_due(stream.id);
            }
        }
    }
}

/// Writing.
impl Http2 {
    /// Whether [`Http2::send_control`] has something to write.
    #[must_use]
    pub fn has_control(&self) -> bool {
        let Pending { is_opening, settings_acks, goaway, pings, resets, updates, own_ping } =
            &self.pending;
        *is_opening
            || *settings_acks > 0
            || goaway.is_some()
            || !pings.is_empty()
            || !resets.is_empty()
            || !updates.is_empty()
            || own_ping.is_some()
            || self.is_connection_update_due()
    }

    /// Whether so many answers wait that [`Http2::send_control`] should be called before more
    /// frames are decoded. One segment may hold many frames; only answers that cannot be sent show
    /// that the peer does not read.
    #[must_use]
    pub fn owes_many_answers(&self) -> bool {
        self.pending.is_half_full()
    }

    /// Writes what has to be said about the connection, before anything else is written; as much
    /// as there is room for, in whole frames. [`Http2::has_control`] says whether that was all.
    pub fn send_control(&mut self, out: &mut Buffer) {
        for produce in PRODUCERS {
            if let Err(Full) = produce(self, out) {
                break;
            }
        }
    }

    fn is_connection_update_due(&self) -> bool {
        self.failure.is_none() && self.receive.is_shared_update_due(self.receive_window_max)
    }

    fn send_opening(&mut self, out: &mut Buffer) -> Produced {
        const LEN_MAX: usize =
            PREFACE.len() + FrameHeader::LEN + SENT_MAX * SETTING_LEN + FrameHeader::LEN + 4;
        if !self.pending.is_opening {
            return Ok(());
        }
        check_room(out, LEN_MAX)?;
        self.pending.is_opening = false;
        if self.role == Http2Role::Client {
            out.push(PREFACE);
        }
        let count = self.ours.encoded(self.role).count();
        let len = crate::octets::narrow(count * SETTING_LEN);
        let header = FrameHeader { len, kind: kind::SETTINGS, flags: 0, stream: 0 };
        out.push(&header.encode());
        for setting in self.ours.encoded(self.role) {
            out.push(&setting);
        }
        // The window of the connection is no setting: what it has beyond the default comes so.
        self.push_connection_window(out);
        Ok(())
    }

    fn send_settings_acks(&mut self, out: &mut Buffer) -> Produced {
        while self.pending.settings_acks > 0 {
            check_room(out, FrameHeader::LEN)?;
            self.pending.settings_acks -= 1;
            let header = FrameHeader { len: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 };
            out.push(&header.encode());
        }
        Ok(())
    }

    fn send_goaway(&mut self, out: &mut Buffer) -> Produced {
        let Some((last, code)) = self.pending.goaway else { return Ok(()) };
        // Section 6.8: a text for people, since the code stands for many errors.
        let text = self.failure.map(|error| error.to_string()).unwrap_or_default();
        let text = text.as_bytes().get(..GOAWAY_TEXT_LEN_MAX).unwrap_or(text.as_bytes());
        check_room(out, FrameHeader::LEN + 8 + text.len())?;
        self.pending.goaway = None;
        let numbers = [last.to_be_bytes(), code.0.to_be_bytes()];
        let payload = [numbers.as_flattened(), text].concat();
        push_frame(kind::GOAWAY, 0, &payload, out);
        Ok(())
    }

    fn send_ping_answers(&mut self, out: &mut Buffer) -> Produced {
        while let Some(opaque) = self.pending.pings.front() {
            check_room(out, PING_LEN)?;
            push_ping(flag::ACK, opaque, out);
            self.pending.pings.pop_front();
        }
        Ok(())
    }

    fn send_resets(&mut self, out: &mut Buffer) -> Produced {
        while let Some((stream, code)) = self.pending.resets.front() {
            check_room(out, FrameHeader::LEN + 4)?;
            push_frame(kind::RST_STREAM, *stream, &code.0.to_be_bytes(), out);
            self.pending.resets.pop_front();
        }
        Ok(())
    }

    fn send_connection_window(&mut self, out: &mut Buffer) -> Produced {
        if self.is_connection_update_due() {
            check_room(out, WINDOW_UPDATE_LEN)?;
            self.push_connection_window(out);
        }
        Ok(())
    }

    fn push_connection_window(&mut self, out: &mut Buffer) {
        let increment = self.receive.give_back();
        if increment > 0 {
            push_frame(kind::WINDOW_UPDATE, 0, &increment.to_be_bytes(), out);
        }
    }

    fn send_stream_windows(&mut self, out: &mut Buffer) -> Produced {
        while let Some(&id) = self.pending.updates.front() {
            check_room(out, WINDOW_UPDATE_LEN)?;
            self.pending.updates.pop_front();
            let Some(stream) = self.streams.get_mut(id) else { continue };
            stream.is_update_due = false;
            // Behind its end the peer has no use for it.
            if stream.receiving == Half::Body {
                let increment = stream.receive.give_back();
                push_frame(kind::WINDOW_UPDATE, id, &increment.to_be_bytes(), out);
            }
        }
        Ok(())
    }

    fn send_own_ping(&mut self, out: &mut Buffer) -> Produced {
        if let Some(opaque) = self.pending.own_ping {
            check_room(out, PING_LEN)?;
            push_ping(0, &opaque, out);
            self.pending.own_ping = None;
        }
        Ok(())
    }
}

/// Bytes of text in a GOAWAY. It is ours alone: nothing of a peer or a configuration is in it.
const GOAWAY_TEXT_LEN_MAX: usize = 64;

const PING_LEN: usize = FrameHeader::LEN + 8;
const WINDOW_UPDATE_LEN: usize = FrameHeader::LEN + 4;

fn check_room(out: &Buffer, len: usize) -> Produced {
    if out.spare_len() < len { Err(Full) } else { Ok(()) }
}

fn push_ping(flags: u8, opaque: &[u8; 8], out: &mut Buffer) {
    out.push(&FrameHeader { len: 8, kind: kind::PING, flags, stream: 0 }.encode());
    out.push(opaque);
}
