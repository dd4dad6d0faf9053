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
use crate::reload::{Candidate, ConfigFile, Refused};
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

    /// A configuration that waits is none any more.
    pub(crate) fn forget(&mut self) {
        self.held = None;
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
                        // The file is read again anyway.
                        Asked::Reload | Asked::ReopenLog | Asked::Nothing => {}
                    },
                    query = pages.next() => {
                        let is_end =
                            pages.answer(query, &candidate, self.name(), (&warming, &dns));
                        if is_end {
                            pages.close().await;
                            return Err(WarmingError::Ended);
                        }
                    }
                    _ = tick.tick() => {}
                }
            }
            // Nothing is loaded that these could change.
            self.note_answers(changes);
            candidate = self.load().map_err(WarmingError::Refused)?;
        }
        pages.close().await;
        self.set_known(dns.into_known());
        Ok(candidate)
    }
}
