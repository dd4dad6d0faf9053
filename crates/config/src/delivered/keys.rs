//! Private keys, and keys of tickets, in the text of a secret, kept from what reads it: the parser, the tree and the types copy what they read
//! and wipe nothing.
//!
//! The characters of a key are replaced before the text is parsed, each by one character, so that places stay what they
//! are. The first eight tell which key it is: whatever the parser makes of the text, a scalar with a key in it can be
//! filled again. Characters that an escape stands for (`\n`, `\u003d`) are left as they are.

use std::ops::Range;

use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";

/// How many characters tell which key it is. A shorter one is none.
const NUMBER_LEN: usize = 8;

/// Stands for the characters behind these.
const MASK: char = '.';

/// A text without the characters of its private keys.
pub(super) struct Masked<'t> {
    original: &'t str,
    /// Where keys stand in it.
    keys: Vec<Range<usize>>,
    pub(super) text: String,
}

impl<'t> Masked<'t> {
    pub(super) fn new(original: &'t str) -> Self {
        let keys: Vec<_> =
            keys(original).filter(|it| masked(original, it).count() >= NUMBER_LEN).collect();
        let mut text = String::with_capacity(original.len());
        let mut end = 0;
        for (number, key) in keys.iter().enumerate() {
            text.push_str(original.get(end..key.start).unwrap_or_default());
            let number = format!("{number:0NUMBER_LEN$}");
            let mut mask = number.chars().chain(std::iter::repeat(MASK));
            for (char, is_masked) in chars(original, key) {
                text.push(if is_masked { mask.next().unwrap_or(MASK) } else { char });
            }
            end = key.end;
        }
        text.push_str(original.get(end..).unwrap_or_default());
        Self { original, keys, text }
    }

    /// Whether there is a key in it.
    pub(super) const fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// What a scalar of the masked text is in the original.
    pub(super) fn fill(&self, scalar: &str) -> Zeroizing<Vec<u8>> {
        // A character for each: it does not grow, and so is not copied.
        let mut filled = Zeroizing::new(Vec::with_capacity(scalar.len()));
        let mut end = 0;
        for body in keys(scalar) {
            filled.extend_from_slice(scalar.get(end..body.start).unwrap_or_default().as_bytes());
            end = body.end;
            let body = scalar.get(body).unwrap_or_default();
            let is_number = |char: &char| char.is_ascii_digit();
            let number: String = body.chars().filter(is_number).take(NUMBER_LEN).collect();
            let key = number.parse().ok().and_then(|number: usize| self.keys.get(number));
            let mut original = key.into_iter().flat_map(|key| masked(self.original, key));
            let mut left = NUMBER_LEN;
            for char in body.chars() {
                let is_of_number = left > 0 && is_number(&char);
                left -= usize::from(is_of_number);
                let stands_in = is_of_number || char == MASK;
                let char = stands_in.then(|| original.next()).flatten().unwrap_or(char);
                filled.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        filled.extend_from_slice(scalar.get(end..).unwrap_or_default().as_bytes());
        filled
    }
}

/// Where the private keys of a text stand, without the lines around them.
fn keys(text: &str) -> impl Iterator<Item = Range<usize>> {
    let begins = text.match_indices(BEGIN);
    begins.filter_map(|(begin, _)| {
        let rest = text.get(begin + BEGIN.len()..)?;
        let label = rest.split_once(DASHES)?.0;
        let start = begin + BEGIN.len() + label.len() + DASHES.len();
        let len = text.get(start..)?.find(DASHES).unwrap_or(text.len() - start);
        let is_key = label.contains("PRIVATE KEY") || label.contains("TICKET KEY");
        (is_key && !label.contains('\n')).then_some(start..start + len)
    })
}

/// The characters of a range, with whether they are to be masked.
fn chars(text: &str, range: &Range<usize>) -> impl Iterator<Item = (char, bool)> {
    // Of an escape: whether its second character comes, and how many come behind that.
    let (mut is_kind, mut digits) = (false, 0);
    text.get(range.clone()).unwrap_or_default().chars().map(move |char| {
        let is_escape = is_kind || digits > 0 || char == '\\';
        if is_kind {
            digits = if char == 'u' { 4 } else { 0 };
            is_kind = false;
        } else if digits > 0 {
            digits -= 1;
        } else {
            is_kind = char == '\\';
        }
        let is_data = char.is_ascii_alphanumeric() || matches!(char, '+' | '/' | '=' | MASK);
        (char, is_data && !is_escape)
    })
}

/// The characters of a range that are masked.
fn masked(text: &str, range: &Range<usize>) -> impl Iterator<Item = char> {
    chars(text, range).filter_map(|(char, is_masked)| is_masked.then_some(char))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ+F/A==\nBCDE\n-----END PRIVATE KEY-----\n";

    #[test]
    fn no_character_of_a_key_is_left_and_what_was_masked_is_filled_again() {
        let certificate = KEY.replace("PRIVATE KEY", "CERTIFICATE");
        let both = format!("{certificate}{KEY}{}", KEY.replace("MII", "NII"));
        let tickets = KEY.replace("PRIVATE KEY", "TICKET KEY");
        for text in
            [KEY, &tickets, &both, "", "-----BEGIN", "-----BEGIN PRIVATE KEY-----", &certificate]
        {
            let masked = Masked::new(text);
            assert_eq!(masked.text.len(), text.len());
            assert!(!masked.text.replace(&certificate, "").contains("MII"), "{}", masked.text);
            assert!(!masked.text.contains("BCDE\n-----END PRIVATE"), "{}", masked.text);
            assert_eq!(std::str::from_utf8(&masked.fill(&masked.text)), Ok(text));
        }
        // Of two, each may stand anywhere.
        let second = KEY.replace("MII", "NII");
        let text = format!("# {KEY}\nkey: {second}");
        let masked = Masked::new(&text);
        let scalar = masked.text.split_once("key: ").unwrap().1;
        assert_eq!(*masked.fill(scalar), second.as_bytes());
    }

    #[test]
    fn what_an_escape_stands_for_is_no_part_of_the_mask() {
        let text = KEY.replace('\n', "\\n").replace('=', "\\u003d").replace('/', "\\/");
        let masked = Masked::new(&text);
        let json: String = serde_json::from_str(&format!("\"{}\"", masked.text)).unwrap();
        assert!(!json.contains("MII") && json.contains("/.==\n....\n-----END"), "{json}");
        assert_eq!(*masked.fill(&json), KEY.as_bytes());
    }

    #[test]
    fn a_text_that_claims_a_key_that_is_not_there_is_left_as_it_is() {
        let masked = Masked::new("x");
        let claim = "-----BEGIN PRIVATE KEY-----00000007....-----END PRIVATE KEY-----";
        assert_eq!(*masked.fill(claim), claim.as_bytes());
    }
}
