//! A request tried out on a worker's state without a network.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use config::snapshot::Address;
use proxy::time::Time;
use proxy::{ConnKey, Op, PeerAddress, Proxy, SLICES_MAX, Settings, Share, Snapshot};
use telemetry::Emitter;

use super::Listener;
use super::request::Request;

/// What became of the request.
#[derive(Debug)]
pub(super) enum Trial {
    /// A connection to this endpoint is asked for.
    Forwarded(Address),
    /// The proxy answers.
    Answered { head: String, body: String },
    /// A filter asks this topic.
    Suspended(Arc<str>),
    /// No answer.
    Refused,
}

/// Tries `request` on `listener`, as from a client on this machine.
pub(super) fn try_out(snapshot: &Arc<Snapshot>, listener: &Listener, request: &Request) -> Trial {
    const NOW: Time = Time::from_nanos(0);
    let settings = Settings { share: Share { worker: 0, workers: 1 }, seed: 0 };
    let (emitter, _reports) = Emitter::new(64 << 10);
    let mut proxy = Proxy::new(settings, Arc::clone(snapshot), emitter, NOW);
    let local = PeerAddress::from(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
    let Some(key) = proxy.on_accepted(listener.id, local.clone(), local, NOW) else {
        return Trial::Refused;
    };
    if listener.http.proxy_protocol {
        proxy.on_received(key, b"PROXY UNKNOWN\r\n", NOW);
    }
    proxy.on_received(key, &request.head, NOW);
    while let Some(op) = proxy.poll_op(NOW) {
        match op {
            Op::Connect { address, .. } => return Trial::Forwarded(address),
            Op::Ask { question, .. } => return Trial::Suspended(question.topic),
            Op::Send(sender) if sender == key => return answer(&proxy, key),
            _ => {}
        }
    }
    Trial::Refused
}

fn answer(proxy: &Proxy, key: ConnKey) -> Trial {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = proxy.unsent(key, &mut slices);
    let bytes: Vec<u8> =
        slices.iter().take(count).flat_map(|slice| slice.iter().copied()).collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Trial::Answered { head: head.to_owned(), body: body.to_owned() }
}
