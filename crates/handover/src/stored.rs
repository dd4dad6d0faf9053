//! Connections that a process leaves for the next one with the service manager, which keeps one socket: their state, and
//! the packets in the queue of that socket.
//!
//! The giver has ended when the taker reads, so that nothing can be asked or refused, and no part is of use without the rest: a
//! queue that does not end as it should, or bytes that are not what their checksum says, are refused as a whole.
//!
//! ```text
//!   Opened              the first packet; what else is in the store is not ours
//!   Connections  + 1    a sealed file in memory: [`StoredConnections`]
//!   Sockets      + n    the sockets of its groups, in their order, at most 253 in a packet
//!   Whole               nothing of the connections is missing
//!   State        + 1    a sealed file: [`StoredStates`]; a later one takes the place of an earlier one
//! ```

use postcard::ser_flavors::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wiped::Wiped;

use crate::{GROUP_BYTES_MAX, GROUP_SOCKETS_MAX, PARTS_MAX, Part, STATE_BYTES_MAX};

/// Version of the packets and files, and the only one that is read.
const VERSION: u16 = 1;

/// What the first packet and each file begin with.
const MAGIC: [u8; 8] = *b"strait\0S";

/// Bytes of a packet, at most.
pub const STORED_PACKET_BYTES_MAX: usize = 64;

/// Bytes of a file, at most.
pub const STORED_FILE_BYTES_MAX: u64 = 1 << 30;

/// Bytes of all groups, at most: what their names may need has room in the file beside them.
pub const STORED_BYTES_MAX: u64 = 3 << 28;

/// Sockets, at most: what the queue of a socket has room for with the kernel's defaults (`net.core.wmem_default`), 253 in a packet.
pub const STORED_SOCKETS_MAX: u64 = 1 << 16;

/// Things that a process knows, at most.
const TOPICS_MAX: usize = 16;

/// Why what the service manager kept is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// A file is not what its checksum says, or its parts do not go together.
    #[error("it is damaged")]
    Damaged,
    /// It begins otherwise.
    #[error("another program stored it")]
    Foreign,
    /// A packet is missing, or came where it cannot be.
    #[error("it is not complete: the process that stored it was ended meanwhile")]
    Incomplete,
    /// More than is ever written.
    #[error("it is larger than any that is written")]
    TooLarge,
    /// Another version of this program wrote it.
    #[error("it has version {0}, and this program reads version {VERSION}")]
    Version(u16),
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredPacket {
    /// The first.
    Opened {
        /// Always the same.
        magic: [u8; 8],
        /// Of packets and files.
        version: u16,
    },
    /// The descriptor is of the connections' state.
    Connections,
    /// The descriptors are sockets.
    Sockets,
    /// No other of them follows.
    Whole,
    /// The descriptor is of what the process knows.
    State,
}

impl StoredPacket {
    /// The first packet.
    #[must_use]
    pub const fn opened() -> Self {
        Self::Opened { magic: MAGIC, version: VERSION }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        postcard::to_extend(&self, Vec::new()).unwrap_or_default()
    }
}

/// Reads the packets of a queue in their order.
///
/// ```text
///   Fresh ──Opened──► Opened ──Connections──► Receiving ──Whole──► Whole
///                                              ↺ Sockets            ↺ State
/// ```
#[derive(Debug, Default)]
pub struct StoredQueue {
    stage: QueueStage,
    sockets: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum QueueStage {
    #[default]
    Fresh,
    Opened,
    Receiving,
    Whole,
}

impl StoredQueue {
    /// A packet with so many descriptors: says what they are.
    ///
    /// # Errors
    ///
    /// Nothing of the queue is of use.
    pub fn on_packet(
        &mut self,
        bytes: &[u8],
        descriptors: usize,
    ) -> Result<StoredPacket, StoredError> {
        let is_fresh = self.stage == QueueStage::Fresh;
        let unknown = if is_fresh { StoredError::Foreign } else { StoredError::Damaged };
        let packet = postcard::from_bytes(bytes).map_err(|_| unknown)?;
        match (packet, &self.stage, descriptors) {
            (StoredPacket::Opened { magic, version }, QueueStage::Fresh, 0) if magic == MAGIC => {
                if version != VERSION {
                    return Err(StoredError::Version(version));
                }
                self.stage = QueueStage::Opened;
            }
            (_, QueueStage::Fresh, _) => return Err(StoredError::Foreign),
            (StoredPacket::Connections, QueueStage::Opened, 1) => {
                self.stage = QueueStage::Receiving;
            }
            (StoredPacket::Sockets, QueueStage::Receiving, 1..) => {
                self.sockets += descriptors as u64;
                if self.sockets > STORED_SOCKETS_MAX {
                    return Err(StoredError::TooLarge);
                }
            }
            (StoredPacket::Whole, QueueStage::Receiving, 0) => self.stage = QueueStage::Whole,
            (StoredPacket::State, QueueStage::Whole, 1) => {}
            _ => return Err(StoredError::Incomplete),
        }
        Ok(packet)
    }

