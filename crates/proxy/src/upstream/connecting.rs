//! Upstream connections that are being established.

use config::snapshot::{Cluster, ClusterProtocol};
use telemetry::cause::Cause;
use telemetry::events::UpstreamConnectFailed;
use wire::h2::Http2;

use crate::connection::codec::http1::RESPONSE_HEAD;
use crate::connection::codec::http2::Http2Frames;
use crate::connection::codec::multiplex::{Frames, Multiplex};
use crate::connection::codec::rpc::{RpcFrames, Side};
use crate::connection::codec::watches::Watch;
use crate::connection::codec::{Codec, http2};
use crate::connection::rpc::rpc_limits;
use crate::connection::{Upstream, UpstreamState};
use crate::cx::Cx;
use crate::keys::label;
use crate::tools::time::Time;

/// Why a connection cannot be established.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectFault {
    pub(crate) cause: Cause,
    /// A word of the closed set that `telemetry` counts by.
    pub(crate) reason: &'static str,
}

impl Cx {
    /// A connection that is to be established for streams, which has none yet.
    pub(crate) fn shared_connection(&self, cluster: &Cluster, now: Time) -> (UpstreamState, Codec) {
        let mut multiplex = Multiplex::new(upstream_frames(cluster, self, now));
        multiplex.watches.set(Watch::Opening, now + cluster.timeouts.connect);
        let state = UpstreamState::Shared { connecting_since: Some(now), links: None };
        (state, Codec::Shared(Box::new(multiplex)))
    }

    /// Counts a connection that cannot be established.
    pub(crate) fn count_connect_failure(
        &mut self,
        upstream: &Upstream,
        fault: ConnectFault,
        now: Time,
    ) {
        self.emitter.upstream_connect_failed(&UpstreamConnectFailed {
            cluster: label(upstream.cluster.0),
            endpoint: label(upstream.endpoint.0),
            reason: fault.reason,
            at: self.wall_clock_zero.saturating_add(now.as_nanos()),
            cause: fault.cause,
        });
    }
}

/// What a connection to this cluster speaks that exchanges share.
fn upstream_frames(cluster: &Cluster, cx: &Cx, now: Time) -> Frames {
    let protocol = match cluster.protocol {
        ClusterProtocol::Rpc(name) => cx.snapshot.protocols.find(name),
        ClusterProtocol::Http1 | ClusterProtocol::Http2 => None,
    };
    match protocol {
        Some(protocol) => {
            Frames::Rpc(RpcFrames::new(protocol, rpc_limits(&cluster.rpc), Side::Client))
        }
        None => {
            let limits = http2::limits(RESPONSE_HEAD, &cluster.http2, cx.memory.level);
            Frames::Http2(Http2Frames::new(Http2::client(&limits), limits, now))
        }
    }
}
