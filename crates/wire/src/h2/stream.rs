//! Streams (RFC 9113, section 5.1): which are open, in which half, and with what windows.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::error::MessageError;
use super::frame::MAX_31;

/// An open stream.
///
/// ```text
///  receiving:  Head ─► Body ─► End        sending:  Head ─► Body ─► End
///                └────────────► ┘                     └────────────► ┘
/// ```
///
/// With both at `End`, or after a reset from either side, it is closed and not kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) receiving: Half,
    pub(super) sending: Half,
    pub(super) kind: StreamKind,
    /// The request breaks a rule: it is answered and reset, and what else comes is thrown away.
    pub(super) is_malformed: bool,
    /// A WINDOW_UPDATE for it waits to be written.
    pub(super) is_update_due: bool,
    /// The send window. Below zero after the peer made windows smaller.
    pub(super) send_window: i32,
    /// The receive window.
    pub(super) receive: ReceiveWindow,
    /// Bytes received that the caller has not passed on yet.
    pub(super) untaken: u32,
    /// Bytes of the body that are still to come, if its length is known.
    pub(super) body_left: Option<u64>,
    /// The connection's clock when it was opened.
    pub(super) opened_millis: u32,
}

/// How far one direction of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Half {
    /// Before the head, or the final one of a response.
    Head,
    /// Behind the head.
    Body,
    /// Behind the end.
    End,
}

/// The kinds of requests on which the framing of a response depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StreamKind {
    /// Any other method.
    Plain,
    /// `HEAD`
    Head,
    /// `CONNECT`
    Connect,
    /// `CONNECT` with a `:protocol`.
    ExtendedConnect,
}

/// A receive window, of a stream or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiveWindow {
    /// Below zero after the window was made smaller.
    left: i32,
    /// Passed on, and not given back to the peer yet.
    owed: u32,
}

impl ReceiveWindow {
    pub(super) fn new(left: u32) -> Self {
        Self { left: signed(left), owed: 0 }
    }

    /// The peer sent `n` bytes; whether it was allowed to.
    pub(super) fn on_received(&mut self, n: u32) -> bool {
        // A frame of nothing may come at any time (section 6.9.1).
        match self.left.checked_sub_unsigned(n) {
            Some(left) if left >= 0 || n == 0 => {
                self.left = left;
                true
            }
            _ => false,
        }
    }

    /// `n` bytes were passed on.
    pub(super) fn on_taken(&mut self, n: u32) {
        self.owed = self.owed.saturating_add(n);
    }

    /// Whether it is time to give back what is owed, of a stream: when it is half of the window.
    /// Sooner would be a frame for every piece, and later would stop the peer.
    pub(super) fn is_update_due(&self, window: u32) -> bool {
        self.owed > 0 && self.owed >= window / 2
    }

    /// The same for a connection, where stalled streams may hold the rest of the window: also when
    /// the peer has no more left than what is owed. So no stream waits for a stalled one.
    pub(super) fn is_shared_update_due(&self, window: u32) -> bool {
        self.is_update_due(window) || (self.owed > 0 && i64::from(self.left) <= self.owed.into())
    }

    /// Gives back what is owed, and says how much it is.
    pub(super) fn give_back(&mut self) -> u32 {
        let increment = self.owed.min(MAX_31);
        self.owed = 0;
        self.left = self.left.saturating_add_unsigned(increment);
        increment
    }

    /// The window has become larger or smaller.
    pub(super) fn shift(&mut self, by: i64) {
        let left = i64::from(self.left) + by;
        self.left = i32::try_from(left).unwrap_or(if by < 0 { i32::MIN } else { i32::MAX });
    }
}

/// A window or an increment of one, of which the peer can name 31 bits.
pub(super) fn signed(window: u32) -> i32 {
    i32::try_from(window).unwrap_or(i32::MAX)
}

impl Stream {
    /// Whether its window is to be given back now; true only once for each time.
    pub(super) fn begins_update(&mut self, window: u32) -> bool {
        let is_due = !self.is_update_due && self.receive.is_update_due(window);
        self.is_update_due |= is_due;
        is_due
    }

    /// A stream that nothing was sent on yet.
    pub(super) fn new(id: u32, kind: StreamKind, send_window: u32, receive_window: u32) -> Self {
        Self {
            id,
            receiving: Half::Head,
            sending: Half::Head,
            kind,
            is_malformed: false,
            is_update_due: false,
            send_window: signed(send_window),
            receive: ReceiveWindow::new(receive_window),
            untaken: 0,
            body_left: None,
            opened_millis: 0,
        }
    }

    /// The peer's head has come, and says this about the length of its body.
    pub(super) fn on_head(&mut self, body_left: Option<u64>, is_end: bool) {
        self.body_left = body_left;
        self.receiving = if is_end { Half::End } else { Half::Body };
    }

