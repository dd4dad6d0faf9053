//! Both sides facing each other, over a connection that does what no socket should.

use std::time::Duration;

use handover::{
    Collected, Deadlines, Downstream, FRAME_BYTES_MAX, Failure, FollowingAction, FrameError,
    GivenGroup, Giver, GiverAction, Hello, Left, ListedConnections, Message, MovingAction,
    OpeningAction, Part, PartKind, PeerLife, Phase, Purpose, STATE_BYTES_MAX, SocketKey,
    StatePiece, Taker, TakerAction, Welcome,
};
use wiped::Wiped;

#[path = "checks/conversation.rs"]
#[expect(dead_code, reason = "the corpus uses more of it")]
mod conversation;

use conversation::Pair;

const SECOND: u64 = 1_000_000_000;

/// What happens to one frame.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Lost,
    Doubled,
    /// Behind the next.
    Late,
    Truncated,
    Garbage,
    NoDescriptors,
    MoreDescriptors,
    GiverEnds,
    TakerEnds,
}

const FAULTS: [Fault; 9] = [
    Fault::Lost,
    Fault::Doubled,
    Fault::Late,
    Fault::Truncated,
    Fault::Garbage,
    Fault::NoDescriptors,
    Fault::MoreDescriptors,
    Fault::GiverEnds,
    Fault::TakerEnds,
];

#[test]
fn all_groups_move_but_those_that_are_refused() {
    let mut pair = Pair::new(1000);
    pair.run_out();
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
    pair.served.sort_unstable();
    assert_eq!(pair.served, (0..1000).filter(|group| *group != 2).collect::<Vec<_>>());
    assert_eq!(pair.returned, [2]);
    let [TakerAction::Moving(MovingAction::Commit { states, is_alone: false })] = &*pair.taker_ends
    else {
        panic!("{:?}", pair.taker_ends);
    };
    assert_eq!(*states["counters"], [1; 100_000]);
}

/// Groups 3 and 5 are too large for a frame.
#[test]
fn small_groups_go_together_where_the_taker_reads_that() {
    for reads_packs in [true, false] {
        let mut pair = Pair::new(200);
        let (mut packs, mut pieces) = (0, 0);
        loop {
            pair.act();
            if !reads_packs {
                let is_other =
                    |frame: &[u8]| Message::decode(frame) != Ok(Some(Message::ReadsPacks));
                pair.to_giver.retain(|(frame, _)| is_other(frame));
            }
            if let Some((frame, _)) = pair.to_taker.front() {
                match Message::decode(frame) {
                    Ok(Some(Message::Pack { groups, .. })) => packs += groups.len(),
                    Ok(Some(Message::Piece(_))) => pieces += 1,
                    _ => {}
                }
            }
            if !pair.deliver() {
                break;
            }
        }
        // 150,000 bytes in three pieces, and 600 sockets in three.
        assert_eq!((packs, pieces), if reads_packs { (198, 6) } else { (0, 204) });
        pair.served.sort_unstable();
        assert_eq!(pair.served, (0..200).filter(|group| *group != 2).collect::<Vec<_>>());
    }
}

#[test]
fn the_first_batch_is_small_and_no_more_than_four_are_under_way() {
    let mut pair = Pair::new(1000);
    while pair.giver.phase() < Phase::Probe {
        assert!(pair.deliver());
    }
    let batch_ends = |pair: &Pair| {
        let is_end = |(frame, _): &&(Vec<u8>, usize)| {
            matches!(Message::decode(frame), Ok(Some(Message::BatchEnd { .. })))
        };
        pair.to_taker.iter().filter(is_end).count()
    };
    assert_eq!((batch_ends(&pair), pair.movable.len()), (1, 968));
    while pair.giver.phase() == Phase::Probe {
        assert!(pair.deliver());
    }
    assert_eq!((batch_ends(&pair), pair.movable.len()), (4, 968 - 4 * 64));
}

/// Both sides while connections move and workers of a side also serve others, until so many groups are left.
fn until_left(pair: &mut Pair, left: usize) {
    while pair.movable.len() > left {
        if !pair.deliver() {
            pair.now = pair.giver.next_deadline().expect("it goes on");
            pair.giver.on_time(pair.now);
        }
    }
}

#[test]
fn batches_are_small_and_come_after_a_pause_while_workers_of_either_side_serve_others() {
    for is_busy in [(true, false), (false, true), (true, true)] {
        let mut pair = Pair::new(1000);
        while pair.giver.phase() < Phase::Connections {
            assert!(pair.deliver());
        }
        pair.is_busy = is_busy;
        // The first batches are under way by then, and one tells that the workers are busy.
        until_left(&mut pair, 600);
        while pair.deliver() {}
        let (began, before) = (pair.now, pair.movable.len());
        for batch in 1..=10 {
            pair.now += 499_999;
            pair.giver.on_time(pair.now);
            assert!(!pair.deliver(), "a pause of half a millisecond: {is_busy:?}");
            pair.now += 1;
            assert_eq!(pair.giver.next_deadline(), Some(pair.now));
            pair.giver.on_time(pair.now);
            while pair.deliver() {}
            assert_eq!(before - pair.movable.len(), batch * 16, "{is_busy:?}");
        }
        assert_eq!(pair.now - began, 10 * SECOND / 2000);
        // Nothing else is served any more: the rest goes at once.
        pair.is_busy = (false, false);
        pair.now += SECOND / 2000;
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
        assert!(pair.movable.is_empty());
        pair.run_out();
        assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
        assert_eq!((pair.served.len(), &*pair.returned), (999, &[2][..]));
    }
}

#[test]
fn batches_are_paced_where_no_idle_connection_went_before() {
    let mut pair = Pair::new(1000);
    pair.has_none_idle = true;
    pair.is_busy = (true, true);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    let began = pair.now;
    until_left(&mut pair, 0);
    assert!(pair.now - began > SECOND / 50, "{} ns", pair.now - began);
}

#[test]
fn batches_are_paced_for_a_quarter_of_the_deadline_at_most() {
    let mut pair = Pair::new(1000);
    let deadlines = Deadlines { total: Duration::from_millis(40), ..Deadlines::default() };
    pair.giver = Giver::new("1.0.0", 11, 40, 0, deadlines, 0);
    pair.is_busy = (true, true);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    let began = pair.now;
    until_left(&mut pair, 0);
    // 16 groups after each pause, then all others: nothing else here takes time.
    assert_eq!((pair.now - began) / 1_000_000, 10);
    // 32, then 20 batches, then those of 64.
    assert_eq!(pair.collected, 1 + 20 + (1000 - 32 - 20 * 16_u32).div_ceil(64));
    pair.run_out();
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
}

/// Every frame of a conversation meets every fault. The giver ends in one way; where it takes everything
/// back, the taker is not the process, or was ended; and each side ends in time.
#[test]
fn a_fault_at_any_frame_leaves_one_owner() {
    let count = {
        let mut pair = Pair::new(200);
        (0..).take_while(|_| pair.deliver()).count()
    };
    for (fault, may_end_taker) in
        FAULTS.into_iter().flat_map(|fault| [(fault, true), (fault, false)])
    {
        for place in 0..count {
            let mut pair = Pair::new(200);
            pair.may_end_taker = may_end_taker;
            for _ in 0..place {
                pair.deliver();
            }
            pair.act();
            spoil(&mut pair, fault);
            pair.run_out();
            let case = format!("{fault:?} at {place}: {:?} {:?}", pair.giver_ends, pair.taker_ends);
            let ends: Vec<_> = pair.giver_ends.iter().collect();
            let is_taken_over = pair
                .taker_ends
                .iter()
                .any(|end| matches!(end, TakerAction::Moving(MovingAction::Commit { .. })));
            match ends[..] {
                [GiverAction::Committed, GiverAction::Finish | GiverAction::AcceptAgain] => {
                    assert!(is_taken_over, "{case}");
                }
                [GiverAction::RollBack { peer: PeerLife::Over | PeerLife::Closed, .. }] => {
                    let has_ended = matches!(fault, Fault::TakerEnds | Fault::GiverEnds);
                    assert!(!is_taken_over || has_ended || pair.is_taker_ended, "{case}");
                }
                [GiverAction::RollBack { peer: PeerLife::InDoubt, .. }] => {
                    assert!(!is_taken_over, "{case}");
                }
                // It is the process, or becomes it if it runs, and this one stands in for it until then.
                [GiverAction::Committed] if !may_end_taker => {}
                // The process that ended does nothing more.
                [] | [GiverAction::Committed] if matches!(fault, Fault::GiverEnds) => {}
                _ => panic!("{case}"),
            }
            assert!(pair.now <= 61 * SECOND, "{case}");
        }
    }
}

