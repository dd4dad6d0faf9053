//! Whether a request whose attempt failed is sent again, and when.
//!
//! A decision and nothing else: what failed, what is known of the request and what its rule says go in, a [`Decision`]
//! comes out. Which faults allow another attempt without a word of the rule, and on which terms, is a column of the
//! table of faults ([`Retry`]).

use config::retry::{RetryMethods, RetryPolicy};
use telemetry::cause::Cause;
use telemetry::events::RetryDenial;

use crate::connection::Connection;
use crate::exchange::fault::{Retry, consequence, retry_word};
use crate::exchange::{Exchange, Request};
use crate::keys::Slot;

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

impl Kept {
    /// Of the request that a connection has under this name; none if it is no longer there.
    pub(crate) fn of(connection: &Connection, slot: Slot) -> Option<Self> {
        let Some(multiplex) = connection.codec.multiplex() else {
            return Some(match &connection.outbox {
                outbox if outbox.is_untouched() => Self::Unsent,
                outbox if outbox.is_keeping() => Self::Whole,
                _ => Self::Part,
            });
        };
        let stream = multiplex.streams.get(slot).filter(|stream| stream.head.is_some())?;
        // Its head may be in the kernel's hands from the moment on that there is a connection. Before, frames have
        // gone no further than the connection's queue, but of a long body their bytes were not kept.
        Some(match stream.outbox.is_keeping() || stream.outbox.is_untouched() {
            true if connection.is_connecting() => Self::Unsent,
            true => Self::Whole,
            false => Self::Part,
        })
    }
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
    /// Whether it asks for another protocol, in which an endpoint may have done anything.
    pub(crate) asks_upgrade: bool,
    /// Whether the request is a head alone: it has no body, and asks for no other protocol, whose session
    /// may have begun at the endpoint.
    pub(crate) is_head_alone: bool,
    /// Whether the cluster has another endpoint to ask.
    pub(crate) has_others: bool,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The exchange fails, and its rule has nothing to say about that.
    Fail,
    /// Another attempt, at once: no endpoint can have acted on the request, or acting on it twice does not matter and
    /// only the end of an idle connection was met.
    Again,
    /// Another attempt, after the pause of the rule, if the cluster's budget allows it.
    AfterPause,
    /// The rule asks for another attempt, which is not made for this reason.
    Denied(RetryDenial),
}

impl FailedAttempt {
    /// The attempt that this exchange makes, where nothing of its request was sent.
    pub(crate) fn unsent(exchange: &Exchange, cause: Cause) -> Self {
        let Request { method, is_complete, asks_upgrade, .. } = exchange.request;
        let is_check = exchange.check().is_some();
        Self {
            cause,
            number: exchange.progress.attempts,
            kept: Kept::Unsent,
            has_answered: false,
            is_reused: false,
            is_idempotent: method.is_idempotent() || is_check,
            asks_upgrade,
            is_head_alone: is_complete && exchange.progress.request_bytes == 0 && !asks_upgrade,
            has_others: !is_check && exchange.cluster().is_some_and(|it| it.endpoints.len() > 1),
        }
    }

    /// What follows, where the rule has this `retry` or none.
    pub(crate) fn decide(&self, policy: Option<&RetryPolicy>) -> Decision {
        let attempts_max = match (self.cause, policy) {
            (Cause::UpstreamGoingAway, _) => ATTEMPTS_UNSEEN_MAX,
            (_, Some(policy)) => policy.attempts_max.min(ATTEMPTS_MAX),
            (_, None) => ATTEMPTS_MAX,
        };
        if self.is_safe() && self.number < attempts_max {
            return Decision::Again;
        }
        let is_asked =
            |policy: &&RetryPolicy| retry_word(self.cause).is_some_and(|word| policy.is_on(word));
        policy.filter(is_asked).map_or(Decision::Fail, |policy| self.by_policy(policy))
    }

    /// What follows where the rule asks for another attempt after what happened.
    pub(crate) fn by_policy(&self, policy: &RetryPolicy) -> Decision {
        let is_unprocessed =
            self.kept == Kept::Unsent || consequence(self.cause).retry == Retry::Unprocessed;
        let may_be_twice = policy.methods == RetryMethods::Any || self.is_idempotent;
        if !is_unprocessed && (!may_be_twice || self.asks_upgrade) {
            Decision::Denied(RetryDenial::Method)
        } else if self.kept == Kept::Part {
            Decision::Denied(RetryDenial::Body)
        } else if self.number >= policy.attempts_max {
            Decision::Denied(RetryDenial::Attempts)
        } else {
            Decision::AfterPause
        }
    }

    /// Whether the request may be sent again whatever its rule says.
    fn is_safe(&self) -> bool {
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
        is_allowed && !self.has_answered
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
        asks_upgrade: false,
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
            let expected = if may_retry { Decision::Again } else { Decision::Fail };
            assert_eq!(attempt.decide(None), expected, "{what}");
        }
    }

    #[test]
    fn attempts_are_bounded() {
        for (cause, attempts_max) in
            [(Cause::UpstreamClosed, ATTEMPTS_MAX), (Cause::UpstreamGoingAway, ATTEMPTS_UNSEEN_MAX)]
        {
            let number = |number| FailedAttempt { cause, number, ..GET };
            assert_eq!(number(attempts_max - 1).decide(None), Decision::Again);
            assert_eq!(number(attempts_max).decide(None), Decision::Fail);
        }
    }
}
