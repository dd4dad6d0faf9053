//! `metrics`: what is reported beside the metrics that are always there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Endpoints with metrics of their own unless the file says otherwise: some 400 series.
const ENDPOINTS_MAX: u32 = 100;

/// What is reported beside the metrics that are always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Endpoints that have metrics of their own (`strait_endpoint_*`), in the order of clusters and of the endpoints in
    /// each. Those beyond it have none, and `strait_endpoints_left_out` is how many they are. 0: none has. `/clusters` of
    /// the admin interface has all of them in any case.
    #[schemars(range(max = 100_000))]
    pub endpoints_max: u32,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { endpoints_max: ENDPOINTS_MAX }
    }
}
