//! Bad texts: each kind of mistake with its place, its rule and its hint.
//!
//! A row is the sample with one piece replaced. The place is where the caret of the report stands,
//! which is the mark `^` in the replacement.

use config::{Errors, Finding};

use crate::sample::{Headers, loader};

/// Two of everything that can be named, so that names can be confused.
const SAMPLE: &str = "\
admin: { address: 127.0.0.1:9901 }
listeners:
  - name: edge
    address: 127.0.0.1:80
    filters:
      - headers: { request: { remove: [x-a] } }
    routes: shop
  - name: inner
    address: 127.0.0.1:81
    routes: [plain]
routes:
  - name: shop
    hosts: [shop.example]
    rules:
      - match: { path: /healthz }
        respond: { status: 200 }
      - match: { prefix: /old/ }
        redirect: { path: /new }
      - match: { prefix: / }
        cluster: api
  - name: plain
    rules:
      - match: { prefix: / }
        cluster: web
clusters:
  - name: api
    endpoints: [127.0.0.1:9000]
    connect_timeout: 1s
  - name: web
    endpoints: [{ address: 127.0.0.1:9001, weight: 1 }]
";

fn errors(text: &str) -> Vec<Finding> {
    match loader().load("strait.yaml", text) {
        Ok(_) => Vec::new(),
        Err(Errors { errors, .. }) => errors,
    }
}

