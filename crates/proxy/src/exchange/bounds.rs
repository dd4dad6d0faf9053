//! Which option bounds what an exchange waits for or may have, for the log of one that failed.

use std::time::Duration;

use config::priority::{Bounds, Priority};
use config::snapshot::Cluster;
use telemetry::cause::Cause;
use wire::h1::HeadError;

use crate::connection::codec::elements::Invalid;
use crate::exchange::stage::{Stage, Suspended};
use crate::exchange::{Exchange, ExchangeKind, Wait};
use crate::tools::detail::Detail;

impl Exchange {
    /// The option that ends this wait, and its value. None if the configuration has none.
    pub(crate) fn bound_of(&self, wait: Wait) -> Option<Detail> {
        if let Some(rate) = self.rate_of(wait) {
            return Some(rate);
        }
        let listener = self.listener().timeouts;
        let cluster = self.cluster().map(|cluster| cluster.timeouts);
        let (option, bound) = match wait {
            Wait::Whole => return self.whole_bound(),
            Wait::RequestBody => {
                ("timeouts.request_body of the listener", Some(listener.request_body))
            }
            Wait::Filter if self.awaits_cluster() => return Some(self.why_no_cluster()),
            Wait::Filter => ("timeouts.filter of the listener", Some(listener.filter)),
            Wait::ResponseWrite => {
                ("timeouts.response_write of the listener", Some(listener.response_write))
            }
            Wait::TunnelIdle => {
                ("timeouts.tunnel_idle of the listener", Some(listener.tunnel_idle))
            }
            Wait::Try => (
                match self.asked_retries() {
                    Some(_) => "retry.try_timeout of the rule or of the request",
                    None => "retry.try_timeout of the rule",
                },
                self.retry_policy().and_then(|policy| policy.try_timeout),
            ),
            Wait::Backoff => return None,
            Wait::Connection | Wait::Pause => {
                let is_warming = self.cluster().is_some_and(|cluster| cluster.warming.waits());
                let option = match is_warming {
                    true => {
                        "timeouts.pending of the cluster, whose initial_check_timeout is longer"
                    }
                    false => "timeouts.pending of the cluster",
                };
                (option, cluster.map(|it| it.pending))
            }
            Wait::RequestWrite => {
                ("timeouts.request_write of the cluster", cluster.map(|it| it.request_write))
            }
            Wait::ResponseHead => {
                ("timeouts.response_head of the cluster", cluster.map(|it| it.response_head))
            }
            Wait::ResponseBody if !self.request.is_complete => {
                let bound = cluster?.response_body;
                let words = format_args!(
                    "timeouts.response_body of the cluster: {bound:?}, and the client has not ended its request"
                );
                return Some(Detail::of(&words));
            }
            Wait::ResponseBody => {
                ("timeouts.response_body of the cluster", cluster.map(|it| it.response_body))
            }
        };
        bound.map(|bound| Detail::of_bound(option, bound))
    }

    /// The least rate that its client fell below, if it is that.
    fn rate_of(&self, wait: Wait) -> Option<Detail> {
        let http = &self.listener().http;
        let (option, bytes_min) = match wait {
            Wait::RequestBody if self.is_request_slow => {
                ("http.request_rate_min", http.request_rate_bytes_min)
            }
            Wait::ResponseWrite if self.is_response_slow => {
                ("http.response_rate_min", http.response_rate_bytes_min)
            }
            _ => return None,
        };
        Some(Detail::of(&format_args!("{option} of the listener: {bytes_min} bytes a second")))
    }

