//! What holds for both sides of a handover, whatever the other one says.
//!
//! Shared by the fuzz target `handover` and by the replay of its corpus. An input is a side and how many
//! frames of an honest conversation come first, then frames: their length in two bytes, how many
//! descriptors come with them in one, and their bytes. No input panics; what a side asks of its caller is
//! within the bounds; a side that gave up once says so once and does nothing after it.

use std::collections::VecDeque;
use std::time::Duration;

use handover::{
    BATCH_GROUPS_MAX, BATCHES_MAX, Collect, Collected, Deadlines, Downstream, FRAME_BYTES_MAX,
    Failure, GivenGroup, Giver, GiverAction, ListedConnections, MovingAction, OpeningAction, Part,
    PartKind, Phase, SocketKey, Taker, TakerAction,
};
use wiped::Wiped;

const FORM: u16 = 11;

/// What each group has of it.
static BYTES: [u8; 150_000] = [7; 150_000];

/// Both sides, each with a caller that does what it is asked.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) giver: Giver,
    pub(crate) taker: Taker,
    pub(crate) now: u64,
    /// Frames on their way, with their descriptors.
    pub(crate) to_taker: VecDeque<(Vec<u8>, usize)>,
    pub(crate) to_giver: VecDeque<(Vec<u8>, usize)>,
    /// Groups of the giver that can move.
    pub(crate) movable: Vec<GivenGroup>,
    /// Whether all of these carry something.
    pub(crate) has_none_idle: bool,
    /// Connections that cannot move yet.
    pub(crate) pending: u32,
    /// Bytes of what sources have delivered to the giver, if they have.
    pub(crate) resources: Option<u64>,
    /// How long the taker takes to begin with them, ns.
    pub(crate) beginning: u64,
    /// What the taker began with of it.
    pub(crate) begun: Vec<u64>,
    /// How often the giver asked for groups.
    pub(crate) collected: u32,
    /// How often it said what it knows, before the end; and what the taker learned of that.
    pub(crate) informed: u32,
    pub(crate) learned: Vec<String>,
    /// What the giver learned of the taker.
    pub(crate) learned_of_taker: Vec<(String, Wiped)>,
    /// Whether workers of the giver, and of the taker, also serve others.
    pub(crate) is_busy: (bool, bool),
    /// Numbers of groups that the taker refuses.
    pub(crate) refuses: Vec<u32>,
    /// How the giver ended.
    pub(crate) giver_ends: Vec<GiverAction>,
    /// Whether the giver accepts beside a taker that is silent.
    stands_in: bool,
    /// Whether the giver may end the taker, which does nothing more then.
    pub(crate) may_end_taker: bool,
    /// Whether it did.
    pub(crate) is_taker_ended: bool,
    pub(crate) taker_ends: Vec<TakerAction>,
    /// Groups that the taker serves, and those that came back.
    pub(crate) served: Vec<u32>,
    pub(crate) returned: Vec<u32>,
}

impl Pair {
    pub(crate) fn new(groups: u32) -> Self {
        let deadlines = Deadlines::default();
        let group = |group: u32| {
            // Some in several pieces, and with more sockets than a packet takes.
            let bytes = if group == 3 { 150_000 } else { 40 + group };
            GivenGroup { group, bytes, sockets: if group == 5 { 600 } else { 2 } }
        };
        let mut giver = Giver::new("1.0.0", FORM, 40, 0, deadlines, 0);
        giver.learn(&["counters"]);
        Self {
            giver,
            taker: Taker::new("1.1.0", vec![FORM], 1024, false, deadlines, 0),
            now: 0,
            to_taker: VecDeque::new(),
            to_giver: VecDeque::new(),
            movable: (0..groups).rev().map(group).collect(),
            has_none_idle: false,
            pending: 0,
            resources: None,
            beginning: 0,
            begun: Vec::new(),
            collected: 0,
            informed: 0,
            learned: Vec::new(),
            learned_of_taker: Vec::new(),
            is_busy: (false, false),
            refuses: vec![2],
            giver_ends: Vec::new(),
            stands_in: false,
            may_end_taker: false,
            is_taker_ended: false,
            taker_ends: Vec::new(),
            served: Vec::new(),
            returned: Vec::new(),
        }
    }

