//! Addresses as text, on the stack.

use std::fmt::Write;
use std::time::SystemTime;

use config::snapshot::Address;

use crate::tools::peer_address::PeerAddress;

/// Bytes of the longest address that is written: `[` IPv6 with scope `]:` port, or the end of a
/// unix socket's path.
const TEXT_BYTES_MAX: usize = 108;

/// A short text in place; what does not fit is cut.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Text {
    pub(crate) const EMPTY: Self = Self { bytes: [0; TEXT_BYTES_MAX], len: 0 };

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The address of an endpoint, as in the configuration.
    pub(crate) fn of_address(address: Option<&Address>) -> Self {
        let mut text = Self::EMPTY;
        match address {
            Some(Address::Tcp(address)) => text.push_socket(*address),
            Some(Address::Unix(path)) => {
                text.push(b"unix:");
                text.push(path.as_os_str().as_encoded_bytes());
            }
            None => {}
        }
        text
    }

    /// An address with its port.
    pub(crate) fn of_socket(address: std::net::SocketAddr) -> Self {
        let mut text = Self::EMPTY;
        text.push_socket(address);
        text
    }

    /// The address of a peer, without its port.
    pub(crate) fn of_ip(peer: &PeerAddress) -> Self {
        let mut text = Self::EMPTY;
        match peer {
            PeerAddress::V4(ip, _) => text.push_octets(ip.octets()),
            PeerAddress::V6(address) => {
                let _ = write!(text, "{}", address.ip());
            }
            PeerAddress::Unix => text.push(b"unix"),
        }
        text
    }

    /// A date as HTTP has it (RFC 9110, section 5.6.7).
    pub(crate) fn of_date(date: SystemTime) -> Self {
        let mut text = Self::EMPTY;
        let _ = write!(text, "{}", httpdate::HttpDate::from(date));
        text
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for (place, byte) in self.bytes.iter_mut().skip(self.len).zip(bytes) {
            *place = *byte;
        }
        self.len = (self.len + bytes.len()).min(TEXT_BYTES_MAX);
    }

    fn push_socket(&mut self, address: std::net::SocketAddr) {
        match address {
            std::net::SocketAddr::V4(v4) => {
                self.push_octets(v4.ip().octets());
                self.push(b":");
                self.push_number(v4.port());
            }
            std::net::SocketAddr::V6(v6) => {
                let _ = write!(self, "{v6}");
            }
        }
    }

    /// Faster than `fmt`, and every request asks for it.
    fn push_octets(&mut self, octets: [u8; 4]) {
        for (place, octet) in octets.into_iter().enumerate() {
            if place > 0 {
                self.push(b".");
            }
            self.push_number(u16::from(octet));
        }
    }

    pub(crate) fn push_number(&mut self, number: u16) {
        let digits = [10_000, 1_000, 100, 10, 1].map(|unit| number / unit % 10);
        let zeros = digits.iter().take(4).take_while(|digit| **digit == 0).count();
        for digit in digits.into_iter().skip(zeros) {
            self.push(&[b'0' + digit.to_le_bytes()[0]]);
        }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn addresses_are_written_as_std_writes_them() {
        for address in
            ["1.2.3.4:5", "127.0.0.1:65535", "0.10.100.255:0", "[::1]:80", "[2001:db8::7]:8080"]
        {
            let address: SocketAddr = address.parse().unwrap();
            let text = Text::of_address(Some(&Address::Tcp(address)));
            assert_eq!(text.as_bytes(), address.to_string().as_bytes());
            let text = Text::of_ip(&PeerAddress::from(address));
            assert_eq!(text.as_bytes(), address.ip().to_string().as_bytes());
        }
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        let mut text = Text::EMPTY;
        text.push(&[b'x'; 2 * TEXT_BYTES_MAX]);
        text.push(b"more");
        assert_eq!(text.as_bytes(), [b'x'; TEXT_BYTES_MAX]);
    }
}
