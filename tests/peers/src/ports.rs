//! Ports that nobody listens on.
//!
//! For servers that cannot be told "any port" and then asked which. The range lies below the one
//! that the kernel takes for outgoing connections, so that a load generator does not take a port
//! between its choice and its use; each process of this program begins at another place.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port of the loopback address that was free a moment ago and is not handed out twice.
pub(crate) fn free() -> Result<u16> {
    let offset = std::process::id().wrapping_mul(97);
    (0..COUNT)
        .find_map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = u16::try_from(FIRST + offset.wrapping_add(step) % COUNT).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
        })
        .context("no port is free")
}
