//! `retry` of a rule and `retry_budget` of a cluster: which failures another attempt follows, when, and how many.
//!
//! Without either, a request is sent again only where no endpoint can have acted on it, or where it is idempotent and met
//! the end of a connection that was idle. What stands here comes on top of that. Words and meanings are those of Envoy's
//! `retry_policy` and `retry_budget`, but for methods: what is not idempotent is sent again only where the rule says so.

pub(crate) mod build;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::scalar::Timeout;
use crate::percent::Percent;
use crate::resource::access_log::file::Status;
use crate::units::{Period, Size};

/// When a request is sent again, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "retry_on": "write `on`",
    "num_retries": "write `attempts_max`, which counts the first attempt, too",
    "per_try_timeout": "write `try_timeout`",
    "retriable_status_codes": "write `status`",
    "retriable_headers": "write `headers`",
    "retry_back_off": "write `backoff`",
    "hedge": "it belongs beside `retry`",
}))]
pub struct Retry {
    /// The failures and statuses that are retried, in any order.
    #[schemars(length(min = 1))]
    pub on: Vec<RetryOn>,
    /// The statuses of `retriable_status`: `429`, `5xx`, `500-504`. From 400 to 599.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// The header fields of `retriable_headers`, in any case: a response that has one of them is retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Number of attempts, including the first, for any reason. Attempts at endpoints that send GOAWAY without
    /// processing the request do not count. 1: no retries.
    #[serde(default = "attempts_max")]
    #[schemars(range(min = 1, max = 16))]
    pub attempts_max: u8,
    /// Limit on each attempt, from when its endpoint is selected and the request is complete, to the head of the
    /// response. Beyond it: another attempt if `on` contains `5xx`, `gateway_error` or `reset`, else 504. Absent: only
    /// the timeouts of the cluster and the `timeout` of the rule apply. The latter limits all attempts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub try_timeout: Option<Timeout>,
    /// The pause before another attempt.
    #[serde(default)]
    pub backoff: Backoff,
    /// A header field of responses with the number of seconds to wait before a retry, such as `retry-after`: the pause
    /// is that long, plus up to half of it. A value that is not a number, 0, or more than `reset_max`, is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_header: Option<String>,
    /// The longest pause that `reset_header` may request.
    #[serde(default = "reset_max")]
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub reset_max: Period,
    /// Where another attempt goes. Absent: to any endpoint except that of the previous attempt, if there is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
    /// Whether requests have `x-envoy-attempt-count`, with the number of the attempt, from 1; 9 also stands for all
    /// later ones.
    #[serde(default)]
    pub attempt_count: bool,
    /// The methods that are retried although an endpoint may have processed the request.
    #[serde(default)]
    pub methods: RetryMethods,
    /// Bytes of a request body that are kept for another attempt. A request with a longer body has one attempt, once
    /// its body has begun to be sent.
    #[serde(default = "body_max")]
    #[schemars(extend("x-maximum" = "16MiB"))]
    pub body_max: Size,
}

/// When another attempt begins beside one that takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hedge {
    /// How long an attempt takes until another one begins.
    pub after: HedgeAfter,
}

/// How long an attempt takes until another one begins beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HedgeAfter {
    /// The `try_timeout` of `retry`, which then cancels only the second of two attempts. It applies whatever `on`
    /// contains.
    TryTimeout,
}

fn attempts_max() -> u8 {
    3
}

fn body_max() -> Size {
    Size::from_kib(64)
}

/// As Envoy's `max_interval`.
fn reset_max() -> Period {
    Period(Duration::from_secs(300))
}

/// Where another attempt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Elsewhere {
    /// To an endpoint that no attempt of the request has used: of the same locality and priority, else of others.
    PreviousEndpoints,
}

