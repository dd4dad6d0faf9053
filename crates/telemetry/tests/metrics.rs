//! Counters of workers, and the metrics reported from them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use telemetry::cause::Cause;
use telemetry::events::{
    AccessLogWriteFailed, BreakersOfCluster, CertificateInUse, CheckCounted, ClusterGauges,
    ConcurrencyOfCluster, ConfigAccepted, ConfigRejected, ConfigTakenUp, ConnectionClosed,
    ConnectionOpened, ConnectionRefused, ControlTurned, EjectionCounted, ExchangeFinished,
    ExchangeStarted, Fault, GrpcCall, HealthOfCluster, LabelId, ListenerGauges, SourceAnswered,
    SourceKind, SourceResources, Stages, StateWrites, TunnelStarted, UpstreamClosed,
    UpstreamConnectFailed, UpstreamConnected, UpstreamPaused, UpstreamRetried, WorkerGauges,
};
use telemetry::{
    ClusterTotals, Collector, Emitter, EndpointName, FormerTotals, ListenerTotals, Names,
    ProcessFacts, RouteNames, WeightedName,
};

const EDGE: LabelId = LabelId { slot: 0, generation: 0 };
const SHOP: LabelId = LabelId { slot: 0, generation: 0 };
const API: LabelId = LabelId { slot: 1, generation: 0 };

fn names() -> Names {
    let mut names = Names::default();
    names.insert_listener(EDGE, "edge".into());
    let rules = (0..40).map(|rule| (rule, format!("/{rule}*")));
    let weighted = [WeightedName { slot: 40, rule: 7, cluster: "next".into() }];
    names.insert_route(SHOP, RouteNames::new("shop".into(), rules, weighted));
    names.insert_cluster(API, "api".into());
    names
}

fn workers(count: usize) -> (Vec<Emitter>, Collector) {
    let mut collector = Collector::new("0.1.0");
    collector.set_names(Arc::new(names()));
    let emitters = (0..count)
        .map(|_| {
            let (emitter, reports) = Emitter::new(1 << 16);
            collector.add_worker(reports.counters);
            emitter
        })
        .collect();
    (emitters, collector)
}

fn finished() -> ExchangeFinished<'static> {
    ExchangeFinished {
        listener: EDGE,
        rule: Some((SHOP, 1)),
        weighted: None,
        cluster: Some(API),
        subset: b"",
        endpoint: b"127.0.0.1:9000",
        client: b"192.0.2.7:1",
        method: b"GET",
        target: b"/",
        host: b"shop",
        request_id: b"",
        user_agent: b"",
        server_name: b"",
        tls_version: b"",
        tls_cipher: b"",
        peer_identity: b"",
        version: 11,
        status: 200,
        cause: None,
        failures: 0,
        fault: Fault::None,
        endpoint_id: None,
        cause_detail: b"",
        failed_attempts: b"",
        captures: b"",
        is_reply: false,
        request_bytes: 10,
        response_bytes: 1_000,
        attempts: 1,
        grpc: None,
        is_tunnel: false,
        started_at: 1_795_234_467_123_456_000,
        stages: Stages { first_byte: 2_500_000, total: 5_000_001, ..Stages::default() },
    }
}

/// The value of the line with this name, as it is written.
fn stat(collector: &mut Collector, name: &str) -> Option<String> {
    let mut out = String::new();
    collector.readings().write_stats(&ProcessFacts::default(), name, &mut out);
    out.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned()))
}

fn assert_stats(collector: &mut Collector, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(stat(collector, name).as_deref(), Some(*value), "{name}");
    }
}

fn prometheus(collector: &mut Collector) -> String {
    let mut out = String::new();
    collector.readings().write_prometheus(&ProcessFacts::read(1_795_234_467_000_000_000), &mut out);
    out
}

/// Every event once, so that every family has a sample.
fn everything(emitter: &mut Emitter, collector: &mut Collector) {
    let address = "127.0.0.1:9000".to_owned();
    collector.set_endpoints(vec![EndpointName { id: API, cluster: "api".into(), address }], 3);
    emitter.connection_opened(&ConnectionOpened { listener: EDGE });
    emitter.connection_opened(&ConnectionOpened { listener: EDGE });
    emitter.connection_refused(&ConnectionRefused {
        listener: EDGE,
        cause: Cause::ConnectionsOverflow,
    });
    emitter.connection_closed(&ConnectionClosed {
        listener: EDGE,
        cause: Some(Cause::IdleTimeout),
        lifetime: 3_000_000_000,
        requests: 2,
        undelivered_bytes: 7,
    });
    for _ in 0..4 {
        emitter.exchange_started(&ExchangeStarted { listener: EDGE });
    }
    emitter.exchange_finished(&finished());
    emitter.exchange_finished(&ExchangeFinished {
        status: 504,
        cause: Some(Cause::ResponseHeadTimeout),
        is_reply: true,
        rule: Some((SHOP, 33)),
        ..finished()
    });
    emitter.tunnel_started(&TunnelStarted { listener: EDGE });
    emitter.exchange_finished(&ExchangeFinished {
        status: 101,
        grpc: None,
        is_tunnel: true,
        request_bytes: 7,
        response_bytes: 8,
        ..finished()
    });
    emitter.upstream_connected(&UpstreamConnected { cluster: API, duration: 150_000 });
    emitter.upstream_connected(&UpstreamConnected { cluster: API, duration: 250_000 });
    emitter.upstream_connect_failed(&UpstreamConnectFailed {
        endpoint: API,
        reason: "ECONNREFUSED",
        at: 0,
        cluster: API,
        cause: Cause::ConnectTimeout,
    });
    emitter.upstream_closed(&UpstreamClosed {
        cluster: API,
        cause: Some(Cause::ResponseTruncated),
        lifetime: 1,
        requests: 1,
    });
    emitter.upstream_retried(&UpstreamRetried { cluster: API, cause: Cause::UpstreamClosed });
    emitter.hedge_begun(API);
    emitter.hedge_begun(API);
    emitter.hedge_won(API);
    emitter.upstream_paused(&UpstreamPaused { cluster: API, endpoint: API, until: 7 });
    emitter.listener_gauges(EDGE, &ListenerGauges { buffered_bytes: 131_072 });
    emitter.cluster_gauges(API, &ClusterGauges { idle: 1, pending: 2 });
    emitter.worker_gauges(&WorkerGauges {
        turns: 5,
        events: 9,
        buffers_leased: 1,
        buffers_reused_total: 97,
        buffers_allocated_total: 3,
        buffer_bytes: 65_536,
        connections_downstream: 1,
        connections_upstream: 1,
        idle_upstream: 1,
        pending: 2,
    });
    collector.config_accepted(&ConfigAccepted { version: 3, at: 1_500_000_000, duration: 2_000 });
    collector.config_taken_up(&ConfigTakenUp { taking_up: 1_000 });
    collector.control_turned(&ControlTurned { taken: 5_000_000 });
    collector.config_rejected(&ConfigRejected { errors: 4, at: 2_500_000_000 });
    for (source, failure, at) in [
        (SourceKind::Dns, None, 1_500_000_000),
        (SourceKind::Dns, None, 2_500_000_000),
        (SourceKind::Dns, Some("servfail"), 3_500_000_000),
        (SourceKind::Dns, Some("timeout"), 9_500_000_000),
        (SourceKind::File, Some("invalid"), 4_500_000_000),
    ] {
        let (kind, count) = ("assignment", 1);
        collector.source_answered(&SourceAnswered { source, kind, count, failure, at });
    }
    collector.source_answered(&SourceAnswered {
        source: SourceKind::File,
        kind: "cluster",
        count: 3,
        failure: None,
        at: 4_000_000_000,
    });
    let stale = SourceResources { source: SourceKind::Dns, state: "stale", count: 1 };
    collector.source_resources(vec![stale]);
    collector.state_writes(StateWrites {
        written: 3,
        failed: 2,
        bytes: 400,
        at: 5_000_000_000,
        unusable: 1,
    });
    collector.access_log_write_failed(&AccessLogWriteFailed { lines: 6 });
    let certificate = CertificateInUse {
        listener: "edge".into(),
        cluster: "".into(),
        file: "site.pem".into(),
        expires_at: 1_900_000_000,
    };
    // Two chains of a listener may show the same one.
    collector.certificates_in_use(vec![certificate.clone(), certificate]);
}

