//! Request targets (RFC 9112, section 3.2): one look to find the end, then path, query and host.

use super::error::{HeadError, Stop};
use crate::head::{HeadIndex, Method, Span};
use crate::host::Authority;
use crate::path::{self, Slashes};

/// The result of one scan over a target.
pub(crate) struct TargetScan {
    pub(crate) end: usize,
    question: Option<usize>,
    /// Whether the part before the first `?` holds what only [`path::normalise`] can judge,
    /// slashes in a row aside.
    is_suspect: bool,
}

/// Ends a target, or may not stand in one.
const STOP: u8 = 1;
/// `?`
const QUESTION: u8 = 2;
/// Octets that make a path suspect: `%`, `\`, and those that a path may only hold encoded.
const SUSPECT: u8 = 4;
/// `.`, which makes it suspect behind a slash.
const DOT: u8 = 8;

/// The class of each octet in a target.
///
/// A target is made of visible ASCII. `#` is refused, because a fragment is never sent and servers
/// that accept it disagree on whether it belongs to the path. Other octets that no path holds, such
/// as `|` and `{`, are accepted, because browsers send them, and encoded. In a query they stay.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static TARGET: [u8; 256] = {
    let mut table = [STOP; 256];
    let mut octet = 0x21;
    while octet < 0x7f {
        #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 0x7e")]
        let is_plain = path::is_path_octet(octet as u8);
        table[octet] = if is_plain { 0 } else { SUSPECT };
        octet += 1;
    }
    table[b'#' as usize] = STOP;
    table[b'?' as usize] = QUESTION;
    table[b'.' as usize] = DOT;
    table
};

fn target_class(octet: u8) -> u8 {
    TARGET.get(usize::from(octet)).copied().unwrap_or(STOP)
}

impl TargetScan {
    pub(crate) fn new(line: &[u8], start: usize) -> Result<Self, Stop> {
        let rest = line.get(start..).unwrap_or_default();
        let mut seen = 0;
        let path_len = rest.iter().position(|&octet| {
            let class = target_class(octet);
            seen |= class;
            class & (STOP | QUESTION) != 0
        });
        let path_len = path_len.ok_or(Stop::More)?;
        let has_dot_segment = seen & DOT != 0
            && path::has_dot_segment_start(rest.get(..path_len).unwrap_or_default());
        let is_suspect = seen & SUSPECT != 0 || has_dot_segment;

        let query_len = if seen & QUESTION == 0 {
            0
        } else {
            let query = rest.get(path_len..).unwrap_or_default();
            query.iter().position(|&octet| target_class(octet) == STOP).ok_or(Stop::More)?
        };
        let end = start + path_len + query_len;
        match line.get(end) {
            Some(b' ') if end > start => {}
            Some(b' ' | b'\t' | b'\r' | b'\n') => return Err(HeadError::RequestLineInvalid.into()),
            _ => return Err(HeadError::TargetInvalid.into()),
        }
        Ok(Self { end, question: (query_len > 0).then_some(start + path_len), is_suspect })
    }

    /// Sets path, query and, if the target names one, the host.
    pub(crate) fn resolve(
        &self,
        line: &[u8],
        start: usize,
        method: Method,
        slashes: Slashes,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        let path_end = self.question.unwrap_or(self.end);
        if let Some(question) = self.question {
            index.request.query = Some(Span::block(question + 1, self.end));
        }
        match line.get(start..path_end).unwrap_or_default() {
            _ if method == Method::Connect => self.resolve_authority_form(line, start, index),
            [b'/', ..] => self.resolve_path(line, start, path_end, slashes, index),
            b"*" if method == Method::Options && self.question.is_none() => {
                index.request.path = Span::block(start, path_end);
                Ok(())
            }
            _ => self.resolve_absolute_form(line, (start, path_end), method, slashes, index),
        }
    }

