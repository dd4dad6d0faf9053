//! Signals of the process as a stream of what they ask for.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

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
    asked: mpsc::Receiver<Asked>,
}

impl Signals {
    /// Takes the signals over from their default actions. To be called on the runtime.
    ///
    /// A task of its own waits for them: each is a future that costs as much to look at as all else that control waits
    /// for, and control looks whenever anything happens.
    pub(crate) fn new() -> io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut user1 = signal(SignalKind::user_defined1())?;
        let mut user2 = signal(SignalKind::user_defined2())?;
        // What comes while this is full counts once, as a signal does that waits.
        let (sender, asked) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let asked = tokio::select! {
                    _ = terminate.recv() => Asked::Terminate,
                    _ = interrupt.recv() => Asked::End,
                    _ = quit.recv() => Asked::End,
                    _ = hangup.recv() => Asked::Reload,
                    _ = user1.recv() => Asked::ReopenLog,
                    _ = user2.recv() => Asked::Nothing,
                    () = sender.closed() => return,
                };
                if sender.send(asked).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self { asked })
    }

    /// The next signal. Loses none when it is dropped before its end.
    pub(crate) async fn next(&mut self) -> Asked {
        match self.asked.recv().await {
            Some(asked) => asked,
            // The task ends with the runtime alone.
            None => std::future::pending().await,
        }
    }
}
