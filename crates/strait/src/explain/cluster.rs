//! Where a request goes that a rule has taken: cluster, subset, endpoints.

use config::hash::Hashed;
use config::health::HealthStatus;
use config::locality::LocalityKey;
use config::matching::{Asked, Searches};
use config::priority::Priority;
use config::snapshot::{Cluster, ClusterId, Endpoint, Forward};
use config::targets::Target;
use proxy::Snapshot;
use proxy::route;
use wire::head::RequestHead;

use super::shares::Shares;
use super::{Knowledge, Story};

/// Endpoints that one explanation lists.
const ENDPOINTS_SHOWN_MAX: usize = 1_000;

/// Endpoints of a priority that are named in its line, and localities that have a line.
const NAMES_SHOWN_MAX: usize = 100;

/// Describes where a request goes that a rule has taken, and as what.
pub(super) fn describe_forward(
    story: &mut Story,
    snapshot: &Snapshot,
    forward: &Forward,
    head: &RequestHead<'_>,
    asked: &Asked<'_>,
) {
    for mirror in &forward.mirrors {
        let name = snapshot.cluster(mirror.cluster).map_or("", |cluster| &cluster.name);
        story.line("mirror", format!("{name}, {}", mirror.fraction.shown()));
    }
    if let Some(rewrite) = &forward.rewrite {
        story.line("rewrite", rewrite.to_string());
    }
    let chosen = forward.target.choose(asked, &mut Searches::default());
    match &forward.target {
        Target::Cluster(_) => {}
        Target::Shares(shares) => {
            for share in shares.clusters() {
                let name = snapshot.cluster(share.cluster).map_or("", |cluster| &cluster.name);
                let percent = f64::from(share.weight) * 100.0 / f64::from(shares.sum());
                let weight = share.weight;
                let host = share.host.as_ref();
                let host =
                    host.map_or_else(String::new, |host| format!(", the host becomes {host}"));
                let text = format!("{name}, weight {weight} ({percent:.1} % of requests){host}");
                story.line("share", text);
            }
            let by = shares.sticky().filter(|place| place.find(head, &mut Vec::new()).is_some());
            story.line(
                "chosen",
                by.map_or_else(
                    || "by a random number for each request".to_owned(),
                    |by| format!("by {by}"),
                ),
            );
            if by.is_none() {
                story.is_random = shares.clusters().iter().filter(|it| it.weight > 0).count() > 1;
                for share in shares.clusters().iter().filter(|share| share.weight > 0) {
                    describe_cluster(story, snapshot, forward, share.cluster, asked);
                }
                return;
            }
        }
        Target::Named(named) if chosen.is_none() => {
            let header = &named.header;
            return story
                .line("cluster", format!("header {header} names no cluster that the rule allows"));
        }
        Target::Named(_) => {}
    }
    if let Some(chosen) = chosen {
        describe_cluster(story, snapshot, forward, chosen.cluster, asked);
    }
}

fn describe_cluster(
    story: &mut Story,
    snapshot: &Snapshot,
    forward: &Forward,
    id: ClusterId,
    asked: &Asked<'_>,
) {
    let Some(cluster) = snapshot.cluster(id) else { return };
    let timeout = forward.timeout.map_or_else(|| "none".to_owned(), |bound| format!("{bound:?}"));
    story.cluster(id, format!("{}, timeout {timeout}", cluster.name));
    if let Some(retry) = &forward.retry {
        story.line("retry", retry.to_string());
    }
    if forward.priority == Priority::High {
        story.line("limits", "those of `high_priority`: connections and a queue of their own");
    }
    if cluster.original_destination.is_some() {
        story.line("endpoint", "the original destination of the connection");
    }
    let is_empty = cluster.original_destination.is_none() && cluster.endpoints.is_empty();
    if let Some(why) = cluster.endpoints_from.why_none().filter(|_| is_empty) {
        story.line("endpoint", format!("none: {why}, so that requests get 503"));
    }
    for name in cluster.endpoints_from.names() {
        story.line("endpoint", format!("the addresses of {name}"));
        story.asks_dns = story.knowledge == Knowledge::OfFile;
    }
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let shares = Shares::new(cluster, subset, snapshot.locality);
    let room = ENDPOINTS_SHOWN_MAX.saturating_sub(story.endpoints);
    for (place, endpoint) in cluster.endpoints.iter().enumerate().take(room) {
        let percent = 100.0 * shares.of(place, endpoint);
        story.endpoint(id, endpoint.id, endpoint_text(endpoint, percent));
    }
    if let more @ 1.. = cluster.endpoints.len().saturating_sub(room) {
        story.line("endpoint", format!("{more} more of {}", cluster.name));
    }
    if cluster.warming.waits() {
        story.line(
            "warming",
            "requests wait until each endpoint has been checked once, up to initial_check_timeout",
        );
    }
    if cluster.is_panicking() {
        story.line(
            "panic",
            "too few endpoints are available: ejected and unhealthy ones get requests, too",
        );
    }
    describe_subset(story, forward, cluster, asked);
    describe_localities(story, forward, cluster, snapshot.locality, asked);
    describe_hash(story, forward, cluster, asked);
    if let Some(asked) = asked.head.upgrade() {
        let verdict = if route::allows_upgrade(&forward.upgrades, asked) {
            "is allowed: a tunnel follows"
        } else {
            "is not among the rule's upgrades: the field is removed"
        };
        story.line("upgrade", format!("{} {verdict}", String::from_utf8_lossy(asked)));
    }
}

