//! One direction: its key, the number of its next record, and how one record is sealed and opened.
//!
//! ```text
//!  TLS 1.3   ┌ header 5 ┬ data ┬ type 1 ┬ zeros ┬ tag 16 ┐    all but the header is sealed
//!  TLS 1.2   ┌ header 5 ┬ nonce 8 (GCM only) ┬ data ┬ tag 16 ┐
//! ```
//!
//! A record number is never used twice with a key: that would give both records away. It grows
//! before anything else can fail, and a direction can be moved and written down, but not cloned.

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{KeyType, Prk};
use serde::{Deserialize, Serialize};

use super::error::RecordError;
use super::secrets::{Cipher, DirectionSecrets, Protocol, Secret, SecretsError, Suite};
use super::{FRAGMENT_LEN_MAX, HEADER_LEN};

/// The secrets of one direction.
#[derive(Serialize, Deserialize)]
pub(super) struct Keys {
    /// The number of the next record, which is also how many this key has sealed.
    sequence: u64,
    key: Secret<KEY_LEN_MAX>,
    iv: Secret<IV_LEN>,
    /// In TLS 1.3, what the next secret comes from.
    traffic_secret: Secret<SECRET_LEN_MAX>,
    /// The key made ready, some 590 bytes of tables. Built when it is needed.
    #[serde(skip)]
    context: Option<Box<LessSafeKey>>,
}

/// Content types of records (RFC 8446, section 5.1).
pub(super) mod kind {
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const APPLICATION_DATA: u8 = 23;
}

/// The version in the header of each record, of TLS 1.2 and of what looks like it.
pub(super) const LEGACY_VERSION: [u8; 2] = [3, 3];

/// No key is used for so many records: there is always a number for an alert.
pub(super) const SEQUENCE_MAX: u64 = 1 << 63;

const KEY_LEN_MAX: usize = 32;
const IV_LEN: usize = 12;
const SECRET_LEN_MAX: usize = 48;
const TAG_LEN: usize = 16;
const EXPLICIT_NONCE_LEN: usize = 8;

impl Suite {
    /// Octets of the nonce that stand in each record (RFC 5288, section 3; RFC 7905, section 2).
    const fn explicit_nonce_len(self) -> usize {
        match (self.protocol, self.cipher) {
            (Protocol::Tls12, Cipher::Aes128Gcm | Cipher::Aes256Gcm) => EXPLICIT_NONCE_LEN,
            (Protocol::Tls12, Cipher::Chacha20Poly1305) | (Protocol::Tls13, _) => 0,
        }
    }

    /// Octets of a record in front of its data.
    pub(super) const fn data_at(self) -> usize {
        HEADER_LEN + self.explicit_nonce_len()
    }

    /// Octets of a record beside its data, without padding.
    pub(super) const fn overhead(self) -> usize {
        let inner_type_len = match self.protocol {
            Protocol::Tls12 => 0,
            Protocol::Tls13 => 1,
        };
        self.data_at() + inner_type_len + TAG_LEN
    }

    /// Octets behind the header of the longest record that can hold no more than it may. Both RFCs
    /// let records be longer (RFC 8446, section 5.2; RFC 5246, section 6.2.3), with what could
    /// only be too much padding, or what these ciphers do not add.
    pub(super) const fn body_len_max(self) -> usize {
        self.overhead() - HEADER_LEN + FRAGMENT_LEN_MAX
    }
}

impl Keys {
    pub(super) fn new(suite: Suite, secrets: &DirectionSecrets<'_>) -> Result<Self, SecretsError> {
        if secrets.key.len() != suite.cipher.key_len() {
            return Err(SecretsError::KeyLenInvalid);
        }
        let secret_len = match suite.protocol {
            Protocol::Tls12 => 0,
            Protocol::Tls13 => suite.cipher.hash_len(),
        };
        if secrets.traffic_secret.len() != secret_len {
            return Err(SecretsError::TrafficSecretLenInvalid);
        }
        if secrets.sequence > SEQUENCE_MAX {
            return Err(SecretsError::SequenceTooHigh);
        }
        let keys = Self {
            sequence: secrets.sequence,
            key: Secret::padded(secrets.key).ok_or(SecretsError::KeyLenInvalid)?,
            iv: Secret::exact(secrets.iv).ok_or(SecretsError::IvLenInvalid)?,
            traffic_secret: Secret::padded(secrets.traffic_secret)
                .ok_or(SecretsError::TrafficSecretLenInvalid)?,
            context: None,
        };
        if suite.protocol == Protocol::Tls13 {
            let (key, iv) = keys_of(suite.cipher, &keys.traffic_secret);
            if key.octets() != keys.key.octets() || iv.octets() != keys.iv.octets() {
                return Err(SecretsError::TrafficSecretOther);
            }
        }
        Ok(keys)
    }

