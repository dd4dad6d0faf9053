//! Which endpoint a hash belongs to: tables for `maglev` and `ring_hash`.
//!
//! A table is a function of addresses and weights alone, whatever their order: each process has the same. It is
//! built with the snapshot, once, and all workers read it. What is in it is Envoy's: the same keys, hashes and points,
//! so that a client which Envoy sent to an endpoint goes on there.

use crate::resource::cluster::balance::{HashKind, MaglevTable, RingSize};
use crate::xxhash::xxh64;

/// Endpoints by the hashes that belong to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashTable {
    /// The place of the endpoint that has each residue (Maglev, section 3.4 of the paper by Eisenbud and others, 2016).
    Maglev(Box<[u32]>),
    /// The points of all endpoints in order, each with the place of its endpoint. A hash belongs to the first point
    /// that is not below it.
    Ring(Box<[(u64, u32)]>),
}

/// An endpoint as a table is built of it.
#[derive(Clone, Debug)]
struct Entry {
    /// Its address as text, which is what is hashed.
    key: String,
    place: u32,
    /// At least 1.
    weight: u64,
}

impl HashTable {
    /// The table of these endpoints: each an address and a weight. Those with a weight of 0 have no part in it.
    pub(crate) fn new(kind: HashKind, endpoints: impl Iterator<Item = (String, u16)>) -> Self {
        let entries = endpoints.zip(0..).filter(|((_, weight), _)| *weight > 0);
        let mut entries: Vec<Entry> = entries
            .map(|((key, weight), place)| Entry { key, place, weight: weight.into() })
            .collect();
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        match kind {
            HashKind::Maglev(size) => Self::Maglev(maglev(&entries, size)),
            HashKind::Ring(size) => Self::Ring(ring(&entries, size)),
        }
    }

    /// The place of the endpoint that a hash belongs to; the `turn`-th other one that it may go to instead, where that
    /// is not 0, which may be the same. None if no endpoint has a weight.
    #[must_use]
    pub fn place(&self, hash: u64, turn: u32) -> Option<usize> {
        match self {
            Self::Maglev(places) => {
                // Most bits change with each turn.
                let hash = hash ^ 0_u64.wrapping_sub(turn.into());
                let place = hash.checked_rem(places.len() as u64)?;
                places.get(usize::try_from(place).ok()?).map(|place| *place as usize)
            }
            Self::Ring(points) => {
                let first = points.partition_point(|(point, _)| *point < hash);
                let place = (first + turn as usize).checked_rem(points.len())?;
                points.get(place).map(|(_, place)| *place as usize)
            }
        }
    }
}

/// Each endpoint has the residues in an order of its own, and takes the first of them that is free when its turn comes:
/// the one with the largest weight in each round, others as much less often as their weights are smaller.
fn maglev(entries: &[Entry], size: MaglevTable) -> Box<[u32]> {
    const FREE: u32 = u32::MAX;
    let size = size.get();
    let Some(heaviest) = entries.iter().map(|entry| entry.weight).max() else {
        return Box::default();
    };
    let mut places = vec![FREE; size as usize];
    let start = |entry: &Entry| {
        let (first, second) = (xxh64(entry.key.as_bytes(), 0), xxh64(entry.key.as_bytes(), 1));
        Walk { at: below(first, size), step: below(second, size - 1) + 1, owed: 0 }
    };
    let mut walks: Vec<Walk> = entries.iter().map(start).collect();
    let mut left = size;
    for round in 1_u64.. {
        for (entry, walk) in entries.iter().zip(&mut walks) {
            if round * entry.weight < walk.owed {
                continue;
            }
            walk.owed += heaviest;
            // A prime number of residues: each walk comes to all of them.
            while places.get(walk.at as usize).is_some_and(|place| *place != FREE) {
                walk.at = (walk.at + walk.step) % size;
            }
            if let Some(place) = places.get_mut(walk.at as usize) {
                *place = entry.place;
            }
            left -= 1;
            if left == 0 {
                return places.into();
            }
        }
    }
    places.into()
}

/// A hash as a number below `end`.
fn below(hash: u64, end: u32) -> u32 {
    u32::try_from(hash % u64::from(end)).unwrap_or_default()
}

/// Where an endpoint stands in its order of residues.
struct Walk {
    at: u32,
    step: u32,
    /// Its turn comes when its weight, in each round once more, has reached this.
    owed: u64,
}

