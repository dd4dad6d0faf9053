//! Text to snapshot: typed, valid, immutable.
//!
//! ```text
//! text ─ text::tree ─ text::shape ─ file::* ─ sections ─ store ─ snapshot::*
//!        with places  unknown keys, types     names,      ids,     what workers
//!                     kinds, bounds           hosts       changes  use
//! ```
//!
//! Each kind of resource has one module in `resource`, with its part of `file`, `sections` and `snapshot`, and its features.
//!
//! Endpoints may stand in files of their own ([`Loader::prepare_endpoints`]): these go from the text to
//! `resource::Assignment` and to the store, past everything else.
//!
//! A [`Loader`] takes one text after the other and gives an `Arc<Snapshot>` or [`Errors`]: all of
//! them at once, each with its place and what would be right. The types that [`mod@file`] names are the only
//! description of what may be written; the JSON Schema ([`schema()`]), the reference
//! ([`reference()`]) and the checks come from them.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod address;
mod agreed;
pub mod cidr;
pub mod date;
pub mod decimal;
pub mod defaults;
mod delivered;
mod described;
mod effective;
pub mod file;
pub mod file_mode;
pub mod findings;
mod handover_alone;
pub mod hosts;
mod ids;
mod load;
mod map;
pub mod memory;
pub mod metrics;
mod nearest;
mod origins;
pub mod outside;
pub mod percent;
mod printable;
pub mod protocols;
mod redact;
pub mod reports;
mod resource;
mod secrets;
mod sections;
pub mod shared_cell;
pub mod snapshot;
mod store;
mod text;
pub mod units;
mod variables;
pub mod wildcard;
mod xxhash;

pub use agreed::{Agreed, AgreedKind, agreed};
pub use delivered::{
    NamesChanged, RESOURCE_BYTES_MAX, RESOURCES_MAX, Text, UPDATES_WAITING_MAX, Unbound, Update,
    VERSION_BYTES_MAX, Verdict, Waits, holds_key,
};
pub use described::{referred_by, resource};
pub use effective::{Effective, effective, effective_yaml};
pub use findings::{Errors, FINDINGS_LOGGED_MAX, FINDINGS_MAX, Finding, Problem, first_findings};
pub use handover_alone::HandoverReader;
pub use load::{Loader, Prepared, PreparedEndpoints, PreparedUpdates};
pub use origins::{Origins, ResourceKind, ResourceName};
pub use outside::Outside;
pub use printable::Printable;
pub use resource::assignment::files::EndpointsOutcome;
pub use resource::assignment::{dns, locality};
pub use resource::cluster::{
    adaptive, balance, breakers, checks, drained, hash_table, health, outlier, preconnect,
    priority, schedule, slow_start, subsets, transports, view,
};
pub use resource::error_pages;
pub use resource::filter as filters;
pub use resource::filter::{FilterError, FilterKinds, handlers};
pub use resource::listener::{accept_rate, chain_names, chains};
pub use resource::route::{
    clients, edits, explain, hash, matching, mirrors, paths, retry, rewrite, targets,
};
pub use resource::runtime;
pub use resource::tls::certificates::{
    CertificateUse, CertificateUser, brings_certificates, certificates,
};
pub use secrets::MASK;
pub use text::{FILE_BYTES_MAX, SchemaError, reference, schema};
pub use xxhash::xxh64;
