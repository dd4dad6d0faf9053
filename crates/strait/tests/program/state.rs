//! What sources gave last, kept in the folder `state` for a start without them.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use hickory_proto::op::ResponseCode;
use rustix::process::{Resource, Rlimit, Signal, prlimit};

use crate::dns_server::{DnsServer, Says};
use crate::handover::{Successors, ended_with, process, upgrade, upgraded, with_handover};
use crate::kit::{
    Client, Scratch, Service, Strait, WITH_A_SMALL_DISK, can_mount, claim_port, forward_to, get,
    text, until, until_within,
};

const FILE: &str = "last-good";

/// A service with two addresses, a name that leads to the first one, and a folder.
struct Names {
    dns: DnsServer,
    port: u16,
    _services: [Service; 2],
    scratch: Scratch,
}

impl Names {
    fn start() -> Self {
        let (port, dns) = (claim_port(), DnsServer::start());
        let at = |ip: [u8; 4]| SocketAddr::from((ip, port));
        let services = [
            Service::start_at("one", at([127, 0, 0, 1])),
            Service::start_at("two", at([127, 0, 0, 2])),
        ];
        dns.set_addresses("api.test", 0, &["127.0.0.1"]);
        Self { dns, port, _services: services, scratch: Scratch::new() }
    }

    fn config(&self, folder: &Path) -> String {
        let (server, port) = (self.dns.address, self.port);
        let nowhere = "127.0.0.1:1".parse().unwrap();
        let endpoints = format!("{{ dns: 'api.test:{port}', ttl_min: 100ms }}");
        let config = forward_to(nowhere).replace("['127.0.0.1:1']", &endpoints);
        let folder = folder.display();
        format!(
            "state: '{folder}'\nresolvers: {{ servers: ['{server}'], timeout: 100ms }}\n{config}"
        )
    }

    fn run(&self) -> Strait {
        Strait::run(&self.config(&self.scratch.path("state")))
    }

    fn file(&self) -> std::path::PathBuf {
        self.scratch.path("state").join(FILE)
    }

    /// Waits until a file was written that has this in it.
    fn keeps(&self, part: &str) {
        let file = self.file();
        until(&format!("{part} in {}", file.display()), || {
            fs::read_to_string(&file).is_ok_and(|text| text.contains(part)).then_some(())
        });
    }
}

#[test]
fn a_start_without_dns_serves_the_addresses_of_the_process_before() {
    let names = Names::start();
    let strait = names.run();
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    names.keeps("127.0.0.1:");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let (file, folder) = (names.file(), names.scratch.path("state"));
    assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
    // A change is written a moment later, and survives the worst end.
    names.dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    names.keeps("127.0.0.2:");
    drop(strait);

    for says in [Says::Silence, Says::Code(ResponseCode::ServFail)] {
        names.dns.set_all("api.test", &says);
        let mut strait = names.run();
        assert_eq!(strait.times_logged("no DNS answer"), 0, "it waited for DNS");
        assert!(get(strait.listener, "/").text().starts_with("two\n"));
        assert_eq!(strait.times_logged("addresses from `state` are used until"), 1);
        let shown = strait.config()["host_names"][0].clone();
        assert_eq!(shown["state"], "restored");
        let ready = get(strait.admin, "/ready?verbose");
        assert_eq!(ready.status, 200);
        assert!(ready.text().contains(": restored, answered "), "{}", ready.text());
        let stats = get(strait.admin, "/stats?filter=strait_source_*").text();
        let line = "strait_source_resources{source=\"dns\",state=\"restored\"} 1\n";
        assert!(stats.contains(line), "{stats}");
        strait.signal(Signal::TERM);
        assert!(strait.wait_for_end().success());
    }

    let strait = names.run();
    names.dns.set_addresses("api.test", 0, &["127.0.0.1"]);
    until("the service that DNS names now", || {
        get(strait.listener, "/").text().starts_with("one\n").then_some(())
    });
    assert_eq!(strait.config()["host_names"][0]["state"], "fresh");
    assert!(!get(strait.admin, "/ready?verbose").text().contains("restored"));
    names.keeps("127.0.0.1:");
}

#[test]
fn a_server_that_answers_goes_before_what_is_kept() {
    let names = Names::start();
    let strait = names.run();
    names.keeps("127.0.0.1:");
    drop(strait);
    names.dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    let strait = names.run();
    // From the first request on.
    assert!(get(strait.listener, "/").text().starts_with("two\n"));
    assert_eq!(strait.times_logged("addresses from `state` are used until"), 0);
}

