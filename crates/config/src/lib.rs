//! Text to snapshot: typed, valid, immutable.
//!
//! ```text
//! text ─ text::tree ─ text::shape ─ file::* ─ build ─ store ─ snapshot::*
//!        with places  unknown keys, types     names,   ids,     what workers
//!                     kinds, bounds           hosts    changes  use
//! ```
//!
//! Endpoints may stand in files of their own ([`Loader::prepare_endpoints`]): these go from the text to
//! `resource::Assignment` and to the store, past everything else.
//!
//! A [`Loader`] takes one text after the other and gives an `Arc<Snapshot>` or [`Errors`]: all of
//! them at once, each with its place and what would be right. The types in [`mod@file`] are the only
//! description of what may be written; the JSON Schema ([`schema()`]), the reference
//! ([`reference()`]) and the checks come from them.
#![forbid(unsafe_code)]

pub mod accept_rate;
pub mod access_log;
pub mod adaptive;
pub mod address;
mod agreed;
mod answers;
pub mod balance;
pub mod breakers;
mod build;
mod certificates;
pub mod chain_names;
pub mod chains;
pub mod checks;
pub mod cidr;
pub mod clients;
pub mod date;
pub mod decimal;
pub mod defaults;
mod delivered;
mod described;
pub mod dns;
pub mod drained;
pub mod edits;
mod effective;
mod endpoint_files;
pub mod error_pages;
mod expiry;
pub mod explain;
pub mod file;
pub mod file_mode;
pub mod filters;
pub mod findings;
pub mod handlers;
mod handover_alone;
pub mod hash;
pub mod hash_table;
pub mod health;
pub mod hosts;
mod ids;
mod load;
pub mod locality;
mod map;
pub mod matching;
pub mod memory;
pub mod metrics;
pub mod mirrors;
mod nearest;
mod origins;
pub mod outlier;
pub mod outside;
pub mod paths;
pub mod preconnect;
pub mod priority;
pub mod protocols;
pub mod reports;
mod resource;
pub mod retry;
pub mod rewrite;
pub mod runtime;
pub mod schedule;
mod secrets;
pub mod shared_cell;
pub mod slow_start;
pub mod snapshot;
mod store;
pub mod subsets;
pub mod targets;
mod text;
pub mod transports;
pub mod units;
mod variables;
pub mod view;
pub mod wildcard;
mod xxhash;

pub use agreed::{Agreed, AgreedKind, agreed};
pub use certificates::{CertificateUse, CertificateUser, brings_certificates, certificates};
pub use delivered::{
    NamesChanged, RESOURCE_BYTES_MAX, RESOURCES_MAX, Text, UPDATES_WAITING_MAX, Unbound, Update,
    Verdict, Waits, holds_key,
};
pub use described::{referred_by, resource};
pub use effective::{Effective, effective, effective_yaml};
pub use endpoint_files::EndpointsOutcome;
pub use filters::{FilterError, FilterKinds};
pub use findings::{Errors, FINDINGS_LOGGED_MAX, FINDINGS_MAX, Finding, Problem, first_findings};
pub use handover_alone::HandoverReader;
pub use load::{Loader, Prepared, PreparedEndpoints, PreparedUpdates};
pub use origins::{Origins, ResourceKind, ResourceName};
pub use outside::Outside;
pub use secrets::MASK;
pub use text::{FILE_BYTES_MAX, SchemaError, reference, schema};
pub use xxhash::xxh64;
