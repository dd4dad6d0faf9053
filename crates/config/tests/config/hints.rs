//! Hints that say what to write: each is applied, and what comes out is accepted.

use config::Errors;

use crate::sample::loader;

/// The text with a mistake between marks, in which a hint is applied.
fn text(value: &str, kind: Place) -> String {
    let mut lines = [
        "listeners: [{ name: a, address: '127.0.0.1:80', routes: r@listener }]@root",
        "routes: [{ name: r, rules: [{ match: { prefix: /@prefix }, cluster: c@rule }] }]",
        "clusters: [{ name: c, endpoints: ['127.0.0.1:9000'@endpoint]@cluster }]",
    ]
    .join("\n");
    let (mark, with) = match kind {
        Place::Root(key) => ("@root", format!("\n{key}: {value}")),
        Place::Listener(key) => ("@listener", format!(", {key}: {value}")),
        Place::Cluster(key) => ("@cluster", format!(", {key}: {value}")),
        Place::Endpoint(key) => {
            ("@endpoint", format!(", {{ address: '[::1]:1', {key}: {value} }}"))
        }
        Place::Rule(key) => ("@rule", format!(", {key}: {value}")),
        Place::Prefix => ("/@prefix", value.to_owned()),
    };
    lines = lines.replace(mark, &with);
    for mark in ["@root", "@listener", "@endpoint", "@cluster", "@rule", "@prefix"] {
        lines = lines.replace(mark, "");
    }
    lines
}

