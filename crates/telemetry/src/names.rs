//! The names behind label ids.
//!
//! Control builds them from each snapshot and hands them over *before* the workers get that
//! snapshot, so that nothing new is counted under an id without a name. What is not named any
//! more is not reported any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::events::LabelId;

/// Names of everything that one snapshot configures.
#[derive(Clone, Debug, Default)]
pub struct Names {
    listeners: Table<Arc<str>>,
    routes: Table<RouteNames>,
    clusters: Table<Arc<str>>,
}

/// An endpoint that has metrics of its own.
#[derive(Clone, Debug)]
pub struct EndpointName {
    /// Its id.
    pub id: LabelId,
    /// Name of its cluster.
    pub cluster: Arc<str>,
    /// Its address, as in the configuration.
    pub address: String,
}

/// A route table's name, and those of what is counted in it by slots.
#[derive(Clone, Debug, Default)]
pub struct RouteNames {
    pub(crate) name: Arc<str>,
    /// In the order of the table.
    rules: Arc<[RuleName]>,
    /// In the order of the table.
    weighted: Arc<[WeightedName]>,
    /// The places in `rules`, in the order of the slots.
    by_slot: Arc<[u32]>,
    /// The same in the order of the labels.
    by_label: Arc<[u32]>,
}

/// What a rule is called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleName {
    slot: u32,
    /// No other rule of the table has the same.
    label: Box<str>,
}

/// A cluster of a rule that has several by weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedName {
    /// Its slot.
    pub slot: u32,
    /// That of the rule.
    pub rule: u32,
    /// Name of the cluster.
    pub cluster: Arc<str>,
}

/// What has a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'n> {
    pub(crate) slot: u32,
    /// What the rule is called.
    pub(crate) rule: &'n str,
    /// The cluster, if it is a weighted one that is counted.
    pub(crate) cluster: Option<&'n Arc<str>>,
}

impl RouteNames {
    /// Names of a table, of its rules (the slot, and the name or what it matches) in their order, and of its weighted clusters.
    ///
    /// Of several rules with the same text, the later ones have a number behind it.
    #[must_use]
    pub fn new(
        name: Arc<str>,
        rules: impl IntoIterator<Item = (u32, String)>,
        weighted: impl IntoIterator<Item = WeightedName>,
    ) -> Self {
        let rules = rules.into_iter().map(|(slot, label)| RuleName { slot, label: label.into() });
        let mut rules: Vec<_> = rules.collect();
        if sorted(&rules, |rule| &*rule.label).1 {
            number(&mut rules);
        }
        let (by_slot, _) = sorted(&rules, |rule| rule.slot);
        let (by_label, _) = sorted(&rules, |rule| &*rule.label);
        let mut known = BTreeSet::new();
        let weighted = weighted.into_iter().filter(|it| known.insert(it.slot)).collect();
        Self { name, rules: rules.into(), weighted, by_slot, by_label }
    }

    /// What the rule in this slot is called: its name, or what it matches.
    #[must_use]
    pub fn rule(&self, slot: u32) -> Option<&str> {
        self.find(&self.by_slot, slot, |rule| rule.slot).map(|rule| &*rule.label)
    }

    /// The slot of the rule that is called so.
    pub(crate) fn slot_of(&self, label: &str) -> Option<u32> {
        self.find(&self.by_label, label, |rule| &*rule.label).map(|rule| rule.slot)
    }

    /// The rule with this key, by their places in its order.
    fn find<'n, K: Ord>(
        &'n self,
        places: &[u32],
        key: K,
        of: impl Fn(&'n RuleName) -> K,
    ) -> Option<&'n RuleName> {
        let rule = |place: u32| self.rules.get(usize::try_from(place).ok()?);
        let key = Some(key);
        let found = places.binary_search_by(|place| rule(*place).map(&of).cmp(&key)).ok()?;
        rule(*places.get(found)?)
    }

    /// How many slots are in use: of rules, and of weighted clusters.
    pub(crate) fn counters(&self) -> usize {
        self.rules.len() + self.weighted.len()
    }

    /// What has a slot: the rules in their order, and behind them the weighted clusters.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted<'_>> {
        let rules = self.rules.iter();
        let rules = rules.map(|rule| Counted { slot: rule.slot, rule: &rule.label, cluster: None });
        let weighted = self.weighted.iter().filter_map(|it| {
            let (slot, cluster) = (it.slot, Some(&it.cluster));
            Some(Counted { slot, rule: self.rule(it.rule)?, cluster })
        });
        rules.chain(weighted)
    }

    /// The rule at this place of the table.
    pub(crate) fn rule_at(&self, place: usize) -> Option<(u32, &str)> {
        self.rules.get(place).map(|rule| (rule.slot, &*rule.label))
    }

    /// The weighted clusters, each with the slot of its rule.
    pub(crate) fn weighted(&self) -> impl Iterator<Item = (u32, &str)> {
        self.weighted.iter().map(|it| (it.rule, &*it.cluster))
    }

    /// Whether both call the same slots the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same = Arc::ptr_eq(&self.rules, &other.rules) || self.rules == other.rules;
        is_same && self.weighted == other.weighted
    }
}