/// The sample with `from` replaced by `to`, and where `to` has its mark.
fn with(from: &str, to: &str) -> (String, (u32, u32)) {
    assert_eq!(SAMPLE.matches(from).count(), 1, "{from:?} stands once in the sample");
    let marked = SAMPLE.replace(from, to);
    let at = marked.find('^').expect("a mark");
    let before = &marked[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    (marked.replacen('^', "", 1), (u32::try_from(line).unwrap(), u32::try_from(column).unwrap()))
}

/// One row: what is replaced, by what (with a mark), and the report's path, value, rule and hint.
type Row<'r> = (&'r str, &'r str, &'r str, &'r str, &'r str, &'r str);

#[track_caller]
fn check(rows: &[Row<'_>]) {
    for &(from, to, path, value, rule, hint) in rows {
        let (text, place) = with(from, to);
        let found = errors(&text);
        let [error] = found.as_slice() else {
            panic!("one error is expected after {from:?} ⇒ {to:?}: {found:#?}")
        };
        assert_eq!((error.line, error.column), place, "{to:?}: {error}");
        assert_eq!(error.path, path, "{to:?}: {error}");
        assert_eq!(error.value, value, "{to:?}: {error}");
        assert!(error.rule.contains(rule), "{to:?}: rule {rule:?} in {error}");
        assert!(error.hint.contains(hint), "{to:?}: hint {hint:?} in {error}");
        assert_eq!(&*error.file, "strait.yaml");
    }
}

#[test]
fn the_sample_itself_has_no_mistake_and_no_warning() {
    let mut loader = loader();
    loader.load("strait.yaml", SAMPLE).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loader.warnings(), []);
}

#[test]
fn keys_that_are_unknown_missing_or_doubled() {
    check(&[
        (
            "address: 127.0.0.1:81\n",
            "^adress: 127.0.0.1:81\n",
            "listeners[1].adress",
            "\"adress\"",
            "unknown",
            "did you mean `address`?",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: 127.0.0.1:81\n    ^adress: x\n",
            "listeners[1].adress",
            "\"adress\"",
            "unknown",
            "did you mean `address`?",
        ),
        (
            "admin: {",
            "^wrkers: 1\nadmin: {",
            "wrkers",
            "\"wrkers\"",
            "unknown",
            "did you mean `workers`?",
        ),
        (
            "weight: 1",
            "^wieght: 1",
            "clusters[1].endpoints[0].wieght",
            "\"wieght\"",
            "unknown",
            "did you mean `weight`?",
        ),
        (
            "connect_timeout: 1s",
            "^retries: 3",
            "clusters[0].retries",
            "\"retries\"",
            "unknown",
            "known are: name, endpoints, original_destination",
        ),
        (
            "admin: { address: 127.0.0.1:9901 }",
            "admin: ^{}",
            "admin",
            "",
            "without an address serves nothing",
            "`metrics: 127.0.0.1:9902`",
        ),
        (
            "admin: { address: 127.0.0.1:9901 }",
            "admin: { address: 127.0.0.1:9901, hosts: [^'*.example.com'] }",
            "admin.hosts[0]",
            "\"*.example.com\"",
            "names of the admin interface are whole",
            "write each name",
        ),
        (
            "admin: { address: 127.0.0.1:9901 }",
            "admin: { address: 127.0.0.1:9901, hosts: [^'a.example:9901'] }",
            "admin.hosts[0]",
            "\"a.example:9901\"",
            "hosts are matched without their port",
            "write \"a.example\"",
        ),
        (
            "admin: { address: 127.0.0.1:9901 }",
            "admin: { address: 127.0.0.1:9901, metrics: ^'127.0.0.1:9901' }",
            "admin.metrics",
            "\"127.0.0.1:9901\"",
            "each listener has its own address",
            "the admin interface on line",
        ),
        (
            "  - name: web\n    endpoints",
            "  - ^endpoints",
            "clusters[1].name",
            "",
            "missing",
            "add `name: text`",
        ),
        (
            "    connect_timeout: 1s\n",
            "    connect_timeout: 1s\n    ^connect_timeout: 2s\n",
            "clusters[0].connect_timeout",
            "\"connect_timeout\"",
            "occur only once",
            "on line 28",
        ),
    ]);
}

#[test]
fn values_of_the_wrong_kind() {
    check(&[
        (
            "admin: {",
            "workers: ^many\nadmin: {",
            "workers",
            "\"many\"",
            "`auto` or a whole number is needed here",
            "write auto",
        ),
        (
            "admin: {",
            "workers: ^atuo\nadmin: {",
            "workers",
            "\"atuo\"",
            "auto",
            "did you mean `auto`?",
        ),
        ("admin: {", "workers: ^0\nadmin: {", "workers", "0", "from 1 to 1024", "nearest is 1"),
        (
            "admin: {",
            "workers: ^[1]\nadmin: {",
            "workers",
            "",
            "`auto` or a whole number or a map is needed here, not a list",
            "write auto",
        ),
        (
            "admin: {",
            "workers: { count: 1, pin: ^yes }\nadmin: {",
            "workers.pin",
            "\"yes\"",
            "true or false",
            "write true",
        ),
        (
            "[127.0.0.1:9000]",
            "^127.0.0.1:9000",
            "clusters[0].endpoints",
            "\"127.0.0.1:9000\"",
            "a list or a map is needed here, not text",
            "write [127.0.0.1:8080]",
        ),
        ("[plain]", "^[]", "listeners[1].routes", "", "at least one", "add one"),
        (
            "status: 200",
            "status: ^199",
            "routes[0].rules[0].respond.status",
            "199",
            "from 200 to 599",
            "nearest is 200",
        ),
        (
            "status: 200",
            "status: ^\"200\"",
            "routes[0].rules[0].respond.status",
            "\"200\"",
            "whole number",
            "remove the quotes",
        ),
        (
            "{ status: 200 }",
            "{ body: ^12 }",
            "routes[0].rules[0].respond.body",
            "12",
            "text is needed",
            "in quotes: \"12\"",
        ),
        (
            "{ status: 200 }",
            "{ headers: { x-a: ^1 } }",
            "routes[0].rules[0].respond.headers.x-a",
            "1",
            "text is needed",
            "in quotes: \"1\"",
        ),
        (
            "{ path: /new }",
            "{ path: /new, status: ^300 }",
            "routes[0].rules[1].redirect.status",
            "300",
            "301, 302, 303, 307, 308",
            "one of them",
        ),
        (
            "{ path: /new }",
            "{ path: /new, scheme: ^htps }",
            "routes[0].rules[1].redirect.scheme",
            "\"htps\"",
            "http, https",
            "did you mean `http",
        ),
        (
            "weight: 1",
            "weight: ^-1",
            "clusters[1].endpoints[0].weight",
            "-1",
            "from 0 to 65535",
            "nearest is 0",
        ),
        (
            "weight: 1",
            "weight: ^65536",
            "clusters[1].endpoints[0].weight",
            "65536",
            "from 0 to 65535",
            "nearest is 65535",
        ),
        (
            "weight: 1",
            "weight: ^1.5",
            "clusters[1].endpoints[0].weight",
            "1.5",
            "not a number",
            "write 1",
        ),
        (
            "    connect_timeout: 1s\n",
            "    connections_max: ^0\n",
            "clusters[0].connections_max",
            "0",
            "from 1 to",
            "nearest is 1",
        ),
        (
            "    connect_timeout: 1s\n",
            "    connections_max: ^1_000\n",
            "clusters[0].connections_max",
            "\"1_000\"",
            "nothing but digits",
            "write 1000",
        ),
        (
            "    connect_timeout: 1s\n",
            "    connections_max: ^10k\n",
            "clusters[0].connections_max",
            "\"10k\"",
            "nothing but digits",
            "write 10000",
        ),
        (
            "    connect_timeout: 1s\n",
            "    connections_max: ^many\n",
            "clusters[0].connections_max",
            "\"many\"",
            "a whole number is needed here, not text",
            "write 1, for instance",
        ),
        (
            "    connect_timeout: 1s\n",
            "    proxy_protocol: ^v3\n",
            "clusters[0].proxy_protocol",
            "\"v3\"",
            "off, v1, v2",
            "did you mean",
        ),
        (
            "    connect_timeout: 1s\n",
            "    timeouts^:\n",
            "clusters[0].timeouts",
            "",
            "not nothing",
            "or remove the key",
        ),
    ]);
}

#[test]
fn durations_sizes_and_addresses() {
    check(&[
        (
            "connect_timeout: 1s",
            "connect_timeout: ^5",
            "clusters[0].connect_timeout",
            "5",
            "needs a unit",
            "\"5s\" for seconds",
        ),
        (
            "connect_timeout: 1s",
            "connect_timeout: ^1.5s",
            "clusters[0].connect_timeout",
            "\"1.5s\"",
            "whole number with a unit",
            "write \"1500ms\"",
        ),
        (
            "connect_timeout: 1s",
            "connect_timeout: ^0s",
            "clusters[0].connect_timeout",
            "\"0s\"",
            "at least 1ms",
            "1ms or more",
        ),
        (
            "connect_timeout: 1s",
            "connect_timeout: ^25h",
            "clusters[0].connect_timeout",
            "\"25h\"",
            "at most 24h",
            "24h or less",
        ),
        (
            "cluster: web",
            "cluster: web\n        timeout: ^never",
            "routes[1].rules[0].timeout",
            "\"never\"",
            "whole number with a unit",
            "250ms",
        ),
        (
            "cluster: web",
            "cluster: web\n        timeout: ^0s",
            "routes[1].rules[0].timeout",
            "\"0s\"",
            "at least 1ms",
            "none for no bound",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { head_max: ^64KB }\n",
            "listeners[1].http.head_max",
            "\"64KB\"",
            "binary unit",
            "\"64KiB\"",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { head_max: ^64KiB }\n",
            "listeners[1].http.head_max",
            "\"64KiB\"",
            "at most 60KiB",
            "60KiB or less",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { head_max: ^255 }\n",
            "listeners[1].http.head_max",
            "255",
            "at least 256B",
            "256B or more",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { body_max: ^-1 }\n",
            "listeners[1].http.body_max",
            "-1",
            "a size",
            "64KiB",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { request_line_max: ^2KiB, head_max: 1KiB }\n",
            "listeners[1].http.request_line_max",
            "\"2KiB\"",
            "at most 1KiB",
            "write 1KiB or less",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { head_max: ^1KiB }\n",
            "listeners[1].http.head_max",
            "\"1KiB\"",
            "request line is part of its head",
            "longer heads",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    http: { via: ^\"a b\" }\n",
            "listeners[1].http.via",
            "\"a b\"",
            "`via`",
            "strait",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    keepalive: { idle: ^1500ms }\n",
            "listeners[1].keepalive.idle",
            "\"1500ms\"",
            "whole seconds",
            "write 1s",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    keepalive: { probes: ^128 }\n",
            "listeners[1].keepalive.probes",
            "128",
            "from 1 to 127",
            "nearest is 127",
        ),
        (
            "127.0.0.1:9000",
            "^localhost",
            "clusters[0].endpoints[0]",
            "\"localhost\"",
            "the port is missing",
            "write localhost:80",
        ),
        (
            "127.0.0.1:9001",
            "^api..internal:9001",
            "clusters[1].endpoints[0].address",
            "\"api..internal:9001\"",
            "between the dots of a host name",
            "write a name such as api.internal",
        ),
        (
            "127.0.0.1:9000",
            "^127.0.0.1:0",
            "clusters[0].endpoints[0]",
            "\"127.0.0.1:0\"",
            "port 0",
            "endpoint's port",
        ),
        (
            "127.0.0.1:9000",
            "^0.0.0.0:9000",
            "clusters[0].endpoints[0]",
            "\"0.0.0.0:9000\"",
            "every address of a machine",
            "write 127.0.0.1:9000 for this machine",
        ),
        (
            "127.0.0.1:9001",
            "^'[::]:9001'",
            "clusters[1].endpoints[0].address",
            "\"[::]:9001\"",
            "every address of a machine",
            "write [::1]:9001 for this machine",
        ),
        (
            "127.0.0.1:9000",
            "^'[::ffff:0.0.0.0]:9000'",
            "clusters[0].endpoints[0]",
            "\"[::ffff:0.0.0.0]:9000\"",
            "every address of a machine",
            "write 127.0.0.1:9000 for this machine",
        ),
        (
            "127.0.0.1:9000",
            "^224.0.0.1:9000",
            "clusters[0].endpoints[0]",
            "\"224.0.0.1:9000\"",
            "multicast",
            "the endpoint's own address",
        ),
        (
            "127.0.0.1:9000",
            "^'[ff02::1]:9000'",
            "clusters[0].endpoints[0]",
            "\"[ff02::1]:9000\"",
            "multicast",
            "the endpoint's own address",
        ),
        (
            "127.0.0.1:9000",
            "^255.255.255.255:9000",
            "clusters[0].endpoints[0]",
            "\"255.255.255.255:9000\"",
            "broadcast",
            "the endpoint's own address",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^\"::1\"\n",
            "listeners[1].address",
            "\"::1\"",
            "brackets",
            "[::1]:80",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^81\n",
            "listeners[1].address",
            "81",
            "an IP address with a port",
            "127.0.0.1:80",
        ),
    ]);
}

#[test]
fn names_that_nobody_has_or_that_two_have() {
    check(&[
        (
            "cluster: api",
            "cluster: ^apj",
            "routes[0].rules[2].cluster",
            "\"apj\"",
            "no cluster has this name",
            "did you mean `api`?",
        ),
        (
            "cluster: api",
            "cluster: ^shop",
            "routes[0].rules[2].cluster",
            "\"shop\"",
            "no cluster has this name",
            "known are: api, web",
        ),
        (
            "routes: [plain]",
            "routes: [^plian]",
            "listeners[1].routes[0]",
            "\"plian\"",
            "no route table has this name",
            "did you mean `plain`?",
        ),
        (
            "routes: [plain]",
            "routes: [plain, ^plain]",
            "listeners[1].routes[1]",
            "\"plain\"",
            "occurs twice",
            "remove one",
        ),
        (
            "cluster: web\nclusters:\n  - name: api\n",
            "cluster: api\n        upgrades: [^connect]\nclusters:\n  - name: api\n    protocol: http2\n",
            "routes[1].rules[0].upgrades[0]",
            "\"connect\"",
            "a tunnel needs a connection of its own",
            "`protocol: http1`",
        ),
        (
            "name: inner",
            "name: ^edge",
            "listeners[1].name",
            "\"edge\"",
            "each listener has its own name",
            "line 3",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^127.0.0.1:80\n",
            "listeners[1].address",
            "\"127.0.0.1:80\"",
            "each listener has its own address",
            "listener \"edge\" on line 4",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ['127.0.0.1:82', ^'127.0.0.1:80']\n",
            "listeners[1].address[1]",
            "\"127.0.0.1:80\"",
            "each listener has its own address",
            "listener \"edge\" on line 4",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ['127.0.0.1:82', ^'0.0.0.0:82']\n",
            "listeners[1].address[1]",
            "\"0.0.0.0:82\"",
            "each listener has its own address",
            "has 127.0.0.1:82 already",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ['127.0.0.1:0', '[::1]:0', ^'127.0.0.1:0']\n",
            "listeners[1].address[2]",
            "\"127.0.0.1:0\"",
            "two ports of the system's choice",
            "write the port",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ['127.0.0.1:82', ^localhost:82]\n",
            "listeners[1].address[1]",
            "\"localhost:82\"",
            "host names are not resolved here",
            "use an IP address such as 127.0.0.1:82",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^[]\n",
            "listeners[1].address",
            "",
            "the list needs at least one item",
            "add one",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^127.0.0.1:9901\n",
            "listeners[1].address",
            "\"127.0.0.1:9901\"",
            "own address",
            "the admin interface on line 1",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^0.0.0.0:80\n",
            "listeners[1].address",
            "\"0.0.0.0:80\"",
            "own address, of which 0.0.0.0 and [::] are all",
            "listener \"edge\" on line 4 has 127.0.0.1:80 already",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^0.0.0.0:9901\n",
            "listeners[1].address",
            "\"0.0.0.0:9901\"",
            "are all",
            "the admin interface on line 1 has 127.0.0.1:9901 already",
        ),
        (
            "[127.0.0.1:9000]",
            "[127.0.0.1:9000, ^127.0.0.1:9000]",
            "clusters[0].endpoints[1]",
            "\"127.0.0.1:9000\"",
            "its own address",
            "use a weight",
        ),
        (
            "[127.0.0.1:9000]",
            "[127.0.0.1:9000, ^'[::ffff:127.0.0.1]:9000']",
            "clusters[0].endpoints[1]",
            "\"[::ffff:127.0.0.1]:9000\"",
            "its own address",
            "use a weight",
        ),
        ("name: inner", "name: ^\"\"", "listeners[1].name", "\"\"", "1 to 1024", "shop-api"),
        ("name: inner", "name: ^\"a b\"", "listeners[1].name", "\"a b\"", "no spaces", "shop-api"),
        (
            "routes: [plain]",
            "routes: [shop, ^other]\n",
            "listeners[1].routes[1]",
            "\"other\"",
            "no route table",
            "known are: shop, plain",
        ),
    ]);
}

#[test]
fn original_destinations_have_one_place_to_come_from_and_stand_alone() {
    check(&[
        (
            "    endpoints: [127.0.0.1:9000]\n",
            "    endpoints: [127.0.0.1:9000]\n    original_destination: ^true\n",
            "clusters[0].original_destination",
            "true",
            "has no endpoints",
            "keep one",
        ),
        (
            "  - name: api\n    endpoints: [127.0.0.1:9000]\n",
            "  - ^name: api\n",
            "clusters[0]",
            "",
            "has `endpoints`, or `original_destination`",
            "add `endpoints: [ADDRESS]`",
        ),
        (
            "    endpoints: [127.0.0.1:9000]\n",
            "    original_destination: true\n    balance: ^random\n",
            "clusters[0].balance",
            "\"random\"",
            "no endpoints to choose among",
            "remove it",
        ),
        (
            "    endpoints: [127.0.0.1:9000]\n",
            "    original_destination: true\n    connections_per_endpoint_max: ^5\n",
            "clusters[0].connections_per_endpoint_max",
            "5",
            "no endpoints of its own",
            "remove it; `connections_max` limits",
        ),
        (
            "    endpoints: [127.0.0.1:9000]\n",
            "    original_destination: true\n    transports: ^[{ name: plain }]\n",
            "clusters[0].transports",
            "",
            "no endpoints with metadata",
            "remove it",
        ),
        (
            "    endpoints: [127.0.0.1:9000]\n",
            "    endpoints: [127.0.0.1:9000]\n    mark: ^0\n",
            "clusters[0].mark",
            "0",
            "from 1 to 4294967295",
            "nearest is 1",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: unix:/run/a\n    original_destination: ^tproxy\n",
            "listeners[1].original_destination",
            "\"tproxy\"",
            "have no other destination",
            "listen on an IP address",
        ),
    ]);
}

/// Listeners keep IPv6 apart from IPv4; the admin interface does not.
#[test]
fn all_addresses_of_ipv6_are_those_of_ipv4_for_the_admin_interface_only() {
    let paths = |text: &str| -> Vec<_> { errors(text).into_iter().map(|e| e.path).collect() };
    let listener = SAMPLE.replace("127.0.0.1:81", "\"[::]:80\"");
    assert_eq!(paths(&listener), [""; 0]);
    let admin = SAMPLE.replace("127.0.0.1:9901", "\"[::]:80\"");
    assert_eq!(paths(&admin), ["listeners[0].address"]);
}

#[test]
fn addresses_that_cannot_be_bound_or_that_are_spelled_in_two_ways_are_refused() {
    for (address, hint) in [
        ("'[::ffff:127.0.0.1]:8080'", "write 127.0.0.1:8080"),
        ("'[::ffff:0.0.0.0]:8080'", "write 0.0.0.0:8080"),
    ] {
        let found = errors(&SAMPLE.replace("127.0.0.1:81", address));
        let [found] = &found[..] else { panic!("{address}: {found:?}") };
        assert_eq!((&*found.path, &*found.hint), ("listeners[1].address", hint));
    }
    for (one, other) in [
        ("/run/b.sock", "/run/a/../b.sock"),
        ("/run//b.sock", "/run/b.sock"),
        ("/run/b.sock", "/run/./b.sock"),
    ] {
        let several = format!("['unix:{one}', 'unix:{other}']");
        let found = errors(&SAMPLE.replace("127.0.0.1:81", &several));
        let [found] = &found[..] else { panic!("{other}: {found:?}") };
        assert_eq!(found.path, "listeners[1].address[1]");
        assert!(found.rule.contains("each listener has its own address"), "{found:?}");
    }
    assert_eq!(errors(&SAMPLE.replace("127.0.0.1:81", "unix:/run//b.sock")), []);
}

#[test]
fn a_listener_cannot_have_the_address_that_the_admin_interface_keeps_until_a_restart() {
    let mut loader = loader();
    loader.load("f", SAMPLE).unwrap_or_else(|errors| panic!("{errors}"));
    let moved = SAMPLE.replace("127.0.0.1:9901", "127.0.0.1:9902");
    let taken = moved.replace("127.0.0.1:81", "127.0.0.1:9901");
    let Err(errors) = loader.load("f", &taken) else { panic!("an error is expected") };
    assert_eq!(errors.errors[0].path, "listeners[1].address");
    assert_eq!(
        errors.errors[0].hint,
        "the admin interface, until a restart, has it already; choose another port"
    );
    loader.load("f", &moved).unwrap_or_else(|errors| panic!("{errors}"));
}

#[test]
fn the_folder_for_state_does_not_depend_on_where_the_process_is_started() {
    let found = errors(&format!("state: var/lib/strait\n{SAMPLE}"));
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.path.as_str(), found.line, found.column), ("state", 1, 8));
    assert_eq!(found.hint, "write the whole path, such as /var/lib/strait");
    let found = errors(&format!("state: {{ keys: true, folder: lib }}\n{SAMPLE}"));
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.path.as_str(), found.line, found.column), ("state.folder", 1, 30));
    let found = errors(&format!("state: {{ keys: true }}\n{SAMPLE}"));
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.path.as_str(), &*found.hint), ("state.folder", "add `folder: text`"));
    for state in ["/var/lib/strait", "{ folder: /var/lib/strait, keys: true }"] {
        assert_eq!(errors(&format!("state: {state}\n{SAMPLE}")), []);
    }
}

