//! The PROXY protocol, versions 1 and 2: the proxy in front sends the addresses of the connection
//! that it accepted (HAProxy's `proxy-protocol.txt`).
//!
//! The header comes before everything else on a connection, so the first octet that cannot begin
//! one is refused at once. Only believe it from peers that are trusted to send it.
//!
//! Version 2 may carry further fields (TLVs). They are bounded, checked for their shape and
//! skipped; a CRC32c among them is verified.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fmt, str};

use thiserror::Error;

use crate::buffer::Buffer;

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The proxy speaks for itself, as in a health check: the connection's own addresses hold.
    Local,
    /// The proxy forwards a connection.
    Proxied {
        /// The client's address.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// The proxy forwards a connection that is not TCP over IP (such as one of a unix socket), or
    /// does not say: the connection's own addresses hold.
    Unspecified,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyProtocolError {
    /// Addresses or ports that are none, or are not of the family that was named.
    #[error("invalid addresses")]
    AddressInvalid,
    /// The checksum does not match.
    #[error("the checksum does not match")]
    ChecksumWrong,
    /// A command other than LOCAL and PROXY.
    #[error("an unknown command")]
    CommandUnknown,
    /// An address family or transport that is not defined.
    #[error("an unknown address family")]
    FamilyUnknown,
    /// The line or the block is longer than allowed.
    #[error("the header is too long")]
    TooLong,
    /// Neither signature stands at the front.
    #[error("no header")]
    SignatureWrong,
    /// The TLVs do not fill their room exactly.
    #[error("TLVs that do not fit their block")]
    TlvInvalid,
    /// Not version 2 behind the signature of version 2.
    #[error("an unknown version")]
    VersionUnknown,
}

/// The longest line of version 1, its line end included.
pub const V1_BYTES_MAX: usize = 107;

/// The longest header of version 2 that is accepted, TLVs included. What is in use (TLS facts, cloud
/// providers' ids) takes a few hundred bytes.
pub const V2_BYTES_MAX: usize = 4096;

/// The longest header that is written here.
pub const ENCODED_BYTES_MAX: usize = V1_BYTES_MAX;

/// Reads a header from the front of `input`, together with how many bytes it takes, or `None` if
/// more are needed.
///
/// # Errors
///
/// When the bytes that are there cannot begin a header.
pub fn decode(input: &[u8]) -> Result<Option<(Header, usize)>, ProxyProtocolError> {
    match input.first() {
        None => Ok(None),
        Some(b'P') => decode_v1(input),
        Some(_) => decode_v2(input),
    }
}

/// Writes a header of version 1.
///
/// # Panics
///
/// When `out` has less room than [`V1_BYTES_MAX`] and the header needs it.
pub fn encode_v1(source: SocketAddr, destination: SocketAddr, out: &mut Buffer) {
    let (source, destination) = of_one_family(source, destination);
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let mut line = Line { bytes: [0; V1_BYTES_MAX], len: 0 };
    let written = write!(
        line,
        "PROXY {family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port(),
    );
    debug_assert!(written.is_ok(), "the longest line fits");
    out.push(line.bytes.get(..line.len).unwrap_or_default());
}

/// Writes a header of version 1 that names no addresses.
///
/// # Panics
///
/// When `out` has no room for it.
pub fn encode_unknown_v1(out: &mut Buffer) {
    out.push(b"PROXY UNKNOWN\r\n");
}

/// Writes a header of version 2.
///
/// # Panics
///
/// When `out` has less room than [`ENCODED_BYTES_MAX`] and the header needs it.
pub fn encode_v2(source: SocketAddr, destination: SocketAddr, out: &mut Buffer) {
    out.push(&V2_SIGNATURE);
    let (source, destination) = of_one_family(source, destination);
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.push(&[V2_PROXY, TCP4, 0, ADDRESSES4_LEN]);
            out.push(&from.octets());
            out.push(&to.octets());
        }
        (from, to) => {
            out.push(&[V2_PROXY, TCP6, 0, ADDRESSES6_LEN]);
            out.push(&to_v6(from).octets());
            out.push(&to_v6(to).octets());
        }
    }
    out.push(&source.port().to_be_bytes());
    out.push(&destination.port().to_be_bytes());
}

