//! How the traffic secrets of a handshake get out of rustls.
//!
//! rustls does not hand them out after a handshake: they only pass its key log, which belongs to a
//! whole configuration. A handshake runs on one thread from end to end of a call, so a slot
//! of the thread that is open during that call, and at no other time, catches those of this
//! handshake and of none else. The record layer checks that they are those of its keys.

use std::cell::RefCell;

use rustls::KeyLog;
use zeroize::Zeroizing;

use crate::key_log;

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const CLIENT_HANDSHAKE: &str = "CLIENT_HANDSHAKE_TRAFFIC_SECRET";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

thread_local! {
    /// Where those of the handshake go that is in a call on this thread.
    static SLOT: RefCell<Option<TrafficSecrets>> = const { RefCell::new(None) };
}

/// The secrets that keys of a TLS 1.3 connection come from; empty in TLS 1.2.
#[derive(Default)]
pub(crate) struct TrafficSecrets {
    pub(crate) client: TrafficSecret,
    /// The secret with which the client seals the rest of the handshake.
    pub(crate) client_handshake: TrafficSecret,
    pub(crate) server: TrafficSecret,
}

/// One of them, overwritten when it is let go. It stays in one place while what has it is moved: a move leaves a copy.
#[derive(Default)]
pub(crate) struct TrafficSecret(Zeroizing<Vec<u8>>);

/// The key log of every configuration.
#[derive(Debug)]
pub(crate) struct Capture;

/// Closes the slot, even when the call does not return.
struct Open;

impl TrafficSecrets {
    /// Runs `call`, and adds the secrets of the handshake that goes on in it.
    pub(crate) fn during<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let open = Open::new(std::mem::take(self));
        let result = call();
        *self = open.close();
        result
    }
}

impl Open {
    fn new(secrets: TrafficSecrets) -> Self {
        let before = SLOT.replace(Some(secrets));
        assert!(before.is_none(), "a handshake goes on inside another");
        Self
    }

    fn close(self) -> TrafficSecrets {
        SLOT.take().expect("only this closes it")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        SLOT.set(None);
    }
}

impl TrafficSecret {
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }

    fn set(&mut self, secret: &[u8]) {
        self.0 = Zeroizing::new(secret.to_vec());
    }
}

impl KeyLog for Capture {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        key_log::log(label, client_random, secret);
        SLOT.with_borrow_mut(|slot| {
            let Some(secrets) = slot else { return };
            match label {
                CLIENT => secrets.client.set(secret),
                CLIENT_HANDSHAKE => secrets.client_handshake.set(secret),
                SERVER => secrets.server.set(secret),
                _ => {}
            }
        });
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT | CLIENT_HANDSHAKE | SERVER) || key_log::is_enabled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_at_another_time_goes_nowhere() {
        let mut first = TrafficSecrets::default();
        Capture.log(CLIENT, &[], &[9; 32]);
        first.during(|| Capture.log(CLIENT, &[], &[1; 32]));
        Capture.log(SERVER, &[], &[9; 32]);
        let mut second = TrafficSecrets::default();
        second.during(|| Capture.log("EXPORTER_SECRET", &[], &[9; 32]));
        second.during(|| Capture.log(SERVER, &[], &[2; 48]));
        assert_eq!(first.client.octets(), [1; 32]);
        assert_eq!(first.server.octets(), [0; 0]);
        assert_eq!(second.client.octets(), [0; 0]);
        assert_eq!(second.server.octets(), [2; 48]);
    }

    #[test]
    fn a_call_that_panics_leaves_nothing_behind() {
        let mut first = TrafficSecrets::default();
        let call = std::panic::AssertUnwindSafe(|| {
            first.during(|| {
                Capture.log(CLIENT, &[], &[1; 32]);
                panic!("on purpose");
            });
        });
        assert!(std::panic::catch_unwind(call).is_err());
        let mut second = TrafficSecrets::default();
        second.during(|| {});
        assert_eq!(second.client.octets(), [0; 0]);
    }
}