#[test]
fn each_event_is_counted_where_it_belongs() {
    let (mut emitters, mut collector) = workers(1);
    everything(&mut emitters[0], &mut collector);
    assert_stats(
        &mut collector,
        &[
            ("strait_downstream_connections_opened_total{listener=\"edge\"}", "2"),
            ("strait_downstream_connections_closed_total{listener=\"edge\"}", "1"),
            ("strait_downstream_connections_active{listener=\"edge\"}", "1"),
            (
                "strait_downstream_connections_refused_total{listener=\"edge\",cause=\"connections_overflow\"}",
                "1",
            ),
            ("strait_downstream_connections_ended_total{cause=\"idle_timeout\"}", "1"),
            ("strait_downstream_connection_lifetime_seconds_sum", "3"),
            ("strait_source_answers_total{source=\"dns\",kind=\"assignment\"}", "2"),
            (
                "strait_source_failures_total{source=\"dns\",kind=\"assignment\",reason=\"servfail\"}",
                "1",
            ),
            (
                "strait_source_failures_total{source=\"file\",kind=\"assignment\",reason=\"invalid\"}",
                "1",
            ),
            ("strait_source_resources{source=\"dns\",state=\"stale\"}", "1"),
            ("strait_state_writes_total", "3"),
            ("strait_state_write_failures_total", "2"),
            ("strait_state_bytes", "400"),
            ("strait_state_last_write_timestamp_seconds", "5"),
            ("strait_source_answers_total{source=\"file\",kind=\"cluster\"}", "3"),
            ("strait_source_last_answer_timestamp_seconds{source=\"dns\"}", "2.5"),
            // An answer that says that it fails is heard, and silence is not.
            ("strait_source_last_heard_timestamp_seconds{source=\"dns\"}", "3.5"),
            ("strait_source_last_heard_timestamp_seconds{source=\"file\"}", "4.5"),
            ("strait_exchanges_started_total{listener=\"edge\"}", "4"),
            ("strait_exchanges_finished_total{listener=\"edge\"}", "3"),
            ("strait_exchanges_active{listener=\"edge\"}", "1"),
            ("strait_exchange_responses_total{listener=\"edge\",class=\"2xx\",code=\"200\"}", "1"),
            ("strait_exchange_responses_total{listener=\"edge\",class=\"5xx\",code=\"504\"}", "1"),
            ("strait_exchange_replies_total{listener=\"edge\"}", "1"),
            ("strait_exchange_causes_total{cause=\"response_head_timeout\"}", "1"),
            ("strait_exchange_causes_total{cause=\"no_route\"}", "0"),
            ("strait_exchange_request_body_bytes_total{listener=\"edge\"}", "20"),
            ("strait_exchange_response_body_bytes_total{listener=\"edge\"}", "2000"),
            ("strait_exchange_stage_seconds_count{stage=\"first_byte\"}", "2"),
            ("strait_exchange_stage_seconds_count{stage=\"connect\"}", "0"),
            ("strait_exchange_stage_seconds_sum{stage=\"total\"}", "0.010000002"),
            ("strait_tunnels_started_total{listener=\"edge\"}", "1"),
            ("strait_tunnels_active{listener=\"edge\"}", "0"),
            ("strait_tunnel_bytes_total{listener=\"edge\",direction=\"up\"}", "7"),
            ("strait_tunnel_bytes_total{listener=\"edge\",direction=\"down\"}", "8"),
            ("strait_tunnel_seconds_count", "1"),
            ("strait_route_exchanges_total{route=\"shop\",rule=\"/1*\"}", "2"),
            ("strait_route_exchanges_total{route=\"shop\",rule=\"/33*\"}", "1"),
            ("strait_upstream_exchanges_total{cluster=\"api\",class=\"2xx\"}", "1"),
            ("strait_upstream_exchanges_total{cluster=\"api\",class=\"none\"}", "1"),
            ("strait_upstream_exchanges_total{cluster=\"api\",class=\"5xx\"}", "0"),
            ("strait_upstream_attempts_total{cluster=\"api\"}", "3"),
            ("strait_upstream_retries_total{cluster=\"api\",cause=\"upstream_closed\"}", "1"),
            ("strait_upstream_hedges_total{cluster=\"api\"}", "2"),
            ("strait_upstream_hedges_won_total{cluster=\"api\"}", "1"),
            ("strait_upstream_exchange_seconds_count{cluster=\"api\"}", "2"),
            ("strait_upstream_connections_active{cluster=\"api\"}", "1"),
            ("strait_upstream_connections_idle{cluster=\"api\"}", "1"),
            ("strait_upstream_pending{cluster=\"api\"}", "2"),
            (
                "strait_tls_certificate_expiry_timestamp_seconds{listener=\"edge\",cluster=\"\",file=\"site.pem\"}",
                "1900000000",
            ),
            ("strait_upstream_connect_seconds_sum{cluster=\"api\"}", "0.0004"),
            (
                "strait_upstream_connect_failures_total{cluster=\"api\",cause=\"connect_timeout\"}",
                "1",
            ),
            ("strait_upstream_connections_ended_total{cause=\"response_truncated\"}", "1"),
            ("strait_worker_turns_total{worker=\"0\"}", "5"),
            ("strait_buffer_leases_total{source=\"reused\"}", "97"),
            ("strait_buffer_reuse_ratio", "0.97"),
            ("strait_config_version", "3"),
            ("strait_config_last_rejected_timestamp_seconds", "2.5"),
            ("strait_config_last_rejected_errors", "4"),
            ("strait_access_log_lines_lost_total", "6"),
        ],
    );
}