/// Writes a header of version 2 that says that the proxy speaks for itself.
///
/// # Panics
///
/// When `out` has no room for it.
pub fn encode_local_v2(out: &mut Buffer) {
    out.push(&V2_SIGNATURE);
    out.push(&[V2_LOCAL, UNSPECIFIED, 0, 0]);
}

// Version 1: one line of text.

fn decode_v1(input: &[u8]) -> Result<Option<(Header, usize)>, ProxyProtocolError> {
    let window = input.get(..V1_BYTES_MAX).unwrap_or(input);
    let family = V1Family::read(window)?;
    let Some(cr) = window.iter().position(|&octet| !family.is_allowed(octet)) else {
        let is_full = window.len() == V1_BYTES_MAX;
        return if is_full { Err(ProxyProtocolError::TooLong) } else { Ok(None) };
    };
    match window.get(cr..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {}
        [b'\r'] if window.len() < V1_BYTES_MAX => return Ok(None),
        [b'\r'] => return Err(ProxyProtocolError::TooLong),
        _ => return Err(ProxyProtocolError::AddressInvalid),
    }
    let line = window.get(..cr).unwrap_or_default();
    let header = family.header(line).ok_or(ProxyProtocolError::AddressInvalid)?;
    Ok(Some((header, cr + 2)))
}

/// The family behind `PROXY`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum V1Family {
    Tcp4,
    Tcp6,
    Unknown,
    /// Cut off before the family is known.
    Unfinished,
}