    /// The first keys of a connection of TLS 1.3.
    pub(super) fn of_traffic_secret(cipher: Cipher, secret: &[u8]) -> Result<Self, SecretsError> {
        if secret.len() != cipher.hash_len() {
            return Err(SecretsError::TrafficSecretLenInvalid);
        }
        let secret = Secret::padded(secret).ok_or(SecretsError::TrafficSecretLenInvalid)?;
        let (key, iv) = keys_of(cipher, &secret);
        Ok(Self { sequence: 0, key, iv, traffic_secret: secret, context: None })
    }

    /// The number of the next record: as many were sealed with the key.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    pub(super) fn release_context(&mut self) {
        self.context = None;
    }

    /// Goes on with the next key (RFC 8446, section 7.2).
    pub(super) fn update(&mut self, cipher: Cipher) {
        let mut next = Secret::empty();
        expand_label(cipher, &self.traffic_secret, b"traffic upd", &mut next, cipher.hash_len());
        self.traffic_secret = next;
        (self.key, self.iv) = keys_of(cipher, &self.traffic_secret);
        self.sequence = 0;
        self.context = None;
    }

    /// Opens a whole record in place: what it is about, and where that stands in it.
    ///
    /// # Errors
    ///
    /// When it was not sealed with this key and number.
    pub(super) fn open(
        &mut self,
        suite: Suite,
        record: &mut [u8],
    ) -> Result<(u8, Range<usize>), RecordError> {
        let sequence = self.take_number().ok_or(RecordError::SequenceExhausted)?;
        let data_at = suite.data_at();
        let (front, sealed) = record.split_at_mut_checked(data_at).ok_or(RecordError::BadRecord)?;
        let data_len = sealed.len().checked_sub(TAG_LEN).ok_or(RecordError::BadRecord)?;
        let (&mut header, explicit) = split_header(front).ok_or(RecordError::BadRecord)?;
        let nonce = match <[u8; EXPLICIT_NONCE_LEN]>::try_from(&*explicit) {
            Ok(explicit) => self.nonce_with(explicit),
            Err(_) => self.nonce(sequence),
        };
        let context = self.context(suite.cipher);
        let opened = match suite.protocol {
            Protocol::Tls13 => context.open_in_place(nonce, Aad::from(header), sealed),
            Protocol::Tls12 => {
                let aad = Aad::from(legacy_aad(sequence, header, data_len));
                context.open_in_place(nonce, aad, sealed)
            }
        };
        let inner = opened.map_err(|_| RecordError::BadRecord)?;
        let (kind, len) = match suite.protocol {
            Protocol::Tls12 => (header[0], inner.len()),
            Protocol::Tls13 => inner_content(inner).ok_or(RecordError::ContentMissing)?,
        };
        Ok((kind, data_at..data_at + len))
    }

    /// Seals a record in place, whose data stands where it has to.
    ///
    /// # Panics
    ///
    /// When `record` is no longer than the overhead of one, or longer than one may be, or when no
    /// number is left.
    pub(super) fn seal(&mut self, suite: Suite, content_kind: u8, record: &mut [u8]) {
        let sequence = self.take_number().expect("keys are changed or closed long before");
        let outer_kind = match suite.protocol {
            Protocol::Tls12 => content_kind,
            Protocol::Tls13 => kind::APPLICATION_DATA,
        };
        let body_len = record.len() - HEADER_LEN;
        let [high, low] = u16::try_from(body_len).expect("a fragment fits").to_be_bytes();
        let header = [outer_kind, LEGACY_VERSION[0], LEGACY_VERSION[1], high, low];

        let (front, sealed) = record.split_at_mut(suite.data_at());
        let (header_room, explicit) = split_header(front).expect("the header stands in front");
        *header_room = header;
        let nonce = self.nonce(sequence);
        let explicit_nonce = nonce.as_ref().split_at(IV_LEN - explicit.len()).1;
        explicit.copy_from_slice(explicit_nonce);

        let (inner, tag_room) = sealed.split_at_mut(sealed.len() - TAG_LEN);
        let data_len = body_len - explicit.len() - TAG_LEN;
        let context = self.context(suite.cipher);
        let tag = match suite.protocol {
            Protocol::Tls13 => {
                *inner.last_mut().expect("it has room for the type") = content_kind;
                context.seal_in_place_separate_tag(nonce, Aad::from(header), inner)
            }
            Protocol::Tls12 => {
                let aad = Aad::from(legacy_aad(sequence, header, data_len));
                context.seal_in_place_separate_tag(nonce, aad, inner)
            }
        };
        // The lengths are those of a record: there is nothing else to refuse.
        tag_room.copy_from_slice(tag.expect("a record can be sealed").as_ref());
    }

    fn take_number(&mut self) -> Option<u64> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1)?;
        Some(sequence)
    }

    /// The vector with the number in its last octets (RFC 8446, section 5.3). TLS 1.2 does it so
    /// too where it has a choice (RFC 7905, section 2).
    fn nonce(&self, sequence: u64) -> Nonce {
        let mut nonce = *self.iv.octets();
        let (_, last) = nonce.split_last_chunk_mut().expect("a vector is longer than a number");
        *last = (u64::from_be_bytes(*last) ^ sequence).to_be_bytes();
        Nonce::assume_unique_for_key(nonce)
    }

    /// The first octets of the vector and what the record says (RFC 5288, section 3).
    fn nonce_with(&self, explicit: [u8; EXPLICIT_NONCE_LEN]) -> Nonce {
        let mut nonce = *self.iv.octets();
        let (_, last) = nonce.split_last_chunk_mut().expect("a vector is longer than that");
        *last = explicit;
        Nonce::assume_unique_for_key(nonce)
    }

    fn context(&mut self, cipher: Cipher) -> &LessSafeKey {
        self.context.get_or_insert_with(|| {
            let key = self.key.first(cipher.key_len()).expect("it has room for every key");
            let key = UnboundKey::new(cipher.algorithm(), key).expect("it has the right length");
            Box::new(LessSafeKey::new(key))
        })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("sequence", &self.sequence)
            .field("has_context", &self.has_context())
            .finish_non_exhaustive()
    }
}

