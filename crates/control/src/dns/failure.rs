//! Why a name could not be resolved, which says nothing of whether it exists.

use std::fmt;

/// Why there is no answer. Former addresses stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No server answered in time.
    Timeout,
    /// SERVFAIL.
    ServFail,
    /// REFUSED.
    Refused,
    /// Another error, with its number in the registry of response codes.
    Code(u16),
    /// The server did not understand the question, with EDNS and without.
    NotUnderstood,
    /// The server knows other servers, and does not ask them.
    NoRecursion,
    /// The answer cannot be read.
    Malformed,
    /// Aliases lead round, or further than any should.
    AliasLoop,
    /// The server cannot be reached.
    Unreachable(String),
    /// No socket is to be had, whatever the server.
    NoSocket(String),
    /// There is no server to ask.
    NoServer(String),
}

/// Why a name that was answered for has no endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// NXDOMAIN.
    NoName,
    /// It has no records of the kinds that were asked for.
    NoRecords,
    /// Its SRV record says that there is no such service (RFC 2782: a dot for a target).
    NoService,
    /// No target of its SRV records has an address.
    NoTarget,
    /// It has addresses, and a service can have none of them.
    NoneUsable,
}

impl Absence {
    /// A word for it, which pages have.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::NoName => "nxdomain",
            Self::NoRecords => "no_records",
            Self::NoService => "no_service",
            Self::NoTarget => "no_target",
            Self::NoneUsable => "none_usable",
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoName => "the name does not exist (NXDOMAIN)",
            Self::NoRecords => "the name exists, but has no records of the queried types",
            Self::NoService => "the SRV record says that the service is not available (target `.`)",
            Self::NoTarget => "no target of the SRV records has an address",
            Self::NoneUsable => {
                "no address can be used: 0.0.0.0, ::, multicast, link-local, port 0, or an SRV target that is not a host name"
            }
        })
    }
}

impl Failure {
    /// A word for it, which metrics and pages have.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ServFail => "servfail",
            Self::Refused => "refused",
            Self::Code(_) => "other_code",
            Self::NotUnderstood => "not_understood",
            Self::NoRecursion => "no_recursion",
            Self::Malformed => "malformed",
            Self::AliasLoop => "alias_loop",
            Self::Unreachable(_) | Self::NoSocket(_) => "unreachable",
            Self::NoServer(_) => "no_server",
        }
    }

    /// Whether a server has said so, which counts for more than that another was silent.
    pub(super) const fn is_said(&self) -> bool {
        !matches!(
            self,
            Self::Timeout | Self::Unreachable(_) | Self::NoSocket(_) | Self::NoServer(_)
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no DNS server answered in time"),
            Self::ServFail => f.write_str("the DNS server failed (SERVFAIL)"),
            Self::Refused => f.write_str("the DNS server refused the query (REFUSED)"),
            Self::Code(code) => write!(f, "the DNS server answered with code {code}"),
            Self::NotUnderstood => f.write_str("the DNS server did not understand the query"),
            Self::NoRecursion => f.write_str("the DNS server does not support recursion"),
            Self::Malformed => f.write_str("the DNS server's answer cannot be read"),
            Self::AliasLoop => {
                f.write_str("the name's aliases (CNAME) form a loop, or are more than 16")
            }
            Self::Unreachable(error) => write!(f, "the DNS server cannot be reached: {error}"),
            Self::NoSocket(error) => {
                write!(
                    f,
                    "the DNS server cannot be asked, as there is no socket to be had: {error}"
                )
            }
            Self::NoServer(reason) => f.write_str(reason),
        }
    }
}
