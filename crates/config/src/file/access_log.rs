//! `access_log`: what is written about each exchange.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Period;

/// What is written about each exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// Where lines go: `stdout`, `stderr`, or the path of a file that is appended to and opened again on
    /// SIGUSR1, relative to the folder of this file and with a `/` in it. A named pipe has to have its
    /// reader first. Absent: no access log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How a line looks.
    pub format: Format,
    /// The fields of a line, in their order: names of [access-log.md](../access-log.md), and header fields as
    /// `request_headers.NAME` and `response_headers.NAME`, cut at 256 bytes each and 2 KiB in all. Of `format: text`, the
    /// beginning of a line stays. Absent: all but header fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub fields: Option<Vec<String>>,
    /// If not empty, only exchanges for which one of these holds have a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Condition>,
    /// Exchanges for which one of these holds have no line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Condition>,
    /// Whether stage times are taken: for the access log, the histograms and `/slow`.
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

/// How an access log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// `key=value` pairs behind a Common Log Format beginning.
    Text,
    /// The Combined Log Format of Apache and nginx, with `referer` and `user-agent`.
    Combined,
}

/// Which exchanges are meant: all that is written has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Condition {
    /// The status is one of these: `503`, `5xx`, `400-499`, or `none` where none was sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// The path, with its query, begins with one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// It took longer than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower_than: Option<Period>,
    /// One of so many, of those for which the rest holds: 100 for one in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_in: Option<NonZeroU32>,
}

/// A status, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Status {
    /// One.
    One(#[schemars(range(min = 100, max = 599))] u16),
    /// Several: `5xx`, `400-499`, or `none`.
    Several(String),
}