fn spoil(pair: &mut Pair, fault: Fault) {
    let queue = if pair.to_taker.is_empty() { &mut pair.to_giver } else { &mut pair.to_taker };
    match fault {
        Fault::GiverEnds => {
            pair.to_taker.clear();
            pair.taker.on_closed(pair.now);
            pair.giver = Giver::new("", 1, 0, 0, Default::default(), 0);
            pair.giver.on_closed();
            while pair.giver.poll().is_some() {}
            return;
        }
        Fault::TakerEnds => {
            pair.to_giver.clear();
            pair.to_taker.clear();
            pair.giver.on_closed();
            pair.taker = Taker::new("", Vec::new(), 0, false, Default::default(), 0);
            pair.taker.on_closed(0);
            while pair.taker.poll().is_some() {}
            return;
        }
        _ => {}
    }
    let Some((mut frame, descriptors)) = queue.pop_front() else { return };
    match fault {
        Fault::Doubled => {
            queue.push_front((frame.clone(), descriptors));
            queue.push_front((frame, descriptors));
        }
        Fault::Late => {
            let place = queue.len().min(1);
            queue.insert(place, (frame, descriptors));
        }
        Fault::Truncated => {
            frame.truncate(frame.len() / 2);
            queue.push_front((frame, descriptors));
        }
        Fault::Garbage => {
            frame.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31) ^ 0x5a);
            queue.push_front((frame, descriptors));
        }
        Fault::NoDescriptors => queue.push_front((frame, 0)),
        Fault::MoreDescriptors => queue.push_front((frame, descriptors + 1)),
        Fault::Lost | Fault::GiverEnds | Fault::TakerEnds => {}
    }
}

#[test]
fn a_taker_whose_giver_ends_goes_on_once_it_serves_and_not_before() {
    for (phase, is_alone) in [(Phase::Config, false), (Phase::Probe, true)] {
        let mut pair = Pair::new(200);
        while pair.giver.phase() < phase {
            assert!(pair.deliver());
        }
        pair.taker.on_closed(pair.now);
        pair.act();
        match &*pair.taker_ends {
            [TakerAction::Moving(MovingAction::Commit { is_alone: true, .. })] => assert!(is_alone),
            [TakerAction::Stop(Failure::Closed(_))] => assert!(!is_alone),
            ends => panic!("{ends:?}"),
        }
    }
}

#[test]
fn a_taker_knows_what_the_giver_knew_a_moment_ago_wherever_that_one_ends() {
    let mut pair = Pair::new(200);
    // A handshake that does not end, say.
    pair.pending = 1;
    while pair.giver.phase() < Phase::Probe || !pair.to_taker.is_empty() {
        assert!(pair.deliver());
    }
    assert_eq!(pair.learned, ["counters", "health"]);
    while pair.giver.phase() < Phase::Remaining {
        assert!(pair.deliver());
    }
    let (informed, began) = (pair.informed, pair.now);
    while pair.now < began + SECOND {
        pair.now += 10_000_000;
        pair.giver.on_time(pair.now);
        pair.taker.on_time(pair.now);
        while pair.deliver() {}
    }
    assert!((9..=11).contains(&(pair.informed - informed)), "{}", pair.informed);
    assert_eq!(pair.learned.len(), 2, "each topic once");
    // It ends while it says something newer.
    let (topic, bytes) = ("counters".to_owned(), vec![7; 500].into());
    let cut = Message::State(StatePiece { topic, bytes_total: 2_000, bytes });
    pair.taker.on_frame(&cut.encode(), 0, pair.now);
    assert_eq!(pair.taker.state("counters").map(<[u8]>::len), Some(1_000));
    pair.taker.on_closed(pair.now);
    pair.act();
    let [TakerAction::Moving(MovingAction::Commit { states, is_alone: true })] = &*pair.taker_ends
    else {
        panic!("{:?}", pair.taker_ends);
    };
    assert_eq!((states["counters"].len(), states["health"].len()), (1_000, 10));
}

#[test]
fn why_a_taker_ends_that_serves_is_known() {
    let mut pair = Pair::new(1000);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    let reason = "a worker does not answer".to_owned();
    pair.giver.on_frame(&Message::Ends { reason: reason.clone() }.encode(), 0, pair.now);
    let is_rolled_back = |it: &GiverAction| matches!(it, GiverAction::RollBack { .. });
    let before: Vec<_> = std::iter::from_fn(|| pair.giver.poll()).collect();
    assert!(!before.iter().any(is_rolled_back), "it may still use what it was handed");
    pair.giver.on_closed();
    let behind = std::iter::from_fn(|| pair.giver.poll()).find(is_rolled_back);
    let (failure, peer) = (Failure::GaveUp(reason), PeerLife::Closed);
    assert_eq!(behind, Some(GiverAction::RollBack { failure, peer }));
}

#[test]
fn a_taker_that_ends_in_probation_makes_the_giver_accept_again() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Probation {
        assert!(pair.deliver());
    }
    pair.giver.on_closed();
    pair.act();
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::AcceptAgain]);
}

#[test]
fn what_a_taker_knows_itself_is_known_to_the_giver_until_its_probation_is_over() {
    let mut pair = Pair::new(200);
    let large = vec![7; 150_000];
    let mut reports = 0_usize;
    while pair.giver.phase() < Phase::Done {
        // The giver hears nothing of it before it has given anything, and from an earlier version nothing at all.
        let value = if pair.giver.phase() < Phase::Probation { &large[..] } else { &[] };
        let frames: Vec<_> = pair.taker.frames_of("counters", value).collect();
        assert_eq!(frames.is_empty(), !pair.taker.stands_by());
        reports += usize::from(!frames.is_empty());
        for frame in frames {
            assert!(frame.len() <= FRAME_BYTES_MAX);
            pair.giver.on_frame(&frame, 0, pair.now);
        }
        if !pair.deliver() {
            pair.now = pair.giver.next_deadline().expect("it goes on");
            pair.giver.on_time(pair.now);
        }
    }
    assert_eq!(pair.learned_of_taker.len(), reports);
    let is_large = |(topic, bytes): &(String, Wiped)| topic == "counters" && **bytes == *large;
    assert!(pair.learned_of_taker.first().is_some_and(is_large));
    assert_eq!(pair.learned_of_taker.last(), Some(&("counters".to_owned(), Wiped::default())));
    while pair.deliver() {}
    assert_eq!(pair.taker.frames_of("counters", &large).count(), 0);
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
}

/// Such a part costs what it has, and no connection.
#[test]
fn what_a_taker_says_of_itself_and_cannot_be_read_ends_nothing() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    let piece = |topic: String, bytes_total| {
        let bytes = vec![7; 9].into();
        Message::TakerState(StatePiece { topic, bytes_total, bytes }).encode()
    };
    let mut tell = |frame: &[u8]| pair.giver.on_frame(frame, 0, pair.now);
    for bytes_total in [STATE_BYTES_MAX + 1, 5] {
        tell(&piece("counters".to_owned(), bytes_total));
    }
    // Other topics are not kept, whole or not.
    (0..100).for_each(|topic| tell(&piece(topic.to_string(), 9 + topic % 2)));
    assert_eq!(pair.taker.frames_of("counters", &vec![7; STATE_BYTES_MAX as usize + 1]).count(), 0);
    pair.run_out();
    assert!(pair.learned_of_taker.is_empty());
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
}

