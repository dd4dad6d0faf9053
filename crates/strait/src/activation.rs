//! Sockets that the service manager opened for the process (`LISTEN_FDS`, sd_listen_fds(3)).
//!
//! A listener takes the socket that listens on its address, and so does the admin interface. The process
//! keeps each for its life, so that a listener that changes takes it again. A socket that the
//! configuration has no use for is an error at the start: its connections would wait for ever. Those that a former process
//! left with the service manager (`handover.fd_store`) go by the names of its listeners, as in a handover.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ::handover::UnusedSocket;
use config::snapshot::{Address, Listener};
use control::{SocketFileId, StoredSocket};
use io::ListenOptions;
use io::inherited::{self, InheritError, Inherited};
use proxy::Snapshot;

use crate::Failure;
use crate::data_path::address_text;

/// Sockets at most; more is no count.
const SOCKETS_MAX: u32 = 4096;

/// Reasons that are written, at most.
const REASONS_MAX: usize = 20;

/// The sockets that were handed over.
#[derive(Debug, Default)]
pub(crate) struct Activation {
    sockets: Vec<Handed>,
    /// Those of the process before this one, by listener and address: handed over, or left with the service manager.
    taken: Vec<(String, Vec<Inherited>)>,
    /// Those of them that this process has bound anew.
    replaced: Vec<(String, Vec<Inherited>)>,
    /// Queues in which the process before this one left connections with the service manager.
    connections: Vec<OwnedFd>,
    /// What the service manager has kept and no listener can use.
    unusable: Vec<String>,
    /// The names that these have there.
    stale: Vec<String>,
}

#[derive(Debug)]
struct Handed {
    /// Its number, and its name in `LISTEN_FDNAMES`.
    label: String,
    socket: Inherited,
}

