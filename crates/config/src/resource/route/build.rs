//! `routes` to [`RouteTable`]s.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::defaults;
use crate::file::one_or_several::OneOrSeveral;
use crate::file::{self, OrNone};
use crate::findings::{Findings, Places, Problem};
use crate::hosts::Host;
use crate::map::Map;
use crate::nearest;
use crate::resource::cluster::file::Protocol;
use crate::resource::cluster::subsets::build as subsets;
use crate::resource::error_pages::build as error_pages;
use crate::resource::route::edits::build as edits;
use crate::resource::route::file::{self as route, Scheme};
use crate::resource::route::hash::build as hashing;
use crate::resource::route::matching::build as matching;
use crate::resource::route::matching::{Case, Criterion, PathMatch, Patterns, Regexes};
use crate::resource::route::mirrors::build as mirrors;
use crate::resource::route::paths::PathTable;
use crate::resource::route::redirects::split_port;
use crate::resource::route::resolved;
use crate::resource::route::retry::build as retries;
use crate::resource::route::rewrite::build as rewrites;
use crate::resource::route::rewrite::{PathRewrite, RewriteKey};
use crate::resource::route::tables::Tables;
use crate::resource::route::targets::build as targets;
use crate::resource::runtime::RuntimeUse;
use crate::resource::runtime::build::Values;
use crate::resource::tls::file::{ClientMode, Mode};
use crate::sections::context::{Context, share};
use crate::sections::http::{self, Found};
use crate::sections::names::{Names, Once};
use crate::snapshot::{
    Action, ClusterId, Forward, Redirect, RedirectPath, Respond, RouteTable, RouteTableId, Rule,
    RuleSlot, RuleSlots,
};
use crate::text::tree::Site;

pub(crate) fn build<F>(
    entries: &[Arc<file::RouteTable>],
    site: &Site<'_>,
    names: &Names<'_, RouteTableId>,
    clusters: &mut Names<'_, ClusterId>,
    values: &mut Values<'_>,
    context: &mut Context<'_, '_, F>,
) -> Tables {
    let mut once = Once::default();
    let mut tables = Tables::default();
    for (entry, site) in entries.iter().zip(site.items()) {
        let is_new = once.check(&entry.name, "route table", &site, context.findings);
        let id = names.known.get(entry.name.as_str()).map(|(id, _)| *id);
        let former = id.and_then(|id| context.former.and_then(|former| former.route_table(id)));
        if let Some(former) = former.filter(|_| is_new && site.node().is_known) {
            note_uses(former, clusters, context);
            tables.push(Arc::clone(former));
            continue;
        }
        // Whether hosts that could not be read are those of another table is not known.
        let hosts = if site.is_cut("hosts") {
            Vec::new()
        } else {
            hosts(entry, &site.key("hosts"), context.findings)
        };
        let mut patterns = TablePatterns::default();
        let rules_site = site.key("rules");
        let mut rules =
            rules(&entry.rules, &rules_site, clusters, values, &mut patterns, context.findings);
        let Context { files, findings, .. } = &mut *context;
        let pages = site.key("error_pages");
        let error_pages = error_pages::build(&entry.error_pages, &pages, files, findings);
        let own_edits = edits::edits(entry.headers.as_ref(), &site.key("headers"), findings);
        let mut compile = |patterns: Patterns, former: Option<&Arc<Regexes>>| {
            patterns.compile(former).unwrap_or_else(|problem| {
                rules_site.error(context.findings, problem);
                Arc::default()
            })
        };
        let regexes_of_values = compile(patterns.values, former.map(|former| &former.values));
        let regexes = compile(patterns.paths, former.map(|former| former.paths.regexes()));
        let paths = PathTable::new(&rules, regexes);
        // Errors come first: what was left out was reported.
        if rules.len() == rules_site.items().count() {
            warn_unreachable(&rules, &paths, &rules_site, context.findings);
        }
        let Some(id) = id.filter(|_| is_new) else { continue };
        let casts_dice = rules.iter().any(Rule::casts_dice);
        let has_edits = own_edits.is_some() || rules.iter().any(Rule::has_edits);
        let name = Arc::from(entry.name.as_str());
        let source = resolved::route_table(entry, &error_pages);
        let slots = RuleSlots::assign(&mut rules, former.map(|it| (&*it.rules, &it.slots)));
        let table = RouteTable {
            id,
            source,
            name,
            hosts,
            has_ports: entry.ports,
            paths,
            values: regexes_of_values,
            casts_dice,
            error_pages,
            runtime: runtime_of(&rules),
            weighted: weighted(&rules),
            rules,
            edits: own_edits,
            has_edits,
            places_by_name: Default::default(),
            slots,
        };
        tables.push(share(table, former));
    }
    tables
}

