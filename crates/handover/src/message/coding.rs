//! Messages as frames: the number of each kind, and what stands in its body.

use wiped::Wiped;

use super::{Hello, MAGIC, Message, Welcome};
use crate::frame::{self, FrameError, IGNORABLE};
use crate::text::{Entry, Lines};

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const PARTS: u16 = 3;
const DIFFERENCES: u16 = 4;
const SOCKETS: u16 = 5;
const SERVING: u16 = 6;
pub(crate) const PIECE: u16 = 7;
const BATCH_END: u16 = 8;
const TAKEN: u16 = 9;
const STATE: u16 = 10;
const COMMIT: u16 = 11;
const COMMITTED: u16 = 12;
const GIVE_UP: u16 = 13;
const OUTCOME: u16 = 14;
pub(crate) const PACK: u16 = 15;
const PROGRESS: u16 = IGNORABLE;
// A process that does not know these goes on as if there were none: nothing is given back, or ended early; a stopped process is
// not noticed in its probation, new listeners are stored later, and each group has a frame of its own.
const TAKE_BACK: u16 = IGNORABLE + 1;
const SUCCEEDED: u16 = IGNORABLE + 2;
const END_REMAINING: u16 = IGNORABLE + 3;
const ALIVE: u16 = IGNORABLE + 4;
const MAIN_PROCESS: u16 = IGNORABLE + 5;
const READS_PACKS: u16 = IGNORABLE + 6;
// It has a descriptor, which a process that does not know it would refuse: none is sent to one that does not ask for it.
const RESOURCES: u16 = IGNORABLE + 7;
// A process of an earlier version does not say that it lists its connections, and is not asked.
const LIST_CONNECTIONS: u16 = IGNORABLE + 8;
const CONNECTIONS: u16 = IGNORABLE + 9;
const BUSY: u16 = IGNORABLE + 10;
const UNUSED: u16 = IGNORABLE + 11;
const ENDS: u16 = IGNORABLE + 12;
const CONFIG_VERSION: u16 = IGNORABLE + 13;
const IS_PATIENT: u16 = IGNORABLE + 14;
// A process of an earlier version takes all files for its own.
const OWN_FILES: u16 = IGNORABLE + 15;
// One of an earlier version goes on without.
const TAKER_STATE: u16 = IGNORABLE + 16;
// One of an earlier version hears of it as it is asked to take everything back.
const GIVES_BACK: u16 = IGNORABLE + 17;
// One of an earlier version takes over though it would refuse new clients.
const DOWNSTREAM: u16 = IGNORABLE + 18;

impl Message {
    /// The frame.
    #[must_use]
    pub fn encode(&self) -> Wiped {
        let kind = self.kind();
        match self {
            Self::Hello(hello) => frame::encode(kind, &(hello, hello.reads_resources)),
            Self::Welcome(welcome) => frame::encode(kind, &(welcome, welcome.lists_connections)),
            Self::Parts { parts, is_last } => frame::encode(kind, &(parts, is_last)),
            Self::Differences { differences, is_last } => {
                frame::encode(kind, &(differences, is_last))
            }
            Self::Sockets { keys, is_last } => frame::encode(kind, &(keys, is_last)),
            Self::Serving | Self::Commit | Self::Committed => frame::encode(kind, &()),
            Self::Piece(piece) => frame::encode(kind, piece),
            Self::Pack { batch, groups } => frame::encode(kind, &(batch, groups)),
            Self::BatchEnd { batch, groups } => frame::encode(kind, &(batch, groups)),
            Self::Taken { batch, refused } => frame::encode(kind, &(batch, refused)),
            Self::State(piece) | Self::TakerState(piece) => frame::encode(kind, piece),
            Self::GiveUp { reason } => frame::encode(kind, reason),
            Self::TakeBack { reason } | Self::Ends { reason } | Self::GivesBack { reason } => {
                frame::encode(kind, reason)
            }
            Self::Succeeded
            | Self::EndRemaining
            | Self::Alive
            | Self::MainProcess
            | Self::ReadsPacks
            | Self::Busy => frame::encode(kind, &()),
            Self::IsPatient { ms: None } => frame::encode(kind, &()),
            Self::Unused { sockets } => frame::encode(kind, sockets),
            Self::OwnFiles { keys } => frame::encode(kind, keys),
            Self::Resources { bytes: number }
            | Self::ConfigVersion { version: number }
            | Self::IsPatient { ms: Some(number) } => frame::encode(kind, number),
            Self::ListConnections { request, worker, slot } => {
                frame::encode(kind, &(request, worker, slot))
            }
            Self::Connections(listed) => frame::encode(kind, listed),
            Self::Downstream(downstream) => frame::encode(kind, downstream),
            Self::Progress { text } => frame::encode(kind, text),
            Self::Outcome { is_done, text } => frame::encode(kind, &(is_done, text)),
        }
    }

