//! What was read of a group: whether its parts go together is found out as they come, so that no step takes longer for a large one.

use std::collections::BTreeSet;
use std::vec::IntoIter;

use super::exchanges::{SavedExchange, SavedStage};
use super::{RestoreError, SavedEnd, SavedSide};
use crate::cx::Cx;

/// Connections and exchanges that know each other by their places here.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) connections: Vec<SavedEnd>,
    #[expect(
        clippy::vec_box,
        reason = "each has 1 KiB, and a list of thousands would copy them as it grows"
    )]
    exchanges: Vec<Box<SavedExchange>>,
    /// The sides of these exchanges: places of connections, and streams.
    sides: BTreeSet<(u32, u32)>,
    /// How many exchanges each connection has, once there are any.
    counts: Vec<u32>,
    /// Connections that have as many as they say.
    checked: usize,
    /// The exchanges that are named as copies.
    copies: Vec<u32>,
    /// Those that have no connection, and wait as copies do; ascending.
    waiting: Vec<u32>,
}

impl Group {
    /// With room for so many connections.
    pub(super) fn with_capacity(connections: usize) -> Self {
        Self { connections: Vec::with_capacity(connections), ..Self::default() }
    }

    /// Whether an exchange is what it may be, and its sides are what it says they are, each of them its own.
    pub(super) fn add_exchange(
        &mut self,
        saved: Box<SavedExchange>,
        cx: &Cx,
    ) -> Result<(), RestoreError> {
        self.check_exchange(&saved, cx)?;
        self.counts.resize(self.connections.len(), 0);
        for side in [saved.downstream, saved.upstream].into_iter().flatten() {
            let count = self.counts.get_mut(side.connection as usize);
            let is_new = self.sides.insert((side.connection, side.slot.stream()));
            let (Some(count), true) = (count, is_new) else { return Err(UNMATCHED) };
            *count += 1;
        }
        // Each exchange without a connection is the copy of one that has its client's, and waits for that.
        let waits = saved.detached.is_some() && matches!(saved.stage, SavedStage::Buffering(_));
        let has_own = saved.downstream.is_some() || saved.upstream.is_some();
        if waits == has_own || (!saved.copies.is_empty() && saved.downstream.is_none()) {
            return Err(NO_ORIGINAL);
        }
        if waits {
            self.waiting.push(u32::try_from(self.exchanges.len()).unwrap_or(u32::MAX));
        }
        self.copies.extend(&saved.copies);
        self.exchanges.push(saved);
        Ok(())
    }

    fn check_exchange(&self, saved: &SavedExchange, cx: &Cx) -> Result<(), RestoreError> {
        let end = |side: SavedSide| {
            let end = self.connections.get(side.connection as usize);
            end.filter(|end| end.has_slot(side.slot))
        };
        let needs_upstream = matches!(saved.stage, SavedStage::Attempting | SavedStage::Responding);
        let has_downstream = match (saved.downstream, &saved.detached) {
            (Some(side), None) => matches!(end(side), Some(SavedEnd::Downstream(_))),
            (None, Some(_)) if cx.snapshot.listeners.is_empty() => {
                return Err(RestoreError::NoListener);
            }
            (None, Some(_)) => true,
            _ => false,
        };
        if !has_downstream {
            return Err(RestoreError::Damaged("an exchange has no stream of a downstream"));
        }
        if saved.upstream.is_some() != needs_upstream {
            return Err(RestoreError::Damaged(
                "an upstream does not fit the stage of its exchange",
            ));
        }
        match saved.upstream.map(end) {
            None | Some(Some(SavedEnd::Upstream(_))) => Ok(()),
            Some(_) => Err(RestoreError::Damaged("an exchange has no stream of its upstream")),
        }
    }

    /// Looks whether the next connection has the exchanges that it says. False once all have.
    pub(super) fn check_next(&mut self) -> Result<bool, RestoreError> {
        let Some(end) = self.connections.get(self.checked) else { return Ok(false) };
        let count = self.counts.get(self.checked).copied().unwrap_or(0);
        self.checked += 1;
        if end.carries(count as usize) { Ok(true) } else { Err(UNMATCHED) }
    }

    /// All of it, if it goes together.
    pub(super) fn into_parts(
        mut self,
    ) -> Result<(IntoIter<SavedEnd>, IntoIter<Box<SavedExchange>>), RestoreError> {
        if self.connections.is_empty() {
            return Err(RestoreError::Damaged("it has no connection"));
        }
        self.copies.sort_unstable();
        if self.copies != self.waiting {
            return Err(NO_ORIGINAL);
        }
        Ok((self.connections.into_iter(), self.exchanges.into_iter()))
    }
}

const UNMATCHED: RestoreError = RestoreError::Damaged("streams and exchanges do not match");
const NO_ORIGINAL: RestoreError = RestoreError::Damaged("a mirrored request has no original");
