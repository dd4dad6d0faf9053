//! A file's types to a snapshot: the only validation of what the file means.
//!
//! One function a section. Each makes the values that workers use, or reports why it cannot and
//! goes on with the next entry, so that one load reports everything. What was taken out of the tree
//! before (`shape::check`) was reported already, and nothing is said about what stands in for it;
//! names that stood there still count as known.

mod access_log;
mod assignments;
mod calls;
mod checks;
mod clusters;
mod delivered;
mod edits;
pub(crate) mod endpoints;
mod error_pages;
mod files;
mod hashing;
mod http;
mod listeners;
mod localities;
mod matching;
mod mirrors;
mod patterns;
mod redirects;
mod resolved;
mod resolvers;
mod retries;
mod rewrites;
mod routes;
mod runtime;
mod subsets;
mod tables;
mod targets;
mod tls;
mod transports;
pub(crate) mod tunnels;

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use assignments::{Assignments, assignment as delivered_assignment};
pub(crate) use clusters::named_by_listener as clusters_of_listener;
pub(crate) use delivered::{
    Lowered, clusters_of, clusters_of_table, delivered_cluster, delivered_listener,
    delivered_routes, route_names, table_name,
};
pub(crate) use files::{Files, SECRET_PREFIX, digest, unreadable};
pub(crate) use runtime::Values;

use ::tls::ProcessSessions;

use crate::address::UNIX_PATH_BYTES_MAX;
use crate::answers::NameReads;
use crate::drained::Drained;
use crate::endpoint_files::EndpointReads;
use crate::file::{self, OrNone, Rebalance, Timeout};
use crate::filters::FilterKinds;
use crate::findings::{Findings, Problem};
use crate::hosts::Host;
use crate::ids::Draft;
use crate::locality::LocalityKey;
use crate::map::Map;
use crate::memory::MemoryMax;
use crate::metrics::Metrics;
use crate::nearest;
use crate::origins::Origins;
use crate::protocols::Protocols;
use crate::runtime::Runtime;
use crate::snapshot::{
    AccessLog, Address, Cluster, HandoverOptions, Http2Options, Limits, Listener, Ping, Resolvers,
    RouteTable, RpcOptions, Snapshot, StartupOptions, StateFolder,
};
use crate::text::tree::{Node, Site};
use crate::units::Size;

/// What one load has to work with.
pub(crate) struct Context<'a, 'text, F> {
    pub(crate) kinds: &'a FilterKinds<F>,
    /// The snapshot before, whose equal parts are shared.
    pub(crate) former: Option<&'a Snapshot<F>>,
    /// What the text names beside itself.
    pub(crate) files: Files<'a>,
    /// Whether clusters may come from elsewhere than the text.
    pub(crate) has_sources: bool,
    /// The process's own keys of session tickets.
    pub(crate) sessions: &'a ProcessSessions,
    /// The endpoints that operators drain.
    pub(crate) drained: &'a Drained,
    /// Ids for what is new.
    pub(crate) ids: Draft<'a>,
    /// The files that endpoints stand in.
    pub(crate) endpoint_files: EndpointReads<'a>,
    /// The host names among endpoints.
    pub(crate) names: NameReads<'a>,
    /// What sources have assigned to clusters.
    pub(crate) assignments: Assignments<'a>,
    pub(crate) findings: &'a mut Findings<'text>,
}

/// The sections of a snapshot, each entry either the former one or new.
pub(crate) struct Parts<F> {
    pub(crate) startup: StartupOptions,
    pub(crate) listeners: Vec<Arc<Listener<F>>>,
    pub(crate) route_tables: Vec<Arc<RouteTable>>,
    pub(crate) clusters: Vec<Arc<Cluster>>,
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

/// The names that a section declares, whether their entries are sound or not.
pub(crate) struct Declared {
    names: Vec<Box<str>>,
    /// Whether each entry has a name that can be read. If not, a name that is not found may be
    /// the unreadable one, and it is not reported.
    is_complete: bool,
}

impl Declared {
    /// The names, to be looked up.
    pub(crate) fn set(&self) -> Map<&str, ()> {
        self.names.iter().map(|name| (&**name, ())).collect()
    }

    /// Reads the names of `section` before anything is cut.
    pub(crate) fn read(root: &Node, section: &str) -> Self {
        let Some(section) = root.find(section) else {
            return Self { names: Vec::new(), is_complete: true };
        };
        let names = section.items().iter().filter_map(|item| {
            let name = item.find("name").filter(|name| !name.is_stand_in)?;
            name.text()
        });
        let names: Vec<Box<str>> = names.map(Box::from).collect();
        let is_list = matches!(section.value, crate::text::tree::Value::List(_));
        let is_complete = is_list && names.len() == section.items().len();
        Self { names, is_complete }
    }
}

/// The names of a section with what they stand for, and which of them were referred to.
struct Names<'a, T> {
    declared: &'a Declared,
    known: Map<&'a str, (T, bool)>,
    /// What may come from elsewhere than the text.
    others: Map<Box<str>, T>,
    /// What comes from elsewhere and stands for several, or for none.
    groups: Map<Box<str>, Vec<T>>,
}