#[test]
fn hosts_that_two_route_tables_claim_name_both() {
    check(&[
        (
            "    hosts: [shop.example]\n",
            "    hosts: [shop.example, ^shop.EXAMPLE]\n",
            "routes[0].hosts[1]",
            "\"shop.EXAMPLE\"",
            "occurs twice",
            "remove one",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: ^[]\n",
            "routes[0].hosts",
            "",
            "at least one",
            "add one",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^\"shop.example:80\"]\n",
            "routes[0].hosts[0]",
            "\"shop.example:80\"",
            "without their port",
            "write \"shop.example\", or add `ports: true` to the table",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^\"https://shop.example:80/a\"]\n",
            "routes[0].hosts[0]",
            "\"https://shop.example:80/a\"",
            "no scheme and no path",
            "write \"shop.example\"",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^\"://\"]\n",
            "routes[0].hosts[0]",
            "\"://\"",
            "no scheme and no path",
            "a name such as",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^*.example.com]\n",
            "routes[0].hosts[0]",
            "",
            "this is not YAML",
            "put quotes around a text that begins with `*`",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^*]\n",
            "routes[0].hosts[0]",
            "",
            "this is not YAML",
            "put quotes around a text that begins with `*`",
        ),
        (
            "{ path: /new }",
            "{ host: ^\"http://x:81/\" }",
            "routes[0].rules[1].redirect.host",
            "\"http://x:81/\"",
            "no scheme and no path",
            "write \"x:81\"; the scheme",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^\"sh*.example\"]\n",
            "routes[0].hosts[0]",
            "\"sh*.example\"",
            "used alone",
            "\"*.suffix\"",
        ),
    ]);
    let text =
        SAMPLE.replace("    hosts: [shop.example]\n", "").replace("[plain]", "[plain, shop]");
    let found = errors(&text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, "listeners[1].routes[1]");
    assert_eq!(found[0].rule, "route tables `plain` and `shop` both contain the host *");
}

#[test]
fn rules_that_cannot_be_followed() {
    check(&[
        (
            "    routes: [plain]\n",
            "    protocol: ^tcp\n",
            "listeners[1].protocol",
            "\"tcp\"",
            "needs a cluster",
            "add `cluster: NAME`",
        ),
        (
            "    routes: [plain]\n",
            "    protocol: tcp\n    cluster: web\n    routes: ^[plain]\n",
            "listeners[1].routes",
            "",
            "has no routes",
            "`protocol: auto`",
        ),
        (
            "    routes: [plain]\n",
            "    protocol: http1\n    routes: [plain]\n    cluster: ^web\n",
            "listeners[1].cluster",
            "\"web\"",
            "relays nothing",
            "`protocol: auto`",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    clusters: [{ cluster: ^wbe }]\n",
            "listeners[1].clusters[0].cluster",
            "\"wbe\"",
            "no cluster has this name",
            "web",
        ),
        (
            "    routes: [plain]\n",
            "    routes: [plain]\n    cluster: web\n    clusters: ^[{ cluster: web }]\n",
            "listeners[1].clusters",
            "",
            "exclude each other",
            "keep one",
        ),
        (
            "  - name: inner\n    address: 127.0.0.1:81\n    routes: [plain]\n",
            "  - ^name: inner\n    address: 127.0.0.1:81\n",
            "listeners[1]",
            "",
            "needs `routes`",
            "`protocol: tcp`",
        ),
        (
            "      - match: { path: /healthz }\n        respond: { status: 200 }\n",
            "      - ^match: { path: /healthz }\n",
            "routes[0].rules[0]",
            "",
            "exactly one of `cluster`, `clusters`",
            "add one",
        ),
        (
            "      - match: { path: /healthz }\n        respond: { status: 200 }\n",
            "      - ^match: { path: /healthz }\n        respond: {}\n        cluster: api\n",
            "routes[0].rules[0]",
            "",
            "exactly one of",
            "one of `cluster`, `respond`",
        ),
        (
            "{ path: /healthz }",
            "^{ path: /healthz, prefix: / }",
            "routes[0].rules[0].match",
            "",
            "exactly one of `path`, `prefix`",
            "keep one",
        ),
        (
            "{ path: /healthz }",
            "^{}",
            "routes[0].rules[0].match",
            "",
            "exactly one of `path`, `prefix`",
            "add one",
        ),
        (
            "{ path: /healthz }",
            "{ path: ^healthz }",
            "routes[0].rules[0].match.path",
            "\"healthz\"",
            "begins with `/`",
            "\"/healthz\"",
        ),
        (
            "{ path: /healthz }",
            "{ path: ^/a/../b }",
            "routes[0].rules[0].match.path",
            "\"/a/../b\"",
            "dot segments",
            "without `.`",
        ),
        (
            "{ prefix: /old/ }",
            "{ prefix: ^\"*\" }",
            "routes[0].rules[1].match.prefix",
            "\"*\"",
            "begins with `/`",
            "write / to match everything",
        ),
        (
            "{ prefix: /old/ }",
            "{ prefix: ^/a?b }",
            "routes[0].rules[1].match.prefix",
            "\"/a?b\"",
            "without query",
            "\"/a\"",
        ),
        (
            "cluster: web",
            "cluster: web\n        upgrades: [^h2c]",
            "routes[1].rules[0].upgrades[0]",
            "\"h2c\"",
            "h2c",
            "remove it",
        ),
        (
            "cluster: web",
            "cluster: web\n        upgrades: [websocket, ^H2C]",
            "routes[1].rules[0].upgrades[1]",
            "\"H2C\"",
            "h2c",
            "remove it",
        ),
        (
            "cluster: web",
            "cluster: web\n        upgrades: [^a b]",
            "routes[1].rules[0].upgrades[0]",
            "\"a b\"",
            "token",
            "websocket",
        ),
        (
            "        respond: { status: 200 }",
            "        respond: { status: 200 }\n        ^timeout: 2s",
            "routes[0].rules[0].timeout",
            "\"timeout\"",
            "needs a `cluster`",
            "remove it",
        ),
        (
            "{ status: 200 }",
            "{ status: 204, body: ^ok }",
            "routes[0].rules[0].respond.body",
            "\"ok\"",
            "204 has no body",
            "remove",
        ),
        (
            "{ status: 200 }",
            "{ headers: { ^content-length: \"1\" } }",
            "routes[0].rules[0].respond.headers.content-length",
            "\"content-length\"",
            "sets this header itself",
            "remove",
        ),
        (
            "{ status: 200 }",
            "{ headers: { ^\"x y\": z } }",
            "routes[0].rules[0].respond.headers.\"x y\"",
            "\"x y\"",
            "header name",
            "cache-control",
        ),
        (
            "{ status: 200 }",
            "{ headers: { x: ^\"a\\r\\nb\" } }",
            "routes[0].rules[0].respond.headers.x",
            "\"a\\r\\nb\"",
            "header value",
            "line ends",
        ),
        (
            "{ status: 200 }",
            "{ headers: { X-A: b, ^x-a: b } }",
            "routes[0].rules[0].respond.headers.x-a",
            "\"x-a\"",
            "ignore case",
            "`X-A`",
        ),
        (
            "{ path: /new }",
            "^{ status: 302 }",
            "routes[0].rules[1].redirect",
            "",
            "leads back to itself",
            "add one of",
        ),
        (
            "{ path: /new }",
            "^{ path: /a, prefix: /b }",
            "routes[0].rules[1].redirect",
            "",
            "only one of `path`, `prefix`",
            "all but one",
        ),
        (
            "{ path: /new }",
            "{ path: ^//evil }",
            "routes[0].rules[1].redirect.path",
            "\"//evil\"",
            "another host",
            "`host`",
        ),
        (
            "{ path: /new }",
            "{ host: ^\"a:b\" }",
            "routes[0].rules[1].redirect.host",
            "\"a:b\"",
            "a port",
            "a:443",
        ),
        (
            "{ path: /new }",
            "{ prefix: ^\"/b?x\" }",
            "routes[0].rules[1].redirect.prefix",
            "\"/b?x\"",
            "would become a part of the query",
            "`path`",
        ),
        (
            "        respond: { status: 200 }",
            "        redirect: { prefix: ^/b }",
            "routes[0].rules[0].redirect.prefix",
            "\"/b\"",
            "no prefix that this could replace",
            "`path`",
        ),
    ]);
}

