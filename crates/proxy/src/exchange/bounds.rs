//! Which option bounds what an exchange waits for, for the log of one that waited too long.

use std::time::Duration;

use config::snapshot::Action;

use crate::exchange::{Exchange, Wait};
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
            Wait::Filter => ("timeouts.filter of the listener", Some(listener.filter)),
            Wait::ResponseWrite => {
                ("timeouts.response_write of the listener", Some(listener.response_write))
            }
            Wait::TunnelIdle => {
                ("timeouts.tunnel_idle of the listener", Some(listener.tunnel_idle))
            }
            Wait::Connection | Wait::Pause => {
                ("timeouts.pending of the cluster", cluster.map(|it| it.pending))
            }
            Wait::RequestWrite => {
                ("timeouts.request_write of the cluster", cluster.map(|it| it.request_write))
            }
            Wait::ResponseHead => {
                ("timeouts.response_head of the cluster", cluster.map(|it| it.response_head))
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
        let rule = self.route.as_ref()?.rule.and_then(|(table, place)| {
            self.snapshot.route_table(table)?.rules.get(usize::try_from(place).ok()?)
        });
        let allowed = match &rule?.action {
            Action::Forward(forward) => forward.timeout,
            Action::Respond(_) | Action::Redirect(_) => None,
        };
        let asked: Option<Duration> = self.call.as_ref().and_then(|call| call.timeout);
        match (asked, allowed) {
            (Some(asked), allowed) if allowed.is_none_or(|allowed| asked <= allowed) => {
                Some(Detail::of_bound("grpc-timeout of the client", asked))
            }
            (_, allowed) => allowed.map(|allowed| Detail::of_bound("timeout of the rule", allowed)),
        }
    }
}
