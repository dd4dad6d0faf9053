//! `retry` of a rule and `retry_budget` of a cluster: which failures another attempt follows, when, and how many.
//!
//! Without either, a request is sent again only where no endpoint can have acted on it, or where it is idempotent and met
//! the end of a connection that was idle. What stands here comes on top of that. Words and meanings are those of Envoy's
//! `retry_policy` and `retry_budget`, but for methods: what is not idempotent is sent again only where the rule says so.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::Timeout;
use crate::file::access_log::Status;
use crate::matching::Percent;
use crate::units::{Period, Size};

/// When a request is sent again, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// What another attempt follows, in any order.
    #[schemars(length(min = 1))]
    pub on: Vec<RetryOn>,
    /// The statuses of `retriable_status`: `429`, `5xx`, `500-504`. From 400 to 599.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// Attempts, the first included, whatever they are made for; only endpoints that go away before they look at a request
    /// do not count. With 1, no request is sent again.
    #[serde(default = "attempts_max")]
    #[schemars(range(min = 1, max = 16))]
    pub attempts_max: u8,
    /// Bound on each attempt, from when its endpoint was chosen and the request is here whole, to the head of the response.
    /// Beyond it: another attempt if `on` has `5xx`, `gateway_error` or `reset`, else 504. Absent: none but those of the
    /// cluster and the rule's `timeout`, which bounds all attempts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub try_timeout: Option<Timeout>,
    /// The pause before another attempt.
    #[serde(default)]
    pub backoff: Backoff,
    /// The methods that are sent again although an endpoint may have acted on the request.
    #[serde(default)]
    pub methods: RetryMethods,
    /// Bytes of a request's body that are kept for another attempt. A request with a longer one has one attempt, once its
    /// body was begun to be sent.
    #[serde(default = "body_max")]
    #[schemars(extend("x-maximum" = "16MiB"))]
    pub body_max: Size,
}

fn attempts_max() -> u8 {
    3
}

fn body_max() -> Size {
    Size::from_kib(64)
}

/// What another attempt follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// A status from 500 on, and all that `reset`, `connect_failure` and `refused_stream` are for.
    #[serde(rename = "5xx")]
    ServerError,
    /// 502, 503 or 504, and all that `reset`, `connect_failure` and `refused_stream` are for.
    GatewayError,
    /// The endpoint gives no response: it closes or resets the connection or the stream, breaks the protocol, or takes
    /// longer than `try_timeout` or a timeout of the cluster.
    Reset,
    /// No connection can be established.
    ConnectFailure,
    /// The endpoint of HTTP/2 refuses the stream, or goes away before it looks at it.
    RefusedStream,
    /// 409.
    #[serde(rename = "retriable_4xx")]
    Conflict,
    /// One of the statuses that `status` has.
    RetriableStatus,
    /// A call of gRPC ends at once with `CANCELLED`.
    Cancelled,
    /// A call of gRPC ends at once with `DEADLINE_EXCEEDED`.
    DeadlineExceeded,
    /// A call of gRPC ends at once with `INTERNAL`.
    Internal,
    /// A call of gRPC ends at once with `RESOURCE_EXHAUSTED`.
    ResourceExhausted,
    /// A call of gRPC ends at once with `UNAVAILABLE`.
    Unavailable,
}

impl RetryOn {
    /// All of them, with the words for them.
    const ALL: [(Self, &'static str); 12] = [
        (Self::ServerError, "5xx"),
        (Self::GatewayError, "gateway_error"),
        (Self::Reset, "reset"),
        (Self::ConnectFailure, "connect_failure"),
        (Self::RefusedStream, "refused_stream"),
        (Self::Conflict, "retriable_4xx"),
        (Self::RetriableStatus, "retriable_status"),
        (Self::Cancelled, "cancelled"),
        (Self::DeadlineExceeded, "deadline_exceeded"),
        (Self::Internal, "internal"),
        (Self::ResourceExhausted, "resource_exhausted"),
        (Self::Unavailable, "unavailable"),
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The status of gRPC that it is for, if it is for one.
    pub(crate) const fn grpc_status(self) -> Option<u32> {
        match self {
            Self::Cancelled => Some(1),
            Self::DeadlineExceeded => Some(4),
            Self::ResourceExhausted => Some(8),
            Self::Internal => Some(13),
            Self::Unavailable => Some(14),
            Self::ServerError
            | Self::GatewayError
            | Self::Reset
            | Self::ConnectFailure
            | Self::RefusedStream
            | Self::Conflict
            | Self::RetriableStatus => None,
        }
    }
}

/// The methods that are sent again although an endpoint may have acted on the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryMethods {
    /// Those that are idempotent (RFC 9110, section 9.2.2): GET, HEAD, OPTIONS, TRACE, PUT and DELETE.
    #[default]
    Idempotent,
    /// All. An endpoint may act on the same request several times: for services that tell, and for gRPC, whose calls are
    /// all POST.
    Any,
}

/// The pause before another attempt: a random time below `base` before the second, below three times that before the
/// third, then below seven times, and so on, and never above `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// Bound of the first pause.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub base: Period,
    /// Bound of all.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "10m"))]
    pub max: Period,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Period::from_millis(25), max: Period::from_millis(250) }
    }
}

