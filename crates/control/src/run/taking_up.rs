//! Taking up what the builder made: the whole configuration, or other endpoints and delivered resources.
//!
//! Sockets are bound first, since that can fail; names reach the metrics and the log before workers use them; the
//! workers come last.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::snapshot::{Changes, Cluster, Snapshot};
use config::{EndpointsOutcome, FINDINGS_LOGGED_MAX, FINDINGS_MAX, Finding, ResourceKind};
use telemetry::events::{ConfigAccepted, ConfigRejected, SourceKind};

use super::{InEffect, Running};
use crate::builder::{Built, Reading};
use crate::reload::{Candidate, Endpoints, EndpointsCandidate, Refused, TakenUp, checked};
use crate::workers::{BindFailure, Workers};
use crate::{changes, clock};

/// A build that took so long (ns) leaves megabytes that were freed.
pub(super) const LONG_BUILD: u64 = 50_000_000;

impl<W: Workers> Running<W> {
    pub(super) async fn on_built(&mut self, built: Built<W::Filter>) {
        let is_read = matches!(
            built,
            Built::Same | Built::Endpoints(_) | Built::Renewed(_) | Built::Read(..)
        );
        if is_read && self.config.builder.looks_at_file() {
            self.note_file_heard();
            self.config.trouble.on_readable();
        }
        let (result, watched) = match built {
            Built::Same => return,
            Built::Endpoints(endpoints) => return self.on_endpoints(endpoints).await,
            Built::Renewed(endpoints) => {
                self.on_renewed();
                let file = self.config.builder.file_name();
                tracing::info!(
                    "files that the configuration in effect names changed and are used; the text of {file} is not"
                );
                if let Some(candidate) = &endpoints.candidate {
                    self.config.warnings = candidate.warnings().to_vec();
                }
                return self.on_endpoints(endpoints).await;
            }
            Built::NotRenewed(refused) => {
                self.config.named_refused = None;
                return self.config.trouble.on_not_renewed(refused);
            }
            Built::Unreadable => return self.config.trouble.on_unreadable(),
            Built::Unsettled => return self.config.trouble.on_unsettled(),
            Built::Starved => return self.on_starved(),
            Built::Skipped => return self.warn_of_skip(),
            Built::Read(result, watched) => (result, watched),
        };
        self.config.trouble.on_read();
        if self.is_ending() {
            // The drain began while it was read.
            if let Ok(candidate) = result {
                self.config.builder.discard(candidate);
            }
            return self.warn_of_skip();
        }
        if let Some(list) = &self.config.watch_list {
            list.set(watched);
        }
        let result = match result {
            Ok(candidate) if self.is_held(&candidate) => {
                self.config.builder.discard(candidate);
                return self.read_config(Reading::NamedAlone);
            }
            Ok(candidate) => self.take_up(candidate).await,
            Err(refused) => Err(refused),
        };
        if let Err(refused) = result {
            let (at, errors) = (clock::wall_ns(), refused.count());
            let version = self.config.snapshot.version;
            let reasons = refused.to_log(self.config.builder.file_name());
            tracing::error!("configuration refused; version {version} stays in use:\n{reasons}");
            self.collector.config_rejected(&ConfigRejected { errors, at });
            self.count_file_refused(&refused);
            self.config.refused = Some((at, refused));
            let InEffect { warming, host_names, .. } = &mut self.config;
            warming.forget(host_names);
            // It may have waited for answers of others.
            let host_names = self.config.host_names.clone();
            self.follow_names(&host_names);
            // Files of endpoints and certificates that changed together with the text are followed all the same.
            self.read_config(Reading::NamedAlone);
        }
    }

    /// Files of endpoints changed, or what host names stand for, and nothing else.
    async fn on_endpoints(&mut self, endpoints: Endpoints<W::Filter>) {
        let Endpoints { candidate, outcomes, delivered, is_dns } = endpoints;
        if self.is_ending() {
            if !is_dns {
                self.warn_of_skip();
            }
            return;
        }
        let version = candidate.as_ref().map(|it| it.snapshot().version);
        for outcome in outcomes {
            self.note_endpoints(outcome, version);
        }
        if let Some(candidate) = candidate
            && let Err(failures) = self.take_up_endpoints(candidate, is_dns).await
        {
            if delivered.is_some() {
                return self.config.deliveries.on_unbindable(failures);
            }
            let refused = Refused::Unbindable(failures);
            let reasons = refused.to_log(self.config.builder.file_name());
            tracing::error!("endpoints refused; the previous ones stay in use:\n{reasons}");
        }
        if let Some(delivered) = delivered {
            self.on_delivered(*delivered);
        }
    }

