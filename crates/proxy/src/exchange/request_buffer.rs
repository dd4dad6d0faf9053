//! Request bodies that wait here before they take one of the last connections.
//!
//! A connection that is one exchange's alone is lost to others while a client sends its body slowly.
//! So, once half of a cluster's connections are in use, a request takes one only when its body is
//! here, or as much of it as the listener's `http.request_buffer` says. Clients that send nothing
//! then hold no more than half of a cluster, and cost a buffer each. While more than half are free,
//! nothing waits: upstreams see a body as it comes, which some services answer before its end.

use std::time::Duration;

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::QueuedRequest;
use crate::exchange::{Exchange, ExchangeKind, Wait};
use crate::keys::ExchangeKey;
use crate::tools::time::Time;
use crate::upstream::pool::{Pool, Pools};

/// How often a request whose body waits looks whether connections are free again.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Exchange {
    /// Whether its body may wait here for its rest. Not where the upstream may have to speak before
    /// the client goes on.
    pub(crate) fn may_buffer(&self) -> bool {
        let request = &self.request;
        !request.is_complete
            && self.kind == ExchangeKind::Http
            && self.call.is_none()
            && !request.asks_upgrade
            && !request.expects_continue
            && self.progress.request_bytes < self.request_buffer_bytes_max()
    }

    /// Whether half of the connections that it may get are in use.
    pub(crate) fn is_short(&self, pools: &Pools, cx: &Cx) -> bool {
        let Some(cluster) = self.cluster() else { return false };
        let newest = cx.snapshot.cluster(cluster.id).unwrap_or(cluster);
        pools.is_short(Pool::new(newest, self.priority()))
    }

    pub(crate) fn request_buffer_bytes_max(&self) -> u64 {
        self.listener().http.request_buffer_bytes_max.into()
    }
}

impl Exchanges {
    /// Makes a request wait for its body.
    pub(crate) fn buffer_request(
        &mut self,
        key: ExchangeKey,
        request: QueuedRequest,
        now: Time,
        cx: &mut Cx,
    ) {
        let Some(exchange) = self.get_mut(key) else { return };
        exchange.begin_buffering(request);
        let is_call = exchange.kind == ExchangeKind::Rpc;
        self.await_request_data(key, 0, now, cx);
        // A call is sent whole, however many connections are free.
        if !is_call {
            self.set_deadline(key, Wait::Connection, now + LOOK_INTERVAL, cx);
        }
    }
}
