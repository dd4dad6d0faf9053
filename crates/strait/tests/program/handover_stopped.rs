//! A process that stands still at a handover: the other one notices, ends it, and serves.
#![expect(clippy::disallowed_methods, reason = "how long that takes is the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ::tls::Version;
use rustix::process::{Signal, kill_process};

use crate::handover::{
    InNamespaces, Successors, over_tls, process, upgrade, upgraded, with_handover,
};
use crate::kit::{Client, Scratch, Service, Strait, forward_to, get, text, until};
use crate::tls::certificates;
use crate::tls_client::{self, TlsClient};

/// Four seconds of silence, and what a busy machine takes.
const NOTICED_WITHIN: Duration = Duration::from_secs(8);

/// A handshake that does not end: it keeps a handover back before its last phase.
pub(crate) fn begin_handshake(strait: &Strait) -> TcpStream {
    let mut begun = TcpStream::connect(strait.listener).unwrap();
    begun.write_all(&[22]).unwrap();
    begun
}

/// Runs `strait upgrade`, and waits until all that can move has moved.
pub(crate) fn upgrade_until_remaining(strait: &Strait, more: &[&str]) -> Child {
    let file = strait.path("strait.yaml");
    let mut upgrade = Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(["upgrade", "-c", file.to_str().unwrap()])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(upgrade.stdout.take().unwrap()).lines();
    let _ = lines.find(|line| line.as_ref().unwrap().starts_with("remaining after"));
    upgrade
}

/// Stops a process, and waits until all of its threads stand still.
pub(crate) fn stop(pid: u32) {
    kill_process(process(pid), Signal::STOP).unwrap();
    until("the stop of all threads", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let is_stopped = |task: std::io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            Some(stat.rsplit_once(") ")?.1.starts_with('T'))
        };
        tasks.map(is_stopped).all(|it| it == Some(true)).then_some(())
    });
}

fn run(service: &Service, options: &str) -> Strait {
    let scratch = Scratch::new();
    let config = with_handover(&scratch, &forward_to(service.address), options);
    Strait::run_in(scratch, &config)
}

#[test]
fn a_new_process_that_is_stopped_in_its_probation_is_ended_and_the_old_one_serves() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 1m");
    let mut kept: Vec<_> = (0..10).map(|_| Client::connect(strait.listener)).collect();
    kept.iter_mut().for_each(|client| drop(client.get("/")));
    upgraded(&strait, &mut successors);
    kept.iter_mut().for_each(|client| drop(client.get("/")));
    let began = Instant::now();
    stop(successors.0[0]);
    // This one waits in the queue of the socket that both have.
    assert_eq!(get(strait.listener, "/").status, 200);
    assert!(began.elapsed() < NOTICED_WITHIN, "{:?}", began.elapsed());
    until("the log", || strait.all_logged().contains("does not run any more").then_some(()));
    until("the new process's end", || strait.children().is_empty().then_some(()));
    // Its connections ended with it, and hang no longer.
    for client in &mut kept {
        assert!(client.try_get("/").is_none());
    }
    until("the admin interface", || {
        let page = get(strait.admin, "/handover");
        (page.status == 200 && page.text().contains("stood_in")).then_some(())
    });
    // It can be replaced again.
    upgraded(&strait, &mut successors);
    assert_eq!(get(strait.listener, "/").status, 200);
}

#[test]
fn a_new_process_that_runs_again_in_time_stays() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let strait = run(&service, "probation: 1m");
    let mut kept = Client::connect(strait.listener);
    assert_eq!(kept.get("/").status, 200);
    upgraded(&strait, &mut successors);
    // Both stand still, for longer than either may be silent, as under a debugger or in a frozen container.
    for pid in [strait.pid(), successors.0[0]] {
        stop(pid);
    }
    thread::sleep(Duration::from_secs(5));
    for pid in [strait.pid(), successors.0[0]] {
        kill_process(process(pid), Signal::CONT).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(kept.get("/").status, 200);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!strait.all_logged().contains("does not run any more"), "{}", strait.all_logged());
}

#[test]
fn a_new_process_that_is_stopped_as_it_gives_back_is_ended_and_the_old_one_goes_on_alone() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, &service), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    let mut kept: Vec<_> = (0..10).map(|_| TlsClient::connect(strait.listener, &context)).collect();
    upgraded(&strait, &mut successors);
    let _begun = begin_handshake(&strait);
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    let mut back = upgrade_until_remaining(&strait, &["--back"]);
    let began = Instant::now();
    stop(successors.0[0]);
    // What had moved by then goes on, and new connections are accepted by the old process.
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    until("the new process's end", || strait.children().is_empty().then_some(()));
    assert!(began.elapsed() < NOTICED_WITHIN, "{:?}", began.elapsed());
    let _ = back.wait();
    let mut next = TlsClient::connect(strait.listener, &context);
    assert!(next.get("/").starts_with("HTTP/1.1 200 OK"));
    until("the admin interface", || {
        let page = get(strait.admin, "/handover");
        (page.status == 200 && page.text().contains("taken_back")).then_some(())
    });
}

