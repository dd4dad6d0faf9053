//! What a source beside the file delivers in a simulation: a listener, its route configurations, a secret of it, and a
//! cluster with its endpoints, each in versions that come, are refused, wait, and go.
//!
//! [`Source`] says what is delivered, and [`Taken`] what follows from that in one process: which versions serve. A response
//! says which listener and which route configuration it was made by, so that the ledger can tell whether these were among
//! them.

mod taken;
mod texts;
mod waits;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use config::{ResourceKind, ResourceName, Update};

use crate::random::Random;

pub(crate) use self::taken::Taken;
pub(crate) use self::texts::FLEET;
pub(crate) use self::waits::Waiting;

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

    /// The one with this name.
    ///
    /// # Panics
    ///
    /// If there is none.
    fn of(name: &ResourceName) -> Self {
        let mut all = Self::ALL.into_iter();
        let is_it = |it: &Self| it.kind() == name.kind && *it.name() == *name.name;
        all.find(is_it).unwrap_or_else(|| panic!("no resource is {name}"))
    }

    fn full_name(self) -> ResourceName {
        ResourceName::new(self.kind(), self.name())
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

/// What the source says of a resource, and whether it has to be refused.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    resource: Resource,
    version: Option<Version>,
    is_wrong: bool,
}

impl Planned {
    pub(crate) fn update(&self) -> Update {
        update(self.resource, self.version.as_ref())
    }

    fn number(&self) -> Option<u64> {
        self.version.as_ref().map(|version| version.number)
    }
}

/// A source, and what it said last of each resource.
#[derive(Debug)]
pub(crate) struct Source {
    random: Random,
    /// Whether nothing ends because of a timeout, and every request has to be answered.
    is_patient: bool,
    endpoints: Vec<SocketAddr>,
    /// Whether the endpoints speak HTTP/2.
    speaks_http2: bool,
    numbers: u64,
    said: BTreeMap<Resource, Planned>,
}

impl Source {
    pub(crate) const fn new(
        random: Random,
        is_patient: bool,
        endpoints: Vec<SocketAddr>,
        speaks_http2: bool,
    ) -> Self {
        let said = BTreeMap::new();
        Self { random, is_patient, endpoints, speaks_http2, numbers: 0, said }
    }

    /// What is there from the beginning: all of it where no request may fail, and else perhaps some of it.
    pub(crate) fn first(&mut self) -> Vec<Planned> {
        let mut planned = Vec::new();
        for resource in Resource::ALL {
            let is_needed = self.is_patient && resource != Resource::OtherRoutes;
            if is_needed || self.random.chance(800) {
                let version = Some(self.version(resource));
                planned.push(Planned { resource, version, is_wrong: false });
            }
        }
        self.say(planned)
    }

    /// What comes next: some resources at once.
    pub(crate) fn next(&mut self) -> Vec<Planned> {
        let mut planned: Vec<Planned> = Vec::new();
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
            if planned.iter().any(|planned| planned.resource == resource) {
                continue;
            }
            // What others name may go at any time: these serve as they did.
            let may_go =
                !self.is_patient || !matches!(resource, Resource::Listener | Resource::Cluster);
            let (version, is_wrong) = match self.random.below(10) {
                0 | 1 if may_go => (None, false),
                2 | 3 => (Some(self.wrong(resource)), true),
                _ => (Some(self.version(resource)), false),
            };
            planned.push(Planned { resource, version, is_wrong });
        }
        self.say(planned)
    }

    /// What a process has to hear that missed some of it.
    pub(crate) fn missed(&self, taken: &Taken) -> Vec<Planned> {
        let said = self.said.values();
        said.filter(|it| taken.heard(it.resource) != Some(it.number())).cloned().collect()
    }

    fn say(&mut self, planned: Vec<Planned>) -> Vec<Planned> {
        self.said.extend(planned.iter().map(|it| (it.resource, it.clone())));
        planned
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
