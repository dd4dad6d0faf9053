//! `checks` of a cluster: what its endpoints are asked at intervals, so that those that do not answer well get no requests.
//!
//! Words and meanings are those of Envoy's `health_checks`, with these differences. The first check of an endpoint decides
//! at once, either way, unless it took too long. A status that is not expected counts as one failure, and decides nothing at once. Times vary by chance by up to a tenth.
//! An endpoint that has not been asked yet gets requests where its cluster is as new as itself, and none where it joined
//! others that serve. With `initial_check_timeout`, a new cluster waits for all of them, as in Envoy.

pub(crate) mod build;

mod checker;
mod judge;
mod targets;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use self::checker::{
    CHECKS_UNDER_WAY_MAX, CheckEvent, CheckResult, CheckTask, Checked, Checker, FailureWeight,
    HealthChange, HealthWord, RememberedCheck, Unfit, Warmed,
};
pub use self::judge::ANSWER_BYTES_MAX;
use crate::defaults;
use crate::findings::Problem;
use crate::resource::access_log::file::Status;
use crate::units::Period;

/// A health check, which is repeated for each endpoint: one of `http`, `grpc` and `tcp`. With several, an endpoint has
/// to pass all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// An HTTP request, in the version that the cluster speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// A call of the gRPC health service, `grpc.health.v1.Health/Check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// A TCP connection, optionally with bytes to send and to expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// Time from one check of an endpoint to the next.
    #[serde(default = "interval")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
    pub interval: Period,
    /// The same for an unhealthy endpoint. Absent: `interval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
    pub interval_unhealthy: Option<Period>,
    /// The same while the cluster has had no request since it was configured.
    #[serde(default = "interval_quiet")]
    #[schemars(extend("x-minimum" = "100ms", "x-maximum" = "1d"))]
    pub interval_quiet: Period,
    /// Maximum duration of a check, including the connection. Beyond it, the check fails.
    #[serde(default = "timeout")]
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    pub timeout: Period,
    /// Number of checks in a row that an unhealthy endpoint has to pass to get requests again.
    #[serde(default = "healthy")]
    #[schemars(range(min = 1, max = 1000))]
    pub healthy: u32,
    /// Number of failed checks in a row after which an endpoint gets no requests.
    #[serde(default = "unhealthy")]
    #[schemars(range(min = 1, max = 1000))]
    pub unhealthy: u32,
    /// Port to check instead of that of the endpoint. Without effect on unix sockets. Absent: the port of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// Whether the connection of a check is kept for the next one; requests never use it. With `false`, each HTTP/1
    /// check has a new connection. Connections of `grpc` and HTTP/2 checks are always kept, those of `tcp` checks
    /// never.
    #[serde(default = "reuse")]
    pub reuse: bool,
}

const fn interval() -> Period {
    Period::from_secs(5)
}

const fn interval_quiet() -> Period {
    Period::from_secs(60)
}

const fn timeout() -> Period {
    Period::from_secs(1)
}

const fn healthy() -> u32 {
    2
}

const fn unhealthy() -> u32 {
    3
}

const fn reuse() -> bool {
    true
}

/// An HTTP request, and the expected response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// The path, optionally with a query.
    pub path: String,
    /// The method.
    #[serde(default)]
    pub method: CheckMethod,
    /// The host of the request. Absent: the name of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Further header fields, such as `authorization`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Statuses of a healthy endpoint: `200`, `2xx`, `200-399`.
    #[serde(default = "expect")]
    #[schemars(length(min = 1))]
    pub expect: Vec<Status>,
    /// Text that the first 64 KiB of the body must contain. Absent: any body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub body: Option<String>,
}

fn expect() -> Vec<Status> {
    let all = defaults::CHECK_EXPECT;
    vec![Status::Several(format!("{}-{}", all.start(), all.end()))]
}

/// The method of a check.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum CheckMethod {
    /// GET.
    #[default]
    Get,
    /// HEAD; its response has no body.
    Head,
    /// OPTIONS.
    Options,
}

