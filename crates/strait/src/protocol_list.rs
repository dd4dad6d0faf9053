//! Every RPC protocol there is.

use config::filters::FilterKinds;
use wire::rpc::RpcProtocol;
use wire::rpc::bolt::Bolt;

/// The RPC protocols that a configuration may name. A new one is a line here.
const PROTOCOLS: [&dyn RpcProtocol; 1] = [&Bolt];

/// Adds all of them.
pub(crate) fn register<F>(kinds: &mut FilterKinds<F>) {
    for protocol in PROTOCOLS {
        kinds.register_protocol(protocol);
    }
}
