//! How long resources wait for what they name.

use super::*;

fn named(name: &str) -> ResourceName {
    ResourceName::new(ResourceKind::Secret, name)
}

fn waits_for(names: &[&str]) -> Vec<Waits> {
    let name = ResourceName::new(ResourceKind::Listener, "edge");
    let waits_for = names.iter().map(|name| named(name)).collect();
    vec![Waits { name, waits_for, missing: Vec::new() }]
}

/// Waits for `a` and `b` since long ago.
fn waiting() -> Deliveries {
    let (mut deliveries, ..) = Deliveries::start(Vec::new(), BTreeSet::new(), BTreeSet::new());
    deliveries.note_waits(waits_for(&["a", "b"]));
    deliveries.waits.values_mut().for_each(|wait| wait.since = 1);
    deliveries
}

fn only(deliveries: &Deliveries) -> &Wait {
    deliveries.waits.values().next().unwrap()
}

const TIMEOUT: Duration = Duration::from_nanos(1);

#[test]
fn what_is_left_of_a_wait_waits_no_longer() {
    let mut deliveries = waiting();
    deliveries.note_waits(waits_for(&["b"]));
    assert_eq!((only(&deliveries).since, &only(&deliveries).names[..]), (1, &[named("b")][..]));
    assert_eq!(deliveries.late(TIMEOUT).len(), 1);
    // Once is enough.
    assert_eq!(deliveries.late(TIMEOUT).len(), 0);
}

#[test]
fn a_wait_behind_one_that_is_over_is_another_one() {
    for names in [&["a", "b"][..], &["b"]] {
        let mut deliveries = waiting();
        assert_eq!(deliveries.late(TIMEOUT).len(), 1);
        deliveries.note_waits(waits_for(names));
        let wait = only(&deliveries);
        assert!(!wait.is_over && wait.since > 1, "{wait:?}");
        // It ends in its time, too.
        deliveries.waits.values_mut().for_each(|wait| wait.since = 1);
        assert_eq!(deliveries.late(TIMEOUT).len(), 1);
    }
}

#[test]
fn a_wait_for_more_begins_anew() {
    let mut deliveries = waiting();
    deliveries.note_waits(waits_for(&["b", "c"]));
    assert!(only(&deliveries).since > 1);
    deliveries.note_waits(waits_for(&[]));
    assert!(deliveries.waits.is_empty());
}
