//! Redirects that lead to themselves.

use std::num::NonZeroU16;

use wire::host::Authority;

use crate::address::Address;
use crate::file::one_or_several::OneOrSeveral;
use crate::file::{self, route};
use crate::findings::{Findings, Problem};
use crate::hosts::{HOST_BYTES_MAX, Host};
use crate::resource::route::tables::Tables;
use crate::snapshot::RouteTable;
use crate::text::tree::Site;

/// A listener or a chain by which clients reach a route table.
struct Entrance<'a> {
    is_tls: bool,
    port: Option<u16>,
    /// All route tables there, of which the one with the nearest host is met.
    tables: &'a [String],
}

/// Warns of redirects whose target meets the same rule at one of the listeners of its table.
pub(crate) fn check(
    file: &file::File,
    site: &Site<'_>,
    tables: &Tables,
    findings: &mut Findings<'_>,
) {
    for (entry, site) in file.routes.iter().zip(site.key("routes").items()) {
        if entry.rules.iter().all(|rule| rule.redirect.is_none()) {
            continue;
        }
        let Some(table) = tables.named(&entry.name) else { continue };
        let entrances = entrances(file, &entry.name);
        for (place, (rule, site)) in entry.rules.iter().zip(site.key("rules").items()).enumerate() {
            let Some(redirect) = &rule.redirect else { continue };
            let leads_back = is_same_path(table, place, rule, redirect)
                && entrances.iter().any(|entrance| {
                    is_same_entrance(redirect, entrance)
                        && is_same_host(table, redirect, entrance, tables)
                });
            if leads_back {
                let rule = "this redirect leads back to this rule: clients loop";
                let problem = Problem::new(rule, hint(redirect));
                site.key("redirect").warning(findings, problem);
            }
        }
    }
}

fn hint(redirect: &route::Redirect) -> &'static str {
    if redirect.scheme.is_some() {
        "use separate route tables for the listeners with and without TLS, and redirect in one of them"
    } else if redirect.host.is_some() || redirect.port.is_some() {
        "redirect to a host that is not of this table, or add a table for that host"
    } else {
        "add a rule before it for the path that it leads to"
    }
}

fn entrances<'a>(file: &'a file::File, table: &str) -> Vec<Entrance<'a>> {
    let ends = file.listeners.iter().flat_map(|listener| {
        let chains = listener.chains.iter().map(|chain| (&chain.routes, &chain.tls));
        let ends = chains.chain([(&listener.routes, &listener.tls)]);
        let ports = listener.address.as_slice().iter().map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        });
        ends.flat_map(move |(routes, tls)| {
            ports.clone().map(|port| Entrance {
                is_tls: tls.is_some(),
                port,
                tables: routes.as_ref().map_or(&[][..], OneOrSeveral::as_slice),
            })
        })
    });
    ends.filter(|end| end.tables.iter().any(|name| name == table)).collect()
}

/// Whether the target's path meets the rule at `place`, for some path that does.
fn is_same_path(
    table: &RouteTable,
    place: usize,
    rule: &route::Rule,
    redirect: &route::Redirect,
) -> bool {
    if redirect.regex.is_some() || redirect.template.is_some() {
        // Where it leads depends on the path.
        return false;
    }
    let replaced = rule.matches.prefix.as_ref().or(rule.matches.segments.as_ref());
    let target = match (&redirect.path, &redirect.prefix, replaced) {
        (Some(path), ..) => path,
        (None, Some(new), Some(_)) => new,
        // The path stays.
        _ => return true,
    };
    let target = target.split('?').next().unwrap_or_default();
    table.paths.find_plain(target.as_bytes()) == Some(place)
}

/// Whether requests for the target's host meet this table.
fn is_same_host(
    table: &RouteTable,
    redirect: &route::Redirect,
    entrance: &Entrance<'_>,
    tables: &Tables,
) -> bool {
    let Some(host) = &redirect.host else { return true };
    let Some(host) = Authority::parse(host.as_bytes()).map(|it| it.normal_host()) else {
        return false;
    };
    let host = String::from_utf8_lossy(&host);
    let nearness = |table: &RouteTable| {
        table
            .hosts
            .iter()
            .filter_map(|of_table| match of_table {
                Host::Any => Some(0),
                Host::Suffix(suffix) => {
                    let before = host.strip_suffix(&**suffix)?;
                    before.ends_with('.').then_some(HOST_BYTES_MAX + suffix.len())
                }
                Host::Prefix(prefix) => {
                    let behind = host.strip_prefix(&**prefix)?.strip_prefix('.')?;
                    (!behind.is_empty()).then_some(prefix.len())
                }
                Host::Exact(name) => (**name == *host).then_some(usize::MAX),
            })
            .max()
    };
    let others = entrance.tables.iter().filter_map(|name| tables.named(name));
    let nearest = others.filter_map(nearness).max();
    nearest.is_some() && nearness(table) == nearest
}

/// Whether clients who follow the redirect come in where they came in before.
fn is_same_entrance(redirect: &route::Redirect, entrance: &Entrance<'_>) -> bool {
    let is_scheme =
        redirect.scheme.is_none_or(|scheme| (scheme == route::Scheme::Https) == entrance.is_tls);
    let of_host = redirect.host.as_deref().and_then(|host| split_port(host).1);
    let port = redirect.port.map(NonZeroU16::get).or(of_host);
    is_scheme && port.is_none_or(|port| Some(port) == entrance.port)
}

pub(crate) fn split_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}
