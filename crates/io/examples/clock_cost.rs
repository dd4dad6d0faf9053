//! What one reading of the clock costs: `cargo run --release -p io --example clock_cost`.

#![forbid(unsafe_code)]

use std::io::Write as _;

const READINGS: u32 = 20_000_000;

fn main() -> std::io::Result<()> {
    let began = io::clock::monotonic_ns();
    let mut last = began;
    for _ in 0..READINGS {
        last = std::hint::black_box(io::clock::monotonic_ns());
    }
    let picoseconds = last.saturating_sub(began).saturating_mul(1000) / u64::from(READINGS);
    writeln!(std::io::stdout(), "monotonic_ns: {}.{:03} ns", picoseconds / 1000, picoseconds % 1000)
}
