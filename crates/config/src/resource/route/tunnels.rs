//! Rules that open tunnels, and the clusters that these lead to. A tunnel carries bytes, and has a connection of its own
//! for them, which HTTP/2 has not.

use std::collections::BTreeSet;

use crate::file::{self, RouteTable};
use crate::findings::{Findings, Problem};
use crate::resource::cluster::file::Protocol;
use crate::resource::route::file::Rule;
use crate::resource::route::file::named_by_rule;
use crate::text::tree::Site;

/// The clusters that rules of these tables open tunnels to.
pub(crate) fn tunnelled<'t>(
    tables: impl IntoIterator<Item = &'t RouteTable>,
) -> BTreeSet<Box<str>> {
    let rules = tables.into_iter().flat_map(|table| &table.rules);
    let rules = rules.filter(|rule| opens_tunnels(rule));
    rules.flat_map(named_by_rule).map(Box::from).collect()
}

/// Whether a rule takes `CONNECT` requests.
pub(crate) fn opens_tunnels(rule: &Rule) -> bool {
    rule.upgrades.iter().flat_map(|upgrades| upgrades.iter()).any(|upgrade| is_connect(upgrade))
}

fn is_connect(upgrade: &str) -> bool {
    upgrade.eq_ignore_ascii_case("connect")
}

/// Refuses rules that open tunnels to clusters whose connections are shared, as `multiplexes` says. `site` is that of the
/// tables.
pub(crate) fn check_rules<'t>(
    tables: impl IntoIterator<Item = &'t RouteTable>,
    site: &Site<'_>,
    multiplexes: &dyn Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) {
    for (table, site) in tables.into_iter().zip(site.items()) {
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            if !opens_tunnels(rule) || !named_by_rule(rule).any(multiplexes) {
                continue;
            }
            let upgrades = site.key("upgrades");
            for (entry, site) in
                rule.upgrades.iter().flat_map(|upgrades| upgrades.iter()).zip(upgrades.items())
            {
                if is_connect(entry) {
                    let rule = "a tunnel needs a connection of its own, and the cluster has \
                                `protocol: http2`";
                    let hint = "name a cluster of `protocol: http1`, whatever is spoken in tunnels";
                    site.error(findings, Problem::new(rule, hint));
                }
            }
        }
    }
}

/// Refuses tunnels of a file. `multiplexes` says it of clusters that the file has not; `tunnels_to` names what has rules
/// of other sources that open tunnels to a cluster.
pub(crate) fn check(
    file: &file::File,
    site: &Site<'_>,
    multiplexes: &dyn Fn(&str) -> bool,
    tunnels_to: &dyn Fn(&str) -> Option<String>,
    findings: &mut Findings<'_>,
) {
    let own: BTreeSet<&str> = file.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let of_http2 = file.clusters.iter().filter(|cluster| cluster.protocol == Protocol::Http2);
    let of_http2: BTreeSet<&str> = of_http2.map(|cluster| cluster.name.as_str()).collect();
    let shares = |name: &str| of_http2.contains(name) || !own.contains(name) && multiplexes(name);
    check_rules(file.routes.iter().map(AsRef::as_ref), &site.key("routes"), &shares, findings);
    for (cluster, site) in file.clusters.iter().zip(site.key("clusters").items()) {
        if cluster.protocol == Protocol::Http2
            && let Some(origin) = tunnels_to(&cluster.name)
        {
            site.key("protocol").error(findings, shared(&origin));
        }
    }
}

/// Rules of `origin` open tunnels to a cluster of HTTP/2.
pub(crate) fn shared(origin: &str) -> Problem {
    let rule = format!(
        "{origin} opens tunnels to this cluster (`upgrades: [connect]`), which need connections of \
         their own"
    );
    Problem::new(rule, "write `protocol: http1`, or take `connect` out there")
}
