//! One attempt of this process to give what it has to another: the giver's machine, carried out.
//!
//! `handover::Giver` says what is next; this sends it, asks control and the workers, and keeps sockets and bytes of what is on
//! its way until the other process has acknowledged it.

mod accepting;
mod ending;
mod outgoing;
pub(super) mod states;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::Duration;

use ::handover::{
    Collect, Difference, Downstream, Failure, Giver, GiverAction, GroupPack, GroupPiece, Left,
    Message, Phase, SocketKey,
};
use control::{
    Begun, GivenAdmin, HandoverChange, HandoverFact, HandoverNews, HandoverQuestion, HandoverStep,
};
use io::packets::ProcessHandle;
use telemetry::FormerTotals;
use tokio::sync::oneshot::{self, error::TryRecvError};
use wiped::Wiped;

use proxy::save::VERSION as FORM;

use self::accepting::Accepting;
use self::outgoing::Outgoing;
use super::giving::{End, Giving};
use super::giving_back::NotReturned;
use super::leaving::{Leaving, Updates};
use super::line::{FLUSH_INTERVAL, Incoming, Line, nanos, now};
use super::listing::Listing;
use super::requester::{Conclusion, Requester, reap};
use super::topics::Topic;
use super::{longest_handshake, parts, resources};
use crate::data_path::DataPath;

/// Between two looks whether control has begun.
const BEGIN_PAUSE: Duration = Duration::from_millis(2);

/// Frames that are read while one waits to be sent.
const HEARD_MAX: u32 = 64;

/// One attempt.
pub(super) struct Attempt<'g> {
    giving: &'g Giving,
    line: Line,
    process: Option<ProcessHandle>,
    asked: Option<Requester>,
    /// The process at the other end, once it is the process, if this one started it.
    child: Option<Child>,
    /// Whether this process gives back what it got.
    is_return: bool,
    giver: Giver,
    begun: Option<Begun<DataPath>>,
    /// What sources have delivered, for the other process to read.
    resources: Option<OwnedFd>,
    outgoing: Outgoing,
    accepting: Accepting,
    began: u64,
    /// When each phase began, ms after that.
    phases: Vec<(Phase, u64)>,
    /// How many of them are in the log.
    phases_logged: usize,
    updates: Updates,
    /// What the other process knows of endpoints.
    health_said: Wiped,
    /// What the other process asked for and has not got yet.
    listing: Listing,
    /// What the other process has counted by itself, as far as it has said so.
    counted_there: Wiped,
}

impl<'g> Attempt<'g> {
    /// An attempt with the peer of `line`, which has said hello.
    pub(super) fn new(
        giving: &'g Giving,
        line: Line,
        asked: Option<Requester>,
        is_return: bool,
        giver: Giver,
        began: u64,
    ) -> Self {
        let mut giver = giver;
        let process = line.peer_process().unwrap_or_else(|gone| {
            giver.fail(Failure::Own(gone.reason().to_owned()));
            None
        });
        Self {
            giving,
            process,
            line,
            asked,
            child: None,
            is_return,
            giver,
            begun: None,
            resources: None,
            outgoing: Outgoing::new(giving.contacts.clone(), is_return),
            accepting: Accepting::default(),
            began,
            phases: Vec::new(),
            phases_logged: 0,
            updates: Updates::default(),
            health_said: Wiped::default(),
            listing: Listing::default(),
            counted_there: Wiped::default(),
        }
    }

    pub(super) fn run(mut self) -> End {
        loop {
            while let Some(action) = self.giver.poll() {
                match self.perform(action) {
                    None => {}
                    Some(End::Ending) => return self.forget(),
                    Some(End::Back) if self.line.is_full() => {
                        self.giving.refused.borrow_mut().add_unheard(self.line);
                        return End::Back;
                    }
                    Some(end) => return end,
                }
            }
            if self.giver.is_leaving() {
                let Self { line, giver, is_return, listing, .. } = self;
                return End::Over(Some(Box::new(Leaving { line, giver, is_return, listing })));
            }
            self.turn_others_away();
            let next = self.giver.next_deadline().into_iter().chain(self.listing.next_look());
            let next = next.chain(self.look_at_requester()).min();
            let incoming = self.line.receive(next);
            self.giver.was_stopped(self.line.take_stopped());
            let at = now();
            match incoming {
                Ok(Incoming::Frame(frame, count)) => {
                    self.line.descriptors.clear();
                    self.giver.on_frame(&frame, count, at);
                    // Whether it is late is asked once what it has sent is read: this process may have been stopped.
                    has_heard(&mut self.line, &mut self.giver);
                }
                Ok(Incoming::End) => self.giver.on_closed(),
                Ok(Incoming::Nothing) => {}
                Err(error) => self.giver.fail(Failure::Own(error.to_string())),
            }
            self.giver.on_time(at);
            self.update(at);
            self.listing.go_on(&mut self.giver, &self.line);
        }
    }