    fn resolve_path(
        &self,
        line: &[u8],
        start: usize,
        end: usize,
        slashes: Slashes,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        let path = line.get(start..end).unwrap_or_default();
        let is_merged = slashes == Slashes::Merge && path::has_empty_segment(path);
        if !self.is_suspect && !is_merged {
            index.request.path = Span::block(start, end);
            return Ok(());
        }
        let normal_start = index.added.len();
        path::normalise(path, slashes, &mut index.added)?;
        if index.added.get(normal_start..) == Some(path) {
            index.added.truncate(normal_start);
            index.request.path = Span::block(start, end);
        } else {
            index.request.path = index.added_from(normal_start);
            index.request.line_end = None;
        }
        Ok(())
    }

    fn resolve_authority_form(
        &self,
        line: &[u8],
        start: usize,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        index.request.line_end = None;
        index.request.query = None;
        resolve_authority(line, start, self.end, index)
    }

    fn resolve_absolute_form(
        &self,
        line: &[u8],
        (start, path_end): (usize, usize),
        method: Method,
        slashes: Slashes,
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        index.request.line_end = None;
        let target = line.get(start..path_end).unwrap_or_default();
        let scheme_len = SCHEMES
            .iter()
            .find(|scheme| {
                target.get(..scheme.len()).is_some_and(|front| front.eq_ignore_ascii_case(scheme))
            })
            .ok_or(HeadError::TargetInvalid)?
            .len();
        let authority_start = start + scheme_len;
        let rest = line.get(authority_start..path_end).unwrap_or_default();
        let authority_len = rest.iter().position(|&octet| octet == b'/').unwrap_or(rest.len());
        let path_start = authority_start + authority_len;
        resolve_authority(line, authority_start, path_start, index)?;
        if path_start < path_end {
            return self.resolve_path(line, path_start, path_end, slashes, index);
        }
        // RFC 9112, sections 3.2.1 and 3.2.4.
        let whole_server = method == Method::Options && self.question.is_none();
        index.request.path = index.add(if whole_server { b"*" } else { b"/" });
        Ok(())
    }
}

/// Schemes of targets in absolute form. Those of WebSocket are what some clients write where they
/// mean the ones of HTTP.
pub(crate) const SCHEMES: [&[u8]; 4] = [b"http://", b"https://", b"ws://", b"wss://"];

/// Takes the host from the target, which overrules `Host` (RFC 9112, section 3.2.2). Here it may
/// not be empty.
fn resolve_authority(
    line: &[u8],
    start: usize,
    end: usize,
    index: &mut HeadIndex,
) -> Result<(), HeadError> {
    let authority = line.get(start..end).unwrap_or_default();
    match Authority::parse(authority) {
        Some(Authority { host, .. }) if !host.is_empty() => {
            index.host = Span::block(start, end);
            Ok(())
        }
        _ => Err(HeadError::TargetInvalid),
    }
}

#[cfg(test)]
mod tests {
    use crate::h1::{HeadError, HeadLimits, Scan, decode_request};
    use crate::head::HeadIndex;
    use crate::path::Slashes;

    /// Path, query, host, authority, and the request line that goes on.
    fn resolved(line: &str) -> Result<[String; 5], HeadError> {
        let limits = HeadLimits {
            request_line_bytes_max: 100,
            head_bytes_max: 200,
            fields_max: 10,
            slashes: Slashes::Merge,
        };
        let input = format!("{line}\r\nHost: Field:1\r\n\r\n");
        let mut index = HeadIndex::default();
        let head = decode_request(input.as_bytes(), &mut Scan::default(), &limits, &mut index)?;
        let (head, _) = head.expect("a whole head");
        let mut out = crate::buffer::Buffer::new(head.encoded_len_max());
        crate::h1::encode_request(&head, Default::default(), &mut out);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let sent_on = text(out.filled());
        let query =
            head.query().map_or_else(|| "none".into(), |query| format!("some {}", text(query)));
        let first = sent_on.lines().next().unwrap().to_owned();
        // A `Host` that the target agrees with is left as it came.
        let name = if head.authority() == b"Field:1" { "Host" } else { "host" };
        let host = format!("\r\n{name}: {}\r\n", text(head.authority()));
        assert!(sent_on.contains(&host), "{sent_on}");
        Ok([text(head.path()), query, text(head.host()), text(head.authority()), first])
    }

