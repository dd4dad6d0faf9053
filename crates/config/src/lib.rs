//! Text to snapshot: typed, valid, immutable.
#![forbid(unsafe_code)]

pub mod hosts;
pub mod paths;
pub mod snapshot;
