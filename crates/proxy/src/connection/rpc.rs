//! Connections of RPC protocols as a whole: how one begins, and what it may hold.
//!
//! Its frames are in `codec::rpc`.

use config::snapshot::RpcOptions;
use wire::rpc::RpcProtocol;

use crate::connection::codec::multiplex::{Frames, Multiplex};
use crate::connection::codec::rpc::{RpcFrames, RpcLimits, Side};
use crate::connection::connections::Connections;
use crate::cx::Cx;
use crate::keys::ConnKey;
use crate::listen::Listen;

impl Connections {
    /// Frames that have begun on a connection of an RPC protocol; none of another.
    pub(crate) fn frames_heard(&self, key: ConnKey) -> Option<u32> {
        Some(self.get(key)?.multiplex()?.rpc()?.heard())
    }

    /// Goes on with a downstream connection as one of an RPC protocol.
    pub(crate) fn begin_rpc(
        &mut self,
        key: ConnKey,
        protocol: &'static dyn RpcProtocol,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let Some(downstream) = self.get(key).and_then(|connection| connection.downstream()) else {
            return;
        };
        let limits = rpc_limits(&listen.listeners.get(downstream.listener).listener().rpc);
        let frames = Frames::Rpc(RpcFrames::new(protocol, limits, Side::Server));
        self.set_multiplex(key, Multiplex::new(frames), cx);
    }
}

/// What a connection with these options may hold.
pub(crate) fn rpc_limits(options: &RpcOptions) -> RpcLimits {
    RpcLimits {
        head_bytes_max: options.head_bytes_max as usize,
        body_bytes_max: options.body_bytes_max,
        requests_max: options.requests_max.get() as usize,
    }
}
