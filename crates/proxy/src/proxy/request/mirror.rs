//! Hop 8 beside the request: copies of it for the clusters that its rule names under `mirror`.

use config::mirrors::Mirror;
use config::snapshot::{ClusterProtocol, Forward};
use telemetry::events::MirrorDrop;
use wire::head::{Known, RequestHead};
use wire::rpc::RpcProtocol;

use crate::connection::Connection;
use crate::connection::codec::multiplex::Multiplex;
use crate::connection::codec::rpc::RpcFrames;
use crate::connection::codec::streams::Tail;
use crate::exchange::Exchange;
use crate::exchange::detached::Detached;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::keys::{ExchangeKey, label};
use crate::proxy::Proxy;
use crate::timers::TimerOwner;
use crate::tools::outbox::Outbox;
use crate::tools::time::Time;

impl Proxy {
    /// Begins the copies of a request that are to be made of it, before it is sent itself. `head` is as it goes on.
    #[cold]
    #[inline(never)]
    pub(super) fn mirror(
        &mut self,
        key: ExchangeKey,
        forward: &Forward,
        head: &RequestHead<'_>,
        now: Time,
    ) {
        let random = &mut self.cx.random;
        let mirrors = forward.mirrors.iter();
        let chosen: Vec<&Mirror> =
            mirrors.filter(|mirror| mirror.fraction.now().holds(random.next())).collect();
        if chosen.is_empty() {
            return;
        }
        let parked = self.cx.park(head);
        let copies = self.read_parked(&parked, |proxy, head| {
            // The copy is sent when it is whole.
            head.remove_known(Known::Expect);
            let authority = head.authority().to_vec();
            let begin = |mirror: &&Mirror| {
                let host = mirror.host(&authority);
                if head.rpc().is_none() {
                    head.set_authority(host.as_ref().unwrap_or(&authority));
                }
                proxy.begin_copy(key, mirror, head, now)
            };
            chosen.iter().filter_map(begin).collect::<Vec<_>>()
        });
        self.cx.buffers.give_back(parked);
        let Some(exchange) = self.exchanges.get_mut(key) else { return };
        exchange.copies = copies.filter(|copies| !copies.is_empty()).map(Vec::into_boxed_slice);
        if exchange.request.is_complete && exchange.copies.is_some() {
            let trailers = exchange.gathered.as_ref().map(|it| it.trailers.clone());
            let trailers = trailers.unwrap_or_default();
            self.exchanges.send_copies(key, &trailers, now, &mut self.cx);
        }
    }

    /// Begins one, which waits for the rest of the request; none if it is dropped, which is counted.
    fn begin_copy(
        &mut self,
        key: ExchangeKey,
        mirror: &Mirror,
        head: &mut RequestHead<'_>,
        now: Time,
    ) -> Option<ExchangeKey> {
        match self.make_copy(key, mirror, head, now) {
            Ok(copy) => {
                let timer = copy.timer;
                let copy = self.exchanges.table.insert(copy);
                self.cx.timers.set_owner(timer, TimerOwner::Exchange(copy).into());
                Some(copy)
            }
            Err(reason) => {
                if reason == MirrorDrop::NoCluster {
                    self.ask_for_cluster(key, mirror.cluster, now);
                }
                self.cx.emitter.mirror_dropped(label(mirror.cluster.0), reason);
                None
            }
        }
    }

    fn make_copy(
        &mut self,
        key: ExchangeKey,
        mirror: &Mirror,
        head: &mut RequestHead<'_>,
        now: Time,
    ) -> Result<Exchange, MirrorDrop> {
        let original = self.exchanges.get(key).ok_or(MirrorDrop::Incomplete)?;
        let cluster = original.snapshot.cluster(mirror.cluster).ok_or(MirrorDrop::NoCluster)?;
        let protocol = cluster.protocol;
        let form = self.exchanges.form_of(key, &self.connections);
        let detached = Detached::begin(form, &mut self.cx).ok_or(MirrorDrop::Memory)?;
        let timer = self.cx.timers.insert(TimerOwner::Exchange(ExchangeKey::from_bits(0)).into());
        let mut copy = original.copy(mirror, detached, now, timer);
        let spoken = spoken_by(self.connections.get(original.downstream.connection));
        let request = match (protocol, spoken) {
            (ClusterProtocol::Http1, None) => {
                Some(copy.encode_whole(head, false, &self.connections, &mut self.cx))
            }
            (ClusterProtocol::Http2, None) => Some(self.cx.encode_for_stream(head, false)),
            (ClusterProtocol::Rpc(name), Some(spoken)) if name.as_str() == spoken.name() => {
                let encoded = RpcFrames::encode_request(spoken, head, &mut self.cx.buffers).ok();
                let queued = |head| {
                    let mut outbox = Outbox::new();
                    outbox.keep();
                    QueuedRequest { outbox, form: Form::Stream { head, tail: Tail::Open } }
                };
                encoded.map(queued)
            }
            _ => None,
        };
        let gathered = original.gathered.as_ref();
        let fits = request.map(|mut request| {
            if let Some(gathered) = gathered {
                request.push_data(gathered.body.filled(), &mut self.cx.buffers);
            }
            let bytes = request.buffered_bytes() as u64;
            copy.begin_buffering(request);
            copy.detached.as_mut().is_some_and(|detached| detached.hold(bytes, &mut self.cx))
        });
        let reason = match fits {
            Some(true) => return Ok(copy),
            Some(false) => MirrorDrop::Memory,
            None => MirrorDrop::Protocol,
        };
        self.cx.timers.remove(timer);
        if let Some(request) = copy.take_buffered() {
            request.clear(&mut self.cx.buffers);
        }
        if let Some(detached) = copy.detached {
            detached.let_go(&mut self.cx);
        }
        Err(reason)
    }
}

/// The RPC protocol of a connection; none if it speaks HTTP.
fn spoken_by(connection: Option<&Connection>) -> Option<&'static dyn RpcProtocol> {
    let frames = connection.and_then(Connection::multiplex).and_then(Multiplex::rpc)?;
    Some(frames.protocol)
}
