//! Resources that other sources deliver, each lowered by itself with the checks that an entry of the file has.
//!
//! What they name may not be there (yet): clusters have the ids then that they will have, and of route configurations
//! and secrets it is said which are missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Context, Names, clusters, listeners, routes, share, tables};
use crate::build::Values;
use crate::file::listener::OneOrSeveral;
use crate::file::{self, delivered::RouteConfig};
use crate::map::Map;
use crate::snapshot::{Cluster, ClusterId, Listener, ListenerId, RouteTable};
use crate::text::tree::Site;

/// A resource, and what it names and is not there.
pub(crate) struct Lowered<T> {
    pub(crate) resource: T,
    pub(crate) routes_missing: BTreeSet<Box<str>>,
    pub(crate) secrets_missing: BTreeSet<Box<str>>,
    pub(crate) assignments_missing: BTreeSet<Box<str>>,
}

pub(crate) fn delivered_cluster<F>(
    file: &file::Cluster,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Lowered<Arc<Cluster>> {
    // If it is refused, nothing names the id, and it is free again.
    let id = context.ids.hold(&file.name);
    let former = context.former.and_then(|former| former.cluster(id));
    for tls in former.iter().flat_map(|former| former.transports.tls()) {
        context.files.know(tls.source.certificate.as_slice(), tls.source.roots.as_ref());
    }
    // Whether a listener relays to it may change at any time.
    let cluster = clusters::cluster(file, id, true, site, former, context);
    lowered(share(cluster, former), BTreeSet::new(), context)
}

/// The name of a virtual host's table.
pub(crate) fn table_name(config: &str, virtual_host: &str) -> String {
    format!("{config}/{virtual_host}")
}

/// The names of clusters in a route configuration.
pub(crate) fn clusters_of(file: &RouteConfig) -> impl Iterator<Item = &str> {
    file.virtual_hosts.iter().flat_map(clusters_of_table)
}

/// The names of clusters in a route table.
pub(crate) fn clusters_of_table(file: &file::RouteTable) -> impl Iterator<Item = &str> {
    file.rules.iter().flat_map(clusters::named_by_rule)
}

/// The tables of a route configuration, each with the name that [`table_name`] gives it.
pub(crate) fn delivered_routes<F>(
    file: RouteConfig,
    site: &Site<'_>,
    values: &mut Values<'_>,
    context: &mut Context<'_, '_, F>,
) -> Vec<Arc<RouteTable>> {
    let mut clusters = held(clusters_of(&file), context);
    let RouteConfig { name: config, virtual_hosts } = file;
    let entries = virtual_hosts.into_iter().map(|virtual_host| {
        let name = table_name(&config, &virtual_host.name);
        Arc::new(file::RouteTable { name, ..virtual_host })
    });
    let entries: Vec<Arc<file::RouteTable>> = entries.collect();
    let mut tables = Names::elsewhere(Map::default(), Map::default());
    for entry in &entries {
        if !tables.known.contains_key(entry.name.as_str()) {
            tables.known.insert(&entry.name, (context.ids.route_table(&entry.name), true));
        }
    }
    let site = site.key("virtual_hosts");
    routes::build(&entries, &site, &tables, &mut clusters, values, context).into_values()
}

/// The names of route configurations in a listener and its chains.
pub(crate) fn route_names(file: &file::Listener) -> BTreeSet<&str> {
    let ends = file.chains.iter().map(|chain| &chain.routes).chain([&file.routes]);
    ends.flatten().flat_map(OneOrSeveral::as_slice).map(String::as_str).collect()
}

/// A listener. `find` has the tables of route configurations, and of the file.
pub(crate) fn delivered_listener<F>(
    file: &file::Listener,
    site: &Site<'_>,
    id: Option<ListenerId>,
    find: &dyn Fn(&str) -> Option<Vec<Arc<RouteTable>>>,
    context: &mut Context<'_, '_, F>,
) -> Lowered<Arc<Listener<F>>> {
    let former = id.and_then(|id| context.former?.listener(id)).map(|(_, listener)| listener);
    let ends = former.iter().flat_map(|former| {
        let chains = former.chains.iter().map(|chain| &chain.listener);
        chains.chain([&***former])
    });
    for tls in ends.filter_map(|end| end.tls.as_ref()) {
        let client = tls.source.client.as_ref();
        context.files.know(&tls.source.certificates, client.map(|client| &client.roots));
    }
    let (mut groups, mut tables, mut missing) = (Map::default(), Vec::new(), BTreeSet::new());
    for name in route_names(file) {
        let found = find(name).unwrap_or_else(|| {
            missing.insert(Box::from(name));
            Vec::new()
        });
        groups.insert(Box::from(name), found.iter().map(|table| table.id).collect());
        tables.extend(found);
    }
    let mut route_tables = Names::elsewhere(Map::default(), groups);
    let mut clusters = held(clusters::named_by_listener(file), context);
    let names = (&mut route_tables, &mut clusters);
    let tables = tables::Tables::new(tables);
    let listener = listeners::delivered(file, site, former, names, &tables, context);
    lowered(listener, missing, context)
}

/// These clusters with their ids, whether they are there or not.
fn held<'n, F>(
    names: impl Iterator<Item = &'n str>,
    context: &mut Context<'_, '_, F>,
) -> Names<'static, ClusterId> {
    let ids = names.map(|name| (Box::from(name), context.ids.hold(name)));
    Names::elsewhere(ids.collect(), Map::default())
}

fn lowered<T, F>(
    resource: T,
    routes_missing: BTreeSet<Box<str>>,
    context: &Context<'_, '_, F>,
) -> Lowered<T> {
    let secrets_missing = context.files.missing().map(Box::from).collect();
    let assignments_missing = context.assignments.missing().clone();
    Lowered { resource, routes_missing, secrets_missing, assignments_missing }
}
