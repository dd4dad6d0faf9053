//! Padding: a message's hash, encoded to the length of the modulus (RFC 8017, section 9).

use aws_lc_rs::digest::{self, Context, Digest};
use aws_lc_rs::rand;

/// A hash and a padding, of those that TLS 1.2 and 1.3 name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// PKCS#1 v1.5 with SHA-256; not for handshakes of TLS 1.3.
    Pkcs1Sha256,
    /// PKCS#1 v1.5 with SHA-384; not for handshakes of TLS 1.3.
    Pkcs1Sha384,
    /// PKCS#1 v1.5 with SHA-512; not for handshakes of TLS 1.3.
    Pkcs1Sha512,
    /// PSS with SHA-256 for the message and the mask, and a fresh salt as long as the hash.
    PssSha256,
    /// PSS with SHA-384 for the message and the mask, and a fresh salt as long as the hash.
    PssSha384,
    /// PSS with SHA-512 for the message and the mask, and a fresh salt as long as the hash.
    PssSha512,
}

/// There were no random bytes for a salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has no random bytes")]
pub struct NoRandomness;

impl Scheme {
    /// Fills `encoded`, which is as long as the modulus, with a number that is less than it.
    pub(super) fn encode(self, message: &[u8], encoded: &mut [u8]) -> Result<(), NoRandomness> {
        let hash = digest::digest(self.hash(), message);
        match self {
            Self::Pkcs1Sha256 => encode_pkcs1(&PREFIX_SHA256, &hash, encoded),
            Self::Pkcs1Sha384 => encode_pkcs1(&PREFIX_SHA384, &hash, encoded),
            Self::Pkcs1Sha512 => encode_pkcs1(&PREFIX_SHA512, &hash, encoded),
            Self::PssSha256 | Self::PssSha384 | Self::PssSha512 => {
                let mut salt = [0; digest::MAX_OUTPUT_LEN];
                let (salt, _) = salt.split_at_mut(hash.as_ref().len());
                rand::fill(salt).map_err(|_| NoRandomness)?;
                encode_pss(&hash, salt, encoded);
            }
        }
        Ok(())
    }

    fn hash(self) -> &'static digest::Algorithm {
        match self {
            Self::Pkcs1Sha256 | Self::PssSha256 => &digest::SHA256,
            Self::Pkcs1Sha384 | Self::PssSha384 => &digest::SHA384,
            Self::Pkcs1Sha512 | Self::PssSha512 => &digest::SHA512,
        }
    }
}

/// RFC 8017, section 9.2: `00 01 ff … ff 00 prefix hash`.
fn encode_pkcs1(prefix: &[u8; PREFIX_LEN], hash: &Digest, encoded: &mut [u8]) {
    let rest = put_last(encoded, hash.as_ref());
    let rest = put_last(rest, prefix);
    let rest = put_last(rest, &[0]);
    rest.fill(0xff);
    rest.iter_mut().zip([0, 1]).for_each(|(place, byte)| *place = byte);
}

/// RFC 8017, section 9.1.1: `masked(00 … 00 01 salt) salted-hash bc`. Moduli have whole bytes of
/// bits, and the block is to have one bit less, so that its first bit is zero.
fn encode_pss(hash: &Digest, salt: &[u8], encoded: &mut [u8]) {
    let mut context = Context::new(hash.algorithm());
    context.update(&[0; 8]);
    context.update(hash.as_ref());
    context.update(salt);
    let salted = context.finish();

    let rest = put_last(encoded, &[0xbc]);
    let block = put_last(rest, salted.as_ref());
    let rest = put_last(block, salt);
    let rest = put_last(rest, &[1]);
    rest.fill(0);
    mask(&salted, block);
    block.iter_mut().take(1).for_each(|byte| *byte &= 0x7f);
}

/// MGF1 (RFC 8017, appendix B.2.1), over what is there.
fn mask(seed: &Digest, block: &mut [u8]) {
    let chunks = block.chunks_mut(seed.algorithm().output_len());
    for (counter, chunk) in (0_u32..).zip(chunks) {
        let mut context = Context::new(seed.algorithm());
        context.update(seed.as_ref());
        context.update(&counter.to_be_bytes());
        let bytes = context.finish();
        chunk.iter_mut().zip(bytes.as_ref()).for_each(|(place, byte)| *place ^= byte);
    }
}

/// Copies `bytes` to the end of `place` and gives what is in front of it.
fn put_last<'p>(place: &'p mut [u8], bytes: &[u8]) -> &'p mut [u8] {
    let (front, end) = place.split_at_mut(place.len() - bytes.len());
    end.copy_from_slice(bytes);
    front
}

/// Bytes of `DigestInfo` in front of a hash.
const PREFIX_LEN: usize = 19;

/// Object identifiers that end in 1, 2 and 3 (RFC 8017, section 9.2, note 1).
const PREFIX_SHA256: [u8; PREFIX_LEN] = prefix(1, 32);
const PREFIX_SHA384: [u8; PREFIX_LEN] = prefix(2, 48);
const PREFIX_SHA512: [u8; PREFIX_LEN] = prefix(3, 64);

#[rustfmt::skip]
const fn prefix(hash: u8, len: u8) -> [u8; PREFIX_LEN] {
    [0x30, 17 + len, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, hash, 5, 0, 4, len]
}