/// No names.
static NONE_DECLARED: Declared = Declared { names: Vec::new(), is_complete: true };

impl<T: Copy> Names<'static, T> {
    /// Names of which the text has none.
    fn elsewhere(others: Map<Box<str>, T>, groups: Map<Box<str>, Vec<T>>) -> Self {
        Self { declared: &NONE_DECLARED, known: Map::default(), others, groups }
    }
}

impl<'a, T: Copy> Names<'a, T> {
    fn new(declared: &'a Declared, mut value: impl FnMut(&'a str) -> T) -> Self {
        let mut known = Map::default();
        for name in &declared.names {
            known.insert(name.as_ref(), (value(name), false));
        }
        Self { declared, known, others: Map::default(), groups: Map::default() }
    }

    /// All that `name` stands for; a name without a declaration is reported at `site`.
    fn resolve_all(
        &mut self,
        name: &str,
        what: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Vec<T> {
        match self.groups.get(name) {
            Some(group) => group.clone(),
            None => self.resolve(name, what, site, findings).into_iter().collect(),
        }
    }

    /// What `name` stands for; a name without a declaration is reported at `site`.
    fn resolve(
        &mut self,
        name: &str,
        what: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        if let Some((value, is_used)) = self.known.get_mut(name) {
            *is_used = true;
            return Some(*value);
        }
        if let Some(value) = self.others.get(name) {
            return Some(*value);
        }
        if self.declared.is_complete {
            let names = self.declared.names.iter().map(AsRef::as_ref);
            let hint = match findings.has_room() {
                true => nearest::hint(name, names, "none is declared in this file"),
                false => String::new(),
            };
            site.error(findings, Problem::new(format!("no {what} has this name"), hint));
        }
        None
    }

    /// All names, each of which counts as used from here on.
    fn use_all(&mut self) -> impl Iterator<Item = (&str, T)> {
        self.known.iter_mut().map(|(name, (value, is_used))| {
            *is_used = true;
            (*name, *value)
        })
    }

    /// Counts `name` as used.
    fn note_use(&mut self, name: &str) {
        if let Some((_, is_used)) = self.known.get_mut(name) {
            *is_used = true;
        }
    }

    fn is_used(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|(_, is_used)| *is_used)
    }
}

/// Names of entries of one section, to find one that stands twice.
#[derive(Default)]
struct Once(Map<Box<str>, u32>);

impl Once {
    /// Whether `name` is sound and new; otherwise reports why not.
    fn check(
        &mut self,
        name: &str,
        what: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> bool {
        let site = site.key("name");
        if let Err(problem) = check_name(name) {
            site.error(findings, problem);
            return false;
        }
        match self.0.get(name) {
            Some(line) => {
                let line = findings.line_name(*line);
                let hint = format!("{line} has it already; choose another name");
                site.error(findings, Problem::new(format!("each {what} has its own name"), hint));
                false
            }
            None => {
                self.0.insert(name.into(), site.at().line);
                true
            }
        }
    }
}

/// Bytes of a name: it becomes a label of every metric.
const NAME_BYTES_MAX: usize = 1024;

pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let is_sound = |c: char| !c.is_control() && !c.is_whitespace();
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_sound) {
        return Ok(());
    }
    let rule = match name.contains(char::is_control) {
        true => "a name has no control characters".to_owned(),
        false => format!("a name has 1 to {NAME_BYTES_MAX} bytes and no spaces"),
    };
    Err(Problem::new(rule, "write something like shop-api"))
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

    let clusters = clusters::build(file, &site.key("clusters"), &cluster_names, context);
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
        startup: startup(file, site, context),
        listeners,
        route_tables: tables.into_values(),
        runtime: used,
        clusters,
        resolvers: resolvers::build(&file.resolvers, &site.key("resolvers"), context.findings),
        limits: limits(&file.limits),
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
        origins: Origins::read(site.node(), context.findings.places()),
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

