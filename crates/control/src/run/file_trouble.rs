//! Files of the configuration that cannot be read now, which may be over in a moment.

use crate::clock;
use crate::reload::Refused;

/// How long files may be away, or not go together, until that is reported, ns: editors and deployments take one away for an instant
/// to put another in its place.
const GRACE: u64 = 1_000_000_000;

/// What is not reported yet. Monotonic times, ns.
#[derive(Debug, Default)]
pub(super) struct FileTrouble {
    /// Since when the file cannot be read: one that is replaced is away for a moment.
    unreadable_since: Option<u64>,
    /// Since when files that the configuration names do not go together, such as a certificate and its key.
    unsettled_since: Option<u64>,
    /// Why files that the configuration in effect names cannot be used, and since when, while a later text does not count.
    not_renewed: Option<(u64, Refused)>,
    /// When to look at files again that could not be read for lack of descriptors.
    look_again_at: Option<u64>,
}

impl FileTrouble {
    /// Whether something is to be looked at later, and so with the next change, too.
    pub(super) const fn is_open(&self) -> bool {
        self.unreadable_since.is_some()
            || self.unsettled_since.is_some()
            || self.look_again_at.is_some()
    }

    pub(super) fn on_unreadable(&mut self) {
        self.unreadable_since.get_or_insert_with(clock::monotonic_ns);
    }

    pub(super) fn on_unsettled(&mut self) {
        self.unsettled_since.get_or_insert_with(clock::monotonic_ns);
    }

    pub(super) fn on_not_renewed(&mut self, refused: Refused) {
        let since = self.not_renewed.take().map(|(since, _)| since);
        self.not_renewed = Some((since.unwrap_or_else(clock::monotonic_ns), refused));
    }

    /// They can be used.
    pub(super) fn on_renewed(&mut self) {
        self.not_renewed = None;
    }

    pub(super) fn on_starved(&mut self) {
        self.look_again_at = Some(clock::monotonic_ns() + GRACE);
    }

    /// The file can be read.
    pub(super) const fn on_readable(&mut self) {
        self.unreadable_since = None;
    }

    /// All files of the latest text were read.
    pub(super) fn on_read(&mut self) {
        *self = Self { not_renewed: self.not_renewed.take(), ..Self::default() };
    }

    /// Whether the file has been away for too long. Says so once.
    pub(super) fn take_missed(&mut self) -> bool {
        self.unreadable_since.take_if(|since| is_over(*since)).is_some()
    }

    /// Whether files have not gone together for too long. Says so once.
    pub(super) fn take_unsettled(&mut self) -> bool {
        self.unsettled_since.take_if(|since| is_over(*since)).is_some()
    }

    /// Why files have not been usable for too long. Says so once.
    pub(super) fn take_not_renewed(&mut self) -> Option<Refused> {
        self.not_renewed.take_if(|(since, _)| is_over(*since)).map(|(_, refused)| refused)
    }

    /// Whether it is time to look again at what could not be read. Says so once.
    pub(super) fn take_due(&mut self) -> bool {
        self.look_again_at.take_if(|at| *at <= clock::monotonic_ns()).is_some()
    }
}

fn is_over(since: u64) -> bool {
    clock::monotonic_ns().saturating_sub(since) > GRACE
}
