//! Processes that were refused, until they have read why: the kernel drops what was sent to a process when its peer closes the
//! connection without having read everything, such as a Hello that was on its way.
//!
//! And those that do not read, until there is room to say that a handover is off: one that finds the connection closed behind what it
//! was given would take this process for ended.

use std::collections::VecDeque;
use std::time::Duration;

use io::packets::{Packets, Received};

use super::line::{Incoming, Line, nanos, now};
use super::pending::HELLO_TIMEOUT;

/// Connections that are kept, at most: of either kind.
const REFUSED_MAX: usize = 16;

/// Between two looks while there are some.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Connections of processes that were refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedPeers {
    /// Until when.
    refused: VecDeque<(Packets, u64)>,
    /// What they are to read has no room yet.
    unheard: VecDeque<Line>,
}

impl RefusedPeers {
    /// Keeps a connection on which the reason was sent.
    pub(super) fn add(&mut self, packets: Packets) {
        let until = now().saturating_add(nanos(HELLO_TIMEOUT));
        push(&mut self.refused, (packets, until));
    }

    /// Keeps a connection whose last frames wait for room.
    pub(super) fn add_unheard(&mut self, line: Line) {
        push(&mut self.unheard, line);
    }

    /// Closes connections on which something came, or nothing in time, and those whose frames were sent. Does not wait; returns for how
    /// long the caller may.
    pub(super) fn look(&mut self, timeout: Duration) -> Duration {
        let at = now();
        let is_waiting = |packets: &Packets| {
            // One byte is read of it, and the rest dropped.
            matches!(packets.receive(&mut [0], Duration::ZERO), Ok(Received::Nothing))
        };
        self.refused.retain(|(packets, until)| at < *until && is_waiting(packets));
        self.unheard.retain_mut(|line| {
            let has_ended = matches!(line.receive(Some(0)), Ok(Incoming::End) | Err(_));
            line.descriptors.clear();
            line.is_full() && !has_ended
        });
        let is_empty = self.refused.is_empty() && self.unheard.is_empty();
        if is_empty { timeout } else { timeout.min(LOOK_INTERVAL) }
    }
}

/// The oldest one gives way.
fn push<T>(kept: &mut VecDeque<T>, one: T) {
    if kept.len() >= REFUSED_MAX {
        kept.pop_front();
    }
    kept.push_back(one);
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

    #[test]
    fn one_that_does_not_read_gets_its_last_frame_once_it_does() {
        let mut refused = RefusedPeers::default();
        let long = Duration::from_secs(9);
        let (ours, theirs) = Packets::pair().expect("a pair");
        let mut line = Line::new(ours).expect("it has a peer");
        while !line.is_full() {
            line.queue(vec![0; 60_000].into());
        }
        line.queue(b"off".to_vec().into());
        refused.add_unheard(line);
        assert_eq!(refused.look(long), LOOK_INTERVAL);
        let mut last = Vec::new();
        let mut buffer = vec![0; 60_000];
        loop {
            match theirs.receive(&mut buffer, Duration::from_secs(9)).expect("it is open") {
                Received::Packet(length, _) => last = buffer[..length].to_vec(),
                Received::End => break,
                Received::Nothing => panic!("it is closed"),
            }
            refused.look(long);
        }
        assert_eq!(last, b"off");
        assert_eq!(refused.look(long), long);
    }
}