/// A reason to retry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-meant" = {
    "4xx": "write retriable_status here, and `status: [4xx]` beside `on`",
    "40?": "write retriable_status here, and `status: [409]` with this number beside `on`",
    "42?": "write retriable_status here, and `status: [429]` with this number beside `on`",
    "50?": "write retriable_status here, and `status: [503]` with this number beside `on`",
}))]
pub enum RetryOn {
    /// A status of 500 or more, and everything that `reset`, `connect_failure` and `refused_stream` include.
    #[serde(rename = "5xx")]
    ServerError,
    /// 502, 503 or 504, and everything that `reset`, `connect_failure` and `refused_stream` include.
    GatewayError,
    /// No response: the endpoint closes or resets the connection or the stream, violates the protocol, or exceeds
    /// `try_timeout` or a timeout of the cluster.
    Reset,
    /// No connection is established.
    ConnectFailure,
    /// The HTTP/2 endpoint refuses the stream, or sends GOAWAY without processing it.
    RefusedStream,
    /// 409.
    #[serde(rename = "retriable_4xx")]
    Conflict,
    /// A status that `status` lists.
    RetriableStatus,
    /// A response has one of the fields that `headers` lists.
    RetriableHeaders,
    /// A gRPC call ends with `CANCELLED` before its first message.
    Cancelled,
    /// A gRPC call ends with `DEADLINE_EXCEEDED` before its first message.
    DeadlineExceeded,
    /// A gRPC call ends with `INTERNAL` before its first message.
    Internal,
    /// A gRPC call ends with `RESOURCE_EXHAUSTED` before its first message.
    ResourceExhausted,
    /// A gRPC call ends with `UNAVAILABLE` before its first message.
    Unavailable,
}

impl RetryOn {
    /// All of them, with the words for them.
    const ALL: [(Self, &'static str); 13] = [
        (Self::ServerError, "5xx"),
        (Self::GatewayError, "gateway_error"),
        (Self::Reset, "reset"),
        (Self::ConnectFailure, "connect_failure"),
        (Self::RefusedStream, "refused_stream"),
        (Self::Conflict, "retriable_4xx"),
        (Self::RetriableStatus, "retriable_status"),
        (Self::RetriableHeaders, "retriable_headers"),
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
            | Self::RetriableStatus
            | Self::RetriableHeaders => None,
        }
    }
}

/// The methods that are retried although an endpoint may have processed the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryMethods {
    /// Idempotent methods (RFC 9110, section 9.2.2): GET, HEAD, OPTIONS, TRACE, PUT and DELETE.
    #[default]
    Idempotent,
    /// All methods. An endpoint may process the same request several times: for upstreams that detect repetitions, and
    /// for gRPC, whose calls are all POST.
    Any,
}

/// The pause before another attempt: a random time below `base` before the second, below three times that before the
/// third, then below seven times, and so on, and never above `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// Maximum of the first pause.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    pub base: Period,
    /// Maximum of all pauses.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "10m"))]
    pub max: Period,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Period::from_millis(25), max: Period::from_millis(250) }
    }
}

/// Limit on concurrent retries of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudget {
    /// Share of the active requests that may be retries.
    pub share: Percent,
    /// Number of retries that may always be active, however few requests there are.
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
    /// Names of fields in lower case.
    headers: Box<[Box<str>]>,
    /// The field that says how long to wait, and the longest pause that it may ask for.
    reset: Option<(Box<str>, Duration)>,
    /// Whether endpoints that were tried are passed over.
    pub avoids_previous: bool,
    /// Whether the upstream learns which attempt it gets.
    pub tells_attempts: bool,
    /// Attempts, the first included.
    pub attempts_max: u8,
    /// Bound on each attempt.
    pub try_timeout: Option<Duration>,
    /// Whether another attempt begins beside one that reaches that.
    pub hedges: bool,
    backoff: Backoff,
    /// The methods that may be sent twice.
    pub methods: RetryMethods,
    /// Bytes of a request's body that are kept.
    pub body_bytes_max: u64,
}