/// The places of rules in the order of a key of theirs, and whether any two have the same.
fn sorted<'n, K: Ord>(rules: &'n [RuleName], of: impl Fn(&'n RuleName) -> K) -> (Arc<[u32]>, bool) {
    let mut keys: Vec<(K, u32)> = rules.iter().map(of).zip(0..).collect();
    keys.sort_unstable();
    let has_equal = keys.iter().zip(keys.iter().skip(1)).any(|(one, next)| one.0 == next.0);
    (keys.into_iter().map(|(_, place)| place).collect(), has_equal)
}

/// Gives each rule a label that no other has: its own or, if a rule before it has that, its own with a number behind it.
fn number(rules: &mut [RuleName]) {
    let mut known = BTreeSet::new();
    // The last number of each label that several have.
    let mut numbers = BTreeMap::<Box<str>, u32>::new();
    for rule in rules {
        let own = rule.label.clone();
        while !known.insert(rule.label.clone()) {
            let number = numbers.entry(own.clone()).or_insert(1);
            *number += 1;
            rule.label = format!("{own} ({number})").into();
        }
    }
}

/// What series are called after.
#[derive(Debug, Default)]
pub(crate) struct NameSets<'n> {
    listeners: BTreeSet<&'n str>,
    routes: BTreeSet<&'n str>,
    clusters: BTreeSet<&'n str>,
}

impl<'n> NameSets<'n> {
    pub(crate) fn of(names: &'n Names) -> Self {
        Self {
            listeners: names.listeners().map(|name| &**name).collect(),
            routes: names.routes().map(|(_, route)| &*route.name).collect(),
            clusters: names.clusters().map(|name| &**name).collect(),
        }
    }

    /// Those of `former` that `now` does not have, whatever their ids are. Costs little where none of them went.
    pub(crate) fn gone(former: &'n Names, now: &'n Names) -> Self {
        let gone = Self {
            listeners: former.listeners.gone(&now.listeners).map(|(_, name)| &**name).collect(),
            routes: former.routes.gone(&now.routes).map(|(_, route)| &*route.name).collect(),
            clusters: former.clusters.gone(&now.clusters).map(|(_, name)| &**name).collect(),
        };
        if gone.is_empty() {
            return gone;
        }
        let named = Self::of(now);
        Self {
            listeners: &gone.listeners - &named.listeners,
            routes: &gone.routes - &named.routes,
            clusters: &gone.clusters - &named.clusters,
        }
    }

    /// The names that are values of this label; none if it says something else.
    pub(crate) fn of_label(&self, label: &str) -> Option<&BTreeSet<&'n str>> {
        match label {
            "listener" => Some(&self.listeners),
            "route" => Some(&self.routes),
            "cluster" => Some(&self.clusters),
            _ => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.routes.is_empty() && self.clusters.is_empty()
    }
}

/// Listeners that are others now under the same name, as after a change of their socket: what they have counted, and their
/// open connections go on counting, is the name's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced(VecDeque<(LabelId, Arc<str>)>);

impl Replaced {
    /// How many are known; the oldest are forgotten then, with what they counted.
    const MAX: usize = 256;

    /// Notes those of `former` whose names others have `now`, and forgets those whose names nothing has.
    pub(crate) fn update(&mut self, former: &Names, now: &Names) {
        let gone: Vec<_> = former.listeners.gone(&now.listeners).collect();
        if gone.is_empty() {
            return;
        }
        let names: BTreeSet<&str> = now.listeners().map(|name| &**name).collect();
        self.0.extend(gone.into_iter().map(|(id, name)| (id, Arc::clone(name))));
        self.0.retain(|(_, name)| names.contains(&**name));
        let surplus = self.0.len().saturating_sub(Self::MAX);
        self.0.drain(..surplus);
    }

