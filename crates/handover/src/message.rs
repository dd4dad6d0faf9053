//! What is said, as types; [`Message::encode`] and [`Message::decode`] are inverses, but for control characters in texts, which are escaped.

mod coding;

use serde::{Deserialize, Serialize};
use wiped::Wiped;

use crate::pieces::PIECE_BYTES_MAX;

pub(crate) use self::coding::{PACK, PIECE};

/// Version of the conversation that this program speaks, and the only one.
pub const VERSION: u16 = 1;

/// What a hello begins with.
const MAGIC: [u8; 8] = *b"strait\0H";

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first of a new connection.
    Hello(Hello),
    /// The giver's answer to a taker.
    Welcome(Welcome),
    /// What the giver is configured to do; the last of them ends the list.
    Parts {
        /// A part of the list.
        parts: Vec<Part>,
        /// Whether this ends it.
        is_last: bool,
    },
    /// What the taker is configured to do otherwise; the last of them ends the list.
    Differences {
        /// A part of the list.
        differences: Vec<Difference>,
        /// Whether this ends it.
        is_last: bool,
    },
    /// What sources have delivered to the giver: a descriptor of a sealed file in memory comes with it, which has so many bytes.
    /// Before [`Message::Parts`], to a taker that said in its hello that it reads this.
    Resources {
        /// Bytes of the file.
        bytes: u64,
    },
    /// Listening sockets, a descriptor for each key; the last of them ends the list.
    Sockets {
        /// The sockets, in the order of the descriptors.
        keys: Vec<SocketKey>,
        /// Whether this ends the list.
        is_last: bool,
    },
    /// From a giver, before [`Message::Sockets`]: these of its listening sockets have a file that is its own, to be removed by the process
    /// that has them last. Files of all others, and of a giver that does not say this, are another's, such as a socket unit's of systemd.
    OwnFiles {
        /// The sockets, or some of them.
        keys: Vec<SocketKey>,
    },
    /// The taker accepts connections.
    Serving,
    /// A part of a group: `sockets` descriptors come with it.
    Piece(Piece),
    /// Several whole groups: the descriptors of the first, then those of the next, and so on.
    Pack {
        /// Their batch.
        batch: u32,
        /// The groups, in the order of their descriptors.
        groups: Vec<Packed>,
    },
    /// A batch is whole.
    BatchEnd {
        /// The number of the batch.
        batch: u32,
        /// How many groups it has.
        groups: u32,
    },
    /// The taker has the groups of a batch, but for these.
    Taken {
        /// Which batch.
        batch: u32,
        /// What stays with the giver.
        refused: Vec<Refused>,
    },
    /// A part of something that the process knows.
    State(StatePiece),
    /// From a taker, from [`Message::Serving`] to the end of its probation: a part of something that it knows, which the giver goes on
    /// with should the taker end.
    TakerState(StatePiece),
    /// The taker is to be the process.
    Commit,
    /// It is.
    Committed,
    /// This side cannot go on, and uses nothing that was handed over.
    GiveUp {
        /// Why.
        reason: String,
    },
    /// From a taker in its probation, which is unwell or was asked to: the giver is to take everything back, as a taker.
    TakeBack {
        /// Why.
        reason: String,
    },
    /// From a taker that has handed over in its turn, before it says `Committed` once more.
    Succeeded,
    /// To a process that still ends what it has, while two younger ones live: it is to end that at once.
    EndRemaining,
    /// From a giver, before what it is configured to do: the version of its configuration, which the taker goes on from.
    ConfigVersion {
        /// Counted from 1.
        version: u64,
    },
    /// From a giver, before what it is configured to do: how many downstream connections it has, and how many files it may open.
    Downstream(Downstream),
    /// From a taker that cannot go on and ends, from [`Message::Serving`] on: what it was handed is free once its connection is closed.
    /// And to who asked for an upgrade, before [`Message::Outcome`]: the process that says so is ending.
    Ends {
        /// Why.
        reason: String,
    },
    /// From a taker, before [`Message::Committed`]: it becomes the process, and gives everything back for this reason.
    GivesBack {
        /// Why.
        reason: String,
    },
    /// The sender runs, and has nothing else to send. As the first frame of a connection: the sender wants nothing but to know who
    /// listens.
    Alive,
    /// From a taker, before [`Message::Serving`]: it reads [`Message::Pack`].
    ReadsPacks,
    /// From a taker, before [`Message::Serving`]: it waits for the giver for as long as [`Message::Alive`] comes.
    IsPatient {
        /// But no longer than this, in milliseconds from [`Message::Serving`] on. Without it: as long as a handover may take.
        ms: Option<u64>,
    },
    /// From a taker, before [`Message::Serving`]: it does not use these listening sockets of the giver, such as those of a listener that its
    /// configuration does not have, or has at another address.
    Unused {
        /// The listening sockets that the taker does not use.
        sockets: Vec<UnusedSocket>,
    },
    /// From a taker, before [`Message::Taken`]: its workers also serve connections, for whose sake the next batch is to be small, and to
    /// come after a pause.
    Busy,
    /// To a process that has taken over, from the one before: its probation is over, and the service manager knows it as the main
    /// process of the service.
    MainProcess,
    /// From a process that has taken over, to the one before: which connections does it still have, from there on? Only to one that said in
    /// its welcome that it lists them.
    ListConnections {
        /// A number that the answer repeats.
        request: u32,
        /// The worker to begin with.
        worker: u32,
        /// The slot there.
        slot: u32,
    },
    /// The answer.
    Connections(ListedConnections),
    /// A line for who asked for an upgrade.
    Progress {
        /// The line.
        text: String,
    },
    /// How an upgrade ended, for who asked for it.
    Outcome {
        /// Whether the new process serves.
        is_done: bool,
        /// In words.
        text: String,
    },
}

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    magic: [u8; 8],
    /// The oldest version of the conversation that is spoken.
    pub version_min: u16,
    /// The newest.
    pub version_max: u16,
    /// Version of the program.
    #[serde(deserialize_with = "crate::text::deserialize")]
    pub program: String,
    /// What is wanted.
    pub purpose: Purpose,
    /// Whether [`Message::Resources`] is read. It stands behind the body, where versions before this one do not look.
    #[serde(skip)]
    pub reads_resources: bool,
}

