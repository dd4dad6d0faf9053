//! Header fields that rules, tables and weighted clusters edit.

use crate::frames::Speaker;
use crate::kit::{Talk, Variant, hold};

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: [all]
    http: { trusted_hops: 1, forwarded: off, request_id: false }
routes:
  - name: all
    headers:
      request: { set: { x-who: table }, append: { x-order: table } }
      response: { set: { x-who: table }, append: { x-order: table }, remove: [x-secret] }
    rules:
      - name: shared
        match: { prefix: /shared/ }
        clusters: [{ cluster: one, headers: { request: { append: { x-order: cluster } }, response: { append: { x-order: cluster } } } }]
        headers:
          request:
            set: { x-who: rule }
            append: { x-order: rule }
            set_if_present: { x-old: new }
            append_if_absent: { x-old: none, x-new: added }
          response: { append: { x-order: rule } }
        rewrite: { prefix: /as/ }
      - name: facts
        match: { prefix: /facts }
        cluster: one
        rewrite: { prefix: /went, host: b.example }
        headers:
          request:
            set:
              x-client: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%'
              x-user: '%REQ(x-token)%'
              x-line: '%REQ(:method)% %REQ(:path)% %PROTOCOL% %ROUTE_NAME%>%UPSTREAM_CLUSTER%, 100%%'
              x-uri: '%DOWNSTREAM_PEER_URI_SAN%'
              x-asked: '%REQ(:authority)%'
          response:
            set:
              x-host: '%UPSTREAM_HOST% %UPSTREAM_REMOTE_PORT% %RESPONSE_CODE% %UPSTREAM_REQUEST_ATTEMPT_COUNT%'
              x-token: '%REQ(x-token)%'
              x-server: '%RESP(server)%'
              x-went: '%REQ(:authority)%%REQ(:path)%'
      - name: here
        match: { path: /here }
        respond: { status: 418, body: tea }
        headers: { response: { set: { server: teapot, x-for: '%REQ(x-token)% %RESPONSE_CODE%' } } }
      - { name: away, match: { path: /away }, redirect: { path: /x }, headers: { response: { set: { x-to: '%RESP(location)%' } } } }
      - { match: { path: /plain }, cluster: one }
      - { match: { path: /chosen }, cluster_header: x-cluster, headers: { response: { set: { x-for: '%REQ(x-token)%' } } } }
clusters: [{ name: one, endpoints: ['127.0.0.1:9000'] }]
";

/// What the upstream hears of a request, and what the client hears of `response`: the fields that begin with `x-`, and `server`.
fn exchange(talk: &mut Talk<'_>, request: &str, response: &str) -> (Vec<String>, Vec<String>) {
    let client = talk.client();
    talk.says(client, head(request));
    let upstream = talk.upstream();
    let asked = edited(&talk.heard(upstream));
    talk.says(upstream, head(response));
    (asked, edited(&talk.heard(client)))
}

fn head(lines: &str) -> String {
    let mut text: String = lines.lines().map(|line| format!("{line}\r\n")).collect();
    text.push_str("Connection: close\r\n\r\n");
    text
}

fn edited(heard: &str) -> Vec<String> {
    let is_edited = |line: &&str| line.starts_with("x-") || line.starts_with("server:");
    heard.lines().map(str::trim_end).filter(is_edited).map(str::to_owned).collect()
}

#[test]
fn the_most_specific_edits_come_first() {
    hold(CONFIG, |talk| {
        let (asked, answered) = exchange(
            talk,
            "GET /shared/a HTTP/1.1\nHost: a\nx-old: 1\nx-who: me\nx_who: me",
            "HTTP/1.1 200 OK\nContent-Length: 0\nx-secret: s\nx-order: service",
        );
        let order = ["x-order: cluster", "x-order: rule", "x-order: table"];
        let want = [&["x-old: new", "x-who: table"][..], &order[..1], &["x-new: added"][..]];
        assert_eq!(sorted(&asked), sorted(&[want.concat(), order[1..].to_vec()].concat()));
        let found: Vec<&String> = asked.iter().filter(|line| line.starts_with("x-order")).collect();
        assert_eq!(found, order);
        assert_eq!(
            answered,
            [
                "x-order: service",
                "x-order: cluster",
                "x-order: rule",
                "x-who: table",
                "x-order: table"
            ]
        );
    });
}

