//! A client's first message, read before anything is decided about its connection.
//!
//! Nothing is consumed: [`decode`] is asked again with more bytes until it gives a verdict, and the
//! bytes are then passed on unchanged to the side that terminates TLS. Fields that decide a route
//! are checked fully, of the others only the shape: whether there is a cipher suite in common is
//! not checked.
//!
//! A hello may span records, and its bytes may come in any pieces; key shares of post-quantum
//! groups make that usual. With Encrypted Client Hello this is the outer hello: its name is the
//! public one, and no other can be read. Values of GREASE (RFC 8701) are ignored.

use std::net::IpAddr;
use std::str;

use thiserror::Error;

use super::{Alert, ServerName, Version};

/// The fields of a ClientHello that decide a route.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'a> {
    /// The server name (SNI), if the client sends one.
    ///
    /// An IP address is no name: clients must not send one (RFC 6066, section 3), and no route or
    /// certificate is looked up by it. Clients that send one all the same mean the default of that
    /// address, so they are served like clients that send no name. rustls does the same.
    pub server_name: Option<ServerName>,
    /// The highest version that the client speaks, of those that are known here.
    pub highest_version: Option<Version>,
    /// Whether early data comes behind it (RFC 8446, section 4.2.10).
    pub offers_early_data: bool,
    /// The list of the ALPN extension, which is valid.
    alpn: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// The protocols that the client offers by ALPN, best first; none if it does not use ALPN.
    #[must_use]
    pub fn alpn(&self) -> AlpnProtocols<'a> {
        AlpnProtocols { list: Reader { rest: self.alpn } }
    }
}

/// Why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientHelloError {
    /// The ALPN extension is not a list of names, or a name is empty.
    #[error("an ALPN extension that is no list of names")]
    AlpnInvalid,
    /// More bytes in a record than the hello that ends in it.
    #[error("bytes behind the hello")]
    BytesBehind,
    /// More than one extension of a kind.
    #[error("more than one extension of a kind")]
    ExtensionRepeated,
    /// Extensions that do not fill their room exactly.
    #[error("extensions that do not fit their block")]
    ExtensionsInvalid,
    /// The fields before the extensions do not fit.
    #[error("a hello that cannot be decoded")]
    MessageInvalid,
    /// The bytes do not begin as a ClientHello does. The client may not speak TLS at all.
    #[error("no ClientHello")]
    NotClientHello,
    /// A record without a byte of the hello.
    #[error("an empty record")]
    RecordEmpty,
    /// A record longer than any may be.
    #[error("a record that is too long")]
    RecordTooLong,
    /// A record of another kind before the hello's end.
    #[error("another record inside the hello")]
    RecordUnexpected,
    /// The name is neither a DNS name nor an address.
    #[error("a server name that is no name")]
    ServerNameInvalid,
    /// The extension is not a list of names.
    #[error("a server name extension that is no list of names")]
    ServerNameListInvalid,
    /// More than one name.
    #[error("more than one server name")]
    ServerNameRepeated,
    /// The hello does not end within [`CLIENT_HELLO_BYTES_MAX`].
    #[error("the hello is too long")]
    TooLong,
    /// The extension is not a list of versions.
    #[error("a supported versions extension that is no list of versions")]
    VersionsInvalid,
}

impl ClientHelloError {
    /// The alert to send. After [`ClientHelloError::NotClientHello`], sending none may be better.
    #[must_use]
    pub fn alert(self) -> Alert {
        match self {
            Self::AlpnInvalid
            | Self::ExtensionsInvalid
            | Self::MessageInvalid
            | Self::ServerNameListInvalid
            | Self::TooLong
            | Self::VersionsInvalid => Alert::DecodeError,
            Self::ExtensionRepeated | Self::ServerNameInvalid | Self::ServerNameRepeated => {
                Alert::IllegalParameter
            }
            Self::RecordTooLong => Alert::RecordOverflow,
            Self::BytesBehind
            | Self::NotClientHello
            | Self::RecordEmpty
            | Self::RecordUnexpected => Alert::UnexpectedMessage,
        }
    }
}

