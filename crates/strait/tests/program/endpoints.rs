//! Endpoints in a file of their own, while the process runs.

use std::fs;

use crate::kit::{Client, Scratch, Service, Strait, forward_to, get, until};

/// A configuration whose only cluster has its endpoints in `service.yaml`.
fn config() -> String {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    forward_to(nowhere).replace("['127.0.0.1:1']", "{ file: service.yaml }")
}

fn run(endpoints: &str) -> Strait {
    let scratch = Scratch::new();
    scratch.write("service.yaml", endpoints);
    Strait::run_in(scratch, &config())
}

#[test]
fn a_file_of_endpoints_that_is_replaced_or_written_in_place_is_taken_up() {
    let [one, two, three] = ["one", "two", "three"].map(Service::start);
    let strait = run(&format!("- '{}'\n", one.address));
    let mut client = Client::connect(strait.listener);
    assert!(client.get("/").text().starts_with("one\n"));

    strait.write("new.yaml", &format!("- '{}'\n", two.address));
    fs::rename(strait.path("new.yaml"), strait.path("service.yaml")).unwrap();
    strait.wait_for_version(2);
    assert!(client.get("/").text().starts_with("two\n"));

    strait.write("service.yaml", &format!("[\"{}\"]", three.address));
    strait.wait_for_version(3);
    assert!(client.get("/").text().starts_with("three\n"));
    // The configuration itself goes on being followed, with the endpoints of now.
    strait.rewrite(&config().replace("name: all, rules", "name: all, hosts: ['*'], rules"));
    strait.wait_for_version(4);
    assert!(client.get("/").text().starts_with("three\n"));
}

#[test]
fn a_mistake_in_a_file_of_endpoints_keeps_the_list_and_is_told_until_it_is_mended() {
    let [one, two] = ["one", "two"].map(Service::start);
    let mut strait = run(&format!("- '{}'\n", one.address));
    strait.write("service.yaml", "- 10.0.0.1:80\n- 10.0.0.1:80\n");
    let logged = strait.wait_for_log("endpoints refused");
    assert!(logged.contains("the previous ones stay in use"), "{logged}");
    let last_error = |strait: &Strait| strait.config()["endpoints_files"][0]["last_error"].clone();
    let error = last_error(&strait);
    assert_eq!(error["errors"][0]["line"], 2, "{error}");
    assert_eq!(error["errors"][0]["path"], "[1]");
    assert_eq!(strait.config()["version"], 1);
    assert!(strait.config()["last_error"].is_null());
    assert!((strait.metric("strait_config_rejected_total") - 1.0).abs() < f64::EPSILON);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));

    // Another version with the same mistake is another refusal.
    strait.write("service.yaml", "- 10.0.0.1:80\n- 10.0.0.1:80\n# Another.\n");
    let again = until("the time of the other version", || {
        let again = last_error(&strait);
        (again["at"] != error["at"]).then_some(again)
    });
    assert_eq!(again["errors"], error["errors"]);
    assert!((strait.metric("strait_config_rejected_total") - 2.0).abs() < f64::EPSILON);

    // A file that is gone is the same, and the configuration can be read meanwhile.
    fs::remove_file(strait.path("service.yaml")).unwrap();
    until("the other mistake", || {
        let error = last_error(&strait).to_string();
        error.contains("there is no such file").then_some(())
    });
    strait.signal(rustix::process::Signal::HUP);
    strait.wait_for_version(2);
    assert!(get(strait.listener, "/").text().starts_with("one\n"));

    strait.write("service.yaml", &format!("- '{}'\n", two.address));
    strait.wait_for_version(3);
    assert!(last_error(&strait).is_null());
    assert!(get(strait.listener, "/").text().starts_with("two\n"));
}

