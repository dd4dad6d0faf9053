//! worker
#![forbid(unsafe_code)]
