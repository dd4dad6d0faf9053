//! A name is followed.

use super::*;

#[test]
fn a_server_that_is_gone_takes_a_few_lines_whatever_the_number_of_names() {
    let mut lines = Lines { since: clock::monotonic_ns(), ..Lines::default() };
    let written = (0..10_000).filter(|_| lines.has_room()).count();
    assert_eq!((written, lines.left_out), (20, 9_980));
    // Later there is room again.
    std::mem::take(&mut lines);
    assert!(lines.has_room());
}

#[tokio::test]
async fn a_name_is_followed_through_changes_failures_and_its_end() {
    let server = DnsServer::start();
    let name = Arc::new(DnsName { ttl_min: Duration::from_millis(50), ..strict("api.test") });
    let (mut dns, mut reports) = Dns::with_paths(resolvers(&[&server]), nowhere());
    server.set_addresses("api.test", 0, &["10.0.0.1"]);
    assert_eq!(dns.follow(&BTreeSet::from([Arc::clone(&name)])), []);
    assert!(!dns.is_answered(&name));
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await), ["10.0.0.1:80"]);
    server.set_addresses("api.test", 0, &["10.0.0.2", "10.0.0.1"]);
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await), ["10.0.0.1:80", "10.0.0.2:80"]);
    // A failure changes nothing, and the state says so.
    server.set_all("api.test", &Says::Code(ResponseCode::ServFail));
    loop {
        assert_eq!(dns.on_report(reports.recv().await.unwrap()), None);
        let (_, status) = dns.describe().remove(0);
        let shown = status.to_json(&name, clock::monotonic_ns());
        if shown["state"] == "stale" {
            assert_eq!(shown["last_error"]["reason"], "servfail");
            assert_eq!(shown["endpoints"].as_array().unwrap().len(), 2);
            break;
        }
    }
    server.remove("api.test");
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await), [""; 0]);
    assert!(dns.is_answered(&name));
    // Other servers are asked at once.
    let other = DnsServer::start();
    other.set_addresses("api.test", 300, &["10.0.0.3"]);
    dns.set_resolvers(&resolvers(&[&other]));
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await), ["10.0.0.3:80"]);
    assert_eq!(dns.follow(&BTreeSet::new()), [(name, None)]);
}

#[tokio::test]
async fn a_configuration_that_waits_has_its_own_names_asked_for_at_its_servers() {
    let [old, new, newest] = [(); 3].map(|()| DnsServer::start());
    let [served, added] = ["served.test", "added.test"].map(|host| Arc::new(strict(host)));
    old.set_addresses("served.test", 300, &["10.0.0.1"]);
    let (mut dns, mut reports) = Dns::with_paths(resolvers(&[&old]), nowhere());
    let in_effect = BTreeSet::from([Arc::clone(&served)]);
    dns.follow(&in_effect);
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await), ["10.0.0.1:80"]);

    // They know nothing of the other name.
    new.set_all("added.test", &Says::Silence);
    newest.set_addresses("added.test", 300, &["10.0.0.2"]);
    let both = BTreeSet::from([Arc::clone(&served), Arc::clone(&added)]);
    let asked = old.asked();
    assert_eq!(dns.follow_beside(&in_effect, &both, &resolvers(&[&new])), []);
    assert!(dns.on_report(reports.recv().await.unwrap()).is_none(), "it is silent");
    assert!(dns.has_failed(&added) && !dns.has_failed(&served));
    // One after it has others again.
    assert_eq!(dns.follow_beside(&in_effect, &both, &resolvers(&[&newest])), []);
    let change = next_change(&mut dns, &mut reports).await;
    assert_eq!((&change.0, texts(&change)), (&added, vec!["10.0.0.2:80".to_owned()]));
    assert_eq!(old.asked(), asked);
    // It is none any more.
    dns.set_resolvers(&resolvers(&[&old]));
    assert_eq!(dns.follow(&in_effect), [(added, None)]);
    let answer = dns.answer(&served).unwrap();
    assert_eq!(answer.endpoints[0].address.to_string(), "10.0.0.1:80");
}

