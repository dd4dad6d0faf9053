//! Rules on one path that the exact value of one header field, parameter, cookie or the method tells apart.

use crate::map::Map;
use crate::resource::route::matching::{Asked, Criterion, Place, Searches};
use crate::resource::route::rule::Rule;

use super::Indexed;

/// From how many values on they are looked up. Below, comparing one after the other costs no more.
const VALUES_MIN: usize = 8;

/// Rules by the value that they ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    key: Key,
    /// The place of the first of all its rules.
    pub(super) first: u32,
    /// The rules of each value, in order.
    rules: Map<Box<[u8]>, Box<[Indexed]>>,
}

/// Where the value stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Method,
    Value(Place),
}

impl Lookup {
    /// Shows the rules for the request's value to `see`.
    pub(super) fn see(
        &self,
        asked: &Asked<'_>,
        searches: &mut Searches,
        see: impl FnOnce(&[Indexed], &mut Searches),
    ) {
        let found = match &self.key {
            Key::Method => self.rules.get(asked.head.method_bytes()),
            Key::Value(place) => {
                let mut text = searches.take_text();
                let value = place.find(asked.head, &mut text);
                let found = value.and_then(|value| self.rules.get(value));
                searches.give_back_text(text);
                found
            }
        };
        if let Some(found) = found {
            see(found, searches);
        }
    }
}

/// Takes as many as possible of `list`, the rules of one path, into look-ups; what stays in the list is in order, look-ups
/// among it by their first rules.
pub(super) fn gather(list: &mut Vec<Indexed>, rules: &[Rule], lookups: &mut Vec<Lookup>) {
    while let Some(key) = best_key(list, rules) {
        let mut by_value: Map<Box<[u8]>, Vec<Indexed>> = Map::default();
        let mut first = u32::MAX;
        list.retain(|entry| {
            let values = entry.rule(rules).map(|rule| values_of(rule, &key)).unwrap_or_default();
            for value in &values {
                by_value.entry((*value).into()).or_default().push(*entry);
                first = first.min(entry.place());
            }
            values.is_empty()
        });
        let rules = by_value.into_iter().map(|(value, rules)| (value, rules.into())).collect();
        let place = u32::try_from(lookups.len()).unwrap_or(u32::MAX);
        lookups.push(Lookup { key, first, rules });
        let lower_bound = |entry: &Indexed, lookups: &[Lookup]| entry.lower_bound(lookups);
        let at = list.partition_point(|entry| lower_bound(entry, lookups) < first);
        list.insert(at, Indexed::lookup(place));
    }
}

/// What tells the most rules of a list apart, if it is worth while.
fn best_key(list: &[Indexed], rules: &[Rule]) -> Option<Key> {
    let mut counts: Map<Key, Map<&[u8], ()>> = Map::default();
    if list.len() < VALUES_MIN {
        return None;
    }
    for rule in list.iter().filter_map(|entry| entry.rule(rules)) {
        for (key, values) in rule.also.iter().filter_map(exact_values) {
            let counts = counts.entry(key).or_default();
            counts.extend(values.into_iter().map(|value| (value, ())));
        }
    }
    let worth = counts.into_iter().filter(|(_, values)| values.len() >= VALUES_MIN);
    // In a fixed order, so that one file gives one index.
    let best = worth.max_by_key(|(key, values)| (values.len(), key.order()))?;
    Some(best.0)
}

/// The values of a rule for which a look-up by `key` finds it; none if it is met by others, too.
fn values_of<'r>(rule: &'r Rule, key: &Key) -> Vec<&'r [u8]> {
    let mut found = rule.also.iter().filter_map(exact_values).filter(|(found, _)| found == key);
    found.next().map(|(_, values)| values).unwrap_or_default()
}

fn exact_values(criterion: &Criterion) -> Option<(Key, Vec<&[u8]>)> {
    match criterion {
        Criterion::Methods { methods, is_inverted: false } => {
            Some((Key::Method, methods.iter().map(|method| method.as_bytes()).collect()))
        }
        Criterion::Value(place, value) => {
            value.exact().map(|value| (Key::Value(place.clone()), vec![value]))
        }
        _ => None,
    }
}

impl Key {
    fn order(&self) -> String {
        match self {
            Self::Method => String::new(),
            Self::Value(place) => place.to_string(),
        }
    }
}
