//! What a source beside the file delivers in a simulation: a listener, its route configurations, a secret of it, and a
//! cluster with its endpoints, each in versions that come, are refused, wait, and go.
//!
//! [`Deliveries`] says what is delivered and what follows from that: which versions serve. A response says which
//! listener and which route configuration it was made by, so that the ledger can tell whether these were among them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use config::{ResourceKind, Update, Verdict};

use crate::random::Random;
use crate::versions::{LISTENER_FIELD, ROUTES_FIELD, Served};

/// The listener's address.
pub(crate) const FLEET: &str = "10.0.0.1:85";

/// The source's name.
pub(crate) const SOURCE: &str = "deliveries";

/// What a version is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Listener,
    /// The route configuration that requests meet.
    Routes,
    /// One that some versions of the listener name as well.
    OtherRoutes,
    Secret,
    Cluster,
    Assignment,
}

impl Resource {
    const ALL: [Self; 6] = [
        Self::Listener,
        Self::Routes,
        Self::OtherRoutes,
        Self::Secret,
        Self::Cluster,
        Self::Assignment,
    ];

    const fn kind(self) -> ResourceKind {
        match self {
            Self::Listener => ResourceKind::Listener,
            Self::Routes | Self::OtherRoutes => ResourceKind::Route,
            Self::Secret => ResourceKind::Secret,
            Self::Cluster => ResourceKind::Cluster,
            Self::Assignment => ResourceKind::Assignment,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Listener | Self::Cluster | Self::Assignment => "fleet",
            Self::Routes => "paths",
            Self::OtherRoutes => "others",
            Self::Secret => "site",
        }
    }
}

/// A version of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    number: u64,
    text: String,
    /// What has to be there before it serves.
    names: Vec<Resource>,
}

/// An update, and whether it has to be refused.
#[derive(Debug)]
struct Planned {
    resource: Resource,
    version: Option<Version>,
    is_wrong: bool,
}

/// What a source has said, and what follows.
#[derive(Debug)]
pub(crate) struct Deliveries {
    random: Random,
    /// Whether nothing ends because of a timeout, and every request has to be answered.
    is_patient: bool,
    endpoints: Vec<SocketAddr>,
    /// Whether the endpoints speak HTTP/2.
    speaks_http2: bool,
    numbers: u64,
    /// The versions that were accepted last.
    last: BTreeMap<Resource, Version>,
    /// Those that serve.
    serving: BTreeMap<Resource, Version>,
    /// The last versions of listeners that were removed: their connections end in time.
    removed: BTreeSet<u64>,
    /// The route configurations that requests may meet.
    routes: BTreeSet<u64>,
    /// What was planned and not delivered yet.
    planned: Vec<Planned>,
}

impl Deliveries {
    pub(crate) const fn new(
        random: Random,
        is_patient: bool,
        endpoints: Vec<SocketAddr>,
        speaks_http2: bool,
    ) -> Self {
        Self {
            random,
            is_patient,
            endpoints,
            speaks_http2,
            numbers: 0,
            last: BTreeMap::new(),
            serving: BTreeMap::new(),
            removed: BTreeSet::new(),
            routes: BTreeSet::new(),
            planned: Vec::new(),
        }
    }

    /// What is there from the beginning: all of it where no request may fail, and else perhaps some of it.
    pub(crate) fn first(&mut self) -> Vec<Update> {
        for resource in Resource::ALL {
            let is_needed = self.is_patient && resource != Resource::OtherRoutes;
            if is_needed || self.random.chance(800) {
                let version = self.version(resource);
                self.plan(resource, Some(version), false);
            }
        }
        self.updates()
    }

    /// What comes next: some resources at once.
    pub(crate) fn next(&mut self) -> Vec<Update> {
        for _ in 0..self.random.between(1, 3) {
            let resource = *self.random.pick(&[
                Resource::Listener,
                Resource::Listener,
                Resource::Routes,
                Resource::Routes,
                Resource::OtherRoutes,
                Resource::Secret,
                Resource::Cluster,
                Resource::Assignment,
            ]);
            if self.planned.iter().any(|planned| planned.resource == resource) {
                continue;
            }
            // What others name may go at any time: these serve as they did.
            let may_go =
                !self.is_patient || !matches!(resource, Resource::Listener | Resource::Cluster);
            match self.random.below(10) {
                0 | 1 if may_go => self.plan(resource, None, false),
                2 | 3 => {
                    let version = self.wrong(resource);
                    self.plan(resource, Some(version), true);
                }
                _ => {
                    let version = self.version(resource);
                    self.plan(resource, Some(version), false);
                }
            }
        }
        self.updates()
    }

