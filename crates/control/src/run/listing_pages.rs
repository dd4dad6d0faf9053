//! `/clusters`, `/listeners` and `/routes`: what is configured, and what it carries.
//!
//! A thread of its own walks the configuration and writes; it asks control for counters, so many in a turn. A page
//! shows one configuration, whatever is taken up meanwhile, with counters of the moment in which each was read.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;

use config::breakers::InUse;
use config::priority::Bounds;
use config::snapshot::{
    Address, Cluster, Endpoint, Listener, ListenerId, RouteTable, Rule, RuleSlot, Snapshot,
};
use serde_json::{Value, json};
use telemetry::events::LabelId;
use telemetry::{ClusterTotals, EndpointTotals, ListenerTotals};
use tokio::sync::{mpsc, oneshot};

use crate::admin::{Listing, PieceWriter, Query, Sort};
use crate::clock;
use crate::health::Described;
use crate::names::label;
use crate::workers::address_text;

/// Things whose counters are read in one turn of control.
const COUNTERS_A_TURN_MAX: usize = 500;

/// What the pages are written from.
pub(super) struct ListingPage<F> {
    pub(super) snapshot: Arc<Snapshot<F>>,
    /// Where the listeners are bound.
    pub(super) addresses: BTreeMap<ListenerId, Vec<Address>>,
    /// What is known of endpoints.
    pub(super) health: Described,
    /// To control, which reads the counters.
    pub(super) queries: mpsc::Sender<Query>,
    pub(super) listing: Listing,
}

impl<F> ListingPage<F> {
    /// Writes the clusters that are asked for.
    pub(super) fn write_clusters(&self, out: PieceWriter) -> io::Result<()> {
        let is_listed = self.listing.names();
        let clusters = self.snapshot.clusters.iter().map(|(_, cluster)| cluster);
        let mut shown: Vec<_> = clusters.filter(|it| is_listed(&it.name)).collect();
        let matched = shown.len();
        let ask = |ids, reply| Query::Clusters { ids, reply };
        let totals_of = |piece: &[&Arc<Cluster>]| {
            self.counted(piece.iter().map(|it| label(it.id.0)).collect(), ask)
        };
        match self.listing.sort {
            None => {}
            Some(Sort::Name) => shown.sort_by(|a, b| a.name.cmp(&b.name)),
            Some(sort) => {
                let mut ranked = Vec::with_capacity(shown.len());
                for piece in shown.chunks(COUNTERS_A_TURN_MAX) {
                    let ranks = totals_of(piece)?.into_iter().map(|it| cluster_rank(sort, &it));
                    ranked.extend(ranks.zip(piece.iter().copied()));
                }
                ranked.sort_by_key(|(rank, _)| Reverse(*rank));
                shown = ranked.into_iter().map(|(_, cluster)| cluster).collect();
            }
        }
        shown.truncate(self.listing.limit.unwrap_or(usize::MAX));
        let mut list = List::begin(out, matched, "clusters")?;
        for piece in shown.chunks(COUNTERS_A_TURN_MAX) {
            for (cluster, totals) in piece.iter().zip(totals_of(piece)?) {
                let endpoints =
                    if self.listing.is_brief { None } else { Some(self.endpoints(cluster)?) };
                list.push(&cluster_json(cluster, endpoints, &totals))?;
            }
        }
        list.end()
    }