#[test]
fn what_is_configured_is_there_before_it_counts_and_the_build_is_named() {
    let (_emitters, collector) = workers(1);
    let mut collector = collector.built_from("0123456789ab");
    assert_stats(
        &mut collector,
        &[
            ("strait_build_info{version=\"0.1.0\",commit=\"0123456789ab\"}", "1"),
            ("strait_downstream_connections_opened_total{listener=\"edge\"}", "0"),
            ("strait_upstream_exchanges_total{cluster=\"api\",class=\"5xx\"}", "0"),
            (
                "strait_upstream_connect_failures_total{cluster=\"api\",cause=\"connect_failed\"}",
                "0",
            ),
            ("strait_upstream_connections_active{cluster=\"api\"}", "0"),
        ],
    );
}

#[test]
fn what_has_no_response_has_failed_unless_it_has_no_cause_or_its_client_is_to_blame() {
    let relayed = || ExchangeFinished { version: 1, status: 0, ..finished() };
    let (mut emitters, mut collector) = workers(1);
    emitters[0].exchange_finished(&relayed());
    let totals = collector.cluster_totals(API);
    assert_eq!((totals.exchanges_total, totals.exchanges_failed_total), (1, 0));
    // The next process knows as much.
    let (mut of_next, mut next) = workers(1);
    next.set_former_totals(FormerTotals::read(&collector.readings().write_totals()));
    assert_eq!(next.cluster_totals(API), totals);

    let (cause, fault) = (Some(Cause::ConnectFailed), Fault::Upstream);
    of_next[0].exchange_finished(&ExchangeFinished { cause, fault, ..relayed() });
    of_next[0].exchange_finished(&ExchangeFinished { status: 500, ..finished() });
    of_next[0].exchange_finished(&ExchangeFinished { cause, fault, ..finished() });
    let (cause, fault) = (Some(Cause::DownstreamClosed), Fault::Downstream);
    of_next[0].exchange_finished(&ExchangeFinished { cause, fault, ..relayed() });
    let totals = next.cluster_totals(API);
    assert_eq!((totals.exchanges_total, totals.exchanges_failed_total), (5, 2));
    let (_, mut last) = workers(1);
    last.set_former_totals(FormerTotals::read(&next.readings().write_totals()));
    assert_eq!(last.cluster_totals(API), totals);
    // An older version names no failures.
    let older = String::from_utf8(next.readings().write_totals()).unwrap();
    let older = older.lines().filter(|line| !line.contains("_exchanges_failed_total"));
    let older: String = older.map(|line| format!("{line}\n")).collect();
    last.set_former_totals(FormerTotals::read(older.as_bytes()));
    assert_eq!(last.cluster_totals(API).exchanges_failed_total, 1);
}

#[test]
fn calls_of_grpc_are_counted_for_their_listener_and_their_cluster() {
    let (mut emitters, mut collector) = workers(1);
    for (status, count) in [(Some(0), 2), (Some(14), 1), (None, 1)] {
        let grpc = Some(GrpcCall { status, ..GrpcCall::default() });
        for _ in 0..count {
            emitters[0].exchange_finished(&ExchangeFinished { grpc, ..finished() });
        }
    }
    assert_stats(
        &mut collector,
        &[
            ("strait_grpc_calls_total{listener=\"edge\",status=\"OK\"}", "2"),
            ("strait_upstream_grpc_calls_total{cluster=\"api\",status=\"OK\"}", "2"),
            ("strait_upstream_grpc_calls_total{cluster=\"api\",status=\"UNAVAILABLE\"}", "1"),
            ("strait_upstream_grpc_calls_total{cluster=\"api\",status=\"none\"}", "1"),
        ],
    );
}

#[test]
fn workers_on_their_own_threads_add_up() {
    const EACH: u64 = 10_000;
    let (emitters, mut collector) = workers(4);
    std::thread::scope(|scope| {
        for mut emitter in emitters {
            scope.spawn(move || {
                for _ in 0..EACH {
                    emitter.exchange_started(&ExchangeStarted { listener: EDGE });
                    emitter.exchange_finished(&finished());
                }
            });
        }
        // Reading meanwhile must neither disturb the writers nor see a gauge below zero.
        for _ in 0..50 {
            let active =
                stat(&mut collector, "strait_exchanges_active{listener=\"edge\"}").unwrap();
            assert!(active.parse::<u64>().unwrap() <= 4 * EACH, "{active}");
        }
    });
    let all = (4 * EACH).to_string();
    assert_stats(
        &mut collector,
        &[
            ("strait_exchanges_finished_total{listener=\"edge\"}", &all),
            ("strait_exchanges_active{listener=\"edge\"}", "0"),
            ("strait_exchange_stage_seconds_count{stage=\"total\"}", &all),
            ("strait_upstream_exchanges_total{cluster=\"api\",class=\"2xx\"}", &all),
            ("strait_route_exchanges_total{route=\"shop\",rule=\"/1*\"}", &all),
        ],
    );
}

#[test]
fn a_gauge_does_not_fall_below_zero_when_its_opening_was_not_counted() {
    let (mut emitters, mut collector) = workers(2);
    emitters[0].connection_closed(&ConnectionClosed {
        listener: EDGE,
        cause: None,
        lifetime: 1,
        requests: 0,
        undelivered_bytes: 0,
    });
    assert_stats(
        &mut collector,
        &[("strait_downstream_connections_active{listener=\"edge\"}", "0")],
    );
    assert_eq!(
        collector.listener_totals(EDGE),
        ListenerTotals::default(),
        "for the admin's pages too"
    );
}

