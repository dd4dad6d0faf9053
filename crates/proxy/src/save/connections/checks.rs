//! Whether connections that are read may go on here: whether they agree with themselves, would have been agreed on in the same way,
//! and find room.

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::chains::{ConnectionFacts, Criterion};
use config::protocols::Protocols;
use config::snapshot::{Address, Detected, Listener, OriginalDestination};
use wire::rpc::RpcName;

use super::{SavedConnection, SavedDownstream, SavedUpstream, SavedUpstreamState};
use crate::connection::codec::Opening;
use crate::connection::codec::http1::{Http1, Receive};
use crate::connection::transport::SavedTls;
use crate::cx::Cx;
use crate::filter::Filter;
use crate::listen::Listen;
use crate::listen::clients::Part;
use crate::save::codecs::SavedCodec;
use crate::save::group::Group;
use crate::save::{Differing, RestoreError, SavedEnd};

impl SavedConnection {
    /// Whether so many exchanges may be there: one on each stream, or one where there are no streams.
    fn carries(&self, exchanges: usize) -> bool {
        match &self.codec {
            SavedCodec::Http2(saved) => saved.carries(exchanges),
            SavedCodec::Rpc(saved) => saved.shared.carries(exchanges),
            SavedCodec::Opening(_) => exchanges == 0,
            SavedCodec::Http1(_) | SavedCodec::Bytes(_) => exchanges <= 1,
        }
    }

    /// Whether what it speaks is known, and what is written of that agrees with itself.
    fn check_protocol(&self, protocols: &Protocols) -> Result<(), RestoreError> {
        let SavedCodec::Rpc(saved) = &self.codec else { return Ok(()) };
        let known = RpcName::new(&saved.protocol).and_then(|name| protocols.find(name));
        known.ok_or(RestoreError::Differs("protocol"))?;
        let (streams, last) = (&saved.shared.streams, saved.shared.codec.last_slot());
        let is_sound = streams.iter().all(|stream| (1..=last).contains(&stream.id));
        let damage = RestoreError::Damaged("a call has an id that its connection has not given");
        if is_sound { Ok(()) } else { Err(damage) }
    }
}

impl SavedEnd {
    /// Whether what it speaks is known.
    pub(in crate::save) fn check_protocol(
        &self,
        protocols: &Protocols,
    ) -> Result<(), RestoreError> {
        match self {
            Self::Downstream(saved) => saved.connection.check_protocol(protocols),
            Self::Upstream(saved) => saved.connection.check_protocol(protocols),
        }
    }

    /// Whether so many exchanges of its group may be on it.
    pub(in crate::save) fn carries(&self, exchanges: usize) -> bool {
        match self {
            Self::Downstream(saved) => saved.connection.carries(exchanges),
            Self::Upstream(saved) => {
                let codec = &saved.connection.codec;
                let has_streams = matches!(codec, SavedCodec::Http2(_) | SavedCodec::Rpc(_));
                // What only clients' connections are: not known yet, or read for nothing.
                let is_of_client = matches!(
                    codec,
                    SavedCodec::Opening(_)
                        | SavedCodec::Http1(Http1 { receive: Receive::Discard { .. }, .. })
                );
                let fits = !is_of_client
                    && match saved.state {
                        SavedUpstreamState::Connecting { .. } => !has_streams,
                        SavedUpstreamState::Busy => !has_streams && exchanges == 1,
                        SavedUpstreamState::Idle => !has_streams && exchanges == 0,
                        SavedUpstreamState::Shared { .. } => has_streams,
                    };
                fits && saved.connection.carries(exchanges)
            }
        }
    }
}

impl Listen {
    /// Whether the listeners and clients of these connections may have so many more here.
    pub(in crate::save) fn check_room(&self, group: &Group, cx: &Cx) -> Result<(), RestoreError> {
        let (mut of_listeners, mut of_clients) = (BTreeMap::new(), BTreeMap::new());
        for end in &group.connections {
            let SavedEnd::Downstream(saved) = end else { continue };
            let listener = self.listener_named(&saved.listener, cx)?;
            let state = self.listeners.get(listener);
            let settings = state.listener();
            let open = of_listeners.entry(listener.to_bits()).or_insert(state.open);
            *open += 1;
            if *open > cx.share.of(settings.connections_max.get()) {
                return Err(RestoreError::NoRoom("connections_max"));
            }
            let Some(address) = saved.client_address(settings) else { continue };
            let (client, count) = self.clients.at(address, state.id, Part::Connection);
            let count = of_clients.entry(client).or_insert(count);
            *count += 1;
            if *count > cx.share.of(settings.connections_per_client_max.get()) {
                return Err(RestoreError::NoRoom("connections_per_client_max"));
            }
        }
        Ok(())
    }
}

impl SavedDownstream {
    /// The address of its client, if that counts for this listener.
    pub(super) fn client_address(&self, listener: &Listener<Box<dyn Filter>>) -> Option<IpAddr> {
        let is_known = !matches!(self.connection.codec, SavedCodec::Opening(Opening::ProxyHeader))
            && listener.http.trusted_hops == 0;
        self.connection.peer.ip().filter(|_| is_known)
    }

