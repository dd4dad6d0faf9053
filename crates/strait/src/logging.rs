//! Messages for people, on standard error.
//!
//! Each line has the id of its process: two processes write to one stream while one replaces the other, and in a container nothing
//! else tells them apart.
//!
//! Messages go through a queue to a thread that writes them: control must go on when standard
//! error is a pipe that is full.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::arguments::{Log, LogFormat, LogLevel};
use crate::message_queue::MessageQueue;

/// How long the end of the process waits for its last messages to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// There is one subscriber in a process, and so one queue.
static QUEUE: OnceLock<(MessageQueue, LogFormat)> = OnceLock::new();

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
    let (queue, format) = QUEUE.get_or_init(|| (queue, log.log_format));
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(move || queue.clone());
    // It fails only if it was started before, and then the first one goes on.
    let _ = match format {
        LogFormat::Text => {
            builder.with_ansi(io::stderr().is_terminal()).with_timer(TimeAndProcess).try_init()
        }
        LogFormat::Json => {
            builder.json().flatten_event(true).map_event_format(WithProcess).try_init()
        }
    };
    Ok(())
}

/// The beginning of a line of text: `2026-03-01T10:00:00.358567Z [4711]`.
struct TimeAndProcess;

impl FormatTime for TimeAndProcess {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(line)?;
        write!(line, " [{}]", process::id())
    }
}

/// A line of JSON, with the process behind the time.
struct WithProcess<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithProcess<F>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut whole = String::new();
        self.0.format_event(context, Writer::new(&mut whole), event)?;
        match whole.split_once(',') {
            Some((time, rest)) => write!(line, "{time},\"process\":{},{rest}", process::id()),
            None => line.write_str(&whole),
        }
    }
}

/// Writes the last message, if there is one, behind all that was logged, and in the same format. Waits a bounded time.
pub(crate) fn finish(message: Option<&str>) {
    match (QUEUE.get(), message) {
        (Some((queue, format)), message) => {
            match (format, message) {
                (LogFormat::Json, Some(message)) => tracing::error!("{message}"),
                (LogFormat::Text, Some(message)) => {
                    queue.push(format!("strait: {message}\n").as_bytes());
                }
                (_, None) => {}
            }
            queue.flush(FLUSH_TIMEOUT);
        }
        // A failure cannot be reported anywhere else.
        (None, Some(message)) => drop(writeln!(io::stderr(), "strait: {message}")),
        (None, None) => {}
    }
}
