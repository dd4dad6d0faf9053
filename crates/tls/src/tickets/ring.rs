//! The keys of a process's own session tickets: made here, changed by themselves, and written down for the process
//! that takes this one's place, so that clients resume their sessions there.
//!
//! ```text
//!  newest ──► seals for ROTATION_SECONDS ──► opens until no ticket of it can be valid ──► wiped
//! ```
//!
//! A secret is random and says nothing of the one before or behind it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use super::dated::{self, TICKET_SECONDS_MAX, TICKET_SKEW_SECONDS_MAX};
use super::{NAME_LEN, TicketKey, open_ticket};

/// For how long a key seals.
const ROTATION_SECONDS: u64 = TICKET_SECONDS_MAX as u64 / 2;

/// For how long a key is kept: it seals, and then opens what it sealed last.
const KEPT_SECONDS: u64 = ROTATION_SECONDS + TICKET_SECONDS_MAX as u64;

/// Keys that are kept: those of this process, and of processes before it.
const KEYS_MAX: usize = 8;

const SECRET_LEN: usize = 32;

/// A secret as it is written down: since when it seals, in seconds since the Unix epoch, and itself.
const WRITTEN_LEN: usize = size_of::<u64>() + SECRET_LEN;

/// Keys of tickets, the newest first. Read for each ticket, and written to when one is too old: a reader waits
/// for no more than that.
#[derive(Default)]
pub struct TicketRing {
    keys: RwLock<Vec<RingKey>>,
}

#[derive(Clone)]
struct RingKey {
    secret: Zeroizing<[u8; SECRET_LEN]>,
    key: Arc<TicketKey>,
    since: u64,
}

impl RingKey {
    fn new(secret: Zeroizing<[u8; SECRET_LEN]>, since: u64) -> Option<Self> {
        let key = Arc::new(TicketKey::new(&*secret).ok()?);
        Some(Self { secret, key, since })
    }

    /// Whether the key is no longer, or not yet, of use.
    const fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.since) > KEPT_SECONDS
            || self.since > now.saturating_add(TICKET_SKEW_SECONDS_MAX as u64)
    }
}

impl TicketRing {
    /// The keys that are of use, for the process that takes this one's place.
    #[must_use]
    pub fn write(&self) -> Zeroizing<Vec<u8>> {
        let now = dated::now();
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        // As long as it gets, so that nothing of it is left behind where it was shorter.
        let mut written = Zeroizing::new(Vec::with_capacity(KEYS_MAX * WRITTEN_LEN));
        for key in keys.iter().filter(|key| !key.is_over(now)) {
            written.extend_from_slice(&key.since.to_be_bytes());
            written.extend_from_slice(&*key.secret);
        }
        written
    }

    /// Goes on with the keys that a process before this one wrote down, beside those of this one. What is no key is left
    /// out.
    pub fn adopt(&self, written: &[u8]) {
        let now = dated::now();
        let read = |written: &[u8]| {
            let (since, secret) = written.split_first_chunk()?;
            let secret = Zeroizing::new(secret.try_into().ok()?);
            RingKey::new(secret, u64::from_be_bytes(*since)).filter(|key| !key.is_over(now))
        };
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for key in written.chunks_exact(WRITTEN_LEN).filter_map(read) {
            if keys.iter().all(|known| known.secret != key.secret) {
                keys.push(key);
            }
        }
        keys.sort_by_key(|key| std::cmp::Reverse(key.since));
        keys.truncate(KEYS_MAX);
    }

