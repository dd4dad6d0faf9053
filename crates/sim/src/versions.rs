//! When which versions of delivered resources served, by what the workers had, and whether responses keep to that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use proxy::time::Time;

use crate::http::Head;
use crate::named::NamedEndpoints;

/// The field of a response with the number of the listener's version.
pub(crate) const LISTENER_FIELD: &str = "x-listener";

/// The same of the route configuration.
pub(crate) const ROUTES_FIELD: &str = "x-routes";

/// The versions that serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// More than one where connections of a removed listener are drained.
    pub(crate) listeners: BTreeSet<u64>,
    /// More than one where a listener may go on with what was there before.
    pub(crate) routes: BTreeSet<u64>,
    /// Whether the listener serves without the route configuration that requests meet.
    pub(crate) lacks_routes: bool,
    /// The endpoints that come from DNS.
    pub(crate) named: NamedEndpoints,
}

/// The first and the last time at which some worker had a version.
type Span = (Time, Time);

/// When versions served. No version comes again.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    listeners: BTreeMap<u64, Span>,
    routes: BTreeMap<u64, Span>,
    /// When a worker had a listener that lacks its route configuration, by the first worker of its process and the number of the
    /// configuration.
    lacking: BTreeMap<(usize, u64), Span>,
    /// By the first worker of a process, and the number of its configuration.
    named: BTreeMap<(usize, u64), (NamedEndpoints, Span)>,
    /// Where the services are of the cluster that has its endpoints from DNS.
    pub(crate) named_addresses: BTreeSet<SocketAddr>,
    /// Responses that were looked at.
    pub(crate) checked: usize,
    /// Requests that were looked at where they came to such a service.
    pub(crate) resolved: usize,
}

impl Versions {
    /// A worker has these now, by the configuration with this number of the process that begins with this worker.
    pub(crate) fn note(&mut self, configuration: (usize, u64), served: &Served, now: Time) {
        if served.lacks_routes {
            self.lacking.entry(configuration).or_insert((now, now)).1 = now;
        }
        if !self.named_addresses.is_empty() {
            let begin = || (served.named.clone(), (now, now));
            self.named.entry(configuration).or_insert_with(begin).1.1 = now;
        }
        let note = |spans: &mut BTreeMap<u64, Span>, number| {
            spans.entry(number).or_insert((now, now)).1 = now;
        };
        served.listeners.iter().for_each(|number| note(&mut self.listeners, *number));
        served.routes.iter().for_each(|number| note(&mut self.routes, *number));
    }

    /// A response by a delivered listener, to a request that began after `since` and before `until`, was made by versions that
    /// some worker had meanwhile. `may_lack_routes`: its rule may be gone.
    ///
    /// # Errors
    ///
    /// It was not, or does not say by which.
    pub(crate) fn check(
        &mut self,
        head: &Head,
        since: Time,
        until: Time,
        may_lack_routes: bool,
    ) -> Result<(), String> {
        self.checked += 1;
        // What Strait answers itself may have met no rule.
        let is_own = head.field("x-id")?.is_none();
        for (field, spans) in [(LISTENER_FIELD, &self.listeners), (ROUTES_FIELD, &self.routes)] {
            let Some(value) = head.field(field)? else {
                if is_own || may_lack_routes && field == ROUTES_FIELD {
                    continue;
                }
                return Err(format!("no {field}: {head:?}"));
            };
            let span = value.parse().ok().and_then(|number: u64| spans.get(&number));
            let serves = |(first, last): &Span| *first <= until && *last >= since;
            if !span.is_some_and(serves) {
                return Err(format!(
                    "{field} {value} answers a request of {since:?} to {until:?}, and served {span:?}"
                ));
            }
        }
        Ok(())
    }

    /// Whether some worker had a listener without its route configuration meanwhile.
    pub(crate) fn lacks_routes(&self, since: Time, until: Time) -> bool {
        let mut spans = self.lacking.values();
        spans.any(|(first, last)| *first <= until && *last >= since)
    }

    /// A request that began after `since` comes to a service at `address` before `until`: its name stood for this address
    /// meanwhile, by what some worker had. That a logical name stood for another one is checked where connections begin.
    ///
    /// # Errors
    ///
    /// It did not.
    pub(crate) fn check_address(
        &mut self,
        address: SocketAddr,
        since: Time,
        until: Time,
    ) -> Result<(), String> {
        if !self.named_addresses.contains(&address) {
            return Ok(());
        }
        self.resolved += 1;
        let mut meanwhile =
            self.named.values().filter(|(_, (first, last))| *first <= until && *last >= since);
        let is_there =
            meanwhile.any(|(named, _)| named.is_logical || named.addresses.contains(&address));
        if is_there {
            return Ok(());
        }
        Err(format!("{address} got a request of {since:?} at {until:?}, and is no endpoint"))
    }
}
