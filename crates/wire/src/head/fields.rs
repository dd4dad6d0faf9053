//! The index over a head: where its fields are, and an arena for what was set or rewritten.

use serde::{Deserialize, Serialize};

use super::known::KnownSet;
use super::{Known, RequestFacts, ResponseFacts, RpcFacts, lookalike};
use crate::octets;

/// Reusable storage for the index over one head.
///
/// Decoding clears it and allocates only when a head has more fields than any before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeadIndex {
    pub(crate) fields: Vec<FieldEntry>,
    /// The names that a field may have. Those whose fields were removed may still be here.
    names: KnownSet,
    /// Fields for the next hop only, of no use once decoding has read their meaning.
    #[serde(skip)]
    pub(crate) hop_by_hop: Vec<FieldEntry>,
    /// Names, values and paths that were set or rewritten.
    pub(crate) added: Vec<u8>,
    pub(crate) request: RequestFacts,
    pub(crate) response: ResponseFacts,
    pub(crate) rpc: RpcFacts,
    /// The host in lower case.
    pub(crate) host: Span,
    pub(crate) upgrade: Option<Span>,
    /// Whether there is a field whose name is none of the table and needs a closer look.
    pub(crate) has_unusual_names: bool,
}

/// A range of bytes in the block or in the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) place: Place,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// The memory that a [`Span`] points into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    #[default]
    Block,
    Added,
}

/// Where one field is: name and value in the block, or both in the arena.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FieldEntry {
    pub(crate) name_start: u32,
    pub(crate) value_start: u32,
    pub(crate) value_len: u32,
    pub(crate) name_len: u16,
    pub(crate) known: Known,
    pub(crate) spelling: Spelling,
}

/// How the encoder may write a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Spelling {
    /// In the block, as `name:value` or `name: value` with the line end right behind it: the line
    /// can be copied, together with its neighbours.
    Canonical,
    /// As `Canonical`, and its sender marked it as never indexed (RFC 7541, section 7.1.3).
    Secret,
    /// In the block, with other white space around the value.
    Spaced,
    /// In the arena.
    Added,
}

impl Span {
    #[inline]
    pub(crate) fn block(start: usize, end: usize) -> Self {
        let start = octets::narrow(start);
        Self { place: Place::Block, start, len: octets::narrow(end).saturating_sub(start) }
    }

    /// The bytes at this span of `bytes`, which are the block or the arena.
    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

impl FieldEntry {
    pub(crate) fn name(&self) -> Span {
        Span { place: self.place(), start: self.name_start, len: u32::from(self.name_len) }
    }

    pub(crate) fn value(&self) -> Span {
        Span { place: self.place(), start: self.value_start, len: self.value_len }
    }

    /// Where its line ends in the block, if it can be copied as it is.
    pub(crate) fn line_end(&self) -> Option<u32> {
        match self.spelling {
            Spelling::Canonical | Spelling::Secret => Some(self.value_start + self.value_len + 2),
            Spelling::Spaced | Spelling::Added => None,
        }
    }

    fn place(&self) -> Place {
        match self.spelling {
            Spelling::Canonical | Spelling::Secret | Spelling::Spaced => Place::Block,
            Spelling::Added => Place::Added,
        }
    }
}

impl HeadIndex {
    /// Clears the head and keeps the storage.
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.names = KnownSet::default();
        self.hop_by_hop.clear();
        self.added.clear();
        self.request = RequestFacts::default();
        self.response = ResponseFacts::default();
        self.rpc.is_rpc = false;
        self.host = Span::default();
        self.upgrade = None;
        self.has_unusual_names = false;
    }

    #[inline]
    pub(crate) fn bytes<'a>(&'a self, block: &'a [u8], span: Span) -> &'a [u8] {
        match span.place {
            Place::Block => span.of(block),
            Place::Added => span.of(&self.added),
        }
    }

