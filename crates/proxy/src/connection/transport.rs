//! Hop 3: what is between a socket's bytes and a connection's data.
//!
//! Without TLS, nothing. With it, the connection has a [`Tls`]: first a handshake (`handshakes`), which is
//! finished where it began, then a record layer, which is data like everything else of a connection. What
//! is read is opened in the buffer that it was read into, and goes on as if it had come like that;
//! what is sent is sealed when the worker is about to send, into the buffer that is sent. Queues,
//! windows and deadlines know data only.
//!
//! ```text
//!   on_received ─► (partial) ─► handshake ─┐ ─► begin_protocol / on_established
//!                       │                  ▼
//!                       └────────► open ─► on_data
//!   unsent ◄─ Tls::outbox ◄─ seal ◄─ Connection::outbox
//! ```

pub(crate) mod handshakes;
mod records;
pub(crate) mod waiting;
use std::sync::Arc;

use config::snapshot::{Address, ClusterTls, ListenerTls};
use tls::{EarlyHandshake, Handshake, HandshakeFacts, PeerCertificate, TicketKeeper};
use wire::buffer::Buffer;
use wire::tls::record::{RECORD_LEN_MAX, RecordLayer, SealError};

use crate::connection::handshake_slots::SlotKey;
use crate::tools::buffers::{BUFFER_BYTES_MAX, Buffers};
use crate::tools::outbox::{Outbox, SLICES_MAX};
use crate::tools::time::Time;
use crate::tools::wheel::TimerKey;

/// Sealed bytes that may wait; more data is sealed when these are sent.
const SEALED_BYTES_MAX: usize = BUFFER_BYTES_MAX;

/// What a connection of TLS has in addition.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) state: TlsState,
    /// The beginning of a record, or of what a handshake waits for.
    pub(crate) partial: Option<Buffer>,
    /// Bytes that `partial` has to have before it is worth a look.
    pub(crate) wanted: usize,
    /// What keeps the tickets of an upstream, for connections to come.
    pub(crate) tickets: Option<Box<TicketKeeper>>,
    /// Its place among the handshakes of clients, while it is one of them.
    pub(crate) slot: Option<SlotKey>,
    /// What a client's handshake has found out.
    pub(crate) facts: Option<Box<ClientFacts>>,
    /// Records that wait to be sent.
    pub(crate) outbox: Outbox,
    /// Bytes of data in these records.
    sealed: usize,
    /// When the handshake began.
    began: Time,
    /// Whether anything came or went since [`Proxy::cool_down`](crate::Proxy::cool_down) looked last.
    pub(crate) is_warm: bool,
    /// Whether [`KeyUsage::NearLimit`] was acted on.
    pub(crate) is_key_limit_warned: bool,
}

/// How much of a sending key is used up: one of TLS 1.2 is good for so many records, and there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyUsage {
    Good,
    /// Nothing new should begin on the connection. Reported until that is seen to.
    NearLimit,
    /// What waits cannot be sent any more.
    Exhausted,
}

#[derive(Debug)]
pub(crate) enum TlsState {
    /// A client is to begin it, and has sent nothing yet.
    Expected(Arc<ListenerTls>),
    /// It begins when the connection stands.
    Waiting {
        settings: Arc<ClusterTls>,
        /// Whether what is carried is not read here, so that no protocol is offered for it.
        is_raw: bool,
        /// Who the endpoint has to be, unless the settings say more; a host name or an address.
        server_name: Arc<str>,
    },
    /// `None` only while it takes a step.
    Handshake(Option<Box<Handshake>>),
    /// The connection has begun, and the client's Finished is still to come.
    Early(Box<Early>),
    Records(Box<RecordLayer>),
}

#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) records: Box<RecordLayer>,
    pub(crate) handshake: EarlyHandshake,
    /// Armed for the deadline of the handshake: the connection's own timer is that of its requests.
    pub(crate) timer: TimerKey,
}

/// What the access log says of a connection's TLS.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TlsWords<'a> {
    pub(crate) server_name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) cipher: &'a str,
    pub(crate) peer_identity: &'a str,
}

/// What is known of a client since its handshake.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct ClientFacts {
    pub(crate) handshake: HandshakeFacts,
    /// The URI of the certificate that it was shown, if it showed one itself.
    pub(crate) shown_uri: Option<Box<str>>,
}