/// Counters grow, and the end of the connection would be the end of the new process.
#[test]
fn what_is_too_large_to_be_read_ends_no_connection_after_commit() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Probation {
        assert!(pair.deliver());
    }
    let large = vec![7; STATE_BYTES_MAX as usize + 1];
    let [large, small] = [large, vec![7]].map(|bytes| ("counters".to_owned(), bytes.into()));
    pair.giver.update(&[large]);
    assert_eq!(pair.giver.poll(), None);
    // Another version says it all the same, or says too much.
    for (bytes_total, len) in [(STATE_BYTES_MAX + 1, 9), (5, 9)] {
        let (topic, bytes) = ("counters".to_owned(), vec![7; len].into());
        let frame = Message::State(StatePiece { topic, bytes_total, bytes }).encode();
        pair.taker.on_frame(&frame, 0, pair.now);
    }
    pair.giver.update(&[small]);
    while pair.deliver() {}
    assert_eq!(pair.learned.last().map(String::as_str), Some("counters"));
    let ends = [&pair.giver_ends.len(), &pair.taker_ends.len()];
    assert_eq!(ends, [&1, &1], "{:?} {:?}", pair.giver_ends, pair.taker_ends);
}

#[test]
fn a_giver_that_is_kept_from_its_loop_is_heard_and_knows_when_it_is_late() {
    let mut pair = Pair::new(1000);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    let since = pair.now;
    let due = (0..100).filter(|look| pair.giver.is_alive_due(since + look * SECOND / 100));
    assert!((4..=5).contains(&due.count()));
    assert!(!pair.giver.is_late(59 * SECOND) && pair.giver.is_late(60 * SECOND));
    while pair.giver.phase() < Phase::Probation {
        assert!(pair.deliver());
    }
    assert!(!pair.giver.is_alive_due(61 * SECOND) && !pair.giver.is_late(61 * SECOND));
}

/// A taker that has got these listening sockets from a giver which says that these files are its own.
fn listening(own_files: Vec<SocketKey>, keys: Vec<SocketKey>) -> Taker {
    let mut giver = Giver::new("1.0.0", 11, 40, 0, Default::default(), 0);
    let mut taker = Taker::new("1.1.0", vec![11], 9, false, Default::default(), 0);
    let mut own_files = Some(own_files);
    loop {
        let mut is_quiet = true;
        while let Some(action) = taker.poll() {
            match action {
                TakerAction::Send(frame) => giver.on_frame(&frame, 0, 0),
                TakerAction::Opening(OpeningAction::Compare(_)) => taker.compared(Vec::new(), 0),
                TakerAction::Opening(OpeningAction::Listen(came)) => {
                    assert_eq!(came, keys);
                    return taker;
                }
                other => assert!(!matches!(other, TakerAction::Stop(_)), "{other:?}"),
            }
        }
        while let Some(action) = giver.poll() {
            is_quiet = false;
            match action {
                GiverAction::Describe => giver.describe((1, Vec::new()), None, 0),
                GiverAction::Listen => {
                    giver.own_files(own_files.take().unwrap_or_default());
                    giver.listen(keys.clone());
                }
                GiverAction::Send(frame) => {
                    assert!(frame.len() <= FRAME_BYTES_MAX);
                    taker.on_frame(&frame, 0, 0);
                }
                GiverAction::SendListening(frame, keys) => taker.on_frame(&frame, keys.len(), 0),
                _ => {}
            }
        }
        assert!(!is_quiet, "it goes on");
    }
}

#[test]
fn a_taker_owns_the_files_of_which_the_giver_says_so_and_no_others() {
    let name = |number: u32| format!("{number}{}", "x".repeat(1000));
    let keys = || (0..300).map(|number| SocketKey::Listener(name(number), 0));
    let all: Vec<_> = keys().chain([SocketKey::Admin, SocketKey::Metrics]).collect();
    // More than fit a frame.
    let own: Vec<_> = keys().skip(100).chain([SocketKey::Metrics]).collect();
    let taker = listening(own.clone(), all.clone());
    let owned: Vec<_> = all.iter().filter(|key| taker.owns_file(key)).cloned().collect();
    assert_eq!(owned, own);
    // A giver of an earlier version says nothing.
    let taker = listening(Vec::new(), all.clone());
    assert!(!all.iter().any(|key| taker.owns_file(key)));
}

#[test]
fn more_state_and_a_slow_description_leave_the_taker_its_time() {
    let mut giver = Giver::new("1.0.0", 11, 40, 0, Default::default(), 0);
    let purpose = Purpose::Take { forms_read: vec![11], descriptors: 9, is_check: false };
    giver.on_frame(&Message::Hello(Hello::new("1.1.0", purpose)).encode(), 0, SECOND);
    giver.describe((1, Vec::new()), None, 5 * SECOND);
    assert_eq!(giver.next_deadline(), Some(10 * SECOND));
    let same = Message::Differences { differences: Vec::new(), is_last: true };
    giver.on_frame(&same.encode(), 0, 6 * SECOND);
    giver.listen(Vec::new());
    giver.on_frame(&Message::Serving.encode(), 0, 6 * SECOND);
    for _probe_and_all in 0..2 {
        giver.give(Collected::default(), 6 * SECOND);
    }
    let states = [("counters".to_owned(), vec![7; 61 << 20].into())];
    giver.commit(&states, 7 * SECOND);
    // Five, and one for each 4 MiB behind the first.
    let deadline = giver.next_deadline().unwrap() as f64 / SECOND as f64;
    assert!((27.7..27.8).contains(&deadline), "{deadline}");
}

#[test]
fn differences_and_reasons_are_bounded() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Config {
        assert!(pair.deliver());
    }
    let frame = Message::Differences { differences: Vec::new(), is_last: false }.encode();
    let frames = (0..u32::MAX).take_while(|_| {
        pair.giver.on_frame(&frame, 0, pair.now);
        let mut actions = std::iter::from_fn(|| pair.giver.poll());
        !actions.any(|it| matches!(it, GiverAction::RollBack { .. }))
    });
    assert_eq!(frames.count(), 3 * handover::PARTS_MAX);

    let mut left = Vec::new();
    for count in 1..=1000 {
        Left::add(&mut left, &format!("reason {count}"), 1);
        Left::add(&mut left, "reason 1", 1);
    }
    let all: u32 = left.iter().map(|left| left.count).sum();
    assert_eq!((left.len(), all, left[0].count), (65, 2000, 1001));
    assert_eq!(left[64], Left { reason: "other reasons".to_owned(), count: 936 });
}

#[test]
fn a_taker_that_ends_as_it_should_ends_the_probation() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Probation {
        assert!(pair.deliver());
    }
    pair.giver.on_frame(&Message::Committed.encode(), 0, pair.now);
    pair.giver.on_closed();
    pair.act();
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
}

#[test]
fn a_taker_in_its_probation_has_the_giver_take_everything_back() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Probation {
        assert!(pair.deliver());
    }
    let asked = Message::TakeBack { reason: "unwell".to_owned() };
    pair.giver.on_frame(&asked.encode(), 0, pair.now);
    let actions: Vec<_> = std::iter::from_fn(|| pair.giver.poll()).collect();
    assert_eq!(actions.last(), Some(&GiverAction::BecomeTaker("unwell".to_owned())));
    assert_eq!(pair.giver.phase(), Phase::Probation, "until it has");

    let deadlines = Default::default();
    let mut former = Taker::of_former("1.0.0", vec![11], 40, deadlines, 0);
    let frame = std::iter::from_fn(|| former.poll()).find_map(|action| match action {
        TakerAction::Send(frame) => Some(frame),
        _ => None,
    });
    let mut giver = Giver::new("1.1.0", 11, 40, 1, deadlines, 0);
    giver.on_frame(&frame.unwrap(), 0, 0);
    assert_eq!(giver.phase(), Phase::Config);
}

