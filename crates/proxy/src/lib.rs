//! What happens to bytes between a listener and an endpoint, as plain data moved forward by events.
//!
//! [`Proxy`] is everything that one worker's connections are. It reads no socket and no clock: the
//! worker tells it what happened (`on_*`), with the time, and then does what it asks for
//! ([`Proxy::poll_op`]). The same value runs on the kernel and in the simulation.
//!
//! What one event needs of several parts is a method of [`Proxy`], in `proxy` below a folder for each leg
//! of a request's way:
//!
//! | folder of `proxy` | has |
//! |---|---|
//! | `listen` | connections are accepted, detected, relayed, and end with their listener or their age |
//! | `receive` | handshakes and records of TLS, what peers send becomes elements, elements reach their exchange |
//! | `request` | a request goes through filters and routing to an upstream connection |
//! | `response` | a response, or an answer of our own, goes to the client |
//! | `end` | how exchanges end: finished, failed, late, or with one of their connections |
//!
//! What a part can do by itself, or with those behind it, is in a folder of its own:
//!
//! | folder | has |
//! |---|---|
//! | `listen` | listeners, which chain a connection meets, clients and what they may hold |
//! | `connection` | a connection, its codec, TLS and handshakes |
//! | `exchange` | an exchange's stages, deadlines, bodies, forwarded fields, calls, faults, record |
//! | [`filter`] | what a filter is, and where an exchange is in a chain of them |
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
//! Nothing on the right calls what stands on the left: it leaves a note on the `agenda`, which `Proxy`
//! settles when the event is over. `cargo xtask tidy` checks the order, that methods of each stand in its
//! own folder and in `save` alone (those of `Cx` stand beside what they are for), and that no more than
//! three files import each other in a circle.
#![forbid(unsafe_code)]

mod agenda;
mod connection;
mod cx;
mod exchange;
pub mod filter;
mod keys;
mod listen;
mod ops;
mod proxy;
pub mod save;
mod share;
mod timers;
mod tools;
mod upstream;

/// A filter as a configuration has it.
pub type BuiltFilter = Box<dyn filter::Filter>;

/// A configuration with the filters that run here.
pub type Snapshot = config::snapshot::Snapshot<BuiltFilter>;

pub use connection::Connection;
pub use exchange::Exchange;
pub use exchange::fault;
pub use exchange::request_fields;
pub use exchange::route;
pub use keys::{ConnKey, ExchangeKey, OfConnection, OfExchange, StreamKey};
pub use listen::misdirected;
pub use ops::{ConnectFailure, ConnectOptions, Op};
pub use proxy::receive::handshake::SkipHandshake;
pub use proxy::receive::passthrough::{Passed, Passthrough};
pub use proxy::{Load, Proxy};
pub use share::{Bells, Settings, Share};
pub use tools::buffers::BufferUse;
pub use tools::outbox::SLICES_MAX;
pub use tools::peer_address::PeerAddress;
pub use tools::slab;
pub use tools::time;
