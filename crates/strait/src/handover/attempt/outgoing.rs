//! Connections on their way to the other process: what workers gave, until that process has acknowledged it.

use std::os::fd::BorrowedFd;

use ::handover::{Collect, Collected, GivenGroup, GroupPack, GroupPiece, Left, Refused};
use io::{Traffic, Yielding};
use wiped::Wiped;
use worker::Origin;

use super::super::asking::put_back;
use super::super::collecting::{Batch, Collecting, Round};
use super::super::groups::{AllGiven, GivenAway};
use super::super::line::now;
use crate::data_path::Contacts;

/// Sockets that are closed before other threads have their turn.
const CLOSES_MAX: usize = 64;

/// Why connections stay that too many others belong to.
const TOO_LARGE: &str = "the group has more connections than can move together";

/// Why connections stay that would meet elsewhere what their listener has now.
const DRAINING: &str =
    "a reload has removed their listener or filter chain, or asks more of connections there";

/// Why connections stay that could not move in time.
const UNFINISHED: &str = "a TLS handshake, or one of two attempts of a request, has not ended";

/// Connections on their way, and what became of those before.
pub(super) struct Outgoing {
    contacts: Contacts,
    collecting: Collecting,
    given: AllGiven,
    /// Groups that the other process has.
    pub(super) moved: u64,
    /// How long a connection stood still at most, ns.
    pub(super) silence: u64,
    /// Connections that stay.
    pub(super) left: Vec<Left>,
    /// How many there are where none moves, once that is known.
    all: Option<u32>,
}

impl Outgoing {
    pub(super) fn new(contacts: Contacts, is_return: bool) -> Self {
        Self {
            collecting: Collecting::for_handover(contacts.clone(), is_return),
            contacts,
            given: AllGiven::default(),
            moved: 0,
            silence: 0,
            left: Vec::new(),
            all: None,
        }
    }

    /// Takes the next groups out of the workers, as long as `goes_on`. Also whether a worker does not answer, or it did not go on.
    pub(super) fn collect(
        &mut self,
        wanted: Collect,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> (Collected, bool) {
        let Batch { groups, pending, is_busy, asked_at, is_cut } =
            self.collecting.next(wanted, goes_on);
        let add = |given: GivenAway| {
            let sockets = u32::try_from(given.sockets().count()).unwrap_or(u32::MAX);
            let bytes = u32::try_from(given.bytes_len()).unwrap_or(u32::MAX);
            GivenGroup { group: self.given.add(given), bytes, sockets }
        };
        let groups = groups.into_iter().map(add).collect();
        (Collected { groups, asked_at, pending, is_busy }, is_cut)
    }

    /// The frame of a piece of a group, and its sockets; none if the group has come back.
    pub(super) fn piece(&mut self, piece: &GroupPiece) -> Option<(Wiped, Vec<BorrowedFd<'_>>)> {
        let given = self.given.get_mut(piece.group())?;
        let (first, count) = (piece.first_socket as usize, piece.sockets as usize);
        let traffic = Traffic::of_each(&given.descriptors(first, count));
        given.note_sent(count, &mut traffic.into_iter());
        Some((piece.frame(given.parts()), given.descriptors(first, count)))
    }

    /// The frame of several groups, and their sockets.
    pub(super) fn pack(&mut self, pack: &GroupPack) -> (Wiped, Vec<BorrowedFd<'_>>) {
        let mut traffic = Traffic::of_each(&self.given.sockets_of(pack)).into_iter();
        for group in pack.groups() {
            if let Some(given) = self.given.get_mut(group) {
                given.note_sent(given.sockets().count(), &mut traffic);
            }
        }
        let parts = |group| self.given.get(group).into_iter().flat_map(GivenAway::parts);
        (pack.frame(parts), self.given.sockets_of(pack))
    }

    /// The other process has so many groups more, whose workers were asked for them then.
    pub(super) fn on_taken(&mut self, groups: u32, asked_at: u64) {
        self.moved += u64::from(groups);
        self.silence = self.silence.max(now().saturating_sub(asked_at));
    }

    /// The other process refuses a group: it goes on here.
    pub(super) fn on_refused(&mut self, refused: &Refused) {
        Left::add(&mut self.left, &refused.reason, 1);
        if let Some(given) = self.given.remove(refused.group) {
            put_back(&self.contacts, given.worker, given.into_moving(), Origin::Returned);
        }
    }

    /// All that was given is the other process's: this one closes its handles.
    pub(super) fn let_go(&mut self) {
        let sockets = self.given.take_all().flat_map(|given| {
            let worker = given.worker;
            given.into_moving().sockets.into_iter().flatten().map(move |socket| (worker, socket))
        });
        let mut yielding = Yielding::default();
        for (place, (worker, socket)) in sockets.enumerate() {
            self.contacts.unwatch(worker, &socket);
            drop(socket);
            // Thousands of sockets take milliseconds, for which a worker that was woken on this processor would wait.
            if place % CLOSES_MAX == CLOSES_MAX - 1 {
                yielding.give_way();
            }
        }
    }

    /// The connections that stay, with those that the last round left with the workers.
    pub(super) fn left_behind(&self) -> Vec<Left> {
        let mut all = self.left.clone();
        let Round { too_large, staying, pending, returned: _ } = self.collecting.round_before();
        let left = [(TOO_LARGE, too_large), (DRAINING, staying), (UNFINISHED, pending)];
        left.into_iter().for_each(|(reason, count)| Left::add(&mut all, reason, count));
        all
    }

    /// All connections, which stay for this reason: as many as when this was asked first, so that both processes say the same.
    pub(super) fn all_left(&mut self, reason: &str) -> Vec<Left> {
        let mut all = self.left.clone();
        let count = *self.all.get_or_insert_with(|| self.collecting.count());
        Left::add(&mut all, reason, count);
        all
    }

    /// Takes everything back that was given: it goes on here, but for what the other process has touched. Returns how many groups go
    /// on and how many were closed. `is_over`: whether the other process uses nothing any more.
    pub(super) fn return_all(&mut self, is_over: bool) -> (u32, u32) {
        let (mut returned, mut ended) = (self.collecting.return_ahead(), 0);
        for given in self.given.take_all() {
            if given.is_untouched(is_over) {
                put_back(&self.contacts, given.worker, given.into_moving(), Origin::Returned);
                returned += 1;
            } else {
                given.end(&self.contacts);
                ended += 1;
            }
        }
        (returned, ended)
    }
}