/// Bytes in which a verdict is reached at the latest, record headers included.
///
/// Usual hellos take from 200 bytes to 2 KiB, those with client tickets of some size a few more.
/// This is two full records, so that one that has to span them is still read.
pub const CLIENT_HELLO_BYTES_MAX: usize = 32 << 10;

/// Reads the hello at the front of `input`, the first bytes of a connection, or `None` if more are
/// needed.
///
/// A hello in one record is read where it stands. One that spans several is put together in
/// `scratch` first, which grows up to [`CLIENT_HELLO_BYTES_MAX`] and whose contents do not matter
/// before or after.
///
/// # Errors
///
/// When the bytes that are there are not a valid hello. Bytes behind
/// [`CLIENT_HELLO_BYTES_MAX`] are not looked at.
pub fn decode<'a>(
    input: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<Option<ClientHello<'a>>, ClientHelloError> {
    let window = input.get(..CLIENT_HELLO_BYTES_MAX).unwrap_or(input);
    match begins(window) {
        None => return Ok(None),
        Some(false) => return Err(ClientHelloError::NotClientHello),
        Some(true) => {}
    }
    match message(window, scratch)? {
        Some(body) => read(body).map(Some),
        None if window.len() < CLIENT_HELLO_BYTES_MAX => Ok(None),
        None => Err(ClientHelloError::TooLong),
    }
}

/// ContentType `handshake` (RFC 8446, section 5.1).
pub(crate) const HANDSHAKE_RECORD: u8 = 22;

/// HandshakeType `client_hello` (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;

/// Bytes of a record's header.
const RECORD_HEADER_LEN: usize = 5;

/// Bytes of a message's header.
const MESSAGE_HEADER_LEN: usize = 4;

/// Bytes that a record may hold (RFC 8446, section 5.1).
const FRAGMENT_BYTES_MAX: u16 = 1 << 14;

/// Whether `input` begins as a ClientHello does, which takes at most six bytes; `None` if more are
/// needed. [`crate::detect`] uses the same check.
pub(crate) fn begins(input: &[u8]) -> Option<bool> {
    let is_so_far = input.iter().zip(0..=RECORD_HEADER_LEN).all(|(&octet, place)| match place {
        0 => octet == HANDSHAKE_RECORD,
        1 => octet == VERSION_MAJOR,
        2 => octet <= VERSION_MINOR_MAX,
        RECORD_HEADER_LEN => octet == CLIENT_HELLO,
        _ => true,
    });
    let has_len = input.get(3..).and_then(<[u8]>::first_chunk).is_none_or(|len| {
        let len = u16::from_be_bytes(*len);
        len > 0 && len <= FRAGMENT_BYTES_MAX
    });
    match is_so_far && has_len {
        false => Some(false),
        true if input.len() > RECORD_HEADER_LEN => Some(true),
        true => None,
    }
}

/// Of a record's version only this much is sure: what else it says is to be ignored (RFC 8446,
/// section 5.1).
const VERSION_MAJOR: u8 = 3;
const VERSION_MINOR_MAX: u8 = 4;

/// The message that `input` begins with, without its header, out of as many records as it takes.
fn message<'a>(
    input: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<Option<&'a [u8]>, ClientHelloError> {
    let mut records = Reader { rest: input };
    let Some(first) = fragment(&mut records)? else { return Ok(None) };
    if let Some(body) = body(first)? {
        return Ok(Some(body));
    }
    scratch.clear();
    scratch.extend_from_slice(first);
    while body(scratch)?.is_none() {
        let Some(next) = fragment(&mut records)? else { return Ok(None) };
        scratch.extend_from_slice(next);
    }
    body(scratch)
}

