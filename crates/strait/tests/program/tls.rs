//! Keys do not leave the process.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use ::tls::Version;

use crate::handover::{Successors, upgrade, upgraded, with_handover};
use crate::kit::{KEY_LOG, Scratch, Service, Strait, forward_to, get, read, strait, text, until};
use crate::tls_client::{self, TlsClient};

/// Copies of certificates of tests.
pub(crate) fn certificates() -> Scratch {
    let scratch = Scratch::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/certificates");
    for file in ["site.pem", "site.key", "site-rsa.pem", "site-rsa.key", "client.pem", "client.key"]
    {
        scratch.write(file, &read(&from.join(file)));
    }
    scratch
}

fn config(service: &Service, log: &Path) -> String {
    format!(
        "listeners:
- name: edge
  address: 127.0.0.1:0
  tls:
    certificates: [{{ chain: site.pem, key: site.key }}, {{ chain: site-rsa.pem, key: site-rsa.key }}]
  routes: all
routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: service }}] }}]
clusters:
- {{ name: service, endpoints: ['{}'] }}
- name: unused
  endpoints: ['127.0.0.1:1']
  tls: {{ server_name: a.example, ca: site.pem, certificate: {{ chain: client.pem, key: client.key }} }}
access_log: {{ output: '{}', format: json }}
",
        service.address,
        log.display()
    )
}

/// Asks over TLS, and says what came back.
fn ask(address: SocketAddr, versions: Version) -> String {
    TlsClient::connect(address, &tls_client::context(versions)).get("/")
}

/// What must not leave the process: lines of keys, as base64.
fn secrets(scratch: impl Fn(&str) -> String) -> Vec<String> {
    let files = ["site.key", "site-rsa.key", "client.key"].map(scratch);
    let lines = files.iter().flat_map(|file| file.lines());
    let secrets = lines.filter(|line| line.len() >= 16 && !line.starts_with("-----"));
    secrets.map(str::to_owned).collect()
}

#[test]
fn a_process_with_a_certificate_that_has_expired_serves_and_says_so() {
    let (service, scratch) = (Service::start("one"), certificates());
    let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
    let leaf = pki::Leaf::new(algorithm, &["shop.example.com"]);
    let put = |write: &dyn Fn(&str, &str), pair: &pki::Pair| {
        write("site.pem", &pair.chain);
        write("site.key", &pair.key);
    };
    let expired = pki::Leaf { validity: -2 * pki::HOUR..-pki::HOUR, ..leaf.clone() };
    put(&|name, text| drop(scratch.write(name, text)), &expired.self_signed());
    let tls = "tls: { certificates: [{ chain: site.pem, key: site.key }] }, routes: all }";
    let strait =
        Strait::run_in(scratch, &forward_to(service.address).replace("routes: all }", tls));
    let ready = get(strait.admin, "/ready?verbose");
    let line = "listener edge, site.pem: the certificate has expired, at ";
    assert!(ready.status == 200 && ready.text().contains(line), "{}", ready.text());
    assert!(ask(strait.listener, Version::Tls13).starts_with("HTTP/1.1 200 OK"));
    put(&|name, text| strait.write(name, text), &leaf.self_signed());
    until("the renewed one", || {
        (!get(strait.admin, "/ready?verbose").text().contains(line)).then_some(())
    });
}

