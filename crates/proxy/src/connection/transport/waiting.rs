//! What a connection has to send, whether TLS is between or not.

use crate::connection::Connection;
use crate::connection::transport::{Tls, TlsState};
use crate::tools::buffers::Buffers;

impl Connection {
    /// Whether its handshake is going on.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether its handshake has begun and is not over, even if the connection has begun.
    pub(crate) fn owes_handshake(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| match tls.state {
            // Nothing of it is known before its first byte.
            TlsState::Expected(_) => tls.partial.is_some() || self.inbox.is_some(),
            TlsState::Records(_) => false,
            TlsState::Waiting { .. } | TlsState::Handshake(_) | TlsState::Early(_) => true,
        })
    }

    /// Whether its handshake waits for its own signature, and takes nothing until then.
    pub(crate) fn awaits_signature(&self) -> bool {
        let Some(tls) = self.tls.as_deref() else { return false };
        matches!(&tls.state, TlsState::Handshake(Some(handshake)) if handshake.is_waiting())
    }

    /// Whether nothing new should begin on it, for want of a fresh key.
    pub(crate) fn is_key_near_limit(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_key_near_limit())
    }

    /// Bytes of data that the socket did not take yet; none only if it took everything.
    #[inline]
    pub(crate) fn unsent_len(&self) -> usize {
        match &self.tls {
            None => self.outbox.len(),
            Some(tls) => self.unsent_len_of_tls(tls),
        }
    }

    /// Whether the socket took everything: with TLS, the word that nothing follows too, where nothing
    /// does. Without it, the peer would take what it has for a part.
    #[inline]
    pub(crate) fn is_sent(&self) -> bool {
        match &self.tls {
            None => self.outbox.is_empty(),
            Some(tls) => self.is_sent_by_tls(tls),
        }
    }

    // Apart, so that what every connection asks is short.
    #[inline(never)]
    fn unsent_len_of_tls(&self, tls: &Tls) -> usize {
        self.outbox.len() + tls.unsent_len(self.is_ending())
    }

    #[inline(never)]
    fn is_sent_by_tls(&self, tls: &Tls) -> bool {
        self.outbox.is_empty() && tls.is_sent(self.is_ending())
    }

    /// Whether bytes may be there to read from a peer that has nothing more to ask: the records that
    /// say just that, or those that no data comes in. To close without having read them is a reset,
    /// and that may overtake what was sent.
    pub(crate) fn may_have_spoken(&self) -> bool {
        self.tls.is_some() && !self.is_read_closed
    }

    /// The socket took `n` bytes: how many bytes of data waited before, and how many of them are
    /// sent by that.
    pub(crate) fn on_bytes_sent(&mut self, n: usize, buffers: &mut Buffers) -> (usize, usize) {
        let Some(tls) = &mut self.tls else {
            let before = self.outbox.len();
            self.outbox.on_sent(n, buffers);
            return (before, n);
        };
        let sent = tls.on_sent(n, buffers);
        (self.unsent_len() + sent, sent)
    }

    /// Whether a record has begun and is not there whole, so that the peer did not mean to end here.
    pub(crate) fn is_amid_record(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.is_ended() && tls.partial.is_some())
    }

    /// Whether an end now, without close_notify, may come from an attacker on the path, and would pass for the
    /// end of a message, or of what a tunnel carries.
    pub(crate) fn is_cut_off(&self) -> bool {
        let Some(tls) = &self.tls else { return false };
        !tls.is_ended() && !self.is_lingering() && self.codec.reads_to_end()
    }
}