/// Takes what the record at the front holds, or nothing if it is not there whole.
fn fragment<'a>(records: &mut Reader<'a>) -> Result<Option<&'a [u8]>, ClientHelloError> {
    let Some(&[kind, major, minor, high, low]) = records.rest.first_chunk() else {
        return Ok(None);
    };
    if kind != HANDSHAKE_RECORD || major != VERSION_MAJOR || minor > VERSION_MINOR_MAX {
        return Err(ClientHelloError::RecordUnexpected);
    }
    match u16::from_be_bytes([high, low]) {
        0 => Err(ClientHelloError::RecordEmpty),
        len if len > FRAGMENT_BYTES_MAX => Err(ClientHelloError::RecordTooLong),
        len => Ok(records
            .bytes(RECORD_HEADER_LEN + usize::from(len))
            .and_then(|record| record.get(RECORD_HEADER_LEN..))),
    }
}

/// The body of a message, if all of it is there. Nothing else may stand in its last
/// record: keys may change behind it (RFC 8446, section 5.1).
fn body(message: &[u8]) -> Result<Option<&[u8]>, ClientHelloError> {
    let Some((&[_, high, middle, low], rest)) = message.split_first_chunk() else {
        return Ok(None);
    };
    let len = u32::from_be_bytes([0, high, middle, low]);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len > CLIENT_HELLO_BYTES_MAX - RECORD_HEADER_LEN - MESSAGE_HEADER_LEN {
        return Err(ClientHelloError::TooLong);
    }
    match rest.len() {
        there if there < len => Ok(None),
        there if there > len => Err(ClientHelloError::BytesBehind),
        _ => Ok(Some(rest)),
    }
}

