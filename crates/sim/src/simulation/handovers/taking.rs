//! The taker's side: its process, and groups on their way to its workers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};

use ::handover::{
    FollowingAction, MovingAction, OpeningAction, ReceivedGroup, Refused, TakerAction,
};
use config::checks::Checker;
use config::outlier::Detector;
use config::snapshot::ListenerId;
use proxy::Snapshot;
use proxy::save::{Held, Remains};
use telemetry::FormerTotals;
use worker::{Message, Moving, Origin, Take, Taken};

use super::faults::Side;
use super::{Control, REPORT, TOTALS, Taking};
use crate::simulation::Simulation;
use crate::simulation::errands::Errand;
use crate::world::{SimListener, SimSocket};

impl Simulation {
    pub(super) fn on_taker(&mut self, action: TakerAction) {
        let now = self.now().as_nanos();
        let Some(it) = self.handover.as_deref_mut() else { return };
        let Some(taker) = &mut it.taker else { return };
        match action {
            TakerAction::Send(frame) => self.send(false, &frame, 0, Vec::new()),
            TakerAction::Opening(OpeningAction::Compare(theirs)) => {
                let differences = self.compare(&theirs);
                if let Some(taker) = self.handover.as_deref_mut().and_then(|it| it.taker.as_mut()) {
                    taker.compared(differences, now);
                }
            }
            // A former process has its workers, and its own handles on the sockets that it uses.
            TakerAction::Opening(OpeningAction::Listen(_)) if it.returning.is_some() => {
                let unused = self.unused_listeners();
                if let Some(it) = self.handover.as_deref_mut()
                    && let (Some(taker), Some(returning)) = (&mut it.taker, &mut it.returning)
                {
                    returning.serves = true;
                    taker.unused(unused);
                    taker.serving(now);
                }
            }
            TakerAction::Opening(OpeningAction::Listen(_)) => self.start_new_process(),
            TakerAction::Moving(MovingAction::Take { batch, groups }) => {
                self.take_batch(batch, groups);
            }
            // What the other process knew is there; until then nothing is accepted.
            TakerAction::Moving(MovingAction::Learned(_)) => {
                it.to.clone().for_each(|number| self.post(number, Message::AcceptAgain));
            }
            TakerAction::Moving(MovingAction::Commit { states, is_alone })
                if it.returning.is_some() =>
            {
                taker.committed();
                self.on_returned(&states, is_alone);
            }
            TakerAction::Moving(MovingAction::Commit { states, is_alone }) => {
                taker.committed();
                let (before, workers) = (it.from.len(), it.to.clone());
                let (from, to) = (it.from.start, it.to.start);
                let totals = states.get(TOTALS).map(|totals| FormerTotals::read(totals));
                self.counts.of(to).set_former_totals(totals.unwrap_or_default());
                self.counts.succeed(from, to, states.get(REPORT).map(|it| it.as_slice()));
                workers.clone().for_each(|number| self.post(number, Message::AcceptAgain));
                self.process = workers.clone();
                self.replaced += 1;
                self.replaced_workers.insert((before, workers.len()));
                self.exchange_control();
                if is_alone {
                    self.counts.former_has_ended(to);
                }
                self.look_at_counts();
                workers.for_each(|number| self.post(number, Message::SocketsAreOwn));
                self.plan_changes_in_probation();
                self.plan_return();
            }
            TakerAction::Stop(_) => self.stop_taker(),
            TakerAction::Following(FollowingAction::Update { topic, bytes }) => {
                // What it says once it leaves is not played, and comes behind this.
                if topic == TOTALS && it.giver.is_some() {
                    let (is_return, totals) = (it.is_return(), FormerTotals::read(&bytes));
                    let number = it.from.start as u64;
                    let collector = self.counts.of(it.to.start);
                    match is_return {
                        true => collector.set_returned_totals(number, totals),
                        false => collector.set_former_totals(totals),
                    }
                }
            }
            TakerAction::Moving(MovingAction::EndSilent) => self.on_silent_giver(),
            TakerAction::Enter(_)
            | TakerAction::Opening(
                OpeningAction::Welcomed(_)
                | OpeningAction::ContinueVersions(_)
                | OpeningAction::NoteDownstream(_)
                | OpeningAction::Begin(_),
            )
            | TakerAction::Following(FollowingAction::IsMainProcess | FollowingAction::Listed(_))
            | TakerAction::Finished => {}
        }
    }

    /// The new process gets its workers, and serves.
    fn start_new_process(&mut self) {
        let now = self.now().as_nanos();
        let Some(workers) = self.handover.as_deref().map(|it| it.workers) else { return };
        let (loading, snapshot) = self.configurations.begin_again(self.network.borrow().now());
        let former = self.configurations.swap_loading(loading);
        let to = self.start_process(workers, &snapshot);
        let loading = self.configurations.swap_loading(former);
        let control = Control {
            loading,
            snapshot,
            detector: Detector::default(),
            checker: Checker::default(),
            checks_open: BTreeSet::new(),
            listeners_of: self.handles_on_listeners(),
        };
        if let Some(it) = self.handover.as_deref_mut()
            && let Some(taker) = &mut it.taker
        {
            it.to = to;
            it.control = Some(control);
            taker.serving(now);
        }
    }

