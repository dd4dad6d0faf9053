//! Addresses as the log has them, and hints for those that cannot be had.

use config::snapshot::Address;

/// A hint for an error of the kernel.
pub(crate) fn hint(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AddrInUse => "stop the process that listens there, or take another address",
        ErrorKind::AddrNotAvailable => {
            "no interface here has this address: `ip address` lists them"
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE, and a socket's directory has to be writable"
        }
        ErrorKind::NotFound => "make the directory first",
        _ => "take another address",
    }
}

/// An address as the configuration file writes it.
pub(crate) fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}