/// Reads a whole message.
fn read(body: &[u8]) -> Result<ClientHello<'_>, ClientHelloError> {
    let (legacy_version, extensions) = parts(body).ok_or(ClientHelloError::MessageInvalid)?;
    let mut hello = ClientHello {
        server_name: None,
        highest_version: highest_legacy(legacy_version),
        offers_early_data: false,
        alpn: &[],
    };
    let mut extensions = Reader { rest: extensions };
    let mut seen = Seen([0; 1024]);
    while !extensions.rest.is_empty() {
        let kind = extensions.u16().ok_or(ClientHelloError::ExtensionsInvalid)?;
        let value = extensions.vector16().ok_or(ClientHelloError::ExtensionsInvalid)?;
        if !seen.insert(kind) {
            return Err(ClientHelloError::ExtensionRepeated);
        }
        match kind {
            SERVER_NAME => hello.server_name = server_name(value)?,
            ALPN => hello.alpn = protocols(value).ok_or(ClientHelloError::AlpnInvalid)?,
            SUPPORTED_VERSIONS => {
                let versions = versions(value).ok_or(ClientHelloError::VersionsInvalid)?;
                hello.highest_version = versions.iter().filter_map(version).max();
            }
            EARLY_DATA => hello.offers_early_data = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// ExtensionType of RFC 6066, section 1.1.
const SERVER_NAME: u16 = 0;
/// ExtensionType of RFC 7301, section 3.1.
const ALPN: u16 = 16;
/// ExtensionTypes of RFC 8446, section 4.2.
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;

/// The version and the extensions of a hello (RFC 8446, section 4.1.2). Up to TLS 1.2, there may
/// be no extensions.
fn parts(body: &[u8]) -> Option<(u16, &[u8])> {
    let mut fields = Reader { rest: body };
    let legacy_version = fields.u16()?;
    fields.bytes(32)?; // The random value.
    let session_id = fields.vector8()?;
    let cipher_suites = fields.vector16()?;
    let compression_methods = fields.vector8()?;
    let extensions = if fields.rest.is_empty() { &[] } else { fields.vector16()? };
    let is_valid = session_id.len() <= 32
        && !cipher_suites.is_empty()
        && cipher_suites.len().is_multiple_of(2)
        && !compression_methods.is_empty()
        && fields.rest.is_empty();
    is_valid.then_some((legacy_version, extensions))
}

/// The highest version of a client that lists no versions: TLS 1.2 at most (RFC 8446, section
/// 4.2.1).
fn highest_legacy(version: u16) -> Option<Version> {
    Version::of(version.min(0x0303))
}

/// The name in a list of them (RFC 6066, section 3). Kinds of names other than of a host are not
/// defined; what they have in common is their length.
fn server_name(value: &[u8]) -> Result<Option<ServerName>, ClientHelloError> {
    let names = only_vector16(value).ok_or(ClientHelloError::ServerNameListInvalid)?;
    let mut names = Reader { rest: names };
    let mut host = None;
    while !names.rest.is_empty() {
        let kind = names.u8().ok_or(ClientHelloError::ServerNameListInvalid)?;
        let name = names.vector16().ok_or(ClientHelloError::ServerNameListInvalid)?;
        if name.is_empty() {
            return Err(ClientHelloError::ServerNameListInvalid);
        }
        if kind == HOST_NAME && host.replace(name).is_some() {
            return Err(ClientHelloError::ServerNameRepeated);
        }
    }
    match host {
        Some(host) if !is_address(host) => match ServerName::parse(host) {
            None => Err(ClientHelloError::ServerNameInvalid),
            name => Ok(name),
        },
        _ => Ok(None),
    }
}

/// NameType `host_name`.
const HOST_NAME: u8 = 0;

fn is_address(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(|name| name.parse::<IpAddr>().is_ok())
}

/// The list in an ALPN extension, with at least one protocol (RFC 7301, section 3.1).
fn protocols(value: &[u8]) -> Option<&[u8]> {
    let list = only_vector16(value)?;
    let mut names = Reader { rest: list };
    while !names.rest.is_empty() {
        names.vector8().filter(|name| !name.is_empty())?;
    }
    Some(list)
}

/// The list in a supported versions extension (RFC 8446, section 4.2.1).
fn versions(value: &[u8]) -> Option<&[[u8; 2]]> {
    let mut fields = Reader { rest: value };
    let list = fields.vector8()?;
    let (versions, odd) = list.as_chunks();
    (fields.rest.is_empty() && odd.is_empty() && !versions.is_empty()).then_some(versions)
}

fn version(code: &[u8; 2]) -> Option<Version> {
    Version::of(u16::from_be_bytes(*code))
}

/// The one vector that a value consists of, which is not empty.
fn only_vector16(value: &[u8]) -> Option<&[u8]> {
    let mut fields = Reader { rest: value };
    let vector = fields.vector16()?;
    (fields.rest.is_empty() && !vector.is_empty()).then_some(vector)
}

/// Names of protocols as they stand in ALPN, `h2` or `http/1.1`; those of GREASE are left out.
#[derive(Clone, Debug)]
pub struct AlpnProtocols<'a> {
    list: Reader<'a>,
}

impl<'a> Iterator for AlpnProtocols<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let name = self.list.vector8()?;
            if !is_grease(name) {
                return Some(name);
            }
        }
    }
}

/// Whether a protocol's name is one of those that mean nothing (RFC 8701, section 2).
fn is_grease(name: &[u8]) -> bool {
    matches!(name, [first, second] if first == second && first & 0xf == 0xa)
}

/// Which extensions there were. A bit for each, because a peer may send thousands.
struct Seen([u64; 1024]);

impl Seen {
    /// Says whether `kind` was not there before.
    fn insert(&mut self, kind: u16) -> bool {
        let bit = 1 << (kind % 64);
        let Some(word) = self.0.get_mut(usize::from(kind / 64)) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Takes fields from the front, or nothing if they are not there.
#[derive(Clone, Debug)]
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        let (&octet, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(octet)
    }

    fn u16(&mut self) -> Option<u16> {
        let (&octets, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u16::from_be_bytes(octets))
    }

    /// A vector behind its length of one byte.
    fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.bytes(usize::from(len))
    }

