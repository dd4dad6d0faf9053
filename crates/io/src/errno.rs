//! Names of the kernel's errors.

use std::io;

use rustix::io::Errno;

/// The name of an error that ends an attempt to connect, such as `ECONNREFUSED`; empty if it is not
/// the kernel's. What hardly ever comes is `other`.
#[must_use]
pub fn errno_name(error: &io::Error) -> &'static str {
    let Some(errno) = error.raw_os_error() else { return "" };
    match Errno::from_raw_os_error(errno) {
        Errno::ACCESS => "EACCES",
        Errno::ADDRINUSE => "EADDRINUSE",
        Errno::ADDRNOTAVAIL => "EADDRNOTAVAIL",
        Errno::AFNOSUPPORT => "EAFNOSUPPORT",
        Errno::AGAIN => "EAGAIN",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::CONNRESET => "ECONNRESET",
        Errno::HOSTDOWN => "EHOSTDOWN",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::INVAL => "EINVAL",
        Errno::MFILE => "EMFILE",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NETDOWN => "ENETDOWN",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::NFILE => "ENFILE",
        Errno::NOBUFS => "ENOBUFS",
        Errno::NOENT => "ENOENT",
        Errno::NOMEM => "ENOMEM",
        Errno::NOSPC => "ENOSPC",
        Errno::NOTDIR => "ENOTDIR",
        Errno::PERM => "EPERM",
        Errno::PIPE => "EPIPE",
        Errno::PROTOTYPE => "EPROTOTYPE",
        Errno::TIMEDOUT => "ETIMEDOUT",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_have_names_and_others_none() {
        for (error, expected) in [
            (Errno::CONNREFUSED.into(), "ECONNREFUSED"),
            (Errno::HOSTUNREACH.into(), "EHOSTUNREACH"),
            (Errno::NOTTY.into(), "other"),
            (io::Error::from(io::ErrorKind::ConnectionRefused), ""),
        ] {
            assert_eq!(errno_name(&error), expected, "{error}");
        }
    }
}