    /// The bound on the whole: what its rule allows, or the client of a call asked for.
    fn whole_bound(&self) -> Option<Detail> {
        let allowed = self.forward()?.timeout;
        if let Some(asked) =
            self.time_of_call().filter(|asked| allowed.is_none_or(|it| *asked < it))
        {
            let waits_for = self.waits_for();
            let words = format_args!("timeout of the call: {asked:?}, waiting for {waits_for}");
            return Some(Detail::of(&words));
        }
        let asked: Option<Duration> = self.call.as_ref().and_then(|call| call.timeout);
        match (asked, allowed) {
            (Some(asked), allowed) if allowed.is_none_or(|allowed| asked <= allowed) => {
                Some(Detail::of_bound("grpc-timeout of the client", asked))
            }
            _ if self.listener().http.trust_timeouts => {
                let waits_for = self.waits_for();
                let words =
                    format_args!("timeout of the rule or of the request, waiting for {waits_for}");
                Some(Detail::of(&words))
            }
            (_, allowed) => allowed.map(|allowed| {
                let waits_for = self.waits_for();
                let words =
                    format_args!("timeout of the rule: {allowed:?}, waiting for {waits_for}");
                Detail::of(&words)
            }),
        }
    }

    /// How long a call of an RPC protocol may take, by its rule or by itself.
    fn time_of_call(&self) -> Option<Duration> {
        let deadline = self.deadlines.get(Wait::Whole);
        let is_bounded = self.kind == ExchangeKind::Rpc && deadline.is_set();
        is_bounded.then(|| deadline - self.record.stamps.head_read)
    }