/// A client's certificate, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientCert<'a> {
    pub(crate) peer: &'a PeerCertificate,
    /// The URI of the certificate that the client was shown.
    pub(crate) shown_uri: Option<&'a str>,
}

/// What of a connection's TLS is written down. Its handshake is over.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct SavedTls {
    records: Box<RecordLayer>,
    partial: Vec<u8>,
    wanted: usize,
    facts: Option<Box<ClientFacts>>,
    outbox: Vec<u8>,
    sealed: usize,
    is_key_limit_warned: bool,
}

impl SavedTls {
    /// The server name that a client asked for.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.facts.as_deref()?.handshake.server_name.as_deref()
    }
}

impl Tls {
    pub(crate) fn new(state: TlsState, now: Time) -> Self {
        Self {
            state,
            partial: None,
            wanted: 0,
            tickets: None,
            slot: None,
            facts: None,
            outbox: Outbox::new(),
            sealed: 0,
            began: now,
            is_warm: true,
            is_key_limit_warned: false,
        }
    }

    /// Of a connection that is still to be established. `host` is what the endpoint is called, if a name led to it.
    pub(crate) fn waiting(
        settings: &Arc<ClusterTls>,
        is_raw: bool,
        host: Option<&Arc<str>>,
        address: &Address,
        now: Time,
    ) -> Self {
        let server_name = match (settings.server_name.as_ref().or(host), address) {
            (Some(name), _) => Arc::clone(name),
            (None, Address::Tcp(address)) => Arc::from(address.ip().to_string()),
            // An address is not asked for, and what its certificate has to have is in the context.
            (None, Address::Unix(_)) => Arc::from("127.0.0.1"),
        };
        Self::new(TlsState::Waiting { settings: Arc::clone(settings), is_raw, server_name }, now)
    }

    /// Whether the connection is still to begin.
    pub(crate) const fn is_handshaking(&self) -> bool {
        matches!(
            self.state,
            TlsState::Expected(_) | TlsState::Waiting { .. } | TlsState::Handshake(_)
        )
    }

    /// Whether the connection has begun before the end of its handshake, so that what comes may have
    /// been said before, on another connection.
    pub(crate) const fn is_early(&self) -> bool {
        matches!(self.state, TlsState::Early(_))
    }

    const fn records(&self) -> Option<&RecordLayer> {
        match &self.state {
            TlsState::Expected(_) | TlsState::Waiting { .. } | TlsState::Handshake(_) => None,
            TlsState::Early(early) => Some(&early.records),
            TlsState::Records(records) => Some(records),
        }
    }

    pub(crate) const fn records_mut(&mut self) -> Option<&mut RecordLayer> {
        match &mut self.state {
            TlsState::Expected(_) | TlsState::Waiting { .. } | TlsState::Handshake(_) => None,
            TlsState::Early(early) => Some(&mut early.records),
            TlsState::Records(records) => Some(records),
        }
    }

    /// What goes to the socket before the handshake.
    pub(crate) const fn preamble(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Bytes that wait to be sent, as the socket counts them.
    pub(crate) const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// The client's certificate, if it showed one.
    pub(crate) fn client_cert(&self) -> Option<ClientCert<'_>> {
        let facts = self.facts.as_deref()?;
        let peer = facts.handshake.peer.as_deref()?;
        Some(ClientCert { peer, shown_uri: facts.shown_uri.as_deref() })
    }

