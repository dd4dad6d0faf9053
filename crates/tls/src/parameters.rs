//! Negotiated parameters: versions, cipher suites and groups, by the names that operators use.

use std::fmt;
use std::str::FromStr;

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{cipher_suite, kx_group};
use rustls::{NamedGroup, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wire::tls::record::Cipher;

/// A version of TLS, the older one first. Written as in the configuration, whose fingerprints follow from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Version {
    /// TLS 1.2 (RFC 5246), of which only ECDHE with an AEAD is spoken.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    Tls13,
}

/// How keys are agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Group {
    /// ML-KEM-768 alone, in TLS 1.3.
    MlKem768,
    /// ML-KEM-1024 alone, in TLS 1.3.
    MlKem1024,
    /// NIST's P-256.
    Secp256r1,
    /// P-256 and ML-KEM-768, in TLS 1.3.
    Secp256r1MlKem768,
    /// NIST's P-384.
    Secp384r1,
    /// Curve25519.
    X25519,
    /// Curve25519 and ML-KEM-768, in TLS 1.3: what was recorded today stays secret when there are
    /// quantum computers.
    X25519MlKem768,
}

/// A cipher suite: the cipher of the records and, in TLS 1.2, the kind of key that signs.
#[expect(missing_docs, reason = "the registry's names say it all")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CipherSuite {
    EcdheEcdsaWithAes128GcmSha256,
    EcdheEcdsaWithAes256GcmSha384,
    EcdheEcdsaWithChacha20Poly1305Sha256,
    EcdheRsaWithAes128GcmSha256,
    EcdheRsaWithAes256GcmSha384,
    EcdheRsaWithChacha20Poly1305Sha256,
    Tls13Aes128GcmSha256,
    Tls13Aes256GcmSha384,
    Tls13Chacha20Poly1305Sha256,
}

/// A name that is none of those known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a known name")]
pub struct NameUnknown;

impl Version {
    /// Both, for lists of what is allowed.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    pub(crate) fn of(version: ProtocolVersion) -> Option<Self> {
        match version {
            ProtocolVersion::TLSv1_2 => Some(Self::Tls12),
            ProtocolVersion::TLSv1_3 => Some(Self::Tls13),
            _ => None,
        }
    }

    pub(crate) fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &rustls::version::TLS12,
            Self::Tls13 => &rustls::version::TLS13,
        }
    }

    /// As OpenSSL writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }
}

impl Group {
    /// Every one that there is.
    pub const ALL: [Self; 7] = [
        Self::X25519MlKem768,
        Self::X25519,
        Self::Secp256r1,
        Self::Secp384r1,
        Self::Secp256r1MlKem768,
        Self::MlKem768,
        Self::MlKem1024,
    ];

    /// The defaults, in order of preference.
    pub const DEFAULT: [Self; 4] =
        [Self::X25519MlKem768, Self::X25519, Self::Secp256r1, Self::Secp384r1];

    /// Whether TLS 1.2 has it too.
    #[must_use]
    pub const fn is_in_tls12(self) -> bool {
        matches!(self, Self::Secp256r1 | Self::Secp384r1 | Self::X25519)
    }

    pub(crate) fn of(group: NamedGroup) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.supported().name() == group)
    }

    pub(crate) fn supported(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::MlKem768 => kx_group::MLKEM768,
            Self::MlKem1024 => kx_group::MLKEM1024,
            Self::Secp256r1 => kx_group::SECP256R1,
            Self::Secp256r1MlKem768 => kx_group::SECP256R1MLKEM768,
            Self::Secp384r1 => kx_group::SECP384R1,
            Self::X25519 => kx_group::X25519,
            Self::X25519MlKem768 => kx_group::X25519MLKEM768,
        }
    }

    /// The registry's name, and others that say the same.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::MlKem768 => &["MLKEM768"],
            Self::MlKem1024 => &["MLKEM1024"],
            Self::Secp256r1 => &["secp256r1", "P-256", "prime256v1"],
            Self::Secp256r1MlKem768 => &["SecP256r1MLKEM768"],
            Self::Secp384r1 => &["secp384r1", "P-384"],
            Self::X25519 => &["x25519"],
            Self::X25519MlKem768 => &["X25519MLKEM768"],
        }
    }
}

impl CipherSuite {
    /// Every one that there is, in the order in which they are offered where nothing else is said:
    /// AES with short keys first, which is the cheapest wherever the processor has instructions
    /// for it. BoringSSL and Go choose alike.
    pub const ALL: [Self; 9] = [
        Self::Tls13Aes128GcmSha256,
        Self::Tls13Aes256GcmSha384,
        Self::Tls13Chacha20Poly1305Sha256,
        Self::EcdheEcdsaWithAes128GcmSha256,
        Self::EcdheRsaWithAes128GcmSha256,
        Self::EcdheEcdsaWithAes256GcmSha384,
        Self::EcdheRsaWithAes256GcmSha384,
        Self::EcdheEcdsaWithChacha20Poly1305Sha256,
        Self::EcdheRsaWithChacha20Poly1305Sha256,
    ];

    /// The version that it belongs to: none belongs to both.
    #[must_use]
    pub const fn version(self) -> Version {
        match self {
            Self::Tls13Aes128GcmSha256
            | Self::Tls13Aes256GcmSha384
            | Self::Tls13Chacha20Poly1305Sha256 => Version::Tls13,
            Self::EcdheEcdsaWithAes128GcmSha256
            | Self::EcdheEcdsaWithAes256GcmSha384
            | Self::EcdheEcdsaWithChacha20Poly1305Sha256
            | Self::EcdheRsaWithAes128GcmSha256
            | Self::EcdheRsaWithAes256GcmSha384
            | Self::EcdheRsaWithChacha20Poly1305Sha256 => Version::Tls12,
        }
    }

