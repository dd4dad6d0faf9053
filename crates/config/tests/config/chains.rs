//! Which chain of a listener a connection meets.

use std::net::SocketAddr;

use config::chains::ConnectionFacts;
use config::snapshot::Detected;
use config::{FilterKinds, Loader};

/// Chains of these matches, named by their places.
fn chosen(matches: &[&str], facts: &ConnectionFacts<'_>) -> Option<usize> {
    let chains = matches.iter().enumerate();
    let chains: String = chains
        .map(|(place, asked)| format!("{{ name: c{place}, match: {{ {asked} }}, cluster: a }},"))
        .collect();
    let text = format!(
        "listeners: [{{ name: l, address: 127.0.0.1:1, chains: [{chains}] }}]\n\
         clusters: [{{ name: a, endpoints: [] }}]\n"
    );
    // Chains for TCP need no routes.
    let text = text.replace("cluster: a }", "protocol: tcp, cluster: a }");
    let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
    let snapshot = loader.load("test.yaml", &text).unwrap();
    let chains = &snapshot.listeners[0].chains;
    let chosen = chains.choose(facts)?;
    chains.find(chosen.id).map(|(place, _)| place)
}

const NOTHING: ConnectionFacts<'_> = ConnectionFacts {
    source: None,
    source_port: None,
    direct_source: None,
    destination: None,
    protocol: None,
    server_name: None,
    alpn: &[],
};

#[test]
fn the_most_specific_server_name_wins() {
    let matches = [
        "server_names: ['*.example']",
        "server_names: ['*.shop.example']",
        "server_names: [a.shop.example]",
        "protocols: [tls]",
    ];
    for (name, place) in [
        (Some("a.shop.example"), Some(2)),
        (Some("b.shop.example"), Some(1)),
        (Some("x.b.shop.example"), Some(1)),
        (Some("shop.example"), Some(0)),
        (Some("example"), Some(3)),
        (None, Some(3)),
    ] {
        let facts = ConnectionFacts { server_name: name, protocol: Some(Detected::Tls), ..NOTHING };
        assert_eq!(chosen(&matches, &facts), place, "{name:?}");
    }
    let facts = ConnectionFacts { protocol: Some(Detected::Other), ..NOTHING };
    assert_eq!(chosen(&matches, &facts), None);
}

#[test]
fn an_earlier_criterion_outweighs_all_later_ones() {
    let matches = [
        "destination_ports: [443]",
        "destinations: [10.0.0.0/8], server_names: [a.example]",
        "destinations: [10.1.0.0/16]",
        "server_names: [a.example], alpn: [h2], sources: [192.0.2.0/24]",
        "server_names: [a.example], alpn: [h2]",
    ];
    let h2: [&[u8]; 1] = [b"h2"];
    for (destination, source, place) in [
        ("10.1.0.1:443", "192.0.2.1", 0),
        ("10.1.0.1:80", "192.0.2.1", 2),
        ("10.2.0.1:80", "192.0.2.1", 1),
        ("11.0.0.1:80", "192.0.2.1", 3),
        ("11.0.0.1:80", "198.51.100.1", 4),
    ] {
        let facts = ConnectionFacts {
            source: Some(source.parse().unwrap()),
            destination: Some(destination.parse().unwrap()),
            server_name: Some("a.example"),
            alpn: &h2,
            ..NOTHING
        };
        assert_eq!(chosen(&matches, &facts), Some(place), "{destination} {source}");
    }
}

/// What is known of a connection from an address, over a proxy, to 10.1.0.1.
fn from<'f>(source: &str, direct: &str) -> ConnectionFacts<'f> {
    let source: SocketAddr = source.parse().unwrap();
    ConnectionFacts {
        source: Some(source.ip()),
        source_port: Some(source.port()),
        direct_source: Some(direct.parse().unwrap()),
        destination: Some("10.1.0.1:443".parse().unwrap()),
        ..NOTHING
    }
}