    /// What the access log says of it.
    pub(crate) fn words(&self) -> TlsWords<'_> {
        let Some(facts) = self.facts.as_deref() else { return TlsWords::default() };
        let HandshakeFacts { version, cipher_suite, server_name, peer, .. } = &facts.handshake;
        let identity = peer.as_ref().map(|peer| {
            peer.uris.first().or_else(|| peer.dns_names.first()).unwrap_or(&peer.subject)
        });
        TlsWords {
            server_name: server_name.as_deref().unwrap_or_default(),
            version: version.name(),
            cipher: cipher_suite.name(),
            peer_identity: identity.map_or("", |name| &**name),
        }
    }

    /// The server name that a client asked for, as far as it was read.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.state {
            TlsState::Handshake(Some(handshake)) => handshake.server_name(),
            _ => self.facts.as_deref()?.handshake.server_name.as_deref(),
        }
    }

    /// Whether the peer has said that nothing more comes.
    pub(crate) fn is_ended(&self) -> bool {
        self.records().is_some_and(RecordLayer::is_ended)
    }

    /// Whether its key is good for what is on its way and no more (RFC 8446, section 5.5).
    fn is_key_near_limit(&self) -> bool {
        self.records().is_some_and(RecordLayer::is_key_near_limit)
    }

    /// Whether nothing waits to be sent: no record and, if this is the end of what is said, not the
    /// word that it is.
    fn is_sent(&self, is_ending: bool) -> bool {
        let can_say = self.records().is_some_and(RecordLayer::is_open_for_data);
        self.outbox.is_empty() && !(is_ending && can_say)
    }

    /// Bytes of data in records that the socket did not take; at least one while anything waits.
    #[inline]
    fn unsent_len(&self, is_ending: bool) -> usize {
        if self.is_sent(is_ending) { 0 } else { self.sealed.max(1) }
    }

    /// Seals as much of `data` as may wait and, behind all of it, close_notify if nothing follows.
    /// Says how the key is after it.
    pub(crate) fn seal(
        &mut self,
        data: &mut Outbox,
        is_ending: bool,
        buffers: &mut Buffers,
    ) -> KeyUsage {
        self.is_warm = true;
        let records = match &mut self.state {
            TlsState::Expected(_) | TlsState::Waiting { .. } | TlsState::Handshake(_) => {
                return KeyUsage::Good;
            }
            TlsState::Early(early) => &mut early.records,
            TlsState::Records(records) => records,
        };
        while self.outbox.len() < SEALED_BYTES_MAX {
            let mut slices = [std::io::IoSlice::new(&[]); SLICES_MAX];
            let count = data.slices(&mut slices);
            let mut pieces = [&[][..]; SLICES_MAX];
            for (piece, slice) in pieces.iter_mut().zip(slices.iter().take(count)) {
                *piece = slice;
            }
            let pieces = pieces.get(..count).unwrap_or_default();
            let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
            if len == 0 && is_ending {
                records.send_close();
            }
            if len == 0 && !records.has_control() {
                break;
            }
            let room = records.sealed_len(len).min(BUFFER_BYTES_MAX);
            let mut sealed = None;
            self.outbox.push_with(room, buffers, |out| sealed = Some(records.seal(pieces, out)));
            let taken = match sealed {
                Some(Ok(sealed)) => sealed.taken,
                Some(Err(SealError::KeyExhausted)) => return KeyUsage::Exhausted,
                // Once sending is over, what waits is not sent.
                Some(Err(SealError::Closed)) | None => len,
            };
            data.on_sent(taken, buffers);
            self.sealed += taken;
            if taken == 0 {
                break;
            }
        }
        match records.is_key_near_limit() && !self.is_key_limit_warned {
            true => KeyUsage::NearLimit,
            false => KeyUsage::Good,
        }
    }

    /// The socket took `n` bytes; how many of data are counted as sent by that.
    fn on_sent(&mut self, n: usize, buffers: &mut Buffers) -> usize {
        self.outbox.on_sent(n, buffers);
        // What is sealed may be longer than what it holds; the last byte of data is sent when
        // everything is.
        let sent = match self.outbox.is_empty() {
            true => self.sealed,
            false => n.min(self.sealed.saturating_sub(1)),
        };
        self.sealed -= sent;
        sent
    }

    /// The bytes that say that nothing more will be sent.
    fn close_notify(&mut self) -> Option<Box<[u8]>> {
        if !self.outbox.is_empty() {
            return None;
        }
        let records = self.records_mut()?;
        records.send_close();
        last_words(records)
    }

    /// Bytes of the buffers that it has.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.outbox.buffered_bytes() + self.partial.as_ref().map_or(0, Buffer::capacity)
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self, buffers: &mut Buffers) {
        self.outbox.clear(buffers);
        if let Some(partial) = self.partial.take() {
            buffers.give_back(partial);
        }
    }

    /// Nothing happened for a while.
    pub(crate) fn on_quiet(&mut self) {
        if let TlsState::Records(records) = &mut self.state
            && !std::mem::replace(&mut self.is_warm, false)
            && records.has_contexts()
        {
            records.on_idle();
        }
    }

    /// What is written down of it.
    pub(crate) fn save(mut self, buffers: &mut Buffers) -> Option<SavedTls> {
        let partial = self.partial.as_ref().map_or(&[][..], Buffer::filled).to_vec();
        let outbox = self.outbox.to_vec();
        self.clear(buffers);
        let TlsState::Records(records) = self.state else { return None };
        let (wanted, facts, sealed) = (self.wanted, self.facts, self.sealed);
        let is_key_limit_warned = self.is_key_limit_warned;
        Some(SavedTls { records, partial, wanted, facts, outbox, sealed, is_key_limit_warned })
    }

    /// The same elsewhere.
    pub(crate) fn restore(saved: SavedTls, buffers: &mut Buffers) -> Self {
        let mut outbox = Outbox::new();
        outbox.push(&saved.outbox, buffers);
        let partial = (!saved.partial.is_empty()).then(|| buffers.lease_with(&saved.partial));
        let (wanted, sealed) = (saved.wanted, saved.sealed);
        let state = TlsState::Records(saved.records);
        let (facts, tickets, began) = (saved.facts, None, Time::NEVER);
        let (is_warm, is_key_limit_warned) = (true, saved.is_key_limit_warned);
        Self {
            state,
            partial,
            wanted,
            tickets,
            slot: None,
            facts,
            outbox,
            sealed,
            began,
            is_warm,
            is_key_limit_warned,
        }
    }
}

