//! Why a handover does not take place.

use crate::deadlines::Phase;
use crate::frame::FrameError;

/// Why a handover does not take place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The other process ended, or closed the connection.
    #[error("the other process ended during {0}")]
    Closed(Phase),
    /// A frame came with another number of descriptors than it names.
    #[error("{got} descriptors came where {expected} were named, during {phase}")]
    Descriptors {
        /// When.
        phase: Phase,
        /// How many the frame names.
        expected: usize,
        /// How many came with it.
        got: usize,
    },
    /// Bytes that are no frame.
    #[error("a frame cannot be read during {phase}: {error}")]
    Frame {
        /// When.
        phase: Phase,
        /// What is wrong with it.
        error: FrameError,
    },
    /// The other side says that it cannot go on.
    #[error("the other process gave up: {0}")]
    GaveUp(String),
    /// A frame is larger, or there are more of them, than any process would need.
    #[error("{what} exceeds {max}")]
    OverBound {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// A frame came when another was due.
    #[error("unexpected message {message} during {phase}")]
    OutOfTurn {
        /// When.
        phase: Phase,
        /// The kind of the frame.
        message: &'static str,
    },
    /// This side cannot go on.
    #[error("{0}")]
    Own(String),
    /// No version that both speak.
    #[error("the other process speaks versions {min} to {max}, and this one {}", crate::VERSION)]
    Version {
        /// The oldest.
        min: u16,
        /// The newest.
        max: u16,
    },
    /// The whole of it took too long.
    #[error("the handover takes longer than handover.timeout: it came to {0}")]
    Late(Phase),
    /// Nothing came in time.
    #[error("the other process did not answer in time during {0}")]
    Silent(Phase),
}

impl Failure {
    /// A word for counters: one of a closed set.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Closed(_) => "closed",
            Self::Descriptors { .. } => "descriptors",
            Self::Frame { .. } => "garbled",
            Self::GaveUp(_) => "gave_up",
            Self::OverBound { .. } => "over_bound",
            Self::OutOfTurn { .. } => "out_of_turn",
            Self::Own(_) => "own",
            Self::Version { .. } => "version",
            Self::Late(_) => "timeout",
            Self::Silent(_) => "silent",
        }
    }
}
