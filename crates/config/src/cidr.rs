//! Ranges of addresses, as `10.0.0.0/8`; an address alone is a range of one.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::findings::Problem;

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix_len: u8,
}

impl Cidr {
    /// Whether `ip` is in it. IPv4 addresses are in no range of IPv6.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        masked(ip, self.prefix_len) == Some(self.network) && ip.is_ipv4() == self.network.is_ipv4()
    }

    /// The range of addresses that share the first so many bits with `ip`; none if it has fewer bits.
    #[must_use]
    pub fn with(ip: IpAddr, prefix_len: u8) -> Option<Self> {
        masked(ip, prefix_len).map(|network| Self { network, prefix_len })
    }

    /// The first address in it.
    #[must_use]
    pub const fn network(&self) -> IpAddr {
        self.network
    }

    /// Bits that all its addresses share.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }
}

/// The address with all bits behind the first so many cleared.
fn masked(ip: IpAddr, prefix_len: u8) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => {
            let shift = 32u32.checked_sub(prefix_len.into())?;
            let bits = u32::MAX.checked_shl(shift).unwrap_or(0);
            Some(IpAddr::V4((u32::from(ip) & bits).into()))
        }
        IpAddr::V6(ip) => {
            let shift = 128u32.checked_sub(prefix_len.into())?;
            let bits = u128::MAX.checked_shl(shift).unwrap_or(0);
            Some(IpAddr::V6((u128::from(ip) & bits).into()))
        }
    }
}

impl FromStr for Cidr {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let rule = "a range is an address with a prefix length";
        let hint = "write 10.0.0.0/8, 2001:db8::/32, or an address alone";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().map_err(|_| Problem::new(rule, hint))?;
        let bits_max = if network.is_ipv4() { 32 } else { 128 };
        let prefix_len = match bits {
            None => bits_max,
            Some(bits) => bits.parse().map_err(|_| Problem::new(rule, hint))?,
        };
        match masked(network, prefix_len) {
            None => {
                let rule = format!("this address has {bits_max} bits");
                Err(Problem::new(rule, format!("write {network}/{bits_max} for this one alone")))
            }
            Some(first) if first != network => {
                let rule = "bits after the prefix must be zero";
                Err(Problem::new(rule, format!("write {first}/{prefix_len}")))
            }
            Some(network) => Ok(Self { network, prefix_len }),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_len)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_the_addresses_that_share_its_bits() {
        for (range, ip, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "192.0.2.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
        ] {
            let contains = range.parse::<Cidr>().unwrap().contains(ip.parse().unwrap());
            assert_eq!(contains, is_in, "{range} {ip}");
        }
    }

    #[test]
    fn what_is_no_range_is_told_with_what_to_write() {
        for (text, hint) in [
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("10.0.0.0/33", "write 10.0.0.0/32"),
            ("::/129", "write ::/128"),
            ("10.0.0.0/", "write 10.0.0.0/8"),
            ("example.com", "write 10.0.0.0/8"),
            ("", "write 10.0.0.0/8"),
        ] {
            let problem = text.parse::<Cidr>().unwrap_err();
            assert!(problem.hint.contains(hint), "{text}: {problem}");
        }
    }
}