impl Hello {
    /// The hello of this version.
    #[must_use]
    pub fn new(program: &str, purpose: Purpose) -> Self {
        let program = program.to_owned();
        let (version_min, version_max) = (VERSION, VERSION);
        Self { magic: MAGIC, version_min, version_max, program, purpose, reads_resources: false }
    }

    /// Whether the other side speaks the version of this program.
    #[must_use]
    pub const fn is_spoken(&self) -> bool {
        self.version_min <= VERSION && VERSION <= self.version_max
    }
}

/// What who connects wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To take the process's place.
    Take {
        /// Forms of connections that it reads.
        forms_read: Vec<u16>,
        /// Descriptors that it may open.
        descriptors: u64,
        /// Whether to end after CONFIG.
        is_check: bool,
    },
    /// To have the process start another in its place.
    Upgrade(UpgradeRequest),
    /// To take back what this process gave, as [`Message::TakeBack`] asked.
    TakeBack {
        /// Forms of connections that it reads.
        forms_read: Vec<u16>,
        /// Descriptors that it may open.
        descriptors: u64,
    },
    /// To have the process give everything back to the one whose place it took.
    GiveBack {
        /// Why.
        #[serde(deserialize_with = "crate::text::deserialize")]
        reason: String,
    },
}

/// What `strait upgrade` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeRequest {
    /// The program to start, or none for the one that runs, from where it was started.
    pub binary: Option<String>,
    /// The configuration file, or none for the one in use.
    pub config: Option<String>,
    /// Whether to end after CONFIG.
    pub is_check: bool,
}

/// The giver's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the conversation that is used.
    pub version: u16,
    /// Version of the program.
    #[serde(deserialize_with = "crate::text::deserialize")]
    pub program: String,
    /// Form in which connections are written.
    pub form: u16,
    /// Descriptors that the giver has open.
    pub descriptors: u64,
    /// How many handovers went before this one.
    pub generation: u64,
    /// How long the giver keeps the listening sockets, ms.
    pub probation_ms: u64,
    /// Whether [`Message::ListConnections`] is answered. It stands behind the body, where versions before this one do not look.
    #[serde(skip)]
    pub lists_connections: bool,
}

/// The downstream connections of a process, and what bounds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downstream {
    /// Those that are open.
    pub connections: u64,
    /// The limit on open files.
    pub open_files_max: u64,
}

/// Some connections that a process still has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedConnections {
    /// The number of the request.
    pub request: u32,
    /// They, an object in JSON each.
    pub rows: Vec<String>,
    /// The worker and the slot to go on with, if there are more.
    pub next: Option<(u32, u32)>,
}

impl ListedConnections {
    /// Bytes that a row takes of a frame beside its own.
    const NUMBERS_BYTES_MAX: usize = 4;

