//! Upstream connections and attempts.

use super::LabelId;
use crate::cause::Cause;

/// An upstream connection was established.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamConnected {
    /// The cluster.
    pub cluster: LabelId,
    /// From connect to established, ns.
    pub duration: u64,
}

/// An upstream connection could not be established.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamConnectFailed {
    /// The cluster.
    pub cluster: LabelId,
    /// The endpoint.
    pub endpoint: LabelId,
    /// The name of the kernel's error, which time was over, or a word for how the handshake of TLS failed.
    pub reason: &'static str,
    /// Wall-clock time, ns since the Unix epoch.
    pub at: u64,
    /// [`Cause::ConnectFailed`], [`Cause::ConnectTimeout`] or [`Cause::OutOfDescriptors`].
    pub cause: Cause,
}

/// An established upstream connection ended.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamClosed {
    /// The cluster.
    pub cluster: LabelId,
    /// Why, if not because either side was done with it.
    pub cause: Option<Cause>,
    /// From established to closed, ns.
    pub lifetime: u64,
    /// Requests it carried.
    pub requests: u32,
}

/// A copy of a request, which `mirror` of a rule made, is over.
#[derive(Clone, Copy, Debug)]
pub struct CopyFinished {
    /// The cluster that it went to.
    pub cluster: LabelId,
    /// The status of the response; 0 if there was none, or it broke off.
    pub status: u16,
}

/// Why a copy of a request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MirrorDrop {
    /// Copies hold as much as `limits.mirrored_max` allows.
    Memory,
    /// The request ended before it was whole.
    Incomplete,
    /// The cluster speaks another protocol than the request.
    Protocol,
    /// The cluster is not there.
    NoCluster,
    /// It got no connection.
    Unsent,
}

impl MirrorDrop {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Memory, Self::Incomplete, Self::Protocol, Self::NoCluster, Self::Unsent];

    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Incomplete => "incomplete",
            Self::Protocol => "protocol",
            Self::NoCluster => "no_cluster",
            Self::Unsent => "unsent",
        }
    }
}

/// How an endpoint was chosen for an attempt, where more than the balancer had a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChoiceKind {
    /// In the locality of the process.
    OwnLocality,
    /// In another one.
    OtherLocality,
    /// Of a priority behind the first.
    Failover,
    /// Of the degraded endpoints, since the healthy ones are too few.
    Degraded,
    /// Of all endpoints, also those that are ejected or unhealthy, since few are left.
    Panic,
}

impl ChoiceKind {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::OwnLocality, Self::OtherLocality, Self::Failover, Self::Degraded, Self::Panic];

    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OwnLocality => "own_locality",
            Self::OtherLocality => "other_locality",
            Self::Failover => "failover",
            Self::Degraded => "degraded",
            Self::Panic => "panic",
        }
    }
}

/// An exchange is tried again on another connection.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamRetried {
    /// The cluster.
    pub cluster: LabelId,
    /// Why the former attempt ended.
    pub cause: Cause,
}

/// Another attempt was asked for by its rule, and is not made.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamRetryDenied {
    /// The cluster.
    pub cluster: LabelId,
    /// Why it is not made.
    pub reason: RetryDenial,
}

/// Why an attempt that a rule asks for is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RetryDenial {
    /// The cluster's `retry_budget` is used up.
    Budget,
    /// The request has had `attempts_max`.
    Attempts,
    /// Not all of the request is kept.
    Body,
    /// An endpoint may have acted on the request, and its method is not idempotent.
    Method,
    /// The response asks for a pause that the rule's `timeout` does not have room for.
    Timeout,
}

impl RetryDenial {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Budget, Self::Attempts, Self::Body, Self::Method, Self::Timeout];

    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Attempts => "attempts",
            Self::Body => "body",
            Self::Method => "method",
            Self::Timeout => "timeout",
        }
    }
}

/// An upstream closed several connections in a row by GOAWAY with a last stream of 0, without
/// processing a request, and is not connected to for a while.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamPaused {
    /// The cluster.
    pub cluster: LabelId,
    /// The endpoint.
    pub endpoint: LabelId,
    /// Until when; wall-clock time, ns since the Unix epoch.
    pub until: u64,
}
