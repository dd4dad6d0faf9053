//! `handover`: how another process takes this one's place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::Timeout;
use crate::defaults;
use crate::units::Period;

/// How another process can replace this one and take over its sockets and connections: `strait upgrade`, or `strait run
/// --take-over`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Handover {
    /// The socket that the other process connects to. Its folder must belong to the user of this process and have mode
    /// 0700 (with `users`: 0711, or 0710); Strait creates the folder if it is missing. A change requires a restart. Absent: `handover/strait.sock` in the folder of the
    /// environment variable `RUNTIME_DIRECTORY`, which systemd sets; without that, handovers are not possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 107))]
    pub socket: Option<String>,
    /// Time until the other process must have everything that can move. Beyond it, this process takes everything back. TLS
    /// handshakes are waited for for 10 s at most, or the longest `timeouts.tls_handshake` of the listeners if that is more, and only
    /// until 5 s before the end of this time (half of it, if that is less).
    #[schemars(extend("x-maximum" = "1h"))]
    pub timeout: Timeout,
    /// How long this process keeps the listening sockets afterwards. If the other process ends in this time, this one
    /// accepts connections again.
    #[schemars(extend("x-maximum" = "1h"))]
    pub probation: Period,
    /// Ids of users, besides root and the user of this process, whose processes may take over. Any process that can reach the
    /// folder of `socket` can then connect, and is refused if its user is not one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// What systemd keeps for the next process, also after a crash or a restart. The unit needs
    /// `FileDescriptorStoreMax`.
    pub fd_store: FdStore,
}

/// What a service manager keeps for the next process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FdStore {
    /// Nothing is kept.
    #[default]
    Off,
    /// The listening sockets are kept: clients that connect meanwhile wait, and are refused only when the service
    /// is stopped.
    Listeners,
    /// The listening sockets are kept, and at SIGTERM all connections with their state, too: the next process continues
    /// them, so that `systemctl restart` closes none. Connections that cannot move drain. After `systemctl stop` systemd closes
    /// all of them; send SIGQUIT or `POST /drain` before it to drain instead.
    Connections,
}

impl FdStore {
    /// Whether listening sockets are kept.
    #[must_use]
    pub const fn keeps_listeners(self) -> bool {
        matches!(self, Self::Listeners | Self::Connections)
    }
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