#[test]
fn the_text_of_a_key_is_not_in_memory_once_it_was_read() {
    let service = Service::start("one");
    let scratch = certificates();
    let log = scratch.path("access.log");
    let config = config(&service, &log);
    let file =
        scratch.write("strait.yaml", &format!("admin: {{ address: 127.0.0.1:0 }}\n{config}"));
    // A key's file ends with its public half, which its certificate has too.
    let public: String = ["site.pem", "site-rsa.pem", "client.pem"]
        .map(|file| read(&scratch.path(file)).split_whitespace().collect::<String>())
        .concat();
    let mut keys = secrets(|file| read(&scratch.path(file)));
    keys.retain(|line| !public.contains(line));
    assert!(keys.len() > 20, "{}", keys.len());
    let strait = Strait::start(scratch, &["run", "-c", &file]);
    let none = vec![0; keys.len()];
    assert_eq!(strait.count_in_memory(&keys), none, "read once");
    // The search finds text that is there.
    assert!(strait.count_in_memory(&["service".to_owned()])[0] > 0);
    for file in ["pem", "key"] {
        strait.write(&format!("site-rsa.{file}"), &read(&strait.path(&format!("client.{file}"))));
    }
    strait.wait_for_version(2);
    assert!(ask(strait.listener, Version::Tls13).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(strait.count_in_memory(&keys), none, "and read again");
}

#[test]
fn no_key_is_in_a_log_or_on_a_page() {
    let service = Service::start("one");
    let scratch = certificates();
    let log = scratch.path("access.log");
    let config = with_handover(&scratch, &config(&service, &log), "probation: 1m");
    let file =
        scratch.write("strait.yaml", &format!("admin: {{ address: 127.0.0.1:0 }}\n{config}"));
    let printed = text(&strait(&["check", "-c", &file, "--print"]).stdout);
    let arguments = ["run", "-c", &file, "--log-level", "trace", "--tls-key-log"];
    let strait = Strait::start(scratch, &arguments);
    for version in [Version::Tls12, Version::Tls13] {
        assert!(ask(strait.listener, version).starts_with("HTTP/1.1 200 OK\r\n"), "{version}");
    }
    // Failures are logged in more detail.
    for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x00\x04\x01\x00\x00\x09", b"\x16"]
    {
        let mut socket = TcpStream::connect(strait.listener).unwrap();
        socket.write_all(wrong).unwrap();
        drop(socket);
    }
    let key = read(&strait.path("site.key"));
    strait.write("site.key", &read(&strait.path("client.key")));
    let error = strait.wait_for_error();
    assert!(error.contains("the key does not fit"), "{error}");
    strait.write("site.key", &key);
    // Keys go from one process to the other, and back.
    let mut successors = Successors::default();
    let contexts = [Version::Tls12, Version::Tls13].map(tls_client::context);
    let mut kept = contexts.each_ref().map(|it| TlsClient::connect(strait.listener, it));
    let mut shown = vec![printed, error];
    let of_processes = |pids: &[u32]| {
        let files = pids.iter().flat_map(|pid| ["environ", "cmdline"].map(|file| (*pid, file)));
        let files = files.map(|(pid, file)| format!("/proc/{pid}/{file}"));
        files.map(|path| text(&std::fs::read(path).unwrap())).collect::<Vec<_>>()
    };
    shown.push(upgraded(&strait, &mut successors));
    let of_both = of_processes(&[strait.pid(), successors.0[0]]);
    assert!(of_both.iter().all(|shown| !shown.is_empty()));
    shown.extend(of_both);
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK\r\n"));
    }
    shown.push(get(strait.admin, "/handover").text());
    let back = upgrade(&strait, &["--back"]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    shown.push(text(&back.stdout));
    for client in &mut kept {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK\r\n"));
    }
    let folder = std::fs::read_dir(strait.path("handover")).unwrap();
    let names: Vec<_> = folder.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["strait.sock"], "and nothing is written beside it");
    until("a line for each request", || (read(&log).lines().count() >= 6).then_some(()));

    shown.extend([strait.all_logged(), read(&log)]);
    for page in [
        "/",
        "/metrics",
        "/stats",
        "/slow",
        "/connections",
        "/config",
        "/clusters",
        "/listeners",
        "/handover",
    ] {
        shown.push(get(strait.admin, page).text());
    }
    let shown = shown.concat();
    assert!(shown.contains("site.key") && !shown.contains("PRIVATE KEY"));
    let keys = secrets(|file| read(&strait.path(file)));
    // Those of connections, of which each line has one at its end.
    let sessions = read(&strait.path(KEY_LOG));
    let of_sessions = sessions.lines().filter_map(|line| line.rsplit(' ').next());
    let of_sessions: Vec<String> = of_sessions.map(str::to_owned).collect();
    assert!(keys.len() > 20 && of_sessions.len() >= 5, "{} {sessions}", keys.len());
    for secret in keys.iter().chain(&of_sessions) {
        assert!(!shown.to_lowercase().contains(&secret.to_lowercase()), "{secret}");
    }
}