impl V1Family {
    const PREFIXES: [(&'static [u8], Self); 3] = [
        (b"PROXY TCP4 ", Self::Tcp4),
        (b"PROXY TCP6 ", Self::Tcp6),
        (b"PROXY UNKNOWN", Self::Unknown),
    ];

    fn read(line: &[u8]) -> Result<Self, ProxyProtocolError> {
        let mut found = Err(ProxyProtocolError::SignatureWrong);
        for (prefix, family) in Self::PREFIXES {
            if line.starts_with(prefix) {
                return match (family, line.get(prefix.len())) {
                    (Self::Unknown, Some(octet)) if !matches!(octet, b' ' | b'\r') => found,
                    _ => Ok(family),
                };
            }
            if prefix.starts_with(line) {
                found = Ok(Self::Unfinished);
            }
        }
        found
    }

    /// Whether an octet may stand in a line of this family, line end aside.
    fn is_allowed(self, octet: u8) -> bool {
        match self {
            // The rest of the line is ignored, but it has to be text.
            Self::Unknown | Self::Unfinished => (0x20..0x7f).contains(&octet),
            Self::Tcp4 | Self::Tcp6 => {
                octet.is_ascii_alphanumeric() || matches!(octet, b' ' | b'.' | b':')
            }
        }
    }

    fn header(self, line: &[u8]) -> Option<Header> {
        let line = str::from_utf8(line).ok()?;
        match self {
            Self::Unknown => Some(Header::Unspecified),
            Self::Unfinished => None,
            Self::Tcp4 => proxied::<Ipv4Addr>(line.strip_prefix("PROXY TCP4 ")?),
            Self::Tcp6 => proxied::<Ipv6Addr>(line.strip_prefix("PROXY TCP6 ")?),
        }
    }
}

/// `source destination source-port destination-port`, with single spaces.
fn proxied<A: str::FromStr + Into<IpAddr>>(text: &str) -> Option<Header> {
    let mut words = text.split(' ');
    let source = words.next()?.parse::<A>().ok()?.into();
    let destination = words.next()?.parse::<A>().ok()?.into();
    let source = SocketAddr::new(source, port(words.next()?)?);
    let destination = SocketAddr::new(destination, port(words.next()?)?);
    words.next().is_none().then_some(Header::Proxied { source, destination })
}

/// Decimal digits without a sign or leading zeros.
fn port(digits: &str) -> Option<u16> {
    match digits.as_bytes() {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => digits.parse().ok(),
        _ => None,
    }
}

/// A line of version 1 while it is written.
struct Line {
    bytes: [u8; V1_BYTES_MAX],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

// Version 2: a binary block.
//
//  0          12       13       14      16
//  ├──────────┼────────┼────────┼───────┼───────────┬──────┤
//  │signature │ver, cmd│fam, tsp│ length│ addresses │ TLVs │

const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_LEN: usize = 16;
const V2_LOCAL: u8 = 0x20;
const V2_PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const ADDRESSES4_LEN: u8 = 12;
const ADDRESSES6_LEN: u8 = 36;
const ADDRESSES_UNIX_LEN: u8 = 216;
const TLV_CRC32C: u8 = 0x03;

fn decode_v2(input: &[u8]) -> Result<Option<(Header, usize)>, ProxyProtocolError> {
    if !input.iter().zip(&V2_SIGNATURE).all(|(octet, right)| octet == right) {
        return Err(ProxyProtocolError::SignatureWrong);
    }
    let command = match input.get(12) {
        None => return Ok(None),
        Some(&command @ (V2_LOCAL | V2_PROXY)) => command,
        Some(0x20..=0x2f) => return Err(ProxyProtocolError::CommandUnknown),
        Some(_) => return Err(ProxyProtocolError::VersionUnknown),
    };
    let family = match input.get(13) {
        None => return Ok(None),
        // A receiver ignores the family of LOCAL.
        Some(&family) if command == V2_LOCAL => family,
        Some(&family @ (UNSPECIFIED | TCP4 | TCP6 | 0x12 | 0x22 | 0x31 | 0x32)) => family,
        Some(_) => return Err(ProxyProtocolError::FamilyUnknown),
    };
    let Some(&[high, low]) = input.get(14..).and_then(<[u8]>::first_chunk::<2>) else {
        return Ok(None);
    };
    let len = V2_FIXED_LEN + usize::from(u16::from_be_bytes([high, low]));
    if len > V2_BYTES_MAX {
        return Err(ProxyProtocolError::TooLong);
    }
    let addresses_len = match (command, family) {
        (V2_PROXY, TCP4 | 0x12) => ADDRESSES4_LEN,
        (V2_PROXY, TCP6 | 0x22) => ADDRESSES6_LEN,
        (V2_PROXY, 0x31 | 0x32) => ADDRESSES_UNIX_LEN,
        _ => 0,
    };
    if len < V2_FIXED_LEN + usize::from(addresses_len) {
        return Err(ProxyProtocolError::AddressInvalid);
    }
    let Some(header) = input.get(..len) else { return Ok(None) };
    let body = header.get(V2_FIXED_LEN..).unwrap_or_default();
    if command == V2_LOCAL || family == UNSPECIFIED {
        // The addresses have no known form and are skipped.
        let local = command == V2_LOCAL;
        return Ok(Some((if local { Header::Local } else { Header::Unspecified }, len)));
    }
    let (addresses, _) = body.split_at_checked(usize::from(addresses_len)).unwrap_or_default();
    check_tlvs(header, V2_FIXED_LEN + usize::from(addresses_len))?;
    Ok(Some((v2_addresses(family, addresses), len)))
}

fn v2_addresses(family: u8, addresses: &[u8]) -> Header {
    let (source, destination, ports) = match family {
        TCP4 => {
            let Some((addresses, ports)) = addresses.split_first_chunk::<8>() else {
                return Header::Unspecified;
            };
            let [a, b, c, d, e, f, g, h] = *addresses;
            (Ipv4Addr::new(a, b, c, d).into(), Ipv4Addr::new(e, f, g, h).into(), ports)
        }
        TCP6 => {
            let Some((source, rest)) = addresses.split_first_chunk::<16>() else {
                return Header::Unspecified;
            };
            let Some((destination, ports)) = rest.split_first_chunk::<16>() else {
                return Header::Unspecified;
            };
            (Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), ports)
        }
        _ => return Header::Unspecified,
    };
    let Some(&[a, b, c, d]) = ports.first_chunk::<4>() else { return Header::Unspecified };
    let source: SocketAddr = SocketAddr::new(source, u16::from_be_bytes([a, b]));
    let destination = SocketAddr::new(destination, u16::from_be_bytes([c, d]));
    Header::Proxied { source, destination }
}

/// Checks that the TLVs of `header`, which begin at `at`, fill it exactly, and their checksum if
/// there is one.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), ProxyProtocolError> {
    while let Some(rest) = header.get(at..).filter(|rest| !rest.is_empty()) {
        let Some((&[kind, high, low], values)) = rest.split_first_chunk::<3>() else {
            return Err(ProxyProtocolError::TlvInvalid);
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let value = values.get(..len).ok_or(ProxyProtocolError::TlvInvalid)?;
        if kind == TLV_CRC32C {
            let stated = value.first_chunk::<4>().filter(|_| len == 4);
            let stated = u32::from_be_bytes(*stated.ok_or(ProxyProtocolError::TlvInvalid)?);
            if crc32c_without(header, at + 3) != stated {
                return Err(ProxyProtocolError::ChecksumWrong);
            }
        }
        at += 3 + len;
    }
    Ok(())
}

/// CRC32c of `header` with zeros for the four bytes at `hole`, where the checksum itself stands.
fn crc32c_without(header: &[u8], hole: usize) -> u32 {
    let crc = header.iter().enumerate().fold(u32::MAX, |crc, (at, &octet)| {
        let octet = if (hole..hole + 4).contains(&at) { 0 } else { octet };
        let [low, ..] = (crc ^ u32::from(octet)).to_le_bytes();
        CRC32C.get(usize::from(low)).copied().unwrap_or_default() ^ (crc >> 8)
    });
    !crc
}

/// The Castagnoli polynomial, reflected.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet: u32 = 0;
    while octet < 256 {
        let mut crc = octet;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[octet as usize] = crc;
        octet += 1;
    }
    table
};

