//! When which versions of delivered resources served, by what the workers had, and whether responses keep to that.

use std::collections::{BTreeMap, BTreeSet};

use proxy::time::Time;

use crate::http::Head;

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
}

/// The first and the last time at which some worker had a version.
type Span = (Time, Time);

/// When versions served. No version comes again.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    listeners: BTreeMap<u64, Span>,
    routes: BTreeMap<u64, Span>,
    /// Responses that were looked at.
    pub(crate) checked: usize,
}

impl Versions {
    /// A worker has these now.
    pub(crate) fn note(&mut self, served: &Served, now: Time) {
        let note = |spans: &mut BTreeMap<u64, Span>, number| {
            spans.entry(number).or_insert((now, now)).1 = now;
        };
        served.listeners.iter().for_each(|number| note(&mut self.listeners, *number));
        served.routes.iter().for_each(|number| note(&mut self.routes, *number));
    }

    /// A response by a delivered listener, to a request that began after `since` and before `until`, was made by versions that
    /// some worker had meanwhile.
    ///
    /// # Errors
    ///
    /// It was not, or does not say by which.
    pub(crate) fn check(&mut self, head: &Head, since: Time, until: Time) -> Result<(), String> {
        self.checked += 1;
        // What Strait answers itself may have met no rule.
        let is_own = head.field("x-id")?.is_none();
        for (field, spans) in [(LISTENER_FIELD, &self.listeners), (ROUTES_FIELD, &self.routes)] {
            let Some(value) = head.field(field)? else {
                if is_own {
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
}
