//! Header blocks ⇒ fields (RFC 7541, section 3).

use serde::{Deserialize, Serialize};

use super::table::Table;
use super::{COLON, HpackError, LINE_END, Line, Name, Secrecy, fixed, huffman, integer};

/// The receiving side of one connection's compression.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decoder {
    table: Table,
    /// The largest table that the peer may ask for.
    size_allowed: u32,
    /// Whether the next block has to say that the table has shrunk.
    is_update_due: bool,
}

impl Decoder {
    /// A decoder for a peer that may use tables of up to `size_allowed`, and begins with one of
    /// [`TABLE_BYTES_DEFAULT`](super::TABLE_BYTES_DEFAULT).
    #[must_use]
    pub fn new(size_allowed: u32) -> Self {
        let table = Table::new(super::TABLE_BYTES_DEFAULT);
        Self { table, size_allowed, is_update_due: false }
    }

    /// Changes what the peer may use, from its next block on (RFC 7541, section 4.2).
    pub fn set_size_allowed(&mut self, size_allowed: u32) {
        self.size_allowed = size_allowed;
        self.is_update_due |= self.table.size_max() > size_allowed;
    }

    /// The table's size at present: no honest block says more than this and what it is long.
    pub(crate) fn table_size_max(&self) -> u32 {
        self.table.size_max()
    }

    /// Reads a whole header block.
    ///
    /// The block has to be read to its end, even if its fields are not used: the next block depends
    /// on it.
    pub fn fields<'d, 'b>(&'d mut self, block: &'b [u8]) -> Fields<'d, 'b> {
        Fields { decoder: self, rest: block, has_begun: false, error: None }
    }

    #[inline]
    fn line(&self, index: u32) -> Option<Line<'_>> {
        match index.checked_sub(fixed::LEN + 1) {
            None => fixed::line(index),
            Some(place) => self.table.line(place as usize),
        }
    }

    #[inline]
    fn has_line(&self, index: u32) -> bool {
        index > 0 && index as usize <= fixed::LEN as usize + self.table.len()
    }
}

/// The fields of one block, in order, and at last whether that was all.
#[derive(Debug)]
pub struct Fields<'d, 'b> {
    decoder: &'d mut Decoder,
    rest: &'b [u8],
    has_begun: bool,
    error: Option<HpackError>,
}

/// Where a field was found.
enum Place {
    Nowhere,
    Table(u32),
    Literal { name_len: usize, name: Name, is_value_valid: bool, secrecy: Secrecy },
}

impl Fields<'_, '_> {
    /// The next field, or `None` at the end, about which [`Fields::end`] has more to say.
    /// `literal` holds one that is in no table.
    #[inline(always)]
    pub fn next<'l>(&'l mut self, literal: &'l mut Vec<u8>) -> Option<Line<'l>> {
        // Most fields of most blocks are an octet that says which they are. In place, and without
        // a result around it that has to be unwrapped, such a field costs half as much
        // (`benches/h2.rs`, `request_decode`).
        if let &[first @ 0x80..=0xfe, ref rest @ ..] = self.rest
            && self.has_begun
            && self.decoder.has_line(u32::from(first & 0x7f))
        {
            self.rest = rest;
            return self.decoder.line(u32::from(first & 0x7f));
        }
        self.next_of_any_kind(literal)
    }

    /// Whether the block was read to its end.
    ///
    /// # Errors
    ///
    /// When it cannot be decoded, and so none after it.
    pub fn end(self) -> Result<(), HpackError> {
        debug_assert!(self.rest.is_empty(), "a block is read to its end");
        self.error.map_or(Ok(()), Err)
    }

    #[inline(never)]
    fn next_of_any_kind<'l>(&'l mut self, literal: &'l mut Vec<u8>) -> Option<Line<'l>> {
        match self.read(literal) {
            Ok(Place::Nowhere) => None,
            Ok(Place::Table(index)) => self.decoder.line(index),
            Ok(Place::Literal { name_len, name, is_value_valid, secrecy }) => {
                Some(Line { bytes: literal, name_len, name, is_value_valid, secrecy })
            }
            Err(error) => {
                self.error = Some(error);
                self.rest = b"";
                None
            }
        }
    }

