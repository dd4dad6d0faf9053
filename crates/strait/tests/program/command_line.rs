//! The commands of the program that serve nothing.

use std::io::Write as _;
use std::path::Path;

use crate::kit::{Scratch, strait, text};

const SHOP: &str = include_str!("../../../../examples/shop.yaml");

fn shop() -> (Scratch, String) {
    let scratch = Scratch::new();
    let file = scratch.write("strait.yaml", SHOP);
    (scratch, file)
}

#[test]
fn help_names_every_command() {
    let output = strait(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    for command in
        ["run", "check", "explain", "top", "ready", "schema", "demo", "completions", "man"]
    {
        assert!(help.contains(&format!("\n  {command} ")), "{command} in {help}");
        assert!(strait(&[command, "--help"]).status.success(), "{command} --help");
    }
}

#[test]
fn wrong_arguments_end_with_status_2_and_go_to_standard_error() {
    for arguments in
        [&[][..], &["run"], &["fly"], &["check", "-c", "x", "--prnt"], &["demo", "--listen", "x"]]
    {
        let output = strait(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_symbolic_link_to_nothing_is_named_wherever_a_file_is_read() {
    let (scratch, file) = shop();
    let link = scratch.path("link.yaml");
    std::os::unix::fs::symlink("gone/x.yaml", &link).unwrap();
    let link = link.to_str().unwrap();
    let reason = format!("{link} is a symbolic link to gone/x.yaml, which does not exist");
    let plain = std::fs::read_to_string(&file).unwrap();
    let included = scratch.write("included.yaml", &format!("include: [link.yaml]\n{plain}"));
    let endpoints = plain.replacen("endpoints: [", "endpoints: { file: link.yaml } # [", 1);
    assert_ne!(endpoints, plain);
    let endpoints = scratch.write("endpoints.yaml", &endpoints);
    for config in [link, &included, &endpoints] {
        let output = strait(&["check", "-c", config]);
        assert_eq!(output.status.code(), Some(1), "{config}");
        assert!(text(&output.stderr).contains(&reason), "{config}: {}", text(&output.stderr));
    }
}

#[test]
fn a_limit_of_no_lines_is_refused_with_what_to_give() {
    for (limit, hint) in
        [("0", "at least 1; for all lines, give a large number"), ("x", "a number of lines")]
    {
        let output = strait(&["top", "--once", "--limit", limit]);
        assert_eq!(output.status.code(), Some(2), "{limit}");
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
}

#[test]
fn a_right_file_is_counted_and_printed_in_full() {
    let (scratch, file) = shop();
    let output = strait(&["check", "-c", &file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        format!("{file}: ok (1 listener, 1 route table, 2 clusters)\n")
    );

    let printed = text(&strait(&["check", "-c", &file, "--print"]).stdout);
    assert!(printed.contains("drain_timeout: 30s"), "{printed}");
    let again = scratch.write("again.yaml", &printed);
    assert!(strait(&["check", "-c", &again]).status.success());
    assert_eq!(text(&strait(&["check", "-c", &again, "--print"]).stdout), printed);
}

/// What `strait check` says of a text on standard input.
fn check_input(input: &str, arguments: &[&str]) -> std::process::Output {
    with_input(input, &[&["check", "-c", "-"], arguments].concat())
}

fn with_input(input: &str, arguments: &[&str]) -> std::process::Output {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_strait"))
        .args(arguments)
        .env("SHOP_PORT", "9000")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

const LISTENS: &str = "listeners: [{ name: a, address: '127.0.0.1:80', routes: r }]\n\
    routes: [{ name: r, rules: [{ match: { prefix: / }, cluster: c }] }]\n";

#[test]
fn a_file_comes_from_standard_input_with_variables_of_the_environment() {
    let clusters = "clusters: [{ name: c, endpoints: ['127.0.0.1:${SHOP_PORT}'] }]";
    let output = check_input(&format!("{LISTENS}{clusters}"), &["--print"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("127.0.0.1:9000"));
    let output =
        check_input(&format!("{LISTENS}{}", clusters.replace("SHOP_PORT", "NO_PORT")), &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("/dev/stdin:3:35: clusters[0].endpoints[0]"), "{said}");
    assert!(said.contains("the environment has no variable NO_PORT; set it"), "{said}");
    let input = format!("{LISTENS}{clusters}");
    let output = with_input(&input, &["explain", "-c", "-", "GET", "http://a.test/x"]);
    assert!(text(&output.stdout).contains("cluster c"), "{}", text(&output.stderr));
}

#[test]
fn warnings_are_denied_where_that_is_asked_for() {
    let warned = format!("{LISTENS}clusters: [{{ name: c, endpoints: [] }}]");
    assert!(check_input(&warned, &[]).status.success());
    let output = check_input(&warned, &["--deny-warnings"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).ends_with("1 warning, and --deny-warnings\n"));
    let clean = format!("{LISTENS}clusters: [{{ name: c, endpoints: ['127.0.0.1:9000'] }}]");
    assert!(check_input(&clean, &["--deny-warnings"]).status.success());
}

#[test]
fn findings_are_printed_as_json_with_fields_of_their_own() {
    let json = |input: &str, arguments: &[&str]| {
        let output = check_input(input, arguments);
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        let found: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), found)
    };
    let as_json = ["--format", "json"];
    let empty = format!("{LISTENS}clusters: [{{ name: c, endpoints: [] }}]");
    let (code, found) = json(&empty, &as_json);
    assert_eq!(code, Some(0));
    let expected = serde_json::json!({
        "file": "/dev/stdin", "line": 3, "column": 34, "path": "clusters[0].endpoints",
        "level": "warning", "rule": "every request for this cluster gets 503",
        "message": "every request for this cluster gets 503", "hint": "add an endpoint",
    });
    assert_eq!(found, [expected]);
    let (code, _) = json(&empty, &["--format", "json", "--deny-warnings"]);
    assert_eq!(code, Some(1));
    let (code, found) = json(&empty.replace("cluster: c", "cluster: d"), &as_json);
    assert_eq!((code, found.len()), (Some(1), 1));
    assert_eq!(found[0]["level"], "error");
    assert_eq!(found[0]["message"], "\"d\": no cluster has this name");
    let clean = empty.replace("[] }", "['127.0.0.1:9000'] }");
    assert_eq!(json(&clean, &as_json), (Some(0), Vec::new()));
    let output = strait(&["check", "-c", "/nowhere.yaml", "--format", "json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found[0]["level"]), (Some(1), &"error".into()));
}

#[test]
fn all_mistakes_of_a_file_are_reported_with_their_places() {
    let scratch = Scratch::new();
    let wrong = SHOP
        .replace("cluster: api", "cluster: apj")
        .replace("x-edge: strait", "te: trailers")
        .replace("connect_timeout: 500ms", "connect_timeout: 500");
    let file = scratch.write("strait.yaml", &wrong);
    let output = strait(&["check", "-c", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let errors = text(&output.stderr);
    for part in [
        "listeners[0].filters[0].headers.request.set.te: ",
        "routes[0].rules[1].cluster: \"apj\": ",
        "did you mean `api`?",
        "clusters[0].connect_timeout: ",
    ] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
    let line = wrong.lines().position(|line| line.contains("apj")).unwrap() + 1;
    assert!(errors.contains(&format!("strait.yaml:{line}:")), "{errors}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for command in ["check", "run"] {
        let output = strait(&[command, "-c", "/nonexistent/strait.yaml"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("/nonexistent/strait.yaml: cannot be read"));
    }
}

#[test]
fn the_help_says_what_a_second_signal_does() {
    for page in [strait(&["run", "--help"]), strait(&["man"])] {
        let page = text(&page.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("during that time ends the delay"), "{page}");
    }
}

#[test]
fn an_access_log_that_cannot_be_opened_is_refused_by_a_check_as_by_a_start() {
    let scratch = Scratch::new();
    let output = scratch.path("missing/access.log").display().to_string();
    let file =
        scratch.write("strait.yaml", &format!("{SHOP}\naccess_log: {{ output: {output} }}\n"));
    let refused = ["check", "run"].map(|command| {
        let output = strait(&[command, "-c", &file]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        text(&output.stderr)
    });
    for said in &refused {
        assert!(said.contains("cannot be opened for appending"), "{said}");
        assert!(said.contains(": access_log.output: "), "{said}");
    }
    let lines = |said: &str| {
        said.lines().filter(|it| it.contains("access")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&refused[0]), lines(&refused[1]));
    std::fs::create_dir(scratch.path("missing")).unwrap();
    assert!(strait(&["check", "-c", &file, "--deny-warnings"]).status.success());
    assert!(!scratch.path("missing/access.log").exists());
}

#[test]
fn explain_says_why_a_cluster_has_no_endpoints_and_that_a_request_has_no_host() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "strait.yaml",
        "listeners: [{ name: edge, address: '127.0.0.1:8080', routes: all }]
routes:
- { name: all, hosts: [shop.example], rules: [{ match: { prefix: / }, cluster: web }] }
clusters: [{ name: web, endpoints: [] }]
",
    );
    let tell = |url: &str| {
        let output = strait(&["explain", "-c", &file, "GET", url]);
        text(&output.stdout) + &text(&output.stderr)
    };
    let shown = tell("http://shop.example/");
    assert!(shown.contains("\nendpoint  none: the cluster lists no endpoint"), "{shown}");
    assert!(shown.contains("503, cause no_endpoint (the cluster lists no endpoint)"), "{shown}");
    let shown = tell("/x");
    assert!(shown.contains("GET host (none; give one as -H 'Host: NAME') path /x"), "{shown}");
    assert!(shown.contains("all: skipped, the request has no host (shop.example)"), "{shown}");
    let shown = tell("shop.example");
    assert!(shown.contains("write http://shop.example, or https://shop.example"), "{shown}");
}

#[test]
fn warnings_leave_a_file_right() {
    let scratch = Scratch::new();
    let spare = "\n  - { name: spare, endpoints: ['127.0.0.1:1'] }\n";
    let file = scratch.write("strait.yaml", &format!("{}{spare}", SHOP.trim_end()));
    let output = strait(&["check", "-c", &file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("warning: "), "{}", text(&output.stderr));
}

#[test]
fn explain_shows_the_way_of_a_request_and_what_was_passed_over() {
    let (_scratch, file) = shop();
    let tell = |arguments: &[&str]| {
        let output = strait(&[&["explain", "-c", &file], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for (arguments, parts) in [
        (
            &["GET", "http://shop.example/api/x", "-H", "x-canary: 1"][..],
            &[
                "listener  edge (127.0.0.1:8080), the only one\n",
                "request   GET host shop.example path /api/x\n",
                "filter    headers: continues\n",
                "rule 0    path /healthz -> respond 200: skipped, the path is another one\n",
                "rule 1    prefix /api/ -> cluster api: matches\n",
                "endpoint  127.0.0.1:9001 (weight 2, 66.7 % of requests)\n",
                "rule 2    prefix / -> cluster web: not reached, though it would match\n",
                "outcome   forwarded to cluster api, this time 127.0.0.1:900",
            ][..],
        ),
        (
            &["GET", "http://a:8080/x/../healthz"],
            &["which has the URL's port", "path /healthz\n", "Strait replies with 200\n"],
        ),
        // Which of two mistakes is found first is the decoder's business.
        (
            &["GET", "/", "-H", "a : b"],
            &["is refused: ", "Strait replies with 400, cause request_"],
        ),
        (
            &["GET", "http://a/", "-H", "a : b"],
            &["with 400, cause request_invalid (white space before a colon: a : b)\n"],
        ),
        (
            &["GET", "http://a/", "-H", "connection: upgrade", "-H", "upgrade: h2c"],
            &["upgrade   h2c is not among the rule's upgrades"],
        ),
        (
            &["GET", "http://a/", "-H", "connection: upgrade", "-H", "upgrade: websocket"],
            &["upgrade   websocket is allowed"],
        ),
    ] {
        let story = tell(arguments);
        for part in parts {
            assert!(story.contains(part), "{part:?} in {story}");
        }
    }
}

#[test]
fn explain_names_the_cause_of_a_refusal_also_where_a_page_or_http2_hides_it() {
    let scratch = Scratch::new();
    for protocol in ["http1", "http2"] {
        let file = scratch.write(
            "strait.yaml",
            &format!(
                "listeners: [{{ name: edge, address: '127.0.0.1:8080', protocol: {protocol}, routes: all }}]
routes:
  - name: all
    hosts: [a]
    rules: [{{ match: {{ prefix: /empty }}, cluster: empty }}, {{ match: {{ prefix: /own }}, respond: {{ status: 503 }} }}]
    error_pages: [{{ status: [4xx, 5xx], body: {} }}]
clusters: [{{ name: empty, endpoints: [] }}]
",
                // More than is sent at once.
                "sorry ".repeat(10_000)
            ),
        );
        for (path, outcome) in [
            ("/other", "404, cause no_route\n"),
            ("/empty", "503, cause no_endpoint (the cluster lists no endpoint)\n"),
            ("/own", "503\n"),
        ] {
            let story = strait(&["explain", "-c", &file, "GET", &format!("http://a{path}")]);
            let story = text(&story.stdout);
            let outcome = format!("outcome   Strait replies with {outcome}");
            assert!(story.ends_with(&outcome), "{outcome} in {story}");
        }
    }
}

#[test]
fn explain_says_which_share_of_requests_counts() {
    let scratch = Scratch::new();
    let config = |runtime: &str| {
        format!(
            "{runtime}
listeners: [{{ name: edge, address: '127.0.0.1:8080', routes: all }}]
routes: [{{ name: all, rules: [{{ match: {{ prefix: /, fraction: {{ percent: 10, runtime: canary }} }}, respond: {{}} }}, {{ match: {{ prefix: / }}, respond: {{}} }}] }}]
"
        )
    };
    for (runtime, line) in [
        ("runtime: { canary: 5 }", "fraction  5%, as the file says of runtime canary\n"),
        ("", "fraction  10%, since runtime canary has no value\n"),
        (
            "runtime: { canary: 0 }",
            "fraction 10% or runtime canary does not match: the random number 0%, and 0%, as the file says of runtime canary\n",
        ),
    ] {
        let file = scratch.write("strait.yaml", &config(runtime));
        let story = text(&strait(&["explain", "-c", &file, "GET", "http://a/"]).stdout);
        assert!(story.contains(line), "{story}");
    }
}

#[test]
fn explain_takes_the_clients_address_for_rules_and_chains_by_source() {
    let scratch = Scratch::new();
    let config = "
listeners:
  - name: edge
    address: 127.0.0.1:0
    chains:
      - { name: inner, match: { sources: [10.0.0.0/8] }, routes: inner }
    routes: outer
routes:
  - { name: inner, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }
  - name: outer
    rules:
      - { match: { prefix: /, sources: ['2001:db8::/32'] }, respond: { status: 201 } }
      - { match: { prefix: / }, respond: { status: 200 } }
";
    let file = scratch.write("strait.yaml", config);
    for (from, said) in [
        (&["--from", "10.1.2.3"][..], "status 204"),
        (&["--from", "::ffff:10.1.2.3"], "status 204"),
        (&["--from", "2001:db8::1"], "status 201"),
        (&["--from", "192.0.2.1"], "status 200"),
        (&[], "status 200"),
    ] {
        let output = strait(&[&["explain", "-c", &file], from, &["GET", "http://a/"]].concat());
        let story = text(&output.stdout);
        let outcome = story.lines().last().unwrap_or_default();
        assert!(outcome.contains(&said.replace("status ", "")), "{from:?}: {story}");
    }
}

#[test]
fn explain_has_the_outcome_of_the_chain_that_the_destination_chooses() {
    let scratch = Scratch::new();
    let config = "
listeners:
  - name: edge
    address: ['127.0.0.1:8111', '127.0.0.1:8112', '0.0.0.0:8113']
    chains:
      - { name: by-port, match: { destination_ports: [8112] }, routes: two }
      - { name: by-address, match: { destinations: [127.0.0.9] }, routes: three }
    routes: one
  - name: proxied
    address: ['127.0.0.1:8114', '127.0.0.1:8115']
    proxy_protocol: { from: [192.0.2.0/24] }
    chains: [{ name: proxied-by-port, match: { destination_ports: [8115] }, routes: two }]
    routes: one
  - name: outbound
    address: 127.0.0.1:8116
    original_destination: redirect
    chains: [{ name: to-itself, match: { destination_ports: [8116] }, routes: two }]
    routes: one
  - name: dual
    address: ['0.0.0.0:8117', '[::]:8117', '[::]:8118', '0.0.0.0:8118']
    chains:
      - { name: v6, match: { destinations: ['2001:db8::/32'] }, routes: two }
      - { name: v4, match: { destinations: [10.0.0.0/8] }, routes: three }
    routes: one
routes:
  - { name: one, rules: [{ match: { prefix: / }, respond: { status: 201 } }] }
  - { name: two, rules: [{ match: { prefix: / }, respond: { status: 202 } }] }
  - { name: three, rules: [{ match: { prefix: / }, respond: { status: 203 } }] }
";
    let file = scratch.write("strait.yaml", config);
    for (from, url, chain, status) in [
        (&[][..], "http://127.0.0.1:8111/", "none matches", 201),
        (&[], "http://127.0.0.1:8112/", "by-port: matches", 202),
        (&[], "http://a:8113/", "none matches", 201),
        (&[], "http://127.0.0.9:8113/", "by-address: matches", 203),
        (&["--from", "10.1.2.3"], "http://127.0.0.1:8115/", "proxied-by-port: matches", 202),
        (&["--from", "2001:db8::1"], "http://127.0.0.1:8115/", "proxied-by-port: matches", 202),
        (&["--from", "10.1.2.3"], "http://127.0.0.1:8114/", "none matches", 201),
        (&[], "http://127.0.0.1:8116/", "original destination is not known here", 201),
        (&[], "http://[2001:db8::1]:8117/", "v6: matches", 202),
        (&[], "http://10.1.1.1:8117/", "v4: matches", 203),
        (&[], "http://[2001:db8::1]:8118/", "v6: matches", 202),
        (&[], "http://10.1.1.1:8118/", "v4: matches", 203),
        (&[], "http://[::ffff:10.1.1.1]:8118/", "v4: matches", 203),
        (&["--listener", "dual"], "http://[2001:db8::1]/", "v6: matches", 202),
    ] {
        let output = strait(&[&["explain", "-c", &file], from, &["GET", url]].concat());
        let story = text(&output.stdout);
        let outcome = story.lines().last().unwrap_or_default();
        assert!(story.contains(chain) && outcome.contains(&status.to_string()), "{url}: {story}");
    }
}

#[test]
fn explain_compares_the_fields_that_strait_sets_and_not_those_that_it_removes() {
    let scratch = Scratch::new();
    let config = "
listeners:
  - { name: edge, address: '127.0.0.1:8081', routes: all, http: { request_id: true, via: edge } }
  - { name: strict, address: '127.0.0.1:8082', routes: all, http: { headers_with_underscores: refuse } }
  - { name: behind, address: '127.0.0.1:8083', routes: by-source, http: { trusted_hops: 1 } }
  - { name: redirected, address: '127.0.0.1:8084', routes: all, original_destination: redirect }
routes:
  - name: by-source
    rules:
      - { match: { prefix: /, sources: [10.7.7.7/32] }, respond: { status: 201 } }
      - { match: { prefix: / }, respond: { status: 200 } }
  - name: all
    rules:
      - { match: { path: /proto, headers: { x-forwarded-proto: http } }, respond: { status: 201 } }
      - { match: { path: /for, headers: { x-forwarded-for: 10.1.2.3 } }, respond: { status: 202 } }
      - { match: { path: /port, headers: { x-forwarded-port: '8081' } }, respond: { status: 203 } }
      - { match: { path: /redirected, headers: { x-forwarded-port: '8084' } }, respond: { status: 204 } }
      - { match: { path: /via, headers: { via: { present: true } } }, respond: { status: 205 } }
      - { match: { path: /id, headers: { x-request-id: mine } }, respond: { status: 206 } }
      - { match: { path: /real, headers: { x-real-ip: 1.2.3.4 } }, respond: { status: 207 } }
      - { match: { path: /cert, headers: { x-forwarded-client-cert: x } }, respond: { status: 208 } }
      - { match: { prefix: / }, respond: { status: 200 } }
";
    let file = scratch.write("strait.yaml", config);
    for (path, header, status) in [
        ("/proto", "a: b", 201),
        ("/proto", "x-forwarded-proto: https", 201),
        ("/for", "x-forwarded-for: 10.1.2.3", 202),
        ("/for", "x-forwarded-for: 10.9.9.9", 202),
        ("/port", "a: b", 203),
        ("/redirected", "a: b", 204),
        ("/via", "a: b", 205),
        ("/id", "x-request-id: mine", 200),
        ("/real", "x-real-ip: 1.2.3.4", 200),
        ("/cert", "x-forwarded-client-cert: x", 200),
    ] {
        let port = if path == "/redirected" { 8084 } else { 8081 };
        let url = format!("http://127.0.0.1:{port}{path}");
        let asked = ["explain", "-c", &file, "--from", "10.1.2.3", "GET", &url, "-H", header];
        let story = text(&strait(&asked).stdout);
        let step = format!("respond {status}: matches");
        let outcome = story.lines().last().unwrap_or_default();
        assert!(
            story.contains(&step) && outcome.contains(&status.to_string()),
            "{path} {header}: {story}"
        );
    }
    let asked = ["explain", "-c", &file, "GET", "http://127.0.0.1:8082/", "-H", "a_b: c"];
    let story = text(&strait(&asked).stdout);
    assert!(story.contains("header field with `_`, which the listener refuses"), "{story}");
    assert!(!story.contains("matches"), "{story}");
    let named = "x-forwarded-for: 10.7.7.7";
    let asked = ["explain", "-c", &file, "GET", "http://127.0.0.1:8083/", "-H", named];
    let story = text(&strait(&asked).stdout);
    assert!(story.contains("respond 201: matches") && story.ends_with("with 201\n"), "{story}");
}

#[test]
fn explain_says_what_it_does_not_know_of_where_a_connection_comes_from() {
    let scratch = Scratch::new();
    let config = "
listeners:
  - name: edge
    address: 127.0.0.1:0
    proxy_protocol: { from: [192.0.2.0/24] }
    chains:
      - { name: balancer, match: { direct_sources: [192.0.2.0/30], source_type: external }, routes: r }
      - { name: here, match: { direct_sources: [192.0.2.0/30], source_type: local }, routes: r }
      - { name: low, match: { direct_sources: [192.0.2.0/30], source_type: local, source_ports: [1023] }, routes: r }
routes:
  - { name: r, rules: [{ match: { prefix: / }, respond: { status: 204 } }] }
";
    let file = scratch.write("strait.yaml", config);
    let no_port = "the client's port is not known, so no chain with `source_ports` matches";
    let direct = "for `direct_sources`, the PROXY header comes from 192.0.2.0";
    let no_address = "the client's address is not known, so no chain with `source_type` matches: add --from ADDRESS";
    for (from, said) in [
        (&["--from", "10.1.2.3"][..], &["balancer: matches plain HTTP", no_port, direct][..]),
        (&["--from", "127.0.0.9"], &["here: matches plain HTTP", no_port, direct]),
        (&[], &[no_address, "no chain matches it"]),
    ] {
        let output = strait(&[&["explain", "-c", &file], from, &["GET", "http://a/"]].concat());
        let story = text(&output.stdout);
        said.iter().for_each(|said| assert!(story.contains(said), "{from:?}: {story}"));
    }
}

#[test]
fn explain_shows_how_a_request_is_rewritten() {
    let scratch = Scratch::new();
    let config = "
listeners: [{ name: edge, address: 127.0.0.1:0, routes: all }]
routes:
  - name: all
    rules:
      - { match: { prefix: /a/ }, cluster: web, rewrite: { prefix: /v2/, host: web.internal } }
      - { match: { prefix: /b/ }, cluster: web, rewrite: { regex: '^/b/([0-9]+)', with: '/c?of=\\1', host_header: x-host } }
      - { match: { template: '/items/{id}' }, cluster: web, rewrite: { template: '/by/{id}', host_endpoint: true } }
      - { match: { prefix: / }, clusters: [{ cluster: web, rewrite: { host: other.internal } }] }
clusters: [{ name: web, endpoints: ['127.0.0.1:9000'] }]
";
    let file = scratch.write("strait.yaml", config);
    for (path, said) in [
        ("/a/x", "rewrite   the prefix becomes /v2/, the host becomes web.internal"),
        ("/b/7", "rewrite   ^/b/([0-9]+) becomes /c?of=\\1, the host becomes that in x-host"),
        ("/items/7", "rewrite   the path becomes /by/{id}, the host becomes that of the endpoint"),
        ("/c", "share     web, weight 1 (100.0 % of requests), the host becomes other.internal"),
    ] {
        let story = strait(&["explain", "-c", &file, "GET", &format!("http://a{path}")]);
        let story = text(&story.stdout);
        assert!(story.contains(said), "{said}: {story}");
    }
}

#[test]
fn explain_shows_how_header_fields_are_edited() {
    let scratch = Scratch::new();
    let config = "
listeners: [{ name: edge, address: '127.0.0.1:8080', routes: all }]
routes:
- name: all
  headers: { response: { remove: [x-powered-by] } }
  rules:
  - match: { prefix: /a }
    clusters: [{ cluster: one, headers: { request: { append: { x-one: '1' } } } }, { cluster: two, headers: { request: { append: { x-two: '2' } } } }]
    sticky: { header: x-user }
    headers: { request: { set: { x-client: '%DOWNSTREAM_REMOTE_ADDRESS%', authorization: Basic 0 } } }
  - { match: { prefix: / }, respond: {} }
clusters: [{ name: one, endpoints: ['127.0.0.1:9000'] }, { name: two, endpoints: ['127.0.0.1:9001'] }]
";
    let file = scratch.write("strait.yaml", config);
    let lines = |arguments: &[&str]| -> Vec<String> {
        let output = strait(&[&["explain", "-c", &file, "GET"], arguments].concat());
        let story = text(&output.stdout);
        let of_edits = story.lines().filter_map(|line| line.strip_prefix("headers   "));
        of_edits.map(str::to_owned).collect()
    };
    let of_rule = "request: x-client is set to \"%DOWNSTREAM_REMOTE_ADDRESS%\", by the rule";
    let of_table = "response: x-powered-by is removed, by the table";
    assert_eq!(lines(&["http://a/"]), [of_table]);
    let all = lines(&["http://a/a"]);
    assert_eq!(
        all[..2],
        [1, 2].map(|n| {
            let name = if n == 1 { "one" } else { "two" };
            format!("request: x-{name} is appended as \"{n}\", by cluster {name}")
        })
    );
    assert!(
        all[2].starts_with("request: authorization is set to ") && !all[2].contains("Basic"),
        "{all:?}"
    );
    assert_eq!(all[3..], [of_rule, of_table]);
    assert_eq!(lines(&["http://a/a", "-H", "x-user: 1"]).len(), 4, "a value decides");
}

#[test]
fn explain_shows_that_a_connection_goes_to_its_original_destination() {
    let scratch = Scratch::new();
    let config = "
listeners:
  - { name: outbound, address: 127.0.0.1:15001, original_destination: redirect, routes: all }
  - { name: direct, address: 127.0.0.1:8080, routes: all }
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: onward }] }]
clusters: [{ name: onward, original_destination: true }]
";
    let file = scratch.write("strait.yaml", config);
    for (listener, outcome) in [
        ("outbound", "outcome   forwarded to the original destination\n"),
        ("direct", "outcome   Strait replies with 503, cause no_original_destination\n"),
    ] {
        let output = strait(&["explain", "-c", &file, "--listener", listener, "GET", "http://a/"]);
        let story = text(&output.stdout);
        assert!(
            story.contains("endpoint  the original destination of the connection\n"),
            "{story}"
        );
        assert!(story.ends_with(outcome), "{story}");
    }
}

#[test]
fn explain_names_the_cluster_of_the_rule_also_where_another_has_its_address() {
    let scratch = Scratch::new();
    let config = "
listeners: [{ name: edge, address: '127.0.0.1:8080', routes: all }]
routes:
- name: all
  rules:
  - { match: { prefix: /first }, cluster: first }
  - { match: { prefix: / }, cluster: second }
clusters:
- { name: first, endpoints: ['127.0.0.1:9000'] }
- { name: second, endpoints: ['127.0.0.1:9000'] }
- { name: named, endpoints: ['api.test:9000'] }
";
    let config = config.replace(
        "  - { match: { prefix: / }",
        "  - { match: { prefix: /named }, cluster: named }\n  - { match: { prefix: / }",
    );
    let file = scratch.write("strait.yaml", &config);
    for (path, cluster) in [("/first", "first"), ("/", "second")] {
        let story = text(&strait(&["explain", "-c", &file, "GET", path, "-H", "host: a"]).stdout);
        let outcome = format!("outcome   forwarded to cluster {cluster}, this time 127.0.0.1:9000");
        assert!(story.trim_end().ends_with(&outcome), "{story}");
    }
    let story = text(&strait(&["explain", "-c", &file, "GET", "/named", "-H", "host: a"]).stdout);
    assert!(story.contains("endpoint  the addresses of api.test:9000"), "{story}");
    let outcome = "outcome   forwarded to one of the addresses that DNS has";
    assert!(story.trim_end().ends_with(outcome), "{story}");
}

#[test]
fn explain_shows_the_way_of_a_tunnel() {
    let scratch = Scratch::new();
    let config = "
listeners:
- { name: edge, address: '127.0.0.1:8080', routes: [all, web] }
- { name: grpc, address: '127.0.0.1:8081', protocol: http2, routes: all }
routes:
- name: all
  hosts: [db.example.com]
  rules:
  - { match: { path: /healthz }, respond: {} }
  - { match: { prefix: /ws }, cluster: web, upgrades: [websocket] }
  - { match: { prefix: /db }, cluster: db, upgrades: [connect] }
  - { match: { prefix: / }, cluster: web, upgrades: [connect] }
- { name: web, hosts: [web.example.com], rules: [{ match: { prefix: / }, cluster: web }] }
clusters:
- { name: web, endpoints: ['127.0.0.1:9000'] }
- { name: db, endpoints: ['127.0.0.1:5432'] }
";
    let file = scratch.write("strait.yaml", config);
    for (listener, url, parts) in [
        (
            "edge",
            "db.example.com:5432",
            &[
                "request   CONNECT host db.example.com\n",
                "routes    all: has host db.example.com (db.example.com)\n",
                "rule 0    path /healthz -> respond 200: skipped, connect is not among its",
                "rule 1    prefix /ws -> cluster web: skipped, connect is not among its",
                "rule 2    prefix /db -> cluster db: allows tunnels\n",
                "cluster   db, ",
                "rule 3    prefix / -> cluster web: not reached\n",
                "outcome   forwarded to cluster db, this time 127.0.0.1:5432\n",
            ][..],
        ),
        ("grpc", "db.example.com:5432", &["outcome   forwarded to cluster db, this time"]),
        (
            "edge",
            "web.example.com:80",
            &[
                "rule 0    prefix / -> cluster web: skipped, connect is not among its",
                "outcome   Strait replies with 501, cause request_not_implemented (no rule of route table web has connect",
            ],
        ),
    ] {
        let output = strait(&["explain", "-c", &file, "--listener", listener, "CONNECT", url]);
        let story = text(&output.stdout);
        for part in parts {
            assert!(story.contains(part), "{part:?} in {story}");
        }
    }
    let output = strait(&["explain", "-c", &file, "--listener", "edge", "CONNECT", "http://a/"]);
    assert!(text(&output.stderr).contains("CONNECT is for HOST:PORT"), "{}", text(&output.stderr));
}

#[test]
fn explain_says_only_that_when_the_listener_does_not_end_tls_or_takes_nothing_else() {
    let scratch = Scratch::new();
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/certificates");
    let config = "
listeners:
- { name: plain, address: '127.0.0.1:8080', routes: all }
- { name: mixed, address: '127.0.0.1:8081', routes: all, cluster: web }
- name: secure
  address: 127.0.0.1:8443
  tls: { certificates: [{ chain: DIR/site.pem, key: DIR/site.key }] }
  routes: all
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: web }] }]
clusters: [{ name: web, endpoints: ['127.0.0.1:9000'] }]
";
    let file = scratch.write("strait.yaml", &config.replace("DIR", certificates.to_str().unwrap()));
    for (url, rest) in [
        ("https://a:8080/", "tls       is not terminated by this listener: use http://\n"),
        (
            "https://a:8081/",
            "tls       is not terminated here\n\
             relay     cluster web, weight 1\n\
             outcome   the bytes are relayed unchanged; no request is parsed\n",
        ),
        ("http://a:8443/", "tls       is required by this listener: use https://\n"),
    ] {
        let story = text(&strait(&["explain", "-c", &file, "GET", url]).stdout);
        let (listener, after) = story.split_once('\n').unwrap();
        assert!(listener.starts_with("listener  "), "{story}");
        assert_eq!(after, rest);
    }
}

#[test]
fn explain_says_which_requests_get_421_on_a_connection_of_another_host() {
    let scratch = Scratch::new();
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/certificates");
    let config = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  tls: { certificates: [{ chain: DIR/site.pem, key: DIR/site.key }] }
  routes: public
  chains:
  - name: members
    match: { server_names: [members.example] }
    tls: { certificates: [{ chain: DIR/site.pem, key: DIR/site.key }] }
    routes: members
routes:
- { name: public, rules: [{ match: { prefix: / }, respond: { status: 201 } }] }
- { name: members, rules: [{ match: { prefix: / }, respond: { status: 202 } }] }
clusters: []
";
    let file = scratch.write("strait.yaml", &config.replace("DIR", certificates.to_str().unwrap()));
    let line = |host: &str, other: &str| {
        format!(
            "request   for {other} belongs to another chain than a connection for {host}: a client \
             that shares the connection gets 421, and asks again over its own\n"
        )
    };
    for (host, other, is_misdirected) in [
        ("shop.example", "members.example", true),
        ("members.example", "shop.example", true),
        ("shop.example", "other.example", false),
        ("members.example", "members.example", false),
    ] {
        let (url, field) = (format!("https://{host}:8443/"), format!("host: {other}"));
        let story = text(&strait(&["explain", "-c", &file, "GET", &url, "-H", &field]).stdout);
        assert_eq!(story.contains(&line(host, other)), is_misdirected, "{story}");
        assert_eq!(story.contains("421"), is_misdirected, "{story}");
    }
}

#[test]
fn explain_asks_for_the_listener_where_it_cannot_know() {
    let scratch = Scratch::new();
    let edge = "  - name: edge\n    address: 127.0.0.1:8080\n";
    let second = "  - { name: second, address: '127.0.0.1:8081', routes: shop }\n";
    let file = scratch.write("strait.yaml", &SHOP.replace(edge, &format!("{second}{edge}")));
    let explain = |arguments: &[&str]| {
        strait(&[&["explain", "-c", &file, "GET", "http://a/"], arguments].concat())
    };
    let output = explain(&[]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("second (127.0.0.1:8081), edge (127.0.0.1:8080)"), "{error}");
    let story = text(&explain(&["--listener", "edge"]).stdout);
    let listener = "listener  edge (127.0.0.1:8080), from --listener\n";
    assert!(story.starts_with(listener), "{story}");
    assert_eq!(explain(&["--listener", "none"]).status.code(), Some(1));
}

#[test]
fn the_schema_is_json_and_has_the_filters() {
    let output = strait(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["properties"]["listeners"].is_object());
    assert!(schema.to_string().contains("\"headers\""));
}

#[test]
fn shells_and_man_are_served() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = strait(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("explain"), "{shell}");
    }
    let page = text(&strait(&["man"]).stdout);
    assert!(page.contains(".TH strait"), "{page}");
    let scratch = Scratch::new();
    let dir = scratch.path("man");
    assert!(strait(&["man", "--dir", dir.to_str().unwrap()]).status.success());
    for page in ["strait.1", "strait-run.1", "strait-explain.1"] {
        assert!(dir.join(page).exists(), "{page}");
    }
}

#[test]
fn explain_names_the_pattern_of_the_host_and_why_tables_are_passed_over() {
    let scratch = Scratch::new();
    let table = |name, hosts| {
        format!(
            "- {{ name: {name}, hosts: {hosts}, rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}\n"
        )
    };
    let config = "listeners: [{ name: edge, address: '127.0.0.1:8080', routes: [wild, one, other] }]\nroutes:\n"
        .to_owned()
        + &table("wild", "['*.example.com', '*.a.example.com', '*']")
        + &table("one", "[b.a.example.com]")
        + &table("other", "[shop.example]");
    let file = scratch.write("strait.yaml", &config);
    let story = |url: &str| text(&strait(&["explain", "-c", &file, "GET", url]).stdout);
    let shown = story("http://x.a.example.com/");
    assert!(shown.contains("wild: has host x.a.example.com by *.a.example.com ("), "{shown}");
    assert!(shown.contains("one: skipped, x.a.example.com is not among its hosts ("), "{shown}");
    let shown = story("http://b.a.example.com/");
    assert!(shown.contains("wild: skipped, another has a closer host than *.a.example.com ("));
    assert!(shown.contains("one: has host b.a.example.com ("), "{shown}");
    assert!(shown.contains("other: skipped, b.a.example.com is not among its hosts ("), "{shown}");
    let refused = strait(&["explain", "-c", &file, "GET", "http://shop.example:9999/"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = text(&refused.stderr);
    let expected = "nothing listens on port 9999 for this URL; there are: edge (127.0.0.1:8080)";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn explain_shows_what_a_client_gets_over_tls() {
    let scratch = Scratch::new();
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/tests/certificates");
    let config = "
listeners:
- name: edge
  address: 127.0.0.1:8443
  tls: { certificates: [{ chain: DIR/site.pem, key: DIR/site.key }] }
  routes: all
  chains:
  - name: tenants
    match: { server_names: ['*.example.com'] }
    tls: { certificates: [{ chain: DIR/tenants.pem, key: DIR/tenants.key }], max_version: '1.2' }
    routes: all
  - name: members
    match: { server_names: [members.example.org] }
    tls:
      certificates: [{ chain: DIR/site.pem, key: DIR/site.key }]
      client: { ca: DIR/ca.pem }
    routes: all
  - { name: past, match: { server_names: [past.example.org] }, protocol: tcp, cluster: web }
routes:
- name: all
  rules:
  - { match: { path: /hello }, respond: { status: 200, body: hello } }
  - { match: { prefix: /m/, client: ['spiffe://other/*'] }, respond: { status: 204 } }
  - { match: { prefix: /m/, client: ['*'] }, respond: { status: 202 } }
  - { match: { prefix: / }, cluster: web }
clusters: [{ name: web, endpoints: ['127.0.0.1:9000'] }]
";
    let file = scratch.write("strait.yaml", &config.replace("DIR", certificates.to_str().unwrap()));
    let of = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
    let (cert, key) = (of("client.pem"), of("client.key"));
    for (arguments, parts) in [
        (
            &["GET", "https://shop.example.org:8443/x"][..],
            &["TLSv1.3, TLS_AES_128_GCM_SHA256, X25519MLKEM768, h2\n", "forwarded to cluster web"]
                [..],
        ),
        (&["GET", "/hello", "-H", "Host: a"], &["tls       TLSv1.3", "Strait replies with 200"]),
        (
            &["GET", "http://a:8443/hello"],
            &["tls       is required by this listener: use https://\n"],
        ),
        (
            &["--tls", "b.example.com:8443"],
            &[
                "chain     tenants: matches TLS for b.example.com from here\n",
                "tls       TLSv1.2, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, x25519, h2\n",
                "shows     listener edge, chain tenants, ",
                "name      the certificate is for b.example.com\n",
            ],
        ),
        (&["--tls", "members.example.org"], &["tls       fails: ", "certificate_required"]),
        (
            &["GET", "https://members.example.org/m/x", "--cert", &cert, "--key", &key],
            &[
                "rule 1    prefix /m/, client spiffe://other/* -> respond 204: skipped, client \
                 spiffe://other/* does not match: ",
                "rule 2    prefix /m/, client * -> respond 202: matches\n",
                "Strait replies with 202",
            ],
        ),
        (
            &["GET", "https://shop.example.org:8443/m/x", "--cert", &cert, "--key", &key],
            &["skipped, client * does not match: no certificate\n", "forwarded to cluster web"],
        ),
        (
            &["--tls", "members.example.org", "--cert", &cert, "--key", &key],
            // The listener has the same certificate.
            &["shows     listener edge, chain members, "],
        ),
        (
            &["--tls", "elsewhere.example.net:8443"],
            &[
                "shows     listener edge, ",
                "name      the certificate is not for elsewhere.example.net: clients",
            ],
        ),
        (
            &["--tls", "past.example.org"],
            &["chain     past: ", "tls       is not terminated here\n"],
        ),
    ] {
        let output = strait(&[&["explain", "-c", &file], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let story = text(&output.stdout);
        for part in parts {
            assert!(story.contains(part), "{part:?} in {story}");
        }
    }
}

#[test]
fn explain_shows_the_chain_and_asks_in_the_version_that_is_spoken() {
    let scratch = Scratch::new();
    let config = "
listeners:
- name: edge
  address: 127.0.0.1:8080
  chains:
  - { name: passed-on, match: { protocols: [tls] }, protocol: tcp, cluster: web }
  - { name: plain, match: { protocols: [http1] }, routes: shop }
- { name: grpc, address: 127.0.0.1:8081, protocol: http2, routes: shop }
routes:
- name: shop
  rules:
  - { match: { path: /hello }, respond: { status: 200, body: hello } }
  - { match: { prefix: / }, cluster: web }
clusters: [{ name: web, endpoints: ['127.0.0.1:9000'] }]
";
    let file = scratch.write("strait.yaml", config);
    for (url, parts) in [
        ("http://a:8080/hello", ["chain     plain: matches plain HTTP", "Strait replies with 200"]),
        ("http://a:8081/hello", ["listener  grpc", "Strait replies with 200"]),
        ("http://a:8081/x", ["listener  grpc", "forwarded to cluster web"]),
    ] {
        let story = text(&strait(&["explain", "-c", &file, "GET", url]).stdout);
        for part in parts {
            assert!(story.contains(part), "{part:?} in {story}");
        }
    }
}

#[test]
fn explain_says_why_a_rule_was_passed_over_and_how_requests_are_shared() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "strait.yaml",
        "\
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]
routes:
- name: all
  rules:
  - { match: { prefix: /, headers: { x-team: { prefix: a } } }, respond: {} }
  - { match: { regex: '/users/[0-9]+' }, respond: {} }
  - { match: { prefix: /named/ }, cluster_header: x-cluster, among: [one] }
  - name: shared
    match: { prefix: / }
    clusters: [{ cluster: one, weight: 3 }, { cluster: two }]
    sticky: { header: x-user }
    rewrite: { host: internal }
clusters: [{ name: one, endpoints: ['127.0.0.1:1'] }, { name: two, endpoints: ['127.0.0.1:2'] }]
",
    );
    for (arguments, parts) in [
        (
            &["GET", "http://a:8080/users/x", "-H", "x-team: b"][..],
            &[
                "prefix /, header x-team prefix \"a\" -> respond 200: skipped, header x-team prefix \"a\" does not match: \"b\"\n",
                "regex /users/[0-9]+ -> respond 200: skipped, the expression does not match the path\n",
                "shared: prefix / -> clusters one, two: matches\n",
                "share     one, weight 3 (75.0 % of requests)\n",
                "share     two, weight 1 (25.0 % of requests)\n",
                "chosen    by a random number for each request\n",
            ][..],
        ),
        (
            &["GET", "http://a:8080/", "-H", "x-user: 7"],
            &["chosen    by header x-user\ncluster   ", "outcome   forwarded to cluster "],
        ),
        (
            &["GET", "http://a:8080/named/x", "-H", "x-cluster: two"],
            &[
                "cluster   header x-cluster names no cluster that the rule allows\n",
                "cause no_cluster",
            ],
        ),
    ] {
        let output = strait(&[&["explain", "-c", &file], arguments].concat());
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for part in parts {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
    }
}

#[test]
fn explain_says_what_each_locality_gets() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "strait.yaml",
        "\
locality: eu/b
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: web }] }]
clusters:
- name: web
  localities: { zone_aware: { size_min: 3 } }
  endpoints:
  - { address: '127.0.0.1:1', locality: eu/a }
  - { address: '127.0.0.1:2', locality: eu/a, weight: 3 }
  - { address: '127.0.0.1:3', locality: eu/b }
",
    );
    let output = strait(&["explain", "-c", &file, "GET", "http://a:8080/"]);
    let shown = text(&output.stdout);
    for part in [
        "127.0.0.1:1 (weight 1, 8.3 % of requests)\n",
        "127.0.0.1:2 (weight 3, 25.0 % of requests)\n",
        "127.0.0.1:3 (weight 1, 66.7 % of requests)\n",
        "eu/a (33.3 % of requests)\n",
        "eu/b, of this process (66.7 % of requests)\n",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
}

#[test]
fn explain_says_which_endpoints_a_request_may_go_to_and_by_what() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "strait.yaml",
        "\
listeners: [{ name: edge, address: 127.0.0.1:8080, routes: all }]
routes:
- name: all
  rules:
  - match: { prefix: / }
    cluster: web
    subset: { unit: { header: x-unit } }
    hash: [{ header: x-user }]
clusters:
- name: web
  balance: maglev
  subsets: { by: [[unit]], fallback: any }
  endpoints:
  - { address: '127.0.0.1:1', metadata: { unit: a } }
  - { address: '127.0.0.1:2', metadata: { unit: b } }
  - { address: '127.0.0.1:3', metadata: { unit: b }, priority: 1 }
",
    );
    for (headers, parts) in [
        (
            ["x-unit: b", "x-user: ann"],
            [
                "127.0.0.1:1 (weight 1, 0.0 % of requests)\n",
                "127.0.0.1:2 (weight 1, 100.0 % of requests)\n",
                "127.0.0.1:3 (weight 1, 0.0 % of requests)\n",
                "subset    as the rule requires\npriority  0: 127.0.0.1:2\npriority  1: 127.0.0.1:3\n",
                "hash      leads to 127.0.0.1:2\n",
            ],
        ),
        (
            ["x-unit: c", "x-other: ann"],
            [
                "127.0.0.1:1 (weight 1, 50.0 % of requests)\n",
                "127.0.0.1:2 (weight 1, 50.0 % of requests)\n",
                "127.0.0.1:3 (weight 1, 0.0 % of requests)\n",
                "subset    no such subset, fallback any\npriority  0: 127.0.0.1:1, 127.0.0.1:2\n",
                "hash      none: a random endpoint\n",
            ],
        ),
    ] {
        let [one, other] = headers;
        let request = ["GET", "http://a:8080/", "-H", one, "-H", other];
        let output = strait(&[&["explain", "-c", &file], &request[..]].concat());
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for part in parts {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
    }
}
