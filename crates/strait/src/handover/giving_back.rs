//! A process that has taken another's place and gives it back while that one stands by: because an operator asks for it, or
//! because a worker does not answer.
//!
//! The process that gets everything back is the taker of that handover, with its own workers, listening sockets and
//! configuration.

use std::path::Path;
use std::thread;
use std::time::Duration;

use ::handover::{Hello, Message, Purpose};
use control::{HandoverChange, HandoverQuestion, HandoverStep};
use io::packets::{Packets, Peer, ProcessHandle};
use proxy::Snapshot;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use wiped::Wiped;

use super::giving::{End, Giving};
use super::line::{Incoming, Line, nanos, now};
use super::requester::Requester;
use super::taking::{TakeOutcome, TakenSockets, Taking};
use super::timeouts::RETURNED_END_TIMEOUT;
use super::timeouts::WATCHDOG_TIMEOUT;
use super::{is_allowed, spawn};
use crate::VERSION;
use crate::activation::Activation;
use crate::data_path::{Contacts, DataPath};

/// How long the former process may take to connect.
const CONNECT_TIMEOUT: u64 = 5_000_000_000;

/// Between two looks at the workers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Why everything was not taken back.
pub(super) enum NotReturned {
    /// The other process does not give, and serves on.
    Refused(String),
    /// This process began to take and cannot: it ends.
    Ending,
}

impl Giving {
    /// Gives everything back to the process whose place this one took, if that still stands by.
    pub(super) fn give_back(&self, line: Line, reason: String) -> End {
        let requester = Requester::new(line, None);
        let former = self.contacts.former();
        if !former.stands_by() || !former.send(&Message::TakeBack { reason: reason.clone() }) {
            let reason =
                "there is no old process that could take back, or its probation is over".to_owned();
            return self.conclude(requester, reason);
        }
        former.note_taking_back(true);
        let old = former.peer();
        tracing::warn!("giving everything back to the old process: {reason}");
        let until = now().saturating_add(CONNECT_TIMEOUT);
        while now() < until && !self.is_ending() && former.stands_by() {
            let next = self.next_peer(Duration::from_millis(50));
            let Some((peer, heard)) = next else { continue };
            let takes_back = matches!(heard.hello.purpose, Purpose::TakeBack { .. });
            if takes_back && old.is_some_and(|old| is_same(old, peer.peer)) {
                let end = self.give(peer, &heard, Some(requester));
                if matches!(end, End::Back) {
                    former.note_taking_back(false);
                }
                return end;
            }
            let reason = if takes_back {
                "this process gives back to the one from which it has everything, and to no other"
            } else {
                "this process is giving back to the old one"
            };
            self.refuse(&peer, "busy", reason.to_owned());
        }
        former.note_taking_back(false);
        let reason =
            "the old process does not take back: its probation is over, or it is ending or stopped"
                .to_owned();
        self.conclude(requester, reason)
    }

    /// Takes everything back from the process that has taken this one's place, and says how many handovers led to it then. What that has
    /// `counted` by itself counts should it end meanwhile.
    pub(super) fn return_all(
        &self,
        process: Option<ProcessHandle>,
        counted: Wiped,
    ) -> Result<u64, NotReturned> {
        let refused = |reason: String| NotReturned::Refused(reason);
        let (reply, snapshot) = oneshot::channel();
        // Control ends with the process.
        let _ = self.control.blocking_send(HandoverStep::Ask(HandoverQuestion::BeginReturn(reply)));
        let snapshot =
            snapshot.blocking_recv().map_err(|_| refused("this process is ending".to_owned()))?;
        let line = Packets::connect(&self.path).and_then(Line::new);
        let line = line.map_err(|error| refused(error.to_string()))?;
        if !is_allowed(line.peer.uid, &self.options) {
            return Err(refused(format!("user {} listens there", line.peer.uid)));
        }
        let taking = Taking::of_former(line, &self.options, process, counted);
        let taking = match taking.receive_sockets(&mut &*snapshot, false) {
            // This process has its own handles on those that it uses.
            Ok(TakeOutcome::Taking(mut taking, sockets)) => {
                use_sockets(&mut taking, sockets, &snapshot);
                taking
            }
            Ok(TakeOutcome::NoProcess(reason)) => return Err(refused(reason)),
            Ok(TakeOutcome::Checked(_)) => return Err(refused("it only compares".to_owned())),
            Err(error) => return Err(refused(error.to_string())),
        };
        let drain_timeout = snapshot.limits.drain_timeout;
        drop(snapshot);
        self.sessions.early.expect();
        let taken = taking.take_connections(&self.contacts, &self.control, &self.sessions);
        let Some(mut taken) = taken else { return Err(NotReturned::Ending) };
        self.set_access();
        let generation = taken.generation;
        if let Some(process) = taken.process.take() {
            let timeout = drain_timeout.saturating_add(RETURNED_END_TIMEOUT);
            spawn("strait-unwell", move || end_within(&process, timeout));
        }
        let (contacts, control) = (self.contacts.clone(), self.control.clone());
        spawn("strait-former", move || taken.follow(&contacts, &control));
        Ok(generation)
    }
}

