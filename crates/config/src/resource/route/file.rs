//! `routes`: which request goes where.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::defaults;
use crate::file::scalar::{OrNone, Timeout};
use crate::resource::cluster::priority::Priority;
use crate::resource::cluster::subsets::SubsetValue;
use crate::resource::error_pages::ErrorPage;
use crate::resource::route::edits::HeadersKey;
use crate::resource::route::hash::HashKey;
pub use crate::resource::route::matching::Match;
use crate::resource::route::mirrors::MirrorKey;
use crate::resource::route::retry::{Hedge, Retry};
use crate::resource::route::rewrite::RewriteKey;
use crate::resource::route::targets::{ShareKey, Sticky};

/// Rules for some hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-meant" = {
    "domains": "write `hosts`",
    "locations": "write `rules`",
    "rate_limit": "no limit of requests per second exists; `exchanges_per_client_max` and `requests_max` of the listener, and `requests_max` of the cluster, limit active requests",
    "rate_limits": "no limit of requests per second exists; `exchanges_per_client_max` and `requests_max` of the listener, and `requests_max` of the cluster, limit active requests",
    "routes": "write `rules`",
    "server_name": "write `hosts`",
    "virtual_hosts": "write an entry of `routes` for each of them",
}))]
pub struct RouteTable {
    /// Name in listeners, logs and metrics. Unique among route tables.
    pub name: String,
    /// The hosts: a name, `*.suffix`, `prefix.*`, or `*`. Hosts are compared in lower case, without port, and IPv6
    /// addresses as RFC 5952 writes them. An exact name has precedence over the longest suffix, that over the longest
    /// prefix, and that over `*`. `*.a.b` matches `x.a.b` and `y.x.a.b`, but not `a.b`; `a.*` matches `a.b` and
    /// `a.b.c`.
    #[serde(default = "hosts")]
    #[schemars(length(min = 1))]
    pub hosts: Vec<String>,
    /// Whether hosts are compared with the port of the request, as in Envoy: `a.example:8080` and `*.a.example:8080`
    /// match requests with this port, `a.example` matches requests without a port, and `a.*` matches any port. The
    /// hosts of such tables have precedence over those of others, except `*`.
    #[serde(default)]
    pub ports: bool,
    /// Bodies of replies to failures of requests for these hosts. They have precedence over `http.error_pages` of the
    /// listener. They also apply to `respond` with such a status and without a body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_pages: Vec<ErrorPage>,
    /// Edits of header fields of all requests that match a rule, and of their responses. They are applied after those
    /// of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<HeadersKey>,
    /// The rules. The first one that matches is used, in the order of the file. If none matches: 404.
    pub rules: Vec<Rule>,
}

