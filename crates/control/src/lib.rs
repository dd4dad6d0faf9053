//! The control path: configuration files, signals, the admin interface, the access log's writer.
//!
//! [`Control`] runs on a thread of its own, with a runtime of its own, and is the only owner of
//! what it knows; the admin interface, the file watch and the signals send it messages. It knows
//! the data path by what [`Workers`] offers and [`Report`]s say, and no more: workers go on when
//! nobody reads their reports.
//!
//! ```text
//!   file watch ─┐                        ┌─► Workers (snapshots, drain, answers)
//!   signals ────┼─► Control ─────────────┤
//!   admin ──────┤      ▲                 └─► LogWriter (names, output)   a thread, it may block
//!   Reports ────┘      └── Answerers (what filters ask)
//! ```
#![forbid(unsafe_code)]

mod admin;
mod clock;
mod expiry;
mod files;
mod log_writer;
mod names;
mod questions;
mod reload;
mod run;
mod signals;
mod watch;
mod workers;

pub use admin::{AdminSocket, ConnectionRow, ConnectionSide, Described};
pub use files::Files;
pub use log_writer::{LogOutput, LogWriter, OpenError};
pub use questions::{Answerers, Question};
pub use reload::{Accepted, Candidate, ConfigFile, Refused, read_text};
pub use run::{Control, Outcome, Parts};
pub use workers::{BindFailure, Bound, Report, Workers};
