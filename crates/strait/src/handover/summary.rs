//! How a handover went, which the old process tells the new one at COMMIT: the new one shows it on `/handover` once it is the process.

use ::handover::{Left, Phase};
use serde::{Deserialize, Serialize};

/// Phases that are listed. The other process says them.
const PHASES_MAX: usize = 32;

/// How a handover went, until COMMIT.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Summary {
    /// Connections that stay with the old process, by reason.
    pub(super) left: Vec<Left>,
    /// When each phase began, ms from the beginning.
    phases: Vec<(String, u64)>,
}

impl Summary {
    pub(super) fn new(left: Vec<Left>, phases: &[(Phase, u64)]) -> Self {
        let phases = phases.iter().map(|(phase, ms)| (phase.as_str().to_owned(), *ms));
        Self { left, phases: phases.collect() }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        // It cannot fail: all of it is text and numbers.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What the other process wrote; none if that cannot be read.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The phases that this version knows.
    pub(super) fn phases(&self) -> Vec<(&'static str, u64)> {
        let known = self.phases.iter().take(PHASES_MAX).filter_map(|(name, ms)| {
            let phase = Phase::ALL.into_iter().find(|phase| phase.as_str() == name)?;
            Some((phase.as_str(), *ms))
        });
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_writes_the_next_one_reads_but_for_phases_that_it_does_not_know() {
        let left = vec![Left { reason: "a handshake".to_owned(), count: 2 }];
        let mut summary = Summary::new(left, &[(Phase::Hello, 0), (Phase::Remaining, 12)]);
        assert_eq!(Summary::read(&summary.write()).as_ref(), Some(&summary));
        summary.phases.push(("later".to_owned(), 13));
        let read = Summary::read(&summary.write()).unwrap();
        assert_eq!(read.phases(), [("hello", 0), ("remaining", 12)]);
        assert_eq!(Summary::read(b"{"), None);
    }
}
