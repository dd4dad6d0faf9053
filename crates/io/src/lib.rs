//! The kernel's side of the data path: epoll, sockets, clocks and what a process may use.
//!
//! This crate does not depend on HTTP, configuration or workers. Every call is non-blocking,
//! nothing is allocated per call, and errors are the kernel's, which the caller interprets.
//! Linux only.
//!
//! The order that the calls below are made for, and that callers rely on:
//!
//! * a socket is registered once, edge-triggered for both directions, right after it exists;
//! * a reader goes on until `WouldBlock` or a short read, but a short read ends the reading only
//!   while [`Readiness::is_open`] (a FIN that was queued behind the bytes has no edge of its own);
//! * a writer that was refused waits for the next writable event; no interest is ever changed.
//!
//! The safe interface of `rustix` covers all but a few socket options and the allocator, so the crate's
//! only unsafe calls are in the modules `option`, `traffic`, `allocator`, `inherited`, `init` and `passing`.

#![deny(unsafe_code)]

pub mod affinity;
pub mod clock;
#[expect(unsafe_code, reason = "descriptors come as numbers; see the module's own text")]
pub mod inherited;
#[expect(unsafe_code, reason = "rustix has no masks of signals; see the module's own text")]
pub mod init;
pub mod limits;
pub mod packets;
#[expect(unsafe_code, reason = "rustix does not handle signals; see the module's own text")]
pub mod passing;
pub mod process;
pub mod sealed;
pub mod users;

mod address;
#[expect(
    unsafe_code,
    reason = "only the C library knows its free memory; see the module's own text"
)]
mod allocator;
mod errno;
mod listener;
#[expect(unsafe_code, reason = "rustix lacks these options; see the module's own text")]
mod option;
mod pipe;
mod poller;
mod socket;
mod socket_file;
#[expect(unsafe_code, reason = "rustix lacks these calls; see the module's own text")]
mod traffic;
mod waker;
mod yielding;

pub use address::Address;
pub use allocator::release_free_memory;
pub use errno::errno_name;
pub use listener::{AcceptError, BindError, ListenOptions, Listener};
pub use pipe::Pipe;
pub use poller::{EVENTS_MAX, Event, Events, Poller, Readiness};
pub use socket::{ConnectOptions, ConnectState, Keepalive, Socket};
pub use socket_file::{is_path_free, own_socket_files};
pub use traffic::Traffic;
pub use waker::Waker;
pub use yielding::Yielding;
