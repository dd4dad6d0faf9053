//! The causes that metrics distinguish are those that happen.
#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

use proxy::fault::{Retry, consequence, retry_word};
use telemetry::cause::Cause;
use telemetry::events::{LabelId, UpstreamConnectFailed, UpstreamRetried};
use telemetry::{Collector, Emitter, Names, ProcessFacts};

const API: LabelId = LabelId { slot: 0, generation: 0 };

/// The words and counts of the family `name` after what `emit` emits.
fn counted(name: &str, emit: impl FnOnce(&mut Emitter)) -> Vec<(String, u64)> {
    let (mut emitter, reports) = Emitter::new(1 << 16);
    let (mut collector, mut names) = (Collector::new("0.1.0"), Names::default());
    names.insert_cluster(API, "api".into());
    collector.set_names(names.into());
    collector.add_worker(reports.counters);
    emit(&mut emitter);
    let mut out = String::new();
    collector.readings().write_stats(&ProcessFacts::default(), name, &mut out);
    let line = |line: &str| {
        let (labels, count) = line.rsplit_once(' ').unwrap();
        let word = labels.split_once("cause=\"").unwrap().1.trim_end_matches("\"}");
        (word.to_owned(), count.parse().unwrap())
    };
    out.lines().map(line).collect()
}

/// Those words, each counted once, and nothing else.
fn once_each(causes: &[Cause]) -> Vec<(String, u64)> {
    let words = causes.iter().map(|cause| (cause.as_str().to_owned(), 1));
    words.chain([("other".to_owned(), 0)]).collect()
}

#[test]
fn retries_are_counted_by_every_cause_that_allows_one_and_no_other() {
    let allowing: Vec<_> = Cause::ALL
        .iter()
        .copied()
        .filter(|cause| {
            consequence(*cause).retry != Retry::Never
                || retry_word(*cause).is_some()
                || *cause == Cause::ResponseRetried
        })
        .collect();
    let counts = counted("strait_upstream_retries_total", |emitter| {
        for cause in &allowing {
            emitter.upstream_retried(&UpstreamRetried { cluster: API, cause: *cause });
        }
    });
    assert_eq!(counts, once_each(&allowing));
}

#[test]
fn failures_to_connect_are_counted_by_each_of_their_causes() {
    let causes = [
        Cause::ConnectFailed,
        Cause::ConnectTimeout,
        Cause::OutOfDescriptors,
        Cause::UpstreamTlsFailed,
    ];
    let counts = counted("strait_upstream_connect_failures_total", |emitter| {
        for cause in causes {
            emitter.upstream_connect_failed(&UpstreamConnectFailed {
                cluster: API,
                endpoint: API,
                reason: "other",
                at: 0,
                cause,
            });
        }
    });
    assert_eq!(counts, once_each(&causes));
}

#[test]
fn error_pages_are_for_the_causes_that_replies_have() {
    // The connection is closed before there is a request.
    let silent = [
        Cause::AcceptFailed,
        Cause::AcceptRate,
        Cause::ClientConnectionsOverflow,
        Cause::ConnectionsOverflow,
        Cause::HandshakesOverflow,
    ];
    let replied = Cause::ALL.iter().filter(|cause| {
        let has_status = consequence(**cause).status.is_some() || **cause == Cause::FilterReply;
        has_status && !silent.contains(cause)
    });
    let mut replied: Vec<_> = replied.map(|cause| cause.as_str()).collect();
    let mut known = config::error_pages::CAUSES.to_vec();
    replied.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, replied);
}