    /// The queue has no other packet.
    ///
    /// # Errors
    ///
    /// It is not whole.
    pub fn end(&self) -> Result<(), StoredError> {
        if self.stage == QueueStage::Whole { Ok(()) } else { Err(StoredError::Incomplete) }
    }
}

/// Connections that were stored. Its bytes are wiped when it goes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConnections {
    /// Version of the program that stored them.
    pub program: String,
    /// Form in which they are written.
    pub form: u16,
    /// How many handovers led to the process that stored them.
    pub generation: u64,
    /// What its connections were agreed on.
    pub parts: Vec<Part>,
    /// The groups of connections.
    pub groups: Vec<StoredGroup>,
}

/// A group of connections.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredGroup {
    /// Everything but the sockets.
    #[serde(with = "crate::octets")]
    pub bytes: Wiped,
    /// How many sockets it has.
    pub sockets: u32,
}

impl StoredConnections {
    /// The file.
    #[must_use]
    pub fn encode(&self) -> Wiped {
        encode(self)
    }

    /// What a file says.
    ///
    /// # Errors
    ///
    /// [`StoredError`].
    pub fn decode(file: &[u8]) -> Result<Self, StoredError> {
        let this: Self = decode(file)?;
        this.check().map(|()| this)
    }

    /// Whether all of it is within the bounds that its reader knows.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn check(&self) -> Result<(), StoredError> {
        let is_large = |group: &StoredGroup| {
            group.bytes.len() > GROUP_BYTES_MAX as usize || group.sockets > GROUP_SOCKETS_MAX
        };
        let bytes: u64 = self.groups.iter().map(|group| group.bytes.len() as u64).sum();
        let is_within = self.parts.len() <= PARTS_MAX
            && !self.groups.iter().any(is_large)
            && bytes <= STORED_BYTES_MAX
            && self.sockets() <= STORED_SOCKETS_MAX;
        if is_within { Ok(()) } else { Err(StoredError::TooLarge) }
    }

    /// How many sockets belong to it.
    #[must_use]
    pub fn sockets(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.sockets)).sum()
    }
}

/// What a process knows beside its connections: a topic, and bytes.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredStates(pub Vec<(String, Vec<u8>)>);

impl Drop for StoredStates {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(_, bytes)| drop(Wiped::from(bytes)));
    }
}

impl StoredStates {
    /// The file.
    #[must_use]
    pub fn encode(&self) -> Wiped {
        encode(self)
    }

    /// What a file says, but for topics with more than [`STATE_BYTES_MAX`] bytes: what others say holds without them.
    ///
    /// # Errors
    ///
    /// [`StoredError`].
    pub fn decode(file: &[u8]) -> Result<Self, StoredError> {
        let mut this: Self = decode(file)?;
        if this.0.len() > TOPICS_MAX {
            return Err(StoredError::TooLarge);
        }
        this.0.retain_mut(|(_, bytes)| {
            let is_within = bytes.len() <= STATE_BYTES_MAX as usize;
            if !is_within {
                drop(Wiped::from(std::mem::take(bytes)));
            }
            is_within
        });
        Ok(this)
    }

    /// What is known of a topic.
    #[must_use]
    pub fn get(&self, topic: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(it, _)| it == topic);
        found.map(|(_, bytes)| bytes.as_slice())
    }
}

/// Magic, version, checksum, and a body in postcard's encoding.
const HEADER_LEN: usize = MAGIC.len() + 2 + 8;

fn encode(body: &impl Serialize) -> Wiped {
    let len = postcard::serialize_with_flavor(body, Size::default()).unwrap_or_default();
    // It has keys in it: where a vector grows, it leaves a copy behind.
    let mut file = Vec::with_capacity(HEADER_LEN + len);
    file.extend(MAGIC);
    file.extend(VERSION.to_be_bytes());
    file.extend([0; 8]);
    let mut file = postcard::to_extend(body, file).expect("memory is the only thing it needs");
    let sum = checksum(file.get(HEADER_LEN..).unwrap_or_default());
    if let Some(place) = file.get_mut(HEADER_LEN - 8..HEADER_LEN) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
    Wiped::from(file)
}

fn decode<T: DeserializeOwned>(file: &[u8]) -> Result<T, StoredError> {
    let (magic, rest) = file.split_first_chunk().ok_or(StoredError::Foreign)?;
    if *magic != MAGIC {
        return Err(StoredError::Foreign);
    }
    let (version, rest) = rest.split_first_chunk().ok_or(StoredError::Damaged)?;
    let version = u16::from_be_bytes(*version);
    if version != VERSION {
        return Err(StoredError::Version(version));
    }
    let (sum, body) = rest.split_first_chunk().ok_or(StoredError::Damaged)?;
    if u64::from_be_bytes(*sum) != checksum(body) {
        return Err(StoredError::Damaged);
    }
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(StoredError::Damaged),
    }
}

