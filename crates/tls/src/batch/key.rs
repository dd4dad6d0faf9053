//! Private keys, as the kernel wants them.

use std::fmt;

use aws_lc_rs::rsa::KeyPair;
use pkcs1::RsaPrivateKeyRef;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::Decode as _;

use super::columns::{BLOCK_LIMBS, LIMB_BITS};
use super::limbs::{self, Limbs, Modulus};

/// An RSA private key that batches take. Making one costs as much as two signatures, and it takes
/// 2 to 4 KiB. Wiped when it goes.
pub struct PrivateKey {
    pub(super) size: KeySize,
    pub(super) public_exponent: u64,
    pub(super) modulus: Modulus,
    pub(super) primes: [Prime; 2],
    /// `R / q mod p`.
    pub(super) coefficient: Limbs,
}

/// One of the two primes, and what belongs to it.
pub(super) struct Prime {
    pub(super) modulus: Modulus,
    /// `R³`, reduced.
    pub(super) cube: Limbs,
    pub(super) exponent: Limbs,
}

/// Bits of the modulus, exactly. Operations of one size go into one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySize {
    /// 2,048 bits.
    Rsa2048,
    /// 3,072 bits.
    Rsa3072,
    /// 4,096 bits.
    Rsa4096,
}

/// Why a key cannot be used in batches. Such a key may still be good for other ways to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a PKCS#8 or PKCS#1 structure in DER.
    #[error("is not a private key in PKCS#8 or PKCS#1 form")]
    Form,
    /// The parts do not belong together.
    #[error("has parts that contradict each other")]
    Inconsistent,
    /// More than two primes (RFC 8017, section 3.2).
    #[error("has more than two primes")]
    MultiPrime,
    /// Another algorithm, or RSA restricted to one padding.
    #[error("is not an RSA key for any padding (rsaEncryption)")]
    NotRsa,
    /// One prime is longer than the other.
    #[error("has primes of different lengths")]
    PrimeSize,
    /// Even, one, or 2^32 and above.
    #[error("has a public exponent that is even, 1, or above 32 bits")]
    PublicExponent,
    /// Too short to be safe, or unusual.
    #[error("has a modulus of {bits} bits, where batches take 2048, 3072 and 4096")]
    Size {
        /// Bits of its modulus.
        bits: usize,
    },
}

impl PrivateKey {
    /// Reads a key out of a PKCS#8 `PrivateKeyInfo` (RFC 5958).
    ///
    /// # Errors
    ///
    /// Where it is no RSA key, or none that batches take.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let info = PrivateKeyInfoRef::from_der(der).map_err(|_| KeyError::Form)?;
        if info.algorithm.oid != pkcs1::ALGORITHM_OID {
            return Err(KeyError::NotRsa);
        }
        Self::from_pkcs1(info.private_key.as_bytes())
    }

    /// Reads a key out of a PKCS#1 `RSAPrivateKey` (RFC 8017, appendix A.1.2).
    ///
    /// # Errors
    ///
    /// Where it is none that batches take.
    pub fn from_pkcs1(der: &[u8]) -> Result<Self, KeyError> {
        let parts = RsaPrivateKeyRef::from_der(der).map_err(|_| KeyError::Form)?;
        if parts.version() == pkcs1::Version::Multi {
            return Err(KeyError::MultiPrime);
        }
        let size = KeySize::of_bits(bits(parts.modulus.as_bytes()))?;
        let public_exponent = public_exponent(parts.public_exponent.as_bytes())?;
        for prime in [parts.prime1, parts.prime2] {
            if bits(prime.as_bytes()) != size.bits() / 2 {
                return Err(KeyError::PrimeSize);
            }
        }
        // Whether the parts fit each other: n = pq, the exponents, the coefficient.
        KeyPair::from_der(der).map_err(|_| KeyError::Inconsistent)?;
        let half = |number: pkcs1::UintRef<'_>| {
            limbs::from_be_bytes(number.as_bytes(), size.limbs() / 2).ok_or(KeyError::Inconsistent)
        };
        let modulus = limbs::from_be_bytes(parts.modulus.as_bytes(), size.limbs());
        let p = Prime::new(half(parts.prime1)?, half(parts.exponent1)?);
        let q = Prime::new(half(parts.prime2)?, half(parts.exponent2)?);
        Ok(Self {
            size,
            public_exponent,
            modulus: Modulus::new(modulus.ok_or(KeyError::Inconsistent)?),
            coefficient: p.modulus.to_montgomery(&half(parts.coefficient)?),
            primes: [p, q],
        })
    }

    /// A bit of it is another one.
    #[cfg(test)]
    pub(crate) fn break_for_tests(&mut self) {
        if let Some(limb) = self.coefficient.first_mut() {
            *limb ^= 4;
        }
    }

    /// The size of its modulus, which decides what batch it can join.
    #[must_use]
    pub fn size(&self) -> KeySize {
        self.size
    }
}

/// Without anything that is secret.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrivateKey").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Prime {
    fn new(prime: Limbs, exponent: Limbs) -> Self {
        let modulus = Modulus::new(prime);
        let cube = modulus.to_montgomery(&modulus.square);
        Self { modulus, cube, exponent }
    }
}

impl KeySize {
    /// Every one that there is.
    pub const ALL: [Self; 3] = [Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// Bits of the modulus.
    #[must_use]
    pub const fn bits(self) -> usize {
        match self {
            Self::Rsa2048 => 2048,
            Self::Rsa3072 => 3072,
            Self::Rsa4096 => 4096,
        }
    }

    /// Bytes of a signature.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bits() / 8
    }

    /// Limbs of a number as long as the modulus: in whole blocks for each half, with bits to spare.
    pub(super) const fn limbs(self) -> usize {
        let half = (self.bits() / 2).div_ceil(LIMB_BITS);
        2 * half.next_multiple_of(BLOCK_LIMBS)
    }

    fn of_bits(bits: usize) -> Result<Self, KeyError> {
        match bits {
            2048 => Ok(Self::Rsa2048),
            3072 => Ok(Self::Rsa3072),
            4096 => Ok(Self::Rsa4096),
            bits => Err(KeyError::Size { bits }),
        }
    }
}

/// The public exponent, which has to be odd, above one and at most 32 bits long: those in use are,
/// and verifying with them is fast.
fn public_exponent(bytes: &[u8]) -> Result<u64, KeyError> {
    let exponent = bytes
        .iter()
        .try_fold(0_u32, |exponent, byte| Some(exponent.checked_mul(1 << 8)? | u32::from(*byte)));
    match exponent {
        Some(exponent) if exponent % 2 == 1 && exponent > 1 => Ok(exponent.into()),
        _ => Err(KeyError::PublicExponent),
    }
}

/// Bits of a big-endian number.
fn bits(bytes: &[u8]) -> usize {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let first_bits = bytes.get(zeros).map_or(0, |byte| u8::BITS - byte.leading_zeros());
    (bytes.len() - zeros).saturating_sub(1) * 8 + usize::try_from(first_bits).unwrap_or_default()
}
