//! `cluster`, `clusters` and `cluster_header` of a rule: the cluster that a request is forwarded to.

pub(crate) mod build;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::map::Map;
use crate::resource::route::edits::{HeaderEdits, HeadersKey};
use crate::resource::route::hash::hash_of;
use crate::resource::route::matching::{Asked, Place, Searches};
use crate::resource::route::rule_slots::RuleSlot;
use crate::snapshot::id::ClusterId;

/// A cluster and its share of a rule's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareKey {
    /// Name of the cluster.
    pub cluster: String,
    /// Its share, relative to the other weights of the rule. 0: it gets no requests.
    #[serde(default = "weight")]
    pub weight: u32,
    /// Changes of requests for this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<ShareRewrite>,
    /// Edits of header fields. They are applied before those of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<HeadersKey>,
}

/// Changes of requests for one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareRewrite {
    /// The new host, instead of the one in the rule's `rewrite`.
    pub host: String,
}

/// The value that selects one of `clusters`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["header"]}, {"required": ["cookie"]}]))]
pub struct Sticky {
    /// A header field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// A cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-public" = true))]
    pub cookie: Option<String>,
}

const fn weight() -> u32 {
    1
}

/// Where a rule's requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this cluster.
    Cluster(ClusterId),
    /// To several, by their weights.
    Shares(Shares),
    /// To the one that a header field names.
    Named(Named),
}

/// Clusters with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    clusters: Box<[Share]>,
    /// Of all weights, at least 1.
    sum: u32,
    sticky: Option<Place>,
}

/// A cluster with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its weight.
    pub weight: u32,
    /// The host that its requests are for, if not the rule's.
    pub host: Option<Box<str>>,
    /// Edits of header fields.
    pub edits: Option<Box<HeaderEdits>>,
    /// Where it is counted: all shares of a rule with the same cluster have the same slot.
    pub slot: RuleSlot,
    /// The sum of the weights up to its own.
    end: u32,
}

/// Clusters by their names, and the field that has the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// In lower case.
    pub header: Box<str>,
    pub(crate) clusters: Map<Box<[u8]>, ClusterId>,
}

/// The cluster of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen<'t> {
    /// The cluster.
    pub cluster: ClusterId,
    /// The host that the request is for, if its share of the weights says so.
    pub host: Option<&'t str>,
    /// The place of its share among the weights, if it has one.
    pub share: Option<u32>,
}

impl<'t> Chosen<'t> {
    const fn only(cluster: ClusterId) -> Self {
        Self { cluster, host: None, share: None }
    }
}

impl Target {
    /// The cluster of a request; none if its header names none.
    #[inline]
    pub fn choose(&self, asked: &Asked<'_>, searches: &mut Searches) -> Option<Chosen<'_>> {
        match self {
            Self::Cluster(cluster) => Some(Chosen::only(*cluster)),
            Self::Shares(shares) => shares.choose(asked, searches),
            Self::Named(named) => {
                // Several fields name none: which of them an upstream would read is not known.
                let mut values = asked.head.find_all(named.header.as_bytes());
                let value = values.next().filter(|_| values.next().is_none())?;
                named.clusters.get(value).map(|cluster| Chosen::only(*cluster))
            }
        }
    }

    /// The edits of header fields of the share at this place of the weights.
    #[must_use]
    pub fn edits_of_share(&self, place: Option<u32>) -> Option<&HeaderEdits> {
        let Self::Shares(shares) = self else { return None };
        shares.clusters.get(usize::try_from(place?).ok()?)?.edits.as_deref()
    }

    /// Whether a die decides.
    #[must_use]
    pub const fn casts_dice(&self) -> bool {
        matches!(self, Self::Shares(_))
    }

    /// The clusters that requests may go to.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        let (one, shares, named) = match self {
            Self::Cluster(cluster) => (Some(*cluster), None, None),
            Self::Shares(shares) => (None, Some(shares), None),
            Self::Named(named) => (None, None, Some(named)),
        };
        let shares = shares.into_iter().flat_map(|shares| &*shares.clusters);
        let named = named.into_iter().flat_map(|named| named.clusters.values().copied());
        one.into_iter().chain(shares.map(|share| share.cluster)).chain(named)
    }
}

impl Shares {
    /// Clusters with their weights, and the value that decides instead of a die. None if the weights add up to 0, or to
    /// more than 32 bits.
    pub(crate) fn new(mut clusters: Vec<Share>, sticky: Option<Place>) -> Option<Self> {
        let mut sum = 0_u32;
        for share in &mut clusters {
            sum = sum.checked_add(share.weight)?;
            share.end = sum;
        }
        (sum > 0).then(|| Self { clusters: clusters.into(), sum, sticky })
    }

