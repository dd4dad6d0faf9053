//! Which locality of a group a request goes to.

use super::{Group, WHOLE};
use crate::resource::assignment::locality::{LocalityKey, LocalityRule, ZoneAware};
use crate::resource::cluster::health::HealthStatus;

/// The endpoints of a group by locality: two localities at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub(super) rule: LocalityRule,
    pub(super) parts: Box<[Part]>,
}

/// The endpoints of one locality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The locality.
    pub key: LocalityKey,
    /// Its weight, where weights count.
    pub(super) weight: u32,
    /// Its endpoints.
    pub group: Group,
}

/// What of the requests the parts of a group get, as numbers to compare.
#[derive(Clone, Copy, Debug)]
enum Loads {
    /// By their weights, and by how many of their endpoints have this status.
    Weights { status: HealthStatus },
    /// The part of the process gets `stays` millionths, and the others the remainder by what they have more than they
    /// need for their own processes, which is `left` for all of them.
    ZoneAware {
        status: HealthStatus,
        own: LocalityKey,
        all: u64,
        stays: u64,
        needed: u64,
        left: u64,
    },
}

impl Group {
    /// Its endpoints by locality, where that counts.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().flat_map(|parts| &parts.parts)
    }

    /// The part that a request goes to that is for endpoints with this status, by dice. `own`: where this process is. None where
    /// localities do not count for the group or for this request.
    #[must_use]
    pub fn part(
        &self,
        own: Option<LocalityKey>,
        status: HealthStatus,
        mut die: impl FnMut() -> u64,
    ) -> Option<&Part> {
        let parts = self.parts.as_deref()?;
        if let LocalityRule::ZoneAware(ZoneAware { percent, .. }) = &parts.rule
            && !percent.holds(die())
        {
            return None;
        }
        let loads = self.loads(parts, own, status)?;
        let sum: u64 = parts.parts.iter().map(|part| loads.of(part)).sum();
        let mut left = die().checked_rem(sum)?;
        parts.parts.iter().find(|part| {
            let load = loads.of(part);
            let is_it = left < load;
            left = left.saturating_sub(load);
            is_it
        })
    }

    /// What part of the requests of the group for endpoints with this status each of its parts gets, as [`Group::part`] chooses,
    /// and how many of them go to any endpoint of the group.
    #[must_use]
    pub fn part_shares(
        &self,
        own: Option<LocalityKey>,
        status: HealthStatus,
    ) -> Option<(Vec<(&Part, f64)>, f64)> {
        let parts = self.parts.as_deref()?;
        let loads = self.loads(parts, own, status)?;
        let sum: u64 = parts.parts.iter().map(|part| loads.of(part)).sum();
        let counts = match &parts.rule {
            LocalityRule::Weights(_) => 1.0,
            LocalityRule::ZoneAware(ZoneAware { percent, .. }) => percent.part(),
        };
        let share = |part| counts * loads.of(part) as f64 / sum.max(1) as f64;
        let shares = parts.parts.iter().map(|part| (part, share(part)));
        (sum > 0).then(|| (shares.collect(), 1.0 - counts))
    }

    /// What the parts get now; none where any endpoint will do.
    fn loads(
        &self,
        parts: &Parts,
        own: Option<LocalityKey>,
        status: HealthStatus,
    ) -> Option<Loads> {
        let LocalityRule::ZoneAware(ZoneAware { size_min, share, .. }) = &parts.rule else {
            return Some(Loads::Weights { status });
        };
        let (own, all) = (own?, u64::from(self.having(status)));
        if all == 0 || all < u64::from(*size_min) {
            return None;
        }
        let here = parts.parts.iter().find(|part| part.key == own)?;
        let here = u64::from(here.group.having(status)) * WHOLE / all;
        if here == 0 {
            return None;
        }
        // What the processes of each locality need: as large a part of the endpoints as they are of all processes.
        let others = u64::try_from(parts.parts.len() - 1).unwrap_or(u64::MAX).max(1);
        let own_share = match share {
            Some(share) => u64::from(share.millionths()),
            None => WHOLE / (others + 1),
        };
        let needed = (WHOLE - own_share) / others;
        let stays = if here >= own_share { WHOLE } else { here * WHOLE / own_share };
        let mut loads = Loads::ZoneAware { status, own, all, stays, needed, left: 0 };
        let over: u64 =
            parts.parts.iter().filter(|it| it.key != own).map(|it| loads.beyond_need(it)).sum();
        if let Loads::ZoneAware { left, .. } = &mut loads {
            *left = over;
        }
        Some(loads)
    }
}

impl Loads {
    fn of(self, part: &Part) -> u64 {
        match self {
            Self::Weights { status } => {
                u64::from(part.weight) * part.group.capacity_of(part.group.having(status))
            }
            Self::ZoneAware { own, stays, .. } if part.key == own => stays,
            Self::ZoneAware { stays, left, .. } => {
                let share = (WHOLE - stays) * self.beyond_need(part);
                share.checked_div(left).unwrap_or_default()
            }
        }
    }

    /// What a part of other processes has more than these need, in millionths of all endpoints.
    fn beyond_need(self, part: &Part) -> u64 {
        match self {
            Self::Weights { .. } => 0,
            Self::ZoneAware { status, all, needed, .. } => {
                (u64::from(part.group.having(status)) * WHOLE / all).saturating_sub(needed)
            }
        }
    }
}
