//! Keys of session tickets, which several processes share, at the same time by a file (`SharedTickets`) or one after the
//! other (`OwnTickets`).
//!
//! A ticket is `name (16) | nonce (12) | state, sealed with AES-256-GCM`. Name and key are derived from
//! a secret, and what a ticket may be used for is sealed with it, so that one from a
//! listener without client certificates is not accepted by a listener that requires them. In front of
//! the state stands when it was written (`dated`).

mod dated;
mod early;
mod ring;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use thiserror::Error;
use zeroize::Zeroizing;

pub use early::{EarlyMemory, EarlySessions};
pub use ring::{OwnTickets, TicketRing};

pub(crate) use dated::{DatedSessions, DatedTickets};
pub use dated::{TICKET_SECONDS_MAX, TICKET_SKEW_SECONDS_MAX};

/// Bytes of a file, at least: as many as the key has.
pub const TICKET_SECRET_BYTES_MIN: usize = 32;
/// Bytes of a file, at most.
pub const TICKET_SECRET_BYTES_MAX: usize = 1024;

const NAME_LEN: usize = 16;
const KEY_LEN: usize = 32;

/// What a process knows of its clients' sessions, and hands to the process that takes its place.
#[derive(Clone, Debug, Default)]
pub struct ProcessSessions {
    /// The keys of its own tickets.
    pub ring: Arc<TicketRing>,
    /// Sessions that are good for early data.
    pub early: Arc<EarlyMemory>,
}

/// A key that seals tickets.
pub struct TicketKey {
    name: [u8; NAME_LEN],
    key: LessSafeKey,
}

/// Why a secret is none that a key can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TicketKeyError {
    /// The file is too short to be a secret.
    #[error("a key for tickets has at least {TICKET_SECRET_BYTES_MIN} bytes")]
    TooShort,
    /// The file is too long to be a key.
    #[error("a key for tickets has at most {TICKET_SECRET_BYTES_MAX} bytes")]
    TooLong,
}

/// Ticket keys and a scope that several processes share, so that each accepts the others' tickets.
#[derive(Clone)]
pub struct SharedTickets {
    /// The first seals, and all are tried. Never empty.
    pub keys: Vec<Arc<TicketKey>>,
    /// The scope of tickets: it differs between listeners that require different things of clients.
    pub scope: [u8; 32],
}

impl TicketKey {
    /// Makes one of a file's content, such as what `openssl rand 80` writes.
    ///
    /// # Errors
    ///
    /// When it is too short or too long to be one.
    pub fn new(secret: &[u8]) -> Result<Self, TicketKeyError> {
        if secret.len() < TICKET_SECRET_BYTES_MIN {
            return Err(TicketKeyError::TooShort);
        }
        if secret.len() > TICKET_SECRET_BYTES_MAX {
            return Err(TicketKeyError::TooLong);
        }
        let salt = Salt::new(HKDF_SHA256, b"strait session tickets");
        let secret = salt.extract(secret);
        let mut material = Zeroizing::new([0; NAME_LEN + KEY_LEN]);
        let derived = secret.expand(&[b"name and key, version 2"], Material);
        let filled = derived.and_then(|okm| okm.fill(&mut *material));
        filled.expect("HKDF-SHA256 gives 48 bytes");
        let (name, key) = material.split_at(NAME_LEN);
        let key =
            UnboundKey::new(&AES_256_GCM, key).expect("the key has the length of its algorithm");
        Ok(Self {
            name: name.try_into().expect("the length of a name"),
            key: LessSafeKey::new(key),
        })
    }

    fn seal(&self, scope: &[u8], state: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = state.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_used, Aad::from(scope), &mut sealed).ok()?;
        Some([&self.name[..], &nonce, &sealed].concat())
    }

    /// Opens what stands behind the name.
    fn open(&self, scope: &[u8], nonce: [u8; NONCE_LEN], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut state = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let len = self.key.open_in_place(nonce, Aad::from(scope), &mut state).ok()?.len();
        state.truncate(len);
        Some(state)
    }
}

impl SharedTickets {
    /// The scope of clients for which these rules hold.
    #[must_use]
    pub fn scope_of(rules: &[&[u8]]) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        for rule in rules {
            // With its length, so that no two lists of rules are the same octets.
            context.update(&(rule.len() as u64).to_be_bytes());
            context.update(rule);
        }
        context.finish().as_ref().try_into().expect("SHA-256 has 32 octets")
    }
}

/// The length of what is derived.
struct Material;

impl KeyType for Material {
    fn len(&self) -> usize {
        NAME_LEN + KEY_LEN
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_SECONDS_MAX
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.first()?.seal(&self.scope, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let keyed = |name: &[u8; NAME_LEN]| self.keys.iter().find(|key| key.name == *name).cloned();
        open_ticket(cipher, &self.scope, keyed)
    }
}

/// Opens a ticket with the key of its name.
fn open_ticket(
    ticket: &[u8],
    scope: &[u8],
    keyed: impl FnOnce(&[u8; NAME_LEN]) -> Option<Arc<TicketKey>>,
) -> Option<Vec<u8>> {
    let (name, rest) = ticket.split_first_chunk::<NAME_LEN>()?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
    keyed(name)?.open(scope, *nonce, sealed)
}

impl fmt::Debug for TicketKey {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedTickets {
    /// How many keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTickets").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Arc<TicketKey> {
        Arc::new(TicketKey::new(&[byte; 80]).unwrap())
    }

    fn shared(keys: &[u8], scope: u8) -> SharedTickets {
        SharedTickets { keys: keys.iter().map(|byte| key(*byte)).collect(), scope: [scope; 32] }
    }

    #[test]
    fn whoever_has_the_key_and_asks_the_same_opens_a_ticket() {
        let ticket = shared(&[1, 2], 9).encrypt(b"state").unwrap();
        for (keys, scope, opened) in [
            (&[1, 2][..], 9, Some(b"state".to_vec())),
            (&[3, 1], 9, Some(b"state".to_vec())),
            (&[2], 9, None),
            (&[1], 8, None),
            (&[], 9, None),
        ] {
            assert_eq!(shared(keys, scope).decrypt(&ticket), opened, "{keys:?} {scope}");
        }
        assert_ne!(shared(&[1], 9).encrypt(b"state").unwrap(), ticket);
    }

    #[test]
    fn a_ticket_that_was_touched_or_cut_is_none() {
        let shared = shared(&[1], 9);
        let ticket = shared.encrypt(b"state").unwrap();
        for place in 0..ticket.len() {
            let mut touched = ticket.clone();
            touched[place] ^= 1;
            assert_eq!(shared.decrypt(&touched), None, "{place}");
            assert_eq!(shared.decrypt(&ticket[..place]), None, "{place}");
        }
    }

    #[test]
    fn secrets_have_bounds() {
        for (len, error) in [
            (0, Some(TicketKeyError::TooShort)),
            (31, Some(TicketKeyError::TooShort)),
            (32, None),
            (1024, None),
            (1025, Some(TicketKeyError::TooLong)),
        ] {
            assert_eq!(TicketKey::new(&vec![7; len]).err(), error, "{len}");
        }
    }
}