    /// Takes what became of the last updates.
    ///
    /// # Panics
    ///
    /// If what is wrong was accepted, or something else refused.
    pub(crate) fn on_verdicts(&mut self, verdicts: &[Verdict]) {
        let planned = std::mem::take(&mut self.planned);
        assert_eq!(planned.len(), verdicts.len());
        for (planned, verdict) in planned.into_iter().zip(verdicts) {
            assert_eq!(planned.is_wrong, verdict.refused.is_some(), "{planned:?}: {verdict:?}");
            if planned.is_wrong {
                continue;
            }
            match planned.version {
                Some(version) => drop(self.last.insert(planned.resource, version)),
                None => drop(self.last.remove(&planned.resource)),
            }
        }
        self.follow();
    }

    /// What another process is given that takes this one's place: what serves, and then what came after it.
    pub(crate) fn again(&self) -> [Vec<Update>; 2] {
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for resource in Resource::ALL {
            let (last, serving) = (self.last.get(&resource), self.serving.get(&resource));
            first.extend(serving.or(last).map(|version| update(resource, Some(version))));
            if serving.is_some() && serving != last {
                later.push(update(resource, last));
            }
        }
        [first, later]
    }

    pub(crate) fn served(&self) -> Served {
        let listener = self.serving.get(&Resource::Listener).map(|version| version.number);
        let listeners = self.removed.iter().copied().chain(listener).collect();
        Served { listeners, routes: self.routes.clone(), ..Served::default() }
    }

    fn is_there(&self, version: &Version) -> bool {
        version.names.iter().all(|name| self.last.contains_key(name))
    }

    /// What serves after a change.
    fn follow(&mut self) {
        use Resource::{Assignment, Cluster, Listener, OtherRoutes, Routes, Secret};
        for resource in Resource::ALL {
            match (self.last.get(&resource).cloned(), resource) {
                (Some(version), _) if self.is_there(&version) => {
                    self.serving.insert(resource, version);
                }
                // It waits, and what was there before it serves.
                (Some(_), _) => {}
                (None, Listener | Cluster) => {
                    let removed = self.serving.remove(&resource);
                    let removed = removed.filter(|_| resource == Listener);
                    self.removed.extend(removed.map(|version| version.number));
                }
                // Who names it goes on with it.
                (None, _) => {}
            }
        }
        let names = |of: Resource, name: &Resource| {
            self.serving.get(&of).is_some_and(|version| version.names.contains(name))
        };
        let left: Vec<Resource> = [Routes, OtherRoutes, Secret, Assignment]
            .into_iter()
            .filter(|it| !self.last.contains_key(it))
            .filter(|it| !names(Listener, it) && !names(Cluster, it))
            .collect();
        left.iter().for_each(|resource| drop(self.serving.remove(resource)));
        let waits = self.last.get(&Listener).is_some_and(|version| !self.is_there(version));
        if !waits && self.removed.is_empty() {
            self.routes.clear();
        }
        self.routes.extend(self.serving.get(&Routes).map(|version| version.number));
    }

    fn plan(&mut self, resource: Resource, version: Option<Version>, is_wrong: bool) {
        self.planned.push(Planned { resource, version, is_wrong });
    }

    fn updates(&self) -> Vec<Update> {
        self.planned.iter().map(|it| update(it.resource, it.version.as_ref())).collect()
    }

    fn new_version(&mut self, text: String, names: Vec<Resource>) -> Version {
        self.numbers += 1;
        let number = self.numbers.to_string();
        Version { number: self.numbers, text: text.replace("NUMBER", &number), names }
    }

    fn version(&mut self, resource: Resource) -> Version {
        let (text, names) = match resource {
            Resource::Listener => self.listener(),
            Resource::Routes => (self.routes_text(), Vec::new()),
            Resource::OtherRoutes => {
                let text = "{ name: others, virtual_hosts: [{ name: one, hosts: [others.example], rules: \
                            [{ match: { prefix: / }, respond: { status: 200, body: 'NUMBER' } }] }] }";
                (text.to_owned(), Vec::new())
            }
            Resource::Secret => (secret(self.random.pick(&SITES)), Vec::new()),
            Resource::Cluster => (self.cluster(), vec![Resource::Assignment]),
            Resource::Assignment => (self.assignment(), Vec::new()),
        };
        self.new_version(text, names)
    }

