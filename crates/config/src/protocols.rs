//! The RPC protocols that a program knows: a table, from which their names in the file come.

use std::sync::Arc;

use wire::rpc::{RpcName, RpcProtocol};

/// The RPC protocols that a program knows.
#[derive(Clone, Debug, Default)]
pub struct Protocols(Arc<[&'static dyn RpcProtocol]>);

impl Protocols {
    /// The protocol of this name.
    #[must_use]
    pub fn find(&self, name: RpcName) -> Option<&'static dyn RpcProtocol> {
        self.0.iter().find(|protocol| protocol.name() == name.as_str()).copied()
    }

    /// All of them, in the order in which they were registered.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn RpcProtocol> {
        self.0.iter().copied()
    }

    /// Adds a protocol.
    ///
    /// # Panics
    ///
    /// If its name is none: that is a mistake in the program.
    pub(crate) fn add(&mut self, protocol: &'static dyn RpcProtocol) {
        let name = RpcName::new(protocol.name());
        assert!(name.is_some(), "1 to 15 lower-case letters and digits: {}", protocol.name());
        self.0 = self.iter().chain([protocol]).collect();
    }
}
