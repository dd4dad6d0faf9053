//! strait
#![forbid(unsafe_code)]
fn main() {}