    /// Nothing of this is closed or taken back until the process ends: the other one uses it, and takes the end of the connection for
    /// that of this process.
    #[expect(clippy::mem_forget, reason = "the end of the process closes it")]
    fn forget(self) -> End {
        std::mem::forget(self);
        End::Ending
    }

    /// Sends the command that asked what waits for room, and says when to do so again.
    fn look_at_requester(&mut self) -> Option<u64> {
        let asked = self.asked.as_mut()?;
        asked.look();
        asked.is_full().then(|| now().saturating_add(nanos(FLUSH_INTERVAL)))
    }

    /// Says that this process is busy with one that takes over; from COMMIT on, that one answers, as long as it runs.
    fn turn_others_away(&self) {
        if self.accepting.stands_in() {
            let successor = process_text(self.line.peer.pid);
            return self.giving.turn_away(|| {
                format!(
                    "{successor} has taken over, but does not run (stopped or hanging), and the old one, which answers here and accepts \
                     connections meanwhile, cannot end it: let that process run (SIGCONT), or end it"
                )
            });
        }
        if self.giver.phase() >= Phase::Commit {
            self.giving.refused.borrow_mut().look(Duration::ZERO);
            return;
        }
        let pid = self.line.peer.pid;
        self.giving.turn_away(|| format!("process {pid} is taking over already"));
    }

    fn perform(&mut self, action: GiverAction) -> Option<End> {
        match action {
            GiverAction::Enter(phase) => self.enter(phase),
            // The new process may be stopped, and this one has to notice that.
            GiverAction::Send(frame) if self.giver.phase() >= Phase::Probation => {
                self.line.queue(frame);
            }
            GiverAction::Send(frame) => {
                send(&mut self.line, &mut self.giver, &frame, &[]);
                self.giver.on_sent(now());
            }
            GiverAction::SendResources(frame) => {
                if let Some(resources) = self.resources.take() {
                    send(&mut self.line, &mut self.giver, &frame, &[resources.as_fd()]);
                }
            }
            GiverAction::SendListening(frame, keys) => self.send_listening(&frame, &keys),
            GiverAction::SendPiece(piece) => {
                self.send_piece(&piece);
                self.line.give_way();
            }
            GiverAction::SendPack(pack) => {
                self.send_pack(&pack);
                self.line.give_way();
            }
            GiverAction::Describe => self.describe(),
            GiverAction::Compared(differences) => self.tell_differences(&differences),
            GiverAction::Checked => return Some(self.on_checked()),
            GiverAction::Listen => self.listen(),
            GiverAction::StopAccepting { but } => self.stop_accepting(&but),
            GiverAction::Collect(collect) => return self.collect(collect),
            GiverAction::TakeBack(refused) => self.outgoing.on_refused(&refused),
            GiverAction::Taken { groups, asked_at } => self.outgoing.on_taken(groups, asked_at),
            GiverAction::Inform { is_first } => self.inform(is_first),
            GiverAction::Summarize => match self.whole_state() {
                Some(states) => self.giver.commit(&states, now()),
                None if self.giving.is_ending() => return Some(self.leave_to_other()),
                None => self.giver.fail(Failure::Own("control does not answer".to_owned())),
            },
            GiverAction::Committed => self.on_committed(),
            GiverAction::RollBack { failure, peer } => return Some(self.roll_back(&failure, peer)),
            GiverAction::EndCommitting(failure) => self.end_committing(failure),
            GiverAction::AcceptAgain => return Some(self.accept_again()),
            GiverAction::EndSilent => self.end_silent(),
            GiverAction::StandIn => self.stand_in(),
            GiverAction::StandBack => self.stand_back(),
            GiverAction::Learned { topic, bytes } => {
                // Another version may know more.
                if Topic::named(&topic) == Some(Topic::Totals) {
                    self.counted_there = bytes;
                }
            }
            GiverAction::BecomeTaker(reason) => return self.take_back_all(&reason),
            GiverAction::Finish => self.finish(),
            GiverAction::EndFormer => {
                self.giving.contacts.former().send(&Message::EndRemaining);
            }
            GiverAction::EndRemaining => {
                self.step(HandoverStep::Became(HandoverChange::EndRemaining));
            }
            GiverAction::List { request, worker, slot } => {
                self.listing.begin(request, (worker, slot), &self.giving.control);
            }
        }
        None
    }

