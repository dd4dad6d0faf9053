//! Hop 8 for a call of RPC.

use std::time::Duration;

use config::snapshot::{ClusterProtocol, Forward};
use telemetry::cause::Cause;
use wire::head::RequestHead;

use crate::connection::Connection;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::codec::rpc::RpcFrames;
use crate::connection::codec::streams::Tail;
use crate::exchange::Wait;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::keys::ExchangeKey;
use crate::proxy::Proxy;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

impl Proxy {
    /// [`Proxy::forward`] of a call of RPC. It asks for a connection once all of it is here.
    #[inline(never)]
    pub(super) fn forward_call(
        &mut self,
        key: ExchangeKey,
        forward: &Forward,
        head: &RequestHead<'_>,
        now: Time,
    ) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        let downstream = self.connections.get(exchange.downstream.connection);
        let frames = downstream.and_then(Connection::multiplex).and_then(Multiplex::rpc);
        let protocol = exchange.cluster().map(|cluster| cluster.protocol);
        let protocol = frames.map(|frames| frames.protocol).filter(|spoken| {
            matches!(protocol, Some(ClusterProtocol::Rpc(name)) if name.as_str() == spoken.name())
        });
        let Some(protocol) = protocol else {
            // Other sources may bring a rule and a cluster that do not fit each other.
            let words = "the cluster of the rule speaks another protocol";
            return self.fail_with(key, Cause::RequestNotImplemented, &words, now);
        };
        let head_of_frame = RpcFrames::encode_request(protocol, head, &mut self.cx.buffers);
        let encoded = match head_of_frame {
            Ok(encoded) => encoded,
            Err(error) => {
                return self.fail_with(key, Cause::RequestHeadTooLarge, &error, now);
            }
        };
        let is_complete = exchange.request.is_complete;
        let mut outbox = Outbox::new();
        outbox.keep();
        let tail = if is_complete { Tail::End } else { Tail::Open };
        let mut request = QueuedRequest { outbox, form: Form::Stream { head: encoded, tail } };
        if let Some(policy) = &forward.retry {
            let pools = &mut self.upstream.pools;
            exchange.begin_retries(policy.body_bytes_max, head, &mut request, pools, &mut self.cx);
        }
        if let Some(gathered) = exchange.gathered.take() {
            self.cx.push_gathered(*gathered, is_complete, &mut request);
        }
        let asked = head.rpc().map_or(0, |rpc| rpc.timeout_millis());
        let asked = (asked > 0).then(|| Duration::from_millis(asked.into()));
        let timeout = forward.timeout.into_iter().chain(asked).min();
        if let Some(timeout) = timeout {
            exchange.set_deadline(Wait::Whole, now + timeout, &mut self.cx);
        }
        if exchange.request.is_complete {
            self.ask(key, request, Some(head), now);
        } else {
            self.exchanges.buffer_request(key, request, now, &mut self.cx);
        }
    }
}
