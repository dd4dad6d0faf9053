//! Host names and files of endpoints: which are asked for, and what is counted of their answers.
//!
//! Answers reach the builder once it has time, the last of each name. Meanwhile the former addresses serve.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::ResourceKind;
use config::snapshot::{Changes, DnsName};
use telemetry::events::{SourceAnswered, SourceKind, SourceResources};

use super::handing::Handing;
use super::{Running, State};
use crate::builder::Reading;
use crate::clock;
use crate::dns::Change;
use crate::reload::{Candidate, Refused};
use crate::workers::Workers;

impl<W: Workers> Running<W> {
    /// Whether a configuration has to wait for first answers. Its names are asked for beside those of the one in
    /// effect, in the way that the new one says.
    pub(super) fn is_held(&mut self, candidate: &Candidate<W::Filter>) -> bool {
        let resolvers = &candidate.snapshot().resolvers;
        if !self.config.warming.holds(candidate.unanswered(), resolvers) {
            return false;
        }
        self.config.dns.set_resolvers(resolvers);
        let names = self.config.host_names.union(&candidate.host_names()).cloned().collect();
        self.follow_names(&names);
        true
    }

    /// Has these names asked for and no others.
    pub(super) fn follow_names(&mut self, names: &BTreeSet<Arc<DnsName>>) {
        let changes = self.config.dns.follow(names);
        self.forget_answers(&changes);
        for (name, _) in changes.iter().filter(|(_, answer)| answer.is_some()) {
            self.keep_answer(name, true);
        }
        self.note_answers(changes);
    }

    /// Takes note of what names stand for.
    pub(super) fn note_answers(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.config.answers.extend(changes);
        self.hand_answers();
    }

    /// Hands over to the builder what names stand for, once it has time: of each name the last. Nothing is changed
    /// during a handover.
    pub(super) fn hand_answers(&mut self) {
        let config = &mut self.config;
        if config.answers.is_empty() || config.builder.is_busy() || self.handing != Handing::None {
            return;
        }
        if matches!(self.state, State::Draining | State::Stopping) {
            return config.answers.clear();
        }
        let changes = std::mem::take(&mut config.answers).into_iter().collect();
        config.builder.answers(changes);
    }

    /// Reads the configuration that waited for first answers again, once they are there or took too long.
    pub(super) fn end_warming(&mut self) {
        // Those that came have to be handed over before.
        let is_settled = self.config.answers.is_empty()
            && !self.config.builder.is_busy()
            && self.handing == Handing::None;
        if is_settled && self.config.warming.is_over(&self.config.dns) {
            self.read_config(Reading::Anyway);
        }
    }

    pub(super) fn count_answer(
        &mut self,
        source: SourceKind,
        kind: ResourceKind,
        failure: Option<&'static str>,
    ) {
        self.count_answers(source, kind, 1, failure);
    }

    fn count_answers(
        &mut self,
        source: SourceKind,
        kind: ResourceKind,
        count: usize,
        failure: Option<&'static str>,
    ) {
        let (kind, at) = (kind.word(), clock::wall_ns());
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.collector.source_answered(&SourceAnswered { source, kind, count, failure, at });
    }

    /// Counts what a version of the file adds and changes.
    pub(super) fn count_file_taken(&mut self, changes: &Changes) {
        let counts = [
            (
                ResourceKind::Listener,
                changes.listeners_added.len(),
                changes.listeners_changed.len(),
            ),
            (
                ResourceKind::Route,
                changes.route_tables_added.len(),
                changes.route_tables_changed.len(),
            ),
            (ResourceKind::Cluster, changes.clusters_added.len(), changes.clusters_changed.len()),
        ];
        for (kind, added, changed) in counts {
            if added + changed > 0 {
                self.count_answers(SourceKind::File, kind, added + changed, None);
            }
        }
    }

    /// Counts a refused version of the file, for each kind that its errors are about.
    pub(super) fn count_file_refused(&mut self, refused: &Refused) {
        let Refused::Invalid(errors) = refused else { return };
        for (kind, section) in [
            (ResourceKind::Listener, "listeners"),
            (ResourceKind::Route, "routes"),
            (ResourceKind::Cluster, "clusters"),
        ] {
            if errors.errors.iter().any(|error| error.path.starts_with(section)) {
                self.count_answer(SourceKind::File, kind, Some("invalid"));
            }
        }
    }

    /// Has the metrics say how files of endpoints and host names are.
    pub(super) fn describe_sources(&mut self) {
        let refused = u64::try_from(self.config.endpoints_refused.len()).unwrap_or(u64::MAX);
        let all = u64::try_from(self.config.endpoint_files.len()).unwrap_or(u64::MAX);
        let good = all.saturating_sub(refused);
        let files = [("good", good), ("refused", refused)];
        let files = files.map(|it| (SourceKind::File, it));
        let names = self.config.dns.states().into_iter().map(|it| (SourceKind::Dns, it));
        let all = files.into_iter().chain(names);
        let all = all.map(|(source, (state, count))| SourceResources { source, state, count });
        let all = all.chain(self.kept.restored());
        self.collector.source_resources(all.collect());
        self.kept.count(&mut self.collector);
        self.collector.config_resources(self.config.resources());
        self.health.gauge(&self.config.snapshot, &mut self.collector);
        self.collector.breakers_of_clusters(super::breakers::left(&self.config.snapshot));
    }
}