#[test]
fn a_giver_that_still_ends_what_it_has_learns_that_younger_ones_live() {
    let frames = |messages: &[Message]| {
        let mut pair = Pair::new(10);
        while pair.giver.phase() < Phase::Probation {
            assert!(pair.deliver());
        }
        for message in messages {
            pair.giver.on_frame(&message.encode(), 0, pair.now);
        }
        let is_notice = |action: &GiverAction| {
            matches!(
                action,
                GiverAction::Finish | GiverAction::EndFormer | GiverAction::EndRemaining
            )
        };
        let noticed: Vec<_> = std::iter::from_fn(|| pair.giver.poll()).filter(is_notice).collect();
        assert_eq!(pair.giver.next_deadline(), None);
        pair.giver.update(&[("counters".to_owned(), vec![1].into())]);
        assert!(pair.giver.poll().is_some(), "what it counts is passed on to its end");
        pair.giver.on_closed();
        assert!(pair.giver.is_over());
        noticed
    };
    let (succeeded, committed, end) =
        (Message::Succeeded, Message::Committed, Message::EndRemaining);
    assert_eq!(
        frames(&[succeeded.clone(), committed.clone()]),
        [GiverAction::EndFormer, GiverAction::Finish]
    );
    assert_eq!(
        frames(&[committed.clone(), succeeded]),
        [GiverAction::Finish, GiverAction::EndFormer]
    );
    assert_eq!(frames(&[committed, end.clone()]), [GiverAction::Finish, GiverAction::EndRemaining]);
    assert_eq!(frames(&[end]), [GiverAction::Finish, GiverAction::EndRemaining]);
}

#[test]
fn connections_that_cannot_move_yet_are_waited_for_and_not_for_ever() {
    let mut pair = Pair::new(10);
    // One of them has a handshake that does not end.
    pair.pending = 1;
    pair.run_out();
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
    assert!((400..=600).contains(&pair.collected), "{}", pair.collected);
    assert!((40 * SECOND..=41 * SECOND).contains(&pair.now), "10 s, then probation: {}", pair.now);
}

#[test]
fn connections_that_cannot_move_yet_fail_no_handover_with_a_short_deadline() {
    // COMMIT has five seconds, or half of the whole time where that is less.
    for (total, waits) in [(1, SECOND / 2), (8, 4 * SECOND), (12, 7 * SECOND), (15, 10 * SECOND)] {
        let mut pair = Pair::new(10);
        let deadlines = Deadlines { total: Duration::from_secs(total), ..Deadlines::default() };
        pair.giver = Giver::new("1.0.0", 11, 40, 0, deadlines, 0);
        pair.pending = 1;
        while pair.giver.phase() < Phase::Commit {
            if !pair.deliver() {
                pair.now = pair.giver.next_deadline().expect("it goes on");
                pair.taker.on_time(pair.now);
                pair.giver.on_time(pair.now);
            }
        }
        assert!((waits..waits + SECOND / 20).contains(&pair.now), "{total} s: {} ns", pair.now);
        // The new process has its time for COMMIT, also where that is beyond the deadline.
        pair.now += 4 * SECOND;
        pair.giver.on_time(pair.now);
        pair.run_out();
        let ends = [GiverAction::Committed, GiverAction::Finish];
        assert_eq!((&*pair.giver_ends, pair.served.len()), (&ends[..], 9), "{total} s");
    }
}

/// Both sides where a phase begins, with nothing that has arrived of what the giver sends then.
fn before(phase: Phase) -> Pair {
    let mut pair = Pair::new(200);
    while pair.giver.phase() < phase {
        pair.act();
        assert!(pair.giver.phase() == phase || pair.deliver(), "{phase}");
    }
    pair.act();
    pair
}

#[test]
fn a_silent_peer_ends_the_attempt_within_the_deadline_of_its_phase() {
    for (phase, seconds) in [
        (Phase::Hello, 2),
        (Phase::Config, 5),
        (Phase::Listeners, 5),
        (Phase::Probe, 2),
        (Phase::Connections, 2),
        (Phase::Commit, 5),
    ] {
        let mut pair = before(phase);
        // In doubt is only what it was asked last.
        pair.may_end_taker = true;
        let now = seconds * SECOND;
        assert!(pair.giver.next_deadline().is_some_and(|at| at <= now), "{phase}");
        pair.giver.on_time(now - 1);
        assert_eq!(pair.giver.phase(), phase);
        pair.giver.on_time(now);
        pair.act();
        let Some(GiverAction::RollBack { failure, .. }) = pair.giver_ends.last() else {
            panic!("{phase}: {:?}", pair.giver_ends);
        };
        assert_eq!(failure, &Failure::Silent(phase));
    }
}

#[test]
fn a_batch_may_take_as_long_as_the_taker_says_that_it_is_at_work() {
    let mut pair = before(Phase::Connections);
    let alive = Message::Alive.encode();
    assert!(!pair.to_taker.is_empty());
    // Far longer than a batch may take otherwise.
    for _ in 0..40 {
        pair.now += SECOND / 4;
        pair.giver.on_frame(&alive, 0, pair.now);
        pair.giver.on_time(pair.now);
    }
    assert_eq!(pair.giver.phase(), Phase::Connections);
    let Pair { giver, now, .. } = &mut pair;
    let look = |now| {
        giver.on_time(now);
        (giver.phase() == Phase::Done).then_some(())
    };
    assert_eq!(asked_for(now, 20, look, |()| true), Some(((), 2000)));
    // As long as a handover may take, and no longer.
    let mut pair = before(Phase::Connections);
    while pair.giver.phase() == Phase::Connections {
        pair.now += SECOND / 4;
        pair.giver.on_frame(&alive, 0, pair.now);
        pair.giver.on_time(pair.now);
    }
    assert_eq!(pair.now, 60 * SECOND);
}

#[test]
fn groups_with_many_bytes_go_in_batches_of_their_own_which_may_take_longer() {
    let mut pair = Pair::new(1000);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    while pair.giver.poll().is_some() {}
    let mut taken = (1..).map(|batch| Message::Taken { batch, refused: vec![] }.encode());
    // An acknowledged batch makes room for the next one.
    pair.giver.on_frame(&taken.next().unwrap(), 0, pair.now);
    while pair.giver.poll().is_some() {}
    let mib = |group, mib: u32| GivenGroup { group, bytes: mib << 20, sockets: 1 };
    let groups = [mib(1, 1), mib(2, 2), mib(3, 2), mib(4, 9), mib(5, 1)];
    let collected = Collected { groups: groups.to_vec(), asked_at: 5, ..Collected::default() };
    pair.giver.give(collected, pair.now);
    let mut next = || {
        let mut groups = Vec::new();
        let mut asks = false;
        while let Some(action) = pair.giver.poll() {
            match action {
                GiverAction::SendPiece(piece) if groups.last() != Some(&piece.group()) => {
                    groups.push(piece.group());
                }
                GiverAction::Collect(_) => asks = true,
                _ => {}
            }
        }
        pair.giver.on_frame(&taken.next().unwrap(), 0, pair.now);
        (groups, asks)
    };
    let mut batches = Vec::new();
    loop {
        let (groups, asks) = next();
        batches.extend(Some(groups).filter(|groups| !groups.is_empty()));
        if asks {
            break;
        }
    }
    assert_eq!(batches, [vec![1, 2], vec![3], vec![4], vec![5]], "before more are asked for");
}

#[test]
fn what_was_not_sent_when_the_attempt_failed_is_not_sent() {
    let mut pair = Pair::new(1000);
    while pair.giver.phase() < Phase::Connections {
        assert!(pair.deliver());
    }
    // An acknowledged batch makes room for the next one.
    pair.giver.on_frame(&Message::Taken { batch: 1, refused: vec![] }.encode(), 0, pair.now);
    let groups = pair.movable.split_off(pair.movable.len() - 20);
    let collected = Collected { groups, asked_at: pair.now, ..Collected::default() };
    pair.giver.give(collected, pair.now);
    while !matches!(pair.giver.poll(), Some(GiverAction::SendPack(_))) {}
    pair.giver.fail(Failure::Own("it does not read".to_owned()));
    let frames: Vec<_> = std::iter::from_fn(|| pair.giver.poll())
        .filter_map(|action| match action {
            GiverAction::Send(frame) | GiverAction::SendListening(frame, _) => Some(frame),
            GiverAction::SendPiece(_) | GiverAction::SendPack(_) => panic!("{action:?}"),
            _ => None,
        })
        .collect();
    let messages: Vec<_> = frames.iter().map(|frame| Message::decode(frame).unwrap()).collect();
    assert!(matches!(&messages[..], [Some(Message::GiveUp { .. })]), "{messages:?}");
}