impl Activation {
    /// Takes what the environment of the process with this id names. To be called before anything is opened.
    ///
    /// # Errors
    ///
    /// A descriptor is no socket that can be listened on; each that is not is named.
    pub(crate) fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
        pid: u32,
    ) -> Result<Self, Failure> {
        let text = |name| variable(name)?.into_string().ok();
        let number = |name| text(name)?.parse::<u32>().ok();
        if number("LISTEN_PID") != Some(pid) {
            return Ok(Self::default());
        }
        let count = number("LISTEN_FDS").unwrap_or(0).min(SOCKETS_MAX);
        let names = text("LISTEN_FDNAMES").unwrap_or_default();
        // One without a name has an empty one.
        let mut names = names.split(':').map(|name| Some(name).filter(|name| !name.is_empty()));
        let (mut sockets, mut refused) = (Vec::new(), Vec::new());
        let mut stored: Vec<(String, Vec<Inherited>)> = Vec::new();
        let (mut connections, mut unusable, mut stale) = (Vec::new(), Vec::new(), Vec::new());
        for (number, taken) in inherited::take(count) {
            let name = names.next().flatten();
            let taken = match taken {
                Ok(queue) if name == Some(control::STORED_CONNECTIONS) => {
                    connections.push(queue);
                    continue;
                }
                taken => taken.and_then(Inherited::new),
            };
            let kept = name.and_then(StoredSocket::of_name);
            let text = name.map(|name| format!(" ({name})")).unwrap_or_default();
            let label = format!("descriptor {number}{text}");
            match (taken, kept) {
                (Ok(socket), Some(kept)) if is_in_place(&socket, kept.file) => {
                    stored.push((kept.listener, vec![socket]));
                }
                (Ok(socket), None) => sockets.push(Handed { label, socket }),
                // One that it kept would stop each restart; the listener binds its address anew.
                (taken, Some(_)) => {
                    let reason = match taken {
                        Err(error) => error.to_string(),
                        Ok(_) => "its path leads to no file any more, or to another".to_owned(),
                    };
                    unusable.push(format!("{label}: {reason}"));
                    stale.extend(name.map(str::to_owned));
                }
                (Err(error), None) => refused.push(format!("{label}: {error}; {}", hint(&error))),
            }
        }
        if refused.is_empty() {
            let mut this = Self { sockets, connections, unusable, stale, ..Self::default() };
            // A process of this program made what it kept, unless a socket unit has the same.
            for (_, kept) in &mut stored {
                let owned = std::mem::take(kept).into_iter().map(|socket| {
                    let is_unit_s = this.find(&address_of(&socket)).is_some();
                    if is_unit_s { socket } else { socket.with_own_file() }
                });
                *kept = owned.collect();
            }
            this.take_over(stored);
            Ok(this)
        } else {
            Err(start(&refused))
        }
    }

    /// Logs what is not used, once that is possible.
    pub(crate) fn report(&self) {
        for unusable in &self.unusable {
            tracing::error!(
                "a socket that the service manager has kept is not used, and its listener opens another: {unusable}"
            );
        }
    }

    /// Adds the sockets of the process whose place this one takes.
    pub(crate) fn take_over(&mut self, taken: Vec<(String, Vec<Inherited>)>) {
        for (name, sockets) in taken {
            for socket in sockets {
                let is_there = |(of, there): &&mut (String, Vec<Inherited>)| {
                    let at = there.first().map(Inherited::address);
                    *of == name && at == Some(socket.address())
                };
                match self.taken.iter_mut().find(is_there) {
                    Some((_, there)) => there.push(socket),
                    None => self.taken.push((name.clone(), vec![socket])),
                }
            }
        }
    }

    /// Whether there are sockets of a process before this one.
    pub(crate) const fn has_taken(&self) -> bool {
        !self.taken.is_empty() || !self.replaced.is_empty()
    }

    /// Whether the former process had a unix socket for this address that no client reaches: its file is not that process's own any more,
    /// and another may take its place.
    pub(crate) fn is_lost<F>(&self, listener: &Listener<F>, address: &Address) -> bool {
        let Address::Unix(path) = address else { return false };
        let taken = self.taken(listener, address);
        let is_own = |sockets: &[Inherited]| sockets.iter().any(Inherited::owns_file);
        taken.is_some_and(|sockets| !is_own(sockets)) && io::is_path_free(path)
    }

    /// Listeners have a new socket of their own at this address, and take none of the former process.
    pub(crate) fn replace(&mut self, address: &Address) {
        let is_there = |(_, sockets): &mut (String, Vec<Inherited>)| {
            sockets.first().is_some_and(|socket| is_at(socket, address))
        };
        self.replaced.extend(self.taken.extract_if(.., is_there));
    }

    /// Whether a socket of the process before this one takes connections of this address, or the other way around.
    pub(crate) fn overlaps(&self, address: &Address) -> bool {
        let mut sockets = self.taken.iter().filter_map(|(_, sockets)| sockets.first());
        sockets.any(|socket| address_of(socket).overlaps(address))
    }

    /// The queues in which the process before this one left connections.
    pub(crate) fn take_connections(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.connections)
    }

    /// The sockets that the former process had for this address of this listener: those of its name, or of the
    /// address. A port of 0 is whatever it got.
    pub(crate) fn taken<F>(
        &self,
        listener: &Listener<F>,
        address: &Address,
    ) -> Option<&[Inherited]> {
        let is_there =
            |sockets: &[Inherited]| sockets.first().is_some_and(|socket| is_at(socket, address));
        let is_anywhere =
            |sockets: &[Inherited]| sockets.first().is_some_and(|it| is_anywhere(it, address));
        let by_name = |(name, sockets): &&(String, Vec<Inherited>)| {
            **name == *listener.name && (is_there(sockets) || is_anywhere(sockets))
        };
        let found = self.taken.iter().find(by_name);
        let found = found.or_else(|| self.taken.iter().find(|(_, sockets)| is_there(sockets)));
        found.map(|(_, sockets)| &**sockets)
    }

    /// The sockets of listeners of the former process that no listener of `snapshot` takes.
    pub(crate) fn unused(&self, snapshot: &Snapshot) -> Vec<UnusedSocket> {
        let users = self.users(snapshot);
        let unused = self.taken.iter().filter(|(_, it)| !users.contains_key(&it.as_ptr()));
        let socket = |(name, sockets): &(String, Vec<Inherited>)| {
            let address = sockets.first().map(address_of);
            let address = address.as_ref().map(address_text);
            UnusedSocket::Listener { name: name.clone(), address }
        };
        unused.chain(&self.replaced).map(socket).collect()
    }

    /// The listeners of `snapshot` that take sockets of the former process, by these sockets.
    fn users(&self, snapshot: &Snapshot) -> BTreeMap<*const Inherited, BTreeSet<Arc<str>>> {
        let mut users = BTreeMap::<_, BTreeSet<_>>::new();
        for listener in &snapshot.listeners {
            for sockets in listener.addresses.iter().filter_map(|it| self.taken(listener, it)) {
                users.entry(sockets.as_ptr()).or_default().insert(Arc::clone(&listener.name));
            }
        }
        users
    }

    /// The listeners of `snapshot` whose name had an address in the former process that is not theirs.
    pub(crate) fn moved(&self, snapshot: &Snapshot) -> BTreeSet<String> {
        let by_name: BTreeMap<&str, _> =
            snapshot.listeners.iter().map(|listener| (&*listener.name, listener)).collect();
        let is_elsewhere = |(name, sockets): &&(String, Vec<Inherited>)| {
            let (Some(listener), Some(socket)) = (by_name.get(&**name), sockets.first()) else {
                return false;
            };
            let at = address_of(socket);
            let is_its = |address: &Address| {
                is_at(socket, address)
                    || is_anywhere(socket, address)
                    || is_any_ip(address) && address.overlaps(&at)
            };
            !listener.addresses.iter().any(is_its)
        };
        self.taken.iter().filter(is_elsewhere).map(|(name, _)| name.clone()).collect()
    }

    /// Closes its handles on sockets of a former process, which listeners have taken, and returns the names under which the service
    /// manager may keep those that no listener of `snapshot` with that name has: their connections would wait for ever. Files of unix sockets that
    /// are this process's own go with these, unless the former process still listens there.
    pub(crate) fn let_go(&mut self, snapshot: &Snapshot, is_stored: bool) -> Vec<String> {
        let (mut names, users) = (std::mem::take(&mut self.stale), self.users(snapshot));
        self.replaced.clear();
        for (name, sockets) in self.taken.drain(..) {
            let Some(socket) = sockets.first() else { continue };
            let users = users.get(&sockets.as_ptr());
            let file = match socket.address() {
                io::Address::Tcp(_) => None,
                io::Address::Unix(path) => SocketFileId::at(path),
            };
            // All TCP addresses of a listener have one name there. Where it has another address by now, or another listener has this
            // one, the name goes with all of them, and what the listener has is stored anew.
            let is_kept = users.is_some_and(|users| users.contains(&*name));
            let has_name = file.is_some() || matches!(socket.address(), io::Address::Tcp(_));
            if has_name && (!is_stored || !is_kept) {
                names.extend(control::stored_name(&name, file));
            }
            if users.is_none() {
                // What listens has the file, and removes it if it is this process's own.
                drop(io::Listener::take_over(socket, &ListenOptions::default()));
            }
        }
        names
    }

    /// The socket that listens on `address`.
    pub(crate) fn find(&self, address: &Address) -> Option<&Inherited> {
        let handed = self.sockets.iter().find(|handed| is_at(&handed.socket, address));
        handed.map(|handed| &handed.socket)
    }

    /// Finds out whether `snapshot` has a use for every socket.
    ///
    /// # Errors
    ///
    /// The sockets that neither a listener nor the admin interface takes.
    pub(crate) fn check_use(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let startup = &snapshot.startup;
        let listeners = snapshot.listeners.iter().flat_map(|listener| &*listener.addresses);
        let used: Vec<_> = listeners.chain(&startup.admin).chain(&startup.metrics).collect();
        let is_lost = |handed: &&Handed| !used.iter().any(|address| is_at(&handed.socket, address));
        let lost = self.sockets.iter().filter(is_lost).map(|handed| {
            let (label, address) = (&handed.label, handed.socket.address());
            format!(
                "{label} listens on {address}, which is the address of no listener; give one this \
                 address, or take it out of the socket unit"
            )
        });
        // The kernel would give half of the connections to each, and one alone is listened on.
        let is_second = |handed: &&Handed| {
            let first =
                self.sockets.iter().find(|it| it.socket.address() == handed.socket.address());
            first.is_some_and(|first| !std::ptr::eq(first, *handed))
        };
        let second = self.sockets.iter().filter(is_second).map(|handed| {
            let (label, address) = (&handed.label, handed.socket.address());
            format!("{label} listens on {address} as another one does; take one of them out of the socket units")
        });
        let lost: Vec<_> = lost.chain(second).collect();
        if lost.is_empty() { Ok(()) } else { Err(start(&lost)) }
    }
}