#[test]
fn criteria_that_no_request_can_meet_or_that_cannot_be_read() {
    check(&[
        (
            "{ path: /healthz }",
            "{ path: /healthz, methods: [^get] }",
            "routes[0].rules[0].match.methods[0]",
            "\"get\"",
            "case counts",
            "write GET",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, methods: [GET, ^GET] }",
            "routes[0].rules[0].match.methods[1]",
            "\"GET\"",
            "twice",
            "remove",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, methods: [^'a b'] }",
            "routes[0].rules[0].match.methods[0]",
            "\"a b\"",
            "is a token",
            "GET",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, methods: ^[] }",
            "routes[0].rules[0].match.methods",
            "",
            "at least",
            "",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, methods: { not: [^post] } }",
            "routes[0].rules[0].match.methods.not[0]",
            "\"post\"",
            "case counts",
            "write POST",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { ^':method': GET } }",
            "routes[0].rules[0].match.headers.\":method\"",
            "\":method\"",
            "cannot match this header field",
            "`methods: [...]`",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { ^Host: a } }",
            "routes[0].rules[0].match.headers.Host",
            "\"Host\"",
            "cannot match this header field",
            "`hosts`",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { ^'a b': c } }",
            "routes[0].rules[0].match.headers.\"a b\"",
            "\"a b\"",
            "a header name consists",
            "x-team",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { X-A: b, ^x-a: c } }",
            "routes[0].rules[0].match.headers.x-a",
            "\"x-a\"",
            "occurs twice",
            "keep one",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: ^{} } }",
            "routes[0].rules[0].match.headers.x-a",
            "",
            "exactly one of `exact`, `prefix`",
            "add one",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: ^{ prefix: b, suffix: c } } }",
            "routes[0].rules[0].match.headers.x-a",
            "",
            "exactly one of",
            "`prefix`, `suffix`",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { ^prefx: b } } }",
            "routes[0].rules[0].match.headers.x-a.prefx",
            "\"prefx\"",
            "is unknown",
            "`prefix`",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { prefix: ^'' } } }",
            "routes[0].rules[0].match.headers.x-a.prefix",
            "\"\"",
            "the empty text",
            "present: true",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { range: ^[1] } } }",
            "routes[0].rules[0].match.headers.x-a.range",
            "",
            "two numbers",
            "[18, 99]",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { range: ^[9, 1] } } }",
            "routes[0].rules[0].match.headers.x-a.range",
            "",
            "is empty",
            "[1, 9]",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { range: ^[4, 4] } } }",
            "routes[0].rules[0].match.headers.x-a.range",
            "",
            "is empty",
            "[4, 5]",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { present: true, ^case: insensitive } } }",
            "routes[0].rules[0].match.headers.x-a.case",
            "\"case\"",
            "has no effect",
            "remove it",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { regex: ^'a(b' } } }",
            "routes[0].rules[0].match.headers.x-a.regex",
            "\"a(b\"",
            "unclosed group",
            "character 2",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { regex: ^'a)|(b' } } }",
            "routes[0].rules[0].match.headers.x-a.regex",
            "\"a)|(b\"",
            "unopened group",
            "character 2",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { regex: ^'(?!a)b' } } }",
            "routes[0].rules[0].match.headers.x-a.regex",
            "\"(?!a)b\"",
            "no regular expression",
            "`not`",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { regex: ^'(a{99}){99}' } } }",
            "routes[0].rules[0].match.headers.x-a.regex",
            "\"(a{99}){99}\"",
            "at most 64 KiB",
            "repetitions",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, headers: { x-a: { not: { regex: ^'[' } } } }",
            "routes[0].rules[0].match.headers.x-a.not.regex",
            "\"[\"",
            "no regular expression",
            "character 1",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, query: { page: { regex: ^'*' } } }",
            "routes[0].rules[0].match.query.page.regex",
            "\"*\"",
            "no regular expression",
            "",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, cookies: { ^'a=b': c } }",
            "routes[0].rules[0].match.cookies.\"a=b\"",
            "\"a=b\"",
            "cookie name",
            "session",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, sources: [^10.0.0.1/8] }",
            "routes[0].rules[0].match.sources[0]",
            "\"10.0.0.1/8\"",
            "",
            "10.0.0.0/8",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, fraction: { percent: ^101 } }",
            "routes[0].rules[0].match.fraction.percent",
            "101",
            "at most 100",
            "write 100",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, fraction: { percent: ^0.00001 } }",
            "routes[0].rules[0].match.fraction.percent",
            "0.00001",
            "four digits",
            "0.5",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, fraction: { percent: ^ten } }",
            "routes[0].rules[0].match.fraction.percent",
            "\"ten\"",
            "percent",
            "10",
        ),
    ]);
}

#[test]
fn conditions_on_paths_that_no_request_can_meet_or_that_cannot_be_read() {
    check(&[
        (
            "{ path: /healthz }",
            "{ segments: ^/api/ }",
            "routes[0].rules[0].match.segments",
            "\"/api/\"",
            "end without a slash",
            "\"/api\"",
        ),
        (
            "{ path: /healthz }",
            "{ segments: ^/ }",
            "routes[0].rules[0].match.segments",
            "\"/\"",
            "end without a slash",
            "prefix: /",
        ),
        (
            "{ path: /healthz }",
            "{ segments: ^api }",
            "routes[0].rules[0].match.segments",
            "\"api\"",
            "begins with `/`",
            "\"/api\"",
        ),
        (
            "{ path: /healthz }",
            "{ segments: ^'*' }",
            "routes[0].rules[0].match.segments",
            "\"*\"",
            "begin with `/`",
            "prefix: /",
        ),
        (
            "{ path: /healthz }",
            "{ regex: ^'/a(' }",
            "routes[0].rules[0].match.regex",
            "\"/a(\"",
            "unclosed group",
            "character 3",
        ),
        (
            "{ path: /healthz }",
            "{ regex: ^'/(a{99}){99}' }",
            "routes[0].rules[0].match.regex",
            "\"/(a{99}){99}\"",
            "at most 64 KiB",
            "repetitions",
        ),
        (
            "{ path: /healthz }",
            "{ regex: /a, ^case: insensitive }",
            "routes[0].rules[0].match.case",
            "\"case\"",
            "is for `path`",
            "(?i)",
        ),
        (
            "{ path: /healthz }",
            "{ template: '/{a}', ^case: insensitive }",
            "routes[0].rules[0].match.case",
            "\"case\"",
            "is for `path`",
            "`regex`",
        ),
        (
            "{ path: /healthz }",
            "{ template: ^'/{a}/{a}' }",
            "routes[0].rules[0].match.template",
            "\"/{a}/{a}\"",
            "occurs twice",
            "another name",
        ),
        (
            "{ path: /healthz }",
            "{ template: ^'/{a' }",
            "routes[0].rules[0].match.template",
            "\"/{a\"",
            "not closed",
            "add a `}`",
        ),
        (
            "{ path: /healthz }",
            "{ template: ^'a' }",
            "routes[0].rules[0].match.template",
            "\"a\"",
            "begins with `/`",
            "\"/a\"",
        ),
        (
            "{ path: /healthz }",
            "{ prefix: ^'^/api' }",
            "routes[0].rules[0].match.prefix",
            "\"^/api\"",
            "under `regex`",
            "/api",
        ),
        (
            "{ path: /healthz }",
            "{ path: ^'/users/{id}' }",
            "routes[0].rules[0].match.path",
            "\"/users/{id}\"",
            "`template`",
            "/users/",
        ),
    ]);
}

