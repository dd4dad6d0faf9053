//! Connections that leave a worker and arrive at another, or at the next process, with their
//! sockets; and by which of them a worker would be relieved.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;
use std::vec::IntoIter;

use proxy::save::{
    Held, Movable, NotSaved, Remains, RestoreError, Restoring, Saved, Saving, Unmovable,
};
use proxy::time::Time;
use proxy::{ConnKey, PeerAddress};
use wiped::Pieces;

use crate::mailbox::{
    Give, Given, Origin, Ping, Pong, ReportBody, Take, Taken, Wanted, Weigh, Weighed, Work,
};
use crate::sockets::Flags;
use crate::turn::Worker;
use crate::world::{Ready, World};

/// How long a worker gives or takes connections in a turn: others wait meanwhile, for as long as some requests take.
const MOVING_TIME_MAX: Duration = Duration::from_micros(200);

/// By how many bytes the heap grows where connections arrive. Less than what the allocator maps by itself, and than what it gives back
/// as soon as it is free (128 KiB each).
const HEAP_STEP: usize = 96 << 10;

/// Connections or exchanges between two looks at the clock.
const STRIDE: usize = 8;

/// How long a worker counts as busy after an event of a socket, ns: as long as a few batches take to move.
const BUSY_FOR: u64 = 5_000_000;

/// Slots that are looked at for one message.
const SLOTS_MAX: u32 = 4096;

/// Groups that there is room for from the start: as many as a batch has.
const GROUPS_RESERVED: u32 = SLOTS_PART;

/// Slots whose connections are looked at together: about as many as a batch takes.
const SLOTS_PART: u32 = 64;

/// Connections that a worker goes on with, and the bytes that it has read them from.
struct Restored {
    keys: Vec<ConnKey>,
    used: Pieces,
}

/// The messages of a turn that move connections.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    count: usize,
    /// Whether there is memory for those that arrive.
    has_grown: bool,
    /// Connections since the clock was looked at.
    unseen: usize,
    /// When there are enough of them; of time, if one has begun.
    until: Option<Time>,
}

impl Moves {
    /// One begins that has groups taken out.
    pub(crate) fn begin_give(&mut self, world: &mut impl World) {
        self.count += 1;
        self.unseen = STRIDE;
        self.until.get_or_insert_with(|| world.now() + MOVING_TIME_MAX);
    }

    /// One begins that brings so many connections, which need memory.
    pub(crate) fn begin_take(&mut self, connections: usize, world: &mut impl World) {
        if !self.has_grown {
            self.has_grown = true;
            grow_heap();
        }
        self.count += 1;
        self.unseen += connections;
        self.until.get_or_insert_with(|| world.now() + MOVING_TIME_MAX);
    }

    /// Whether there were any.
    pub(crate) const fn have_begun(&self) -> bool {
        self.count > 0
    }

    /// Whether others have waited for them for long enough.
    pub(crate) fn are_enough(&mut self, world: &mut impl World, count_max: usize) -> bool {
        let Some(until) = self.until else { return false };
        if self.count >= count_max {
            return true;
        }
        if self.unseen < STRIDE {
            return false;
        }
        self.unseen = 0;
        world.now() >= until
    }
}

/// A saved group of connections that belong together.
#[derive(Debug)]
pub struct Moving<S> {
    /// The saved state, without the sockets.
    pub bytes: Pieces,
    /// The sockets, in the order in which [`Worker::restore`] wants them back. None for a
    /// connection that has no socket yet.
    pub sockets: Vec<Option<S>>,
    /// What they count for on their way.
    pub held: Held,
    /// See [`Saved::may_begin`](proxy::save::Saved::may_begin). So may a request whose connection has no socket.
    pub may_begin: bool,
    /// What is left of it where it was.
    pub remains: Remains,
}

/// A group of more connections than [`Settings::group_part_max`](crate::Settings::group_part_max) on its way, in parts: one for each turn. Mail waits meanwhile, so that no
/// configuration comes, no drain begins, and nothing else moves.
#[derive(Debug)]
pub(crate) enum UnderWay<S> {
    Saving(LargeSave<S>),
    Keeping(LargeKeep<S>),
    Restoring(LargeRestore<S>),
}

