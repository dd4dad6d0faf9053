//! The meaning of a head's fields together: framing, host, persistence, hop-by-hop fields.
//!
//! Everything that determines a message's length is decided in this module alone.

use super::error::HeadError;
use super::parsing::Parsing;
use crate::head::{FieldEntry, Framing, HeadIndex, Known, Method, Place, Span, Version};
use crate::octets;

/// The fields that determine the message as a whole, as far as they were read.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) host: Option<Span>,
    pub(super) is_host_repeated: bool,
    pub(super) content_length: Option<Span>,
    pub(super) is_content_length_repeated: bool,
    pub(super) expect: Option<Span>,
}

pub(super) fn finish_request(
    block: &[u8],
    index: &mut HeadIndex,
    summary: &Summary,
) -> Result<(), HeadError> {
    let version = index.request.version;
    let hop_by_hop = HopByHop::read(block, index)?;
    let declared = declared_framing(block, version, &hop_by_hop, summary)?.unwrap_or_default();
    let has_content = !matches!(declared, Framing::None | Framing::Length(0));
    if index.request.method == Method::Connect && has_content {
        // It has none (RFC 9110, section 9.3.6), and who takes it for content loses bytes of the tunnel.
        return Err(HeadError::ConnectWithContent);
    }
    index.request.declared = declared;
    index.request.framing = declared;
    index.request.persistent = hop_by_hop.is_persistent(version);
    index.request.accepts_trailers = hop_by_hop.accepts_trailers && version == Version::Http11;
    index.upgrade = hop_by_hop.offered_upgrade(version);
    finish_host(block, index, summary)?;
    finish_expect(block, index, summary);
    Ok(())
}

pub(super) fn finish_response(
    block: &[u8],
    index: &mut HeadIndex,
    summary: &Summary,
    to: Method,
    parsing: Parsing,
) -> Result<(), HeadError> {
    let version = index.response.version;
    let hop_by_hop = HopByHop::read(block, index)?;
    // Where HTTP/1.0 has a transfer coding all the same, there is one end that it can mean; but a
    // service that mixes the versions is not asked for more on the connection.
    let is_mixed = parsing == Parsing::Tolerant
        && version == Version::Http10
        && matches!(hop_by_hop.codings, Some(Codings::Chunked));
    let terms = if is_mixed { Version::Http11 } else { version };
    let declared = declared_framing(block, terms, &hop_by_hop, summary)?;
    finish_response_framing(block, index, declared.unwrap_or(Framing::UntilClose), to);
    index.response.persistent = hop_by_hop.is_persistent(version)
        && index.response.framing != Framing::UntilClose
        && !is_mixed;
    index.upgrade = hop_by_hop.offered_upgrade(version);
    Ok(())
}

/// RFC 9112, section 6.3. A response that may not declare a length loses the field.
pub(crate) fn finish_response_framing(
    block: &[u8],
    index: &mut HeadIndex,
    declared: Framing,
    to: Method,
) {
    index.response.framing = match (index.response.status, to) {
        (100..=199 | 204, _) | (200..=299, Method::Connect) => {
            let name = Known::ContentLength.name();
            index.remove_from(0, block, Known::ContentLength, name);
            Framing::None
        }
        (304, _) | (_, Method::Head) => Framing::None,
        _ => declared,
    };
}

/// RFC 9110, section 7.2, and RFC 9112, section 3.2.
fn finish_host(block: &[u8], index: &mut HeadIndex, summary: &Summary) -> Result<(), HeadError> {
    if summary.is_host_repeated {
        return Err(HeadError::HostRepeated);
    }
    if summary.host.is_none() && index.request.version == Version::Http11 {
        return Err(HeadError::HostMissing);
    }
    let in_target = index.host;
    let in_field = summary.host.unwrap_or_default();
    if !index.on_host_set(in_field.of(block), in_field) {
        return Err(HeadError::HostInvalid);
    }
    if in_target != Span::default() && in_target.of(block) != in_field.of(block) {
        index.set(block, Known::Host, Known::Host.name(), in_target.of(block));
    }
    let authority = if in_target == Span::default() { in_field } else { in_target }.of(block);
    // The host is known without the dot of the root; here it leaves the field, too.
    if authority.get(index.host.len as usize) == Some(&b'.') {
        index.set_host_without_root_dot(authority);
    }
    Ok(())
}

