//! A scripted upstream service: answers each request according to its id, checks every byte that it
//! receives, and injects its faults. It speaks the protocol that its connections begin with, HTTP/1
//! or HTTP/2, since a cluster may change from one to the other; or the relayed protocol, or that of RPC.

mod calls;
mod http1;
mod http2;
mod relay;

pub(crate) use calls::status_of;

use std::collections::BTreeMap;
use std::time::Duration;

use config::snapshot::Address;

use crate::configuration::{HOST, host_of};
use crate::faults::ServiceFaults;
use crate::ledger::Ledger;
use crate::network::{EndId, ListenerSocket, Network, Owner, PeerId, Wake};
use crate::random::Random;

/// Timers: how long a connection may be idle before a service closes it.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// How long a response may take to begin, and to go on.
const SLOWNESS: Duration = Duration::from_millis(100);

/// The protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// HTTP, of either version.
    Http,
    /// Relayed bytes.
    Raw,
    /// The RPC protocol.
    Calls,
    /// HTTP, of copies of requests.
    Copies,
}

/// A scripted service at one address.
#[derive(Debug)]
pub struct Service {
    host: Host,
    listener: ListenerSocket,
    speech: Speech,
    connections: BTreeMap<EndId, Link>,
}

/// The state of a service besides its connections.
#[derive(Debug)]
struct Host {
    peer: PeerId,
    /// The host that requests may be for beside the one that clients ask for.
    own_host: String,
    /// The names whose endpoint it may be.
    names: &'static [&'static str],
    /// Requests that were.
    rewritten: usize,
    random: Random,
    faults: ServiceFaults,
    timers: BTreeMap<u64, (EndId, Timer)>,
    timers_total: u64,
}

/// The reason for which a connection waits.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// To continue.
    Pause,
    /// To close, if no request came since this many.
    Idle(u32),
}

/// One connection of a service.
#[derive(Debug)]
enum Link {
    Http1(Box<http1::Connection>),
    Http2(Box<http2::Connection>),
    Raw(Box<relay::Connection>),
    Calls(Box<calls::Connection>),
}

/// What happens to a connection after an event.
#[derive(Debug)]
enum Verdict {
    Keep,
    Close,
    Reset,
    /// It turns out to be one of HTTP/2, with these first bytes.
    Http2(Vec<u8>),
}

impl Service {
    /// A service that listens on `address`.
    pub fn new(
        peer: PeerId,
        address: Address,
        speech: Speech,
        faults: ServiceFaults,
        random: Random,
        network: &mut Network,
    ) -> Self {
        let own_host = match &address {
            Address::Tcp(address) => host_of(*address),
            Address::Unix(_) => String::new(),
        };
        let listener = network.listen(Owner::Peer(peer), address, 1024);
        let timers = BTreeMap::new();
        let names = &[];
        let host =
            Host { peer, own_host, names, rewritten: 0, random, faults, timers, timers_total: 0 };
        Self { host, listener, speech, connections: BTreeMap::new() }
    }

    /// Requests for these hosts may come to it, too.
    pub(crate) const fn answer_to(&mut self, names: &'static [&'static str]) {
        self.host.names = names;
    }

    /// Requests that came with its own host.
    pub(crate) const fn rewritten(&self) -> usize {
        self.host.rewritten
    }

    /// From now on it behaves. What hangs breaks.
    pub fn heal(&mut self, network: &mut Network) {
        self.host.faults = ServiceFaults::default();
        let hanging: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, link)| match link {
                Link::Http1(connection) => connection.hangs(),
                Link::Http2(connection) => connection.hangs(),
                Link::Raw(connection) => connection.hangs(),
                Link::Calls(connection) => connection.hangs(),
            })
            .map(|(end, _)| *end)
            .collect();
        for end in hanging {
            self.connections.remove(&end);
            network.reset(end);
        }
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Handles a wake-up.
    pub fn on_wake(&mut self, wake: Wake, network: &mut Network, ledger: &mut Ledger) {
        ledger.sees_copies = self.speech == Speech::Copies;
        match wake {
            Wake::Accept(_) => {
                while let Ok(Some((end, ..))) = network.accept(self.listener) {
                    let link = match self.speech {
                        Speech::Http | Speech::Copies => {
                            Link::Http1(Box::new(http1::Connection::new()))
                        }
                        Speech::Raw => Link::Raw(Box::new(relay::Connection::new())),
                        Speech::Calls => Link::Calls(Box::new(calls::Connection::new())),
                    };
                    self.connections.insert(end, link);
                    self.go_on(end, network, ledger);
                }
            }
            Wake::End(end) => self.go_on(end, network, ledger),
            Wake::Timer(token) => self.on_timer(token, network, ledger),
        }
    }

    fn on_timer(&mut self, token: u64, network: &mut Network, ledger: &mut Ledger) {
        match self.host.timers.remove(&token) {
            Some((end, Timer::Pause)) => self.go_on(end, network, ledger),
            Some((end, Timer::Idle(requests))) => {
                let is_idle = match self.connections.get(&end) {
                    Some(Link::Http1(connection)) => connection.is_idle_since(requests),
                    Some(Link::Http2(connection)) => connection.is_idle_since(requests),
                    Some(Link::Calls(connection)) => connection.is_idle_since(requests),
                    Some(Link::Raw(_)) | None => false,
                };
                if is_idle {
                    network.trace.note(network.now(), "closes idle", end.number(), &[]);
                    self.connections.remove(&end);
                    network.close(end);
                }
            }
            None => {}
        }
    }

    fn go_on(&mut self, end: EndId, network: &mut Network, ledger: &mut Ledger) {
        let Some(mut link) = self.connections.remove(&end) else { return };
        let host = &mut self.host;
        let result = match &mut link {
            Link::Http1(connection) => host.work(end, connection, network, ledger),
            Link::Http2(connection) => connection.work(end, host, network, ledger),
            Link::Raw(connection) => connection.work(end, host, network, ledger),
            Link::Calls(connection) => connection.work(end, host, network, ledger),
        };
        match result {
            Ok(Verdict::Keep) => {
                self.connections.insert(end, link);
            }
            Ok(Verdict::Http2(inbound)) => {
                let connection = http2::Connection::new(inbound, host);
                self.connections.insert(end, Link::Http2(Box::new(connection)));
                self.go_on(end, network, ledger);
            }
            Ok(Verdict::Close) => network.close(end),
            Ok(Verdict::Reset) => network.break_off(end),
            Err(what) => {
                ledger.violate(format!("service {:?} on {end:?}: {what}", host.peer));
                network.reset(end);
            }
        }
    }
}

impl Host {
    /// Whether a request for this host may come here: for no other endpoint's.
    fn takes(&mut self, host: Option<&str>) -> bool {
        let is_own = host.is_some_and(|host| host == self.own_host || self.names.contains(&host));
        self.rewritten += usize::from(is_own);
        is_own || host == Some(HOST)
    }

    fn wake_after(&mut self, end: EndId, timer: Timer, span: Duration, network: &mut Network) {
        self.timers_total += 1;
        self.timers.insert(self.timers_total, (end, timer));
        network.wake_after(self.peer, self.timers_total, span);
    }
}