    /// Does what both sides ask for.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.giver.poll() {
            self.on_giver(action);
        }
        while let Some(action) = self.taker.poll() {
            self.on_taker(action);
        }
    }

    fn on_giver(&mut self, action: GiverAction) {
        let sent = match &action {
            GiverAction::Send(frame) => Some((frame.clone(), 0)),
            GiverAction::SendResources(frame) => Some((frame.clone(), 1)),
            GiverAction::SendListening(frame, keys) => Some((frame.clone(), keys.len())),
            GiverAction::SendPiece(piece) => {
                Some((piece.frame(BYTES.chunks(BYTES.len() / 2)), piece.sockets as usize))
            }
            GiverAction::SendPack(pack) => {
                // As many as `Pair::new` gives each.
                let bytes =
                    |group: u32| BYTES.get(..40 + group as usize).unwrap_or_default().chunks(30);
                Some((pack.frame(bytes), pack.groups().count() * 2))
            }
            _ => None,
        };
        if let Some((frame, descriptors)) = sent {
            assert!(frame.len() <= FRAME_BYTES_MAX && descriptors <= 253);
            return self.to_taker.push_back((frame.to_vec(), descriptors));
        }
        match action {
            GiverAction::Describe => {
                let part = |n: u32| Part {
                    kind: PartKind::Cluster,
                    name: format!("cluster-{n}"),
                    fingerprint: n.into(),
                };
                let parts = (0..4000).map(part).collect();
                self.giver.send_downstream(Downstream { connections: 9, open_files_max: 1024 });
                self.giver.describe((7, parts), self.resources, self.now);
            }
            GiverAction::Listen => {
                let sockets = (0..300).map(|n| SocketKey::Listener("edge".to_owned(), n));
                self.giver.listen(sockets.chain([SocketKey::Admin]).collect());
            }
            GiverAction::Collect(Collect { groups_max, of_worker_max, is_probe, .. }) => {
                assert!(groups_max <= BATCH_GROUPS_MAX && of_worker_max <= groups_max);
                let most = if is_probe && self.has_none_idle { 0 } else { of_worker_max as usize };
                let keep = self.movable.len().saturating_sub(most);
                let groups = self.movable.split_off(keep);
                self.collected += 1;
                let (asked_at, pending, is_busy) = (self.now, self.pending, self.is_busy.0);
                let collected = Collected { groups, asked_at, pending, is_busy };
                self.giver.give(collected, self.now);
            }
            GiverAction::TakeBack(refused) => self.returned.push(refused.group),
            GiverAction::Inform { is_first } => {
                self.informed += 1;
                let mut states = vec![("counters".to_owned(), vec![0; 1_000].into())];
                if is_first {
                    states.push(("health".to_owned(), vec![2; 10].into()));
                }
                self.giver.inform(&states);
            }
            GiverAction::Summarize => {
                let states = [("counters".to_owned(), vec![1; 100_000].into())];
                self.giver.commit(&states, self.now);
            }
            GiverAction::List { request, worker, slot } => {
                let next = Some((worker, slot));
                self.giver.list(ListedConnections { request, rows: vec!["{}".to_owned()], next });
            }
            GiverAction::Finish => {
                self.giver.main_process();
                self.giver_ends.push(action);
            }
            GiverAction::Committed
            | GiverAction::Checked
            | GiverAction::RollBack { .. }
            | GiverAction::AcceptAgain => self.giver_ends.push(action),
            GiverAction::EndCommitting(failure) if self.may_end_taker => {
                self.is_taker_ended = true;
                self.to_taker.clear();
                self.giver.on_ended(failure);
            }
            GiverAction::EndCommitting(_) => self.giver.on_not_ended(self.now),
            GiverAction::StandIn => self.stands_in = true,
            GiverAction::Learned { topic, bytes } => self.learned_of_taker.push((topic, bytes)),
            _ => {}
        }
    }

    fn on_taker(&mut self, action: TakerAction) {
        match action {
            TakerAction::Send(frame) => {
                assert!(frame.len() <= FRAME_BYTES_MAX);
                self.to_giver.push_back((frame.to_vec(), 0));
            }
            TakerAction::Opening(OpeningAction::Begin(bytes)) => {
                self.begun.push(bytes);
                self.now += self.beginning;
                self.taker.begun(self.now);
            }
            TakerAction::Opening(OpeningAction::Compare(_)) => {
                self.taker.compared(Vec::new(), self.now);
            }
            TakerAction::Opening(OpeningAction::Listen(_)) => self.taker.serving(self.now),
            TakerAction::Moving(MovingAction::Take { batch, groups }) => {
                assert!(groups.len() <= BATCH_GROUPS_MAX as usize);
                let (refused, served): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|it| self.refuses.contains(&it.group));
                self.served.extend(served.into_iter().map(|it| it.group));
                let refused = refused
                    .into_iter()
                    .map(|it| handover::Refused { group: it.group, reason: "ä".repeat(3000) });
                self.taker.taken(batch, refused.collect(), self.is_busy.1, self.now);
            }
            TakerAction::Moving(MovingAction::Learned(topic)) => {
                assert!(self.taker.state(&topic).is_some());
                self.learned.push(topic);
            }
            TakerAction::Moving(MovingAction::Commit { .. }) => {
                self.taker.committed();
                self.taker_ends.push(action);
            }
            TakerAction::Stop(_) | TakerAction::Finished => self.taker_ends.push(action),
            _ => {}
        }
    }

    /// Lets one frame arrive; says whether there was one.
    pub(crate) fn deliver(&mut self) -> bool {
        self.act();
        if let Some((frame, descriptors)) = self.to_taker.pop_front() {
            self.taker.on_frame(&frame, descriptors, self.now);
        } else if let Some((frame, descriptors)) = self.to_giver.pop_front() {
            self.giver.on_frame(&frame, descriptors, self.now);
        } else {
            return false;
        }
        self.act();
        true
    }

    /// Lets everything arrive, then time pass until nothing waits for it.
    pub(crate) fn run_out(&mut self) {
        for _ in 0..10_000 {
            if self.deliver() {
                continue;
            }
            // A process that took over hears that the other one is gone.
            if self.giver.is_over() && self.taker.phase() == Phase::Probation {
                self.taker.on_closed(self.now);
            }
            // So does the other one, of a process that ended.
            if self.taker_ends.iter().any(|end| matches!(end, TakerAction::Stop(_))) {
                self.giver.on_closed();
                self.stands_in = false;
            }
            // What is silent is not ended here: the giver looks for it as long as it may be stopped.
            if self.stands_in && self.giver.phase() == Phase::Probation {
                return;
            }
            let deadlines = [self.giver.next_deadline(), self.taker.next_deadline()];
            let Some(next) = deadlines.into_iter().flatten().min() else { return };
            self.now = self.now.max(next);
            self.giver.on_time(self.now);
            self.taker.on_time(self.now);
        }
        unreachable!("it ends");
    }
}