/// A large group that leaves.
#[derive(Debug)]
pub(crate) struct LargeSave<S> {
    saving: Saving,
    /// Those of connections that are taken.
    sockets: Vec<Option<S>>,
    giving: Giving<S>,
}

/// A large group that was to leave, and stays: its connections go on one after the other.
#[derive(Debug)]
pub(crate) struct LargeKeep<S> {
    connections: IntoIter<ConnKey>,
    giving: Giving<S>,
}

/// A [`Give`] that takes several turns.
#[derive(Debug)]
struct Giving<S> {
    wanted: Wanted,
    given: Given<S>,
    /// Of groups that cannot move: not to be put together for each of their connections.
    kept: BTreeMap<u64, Unmovable>,
    reply: SyncSender<Given<S>>,
}

/// A large group that arrives.
#[derive(Debug)]
pub(crate) struct LargeRestore<S> {
    restoring: Restoring,
    /// Its sockets are taken out as their connections are placed.
    moving: Moving<S>,
    /// How many connections are at work.
    begun: usize,
    /// None of one that was given in vain.
    answer: Option<TakeAnswer<S>>,
}

/// Who waits for what becomes of a [`Take`].
#[derive(Debug)]
pub(crate) struct TakeAnswer<S> {
    origin: Origin,
    number: u32,
    reply: SyncSender<Taken<S>>,
}

impl<S> Given<S> {
    fn note_kept(&mut self, why: Unmovable) {
        match why {
            Unmovable::TooLarge => self.too_large += 1,
            Unmovable::NotYet | Unmovable::WithDraining => self.pending += 1,
            Unmovable::Stays => self.staying += 1,
            Unmovable::Unknown => {}
        }
    }

    fn note_not_saved(&mut self, refused: &NotSaved, kept: &mut BTreeMap<u64, Unmovable>) {
        self.note_kept(refused.why);
        kept.extend(refused.connections.iter().map(|key| (key.to_bits(), refused.why)));
    }
}

impl<W: World> Worker<W> {
    /// Gives away what is asked for, as far as it can move: at once, or in the turns to come.
    pub fn give(&mut self, give: Give<W::Socket>) {
        let Give { wanted, reply } = give;
        let given = self.no_groups(match wanted {
            Wanted::From { first, .. } => Some(first),
            Wanted::One { .. } => None,
        });
        self.go_on_giving(Giving { wanted, given, kept: BTreeMap::new(), reply });
    }

    fn go_on_giving(&mut self, mut giving: Giving<W::Socket>) {
        let large = match giving.wanted {
            Wanted::From { .. } => self.give_from(&mut giving),
            Wanted::One { connection, connections_max } => {
                self.give_one(connection, connections_max, &mut giving.given)
            }
        };
        match large {
            None => self.answer_give(giving.given, &giving.reply),
            Some(saving) => {
                let save = LargeSave { saving, sockets: Vec::new(), giving };
                self.under_way = Some(UnderWay::Saving(save));
            }
        }
    }

    fn answer_give(&mut self, given: Given<W::Socket>, reply: &SyncSender<Given<W::Socket>>) {
        // Who asked may have given up; then the connections go on here.
        if let Err(TrySendError::Full(unsent) | TrySendError::Disconnected(unsent)) =
            reply.try_send(given)
        {
            let now = self.world.now();
            for moving in unsent.groups {
                self.take_up(moving, None, now);
            }
        }
    }

    fn no_groups(&self, next: Option<u32>) -> Given<W::Socket> {
        Given {
            worker: self.mailbox.worker(),
            groups: Vec::new(),
            next,
            pending: 0,
            staying: 0,
            returned: 0,
            too_large: 0,
            kept: None,
            is_busy: self.is_busy(),
        }
    }

    pub(crate) fn answer_ping(&self, ping: &Ping) {
        let pong = Pong { worker: self.mailbox.worker(), is_busy: self.is_busy() };
        // Who asked may have given up.
        let _ = ping.reply.try_send(pong);
    }

    /// Whether connections were served, or new ones accepted, a moment ago.
    fn is_busy(&self) -> bool {
        self.served_at.is_some_and(|at| self.now.nanos_since(at) < BUSY_FOR)
    }