/// What the process started with stays; a file that says something else is warned about.
fn startup<F>(
    file: &file::File,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> StartupOptions {
    let options = file.workers.options();
    let admin = file.admin.as_ref();
    let asked = StartupOptions {
        admin: admin.and_then(|admin| admin.address.clone()),
        admin_mode: admin.and_then(|admin| admin.mode),
        admin_hosts: admin_hosts(file, site, context.findings),
        metrics: admin.and_then(|admin| admin.metrics.clone()),
        workers: match options.count {
            file::WorkerCount::Auto(_) => None,
            file::WorkerCount::Exactly(count) => Some(count),
        },
        pins_workers: options.pin,
        handover: handover(&file.handover, &site.key("handover"), context),
        state: file.state.as_ref().map(|state| state_folder(state, &site.key("state"), context)),
    };
    let Some(former) = context.former else { return asked };
    let mut warn = |site: &Site<'_>| {
        let rule = "a change of this requires a restart or an upgrade";
        let problem = Problem::new(rule, "run `strait upgrade`, or restart the process");
        site.warning(context.findings, problem);
    };
    if asked.admin != former.startup.admin {
        warn(&site.key("admin").key("address"));
    }
    if asked.admin_mode != former.startup.admin_mode {
        warn(&site.key("admin").key("mode"));
    }
    if asked.admin_hosts != former.startup.admin_hosts {
        warn(&site.key("admin").key("hosts"));
    }
    if asked.metrics != former.startup.metrics {
        warn(&site.key("admin").key("metrics"));
    }
    let is_elsewhere = asked.handover.socket != former.startup.handover.socket;
    if !is_elsewhere && asked.handover != former.startup.handover {
        warn(&site.key("handover"));
    }
    if asked.state != former.startup.state {
        warn(&site.key("state"));
    }
    if (asked.workers, asked.pins_workers) != (former.startup.workers, former.startup.pins_workers)
    {
        warn(&site.key("workers"));
    }
    if is_elsewhere {
        let rule =
            "a change of this requires a restart: an upgrade does not find the process there";
        let problem = Problem::new(rule, "restart the process");
        site.key("handover").key("socket").warning(context.findings, problem);
    }
    former.startup.clone()
}

/// Permissions stand where there is no file.
fn refuse_mode(site: &Site<'_>, findings: &mut Findings<'_>) {
    let rule = "permissions are those of the file of a unix socket";
    site.error(findings, Problem::new(rule, "remove this, or listen on `unix:/run/…`"));
}