/// The places of the rules with several clusters by weight.
fn weighted(rules: &[Rule]) -> Box<[u32]> {
    let weighted = (0..).zip(rules).filter(|(_, rule)| rule.shares().is_some());
    weighted.map(|(place, _)| place).collect()
}

/// The values of `runtime` that rules ask for, each once.
fn runtime_of(rules: &[Rule]) -> Box<[RuntimeUse]> {
    let mut found: Vec<RuntimeUse> = Vec::new();
    let of_criteria = rules.iter().flat_map(|rule| &rule.also).filter_map(|it| match it {
        Criterion::Fraction(fraction) => fraction.runtime.as_ref(),
        _ => None,
    });
    let of_mirrors = rules.iter().flat_map(|rule| match &rule.action {
        Action::Forward(forward) => &*forward.mirrors,
        Action::Respond(_) | Action::Redirect(_) => &[],
    });
    let of_mirrors = of_mirrors.filter_map(|mirror| mirror.fraction.runtime.as_ref());
    for used in of_criteria.chain(of_mirrors) {
        if !found.contains(used) {
            found.push(used.clone());
        }
    }
    found.into()
}

/// Counts the clusters that an unchanged table forwards to as used.
fn note_uses<F>(
    table: &RouteTable,
    clusters: &mut Names<'_, ClusterId>,
    context: &Context<'_, '_, F>,
) {
    for rule in &table.rules {
        let Action::Forward(forward) = &rule.action else { continue };
        for id in forward.clusters() {
            if let Some(cluster) = context.former.and_then(|former| former.cluster(id)) {
                clusters.note_use(&cluster.name);
            }
        }
    }
}

fn hosts(table: &file::RouteTable, site: &Site<'_>, findings: &mut Findings<'_>) -> Vec<Host> {
    if !site.is_written() {
        return vec![Host::Any];
    }
    let read = if table.ports { Host::with_port } else { str::parse::<Host> };
    let mut hosts = Vec::with_capacity(table.hosts.len());
    let mut known = Map::default();
    for (entry, site) in table.hosts.iter().zip(site.items()) {
        match read(entry) {
            Ok(host) if known.insert(host.clone(), ()).is_some() => {
                let problem = Problem::new("this host occurs twice", "remove one of the two");
                site.error(findings, problem);
            }
            Ok(host) => {
                if entry == "_" {
                    let rule = "`_` is the host with this name, and no other";
                    let problem = Problem::new(rule, "write \"*\" for all hosts");
                    site.warning(findings, problem);
                }
                hosts.push(host);
            }
            Err(Problem { rule, hint }) if !table.ports && Host::with_port(entry).is_ok() => {
                let hint = format!("{hint}, or add `ports: true` to the table");
                site.error(findings, Problem::new(rule, hint));
            }
            Err(problem) => site.error(findings, problem),
        }
    }
    hosts
}

