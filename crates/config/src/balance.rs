//! `clusters[].balance`: how a cluster's endpoints share its requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many endpoints are drawn unless the file says otherwise.
const CHOICES: u8 = 2;

/// How requests are shared among the endpoints of a cluster: a word, or a map with more to say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Balance {
    /// An algorithm.
    Word(Algorithm),
    /// One with more to say about it.
    LeastRequest(LeastRequestKey),
}

/// An algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Endpoints take turns, each as often as its weight says and as evenly as can be.
    #[default]
    RoundRobin,
    /// Each request draws its endpoint, with a chance by its weight.
    Random,
    /// Each request draws two endpoints, with a chance by their weights, and goes to the one that has fewer
    /// requests under way for its weight. Each worker counts its own requests.
    LeastRequest,
}

/// The fewest requests, of more than two that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeastRequestKey {
    /// As the word `least_request`, with more to say.
    pub least_request: LeastRequest,
}

/// How many endpoints are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeastRequest {
    /// Endpoints that a request draws. The more there are, the sooner a slow endpoint is left alone, and the
    /// more often the same one is found by many at a time.
    #[schemars(range(min = 2, max = 16))]
    pub choices: u8,
}

impl Default for LeastRequest {
    fn default() -> Self {
        Self { choices: CHOICES }
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
}

impl From<Balance> for Balancer {
    fn from(balance: Balance) -> Self {
        match balance {
            Balance::Word(Algorithm::RoundRobin) => Self::RoundRobin,
            Balance::Word(Algorithm::Random) => Self::Random,
            Balance::Word(Algorithm::LeastRequest) => Self::LeastRequest { choices: CHOICES },
            Balance::LeastRequest(LeastRequestKey { least_request: LeastRequest { choices } }) => {
                Self::LeastRequest { choices }
            }
        }
    }
}

impl From<Balancer> for Balance {
    fn from(balancer: Balancer) -> Self {
        match balancer {
            Balancer::RoundRobin => Self::Word(Algorithm::RoundRobin),
            Balancer::Random => Self::Word(Algorithm::Random),
            Balancer::LeastRequest { choices: CHOICES } => Self::Word(Algorithm::LeastRequest),
            Balancer::LeastRequest { choices } => {
                Self::LeastRequest(LeastRequestKey { least_request: LeastRequest { choices } })
            }
        }
    }
}
