//! Which endpoint of a cluster a request goes to.
//!
//! A draw is a number that the [`Schedule`](config::schedule::Schedule) of a group makes an endpoint of: by
//! running numbers endpoints take turns, by random ones each has a chance by its weight. What is drawn is
//! looked at here, and drawn again where it will not do.

use config::snapshot::{Cluster, Endpoint, EndpointId};
use config::view::{Eligible, Group};

/// Draws that are let pass for the sake of another endpoint. In a cluster of two of equal weights the
/// second is another one; where one endpoint has nearly all of the weight, its neighbour stands in.
const PASSES_MAX: u32 = 16;

/// Endpoints that are looked at for one to stand in for another that is drawn twice.
const NEIGHBOURS_MAX: usize = 16;

/// A group of a cluster's endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Among<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) group: &'c Group,
    /// Which of them; others are passed over.
    pub(crate) eligible: Eligible,
}

impl<'c> Among<'c> {
    /// The endpoint at this place of the group, and its place in the cluster.
    fn at(self, inner: usize) -> Option<(usize, &'c Endpoint)> {
        let place = self.group.place(inner)?;
        self.cluster.endpoints.get(place).map(|endpoint| (place, endpoint))
    }

    /// Whether an endpoint of the group may get requests.
    #[inline]
    pub(crate) fn may_be(self, endpoint: &Endpoint) -> bool {
        match self.eligible {
            Eligible::All => true,
            Eligible::Only(status) => endpoint.status() == status,
        }
    }

    /// The other endpoints around from the one behind `place`, a place in the cluster, and that one at last.
    pub(crate) fn behind(self, place: usize) -> impl Iterator<Item = (usize, &'c Endpoint)> {
        let (count, inner) = (self.group.len(), self.group.inner(place).unwrap_or_default());
        (1..=count).filter_map(move |ahead| self.at((inner + ahead) % count))
    }
}

/// The endpoint that is drawn and its place in the cluster, or none if the cluster has none. It is
/// another one than `avoid`, if there is any other.
#[inline]
pub(crate) fn pick(
    among: Among<'_>,
    avoid: Option<EndpointId>,
    mut draw: impl FnMut() -> u64,
) -> Option<(usize, &Endpoint)> {
    let mut avoided = 0;
    for _ in 0..PASSES_MAX {
        let (place, endpoint) = among.at(among.group.schedule().place(draw())?)?;
        if Some(endpoint.id) != avoid && among.may_be(endpoint) {
            return Some((place, endpoint));
        }
        avoided = place;
    }
    stand_in(among, avoided, avoid, draw())
}

/// An endpoint for a draw that met none: of a group some of which are ejected, by the weights of those that are left, so
/// that what a heavy one leaves is not all its neighbour's; else the next one behind a place. The one to avoid if there is
/// no other.
fn stand_in(
    among: Among<'_>,
    place: usize,
    avoid: Option<EndpointId>,
    die: u64,
) -> Option<(usize, &Endpoint)> {
    let fit = || among.behind(place).filter(|(_, it)| it.weight > 0 && among.may_be(it));
    let others = || fit().filter(|(_, it)| Some(it.id) != avoid);
    if among.eligible == Eligible::All {
        return others().next().or_else(|| fit().next());
    }
    let all: u64 = others().map(|(_, it)| u64::from(it.weight)).sum();
    let mut left = die.checked_rem(all).unwrap_or_default();
    let found = others().find(|(_, it)| {
        let weight = u64::from(it.weight);
        let is_it = left < weight;
        left = left.saturating_sub(weight);
        is_it
    });
    found.or_else(|| fit().next())
}

/// Of `choices` endpoints that `draw` finds, the one that is less than all others. What is drawn twice is no choice: the
/// neighbour stands in then, so that of two endpoints both are compared.
pub(crate) fn pick_least<'c>(
    among: Among<'c>,
    avoid: Option<EndpointId>,
    choices: u8,
    mut draw: impl FnMut() -> Option<(usize, &'c Endpoint)>,
    is_less: impl Fn(&Endpoint, &Endpoint) -> bool,
) -> Option<(usize, &'c Endpoint)> {
    let mut best = draw()?;
    for _ in 1..choices {
        let drawn = draw()?;
        let other = if drawn.0 == best.0 { neighbour(among, drawn.0, avoid) } else { Some(drawn) };
        if let Some(other) = other
            && is_less(other.1, best.1)
        {
            best = other;
        }
    }
    Some(best)
}

