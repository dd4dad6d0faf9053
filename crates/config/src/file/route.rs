//! `routes`: which request goes where.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OrNone, Timeout};
use crate::defaults;
use crate::edits::HeadersKey;
use crate::error_pages::ErrorPage;
use crate::hash::HashKey;
pub use crate::matching::Match;
use crate::mirrors::MirrorKey;
use crate::retry::Retry;
use crate::rewrite::RewriteKey;
use crate::subsets::SubsetValue;
use crate::targets::{ShareKey, Sticky};

/// A table of rules for some hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteTable {
    /// Name, used by listeners, in logs and metrics. Unique among route tables.
    pub name: String,
    /// The hosts it is for: a name, `*.suffix` for every name that ends with it, `prefix.*` for every name that
    /// begins with it, or `*`. Hosts are matched in lower case and without their port; a name goes before the longest
    /// suffix, that before the longest prefix, and that before `*`. `*.a.b` matches `x.a.b` and `y.x.a.b`, but not
    /// `a.b`; `a.*` matches `a.b` and `a.b.c`.
    #[serde(default = "hosts")]
    #[schemars(length(min = 1))]
    pub hosts: Vec<String>,
    /// Whether hosts are compared with the port that a request names, as Envoy does: `a.example:8080` and `*.a.example:8080` are for
    /// requests that name this port, `a.example` for those that name none, and `a.*` for any. Hosts of such tables go before those of
    /// others, but for `*`.
    #[serde(default)]
    pub ports: bool,
    /// What replies to failures of requests for these hosts say, before those of the listener are looked at
    /// (`http.error_pages`). A `respond` with such a status and no body has one as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_pages: Vec<ErrorPage>,
    /// Edits of header fields, of all requests that meet a rule, and of their responses. They come after those of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<HeadersKey>,
    /// The rules. The first that matches, in the order of the file, is taken. None matches: 404.
    pub rules: Vec<Rule>,
}

/// What it matches, and what is done: one of `cluster`, `clusters`, `cluster_header`, `respond` and `redirect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["cluster"]}, {"required": ["clusters"]}, {"required": ["cluster_header"]},
    {"required": ["respond"]}, {"required": ["redirect"]},
]))]
pub struct Rule {
    /// Name, for metrics and `strait explain`. Unique among the rules of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it matches.
    #[serde(rename = "match")]
    pub matches: Match,
    /// The cluster that the request is forwarded to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Clusters that share the requests by their weights, which add up to at most 4294967295. A die decides, or the
    /// value that `sticky` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub clusters: Option<Vec<ShareKey>>,
    /// The value that decides among `clusters` for each client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// The header field that has the name of the cluster. If it is absent, stands twice or names none of `among`: 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_header: Option<String>,
    /// The clusters that `cluster_header` may name. Absent: all of the file, which a client then chooses from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub among: Option<Vec<String>>,
    /// Values that say to which endpoint a request goes, where the cluster balances by hash (`maglev`, `ring_hash`). All
    /// that a request has of them count, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub hash: Option<Vec<HashKey>>,
    /// Which endpoints of a cluster with `subsets` a request goes to: those with these values under these keys. A value
    /// is a text, or `{ header: NAME }` for the one that the request has; without it, the request does not ask for the
    /// key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<BTreeMap<String, SubsetValue>>,
    /// How the request is changed before it is forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<RewriteKey>,
    /// Edits of header fields. They come after those of the weighted cluster, and before those of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<HeadersKey>,
    /// A response that is given from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub respond: Option<Respond>,
    /// A redirect that is given from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    /// Bound on the whole exchange, from the request's head to the response's last byte, or
    /// `none`. Beyond it: 504. Only for what is forwarded. A tunnel has its own, `timeouts.tunnel_idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = defaults::EXCHANGE_TIMEOUT))]
    pub timeout: Option<OrNone<Timeout>>,
    /// When a request is sent again, beyond where it is safe without asking: if no endpoint can have acted on it, or if it
    /// is idempotent and met the end of a connection that was idle, there are three attempts in all. Only for what is
    /// forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Clusters that get copies of the requests, whose responses are dropped. Only for what is forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub mirror: Option<Vec<MirrorKey>>,
    /// The protocols that a request may upgrade to. `h2c` is never let through. `connect` takes
    /// the `CONNECT` requests for the hosts of its table, which have no path: the first rule with it
    /// opens a tunnel of bytes to an endpoint of its cluster (of `protocol: http1`, whatever is
    /// spoken there). Only for what is forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = [defaults::UPGRADE]))]
    pub upgrades: Option<Vec<String>>,
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Respond {
    /// Status.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Body, sent as `text/plain` unless `headers` says otherwise.
    pub body: String,
    /// Further header fields. `content-length` and the fields of a connection are set by Strait.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-literal" = true))]
    pub headers: BTreeMap<String, String>,
}

impl Default for Respond {
    fn default() -> Self {
        Self { status: defaults::RESPOND_STATUS, body: String::new(), headers: BTreeMap::new() }
    }
}

/// A redirect: what is absent stays as the request had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("not" = {"required": ["path", "prefix"]}))]
pub struct Redirect {
    /// The new scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// The new host, with a port if there is to be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The new port, behind the new host or that of the request. Without it, a redirect to another scheme or host
    /// leads to the port that is usual there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// Stands in for the whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Stands in for the prefix that was matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A regular expression; each part of the path that it matches is replaced by `with`. Between `^` and `$` it
    /// matches the whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// What stands in for what `regex` matches: `\1` to `\9` are its groups, `\0` is all of it, and `\\` a backslash.
    /// Behind a `?` it may have parameters, which go before those of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// The new path, with the variables of the rule's `template` as `{name}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Status. 307 and 308 keep the method.
    #[schemars(extend("enum" = [301, 302, 303, 307, 308]))]
    pub status: u16,
    /// Whether the request's query is dropped.
    pub strip_query: bool,
}

impl Default for Redirect {
    fn default() -> Self {
        Self {
            scheme: None,
            host: None,
            port: None,
            path: None,
            prefix: None,
            regex: None,
            with: None,
            template: None,
            status: defaults::REDIRECT_STATUS,
            strip_query: false,
        }
    }
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Plain.
    Http,
    /// With TLS.
    Https,
}

fn hosts() -> Vec<String> {
    vec![defaults::HOST.to_owned()]
}
