//! What is larger than a frame, cut into frames and put together again; and what is smaller, several in one.
//!
//! The bytes of groups stay with the caller, which may want them back. A frame is made of them when it is sent, so that a large
//! group is never there a second time.

use wiped::Wiped;

use crate::frame::{DESCRIPTORS_MAX, FRAME_BYTES_MAX, FrameWriter};
use crate::message::{PACK, PIECE};

/// Bytes of a frame that are left for names and numbers around a piece of a group.
const ENVELOPE_BYTES_MAX: usize = 1024;

/// Bytes of what is cut into pieces, in each.
pub(crate) const PIECE_BYTES_MAX: usize = FRAME_BYTES_MAX - ENVELOPE_BYTES_MAX;

/// A group to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenGroup {
    /// A number that no other group of this handover has.
    pub group: u32,
    /// How many bytes are written of it.
    pub bytes: u32,
    /// How many sockets go with it.
    pub sockets: u32,
}

/// A part of a group, in a frame of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPiece {
    batch: u32,
    group: GivenGroup,
    from: u32,
    len: u32,
    /// The first of its sockets.
    pub first_socket: u32,
    /// How many sockets go with it.
    pub sockets: u32,
}

impl GroupPiece {
    /// The number of the group.
    #[must_use]
    pub const fn group(&self) -> u32 {
        self.group.group
    }

    /// The frame. `parts` are all bytes of the group, in as many parts as they are kept in.
    #[must_use]
    pub fn frame<'b>(&self, parts: impl Iterator<Item = &'b [u8]>) -> Wiped {
        let Self { batch, group: GivenGroup { group, bytes, sockets }, len, .. } = *self;
        let mut frame = FrameWriter::new(PIECE, ENVELOPE_BYTES_MAX + len as usize);
        for number in [batch, group, bytes, sockets, self.sockets, len] {
            frame.number(number);
        }
        let (mut before, mut left) = (self.from as usize, len as usize);
        for part in parts {
            let skipped = before.min(part.len());
            let end = part.len().min(skipped.saturating_add(left));
            frame.bytes(part.get(skipped..end).unwrap_or_default());
            (before, left) = (before - skipped, left - (end - skipped));
        }
        frame.finish()
    }
}

/// Groups that go in one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPack {
    batch: u32,
    groups: Vec<GivenGroup>,
    /// Of all of them, with the numbers around them, at most.
    bytes_max: usize,
    /// Of all of them.
    sockets: usize,
}

impl GroupPack {
    /// Beside its bytes, no group takes more of a frame.
    const NUMBERS_BYTES_MAX: usize = 16;

    const fn of(batch: u32) -> Self {
        Self { batch, groups: Vec::new(), bytes_max: 0, sockets: 0 }
    }

    /// The numbers of the groups: all their sockets go with it, in this order.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().map(|given| given.group)
    }

    const fn has_room(&self, group: &GivenGroup) -> bool {
        let bytes = self.bytes_max + group.bytes as usize + Self::NUMBERS_BYTES_MAX;
        bytes <= PIECE_BYTES_MAX && self.sockets + group.sockets as usize <= DESCRIPTORS_MAX
    }

    fn add(&mut self, group: GivenGroup) {
        self.bytes_max += group.bytes as usize + Self::NUMBERS_BYTES_MAX;
        self.sockets += group.sockets as usize;
        self.groups.push(group);
    }

    /// The frame. `parts_of` gives all bytes of a group, in as many parts as they are kept in.
    #[must_use]
    pub fn frame<'b, P: Iterator<Item = &'b [u8]>>(&self, parts_of: impl Fn(u32) -> P) -> Wiped {
        let mut frame = FrameWriter::new(PACK, ENVELOPE_BYTES_MAX + self.bytes_max);
        frame.number(self.batch);
        frame.number(u32::try_from(self.groups.len()).unwrap_or(u32::MAX));
        for GivenGroup { group, bytes, sockets } in &self.groups {
            for number in [*group, *sockets, *bytes] {
                frame.number(number);
            }
            parts_of(*group).for_each(|part| frame.bytes(part));
        }
        frame.finish()
    }
}

/// A frame with a group, a piece of one, or several.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GroupFrame {
    /// These groups as a whole, with all their sockets.
    Several(GroupPack),
    /// A piece of a group, with some of its sockets.
    OfOne(GroupPiece),
}

/// The frames of groups: where `packs` are read, as many groups in a frame as it holds, as most have one socket and some fifty
/// bytes.
pub(crate) fn of_groups(batch: u32, groups: &[GivenGroup], packs: bool) -> Vec<GroupFrame> {
    let (mut frames, mut pack) = (Vec::new(), GroupPack::of(batch));
    for group in groups {
        if !packs || !GroupPack::of(batch).has_room(group) {
            add_pieces(batch, *group, &mut frames);
            continue;
        }
        if !pack.has_room(group) {
            frames.push(GroupFrame::Several(std::mem::replace(&mut pack, GroupPack::of(batch))));
        }
        pack.add(*group);
    }
    if !pack.groups.is_empty() {
        frames.push(GroupFrame::Several(pack));
    }
    frames
}