/// So many points that the lightest endpoint has its share of the least size, and all together no more than the
/// largest. How many an endpoint has depends on the others by that share alone.
fn ring(entries: &[Entry], size: RingSize) -> Box<[(u64, u32)]> {
    let Some(lightest) = entries.iter().map(|entry| entry.weight).min() else {
        return Box::default();
    };
    let sum: u64 = entries.iter().map(|entry| entry.weight).sum();
    let share = (lightest * u64::from(size.min())).div_ceil(sum);
    let (of, points) = if share * sum > u64::from(size.max()) * lightest {
        (sum, u64::from(size.max()))
    } else {
        (lightest, share)
    };
    let mut ring = Vec::new();
    let mut key = String::new();
    for entry in entries {
        for number in 0..(points * entry.weight).div_ceil(of) {
            key.clear();
            key.extend([&*entry.key, "_", &number.to_string()]);
            ring.push((xxh64(key.as_bytes(), 0), entry.place));
        }
    }
    // Two endpoints with one point are in the order of their addresses.
    ring.sort_by_key(|(point, _)| *point);
    ring.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGLEV: HashKind = HashKind::Maglev(MaglevTable::DEFAULT);
    const RING: HashKind = HashKind::Ring(RingSize::DEFAULT);

    fn table(kind: HashKind, endpoints: &[(u16, u16)]) -> HashTable {
        let endpoint = |(port, weight): &(u16, u16)| (format!("10.0.0.1:{port}"), *weight);
        HashTable::new(kind, endpoints.iter().map(endpoint))
    }

    fn even(ports: impl Iterator<Item = u16>) -> Vec<(u16, u16)> {
        ports.map(|port| (port, 1)).collect()
    }

    fn hash_of(user: u32) -> u64 {
        xxh64(format!("user-{user}").as_bytes(), 0)
    }

    /// How many of so many keys each endpoint gets.
    fn counts(table: &HashTable, endpoints: usize, keys: u32) -> Vec<u64> {
        let mut counts = vec![0; endpoints];
        (0..keys).for_each(|user| counts[table.place(hash_of(user), 0).unwrap()] += 1);
        counts
    }

    /// How far counts are from what is expected, by Pearson; `expected` in parts of 1.
    fn chi_squared(counts: &[u64], expected: &[f64]) -> f64 {
        let all: u64 = counts.iter().sum();
        let term = |(count, part): (&u64, &f64)| {
            let expected = part * all as f64;
            (*count as f64 - expected).powi(2) / expected
        };
        counts.iter().zip(expected).map(term).sum()
    }

    #[test]
    fn each_endpoint_has_its_part_of_the_table_exactly() {
        for weights in [&[1; 10][..], &[1, 2, 3], &[100, 1], &[7, 7, 7, 1], &[0, 5, 5]] {
            let endpoints: Vec<_> = (9000..).zip(weights.iter().copied()).collect();
            let HashTable::Maglev(places) = table(MAGLEV, &endpoints) else { panic!("maglev") };
            let sum: u32 = weights.iter().copied().map(u32::from).sum();
            for (place, weight) in (0..).zip(weights) {
                let has = places.iter().filter(|other| **other == place).count() as f64;
                let share = 65_537.0 * f64::from(*weight) / f64::from(sum);
                assert!((has - share).abs() <= 2.0, "{weights:?}: {place} has {has} of {share}");
            }
        }
    }

    #[test]
    fn each_endpoint_has_as_many_points_of_the_ring_as_its_weight_says() {
        for (weights, points) in [
            (&[1, 1, 1][..], &[342, 342, 342][..]),
            (&[1, 2, 3], &[171, 342, 513]),
            (&[0, 4], &[0, 1_024]),
            (&[1; 100], &[11; 100]),
        ] {
            let endpoints: Vec<_> = (9000..).zip(weights.iter().copied()).collect();
            let HashTable::Ring(ring) = table(RING, &endpoints) else { panic!("a ring") };
            assert!(ring.is_sorted());
            for (place, points) in (0..).zip(points) {
                let has = ring.iter().filter(|(_, other)| *other == place).count();
                assert_eq!(has, *points, "{weights:?}: {place}");
            }
        }
        // No more than the largest, however different the weights are; and each has one.
        let HashTable::Ring(ring) = table(RING, &[(1, 1), (2, u16::MAX), (3, u16::MAX)]) else {
            panic!("a ring")
        };
        assert!(ring.len() <= RingSize::DEFAULT.max() as usize + 3, "{}", ring.len());
        assert!(ring.iter().any(|(_, place)| *place == 0));
    }

    #[test]
    fn keys_are_shared_as_the_table_is() {
        // Chi-squared of 9 degrees of freedom is below 46.86 but for one in a million.
        let ten = even(9000..9010);
        let found = chi_squared(&counts(&table(MAGLEV, &ten), 10, 1_000_000), &[0.1; 10]);
        assert!(found < 46.86, "{found}");
        // The parts of a ring are as long as chance made them: keys are held to these.
        let ring = table(RING, &ten);
        let HashTable::Ring(points) = &ring else { panic!("a ring") };
        let mut parts = [0.0; 10];
        let mut before = points[points.len() - 1].0;
        for (point, place) in points {
            parts[*place as usize] += point.wrapping_sub(before) as f64 / 2_f64.powi(64);
            before = *point;
        }
        let found = chi_squared(&counts(&ring, 10, 1_000_000), &parts);
        assert!(found < 46.86, "{found}");
        assert!(parts.iter().all(|part| (0.05..0.2).contains(part)), "{parts:?}");
        // And by weights: 2 degrees of freedom, 27.63.
        let counts = counts(&table(MAGLEV, &[(1, 1), (2, 2), (3, 5)]), 3, 1_000_000);
        let found = chi_squared(&counts, &[1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0]);
        assert!(found < 27.63, "{found}: {counts:?}");
    }

    /// Keys that go elsewhere, of those that went to none of the endpoints that are gone, in parts of 1.
    fn moved(kind: HashKind, before: &[(u16, u16)], after: &[(u16, u16)]) -> f64 {
        let (old, new) = (table(kind, before), table(kind, after));
        let (mut kept, mut moved) = (0, 0);
        for user in 0..200_000 {
            let port = before[old.place(hash_of(user), 0).unwrap()].0;
            if after.iter().any(|(other, _)| *other == port) {
                kept += 1;
                moved += u32::from(after[new.place(hash_of(user), 0).unwrap()].0 != port);
            }
        }
        f64::from(moved) / f64::from(kept)
    }

    #[test]
    fn when_an_endpoint_goes_hardly_a_key_of_others_moves() {
        let (all, less) = (even(9000..9100), even((9000..9100).filter(|port| *port != 9042)));
        let maglev = moved(MAGLEV, &all, &less);
        assert!(maglev > 0.0 && maglev <= 0.02, "{maglev}");
        assert_eq!(moved(RING, &all, &less), 0.0);
        // One that comes takes keys of all, and moves none between others on a ring.
        let back = moved(MAGLEV, &less, &all);
        assert!(back <= 0.03, "{back}");
    }

    #[test]
    fn a_table_does_not_depend_on_the_order_of_endpoints() {
        let ports: Vec<u16> = (9000..9020).collect();
        let turned: Vec<u16> = ports.iter().rev().copied().collect();
        for kind in [MAGLEV, RING] {
            let one = table(kind, &even(ports.iter().copied()));
            let other = table(kind, &even(turned.iter().copied()));
            for user in 0..10_000 {
                let hash = hash_of(user);
                let places = (one.place(hash, 0).unwrap(), other.place(hash, 0).unwrap());
                assert_eq!(ports[places.0], turned[places.1]);
            }
        }
    }

    #[test]
    fn others_are_found_turn_by_turn() {
        for kind in [MAGLEV, RING] {
            let table = table(kind, &even(9000..9004));
            for user in 0..1_000 {
                let hash = hash_of(user);
                let first = table.place(hash, 0).unwrap();
                // Sixteen turns that all lead to one of four: never, with this many keys, but by a mistake.
                assert!((1..=16).any(|turn| table.place(hash, turn).unwrap() != first));
            }
        }
    }

    #[test]
    fn without_endpoints_nothing_is_found() {
        for kind in [MAGLEV, RING] {
            assert_eq!(table(kind, &[]).place(7, 0), None);
            assert_eq!(table(kind, &[(1, 0)]).place(7, 3), None);
        }
    }
}
