//! How far this process is in a handover, as control sees it.

use super::Reading;

/// How far this process is in a handover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handing {
    /// There is none.
    #[default]
    None,
    /// Another process is taking this one's place. Files are not read; signals to end wait.
    Giving {
        /// How files are to be read afterwards, if something asked for that meanwhile.
        postponed: Option<Reading>,
        /// How often the process was asked to end meanwhile.
        asked_to_end: u32,
    },
    /// Another process has taken it.
    Given {
        /// Its id.
        successor: u32,
        /// Whether this one serves, since that one does not run.
        stands_in: bool,
    },
    /// That process gives everything back. Signals to end wait.
    TakingBack {
        /// Its id.
        successor: u32,
        /// How often this process was asked to end meanwhile.
        asked_to_end: u32,
    },
    /// This process is taking the place of another: it does not answer on the admin interface yet. A signal to end waits once it has
    /// connections: to end then would close those that were served here.
    Taking {
        /// Whether it has connections of the other one.
        is_moving: bool,
        /// Whether the process was asked to end meanwhile.
        is_to_end: bool,
    },
}

impl Handing {
    /// The start of a process that takes another's place.
    pub(super) const TAKING: Self = Self::Taking { is_moving: false, is_to_end: false };

    /// The process that serves in this one's place.
    pub(super) const fn successor(self) -> Option<u32> {
        match self {
            Self::Given { successor, .. } | Self::TakingBack { successor, .. } => Some(successor),
            Self::None | Self::Giving { .. } | Self::Taking { .. } => None,
        }
    }
}