#[tokio::test]
async fn another_option_of_a_name_does_not_lose_its_addresses_while_no_server_answers() {
    let server = DnsServer::start();
    let (mut dns, mut reports) = Dns::with_paths(resolvers(&[&server]), nowhere());
    let known = Arc::new(strict("api.test"));
    server.set_addresses("api.test", 300, &["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
    assert_eq!(dns.follow(&BTreeSet::from([Arc::clone(&known)])), []);
    next_change(&mut dns, &mut reports).await;
    server.set_all("api.test", &Says::Silence);

    for (name, expected) in [
        (
            DnsName { ttl_max: Duration::from_secs(60), ..strict("api.test") },
            &["10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:80"][..],
        ),
        (DnsName { family: DnsFamily::V4, ..strict("api.test") }, &["10.0.0.1:80", "10.0.0.2:80"]),
        (
            DnsName { mode: DnsMode::Logical, family: DnsFamily::V6, ..strict("api.test") },
            &["[2001:db8::1]:80"],
        ),
        (DnsName { family: DnsFamily::PreferV6, ..strict("api.test") }, &["[2001:db8::1]:80"]),
    ] {
        let name = Arc::new(name);
        // Beside the name as it was, and then in place of it.
        let changes = dns.follow(&BTreeSet::from([Arc::clone(&known), Arc::clone(&name)]));
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(change.0, name);
        assert_eq!(texts(change), expected);
        assert!(dns.is_answered(&name));
        assert_eq!(dns.follow(&BTreeSet::from([Arc::clone(&known)])), [(name, None)]);
    }
    // Another port is another name.
    let other = Arc::new(DnsName { port: NonZeroU16::new(81), ..strict("api.test") });
    assert_eq!(dns.follow(&BTreeSet::from([other])), [(known, None)]);
}

#[tokio::test]
async fn names_of_which_nothing_is_heard_keep_no_others_waiting() {
    let server = DnsServer::start();
    let servers = Resolvers { timeout: Some(Duration::from_secs(20)), ..resolvers(&[&server]) };
    let (mut dns, mut reports) = Dns::with_paths(servers, nowhere());
    let silent: Vec<_> = (0..4 * ROUNDS_AT_ONCE).map(|n| format!("a{n}.test")).collect();
    silent.iter().for_each(|name| server.set_all(name, &Says::Silence));
    server.set_addresses("web.test", 300, &["10.0.0.1"]);
    let mut names: BTreeSet<_> = silent.iter().map(|name| Arc::new(strict(name))).collect();
    let web = Arc::new(strict("web.test"));
    names.insert(Arc::clone(&web));
    dns.follow(&names);
    // In less time than one of them takes.
    let (name, _) = next_change(&mut dns, &mut reports).await;
    assert_eq!(name, web);
    assert_eq!(dns.reason(&Arc::new(strict("a0.test"))), "no answer yet");
}

#[tokio::test]
async fn states_say_that_an_answer_is_empty_or_partial_and_why() {
    let server = DnsServer::start();
    let name = Arc::new(DnsName { ttl_min: Duration::from_millis(50), ..strict("api.test") });
    let (mut dns, mut reports) = Dns::with_paths(resolvers(&[&server]), nowhere());
    dns.follow(&BTreeSet::from([Arc::clone(&name)]));
    let mut shown = async |dns: &mut Dns, state: &str| loop {
        let report = tokio::time::timeout(Duration::from_secs(20), reports.recv());
        dns.on_report(report.await.unwrap().unwrap());
        let (name, status) = dns.describe().remove(0);
        let shown = status.to_json(&name, clock::monotonic_ns());
        if shown["state"] == state {
            assert_eq!(dns.states()[state], 1);
            return (shown["last_error"].clone(), dns.troubles());
        }
    };
    let (error, lines) = shown(&mut dns, "empty").await;
    assert_eq!(error["message"], "the name does not exist (NXDOMAIN)");
    assert_eq!(lines, ["host name api.test:80: empty, the name does not exist (NXDOMAIN)"]);
    server.set_addresses("api.test", 0, &["10.0.0.1", "2001:db8::1"]);
    assert_eq!(shown(&mut dns, "fresh").await, (Value::Null, vec![]));
    server.set("api.test", RecordType::AAAA, Says::Code(ResponseCode::ServFail));
    let (error, lines) = shown(&mut dns, "partial").await;
    assert_eq!((&error["reason"], &error["count"]), (&json!("servfail"), &json!(1)));
    assert_eq!(lines, ["host name api.test:80: partial, the DNS server failed (SERVFAIL)"]);
}

#[tokio::test]
async fn a_part_of_an_answer_that_is_missing_is_asked_for_again_soon() {
    let server = DnsServer::start();
    let (mut dns, mut reports) = Dns::with_paths(resolvers(&[&server]), nowhere());
    let shown = |dns: &Dns, name: &DnsName| {
        let known = dns.describe();
        let (_, status) = known.iter().find(|(it, _)| **it == *name).unwrap();
        let shown = status.to_json(name, clock::monotonic_ns());
        (shown["state"].clone(), shown["next_in_seconds"].as_u64().unwrap())
    };

    // A family.
    let host = Arc::new(strict("api.test"));
    server.set_addresses("api.test", 300, &["10.0.0.1", "2001:db8::1"]);
    server.set("api.test", RecordType::AAAA, Says::Code(ResponseCode::ServFail));
    dns.follow(&BTreeSet::from([Arc::clone(&host)]));
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await), ["10.0.0.1:80"]);
    assert_eq!(shown(&dns, &host), (json!("partial"), 0));
    server.set_addresses("api.test", 300, &["10.0.0.1", "2001:db8::1"]);
    // In less time than the answer holds.
    let change = next_change(&mut dns, &mut reports).await;
    assert_eq!(texts(&change), ["10.0.0.1:80", "[2001:db8::1]:80"]);
    let (state, next) = shown(&dns, &host);
    assert!(state == "fresh" && next > 250, "{state} {next}");

    // One of ten targets.
    let services = Arc::new(srv("_http._tcp.api.test"));
    let targets = (0..10u8).map(|n| (format!("t{n}.test"), format!("10.0.0.{n}")));
    let records = targets.map(|(target, address)| {
        server.set_addresses(&target, 300, &[&address]);
        ("_http._tcp.api.test".to_owned(), 300, service(1, 1, 80, &target))
    });
    server.set("_http._tcp.api.test", RecordType::SRV, Says::Records(records.collect()));
    server.set_all("t9.test", &Says::Code(ResponseCode::ServFail));
    dns.follow(&BTreeSet::from([Arc::clone(&services)]));
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await).len(), 9);
    assert_eq!(shown(&dns, &services), (json!("partial"), 0));
    server.set_addresses("t9.test", 300, &["10.0.0.9"]);
    assert_eq!(texts(&next_change(&mut dns, &mut reports).await).len(), 10);
    assert_eq!(shown(&dns, &services).0, "fresh");
}