impl RetryPolicy {
    pub(crate) fn new(
        file: &Retry,
        hedge: Option<Hedge>,
        statuses: Box<[RangeInclusive<u16>]>,
    ) -> Self {
        let Retry { on, attempts_max, try_timeout, backoff, methods, body_max, .. } = file;
        let reset = file.reset_header.as_ref();
        Self {
            on: on.iter().fold(0, |on, word| on | word.bit()),
            statuses,
            headers: file.headers.iter().map(|name| name.to_ascii_lowercase().into()).collect(),
            reset: reset.map(|name| (name.to_ascii_lowercase().into(), file.reset_max.0)),
            avoids_previous: file.elsewhere == Some(Elsewhere::PreviousEndpoints),
            tells_attempts: file.attempt_count,
            attempts_max: *attempts_max,
            try_timeout: try_timeout.map(Into::into),
            hedges: hedge.is_some(),
            backoff: *backoff,
            methods: *methods,
            body_bytes_max: body_max.0,
        }
    }

    /// What a rule does that has no `retry`, before a request asks for more.
    fn none() -> Self {
        Self {
            on: 0,
            statuses: Box::default(),
            headers: Box::default(),
            reset: None,
            avoids_previous: false,
            tells_attempts: false,
            attempts_max: ASKED_ATTEMPTS_MAX,
            try_timeout: None,
            hedges: false,
            backoff: Backoff::default(),
            methods: RetryMethods::default(),
            body_bytes_max: body_max().0,
        }
    }

    /// What holds for a request that asks for more than its rule has. None if neither asks for anything.
    #[must_use]
    pub fn with_asked(rule: Option<&Self>, asked: &AskedRetries) -> Option<Self> {
        if rule.is_none() && asked.on == 0 && asked.try_timeout.is_none() {
            return None;
        }
        let mut policy = rule.cloned().unwrap_or_else(Self::none);
        policy.on |= asked.on;
        policy.attempts_max = asked.attempts_max.unwrap_or(policy.attempts_max);
        policy.try_timeout = asked.try_timeout.or(policy.try_timeout);
        policy.hedges = asked.hedges.unwrap_or(policy.hedges);
        let has = |word: RetryOn| asked.on & word.bit() != 0;
        if has(RetryOn::RetriableStatus) {
            let asked = asked.statuses.iter().map(|status| *status..=*status);
            policy.statuses = policy.statuses.iter().cloned().chain(asked).collect();
        }
        if has(RetryOn::RetriableHeaders) {
            policy.headers = policy.headers.iter().chain(&asked.headers).cloned().collect();
        }
        Some(policy)
    }

