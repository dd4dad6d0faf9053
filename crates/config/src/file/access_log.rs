//! `access_log`: what is written about each exchange.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is written about each exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// Where lines go: `stdout`, or the path of a file that is appended to and opened again on
    /// SIGUSR1, relative to the folder of this file and with a `/` in it. A named pipe has to have its
    /// reader first. Absent: no access log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How a line looks.
    pub format: Format,
    /// Whether stage times are taken: for the access log, the histograms and `/slow`.
    pub stage_times: bool,
}

impl Default for AccessLog {
    fn default() -> Self {
        // Stage times cost little, and are missed most when they were off.
        Self { output: None, format: Format::Json, stage_times: true }
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
}
