//! What a group consists of, with the places that its members have in it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::SavedSide;
use crate::keys::{ConnKey, ExchangeKey, StreamKey};

/// Every connection and exchange that one connection cannot be moved without, and their places in these lists.
#[derive(Debug, Default)]
pub(super) struct Companions {
    pub(super) connections: Vec<ConnKey>,
    pub(super) exchanges: Vec<ExchangeKey>,
    connection_places: Places,
    exchange_places: Places,
}

/// The places of keys, which are given in the order in which keys are added.
///
/// Most groups are one connection: nothing is allocated for the first key.
#[derive(Debug, Default)]
struct Places {
    first: Option<u64>,
    others: BTreeMap<u64, u32>,
}

impl Places {
    /// Whether the key was not there before.
    fn add(&mut self, key: u64) -> bool {
        let Some(first) = self.first else {
            self.first = Some(key);
            return true;
        };
        if first == key {
            return false;
        }
        let place = u32::try_from(self.others.len() + 1).unwrap_or(u32::MAX);
        let Entry::Vacant(entry) = self.others.entry(key) else { return false };
        entry.insert(place);
        true
    }

    fn of(&self, key: u64) -> Option<u32> {
        if self.first == Some(key) { Some(0) } else { self.others.get(&key).copied() }
    }
}

impl Companions {
    /// Whether it was not there before.
    pub(super) fn add_connection(&mut self, key: ConnKey) -> bool {
        let is_new = self.connection_places.add(key.to_bits());
        if is_new {
            self.connections.push(key);
        }
        is_new
    }

    /// Whether it was not there before.
    pub(super) fn add_exchange(&mut self, key: ExchangeKey) -> bool {
        let is_new = self.exchange_places.add(key.to_bits());
        if is_new {
            self.exchanges.push(key);
        }
        is_new
    }

    pub(super) fn has_connection(&self, key: ConnKey) -> bool {
        self.connection_places.of(key.to_bits()).is_some()
    }

    pub(super) fn place_of_exchange(&self, key: ExchangeKey) -> Option<u32> {
        self.exchange_places.of(key.to_bits())
    }

    pub(super) fn side(&self, side: StreamKey) -> SavedSide {
        let place = self.connection_places.of(side.connection.to_bits());
        SavedSide { connection: place.unwrap_or(u32::MAX), slot: side.slot }
    }

    /// Without those that are gone: what is behind them has other places.
    pub(super) fn retain(
        &mut self,
        mut is_connection: impl FnMut(ConnKey) -> bool,
        mut is_exchange: impl FnMut(ExchangeKey) -> bool,
    ) {
        let Self { connections, exchanges, .. } = std::mem::take(self);
        for key in connections.into_iter().filter(|key| is_connection(*key)) {
            self.add_connection(key);
        }
        for key in exchanges.into_iter().filter(|key| is_exchange(*key)) {
            self.add_exchange(key);
        }
    }
}
