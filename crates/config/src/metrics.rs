//! `metrics`: what is reported beside the metrics that are always there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Endpoints with metrics of their own unless the file says otherwise: some 400 series.
const ENDPOINTS_MAX: u32 = 100;

/// Optional metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Number of endpoints that have their own metrics (`strait_endpoint_*`), in the order of clusters and of the
    /// endpoints in each. `strait_endpoints_left_out` is the number of endpoints beyond it, which have none. 0: no
    /// endpoint has metrics. `/clusters` of the admin interface always shows all endpoints.
    #[schemars(range(max = 100_000))]
    pub endpoints_max: u32,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { endpoints_max: ENDPOINTS_MAX }
    }
}
