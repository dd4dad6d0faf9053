//! proxy
#![forbid(unsafe_code)]