    /// `len` bytes of the peer's body are announced, the last of it perhaps: whether they agree
    /// with its length.
    pub(super) fn on_announced(&mut self, len: u32, is_end: bool) -> Result<(), MessageError> {
        if let Some(left) = &mut self.body_left {
            *left = left
                .checked_sub(u64::from(len))
                .filter(|&left| left == 0 || !is_end)
                .ok_or(MessageError::ContentLengthWrong)?;
        }
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.receiving == Half::End && self.sending == Half::End
    }
}

/// All streams of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Streams {
    /// In order of their numbers, which is that of their age: the oldest are most likely to go.
    open: VecDeque<Stream>,
    /// The number of the next stream that is opened from here.
    next_own: u32,
    /// The highest number that the peer has used.
    last_peer: u32,
    /// The last streams that came to an end.
    ended: [u32; ENDED],
    /// Streams that were reset from here. Frames that the peer sent before it saw the reset are
    /// ignored (section 5.1); a stream that is no longer listed counts as one that ended long ago.
    reset: VecDeque<u32>,
}

/// Streams remembered to have ended, so that the code for a frame behind the end is the right one.
const ENDED: usize = 4;

/// Streams remembered to be reset from here: those of some round trips, in a bad moment.
const RESETS_REMEMBERED_MAX: usize = 128;

/// The state of a stream, from its number alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    Open,
    /// Reset from here a short while ago.
    Reset,
    /// Ended a short while ago.
    Ended,
    /// Passed over, or closed long ago.
    Past,
    /// Not opened yet, by the side that may.
    Idle,
    /// Never: it is of the side that does not open streams.
    Impossible,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            open: VecDeque::new(),
            next_own: 1,
            last_peer: 0,
            ended: [0; ENDED],
            reset: VecDeque::new(),
        }
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn last_peer(&self) -> u32 {
        self.last_peer
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    /// The numbers of those that are open, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.open.iter().map(|stream| stream.id)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.open.get(self.place(id)?)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.place(id)?;
        self.open.get_mut(place)
    }

    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        place_of(id, self.open.len(), |place| self.open.get(place).map(|stream| stream.id))
    }

    /// The state of stream `id`. Only clients open streams, since push is refused.
    pub(super) fn state_of(&self, id: u32, is_server: bool) -> StreamState {
        if id.is_multiple_of(2) {
            return StreamState::Impossible;
        }
        let is_idle = if is_server { id > self.last_peer } else { id >= self.next_own };
        if is_idle {
            StreamState::Idle
        } else if self.place(id).is_some() {
            StreamState::Open
        } else if self.ended.contains(&id) {
            StreamState::Ended
        } else if self.reset.contains(&id) {
            StreamState::Reset
        } else {
            StreamState::Past
        }
    }

    /// The peer has used `id`, and all below it are idle no more.
    pub(super) fn on_peer_used(&mut self, id: u32) {
        self.last_peer = self.last_peer.max(id);
    }

    /// The number for a stream to be opened from here, if there is one left.
    pub(super) fn take_own_id(&mut self) -> Option<u32> {
        let id = Some(self.next_own).filter(|&id| id <= MAX_31)?;
        self.next_own += 2;
        Some(id)
    }

    pub(super) fn has_own_ids(&self) -> bool {
        self.next_own <= MAX_31
    }

    /// Adds a stream whose number is above all others'.
    pub(super) fn open(&mut self, stream: Stream) {
        debug_assert!(self.open.back().is_none_or(|last| last.id < stream.id));
        self.open.push_back(stream);
    }

    /// Takes out a stream that came to its end, or was reset by the peer.
    pub(super) fn close(&mut self, id: u32) -> Option<Stream> {
        let stream = self.take(id)?;
        self.ended.rotate_right(1);
        if let Some(slot) = self.ended.first_mut() {
            *slot = id;
        }
        Some(stream)
    }

    /// Takes out a stream, if it is open, that is reset from here.
    pub(super) fn reset(&mut self, id: u32) -> Option<Stream> {
        if self.reset.len() >= RESETS_REMEMBERED_MAX {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
        self.take(id)
    }

    fn take(&mut self, id: u32) -> Option<Stream> {
        self.open.remove(self.place(id)?)
    }

    /// Gives back storage that no open stream needs.
    pub(super) fn shrink(&mut self) {
        self.open.shrink_to_fit();
        if self.open.is_empty() {
            self.reset = VecDeque::new();
        }
    }
}

