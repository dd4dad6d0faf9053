//! `clusters[].balance`: how a cluster's endpoints share its requests.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::findings::Problem;
use crate::units::Period;

/// How many endpoints are drawn unless the file says otherwise.
const CHOICES: u8 = 2;

/// How requests are distributed among the endpoints of a cluster: a name, or a map with options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Balance {
    /// An algorithm.
    Word(Algorithm),
    /// An algorithm with options.
    Options(BalanceOptions),
}

/// An algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-meant" = {
    "ip_hash": "write ring_hash, and `hash: [client_ip]` in the rule",
    "least_conn": "write least_request",
    "least_connections": "write least_request",
    "leastconn": "write least_request",
    "least_time": "write peak_ewma",
    "rr": "write round_robin",
    "source": "write ring_hash, and `hash: [client_ip]` in the rule",
    "wrr": "write round_robin",
}))]
pub enum Algorithm {
    /// Endpoints take turns, in proportion to their weights and as evenly as possible.
    #[default]
    RoundRobin,
    /// Each request goes to a random endpoint, by weight.
    Random,
    /// Each request draws two random endpoints, by weight, and goes to the one with fewer active requests relative to
    /// its weight. Each worker counts its own requests.
    LeastRequest,
    /// Each request draws two random endpoints, by weight, and goes to the one with the shorter expected response time,
    /// from recent response times and active requests. Each worker measures its own requests.
    PeakEwma,
    /// The hash of each request (`hash` of its rule) selects the endpoint, with a Maglev table. A request without a
    /// hash goes to a random endpoint.
    Maglev,
    /// The hash of each request selects the endpoint, with a ring (ketama). A request without a hash goes to a random
    /// endpoint.
    RingHash,
}

/// An algorithm with its options: one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["least_request"]}, {"required": ["peak_ewma"]}, {"required": ["maglev"]},
    {"required": ["ring_hash"]},
]))]
pub struct BalanceOptions {
    /// The algorithm `least_request`, with options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_request: Option<LeastRequest>,
    /// The algorithm `peak_ewma`, with options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_ewma: Option<PeakEwma>,
    /// The algorithm `maglev`, with options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maglev: Option<Maglev>,
    /// The algorithm `ring_hash`, with options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_hash: Option<RingHash>,
}

/// How many endpoints are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeastRequest {
    /// Number of endpoints that a request draws. With more of them, slow endpoints are avoided sooner, but many
    /// requests may select the same endpoint at a time.
    #[schemars(range(min = 2, max = 16))]
    pub choices: u8,
}

/// How long `peak_ewma` remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PeakEwma {
    /// Time in which the influence of a measured response time decreases by two thirds. A longer time than expected
    /// counts at once.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub decay: Period,
}

/// The table of `maglev`, and what an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Maglev {
    /// Entries of the table: a prime number, at least a hundred times the number of endpoints. An entry takes four
    /// bytes, once in the process.
    #[schemars(range(min = 2, max = 5_000_011))]
    pub table: u32,
    /// Maximum number of active requests at an endpoint, in percent of its share by weight. Beyond it, requests go to
    /// the next endpoint of the table or ring. Each worker counts its own requests. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 10_000))]
    pub load_max: Option<u16>,
}

/// The ring of `ring_hash`, and what an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RingHash {
    /// Minimum number of points of the ring. With more points, keys are distributed more evenly.
    #[schemars(range(min = 1, max = 8_388_608))]
    pub size_min: u32,
    /// Maximum number of points of the ring, if weights differ so much that the lightest endpoint would need more. A
    /// point takes 16 bytes, once in the process.
    #[schemars(range(min = 1, max = 8_388_608))]
    pub size_max: u32,
    /// As for `maglev`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 10_000))]
    pub load_max: Option<u16>,
}

impl Default for LeastRequest {
    fn default() -> Self {
        Self { choices: CHOICES }
    }
}

impl Default for PeakEwma {
    fn default() -> Self {
        Self { decay: Period::from_secs(10) }
    }
}

impl Default for Maglev {
    fn default() -> Self {
        Self { table: MaglevTable::DEFAULT.0, load_max: None }
    }
}

impl Default for RingHash {
    fn default() -> Self {
        let RingSize { min, max } = RingSize::DEFAULT;
        Self { size_min: min, size_max: max, load_max: None }
    }
}

impl Default for Balance {
    fn default() -> Self {
        Self::Word(Algorithm::default())
    }
}

/// How a cluster chooses among its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// They take turns.
    RoundRobin,
    /// Each request draws one.
    Random,
    /// Each request draws some, and takes the one with the fewest requests for its weight.
    LeastRequest {
        /// How many it draws: 2 to 16.
        choices: u8,
    },
    /// Each request draws two, and takes the one where its response is expected sooner.
    PeakEwma {
        /// How long measured responses count.
        decay: Duration,
    },
    /// The hash of each request leads to one.
    Hash {
        /// By which table.
        kind: HashKind,
        /// What an endpoint takes, in percent of its share, if that is bounded: at least 100.
        load_percent_max: Option<u16>,
    },
}

