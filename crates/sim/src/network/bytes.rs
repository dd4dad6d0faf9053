//! Operations on ends: read, write, close.

use std::io::{self, ErrorKind, IoSlice};
use std::time::Duration;

use super::{EndId, Happening, Moment, Network, Owner, Phase};

/// After so many bytes for each that there is room for, a socket has room for one more, as kernels give more to what is used: through one
/// of a byte, a transfer would take more events than a seed has time for.
const BYTES_FOR_ROOM: u64 = 4 << 10;

fn room_after(bytes: u64) -> usize {
    usize::try_from(bytes / BYTES_FOR_ROOM).unwrap_or(usize::MAX)
}

impl Network {
    /// Reads; 0 is the other's end.
    ///
    /// # Errors
    ///
    /// `WouldBlock`, or why the connection is broken.
    pub fn recv(&mut self, id: EndId, buffer: &mut [u8]) -> io::Result<usize> {
        let is_short = self.chance(self.faults.short_read);
        let cut = self.random.length_below(buffer.len().max(2));
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        if matches!(end.phase, Phase::Connecting { .. }) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let available = end.inbox.len();
        if available == 0 {
            if let Some(error) = end.error.take() {
                return Err(error.into());
            }
            if end.has_fin || end.phase == Phase::Broken {
                return Ok(0);
            }
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut length = available.min(buffer.len());
        let is_ending = end.has_fin || end.phase == Phase::Broken;
        if is_short && length > 1 && available <= buffer.len() && !is_ending {
            // A short read means that nothing is left. So the rest is not there yet: it arrives
            // behind this read, with an event of its own.
            length = 1 + cut % (length - 1);
            let rest = end.inbox.split_off(length);
            let arrived = std::mem::replace(&mut end.late, rest);
            end.late.extend(arrived);
            let span = Duration::from_nanos(1 + cut as u64);
            self.after(span, Happening::Late(id));
        }
        let end = self.get_mut(id).expect("found above");
        for (place, byte) in buffer.iter_mut().zip(end.inbox.drain(..length)) {
            *place = byte;
        }
        end.read_total += length as u64;
        end.inbox_max = end.inbox_max.max(room_after(end.read_total));
        let is_of_peer = matches!(end.owner, Owner::Peer(_));
        let (room, other, read_total) = (end.room(), end.other, end.read_total);
        if is_of_peer {
            self.read_by_peers += length as u64;
        }
        if let Some(other) = other {
            let seen_total = self.security.seen(other, read_total);
            self.note_read(other, seen_total);
        }
        let Some(end) = self.get(id) else { return Ok(length) };
        let is_open_again = room >= end.inbox_max.div_ceil(2);
        if is_open_again
            && let Some(other) = other
            && self.get(other).is_some_and(|other| !other.is_moving && !other.outbox.is_empty())
        {
            self.move_on(other);
        }
        Ok(length)
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if that is nothing, or why the connection is broken.
    pub fn send(&mut self, id: EndId, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_partial = self.chance(self.faults.partial_write);
        let cut = self.random.next();
        self.check_open(id)?;
        self.note_answer(id);
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        let wanted = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let mut length = wanted.min(end.outbox_max - end.outbox.len());
        if is_partial && length > 0 {
            // Memory was short; an event reports when there is room again.
            length = usize::try_from(cut % length as u64).expect("less than a length");
            end.wants_space = true;
            let span = Duration::from_nanos(1 + cut % 1_000_000);
            self.after(span, Happening::Space(id));
        }
        let end = self.get_mut(id).expect("found above");
        if length < wanted {
            end.wants_space = true;
        }
        if length == 0 && wanted > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut left = length;
        for slice in slices {
            let taken = slice.get(..left.min(slice.len())).unwrap_or_default();
            end.outbox.extend(taken);
            left -= taken.len();
        }
        end.written_total += length as u64;
        end.outbox_max = end.outbox_max.max(room_after(end.written_total));
        self.move_on(id);
        Ok(length)
    }

    /// Checks that the connection is open for writing.
    pub(super) fn check_open(&mut self, id: EndId) -> io::Result<()> {
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        match end.phase {
            Phase::Connecting { .. } => Err(ErrorKind::WouldBlock.into()),
            Phase::Broken => Err(end.error.take().unwrap_or(ErrorKind::BrokenPipe).into()),
            Phase::Open if end.is_shut => Err(ErrorKind::BrokenPipe.into()),
            Phase::Open => Ok(()),
        }
    }

    /// Writes one slice; see [`Network::send`]. What is not taken now is not an error.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn send_some(&mut self, id: EndId, bytes: &[u8]) -> io::Result<usize> {
        let result = match self.is_secure(id) {
            true => self.send_sealed(id, bytes),
            false => self.send(id, &[IoSlice::new(bytes)]),
        };
        match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Reads all that is there, up to `bytes_max`; returns whether the other's end was behind it.
    ///
    /// # Errors
    ///
    /// The connection is broken; what was read before is in `into`.
    pub fn recv_all(
        &mut self,
        id: EndId,
        bytes_max: usize,
        into: &mut Vec<u8>,
    ) -> io::Result<bool> {
        if self.is_secure(id) {
            return self.recv_opened(id, bytes_max, into);
        }
        let mut buffer = [0; 4096];
        let mut left = bytes_max;
        while left > 0 {
            let room = buffer.get_mut(..left.min(4096)).expect("no longer than the buffer");
            match self.recv(id, room) {
                Ok(0) => return Ok(true),
                Ok(n) => {
                    into.extend_from_slice(buffer.get(..n).expect("read into it"));
                    left -= n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Bytes that an end has sent and that have not arrived at the other; a FIN counts as one.
    #[must_use]
    pub fn undelivered(&self, id: EndId) -> usize {
        self.get(id).map_or(0, |end| {
            let is_end_due = end.is_shut && !end.is_fin_sent;
            end.outbox.len() + usize::from(is_end_due)
        })
    }

    /// Half-closes: sends a FIN after the bytes that wait.
    pub fn shutdown_write(&mut self, id: EndId) {
        if !self.is_careless(id) && self.say_end(id) && self.keeps_fin(id) {
            return;
        }
        if let Some(end) = self.get_mut(id)
            && end.phase == Phase::Open
            && !end.is_shut
        {
            end.is_shut = true;
            self.move_on(id);
            // With the acknowledgement of our end the connection is over in both directions.
            if self.get(id).is_some_and(|end| end.has_fin) {
                let way = self.way(id);
                self.after(way, Happening::Nudge(id));
            }
        }
    }

    /// Closes. Bytes that were not read make it a reset, as in the kernel.
    pub fn close(&mut self, id: EndId) {
        let has_unread_data = self.is_secure(id) && self.hear_out(id);
        let Some(end) = self.get_mut(id) else { return };
        let has_unread = has_unread_data || !end.inbox.is_empty() || !end.late.is_empty();
        if end.phase != Phase::Open || has_unread {
            return self.reset(id);
        }
        self.trace.note(self.now, "close", id.number(), &[]);
        self.finish(id);
    }

    /// Drops a closed end once its outbox and its FIN are sent.
    pub(super) fn finish(&mut self, id: EndId) {
        self.leave(id);
        if let Some(end) = self.get_mut(id) {
            (end.is_closed, end.is_shut) = (true, true);
            if end.is_fin_sent && end.outbox.is_empty() {
                self.remove_unless_swallowing(id);
            } else {
                self.move_on(id);
            }
        }
    }

    /// Closes so that the other end sees a reset. Some of what was sent may get there before.
    pub fn reset(&mut self, id: EndId) {
        self.trace.note(self.now, "reset", id.number(), &[]);
        self.leave(id);
        let waiting = self.get(id).map_or(0, |end| end.outbox.len());
        let kept = self.random.length_below(waiting + 1);
        if let Some(end) = self.get_mut(id) {
            end.outbox.truncate(kept);
        }
        if kept > 0 {
            self.carry(id, kept);
        }
        self.destroy(id);
    }

    /// Resets a connection whose end another process has, too: that one finds it broken, and lets go of it.
    pub(crate) fn abort(&mut self, id: EndId) {
        self.trace.note(self.now, "abort", id.number(), &[]);
        if let Some(other) = self.get(id).and_then(|end| end.other) {
            let way = self.way(other);
            self.after(way, Happening::Reset(other));
        }
        self.on_reset(id);
    }

    /// How a connection attempt ended.
    ///
    /// # Errors
    ///
    /// Why it failed.
    pub fn take_error(&mut self, id: EndId) -> io::Result<()> {
        let Some(end) = self.get_mut(id) else { return Err(ErrorKind::NotConnected.into()) };
        end.error.take().map_or(Ok(()), |error| Err(as_of_the_kernel(error)))
    }

    /// Whether a connection attempt has succeeded, and if not, whether it has failed.
    #[must_use]
    pub fn connected(&self, id: EndId) -> Option<bool> {
        match self.get(id).map(|end| &end.phase) {
            Some(Phase::Connecting { .. }) => None,
            Some(Phase::Open) => Some(true),
            Some(Phase::Broken) | None => Some(false),
        }
    }

    /// Whether the end is broken, which a peer that does not read would not notice.
    #[must_use]
    pub fn is_broken(&self, id: EndId) -> bool {
        self.get(id).is_none_or(|end| end.phase == Phase::Broken)
    }

    /// The other end of `id` has read so many bytes of it in all.
    fn note_read(&mut self, id: EndId, total: u64) {
        self.moment += 1;
        let reads = self.read_by_other.entry(id).or_default();
        if reads.last().is_none_or(|(_, before)| *before < total) {
            reads.push((self.moment, total));
        }
    }

    /// Bytes sent on this end that were read at the other, also after both are gone: until now or, if a
    /// worker closed its end of the connection of `until`, until then.
    #[must_use]
    pub fn read_by_other(&self, id: EndId, until: EndId) -> u64 {
        let closed = self.closed_by_worker.get(&until).copied().unwrap_or(self.moment);
        self.read_until(id, closed)
    }

    /// Bytes sent on this end that a worker had read when it first wrote at the other, or has read by now
    /// if it has not written: what it could know of its peer when it began to answer.
    #[must_use]
    pub fn read_before_answer(&self, id: EndId) -> u64 {
        let answered = self.first_answers.get(&id).copied().unwrap_or(self.moment);
        self.read_until(id, answered)
    }

    fn read_until(&self, id: EndId, last: Moment) -> u64 {
        let reads = self.read_by_other.get(&id).map_or(&[][..], Vec::as_slice);
        let count = reads.partition_point(|(moment, _)| *moment <= last);
        reads.iter().take(count).next_back().map_or(0, |(_, total)| *total)
    }

    /// A worker that writes on this end for the first time begins to answer the other, whether or not there
    /// is room for it.
    fn note_answer(&mut self, id: EndId) {
        let Some(end) = self.get(id).filter(|end| end.written_total == 0) else { return };
        if let (Owner::Worker(_), Some(other)) = (end.owner, end.other) {
            self.first_answers.entry(other).or_insert(self.moment);
        }
    }

    /// Bytes that were written on this end so far.
    #[must_use]
    pub fn written_total(&self, id: EndId) -> u64 {
        self.sealed_data(id).unwrap_or_else(|| self.get(id).map_or(0, |end| end.written_total))
    }
}

/// The error as the kernel reports it, with its number: names of errors are counted.
fn as_of_the_kernel(kind: ErrorKind) -> io::Error {
    /// `ECONNREFUSED` of Linux.
    const REFUSED: i32 = 111;
    match kind {
        ErrorKind::ConnectionRefused => io::Error::from_raw_os_error(REFUSED),
        other => other.into(),
    }
}
