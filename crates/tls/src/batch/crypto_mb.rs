//! Comparison with Intel's crypto_mb, which computes in the same instructions.
//!
//! It comes from PyPI and is built with a C compiler, so that it is not a test for every day:
//!
//! ```sh
//! python3 -m venv target/crypto_mb
//! target/crypto_mb/bin/pip install ipp-crypto-static==2026.2.0
//! CRYPTO_MB=$PWD/target/crypto_mb cargo test -p tls --lib crypto_mb -- --ignored
//! ```

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use num_bigint::BigUint;

use super::tests::{KEYS, Pair, push, run};
use super::*;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crypto_mb.c");

/// Batches of random messages for each size, behind one of edges.
const BATCHES: usize = 64;

#[test]
#[ignore = "needs crypto_mb and a C compiler: see the module's text"]
fn crypto_mb_agrees() {
    let prefix = std::env::var_os("CRYPTO_MB").expect("CRYPTO_MB names the folder of crypto_mb");
    let program = build(Path::new(&prefix));
    for (size, keys) in KEYS {
        let mut batch = Batch::new(size).expect("a processor with the instructions");
        let pairs = keys.map(Pair::read);
        let (mut asked, mut answers) = (String::new(), String::new());
        for round in 0..=BATCHES {
            for lane in 0..LANES {
                let pair = &pairs[(lane + round) % 2];
                let message = message(pair, round, lane);
                ask(&mut asked, size, pair, &message);
                push(&mut batch, &pair.key, &message);
            }
            for answer in run(&mut batch) {
                let width = size.bytes() * 2;
                writeln!(answers, "{:0>width$}", answer.unwrap().to_str_radix(16)).unwrap();
            }
        }
        assert!(talk(&program, asked) == answers, "{size:?}");
    }
}

/// Edges in the first round, then whatever comes.
fn message(pair: &Pair, round: usize, lane: usize) -> BigUint {
    let one = BigUint::from(1_u8);
    match (round, lane) {
        (0, 0) => BigUint::ZERO,
        (0, 1) => one,
        (0, 2) => &pair.n - one,
        (0, 3) => pair.p.clone(),
        (0, 4) => pair.q.clone(),
        (0, 5) => &pair.n - &pair.p,
        (0, 6) => &pair.p - one,
        (0, 7) => &pair.n >> 1,
        _ => {
            let mut bytes = [0; 512];
            aws_lc_rs::rand::fill(&mut bytes).unwrap();
            BigUint::from_bytes_be(&bytes) % &pair.n
        }
    }
}

fn ask(asked: &mut String, size: KeySize, pair: &Pair, message: &BigUint) {
    let [dp, dq] = [&pair.p, &pair.q].map(|prime| &pair.d % (prime - 1_u8));
    let inverse = pair.q.modinv(&pair.p).unwrap();
    let width = size.bytes() * 2;
    write!(asked, "{}", size.bits()).unwrap();
    for part in [&pair.p, &pair.q, &dp, &dq, &inverse, message] {
        write!(asked, " {:0>width$}", part.to_str_radix(16)).unwrap();
    }
    asked.push('\n');
}

/// Its archive needs OpenSSL for functions that are not called here.
fn build(prefix: &Path) -> std::path::PathBuf {
    let program = prefix.join("operations");
    let status = Command::new("cc")
        .args(["-O1", "-static", "-Wl,--unresolved-symbols=ignore-all", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(prefix.join("include/aggregator"))
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(SOURCE)
        .arg(prefix.join("lib/libcrypto_mb.a"))
        .status();
    assert!(status.unwrap().success());
    program
}

fn talk(program: &Path, asked: String) -> String {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was just built");
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(asked.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