/// Both sides up to a phase, with time passing on the taker, so that it has sent `Alive`.
fn up_to(phase: Phase, pending: u32) -> Pair {
    let mut pair = Pair::new(10);
    pair.pending = pending;
    while pair.giver.phase() < phase {
        assert!(pair.deliver(), "{phase}");
        pair.taker.on_time(pair.now);
    }
    pair.taker.on_time(pair.now);
    while pair.deliver() {}
    pair
}

/// Lets time pass on one side, in the steps in which a process looks: what it asks for, and after how many ms.
fn asked_for<A: std::fmt::Debug>(
    now: &mut u64,
    seconds: u64,
    mut look: impl FnMut(u64) -> Option<A>,
    is_awaited: impl Fn(&A) -> bool,
) -> Option<(A, u64)> {
    let began = *now;
    while *now < began + seconds * SECOND {
        *now += SECOND / 10;
        if let Some(action) = look(*now).filter(&is_awaited) {
            return Some((action, (*now - began) / 1_000_000));
        }
    }
    None
}

#[test]
fn a_taker_that_is_stopped_while_connections_are_waited_for_is_noticed_after_four_seconds() {
    let mut pair = up_to(Phase::Remaining, 1);
    let Pair { giver, now, .. } = &mut pair;
    let look = |now| {
        giver.on_time(now);
        let mut last = None;
        while let Some(action) = giver.poll() {
            if let GiverAction::Collect(_) = action {
                giver.give(Collected { pending: 1, ..Collected::default() }, now);
            }
            last = Some(action);
        }
        last
    };
    let is_end = |action: &GiverAction| matches!(action, GiverAction::RollBack { .. });
    let (action, after_ms) = asked_for(now, 20, look, is_end).unwrap();
    let failure = Failure::Silent(Phase::Remaining);
    assert_eq!(action, GiverAction::RollBack { failure, peer: PeerLife::InDoubt });
    assert_eq!(after_ms, 4000);
}

#[test]
fn a_taker_that_is_stopped_in_its_probation_is_ended_and_the_giver_accepts_again() {
    for can_be_ended in [true, false] {
        let mut pair = up_to(Phase::Probation, 0);
        let Pair { giver, now, .. } = &mut pair;
        let mut ended = 0;
        let look = |now| {
            giver.on_time(now);
            let action = giver.poll();
            if action == Some(GiverAction::EndSilent) {
                ended += 1;
                if can_be_ended {
                    giver.on_closed();
                }
            }
            action
        };
        let is_end =
            |it: &GiverAction| matches!(it, GiverAction::AcceptAgain | GiverAction::StandIn);
        let (action, after_ms) = asked_for(now, 40, look, is_end).unwrap();
        if can_be_ended {
            assert_eq!((action, after_ms), (GiverAction::AcceptAgain, 4100));
        } else {
            assert_eq!((action, after_ms), (GiverAction::StandIn, 4100));
        }
        assert_eq!(ended, 1);
    }
}

#[test]
fn a_giver_stands_in_for_a_silent_taker_that_cannot_be_ended_as_long_as_it_is_silent() {
    let mut pair = up_to(Phase::Probation, 0);
    let Pair { giver, now, .. } = &mut pair;
    let asked = |giver: &mut Giver, now: &mut u64, seconds| {
        let mut asked = Vec::new();
        for _ in 0..seconds * 4 {
            *now += SECOND / 4;
            giver.on_time(*now);
            asked.extend(std::iter::from_fn(|| giver.poll()));
        }
        asked
    };
    let standing_in = [GiverAction::EndSilent, GiverAction::StandIn];
    // Far longer than the probation.
    assert_eq!(asked(giver, now, 600), standing_in);
    giver.on_frame(&Message::Alive.encode(), 0, *now);
    assert_eq!(giver.poll(), Some(GiverAction::StandBack));
    giver.on_time(*now);
    let actions: Vec<_> = std::iter::from_fn(|| giver.poll()).collect();
    assert_eq!(actions, [GiverAction::Enter(Phase::Done), GiverAction::Finish]);

    // It is heard in the probation, and silent once more; then it ends.
    let mut pair = up_to(Phase::Probation, 0);
    let Pair { giver, now, .. } = &mut pair;
    for _ in 0..2 {
        assert_eq!(asked(giver, now, 6), standing_in);
        giver.on_frame(&Message::Alive.encode(), 0, *now);
        assert_eq!(giver.poll(), Some(GiverAction::StandBack));
    }
    assert_eq!(asked(giver, now, 6), standing_in);
    giver.on_closed();
    assert_eq!(giver.poll(), Some(GiverAction::AcceptAgain));
    // One that runs again and has handed over itself, or gives back, is heard first.
    let mut pair = up_to(Phase::Probation, 0);
    let Pair { giver, now, .. } = &mut pair;
    assert_eq!(asked(giver, now, 6), standing_in);
    giver.on_frame(&Message::TakeBack { reason: "x".to_owned() }.encode(), 0, *now);
    let actions: Vec<_> = std::iter::from_fn(|| giver.poll()).collect();
    assert_eq!(actions, [GiverAction::StandBack, GiverAction::BecomeTaker("x".to_owned())]);
}

/// Two would serve otherwise: what is asked for is done as soon as it is read.
#[test]
fn a_taker_that_was_asked_to_commit_and_cannot_be_ended_is_the_process_once_it_runs() {
    for runs in [true, false] {
        let mut pair = before(Phase::Commit);
        let Pair { giver, now, .. } = &mut pair;
        let (action, _) = asked_for(now, 20, look_at(giver), |_| true).unwrap();
        let failure = Failure::Silent(Phase::Commit);
        assert_eq!(action, GiverAction::EndCommitting(failure));
        giver.on_not_ended(*now);
        let actions: Vec<_> = std::iter::from_fn(|| giver.poll()).collect();
        let probation = GiverAction::Enter(Phase::Probation);
        // It is not asked to give up: it could have committed by then.
        assert_eq!(actions, [GiverAction::Committed, probation, GiverAction::StandIn]);
        // Far longer than the probation.
        assert_eq!(asked_for(now, 600, look_at(giver), |_| true), None);
        if !runs {
            giver.on_closed();
            assert_eq!(giver.poll(), Some(GiverAction::AcceptAgain));
            continue;
        }
        // What it says before it has read that is no reason to end.
        pair.giver.on_frame(&Message::Alive.encode(), 0, pair.now);
        pair.giver.on_time(pair.now);
        assert_eq!(pair.giver.poll(), None);
        while pair.deliver() {}
        assert!(
            pair.taker_ends
                .iter()
                .any(|it| matches!(it, TakerAction::Moving(MovingAction::Commit { .. })))
        );
        pair.giver.on_time(pair.now);
        assert_eq!(pair.giver.phase(), Phase::Probation, "it begins once the taker says so");
        pair.now += 31 * SECOND;
        pair.taker.on_time(pair.now);
        while pair.deliver() {}
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
        assert_eq!(pair.giver_ends, [GiverAction::Finish]);
    }
}

/// What a giver does next as time passes.
fn look_at(giver: &mut Giver) -> impl FnMut(u64) -> Option<GiverAction> {
    |now| {
        giver.on_time(now);
        giver.poll()
    }
}

#[test]
fn a_taker_has_its_time_from_when_it_is_asked_to_commit() {
    let mut pair = before(Phase::Commit);
    // This process was stopped before it could send that.
    pair.now += 60 * SECOND;
    pair.giver.on_sent(pair.now);
    pair.giver.on_time(pair.now);
    assert_eq!(pair.giver.poll(), None);
    pair.giver.on_time(pair.now + 5 * SECOND);
    assert!(matches!(pair.giver.poll(), Some(GiverAction::EndCommitting(_))));
}

