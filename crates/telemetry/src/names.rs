//! The names behind label ids.
//!
//! Control builds them from each snapshot and hands them over *before* the workers get that
//! snapshot, so that nothing new is counted under an id without a name. What is not named any
//! more is not reported any more.

use std::collections::{BTreeSet, VecDeque};
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

/// A route table's name and what its rules match.
#[derive(Clone, Debug, Default)]
pub struct RouteNames {
    /// Name in the file.
    pub name: Arc<str>,
    /// For each rule, in the order of the table, what it matches as a few words.
    pub rules: Arc<[Box<str>]>,
    /// The places of the rules that have a name in the file, with that, in the order of the table.
    pub rule_names: Arc<[(u32, Arc<str>)]>,
    /// The clusters of rules that have several by weight, in the order of the table. Their counters stand behind those of
    /// the rules.
    pub weighted: Arc<[WeightedName]>,
}

/// A cluster of a rule that has several by weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedName {
    /// The place of the rule.
    pub rule: u32,
    /// Name of the cluster.
    pub cluster: Arc<str>,
}

/// What a rule is recognized by after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RuleIdentity<'n> {
    Name(&'n str),
    Matched(&'n str),
}

impl RouteNames {
    /// How many counters there are: of rules, and of weighted clusters.
    pub(crate) fn counters(&self) -> usize {
        self.rules.len() + self.weighted.len()
    }

    /// What each counter counts, in their order: what a rule matches and, if it is that of a weighted cluster, its name.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let rules = self.rules.iter().map(|text| (&**text, None));
        let weighted = self.weighted.iter().map(|it| {
            let rule = usize::try_from(it.rule).ok().and_then(|place| self.rules.get(place));
            (rule.map_or("", |text| &**text), Some(&*it.cluster))
        });
        rules.chain(weighted)
    }

    /// What identifies each counter's rule, in their order: its name, or what it matches if it has none; and the cluster.
    pub(crate) fn identities(&self) -> impl Iterator<Item = (RuleIdentity<'_>, Option<&str>)> {
        let identity = move |place: u32, matched| match self.rule_name(place) {
            Some(name) => RuleIdentity::Name(name),
            None => RuleIdentity::Matched(matched),
        };
        let counted = self.places().zip(self.counted());
        counted.map(move |(place, (matched, cluster))| (identity(place, matched), cluster))
    }

    /// The same, with the labels that metrics have.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (String, Option<&str>)> {
        let labelled = self.places().zip(self.counted());
        labelled.map(|(place, (rule, cluster))| (format!("{place} {rule}"), cluster))
    }

    /// The place of the rule of each counter, in their order.
    fn places(&self) -> impl Iterator<Item = u32> {
        let rules = 0..u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        rules.chain(self.weighted.iter().map(|it| it.rule))
    }

    /// Whether the rule at this place matches this and, if a cluster is named, has it by weight.
    pub(crate) fn counts_at(&self, place: u32, matched: &str, cluster: Option<&str>) -> bool {
        let rule = usize::try_from(place).ok().and_then(|place| self.rules.get(place));
        let has = |cluster: &str| {
            let first = self.weighted.partition_point(|it| it.rule < place);
            let of_rule = self.weighted.iter().skip(first).take_while(|it| it.rule == place);
            of_rule.into_iter().any(|it| *it.cluster == *cluster)
        };
        rule.is_some_and(|rule| **rule == *matched) && cluster.is_none_or(has)
    }

    /// The name in the file of the rule at this place, if it has one.
    #[must_use]
    pub fn rule_name(&self, place: u32) -> Option<&Arc<str>> {
        let found = self.rule_names.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        self.rule_names.get(found).map(|(_, name)| name)
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

    /// The route tables that `former` had with other rules, or in another order.
    pub(crate) fn changed_routes(&self, former: &Self) -> impl Iterator<Item = &RouteNames> {
        self.routes().filter_map(|(id, now)| {
            let before = former.route(id)?;
            let is_same = Arc::ptr_eq(&before.rules, &now.rules) || before.rules == now.rules;
            (!is_same || before.weighted != now.weighted).then_some(now)
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
}
