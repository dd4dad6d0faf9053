//! filters
#![forbid(unsafe_code)]
