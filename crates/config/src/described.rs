//! One resource as operators see it: where it comes from, who refers to it, and what it says.

use serde_json::{Value as Json, json};

use crate::delivered;
use crate::effective;
use crate::file;
use crate::nearest;
use crate::origins::{ResourceKind, ResourceName};
use crate::resource::cluster::build::named_by_listener;
use crate::resource::listener::delivered::route_names;
use crate::resource::route::virtual_hosts::clusters_of_table;
use crate::snapshot::{
    Action, ClusterId, EndpointsFrom, Id, Listener, RouteTable, RouteTableId, Snapshot,
};

/// A resource with its origin, its version, who refers to it and what it says, secrets masked.
///
/// # Errors
///
/// There is none of this name; the names that are near.
pub fn resource<F>(snapshot: &Snapshot<F>, wanted: &ResourceName) -> Result<Json, String> {
    let name = &*wanted.name;
    let mut origin_of_endpoints = None;
    let users = referred_by(snapshot, wanted);
    let found = match wanted.kind {
        ResourceKind::Listener => {
            let found = snapshot.listeners.iter().find(|it| *it.name == *name);
            found.map(|it| effective::listener_shown(snapshot, it))
        }
        ResourceKind::Route => {
            let found = snapshot.route_tables.iter().find(|(_, it)| *it.name == *name);
            let table = found.map(|(_, it)| effective::table_shown(snapshot, it));
            table.or_else(|| route_config_shown(snapshot, name))
        }
        ResourceKind::Cluster => {
            let found = snapshot.clusters.iter().find(|(_, it)| *it.name == *name);
            found.map(|(_, it)| effective::cluster_shown(snapshot, it))
        }
        ResourceKind::Assignment => {
            let found = snapshot.clusters.iter().find(|(_, it)| *it.name == *name);
            let found = found.filter(|(_, it)| it.endpoints_from.is_apart());
            found.map(|(_, it)| {
                origin_of_endpoints = endpoints_origin(&it.endpoints_from);
                effective::assignment_shown(it)
            })
        }
        // What it says is not shown.
        ResourceKind::Secret => (!users.is_empty()).then_some(Json::Null),
    };
    let Some(shown) = found else { return Err(missing(snapshot, wanted)) };
    let found = match wanted.kind {
        ResourceKind::Secret => snapshot.origins.find_file(name),
        kind => snapshot.origins.find(kind, name),
    };
    let (version, origin) = found.unzip();
    let origin = origin.or(origin_of_endpoints);
    Ok(json!({
        "resource": wanted.to_string(),
        "origin": origin,
        "version": version,
        "referred_by": users,
        "effective": shown,
    }))
}

/// Who refers to a resource in this snapshot, whether that is there or not: as `listener/edge`, `route/shop`, or `cluster/web`.
pub fn referred_by<F>(snapshot: &Snapshot<F>, wanted: &ResourceName) -> Vec<String> {
    let name = &*wanted.name;
    match wanted.kind {
        ResourceKind::Listener => Vec::new(),
        ResourceKind::Route => {
            match snapshot.route_tables.iter().find(|(_, it)| *it.name == *name) {
                Some((_, table)) => users_of_table(snapshot, table.id),
                None => listeners_that(snapshot, |file| route_names(file).contains(name)),
            }
        }
        ResourceKind::Cluster => match snapshot.clusters.iter().find(|(_, it)| *it.name == *name) {
            Some((_, cluster)) => users_of_cluster(snapshot, cluster.id),
            None => users_of_missing_cluster(snapshot, name),
        },
        ResourceKind::Assignment => {
            let mut clusters = snapshot.clusters.iter().map(|(_, it)| it);
            let found = clusters.find(|it| *it.name == *name && it.endpoints_from.is_apart());
            found.map(|it| format!("cluster/{}", it.name)).into_iter().collect()
        }
        ResourceKind::Secret => users_of_secret(snapshot, wanted),
    }
}

/// The listeners and clusters that name a secret: those of the file by the path of a file, the others by its name.
fn users_of_secret<F>(snapshot: &Snapshot<F>, wanted: &ResourceName) -> Vec<String> {
    let name = &*wanted.name;
    let of_file = |kind, user: &str| snapshot.origins.has(kind, user);
    let mut all =
        listeners_that(snapshot, |file| match of_file(ResourceKind::Listener, &file.name) {
            true => delivered::paths_of_listener(file).any(|path| path == name),
            false => delivered::secrets_of_listener(file).any(|it| it == *wanted),
        });
    let clusters = snapshot.clusters.iter().map(|(_, it)| it);
    let clusters = clusters.filter(|it| match of_file(ResourceKind::Cluster, &it.name) {
        true => delivered::paths_of_cluster(&it.source).any(|path| path == name),
        false => delivered::secrets_of_cluster(&it.source).any(|it| it == *wanted),
    });
    all.extend(clusters.map(|it| format!("cluster/{}", it.name)));
    all
}

