//! `hash` of a rule to a [`Hashing`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::file;
use crate::findings::{Findings, Problem};
use crate::resource::cluster::balance::Balancer;
use crate::resource::route::file as route;
use crate::resource::route::hash::{
    HashCookie, HashKey, HashValueKey, HashWord, Hashing, MadeCookie, Part, PartValue,
};
use crate::resource::route::matching::Place;
use crate::resource::route::matching::build as matching;
use crate::text::tree::Site;

/// What says to which endpoint requests go; none if nothing does, or something is wrong, which is reported. `site` is
/// that of `hash`.
pub(crate) fn hashing(
    file: Option<&[HashKey]>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Box<Hashing>> {
    let file = file?;
    let mut parts: Vec<Part> = Vec::with_capacity(file.len());
    for (key, site) in file.iter().zip(site.items()) {
        let (value, is_terminal) = match key {
            HashKey::Word(HashWord::ClientIp) => (Ok(PartValue::ClientIp), false),
            HashKey::Value(key) => (value(key, &site, findings), key.terminal),
        };
        let Ok(value) = value else { continue };
        if let PartValue::Made(..) = value
            && parts.iter().any(|part| matches!(part.value, PartValue::Made(..)))
        {
            let rule = "a rule creates one cookie for a client, and another one comes before this";
            let problem = Problem::new(rule, "remove the `ttl` of one of them");
            site.key("cookie").key("ttl").error(findings, problem);
        }
        parts.push(Part { value, is_terminal });
    }
    Some(Box::new(Hashing::new(parts)))
}

fn value(
    file: &HashValueKey,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Result<PartValue, ()> {
    if let Some(cookie) = &file.cookie {
        return cookie_value(cookie, &site.key("cookie"), findings);
    }
    let (key, value) = match (&file.header, &file.query, &file.constant) {
        (Some(name), ..) => ("header", matching::header(name).map(PartValue::Place)),
        (None, Some(name), _) => {
            ("query", Ok(PartValue::Place(Place::Query(name.as_str().into()))))
        }
        (None, None, Some(text)) => ("constant", Ok(PartValue::Constant(text.as_str().into()))),
        // That none of them stands here is reported elsewhere.
        (None, None, None) => return Err(()),
    };
    value.map_err(|problem| site.key(key).error(findings, problem))
}

fn cookie_value(
    file: &HashCookie,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Result<PartValue, ()> {
    let place = matching::cookie(&file.name);
    let place = place.map_err(|problem| site.key("name").error(findings, problem))?;
    let Some(ttl) = file.ttl else {
        if file.path.is_some() {
            let rule = "a path is for a cookie that is made, which needs a `ttl`";
            let problem = Problem::new(
                rule,
                "add `ttl: 0s`, for as long as the browser runs, or remove this",
            );
            site.key("path").error(findings, problem);
        }
        return Ok(PartValue::Place(place));
    };
    let path = file.path.as_deref();
    if let Some(path) = path
        && !(path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b';'))
    {
        let rule = "the path of a cookie begins with `/` and has neither spaces nor `;`";
        site.key("path").error(findings, Problem::new(rule, "write /, for instance"));
        return Err(());
    }
    Ok(PartValue::Made(place, MadeCookie::new(&file.name, ttl.0, path)))
}

/// Warns of hashes that nothing is chosen by, and of clusters that choose by a hash which no request has.
pub(crate) fn check(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let by_hash = |cluster: &&Arc<file::Cluster>| {
        Balancer::build(cluster.balance.unwrap_or_default()).is_ok_and(Balancer::is_by_hash)
    };
    let by_hash: BTreeSet<&str> =
        file.clusters.iter().filter(by_hash).map(|cluster| cluster.name.as_str()).collect();
    // Relayed connections are hashed by the addresses of their clients.
    let mut hashed: BTreeSet<&str> = relayed_to(file).collect();
    for (table, site) in file.routes.iter().zip(site.key("routes").items()) {
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            if rule.hash.is_none() {
                continue;
            }
            let names: Vec<&str> = clusters_of(rule, file).collect();
            let is_used = names.iter().any(|name| by_hash.contains(name));
            hashed.extend(names);
            if !is_used && !site.is_cut("clusters") {
                let rule = "no cluster of this rule selects endpoints by a hash";
                let hint = "write `balance: maglev` in the cluster, or remove this";
                site.key("hash").warning(findings, Problem::new(rule, hint));
            }
        }
    }
    for (cluster, site) in file.clusters.iter().zip(site.key("clusters").items()) {
        let name = cluster.name.as_str();
        if by_hash.contains(name) && !hashed.contains(name) {
            let rule =
                "no rule has `hash` for this cluster: each request goes to a random endpoint";
            let hint =
                "write `hash: [client_ip]` in a rule, for instance, or `balance: random` here";
            site.key("balance").warning(findings, Problem::new(rule, hint));
        }
        let endpoints = cluster.listed_endpoints().len();
        if by_hash.contains(name) && (cluster.connections_max.get() as usize) < endpoints {
            let rule = "there are fewer connections than endpoints: requests for one wait until another has none";
            let hint = format!("write {endpoints} or more");
            site.key("connections_max").warning(findings, Problem::new(rule, hint));
        }
    }
}

/// The clusters that a rule may forward to.
pub(crate) fn clusters_of<'f>(
    rule: &'f route::Rule,
    file: &'f file::File,
) -> impl Iterator<Item = &'f str> {
    let shares = rule.clusters.iter().flatten().map(|share| share.cluster.as_str());
    let among = rule.among.iter().flatten().map(String::as_str);
    let any = (rule.cluster_header.is_some() && rule.among.is_none()).then_some(&file.clusters);
    let any = any.into_iter().flatten().map(|cluster| cluster.name.as_str());
    rule.cluster.as_deref().into_iter().chain(shares).chain(among).chain(any)
}

/// The clusters that listeners and chains relay connections to.
fn relayed_to(file: &file::File) -> impl Iterator<Item = &str> {
    file.listeners.iter().flat_map(|listener| {
        let chains = listener.chains.iter().map(|chain| (&chain.cluster, &chain.clusters));
        let ends = chains.chain([(&listener.cluster, &listener.clusters)]);
        ends.flat_map(|(one, several)| {
            one.iter().chain(several.iter().map(|several| &several.cluster)).map(String::as_str)
        })
    })
}
