//! Takes connections out of the workers for another process, a batch at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use ::handover::{BATCH_GROUPS_MAX, Collect, GROUP_SOCKETS_MAX};
use io::Socket;
use worker::{Given, Origin, Wanted};

use super::asking::{AskedWorkers, Silent, put_back};
use super::groups::GivenAway;
use crate::data_path::Contacts;

/// How long a worker may take to answer that was asked for the next batch, once there is none.
const AHEAD_TIMEOUT: Duration = Duration::from_millis(100);

/// What workers gave.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) groups: Vec<GivenAway>,
    /// Connections of the round that could not move so far.
    pub(super) pending: u32,
    /// Whether a worker that gave connections also serves others.
    pub(super) is_busy: bool,
    /// When workers were asked for these groups; monotonic time, ns.
    pub(super) asked_at: u64,
    /// Whether a worker does not answer, or the caller does not go on: that ends the collecting.
    pub(super) is_cut: bool,
}

/// Connections that a round left with the workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// They cannot move yet, as during a handshake.
    pub(super) pending: u32,
    /// Too many others belong to them.
    pub(super) too_large: u32,
    /// They cannot move at all.
    pub(super) staying: u32,
    /// They have come back.
    pub(super) returned: u32,
}

/// Where to go on with asking workers for connections. A round asks each for all; an empty batch ends it.
#[derive(Debug)]
pub(super) struct Collecting {
    contacts: Contacts,
    /// Whether a round asks for idle connections before others.
    is_idle_first: bool,
    /// Connections of a group that moves, at most.
    connections_max: usize,
    /// Whether workers that do not answer are left out from then on. Otherwise one of them ends the collecting.
    leaves_out_silent: bool,
    /// The slot from which on each worker has more.
    next: Vec<Option<u32>>,
    only_idle: bool,
    /// Workers that are left out.
    silent: BTreeSet<usize>,
    /// Workers that were asked for the next batch, while this one is on its way.
    ahead: Option<AskedWorkers>,
    round: Round,
    round_before: Round,
}

impl Collecting {
    /// For another process. One that gives back everything leaves out workers that do not answer: that may be why it does.
    pub(super) fn for_handover(contacts: Contacts, is_return: bool) -> Self {
        Self::new(contacts, true, is_return)
    }

    /// For the service manager.
    pub(super) fn for_storing(contacts: Contacts) -> Self {
        Self::new(contacts, false, false)
    }

    fn new(contacts: Contacts, is_idle_first: bool, leaves_out_silent: bool) -> Self {
        Self {
            is_idle_first,
            connections_max: GROUP_SOCKETS_MAX as usize,
            leaves_out_silent,
            next: vec![Some(0); contacts.count()],
            only_idle: is_idle_first,
            silent: BTreeSet::new(),
            ahead: None,
            round: Round::default(),
            round_before: Round::default(),
            contacts,
        }
    }

    /// What the last whole round left.
    pub(super) const fn round_before(&self) -> Round {
        self.round_before
    }

    /// Takes the next groups out of the workers, as long as `goes_on`, which is asked again and again.
    pub(super) fn next(&mut self, wanted: Collect, goes_on: &mut dyn FnMut() -> bool) -> Batch {
        let mut batch = Batch::default();
        while batch.groups.is_empty() && self.ask_workers(wanted, &mut batch, goes_on) {}
        // Idle ones all went; then those that carry something.
        if batch.groups.is_empty() && !batch.is_cut && !wanted.is_probe && self.only_idle {
            self.begin_again(false);
            while batch.groups.is_empty() && self.ask_workers(wanted, &mut batch, goes_on) {}
        }
        batch.pending = self.round.pending;
        if batch.groups.is_empty() {
            self.round_before = self.round;
            self.begin_again(wanted.is_probe && self.is_idle_first);
        }
        batch
    }

    /// How many connections there are, none of which is to move.
    pub(super) fn count(&mut self) -> u32 {
        self.connections_max = 0;
        self.begin_again(false);
        let all = Collect {
            groups_max: BATCH_GROUPS_MAX,
            of_worker_max: BATCH_GROUPS_MAX,
            is_ahead: false,
            is_probe: false,
        };
        drop(self.next(all, &mut || true));
        let Round { pending, too_large, staying, returned } = self.round_before;
        pending + too_large + staying + returned
    }

    fn begin_again(&mut self, only_idle: bool) {
        self.round = Round::default();
        self.next.fill(Some(0));
        self.only_idle = only_idle;
        self.leave_out();
    }

