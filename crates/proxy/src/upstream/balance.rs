//! Which endpoint of a cluster a request goes to.
//!
//! A draw is a number that the cluster's [`Schedule`](config::schedule::Schedule) makes an endpoint of: by
//! running numbers endpoints take turns, by random ones each has a chance by its weight. What is drawn is
//! looked at here, and drawn again where it will not do.

use config::snapshot::{Cluster, Endpoint, EndpointId};

/// Draws that are let pass for the sake of another endpoint. In a cluster of two of equal weights the
/// second is another one; where one endpoint has nearly all of the weight, its neighbour stands in.
const PASSES_MAX: u32 = 16;

/// Endpoints that are looked at for one to stand in for another that is drawn twice.
const NEIGHBOURS_MAX: usize = 16;

/// The endpoint that is drawn and its place in the cluster, or none if the cluster has none. It is
/// another one than `avoid`, if there is any other.
#[inline]
pub(crate) fn pick(
    cluster: &Cluster,
    avoid: Option<EndpointId>,
    mut draw: impl FnMut() -> u64,
) -> Option<(usize, &Endpoint)> {
    let mut avoided = 0;
    for _ in 0..PASSES_MAX {
        let (place, endpoint) = at(cluster, cluster.schedule.place(draw())?)?;
        if Some(endpoint.id) != avoid {
            return Some((place, endpoint));
        }
        avoided = place;
    }
    // The next one that has turns at all, which is the avoided one if there is no other.
    behind(cluster, avoided).next()
}

/// Of `choices` endpoints that are drawn, the one with the fewest requests under way for its weight. What is
/// drawn twice is no choice: the neighbour stands in then, so that of two endpoints both are compared.
pub(crate) fn pick_least(
    cluster: &Cluster,
    avoid: Option<EndpointId>,
    choices: u8,
    mut draw: impl FnMut() -> u64,
    mut requests: impl FnMut(EndpointId) -> u32,
) -> Option<(usize, &Endpoint)> {
    let mut best = pick(cluster, avoid, &mut draw)?;
    let mut under_way = requests(best.1.id);
    for _ in 1..choices {
        let drawn = pick(cluster, avoid, &mut draw)?;
        let other =
            if drawn.0 == best.0 { neighbour(cluster, drawn.0, avoid) } else { Some(drawn) };
        let Some(other) = other else { continue };
        let of_other = requests(other.1.id);
        // What each would have with this one, for its weight; as products, so that nothing is rounded.
        let load = (u64::from(under_way) + 1) * u64::from(other.1.weight);
        let load_of_other = (u64::from(of_other) + 1) * u64::from(best.1.weight);
        if load_of_other < load {
            (best, under_way) = (other, of_other);
        }
    }
    Some(best)
}

/// An endpoint near the one at `place` to compare it with.
fn neighbour(
    cluster: &Cluster,
    place: usize,
    avoid: Option<EndpointId>,
) -> Option<(usize, &Endpoint)> {
    let count = cluster.endpoints.len();
    let mut near =
        (1..count.min(NEIGHBOURS_MAX)).filter_map(|ahead| at(cluster, (place + ahead) % count));
    near.find(|(_, endpoint)| endpoint.weight > 0 && Some(endpoint.id) != avoid)
}

/// The endpoints that have turns, from the one behind `place` around to the one there.
fn behind(cluster: &Cluster, place: usize) -> impl Iterator<Item = (usize, &Endpoint)> {
    let count = cluster.endpoints.len();
    let places = (1..=count).map(move |ahead| (place + ahead) % count);
    places.filter_map(|place| at(cluster, place)).filter(|(_, endpoint)| endpoint.weight > 0)
}

fn at(cluster: &Cluster, place: usize) -> Option<(usize, &Endpoint)> {
    cluster.endpoints.get(place).map(|endpoint| (place, endpoint))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::outside::Memory;
    use config::{FilterKinds, Loader};

    use super::*;
    use crate::tools::random::Random;

    const DRAWS: u32 = 60_000;

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
                let chosen =
                    shares(weights.len(), |_| pick(&cluster, None, || random.next()).unwrap().0);
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
                pick_least(&cluster, None, 2, || random.next(), requests).unwrap().0
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
    fn one_that_has_more_under_way_than_others_is_left_alone() {
        let cluster = cluster(&[1; 10]);
        let slow = cluster.endpoints[3].id;
        for choices in [2, 3, 16] {
            let mut random = Random::new(11);
            let chosen = shares(10, |_| {
                let requests = |id| if id == slow { 40 } else { 4 };
                pick_least(&cluster, None, choices, || random.next(), requests).unwrap().0
            });
            // It is only chosen where it is drawn again and again, which a neighbour keeps from happening.
            assert_eq!(chosen[3], 0, "{choices}: {chosen:?}");
        }
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
                        pick(&cluster, Some(avoid.id), &mut next),
                        pick(&cluster, Some(avoid.id), || random.next()),
                        pick_least(&cluster, Some(avoid.id), 2, || random.next(), |_| 0),
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
            let least = pick_least(&cluster_of_two, None, 2, || random.next(), requests);
            assert_ne!(least.unwrap().0, 1);
            let first = cluster_of_two.endpoints[0].id;
            let other = pick(&cluster_of_two, Some(first), || 0);
            assert_eq!(other.unwrap().0, 2);
        }
        assert!(pick(&cluster(&[]), None, || 0).is_none());
        assert!(pick_least(&cluster(&[]), None, 2, || 0, |_| 0).is_none());
    }
}
