//! Configurations of a size, for Strait and for Envoy.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::{Value, json};

/// How large a configuration is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) clusters: usize,
    /// Of each cluster.
    pub(super) endpoints: usize,
    pub(super) rules: usize,
}

/// Rules of a route table.
const TABLE_RULES: usize = 100;

/// What differs from the configuration as it was at first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// `connections_max` of the cluster in the middle has so many more.
    pub(super) connections: usize,
    /// The timeout of the first rule of the table in the middle has so many seconds more.
    pub(super) timeout: usize,
}

impl Size {
    fn tables(self) -> usize {
        self.rules.div_ceil(TABLE_RULES)
    }

    /// The numbers of a table's rules.
    fn rules_of(self, table: usize) -> std::ops::Range<usize> {
        let first = table * TABLE_RULES;
        first..self.rules.min(first + TABLE_RULES)
    }
}

/// The file with the endpoints of the cluster `apart`.
pub(super) const ENDPOINTS_FILE: &str = "apart.yaml";

/// Further clusters whose endpoints are in files of their own.
pub(super) const FILES: usize = 50;

/// The file of one of them.
pub(super) fn file_of(cluster: usize) -> String {
    format!("apart-{cluster}.yaml")
}

/// Its endpoints, five, each of them another with another `number`.
pub(super) fn endpoints_of(cluster: usize, number: usize) -> String {
    let port = 10_000 + number % 50_000;
    let line = |endpoint: usize| format!("- 10.201.{cluster}.{endpoint}:{port}\n");
    (1..=ENDPOINTS_OF).map(line).collect()
}

/// How many each of them has.
pub(super) const ENDPOINTS_OF: usize = 5;

/// For Strait: clusters of this size that no request goes to, the cluster `apart` with a file of endpoints, and the
/// cluster `upstream` behind the host `load.example.com`.
pub(super) fn strait(
    size: Size,
    change: Change,
    (listen, admin, upstream): (SocketAddr, SocketAddr, SocketAddr),
) -> String {
    let mut text = format!(
        "workers: 1\nadmin: {{ address: \"{admin}\" }}\nlisteners:\n- name: edge\n  address: \"{listen}\"\n  routes: [load, apart"
    );
    for table in 0..size.tables() {
        let _ = write!(text, ", table-{table}");
    }
    text.push_str("]\nroutes:\n");
    for (name, cluster) in [("load", "upstream"), ("apart", "apart")] {
        let host = if name == "load" { "\"*\"" } else { "apart.example.com" };
        let _ = write!(
            text,
            "- name: {name}\n  hosts: [{host}]\n  rules:\n  - match: {{ prefix: / }}\n    cluster: {cluster}\n"
        );
    }
    for table in 0..size.tables() {
        let _ =
            write!(text, "- name: table-{table}\n  hosts: [shop-{table}.example.com]\n  rules:\n");
        for rule in size.rules_of(table) {
            let is_changed = table == size.tables() / 2 && rule % TABLE_RULES == 0;
            let timeout = 30 + if is_changed { change.timeout } else { 0 };
            let cluster = rule % size.clusters;
            let _ = writeln!(
                text,
                "  - match: {{ prefix: /service-{rule}/ }}\n    cluster: cluster-{cluster}\n    timeout: {timeout}s"
            );
        }
    }
    let _ = write!(
        text,
        "clusters:\n- name: upstream\n  endpoints: [\"{upstream}\"]\n- name: apart\n  endpoints: {{ file: {ENDPOINTS_FILE} }}\n"
    );
    for cluster in 0..FILES {
        let file = file_of(cluster);
        let _ = write!(text, "- name: apart-{cluster}\n  endpoints: {{ file: {file} }}\n");
    }
    for cluster in 0..size.clusters {
        let is_changed = cluster == size.clusters / 2;
        let connections = 1024 + if is_changed { change.connections } else { 0 };
        let _ = write!(
            text,
            "- name: cluster-{cluster}\n  connections_max: {connections}\n  endpoints:\n"
        );
        for endpoint in 0..size.endpoints {
            let _ = writeln!(text, "  - {}:8080", ip(cluster, endpoint));
        }
    }
    text.push_str("access_log: { stage_times: false }\n");
    text
}

