//! `handover`: how another process takes this one's place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Timeout;
use crate::defaults;
use crate::units::Period;

/// How another process takes this one's place, with its sockets and its connections: `strait upgrade`, or
/// `strait run --take-over`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Handover {
    /// The socket that the other process connects to. Its folder must be owned by the user of this process with mode
    /// 0700, and is made so if it is missing. Absent: `handover/strait.sock` in the folder that systemd names by
    /// `RUNTIME_DIRECTORY`, and no handovers where it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 107))]
    pub socket: Option<String>,
    /// How long a handover may take until the other process has everything that can move. After it, this process
    /// takes everything back.
    #[schemars(extend("x-maximum" = "1h"))]
    pub timeout: Timeout,
    /// How long this process then keeps the listening sockets: if the other one ends in this time, this one
    /// accepts again.
    #[schemars(extend("x-maximum" = "1h"))]
    pub probation: Period,
    /// Ids of users, beside the one of this process and root, whose processes may take over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// What systemd keeps for the next process, also where this one crashes or is restarted. Its unit needs
    /// `FileDescriptorStoreMax`.
    pub fd_store: FdStore,
}

/// What a service manager keeps for the next process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FdStore {
    /// Nothing.
    #[default]
    Off,
    /// The listening TCP sockets: clients that connect meanwhile wait, and are refused only when the service is stopped.
    Listeners,
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            socket: None,
            timeout: Timeout(defaults::HANDOVER_TIMEOUT),
            probation: defaults::HANDOVER_PROBATION,
            users: Vec::new(),
            fd_store: FdStore::Off,
        }
    }
}
