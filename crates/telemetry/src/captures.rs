//! Header fields that the access log asks for, on their way from a head to a line.
//!
//! ```text
//! u32 digest of the names | for each name, request's first: u8 side and whether it was there, u16 length, bytes
//! ```
//!
//! Numbers are little-endian. The digest says which list of names the values are of: a line whose format asks for
//! others, after a reload, has none of them. Values are cut, and what does not fit is left out, so a list of any
//! length stays within its bound.

/// Bytes kept of all captured fields of an exchange.
pub const CAPTURES_BYTES_MAX: usize = 2048;

/// Bytes kept of one field's value.
pub const CAPTURE_BYTES_MAX: usize = 256;

/// Bytes of the digest.
const DIGEST_BYTES: usize = 4;

/// Bytes before a value.
const PREFIX_BYTES: usize = 3;

/// Writes the digest of a list of names. `put` takes the bytes in order.
pub fn begin(digest: u32, put: &mut impl FnMut(&[u8])) {
    put(&digest.to_le_bytes());
}

/// Writes the value of one field, or that it was not there. `length` is that of what was written so far, for this
/// exchange.
pub fn push(value: Option<&[u8]>, length: usize, put: &mut impl FnMut(&[u8])) {
    let room = CAPTURES_BYTES_MAX.saturating_sub(length);
    let Some(room) = room.checked_sub(PREFIX_BYTES) else { return };
    let kept = value.unwrap_or_default();
    let kept = kept.get(..kept.len().min(CAPTURE_BYTES_MAX).min(room)).unwrap_or_default();
    let bytes = u16::try_from(kept.len()).unwrap_or(0).to_le_bytes();
    let [low, high] = bytes;
    put(&[u8::from(value.is_some()), low, high]);
    put(kept);
}

/// The value of the field at `place` of the list that `digest` is of.
pub(crate) fn value(captures: &[u8], digest: u32, place: usize) -> Option<&[u8]> {
    let (found, mut rest) = captures.split_first_chunk::<DIGEST_BYTES>()?;
    if u32::from_le_bytes(*found) != digest {
        return None;
    }
    for _ in 0..place {
        let (_, behind) = next(rest)?;
        rest = behind;
    }
    next(rest)?.0
}

fn next(rest: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (&[is_there, low, high], rest) = rest.split_first_chunk::<PREFIX_BYTES>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
    Some(((is_there != 0).then_some(value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut out = Vec::new();
        begin(7, &mut |bytes| out.extend_from_slice(bytes));
        for value in values {
            let length = out.len();
            push(*value, length, &mut |bytes| out.extend_from_slice(bytes));
        }
        out
    }

    #[test]
    fn values_are_found_by_their_place_in_the_list_that_they_are_of() {
        let out = written(&[Some(b"a"), None, Some(b""), Some(b"dd")]);
        let found = |place| value(&out, 7, place);
        assert_eq!(found(0), Some(&b"a"[..]));
        assert_eq!(found(1), None);
        assert_eq!(found(2), Some(&b""[..]));
        assert_eq!(found(3), Some(&b"dd"[..]));
        assert_eq!(found(4), None);
        assert_eq!(value(&out, 8, 0), None, "of another list");
        assert_eq!(value(&[], 7, 0), None);
        for cut in 0..out.len() {
            for place in 0..5 {
                let _ = value(&out[..cut], 7, place);
            }
        }
    }

    #[test]
    fn values_are_cut_and_stay_within_the_bound_in_all() {
        let long = vec![b'x'; 10_000];
        let out = written(&[Some(&long[..]); 20]);
        assert!(out.len() <= CAPTURES_BYTES_MAX, "{}", out.len());
        assert_eq!(value(&out, 7, 0).unwrap().len(), CAPTURE_BYTES_MAX);
        assert_eq!(value(&out, 7, 19), None);
    }
}