#[test]
fn a_guard_that_another_case_gets_around_is_a_warning() {
    let warned = |guard: &str, other: &str| {
        let text = SAMPLE.replace("{ path: /healthz }", &format!("{{ {guard}, client: [a] }}"));
        let text = text.replace(
            "{ prefix: /old/ }\n        redirect: { path: /new }",
            &format!("{{ {other} }}\n        cluster: web"),
        );
        let mut loader = loader();
        loader.load("strait.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        loader.warnings().iter().any(|warning| warning.rule.contains("only in case"))
    };
    let any_case = "prefix: /ADMIN, case: insensitive";
    for (guard, other, is_warned) in [
        ("prefix: /admin/", any_case, true),
        ("path: /admin", any_case, true),
        ("segments: /admin", any_case, true),
        ("prefix: /admin/, case: insensitive", any_case, false),
        ("prefix: /other", any_case, false),
        ("prefix: /admin/", "prefix: /ADMIN", false),
        ("prefix: /admin/", "prefix: /ADMIN, case: insensitive, client: [b]", false),
    ] {
        assert_eq!(warned(guard, other), is_warned, "{guard} before {other}");
    }
}

#[test]
fn hashes_and_balancers_that_cannot_choose() {
    let (rule, cluster) = ("      - match: { prefix: /old/ }\n", "  - name: api\n");
    let hash = |hash: &str| {
        format!(
            "      - match: {{ prefix: /h }}\n        cluster: api\n        hash: [{hash}]\n{rule}"
        )
    };
    let rows = [
        ("{ header: ^host }", ".header", "\"host\"", "cannot match this header field", "`hosts`"),
        ("{ cookie: { name: ^\"a b\" } }", ".cookie.name", "\"a b\"", "cookie name", "session"),
        (
            "{ cookie: { name: a, path: ^/ } }",
            ".cookie.path",
            "\"/\"",
            "needs a `ttl`",
            "`ttl: 0s`",
        ),
        (
            "{ cookie: { name: a, ttl: 1h, path: ^\"/;b\" } }",
            ".cookie.path",
            "\"/;b\"",
            "spaces nor `;`",
            "write /",
        ),
    ];
    for (text, path, value, problem, hint) in rows {
        let path = format!("routes[0].rules[1].hash[0]{path}");
        check(&[(rule, &hash(text), &path, value, problem, hint)]);
    }
    let twice = "{ cookie: { name: a, ttl: 1h } }, { cookie: { name: b, ttl: ^1h } }";
    check(&[
        (
            rule,
            &hash(twice),
            "routes[0].rules[1].hash[1].cookie.ttl",
            "\"1h\"",
            "one cookie",
            "remove the `ttl`",
        ),
        (
            rule,
            "      - match: { prefix: /h }\n        respond: {}\n        ^hash: [client_ip]\n      - match: { prefix: /old/ }\n",
            "routes[0].rules[1].hash",
            "\"hash\"",
            "needs a `cluster`",
            "remove it",
        ),
        (
            cluster,
            "  - name: api\n    balance: { maglev: { table: ^65536 } }\n",
            "clusters[0].balance.maglev.table",
            "65536",
            "prime number",
            "write 65537",
        ),
        (
            cluster,
            "  - name: api\n    ^initial_check_timeout: 3s\n",
            "clusters[0].initial_check_timeout",
            "\"initial_check_timeout\"",
            "nothing to wait for",
            "add `checks`",
        ),
        (
            cluster,
            "  - name: api\n    balance: ring_hash\n    ^slow_start: { window: 1s }\n",
            "clusters[0].slow_start",
            "\"slow_start\"",
            "without a hash",
            "least_request",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [^\"shop.example:0\"]\n    ports: true\n",
            "routes[0].hosts[0]",
            "\"shop.example:0\"",
            "a number from 1 to 65535",
            "shop.example:8080",
        ),
        (
            "      - match: { prefix: / }\n        cluster: api\n",
            "      - match: { prefix: / }\n        cluster: api\n        rewrite: { host: a.b, original_path: ^true }\n",
            "routes[0].rules[2].rewrite.original_path",
            "true",
            "the path is not rewritten",
            "add `prefix`",
        ),
        (
            cluster,
            "  - name: api\n    balance: maglev\n    ^localities: { zone_aware: {} }\n",
            "clusters[0].localities",
            "\"localities\"",
            "selects one endpoint",
            "least_request",
        ),
        (
            cluster,
            "  - name: api\n    localities: { weights: { eu/: ^1 } }\n",
            "clusters[0].localities.weights.\"eu/\"",
            "1",
            "a region, a zone in it",
            "REGION/ZONE",
        ),
        (
            cluster,
            "  - name: api\n    slow_start: { window: 1s, aggression: ^0 }\n",
            "clusters[0].slow_start.aggression",
            "0",
            "from 0.001 to 100",
            "1.0",
        ),
        (
            cluster,
            "  - name: api\n    outlier: { ejection: { base: 10s, max: ^5s } }\n",
            "clusters[0].outlier.ejection.max",
            "\"5s\"",
            "not shorter than the first",
            "write at least 10s",
        ),
        (
            cluster,
            "  - name: api\n    proxy_protocol: v1\n    transports: ^[{ name: plain }]\n",
            "clusters[0].transports",
            "",
            "a cluster with `proxy_protocol` speaks to all of its endpoints in the same way",
            "remove one of the two",
        ),
        (
            cluster,
            "  - name: api\n    transports: [{ name: plain }, { name: ^plain }]\n",
            "clusters[0].transports[1].name",
            "\"plain\"",
            "each transport has its own name",
            "line 27 has it already; choose another name",
        ),
        (
            cluster,
            "  - name: api\n    adaptive_concurrency: { concurrency_max: 2, min_rtt: { concurrency: ^3 } }\n",
            "clusters[0].adaptive_concurrency.min_rtt.concurrency",
            "3",
            "the minimum of the limit is above its maximum, concurrency_max: 2",
            "write at most 2",
        ),
        (
            cluster,
            "  - name: api\n    preconnect: ^4\n",
            "clusters[0].preconnect",
            "4",
            "from 1 to 3",
            "write 1.5",
        ),
        (
            cluster,
            "  - name: api\n    proxy_protocol: v1\n    ^preconnect: 1.5\n",
            "clusters[0].preconnect",
            "\"preconnect\"",
            "a connection is one client's",
            "remove it",
        ),
        (
            cluster,
            "  - name: api\n    outlier: { errors_local: ^0 }\n",
            "clusters[0].outlier.errors_local",
            "0",
            "from 1 to 4294967295",
            "nearest is 1",
        ),
        (
            cluster,
            "  - name: api\n    checks: [^{ interval: 1s }]\n",
            "clusters[0].checks[0]",
            "",
            "one of `http`, `grpc` and `tcp`",
            "path: /healthz",
        ),
        (
            cluster,
            "  - name: api\n    checks: [{ ^grpc: {} }]\n",
            "clusters[0].checks[0].grpc",
            "\"grpc\"",
            "gRPC needs HTTP/2",
            "protocol: http2",
        ),
        (
            cluster,
            "  - name: api\n    checks: [{ http: { path: ^healthz } }]\n",
            "clusters[0].checks[0].http.path",
            "\"healthz\"",
            "begins with `/`",
            "write /healthz",
        ),
        (
            cluster,
            "  - name: api\n    checks: [{ http: { path: /, headers: { host: ^x } } }]\n",
            "clusters[0].checks[0].http.headers.host",
            "\"x\"",
            "the host belongs under `host`",
            "beside `path`",
        ),
        (
            cluster,
            "  - name: api\n    checks: [{ tcp: { send: ^\"0x50\" } }]\n",
            "clusters[0].checks[0].tcp.send",
            "\"0x50\"",
            "pairs of 0 to 9",
            "50494e47",
        ),
        (
            cluster,
            "  - name: api\n    checks: [{ tcp: {}, healthy: ^0 }]\n",
            "clusters[0].checks[0].healthy",
            "0",
            "from 1 to 1000",
            "nearest is 1",
        ),
        (
            cluster,
            "  - name: api\n    outlier: { interval: ^10ms }\n",
            "clusters[0].outlier.interval",
            "\"10ms\"",
            "at least 100ms",
            "100ms or more",
        ),
        (
            cluster,
            "  - name: api\n    balance: { ring_hash: { size_min: ^9, size_max: 8 } }\n",
            "clusters[0].balance.ring_hash.size_min",
            "9",
            "is greater than `size_max`",
            "write 8 or less",
        ),
    ]);
}

#[test]
fn runtime_values_that_are_none() {
    check(&[
        (
            "admin: {",
            "runtime: { canary: ^101 }\nadmin: {",
            "runtime.canary",
            "101",
            "at most 100 %",
            "write 100",
        ),
        (
            "admin: {",
            "runtime: { ^'a b': 1 }\nadmin: {",
            "runtime.\"a b\"",
            "\"a b\"",
            "no spaces",
            "shop-api",
        ),
        (
            "{ path: /healthz }",
            "{ path: /healthz, fraction: { percent: 1, runtime: ^'' } }",
            "routes[0].rules[0].match.fraction.runtime",
            "\"\"",
            "no spaces",
            "shop-api",
        ),
    ]);
}

#[test]
fn a_runtime_value_that_no_rule_asks_for_is_warned_of() {
    for (asked, hint) in [("canary2", "did you mean `canary2`?"), ("other", "remove it")] {
        let text = SAMPLE.replace(
            "{ path: /healthz }",
            &format!("{{ path: /healthz, fraction: {{ percent: 1, runtime: {asked} }} }}"),
        );
        let mut loader = loader();
        loader.load("f", &format!("runtime: {{ canary: 5 }}\n{text}")).expect("it is sound");
        let warned = loader.warnings().iter().find(|it| it.path == "runtime.canary");
        let warned = warned.expect("a warning");
        assert!(warned.rule.contains("no rule uses") && warned.hint.contains(hint), "{warned}");
    }
}

#[test]
fn redirects_that_rewrite_no_path() {
    check(&[
        (
            "redirect: { path: /new }",
            "redirect: { path: /new, ^regex: a, with: b }",
            "routes[0].rules[1].redirect.regex",
            "\"regex\"",
            "leads to one path",
            "keep one",
        ),
        (
            "redirect: { path: /new }",
            "redirect: { ^regex: /old/(.*) }",
            "routes[0].rules[1].redirect.regex",
            "\"regex\"",
            "stand together",
            "add `with`",
        ),
        (
            "redirect: { path: /new }",
            "redirect: { regex: /old/(.*), with: ^'/\\2' }",
            "routes[0].rules[1].redirect.with",
            "\"/\\\\2\"",
            "1 groups",
            "parentheses",
        ),
        (
            "redirect: { path: /new }",
            "redirect: { template: ^'/new/{id}' }",
            "routes[0].rules[1].redirect.template",
            "\"/new/{id}\"",
            "no template whose variables",
            "add `template` to `match`",
        ),
        (
            "redirect: { path: /new }",
            "redirect: { host: 'a.example:81', port: ^82 }",
            "routes[0].rules[1].redirect.port",
            "82",
            "has a port already",
            "remove one",
        ),
    ]);
}

#[test]
fn mirrors_that_get_no_copy() {
    check(&[
        (
            "        cluster: api\n",
            "        cluster: api\n        mirror: [{ cluster: ^apx }]\n",
            "routes[0].rules[2].mirror[0].cluster",
            "\"apx\"",
            "no cluster has this name",
            "did you mean `api`?",
        ),
        (
            "        cluster: api\n",
            "        cluster: api\n        mirror: [{ cluster: web }, { cluster: ^web }]\n",
            "routes[0].rules[2].mirror[1].cluster",
            "\"web\"",
            "already gets a copy of each request",
            "remove one",
        ),
        (
            "        cluster: api\n",
            "        cluster: api\n        mirror: [{ cluster: web, host_suffix: ^'/x' }]\n",
            "routes[0].rules[2].mirror[0].host_suffix",
            "\"/x\"",
            "the end of a host",
            "write -shadow",
        ),
        (
            "        cluster: api\n",
            "        cluster: api\n        mirror: [{ cluster: web, percent: ^101 }]\n",
            "routes[0].rules[2].mirror[0].percent",
            "101",
            "",
            "",
        ),
        (
            "respond: { status: 200 }",
            "respond: { status: 200 }\n        ^mirror: [{ cluster: web }]",
            "routes[0].rules[0].mirror",
            "\"mirror\"",
            "needs a `cluster` to forward to",
            "remove it",
        ),
        (
            "respond: { status: 200 }",
            "respond: { status: 200 }\n        ^priority: high",
            "routes[0].rules[0].priority",
            "\"priority\"",
            "needs a `cluster` to forward to",
            "remove it",
        ),
    ]);
}

#[test]
fn edits_of_header_fields_that_cannot_be_made() {
    let here = "{ path: /healthz }\n        respond: { status: 200 }";
    check(&[
        (
            here,
            "{ path: /healthz }\n        cluster: web\n        headers: { request: { set: { x-a: ^'%PROTOCL%' } } }",
            "routes[0].rules[0].headers.request.set.x-a",
            "\"%PROTOCL%\"",
            "there is no operator %PROTOCL%",
            "did you mean `PROTOCOL`?",
        ),
        (
            here,
            "{ path: /healthz }\n        cluster: web\n        headers: { request: { remove: [x-a, ^Host] } }",
            "routes[0].rules[0].headers.request.remove[1]",
            "\"Host\"",
            "no field to edit here",
            "rewrite",
        ),
        (
            here,
            "{ path: /healthz }\n        clusters: [{ cluster: web, headers: { response: { append: { content-length: ^'0' } } } }]",
            "routes[0].rules[0].clusters[0].headers.response.append.content-length",
            "\"0\"",
            "the length of a body is Strait's",
            "leave it out",
        ),
        (
            here,
            "{ path: /healthz }\n        cluster: web\n        headers: { request: { set_if_present: { ':path': ^/a } } }",
            "routes[0].rules[0].headers.request.set_if_present.\":path\"",
            "\"/a\"",
            "begins with `:`",
            "rewrite",
        ),
        (
            "    hosts: [shop.example]\n",
            "    hosts: [shop.example]\n    headers: { response: { append_if_absent: { x-a: ^100% } } }\n",
            "routes[0].headers.response.append_if_absent.x-a",
            "\"100%\"",
            "begins an operator",
            "`%%`",
        ),
        (
            here,
            "{ path: /healthz }\n        respond: { status: 200 }\n        headers: { ^request: { remove: [x-a] } }",
            "routes[0].rules[0].headers.request",
            "\"request\"",
            "not forwarded",
            "remove it",
        ),
    ]);
}

#[test]
fn retries_that_cannot_be_made() {
    let rule = "      - match: { path: /healthz }\n        respond: { status: 200 }\n      - match: { prefix: /old/ }\n";
    let with = |retry: &str| {
        format!(
            "      - match: {{ path: /healthz }}\n        cluster: web\n        retry: {retry}\n      - match: {{ prefix: /old/ }}\n"
        )
    };
    let (any, low, unnamed, unused, twice, pauses, none) = (
        with("{ on: [^any] }"),
        with("{ on: [retriable_status], status: [^302] }"),
        with("{ on: ^[retriable_status] }"),
        with("{ on: [reset], status: ^[429] }"),
        with("{ on: [reset, ^reset] }"),
        with("{ on: [reset], backoff: ^{ base: 1s, max: 1ms } }"),
        with("{ on: [reset], attempts_max: ^0 }"),
    );
    let (fieldless, wordless, unsent) = (
        with("{ on: ^[retriable_headers] }"),
        with("{ on: [reset], headers: ^[x-busy] }"),
        with("{ on: [reset], reset_header: ^\"retry after\" }"),
    );
    let hedged = |hedge: &str, retry: &str| {
        with(retry).replace("        retry: ", &format!("        hedge: {hedge}\n        retry: "))
    };
    let (unbounded, single, unknown) = (
        hedged("^{ after: try_timeout }", "{ on: [reset] }"),
        hedged("^{ after: try_timeout }", "{ on: [reset], try_timeout: 1s, attempts_max: 1 }"),
        hedged("{ after: ^100ms }", "{ on: [reset], try_timeout: 1s }"),
    );
    let alone = with("").replace("retry: ", "hedge: ^{ after: try_timeout }");
    check(&[
        (
            rule,
            &fieldless,
            "routes[0].rules[0].retry.on",
            "",
            "needs `headers`",
            "headers: [x-busy]",
        ),
        (rule, &wordless, "routes[0].rules[0].retry.headers", "", "`on` does not contain", "add"),
        (
            rule,
            &unsent,
            "routes[0].rules[0].retry.reset_header",
            "\"retry after\"",
            "a header name consists of",
            "write a name",
        ),
        (rule, &unbounded, "routes[0].rules[0].hedge", "", "needs a `try_timeout`", "add"),
        (rule, &single, "routes[0].rules[0].hedge", "", "no other attempt", "attempts_max: 2"),
        (rule, &alone, "routes[0].rules[0].hedge", "", "needs `retry`", "try_timeout: 100ms"),
        (
            rule,
            &unknown,
            "routes[0].rules[0].hedge.after",
            "\"100ms\"",
            "try_timeout",
            "try_timeout",
        ),
        (rule, &any, "routes[0].rules[0].retry.on[0]", "\"any\"", "5xx", "one of them"),
        (rule, &low, "routes[0].rules[0].retry.status[0]", "302", "from 400 on", "write 429"),
        (rule, &unnamed, "routes[0].rules[0].retry.on", "", "needs `status`", "status: [429]"),
        (rule, &unused, "routes[0].rules[0].retry.status", "", "`on` does not contain", "add"),
        (rule, &twice, "routes[0].rules[0].retry.on[1]", "\"reset\"", "twice", "remove"),
        (rule, &pauses, "routes[0].rules[0].retry.backoff", "", "longer than", "no less"),
        (rule, &none, "routes[0].rules[0].retry.attempts_max", "0", "from 1 to 16", "nearest is 1"),
    ]);
}

#[test]
fn targets_and_rewrites_that_cannot_be_followed() {
    check(&[
        (
            "      - match: { path: /healthz }\n        respond: { status: 200 }\n      - match: { prefix: /old/ }\n",
            "      - name: a\n        match: { path: /healthz }\n        respond: { status: 200 }\n      - name: ^a\n        match: { prefix: /old/ }\n",
            "routes[0].rules[1].name",
            "\"a\"",
            "has its own name",
            "line 15",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        clusters: [{ cluster: ^wbe }]",
            "routes[0].rules[0].clusters[0].cluster",
            "\"wbe\"",
            "no cluster has this name",
            "web",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        clusters: ^[{ cluster: web, weight: 0 }, { cluster: api, weight: 0 }]",
            "routes[0].rules[0].clusters",
            "",
            "all 0",
            "give one",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        clusters: ^[{ cluster: web, weight: 4294967295 }, { cluster: api }]",
            "routes[0].rules[0].clusters",
            "",
            "at most 4294967295",
            "divide",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        clusters: [{ cluster: web, rewrite: { host: ^'http://a/' } }]",
            "routes[0].rules[0].clusters[0].rewrite.host",
            "\"http://a/\"",
            "no scheme",
            "\"a\"",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        ^sticky: { header: x }",
            "routes[0].rules[0].sticky",
            "\"sticky\"",
            "needs `clusters`",
            "write `hash` here, and `balance: maglev` in the cluster",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        ^among: [web]",
            "routes[0].rules[0].among",
            "\"among\"",
            "needs `cluster_header`",
            "remove it",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        clusters: [{ cluster: web }]\n        sticky: { header: ^'a b' }",
            "routes[0].rules[0].sticky.header",
            "\"a b\"",
            "a header name consists",
            "x-team",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster_header: ^'a b'",
            "routes[0].rules[0].cluster_header",
            "\"a b\"",
            "a header name consists",
            "x-team",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster_header: x-c\n        among: [web, ^wbe]",
            "routes[0].rules[0].among[1]",
            "\"wbe\"",
            "no cluster has this name",
            "web",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster_header: x-c\n        among: [web, ^web]",
            "routes[0].rules[0].among[1]",
            "\"web\"",
            "twice",
            "remove",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: ^{}",
            "routes[0].rules[0].rewrite",
            "",
            "rewrites nothing",
            "add `prefix`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { prefix: ^v2 }",
            "routes[0].rules[0].rewrite.prefix",
            "\"v2\"",
            "begins with `/`",
            "\"/v2\"",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { prefix: ^/v2?a }",
            "routes[0].rules[0].rewrite.prefix",
            "\"/v2?a\"",
            "no query",
            "`regex`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { prefix: /v2, ^regex: a, with: b }",
            "routes[0].rules[0].rewrite.regex",
            "\"regex\"",
            "in one way",
            "keep one",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { ^regex: a }",
            "routes[0].rules[0].rewrite.regex",
            "\"regex\"",
            "stand together",
            "add `with`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { ^with: a }",
            "routes[0].rules[0].rewrite.with",
            "\"with\"",
            "stand together",
            "add `regex`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { regex: ^'(', with: a }",
            "routes[0].rules[0].rewrite.regex",
            "\"(\"",
            "unclosed group",
            "character 1",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { regex: '(a)', with: ^'\\2' }",
            "routes[0].rules[0].rewrite.with",
            "\"\\\\2\"",
            "has 1 groups",
            "parentheses",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { regex: '(a)', with: ^'\\x' }",
            "routes[0].rules[0].rewrite.with",
            "\"\\\\x\"",
            "is no group",
            "`\\1`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { regex: a, with: ^'a b' }",
            "routes[0].rules[0].rewrite.with",
            "\"a b\"",
            "percent-encoded",
            "%20",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { template: ^/a }",
            "routes[0].rules[0].rewrite.template",
            "\"/a\"",
            "no template whose variables",
            "`regex`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { host: ^'*.a' }",
            "routes[0].rules[0].rewrite.host",
            "\"*.a\"",
            "one host",
            "without `*`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: { host_header: ^'a b' }",
            "routes[0].rules[0].rewrite.host_header",
            "\"a b\"",
            "a header name consists",
            "x-team",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        cluster: web\n        rewrite: ^{ host: a, host_endpoint: true }",
            "routes[0].rules[0].rewrite",
            "",
            "only one of `host`, `host_endpoint`",
            "remove all but one",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ template: \"/a/{id}\" }\n        cluster: web\n        rewrite: { template: ^\"/{ib}\" }",
            "routes[0].rules[0].rewrite.template",
            "\"/{ib}\"",
            "no variable `ib`",
            "`id`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ regex: /a }\n        cluster: web\n        rewrite: { prefix: ^/b }",
            "routes[0].rules[0].rewrite.prefix",
            "\"/b\"",
            "no prefix that this could replace",
            "`regex`",
        ),
        (
            "{ path: /healthz }\n        respond: { status: 200 }",
            "{ path: /healthz }\n        respond: { status: 200 }\n        ^rewrite: { prefix: /b }",
            "routes[0].rules[0].rewrite",
            "\"rewrite\"",
            "to forward to",
            "remove it",
        ),
    ]);
}

#[test]
fn filters_and_the_access_log() {
    check(&[
        (
            "- headers: {",
            "- ^haeders: {",
            "listeners[0].filters[0].haeders",
            "\"haeders\"",
            "this filter is unknown",
            "did you mean `headers`?",
        ),
        (
            "request: { remove: [x-a] }",
            "^requests: {}",
            "listeners[0].filters[0].headers.requests",
            "\"requests\"",
            "unknown",
            "did you mean `request`?",
        ),
        (
            "[x-a]",
            "[x-a, ^x b]",
            "listeners[0].filters[0].headers.request.remove[1]",
            "\"x b\"",
            "no spaces",
            "remove them",
        ),
        (
            "remove: [x-a]",
            "set: { x y: ^z }",
            "listeners[0].filters[0].headers.request.set.\"x y\"",
            "\"z\"",
            "no spaces",
            "remove them",
        ),
        (
            "[x-a]",
            "^x-a",
            "listeners[0].filters[0].headers.request.remove",
            "\"x-a\"",
            "a list is needed",
            "[item, item]",
        ),
        (
            "- headers: { request: { remove: [x-a] } }",
            "- ^{}",
            "listeners[0].filters[0]",
            "",
            "exactly one of `headers`",
            "add one",
        ),
        (
            "admin: {",
            "access_log: { output: ^stdot }\nadmin: {",
            "access_log.output",
            "\"stdot\"",
            "stdout, stderr or to a path",
            "did you mean `stdout`?",
        ),
        (
            "admin: {",
            "access_log: { output: ^access.log }\nadmin: {",
            "access_log.output",
            "\"access.log\"",
            "with a `/`",
            "./access.log",
        ),
        (
            "admin: {",
            "access_log: { fields: [status, ^stauts] }\nadmin: {",
            "access_log.fields[1]",
            "\"stauts\"",
            "no field of this name",
            "did you mean `status`?",
        ),
        (
            "admin: {",
            "access_log: { fields: [request_headers.x, ^request_headers.X] }\nadmin: {",
            "access_log.fields[1]",
            "\"request_headers.X\"",
            "occurs twice",
            "remove one",
        ),
        (
            "admin: {",
            "access_log: { fields: [^'response_headers.a b'] }\nadmin: {",
            "access_log.fields[0]",
            "\"response_headers.a b\"",
            "a header name consists of",
            "request_headers.x-tenant",
        ),
        (
            "admin: {",
            "access_log: { format: combined, fields: ^[status] }\nadmin: {",
            "access_log.fields",
            "",
            "has fixed fields",
            "remove `fields`",
        ),
        (
            "admin: {",
            "access_log: { only: [^{}] }\nadmin: {",
            "access_log.only[0]",
            "",
            "matches every exchange",
            "add one of status",
        ),
        (
            "admin: {",
            "access_log: { only: [{ status: [^6xx] }] }\nadmin: {",
            "access_log.only[0].status[0]",
            "\"6xx\"",
            "a number, a class or a range",
            "write 503, 5xx",
        ),
        (
            "admin: {",
            "access_log: { except: [{ status: [^499-400] }] }\nadmin: {",
            "access_log.except[0].status[0]",
            "\"499-400\"",
            "a number, a class or a range",
            "400-499",
        ),
        (
            "admin: {",
            "access_log: { except: [{ prefixes: [^healthz] }] }\nadmin: {",
            "access_log.except[0].prefixes[0]",
            "\"healthz\"",
            "begins with `/`",
            "write \"/healthz\"",
        ),
        (
            "admin: {",
            "access_log: { format: ^jsn }\nadmin: {",
            "access_log.format",
            "\"jsn\"",
            "json, text, combined",
            "did you mean `json`?",
        ),
    ]);
}

#[test]
fn error_pages_have_a_type_and_variables_that_there_are() {
    check(&[
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ status: [^304], body: x }]",
            "routes[0].error_pages[0].status[0]",
            "304",
            "statuses from 400 on",
            "write 503, 5xx",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ status: [^none], body: x }]",
            "routes[0].error_pages[0].status[0]",
            "\"none\"",
            "statuses from 400 on",
            "write 503, 5xx",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ cause: [^conect_failed], body: x }]",
            "routes[0].error_pages[0].cause[0]",
            "\"conect_failed\"",
            "no reply has this cause",
            "did you mean `connect_failed`?",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ body: ^'a {{Stat}} {{hosts}}' }]",
            "routes[0].error_pages[0].body",
            "\"a {{Stat}} {{hosts}}\"",
            "line 1 of the page has `{{hosts}}`",
            "did you mean `host`?",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ file: ^missing.html }]",
            "routes[0].error_pages[0].file",
            "\"missing.html\"",
            "there is no such file",
            "relative to the folder of the main configuration file",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ file: ^web.endpoints.yaml }]",
            "routes[0].error_pages[0].file",
            "\"web.endpoints.yaml\"",
            "does not show its type",
            "add `content_type: text/html; charset=utf-8`",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [{ file: site.ocsp, content_type: ^html }]",
            "routes[0].error_pages[0].content_type",
            "\"html\"",
            "two words with `/` between",
            "write text/html; charset=utf-8",
        ),
        (
            "    hosts: [shop.example]",
            "    error_pages: [^{ file: 404.html, body: x }]",
            "routes[0].error_pages[0]",
            "",
            "`body`",
            "",
        ),
    ]);
}