/// The place of stream `id` among `len` that are sorted by their numbers, which `at` gives.
///
/// Clients count up by two, so that the distance from the first is the place if all between are
/// open, and the streams that are not make it smaller: the search begins there and goes back in
/// growing steps. Nearly always, one or two looks are enough.
#[inline]
pub fn place_of(id: u32, len: usize, at: impl Fn(usize) -> Option<u32>) -> Option<usize> {
    let distance = id.checked_sub(at(0)?)? / 2;
    let mut high = usize::try_from(distance).unwrap_or(usize::MAX).min(len - 1);
    let mut step = 1;
    // At `high`, the number is `id` or more, or there are none behind it.
    let mut low = loop {
        match at(high)? {
            found if found == id => return Some(high),
            found if found < id => break high,
            _ => {}
        }
        let lower = high.saturating_sub(step);
        match at(lower)? {
            found if found == id => return Some(lower),
            found if found < id => break lower,
            _ => {}
        }
        high = lower;
        step *= 2;
    };
    // Between the two, neither of which it is.
    while low + 1 < high {
        let middle = low.midpoint(high);
        match at(middle)? {
            found if found == id => return Some(middle),
            found if found < id => low = middle,
            _ => high = middle,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_found_wherever_the_gaps_are() {
        let mut seed = 7u32;
        for _ in 0..2_000 {
            let mut ids = Vec::new();
            let mut id = 1 + 2 * (seed % 50);
            for _ in 0..seed % 70 {
                ids.push(id);
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                id += 2 * (1 + (seed >> 24) % 5);
            }
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for id in 0..id + 4 {
                let found = place_of(id, ids.len(), |place| ids.get(place).copied());
                assert_eq!(found, ids.binary_search(&id).ok(), "{id} in {ids:?}");
            }
        }
    }

    fn opened(streams: &mut Streams, id: u32) {
        streams.on_peer_used(id);
        streams.open(Stream::new(id, StreamKind::Plain, 10, 10));
    }

    #[test]
    fn what_became_of_a_stream_is_known_by_its_number() {
        let mut streams = Streams::new();
        for id in [1, 5, 7, 9] {
            opened(&mut streams, id);
        }
        streams.close(5);
        streams.reset(7);
        for (id, state) in [
            (1, StreamState::Open),
            (3, StreamState::Past),
            (5, StreamState::Ended),
            (7, StreamState::Reset),
            (9, StreamState::Open),
            (11, StreamState::Idle),
            (2, StreamState::Impossible),
            (0, StreamState::Impossible),
        ] {
            assert_eq!(streams.state_of(id, true), state, "{id}");
        }
        assert!(streams.get(5).is_none() && streams.get_mut(9).is_some());
        assert_eq!(streams.ids().collect::<Vec<_>>(), [1, 9]);
        assert!(streams.close(5).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut streams = Streams::new();
        for n in 0..1000 {
            opened(&mut streams, 2 * n + 1);
            if n % 2 == 0 {
                streams.close(2 * n + 1)
            } else {
                streams.reset(2 * n + 1)
            };
        }
        assert_eq!(streams.len(), 0);
        assert_eq!(streams.reset.len(), RESETS_REMEMBERED_MAX);
        assert_eq!(streams.state_of(1999, true), StreamState::Reset);
        assert_eq!(streams.state_of(1997, true), StreamState::Ended);
        assert_eq!(streams.state_of(1, true), StreamState::Past);
    }

    #[test]
    fn numbers_come_to_an_end() {
        let mut streams = Streams::new();
        assert_eq!((streams.take_own_id(), streams.take_own_id()), (Some(1), Some(3)));
        streams.next_own = MAX_31;
        assert!(streams.has_own_ids());
        assert_eq!(streams.take_own_id(), Some(MAX_31));
        assert!(!streams.has_own_ids());
        assert_eq!(streams.take_own_id(), None);
    }

    #[test]
    fn a_window_is_given_back_by_halves() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.on_received(100) && !window.on_received(1));
        window.on_taken(49);
        assert!(!window.is_update_due(100));
        window.on_taken(1);
        assert!(window.is_update_due(100));
        assert_eq!(window.give_back(), 50);
        assert!(window.on_received(50) && !window.on_received(1));
        assert!(!window.is_update_due(1), "nothing is owed");
        window.on_taken(1);
        assert!(window.is_update_due(1), "however small");
        let mut window = ReceiveWindow::new(100);
        window.on_received(90);
        window.on_taken(9);
        assert!(!window.is_shared_update_due(100));
        window.on_taken(1);
        assert!(window.is_shared_update_due(100) && !window.is_update_due(100));
    }

    #[test]
    fn a_window_may_be_less_than_nothing() {
        let mut window = ReceiveWindow::new(100);
        window.on_received(60);
        window.shift(-50);
        assert_eq!(window.left, -10);
        assert!(!window.on_received(1) && window.on_received(0));
        window.shift(11);
        assert!(window.on_received(1));
    }

    #[test]
    fn the_size_of_a_stream_is_known() {
        assert!(size_of::<Stream>() <= 48, "{}", size_of::<Stream>());
    }
}
