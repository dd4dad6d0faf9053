//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "checks/conversation.rs"]
mod conversation;

#[test]
fn conversations_of_the_corpus_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/handover");
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("the corpus can be listed").path();
        // Seen when it fails.
        println!("again: cargo fuzz run handover {}", path.display());
        conversation::check(&fs::read(&path).expect("the corpus can be read"));
        inputs += 1;
    }
    assert!(inputs >= 20, "{inputs} inputs in {}", folder.display());
}
