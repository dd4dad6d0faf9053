//! Strait with a low limit on open files.

use crate::kit::{Client, Service, Strait, forward_to, get, until};

/// Three clients for each descriptor, all of them open.
#[test]
fn clients_beyond_the_descriptors_are_closed_and_everything_else_goes_on() {
    let service = Service::start("one");
    let config = forward_to(service.address).replace("workers: 2", "workers: 1");
    let mut strait = Strait::run_limited(&config, 100);
    let warning = strait.wait_for_log("limits.connections_max is 100000");
    assert!(warning.contains("raise the hard limit"), "{warning}");

    let mut open: Vec<_> = (0..300).map(|_| Client::try_connect(strait.listener)).collect();
    let (mut served, mut closed) = (0, 0);
    for client in &mut open {
        match client.as_mut().and_then(|client| client.try_get("/")) {
            Some(response) => {
                assert_eq!(response.status, 200, "one that was taken has an upstream too");
                served += 1;
            }
            None => closed += 1,
        }
    }
    assert!(served >= 10, "{served} served, {closed} closed");
    assert!(closed > 200, "{served} served, {closed} closed");

    // The admin interface answers, and a changed file is read, while they are there.
    assert_eq!(get(strait.admin, "/healthz").status, 200);
    strait.rewrite(&config.replace("workers: 1", "workers: 1\naccess_log: { output: stdout }"));
    strait.wait_for_version(2);
    drop(open);
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_change_that_could_not_be_read_for_lack_of_descriptors_is_looked_at_again() {
    let service = Service::start("one");
    let config = forward_to(service.address);
    let mut strait = Strait::run(&config);
    strait.limit_open_files(3);
    strait.rewrite(&format!("{config}access_log: {{ output: stdout }}\n"));
    let warning = strait.wait_for_log("no file descriptor is left to read");
    assert!(warning.contains("every second"), "{warning}");
    // The file is not written again: Strait looks at it by itself.
    strait.limit_open_files(1024);
    strait.wait_for_version(2);
    assert_eq!(strait.times_logged("no file descriptor is left to read"), 1);
    assert!(strait.config()["last_error"].is_null());
}

/// Accepting is tried ten times a second while there is no descriptor.
#[test]
fn the_admin_interface_says_once_that_it_cannot_accept() {
    let service = Service::start("one");
    let mut strait = Strait::run(&forward_to(service.address));
    strait.limit_open_files(3);
    let waiting: Vec<_> = (0..4).map(|_| std::net::TcpStream::connect(strait.admin)).collect();
    strait.wait_for_log("admin: cannot accept a connection");
    // The queue is looked at again and again, and the connections in it are not lost.
    let mut looks = 0;
    until("another look or two at the queue", || {
        looks += 1;
        (looks > 50).then_some(())
    });
    assert_eq!(strait.times_logged("admin: cannot accept a connection"), 1);
    strait.limit_open_files(1024);
    assert_eq!(get(strait.admin, "/healthz").status, 200);
    drop(waiting);
}
