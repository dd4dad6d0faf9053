//! Connections that leave: what a worker is asked for is looked for among its slots, and taken out with its sockets.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::vec::IntoIter;

use proxy::ConnKey;
use proxy::save::{GroupMax, Movable, NotSaved, Saved, Saving, Unmovable};

use super::{Moving, SLOTS_MAX, UnderWay};
use crate::mailbox::{Give, Given, Wanted};
use crate::turn::Worker;
use crate::world::{Ready, World};

/// Groups that there is room for from the start: as many as a batch has.
const GROUPS_RESERVED: u32 = SLOTS_PART;

/// Slots whose connections are looked at together: about as many as a batch takes.
const SLOTS_PART: u32 = 64;

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
            Wanted::One { connection, max } => self.give_one(connection, max, &mut giving.given),
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

    /// What can move of the connections from a slot on, for a moment at most. A large group is the last of them.
    fn give_from(&mut self, giving: &mut Giving<W::Socket>) -> Option<Saving> {
        let Giving { wanted, given, kept, .. } = giving;
        let Wanted::From { groups_max, connections_max, only_idle, .. } = *wanted else {
            return None;
        };
        let max = GroupMax::connections(connections_max);
        let until = self.moving_until();
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
                    match self.begin_save(key, max, self.settings.group_part_max) {
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
        max: GroupMax,
        given: &mut Given<W::Socket>,
    ) -> Option<Saving> {
        // With an upstream connection that an exchange has alone goes what it belongs to.
        let key = self.proxy.leading(connection);
        let kept = match self.proxy.movable_one(key) {
            None => Unmovable::Unknown,
            Some(Movable::NotYet | Movable::WithAnother) => Unmovable::NotYet,
            Some(Movable::Stays) => Unmovable::Stays,
            Some(Movable::Idle | Movable::Busy) => {
                match self.begin_save(key, max, self.settings.group_part_max) {
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

    pub(super) fn continue_save(&mut self, mut save: LargeSave<W::Socket>) {
        let until = self.moving_until();
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

    pub(super) fn continue_keep(&mut self, mut keep: LargeKeep<W::Socket>) {
        let until = self.moving_until();
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

    /// See [`proxy::Proxy::begin_save`], for what is refused too.
    fn begin_save(
        &mut self,
        key: ConnKey,
        max: GroupMax,
        part_max: usize,
    ) -> Result<Saving, NotSaved> {
        let now = self.world.now();
        let saving = self.proxy.begin_save(key, max, part_max, now);
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
        let saving = self.begin_save(key, GroupMax::ANY, usize::MAX).ok()?;
        let moving = self.save_all(saving);
        self.unwatch(&moving.sockets);
        Some(moving)
    }
}

fn moving<S>(saved: Saved, sockets: Vec<Option<S>>) -> Moving<S> {
    let Saved { bytes, held, may_begin, remains, .. } = saved;
    // One that has no socket yet, or none any more, is opened or given up wherever it is taken up: its request goes elsewhere then.
    let may_begin = may_begin || sockets.iter().any(Option::is_none);
    Moving { bytes, sockets, held, may_begin, remains }
}
