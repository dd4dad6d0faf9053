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