fn rules(
    entries: &[route::Rule],
    site: &Site<'_>,
    clusters: &mut Names<'_, ClusterId>,
    values: &mut Values<'_>,
    patterns: &mut TablePatterns,
    findings: &mut Findings<'_>,
) -> Vec<Rule> {
    if entries.is_empty() && site.is_written() && site.node().items().is_empty() {
        let problem = Problem::new("every request for these hosts gets 404", "add a rule");
        site.warning(findings, problem);
    }
    let mut once = Once::default();
    let mut rules = Vec::with_capacity(entries.len());
    for (entry, site) in entries.iter().zip(site.items()) {
        let name = entry.name.as_deref();
        if let Some(name) = name {
            once.check(name, "rule of a table", &site, findings);
        }
        let name = name.map(Arc::from);
        let asked = site.key("match");
        let path = matching::path(&entry.matches, &asked, &mut patterns.paths, findings);
        let also =
            matching::criteria(&entry.matches, &asked, values, &mut patterns.values, findings);
        let edits = edits::edits(entry.headers.as_deref(), &site.key("headers"), findings);
        let action = action(entry, path.as_ref(), &site, clusters, values, findings);
        if let (Some(path), Some(also), Some(action)) = (path, also, action) {
            rules.push(Rule { name, path, also, action, edits, slot: RuleSlot::default() });
        }
    }
    rules
}

/// The regular expressions of a table.
#[derive(Default)]
struct TablePatterns {
    paths: Patterns,
    values: Patterns,
}

/// A rule that an earlier one always goes before is a mistake in the order.
fn warn_unreachable(
    rules: &[Rule],
    paths: &PathTable,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let lines: Vec<u32> = site.items().map(|site| site.at().line).collect();
    let line = |index: usize| lines.get(index).copied().unwrap_or_default();
    let mut conditions: Map<String, u32> = Map::default();
    for (index, (rule, site)) in rules.iter().zip(site.items()).enumerate() {
        let first = paths.find_covering(&rule.path).filter(|first| *first < index);
        let same = (!rule.also.is_empty())
            .then(|| conditions.insert(rule.condition(), line(index)))
            .flatten();
        let site = site.key("match");
        let hint = match (first, same) {
            (Some(first), _) => {
                let line = findings.line_name(line(first));
                format!("move it before the rule on {line}, which matches all of it")
            }
            (None, Some(line)) => {
                let line = findings.line_name(line);
                format!("the rule on {line} matches the same: remove one")
            }
            (None, None) => {
                warn_other_case(rules, paths, index, &line, &site, findings);
                continue;
            }
        };
        site.warning(findings, Problem::new("this rule is never reached", hint));
    }
}

/// A rule for some clients that a path in another case gets around is no guard of what is behind it.
fn warn_other_case(
    rules: &[Rule],
    paths: &PathTable,
    index: usize,
    line: &impl Fn(usize) -> u32,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let Some(rule) = rules.get(index).filter(|rule| rule.path.case == Case::Sensitive) else {
        return;
    };
    let asks_client = rule.also.iter().any(|criterion| matches!(criterion, Criterion::Client(_)));
    if !asks_client {
        return;
    }
    let Some(other) = paths.find_in_any_case(&rule.path).filter(|other| *other > index) else {
        return;
    };
    if rules.get(other).is_some_and(|other| matches!(other.action, Action::Redirect(_))) {
        return;
    }
    let problem = Problem::new(
        format!(
            "paths that differ from this one only in case match the rule on {}, which is for every client",
            findings.line_name(line(other))
        ),
        "add `case: insensitive` here",
    );
    site.warning(findings, problem);
}

/// A rule for clients that none of its listeners asks for certificates matches no request.
pub(crate) fn check_clients(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let listeners = file.listeners.iter();
    let ends = listeners.flat_map(|listener| {
        let chains = listener.chains.iter().map(|chain| (&chain.tls, &chain.routes));
        chains.chain([(&listener.tls, &listener.routes)])
    });
    let asking = ends.filter(|(tls, _)| tls.as_ref().is_some_and(|tls| tls.client.is_some()));
    let served: BTreeSet<&str> = asking
        .flat_map(|(_, routes)| routes.as_ref().map_or(&[][..], OneOrSeveral::as_slice))
        .map(String::as_str)
        .collect();
    for (table, site) in file.routes.iter().zip(site.key("routes").items()) {
        if served.contains(table.name.as_str()) {
            continue;
        }
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            if rule.matches.client.is_some() {
                let rule = "no listener with these routes requests certificates from clients";
                let hint = "add `client` to the `tls` of one, with the `ca` that issues the certificates of clients";
                site.key("match").key("client").warning(findings, Problem::new(rule, hint));
            }
        }
    }
}

