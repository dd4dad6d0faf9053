//! What holds for values of any text and facts of any octets: an edited head has the fields that were meant, and no others.

use std::collections::BTreeMap;

use config::edits::operators::{Fact, KEPT_BYTES_MAX, OperatorFacts};
use config::edits::{Editor, Edits, EditsKey, Side};
use wire::h1::{
    ConnectionField, HeadLimits, Scan, decode_request, decode_response, encode_request,
};
use wire::head::{HeadIndex, Method};
use wire::path::Slashes;

const LIMITS: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 1 << 20,
    fields_max: 200,
    slashes: Slashes::Keep,
};

/// Bytes of the longest value.
const VALUE_BYTES_MAX: usize = 8 << 10;

/// Every fact is the same octets.
struct Same<'t>(&'t [u8]);

impl OperatorFacts for Same<'_> {
    fn push(&self, _fact: Fact, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn start_nanos(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum: u64, octet| sum.wrapping_mul(31).wrapping_add(u64::from(*octet)))
    }
}

/// Parts of an input, with a `|` between them: the name of a field, what it is set to in requests, and in responses, what an
/// operator knows, what was kept on the way (if anything), and the request's fields.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let mut parts = data.splitn(6, |octet| *octet == b'|');
    let mut next = || parts.next().unwrap_or_default();
    let [name, asked, answered, fact, damaged, fields] = std::array::from_fn(|_| next());
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let (name, asked, answered) = (text(name), text(asked), text(answered));
    let built = |value: &str, side: Side| {
        let one = BTreeMap::from([(name.clone(), value.to_owned())]);
        let file = EditsKey { set: one.clone(), append: one, ..EditsKey::default() };
        let mut errors = Vec::new();
        let edits = Edits::new(&file, side, Editor::Route, &mut errors);
        for error in &errors {
            assert!(!error.problem.rule.is_empty() && !error.problem.hint.is_empty());
        }
        errors.is_empty().then_some(edits)
    };
    let of_request = built(&asked, Side::Request).unwrap_or_default();
    let of_response = built(&answered, Side::Response).unwrap_or_default();

    let request = [b"GET /a?b HTTP/1.1\nHost: a\n", fields, b"\n\n"].concat();
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let decoded = decode_request(&request, &mut scan, &LIMITS, &mut index);
    let Ok(Some((mut head, _))) = decoded else { return };
    let before = head.len();
    let facts = Same(fact);
    let mut scratch = Vec::new();
    of_request.apply_to_request(&mut head, &facts, &mut scratch);
    assert!(head.len() <= before + 2, "one is set and one appended");
    for (_, value) in head.iter() {
        assert!(!value.iter().any(|octet| matches!(octet, b'\r' | b'\n' | 0)), "{value:?}");
    }
    if !of_request.is_empty() {
        let edited = head.find_all(name.as_bytes()).map(<[u8]>::len).max();
        assert!(edited.unwrap_or_default() <= VALUE_BYTES_MAX);
    }
    let mut kept = Vec::new();
    of_response.keep(&head, &mut kept);
    assert!(kept.len() <= KEPT_BYTES_MAX);
    // A reader of the wire sees the same fields.
    let fields_of = |head: &wire::head::RequestHead<'_>| -> Vec<(Vec<u8>, Vec<u8>)> {
        let is_of_hop = |name: &[u8]| name.eq_ignore_ascii_case(b"host");
        let fields = head.iter().filter(|(name, _)| !is_of_hop(name));
        fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec())).collect()
    };
    let mut encoded = wire::buffer::Buffer::new(head.encoded_len_max());
    encode_request(&head, ConnectionField::Default, &mut encoded);
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let again = decode_request(encoded.filled(), &mut scan, &LIMITS, &mut index);
    let again = again.expect("an edited head is sound").expect("and whole").0;
    assert_eq!(fields_of(&head), fields_of(&again));

    for kept in [&kept[..], damaged] {
        let response = b"HTTP/1.1 200 OK\r\nx-a: 1\r\nserver: s\r\n\r\n";
        let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
        let decoded = decode_response(response, &mut scan, &LIMITS, &mut index, Method::Get);
        let (mut head, _) = decoded.expect("it is sound").expect("and whole");
        of_response.apply_to_response(&mut head, kept, &facts, &mut scratch);
        assert!(head.len() <= 4);
        for (_, value) in head.iter() {
            assert!(!value.iter().any(|octet| matches!(octet, b'\r' | b'\n' | 0)), "{value:?}");
        }
    }
}