    /// What can move of the connections from a slot on, for a moment at most. A large group is the last of them.
    fn give_from(&mut self, giving: &mut Giving<W::Socket>) -> Option<Saving> {
        let Giving { wanted, given, kept, .. } = giving;
        let Wanted::From { groups_max, connections_max, only_idle, .. } = *wanted else {
            return None;
        };
        let until = self.world.now() + MOVING_TIME_MAX;
        given.groups.reserve(groups_max.min(GROUPS_RESERVED) as usize);
        let (mut next, mut looked_at, mut is_first) = (given.next, 0, true);
        let mut candidates = Vec::new().into_iter();
        loop {
            let Some((key, movable)) = candidates.next() else {
                // A part at a time: a batch needs few of them.
                let Some(from) = next.filter(|_| looked_at < SLOTS_MAX) else { break };
                let (part, behind) = self.proxy.movable(from, SLOTS_PART);
                (candidates, next) = (part.into_iter(), behind);
                looked_at += SLOTS_PART;
                continue;
            };
            let is_full = given.groups.len() >= groups_max as usize;
            let is_first = std::mem::take(&mut is_first);
            let known = kept.get(&key.to_bits()).copied();
            // To begin with a group once more costs as much as all of it: what it is known of goes on whatever the time is.
            if known.is_none() && (is_full || !is_first && self.world.now() >= until) {
                next = Some(key.index());
                break;
            }
            match movable {
                // Their companions went with the group, and they with those.
                Movable::WithAnother => {}
                _ if self.returned.contains(&key.to_bits()) => given.returned += 1,
                Movable::Busy if only_idle => {}
                Movable::NotYet => given.note_kept(Unmovable::NotYet),
                Movable::Stays => given.note_kept(Unmovable::Stays),
                Movable::Idle | Movable::Busy => {
                    if let Some(why) = known {
                        given.note_kept(why);
                        continue;
                    }
                    match self.begin_save(key, connections_max, self.settings.group_part_max) {
                        Ok(saving) if saving.is_large() => {
                            given.next = Some(key.index() + 1);
                            return Some(saving);
                        }
                        Ok(saving) => given.groups.push(self.save_all(saving)),
                        Err(refused) => given.note_not_saved(&refused, kept),
                    }
                }
            }
        }
        given.next = next;
        None
    }

    fn give_one(
        &mut self,
        connection: ConnKey,
        connections_max: usize,
        given: &mut Given<W::Socket>,
    ) -> Option<Saving> {
        // With an upstream connection that an exchange has alone goes what it belongs to.
        let key = self.proxy.leading(connection);
        let kept = match self.proxy.movable_one(key) {
            None => Unmovable::Unknown,
            Some(Movable::NotYet | Movable::WithAnother) => Unmovable::NotYet,
            Some(Movable::Stays) => Unmovable::Stays,
            Some(Movable::Idle | Movable::Busy) => {
                match self.begin_save(key, connections_max, self.settings.group_part_max) {
                    Ok(saving) if saving.is_large() => return Some(saving),
                    Ok(saving) => {
                        let moving = self.save_all(saving);
                        self.unwatch(&moving.sockets);
                        given.groups.push(moving);
                        return None;
                    }
                    Err(refused) => refused.why,
                }
            }
        };
        given.kept = Some(kept);
        None
    }

    /// Goes on with connections from elsewhere, and says so.
    pub(crate) fn take(&mut self, take: Take<W::Socket>) {
        let Take { moving, origin, number, reply } = take;
        self.shares_sockets |= origin == Origin::Process;
        self.take_up(moving, Some(TakeAnswer { origin, number, reply }), self.now);
    }

