//! Replays the fuzz corpus, so that what fuzzing once reached stays true without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "checks/dns_answer.rs"]
mod dns_answer;

#[test]
fn answers_of_the_corpus_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns_answer");
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is checked in") {
        let path = entry.expect("the corpus can be listed").path();
        // Seen when it fails.
        println!("again: cargo fuzz run dns_answer {}", path.display());
        dns_answer::check(&fs::read(&path).expect("the corpus can be read"));
        inputs += 1;
    }
    assert!(inputs >= 20, "{inputs} inputs in {}", folder.display());
}

#[test]
fn records_of_an_answer_are_counted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns_answer");
    for (input, records) in [
        ("addresses", Some(2)),
        ("services", Some(3)),
        ("many_addresses", Some(500)),
        ("alias_within", Some(1)),
        ("nothing", Some(0)),
        ("other_names", None),
        ("other_question", None),
        ("alias_round", None),
        ("pointer_loop", None),
        ("cut", None),
    ] {
        let bytes = fs::read(folder.join(input)).expect("the corpus can be read");
        assert_eq!(control::records_of_dns_answer(&bytes), records, "{input}");
    }
}
