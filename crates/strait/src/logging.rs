//! Messages for people, on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;

use crate::arguments::{Log, LogFormat, LogLevel};

/// Lets what the control path tells go to standard error from now on.
pub(crate) fn start(log: &Log) {
    let level = match log.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder =
        tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(io::stderr);
    // It fails only if it was started before, and then the first one goes on.
    let _ = match log.log_format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