    /// Whether an attempt may follow a response for a field that it has.
    #[must_use]
    pub const fn is_on_headers(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Whether an attempt follows a response that has a field of one of these names.
    pub fn is_on_header(&self, mut has: impl FnMut(&[u8]) -> bool) -> bool {
        self.headers.iter().any(|name| has(name.as_bytes()))
    }

    /// The name of the field that says how long to wait.
    #[must_use]
    pub fn reset_header(&self) -> Option<&[u8]> {
        self.reset.as_ref().map(|(name, _)| name.as_bytes())
    }

    /// How long the pause is that a response asks for with this value, by a random number. None if that does not count.
    #[must_use]
    pub fn asked_pause(&self, value: &[u8], die: u64) -> Option<Duration> {
        let (_, pause_max) = self.reset.as_ref()?;
        let is_number = !value.is_empty() && value.len() <= SECONDS_DIGITS_MAX;
        let digits = Some(value).filter(|it| is_number && it.iter().all(u8::is_ascii_digit))?;
        let seconds: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
        let least = Duration::from_secs(seconds);
        if seconds == 0 || least > *pause_max {
            return None;
        }
        let more = u64::try_from(least.as_nanos() / 2).unwrap_or(u64::MAX);
        Some(least + Duration::from_nanos(die % more.max(1)))
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

/// Digits that are read of a number of seconds.
const SECONDS_DIGITS_MAX: usize = 9;

/// Attempts of a request that asks to be sent again and does not say how often, the first included: as in Envoy.
const ASKED_ATTEMPTS_MAX: u8 = 2;

/// The most attempts that a request may ask for, as a rule may.
const ATTEMPTS_MAX: u8 = 16;

/// Statuses, or names, that a request may ask for; further ones do not count.
const ASKED_MAX: usize = 16;

/// Bytes of the longest name of a field that a request may ask for.
const NAME_BYTES_MAX: usize = 128;

/// When a request asks to be sent again, by the fields of Envoy. What cannot be read does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRetries {
    on: u16,
    attempts_max: Option<u8>,
    try_timeout: Option<Duration>,
    statuses: Vec<u16>,
    headers: Vec<Box<str>>,
    /// Whether a second attempt begins when one takes too long. What moves has no second attempt any more.
    #[serde(skip)]
    hedges: Option<bool>,
}

impl AskedRetries {
    /// Whether it names a bound on each attempt.
    #[must_use]
    pub const fn has_try_timeout(&self) -> bool {
        self.try_timeout.is_some()
    }

    /// Takes the value of `x-envoy-retry-on` or `x-envoy-retry-grpc-on`.
    pub fn set_on(&mut self, value: &[u8]) {
        for asked in list(value) {
            // Words of Envoy have `-` where those of rules have `_`, and one has another name.
            let is_asked = |word: &str| {
                let word = if word == "retriable_status" { "retriable_status_codes" } else { word };
                let is_same = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
                word.len() == asked.len() && word.bytes().zip(asked.iter().copied()).all(is_same)
            };
            let found = RetryOn::ALL.into_iter().find(|(_, word)| is_asked(word));
            self.on |= found.map_or(0, |(word, _)| word.bit());
        }
    }

    /// Takes the value of `x-envoy-max-retries`: retries, where rules count attempts.
    pub fn set_retries_max(&mut self, value: &[u8]) {
        if let Some(retries) = number(value) {
            let attempts = u8::try_from(retries.saturating_add(1)).unwrap_or(u8::MAX);
            self.attempts_max = Some(attempts.min(ATTEMPTS_MAX));
        }
    }

    /// Takes the value of `x-envoy-retriable-status-codes`.
    pub fn set_statuses(&mut self, value: &[u8]) {
        let statuses = list(value).filter_map(number);
        let statuses = statuses.filter_map(|status| u16::try_from(status).ok());
        self.statuses = statuses.filter(|it| (400..=599).contains(it)).take(ASKED_MAX).collect();
    }

    /// Takes the value of `x-envoy-retriable-header-names`.
    pub fn set_headers(&mut self, value: &[u8]) {
        let names = list(value).filter(|name| name.len() <= NAME_BYTES_MAX);
        let names = names.filter_map(|name| str::from_utf8(name).ok());
        self.headers = names.take(ASKED_MAX).map(|name| name.to_ascii_lowercase().into()).collect();
    }

    /// Takes the value of `x-envoy-upstream-rq-per-try-timeout-ms`; 0 is none.
    pub fn set_try_timeout(&mut self, value: &[u8]) {
        let millis = number(value).filter(|millis| *millis > 0);
        self.try_timeout = millis.map(|millis| Duration::from_millis(millis.into()));
    }

    /// Takes the value of `x-envoy-hedge-on-per-try-timeout`: `true` or `false`, and nothing else.
    pub fn set_hedges(&mut self, value: &[u8]) {
        self.hedges = match value {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => self.hedges,
        };
    }
}

/// The words of a list with commas.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

fn number(value: &[u8]) -> Option<u32> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} attempts", self.attempts_max)?;
        if let Some(timeout) = self.try_timeout {
            let two = if self.hedges { ", two at a time after that" } else { "" };
            write!(f, " of {timeout:?} each{two}")?;
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
        self.headers.iter().try_for_each(|name| write!(f, " {name}"))?;
        if let Some((name, pause_max)) = &self.reset {
            write!(f, ", after the pause that {name} asks for, up to {pause_max:?}")?;
        }
        if self.avoids_previous {
            f.write_str(", at endpoints that were not tried")?;
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
            headers: vec!["X-Busy".to_owned()],
            reset_header: Some("Retry-After".to_owned()),
            reset_max: reset_max(),
            elsewhere: None,
            attempt_count: false,
            attempts_max: attempts_max(),
            try_timeout: None,
            backoff: Backoff::default(),
            methods: RetryMethods::default(),
            body_max: body_max(),
        };
        RetryPolicy::new(&file, None, statuses.into())
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
        let words = "up to 3 attempts of 500ms each, idempotent methods, on reset, retriable_status 429 500-504 x-busy, \
                     after the pause that retry-after asks for, up to 300s";
        assert_eq!(policy.to_string(), words);
    }