#[test]
fn secrets_are_written_down_only_where_that_is_asked_for() {
    let service = Service::start("one");
    let scratch = certificates();
    let config = config(&service, &scratch.path("access.log"));
    let strait = Strait::run_in(scratch, &config);
    ask(strait.listener, Version::Tls13);
    assert!(!strait.path(KEY_LOG).exists());
}

#[test]
fn core_dumps_are_off_once_there_are_keys() {
    let service = Service::start("one");
    let limit = |strait: &Strait| {
        let limits = strait.proc("limits");
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let soft = line.split_whitespace().nth(4).unwrap().to_owned();
        (soft, strait.proc("coredump_filter").trim().to_owned())
    };
    let off = ("0".to_owned(), "00000000".to_owned());
    let scratch = certificates();
    let (plain, secure) =
        (forward_to(service.address), config(&service, &scratch.path("access.log")));
    let strait = Strait::run_in(scratch, &plain);
    assert_ne!(limit(&strait).1, off.1);
    strait.rewrite(&secure);
    strait.wait_for_version(2);
    assert_eq!(limit(&strait), off);

    let scratch = certificates();
    let file =
        scratch.write("strait.yaml", &format!("admin: {{ address: 127.0.0.1:0 }}\n{secure}"));
    let strait = Strait::start(scratch, &["run", "-c", &file, "--core-dumps"]);
    assert_ne!(limit(&strait).1, off.1);
}

#[test]
fn signatures_may_be_made_by_others() {
    let service = Service::start("one");
    for signing in ["batched", "thread"] {
        let scratch = certificates();
        let config = config(&service, &scratch.path("access.log"))
            .replace("{ chain: site.pem, key: site.key }, ", "")
            .replace("key: site-rsa.key", &format!("key: site-rsa.key, signing: {signing}"));
        let strait = Strait::run_in(scratch, &config);
        let asking: Vec<_> = (0..12)
            .map(|number| {
                let (address, version) = (strait.listener, Version::ALL[number % 2]);
                std::thread::spawn(move || ask(address, version))
            })
            .collect();
        for asked in asking {
            assert!(asked.join().unwrap().starts_with("HTTP/1.1 200 OK\r\n"), "{signing}");
        }
        let metrics = get(strait.admin, "/metrics").text();
        let made = metrics.lines().filter(|line| {
            line.starts_with("strait_tls_signatures_total{how=\"inline\"")
                || line.starts_with("strait_tls_signatures_total{how=\"batched\"")
        });
        let made: u32 =
            made.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum();
        assert_eq!(made, 12, "{signing}");
    }
}

/// One file is written, and the other a little later, as certbot's hooks and copies do.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is not to happen has to be waited for")]
fn a_certificate_and_its_key_written_one_after_the_other_are_one_change_without_an_error() {
    let (service, scratch) = (Service::start("one"), certificates());
    let config = config(&service, &scratch.path("access.log"));
    let strait = Strait::run_in(scratch, &config);
    strait.write("site.pem", &read(&strait.path("client.pem")));
    let began = std::time::Instant::now();
    until("half a second", || {
        assert!(strait.config()["last_error"].is_null());
        (began.elapsed() > std::time::Duration::from_millis(500)).then_some(())
    });
    strait.write("site.key", &read(&strait.path("client.key")));
    strait.wait_for_version(2);
    assert_eq!(strait.times_logged("configuration refused"), 0, "{}", strait.all_logged());
    // The page may have it a moment before the log.
    until("the change in the log", || {
        strait.all_logged().contains("listeners ~edge").then_some(())
    });

    // A pair that stays like that is an error.
    strait.write("site.key", &read(&strait.path("site-rsa.key")));
    let error = strait.wait_for_error();
    assert!(error.contains("site.key"), "{error}");
}

