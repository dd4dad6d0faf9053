//! Sessions that servers let a client resume.

use std::sync::OnceLock;

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls_pki_types::ServerName;

/// Sessions of one context, kept from the first one on: of ten thousand clusters most have none at a time, and the room for them is
/// several times what else a context has.
#[derive(Debug)]
pub(super) struct Sessions {
    kept: OnceLock<ClientSessionMemoryCache>,
    max: usize,
}

impl Sessions {
    /// Room for so many.
    pub(super) const fn new(max: usize) -> Self {
        Self { kept: OnceLock::new(), max }
    }

    fn kept(&self) -> &ClientSessionMemoryCache {
        self.kept.get_or_init(|| ClientSessionMemoryCache::new(self.max))
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.kept().set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept.get()?.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept().set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept.get()?.tls12_session(server_name)
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        if let Some(kept) = self.kept.get() {
            kept.remove_tls12_session(server_name);
        }
    }

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.kept().insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.kept.get()?.take_tls13_ticket(server_name)
    }
}
