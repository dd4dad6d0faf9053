//! Fields ⇒ header blocks (RFC 7541, section 6).
//!
//! A field is entered into the table when it comes for the second time within a while: what never
//! comes again, such as most paths and identifiers, takes no room there, and a connection that
//! serves a few requests needs no table at all. What must stay secret is never entered.

use serde::{Deserialize, Serialize};

use super::table::{Table, size_of};
use super::{Name, fixed, huffman, integer};
use crate::buffer::Buffer;
use crate::head::Known;

/// Whether a field may be entered into tables.
///
/// An attacker who can add fields to the same connection, and sees how long blocks get, can guess
/// what is in a table (RFC 7541, section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Secrecy {
    /// The field may be entered.
    #[default]
    Open,
    /// Neither here nor at any later hop.
    Secret,
}

/// The sending side of one connection's compression.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Encoder {
    table: Table,
    /// The largest table that is used, whatever the peer allows.
    size_own_max: u32,
    /// The smallest size since the last block, if the size has changed.
    size_least: Option<u32>,
    /// Entries made so far; wraps.
    entered: u16,
    /// Built from the table when it is missing.
    #[serde(skip)]
    index: Option<Box<Index>>,
    /// Marks of fields that came before; nothing, or [`SEEN`] of them.
    seen: Vec<u16>,
}

/// Cookies shorter than this could be guessed in a bearable number of tries.
const COOKIE_GUESSABLE_LEN: usize = 20;

impl Encoder {
    /// An encoder that uses a table of up to `size_own_max`, if the peer allows so much.
    #[must_use]
    pub fn new(size_own_max: u32) -> Self {
        let mut this = Self {
            table: Table::new(super::TABLE_BYTES_DEFAULT),
            size_own_max,
            size_least: None,
            entered: 0,
            index: None,
            seen: Vec::new(),
        };
        this.set_size_allowed(super::TABLE_BYTES_DEFAULT);
        this
    }

    /// The peer allows tables of this size (RFC 7541, section 4.2).
    pub fn set_size_allowed(&mut self, size_allowed: u32) {
        let size = size_allowed.min(self.size_own_max);
        if size != self.table.size_max() {
            self.size_least = Some(self.size_least.map_or(size, |least| least.min(size)));
            self.table.resize(size);
        }
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut Buffer) {
        let Some(least) = self.size_least.take() else { return };
        let size = self.table.size_max();
        if least < size {
            integer::encode(least, 5, 0x20, out);
        }
        integer::encode(size, 5, 0x20, out);
    }

    /// No block begins with more octets than this.
    pub(crate) const BEGIN_LEN_MAX: usize = 12;

    /// A field takes at most this much beside its name and value.
    pub(crate) const FIELD_LEN_MAX: usize = 12;

    /// Writes a field. The name is trusted to be in lower case.
    ///
    /// # Panics
    ///
    /// When `out` has not room for name and value and a few octets more, and they are needed.
    pub fn field(&mut self, name: &[u8], value: &[u8], secrecy: Secrecy, out: &mut Buffer) {
        self.known_field(Known::from_name(name), name, value, secrecy, out);
    }

    /// [`Encoder::field`] for a name whose number is known.
    pub(crate) fn known_field(
        &mut self,
        known: Known,
        name: &[u8],
        value: &[u8],
        secrecy: Secrecy,
        out: &mut Buffer,
    ) {
        let is_guessable = match known {
            Known::Authorization | Known::ProxyAuthorization => true,
            Known::Cookie | Known::SetCookie => value.len() < COOKIE_GUESSABLE_LEN,
            _ => false,
        };
        let secrecy = if is_guessable { Secrecy::Secret } else { secrecy };
        self.put(fixed::name_index(known, name), name, value, secrecy, out);
    }

    pub(crate) fn method(&mut self, value: &[u8], out: &mut Buffer) {
        self.put(fixed::METHOD, b":method", value, Secrecy::Open, out);
    }

    pub(crate) fn scheme(&mut self, value: &[u8], out: &mut Buffer) {
        self.put(fixed::SCHEME, b":scheme", value, Secrecy::Open, out);
    }

    pub(crate) fn authority(&mut self, value: &[u8], secrecy: Secrecy, out: &mut Buffer) {
        self.put(fixed::AUTHORITY, b":authority", value, secrecy, out);
    }

    pub(crate) fn path(&mut self, value: &[u8], secrecy: Secrecy, out: &mut Buffer) {
        self.put(fixed::PATH, b":path", value, secrecy, out);
    }

    pub(crate) fn protocol(&mut self, value: &[u8], out: &mut Buffer) {
        self.put(0, b":protocol", value, Secrecy::Open, out);
    }

