//! Who may be chosen among a cluster's endpoints: by subset, there by priority, and there by locality.
//!
//! A view follows from endpoints and options alone. It is built with the snapshot, once, and all workers read it; what
//! a worker counts (turns, requests) stays its own, by the numbers of groups. A cluster without subsets and priorities
//! has one group of all its endpoints, which costs nothing beyond their schedule.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::address::Address;
use crate::map::Map;
use crate::percent::Percent;
use crate::resource::assignment::locality::{LocalityKey, LocalityRule};
use crate::resource::cluster::balance::Balancer;
use crate::resource::cluster::hash_table::HashTable;
use crate::resource::cluster::health::{Availability, Counts, HealthStatus};
use crate::resource::cluster::schedule::Schedule;
use crate::resource::cluster::subsets::{Fallback, Metadata, Selectors, SubsetHash};

mod localities;

pub use self::localities::{Part, Parts};

/// Groups of endpoints, by what a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    whole: Levels,
    /// Where there are subsets.
    subsets: Option<Box<Split>>,
}

/// Subsets, and where a request goes for which there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Split {
    by_hash: Map<SubsetHash, Levels>,
    /// The keys and values of each, as the access log has them.
    names: Map<SubsetHash, Box<str>>,
    fallback: Fallback,
    default: Levels,
}

/// Groups in the order of their priorities; those without endpoints that have a weight are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels(Box<[Group]>);

/// Endpoints of which a balancer chooses one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Names it among the groups of its cluster, from 0.
    pub number: usize,
    /// Their places in the cluster, in order; none for all of them.
    places: Option<Box<[u32]>>,
    /// How many there are.
    len: usize,
    /// In which order they take turns, by their places in the group.
    schedule: Schedule,
    /// Which of them a hash leads to, by the same, where the balancer goes by that.
    hash_table: Option<Arc<HashTable>>,
    /// Of their weights.
    weight_sum: u64,
    /// How many of them have a weight.
    weighted: u32,
    /// How many of these are healthy and degraded, as far as that is known.
    available: Availability,
    /// The same endpoints by locality, where that counts and there are several.
    parts: Option<Box<Parts>>,
}

/// An endpoint, as far as it matters who may be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'e> {
    pub(crate) address: &'e Address,
    pub(crate) weight: u16,
    pub(crate) priority: u8,
    pub(crate) metadata: &'e Metadata,
    pub(crate) locality: LocalityKey,
    pub(crate) status: HealthStatus,
    /// Whether its status may become another one.
    pub(crate) has_health: bool,
}

impl View {
    /// The view of these endpoints: parts of `former` that would be the same are shared with it.
    pub(crate) fn new(
        endpoints: &[Member<'_>],
        selectors: Option<&Selectors>,
        localities: Option<&LocalityRule>,
        balancer: Balancer,
        former: Option<(&Self, &[Member<'_>], Balancer)>,
    ) -> Self {
        let mut builder = Builder { endpoints, localities, balancer, former, groups: 0 };
        let whole = builder.levels(&|_| true);
        let subsets = selectors.map(|selectors| Box::new(builder.split(selectors)));
        Self { whole, subsets }
    }

    /// The groups for a request that asks for this subset, or for none.
    #[must_use]
    pub fn levels(&self, asked: Option<SubsetHash>) -> &[Group] {
        let Some(split) = &self.subsets else { return &self.whole.0 };
        let found = asked.and_then(|hash| split.by_hash.get(&hash));
        match (found, split.fallback) {
            (Some(found), _) => &found.0,
            (None, Fallback::None) => &[],
            (None, Fallback::Any) => &self.whole.0,
            (None, Fallback::Default) => &split.default.0,
        }
    }

    /// Whether there is such a subset.
    #[must_use]
    pub fn has_subset(&self, asked: SubsetHash) -> bool {
        self.subsets.as_ref().is_some_and(|split| split.by_hash.contains_key(&asked))
    }

    /// The keys and values of a subset, if there is such a one: `unit=a,version=v2`.
    #[must_use]
    pub fn subset_name(&self, asked: SubsetHash) -> Option<&str> {
        self.subsets.as_ref()?.names.get(&asked).map(|name| &**name)
    }

    /// Counts again how many endpoints of each group get requests. `status` is that of the endpoint at a place in the cluster;
    /// none without a weight.
    pub(crate) fn count_available(&self, status: impl Fn(usize) -> Option<HealthStatus>) {
        for group in self.groups() {
            let members = (0..group.len).filter_map(|at| group.place(at));
            group.available.set(Counts::of(members.filter_map(&status)));
        }
    }

    /// How many endpoints are degraded.
    #[must_use]
    pub fn degraded(&self) -> u32 {
        self.whole.0.iter().map(Group::degraded).sum()
    }

    /// Whether requests that ask for no subset may meet endpoints that are unhealthy, since too few others are left.
    pub(crate) fn is_panicking(&self, panic: Percent) -> bool {
        let shares = Shares::of(&self.whole.0, panic);
        self.whole.0.iter().any(|group| shares.is_panicking(group))
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        let split = self.subsets.iter();
        let split = split.flat_map(|split| split.by_hash.values().chain([&split.default]));
        let groups = [&self.whole].into_iter().chain(split).flat_map(|levels| &levels.0);
        groups.flat_map(|group| [group].into_iter().chain(group.parts().map(|part| &part.group)))
    }
}

/// Which endpoints of a group a request may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligible {
    /// Any: all are healthy, or too few are.
    All,
    /// Those with this status.
    Only(HealthStatus),
}

/// A group that a request goes to.
#[derive(Clone, Copy, Debug)]
pub struct Level<'v> {
    /// Its place among the groups.
    pub place: usize,
    /// The group.
    pub group: &'v Group,
    /// Which of its endpoints.
    pub eligible: Eligible,
}

impl Level<'_> {
    /// Whether all of its endpoints get requests since too few of them may be chosen.
    #[must_use]
    pub fn is_panicking(&self) -> bool {
        self.eligible == Eligible::All
            && self.group.available().is_some_and(|it| it < self.group.weighted)
    }
}

