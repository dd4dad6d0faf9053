//! What every part needs beside its own table: time's wheel, buffers, operations, events, randomness,
//! the configuration. No peer is in it.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

use config::matching::Searches;
use config::memory::MemoryPressure;
use config::rewrite::Rewriting;
use telemetry::Emitter;
use wire::buffer::Buffer;
use wire::head::HeadIndex;

use crate::Snapshot;
use crate::agenda::Agenda;
use crate::connection::codec::multiplex::FrameScratch;
use crate::ops::Op;
use crate::share::{Bells, Settings, Share};
use crate::timers::PackedOwner;
use crate::tools::buffers::Buffers;
use crate::tools::differing::Differing;
use crate::tools::names::{Found, Names};
use crate::tools::pinned::Pinned;
use crate::tools::random::Random;
use crate::tools::time::Time;
use crate::tools::wheel::Wheel;

/// What every part needs beside its own table.
#[derive(Debug)]
pub(crate) struct Cx {
    pub(crate) timers: Wheel<PackedOwner>,
    pub(crate) buffers: Buffers,
    /// What the worker is asked for.
    pub(crate) ops: VecDeque<Op>,
    /// What follows from the event that lasts.
    pub(crate) agenda: Agenda,
    pub(crate) emitter: Emitter,
    pub(crate) random: Random,
    /// The newest configuration.
    pub(crate) snapshot: Pinned,
    /// Older ones that exchanges or draining listeners still use.
    pub(crate) former: Vec<Pinned>,
    /// Indexes for the next heads to be looked at, one for each direction. Taken while one is.
    pub(crate) request_index: Option<Box<HeadIndex>>,
    pub(crate) response_index: Option<Box<HeadIndex>>,
    /// Room for what is decoded of frames. Taken while some are.
    pub(crate) frame_scratch: Option<Box<FrameScratch>>,
    /// What searches of regular expressions keep.
    pub(crate) searches: Searches,
    /// What rewriting of paths keeps.
    pub(crate) rewriting: Rewriting,
    /// Room to put field values together in.
    pub(crate) scratch: Vec<u8>,
    /// Room for a body that is translated; none until one is.
    pub(crate) translated: Buffer,
    /// This worker's part of the limits of the process.
    pub(crate) share: Share,
    pub(crate) bells: Bells,
    /// Bytes of the copies that mirroring holds.
    pub(crate) copied_bytes: u64,
    /// How near the process is to its bound on memory.
    pub(crate) memory: MemoryPressure,
    /// When a drain ends, if one began.
    pub(crate) drain_deadline: Option<Time>,
    /// When a cluster may be asked for again by what does not wait for it.
    pub(crate) asks_aside_at: Time,
    /// Wall-clock time of the clock's zero, ns since the Unix epoch.
    pub(crate) wall_clock_zero: u64,
    /// Where the process is configured otherwise that connections come from.
    pub(crate) differing: Arc<Differing>,
    /// The names of the newest configuration, once they are asked for.
    names: OnceCell<Names>,
    /// What was found by them.
    pub(crate) found: Found,
    /// Whether a group is being taken up or given away in parts: of connections that are here, their exchanges may not be.
    pub(crate) has_part_of_group: bool,
}

impl Cx {
    /// For a worker before its first connection.
    pub(crate) fn new(
        settings: Settings,
        snapshot: Arc<Snapshot>,
        mut emitter: Emitter,
        now: Time,
    ) -> Self {
        emitter.set_access_log(snapshot.access_log.output.is_some());
        Self {
            timers: Wheel::new(now),
            buffers: Buffers::default(),
            ops: VecDeque::new(),
            agenda: Agenda::default(),
            emitter,
            random: Random::new(settings.seed),
            snapshot: Pinned::new(snapshot),
            former: Vec::new(),
            request_index: None,
            response_index: None,
            frame_scratch: None,
            searches: Searches::default(),
            rewriting: Rewriting::default(),
            scratch: Vec::new(),
            translated: Buffer::new(0),
            share: settings.share,
            bells: settings.bells,
            copied_bytes: 0,
            memory: MemoryPressure::default(),
            drain_deadline: None,
            asks_aside_at: now,
            wall_clock_zero: 0,
            differing: Arc::default(),
            names: OnceCell::new(),
            found: Found::default(),
            has_part_of_group: false,
        }
    }

    /// The names of the newest configuration.
    pub(crate) fn names(&self) -> &Names {
        self.names.get_or_init(|| Names::of(&self.snapshot))
    }

    /// Takes a newer configuration.
    pub(crate) fn set_snapshot(&mut self, snapshot: Pinned) {
        self.emitter.set_access_log(snapshot.access_log.output.is_some());
        // Tables that are gone are not to be kept for their searches.
        self.searches.clear();
        self.rewriting.clear();
        (self.names, self.found) = Default::default();
        self.former.push(std::mem::replace(&mut self.snapshot, snapshot));
    }

    /// Tells control of snapshots that no exchange and no listener uses any more.
    pub(crate) fn retire_former(&mut self) {
        let mut index = 0;
        while let Some(snapshot) = self.former.get(index) {
            if !snapshot.is_last() {
                index += 1;
                continue;
            }
            let snapshot = self.former.swap_remove(index).into_shared();
            self.ops.extend(snapshot.map(Op::Retire));
        }
    }

    pub(crate) fn has_former_snapshots(&self) -> bool {
        !self.former.is_empty()
    }
}
