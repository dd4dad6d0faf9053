//! Signals, and those of them that are for the process that serves, which may be another: where this one is the first of a container,
//! it gets them all, and passes them on; so does one that has been replaced, where another has passed them on to it.

use rustix::process::Signal;

use super::handing::{EndAsked, ForServer, Handing};
use super::{Outcome, Running, State};
use crate::signals::{Asked, Signalled, Signals};
use crate::workers::Workers;

impl<W: Workers> Running<W> {
    pub(super) fn on_signal(&mut self, signal: Signalled) {
        let Signalled { asked, is_passed_on } = signal;
        let is_for_server = self.is_init || is_passed_on;
        if is_for_server && self.handing.is_for_another::<W>(asked, self.state) {
            return;
        }
        match asked {
            Asked::Terminate => self.terminate(),
            Asked::End => self.end(),
            Asked::Reload => self.reload(),
            Asked::ReopenLog => self.log.reopen(),
            Asked::Nothing => {
                tracing::warn!(
                    "SIGUSR2 does nothing: run `strait upgrade`, or start the new process and send SIGTERM to this one"
                );
            }
        }
    }

    /// Passes on to the process that serves what was asked of it before that was known. Whether this one is to end instead, since it
    /// cannot pass that on.
    pub(super) fn pass_noted_on(&mut self, for_server: ForServer) -> bool {
        let Handing::Given { successor, end, .. } = &mut self.handing else { return false };
        if for_server.is_to_reopen {
            pass_on::<W>(*successor, Asked::ReopenLog);
        }
        if for_server.is_to_reload {
            pass_on::<W>(*successor, Asked::Reload);
        }
        if for_server.is_to_end {
            *end = match pass_on::<W>(*successor, Asked::Terminate) {
                true => EndAsked::PassedOn,
                false => EndAsked::Here,
            };
        }
        *end == EndAsked::Here
    }
}

impl Handing {
    /// Whether what a signal asks of the process that serves is not for this one. While it is open which one will serve, that is
    /// noted for it.
    fn is_for_another<W: Workers>(&mut self, asked: Asked, state: State) -> bool {
        match self {
            Self::None | Self::Taking { .. } => false,
            Self::Giving { for_server, .. } => {
                for_server.note(asked);
                false
            }
            // It serves, and writes to the same log.
            Self::TakingBack { successor, .. } if asked == Asked::ReopenLog => {
                pass_on::<W>(*successor, asked);
                false
            }
            Self::TakingBack { for_server, .. } => {
                for_server.note(asked);
                false
            }
            Self::Given { successor, end, .. } => {
                let is_end = asked.is_end();
                if pass_on::<W>(*successor, asked) {
                    if is_end && *end == EndAsked::No {
                        *end = EndAsked::PassedOn;
                    }
                    // What both write to is opened again by both.
                    return asked != Asked::ReopenLog;
                }
                if !is_end {
                    return false;
                }
                let is_first = std::mem::replace(end, EndAsked::Here) != EndAsked::Here;
                let drains = is_first && state == State::Draining;
                if drains {
                    tracing::info!("draining: the process ends after that");
                }
                drains
            }
        }
    }
}

/// Passes on what signals have asked of the process that serves since the workers of this one have ended. Says how this one ends.
pub(super) async fn hear_last<W: Workers>(
    mut handing: Handing,
    is_init: bool,
    signals: &mut Signals,
    outcome: Outcome,
) -> Outcome {
    while let Some(Signalled { asked, is_passed_on }) = signals.next_by_now().await {
        if is_init || is_passed_on {
            handing.is_for_another::<W>(asked, State::Stopping);
        }
    }
    match (outcome, handing) {
        (Outcome::Replaced { successor, .. }, Handing::Given { end, .. }) => {
            Outcome::Replaced { successor, was_to_end: end == EndAsked::Here }
        }
        (outcome, _) => outcome,
    }
}

/// Passes on what a signal asks for; whether a process has got it.
fn pass_on<W: Workers>(successor: u32, asked: Asked) -> bool {
    let signal = match asked {
        Asked::Terminate | Asked::End => Signal::TERM,
        Asked::Reload => Signal::HUP,
        Asked::ReopenLog => Signal::USR1,
        Asked::Nothing => return false,
    };
    // None of another PID namespace has an id.
    let is_passed = successor != 0 && W::pass_on(successor, signal.as_raw());
    tracing::info!(pid = successor, ?asked, is_passed, "a signal is passed on");
    is_passed
}