    /// Remembers what became of a file of endpoints, and reports what is new of it.
    /// `version` is that of the configuration with its endpoints, if they are others.
    fn note_endpoints(&mut self, outcome: EndpointsOutcome, version: Option<u64>) {
        let EndpointsOutcome { file, is_new, refused, refused_digest } = outcome;
        let failure = refused.as_ref().map(|_| "invalid");
        self.count_answer(SourceKind::File, ResourceKind::Assignment, failure);
        let known = self.config.endpoint_files.entry(Arc::clone(&file)).or_default();
        if is_new || known.accepted_at == 0 {
            known.accepted_at = clock::wall_ns();
            known.version = version.unwrap_or(known.version);
        }
        let Some(errors) = refused else {
            if self.config.endpoints_refused.remove(&file).is_some() {
                let log = || tracing::info!(%file, "endpoints are accepted again");
                self.config.file_lines.log(&file, log);
            }
            return;
        };
        // The same may be wrong with another content.
        let is_same =
            std::mem::replace(&mut known.refused_digest, refused_digest) == refused_digest;
        let known = self.config.endpoints_refused.get(&file);
        if is_same && known.is_some_and(|(_, known)| *known == errors) {
            return;
        }
        let reasons = errors.first(&checked(self.config.builder.file_name()));
        self.config.file_lines.log(&file, || {
            tracing::error!("endpoints refused; the previous ones stay in use:\n{reasons}");
        });
        let refused = Refused::Invalid(errors.clone());
        let at = clock::wall_ns();
        self.collector.config_rejected(&ConfigRejected { errors: refused.count(), at });
        self.config.endpoints_refused.insert(file, (at, errors));
    }

    /// Remembers what came of all files of endpoints, which were read with the text that is this version.
    pub(super) fn note_all_endpoints(&mut self, outcomes: Vec<EndpointsOutcome>, version: u64) {
        let names: BTreeSet<_> = outcomes.iter().map(|it| Arc::clone(&it.file)).collect();
        self.config.endpoint_files.retain(|file, _| names.contains(file));
        self.config.endpoints_refused.retain(|file, _| names.contains(file));
        for outcome in outcomes {
            self.note_endpoints(outcome, Some(version));
        }
    }

    /// Takes other endpoints up, or what sources have delivered. Nothing here follows the size of the configuration,
    /// unless listeners changed.
    async fn take_up_endpoints(
        &mut self,
        mut candidate: Box<EndpointsCandidate<W::Filter>>,
        is_dns: bool,
    ) -> Result<(), Vec<BindFailure>> {
        let began = clock::monotonic_ns();
        let snapshot = Arc::clone(candidate.snapshot());
        let bound = self.workers.bind(&snapshot)?;
        warn(candidate.warnings());
        let (duration, names) = (candidate.duration, candidate.names.clone());
        let expiry = candidate.expiry.take();
        self.config.builder.keep_endpoints(candidate);
        if let Some(expiry) = expiry {
            self.collector.certificates_in_use(expiry.in_use());
            self.config.expiry = expiry;
        }
        if let Some(names) = names {
            self.collector.set_names(Arc::clone(&names));
            self.log.set_names(names).await;
        }
        // Before workers choose by it: what was ejected while it was built is counted.
        self.health.on_snapshot(&snapshot);
        self.workers.publish(&snapshot, bound.sockets);
        for id in &snapshot.changes.listeners_removed {
            self.config.addresses.remove(id);
        }
        self.config.addresses.extend(bound.addresses);
        self.publish_done(snapshot, (duration, began), is_dns);
        Ok(())
    }

    /// Ends the taking up of a snapshot that the workers have.
    fn publish_done(
        &mut self,
        snapshot: Arc<Snapshot<W::Filter>>,
        (duration, began): (u64, u64),
        is_dns: bool,
    ) {
        let loaded_at = clock::wall_ns();
        let version = snapshot.version;
        self.versions.on_published(version, began);
        self.config.note_resolved(&snapshot);
        self.config.dns.warn_of_left_out(&snapshot, Some(&self.config.snapshot));
        self.collector.config_accepted(&ConfigAccepted { version, at: loaded_at, duration });
        let changed = changes::summary(&self.config.snapshot, &snapshot);
        let milliseconds = duration / 1_000_000;
        if is_dns {
            tracing::debug!(version, milliseconds, %changed, "addresses applied");
        } else {
            tracing::info!(version, milliseconds, %changed, "configuration applied");
        }
        if !snapshot.changes.clusters_removed.is_empty() {
            self.health.gauge(&snapshot, &mut self.collector);
        }
        let former = std::mem::replace(&mut self.config.snapshot, snapshot);
        self.follow_listeners(&former);
        self.meet_demands(&former);
        self.config.builder.free(former);
        self.config.loaded_at = loaded_at;
    }

