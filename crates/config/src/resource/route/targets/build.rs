//! `cluster`, `clusters` and `cluster_header` of a rule to a [`Target`].

use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::resource::route::edits::build as edits;
use crate::resource::route::file as route;
use crate::resource::route::matching::Place;
use crate::resource::route::matching::build as matching;
use crate::resource::route::targets::{Named, Share, ShareKey, Shares, Sticky, Target};
use crate::resource::tls::build::twice;
use crate::sections::http;
use crate::sections::names::Names;
use crate::snapshot::ClusterId;
use crate::text::tree::Site;

/// Where a rule forwards to; none if it forwards nowhere, or something is wrong, which is reported.
pub(crate) fn target(
    file: &route::Rule,
    site: &Site<'_>,
    clusters: &mut Names<'_, ClusterId>,
    findings: &mut Findings<'_>,
) -> Option<Target> {
    for (key, stands, needs, has) in [
        ("sticky", file.sticky.is_some(), "clusters", file.clusters.is_some()),
        ("among", file.among.is_some(), "cluster_header", file.cluster_header.is_some()),
    ] {
        if stands && !has {
            let rule = format!("`{key}` needs `{needs}`");
            let hint = match (key, &file.cluster) {
                ("sticky", Some(_)) => {
                    "it selects one of several clusters; for one of the endpoints, write `hash` here, \
                     and `balance: maglev` in the cluster"
                }
                _ => "remove it",
            };
            site.key_error(findings, key, Problem::new(rule, hint));
        }
    }
    if let Some(name) = &file.cluster {
        let id = clusters.resolve(name, "cluster", &site.key("cluster"), findings)?;
        return Some(Target::Cluster(id));
    }
    if let Some(shares) = &file.clusters {
        let sticky = sticky(file.sticky.as_deref(), &site.key("sticky"), findings);
        return self::shares(shares, sticky, &site.key("clusters"), clusters, findings);
    }
    let header = file.cluster_header.as_deref()?;
    named(header, file.among.as_deref(), site, clusters, findings)
}

fn shares(
    file: &[ShareKey],
    sticky: Option<Place>,
    site: &Site<'_>,
    clusters: &mut Names<'_, ClusterId>,
    findings: &mut Findings<'_>,
) -> Option<Target> {
    let mut shares = Vec::with_capacity(file.len());
    let mut sum = 0_u64;
    for (entry, site) in file.iter().zip(site.items()) {
        sum += u64::from(entry.weight);
        let host = entry.rewrite.as_ref().map(|rewrite| {
            let checked = http::check_authority(&rewrite.host);
            if let Err(problem) = checked {
                site.key("rewrite").key("host").error(findings, problem);
            }
            rewrite.host.to_ascii_lowercase().into_boxed_str()
        });
        let edits = edits::edits(entry.headers.as_ref(), &site.key("headers"), findings);
        let id = clusters.resolve(&entry.cluster, "cluster", &site.key("cluster"), findings);
        shares.extend(id.map(|id| Share::new(id, entry.weight, host, edits)));
    }
    let problem = match sum {
        0 if file.is_empty() => return None,
        0 => {
            Problem::new("the weights are all 0, so no cluster gets requests", "give one a weight")
        }
        sum if sum > u64::from(u32::MAX) => {
            let rule = format!("weights add up to at most {}", u32::MAX);
            Problem::new(rule, "divide all of them by the same number")
        }
        _ => return Shares::new(shares, sticky).map(Target::Shares),
    };
    site.error(findings, problem);
    None
}

fn sticky(file: Option<&Sticky>, site: &Site<'_>, findings: &mut Findings<'_>) -> Option<Place> {
    let file = file?;
    let (key, place) = match (&file.header, &file.cookie) {
        (Some(name), _) => ("header", matching::header(name)),
        (None, name) => ("cookie", matching::cookie(name.as_deref()?)),
    };
    place.map_err(|problem| site.key(key).error(findings, problem)).ok()
}

fn named(
    header: &str,
    among: Option<&[String]>,
    site: &Site<'_>,
    clusters: &mut Names<'_, ClusterId>,
    findings: &mut Findings<'_>,
) -> Option<Target> {
    let name = matching::header(header).map_err(|problem| {
        site.key("cluster_header").error(findings, problem);
    });
    let mut found: Map<Box<[u8]>, ClusterId> = Map::default();
    match among {
        Some(among) => {
            let site = site.key("among");
            for (name, site) in among.iter().zip(site.items()) {
                if let Some(id) = clusters.resolve(name, "cluster", &site, findings)
                    && found.insert(name.as_bytes().into(), id).is_some()
                {
                    twice(&site, findings);
                }
            }
        }
        None => found.extend(clusters.use_all().map(|(name, id)| (name.as_bytes().into(), id))),
    }
    let Ok(Place::Header(header)) = name else { return None };
    Some(Target::Named(Named { header, clusters: found }))
}
