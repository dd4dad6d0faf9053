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

/// Orders of its lines that are tried; twelve thousand found nothing when this was written.
const ROUNDS: usize = 100;

/// What no input of the corpus has by itself: its lines in any order, alone and in batches.
#[test]
fn deliveries_of_the_corpus_hold_in_any_order() {
    let inputs = inputs("deliveries");
    let texts = inputs.iter().filter_map(|(input, _)| str::from_utf8(input).ok());
    let lines: Vec<&str> = texts.flat_map(str::lines).filter(|line| line.is_ascii()).collect();
    // An order of its own for each round, the same in each run.
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    for _ in 0..ROUNDS {
        let count = 1 + draw(12);
        let drawn = (0..count).map(|_| {
            let line = lines[draw(lines.len())];
            match line.chars().next() {
                Some(source @ ('0'..='9')) if draw(2) == 0 => line.replacen(source, "+", 1),
                _ => line.to_owned(),
            }
        });
        let input = drawn.collect::<Vec<_>>().join("\n");
        // Seen when it fails.
        println!("{input}\n");
        deliveries::check(input.as_bytes());
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
