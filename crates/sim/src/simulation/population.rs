//! The scripted clients and services of a run.

use std::time::Duration;

use super::{Peer, Simulation};
use crate::client::{Behaviour, CallsClient, Client, Http2Client, Leave, RelayClient};
use crate::configuration::{
    CALLS, CLUSTERS, EDGE, ENDPOINTS, MIXED, RELAY_EDGE, SIDE, address, endpoint, named_cluster,
};
use crate::delivered::FLEET;
use crate::ledger::RELAY;
use crate::named::NAMED_HOSTS;
use crate::network::PeerId;
use crate::plan::{RequestBody, RequestPlan, ResponsePlan};
use crate::random::Random;
use crate::service::{Service, Speech};

impl Simulation {
    pub(super) fn add_services(&mut self, root: &Random) {
        let clusters = CLUSTERS.map(|_| Speech::Http).into_iter().chain([Speech::Raw]);
        let clusters = clusters.chain(self.scenario.has_calls.then_some(Speech::Calls));
        let clusters = clusters.chain(self.scenario.has_mirrors.then_some(Speech::Copies));
        let named = self.scenario.resolutions.map(|_| named_cluster(&self.scenario));
        let clusters = clusters.chain(named.map(|_| Speech::Http));
        let mut random = root.split("tls", 0);
        for (cluster, speech) in clusters.enumerate() {
            let is_secure = self.scenario.has_tls && random.chance(500);
            for place in 0..ENDPOINTS {
                let peer = PeerId(self.peers.len());
                let random = root.split("service", peer.0 as u64);
                let address = config::snapshot::Address::Tcp(endpoint(cluster, place));
                let faults = self.scenario.service_faults.clone();
                let network = &mut self.network.borrow_mut();
                if is_secure {
                    network.secure_service(address.clone());
                }
                let mut service = Service::new(peer, address, speech, faults, random, network);
                if named == Some(cluster) {
                    service.answer_to(&NAMED_HOSTS);
                    self.ledger.versions.named_addresses.insert(endpoint(cluster, place));
                }
                self.peers.push(Peer::Service(Box::new(service)));
            }
        }
    }

    pub(super) fn add_clients(&mut self, root: &Random) {
        let mut to_delivered = root.split("deliveries", 0);
        for number in 0..self.scenario.clients {
            let mut random = root.split("client", number as u64);
            let delay = random.span(Duration::from_secs(10));
            if self.scenario.has_tls && root.split("tls", 1 + number as u64).chance(600) {
                self.network.borrow_mut().secure_client(PeerId(self.peers.len()));
            }
            let is_to_delivered = self.scenario.deliveries.is_some() && to_delivered.chance(700);
            let listener = is_to_delivered.then_some(FLEET);
            match random.below(100) {
                0..45 => self.add_http1(delay, random, listener),
                45..85 if self.scenario.has_http2 => self.add_http2(delay, random, listener),
                45..85 => self.add_http1(delay, random, listener),
                _ => self.add_relay(delay, random),
            }
        }
        self.add_callers(root);
    }

    /// The clients of RPC, beside the others.
    fn add_callers(&mut self, root: &Random) {
        let mut random = root.split("callers", 0);
        let count = if self.scenario.has_calls { random.length_between(1, 8) } else { 0 };
        for number in 0..count {
            let mut random = root.split("caller", number as u64);
            let delay = random.span(Duration::from_secs(10));
            let mut behaviour = self.behaviour(&mut random);
            behaviour.pipelined_max = random.length_below(8);
            let count = random.length_between(1, 12);
            let requests: Vec<_> = (0..count).map(|_| call(&mut random)).collect();
            let peer = PeerId(self.peers.len());
            requests.iter().for_each(|request| self.ledger.announce(request));
            let network = &mut self.network.borrow_mut();
            let listener = address(CALLS);
            let client =
                CallsClient::new(peer, listener, requests, behaviour, delay, random, network);
            self.peers.push(Peer::Client(Box::new(client)));
        }
    }

    fn add_http1(&mut self, delay: Duration, mut random: Random, to: Option<&str>) {
        let behaviour = self.behaviour(&mut random);
        let requests = self.requests(&mut random);
        let is_aside = !self.scenario.is_strict && random.chance(300);
        let listener = to.unwrap_or(if is_aside { SIDE } else { EDGE });
        self.add(listener, requests, behaviour, delay, random);
    }

    fn add_http2(&mut self, delay: Duration, mut random: Random, to: Option<&str>) {
        let mut behaviour = self.behaviour(&mut random);
        behaviour.pipelined_max = random.length_below(8);
        behaviour.thinks = Duration::from_secs(3);
        let count = random.length_between(1, 10);
        let requests: Vec<_> = (0..count)
            .map(|_| match random.chance(100) {
                true => tunnel(&mut random),
                false => RequestPlan { connection: None, ..request(true, &mut random) },
            })
            .collect();
        let listener = match random.below(4) {
            0 if !self.scenario.is_strict => SIDE,
            1 => MIXED,
            _ => EDGE,
        };
        let listener = to.unwrap_or(listener);
        let peer = PeerId(self.peers.len());
        self.announce(&requests, listener);
        let network = &mut self.network.borrow_mut();
        let listener = address(listener);
        let client = Http2Client::new(peer, listener, requests, behaviour, delay, random, network);
        self.peers.push(Peer::Client(Box::new(client)));
    }