/// The group that a request goes to, by a die. The healthy endpoints of the first priority get all requests while there are
/// enough of them: their share of the endpoints, times 1.4, and at most all. What they do not get goes on to the healthy ones
/// of the next, and so on; then to the degraded ones, in the same order. If that leaves requests over, a group of which less
/// than `panic` are healthy or degraded gets its requests at all of its endpoints; and if all groups are such, each gets requests
/// by the number of its endpoints. So it is in Envoy. None if no endpoint may be chosen at all.
#[inline]
#[must_use]
pub fn level(levels: &[Group], panic: Percent, die: impl FnOnce() -> u64) -> Option<Level<'_>> {
    let first = levels.first()?;
    match first.available() {
        Some(available) if available < first.weighted => share_out(levels, panic, die()),
        _ => Some(Level { place: 0, group: first, eligible: Eligible::All }),
    }
}

// Apart, so that what is asked for each request is short.
#[cold]
fn share_out(levels: &[Group], panic: Percent, die: u64) -> Option<Level<'_>> {
    let shares = Shares::of(levels, panic);
    let mut left = die % shares.all();
    for status in [HealthStatus::Healthy, HealthStatus::Degraded] {
        for (place, group) in levels.iter().enumerate() {
            let share = shares.share(group, status);
            if left < share {
                let is_panicking = shares.is_panicking(group);
                let eligible = if is_panicking { Eligible::All } else { Eligible::Only(status) };
                return Some(Level { place, group, eligible });
            }
            left -= share;
        }
    }
    // Counted while it changed.
    let group = levels.first().filter(|_| shares.sum > 0)?;
    Some(Level { place: 0, group, eligible: Eligible::Only(HealthStatus::Healthy) })
}

/// What part of the requests a group gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupShares {
    /// For its healthy endpoints.
    pub healthy: f64,
    /// For its degraded endpoints.
    pub degraded: f64,
    /// Whether all of its endpoints get both.
    pub is_panicking: bool,
}

/// What part of the requests each group gets, as [`level`] chooses.
#[must_use]
pub fn parts(levels: &[Group], panic: Percent) -> Vec<GroupShares> {
    let shares = Shares::of(levels, panic);
    let mut left = shares.all();
    let mut take = |group, status| {
        let share = shares.share(group, status).min(left);
        left -= share;
        share as f64 / shares.all() as f64
    };
    let healthy: Vec<f64> = levels.iter().map(|group| take(group, HealthStatus::Healthy)).collect();
    let parts = levels.iter().zip(healthy).map(|(group, healthy)| GroupShares {
        healthy,
        degraded: take(group, HealthStatus::Degraded),
        is_panicking: shares.is_panicking(group),
    });
    parts.collect()
}

/// What of the requests each of several groups gets, by how many of their endpoints may be chosen.
#[derive(Clone, Copy, Debug)]
struct Shares {
    panic: Percent,
    /// What the groups can take together, in millionths of all requests.
    sum: u64,
    /// How many endpoints have a weight, where each of the groups has too few that may be chosen: then requests go by that.
    weighted: Option<u64>,
}

/// Of all requests.
const WHOLE: u64 = 1_000_000;

/// How much more than its share of the requests an endpoint may get, in percent, before others are asked to take some.
const OVERPROVISIONING: u64 = 140;

