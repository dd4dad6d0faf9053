//! Conversations with a proxy: scripts of bytes each way, in order. See `kit` for how each is held
//! in several variants.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that finds nothing has failed, and says in which variant"
)]

mod kit;

#[path = "../checks/exchange.rs"]
mod exchange;
#[path = "../checks/h2_exchange.rs"]
mod h2_exchange;
#[path = "../checks/rpc_exchange.rs"]
mod rpc_exchange;
#[path = "../checks/saved.rs"]
mod saved;

mod age;
mod balance;
mod bodies;
mod buffered;
mod calls;
mod cancellations;
mod captures;
mod chains;
mod checks;
mod corpus;
mod debug_log;
mod details;
mod edits;
mod endpoint_bounds;
mod endpoint_hosts;
mod ends;
mod error_pages;
mod filter_bodies;
mod filters;
mod forms;
mod frames;
mod handlers;
mod hash;
mod heads;
mod hedging;
mod http2;
mod keep_alive;
mod leaving;
mod localities;
mod lookalikes;
mod mirrors;
mod misdirected;
mod on_demand;
mod original;
mod outliers;
mod overload;
mod pools;
mod preconnect;
mod priorities;
mod proxy_sources;
mod reconfiguring;
mod refusals;
mod relays;
mod replies;
mod reports;
mod retries;
mod retry_policy;
mod routes;
mod rpc;
mod sizes;
mod slow;
mod spellings;
mod stages;
mod subsets;
mod timeouts;
mod tls;
mod tunnels;