    /// A vector behind its length of two bytes.
    fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector8(bytes: &[u8]) -> Vec<u8> {
        [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn vector16(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector16(value)].concat()
    }

    fn host(name: &str) -> Vec<u8> {
        [&[HOST_NAME][..], &vector16(name.as_bytes())].concat()
    }

    fn named(name: &str) -> Vec<u8> {
        extension(SERVER_NAME, &vector16(&host(name)))
    }

    fn with_message(body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO], &len[1..], body].concat()
    }

    /// The fields before the extensions, of a client of `version`.
    fn front(version: u16) -> Vec<u8> {
        [&version.to_be_bytes()[..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat()
    }

    fn message(version: u16, extensions: &[u8]) -> Vec<u8> {
        with_message(&[front(version), vector16(extensions)].concat())
    }

    fn record(fragment: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE_RECORD, 3, 1][..], &vector16(fragment)].concat()
    }

    fn hello(extensions: &[u8]) -> Vec<u8> {
        record(&message(0x0303, extensions))
    }

    type HelloFacts = (Option<String>, Option<Version>, Vec<Vec<u8>>);

    fn decoded(input: &[u8]) -> Result<Option<HelloFacts>, ClientHelloError> {
        let mut scratch = b"whatever".to_vec();
        let hello = decode(input, &mut scratch)?;
        Ok(hello.map(|hello| {
            let name = hello.server_name.map(|name| name.to_string());
            (name, hello.highest_version, hello.alpn().map(<[u8]>::to_vec).collect())
        }))
    }

    fn name_of(input: &[u8]) -> Result<Option<String>, ClientHelloError> {
        decoded(input).map(|facts| facts.unwrap().0)
    }

    /// A hello of `len` bytes that names a host, before it is cut into records.
    fn message_of_len(len: usize) -> Vec<u8> {
        let bare = message(0x0303, &[named("shop.example"), extension(21, &[])].concat());
        let padding = extension(21, &vec![0; len - bare.len()]);
        message(0x0303, &[padding, named("shop.example")].concat())
    }

    fn records_of(message: &[u8], fragment_len: usize) -> Vec<u8> {
        message.chunks(fragment_len).flat_map(record).collect()
    }

    #[test]
    fn names_are_read() {
        for (name, expected) in [
            ("shop.example", Some("shop.example")),
            ("SHOP.example.", Some("shop.example")),
            ("192.0.2.1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(name_of(&hello(&named(name))), Ok(expected.map(str::to_owned)), "{name}");
        }
        // An undefined kind of name.
        let other = [&[9][..], &vector16(b"\0")].concat();
        let both = vector16(&[other.clone(), host("a"), other.clone()].concat());
        assert_eq!(name_of(&hello(&extension(SERVER_NAME, &both))), Ok(Some("a".into())));
        assert_eq!(name_of(&hello(&extension(SERVER_NAME, &vector16(&other)))), Ok(None));
        assert_eq!(name_of(&hello(&[])), Ok(None));
    }

    #[test]
    fn the_highest_version_is_returned() {
        use Version::{Ssl30, Tls10, Tls11, Tls12, Tls13};
        let listed = |versions: &[u16]| {
            let codes: Vec<u8> = versions.iter().flat_map(|code| code.to_be_bytes()).collect();
            extension(SUPPORTED_VERSIONS, &vector8(&codes))
        };
        for (legacy, extensions, expected) in [
            (0x0300, vec![], Some(Ssl30)),
            (0x0301, vec![], Some(Tls10)),
            (0x0302, vec![], Some(Tls11)),
            (0x0303, vec![], Some(Tls12)),
            (0x0304, vec![], Some(Tls12)),
            (0xffff, vec![], Some(Tls12)),
            (0x0200, vec![], None),
            (0x0303, listed(&[0x0304]), Some(Tls13)),
            (0x0303, listed(&[0x0302, 0x0304, 0x0303]), Some(Tls13)),
            (0x0303, listed(&[0xdada, 0x0305, 0x7f1c, 0x0303]), Some(Tls12)),
            (0x0303, listed(&[0x0301]), Some(Tls10)),
            (0x0303, listed(&[0x0a0a]), None),
        ] {
            let (_, version, _) = decoded(&record(&message(legacy, &extensions))).unwrap().unwrap();
            assert_eq!(version, expected, "{legacy:#x} {extensions:x?}");
        }
    }

    #[test]
    fn protocols_are_listed_without_grease() {
        let names = [&b"\x02\xaa\xaa"[..], b"\x02h2", b"\x02\x0a\x1a", b"\x08http/1.1"].concat();
        let (_, _, alpn) = decoded(&hello(&extension(ALPN, &vector16(&names)))).unwrap().unwrap();
        assert_eq!(alpn, [&b"h2"[..], b"\x0a\x1a", b"http/1.1"]);
        assert_eq!(decoded(&hello(&[])).unwrap().unwrap().2, [b""; 0]);
    }

    #[test]
    fn old_hellos_have_no_extensions() {
        let input = record(&with_message(&front(0x0301)));
        assert_eq!(decoded(&input), Ok(Some((None, Some(Version::Tls10), vec![]))));
    }

    #[test]
    fn extensions_that_mean_nothing_here_are_skipped() {
        let extensions: Vec<u8> = [0x0a0a, 0xfe0d, 0xfafa, 51, 35, 0xffff]
            .iter()
            .flat_map(|&kind| extension(kind, b"any"))
            .chain(named("a"))
            .collect();
        assert_eq!(name_of(&hello(&extensions)), Ok(Some("a".into())));
        let many: Vec<u8> = (100..8000).flat_map(|kind| extension(kind, b"")).collect();
        let many = message(0x0303, &many);
        assert_eq!(name_of(&records_of(&many, 1 << 14)), Ok(None));
    }

    #[test]
    fn a_hello_is_read_out_of_records_of_any_size() {
        let usual = message(0x0303, &named("shop.example"));
        for fragment_len in 1..=usual.len() {
            let input = records_of(&usual, fragment_len);
            for cut in 0..input.len() {
                assert_eq!(decoded(&input[..cut]), Ok(None), "{fragment_len}: {cut}");
            }
            let expected = Ok(Some("shop.example".to_owned()));
            assert_eq!(name_of(&input), expected, "{fragment_len}");
            assert_eq!(name_of(&[&input[..], b"\x17\x03"].concat()), expected, "{fragment_len}");
        }
    }

    #[test]
    fn a_hello_may_be_as_long_as_its_bound() {
        let headers = 2 * RECORD_HEADER_LEN;
        let longest = CLIENT_HELLO_BYTES_MAX - headers;
        let half = longest.div_ceil(2);
        let input = records_of(&message_of_len(longest), half);
        assert_eq!(input.len(), CLIENT_HELLO_BYTES_MAX);
        assert_eq!(name_of(&input), Ok(Some("shop.example".into())));
        assert_eq!(decoded(&input[..input.len() - 1]), Ok(None));

        let input = records_of(&message_of_len(longest + 1), half);
        assert_eq!(decoded(&input[..CLIENT_HELLO_BYTES_MAX - 1]), Ok(None));
        assert_eq!(decoded(&input[..CLIENT_HELLO_BYTES_MAX]), Err(ClientHelloError::TooLong));
        assert_eq!(decoded(&input), Err(ClientHelloError::TooLong));

        // One that cannot end in time is refused before it comes.
        let limit = CLIENT_HELLO_BYTES_MAX - RECORD_HEADER_LEN - MESSAGE_HEADER_LEN;
        for (len, expected) in [(limit, Ok(None)), (limit + 1, Err(ClientHelloError::TooLong))] {
            let len = u32::try_from(len).unwrap().to_be_bytes();
            let begin = record(&[&[CLIENT_HELLO], &len[1..]].concat());
            assert_eq!(decoded(&begin), expected);
        }
        let full = record(&vec![CLIENT_HELLO; usize::from(FRAGMENT_BYTES_MAX)]);
        assert_eq!(decoded(&full[..full.len() - 1]), Ok(None));
        assert_eq!(decoded(&full), Err(ClientHelloError::TooLong));
    }

    #[test]
    fn scratch_is_used_only_for_what_spans_records() {
        let usual = message(0x0303, &named("shop.example"));
        let mut scratch = Vec::new();
        assert!(decode(&record(&usual), &mut scratch).unwrap().is_some());
        assert_eq!(scratch.capacity(), 0);
        assert!(decode(&records_of(&usual, 50), &mut scratch).unwrap().is_some());
        assert_eq!(scratch, usual);
    }

    #[test]
    fn what_is_no_hello_is_refused_at_its_first_wrong_byte() {
        for bytes in [
            &b"G"[..],
            b"\x15",
            b"\x80\x2e\x01",
            b"\x16\x02",
            b"\x16\x03\x05",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\x40\x01",
            b"\x16\x03\x01\xff\xff",
            b"\x16\x03\x01\x02\x00\x02",
        ] {
            let refused = Err(ClientHelloError::NotClientHello);
            assert_eq!(decoded(bytes), refused, "{}", bytes.escape_ascii());
            let first_wrong = (1..).find(|&len| decoded(&bytes[..len]) == refused).unwrap();
            // The first byte of what SSL 2.0 sends is wrong already.
            let expected = if bytes[0] == 0x80 { 1 } else { bytes.len() };
            assert_eq!(first_wrong, expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn other_records_amid_a_hello_are_refused() {
        use ClientHelloError::{BytesBehind, RecordEmpty, RecordTooLong, RecordUnexpected};
        let usual = message(0x0303, &named("shop.example"));
        let (front, back) = usual.split_at(50);
        for (next, error) in [
            (b"\x14\x03\x03\x00\x01\x01".to_vec(), RecordUnexpected),
            (b"\x15\x03\x03\x00\x02\x01\x00".to_vec(), RecordUnexpected),
            (b"\x16\x02\x03\x00\x01\x01".to_vec(), RecordUnexpected),
            (b"\x16\x03\x05\x00\x01\x01".to_vec(), RecordUnexpected),
            (b"\x16\x03\x03\x00\x00".to_vec(), RecordEmpty),
            (b"\x16\x03\x03\x40\x01".to_vec(), RecordTooLong),
            (record(&[back, b"\x01"].concat()), BytesBehind),
        ] {
            let input = [record(front), next].concat();
            assert_eq!(decoded(&input), Err(error), "{}", input.escape_ascii());
        }
        assert_eq!(decoded(&record(&[&usual[..], b"\x01"].concat())), Err(BytesBehind));
    }

    #[test]
    fn messages_that_cannot_be_decoded_are_refused() {
        let front = front(0x0303);
        let parts = |session: usize, ciphers: usize, compressions: usize, rest: &[u8]| {
            let session = vector8(&vec![1; session]);
            let (ciphers, compressions) =
                (vector16(&vec![2; ciphers]), vector8(&vec![0; compressions]));
            [&front[..34], &session, &ciphers, &compressions, rest].concat()
        };
        let accepted = parts(32, 2, 1, &vector16(&named("a")));
        assert_eq!(name_of(&record(&with_message(&accepted))), Ok(Some("a".into())));
        for body in [
            vec![],
            parts(33, 2, 1, &[]),
            parts(0, 0, 1, &[]),
            parts(0, 3, 1, &[]),
            parts(0, 2, 0, &[]),
            parts(0, 2, 1, &[0]),
            parts(0, 2, 1, &[0, 1]),
            parts(0, 2, 1, &[0, 0, 0]),
        ]
        .into_iter()
        .chain((0..front.len()).map(|cut| front[..cut].to_vec()))
        {
            let input = record(&with_message(&body));
            assert_eq!(decoded(&input), Err(ClientHelloError::MessageInvalid), "{body:x?}");
        }
    }

    #[test]
    fn extensions_that_break_a_rule_are_refused() {
        use ClientHelloError::{
            AlpnInvalid, ExtensionRepeated, ExtensionsInvalid, ServerNameInvalid,
            ServerNameListInvalid, ServerNameRepeated, VersionsInvalid,
        };
        let names = |value: &[u8]| extension(SERVER_NAME, value);
        let alpn = |value: &[u8]| extension(ALPN, value);
        let versions = |value: &[u8]| extension(SUPPORTED_VERSIONS, value);
        for (extensions, error) in [
            (vec![0], ExtensionsInvalid),
            (vec![0, 0, 0], ExtensionsInvalid),
            (vec![0, 5, 0, 1], ExtensionsInvalid),
            ([named("a"), vec![0]].concat(), ExtensionsInvalid),
            ([named("a"), named("a")].concat(), ExtensionRepeated),
            ([extension(0x0a0a, b""), extension(0x0a0a, b"")].concat(), ExtensionRepeated),
            ([extension(0xffff, b"1"), extension(0xffff, b"2")].concat(), ExtensionRepeated),
            (names(b""), ServerNameListInvalid),
            (names(b"\0\0"), ServerNameListInvalid),
            (names(b"\0\x03\0\0\0"), ServerNameListInvalid),
            (names(b"\0\x04\0\0\x01"), ServerNameListInvalid),
            (names(b"\0\x04\0\0\x02a"), ServerNameListInvalid),
            (names(b"\0\x05\0\0\x01aa"), ServerNameListInvalid),
            (names(b"\0\x04\0\0\x01aa"), ServerNameListInvalid),
            (names(b"\0\x03\x09\0\0"), ServerNameListInvalid),
            (names(&vector16(&[host("a"), host("b")].concat())), ServerNameRepeated),
            (names(&vector16(&[host("a"), host("a")].concat())), ServerNameRepeated),
            (named("a..b"), ServerNameInvalid),
            (named("."), ServerNameInvalid),
            (named("a\0.b"), ServerNameInvalid),
            (named("*.example"), ServerNameInvalid),
            (named("a:443"), ServerNameInvalid),
            (named("[::1]"), ServerNameInvalid),
            (named("192.0.2.1."), ServerNameInvalid),
            (named("192.0.2.256"), ServerNameInvalid),
            (named("b\u{fc}cher.example"), ServerNameInvalid),
            (named(&"a".repeat(64)), ServerNameInvalid),
            (named(&"a.".repeat(200)), ServerNameInvalid),
            (alpn(b""), AlpnInvalid),
            (alpn(b"\0\0"), AlpnInvalid),
            (alpn(b"\0\x01\0"), AlpnInvalid),
            (alpn(b"\0\x04\x02h2\0"), AlpnInvalid),
            (alpn(b"\0\x03\x03h2"), AlpnInvalid),
            (alpn(b"\0\x03\x02h2\0"), AlpnInvalid),
            (alpn(b"\0\x04\x02h2"), AlpnInvalid),
            (versions(b""), VersionsInvalid),
            (versions(b"\0"), VersionsInvalid),
            (versions(b"\x01\x03"), VersionsInvalid),
            (versions(b"\x03\x03\x04\x03"), VersionsInvalid),
            (versions(b"\x02\x03\x04\x03"), VersionsInvalid),
            (versions(b"\x04\x03\x04"), VersionsInvalid),
        ] {
            let input = hello(&extensions);
            assert_eq!(decoded(&input), Err(error), "{}", extensions.escape_ascii());
            let before = &input[..input.len() - 1];
            assert_eq!(decoded(before), Ok(None), "not before: {}", extensions.escape_ascii());
        }
    }

    #[test]
    fn every_refusal_has_an_alert() {
        for (error, code) in [
            (ClientHelloError::NotClientHello, 10),
            (ClientHelloError::RecordTooLong, 22),
            (ClientHelloError::ExtensionRepeated, 47),
            (ClientHelloError::TooLong, 50),
        ] {
            assert_eq!(error.alert().code(), code, "{error}");
        }
    }
}