impl Shares {
    fn of(levels: &[Group], panic: Percent) -> Self {
        let capacity = |group: &Group| group.capacity() + group.capacity_of(group.degraded());
        let sum = levels.iter().map(capacity).sum();
        let shares = Self { panic, sum, weighted: None };
        let all = || levels.iter().map(|group| u64::from(group.weighted)).sum();
        let weighted = levels.iter().all(|group| shares.is_panicking(group)).then(all);
        Self { weighted, ..shares }
    }

    /// What a die has sides of.
    fn all(self) -> u64 {
        self.weighted.unwrap_or_else(|| self.sum.min(WHOLE)).max(1)
    }

    /// What endpoints of a group with this status get of that, behind those before them.
    fn share(self, group: &Group, status: HealthStatus) -> u64 {
        match (self.weighted, status) {
            (_, HealthStatus::Unhealthy) | (Some(_), HealthStatus::Degraded) => 0,
            (Some(_), HealthStatus::Healthy) => u64::from(group.weighted),
            (None, HealthStatus::Healthy) => group.capacity(),
            (None, HealthStatus::Degraded) => group.capacity_of(group.degraded()),
        }
    }

    /// Whether all endpoints of a group get its requests.
    fn is_panicking(self, group: &Group) -> bool {
        let available = u64::from(group.healthy()) + u64::from(group.degraded());
        let least = u64::from(group.weighted) * u64::from(self.panic.millionths());
        self.sum < WHOLE && available * WHOLE < least
    }
}

fn count<T>(members: impl Iterator<Item = T>) -> u32 {
    u32::try_from(members.count()).unwrap_or(u32::MAX)
}

impl Group {
    /// How many of its endpoints that have a weight are healthy; none if nothing is known of their health.
    #[must_use]
    #[inline]
    pub fn available(&self) -> Option<u32> {
        self.available.get().map(|counts| counts.healthy)
    }

    /// The same, where all are healthy of which nothing is known.
    fn healthy(&self) -> u32 {
        self.available().unwrap_or(self.weighted)
    }

    /// How many of its endpoints that have a weight are degraded.
    fn degraded(&self) -> u32 {
        self.available.get().map_or(0, |counts| counts.degraded)
    }

    /// How many of its endpoints that have a weight have this status.
    fn having(&self, status: HealthStatus) -> u32 {
        match status {
            HealthStatus::Healthy => self.healthy(),
            HealthStatus::Degraded => self.degraded(),
            HealthStatus::Unhealthy => 0,
        }
    }

    /// What part of all requests its healthy endpoints can take, in millionths.
    fn capacity(&self) -> u64 {
        self.capacity_of(self.healthy())
    }

    /// What part of all requests so many of its endpoints can take, in millionths.
    fn capacity_of(&self, endpoints: u32) -> u64 {
        let share = u64::from(endpoints) * OVERPROVISIONING * WHOLE / 100;
        share.checked_div(u64::from(self.weighted)).unwrap_or_default().min(WHOLE)
    }

    /// How many endpoints it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one that has a weight")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Of their weights.
    #[must_use]
    pub const fn weight_sum(&self) -> u64 {
        self.weight_sum
    }

    /// In which order they take turns.
    #[must_use]
    pub const fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Which of them hashes lead to, where the balancer goes by that.
    #[must_use]
    pub const fn hash_table(&self) -> Option<&Arc<HashTable>> {
        self.hash_table.as_ref()
    }

    /// The place in the cluster of its endpoint at this place.
    #[must_use]
    pub fn place(&self, inner: usize) -> Option<usize> {
        match &self.places {
            None => (inner < self.len).then_some(inner),
            Some(places) => places.get(inner).map(|place| *place as usize),
        }
    }

    /// The place among its endpoints of the one at this place in the cluster, if it is one of them.
    #[must_use]
    pub fn inner(&self, place: usize) -> Option<usize> {
        match &self.places {
            None => (place < self.len).then_some(place),
            Some(places) => places.binary_search(&u32::try_from(place).ok()?).ok(),
        }
    }

    /// Whether all endpoints of the cluster are in it.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.places.is_none()
    }
}