/// Both addresses as IPv4 if both are (mapped ones included), else both as IPv6.
fn of_one_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let (from, to) = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => (from, to),
        (from, to) => (to_v6(from).into(), to_v6(to).into()),
    };
    (SocketAddr::new(from, source.port()), SocketAddr::new(to, destination.port()))
}

fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(source: &str, destination: &str) -> Header {
        Header::Proxied {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    /// A header of version 2 from its two bytes and what follows the length.
    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&V2_SIGNATURE[..], &[command, family], &len, body].concat()
    }

    const ADDRESSES4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x9c, 0x40, 1, 0xbb];

    #[test]
    fn lines_of_version_1_are_read() {
        let long = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let longest = format!("PROXY UNKNOWN {long} {long} 65535 65535\r\n");
        assert_eq!(longest.len(), V1_BYTES_MAX);
        for (line, header) in [
            (
                "PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n",
                proxied("192.0.2.1:40000", "198.51.100.2:443"),
            ),
            ("PROXY TCP6 ::1 2001:DB8::2 0 65535\r\n", proxied("[::1]:0", "[2001:db8::2]:65535")),
            ("PROXY UNKNOWN\r\n", Header::Unspecified),
            ("PROXY UNKNOWN whatever is here\r\n", Header::Unspecified),
            (&longest, Header::Unspecified),
        ] {
            assert_eq!(decode(line.as_bytes()), Ok(Some((header, line.len()))), "{line}");
            let followed = format!("{line}GET /");
            assert_eq!(decode(followed.as_bytes()), Ok(Some((header, line.len()))), "{line}");
            for cut in 0..line.len() {
                assert_eq!(decode(&line.as_bytes()[..cut]), Ok(None), "{cut} of {line}");
            }
        }
    }

    #[test]
    fn other_lines_are_refused_where_they_go_wrong() {
        use ProxyProtocolError::{AddressInvalid, SignatureWrong, TooLong};
        let long = format!("PROXY UNKNOWN {}", "x".repeat(V1_BYTES_MAX - 14));
        for (line, error) in [
            ("PO", SignatureWrong),
            ("PROXY  ", SignatureWrong),
            ("PROXY TCP5", SignatureWrong),
            ("PROXY t", SignatureWrong),
            ("PROXY UNKNOWNX", SignatureWrong),
            ("PROXY UNKNOWN\n", SignatureWrong),
            ("PROXY UNKNOWN \u{0}", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\rx", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 +", AddressInvalid),
            ("PROXY TCP4 1.2.3.4/", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", AddressInvalid),
            ("PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", AddressInvalid),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n", AddressInvalid),
            ("PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n", AddressInvalid),
            ("PROXY TCP4 ::1 ::2 1 2\r\n", AddressInvalid),
            ("PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", AddressInvalid),
            ("PROXY TCP6 ::1 ::g 1 2\r\n", AddressInvalid),
            (&long, TooLong),
        ] {
            let bytes = line.as_bytes();
            assert_eq!(decode(bytes), Err(error), "{line:?}");
            assert_eq!(decode(&bytes[..bytes.len() - 1]), Ok(None), "not before: {line:?}");
        }
    }

    #[test]
    fn blocks_of_version_2_are_read() {
        let v6 = [&[0x20; 16][..], &[0x30; 16], &[0, 1, 0, 2]].concat();
        let tlvs = [&ADDRESSES4[..], &[1, 0, 2, b'h', b'2', 4, 0, 0]].concat();
        let addresses4 = proxied("192.0.2.1:40000", "198.51.100.2:443");
        let addresses6 = proxied(
            "[2020:2020:2020:2020:2020:2020:2020:2020]:1",
            "[3030:3030:3030:3030:3030:3030:3030:3030]:2",
        );
        for (bytes, header) in [
            (v2(V2_PROXY, TCP4, &ADDRESSES4), addresses4),
            (v2(V2_PROXY, TCP6, &v6), addresses6),
            (v2(V2_PROXY, TCP4, &tlvs), addresses4),
            (v2(V2_PROXY, 0x12, &ADDRESSES4), Header::Unspecified),
            (v2(V2_PROXY, 0x22, &v6), Header::Unspecified),
            (v2(V2_PROXY, 0x31, &[b'/'; 216]), Header::Unspecified),
            (v2(V2_PROXY, 0x32, &[b'/'; 216]), Header::Unspecified),
            (v2(V2_PROXY, UNSPECIFIED, &[]), Header::Unspecified),
            (v2(V2_PROXY, UNSPECIFIED, &[9; 5]), Header::Unspecified),
            (v2(V2_LOCAL, UNSPECIFIED, &[]), Header::Local),
            (v2(V2_LOCAL, 0xff, &[9; 5]), Header::Local),
            (v2(V2_PROXY, UNSPECIFIED, &[0; V2_BYTES_MAX - 16]), Header::Unspecified),
        ] {
            assert_eq!(decode(&bytes), Ok(Some((header, bytes.len()))), "{bytes:x?}");
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Ok(None), "{cut} of {bytes:x?}");
            }
        }
    }

    #[test]
    fn other_blocks_are_refused_where_they_go_wrong() {
        use ProxyProtocolError::{
            AddressInvalid, ChecksumWrong, CommandUnknown, FamilyUnknown, SignatureWrong,
            TlvInvalid, TooLong, VersionUnknown,
        };
        let front = |len, byte| {
            let mut bytes = v2(V2_PROXY, TCP4, &ADDRESSES4)[..len].to_vec();
            *bytes.last_mut().unwrap() = byte;
            bytes
        };
        let with = |tlvs: &[u8]| v2(V2_PROXY, TCP4, &[&ADDRESSES4, tlvs].concat());
        for (bytes, error) in [
            (front(1, b'G'), SignatureWrong),
            (front(1, 0x16), SignatureWrong),
            (front(12, b'X'), SignatureWrong),
            (front(13, 0x11), VersionUnknown),
            (front(13, 0x31), VersionUnknown),
            (front(13, 0x22), CommandUnknown),
            (front(14, 0x41), FamilyUnknown),
            (front(14, 0x13), FamilyUnknown),
            (front(16, 11), AddressInvalid),
            (with(&[1]), TlvInvalid),
            (with(&[1, 0]), TlvInvalid),
            (with(&[1, 0, 1]), TlvInvalid),
            (with(&[1, 0xff, 0xff, 1]), TlvInvalid),
            (with(&[TLV_CRC32C, 0, 3, 1, 2, 3]), TlvInvalid),
            (with(&[TLV_CRC32C, 0, 5, 1, 2, 3, 4, 5]), TlvInvalid),
            (with(&[TLV_CRC32C, 0, 4, 1, 2, 3, 4]), ChecksumWrong),
        ] {
            assert_eq!(decode(&bytes), Err(error), "{bytes:x?}");
            assert_eq!(decode(&bytes[..bytes.len() - 1]), Ok(None), "not before: {bytes:x?}");
        }
        let long = v2(V2_PROXY, UNSPECIFIED, &[0; V2_BYTES_MAX - 15]);
        assert_eq!(decode(&long[..16]), Err(TooLong), "before the block comes");
    }

    #[test]
    fn a_right_checksum_is_accepted_wherever_it_stands() {
        for before in [&[][..], &[1, 0, 2, b'h', b'2']] {
            for after in [&[][..], &[4, 0, 1, 0]] {
                let hole = [TLV_CRC32C, 0, 4, 0, 0, 0, 0];
                let mut bytes = v2(V2_PROXY, TCP4, &[&ADDRESSES4, before, &hole, after].concat());
                let at = V2_FIXED_LEN + ADDRESSES4.len() + before.len() + 3;
                let crc = crc32c_without(&bytes, at).to_be_bytes();
                bytes[at..at + 4].copy_from_slice(&crc);
                assert!(matches!(decode(&bytes), Ok(Some((Header::Proxied { .. }, _)))));
                // Without its kind there is no checksum to compare.
                let kind = 8 * (at - 3)..8 * (at - 2);
                for bit in (0..8 * bytes.len()).filter(|bit| !kind.contains(bit)) {
                    let mut damaged = bytes.clone();
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    assert_ne!(decode(&damaged), decode(&bytes), "bit {bit}");
                }
            }
        }
    }

    /// The check value of the polynomial, as in the catalogue of CRC algorithms.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc32c_without(b"123456789", 100), 0xe306_9283);
    }

    #[test]
    fn what_is_written_is_read() {
        for (source, destination, text) in [
            ("192.0.2.1:1", "198.51.100.2:2", "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n"),
            ("[::1]:1", "[2001:db8::2]:2", "PROXY TCP6 ::1 2001:db8::2 1 2\r\n"),
            // Of two families: as IPv6. Mapped ones: as what they are.
            ("192.0.2.1:1", "[::2]:2", "PROXY TCP6 ::ffff:192.0.2.1 ::2 1 2\r\n"),
            ("[::1]:1", "192.0.2.2:2", "PROXY TCP6 ::1 ::ffff:192.0.2.2 1 2\r\n"),
            ("[::ffff:192.0.2.1]:1", "192.0.2.2:2", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
        ] {
            let (from, to) = (source.parse().unwrap(), destination.parse().unwrap());
            let (expected_from, expected_to) = of_one_family(from, to);
            let expected = Header::Proxied { source: expected_from, destination: expected_to };
            let mut out = Buffer::new(ENCODED_BYTES_MAX);
            encode_v1(from, to, &mut out);
            assert_eq!(out.filled(), text.as_bytes());
            assert_eq!(decode(out.filled()), Ok(Some((expected, out.len()))));
            out.clear();
            encode_v2(from, to, &mut out);
            assert_eq!(decode(out.filled()), Ok(Some((expected, out.len()))), "{text}");
        }
        let mut out = Buffer::new(ENCODED_BYTES_MAX);
        encode_unknown_v1(&mut out);
        assert_eq!(decode(out.filled()), Ok(Some((Header::Unspecified, out.len()))));
        out.clear();
        encode_local_v2(&mut out);
        assert_eq!(decode(out.filled()), Ok(Some((Header::Local, out.len()))));
    }

    #[test]
    fn the_longest_line_is_written() {
        let longest: SocketAddr =
            "[1111:2222:3333:4444:5555:6666:7777:8888]:65535".parse().unwrap();
        let mut out = Buffer::new(ENCODED_BYTES_MAX);
        encode_v1(longest, longest, &mut out);
        assert_eq!(decode(out.filled()).unwrap().unwrap().1, out.len());
    }
}
