//! What a listener or a chain says once every default is filled in: the source that its entry of a snapshot keeps, and what
//! `check --print` and `/config` show of it.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::defaults;
use crate::file::one_or_several::OneOrSeveral;
use crate::file_mode::FileMode;
use crate::resource::error_pages;
use crate::resource::filter::FilterSource;
use crate::resource::listener::HttpOptions;
use crate::resource::listener::chain::ListenerChain;
use crate::resource::listener::file::{Listener, WeightedCluster};
use crate::resource::listener::handlers::Handlers;
use crate::resource::tls::ListenerTls;
use crate::resource::tls::resolved::listener_tls;

/// What was built of the ends of connections, of a listener or of a chain.
#[derive(Clone, Copy)]
pub(crate) struct Built<'a> {
    pub(crate) filters: &'a [FilterSource],
    pub(crate) handlers: &'a Handlers,
    pub(crate) tls: Option<&'a ListenerTls>,
}

/// A listener without its chains, which have sources of their own.
pub(crate) fn listener(
    file: &Listener,
    built: Built<'_>,
    http: &HttpOptions,
    connections_per_client_max: NonZeroU32,
) -> Arc<Listener> {
    let mut all = Listener { chains: Vec::new(), ..file.clone() };
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

pub(crate) fn chain(file: &ListenerChain, built: Built<'_>) -> Arc<ListenerChain> {
    let mut all = file.clone();
    all.filters = parts(built.filters.iter());
    all.handlers = parts(built.handlers.sources());
    all.tls = all.tls.zip(built.tls).map(|(file, built)| listener_tls(file, built));
    list_targets(&mut all.routes, &mut all.cluster, &mut all.clusters);
    Arc::new(all)
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