pub(crate) fn last_words(records: &mut RecordLayer) -> Option<Box<[u8]>> {
    if !records.has_control() {
        return None;
    }
    let mut out = Buffer::new(records.sealed_len(0));
    records.send_control(&mut out);
    Some(out.filled().into())
}

const _: () = assert!(RECORD_LEN_MAX <= BUFFER_BYTES_MAX);

#[cfg(test)]
mod tests {
    use wire::tls::record::{
        Cipher, DirectionSecrets, KEY_RECORDS_MAX, Protocol, Secrets, Sizing, Suite, TlsRole,
    };

    use super::*;

    /// A connection of TLS 1.2 that has sealed so many records.
    fn at(sequence: u64) -> Tls {
        let direction =
            || DirectionSecrets { key: &[7; 16], iv: &[7; 12], sequence, traffic_secret: &[] };
        let suite = Suite { protocol: Protocol::Tls12, cipher: Cipher::Aes128Gcm };
        let secrets = Secrets { suite, send: direction(), receive: direction() };
        let records = RecordLayer::new(TlsRole::Server, &secrets, Sizing::Full).unwrap();
        Tls::new(TlsState::Records(Box::new(records)), Time::from_nanos(0))
    }

    #[test]
    fn a_key_near_its_limit_is_reported_once_and_what_it_cannot_seal_is_kept() {
        let mut buffers = Buffers::default();
        let mut data = Outbox::new();
        for (sequence, stream_budget, left) in [
            (0, KeyUsage::Good, 0),
            (KEY_RECORDS_MAX - (1 << 20), KeyUsage::NearLimit, 0),
            (KEY_RECORDS_MAX - 1, KeyUsage::NearLimit, 0),
            (KEY_RECORDS_MAX, KeyUsage::Exhausted, 4),
        ] {
            let mut tls = at(sequence);
            data.push(b"data", &mut buffers);
            assert_eq!(tls.seal(&mut data, false, &mut buffers), stream_budget, "{sequence}");
            assert_eq!((data.len(), tls.sealed), (left, 4 - left), "{sequence}");
            if stream_budget == KeyUsage::NearLimit {
                tls.is_key_limit_warned = true;
                assert_eq!(
                    tls.seal(&mut data, false, &mut buffers),
                    KeyUsage::Good,
                    "it is reported once"
                );
            }
            data.clear(&mut buffers);
            tls.clear(&mut buffers);
        }
    }

    #[test]
    fn a_restored_connection_does_not_report_its_key_again() {
        let mut buffers = Buffers::default();
        let mut data = Outbox::new();
        let mut tls = at(KEY_RECORDS_MAX - (1 << 20));
        data.push(b"data", &mut buffers);
        assert_eq!(tls.seal(&mut data, false, &mut buffers), KeyUsage::NearLimit);
        tls.is_key_limit_warned = true;
        let saved = tls.save(&mut buffers).unwrap();
        let bytes = postcard::to_stdvec(&saved).unwrap();
        let saved: SavedTls = postcard::from_bytes(&bytes).unwrap();
        let mut tls = Tls::restore(saved, &mut buffers);
        tls.clear(&mut buffers);
        data.push(b"more", &mut buffers);
        assert_eq!(tls.seal(&mut data, false, &mut buffers), KeyUsage::Good);
        data.clear(&mut buffers);
        tls.clear(&mut buffers);
    }
}