    pub(super) fn take_batch(&mut self, batch: u32, groups: Vec<ReceivedGroup>) {
        let mut taking = Taking { batch, answers: Vec::new(), refused: Vec::new() };
        for ReceivedGroup { group, bytes, sockets } in groups {
            let Some(it) = self.handover.as_deref_mut() else { return };
            let sockets: Vec<_> = it.descriptors.drain(..sockets as usize).collect();
            let ends = sockets.iter().map(SimSocket::end);
            ends.for_each(|end| self.network.borrow_mut().hand_over(end));
            let place = it.random.length_below(it.to.len().max(1));
            let worker = it.to.start + place;
            let (reply, answer) = sync_channel(1);
            let moving = opened(&bytes, sockets);
            self.post(
                worker,
                Message::Take(Take { moving, origin: Origin::Process, number: group, reply }),
            );
            taking.answers.push(answer);
        }
        if let Some(it) = self.handover.as_deref_mut() {
            it.taking.push_back(taking);
        }
    }

    pub(super) fn go_on_taking(&mut self) {
        let now = self.now().as_nanos();
        let Some(it) = self.handover.as_deref_mut().filter(|it| !it.is_stopped(Side::Taker)) else {
            return;
        };
        while let Some(taking) = it.taking.front_mut() {
            let refused = &mut taking.refused;
            taking.answers.retain(|answer| match answer.try_recv() {
                Ok(Taken { number, result, .. }) => {
                    if let Err((error, _)) = result {
                        refused.push(Refused { group: number, reason: error.to_string() });
                    }
                    false
                }
                Err(TryRecvError::Empty) => true,
                Err(TryRecvError::Disconnected) => false,
            });
            if !taking.answers.is_empty() {
                return;
            }
            let Some(Taking { batch, refused, .. }) = it.taking.pop_front() else { return };
            if let Some(taker) = &mut it.taker {
                let is_busy = it.random.chance(500);
                taker.taken(batch, refused, is_busy, now);
            }
        }
    }

    /// Another configuration may come at any time of the probation, or soon after it, and so may what a source delivers.
    fn plan_changes_in_probation(&mut self) {
        let now = self.now();
        let Some(it) = self.handover.as_deref_mut() else { return };
        if self.scenario.swaps > 0 && it.random.chance(500) {
            let at = now + it.random.span(it.probation);
            self.errand(at, Errand::Swap);
        }
        let Some(it) = self.handover.as_deref_mut() else { return };
        let (mut random, probation) = (it.random.split("deliveries", 0), it.probation);
        if self.scenario.deliveries.is_some() {
            for _ in 0..random.below(4) {
                let at = now + random.span(probation);
                self.errand(at, Errand::DeliverOfAllKinds);
            }
        }
    }

    /// The same handles for another process.
    fn handles_on_listeners(&self) -> Vec<(Arc<str>, SimListener)> {
        let handles = self.listeners_of.iter();
        handles.map(|(name, socket)| (Arc::clone(name), socket.duplicate())).collect()
    }

    /// Handles on the listening sockets of a process, dealt out as `worker::take_over` does: where there are fewer workers, some have
    /// several of a listener; where there are more, several share one.
    pub(in crate::simulation) fn listeners_taken(
        &self,
        workers: usize,
        snapshot: &Snapshot,
    ) -> Vec<Vec<(ListenerId, SimListener)>> {
        let is_known = |name: &Arc<str>| snapshot.listeners.iter().any(|it| it.name == *name);
        let are_known = self.listeners_of.iter().all(|(name, _)| is_known(name));
        assert!(are_known, "both processes have the same configuration");
        let mut taken: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        for listener in snapshot.listeners.iter() {
            let sockets = self.listeners_of.iter().filter(|(name, _)| *name == listener.name);
            let places = sockets.clone().count().max(workers);
            for (place, (_, socket)) in sockets.cycle().take(places).enumerate() {
                if let Some(list) = taken.get_mut(place % workers) {
                    list.push((listener.id, socket.duplicate()));
                }
            }
        }
        taken
    }
}

fn opened(bytes: &[u8], sockets: Vec<SimSocket>) -> Moving<SimSocket> {
    let (count, rest) = bytes.split_first_chunk().expect("written above");
    let (flags, group) = rest.split_at(u32::from_be_bytes(*count) as usize);
    let mut sockets = sockets.into_iter();
    let sockets = flags.iter().map(|has| if *has == 0 { None } else { sockets.next() }).collect();
    Moving {
        bytes: group.to_vec().into(),
        sockets,
        held: Held::default(),
        may_begin: false,
        remains: Remains::default(),
    }
}