    #[test]
    fn each_form_of_target_has_one_meaning() {
        assert_eq!(resolved("GET http://t../ HTTP/1.1"), Err(HeadError::TargetInvalid));
        for (line, expected) in [
            // Origin form.
            ("GET / HTTP/1.1", ["/", "none", "field", "Field:1", "GET / HTTP/1.1"]),
            ("GET / HTTP/1.0", ["/", "none", "field", "Field:1", "GET / HTTP/1.1"]),
            ("GET /a?b HTTP/1.1", ["/a", "some b", "field", "Field:1", "GET /a?b HTTP/1.1"]),
            ("GET /a? HTTP/1.1", ["/a", "some ", "field", "Field:1", "GET /a? HTTP/1.1"]),
            ("GET /?a?b HTTP/1.1", ["/", "some a?b", "field", "Field:1", "GET /?a?b HTTP/1.1"]),
            ("GET /a/../b HTTP/1.1", ["/b", "none", "field", "Field:1", "GET /b HTTP/1.1"]),
            ("GET /%61 HTTP/1.1", ["/a", "none", "field", "Field:1", "GET /a HTTP/1.1"]),
            ("GET /%2f HTTP/1.1", ["/%2F", "none", "field", "Field:1", "GET /%2F HTTP/1.1"]),
            ("GET /.a HTTP/1.1", ["/.a", "none", "field", "Field:1", "GET /.a HTTP/1.1"]),
            (
                "GET /{a} HTTP/1.1",
                ["/%7Ba%7D", "none", "field", "Field:1", "GET /%7Ba%7D HTTP/1.1"],
            ),
            ("GET //a HTTP/1.1", ["/a", "none", "field", "Field:1", "GET /a HTTP/1.1"]),
            // A query is not a path: nothing in it is resolved, decoded, encoded or refused.
            (
                "GET /a?//../%61%c3{%\\ HTTP/1.1",
                [
                    "/a",
                    "some //../%61%c3{%\\",
                    "field",
                    "Field:1",
                    "GET /a?//../%61%c3{%\\ HTTP/1.1",
                ],
            ),
            // Absolute form: the host of the target wins.
            ("GET http://T:2/a HTTP/1.1", ["/a", "none", "t", "T:2", "GET /a HTTP/1.1"]),
            ("GET HTTPS://t HTTP/1.1", ["/", "none", "t", "t", "GET / HTTP/1.1"]),
            ("GET ws://t?a HTTP/1.1", ["/", "some a", "t", "t", "GET /?a HTTP/1.1"]),
            ("GET http://t//a HTTP/1.1", ["/a", "none", "t", "t", "GET /a HTTP/1.1"]),
            ("GET wss://t/../a HTTP/1.1", ["/a", "none", "t", "t", "GET /a HTTP/1.1"]),
            (
                "GET http://t?a/../b HTTP/1.1",
                ["/", "some a/../b", "t", "t", "GET /?a/../b HTTP/1.1"],
            ),
            ("GET http://[::A]:2/ HTTP/1.1", ["/", "none", "[::a]", "[::A]:2", "GET / HTTP/1.1"]),
            (
                "GET http://Field:1/a HTTP/1.1",
                ["/a", "none", "field", "Field:1", "GET /a HTTP/1.1"],
            ),
            ("OPTIONS http://t HTTP/1.1", ["*", "none", "t", "t", "OPTIONS * HTTP/1.1"]),
            ("OPTIONS http://t/ HTTP/1.1", ["/", "none", "t", "t", "OPTIONS / HTTP/1.1"]),
            // The dot of the root is no part of a name.
            ("GET http://T.:2/a HTTP/1.1", ["/a", "none", "t", "T:2", "GET /a HTTP/1.1"]),
            ("CONNECT T.:2 HTTP/1.1", ["", "none", "t", "T:2", "CONNECT T:2 HTTP/1.1"]),
            // Asterisk form.
            ("OPTIONS * HTTP/1.1", ["*", "none", "field", "Field:1", "OPTIONS * HTTP/1.1"]),
            // Authority form.
            ("CONNECT T:2 HTTP/1.1", ["", "none", "t", "T:2", "CONNECT T:2 HTTP/1.1"]),
        ] {
            let resolved = resolved(line).unwrap();
            assert_eq!(resolved, expected.map(str::to_owned), "{line}");
        }
    }
}
