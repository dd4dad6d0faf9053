//! Signals of the process as a stream of what they ask for.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::workers::Workers;

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

impl Asked {
    /// Whether the process is to end.
    pub(crate) const fn is_end(self) -> bool {
        matches!(self, Self::Terminate | Self::End)
    }
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signalled {
    /// What it asks for.
    pub(crate) asked: Asked,
    /// Whether another process of Strait has passed it on, for the process that serves.
    pub(crate) is_passed_on: bool,
}

/// The signals that mean something.
fn kinds() -> [SignalKind; 5] {
    [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::hangup(),
        SignalKind::user_defined1(),
    ]
}

/// Has signals wait for control from now on, instead of ending the process before control is there.
///
/// # Errors
///
/// The kernel's.
pub fn note_signals<W: Workers>() -> io::Result<()> {
    W::note_signals(&kinds().map(|kind| kind.as_raw_value()))
}

/// The same for those alone that do not ask a process to end, and would end it by default: scripts send them to a process that has just
/// been started. To be called before anything that takes time.
///
/// # Errors
///
/// The kernel's.
pub fn note_requests<W: Workers>() -> io::Result<()> {
    let requests = kinds().into_iter().filter(|kind| !asked_by(*kind).is_end());
    let signals = requests.chain([SignalKind::user_defined2()]).map(|kind| kind.as_raw_value());
    W::note_signals(&signals.collect::<Vec<_>>())
}

/// The signals that control listens to.
#[derive(Debug)]
pub(crate) struct Signals {
    came: mpsc::Receiver<Signalled>,
}

impl Signals {
    /// Takes the signals over from their default actions. To be called on the runtime.
    ///
    /// A task of its own waits for them: each is a future that costs as much to look at as all else that control waits
    /// for, and control looks whenever anything happens.
    pub(crate) fn new<W: Workers>() -> io::Result<Self> {
        let kinds = kinds();
        // Before what wakes this task.
        note_signals::<W>()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut user1 = signal(SignalKind::user_defined1())?;
        let mut user2 = signal(SignalKind::user_defined2())?;
        // What comes while this is full counts once, as a signal does that waits.
        let (sender, came) = mpsc::channel(1);
        tokio::spawn(async move {
            // None is taken that has no room.
            while let Ok(room) = sender.reserve().await {
                // What came while nothing listened, as between two of these, is as good as what comes now.
                let unheard = kinds.into_iter().find(|kind| W::has_come(kind.as_raw_value()));
                let kind = tokio::select! {
                    biased;
                    kind = std::future::ready(unheard), if unheard.is_some() => kind,
                    _ = terminate.recv() => Some(SignalKind::terminate()),
                    _ = interrupt.recv() => Some(SignalKind::interrupt()),
                    _ = quit.recv() => Some(SignalKind::quit()),
                    _ = hangup.recv() => Some(SignalKind::hangup()),
                    _ = user1.recv() => Some(SignalKind::user_defined1()),
                    _ = user2.recv() => None,
                    () = sender.closed() => return,
                };
                let Some(kind) = kind else {
                    room.send(Signalled { asked: Asked::Nothing, is_passed_on: false });
                    continue;
                };
                // It may have been taken as one of the others.
                let Some(is_passed_on) = W::take_signal(kind.as_raw_value()) else { continue };
                let asked = asked_by(kind);
                room.send(Signalled { asked, is_passed_on });
            }
        });
        Ok(Self { came })
    }

    /// The next signal. Loses none when it is dropped before its end.
    pub(crate) async fn next(&mut self) -> Signalled {
        match self.came.recv().await {
            Some(signal) => signal,
            // The task ends with the runtime alone.
            None => std::future::pending().await,
        }
    }

    /// The next signal of those that have come by now.
    pub(crate) async fn next_by_now(&mut self) -> Option<Signalled> {
        // What has come is known once the runtime has looked, and the task had its turn.
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        self.came.try_recv().ok()
    }
}

/// What a signal asks for.
fn asked_by(kind: SignalKind) -> Asked {
    if kind == SignalKind::terminate() {
        Asked::Terminate
    } else if kind == SignalKind::hangup() {
        Asked::Reload
    } else if kind == SignalKind::user_defined1() {
        Asked::ReopenLog
    } else {
        Asked::End
    }
}

/// Turns of the runtime until a signal that has come is there.
const TURNS: usize = 4;
