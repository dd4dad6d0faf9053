//! Whether a request whose attempt failed is sent again.
//!
//! A decision and nothing else: what failed and what is known of the request go in, yes or no comes out.
//! Which faults allow another attempt at all, and on which terms, is a column of the table of faults
//! ([`Retry`]).

use telemetry::cause::Cause;

use crate::exchange::fault::{Retry, consequence};

/// Attempts of one exchange, the first included.
pub(crate) const ATTEMPTS_MAX: u8 = 3;

/// The same, where upstreams went away before they looked at the request: each costs next to
/// nothing, and some services go away after every hundred.
pub(crate) const ATTEMPTS_UNSEEN_MAX: u8 = 16;

/// What is still here of a request that was given to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All of it, and no byte can have reached the upstream.
    Unsent,
    /// All of it; bytes may have been sent.
    Whole,
    /// Not all of it.
    Part,
}

/// An attempt that failed before the head of the final response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) cause: Cause,
    /// Which attempt of the request it was, from 1.
    pub(crate) number: u8,
    pub(crate) kept: Kept,
    /// Whether the upstream has said something: an interim response, or the beginning of a head.
    pub(crate) has_answered: bool,
    /// Whether the connection had carried a request before.
    pub(crate) is_reused: bool,
    pub(crate) is_idempotent: bool,
    /// Whether the request is a head alone: it has no body, and asks for no other protocol, whose session
    /// may have begun at the endpoint.
    pub(crate) is_head_alone: bool,
    /// Whether the cluster has another endpoint to ask.
    pub(crate) has_others: bool,
}

impl FailedAttempt {
    /// Whether the request is sent again.
    pub(crate) fn may_retry(&self) -> bool {
        let attempts_max = match self.cause {
            Cause::UpstreamGoingAway => ATTEMPTS_UNSEEN_MAX,
            _ => ATTEMPTS_MAX,
        };
        let is_whole = self.kept != Kept::Part;
        let is_allowed = match consequence(self.cause).retry {
            Retry::Never => false,
            Retry::Unsent => self.kept == Kept::Unsent,
            Retry::Unprocessed => is_whole,
            Retry::IfIdempotent if self.is_reused => {
                self.kept == Kept::Unsent || (is_whole && self.is_idempotent)
            }
            // On a fresh connection it was not the end of an idle one that was met: the endpoint fails,
            // and only another one may do better.
            Retry::IfIdempotent => {
                is_whole && self.is_idempotent && self.is_head_alone && self.has_others
            }
        };
        is_allowed && !self.has_answered && self.number < attempts_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: FailedAttempt = FailedAttempt {
        cause: Cause::UpstreamClosed,
        number: 1,
        kept: Kept::Whole,
        has_answered: false,
        is_reused: true,
        is_idempotent: true,
        is_head_alone: true,
        has_others: true,
    };
    const POST: FailedAttempt = FailedAttempt { is_idempotent: false, is_head_alone: false, ..GET };

    #[test]
    fn what_may_be_sent_again_follows_from_the_fault_the_method_and_what_is_kept() {
        let (unsent, part) = (Kept::Unsent, Kept::Part);
        let refused = Cause::ConnectFailed;
        let away = Cause::UpstreamGoingAway;
        for (attempt, may_retry, what) in [
            (GET, true, "GET on a connection that was used before"),
            (FailedAttempt { kept: part, ..GET }, false, "of which not all is here"),
            (FailedAttempt { has_answered: true, ..GET }, false, "of which an answer has begun"),
            (FailedAttempt { is_reused: false, ..GET }, true, "on a fresh connection"),
            (
                FailedAttempt { is_reused: false, has_others: false, ..GET },
                false,
                "of one endpoint",
            ),
            (FailedAttempt { is_reused: false, is_head_alone: false, ..GET }, false, "a PUT"),
            (FailedAttempt { is_head_alone: false, ..GET }, true, "a PUT on a used connection"),
            (POST, false, "POST"),
            (FailedAttempt { kept: unsent, ..POST }, true, "POST, unsent"),
            (FailedAttempt { kept: unsent, is_reused: false, ..POST }, false, "on a fresh one"),
            (FailedAttempt { cause: refused, kept: unsent, ..POST }, true, "POST, unconnected"),
            (FailedAttempt { cause: refused, ..POST }, false, "POST, and bytes were sent"),
            (FailedAttempt { cause: away, ..POST }, true, "POST that was not processed"),
            (FailedAttempt { cause: away, kept: part, ..POST }, false, "and is not here"),
            (FailedAttempt { cause: Cause::ResponseTruncated, ..GET }, false, "never"),
        ] {
            assert_eq!(attempt.may_retry(), may_retry, "{what}");
        }
    }

    #[test]
    fn attempts_are_bounded() {
        for (cause, attempts_max) in
            [(Cause::UpstreamClosed, ATTEMPTS_MAX), (Cause::UpstreamGoingAway, ATTEMPTS_UNSEEN_MAX)]
        {
            let number = |number| FailedAttempt { cause, number, ..GET };
            assert!(number(attempts_max - 1).may_retry());
            assert!(!number(attempts_max).may_retry());
        }
    }
}
