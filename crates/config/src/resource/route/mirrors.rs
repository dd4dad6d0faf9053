//! `mirror` of a rule: copies of its requests go to other clusters, and what these answer is dropped.

pub(crate) mod build;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::percent::Percent;
use crate::resource::runtime::Fraction;
use crate::snapshot::id::ClusterId;

/// A cluster that gets copies of requests. A copy is sent when the request is complete, with body and trailers, and
/// given up after the rule's `timeout`, but no later than after a minute. Copies beyond `limits.mirrored_max`, of
/// incomplete requests, and of requests that upgrade to another protocol are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorKey {
    /// Name of the cluster.
    pub cluster: String,
    /// Share of requests that are copied, 0 to 100, with up to four decimals.
    #[serde(default = "whole")]
    pub percent: Percent,
    /// The runtime value that replaces `percent`: its name under `runtime`, or in the admin interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Suffix of the host of copies, before the port, so that logs distinguish copies from requests. With `""` the host
    /// does not change. IPv6 addresses never change.
    #[serde(default = "host_suffix")]
    pub host_suffix: String,
}

const fn whole() -> Percent {
    Percent::of_points(100)
}

fn host_suffix() -> String {
    defaults::MIRROR_HOST_SUFFIX.to_owned()
}

/// A cluster that gets copies of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The cluster.
    pub cluster: ClusterId,
    /// Which share of the requests is copied.
    pub fraction: Fraction,
    /// What the host of copies ends with.
    pub host_suffix: Box<str>,
}

impl Mirror {
    /// The host of a copy of a request with this host. None if it stays.
    #[must_use]
    pub fn host(&self, authority: &[u8]) -> Option<Vec<u8>> {
        if self.host_suffix.is_empty() || authority.is_empty() || authority.starts_with(b"[") {
            return None;
        }
        let end = authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len());
        let (name, port) = authority.split_at(end);
        Some([name, self.host_suffix.as_bytes(), port].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::id::Id;

    #[test]
    fn the_suffix_stands_behind_the_name_and_before_the_port() {
        for (host, suffix, expected) in [
            ("shop.example.com", "-shadow", Some("shop.example.com-shadow")),
            ("shop:8080", "-shadow", Some("shop-shadow:8080")),
            ("shop:8080", "", None),
            ("[::1]:8080", "-shadow", None),
            ("", "-shadow", None),
        ] {
            let cluster = ClusterId(Id { slot: 0, generation: 0 });
            let fraction = Fraction { percent: whole(), runtime: None };
            let mirror = Mirror { cluster, fraction, host_suffix: suffix.into() };
            let made = mirror.host(host.as_bytes());
            assert_eq!(made.as_deref(), expected.map(str::as_bytes), "{host}");
        }
    }
}
