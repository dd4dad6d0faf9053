//! A route configuration: virtual hosts, each of which is a route table.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::map::Map;
use crate::resource::route::RouteTable;
use crate::resource::route::build;
use crate::resource::route::file;
use crate::resource::route::file::named_by_rule;
use crate::resource::runtime::build::Values;
use crate::sections::context::Context;
use crate::sections::delivered::held;
use crate::sections::names::Names;
use crate::text::tree::Site;

/// Virtual hosts that listeners name together. Each is a table of its own, so that one that changes leaves the others,
/// and the listeners, as they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteConfig {
    /// In the order in which they were given.
    pub(crate) virtual_hosts: Vec<Arc<RouteTable>>,
    /// The clusters that their rules open tunnels to.
    pub(crate) tunnelled: BTreeSet<Box<str>>,
}

impl RouteConfig {
    /// Whether listeners find the same tables for the same hosts here.
    pub(crate) fn leads_the_same(&self, other: &Self) -> bool {
        let (own, others) = (&self.virtual_hosts, &other.virtual_hosts);
        own.len() == others.len()
            && own.iter().zip(others).all(|(own, other)| leads_the_same(own, other))
    }
}

/// Whether listeners find the same table for the same hosts.
pub(crate) fn leads_the_same(table: &RouteTable, other: &RouteTable) -> bool {
    (table.id, &table.hosts, table.has_ports) == (other.id, &other.hosts, other.has_ports)
}

/// The name of a virtual host's table.
pub(crate) fn table_name(config: &str, virtual_host: &str) -> String {
    format!("{config}/{virtual_host}")
}

/// The names of clusters in a route configuration.
pub(crate) fn clusters_of(file: &file::RouteConfig) -> impl Iterator<Item = &str> {
    file.virtual_hosts.iter().flat_map(clusters_of_table)
}

/// The names of clusters in a route table.
pub(crate) fn clusters_of_table(file: &file::RouteTable) -> impl Iterator<Item = &str> {
    file.rules.iter().flat_map(named_by_rule)
}

/// The tables of a route configuration, each with the name that [`table_name`] gives it.
pub(crate) fn build<F>(
    file: file::RouteConfig,
    site: &Site<'_>,
    values: &mut Values<'_>,
    context: &mut Context<'_, '_, F>,
) -> Vec<Arc<RouteTable>> {
    let mut clusters = held(clusters_of(&file), context);
    let file::RouteConfig { name: config, virtual_hosts } = file;
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
    build::build(&entries, &site, &tables, &mut clusters, values, context).into_values()
}
