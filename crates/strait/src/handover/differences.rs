//! Where another process is configured otherwise, and so what cannot move there.

use std::collections::BTreeMap;

use ::handover::{Difference, Part, PartKind};
use proxy::save::Differing;

/// What of `theirs` is missing here, or configured otherwise.
pub(super) fn differences(own: &[Part], theirs: &[Part]) -> Vec<Difference> {
    let named = own.iter().map(|it| ((it.kind, &*it.name), it.fingerprint));
    let named: BTreeMap<_, _> = named.collect();
    let difference = |part: &Part| {
        let found = named.get(&(part.kind, &*part.name));
        let is_same = found.is_some_and(|fingerprint| *fingerprint == part.fingerprint);
        (!is_same).then(|| Difference {
            kind: part.kind,
            name: part.name.clone(),
            is_missing: found.is_none(),
        })
    };
    theirs.iter().filter_map(difference).collect()
}

/// The same for workers, which refuse what it concerns.
pub(super) fn differing(differences: &[Difference]) -> Differing {
    let mut differing = Differing::default();
    for difference in differences {
        let names = match difference.kind {
            PartKind::Listener => &mut differing.listeners,
            PartKind::Chain => &mut differing.chains,
            PartKind::Cluster => &mut differing.clusters,
        };
        names.insert(difference.name.clone());
    }
    differing
}

/// Warns of differences, and says what becomes of connections that they concern.
pub(super) fn report(differences: &[Difference], outcome: &str) {
    for Difference { kind, name, is_missing } in differences {
        let what = if *is_missing { "is not configured here" } else { "is configured differently" };
        let kind = kind.as_str();
        tracing::warn!("handover: {kind} {name} {what}: {outcome}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_other_differs_and_what_is_new_does_not() {
        let part = |name: &str, fingerprint| Part {
            kind: PartKind::Cluster,
            name: name.to_owned(),
            fingerprint,
        };
        let own = [part("same", 1), part("other", 2), part("new", 3)];
        let theirs = [part("same", 1), part("other", 9), part("gone", 4)];
        let found = differences(&own, &theirs);
        let found: Vec<_> = found.iter().map(|it| (&*it.name, it.is_missing)).collect();
        assert_eq!(found, [("other", false), ("gone", true)]);
    }
}
