//! Compares the crate's statements about the kernel with the kernel: loopback and unix sockets,
//! ports zero, no sleeps.

#![forbid(unsafe_code)]

mod exhaustion;
mod interception;
mod listeners;
mod machine;
mod packets;
mod pair;
mod pipes;
mod readiness;
mod sockets;