#[test]
fn the_smallest_range_of_direct_sources_wins_whatever_the_source() {
    let matches = [
        "direct_sources: [10.0.0.0/8]",
        "direct_sources: [10.2.0.0/16, 10.9.0.1]",
        "sources: [192.0.2.7]",
        "",
    ];
    for (direct, place) in
        [("10.3.0.1", 0), ("10.2.0.1", 1), ("10.9.0.1", 1), ("10.9.0.2", 0), ("11.0.0.1", 2)]
    {
        assert_eq!(chosen(&matches, &from("192.0.2.7:5", direct)), Some(place), "{direct}");
    }
    let unknown = ConnectionFacts { direct_source: None, ..from("192.0.2.8:5", "10.2.0.1") };
    assert_eq!(chosen(&matches, &unknown), Some(3));
}

#[test]
fn a_source_is_local_if_it_is_a_loopback_address_or_the_destination() {
    let matches = ["source_type: local", "source_type: external", "source_type: any"];
    for (source, place) in [
        ("127.0.0.1:5", 0),
        ("127.1.2.3:5", 0),
        ("[::1]:5", 0),
        ("10.1.0.1:5", 0),
        ("10.1.0.2:443", 1),
        ("[2001:db8::1]:5", 1),
    ] {
        // Who connects for it is another matter.
        assert_eq!(chosen(&matches, &from(source, "127.0.0.1")), Some(place), "{source}");
    }
    assert_eq!(chosen(&matches, &NOTHING), Some(0), "of a unix socket");
    let unknown = ConnectionFacts { source: None, ..from("10.1.0.2:5", "10.1.0.2") };
    assert_eq!(chosen(&matches, &unknown), Some(2));
    // `any` asks for nothing.
    assert_eq!(chosen(&["source_type: any"], &from("10.1.0.2:5", "10.1.0.2")), Some(0));
}

#[test]
fn a_source_port_is_one_of_those_listed() {
    let matches = ["", "source_ports: [7, 9]", "source_ports: [9, 11]"];
    for (source, place) in [("1.1.1.1:7", 1), ("1.1.1.1:9", 1), ("1.1.1.1:11", 2), ("1.1.1.1:8", 0)]
    {
        assert_eq!(chosen(&matches, &from(source, "10.2.0.1")), Some(place), "{source}");
    }
    assert_eq!(chosen(&matches, &NOTHING), Some(0));
}

#[test]
fn what_is_asked_of_sources_is_compared_in_envoys_order() {
    // Each outweighs all behind it.
    let matches = [
        "source_ports: [5]",
        "sources: [192.0.2.0/24]",
        "source_type: external",
        "direct_sources: [10.0.0.0/8]",
        "alpn: [h2]",
    ];
    let h2: [&[u8]; 1] = [b"h2"];
    let all = ConnectionFacts { alpn: &h2, ..from("192.0.2.7:5", "10.2.0.1") };
    assert_eq!(chosen(&matches, &all), Some(4));
    for (left, place) in [(4, 3), (3, 2), (2, 1), (1, 0)] {
        let facts = from("192.0.2.7:5", "10.2.0.1");
        assert_eq!(chosen(&matches[..left], &facts), Some(place), "{left}");
    }
    // There is no way back, also not to a chain of another protocol that the client offers.
    let offers: [&[u8]; 2] = [b"h2", b"http/1.1"];
    let facts = ConnectionFacts { alpn: &offers, ..all };
    let hidden = [
        "alpn: [http/1.1], direct_sources: [10.0.0.0/8]",
        "alpn: [h2], direct_sources: [10.2.0.0/16], source_ports: [6]",
        "alpn: [h2], direct_sources: [10.2.0.0/16], source_type: local",
    ];
    assert_eq!(chosen(&hidden[..1], &facts), Some(0));
    assert_eq!(chosen(&hidden[..2], &facts), None);
    assert_eq!(chosen(&hidden, &facts), None);
    let several = [
        "alpn: [http/1.1], direct_sources: [10.2.0.0/16], sources: [192.0.2.7]",
        "alpn: [h2], direct_sources: [10.2.0.0/16], source_type: external, source_ports: [5]",
        "alpn: [h2], direct_sources: [10.0.0.0/8], source_type: external, sources: [192.0.2.7]",
    ];
    assert_eq!(chosen(&several, &facts), Some(1));
    // The first protocol that the client offers decides.
    let offers: [&[u8]; 2] = [b"http/1.1", b"h2"];
    assert_eq!(chosen(&several, &ConnectionFacts { alpn: &offers, ..facts }), Some(0));
}

