//! Responses that the proxy makes itself.

use crate::kit::hold;

const CONFIG: &str = "
listeners:
  - name: edge
    address: 127.0.0.1:8080
    routes: [shop, blog]
    http: { forwarded: off, request_id: false }
routes:
  - name: shop
    hosts: ['shop.example.com', '*.shop.example.com']
    rules:
      - match: { path: /healthz }
        respond: { status: 200, body: ok }
      - match: { prefix: /old/ }
        redirect: { prefix: /new/, status: 308 }
      - match: { segments: /moved }
        redirect: { prefix: / }
      - match: { prefix: /cut }
        redirect: { prefix: /, host: items.example, strip_query: true }
      - match: { prefix: /secure/ }
        redirect: { scheme: https }
      - match: { prefix: /port/ }
        redirect: { port: 8443 }
      - match: { path: /own }
        redirect: { path: '/new?a=1#there' }
      - match: { path: /part }
        redirect: { path: '/new#there' }
      - match: { prefix: /both/ }
        redirect: { host: items.example, port: 8443, scheme: https, path: / }
      - match: { regex: '/users/([0-9]+)/.*' }
        redirect: { regex: '^/users/([0-9]+)/(.*)$', with: '/\\2?of=\\1', status: 302 }
      - match: { template: '/items/{id}/{rest=**}' }
        redirect: { template: '/{rest}/{id}', host: items.example, strip_query: true }
      - match: { prefix: /api/ }
        cluster: api
  - name: blog
    hosts: ['blog.example.com']
    rules:
      - match: { prefix: / }
        redirect: { host: elsewhere.example, path: /, strip_query: true }
clusters:
  - name: api
    endpoints: ['127.0.0.1:9000']
";

#[test]
fn a_rule_may_answer_itself() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        for _ in 0..2 {
            talk.says(client, "GET /healthz HTTP/1.1\r\nHost: shop.example.com:80\r\n\r\n");
            let heard = talk.hears_about(
                client,
                "HTTP/1.1 200 OK\r\n",
                &["server: strait\r\n", "content-length: 2\r\n", "content-type: text/plain"],
            );
            assert!(heard.ends_with("\r\n\r\nok"), "{heard}");
        }
        talk.says(client, "HEAD /healthz HTTP/1.1\r\nHost: SHOP.example.com\r\n\r\n");
        let heard = talk.hears_about(client, "HTTP/1.1 200 OK\r\n", &["content-length: 2\r\n"]);
        assert!(heard.ends_with("\r\n\r\n"), "{heard}");
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_rule_may_send_the_client_elsewhere() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        for (host, path, status, location) in [
            ("a.shop.example.com", "/old/x?y=1", "308 Permanent Redirect", "/new/x?y=1"),
            // The path begins with one slash, as a rewritten one does.
            ("shop.example.com", "/moved/x?y=1", "301 Moved Permanently", "/x?y=1"),
            ("shop.example.com", "/moved/", "301 Moved Permanently", "/"),
            ("shop.example.com", "/moved", "301 Moved Permanently", "/"),
            (
                "shop.example.com",
                "/moved//evil.example/x",
                "301 Moved Permanently",
                "/evil.example/x",
            ),
            ("shop.example.com", "/cut/x?y=1", "301 Moved Permanently", "//items.example/x"),
            (
                "shop.example.com:81",
                "/port/x",
                "301 Moved Permanently",
                "//shop.example.com:8443/port/x",
            ),
            // The query of the target is the whole query, as in Envoy.
            ("shop.example.com", "/own?b=2", "301 Moved Permanently", "/new?a=1#there"),
            ("shop.example.com", "/part?b=2", "301 Moved Permanently", "/new?b=2#there"),
            ("shop.example.com", "/both/x", "301 Moved Permanently", "https://items.example:8443/"),
            ("shop.example.com", "/users/7/orders?y=1", "302 Found", "/orders?of=7&y=1"),
            // What a rewrite puts together is no other host, and no way out.
            ("shop.example.com", "/users/7//evil.example/x", "302 Found", "/evil.example/x?of=7"),
            (
                "shop.example.com",
                "/items/7/a/b?y=1",
                "301 Moved Permanently",
                "//items.example/a/b/7",
            ),
            (
                "shop.example.com:80",
                "/secure/x?y",
                "301 Moved Permanently",
                "https://shop.example.com/secure/x?y",
            ),
            ("blog.example.com", "/a?b", "301 Moved Permanently", "//elsewhere.example/"),
        ] {
            talk.says(client, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            talk.hears_about(
                client,
                &format!("HTTP/1.1 {status}\r\n"),
                &[&format!("location: {location}\r\n"), "content-length: 0\r\n"],
            );
        }
    });
}

#[test]
fn a_redirect_that_needs_a_host_is_none_for_a_request_without_one() {
    let rule = |redirect: &str| {
        format!(
            "listeners: [{{ name: edge, address: '127.0.0.1:8080', routes: all }}]\n\
             routes: [{{ name: all, hosts: ['*'], rules: [\
             {{ match: {{ prefix: / }}, redirect: {{ {redirect} }} }}] }}]\n"
        )
    };
    for redirect in ["scheme: https", "port: 8443"] {
        hold(&rule(redirect), |talk| {
            let client = talk.client();
            talk.says(client, "GET /evil.example/x HTTP/1.0\r\n\r\n");
            talk.hears_about(client, "HTTP/1.1 400 ", &[": request_host_invalid\n"]);
        });
    }
    hold(&rule("path: /new"), |talk| {
        let client = talk.client();
        talk.says(client, "GET / HTTP/1.0\r\n\r\n");
        talk.hears_about(client, "HTTP/1.1 301 ", &["location: /new\r\n"]);
    });
}

#[test]
fn what_no_rule_takes_is_not_found() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        for (host, path, cause) in [
            ("other.example.com", "/", "no_host"),
            ("example.com", "/", "no_host"),
            ("shop.example.com", "/", "no_route"),
            ("shop.example.com", "/healthz/x", "no_route"),
            ("shop.example.com", "/api", "no_route"),
        ] {
            talk.says(client, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let heard = talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &["server: strait"]);
            assert!(heard.ends_with(&format!("Not Found: {cause}\n")), "{heard}");
        }
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_reply_lets_the_rest_of_a_small_body_pass() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "POST / HTTP/1.1\r\nHost: unknown\r\nContent-Length: 5\r\n\r\nhelloGET /healthz HTTP/1.1\r\nHost: shop.example.com\r\n\r\n",
        );
        let heard =
            talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &["HTTP/1.1 200 OK\r\n"]);
        assert!(heard.ends_with("ok"), "{heard}");
        assert!(!talk.is_closed(client));
    });
}

#[test]
fn a_client_that_waits_for_a_100_is_answered_and_closed() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(
            client,
            "POST / HTTP/1.1\r\nHost: unknown\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        );
        talk.hears_about(client, "HTTP/1.1 404 Not Found\r\n", &["connection: close\r\n"]);
        assert!(talk.is_shut(client));
    });
}