fn start(reasons: &[String]) -> Failure {
    let mut text = String::from("sockets of the service manager (LISTEN_FDS):");
    for reason in reasons.iter().take(REASONS_MAX) {
        text += "\n";
        text += reason;
    }
    let more = reasons.len().saturating_sub(REASONS_MAX);
    if more > 0 {
        text += &format!("\nand {more} more");
    }
    Failure::Start(text)
}

/// Where a socket listens.
fn address_of(socket: &Inherited) -> Address {
    match socket.address() {
        io::Address::Tcp(address) => Address::Tcp(address),
        io::Address::Unix(path) => Address::Unix(path.into()),
    }
}

/// Whether clients that connect to a kept socket's path reach it: its file, if it has one, is there.
fn is_in_place(socket: &Inherited, file: Option<SocketFileId>) -> bool {
    match socket.address() {
        io::Address::Tcp(_) => true,
        io::Address::Unix(path) => file.is_some() && SocketFileId::at(path) == file,
    }
}

/// Whether it is all addresses of a family.
const fn is_any_ip(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.ip().is_unspecified())
}

/// Whether `address` leaves the port open, and the socket listens there.
pub(crate) fn is_anywhere(socket: &Inherited, address: &Address) -> bool {
    match (socket.address(), address) {
        (io::Address::Tcp(bound), Address::Tcp(address)) => {
            address.port() == 0 && bound.ip() == address.ip()
        }
        _ => false,
    }
}

/// Whether the socket listens at this address.
pub(crate) fn is_at(socket: &Inherited, address: &Address) -> bool {
    match (socket.address(), address) {
        (io::Address::Tcp(bound), Address::Tcp(address)) => bound == *address,
        (io::Address::Unix(bound), Address::Unix(path)) => bound == &**path,
        (io::Address::Tcp(_), Address::Unix(_)) | (io::Address::Unix(_), Address::Tcp(_)) => false,
    }
}

const fn hint(error: &InheritError) -> &'static str {
    match error {
        InheritError::NotOpen(_) => "LISTEN_FDS exceeds the number of descriptors",
        InheritError::System { .. } => {
            "write ListenStream= in the socket unit: only sockets can be listened on"
        }
        InheritError::NotListening => "write ListenStream= and Accept=no in the socket unit",
        InheritError::UnknownFamily => "write an address and port, or a path, in the socket unit",
        InheritError::DualStack => {
            "write BindIPv6Only=ipv6-only in the socket unit, and 0.0.0.0 on a line of its own"
        }
    }
}