    fn take_up(
        &mut self,
        moving: Moving<W::Socket>,
        answer: Option<TakeAnswer<W::Socket>>,
        now: Time,
    ) {
        let is_within_bounds =
            answer.as_ref().is_some_and(|answer| answer.origin == Origin::AnotherWorker);
        // A drain that ends at its deadline spares nothing that is only half here.
        if self.is_large(moving.sockets.len()) && self.under_way.is_none() && !self.is_draining() {
            match self.proxy.begin_restore(&moving.bytes) {
                Ok(mut restoring) => {
                    restoring.is_within_bounds = is_within_bounds;
                    let restore = LargeRestore { restoring, moving, begun: 0, answer };
                    self.under_way = Some(UnderWay::Restoring(restore));
                }
                Err(error) => self.answer_take(answer, Err((error, moving))),
            }
            return;
        }
        let result = self.restore_keys(moving, is_within_bounds, now);
        self.answer_take(answer, result);
    }

    fn answer_take(
        &mut self,
        answer: Option<TakeAnswer<W::Socket>>,
        result: Result<Restored, (RestoreError, Moving<W::Socket>)>,
    ) {
        // What was given in vain was saved here a moment ago.
        let Some(TakeAnswer { origin, number, reply }) = answer else { return };
        let (result, used) = match result {
            Ok(Restored { keys, used }) => (Ok(keys), used),
            Err(error) => (Err(error), Pieces::default()),
        };
        if let (Origin::Returned, Ok(keys)) = (origin, &result) {
            self.returned.extend(keys.iter().map(|key| key.to_bits()));
        }
        // Who asked may be gone; what was taken goes on.
        let unheard = reply.try_send(Taken { number, result, used });
        if let Err(TrySendError::Full(taken) | TrySendError::Disconnected(taken)) = unheard
            && let Err((error, moving)) = taken.result
            // Another process has the sockets as well, and goes on with them.
            && origin != Origin::Process
        {
            self.lose(&error, moving);
        }
    }

    /// Ends the connections of a group that nothing else has.
    fn lose(&mut self, error: &RestoreError, moving: Moving<W::Socket>) {
        let mut connections = 0;
        for socket in moving.sockets.into_iter().flatten() {
            self.world.reset(socket);
            connections += 1;
        }
        self.mailbox.report(ReportBody::GroupLost { connections, reason: error.to_string() });
    }

    /// Whether a large group is being saved or restored.
    pub const fn is_moving(&self) -> bool {
        self.under_way.is_some()
    }

    const fn is_large(&self, connections: usize) -> bool {
        connections > self.settings.group_part_max
    }

    /// How many entries go in a turn, in parts between which the clock is looked at.
    fn strides(&self) -> impl Iterator<Item = usize> + use<W> {
        let part_max = self.settings.group_part_max;
        (0..part_max).step_by(STRIDE).map(move |done| STRIDE.min(part_max - done))
    }

    /// Goes on with a large group, for a moment.
    pub(crate) fn move_on(&mut self) {
        if self.under_way.is_some() {
            self.has_moved = true;
            self.mailbox.note_progress();
        }
        match self.under_way.take() {
            None => {}
            Some(UnderWay::Saving(save)) => self.continue_save(save),
            Some(UnderWay::Keeping(keep)) => self.continue_keep(keep),
            Some(UnderWay::Restoring(restore)) => self.continue_restore(restore),
        }
        self.perform();
    }

    fn continue_save(&mut self, mut save: LargeSave<W::Socket>) {
        let until = self.world.now() + MOVING_TIME_MAX;
        let stays_watched = matches!(save.giving.wanted, Wanted::From { .. });
        for stride in self.strides() {
            if let Err(refused) = self.proxy.save_part(&mut save.saving, stride, self.now) {
                return self.keep(refused, save.giving);
            }
            let before = save.sockets.len();
            let taken = save.saving.taken().get(before..).unwrap_or_default();
            save.sockets.extend(taken.iter().map(|key| self.sockets.remove(*key)));
            if !stays_watched {
                self.unwatch(save.sockets.get(before..).unwrap_or_default());
            }
            if self.world.now() >= until {
                break;
            }
        }
        if !save.saving.is_encoded() {
            self.under_way = Some(UnderWay::Saving(save));
            return;
        }
        let LargeSave { mut saving, sockets, mut giving } = save;
        self.proxy.on_saved(&mut saving, self.now);
        giving.given.groups.push(moving(self.proxy.finish_save(saving), sockets));
        self.has_given = true;
        self.answer_give(giving.given, &giving.reply);
    }

