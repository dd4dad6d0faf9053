//! What waits for the first answers of host names: the start, and reloads that bring new names.
//!
//! A cluster without a first answer would have no endpoints. So a start serves only when each name has been
//! answered for, and until then a reload leaves the former configuration serving; for as long as
//! `resolvers.initial_fetch_timeout` says, and then goes on without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::{DnsName, Resolvers};
use tokio::time::Instant;

use crate::clock;
use crate::dns::{Change, Dns};
use crate::last_good::LastGood;
use crate::reload::{Candidate, ConfigFile, Look, Refused};
use crate::signals::{Asked, Signals};
use crate::workers::Workers;

mod pages;

pub use self::pages::EarlyAdmin;
use self::pages::EarlyPages;

/// Names that a line of the log lists.
const NAMES_MAX: usize = 5;

/// How long a start waits for DNS before it takes what `state` has. A server that is well answers sooner, and what a
/// former process was answered may be out of date.
const RESTORE_AFTER: Duration = Duration::from_secs(1);

/// Between two looks of a start that waits whether the file reads differently, ns.
const LOOK_INTERVAL: u64 = 1_000_000_000;

/// Since when first answers are waited for; monotonic time, ns.
#[derive(Debug, Default)]
pub(crate) struct Warming {
    since: BTreeMap<Arc<DnsName>, u64>,
    /// Those whose wait ended without.
    given_up: BTreeSet<Arc<DnsName>>,
    /// What a configuration waits for that was read, and how long.
    held: Option<(Vec<Arc<DnsName>>, Duration)>,
}

impl Warming {
    /// These names have no answers, and were waited for.
    pub(crate) fn after(given_up: BTreeSet<Arc<DnsName>>) -> Self {
        Self { given_up, ..Self::default() }
    }

    /// A configuration that waits is none any more, nor are those that waited before it: the one in effect has these names.
    pub(crate) fn forget(&mut self, in_effect: &BTreeSet<Arc<DnsName>>) {
        self.held = None;
        self.since.clear();
        self.given_up.retain(|name| in_effect.contains(name));
    }

    /// The names that a configuration waits for.
    pub(crate) fn held(&self) -> &[Arc<DnsName>] {
        self.held.as_ref().map_or(&[], |(names, _)| names)
    }

    /// Whether a configuration without answers for these names is to wait for them. Then [`Self::is_over`] says
    /// when it is to be read again.
    pub(crate) fn holds(&mut self, unanswered: &[Arc<DnsName>], resolvers: &Resolvers) -> bool {
        let now = clock::monotonic_ns();
        let was_held = self.held.take().is_some();
        self.since.retain(|name, _| unanswered.contains(name));
        self.given_up.retain(|name| unanswered.contains(name));
        let waiting = unanswered.iter().filter(|name| !self.given_up.contains(*name));
        let waiting: Vec<_> = waiting.cloned().collect();
        for name in &waiting {
            self.since.entry(Arc::clone(name)).or_insert(now);
        }
        if waiting.is_empty() {
            return false;
        }
        if !was_held {
            let names = listed(&waiting);
            tracing::info!("the configuration waits for first answers of DNS: {names}");
        }
        self.held = Some((waiting, resolvers.initial_fetch_timeout));
        true
    }

    /// Whether a configuration waits.
    pub(crate) const fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Takes what `last_good` has for the names that are waited for, if DNS failed, or is silent for too long.
    fn restore(&self, last_good: &LastGood, dns: &mut Dns) -> Vec<Change> {
        let Some((names, timeout)) = &self.held else { return Vec::new() };
        let now = clock::monotonic_ns();
        let wait = if timeout.is_zero() { RESTORE_AFTER } else { RESTORE_AFTER.min(*timeout) };
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let is_late = |name: &Arc<DnsName>| {
            self.since.get(name).is_some_and(|since| now.saturating_sub(*since) >= wait_ns)
        };
        let mut changes = Vec::new();
        for name in names {
            if let Some(kept) = last_good.answer(name)
                && !dns.is_answered(name)
                && (dns.has_failed(name) || is_late(name))
            {
                changes.extend(dns.restore(name, kept));
            }
        }
        changes
    }