    pub(crate) fn status(&mut self, value: &[u8], out: &mut Buffer) {
        self.put(fixed::STATUS, b":status", value, Secrecy::Open, out);
    }

    fn put(
        &mut self,
        name_index: u32,
        name: &[u8],
        value: &[u8],
        secrecy: Secrecy,
        out: &mut Buffer,
    ) {
        let indexed = fixed::pair_index(name_index, value);
        if indexed != 0 {
            return integer::encode(indexed, 7, 0x80, out);
        }
        if secrecy == Secrecy::Secret {
            return literal(name_index, 4, 0x10, name, value, out);
        }
        let hashes = Hashes::new(name, value);
        if let Some(place) = self.pair_place(&hashes, name, value) {
            return integer::encode(dynamic_index(place), 7, 0x80, out);
        }
        let name_index = match name_index {
            0 => self.name_place(&hashes, name).map_or(0, dynamic_index),
            index => index,
        };
        // An entry that would evict most others does not pay.
        let fits = size_of(name, value) <= self.table.size_max() / 2;
        if self.has_seen(&hashes) && fits {
            literal(name_index, 6, 0x40, name, value, out);
            self.enter(&hashes, name, value);
        } else {
            literal(name_index, 4, 0x00, name, value, out);
        }
    }

    /// Where in the table the field is, counted from the newest, if it is found.
    fn pair_place(&mut self, hashes: &Hashes, name: &[u8], value: &[u8]) -> Option<usize> {
        let numbers = *self.index()?.pairs.get(slot(hashes.pair, PAIRS))?;
        numbers.into_iter().map(|number| place(number, self.entered)).find(|&place| {
            let line = self.table.line(place);
            line.is_some_and(|line| line.name() == name && line.value() == value)
        })
    }

    /// Where in the table a field of this name is, with any value.
    fn name_place(&mut self, hashes: &Hashes, name: &[u8]) -> Option<usize> {
        let numbers = *self.index()?.names.get(slot(hashes.name, NAMES))?;
        let mut places = numbers.into_iter().map(|number| place(number, self.entered));
        places.find(|&place| self.table.line(place).is_some_and(|line| line.name() == name))
    }

    /// The index, if there is anything to be found with it.
    fn index(&mut self) -> Option<&Index> {
        if self.index.is_none() && self.table.len() > 0 {
            self.index = Some(Index::over(&self.table, self.entered));
        }
        self.index.as_deref()
    }

    fn enter(&mut self, hashes: &Hashes, name: &[u8], value: &[u8]) {
        self.table.insert(name, value, Name::Invalid, true);
        let index = self.index.get_or_insert_with(Box::default);
        index.on_entered(hashes, self.entered);
        self.entered = self.entered.wrapping_add(1);
    }

    /// Whether the field came before; from now on it has.
    fn has_seen(&mut self, hashes: &Hashes) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN * WAYS];
        }
        let (buckets, _) = self.seen.as_chunks_mut::<WAYS>();
        let Some(bucket) = buckets.get_mut(slot(hashes.pair, SEEN)) else { return false };
        let mark = hashes.mark();
        let has_seen = bucket.contains(&mark);
        if !has_seen {
            put_first(bucket, mark);
        }
        has_seen
    }
}

/// The index of the entry at `place`, counted from the newest.
fn dynamic_index(place: usize) -> u32 {
    fixed::LEN + 1 + crate::octets::narrow(place)
}

/// Writes a literal behind `pattern`, with the name only if it has no index.
fn literal(name_index: u32, bits: u32, pattern: u8, name: &[u8], value: &[u8], out: &mut Buffer) {
    integer::encode(name_index, bits, pattern, out);
    if name_index == 0 {
        string(name, out);
    }
    string(value, out);
}

/// Writes a string, in the Huffman code where that is shorter.
fn string(bytes: &[u8], out: &mut Buffer) {
    let coded_len = huffman::encoded_len(bytes);
    if coded_len < bytes.len() {
        integer::encode(crate::octets::narrow(coded_len), 7, 0x80, out);
        huffman::encode(bytes, out);
    } else {
        integer::encode(crate::octets::narrow(bytes.len()), 7, 0x00, out);
        out.push(bytes);
    }
}

/// Finds entries.
///
/// Each hash has a place for the last few that share it. Nothing hangs on what is forgotten: a
/// field that is not found is written out, and what is found is compared.
#[derive(Clone, Debug)]
struct Index {
    pairs: [[u16; WAYS]; PAIRS],
    names: [[u16; WAYS]; NAMES],
}

