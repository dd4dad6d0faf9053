//! Whole workers in a virtual world, under a seed.
//!
//! The workers are the real ones, with the real proxy in them; they run on a simulated
//! [`World`](worker::World): a network and a clock in which nothing happens by itself.
//! Clients and services are scripts on the same network. A run ([`Simulation`]) follows from its
//! seed alone, so that a failure is replayed by its number: `cargo xtask sim --seed N`.
//!
//! *How epoll is modelled.* A socket is registered once, edge-triggered. Registration reports what
//! is possible already. From then on an event is queued when bytes arrive, when the peer's end
//! (FIN) arrives, when the connection breaks (RST), when it is over in both directions, and when
//! there is room again (a third of the buffer) after a write that was cut short. As in the kernel,
//! an event reports all that is possible when it is handed out, not only what it was queued for; so
//! an event may report what is known already, and a socket that was closed before has none. A read
//! that returns less than asked for means that nothing is left, unless an end is behind it: where
//! the simulation makes a read short, the rest arrives later and with an event. Listeners are
//! level-triggered. Closing with bytes unread is a reset, and bytes that arrive at a closed socket
//! are answered with one.
//!
//! *TLS.* About half of the seeds have clients and clusters that speak TLS 1.2 or 1.3, for every
//! protocol. A handshake cannot be made deterministic, so the simulation begins after it: both ends
//! get keys from the seed, and a worker's connection gets its record layer right after the turn in
//! which it began (`proxy::SkipHandshake`). The peers' records are of odd sizes, padded and empty,
//! between tickets, key updates and warnings; some peers close without close_notify where they may,
//! are cut off, or corrupt a record. The configuration has no TLS then, and handshakes are not
//! tested here.
//!
//! *What is not modelled.* Loss and retransmission (they show as delay), urgent data, keepalive
//! probes, Fast Open, `SO_LINGER` other than resets, path MTU and windows beyond the two buffers,
//! the cost of system calls. Two workers never run at the same time, which makes no difference to
//! them: they share nothing but mailboxes.
#![forbid(unsafe_code)]
#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a simulation that is wrong about itself must stop where it is"
)]

mod calls;
mod client;
mod configuration;
mod delivered;
mod faults;
mod filter;
mod frames;
mod http;
mod ledger;
mod named;
mod network;
#[expect(unreachable_pub, reason = "others include it, too")]
#[path = "../../wire/tests/rpc/pico.rs"]
mod pico;
mod plan;
mod random;
mod records;
mod seed_limit;
mod service;
mod simulation;
mod trace;
mod versions;
mod world;

pub use client::{Behaviour, CallsClient, Client, Http2Client, Leave, RelayClient};
pub use configuration::{Configurations, Patience, label, names};
pub use faults::{Faults, ServiceFaults};
pub use ledger::{Ledger, Outcome};
pub use network::{EndId, ListenerSocket, Network, Owner, PeerId, Shared, Wake};
pub use plan::{RelayPlan, RequestBody, RequestPlan, ResponseFraming, ResponsePlan};
pub use random::Random;
pub use seed_limit::{SEED_MAX, SeedLimit};
pub use service::{Service, Speech};
pub use simulation::{Asker, Returns, Scenario, Simulation, Summary, Violations};
pub use trace::Trace;
pub use world::{SimListener, SimSocket, SimWorld};
