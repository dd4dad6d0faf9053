//! What happens to bytes between a listener and an endpoint, as plain data moved forward by events.
//!
//! [`Proxy`] is everything that one worker's connections are. It reads no socket and no clock: the
//! worker tells it what happened (`on_*`), with the time, and then does what it asks for
//! ([`Proxy::poll_op`]). The same value runs on the kernel and in the simulation.
#![forbid(unsafe_code)]

mod age;
mod agenda;
mod balance;
mod buffered;
mod buffers;
mod calls;
mod chain;
mod client_cert;
mod clients;
mod connection;
mod deadlines;
mod describe;
mod downstream;
mod drain;
mod exchange;
pub mod fault;
pub mod filter;
mod forwarded;
mod frames;
mod handshake_slots;
mod http2;
mod lingering;
mod listeners;
mod lookalikes;
pub mod matching;
mod ops;
mod original;
mod outbox;
mod pinned;
mod places;
mod pool;
mod proxy;
mod pump;
mod random;
mod rate;
mod record;
mod relay;
mod reply;
mod request_buffer;
mod response;
pub mod route;
pub mod save;
mod sending;
mod signers;
pub mod slab;
mod spare;
mod stalls;
mod streams;
mod text;
pub mod time;
mod transport;
mod turns;
mod unread;
mod upstream;
mod wheel;

/// A configuration with the filters that run here.
pub type Snapshot = config::snapshot::Snapshot<Box<dyn filter::Filter>>;

pub use buffers::BufferUse;
pub use connection::{ConnKey, Connection, ExchangeKey, PeerAddress, StreamKey};
pub use describe::{ConnectionSummary, SummarySide};
pub use exchange::Exchange;
pub use ops::{ConnectOptions, Op};
pub use outbox::SLICES_MAX;
pub use proxy::{Load, Proxy, Settings, Share};
pub use unread::Unread;