/// Whether one endpoint has room for this request where another, which was drawn before it, has too much: with it, one has no more requests
/// for its weight than the other has without it. So one that has none under way keeps what it is drawn for, and each gets its share by its
/// weight also where there is little to do.
pub(crate) fn has_fewer(
    (one, requests): (&Endpoint, u32),
    (other, of_other): (&Endpoint, u32),
) -> bool {
    // As products, so that nothing is rounded.
    let load = (u64::from(requests) + 1) * u64::from(other.weight);
    let load_of_other = u64::from(of_other) * u64::from(one.weight);
    load <= load_of_other
}

/// How long a request may have to wait at an endpoint, and how many are under way there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) nanos: f64,
    pub(crate) requests: u32,
}

impl Expected {
    /// Whether a request waits less at one endpoint than at another, which was drawn before it, for their weights. These have decided which
    /// is drawn: where the other has nothing to do, they count no more.
    pub(crate) fn is_shorter(
        (one, here): (&Endpoint, Self),
        (other, there): (&Endpoint, Self),
    ) -> bool {
        if there.requests == 0 {
            return here.nanos < there.nanos;
        }
        here.nanos / f64::from(one.weight.max(1)) < there.nanos / f64::from(other.weight.max(1))
    }
}

/// The endpoint that a hash leads to, or the next that it leads to where that one does not fit. If none of them does,
/// the first of them. Each attempt with the same hash finds the same, as long as the same endpoints fit.
pub(crate) fn pick_by_hash(
    among: Among<'_>,
    avoid: Option<EndpointId>,
    hash: u64,
    mut fits: impl FnMut(&Endpoint) -> bool,
) -> Option<(usize, &Endpoint)> {
    let table = among.group.hash_table()?;
    let (mut unfit, mut avoided) = (None, 0);
    for turn in 0..PASSES_MAX {
        let found = among.at(table.place(hash, turn)?)?;
        if Some(found.1.id) == avoid || !among.may_be(found.1) {
            avoided = found.0;
        } else if fits(found.1) {
            return Some(found);
        } else {
            unfit = unfit.or(Some(found));
        }
    }
    unfit.or_else(|| stand_in(among, avoided, avoid, hash))
}

/// Whether an endpoint that has so many of the requests under way may have another: with that it has no more than this
/// percentage of what its weight is of all.
pub(crate) fn has_room(
    among: Among<'_>,
    endpoint: &Endpoint,
    (requests, of_all): (u32, u32),
    percent: u16,
) -> bool {
    // As products, so that nothing is rounded but what may be taken, which is rounded up.
    let share = u128::from(of_all + 1) * u128::from(percent) * u128::from(endpoint.weight);
    let all = 100 * u128::from(among.group.weight_sum());
    u128::from(requests) * all < share
}