    /// Whether what a configuration waited for is there, or will not be waited for any longer.
    pub(crate) fn is_over(&mut self, dns: &Dns) -> bool {
        let Some((names, timeout)) = &self.held else { return false };
        let now = clock::monotonic_ns();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let is_late = |name: &Arc<DnsName>| {
            let since = self.since.get(name).copied().unwrap_or(now);
            timeout_ns > 0 && now.saturating_sub(since) >= timeout_ns
        };
        let missing = names.iter().filter(|name| !dns.is_answered(name));
        let (late, waiting): (Vec<_>, Vec<_>) = missing.cloned().partition(is_late);
        if !waiting.is_empty() {
            return false;
        }
        warn_of_late(&late, *timeout, dns);
        self.given_up.extend(late);
        self.held = None;
        true
    }
}

/// Some of these names, and how many more there are.
pub(crate) fn listed(names: &[Arc<DnsName>]) -> String {
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(ToString::to_string).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{}, {more} more", shown.join(", ")),
    }
}

fn warn_of_late(late: &[Arc<DnsName>], timeout: Duration, dns: &Dns) {
    for name in late.iter().take(NAMES_MAX) {
        let reason = dns.reason(name);
        tracing::warn!(
            %name,
            ?timeout,
            %reason,
            "no DNS answer within resolvers.initial_fetch_timeout: the name has no \
             endpoints until there is one"
        );
    }
    if late.len() > NAMES_MAX {
        tracing::warn!("and {} more names", late.len() - NAMES_MAX);
    }
}

/// Why a start did not come to its end.
#[derive(Debug)]
pub enum WarmingError {
    /// The configuration changed meanwhile and is refused.
    Refused(Refused),
    /// A signal asked the process to end.
    Ended,
    /// The system has no room for what asks.
    System(std::io::Error),
}

impl<F: Send + Sync + 'static> ConfigFile<F> {
    /// Waits for the first answers to the names in `candidate`, if there are any without, and loads again
    /// with these, or with what `state` has, which is read here. To be called before anything is served; the admin interface answers meanwhile.
    ///
    /// # Errors
    ///
    /// [`WarmingError`].
    pub fn warm<W: Workers<Filter = F>>(
        &mut self,
        candidate: Candidate<F>,
        admin: &EarlyAdmin<'_>,
    ) -> Result<Candidate<F>, WarmingError> {
        if let Some(folder) = &candidate.snapshot().startup.state {
            self.set_last_good(LastGood::read(&folder.path));
        }
        if candidate.unanswered().is_empty() {
            return Ok(candidate);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(WarmingError::System)?;
        let candidate = runtime.block_on(self.wait_for_answers::<W>(candidate, admin));
        // A page that is still being written must not hold the start up.
        runtime.shutdown_background();
        candidate
    }

    async fn wait_for_answers<W: Workers<Filter = F>>(
        &mut self,
        mut candidate: Candidate<F>,
        admin: &EarlyAdmin<'_>,
    ) -> Result<Candidate<F>, WarmingError> {
        let mut signals = Signals::new::<W>().map_err(WarmingError::System)?;
        let (mut dns, mut reports) = Dns::new(candidate.snapshot().resolvers.clone());
        let mut warming = Warming::default();
        let startup = &candidate.snapshot().startup;
        let mut pages = EarlyPages::start(admin, startup).map_err(WarmingError::System)?;
        let mut tick = tokio::time::interval_at(Instant::now(), Duration::from_millis(100));
        let mut look_at = clock::monotonic_ns().saturating_add(LOOK_INTERVAL);
        while warming.holds(candidate.unanswered(), &candidate.snapshot().resolvers) {
            dns.set_resolvers(&candidate.snapshot().resolvers);
            let mut changes = dns.follow(&candidate.host_names());
            loop {
                changes.extend(warming.restore(self.last_good(), &mut dns));
                if warming.is_over(&dns) {
                    break;
                }
                tokio::select! {
                    Some(report) = reports.recv() => changes.extend(dns.on_report(report)),
                    signal = signals.next() => match signal.asked {
                        Asked::Terminate | Asked::End => return Err(WarmingError::Ended),
                        Asked::Reload => break,
                        Asked::ReopenLog | Asked::Nothing => {}
                    },
                    query = pages.next() => {
                        let is_end =
                            pages.answer(query, &candidate, self.name(), (&warming, &dns));
                        if is_end {
                            pages.close().await;
                            return Err(WarmingError::Ended);
                        }
                    }
                    _ = tick.tick() => {
                        let at = clock::monotonic_ns();
                        if at >= look_at {
                            look_at = at.saturating_add(LOOK_INTERVAL);
                            if self.look() == Look::Changed {
                                break;
                            }
                        }
                    }
                }
            }
            // Nothing is loaded that these could change.
            self.note_answers(changes);
            candidate = self.load_later(candidate).map_err(WarmingError::Refused)?;
        }
        pages.close().await;
        self.set_known(dns.into_known());
        Ok(candidate)
    }
}