/// How many are remembered of those that share a hash.
const WAYS: usize = 4;
const PAIRS: usize = 64;
const NAMES: usize = 32;
const SEEN: usize = 64;

impl Default for Index {
    fn default() -> Self {
        Self { pairs: [[0; WAYS]; PAIRS], names: [[0; WAYS]; NAMES] }
    }
}

impl Index {
    /// An index over the entries of `table`, the newest of which was the one before `entered`.
    fn over(table: &Table, entered: u16) -> Box<Self> {
        let mut this = Box::<Self>::default();
        let len = u16::try_from(table.len()).unwrap_or(u16::MAX);
        for (n, line) in (0..len).zip(table.iter()) {
            let number = entered.wrapping_sub(len).wrapping_add(n);
            this.on_entered(&Hashes::new(line.name(), line.value()), number);
        }
        this
    }

    fn on_entered(&mut self, hashes: &Hashes, number: u16) {
        let pairs = self.pairs.get_mut(slot(hashes.pair, PAIRS));
        let names = self.names.get_mut(slot(hashes.name, NAMES));
        for bucket in [pairs, names].into_iter().flatten() {
            put_first(bucket, number);
        }
    }
}

/// Puts one in front, for which the last has to go.
fn put_first(bucket: &mut [u16; WAYS], first: u16) {
    let [a, b, c, _] = *bucket;
    *bucket = [first, a, b, c];
}

/// Where the entry of this number is, counted from the newest.
fn place(number: u16, entered: u16) -> usize {
    usize::from(entered.wrapping_sub(1).wrapping_sub(number))
}

/// Hashes of a name, and of a name with its value. Collisions only make blocks longer.
struct Hashes {
    name: u64,
    pair: u64,
}

impl Hashes {
    fn new(name: &[u8], value: &[u8]) -> Self {
        let name = mixed(name, 0);
        Self { name, pair: mixed(value, name) }
    }

    /// Never that of an empty slot.
    #[expect(clippy::cast_possible_truncation, reason = "some of its bits are enough")]
    fn mark(&self) -> u16 {
        (self.pair >> 16) as u16 | 1
    }
}

/// The place of a hash among `count`, which is a power of two: by its highest bits, the best.
#[expect(clippy::cast_possible_truncation, reason = "a few bits are left")]
fn slot(hash: u64, count: usize) -> usize {
    (hash >> (u64::BITS - count.trailing_zeros())) as usize
}

