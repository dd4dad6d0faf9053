//! The pages of the admin interface that control writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use config::percent::Percent;
use config::runtime::Runtime;
use config::snapshot::{Cluster, Snapshot};
use config::{Errors, ResourceKind};
use serde_json::{Map, Value, json};
use telemetry::events::ConfigResources;
use telemetry::{EndpointName, ProcessFacts, Readings};
use tokio::sync::oneshot;

use super::deliveries::ShownRefusals;
use super::handing::Handing;
use super::listing_pages::ListingPage;
use super::{DESCRIBING_MAX, EndpointFile, EndpointsRefused, InEffect, Running, State};
use crate::admin::{
    Answer, Content, EndpointReading, ExplainRequest, ExplainStep, Explained, ListenerReading,
    Listing, Page, PieceWriter, Query, Readiness, Rows, Server, index, pieces, write_config,
};
use crate::clock;
use crate::dns::names_json;
use crate::log_writer::SlowForm;
use crate::names::{address_text, label};
use crate::reload::Refused;
use crate::workers::Workers;

/// Bytes of metrics that a cluster has at least.
const METRICS_BYTES_OF_CLUSTER: u64 = 2_000;

impl<W: Workers> Running<W> {
    pub(super) fn on_query(&mut self, query: Query) {
        match query {
            Query::Page(page, reply) => self.page(page, reply),
            Query::Slow { as_text, reply } => {
                let form = if as_text { SlowForm::Text } else { SlowForm::Json };
                self.log.write_slow(form, reply);
            }
            Query::Explain { request, reply } => self.explain(request, reply),
            Query::Endpoints { ids, reply } => {
                let readings = ids.into_iter().map(|(cluster, endpoint)| EndpointReading {
                    totals: self.collector.endpoint_totals(label(endpoint.0)),
                    health: self.health.of_endpoint(cluster, endpoint),
                });
                let _ = reply.send(readings.collect());
            }
            Query::EndpointExchanges { ids, reply } => {
                let totals = ids.into_iter().map(|id| self.collector.endpoint_exchanges(id));
                let _ = reply.send(totals.collect());
            }
            Query::Clusters { ids, reply } => {
                let totals = ids.into_iter().map(|id| self.collector.cluster_totals(id));
                let _ = reply.send(totals.collect());
            }
            Query::Listeners { ids, reply } => {
                let readings = ids.into_iter().map(|id| ListenerReading {
                    totals: self.collector.listener_totals(label(id.0)),
                    bound: self.config.addresses.get(&id).cloned().unwrap_or_default(),
                });
                let _ = reply.send(readings.collect());
            }
            Query::Routes { ids, reply } => {
                let totals = ids.into_iter().map(|id| self.collector.route_totals(id));
                let _ = reply.send(totals.collect());
            }
            Query::Move { process: Some(pid), connection, reply, .. } => {
                // The client may be gone.
                let _ = reply.send(Err(self.listing.why_it_stays(pid, connection)));
            }
            Query::Move { process: None, connection, to, reply } => {
                self.move_connection(connection, to, reply);
            }
            Query::OldProcess { reply } => drop(reply.send(self.listing.process())),
            Query::OldConnections { worker, slot, reply } => self.list_former(worker, slot, reply),
            Query::Connections { worker, reply, .. } if self.stopped.contains(&worker) => {
                let _ = reply.send(Rows::default());
            }
            Query::Connections { worker, first, reply } => {
                let request = self.describe_next;
                self.describe_next += 1;
                if self.describing.len() < DESCRIBING_MAX {
                    self.describing.insert(request, (worker, reply));
                    self.workers.describe(worker, first, request);
                }
            }
        }
    }