/// A rule for gRPC calls that leads to a cluster of HTTP/1 has no response that its clients understand.
pub(crate) fn check_grpc(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let of_http1: BTreeSet<&str> = file
        .clusters
        .iter()
        .zip(site.key("clusters").items())
        .filter(|(cluster, site)| cluster.protocol == Protocol::Http1 && !site.is_cut("protocol"))
        .map(|(cluster, _)| cluster.name.as_str())
        .collect();
    for (table, site) in file.routes.iter().zip(site.key("routes").items()) {
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            if rule.matches.grpc != Some(true) {
                continue;
            }
            // Nothing waits for the responses to copies.
            let mirrors: Vec<_> = rule.mirror.iter().flatten().map(|it| &*it.cluster).collect();
            let mut named = route::named_by_rule(rule).filter(|name| !mirrors.contains(name));
            if let Some(name) = named.find(|name| of_http1.contains(name)) {
                let rule = format!("cluster {name:?} speaks HTTP/1, and gRPC needs HTTP/2");
                let hint = "add `protocol: http2` to the cluster";
                site.key("match").key("grpc").warning(findings, Problem::new(rule, hint));
            }
        }
    }
}

/// A rule with slashes in a row matches no request where all of its listeners merge them.
pub(crate) fn check_slashes(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let mut kept = BTreeSet::new();
    let mut merged = BTreeSet::new();
    for listener in &file.listeners {
        let names = if listener.http.merge_slashes { &mut merged } else { &mut kept };
        let chains = listener.chains.iter().map(|chain| &chain.routes);
        let tables = chains.chain([&listener.routes]).flatten().flat_map(OneOrSeveral::as_slice);
        names.extend(tables.map(String::as_str));
    }
    for (table, site) in file.routes.iter().zip(site.key("routes").items()) {
        let name = table.name.as_str();
        if kept.contains(name) || !merged.contains(name) {
            continue;
        }
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            let site = site.key("match");
            let asked = &rule.matches;
            for (key, text) in
                [("path", &asked.path), ("prefix", &asked.prefix), ("segments", &asked.segments)]
            {
                let Some(text) = text.as_deref().filter(|text| text.contains("//")) else {
                    continue;
                };
                let rule = "slashes in a row are one before a path is matched, so this rule is \
                            never reached";
                let hint = format!(
                    "write {:?}, or `merge_slashes: false` in the listener's `http`",
                    merged_slashes(text)
                );
                site.key(key).warning(findings, Problem::new(rule, hint));
            }
        }
    }
}

fn merged_slashes(text: &str) -> String {
    let mut merged = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control()) {
        if c != '/' || !merged.ends_with('/') {
            merged.push(c);
        }
    }
    merged
}

/// Warns of route tables that a client reaches both with a certificate that it must have and
/// without: what the one chain demands, the other gives away.
pub(crate) fn check_access(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let mut guarded: Map<&str, String> = Map::default();
    let places = findings.places().clone();
    each_end(file, site, &places, &mut |end| {
        for table in end.routes.map_or(&[][..], OneOrSeveral::as_slice) {
            if end.is_guarded {
                guarded.entry(table.as_str()).or_insert_with(|| end.place.clone());
            }
        }
    });
    if guarded.is_empty() {
        return;
    }
    let mut warned: BTreeSet<&str> = BTreeSet::new();
    each_end(file, site, &places, &mut |end| {
        for table in end.routes.map_or(&[][..], OneOrSeveral::as_slice) {
            let Some(other) = guarded.get(table.as_str()).filter(|_| !end.is_guarded) else {
                continue;
            };
            if gives_to_anyone(file, table) && warned.insert(table.as_str()) {
                let (place, how) = (&end.place, end.how);
                let rule = format!(
                    "route table {table:?} is for clients with certificates at {other}, and {how} \
                     at {place}"
                );
                let hint = "give one of them routes of its own, add `client` to the `match` of its \
                            rules, or ask for certificates here too";
                end.site.key("routes").warning(findings, Problem::new(rule, hint));
            }
        }
    });
}

