//! What a name stands for, by what a server answers.

use super::*;

#[tokio::test]
async fn a_name_is_all_its_addresses_in_an_order_of_their_own() {
    let server = DnsServer::start();
    server.set_addresses("api.test", 30, &["10.0.0.2", "10.0.0.1", "2001:db8::1", "10.0.0.2"]);
    let found = resolve(&system(&[&server]), &strict("api.test"), &[]).await.unwrap();
    let expected = ["10.0.0.1:80*1", "10.0.0.2:80*1", "[2001:db8::1]:80*1"].map(String::from);
    assert_eq!(shown(&found), (expected.to_vec(), Some(30)));
    assert!(found.endpoints.iter().all(|it| &*it.host == "api.test"));
    // In mode logical it is the first of the answer.
    let logical = DnsName { mode: DnsMode::Logical, ..strict("api.test.") };
    let found = resolve(&system(&[&server]), &logical, &[]).await.unwrap();
    assert_eq!(shown(&found), (vec!["10.0.0.2:80*1".to_owned()], Some(30)));
    assert_eq!(&*found.endpoints[0].host, "api.test");
}

#[tokio::test]
async fn families_are_asked_for_and_preferred() {
    let server = DnsServer::start();
    server.set_addresses("both.test", 30, &["10.0.0.1", "2001:db8::1"]);
    server.set_addresses("four.test", 30, &["10.0.0.1"]);
    server.set_addresses("six.test", 30, &["2001:db8::1"]);
    let (v4, v6) = ("10.0.0.1", "2001:db8::1");
    for (family, host, expected, questions) in [
        (DnsFamily::All, "both.test", &[v4, v6][..], 2),
        (DnsFamily::V4, "both.test", &[v4], 1),
        (DnsFamily::V6, "both.test", &[v6], 1),
        (DnsFamily::V6, "four.test", &[], 1),
        (DnsFamily::PreferV4, "both.test", &[v4], 2),
        (DnsFamily::PreferV4, "six.test", &[v6], 2),
        (DnsFamily::PreferV6, "both.test", &[v6], 2),
        (DnsFamily::PreferV6, "four.test", &[v4], 2),
    ] {
        let before = server.asked();
        let found = addresses_of(&server, &DnsName { family, ..strict(host) }).await.unwrap();
        assert_eq!(found, expected, "{family:?} {host}");
        assert_eq!(server.asked() - before, questions, "{family:?} {host}");
    }
}