    #[test]
    fn what_a_response_asks_for_is_a_number_of_seconds_within_a_bound() {
        let policy = policy(&[RetryOn::Reset], &[]);
        let at_most =
            |value: &str| policy.asked_pause(value.as_bytes(), u64::MAX).map(|it| it.as_secs());
        for (value, seconds) in [
            ("1", Some(1)),
            ("300", Some(300)),
            ("0", None),
            ("301", None),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("100000000000000000000", None),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None),
        ] {
            assert_eq!(
                policy.asked_pause(value.as_bytes(), 0).map(|it| it.as_secs()),
                seconds,
                "{value:?}"
            );
            let longest = at_most(value);
            assert!(longest.is_none_or(|it| Some(it) >= seconds && it <= 450), "{value:?}");
        }
    }

    #[test]
    fn a_request_asks_by_the_words_of_envoy_and_what_is_none_does_not_count() {
        let asked = |on: &str, retries: &str| {
            let mut asked = AskedRetries::default();
            asked.set_on(on.as_bytes());
            asked.set_retries_max(retries.as_bytes());
            asked.set_statuses(b"429, x, 99999999999,-1,503,200");
            asked.set_headers(b"X-Again, ,");
            asked
        };
        let rule = policy(&[RetryOn::Conflict], &[]);
        for (on, retries, attempts_max) in [
            ("5xx", "", 2),
            ("5xx", "0", 1),
            ("gateway-error, reset", "4", 5),
            ("reset", "-1", 2),
            ("reset", "4294967295", 16),
            ("reset", "99999999999999999999", 2),
            ("reset", "1e3", 2),
        ] {
            let policy = RetryPolicy::with_asked(None, &asked(on, retries)).unwrap();
            assert_eq!(policy.attempts_max, attempts_max, "{on} {retries}");
            assert!(policy.is_on(RetryOn::Reset) && !policy.is_on_status(429));
            let with_rule = RetryPolicy::with_asked(Some(&rule), &asked(on, retries)).unwrap();
            assert!(with_rule.is_on_status(409) && with_rule.is_on(RetryOn::Reset));
        }
        for nothing in ["", "5XX", "reset-before-request", "5xx reset", ",,", "retriable_status"] {
            assert_eq!(RetryPolicy::with_asked(None, &asked(nothing, "3")), None, "{nothing:?}");
        }
        let asked = asked("retriable-status-codes,retriable-headers,unavailable", "1");
        let policy = RetryPolicy::with_asked(None, &asked).unwrap();
        assert!(policy.is_on_status(429) && policy.is_on_status(503) && !policy.is_on_status(200));
        assert!(policy.is_on_header(|name| name == b"x-again") && policy.is_on_grpc_status(14));
        assert!(!policy.is_on(RetryOn::Reset));
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