    fn add_relay(&mut self, delay: Duration, mut random: Random) {
        let behaviour = self.behaviour(&mut random);
        let peer = PeerId(self.peers.len());
        let leaves = match behaviour.leave {
            Leave::CloseAfter(_) => true,
            // Where bytes are relayed, an end without close_notify counts as an end all the same.
            Leave::ResetAfter(_) => self.network.borrow().is_secure_client(peer),
            Leave::Answered | Leave::HalfClose | Leave::StopsReading(_) => false,
        };
        let length = if random.chance(200) { random.size(300_000) } else { random.size(5_000) };
        let request = RequestPlan {
            method: RELAY,
            body: RequestBody::Length(length),
            expects_continue: false,
            connection: leaves.then_some("close"),
            ..request(true, &mut random)
        };
        let listener = if random.chance(500) { MIXED } else { RELAY_EDGE };
        self.ledger.announce(&request);
        let network = &mut self.network.borrow_mut();
        let listener = address(listener);
        let client = RelayClient::new(peer, listener, request, behaviour, delay, random, network);
        self.peers.push(Peer::Client(Box::new(client)));
    }

    /// Adds a client that connects after `delay` and sends `requests`.
    pub fn add_client(
        &mut self,
        requests: Vec<RequestPlan>,
        behaviour: Behaviour,
        delay: Duration,
    ) {
        // Whatever is relayed does not change what others do.
        let number = CLUSTERS.len() * usize::from(ENDPOINTS) + self.clients().count();
        let random = Random::new(self.scenario.seed).split("scripted", number as u64);
        self.add(EDGE, requests, behaviour, delay, random);
    }

    fn add(
        &mut self,
        listener: &str,
        requests: Vec<RequestPlan>,
        behaviour: Behaviour,
        delay: Duration,
        random: Random,
    ) {
        let peer = PeerId(self.peers.len());
        self.announce(&requests, listener);
        let network = &mut self.network.borrow_mut();
        let listener = address(listener);
        let client = Client::new(peer, listener, requests, behaviour, delay, random, network);
        self.peers.push(Peer::Client(Box::new(client)));
    }

    fn announce(&mut self, requests: &[RequestPlan], listener: &str) {
        for request in requests {
            match listener {
                FLEET => self.ledger.announce_to_delivered(request),
                _ => self.ledger.announce(request),
            }
        }
    }

    fn behaviour(&self, random: &mut Random) -> Behaviour {
        let polite = if random.chance(800) { Leave::Answered } else { Leave::HalfClose };
        let leave = match random.below(10) {
            _ if self.scenario.is_strict => polite,
            0 => Leave::CloseAfter(random.size(20_000)),
            1 => Leave::ResetAfter(random.size(20_000)),
            2 => Leave::StopsReading(random.length_below(3)),
            _ => polite,
        };
        let thinks = if self.scenario.is_strict { 3 } else { 15 };
        Behaviour {
            pipelined_max: if random.chance(400) { random.length_between(1, 3) } else { 0 },
            leave,
            slow_reading: random.chance(150).then(|| {
                let bytes = random.length_between(200, 8_000);
                (bytes, random.span(Duration::from_millis(300)))
            }),
            pauses: (u32::try_from(random.below(100)).expect("small"), Duration::from_millis(500)),
            thinks: Duration::from_secs(thinks),
        }
    }

    fn requests(&self, random: &mut Random) -> Vec<RequestPlan> {
        let is_http11 = random.chance(850);
        let count = random.length_between(1, 6);
        let mut requests = Vec::new();
        for _ in 0..count {
            let request = request(is_http11, random);
            let is_last = request.is_last();
            requests.push(request);
            if is_last {
                return requests;
            }
        }
        if is_http11 && random.chance(100) {
            let tunnel = tunnel(random);
            requests.push(tunnel);
        }
        requests
    }
}

fn request(is_http11: bool, random: &mut Random) -> RequestPlan {
    let method = *random.pick(&["GET", "GET", "GET", "HEAD", "POST", "PUT"]);
    let has_body = matches!(method, "POST" | "PUT");
    let length = match random.below(20) {
        0 => random.length_between(70_000, 200_000),
        _ => random.size(5_000),
    };
    let body = match random.below(2) {
        _ if !has_body => RequestBody::None,
        0 if is_http11 => RequestBody::Chunked(length, random.chance(300)),
        _ => RequestBody::Length(length),
    };
    let connection = match (is_http11, random.below(10)) {
        (true, 0) => Some("close"),
        (false, 0..7) => Some("keep-alive"),
        _ => None,
    };
    RequestPlan {
        id: random.next(),
        method,
        is_http11,
        cluster: random.pick::<&str>(&CLUSTERS),
        expects_continue: !body.is_empty() && is_http11 && random.chance(200),
        body,
        tunnel: None,
        connection,
    }
}

/// A call of RPC: nothing says that it may be made twice.
fn call(random: &mut Random) -> RequestPlan {
    let length = if random.chance(50) { random.size(200_000) } else { random.size(5_000) };
    RequestPlan {
        method: "POST",
        body: RequestBody::Length(length),
        expects_continue: false,
        connection: None,
        ..request(true, random)
    }
}

/// A request for a tunnel. HTTP/2 has no status of its own for one: any that says success grants it.
fn tunnel(random: &mut Random) -> RequestPlan {
    let plan = RequestPlan {
        method: "GET",
        body: RequestBody::None,
        expects_continue: false,
        tunnel: Some(random.size(200_000)),
        connection: None,
        ..request(true, random)
    };
    let is_clear = |id: u64| {
        let response = ResponsePlan::of(id);
        response.switches || !(200..300).contains(&response.status)
    };
    let id = std::iter::repeat_with(|| random.next()).find(|id| is_clear(*id));
    RequestPlan { id: id.expect("there is no end of ids"), ..plan }
}
