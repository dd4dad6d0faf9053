//! 600 clients send heads of 40 kB of which the end is missing, where all clients may hold 8 MiB: those
//! that hold the most are closed, others are served all the while, and the memory comes back.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::strait::{Options, Strait};
use crate::wait::{self, Stopwatch};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

const OVERFLOW: &str = "buffered_overflow";

const CLIENTS: u32 = 600;
const HEAD_BYTES: usize = 40_000;
const BUFFERED_MAX: u32 = 8 << 20;

/// Heads that are sent before the next look is waited for, and those that the bound has room for: each
/// stands in a buffer of 64 KiB.
const WAVE: u32 = 50;
const ROOM: u32 = BUFFERED_MAX / (64 << 10);

/// What comes between two looks is beyond the bound, and memory that was given back is not at once the
/// system's. All heads together are 24 MB.
const SLACK: u64 = 8 << 20;

/// Memory that may be another afterwards: what allocators keep.
const LEFT_BYTES_MAX: u64 = 3 << 20;

/// Buffers that were not needed for ten seconds are freed, and what is free goes back to the system every
/// thirty.
const RELEASED: Duration = Duration::from_secs(60);

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let listener = format!(
        "buffered_max: {}MiB
connections_per_client_max: 10000
http: {{ head_max: 60KiB }}
timeouts: {{ request_head: 60s }}",
        BUFFERED_MAX >> 20
    );
    let options = Options { listener: &listener, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    is_served_at_once(&strait)?;
    let before = strait.resident_bytes()?;

    let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx-long: {}", "a".repeat(HEAD_BYTES));
    let (mut crowd, mut most) = (Vec::new(), before);
    for number in 0..CLIENTS {
        let mut stream = TcpStream::connect(strait.address())?;
        stream.write_all(head.as_bytes()).context("half a head")?;
        crowd.push(stream);
        if number % WAVE == WAVE - 1 {
            is_served_at_once(&strait)?;
            most = most.max(strait.resident_bytes()?);
            wait::until("those that hold the most to be closed", wait::SOON, || {
                let closed = super::cause(&strait, OVERFLOW).unwrap_or_default();
                closed + f64::from(ROOM) > f64::from(number)
            })?;
        }
    }
    let held = || strait.metric("strait_downstream_buffered_bytes");
    wait::until("the clients to hold no more than they may", wait::SOON, || {
        held().is_ok_and(|held| 0.0 < held && held <= f64::from(BUFFERED_MAX))
    })?;
    is_served_at_once(&strait)?;
    most = most.max(strait.resident_bytes()?);
    let gathered = most.saturating_sub(before);
    ensure!(gathered < u64::from(BUFFERED_MAX) + SLACK, "{gathered} bytes more than before");

    let closed = super::cause(&strait, OVERFLOW)?;
    ensure!(closed < f64::from(CLIENTS - ROOM / 2), "{closed} of {CLIENTS} were closed");
    let half = crowd.len() / 2;
    let (first, last) = crowd.split_at_mut(half);
    ensure!(first.iter_mut().all(is_closed), "those of the first half are closed");
    let newest = last.last_mut().context("a crowd")?;
    newest.write_all(b"\r\n\r\n")?;
    newest.set_read_timeout(Some(wait::SOON))?;
    let mut line = [0; 15];
    newest.read_exact(&mut line).context("the newest is served")?;
    ensure!(&line == b"HTTP/1.1 200 OK", "{}", line.escape_ascii());

    drop(crowd);
    wait::until("the memory to come back", RELEASED, || {
        strait.resident_bytes().is_ok_and(|now| now < before + LEFT_BYTES_MAX)
            && held().is_ok_and(|held| held == 0.0)
    })?;
    let log = strait.log();
    ensure!(log.matches("held more in buffers").count() == 1, "one warning: {log}");
    Ok(())
}

fn is_served_at_once(strait: &Strait) -> Result<()> {
    let stopwatch = Stopwatch::start();
    let response = client::get(strait.address(), "/bytes/100")?;
    let waited = stopwatch.elapsed();
    ensure!(response.status == 200, "{}", response.head);
    ensure!(waited < super::PATIENCE, "a well-behaved client waited {waited:?}");
    Ok(())
}

/// Whether the other side has closed a connection, or reset it.
fn is_closed(stream: &mut TcpStream) -> bool {
    let is_set = stream.set_nonblocking(true).is_ok();
    is_set && !matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}