    /// Copies `bytes` into the arena.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Span {
        let start = self.added.len();
        self.added.extend_from_slice(bytes);
        self.added_from(start)
    }

    /// [`HeadIndex::add`], in lower case.
    pub(crate) fn add_lower_case(&mut self, bytes: &[u8]) -> Span {
        let start = self.added.len();
        self.added.extend(bytes.iter().map(u8::to_ascii_lowercase));
        self.added_from(start)
    }

    /// The arena from `start` to its end.
    pub(crate) fn added_from(&self, start: usize) -> Span {
        Span { place: Place::Added, ..Span::block(start, self.added.len()) }
    }

    /// Adds a field behind all others.
    #[inline]
    pub(crate) fn push(&mut self, field: FieldEntry) {
        self.names.insert(field.known);
        self.fields.push(field);
    }

    /// Whether some field may have this name: false is certain. Costs nothing to ask.
    #[inline]
    pub(crate) const fn may_have(&self, known: Known) -> bool {
        matches!(known, Known::Other) || self.names.contains(known)
    }

    /// Whether `field` is called `name`, whose number is `known`.
    pub(crate) fn is_named(
        &self,
        block: &[u8],
        field: &FieldEntry,
        known: Known,
        name: &[u8],
    ) -> bool {
        field.known == known
            && (known != Known::Other || self.bytes(block, field.name()).eq_ignore_ascii_case(name))
    }

    pub(crate) fn set(&mut self, block: &[u8], known: Known, name: &[u8], value: &[u8]) {
        let Some(entry) = self.add_field(known, name, value) else { return };
        let first = self.fields.iter().position(|field| self.is_named(block, field, known, name));
        match first {
            None => self.push(entry),
            Some(first) => {
                if let Some(slot) = self.fields.get_mut(first) {
                    *slot = entry;
                }
                self.remove_from(first + 1, block, known, name);
            }
        }
        if known == Known::Host {
            let is_authority = self.on_host_set(value, entry.value());
            debug_assert!(is_authority, "{:?}", value.escape_ascii().to_string());
        }
    }

    pub(crate) fn append(&mut self, known: Known, name: &[u8], value: &[u8]) {
        if known == Known::Host {
            debug_assert!(false, "a head has one host");
            return;
        }
        if let Some(entry) = self.add_field(known, name, value) {
            self.push(entry);
        }
    }

    pub(crate) fn remove(&mut self, block: &[u8], known: Known, name: &[u8]) -> bool {
        if known == Known::ContentLength {
            return false;
        }
        if known == Known::Host {
            self.host = Span::default();
        }
        self.remove_from(0, block, known, name)
    }

    pub(crate) fn remove_from(
        &mut self,
        from: usize,
        block: &[u8],
        known: Known,
        name: &[u8],
    ) -> bool {
        if !self.may_have(known) {
            return false;
        }
        // Fields behind a removed one move up, in one pass.
        let mut kept = from;
        for at in from..self.fields.len() {
            let Some(&field) = self.fields.get(at) else { break };
            if self.is_named(block, &field, known, name) {
                continue;
            }
            if let Some(slot) = self.fields.get_mut(kept) {
                *slot = field;
            }
            kept += 1;
        }
        let has_removed = kept < self.fields.len();
        self.fields.truncate(kept);
        has_removed
    }

    pub(crate) fn remove_others(
        &mut self,
        block: &[u8],
        mut is_removed: impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let before = self.fields.len();
        let mut fields = std::mem::take(&mut self.fields);
        fields.retain(|field| {
            field.known != Known::Other || !is_removed(self.bytes(block, field.name()))
        });
        self.fields = fields;
        before - self.fields.len()
    }

    /// An entry for a field that is not from the block, or `None` if it is the encoder's to write.
    fn add_field(&mut self, known: Known, name: &[u8], value: &[u8]) -> Option<FieldEntry> {
        // In a frame of RPC lengths stand in front, so that any bytes may.
        debug_assert!(
            self.rpc.is_rpc || octets::is_token(name),
            "{:?}",
            name.escape_ascii().to_string()
        );
        debug_assert!(
            self.rpc.is_rpc
                || value.iter().all(|&octet| octets::is_value_octet(octet))
                    && octets::trim(value).len() == value.len(),
            "{:?}",
            value.escape_ascii().to_string(),
        );
        if known.is_hop_by_hop() || known == Known::ContentLength {
            return None;
        }
        let name_len = u16::try_from(name.len()).ok()?;
        self.has_unusual_names |= known == Known::Other && lookalike::is_envoy(name);
        let name = self.add(name);
        let value = self.add(value);
        Some(FieldEntry {
            name_start: name.start,
            value_start: value.start,
            value_len: value.len,
            name_len,
            known,
            spelling: Spelling::Added,
        })
    }
}