#[test]
fn a_file_that_is_damaged_or_of_another_version_is_as_none_and_is_replaced() {
    let names = Names::start();
    let strait = names.run();
    names.keeps("127.0.0.1:");
    drop(strait);
    let good = fs::read(names.file()).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let other = String::from_utf8(good.clone()).unwrap().replacen("state 2 ", "state 4 ", 1);
    for (content, reason) in [
        (damaged, "the file is damaged"),
        (good[..good.len() / 2].to_vec(), "the file is damaged"),
        (Vec::new(), "the file is damaged"),
        (other.into_bytes(), "the file has the form 4, and this program reads the form 3"),
    ] {
        fs::write(names.file(), content).unwrap();
        let strait = names.run();
        assert_eq!(strait.times_logged(reason), 1, "{}", strait.all_logged());
        assert_eq!(
            strait.times_logged("last-good: the last good answers of sources are not used"),
            1
        );
        assert!(get(strait.listener, "/").text().starts_with("one\n"));
        names.keeps("127.0.0.1:");
    }
}

#[test]
fn what_cannot_be_read_has_a_hint_that_helps_and_stands_on_the_pages_until_another_is_written() {
    let names = Names::start();
    let (link, file) = (names.scratch.path("link"), names.scratch.write("file", ""));
    fs::create_dir(&link).unwrap();
    std::os::unix::fs::symlink(&file, link.join("last-good")).unwrap();
    let open = names.scratch.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for (folder, hint, is_replaced) in [
        (link, "it is a symbolic link, and those are not followed: remove it", true),
        (file.into(), "name a folder in `state`, and not a file", false),
        (open, "use a subfolder, which Strait creates for this process alone", false),
    ] {
        let strait = Strait::run(&names.config(&folder));
        // What is seen by looking at the folder is said of the configuration, too.
        let of_start = format!("{hint}. The process starts without it");
        assert_eq!(strait.times_logged(&of_start), 1, "{}", strait.all_logged());
        assert!((strait.metric("strait_state_read_failures_total") - 1.0).abs() < f64::EPSILON);
        let state = || strait.admin_json("/sources")["state"].clone();
        if is_replaced {
            until("a file in its place", || state()["last_error"].is_null().then_some(()));
            continue;
        }
        assert!(state()["last_error"].is_string(), "{}", state());
        let ready = get(strait.admin, "/ready?verbose").text();
        assert!(ready.contains(hint), "{ready}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_reported_and_everything_serves() {
    let names = Names::start();
    let file = names.scratch.write("file", "");
    let folder = Path::new(&file).join("state");
    let mut strait = Strait::run(&names.config(&folder));
    strait.wait_for_log("the last answers of sources cannot be written: ");
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    until("a failure that is counted", || {
        (strait.metric("strait_state_write_failures_total") > 0.0).then_some(())
    });
    let shown = strait.admin_json("/sources")["state"].clone();
    assert!(shown["last_error"].is_string(), "{shown}");
    assert!(get(strait.admin, "/ready?verbose").text().contains("/file/state cannot be written: "));
    assert_eq!(get(strait.admin, "/ready").status, 200);
}

#[test]
fn a_disk_without_room_leaves_the_file_of_before_and_everything_serves() {
    let names = Names::start();
    let strait = names.run();
    names.keeps("127.0.0.1:");
    drop(strait);
    let good = fs::read(names.file()).unwrap();
    // No file may grow, and that is an error as that of a full disk is.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let config = names.config(&names.scratch.path("state"));
    let mut strait = Strait::run_by(script, Stdio::null(), &[], &config);
    strait.wait_for_log("the last answers of sources cannot be written: ");
    names.dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    until("the service that DNS names now", || {
        get(strait.listener, "/").text().starts_with("two\n").then_some(())
    });
    assert_eq!(strait.times_logged("the last answers of sources cannot be written: "), 1);
    assert_eq!(fs::read(names.file()).unwrap(), good);
    assert_eq!(fs::read_dir(names.scratch.path("state")).unwrap().count(), 1, "nothing is left");
}

#[test]
fn a_full_disk_leaves_the_file_of_before_until_it_has_room() {
    let names = Names::start();
    let folder = names.scratch.path("state");
    fs::create_dir(&folder).unwrap();
    if !can_mount(&folder) {
        return;
    }
    let variables = [("DISK", folder.to_str().unwrap())];
    let config = names.config(&folder);
    let mut strait = Strait::run_by(WITH_A_SMALL_DISK, Stdio::null(), &variables, &config);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    let disk = format!("/proc/{}/root{}", strait.pid(), folder.display());
    let (file, filler) = (format!("{disk}/{FILE}"), format!("{disk}/filler"));
    let kept = |address: &str| {
        // It is tried again ten seconds later.
        until_within(30, &format!("{address} in {file}"), || {
            fs::read_to_string(&file).ok().filter(|text| text.contains(address))
        })
    };
    let good = kept("127.0.0.1:");
    let full = fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    names.dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    strait.wait_for_log("the last answers of sources cannot be written: ");
    until("the service that DNS names now", || {
        get(strait.listener, "/").text().starts_with("two\n").then_some(())
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    let shown = strait.admin_json("/sources")["state"]["last_error"].clone();
    assert!(shown.as_str().is_some_and(|it| it.contains("No space left")), "{shown}");
    fs::remove_file(&filler).unwrap();
    kept("127.0.0.2:");
}

#[test]
fn a_disk_without_room_refuses_an_upgrade_until_it_has_some() {
    let (names, mut successors) = (Names::start(), Successors::default());
    let script = "trap '' XFSZ; ulimit -S -f 0; exec \"$0\" \"$@\"";
    let config = names.config(&names.scratch.path("state"));
    let config = with_handover(&names.scratch, &config, "probation: 0s");
    let mut strait = Strait::run_by(script, Stdio::null(), &[], &config);
    strait.wait_for_log("the last answers of sources cannot be written: ");
    let output = upgrade(&strait, &[]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the new process would start without them"), "{error}");
    assert!(error.contains("free disk space"), "{error}");
    ended_with(&strait, "rolled_back");
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    let pid = Some(process(strait.pid()));
    let room = Rlimit { current: None, maximum: None };
    prlimit(pid, Resource::Fsize, room).unwrap();
    upgraded(&strait, &mut successors);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
}

#[test]
fn a_process_that_takes_over_while_dns_is_silent_has_what_the_other_one_learnt_last() {
    let (names, mut successors) = (Names::start(), Successors::default());
    let scratch = Scratch::new();
    let state = scratch.path("state");
    let config = with_handover(&scratch, &names.config(&state), "probation: 0s");
    let mut strait = Strait::run_in(scratch, &config);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    names.dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    until("the service that DNS names now", || {
        get(strait.listener, "/").text().starts_with("two\n").then_some(())
    });
    names.dns.set_all("api.test", &Says::Silence);
    upgraded(&strait, &mut successors);
    assert!(strait.wait_for_end().success());
    until("the service that the former process knew", || {
        get(strait.listener, "/").text().starts_with("two\n").then_some(())
    });
    assert_eq!(strait.config()["host_names"][0]["state"], "restored");
    for kind in ["assignment", "cluster"] {
        let shown = strait.admin_json(&format!("/config?resource={kind}/service"));
        assert_eq!(shown["host_names"][0]["state"], "restored", "{shown}");
    }
    // It writes the file from now on.
    names.dns.set_addresses("api.test", 0, &["127.0.0.1"]);
    until("127.0.0.1 in the file", || {
        let text = fs::read_to_string(state.join(FILE)).ok()?;
        text.contains("127.0.0.1:").then_some(())
    });
    until("the service that DNS names again", || {
        get(strait.listener, "/").text().starts_with("one\n").then_some(())
    });
}

#[test]
fn without_a_folder_a_process_that_takes_over_while_dns_is_silent_has_the_addresses_too() {
    let (names, mut successors) = (Names::start(), Successors::default());
    let scratch = Scratch::new();
    let config = names.config(&scratch.path("state"));
    let (_, config) = config.split_once('\n').unwrap();
    let config = config.replacen("timeout: 100ms", "timeout: 100ms, initial_fetch_timeout: 1s", 1);
    let config = with_handover(&scratch, &config, "probation: 0s");
    let mut strait = Strait::run_in(scratch, &config);
    let mut client = Client::connect(strait.listener);
    assert!(client.get("/").text().starts_with("one\n"));
    names.dns.set_all("api.test", &Says::Silence);
    upgraded(&strait, &mut successors);
    assert!(strait.wait_for_end().success());
    // From the first request on, of connections that have moved as well.
    assert!(client.get("/").text().starts_with("one\n"));
    assert!(get(strait.listener, "/").text().starts_with("one\n"));
    assert_eq!(strait.config()["host_names"][0]["state"], "restored");
    // And so does the next.
    upgraded(&strait, &mut successors);
    assert!(client.get("/").text().starts_with("one\n"));
    names.dns.set_addresses("api.test", 0, &["127.0.0.2"]);
    until("the service that DNS names then", || {
        get(strait.listener, "/").text().starts_with("two\n").then_some(())
    });
}