#[test]
fn what_one_worker_or_process_began_may_end_in_another() {
    let open = |emitter: &mut Emitter| {
        emitter.connection_opened(&ConnectionOpened { listener: EDGE });
        emitter.exchange_started(&ExchangeStarted { listener: EDGE });
        emitter.upstream_connected(&UpstreamConnected { cluster: API, duration: 1 });
    };
    let close = |emitter: &mut Emitter| {
        emitter.exchange_finished(&finished());
        emitter.upstream_closed(&UpstreamClosed {
            cluster: API,
            cause: None,
            lifetime: 1,
            requests: 1,
        });
        emitter.connection_closed(&ConnectionClosed {
            listener: EDGE,
            cause: None,
            lifetime: 1,
            requests: 1,
            undelivered_bytes: 0,
        });
    };
    let (mut emitters, mut collector) = workers(2);
    open(&mut emitters[0]);
    open(&mut emitters[0]);
    close(&mut emitters[1]);
    let listener = ListenerTotals {
        connections_active: 1,
        connections_total: 2,
        exchanges_active: 1,
        exchanges_total: 1,
    };
    assert_eq!(collector.listener_totals(EDGE), listener);
    let cluster = collector.cluster_totals(API);
    assert_eq!((cluster.connections_active, cluster.connections_total), (1, 2));

    // The other one ends in the next process.
    let totals = collector.readings().write_totals();
    let (mut emitters, mut collector) = workers(1);
    collector.set_former_totals(FormerTotals::read(&totals));
    assert_eq!(collector.listener_totals(EDGE), listener);
    assert_eq!(collector.cluster_totals(API), cluster);
    close(&mut emitters[0]);
    let listener = collector.listener_totals(EDGE);
    assert_eq!((listener.connections_active, listener.exchanges_active), (0, 0));
    assert_eq!((listener.connections_total, listener.exchanges_total), (2, 2));
    let cluster = collector.cluster_totals(API);
    assert_eq!((cluster.connections_active, cluster.connections_total), (0, 2));
    assert_eq!((cluster.exchanges_total, cluster.exchanges_timed_total), (2, 2));
}

/// A connection on which an exchange has ended.
fn served(emitter: &mut Emitter) {
    emitter.connection_opened(&ConnectionOpened { listener: EDGE });
    emitter.exchange_started(&ExchangeStarted { listener: EDGE });
    emitter.exchange_finished(&finished());
}

#[test]
fn a_process_goes_on_with_what_the_one_had_counted_that_took_its_place_and_ended() {
    let (mut emitters, mut collector) = workers(1);
    served(&mut emitters[0]);
    let totals = collector.readings_to_give().write_totals();
    let (mut of_next, mut next) = workers(1);
    next.set_former_totals(FormerTotals::read(&totals));
    (0..2).for_each(|_| served(&mut of_next[0]));
    let shown = next.listener_totals(EDGE);
    assert_eq!((shown.connections_active, shown.exchanges_total), (3, 3));
    let reported = next.readings().write_own_totals();

    // It is stopped: this one shows what it counts, and gives that to no other process.
    collector.stand_in_for(FormerTotals::read(&reported));
    assert_eq!(collector.listener_totals(EDGE), shown);
    let given = String::from_utf8(collector.readings_to_give().write_totals()).unwrap();
    assert!(given.contains("strait_exchanges_finished_total\tedge\tn 1\n"), "{given}");
    // It runs again.
    collector.stand_in_for(FormerTotals::default());
    assert_eq!(collector.listener_totals(EDGE).exchanges_total, 1);

    // It has ended, and its connections with it.
    collector.stand_in_for(FormerTotals::read(&reported));
    collector.go_on_from(FormerTotals::read(&reported));
    let after = ListenerTotals { connections_active: 1, ..shown };
    assert_eq!(collector.listener_totals(EDGE), after);
    served(&mut emitters[0]);
    let totals = collector.readings_to_give().write_totals();
    let (_, mut third) = workers(1);
    third.set_former_totals(FormerTotals::read(&totals));
    let (all, own) = (third.listener_totals(EDGE), third.readings().write_own_totals());
    assert_eq!((all.connections_active, all.exchanges_total), (2, 4));
    assert!(!String::from_utf8(own).unwrap().contains("strait_exchanges_finished_total"));
}

#[test]
fn each_process_that_gave_a_place_back_counts_on_beside_the_others() {
    let (mut emitters, mut collector) = workers(1);
    served(&mut emitters[0]);
    let mut others = [workers(1), workers(1)];
    let mut report = |collector: &mut Collector, place: usize, handover: u64| {
        let (emitters, of_other) = &mut others[place];
        served(&mut emitters[0]);
        let own = of_other.readings().write_own_totals();
        collector.set_returned_totals(handover, FormerTotals::read(&own));
        collector.listener_totals(EDGE).exchanges_total
    };
    assert_eq!(report(&mut collector, 0, 3), 2);
    assert_eq!(report(&mut collector, 1, 5), 3);
    assert_eq!(report(&mut collector, 0, 3), 4, "the one before still drains");
    assert_eq!(report(&mut collector, 1, 5), 5);
    collector.on_returned_ended(3);
    assert_eq!(report(&mut collector, 1, 5), 6);
    collector.on_returned_ended(5);
    assert_eq!(collector.listener_totals(EDGE).exchanges_total, 6);
}

#[test]
fn what_a_process_counts_itself_has_that_of_those_in_it_that_took_its_place() {
    let (mut emitters, mut collector) = workers(1);
    let (mut before, mut collector_before) = workers(1);
    served(&mut before[0]);
    collector.set_former_totals(FormerTotals::read(&collector_before.readings().write_totals()));
    served(&mut emitters[0]);
    let (mut behind, mut collector_behind) = workers(1);
    (0..5).for_each(|_| served(&mut behind[0]));
    collector.go_on_from(FormerTotals::read(&collector_behind.readings().write_own_totals()));
    assert_eq!(collector.listener_totals(EDGE).exchanges_total, 7);
    let own = String::from_utf8(collector.readings().write_own_totals()).unwrap();
    assert!(own.contains("strait_exchanges_finished_total\tedge\tn 6\n"), "{own}");
}

#[test]
fn a_process_shows_no_more_of_its_loops_than_it_has_given() {
    let (mut emitters, mut collector) = workers(1);
    let busy = |collector: &mut Collector| {
        let values =
            ["strait_worker_busy_seconds_total{worker=\"0\"}", "strait_control_turn_seconds_count"];
        values.map(|name| stat(collector, name).unwrap())
    };
    let mut work = |collector: &Collector, seconds: u64| {
        emitters[0].worker_busy(seconds * 1_000_000_000);
        collector.control_turned(&ControlTurned { taken: 1 });
    };
    work(&collector, 1);
    let given = collector.readings_to_give().write_totals();
    work(&collector, 2);
    assert_eq!(busy(&mut collector), ["1", "1"]);
    let (_emitters, mut next) = workers(1);
    next.set_former_totals(FormerTotals::read(&given));
    assert_eq!(busy(&mut next), ["1", "1"], "a scraper that asks this one next sees no less");
    collector.keep_place();
    assert_eq!(busy(&mut collector), ["2", "2"]);
}

