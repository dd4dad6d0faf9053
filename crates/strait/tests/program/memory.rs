//! Memory follows load in both directions.

use std::io::Write as _;
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kit::{Client, Service, Strait, forward_to, get, until, until_within};

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

#[test]
fn near_the_bound_clients_are_refused_the_admin_interface_answers_and_it_passes() {
    let service = Service::start("one");
    let config = forward_to(service.address);
    let mut strait = Strait::run(&config);
    let mut idle = Client::connect(strait.listener);
    assert_eq!(idle.get("/").status, 200);
    assert_eq!(strait.metric("strait_memory_level"), 0.0);
    // The program alone takes more.
    strait.rewrite(&format!("{config}limits: {{ memory_max: 1MiB }}\n"));
    let log = strait.wait_for_log("memory is near limits.memory_max");
    assert!(log.contains("new connections are refused"), "{log}");
    until("the idle connection to close", || idle.is_closed().then_some(()));
    until("a refused connection", || {
        let refused = Client::connect(strait.listener).try_get("/").is_none();
        refused.then_some(())
    });
    assert_eq!(get(strait.admin, "/ready").status, 200);
    let name = "strait_downstream_connections_refused_total";
    let stats = get(strait.admin, &format!("/stats?filter={name}")).text();
    let refused = stats.lines().find(|line| line.contains("cause=\"overloaded\"")).unwrap();
    assert!(!refused.ends_with(" 0"), "{stats}");
    assert_eq!(strait.metric("strait_memory_level"), 3.0);
    assert_eq!(strait.metric("strait_memory_max_bytes"), 1_048_576.0);

    strait.rewrite(&format!("{config}limits: {{ memory_max: none }}\n"));
    strait.wait_for_log("nothing is refused for it");
    assert_eq!(get(strait.listener, "/").status, 200);
    assert_eq!(strait.metric("strait_memory_level"), 0.0);
}