    fn page(&mut self, page: Page, reply: oneshot::Sender<Content>) {
        let answer = match page {
            Page::Index => index(self.version, self.state_text(), self.config.snapshot.version),
            Page::Ready(detail) => self.ready().answer(detail),
            Page::Healthz => Answer::text(200, "ok\n"),
            Page::Metrics => {
                return self.write_metrics(reply, |readings, process, mut text| {
                    readings.write_prometheus(process, &mut text);
                    Answer::metrics(text)
                });
            }
            Page::Stats { filter } => {
                return self.write_metrics(reply, move |readings, process, mut text| {
                    readings.write_stats(process, &filter, &mut text);
                    Answer::text(200, text)
                });
            }
            Page::Config => {
                self.describe_states_of_sources();
                let sources = self.source_list();
                return self.config.show(self.versions.workers(), sources, reply);
            }
            Page::Resource(resource) => return self.config.show_resource(resource, reply),
            Page::Clusters(listing) => {
                let page = self.show_listing(listing, ListingPage::write_clusters);
                let _ = reply.send(page);
                return;
            }
            Page::Listeners(listing) => {
                let page = self.show_listing(listing, ListingPage::write_listeners);
                let _ = reply.send(page);
                return;
            }
            Page::Routes(listing) => {
                let page = self.show_listing(listing, ListingPage::write_routes);
                let _ = reply.send(page);
                return;
            }
            Page::Handover => Answer::json(&self.handover_report.to_json(self.handover_state())),
            Page::Sources => {
                self.describe_sources();
                return self.show_sources(reply);
            }
            Page::Drain => {
                if matches!(self.state, State::Starting | State::Ready) {
                    self.end();
                }
                Answer::text(202, "draining\n")
            }
            Page::Release => return self.release_admin(reply),
            Page::Drained(change) => return self.on_drain(change, reply),
            Page::Runtime(values) => self.config.put_over(&values),
        };
        // The client may be gone; the same below.
        let _ = reply.send(answer.into());
    }

    /// Writes what was counted, on a thread of its own: with many clusters that takes longer than a turn may.
    fn write_metrics(
        &mut self,
        reply: oneshot::Sender<Content>,
        write: impl FnOnce(&Readings, &ProcessFacts, String) -> Answer + Send + 'static,
    ) {
        let clusters = self.config.snapshot.clusters.iter().count() as u64;
        let begun =
            self.unread_pages.begin(clusters * METRICS_BYTES_OF_CLUSTER, self.memory_bytes_max());
        let Some(mut page) = begun else {
            let text = "clients have left too many pages of metrics unread: try again\n";
            let _ = reply.send(Answer::text(503, text).into());
            return;
        };
        self.describe_sources();
        self.name_endpoints();
        if self.handing == Handing::None {
            self.collector.keep_place();
        }
        let readings = self.collector.readings();
        tokio::task::spawn_blocking(move || {
            if reply.is_closed() {
                // The client is gone.
                return;
            }
            let process = ProcessFacts::read(clock::wall_ns());
            let mut answer = write(&readings, &process, page.text());
            answer.body.shrink_to_fit();
            page.made(&answer);
            let _ = reply.send(Content::Bounded(answer, page));
        });
    }

    /// Says which way a request would take now. What stands about the process comes first.
    fn explain(&self, request: ExplainRequest, reply: oneshot::Sender<Explained>) {
        let about_process = self.explain_process();
        let refused = self.config.endpoints_refused.clone();
        let snapshot = Arc::clone(&self.config.snapshot);
        tokio::task::spawn_blocking(move || {
            if reply.is_closed() {
                // The client is gone, or was answered that this takes too long.
                return;
            }
            let steps = W::explain(&snapshot, &request);
            let _ = reply.send(steps.map(|steps| {
                let steps = with_refusals(steps, &snapshot, &refused);
                about_process.into_iter().chain(steps).collect()
            }));
        });
    }

    /// What a request meets before its listener.
    fn explain_process(&self) -> Vec<ExplainStep> {
        let config = &self.config;
        let what_follows = match (self.state, self.handing.successor()) {
            (State::Draining | State::Stopping, _) => {
                ": accepts no new connections; the following applies to open ones".to_owned()
            }
            (_, Some(pid)) => {
                format!(": process {pid} has taken over, and accepts new connections")
            }
            (State::Leaving, _) => {
                ": still accepts new connections, for limits.drain_delay".to_owned()
            }
            (State::Storing, _) => {
                ": accepts no new connections, and leaves open ones to the next process".to_owned()
            }
            (State::Starting | State::Ready, _) => String::new(),
        };
        let (state, version) = (self.state_text(), config.snapshot.version);
        let file = config.builder.file_name();
        let process = format!("{state}, configuration version {version} of {file}{what_follows}");
        let mut steps = vec![ExplainStep::new("process", process)];
        if let Some((at, refused)) = &config.refused {
            let (count, at) = (refused.count(), clock::rfc3339(*at));
            let text = format!("a later one was refused at {at}, mistakes: {count}; see /config");
            steps.push(ExplainStep::new("config", text));
        }
        if config.warming.is_holding() {
            let text = "a later one waits for first answers of DNS; see waits_for in /config";
            steps.push(ExplainStep::new("config", text));
        }
        steps
    }