fn handover<F>(
    file: &file::Handover,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> HandoverOptions {
    if check_handover_socket(file, site, context.findings)
        && let Some(path) = file.socket.as_deref()
    {
        context.files.warn_of_handover_folder(
            (path, &file.users),
            &site.key("socket"),
            context.findings,
        );
    }
    file.into()
}

/// Whether the path of the socket for handovers, if there is one, is a whole one, and fits the address of a socket.
pub(crate) fn check_handover_socket(
    file: &file::Handover,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> bool {
    let Some(path) = file.socket.as_deref() else { return true };
    let problem = if !path.starts_with('/') {
        let hint = "write the whole path, such as /run/strait/handover/strait.sock";
        Problem::new("the socket's path begins with /", hint)
    } else if path.len() > UNIX_PATH_BYTES_MAX {
        let rule = format!("the path of a socket has at most {UNIX_PATH_BYTES_MAX} bytes");
        Problem::new(rule, "choose a folder with a shorter path, such as /run/strait/handover")
    } else {
        return true;
    };
    site.key("socket").error(findings, problem);
    false
}

impl From<&file::Handover> for HandoverOptions {
    fn from(file: &file::Handover) -> Self {
        Self {
            socket: file.socket.as_deref().map(|path| FilePath::new(path).into()),
            timeout: file.timeout.into(),
            probation: file.probation.0,
            users: file.users.as_slice().into(),
            fd_store: file.fd_store,
        }
    }
}

/// The folder for what sources gave last, which must not depend on where the process was started.
fn state_folder<F>(
    file: &file::State,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> StateFolder {
    let file::StateOptions { folder, keys } = file.options();
    let site = match file {
        file::State::Folder(_) => site,
        file::State::Options(_) => &site.key("folder"),
    };
    if folder.starts_with('/') {
        context.files.warn_of_state_folder(&folder, site, context.findings);
    } else {
        let problem = Problem::new(
            "the folder's path begins with /",
            "write the whole path, such as /var/lib/strait",
        );
        site.error(context.findings, problem);
    }
    StateFolder { path: FilePath::new(&folder).into(), keeps_keys: keys }
}

/// The names of the admin interface. Each is a whole one: a pattern would let in names that others
/// can make.
fn admin_hosts(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) -> Arc<[Box<str>]> {
    let Some(admin) = &file.admin else { return Arc::new([]) };
    let site = site.key("admin");
    if admin.address.is_none() && admin.metrics.is_none() && !site.is_cut("address") {
        let problem = Problem::new(
            "an admin interface without an address serves nothing",
            "add `address: 127.0.0.1:9901`, or `metrics: 127.0.0.1:9902`",
        );
        site.error(findings, problem);
    }
    if let Some(Address::Tcp(address)) = &admin.address
        && !address.ip().to_canonical().is_loopback()
    {
        let port = address.port();
        let problem = Problem::new(
            "the admin interface has no authentication: what reaches this address can read the \
             configuration and drain the process",
            format!(
                "write 127.0.0.1:{port} or a unix socket, and `metrics` with an address for what scrapes"
            ),
        );
        site.key("address").warning(findings, problem);
    }
    let addresses = admin.address.iter().chain(&admin.metrics);
    if admin.mode.is_some() && addresses.clone().all(|it| matches!(it, Address::Tcp(_))) {
        refuse_mode(&site.key("mode"), findings);
    }
    let mut names = Vec::with_capacity(admin.hosts.len());
    for (name, site) in admin.hosts.iter().zip(site.key("hosts").items()) {
        match name.parse() {
            Ok(Host::Exact(name)) => names.push(Box::from(&*name)),
            Ok(Host::Suffix(_) | Host::Prefix(_) | Host::Any) => {
                let hint = "write each name, such as admin.example.com";
                site.error(findings, Problem::new("names of the admin interface are whole", hint));
            }
            Err(problem) => site.error(findings, problem),
        }
    }
    names.into()
}

fn limits(file: &file::Limits) -> Limits {
    Limits {
        connections_max: file.connections_max,
        handshakes_max: file.handshakes_max,
        discard_bytes_max: file.discard_max.0,
        mirrored_bytes_max: file.mirrored_max.0,
        memory_max: match file.memory_max {
            None => MemoryMax::OfControlGroup,
            Some(OrNone::None) => MemoryMax::Unbounded,
            Some(OrNone::Some(Size(bytes))) => MemoryMax::Bytes(bytes),
        },
        linger_timeout: file.linger_timeout.0,
        linger_max: file.linger_max.0,
        drain_delay: file.drain_delay.0,
        drain_timeout: file.drain_timeout.into(),
    }
}

/// Seconds that the kernel counts in whole.
fn keepalive(
    file: Option<&file::listener::Keepalive>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<crate::snapshot::Keepalive> {
    let file = file?;
    let site = site.key("keepalive");
    for (key, period) in [("idle", file.idle), ("interval", file.interval)] {
        if period.0.subsec_nanos() != 0 {
            let hint = format!("write {}s", period.0.as_secs());
            site.key(key).error(findings, Problem::new("keepalive counts whole seconds", hint));
        }
    }
    Some(crate::snapshot::Keepalive {
        idle: file.idle.0,
        interval: file.interval.0,
        probes: file.probes,
    })
}

fn http2(file: &file::Http2, site: &Site<'_>, findings: &mut Findings<'_>) -> Http2Options {
    check_windows(file, site, findings);
    // The bounds of all sizes, in the schema, are far below 4 GiB.
    let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    Http2Options {
        streams_max: file.streams_max,
        stream_window_bytes_max: bytes(file.stream_window_max),
        connection_window_bytes_max: bytes(file.connection_window_max),
        header_table_bytes_max: bytes(file.header_table_max),
        frame_bytes_max: bytes(file.frame_max),
        work_max: file.work_max,
        work_per_second: file.work_per_second,
        early_reset: file.early_reset.0,
        ping: file.ping.map(|ping| Ping { interval: ping.interval.0, timeout: ping.timeout.0 }),
    }
}

fn rpc(file: file::Rpc) -> RpcOptions {
    RpcOptions {
        requests_max: file.requests_max,
        head_bytes_max: u32::try_from(file.head_max.0).unwrap_or(u32::MAX),
        body_bytes_max: file.body_max.0,
    }
}

/// Streams that stand still should leave the others some of the connection's window.
fn check_windows(file: &file::Http2, site: &Site<'_>, findings: &mut Findings<'_>) {
    let (streams, window, connection) =
        (file.streams_max, file.stream_window_max, file.connection_window_max);
    let all = Size(u64::from(streams.get()).saturating_mul(window.0));
    if all <= connection {
        return;
    }
    let rule = format!(
        "{connection} is less than {streams} streams of {window}, so that some of them can hold up \
         the others"
    );
    let less = "less in `streams_max` or `stream_window_max`";
    let hint = match all <= WINDOW_MAX {
        true => format!("write {all}, or {less}"),
        false => format!("write {less}"),
    };
    site.key("connection_window_max").warning(findings, Problem::new(rule, hint));
}

/// What a window can be, as the schema says.
const WINDOW_MAX: Size = Size(1 << 30);

fn or_none(timeout: OrNone<Timeout>) -> Option<Duration> {
    match timeout {
        OrNone::None => None,
        OrNone::Some(timeout) => Some(timeout.into()),
    }
}

/// `new`, or the former value if it is the same: what did not change is shared.
fn share<T: PartialEq>(new: T, former: Option<&Arc<T>>) -> Arc<T> {
    match former {
        Some(former) if **former == new => Arc::clone(former),
        _ => Arc::new(new),
    }
}
