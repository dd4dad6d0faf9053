//! sim
#![forbid(unsafe_code)]
