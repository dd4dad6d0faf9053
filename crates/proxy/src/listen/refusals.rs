//! What the access log says of connections that come to nothing before they have a request: no exchange has a
//! line for them.

use config::snapshot::ListenerId;
use telemetry::cause::Cause;
use telemetry::events::{ConnectionFailed, ConnectionRefused};

use crate::connection::connections::Connections;
use crate::connection::debug_log::{Peer, cut};
use crate::connection::transport::Tls;
use crate::cx::Cx;
use crate::exchange::record::label;
use crate::keys::ConnKey;
use crate::listen::Listen;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::text::Text;
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
        self.log_failed_connection(listener, (peer, now), "", (cause, detail), now);
    }

    /// A connection from this peer, accepted at that time, came to nothing. At a bounded rate.
    fn log_failed_connection(
        &mut self,
        listener: ListenerId,
        (peer, opened): (&PeerAddress, Time),
        server_name: &str,
        (cause, detail): (Cause, impl FnOnce() -> Detail),
        now: Time,
    ) {
        let wall_clock = |time: Time| self.wall_clock_zero.saturating_add(time.as_nanos());
        let (at, started_at) = (wall_clock(now), wall_clock(opened));
        if !self.emitter.may_log_connection(at) {
            return;
        }
        self.emitter.connection_failed(&ConnectionFailed {
            listener: label(listener.0),
            client: Text::of_ip(peer).as_bytes(),
            server_name: server_name.as_bytes(),
            cause,
            cause_detail: detail().as_bytes(),
            started_at,
            duration: now.nanos_since(opened),
        });
    }
}

impl Connections {
    /// A client's connection comes to nothing, of which no exchange tells. To be called while it is there.
    pub(crate) fn log_failed(
        &self,
        key: ConnKey,
        cause: Cause,
        detail: impl FnOnce() -> Detail,
        now: Time,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get(key) else { return };
        let server_name = connection.tls.as_deref().and_then(Tls::server_name).unwrap_or_default();
        self.log_failed_for(key, server_name, (cause, detail), now, listen, cx);
    }

    /// As [`Connections::log_failed`], of a client that asked for this server name.
    pub(crate) fn log_failed_for(
        &self,
        key: ConnKey,
        server_name: &str,
        (cause, detail): (Cause, impl FnOnce() -> Detail),
        now: Time,
        listen: &Listen,
        cx: &mut Cx,
    ) {
        let Some(connection) = self.get(key) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let listener = listen.listeners.get(downstream.listener).id;
        let peer = (&connection.peer, connection.opened);
        cx.log_failed_connection(listener, peer, server_name, (cause, detail), now);
    }
}