#[test]
fn a_change_lists_the_chains_that_are_gone() {
    let text = |chains: &[&str], listeners: &[&str]| {
        let chains = chains.iter().zip(1..).map(|(name, port)| {
            let matches = format!("{{ destination_ports: [{port}] }}");
            format!("{{ name: {name}, match: {matches}, protocol: tcp, cluster: a }}, ")
        });
        let chains: String = chains.collect();
        let listeners = listeners.iter().zip(1..).map(|(name, port)| {
            format!("{{ name: {name}, address: '127.0.0.1:{port}', chains: [{chains}] }}, ")
        });
        let listeners: String = listeners.collect();
        format!("listeners: [{listeners}]\nclusters: [{{ name: a, endpoints: [] }}]\n")
    };
    let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
    let mut load = |text: &str| loader.load("test.yaml", text).unwrap();
    let first = load(&text(&["a", "b", "c"], &["one", "two"]));
    assert_eq!(first.changes.chains_removed, []);
    let of = |listener: usize, chain: usize| {
        let listener = &first.listeners[listener];
        (listener.id, listener.chains[chain].id)
    };
    // The others moved, and match other ports.
    let second = load(&text(&["b", "c"], &["one", "two"]));
    let mut gone = second.changes.chains_removed.clone();
    gone.sort();
    assert_eq!(gone, [of(0, 0), of(1, 0)]);
    let third = load(&text(&["b", "c"], &["one"]));
    let mut gone = third.changes.chains_removed.clone();
    gone.sort();
    assert_eq!(gone, [of(1, 1), of(1, 2)]);
}

#[test]
fn a_chain_that_another_one_hides_is_warned_of() {
    let warned = |chains: &[&str]| -> Vec<String> {
        let chains = chains.iter().zip(0..).map(|(asked, place)| {
            format!("{{ name: c{place}, match: {{ {asked} }}, protocol: tcp, cluster: a }},")
        });
        let text = format!(
            "listeners: [{{ name: l, address: 127.0.0.1:1, chains: [{}] }}]\n\
             clusters: [{{ name: a, endpoints: ['10.0.0.1:80'] }}]\n",
            chains.collect::<String>()
        );
        let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        loader.load("test.yaml", &text).unwrap();
        loader.warnings().iter().map(|warning| warning.to_string()).collect()
    };
    let hides = |chains: &[&str], other: &str, early: &str, late: &str| {
        let warnings = warned(chains);
        let rule = format!("connections that chain {other} names by `{early}` and not by `{late}`");
        assert!(warnings.len() == 1 && warnings[0].contains(&rule), "{warnings:?}");
        // A chain that names such connections already is not asked to.
        let mut hidden = chains.iter().zip(0..).filter(|(_, place)| format!("c{place}") != other);
        let is_named = hidden.any(|(asked, _)| asked.contains(&format!("{early}:")));
        let another = format!("add a chain with the `{early}` of {other} alone");
        let hint = match is_named {
            true => format!("; {another}"),
            false => format!("; give this chain `{early}` as well, or {another}"),
        };
        assert!(warnings[0].contains(&hint), "{warnings:?}");
    };
    let office = "destination_ports: [443], sources: [10.0.0.0/8]";
    hides(&["server_names: [a.example]", office], "c1", "destination_ports", "sources");
    hides(
        &["server_names: [a.example], sources: [10.0.0.0/8]", "server_names: ['*.example']"],
        "c0",
        "server_names",
        "sources",
    );
    hides(
        &["protocols: [tls]", "server_names: [a.example], alpn: [h2]"],
        "c1",
        "server_names",
        "alpn",
    );
    hides(
        &["sources: [10.0.0.0/8]", "destination_ports: [443], protocols: [http1]"],
        "c1",
        "destination_ports",
        "protocols",
    );
    hides(
        &["direct_sources: [10.0.0.0/8], source_type: local", "sources: [10.0.0.0/8]"],
        "c0",
        "direct_sources",
        "source_type",
    );
    hides(
        &["sources: [10.0.0.0/8]", "source_type: external, source_ports: [5]"],
        "c1",
        "source_type",
        "source_ports",
    );
    hides(
        &["source_type: external, sources: [10.0.0.0/8]", "source_ports: [5]"],
        "c0",
        "source_type",
        "sources",
    );
    // A client may offer both, and the first decides.
    hides(&["alpn: [h2], sources: [10.0.0.0/8]", "alpn: [http/1.1]"], "c0", "alpn", "sources");
    for chains in [
        &["server_names: [a.example]", "server_names: ['*.example']"][..],
        &["protocols: [tls]", "protocols: [http1], sources: [10.0.0.0/8]", "protocols: [http1]"],
        // Something is there for the others.
        &["server_names: [a.example]", office, "destination_ports: [443]"],
        // One comes from here, and the other from elsewhere.
        &["source_type: local, source_ports: [5]", "source_type: external"],
        &["sources: [127.0.0.0/8], source_ports: [5]", "source_type: external"],
        // Without PROXY headers a connection comes from one address.
        &["direct_sources: [10.0.0.0/8], source_ports: [5]", "sources: [192.0.2.0/24]"],
        // None is for both.
        &["destination_ports: [80]", office],
    ] {
        assert_eq!(warned(chains), Vec::<String>::new());
    }
}

