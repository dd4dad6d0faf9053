//! What the service manager kept, whatever it is: files are read or refused, and read as they were written; queues are taken in
//! their order.

use handover::{StoredConnections, StoredPacket, StoredQueue, StoredStates};

/// Magic, version, checksum.
const HEADER: &[u8] = b"strait\0S\0\x01";

/// A file with this body, whose header is right.
pub(crate) fn file_of(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    [HEADER, &sum.to_be_bytes(), body].concat()
}

/// Reads any bytes as each of the two files, and as packets: a count of descriptors, a length, and the bytes.
pub(crate) fn check(data: &[u8]) {
    for file in [data, &file_of(data)] {
        if let Ok(connections) = StoredConnections::decode(file) {
            assert_eq!(StoredConnections::decode(&connections.encode()), Ok(connections));
        }
        if let Ok(states) = StoredStates::decode(file) {
            assert_eq!(StoredStates::decode(&states.encode()), Ok(states));
        }
    }
    let (mut queue, mut rest) = (StoredQueue::default(), data);
    let (mut taken, mut is_whole) = (0, false);
    while let [descriptors, len, behind @ ..] = rest {
        let (packet, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        match queue.on_packet(packet, usize::from(*descriptors)) {
            Ok(StoredPacket::Opened { .. }) => assert_eq!(taken, 0, "the first"),
            Ok(StoredPacket::Connections) => assert_eq!(taken, 1, "the second"),
            Ok(StoredPacket::Sockets) => assert!(!is_whole, "before the end"),
            Ok(StoredPacket::Whole) => is_whole = true,
            Ok(StoredPacket::State) => assert!(is_whole, "behind the end"),
            Err(_) => return,
        }
        taken += 1;
        assert_eq!(queue.end().is_ok(), is_whole);
    }
}
