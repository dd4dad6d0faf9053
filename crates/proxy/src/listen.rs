//! Listeners: what comes in, which chain of its listener it meets, which clients it is from, and how a
//! listener ends.

pub(crate) mod age;
pub(crate) mod buffered;
pub(crate) mod clients;
pub(crate) mod drain;
pub(crate) mod handshake_slots;
pub(crate) mod listeners;
pub mod matching;
pub(crate) mod relay;
