//! `tls` of listeners, chains and clusters: what it becomes, what it is refused for, and what stays
//! while files change.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::tls::{Group, Version};
use config::outside::Memory;
use config::snapshot::{Changes, Cluster, ClusterTls, ListenerTls, Snapshot, TlsMode};
use config::{Errors, Finding, Outside, agreed, certificates, effective, effective_yaml};

use crate::sample::{CERTIFICATES, Headers, Loader, NOW, loader};

const SAMPLE: &str = r#"
listeners:
  - name: edge
    address: 127.0.0.1:443
    tls: { certificates: [{ chain: site.pem, key: site.key }] }
    routes: all
    chains:
      - name: tenants
        match: { server_names: [example.com, "*.example.com"] }
        tls:
          certificates: [{ chain: tenants.pem, key: tenants.key }]
          client: { ca: ca.pem }
        routes: all
routes:
  - name: all
    rules: [{ match: { prefix: / }, cluster: api }]
clusters:
  - name: api
    protocol: http2
    endpoints: ["10.0.0.1:443"]
    tls:
      server_name: api.example.com
      certificate: { chain: client.pem, key: client.key }
"#;

type Loaded = Arc<Snapshot<Headers>>;

#[track_caller]
fn load(loader: &mut Loader, text: &str) -> Loaded {
    loader.load("strait.yaml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn tls_of(snapshot: &Loaded) -> [&Arc<ListenerTls>; 2] {
    let listener = &snapshot.listeners[0];
    [listener.tls.as_ref().unwrap(), listener.chains[0].listener.tls.as_ref().unwrap()]
}

fn cluster_tls(snapshot: &Loaded) -> &Arc<ClusterTls> {
    snapshot.clusters.iter().next().unwrap().1.transports.own().tls.as_ref().unwrap()
}

fn file(name: &str) -> &'static str {
    CERTIFICATES.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn certificates_alone_are_enough() {
    let mut loader = loader();
    let snapshot = load(&mut loader, SAMPLE);
    assert_eq!(warnings(&loader), []);
    let [own, chain] = tls_of(&snapshot);
    assert_eq!(own.mode, TlsMode::Strict);
    assert_eq!(own.source.versions, Version::Tls12..=Version::Tls13);
    assert_eq!(own.source.cipher_suites, []);
    assert_eq!(own.source.groups, Group::DEFAULT);
    let alpn = [&b"h2"[..], b"http/1.1", b"http/1.0"].map(Box::from);
    assert_eq!(own.source.alpn, alpn);
    assert!(own.source.client.is_none() && own.source.session_tickets);
    assert!(chain.source.client.as_ref().unwrap().is_required);
    let names = own.context.certificate_for(Some("a.shop.example.com")).names().to_vec();
    assert_eq!(names[0].as_ref(), "shop.example.com");
    assert_eq!(snapshot.listeners[0].timeouts.tls_handshake, Duration::from_secs(10));
    assert_eq!(snapshot.limits.handshakes_max.get(), 4_096);

    let cluster = cluster_tls(&snapshot);
    assert_eq!(cluster.server_name.as_deref(), Some("api.example.com"));
    assert_eq!(cluster.source.alpn, [Box::from(&b"h2"[..])]);
    assert!(cluster.source.roots.as_ref().unwrap().path.is_none(), "whom the system trusts");
    assert!(cluster.relay_context.is_none());
}

#[test]
fn what_is_offered_follows_the_protocol() {
    for (protocol, offered) in [
        ("auto", &["h2", "http/1.1", "http/1.0"][..]),
        ("http1", &["http/1.1", "http/1.0"]),
        ("http2", &["h2"]),
        ("tcp", &[]),
    ] {
        let ends = if protocol == "tcp" { "cluster: api" } else { "routes: all" };
        let text = SAMPLE.replacen(
            "    routes: all\n    chains:",
            &format!("    protocol: {protocol}\n    {ends}\n    chains:"),
            1,
        );
        let snapshot = load(&mut loader(), &text);
        let [own, _] = tls_of(&snapshot);
        let alpn: Vec<_> =
            own.source.alpn.iter().map(|name| str::from_utf8(name).unwrap()).collect();
        assert_eq!(alpn, offered, "{protocol}");
        // What is relayed there speaks what it likes.
        assert_eq!(cluster_tls(&snapshot).relay_context.is_some(), protocol == "tcp");
    }
}

#[test]
fn tunnels_of_connect_offer_no_protocol_either() {
    let text = SAMPLE
        .replace("    protocol: http2\n", "")
        .replace("cluster: api }]", "cluster: api, upgrades: [connect] }]");
    assert!(cluster_tls(&load(&mut loader(), &text)).relay_context.is_some());
}

/// One row: what is replaced, by what (with a mark `^` at the place), and the path, value, rule and hint
/// of the report.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

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

#[track_caller]
fn check_one(found: &[Finding], place: (u32, u32), row: &Row) {
    let &(_, to, path, value, rule, hint) = row;
    let [finding] = found else { panic!("one finding is expected after {to:?}: {found:#?}") };
    assert_eq!((finding.line, finding.column), place, "{to:?}: {finding}");
    assert_eq!(finding.path, path, "{to:?}: {finding}");
    assert_eq!(finding.value, value, "{to:?}: {finding}");
    assert!(finding.rule.contains(rule), "{to:?}: rule {rule:?} in {finding}");
    assert!(finding.hint.contains(hint), "{to:?}: hint {hint:?} in {finding}");
}

#[track_caller]
fn check_errors(outside: &Memory, rows: &[Row]) {
    for row in rows {
        let (text, place) = with(row.0, row.1);
        let mut loader = loader();
        loader.outside = outside.clone();
        let found = match loader.load("strait.yaml", &text) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.errors,
        };
        check_one(&found, place, row);
    }
}

/// All warnings but the one that the sample deserves: its routes are both for clients with certificates
/// and for everyone.
fn warnings(loader: &Loader) -> Vec<Finding> {
    let warnings = loader.warnings().iter();
    let others =
        warnings.filter(|warning| !warning.rule.contains("is for clients with certificates"));
    others.cloned().collect()
}

#[track_caller]
fn check_warnings(rows: &[Row]) {
    for row in rows {
        let (text, place) = with(row.0, row.1);
        let mut loader = loader();
        load(&mut loader, &text);
        check_one(&warnings(&loader), place, row);
    }
}

const SITE: &str = "{ chain: site.pem, key: site.key }";