// Each is kept for `/config`, ten thousand of them in a large file: what few rules have stands behind a pointer.
/// What a rule matches, and its action: one of `cluster`, `clusters`, `cluster_header`, `respond` and `redirect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {"required": ["cluster"]}, {"required": ["clusters"]}, {"required": ["cluster_header"]},
    {"required": ["respond"]}, {"required": ["redirect"]},
]))]
#[schemars(extend("x-meant" = {
    "backend": "write `cluster`",
    "destination": "write `cluster`",
    "direct_response": "write `respond`",
    "hedge_policy": "write `hedge`",
    "path": "write it in `match`, as all that a rule compares",
    "prefix": "write it in `match`, as all that a rule compares",
    "prefix_rewrite": "write `rewrite: { prefix: … }`",
    "proxy_pass": "write `cluster`, and the address in `endpoints` of that cluster",
    "limit_req": "no limit of requests per second exists; `exchanges_per_client_max` and `requests_max` of the listener, and `requests_max` of the cluster, limit active requests",
    "rate_limit": "no limit of requests per second exists; `exchanges_per_client_max` and `requests_max` of the listener, and `requests_max` of the cluster, limit active requests",
    "rate_limits": "no limit of requests per second exists; `exchanges_per_client_max` and `requests_max` of the listener, and `requests_max` of the cluster, limit active requests",
    "request_headers_to_add": "write `headers: { request: … }`",
    "response_headers_to_add": "write `headers: { response: … }`",
    "retry_policy": "write `retry`",
    "return": "write `respond` or `redirect`",
    "route": "write `cluster` or `clusters` here",
    "service": "write `cluster`",
    "to": "write `cluster`",
    "upstream": "write `cluster`",
    "use_backend": "write `cluster`",
    "weighted_clusters": "write `clusters`",
}))]
pub struct Rule {
    /// Name in metrics and `strait explain`. Unique among the rules of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// What the rule matches.
    #[serde(rename = "match")]
    pub matches: Match,
    /// The cluster that requests are forwarded to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Box<str>>,
    /// Clusters that share the requests by weight. The sum of the weights is at most 4294967295. The selection is
    /// random, or depends on the value that `sticky` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub clusters: Option<Vec<ShareKey>>,
    /// The value that selects one of `clusters`, so that a client stays with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Box<Sticky>>,
    /// The header field that contains the name of the cluster. If it is missing, occurs twice or names none of `among`:
    /// 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_header: Option<Box<str>>,
    /// The clusters that `cluster_header` may name. Absent: all clusters of the file; the client can select any of
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub among: Option<Vec<String>>,
    /// Values that are hashed to select an endpoint, if the cluster has `balance: maglev` or `ring_hash`. All values
    /// that a request has are combined, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub hash: Option<Vec<HashKey>>,
    /// The subset of the endpoints of a cluster with `subsets`: those with these values for these keys. A value is a
    /// text, or `{ header: NAME }` for the value of a header field. If the request lacks the field, the key is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<BTreeMap<String, SubsetValue>>,
    /// How the request is changed before it is forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<Box<RewriteKey>>,
    /// Edits of header fields. They are applied after those of the weighted cluster, and before those of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Box<HeadersKey>>,
    /// A fixed response from Strait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub respond: Option<Box<Respond>>,
    /// A redirect from Strait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Box<Redirect>>,
    /// Limit on the whole exchange, from the head of the request to the last byte of the response, or `none`. Beyond
    /// it: 504. Only with a cluster. For tunnels `timeouts.tunnel_idle` applies instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = defaults::EXCHANGE_TIMEOUT))]
    pub timeout: Option<OrNone<Timeout>>,
    /// When a failed request is sent again, in addition to retries that are always safe: if no endpoint can have
    /// processed it, or if it is idempotent and an idle connection was closed, there are up to three attempts. Only
    /// with a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<Retry>>,
    /// Two attempts at a time: when one takes too long, another begins at another endpoint, and the first response that
    /// `retry` does not repeat is used. The other attempt is cancelled. Each counts as a retry. Only with `retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// The priority of the requests: those with `high` have connections, a queue and limits of their own in each cluster
    /// (`high_priority`), so that others cannot use these up. Only with a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Priority::Default))]
    pub priority: Option<Priority>,
    /// Clusters that get copies of the requests. Their responses are dropped. Only with a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub mirror: Option<Vec<MirrorKey>>,
    /// The protocols that a request may upgrade to. `h2c` is never allowed. `connect` accepts `CONNECT` requests for
    /// the hosts of the table. These have no path, so the first rule with `connect` is used; it opens a tunnel to an
    /// endpoint of its cluster, which must have `protocol: http1` (for any protocol inside the tunnel). Only with a
    /// cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "default" = [defaults::UPGRADE],
        "x-meant" = {
            "true": "remove it: WebSocket is allowed by default",
            "false": "write [], which allows none",
        },
    ))]
    pub upgrades: Option<Arc<[Box<str>]>>,
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Respond {
    /// Its status.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Its body, with the content type `text/plain` unless `headers` sets another.
    #[schemars(extend("x-literal" = "body"))]
    pub body: String,
    /// Further header fields. Strait sets `content-length` and hop-by-hop fields.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-literal" = true))]
    pub headers: BTreeMap<String, String>,
}

impl Default for Respond {
    fn default() -> Self {
        Self { status: defaults::RESPOND_STATUS, body: String::new(), headers: BTreeMap::new() }
    }
}

/// A redirect. Parts of the URL that are absent do not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("not" = {"required": ["path", "prefix"]}))]
pub struct Redirect {
    /// The new scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// The new host, optionally with a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The new port, appended to the new host or to that of the request. Without it, a redirect to another scheme or
    /// host uses the default port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// Replaces the whole path. If it has a query (`?`), this replaces the query of the request, as in Envoy; a fragment (`#`) stays at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Replaces the prefix that the rule matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A regular expression; `with` replaces each part of the path that it matches. Between `^` and `$` it matches the
    /// whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The replacement for `regex`: `\1` to `\9` are its groups, `\0` is the whole match, and `\\` a backslash. It may
    /// have parameters after a `?`, which are put before those of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// The new path, with variables of the rule's `template` as `{name}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Its status. 307 and 308 preserve the method.
    #[schemars(extend("enum" = [301, 302, 303, 307, 308]))]
    pub status: u16,
    /// Whether the query is removed.
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
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

fn hosts() -> Vec<String> {
    vec![defaults::HOST.to_owned()]
}

/// Virtual hosts that listeners use together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Name, used by listeners in `routes`. Unique among route configurations and the file's route tables.
    pub name: String,
    /// Each like an entry of `routes`. Its name in metrics and logs consists of both names, with `/` between.
    pub virtual_hosts: Vec<RouteTable>,
}

/// The names of clusters in a rule.
pub(crate) fn named_by_rule(rule: &Rule) -> impl Iterator<Item = &str> {
    let shares = rule.clusters.iter().flatten().map(|share| share.cluster.as_str());
    let mirrors = rule.mirror.iter().flatten().map(|mirror| mirror.cluster.as_str());
    let among = rule.among.iter().flatten().map(String::as_str);
    rule.cluster.as_deref().into_iter().chain(shares).chain(among).chain(mirrors)
}
