//! The file that `SSLKEYLOGFILE` names, for programs such as Wireshark that read recorded connections.
//!
//! Off unless [`enable`] is called: with the file, every recorded connection can be decrypted.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::OnceLock;

use rustls::{KeyLog as _, KeyLogFile};

static FILE: OnceLock<KeyLogFile> = OnceLock::new();

/// Permissions of the file when it is made here: for its owner alone.
const MODE: u32 = 0o600;

/// Permissions of others, none of which the file may have.
const MODE_OF_OTHERS: u32 = 0o077;

/// From now on, writes the secrets of every handshake of this process to the file at `path`, which the
/// environment variable `SSLKEYLOGFILE` names, in the format of that name. For debugging only:
/// workers wait for each other and for the file.
///
/// # Errors
///
/// When the file cannot be opened or made, or others than its owner may read or write it.
pub fn enable(path: &Path) -> io::Result<()> {
    prepare(path)?;
    FILE.get_or_init(KeyLogFile::new);
    Ok(())
}

/// Creates the file, or checks the permissions of the one that is there.
fn prepare(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & MODE_OF_OTHERS != 0 {
        let mode = mode & 0o777;
        let text =
            format!("its mode is {mode:03o}, and others may not have access to it; chmod 600");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

pub(crate) fn log(label: &str, client_random: &[u8], secret: &[u8]) {
    if let Some(file) = FILE.get() {
        file.log(label, client_random, secret);
    }
}

pub(crate) fn is_enabled() -> bool {
    FILE.get().is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_is_its_owners_alone_or_refused() {
        let path = std::env::temp_dir().join(format!("strait-key-log-{}", std::process::id()));
        let _gone = fs::remove_file(&path);
        prepare(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // One that is there is gone on with.
        prepare(&path).unwrap();
        for (mode, is_taken) in [(0o644, false), (0o660, false), (0o602, false), (0o600, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(prepare(&path).is_ok(), is_taken, "{mode:o}");
        }
        fs::remove_file(&path).unwrap();
    }
}
