//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

use crate::{exchange, h2_exchange, rpc_exchange, saved};

/// The scripts of a target, in the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).expect("the corpus is checked in");
    let mut scripts: Vec<_> = files
        .map(|file| {
            let path = file.expect("the corpus can be listed").path();
            let script = fs::read(&path).expect("the corpus can be read");
            (path.display().to_string(), script)
        })
        .collect();
    scripts.sort();
    scripts
}

fn replay(target: &str, check: impl Fn(&[u8])) {
    let scripts = corpus(target);
    assert!(scripts.len() >= 20, "{} inputs of {target}", scripts.len());
    for (name, script) in scripts {
        println!("again: cargo fuzz run {target} fuzz/corpus/{target}/{name}");
        check(&script);
        // Another length parity is another variant.
        check(&[&script[..], &[15]].concat());
    }
}

/// Not a fuzzer, but more than nothing where there is none: scripts made of seeds cut and joined.
fn shuffle(target: &str, check: impl Fn(&[u8])) {
    let seeds = corpus(target);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % bound
    };
    for _ in 0..500 {
        let mut script = Vec::new();
        for _ in 0..3 {
            let (_, seed) = &seeds[below(seeds.len())];
            script.extend_from_slice(&seed[..below(seed.len() + 1)]);
        }
        if let Some(first) = script.first_mut() {
            *first ^= if below(2) == 0 { 0x80 } else { 0 };
        }
        check(&script);
    }
}

#[test]
fn exchanges_of_the_corpus_hold() {
    replay("exchange", exchange::check);
}

#[test]
fn exchanges_of_a_shuffled_corpus_hold() {
    shuffle("exchange", exchange::check);
}

#[test]
fn saved_connections_of_the_corpus_hold() {
    replay("saved", saved::check);
}

#[test]
fn connections_of_the_corpus_hold() {
    replay("h2_exchange", h2_exchange::check);
}

#[test]
fn connections_of_a_shuffled_corpus_hold() {
    shuffle("h2_exchange", h2_exchange::check);
}

#[test]
fn calls_of_the_corpus_hold() {
    replay("rpc_exchange", rpc_exchange::check);
}

#[test]
fn calls_of_a_shuffled_corpus_hold() {
    shuffle("rpc_exchange", rpc_exchange::check);
}