    /// Takes everything back, as the other process asks in its probation. None if that does not come about: the probation goes
    /// on.
    fn take_back_all(&mut self, reason: &str) -> Option<End> {
        let pid = self.line.peer.pid;
        let has_ended = |process: &ProcessHandle| process.wait(Duration::ZERO).unwrap_or(false);
        if self.process.as_ref().is_some_and(has_ended) {
            // The end of the connection is what comes next, and then this process accepts.
            return None;
        }
        tracing::warn!(pid, "the new process asks this one to take everything back: {reason}");
        let process = self.process.as_ref().and_then(|process| process.try_clone().ok());
        match self.giving.return_all(process, self.counted_there.clone()) {
            Ok(generation) => {
                reap(self.child.take());
                Some(End::Returned(generation))
            }
            Err(NotReturned::Refused(reason)) => {
                self.step(HandoverStep::Became(HandoverChange::NotReturned));
                tracing::error!(
                    pid,
                    "the connections cannot be taken back, and the probation continues: {reason}"
                );
                None
            }
            Err(NotReturned::Ending) => Some(End::Over(None)),
        }
    }

    fn enter(&mut self, phase: Phase) {
        let ms = now().saturating_sub(self.began) / 1_000_000;
        self.phases.push((phase, ms));
        // A process that only says hello may do so thousands of times a second.
        if self.asked.is_some() || phase > Phase::Config {
            let pid = self.line.peer.pid;
            for (phase, ms) in self.phases.iter().skip(self.phases_logged) {
                tracing::info!(%phase, ms, pid, "handover");
            }
            self.phases_logged = self.phases.len();
        }
        self.news(HandoverNews::Phase(phase.as_str(), ms));
        self.tell([format!("{phase} after {ms} ms")]);
        if phase == Phase::Config && !self.giver.moves_connections() {
            self.tell([format!(
                "the new version does not read connections in form {FORM}: all of them stay and drain"
            )]);
        }
    }

    fn tell_differences(&mut self, differences: &[Difference]) {
        let own = self.begun.as_ref().filter(|_| !differences.is_empty());
        let own = own.map(|begun| parts(&begun.snapshot)).unwrap_or_default();
        let own: BTreeSet<_> = own.iter().map(|part| (part.kind, &*part.name)).collect();
        let line = |it: &Difference| {
            let (kind, name) = (it.kind.as_str(), &it.name);
            match it.is_missing {
                true => format!("{kind} {name} is missing: its connections stay"),
                false if own.contains(&(it.kind, &**name)) => {
                    format!("{kind} {name} differs: its connections stay")
                }
                false => format!("{kind} {name} is new: connections that it matches stay"),
            }
        };
        self.tell(differences.iter().map(line));
    }

    fn tell(&mut self, lines: impl IntoIterator<Item = String>) {
        if let Some(asked) = &mut self.asked {
            asked.report(lines);
        }
    }

    fn send_listening(&mut self, frame: &[u8], keys: &[SocketKey]) {
        let Some(begun) = &self.begun else { return };
        let handover = self.giving.listener.as_fd();
        let listening = |key: &SocketKey| match key {
            SocketKey::Listener(name, number) => {
                begun.handles.sockets.get(&**name)?.get(*number as usize).map(AsFd::as_fd)
            }
            SocketKey::Admin => begun.admin.as_ref().map(|it| it.socket.as_fd()),
            SocketKey::Metrics => begun.metrics.as_ref().map(|it| it.socket.as_fd()),
            SocketKey::Handover => Some(handover),
        };
        let found: Option<Vec<_>> = keys.iter().map(listening).collect();
        match found {
            Some(sockets) => send(&mut self.line, &mut self.giver, frame, &sockets),
            None => self.giver.fail(Failure::Own("a listening socket is gone".to_owned())),
        }
    }

    fn send_piece(&mut self, piece: &GroupPiece) {
        if let Some((frame, sockets)) = self.outgoing.piece(piece) {
            send(&mut self.line, &mut self.giver, &frame, &sockets);
        }
    }

    fn send_pack(&mut self, pack: &GroupPack) {
        let (frame, sockets) = self.outgoing.pack(pack);
        send(&mut self.line, &mut self.giver, &frame, &sockets);
    }