/// An endpoint near the one at `place` to compare it with.
fn neighbour(
    among: Among<'_>,
    place: usize,
    avoid: Option<EndpointId>,
) -> Option<(usize, &Endpoint)> {
    let mut near = among.behind(place).take(NEIGHBOURS_MAX.min(among.group.len() - 1));
    near.find(|(_, it)| it.weight > 0 && Some(it.id) != avoid && among.may_be(it))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::Duration;

    use config::health::HealthStatus;
    use config::outlier::{Detector, OutlierKind};
    use config::outside::Memory;
    use config::{FilterKinds, Loader};

    use super::*;
    use crate::tools::random::Random;

    const DRAWS: u32 = 60_000;

    /// Of endpoints that are drawn, the one with the fewest requests.
    fn least(
        among: Among<'_>,
        avoid: Option<EndpointId>,
        choices: u8,
        mut draw: impl FnMut() -> u64,
        requests: impl Fn(EndpointId) -> u32,
    ) -> Option<(usize, &Endpoint)> {
        let draw = || pick(among, avoid, &mut draw);
        pick_least(among, avoid, choices, draw, |one, other| {
            has_fewer((one, requests(one.id)), (other, requests(other.id)))
        })
    }

    fn among(cluster: &Cluster) -> Among<'_> {
        Among { cluster, group: &cluster.view.levels(None)[0], eligible: Eligible::All }
    }

    fn cluster(weights: &[u16]) -> Arc<Cluster> {
        let endpoint = |(place, weight): (usize, &u16)| {
            format!("{{ address: '127.0.0.1:{}', weight: {weight} }}", 9000 + place)
        };
        let endpoints: Vec<_> = weights.iter().enumerate().map(endpoint).collect();
        let text = format!(
            "listeners: [{{ name: a, address: 127.0.0.1:80, protocol: tcp, cluster: a }}]\n\
             clusters: [{{ name: a, endpoints: [{}] }}]\n",
            endpoints.join(", ")
        );
        let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let snapshot = loader.load_with("test", &text, &Memory::new(0)).unwrap();
        let (_, cluster) = snapshot.clusters.iter().next().unwrap();
        Arc::clone(cluster)
    }

    fn shares(count: usize, mut choose: impl FnMut(&[u32]) -> usize) -> Vec<u32> {
        let mut chosen = vec![0; count];
        for _ in 0..DRAWS {
            let place = choose(&chosen);
            chosen[place] += 1;
        }
        chosen
    }

    #[test]
    fn random_draws_go_by_the_weights() {
        for (weights, chi_squared_max) in [
            // For p = 10^-6 at one degree of freedom less than there are endpoints.
            (&[1, 1][..], 23.9),
            (&[3, 1, 2], 27.6),
            (&[1; 10], 44.8),
            (&[500, 1, 499, 1000], 30.7),
        ] {
            let cluster = cluster(weights);
            for seed in 0..20 {
                let mut random = Random::new(seed);
                let chosen = shares(weights.len(), |_| {
                    pick(among(&cluster), None, || random.next()).unwrap().0
                });
                let total: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
                let of = |(chosen, weight): (&u32, &u16)| {
                    let expected = f64::from(DRAWS) * f64::from(*weight) / f64::from(total);
                    (f64::from(*chosen) - expected).powi(2) / expected
                };
                let chi_squared: f64 = chosen.iter().zip(weights).map(of).sum();
                assert!(chi_squared <= chi_squared_max, "{weights:?}, {seed}: {chosen:?}");
            }
        }
    }

    #[test]
    fn requests_that_stay_are_shared_by_the_weights() {
        for weights in [&[1, 1][..], &[3, 1, 2], &[1; 10], &[500, 1, 499, 1000]] {
            let cluster = cluster(weights);
            let mut random = Random::new(7);
            let under_way = shares(weights.len(), |chosen| {
                let requests = |id: EndpointId| chosen[cluster.place_of(id).unwrap()];
                least(among(&cluster), None, 2, || random.next(), requests).unwrap().0
            });
            let total: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
            for (chosen, weight) in under_way.iter().zip(weights) {
                let expected = DRAWS / total * u32::from(*weight);
                assert!(
                    chosen.abs_diff(expected) <= 2 + expected / 100,
                    "{weights:?}: {under_way:?}"
                );
            }
        }
    }

    #[test]
    fn requests_that_come_and_go_are_shared_by_the_weights() {
        for (weights, at_once) in [
            (&[3, 1, 6][..], 1),
            (&[500, 1, 499, 1000], 1),
            (&[100, 1], 1),
            (&[100, 1], 2),
            (&[100, 1], 8),
            (&[3, 1, 6], 100),
        ] {
            let cluster = cluster(weights);
            let mut random = Random::new(13);
            let (mut under_way, mut requests) = (Vec::new(), vec![0; weights.len()]);
            let chosen = shares(weights.len(), |_| {
                let of = |id: EndpointId| requests[cluster.place_of(id).unwrap()];
                let (place, _) = least(among(&cluster), None, 2, || random.next(), of).unwrap();
                requests[place] += 1;
                under_way.push(place);
                if under_way.len() == at_once {
                    let ended = usize::try_from(random.next() >> 33).unwrap() % at_once;
                    requests[under_way.swap_remove(ended)] -= 1;
                }
                place
            });
            let total: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
            for (chosen_of, weight) in chosen.iter().zip(weights) {
                let expected = DRAWS * u32::from(*weight) / total;
                assert!(
                    chosen_of.abs_diff(expected) <= 30 + expected / 4,
                    "{weights:?}, {at_once}: {chosen:?}"
                );
            }
        }
    }

    #[test]
    fn weights_count_for_expected_times_where_the_first_has_something_to_do() {
        let cluster = cluster(&[1, 4]);
        let [light, heavy] = &cluster.endpoints[..] else { panic!("two of them") };
        let of = |millis: f64, requests: u32| Expected {
            nanos: millis * f64::from(requests + 1),
            requests,
        };
        for (one, other, is_shorter) in [
            // Whichever is drawn first, where neither is faster.
            ((light, of(10.0, 0)), (heavy, of(10.0, 0)), false),
            ((heavy, of(10.0, 0)), (light, of(10.0, 0)), false),
            ((heavy, of(10.0, 2)), (light, of(10.0, 0)), false),
            // The faster one.
            ((heavy, of(9.0, 0)), (light, of(10.0, 0)), true),
            ((light, of(9.0, 0)), (heavy, of(10.0, 0)), true),
            // What waits there.
            ((heavy, of(10.0, 2)), (light, of(10.0, 1)), true),
            ((light, of(10.0, 0)), (heavy, of(10.0, 1)), false),
            ((light, of(10.0, 0)), (heavy, of(10.0, 5)), true),
        ] {
            assert_eq!(Expected::is_shorter(one, other), is_shorter, "{one:?} {other:?}");
        }
    }

    #[test]
    fn one_that_has_more_under_way_than_others_is_left_alone() {
        let cluster = cluster(&[1; 10]);
        let slow = cluster.endpoints[3].id;
        for choices in [2, 3, 16] {
            let mut random = Random::new(11);
            let chosen = shares(10, |_| {
                let requests = |id| if id == slow { 40 } else { 4 };
                least(among(&cluster), None, choices, || random.next(), requests).unwrap().0
            });
            // It is only chosen where it is drawn again and again, which a neighbour keeps from happening.
            assert_eq!(chosen[3], 0, "{choices}: {chosen:?}");
        }
    }

    #[test]
    fn what_a_heavy_endpoint_leaves_is_shared_by_the_weights_of_the_others() {
        let weights = [&[1_000][..], &[1; 9]].concat();
        let endpoints = weights.iter().enumerate().map(|(place, weight)| {
            format!("{{ address: '127.0.0.1:{}', weight: {weight} }}", 9000 + place)
        });
        let text = format!(
            "listeners: [{{ name: a, address: 127.0.0.1:80, protocol: tcp, cluster: a }}]\n\
             clusters: [{{ name: a, outlier: {{}}, endpoints: [{}] }}]\n",
            endpoints.collect::<Vec<_>>().join(", ")
        );
        let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let snapshot = loader.load_with("test", &text, &Memory::new(0)).unwrap();
        let (_, cluster) = snapshot.clusters.iter().next().unwrap();
        let mut detector = Detector::default();
        detector.on_snapshot(&snapshot, Duration::ZERO);
        let (heavy, kind) = (cluster.endpoints[0].id, OutlierKind::Errors5xx);
        detector.on_reached(cluster, heavy, kind, (Duration::ZERO, 0));
        let group = &cluster.view.levels(None)[0];
        let eligible = Eligible::Only(HealthStatus::Healthy);
        let among = Among { cluster, group, eligible };
        let mut random = Random::new(3);
        let chosen = shares(10, |_| pick(among, None, || random.next()).unwrap().0);
        assert_eq!(chosen[0], 0);
        let even = DRAWS / 9;
        assert!(chosen[1..].iter().all(|chosen| chosen.abs_diff(even) < even / 5), "{chosen:?}");
    }

    #[test]
    fn the_endpoint_to_avoid_is_chosen_where_it_is_alone_and_nowhere_else() {
        for weights in [&[1][..], &[1, 1], &[65535, 1], &[1, 65535, 1]] {
            let cluster = cluster(weights);
            for avoid in &cluster.endpoints {
                let mut random = Random::new(5);
                let mut turn = 0;
                for _ in 0..200 {
                    let mut next = || {
                        turn += 1;
                        turn
                    };
                    let chosen = [
                        pick(among(&cluster), Some(avoid.id), &mut next),
                        pick(among(&cluster), Some(avoid.id), || random.next()),
                        least(among(&cluster), Some(avoid.id), 2, || random.next(), |_| 0),
                    ];
                    for (place, endpoint) in chosen.into_iter().flatten() {
                        assert_eq!(cluster.endpoints[place].id, endpoint.id);
                        assert_eq!(endpoint.id == avoid.id, weights.len() == 1, "{weights:?}");
                    }
                }
            }
        }
        // One without a weight stands in for no other.
        let cluster_of_two = cluster(&[1, 0, 1]);
        let mut random = Random::new(3);
        for _ in 0..200 {
            let requests = |_| 0;
            let least = least(among(&cluster_of_two), None, 2, || random.next(), requests);
            assert_ne!(least.unwrap().0, 1);
            let first = cluster_of_two.endpoints[0].id;
            let other = pick(among(&cluster_of_two), Some(first), || 0);
            assert_eq!(other.unwrap().0, 2);
        }
        assert!(cluster(&[]).view.levels(None).is_empty());
    }
}