/// How many retries a cluster takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudget {
    /// The share of the requests under way that may be retries.
    pub share: Percent,
    /// So many retries may be under way at any time, however few requests are.
    pub at_least: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { share: Percent::FIFTH, at_least: 3 }
    }
}

impl RetryBudget {
    /// How many retries may be under way among so many `requests`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of 32 bits has no more, and none is below 0"
    )]
    pub fn retries_max(&self, requests: u32) -> u32 {
        ((f64::from(requests) * self.share.part()).ceil() as u32).max(self.at_least)
    }

    /// Whether one more retry may begin while so many are under way, among so many `requests`.
    #[must_use]
    pub fn allows(&self, retries: u32, requests: u32) -> bool {
        retries < self.retries_max(requests)
    }
}

/// When a request is sent again, ready to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    on: u16,
    statuses: Box<[RangeInclusive<u16>]>,
    /// Attempts, the first included.
    pub attempts_max: u8,
    /// Bound on each attempt.
    pub try_timeout: Option<Duration>,
    backoff: Backoff,
    /// The methods that may be sent twice.
    pub methods: RetryMethods,
    /// Bytes of a request's body that are kept.
    pub body_bytes_max: u64,
}

impl RetryPolicy {
    pub(crate) fn new(file: &Retry, statuses: Box<[RangeInclusive<u16>]>) -> Self {
        let Retry { on, attempts_max, try_timeout, backoff, methods, body_max, .. } = file;
        Self {
            on: on.iter().fold(0, |on, word| on | word.bit()),
            statuses,
            attempts_max: *attempts_max,
            try_timeout: try_timeout.map(Into::into),
            backoff: *backoff,
            methods: *methods,
            body_bytes_max: body_max.0,
        }
    }

    /// Whether an attempt follows one that had no response, for the reason that `word` says.
    #[must_use]
    pub const fn is_on(&self, word: RetryOn) -> bool {
        let all = word.bit() | RetryOn::ServerError.bit() | RetryOn::GatewayError.bit();
        self.on & all != 0
    }

    /// Whether an attempt follows a response with this status.
    #[must_use]
    pub fn is_on_status(&self, status: u16) -> bool {
        let has = |word: RetryOn| self.on & word.bit() != 0;
        (status >= 500 && has(RetryOn::ServerError))
            || (matches!(status, 502..=504) && has(RetryOn::GatewayError))
            || (status == 409 && has(RetryOn::Conflict))
            || self.statuses.iter().any(|range| range.contains(&status))
    }

    /// Whether an attempt follows a call of gRPC that ended at once with this status.
    #[must_use]
    pub fn is_on_grpc_status(&self, status: u32) -> bool {
        self.words().any(|(word, _)| word.grpc_status() == Some(status))
    }

    /// What it is on, with the words for that.
    fn words(&self) -> impl Iterator<Item = (RetryOn, &'static str)> {
        RetryOn::ALL.into_iter().filter(|(word, _)| self.on & word.bit() != 0)
    }

    /// How long the pause is before the retry with this number, from 1, by a random number.
    #[must_use]
    pub fn pause(&self, retry: u8, die: u64) -> Duration {
        let factor = (1_u64 << retry.clamp(1, 32)) - 1;
        let nanos = |period: Period| u64::try_from(period.0.as_nanos()).unwrap_or(u64::MAX);
        let below = nanos(self.backoff.base).saturating_mul(factor);
        Duration::from_nanos((die % below.max(1)).min(nanos(self.backoff.max)))
    }
}

impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} attempts", self.attempts_max)?;
        if let Some(timeout) = self.try_timeout {
            write!(f, " of {timeout:?} each")?;
        }
        let methods = match self.methods {
            RetryMethods::Idempotent => "idempotent methods",
            RetryMethods::Any => "any method",
        };
        write!(f, ", {methods}, on ")?;
        for (place, (_, word)) in self.words().enumerate() {
            write!(f, "{}{word}", if place > 0 { ", " } else { "" })?;
        }
        for range in &self.statuses {
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, " {first}")?,
                (first, last) => write!(f, " {first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(on: &[RetryOn], statuses: &[RangeInclusive<u16>]) -> RetryPolicy {
        let file = Retry {
            on: on.to_vec(),
            status: Vec::new(),
            attempts_max: attempts_max(),
            try_timeout: None,
            backoff: Backoff::default(),
            methods: RetryMethods::default(),
            body_max: body_max(),
        };
        RetryPolicy::new(&file, statuses.into())
    }

    #[test]
    fn each_word_is_for_its_statuses_alone() {
        for (on, statuses, taken) in [
            (RetryOn::ServerError, &[][..], &[500, 501, 502, 503, 504, 599][..]),
            (RetryOn::GatewayError, &[], &[502, 503, 504]),
            (RetryOn::Conflict, &[], &[409]),
            (RetryOn::RetriableStatus, &[429..=429, 506..=507], &[429, 506, 507]),
            (RetryOn::Reset, &[], &[]),
            (RetryOn::Unavailable, &[], &[]),
        ] {
            let policy = policy(&[on], statuses);
            let all = (100..=599).filter(|status| policy.is_on_status(*status));
            if on == RetryOn::ServerError {
                assert!(all.eq(500..=599));
            } else {
                assert_eq!(all.collect::<Vec<_>>(), taken, "{on:?}");
            }
        }
    }

    #[test]
    fn server_and_gateway_errors_include_the_lack_of_a_response() {
        let words = [RetryOn::Reset, RetryOn::ConnectFailure, RetryOn::RefusedStream];
        for on in [RetryOn::ServerError, RetryOn::GatewayError] {
            assert!(words.iter().all(|word| policy(&[on], &[]).is_on(*word)));
        }
        for on in words {
            let policy = policy(&[on], &[]);
            assert!(words.into_iter().all(|word| policy.is_on(word) == (word == on)));
        }
    }

    #[test]
    fn calls_are_sent_again_by_their_own_statuses() {
        let all = RetryOn::ALL.into_iter().map(|(word, _)| word);
        for word in all.filter(|word| word.grpc_status().is_some()) {
            let policy = policy(&[word], &[]);
            let taken: Vec<u32> =
                (0..20).filter(|status| policy.is_on_grpc_status(*status)).collect();
            assert_eq!(taken, [word.grpc_status().unwrap()]);
        }
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        let policy = policy(&[RetryOn::Reset], &[]);
        let longest = |retry: u8| {
            let base = 25_000_000 * ((1_u64 << retry) - 1);
            policy.pause(retry, base - 1)
        };
        assert_eq!(longest(1), Duration::from_nanos(24_999_999));
        assert_eq!(longest(2), Duration::from_nanos(74_999_999));
        assert_eq!(longest(3), Duration::from_nanos(174_999_999));
        for retry in [4, 16, u8::MAX] {
            let pause = policy.pause(retry, 249_999_999 + 25_000_000 * 15 * 1_000);
            assert!(pause <= Duration::from_millis(250), "{retry}: {pause:?}");
        }
        assert_eq!(policy.pause(1, 0), Duration::ZERO);
    }

    #[test]
    fn a_policy_says_what_it_does() {
        let mut policy =
            policy(&[RetryOn::RetriableStatus, RetryOn::Reset], &[429..=429, 500..=504]);
        policy.try_timeout = Some(Duration::from_millis(500));
        let words = "up to 3 attempts of 500ms each, idempotent methods, on reset, retriable_status 429 500-504";
        assert_eq!(policy.to_string(), words);
    }

    #[test]
    fn a_budget_is_a_share_and_never_less_than_the_least() {
        let budget = RetryBudget::default();
        for (retries, requests, allows) in [
            (0, 0, true),
            (2, 2, true),
            (3, 3, false),
            (3, 15, false),
            (3, 16, true),
            (19, 100, true),
            (20, 100, false),
        ] {
            assert_eq!(budget.allows(retries, requests), allows, "{retries} of {requests}");
        }
        let none = RetryBudget { share: "0".parse().unwrap(), at_least: 0 };
        assert!(!none.allows(0, 1_000));
    }
}