#[test]
fn a_taker_that_was_stopped_while_it_worked_reads_what_came_before_its_time_is_over() {
    let mut pair = before(Phase::Commit);
    let Pair { taker, now, to_taker, .. } = &mut pair;
    *now += 3600 * SECOND;
    to_taker.push_front((Message::Alive.encode().to_vec(), 0));
    // One for each part of what the giver knows, and COMMIT. Its caller asks for time once nothing is left to read.
    assert!(to_taker.len() > 3);
    for (frame, descriptors) in to_taker.drain(..) {
        taker.on_frame(&frame, descriptors, *now);
        taker.is_alive_due(*now);
    }
    taker.on_time(*now);
    assert_eq!(taker.phase(), Phase::Commit);
}

#[test]
fn a_taker_that_says_that_it_is_at_work_has_more_time_to_commit_but_not_for_ever() {
    let mut pair = before(Phase::Commit);
    let (asked_at, alive) = (pair.now, Message::Alive.encode());
    while pair.giver.phase() == Phase::Commit && pair.giver.poll().is_none() {
        pair.now += SECOND / 4;
        pair.giver.on_frame(&alive, 0, pair.now);
        pair.giver.on_time(pair.now);
    }
    assert_eq!(pair.now, asked_at + 60 * SECOND);
}

#[test]
fn a_taker_has_five_seconds_to_make_room_for_what_it_needs_to_commit() {
    let mut pair = before(Phase::Commit);
    let (asked_at, within) = (pair.now, 5 * SECOND);
    assert!(!pair.giver.is_late(asked_at + within - 1));
    assert!(pair.giver.is_late(asked_at + within));
    // What it says meanwhile, without reading, does not help it for ever.
    let looks = (1..).map(|look| asked_at + look * SECOND);
    let late = looks.into_iter().find(|at| {
        pair.giver.on_frame(&Message::Alive.encode(), 0, *at);
        pair.giver.is_late(*at)
    });
    assert_eq!(late, Some(asked_at + 60 * SECOND));
}

#[test]
fn a_frame_before_commit_leaves_the_taker_no_more_time_for_it() {
    let mut giver = Pair::new(0).giver;
    let purpose = Purpose::Take { forms_read: Vec::new(), descriptors: 9, is_check: false };
    let frames = [
        Message::Hello(Hello::new("1.1.0", purpose)),
        Message::Differences { differences: Vec::new(), is_last: true },
        Message::Serving,
    ];
    for frame in frames {
        giver.on_frame(&frame.encode(), 0, SECOND);
        while let Some(action) = giver.poll() {
            match action {
                GiverAction::Describe => giver.describe((1, Vec::new()), None, SECOND),
                GiverAction::Listen => giver.listen(Vec::new()),
                _ => {}
            }
        }
    }
    giver.commit(&[("counters".to_owned(), vec![1; 500_000].into())], SECOND);
    let mut deadlines = Vec::new();
    while giver.poll().is_some() {
        giver.on_sent(3 * SECOND);
        deadlines.push(giver.next_deadline());
    }
    // Since it was to be sent, and for COMMIT itself since it was.
    assert_eq!(deadlines.pop(), Some(Some(8 * SECOND)));
    assert!(deadlines.len() > 5 && deadlines.iter().all(|it| *it == Some(6 * SECOND)));
}

#[test]
fn two_that_are_stopped_together_go_on_with_the_handover() {
    for phase in [Phase::Hello, Phase::Listeners, Phase::Probe, Phase::Connections, Phase::Commit] {
        let mut pair = before(phase);
        let hour = 3600 * SECOND;
        pair.now += hour;
        pair.giver.was_stopped(hour);
        pair.taker.was_stopped(hour);
        pair.taker.on_time(pair.now);
        pair.giver.on_time(pair.now);
        assert_eq!((pair.giver_ends.len(), pair.taker_ends.len()), (0, 0), "{phase}");
        pair.run_out();
        assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish], "{phase}");
    }
}

#[test]
fn a_probation_that_passed_while_both_were_stopped_ends_once_the_taker_runs() {
    for runs in [true, false] {
        let mut pair = up_to(Phase::Probation, 0);
        pair.now += 3600 * SECOND;
        pair.giver.on_time(pair.now);
        assert_eq!(pair.giver.phase(), Phase::Probation);
        if runs {
            pair.taker.on_time(pair.now);
            while pair.deliver() {}
            pair.giver.on_time(pair.now);
            while pair.deliver() {}
            assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
        } else {
            let Pair { giver, now, .. } = &mut pair;
            let look = |now| {
                giver.on_time(now);
                giver.poll()
            };
            let found = asked_for(now, 20, look, |it| *it == GiverAction::EndSilent);
            assert_eq!(found, Some((GiverAction::EndSilent, 3800)));
        }
    }
}

#[test]
fn a_taker_that_runs_stays_the_process() {
    let mut pair = up_to(Phase::Probation, 0);
    for _ in 0..290 {
        pair.now += SECOND / 10;
        pair.taker.on_time(pair.now);
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
    }
    assert_eq!(
        (pair.giver.phase(), &*pair.giver_ends),
        (Phase::Probation, &[GiverAction::Committed][..])
    );
    // One of an earlier version sends none, and is not ended for that.
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Probation {
        assert!(pair.deliver());
    }
    for _ in 0..290 {
        pair.now += SECOND / 10;
        pair.giver.on_time(pair.now);
    }
    pair.act();
    assert_eq!(pair.giver_ends, [GiverAction::Committed]);
}

#[test]
fn a_process_that_takes_back_ends_a_silent_one_and_goes_on_alone() {
    for can_be_ended in [true, false] {
        let mut pair = Pair::new(10);
        pair.taker = Taker::of_former("1.0.0", vec![11], 40, Default::default(), 0);
        pair.pending = 1;
        while pair.giver.phase() < Phase::Remaining {
            assert!(pair.deliver());
        }
        pair.now += SECOND;
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
        let Pair { taker, now, .. } = &mut pair;
        let look = |now| {
            taker.on_time(now);
            let action = taker.poll();
            if action == Some(TakerAction::Moving(MovingAction::EndSilent)) {
                if can_be_ended {
                    taker.on_closed(now);
                } else {
                    taker.stop_for_silence();
                }
            }
            action
        };
        let is_end = |it: &TakerAction| {
            matches!(it, TakerAction::Moving(MovingAction::Commit { .. }) | TakerAction::Stop(_))
        };
        let (action, after_ms) = asked_for(now, 20, look, is_end).unwrap();
        if can_be_ended {
            assert!(
                matches!(action, TakerAction::Moving(MovingAction::Commit { is_alone: true, .. })),
                "{action:?}"
            );
        } else {
            assert_eq!(action, TakerAction::Stop(Failure::Silent(Phase::Connections)));
        }
        assert!((4000..=4300).contains(&after_ms), "{after_ms}");
    }
}

#[test]
fn a_taker_learns_when_the_service_manager_knows_it() {
    let mut pair = up_to(Phase::Probation, 0);
    pair.giver.main_process();
    pair.act();
    assert!(pair.to_taker.is_empty(), "not before the end of probation");
    while pair.giver_ends.len() < 2 {
        assert!(pair.taker.next_deadline().is_some(), "it sends `Alive`");
        pair.now += SECOND / 10;
        pair.taker.on_time(pair.now);
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
    }
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
    assert_eq!(pair.taker.next_deadline(), None, "it heard, and sends no more");
}

#[test]
fn who_speaks_other_versions_is_refused() {
    let purpose = Purpose::Take { forms_read: vec![11], descriptors: 9, is_check: false };
    let mut newer = Hello::new("2.0.0", purpose);
    (newer.version_min, newer.version_max) = (2, 3);
    let mut giver = Giver::new("1.0.0", 11, 40, 0, Default::default(), 0);
    giver.on_frame(&Message::Hello(newer).encode(), 0, 0);
    let actions: Vec<_> = std::iter::from_fn(|| giver.poll()).collect();
    let failure = Failure::Version { min: 2, max: 3 };
    assert_eq!(actions.last(), Some(&GiverAction::RollBack { failure, peer: PeerLife::Over }));
}