/// A route configuration that a source has delivered: its virtual hosts are tables whose names begin with its own.
fn route_config_shown<F>(snapshot: &Snapshot<F>, name: &str) -> Option<Json> {
    let is_of_it = |table: &RouteTable| {
        let rest = table.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        rest && !snapshot.origins.has(ResourceKind::Route, &table.name)
    };
    let tables = snapshot.route_tables.iter().map(|(_, table)| table);
    let tables = tables.filter(|table| is_of_it(table));
    let shown: Vec<_> = tables.map(|table| effective::table_shown(snapshot, table)).collect();
    (!shown.is_empty()).then(|| json!({ "name": name, "virtual_hosts": shown }))
}

/// Where the file has the endpoints of a cluster from; none if another source delivers them.
fn endpoints_origin(from: &EndpointsFrom) -> Option<Json> {
    match from {
        EndpointsFrom::File(file) => Some(json!({ "file": file })),
        EndpointsFrom::Dns(_) | EndpointsFrom::Names(_) => {
            let names: Vec<_> = from.names().map(ToString::to_string).collect();
            Some(json!({ "dns": names }))
        }
        EndpointsFrom::Addresses | EndpointsFrom::Assignment => None,
    }
}

fn missing<F>(snapshot: &Snapshot<F>, wanted: &ResourceName) -> String {
    if wanted.kind == ResourceKind::Assignment {
        let name = &wanted.name;
        let mut clusters = snapshot.clusters.iter().map(|(_, it)| it);
        if clusters.any(|it| *it.name == **name && it.original_destination.is_none()) {
            return format!("cluster {name} lists its endpoints itself; ask for cluster/{name}");
        }
        let apart = snapshot.clusters.iter().filter(|(_, it)| it.endpoints_from.is_apart());
        let known: Vec<&str> = apart.map(|(_, it)| &*it.name).collect();
        let hint = nearest::hint(name, known, "there is none");
        return format!("{}; {hint}", is_missing(snapshot, wanted));
    }
    let known = snapshot.origins.names(wanted.kind);
    let hint = nearest::hint(&wanted.name, known, "there is none");
    format!("{}; {hint}", is_missing(snapshot, wanted))
}

/// It may have been there before, or be in a file that is refused.
fn is_missing<F>(snapshot: &Snapshot<F>, wanted: &ResourceName) -> String {
    let (kind, version) = (wanted.kind.word(), snapshot.version);
    format!("no {kind} has this name in version {version} of the configuration, which is in use")
}

/// The listeners and chains that have a table.
fn users_of_table<F>(snapshot: &Snapshot<F>, id: RouteTableId) -> Vec<String> {
    users(snapshot, |end| end.route_tables.contains(&id))
}

/// The listeners, chains and tables that lead to a cluster.
fn users_of_cluster<F>(snapshot: &Snapshot<F>, id: ClusterId) -> Vec<String> {
    let relays = |end: &Listener<F>| {
        end.relay.iter().flat_map(|relay| &relay.clusters).any(|(cluster, _)| *cluster == id)
    };
    let mut all = users(snapshot, relays);
    let leads = |table: &RouteTable| {
        table.rules.iter().any(|rule| match &rule.action {
            Action::Forward(forward) => forward.clusters().any(|cluster| cluster == id),
            Action::Respond(_) | Action::Redirect(_) => false,
        })
    };
    let tables = snapshot.route_tables.iter().filter(|(_, table)| leads(table));
    all.extend(tables.map(|(_, table): (Id, _)| format!("route/{}", table.name)));
    all
}

/// The listeners and tables that name a cluster which is not there.
fn users_of_missing_cluster<F>(snapshot: &Snapshot<F>, name: &str) -> Vec<String> {
    let mut all = listeners_that(snapshot, |file| named_by_listener(file).any(|it| it == name));
    let leads =
        |table: &RouteTable| clusters_of_table(&table.source).any(|cluster| cluster == name);
    let tables = snapshot.route_tables.iter().filter(|(_, table)| leads(table));
    all.extend(tables.map(|(_, table): (Id, _)| format!("route/{}", table.name)));
    all
}

/// The listeners whose text, with that of their chains, says something.
fn listeners_that<F>(
    snapshot: &Snapshot<F>,
    says: impl Fn(&file::Listener) -> bool,
) -> Vec<String> {
    let listeners =
        snapshot.listeners.iter().filter(|it| says(&effective::listener_with_chains(it)));
    listeners.map(|it| format!("listener/{}", it.name)).collect()
}

fn users<F>(snapshot: &Snapshot<F>, refers: impl Fn(&Listener<F>) -> bool) -> Vec<String> {
    let mut all = Vec::new();
    for listener in &snapshot.listeners {
        let name = &listener.name;
        all.extend(refers(listener).then(|| format!("listener/{name}")));
        let chains = listener.chains.iter().filter(|chain| refers(&chain.listener));
        all.extend(chains.map(|chain| format!("listener/{name}, chain {}", chain.name)));
    }
    all
}
