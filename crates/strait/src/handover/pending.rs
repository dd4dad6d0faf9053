//! Processes that have connected and not said yet what they want. One that stays silent delays no other.

use std::collections::VecDeque;
use std::time::Duration;

use ::handover::{Hello, Message};
use io::packets::PacketError;

use super::line::{Incoming, Line, nanos, now};

/// How long who connects may take to say what it wants.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections that are waited for at a time: for a further one the oldest is refused.
const PENDING_MAX: usize = 16;

/// Between two looks while there are some.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What a process said first.
#[derive(Debug)]
pub(super) struct Heard {
    /// As it came, for the giver's machine.
    pub(super) frame: Vec<u8>,
    pub(super) hello: Hello,
}

/// Connections on which nothing was heard yet.
#[derive(Debug, Default)]
pub(crate) struct PendingPeers {
    /// Each with when that is too late (ns); the oldest first.
    silent: VecDeque<(Line, u64)>,
    /// Those that would have given way, had they not said something by then.
    heard: VecDeque<(Line, First)>,
}

/// What has come on a connection.
#[derive(Debug)]
pub(super) enum First {
    Hello(Heard),
    Nothing,
    /// It wanted to know who listens, and nothing else.
    Look,
    /// Something else: why the process is refused, with the cause as it is counted.
    Refused(&'static str, String),
}

impl PendingPeers {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.silent.is_empty() && self.heard.is_empty()
    }

    /// Waits for what a process says. Returns who has to give way to it.
    pub(super) fn add(&mut self, line: Line) -> Option<Line> {
        let mut displaced = None;
        if self.silent.len() + self.heard.len() >= PENDING_MAX
            && let Some((mut oldest, _)) = self.silent.pop_front()
        {
            match first(&mut oldest) {
                First::Nothing => displaced = Some(oldest),
                // It came before others connected, and was not looked for since.
                heard => self.heard.push_back((oldest, heard)),
            }
        }
        self.silent.push_back((line, now().saturating_add(nanos(HELLO_TIMEOUT))));
        displaced
    }

    /// Stops to wait.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Line> + use<> {
        let heard = std::mem::take(&mut self.heard).into_iter().map(|(line, _)| line);
        heard.chain(std::mem::take(&mut self.silent).into_iter().map(|(line, _)| line))
    }

    /// Takes out the first one on which something came, or nothing in time.
    pub(super) fn next(&mut self) -> Option<(Line, First)> {
        if let Some(heard) = self.heard.pop_front() {
            return Some(heard);
        }
        let at = now();
        let come =
            self.silent.iter_mut().enumerate().find_map(|(place, (line, until))| {
                match first(line) {
                    First::Nothing if at < *until => None,
                    First::Nothing => {
                        Some((place, First::Refused("silent", "it sent nothing".to_owned())))
                    }
                    come => Some((place, come)),
                }
            });
        let (place, come) = come?;
        self.silent.remove(place).map(|(line, _)| (line, come))
    }
}

/// What has come first on this connection. Does not wait.
fn first(line: &mut Line) -> First {
    let no_hello = "its first packet is not Hello";
    match line.receive(Some(now())) {
        Ok(Incoming::Frame(frame, 0)) => match Message::decode(&frame) {
            Ok(Some(Message::Hello(hello))) => First::Hello(Heard { frame: frame.to_vec(), hello }),
            Ok(Some(Message::Alive)) => First::Look,
            Ok(_) => First::Refused("out_of_turn", no_hello.to_owned()),
            Err(error) => First::Refused("garbled", format!("{no_hello}: {error}")),
        },
        Ok(Incoming::Frame(_, count)) => {
            First::Refused("descriptors", format!("{no_hello}: it has {count} descriptors"))
        }
        Ok(Incoming::Nothing) => First::Nothing,
        Ok(Incoming::End) => First::Refused("closed", "it closed the connection".to_owned()),
        Err(error) => {
            let is_lost = matches!(error, PacketError::DescriptorsLost);
            let cause = if is_lost { "descriptors" } else { "garbled" };
            First::Refused(cause, format!("{no_hello}: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use io::packets::Packets;

    use super::*;

    fn connect(pending: &mut PendingPeers) -> (Packets, Option<Line>) {
        let (ours, theirs) = Packets::pair().expect("a pair");
        let displaced = pending.add(Line::new(ours).expect("it is open"));
        (theirs, displaced)
    }

    #[test]
    fn who_looks_which_process_listens_is_not_refused() {
        let mut pending = PendingPeers::default();
        let (looking, _) = connect(&mut pending);
        looking.send(&Message::Alive.encode(), &[], Duration::ZERO).expect("it is open");
        drop(looking);
        assert!(matches!(pending.next(), Some((_, First::Look))));
        assert!(pending.is_empty());
    }

    #[test]
    fn whoever_says_something_is_heard_before_those_that_are_silent() {
        let mut pending = PendingPeers::default();
        let silent: Vec<_> = (0..3).map(|_| connect(&mut pending)).collect();
        assert!(pending.next().is_none());
        let (speaker, _) = connect(&mut pending);
        speaker.send(b"hello", &[], Duration::ZERO).expect("it is open");
        let Some((_, First::Refused(cause, _))) = pending.next() else { panic!("it spoke") };
        assert_eq!(cause, "garbled");
        assert!(pending.next().is_none());
        drop(silent);
        let ended = std::iter::from_fn(|| pending.next());
        let is_closed = |first: &First| matches!(first, First::Refused("closed", _));
        assert_eq!(ended.filter(|(_, first)| is_closed(first)).count(), 3);
        assert!(pending.is_empty());
    }

    #[test]
    fn who_has_spoken_does_not_give_way() {
        let mut pending = PendingPeers::default();
        let (speaker, _) = connect(&mut pending);
        speaker.send(b"hello", &[], Duration::ZERO).expect("it is open");
        let later: Vec<_> = (0..PENDING_MAX).map(|_| connect(&mut pending)).collect();
        assert!(later.iter().all(|(_, displaced)| displaced.is_none()));
        let (_more, displaced) = connect(&mut pending);
        assert!(displaced.is_some(), "there is no room for more");
        let Some((_, First::Refused(cause, _))) = pending.next() else { panic!("it spoke") };
        assert_eq!(cause, "garbled");
    }

    #[test]
    fn the_oldest_gives_way_where_there_are_too_many() {
        let mut pending = PendingPeers::default();
        let mut peers: Vec<_> = (0..PENDING_MAX).map(|_| connect(&mut pending)).collect();
        assert!(peers.iter().all(|(_, displaced)| displaced.is_none()));
        let (_theirs, displaced) = connect(&mut pending);
        displaced.expect("there was no room").refuse("no room".to_owned());
        let (oldest, _) = &mut peers[0];
        let mut buffer = [0; 256];
        let received = oldest.receive(&mut buffer, Duration::ZERO).expect("it is open");
        assert!(matches!(received, io::packets::Received::Packet(..)));
        assert_eq!(pending.take().count(), PENDING_MAX);
    }
}