/// Checks everything on `data`.
pub(crate) fn check(data: &[u8]) {
    let Some((&[side, honest], mut rest)) = data.split_first_chunk() else { return };
    let mut pair = Pair::new(100);
    for _ in 0..honest {
        pair.deliver();
    }
    while let Some((&[high, low, descriptors], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (frame, behind) = behind.split_at(len);
        if side.is_multiple_of(2) {
            pair.giver.on_frame(frame, descriptors.into(), pair.now);
        } else {
            pair.taker.on_frame(frame, descriptors.into(), pair.now);
        }
        pair.act();
        rest = behind;
    }
    pair.now += u64::try_from(Duration::from_secs(3).as_nanos()).unwrap_or(u64::MAX);
    pair.giver.on_time(pair.now);
    pair.taker.on_time(pair.now);
    pair.act();
    assert!(pair.to_taker.len() <= 100 * (BATCHES_MAX + 1), "what is under way is bounded");
    pair.run_out();
    let ends = pair.giver_ends.iter().filter(|end| {
        matches!(end, GiverAction::Committed | GiverAction::Checked | GiverAction::RollBack { .. })
    });
    assert_eq!(ends.count(), 1, "{:?}", pair.giver_ends);
    pair.giver.fail(Failure::Own("late".to_owned()));
    assert!(pair.giver.poll().is_none(), "it is over");
}
