//! What the access log says of a client's connection that comes to nothing: no exchange has a line for it.

use config::snapshot::ListenerId;
use telemetry::cause::Cause;
use telemetry::events::ConnectionFailed;

use crate::connection::connections::Connections;
use crate::connection::transport::Tls;
use crate::cx::Cx;
use crate::keys::{ConnKey, label};
use crate::listen::Listen;
use crate::tools::detail::Detail;
use crate::tools::peer_address::PeerAddress;
use crate::tools::text::Text;
use crate::tools::time::Time;

/// A client's connection that came to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed<'a> {
    pub(crate) listener: ListenerId,
    pub(crate) peer: &'a PeerAddress,
    /// When it was accepted.
    pub(crate) opened: Time,
    /// The server name that the client asked for.
    pub(crate) server_name: &'a str,
    pub(crate) cause: Cause,
}

impl Cx {
    /// A client's connection came to nothing. At a bounded rate.
    pub(crate) fn log_failed_connection(
        &mut self,
        failed: &Failed<'_>,
        detail: impl FnOnce() -> Detail,
        now: Time,
    ) {
        let Failed { listener, peer, opened, server_name, cause } = *failed;
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
        let Some(failed) = self.failed(key, cause, listen) else { return };
        cx.log_failed_connection(&failed, detail, now);
    }

    /// What the log says of a client's connection that comes to nothing for this cause.
    pub(crate) fn failed<'a>(
        &'a self,
        key: ConnKey,
        cause: Cause,
        listen: &Listen,
    ) -> Option<Failed<'a>> {
        let connection = self.get(key)?;
        let listener = listen.listeners.get(connection.downstream()?.listener).id;
        let server_name = connection.tls.as_deref().and_then(Tls::server_name).unwrap_or_default();
        Some(Failed {
            listener,
            peer: &connection.peer,
            opened: connection.opened,
            server_name,
            cause,
        })
    }
}
