//! What follows in one process from what a source says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{ResourceName, Update, Verdict};
use proxy::Snapshot;

use super::{Planned, Resource, SOURCE, Version, update};
use crate::versions::Served;

/// How a version of a listener or a cluster goes with what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// It serves.
    Serves,
    /// The version before serves until this is there.
    Waits(BTreeSet<Resource>),
    /// It has waited for this, and serves without.
    ServesWithout(BTreeSet<Resource>),
    /// It has waited for this, and the version before serves.
    Refused(BTreeSet<Resource>),
}

impl Standing {
    /// What becomes of a version that misses this. `has_waited`: it waits no longer.
    fn of(missing: BTreeSet<Resource>, has_waited: bool) -> Self {
        if missing.is_empty() {
            Self::Serves
        } else if !has_waited {
            Self::Waits(missing)
        } else if missing.contains(&Resource::Secret) {
            // Nothing takes its place.
            Self::Refused([Resource::Secret].into())
        } else {
            Self::ServesWithout(missing)
        }
    }

    const fn has_waited(&self) -> bool {
        matches!(self, Self::ServesWithout(_) | Self::Refused(_))
    }

    const fn is_in_use(&self) -> bool {
        matches!(self, Self::Serves | Self::ServesWithout(_))
    }

    /// What a verdict of it has: what it waits for, and what did not arrive in time.
    fn words(&self) -> [BTreeSet<Resource>; 2] {
        match self.clone() {
            Self::Serves => [BTreeSet::new(), BTreeSet::new()],
            Self::Waits(names) => [names, BTreeSet::new()],
            Self::ServesWithout(names) | Self::Refused(names) => [BTreeSet::new(), names],
        }
    }

    /// Whether the source hears by itself that this follows one of before.
    fn is_news_after(&self, before: &Self) -> bool {
        match (before, self) {
            (Self::Refused(_), _) => self != before,
            (_, Self::Refused(_)) | (Self::ServesWithout(_), Self::Serves) => true,
            (Self::ServesWithout(before), Self::ServesWithout(now)) => !now.is_subset(before),
            (_, Self::ServesWithout(_)) => true,
            (_, Self::Serves | Self::Waits(_)) => false,
        }
    }
}

/// What a process has heard from a source, and what serves there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// The version of each resource that it heard of last, accepted or not.
    heard: BTreeMap<Resource, Option<u64>>,
    /// The versions that were accepted last.
    last: BTreeMap<Resource, Version>,
    standings: BTreeMap<Resource, Standing>,
    /// Those that serve.
    serving: BTreeMap<Resource, Version>,
    /// The last versions of listeners that were removed: their connections end in time.
    removed: BTreeSet<u64>,
    /// The route configurations that requests may meet.
    routes: BTreeSet<u64>,
    /// Whether the listener that serves has no route configuration that requests meet, and whether one that was removed had none.
    lacks_routes: bool,
    removed_lacked: bool,
    /// How often a wait has ended so.
    pub(crate) served_without: usize,
    pub(crate) refused_late: usize,
}

impl Taken {
    pub(super) fn heard(&self, resource: Resource) -> Option<Option<u64>> {
        self.heard.get(&resource).copied()
    }

    /// Takes what became of updates, and what was said of others beside.
    ///
    /// # Panics
    ///
    /// If what is wrong was accepted, or something else refused, or anything else is said of a version than what follows.
    pub(crate) fn on_verdicts(
        &mut self,
        planned: Vec<Planned>,
        verdicts: &[Verdict],
        late: &[(Arc<str>, Verdict)],
    ) {
        assert_eq!(planned.len(), verdicts.len());
        let mut new = BTreeSet::new();
        for (planned, verdict) in planned.into_iter().zip(verdicts) {
            assert_eq!(planned.is_wrong, verdict.refused.is_some(), "{planned:?}: {verdict:?}");
            self.heard.insert(planned.resource, planned.number());
            if planned.is_wrong {
                continue;
            }
            new.insert(planned.resource);
            match planned.version {
                Some(version) => drop(self.last.insert(planned.resource, version)),
                None => drop(self.last.remove(&planned.resource)),
            }
        }
        let before = self.standings.clone();
        self.stand(&new, &BTreeSet::new());
        for verdict in verdicts.iter().filter(|verdict| verdict.refused.is_none()) {
            if let Some(standing) = self.standings.get(&Resource::of(&verdict.name)) {
                check(standing, verdict);
            }
        }
        self.check_late(&before, &new, late);
        self.follow();
    }

