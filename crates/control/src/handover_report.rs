//! `/handover`: what is known of the last handover that this process was in.

use serde_json::{Value, json};

use crate::clock;

/// Something that became known of a handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverNews {
    /// Another process is at the other end.
    Began {
        /// Whether this process gives.
        is_giver: bool,
        /// The other process; 0 if it had ended.
        pid: u32,
        /// Version of its program.
        version: String,
    },
    /// A phase began, so many milliseconds after the handover.
    Phase(&'static str, u64),
    /// All phases until now, as the other process has measured them.
    Phases(Vec<(&'static str, u64)>),
    /// Groups of connections that moved by now, and connections that stay, by reason.
    Counted {
        /// Groups.
        moved: u64,
        /// Connections.
        left: Vec<(String, u32)>,
    },
    /// A peer on the socket was refused, or an attempt failed, for this cause: one of `telemetry::events::HANDOVER_FAILURES`.
    Failed(&'static str),
    /// It is over.
    Ended(HandoverResult, String),
}

/// How a handover ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverResult {
    /// Configurations were compared, and nothing else was to be done.
    Checked,
    /// The taker is the process.
    Completed,
    /// Connections that a former process had left with the service manager were taken up.
    Restored,
    /// The giver goes on.
    RolledBack,
    /// The taker was the process, ended early, and the giver goes on.
    StoodIn,
    /// The taker was the process, and gave everything back.
    TakenBack,
}

impl HandoverResult {
    /// Its word on the page and in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Checked => "checked",
            Self::Completed => "completed",
            Self::Restored => "restored",
            Self::RolledBack => "rolled_back",
            Self::StoodIn => "stood_in",
            Self::TakenBack => "taken_back",
        }
    }
}

/// What the page shows.
#[derive(Debug, Default)]
pub(crate) struct HandoverReport {
    pub(crate) generation: u64,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    is_giver: bool,
    pid: u32,
    version: String,
    /// Wall-clock time, ns.
    began_at: u64,
    phases: Vec<(&'static str, u64)>,
    moved: u64,
    left: Vec<(String, u32)>,
    result: Option<(HandoverResult, String)>,
}

/// The phases one of which begins once the other process accepts.
const MOVING: [&str; 2] = ["probe", "connections"];

/// Reasons that are shown.
const REASONS_MAX: usize = 32;

impl HandoverReport {
    pub(crate) fn on_news(&mut self, news: HandoverNews) {
        if let HandoverNews::Began { is_giver, pid, version } = news {
            self.last = Some(Last {
                is_giver,
                pid,
                version,
                began_at: clock::wall_ns(),
                phases: Vec::new(),
                moved: 0,
                left: Vec::new(),
                result: None,
            });
            return;
        }
        let Some(last) = &mut self.last else { return };
        match news {
            HandoverNews::Began { .. } | HandoverNews::Failed(_) => {}
            HandoverNews::Phase(phase, after_ms) => last.phases.push((phase, after_ms)),
            HandoverNews::Phases(phases) => last.phases = phases,
            HandoverNews::Counted { moved, mut left } => {
                left.truncate(REASONS_MAX);
                (last.moved, last.left) = (moved, left);
            }
            HandoverNews::Ended(result, reason) => last.result = Some((result, reason)),
        }
    }

    /// The process that is taking this one's place and already accepts connections.
    pub(crate) fn serving_taker(&self) -> Option<u32> {
        let last = self.last.as_ref().filter(|last| last.is_giver && last.result.is_none())?;
        let has_begun = last.phases.iter().any(|(phase, _)| MOVING.contains(phase));
        has_begun.then_some(last.pid)
    }

    /// How many groups moved by now.
    pub(crate) fn moved(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.moved)
    }

    pub(crate) fn to_json(&self, state: &str) -> Value {
        let last = self.last.as_ref().map(|last| {
            let phases = last.phases.iter();
            let phases = phases.map(|(name, after)| json!({ "name": name, "after_ms": after }));
            let left = last.left.iter();
            let left = left.map(|(reason, count)| json!({ "reason": reason, "count": count }));
            let result = last.result.as_ref().map(|(result, _)| result.as_str());
            let reason = last.result.as_ref().map(|(_, reason)| reason);
            json!({
                "role": if last.is_giver { "giver" } else { "taker" },
                "pid": (last.pid > 0).then_some(last.pid),
                "version": last.version,
                "began_at": clock::rfc3339(last.began_at),
                "phases": phases.collect::<Vec<_>>(),
                "groups_moved": last.moved,
                "connections_left": left.collect::<Vec<_>>(),
                "result": result,
                "reason": reason.filter(|reason| !reason.is_empty()),
            })
        });
        json!({ "generation": self.generation, "state": state, "last": last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_last_handover_phase_by_phase() {
        let mut report = HandoverReport::default();
        assert!(report.to_json("none")["last"].is_null());
        report.on_news(HandoverNews::Phase("config", 1));
        assert!(report.to_json("none")["last"].is_null(), "of none that began");
        let version = "1.2.3".to_owned();
        report.on_news(HandoverNews::Began { is_giver: true, pid: 7, version });
        report.on_news(HandoverNews::Phase("config", 1));
        assert_eq!(report.serving_taker(), None);
        report.on_news(HandoverNews::Phase("probe", 4));
        assert_eq!(report.serving_taker(), Some(7));
        let left = vec![("a handshake".to_owned(), 2)];
        report.on_news(HandoverNews::Counted { moved: 3, left });
        let reason = "it ended".to_owned();
        report.on_news(HandoverNews::Ended(HandoverResult::RolledBack, reason));
        assert_eq!(report.serving_taker(), None);
        let page = report.to_json("none");
        let last = &page["last"];
        assert_eq!((&last["role"], &last["pid"]), (&json!("giver"), &json!(7)));
        assert_eq!(last["phases"][1], json!({ "name": "probe", "after_ms": 4 }));
        assert_eq!(last["connections_left"][0], json!({ "reason": "a handshake", "count": 2 }));
        assert_eq!((&last["groups_moved"], &last["result"]), (&json!(3), &json!("rolled_back")));
        assert_eq!(last["reason"], "it ended");
    }
}
