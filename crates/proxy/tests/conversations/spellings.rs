//! A rule holds for every spelling of what it names, and what it saw is what goes on.

use crate::kit::hold;

const GUARDED: &str = "
listeners:
  - { name: web, address: 127.0.0.1:8080, routes: [secret, other], http: { forwarded: off, request_id: false } }
routes:
  - name: secret
    hosts: [secret.test]
    rules:
      - { match: { prefix: '/g%C3%A9rance/' }, respond: { status: 403 } }
      - { match: { prefix: '/a%2fb/' }, respond: { status: 403 } }
      - { match: { prefix: '/%7Bid%7D/' }, respond: { status: 403 } }
      - { match: { prefix: '/%61dmin/' }, respond: { status: 403 } }
      - { match: { prefix: / }, cluster: app }
  - name: other
    rules: [{ match: { prefix: / }, respond: { status: 404 } }]
clusters: [{ name: app, endpoints: ['127.0.0.1:9000'] }]
";

#[test]
fn a_rule_is_not_got_around_by_another_spelling() {
    hold(GUARDED, |talk| {
        for (target, host) in [
            ("/g%C3%A9rance/", "secret.test"),
            ("/g%c3%a9rance/", "secret.test"),
            ("/a%2Fb/", "secret.test"),
            ("/a%2fb/", "secret.test"),
            ("/{id}/", "secret.test"),
            ("/%7bid%7d/", "secret.test"),
            ("/admin/", "secret.test"),
            ("/%61dmi%6E/", "secret.test"),
            ("//admin/", "secret.test"),
            ("/x//..//../admin//", "secret.test"),
            ("/admin/", "secret.test."),
            ("/admin/", "SECRET.test.:8443"),
            ("http://secret.test./admin/", "x"),
            ("http://secret.test.:80//admin/", "x"),
        ] {
            let client = talk.client();
            talk.says(client, format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let heard = talk.heard(client);
            assert!(heard.starts_with("HTTP/1.1 403 "), "{target} {host}: {heard}");
        }
    });
}

#[test]
fn an_address_in_brackets_meets_its_host_in_every_spelling() {
    for host in ["'[::1]'", "'[0:0::0001]'"] {
        let config = GUARDED.replace("[secret.test]", &format!("[{host}]"));
        hold(&config, |talk| {
            for host in ["[::1]", "[::0001]:8443", "[0:0:0:0:0:0:0:1]", "[::0.0.0.1]"] {
                let client = talk.client();
                talk.says(client, format!("GET /admin/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                let heard = talk.heard(client);
                assert!(heard.starts_with("HTTP/1.1 403 "), "{host}: {heard}");
            }
            // It goes on as it came.
            let client = talk.client();
            let request = "GET /x HTTP/1.1\r\nHost: [2001:DB8::0]\r\n\r\n";
            talk.says(client, request);
            talk.hears_about(client, "HTTP/1.1 404 ", &[]);
            let request = "GET /x HTTP/1.1\r\nHost: [0::0001]:80\r\n\r\n";
            talk.says(client, request);
            let upstream = talk.upstream();
            talk.hears(upstream, request);
        });
    }
}

#[test]
fn what_was_matched_goes_on() {
    hold(GUARDED, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "GET //x/{}/%c3%a9%2f+%2b?//{%2f HTTP/1.1\r\nHost: Secret.test.:8443\r\n\r\n",
        );
        let upstream = talk.upstream();
        let sent = "GET /x/%7B%7D/%C3%A9%2F+%2B?//{%2f HTTP/1.1\r\nhost: Secret.test:8443\r\n\r\n";
        talk.hears(upstream, sent);
    });
}

#[test]
fn slashes_in_a_row_stay_where_the_listener_says_so() {
    let config = GUARDED.replace("request_id: false", "request_id: false, merge_slashes: false");
    hold(&config, |talk| {
        let client = talk.client();
        talk.says(client, "GET //admin/ HTTP/1.1\r\nHost: secret.test\r\n\r\n");
        let upstream = talk.upstream();
        talk.hears(upstream, "GET //admin/ HTTP/1.1\r\nHost: secret.test\r\n\r\n");
    });
}

#[test]
fn a_host_with_an_empty_label_is_refused() {
    hold(GUARDED, |talk| {
        for host in ["secret.test..", ".secret.test", "secret..test", ".", "secret.test..:80"] {
            let client = talk.client();
            talk.says(client, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let heard = talk.heard(client);
            assert!(heard.starts_with("HTTP/1.1 400 "), "{host}: {heard}");
        }
    });
}