    /// Lets the admin addresses go, for the successor of a process that drains. Connections that are
    /// open go on.
    fn release_admin(&mut self, reply: oneshot::Sender<Content>) {
        if !self.is_ending() {
            let text = "only a draining process releases its admin addresses\n";
            let _ = reply.send(Answer::text(409, text).into());
            return;
        }
        tracing::info!("the admin addresses are released for another process");
        self.admin_handles.close();
        let released: Vec<_> = self.admin.iter().map(Server::release).collect();
        tokio::spawn(async move {
            for released in released {
                // It is gone if the task ended before.
                let _ = released.await;
            }
            let _ = reply.send(Answer::text(200, "released\n").into());
        });
    }

    pub(super) const fn state_text(&self) -> &'static str {
        match self.state {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Storing => "storing connections",
            State::Leaving => "leaving",
            State::Draining => "draining",
            State::Stopping => "stopping",
        }
    }

    fn ready(&self) -> Readiness {
        // Who asked before another process took over asks about the service, which that process is.
        let is_succeeded = self.handing.successor().is_some();
        let reason = match self.state {
            _ if is_succeeded => "ready".to_owned(),
            State::Ready if !self.health.has_started() => match self.health.warming().len() {
                1 => "warming: 1 cluster waits for the first checks of its endpoints".into(),
                count => format!(
                    "warming: {count} clusters wait for the first checks of their endpoints"
                ),
            },
            State::Ready => "ready".to_owned(),
            State::Starting => {
                let (started, count) = (self.started, self.workers.count());
                format!("starting: {started} of {count} workers serve")
            }
            State::Storing => "storing connections".to_owned(),
            State::Leaving | State::Draining | State::Stopping => "draining".to_owned(),
        };
        let config = &self.config;
        let (version, file) = (config.snapshot.version, config.builder.file_name());
        let mut lines = vec![format!("configuration version {version} of {file} serves")];
        if let Some((at, refused)) = &config.refused {
            let (count, at) = (refused.count(), clock::rfc3339(*at));
            lines.push(format!("a later configuration was refused at {at}, mistakes: {count}"));
        }
        if let Some((at, _)) = &config.named_refused {
            let at = clock::rfc3339(*at);
            lines.push(format!("files that it names are refused since {at}; see /config"));
        }
        let waits = config.warming.held().iter();
        lines.extend(waits.map(|name| format!("a later configuration waits for {name}")));
        let warming = self.health.warming();
        lines.extend(
            warming
                .map(|name| format!("cluster {name} waits for the first checks of its endpoints")),
        );
        for (file, (at, _)) in &config.endpoints_refused {
            lines.push(format!("endpoints of {file} are refused since {}", clock::rfc3339(*at)));
        }
        lines.extend(config.expiry.outdated());
        lines.extend(self.kept.lines());
        lines.extend(config.dns.troubles());
        let serves = self.state == State::Ready && self.health.has_started();
        Readiness { is_ready: serves || is_succeeded, reason, lines }
    }

    /// Says which endpoints are reported: as many as the configuration lets be, of those that it has now.
    fn name_endpoints(&mut self) {
        let snapshot = &self.config.snapshot;
        let max = usize::try_from(snapshot.metrics.endpoints_max).unwrap_or(usize::MAX);
        let clusters = snapshot.clusters.iter().map(|(_, cluster)| cluster);
        let all = clusters.flat_map(|it| it.endpoints.iter().map(move |endpoint| (it, endpoint)));
        let named = all.take(max).map(|(cluster, endpoint)| EndpointName {
            id: label(endpoint.id.0),
            cluster: Arc::clone(&cluster.name),
            address: address_text(&endpoint.address),
        });
        let named: Vec<_> = named.collect();
        let clusters = snapshot.clusters.iter();
        let count = clusters.map(|(_, cluster)| cluster.endpoints.len()).sum::<usize>();
        let left_out = u64::try_from(count - named.len()).unwrap_or(u64::MAX);
        self.collector.set_endpoints(named, left_out);
    }

    /// What each source has said, and what it was refused.
    fn source_list(&self) -> Vec<ShownSource> {
        let now = clock::wall_ns();
        let counts = |counts: Vec<(&'static str, u64)>| -> Value {
            let counts = counts.into_iter().map(|(word, count)| (word.to_owned(), json!(count)));
            counts.collect::<Map<_, _>>().into()
        };
        let sources = self.collector.source_totals().into_iter().map(|totals| {
            let time = |at: u64| Some(at).filter(|at| *at > 0);
            // A process that has taken another's place counts no version of the file until the next one.
            let accepted_at = match totals.source {
                "file" => {
                    let endpoints = self.config.endpoint_files.values().map(|it| it.accepted_at);
                    endpoints.chain([self.config.file_accepted_at]).max()
                }
                _ => time(totals.answered_at),
            };
            let heard_at = time(totals.heard_at);
            let delivered = self.config.deliveries.of_source(totals.source);
            let version = match totals.source {
                "file" => json!(self.config.snapshot.version),
                _ => json!(delivered.version),
            };
            let mut states = totals.states;
            if delivered.accepted + delivered.refused > 0 {
                states.extend([("accepted", delivered.accepted), ("refused", delivered.refused)]);
            }
            let is_refused = totals.source == "file" && self.config.refused.is_some();
            let state = match is_refused {
                true => "refused",
                false => state_of_source(&states, heard_at.is_some()),
            };
            let said = json!({
                "name": totals.source,
                "state": state,
                "states": counts(states),
                "version": version,
                "accepted_total": totals.answers_total,
                "refused_total": counts(totals.failures),
                "last_accepted_at": accepted_at.map(clock::rfc3339),
                "last_heard_at": heard_at.map(clock::rfc3339),
                "age_seconds": heard_at.map(|at| now.saturating_sub(at) / 1_000_000_000),
            });
            // What the file and DNS are refused stands with each file and each name.
            let has_resources = !matches!(totals.source, "file" | "dns");
            let refused =
                has_resources.then(|| self.config.deliveries.shown_refusals(Some(totals.source)));
            ShownSource { said, refused }
        });
        sources.collect()
    }

    /// Says what the sources have said, and how resources are. Reasons of refusals may be long: they are put in words on a thread of
    /// their own.
    fn show_sources(&self, reply: oneshot::Sender<Content>) {
        let resources = self.config.resources().into_iter().map(
            |ConfigResources { kind, state, count }| json!({ "kind": kind, "state": state, "count": count }),
        );
        let resources: Vec<Value> = resources.collect();
        let (asked, waiting) = self.demands.len();
        let (state, on_demand) =
            (self.kept.to_json(), json!({ "asked": asked, "waiting": waiting }));
        let sources = self.source_list();
        let refused = self.config.deliveries.shown_refusals(None);
        tokio::task::spawn_blocking(move || {
            let mut page = Map::new();
            page.insert("sources".to_owned(), sources_json(sources));
            page.insert("resources".to_owned(), resources.into());
            refused.add_to(&mut page);
            page.insert("state".to_owned(), state);
            page.insert("on_demand".to_owned(), on_demand);
            // The client may have gone.
            let _ = reply.send(Answer::json(&page.into()).into());
        });
    }

    /// Writes a page about what is configured, and what it carries. Nothing is looked up here, so that this takes as long for any
    /// number of clusters, endpoints and listeners: the page's writer asks for what it shows, piece by piece.
    fn show_listing(
        &self,
        listing: Listing,
        write: impl FnOnce(&ListingPage<W::Filter>, PieceWriter) -> io::Result<()> + Send + 'static,
    ) -> Content {
        let page = ListingPage {
            snapshot: Arc::clone(&self.config.snapshot),
            queries: self.admin_handles.queries(),
            listing,
        };
        let (writer, pieces) = pieces();
        // The reader may be gone, and sees else that it is cut off.
        tokio::task::spawn_blocking(move || drop(write(&page, writer)));
        Content::Pieces(pieces)
    }
}