    fn read(&mut self, literal: &mut Vec<u8>) -> Result<Place, HpackError> {
        loop {
            let Some(&first) = self.rest.first() else { return Ok(Place::Nowhere) };
            if first & 0xe0 == 0x20 {
                self.on_size_update()?;
                continue;
            }
            if !self.has_begun {
                self.begin()?;
            }
            if first & 0x80 == 0 {
                return self.literal(first, literal);
            }
            let index = integer::decode(&mut self.rest, 7)?;
            let has_line = self.decoder.has_line(index);
            return if has_line { Ok(Place::Table(index)) } else { Err(HpackError::IndexInvalid) };
        }
    }

    fn begin(&mut self) -> Result<(), HpackError> {
        self.has_begun = true;
        if self.decoder.is_update_due { Err(HpackError::SizeUpdateMissing) } else { Ok(()) }
    }

    /// RFC 7541, section 6.3.
    fn on_size_update(&mut self) -> Result<(), HpackError> {
        if self.has_begun {
            return Err(HpackError::SizeUpdateMisplaced);
        }
        let size = integer::decode(&mut self.rest, 5)?;
        if size > self.decoder.size_allowed {
            return Err(HpackError::SizeUpdateTooLarge);
        }
        self.decoder.is_update_due = false;
        self.decoder.table.resize(size);
        Ok(())
    }

    /// RFC 7541, section 6.2.
    fn literal(&mut self, first: u8, line: &mut Vec<u8>) -> Result<Place, HpackError> {
        let is_indexed = first & 0x40 != 0;
        let index = integer::decode(&mut self.rest, if is_indexed { 6 } else { 4 })?;
        line.clear();
        let kind = if index == 0 {
            string(&mut self.rest, line)?;
            Name::new(line)
        } else {
            let named = self.decoder.line(index).ok_or(HpackError::IndexInvalid)?;
            line.extend_from_slice(named.name());
            named.name
        };
        let name_len = line.len();
        line.extend_from_slice(COLON);
        string(&mut self.rest, line)?;
        let blanks = match kind {
            Name::Field(_) => trim(line, name_len + COLON.len()),
            Name::Pseudo(_) | Name::Invalid => 0,
        };
        let (name, value) = line.split_at_checked(name_len).unwrap_or_default();
        let value = value.get(COLON.len()..).unwrap_or_default();
        let is_value_valid = super::is_value(value);
        if is_indexed {
            let table = &mut self.decoder.table;
            table.insert_trimmed(name, value, blanks, kind, is_value_valid);
        }
        line.extend_from_slice(LINE_END);
        let is_secret = first & 0xf0 == 0x10;
        let secrecy = if is_secret { Secrecy::Secret } else { Secrecy::Open };
        Ok(Place::Literal { name_len, name: kind, is_value_valid, secrecy })
    }
}

/// Takes white space from both ends of the value that begins at `start`, and says how much it was.
///
/// RFC 9113, section 8.2.1, calls such a field malformed; but its value cannot be read in two ways
/// (RFC 9110, section 5.5, and every reader of HTTP/1), and clients and services send it.
fn trim(line: &mut Vec<u8>, start: usize) -> u32 {
    let is_blank = |octet: &u8| matches!(octet, b' ' | b'\t');
    let len = line.len();
    let value = line.get(start..).unwrap_or_default();
    let behind = value.iter().rev().take_while(|octet| is_blank(octet)).count();
    line.truncate(len - behind);
    let value = line.get(start..).unwrap_or_default();
    let before = value.iter().take_while(|octet| is_blank(octet)).count();
    if before > 0 {
        line.drain(start..start + before);
    }
    crate::octets::narrow(before + behind)
}