/// RFC 9110, section 10.1.1: HTTP/1.0 has no expectations, and one that was ignored here must not
/// take effect in the HTTP/1.1 request that is sent on.
fn finish_expect(block: &[u8], index: &mut HeadIndex, summary: &Summary) {
    let Some(expect) = summary.expect else { return };
    if index.request.version == Version::Http10 {
        index.remove_from(0, block, Known::Expect, Known::Expect.name());
    } else {
        index.request.expects_continue = is_continue(expect.of(block));
    }
}

/// Whether the value of `Expect` is the one expectation that there is.
pub(crate) fn is_continue(expect: &[u8]) -> bool {
    expect.eq_ignore_ascii_case(b"100-continue")
}

/// The framing that the fields declare, if any, on the terms of RFC 9112, section 6.
fn declared_framing(
    block: &[u8],
    version: Version,
    hop_by_hop: &HopByHop,
    summary: &Summary,
) -> Result<Option<Framing>, HeadError> {
    match (hop_by_hop.codings, summary.content_length) {
        (None, None) => Ok(None),
        (None, Some(_)) if summary.is_content_length_repeated => {
            Err(HeadError::ContentLengthRepeated)
        }
        (None, Some(length)) => content_length(length.of(block)).map(Framing::Length).map(Some),
        (Some(_), Some(_)) => Err(HeadError::ContentLengthWithTransferEncoding),
        (Some(_), None) if version == Version::Http10 => Err(HeadError::TransferEncodingInHttp10),
        (Some(Codings::Chunked), None) => Ok(Some(Framing::Chunked)),
        (Some(Codings::Invalid), None) => Err(HeadError::TransferEncodingInvalid),
        (Some(Codings::Unknown | Codings::UnknownThenChunked), None) => {
            Err(HeadError::TransferEncodingUnknown)
        }
    }
}

/// A length as digits and nothing else. It fits 63 bits, since some receivers use signed integers.
pub(crate) fn content_length(digits: &[u8]) -> Result<u64, HeadError> {
    let length = digits.iter().try_fold(0u64, |length, &digit| {
        let value = digit.checked_sub(b'0').filter(|&value| value <= 9)?;
        length.checked_mul(10)?.checked_add(u64::from(value))
    });
    length
        .filter(|&length| !digits.is_empty() && i64::try_from(length).is_ok())
        .ok_or(HeadError::ContentLengthInvalid)
}

/// Names that one head may nominate in `Connection`, those with a meaning of their own aside. Each
/// costs a pass over the fields.
const NOMINATED_MAX: u8 = 32;

/// The meaning of the hop-by-hop fields.
#[derive(Default)]
struct HopByHop {
    has_close: bool,
    has_keep_alive: bool,
    nominates_upgrade: bool,
    accepts_trailers: bool,
    upgrade: Option<Span>,
    codings: Option<Codings>,
    nominated: u8,
}

/// The transfer codings, in order over all fields.
#[derive(Clone, Copy)]
enum Codings {
    Chunked,
    Invalid,
    Unknown,
    UnknownThenChunked,
}

impl HopByHop {
    /// Reads the fields that the decoder put aside, and removes those that they nominate.
    fn read(block: &[u8], index: &mut HeadIndex) -> Result<Self, HeadError> {
        let mut this = Self::default();
        let entries = std::mem::take(&mut index.hop_by_hop);
        let mut result = Ok(());
        for entry in &entries {
            let value = entry.value().of(block);
            match entry.known {
                Known::Connection if result.is_ok() => {
                    result = this.on_connection(value, block, index);
                }
                Known::Te => this.accepts_trailers |= has_trailers(value),
                Known::TransferEncoding => this.on_codings(value),
                Known::Upgrade => this.upgrade = Some(joined(this.upgrade, entry, block, index)),
                _ => {}
            }
        }
        // The storage goes back to be used again.
        index.hop_by_hop = entries;
        result.map(|()| this)
    }