    /// The cipher of its records.
    pub(crate) const fn cipher(self) -> Cipher {
        match self {
            Self::Tls13Aes128GcmSha256
            | Self::EcdheEcdsaWithAes128GcmSha256
            | Self::EcdheRsaWithAes128GcmSha256 => Cipher::Aes128Gcm,
            Self::Tls13Aes256GcmSha384
            | Self::EcdheEcdsaWithAes256GcmSha384
            | Self::EcdheRsaWithAes256GcmSha384 => Cipher::Aes256Gcm,
            Self::Tls13Chacha20Poly1305Sha256
            | Self::EcdheEcdsaWithChacha20Poly1305Sha256
            | Self::EcdheRsaWithChacha20Poly1305Sha256 => Cipher::Chacha20Poly1305,
        }
    }

    pub(crate) fn of(suite: rustls::CipherSuite) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.supported().suite() == suite)
    }

    pub(crate) fn supported(self) -> SupportedCipherSuite {
        match self {
            Self::EcdheEcdsaWithAes128GcmSha256 => {
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            }
            Self::EcdheEcdsaWithAes256GcmSha384 => {
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            }
            Self::EcdheEcdsaWithChacha20Poly1305Sha256 => {
                cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            }
            Self::EcdheRsaWithAes128GcmSha256 => {
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            }
            Self::EcdheRsaWithAes256GcmSha384 => {
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
            }
            Self::EcdheRsaWithChacha20Poly1305Sha256 => {
                cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
            }
            Self::Tls13Aes128GcmSha256 => cipher_suite::TLS13_AES_128_GCM_SHA256,
            Self::Tls13Aes256GcmSha384 => cipher_suite::TLS13_AES_256_GCM_SHA384,
            Self::Tls13Chacha20Poly1305Sha256 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }

    /// The registry's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.names().first().expect("each has a name")
    }

    /// The registry's name, and OpenSSL's where that is another.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::EcdheEcdsaWithAes128GcmSha256 => {
                &["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"]
            }
            Self::EcdheEcdsaWithAes256GcmSha384 => {
                &["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"]
            }
            Self::EcdheEcdsaWithChacha20Poly1305Sha256 => {
                &["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]
            }
            Self::EcdheRsaWithAes128GcmSha256 => {
                &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"]
            }
            Self::EcdheRsaWithAes256GcmSha384 => {
                &["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"]
            }
            Self::EcdheRsaWithChacha20Poly1305Sha256 => {
                &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"]
            }
            Self::Tls13Aes128GcmSha256 => &["TLS_AES_128_GCM_SHA256"],
            Self::Tls13Aes256GcmSha384 => &["TLS_AES_256_GCM_SHA384"],
            Self::Tls13Chacha20Poly1305Sha256 => &["TLS_CHACHA20_POLY1305_SHA256"],
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Version {
    type Err = NameUnknown;

    /// `TLSv1.2` and `TLSv1.3`, in any case.
    fn from_str(text: &str) -> Result<Self, NameUnknown> {
        let is_it = |version: &Self| version.name().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(is_it).ok_or(NameUnknown)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().first().expect("each has a name"))
    }
}

impl FromStr for Group {
    type Err = NameUnknown;

    /// The registry's name or OpenSSL's, in any case.
    fn from_str(text: &str) -> Result<Self, NameUnknown> {
        find(Self::ALL, Self::names, text)
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CipherSuite {
    type Err = NameUnknown;

    /// The registry's name or OpenSSL's, in any case.
    fn from_str(text: &str) -> Result<Self, NameUnknown> {
        find(Self::ALL, Self::names, text)
    }
}

fn find<T: Copy, const N: usize>(
    all: [T; N],
    names: fn(T) -> &'static [&'static str],
    text: &str,
) -> Result<T, NameUnknown> {
    let has_name = |one: &T| names(*one).iter().any(|name| name.eq_ignore_ascii_case(text));
    all.into_iter().find(has_name).ok_or(NameUnknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_from_what_it_is_written_as() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for group in Group::ALL {
            assert_eq!(group.to_string().parse(), Ok(group));
            assert_eq!(Group::of(group.supported().name()), Some(group));
        }
        for suite in CipherSuite::ALL {
            assert_eq!(suite.to_string().parse(), Ok(suite));
            assert_eq!(CipherSuite::of(suite.supported().suite()), Some(suite));
            assert_eq!(Version::of(suite.supported().version().version), Some(suite.version()));
        }
    }

    #[test]
    fn names_of_openssl_are_understood_and_others_are_not() {
        assert_eq!("P-256".parse(), Ok(Group::Secp256r1));
        assert_eq!("prime256v1".parse(), Ok(Group::Secp256r1));
        assert_eq!("X25519".parse(), Ok(Group::X25519));
        assert_eq!(
            "ECDHE-RSA-AES128-GCM-SHA256".parse(),
            Ok(CipherSuite::EcdheRsaWithAes128GcmSha256)
        );
        assert_eq!("P-521".parse::<Group>(), Err(NameUnknown));
        assert_eq!("AES128-SHA".parse::<CipherSuite>(), Err(NameUnknown));
        assert_eq!("TLSv1.1".parse::<Version>(), Err(NameUnknown));
    }

    #[test]
    fn nothing_that_there_is_was_left_out() {
        use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, ALL_KX_GROUPS};
        for suite in ALL_CIPHER_SUITES {
            assert!(CipherSuite::of(suite.suite()).is_some(), "{suite:?}");
        }
        for group in ALL_KX_GROUPS {
            assert!(Group::of(group.name()).is_some(), "{group:?}");
        }
    }
}
