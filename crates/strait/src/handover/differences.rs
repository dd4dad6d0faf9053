//! Where another process is configured otherwise, and so what cannot move there.

use std::collections::{BTreeMap, BTreeSet};

use ::handover::{Difference, Part, PartKind};
use proxy::save::Differing;

/// What another process, whose connections come here, is configured to do otherwise.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// What that one has and this one has not, or has otherwise.
    differences: Vec<Difference>,
    /// Chains of this process that are new, or match other connections, of listeners that the other one has as well.
    chains_new: BTreeSet<String>,
}

impl Comparison {
    pub(super) fn new(own: &[Part], theirs: &[Part]) -> Self {
        let named = |parts| -> BTreeMap<_, _> {
            let named = |it: &'_ Part| ((it.kind, it.name.clone()), it.fingerprint);
            <[Part]>::iter(parts).map(named).collect()
        };
        let (here, there) = (named(own), named(theirs));
        let difference = |part: &Part| {
            let found = here.get(&(part.kind, part.name.clone()));
            (found != Some(&part.fingerprint)).then(|| Difference {
                kind: part.kind,
                name: part.name.clone(),
                is_missing: found.is_none(),
            })
        };
        let is_new = |((kind, name), fingerprint): &(&(PartKind, String), &u64)| {
            // Either of the two names may have a slash itself.
            let mut cuts = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
            *kind == PartKind::Chain
                && there.get(&(*kind, name.clone())) != Some(*fingerprint)
                && cuts.any(|it| there.contains_key(&(PartKind::Listener, it.to_owned())))
        };
        let chains_new = here.iter().filter(is_new).map(|((_, name), _)| name.clone());
        Self {
            differences: theirs.iter().filter_map(difference).collect(),
            chains_new: chains_new.collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.differences.is_empty() && self.chains_new.is_empty()
    }

    /// For workers, which refuse what it concerns.
    pub(super) fn differing(&self) -> Differing {
        let chains_new = self.chains_new.clone();
        let mut differing = Differing { chains_new, ..Differing::default() };
        for difference in &self.differences {
            let names = match difference.kind {
                PartKind::Listener => &mut differing.listeners,
                PartKind::Chain => &mut differing.chains,
                PartKind::Cluster => &mut differing.clusters,
            };
            names.insert(difference.name.clone());
        }
        differing
    }

    /// Warns of it, and says what becomes of connections that it concerns.
    pub(super) fn report(&self, outcome: &str) {
        for Difference { kind, name, is_missing } in self.all() {
            let what = match is_missing {
                true => "is not configured here",
                false if self.chains_new.contains(&name) => "is new or configured differently",
                false => "is configured differently",
            };
            let kind = kind.as_str();
            tracing::warn!("handover: {kind} {name} {what}: {outcome}");
        }
    }

    /// For the other process: new chains are among them.
    pub(super) fn all(&self) -> Vec<Difference> {
        let mut all = self.differences.clone();
        let is_known = |name: &&String| {
            self.differences.iter().any(|it| it.kind == PartKind::Chain && it.name == **name)
        };
        let new = self.chains_new.iter().filter(|name| !is_known(name));
        all.extend(new.map(|name| Difference {
            kind: PartKind::Chain,
            name: name.clone(),
            is_missing: false,
        }));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_other_differs_and_of_what_is_new_chains_alone() {
        let part =
            |kind, name: &str, fingerprint| Part { kind, name: name.to_owned(), fingerprint };
        let cluster = |name, fingerprint| part(PartKind::Cluster, name, fingerprint);
        let listener = |name, fingerprint| part(PartKind::Listener, name, fingerprint);
        let chain = |name, fingerprint| part(PartKind::Chain, name, fingerprint);
        let own = [
            cluster("same", 1),
            cluster("other", 2),
            cluster("new", 3),
            listener("edge", 1),
            listener("rim", 1),
            listener("a/b", 1),
            chain("a/b/c", 1),
            chain("edge/same", 1),
            chain("edge/other", 2),
            chain("edge/new", 3),
            chain("rim/new", 3),
        ];
        let theirs = [
            cluster("same", 1),
            cluster("other", 9),
            cluster("gone", 4),
            listener("edge", 1),
            listener("a/b", 1),
            chain("edge/same", 1),
            chain("edge/other", 9),
        ];
        let found = Comparison::new(&own, &theirs);
        let all = found.all();
        let all: Vec<_> = all.iter().map(|it| (&*it.name, it.is_missing)).collect();
        let expected = [
            ("other", false),
            ("gone", true),
            ("edge/other", false),
            ("a/b/c", false),
            ("edge/new", false),
        ];
        assert_eq!(all, expected);
        let new: Vec<_> = found.differing().chains_new.into_iter().collect();
        assert_eq!(new, ["a/b/c", "edge/new", "edge/other"]);
        assert!(Comparison::new(&own, &own).is_empty());
    }
}
