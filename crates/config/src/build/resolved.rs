//! What entries of the file say once every default is filled in: the source that each entry of a snapshot keeps,
//! and what `check --print` and `/config` show of it.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::defaults;
use crate::error_pages::{self, ErrorPages};
use crate::file::cluster::{Endpoint, Endpoints};
use crate::file::listener::{OneOrSeveral, WeightedCluster};
use crate::file::{self, OrNone, Timeout};
use crate::file_mode::FileMode;
use crate::filters::FilterSource;
use crate::snapshot::{ClusterTls, Handlers, HttpOptions, ListenerTls};
use crate::transports::Transports;

/// All sections but those that are lists. What the process started with stays as `started` has it.
pub(super) fn sections(file: &file::File, started: Option<&file::File>) -> Arc<file::File> {
    let started = started.unwrap_or(file);
    Arc::new(file::File {
        // What is shown is all of it.
        include: Vec::new(),
        admin: started.admin.clone(),
        workers: file::Workers::Options(started.workers.options()),
        handover: started.handover.clone(),
        state: started.state.as_ref().map(|state| file::State::Options(state.options())),
        rebalance: file.rebalance,
        locality: file.locality.clone(),
        runtime: file.runtime.clone(),
        listeners: Vec::new(),
        routes: Vec::new(),
        clusters: Vec::new(),
        resolvers: file.resolvers.clone(),
        limits: file.limits.clone(),
        metrics: file.metrics,
        access_log: file.access_log.clone(),
    })
}

pub(super) fn cluster(file: &file::Cluster, transports: &Transports) -> Arc<file::Cluster> {
    let mut all = file.clone();
    if !all.original_destination {
        all.balance.get_or_insert_default();
    }
    if let Some(Endpoints::List(endpoints)) = &mut all.endpoints {
        endpoints.iter_mut().for_each(Endpoint::shorten);
    }
    let of_entries = all.transports.iter_mut().map(|entry| &mut entry.tls);
    for (file, built) in std::iter::once(&mut all.tls).chain(of_entries).zip(transports.all()) {
        if let Some((file, built)) = file.as_mut().zip(built.tls.as_deref()) {
            cluster_tls(file, built);
        }
    }
    Arc::new(all)
}

fn cluster_tls(all: &mut file::ClusterTls, tls: &ClusterTls) {
    all.server_name = tls.server_name.as_deref().map(str::to_owned);
    all.names = texts(&tls.source.names);
    all.groups = Some(groups(&tls.source.groups));
}

pub(super) fn route_table(file: &file::RouteTable, pages: &ErrorPages) -> Arc<file::RouteTable> {
    let mut all = file.clone();
    all.error_pages = error_pages::shown(pages);
    for rule in &mut all.rules {
        if rule.respond.is_none() && rule.redirect.is_none() {
            rule.timeout.get_or_insert(OrNone::Some(Timeout(defaults::EXCHANGE_TIMEOUT)));
            rule.upgrades.get_or_insert_with(|| Arc::clone(&defaults::UPGRADES));
        }
    }
    Arc::new(all)
}

/// What was built of the ends of connections, of a listener or of a chain.
#[derive(Clone, Copy)]
pub(super) struct Built<'a> {
    pub(super) filters: &'a [FilterSource],
    pub(super) handlers: &'a Handlers,
    pub(super) tls: Option<&'a ListenerTls>,
}

/// A listener without its chains, which have sources of their own.
pub(super) fn listener(
    file: &file::Listener,
    built: Built<'_>,
    http: &HttpOptions,
    connections_per_client_max: NonZeroU32,
) -> Arc<file::Listener> {
    let mut all = file::Listener { chains: Vec::new(), ..file.clone() };
    all.filters = parts(built.filters.iter());
    all.handlers = parts(built.handlers.sources());
    all.tls = all.tls.zip(built.tls).map(|(file, built)| listener_tls(file, built));
    list_targets(&mut all.routes, &mut all.cluster, &mut all.clusters);
    all.http.error_pages = error_pages::shown(&http.error_pages);
    all.connections_per_client_max = Some(connections_per_client_max);
    if all.has_unix() {
        all.mode.get_or_insert(FileMode::GROUP);
    }
    Arc::new(all)
}

pub(super) fn chain(file: &file::ListenerChain, built: Built<'_>) -> Arc<file::ListenerChain> {
    let mut all = file.clone();
    all.filters = parts(built.filters.iter());
    all.handlers = parts(built.handlers.sources());
    all.tls = all.tls.zip(built.tls).map(|(file, built)| listener_tls(file, built));
    list_targets(&mut all.routes, &mut all.cluster, &mut all.clusters);
    Arc::new(all)
}

fn listener_tls(mut all: file::ListenerTls, built: &ListenerTls) -> file::ListenerTls {
    let source = &built.source;
    let protocol = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    all.groups = Some(groups(&source.groups));
    all.alpn = Some(source.alpn.iter().map(|name| protocol(name)).collect());
    if let Some((all, client)) = all.client.as_mut().zip(source.client.as_ref()) {
        all.names = texts(&client.names);
    }
    all
}

/// Lists in the place of the short forms for one name.
fn list_targets(
    routes: &mut Option<OneOrSeveral<String>>,
    cluster: &mut Option<String>,
    clusters: &mut Vec<WeightedCluster>,
) {
    *routes = routes.take().map(|names| OneOrSeveral::Several(names.as_slice().to_vec()));
    let weight = defaults::WEIGHT;
    clusters.extend(cluster.take().map(|cluster| WeightedCluster { cluster, weight }));
}

/// What filters or handlers were built from, with their secrets masked.
fn parts<'s>(sources: impl Iterator<Item = &'s FilterSource>) -> Vec<serde_json::Value> {
    sources.map(|source| serde_json::json!({ source.name(): source.shown() })).collect()
}

fn texts(names: &[Box<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn groups(groups: &[tls::Group]) -> Vec<file::tls::Group> {
    groups.iter().copied().map(file::tls::Group).collect()
}
