//! Signals of the process as a stream of what they ask for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGTERM: leave connections for the next process if that is configured, and otherwise as the next.
    Terminate,
    /// SIGINT or SIGQUIT (nginx's word for it): drain; a second time: stop.
    End,
    /// SIGHUP: read the configuration file again.
    Reload,
    /// SIGUSR1: open the access log again.
    ReopenLog,
    /// SIGUSR2, which asks nginx for a successor: nothing, where its default would end the process.
    Nothing,
}

/// The signals that control listens to.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    /// Takes the signals over from their default actions.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// The next signal. Loses none when it is dropped before its end.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.quit.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.user1.recv() => Asked::ReopenLog,
            _ = self.user2.recv() => Asked::Nothing,
        }
    }
}
