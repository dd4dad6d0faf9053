//! A provider that signs at once.

use std::collections::VecDeque;

use super::{KeyOperations, SignJob, Signed, Tally};

/// Makes each signature as soon as it is asked for.
///
/// A certificate that was read without a provider is cheaper: its handshakes do not even wait. This
/// is for keys that were given to a provider which is not there, and to compare others with.
#[derive(Debug, Default)]
pub struct Inline {
    done: VecDeque<Signed>,
    tally: Tally,
}

impl KeyOperations for Inline {
    fn submit(&mut self, token: u64, job: SignJob, _now_nanos: u64) {
        let result = job.sign();
        self.tally.count(&result);
        self.done.push_back(Signed { token, result });
    }

    fn poll(&mut self, _now_nanos: u64) -> Option<Signed> {
        self.done.pop_front()
    }

    fn flush(&mut self, _now_nanos: u64) {}

    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn cancel(&mut self, token: u64) {
        self.done.retain(|signed| signed.token != token);
    }

    fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}