    /// What it waits for.
    fn waits_for(&self) -> &'static str {
        let stamps = &self.record.stamps;
        let is_connecting = stamps.connect_began.is_set()
            && !stamps.connected.is_set()
            && !stamps.write_began.is_set();
        match self.stage() {
            Stage::Suspended(_) if self.awaits_cluster() => "a source to deliver the cluster",
            Stage::Suspended(_) => "the answer to a filter's question",
            Stage::Gathering { .. } | Stage::Buffering { .. } => "the request's body",
            Stage::Waiting { .. } | Stage::Retrying { .. } => "a connection of the cluster",
            Stage::Pausing { .. } => "the next attempt",
            Stage::Attempting { .. } if is_connecting => "the connection or its TLS handshake",
            Stage::Attempting { .. } if stamps.body_since.is_set() => "the request's body",
            Stage::Attempting { .. } if !self.request.is_complete => {
                "the upstream to read the request"
            }
            Stage::Attempting { .. } => "the response",
            Stage::Responding { .. } if stamps.held_since.is_set() => {
                "the client to read the response"
            }
            Stage::Responding { .. } => "the end of the response",
            Stage::Finishing => "the client to read the response",
        }
    }

    /// Where the bounds of its cluster stand that are its own, as the beginning of their names.
    fn key_of_bounds(&self) -> &'static str {
        match self.priority() {
            Priority::Default => "",
            Priority::High => "high_priority.",
        }
    }

    /// What the configuration has to do with a failure of this cause, if that is what it lacks or bounds.
    pub(crate) fn configured_reason(&self, cause: Cause) -> Option<Detail> {
        match cause {
            Cause::NoEndpoint => Some(self.why_no_endpoint()),
            Cause::PendingOverflow => {
                let (cluster, key) = (self.cluster()?, self.key_of_bounds());
                let Bounds { connections_max, pending_max, .. } =
                    cluster.bounds_of(self.priority());
                if cluster.warming.waits() {
                    return Some(Detail::of(&format_args!(
                        "{key}pending_max of the cluster: {pending_max}, whose endpoints are checked first"
                    )));
                }
                Some(match cluster.per_endpoint_max(self.priority()) {
                    None => Detail::of(&format_args!(
                        "{key}connections_max of the cluster: {connections_max}, and {key}pending_max: {pending_max}"
                    )),
                    Some(of_each) => Detail::of(&format_args!(
                        "{key}connections_max of the cluster: {connections_max}, connections_per_endpoint_max: {of_each}, and {key}pending_max: {pending_max}"
                    )),
                })
            }
            Cause::RequestsOverflow => {
                let max = self.cluster()?.bounds_of(self.priority()).requests_max?;
                let key = self.key_of_bounds();
                Some(Detail::of(&format_args!("{key}requests_max of the cluster: {max}")))
            }
            Cause::ConcurrencyLimited => {
                let adaptive = self.cluster()?.adaptive.as_ref()?;
                let limit = adaptive.limit();
                Some(match adaptive.min_rtt().filter(|_| !adaptive.is_measuring()) {
                    Some(min_rtt) => Detail::of(&format_args!(
                        "adaptive_concurrency of the cluster: {limit} now; the minimum response time is {min_rtt:.1?}"
                    )),
                    None => Detail::of(&format_args!(
                        "adaptive_concurrency of the cluster: {limit} while the minimum response time is measured"
                    )),
                })
            }
            Cause::RequestBodyTooLarge => {
                let max = self.listener().http.body_bytes_max?;
                Some(Detail::of(&format_args!("http.body_max of the listener: {max} bytes")))
            }
            _ => None,
        }
    }

    /// The option that a request's head goes beyond, and its value, if it breaks no other rule.
    pub(crate) fn bound_of_head(&self, error: &Invalid) -> Option<Detail> {
        let http = &self.listener().http;
        let (option, bound, unit) = match error {
            Invalid::Head(HeadError::HeadTooLarge) => ("head_max", http.head_bytes_max, " bytes"),
            Invalid::Head(HeadError::FieldsTooMany) => ("fields_max", http.fields_max.into(), ""),
            Invalid::Head(HeadError::LineTooLong) => {
                ("request_line_max", http.request_line_bytes_max, " bytes")
            }
            _ => return None,
        };
        Some(Detail::of(&format_args!("http.{option} of the listener: {bound}{unit}")))
    }

    /// No source has delivered the cluster that it waits for.
    fn why_no_cluster(&self) -> Detail {
        let timeout = self.snapshot.resolvers.on_demand_timeout;
        let name = match self.stage() {
            Stage::Suspended(Suspended { question, .. }) => {
                String::from_utf8_lossy(&question.payload)
            }
            _ => "".into(),
        };
        Detail::of(&format_args!(
            "no source has delivered the cluster {name} within resolvers.on_demand_timeout: {timeout:?}"
        ))
    }

    /// Why none of the endpoints that the cluster has may be chosen.
    fn why_none_of(&self, cluster: &Cluster) -> &'static str {
        let subset = self.route.as_ref().and_then(|route| route.subset);
        let is_of_none = cluster.selectors.is_some() && cluster.view.levels(subset).is_empty();
        match subset {
            _ if cluster.endpoints.iter().all(|endpoint| endpoint.weight == 0) => {
                let drained = cluster.endpoints.iter().filter(|endpoint| endpoint.is_drained);
                match drained.count() {
                    0 => "every endpoint of the cluster has weight 0",
                    count if count == cluster.endpoints.len() => {
                        "every endpoint of the cluster is drained"
                    }
                    _ => "every endpoint of the cluster is drained or has weight 0",
                }
            }
            Some(_) if is_of_none => {
                "no endpoint is in the subset that the rule asks for, and subsets.fallback of the cluster is none"
            }
            None if is_of_none => {
                "the rule asks for no subset, and subsets.fallback of the cluster is none"
            }
            _ => {
                "no endpoint with a weight is healthy, and panic of the cluster is off: /clusters says why"
            }
        }
    }

    fn why_no_endpoint(&self) -> Detail {
        let Some(cluster) = self.cluster() else {
            return Detail::of(&"the cluster was removed from the configuration");
        };
        if !cluster.endpoints.is_empty() {
            return Detail::of(&self.why_none_of(cluster));
        }
        let why = cluster.endpoints_from.why_none();
        let why = why.unwrap_or_else(|| {
            "no host name of the cluster has an address: host_names of /config says why".into()
        });
        Detail::of(&why)
    }
}
