//! Measures whether the time that a batch takes depends on messages or keys.
//!
//! Welch's t-test on the times of two classes in random order (Reparaz, Balasch and Verbauwhede:
//! "Dude, is my code constant time?", 2017). It finds what is grossly wrong and proves nothing; and
//! it wants a quiet machine: `cargo test -p tls --release --test constant_time -- --ignored`.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "test code outside of test functions"
)]

use std::time::Instant;

use tls::batch::{Batch, KeySize, PrivateKey, Scheme};

const KEYS: [&[u8]; 2] = [include_bytes!("keys/2048.der"), include_bytes!("keys/2048-other.der")];

/// Runs of each class, roughly.
const RUNS: usize = 20_000;

/// Beyond it there would be a leak almost surely. The usual bound of 4.5 is for a million quiet
/// samples; what is looked for here is a branch or a table, which gives hundreds.
const T_MAX: f64 = 10.0;

#[test]
#[ignore = "measures time, which other programs disturb"]
fn time_does_not_tell_messages_apart() {
    let key = PrivateKey::from_pkcs8(KEYS[0]).unwrap();
    compare(|class| (&key, if class { *b"always the same." } else { random() }));
}

#[test]
#[ignore = "measures time, which other programs disturb"]
fn time_does_not_tell_keys_apart() {
    let keys = KEYS.map(|der| PrivateKey::from_pkcs8(der).unwrap());
    compare(|class| (&keys[usize::from(class)], random()));
}

fn compare<'k>(operation: impl Fn(bool) -> (&'k PrivateKey, [u8; 16])) {
    let Some(mut batch) = Batch::new(KeySize::Rsa2048) else { return };
    let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..2 * RUNS {
        let [choice, ..] = random();
        let class = choice & 1 == 1;
        for id in 0..Batch::<usize>::OPERATIONS_MAX {
            let (key, message) = operation(class);
            batch.submit(id, key, Scheme::Pkcs1Sha256, &message).unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "time is what is measured")]
        let begin = Instant::now();
        batch.run().for_each(|(_, signature)| assert!(signature.is_ok()));
        times[usize::from(class)].push(begin.elapsed().as_secs_f64());
    }
    let t = welch(&times.map(without_outliers));
    println!("t = {t:.2}");
    assert!(t.abs() < T_MAX, "t = {t}");
}

/// Interrupted measurements are left out.
fn without_outliers(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times.truncate(times.len() * 9 / 10);
    times
}

fn welch(classes: &[Vec<f64>; 2]) -> f64 {
    let [(mean, error), (other_mean, other_error)] = classes.each_ref().map(|times| {
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (mean - other_mean) / (error + other_error).sqrt()
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    bytes
}
