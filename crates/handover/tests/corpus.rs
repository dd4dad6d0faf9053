//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "checks/conversation.rs"]
mod conversation;
#[path = "checks/stored.rs"]
mod stored;

#[test]
fn conversations_of_the_corpus_hold() {
    assert!(replay("handover", conversation::check) >= 20);
}

#[test]
fn stored_files_and_queues_of_the_corpus_hold() {
    assert!(replay("stored", stored::check) >= 5);
}

/// Replays the corpus of a target, and says how many inputs it has.
#[expect(clippy::print_stdout, reason = "seen when a test fails")]
fn replay(target: &str, check: impl Fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("the corpus can be listed").path();
        println!("again: cargo fuzz run {target} {}", path.display());
        check(&fs::read(&path).expect("the corpus can be read"));
        inputs += 1;
    }
    inputs
}
