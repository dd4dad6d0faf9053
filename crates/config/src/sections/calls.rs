//! Whether what speaks an RPC protocol leads to what speaks the same (calls are not translated), and whether
//! those that a listener detects can be distinguished.

use wire::detect::{Detected, is_ambiguous};
use wire::rpc::{RpcName, RpcProtocol};

use crate::file::one_or_several::OneOrSeveral;
use crate::file::{self, ListenerChain, route::Rule};
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::protocols::Protocols;
use crate::resource::cluster::file::Protocol as ClusterProtocol;
use crate::resource::filter::FilterKinds;
use crate::resource::listener::file::Protocol;
use crate::text::tree::Site;

/// What the listeners speak that use a route table, and the first of them.
type Users<'f> = Map<&'f str, (Option<RpcName>, &'f str)>;

/// Reports listeners, chains, rules and filters whose kinds of traffic differ.
pub(crate) fn check<F>(
    file: &file::File,
    site: &Site<'_>,
    kinds: &FilterKinds<F>,
    findings: &mut Findings<'_>,
) {
    let mut users = Users::default();
    for (listener, site) in file.listeners.iter().zip(site.key("listeners").items()) {
        let name = listener.name.as_str();
        let ends = (listener.protocol, listener.routes.as_ref());
        check_ends(ends, name, &site, kinds, &mut users, findings);
        for (chain, site) in listener.chains.iter().zip(site.key("chains").items()) {
            let ends = (chain.protocol, chain.routes.as_ref());
            check_ends(ends, name, &site, kinds, &mut users, findings);
            check_match(chain, &site, findings);
        }
        check_detection(listener, &site, kinds.protocols(), findings);
    }
    let sites = site.key("clusters");
    let known = file.clusters.iter().zip(sites.items());
    let known = known.filter(|(_, site)| !site.is_cut("protocol"));
    let clusters: Map<&str, Option<RpcName>> =
        known.map(|(it, _)| (it.name.as_str(), spoken_by(it.protocol))).collect();
    for (table, site) in file.routes.iter().zip(site.key("routes").items()) {
        let Some((spoken, listener)) = users.get(table.name.as_str()) else { continue };
        if spoken.is_some() && !table.hosts.iter().any(|host| host == "*") && !site.is_cut("hosts")
        {
            let rule = format!("calls have no host, and listener `{listener}` accepts calls");
            site.key("hosts").error(findings, Problem::new(rule, "remove this, or add `*`"));
        }
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            check_rule(rule, (*spoken, listener), &clusters, &site, findings);
        }
    }
}

/// Notes what the tables of a listener or chain are used for, and looks at its filters.
fn check_ends<'f, F>(
    (protocol, routes): (Protocol, Option<&'f OneOrSeveral<String>>),
    listener: &'f str,
    site: &Site<'_>,
    kinds: &FilterKinds<F>,
    users: &mut Users<'f>,
    findings: &mut Findings<'_>,
) {
    if site.is_cut("protocol") {
        // What it was to be is not known.
        return;
    }
    if protocol == Protocol::Tcp {
        return;
    }
    let spoken = protocol.rpc();
    for table in routes.into_iter().flat_map(OneOrSeveral::as_slice) {
        let (other, by) = *users.entry(table.as_str()).or_insert((spoken, listener));
        if other != spoken {
            let rule = format!(
                "listener `{by}` uses route table `{table}` for {}, and this one accepts {}",
                traffic(other),
                traffic(spoken)
            );
            site.key("routes").error(findings, Problem::new(rule, "write a table for each"));
        }
    }
    let (filters, handlers) = (site.key("filters"), site.key("handlers"));
    let filters = filters.items().filter(|site| !kinds.filters.is_for_rpc(site));
    let handlers = handlers.items().filter(|site| !kinds.handlers.is_for_rpc(site));
    let parts = filters.map(|site| ("filter", site)).chain(handlers.map(|site| ("handler", site)));
    for (part, site) in parts.filter(|_| spoken.is_some()) {
        let rule = format!(
            "this {part} is for HTTP requests, and the listener accepts {}",
            traffic(spoken)
        );
        site.error(findings, Problem::new(rule, "remove it"));
    }
}

