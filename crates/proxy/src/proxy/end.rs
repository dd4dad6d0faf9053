//! How exchanges end: finished, failed, late, or with one of their connections.

mod deadlines;
mod downstream;
mod exchange;
mod stalls;
mod upstream;
