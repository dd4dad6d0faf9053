//! What it takes to leave connections with the service manager (`handover.fd_store: connections`). The binary carries it out.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use config::Agreed;

use crate::handover::OwnState;

/// Leaves connections with the service manager.
pub trait Storer: fmt::Debug + Send + 'static {
    /// Opens a queue, and returns its receiving end, for the service manager, with a descriptor that the service
    /// manager closes once it has read the message that brought the other.
    ///
    /// # Errors
    ///
    /// Out of descriptors.
    fn open(&mut self) -> io::Result<(OwnedFd, OwnedFd)>;

    /// Takes all connections that can move out of the workers and puts them into the queue, with what they were agreed on and
    /// what the process knows. Waits for workers and the service manager: control calls it on a thread that may.
    ///
    /// # Errors
    ///
    /// Why not. The workers have everything back, and accept again.
    fn store(
        &mut self,
        agreed: Vec<Agreed>,
        state: OwnState,
        generation: u64,
    ) -> Result<StoredCounts, String>;

    /// Adds what the process has counted at its end.
    fn finish(&mut self, state: OwnState);
}

/// What was left with the service manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCounts {
    /// Groups of connections.
    pub groups: u64,
    /// Connections that stay and drain.
    pub staying: u64,
    /// Connections that a handshake held back, which clients begin anew.
    pub handshakes: u64,
}