    fn on_connection(
        &mut self,
        value: &[u8],
        block: &[u8],
        index: &mut HeadIndex,
    ) -> Result<(), HeadError> {
        for option in octets::list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.has_close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.has_keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.nominates_upgrade = true;
            } else if !octets::is_token(option) {
                return Err(HeadError::ConnectionInvalid);
            } else if Known::from_name(option).is_removable_by_nomination() {
                self.nominated += 1;
                if self.nominated > NOMINATED_MAX {
                    return Err(HeadError::ConnectionInvalid);
                }
                index.remove_from(0, block, Known::Other, option);
            }
        }
        Ok(())
    }

    /// Empty elements are not dropped as in other lists: a receiver that reads one coding too many
    /// or too few disagrees about where the message ends.
    fn on_codings(&mut self, value: &[u8]) {
        for coding in value.split(|&octet| octet == b',').map(octets::trim) {
            let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.codings = Some(match self.codings {
                _ if !octets::is_token(coding) => Codings::Invalid,
                None if is_chunked => Codings::Chunked,
                Some(Codings::Unknown) if is_chunked => Codings::UnknownThenChunked,
                None | Some(Codings::Unknown) => Codings::Unknown,
                Some(Codings::Chunked | Codings::Invalid | Codings::UnknownThenChunked) => {
                    Codings::Invalid
                }
            });
        }
    }

    /// RFC 9112, section 9.3.
    fn is_persistent(&self, version: Version) -> bool {
        !self.has_close && (version == Version::Http11 || self.has_keep_alive)
    }

    fn offered_upgrade(&self, version: Version) -> Option<Span> {
        self.upgrade.filter(|_| self.nominates_upgrade && version == Version::Http11)
    }
}

