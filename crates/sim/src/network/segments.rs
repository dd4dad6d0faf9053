//! The traffic between ends: segments with bytes, FINs and resets.

use std::io::ErrorKind;

use super::{End, EndId, Happening, Network, Owner, Phase};

impl Network {
    /// Starts a segment from this end, if there is anything to send and none is on its way.
    pub(super) fn move_on(&mut self, id: EndId) {
        let way = self.way(id);
        if let Some(end) = self.get_mut(id)
            && !end.is_moving
            && (!end.outbox.is_empty() || (end.is_shut && !end.is_fin_sent))
        {
            end.is_moving = true;
            self.after(way, Happening::Segment(id));
        }
    }

    pub(super) fn on_segment(&mut self, id: EndId) {
        let is_cut = self.chance(self.faults.short_segment);
        let is_reset = self.chance(self.faults.reset);
        let falls_silent = self.chance(self.faults.silence);
        let Some(end) = self.get_mut(id) else { return };
        end.is_moving = false;
        if end.is_silent {
            return;
        }
        let other = end.other;
        let Some(other_id) = other.filter(|other| self.get(*other).is_some()) else {
            // The other end is gone; only bytes are answered by a reset.
            return self.reach_closed_end(id);
        };
        if is_reset {
            self.trace.note(self.now, "breaks", id.number(), &[]);
            self.break_both(id, other_id);
            return;
        }
        if falls_silent {
            self.trace.note(self.now, "falls silent", id.number(), &[]);
            for end in [id, other_id] {
                if let Some(end) = self.get_mut(end) {
                    end.is_silent = true;
                }
            }
            return;
        }
        let waiting = self.get(id).map_or(0, |end| end.outbox.len());
        if self.get(other_id).is_some_and(|other| other.swallows) {
            if let Some(end) = self.get_mut(id)
                && waiting > 0
            {
                end.outbox.clear();
                self.edge(id);
            }
        } else if waiting > 0 && self.get(other_id).is_some_and(|other| other.is_closed) {
            // The other end is closed, and what arrives there is answered with a reset.
            self.destroy(other_id);
            return;
        }
        let waiting = self.get(id).map_or(0, |end| end.outbox.len());
        let length =
            if is_cut && waiting > 1 { 1 + self.random.size(waiting - 1) } else { waiting };
        let carried = self.carry(id, length.min(waiting));
        let has_room = self.get(other_id).is_some_and(|other| other.room() > 0);
        let Some(end) = self.get_mut(id) else { return };
        if !end.outbox.is_empty() {
            if has_room {
                self.move_on(id);
            }
            return;
        }
        let is_closed = end.is_closed;
        if !end.is_shut || end.is_fin_sent {
            return;
        }
        if carried > 0 && self.random.chance(500) {
            // The end comes in a segment of its own.
            return self.move_on(id);
        }
        if let Some(end) = self.get_mut(id) {
            end.is_fin_sent = true;
        }
        self.trace.note(self.now, "fin", other_id.number(), &[]);
        if let Some(other) = self.get_mut(other_id) {
            other.has_fin = true;
            let late = std::mem::take(&mut other.late);
            other.inbox.extend(late);
        }
        self.edge(other_id);
        if self.get(other_id).is_some_and(|other| other.swallows && other.is_fin_sent) {
            self.remove(other_id);
        }
        if is_closed {
            self.remove_unless_swallowing(id);
        } else {
            // The acknowledgement of our end; if the other's is here, both are over.
            if self.get(id).is_some_and(|end| end.has_fin) {
                let way = self.way(id);
                self.after(way, Happening::Nudge(id));
            }
        }
    }

    /// Bytes of this end arrive where the other was.
    fn reach_closed_end(&mut self, id: EndId) {
        let Some(end) = self.get_mut(id) else { return };
        if !end.outbox.is_empty() || !end.is_shut {
            return self.on_reset(id);
        }
        end.is_fin_sent = true;
        if end.is_closed {
            return self.remove(id);
        }
        let way = self.way(id);
        self.after(way, Happening::Nudge(id));
    }

    /// Moves up to `length` bytes to the other end, as far as there is room.
    pub(super) fn carry(&mut self, id: EndId, length: usize) -> usize {
        let Some(other_id) = self.get(id).and_then(|end| end.other) else { return 0 };
        let room = self.get(other_id).map_or(0, End::room);
        let length = length.min(room);
        if length == 0 {
            return 0;
        }
        let Some(end) = self.get_mut(id) else { return 0 };
        let bytes: Vec<u8> = end.outbox.drain(..length).collect();
        let has_space = end.wants_space && end.is_writable();
        self.trace.note(self.now, "segment", other_id.number(), &bytes);
        if let Some(other) = self.get_mut(other_id) {
            let place = if other.late.is_empty() { &mut other.inbox } else { &mut other.late };
            place.extend(bytes);
        }
        self.edge(other_id);
        if has_space {
            self.edge(id);
        }
        length
    }

    pub(super) fn on_late(&mut self, id: EndId) {
        if let Some(end) = self.get_mut(id) {
            let late = std::mem::take(&mut end.late);
            end.inbox.extend(late);
            self.edge(id);
        }
    }

    /// A reset arrives.
    pub(super) fn on_reset(&mut self, id: EndId) {
        let purges = self.random.chance(300);
        let Some(end) = self.get_mut(id) else { return };
        if end.is_silent {
            return;
        }
        if end.is_closed {
            return self.remove(id);
        }
        if end.phase == Phase::Broken {
            return;
        }
        end.phase = Phase::Broken;
        end.error.get_or_insert(ErrorKind::ConnectionReset);
        end.outbox.clear();
        let late = std::mem::take(&mut end.late);
        end.inbox.extend(late);
        if purges && matches!(end.owner, Owner::Peer(_)) {
            // Linux lets a program read what came before the reset; others do not.
            end.inbox.clear();
        }
        self.trace.note(self.now, "rst", id.number(), &[]);
        self.edge(id);
    }

    fn break_both(&mut self, id: EndId, other: EndId) {
        self.queue_now(Happening::Reset(id));
        self.queue_now(Happening::Reset(other));
        for end in [id, other] {
            if let Some(end) = self.get_mut(end) {
                end.outbox.clear();
                // No FIN follows what is lost (seed 930028038).
                end.is_fin_sent = true;
            }
        }
    }

    /// A closed end that has said its end is gone, unless it waits for the other's.
    pub(super) fn remove_unless_swallowing(&mut self, id: EndId) {
        if !self.get(id).is_some_and(|end| end.swallows && !end.has_fin) {
            self.remove(id);
        }
    }

    /// Removes the end at once; the other end sees it.
    pub(super) fn destroy(&mut self, id: EndId) {
        self.leave(id);
        let other = self.get(id).and_then(|end| end.other);
        if let Some(other) = other {
            let way = self.way(other);
            self.after(way, Happening::Reset(other));
        }
        self.remove(id);
    }
}