    /// Takes a candidate up, or changes nothing.
    pub(super) async fn take_up(
        &mut self,
        mut candidate: Box<Candidate<W::Filter>>,
    ) -> Result<(), Refused> {
        let began = clock::monotonic_ns();
        let snapshot = Arc::clone(candidate.snapshot());
        let bound = match self.workers.bind(&snapshot) {
            Ok(bound) => bound,
            Err(failures) => {
                self.config.builder.discard(candidate);
                return self.leave_out(failures, &snapshot).map_err(Refused::Unbindable);
            }
        };
        self.config.deliveries.on_file_taken();
        self.count_file_taken(&snapshot);
        let taken_up = candidate.take_up();
        let TakenUp { warnings, endpoints_read, log_output, names, expiry, .. } = taken_up;
        let TakenUp { host_names, wanted, duration, late, waits, .. } = taken_up;
        self.config.builder.keep(candidate);
        self.collector.set_names(Arc::clone(&names));
        self.log.set_names(names).await;
        self.log.set_output(log_output);
        // Before workers choose by it: what was ejected while it was built is counted.
        self.health.on_snapshot(&snapshot);
        self.workers.publish(&snapshot, bound.sockets);

        let config = &mut self.config;
        config.expiry = expiry;
        self.collector.certificates_in_use(config.expiry.in_use());
        for id in &snapshot.changes.listeners_removed {
            config.addresses.remove(id);
        }
        config.addresses.extend(bound.addresses);
        config.refused = None;
        self.on_renewed();
        let config = &mut self.config;
        config.dns.set_resolvers(&snapshot.resolvers);
        self.follow_names(&host_names);
        self.want(&wanted);
        self.config.host_names = host_names;
        let version = snapshot.version;
        self.publish_done(snapshot, (duration, began), false);
        self.on_relinked(late, waits);
        warn(&warnings);
        self.config.warnings = warnings;
        self.note_all_endpoints(endpoints_read, version);
        if duration >= LONG_BUILD {
            self.memory.note_freed();
        }
        Ok(())
    }
}

impl<F> InEffect<F> {
    /// Remembers since which version clusters have their endpoints from DNS.
    pub(super) fn note_resolved(&mut self, snapshot: &Snapshot<F>) {
        let Changes { clusters_added, clusters_changed, clusters_removed, .. } = &snapshot.changes;
        for id in clusters_removed {
            if let Some(gone) = self.snapshot.cluster(*id) {
                self.resolved_since.remove(&gone.name);
            }
        }
        let changed = clusters_added.iter().chain(clusters_changed);
        let has_names = |it: &&Arc<Cluster>| it.endpoints_from.names().next().is_some();
        for cluster in changed.filter_map(|id| snapshot.cluster(*id)).filter(has_names) {
            let former = self.snapshot.cluster(cluster.id);
            let is_same = former.is_some_and(|former| has_same_addresses(former, cluster));
            if !is_same || !self.resolved_since.contains_key(&cluster.name) {
                self.resolved_since.insert(Arc::clone(&cluster.name), snapshot.version);
            }
        }
    }
}

fn has_same_addresses(one: &Cluster, other: &Cluster) -> bool {
    let of_one = one.endpoints.iter().map(|it| (&it.address, it.priority));
    of_one.eq(other.endpoints.iter().map(|it| (&it.address, it.priority)))
}

pub(super) fn warn(warnings: &[Finding]) {
    for warning in warnings.iter().take(FINDINGS_LOGGED_MAX) {
        tracing::warn!("{warning}");
    }
    let more = warnings.len().saturating_sub(FINDINGS_LOGGED_MAX);
    match warnings.len() {
        // Others are not kept.
        FINDINGS_MAX.. => tracing::warn!(
            more,
            "further warnings about the configuration are in /config, and there may be others"
        ),
        _ if more > 0 => {
            tracing::warn!(more, "further warnings about the configuration are in /config");
        }
        _ => {}
    }
}
