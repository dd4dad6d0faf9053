//! The PROXY protocol, versions 1 and 2: whom a connection was accepted from, as told by the proxy
//! in front (HAProxy's `proxy-protocol.txt`).
//!
//! The header comes before everything else on a connection, so the first octet that cannot begin
//! one is refused at once. Only believe it from peers that are trusted to send it.
//!
//! Version 2 may carry further facts (TLVs). They are bounded, checked for their shape and skipped;
//! a CRC32c among them is verified.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fmt, str};

use thiserror::Error;

use crate::buffer::Buffer;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The proxy speaks for itself, as in a health check: the connection's own addresses hold.
    Local,
    /// The proxy forwards a connection.
    Proxied {
        /// Who opened it.
        source: SocketAddr,
        /// What it was opened to.
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
    #[error("addresses that are none")]
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

/// What stands behind `PROXY`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum V1Family {
    Tcp4,
    Tcp6,
    Unknown,
    /// Cut off before it can be told.
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
            // What follows is to be ignored, but it is text.
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
        // What follows has no known shape and is skipped.
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
