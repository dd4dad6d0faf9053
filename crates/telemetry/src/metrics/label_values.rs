//! The values that labels may have, for the documentation: words of closed sets, from the constants that samples are made of, where
//! these are of this crate.

use std::fmt;

use super::config::{DNS_FAILURES, KINDS, MOVE_REASONS, MOVE_RESULTS, RESOURCE_STATES, STATES};
use super::exchange::{DOWN, UP};
use super::health::{BREAKERS, CHECK_RESULTS};
use super::worker::LEASE_SOURCES;
use super::{Family, tls};
use crate::counters::connection::REFUSAL_CAUSES;
use crate::counters::status::{CLASSES, STATUSES};
use crate::counters::upstream::{CONNECT_CAUSES, RETRY_CAUSES};
use crate::events::{
    ChoiceKind, DemandOutcome, DetectedProtocol, EJECTION_REASONS, GrpcCall, HANDOVER_FAILURES,
    HANDOVER_RESULTS, HeaderDrop, MirrorDrop, RetryDenial, Stages, TlsHandshakeKind,
};

/// What a label may say.
pub(crate) enum LabelValues {
    /// One of these words.
    Words(Vec<&'static str>),
    /// Any of [`crate::cause::Cause`].
    Causes,
    /// Any of [`crate::counters::endpoint::REASONS`].
    Reasons,
    /// What resources come from.
    Source,
    /// A name or a number that the configuration or the program gives, which the label itself explains.
    Open,
}

impl LabelValues {
    /// What this label of a family may say; none if this table does not have it.
    pub(crate) fn of(family: &Family, label: &str) -> Option<Self> {
        let name = family.name.strip_prefix("strait_").unwrap_or(family.name);
        let words = |words: &[&'static str]| Some(Self::Words(words.to_vec()));
        match (name, label) {
            ("downstream_connections_detected_total", "protocol") => {
                words(&DetectedProtocol::NAMES)
            }
            ("downstream_connections_refused_total", "cause") => {
                Some(Self::Words(REFUSAL_CAUSES.words().collect()))
            }
            ("downstream_headers_dropped_total", "reason") => words(&HeaderDrop::NAMES),
            (
                "downstream_connections_ended_total"
                | "exchange_causes_total"
                | "upstream_connections_ended_total",
                "cause",
            ) => Some(Self::Causes),
            ("tls_handshakes_total", "kind") => words(&TlsHandshakeKind::NAMES),
            ("tls_signatures_total", "how") => words(&tls::SIGNATURES),
            ("tls_signature_batches_total", "size") => words(&tls::BATCH_SIZES),
            (
                "tls_handshakes_failed_total"
                | "upstream_connect_failure_reasons_total"
                | "endpoint_connect_failures_total",
                "reason",
            ) => Some(Self::Reasons),
            (_, "class") => words(&CLASSES),
            ("exchange_responses_total", "code") => {
                let mut codes = Vec::new();
                for status in &STATUSES {
                    if !codes.contains(&status.code) {
                        codes.push(status.code);
                    }
                }
                Some(Self::Words(codes))
            }
            ("grpc_calls_total" | "upstream_grpc_calls_total", "status") => {
                Some(Self::Words(GrpcCall::STATUSES.into_iter().chain(["none"]).collect()))
            }
            (_, "direction") => words(&[UP, DOWN]),
            (_, "stage") => words(&Stages::NAMES),
            ("upstream_retries_total", "cause") => {
                Some(Self::Words(RETRY_CAUSES.words().collect()))
            }
            ("upstream_retries_denied_total", "reason") => {
                words(&RetryDenial::ALL.map(RetryDenial::as_str))
            }
            ("upstream_choices_total", "kind") => words(&ChoiceKind::ALL.map(ChoiceKind::as_str)),
            ("upstream_mirrors_dropped_total", "reason") => {
                words(&MirrorDrop::ALL.map(MirrorDrop::as_str))
            }
            ("upstream_connect_failures_total", "cause") => {
                Some(Self::Words(CONNECT_CAUSES.words().collect()))
            }
            ("upstream_breaker_remaining", "priority") => words(&["default", "high"]),
            ("upstream_breaker_remaining", "breaker") => words(&BREAKERS),
            ("upstream_checks_total", "result") => words(&CHECK_RESULTS),
            ("upstream_ejections_total" | "upstream_ejections_denied_total", "reason") => {
                words(&EJECTION_REASONS)
            }
            ("buffer_leases_total", "source") => words(&LEASE_SOURCES),
            ("handovers_total", "result") => words(&HANDOVER_RESULTS),
            ("handover_failures_total", "cause") => words(&HANDOVER_FAILURES),
            ("connection_moves_total", "reason") => words(&MOVE_REASONS),
            ("connection_moves_total", "result") => words(&MOVE_RESULTS),
            ("config_resources" | "source_answers_total" | "source_failures_total", "kind") => {
                words(&KINDS)
            }
            ("config_resources", "state") => words(&STATES),
            ("source_failures_total", "reason") => {
                let others = ["invalid", "initial_fetch_timeout"];
                Some(Self::Words(DNS_FAILURES.into_iter().chain(others).collect()))
            }
            ("source_resources", "state") => {
                let mut states: Vec<_> = RESOURCE_STATES.iter().map(|(_, state)| *state).collect();
                states.dedup();
                Some(Self::Words(states))
            }
            ("on_demand_requests_total", "outcome") => {
                words(&DemandOutcome::ALL.map(DemandOutcome::as_str))
            }
            (_, "source") => Some(Self::Source),
            (
                _,
                "listener" | "cluster" | "route" | "rule" | "endpoint" | "worker" | "file"
                | "version" | "commit",
            ) => Some(Self::Open),
            _ => None,
        }
    }
}

impl fmt::Display for LabelValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                f.write_str(&words.join(", "))
            }
            Self::Causes => f.write_str("each of the [causes](#causes)"),
            Self::Reasons => f.write_str("each of the [reasons](#reasons)"),
            Self::Source => f.write_str("`file`, `dns`, or the name of another source"),
            Self::Open => f.write_str("names and numbers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::families;
    use super::*;

    #[test]
    fn the_values_of_every_label_are_known() {
        for (_, family) in families() {
            for label in family.labels {
                assert!(LabelValues::of(family, label).is_some(), "{} {label}", family.name);
            }
        }
    }
}