/// Whether `trailers` is among the codings of a `TE` field (RFC 9110, section 10.1.4).
fn has_trailers(value: &[u8]) -> bool {
    octets::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// The list of `before`, if any, continued by the value of `entry`.
fn joined(before: Option<Span>, entry: &FieldEntry, block: &[u8], index: &mut HeadIndex) -> Span {
    let Some(before) = before else { return entry.value() };
    let start = index.added.len();
    match before.place {
        Place::Block => index.added.extend_from_slice(before.of(block)),
        Place::Added => {
            let before = before.start as usize..(before.start + before.len) as usize;
            index.added.extend_from_within(before);
        }
    }
    index.added.extend_from_slice(b", ");
    index.added.extend_from_slice(entry.value().of(block));
    index.added_from(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::{HeadLimits, Scan, decode_request, decode_response};
    use crate::path::Slashes;

    const LIMITS: HeadLimits = HeadLimits {
        request_line_bytes_max: 100,
        head_bytes_max: 4000,
        fields_max: 50,
        slashes: Slashes::Keep,
    };

    #[test]
    fn a_response_ends_where_its_status_and_fields_say() {
        let length = "Content-Length: 5\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        for (status, to, lines, framing, keeps_length) in [
            (200, Method::Get, length, Framing::Length(5), true),
            (200, Method::Get, "Content-Length: 0\r\n", Framing::Length(0), true),
            (200, Method::Get, chunked, Framing::Chunked, false),
            (200, Method::Get, "", Framing::UntilClose, false),
            (200, Method::Head, length, Framing::None, true),
            (200, Method::Head, chunked, Framing::None, false),
            (200, Method::Head, "", Framing::None, false),
            (304, Method::Get, length, Framing::None, true),
            (304, Method::Get, "", Framing::None, false),
            (204, Method::Get, length, Framing::None, false),
            (204, Method::Get, chunked, Framing::None, false),
            (100, Method::Get, length, Framing::None, false),
            (101, Method::Get, "", Framing::None, false),
            (199, Method::Head, "", Framing::None, false),
            (200, Method::Connect, length, Framing::None, false),
            (299, Method::Connect, chunked, Framing::None, false),
            (400, Method::Connect, length, Framing::Length(5), true),
            (205, Method::Get, "", Framing::UntilClose, false),
            (999, Method::Get, length, Framing::Length(5), true),
        ] {
            let input = format!("HTTP/1.1 {status} x\r\n{lines}\r\n");
            let mut index = HeadIndex::default();
            let head =
                decode_response(input.as_bytes(), &mut Scan::default(), &LIMITS, &mut index, to);
            let (head, _) = head.unwrap().unwrap();
            assert_eq!(head.framing(), framing, "{status} {to:?} {lines}");
            let has_length = head.field(Known::ContentLength).is_some();
            assert_eq!(has_length, keeps_length, "{status} {to:?} {lines}");
            assert_eq!(head.persistent(), framing != Framing::UntilClose);
        }
    }

    #[test]
    fn a_connect_has_no_content() {
        for (lines, expected) in [
            ("", Ok(())),
            ("Content-Length: 0\r\n", Ok(())),
            ("Content-Length: 1\r\n", Err(HeadError::ConnectWithContent)),
            ("Transfer-Encoding: chunked\r\n", Err(HeadError::ConnectWithContent)),
        ] {
            let input = format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{lines}\r\n");
            let mut index = HeadIndex::default();
            let head = decode_request(input.as_bytes(), &mut Scan::default(), &LIMITS, &mut index);
            assert_eq!(head.map(|head| assert!(head.is_some())), expected, "{lines}");
        }
    }

    /// Calls `see` with the head of a request with these lines.
    fn request<T>(
        version: &str,
        lines: &str,
        see: impl FnOnce(crate::head::RequestHead<'_>) -> T,
    ) -> Result<T, HeadError> {
        let input = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let mut index = HeadIndex::default();
        let head = decode_request(input.as_bytes(), &mut Scan::default(), &LIMITS, &mut index)?;
        Ok(see(head.expect("a whole head").0))
    }

    #[test]
    fn persistence_follows_the_version_and_the_options() {
        for (version, lines, expected) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: x, CLOSE\r\n", false),
            ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
            ("1.1", "Connection: closed\r\n", true),
            ("1.1", "Proxy-Connection: close\r\n", true),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
            ("1.0", "Connection: keep-alive, close\r\n", false),
            ("1.0", "Proxy-Connection: keep-alive\r\n", false),
            ("1.0", "Keep-Alive: timeout=5\r\n", false),
        ] {
            let persistent = request(version, lines, |head| head.persistent()).unwrap();
            assert_eq!(persistent, expected, "{version} {lines}");
        }
    }

    #[test]
    fn an_upgrade_counts_when_it_is_nominated() {
        for (version, lines, expected) in [
            ("1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", Some("websocket")),
            ("1.1", "Upgrade: websocket\r\nConnection: x, upgrade\r\n", Some("websocket")),
            ("1.1", "Connection: upgrade\r\nUpgrade: a\r\nUpgrade: b, c\r\n", Some("a, b, c")),
            (
                "1.1",
                "Connection: upgrade\r\nUpgrade: a\r\nUpgrade: b\r\nUpgrade: c\r\n",
                Some("a, b, c"),
            ),
            ("1.1", "Upgrade: websocket\r\n", None),
            ("1.1", "Connection: upgrade\r\n", None),
            ("1.0", "Connection: Upgrade\r\nUpgrade: websocket\r\n", None),
        ] {
            let upgrade = request(version, lines, |head| head.upgrade().map(<[u8]>::to_vec));
            assert_eq!(upgrade.unwrap().as_deref(), expected.map(str::as_bytes), "{lines}");
        }
    }

    #[test]
    fn an_expectation_is_one_of_http_1_1() {
        for (version, lines, expects, is_kept) in [
            ("1.1", "Expect: 100-continue\r\n", true, true),
            ("1.1", "Expect: 100-Continue\r\n", true, true),
            ("1.1", "Expect: x\r\n", false, true),
            ("1.0", "Expect: 100-continue\r\n", false, false),
        ] {
            let seen = request(version, lines, |head| {
                (head.expects_continue(), head.field(Known::Expect).is_some())
            });
            assert_eq!(seen, Ok((expects, is_kept)), "{version} {lines}");
        }
    }

    #[test]
    fn what_is_for_the_next_hop_goes_no_further() {
        let lines = "Connection: close, x-a, TE\r\nKeep-Alive: 1\r\nProxy-Connection: 1\r\n\
            TE: gzip, trailers\r\nUpgrade: a\r\nHTTP2-Settings: a\r\nProxy-Authorization: a\r\n\
            Proxy-Authenticate: a\r\nX-A: 1\r\nx-a: 2\r\nX-B: 3\r\nTrailer: x\r\n";
        request("1.1", lines, |head| {
            let names: Vec<&[u8]> = head.iter().map(|(name, _)| name).collect();
            assert_eq!(names, [&b"Host"[..], b"X-B", b"Trailer"]);
            assert_eq!(head.len(), 3);
            assert!(head.accepts_trailers());
        })
        .unwrap();
        // Trailers are of HTTP/1.1.
        assert_eq!(request("1.0", "TE: trailers\r\n", |head| head.accepts_trailers()), Ok(false));
        assert_eq!(request("1.1", "TE: trailersx\r\n", |head| head.accepts_trailers()), Ok(false));
    }

    #[test]
    fn nominations_are_bounded() {
        for (count, expected) in [(32, Ok(())), (33, Err(HeadError::ConnectionInvalid))] {
            let names: Vec<String> = (0..count).map(|n| format!("x{n}")).collect();
            let lines = format!("Connection: {}\r\n", names.join(", "));
            assert_eq!(request("1.1", &lines, |_| ()), expected);
        }
        // Those that mean something by themselves are free, and so are those that are protected.
        let lines = format!("Connection: {}\r\n", ["close", "te", "cookie"].join(", ").repeat(20));
        assert!(request("1.1", &lines.replace("cookieclose", "cookie, close"), |_| ()).is_ok());
    }
}