fn add_pieces(batch: u32, group: GivenGroup, frames: &mut Vec<GroupFrame>) {
    let bytes_max = u32::try_from(PIECE_BYTES_MAX).unwrap_or(u32::MAX);
    let sockets_max = u32::try_from(DESCRIPTORS_MAX).unwrap_or(u32::MAX);
    let (mut from, mut first_socket) = (0, 0);
    loop {
        let len = (group.bytes - from).min(bytes_max);
        let sockets = (group.sockets - first_socket).min(sockets_max);
        let piece = GroupPiece { batch, group, from, len, first_socket, sockets };
        frames.push(GroupFrame::OfOne(piece));
        (from, first_socket) = (from + len, first_socket + sockets);
        if from == group.bytes && first_socket == group.sockets {
            return;
        }
    }
}

/// Bytes of a reason, at most: as many as a batch of them fits a frame with.
const REASON_BYTES_MAX: usize = 512;

/// A reason that fits a frame, beside others.
pub(crate) fn shortened(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    reason
}

/// Bytes of the reason with which a side gives up, at most: a file with mistakes has several lines.
const GIVE_UP_BYTES_MAX: usize = 8 * 1024;

/// A reason that goes alone.
pub(crate) fn shortened_alone(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(GIVE_UP_BYTES_MAX));
    reason
}

/// Cuts a list so that each part fits a frame, and says which is the last. A list without entries is one
/// empty part.
pub(crate) fn cut<T>(
    list: Vec<T>,
    name_bytes: impl Fn(&T) -> usize,
    count_max: usize,
) -> Vec<(Vec<T>, bool)> {
    // Beside its name, no entry takes more.
    const ENTRY_BYTES_MAX: usize = 32;
    let mut parts = vec![Vec::new()];
    let mut room = PIECE_BYTES_MAX;
    for entry in list {
        let bytes = name_bytes(&entry) + ENTRY_BYTES_MAX;
        let is_full = parts.last().is_some_and(|part: &Vec<T>| part.len() >= count_max);
        if is_full || bytes > room {
            parts.push(Vec::new());
            room = PIECE_BYTES_MAX;
        }
        room = room.saturating_sub(bytes);
        if let Some(part) = parts.last_mut() {
            part.push(entry);
        }
    }
    let count = parts.len();
    parts.into_iter().enumerate().map(|(place, part)| (part, place + 1 == count)).collect()
}

/// How many times as much room there is made as there is need for.
const ROOM: usize = 4;

/// Appends bytes that may have keys in them, and leaves no copy behind. `to_come` is said to follow: it is believed so far that a
/// large group is copied for a third, and that who lies costs as many times what it sends.
pub(crate) fn append(held: &mut Wiped, more: &[u8], to_come: u32) {
    let len = held.len().saturating_add(more.len());
    if len > held.capacity() {
        let all = len.saturating_add(to_come as usize);
        let mut larger = Wiped::with_capacity(all.min(len.saturating_mul(ROOM)));
        larger.extend_from_slice(held);
        *held = larger;
    }
    held.extend_from_slice(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, Packed, Piece};

    #[test]
    fn frames_of_groups_say_what_the_messages_do() {
        let bytes: Vec<u8> = (0..=255).cycle().take(150_000).collect();
        let group = |group, bytes, sockets| GivenGroup { group, bytes, sockets };
        let groups = [group(7, 150_000, 300), group(300, 0, 1), group(70_000, 200, 0)];
        let frames = of_groups(9, &groups, true);
        let (mut first_socket, mut got) = (0, Vec::new());
        for (frame, cut) in frames.iter().zip([1, 50_000, 64_000]) {
            let GroupFrame::OfOne(piece) = frame else { panic!("{frame:?}") };
            let frame = piece.frame(bytes.chunks(cut));
            let Ok(Some(Message::Piece(decoded))) = Message::decode(&frame) else { panic!() };
            assert_eq!((piece.group(), piece.first_socket), (7, first_socket));
            first_socket += piece.sockets;
            let Piece { batch, group, bytes_total, sockets_total, sockets, bytes } = decoded;
            assert_eq!((batch, group, bytes_total, sockets_total), (9, 7, 150_000, 300));
            assert_eq!((sockets, frame.len() <= FRAME_BYTES_MAX), (piece.sockets, true));
            got.extend_from_slice(&bytes);
        }
        assert!(got == bytes && first_socket == 300);
        let [_, _, _, GroupFrame::Several(pack)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(pack.groups().collect::<Vec<_>>(), [300, 70_000]);
        let of = |group| bytes.get(..if group == 300 { 0 } else { 200 }).unwrap_or_default();
        let frame = pack.frame(|group| of(group).chunks(90));
        let packed = |group, sockets| Packed { group, sockets, bytes: of(group).to_vec().into() };
        let message = Message::Pack { batch: 9, groups: vec![packed(300, 1), packed(70_000, 0)] };
        assert_eq!(Message::decode(&frame), Ok(Some(message)));
        // A taker that does not read packs gets each group in a frame of its own.
        let frames = of_groups(9, &groups[1..], false);
        assert!(matches!(&frames[..], [GroupFrame::OfOne(_), GroupFrame::OfOne(_)]), "{frames:?}");
    }
}