#[test]
fn a_listener_that_takes_the_place_of_another_of_its_name_goes_on_with_its_counts() {
    let (mut emitters, mut collector) = workers(1);
    let emitter = &mut emitters[0];
    emitter.exchange_finished(&finished());
    let next = LabelId { slot: EDGE.slot + 7, generation: 0 };
    let named = |id, name: &str| {
        let mut names = Names::default();
        names.insert_listener(id, name.into());
        Arc::new(names)
    };
    collector.set_names(named(next, "edge"));
    // What drains is counted where it began.
    emitter.exchange_finished(&finished());
    emitter.exchange_finished(&ExchangeFinished { listener: next, ..finished() });
    assert_eq!(collector.listener_totals(next).exchanges_total, 3);
    let finished_by = "strait_exchanges_finished_total{listener=\"edge\"}";
    assert_stats(&mut collector, &[(finished_by, "3")]);
    // They end with the name.
    let other = LabelId { generation: 1, ..next };
    collector.set_names(named(other, "rim"));
    collector.set_names(named(next, "edge"));
    assert_eq!(collector.listener_totals(next).exchanges_total, 0);
}

#[test]
fn what_is_no_longer_named_is_no_longer_reported_and_a_new_use_of_its_slot_starts_at_zero() {
    let (mut emitters, mut collector) = workers(1);
    let emitter = &mut emitters[0];
    emitter.exchange_finished(&finished());
    assert!(prometheus(&mut collector).contains("cluster=\"api\""));

    let mut without = names();
    let newer = LabelId { generation: 1, ..API };
    without.insert_cluster(newer, "web".into());
    collector.set_names(Arc::new(without));
    emitter.exchange_finished(&ExchangeFinished { cluster: Some(newer), ..finished() });
    emitter.exchange_finished(&finished());
    let text = prometheus(&mut collector);
    assert!(!text.contains("cluster=\"api\""), "{text}");
    assert_stats(
        &mut collector,
        &[("strait_upstream_exchanges_total{cluster=\"web\",class=\"2xx\"}", "1")],
    );
    assert_eq!(collector.cluster_totals(API), ClusterTotals::default());
    assert_eq!(collector.cluster_totals(newer).exchanges_total, 1);
}

#[test]
fn what_former_processes_counted_goes_along_where_it_is_not_0_and_ends_with_its_name() {
    let (mut emitters, mut collector) = workers(1);
    emitters[0].exchange_finished(&finished());
    let totals = collector.readings().write_totals();
    let text = String::from_utf8(totals.clone()).unwrap();
    assert!(text.contains("strait_upstream_exchanges_total\tapi\t2xx\tn 1\n"), "{text}");
    assert!(!text.contains("\tn 0\n") && !text.contains("\tl 0 0\n"), "{text}");

    let name = "strait_upstream_exchanges_total{cluster=\"api\",class=\"2xx\"}";
    let mut renamed = names();
    renamed.insert_cluster(API, "web".into());
    let renamed = Arc::new(renamed);
    // It went in the new process; or while that one was not there.
    let (_, mut next) = workers(1);
    next.set_former_totals(FormerTotals::read(&totals));
    assert_eq!(stat(&mut next, name).as_deref(), Some("1"));
    let mut without = names();
    without.remove_cluster(API);
    next.set_names(Arc::new(without));
    assert_eq!(stat(&mut next, name), None);
    let (_, mut next) = workers(1);
    next.set_names(Arc::clone(&renamed));
    next.set_former_totals(FormerTotals::read(&totals));
    assert_eq!(stat(&mut next, name).as_deref(), Some("1"), "its process may still count");
    next.lose_former();
    assert_eq!(stat(&mut next, name), None);
    assert!(!String::from_utf8(next.readings().write_totals()).unwrap().contains("\tapi\t"));
}

#[test]
fn rules_beyond_the_65535th_are_counted_as_themselves() {
    let (mut emitters, mut collector) = workers(1);
    let mut names = names();
    let rules = (0..65_540).map(|slot| (slot, format!("/{slot}")));
    names.insert_route(SHOP, RouteNames::new("shop".into(), rules, []));
    collector.set_names(Arc::new(names));
    for rule in [65_535, 65_536, 65_539, 65_539] {
        emitters[0].exchange_finished(&ExchangeFinished { rule: Some((SHOP, rule)), ..finished() });
    }
    let mut out = String::new();
    collector.readings().write_stats(
        &ProcessFacts::default(),
        "strait_route_exchanges_total",
        &mut out,
    );
    let line = |line: &str| line.split_once("rule=").unwrap().1.replace(['"', '}'], "");
    let counted: Vec<String> = out.lines().map(line).collect();
    assert_eq!(counted, ["/65535 1", "/65536 1", "/65539 2"]);
}

/// Names with these rules of the shop, each with its slot, and with these weighted clusters: slot, slot of the rule, name.
fn with_rules(rules: &[(u32, &str)], weighted: &[(u32, u32, &str)]) -> Arc<Names> {
    let mut names = names();
    let rules = rules.iter().map(|(slot, text)| (*slot, (*text).to_owned()));
    let weighted = weighted.iter().map(|&(slot, rule, cluster)| WeightedName {
        slot,
        rule,
        cluster: cluster.into(),
    });
    names.insert_route(SHOP, RouteNames::new("shop".into(), rules, weighted));
    Arc::new(names)
}

/// Counts exchanges of the rule in this slot and, if there is one, of the weighted cluster in that slot.
fn take(emitter: &mut Emitter, rule: u32, weighted: Option<u32>, times: usize) {
    for _ in 0..times {
        let event = ExchangeFinished { rule: Some((SHOP, rule)), weighted, ..finished() };
        emitter.exchange_finished(&event);
    }
}

/// The series of rules of the shop and of their weighted clusters that are not 0: what rules are called, clusters, counts.
fn taken(collector: &mut Collector) -> Vec<String> {
    let mut out = String::new();
    collector.readings().write_stats(&ProcessFacts::default(), "strait_route_", &mut out);
    let of_shop = out.lines().filter_map(|line| line.split_once("{route=\"shop\",rule="));
    let series = of_shop.map(|(_, rest)| rest.replace(['"', '}'], ""));
    series.filter(|line| !line.ends_with(" 0")).collect()
}

#[test]
fn what_a_rule_has_taken_is_that_of_its_slot_wherever_it_stands() {
    let (mut emitters, mut collector) = workers(2);
    collector.set_names(with_rules(
        &[(0, "/old*"), (1, "/a"), (2, "/twice"), (3, "/twice"), (4, "/")],
        &[],
    ));
    for (rule, times) in [(0, 5), (1, 3), (2, 2), (3, 4)] {
        take(&mut emitters[0], rule, None, times);
        take(&mut emitters[1], rule, None, times);
    }
    assert_eq!(taken(&mut collector), ["/old* 10", "/a 6", "/twice 4", "/twice (2) 8"]);

    let moved = [(5, "/new"), (1, "/a"), (2, "/twice"), (4, "/"), (3, "/twice")];
    collector.set_names(with_rules(&moved, &[]));
    assert_eq!(taken(&mut collector), ["/a 6", "/twice 4", "/twice (2) 8"]);
    // One of these began before the change.
    take(&mut emitters[0], 1, None, 1);
    take(&mut emitters[1], 5, None, 2);
    take(&mut emitters[1], 3, None, 1);
    let counted = ["/new 2", "/a 7", "/twice 4", "/twice (2) 9"];
    assert_eq!(taken(&mut collector), counted);
    assert_eq!(collector.route_totals(SHOP), [10, 7, 4, 9, 0, 2]);
    collector.set_names(with_rules(&moved, &[]));
    assert_eq!(taken(&mut collector), counted);
    // Another rule with the same text comes in front: the label is its, and the count goes with the slot.
    collector.set_names(with_rules(&[(6, "/a"), (1, "/a")], &[]));
    assert_eq!(taken(&mut collector), ["/a (2) 7"]);
}

