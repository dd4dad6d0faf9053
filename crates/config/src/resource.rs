//! Resources: what snapshots are linked of, typed and valid in themselves. Each kind is one module; so are `tls`, which listeners and
//! clusters have, the error pages of listeners and route tables, the filters that a program knows, and the access log.
//!
//! ```text
//! resource/cluster.rs          what workers use
//!         /cluster/file.rs     what may be written, with defaults and documentation
//!         /cluster/build.rs    one made of the other, or the errors
//!         /cluster/...         parts that are large enough for a file of their own
//! ```
//!
//! Of an assignment and a secret, `file.rs` has what other sources deliver.
//!
//! What may be written names other resources. Building looks their ids up, or reserves them ([`crate::ids`]); [`crate::store`] says
//! which of these are new. So a resource may come from the configuration file or from a source of its own, and what is made of it
//! is the same. [`crate::file`], [`crate::sections`] and [`crate::snapshot`] have what concerns a whole configuration, and what
//! listeners and clusters have alike, such as `keepalive` and `http2`.

pub(crate) mod access_log;
pub(crate) mod assignment;
pub(crate) mod cluster;
pub mod error_pages;
pub mod filter;
pub(crate) mod listener;
pub(crate) mod route;
pub mod runtime;
pub(crate) mod secret;
pub(crate) mod tls;

pub(crate) use assignment::{Assignment, Endpoint, WEIGHTS_MAX};
pub(crate) use route::virtual_hosts::{RouteConfig, leads_the_same};
pub(crate) use secret::{Secret, SecretPart};
