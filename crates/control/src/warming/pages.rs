//! The admin interface of a process that waits for first answers before it serves.
//!
//! There are no workers and no counters yet. What is known is shown; all else is 503 with the reason.

use std::io;
use std::sync::Arc;

use config::snapshot::{Address, StartupOptions};
use serde_json::json;
use telemetry::{Collector, LogReader, ProcessFacts};
use tokio::sync::mpsc;

use super::{Warming, listed};
use crate::admin::{
    AdminSocket, Answer, Content, Hosts, Page, Query, Readiness, Scope, Server, index, pieces,
    write_config,
};
use crate::clock;
use crate::dns::{Dns, names_json};
use crate::expiry::Expiry;
use crate::moves::NotMoved;
use crate::reload::Candidate;

/// Queries that wait.
const QUERIES_MAX: usize = 64;

/// The admin interface's sockets, while nothing is served.
#[derive(Debug, Default)]
pub struct EarlyAdmin<'s> {
    /// For all pages.
    pub admin: Option<&'s AdminSocket>,
    /// For those of scrapers and probes.
    pub metrics: Option<&'s AdminSocket>,
    /// Version of the program.
    pub version: &'static str,
}

/// The interface at work. Its sockets listen on when it ends; connections to it end.
pub(super) struct EarlyPages {
    queries: mpsc::Receiver<Query>,
    collector: Collector,
    version: &'static str,
    servers: Vec<Server>,
}

impl EarlyPages {
    pub(super) fn start(early: &EarlyAdmin<'_>, startup: &StartupOptions) -> io::Result<Self> {
        let (sender, queries) = mpsc::channel(QUERIES_MAX);
        let mut servers = Vec::new();
        let hosts = Hosts::Known(Arc::clone(&startup.admin_hosts));
        for (socket, address, scope) in [
            (early.admin, &startup.admin, Scope::All(hosts)),
            (early.metrics, &startup.metrics, Scope::Metrics),
        ] {
            let (Some(socket), Some(address)) = (socket, address) else { continue };
            let address: &Address = address;
            let socket = AdminSocket::inherit(socket.try_clone_fd()?, address);
            servers.push(Server::start(socket, scope, sender.clone(), 0)?);
        }
        // The senders of the servers remain.
        let collector = Collector::new(early.version);
        Ok(Self { queries, collector, version: early.version, servers })
    }

    /// The next query; never one if nothing is served.
    pub(super) async fn next(&mut self) -> Query {
        match self.queries.recv().await {
            Some(query) => query,
            None => std::future::pending().await,
        }
    }

    /// Gives running answers a moment.
    pub(super) async fn close(self) {
        for server in self.servers {
            server.close().await;
        }
    }

    /// Answers a query. Returns whether it asks the process to end.
    pub(super) fn answer<F: Send + Sync + 'static>(
        &mut self,
        query: Query,
        candidate: &Candidate<F>,
        file: &str,
        (warming, dns): (&Warming, &Dns),
    ) -> bool {
        // Who asked may be gone.
        match query {
            Query::Page(page, reply) => {
                let ends = page == Page::Drain;
                let _ = reply.send(self.page(page, candidate, file, (warming, dns)));
                return ends;
            }
            Query::Slow { as_text, reply } => {
                let (reader, mut out) = (LogReader::new(), Vec::new());
                if as_text {
                    reader.write_slow_text(&mut out);
                } else {
                    reader.write_slow_json(&mut out);
                }
                let _ = reply.send(out);
            }
            Query::Explain { reply, .. } => {
                let _ = reply.send(Err(reason(warming)));
            }
            Query::Move { reply, .. } => {
                let _ = reply.send(Err(NotMoved::NotNow(reason(warming))));
            }
            // No process before this one has connections yet that this one shows.
            Query::OldProcess { reply } => drop(reply.send(None)),
            // Without workers none of these are asked for.
            Query::Connections { .. }
            | Query::OldConnections { .. }
            | Query::Endpoints { .. }
            | Query::EndpointExchanges { .. }
            | Query::Clusters { .. }
            | Query::Listeners { .. }
            | Query::Routes { .. } => {}
        }
        false
    }

    fn page<F: Send + Sync + 'static>(
        &mut self,
        page: Page,
        candidate: &Candidate<F>,
        file: &str,
        (warming, dns): (&Warming, &Dns),
    ) -> Content {
        let snapshot = candidate.snapshot();
        let answer = match page {
            Page::Index => index(self.version, "starting", snapshot.version),
            Page::Ready(detail) => {
                let lines = warming.held().iter();
                let lines = lines.map(|name| format!("{name}: {}", dns.reason(name))).collect();
                Readiness { is_ready: false, reason: reason(warming), lines }.answer(detail)
            }
            Page::Healthz => Answer::text(200, "ok\n"),
            Page::Metrics => {
                let mut text = String::new();
                self.collector
                    .readings()
                    .write_prometheus(&ProcessFacts::read(clock::wall_ns()), &mut text);
                Answer::metrics(text)
            }
            Page::Stats { filter } => {
                let mut text = String::new();
                let process = ProcessFacts::read(clock::wall_ns());
                self.collector.readings().write_stats(&process, &filter, &mut text);
                Answer::text(200, text)
            }
            Page::Config => return show(candidate, file, (warming, dns)),
            Page::Resource(resource) => match config::resource(snapshot, &resource) {
                Ok(described) => Answer::json(&described),
                Err(hint) => Answer::text(404, hint + "\n"),
            },
            Page::Drain => Answer::text(202, "draining\n"),
            Page::Clusters(_)
            | Page::Listeners(_)
            | Page::Routes(_)
            | Page::Handover
            | Page::Sources
            | Page::Release
            | Page::Runtime(_)
            | Page::Drained(_) => Answer::text(503, reason(warming) + "\n"),
        };
        answer.into()
    }
}

/// Why nothing is served.
fn reason(warming: &Warming) -> String {
    format!("starting: waits for first answers of DNS: {}", listed(warming.held()))
}

/// The configuration that waits, with the keys of the one in effect.
fn show<F: Send + Sync + 'static>(
    candidate: &Candidate<F>,
    file: &str,
    (warming, dns): (&Warming, &Dns),
) -> Content {
    let snapshot = Arc::clone(candidate.snapshot());
    let now = clock::monotonic_ns();
    let names = dns.describe();
    let names = names_json(&names, &snapshot, now);
    let waits_for: Vec<_> = warming.held().iter().map(ToString::to_string).collect();
    let sections = [
        ("version", json!(0)),
        ("workers", json!([])),
        ("file", json!(file)),
        ("loaded_at", json!(null)),
        ("last_error", json!(null)),
        ("warnings", json!(candidate.warnings())),
        ("certificates", Expiry::new(&snapshot).to_json()),
        ("endpoints_files", json!([])),
        ("host_names", json!(names)),
        ("waits_for", json!(waits_for)),
        ("runtime", json!([])),
    ];
    let (writer, page) = pieces();
    tokio::task::spawn_blocking(move || {
        let sections = sections.map(|(name, value)| (name.to_owned(), value));
        drop(write_config(writer, sections.into_iter(), &snapshot));
    });
    Content::Pieces(page)
}
