//! How this process takes another's place, and how another takes this one's.
//!
//! Here: what both sides have in common, and the admin addresses of a process that drains, which its successor
//! asks for with `POST /release`. [`giving`] and [`taking`] carry out what the crate `handover` decides.

mod answers;
pub(crate) mod asking;
mod attempt;
mod balancing;
mod collecting;
mod differences;
pub(crate) mod giving;
pub(crate) mod giving_back;
mod groups;
mod leaving;
mod line;
mod listing;
pub(crate) mod log_pace;
pub(crate) mod pending;
pub(crate) mod refused;
mod requester;
mod resources;
pub(crate) mod socket_file;
pub(crate) mod start_command;
pub(crate) mod stored;
pub(crate) mod storing;
mod summary;
pub(crate) mod taking;
mod timeouts;
mod topics;
mod totals;
pub(crate) mod upgrade;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::handover::{Part, PartKind};
use ::io::packets::{Access, own_user};
use ::io::users::may_be_unmapped;
use config::AgreedKind;
use config::file_mode::FileMode;
use config::snapshot::{Address, HandoverOptions};
use control::AdminSocket;
use proxy::Snapshot;

/// How long the other process may take to connect, to read and to answer, each.
const PATIENCE: Duration = Duration::from_secs(1);

const REQUEST: &[u8] =
    b"POST /release HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The beginning of the answer by which a process releases its addresses.
const RELEASED: &[u8] = b"HTTP/1.1 200 ";

/// Where a process with these options is found by the one that takes its place, if anywhere.
pub(crate) fn socket_path(
    options: &HandoverOptions,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let configured = options.socket.as_deref().map(Path::to_owned);
    configured.or_else(|| {
        // systemd separates several by colons.
        let folders = variable("RUNTIME_DIRECTORY")?.into_string().ok()?;
        let folder = folders.split(':').next().filter(|folder| folder.starts_with('/'))?;
        Some(Path::new(folder).join("handover/strait.sock"))
    })
}

/// Whether a process that the kernel reports to be this user's may be the other side.
pub(crate) fn is_allowed(user: u32, options: &HandoverOptions) -> bool {
    // Without other users, only this process's own gets into the folder of the socket.
    let is_certain = options.users.is_empty() || !may_be_unmapped(user);
    is_certain && has_user(user, options)
}

/// Whether this user is one whose processes may be the other side.
pub(crate) fn has_user(user: u32, options: &HandoverOptions) -> bool {
    user == 0 || user == own_user() || options.users.contains(&user)
}

/// What to do so that a process of this user may be the other side.
pub(crate) fn hint_to_allow(user: u32) -> String {
    if may_be_unmapped(user) {
        return format!(
            "the kernel reports all users without a number in this user namespace as {user}: give both containers the same users and \
             leave handover.users empty, or map the other's user here, and run no process as user {user}"
        );
    }
    format!("add {user} to handover.users")
}

/// Warns of a user that the configuration admits, but that is refused.
pub(crate) fn warn_of_unmapped(options: &HandoverOptions) {
    if options.users.is_empty() {
        return;
    }
    let mut admitted = options.users.iter().copied().chain([own_user()]);
    if let Some(user) = admitted.find(|user| may_be_unmapped(*user)) {
        let hint = hint_to_allow(user);
        tracing::warn!("handover.users: processes of user {user} are refused: {hint}");
    }
}

/// Whom the file system lets connect.
pub(crate) fn access(options: &HandoverOptions) -> Access {
    if options.users.is_empty() { Access::Owner } else { Access::Others }
}

/// What connections were agreed on in this configuration.
pub(crate) fn parts(snapshot: &Snapshot) -> Vec<Part> {
    config::agreed(snapshot).into_iter().map(part).collect()
}

/// How long a TLS handshake of a client may take that began before a handover.
pub(crate) fn longest_handshake(snapshot: &Snapshot) -> Duration {
    let all = snapshot.listeners.iter().map(|it| it.timeouts.tls_handshake);
    all.max().unwrap_or_default()
}

fn part(agreed: config::Agreed) -> Part {
    let kind = match agreed.kind {
        AgreedKind::Listener => PartKind::Listener,
        AgreedKind::Chain => PartKind::Chain,
        AgreedKind::Cluster => PartKind::Cluster,
    };
    Part { kind, name: agreed.name, fingerprint: agreed.fingerprint }
}

/// Binds an address of the admin interface, from a process that drains if it is taken.
///
/// # Errors
///
/// It is taken by another process, or what the kernel refused.
pub(crate) fn bind(address: &Address, mode: Option<FileMode>) -> io::Result<AdminSocket> {
    match AdminSocket::bind(address, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_released(address) => {
            tracing::info!("a draining process released the admin address");
            AdminSocket::bind(address, mode)
        }
        result => result,
    }
}

/// Starts a thread that something else goes on without.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
        tracing::error!("the thread {name} cannot be started: {error}");
    }
}

fn is_released(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream)
        }),
        Address::Unix(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream)
        }),
    }
    .unwrap_or(false)
}

fn ask(mut stream: impl Read + Write) -> io::Result<bool> {
    stream.write_all(REQUEST)?;
    let mut answer = [0; RELEASED.len()];
    stream.read_exact(&mut answer)?;
    Ok(answer == RELEASED)
}