#[test]
fn who_does_not_read_the_form_of_connections_gets_all_else() {
    let mut pair = Pair::new(50);
    pair.taker = Taker::new("2.0.0", vec![9, 12], 1024, false, Default::default(), 0);
    pair.run_out();
    assert_eq!(pair.giver_ends, [GiverAction::Committed, GiverAction::Finish]);
    assert!(!pair.giver.moves_connections());
    assert_eq!((pair.collected, pair.served.len(), pair.movable.len()), (0, 0, 50));
    let [TakerAction::Moving(MovingAction::Commit { states, is_alone: false })] = &*pair.taker_ends
    else {
        panic!("{:?}", pair.taker_ends);
    };
    assert_eq!(*states["counters"], [1; 100_000]);
}

#[test]
fn a_kind_that_may_be_skipped_is_and_another_is_not() {
    assert_eq!(Message::decode(&[0xff, 9, 1, 2, 3]), Ok(None));
    assert_eq!(Message::decode(&[0x7f, 9]), Err(FrameError::UnknownKind(0x7f09)));
    assert_eq!(Message::decode(&[1]), Err(FrameError::TooShort));
    assert_eq!(Message::decode(&[1; 65_537]), Err(FrameError::TooLong));
    let hello = Message::Hello(Hello::new("1", Purpose::Upgrade(Default::default()))).encode();
    let with_more = [hello.as_slice(), b"more"].concat();
    assert_eq!(Message::decode(&with_more), Message::decode(&hello));
    let mut other_magic = hello;
    other_magic[2] ^= 1;
    assert_eq!(Message::decode(&other_magic), Err(FrameError::Body));
}

#[test]
fn what_sources_delivered_goes_to_a_taker_that_reads_it_and_to_no_other() {
    for (reads, resources, begun) in [
        (true, Some(77), vec![77]),
        (true, None, vec![]),
        // A taker of the version before, or one without sources: a frame with a descriptor would end the handover.
        (false, Some(77), vec![]),
    ] {
        let mut pair = Pair::new(8);
        pair.resources = resources;
        if reads {
            pair.taker = Taker::with_resources("1.1.0", vec![11], 9, false, Default::default(), 0);
        }
        pair.run_out();
        assert_eq!(pair.begun, begun);
        assert_eq!(pair.giver_ends.first(), Some(&GiverAction::Committed));
    }
}

#[test]
fn a_hello_of_the_version_before_says_nothing_of_resources() {
    let purpose = Purpose::Take { forms_read: vec![11], descriptors: 9, is_check: false };
    let mut hello = Hello::new("1", purpose);
    hello.reads_resources = true;
    let mut frame = Message::Hello(hello.clone()).encode();
    assert_eq!(Message::decode(&frame), Ok(Some(Message::Hello(hello.clone()))));
    // It is the last byte.
    frame.pop();
    hello.reads_resources = false;
    assert_eq!(Message::decode(&frame), Ok(Some(Message::Hello(hello))));
}

#[test]
fn resources_come_once_before_the_parts_and_only_where_they_are_read() {
    let resources = Message::Resources { bytes: 7 }.encode();
    let parts = |is_last| Message::Parts { parts: vec![part()], is_last }.encode();
    let welcomed = |reads: bool| {
        let new = if reads { Taker::with_resources } else { Taker::new };
        let mut taker = new("1", vec![11], 9, false, Default::default(), 0);
        taker.on_frame(&welcome(), 0, 0);
        taker
    };
    let is_stopped = |taker: &mut Taker| {
        std::iter::from_fn(|| taker.poll()).any(|it| matches!(it, TakerAction::Stop(_)))
    };
    let mut once = welcomed(true);
    once.on_frame(&resources, 1, 0);
    assert!(!is_stopped(&mut once));
    let mut twice = once;
    twice.on_frame(&resources, 1, 0);
    assert!(is_stopped(&mut twice));
    let mut late = welcomed(true);
    late.on_frame(&parts(false), 0, 0);
    late.on_frame(&resources, 1, 0);
    assert!(is_stopped(&mut late));
    for (reads, descriptors) in [(true, 0), (true, 2), (false, 1)] {
        let mut taker = welcomed(reads);
        taker.on_frame(&resources, descriptors, 0);
        assert!(is_stopped(&mut taker), "{reads} {descriptors}");
    }
}

fn part() -> Part {
    Part { kind: PartKind::Cluster, name: "web".to_owned(), fingerprint: 1 }
}

fn welcome() -> Vec<u8> {
    let welcome = Welcome {
        version: 1,
        program: "1".to_owned(),
        form: 11,
        descriptors: 9,
        generation: 0,
        probation_ms: 0,
        lists_connections: true,
    };
    Message::Welcome(welcome).encode().to_vec()
}

#[test]
fn a_welcome_of_the_version_before_says_nothing_of_lists() {
    let says = |frame: &[u8]| match Message::decode(frame) {
        Ok(Some(Message::Welcome(welcome))) => welcome.lists_connections,
        other => panic!("{other:?}"),
    };
    let mut frame = welcome();
    assert!(says(&frame));
    // It is the last byte.
    frame.pop();
    assert!(!says(&frame));
}

#[test]
fn a_taker_notes_how_many_connections_there_are_before_it_compares() {
    let mut giver = Giver::new("1.0.0", 11, 40, 0, Default::default(), 0);
    let mut taker = Taker::new("1.0.0", vec![11], 1 << 20, false, Default::default(), 0);
    let downstream = Downstream { connections: 7, open_files_max: 1024 };
    let mut opened = Vec::new();
    for _ in 0..3 {
        while let Some(action) = taker.poll() {
            match action {
                TakerAction::Send(frame) => giver.on_frame(&frame, 0, 0),
                TakerAction::Opening(OpeningAction::Welcomed(_)) => {}
                TakerAction::Opening(action) => opened.push(action),
                _ => {}
            }
        }
        while let Some(action) = giver.poll() {
            match action {
                GiverAction::Describe => {
                    giver.send_downstream(downstream);
                    giver.describe((1, vec![part()]), None, 0);
                    // It is too late.
                    giver.send_downstream(downstream);
                }
                GiverAction::Send(frame) => taker.on_frame(&frame, 0, 0),
                _ => {}
            }
        }
    }
    let expected = [
        OpeningAction::NoteDownstream(downstream),
        OpeningAction::ContinueVersions(1),
        OpeningAction::Compare(vec![part()]),
    ];
    assert_eq!(opened, expected);
}

/// What both sides are asked to do by a request and its answer.
fn list(pair: &mut Pair) -> (Option<GiverAction>, Option<TakerAction>) {
    let listed = ListedConnections {
        request: 7,
        rows: vec!["{}".to_owned(), "{\"id\":\"1.2.3\"}".to_owned()],
        next: Some((1, 3)),
    };
    let ask = Message::ListConnections { request: 7, worker: 1, slot: 2 };
    pair.giver.on_frame(&ask.encode(), 0, pair.now);
    let is_awaited = |it: &GiverAction| {
        use GiverAction::{EndCommitting, List, RollBack};
        matches!(it, List { .. } | RollBack { .. } | EndCommitting(_))
    };
    let asked = std::iter::from_fn(|| pair.giver.poll()).find(is_awaited);
    pair.giver.list(listed.clone());
    while let Some(GiverAction::Send(frame)) = pair.giver.poll() {
        pair.taker.on_frame(&frame, 0, pair.now);
    }
    let answered = std::iter::from_fn(|| pair.taker.poll())
        .find(|it| *it == TakerAction::Following(FollowingAction::Listed(listed.clone())));
    (asked, answered)
}

