//! The secrets that a handshake leaves behind, wiped and never shown.

use std::fmt;

use aws_lc_rs::{aead, hkdf};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use zeroize::Zeroize as _;

/// A version of TLS that has records of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// TLS 1.2 (RFC 5246), with ECDHE and one of the [`Cipher`]s.
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// The cipher of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cipher {
    /// AES-GCM with a key of 128 bits; with SHA-256 in TLS 1.3.
    Aes128Gcm,
    /// AES-GCM with a key of 256 bits; with SHA-384 in TLS 1.3.
    Aes256Gcm,
    /// ChaCha20-Poly1305; with SHA-256 in TLS 1.3.
    Chacha20Poly1305,
}

/// Version and cipher of a connection. Each of either goes with each of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Suite {
    /// The version.
    pub protocol: Protocol,
    /// The cipher.
    pub cipher: Cipher,
}

/// The secrets of an established connection. The module's text says where to find them in rustls.
#[derive(Clone, Copy, Debug)]
pub struct Secrets<'a> {
    /// Version and cipher.
    pub suite: Suite,
    /// The secrets of the peer's direction.
    pub receive: DirectionSecrets<'a>,
    /// The secrets of our direction.
    pub send: DirectionSecrets<'a>,
}

/// The secrets of one direction.
#[derive(Clone, Copy)]
pub struct DirectionSecrets<'a> {
    /// The number of the next record.
    pub sequence: u64,
    /// The key: 16 octets for AES-128-GCM, 32 for the others.
    pub key: &'a [u8],
    /// The initialisation vector: 12 octets. Of AES-GCM in TLS 1.2, the implicit part of the nonce
    /// in 4, then 8 that the explicit part begins with.
    pub iv: &'a [u8],
    /// TLS 1.3: the traffic secret that key and vector come from. Nothing in TLS 1.2.
    pub traffic_secret: &'a [u8],
}

/// Why secrets cannot be those of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretsError {
    /// The vector has not 12 octets.
    #[error("an initialisation vector of a wrong length")]
    IvLenInvalid,
    /// The key has not the length that the cipher's has.
    #[error("a key of a wrong length")]
    KeyLenInvalid,
    /// The number is one that no connection reaches.
    #[error("a record number that no connection reaches")]
    SequenceTooHigh,
    /// The traffic secret has not the length that the cipher's has, which is none in TLS 1.2.
    #[error("a traffic secret of a wrong length")]
    TrafficSecretLenInvalid,
    /// Key or vector do not come from the traffic secret: it is another connection's, or another
    /// direction's, or keys were changed since.
    #[error("a traffic secret of another key")]
    TrafficSecretOther,
}

impl Cipher {
    pub(super) fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    /// Octets of a key.
    pub(super) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }

    /// The hash of the suites of TLS 1.3 with this cipher (RFC 8446, appendix B.4).
    pub(super) fn hash(self) -> hkdf::Algorithm {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => hkdf::HKDF_SHA256,
            Self::Aes256Gcm => hkdf::HKDF_SHA384,
        }
    }

    /// Octets of what that hash gives.
    pub(super) const fn hash_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => 32,
            Self::Aes256Gcm => 48,
        }
    }
}

impl fmt::Debug for DirectionSecrets<'_> {
    /// Lengths only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectionSecrets")
            .field("sequence", &self.sequence)
            .field("key_len", &self.key.len())
            .field("iv_len", &self.iv.len())
            .field("traffic_secret_len", &self.traffic_secret.len())
            .finish()
    }
}

/// Octets that are overwritten when they are let go, and never shown.
///
/// Copies that the compiler leaves on the stack when it moves them cannot be wiped.
pub(super) struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Nothing yet.
    pub(super) const fn empty() -> Self {
        Self([0; N])
    }

    /// `octets` and zeros behind them, or `None` if there are too many.
    pub(super) fn padded(octets: &[u8]) -> Option<Self> {
        let mut secret = Self::empty();
        secret.first_mut(octets.len())?.copy_from_slice(octets);
        Some(secret)
    }

    /// `octets`, or `None` if there are fewer or more.
    pub(super) fn exact(octets: &[u8]) -> Option<Self> {
        octets.try_into().ok().map(Self)
    }

    pub(super) fn octets(&self) -> &[u8; N] {
        &self.0
    }

    /// The first `n`, or `None` if there are fewer.
    pub(super) fn first(&self, n: usize) -> Option<&[u8]> {
        self.0.get(..n)
    }

    /// The first `n`, to be written to.
    pub(super) fn first_mut(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.get_mut(..n)
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl<const N: usize> Serialize for Secret<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Secret<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(OfLen::<N>)
    }
}

/// Reads exactly `N` octets.
struct OfLen<const N: usize>;

impl<const N: usize> Visitor<'_> for OfLen<N> {
    type Value = Secret<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} octets")
    }

    fn visit_bytes<E: serde::de::Error>(self, octets: &[u8]) -> Result<Secret<N>, E> {
        Secret::exact(octets).ok_or_else(|| E::invalid_length(octets.len(), &self))
    }
}
