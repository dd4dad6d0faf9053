//! A request tried out on the state of a worker without a network. It counts in no limit of the process whose configuration it is tried
//! out with.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use config::reports::ConnectionSide;
use config::snapshot::{Address, ClusterId, OriginalDestination};
use proxy::time::Time;
use proxy::{Bells, ConnKey, Op, PeerAddress, Proxy, SLICES_MAX, Settings, Share, Snapshot};
use serde_json::Value;
use telemetry::{Emitter, LogReader, Reports};

use super::Listener;
use super::client::Client;
use super::listener::{
    ELSEWHERE, destination, direct_source, has_original_destination, own_address,
};
use super::request::Request;

/// The time of the trial, in which no time passes.
const NOW: Time = Time::from_nanos(0);

/// When all of it has come and gone: the list of slow requests has those that took some time.
const LATER: Time = Time::from_nanos(1);

/// A client on this machine.
const HERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));

/// The result of a trial.
#[derive(Debug)]
pub(super) enum Trial {
    /// A connection to this endpoint of a cluster is asked for.
    Forwarded(Option<ClusterId>, Address),
    /// A connection to where the client's was going is asked for.
    ForwardedOnward,
    /// The proxy answers, for this cause if it is a refusal.
    Answered { head: String, refusal: Option<Refusal> },
    /// A filter asks this topic.
    Suspended(Arc<str>),
    /// No answer.
    Refused,
}

/// Why the proxy refuses a request, in the words of the access log.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) cause: String,
    pub(super) detail: Option<String>,
}

/// Tries `request` on `listener`, as from a client on this machine.
pub(super) fn try_out(
    snapshot: &Arc<Snapshot>,
    listener: &Listener,
    client: &mut Client,
    request: &Request,
) -> Trial {
    let settings = Settings { share: Share::APART, seed: 0, bells: Bells::new(1) };
    let (emitter, reports) = Emitter::new(64 << 10);
    let mut proxy = Proxy::new(settings, Arc::clone(snapshot), emitter, NOW);
    let original = has_original_destination(listener).then_some(ELSEWHERE);
    let proxies = listener.http.proxy_protocol.as_deref();
    let direct = direct_source(listener, request).map(|ip| SocketAddr::from((ip, 1)));
    let peer = PeerAddress::from(direct.unwrap_or(HERE));
    let (_, local) = ends(listener, request);
    let Some(key) = proxy.on_accepted(listener.id, peer, local, original, NOW) else {
        return Trial::Refused;
    };
    if proxies.is_some() {
        let to = destination(listener, request).unwrap_or(HERE);
        let header = proxy_header(request.from, to);
        proxy.on_received(key, &mut header.into_bytes(), NOW);
    }
    let mut answer = None;
    loop {
        let mut bytes = client.speak(&request.head);
        if !bytes.is_empty() {
            proxy.on_received(key, &mut bytes, NOW);
        }
        match proxy.poll_op(LATER) {
            Some(Op::Connect { address, .. }) if address == Address::Tcp(ELSEWHERE) => {
                return Trial::ForwardedOnward;
            }
            Some(Op::Connect { address, connection, .. }) => {
                return Trial::Forwarded(cluster_of(&proxy, connection), address);
            }
            Some(Op::Ask { question, .. }) => return Trial::Suspended(question.topic),
            Some(Op::Send(sender)) if sender == key => {
                let bytes = take_unsent(&mut proxy, key);
                answer = answer.or_else(|| client.hear(&bytes));
            }
            Some(Op::SendNow(speaker, bytes)) if speaker == key => {
                client.hear(&bytes);
            }
            Some(_) => {}
            // Nothing is left to be sent.
            None => break,
        }
    }
    match answer {
        Some(head) => Trial::Answered { head, refusal: Refusal::of_last(reports) },
        None => Trial::Refused,
    }
}

/// Both ends of the client's connection, as a request on it has them: the client's, and that of the process, by which a filter chain is
/// chosen, as it was for the steps.
pub(super) fn ends(listener: &Listener, request: &Request) -> (PeerAddress, PeerAddress) {
    let from = request.from.or_else(|| direct_source(listener, request));
    let peer = from.map_or(HERE, |ip| SocketAddr::from((ip, 1)));
    // What TPROXY brings here keeps its destination.
    let local = match listener.socket.original_destination {
        OriginalDestination::Tproxy => destination(listener, request),
        OriginalDestination::Off | OriginalDestination::Redirect => own_address(listener, request),
    };
    (PeerAddress::from(peer), PeerAddress::from(local))
}

/// The PROXY header of a client's connection to this address.
fn proxy_header(from: Option<IpAddr>, to: SocketAddr) -> String {
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match (from, to.ip()) {
        (None, _) => "PROXY UNKNOWN\r\n".to_owned(),
        (Some(IpAddr::V4(from)), IpAddr::V4(at)) => {
            format!("PROXY TCP4 {from} {at} 1 {}\r\n", to.port())
        }
        // Both are of one family.
        (Some(from), at) => {
            format!("PROXY TCP6 {} {} 1 {}\r\n", mapped(from), mapped(at), to.port())
        }
    }
}

impl Refusal {
    /// That of the only request, which has ended; none if it was not refused.
    fn of_last(reports: Reports) -> Option<Self> {
        let mut reader = LogReader::new();
        reader.add_worker(reports.records);
        reader.poll(0, &mut Vec::new(), usize::MAX);
        let mut slow = Vec::new();
        reader.write_slow_json(&mut slow);
        let slow: Value = serde_json::from_slice(&slow).ok()?;
        let request = slow.pointer("/requests/0")?;
        let said = |name: &str| Some(request.get(name)?.as_str()?.to_owned());
        Some(Self { cause: said("cause")?, detail: said("cause_detail") })
    }
}

/// The cluster that a connection to an upstream belongs to.
fn cluster_of(proxy: &Proxy, connection: ConnKey) -> Option<ClusterId> {
    let described = proxy.describe(connection.index(), 1, NOW);
    match described.connections.first()?.side {
        ConnectionSide::Upstream(cluster, _) => Some(cluster),
        ConnectionSide::Downstream(_) => None,
    }
}

fn take_unsent(proxy: &mut Proxy, key: ConnKey) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = proxy.unsent(key, &mut slices);
    let bytes: Vec<u8> =
        slices.iter().take(count).flat_map(|slice| slice.iter().copied()).collect();
    proxy.on_sent(key, bytes.len(), LATER, LATER);
    bytes
}
