//! Connections that are refused as they come.

use config::snapshot::ListenerId;
use telemetry::cause::Cause;
use telemetry::events::ConnectionRefused;

use crate::connection::debug_log::{Peer, cut};
use crate::connection::failures::Failed;
use crate::cx::Cx;
use crate::keys::label;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

impl Cx {
    /// A connection is refused as it comes.
    pub(crate) fn refuse(
        &mut self,
        listener: ListenerId,
        peer: &PeerAddress,
        cause: Cause,
        detail: impl Fn() -> Detail,
        now: Time,
    ) {
        if self.emitter.is_debug() {
            let detail = detail();
            let words = format_args!("{}, {}", cause.as_str(), cut(detail.as_bytes()));
            self.debug(format_args!("refused from {}", Peer(peer)), words, now);
        }
        let label = label(listener.0);
        self.emitter.connection_refused(&ConnectionRefused { listener: label, cause });
        let failed = Failed { listener, peer, opened: now, server_name: "", cause };
        self.log_failed_connection(&failed, detail, now);
    }
}
