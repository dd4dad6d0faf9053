//! A connection under way that has lost its exchange serves another, or the pool.

use config::snapshot::Endpoint;

use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::keys::{ConnKey, ExchangeKey};
use crate::proxy::Proxy;
use crate::tools::time::Time;

impl Proxy {
    /// Gives a request to a spare connection, to `place` or to any endpoint of the exchange's cluster; or
    /// gives it back.
    pub(super) fn try_spare(
        &mut self,
        key: ExchangeKey,
        place: Option<usize>,
        mut request: QueuedRequest,
        now: Time,
    ) -> Option<QueuedRequest> {
        let Some(spare) = self.find_spare(key, place, &request) else { return Some(request) };
        let Self { exchanges, upstream, connections, listen, cx, .. } = self;
        exchanges.name_endpoint(key, spare.1, &mut request, &mut cx.buffers);
        let pools = &mut upstream.pools;
        exchanges.give_spare(key, spare, request, now, pools, connections, listen, cx);
        None
    }

    /// A spare connection for a request: to `endpoint`, or to any of the exchange's cluster.
    fn find_spare(
        &mut self,
        key: ExchangeKey,
        place: Option<usize>,
        request: &QueuedRequest,
    ) -> Option<(ConnKey, usize)> {
        if self.upstream.spares.is_empty()
            || !matches!(request.form, Form::Alone { is_personal: false, .. })
        {
            return None;
        }
        let exchange = self.exchanges.get(key)?;
        if self.exchanges.is_raw(key) {
            return None;
        }
        let cluster = exchange.cluster()?;
        let wanted = place.and_then(|place| cluster.endpoints.get(place)).map(|it| it.id);
        let pool = exchange.pool()?;
        let spare = self.upstream.spares.take(&self.connections, |upstream| {
            upstream.pool() == pool
                && upstream.is_of(cluster)
                && wanted.is_none_or(|id| id == upstream.endpoint)
        })?;
        let endpoint = self.connections.get(spare)?.upstream()?.endpoint;
        let is_it = |it: &Endpoint| it.id == endpoint && it.weight > 0;
        let place = place.or_else(|| cluster.endpoints.iter().position(is_it));
        // An exchange of another configuration may not know the endpoint.
        place.map(|place| (spare, place))
    }
}