    /// Those that had this name.
    pub(crate) fn ids(&self, name: &str) -> impl Iterator<Item = LabelId> {
        self.0.iter().filter(move |(_, it)| **it == *name).map(|(id, _)| *id)
    }

    /// The name that such a listener had.
    pub(crate) fn name(&self, id: LabelId) -> Option<&Arc<str>> {
        self.0.iter().find(|(it, _)| *it == id).map(|(_, name)| name)
    }
}

impl Names {
    /// Names a listener.
    pub fn insert_listener(&mut self, id: LabelId, name: Arc<str>) {
        self.listeners.insert(id, name);
    }

    /// Names a route table and its rules.
    pub fn insert_route(&mut self, id: LabelId, route: RouteNames) {
        self.routes.insert(id, route);
    }

    /// Names a cluster.
    pub fn insert_cluster(&mut self, id: LabelId, name: Arc<str>) {
        self.clusters.insert(id, name);
    }

    /// Forgets a listener.
    pub fn remove_listener(&mut self, id: LabelId) {
        self.listeners.remove(id);
    }

    /// Forgets a route table.
    pub fn remove_route(&mut self, id: LabelId) {
        self.routes.remove(id);
    }

    /// Forgets a cluster.
    pub fn remove_cluster(&mut self, id: LabelId) {
        self.clusters.remove(id);
    }

    /// The listener's name.
    #[must_use]
    pub fn listener(&self, id: LabelId) -> Option<&Arc<str>> {
        self.listeners.find(id)
    }

    /// The route table's name and rules.
    #[must_use]
    pub fn route(&self, id: LabelId) -> Option<&RouteNames> {
        self.routes.find(id)
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self, id: LabelId) -> Option<&Arc<str>> {
        self.clusters.find(id)
    }

    /// All listeners.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Arc<str>> {
        self.listeners.slots.iter().flatten().map(|(_, name)| name)
    }

    /// All route tables.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (LabelId, &RouteNames)> {
        (0..).zip(&self.routes.slots).filter_map(|(slot, place)| {
            let (generation, route) = place.as_ref()?;
            Some((LabelId { slot, generation: *generation }, route))
        })
    }

    /// The route tables whose slots `former` called otherwise, as they were there and as they are now.
    pub(crate) fn changed_routes<'n>(
        &'n self,
        former: &'n Self,
    ) -> impl Iterator<Item = (LabelId, &'n RouteNames, &'n RouteNames)> {
        self.routes().filter_map(|(id, now)| {
            let before = former.route(id)?;
            (!before.is_same(now)).then_some((id, before, now))
        })
    }

    /// All clusters.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        self.clusters.slots.iter().flatten().map(|(_, name)| name)
    }
}

/// Names by slot; a slot named twice keeps what came last.
#[derive(Clone, Debug)]
struct Table<T> {
    slots: Vec<Option<(u32, T)>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> Table<T> {
    fn insert(&mut self, id: LabelId, value: T) {
        let Ok(slot) = usize::try_from(id.slot) else { return };
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some((id.generation, value));
        }
    }

    /// Empties the slot of `id`, if it holds that.
    fn remove(&mut self, id: LabelId) {
        let slot = usize::try_from(id.slot).ok().and_then(|slot| self.slots.get_mut(slot));
        if let Some(slot) = slot {
            slot.take_if(|(generation, _)| *generation == id.generation);
        }
    }

