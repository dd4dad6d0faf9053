//! Groups of connections on their way: which sockets go with the bytes, and whether the other process has
//! touched them.

use std::os::fd::{AsFd, BorrowedFd};

use ::handover::GroupPack;
use io::{Socket, Traffic};
use wiped::{Pieces, Wiped};
use worker::Moving;

use crate::data_path::Contacts;

/// A group that was given away, until the other process is the process.
#[derive(Debug)]
pub(crate) struct GivenAway {
    /// The worker that it came from.
    pub(crate) worker: usize,
    /// Which of its connections have a socket: their number in four bytes, and a byte for each. It goes in front of the group's
    /// bytes.
    head: Vec<u8>,
    moving: Moving<Socket>,
    /// Whether the other process may have it, and how many of its sockets.
    is_sent: bool,
    sockets_sent: usize,
    /// What had been moved over each of these before it was sent; none where the kernel does not count. The first is apart, since most
    /// groups have one: nothing is allocated for it.
    first: Option<Traffic>,
    others: Vec<Option<Traffic>>,
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

    /// The sockets of the groups that go together.
    pub(crate) fn sockets_of(&self, pack: &GroupPack) -> Vec<BorrowedFd<'_>> {
        let given = pack.groups().filter_map(|group| self.get(group));
        given.flat_map(GivenAway::sockets).map(AsFd::as_fd).collect()
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = GivenAway> + use<> {
        std::mem::take(&mut self.0).into_iter().flatten()
    }
}

impl GivenAway {
    pub(crate) fn new(worker: usize, moving: Moving<Socket>) -> Self {
        let count = u32::try_from(moving.sockets.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut head = Vec::with_capacity(count.len() + moving.sockets.len());
        head.extend(count);
        head.extend(moving.sockets.iter().map(|socket| u8::from(socket.is_some())));
        let (is_sent, sockets_sent, first, others) = (false, 0, None, Vec::new());
        Self { worker, head, moving, is_sent, sockets_sent, first, others }
    }

    /// Notes that the other process is about to have so many more of the sockets, over which this was moved until now. Nothing has
    /// used them since they left their worker: it is as it was then.
    pub(crate) fn note_sent(
        &mut self,
        sockets: usize,
        traffic: &mut impl Iterator<Item = Option<Traffic>>,
    ) {
        self.is_sent = true;
        let mut traffic = traffic.take(sockets);
        if self.sockets_sent == 0 {
            self.first = traffic.next().flatten();
        }
        self.others.extend(traffic);
        self.sockets_sent += sockets;
    }

    /// The sockets that there are.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.moving.sockets.iter().flatten()
    }

    /// So many of them, from one on.
    pub(crate) fn descriptors(&self, first: usize, count: usize) -> Vec<BorrowedFd<'_>> {
        self.sockets().skip(first).take(count).map(AsFd::as_fd).collect()
    }

    /// The bytes that the other process gets, in parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.head.as_slice()).chain(self.moving.bytes.iter())
    }

    /// How many these are.
    pub(crate) fn bytes_len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// The same in one place.
    pub(crate) fn envelope(&self) -> Wiped {
        let mut bytes = Wiped::with_capacity(self.bytes_len());
        self.parts().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// Whether this process may go on with it. If the other one is over: nothing was read from its sockets or written to
    /// them, and no request of it can have been sent on a connection that is not among them. If it may still run, it must not
    /// have it.
    pub(crate) fn is_untouched(&self, is_over: bool) -> bool {
        let sent = self.sockets().take(self.sockets_sent);
        let before = std::iter::once(&self.first).chain(&self.others);
        let is_as_before = |(socket, before): (&Socket, &Option<Traffic>)| {
            before.is_some() && Traffic::of(socket).ok() == *before
        };
        !self.is_sent || is_over && !self.moving.may_begin && sent.zip(before).all(is_as_before)
    }

    pub(crate) fn into_moving(self) -> Moving<Socket> {
        self.moving
    }

    /// Resets its connections, although another process may have their sockets, too. An end in order would make a response complete
    /// that lasts until its connection ends.
    pub(crate) fn end(self, contacts: &Contacts) {
        for socket in self.moving.sockets.into_iter().flatten() {
            socket.abort();
            contacts.unwatch(self.worker, &socket);
            socket.reset();
        }
    }
}

/// Takes an envelope apart: the connections' bytes, and which of them have a socket.
pub(crate) fn open_envelope(bytes: Wiped) -> Option<(Pieces, Vec<bool>)> {
    let count = u32::from_be_bytes(*bytes.first_chunk()?);
    let end = usize::try_from(count).ok()?.checked_add(4)?;
    let has_socket = bytes.get(4..end)?.iter().map(|byte| *byte != 0).collect();
    Some((Pieces::behind(end, bytes), has_socket))
}