    fn describe(&mut self) {
        let (reply, mut begun) = oneshot::channel();
        self.step(HandoverStep::Ask(HandoverQuestion::Begin(reply)));
        // The other process waits no longer.
        let until = self.giver.next_deadline().unwrap_or_else(now);
        let begun = loop {
            match begun.try_recv() {
                // A process that ends does not answer any more.
                Err(TryRecvError::Empty) if now() < until => {
                    if self.giving.ending.wait(BEGIN_PAUSE).is_ok_and(|has_ended| has_ended) {
                        break Err(TryRecvError::Closed);
                    }
                }
                begun => break begun,
            }
        };
        match begun {
            Ok(Ok(begun)) => {
                let described = (begun.snapshot.version, parts(&begun.snapshot));
                self.giver.wait_for_handshakes(longest_handshake(&begun.snapshot));
                let delivered = Some(&begun.delivered).filter(|_| self.giver.reads_resources());
                let sealed = delivered.and_then(resources::seal);
                let open_files_max = io::limits::open_files_max();
                let connections = begun.downstream_connections;
                let downstream = Downstream { connections, open_files_max };
                self.begun = Some(begun);
                let bytes = sealed.as_ref().map(|(_, bytes)| *bytes);
                self.giver.send_downstream(downstream);
                self.giver.describe(described, bytes, now());
                self.resources = sealed.map(|(file, _)| file);
            }
            Ok(Err(reason)) => self.giver.fail(Failure::Own(reason)),
            Err(TryRecvError::Closed) => {
                self.giver.fail(Failure::Own("this process is ending".to_owned()));
            }
            Err(TryRecvError::Empty) => {
                let reason =
                    "this process is still reading its configuration, or moving connections";
                self.giver.fail(Failure::Own(reason.to_owned()));
            }
        }
    }

    fn listen(&mut self) {
        let Some(begun) = &self.begun else { return };
        let mut keys = Vec::new();
        for (name, handles) in &begun.handles.sockets {
            let count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
            keys.extend((0..count).map(|number| SocketKey::Listener(name.to_string(), number)));
        }
        keys.extend(begun.admin.is_some().then_some(SocketKey::Admin));
        keys.extend(begun.metrics.is_some().then_some(SocketKey::Metrics));
        keys.push(SocketKey::Handover);
        let own_files = begun.handles.own_files.iter();
        let own_files =
            own_files.map(|(name, number)| SocketKey::Listener(name.to_string(), *number));
        let owns_file = |admin: &Option<GivenAdmin>| admin.as_ref().is_some_and(|it| it.owns_file);
        let own_admin = [(&begun.admin, SocketKey::Admin), (&begun.metrics, SocketKey::Metrics)];
        let own_admin = own_admin.into_iter().filter(|(it, _)| owns_file(it)).map(|(_, key)| key);
        self.giver.own_files(own_files.chain(own_admin).collect());
        self.giver.listen(keys);
    }

    /// Takes the next groups out of the workers.
    fn collect(&mut self, wanted: Collect) -> Option<End> {
        let Self { outgoing, giver, line, .. } = self;
        let mut goes_on = || {
            let at = now();
            line.flush();
            // The other process waits, and takes a long silence for the end of this one.
            if giver.is_alive_due(at) && !line.is_full() {
                line.queue(Message::Alive.encode());
            }
            !giver.is_late(at)
        };
        let (collected, is_cut) = outgoing.collect(wanted, &mut goes_on);
        if is_cut && self.giving.is_ending() {
            return Some(self.leave_to_other());
        }
        if is_cut {
            // It may be late, and has failed then.
            self.giver.on_time(now());
            self.giver.fail(Failure::Own("a worker does not answer".to_owned()));
        }
        self.giver.give(collected, now());
        None
    }

    /// The connections that stay with this process.
    fn left(&mut self) -> Vec<Left> {
        if self.giver.moves_connections() {
            return self.outgoing.left_behind();
        }
        let reason = format!("the new version does not read connections in form {FORM}");
        self.outgoing.all_left(&reason)
    }

    /// This process ends at once, and its workers have. The other one continues with what it has as soon as it sees that end, by that of
    /// the connection to it.
    fn leave_to_other(&self) -> End {
        let pid = self.line.peer.pid;
        tracing::warn!(pid, "this process ends during the handover: the new one continues");
        End::Ending
    }

