//! RPC protocols that a program registers: what may name them, and what has to agree.

use config::chains::ConnectionFacts;
use config::snapshot::{ClusterProtocol, Detected, ListenerProtocol};
use config::{FilterKinds, Loader};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::head::{RequestHead, ResponseHead};
use wire::rpc::{Asked, Frame, HeadBuilder, Reply, RpcError, RpcName, RpcProtocol};

/// A protocol of which only the name is asked here, and the octet that its connections begin with.
#[derive(Debug)]
struct Named(&'static str, u8);

impl RpcProtocol for Named {
    fn name(&self) -> &'static str {
        self.0
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>, RpcError> {
        if input.first().is_none_or(|first| *first == self.1) {
            return Ok(None);
        }
        Err(RpcError::Unexpected)
    }

    fn decode_request<'b>(
        &self,
        _: &Frame,
        _: HeadBuilder<'b>,
    ) -> Result<RequestHead<'b>, RpcError> {
        Err(RpcError::Unexpected)
    }

    fn decode_response<'b>(
        &self,
        _: &Frame,
        _: HeadBuilder<'b>,
    ) -> Result<ResponseHead<'b>, RpcError> {
        Err(RpcError::Unexpected)
    }

    fn encode_request(
        &self,
        _: &RequestHead<'_>,
        _: u64,
        _: &mut wire::buffer::Buffer,
    ) -> Result<(), RpcError> {
        Ok(())
    }

    fn set_id(&self, _: &mut [u8], _: u64) {}

    fn encode_response(
        &self,
        _: Asked,
        _: &ResponseHead<'_>,
        _: u64,
        _: &mut wire::buffer::Buffer,
    ) -> Result<(), RpcError> {
        Ok(())
    }

    fn encode_reply(&self, _: Asked, _: &Reply<'_>, _: &mut wire::buffer::Buffer) {}

    fn encode_heartbeat_answer(&self, _: Asked, _: &mut wire::buffer::Buffer) {}
}

/// What the filters here are configured with.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

const TEXT: &str = "
listeners: [{ name: calls, address: '127.0.0.1:8080', protocol: alpha, routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, cluster: orders }] }]
clusters: [{ name: orders, protocol: alpha, endpoints: ['127.0.0.1:9000'] }]
";

fn loader() -> Loader<()> {
    let mut kinds = FilterKinds::new();
    kinds.register_protocol(&Named("alpha", 1));
    kinds.register_protocol(&Named("beta", 2));
    kinds.register_protocol(&Named("gamma", 2));
    kinds.register("http_only", |_: Nothing| Ok(())).unwrap();
    kinds.register("both", |_: Nothing| Ok(())).unwrap();
    kinds.takes_rpc("both");
    Loader::new(kinds).unwrap()
}

fn errors(text: &str) -> String {
    let result = loader().load("strait.yaml", text);
    result.map(|_| ()).map_err(|errors| errors.to_string()).unwrap_err()
}

#[test]
fn listeners_and_clusters_speak_what_is_registered() {
    let snapshot = loader().load("strait.yaml", TEXT).unwrap();
    let ListenerProtocol::Rpc(name) = snapshot.listeners[0].protocol else { panic!("no RPC") };
    assert_eq!(name.as_str(), "alpha");
    assert_eq!(snapshot.protocols.find(name).unwrap().name(), "alpha");
    let (_, cluster) = snapshot.clusters.iter().next().unwrap();
    assert_eq!(cluster.protocol, ClusterProtocol::Rpc(name));
    let shown = config::effective_yaml(&snapshot);
    assert_eq!(shown.matches("protocol: alpha").count(), 2, "{shown}");
    loader().load("strait.yaml", &shown).unwrap();
}