/// Reads a string (RFC 7541, section 5.2) and appends it to `out`.
fn string(input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_coded = input.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::decode(input, 7)? as usize;
    let (string, rest) = input.split_at_checked(len).ok_or(HpackError::Truncated)?;
    *input = rest;
    if is_coded {
        huffman::decode(string, out)
    } else {
        out.extend_from_slice(string);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
        let mut literal = Vec::new();
        let mut fields = decoder.fields(block);
        let mut all = Vec::new();
        while let Some(line) = fields.next(&mut literal) {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(line.bytes, [line.name(), COLON, line.value(), LINE_END].concat());
            all.push((text(line.name()), text(line.value())));
        }
        fields.end().map(|()| all)
    }

    /// Decodes one block after the other and compares with `name: value` lines.
    #[track_caller]
    fn check(size: u32, blocks: &[(&str, &[&str])], entries_left: usize) {
        let mut decoder = Decoder::new(4096);
        if size != 4096 {
            decoder.set_size_allowed(size);
            decoder.table.resize(size);
            decoder.is_update_due = false;
        }
        for (hex, expected) in blocks {
            let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
            let block: Vec<u8> = digits
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect();
            let fields = decoded(&mut decoder, &block).unwrap();
            let lines: Vec<String> = fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
            assert_eq!(lines, *expected);
            let bytes = postcard::to_stdvec(&decoder).unwrap();
            decoder = postcard::from_bytes(&bytes).unwrap();
        }
        assert_eq!(decoder.table.len(), entries_left);
    }

    #[test]
    fn white_space_around_a_value_is_trimmed_and_counted() {
        for (value, expected) in [
            (" v", "v"),
            ("v ", "v"),
            ("\t v\tw \t", "v\tw"),
            (" ", ""),
            ("\t \t", ""),
            ("", ""),
            ("v", "v"),
        ] {
            let mut decoder = Decoder::new(4096);
            let mut block = vec![0x40, 1, b'n', u8::try_from(value.len()).unwrap()];
            block.extend(value.as_bytes());
            let expected = Ok(vec![("n".to_owned(), expected.to_owned())]);
            assert_eq!(decoded(&mut decoder, &block), expected, "{value:?}");
            assert_eq!(decoded(&mut decoder, &[0xbe]), expected, "from the table: {value:?}");
            let size = u32::try_from(33 + value.len()).unwrap();
            decoder.table.resize(size);
            assert_eq!(decoder.table.len(), 1, "{value:?}");
            decoder.table.resize(size - 1);
            assert_eq!(decoder.table.len(), 0, "{value:?}");
        }
        // A pseudo field has no white space that is none of it.
        for name in [":path", ":authority", "X-A"] {
            let mut block = vec![0x40, u8::try_from(name.len()).unwrap()];
            block.extend(name.as_bytes());
            block.extend([2, b'/', b' ']);
            let mut decoder = Decoder::new(4096);
            let (mut literal, mut fields) = (Vec::new(), decoder.fields(&block));
            assert!(fields.next(&mut literal).is_some_and(|line| !line.is_value_valid));
        }
    }

    #[test]
    fn the_representations_of_the_rfc_are_understood() {
        // RFC 7541, appendix C.2.
        check(
            4096,
            &[(
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &["custom-key: custom-header"],
            )],
            1,
        );
        check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"])], 0);
        check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"])], 0);
        check(4096, &[("82", &[":method: GET"])], 0);
    }

    #[test]
    fn the_requests_of_the_rfc_are_understood() {
        let first: &[&str] =
            &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
        let second: &[&str] = &[
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
            "cache-control: no-cache",
        ];
        let third: &[&str] = &[
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ];
        // RFC 7541, appendix C.3, and C.4 in the Huffman code.
        check(
            4096,
            &[
                ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", first),
                ("8286 84be 5808 6e6f 2d63 6163 6865", second),
                ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", third),
            ],
            3,
        );
        check(
            4096,
            &[
                ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", first),
                ("8286 84be 5886 a8eb 1064 9cbf", second),
                ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", third),
            ],
            3,
        );
    }

    #[test]
    fn the_responses_of_the_rfc_are_understood() {
        let first: &[&str] = &[
            ":status: 302",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ];
        let second: &[&str] = &[
            ":status: 307",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ];
        let third: &[&str] = &[
            ":status: 200",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:22 GMT",
            "location: https://www.example.com",
            "content-encoding: gzip",
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ];
        // RFC 7541, appendix C.5, and C.6 in the Huffman code; entries are evicted.
        check(
            256,
            &[
                (
                    "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 \
                     3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 \
                     7861 6d70 6c65 2e63 6f6d",
                    first,
                ),
                ("4803 3330 37c1 c0bf", second),
                (
                    "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 \
                     474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 \
                     454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 \
                     6572 7369 6f6e 3d31",
                    third,
                ),
            ],
            3,
        );
        check(
            256,
            &[
                (
                    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 \
                     82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                    first,
                ),
                ("4883 640e ffc1 c0bf", second),
                (
                    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b \
                     d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 \
                     0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                    third,
                ),
            ],
            3,
        );
    }

    #[test]
    fn what_is_wrong_has_a_name() {
        for (block, error) in [
            (&b"\x80"[..], HpackError::IndexInvalid),
            (b"\xbe", HpackError::IndexInvalid),
            (b"\x7f\x00", HpackError::IndexInvalid),
            (b"\x0f\x60\x00", HpackError::IndexInvalid),
            (b"\xff\xff\xff\xff\xff\xff", HpackError::IntegerTooLarge),
            (b"\xff", HpackError::Truncated),
            (b"\x00", HpackError::Truncated),
            (b"\x00\x01", HpackError::Truncated),
            (b"\x00\x01a", HpackError::Truncated),
            (b"\x00\x01a\x02b", HpackError::Truncated),
            (b"\x00\x01a\x81\xff", HpackError::HuffmanInvalid),
            (b"\x3f\xe2\x1f", HpackError::SizeUpdateTooLarge),
            (b"\x82\x20", HpackError::SizeUpdateMisplaced),
        ] {
            let mut decoder = Decoder::new(4096);
            assert_eq!(decoded(&mut decoder, block), Err(error), "{block:x?}");
        }
    }

    #[test]
    fn a_smaller_table_has_to_be_agreed_to() {
        let mut decoder = Decoder::new(4096);
        decoder.set_size_allowed(100);
        assert_eq!(decoded(&mut decoder.clone(), b"\x82"), Err(HpackError::SizeUpdateMissing));
        // To 0 and to 69.
        assert_eq!(decoded(&mut decoder, b"\x20\x3f\x26\x82").unwrap().len(), 1);
        assert_eq!(decoder.table.size_max(), 69);
        assert_eq!(decoded(&mut decoder, b"\x3f\x46"), Err(HpackError::SizeUpdateTooLarge));
        // A larger one need not be used.
        let mut decoder = Decoder::new(4096);
        decoder.set_size_allowed(8192);
        assert_eq!(decoded(&mut decoder, b"\x82").unwrap().len(), 1);
        assert_eq!(decoder.table.size_max(), 4096);
        assert!(decoded(&mut decoder, b"\x3f\xe1\x3f").is_ok());
        assert_eq!(decoder.table.size_max(), 8192);
    }

    #[test]
    fn a_name_may_be_that_of_the_entry_which_it_evicts() {
        let mut decoder = Decoder::new(4096);
        // A table of 40: one entry, "abc: d", then its name with another value.
        let block = b"\x3f\x09\x40\x03abc\x01d\x7e\x01e\xbe";
        let fields = decoded(&mut decoder, block).unwrap();
        let expected = [("abc", "d"), ("abc", "e"), ("abc", "e")];
        assert_eq!(fields, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn secrets_are_known_as_such() {
        let mut decoder = Decoder::new(4096);
        let mut literal = Vec::new();
        let mut fields = decoder.fields(b"\x10\x01a\x01b\x00\x01a\x01b\x40\x01a\x01b\x1f\x2f\x01b");
        let mut secrets = Vec::new();
        while let Some(line) = fields.next(&mut literal) {
            secrets.push(line.secrecy() == Secrecy::Secret);
        }
        assert_eq!(secrets, [true, false, false, true]);
    }
}
