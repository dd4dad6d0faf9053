//! `/clusters`, `/listeners` and `/routes`: what is configured, and what it carries.
//!
//! A thread of its own walks the configuration and writes; it asks control for counters and health, of so many things in a turn. A page
//! shows one configuration, whatever is taken up meanwhile, with counters and health of the moment in which each was read. What a
//! page takes in memory does not follow the number of endpoints: they are asked for, put in words and written piece by piece.

use std::cmp::Reverse;
use std::io::{self, Write as _};
use std::sync::Arc;

use config::breakers::InUse;
use config::priority::Bounds;
use config::snapshot::{Cluster, Endpoint, Listener, RouteTable, Rule, RuleSlot, Snapshot};
use serde::ser::{Error as _, SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use telemetry::{ClusterTotals, ListenerTotals};
use tokio::sync::{mpsc, oneshot};

use crate::admin::{
    EndpointReading, EndpointsShown, ListenerReading, Listing, PieceWriter, Query, Sort,
};
use crate::checks::word_json;
use crate::clock;
use crate::names::{address_text, label};
use crate::outliers::ejected_json;

/// Things whose counters are read in one turn of control.
const COUNTERS_A_TURN_MAX: usize = 500;

/// What the pages are written from.
pub(super) struct ListingPage<F> {
    pub(super) snapshot: Arc<Snapshot<F>>,
    /// To control, which reads the counters, and knows the health of endpoints.
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
                list.push(&ClusterRow { page: self, cluster, totals })?;
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
            let ids = piece.iter().map(|it| it.id).collect();
            let readings = self.counted(ids, |ids, reply| Query::Listeners { ids, reply })?;
            shown.extend(piece.iter().copied().zip(readings));
        }
        match self.listing.sort {
            None => {}
            Some(Sort::Name) => shown.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name)),
            Some(sort) => shown.sort_by_key(|(_, it)| Reverse(listener_rank(sort, &it.totals))),
        }
        let mut list = List::begin(out, matched, "listeners")?;
        for (listener, reading) in shown.iter().take(self.listing.limit.unwrap_or(usize::MAX)) {
            list.push(&listener_json(listener, reading))?;
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

    /// How many endpoints a cluster has, the sum of their weights, and that of the exchanges that ended at them.
    fn endpoints_in_all(&self, cluster: &Cluster) -> io::Result<Value> {
        let mut exchanges_total = 0u64;
        for piece in cluster.endpoints.chunks(COUNTERS_A_TURN_MAX) {
            let ids = piece.iter().map(|it| label(it.id.0)).collect();
            let counts = self.counted(ids, |ids, reply| Query::EndpointExchanges { ids, reply })?;
            exchanges_total = exchanges_total.saturating_add(counts.iter().sum());
        }
        let weights = cluster.endpoints.iter().map(|it| u64::from(it.weight));
        Ok(json!({
            "count": cluster.endpoints.len(),
            "weight": weights.sum::<u64>(),
            "exchanges_total": exchanges_total,
        }))
    }

    /// What these have counted, and how they are.
    fn counted<Id, T>(
        &self,
        ids: Vec<Id>,
        ask: impl Fn(Vec<Id>, oneshot::Sender<Vec<T>>) -> Query,
    ) -> io::Result<Vec<T>> {
        let (reply, totals) = oneshot::channel();
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.queries.blocking_send(ask(ids, reply)).map_err(|_| ended())?;
        totals.blocking_recv().map_err(|_| ended())
    }
}

/// A cluster, whose endpoints are asked for as they are written.
struct ClusterRow<'p, F> {
    page: &'p ListingPage<F>,
    cluster: &'p Cluster,
    totals: ClusterTotals,
}

impl<F> Serialize for ClusterRow<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { page, cluster, totals } = self;
        let (first, count_max) = match page.listing.endpoints {
            EndpointsShown::All => (0, usize::MAX),
            EndpointsShown::Part { first, count_max } => (first, count_max),
            EndpointsShown::Count => return cluster_json(cluster, totals).serialize(serializer),
        };
        let shown = cluster.endpoints.get(first..).unwrap_or_default();
        let shown = shown.get(..count_max).unwrap_or(shown);
        let mut row = serializer.serialize_map(None)?;
        let members = cluster_json(cluster, totals);
        for (key, value) in members.as_object().into_iter().flatten() {
            if key != "endpoints" {
                row.serialize_entry(key, value)?;
                continue;
            }
            row.serialize_entry(key, &EndpointRows { page, cluster, shown })?;
            if page.listing.endpoints != EndpointsShown::All {
                let sums = page.endpoints_in_all(cluster).map_err(S::Error::custom)?;
                row.serialize_entry("endpoints_in_all", &sums)?;
            }
        }
        row.end()
    }
}

