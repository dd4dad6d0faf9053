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
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::hangup(),
            SignalKind::user_defined1(),
        ];
        // Before what wakes this task.
        W::note_passed_on(&kinds.map(|kind| kind.as_raw_value()))?;
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
                let (kind, asked) = tokio::select! {
                    _ = terminate.recv() => (SignalKind::terminate(), Asked::Terminate),
                    _ = interrupt.recv() => (SignalKind::interrupt(), Asked::End),
                    _ = quit.recv() => (SignalKind::quit(), Asked::End),
                    _ = hangup.recv() => (SignalKind::hangup(), Asked::Reload),
                    _ = user1.recv() => (SignalKind::user_defined1(), Asked::ReopenLog),
                    _ = user2.recv() => (SignalKind::user_defined2(), Asked::Nothing),
                    () = sender.closed() => return,
                };
                let is_passed_on = W::take_passed_on(kind.as_raw_value());
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

/// Turns of the runtime until a signal that has come is there.
const TURNS: usize = 4;