#[test]
fn the_first_load_of_a_file_counts_and_its_cluster_shows_why_the_next_one_is_refused() {
    let one = Service::start("one");
    let mut strait = run(&format!("- '{}'\n", one.address));
    let file_source = |strait: &Strait| strait.admin_json("/sources")["sources"][0].clone();
    let source = file_source(&strait);
    // A file that was written a moment ago is read once more, without changes.
    let accepted = source["accepted_total"].as_u64().unwrap();
    assert!(source["name"] == "file" && accepted >= 1, "{source}");
    assert!(source["last_accepted_at"].is_string() && source["age_seconds"].is_u64(), "{source}");
    let file = strait.config()["endpoints_files"][0].clone();
    assert!(file["accepted_at"].as_str().unwrap().starts_with("20"), "{file}");
    assert_eq!((&file["version"], &file["endpoints"]), (&1.into(), &1.into()));
    assert_eq!(file["clusters"][0], "service");
    let assignment = |strait: &Strait| strait.admin_json("/config?resource=assignment/service");
    let shown = assignment(&strait);
    assert_eq!((&shown["state"], &shown["version"]), (&"active".into(), &1.into()), "{shown}");
    assert_eq!(shown["origin"]["file"], "service.yaml");
    assert_eq!(shown["referred_by"][0], "cluster/service");
    assert_eq!(shown["effective"]["endpoints"][0]["address"], one.address.to_string());
    let resources = |strait: &Strait, kind: &str, state: &str| {
        let all = strait.admin_json("/sources")["resources"].clone();
        let found =
            all.as_array().unwrap().iter().find(|it| it["kind"] == kind && it["state"] == state);
        found.unwrap()["count"].as_u64().unwrap()
    };
    assert_eq!(resources(&strait, "assignment", "active"), 1);
    assert_eq!(resources(&strait, "assignment", "refused"), 0);
    assert_eq!(resources(&strait, "secret", "active"), 0);

    strait.write("service.yaml", "- 10.0.0.1:80\n- 10.0.0.1:80\n");
    strait.wait_for_log("endpoints refused");
    let shown = assignment(&strait);
    assert_eq!((&shown["state"], &shown["version"]), (&"refused".into(), &1.into()), "{shown}");
    assert_eq!(shown["last_error"]["errors"][0]["path"], "[1]");
    let shown = strait.admin_json("/config?resource=cluster/service");
    assert_eq!(shown["state"], "active");
    assert_eq!(shown["last_error"]["errors"][0]["path"], "[1]");
    assert_eq!(resources(&strait, "assignment", "active"), 1);
    assert_eq!(resources(&strait, "assignment", "refused"), 1);
    let story = get(strait.admin, "/explain?url=%2F").text();
    assert!(story.contains("service.yaml is refused since 2"), "{story}");
    assert!(story.contains("mistakes: 1; its previous list stays in use"), "{story}");

    strait.write("service.yaml", "- 127.0.0.1:1\n");
    strait.wait_for_version(2);
    until("the mended file", || (assignment(&strait)["version"] == 2).then_some(()));
    assert!(strait.admin_json("/config?resource=cluster/service")["last_error"].is_null());
    assert!(file_source(&strait)["accepted_total"].as_u64().unwrap() > accepted);
    let missing = get(strait.admin, "/config?resource=assignment/other");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("known are: service"), "{}", missing.text());
}

#[test]
fn the_log_has_the_first_errors_of_a_file_and_says_where_the_others_are() {
    let service = Service::start("one");
    let mut strait = run(&format!("- '{}'\n", service.address));
    strait.write("service.yaml", &"- 10.0.0.1:port\n".repeat(1000));
    let place = strait.path("service.yaml").display().to_string();
    let others =
        format!("and 980 more, see `strait check {}`", strait.path("strait.yaml").display());
    strait.wait_for_log(&others);
    strait.rewrite(&"a: 1\n".repeat(1000));
    strait.wait_for_log("configuration refused");
    let log = strait.all_logged();
    assert_eq!(log.matches(&format!("{place}:")).count(), 20, "{log}");
}

#[test]
fn a_change_of_endpoints_reads_no_configuration() {
    let scratch = Scratch::new();
    scratch.write("service.yaml", "- 127.0.0.1:1000\n");
    let padding = "# Two MiB of remarks.\n".repeat(100_000);
    let strait = Strait::run_in(scratch, &(config() + &padding));
    // Bytes that the process has read, from files and others.
    let bytes_read = || {
        let io = strait.proc("io");
        let count = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        count.parse::<u64>().unwrap()
    };
    let mut version = 1;
    // At first the configuration was written a moment ago, so that its times prove nothing.
    until("a change for which little is read", || {
        let before = bytes_read();
        version += 1;
        strait.write("service.yaml", &format!("- 127.0.0.1:{}\n", 1000 + version));
        strait.wait_for_version(version);
        (bytes_read() - before < 1 << 20).then_some(())
    });
}
