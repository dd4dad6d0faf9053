//! Hops 2 and 3: connections are accepted, detected, and end with their listener.

mod accept;
mod age;
mod drain;
mod memory;
mod overload;
mod relay;
mod surplus;
