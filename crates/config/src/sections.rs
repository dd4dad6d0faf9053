//! The sections of a file, one after the other: from its types to those of a snapshot.
//!
//! There is one function a section, in the module of its kind ([`mod@crate::resource`]): the only validation of what the file means. Each
//! makes the values that workers use, or reports why it cannot and goes on with the next entry, so that one load reports everything.
//! What was taken out of the tree before (`shape::check`) was reported already, and nothing is said about what stands in for it; names
//! that stood there still count as known. What all of them build with is here, and what concerns several sections.

pub(crate) mod calls;
pub(crate) mod context;
pub(crate) mod delivered;
pub(crate) mod files;
pub(crate) mod http;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod resolved;
mod resolvers;
pub(crate) mod startup;

use std::sync::Arc;

use self::context::Context;
use self::names::{Declared, Names};
use crate::file::{self, Rebalance};
use crate::findings::{EntryWarning, Findings, Problem};
use crate::metrics::Metrics;
use crate::origins::Origins;
use crate::protocols::Protocols;
use crate::resource::access_log::build as access_log;
use crate::resource::assignment::locality::LocalityKey;
use crate::resource::assignment::locality::build as localities;
use crate::resource::cluster::build as clusters;
use crate::resource::cluster::subsets::build as subsets;
use crate::resource::listener::build as listeners;
use crate::resource::route::build as routes;
use crate::resource::route::hash::build as hashing;
use crate::resource::route::redirects;
use crate::resource::runtime::Runtime;
use crate::resource::runtime::build as runtime;
use crate::resource::runtime::build::Values;
use crate::snapshot::{
    AccessLog, Cluster, Limits, Listener, Resolvers, RouteTable, StartupOptions,
};
use crate::text::tree::Site;

/// The sections of a snapshot, each entry either the former one or new.
pub(crate) struct Parts<F> {
    pub(crate) startup: StartupOptions,
    pub(crate) listeners: Vec<Arc<Listener<F>>>,
    pub(crate) route_tables: Vec<Arc<RouteTable>>,
    pub(crate) clusters: Vec<Arc<Cluster>>,
    /// How many of them were lowered.
    pub(crate) clusters_lowered: usize,
    /// What clusters and route tables were warned of, each by itself.
    pub(crate) entry_warnings: Vec<EntryWarning>,
    pub(crate) resolvers: Resolvers,
    pub(crate) limits: Limits,
    pub(crate) access_log: AccessLog,
    pub(crate) protocols: Protocols,
    pub(crate) metrics: Metrics,
    pub(crate) rebalance: Rebalance,
    pub(crate) locality: Option<LocalityKey>,
    pub(crate) runtime: Runtime,
    pub(crate) source: Arc<file::File>,
    pub(crate) origins: Origins,
    /// The clusters that are named and that the text has not.
    pub(crate) wanted: Vec<Arc<str>>,
}

impl<F> Parts<F> {
    /// Takes up the values that tables ask for which were added.
    pub(crate) fn add_runtime(&mut self) {
        let tables = self.route_tables.iter();
        self.runtime = Runtime::new(tables.flat_map(|table| &*table.runtime));
    }
}

/// Makes all sections. If something was reported, what comes out is not to be used.
pub(crate) fn parts<F>(
    file: &file::File,
    site: &Site<'_>,
    declared: (&Declared, &Declared),
    context: &mut Context<'_, '_, F>,
) -> Parts<F> {
    let ids = &mut context.ids;
    let has_sources = context.has_sources;
    let mut cluster_names = Names::new(declared.0, |name| match has_sources {
        // What a source delivered, and waited for this file, may name it as well.
        true => ids.hold(name),
        false => ids.cluster(name),
    });
    if has_sources {
        let elsewhere =
            clusters::named(file).filter(|name| !cluster_names.known.contains_key(name));
        cluster_names.others = elsewhere.map(|name| (name.into(), ids.hold(name))).collect();
    }
    let mut table_names = Names::new(declared.1, |name| ids.route_table(name));

    let (clusters, clusters_lowered) =
        clusters::build(file, &site.key("clusters"), &cluster_names, context);
    let former_values = context.former.map(|former| &*former.runtime);
    let mut values = Values::new(&file.runtime, former_values);
    let tables = routes::build(
        &file.routes,
        &site.key("routes"),
        &table_names,
        &mut cluster_names,
        &mut values,
        context,
    );
    // What follows is about entries together, and is found again with each text.
    let entry_warnings = context.findings.take_kept();
    let used = runtime::used(&tables);
    runtime::check(file, &site.key("runtime"), &used, context.findings);
    let listeners =
        listeners::build(file, site, (&mut table_names, &mut cluster_names), &tables, context);
    warn_unused(&file.clusters, &cluster_names, &site.key("clusters"), context.findings);
    hashing::check(file, site, context.findings);
    subsets::check(file, site, context.findings);
    localities::check(file, site, context.findings);
    calls::check(file, site, context.kinds, context.findings);
    routes::check_clients(file, site, context.findings);
    routes::check_grpc(file, site, context.findings);
    routes::check_slashes(file, site, context.findings);
    routes::check_access(file, site, context.findings);
    redirects::check(file, site, &tables, context.findings);
    clusters::warn_aimless(file, site, context.findings);
    clusters::warn_loops(file, site, context.findings);
    if !context.has_sources {
        clusters::warn_without_priority(file, site, context.findings);
    }
    warn_unused(&file.routes, &table_names, &site.key("routes"), context.findings);
    Parts {
        startup: startup::startup(file, site, context),
        listeners,
        route_tables: tables.into_values(),
        runtime: used,
        clusters,
        clusters_lowered,
        entry_warnings,
        resolvers: resolvers::build(&file.resolvers, &site.key("resolvers"), context.findings),
        limits: options::limits(&file.limits),
        metrics: file.metrics,
        rebalance: file.rebalance,
        locality: localities::own(
            file.locality.as_deref(),
            &site.key("locality"),
            context.findings,
        )
        .map(|it| it.key()),
        protocols: context.kinds.protocols().clone(),
        wanted: cluster_names.others.keys().map(|name| Arc::from(&**name)).collect(),
        origins: Origins::read(site.node(), context.findings.places(), context.files.named(site)),
        source: resolved::sections(file, context.former.map(|former| &*former.source)),
        access_log: access_log::build(&file.access_log, &site.key("access_log"), context),
    }
}

/// An entry of a section that others refer to by its name.
trait Named {
    const WHAT: &'static str;
    const USER: &'static str;
    fn name(&self) -> &str;
}

impl Named for file::Cluster {
    const WHAT: &'static str = "cluster";
    const USER: &'static str = "rule or listener";

    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for file::RouteTable {
    const WHAT: &'static str = "route table";
    const USER: &'static str = "listener";

    fn name(&self) -> &str {
        &self.name
    }
}

fn warn_unused<N: Named, T: Copy>(
    entries: &[Arc<N>],
    names: &Names<'_, T>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    for (entry, site) in entries.iter().zip(site.items()) {
        if !names.is_used(entry.name()) {
            let rule = format!("no {} uses this {}", N::USER, N::WHAT);
            site.key("name").warning(findings, Problem::new(rule, "remove it, or use it"));
        }
    }
}
