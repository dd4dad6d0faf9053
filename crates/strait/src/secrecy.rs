//! Keeps the keys of a configuration from leaving the process by accident.

use proxy::Snapshot;

use crate::Failure;
use crate::arguments::Run;

/// Whether core dumps may still be turned off.
#[derive(Debug)]
pub(crate) struct CoreDumps {
    may_be_forbidden: bool,
}

impl CoreDumps {
    /// Forbids them once there are keys.
    pub(crate) const UNTIL_KEYS: Self = Self { may_be_forbidden: true };
    /// Leaves them alone.
    pub(crate) const ALLOWED: Self = Self { may_be_forbidden: false };

    /// Turns core dumps off if the configuration has keys. Each snapshot is shown here once, so that what it changes is
    /// enough to look at.
    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot) {
        if !self.may_be_forbidden || !config::brings_certificates(snapshot) {
            return;
        }
        self.may_be_forbidden = false;
        match io::limits::forbid_core_dumps() {
            Ok(()) => tracing::info!(
                "core dumps are disabled because there are private keys (--core-dumps enables them)"
            ),
            Err(error) => tracing::warn!(
                "core dumps cannot be disabled and may contain private keys: {error}"
            ),
        }
    }
}

/// Turns the key log on, if it is asked for.
pub(crate) fn key_log(run: &Run) -> Result<(), Failure> {
    if !run.tls_key_log {
        return Ok(());
    }
    let Some(file) = std::env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty()) else {
        let reason = "--tls-key-log: SSLKEYLOGFILE names no file; set it, or leave the flag out";
        return Err(Failure::Start(reason.to_owned()));
    };
    let path = std::path::Path::new(&file);
    tls::key_log::enable(path).map_err(|error| {
        Failure::Start(format!("--tls-key-log: SSLKEYLOGFILE {}: {error}", path.display()))
    })?;
    let file = file.display();
    tracing::warn!(%file, "TLS secrets are being written to a file that decrypts recorded connections");
    Ok(())
}