/// Where connections end: a listener, or a chain of one.
struct End<'e, 'f> {
    routes: Option<&'f OneOrSeveral<String>>,
    /// Whether no client gets here without a certificate.
    is_guarded: bool,
    /// What a client without one does.
    how: &'static str,
    place: String,
    site: &'e Site<'e>,
}

fn each_end<'f>(
    file: &'f file::File,
    site: &Site<'_>,
    places: &Places,
    see: &mut dyn FnMut(&End<'_, 'f>),
) {
    for (listener, site) in file.listeners.iter().zip(site.key("listeners").items()) {
        let name = &listener.name;
        let line = places.line_name(site.at().line);
        let place = format!("listener {name:?} ({line})");
        see(&end_of(listener.routes.as_ref(), listener.tls.as_ref(), place, &site));
        for (chain, site) in listener.chains.iter().zip(site.key("chains").items()) {
            let line = places.line_name(site.at().line);
            let place = format!("chain {:?} of listener {name:?} ({line})", chain.name);
            see(&end_of(chain.routes.as_ref(), chain.tls.as_ref(), place, &site));
        }
    }
}

fn end_of<'e, 'f>(
    routes: Option<&'f OneOrSeveral<String>>,
    tls: Option<&file::ListenerTls>,
    place: String,
    site: &'e Site<'e>,
) -> End<'e, 'f> {
    let is_strict = tls.is_some_and(|tls| tls.mode == Mode::Strict);
    let client = tls.and_then(|tls| tls.client.as_ref());
    let is_required = client.is_some_and(|client| client.mode == ClientMode::Required);
    let how = match (tls.is_some(), is_required) {
        (false, _) => "for everyone, without TLS,",
        (true, true) => "for plaintext clients, which `mode: permissive` accepts,",
        (true, false) => "for clients without one",
    };
    End { routes, is_guarded: is_strict && is_required, how, place, site }
}

/// Whether a rule of this table forwards or answers without a look at the client's certificate. A
/// redirect gives nothing away.
fn gives_to_anyone(file: &file::File, table: &str) -> bool {
    let mut tables = file.routes.iter().filter(|entry| entry.name == table);
    tables.any(|entry| {
        entry.rules.iter().any(|rule| rule.matches.client.is_none() && rule.redirect.is_none())
    })
}