    /// Whether it would be agreed on and admitted in the same way on this listener, which has its name.
    pub(in crate::save) fn check(
        &self,
        listener: &Listener<Box<dyn Filter>>,
        differing: &Differing,
    ) -> Result<(), RestoreError> {
        let chain = self.chain.as_deref();
        if chain.is_some_and(|name| listener.chains.named(name).is_none()) {
            return Err(RestoreError::Differs("chain"));
        }
        if differing.listeners.contains(&self.listener) {
            return Err(RestoreError::Differs("listener"));
        }
        let named = |chain: &str| format!("{}/{chain}", self.listener);
        if chain.is_some_and(|chain| differing.chains.contains(&named(chain))) {
            return Err(RestoreError::Differs("chain"));
        }
        if differing.moved.contains(&self.listener) && !self.came_to(listener) {
            return Err(RestoreError::Differs("address"));
        }
        let is_decided = !matches!(self.connection.codec, SavedCodec::Opening(_));
        if chain.is_none() && is_decided && !listener.has_default {
            return Err(RestoreError::Differs("listener"));
        }
        if self.is_chosen_unread()
            && differing.chains_new.iter().any(|it| self.chain_of(it).is_some())
        {
            return Err(RestoreError::Differs("chain, which may be another here,"));
        }
        if self.may_meet_new_chain(listener, differing) {
            return Err(RestoreError::Differs("chain, which may be another here,"));
        }
        if !differing.chains_new.is_empty()
            && let Some(facts) = self.facts()
            && let Some(met) = listener.chains.choose(&facts)
            && Some(&*met.name) != chain
            && differing.chains_new.contains(&named(&met.name))
        {
            return Err(RestoreError::Differs("chain, which would be another here,"));
        }
        Ok(())
    }

    /// Whether a chain was chosen for it, or none, before what it is going to say is known.
    fn is_chosen_unread(&self) -> bool {
        match self.connection.codec {
            SavedCodec::Opening(Opening::Handshake) => true,
            SavedCodec::Opening(Opening::Detect) => self.connection.tls.is_some(),
            _ => false,
        }
    }

    /// Whether it cannot be said that it would meet none of the new chains, as that depends on what is not written down: who
    /// connected, where a PROXY header says something else, and which protocols its client offered beside the one agreed upon.
    fn may_meet_new_chain(
        &self,
        listener: &Listener<Box<dyn Filter>>,
        differing: &Differing,
    ) -> bool {
        if differing.chains_new.is_empty() {
            return false;
        }
        let Some(facts) = self.facts() else { return false };
        let is_proxied = listener.http.proxy_protocol.is_some();
        let is_hidden = is_proxied && listener.chains.asks_direct_source();
        let met = self.chain.as_deref().and_then(|name| listener.chains.named(name));
        let met = met.map(|chain| &chain.matches);
        let names = differing.chains_new.iter().filter_map(|chain| self.chain_of(chain));
        let mut new = names.filter_map(|name| listener.chains.named(name));
        new.any(|chain| {
            let is_own = self.chain.as_deref() == Some(&*chain.name);
            is_hidden || !is_own && Criterion::may_be_offered(&chain.matches, met, &facts)
        })
    }

    /// The name of a chain, given as `listener/chain`, if it is one of its listener.
    fn chain_of<'n>(&self, chain: &'n str) -> Option<&'n str> {
        chain.strip_prefix(&*self.listener)?.strip_prefix('/')
    }

    /// Whether it was accepted at an address of this listener, as far as its own address says that.
    fn came_to(&self, listener: &Listener<Box<dyn Filter>>) -> bool {
        let is_own = listener.http.proxy_protocol.is_none()
            && listener.socket.original_destination == OriginalDestination::Off;
        let local = self.connection.local.socket_address().filter(|_| is_own).map(Address::Tcp);
        local.is_some_and(|local| listener.addresses.iter().any(|it| it.overlaps(&local)))
    }

    /// What is known of it; none if that says nothing of which chain it would meet, or it brings no further requests.
    fn facts(&self) -> Option<ConnectionFacts<'_>> {
        let tls = self.connection.tls.as_deref();
        let (protocol, agreed): (_, &[&[u8]]) = match &self.connection.codec {
            SavedCodec::Http1(_) => (Detected::Http1, &[b"http/1.1"]),
            SavedCodec::Http2(_) => (Detected::Http2, &[b"h2"]),
            SavedCodec::Rpc(saved) => (Detected::Rpc(RpcName::new(&saved.protocol)?), &[]),
            SavedCodec::Opening(_) | SavedCodec::Bytes(_) => return None,
        };
        let original = self.original.as_deref().copied();
        Some(ConnectionFacts {
            source: self.connection.peer.ip(),
            source_port: self.connection.peer.port(),
            // Who connected before a PROXY header is not written down; the socket says that once it is here.
            direct_source: self.connection.peer.ip(),
            destination: original.or_else(|| self.connection.local.socket_address()),
            protocol: Some(if tls.is_some() { Detected::Tls } else { protocol }),
            server_name: tls.and_then(SavedTls::server_name),
            // What was agreed upon was offered.
            alpn: if tls.is_some() { agreed } else { &[] },
        })
    }
}

impl SavedUpstream {
    pub(in crate::save) fn check_differing(
        &self,
        differing: &Differing,
    ) -> Result<(), RestoreError> {
        if differing.clusters.contains(&self.cluster) {
            return Err(RestoreError::Differs("cluster"));
        }
        Ok(())
    }
}