/// The endpoints that the request may go to, where the cluster has subsets or priorities.
fn describe_subset(story: &mut Story, forward: &Forward, cluster: &Cluster, asked: &Asked<'_>) {
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let levels = cluster.view.levels(subset);
    if let Some(selectors) = &cluster.selectors {
        let is_found = subset.is_some_and(|subset| cluster.view.has_subset(subset));
        let words = match (is_found, selectors.fallback()) {
            (true, _) => "as the rule requires".to_owned(),
            (false, fallback) => format!("no such subset, fallback {fallback}"),
        };
        story.line("subset", words);
    }
    let is_split = levels.len() > 1 || levels.iter().any(|group| !group.is_whole());
    for group in levels.iter().filter(|_| is_split) {
        let shown = group.len().min(NAMES_SHOWN_MAX);
        let endpoints = (0..shown).filter_map(|at| cluster.endpoints.get(group.place(at)?));
        let mut texts: Vec<String> = Vec::new();
        let mut priority = 0;
        for endpoint in endpoints {
            priority = endpoint.priority;
            texts.push(endpoint.address.to_string());
        }
        if let more @ 1.. = group.len() - shown {
            texts.push(format!("{more} more"));
        }
        story.line("priority", format!("{priority}: {}", texts.join(", ")));
    }
    if levels.is_empty() && !cluster.endpoints.is_empty() {
        story.line("endpoint", "none is available: 503");
    }
}

/// What each locality gets of the requests of the first priority, where that counts.
fn describe_localities(
    story: &mut Story,
    forward: &Forward,
    cluster: &Cluster,
    own: Option<LocalityKey>,
    asked: &Asked<'_>,
) {
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let Some(group) = cluster.view.levels(subset).first() else { return };
    if group.parts().next().is_none() {
        return;
    }
    let Some((parts, others)) = group.part_shares(own, HealthStatus::Healthy) else {
        let why = match own {
            None => "this process has no `locality`",
            Some(_) => "too few endpoints are available here, or in total",
        };
        return story.line("locality", format!("any: {why}"));
    };
    let more = parts.len().saturating_sub(NAMES_SHOWN_MAX);
    for (part, share) in parts.into_iter().take(NAMES_SHOWN_MAX) {
        let endpoint = part.group.place(0).and_then(|place| cluster.endpoints.get(place));
        let locality = endpoint.and_then(|endpoint| endpoint.locality());
        let name = locality.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
        let here = if own == Some(part.key) { ", of this process" } else { "" };
        story.line("locality", format!("{name}{here} ({:.1} % of requests)", share * 100.0));
    }
    if more > 0 {
        story.line("locality", format!("{more} more"));
    }
    if others > 0.0 {
        story.line("locality", format!("any ({:.1} % of requests)", others * 100.0));
    }
}

/// The endpoint that the request's hash leads to, where the cluster goes by that.
fn describe_hash(story: &mut Story, forward: &Forward, cluster: &Cluster, asked: &Asked<'_>) {
    let subset = forward.subset.as_ref().and_then(|it| it.hash(asked, &mut Searches::default()));
    let Some(group) = cluster.view.levels(subset).first() else { return };
    let Some(table) = group.hash_table() else { return };
    let hashing = forward.hashing.as_deref();
    let hashed = hashing.map(|it| it.hash(asked, &mut Searches::default(), || 1));
    let words = match hashed.unwrap_or_default() {
        Hashed { hash: None, .. } => "none: a random endpoint".to_owned(),
        Hashed { cookie: Some(_), .. } => {
            "from a new cookie: a random endpoint, which the client keeps".to_owned()
        }
        Hashed { hash: Some(hash), .. } => {
            let place = table.place(hash.get(), 0).and_then(|inner| group.place(inner));
            let endpoint = place.and_then(|place| cluster.endpoints.get(place));
            let to = endpoint.map_or_else(|| "no endpoint".to_owned(), |it| it.address.to_string());
            format!("leads to {to}")
        }
    };
    story.line("hash", words);
}

/// An endpoint, with its share of the requests like this one.
fn endpoint_text(endpoint: &Endpoint, percent: f64) -> String {
    let Endpoint { weight, address, reported, .. } = endpoint;
    let excluded = match (endpoint.status(), endpoint.health.get()) {
        _ if endpoint.is_drained => "drained, ".to_owned(),
        (_, Some(health)) if health.is_ejected() => "ejected, ".to_owned(),
        (HealthStatus::Healthy, _) => String::new(),
        (_, health) if health.is_none_or(|it| it.status() == HealthStatus::Healthy) => {
            format!("reported as {}, ", reported.as_str())
        }
        (HealthStatus::Degraded, _) => "degraded, ".to_owned(),
        (HealthStatus::Unhealthy, _) => "unhealthy, ".to_owned(),
    };
    format!("{address} ({excluded}weight {weight}, {percent:.1} % of requests)")
}
