//! Which endpoint gets a request: by subset, priority and locality, and there by the cluster's balancer.

use std::num::NonZeroU64;

use config::balance::Balancer;
use config::health::HealthStatus;
use config::locality::LocalityKey;
use config::snapshot::{Endpoint, EndpointId};
use config::view::{self, Eligible, Level, Part};
use telemetry::events::ChoiceKind;

use super::state::EndpointState;
use super::{Ask, Pools};
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::upstream::balance::{self, Among, Expected};

/// Draws of endpoints that came lately which are let pass: of these few, if all are new, the last is taken.
const REDRAWS_MAX: usize = 64;

/// Choices that are let pass for an endpoint that was not tried: more than attempts of a request.
const UNTRIED_DRAWS_MAX: usize = 32;

/// What a balancer chose, and where the cluster stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'c> {
    /// Where it was chosen.
    pub(super) among: Among<'c>,
    pub(super) place: usize,
    pub(super) endpoint: &'c Endpoint,
    /// How it was chosen, if by more than the balancer.
    pub(super) kind: Option<ChoiceKind>,
    /// Connections of the cluster in pools.
    pub(super) idle: u32,
}

impl Pools {
    /// The endpoint that the cluster's balancer chooses for a request: another one than the one to avoid, if there is
    /// any other. None if the cluster has no endpoints, or is one of a former configuration whose place is
    /// another's by now.
    #[inline]
    pub(super) fn choose<'c>(
        &mut self,
        ask: &Ask<'c>,
        random: &mut Random,
        now: Time,
    ) -> Option<Choice<'c>> {
        let Ask { cluster, avoid, subset, .. } = *ask;
        let levels = cluster.view.levels(subset);
        if let Some(choice) = ask.chosen.and_then(|chosen| self.choose_again(chosen, ask)) {
            return Some(choice);
        }
        let die = || ask.hash.map_or_else(|| random.next(), NonZeroU64::get);
        let level = view::level(levels, cluster.panic, die)?;
        let Level { place, group, eligible } = level;
        self.counts_results |= cluster.outlier.is_some();
        if cluster.preconnect.is_some() {
            (self.preconnects, self.is_counting) = (true, true);
        }
        if !cluster.checks.is_empty() {
            self.has_checks = true;
            if !self.share.is_apart() {
                cluster.activity.mark();
            }
        }
        let among = Among { cluster, group, eligible };
        let is_panicking = level.is_panicking();
        let kind = match (eligible, place) {
            _ if is_panicking => Some(ChoiceKind::Panic),
            (Eligible::Only(HealthStatus::Degraded), _) => Some(ChoiceKind::Degraded),
            (_, 0) => None,
            (..) => Some(ChoiceKind::Failover),
        };
        if cluster.localities.is_some()
            && !is_panicking
            && let Some(choice) = self.choose_locality(among, ask, random, now)
        {
            return Some(Choice { kind: kind.or(choice.kind), ..choice });
        }
        let choice = match self.choose_among(among, ask, random, now) {
            // The last one was ejected, and what follows of that is not counted yet.
            None if eligible != Eligible::All && !cluster.panic.is_none() => {
                let all = Among { eligible: Eligible::All, ..among };
                let choice = self.choose_among(all, ask, random, now)?;
                Choice { kind: Some(ChoiceKind::Panic), ..choice }
            }
            choice => Choice { kind, ..choice? },
        };
        // The only one of a priority failed: those of the next stand in.
        match levels.get(place + 1) {
            Some(group) if Some(choice.endpoint.id) == avoid => {
                let eligible = Eligible::Only(HealthStatus::Healthy);
                let next = Among { cluster, group, eligible };
                let next = self.choose_among(next, ask, random, now);
                let next = next.map(|it| Choice { kind: Some(ChoiceKind::Failover), ..it });
                next.or(Some(choice))
            }
            _ => Some(choice),
        }
    }

    /// This choice, or another one: the first whose endpoint was not tried. Where a priority or locality has none of these, it
    /// comes from another locality, then from a later priority.
    #[cold]
    pub(super) fn choose_untried<'c>(
        &mut self,
        first: Choice<'c>,
        ask: &Ask<'c>,
        random: &mut Random,
        now: Time,
    ) -> Choice<'c> {
        let mut choice = first;
        for _ in 0..UNTRIED_DRAWS_MAX {
            if !ask.tried.contains(&choice.endpoint.id) {
                return choice;
            }
            let Some(next) = self.choose(ask, random, now) else { break };
            choice = next;
        }
        // A hash keeps its endpoint.
        if ask.cluster.balancer.is_by_hash() {
            return choice;
        }
        let cluster = ask.cluster;
        for (place, group) in cluster.view.levels(ask.subset).iter().enumerate() {
            let among = Among { cluster, group, eligible: Eligible::Only(HealthStatus::Healthy) };
            for _ in 0..UNTRIED_DRAWS_MAX {
                match self.choose_among(among, ask, random, now) {
                    Some(next) if !ask.tried.contains(&next.endpoint.id) => {
                        let kind = (place > 0).then_some(ChoiceKind::Failover);
                        return Choice { kind, ..next };
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
        choice
    }

    /// An endpoint of the locality that a request goes to; none where any of the group will do, as where the only one of its
    /// locality failed.
    #[cold]
    fn choose_locality<'c>(
        &mut self,
        among: Among<'c>,
        ask: &Ask<'c>,
        random: &mut Random,
        now: Time,
    ) -> Option<Choice<'c>> {
        let status = match among.eligible {
            Eligible::Only(status) => status,
            // Nothing is known of their health.
            Eligible::All => HealthStatus::Healthy,
        };
        let part = among.group.part(ask.locality, status, || random.next())?;
        let of_part = Among { group: &part.group, ..among };
        let choice = self.choose_among(of_part, ask, random, now)?;
        let kind = kind_of(part, ask.locality);
        (Some(choice.endpoint.id) != ask.avoid).then_some(Choice { kind: Some(kind), ..choice })
    }

    /// The endpoint that was chosen for an exchange before it waited, while that may still be chosen. Where a hash
    /// chooses, it leads there again.
    #[cold]
    fn choose_again<'c>(&mut self, chosen: EndpointId, ask: &Ask<'c>) -> Option<Choice<'c>> {
        let Ask { cluster, avoid, subset, .. } = *ask;
        let place = cluster.place_of(chosen)?;
        let endpoint = cluster.endpoints.get(place)?;
        let may_be = endpoint.weight > 0 && endpoint.status() != HealthStatus::Unhealthy;
        if !may_be || avoid == Some(chosen) || cluster.balancer.is_by_hash() {
            return None;
        }
        let mut levels = cluster.view.levels(subset).iter();
        let group = levels.find(|group| group.inner(place).is_some())?;
        let part = group.parts().find(|part| part.group.inner(place).is_some());
        let kind = part.map(|part| kind_of(part, ask.locality));
        let group = part.map_or(group, |part| &part.group);
        let among = Among { cluster, group, eligible: Eligible::Only(endpoint.status()) };
        let idle = self.pool(ask.followed().id())?.idle;
        Some(Choice { among, place, endpoint, kind, idle })
    }

    /// The endpoint of a group that the cluster's balancer chooses.
    #[inline]
    fn choose_among<'c>(
        &mut self,
        among: Among<'c>,
        ask: &Ask<'c>,
        random: &mut Random,
        now: Time,
    ) -> Option<Choice<'c>> {
        let Ask { cluster, avoid, hash, .. } = *ask;
        let pool = ask.followed();
        let state = self.pool_or_new(pool, || random.next())?;
        let idle = state.idle;
        let (place, endpoint) = match cluster.balancer {
            Balancer::RoundRobin => {
                // Were the turn of a retry taken from the others', they would all begin where one failed.
                let cursors = state.cursors_of(among.group.number);
                let cursor = if avoid.is_some() { &mut cursors.retry } else { &mut cursors.first };
                if cluster.slow_start.is_some() {
                    let mut next = *cursor;
                    let found = self.draw(among, avoid, random, now, |_| take_turn(&mut next));
                    let cursors = self.pool(pool.id())?.cursors_of(among.group.number);
                    *(if avoid.is_some() { &mut cursors.retry } else { &mut cursors.first }) = next;
                    found
                } else {
                    balance::pick(among, avoid, || take_turn(cursor))
                }
            }
            Balancer::Random => self.draw(among, avoid, random, now, Random::next),
            Balancer::LeastRequest { choices } => {
                self.is_counting = true;
                let requests =
                    |it: &Endpoint| self.known_endpoint(it.id).map_or(0, EndpointState::requests);
                let draw = || self.draw(among, avoid, random, now, Random::next);
                balance::pick_least(among, avoid, choices, draw, |one, other| {
                    balance::has_fewer((one, requests(one)), (other, requests(other)))
                })
            }
            Balancer::PeakEwma { decay } => {
                self.is_counting = true;
                let draw = || self.draw(among, avoid, random, now, Random::next);
                let expected = |it: &Endpoint| {
                    let known = self.known_endpoint(it.id);
                    known.map(|state| state.expected(decay, now)).unwrap_or_default()
                };
                balance::pick_least(among, avoid, 2, draw, |one, other| {
                    Expected::is_shorter((one, expected(one)), (other, expected(other)))
                })
            }
            Balancer::Hash { load_percent_max, .. } => {
                let hash = hash.map_or_else(|| random.next(), NonZeroU64::get);
                let under_way = self.requests_of(cluster.id);
                self.is_counting |= load_percent_max.is_some();
                balance::pick_by_hash(among, avoid, hash, |endpoint| {
                    let Some(state) = self.endpoint(endpoint.id) else { return true };
                    let requests = state.requests();
                    let has_room = load_percent_max.is_none_or(|percent| {
                        balance::has_room(among, endpoint, (requests, under_way), percent)
                    });
                    has_room && state.backoff.pause(now).is_none()
                })
            }
        }?;
        Some(Choice { among, place, endpoint, kind: None, idle })
    }

    /// An endpoint that is drawn; one that came lately is drawn again, but for a chance that grows with its age.
    fn draw<'c>(
        &self,
        among: Among<'c>,
        avoid: Option<EndpointId>,
        random: &mut Random,
        now: Time,
        mut next: impl FnMut(&mut Random) -> u64,
    ) -> Option<(usize, &'c Endpoint)> {
        let Some(slow_start) = among.cluster.slow_start else {
            return balance::pick(among, avoid, || next(random));
        };
        let mut found = None;
        for _ in 0..REDRAWS_MAX {
            let drawn = balance::pick(among, avoid, || next(random))?;
            let began = self.known_endpoint(drawn.1.id).and_then(|state| state.began);
            let chance = began.and_then(|began| slow_start.chance(now - began));
            if chance.is_none_or(|chance| random.next() <= chance) {
                return Some(drawn);
            }
            found = Some(drawn);
        }
        found
    }
}

/// How an endpoint of this part is chosen.
fn kind_of(part: &Part, own: Option<LocalityKey>) -> ChoiceKind {
    if own == Some(part.key) { ChoiceKind::OwnLocality } else { ChoiceKind::OtherLocality }
}

fn take_turn(cursor: &mut u64) -> u64 {
    let turn = *cursor;
    *cursor = cursor.wrapping_add(1);
    turn
}