#[test]
fn connections_that_stay_are_listed_to_the_end_of_the_giver() {
    let mut pair = up_to(Phase::Probation, 0);
    let asked = Some(GiverAction::List { request: 7, worker: 1, slot: 2 });
    let (by_giver, by_taker) = list(&mut pair);
    assert_eq!((by_giver, by_taker.is_some()), (asked.clone(), true));
    while !pair.giver.is_leaving() {
        pair.now += SECOND / 10;
        pair.taker.on_time(pair.now);
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
    }
    let (by_giver, by_taker) = list(&mut pair);
    assert_eq!((by_giver, by_taker.is_some()), (asked, true));
    pair.giver.on_closed();
    pair.giver.list(ListedConnections::default());
    assert_eq!(pair.giver.poll(), None);
}

#[test]
fn a_list_before_the_taker_is_the_process_is_out_of_turn() {
    for phase in [Phase::Config, Phase::Probe, Phase::Connections, Phase::Commit] {
        let at_phase = || {
            let mut pair = Pair::new(1000);
            while pair.giver.phase() < phase {
                assert!(pair.deliver());
            }
            pair
        };
        let (asked, answered) = list(&mut at_phase());
        let failure = Failure::OutOfTurn { phase, message: "ListConnections" };
        let (GiverAction::RollBack { failure: it, .. } | GiverAction::EndCommitting(it)) =
            asked.unwrap()
        else {
            panic!("{phase}");
        };
        assert_eq!(it, failure);
        assert_eq!(answered, None);
        let mut pair = at_phase();
        let listed = Message::Connections(ListedConnections::default());
        pair.taker.on_frame(&listed.encode(), 0, 0);
        let is_stop = |it: TakerAction| matches!(it, TakerAction::Stop(_));
        assert!(std::iter::from_fn(|| pair.taker.poll()).any(is_stop), "{phase}");
    }
}

#[test]
fn as_many_rows_are_listed_as_fit_a_frame_and_the_next_one_is_named() {
    for (bytes, fit) in [(0, 16_128), (1, 12_902), (300, 212), (16_384, 3), (64_508, 1)] {
        let row = |slot| ((u32::MAX, slot), "x".repeat(bytes));
        let rows = (0..20_000).map(row).take((fit + 2).min(20_000));
        let listed = ListedConnections::new(u32::MAX, rows.collect(), None);
        let next = Some((u32::MAX, u32::try_from(fit).unwrap()));
        assert_eq!((listed.rows.len(), listed.next), (fit, next));
        let frame = Message::Connections(listed.clone()).encode();
        assert!(frame.len() <= FRAME_BYTES_MAX, "{bytes}: {}", frame.len());
        assert_eq!(Message::decode(&frame), Ok(Some(Message::Connections(listed))));
    }
    let row = |bytes| ((0, 0), "x".repeat(bytes));
    let listed = ListedConnections::new(1, vec![row(1), row(64_509), row(2)], Some((1, 0)));
    assert_eq!((listed.rows.len(), listed.next), (2, Some((1, 0))), "one fits no frame");
}

#[test]
fn a_taker_has_more_time_for_more_resources() {
    for (mib, seconds, is_done) in [(20, 20, true), (20, 40, false), (0, 7, false)] {
        let mut pair = Pair::new(8);
        (pair.resources, pair.beginning) = (Some(mib << 20), seconds * SECOND);
        pair.taker = Taker::with_resources("1.1.0", vec![11], 9, false, Default::default(), 0);
        while pair.deliver() {
            pair.giver.on_time(pair.now);
            pair.taker.on_time(pair.now);
        }
        let is_rolled_back =
            pair.giver_ends.iter().any(|it| matches!(it, GiverAction::RollBack { .. }));
        assert_eq!(is_rolled_back, !is_done, "{mib} MiB, {seconds} s: {:?}", pair.giver_ends);
    }
}

#[test]
fn a_giver_that_is_stopped_as_soon_as_it_has_given_its_listening_sockets_is_ended() {
    let mut pair = Pair::new(10);
    while pair.giver.phase() < Phase::Listeners || !pair.taker.goes_on_alone() {
        assert!(pair.deliver());
    }
    // What the taker has not read is in its socket.
    let Pair { taker, to_taker, now, .. } = &mut pair;
    to_taker.drain(..).for_each(|(frame, descriptors)| taker.on_frame(&frame, descriptors, *now));
    let look = |now| {
        taker.on_time(now);
        taker.poll()
    };
    let is_end = |it: &TakerAction| {
        matches!(it, TakerAction::Moving(MovingAction::EndSilent) | TakerAction::Stop(_))
    };
    let (action, after_ms) = asked_for(now, 160, look, is_end).unwrap();
    assert_eq!(action, TakerAction::Moving(MovingAction::EndSilent));
    assert!((13_000..=15_300).contains(&after_ms), "{after_ms}");
}

#[test]
fn a_giver_that_is_stopped_after_the_taker_serves_is_ended_and_the_taker_goes_on_alone() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Case {
        Stopped,
        CannotBeEnded,
        IsSlow,
    }
    for case in [Case::Stopped, Case::CannotBeEnded, Case::IsSlow] {
        let mut pair = Pair::new(10);
        pair.pending = 1;
        while pair.giver.phase() < Phase::Remaining {
            assert!(pair.deliver());
        }
        pair.now += SECOND;
        pair.giver.on_time(pair.now);
        while pair.deliver() {}
        let Pair { taker, now, .. } = &mut pair;
        let alive = Message::Alive.encode();
        let look = |now| {
            if case == Case::IsSlow {
                taker.on_frame(&alive, 0, now);
            }
            taker.on_time(now);
            let action = taker.poll();
            if action == Some(TakerAction::Moving(MovingAction::EndSilent)) {
                assert_ne!(case, Case::IsSlow);
                match case {
                    Case::Stopped => taker.on_closed(now),
                    _ => taker.stop_for_silence(),
                }
            }
            action
        };
        let is_end = |it: &TakerAction| {
            matches!(it, TakerAction::Moving(MovingAction::Commit { .. }) | TakerAction::Stop(_))
        };
        // One that says that it is there is waited for as long as a handover may take.
        let (looks, expected) = match case {
            Case::IsSlow => (700, 60_000..=66_000),
            Case::Stopped | Case::CannotBeEnded => (160, 13_000..=15_300),
        };
        let (action, after_ms) = asked_for(now, looks, look, is_end).unwrap();
        if case == Case::Stopped {
            assert!(
                matches!(action, TakerAction::Moving(MovingAction::Commit { is_alone: true, .. })),
                "{action:?}"
            );
        } else {
            assert_eq!(action, TakerAction::Stop(Failure::Silent(Phase::Connections)), "{case:?}");
        }
        assert!(expected.contains(&after_ms), "{case:?}: {after_ms}");
    }
}

#[test]
fn a_giver_waits_for_handshakes_as_long_as_a_taker_waits_for_it() {
    let patient = |ms| Some(Message::IsPatient { ms });
    for (handshakes, patience, expected) in [
        (30, patient(Some(60_000)), 30),
        (30, patient(None), 30),
        // COMMIT has its time, too.
        (30, patient(Some(20_000)), 15),
        (30, None, 10),
        (2, patient(Some(60_000)), 10),
    ] {
        let mut pair = Pair::new(10);
        pair.pending = 1;
        pair.giver.wait_for_handshakes(Duration::from_secs(handshakes));
        while pair.giver.phase() < Phase::Remaining {
            pair.act();
            let says_so = |frame: &[u8]| {
                matches!(Message::decode(frame), Ok(Some(Message::IsPatient { .. })))
            };
            for (frame, _) in pair.to_giver.iter_mut().filter(|(frame, _)| says_so(frame)) {
                *frame = patience.as_ref().unwrap_or(&Message::Alive).encode().to_vec();
            }
            assert!(pair.deliver());
        }
        let began = pair.now;
        let mut seconds = 0;
        while pair.giver.phase() == Phase::Remaining {
            pair.now += SECOND / 10;
            seconds = (pair.now - began) / SECOND;
            assert!(seconds < 40, "{handshakes}");
            pair.giver.on_time(pair.now);
            pair.taker.on_time(pair.now);
            while pair.deliver() {}
        }
        assert_eq!((pair.giver.phase(), seconds), (Phase::Probation, expected), "{handshakes}");
    }
}