    /// What a frame says; none for one that may be skipped.
    ///
    /// # Errors
    ///
    /// [`FrameError`]: it is none of this version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let (kind, body) = frame::split(bytes)?;
        Ok(Some(match kind {
            HELLO => Self::Hello(hello(body)?),
            WELCOME => Self::Welcome(welcome(body)?),
            PARTS => frame::body(body).map(|(parts, is_last)| Self::Parts { parts, is_last })?,
            DIFFERENCES => frame::body(body)
                .map(|(differences, is_last)| Self::Differences { differences, is_last })?,
            SOCKETS => frame::body(body).map(|(keys, is_last)| Self::Sockets { keys, is_last })?,
            SERVING => Self::Serving,
            PIECE => Self::Piece(frame::body(body)?),
            BATCH_END => {
                frame::body(body).map(|(batch, groups)| Self::BatchEnd { batch, groups })?
            }
            TAKEN => frame::body(body).map(|(batch, refused)| Self::Taken { batch, refused })?,
            STATE => Self::State(frame::body(body)?),
            TAKER_STATE => Self::TakerState(frame::body(body)?),
            COMMIT => Self::Commit,
            COMMITTED => Self::Committed,
            GIVE_UP => Self::GiveUp { reason: entry(body)? },
            OUTCOME => {
                frame::body(body).map(|(is_done, Lines(text))| Self::Outcome { is_done, text })?
            }
            PACK => frame::body(body).map(|(batch, groups)| Self::Pack { batch, groups })?,
            RESOURCES => Self::Resources { bytes: frame::body(body)? },
            PROGRESS => frame::body(body).map(|Lines(text)| Self::Progress { text })?,
            TAKE_BACK => Self::TakeBack { reason: entry(body)? },
            SUCCEEDED => Self::Succeeded,
            END_REMAINING => Self::EndRemaining,
            ALIVE => Self::Alive,
            READS_PACKS => Self::ReadsPacks,
            // Earlier versions do not say how long.
            IS_PATIENT if body.is_empty() => Self::IsPatient { ms: None },
            IS_PATIENT => Self::IsPatient { ms: Some(frame::body(body)?) },
            CONFIG_VERSION => Self::ConfigVersion { version: frame::body(body)? },
            DOWNSTREAM => Self::Downstream(frame::body(body)?),
            ENDS => Self::Ends { reason: entry(body)? },
            GIVES_BACK => Self::GivesBack { reason: entry(body)? },
            UNUSED => Self::Unused { sockets: frame::body(body)? },
            OWN_FILES => Self::OwnFiles { keys: frame::body(body)? },
            BUSY => Self::Busy,
            MAIN_PROCESS => Self::MainProcess,
            LIST_CONNECTIONS => frame::body(body)
                .map(|(request, worker, slot)| Self::ListConnections { request, worker, slot })?,
            CONNECTIONS => Self::Connections(frame::body(body)?),
            kind if kind >= IGNORABLE => return Ok(None),
            kind => return Err(FrameError::UnknownKind(kind)),
        }))
    }

    const fn kind(&self) -> u16 {
        match self {
            Self::Hello(_) => HELLO,
            Self::Welcome(_) => WELCOME,
            Self::Parts { .. } => PARTS,
            Self::Differences { .. } => DIFFERENCES,
            Self::Sockets { .. } => SOCKETS,
            Self::Serving => SERVING,
            Self::Piece(_) => PIECE,
            Self::BatchEnd { .. } => BATCH_END,
            Self::Taken { .. } => TAKEN,
            Self::State(_) => STATE,
            Self::TakerState(_) => TAKER_STATE,
            Self::Commit => COMMIT,
            Self::Committed => COMMITTED,
            Self::GiveUp { .. } => GIVE_UP,
            Self::Outcome { .. } => OUTCOME,
            Self::Resources { .. } => RESOURCES,
            Self::Progress { .. } => PROGRESS,
            Self::TakeBack { .. } => TAKE_BACK,
            Self::Succeeded => SUCCEEDED,
            Self::EndRemaining => END_REMAINING,
            Self::Alive => ALIVE,
            Self::ReadsPacks => READS_PACKS,
            Self::IsPatient { .. } => IS_PATIENT,
            Self::Unused { .. } => UNUSED,
            Self::OwnFiles { .. } => OWN_FILES,
            Self::Ends { .. } => ENDS,
            Self::GivesBack { .. } => GIVES_BACK,
            Self::ConfigVersion { .. } => CONFIG_VERSION,
            Self::Downstream(_) => DOWNSTREAM,
            Self::Busy => BUSY,
            Self::Pack { .. } => PACK,
            Self::MainProcess => MAIN_PROCESS,
            Self::ListConnections { .. } => LIST_CONNECTIONS,
            Self::Connections(_) => CONNECTIONS,
        }
    }

    /// Its name, for errors.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Welcome(_) => "Welcome",
            Self::Parts { .. } => "Parts",
            Self::Differences { .. } => "Differences",
            Self::Sockets { .. } => "Sockets",
            Self::Serving => "Serving",
            Self::Piece(_) => "Piece",
            Self::BatchEnd { .. } => "BatchEnd",
            Self::Taken { .. } => "Taken",
            Self::State(_) => "State",
            Self::TakerState(_) => "TakerState",
            Self::Commit => "Commit",
            Self::Committed => "Committed",
            Self::GiveUp { .. } => "GiveUp",
            Self::Resources { .. } => "Resources",
            Self::Progress { .. } => "Progress",
            Self::TakeBack { .. } => "TakeBack",
            Self::Succeeded => "Succeeded",
            Self::EndRemaining => "EndRemaining",
            Self::Alive => "Alive",
            Self::ReadsPacks => "ReadsPacks",
            Self::IsPatient { .. } => "IsPatient",
            Self::Unused { .. } => "Unused",
            Self::OwnFiles { .. } => "OwnFiles",
            Self::Ends { .. } => "Ends",
            Self::GivesBack { .. } => "GivesBack",
            Self::ConfigVersion { .. } => "ConfigVersion",
            Self::Downstream(_) => "Downstream",
            Self::Busy => "Busy",
            Self::Pack { .. } => "Pack",
            Self::MainProcess => "MainProcess",
            Self::ListConnections { .. } => "ListConnections",
            Self::Connections(_) => "Connections",
            Self::Outcome { .. } => "Outcome",
        }
    }

    /// How many descriptors come with it.
    pub(crate) fn descriptors(&self) -> usize {
        match self {
            Self::Resources { .. } => 1,
            Self::Sockets { keys, .. } => keys.len(),
            Self::Piece(piece) => usize::try_from(piece.sockets).unwrap_or(usize::MAX),
            Self::Pack { groups, .. } => {
                let sockets = groups.iter().map(|it| it.sockets as usize);
                sockets.fold(0, usize::saturating_add)
            }
            _ => 0,
        }
    }
}

/// A reason as the other process gives it.
fn entry(body: &[u8]) -> Result<String, FrameError> {
    frame::body(body).map(|Entry(text)| text)
}

/// The body of a hello. What later versions add stands behind it.
fn hello(body: &[u8]) -> Result<Hello, FrameError> {
    let hello = match frame::body::<(Hello, bool)>(body) {
        Ok((hello, reads_resources)) => Hello { reads_resources, ..hello },
        // Of a version before this one.
        Err(_) => frame::body::<Hello>(body)?,
    };
    if hello.magic == MAGIC { Ok(hello) } else { Err(FrameError::Body) }
}

/// The same of a welcome.
fn welcome(body: &[u8]) -> Result<Welcome, FrameError> {
    match frame::body::<(Welcome, bool)>(body) {
        Ok((welcome, lists_connections)) => Ok(Welcome { lists_connections, ..welcome }),
        // Of a version before this one.
        Err(_) => frame::body(body),
    }
}