/// Endpoints of a cluster: those of one question at a time are in memory.
struct EndpointRows<'p, F> {
    page: &'p ListingPage<F>,
    cluster: &'p Cluster,
    shown: &'p [Endpoint],
}

impl<F> Serialize for EndpointRows<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { page, cluster, shown } = self;
        let mut rows = serializer.serialize_seq(Some(shown.len()))?;
        for piece in shown.chunks(COUNTERS_A_TURN_MAX) {
            let ids = piece.iter().map(|it| (cluster.id, it.id)).collect();
            let ask = |ids, reply| Query::Endpoints { ids, reply };
            let readings = page.counted(ids, ask).map_err(S::Error::custom)?;
            for (endpoint, reading) in piece.iter().zip(&readings) {
                rows.serialize_element(&endpoint_json(cluster, endpoint, reading))?;
            }
        }
        rows.end()
    }
}

fn listener_json<F>(
    listener: &Listener<F>,
    ListenerReading { totals, bound }: &ListenerReading,
) -> Value {
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

/// A cluster, with the number of its endpoints.
fn cluster_json(cluster: &Cluster, totals: &ClusterTotals) -> Value {
    let (in_use, bounds) = (&cluster.breakers, &cluster.bounds);
    json!({
        "name": cluster.name,
        "endpoints": cluster.endpoints.len(),
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
    EndpointReading { totals, health }: &EndpointReading,
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
        "health": health.checked.as_ref().map(word_json),
        "ejected": health.ejected.as_ref().map(ejected_json),
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

    /// Writes a row as it comes: it is not put together as a whole.
    fn push(&mut self, row: &impl Serialize) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_empty) { "" } else { "," };
        write!(self.out, "{comma}\n    ")?;
        Ok(serde_json::to_writer_pretty(Indented(&mut self.out), row)?)
    }

    fn end(mut self) -> io::Result<()> {
        let last = if self.is_empty { "" } else { "\n  " };
        self.out.write_all(format!("{last}]\n}}\n").as_bytes())?;
        self.out.finish()
    }
}

/// Indents lines but the first one as rows of a list. Text in JSON has no ends of lines of its own.
struct Indented<'w, W>(&'w mut W);