impl<F: Send + Sync + 'static> InEffect<F> {
    /// Writes the page about it on a thread of its own: that takes as long as the configuration is
    /// large.
    fn show(&self, workers: &[u64], sources: Vec<ShownSource>, reply: oneshot::Sender<Content>) {
        let described = self.describe(workers);
        let (files, refused) = (self.endpoint_files.clone(), self.endpoints_refused.clone());
        let snapshot = Arc::clone(&self.snapshot);
        let (names, now) = (self.dns.describe(), clock::monotonic_ns());
        let waits_for: Vec<_> = self.warming.held().iter().map(ToString::to_string).collect();
        let (writer, page) = pieces();
        tokio::task::spawn_blocking(move || {
            let names = names_json(&names, &snapshot, now);
            let sections = [
                ("sources", sources_json(sources)),
                ("endpoints_files", endpoints_files(&snapshot, &files, &refused)),
                ("host_names", json!(names)),
                ("waits_for", json!(waits_for)),
                ("runtime", runtime_json(&snapshot.runtime)),
            ];
            let sections = sections.map(|(name, value)| (name.to_owned(), value));
            // The reader may be gone, and sees else that it is cut off.
            drop(write_config(writer, described.into_iter().chain(sections), &snapshot));
        });
        let _ = reply.send(Content::Pieces(page));
    }

    /// Puts values over those of the file, or takes them back, and says what counts now. Workers see it at once.
    fn put_over(&self, values: &[(String, Option<Percent>)]) -> Answer {
        let runtime = &self.snapshot.runtime;
        if values.is_empty() {
            let text =
                "name a value: /runtime?canary=50, or /runtime?canary= to remove the override\n";
            return Answer::text(400, text);
        }
        if let Err(hint) = runtime.put_over(values) {
            return Answer::text(404, hint + "\n");
        }
        let mut text = String::new();
        for used in runtime.iter() {
            let name = used.cell.name();
            if !values.iter().any(|(changed, _)| changed == name) {
                continue;
            }
            let line = match used.value() {
                (Some(value), from) => format!("{name}: {value} ({})", from.as_str()),
                (None, _) => format!("{name}: as each rule says"),
            };
            tracing::info!("runtime {line}");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        }
        Answer::text(200, text)
    }

    /// How many resources are in which state.
    pub(super) fn resources(&self) -> Vec<ConfigResources> {
        let mut states = Vec::new();
        for kind in ResourceKind::ALL {
            let active = match kind {
                ResourceKind::Listener => self.snapshot.listeners.len(),
                ResourceKind::Route => self.snapshot.route_tables.iter().count(),
                ResourceKind::Assignment => {
                    let clusters = self.snapshot.clusters.iter().map(|(_, it)| it);
                    clusters.filter(|it| it.endpoints_from.is_apart()).count()
                }
                ResourceKind::Cluster => self.snapshot.clusters.iter().count(),
                ResourceKind::Secret => self.deliveries.accepted_len(kind),
            };
            let mut warming = self.deliveries.warming(kind);
            if kind == ResourceKind::Cluster && !warming.is_empty() {
                for (_, cluster) in self.snapshot.clusters.iter() {
                    warming.remove(&*cluster.name);
                }
            }
            let of_files = match kind {
                ResourceKind::Assignment => self.assignments_refused(),
                _ => 0,
            };
            let refused = self.deliveries.refused_len(kind) + of_files;
            let counts = [("active", active), ("warming", warming.len()), ("refused", refused)];
            states.extend(counts.map(|(state, count)| ConfigResources {
                kind: kind.word(),
                state,
                count: u64::try_from(count).unwrap_or(u64::MAX),
            }));
        }
        states
    }

    /// How many clusters have endpoints of files that are refused.
    fn assignments_refused(&self) -> usize {
        if self.endpoints_refused.is_empty() {
            return 0;
        }
        let files = self.snapshot.clusters.iter().filter_map(|(_, it)| it.endpoints_from.file());
        files.filter(|file| self.endpoints_refused.contains_key(*file)).count()
    }

    /// All but the configuration itself. `workers` are the versions that they serve by.
    fn describe(&self, workers: &[u64]) -> [(String, Value); 8] {
        let shown = |refused: &Option<(u64, Refused)>| {
            let shown = refused.as_ref().map(
                |(at, refused)| json!({ "at": clock::rfc3339(*at), "errors": refused.to_json() }),
            );
            json!(shown)
        };
        [
            ("version", json!(self.snapshot.version)),
            ("workers", json!(workers)),
            ("file", json!(self.builder.file_name())),
            ("loaded_at", json!(clock::rfc3339(self.loaded_at))),
            ("last_error", shown(&self.refused)),
            ("named_files_error", shown(&self.named_refused)),
            ("warnings", json!(self.warnings)),
            ("certificates", self.expiry.to_json()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
}

/// What a source has said, and what it was refused; none for the file and DNS.
struct ShownSource {
    said: Value,
    refused: Option<ShownRefusals>,
}

fn sources_json(sources: Vec<ShownSource>) -> Value {
    let shown = sources.into_iter().map(|ShownSource { mut said, refused }| {
        if let (Some(refused), Some(said)) = (refused, said.as_object_mut()) {
            refused.add_to(said);
        }
        said
    });
    shown.collect()
}

/// How a source is, in a word, by the states of what it is asked for.
fn state_of_source(states: &[(&'static str, u64)], is_heard: bool) -> &'static str {
    let has = |state: &str| states.iter().any(|(it, count)| *it == state && *count > 0);
    match () {
        () if has("refused") => "refused",
        () if has("failed") || has("stale") => "failing",
        () if has("restored") => "restored",
        () if !is_heard || has("waiting") => "waiting",
        () => "good",
    }
}

/// When something was refused, and why.
pub(super) fn error_json((at, errors): &(u64, Errors)) -> Value {
    json!({ "at": clock::rfc3339(*at), "errors": errors.errors })
}

/// Says behind each cluster whether the file of its endpoints is refused.
fn with_refusals<F>(
    steps: Vec<ExplainStep>,
    snapshot: &Snapshot<F>,
    refused: &EndpointsRefused,
) -> Vec<ExplainStep> {
    let about = |step: &ExplainStep| {
        let cluster = step.cluster.filter(|_| step.endpoint.is_none())?;
        let file = snapshot.cluster(cluster)?.endpoints_from.file()?;
        let (at, errors) = refused.get(file)?;
        let (at, count) = (clock::rfc3339(*at), errors.errors.len() + errors.more);
        let text = format!(
            "{file} is refused since {at}, mistakes: {count}; its previous list stays in use, see /config"
        );
        Some(ExplainStep::new("endpoints", text))
    };
    let steps = steps.into_iter().map(|step| (about(&step), step));
    steps.flat_map(|(about, step)| [Some(step), about]).flatten().collect()
}

/// The values that rules ask for, and where they come from.
fn runtime_json(runtime: &Runtime) -> Value {
    let values = runtime.iter().map(|used| {
        let (value, from) = used.value();
        json!({ "name": used.cell.name(), "value": value, "from": from.as_str(), "file": used.file })
    });
    values.collect()
}

/// The files of endpoints, since when their lists are in use, and why those of them are refused that are.
fn endpoints_files<F>(
    snapshot: &Snapshot<F>,
    files: &BTreeMap<Arc<str>, EndpointFile>,
    refused: &EndpointsRefused,
) -> Value {
    let mut clusters: BTreeMap<&Arc<str>, Vec<&Cluster>> = BTreeMap::new();
    for (_, cluster) in snapshot.clusters.iter() {
        let Some(file) = cluster.endpoints_from.file() else { continue };
        clusters.entry(file).or_default().push(cluster);
    }
    let described = clusters.into_iter().map(|(file, clusters)| {
        let known = files.get(file).copied().unwrap_or_default();
        json!({
            "file": file,
            "accepted_at": clock::rfc3339(known.accepted_at),
            "version": known.version,
            "endpoints": clusters.first().map_or(0, |cluster| cluster.endpoints.len()),
            "clusters": clusters.iter().map(|cluster| &cluster.name).collect::<Vec<_>>(),
            "last_error": refused.get(file).map(error_json),
        })
    });
    described.collect()
}
