//! The file that `SSLKEYLOGFILE` names, for programs such as Wireshark that read recorded connections.
//!
//! Off unless [`enable`] is called: whoever has the file reads everything.

use std::sync::OnceLock;

use rustls::{KeyLog as _, KeyLogFile};

static FILE: OnceLock<KeyLogFile> = OnceLock::new();

/// From now on, writes the secrets of every handshake of this process to the file that the environment
/// variable `SSLKEYLOGFILE` names, in the format of that name. For looking for mistakes only: workers wait
/// for each other and for the file.
pub fn enable() {
    FILE.get_or_init(KeyLogFile::new);
}

pub(crate) fn log(label: &str, client_random: &[u8], secret: &[u8]) {
    if let Some(file) = FILE.get() {
        file.log(label, client_random, secret);
    }
}

pub(crate) fn is_enabled() -> bool {
    FILE.get().is_some()
}