/// A header and what follows it up to the data.
fn split_header(front: &mut [u8]) -> Option<(&mut [u8; HEADER_LEN], &mut [u8])> {
    front.split_first_chunk_mut()
}

/// The additional data of a TLS 1.2 record (RFC 5246, section 6.2.3.3).
fn legacy_aad(sequence: u64, header: [u8; HEADER_LEN], data_len: usize) -> [u8; 13] {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sequence.to_be_bytes();
    let [kind, major, minor, ..] = header;
    // A longer record was refused by its header.
    let [high, low] = u16::try_from(data_len).unwrap_or(u16::MAX).to_be_bytes();
    [s0, s1, s2, s3, s4, s5, s6, s7, kind, major, minor, high, low]
}

/// The type of a content and its length, in front of the padding (RFC 8446, section 5.4).
fn inner_content(inner: &[u8]) -> Option<(u8, usize)> {
    let len = inner.iter().rposition(|&octet| octet != 0)?;
    Some((*inner.get(len)?, len))
}

/// Key and vector of a traffic secret (RFC 8446, section 7.3).
fn keys_of(
    cipher: Cipher,
    secret: &Secret<SECRET_LEN_MAX>,
) -> (Secret<KEY_LEN_MAX>, Secret<IV_LEN>) {
    let (mut key, mut iv) = (Secret::empty(), Secret::empty());
    expand_label(cipher, secret, b"key", &mut key, cipher.key_len());
    expand_label(cipher, secret, b"iv", &mut iv, IV_LEN);
    (key, iv)
}

