//! What happens to bytes between a listener and an endpoint, as plain data moved forward by events.
//!
//! [`Proxy`] is everything that one worker's connections are. It reads no socket and no clock: the
//! worker tells it what happened (`on_*`), with the time, and then does what it asks for
//! ([`Proxy::poll_op`]). The same value runs on the kernel and in the simulation.
//!
//! A folder each, in the order in which a request meets them:
//!
//! | folder | has |
//! |---|---|
//! | `listen` | listeners, which chain a connection meets, clients and what they may hold, drain |
//! | `connection` | a connection, its codec, TLS and handshakes, what is sent on without being read |
//! | `exchange` | an exchange's stages, deadlines, bodies, forwarded fields, calls, replies, faults, record |
//! | [`filter`] | what a filter is, and how a chain of them runs |
//! | `upstream` | clusters, the choice of an endpoint, pools, original destinations |
//! | [`save`] | all of that as bytes, and back |
//! | `tools` | tables, timers, buffers, time: they know of no connection |
//!
//! Each has a value that owns its tables, and [`Proxy`] owns these values. A method takes the values
//! that it needs, and may take only what stands to the right of its own:
//!
//! ```text
//! Proxy ─► Exchanges ─► Upstreams ─► Connections ◄─► Listen ─► Cx
//! ```
//!
//! `Cx` has what all need and no peer is part of: timers, buffers, operations, events, the configuration.
//! What one event needs of all of them is a method of [`Proxy`]. Nothing on the right calls what stands
//! on the left: it leaves a note on the `agenda`, which `Proxy` settles when the event is over.
#![forbid(unsafe_code)]

mod agenda;
mod connection;
mod cx;
mod exchange;
pub mod filter;
mod listen;
mod ops;
mod proxy;
pub mod save;
mod share;
mod timers;
mod tools;
mod upstream;

/// A configuration with the filters that run here.
pub type Snapshot = config::snapshot::Snapshot<Box<dyn filter::Filter>>;

pub use connection::describe::{ConnectionSummary, SummarySide};
pub use connection::passthrough::Passthrough;
pub use connection::{ConnKey, Connection, ExchangeKey, StreamKey};
pub use exchange::Exchange;
pub use exchange::fault;
pub use exchange::route;
pub use listen::misdirected;
pub use ops::{ConnectFailure, ConnectOptions, Op};
pub use proxy::{Load, Proxy};
pub use share::{Settings, Share};
pub use tools::buffers::BufferUse;
pub use tools::outbox::SLICES_MAX;
pub use tools::peer_address::PeerAddress;
pub use tools::slab;
pub use tools::time;
