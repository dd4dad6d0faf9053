//! Which peers may send a PROXY header.

use crate::kit::hold;

pub(crate) const CONFIG: &str = "
listeners:
  - { name: web, address: 127.0.0.1:8080, routes: all, proxy_protocol: { from: [192.0.2.0/24] } }
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: { body: hello } }] }]
";

#[test]
fn a_listed_proxy_is_believed() {
    hold(CONFIG, |talk| {
        let client = talk.client();
        talk.says(client, "PROXY TCP4 198.51.100.7 10.0.0.1 5 80\r\n");
        talk.says(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(talk.heard(client).starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn a_connection_from_elsewhere_is_closed_at_accept_and_counted() {
    hold(&CONFIG.replace("192.0.2.0/24", "198.51.100.0/24"), |talk| {
        talk.keeps_counts();
        assert!(talk.try_client().is_none());
        let counted = talk.counted("strait_downstream_connections_refused_total");
        let refused = counted.iter().find(|(labels, _)| labels.contains("proxy_protocol_source"));
        assert_eq!(refused.map(|(_, count)| *count), Some(1), "{counted:?}");
    });
}