/// Operators have days to mend a text, and certificates end meanwhile.
#[test]
fn renewed_certificates_are_used_while_a_later_text_is_refused_or_waits() {
    let (service, scratch) = (Service::start("one"), certificates());
    let config = config(&service, &scratch.path("access.log"));
    let (listeners, others) = config.split_once("clusters:").unwrap();
    scratch.write("more.yaml", &format!("clusters:{others}"));
    let text = format!("include: ['mor*.yaml']\n{listeners}");
    let strait = Strait::run_in(scratch, &text);
    let pair = |name: &str| {
        strait.write("site.pem", &read(&strait.path(&format!("{name}.pem"))));
        strait.write("site.key", &read(&strait.path(&format!("{name}.key"))));
    };
    for name in ["site", "client"] {
        for end in ["pem", "key"] {
            let kept = read(&strait.path(&format!("{name}.{end}")));
            strait.write(&format!("kept-{name}.{end}"), &kept);
        }
    }
    let in_use = || {
        let config = strait.config();
        let all = config["certificates"].as_array().unwrap();
        let of_site = all.iter().find(|it| it["chain"].as_str().unwrap().ends_with("site.pem"));
        of_site.unwrap()["fingerprint"].as_str().unwrap().to_owned()
    };
    let first = in_use();
    let is_empty = |key: &str| {
        let shown = strait.config()[key].clone();
        shown.is_null() || shown.as_array().is_some_and(Vec::is_empty)
    };
    let is_shown = |key: &str| (!is_empty(key)).then_some(());
    let wrong = "listeners: [".to_owned();
    let without_cluster = text.replace("cluster: service", "cluster: none");
    let resolvers = "resolvers: { servers: ['127.0.0.1:1'], initial_fetch_timeout: 1h }";
    let waiting = text.replace("include", &format!("{resolvers}\ninclude"));
    let mut expected = first.clone();
    for (name, later, sign) in [
        ("client", Some(wrong), "last_error"),
        ("site", Some(without_cluster), "last_error"),
        ("client", None, "last_error"),
        ("site", Some(waiting), "waits_for"),
    ] {
        if sign == "waits_for" {
            let later = "clusters: [{ name: later, endpoints: { dns: 'a.example:1' } }]";
            strait.write("more-later.yaml", later);
        }
        match &later {
            Some(later) => strait.rewrite(later),
            None => std::fs::remove_file(strait.path("strait.yaml")).unwrap(),
        }
        until("the later text to be refused or to wait", || is_shown(sign));
        pair(&format!("kept-{name}"));
        until("the other certificate", || (in_use() != expected).then_some(()));
        expected = in_use();
        assert_eq!(expected == first, name == "site", "{later:?}");
        assert!(is_empty("named_files_error"));
        // A pair that does not match is refused, and the one before stays in use.
        strait.write("site.key", &read(&strait.path("site-rsa.key")));
        until("the reason", || is_shown("named_files_error"));
        let error = strait.config()["named_files_error"].to_string();
        assert!(error.contains("site.key"), "{error}");
        assert_eq!(in_use(), expected);
        pair(&format!("kept-{name}"));
        until("the pair to match again", || is_empty("named_files_error").then_some(()));
        assert!(ask(strait.listener, Version::Tls13).starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(!is_empty(sign), "{}", strait.config());
        if sign == "waits_for" {
            std::fs::remove_file(strait.path("more-later.yaml")).unwrap();
        }
        strait.rewrite(&text);
        until("the text to be accepted", || is_empty(sign).then_some(()));
        assert_eq!(in_use(), expected);
    }
    assert_eq!(strait.times_logged("and are used; the text of"), 8, "{}", strait.all_logged());
}
