//! A process that is asked to end during a handover: no connection is closed for that.

use std::os::unix::net::UnixStream;

use ::tls::Version;
use rustix::process::{Signal, kill_process};

use crate::handover::{Successors, over_tls, process, upgraded, with_handover};
use crate::handover_refusals::{connect, failures, send};
use crate::handover_stopped::{begin_handshake, upgrade_until_remaining};
use crate::kit::{Service, Strait, get, until};
use crate::tls::certificates;
use crate::tls_client::{self, TlsClient};

/// Ten clients of a process that may be replaced.
fn with_clients(service: &Service) -> (Strait, Vec<TlsClient>) {
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, service), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    let mut kept: Vec<_> = (0..10).map(|_| TlsClient::connect(strait.listener, &context)).collect();
    assert_served(&mut kept);
    (strait, kept)
}

fn assert_served(kept: &mut [TlsClient]) {
    for client in kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
}

fn ended_with(strait: &Strait, result: &str) {
    until(result, || {
        let page = get(strait.admin, "/handover");
        (page.status == 200 && page.text().contains(result)).then_some(())
    });
}

#[test]
fn a_new_process_that_is_asked_to_end_gives_back_what_it_has_served() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (strait, mut kept) = with_clients(&service);
    let begun = begin_handshake(&strait);
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    let pid = |stat: String| stat.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
    successors.0.extend(strait.children().into_iter().filter_map(pid));
    assert_served(&mut kept);
    kill_process(process(successors.0[0]), Signal::TERM).unwrap();
    assert_served(&mut kept);
    // Its handover goes on.
    drop(begun);
    assert_eq!(upgrade.wait().unwrap().code(), Some(1), "it does not serve");
    ended_with(&strait, "taken_back");
    assert_served(&mut kept);
    until("the new process's end", || strait.children().is_empty().then_some(()));
    assert_served(&mut kept);
    assert_eq!(get(strait.admin, "/ready").status, 200);
}

#[test]
fn an_old_process_that_is_asked_to_end_as_it_takes_back_accepts_until_it_has_everything() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let (mut strait, mut kept) = with_clients(&service);
    upgraded(&strait, &mut successors);
    let begun = begin_handshake(&strait);
    let mut back = upgrade_until_remaining(&strait, &["--back"]);
    strait.signal(Signal::TERM);
    strait.wait_for_log("the process ends after it");
    let context = tls_client::context(Version::Tls13);
    let mut next = TlsClient::connect(strait.listener, &context);
    assert!(next.get("/").starts_with("HTTP/1.1 200 OK"));
    assert_served(&mut kept);
    drop((begun, next));
    assert_eq!(back.wait().unwrap().code(), Some(0));
    // It ends then as ever: what is idle is closed.
    strait.wait_for_log("draining");
    drop(kept);
    strait.wait_for_end();
    assert_eq!(strait.times_logged("rolled back"), 0);
}

/// What the new process has by then goes on there: connections, and listeners with the files of their sockets.
#[test]
fn an_old_process_that_ends_at_once_leaves_everything_to_the_new_one() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let socket = scratch.path("local.sock");
    let local =
        format!("  - {{ name: local, address: 'unix:{}', routes: all }}\n", socket.display());
    let config = over_tls(&scratch, &service);
    let config = config.replacen("routes:\n", &format!("{local}routes:\n"), 1);
    let config = with_handover(&scratch, &config, "probation: 1m");
    let mut strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    let mut kept: Vec<_> = (0..10).map(|_| TlsClient::connect(strait.listener, &context)).collect();
    assert_served(&mut kept);
    let begun = begin_handshake(&strait);
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    let pid = |stat: String| stat.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
    successors.0.extend(strait.children().into_iter().filter_map(pid));
    for said in ["the process ends after it", "a third signal stops this process at once"] {
        strait.signal(Signal::TERM);
        strait.wait_for_log(said);
        assert_served(&mut kept);
    }
    strait.signal(Signal::TERM);
    assert_eq!(strait.wait_for_end().code(), Some(0), "{}", strait.all_logged());
    assert_eq!(upgrade.wait().unwrap().code(), Some(0));
    assert_served(&mut kept);
    UnixStream::connect(&socket).expect("its file is the new process's");
    until("the new process", || (get(strait.admin, "/ready").status == 200).then_some(()));
    // The command has looked for it, which is no attempt to take over. Those that connect are heard in their order.
    let garbled = connect(&strait.path("handover/strait.sock"));
    send(&garbled, b"no frame", 0);
    until("the count", || (failures(&strait, "garbled") == 1).then_some(()));
    assert_eq!(failures(&strait, "closed"), 0);
    drop(begun);
}
