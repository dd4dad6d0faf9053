//! The control path: configuration files, signals, the admin interface, the access log's writer.
//!
//! [`Control`] runs on a thread of its own, with a runtime of its own, and is the only owner of
//! what it knows; the admin interface, the file watch and the signals send it messages. It knows
//! the data path by what [`Workers`] offers and [`Report`]s say, and no more: workers go on when
//! their reports are not read.
//!
//! ```text
//!   file watch ─┐                        ┌─► Workers (snapshots, drain, answers)
//!   signals ────┼─► Control ─────────────┼─► LogWriter (names, output)   threads; one may block
//!   admin ──────┤     ▲ ▲                └─► Builder (files, snapshots)  a thread; it takes its time
//!   Reports ────┘     │ └── Answerers (what filters ask)    │
//!                     └──────── candidates or errors ───────┘
//! ```
#![forbid(unsafe_code)]

mod admin;
mod builder;
mod changes;
mod checks;
mod clock;
mod dns;
mod expiry;
mod files;
mod handover;
mod handover_report;
mod health;
mod last_good;
mod log_output;
mod log_writer;
mod memory;
mod moves;
mod names;
mod outliers;
mod overflows;
mod pace;
mod questions;
mod rebalance;
mod reload;
mod run;
#[cfg(test)]
mod scratch;
mod service_manager;
mod signals;
mod source;
mod storing;
mod tick;
mod warming;
mod watch;
mod workers;

pub use admin::{
    AdminSocket, ExplainRequest, ExplainStep, OldProcess, own_admin_files, set_socket_mode,
};
#[doc(hidden)]
pub use dns::records_of_dns_answer;
pub use files::{Files, STDIN};
pub use handover::{
    Begun, FormerState, GivenAdmin, HandoverChange, HandoverFact, HandoverQuestion, HandoverStep,
    KeptAdmin, ListedRows, OwnState,
};
pub use handover_report::{HandoverNews, HandoverResult};
pub use last_good::{DeliveredError, DeliveredResources};
pub use log_output::{LogOutput, OpenError};
pub use log_writer::LogWriter;
pub use moves::{ConnectionId, ConnectionWork, GroupMax, Moved, Mover, NotMoved};
pub use questions::Answerers;
pub use reload::{Accepted, Candidate, ConfigFile, Refused, handover_options, read_text};
pub use run::{Control, Outcome, Parts};
pub use service_manager::{
    STORED_CONNECTIONS, ServiceManager, SocketFileId, StoredSocket, stored_name,
};
pub use signals::{note_requests, note_signals};
pub use source::Source;
pub use storing::{StoredCounts, Storer};
pub use warming::{EarlyAdmin, WarmingError};
pub use workers::{BindFailure, Bound, Report, Workers};
