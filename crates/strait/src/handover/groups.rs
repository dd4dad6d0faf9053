//! Groups of connections on their way: which sockets go with the bytes, and whether the other process has
//! touched them.

use io::packets::shut;
use io::{Socket, Traffic};
use wiped::Wiped;
use worker::Moving;

/// A group that was given away, until the other process is the process.
#[derive(Debug)]
pub(crate) struct GivenAway {
    /// The worker that it came from.
    pub(crate) worker: usize,
    moving: Moving<Socket>,
    /// What had been moved over each socket when it left its worker.
    traffic: Traffics,
    /// Whether the other process may have it.
    pub(crate) is_sent: bool,
}

/// What had been moved over each socket of a group; none where the kernel does not count. Most groups have one, and nothing is
/// allocated for it.
#[derive(Debug)]
enum Traffics {
    OfOne(Option<Traffic>),
    OfSeveral(Vec<Option<Traffic>>),
}

impl Traffics {
    fn as_slice(&self) -> &[Option<Traffic>] {
        match self {
            Self::OfOne(traffic) => std::slice::from_ref(traffic),
            Self::OfSeveral(traffic) => traffic,
        }
    }
}

/// The groups that were given away, by their numbers, which begin with 0 and leave none out.
///
/// A list, since a handover has a group for each idle connection: in a map of as many, what the entries took of memory that was new to
/// the process cost a tenth of the handover's time (`perf record -e page-faults`).
#[derive(Debug, Default)]
pub(crate) struct AllGiven(Vec<Option<GivenAway>>);

impl AllGiven {
    /// Keeps a group, and says its number.
    pub(crate) fn add(&mut self, given: GivenAway) -> u32 {
        let number = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.push(Some(given));
        number
    }

    pub(crate) fn get(&self, group: u32) -> Option<&GivenAway> {
        self.0.get(group as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, group: u32) -> Option<&mut GivenAway> {
        self.0.get_mut(group as usize)?.as_mut()
    }

    /// Takes a group out. Its number is not used again.
    pub(crate) fn remove(&mut self, group: u32) -> Option<GivenAway> {
        self.0.get_mut(group as usize)?.take()
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = GivenAway> + use<> {
        std::mem::take(&mut self.0).into_iter().flatten()
    }
}

impl GivenAway {
    pub(crate) fn new(worker: usize, moving: Moving<Socket>) -> Self {
        let traffic = |socket: &Option<Socket>| socket.as_ref().and_then(|it| Traffic::of(it).ok());
        let traffic = match &*moving.sockets {
            [socket] => Traffics::OfOne(traffic(socket)),
            sockets => Traffics::OfSeveral(sockets.iter().map(traffic).collect()),
        };
        Self { worker, moving, traffic, is_sent: false }
    }

    /// The sockets that there are.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.moving.sockets.iter().flatten()
    }

    /// The bytes of the group, with what says which of its connections have a socket in front: their number
    /// in four bytes, and a byte for each.
    pub(crate) fn envelope(&self) -> Wiped {
        let Moving { bytes: group, sockets, .. } = &self.moving;
        let count = u32::try_from(sockets.len()).unwrap_or(u32::MAX).to_be_bytes();
        let len = count.len() + sockets.len() + group.len();
        let mut bytes = Wiped::with_capacity(len);
        bytes.extend(count);
        bytes.extend(sockets.iter().map(|socket| u8::from(socket.is_some())));
        bytes.extend_from_slice(group);
        bytes
    }

    /// Whether this process may go on with it. If the other one is over: nothing was read from its sockets or written to
    /// them, and no request of it can have been sent on a connection that is not among them. If it may still run, it must not
    /// have it.
    pub(crate) fn is_untouched(&self, is_over: bool) -> bool {
        !self.is_sent
            || is_over
                && !self.moving.may_begin
                && self.moving.sockets.iter().zip(self.traffic.as_slice()).all(
                    |(socket, before)| {
                        let Some(socket) = socket else { return true };
                        before.is_some() && Traffic::of(socket).ok() == *before
                    },
                )
    }

    pub(crate) fn into_moving(self) -> Moving<Socket> {
        self.moving
    }

    /// Ends its connections, although another process may have their sockets, too.
    pub(crate) fn end(self) {
        for socket in self.moving.sockets.into_iter().flatten() {
            shut(&socket);
            socket.reset();
        }
    }
}

/// Takes an envelope apart: the connections' bytes, and which of them have a socket.
pub(crate) fn open_envelope(mut bytes: Wiped) -> Option<(Wiped, Vec<bool>)> {
    let count = u32::from_be_bytes(*bytes.first_chunk()?);
    let end = usize::try_from(count).ok()?.checked_add(4)?;
    let has_socket = bytes.get(4..end)?.iter().map(|byte| *byte != 0).collect();
    bytes.drain(..end);
    Some((bytes, has_socket))
}

#[cfg(test)]
mod tests {
    use proxy::save::Held;

    use super::*;

    fn group() -> Moving<Socket> {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Socket::from(std::os::fd::OwnedFd::from(one));
        let (bytes, held) = (b"state".to_vec().into(), Held::default());
        Moving { bytes, sockets: vec![Some(socket)], held, may_begin: false }
    }

    #[test]
    fn groups_are_found_by_their_numbers_until_they_are_taken_out() {
        let mut all = AllGiven::default();
        for (worker, number) in (10..15).zip(0..) {
            assert_eq!(all.add(GivenAway::new(worker, group())), number);
        }
        all.get_mut(3).unwrap().is_sent = true;
        assert_eq!(all.remove(3).map(|given| (given.worker, given.is_sent)), Some((13, true)));
        assert!(all.remove(3).is_none() && all.get(3).is_none() && all.get_mut(u32::MAX).is_none());
        assert_eq!(all.add(GivenAway::new(15, group())), 5, "a number is used once");
        assert_eq!(all.get(4).map(|given| given.worker), Some(14));
        let workers: Vec<_> = all.take_all().map(|given| given.worker).collect();
        assert_eq!(workers, [10, 11, 12, 14, 15]);
        assert_eq!(all.take_all().count(), 0);
    }

    #[test]
    fn an_envelope_says_which_connections_have_a_socket() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Socket::from(std::os::fd::OwnedFd::from(one));
        let moving = Moving {
            bytes: b"state".to_vec().into(),
            sockets: vec![None, Some(socket), None],
            held: Held::default(),
            may_begin: true,
        };
        let given = GivenAway::new(0, moving);
        let envelope = given.envelope();
        let opened = open_envelope(envelope.clone()).unwrap();
        assert_eq!(opened, (b"state".to_vec().into(), vec![false, true, false]));
        for end in 0..7 {
            assert_eq!(open_envelope(envelope[..end].to_vec().into()), None, "{end}");
        }
        assert_eq!(open_envelope(vec![255, 255, 255, 255, 1].into()), None);
        assert!(given.is_untouched(false), "it was not sent");
        let given = GivenAway { is_sent: true, traffic: Traffics::OfOne(None), ..given };
        assert!(!given.is_untouched(true), "its request may be on its way to a service");
    }
}
