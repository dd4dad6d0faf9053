//! Host names and files of endpoints: which are asked for, and what is counted of their answers.
//!
//! Answers reach the builder once it has time, the last of each name. Meanwhile the former addresses serve.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::snapshot::{DnsName, Snapshot};
use config::{ResourceKind, ResourceName};
use telemetry::events::{SourceAnswered, SourceHeard, SourceKind, SourceResources};

use super::handing::Handing;
use super::{InEffect, Running, State};
use crate::builder::Reading;
use crate::clock;
use crate::dns::Change;
use crate::reload::{Candidate, Refused};
use crate::workers::Workers;

impl<W: Workers> Running<W> {
    /// Whether a configuration has to wait for first answers. Names that it alone has are asked for beside those of the one in effect, in
    /// the way that it says.
    pub(super) fn is_held(&mut self, candidate: &Candidate<W::Filter>) -> bool {
        let resolvers = &candidate.snapshot().resolvers;
        if !self.config.warming.holds(candidate.unanswered(), resolvers) {
            return false;
        }
        let InEffect { dns, host_names, .. } = &mut self.config;
        let changes = dns.follow_beside(host_names, &candidate.host_names(), resolvers);
        self.on_followed(changes);
        true
    }

    /// Has these names asked for and no others.
    pub(super) fn follow_names(&mut self, names: &BTreeSet<Arc<DnsName>>) {
        let changes = self.config.dns.follow(names);
        self.on_followed(changes);
    }

    fn on_followed(&mut self, changes: Vec<Change>) {
        self.forget_answers(&changes);
        for (name, _) in changes.iter().filter(|(_, answer)| answer.is_some()) {
            self.keep_answer(name, true);
        }
        self.note_answers(changes);
    }

    /// Takes note of what names stand for.
    pub(super) fn note_answers(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.config.answers.extend(changes);
        self.hand_noted();
    }

    /// Hands over to the builder what names stand for and which endpoints are drained, once it has time.
    pub(super) fn hand_noted(&mut self) {
        if self.config.builder.is_busy() {
            return;
        }
        self.hand_along();
        if !matches!(self.handing, Handing::Giving { .. } | Handing::Given { .. }) {
            self.config.builder.link_noted();
        }
        let InEffect { drains, builder, .. } = &mut self.config;
        if !builder.has_noted() && !builder.is_busy() {
            drains.answer();
        }
    }

    /// Hands over the same with what the builder is asked next.
    pub(super) fn hand_along(&mut self) {
        self.hand_answers();
        self.hand_drains();
    }

    /// Hands over what names stand for: of each name the last. Nothing is changed during a handover.
    fn hand_answers(&mut self) {
        let config = &mut self.config;
        if config.answers.is_empty() || self.handing != Handing::None {
            return;
        }
        if matches!(self.state, State::Draining | State::Stopping) {
            return config.answers.clear();
        }
        let changes = std::mem::take(&mut config.answers).into_iter().collect();
        config.builder.note_answers(changes);
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
        self.count_answers((source, kind), 1, failure, clock::wall_ns());
    }

    /// Counts so many answers about a kind of resource, which came `at` this wall-clock time, ns; 0 if the source said nothing just now.
    pub(super) fn count_answers(
        &mut self,
        (source, kind): (SourceKind, ResourceKind),
        count: usize,
        failure: Option<&'static str>,
        at: u64,
    ) {
        let (kind, count) = (kind.word(), u64::try_from(count).unwrap_or(u64::MAX));
        self.collector.source_answered(&SourceAnswered { source, kind, count, failure, at });
    }

    /// Counts what a version of the file adds and changes.
    pub(super) fn count_file_taken(&mut self, snapshot: &Snapshot<W::Filter>) {
        self.config.file_accepted_at = clock::wall_ns();
        let changes = &snapshot.changes;
        let listeners = changes.listeners_added.iter().chain(&changes.listeners_changed);
        let listeners = listeners.filter_map(|id| Some(&snapshot.listener(*id)?.1.name));
        let tables = changes.route_tables_added.iter().chain(&changes.route_tables_changed);
        let tables = tables.filter_map(|id| Some(&snapshot.route_table(*id)?.name));
        let clusters = changes.clusters_added.iter().chain(&changes.clusters_changed);
        let clusters = clusters.filter_map(|id| Some(&snapshot.cluster(*id)?.name));
        // Others were delivered.
        let own = |kind, names: &mut dyn Iterator<Item = &Arc<str>>| {
            let own = names.filter(|name| snapshot.is_in_file(&ResourceName::new(kind, name)));
            (kind, own.count())
        };
        let counts = [
            own(ResourceKind::Listener, &mut { listeners }),
            own(ResourceKind::Route, &mut { tables }),
            own(ResourceKind::Cluster, &mut { clusters }),
        ];
        for (kind, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.count_answers((SourceKind::File, kind), count, None, clock::wall_ns());
        }
    }

    /// The file was read, whatever came of it.
    pub(super) fn note_file_heard(&mut self) {
        let (source, at) = (SourceKind::File, clock::wall_ns());
        self.collector.source_heard(&SourceHeard { source, at });
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

    /// Has the metrics say how what the configuration is made of is.
    pub(super) fn describe_sources(&mut self) {
        self.describe_states_of_sources();
        self.kept.count(&mut self.collector);
        self.collector.config_resources(self.config.resources());
        self.health.gauge(&self.config.snapshot, &mut self.collector);
        self.collector.breakers_of_clusters(super::breakers::left(&self.config.snapshot));
    }

    /// Has the metrics say how files of endpoints and host names are.
    pub(super) fn describe_states_of_sources(&mut self) {
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
    }
}