#[tokio::test]
async fn what_does_not_exist_is_empty_and_what_fails_is_a_failure() {
    let server = DnsServer::start();
    server.set_addresses("empty.test", 30, &[]);
    for host in ["missing.test", "empty.test"] {
        let found = resolve(&system(&[&server]), &strict(host), &[]).await.unwrap();
        // The time to live of that is in the SOA record (RFC 2308).
        assert_eq!(shown(&found), (vec![], Some(1)), "{host}");
        let is_missing = host == "missing.test";
        let absence = if is_missing { Absence::NoName } else { Absence::NoRecords };
        assert_eq!((found.absence, found.failure), (Some(absence), None), "{host}");
    }
    for (code, failure) in [
        (ResponseCode::ServFail, Failure::ServFail),
        (ResponseCode::Refused, Failure::Refused),
        (ResponseCode::FormErr, Failure::NotUnderstood),
        (ResponseCode::YXDomain, Failure::Code(6)),
    ] {
        server.set_all("broken.test", &Says::Code(code));
        assert_eq!(addresses_of(&server, &strict("broken.test")).await, Err(failure));
    }
    server.set_all("silent.test", &Says::Silence);
    assert_eq!(addresses_of(&server, &strict("silent.test")).await, Err(Failure::Timeout));
    let none = Arc::new(System::new(resolvers(&[]), nowhere()));
    let failure = resolve(&none, &strict("api.test"), &[]).await.unwrap_err();
    assert_eq!(failure.word(), "no_server");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_comes_over_tcp() {
    let server = DnsServer::start();
    server.set("big.test", RecordType::A, Says::TruncatedUnlessTcp(many(1000)));
    server.set("big.test", RecordType::AAAA, Says::Records(Vec::new()));
    assert_eq!(addresses_of(&server, &strict("big.test")).await.unwrap().len(), 1000);
    // One that is cut within a record, which no part of it can be read from.
    let all = many(1000).into_iter().map(|ip| ("big.test".to_owned(), 60, address(ip)));
    server.set("big.test", RecordType::A, Says::Records(all.collect()));
    assert_eq!(addresses_of(&server, &strict("big.test")).await.unwrap().len(), 1000);
    // What comes byte by byte is taken, as long as it comes in time.
    server.set("big.test", RecordType::A, Says::Dripping(many(1), Duration::from_millis(1)));
    assert_eq!(addresses_of(&server, &strict("big.test")).await.unwrap().len(), 1);
    server.set("big.test", RecordType::A, Says::Dripping(many(100), Duration::from_millis(20)));
    // It is not waited for the last byte, which comes after half a minute.
    let name = strict("big.test");
    let asked = tokio::time::timeout(Duration::from_secs(5), addresses_of(&server, &name));
    assert_eq!(asked.await.unwrap(), Err(Failure::Timeout));
}

#[tokio::test]
async fn no_more_addresses_are_used_than_there_may_be() {
    let server = DnsServer::start();
    let all = many(2_000).into_iter().map(|ip| ("a.test".to_owned(), 60, address(ip)));
    server.set("a.test", RecordType::A, Says::Records(all.collect()));
    let six = (0..300u128).map(|n| IpAddr::V6((0x2001_0db8 << 96 | n << 1 | 1).into()));
    let six = six.map(|ip| ("a.test".to_owned(), 60, address(ip)));
    server.set("a.test", RecordType::AAAA, Says::Records(six.collect()));
    let servers = Resolvers { timeout: Some(Duration::from_secs(5)), ..resolvers(&[&server]) };
    let system = System::new(servers, nowhere());
    let asking = system.asking().unwrap();
    let records = asking.servers.look_up(&server::name("a.test"), RecordType::A).await.unwrap();
    assert_eq!(records.data.len(), 2_000);
    let records = asking.servers.look_up(&server::name("a.test"), RecordType::AAAA).await.unwrap();
    assert_eq!(records.data.len(), 300);
    let path = PathBuf::from(format!(
        "{}/strait-hosts-{}",
        std::env::temp_dir().display(),
        std::process::id()
    ));
    let lines: String = many(5_000).iter().map(|ip| format!("{ip} a.test\n")).collect();
    std::fs::write(&path, lines).unwrap();
    let paths = Paths { hosts: path.clone(), ..nowhere() };
    let hosts = Arc::new(System::new(resolvers(&[]), paths));
    let found = resolve(&hosts, &strict("a.test"), &[]).await.unwrap();
    assert_eq!((found.endpoints.len(), found.dropped), (4096, 5_000 - 4096));
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn addresses_that_no_service_has_are_left_out() {
    let server = DnsServer::start();
    let odd = [
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "239.1.2.3",
        "::",
        "ff02::1",
        "fe80::1",
        "::ffff:0.0.0.0",
        "::ffff:224.0.0.1",
        "10.0.0.1",
    ];
    server.set_addresses("odd.test", 30, &odd);
    let found = resolve(&system(&[&server]), &strict("odd.test"), &[]).await.unwrap();
    assert_eq!(shown(&found).0, ["10.0.0.1:80*1"]);
    assert_eq!((found.dropped, found.absence), (9, None));
    // What occurs twice is no address that cannot be used.
    server.set_addresses("odd.test", 30, &["10.0.0.1", "10.0.0.1"]);
    let found = resolve(&system(&[&server]), &strict("odd.test"), &[]).await.unwrap();
    assert_eq!((found.endpoints.len(), found.dropped), (1, 0));
    server.set_addresses("odd.test", 30, &["0.0.0.0"]);
    let found = resolve(&system(&[&server]), &strict("odd.test"), &[]).await.unwrap();
    assert_eq!((found.dropped, found.absence), (1, Some(Absence::NoneUsable)));
}

#[tokio::test]
async fn an_answer_with_records_of_other_names_alone_says_nothing() {
    let server = DnsServer::start();
    let of_other = vec![("other.test".to_owned(), 60, address([10, 0, 0, 1].into()))];
    server.set_all("api.test", &Says::Records(of_other));
    assert_eq!(addresses_of(&server, &strict("api.test")).await, Err(Failure::Malformed));
    // Nor do those of another class.
    let of_chaos = |answer: &Message| {
        let mut answer = answer.clone();
        answer.answers.iter_mut().for_each(|it| it.dns_class = DNSClass::CH);
        vec![answer.to_vec().unwrap()]
    };
    server.set_all("api.test", &Says::Changed(many(1), of_chaos));
    assert_eq!(addresses_of(&server, &strict("api.test")).await, Err(Failure::Malformed));
}

#[tokio::test]
async fn an_answer_to_something_else_is_none() {
    let server = DnsServer::start();
    let true_one = vec![IpAddr::from([10, 0, 0, 1])];
    // Guesses come first: wrong ids, another question, no response, a fragment; then the answer.
    let guesses = |answer: &Message| {
        let forge = |change: fn(&mut Message)| {
            let mut forged = answer.clone();
            forged.answers.iter_mut().for_each(|it| it.data = address([6, 6, 6, 6].into()));
            change(&mut forged);
            forged.to_vec().unwrap()
        };
        let mut all: Vec<Vec<u8>> = vec![
            forge(|it| it.metadata.id ^= 1),
            forge(|it| it.queries[0].name = server::name("other.test")),
            forge(|it| it.queries[0].query_type = RecordType::MX),
            forge(|it| it.queries.clear()),
            forge(|it| it.metadata.message_type = hickory_proto::op::MessageType::Query),
            vec![],
            vec![0],
        ];
        all.push(answer.to_vec().unwrap());
        all
    };
    server.set("api.test", RecordType::A, Says::Changed(true_one.clone(), guesses));
    server.set("api.test", RecordType::AAAA, Says::Changed(vec![], guesses));
    assert_eq!(addresses_of(&server, &strict("api.test")).await.unwrap(), ["10.0.0.1"]);
    // Records of other names, and of other kinds, do not count, wherever they stand.
    let stuffed = |answer: &Message| {
        let mut answer = answer.clone();
        let evil = address([6, 6, 6, 6].into());
        answer.add_answer(server::record("bank.test", 60, evil.clone()));
        answer.add_authority(server::record("api.test", 60, evil.clone()));
        answer.add_additional(server::record("api.test", 60, evil));
        vec![answer.to_vec().unwrap()]
    };
    server.set("api.test", RecordType::A, Says::Changed(true_one, stuffed));
    server.set("api.test", RecordType::AAAA, Says::Changed(vec![], stuffed));
    assert_eq!(addresses_of(&server, &strict("api.test")).await.unwrap(), ["10.0.0.1"]);
    // One that cannot be read.
    let cut = |answer: &Message| {
        let mut bytes = answer.to_vec().unwrap();
        bytes.truncate(bytes.len() - 1);
        vec![bytes]
    };
    server.set_all("api.test", &Says::Changed(many(1), cut));
    server.set("api.test", RecordType::AAAA, Says::Changed(vec!["::1".parse().unwrap()], cut));
    assert_eq!(addresses_of(&server, &strict("api.test")).await, Err(Failure::Malformed));
}

#[tokio::test]
async fn aliases_are_followed_within_an_answer_and_beyond() {
    let server = DnsServer::start();
    let of = |name: &str, ttl, data| (name.to_owned(), ttl, data);
    // In any order, and the shortest time to live counts.
    let chain = vec![
        of("c.test", 50, address([10, 0, 0, 1].into())),
        of("b.test", 20, alias("c.test")),
        of("a.test", 30, alias("b.test")),
    ];
    server.set_all("a.test", &Says::Records(chain));
    server.set("a.test", RecordType::AAAA, Says::Records(vec![]));
    let found = resolve(&system(&[&server]), &strict("a.test"), &[]).await.unwrap();
    assert_eq!(shown(&found), (vec!["10.0.0.1:80*1".to_owned()], Some(20)));
    assert_eq!(&*found.endpoints[0].host, "a.test", "certificates are for the name in the file");
    server.set_all("d.test", &Says::Records(vec![of("d.test", 10, alias("e.test"))]));
    server.set_addresses("e.test", 30, &["10.0.0.2"]);
    let found = resolve(&system(&[&server]), &strict("d.test"), &[]).await.unwrap();
    assert_eq!(shown(&found), (vec!["10.0.0.2:80*1".to_owned()], Some(10)));
    // An alias of nothing is nothing.
    server.remove("e.test");
    assert_eq!(addresses_of(&server, &strict("d.test")).await.unwrap().len(), 0);
}

#[tokio::test]
async fn aliases_that_lead_round_are_a_failure_and_no_empty_answer() {
    let server = DnsServer::start();
    let of = |name: &str, target: &str| (name.to_owned(), 10, alias(target));
    server.set_all("a.test", &Says::Records(vec![of("a.test", "b.test"), of("b.test", "a.test")]));
    assert_eq!(addresses_of(&server, &strict("a.test")).await, Err(Failure::AliasLoop));
    server.set_all("a.test", &Says::Records(vec![of("a.test", "a.test")]));
    assert_eq!(addresses_of(&server, &strict("a.test")).await, Err(Failure::AliasLoop));
    // One question leads to the next.
    server.set_all("c.test", &Says::Records(vec![of("c.test", "d.test")]));
    server.set_all("d.test", &Says::Records(vec![of("d.test", "c.test")]));
    assert_eq!(addresses_of(&server, &strict("c.test")).await, Err(Failure::AliasLoop));
    for n in 0..100 {
        let name = format!("n{n}.test");
        server.set_all(&name, &Says::Records(vec![of(&name, &format!("n{}.test", n + 1))]));
    }
    let before = server.asked();
    assert_eq!(addresses_of(&server, &strict("n0.test")).await, Err(Failure::AliasLoop));
    assert!(server.asked() - before <= 2 * (message::ALIASES_MAX + 1));
}

#[tokio::test]
async fn a_family_that_fails_keeps_its_former_addresses_beside_the_others() {
    let server = DnsServer::start();
    server.set_addresses("api.test", 30, &["10.0.0.1", "2001:db8::1"]);
    let system = system(&[&server]);
    let name = strict("api.test");
    let former = resolve(&system, &name, &[]).await.unwrap().endpoints;
    server.set_addresses("api.test", 30, &["10.0.0.2"]);
    server.set("api.test", RecordType::AAAA, Says::Code(ResponseCode::ServFail));
    let found = resolve(&system, &name, &former).await.unwrap();
    assert_eq!(shown(&found).0, ["10.0.0.2:80*1", "[2001:db8::1]:80*1"]);
    assert_eq!(found.failure, Some(Failure::ServFail));
    // At first it has none, and the others serve.
    let found = resolve(&system, &name, &[]).await.unwrap();
    assert_eq!(shown(&found).0, ["10.0.0.2:80*1"]);
    // Nothing of one and a failure of the other is no empty answer.
    server.set("api.test", RecordType::A, Says::Records(vec![]));
    assert_eq!(resolve(&system, &name, &former).await, Err(Failure::ServFail));
}

#[tokio::test]
async fn records_of_services_have_priorities_ports_and_weights() {
    let server = DnsServer::start();
    let name = "_http._tcp.api.test";
    let of = |priority, weight, port, target| {
        (name.to_owned(), 40, service(priority, weight, port, target))
    };
    server.set_addresses("a.test", 30, &["10.0.0.1"]);
    server.set_addresses("b.test", 30, &["10.0.0.2", "10.0.0.3"]);
    server.set_addresses("backup.test", 30, &["10.0.1.1"]);
    let records = |first: &[(u16, u16, u16, &'static str)]| {
        Says::Records(first.iter().map(|(a, b, c, d)| of(*a, *b, *c, d)).collect())
    };
    let set =
        |all: &[(u16, u16, u16, &'static str)]| server.set(name, RecordType::SRV, records(all));
    let found = async |former: &[Resolved]| resolve(&system(&[&server]), &srv(name), former).await;

    set(&[(2, 1, 82, "backup.test"), (1, 10, 80, "a.test"), (1, 20, 81, "b.test")]);
    let first = found(&[]).await.unwrap();
    // The addresses of a target share its weight.
    assert_eq!(
        shown(&first),
        (
            vec![
                "10.0.0.1:80*10".to_owned(),
                "10.0.0.2:81*10".to_owned(),
                "10.0.0.3:81*10".to_owned(),
                "10.0.1.1:82*1 1".to_owned(),
            ],
            Some(30)
        )
    );
    assert_eq!(first.endpoints[1].host, "b.test".into());
    // Shares that are no whole numbers keep their proportions.
    set(&[(1, 1, 80, "a.test"), (1, 1, 81, "b.test")]);
    let weights =
        found(&[]).await.unwrap().endpoints.iter().map(|it| it.weight.get()).collect::<Vec<_>>();
    assert_eq!(weights, [65_535, 32_768, 32_768]);
    // A weight of 0 is the smallest there is.
    set(&[(1, 0, 80, "a.test")]);
    assert_eq!(shown(&found(&[]).await.unwrap()).0, ["10.0.0.1:80*1"]);

    // A priority without addresses does not count.
    set(&[(1, 1, 80, "gone.test"), (2, 1, 82, "backup.test")]);
    assert_eq!(shown(&found(&[]).await.unwrap()).0, ["10.0.1.1:82*1"]);
    // A target that fails keeps its former addresses.
    set(&[(1, 10, 80, "a.test"), (2, 1, 82, "backup.test")]);
    let former = found(&[]).await.unwrap().endpoints;
    server.set_all("a.test", &Says::Code(ResponseCode::ServFail));
    let partial = found(&former).await.unwrap();
    assert_eq!(shown(&partial).0, ["10.0.0.1:80*10", "10.0.1.1:82*1 1"]);
    assert_eq!(partial.failure, Some(Failure::ServFail));
    // Without any the next priority serves.
    assert_eq!(shown(&found(&[]).await.unwrap()).0, ["10.0.1.1:82*1"]);
    set(&[(1, 10, 80, "a.test")]);
    assert_eq!(found(&[]).await, Err(Failure::ServFail));
    set(&[(1, 10, 80, "gone.test")]);
    assert_eq!(found(&[]).await.unwrap().absence, Some(Absence::NoTarget));
    set(&[(1, 1, 80, ".")]);
    assert_eq!(found(&[]).await.unwrap().absence, Some(Absence::NoService));

    // Targets that are no hosts, ports that are none, and the dot that says that there is no such service.
    let odd = Name::from_labels([&b"a\x07b"[..], b"test"]).unwrap();
    let odd = RData::SRV(SRV::new(1, 1, 80, odd));
    let refused = [(1, 1, 0, "b.test"), (1, 1, 80, "10.0.0.9"), (1, 1, 80, ".")];
    let Says::Records(mut refused) = records(&refused) else { unreachable!() };
    refused.push((name.to_owned(), 40, odd));
    server.set(name, RecordType::SRV, Says::Records(refused));
    let nothing = found(&[]).await.unwrap();
    assert_eq!((shown(&nothing).0.len(), nothing.dropped), (0, 3));
    server.remove(name);
    assert_eq!(shown(&found(&[]).await.unwrap()), (vec![], Some(1)));
}

#[tokio::test]
async fn endpoints_of_services_do_not_depend_on_the_order_of_an_answer() {
    let server = DnsServer::start();
    let name = "_http._tcp.api.test";
    let mut records: Vec<_> = (0..20u16)
        .flat_map(|n| {
            let target = format!("t{n}.test");
            server.set_addresses(&target, 30, &["10.0.0.1", &format!("10.0.1.{n}")]);
            // The same port of the same address, by different names; and a target twice.
            let record = |weight| (name.to_owned(), 40, service(1, weight, 80, &target));
            [record(n + 1), record(n + 2)]
        })
        .collect();
    let mut found = Vec::new();
    for _ in 0..4 {
        server.set(name, RecordType::SRV, Says::Records(records.clone()));
        records.rotate_left(7);
        found.push(resolve(&system(&[&server]), &srv(name), &[]).await.unwrap().endpoints);
    }
    assert_eq!(found[0].len(), 21);
    assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
    // All that lead to one address have their weights there: 1 to 20, halved, in proportion to the others.
    assert_eq!((&*found[0][0].host, found[0][0].weight.get()), ("t0.test", 65_535));
}

#[tokio::test]
async fn of_more_targets_than_are_used_the_same_ones_are() {
    let records = |order: fn(usize) -> usize| {
        let targets = (0..TARGETS_MAX + 10).map(order).map(|n| format!("t{n:05}.test"));
        let all = targets.map(|it| ("s.test".to_owned(), 40, service(1, 1, 80, &it)));
        Says::Records(all.collect())
    };
    let server = DnsServer::start();
    let hosts = std::env::temp_dir().join(format!("strait-dns-targets-{}", std::process::id()));
    let lines =
        (0..TARGETS_MAX + 10).map(|n| format!("10.0.{}.{} t{n:05}.test\n", n / 250, n % 250 + 1));
    std::fs::write(&hosts, lines.collect::<String>()).unwrap();
    let paths = Paths { hosts: hosts.clone(), ..nowhere() };
    let servers = Resolvers { timeout: Some(Duration::from_secs(10)), ..resolvers(&[&server]) };
    let system = Arc::new(System::new(servers, paths));
    let mut found = Vec::new();
    for order in [|n| n, |n| TARGETS_MAX + 9 - n] as [fn(usize) -> usize; 2] {
        server.set("s.test", RecordType::SRV, records(order));
        found.push(resolve(&system, &srv("s.test"), &[]).await.unwrap());
    }
    assert_eq!((found[0].endpoints.len(), found[0].dropped), (TARGETS_MAX, 10));
    assert_eq!(found[0], found[1]);
    std::fs::remove_file(&hosts).unwrap();
}

#[tokio::test]
async fn the_machine_knows_some_names_itself_and_says_whom_to_ask() {
    let folder = std::env::temp_dir().join(format!("strait-dns-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let paths = Paths { resolv_conf: folder.join("resolv.conf"), hosts: folder.join("hosts") };
    let hosts =
        "127.0.0.1 localhost\n10.0.0.7\tDB.internal db # the database\n::1 db\nnonsense db\n";
    std::fs::write(&paths.hosts, hosts).unwrap();
    let text = "nameserver 10.0.0.2\nsearch ns.svc.cluster.local svc.cluster.local\noptions ndots:2 timeout:3 attempts:4\n";
    std::fs::write(&paths.resolv_conf, text).unwrap();
    let system = Arc::new(System::new(resolvers(&[]), paths.clone()));
    for (host, expected) in [
        ("db", &["10.0.0.7:80*1", "[::1]:80*1"][..]),
        ("db.internal.", &["10.0.0.7:80*1"]),
        ("localhost", &["127.0.0.1:80*1"]),
        ("api.localhost", &["127.0.0.1:80*1", "[::1]:80*1"]),
    ] {
        let found = resolve(&system, &strict(host), &[]).await.unwrap();
        assert_eq!(shown(&found), (expected.iter().map(|it| (*it).to_owned()).collect(), None));
    }
    let asking = system.asking().unwrap();
    assert_eq!(asking.servers.addresses, ["10.0.0.2:53".parse().unwrap()]);
    assert_eq!(asking.servers.attempts, 4);
    // The configuration's own timeout goes first.
    assert_eq!(asking.servers.timeout, Duration::from_millis(200));
    let candidates =
        |host: &str| asking.candidates(host).iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = ["api.ns.svc.cluster.local.", "api.svc.cluster.local.", "api."];
    assert_eq!(candidates("api"), expected);
    assert_eq!(candidates("api.a.b")[0], "api.a.b.");
    assert_eq!(candidates("api.internal."), ["api.internal."]);
    // It is read again when it changes.
    std::fs::write(&paths.resolv_conf, "nameserver 10.0.0.3\n").unwrap();
    std::fs::write(&paths.hosts, "10.0.0.8 db\n").unwrap();
    system.refresh().await;
    assert_eq!(system.asking().unwrap().servers.addresses, ["10.0.0.3:53".parse().unwrap()]);
    assert_eq!(shown(&resolve(&system, &strict("db"), &[]).await.unwrap()).0, ["10.0.0.8:80*1"]);
    // What cannot be read now may be in a moment: until then it says what it said.
    for path in [&paths.resolv_conf, &paths.hosts] {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
    }
    system.refresh().await;
    assert_eq!(system.asking().unwrap().servers.addresses, ["10.0.0.3:53".parse().unwrap()]);
    assert_eq!(shown(&resolve(&system, &strict("db"), &[]).await.unwrap()).0, ["10.0.0.8:80*1"]);
    for path in [&paths.resolv_conf, &paths.hosts] {
        std::fs::remove_dir(path).unwrap();
    }
    let reason = "cannot be read: No such file or directory";
    let failure = resolve(&system, &strict("db"), &[]).await.unwrap_err();
    assert!(matches!(&failure, Failure::NoServer(why) if why.contains(reason)), "{failure:?}");
    std::fs::write(&paths.resolv_conf, "nameserver 10.0.0.4\n").unwrap();
    system.refresh().await;
    assert_eq!(system.asking().unwrap().servers.addresses, ["10.0.0.4:53".parse().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_search_ends_at_a_failure_since_what_follows_is_another_host() {
    let server = DnsServer::start();
    let folder = std::env::temp_dir().join(format!("strait-dns-search-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let resolv_conf = folder.join("resolv.conf");
    std::fs::write(&resolv_conf, "nameserver 127.0.0.1\nsearch one.test two.test\n").unwrap();
    let system = Arc::new(System::new(resolvers(&[]), Paths { resolv_conf, ..nowhere() }));
    system.refresh().await;
    let mut asking = system.asking().unwrap();
    asking.servers.addresses = vec![server.address];
    server.set_addresses("api.two.test", 30, &["10.0.0.2"]);
    let found = async || {
        for name in asking.candidates("api") {
            match asking.servers.look_up(&name, RecordType::A).await {
                Ok(records) if records.data.is_empty() => {}
                result => return result.map(|it| it.data.len()),
            }
        }
        Ok(0)
    };
    assert_eq!(found().await, Ok(1));
    server.set_all("api.one.test", &Says::Code(ResponseCode::ServFail));
    assert_eq!(found().await, Err(Failure::ServFail));
    std::fs::remove_dir_all(&folder).unwrap();
}