#[test]
fn error_pages_are_text_of_a_bounded_size() {
    let text = SAMPLE.replace("    hosts: [shop.example]", "    error_pages: [{ file: big.html }]");
    for (content, rule) in [
        (vec![b'x'; (64 << 10) + 1], "at most 64 KiB"),
        (b"abc\xff".to_vec(), "not UTF-8 at octet 3"),
        ("{{date}}".repeat(33).into_bytes(), "at most 32 variables"),
    ] {
        let mut loader = loader();
        loader.outside.insert("big.html", content);
        let Err(errors) = loader.load("f", &text) else { panic!("an error is expected: {rule}") };
        assert_eq!(errors.errors[0].path, "routes[0].error_pages[0].file");
        assert!(errors.errors[0].rule.contains(rule), "{errors}");
    }
}

#[test]
fn a_page_that_looks_like_html_and_is_sent_as_text_is_warned_of() {
    let mut loader = loader();
    let with = |page: &str| SAMPLE.replace("    hosts: [shop.example]", page);
    loader.load("f", &with("    error_pages: [{ body: ' <p>x' }]")).unwrap();
    let [warning] = loader.warnings() else { panic!("{:?}", loader.warnings()) };
    assert_eq!(warning.path, "routes[0].error_pages[0].body");
    let typed = "    error_pages: [{ body: '<p>x', content_type: text/html }]";
    loader.load("f", &with(typed)).unwrap();
    assert_eq!(loader.warnings(), []);
}

