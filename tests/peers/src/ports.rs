//! Free ports.
//!
//! For servers that cannot choose a free port and report it. The range lies below the one
//! that the kernel takes for outgoing connections, so that a load generator does not take a port
//! between its choice and its use. It has blocks, of which each process of this program has one to
//! itself, so that several can run at a time.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, Result};

const FIRST: u16 = 20_000;
const BLOCKS: u16 = 20;
const BLOCK_LEN: u16 = 500;

static BLOCK: OnceLock<Option<Block>> = OnceLock::new();

/// Ports of this process.
struct Block {
    first: u16,
    given: AtomicU16,
    /// A name that goes with the process, whatever ends it. Like ports, each network namespace has
    /// its own.
    _claim: UnixListener,
}

impl Block {
    /// The first that no other process has.
    fn claim() -> Option<Self> {
        (0..BLOCKS).find_map(|block| {
            let name = format!("strait-peers-ports-{block}");
            let name = SocketAddr::from_abstract_name(name).ok()?;
            let claim = UnixListener::bind_addr(&name).ok()?;
            let first = FIRST + block * BLOCK_LEN;
            // Not the same port first in one process after the other.
            let begin = u16::try_from(std::process::id() % u32::from(BLOCK_LEN)).unwrap_or(0);
            Some(Self { first, given: AtomicU16::new(begin), _claim: claim })
        })
    }
}

/// A port of the loopback address that was free a moment ago, and is handed out again after all
/// others were.
pub(crate) fn free() -> Result<u16> {
    let block = BLOCK.get_or_init(Block::claim).as_ref().context("other runs have all ports")?;
    (0..BLOCK_LEN)
        .find_map(|_| {
            let step = block.given.fetch_add(1, Ordering::Relaxed);
            let port = block.first + step % BLOCK_LEN;
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
        })
        .context("no port is free")
}
