//! What the other process knows of each topic, as far as it has said it; and how it is said.

use std::collections::BTreeMap;
use std::mem;

use wiped::Wiped;

use crate::STATE_BYTES_MAX;
use crate::deadlines::Phase;
use crate::failure::Failure;
use crate::message::StatePiece;
use crate::pieces::{PIECE_BYTES_MAX, append};

/// Topics, at most.
const TOPICS_MAX: usize = 64;

/// The parts in which a value is said, one behind the other.
pub(crate) fn pieces<'s>(topic: &'s str, value: &'s [u8]) -> impl Iterator<Item = StatePiece> + 's {
    let bytes_total = u32::try_from(value.len()).unwrap_or(u32::MAX);
    // One without bytes is said, too.
    let count = value.len().div_ceil(PIECE_BYTES_MAX).max(1);
    (0..count).map(move |place| {
        let from = place * PIECE_BYTES_MAX;
        let to = value.len().min(from + PIECE_BYTES_MAX);
        let bytes = value.get(from..to).unwrap_or_default().to_vec().into();
        StatePiece { topic: topic.to_owned(), bytes_total, bytes }
    })
}

/// By topic.
#[derive(Debug, Default)]
pub(crate) struct Topics(BTreeMap<String, Topic>);

#[derive(Debug, Default)]
struct Topic {
    /// The last that came whole: a process may end while it says something newer.
    whole: Option<Wiped>,
    /// What has come of the next one, and how much of it is to come.
    coming: Wiped,
    to_come: u32,
}

impl Topics {
    /// A piece came. Returns what is whole with it.
    pub(crate) fn on_piece(
        &mut self,
        piece: StatePiece,
        phase: Phase,
    ) -> Result<Option<(String, Wiped)>, Failure> {
        let StatePiece { topic, bytes_total, bytes } = piece;
        if bytes_total > STATE_BYTES_MAX {
            let max = STATE_BYTES_MAX as usize;
            return Err(Failure::OverBound { what: "bytes of state", max });
        }
        if !self.0.contains_key(&topic) && self.0.len() >= TOPICS_MAX {
            return Err(Failure::OverBound { what: "topics of state", max: TOPICS_MAX });
        }
        let held = self.0.entry(topic.clone()).or_default();
        if held.to_come == 0 {
            held.to_come = bytes_total;
        }
        let Some(left) = u32::try_from(bytes.len()).ok().and_then(|n| held.to_come.checked_sub(n))
        else {
            return Err(Failure::OutOfTurn { phase, message: "State" });
        };
        append(&mut held.coming, &bytes, left);
        held.to_come = left;
        Ok((left == 0).then(|| (topic, mem::take(&mut held.coming))))
    }

    /// Keeps what is known of a topic by now, and says whether it is something else than before.
    pub(crate) fn keep(&mut self, topic: &str, bytes: Wiped) -> bool {
        let Some(held) = self.0.get_mut(topic) else { return false };
        let is_another = held.whole.as_ref().is_none_or(|known| *known != bytes);
        held.whole = Some(bytes);
        is_another
    }

    /// What is known of a topic.
    pub(crate) fn known(&self, topic: &str) -> Option<&[u8]> {
        self.0.get(topic)?.whole.as_ref().map(|whole| whole.as_slice())
    }

    /// Begins anew with a topic.
    pub(crate) fn forget(&mut self, topic: &str) {
        self.0.remove(topic);
    }

    /// Whether pieces of one are still to come.
    pub(crate) fn are_cut(&self) -> bool {
        self.0.values().any(|topic| topic.to_come > 0)
    }

    /// All that is known.
    pub(crate) fn take(&mut self) -> BTreeMap<String, Wiped> {
        let topics = mem::take(&mut self.0).into_iter();
        topics.filter_map(|(topic, held)| Some((topic, held.whole?))).collect()
    }
}
