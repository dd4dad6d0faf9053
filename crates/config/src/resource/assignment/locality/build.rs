//! `locality` of the process and of endpoints, and `localities` of a cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::file;
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::resource::assignment::file::Locality;
use crate::resource::assignment::locality::LocalityRule;
use crate::resource::cluster::balance::Balancer;
use crate::resource::cluster::file::Endpoint;
use crate::text::tree::Site;

/// A locality, if it is written. `site` is that of `locality`.
pub(crate) fn own(
    text: Option<&str>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Arc<Locality>> {
    match text?.parse() {
        Ok(locality) => Some(Arc::new(locality)),
        Err(problem) => {
            site.error(findings, problem);
            None
        }
    }
}

/// How the localities of a cluster's endpoints share requests, if they count. `site` is that of the cluster.
pub(crate) fn rule(
    file: &file::Cluster,
    balancer: Balancer,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<LocalityRule> {
    let localities = file.localities.as_ref()?;
    if file.original_destination {
        let rule = "a cluster with `original_destination` has no endpoints to choose among";
        site.key_error(findings, "localities", Problem::new(rule, "remove it"));
    } else if balancer.is_by_hash() {
        let rule = "a hash selects one endpoint, in any locality";
        let hint = "remove it, or write another `balance`, such as least_request";
        site.key_error(findings, "localities", Problem::new(rule, hint));
    }
    if let Some(zone_aware) = localities.zone_aware {
        return Some(LocalityRule::ZoneAware(zone_aware));
    }
    let site = site.key("localities");
    let site = site.key("weights");
    let mut weights = Map::default();
    for (name, weight) in localities.weights.iter().flatten() {
        match name.parse::<Locality>() {
            Ok(locality) => {
                weights.insert(locality.key(), *weight);
            }
            Err(problem) => site.key(name).error(findings, problem),
        }
    }
    Some(LocalityRule::Weights(Arc::new(weights)))
}

/// Where a listed endpoint is.
fn locality_of(endpoint: &Endpoint) -> Option<&str> {
    match endpoint {
        Endpoint::Weighted(weighted) => weighted.locality.as_deref(),
        Endpoint::Address(_) => None,
    }
}

/// Warns of clusters that ask where the process is, if that is not said, and of weights for localities without endpoints.
pub(crate) fn check(file: &file::File, site: &Site<'_>, findings: &mut Findings<'_>) {
    let is_known = file.locality.is_some() || site.is_cut("locality");
    for (cluster, site) in file.clusters.iter().zip(site.key("clusters").items()) {
        let Some(localities) = &cluster.localities else { continue };
        let site = site.key("localities");
        if localities.zone_aware.is_some() && !is_known {
            let rule = "this process has no `locality`: requests go to any locality";
            let hint = "add `locality: REGION/ZONE` to the file, beside `clusters`";
            site.key("zone_aware").warning(findings, Problem::new(rule, hint));
        }
        let listed: BTreeSet<&str> =
            cluster.listed_endpoints().iter().filter_map(locality_of).collect();
        let names = localities.weights.iter().flatten().map(|(name, _)| name.as_str());
        for name in names.filter(|name| !listed.is_empty() && !listed.contains(name)) {
            let rule = "no endpoint is in this locality";
            let known = listed.iter().copied().collect::<Vec<_>>().join(", ");
            let hint = format!("there are {known}; or remove it");
            site.key("weights").key(name).warning(findings, Problem::new(rule, hint));
        }
        let is_out = |endpoint: &Endpoint| {
            let weights = localities.weights.as_ref();
            locality_of(endpoint).and_then(|name| weights?.get(name)) == Some(&0)
        };
        if !listed.is_empty() && cluster.listed_endpoints().iter().all(is_out) {
            let rule =
                "all localities with endpoints have a weight of 0: requests go to any of them";
            site.key("weights")
                .warning(findings, Problem::new(rule, "give one of them a weight of 1"));
        }
    }
}
