//! What holds for a rule of any text and a request of any octets: one answer, and a path that is still one.

use config::explain::Verdict;
use config::matching::{Asked, Searches};
use config::rewrite::Rewriting;
use config::snapshot::Action;
use config::{FilterKinds, Loader};
use wire::h1::{HeadLimits, Scan, decode_request};
use wire::head::HeadIndex;
use wire::path::{Slashes, normalise};

const LIMITS: HeadLimits = HeadLimits {
    request_line_bytes_max: 8 << 10,
    head_bytes_max: 64 << 10,
    fields_max: 100,
    slashes: Slashes::Keep,
};

/// Lines of an input: the key of the path and what stands under it; what stands under `regex` of a header field, of the
/// parameter `page` and of the cookie `c`; the key of the rewrite, what stands under it, and `with`; the request's target; the
/// rest are its fields.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let mut parts = data.splitn(10, |octet| *octet == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let [path_key, path, header, page, cookie, rewrite_key, new, with, target, fields] =
        std::array::from_fn(|_| next());
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let path = [(text(path_key), text(path))];
    let mut matched: serde_json::Map<String, serde_json::Value> =
        path.into_iter().map(|(key, value)| (key, value.into())).collect();
    for (place, name, value) in
        [("headers", "x-a", header), ("query", "page", page), ("cookies", "c", cookie)]
    {
        if !value.is_empty() {
            matched.insert(place.to_owned(), serde_json::json!({ name: { "regex": text(value) } }));
        }
    }
    let mut rule = serde_json::json!({ "match": matched, "cluster": "a" });
    if !rewrite_key.is_empty() {
        let mut rewrite = serde_json::Map::from_iter([(text(rewrite_key), text(new).into())]);
        if !with.is_empty() {
            rewrite.insert("with".to_owned(), text(with).into());
        }
        rule.as_object_mut().expect("a map").insert("rewrite".to_owned(), rewrite.into());
    }
    let file = serde_json::json!({
        "listeners": [{ "name": "l", "address": "127.0.0.1:1", "routes": "r" }],
        "routes": [{ "name": "r", "rules": [rule, { "match": { "prefix": "/" }, "cluster": "a" }] }],
        "clusters": [{ "name": "a", "endpoints": ["127.0.0.1:2"] }],
    });
    let mut loader: Loader<()> = Loader::new(FilterKinds::new()).expect("the schema is sound");
    let Ok(snapshot) = loader.load("f", &file.to_string()) else { return };
    let (_, table) = snapshot.route_tables.iter().next().expect("a table");

    let request = [b"GET ", target, b" HTTP/1.1\nHost: a\n", fields, b"\n\n"].concat();
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let Ok(Some((mut head, _))) = decode_request(&request, &mut scan, &LIMITS, &mut index) else {
        return;
    };
    let mut searches = Searches::default();
    let asked = Asked { head: &head, source: None, client: None, die: 0 };
    let found = table.find(&asked, &mut searches).map(|(place, _)| place);
    let explained = table.explain(&asked, &mut searches);
    let matched = explained.iter().position(|(_, verdict)| *verdict == Verdict::Matched);
    assert_eq!(found, matched, "the index finds what reading rule by rule finds");
    let Some(rule) = found.and_then(|place| table.rules.get(place)) else { return };
    let Action::Forward(forward) = &rule.action else { return };
    let Some(rewrite) = &forward.rewrite else { return };
    let mut rewriting = Rewriting::default();
    if rewrite.apply(&mut head, &rule.path, None, Slashes::Keep, &mut rewriting).is_err()
        || head.path() == b"*"
    {
        return;
    }
    let path = head.path();
    assert!(path.starts_with(b"/") && !path.starts_with(b"//"), "{path:?} is a path here");
    let mut again = Vec::new();
    normalise(path, Slashes::Keep, &mut again).expect("it is a path");
    assert_eq!(again, path, "in its one spelling");
    let query = head.query().unwrap_or_default();
    assert!(query.iter().all(|octet| !matches!(octet, 0..=b' ' | b'#' | 0x7f)), "{query:?}");
}
