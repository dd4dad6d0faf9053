//! How far this process is in a handover, as control sees it.

use super::Reading;
use crate::signals::Asked;

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
        /// What of all that was meant for the process that serves, which the other one may be by then.
        for_server: ForServer,
    },
    /// Another process has taken it.
    Given {
        /// Its id.
        successor: u32,
        /// Whether this one serves, since that one does not run.
        stands_in: bool,
        /// Whether the process that serves was asked to end, by a signal to this one.
        end: EndAsked,
    },
    /// That process gives everything back. Signals to end wait.
    TakingBack {
        /// Its id.
        successor: u32,
        /// How often this process was asked to end meanwhile.
        asked_to_end: u32,
        /// What of all that was meant for the process that serves, which this one may be by then.
        for_server: ForServer,
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

    /// The start of a process that has been replaced by this one.
    pub(super) const fn given(successor: u32) -> Self {
        Self::Given { successor, stands_in: false, end: EndAsked::No }
    }

    /// What was meant for the process that will serve.
    pub(super) fn for_server(self) -> ForServer {
        match self {
            Self::Giving { for_server, .. } | Self::TakingBack { for_server, .. } => for_server,
            Self::None | Self::Given { .. } | Self::Taking { .. } => ForServer::default(),
        }
    }

    /// The process that serves in this one's place.
    pub(super) const fn successor(self) -> Option<u32> {
        match self {
            Self::Given { successor, .. } | Self::TakingBack { successor, .. } => Some(successor),
            Self::None | Self::Giving { .. } | Self::Taking { .. } => None,
        }
    }
}

/// What signals have asked of the process that serves, while it is open which one will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ForServer {
    /// It is to end.
    pub(super) is_to_end: bool,
    /// It is to read the configuration again.
    pub(super) is_to_reload: bool,
    /// It is to open the access log again.
    pub(super) is_to_reopen: bool,
}

impl ForServer {
    /// Adds what a signal asks for.
    pub(super) fn note(&mut self, asked: Asked) {
        self.is_to_end |= asked.is_end();
        self.is_to_reload |= asked == Asked::Reload;
        self.is_to_reopen |= asked == Asked::ReopenLog;
    }
}

/// Whether a process that has been replaced was asked to end, as the one that serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EndAsked {
    /// It was not.
    #[default]
    No,
    /// The process that serves has got that.
    PassedOn,
    /// The process that serves cannot get it: this one ends.
    Here,
}
