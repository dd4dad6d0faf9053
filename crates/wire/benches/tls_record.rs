//! What records of TLS cost: sealing and opening, beside rustls with the same cipher, and what it
//! takes to build what an idle connection has let go.
//!
//! `cargo bench -p wire --bench tls_record`. A sample is [`BATCH`] records of the size in its
//! name. rustls is used as it usually is: data in by `writer`, records out by `write_tls` into
//! memory, and back by `read_tls` and `reader`, all of which copy.

use std::hint::black_box;
use std::io::{Read as _, Write as _};

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use wire::buffer::Buffer;
use wire::tls::record::{Cipher, Opened, Protocol, RECORD_LEN_MAX, Sizing, Suite, TlsRole};

#[path = "../tests/checks/tls_record.rs"]
#[expect(dead_code, clippy::indexing_slicing, clippy::unwrap_used, reason = "made for tests")]
mod checks;
#[path = "../tests/tls_record/kit.rs"]
#[expect(dead_code, clippy::indexing_slicing, clippy::unwrap_used, reason = "made for tests")]
mod kit;

use kit::Pair;

fn main() {
    divan::main();
}

/// Records in one sample, so that the clock of the bench does not count.
const BATCH: usize = 64;

const SIZES: [usize; 2] = [1 << 10, 16 << 10];

/// A suite, by the name that it has in the results.
#[derive(Clone, Copy, Debug)]
enum With {
    Tls12Aes128,
    Tls13Aes128,
    Tls13Aes256,
    Tls13Chacha20,
}

const ALL: [With; 4] =
    [With::Tls12Aes128, With::Tls13Aes128, With::Tls13Aes256, With::Tls13Chacha20];

impl With {
    fn suite(self) -> Suite {
        let (protocol, cipher) = match self {
            Self::Tls12Aes128 => (Protocol::Tls12, Cipher::Aes128Gcm),
            Self::Tls13Aes128 => (Protocol::Tls13, Cipher::Aes128Gcm),
            Self::Tls13Aes256 => (Protocol::Tls13, Cipher::Aes256Gcm),
            Self::Tls13Chacha20 => (Protocol::Tls13, Cipher::Chacha20Poly1305),
        };
        Suite { protocol, cipher }
    }
}

/// A connection that is in use already.
fn pair(with: With) -> Pair {
    let mut pair = Pair::with(with.suite(), TlsRole::Server, Sizing::Full);
    pair.chat(b"hello");
    pair
}

/// Room for the batch of records of any size, and for as many as one call makes.
fn room() -> Buffer {
    Buffer::new(BATCH * RECORD_LEN_MAX)
}

/// A batch of calls with `size` bytes each.
#[divan::bench(args = ALL, consts = SIZES)]
fn seal<const SIZE: usize>(bencher: Bencher<'_, '_>, with: With) {
    let mut pair = pair(with);
    let data = [b'x'; SIZE];
    let mut out = room();
    bencher.counter(BytesCount::new(SIZE * BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            pair.ours.seal(&[black_box(&data[..])], &mut out).expect("it is open");
        }
        black_box(out.filled());
        out.clear();
    });
}

#[divan::bench(args = ALL, consts = SIZES)]
fn seal_with_rustls<const SIZE: usize>(bencher: Bencher<'_, '_>, with: With) {
    let mut pair = pair(with);
    let data = [b'x'; SIZE];
    let mut out = Vec::with_capacity(BATCH * RECORD_LEN_MAX);
    bencher.counter(BytesCount::new(SIZE * BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            pair.theirs.writer().write_all(black_box(&data)).expect("it is open");
            while pair.theirs.wants_write() {
                pair.theirs.write_tls(&mut out).expect("memory takes all");
            }
        }
        black_box(&out);
        out.clear();
    });
}

/// One input at a time, since records can be opened in their order only.
#[divan::bench(args = ALL, consts = SIZES, sample_size = 1, sample_count = 1_000)]
fn open<const SIZE: usize>(bencher: Bencher<'_, '_>, with: With) {
    let Pair { mut ours, mut theirs, .. } = pair(with);
    bencher
        .counter(BytesCount::new(SIZE * BATCH))
        .with_inputs(|| {
            let mut said = Vec::new();
            for _ in 0..BATCH {
                theirs.writer().write_all(&[b'x'; SIZE]).expect("it is open");
                while theirs.wants_write() {
                    theirs.write_tls(&mut said).expect("memory takes all");
                }
            }
            said
        })
        .bench_local_values(|mut said| {
            let mut rest = &mut said[..];
            loop {
                let (n, opened) = ours.open(rest).expect("genuine records");
                match opened {
                    Opened::Data { bytes, .. } => black_box(bytes),
                    _ => break,
                };
                rest = rest.get_mut(n..).unwrap_or_default();
            }
            said
        });
}

#[divan::bench(args = ALL, consts = SIZES, sample_size = 1, sample_count = 1_000)]
fn open_with_rustls<const SIZE: usize>(bencher: Bencher<'_, '_>, with: With) {
    let Pair { mut ours, mut theirs, .. } = pair(with);
    let mut taken = vec![0; 64 << 10];
    bencher
        .counter(BytesCount::new(SIZE * BATCH))
        .with_inputs(|| {
            let mut out = room();
            for _ in 0..BATCH {
                ours.seal(&[&[b'x'; SIZE]], &mut out).expect("it is open");
            }
            out.filled().to_vec()
        })
        .bench_local_values(|said| {
            let mut rest = &said[..];
            while !rest.is_empty() {
                theirs.read_tls(&mut rest).expect("memory gives all");
                theirs.process_new_packets().expect("genuine records");
                while let Ok(1..) = theirs.reader().read(&mut taken) {
                    black_box(&taken);
                }
            }
            said
        });
}

/// Records of one octet, each with a context of its own: less those of `seal`, what it takes to
/// build one.
#[divan::bench(args = ALL)]
fn seal_anew(bencher: Bencher<'_, '_>, with: With) {
    let mut pair = pair(with);
    let mut out = room();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            pair.ours.release_contexts();
            pair.ours.seal(&[black_box(b"x")], &mut out).expect("it is open");
        }
        out.clear();
    });
}

#[divan::bench(args = ALL)]
fn seal_an_octet(bencher: Bencher<'_, '_>, with: With) {
    let mut pair = pair(with);
    let mut out = room();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            pair.ours.seal(&[black_box(b"x")], &mut out).expect("it is open");
        }
        out.clear();
    });
}