/// HKDF-Expand-Label without a context, into the first `len` octets (RFC 8446, section 7.1).
fn expand_label<const N: usize>(
    cipher: Cipher,
    secret: &Secret<SECRET_LEN_MAX>,
    label: &[u8],
    out: &mut Secret<N>,
    len: usize,
) {
    const PREFIX: &[u8] = b"tls13 ";
    let secret = secret.first(cipher.hash_len()).expect("it has room for every hash");
    let out = out.first_mut(len).expect("it was made for this label");
    let [_, label_len] = octets_of(PREFIX.len() + label.len());
    let info: [&[u8]; 5] = [&octets_of(len), &[label_len], PREFIX, label, &[0]];
    let prk = Prk::new_less_safe(cipher.hash(), secret);
    let expanded = prk.expand(&info, OutputLen(len)).and_then(|okm| okm.fill(out));
    expanded.expect("a hash or two can be expanded to");
}

fn octets_of(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

/// How long an expansion is to be.
struct OutputLen(usize);

impl KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite { protocol: Protocol::Tls13, cipher: Cipher::Aes128Gcm };

    fn octets(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(octet).collect()
    }

    /// RFC 8448, section 3: the records of the client and the server that hold data.
    #[test]
    fn a_published_connection_is_read_and_written() {
        for (sequence, traffic_secret, key, iv, record) in [
            (
                0,
                "9e40646ce79a7f9dc05af8889bce6552 875afa0b06df0087f792ebb7c17504a5",
                "17422dda596ed5d9acd890e3c63f5051",
                "5b78923dee08579033e523d9",
                "1703030043 a23f7054b62c94d0affafe8228ba55cb efacea42f914aa66bcab3f2b9819a8a5
                 b46b395bd54a9a20441e2b62974e1f5a 6292a2977014bd1e3deae63aeebb21694915e4",
            ),
            (
                1,
                "a11af9f05531f856ad47116b45a95032 8204b4f44bfb6b3a4b4f1f3fcb631643",
                "9f02283b6c9c07efc26bb9f2ac92e356",
                "cf782b88dd83549aadf1e984",
                "1703030043 2e937e11ef4ac740e538ad36005fc4a4 6932fc3225d05f82aa1b36e30efaf97d
                 90e6dffc602dcb501a59a8fcc49c4bf2 e5f0a21c0047c2abf332540dd032e167c2955d",
            ),
        ] {
            let (secret, key, iv) = (octets(traffic_secret), octets(key), octets(iv));
            let secrets =
                DirectionSecrets { sequence, key: &key, iv: &iv, traffic_secret: &secret };
            let expected: Vec<u8> = (0..50).collect();

            let mut opened = octets(record);
            let (kind, range) =
                Keys::new(SUITE, &secrets).unwrap().open(SUITE, &mut opened).unwrap();
            assert_eq!((kind, &opened[range]), (kind::APPLICATION_DATA, &expected[..]));

            let mut sealed = [&[0; HEADER_LEN][..], &expected, &[0; 17]].concat();
            Keys::new(SUITE, &secrets).unwrap().seal(SUITE, kind::APPLICATION_DATA, &mut sealed);
            assert_eq!(sealed, octets(record));
        }
    }

    #[test]
    fn what_is_added_to_data_depends_on_the_suite() {
        use Cipher::{Aes128Gcm, Chacha20Poly1305};
        for (protocol, cipher, data_at, overhead) in [
            (Protocol::Tls12, Aes128Gcm, 13, 29),
            (Protocol::Tls12, Chacha20Poly1305, 5, 21),
            (Protocol::Tls13, Aes128Gcm, 5, 22),
            (Protocol::Tls13, Chacha20Poly1305, 5, 22),
        ] {
            let suite = Suite { protocol, cipher };
            assert_eq!((suite.data_at(), suite.overhead()), (data_at, overhead), "{suite:?}");
            assert!(HEADER_LEN + suite.body_len_max() <= super::super::RECORD_LEN_MAX);
        }
    }
}
