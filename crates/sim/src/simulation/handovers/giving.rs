//! The giver's side: what its machine says is next, asked of the workers, and what comes back.

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;

use ::handover::{
    Collect, Collected, GivenGroup, GiverAction, GroupPack, GroupPiece, PeerLife, SocketKey,
    UnusedSocket,
};
use telemetry::FormerTotals;
use worker::{Give, Given, Message, Moving, Origin, Take, Wanted};

use super::faults::Side;
use super::{Collecting, Control, GivenAway, REPORT, TOTALS, later, states};
use crate::simulation::Simulation;
use crate::simulation::errands::Errand;
use crate::world::SimSocket;

impl Simulation {
    pub(super) fn begin_again(&mut self, only_idle: bool) {
        if let Some(it) = self.handover.as_deref_mut() {
            it.next = it.from.clone().map(|worker| (worker, 0)).collect();
            it.only_idle = only_idle;
            it.pending = 0;
        }
    }

    pub(super) fn on_giver(&mut self, action: GiverAction) {
        let now = self.now().as_nanos();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let reported = it.reported();
        let Some(giver) = &mut it.giver else { return };
        match action {
            GiverAction::Send(frame) => self.send(true, &frame, 0, Vec::new()),
            GiverAction::SendListening(frame, keys) => {
                self.send(true, &frame, keys.len(), Vec::new());
            }
            GiverAction::SendPiece(piece) => self.send_piece(&piece),
            GiverAction::SendPack(pack) => self.send_pack(&pack),
            // Nothing is handed on so: the taker's loader hears the same from the source.
            GiverAction::SendResources(_) => {}
            GiverAction::Describe => self.describe(),
            GiverAction::Listen => {
                let count = u32::try_from(self.listeners_of.len()).expect("few listeners");
                let key = |number| SocketKey::Listener("all".to_owned(), number);
                giver.listen((0..count).map(key).collect());
            }
            GiverAction::StopAccepting { but } => self.stop_accepting(&but),
            GiverAction::Collect(Collect { groups_max, is_probe, .. }) => {
                let (answers, groups) = (Vec::new(), Vec::new());
                let is_busy = false;
                it.collecting = Some(Collecting { answers, groups, groups_max, is_probe, is_busy });
                self.ask_workers();
            }
            GiverAction::TakeBack(refused) => {
                if let Some(given) = it.given.remove(&refused.group) {
                    self.return_group(given);
                }
            }
            GiverAction::Inform { .. } => {
                giver.inform(&states(self.counts.report(it.from.start, reported)));
            }
            GiverAction::Summarize => {
                // More than a frame has room for.
                let other = ("other".to_owned(), vec![7; 100_000].into());
                let [totals, report] = states(self.counts.report(it.from.start, reported));
                giver.commit(&[totals, report, other], now);
            }
            GiverAction::Committed => {
                // The new process may have ended since it said so, and its connections with it.
                it.probation_until = later(now, it.probation);
                self.network.borrow_mut().is_killing = it.taker.is_none();
                it.given.clear();
                self.network.borrow_mut().is_killing = false;
            }
            GiverAction::RollBack { peer, .. } => self.roll_back(peer),
            // Asked to commit, it may be the process once it runs again; that both accept until then is not played.
            GiverAction::EndCommitting(failure) => {
                self.end_taker();
                if let Some(giver) = self.handover.as_deref_mut().and_then(|it| it.giver.as_mut()) {
                    giver.on_ended(failure);
                }
            }
            GiverAction::Learned { topic, bytes } => match &*topic {
                TOTALS => it.counted_there.0 = bytes.to_vec(),
                REPORT => it.counted_there.1 = bytes.to_vec(),
                _ => {}
            },
            GiverAction::AcceptAgain => {
                self.process = it.from.clone();
                self.exchange_control();
                self.take_counts_back();
                self.post_all(|_| Message::AcceptAgain);
                self.read_again();
            }
            GiverAction::Finish => {
                // What it says from here on is left out.
                it.giver = None;
                let workers = it.from.clone();
                workers.for_each(|number| self.post(number, Message::Drain));
            }
            GiverAction::EndSilent if it.may_end_taker => self.end_taker(),
            GiverAction::EndSilent => {}
            // It accepts beside the other one, which is the process all the same.
            GiverAction::StandIn => {
                self.stood_in += 1;
                let totals = FormerTotals::read(&it.counted_there.0);
                self.counts.of(it.from.start).stand_in_for(totals);
                let workers = it.from.clone();
                workers.for_each(|number| self.post(number, Message::AcceptAgain));
            }
            GiverAction::StandBack => {
                self.counts.of(it.from.start).stand_in_for(FormerTotals::default());
                let workers = it.from.clone();
                workers.for_each(|number| self.post(number, Message::StopAccepting { but: [].into() }));
            }
            GiverAction::BecomeTaker(_) => self.on_return_asked(),
            // No process here counts generations.
            GiverAction::EndFormer | GiverAction::EndRemaining => {}
            GiverAction::Enter(_)
            | GiverAction::Compared(_)
            | GiverAction::Checked
            // Nothing asks for a page.
            | GiverAction::List { .. }
            | GiverAction::Taken { .. } => {}
        }
    }

