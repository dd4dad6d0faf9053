//! Workers that are asked for connections. What a worker gives is nowhere else: an answer that comes after the asker has
//! given up goes back to its worker.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ::handover::ALIVE_INTERVAL;
use io::Socket;
use worker::{Give, Given, Message as Mail, Moving, Origin, Take, Taken, Wanted};

use super::line::now;
use super::spawn;
use super::timeouts::WORKER_TIMEOUT;
use crate::data_path::Contacts;

/// Workers that were asked for connections.
#[derive(Debug)]
pub(crate) struct AskedWorkers {
    reply: Option<SyncSender<Given<Socket>>>,
    answers: Receiver<Given<Socket>>,
    /// Workers that have not answered.
    missing: BTreeSet<usize>,
    /// When they were asked; monotonic time, ns.
    pub(super) at: u64,
}

/// A worker takes no message, or has not answered in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silent;

impl AskedWorkers {
    /// None yet, of so many at most.
    pub(crate) fn none(workers_max: usize) -> Self {
        let (reply, answers) = sync_channel(workers_max);
        Self { reply: Some(reply), answers, missing: BTreeSet::new(), at: now() }
    }

    /// The workers that have not answered.
    pub(crate) fn silent(&self) -> impl Iterator<Item = usize> {
        self.missing.iter().copied()
    }

    /// Asks a worker.
    pub(crate) fn ask(
        &mut self,
        worker: usize,
        wanted: Wanted,
        contacts: &Contacts,
    ) -> Result<(), Silent> {
        let Some(reply) = self.reply.clone() else { return Err(Silent) };
        contacts.post(worker, Mail::Give(Give { wanted, reply })).map_err(|_| Silent)?;
        self.missing.insert(worker);
        Ok(())
    }

    /// The next answer, or none if all were heard. A worker that moves connections has more time, as long as `goes_on`, which is asked
    /// again and again.
    pub(crate) fn next(
        &mut self,
        contacts: &Contacts,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Given<Socket>>, Silent> {
        let mut patience = contacts.patience(self.silent());
        loop {
            match self.hear(ALIVE_INTERVAL) {
                Ok(given) => return Ok(given),
                Err(RecvTimeoutError::Timeout)
                    if goes_on() && !patience.is_over(contacts, self.silent(), WORKER_TIMEOUT) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(Silent);
                }
            }
        }
    }

    /// The same, within this time whatever it does.
    pub(crate) fn next_within(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Given<Socket>>, Silent> {
        self.hear(timeout).map_err(|_| Silent)
    }

    fn hear(&mut self, timeout: Duration) -> Result<Option<Given<Socket>>, RecvTimeoutError> {
        // From here on the workers have the only senders, so that their end ends the waiting.
        self.reply = None;
        if self.missing.is_empty() {
            return Ok(None);
        }
        let given = self.answers.recv_timeout(timeout)?;
        self.missing.remove(&(given.worker as usize));
        Ok(Some(given))
    }

    /// Gives back what is answered from now on, on a thread of its own: it may take as long as the worker does.
    pub(crate) fn return_late(self, contacts: Contacts) {
        self.return_late_by(move |worker, moving| {
            put_back(&contacts, worker, moving, Origin::Worker);
        });
    }

    fn return_late_by(self, put_back: impl Fn(usize, Moving<Socket>) + Send + 'static) {
        let Self { reply, answers, missing, at: _ } = self;
        drop(reply);
        if missing.is_empty() {
            return;
        }
        let return_all = move |given: Given<Socket>| {
            let worker = given.worker as usize;
            tracing::warn!(
                worker,
                groups = given.groups.len(),
                "a late answer of a worker arrived; its connections return to it"
            );
            given.groups.into_iter().for_each(|moving| put_back(worker, moving));
        };
        // What is there already does not depend on whether a thread can be started.
        answers.try_iter().for_each(&return_all);
        spawn("strait-late", move || answers.iter().for_each(return_all));
    }
}

/// Has a worker go on with a group that it gave. If it cannot, as where the group's listener was removed meanwhile, the worker ends the
/// group's connections and says so.
pub(crate) fn put_back(contacts: &Contacts, worker: usize, moving: Moving<Socket>, origin: Origin) {
    let (reply, _) = sync_channel(1);
    contacts.deliver(worker, Mail::Take(Take { moving, origin, number: 0, reply }));
}

/// Waits for a worker that has not said in time whether it takes a group: if it does not, the group returns to the worker that gave it.
pub(crate) fn return_if_refused(answer: Receiver<Taken<Socket>>, giver: u32, contacts: Contacts) {
    spawn("strait-late", move || {
        let Ok(Taken { result: Err((error, moving)), .. }) = answer.recv() else { return };
        tracing::warn!(
            worker = giver,
            "a worker refused connections late, and they return to the one that gave them: {error}"
        );
        put_back(&contacts, giver as usize, moving, Origin::Worker);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use proxy::save::{Held, Remains};

    use super::*;

    fn given(worker: u32, groups: &[&[u8]]) -> Given<Socket> {
        let moving = |bytes: &&[u8]| Moving {
            bytes: bytes.to_vec().into(),
            sockets: Vec::new(),
            held: Held::default(),
            may_begin: false,
            remains: Remains::default(),
        };
        let groups = groups.iter().map(moving).collect();
        Given {
            worker,
            groups,
            next: None,
            pending: 0,
            staying: 0,
            returned: 0,
            too_large: 0,
            kept: None,
            is_busy: false,
        }
    }

    #[test]
    fn what_a_worker_gives_too_late_goes_back_to_it() {
        let mut asked = AskedWorkers::none(3);
        let workers: Vec<_> =
            (0..3).map(|_| asked.reply.clone().expect("none was heard")).collect();
        asked.missing = (0..3).collect();
        workers[0].send(given(0, &[b"in time"])).expect("the one who asked listens");
        let heard = asked.next_within(Duration::ZERO).expect("it has answered").expect("one has");
        assert_eq!((heard.worker, heard.groups.len()), (0, 1));
        assert!(asked.next_within(Duration::ZERO).is_err(), "two are silent");
        assert_eq!(asked.silent().collect::<Vec<_>>(), [1, 2]);
        // One answers before the asker gives up, one after.
        workers[2].send(given(2, &[b"just"])).expect("the asker has not given up");
        let (into, returned) = channel();
        asked.return_late_by(move |worker, moving| {
            into.send((worker, moving.bytes.join().into_vec())).expect("the test listens");
        });
        workers[1].send(given(1, &[b"late", b"later"])).expect("the answer is waited for");
        drop(workers);
        let returned: Vec<_> = returned.iter().collect();
        let expected = [(2, &b"just"[..]), (1, b"late"), (1, b"later")];
        assert_eq!(returned, expected.map(|(worker, bytes)| (worker, bytes.to_vec())));
    }
}