/// Whether two ends of connections are the same process's, as far as that is known: of processes that have no id here, as in other
/// containers, only the user is.
fn is_same(one: Peer, other: Peer) -> bool {
    one.pid == other.pid && (one.pid != 0 || one.uid == other.uid)
}

/// Notes which sockets of the other process this one does not use, and which listeners had others there.
fn use_sockets(taking: &mut Taking, mut taken: TakenSockets, snapshot: &Snapshot) {
    let mut listeners = Activation::default();
    listeners.take_over(std::mem::take(&mut taken.listeners));
    let startup = &snapshot.startup;
    for address in startup.admin.iter().chain(&startup.metrics) {
        drop(taken.take_socket_at(address));
    }
    taking.unused = listeners.unused(snapshot).into_iter().chain(taken.unused_admin()).collect();
    taking.note_moved(listeners.moved(snapshot));
}

/// Ends a process that has given everything back and does not end by itself, as one whose worker hangs.
fn end_within(process: &ProcessHandle, timeout: Duration) {
    let until = now().saturating_add(nanos(timeout));
    while now() < until {
        // A signal may cut the waiting short.
        match process.wait(Duration::from_nanos(until.saturating_sub(now()))) {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
    }
    tracing::error!("the process that gave everything back did not end in time: it is killed");
    // It may be another user's.
    let _ = process.kill();
}

/// Looks at the workers of a process that has just taken another's place, as long as that one stands by for it, and has everything
/// given back if one does not answer. Workers of a process that has handed over, or ends, end when they have nothing left.
pub(crate) fn watch(contacts: &Contacts, path: &Path, probation: Duration) {
    let until = now().saturating_add(nanos(probation));
    while now() < until && contacts.former().stands_by() {
        pause();
        let look = || contacts.ping(0..contacts.count(), WATCHDOG_TIMEOUT);
        let Err(worker) = look().or_else(|_| look()) else { continue };
        if !contacts.former().stands_by() {
            return;
        }
        let reason = format!("worker {worker} does not respond");
        tracing::error!("{reason}: everything is given back to the old process");
        // This process ends if it is; otherwise it is asked again, as an upgrade may be under way.
        ask_to_give_back(path, reason);
    }
}

/// Gives everything back since this process was asked to end while it took over, and ends it where that does not come about.
pub(crate) fn return_and_end(path: &Path, control: &Sender<HandoverStep<DataPath>>) {
    tracing::info!("asked to end during the handover: everything is given back to the old process");
    ask_to_give_back(path, "the new process was asked to end".to_owned());
    // Control ends with the process.
    let _ = control.blocking_send(HandoverStep::Became(HandoverChange::End));
}

/// Has the thread of handovers give everything back, and waits for the end of that, which this process may not see.
fn ask_to_give_back(path: &Path, reason: String) {
    let hello = Hello::new(VERSION, Purpose::GiveBack { reason });
    let asked = Packets::connect(path).and_then(Line::new).and_then(|mut line| {
        line.send_message(&Message::Hello(hello))?;
        while !matches!(line.receive(None), Ok(Incoming::End) | Err(_)) {}
        Ok(())
    });
    if let Err(error) = asked {
        tracing::error!("handover: nothing can be given back: {error}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own looks now and then")]
fn pause() {
    thread::sleep(LOOK_INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_id_and_without_one_by_its_user() {
        for (pid, uid, is_known) in
            [(7, 1000, true), (7, 0, true), (8, 1000, false), (0, 1000, false)]
        {
            assert_eq!(is_same(Peer { pid: 7, uid: 1000 }, Peer { pid, uid }), is_known);
        }
        for (pid, uid, is_known) in [(0, 1000, true), (0, 0, false), (7, 1000, false)] {
            assert_eq!(is_same(Peer { pid: 0, uid: 1000 }, Peer { pid, uid }), is_known);
        }
    }
}
