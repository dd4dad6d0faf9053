//! Processors and what the process uses.

use std::fs::File;

#[test]
fn a_pinned_thread_runs_on_its_processor_alone() {
    std::thread::spawn(|| {
        let last = *io::affinity::cpus().unwrap().last().unwrap();
        io::affinity::pin_current_thread(last).unwrap();
        assert_eq!(io::affinity::cpus().unwrap(), [last]);
    })
    .join()
    .unwrap();
}

#[test]
fn a_processor_that_is_not_there_is_an_error() {
    for cpu in [1023, 1024, usize::MAX] {
        let error = io::affinity::pin_current_thread(cpu).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{cpu}");
    }
}

#[test]
fn resident_memory_grows_with_what_is_touched() {
    const BLOCK: usize = 64 << 20;
    let before = io::process::rss_bytes().unwrap();
    let block = vec![1u8; BLOCK];
    let after = io::process::rss_bytes().unwrap();
    assert!(std::hint::black_box(&block).iter().all(|&byte| byte == 1));
    assert!(after > before + BLOCK as u64 / 2, "{before} then {after}");
}

#[test]
fn open_descriptors_are_counted() {
    let mut files = Vec::new();
    files.resize_with(50, || File::open("/dev/null").unwrap());
    let counted = io::process::open_descriptors().unwrap();
    assert!(counted >= files.len(), "{counted}");
}