fn sorted<T: ToString>(lines: &[T]) -> Vec<String> {
    let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn values_tell_what_is_known_of_the_exchange() {
    hold(CONFIG, |talk| {
        let (asked, answered) = exchange(
            talk,
            "GET /facts?a=b HTTP/1.1\nHost: a\nx-forwarded-for: 198.51.100.7\nx-token: t\nx-user: root\nx-uri: spiffe://a/admin",
            "HTTP/1.1 503 Busy\nContent-Length: 0\nServer: s\nx-token: other",
        );
        let want = [
            "x-forwarded-for: 198.51.100.7",
            "x-token: t",
            "x-user: t",
            "x-asked: a",
            "x-client: 198.51.100.7",
            "x-line: GET /facts?a=b HTTP/1.1 facts>one, 100%",
            "x-who: table",
            "x-order: table",
        ];
        assert_eq!(asked, want, "a client without a certificate has no name");
        let want = [
            "x-token: t",
            "x-host: 127.0.0.1:9000 9000 503 1",
            "x-server: s",
            "x-went: b.example/went?a=b",
            "x-who: table",
            "x-order: table",
        ];
        assert_eq!(answered, want);
        // What a request does not have is not said in its response.
        let (asked, answered) = exchange(
            talk,
            "GET /facts HTTP/1.1\nHost: a\nx-user: root",
            "HTTP/1.1 200 OK\nContent-Length: 0\nx-token: other",
        );
        assert!(!asked.iter().any(|line| line.starts_with("x-user")), "{asked:?}");
        assert!(!answered.iter().any(|line| line.starts_with("x-token")), "{answered:?}");
    });
}

#[test]
fn straits_own_answers_are_edited_as_well() {
    hold(CONFIG, |talk| {
        for (path, want) in [
            ("/here", &["server: teapot", "x-for: t 418", "x-who: table", "x-order: table"][..]),
            ("/away", &["server: strait", "x-to: /x", "x-who: table", "x-order: table"]),
            ("/chosen", &["server: strait", "x-for: t", "x-who: table", "x-order: table"]),
            // No rule takes it, so there are no edits for it.
            ("/none", &["server: strait"]),
        ] {
            let client = talk.client();
            talk.says(client, head(&format!("GET {path} HTTP/1.1\nHost: a\nx-token: t")));
            assert_eq!(edited(&talk.heard(client)), want, "{path}");
        }
        // A failure has the edits of its rule.
        let client = talk.client();
        talk.says(client, head("POST /facts HTTP/1.1\nHost: a\nx-token: t\nContent-Length: 1"));
        while talk.is_connecting() {
            let upstream = talk.connecting();
            talk.refuse(upstream);
        }
        let heard = talk.heard(client);
        assert!(heard.contains(" 503 ") && heard.contains("x-token: t\r\n"), "{heard}");
        assert!(
            heard.contains("x-who: table\r\n") && heard.contains("x-server: strait"),
            "{heard}"
        );
    });
}

#[test]
fn streams_are_edited_like_requests_of_http1() {
    let config = CONFIG.replace("name: one, ", "name: one, protocol: http2, ");
    hold(&config, |talk| {
        let mut client = Speaker::client(talk);
        let head = "GET /facts HTTP/1.1\r\nHost: a\r\nx-token: t\r\nx-user: root\r\n\r\n";
        let stream = client.asks(talk, head, true);
        let mut upstream = Speaker::upstream(talk);
        let asked = upstream.hears(talk);
        for field in ["x-user: t", "x-line: GET /facts HTTP/2 facts>one, 100%", "x-order: table"] {
            assert!(asked.contains(field), "{asked}");
        }
        upstream.answers(talk, 1, "HTTP/1.1 200 OK\r\nServer: s\r\n\r\n", true);
        let answered = client.hears(talk);
        let want = "server: s; x-host: 127.0.0.1:9000 9000 200 1; x-server: s; x-token: t; x-went: b.example/went; x-who: table; x-order: table";
        assert!(answered.starts_with(&format!("{stream}: 200; {want}")), "{answered}");
    });
}

#[test]
fn a_rule_without_edits_has_those_of_its_table() {
    hold(CONFIG, |talk| {
        let (asked, answered) = exchange(
            talk,
            "GET /plain HTTP/1.1\nHost: a",
            "HTTP/1.1 200 OK\nContent-Length: 0\nx-secret: s",
        );
        let want = ["x-who: table", "x-order: table"];
        assert_eq!(
            (asked.as_slice(), answered.as_slice()),
            (&want.map(String::from)[..], &want.map(String::from)[..])
        );
    });
}

#[test]
fn an_exchange_keeps_its_edits_when_it_moves_to_another_configuration() {
    hold(CONFIG, |talk| {
        if talk.variant() == Variant::Moving {
            return talk.leave_out();
        }
        let client = talk.client();
        talk.says(client, head("GET /facts HTTP/1.1\nHost: a\nx-token: t\nx-other: o"));
        let upstream = talk.upstream();
        talk.heard(upstream);
        // The rule asks for another field by now, which was not kept.
        let other =
            CONFIG.replace("x-token: '%REQ(x-token)%'", "x-token: '%REQ(x-other)%|%REQ(x-token)%'");
        talk.comes_back_to(client, &other);
        talk.says(upstream, head("HTTP/1.1 200 OK\nContent-Length: 0"));
        let heard = talk.heard(client);
        assert!(heard.contains("x-token: |t\r\n"), "{heard}");
    });
}
