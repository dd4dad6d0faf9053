//! `subsets` of a cluster and `subset` of a rule.

use std::collections::{BTreeMap, BTreeSet};

use crate::file;
use crate::findings::{Findings, Problem};
use crate::resource::cluster::file::Endpoint;
use crate::resource::cluster::subsets::{
    Fallback, SELECTORS_MAX, Selectors, SubsetAsked, SubsetHeader, SubsetValue, Wanted,
};
use crate::resource::route::matching::build as matching;
use crate::resource::tls::build::twice;
use crate::text::tree::Site;

/// By what a cluster's endpoints make subsets, if they do. `site` is that of the cluster.
pub(crate) fn selectors(
    file: &file::Cluster,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Selectors> {
    let subsets = file.subsets.as_ref()?;
    let site = site.key("subsets");
    if file.original_destination {
        let rule = "a cluster with `original_destination` has no endpoints to choose among";
        site.error(findings, Problem::new(rule, "remove it"));
    }
    check_keys(&subsets.by, &site.key("by"), findings);
    let default = site.key("default");
    match (subsets.fallback, subsets.default.is_empty()) {
        (Fallback::Default, true) => {
            let rule = "`fallback: default` needs `default`, the values that its endpoints have";
            site.key("fallback")
                .error(findings, Problem::new(rule, "add `default: { KEY: VALUE }`"));
        }
        (Fallback::None | Fallback::Any, false) => {
            let rule = "`default` needs `fallback: default`";
            default.error(findings, Problem::new(rule, "remove it, or write `fallback: default`"));
        }
        (Fallback::Default, false) | (Fallback::None | Fallback::Any, true) => {}
    }
    let selectors = Selectors::new(subsets);
    let metadata = || file.listed_endpoints().iter().map(Endpoint::metadata);
    // What comes from elsewhere may change.
    if !file.listed_endpoints().is_empty() {
        if metadata().all(|metadata| selectors.of(metadata).is_empty()) {
            let rule = "no endpoint has the keys of a subset";
            site.key("by").warning(findings, Problem::new(rule, "add `metadata` to the endpoints"));
        }
        if subsets.fallback == Fallback::Default && !metadata().any(|it| selectors.is_default(it)) {
            let rule = "no endpoint has these values: requests without a subset get 503";
            default.warning(findings, Problem::new(rule, "write values that an endpoint has"));
        }
    }
    Some(selectors)
}

fn check_keys(by: &[Vec<String>], site: &Site<'_>, findings: &mut Findings<'_>) {
    if by.len() > SELECTORS_MAX {
        let rule = format!("endpoints make subsets by {SELECTORS_MAX} lists of keys at most");
        site.error(findings, Problem::new(rule, "remove some"));
    }
    let mut known: Vec<BTreeSet<&str>> = Vec::with_capacity(by.len());
    for (keys, site) in by.iter().zip(site.items()) {
        let set: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
        if keys.is_empty() {
            let problem =
                Problem::new("a subset has a key at least", "write [version], for instance");
            site.error(findings, problem);
        } else if known.contains(&set) || set.len() < keys.len() {
            twice(&site, findings);
        }
        known.push(set);
    }
}

/// Which endpoints a rule asks for; none if it asks for none, or something is wrong, which is reported. `site` is that
/// of `subset`.
pub(crate) fn asked(
    file: Option<&BTreeMap<String, SubsetValue>>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Box<SubsetAsked>> {
    let mut parts = BTreeMap::new();
    for (key, value) in file? {
        let wanted = match value {
            SubsetValue::Text(text) => Wanted::Text(text.as_str().into()),
            SubsetValue::Header(SubsetHeader { header }) => match matching::header(header) {
                Ok(place) => Wanted::Of(place),
                Err(problem) => {
                    site.key(key).key("header").error(findings, problem);
                    continue;
                }
            },
        };
        parts.insert(key.as_str().into(), wanted);
    }
    Some(Box::new(SubsetAsked::new(parts)))
}

/// Warns of rules that ask for subsets which none of their clusters has, by the keys that may come together.
pub(crate) fn check(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    for (table, site) in file.routes.iter().zip(site.key("routes").items()) {
        for (rule, site) in table.rules.iter().zip(site.key("rules").items()) {
            let Some(subset) = &rule.subset else { continue };
            let names: BTreeSet<&str> =
                crate::resource::route::hash::build::clusters_of(rule, file).collect();
            let clusters = file.clusters.iter().filter(|it| names.contains(it.name.as_str()));
            let by: Vec<&Vec<String>> =
                clusters.filter_map(|it| it.subsets.as_ref()).flat_map(|it| &it.by).collect();
            if !by.iter().any(|keys| may_ask(subset, keys)) && !site.is_cut("clusters") {
                let rule = "no cluster of this rule has subsets by these keys";
                let hint = match by.first() {
                    Some(keys) => {
                        format!("there are subsets by {}, for instance", keys.join(" and "))
                    }
                    None => "add `subsets` to the cluster, or remove this".to_owned(),
                };
                site.key("subset").warning(findings, Problem::new(rule, hint));
            }
        }
    }
}

/// Whether a request may ask for exactly these keys: a key whose value a header has may be absent.
fn may_ask(subset: &BTreeMap<String, SubsetValue>, keys: &[String]) -> bool {
    let is_there = |key: &String| subset.contains_key(key);
    let mut others = subset.iter().filter(|(key, _)| !keys.contains(key));
    keys.iter().all(is_there) && others.all(|(_, value)| matches!(value, SubsetValue::Header(_)))
}