/// How hashes lead to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// By a Maglev table.
    Maglev(MaglevTable),
    /// By a ring.
    Ring(RingSize),
}

/// How many places a Maglev table has: a prime number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaglevTable(u32);

/// How many points a ring has, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    min: u32,
    max: u32,
}

impl MaglevTable {
    /// Envoy's default, for some hundred endpoints.
    pub(crate) const DEFAULT: Self = Self(65_537);

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl RingSize {
    /// The least is Envoy's default; the largest is an eighth of that, which takes 16 MiB.
    pub(crate) const DEFAULT: Self = Self { min: 1024, max: 1_048_576 };

    /// The least number.
    #[must_use]
    pub const fn min(self) -> u32 {
        self.min
    }

    /// The largest number.
    #[must_use]
    pub const fn max(self) -> u32 {
        self.max
    }
}

impl Balancer {
    /// Whether it compares how much is under way at endpoints.
    #[must_use]
    pub const fn counts_requests(self) -> bool {
        matches!(
            self,
            Self::LeastRequest { .. }
                | Self::PeakEwma { .. }
                | Self::Hash { load_percent_max: Some(_), .. }
        )
    }

    /// Whether hashes lead to endpoints.
    #[must_use]
    pub const fn is_by_hash(self) -> bool {
        matches!(self, Self::Hash { .. })
    }

    /// What a file says. Otherwise two keys, one in the other, and what is wrong there.
    pub(crate) fn build(file: Balance) -> Result<Self, (&'static str, &'static str, Problem)> {
        let options = match file {
            Balance::Word(Algorithm::RoundRobin) => return Ok(Self::RoundRobin),
            Balance::Word(Algorithm::Random) => return Ok(Self::Random),
            Balance::Word(Algorithm::LeastRequest) => BalanceOptions {
                least_request: Some(LeastRequest::default()),
                ..Default::default()
            },
            Balance::Word(Algorithm::PeakEwma) => {
                BalanceOptions { peak_ewma: Some(PeakEwma::default()), ..Default::default() }
            }
            Balance::Word(Algorithm::Maglev) => {
                BalanceOptions { maglev: Some(Maglev::default()), ..Default::default() }
            }
            Balance::Word(Algorithm::RingHash) => {
                BalanceOptions { ring_hash: Some(RingHash::default()), ..Default::default() }
            }
            Balance::Options(options) => options,
        };
        match options {
            BalanceOptions { maglev: Some(Maglev { table, load_max }), .. } => {
                let table = maglev_table(table).map_err(|it| ("maglev", "table", it))?;
                Ok(Self::Hash { kind: HashKind::Maglev(table), load_percent_max: load_max })
            }
            BalanceOptions {
                ring_hash: Some(RingHash { size_min, size_max, load_max }), ..
            } => {
                let size = ring_size(size_min, size_max);
                let size = size.map_err(|it| ("ring_hash", "size_min", it))?;
                Ok(Self::Hash { kind: HashKind::Ring(size), load_percent_max: load_max })
            }
            BalanceOptions { peak_ewma: Some(PeakEwma { decay }), .. } => {
                Ok(Self::PeakEwma { decay: decay.0 })
            }
            BalanceOptions { least_request, .. } => {
                let LeastRequest { choices } = least_request.unwrap_or_default();
                Ok(Self::LeastRequest { choices })
            }
        }
    }
}

fn maglev_table(places: u32) -> Result<MaglevTable, Problem> {
    if is_prime(places) {
        return Ok(MaglevTable(places));
    }
    let next = (places..).find(|next| is_prime(*next)).unwrap_or(MaglevTable::DEFAULT.0);
    let rule =
        "the size of a Maglev table must be a prime number, or some endpoints would get no entries";
    Err(Problem::new(rule, format!("write {next}")))
}

fn ring_size(min: u32, max: u32) -> Result<RingSize, Problem> {
    if min <= max {
        return Ok(RingSize { min, max });
    }
    let rule = "`size_min` is greater than `size_max`";
    Err(Problem::new(rule, format!("write {max} or less")))
}

fn is_prime(number: u32) -> bool {
    let divisors = (2..).take_while(|divisor| u64::from(*divisor).pow(2) <= number.into());
    number > 1 && divisors.into_iter().all(|divisor: u32| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_prime_number_of_places() {
        for (places, next) in [(2, None), (3, None), (65_537, None), (5_000_011, None)]
            .into_iter()
            .chain([(4, Some(5)), (65_536, Some(65_537)), (65_539 * 3, Some(196_643))])
        {
            let found = maglev_table(places);
            match next {
                None => assert_eq!(found, Ok(MaglevTable(places))),
                Some(next) => assert_eq!(found.unwrap_err().hint, format!("write {next}")),
            }
        }
    }
}