    /// The key that seals now.
    fn sealing(&self, now: u64) -> Option<Arc<TicketKey>> {
        let is_young = |key: &&RingKey| now.saturating_sub(key.since) < ROTATION_SECONDS;
        let newest =
            |keys: &[RingKey]| keys.first().filter(is_young).map(|key| Arc::clone(&key.key));
        let found = newest(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        if found.is_some() {
            return found;
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been here first.
        if let Some(key) = newest(&keys) {
            return Some(key);
        }
        let mut secret = Zeroizing::new([0; SECRET_LEN]);
        rand::fill(&mut *secret).ok()?;
        let key = RingKey::new(secret, now)?;
        let sealing = Arc::clone(&key.key);
        keys.retain(|key| !key.is_over(now));
        keys.insert(0, key);
        keys.truncate(KEYS_MAX);
        Some(sealing)
    }

    fn opening(&self, name: &[u8; NAME_LEN], now: u64) -> Option<Arc<TicketKey>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let known = keys.iter().find(|key| key.key.name == *name && !key.is_over(now));
        known.map(|key| Arc::clone(&key.key))
    }
}

/// Tickets of a process's own keys, for clients for which the same rules hold.
#[derive(Clone, Debug)]
pub struct OwnTickets {
    /// The keys.
    pub ring: Arc<TicketRing>,
    /// The scope of tickets: it differs where clients would have been agreed with on something else.
    pub scope: [u8; 32],
}

impl ProducesTickets for OwnTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_SECONDS_MAX
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.ring.sealing(dated::now())?.seal(&self.scope, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        open_ticket(cipher, &self.scope, |name| self.ring.opening(name, dated::now()))
    }
}

impl fmt::Debug for TicketRing {
    /// Shows nothing of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketRing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(ring: &Arc<TicketRing>, scope: u8) -> OwnTickets {
        OwnTickets { ring: Arc::clone(ring), scope: [scope; 32] }
    }

    #[test]
    fn a_ticket_is_opened_after_any_number_of_processes_and_where_the_same_is_asked() {
        let rings: Vec<_> = (0..4).map(|_| Arc::<TicketRing>::default()).collect();
        let ticket = tickets(&rings[0], 7).encrypt(b"state").unwrap();
        for pair in rings.windows(2) {
            assert_eq!(tickets(&pair[1], 7).decrypt(&ticket), None);
            // It has begun to seal by itself.
            let own = tickets(&pair[1], 7).encrypt(b"own").unwrap();
            pair[1].adopt(&pair[0].write());
            assert_eq!(tickets(&pair[1], 7).decrypt(&ticket).as_deref(), Some(&b"state"[..]));
            assert_eq!(tickets(&pair[1], 8).decrypt(&ticket), None);
            assert_eq!(tickets(&pair[1], 7).decrypt(&own).as_deref(), Some(&b"own"[..]));
        }
    }

    #[test]
    fn keys_change_and_open_for_as_long_as_their_tickets_last() {
        let ring = TicketRing::default();
        let first = ring.sealing(1000).unwrap();
        assert_eq!(ring.sealing(1000 + ROTATION_SECONDS - 1).unwrap().name, first.name);
        let second = ring.sealing(1000 + ROTATION_SECONDS).unwrap();
        assert_ne!(second.name, first.name);
        assert!(ring.opening(&first.name, 1000 + KEPT_SECONDS).is_some());
        assert!(ring.opening(&first.name, 1001 + KEPT_SECONDS).is_none());
        let mut now = 1000;
        for _ in 0..100 {
            now += ROTATION_SECONDS;
            ring.sealing(now).unwrap();
        }
        assert!(ring.keys.read().unwrap().len() <= 4);
    }

    #[test]
    fn what_is_no_key_is_not_taken() {
        let (from, ring) = (Arc::<TicketRing>::default(), Arc::<TicketRing>::default());
        let ticket = tickets(&from, 7).encrypt(b"state").unwrap();
        let written = from.write();
        assert_eq!(written.len(), WRITTEN_LEN);
        for end in 0..written.len() {
            ring.adopt(&written[..end]);
        }
        for since in [0, u64::MAX, dated::now() + 1000, dated::now() - KEPT_SECONDS - 1] {
            ring.adopt(&[&since.to_be_bytes(), &written[8..]].concat());
        }
        assert_eq!(tickets(&ring, 7).decrypt(&ticket), None);
        assert!(ring.write().is_empty());
        for _ in 0..2 {
            ring.adopt(&written);
        }
        assert_eq!(*ring.write(), *written, "once");
        for byte in 0..20 {
            ring.adopt(&[&dated::now().to_be_bytes()[..], &[byte; SECRET_LEN]].concat());
        }
        assert_eq!(ring.write().len(), KEYS_MAX * WRITTEN_LEN);
    }
}