#[test]
fn a_slot_that_gets_another_rule_begins_at_zero() {
    let (mut emitters, mut collector) = workers(2);
    collector.set_names(with_rules(&[(0, "/a"), (1, "/b")], &[(2, 1, "api")]));
    take(&mut emitters[0], 0, None, 3);
    take(&mut emitters[1], 1, Some(2), 4);
    collector.set_names(with_rules(&[(0, "/a")], &[]));
    // This one ends after its rule went.
    take(&mut emitters[0], 1, Some(2), 1);
    assert_eq!(taken(&mut collector), ["/a 3"]);

    collector.set_names(with_rules(&[(2, "/c"), (0, "/a")], &[(1, 2, "next")]));
    assert_eq!(taken(&mut collector), ["/a 3"]);
    take(&mut emitters[1], 2, Some(1), 2);
    assert_eq!(taken(&mut collector), ["/c 2", "/a 3", "/c,cluster=next 2"]);
    // A change elsewhere leaves it; the same rule again, after it was gone, begins anew.
    let fewer = with_rules(&[(2, "/c"), (3, "/d")], &[]);
    collector.set_names(Arc::clone(&fewer));
    assert_eq!(taken(&mut collector), ["/c 2"]);
    collector.set_names(with_rules(&[(2, "/c"), (0, "/a"), (1, "/b")], &[]));
    assert_eq!(taken(&mut collector), ["/c 2"]);
    take(&mut emitters[0], 0, None, 1);
    assert_eq!(taken(&mut collector), ["/c 2", "/a 1"]);
    // A table that goes and comes is another one.
    let mut without = names();
    without.remove_route(SHOP);
    collector.set_names(Arc::new(without));
    assert!(taken(&mut collector).is_empty());
}

#[test]
fn what_rules_of_a_former_process_have_taken_goes_on_by_what_they_are_called() {
    let (mut emitters, mut collector) = workers(1);
    let former = "strait_route_exchanges_total\tshop\t/a\tn 5\n\
                  strait_route_exchanges_total\tshop\t/twice\tn 7\n\
                  strait_route_exchanges_total\tshop\t/twice (2)\tn 8\n\
                  strait_route_exchanges_total\tshop\t/gone\tn 9\n\
                  strait_route_exchanges_total\tother\t/a\tn 1\n\
                  strait_route_weighted_exchanges_total\tshop\t/a\tapi\tn 3\n\
                  strait_route_weighted_exchanges_total\tshop\t/a\tgone\tn 4\n\
                  strait_route_weighted_exchanges_total\tshop\t/a\tnext\tn 2\n";
    // In another order here; the same again later, with the same result.
    let rules = [(0, "/new"), (1, "/twice"), (2, "/a"), (3, "/twice")];
    let clusters = [(4, 2, "api"), (5, 2, "next")];
    collector.set_names(with_rules(&rules, &clusters));
    for _ in 0..2 {
        collector.set_former_totals(FormerTotals::read(former.as_bytes()));
        assert_eq!(collector.route_totals(SHOP), [0, 7, 5, 8, 3, 2]);
    }
    let counted = ["/twice 7", "/a 5", "/twice (2) 8", "/a,cluster=api 3", "/a,cluster=next 2"];
    assert_eq!(taken(&mut collector), counted);
    take(&mut emitters[0], 2, None, 1);
    assert_eq!(collector.route_totals(SHOP), [0, 7, 6, 8, 3, 2]);

    // A reload that gives a rule another label leaves it what it had, and what is gone does not come again.
    collector.set_names(with_rules(&[(6, "/a"), (2, "/a"), (3, "/twice")], &[(5, 2, "next")]));
    let counted = ["/a (2) 6", "/twice 8", "/a (2),cluster=next 2"];
    assert_eq!(taken(&mut collector), counted);
    collector.set_names(with_rules(&rules, &clusters));
    let counted = ["/a 6", "/twice (2) 8", "/a,cluster=next 2"];
    assert_eq!(taken(&mut collector), counted);

    // The next process has what this one wrote.
    let carried = collector.readings().write_totals();
    let (_, mut next) = workers(1);
    next.set_names(with_rules(&[(0, "/twice"), (1, "/a"), (2, "/twice")], &[(3, 1, "next")]));
    next.set_former_totals(FormerTotals::read(&carried));
    assert_eq!(taken(&mut next), ["/a 6", "/twice (2) 8", "/a,cluster=next 2"]);
}

#[test]
fn totals_of_a_version_that_named_rules_by_their_places_are_taken() {
    let (_, mut collector) = workers(1);
    let former = "strait_route_exchanges_total\tshop\t0 /a\tn 5\n\
                  strait_route_exchanges_total\tshop\t2 /twice\tn 8\n\
                  strait_route_exchanges_total\tshop\t7 mine\tn 2\n\
                  strait_route_exchanges_total\tshop\t3 /gone\tn 9\n\
                  strait_route_exchanges_total\tshop\t4 4 items\tn 3\n\
                  strait_route_weighted_exchanges_total\tshop\t0 /a\tapi\tn 1\n";
    let rules = [(0, "/a"), (1, "/twice"), (2, "/twice"), (3, "mine"), (4, "4 items")];
    collector.set_names(with_rules(&rules, &[(5, 0, "api")]));
    collector.set_former_totals(FormerTotals::read(former.as_bytes()));
    let counted = ["/a 5", "/twice (2) 8", "mine 2", "4 items 3", "/a,cluster=api 1"];
    assert_eq!(taken(&mut collector), counted);
}