    /// Writes the listeners that are asked for.
    pub(super) fn write_listeners(&self, out: PieceWriter) -> io::Result<()> {
        let is_listed = self.listing.names();
        let listeners = self.snapshot.listeners.iter();
        let found: Vec<_> = listeners.filter(|it| is_listed(&it.name)).collect();
        let matched = found.len();
        let mut shown = Vec::with_capacity(found.len());
        for piece in found.chunks(COUNTERS_A_TURN_MAX) {
            let ids = piece.iter().map(|it| label(it.id.0)).collect();
            let totals = self.counted(ids, |ids, reply| Query::Listeners { ids, reply })?;
            shown.extend(piece.iter().copied().zip(totals));
        }
        match self.listing.sort {
            None => {}
            Some(Sort::Name) => shown.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name)),
            Some(sort) => shown.sort_by_key(|(_, totals)| Reverse(listener_rank(sort, totals))),
        }
        let mut list = List::begin(out, matched, "listeners")?;
        for (listener, totals) in shown.iter().take(self.listing.limit.unwrap_or(usize::MAX)) {
            list.push(&self.listener_json(listener, totals))?;
        }
        list.end()
    }

    /// Writes the rules of the route tables that are asked for. A table may have very many: it is not put together as a whole.
    pub(super) fn write_routes(&self, out: PieceWriter) -> io::Result<()> {
        let is_listed = self.listing.names();
        let tables = self.snapshot.route_tables.iter().map(|(_, table)| table);
        let mut tables: Vec<_> = tables.filter(|it| is_listed(&it.name)).collect();
        if self.listing.sort.is_some() {
            tables.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let is_shown = |rule: &Rule| !self.listing.is_weighted_only || rule.shares().is_some();
        let rules = |table: &RouteTable| match self.listing.is_weighted_only {
            true => table.weighted.len(),
            false => table.rules.len(),
        };
        let matched = tables.iter().map(|table| rules(table)).sum();
        let mut left = self.listing.limit.unwrap_or(usize::MAX);
        let mut list = List::begin(out, matched, "rules")?;
        for table in tables.into_iter().filter(|table| rules(table) > 0) {
            let ids = vec![label(table.id.0)];
            let totals = self.counted(ids, |ids, reply| Query::Routes { ids, reply })?;
            let totals = totals.first().map_or(&[][..], Vec::as_slice);
            let shown = table.rules.iter().zip(0..).filter(|(rule, _)| is_shown(rule));
            for (rule, place) in shown.take(left) {
                list.push(&rule_json(table, rule, place, totals))?;
                left -= 1;
            }
        }
        list.end()
    }

    fn endpoints(&self, cluster: &Cluster) -> io::Result<Vec<Value>> {
        let mut endpoints = Vec::with_capacity(cluster.endpoints.len());
        for piece in cluster.endpoints.chunks(COUNTERS_A_TURN_MAX) {
            let ids = piece.iter().map(|it| label(it.id.0)).collect();
            let totals = self.counted(ids, |ids, reply| Query::Endpoints { ids, reply })?;
            let of_piece = piece.iter().zip(totals);
            endpoints.extend(
                of_piece.map(|(it, totals)| endpoint_json(cluster, it, &self.health, &totals)),
            );
        }
        Ok(endpoints)
    }

    /// What these have counted.
    fn counted<T>(
        &self,
        ids: Vec<LabelId>,
        ask: impl Fn(Vec<LabelId>, oneshot::Sender<Vec<T>>) -> Query,
    ) -> io::Result<Vec<T>> {
        let (reply, totals) = oneshot::channel();
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.queries.blocking_send(ask(ids, reply)).map_err(|_| ended())?;
        totals.blocking_recv().map_err(|_| ended())
    }

    fn listener_json(&self, listener: &Listener<F>, totals: &ListenerTotals) -> Value {
        let bound = self.addresses.get(&listener.id).map_or(&[][..], Vec::as_slice);
        json!({
            "name": listener.name,
            "addresses": listener.addresses.iter().map(address_text).collect::<Vec<_>>(),
            "bound": bound.iter().map(address_text).collect::<Vec<_>>(),
            "filters": listener.filters.len(),
            "connections": {
                "active": totals.connections_active,
                "max": listener.connections_max,
                "total": totals.connections_total,
            },
            "exchanges": {
                "active": totals.exchanges_active,
                "total": totals.exchanges_total,
            },
        })
    }
}

/// By which figure a cluster is sorted.
const fn cluster_rank(sort: Sort, totals: &ClusterTotals) -> u64 {
    match sort {
        Sort::Name => 0,
        Sort::Active => totals.connections_active,
        Sort::Pending => totals.pending,
        Sort::Exchanges => totals.exchanges_total,
        Sort::Failures => {
            totals.exchanges_failed_total.saturating_add(totals.connect_failures_total)
        }
    }
}

/// By which figure a listener is sorted; nothing waits there, and nothing fails there.
const fn listener_rank(sort: Sort, totals: &ListenerTotals) -> u64 {
    match sort {
        Sort::Name | Sort::Pending | Sort::Failures => 0,
        Sort::Active => totals.connections_active,
        Sort::Exchanges => totals.exchanges_total,
    }
}

