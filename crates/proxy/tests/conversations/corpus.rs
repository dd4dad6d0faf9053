//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

use crate::exchange;

#[test]
fn exchanges_of_the_corpus_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/exchange");
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("the corpus can be listed").path();
        let script = fs::read(&path).expect("the corpus can be read");
        println!("{}", path.display());
        exchange::check(&script);
        // Another length parity is another manner.
        exchange::check(&[&script[..], &[15]].concat());
        inputs += 1;
    }
    assert!(inputs >= 20, "{inputs} inputs in {}", folder.display());
}

/// Not a fuzzer, but more than nothing where there is none: scripts made of seeds cut and joined.
#[test]
fn exchanges_of_a_shuffled_corpus_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/exchange");
    let files = fs::read_dir(folder).unwrap();
    let mut seeds: Vec<_> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    seeds.sort();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % bound
    };
    for _ in 0..500 {
        let mut script = Vec::new();
        for _ in 0..3 {
            let seed = &seeds[below(seeds.len())];
            script.extend_from_slice(&seed[..below(seed.len() + 1)]);
        }
        if let Some(first) = script.first_mut() {
            *first ^= if below(2) == 0 { 0x80 } else { 0 };
        }
        exchange::check(&script);
    }
}
