//! What somebody who runs Strait does to it.

mod a_wrong_file_changes_nothing;
mod http2_drains_and_loses_nothing;
mod promtool_accepts_the_metrics;
mod reload_under_load_loses_nothing;
mod requests_in_flight_outlive_the_listener;
mod termination_under_load_loses_nothing;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] = &[
    promtool_accepts_the_metrics::CLAIM,
    reload_under_load_loses_nothing::CLAIM,
    a_wrong_file_changes_nothing::CLAIM,
    termination_under_load_loses_nothing::CLAIM,
    http2_drains_and_loses_nothing::CLAIM,
    requests_in_flight_outlive_the_listener::CLAIM,
];