/// FNV-1a: it finds damage, and is no defence against the service manager, which this program trusts.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PartKind;

    fn connections() -> StoredConnections {
        let part = Part { kind: PartKind::Listener, name: "edge".to_owned(), fingerprint: 7 };
        let group = |bytes: &[u8], sockets| StoredGroup { bytes: bytes.to_vec().into(), sockets };
        StoredConnections {
            program: "1.2.3".to_owned(),
            form: 21,
            generation: 4,
            parts: vec![part],
            groups: vec![group(b"one", 1), group(b"", 2)],
        }
    }

    #[test]
    fn a_file_reads_as_it_was_written_and_no_changed_byte_passes() {
        let file = connections().encode();
        assert_eq!(StoredConnections::decode(&file), Ok(connections()));
        assert_eq!(connections().sockets(), 3);
        for place in 0..file.len() {
            let mut other = file.to_vec();
            other[place] ^= 1;
            assert!(StoredConnections::decode(&other).is_err(), "byte {place}");
            assert!(StoredConnections::decode(&file[..place]).is_err(), "{place} bytes");
        }
        let mut longer = file.to_vec();
        longer.push(0);
        assert_eq!(StoredConnections::decode(&longer), Err(StoredError::Damaged));
        let states = StoredStates(vec![("totals".to_owned(), b"7".to_vec())]);
        let read = StoredStates::decode(&states.encode());
        assert_eq!(read.as_ref().map(|read| read.get("totals")), Ok(Some(&b"7"[..])));
        assert_eq!(read, Ok(states));
    }

    #[test]
    fn a_file_of_another_program_or_version_is_refused_as_such() {
        assert_eq!(StoredConnections::decode(b""), Err(StoredError::Foreign));
        assert_eq!(StoredConnections::decode(b"another program's"), Err(StoredError::Foreign));
        let mut file = connections().encode();
        file[9] = 9;
        assert_eq!(StoredConnections::decode(&file), Err(StoredError::Version(9)));
    }

    #[test]
    fn more_than_is_ever_written_is_refused() {
        let mut many = connections();
        many.groups[0].sockets = GROUP_SOCKETS_MAX + 1;
        assert_eq!(many.check(), Err(StoredError::TooLarge));
        assert_eq!(StoredConnections::decode(&many.encode()), Err(StoredError::TooLarge));
        let states = StoredStates(vec![
            ("totals".to_owned(), vec![0; STATE_BYTES_MAX as usize + 1]),
            ("health".to_owned(), Vec::new()),
        ]);
        let read = StoredStates::decode(&states.encode());
        let read = read.as_ref().map(|read| (read.get("totals"), read.get("health")));
        assert_eq!(read, Ok((None, Some(&b""[..]))), "the others hold");
        let topics = (0..=TOPICS_MAX).map(|n| (n.to_string(), Vec::new()));
        let states = StoredStates(topics.collect());
        assert_eq!(StoredStates::decode(&states.encode()), Err(StoredError::TooLarge));
    }

    #[test]
    fn a_queue_is_taken_in_its_order_and_only_if_it_is_whole() {
        let whole = [
            (StoredPacket::opened(), 0),
            (StoredPacket::Connections, 1),
            (StoredPacket::Sockets, 253),
            (StoredPacket::Sockets, 1),
            (StoredPacket::Whole, 0),
            (StoredPacket::State, 1),
            (StoredPacket::State, 1),
        ];
        let read = |packets: &[(StoredPacket, usize)]| {
            let mut queue = StoredQueue::default();
            let mut all = packets.iter();
            let read = all.try_for_each(|(packet, descriptors)| {
                queue.on_packet(&packet.encode(), *descriptors).map(drop)
            });
            read.and_then(|()| queue.end())
        };
        for len in 0..=whole.len() {
            assert_eq!(read(&whole[..len]).is_ok(), len >= 5, "{len} packets");
        }
        for left_out in 0..5 {
            let mut some = whole.to_vec();
            some.remove(left_out);
            // One packet of sockets less is seen when the sockets are counted.
            assert_eq!(read(&some).is_ok(), matches!(left_out, 2 | 3), "without {left_out}");
        }
        for (place, (packet, descriptors)) in whole.into_iter().enumerate() {
            let mut other = whole.to_vec();
            other[place] = (packet, if descriptors == 0 { 1 } else { 0 });
            assert!(read(&other).is_err(), "descriptors of {place}");
        }
    }

    #[test]
    fn a_queue_of_another_program_is_refused() {
        let on = |bytes: &[u8]| StoredQueue::default().on_packet(bytes, 0);
        assert_eq!(on(b"GET / HTTP/1.1"), Err(StoredError::Foreign));
        assert_eq!(on(b""), Err(StoredError::Foreign));
        let other = StoredPacket::Opened { magic: *b"strait\0T", version: VERSION };
        assert_eq!(on(&other.encode()), Err(StoredError::Foreign));
        let other = StoredPacket::Opened { magic: MAGIC, version: 2 };
        assert_eq!(on(&other.encode()), Err(StoredError::Version(2)));
    }
}