/// Reports connections that a chain matches by what they speak, and that it does not speak itself.
fn check_match(chain: &ListenerChain, site: &Site<'_>, findings: &mut Findings<'_>) {
    if chain.tls.is_some() || site.is_cut("tls") || site.is_cut("protocol") {
        return;
    }
    let is_spoken = |asked: Detected| match (asked, chain.protocol) {
        (_, Protocol::Tcp) => true,
        (Detected::Rpc(asked), Protocol::Rpc(spoken)) => asked == spoken,
        (Detected::Rpc(_), _) | (Detected::Http1 | Detected::Http2, Protocol::Rpc(_)) => false,
        _ => true,
    };
    let site = site.key("match");
    let site = site.key("protocols");
    for (asked, site) in chain.matches.protocols.iter().zip(site.items()) {
        if !is_spoken(*asked) {
            let (asked, spoken) = (word(*asked), traffic(chain.protocol.rpc()));
            let rule =
                format!("connections of {asked} match this chain, whose protocol is {spoken}");
            let hint = "write a chain with the `protocol` of its connections";
            site.error(findings, Problem::new(rule, hint));
        }
    }
}

/// Reports RPC protocols that a listener's chains ask for, and whose first bytes do not tell them apart.
fn check_detection(
    listener: &file::Listener,
    site: &Site<'_>,
    protocols: &Protocols,
    findings: &mut Findings<'_>,
) {
    let mut former: Vec<&dyn RpcProtocol> = Vec::new();
    for (chain, site) in listener.chains.iter().zip(site.key("chains").items()) {
        let site = site.key("match");
        let site = site.key("protocols");
        for (asked, site) in chain.matches.protocols.iter().zip(site.items()) {
            let Detected::Rpc(name) = asked else { continue };
            let Some(protocol) = protocols.find(*name) else { continue };
            if former.iter().any(|other| other.name() == protocol.name()) {
                continue;
            }
            if let Some(other) = former.iter().find(|other| is_ambiguous(**other, protocol)) {
                let other = other.name();
                let rule = format!("connections of `{name}` may begin as those of `{other}` do");
                let hint = "write a listener for each, or match by destination port";
                site.error(findings, Problem::new(rule, hint));
            }
            former.push(protocol);
        }
    }
}

/// A rule of a table that a listener uses which speaks this.
fn check_rule(
    rule: &Rule,
    (spoken, listener): (Option<RpcName>, &str),
    clusters: &Map<&str, Option<RpcName>>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) {
    let shares = site.key("clusters");
    let of_shares = rule.clusters.iter().flatten().map(|share| share.cluster.as_str());
    let of_shares = of_shares.zip(shares.items());
    let among = site.key("among");
    let of_among = rule.among.iter().flatten().map(String::as_str).zip(among.items());
    let of_rule = rule.cluster.iter().map(|name| (&**name, site.key("cluster")));
    let mirrors = site.key("mirror");
    let of_mirrors = rule.mirror.iter().flatten().map(|mirror| mirror.cluster.as_str());
    let of_mirrors = of_mirrors.zip(mirrors.items());
    for (name, site) in of_rule.chain(of_shares).chain(of_among).chain(of_mirrors) {
        let Some(cluster) = clusters.get(name).filter(|cluster| **cluster != spoken) else {
            continue;
        };
        let rule = format!(
            "listener `{listener}` accepts {}, and cluster `{name}` speaks {}",
            traffic(spoken),
            traffic(*cluster)
        );
        site.error(
            findings,
            Problem::new(rule, "name a cluster with the `protocol` of the listener"),
        );
    }
    let has = [("rewrite", rule.rewrite.is_some()), ("redirect", rule.redirect.is_some())];
    for (key, _) in has.into_iter().filter(|(_, has)| *has && spoken.is_some()) {
        let rule =
            format!("RPC calls have no `{key}`, and listener `{listener}` accepts RPC calls");
        site.key(key).error(findings, Problem::new(rule, "remove it"));
    }
}

const fn spoken_by(protocol: ClusterProtocol) -> Option<RpcName> {
    match protocol {
        ClusterProtocol::Rpc(name) => Some(name),
        ClusterProtocol::Http1 | ClusterProtocol::Http2 => None,
    }
}

/// What connections of a chain are, in words.
fn word(asked: Detected) -> String {
    match asked {
        Detected::Rpc(name) => format!("`{name}`"),
        Detected::Http1 | Detected::Http2 => "HTTP".to_owned(),
        Detected::Tls => "TLS".to_owned(),
        Detected::Other => "other protocols".to_owned(),
    }
}

/// What is spoken, in words.
fn traffic(spoken: Option<RpcName>) -> String {
    spoken.map_or_else(|| "HTTP".to_owned(), |name| format!("`{name}`"))
}