#[test]
fn a_protocol_that_is_not_registered_is_named_with_those_that_are() {
    let errors = errors(&TEXT.replace("alpha", "alfa"));
    for words in ["2:", "listeners[0].protocol", "alpha", "clusters[0].protocol"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    // A word that cannot be read is one mistake, not two.
    for name in ["calls", "orders"] {
        let at = TEXT.find(&format!("name: {name},")).unwrap();
        let (before, behind) = TEXT.split_at(at);
        let errors = self::errors(&[before, &behind.replacen("alpha", "alfa", 1)].concat());
        assert!(!errors.contains(" takes "), "{errors}");
    }
}

#[test]
fn both_sides_speak_the_same() {
    for (from, to, words) in [
        (
            "orders, protocol: alpha",
            "orders, protocol: beta",
            "listener `calls` accepts `alpha`, and cluster `orders` speaks `beta`",
        ),
        (
            "orders, protocol: alpha,",
            "orders,",
            "listener `calls` accepts `alpha`, and cluster `orders` speaks HTTP",
        ),
        (
            "8080', protocol: alpha",
            "8080'",
            "listener `calls` accepts HTTP, and cluster `orders` speaks `alpha`",
        ),
        (
            "listeners: [{",
            "listeners: [{ name: web, address: '127.0.0.1:8081', routes: all }, {",
            "listener `web` uses route table `all` for HTTP, and this one accepts `alpha`",
        ),
        ("{ name: all, rules", "{ name: all, hosts: [a.example], rules", "calls have no host"),
        ("cluster: orders }", "cluster: orders, rewrite: { prefix: /x/ } }", "have no `rewrite`"),
        (
            "routes: all }]",
            "routes: all, filters: [{ http_only: {} }] }]",
            "this filter is for HTTP requests",
        ),
        (
            "endpoints: [",
            "proxy_protocol: v2, endpoints: [",
            "a PROXY header names the only client of a connection, and an RPC connection has many",
        ),
        ("routes: all }]", "}]", "a listener that accepts calls needs `routes`"),
    ] {
        let text = TEXT.replacen(from, to, 1);
        assert_ne!(text, TEXT, "{from}");
        let errors = errors(&text);
        assert!(errors.contains(words), "{words}: {errors}");
    }
}

#[test]
fn filters_that_take_calls_may_stand_there() {
    let text = TEXT.replace("routes: all }]", "routes: all, filters: [{ both: {} }] }]");
    loader().load("strait.yaml", &text).unwrap();
}

/// A listener that detects two protocols beside HTTP.
const DETECTING: &str = "
listeners:
  - name: all
    address: '127.0.0.1:8080'
    routes: web
    chains:
      - { name: a, match: { protocols: [alpha] }, protocol: alpha, routes: of_alpha }
      - { name: b, match: { protocols: [beta, other] }, protocol: beta, routes: of_beta }
routes:
  - { name: web, rules: [{ match: { prefix: / }, respond: { status: 200 } }] }
  - { name: of_alpha, rules: [{ match: { prefix: / }, respond: { status: 503 } }] }
  - { name: of_beta, rules: [{ match: { prefix: / }, respond: { status: 503 } }] }
clusters: []
";

#[test]
fn chains_may_ask_for_registered_protocols() {
    let snapshot = loader().load("strait.yaml", DETECTING).unwrap();
    let chains = &snapshot.listeners[0].chains;
    let names: Vec<_> = chains.rpc_protocols().iter().map(|protocol| protocol.name()).collect();
    assert_eq!(names, ["alpha", "beta"]);
    for (name, chain) in [("alpha", Some("a")), ("beta", Some("b")), ("gamma", None)] {
        let protocol = Some(Detected::Rpc(RpcName::new(name).unwrap()));
        let facts = ConnectionFacts {
            source: None,
            source_port: None,
            direct_source: None,
            destination: None,
            protocol,
            server_name: None,
            alpn: &[],
        };
        assert_eq!(chains.choose(&facts).map(|chain| &*chain.name), chain, "{name}");
    }
    let shown = config::effective_yaml(&snapshot);
    loader().load("strait.yaml", &shown).unwrap();
}

#[test]
fn a_listener_detects_what_it_can_distinguish_and_speaks_what_it_detects() {
    for (from, to, words) in [
        ("[alpha]", "[gamma, alpha]", "connections of `beta` may begin as those of `gamma` do"),
        ("[alpha]", "[beta]", "connections of `beta` match this chain, whose protocol is `alpha`"),
        (
            "[alpha]",
            "[http2, alpha]",
            "connections of HTTP match this chain, whose protocol is `alpha`",
        ),
        (
            "protocol: alpha, routes: of_alpha",
            "routes: web",
            "connections of `alpha` match this chain, whose protocol is HTTP",
        ),
        ("[alpha]", "[alfa]", "alpha"),
    ] {
        let text = DETECTING.replacen(from, to, 1);
        assert_ne!(text, DETECTING, "{from}");
        let errors = errors(&text);
        assert!(errors.contains(words), "{words}: {errors}");
        assert!(
            errors.contains("listeners[0].chains[") && errors.contains(".match.protocols["),
            "{errors}"
        );
    }
}