struct Builder<'b> {
    endpoints: &'b [Member<'b>],
    localities: Option<&'b LocalityRule>,
    balancer: Balancer,
    former: Option<(&'b View, &'b [Member<'b>], Balancer)>,
    groups: usize,
}

impl Builder<'_> {
    /// The endpoints that are meant, by their priorities.
    fn levels(&mut self, is_meant: &dyn Fn(&Member<'_>) -> bool) -> Levels {
        let mut by_priority: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for (endpoint, place) in self.endpoints.iter().zip(0..) {
            if is_meant(endpoint) {
                by_priority.entry(endpoint.priority).or_default().push(place);
            }
        }
        self.of_places(by_priority.into_values())
    }

    fn of_places(&mut self, levels: impl Iterator<Item = Vec<u32>>) -> Levels {
        let mut groups = Vec::new();
        for places in levels {
            groups.extend(self.group(places, groups.is_empty()));
        }
        Levels(groups.into_boxed_slice())
    }

    fn split(&mut self, selectors: &Selectors) -> Split {
        let mut places: BTreeMap<SubsetHash, BTreeMap<u8, Vec<u32>>> = BTreeMap::new();
        let mut names: Map<SubsetHash, Box<str>> = Map::default();
        for (endpoint, place) in self.endpoints.iter().zip(0..) {
            for (hash, name) in selectors.of(endpoint.metadata) {
                names.entry(hash).or_insert_with(|| name.into());
                let levels = places.entry(hash).or_default();
                levels.entry(endpoint.priority).or_default().push(place);
            }
        }
        let by_hash =
            places.into_iter().map(|(hash, levels)| (hash, self.of_places(levels.into_values())));
        // One whose endpoints have no weight is none.
        let by_hash = by_hash.filter(|(_, levels)| !levels.0.is_empty()).collect();
        let fallback = selectors.fallback();
        let default = match fallback {
            Fallback::Default => self.levels(&|endpoint| selectors.is_default(endpoint.metadata)),
            Fallback::None | Fallback::Any => Levels::default(),
        };
        Split { by_hash, names, fallback, default }
    }

    /// Requests stay in the locality of the process in the first group alone, as in Envoy.
    fn group(&mut self, places: Vec<u32>, is_first: bool) -> Option<Group> {
        let is_for = |rule: &&LocalityRule| is_first || matches!(rule, LocalityRule::Weights(_));
        let parts = self.localities.filter(is_for).and_then(|rule| self.parts(&places, rule));
        Some(Group { parts: parts.map(Box::new), ..self.undivided(places)? })
    }

    /// The parts of a group, if there are several.
    fn parts(&mut self, places: &[u32], rule: &LocalityRule) -> Option<Parts> {
        let mut by_locality: BTreeMap<LocalityKey, Vec<u32>> = BTreeMap::new();
        for place in places {
            let endpoint = self.endpoints.get(*place as usize)?;
            by_locality.entry(endpoint.locality).or_default().push(*place);
        }
        if by_locality.len() < 2 {
            return None;
        }
        let parts = by_locality.into_iter().filter_map(|(key, places)| {
            Some(Part { key, weight: rule.weight(key), group: self.undivided(places)? })
        });
        Some(Parts { rule: rule.clone(), parts: parts.collect() })
    }

    fn undivided(&mut self, places: Vec<u32>) -> Option<Group> {
        let members = || places.iter().filter_map(|place| self.endpoints.get(*place as usize));
        let weights: Vec<u16> = members().map(|endpoint| endpoint.weight).collect();
        let weight_sum = weights.iter().copied().map(u64::from).sum();
        if weight_sum == 0 {
            return None;
        }
        let weighted = || members().filter(|endpoint| endpoint.weight > 0);
        let has_health = |it: &Member<'_>| it.has_health || it.status != HealthStatus::Healthy;
        let counts = members()
            .any(has_health)
            .then(|| Counts::of(weighted().map(|endpoint| endpoint.status)));
        let available = Availability::new(counts);
        let weighted = count(weighted());
        let hash_table = self.hash_table(members);
        let len = places.len();
        let number = self.groups;
        self.groups += 1;
        Some(Group {
            number,
            places: (len < self.endpoints.len()).then(|| places.into()),
            len,
            schedule: Schedule::new(&weights),
            hash_table,
            weight_sum,
            weighted,
            available,
            parts: None,
        })
    }

    /// The table of these endpoints, if the balancer goes by one: that of before, where it would be the same.
    fn hash_table<'e, I: Iterator<Item = &'e Member<'e>>>(
        &self,
        members: impl Fn() -> I,
    ) -> Option<Arc<HashTable>> {
        let Balancer::Hash { kind, .. } = self.balancer else { return None };
        let is_same = |(one, other): (&Member<'_>, &Member<'_>)| {
            one.address == other.address && one.weight == other.weight
        };
        let former = self.former.filter(
            |(.., balancer)| matches!(balancer, Balancer::Hash { kind: former, .. } if *former == kind),
        );
        let same = former.and_then(|(view, endpoints, _)| {
            view.groups().find(|group| {
                let of_group = (0..group.len).filter_map(|at| endpoints.get(group.place(at)?));
                group.len == members().count() && members().zip(of_group).all(is_same)
            })
        });
        same.and_then(|group| group.hash_table.clone()).or_else(|| {
            let keys = members().map(|it| (it.address.to_string(), it.weight));
            Some(Arc::new(HashTable::new(kind, keys)))
        })
    }
}