    /// A version that something is wrong with.
    fn wrong(&mut self, resource: Resource) -> Version {
        let text = match resource {
            Resource::Listener => "{ name: fleet, address: 10.0.0.1, routes: paths }",
            Resource::Routes => {
                "{ name: paths, virtual_hosts: [{ name: all, rules: [{ match: { prefix: x }, cluster: fleet }] }] }"
            }
            Resource::OtherRoutes => "{ name: others, virtual_hosts: [{ name: a/b, rules: [] }] }",
            Resource::Secret => "{ name: site, key: x }",
            Resource::Cluster => "{ name: fleet, connections_max: 0 }",
            Resource::Assignment => {
                "{ name: fleet, endpoints: ['10.1.0.0:9000', '10.1.0.0:9000'] }"
            }
        };
        self.new_version(text.to_owned(), Vec::new())
    }

    fn listener(&mut self) -> (String, Vec<Resource>) {
        let mut names = vec![Resource::Routes];
        let mut routes = "paths";
        if self.random.chance(300) {
            names.push(Resource::OtherRoutes);
            routes = "[paths, others]";
        }
        let timeouts = match self.is_patient {
            true => {
                "{ request_head: 1h, idle: 1h, request_body: 1h, detect: 1h, filter: 1h, response_write: 1h, \
                 tunnel_idle: 1h }"
            }
            false => {
                "{ request_head: 3s, idle: 10s, request_body: 5s, detect: 2s, filter: 4s, response_write: 8s, \
                 tunnel_idle: 20s }"
            }
        };
        let mut text = format!(
            "name: fleet\naddress: {FLEET}\nroutes: {routes}\ntimeouts: {timeouts}\n\
             filters:\n- stamp: {{ field: {LISTENER_FIELD}, value: 'NUMBER' }}\n"
        );
        if self.random.chance(300) {
            text += "- ask: { topic: sim }\n";
        }
        if self.random.chance(500) {
            // Handshakes are left out here: no connection meets this chain.
            text += "chains:\n- name: secure\n  match: { destination_ports: [1] }\n  routes: paths\n  \
                     tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] }\n";
            names.push(Resource::Secret);
        }
        (text, names)
    }

    fn routes_text(&mut self) -> String {
        let timeout = if self.is_patient { "1h" } else { "30s" };
        let mut text = format!(
            "name: paths\nvirtual_hosts:\n- name: all\n  headers: {{ response: {{ set: {{ {ROUTES_FIELD}: 'NUMBER' }} }} }}\n  \
             rules:\n"
        );
        for spare in 0..self.random.below(3) {
            text += &format!(
                "  - {{ match: {{ prefix: /spare{spare}/ }}, respond: {{ status: 204 }} }}\n"
            );
        }
        for (path, cluster) in [("alpha", "fleet"), ("beta", "beta")] {
            text += &format!(
                "  - {{ match: {{ prefix: /{path}/ }}, cluster: {cluster}, timeout: {timeout} }}\n"
            );
        }
        text
    }

    fn cluster(&mut self) -> String {
        let timeouts = match self.is_patient {
            true => {
                "connect_timeout: 1h\ntimeouts: { pending: 1h, response_head: 1h, response_body: 1h, \
                 request_write: 1h, stall: none }\n"
            }
            false => {
                "connect_timeout: 1s\ntimeouts: { pending: 4s, response_head: 6s, response_body: 5s, \
                 request_write: 5s, stall: 2s, idle: 8s }\n"
            }
        };
        let protocol = if self.speaks_http2 { "protocol: http2\n" } else { "" };
        let connections = self.random.between(1, 12);
        let balance = self.random.pick(&["round_robin", "random", "least_request"]);
        format!(
            "name: fleet\nbalance: {balance}\nconnections_max: {connections}\npending_max: 1000\n{protocol}{timeouts}"
        )
    }

    fn assignment(&mut self) -> String {
        let mut text = "name: fleet\nendpoints:\n".to_owned();
        let first = self.random.length_below(self.endpoints.len());
        for (place, address) in self.endpoints.iter().enumerate() {
            if place == first || self.random.chance(600) {
                let weight = self.random.between(1, 3);
                text += &format!("- {{ address: {address}, weight: {weight} }}\n");
            }
        }
        text
    }
}

fn update(resource: Resource, version: Option<&Version>) -> Update {
    Update {
        kind: resource.kind(),
        name: resource.name().into(),
        version: version.map_or_else(String::new, |it| it.number.to_string()).into(),
        content: version.map(|version| version.text.as_str().into()),
    }
}

/// Certificates with their keys.
const SITES: [[&str; 2]; 2] = [
    [include_str!("delivered/site-1.pem"), include_str!("delivered/site-1.key")],
    [include_str!("delivered/site-2.pem"), include_str!("delivered/site-2.key")],
];

fn secret([chain, key]: &[&str; 2]) -> String {
    let block = |pem: &str| pem.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!("name: site\nchain: |\n{}key: |\n{}", block(chain), block(key))
}