#[test]
fn what_a_weighted_cluster_got_goes_with_its_rule() {
    let (mut emitters, mut collector) = workers(2);
    collector.set_names(with_rules(&[(0, "/a"), (1, "/b")], &[(2, 1, "api"), (3, 1, "next")]));
    take(&mut emitters[0], 1, Some(2), 1);
    take(&mut emitters[1], 1, Some(2), 1);
    take(&mut emitters[1], 1, Some(3), 1);
    assert_eq!(collector.route_totals(SHOP), [0, 3, 2, 1]);
    assert_eq!(taken(&mut collector), ["/b 3", "/b,cluster=api 2", "/b,cluster=next 1"]);
    let name = "strait_route_weighted_exchanges_total{route=\"shop\",rule=\"/b\",cluster=\"api\"}";
    assert_eq!(stat(&mut collector, name).as_deref(), Some("2"));

    // A rule goes, and a cluster comes.
    let clusters = [(3, 1, "next"), (4, 1, "new"), (2, 1, "api")];
    collector.set_names(with_rules(&[(1, "/b")], &clusters));
    take(&mut emitters[0], 1, Some(4), 1);
    let counted = ["/b 4", "/b,cluster=next 1", "/b,cluster=new 1", "/b,cluster=api 2"];
    assert_eq!(taken(&mut collector), counted);

    // A process that takes this one's place goes on with them.
    let carried = collector.readings().write_totals();
    let (_, mut next) = workers(1);
    next.set_names(with_rules(&[(0, "/b")], &[(1, 0, "next"), (2, 0, "new"), (3, 0, "api")]));
    next.set_former_totals(FormerTotals::read(&carried));
    assert_eq!(taken(&mut next), counted);
    assert_eq!(next.route_totals(SHOP), [4, 1, 1, 2]);
}

#[test]
fn more_clusters_than_the_queue_holds_are_all_reported_in_the_end() {
    const CLUSTERS: u32 = 2_000;
    let (mut emitters, mut collector) = workers(1);
    let mut many = names();
    for slot in 0..CLUSTERS {
        many.insert_cluster(LabelId { slot, generation: 0 }, format!("c{slot}").into());
    }
    collector.set_names(Arc::new(many));
    for slot in 0..CLUSTERS {
        let cluster = Some(LabelId { slot, generation: 0 });
        emitters[0].exchange_finished(&ExchangeFinished { cluster, ..finished() });
    }
    for _ in 0..CLUSTERS / 100 {
        collector.poll();
        emitters[0].worker_gauges(&WorkerGauges::default());
    }
    let text = prometheus(&mut collector);
    let found = text.matches("strait_upstream_attempts_total{").count();
    assert_eq!(found, usize::try_from(CLUSTERS).unwrap());
}

#[test]
fn histogram_counts_at_their_bounds_are_exact() {
    let (mut emitters, mut collector) = workers(1);
    emitters[0].exchange_finished(&finished());
    let text = prometheus(&mut collector);
    for line in [
        "strait_exchange_stage_seconds_bucket{stage=\"first_byte\",le=\"0.001\"} 0",
        "strait_exchange_stage_seconds_bucket{stage=\"first_byte\",le=\"0.0025\"} 1",
        "strait_exchange_stage_seconds_bucket{stage=\"total\",le=\"0.005\"} 0",
        "strait_exchange_stage_seconds_bucket{stage=\"total\",le=\"0.01\"} 1",
        "strait_exchange_stage_seconds_bucket{stage=\"total\",le=\"+Inf\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn a_filter_leaves_only_what_it_names() {
    let (mut emitters, mut collector) = workers(1);
    everything(&mut emitters[0], &mut collector);
    let mut out = String::new();
    collector.readings().write_stats(
        &ProcessFacts::default(),
        "exchange*stage=\"total\"",
        &mut out,
    );
    let names: Vec<_> = out.lines().map(|line| line.split('{').next().unwrap()).collect();
    assert_eq!(
        names,
        ["count", "sum", "p50", "p90", "p99", "p999"]
            .map(|suffix| format!("strait_exchange_stage_seconds_{suffix}"))
    );
    out.clear();
    collector.readings().write_stats(&ProcessFacts::default(), "no such thing", &mut out);
    assert_eq!(out, "");
}

#[test]
fn a_name_in_the_configuration_cannot_break_the_text() {
    let (mut emitters, mut collector) = workers(1);
    let mut odd = names();
    odd.insert_cluster(API, "a\"} 1\nb\\".into());
    collector.set_names(Arc::new(odd));
    emitters[0].exchange_finished(&finished());
    let text = prometheus(&mut collector);
    assert!(text.contains("strait_upstream_attempts_total{cluster=\"a\\\"} 1\\nb\\\\\"} 1\n"));
}

#[test]
fn promtool_accepts_the_metrics() {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!is_ci, "promtool is missing: apt-get install prometheus");
        // Not `println!`, which is kept from view where a test passes.
        let line = b"skipped: promtool is missing (apt-get install prometheus)\n";
        std::io::stderr().write_all(line).unwrap();
        return;
    };
    let (mut emitters, mut collector) = workers(2);
    everything(&mut emitters[0], &mut collector);
    let text = prometheus(&mut collector);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn an_endpoint_counts_until_it_is_gone_and_another_begins_anew_in_its_slot() {
    let (mut emitters, mut collector) = workers(2);
    let endpoint = |generation| LabelId { slot: 5, generation };
    for emitter in &mut emitters {
        let endpoint_id = Some(endpoint(0));
        emitter.exchange_finished(&ExchangeFinished { endpoint_id, ..finished() });
    }
    assert_eq!(collector.endpoint_totals(endpoint(0)).exchanges_total, 2);
    assert_eq!(collector.endpoint_totals(endpoint(1)).exchanges_total, 0);
    let endpoint_id = Some(endpoint(1));
    emitters[0].exchange_finished(&ExchangeFinished { endpoint_id, ..finished() });
    assert_eq!(collector.endpoint_totals(endpoint(1)).exchanges_total, 1);
    emitters[1].exchange_finished(&ExchangeFinished { endpoint_id, ..finished() });
    assert_eq!(collector.endpoint_totals(endpoint(0)).exchanges_total, 0);
    assert_eq!(collector.endpoint_totals(endpoint(1)).exchanges_total, 2);
    assert_eq!([0, 1].map(|it| collector.endpoint_exchanges(endpoint(it))), [0, 2]);
}

#[test]
fn endpoints_are_reported_as_far_as_they_are_named() {
    let (mut emitters, mut collector) = workers(2);
    for emitter in &mut emitters {
        everything(emitter, &mut collector);
        emitter.exchange_finished(&ExchangeFinished { endpoint_id: Some(API), ..finished() });
    }
    let labels = "{cluster=\"api\",endpoint=\"127.0.0.1:9000\"";
    assert_stats(
        &mut collector,
        &[
            (&format!("strait_endpoint_exchanges_total{labels}}}"), "2"),
            (&format!("strait_endpoint_exchanges_failed_total{labels}}}"), "0"),
            (
                &format!(
                    "strait_endpoint_connect_failures_total{labels},reason=\"ECONNREFUSED\"}}"
                ),
                "2",
            ),
            ("strait_endpoints_left_out", "3"),
        ],
    );
    collector.set_endpoints(Vec::new(), 4);
    assert!(!prometheus(&mut collector).contains("strait_endpoint_exchanges_total{"));
    assert_stats(&mut collector, &[("strait_endpoints_left_out", "4")]);
}

