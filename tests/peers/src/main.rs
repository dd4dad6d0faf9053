//! Strait against real programs.

#![forbid(unsafe_code)]

fn main() {}
