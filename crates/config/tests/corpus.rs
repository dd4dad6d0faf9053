//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "checks/deliveries.rs"]
mod deliveries;
#[path = "checks/edits.rs"]
mod edits;
#[path = "checks/routes.rs"]
mod routes;
#[path = "checks/text.rs"]
mod text;

#[test]
fn texts_of_the_corpus_hold() {
    for (input, path) in inputs("config") {
        // Seen when it fails.
        println!("again: cargo fuzz run config {path}");
        text::check(&input);
    }
}

#[test]
fn rules_and_requests_of_the_corpus_hold() {
    for (input, path) in inputs("routes") {
        println!("again: cargo fuzz run routes {path}");
        routes::check(&input);
    }
}

#[test]
fn edits_of_the_corpus_hold() {
    for (input, path) in inputs("edits") {
        println!("again: cargo fuzz run edits {path}");
        edits::check(&input);
    }
}

#[test]
fn deliveries_of_the_corpus_hold() {
    for (input, path) in inputs("deliveries") {
        println!("again: cargo fuzz run deliveries {path}");
        deliveries::check(&input);
    }
}

/// The inputs of a target's corpus, each with its path.
fn inputs(target: &str) -> Vec<(Vec<u8>, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("the corpus is checked in");
    let inputs = entries.map(|entry| {
        let path = entry.expect("the corpus can be listed").path();
        (fs::read(&path).expect("the corpus can be read"), path.display().to_string())
    });
    let inputs: Vec<_> = inputs.collect();
    assert!(inputs.len() >= 20, "{} inputs in {}", inputs.len(), folder.display());
    inputs
}
