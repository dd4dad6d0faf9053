//! Where endpoints and the process are (`locality`), and how a cluster shares requests by that (`localities`).
//!
//! Names and meanings are Envoy's: locality weights (`locality_weighted_lb_config`), and zone-aware routing
//! (`zone_aware_lb_config`). What each locality gets follows from how many of its endpoints may be chosen as the request
//! comes, so nothing is built when health changes.

pub(crate) mod build;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::findings::Problem;
use crate::map::Map;
use crate::percent::Percent;
use crate::resource::assignment::file::Locality;
use crate::xxhash::xxh64;

/// How requests are distributed by the location of endpoints: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["weights"]}, {"required": ["zone_aware"]}]))]
pub struct Localities {
    /// Share of the requests for each locality, relative to the other weights, by locality of endpoints. A locality
    /// gets less if fewer than 71 % of its endpoints are available. A locality that is not listed has weight 1. With 0,
    /// it gets no requests while there are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<BTreeMap<String, u32>>,
    /// Requests stay in the `locality` of this process as far as its endpoints have the capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_aware: Option<ZoneAware>,
}

/// How many requests stay in the locality of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneAware {
    /// Share of the requests for which localities are considered. The others go to any endpoint.
    pub percent: Percent,
    /// Localities are considered while at least this many endpoints of the first priority are available.
    pub size_min: u32,
    /// Share of all processes like this one that are in its locality, and therefore of all requests. If at least that
    /// share of the endpoints is there, all requests stay; if it is less, the others go to localities with spare
    /// endpoints. Absent: each locality of the cluster has the same number of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Percent>,
}

impl Default for ZoneAware {
    fn default() -> Self {
        Self { percent: Percent::of_points(100), size_min: 6, share: None }
    }
}

/// The same, as it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalityRule {
    /// By weights.
    Weights(Arc<Map<LocalityKey, u32>>),
    /// By where the process is.
    ZoneAware(ZoneAware),
}

impl LocalityRule {
    /// The weight of a locality, where weights count.
    pub(crate) fn weight(&self, key: LocalityKey) -> u32 {
        match self {
            Self::Weights(weights) => weights.get(&key).copied().unwrap_or(1),
            Self::ZoneAware(_) => 1,
        }
    }
}

/// Stands for a locality where localities are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalityKey(u64);

impl LocalityKey {
    /// That of endpoints of which it is not known where they are.
    #[must_use]
    pub fn unknown() -> Self {
        Locality::default().key()
    }
}

impl Locality {
    /// Stands for it.
    #[must_use]
    pub fn key(&self) -> LocalityKey {
        let Self { region, zone, subzone } = self;
        LocalityKey(xxh64(format!("{region}\0{zone}\0{subzone}").as_bytes(), 0))
    }

    /// Whether its parts are texts that pages and logs can have in a line.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let Self { region, zone, subzone } = self;
        if [region, zone, subzone].iter().any(|part| part.contains(char::is_control)) {
            let rule = "a locality contains no control characters";
            let hint = "remove the line break or the control character";
            return Err(Problem::new(rule, hint));
        }
        Ok(())
    }
}

impl FromStr for Locality {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut parts = text.splitn(3, '/').map(str::trim);
        let mut next = || parts.next().map(str::to_owned);
        let (region, zone, subzone) = (next(), next(), next());
        let is_empty = |part: &Option<String>| part.as_deref() == Some("");
        if [&region, &zone, &subzone].into_iter().any(is_empty) {
            let rule = "a locality is a region, a zone in it, and a part of that";
            return Err(Problem::new(rule, "write REGION, REGION/ZONE or REGION/ZONE/SUBZONE"));
        }
        let [region, zone, subzone] = [region, zone, subzone].map(Option::unwrap_or_default);
        let locality = Self { region, zone, subzone };
        locality.check()?;
        Ok(locality)
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, zone, subzone } = self;
        let text = format!("{region}/{zone}/{subzone}");
        f.write_str(text.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localities_are_read_and_written_from_the_large_to_the_small() {
        for text in ["eu", "eu/a", "eu/a/1", "eu/a/1/2"] {
            let locality: Locality = text.parse().unwrap();
            assert_eq!(locality.to_string(), text);
            assert_ne!(locality.key(), LocalityKey::unknown());
        }
        for text in ["", "/", "eu/", "/a", "eu//1", " / "] {
            assert!(text.parse::<Locality>().is_err(), "{text}");
        }
        let keys = ["eu/a", "eua", "eu/a/b", "eu"].map(|it| it.parse::<Locality>().unwrap().key());
        assert!((0..keys.len()).all(|place| !keys[..place].contains(&keys[place])));
    }
}
