//! The endpoints of a cluster that may have idle connections.
//!
//! An endpoint enters the list when a connection is put into its pool, and leaves it only when a search
//! finds that pool empty: an exchange that takes a connection and puts it back pays for neither. A search
//! goes on behind where the one before it ended, so that endpoints take turns.

use std::collections::VecDeque;

use config::snapshot::EndpointId;

/// Endpoints that a search passes over although they have idle connections.
const UNFIT_MAX: usize = 16;

/// Each endpoint once, the one that was found last at the end.
#[derive(Debug, Default)]
pub(super) struct Candidates(VecDeque<EndpointId>);

/// What a search finds at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look<T> {
    /// This.
    Found(T),
    /// Connections, of which none will do.
    Unfit,
    /// No connection: the endpoint leaves the list.
    Empty,
}

impl Candidates {
    /// Adds an endpoint that is not in the list. `is_known` says which endpoints still exist: before the
    /// list grows, the others leave it.
    pub(super) fn insert(
        &mut self,
        endpoint: EndpointId,
        mut is_known: impl FnMut(EndpointId) -> bool,
    ) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|endpoint| is_known(*endpoint));
        }
        self.0.push_back(endpoint);
    }

    /// Looks at one endpoint after the other until there is something, all had their turn, or
    /// [`UNFIT_MAX`] of them were unfit. Those that are empty cost as much as adding them did.
    pub(super) fn find<T>(&mut self, mut look: impl FnMut(EndpointId) -> Look<T>) -> Option<T> {
        let mut unfit = 0;
        for _ in 0..self.0.len() {
            let endpoint = self.0.pop_front()?;
            let found = match look(endpoint) {
                Look::Empty => continue,
                Look::Unfit => None,
                Look::Found(found) => Some(found),
            };
            self.0.push_back(endpoint);
            unfit += 1;
            if found.is_some() || unfit == UNFIT_MAX {
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use config::snapshot::Id;

    use super::*;

    fn endpoint(slot: u32) -> EndpointId {
        EndpointId(Id { slot, generation: 0 })
    }

    fn candidates(slots: std::ops::Range<u32>) -> Candidates {
        let mut candidates = Candidates::default();
        slots.for_each(|slot| candidates.insert(endpoint(slot), |_| true));
        candidates
    }

    #[test]
    fn a_search_costs_no_more_the_more_endpoints_there_are() {
        let mut candidates = candidates(0..50_000);
        let mut looks = 0;
        let mut find = |candidates: &mut Candidates, of: &dyn Fn(u32) -> Look<u32>| {
            looks = 0;
            let found = candidates.find(|endpoint| {
                looks += 1;
                of(endpoint.0.slot)
            });
            (found, looks)
        };
        assert_eq!(find(&mut candidates, &Look::Found), (Some(0), 1));
        assert_eq!(find(&mut candidates, &Look::Found), (Some(1), 1), "they take turns");
        assert_eq!(find(&mut candidates, &|_| Look::Unfit), (None, UNFIT_MAX));
        // All pools became empty but two: that is found out once.
        let two = |slot| if matches!(slot, 40_000 | 7) { Look::Found(slot) } else { Look::Empty };
        assert_eq!(find(&mut candidates, &two), (Some(40_000), 40_000 - 2 - 16 + 1));
        assert_eq!(find(&mut candidates, &two), (Some(7), 50_000 - 40_000 - 1 + 2 + 6));
        assert_eq!(find(&mut candidates, &two), (Some(40_000), 11));
        assert_eq!(find(&mut candidates, &two), (Some(7), 1));
        assert_eq!(candidates.0.len(), 2);
    }

    #[test]
    fn endpoints_that_are_gone_do_not_make_the_list_grow() {
        let mut candidates = candidates(0..4);
        for slot in 4..100_000 {
            candidates.insert(endpoint(slot), |other| other.0.slot + 4 > slot);
        }
        assert!(candidates.0.capacity() <= 16, "{}", candidates.0.capacity());
    }
}
