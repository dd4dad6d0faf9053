//! Header fields in the access log.

use crate::keep_alive::CONFIG;
use crate::kit::hold;

const FIELDS: &str = "access_log:
  output: stdout
  fields: [request_headers.x-tenant, request_headers.x-none, response_headers.x-shard, request_headers.accept]
";

#[test]
fn header_fields_of_request_and_response_are_kept_for_the_access_log() {
    hold(&format!("{CONFIG}{FIELDS}"), |talk| {
        let client = talk.client();
        for tenant in ["one", "g\u{e9}"] {
            talk.says(
                client,
                format!("GET / HTTP/1.1\r\nHost: x\r\nX-Tenant: {tenant}\r\nAccept: */*\r\nX-Tenant: other\r\n\r\n"),
            );
            let upstream = talk.upstream();
            talk.heard(upstream);
            talk.says(upstream, "HTTP/1.1 103 Early Hints\r\nX-Shard: no\r\n\r\n");
            let close = "Connection: close\r\n";
            talk.says(
                upstream,
                format!("HTTP/1.1 200 OK\r\nX-Shard: 7\r\n{close}Content-Length: 2\r\n\r\nok"),
            );
            assert!(talk.heard(client).ends_with("ok"));
        }
        let lines: Vec<&str> = talk.log().lines().collect();
        let expected = ["one", "g\u{e9}"].map(|tenant| {
            format!("{{\"x-tenant\":\"{tenant}\",\"accept\":\"*/*\",\"x-shard\":\"7\"}}")
        });
        assert_eq!(lines, expected);
    });
}