    fn on_committed(&mut self) {
        let pid = self.line.peer.pid;
        self.begun = None;
        let former = self.giving.contacts.former();
        former.send(&Message::Succeeded);
        former.leave();
        self.outgoing.left = self.left();
        self.count();
        let (reply, is_done) = oneshot::channel();
        let kept_admin = self.accepting.kept_admin();
        self.step(HandoverStep::Became(HandoverChange::Committed {
            successor: pid,
            is_return: self.is_return,
            kept_admin,
            reply,
        }));
        // An operator who hears of the end may ask on the admin interface, where the other process has to answer.
        let _ = is_done.blocking_recv();
        // Of thousands that takes a while, in which this process would still answer for the other one.
        self.outgoing.let_go();
        // Two processes share the machine for a while; and what is freed may have had keys in it.
        io::release_free_memory();
        let ms = now().saturating_sub(self.began) / 1_000_000;
        let Outgoing { moved, silence, left: by_reason, .. } = &self.outgoing;
        let (silence_ms, left) =
            (silence / 1_000_000, by_reason.iter().map(|left| left.count).sum::<u32>());
        tracing::info!(pid, ms, groups = moved, left, silence_ms, "handed over");
        let outcome = match self.giver.why_given_back() {
            None => (
                Conclusion::Done,
                format!(
                    "{} serves: {moved} groups of connections moved, {left} stay and drain",
                    process_text(pid)
                ),
            ),
            Some(why) => (
                Conclusion::Continues,
                format!("{} gives everything back: {why}", process_text(pid)),
            ),
        };
        let stay = |Left { reason, count }: &Left| format!("{count} stay: {reason}");
        let silence = format!("no connection was silent for longer than {} ms", silence_ms + 1);
        let lines: Vec<_> = by_reason.iter().map(stay).chain([silence]).collect();
        self.tell(lines);
        if let Some(asked) = self.asked.take() {
            self.child = asked.conclude(outcome.0, outcome.1);
        }
    }

    /// Probation is over: this process ends.
    fn finish(&mut self) {
        let (reply, is_said) = oneshot::channel();
        self.step(HandoverStep::Became(HandoverChange::Finish(reply)));
        // Control ends with the process.
        if is_said.blocking_recv().is_ok() {
            self.giver.main_process();
        }
    }

    /// Has control go on in the place of the other process, with what that has counted.
    pub(super) fn become_again(&self, change: impl FnOnce(FormerTotals) -> HandoverChange) {
        let totals = FormerTotals::read(&self.counted_there);
        self.step(HandoverStep::Became(change(totals)));
    }

    fn news(&self, news: HandoverNews) {
        self.step(HandoverStep::Heard(HandoverFact::News(news)));
    }

    /// Says how many have moved, and what stays.
    fn count(&self) {
        let Outgoing { moved, left, .. } = &self.outgoing;
        let left = left.iter().map(|left| (left.reason.clone(), left.count)).collect();
        self.news(HandoverNews::Counted { moved: *moved, left });
    }

    fn step(&self, step: HandoverStep<DataPath>) {
        // Control ends with the process.
        let _ = self.giving.control.blocking_send(step);
    }
}

/// The process with this id, which is 0 where it has none here, as in another container.
fn process_text(pid: u32) -> String {
    if pid == 0 { "the new process".to_owned() } else { format!("process {pid}") }
}

/// Sends a frame. While the other process takes connections up, it does not read, and says that it is there.
fn send(line: &mut Line, giver: &mut Giver, frame: &[u8], descriptors: &[BorrowedFd<'_>]) {
    loop {
        let Err(error) = line.send(frame, descriptors) else { return };
        let reason = match error.kind() {
            // What it says of its own end, if anything, comes before the end of the connection.
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => return,
            std::io::ErrorKind::TimedOut => {
                // What it has said meanwhile counts before the time does: this process may have been stopped.
                let has_heard = has_heard(line, giver);
                giver.was_stopped(line.take_stopped());
                if has_heard && !giver.is_late(now()) {
                    continue;
                }
                "it does not read".to_owned()
            }
            _ => error.to_string(),
        };
        return giver
            .fail_unsent(Failure::Own(format!("cannot send to the other process: {reason}")));
    }
}

/// Reads what the other process has said meanwhile; whether it has said anything, and not that it gives up.
fn has_heard(line: &mut Line, giver: &mut Giver) -> bool {
    let mut has_heard = false;
    for _ in 0..HEARD_MAX {
        match line.receive(Some(0)) {
            Ok(Incoming::Frame(frame, count)) => {
                line.descriptors.clear();
                giver.on_frame(&frame, count, now());
                has_heard = true;
            }
            // Its end shows again.
            Ok(Incoming::End | Incoming::Nothing) => break,
            Err(error) => {
                giver.fail(Failure::Own(error.to_string()));
                break;
            }
        }
    }
    has_heard && giver.phase() != Phase::Done
}
