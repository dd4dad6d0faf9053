//! Changes that say nothing by themselves which could be wrong: DNS answers, and endpoints that operators drain. They are
//! noted, and linked with the next snapshot, whatever that is made for: several changes that come at a time make one
//! snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Loader, Prepared};
use crate::resource::assignment::answers;
use crate::resource::assignment::dns::{DnsAnswer, DnsName};
use crate::resource::cluster::drained::DrainChange;
use crate::snapshot::ClusterId;
use crate::store::EndpointChanges;

/// What was noted since a snapshot was kept.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Clusters whose names have other answers.
    answered: BTreeSet<ClusterId>,
    /// Clusters of which operators drain others.
    drained: BTreeSet<Arc<str>>,
}

impl<F> Loader<F> {
    /// Takes these answers for what their names stand for from now on; none for a name that is asked for no more. They count with
    /// the snapshot that is made next.
    pub fn note_answers(&mut self, answers: Vec<(Arc<DnsName>, Option<DnsAnswer>)>) {
        for (name, answer) in answers {
            match answer {
                Some(answer) => {
                    self.noted.answered.extend(self.name_users.get(&name).into_iter().flatten());
                    self.answers.insert(name, answer);
                }
                None => drop(self.answers.remove(&name)),
            }
        }
    }

    /// Takes note of endpoints that operators drained or took back: an endpoint that is not there is drained once it is. It counts
    /// with the snapshot that is made next.
    pub fn note_drained(&mut self, changes: &[DrainChange]) {
        for change in changes {
            if self.store.drained.apply(change) {
                self.noted.drained.insert(Arc::clone(&change.cluster));
            }
        }
    }

    /// Whether anything was noted that no snapshot has which was kept.
    #[must_use]
    pub fn has_noted(&self) -> bool {
        !self.noted.answered.is_empty() || !self.noted.drained.is_empty()
    }

    /// Whether that are answers alone.
    #[must_use]
    pub fn has_noted_answers_alone(&self) -> bool {
        !self.noted.answered.is_empty() && self.noted.drained.is_empty()
    }

    /// The next snapshot, with what was noted, if any cluster has other endpoints now. Costs as much as the clusters that this
    /// is about.
    pub fn prepare_noted(&mut self) -> Option<Prepared<F>> {
        let linked = self.store.link_assignments(&self.noted_changes());
        if linked.is_none() {
            self.noted = Noted::default();
        }
        linked.map(Prepared::of)
    }

    /// [`Self::note_answers`] and [`Self::prepare_noted`].
    pub fn prepare_answers(
        &mut self,
        answers: Vec<(Arc<DnsName>, Option<DnsAnswer>)>,
    ) -> Option<Prepared<F>> {
        self.note_answers(answers);
        self.prepare_noted()
    }

    /// [`Self::note_drained`] and [`Self::prepare_noted`].
    pub fn prepare_drained(&mut self, changes: &[DrainChange]) -> Option<Prepared<F>> {
        self.note_drained(changes);
        self.prepare_noted()
    }

    /// The endpoints of the clusters whose names have other answers, and the clusters of which operators drain others.
    pub(super) fn noted_changes(&self) -> EndpointChanges {
        let latest = self.store.latest();
        let assigned = self.noted.answered.iter().filter_map(|id| {
            let from = &latest?.cluster(*id)?.endpoints_from;
            Some((*id, Arc::new(answers::assignment(from, &self.answers))))
        });
        let (assigned, drained) =
            (assigned.collect(), self.noted.drained.iter().cloned().collect());
        EndpointChanges { assigned, drained }
    }
}
