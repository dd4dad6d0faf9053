//! Groups on their way to another process, in the frames of a handover.

use std::collections::VecDeque;

use ::handover::{
    Collected, Deadlines, GivenGroup, Giver, GiverAction, MovingAction, OpeningAction, Taker,
    TakerAction,
};
use wiped::{Pieces, Wiped};

/// A form that both sides read.
const FORM: u16 = 1;

/// Both sides of a handover, each of which gets a frame as soon as the other one sends it.
struct Handover<'g> {
    giver: Giver,
    taker: Taker,
    groups: &'g [(Pieces, usize)],
    /// Those that did not leave yet.
    left: VecDeque<GivenGroup>,
    arrived: Vec<Option<Wiped>>,
    now: u64,
}

/// What a process receives of groups that another one gives it, each with so many sockets.
pub(crate) fn pass(groups: &[(Pieces, usize)]) -> Vec<Wiped> {
    let deadlines = Deadlines::default();
    let given = groups.iter().zip(0..).map(|((bytes, sockets), group)| GivenGroup {
        group,
        bytes: bytes.bytes_len().try_into().unwrap(),
        sockets: (*sockets).try_into().unwrap(),
    });
    let mut handover = Handover {
        giver: Giver::new("1.0.0", FORM, 40, 0, deadlines, 0),
        taker: Taker::new("1.0.0", vec![FORM], 1 << 20, false, deadlines, 0),
        left: given.collect(),
        arrived: groups.iter().map(|_| None).collect(),
        groups,
        now: 0,
    };
    handover.run();
    handover.arrived.into_iter().map(|group| group.expect("all have left")).collect()
}

impl Handover<'_> {
    fn run(&mut self) {
        while self.arrived.iter().any(Option::is_none) {
            if let Some(action) = self.giver.poll() {
                self.on_giver(action);
            } else if let Some(action) = self.taker.poll() {
                self.on_taker(action);
            } else {
                self.now = self.giver.next_deadline().expect("there is more to come");
                self.giver.on_time(self.now);
            }
        }
    }

    fn bytes(&self, group: u32) -> &Pieces {
        &self.groups[group as usize].0
    }

    fn on_giver(&mut self, action: GiverAction) {
        let (frame, sockets) = match action {
            GiverAction::Describe => return self.giver.describe((1, Vec::new()), None, self.now),
            GiverAction::Listen => return self.giver.listen(Vec::new()),
            GiverAction::Inform { .. } => return self.giver.inform(&[]),
            GiverAction::Collect(collect) => {
                let most = self.left.len().min(collect.groups_max as usize);
                let groups = self.left.drain(..most).collect();
                let (asked_at, pending, is_busy) = (self.now, 0, false);
                let collected = Collected { groups, asked_at, pending, is_busy };
                return self.giver.give(collected, self.now);
            }
            GiverAction::Send(frame) => (frame, 0),
            GiverAction::SendListening(frame, keys) => (frame, keys.len()),
            GiverAction::SendPiece(piece) => {
                (piece.frame(self.bytes(piece.group()).iter()), piece.sockets as usize)
            }
            GiverAction::SendPack(pack) => {
                let sockets = pack.groups().map(|group| self.groups[group as usize].1).sum();
                (pack.frame(|group| self.bytes(group).iter()), sockets)
            }
            GiverAction::RollBack { .. } => panic!("{action:?}"),
            _ => return,
        };
        self.taker.on_frame(&frame, sockets, self.now);
    }

    fn on_taker(&mut self, action: TakerAction) {
        match action {
            TakerAction::Send(frame) => self.giver.on_frame(&frame, 0, self.now),
            TakerAction::Opening(OpeningAction::Begin(_)) => self.taker.begun(self.now),
            TakerAction::Opening(OpeningAction::Compare(_)) => {
                self.taker.compared(Vec::new(), self.now);
            }
            TakerAction::Opening(OpeningAction::Listen(_)) => self.taker.serving(self.now),
            TakerAction::Moving(MovingAction::Take { batch, groups }) => {
                for group in groups {
                    let (_, sockets) = self.groups[group.group as usize];
                    assert_eq!(group.sockets as usize, sockets);
                    self.arrived[group.group as usize] = Some(group.bytes);
                }
                self.taker.taken(batch, Vec::new(), false, self.now);
            }
            TakerAction::Stop(failure) => panic!("{failure:?}"),
            _ => {}
        }
    }
}
