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

    /// Serves those that have no server.
    pub(super) fn serve(&self, workers: u32, served: &[Server]) -> Vec<Server> {
        let serve = |handle: &AdminHandle| {
            if served.iter().any(|server| server.is_metrics() == handle.is_metrics()) {
                return None;
            }
            let socket = handle.socket.as_ref()?.try_clone().ok()?;
            let socket = AdminSocket::with_file(socket, &handle.address, handle.own_file);
            let (scope, queries) = (handle.scope.clone(), self.queries.clone());
            match Server::start(socket, scope, queries, workers) {
                Ok(server) => Some(server),
                Err(error) => {
                    tracing::error!("the admin interface cannot be served: {error}");
                    None
                }
            }
        };
        self.handles.iter().filter_map(serve).collect()
    }
}