    /// Has no worker asked again that does not answer.
    fn leave_out(&mut self) {
        for worker in &self.silent {
            if let Some(next) = self.next.get_mut(*worker) {
                *next = None;
            }
        }
    }

    /// Hears what each worker gives that has more; says whether one had. They give the next batch while this one is written down and
    /// sent: to wait for the one before the other took a quarter of the time of a handover.
    fn ask_workers(
        &mut self,
        wanted: Collect,
        batch: &mut Batch,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> bool {
        if !goes_on() {
            batch.is_cut = true;
            return false;
        }
        let (mut asked, mut result) = match self.ahead.take() {
            Some(ahead) => (ahead, Ok(true)),
            None => self.ask_all(wanted),
        };
        let mut answers = Vec::new();
        while result.is_ok() {
            match asked.next(&self.contacts, goes_on) {
                Ok(Some(given)) => answers.push(given),
                Ok(None) => break,
                Err(silent) => result = Err(silent),
            }
        }
        let has_groups = answers.iter().any(|given| !given.groups.is_empty());
        if has_groups {
            batch.asked_at = asked.at;
        }
        for given in &answers {
            if let Some(next) = self.next.get_mut(given.worker as usize) {
                *next = given.next;
            }
        }
        match result {
            Err(Silent) => self.on_silent(asked, batch),
            Ok(_) if wanted.is_ahead && has_groups => match self.ask_all(wanted) {
                (ahead, Ok(true)) => self.ahead = Some(ahead),
                (_, Ok(false)) => {}
                (ahead, Err(Silent)) => self.on_silent(ahead, batch),
            },
            Ok(_) => {}
        }
        for given in answers {
            self.note(given, batch);
        }
        result.unwrap_or(self.leaves_out_silent)
    }

    /// A worker takes no message, or does not answer.
    fn on_silent(&mut self, asked: AskedWorkers, batch: &mut Batch) {
        if self.leaves_out_silent {
            self.silent.extend(asked.silent());
            self.leave_out();
        } else {
            batch.is_cut = true;
        }
        asked.return_late(self.contacts.clone());
    }

    /// Asks each worker that has more; says whether one has.
    fn ask_all(&mut self, collect: Collect) -> (AskedWorkers, Result<bool, Silent>) {
        let Collect { groups_max, of_worker_max, .. } = collect;
        let mut asked = AskedWorkers::none(self.contacts.count());
        let mut was_asked = false;
        let workers = self.next.iter().flatten().count();
        // Each gives a part, so that none stands still for all of a batch.
        let share = groups_max.div_ceil(u32::try_from(workers.max(1)).unwrap_or(1)).max(1);
        let share = share.min(of_worker_max);
        let mut room = groups_max;
        for (worker, next) in self.next.iter().enumerate() {
            let Some(first) = *next else { continue };
            let share = share.min(room);
            if share == 0 {
                break;
            }
            room -= share;
            let only_idle = self.only_idle;
            let connections_max = self.connections_max;
            let wanted = Wanted::From { first, groups_max: share, connections_max, only_idle };
            match asked.ask(worker, wanted, &self.contacts) {
                Ok(()) => was_asked = true,
                Err(Silent) if self.leaves_out_silent => drop(self.silent.insert(worker)),
                Err(Silent) => return (asked, Err(Silent)),
            }
        }
        self.leave_out();
        (asked, Ok(was_asked))
    }

    fn note(&mut self, given: Given<Socket>, batch: &mut Batch) {
        let worker = given.worker as usize;
        batch.is_busy |= given.is_busy;
        self.round.pending += given.pending;
        self.round.too_large += given.too_large;
        self.round.staying += given.staying;
        self.round.returned += given.returned;
        batch.groups.extend(given.groups.into_iter().map(|moving| GivenAway::new(worker, moving)));
    }

    /// Gives back what workers gave for the next batch, and says how many groups: they are at it, or have answered already.
    pub(super) fn return_ahead(&mut self) -> u32 {
        let Some(mut ahead) = self.ahead.take() else { return 0 };
        let mut returned = 0;
        while let Ok(Some(Given { worker, groups, .. })) = ahead.next_within(AHEAD_TIMEOUT) {
            for moving in groups {
                put_back(&self.contacts, worker as usize, moving, Origin::Worker);
                returned += 1;
            }
        }
        ahead.return_late(self.contacts.clone());
        returned
    }
}