#[test]
fn an_old_process_that_is_stopped_once_the_new_one_serves_is_ended_and_the_new_one_goes_on_alone() {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, &service), "probation: 1m");
    let mut strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    let mut kept: Vec<_> = (0..10).map(|_| TlsClient::connect(strait.listener, &context)).collect();
    let _begun = begin_handshake(&strait);
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    let pid = |stat: String| stat.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
    successors.0.extend(strait.children().into_iter().filter_map(pid));
    let began = Instant::now();
    stop(strait.pid());
    // It has them since before, and accepts.
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    // The phases that the old process may be in take 15 s; until then it could go on.
    strait.wait_for_end();
    assert!(began.elapsed() < Duration::from_secs(15) + NOTICED_WITHIN, "{:?}", began.elapsed());
    let _ = upgrade.wait();
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    let mut next = TlsClient::connect(strait.listener, &context);
    assert!(next.get("/").starts_with("HTTP/1.1 200 OK"));
    until("the admin interface", || {
        let page = get(strait.admin, "/handover");
        (page.status == 200 && page.text().contains("completed")).then_some(())
    });
}

#[test]
fn a_new_process_serves_as_the_old_one_did_before_it_is_the_process_and_knows_its_counts_if_that_one_is_killed()
 {
    let (one, other) = (Service::start("one"), Service::start("other"));
    let (scratch, mut successors) = (certificates(), Successors::default());
    let config = over_tls(&scratch, &one)
        .replace(&format!("'{}'", one.address), &format!("'{}', '{}'", one.address, other.address));
    let rule = "{ match: { prefix: /half, fraction: { percent: 100, runtime: canary } }, respond: { status: 204 } }, ";
    let config = config.replacen("rules: [", &format!("rules: [{rule}"), 1);
    let config = with_handover(&scratch, &config, "probation: 1m");
    let mut strait = Strait::run_in(scratch, &config);
    let context = tls_client::context(Version::Tls13);
    let mut kept = TlsClient::connect(strait.listener, &context);
    for _ in 0..50 {
        assert!(kept.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    let drain = format!("/clusters/service/endpoints/{}?health=drain", one.address);
    for path in [&*drain, "/runtime?canary=0"] {
        let answer = Client::connect(strait.admin).request("POST", path);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let _begun = begin_handshake(&strait);
    let mut upgrade = upgrade_until_remaining(&strait, &[]);
    let pid = |stat: String| stat.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
    successors.0.extend(strait.children().into_iter().filter_map(pid));
    until("what the old process knew", || {
        let mut client = TlsClient::connect(strait.listener, &context);
        client.get("/").contains("other\n").then_some(())
    });
    for _ in 0..20 {
        let mut client = TlsClient::connect(strait.listener, &context);
        assert!(client.is_resumed, "the old process's tickets are valid");
        assert!(client.get("/").contains("other\n"), "the other one is drained");
        assert!(client.get("/half").starts_with("HTTP/1.1 200 OK"), "as the operator said");
    }
    // It ends all of a sudden.
    kill_process(process(strait.pid()), Signal::KILL).unwrap();
    strait.wait_for_end();
    let _ = upgrade.wait();
    until("the admin interface", || {
        get(strait.admin, "/handover").text().contains("completed").then_some(())
    });
    let count = || strait.metric("strait_exchanges_finished_total");
    until("the counts of both", || (count() >= 90.0).then_some(()));
    assert!(kept.get("/").starts_with("HTTP/1.1 200 OK"));
    // What ended with the old process is not open any more.
    until("the connections of this one alone", || {
        (strait.metric("strait_downstream_connections_active") == 1.0).then_some(())
    });
    let shown = get(strait.admin, "/config").text();
    let canary = shown.split("canary").nth(1).unwrap();
    assert!(canary.split('}').next().unwrap().contains("admin"), "{canary}");
}

#[test]
fn an_old_process_stands_in_for_one_that_is_stopped_and_that_it_cannot_end() {
    // Neither process has an id for the other.
    let Some(both) = InNamespaces::hand_over("probation: 3s") else { return };
    let InNamespaces { mut first, mut second, mut kept, .. } = both;
    let children = format!("/proc/{0}/task/{0}/children", second.id());
    let taker: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let finished = |strait: &Strait| strait.metric("strait_exchanges_finished_total");
    for _ in 0..5 {
        assert_eq!(kept.get("/").status, 200);
    }
    // What it counts is reported ten times a second.
    thread::sleep(Duration::from_secs(1));
    let before = finished(&first);
    stop(taker);
    // This one waits in the queue of the socket that both have, as do requests of operators.
    assert_eq!(get(first.listener, "/").status, 200);
    first.wait_for_log("this one accepts connections again until the new one");
    assert_eq!(first.metric("strait_generation"), 0.0);
    assert_eq!(finished(&first), before + 1.0, "what the other one counts is shown");
    // Operators hear that at once.
    let began = Instant::now();
    for more in [&[][..], &["--back"]] {
        let output = upgrade(&first, more);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("has taken over, but does not run"), "{error}");
    }
    assert!(began.elapsed() < NOTICED_WITHIN, "{:?}", began.elapsed());
    for untrue in ["is killed", "has killed it", "are reset"] {
        assert_eq!(first.times_logged(untrue), 0, "{}", first.all_logged());
    }
    thread::sleep(Duration::from_secs(4));
    let mut beside = Client::connect(first.listener);
    assert_eq!(beside.get("/").status, 200, "the probation would be over");
    // It goes on with what it has, and is the process again.
    kill_process(process(taker), Signal::CONT).unwrap();
    first.wait_for_log("the new process runs again");
    assert_eq!(kept.get("/").status, 200);
    until("the admin interface", || (first.metric("strait_generation") == 1.0).then_some(()));
    until("what both have counted, once", || (finished(&first) == before + 3.0).then_some(()));
    // What was accepted meanwhile drains with the old process, which stays as the first of its namespace.
    until("its end", || beside.try_get("/").is_none().then_some(()));
    assert_eq!(get(first.listener, "/").status, 200);
    assert_eq!(kept.get("/").status, 200);
    second.kill().unwrap();
    second.wait().unwrap();
}