#[derive(Clone, Copy)]
enum Place {
    Root(&'static str),
    Listener(&'static str),
    Cluster(&'static str),
    Endpoint(&'static str),
    Rule(&'static str),
    Prefix,
}

/// What a hint says is to be written.
fn advice(hint: &str) -> Option<&str> {
    let advice = hint.split_once("write ").or_else(|| hint.split_once("remove the quotes: "))?.1;
    let quoted = advice.strip_prefix('"').and_then(|quoted| quoted.split_once('"'));
    Some(quoted.map_or_else(|| advice.split([' ', ',', ';']).next().unwrap(), |(text, _)| text))
}

#[test]
fn what_a_hint_says_to_write_is_accepted() {
    use Place::{Cluster, Listener, Prefix, Root};
    for (place, wrong, advised) in [
        (Root("workers"), "'4'", "4"),
        (Listener("connections_max"), "1e6", "1000000"),
        (Listener("connections_max"), "10_000", "10000"),
        (Listener("http"), "{ body_max: 1e6 }", "1000000"),
        (Listener("http"), "{ body_max: 10k }", "10KiB"),
        (Cluster("connect_timeout"), "0", "1ms"),
        (Cluster("connect_timeout"), "1.5s", "1500ms"),
        (Cluster("connect_timeout"), "5", "5s"),
        (Cluster("protocol"), "grpc", "http2"),
        (Cluster("protocol"), "h2", "http2"),
        (Listener("protocol"), "h2c", "http2"),
        (Cluster("balance"), "leastconn", "least_request"),
        (Cluster("balance"), "least_conn", "least_request"),
        (Cluster("balance"), "ip_hash", "ring_hash"),
        (Cluster("balance"), "rr", "round_robin"),
        (Prefix, "http://a/api", "/api"),
        (Prefix, "http://a", "/"),
        (Prefix, "http://a?to=/b", "/"),
        (Prefix, "^/api", "/api"),
        (Prefix, "/users/{id}", "/users/"),
    ] {
        // Braces begin a map without quotes.
        let written = if wrong.contains("{id}") { format!("'{wrong}'") } else { wrong.to_owned() };
        let Err(Errors { errors, .. }) = loader().load("f", &text(&written, place)) else {
            panic!("{wrong} is refused")
        };
        let [error] = errors.as_slice() else { panic!("one error: {errors:#?}") };
        assert_eq!(advice(&error.hint), Some(advised), "{error}");
        let inner = wrong.trim_start_matches("{ body_max: ").trim_end_matches(" }");
        let applied = text(&wrong.replace(inner, advised), place);
        loader().load("f", &applied).unwrap_or_else(|errors| panic!("{applied}\n{errors}"));
    }
}

#[test]
fn what_stands_in_the_wrong_form_is_met_with_the_right_one() {
    let chains =
        |name: &str| format!("[{{ name: x, match: {{ server_names: [{name}] }}, routes: r }}]");
    let endpoints = |value: &str| {
        text("/", Place::Prefix)
            .replace("endpoints: ['127.0.0.1:9000']", &format!("endpoints: {value}"))
    };
    for (text, hint) in [
        (text("/, headers: { x-v: 2 }", Place::Prefix), "put it in quotes: \"2\""),
        (text("/, headers: { x-v: true }", Place::Prefix), "put it in quotes: \"true\""),
        (text(&chains(".a.test"), Place::Listener("chains")), "write \"*.a.test\""),
        (text(&chains(".a..test"), Place::Listener("chains")), "write a name such as"),
        (endpoints("ep.yaml"), "write { file: ep.yaml }"),
        (endpoints("text"), "write ["),
        (endpoints("['127.0.0.1:90 weight=5']"), "write { address: 127.0.0.1:90, weight: 5 }"),
        (endpoints("{ dns: _http._tcp.x }"), "add `mode: srv`"),
        (endpoints("{ dns: 'api:$PORT' }"), "write api:${PORT}"),
    ] {
        let Err(Errors { errors, .. }) = loader().load("f", &text) else {
            panic!("{text} is refused")
        };
        let [error] = errors.as_slice() else { panic!("one error: {errors:#?}") };
        assert!(error.hint.starts_with(hint), "{error}");
    }
    // As is written, they are accepted.
    for text in [
        text("/, headers: { x-v: \"2\" }", Place::Prefix),
        text(&chains("\"*.a.test\""), Place::Listener("chains")),
        endpoints("[{ address: 127.0.0.1:90, weight: 5 }]"),
        endpoints("{ dns: _http._tcp.x, mode: srv }"),
    ] {
        loader().load("f", &text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    }
}

#[test]
fn a_variable_without_its_brace_and_one_with_a_map_are_no_yaml() {
    for (text, at, expected) in [
        ("workers: ${M:-{a: 1}}\n", (1, 10), "cannot contain a map; write the map itself"),
        ("limits: { drain_delay: ${M:-{a: 1}} }\n", (1, 24), "cannot contain a map"),
        ("limits: ${M:-{ drain_delay: 1s }}\n", (1, 9), "cannot contain a map"),
        ("limits: { drain_delay: ${M:-1s }\n", (1, 24), "the `}` of this variable is missing"),
        ("a: 1\nb: [{ ü: ${M:-1s }]\nc: 2\n", (2, 10), "the `}` of this variable is missing"),
        ("limits: { drain_delay: ${DELAY, drain_max: 1s }\n", (1, 24), "the `}` of this variable"),
        ("limits: { drain_delay: ${DELAY:-1s\n", (1, 24), "the `}` of this variable is missing"),
    ] {
        let errors = loader().load("f", text).unwrap_err();
        let error = errors.errors.first().unwrap();
        let shown = error.to_string();
        assert!(shown.contains(expected) && (error.line, error.column) == at, "{text}: {shown}");
    }
}

#[test]
fn a_backslash_in_double_quotes_is_met_with_single_ones() {
    let error = loader().load("f", "a: \"/v2/\\1\"\n").unwrap_err().to_string();
    assert!(
        error.starts_with("f:1:4: ") && error.contains("write single quotes around"),
        "{error}"
    );
}

#[test]
fn what_has_no_sections_is_no_configuration() {
    for (text, expected) in [
        ("- name: edge\n  address: 127.0.0.1:80\n", "and this is a list; write `listeners:`"),
        ("- 127.0.0.1:80\n", "and this is a list; write `endpoints: { file: PATH }`"),
        ("listeners\n", "and this is text; begin with `listeners:`"),
        ("80\n", "a configuration consists of sections, and this is text"),
    ] {
        let error = loader().load("f", text).unwrap_err().to_string();
        assert!(error.starts_with("f:1:1: ") && error.contains(expected), "{text}: {error}");
        assert_eq!(error.lines().filter(|line| line.starts_with("f:")).count(), 1, "{error}");
    }
}

#[test]
fn durations_add_up() {
    for (written, shown) in [("1m30s", "90s"), ("1h30m", "90m"), ("1d", "24h")] {
        let text = text(written, Place::Cluster("connect_timeout"));
        let snapshot = loader().load("f", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let yaml = config::effective_yaml(&snapshot);
        assert!(yaml.contains(&format!("connect_timeout: {shown}")), "{yaml}");
    }
}

#[test]
fn words_are_listed_once_and_other_programs_words_lead_to_ours() {
    for (place, wrong, rule, hint) in [
        (
            Place::Listener("protocol"),
            "https",
            "auto, http1, http2, tcp",
            "add `tls` with the cert",
        ),
        (Place::Listener("protocol"), "smtp", "auto, http1, http2, tcp", "write one of them"),
        (Place::Cluster("protocol"), "https", "http1, http2", "add `tls: {}` to the cluster"),
        (Place::Cluster("timeouts"), "{ connect: 1s }", "unknown", "`connect_timeout`"),
        (Place::Cluster("maxconn"), "5", "unknown", "`connections_per_endpoint_max`"),
        (Place::Cluster("high_priority"), "{ max_requests: 5 }", "unknown", "`requests_max`"),
        (Place::Cluster("transport_socket_matches"), "[]", "unknown", "write `transports`"),
        (Place::Endpoint("health_status"), "1", "unknown", "write `health`"),
        (Place::Rule("retry_policy"), "{}", "unknown", "write `retry`"),
        (Place::Rule("retry"), "{ on: [5xx], num_retries: 1 }", "unknown", "`attempts_max`"),
        (Place::Root("workers"), "four", "`auto` or a whole number", "write auto"),
        (Place::Listener("http2"), "true", "a map is needed", "HTTP/2 is accepted by default"),
        (Place::Listener("http2"), "false", "a map is needed", "`protocol: http1`"),
        (Place::Listener("client_max_body_size"), "1m", "unknown", "`http: { body_max: … }`"),
        (Place::Listener("body_max"), "1MiB", "unknown", "`http: { body_max: … }`"),
        (Place::Listener("rate_limit"), "5", "unknown", "no limit of requests per second"),
        (Place::Rule("rate_limit"), "5", "unknown", "`exchanges_per_client_max`"),
        (Place::Rule("upgrades"), "true", "a list is needed", "WebSocket is allowed by default"),
        (Place::Rule("upgrades"), "false", "a list is needed", "write []"),
        (Place::Rule("sticky"), "{ cookie: sess }", "needs `clusters`", "`balance: maglev`"),
        (Place::Rule("retry"), "{ on: [503] }", "5xx, gateway_error", "retriable_status here"),
        (Place::Rule("retry"), "{ on: [4xx] }", "5xx, gateway_error", "retriable_status here"),
        (
            Place::Rule("retry"),
            "{ on: [retriable_status], status: ['503'] }",
            "a number, a class or a range",
            "remove the quotes: 503",
        ),
        (
            Place::Rule("retry"),
            "{ on: [retriable_status], status: [any] }",
            "a number, a class or a range",
            "write 429, 5xx or 500-504, for instance",
        ),
        (
            Place::Cluster("checks"),
            "[{ http: { path: /, expect: ['207'] } }]",
            "a number, a class or a range",
            "remove the quotes: 207",
        ),
        (
            Place::Cluster("checks"),
            "[{ http: { path: /, expect: [ok] } }]",
            "a number, a class or a range",
            "write 200-299, for instance",
        ),
        (
            Place::Listener("http"),
            "{ error_pages: [{ status: ['404'], body: x }] }",
            "a number, a class or a range",
            "remove the quotes: 404",
        ),
        (
            Place::Root("access_log"),
            "{ only: [{ status: ['404'] }] }",
            "a number, a class or a range",
            "remove the quotes: 404",
        ),
        (
            Place::Root("access_log"),
            "{ format: '%START_TIME% %REQ(:path)%' }",
            "json, text, combined",
            "`fields`",
        ),
        (Place::Cluster("ssl"), "{}", "unknown", "write `tls`"),
        (Place::Cluster("http2"), "true", "a map is needed", "`protocol: http2`"),
        (Place::Cluster("outlier"), "{ consecutive_5xx: 3 }", "unknown", "`errors_5xx`"),
        (Place::Endpoint("backup"), "true", "unknown", "write `priority: 1`"),
        (
            Place::Cluster("balance"),
            "fastest",
            "or a map is needed here, not this word",
            "write round_robin",
        ),
        (Place::Cluster("balance"), "LeastConn", "one of these words", "write least_request"),
    ] {
        let Err(Errors { errors, .. }) = loader().load("f", &text(wrong, place)) else {
            panic!("{wrong} is refused")
        };
        let [error] = errors.as_slice() else { panic!("one error: {errors:#?}") };
        assert!(error.rule.contains(rule) && error.hint.contains(hint), "{error}");
        assert!(!error.hint.contains("http1, http2"), "{error}");
    }
}

/// The paths of the warnings about a text.
fn warned(text: &str) -> Vec<(String, String)> {
    let mut loader = loader();
    loader.load("f", text).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    loader
        .warnings()
        .iter()
        .map(|it| (it.path.clone(), format!("{}; {}", it.rule, it.hint)))
        .collect()
}

#[track_caller]
fn assert_warned(text: &str, expected: Option<(&str, &str)>) {
    match (warned(text).as_slice(), expected) {
        ([], None) => {}
        ([(path, message)], Some((at, part))) if path == at => {
            assert!(message.contains(part), "{text}\n{message}");
        }
        (found, expected) => panic!("{text}\n{expected:?}, but: {found:#?}"),
    }
}

#[test]
fn patterns_are_warned_of() {
    let path = "routes[0].rules[0].match.prefix";
    assert_warned(&text("/api/*", Place::Prefix), Some((path, "write \"/api/\"")));
    assert_warned(&text("/api/:id", Place::Prefix), Some((path, "write \"/api/\"")));
    assert_warned(&text("/api/", Place::Prefix), None);
}

#[test]
fn variables_of_other_programs_are_warned_of_in_header_values() {
    let filter = |value: &str| {
        let filters = format!("[headers: {{ request: {{ set: {{ x-a: '{value}' }} }} }}]");
        text(&filters, Place::Listener("filters"))
    };
    let path = "listeners[0].filters[0].headers.request.set.x-a";
    assert_warned(&filter("$remote_addr"), Some((path, "`$remote_addr` is not replaced")));
    assert_warned(&filter("%REQ(X)%"), Some((path, "`%REQ(X)%` is not replaced")));
    assert_warned(&filter("a $5 %2F%20 value"), None);
    let respond = "listeners: [{ name: a, address: '127.0.0.1:80', routes: r }]\n\
        routes: [{ name: r, rules: [{ match: { prefix: / }, respond: { headers: { x-a: $host } } }] }]";
    let path = "routes[0].rules[0].respond.headers.x-a";
    assert_warned(respond, Some((path, "$host")));
    let body = |text: &str| respond.replace("headers: { x-a: $host }", &format!("body: '{text}'"));
    let path = "routes[0].rules[0].respond.body";
    assert_warned(&body("you are $remote_addr"), Some((path, "$remote_addr")));
    assert_warned(&body("you are %REQ(x-user)%"), Some((path, "%REQ(x-user)%")));
    assert_warned(&body("100% for $5"), None);
    assert_warned(&body("{\"$schema\": \"x\"} $HOME"), None);
}

#[test]
fn groups_of_other_programs_are_warned_of_in_replacements() {
    let rewrite =
        |with: &str| text(&format!("{{ regex: '/(a)', with: '{with}' }}"), Place::Rule("rewrite"));
    let path = "routes[0].rules[0].rewrite.with";
    assert_warned(&rewrite("/v2/$1"), Some((path, "write `\\1`")));
    assert_warned(&rewrite("/$x/$$2"), Some((path, "write `\\2`")));
    assert_warned(&rewrite("/v2/\\1$x$"), None);
    let redirect = "listeners: [{ name: a, address: '127.0.0.1:80', routes: r }]\n\
        routes: [{ name: r, rules: [{ match: { prefix: / }, redirect: { regex: '/(a)', with: '/$1' } }] }]";
    assert_warned(redirect, Some(("routes[0].rules[0].redirect.with", "write `\\1`")));
}

#[test]
fn the_name_for_all_hosts_of_nginx_is_warned_of() {
    let hosts = |host: &str| {
        text("/", Place::Prefix).replace("rules:", &format!("hosts: ['{host}'], rules:"))
    };
    assert_warned(&hosts("_"), Some(("routes[0].hosts[0]", "write \"*\" for all hosts")));
    assert_warned(&hosts("_a"), None);
    assert_warned(&hosts("*"), None);
}

#[test]
fn rules_for_grpc_calls_that_lead_to_http1_are_warned_of() {
    let rule = |protocol: &str| {
        text("/, grpc: true", Place::Prefix)
            .replace("name: c,", &format!("name: c, protocol: {protocol},"))
    };
    let path = "routes[0].rules[0].match.grpc";
    assert_warned(&rule("http1"), Some((path, "add `protocol: http2` to the cluster")));
    assert_warned(&rule("http2"), None);
    assert_warned(&text("/, grpc: false", Place::Prefix), None);
}

#[test]
fn upgrades_to_no_known_protocol_are_warned_of() {
    let upgrades = |token: &str| {
        text("/", Place::Prefix).replace("cluster: c", &format!("cluster: c, upgrades: [{token}]"))
    };
    let path = "routes[0].rules[0].upgrades[0]";
    assert_warned(&upgrades("websockets"), Some((path, "did you mean `websocket`?")));
    assert_warned(&upgrades("ws"), Some((path, "WebSocket is `websocket`")));
    for known in ["websocket", "WebSocket", "spdy/3.1", "tcp", "connect"] {
        assert_warned(&upgrades(known), None);
    }
}

#[test]
fn redirects_that_lead_to_themselves_are_warned_of() {
    let text = |hosts: &str, matches: &str, redirect: &str| {
        format!(
            "listeners: [{{ name: a, address: '127.0.0.1:80', routes: r }}]\n\
             routes: [{{ name: r, hosts: [{hosts}], rules: [\
             {{ match: {{ path: /done }}, respond: {{}} }},\
             {{ match: {{ {matches} }}, redirect: {{ {redirect} }} }}] }}]"
        )
    };
    let path = "routes[0].rules[1].redirect";
    for (hosts, matches, redirect, warned) in [
        ("'*'", "prefix: /", "path: /login", Some("add a rule before it")),
        ("'*'", "prefix: /", "path: /done", None),
        ("'*'", "prefix: /a", "prefix: /a/b", Some("add a rule before it")),
        ("'*'", "prefix: /a", "prefix: /b", None),
        ("'*'", "segments: /a", "prefix: /a/b", Some("add a rule before it")),
        ("'*'", "segments: /a", "prefix: /b", None),
        ("'*'", "segments: /a", "prefix: /", None),
        ("'*'", "path: /a", "path: '/a?x=y'", Some("add a rule before it")),
        ("a.example", "prefix: /", "host: A.example", Some("not of this table")),
        ("'*.example'", "prefix: /", "host: a.example", Some("not of this table")),
        ("a.example", "prefix: /", "host: b.example", None),
        ("a.example", "prefix: /", "host: 'a.example:80'", Some("not of this table")),
        ("a.example", "prefix: /", "host: 'a.example:81'", None),
        ("'[::1]'", "prefix: /", "host: '[0:0::1]'", Some("not of this table")),
        ("'*'", "prefix: /", "scheme: http", Some("separate route tables")),
        ("'*'", "prefix: /", "scheme: https", None),
    ] {
        let expected = warned.map(|part| (path, part));
        assert_warned(&text(hosts, matches, redirect), expected);
    }
}

#[test]
fn a_missing_variable_is_one_error_wherever_it_stands() {
    for (text, path) in [
        (text("'${NONE}'", Place::Listener("connections_max")), "listeners[0].connections_max"),
        (text("'${NONE}'", Place::Listener("protocol")), "listeners[0].protocol"),
        (text("/", Place::Prefix).replace("name: c,", "name: '${NONE}',"), "clusters[0].name"),
        (text("'${NONE}'", Place::Root("workers")), "workers"),
    ] {
        let Err(Errors { errors, .. }) = loader().load("f", &text) else { panic!("{text}") };
        let [error] = errors.as_slice() else { panic!("one error: {errors:#?}") };
        assert_eq!(error.path, path);
        assert!(error.rule.contains("no variable NONE"), "{error}");
    }
    let mut loader = loader();
    loader.outside.set_variable("MANY", "7");
    loader.load("f", &text("${MANY}", Place::Root("workers"))).unwrap();
    let body = "{ status: 200, body: 'a $${b} $$$${c}' }";
    let text = text("/", Place::Prefix).replace("cluster: c", &format!("respond: {body}"));
    let first = loader.load("f", &text).unwrap();
    let again = loader.load("f", &config::effective_yaml(&first)).unwrap();
    assert_eq!(config::effective(&again), config::effective(&first));
}

#[test]
fn an_access_log_that_cannot_be_opened_is_refused() {
    let log = |path: &str| text(&format!("{{ output: {path} }}"), Place::Root("access_log"));
    let errors = loader().load("f", &log("/nowhere/access.log")).unwrap_err().errors;
    assert_eq!(errors[0].path, "access_log.output");
    assert!(errors[0].hint.contains("create its folder"), "{errors:?}");
    assert_warned(&log("./access.log"), None);
}
