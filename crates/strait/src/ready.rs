//! `strait ready`: whether a running process serves, for probes; with `--here`, whether the one of this very container does.
//!
//! Containers that share a network also share the address of the admin interface, where the process answers that serves: during an
//! upgrade the old one until COMMIT, and the new one from then on. Which container it is in shows by its mount namespace, which is
//! also that of a command that the container's runtime starts there.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use ::io::clock::monotonic_ns;

use crate::Failure;
use crate::admin_client::AdminClient;
use crate::arguments::{Here, Ready};

/// What the page says of the process's mount namespace, before its name.
const NAMESPACE: &str = "mount namespace ";

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks until the process is ready, or for as long as that is waited for.
#[expect(clippy::disallowed_methods, reason = "between two questions nothing happens")]
pub(crate) fn ready(options: &Ready) -> Result<(), Failure> {
    let wait = u64::try_from(options.wait.as_nanos()).unwrap_or(u64::MAX);
    let deadline = monotonic_ns().saturating_add(wait);
    loop {
        let Err(reason) = ask(options) else { return Ok(()) };
        if monotonic_ns() >= deadline {
            return Err(Failure::NotReady(reason));
        }
        thread::sleep(PAUSE);
    }
}

/// Asks once.
///
/// # Errors
///
/// Why the process is not ready.
fn ask(options: &Ready) -> Result<(), String> {
    if options.here == Some(Here::IfAny) && !runs_here().map_err(unknown)? {
        return Ok(());
    }
    let mut client = AdminClient::new(&options.admin).map_err(|error| error.to_string())?;
    let page = client.get("/ready?namespace").map_err(|error| error.to_string())?;
    let page = String::from_utf8_lossy(&page);
    let Some(_) = options.here else { return Ok(()) };
    let theirs = page.lines().find_map(|line| line.strip_prefix(NAMESPACE));
    let own = own_namespace().map_err(unknown)?;
    let admin = &options.admin;
    match theirs {
        Some(theirs) if theirs == own => Ok(()),
        Some(_) => Err(format!(
            "the process that answers at {admin} runs in another container: the one of this container has not taken over, or has been \
             replaced"
        )),
        None => Err(format!(
            "the process that answers at {admin} does not say in which mount namespace it runs: it is of an earlier version, or cannot \
             read /proc/self/ns/mnt"
        )),
    }
}

fn unknown(error: io::Error) -> String {
    format!("/proc does not say where this command runs: {error}")
}

fn own_namespace() -> io::Result<String> {
    Ok(fs::read_link("/proc/self/ns/mnt")?.to_string_lossy().into_owned())
}

/// Whether the first process of this container is of this program, or may be.
fn runs_here() -> io::Result<bool> {
    match fs::read_link("/proc/1/exe") {
        Ok(program) => Ok(program == fs::read_link("/proc/self/exe")?),
        // A process with private keys does not let its user look.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        Err(error) => Err(error),
    }
}