    /// As many of these rows as fit a frame, each with its worker and slot, and `next` if these are all. A row that alone fits none is
    /// left out.
    #[must_use]
    pub fn new(request: u32, rows: Vec<((u32, u32), String)>, next: Option<(u32, u32)>) -> Self {
        let mut listed = Self { request, rows: Vec::new(), next };
        let mut room = PIECE_BYTES_MAX;
        for (place, row) in rows {
            let bytes = row.len().saturating_add(Self::NUMBERS_BYTES_MAX);
            if bytes > PIECE_BYTES_MAX {
                continue;
            }
            let Some(left) = room.checked_sub(bytes) else {
                listed.next = Some(place);
                break;
            };
            room = left;
            listed.rows.push(row);
        }
        listed
    }
}

/// What a part of a configuration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PartKind {
    /// A listener, with what its connections were agreed on before a chain was known.
    Listener,
    /// A filter chain match of a listener, as `listener/chain`.
    Chain,
    /// A cluster, and how its endpoints are spoken to.
    Cluster,
}

impl PartKind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Chain => "chain",
            Self::Cluster => "cluster",
        }
    }
}

/// A part of a configuration: connections move where both sides have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Its name.
    #[serde(deserialize_with = "crate::text::deserialize")]
    pub name: String,
    /// What connections were agreed on there, as a number that differs where that does.
    pub fingerprint: u64,
}

/// A part on which the two do not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What it is.
    pub kind: PartKind,
    /// Its name.
    #[serde(deserialize_with = "crate::text::deserialize")]
    pub name: String,
    /// Whether the taker has none of this name.
    pub is_missing: bool,
}

/// Which listening socket a descriptor is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SocketKey {
    /// One of a listener's, counted from 0.
    Listener(#[serde(deserialize_with = "crate::text::deserialize")] String, u32),
    /// The admin interface.
    Admin,
    /// What scrapers and probes ask.
    Metrics,
    /// The socket of handovers.
    Handover,
}

impl SocketKey {
    /// Bytes of its text.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Listener(name, _) => name.len(),
            Self::Admin | Self::Metrics | Self::Handover => 0,
        }
    }
}

/// A listening socket of the giver that the taker does not use: the giver goes on to accept there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnusedSocket {
    /// Of a listener.
    Listener {
        /// Its name.
        #[serde(deserialize_with = "crate::text::deserialize")]
        name: String,
        /// The one of its addresses, as the configuration file writes it, or none for all of them.
        address: Option<String>,
    },
    /// The admin interface.
    Admin,
    /// What scrapers and probes ask.
    Metrics,
}

impl UnusedSocket {
    /// Bytes of its texts.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Listener { name, address } => {
                name.len() + address.as_ref().map_or(0, String::len)
            }
            Self::Admin | Self::Metrics => 0,
        }
    }
}

/// A part of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Its batch.
    pub batch: u32,
    /// The group, by a number that no other group of this handover has.
    pub group: u32,
    /// Bytes of the group.
    pub bytes_total: u32,
    /// Sockets of the group.
    pub sockets_total: u32,
    /// Descriptors that come with this frame.
    pub sockets: u32,
    /// The next bytes.
    #[serde(with = "crate::octets")]
    pub bytes: Wiped,
}

/// A part of something that the process knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePiece {
    /// The name of what is known, such as `totals`.
    pub topic: String,
    /// Bytes of it altogether.
    pub bytes_total: u32,
    /// The next bytes.
    #[serde(with = "crate::octets")]
    pub bytes: Wiped,
}

/// A group that goes with others in a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    /// The group, as in [`Piece`].
    pub group: u32,
    /// Its sockets, all of which come with this frame.
    pub sockets: u32,
    /// Its bytes.
    #[serde(with = "crate::octets")]
    pub bytes: Wiped,
}

/// A group that a taker cannot take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The number of the group.
    pub group: u32,
    /// Why.
    #[serde(deserialize_with = "crate::text::deserialize")]
    pub reason: String,
}

/// Connections that stay with the giver, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The reason.
    pub reason: String,
    /// How many.
    pub count: u32,
}

/// Reasons that are listed. The other process says them.
const REASONS_MAX: usize = 64;

/// What stands for those that are not.
const OTHER_REASONS: &str = "other reasons";

impl Left {
    /// Adds `count` for `reason` to a list that has each reason once; all others once there are many.
    pub fn add(list: &mut Vec<Self>, reason: &str, count: u32) {
        let find = |reason: &str| list.iter().position(|left| left.reason == reason);
        let is_full = list.len() > REASONS_MAX;
        let place = find(reason).or_else(|| find(OTHER_REASONS).filter(|_| is_full));
        match place.and_then(|place| list.get_mut(place)) {
            Some(left) => left.count = left.count.saturating_add(count),
            None if count > 0 => {
                let reason = if list.len() == REASONS_MAX { OTHER_REASONS } else { reason };
                list.push(Self { reason: reason.to_owned(), count });
            }
            None => {}
        }
    }
}
