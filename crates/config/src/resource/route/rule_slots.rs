//! The numbers under which the rules of a table, and their weighted clusters, are counted and logged.
//!
//! A rule keeps its slot for as long as its table has a rule with the same identity: its name, or what it matches. A weighted
//! cluster keeps its own for as long as that rule has it. Several rules that match the same go by their order.
//!
//! Exchanges end under the table with which they began. The slot of a rule that is gone is another rule's only once no table
//! that had the first one is left: every table with a rule holds the lease of its slot, and a table knows the leases of all
//! slots that its predecessors gave away. So there are at most as many slots as the tables that are alive have rules.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use crate::map::Map;
use crate::resource::route::rule::Rule;
use crate::resource::route::targets::Shares;
use crate::snapshot::id::ClusterId;

/// Where a rule, or a weighted cluster of one, is counted: a number that is stable over reloads.
#[derive(Clone, Debug)]
pub struct RuleSlot {
    number: u32,
    /// While any table holds it, the number is no other's. None before a slot is assigned.
    _lease: Option<Arc<()>>,
}

impl RuleSlot {
    /// Its number, by which workers count.
    #[must_use]
    #[inline]
    pub const fn number(&self) -> u32 {
        self.number
    }
}

impl Default for RuleSlot {
    /// Not assigned: the last number, under which nothing is counted.
    fn default() -> Self {
        Self { number: u32::MAX, _lease: None }
    }
}

impl PartialEq for RuleSlot {
    /// It follows from the rule, and from the tables that there were before.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RuleSlot {}

/// The leases of the slots of a table and of those before it, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSlots(Vec<Weak<()>>);

impl PartialEq for RuleSlots {
    /// It follows from the rules, and from the tables that there were before.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RuleSlots {}

impl RuleSlots {
    /// Gives the rules of a table, and their weighted clusters, the slots that they have in the `former` one, of which these are
    /// the rules and slots, or others that nothing has.
    pub(crate) fn assign(rules: &mut [Rule], former: Option<(&[Rule], &Self)>) -> Self {
        let (known, slots) = match former {
            Some((known, slots)) => (known, slots.0.clone()),
            None => (&[][..], Vec::new()),
        };
        let mut assigning = Assigning { slots, next: 0 };
        // Most rules of most changes stand where they did: these need no text to be found by.
        let pairs = rules.iter().zip(known);
        let stay = pairs.take_while(|(rule, known)| rule.is_named_the_same(known)).count();
        let (unmoved, others) = rules.split_at_mut(stay);
        for (rule, known) in unmoved.iter_mut().zip(known) {
            assigning.assign(rule, Some(known));
        }
        let mut by_identity: Map<String, VecDeque<&Rule>> = Map::default();
        if !others.is_empty() {
            for known in known.iter().skip(stay) {
                by_identity.entry(known.identity()).or_default().push_back(known);
            }
        }
        for rule in others {
            let known = by_identity.get_mut(&rule.identity()).and_then(VecDeque::pop_front);
            assigning.assign(rule, known);
        }
        assigning.into_slots()
    }
}

/// Slots that are being assigned.
struct Assigning {
    slots: Vec<Weak<()>>,
    /// No slot before this one is free.
    next: usize,
}

impl Assigning {
    fn assign(&mut self, rule: &mut Rule, known: Option<&Rule>) {
        rule.slot = known.map_or_else(|| self.take(), |known| known.slot.clone());
        let Some(shares) = rule.shares_mut() else { return };
        let known = known.and_then(Rule::shares).map_or(&[][..], Shares::clusters);
        let mut by_cluster: Map<ClusterId, RuleSlot> =
            known.iter().map(|share| (share.cluster, share.slot.clone())).collect();
        for share in shares.clusters_mut() {
            let slot = by_cluster.entry(share.cluster).or_insert_with(|| self.take());
            share.slot = slot.clone();
        }
    }

    /// A slot that no table has which is left.
    fn take(&mut self) -> RuleSlot {
        let left = self.slots.iter().skip(self.next);
        self.next += left.take_while(|lease| lease.strong_count() > 0).count();
        // What was counted under the tables that are gone is seen from here on.
        fence(Ordering::Acquire);
        let lease = Arc::new(());
        match self.slots.get_mut(self.next) {
            Some(free) => *free = Arc::downgrade(&lease),
            None => self.slots.push(Arc::downgrade(&lease)),
        }
        // A table of 2^32 rules does not fit into memory before.
        let number = u32::try_from(self.next).unwrap_or(u32::MAX);
        self.next += 1;
        RuleSlot { number, _lease: Some(lease) }
    }

    fn into_slots(mut self) -> RuleSlots {
        let used = self.slots.iter().rposition(|lease| lease.strong_count() > 0);
        self.slots.truncate(used.map_or(0, |last| last + 1));
        self.slots.shrink_to_fit();
        RuleSlots(self.slots)
    }
}