fn action(
    file: &route::Rule,
    matched: Option<&PathMatch>,
    site: &Site<'_>,
    clusters: &mut Names<'_, ClusterId>,
    values: &mut Values<'_>,
    findings: &mut Findings<'_>,
) -> Option<Action> {
    let forwards =
        file.cluster.is_some() || file.clusters.is_some() || file.cluster_header.is_some();
    let target = targets::target(file, site, clusters, findings);
    if forwards {
        let rewrite = file.rewrite.as_ref().and_then(|file| {
            rewrites::rewrite(file, matched, &site.key("rewrite"), findings).map(Box::new)
        });
        let upgrades = upgrades(file.upgrades.as_deref(), &site.key("upgrades"), findings);
        let timeout = match file.timeout {
            None => Some(defaults::EXCHANGE_TIMEOUT.0),
            Some(OrNone::None) => None,
            Some(OrNone::Some(timeout)) => Some(timeout.into()),
        };
        let hashing = hashing::hashing(file.hash.as_deref(), &site.key("hash"), findings);
        let subset = subsets::asked(file.subset.as_ref(), &site.key("subset"), findings);
        let retry = file.retry.as_ref().and_then(|retry| {
            retries::policy((retry, file.hedge), timeout, site, findings).map(Box::new)
        });
        if file.hedge.is_some() && file.retry.is_none() {
            let rule = "`hedge` needs `retry`, which says how often a request is sent";
            let hint = "add `retry: { on: [reset], try_timeout: 100ms }`, for instance";
            site.key("hedge").error(findings, Problem::new(rule, hint));
        }
        let mirrors = mirrors::mirrors(file, site, clusters, values, findings);
        return Some(Action::Forward(Forward {
            target: target?,
            hashing,
            subset,
            rewrite,
            timeout,
            retry,
            priority: file.priority.unwrap_or_default(),
            mirrors,
            upgrades,
        }));
    }
    // Without any of the three, which is reported elsewhere, it may have been the cluster.
    let is_answered_here = file.respond.is_some() || file.redirect.is_some();
    if is_answered_here && file.headers.as_ref().is_some_and(|it| !it.request.is_empty()) {
        let rule = "the request is not forwarded, so its edits have no effect";
        site.key("headers").key_error(findings, "request", Problem::new(rule, "remove it"));
    }
    for key in
        ["timeout", "retry", "hedge", "priority", "upgrades", "rewrite", "hash", "subset", "mirror"]
    {
        if is_answered_here && site.key(key).is_written() {
            let rule = format!("`{key}` needs a `cluster` to forward to");
            site.key_error(findings, key, Problem::new(rule, "remove it"));
        }
    }
    match (&file.respond, &file.redirect) {
        (Some(file), _) => Some(Action::Respond(respond(file, &site.key("respond"), findings))),
        (None, Some(redirect_file)) => {
            let is_prefix = file.matches.prefix.is_some() || file.matches.segments.is_some();
            let site = site.key("redirect");
            Some(Action::Redirect(redirect(redirect_file, is_prefix, matched, &site, findings)))
        }
        (None, None) => None,
    }
}

