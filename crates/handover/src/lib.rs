//! What two processes say to each other when one replaces the other.
//!
//! The *giver* runs and has the sockets; the *taker* is the new process. Both sides are pure state
//! machines: time is an argument, what comes in is a frame and a count of descriptors, what goes out
//! is an action for the caller. Nothing here has a socket, and a group of connections is bytes.
//!
//! ```text
//!   giver                                   taker
//!     │ ◄───────────────────────────── Hello │  HELLO        users (the caller looks), versions, forms
//!     │ Welcome, Parts ────────────────────► │
//!     │ ◄─────────────────────── Differences │  CONFIG       what each is configured to do
//!     │ Sockets ───────────────────────────► │  LISTENERS    listening sockets, by key
//!     │ ◄─────────────────────────── Serving │
//!     │ Piece…, BatchEnd ──────────────────► │  PROBE        up to 32 idle connections
//!     │ ◄───────────────────────────── Taken │
//!     │ Piece…, BatchEnd ──────────────────► │  CONNECTIONS  four batches under way
//!     │ ◄───────────────────────────── Taken │  REMAINING    what could not move before
//!     │ State…, Commit ────────────────────► │  COMMIT       counters, keys of tickets
//!     │ ◄───────────────────────── Committed │  probation    the giver keeps the listening sockets
//! ```
//!
//! Either side may say `GiveUp` before COMMIT. The giver decides: until it has read `Committed`, all that it
//! gave is its own again once the taker has ended. A taker whose giver ends goes on alone as soon as it
//! has said `Serving`.
//!
//! From `Serving` to the end of probation the taker sends `Alive`, so that the giver notices one that is stopped and takes the
//! service back; and what it counts itself, so that the giver goes on from there.
#![forbid(unsafe_code)]

mod deadlines;
mod failure;
mod frame;
mod giver;
mod message;
mod octets;
mod pace;
mod pieces;
mod silence;
mod stored;
mod taker;
mod text;
mod topics;

pub use deadlines::{Deadlines, Phase};
pub use failure::Failure;
pub use frame::{DESCRIPTORS_MAX, FRAME_BYTES_MAX, FrameError};
pub use giver::{Collected, Giver, GiverAction, PeerLife};
pub use message::{
    Difference, Downstream, Hello, Left, ListedConnections, Message, Packed, Part, PartKind, Piece,
    Purpose, Refused, SocketKey, StatePiece, UnusedSocket, UpgradeRequest, VERSION, Welcome,
};
pub use pace::Collect;
pub use pieces::{GivenGroup, GroupPack, GroupPiece};
pub use silence::ALIVE_INTERVAL;
pub use stored::{
    STORED_BYTES_MAX, STORED_FILE_BYTES_MAX, STORED_PACKET_BYTES_MAX, STORED_SOCKETS_MAX,
    StoredConnections, StoredError, StoredGroup, StoredPacket, StoredQueue, StoredStates,
};
pub use taker::{FollowingAction, MovingAction, OpeningAction, ReceivedGroup, Taker, TakerAction};

/// Groups in a batch, at most.
pub const BATCH_GROUPS_MAX: u32 = 64;
/// Bytes of a batch, at most, unless it has a single group.
pub const BATCH_BYTES_MAX: u32 = 4 << 20;
/// Batches that are not acknowledged, at most.
pub const BATCHES_MAX: usize = 4;
/// Groups in a batch from one worker, at most, while workers also serve connections that do not move: these wait for as long as a
/// worker gives or takes so many, and other processes of a machine for as long as both processes are at work.
pub const PACED_GROUPS_MAX: u32 = 16;
/// Groups that move first, to be served before others follow.
pub const PROBE_GROUPS_MAX: u32 = 32;
/// Bytes of a group, at most.
pub const GROUP_BYTES_MAX: u32 = 64 << 20;
/// Sockets of a group, at most.
pub const GROUP_SOCKETS_MAX: u32 = 1 << 16;
/// Bytes of one thing that a process knows and hands on at COMMIT, at most.
pub const STATE_BYTES_MAX: u32 = 64 << 20;
/// Listening sockets, at most.
pub const LISTENING_MAX: usize = 1 << 16;
/// Parts of a configuration, at most.
pub const PARTS_MAX: usize = 1 << 18;
