//! Requirements of intercepted connections, and the kernel's errors where they are not met. That
//! rules bring connections here and marks keep them away is shown by `tests/peers`, in networks of
//! their own.

use std::io::ErrorKind;
use std::num::NonZeroU32;

use ::io::{BindError, ConnectOptions, ListenOptions, Listener, Socket};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::pair::{LOOPBACK, accept, listen, tcp_pair};

const NETWORK: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Runs `body` on a thread that has only those capabilities of the network's that it leaves.
fn without_capabilities(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).expect("a thread may read its own");
            sets.effective.remove(NETWORK);
            set_capabilities(None, sets).expect("a thread may give up its own");
            body();
        });
        thread.join().expect("the body holds");
    });
}

fn may() -> bool {
    let sets = capabilities(None).expect("a thread may read its own");
    sets.effective.contains(CapabilitySet::NET_ADMIN)
}

#[test]
fn a_connection_that_nobody_redirected_was_going_where_it_came_or_is_not_tracked() {
    let (_near, far) = tcp_pair().unwrap();
    let original = far.original_destination().unwrap();
    assert!(original.is_none() || original == far.local_address().unwrap(), "{original:?}");
}

#[test]
fn a_transparent_listener_without_the_capability_says_so() {
    let options = ListenOptions { transparent: true, ..ListenOptions::default() };
    without_capabilities(|| {
        let error = Listener::bind(LOOPBACK, &options).unwrap_err();
        assert!(matches!(error, BindError::NotTransparent), "{error}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"));
    });
    if may() {
        let listener = Listener::bind(LOOPBACK, &options).unwrap();
        let address = listener.local_address().unwrap().unwrap();
        let target = ::io::Address::Tcp(address);
        let (_near, _) = Socket::connect(target, &ConnectOptions::default()).unwrap();
        let (far, _) = accept(&listener).unwrap();
        assert_eq!(far.local_address().unwrap(), Some(address));
    }
}

#[test]
fn a_mark_without_the_capability_is_refused() {
    let options = ConnectOptions { mark: NonZeroU32::new(u32::MAX), ..ConnectOptions::default() };
    let (_listener, address) = listen().unwrap();
    without_capabilities(|| {
        assert_eq!(Socket::probe_mark().unwrap_err().kind(), ErrorKind::PermissionDenied);
        let error = Socket::connect(address, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
    if may() {
        Socket::probe_mark().unwrap();
        Socket::connect(address, &options).unwrap();
    }
}