#[test]
fn what_is_configured_has_metrics_before_it_has_traffic() {
    let named_families = |page: &str| -> BTreeSet<String> {
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
    };
    let (_emitters, mut collector) = workers(1);
    let certificate = CertificateInUse {
        listener: "edge".into(),
        cluster: "".into(),
        file: "site.pem".into(),
        expires_at: 1_900_000_000,
    };
    collector.certificates_in_use(vec![certificate]);
    let address = "127.0.0.1:9000".to_owned();
    collector.set_endpoints(vec![EndpointName { id: API, cluster: "api".into(), address }], 0);
    let (mut emitters, mut busy) = workers(1);
    for collector in [&mut collector, &mut busy] {
        let cluster = "api".into();
        let health = HealthOfCluster {
            cluster,
            unhealthy: 3,
            degraded: 1,
            ejected: 2,
            is_panicking: true,
            is_warming: true,
        };
        collector.health_of_clusters(vec![health]);
        let cluster = "web".into();
        let left = BreakersOfCluster {
            cluster,
            priority: "default",
            connections: 7,
            pending: 0,
            requests: Some(5),
            retries: 3,
            concurrency: Some(ConcurrencyOfCluster { limit: 12, min_rtt: None }),
        };
        collector.breakers_of_clusters(vec![left]);
    }
    let kind = "errors_5xx";
    busy.ejection_counted(EjectionCounted { cluster: "api".into(), kind, is_denied: false });
    busy.check_counted(CheckCounted { cluster: "api".into(), has_passed: Some(true) });
    let page = prometheus(&mut collector);
    everything(&mut emitters[0], &mut busy);
    let (fresh, all) = (named_families(&page), named_families(&prometheus(&mut busy)));
    assert_eq!(fresh, all, "a family without a sample");
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for (name, kind) in families.map(|line| line.split_once(' ').unwrap()) {
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        assert!(fresh.contains(&sample), "{name}");
        assert!(name.starts_with("strait_") || name.starts_with("process_"), "{name}");
    }
    for sample in [
        "strait_exchange_responses_total{listener=\"edge\",class=\"5xx\",code=\"other\"} 0",
        "strait_grpc_calls_total{listener=\"edge\",status=\"OK\"} 0",
        "strait_grpc_messages_total{listener=\"edge\",direction=\"down\"} 0",
        "strait_tls_handshakes_failed_total{listener=\"edge\",reason=\"tls_timeout\"} 0",
        "strait_tls_signature_batches_total{size=\"8\"} 0",
        "strait_route_exchanges_total{route=\"shop\",rule=\"/39*\"} 0",
        "strait_upstream_first_byte_seconds_bucket{cluster=\"api\",le=\"+Inf\"} 0",
        "strait_upstream_grpc_calls_total{cluster=\"api\",status=\"OK\"} 0",
        "strait_upstream_connect_failure_reasons_total{cluster=\"api\",reason=\"ECONNREFUSED\"} 0",
        "strait_endpoint_connect_failures_total{cluster=\"api\",endpoint=\"127.0.0.1:9000\",reason=\"timeout\"} 0",
        "strait_upstream_checks_total{cluster=\"api\",result=\"failed\"} 0",
        "strait_upstream_endpoints_unhealthy{cluster=\"api\"} 3",
        "strait_upstream_endpoints_ejected{cluster=\"api\"} 2",
        "strait_upstream_ejections_total{cluster=\"api\",reason=\"success_rate\"} 0",
        "strait_upstream_ejections_denied_total{cluster=\"api\",reason=\"errors_5xx\"} 0",
        "strait_upstream_panic{cluster=\"api\"} 1",
        "strait_upstream_warming{cluster=\"api\"} 1",
        "strait_upstream_concurrency_limit{cluster=\"web\"} 12",
        "strait_upstream_min_rtt_seconds{cluster=\"web\"} 0",
        "strait_source_failures_total{source=\"dns\",kind=\"assignment\",reason=\"servfail\"} 0",
        "strait_source_resources{source=\"file\",state=\"refused\"} 0",
        "strait_source_last_answer_timestamp_seconds{source=\"file\"} 0",
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample}");
    }
}

#[test]
fn the_page_has_every_value_of_a_label_that_does_not_come_from_the_configuration() {
    let page = telemetry::metrics_reference();
    let (_, tables) = page.split_once("## Values of labels").unwrap();
    let (values, tables) = tables.split_once("## Reasons").unwrap();
    let (reasons, causes) = tables.split_once("## Causes").unwrap();
    let (mut emitters, mut collector) = workers(1);
    everything(&mut emitters[0], &mut collector);
    let mut compared = 0;
    for line in prometheus(&mut collector).lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = line.rsplit_once("} ").and_then(|(it, _)| it.split_once('{'))
        else {
            continue;
        };
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        for (label, value) in labels.split("\",").filter_map(|it| it.split_once("=\"")) {
            let value = value.trim_end_matches('"');
            let row = format!("| `{base}` | `{label}` | ");
            let Some(known) = values.lines().find_map(|line| line.strip_prefix(&*row)) else {
                continue;
            };
            let listed = match known {
                known if known.contains("#causes") => causes,
                known if known.contains("#reasons") => reasons,
                known => known,
            };
            assert!(listed.contains(&format!("`{value}`")), "{base} {label} {value}: {known}");
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn no_sample_stands_twice() {
    let (mut emitters, mut collector) = workers(2);
    everything(&mut emitters[0], &mut collector);
    let mut seen = BTreeSet::new();
    for line in prometheus(&mut collector).lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(sample.to_owned()), "{sample}");
    }
}

#[test]
fn many_clusters_and_rules_are_reported_as_they_are_used() {
    let (mut emitters, mut collector) = workers(1);
    let mut many = names();
    for slot in 2..102 {
        many.insert_cluster(LabelId { slot, generation: 0 }, format!("c{slot}").into());
    }
    let rules = (0..1_001).map(|rule| (rule, format!("/{rule}*")));
    many.insert_route(SHOP, RouteNames::new("shop".into(), rules, []));
    collector.set_names(Arc::new(many));
    let count = |page: &str, of: &str| page.matches(of).count();
    let page = prometheus(&mut collector);
    assert_eq!(count(&page, "\nstrait_upstream_exchange_seconds_count{"), 0);
    assert_eq!(count(&page, "\nstrait_route_exchanges_total{"), 0);
    assert_eq!(count(&page, "\nstrait_upstream_attempts_total{"), 101);
    emitters[0].exchange_finished(&finished());
    let page = prometheus(&mut collector);
    assert_eq!(count(&page, "\nstrait_upstream_exchange_seconds_count{"), 1);
    assert_eq!(count(&page, "\nstrait_route_exchanges_total{"), 1);
}