    /// A large group stays, and its connections go on.
    fn keep(&mut self, refused: NotSaved, mut giving: Giving<W::Socket>) {
        match giving.wanted {
            Wanted::From { .. } => giving.given.note_not_saved(&refused, &mut giving.kept),
            Wanted::One { .. } => giving.given.kept = Some(refused.why),
        }
        let connections = refused.connections.into_iter();
        self.under_way = Some(UnderWay::Keeping(LargeKeep { connections, giving }));
    }

    fn continue_keep(&mut self, mut keep: LargeKeep<W::Socket>) {
        let until = self.world.now() + MOVING_TIME_MAX;
        for stride in self.strides() {
            for key in keep.connections.by_ref().take(stride) {
                self.proxy.on_kept(key, self.now);
                // What happened meanwhile was only written down.
                self.on_ready(key, Ready::default());
                self.perform();
            }
            if self.world.now() >= until {
                break;
            }
        }
        if keep.connections.len() > 0 {
            self.under_way = Some(UnderWay::Keeping(keep));
            return;
        }
        match keep.giving.wanted {
            Wanted::From { .. } => self.go_on_giving(keep.giving),
            Wanted::One { .. } => self.answer_give(keep.giving.given, &keep.giving.reply),
        }
    }

    fn continue_restore(&mut self, mut restore: LargeRestore<W::Socket>) {
        let now = self.world.now();
        let until = now + MOVING_TIME_MAX;
        grow_heap();
        let LargeRestore { restoring, moving, begun, .. } = &mut restore;
        for stride in self.strides() {
            if restoring.is_placed() {
                let last = (*begun + stride).min(restoring.keys().len());
                let keys = restoring.keys().get(*begun..last).unwrap_or_default();
                keys.iter().for_each(|key| self.begin_watching(*key, now));
                self.proxy.on_restored(keys, now);
                *begun = last;
            } else {
                let before = restoring.keys().len();
                let part = self.proxy.restore_part(restoring, &moving.bytes, stride, now);
                if let Err(error) = part {
                    let LargeRestore { moving, answer, .. } = restore;
                    return self.answer_take(answer, Err((error, moving)));
                }
                let placed = restoring.keys().iter().zip(&mut moving.sockets).skip(before);
                for (key, socket) in placed {
                    if let Some(socket) = socket.take() {
                        self.keep_socket(*key, socket);
                    }
                }
            }
            if self.world.now() >= until {
                break;
            }
        }
        if restoring.is_placed() && *begun == restoring.keys().len() {
            let LargeRestore { restoring, moving, answer, .. } = restore;
            let restored = Restored { keys: restoring.into_keys(), used: moving.bytes };
            self.answer_take(answer, Ok(restored));
        } else {
            self.under_way = Some(UnderWay::Restoring(restore));
        }
    }

    /// Has the kernel report what happens to a restored connection, which may have ended since.
    fn begin_watching(&mut self, key: ConnKey, now: Time) {
        let awaits_connection = self.proxy.awaits_connection(key);
        let Some((socket, flags)) = self.sockets.get(key) else {
            if self.proxy.has_connection(key) {
                self.proxy.on_broken(key, "", now);
            }
            return;
        };
        let watched = if awaits_connection {
            flags.set(Flags::CONNECTING);
            self.world.watch(socket, key)
        } else {
            // Assumed, and corrected by the first call that finds it wrong. What can be read, and an end, is reported as soon as
            // the socket is watched; to try that here would cost each idle connection a system call.
            flags.set(Flags::WRITABLE);
            flags.set(Flags::READS_ONLY);
            self.world.watch_reads(socket, key)
        };
        if let Err(error) = watched {
            self.proxy.on_broken(key, ::io::errno_name(&error), now);
        }
    }

    /// Says what was done for clients' connections since this was asked last.
    pub(crate) fn weigh(&mut self, weigh: &Weigh) {
        let (requests, next) = self.proxy.requests_carried(weigh.first, SLOTS_MAX);
        let work = |(connection, requests)| {
            let operations = self.sockets.take_operations(connection);
            (operations > 0).then_some(Work { connection, operations, requests })
        };
        let connections = requests.into_iter().filter_map(work).collect();
        // Who asked may have given up.
        let _ = weigh.reply.send(Weighed { connections, next });
    }

