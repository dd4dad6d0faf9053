//! What the programs of the benchmark share. They are: `relay`, the floor that a proxy is compared
//! with; `upstream`, a service that costs next to nothing; `load`, requests at a fixed rate or as
//! fast as they are answered; `tls-load`, a new connection of TLS for each request; `stream`, many
//! bytes on one connection; `idle`, many connections that do nothing.
//!
//! Each runs one thread on one epoll, prints the address that it listens on (if it listens) as its
//! first line, and ends when it is killed. The way to run them together is `cargo xtask bench`;
//! the method is in `bench/README.md`.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod frames;
pub mod latencies;
pub mod messages;
pub mod requests;
pub mod service;
pub mod tls;
