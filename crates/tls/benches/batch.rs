//! What signatures cost, one by one and in a batch.
//!
//! `cargo bench -p tls --bench batch`. [`Batch::OPERATIONS_WORTHWHILE`] stands on its results.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PSS_SHA256;
use divan::Bencher;
use tls::batch::{Batch, KeySize, PrivateKey, Scheme};

fn main() {
    divan::main();
}

/// A server's part of a handshake: 64 spaces, a text and a hash.
const MESSAGE: [u8; 130] = [0x20; 130];

const SIZES: [KeySize; 3] = [KeySize::Rsa2048, KeySize::Rsa3072, KeySize::Rsa4096];

const BATCHES: [(KeySize, usize); 12] = [
    (KeySize::Rsa2048, 1),
    (KeySize::Rsa2048, 2),
    (KeySize::Rsa2048, 4),
    (KeySize::Rsa2048, 8),
    (KeySize::Rsa3072, 1),
    (KeySize::Rsa3072, 2),
    (KeySize::Rsa3072, 4),
    (KeySize::Rsa3072, 8),
    (KeySize::Rsa4096, 1),
    (KeySize::Rsa4096, 2),
    (KeySize::Rsa4096, 4),
    (KeySize::Rsa4096, 8),
];

/// One signature, by aws-lc-rs.
#[divan::bench(args = SIZES)]
fn inline(bencher: Bencher<'_, '_>, size: KeySize) {
    let pair = KeyPair::from_pkcs8(document(size)).expect("a key that tests load, too");
    let mut signature = vec![0; pair.public_modulus_len()];
    bencher
        .bench_local(|| pair.sign(&RSA_PSS_SHA256, &SystemRandom::new(), &MESSAGE, &mut signature));
}

/// A batch, filled in part or whole. Up to four operations cost the same, and so do five to eight.
#[divan::bench(args = BATCHES)]
fn batched(bencher: Bencher<'_, '_>, (size, operations): (KeySize, usize)) {
    let key = key(size);
    let Some(mut batch) = Batch::new(size) else { return };
    bencher.bench_local(|| sign(&mut batch, &key, operations));
}

/// What loading a key costs.
#[divan::bench(args = SIZES)]
fn load(bencher: Bencher<'_, '_>, size: KeySize) {
    bencher.bench_local(|| key(size));
}

fn sign(batch: &mut Batch<()>, key: &PrivateKey, operations: usize) -> usize {
    for _ in 0..operations {
        batch.submit((), key, Scheme::PssSha256, &MESSAGE).expect("there is room");
    }
    batch.run().filter(|(_, signature)| signature.is_ok()).count()
}

fn key(size: KeySize) -> PrivateKey {
    PrivateKey::from_pkcs8(document(size)).expect("a key that tests load, too")
}

fn document(size: KeySize) -> &'static [u8] {
    match size {
        KeySize::Rsa2048 => include_bytes!("../tests/keys/2048.der"),
        KeySize::Rsa3072 => include_bytes!("../tests/keys/3072.der"),
        KeySize::Rsa4096 => include_bytes!("../tests/keys/4096.der"),
    }
}