    /// See [`proxy::Proxy::begin_save`], for what is refused too.
    fn begin_save(
        &mut self,
        key: ConnKey,
        connections_max: usize,
        part_max: usize,
    ) -> Result<Saving, NotSaved> {
        let now = self.world.now();
        let saving = self.proxy.begin_save(key, connections_max, part_max, now);
        if saving.is_err() {
            // A health check that it carried may have ended.
            self.perform();
        }
        saving
    }

    /// Takes a small group out of this worker, with its sockets.
    fn save_all(&mut self, mut saving: Saving) -> Moving<W::Socket> {
        let now = self.world.now();
        let saved = self.proxy.save_part(&mut saving, usize::MAX, now);
        debug_assert!(saved.is_ok(), "all of it was looked at");
        let sockets = saving.taken().iter().map(|key| self.sockets.remove(*key)).collect();
        self.proxy.on_saved(&mut saving, now);
        self.perform();
        let saved = self.proxy.finish_save(saving);
        self.perform();
        moving(saved, sockets)
    }

    fn unwatch(&mut self, sockets: &[Option<W::Socket>]) {
        sockets.iter().flatten().for_each(|socket| self.world.unwatch(socket));
    }

    /// Takes a downstream connection with all that belongs to it, or an idle upstream connection,
    /// out of this worker, between two turns. None for a key that [`proxy::Proxy::begin_save`] refuses.
    pub fn save(&mut self, key: ConnKey) -> Option<Moving<W::Socket>> {
        let saving = self.begin_save(key, usize::MAX, usize::MAX).ok()?;
        let moving = self.save_all(saving);
        self.unwatch(&moving.sockets);
        Some(moving)
    }

    /// Takes over connections that [`Worker::save`] took out of another worker.
    ///
    /// # Errors
    ///
    /// Why the bytes do not fit this worker, with everything given back: no connection was
    /// restored.
    pub fn restore(
        &mut self,
        moving: Moving<W::Socket>,
    ) -> Result<(), (RestoreError, Moving<W::Socket>)> {
        let now = self.world.now();
        self.restore_keys(moving, false, now).map(drop)
    }

    /// Keeps the socket of a restored connection. It says who connected, which is not written down.
    fn keep_socket(&mut self, key: ConnKey, socket: W::Socket) {
        if self.proxy.asks_direct_source(key)
            && let Ok(direct) = self.world.peer_address(&socket)
        {
            self.proxy.on_direct_source(key, PeerAddress::from(direct));
        }
        self.sockets.insert(key, socket, Flags::default());
    }

    fn restore_keys(
        &mut self,
        moving: Moving<W::Socket>,
        is_within_bounds: bool,
        now: Time,
    ) -> Result<Restored, (RestoreError, Moving<W::Socket>)> {
        let restored = match is_within_bounds {
            true => self.proxy.restore_within_bounds(&moving.bytes, now),
            false => self.proxy.restore(&moving.bytes, now),
        };
        let keys = match restored {
            Ok(keys) => keys,
            Err(error) => return Err((error, moving)),
        };
        for (key, socket) in keys.iter().zip(moving.sockets) {
            if let Some(socket) = socket {
                self.keep_socket(*key, socket);
            }
            self.begin_watching(*key, now);
        }
        self.proxy.on_restored(&keys, now);
        self.perform();
        Ok(Restored { keys, used: moving.bytes })
    }
}

/// Has the allocator take as much from the kernel at once as the connections of a turn may need. The heap of a thread grows by a page at
/// a time otherwise (glibc), with a system call for each: a tenth of what it takes to restore connections.
fn grow_heap() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(HEAP_STEP)));
}

fn moving<S>(saved: Saved, sockets: Vec<Option<S>>) -> Moving<S> {
    let Saved { bytes, held, may_begin, remains, .. } = saved;
    // One that has no socket yet, or none any more, is opened or given up wherever it is taken up: its request goes elsewhere then.
    let may_begin = may_begin || sockets.iter().any(Option::is_none);
    Moving { bytes, sockets, held, may_begin, remains }
}
