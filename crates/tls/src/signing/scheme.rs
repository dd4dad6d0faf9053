//! Kinds of signatures (RFC 8446, section 4.2.3).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};

use crate::batch;
use crate::certificate::KeyKind;

/// A kind of signature: an algorithm with its hash.
#[expect(missing_docs, reason = "the registry's names say it all")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureScheme {
    EcdsaSecp256r1Sha256,
    EcdsaSecp384r1Sha384,
    EcdsaSecp521r1Sha512,
    Ed25519,
    RsaPkcs1Sha256,
    RsaPkcs1Sha384,
    RsaPkcs1Sha512,
    RsaPssRsaeSha256,
    RsaPssRsaeSha384,
    RsaPssRsaeSha512,
}

impl SignatureScheme {
    /// Every one that there is.
    pub const ALL: [Self; 10] = [
        Self::EcdsaSecp256r1Sha256,
        Self::EcdsaSecp384r1Sha384,
        Self::EcdsaSecp521r1Sha512,
        Self::Ed25519,
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssRsaeSha256,
        Self::RsaPssRsaeSha384,
        Self::RsaPssRsaeSha512,
    ];

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::EcdsaSecp256r1Sha256 => 0x0403,
            Self::EcdsaSecp384r1Sha384 => 0x0503,
            Self::EcdsaSecp521r1Sha512 => 0x0603,
            Self::Ed25519 => 0x0807,
            Self::RsaPkcs1Sha256 => 0x0401,
            Self::RsaPkcs1Sha384 => 0x0501,
            Self::RsaPkcs1Sha512 => 0x0601,
            Self::RsaPssRsaeSha256 => 0x0804,
            Self::RsaPssRsaeSha384 => 0x0805,
            Self::RsaPssRsaeSha512 => 0x0806,
        }
    }

    /// The one with this code.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.code() == code)
    }

    /// The schemes that a kind of key can make, in the order in which rustls prefers them.
    pub(super) const fn of_kind(kind: KeyKind) -> &'static [Self] {
        match kind {
            KeyKind::Ed25519 => &[Self::Ed25519],
            KeyKind::EcdsaP256 => &[Self::EcdsaSecp256r1Sha256],
            KeyKind::EcdsaP384 => &[Self::EcdsaSecp384r1Sha384],
            KeyKind::EcdsaP521 => &[Self::EcdsaSecp521r1Sha512],
            KeyKind::Rsa => &[
                Self::RsaPssRsaeSha512,
                Self::RsaPssRsaeSha384,
                Self::RsaPssRsaeSha256,
                Self::RsaPkcs1Sha512,
                Self::RsaPkcs1Sha384,
                Self::RsaPkcs1Sha256,
            ],
        }
    }

    /// As batches know it, if they do.
    pub(super) const fn in_batches(self) -> Option<batch::Scheme> {
        Some(match self {
            Self::RsaPkcs1Sha256 => batch::Scheme::Pkcs1Sha256,
            Self::RsaPkcs1Sha384 => batch::Scheme::Pkcs1Sha384,
            Self::RsaPkcs1Sha512 => batch::Scheme::Pkcs1Sha512,
            Self::RsaPssRsaeSha256 => batch::Scheme::PssSha256,
            Self::RsaPssRsaeSha384 => batch::Scheme::PssSha384,
            Self::RsaPssRsaeSha512 => batch::Scheme::PssSha512,
            Self::EcdsaSecp256r1Sha256
            | Self::EcdsaSecp384r1Sha384
            | Self::EcdsaSecp521r1Sha512
            | Self::Ed25519 => return None,
        })
    }

    /// Whether `signature` is one of `message`. The key is as it stands in its certificate.
    pub(super) fn verify(self, public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Self::EcdsaSecp256r1Sha256 => &ECDSA_P256_SHA256_ASN1,
            Self::EcdsaSecp384r1Sha384 => &ECDSA_P384_SHA384_ASN1,
            Self::EcdsaSecp521r1Sha512 => &ECDSA_P521_SHA512_ASN1,
            Self::Ed25519 => &ED25519,
            Self::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::RsaPkcs1Sha384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::RsaPkcs1Sha512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::RsaPssRsaeSha256 => &RSA_PSS_2048_8192_SHA256,
            Self::RsaPssRsaeSha384 => &RSA_PSS_2048_8192_SHA384,
            Self::RsaPssRsaeSha512 => &RSA_PSS_2048_8192_SHA512,
        };
        UnparsedPublicKey::new(algorithm, public_key).verify(message, signature).is_ok()
    }
}

impl From<SignatureScheme> for rustls::SignatureScheme {
    fn from(scheme: SignatureScheme) -> Self {
        scheme.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_rustls() {
        for scheme in SignatureScheme::ALL {
            assert_eq!(SignatureScheme::from_code(scheme.code()), Some(scheme));
            let name = format!("{:?}", rustls::SignatureScheme::from(scheme)).to_lowercase();
            let ours = format!("{scheme:?}").to_lowercase();
            let bare = |name: &str| name.replace('_', "").replace("nistp", "").replace("rsae", "");
            let ours = ours.replace("secp", "").replace("r1sha", "sha");
            assert_eq!(bare(&name), bare(&ours));
        }
        assert_eq!(SignatureScheme::from_code(0x0201), None);
    }
}