fn cluster_json(cluster: &Cluster, endpoints: Option<Vec<Value>>, totals: &ClusterTotals) -> Value {
    let endpoints = endpoints.map_or_else(|| json!(cluster.endpoints.len()), Value::from);
    let (in_use, bounds) = (&cluster.breakers, &cluster.bounds);
    json!({
        "name": cluster.name,
        "endpoints": endpoints,
        "panic": cluster.is_panicking(),
        "warming": cluster.warming.waits(),
        "original_destination": cluster.original_destination.is_some(),
        "connections": {
            "active": totals.connections_active,
            "idle": totals.connections_idle,
            "open": in_use.connections(),
            "max": bounds.connections_max,
            "per_endpoint_max": cluster.connections_per_endpoint_max,
            "total": totals.connections_total,
            "failed_total": totals.connect_failures_total,
        },
        "exchanges": {
            "pending": totals.pending,
            "pending_max": bounds.pending_max,
            "under_way": in_use.requests(),
            "requests_max": bounds.requests_max,
            "concurrency_limit": cluster.adaptive.as_ref().map(|it| it.limit()),
            "min_rtt_seconds": cluster.adaptive.as_ref().and_then(|it| it.min_rtt()).map(|it| it.as_secs_f64()),
            "retries": in_use.retries().0,
            "total": totals.exchanges_total,
            "failed_total": totals.exchanges_failed_total,
            "retries_total": totals.retries_total,
            "timed_total": totals.exchanges_timed_total,
            "seconds_total": totals.exchange_time_total.as_secs_f64(),
        },
        "high_priority": in_use.high().map(|in_use| high_priority_json(in_use, &cluster.high)),
    })
}

/// What requests of high priority use of their limits.
fn high_priority_json(in_use: &InUse, bounds: &Bounds) -> Value {
    json!({
        "connections": { "open": in_use.connections(), "max": bounds.connections_max },
        "exchanges": {
            "pending": in_use.pending(),
            "pending_max": bounds.pending_max,
            "under_way": in_use.requests(),
            "requests_max": bounds.requests_max,
            "retries": in_use.retries().0,
        },
    })
}

