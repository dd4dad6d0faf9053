//! Records of TLS between the socket and the codec: opened where they were read to, sealed when they are
//! about to be sent, and what follows from their end.

use wire::buffer::Buffer;

use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::ops::Op;

impl Connections {
    pub(crate) fn is_downstream(&self, key: ConnKey) -> bool {
        self.get(key).is_some_and(|connection| connection.downstream().is_some())
    }

    pub(crate) fn tls_mut(&mut self, key: ConnKey) -> Option<&mut Tls> {
        self.get_mut(key)?.tls.as_deref_mut()
    }

    pub(crate) fn put_partial(
        &mut self,
        key: ConnKey,
        partial: Buffer,
        wanted: usize,
        cx: &mut Cx,
    ) {
        match self.get_mut(key).and_then(|connection| connection.tls.as_deref_mut()) {
            Some(tls) if !partial.is_empty() => {
                tls.wanted = wanted;
                tls.partial = Some(cx.buffers.widen(partial, 0));
            }
            _ => cx.buffers.give_back(partial),
        }
    }

    /// Says that nothing more will be sent, to a peer that waits for that to be said.
    pub(crate) fn send_close_notify(&mut self, key: ConnKey, cx: &mut Cx) {
        if let Some(words) = self.tls_mut(key).and_then(Tls::close_notify) {
            cx.ops.push_back(Op::SendNow(key, words));
        }
    }
}
