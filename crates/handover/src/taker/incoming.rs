//! Batches of groups that come, until the caller has served them.

use std::collections::VecDeque;
use std::mem;

use wiped::Wiped;

use super::action::{MovingAction, ReceivedGroup};
use crate::deadlines::Phase;
use crate::failure::Failure;
use crate::message::{Packed, Piece};
use crate::pieces::append;
use crate::{BATCH_GROUPS_MAX, BATCHES_MAX, GROUP_BYTES_MAX, GROUP_SOCKETS_MAX};

/// What has come of groups.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The batch that is coming.
    batch: u32,
    /// Its whole groups.
    groups: Vec<ReceivedGroup>,
    /// The group that is coming.
    coming: Option<Coming>,
    /// Batches that the caller has, oldest first.
    taking: VecDeque<u32>,
}

#[derive(Debug)]
struct Coming {
    /// The first piece, without its bytes.
    piece: Piece,
    bytes: Wiped,
    sockets: u32,
}

const fn out_of_turn(message: &'static str) -> Failure {
    Failure::OutOfTurn { phase: Phase::Connections, message }
}

impl Incoming {
    /// Whether all that came was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.coming.is_none() && self.groups.is_empty() && self.taking.is_empty()
    }

    pub(super) fn on_piece(&mut self, piece: Piece) -> Result<(), Failure> {
        if piece.bytes_total > GROUP_BYTES_MAX {
            let max = GROUP_BYTES_MAX as usize;
            return Err(Failure::OverBound { what: "bytes of a group", max });
        }
        if piece.sockets_total > GROUP_SOCKETS_MAX {
            let max = GROUP_SOCKETS_MAX as usize;
            return Err(Failure::OverBound { what: "sockets of a group", max });
        }
        if self.groups.len() >= BATCH_GROUPS_MAX as usize {
            let max = BATCH_GROUPS_MAX as usize;
            return Err(Failure::OverBound { what: "groups of a batch", max });
        }
        if self.coming.is_none() && self.groups.is_empty() {
            self.batch = piece.batch;
        }
        let is_of_batch = piece.batch == self.batch && self.taking.len() < BATCHES_MAX;
        let coming = match self.coming.take() {
            Some(coming) if coming.is_continued_by(&piece) => coming.and(piece),
            None => Coming::new(piece),
            Some(_) => return Err(out_of_turn("Piece")),
        };
        let (bytes, sockets) = (coming.bytes.len(), coming.sockets);
        let (bytes_total, sockets_total) =
            (coming.piece.bytes_total as usize, coming.piece.sockets_total);
        if !is_of_batch || bytes > bytes_total || sockets > sockets_total {
            return Err(out_of_turn("Piece"));
        }
        if bytes == bytes_total && sockets == sockets_total {
            let Coming { piece: Piece { group, .. }, bytes, .. } = coming;
            self.groups.push(ReceivedGroup { group, bytes, sockets });
        } else {
            self.coming = Some(coming);
        }
        Ok(())
    }

    pub(super) fn on_pack(&mut self, batch: u32, groups: Vec<Packed>) -> Result<(), Failure> {
        groups.into_iter().try_for_each(|Packed { group, sockets, bytes }| {
            let bytes_total = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let sockets_total = sockets;
            self.on_piece(Piece { batch, group, bytes_total, sockets_total, sockets, bytes })
        })
    }

    /// A batch is whole. Returns what is to be done with it.
    pub(super) fn on_batch_end(
        &mut self,
        batch: u32,
        groups: u32,
    ) -> Result<MovingAction, Failure> {
        let is_whole = self.coming.is_none()
            && batch == self.batch
            && groups as usize == self.groups.len()
            && groups > 0;
        if !is_whole {
            return Err(out_of_turn("BatchEnd"));
        }
        self.taking.push_back(batch);
        Ok(MovingAction::Take { batch, groups: mem::take(&mut self.groups) })
    }

    /// The caller is done with a batch: the oldest, or nothing is taken for done.
    pub(super) fn taken(&mut self, batch: u32) -> bool {
        self.taking.pop_front_if(|oldest| *oldest == batch).is_some()
    }
}

impl Coming {
    fn is_continued_by(&self, next: &Piece) -> bool {
        let Piece { batch, group, bytes_total, sockets_total, .. } = &self.piece;
        (*batch, *group) == (next.batch, next.group)
            && (*bytes_total, *sockets_total) == (next.bytes_total, next.sockets_total)
            && (!next.bytes.is_empty() || next.sockets > 0)
    }

    fn new(mut piece: Piece) -> Self {
        let bytes = mem::take(&mut piece.bytes);
        Self { sockets: piece.sockets, piece, bytes }
    }

    fn and(mut self, next: Piece) -> Self {
        let so_far = self.bytes.len().saturating_add(next.bytes.len());
        let so_far = u32::try_from(so_far).unwrap_or(u32::MAX);
        append(&mut self.bytes, &next.bytes, self.piece.bytes_total.saturating_sub(so_far));
        self.sockets = self.sockets.saturating_add(next.sockets);
        self
    }
}