    /// What has another id, or none, among these.
    fn gone<'t>(&'t self, now: &'t Self) -> impl Iterator<Item = (LabelId, &'t T)> {
        self.slots.iter().enumerate().filter_map(|(slot, place)| {
            let (generation, value) = place.as_ref()?;
            let there = now.slots.get(slot).and_then(Option::as_ref);
            let id = LabelId { slot: u32::try_from(slot).ok()?, generation: *generation };
            there.is_none_or(|(it, _)| it != generation).then_some((id, value))
        })
    }

    fn find(&self, id: LabelId) -> Option<&T> {
        let slot = usize::try_from(id.slot).ok()?;
        match self.slots.get(slot) {
            Some(Some((generation, value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }
}

/// The names in use and those before them, for what ended after its configuration went.
#[derive(Debug, Default)]
pub(crate) struct NameHistory {
    current: Arc<Names>,
    former: Arc<Names>,
}

impl NameHistory {
    pub(crate) fn set(&mut self, names: Arc<Names>) {
        self.former = std::mem::replace(&mut self.current, names);
    }

    pub(crate) fn listener(&self, id: LabelId) -> Option<&Arc<str>> {
        self.current.listener(id).or_else(|| self.former.listener(id))
    }

    pub(crate) fn route(&self, id: LabelId) -> Option<&RouteNames> {
        self.current.route(id).or_else(|| self.former.route(id))
    }

    /// What the rule in this slot of a table is called, or was.
    pub(crate) fn rule(&self, table: LabelId, slot: u32) -> Option<&str> {
        let now = self.current.route(table).and_then(|route| route.rule(slot));
        now.or_else(|| self.former.route(table)?.rule(slot))
    }

    pub(crate) fn cluster(&self, id: LabelId) -> Option<&Arc<str>> {
        self.current.cluster(id).or_else(|| self.former.cluster(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_finds_nothing_and_a_history_finds_what_just_went() {
        let (old, new) = (LabelId { slot: 2, generation: 0 }, LabelId { slot: 2, generation: 1 });
        let mut before = Names::default();
        before.insert_cluster(old, "api".into());
        let mut after = Names::default();
        after.insert_cluster(new, "web".into());
        assert!(after.cluster(old).is_none());
        after.remove_cluster(old);
        assert!(after.cluster(new).is_some());
        assert!(after.cluster(LabelId { slot: u32::MAX, generation: 1 }).is_none());

        let mut history = NameHistory::default();
        history.set(Arc::new(before));
        history.set(Arc::new(after));
        assert_eq!(history.cluster(old).map(|name| &**name), Some("api"));
        assert_eq!(history.cluster(new).map(|name| &**name), Some("web"));
        history.set(Arc::default());
        assert!(history.cluster(old).is_none());
    }

    #[test]
    fn rules_with_the_same_text_have_a_number_and_are_found_by_their_slots() {
        let rules = ["/a", "/a (2)", "/b", "/a", "/a", "/b"];
        let rules = rules.iter().zip([5, 0, 9, 2, 3, 1]).map(|(it, slot)| (slot, (*it).to_owned()));
        let names = RouteNames::new("shop".into(), rules, []);
        let labels =
            [(5, "/a"), (0, "/a (2)"), (9, "/b"), (2, "/a (3)"), (3, "/a (4)"), (1, "/b (2)")];
        let counted: Vec<_> = names.counted().map(|it| (it.slot, it.rule)).collect();
        assert_eq!(counted, labels);
        for (slot, label) in labels {
            assert_eq!((names.rule(slot), names.slot_of(label)), (Some(label), Some(slot)));
        }
        assert_eq!(names.rule(4), None);
        assert_eq!(names.rule(u32::MAX), None);
        assert_eq!(names.slot_of("/b (3)"), None);
    }

    #[test]
    fn a_history_has_what_rules_are_called_that_just_went() {
        let table = LabelId::default();
        let named = |rules: &[(u32, &str)]| {
            let mut names = Names::default();
            let rules = rules.iter().map(|(slot, text)| (*slot, (*text).to_owned()));
            names.insert_route(table, RouteNames::new("shop".into(), rules, []));
            Arc::new(names)
        };
        let mut history = NameHistory::default();
        history.set(named(&[(0, "/a"), (1, "/b")]));
        history.set(named(&[(2, "/new"), (1, "/b")]));
        let rules = [0, 1, 2, 3].map(|slot| history.rule(table, slot));
        assert_eq!(rules, [Some("/a"), Some("/b"), Some("/new"), None]);
        history.set(named(&[(0, "/c")]));
        assert_eq!(history.rule(table, 0), Some("/c"));
    }

    #[test]
    fn a_weighted_cluster_that_a_rule_has_twice_is_named_once() {
        let weighted =
            |slot, cluster: &str| WeightedName { slot, rule: 3, cluster: cluster.into() };
        let clusters = [weighted(4, "api"), weighted(7, "next"), weighted(4, "api")];
        let names = RouteNames::new("shop".into(), [(3, "/a".to_owned())], clusters);
        let counted = names.counted();
        let counted = counted.map(|it| (it.slot, it.rule, it.cluster.map(|it| &**it)));
        let expected = [(3, "/a", None), (4, "/a", Some("api")), (7, "/a", Some("next"))];
        assert!(counted.eq(expected));
        assert_eq!(names.counters(), 3);
    }
}
