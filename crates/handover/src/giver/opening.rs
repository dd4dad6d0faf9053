//! Until the taker serves: what this process is configured to do, where the taker differs, and the listening sockets.

use std::time::Duration;

use super::{Giver, GiverAction, State};
use crate::deadlines::later;
use crate::failure::Failure;
use crate::frame::DESCRIPTORS_MAX;
use crate::message::{Difference, Downstream, Message, Part, SocketKey};
use crate::pieces::cut;
use crate::{LISTENING_MAX, PARTS_MAX};

/// What differs, at most: each part of either side, and the frames that say so.
const DIFFERENCES_MAX: usize = 3 * PARTS_MAX;

impl Giver {
    /// Says how many downstream connections this process has, for one that might have room for fewer. Before [`Giver::describe`].
    pub fn send_downstream(&mut self, downstream: Downstream) {
        if matches!(self.state, State::Describing) {
            self.send(&Message::Downstream(downstream));
        }
    }

    /// What this process is configured to do, and in which version, as [`GiverAction::Describe`] asked; and how many bytes of what
    /// sources have delivered to it there are for a taker that reads them, if there are any. That one has a second more for
    /// each MiB of them.
    pub fn describe(
        &mut self,
        (version, parts): (u64, Vec<Part>),
        resources: Option<u64>,
        now: u64,
    ) {
        if !matches!(self.state, State::Describing) {
            return;
        }
        self.send(&Message::ConfigVersion { version });
        // What this process took for its description is no time of the taker's.
        let mut within = self.deadlines.config;
        if let Some(bytes) = resources.filter(|_| self.reads.resources) {
            let frame = Message::Resources { bytes }.encode();
            within = within.saturating_add(Duration::from_secs(1 + (bytes >> 20)));
            self.actions.push(GiverAction::SendResources(frame));
        }
        self.deadline = later(now, within);
        if parts.len() > PARTS_MAX {
            return self.fail(Failure::OverBound { what: "parts", max: PARTS_MAX });
        }
        for (parts, is_last) in cut(parts, |part| part.name.len(), usize::MAX) {
            self.send(&Message::Parts { parts, is_last });
        }
        self.state = State::Config { differences: 0 };
    }

    /// Waits for connections that cannot move yet as long as a TLS handshake of theirs may take, if that is longer than others. To be
    /// said before they move. Only as long as the taker waits for that.
    pub fn wait_for_handshakes(&mut self, longest: Duration) {
        self.handshakes = longest;
    }

    pub(super) fn on_differences(
        &mut self,
        differences: Vec<Difference>,
        is_last: bool,
        now: u64,
    ) -> Result<(), Failure> {
        if let State::Config { differences: so_far } = &mut self.state {
            // There may be a frame without any, too.
            *so_far = so_far.saturating_add(differences.len() + 1);
            if *so_far > DIFFERENCES_MAX {
                return Err(Failure::OverBound { what: "differences", max: DIFFERENCES_MAX });
            }
        }
        self.actions.push(GiverAction::Compared(differences));
        if !is_last {
            return Ok(());
        }
        if self.is_check {
            self.state = State::Ended;
            self.actions.push(GiverAction::Checked);
            return Ok(());
        }
        self.enter(State::Listening);
        self.deadline = later(now, self.deadlines.listeners);
        self.actions.push(GiverAction::Listen);
        Ok(())
    }

    /// The listening sockets whose files are this process's own, to be removed by the process that has them last. To be said before
    /// [`Self::listen`], if there are any.
    pub fn own_files(&mut self, keys: Vec<SocketKey>) {
        if !matches!(self.state, State::Listening) || keys.is_empty() {
            return;
        }
        for (keys, _) in cut(keys, SocketKey::text_bytes, usize::MAX) {
            self.send(&Message::OwnFiles { keys });
        }
    }

    /// The listening sockets, as [`GiverAction::Listen`] asked.
    pub fn listen(&mut self, keys: Vec<SocketKey>) {
        if !matches!(self.state, State::Listening) {
            return;
        }
        if keys.len() > LISTENING_MAX {
            return self.fail(Failure::OverBound { what: "sockets", max: LISTENING_MAX });
        }
        for (keys, is_last) in cut(keys, SocketKey::text_bytes, DESCRIPTORS_MAX) {
            let frame = Message::Sockets { keys: keys.clone(), is_last }.encode();
            self.actions.push(GiverAction::SendListening(frame, keys));
        }
        // From here on the taker can go on alone, should this process be stopped, and looks whether it is.
        self.send(&Message::Alive);
        self.state = State::Serving { unused: Vec::new() };
    }
}