#[test]
fn mistakes_of_every_layer_are_told_in_one_run() {
    let text = SAMPLE
        .replace("    connect_timeout: 1s\n", "    connect_timeout: 1s\n    connect_timeout: 2s\n")
        .replace("127.0.0.1:9000", "localhost")
        .replace("    address: 127.0.0.1:81\n", "    adress: 127.0.0.1:81\n")
        .replace("cluster: api", "cluster: apj")
        .replace("remove: [x-a]", "remove: [x a]")
        .replace("name: web", "name: api");
    let found = errors(&text);
    let paths: Vec<&str> = found.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "listeners[0].filters[0].headers.request.remove[0]",
            "listeners[1].adress",
            "routes[0].rules[2].cluster",
            "routes[1].rules[0].cluster",
            "clusters[0].endpoints[0]",
            "clusters[0].connect_timeout",
            "clusters[1].name",
        ]
    );
}

#[test]
fn ranges_of_chains_are_told_with_their_place_and_hide_no_other_mistake() {
    let chains = "    chains:\n    - { name: inside, match: { sources: [10.0.0.0/8, 10.0.0.1/8], \
                  destinations: [nowhere] }, routes: [plain] }\n";
    let text = SAMPLE
        .replace("    address: 127.0.0.1:81\n", &format!("    address: 127.0.0.1:81\n{chains}"))
        .replace("cluster: api", "cluster: apj");
    let found = errors(&text);
    let reported = |path: &str, value: &str, hint: &str| {
        found.iter().any(|f| f.path == path && f.value == value && f.hint.contains(hint))
    };
    let place = "listeners[1].chains[0].match";
    assert!(reported(&format!("{place}.sources[1]"), "\"10.0.0.1/8\"", "10.0.0.0/8"), "{found:#?}");
    assert!(
        reported(&format!("{place}.destinations[0]"), "\"nowhere\"", "10.0.0.0/8"),
        "{found:#?}"
    );
    assert!(reported("routes[0].rules[2].cluster", "\"apj\"", "api"), "{found:#?}");
    assert_eq!(found.len(), 3, "{found:#?}");
}

#[test]
fn an_entry_with_a_mistake_still_counts_as_declared() {
    for (from, to) in [
        ("    endpoints: [127.0.0.1:9000]\n", "    endpoints: 7\n"),
        ("  - name: api\n", "  - nmae: api\n"),
        ("clusters:\n  - name: api\n", "clusters:\n  - name: [api]\n"),
    ] {
        let found = errors(&SAMPLE.replace(from, to));
        assert!(!found.is_empty());
        assert!(found.iter().all(|error| error.path.starts_with("clusters[0].")), "{found:#?}");
    }
    let found = errors(&SAMPLE.replace("  - name: plain\n", "  - name: plain\n    hots: []\n"));
    assert_eq!(found.len(), 1, "{found:#?}");
}

