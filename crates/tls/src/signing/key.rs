//! A key that a provider signs with, and the jobs for it.

use std::fmt;
use std::sync::Arc;

use rustls::sign::{Signer, SigningKey};
use rustls::{OtherError, SignatureAlgorithm};
use rustls_pki_types::PrivateKeyDer;

use super::{ProviderId, SignError, Signature, SignatureScheme};
use crate::batch;
use crate::certificate::KeyKind;
use crate::handshake::coroutine;

/// A private key that a provider signs with, while the handshake waits. The key may be in this
/// process or elsewhere.
pub struct KeyHandle {
    provider: ProviderId,
    kind: KeyKind,
    /// As it stands in the certificate, without the name of its algorithm.
    public_key: Box<[u8]>,
    /// Of what stands in the certificate, with the name of its algorithm.
    fingerprint: [u8; 32],
    here: Option<Here>,
}

/// One signature that a provider has to make. Plain data, which can be sent anywhere.
#[derive(Clone, Debug)]
pub struct SignJob {
    /// With which key.
    pub key: Arc<KeyHandle>,
    /// Which kind of signature.
    pub scheme: SignatureScheme,
    /// Of what: to be hashed as the kind says.
    pub message: Box<[u8]>,
}

/// The private half.
pub(crate) struct Here {
    signing: Arc<dyn SigningKey>,
    /// The same key for batches, where it is one that they take.
    batch: Option<Box<batch::PrivateKey>>,
}

/// The key, as rustls takes it.
#[derive(Debug)]
pub(crate) struct Deferred(Arc<KeyHandle>);

/// A signer for one signature, as rustls takes it.
#[derive(Debug)]
struct DeferredSigner {
    key: Arc<KeyHandle>,
    scheme: SignatureScheme,
}

impl KeyHandle {
    pub(crate) fn new(
        provider: ProviderId,
        kind: KeyKind,
        public_key: Box<[u8]>,
        fingerprint: [u8; 32],
        here: Option<Here>,
    ) -> Self {
        Self { provider, kind, public_key, fingerprint, here }
    }

    /// The provider that signs with it.
    #[must_use]
    pub fn provider(&self) -> ProviderId {
        self.provider
    }

    /// The kind of the key.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// SHA-256 of the public key as it stands in the certificate (its `SubjectPublicKeyInfo`): a
    /// name by which another process can identify it.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Whether the private half is in this process.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.here.is_some()
    }

    /// The key for batches, if it is one that they take.
    pub(super) fn for_batches(&self) -> Option<&batch::PrivateKey> {
        self.here.as_ref()?.batch.as_deref()
    }
}

impl SignJob {
    /// Makes the signature at once.
    ///
    /// # Errors
    ///
    /// When the key is not here, or cannot make such a signature.
    pub fn sign(&self) -> Result<Signature, SignError> {
        let here = self.key.here.as_ref().ok_or(SignError::KeyElsewhere)?;
        let signer = here.signing.choose_scheme(&[self.scheme.into()]).ok_or(SignError::Failed)?;
        let octets = signer.sign(&self.message).map_err(|_| SignError::Failed)?;
        Ok(Signature::trusted(octets))
    }
}

impl Here {
    pub(crate) fn new(signing: Arc<dyn SigningKey>, der: &PrivateKeyDer<'_>) -> Self {
        // The same bytes were read as a key before, so that only the kind can be wrong.
        let batch = batch::is_available().then(|| match der {
            PrivateKeyDer::Pkcs1(der) => batch::PrivateKey::from_pkcs1(der.secret_pkcs1_der()).ok(),
            PrivateKeyDer::Pkcs8(der) => batch::PrivateKey::from_pkcs8(der.secret_pkcs8_der()).ok(),
            _ => None,
        });
        Self { signing, batch: batch.flatten().map(Box::new) }
    }
}

#[cfg(test)]
impl Here {
    /// A key, and as batches have it: the same, or what a fault of memory has made of it.
    pub(super) fn of_tests(is_broken: bool) -> Self {
        let der = include_bytes!("../../tests/keys/2048.der");
        let der = PrivateKeyDer::Pkcs8(der.as_slice().into());
        let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der);
        let mut here = Self::new(signing.expect("a key"), &der);
        if let Some(key) = here.batch.as_deref_mut().filter(|_| is_broken) {
            key.break_for_tests();
        }
        here
    }
}

impl Deferred {
    pub(crate) fn signing(handle: &Arc<KeyHandle>) -> Arc<dyn SigningKey> {
        Arc::new(Self(Arc::clone(handle)))
    }
}

impl SigningKey for Deferred {
    fn choose_scheme(&self, offered: &[rustls::SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut schemes = SignatureScheme::of_kind(self.0.kind).iter().copied();
        let scheme = schemes.find(|scheme| offered.contains(&(*scheme).into()))?;
        Some(Box::new(DeferredSigner { key: Arc::clone(&self.0), scheme }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.0.kind {
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::EcdsaP521 => {
                SignatureAlgorithm::ECDSA
            }
            KeyKind::Rsa => SignatureAlgorithm::RSA,
        }
    }
}

impl DeferredSigner {
    /// Waits for the signature, or makes it where nothing can wait.
    fn wait(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let key = Arc::clone(&self.key);
        let job = SignJob { key, scheme: self.scheme, message: message.into() };
        let signature = coroutine::suspend(job).unwrap_or_else(|job| job.sign())?;
        let Signature { octets, is_trusted } = signature;
        if is_trusted || self.scheme.verify(&self.key.public_key, message, &octets) {
            Ok(octets)
        } else {
            Err(SignError::Wrong)
        }
    }
}

impl Signer for DeferredSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.wait(message).map_err(|error| rustls::Error::Other(OtherError(Arc::new(error))))
    }

    fn scheme(&self) -> rustls::SignatureScheme {
        self.scheme.into()
    }
}

impl fmt::Debug for KeyHandle {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHandle")
            .field("provider", &self.provider)
            .field("kind", &self.kind)
            .field("is_here", &self.is_here())
            .finish_non_exhaustive()
    }
}
