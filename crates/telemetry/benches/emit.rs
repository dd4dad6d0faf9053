//! What an event costs the worker, and what a line of the access log costs the control thread.
//!
//! `cargo bench -p telemetry`. Budgets: a finished exchange 60 ns, with an access log record
//! 150 ns, a line 600 ns.

use std::hint::black_box;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use telemetry::events::{
    ExchangeFinished, ExchangeStarted, Fault, LabelId, Stages, UpstreamConnected, WorkerGauges,
};
use telemetry::{
    Collector, Emitter, LogFormat, LogReader, LogStyle, Names, ProcessFacts, RouteNames,
};

fn main() {
    divan::main();
}

const LABEL: LabelId = LabelId { slot: 0, generation: 0 };
/// Events in one sample, so that the clock of the bench does not count.
const BATCH: u32 = 1_000;

fn exchange(place: u32) -> ExchangeFinished<'static> {
    let jitter = u64::from(place % 64) * 1_000;
    ExchangeFinished {
        listener: LABEL,
        rule: Some((LABEL, 1)),
        weighted: None,
        cluster: Some(LABEL),
        subset: b"",
        endpoint: b"127.0.0.1:9000",
        client: b"192.0.2.7",
        method: b"GET",
        target: b"/api/items?page=2&sort=price",
        host: b"shop.example.com",
        request_id: b"7f3c1e0a-5d7b-4a51-9d3e-0c6f5d1f2a10",
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
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
        request_bytes: 0,
        response_bytes: 1024,
        attempts: 1,
        grpc: None,
        is_tunnel: false,
        started_at: 1_795_234_467_123_456_000 + jitter,
        stages: Stages {
            accept: 0,
            read_head: 1_200 + jitter,
            route: 800,
            request_body: 0,
            retries: 0,
            pool_wait: 0,
            connect: 0,
            upstream_write: 6_500 + jitter,
            first_byte: 184_000 + jitter,
            response: 2_300,
            downstream_write: 7_150,
            total: 201_950 + jitter,
        },
    }
}

fn names() -> Arc<Names> {
    let mut names = Names::default();
    names.insert_listener(LABEL, "edge".into());
    names.insert_cluster(LABEL, "api".into());
    let rules = [(0, "/healthz".into()), (1, "/api/*".into())];
    names.insert_route(LABEL, RouteNames::new("shop".into(), rules, []));
    Arc::new(names)
}

fn pair(is_access_log: bool, format: Option<LogFormat>) -> (Emitter, LogReader) {
    let (mut emitter, reports) = Emitter::new(4 * telemetry::LOG_QUEUE_BYTES);
    emitter.set_access_log(is_access_log);
    let mut reader = LogReader::new();
    reader.set_names(names());
    reader.set_style(format.map(LogStyle::all));
    reader.add_worker(reports.records);
    // The list of slow requests is full of slower ones, as it is after the first moments.
    for _ in 0..64 {
        let stages = Stages { total: 3_600_000_000_000, ..Stages::default() };
        emitter.exchange_finished(&ExchangeFinished { stages, ..exchange(0) });
    }
    reader.poll(0, &mut Vec::new(), usize::MAX);
    (emitter, reader)
}

fn finish_batch(emitter: &mut Emitter) {
    for place in 0..BATCH {
        emitter.exchange_finished(black_box(&exchange(place)));
    }
}

#[divan::bench]
fn exchange_started(bencher: Bencher<'_, '_>) {
    let (mut emitter, _reader) = pair(false, None);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            emitter.exchange_started(black_box(&ExchangeStarted { listener: LABEL }));
        }
    });
}

#[divan::bench]
fn upstream_connected(bencher: Bencher<'_, '_>) {
    let (mut emitter, _reader) = pair(false, None);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            emitter
                .upstream_connected(black_box(&UpstreamConnected { cluster: LABEL, duration: 7 }));
        }
    });
}

#[divan::bench]
fn worker_gauges(bencher: Bencher<'_, '_>) {
    let (mut emitter, _reader) = pair(false, None);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            emitter.worker_gauges(black_box(&WorkerGauges::default()));
        }
    });
}

/// What building the event itself takes, to be taken off the ones below.
#[divan::bench]
fn exchange_built(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for place in 0..BATCH {
            black_box(&exchange(place));
        }
    });
}

#[divan::bench]
fn exchange_finished_without_stages(bencher: Bencher<'_, '_>) {
    let (mut emitter, _reader) = pair(false, None);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for place in 0..BATCH {
            let event = exchange(place);
            let stages = Stages { total: event.stages.total, ..Stages::default() };
            emitter.exchange_finished(black_box(&ExchangeFinished { stages, ..event }));
        }
    });
}

#[divan::bench]
fn exchange_finished(bencher: Bencher<'_, '_>) {
    let (mut emitter, _reader) = pair(false, None);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| finish_batch(&mut emitter));
}

#[divan::bench]
fn exchange_finished_with_record(bencher: Bencher<'_, '_>) {
    let (emitter, reader) = pair(true, None);
    let (emitter, reader) = (std::cell::RefCell::new(emitter), std::cell::RefCell::new(reader));
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| reader.borrow_mut().poll(0, &mut Vec::new(), usize::MAX))
        .bench_local_values(|_| finish_batch(&mut emitter.borrow_mut()));
}

#[divan::bench(args = [LogFormat::Json, LogFormat::Text])]
fn line(bencher: Bencher<'_, '_>, format: LogFormat) {
    let (emitter, reader) = pair(true, Some(format));
    let emitter = std::cell::RefCell::new(emitter);
    let mut state = (reader, Vec::new());
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| finish_batch(&mut emitter.borrow_mut()))
        .bench_local_values(|()| {
            let (reader, out) = &mut state;
            out.clear();
            assert_eq!(reader.poll(0, out, usize::MAX).lines, u64::from(BATCH));
        });
}

/// A whole scrape of this many clusters with traffic on two workers.
#[divan::bench(args = [1, 1_000, 10_000])]
fn scrape(bencher: Bencher<'_, '_>, clusters: u32) {
    let mut collector = Collector::new("0.0.0");
    let mut names = Names::clone(&names());
    for slot in 0..clusters {
        names.insert_cluster(LabelId { slot, generation: 0 }, format!("cluster-{slot}").into());
    }
    collector.set_names(Arc::new(names));
    for _ in 0..2 {
        let (mut emitter, reports) = Emitter::new(0);
        collector.add_worker(reports.counters);
        for slot in 0..clusters {
            let cluster = Some(LabelId { slot, generation: 0 });
            emitter.exchange_finished(&ExchangeFinished { cluster, ..exchange(slot) });
            collector.poll();
        }
    }
    let mut out = String::new();
    bencher.bench_local(|| {
        out.clear();
        collector.readings().write_prometheus(&ProcessFacts::default(), &mut out);
        out.len()
    });
}