fn upgrades(
    entries: Option<&[Box<str>]>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Arc<[Box<str>]> {
    let Some(entries) = entries else { return Arc::clone(&defaults::UPGRADES) };
    let mut tokens: Vec<Box<str>> = Vec::with_capacity(entries.len());
    for (entry, site) in entries.iter().zip(site.items()) {
        let token = entry.to_ascii_lowercase();
        if token == "h2c" {
            let rule = "an upgrade to h2c would let requests pass unseen";
            let hint = "remove it; HTTP/2 is a matter of listeners and clusters";
            site.error(findings, Problem::new(rule, hint));
        } else if !token.split('/').all(http::is_token) || token.split('/').count() > 2 {
            let rule = "a protocol is a token, with a version behind a `/` if need be";
            site.error(findings, Problem::new(rule, "write websocket, for instance"));
        } else if !tokens.iter().any(|known| **known == *token) {
            warn_unknown_upgrade(&token, &site, findings);
            tokens.push(token.into());
        }
    }
    tokens.into()
}

/// Protocols that clients upgrade to: those of IANA's registry, and what Docker, Kubernetes and Tailscale use.
const UPGRADES_KNOWN: [&str; 9] =
    ["websocket", "connect", "connect-udp", "connect-ip", "tls", "http", "tcp", "spdy", "derp"];

/// Another protocol may be meant, and is let through.
fn warn_unknown_upgrade(token: &str, site: &Site<'_>, findings: &mut Findings<'_>) {
    let name = token.split('/').next().unwrap_or_default();
    if UPGRADES_KNOWN.contains(&name) {
        return;
    }
    let hint = match nearest::nearest(name, UPGRADES_KNOWN) {
        Some(known) => format!("did you mean `{known}`?"),
        None => "remove it unless clients send exactly this in `upgrade`; WebSocket is `websocket`"
            .to_owned(),
    };
    site.warning(findings, Problem::new("no protocol of this name is known", hint));
}

fn respond(file: &route::Respond, site: &Site<'_>, findings: &mut Findings<'_>) -> Respond {
    let has_no_body = matches!(file.status, 204 | 205 | 304);
    if has_no_body && !file.body.is_empty() {
        let rule = format!("a response with status {} has no body", file.status);
        site.key("body").error(findings, Problem::new(rule, "remove the body"));
    }
    let headers = site.key("headers");
    let mut fields: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(file.headers.len());
    let mut seen: Map<String, &str> = Map::default();
    for (name, value) in &file.headers {
        let lower = name.to_ascii_lowercase();
        if let Err(problem) = http::check_field(&lower) {
            headers.key_error(findings, name, problem);
            continue;
        }
        if let Err(problem) = http::check_value(value) {
            headers.key(name).error(findings, problem);
            continue;
        }
        if let Some(former) = seen.insert(lower.clone(), name) {
            let hint = format!("it is there as `{former}` already; keep one of the two");
            let problem = Problem::new("header names ignore case", hint);
            headers.key_error(findings, name, problem);
            continue;
        }
        fields.push((lower.into(), value.as_str().into()));
    }
    Respond { status: file.status, body: Arc::from(file.body.as_bytes()), fields }
}

fn redirect(
    file: &route::Redirect,
    matches_prefix: bool,
    matched: Option<&PathMatch>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Redirect {
    let rewritten = RewriteKey {
        regex: file.regex.clone(),
        with: file.with.clone(),
        template: file.template.clone(),
        ..RewriteKey::default()
    };
    let rewritten = rewrites::path(&rewritten, matched, site, findings);
    let mut check = |key: &str, found: Found<'_>| {
        if let Some(Err(problem)) = found {
            site.key(key).error(findings, problem);
        }
    };
    check("host", file.host.as_deref().map(http::check_authority));
    check("path", file.path.as_deref().map(http::check_location));
    check("prefix", file.prefix.as_deref().map(http::check_location));
    if file.prefix.as_deref().is_some_and(|prefix| prefix.contains(['?', '#'])) {
        let rule = "what follows the prefix would become a part of the query or fragment";
        let problem = Problem::new(rule, "write the path alone, or use `path` for a whole target");
        site.key("prefix").error(findings, problem);
    }
    if file.port.is_some() && file.host.as_deref().is_some_and(|host| split_port(host).1.is_some())
    {
        let problem = Problem::new("the host has a port already", "remove one of them");
        site.key("port").error(findings, problem);
    }
    if file.prefix.is_some() && !matches_prefix {
        let rule = "`match` has no prefix that this could replace";
        let problem = Problem::new(rule, "use `path` here, or `prefix` or `segments` in `match`");
        site.key("prefix").error(findings, problem);
    }
    let ways = ["path", "prefix", "regex", "template"];
    let mut written = ways.into_iter().filter(|key| site.has_key(key));
    // That of `path` and `prefix` is found before.
    if let (Some(_), Some(second @ ("regex" | "template"))) = (written.next(), written.next()) {
        let hint = "keep one of `path`, `prefix`, `regex` and `template`";
        let problem = Problem::new("a redirect leads to one path", hint);
        site.key_error(findings, second, problem);
    }
    // A part that was wrong was reported and cut.
    if ["scheme", "host", "port", "with"].iter().chain(&ways).all(|key| !site.has_key(key)) {
        let rule = "a redirect that changes nothing leads back to itself";
        site.error(
            findings,
            Problem::new(rule, "add one of scheme, host, port, path, prefix, regex and template"),
        );
    }
    let path = match (&file.path, &file.prefix) {
        (Some(path), _) => Some(RedirectPath::Whole(path.as_str().into())),
        (None, Some(prefix)) => {
            Some(RedirectPath::Rewritten(PathRewrite::Prefix(prefix.as_str().into())))
        }
        (None, None) => rewritten.map(RedirectPath::Rewritten),
    };
    Redirect {
        status: file.status,
        scheme: file.scheme.map(|scheme| match scheme {
            Scheme::Http => "http".into(),
            Scheme::Https => "https".into(),
        }),
        host: file.host.as_deref().map(|host| host.to_ascii_lowercase().into()),
        port: file.port,
        path,
        strip_query: file.strip_query,
    }
}