#[test]
fn a_file_without_a_beginning_says_what_to_write() {
    for text in ["", "\n\n", "# nothing\n", "{}", "null"] {
        let found = errors(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert!(found[0].hint.contains("listeners"), "{}", found[0]);
    }
    let found = errors("just text");
    assert!(found[0].rule.contains("consists of sections, and this is text"), "{}", found[0]);
}

#[test]
fn a_report_reads_like_a_compilers() {
    let (text, _) = with("    address: 127.0.0.1:81\n", "    address: ^localhost:80\n");
    let Err(errors) = loader().load("strait.yaml", &text) else { panic!("an error is expected") };
    assert_eq!(
        errors.to_string(),
        "strait.yaml:9:14: listeners[1].address: \"localhost:80\": host names are not resolved here; \
         use an IP address such as 127.0.0.1:80\n  \
         |     address: localhost:80\n  \
         |              ^"
    );
    let json = serde_json::to_value(&errors).unwrap();
    assert_eq!(json["errors"][0]["path"], "listeners[1].address");
    assert_eq!(json["errors"][0]["line"], 9);
}

#[test]
fn what_looks_like_a_mistake_is_a_warning() {
    for (from, to, path, rule, hint) in [
        (
            "cluster: web",
            "cluster: api",
            "clusters[1].name",
            "no rule or listener uses this cluster",
            "remove it",
        ),
        (
            "routes: [plain]",
            "routes: shop",
            "routes[1].name",
            "no listener uses this route table",
            "remove it",
        ),
        (
            "{ path: /healthz }",
            "{ prefix: / }",
            "routes[0].rules[1].match",
            "never reached",
            "line 15",
        ),
        ("[127.0.0.1:9000]", "[]", "clusters[0].endpoints", "503", "add an endpoint"),
        (
            "weight: 1",
            "weight: 0",
            "clusters[1].endpoints",
            "all of its endpoints have a weight of 0",
            "weight of 1",
        ),
        (
            "rules:\n      - match: { prefix: / }\n        cluster: web\n",
            "rules: []\n",
            "routes[1].rules",
            "gets 404",
            "add a rule",
        ),
        (
            "127.0.0.1:9901",
            "0.0.0.0:9901",
            "admin.address",
            "can read the configuration and drain the process",
            "write 127.0.0.1:9901 or a unix socket",
        ),
        (
            "127.0.0.1:9901",
            "10.0.0.1:9901, metrics: '10.0.0.1:9902'",
            "admin.address",
            "has no authentication",
            "`metrics` with an address",
        ),
        (
            "[127.0.0.1:9000]",
            "[127.0.0.1:80]",
            "clusters[0].endpoints[0]",
            "listener edge listens on this address",
            "the address of the upstream",
        ),
        (
            "endpoints: [127.0.0.1:9000]",
            "original_destination: true",
            "clusters[0].original_destination",
            "no listener finds",
            "`original_destination: redirect` or `tproxy`",
        ),
        (
            "    routes: [plain]",
            "    http2: { streams_max: 101 }\n    routes: [plain]",
            "listeners[1].http2.connection_window_max",
            "6400KiB is less than 101 streams of 64KiB",
            "write 6464KiB",
        ),
        (
            "    routes: [plain]",
            "    http2: { streams_max: 9999, stream_window_max: 1MiB }\n    routes: [plain]",
            "listeners[1].http2.connection_window_max",
            "9999 streams of 1MiB",
            "write less in `streams_max`",
        ),
        (
            "    endpoints: [127.0.0.1:9000]",
            "    endpoints: [127.0.0.1:9000]\n    http2: { connection_window_max: 6399KiB }",
            "clusters[0].http2.connection_window_max",
            "hold up the others",
            "`stream_window_max`",
        ),
        (
            "    endpoints: [127.0.0.1:9000]",
            "    endpoints: [127.0.0.1:9000]\n    high_priority: {}",
            "clusters[0].high_priority",
            "no rule has requests of high priority",
            "`priority: high`",
        ),
    ] {
        let mut loader = loader();
        loader.load("f", &SAMPLE.replace(from, to)).unwrap_or_else(|errors| panic!("{errors}"));
        let warnings = loader.warnings();
        let warning = warnings.iter().find(|warning| warning.path == path).expect(path);
        assert!(warning.rule.contains(rule) && warning.hint.contains(hint), "{warning}");
    }
    let mut loader = loader();
    loader.load("f", "listeners: []").unwrap();
    assert_eq!(loader.warnings()[0].path, "listeners");
}

#[test]
fn endpoints_are_a_file_or_a_name_and_not_both() {
    check(&[
        (
            "endpoints: [127.0.0.1:9000]",
            "endpoints: ^{ dns: 'a.example:80', file: a.yaml }",
            "clusters[0].endpoints",
            "",
            "exactly one of `file`, `dns` must be present",
            "keep one of them",
        ),
        (
            "endpoints: [127.0.0.1:9000]",
            "endpoints: ^{}",
            "clusters[0].endpoints",
            "",
            "exactly one of `file`, `dns` must be present",
            "add one of them",
        ),
        (
            "endpoints: [127.0.0.1:9000]",
            "endpoints: ^{ address: 'a.example:80' }",
            "clusters[0].endpoints",
            "",
            "exactly one of `file`, `dns` must be present",
            "add one of them",
        ),
        (
            "endpoints: [127.0.0.1:9000]",
            "endpoints: { dns: 'a.example:80', ^mod: srv }",
            "clusters[0].endpoints.mod",
            "\"mod\"",
            "unknown",
            "did you mean `mode`?",
        ),
        (
            "    address: 127.0.0.1:81\n",
            "    address: ^127.0.0.1:65536\n",
            "listeners[1].address",
            "\"127.0.0.1:65536\"",
            "a port is a number up to 65535",
            "write 127.0.0.1:80, for instance",
        ),
    ]);
}

#[test]
fn priorities_of_a_list_begin_at_0_and_none_is_skipped_and_its_texts_are_lines() {
    check(&[
        (
            "weight: 1",
            "priority: ^1",
            "clusters[1].endpoints[0].priority",
            "1",
            "priority 0 has no endpoints, and 1 has some",
            "write 0, or add endpoints of priority 0",
        ),
        (
            "weight: 1 }",
            "weight: 1 }, { address: 127.0.0.1:9002, priority: ^2 }",
            "clusters[1].endpoints[1].priority",
            "2",
            "priority 1 has no endpoints, and 2 has some",
            "write 1, or add endpoints of priority 1",
        ),
        // One that is refused may be what is missing.
        (
            "weight: 1 }",
            "weight: 1 }, { address: ^7, priority: 1 }, { address: 127.0.0.1:9002, priority: 2 }",
            "clusters[1].endpoints[1].address",
            "7",
            "",
            "",
        ),
        (
            "weight: 1",
            "locality: ^\"eu/a\\u001b[31m\"",
            "clusters[1].endpoints[0].locality",
            "\"eu/a\\u{1b}[31m\"",
            "a locality contains no control characters",
            "remove",
        ),
        (
            "weight: 1",
            "metadata: { unit: ^\"a\\nb\" }",
            "clusters[1].endpoints[0].metadata.unit",
            "\"a\\nb\"",
            "metadata contains no control characters",
            "remove",
        ),
    ]);
}

#[test]
fn an_endpoint_is_a_loop_where_its_listener_leads_to_it() {
    let warnings = |listener: &str, rest: &str, endpoint: &str| {
        let text = format!(
            "listeners:\n- {{ name: edge, address: '{listener}', {rest} }}\n\
             routes: [{{ name: all, rules: [{{ match: {{ prefix: / }}, cluster: one }}] }}]\n\
             clusters:\n- {{ name: one, endpoints: [{{ address: '{endpoint}' }}] }}\n\
             - {{ name: two, endpoints: ['{endpoint}'] }}\n"
        );
        let mut loader = loader();
        loader.load("f", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let found =
            loader.warnings().iter().filter(|found| found.rule.contains("listens on this address"));
        found.map(|found| found.path.clone()).collect::<Vec<_>>()
    };
    let one = "clusters[0].endpoints[0]";
    for (listener, endpoint, expected) in [
        ("127.0.0.1:80", "127.0.0.1:80", &[one][..]),
        ("0.0.0.0:80", "127.0.0.1:80", &[one]),
        ("[::]:80", "[::1]:80", &[one]),
        ("unix:/a", "unix:/a", &[one]),
        ("0.0.0.0:80", "192.0.2.1:80", &[]),
        ("127.0.0.1:80", "127.0.0.1:81", &[]),
    ] {
        assert_eq!(warnings(listener, "routes: all", endpoint), expected, "{listener} {endpoint}");
    }
    let at = "127.0.0.1:80";
    let two = "clusters[1].endpoints[0]";
    assert_eq!(warnings(at, "routes: all, cluster: two", at), [one, two]);
    assert_eq!(warnings(at, "protocol: tcp, clusters: [{ cluster: two }]", at), [two]);
    let chain = "chains: [{ name: c, match: { protocols: [tls] }, protocol: tcp, cluster: two }]";
    assert_eq!(warnings(at, chain, at), [two]);
}

#[test]
fn a_machine_made_flood_of_mistakes_is_bounded() {
    let mut text = String::from("listeners: []\nclusters:\n");
    for n in 0..1_000 {
        text.push_str(&format!("  - {{ name: c{n}, endpoints: [\"h{n}\"] }}\n"));
    }
    let Err(errors) = loader().load("f", &text) else { panic!("errors are expected") };
    assert_eq!((errors.errors.len(), errors.more), (config::findings::FINDINGS_MAX, 800));
}

/// The type that a filter's constructor takes is not needed to see a mistake in it.
#[test]
fn a_program_without_filters_says_so() {
    let mut loader = config::Loader::<Headers>::new(config::FilterKinds::new()).unwrap();
    let Err(errors) = loader.load("f", SAMPLE) else { panic!("an error is expected") };
    assert_eq!(errors.errors.len(), 1, "{errors}");
    assert!(errors.errors[0].rule.contains("this filter is unknown"), "{errors}");
}

#[test]
fn forwarded_names_that_have_an_option_or_are_none_are_refused() {
    for (name, hint) in [
        ("x-forwarded-for", "trusted_hops"),
        ("X-Forwarded-Client-Cert", "forward_client_cert"),
        ("x-forwarded-", "x-forwarded-prefix"),
        ("x_forwarded_prefix", "x-forwarded-prefix"),
        ("x-real-ip", "x-forwarded-prefix"),
        ("x-forwarded-a b", "x-forwarded-prefix"),
    ] {
        let text = format!(
            "listeners: [{{ name: a, address: '127.0.0.1:80', routes: r, http: \
             {{ forwarded_allowed: ['{name}'] }} }}]\n\
             routes: [{{ name: r, rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}]\n"
        );
        let Err(errors) = loader().load("f", &text) else { panic!("{name} is refused") };
        assert_eq!(errors.errors[0].path, "listeners[0].http.forwarded_allowed[0]");
        assert!(errors.errors[0].hint.contains(hint), "{errors}");
    }
}

#[test]
fn headers_that_whoever_connects_may_send_are_warned_of_where_sources_count() {
    let text = "
listeners:
  - name: edge
    address: 127.0.0.1:80
    proxy_protocol: true
    chains: [{ name: office, match: { sources: [10.0.0.0/8] }, routes: r }]
routes: [{ name: r, rules: [{ match: { prefix: / }, respond: {} }] }]
";
    let mut loader = loader();
    loader.load("f", text).unwrap_or_else(|errors| panic!("{errors}"));
    let [warning] = loader.warnings() else { panic!("{:?}", loader.warnings()) };
    assert_eq!(warning.path, "listeners[0].proxy_protocol");
    assert!(warning.hint.contains("{ from: [10.0.0.0/8] }"), "{warning}");
    for (from, to) in [
        ("proxy_protocol: true", "proxy_protocol: { from: [10.0.0.0/8] }"),
        ("proxy_protocol: true", "proxy_protocol: false"),
        ("127.0.0.1:80", "unix:/run/edge.sock"),
        ("sources: [10.0.0.0/8]", "protocols: [http1]"),
    ] {
        loader.load("f", &text.replace(from, to)).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loader.warnings(), [], "{to}");
    }
    // Rules may look at them as well as chains, those of a chain's table too.
    let ruled = text.replace("sources: [10.0.0.0/8]", "protocols: [http1]");
    let ruled =
        ruled.replace("match: { prefix: / }", "match: { prefix: /, sources: [10.0.0.0/8] }");
    loader.load("f", &ruled).unwrap_or_else(|errors| panic!("{errors}"));
    let [warning] = loader.warnings() else { panic!("{:?}", loader.warnings()) };
    assert_eq!(warning.path, "listeners[0].proxy_protocol");
    assert!(warning.rule.ends_with("and rules of r match on it"), "{warning}");
    let unix = text.replace("127.0.0.1:80", "unix:/run/edge.sock");
    let unix = unix.replace("proxy_protocol: true", "proxy_protocol: { from: [10.0.0.0/8] }");
    let Err(errors) = loader.load("f", &unix) else { panic!("an error is expected") };
    assert_eq!(errors.errors[0].path, "listeners[0].proxy_protocol.from");
    let Err(errors) = loader.load("f", &text.replace(": true", ": { from: [] }")) else {
        panic!("an error is expected")
    };
    assert_eq!(errors.errors[0].path, "listeners[0].proxy_protocol.from");
}

#[test]
fn permissions_are_octal_and_those_of_unix_sockets() {
    check(&[
        (
            "    address: 127.0.0.1:80\n",
            "    address: 127.0.0.1:80\n    mode: ^0660\n",
            "listeners[0].mode",
            "0660",
            "those of the file of a unix socket",
            "remove this",
        ),
        (
            "admin: { address: 127.0.0.1:9901 }",
            "admin: { address: 127.0.0.1:9901, mode: ^0600 }",
            "admin.mode",
            "0600",
            "those of the file of a unix socket",
            "remove this",
        ),
        (
            "    address: 127.0.0.1:80\n",
            "    address: unix:/run/a.sock\n    mode: ^0o660\n",
            "listeners[0].mode",
            "0o660",
            "three octal digits",
            "write 0660",
        ),
        (
            "    address: 127.0.0.1:80\n",
            "    address: unix:/run/a.sock\n    mode: ^rw-rw----\n",
            "listeners[0].mode",
            "\"rw-rw----\"",
            "three octal digits",
            "write 0660",
        ),
    ]);
}