fn endpoint_json(
    cluster: &Cluster,
    endpoint: &Endpoint,
    health: &Described,
    totals: &EndpointTotals,
) -> Value {
    let reasons = totals.connect_failures.iter();
    let transport = &cluster.transports.of(endpoint).name;
    json!({
        "address": address_text(&endpoint.address),
        "weight": endpoint.weight,
        "drained": endpoint.is_drained,
        "reported": endpoint.reported.as_str(),
        "connections": endpoint.connections.open(),
        "transport": (!transport.is_empty()).then_some(transport),
        "health": health.checks.get(&endpoint.id),
        "ejected": health.ejections.get(&endpoint.id),
        "exchanges": {
            "total": totals.exchanges_total,
            "failed_total": totals.exchanges_failed_total,
        },
        "connect_failures": reasons
            .map(|(reason, count)| ((*reason).to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "last_error": totals.last_error.map(|error| json!({
            "cause": error.cause,
            "reason": error.reason,
            "at": clock::rfc3339(error.at),
        })),
    })
}

/// A page with one list, indented as all of them.
struct List {
    out: PieceWriter,
    is_empty: bool,
}

impl List {
    fn begin(mut out: PieceWriter, matched: usize, name: &str) -> io::Result<Self> {
        write!(out, "{{\n  \"matched\": {matched},\n  \"{name}\": [")?;
        Ok(Self { out, is_empty: true })
    }

    fn push(&mut self, row: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_empty) { "" } else { "," };
        // Text in JSON has no ends of lines of its own.
        let row = serde_json::to_string_pretty(row)?.replace('\n', "\n    ");
        write!(self.out, "{comma}\n    {row}")
    }

    fn end(mut self) -> io::Result<()> {
        let last = if self.is_empty { "" } else { "\n  " };
        self.out.write_all(format!("{last}]\n}}\n").as_bytes())?;
        self.out.finish()
    }
}

/// A rule and its weighted clusters, with their exchanges.
fn rule_json(table: &RouteTable, rule: &Rule, place: u32, totals: &[u64]) -> Value {
    let total = |slot: &RuleSlot| {
        let slot = usize::try_from(slot.number()).ok();
        slot.and_then(|slot| totals.get(slot)).copied().unwrap_or_default()
    };
    // One that has several shares is counted once.
    let mut clusters: Vec<(&str, u64, &RuleSlot)> = Vec::new();
    for (share, slot) in table.weighted_clusters_of(place) {
        let weight = u64::from(share.weight);
        match clusters.iter_mut().find(|(_, _, known)| known.number() == slot.number()) {
            Some((_, sum, _)) => *sum += weight,
            None => clusters.push((&share.cluster, weight, slot)),
        }
    }
    let clusters = clusters.into_iter().map(|(name, weight, slot)| {
        json!({ "name": name, "weight": weight, "exchanges_total": total(slot) })
    });
    json!({
        "route": table.name,
        "place": place,
        "rule": rule.label(),
        "exchanges_total": total(&rule.slot),
        "clusters": clusters.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::admin::pieces;

    #[test]
    fn a_cluster_with_two_shares_of_a_rule_is_shown_once_with_the_sum_of_its_weights() {
        let yaml = "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]
routes:
  - name: all
    rules:
      - match: { prefix: / }
        clusters: [{ cluster: a, weight: 70 }, { cluster: b, weight: 20 }, { cluster: a, weight: 10 }]
clusters:
  - { name: a, endpoints: ['127.0.0.1:2'] }
  - { name: b, endpoints: ['127.0.0.1:3'] }
";
        let mut loader = config::Loader::<()>::new(config::FilterKinds::new()).unwrap();
        let snapshot = loader.load("test", yaml).unwrap();
        let table = snapshot.route_tables.iter().next().unwrap().1;
        let totals: Vec<u64> = (100..).take(8).collect();
        let row = rule_json(table, &table.rules[0], 0, &totals);
        let shown = row["clusters"].as_array().unwrap();
        let shown: Vec<_> = shown.iter().map(|it| (&it["name"], &it["weight"])).collect();
        assert_eq!(shown, [(&json!("a"), &json!(80)), (&json!("b"), &json!(20))]);
    }

    /// Control's turns stay short however many clusters and endpoints there are.
    #[tokio::test]
    async fn counters_are_asked_for_so_many_at_a_time() {
        let endpoints: Vec<_> = (1..=1200).map(|port| format!("127.0.0.1:{port}")).collect();
        let clusters =
            (0..1100).map(|n| format!("  - {{ name: c{n}, endpoints: ['127.0.0.1:9'] }}\n"));
        let yaml = format!(
            "listeners:\n  - {{ name: edge, address: '127.0.0.1:1', routes: all }}\nroutes:\n  - {{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}\nclusters:\n{}  - {{ name: wide, endpoints: {endpoints:?} }}\n",
            clusters.collect::<String>()
        );
        let mut loader = config::Loader::<()>::new(config::FilterKinds::new()).unwrap();
        let snapshot = loader.load("test", &yaml).unwrap();
        let (queries, mut asked) = mpsc::channel(1);
        let listing = Listing { sort: Some(Sort::Pending), ..Listing::default() };
        let (addresses, health) = (BTreeMap::new(), Described::default());
        let shown = ListingPage { snapshot, addresses, health, queries, listing };
        let (writer, page) = pieces();
        let written = tokio::task::spawn_blocking(move || shown.write_clusters(writer));
        let counting = tokio::spawn(async move {
            let mut sizes = Vec::new();
            while let Some(query) = asked.recv().await {
                match query {
                    Query::Clusters { ids, reply } => {
                        sizes.push(ids.len());
                        reply.send(vec![ClusterTotals::default(); ids.len()]).unwrap();
                    }
                    Query::Endpoints { ids, reply } => {
                        sizes.push(ids.len());
                        reply.send(vec![EndpointTotals::default(); ids.len()]).unwrap();
                    }
                    _ => panic!("{query:?}"),
                }
            }
            sizes
        });
        let page = page.collect().await.unwrap().to_bytes();
        written.await.unwrap().unwrap();
        let page: Value = serde_json::from_slice(&page).unwrap();
        assert_eq!(page["clusters"].as_array().unwrap().len(), 1101);
        let sizes = counting.await.unwrap();
        assert_eq!(sizes.iter().max(), Some(&COUNTERS_A_TURN_MAX));
        assert_eq!(sizes.iter().sum::<usize>(), 1101 * 2 + 1100 + 1200);
    }
}
