//! Configurations taken up or refused, and other things that the control thread reports.

/// A configuration was accepted and handed to the workers.
#[derive(Clone, Copy, Debug)]
pub struct ConfigAccepted {
    /// Version of the snapshot, counted from 1.
    pub version: u64,
    /// Wall-clock time, ns since the Unix epoch.
    pub at: u64,
    /// From reading the text to handing over the snapshot, ns.
    pub duration: u64,
}

/// A configuration was refused; the one before it stays in use.
#[derive(Clone, Copy, Debug)]
pub struct ConfigRejected {
    /// Errors found in it.
    pub errors: u32,
    /// Wall-clock time, ns since the Unix epoch.
    pub at: u64,
}

/// Access log lines that were formatted could not be written to their output.
#[derive(Clone, Copy, Debug)]
pub struct AccessLogWriteFailed {
    /// Lines that are lost.
    pub lines: u64,
}