    /// The clusters, in the order of the file.
    #[must_use]
    pub const fn clusters(&self) -> &[Share] {
        &self.clusters
    }

    pub(crate) const fn clusters_mut(&mut self) -> &mut [Share] {
        &mut self.clusters
    }

    /// Of all weights.
    #[must_use]
    pub const fn sum(&self) -> u32 {
        self.sum
    }

    /// The value that decides instead of a die.
    #[must_use]
    pub const fn sticky(&self) -> Option<&Place> {
        self.sticky.as_ref()
    }

    fn choose(&self, asked: &Asked<'_>, searches: &mut Searches) -> Option<Chosen<'_>> {
        let hash = self.sticky.as_ref().and_then(|place| {
            let mut text = searches.take_text();
            let hash = place.find(asked.head, &mut text).map(hash_of);
            searches.give_back_text(text);
            hash
        });
        self.at(hash.unwrap_or(asked.die))
    }

    /// The cluster at a random number. Its upper half decides, and the lower one about `fraction`: a rule that takes a
    /// share of requests still shares them as its weights say.
    fn at(&self, random: u64) -> Option<Chosen<'_>> {
        let scaled = ((random >> 32) * u64::from(self.sum)) >> 32;
        let place = self.clusters.partition_point(|share| u64::from(share.end) <= scaled);
        let Share { cluster, host, .. } = self.clusters.get(place)?;
        let (cluster, host) = (*cluster, host.as_deref());
        Some(Chosen { cluster, host, share: u32::try_from(place).ok() })
    }
}

impl Share {
    pub(crate) fn new(
        cluster: ClusterId,
        weight: u32,
        host: Option<Box<str>>,
        edits: Option<Box<HeaderEdits>>,
    ) -> Self {
        Self { cluster, weight, host, edits, slot: RuleSlot::default(), end: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::id::Id;

    fn shares(weights: &[u32]) -> Option<Shares> {
        let clusters = weights.iter().zip(0..).map(|(weight, slot)| {
            Share::new(ClusterId(Id { slot, generation: 0 }), *weight, None, None)
        });
        Shares::new(clusters.collect(), None)
    }

    fn at(shares: &Shares, random: u64) -> u32 {
        shares.at(random).expect("a share").cluster.0.slot
    }

    #[test]
    fn each_cluster_gets_its_share_of_dice() {
        for weights in [&[90, 10][..], &[1], &[0, 3, 0, 1], &[7, 0]] {
            let shares = shares(weights).expect("weights");
            let mut counts = vec![0_u64; weights.len()];
            // Evenly over all numbers.
            for step in 0..10_000_u64 {
                counts[at(&shares, step * (u64::MAX / 10_000)) as usize] += 1;
            }
            for (count, weight) in counts.iter().zip(weights) {
                let expected = 10_000 * u64::from(*weight) / u64::from(shares.sum());
                assert!(count.abs_diff(expected) <= 1, "{weights:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn weights_go_up_to_32_bits_in_all_and_one_is_not_0() {
        let largest = shares(&[u32::MAX - 1, 1]).expect("weights");
        assert_eq!((at(&largest, 0), at(&largest, u64::MAX)), (0, 1));
        assert!(shares(&[u32::MAX, 1]).is_none());
        assert!(shares(&[0, 0]).is_none());
        assert!(shares(&[]).is_none());
    }

    #[test]
    fn a_share_of_requests_is_shared_as_the_weights_say() {
        // Of the dice below 10 %, as many are for each half.
        let (shares, percent) =
            (shares(&[1, 1]).expect("weights"), "10".parse::<crate::percent::Percent>());
        let percent = percent.expect("a share");
        let mut state = 7_u64;
        let mut counts = [0_u32; 2];
        for _ in 0..200_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let die = hash_of(&state.to_le_bytes());
            if percent.holds(die) {
                counts[at(&shares, die) as usize] += 1;
            }
        }
        // 20,000 throws: six deviations are 424.
        assert!(counts[0].abs_diff(counts[1]) < 900, "{counts:?}");
        assert!((counts[0] + counts[1]).abs_diff(20_000) < 900, "{counts:?}");
    }

    #[test]
    fn values_are_spread_over_all_clusters() {
        let shares = shares(&[1, 1, 1, 1]).expect("weights");
        let mut counts = [0_u32; 4];
        for user in 0..4_000 {
            counts[at(&shares, hash_of(format!("user-{user}").as_bytes())) as usize] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(1_000) < 170), "{counts:?}");
    }
}
