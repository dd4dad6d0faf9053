//! `access_log`: what is written about each exchange.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Period;

/// What is logged about each exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// Where lines are written: `stdout`, `stderr`, or the path of a file, with a `/` in it and relative to the folder
    /// of the configuration. Strait appends to the file, and opens it again on SIGUSR1. A named pipe must already have
    /// a reader. Absent: no access log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Format of a line.
    pub format: Format,
    /// The fields of a line, in order: names from [access-log.md](../access-log.md), and header fields as
    /// `request_headers.NAME` and `response_headers.NAME`, truncated to 256 bytes each and 2 KiB in total. With
    /// `format: text`, the beginning of a line does not change. Absent: all fields except header fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub fields: Option<Vec<String>>,
    /// If not empty, only exchanges that match one of these conditions are logged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Condition>,
    /// Exchanges that match one of these conditions are not logged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Condition>,
    /// Whether stage times are measured: for the access log, the histograms and `/slow`.
    pub stage_times: bool,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            output: None,
            format: Format::Json,
            fields: None,
            only: Vec::new(),
            except: Vec::new(),
            // Stage times cost little, and are missed most when they were off.
            stage_times: true,
        }
    }
}

/// Format of an access log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-meant" = {
    "*%*": "write one of them, and what a line has in `fields`, a list of names of docs/access-log.md",
    "*$*": "write one of them, and what a line has in `fields`, a list of names of docs/access-log.md",
}))]
pub enum Format {
    /// One JSON object on each line.
    Json,
    /// The beginning of the Common Log Format, followed by `key=value` pairs.
    Text,
    /// The Combined Log Format of Apache and nginx, with `referer` and `user-agent`.
    Combined,
}

/// A condition on exchanges. All of its keys must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Condition {
    /// The status is one of these: `503`, `5xx`, `400-499`, or `none` if no status was sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// The path, with its query, begins with one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// The exchange took longer than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower_than: Option<Period>,
    /// One of this many exchanges that match the other keys: 100 for one in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_in: Option<NonZeroU32>,
}

/// A status, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Status {
    /// A single status code.
    One(#[schemars(range(min = 100, max = 599))] u16),
    /// Several: `5xx`, `400-499`, or `none`.
    Several(String),
}
