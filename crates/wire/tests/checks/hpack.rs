//! Properties of header blocks, for any bytes.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the property
//! tests: another decoder reads the same, block after block, and what was read and is written is
//! read again as the same, by either.

use wire::buffer::Buffer;
use wire::h2::hpack::{Decoder, Encoder, HpackError, Secrecy};

/// Names and values, in order.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Checks everything on `data`, as blocks that each have an octet with their length in front.
pub(crate) fn check(data: &[u8]) {
    let mut ours = Decoder::new(4096);
    let mut theirs = loona_hpack::Decoder::new();
    theirs.set_max_allowed_table_size(4096);
    let mut encoder = Encoder::new(4096);
    let (mut back, mut theirs_back) = (Decoder::new(4096), loona_hpack::Decoder::new());
    let mut rest = data;
    while let Some((&len, behind)) = rest.split_first() {
        let (block, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        ours = saved(&ours);
        let read = decoded(&mut ours, block);
        let other = theirs.decode(block);
        let fields = match (read, other) {
            (Ok(fields), Ok(other)) => {
                let other: Fields = other.into_iter().map(trimmed).collect();
                assert_eq!(fields, other, "{}", block.escape_ascii());
                fields
            }
            // Theirs has no opinion on where in a block the table's size may change, and another
            // one on a change without fields behind it.
            (Err(HpackError::SizeUpdateMisplaced), Ok(_)) => return,
            (Ok(fields), Err(loona_hpack::decoder::DecoderError::SizeUpdateAtEnd)) => fields,
            // Integers of more octets than needed are refused earlier here.
            (Err(HpackError::IntegerTooLarge), _) => return,
            (Err(_), Err(_)) => return,
            (ours, theirs) => unreachable!("{ours:?} {theirs:?}: {}", block.escape_ascii()),
        };
        encoder = saved(&encoder);
        let bytes = encoded(&mut encoder, &fields);
        let again = decoded(&mut back, &bytes).expect("what was written can be read");
        assert_eq!(again, fields);
        assert_eq!(theirs_back.decode(&bytes).expect("by others too"), fields);
    }
}

/// White space around the value of a field, other than a pseudo field, is none of it. Theirs leaves
/// it, and counts it in the table, as ours has to.
pub(crate) fn trimmed((name, mut value): (Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    let is_name = |octet: &u8| {
        octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(octet)
    };
    let is_blank = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    if !name.is_empty() && name.iter().all(is_name) {
        while is_blank(value.last()) {
            value.pop();
        }
        while is_blank(value.first()) {
            value.remove(0);
        }
    }
    (name, value)
}

pub(crate) fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut literal = Vec::new();
    let mut fields = decoder.fields(block);
    let mut all = Vec::new();
    while let Some(line) = fields.next(&mut literal) {
        all.push((line.name().to_vec(), line.value().to_vec()));
    }
    fields.end().map(|()| all)
}

pub(crate) fn encoded(encoder: &mut Encoder, fields: &Fields) -> Vec<u8> {
    let room: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 12).sum();
    let mut out = Buffer::new(room + 12);
    encoder.begin(&mut out);
    for (name, value) in fields {
        encoder.field(name, value, Secrecy::Open, &mut out);
    }
    out.filled().to_vec()
}

fn saved<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let bytes = postcard::to_stdvec(value).expect("it can be written down");
    postcard::from_bytes(&bytes).expect("it can be read back")
}
