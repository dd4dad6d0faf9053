//! How long a client may resume a session, from a ticket or from the server's cache.
//!
//! rustls announces a ticket's lifetime and accepts the ticket after it all the same: keys
//! that processes share live as long as their files, and a process that was idle keeps its former key. So
//! the time at which a session was written stands in front of it, sealed with it, and is looked at
//! before rustls sees the rest.

use std::sync::Arc;

use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls_pki_types::UnixTime;

/// Seconds after which a session is no longer taken: the announced lifetime, and as long as rustls takes
/// tickets of keys that it makes itself. The files of shared keys have to be kept as long.
pub const TICKET_SECONDS_MAX: u32 = 12 * 3600;

/// Seconds by which the clock of the process that wrote a session may be ahead: some minutes, as for
/// certificates. A session from further ahead has no valid age.
pub const TICKET_SKEW_SECONDS_MAX: u32 = 300;

/// Tickets of others, with the time.
#[derive(Debug)]
pub(crate) struct DatedTickets(pub(crate) Arc<dyn ProducesTickets>);

/// Sessions that are kept here, with the time.
#[derive(Debug)]
pub(crate) struct DatedSessions(pub(crate) Arc<dyn StoresServerSessions>);

impl ProducesTickets for DatedTickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime().min(TICKET_SECONDS_MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(&date(plain, now()))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        undate(self.0.decrypt(cipher)?, now())
    }
}

impl StoresServerSessions for DatedSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.put(key, date(&value, now()))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        undate(self.0.get(key)?, now())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        undate(self.0.take(key)?, now())
    }

    fn can_cache(&self) -> bool {
        self.0.can_cache()
    }
}

/// The clock that rustls looks at, too: seconds since the Unix epoch.
pub(super) fn now() -> u64 {
    UnixTime::now().as_secs()
}

fn date(session: &[u8], now: u64) -> Vec<u8> {
    [&now.to_be_bytes(), session].concat()
}

/// The state behind the time, unless the time is too long ago, or in the future.
fn undate(mut dated: Vec<u8>, now: u64) -> Option<Vec<u8>> {
    let written = u64::from_be_bytes(*dated.first_chunk()?);
    let is_from_ahead = written > now.saturating_add(u64::from(TICKET_SKEW_SECONDS_MAX));
    let is_too_old = now.saturating_sub(written) > u64::from(TICKET_SECONDS_MAX);
    dated.drain(..size_of::<u64>());
    (!is_from_ahead && !is_too_old).then_some(dated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_taken_for_twelve_hours_and_not_before_it_was_written() {
        const WRITTEN: u64 = 1_800_000_000;
        for (at, is_taken) in [
            (WRITTEN, true),
            (WRITTEN + 12 * 3600, true),
            (WRITTEN + 12 * 3600 + 1, false),
            (WRITTEN + 80 * 24 * 3600, false),
            // The other process's clock is ahead of this one's.
            (WRITTEN - 300, true),
            (WRITTEN - 301, false),
            (0, false),
            (u64::MAX, false),
        ] {
            let taken = undate(date(b"state", WRITTEN), at);
            assert_eq!(taken, is_taken.then(|| b"state".to_vec()), "{at}");
        }
    }

    #[test]
    fn what_has_no_time_is_none() {
        for dated in [&b""[..], b"state"] {
            assert_eq!(undate(dated.to_vec(), 0), None);
        }
        assert_eq!(undate(vec![0; 8], 0), Some(Vec::new()));
    }

    #[test]
    fn the_time_is_sealed_and_kept_with_the_session() {
        let tickets = DatedTickets(rustls::crypto::aws_lc_rs::Ticketer::new().unwrap());
        let ticket = tickets.encrypt(b"state").unwrap();
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"state"[..]));
        // A ticket without it comes from another program, and its first bytes are no time of today.
        let ticket = tickets.0.encrypt(&[0xff; 40]).unwrap();
        assert_eq!(tickets.decrypt(&ticket), None);
        let old = tickets.0.encrypt(&date(b"state", now() - 13 * 3600)).unwrap();
        assert_eq!(tickets.decrypt(&old), None);

        let sessions = DatedSessions(rustls::server::ServerSessionMemoryCache::new(4));
        assert!(sessions.put(vec![1], b"state".to_vec()));
        assert_eq!(sessions.get(&[1]).as_deref(), Some(&b"state"[..]));
        assert!(sessions.0.put(vec![2], date(b"state", now() - 13 * 3600)));
        assert_eq!(sessions.take(&[2]), None);
    }
}
