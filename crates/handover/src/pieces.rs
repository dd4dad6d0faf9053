//! What is larger than a frame, cut into frames; and what is smaller, several in one.

use wiped::{Wiped, wipe};

use crate::frame::{DESCRIPTORS_MAX, FRAME_BYTES_MAX};
use crate::message::{Message, Packed, Piece};

/// Bytes of a frame that are left for names and numbers around a piece of a group.
const ENVELOPE_BYTES_MAX: usize = 1024;

/// Bytes of what is cut into pieces, in each.
pub(crate) const PIECE_BYTES_MAX: usize = FRAME_BYTES_MAX - ENVELOPE_BYTES_MAX;

/// A group to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenGroup {
    /// A number that no other group of this handover has.
    pub group: u32,
    /// What is written of it.
    pub bytes: Wiped,
    /// How many sockets go with it.
    pub sockets: u32,
}

/// A frame with a group, a piece of one, or several.
#[derive(Debug)]
pub(crate) enum GroupFrame {
    /// These groups as a whole, with all their sockets.
    Several(Wiped, Vec<u32>),
    /// A piece of a group, with `count` sockets from the one at `first` on.
    OfOne { frame: Wiped, group: u32, first: u32, count: u32 },
}

/// The frames of groups: where `packs` are read, as many groups in a frame as it holds, as most have one socket and some fifty
/// bytes.
pub(crate) fn of_groups(batch: u32, groups: Vec<GivenGroup>, packs: bool) -> Vec<GroupFrame> {
    let (mut frames, mut pack) = (Vec::new(), Pack::default());
    for group in groups {
        if !packs || !Pack::default().has_room(&group) {
            add_pieces(batch, &group, &mut frames);
            continue;
        }
        if !pack.has_room(&group) {
            frames.extend(std::mem::take(&mut pack).into_frame(batch));
        }
        pack.add(group);
    }
    frames.extend(pack.into_frame(batch));
    frames
}

fn add_pieces(batch: u32, group: &GivenGroup, frames: &mut Vec<GroupFrame>) {
    let bytes_total = u32::try_from(group.bytes.len()).unwrap_or(u32::MAX);
    let (mut bytes, mut first) = (group.bytes.as_slice(), 0);
    loop {
        let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES_MAX));
        let most = u32::try_from(DESCRIPTORS_MAX).unwrap_or(u32::MAX);
        let count = (group.sockets - first).min(most);
        let mut message = Piece {
            batch,
            group: group.group,
            bytes_total,
            sockets_total: group.sockets,
            sockets: count,
            bytes: piece.to_vec(),
        };
        let frame = message.encode();
        wipe(&mut message.bytes);
        frames.push(GroupFrame::OfOne { frame, group: group.group, first, count });
        (bytes, first) = (rest, first + count);
        if bytes.is_empty() && first == group.sockets {
            return;
        }
    }
}

/// Groups that go in one frame.
#[derive(Debug, Default)]
struct Pack {
    groups: Vec<Packed>,
    bytes: usize,
    sockets: usize,
}

impl Pack {
    /// Beside its bytes, no group takes more of a frame.
    const NUMBERS_BYTES_MAX: usize = 16;

    fn has_room(&self, group: &GivenGroup) -> bool {
        let bytes = self.bytes + group.bytes.len() + Self::NUMBERS_BYTES_MAX;
        bytes <= PIECE_BYTES_MAX && self.sockets + group.sockets as usize <= DESCRIPTORS_MAX
    }

    fn add(&mut self, mut group: GivenGroup) {
        self.bytes += group.bytes.len() + Self::NUMBERS_BYTES_MAX;
        self.sockets += group.sockets as usize;
        let bytes = std::mem::take(&mut *group.bytes);
        self.groups.push(Packed { group: group.group, sockets: group.sockets, bytes });
    }

    /// The frame; none for no groups.
    fn into_frame(self, batch: u32) -> Option<GroupFrame> {
        if self.groups.is_empty() {
            return None;
        }
        let numbers = self.groups.iter().map(|packed| packed.group).collect();
        let mut message = Message::Pack { batch, groups: self.groups };
        let frame = message.encode();
        if let Message::Pack { groups, .. } = &mut message {
            groups.iter_mut().for_each(|packed| wipe(&mut packed.bytes));
        }
        Some(GroupFrame::Several(frame, numbers))
    }
}

/// Bytes of a reason, at most: as many as a batch of them fits a frame with.
const REASON_BYTES_MAX: usize = 512;

/// A reason that fits a frame, beside others.
pub(crate) fn shortened(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
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
