//! Running out of descriptors. In a process of its own: the limit is the process's, and the other
//! tests need theirs.

use std::env;
use std::fs::File;
use std::process::Command;

use ::io::{AcceptError, ConnectOptions, Poller, Socket};

use crate::pair::{accept, listen, wait};

#[test]
fn running_out_of_descriptors_is_recognised_and_the_connection_stays_queued() {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "exhaustion::in_a_process_with_few_descriptors", "--ignored"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "lowers the limits of its process; the test above runs it in one of its own"]
fn in_a_process_with_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum }).unwrap();
    assert_eq!(io::limits::open_files_max(), 40);

    let (listener, address) = listen().unwrap();
    let poller = Poller::new().unwrap();
    poller.add_listener(&listener, 0).unwrap();
    let (_near, _) = Socket::connect(address, &ConnectOptions::default()).unwrap();
    wait(&poller).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    for _ in 0..2 {
        let error = listener.accept().unwrap_err();
        assert!(matches!(error, AcceptError::OutOfDescriptors(_)), "{error}");
    }
    let connected = Socket::connect(address, &ConnectOptions::default());
    assert!(connected.is_err(), "there is no descriptor for it");
    hoard.pop();
    let (_far, _) = listener.accept().unwrap().expect("it was still queued");

    assert!(io::limits::raise_open_files().unwrap() > 40);
    Socket::connect(address, &ConnectOptions::default()).unwrap();
    accept(&listener).unwrap();
}
