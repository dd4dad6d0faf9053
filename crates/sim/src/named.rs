//! Host names in a simulation: what DNS says of them, and what a process makes of that for the cluster that has its
//! endpoints from one.
//!
//! [`Dns`] stands for the servers of DNS, [`Answers`] for what one process was answered. A failure leaves the last
//! answer as it is; a name that does not exist has an answer without addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use config::snapshot::{Cluster, DnsAnswer, DnsMode, DnsName, Resolved};
use proxy::Snapshot;

use crate::random::Random;

/// The cluster that has its endpoints from a name.
pub(crate) const NAMED: &str = "named";

/// The hosts that texts name, and all of their addresses.
pub(crate) const NAMED_HOSTS: [&str; 2] = ["one.named.example", "two.named.example"];

/// Of a thousand questions, those that fail.
const FAILING: u32 = 200;

/// Of a thousand answers, those without addresses, where requests may fail.
const EMPTY: u32 = 200;

/// What the servers of DNS say.
#[derive(Debug)]
pub(crate) struct Dns {
    random: Random,
    /// Whether every request has to be answered.
    is_patient: bool,
    /// Where the services are.
    addresses: Vec<SocketAddr>,
}

/// What a process was answered last, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(BTreeMap<Arc<DnsName>, DnsAnswer>);

/// The addresses of the cluster by a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedEndpoints {
    pub(crate) addresses: BTreeSet<SocketAddr>,
    /// Connections to former addresses stay in use.
    pub(crate) is_logical: bool,
}

impl Dns {
    pub(crate) const fn new(random: Random, is_patient: bool, addresses: Vec<SocketAddr>) -> Self {
        Self { random, is_patient, addresses }
    }

    /// Where the endpoints of a text come from.
    pub(crate) fn endpoints(&mut self) -> String {
        let host = *self.random.pick(&NAMED_HOSTS);
        match self.random.below(5) {
            0 | 1 => format!("{{ dns: '{host}:9000' }}"),
            2 | 3 => format!("{{ dns: '{host}:9000', mode: logical }}"),
            _ => format!("{{ dns: _http._tcp.{host}, mode: srv }}"),
        }
    }

    /// What comes of a question: nothing if it fails.
    pub(crate) fn ask(&mut self, name: &DnsName) -> Option<DnsAnswer> {
        (!self.random.chance(FAILING)).then(|| self.answer(name))
    }

    /// The first answer to a question that is asked until there is one, or for as long as requests may wait.
    pub(crate) fn ask_first(&mut self, name: &DnsName) -> Option<DnsAnswer> {
        if self.is_patient { Some(self.answer(name)) } else { self.ask(name) }
    }

    fn answer(&mut self, name: &DnsName) -> DnsAnswer {
        if !self.is_patient && self.random.chance(EMPTY) {
            return Arc::default();
        }
        let first = *self.random.pick(&self.addresses);
        let random = &mut self.random;
        let addresses = self.addresses.iter().copied();
        let mut addresses: Vec<_> =
            addresses.filter(|it| *it == first || random.chance(500)).collect();
        if name.mode == DnsMode::Logical {
            addresses = vec![first];
        }
        let resolved = addresses.into_iter().map(|address| Resolved {
            address,
            weight: NonZeroU16::MIN,
            priority: 0,
            host: Arc::clone(&name.host),
        });
        let mut resolved: Vec<_> = resolved.collect();
        if name.mode == DnsMode::Srv {
            for it in &mut resolved {
                it.host = name.host.trim_start_matches("_http._tcp.").into();
                it.weight = NonZeroU16::MIN.saturating_add(random.below(3) as u16);
                // All of them follow the first one.
                it.priority = u8::from(it.address != first && random.chance(300));
            }
        }
        resolved.into()
    }
}

impl Answers {
    /// Takes note of an answer; returns whether it is another.
    pub(crate) fn note(&mut self, name: &Arc<DnsName>, answer: &DnsAnswer) -> bool {
        self.0.insert(Arc::clone(name), Arc::clone(answer)).as_ref() != Some(answer)
    }

    pub(crate) fn of(&self, name: &DnsName) -> Option<&DnsAnswer> {
        self.0.get(name)
    }

    /// Forgets the names that are asked for no more, and returns them.
    pub(crate) fn keep(&mut self, followed: &[Arc<DnsName>]) -> Vec<Arc<DnsName>> {
        let gone = self.0.keys().filter(|name| !followed.contains(name));
        let gone: Vec<_> = gone.cloned().collect();
        gone.iter().for_each(|name| drop(self.0.remove(name)));
        gone
    }

    /// What the cluster's endpoints are by all that was noted.
    pub(crate) fn endpoints(&self, snapshot: &Snapshot) -> NamedEndpoints {
        let mut names = named(snapshot).into_iter().flat_map(|it| it.endpoints_from.names());
        let Some(name) = names.next() else { return NamedEndpoints::default() };
        let answer = self.of(name).into_iter().flat_map(|answer| answer.iter());
        NamedEndpoints {
            addresses: answer.map(|it| it.address).collect(),
            is_logical: name.mode == DnsMode::Logical,
        }
    }

    /// What was noted is linked with whatever is built next.
    ///
    /// # Panics
    ///
    /// If it was not.
    pub(crate) fn check(&self, snapshot: &Snapshot) {
        let expected = self.endpoints(snapshot).addresses;
        let endpoints = named(snapshot).into_iter().flat_map(|it| &it.endpoints);
        let found: BTreeSet<_> = endpoints.map(|it| it.address.to_string()).collect();
        let expected: BTreeSet<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "endpoints of {NAMED} that its name does not stand for");
    }
}

/// The names that a configuration has followed.
pub(crate) fn followed(snapshot: &Snapshot) -> Vec<Arc<DnsName>> {
    let names = snapshot.clusters.iter().flat_map(|(_, it)| it.endpoints_from.names());
    names.cloned().collect()
}

/// The cluster, if there is one.
pub(crate) fn named(snapshot: &Snapshot) -> Option<&Cluster> {
    let mut clusters = snapshot.clusters.iter().map(|(_, cluster)| &**cluster);
    clusters.find(|cluster| &*cluster.name == NAMED)
}