    /// These have waited for long enough.
    ///
    /// # Panics
    ///
    /// As [`Self::on_verdicts`].
    pub(crate) fn on_waited(
        &mut self,
        names: &BTreeSet<ResourceName>,
        late: &[(Arc<str>, Verdict)],
    ) {
        let ended: BTreeSet<Resource> = names.iter().map(Resource::of).collect();
        let before = self.standings.clone();
        self.stand(&BTreeSet::new(), &ended);
        self.check_late(&before, &BTreeSet::new(), late);
        for standing in ended.iter().filter_map(|it| self.standings.get(it)) {
            self.served_without += usize::from(matches!(standing, Standing::ServesWithout(_)));
            self.refused_late += usize::from(matches!(standing, Standing::Refused(_)));
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

    /// Whether this has to wait.
    pub(crate) fn waits(&self, name: &ResourceName) -> bool {
        matches!(self.standings.get(&Resource::of(name)), Some(Standing::Waits(_)))
    }

    /// Whether some version of this serves.
    pub(crate) fn serves(&self, name: &ResourceName) -> bool {
        self.serving.contains_key(&Resource::of(name))
    }

    /// What waits is what has to, and what serves is there.
    ///
    /// # Panics
    ///
    /// If not.
    pub(crate) fn check<'a>(
        &self,
        waiting: impl Iterator<Item = (&'a ResourceName, &'a [ResourceName])>,
        snapshot: &Snapshot,
    ) {
        let waiting = waiting.map(|(name, names)| (Resource::of(name), resources(names)));
        let expected = self.standings.iter().filter_map(|(resource, standing)| match standing {
            Standing::Waits(names) => Some((*resource, names.clone())),
            _ => None,
        });
        let (waiting, expected): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (waiting.collect(), expected.collect());
        assert_eq!(waiting, expected, "what waits");
        let mut clusters = snapshot.clusters.iter().map(|(_, cluster)| cluster);
        let cluster = clusters.find(|it| *it.name == *Resource::Cluster.name());
        assert_eq!(cluster.is_some(), self.serving.contains_key(&Resource::Cluster), "the cluster");
        let has_endpoints = cluster.is_some_and(|cluster| !cluster.endpoints.is_empty());
        let is_assigned = self.serving.contains_key(&Resource::Assignment);
        assert_eq!(has_endpoints, cluster.is_some() && is_assigned, "its endpoints");
        let mut listeners = snapshot.listeners.iter();
        let has_listener = listeners.any(|it| *it.name == *Resource::Listener.name());
        assert_eq!(has_listener, self.serving.contains_key(&Resource::Listener), "the listener");
    }

    pub(crate) fn served(&self) -> Served {
        let listener = self.serving.get(&Resource::Listener).map(|version| version.number);
        let listeners = self.removed.iter().copied().chain(listener).collect();
        let lacks_routes = self.lacks_routes || self.removed_lacked;
        Served { listeners, routes: self.routes.clone(), lacks_routes, ..Served::default() }
    }

    /// How listener and cluster stand after a change.
    fn stand(&mut self, new: &BTreeSet<Resource>, ended: &BTreeSet<Resource>) {
        for resource in [Resource::Cluster, Resource::Listener] {
            let Some(version) = self.last.get(&resource) else {
                self.standings.remove(&resource);
                continue;
            };
            let missing = version.names.iter().filter(|name| !self.last.contains_key(name));
            let before = self.standings.get(&resource).filter(|_| !new.contains(&resource));
            let has_waited = ended.contains(&resource) || before.is_some_and(Standing::has_waited);
            let standing = Standing::of(missing.copied().collect(), has_waited);
            self.standings.insert(resource, standing);
        }
    }

    /// The source hears what follows for versions that it has not just delivered.
    fn check_late(
        &self,
        before: &BTreeMap<Resource, Standing>,
        new: &BTreeSet<Resource>,
        late: &[(Arc<str>, Verdict)],
    ) {
        for (source, verdict) in late {
            assert_eq!(**source, *SOURCE);
            let standing = self.standings.get(&Resource::of(&verdict.name));
            check(standing.unwrap_or_else(|| panic!("of what is gone: {verdict:?}")), verdict);
        }
        for (resource, standing) in &self.standings {
            let before = before.get(resource).filter(|_| !new.contains(resource));
            let is_heard = late.iter().any(|(_, it)| it.name == resource.full_name());
            let is_news = before.is_some_and(|before| standing.is_news_after(before));
            assert!(is_heard || !is_news, "not said: {before:?} of {resource:?} is {standing:?}");
        }
    }

    /// What serves after a change.
    fn follow(&mut self) {
        use Resource::{Assignment, Cluster, Listener, OtherRoutes, Routes, Secret};
        for resource in Resource::ALL {
            let is_in_use = self.standings.get(&resource).is_none_or(Standing::is_in_use);
            match (self.last.get(&resource).cloned(), resource) {
                (Some(version), _) if is_in_use => {
                    self.serving.insert(resource, version);
                }
                // What was there before it serves.
                (Some(_), _) => {}
                (None, Listener | Cluster) => {
                    let removed = self.serving.remove(&resource);
                    let removed = removed.filter(|_| resource == Listener);
                    self.removed_lacked |= removed.is_some() && self.lacks_routes;
                    self.removed.extend(removed.map(|version| version.number));
                }
                // Who names it goes on with it.
                (None, _) => {}
            }
        }
        let names = |of: Resource, name: &Resource| {
            let version = self.serving.get(&of);
            version.is_some_and(|version| version.names.contains(name))
        };
        // A listener has let go of what it serves without, while a cluster goes on with the endpoints that it had.
        let is_let_go = |name: &Resource| {
            let listener = self.standings.get(&Listener);
            matches!(listener, Some(Standing::ServesWithout(missing)) if missing.contains(name))
        };
        let left: Vec<Resource> = [Routes, OtherRoutes, Secret, Assignment]
            .into_iter()
            .filter(|it| !self.last.contains_key(it))
            .filter(|it| is_let_go(it) || !names(Listener, it) && !names(Cluster, it))
            .collect();
        left.iter().for_each(|resource| drop(self.serving.remove(resource)));
        match self.standings.get(&Listener) {
            Some(Standing::ServesWithout(missing)) => self.lacks_routes = missing.contains(&Routes),
            Some(Standing::Serves) | None => self.lacks_routes = false,
            // The version before goes on, with or without.
            Some(Standing::Waits(_) | Standing::Refused(_)) => {}
        }
        let is_behind = self.standings.get(&Listener).is_some_and(|it| !it.is_in_use());
        if !is_behind && self.removed.is_empty() {
            self.routes.clear();
        }
        self.routes.extend(self.serving.get(&Routes).map(|version| version.number));
    }
}

fn check(standing: &Standing, verdict: &Verdict) {
    let words = [resources(&verdict.waits_for), resources(&verdict.missing)];
    assert_eq!(words, standing.words(), "{standing:?}: {verdict:?}");
    let is_refused = matches!(standing, Standing::Refused(_));
    assert_eq!(verdict.refused.is_some(), is_refused, "{standing:?}: {verdict:?}");
}

fn resources(names: &[ResourceName]) -> BTreeSet<Resource> {
    names.iter().map(Resource::of).collect()
}
