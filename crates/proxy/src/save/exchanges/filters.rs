//! What the filters of a listener have of an exchange that goes on here, where the chain may be another.

use config::snapshot::Listener;

use super::SavedExchange;
use super::stages::SavedStage;
use crate::filter::Filter;
use crate::filter::filter_chain::BodyObservers;

/// What the filters of its listener have of a restored exchange.
pub(super) struct Filtered {
    pub(super) slots: Option<Box<[u8]>>,
    pub(super) observers: BodyObservers,
    /// The filter to go on with where one waited, and the chain is another now: the first that has not let the request pass.
    pub(super) again: Option<usize>,
}

/// The place of the first filter of a chain that is none of those that have decided, which are looked up by name.
fn first_undecided<'a>(
    mut chain: impl ExactSizeIterator<Item = &'a str>,
    decided: &[String],
) -> usize {
    let len = chain.len();
    let mut decided: Vec<&str> = decided.iter().map(String::as_str).collect();
    let is_undecided = |name: &str| match decided.iter().position(|it| *it == name) {
        Some(place) => {
            decided.swap_remove(place);
            false
        }
        None => true,
    };
    chain.position(is_undecided).unwrap_or(len)
}

impl Filtered {
    pub(super) fn new(saved: &mut SavedExchange, listener: &Listener<Box<dyn Filter>>) -> Self {
        let has_filters = saved.detached.is_none();
        let slot_bytes = listener.filters.iter().map(|f| f.slot_bytes()).sum::<usize>();
        let slot_bytes = if has_filters { slot_bytes } else { 0 };
        let names = listener.filter_sources.iter().map(|source| source.name());
        let is_same_chain = names.clone().eq(saved.filters.iter().map(String::as_str));
        let waits = match &saved.stage {
            SavedStage::Suspended { step, .. } => Some(step.place()),
            SavedStage::Gathering { filter, .. } => Some(*filter),
            _ => None,
        };
        let again = waits.filter(|_| !is_same_chain).map(|filter| {
            // One that waits for its cluster is behind all of them.
            let Some(decided) =
                saved.filters.get(..filter).filter(|it| it.len() < saved.filters.len())
            else {
                return names.len();
            };
            first_undecided(names.clone(), decided)
        });
        let observers = if !has_filters {
            BodyObservers::default()
        } else if is_same_chain {
            std::mem::take(&mut saved.observers)
        } else {
            BodyObservers::at_requests(&listener.filters)
        };
        // Slots of another chain would mean nothing to this one's filters.
        let slots = saved
            .slots
            .take()
            .filter(|slots| is_same_chain && slots.len() == slot_bytes)
            .or_else(|| (slot_bytes > 0).then(|| vec![0; slot_bytes]))
            .map(Vec::into_boxed_slice);
        Self { slots, observers, again }
    }
}
