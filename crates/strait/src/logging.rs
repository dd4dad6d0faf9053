//! Messages for people, on standard error.
//!
//! Messages go through a queue to a thread that writes them: control must go on when standard
//! error is a pipe that is full.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;

use crate::arguments::{Log, LogFormat, LogLevel};
use crate::message_queue::MessageQueue;

/// How long the end of the process waits for its last messages to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// There is one subscriber in a process, and so one queue.
static QUEUE: OnceLock<MessageQueue> = OnceLock::new();

/// Writes log messages of the control path to standard error from now on.
///
/// # Errors
///
/// The system has no room for a thread.
pub(crate) fn start(log: &Log) -> io::Result<()> {
    let level = match log.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let queue = MessageQueue::start(io::stderr(), |dropped| {
        tracing::error!(dropped, "log messages were dropped: standard error was not read in time");
    })?;
    let queue = QUEUE.get_or_init(|| queue);
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(move || queue.clone());
    // It fails only if it was started before, and then the first one goes on.
    let _ = match log.log_format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// Writes the last message, if there is one, behind all that was logged. Waits a bounded time.
pub(crate) fn finish(message: Option<&str>) {
    match (QUEUE.get(), message) {
        (Some(queue), message) => {
            if let Some(message) = message {
                queue.push(format!("{message}\n").as_bytes());
            }
            queue.flush(FLUSH_TIMEOUT);
        }
        // A failure cannot be reported anywhere else.
        (None, Some(message)) => drop(writeln!(io::stderr(), "{message}")),
        (None, None) => {}
    }
}