    fn describe(&mut self) {
        let now = self.now().as_nanos();
        let parts = self.parts();
        let Some(it) = self.handover.as_deref_mut() else { return };
        it.has_begun = true;
        self.counts.begin_giving(it.from.start);
        if let Some(giver) = &mut it.giver {
            giver.describe((1, parts), None, now);
        }
    }

    /// The giver's workers leave new connections to the other process, but on sockets that this one does not use.
    fn stop_accepting(&mut self, unused: &[UnusedSocket]) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        it.is_accepting = false;
        let workers = it.from.clone();
        it.unaware.extend(workers.clone());
        let but = self.kept_listeners(unused);
        workers.for_each(|number| {
            self.post(number, Message::StopAccepting { but: Arc::clone(&but) });
        });
    }

    fn send_piece(&mut self, piece: &GroupPiece) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(given) = it.given.get_mut(&piece.group()) else { return };
        given.is_sent = true;
        let count = piece.sockets as usize;
        let sockets = given.moving.sockets.iter().flatten().map(SimSocket::duplicate);
        let sockets = sockets.skip(piece.first_socket as usize).take(count).collect();
        let frame = piece.frame(given.parts());
        self.send(true, &frame, count, sockets);
    }

    fn send_pack(&mut self, pack: &GroupPack) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let mut sockets = Vec::new();
        for group in pack.groups() {
            let Some(given) = it.given.get_mut(&group) else { return };
            given.is_sent = true;
            sockets.extend(given.moving.sockets.iter().flatten().map(SimSocket::duplicate));
        }
        let frame = pack.frame(|group| it.given[&group].parts());
        self.send(true, &frame, sockets.len(), sockets);
    }

    /// The other process is the process: control goes on there.
    pub(super) fn exchange_control(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(control) = it.control.take() else { return };
        let snapshot = control.snapshot;
        it.control = Some(Control {
            loading: self.configurations.swap_loading(control.loading),
            snapshot: self.snapshot.take().expect("there is a configuration from the start"),
            detector: mem::replace(&mut self.detector, control.detector),
            checker: mem::replace(&mut self.checker, control.checker),
            checks_open: mem::replace(&mut self.checks_open, control.checks_open),
            listeners_of: mem::replace(&mut self.listeners_of, control.listeners_of),
        });
        self.note_bounds(&snapshot);
        self.detect_in(&snapshot);
        self.check_in_adopted(&snapshot);
        self.read_log();
        self.name(&snapshot);
        self.plan_ends_of_waits();
    }

    pub(super) fn roll_back(&mut self, peer: PeerLife) {
        let is_over = self.is_taker_over(peer);
        let Some(it) = self.handover.as_deref_mut() else { return };
        let workers = it.from.clone();
        if mem::replace(&mut self.process, workers) == it.to {
            // It ended before the other one heard that it is the process.
            self.exchange_control();
        }
        self.take_counts_back();
        let Some(it) = self.handover.as_deref_mut() else { return };
        if let Some(collecting) = it.collecting.take() {
            self.late.extend(collecting.answers);
            self.return_late();
        }
        let Some(it) = self.handover.as_deref_mut() else { return };
        let (given, workers) = (mem::take(&mut it.given), it.from.clone());
        let was_accepting = it.is_accepting;
        given.into_values().for_each(|given| self.settle_given(given, is_over));
        if !was_accepting {
            workers.for_each(|number| self.post(number, Message::AcceptAgain));
        }
        self.read_again();
    }

    /// Ends the other process, which may still use what it was given, where that is allowed. Returns whether it is over.
    fn is_taker_over(&mut self, peer: PeerLife) -> bool {
        let Some(it) = self.handover.as_deref() else { return true };
        if peer == PeerLife::InDoubt && it.taker.is_some() && !it.may_end_taker {
            self.takers_left += 1;
            return false;
        }
        // A former process that did not serve yet stands by as before.
        if peer == PeerLife::Over && it.returning.as_ref().is_some_and(|it| !it.serves) {
            return true;
        }
        // One that gave up has ended by itself.
        if peer == PeerLife::InDoubt || it.taker.is_some() {
            self.end_taker();
        }
        true
    }

    /// A group that was given away goes on here, unless the other process may have used it, or may still.
    fn settle_given(&self, given: GivenAway, is_taker_over: bool) {
        let traffic = self.traffic(&given.moving);
        let mut is_known = traffic.iter().zip(&given.moving.sockets);
        let is_known = is_known.all(|(it, socket)| it.is_some() || socket.is_none());
        let is_untouched = !given.moving.may_begin && is_known && traffic == given.traffic;
        if !given.is_sent || is_taker_over && is_untouched {
            return self.return_group(given);
        }
        let network = &mut self.network.borrow_mut();
        for socket in given.moving.sockets.iter().flatten() {
            match is_taker_over {
                true => network.reset(socket.end()),
                false => network.abort(socket.end()),
            }
        }
    }

    /// A process that is the process again counts on from what the other one has counted.
    fn take_counts_back(&mut self) {
        let now = self.now();
        let Some(it) = self.handover.as_deref() else { return };
        let (totals, number) = &it.counted_there;
        // One that was refused before it began gave nothing.
        let lost_at = it.has_begun.then_some(now);
        self.counts.take_back(it.from.start, totals, number, lost_at);
        self.look_at_counts();
    }

    /// A process that is the process again reads what the other one has read meanwhile, and hears what that heard.
    pub(super) fn read_again(&mut self) {
        if self.handover.as_deref().is_some_and(|it| it.has_reloaded) && !self.is_draining {
            let snapshot = self.configurations.latest_again();
            self.publish(&snapshot);
            self.deliver_missed();
        }
    }

    /// What workers answer too late goes back to them.
    pub(in crate::simulation) fn return_late(&mut self) {
        for (worker, answer) in mem::take(&mut self.late) {
            match answer.try_recv() {
                Ok(Given { groups, .. }) => {
                    for moving in groups {
                        let (reply, _) = sync_channel(1);
                        let take = Take { moving, origin: Origin::Worker, number: 0, reply };
                        self.post(worker, Message::Take(take));
                    }
                }
                Err(TryRecvError::Empty) => self.late.push((worker, answer)),
                Err(TryRecvError::Disconnected) => {}
            }
        }
        if !self.late.is_empty() {
            let later = self.now() + Duration::from_millis(1);
            self.errand(later, Errand::ReturnLate);
        }
    }

    pub(super) fn traffic(&self, moving: &Moving<SimSocket>) -> Vec<Option<(u64, u64)>> {
        let network = self.network.borrow();
        let of = |socket: &Option<SimSocket>| network.traffic(socket.as_ref()?.end());
        moving.sockets.iter().map(of).collect()
    }

    pub(super) fn return_group(&self, given: GivenAway) {
        let (reply, _) = sync_channel(1);
        let GivenAway { worker, moving, .. } = given;
        self.post(
            worker,
            Message::Take(Take { moving, origin: Origin::Returned, number: 0, reply }),
        );
    }

    /// Asks each worker that has more.
    pub(super) fn ask_workers(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(collecting) = &it.collecting else { return };
        let (groups_max, only_idle) = (collecting.groups_max, it.only_idle);
        let share = groups_max.div_ceil(u32::try_from(it.next.len().max(1)).expect("few")).max(1);
        let asked = it.from.clone().filter(|number| it.next.contains_key(number));
        let asked: Vec<usize> = asked.take(groups_max as usize).collect();
        for number in asked {
            for _ in 0..share {
                if !self.ask_worker(number, only_idle) {
                    break;
                }
            }
        }
    }

    /// Asks for one group, after which connections that began to connect in its place get their record layers. Returns whether
    /// there is more to ask for at once.
    pub(super) fn ask_worker(&mut self, number: usize, only_idle: bool) -> bool {
        let Some(it) = self.handover.as_deref_mut() else { return false };
        let Some(first) = it.next.get(&number).copied() else { return false };
        let Some(Some(thread)) = self.threads.get_mut(number) else { return false };
        // Mail comes in its order.
        if thread.worker.is_moving() || it.unaware.contains(&number) {
            return false;
        }
        let (reply, answer) = sync_channel(1);
        let connections_max = usize::MAX;
        let wanted = Wanted::From { first, groups_max: 1, connections_max, only_idle };
        // Between two turns, when all that began in the last one have their record layers.
        thread.worker.give(Give { wanted, reply });
        self.give_keys(number);
        self.read_reports();
        if let Ok(given) = answer.try_recv() {
            self.note_given(number, given);
            return true;
        }
        if let Some(collecting) = self.handover.as_deref_mut().and_then(|it| it.collecting.as_mut())
        {
            collecting.answers.push((number, answer));
        }
        false
    }

    pub(super) fn go_on_collecting(&mut self) {
        let Some(it) = self.handover.as_deref_mut() else { return };
        if it.is_stopped(Side::Giver) {
            return;
        }
        let Some(collecting) = &mut it.collecting else { return };
        let mut waiting = Vec::new();
        let mut heard = Vec::new();
        for (number, answer) in mem::take(&mut collecting.answers) {
            match answer.try_recv() {
                Ok(given) => heard.push((number, given)),
                Err(TryRecvError::Empty) => waiting.push((number, answer)),
                Err(TryRecvError::Disconnected) => {
                    it.next.remove(&number);
                }
            }
        }
        let is_waiting = !waiting.is_empty();
        collecting.answers = waiting;
        for (number, given) in heard {
            self.note_given(number, given);
        }
        if is_waiting {
            return;
        }
        let now = self.now().as_nanos();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(collecting) = &mut it.collecting else { return };
        let is_moving = |number: &usize| {
            let thread = self.threads.get(*number).and_then(Option::as_ref);
            thread.is_some_and(|thread| thread.worker.is_moving())
        };
        it.next.retain(|number, _| self.threads.get(*number).is_some_and(Option::is_some));
        if collecting.groups.is_empty()
            && (!it.next.is_empty() || it.from.clone().any(|n| is_moving(&n)))
        {
            return self.ask_workers();
        }
        if collecting.groups.is_empty() && !collecting.is_probe && it.only_idle {
            self.begin_again(false);
            return self.ask_workers();
        }
        let Some(collecting) = it.collecting.take() else { return };
        let Collecting { groups, is_probe, is_busy, .. } = collecting;
        let pending = it.pending;
        if let Some(giver) = &mut it.giver {
            let is_empty = groups.is_empty();
            giver.give(Collected { groups, asked_at: now, pending, is_busy }, now);
            if is_empty {
                self.begin_again(is_probe);
            }
        }
    }

    pub(super) fn note_given(&mut self, worker: usize, given: Given<SimSocket>) {
        for moving in given.groups {
            self.taken_out += 1;
            let traffic = self.traffic(&moving);
            let Some(it) = self.handover.as_deref_mut() else { return };
            let group = it.group_next;
            it.group_next += 1;
            let sockets = u32::try_from(moving.sockets.iter().flatten().count()).expect("few");
            let given = GivenAway { worker, head: head(&moving), moving, traffic, is_sent: false };
            let bytes = given.parts().map(<[u8]>::len).sum::<usize>();
            let bytes = u32::try_from(bytes).expect("few");
            if let Some(collecting) = &mut it.collecting {
                collecting.groups.push(GivenGroup { group, bytes, sockets });
            }
            it.given.insert(group, given);
        }
        let Some(it) = self.handover.as_deref_mut() else { return };
        if let Some(collecting) = &mut it.collecting {
            collecting.is_busy |= given.is_busy;
        }
        it.pending += given.pending;
        match given.next {
            Some(next) => it.next.insert(worker, next),
            None => it.next.remove(&worker),
        };
    }
}

impl GivenAway {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.head.as_slice()).chain(self.moving.bytes.iter())
    }
}

/// As `strait::handover::groups` has it: which connections have a socket. The group follows.
fn head(moving: &Moving<SimSocket>) -> Vec<u8> {
    let count = u32::try_from(moving.sockets.len()).expect("few").to_be_bytes();
    let mut head = count.to_vec();
    head.extend(moving.sockets.iter().map(|socket| u8::from(socket.is_some())));
    head
}
