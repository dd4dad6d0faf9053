//! Batches of groups that workers take over.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use ::handover::{ALIVE_INTERVAL, ReceivedGroup, Refused};
use io::Socket;
use worker::{Message as Mail, Origin, Take, Taken};

use super::moving;
use crate::data_path::{Contacts, Pings};
use crate::handover::timeouts::WORKER_TIMEOUT;

/// The batches that workers have and have not answered for, oldest first.
#[derive(Debug, Default)]
pub(super) struct Batches {
    under_way: VecDeque<Batch>,
    /// The worker that gets the next group.
    next_worker: usize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Batch {
    number: u32,
    /// Groups that workers have.
    asked: u64,
    /// Groups that none has, with the reasons.
    refused: Vec<Refused>,
    answers: Receiver<Taken<Socket>>,
    /// None if a worker has ended.
    pings: Option<Pings>,
}

/// What came of one.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) batch: u32,
    /// Groups that go on here.
    pub(super) taken: u64,
    pub(super) refused: Vec<Refused>,
    /// Whether a worker also serves others.
    pub(super) is_busy: bool,
}

impl Batches {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Hands groups, with the first of these descriptors, to the workers in turn.
    pub(super) fn begin(
        &mut self,
        number: u32,
        groups: Vec<ReceivedGroup>,
        descriptors: &mut VecDeque<OwnedFd>,
        contacts: &Contacts,
    ) {
        let (reply, answers) = sync_channel(groups.len());
        let (mut asked, mut refused, mut workers) = (0, Vec::new(), BTreeSet::new());
        for ReceivedGroup { group, bytes, sockets } in groups {
            let count = (sockets as usize).min(descriptors.len());
            let sockets = descriptors.drain(..count).collect();
            let Some(moving) = moving(bytes, sockets) else {
                let reason = "the group is damaged".to_owned();
                refused.push(Refused { group, reason });
                continue;
            };
            let worker = self.next_worker % contacts.count().max(1);
            self.next_worker += 1;
            let take =
                Take { moving, origin: Origin::Process, number: group, reply: reply.clone() };
            if contacts.post_unwoken(worker, Mail::Take(take)).is_ok() {
                asked += 1;
                workers.insert(worker);
            } else {
                let reason = "a worker of the new process takes no messages".to_owned();
                refused.push(Refused { group, reason });
            }
        }
        // One wake and one answer for all groups of a batch: for each of them it would cost more than the groups.
        let pings = contacts.begin_pings(workers.into_iter()).ok();
        self.under_way.push_back(Batch { number, asked, refused, answers, pings });
    }

    /// The oldest batch, if there are more than so many or the workers have answered for it.
    pub(super) fn next(&mut self, count_max: usize) -> Option<Batch> {
        let is_beyond = self.under_way.len() > count_max;
        self.under_way.pop_front_if(|oldest| is_beyond || oldest.is_answered())
    }

    /// Waits for none of them any more.
    pub(super) fn forget(&mut self) {
        self.under_way.clear();
    }
}

impl Batch {
    /// Whether there is nothing to wait for.
    fn is_answered(&mut self) -> bool {
        self.pings.as_mut().is_none_or(|pings| pings.wait(Duration::ZERO) != Ok(false))
    }

    /// Waits for workers as long as they are at work, and calls `say_alive` again and again meanwhile. None if one hangs or has ended.
    pub(super) fn finish(
        self,
        contacts: &Contacts,
        mut say_alive: impl FnMut(),
    ) -> Option<Finished> {
        let Self { number, asked, mut refused, answers, pings } = self;
        let mut pings = pings?;
        let mut patience = contacts.patience(pings.missing());
        while !pings.wait(ALIVE_INTERVAL).ok()? {
            if patience.is_over(contacts, pings.missing(), WORKER_TIMEOUT) {
                return None;
            }
            say_alive();
        }
        let mut taken = 0;
        for _ in 0..asked {
            let answer = answers.try_recv().ok()?;
            match answer.result {
                Ok(_) => taken += 1,
                Err((error, _)) => {
                    refused.push(Refused { group: answer.number, reason: error.to_string() });
                }
            }
        }
        Some(Finished { batch: number, taken, refused, is_busy: pings.is_any_busy() })
    }
}

#[cfg(test)]
mod tests {
    use wiped::Wiped;

    use super::*;

    fn group(group: u32, bytes: &[u8], sockets: u32) -> ReceivedGroup {
        ReceivedGroup { group, bytes: bytes.to_vec().into(), sockets }
    }

    #[test]
    fn batches_come_to_an_end_in_their_order_whether_or_not_a_worker_takes_their_groups() {
        let (contacts, mut batches) = (Contacts::default(), Batches::default());
        let no_connections = 0_u32.to_be_bytes();
        let without_its_socket = [0, 0, 0, 1, 1];
        batches.begin(7, vec![group(1, &no_connections, 0)], &mut VecDeque::new(), &contacts);
        let groups = vec![group(2, &without_its_socket, 1), group(3, &Wiped::default(), 0)];
        batches.begin(8, groups, &mut VecDeque::new(), &contacts);
        let mut ended = Vec::new();
        while let Some(batch) = batches.next(usize::MAX) {
            let Finished { batch, taken, refused, is_busy } = batch
                .finish(&contacts, || panic!("nothing is waited for"))
                .expect("there is no worker that could hang");
            assert_eq!((taken, is_busy), (0, false));
            ended.extend(refused.into_iter().map(|it| (batch, it.group, it.reason)));
        }
        assert!(batches.is_empty());
        let no_worker = "a worker of the new process takes no messages".to_owned();
        let is_damaged = || "the group is damaged".to_owned();
        assert_eq!(ended, [(7, 1, no_worker), (8, 2, is_damaged()), (8, 3, is_damaged())]);
    }

    #[test]
    fn a_batch_whose_worker_has_ended_comes_to_nothing() {
        let (_, answers) = sync_channel(1);
        let batch = Batch { number: 1, asked: 1, refused: Vec::new(), answers, pings: None };
        let mut batches = Batches { under_way: [batch].into(), next_worker: 0 };
        let batch = batches.next(usize::MAX).expect("there is nothing to wait for");
        assert!(batch.finish(&Contacts::default(), || ()).is_none());
    }
}