impl CheckMethod {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
        }
    }
}

/// A call of the gRPC health service: the endpoint has to respond `SERVING`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcCheck {
    /// Name of the service, up to 127 bytes. Absent: the server as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 127))]
    pub service: String,
    /// The authority of the call. Absent: the name of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A TCP connection. Without `expect`, the endpoint passes if the connection is established, including TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TcpCheck {
    /// Bytes to send, in hexadecimal and quoted: `"50494e470d0a"`. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<Hex>,
    /// Byte strings that the first 64 KiB from the endpoint must contain, in this order, with any bytes before, between
    /// and after.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub expect: Vec<Hex>,
}

/// Bytes of the longest `send`, and of all of `expect`.
const HEX_BYTES_MAX: usize = 1_024;

/// Bytes, written in hexadecimal.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex(pub(crate) Box<[u8]>);

impl JsonSchema for Hex {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9a-fA-F]{2})+$",
            "x-format": "hex",
        })
    }
}

impl FromStr for Hex {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
        let bytes: Option<Box<[u8]>> = bytes.collect();
        let is_right = rest.is_empty() && (1..=HEX_BYTES_MAX).contains(&pairs.len());
        bytes.filter(|_| is_right).map(Self).ok_or_else(|| {
            let rule =
                format!("bytes in hexadecimal are 1 to {HEX_BYTES_MAX} pairs of 0 to 9 and a to f");
            Problem::new(rule, "write \"50494e47\" for PING, for instance")
        })
    }
}

impl TryFrom<String> for Hex {
    type Error = Problem;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Hex> for String {
    fn from(hex: Hex) -> Self {
        hex.to_string()
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hex({self})")
    }
}

/// A check of a cluster's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked, and which answer is expected.
    pub probe: Probe,
    /// How long it may take.
    pub timeout: Duration,
    /// The port that is asked in place of the endpoint's.
    pub port: Option<NonZeroU16>,
    /// Whether the connection is kept for the next one.
    pub reuse: bool,
    /// When it is asked, and how often until that counts.
    pub(crate) pace: Arc<Pace>,
    /// Names what is asked, over which transport: two clusters with the same one learn the same of an address.
    pub(crate) fingerprint: u64,
}

/// When an endpoint is checked, and how many results in a row count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) interval: Period,
    pub(crate) interval_unhealthy: Period,
    pub(crate) interval_quiet: Period,
    pub(crate) timeout: Period,
    pub(crate) healthy: u32,
    pub(crate) unhealthy: u32,
}

/// What is asked, and which answer is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A request of HTTP.
    Http {
        /// Its head, as in HTTP/1.1.
        request: Box<[u8]>,
        /// The statuses of an endpoint that is healthy.
        statuses: Box<[RangeInclusive<u16>]>,
        /// What the body has to contain.
        body: Option<Box<[u8]>>,
    },
    /// A call of the health service of gRPC.
    Grpc {
        /// Its head, as in HTTP/1.1.
        request: Box<[u8]>,
        /// Its body.
        message: Box<[u8]>,
    },
    /// A connection.
    Tcp {
        /// What is sent on it.
        send: Box<[u8]>,
        /// What has to come, in this order.
        expect: Box<[Box<[u8]>]>,
    },
}

impl Check {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            interval: self.interval,
            interval_unhealthy: self.interval_unhealthy.unwrap_or(self.interval),
            interval_quiet: self.interval_quiet,
            timeout: self.timeout,
            healthy: self.healthy,
            unhealthy: self.unhealthy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pairs_of_digits() {
        let hex: Hex = "50494e470D0a".parse().unwrap();
        assert_eq!((&*hex.0, hex.to_string().as_str()), (&b"PING\r\n"[..], "50494e470d0a"));
        for text in ["", "5", "505", "5g", "0x50", "50 49", &"00".repeat(HEX_BYTES_MAX + 1)] {
            assert!(text.parse::<Hex>().is_err(), "{text}");
        }
        assert!("00".repeat(HEX_BYTES_MAX).parse::<Hex>().is_ok());
    }
}
