//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "checks/client_hello.rs"]
mod client_hello;
#[path = "checks/grpc.rs"]
mod grpc;
#[path = "checks/h1_chunked.rs"]
mod h1_chunked;
#[path = "checks/h1_head.rs"]
mod h1_head;
#[path = "checks/h2_connection.rs"]
mod h2_connection;
#[path = "checks/hpack.rs"]
mod hpack;
#[path = "checks/path.rs"]
mod path;
#[path = "checks/proxy_protocol.rs"]
mod proxy_protocol;
#[path = "checks/tls_record.rs"]
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that finds nothing has failed"
)]
mod tls_record;

/// Runs `check` on each file of the target's corpus. What is printed is seen when one fails.
#[expect(clippy::print_stdout, reason = "a failure says how to see it again")]
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("the corpus can be listed").path();
        println!("again: cargo fuzz run {target} {}", path.display());
        check(&fs::read(&path).expect("the corpus can be read"));
        inputs += 1;
    }
    assert!(inputs >= 20, "{inputs} inputs in {}", folder.display());
}

#[test]
fn heads_of_the_corpus_hold() {
    replay("h1_head", h1_head::check);
}

#[test]
fn chunks_of_the_corpus_hold() {
    replay("h1_chunked", h1_chunked::check);
}

#[test]
fn connections_of_the_corpus_hold() {
    replay("h2_connection", h2_connection::check);
}

#[test]
fn header_blocks_of_the_corpus_hold() {
    replay("hpack", hpack::check);
}

#[test]
fn grpc_of_the_corpus_holds() {
    replay("grpc", grpc::check);
}

#[test]
fn paths_of_the_corpus_hold() {
    replay("path", path::check);
}

#[test]
fn proxy_headers_of_the_corpus_hold() {
    replay("proxy_protocol", proxy_protocol::check);
}

#[test]
fn hellos_of_the_corpus_hold() {
    replay("client_hello", client_hello::check);
}

#[test]
fn records_of_the_corpus_hold() {
    replay("tls_record", tls_record::check);
}