/// The endpoints of `apart`.
pub(super) fn endpoints(number: usize) -> String {
    let first = 10_000 + number % 50_000;
    format!(
        "- 10.200.0.1:{first}\n- 10.200.0.2:80\n- 10.200.0.3:80\n- 10.200.0.4:80\n- 10.200.0.5:80\n"
    )
}

fn ip(cluster: usize, endpoint: usize) -> String {
    format!("10.{endpoint}.{}.{}", cluster / 250, cluster % 250)
}

/// For Strait: a listener with so many chains, the last of which clients meet.
pub(super) fn chains(
    count: usize,
    (listen, admin, upstream): (SocketAddr, SocketAddr, SocketAddr),
) -> String {
    let mut text = format!(
        "workers: 1\nadmin: {{ address: \"{admin}\" }}\nlisteners:\n- name: edge\n  address: \"{listen}\"\n  routes: load\n  chains:\n"
    );
    for chain in 1..count {
        let source = format!("10.{}.{}.{}", chain / 62_500, chain / 250 % 250, chain % 250);
        let _ = writeln!(
            text,
            "  - {{ name: chain-{chain}, match: {{ sources: [{source}/32] }}, routes: load }}"
        );
    }
    text.push_str("  - { name: local, match: { sources: [127.0.0.0/8] }, routes: load }\n");
    let _ = write!(
        text,
        "routes:\n- name: load\n  rules:\n  - match: {{ prefix: / }}\n    cluster: upstream\nclusters:\n- name: upstream\n  endpoints: [\"{upstream}\"]\naccess_log: {{ stage_times: false }}\n"
    );
    text
}

/// For Envoy: the same clusters, endpoints and rules.
pub(super) fn envoy(size: Size, listen: SocketAddr) -> Value {
    let address =
        |ip: &str, port: u16| json!({ "socket_address": { "address": ip, "port_value": port } });
    let hosts = (0..size.tables()).map(|table| {
        let routes = size.rules_of(table).map(|rule| {
            let cluster = format!("cluster-{}", rule % size.clusters);
            json!({
                "match": { "prefix": format!("/service-{rule}/") },
                "route": { "cluster": cluster, "timeout": "30s" },
            })
        });
        json!({
            "name": format!("table-{table}"),
            "domains": [format!("shop-{table}.example.com")],
            "routes": routes.collect::<Value>(),
        })
    });
    let clusters = (0..size.clusters).map(|cluster| {
        let endpoints = (0..size.endpoints)
            .map(|it| json!({ "endpoint": { "address": address(&ip(cluster, it), 8080) } }));
        let name = format!("cluster-{cluster}");
        json!({
            "name": &name,
            "type": "STATIC",
            "connect_timeout": "5s",
            "load_assignment": {
                "cluster_name": &name,
                "endpoints": [{ "lb_endpoints": endpoints.collect::<Value>() }],
            },
        })
    });
    let extensions = "type.googleapis.com/envoy.extensions.filters";
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": format!("{extensions}.http.router.v3.Router") },
    });
    let manager = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": format!(
                "{extensions}.network.http_connection_manager.v3.HttpConnectionManager"
            ),
            "stat_prefix": "edge",
            "http_filters": [router],
            "route_config": { "virtual_hosts": hosts.collect::<Value>() },
        },
    });
    json!({ "static_resources": {
        "listeners": [{
            "name": "edge",
            "address": address(&listen.ip().to_string(), listen.port()),
            "filter_chains": [{ "filters": [manager] }],
        }],
        "clusters": clusters.collect::<Value>(),
    } })
}