#[test]
fn files_that_are_not_what_they_should_be() {
    let mut outside = crate::sample::outside();
    outside.insert("empty.pem", "");
    outside.insert("garbage.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    outside.insert(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    outside.insert("reversed.pem", format!("{}{}", file("ca.pem"), file("site.pem")));
    check_errors(
        &outside,
        &[
            (
                SITE,
                "{ chain: ^sitte.pem, key: site.key }",
                "listeners[0].tls.certificates[0].chain",
                "\"sitte.pem\"",
                "there is no such file",
                "relative to the folder of the main configuration file",
            ),
            (
                SITE,
                "{ chain: site.pem, key: ^site.kay }",
                "listeners[0].tls.certificates[0].key",
                "\"site.kay\"",
                "there is no such file",
                "relative to the folder of the main configuration file",
            ),
            (
                SITE,
                "{ chain: site.pem, key: ^tenants.key }",
                "listeners[0].tls.certificates[0].key",
                "\"tenants.key\"",
                "the key does not fit the certificate",
                "openssl x509 -pubkey",
            ),
            (
                SITE,
                "{ chain: site.pem, key: ^site.pem }",
                "listeners[0].tls.certificates[0].key",
                "\"site.pem\"",
                "there is no private key",
                "BEGIN PRIVATE KEY",
            ),
            (
                SITE,
                "{ chain: ^site.key, key: site.pem }",
                "listeners[0].tls.certificates[0].chain",
                "\"site.key\"",
                "there is no certificate",
                "exchange `chain` and `key`",
            ),
            (
                SITE,
                "^{ chain: site.pem }",
                "listeners[0].tls.certificates[0].key",
                "",
                "this key is missing",
                "the file of `chain` again",
            ),
            (
                SITE,
                "{ chain: site.pem, key: ^encrypted.key }",
                "listeners[0].tls.certificates[0].key",
                "\"encrypted.key\"",
                "the key is encrypted",
                "openssl pkey",
            ),
            (
                SITE,
                "{ chain: ^empty.pem, key: site.key }",
                "listeners[0].tls.certificates[0].chain",
                "\"empty.pem\"",
                "there is no certificate",
                "must be PEM",
            ),
            (
                SITE,
                "{ chain: ^garbage.pem, key: site.key }",
                "listeners[0].tls.certificates[0].chain",
                "\"garbage.pem\"",
                "certificate 1 cannot be read",
                "openssl x509",
            ),
            (
                SITE,
                "{ chain: ^reversed.pem, key: site.key }",
                "listeners[0].tls.certificates[0].chain",
                "\"reversed.pem\"",
                "not the first but number 2",
                "first",
            ),
            (
                SITE,
                "{ chain: ^\"\", key: site.key }",
                "listeners[0].tls.certificates[0].chain",
                "\"\"",
                "the path of a file is needed here",
                "write site.pem",
            ),
            (
                "{ chain: client.pem, key: client.key }",
                "{ chain: client.pem, key: client.key, signing: ^thread }",
                "clusters[0].tls.certificate.signing",
                "\"thread\"",
                "`signing` does not apply to client certificates",
                "presented to clients",
            ),
            (
                "client: { ca: ca.pem }",
                "session_ticket_files: [^empty.pem]",
                "listeners[0].chains[0].tls.session_ticket_files[0]",
                "\"empty.pem\"",
                "a key for tickets has at least 32 bytes",
                "openssl rand 80",
            ),
            (
                "client: { ca: ca.pem }",
                "session_ticket_files: [tickets.key, ^tickets.key]",
                "listeners[0].chains[0].tls.session_ticket_files[1]",
                "\"tickets.key\"",
                "this occurs twice",
                "remove one of the two",
            ),
            (
                "client: { ca: ca.pem }",
                "session_tickets: false\n          session_ticket_files: ^[tickets.key]",
                "listeners[0].chains[0].tls.session_ticket_files",
                "",
                "without `session_tickets`, these are not used",
                "remove one of the two",
            ),
            (
                "client: { ca: ca.pem }",
                "session_ticket_files: [tickets.key]\n          early_data: ^true",
                "listeners[0].chains[0].tls.early_data",
                "true",
                "each ticket may be used once",
                "remove `session_ticket_files`",
            ),
            (
                "client: { ca: ca.pem }",
                "session_tickets: false\n          early_data: ^true",
                "listeners[0].chains[0].tls.early_data",
                "true",
                "no client can resume a session",
                "remove one of the two",
            ),
            (
                "client: { ca: ca.pem }",
                "max_version: \"1.2\"\n          early_data: ^true",
                "listeners[0].chains[0].tls.early_data",
                "true",
                "TLS 1.2 has no early data",
                "remove `max_version`",
            ),
            (
                "tls: { certificates: [{ chain: site.pem, key: site.key }] }",
                "cluster: api\n    tls: { certificates: [{ chain: site.pem, key: site.key }], early_data: ^true }",
                "listeners[0].tls.early_data",
                "true",
                "relayed bytes cannot be early data",
                "use a separate listener or chain for HTTP",
            ),
            (
                "client: { ca: ca.pem }",
                "client: { ca: ca.pem, crl: ^empty.pem }",
                "listeners[0].chains[0].tls.client.crl",
                "\"empty.pem\"",
                "there is no certificate revocation list",
                "`BEGIN X509 CRL`",
            ),
            (
                "client: { ca: ca.pem }",
                "client: { ca: ca.pem, crl: ^v1.crl }",
                "listeners[0].chains[0].tls.client.crl",
                "\"v1.crl\"",
                "list 1 has version 1 of the format, and version 2 is needed",
                "`crl_extensions` or `crlnumber` in openssl.cnf",
            ),
            (
                "client: { ca: ca.pem }",
                "client: { ca: ca.pem, names: [^\"*.example.com\"] }",
                "listeners[0].chains[0].tls.client.names[0]",
                "\"*.example.com\"",
                "names must be complete",
                "api.example.com",
            ),
            (
                "client: { ca: ca.pem }",
                "client: { ca: ca.pem, names: [^\"spiffe://*/sa/web\"] }",
                "listeners[0].chains[0].tls.client.names[0]",
                "\"spiffe://*/sa/web\"",
                "`*` may occur at the end only",
                "spiffe://example.org/ns/shop/*",
            ),
            (
                "{ chain: tenants.pem, key: tenants.key }",
                "{ chain: tenants.pem, key: tenants.key, ocsp: ^empty.pem }",
                "listeners[0].chains[0].tls.certificates[0].ocsp",
                "\"empty.pem\"",
                "the OCSP response cannot be read",
                "openssl ocsp -respout",
            ),
            (
                "client: { ca: ca.pem }",
                "client: { ca: ^empty.pem }",
                "listeners[0].chains[0].tls.client.ca",
                "\"empty.pem\"",
                "there is no CA certificate",
                "must be PEM",
            ),
            (
                "{ match: { prefix: / }, cluster: api }",
                "{ match: { prefix: /, client: [a.example, ^\"*.example\"] }, cluster: api }",
                "routes[0].rules[0].match.client[1]",
                "\"*.example\"",
                "names must be complete",
                "api.example.com",
            ),
            (
                "{ match: { prefix: / }, cluster: api }",
                "{ match: { prefix: /, client: [A.example, ^a.example] }, cluster: api }",
                "routes[0].rules[0].match.client[1]",
                "\"a.example\"",
                "this occurs twice",
                "remove one of the two",
            ),
            (
                "{ match: { prefix: / }, cluster: api }",
                "{ match: { prefix: /, client: ^[] }, cluster: api }",
                "routes[0].rules[0].match.client",
                "",
                "at least",
                "",
            ),
            (
                "{ chain: client.pem, key: client.key }",
                "{ chain: ^client.cert, key: client.key }",
                "clusters[0].tls.certificate.chain",
                "\"client.cert\"",
                "there is no such file",
                "relative to",
            ),
            (
                "server_name: api.example.com\n",
                "server_name: api.example.com\n      ca: ^other.pem\n",
                "clusters[0].tls.ca",
                "\"other.pem\"",
                "there is no such file",
                "relative to",
            ),
        ],
    );
}

#[test]
fn options_that_do_not_go_together() {
    let outside = crate::sample::outside();
    check_errors(
        &outside,
        &[
            (
                "tls: { certificates: [{ chain: site.pem, key: site.key }] }",
                "tls: { certificates: ^[] }",
                "listeners[0].tls.certificates",
                "",
                "at least one item",
                "add one",
            ),
            (
                "tls: { certificates: [{ chain: site.pem, key: site.key }] }",
                "tls: ^{}",
                "listeners[0].tls.certificates",
                "",
                "missing",
                "add `certificates:",
            ),
            (
                "tls: { cert",
                "tls: { min_version: \"1.3\", max_version: ^\"1.2\", cert",
                "listeners[0].tls.max_version",
                "\"1.2\"",
                "`max_version` is older than `min_version`",
                "exchange",
            ),
            (
                "tls: { cert",
                "tls: { min_version: ^1.1, cert",
                "listeners[0].tls.min_version",
                "1.1",
                "one of these words is needed here: 1.2, 1.3",
                "did you mean `1.2`?",
            ),
            (
                "tls: { cert",
                "tls: { cipher_suites: [^ECDHE-RSA-AES128-GCM-SHA256], cert",
                "listeners[0].tls.cipher_suites[0]",
                "\"ECDHE-RSA-AES128-GCM-SHA256\"",
                "one of these words",
                "did you mean `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`?",
            ),
            (
                "tls: { cert",
                "tls: { groups: [^x25591], cert",
                "listeners[0].tls.groups[0]",
                "\"x25591\"",
                "one of these words",
                "did you mean `x25519`?",
            ),
            (
                "tls: { cert",
                "tls: { max_version: 1.2, cipher_suites: [^TLS_AES_128_GCM_SHA256], cert",
                "listeners[0].tls.cipher_suites[0]",
                "\"TLS_AES_128_GCM_SHA256\"",
                "this suite is of TLSv1.3, which `max_version` rules out",
                "remove it",
            ),
            (
                "tls: { cert",
                "tls: { min_version: 1.3, cipher_suites: [TLS_AES_128_GCM_SHA256, ^TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256], cert",
                "listeners[0].tls.cipher_suites[1]",
                "\"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"",
                "this suite is of TLSv1.2, which `min_version` rules out",
                "allow that version",
            ),
            (
                "tls: { cert",
                "tls: { max_version: 1.2, cipher_suites: ^[TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], cert",
                "listeners[0].tls.cipher_suites",
                "",
                "no cipher suite goes with the key",
                "kinds of keys",
            ),
            (
                "tls: { cert",
                "tls: { groups: ^[X25519MLKEM768], cert",
                "listeners[0].tls.groups",
                "",
                "none of these groups is in TLS 1.2",
                "add x25519",
            ),
            (
                "tls: { cert",
                "tls: { groups: [x25519, ^x25519], cert",
                "listeners[0].tls.groups[1]",
                "\"x25519\"",
                "occurs twice",
                "remove",
            ),
            (
                "tls: { cert",
                "tls: { alpn: [h2, ^http/1.2], cert",
                "listeners[0].tls.alpn[1]",
                "\"http/1.2\"",
                "an `auto` listener speaks h2, http/1.1 and http/1.0",
                "did you mean `http/1.1`?",
            ),
            (
                "    tls: { cert",
                "    protocol: http1\n    tls: { alpn: [^h2], cert",
                "listeners[0].tls.alpn[0]",
                "\"h2\"",
                "an `http1` listener speaks http/1.1 and http/1.0",
                "known are: http/1.1, http/1.0",
            ),
            (
                "tls: { cert",
                "tls: { mode: ^permisive, cert",
                "listeners[0].tls.mode",
                "\"permisive\"",
                "strict, permissive",
                "did you mean `permissive`?",
            ),
            (
                "[\"10.0.0.1:443\"]\n    tls:\n      server_name: api.example.com\n      certificate: { chain: client.pem, key: client.key }",
                "[\"unix:/run/api.sock\"]\n    tls: ^{}",
                "clusters[0].tls",
                "",
                "the name in its certificate must be configured",
                "add `server_name: api.example.com`",
            ),
            (
                "server_name: api.example.com",
                "server_name: ^10.0.0.1",
                "clusters[0].tls.server_name",
                "\"10.0.0.1\"",
                "a host name, not an address",
                "names: [\"10.0.0.1\"]",
            ),
            (
                "server_name: api.example.com",
                "server_name: ^\"*.example.com\"",
                "clusters[0].tls.server_name",
                "\"*.example.com\"",
                "one host name",
                "api.example.com",
            ),
            (
                "server_name: api.example.com",
                "names: [api.example.com, ^spiffe://]",
                "clusters[0].tls.names[1]",
                "\"spiffe://\"",
                "a URI has a scheme",
                "spiffe://example.org",
            ),
            (
                "server_name: api.example.com",
                "names: ^[]",
                "clusters[0].tls.names",
                "",
                "at least one name",
                "server_name",
            ),
            (
                "server_name: api.example.com",
                "verify: off\n      ca: ^ca.pem",
                "clusters[0].tls.ca",
                "\"ca.pem\"",
                "this is not checked",
                "remove one",
            ),
        ],
    );
}

#[test]
fn a_system_that_trusts_nobody_needs_a_file() {
    let mut outside = crate::sample::outside();
    outside.trust("");
    let from = "    tls:\n      server_name";
    let row =
        ("clusters[0].tls", "", "this system has no CA certificates", "name a file with `ca`");
    check_errors(&outside, &[(from, "    tls:\n      ^server_name", row.0, row.1, row.2, row.3)]);
}

#[test]
fn what_is_allowed_but_looks_like_a_mistake() {
    check_warnings(&[
        (
            "server_names: [example.com,",
            "server_names: [^shop.example.org, example.com,",
            "listeners[0].chains[0].match.server_names[0]",
            "\"shop.example.org\"",
            "no certificate of this chain contains this name",
            "they have: *.example.com, example.com",
        ),
        (
            "server_names: [example.com,",
            "server_names: [^a.b.example.com, example.com,",
            "listeners[0].chains[0].match.server_names[0]",
            "\"a.b.example.com\"",
            "no certificate of this chain contains this name",
            "they have:",
        ),
        (
            SITE,
            "{ chain: site.pem, key: site.key }, { chain: site-rsa.pem, key: site-rsa.key }, { chain: ^site.pem, key: site.key }",
            "listeners[0].tls.certificates[2].chain",
            "\"site.pem\"",
            "the certificate on line 5 has the same names and kind of key",
            "remove one of them",
        ),
        (
            "match: { server_names: [example.com, \"*.example.com\"] }\n        tls:\n          certificates: [{ chain: tenants.pem, key: tenants.key }]\n          client: { ca: ca.pem }\n",
            "match: ^{ server_names: [example.com, \"*.example.com\"] }\n",
            "listeners[0].chains[0].match",
            "",
            "each gets 400",
            "add `tls`",
        ),
        (
            "tls: { certificates: [{ chain: site.pem, key: site.key }] }\n    routes: all\n",
            "tls: ^{ certificates: [{ chain: site.pem, key: site.key }] }\n",
            "listeners[0].tls",
            "",
            "connections without a matching chain are closed",
            "move it into the chains",
        ),
        (
            "          client: { ca: ca.pem }\n        routes: all\nroutes:\n  - name: all\n    rules: [{ match: { prefix: / }, cluster: api }]",
            "        routes: all\nroutes:\n  - name: all\n    rules: [{ match: { prefix: /, client: ^['*'] }, cluster: api }]",
            "routes[0].rules[0].match.client",
            "",
            "no listener with these routes requests certificates from clients",
            "add `client` to the `tls` of one",
        ),
        (
            "rules: [{ match: { prefix: / }, cluster: api }]",
            "rules: [{ match: { prefix: /, client: ['*'] }, cluster: api }, { match: { prefix: / }, cluster: api }, { match: ^{ path: /a, client: ['*'] }, cluster: api }]",
            "routes[0].rules[2].match",
            "",
            "never reached",
            "line 16",
        ),
        (
            "server_name: api.example.com",
            "verify: ^off",
            "clusters[0].tls.verify",
            "\"off\"",
            "can read and change everything",
            "`ca`",
        ),
    ]);
}

/// What is warned of with the sample, `from` replaced by `to` in it.
fn warned_at(outside: Memory, from: &str, to: &str) -> Vec<(String, String)> {
    let mut loader = loader();
    loader.outside = outside;
    assert_eq!(SAMPLE.matches(from).count(), 1);
    load(&mut loader, &SAMPLE.replace(from, to));
    let warnings = warnings(&loader).into_iter();
    warnings.map(|it| (it.path, format!("{}; {}", it.rule, it.hint))).collect()
}

/// The files of the tests at another time.
fn outside_at(now: u64) -> Memory {
    let mut outside = Memory::new(now);
    for (name, content) in CERTIFICATES {
        outside.insert(name, content);
    }
    outside.trust(file("ca.pem"));
    outside
}

#[test]
fn a_required_certificate_that_a_permissive_port_does_not_ask_for_is_warned_of() {
    let mode = |mode: &str, client: &str| {
        let to = format!("client: {{ ca: ca.pem, mode: {client} }}\n          mode: {mode}");
        warned_at(crate::sample::outside(), "client: { ca: ca.pem }", &to)
    };
    let [(path, message)] = &mode("permissive", "required")[..] else { panic!() };
    assert_eq!(path, "listeners[0].chains[0].tls.mode");
    assert!(message.contains("without the certificate that `client` requires"), "{message}");
    assert_eq!(mode("strict", "required"), []);
    assert_eq!(mode("permissive", "optional"), []);
}

#[test]
fn a_key_that_every_user_may_read_is_warned_of() {
    for (mode, is_warned) in [(0o100_644, true), (0o604, true), (0o640, false), (0o600, false)] {
        let mut outside = crate::sample::outside();
        outside.set_mode("site.key", mode);
        let warned = warned_at(outside, "server_name: api", "server_name: api");
        assert_eq!(warned.len(), usize::from(is_warned), "{mode:o}: {warned:?}");
        for (path, message) in warned {
            assert_eq!(path, "listeners[0].tls.certificates[0].key");
            assert!(message.contains(&format!("its mode is {:04o}", mode & 0o7777)), "{message}");
            assert!(message.contains("chmod o="), "{message}");
        }
    }
}

#[test]
fn a_folder_for_state_that_others_may_write_to_is_warned_of() {
    let folder = ["/var/lib/strait", "{ folder: /var/lib/strait }"];
    for (folder, path) in folder.into_iter().zip(["state", "state.folder"]) {
        for (mode, is_warned) in [(0o41_777, true), (0o775, true), (0o755, false)] {
            let mut outside = crate::sample::outside();
            outside.set_mode("/var/lib/strait", mode);
            let sections = "\nlisteners:\n";
            let warned = warned_at(outside, sections, &format!("\nstate: {folder}{sections}"));
            assert_eq!(warned.len(), usize::from(is_warned), "{mode:o}: {warned:?}");
            for (at, message) in warned {
                assert_eq!(at, path);
                assert!(message.contains("use a subfolder"), "{message}");
            }
        }
    }
}

#[test]
fn authorities_lists_and_ocsp_responses_that_end_soon_are_warned_of() {
    // 2126-10-28T15:00:00Z: the CA ends within the hour, the list two hours later.
    const LATE: u64 = 4_948_873_200;
    let from = "client: { ca: ca.pem }";
    let to = "client: { ca: ca.pem, crl: ca.crl }";
    let warned = warned_at(outside_at(LATE), from, to);
    let of = |path: &str| {
        let found = warned.iter().find(|(at, _)| at == path);
        found.map(|(_, message)| message.as_str()).unwrap_or_default()
    };
    let client = "listeners[0].chains[0].tls.client";
    let ca = of(&format!("{client}.ca"));
    assert!(
        ca.starts_with(
            "certificate 1 of this file expires in less than a day, at 2126-10-28T15:56:42Z"
        ),
        "{ca}"
    );
    let crl = of(&format!("{client}.crl"));
    assert!(
        crl.starts_with(
            "list 1 of revoked certificates expires in less than a day, at 2126-10-28T17:15:19Z"
        ),
        "{crl}"
    );
    // Again when nothing of it changed, and not long before.
    assert_eq!(warned_at(crate::sample::outside(), from, to), []);

    let ocsp = "{ chain: tenants.pem, key: tenants.key, ocsp: dated.ocsp }";
    for (now, expected) in [
        (NOW, Some("expires in less than a day, at 2033-05-18T15:32:58Z")),
        (NOW - 86_400, None),
        (NOW + 86_400, Some("has expired, at 2033-05-18T15:32:58Z")),
    ] {
        let mut outside = outside_at(now);
        outside.insert("dated.ocsp", *include_bytes!("../certificates/dated.ocsp"));
        let warned = warned_at(outside, "{ chain: tenants.pem, key: tenants.key }", ocsp);
        match (&warned[..], expected) {
            ([], None) => {}
            ([(path, message)], Some(expected)) => {
                assert_eq!(path, "listeners[0].chains[0].tls.certificates[0].ocsp");
                assert!(message.contains(expected), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn routes_for_clients_with_certificates_that_others_reach_are_warned_about_once() {
    let guarded = "          client: { ca: ca.pem }\n        routes: all\n";
    let one = |text: &str| {
        let mut loader = loader();
        load(&mut loader, text);
        let all = loader.warnings().iter();
        let reported: Vec<_> =
            all.filter(|reported| reported.rule.contains("for clients with")).collect();
        assert!(reported.len() < 2, "{reported:#?}");
        reported
            .first()
            .map(|reported| (reported.path.clone(), reported.line, reported.rule.clone()))
    };
    let at_chain = "route table \"all\" is for clients with certificates at chain \"tenants\" of \
                    listener \"edge\" (line 8)";
    let (path, line, rule) = one(SAMPLE).unwrap();
    assert_eq!((path.as_str(), line), ("listeners[0].routes", 6));
    let expected = format!("{at_chain}, and for clients without one at listener \"edge\" (line 3)");
    assert_eq!(rule, expected);
    // A listener without TLS gives it away, too; so does one that takes both.
    let own = "    tls: { certificates: [{ chain: site.pem, key: site.key }] }\n    routes: all\n";
    let plain = "  - { name: plain, address: '127.0.0.1:80', routes: all }\nroutes:";
    let text = SAMPLE.replace(own, "").replacen("\nroutes:", &format!("\n{plain}"), 1);
    let (path, _, rule) = one(&text).unwrap();
    assert_eq!(path, "listeners[1].routes");
    assert!(rule.contains("for everyone, without TLS, at listener \"plain\" (line "), "{rule}");
    let both = own.replace("] }", "], mode: permissive, client: { ca: ca.pem } }");
    let (_, _, rule) = one(&SAMPLE.replace(own, &both)).unwrap();
    assert!(rule.contains("`mode: permissive` accepts"), "{rule}");
    // What no client gets without a certificate is not given away, and a redirect gives nothing.
    let guards = |rules: &str| {
        one(&SAMPLE.replace("rules: [{ match: { prefix: / }, cluster: api }]", rules))
    };
    assert_eq!(guards("rules: [{ match: { prefix: /, client: ['*'] }, cluster: api }]"), None);
    assert_eq!(
        guards(
            "rules: [{ match: { path: /, client: ['*'] }, cluster: api }, \
             { match: { prefix: / }, redirect: { scheme: https } }]"
        ),
        None
    );
    assert_eq!(one(&SAMPLE.replace(guarded, "        routes: all\n")), None);
    let optional = guarded.replace("ca.pem }", "ca.pem, mode: optional }");
    assert_eq!(one(&SAMPLE.replace(guarded, &optional)), None);
}

#[test]
fn a_new_certificate_is_in_its_time_and_one_in_use_may_leave_it() {
    let end = certificates(&load(&mut loader(), SAMPLE))[0].source.certificate.not_after();
    let at = |loader: &mut Loader, now: u64| {
        let mut outside = Memory::new(now);
        for (name, content) in CERTIFICATES {
            outside.insert(name, content);
        }
        outside.trust(file("ca.pem"));
        loader.outside = outside;
    };
    let reported = |loader: &Loader| -> Vec<String> {
        let of_site = loader.warnings().iter().filter(|reported| reported.value == "\"site.pem\"");
        of_site.map(|reported| format!("{}; {}", reported.rule, reported.hint)).collect()
    };
    let mut loader = loader();
    at(&mut loader, end - 15 * 86_400);
    load(&mut loader, SAMPLE);
    assert_eq!(reported(&loader), [""; 0]);
    for (left, text) in
        [(14 * 86_400, "in 14 days"), (86_400, "in 1 day"), (1, "in less than a day")]
    {
        at(&mut loader, end - left);
        let snapshot = load(&mut loader, SAMPLE);
        assert_eq!(snapshot.changes, Changes::default());
        let warned = reported(&loader);
        assert!(matches!(&warned[..], [one] if one.contains(text)), "{warned:?}");
    }
    // What is in use stays, so that other changes of the file are not held up by it.
    at(&mut loader, end + 1);
    load(&mut loader, SAMPLE);
    let warned = reported(&loader);
    assert!(matches!(&warned[..], [one] if one.contains("has expired, at 2126-")), "{warned:?}");
    // Where none is in use, one that clients may refuse is better than no process at all.
    let dated = [
        (end + 1, "expired, at 2126-", "renew it"),
        (1_000_000_000, "not valid yet, but from 20", "until then, peers refuse it"),
    ];
    for (now, rule, hint) in dated {
        let mut fresh = crate::sample::loader();
        at(&mut fresh, now);
        load(&mut fresh, SAMPLE);
        let warned = reported(&fresh);
        assert!(
            matches!(&warned[..], [one] if one.contains(rule) && one.contains(hint)),
            "{warned:?}"
        );
    }
}

/// A cheaper key would have clients prefer it.
#[test]
fn a_certificate_outside_of_its_dates_gives_way_to_valid_ones_of_its_names() {
    let issue = |key, names: &[&str], hours: i64| {
        let validity = -pki::HOUR..hours * pki::HOUR;
        pki::Leaf { validity, ..pki::Leaf::new(key, names) }.self_signed()
    };
    let site = "{ chain: site.pem, key: site.key }";
    let both = SAMPLE.replace(site, "{ chain: a.pem, key: a.key }, { chain: b.pem, key: b.key }");
    let names = &["a.example", "b.example"][..];
    let long = issue(&rcgen::PKCS_ECDSA_P384_SHA384, names, 2);
    let longer = issue(&rcgen::PKCS_ECDSA_P384_SHA384, &names[..1], 2);
    let short = issue(&rcgen::PKCS_ECDSA_P256_SHA256, names, 1);
    let load = |second: &pki::Pair, now: u64| {
        let mut loader = loader();
        loader.outside = outside_at(now);
        for (name, text) in [
            ("a.pem", &short.chain),
            ("a.key", &short.key),
            ("b.pem", &second.chain),
            ("b.key", &second.key),
        ] {
            loader.outside.insert(name, text.as_bytes());
        }
        let all = certificates(&load(&mut loader, &both));
        let own = all.iter().filter(|it| it.source.chain.len() == "a.pem".len());
        let own: Vec<_> = own.map(|it| it.source.chain.to_string()).collect();
        let ends = all.iter().map(|it| it.source.certificate.not_after()).min();
        (own, ends.unwrap(), warnings(&loader).iter().any(|it| it.rule.contains("do not get this")))
    };
    let (_, end, _) = load(&long, 0);
    for (second, now, expected, is_warned) in [
        (&long, end, &["a.pem", "b.pem"][..], false),
        (&long, end + 1, &["b.pem"], true),
        // It is the only one for one of its names.
        (&longer, end + 1, &["a.pem", "b.pem"], false),
        // Nothing is valid.
        (&long, end + 100_000, &["a.pem", "b.pem"], false),
    ] {
        let (own, _, has_warned) = load(second, now);
        assert_eq!(own, expected, "{now}");
        assert_eq!(has_warned, is_warned, "{now}");
    }
}

#[test]
fn a_valid_certificate_is_not_replaced_by_one_outside_of_its_dates() {
    let issue = |validity: Range<i64>| {
        let leaf = pki::Leaf { validity, ..pki::Leaf::new(&rcgen::PKCS_ED25519, &["a.example"]) };
        leaf.self_signed()
    };
    let show = |loader: &mut Loader, pair: &pki::Pair, now: u64| {
        let mut outside = Memory::new(now);
        for (name, content) in CERTIFICATES {
            outside.insert(name, content);
        }
        outside.insert("site.pem", pair.chain.as_bytes());
        outside.insert("site.key", pair.key.as_bytes());
        outside.trust(file("ca.pem"));
        loader.outside = outside;
        let loaded = loader.load("strait.yaml", SAMPLE)?;
        Ok::<_, Errors>(certificates(&loaded)[0].source.certificate.not_after())
    };
    let long = issue(-pki::HOUR..2 * pki::HOUR);
    let short = issue(-pki::HOUR..pki::HOUR);
    let early = issue(pki::HOUR..3 * pki::HOUR);
    let [end, short_end] = [&long, &short].map(|pair| show(&mut loader(), pair, NOW).unwrap());

    let mut loader = loader();
    let now = short_end - 1;
    show(&mut loader, &long, now).unwrap();
    let early_end = show(&mut crate::sample::loader(), &early, now).unwrap();
    for (pair, now, rule, hint) in [
        (&short, short_end + 1, "the certificate has expired, at 20", "renew the certificate"),
        (
            &early,
            short_end - 60,
            "the certificate is not valid yet, but from 20",
            "reload (SIGHUP)",
        ),
    ] {
        let errors = show(&mut loader, pair, now).unwrap_err();
        let [error] = &errors.errors[..] else { panic!("{errors}") };
        assert!(error.rule.contains(rule) && error.hint.contains(hint), "{error}");
        assert_eq!(error.path, "listeners[0].tls.certificates[0].chain");
    }
    // Nothing is lost where the one in use has expired, too.
    assert_eq!(show(&mut loader, &short, end + 1).unwrap(), short_end);
    assert_eq!(show(&mut loader, &early, end + 1).unwrap(), early_end);
}

#[test]
fn a_key_in_the_text_is_refused_and_not_told() {
    for inline in ["|\n", "\"", "|-\n"] {
        let indent = if inline == "\"" { "" } else { "                " };
        let end = if inline == "\"" { "\"\n" } else { "" };
        let key: String =
            file("site.key").lines().map(|line| format!("{indent}{line}\n")).collect();
        let key = if inline == "\"" { key.replace('\n', "\\n") } else { key };
        let text = SAMPLE.replace(
            "tls: { certificates: [{ chain: site.pem, key: site.key }] }",
            &format!("tls:\n      certificates:\n        - chain: site.pem\n          key: {inline}{key}{end}"),
        );
        let errors = loader().load("strait.yaml", &text).unwrap_err();
        let reported = format!("{errors}\n{errors:?}");
        assert!(reported.contains("not its content"), "{reported}");
        for line in file("site.key").lines() {
            assert!(!reported.contains(line), "{reported}");
        }
    }
}

#[test]
fn all_mistakes_in_files_are_told_at_once_and_each_file_is_read_once() {
    struct Counted(Memory, std::cell::RefCell<Vec<std::path::PathBuf>>);
    impl Outside for Counted {
        fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
            self.1.borrow_mut().push(path.to_owned());
            self.0.read(path)
        }

        fn system_roots(&self) -> Result<::tls::Roots, ::tls::RootsError> {
            self.0.system_roots()
        }

        fn now(&self) -> u64 {
            self.0.now()
        }
    }
    let text = SAMPLE
        .replace("{ chain: client.pem, key: client.key }", "{ chain: site.pem, key: no.key }");
    let mut outside = crate::sample::outside();
    outside.remove(Path::new("ca.pem"));
    outside.remove(Path::new("site.pem"));
    let outside = Counted(outside, std::cell::RefCell::default());
    let loader = loader();
    let Err(errors) = config::Loader::prepare(&loader, "strait.yaml", &text, &outside) else {
        panic!()
    };
    let reported: Vec<&str> = errors.errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        reported,
        [
            "listeners[0].tls.certificates[0].chain",
            "listeners[0].chains[0].tls.client.ca",
            "clusters[0].tls.certificate.chain",
            "clusters[0].tls.certificate.key",
        ]
    );
    let mut read = outside.1.into_inner();
    let count = read.len();
    read.sort();
    read.dedup();
    assert_eq!(read.len(), count, "{read:?}");
}

#[test]
fn contexts_outlive_changes_that_do_not_concern_them() {
    let mut loader = loader();
    let before = load(&mut loader, SAMPLE);
    let same = load(&mut loader, SAMPLE);
    assert_eq!(same.changes, Changes::default());
    // Timeouts and routes are others, and so is the file's path, but not what is in it.
    loader.outside.insert("moved.pem", file("site.pem"));
    let text = SAMPLE.replace("chain: site.pem", "chain: moved.pem").replace(
        "    routes: all\n    chains:",
        "    timeouts: { idle: 1s }\n    routes: all\n    chains:",
    );
    let after = load(&mut loader, &text);
    assert_eq!(after.changes.listeners_changed, [after.listeners[0].id]);
    for (before, after) in tls_of(&before).into_iter().zip(tls_of(&after)) {
        assert!(Arc::ptr_eq(&before.context, &after.context));
    }
    assert!(Arc::ptr_eq(tls_of(&before)[1], tls_of(&after)[1]));
    assert!(Arc::ptr_eq(cluster_tls(&before), cluster_tls(&after)));
    // A mode is no matter of the context.
    let text = text.replace("tls: { cert", "tls: { mode: permissive, cert");
    let permissive = load(&mut loader, &text);
    assert!(Arc::ptr_eq(&tls_of(&before)[0].context, &tls_of(&permissive)[0].context));
    assert_eq!(tls_of(&permissive)[0].mode, TlsMode::Permissive);
}

#[test]
fn a_changed_file_changes_who_uses_it_and_nobody_else() {
    let mut loader = loader();
    let before = load(&mut loader, SAMPLE);
    loader.outside.insert("site.pem", file("site-rsa.pem"));
    loader.outside.insert("site.key", file("site-rsa.key"));
    let after = load(&mut loader, SAMPLE);
    let listener = after.listeners[0].id;
    assert_eq!(after.changes, Changes { listeners_changed: vec![listener], ..Changes::default() });
    assert!(!Arc::ptr_eq(&tls_of(&before)[0].context, &tls_of(&after)[0].context));
    assert!(Arc::ptr_eq(tls_of(&before)[1], tls_of(&after)[1]));

    // A pair that does not fit leaves everything as it is.
    loader.outside.insert("site.pem", file("site.pem"));
    loader.load("strait.yaml", SAMPLE).unwrap_err();
    loader.outside.insert("site.key", file("site.key"));
    let again = load(&mut loader, SAMPLE);
    assert_eq!((again.version, again.changes.listeners_changed.len()), (3, 1));
    loader.outside.insert("ca.pem", format!("{}{}", file("ca.pem"), file("ca.pem")));
    let trusting = load(&mut loader, SAMPLE);
    assert_eq!(trusting.changes.listeners_changed, [listener]);
    assert!(Arc::ptr_eq(tls_of(&again)[0], tls_of(&trusting)[0]));
    assert!(!Arc::ptr_eq(tls_of(&again)[1], tls_of(&trusting)[1]));
}

#[test]
fn an_endpoint_stays_the_same_when_it_is_spoken_to_with_other_tls() {
    let mut loader = loader();
    let first = load(&mut loader, SAMPLE);
    let only = |snapshot: &Loaded| Arc::clone(snapshot.clusters.iter().next().unwrap().1);
    let (cluster, endpoint) = (only(&first).id, only(&first).endpoints[0].id);
    let mut former = only(&first).transports.own().id;
    loader.outside.insert("ca.pem", file("ca.pem"));
    for (from, to) in [
        ("server_name: api.example.com", "server_name: other.example.com"),
        (
            "server_name: api.example.com",
            "server_name: api.example.com\n      names: [other.example.com]",
        ),
        ("server_name: api.example.com", "server_name: api.example.com\n      ca: ca.pem"),
        ("server_name: api.example.com", "server_name: api.example.com\n      verify: off"),
        ("      certificate: { chain: client.pem, key: client.key }\n", ""),
        ("{ chain: client.pem, key: client.key }", "{ chain: site.pem, key: site.key }"),
        (
            "    tls:\n      server_name: api.example.com\n      certificate: { chain: client.pem, key: client.key }\n",
            "",
        ),
        ("    protocol: http2\n", ""),
        ("protocol: http2", "proxy_protocol: v2"),
    ] {
        let changed = load(&mut loader, &SAMPLE.replace(from, to));
        assert_eq!(only(&changed).endpoints[0].id, endpoint, "{to}");
        assert_ne!(only(&changed).transports.own().id, former, "{to}");
        let changes = Changes {
            clusters_changed: vec![cluster],
            transports_changed: vec![(cluster, endpoint)],
            ..Changes::default()
        };
        assert_eq!(changed.changes, changes, "{to}");
        former = only(&changed).transports.own().id;
    }
    let other = load(
        &mut loader,
        &SAMPLE.replace("10.0.0.1:443\"]", "10.0.0.1:443\"]\n    connections_max: 5"),
    );
    assert_eq!(other.changes.transports_changed, [(cluster, endpoint)]);
    let back = load(&mut loader, SAMPLE);
    let id = |snapshot: &Loaded| only(snapshot).transports.own().id;
    assert_eq!(id(&back), id(&other), "bounds are no part of it");
    assert_eq!(back.changes.clusters_changed, [cluster]);
    assert_eq!(back.changes.transports_changed, []);
    // A renewed certificate, under the same name.
    loader.outside.insert("client.pem", file("site.pem"));
    loader.outside.insert("client.key", file("site.key"));
    let renewed = load(&mut loader, SAMPLE);
    assert_eq!(only(&renewed).endpoints[0].id, endpoint);
    assert_eq!(id(&renewed), id(&back), "open connections stay");
    let context = |snapshot: &Loaded| {
        Arc::clone(&only(snapshot).transports.own().tls.as_ref().unwrap().context)
    };
    assert!(!Arc::ptr_eq(&context(&renewed), &context(&back)), "new ones have it");
    let changes = Changes { clusters_changed: vec![cluster], ..Changes::default() };
    assert_eq!(renewed.changes, changes);
}

#[test]
fn the_effective_configuration_has_paths_and_what_the_certificates_are_and_no_key() {
    let snapshot = load(&mut loader(), SAMPLE);
    let yaml = effective_yaml(&snapshot);
    for text in [
        "          key: site.key\n",
        "        mode: required\n",
        "      verify: on\n",
        "# Certificates:\n# - listener edge, site.pem: shop.example.com, www.shop.example.com, *.shop.example.com; until 2126-",
        "# - listener edge, chain tenants, tenants.pem: ",
        "# - cluster api, client.pem: CN=edge; until 2126-",
    ] {
        assert!(yaml.contains(text), "{text}\n{yaml}");
    }
    for (name, content) in CERTIFICATES.iter().filter(|(name, _)| name.ends_with(".key")) {
        for line in content.lines() {
            assert!(!yaml.contains(line), "{name}");
            assert!(!format!("{snapshot:?}").contains(line), "{name}");
        }
    }
    let mut loader = loader();
    let again = load(&mut loader, &yaml);
    assert_eq!(effective(&again), effective(&snapshot));
    assert_eq!(tls_of(&again), tls_of(&snapshot));
    let used = certificates(&snapshot)[1].to_json();
    assert_eq!(used["user"], "listener edge, chain tenants");
    assert_eq!(used["names"][1], "example.com");
    assert!(NOW < 4_900_000_000 && used["not_after"].as_str().unwrap().starts_with("2126-"));
}

#[test]
fn endpoints_are_spoken_to_by_their_metadata() {
    const MIXED: &str = r#"
listeners: [{ name: edge, address: 127.0.0.1:80, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: api }] }]
clusters:
  - name: api
    endpoints:
      - "10.0.0.1:80"
      - { address: "10.0.0.2:80", metadata: { mesh: "on", version: v1 } }
      - { address: "10.0.0.3:80", metadata: { mesh: "on", version: v2 } }
      - { address: "10.0.0.4:80", metadata: { mesh: "off" } }
    tls: { server_name: own.example }
    transports:
      - { name: second, match: { version: v2 }, tls: { server_name: second.example, verify: off } }
      - { name: mesh, match: { mesh: "on" }, tls: { server_name: mesh.example, certificate: { chain: client.pem, key: client.key } } }
      - { name: plain, match: { mesh: "off" } }
"#;
    let mut loader = loader();
    let only = |snapshot: &Loaded| Arc::clone(snapshot.clusters.iter().next().unwrap().1);
    let server_names = |cluster: &Cluster| {
        let names = cluster.endpoints.iter().map(|endpoint| {
            let tls = cluster.transports.of(endpoint).tls.as_ref();
            tls.map(|tls| tls.server_name.as_deref().unwrap().to_owned())
        });
        names.collect::<Vec<_>>()
    };
    let name = |name: &str| Some(format!("{name}.example"));
    let first = load(&mut loader, MIXED);
    let former = only(&first);
    assert_eq!(server_names(&former), [name("own"), name("mesh"), name("second"), None]);
    let users = certificates(&first);
    assert_eq!(users.len(), 1, "{users:?}");
    // Another endpoint moves to another one: nothing else changes.
    let moved = load(
        &mut loader,
        &MIXED.replace("{ mesh: \"off\" } }\n    tls", "{ mesh: \"on\" } }\n    tls"),
    );
    let cluster = only(&moved);
    assert_eq!(server_names(&cluster), [name("own"), name("mesh"), name("second"), name("mesh")]);
    let last = (cluster.id, former.endpoints[3].id);
    assert_eq!(moved.changes.transports_changed, [last]);
    let ids = |cluster: &Cluster| cluster.transports.all().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(ids(&cluster), ids(&former));
    // The settings of one change: it is another one, for those that it is for.
    let changed = load(&mut loader, &MIXED.replace("mesh.example", "other.example"));
    let cluster = only(&changed);
    assert_eq!(server_names(&cluster), [name("own"), name("other"), name("second"), None]);
    let second = (cluster.id, former.endpoints[1].id);
    assert_eq!(changed.changes.transports_changed, [second, last]);
    // Their order is not what they are.
    let (mesh, plain) =
        (MIXED.find("      - { name: mesh").unwrap(), MIXED.find("      - { name: plain").unwrap());
    let turned = format!("{}{}{}", &MIXED[..mesh], &MIXED[plain..], &MIXED[mesh..plain]);
    let before = load(&mut loader, MIXED);
    let turned = load(&mut loader, &turned);
    assert_eq!(server_names(&only(&turned)), server_names(&only(&before)));
    assert_eq!(turned.changes.transports_changed, []);
    assert_eq!(warnings(&loader).len(), 1, "verify: off");
    // An endpoint that nearly has the values of one would be spoken to in plaintext without a word.
    for (from, to, part) in [
        ("match: { version: v2 }", "match: { Version: v2 }", "no endpoint has these values"),
        (
            "match: { version: v2 }",
            "match: {}",
            "no endpoint uses this: all that match it match `second`",
        ),
    ] {
        load(&mut loader, &MIXED.replace(from, to));
        let all = warnings(&loader);
        assert!(all.iter().any(|warning| warning.rule.contains(part)), "{all:?}");
    }
}

#[test]
fn what_connections_were_agreed_on_has_the_numbers_that_earlier_versions_found() {
    // Where one differs, no connection of such a listener, chain or cluster moves to a process of the next version: an option that is
    // added counts only where it is written (docs/adding.md).
    let text = SAMPLE.to_owned()
        + "  - { name: plain, endpoints: ['10.0.0.2:80'] }\n\
           \x20 - { name: marked, mark: 7, proxy_protocol: v2, endpoints: ['10.0.0.3:80'] }\n";
    let snapshot = load(&mut loader(), &text);
    let found: Vec<_> = agreed(&snapshot).into_iter().map(|it| (it.name, it.fingerprint)).collect();
    let found: Vec<_> = found.iter().map(|(name, number)| (&**name, *number)).collect();
    assert_eq!(
        found,
        [
            ("edge", 17_788_943_107_098_042_236),
            ("edge/tenants", 858_166_681_506_014_036),
            ("api", 16_440_752_862_666_930_064),
            ("marked", 7_045_459_455_850_630_247),
            ("plain", 8_733_420_769_422_501_178),
        ]
    );
}

#[test]
fn whom_a_listener_or_a_cluster_trusts_is_what_the_file_of_that_name_says() {
    let text =
        SAMPLE.replace("tls:\n      server_name", "tls:\n      ca: ca.pem\n      server_name");
    let found = |ca: &str| {
        let mut loader = loader();
        loader.outside.insert("ca.pem", ca);
        agreed(&load(&mut loader, &text))
    };
    // Another certificate that is one of an authority.
    let (before, after) = (found(file("ca.pem")), found(file("site.pem")));
    assert_eq!(before, found(file("ca.pem")));
    let differ: Vec<_> = before.iter().zip(&after).filter(|(one, other)| one != other).collect();
    let differ: Vec<_> = differ.iter().map(|(it, _)| &*it.name).collect();
    assert_eq!(differ, ["edge/tenants", "api"]);
}
