//! A dynamic table (RFC 7541, sections 2.3.2 and 4).
//!
//! ```text
//!  lines:    │ evicted │ oldest line │ … │ newest line │ room up to half the table's size more
//!  entries:              front         …   back
//! ```
//!
//! Lines stand one behind the other. Evicted ones stay until there is no more room; then those
//! that live move to the front. So an entry is always in one piece, each octet is moved twice at
//! most, and entering one allocates only while the table grows to its size.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{AROUND_LEN, COLON, LINE_END, Line, Name, Secrecy};

/// The table of one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Table {
    lines: Vec<u8>,
    entries: VecDeque<Entry>,
    /// Of all entries, as RFC 7541, section 4.1 counts it.
    size: u32,
    size_max: u32,
}

/// One entry of a table.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Entry {
    start: u32,
    len: u32,
    name_len: u32,
    /// White space around its value, which is not in the line and counts all the same.
    blanks: u32,
    name: Name,
    is_value_valid: bool,
}

/// The overhead of an entry beside its name and value (RFC 7541, section 4.1).
const OVERHEAD: usize = 32;

impl Entry {
    fn size(&self) -> u32 {
        size_of_line(self.len as usize).saturating_add(self.blanks)
    }

    fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }
}

/// The size of an entry whose line has this many octets.
fn size_of_line(len: usize) -> u32 {
    u32::try_from(len + OVERHEAD - AROUND_LEN).unwrap_or(u32::MAX)
}

/// The size of an entry with this name and value.
pub(super) fn size_of(name: &[u8], value: &[u8]) -> u32 {
    u32::try_from(name.len() + value.len() + OVERHEAD).unwrap_or(u32::MAX)
}

impl Table {
    pub(super) fn new(size_max: u32) -> Self {
        Self { lines: Vec::new(), entries: VecDeque::new(), size: 0, size_max }
    }

    pub(super) fn size_max(&self) -> u32 {
        self.size_max
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at `place`, counted from the newest at 0.
    #[inline]
    pub(super) fn line(&self, place: usize) -> Option<Line<'_>> {
        let at = self.entries.len().checked_sub(place + 1)?;
        let entry = self.entries.get(at)?;
        Some(Line {
            bytes: self.lines.get(entry.start as usize..entry.end())?,
            name_len: entry.name_len as usize,
            name: entry.name,
            is_value_valid: entry.is_value_valid,
            secrecy: Secrecy::Open,
        })
    }

