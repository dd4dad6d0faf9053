//! Processes that were refused, until they have read why: the kernel drops what was sent to a process when its peer closes the
//! connection without having read everything, such as a Hello that was on its way.

use std::collections::VecDeque;
use std::time::Duration;

use io::packets::{Packets, Received};

use super::line::{nanos, now};
use super::pending::HELLO_TIMEOUT;

/// Connections that are kept, at most.
const REFUSED_MAX: usize = 16;

/// Between two looks while there are some.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Connections of processes that were refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedPeers(VecDeque<(Packets, u64)>);

impl RefusedPeers {
    /// Keeps a connection on which the reason was sent.
    pub(super) fn add(&mut self, packets: Packets) {
        if self.0.len() >= REFUSED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((packets, now().saturating_add(nanos(HELLO_TIMEOUT))));
    }

    /// Closes connections on which something came, or nothing in time. Does not wait; returns for how long the caller may.
    pub(super) fn look(&mut self, timeout: Duration) -> Duration {
        let at = now();
        let is_waiting = |packets: &Packets| {
            // One byte is read of it, and the rest dropped.
            matches!(packets.receive(&mut [0], Duration::ZERO), Ok(Received::Nothing))
        };
        self.0.retain(|(packets, until)| at < *until && is_waiting(packets));
        if self.0.is_empty() { timeout } else { timeout.min(LOOK_INTERVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stays_until_something_came_and_never_too_many_do() {
        let mut refused = RefusedPeers::default();
        let long = Duration::from_secs(9);
        let (ours, theirs) = Packets::pair().expect("a pair");
        refused.add(ours);
        assert_eq!(refused.look(long), LOOK_INTERVAL);
        theirs.send(b"hello", &[], Duration::ZERO).expect("it is open");
        assert_eq!(refused.look(long), long);
        let peers: Vec<_> = (0..=REFUSED_MAX)
            .map(|_| {
                let (ours, theirs) = Packets::pair().expect("a pair");
                refused.add(ours);
                theirs
            })
            .collect();
        let end = |peer: &Packets| peer.receive(&mut [0], Duration::ZERO).expect("it is open");
        assert!(matches!(end(&peers[0]), Received::End), "the oldest gives way");
        assert!(matches!(end(&peers[1]), Received::Nothing));
        drop(peers);
        assert_eq!(refused.look(long), long);
    }
}
