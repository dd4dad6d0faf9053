//! Memory follows load in both directions.

use std::io::Write as _;
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kit::{Service, Strait, forward_to, get, until_within};

/// Half heads that are open at a time.
const HALF_HEADS: usize = 8_000;

/// Resident bytes of the process.
fn resident(strait: &Strait) -> u64 {
    let status = strait.proc("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn memory_of_half_heads_comes_back_within_a_minute() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    if maximum.is_some_and(|maximum| maximum < HALF_HEADS as u64 * 2) {
        return println!("skipped: the limit on open files is {maximum:?}");
    }
    let service = Service::start("one");
    let strait = Strait::run(&forward_to(service.address));
    (0..100).for_each(|_| assert_eq!(get(strait.listener, "/").status, 200));
    let before = resident(&strait);
    // More than the smallest buffer holds.
    let half = format!("GET / HTTP/1.1\r\nhost: test\r\nx-half: {}", "x".repeat(3000));
    let connect = |_| {
        let mut stream = TcpStream::connect(strait.listener).unwrap();
        stream.write_all(half.as_bytes()).unwrap();
        stream
    };
    let clients: Vec<_> = (0..HALF_HEADS).map(connect).collect();
    let during = until_within(20, "memory of half heads", || {
        Some(resident(&strait)).filter(|bytes| *bytes > before + HALF_HEADS as u64 * 3000)
    });
    drop(clients);
    let after = until_within(60, "memory to come back", || {
        Some(resident(&strait)).filter(|bytes| *bytes <= before + before / 2)
    });
    println!("{before} bytes before, {during} with half heads, {after} after");
    assert_eq!(get(strait.listener, "/").status, 200);
}