#[cfg(test)]
mod tests {
    use config::{FilterKinds, Loader};

    use super::*;
    use crate::dns::tests::{resolvers, strict};
    use crate::scratch::Scratch;

    #[test]
    fn a_name_is_waited_for_anew_once_the_configuration_that_waited_is_refused() {
        let resolvers = resolvers(&[]);
        let [new, late, served] =
            ["new.test", "late.test", "served.test"].map(|host| Arc::new(strict(host)));
        let mut warming = Warming::after([Arc::clone(&late), Arc::clone(&served)].into());
        let names = [Arc::clone(&late), Arc::clone(&new), Arc::clone(&served)];
        assert!(warming.holds(&names, &resolvers));
        assert_eq!(warming.held(), [Arc::clone(&new)]);
        warming.since.insert(Arc::clone(&new), 1);
        warming.forget(&[Arc::clone(&served)].into());
        assert!(!warming.is_holding());
        assert!(warming.holds(&names, &resolvers));
        assert_eq!(warming.held(), [late, Arc::clone(&new)]);
        assert!(warming.since.get(&new).is_some_and(|since| *since > 1));
    }

    #[test]
    fn a_start_that_waits_takes_up_a_valid_file_and_goes_on_with_what_it_has_beside_a_refused_one()
    {
        let scratch = Scratch::new("warming-later");
        let path = scratch.0.join("strait.yaml");
        let write = |cluster: &str| {
            let text = format!(
                "listeners: [{{ name: a, address: '127.0.0.1:1', routes: [r] }}]
routes: [{{ name: r, rules: [{{ match: {{ prefix: / }}, cluster: {cluster} }}] }}]
clusters: [{{ name: {cluster}, endpoints: ['127.0.0.1:2'] }}]
"
            );
            std::fs::write(&path, text).unwrap();
        };
        write("one");
        let mut file = ConfigFile::new(&path, Loader::<()>::new(FilterKinds::new()).unwrap());
        let candidate = file.load().unwrap();
        let served = |candidate: &Candidate<()>| {
            let clusters = candidate.snapshot().clusters.iter();
            clusters.map(|(_, cluster)| cluster.name.to_string()).collect::<Vec<_>>()
        };
        let candidate = file.load_later(candidate).unwrap();
        assert_eq!(served(&candidate), ["one"]);
        write("two");
        let candidate = file.load_later(candidate).unwrap();
        assert_eq!(served(&candidate), ["two"]);
        std::fs::write(&path, "").unwrap();
        let candidate = file.load_later(candidate).unwrap();
        assert_eq!(served(&candidate), ["two"]);
        assert_eq!(file.look(), Look::Same, "it is refused once");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(served(&file.load_later(candidate).unwrap()), ["two"]);
    }
}
