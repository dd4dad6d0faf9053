//! Handles on the sockets of the admin interface, for this process and the next.

use std::os::fd::OwnedFd;

use config::file_mode::FileMode;
use config::snapshot::Address;
use tokio::sync::mpsc;

use crate::admin::{AdminSocket, Query, Scope, Server, set_socket_mode};
use crate::handover::{GivenAdmin, KeptAdmin};
use crate::service_manager::SocketFileId;

/// A socket of the admin interface, to be served and handed on.
#[derive(Debug)]
struct AdminHandle {
    socket: Option<OwnedFd>,
    /// Its file, if that is this process's own.
    own_file: Option<SocketFileId>,
    address: Address,
    scope: Scope,
    /// Whether this process answers there although another one has taken its place, and does not use it.
    is_kept: bool,
}

impl AdminHandle {
    const fn is_metrics(&self) -> bool {
        matches!(self.scope, Scope::Metrics)
    }
}

/// The admin interface's sockets, whether served or not.
#[derive(Debug)]
pub(super) struct AdminHandles {
    handles: Vec<AdminHandle>,
    queries: mpsc::Sender<Query>,
}

impl AdminHandles {
    /// Where queries go.
    pub(super) fn queries(&self) -> mpsc::Sender<Query> {
        self.queries.clone()
    }

    pub(super) const fn new(queries: mpsc::Sender<Query>) -> Self {
        Self { handles: Vec::new(), queries }
    }

    /// Keeps a handle on a socket, beside the socket itself.
    pub(super) fn keep(&mut self, socket: &AdminSocket, address: Option<&Address>, scope: Scope) {
        let bound = || socket.local_address().ok().flatten().map(Address::Tcp);
        let Some(address) = address.cloned().or_else(bound) else { return };
        let (own_file, socket) = (socket.own_file(), socket.try_clone_fd().ok());
        self.handles.push(AdminHandle { socket, own_file, address, scope, is_kept: false });
    }

    /// Gives those files of unix sockets that are this process's own these permissions.
    pub(super) fn set_mode(&self, mode: FileMode) {
        for handle in &self.handles {
            let (Address::Unix(path), Some(file)) = (&handle.address, handle.own_file) else {
                continue;
            };
            if let Err(error) = set_socket_mode(path, file, mode) {
                tracing::warn!("{}: cannot set mode {mode}: {error}", path.display());
            }
        }
    }

    /// Lets the addresses go.
    pub(super) fn close(&mut self) {
        self.handles.iter_mut().for_each(|handle| handle.socket = None);
    }

    /// Notes where this process goes on to answer although another one has taken its place.
    pub(super) fn set_kept(&mut self, kept: KeptAdmin) {
        for handle in &mut self.handles {
            handle.is_kept = if handle.is_metrics() { kept.metrics } else { kept.all };
        }
    }

    /// Whether this server goes on then.
    pub(super) fn is_kept(&self, server: &Server) -> bool {
        self.of(server.is_metrics()).is_some_and(|handle| handle.is_kept)
    }

    /// Whether a socket has a file that another process uses which has taken this one's place.
    pub(super) fn has_given_files(&self) -> bool {
        let is_given = |handle: &AdminHandle| !handle.is_kept && handle.address.is_unix();
        self.handles.iter().any(is_given)
    }

    fn of(&self, is_metrics: bool) -> Option<&AdminHandle> {
        self.handles.iter().find(|handle| handle.is_metrics() == is_metrics)
    }

    /// What the next process gets of it.
    pub(super) fn given(&self, is_metrics: bool) -> Option<GivenAdmin> {
        let handle = self.of(is_metrics)?;
        let socket = handle.socket.as_ref()?.try_clone().ok()?;
        // One that stands there in its place is another's.
        let owns_file = match &handle.address {
            Address::Unix(path) => {
                handle.own_file.is_some() && SocketFileId::at(path) == handle.own_file
            }
            Address::Tcp(_) => false,
        };
        Some(GivenAdmin { socket, owns_file })
    }

    /// Binds the paths of unix sockets anew whose files were removed, or are stale, and returns the new sockets.
    pub(super) fn bind_lost(&mut self, mode: Option<FileMode>) -> Vec<(AdminSocket, Scope)> {
        let mut bound = Vec::new();
        for handle in &mut self.handles {
            let of = if handle.is_metrics() { "admin.metrics" } else { "admin" };
            let Address::Unix(path) = &handle.address else { continue };
            // A file that is not this process's own, such as the service manager's, is for others to make.
            if handle.own_file.is_none() || SocketFileId::at(path) == handle.own_file {
                continue;
            }
            let at = path.display();
            let socket = AdminSocket::bind(&handle.address, mode)
                .and_then(|socket| Ok((socket.try_clone_fd()?, socket)));
            match socket {
                Ok((descriptor, socket)) => {
                    tracing::warn!("{of}: {at} was removed by another program, and is bound anew");
                    handle.own_file = socket.own_file();
                    handle.socket = Some(descriptor);
                    bound.push((socket, handle.scope.clone()));
                }
                Err(error) => tracing::error!(
                    "{of}: {at} was removed by another program, and cannot be bound anew: {error}; SIGHUP tries again"
                ),
            }
        }
        bound
    }

    /// Serves those that have no server.
    pub(super) fn serve(&self, workers: u32, served: &[Server]) -> Vec<Server> {
        let serve = |handle: &AdminHandle| {
            if served.iter().any(|server| server.is_metrics() == handle.is_metrics()) {
                return None;
            }
            let socket = handle.socket.as_ref()?.try_clone().ok()?;
            let socket = AdminSocket::with_file(socket, &handle.address, handle.own_file);
            self.start(socket, handle.scope.clone(), workers)
        };
        self.handles.iter().filter_map(serve).collect()
    }

    /// Serves one of them.
    pub(super) fn start(&self, socket: AdminSocket, scope: Scope, workers: u32) -> Option<Server> {
        let started = Server::start(socket, scope, self.queries.clone(), workers);
        started
            .inspect_err(|error| tracing::error!("the admin interface cannot be served: {error}"))
            .ok()
    }
}