    /// All entries, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        (0..self.len()).rev().filter_map(|place| self.line(place))
    }

    /// Changes the size and evicts what is over it.
    pub(super) fn resize(&mut self, size_max: u32) {
        self.size_max = size_max;
        self.evict_down_to(size_max);
        if self.entries.is_empty() {
            // The peer wants the memory back, or will fill the table again.
            *self = Self::new(size_max);
        }
    }

    /// Enters a field, evicting others for it. One that is larger than the table empties it.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], kind: Name, is_value_valid: bool) {
        self.insert_trimmed(name, value, 0, kind, is_value_valid);
    }

    /// As [`Table::insert`], of a value around which so many `blanks` were trimmed. They count, or
    /// this table and the peer's would evict at different times, and an index would mean two things.
    pub(super) fn insert_trimmed(
        &mut self,
        name: &[u8],
        value: &[u8],
        blanks: u32,
        kind: Name,
        is_value_valid: bool,
    ) {
        let size = size_of(name, value).saturating_add(blanks);
        let Some(others_max) = self.size_max.checked_sub(size) else {
            self.evict_down_to(0);
            return;
        };
        self.evict_down_to(others_max);
        let len = name.len() + value.len() + AROUND_LEN;
        self.make_room(len);
        let narrow = crate::octets::narrow;
        self.entries.push_back(Entry {
            start: narrow(self.lines.len()),
            len: narrow(len),
            name_len: narrow(name.len()),
            blanks,
            name: kind,
            is_value_valid,
        });
        self.size += size;
        for part in [name, COLON, value, LINE_END] {
            self.lines.extend_from_slice(part);
        }
    }

    fn evict_down_to(&mut self, size_max: u32) {
        while self.size > size_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size = self.size.saturating_sub(oldest.size());
        }
        if self.entries.is_empty() {
            self.size = 0;
            self.lines.clear();
        }
    }

    /// Makes room for `len` octets behind the newest line, by moving all lines to the front if
    /// the evicted ones have grown to half of the table's size.
    fn make_room(&mut self, len: usize) {
        let room_max = self.size_max as usize + self.size_max as usize / 2;
        if self.lines.len() + len <= room_max {
            return;
        }
        let front = self.entries.front().map_or(self.lines.len(), |entry| entry.start as usize);
        self.lines.drain(..front.min(self.lines.len()));
        let moved = crate::octets::narrow(front);
        for entry in &mut self.entries {
            entry.start = entry.start.saturating_sub(moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Known;

    const KIND: Name = Name::Field(Known::Other);

    fn values(table: &Table) -> Vec<String> {
        table.iter().map(|line| String::from_utf8(line.value().to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_oldest_go_first() {
        // Each counts 1 + 2 + 32.
        let mut table = Table::new(3 * 35);
        for value in ["v1", "v2", "v3", "v4"] {
            table.insert(b"n", value.as_bytes(), KIND, true);
        }
        assert_eq!(values(&table), ["v2", "v3", "v4"]);
        assert_eq!(table.line(0).unwrap().bytes, b"n: v4\r\n");
        assert_eq!(table.line(2).unwrap().value(), b"v2");
        assert!(table.line(3).is_none());
        table.resize(2 * 35 + 34);
        assert_eq!(values(&table), ["v3", "v4"]);
        table.insert(b"n", b"longer", KIND, true);
        assert_eq!(values(&table), ["v4", "longer"]);
    }

    #[test]
    fn one_that_is_too_large_empties_the_table() {
        let mut table = Table::new(64);
        table.insert(b"n", b"v", KIND, true);
        table.insert(b"n", &[b'v'; 31], KIND, true);
        assert_eq!(values(&table).len(), 1, "64 octets fit");
        table.insert(b"n", &[b'v'; 32], KIND, true);
        assert_eq!(table.len(), 0);
        table.insert(b"n", b"v", KIND, true);
        assert_eq!(values(&table), ["v"]);
    }

    #[test]
    fn blanks_that_were_trimmed_count() {
        // Each counts 1 + 2 + 32, and its blanks.
        let mut table = Table::new(3 * 35);
        table.insert(b"n", b"v1", KIND, true);
        table.insert(b"n", b"v2", KIND, true);
        table.insert_trimmed(b"n", b"v3", 1, KIND, true);
        assert_eq!(values(&table), ["v2", "v3"]);
        table.resize(35);
        assert_eq!(table.len(), 0);
        table.insert_trimmed(b"n", b"v4", 1, KIND, true);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn storage_is_bounded_and_used_again() {
        let mut table = Table::new(4096);
        for n in 0..10_000u32 {
            let value = format!("{n}").repeat(1 + n as usize % 40);
            table.insert(b"name", value.as_bytes(), KIND, true);
            assert_eq!(table.line(0).unwrap().value(), value.as_bytes());
            assert!(table.lines.len() <= 6144, "{}", table.lines.len());
            let size: u32 = table.entries.iter().map(Entry::size).sum();
            assert_eq!(size, table.size);
            assert!(size <= 4096);
        }
        for n in 0..1_000u32 {
            table.insert(b"name", format!("{n}").as_bytes(), KIND, true);
        }
        let storage = (table.lines.as_ptr(), table.entries.capacity());
        for n in 0..1_000u32 {
            table.insert(b"name", format!("{n}").as_bytes(), KIND, true);
        }
        assert_eq!((table.lines.as_ptr(), table.entries.capacity()), storage);
        assert_eq!(table.iter().last().unwrap().value(), b"999");
    }

    #[test]
    fn an_empty_table_owns_nothing() {
        let mut table = Table::new(4096);
        assert_eq!((table.lines.capacity(), table.entries.capacity()), (0, 0));
        table.insert(b"n", b"v", KIND, true);
        table.resize(0);
        assert_eq!((table.lines.capacity(), table.entries.capacity()), (0, 0));
    }
}