#[test]
fn a_change_says_of_which_connections_more_is_asked() {
    let listener = |own: &str, chains: &str| {
        format!(
            "listeners: [{{ name: l, address: 127.0.0.1:1, {own}, chains: [{chains}] }}]\n\
             routes: [{{ name: r, rules: [] }}]\nclusters: [{{ name: a, endpoints: [] }}]\n"
        )
    };
    let chain = |name: &str, rest: &str| format!("{{ name: {name}, {rest} }}, ");
    let (one, two) = (
        chain("one", "match: { destination_ports: [1] }, routes: r"),
        chain("two", "match: { destination_ports: [2] }, routes: r"),
    );
    let mut loader = Loader::<()>::new(FilterKinds::new()).unwrap();
    let first = loader.load("f", &listener("routes: r", &format!("{one}{two}"))).unwrap();
    let (id, chains) = (first.listeners[0].id, &first.listeners[0].chains);
    let ids = [chains[0].id, chains[1].id];
    let mut changed = |own: &str, chains: &str| {
        let now = loader.load("f", &listener(own, chains)).unwrap();
        (now.changes.admissions_changed.clone(), now.changes.matches_added.clone())
    };
    // Neither the order nor what they lead to is a matter of who is let in.
    let (none, also_none) = (Vec::new(), Vec::new());
    let same = changed("routes: r, timeouts: { idle: 1m }", &format!("{two}{one}"));
    assert_eq!(same, (none, also_none));
    let wide = chain("two", "match: { destination_ports: [2, 3] }, routes: r");
    let asked = (vec![(id, Some(ids[1]))], vec![(id, ids[1])]);
    assert_eq!(changed("routes: r", &format!("{one}{wide}")), asked);
    let http2 = chain("one", "match: { destination_ports: [1] }, protocol: http2, routes: r");
    assert_eq!(changed("routes: r", &format!("{http2}{wide}")), (vec![(id, Some(ids[0]))], vec![]));
    assert_eq!(
        changed("routes: r, protocol: http1", &format!("{http2}{wide}")),
        (vec![(id, None)], vec![])
    );
    let (admitted, added) =
        changed("routes: r, protocol: http1, proxy_protocol: true", &format!("{http2}{wide}"));
    assert_eq!((admitted.len(), added.len()), (3, 0), "it is of all of them");
    let three = chain("three", "match: { destination_ports: [4] }, routes: r");
    let (admitted, added) = changed(
        "routes: r, protocol: http1, proxy_protocol: true",
        &format!("{http2}{wide}{three}"),
    );
    assert_eq!((admitted.len(), added.len()), (0, 1));
}