fn mixed(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut hash = fold(seed, bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        hash = fold(hash, chunk.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    }
    let tail = chunks.remainder().iter().fold(0, |word, &octet| word << 8 | u64::from(octet));
    fold(hash, tail).wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::*;

    fn block(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Buffer::new(64 << 10);
        encoder.begin(&mut out);
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), Secrecy::Open, &mut out);
        }
        out.filled().to_vec()
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
        let mut literal = Vec::new();
        let mut fields = decoder.fields(block);
        let mut all = Vec::new();
        while let Some(line) = fields.next(&mut literal) {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            all.push((text(line.name()), text(line.value())));
        }
        fields.end().expect("a valid block");
        all
    }

    #[test]
    fn what_comes_again_is_entered_and_then_takes_one_octet() {
        let mut encoder = Encoder::new(4096);
        let fields = [("x-a", "1"), ("x-a", "some other value")];
        let first = block(&mut encoder, &fields);
        assert_eq!(first[..7], *b"\x00\x03x-a\x011");
        assert_eq!(encoder.table.len(), 0);
        let second = block(&mut encoder, &fields);
        assert_eq!(second[..7], *b"\x40\x03x-a\x011");
        assert_eq!(second[7..9], [0x7e, 0x80 | 12], "the name by its index");
        assert_eq!(block(&mut encoder, &fields), [0xbf, 0xbe]);
        let new = block(&mut encoder, &[("x-a", "2")]);
        assert_eq!(new, b"\x0f\x2f\x012");
    }

    #[test]
    fn what_is_in_the_static_table_is_not_written_out() {
        let mut encoder = Encoder::new(4096);
        assert_eq!(block(&mut encoder, &[("accept-encoding", "gzip, deflate")]), [0x90]);
        assert_eq!(block(&mut encoder, &[("accept", "*")]), b"\x0f\x04\x01*");
        assert_eq!(block(&mut encoder, &[("age", "")]), [0x80 | 21]);
        let mut out = Buffer::new(64);
        for value in ["GET", "POST", "PUT"] {
            encoder.method(value.as_bytes(), &mut out);
        }
        encoder.status(b"200", &mut out);
        encoder.path(b"/", Secrecy::Open, &mut out);
        encoder.scheme(b"https", &mut out);
        assert_eq!(out.filled(), b"\x82\x83\x02\x03PUT\x88\x84\x87");
    }

    #[test]
    fn secrets_are_never_entered() {
        let mut encoder = Encoder::new(4096);
        let long = "a=0123456789abcdef; b=0123456789abcdef";
        let fields =
            [("authorization", "Basic YWxhZGRpbg=="), ("cookie", "a=1"), ("set-cookie", "a=1")];
        for _ in 0..5 {
            let bytes = block(&mut encoder, &fields);
            assert_eq!(bytes[..2], [0x1f, 8]);
            let mut out = Buffer::new(64);
            encoder.field(b"x-a", b"1", Secrecy::Secret, &mut out);
            assert_eq!(out.filled(), b"\x10\x03x-a\x011");
            assert_eq!(encoder.table.len(), 0);
        }
        block(&mut encoder, &[("cookie", long)]);
        block(&mut encoder, &[("cookie", long)]);
        assert_eq!(encoder.table.len(), 1, "a long one cannot be guessed");
    }

    #[test]
    fn a_change_of_size_is_said_first() {
        let mut encoder = Encoder::new(4096);
        assert_eq!(block(&mut encoder, &[]), b"");
        encoder.set_size_allowed(65_536);
        assert_eq!(block(&mut encoder, &[]), b"", "more than is used");
        encoder.set_size_allowed(100);
        encoder.set_size_allowed(30);
        encoder.set_size_allowed(4096);
        assert_eq!(block(&mut encoder, &[]), b"\x3e\x3f\xe1\x1f");
        encoder.set_size_allowed(0);
        assert_eq!(block(&mut encoder, &[]), b"\x20");
        assert_eq!(block(&mut encoder, &[]), b"");
        let mut small = Encoder::new(64);
        assert_eq!(block(&mut small, &[]), b"\x3f\x21");
    }

    #[test]
    fn whatever_is_written_is_read_again() {
        let mut encoder = Encoder::new(4096);
        let mut decoder = Decoder::new(4096);
        for round in 0..400u32 {
            if round % 50 == 49 {
                let size = round * 37 % 5000;
                encoder.set_size_allowed(size);
                decoder.set_size_allowed(size);
            }
            if round % 70 == 69 {
                let bytes = postcard::to_stdvec(&encoder).unwrap();
                encoder = postcard::from_bytes(&bytes).unwrap();
            }
            let n = round * 7 % 23;
            let fields = [
                ("x-request-id", format!("{:x}", round.wrapping_mul(0x9e37_79b9))),
                ("user-agent", "an agent/1.0".to_owned()),
                ("x-few", format!("{n}")),
                ("x-long", format!("{}", n * 1_000_003).repeat(40 + n as usize * 9)),
                ("referer", format!("https://example.com/{}", round / 3)),
            ];
            let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
            let bytes = block(&mut encoder, &fields);
            let expected = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(decoded(&mut decoder, &bytes), expected);
            if round == 30 {
                // The agent is an index by now; the table is kept by a save.
                assert!(bytes.len() < 1 + 9 + fields.iter().map(|(_, v)| v.len()).sum::<usize>());
            }
        }
    }

    #[test]
    fn the_fields_of_a_usual_connection_all_find_their_place() {
        let mut encoder = Encoder::new(4096);
        let names: Vec<String> = (0..40).map(|n| format!("x-name-{n}")).collect();
        let fields: Vec<(&str, &str)> = names.iter().map(|name| (&name[..], "value")).collect();
        let lens: Vec<usize> = (0..4).map(|_| block(&mut encoder, &fields).len()).collect();
        assert_eq!(lens[3], fields.len(), "an octet for each: {lens:?}");
    }

    #[test]
    fn a_saved_encoder_knows_its_entries() {
        let mut encoder = Encoder::new(4096);
        for _ in 0..2 {
            block(&mut encoder, &[("x-a", "1"), ("x-b", "2"), ("x-c", "3")]);
        }
        let bytes = postcard::to_stdvec(&encoder).unwrap();
        let mut encoder: Encoder = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(block(&mut encoder, &[("x-c", "3"), ("x-a", "1")]), [0xbe, 0xc0]);
        assert_eq!(block(&mut encoder, &[("x-b", "9")])[..2], [0x0f, 0x30], "names too");
    }

    #[test]
    fn an_encoder_that_repeats_nothing_owns_no_table() {
        let mut encoder = Encoder::new(4096);
        for n in 0..100 {
            block(&mut encoder, &[("x-request-id", &n.to_string())]);
        }
        assert_eq!(encoder.table.len(), 0);
    }
}