#[cfg(test)]
mod tests {
    use proxy::save::{Held, Remains};

    use super::*;

    fn group() -> Moving<Socket> {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Socket::from(std::os::fd::OwnedFd::from(one));
        let (bytes, held) = (b"state".to_vec().into(), Held::default());
        Moving {
            bytes,
            sockets: vec![Some(socket)],
            held,
            may_begin: false,
            remains: Remains::default(),
        }
    }

    /// The next so many of a group's sockets are sent.
    fn note_sent(given: &mut GivenAway, count: usize) {
        let traffic = Traffic::of_each(&given.descriptors(given.sockets_sent, count));
        given.note_sent(count, &mut traffic.into_iter());
    }

    #[test]
    fn groups_are_found_by_their_numbers_until_they_are_taken_out() {
        let mut all = AllGiven::default();
        for (worker, number) in (10..15).zip(0..) {
            assert_eq!(all.add(GivenAway::new(worker, group())), number);
        }
        note_sent(all.get_mut(3).unwrap(), 1);
        let removed = all.remove(3).map(|given| (given.worker, given.is_sent, given.sockets_sent));
        assert_eq!(removed, Some((13, true, 1)));
        assert!(all.remove(3).is_none() && all.get(3).is_none() && all.get_mut(u32::MAX).is_none());
        assert_eq!(all.add(GivenAway::new(15, group())), 5, "a number is used once");
        assert_eq!(all.get(4).map(|given| given.worker), Some(14));
        let workers: Vec<_> = all.take_all().map(|given| given.worker).collect();
        assert_eq!(workers, [10, 11, 12, 14, 15]);
        assert_eq!(all.take_all().count(), 0);
    }

    #[test]
    fn a_group_is_touched_once_a_socket_that_was_sent_is_used() {
        use std::io::{Read as _, Write as _};
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (peer, listener.accept().unwrap().0)
        };
        let mut pairs = [pair(), pair()];
        let socket = |stream: &TcpStream| {
            Some(Socket::from(std::os::fd::OwnedFd::from(stream.try_clone().unwrap())))
        };
        // Without a socket between them, which is not counted.
        let sockets = vec![socket(&pairs[0].1), None, socket(&pairs[1].1)];
        let mut given = GivenAway::new(0, Moving { sockets, ..group() });
        note_sent(&mut given, 1);
        assert!(given.is_untouched(true) && !given.is_untouched(false));
        // The other process does not have it yet, and what its client sends is no use of it either.
        pairs[1].1.write_all(b"!").unwrap();
        pairs.iter_mut().for_each(|(peer, _)| peer.write_all(b"request").unwrap());
        assert!(given.is_untouched(true));
        note_sent(&mut given, 1);
        assert!(given.is_untouched(true), "what it had written counts from then on");
        assert_eq!(pairs[1].1.read(&mut [0; 3]).unwrap(), 3);
        assert!(!given.is_untouched(true));
    }

    #[test]
    fn connections_that_end_here_are_reset_although_another_process_has_their_sockets() {
        use std::io::{ErrorKind, Read as _, Write as _};
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut of_other_process = listener.accept().unwrap().0;
        of_other_process.write_all(b"a part of a response without a length").unwrap();
        let socket =
            Socket::from(std::os::fd::OwnedFd::from(of_other_process.try_clone().unwrap()));
        let mut given = GivenAway::new(0, Moving { sockets: vec![Some(socket)], ..group() });
        note_sent(&mut given, 1);
        given.end(&Contacts::default());
        let ended = peer.read_to_end(&mut Vec::new());
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
        assert!(matches!(of_other_process.read(&mut [0]), Err(_) | Ok(0)));
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
            remains: Remains::default(),
        };
        let mut given = GivenAway::new(0, moving);
        let envelope = given.envelope();
        assert_eq!((envelope.len(), given.bytes_len()), (12, 12));
        let (bytes, has_socket) = open_envelope(envelope.clone()).unwrap();
        assert_eq!((&**bytes.join(), has_socket), (&b"state"[..], vec![false, true, false]));
        for end in 0..7 {
            assert!(open_envelope(envelope[..end].to_vec().into()).is_none(), "{end}");
        }
        assert!(open_envelope(vec![255, 255, 255, 255, 1].into()).is_none());
        assert!(given.is_untouched(false), "it was not sent");
        note_sent(&mut given, 1);
        assert!(!given.is_untouched(true), "its request may be on its way to a service");
        let mut given = GivenAway::new(0, group());
        note_sent(&mut given, 1);
        assert!(!given.is_untouched(true), "the kernel does not count here");
    }
}
