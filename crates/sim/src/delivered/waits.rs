//! What control knows of listeners and clusters that wait: since when, and for what.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use config::{ResourceName, Waits};
use proxy::time::Time;

/// What waits in a process, as `control` follows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(BTreeMap<ResourceName, Wait>);

#[derive(Clone, Debug)]
struct Wait {
    since: Time,
    names: Vec<ResourceName>,
    is_over: bool,
}

impl Waiting {
    pub(crate) fn note(&mut self, waits: Vec<Waits>, now: Time) {
        for Waits { name, waits_for: names, .. } in waits {
            if names.is_empty() {
                self.0.remove(&name);
                continue;
            }
            if let Some(wait) = self.0.get_mut(&name).filter(|wait| !wait.is_over)
                && names.iter().all(|it| wait.names.contains(it))
            {
                // That some have come makes those that are left wait no longer.
                wait.names = names;
                continue;
            }
            self.0.insert(name, Wait { since: now, names, is_over: false });
        }
    }

    /// What has waited for so long, from now on; nothing does if that is zero.
    pub(crate) fn late(&mut self, timeout: Duration, now: Time) -> BTreeSet<ResourceName> {
        let is_late =
            |wait: &Wait| !wait.is_over && !timeout.is_zero() && wait.since + timeout <= now;
        let late = self.0.iter_mut().filter(|(_, wait)| is_late(wait));
        let late = late.map(|(name, wait)| {
            wait.is_over = true;
            name.clone()
        });
        late.collect()
    }
}