impl<W: io::Write> io::Write for Indented<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.0.write_all(line)?;
            if line.ends_with(b"\n") {
                self.0.write_all(b"    ")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
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
    use std::time::Duration;

    use config::checks::HealthWord;
    use http_body_util::BodyExt as _;
    use telemetry::EndpointTotals;

    use super::*;
    use crate::admin::{Pieces, pieces};
    use crate::health::KnownHealth;

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
        let listing = Listing { sort: Some(Sort::Pending), ..Listing::default() };
        let (page, sizes) = written(yaml, listing).await;
        let page: Value = serde_json::from_str(&page).unwrap();
        assert_eq!(page["clusters"].as_array().unwrap().len(), 1101);
        assert_eq!(sizes.iter().max(), Some(&COUNTERS_A_TURN_MAX));
        assert_eq!(sizes.iter().sum::<usize>(), 1101 * 2 + 1100 + 1200);
    }

    /// A configuration with one cluster of so many endpoints.
    fn with_endpoints(count: u32) -> String {
        let endpoints: Vec<_> =
            (1..=count).map(|n| format!("10.0.{}.{}:1", n >> 8, n & 255)).collect();
        format!(
            "listeners:\n  - {{ name: edge, address: '127.0.0.1:1', routes: all }}\nroutes:\n  - {{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}\nclusters:\n  - {{ name: wide, endpoints: {endpoints:?} }}\n"
        )
    }

    /// A page about clusters, of which it is asked with `listing`, and what its writer asks control.
    fn begun(yaml: &str, listing: Listing) -> (Pieces, mpsc::Receiver<Query>) {
        let mut loader = config::Loader::<()>::new(config::FilterKinds::new()).unwrap();
        let snapshot = loader.load("test", yaml).unwrap();
        let (queries, asked) = mpsc::channel(1);
        let shown = ListingPage { snapshot, queries, listing };
        let (writer, page) = pieces();
        tokio::task::spawn_blocking(move || drop(shown.write_clusters(writer)));
        (page, asked)
    }

    /// Answers a question: each endpoint had one exchange, and is unhealthy. Returns of how many things it was.
    fn answer(query: Query) -> usize {
        match query {
            Query::Clusters { ids, reply } => {
                let _ = reply.send(vec![ClusterTotals::default(); ids.len()]);
                ids.len()
            }
            Query::Endpoints { ids, reply } => {
                let totals = EndpointTotals { exchanges_total: 1, ..EndpointTotals::default() };
                let checked = HealthWord { word: "unhealthy", reason: None, since: Duration::ZERO };
                let health = KnownHealth { checked: Some(checked), ejected: None };
                let _ = reply.send(vec![EndpointReading { totals, health }; ids.len()]);
                ids.len()
            }
            Query::EndpointExchanges { ids, reply } => {
                let _ = reply.send(vec![1; ids.len()]);
                ids.len()
            }
            _ => panic!("{query:?}"),
        }
    }

    /// The whole page, and of how many things each question was.
    async fn written(yaml: String, listing: Listing) -> (String, Vec<usize>) {
        let (page, mut asked) = begun(&yaml, listing);
        let answering = tokio::spawn(async move {
            let mut sizes = Vec::new();
            while let Some(query) = asked.recv().await {
                sizes.push(answer(query));
            }
            sizes
        });
        let page = page.collect().await.unwrap().to_bytes();
        (String::from_utf8(page.to_vec()).unwrap(), answering.await.unwrap())
    }

    #[tokio::test]
    async fn a_page_is_indented_as_json_always_is() {
        for endpoints in [EndpointsShown::All, EndpointsShown::Part { first: 1, count_max: 2 }] {
            let listing = Listing { endpoints, ..Listing::default() };
            let (page, _) = written(with_endpoints(4), listing).await;
            let value: Value = serde_json::from_str(&page).unwrap();
            assert_eq!(page, serde_json::to_string_pretty(&value).unwrap() + "\n");
        }
    }

    #[tokio::test]
    async fn a_part_of_the_endpoints_comes_with_the_sums_of_all() {
        for (first, count_max, expected) in
            [(0, 2, 0..2), (1199, 5, 1199..1200), (1200, 5, 0..0), (0, 0, 0..0)]
        {
            let endpoints = EndpointsShown::Part { first, count_max };
            let listing = Listing { endpoints, ..Listing::default() };
            let (page, sizes) = written(with_endpoints(1200), listing).await;
            let page: Value = serde_json::from_str(&page).unwrap();
            let cluster = &page["clusters"][0];
            let shown: Vec<_> =
                cluster["endpoints"].as_array().unwrap().iter().map(|it| &it["address"]).collect();
            let all: Vec<_> =
                (1..=1200).map(|n| json!(format!("10.0.{}.{}:1", n >> 8, n & 255))).collect();
            assert_eq!(shown, all[expected.clone()].iter().collect::<Vec<_>>());
            let sums = json!({ "count": 1200, "weight": 1200, "exchanges_total": 1200 });
            assert_eq!(cluster["endpoints_in_all"], sums);
            // The cluster, those that are shown, and the exchanges of all.
            assert_eq!(sizes.iter().sum::<usize>(), 1 + expected.len() + 1200, "{sizes:?}");
        }
    }

    /// What is known of health is asked for with the counters, and put in words here.
    #[tokio::test]
    async fn the_health_of_endpoints_is_asked_for_if_they_are_shown() {
        for (endpoints, asked) in [(EndpointsShown::All, 1 + 3), (EndpointsShown::Count, 1)] {
            let listing = Listing { endpoints, ..Listing::default() };
            let (page, sizes) = written(with_endpoints(3), listing).await;
            assert_eq!(sizes.iter().sum::<usize>(), asked);
            assert_eq!(page.matches("\"state\": \"unhealthy\"").count(), asked - 1, "{page}");
        }
    }

    /// So that a page of a hundred thousand endpoints is never in memory as a whole.
    #[tokio::test]
    async fn endpoints_are_written_before_the_next_are_asked_for() {
        let (mut page, mut asked) = begun(&with_endpoints(5_000), Listing::default());
        let mut answered = 0;
        loop {
            tokio::select! {
                biased;
                frame = page.frame() => {
                    frame.unwrap().unwrap();
                    break;
                }
                query = asked.recv() => answered += answer(query.unwrap()),
            }
        }
        assert!(answered <= 1 + COUNTERS_A_TURN_MAX, "{answered}");
    }
}
