//! What a connection is read for, as far as nothing but connections and listeners need to know.

use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::listen::clients::Part;

/// What consuming a piece came to.
pub(crate) enum Step {
    /// So many bytes were taken; go on behind them.
    Took(usize),
    /// So many bytes were taken; nothing more can be for now.
    Wait(usize),
}

impl Connections {
    /// Counts a connection for the client that its PROXY header named. Says whether that client may
    /// have another.
    pub(crate) fn count_proxied_client(
        &mut self,
        key: ConnKey,
        listen: &mut Listen,
        cx: &Cx,
    ) -> bool {
        let Some(connection) = self.get_mut(key) else { return false };
        let address = connection.peer.ip();
        let Some(downstream) = connection.downstream_mut() else { return false };
        let state = listen.listeners.get(downstream.listener);
        let (id, listener) = (state.id, state.listener());
        if listener.http.trusted_hops > 0 {
            return true;
        }
        let count;
        (downstream.client, count) = listen.clients.enter(address, id, Part::Connection);
        count <= cx.share.of(listener.connections_per_client_max.get())
    }
}
