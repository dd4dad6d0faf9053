use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::path::PathBuf;

use config::snapshot::{DnsFamily, DnsMode, Resolved};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

use self::server::{DnsServer, Says, address, alias, service};
use super::round::TARGETS_MAX;
use super::*;

#[path = "../../tests/dns/server.rs"]
mod server;

/// A name in mode strict, at port 80.
pub(crate) fn strict(host: &str) -> DnsName {
    DnsName {
        host: host.into(),
        port: NonZeroU16::new(80),
        mode: DnsMode::Strict,
        family: DnsFamily::All,
        ttl_min: Duration::from_secs(1),
        ttl_max: Duration::from_secs(300),
    }
}

fn srv(host: &str) -> DnsName {
    DnsName { port: None, mode: DnsMode::Srv, ..strict(host) }
}

/// Servers that may take a fifth of a second each.
pub(crate) fn resolvers(servers: &[&DnsServer]) -> Resolvers {
    Resolvers {
        servers: servers.iter().map(|server| server.address).collect(),
        timeout: Some(Duration::from_millis(200)),
        initial_fetch_timeout: Duration::from_secs(15),
        on_demand_timeout: Duration::from_secs(5),
    }
}

/// A machine without a hosts file.
fn nowhere() -> Paths {
    Paths { resolv_conf: "/nonexistent/resolv.conf".into(), hosts: "/nonexistent/hosts".into() }
}

fn system(servers: &[&DnsServer]) -> Arc<System> {
    Arc::new(System::new(resolvers(servers), nowhere()))
}

/// `ADDRESS*WEIGHT` of each endpoint, with ` PRIORITY` if that is not the first, and for how many seconds that holds.
fn shown(found: &Found) -> (Vec<String>, Option<u32>) {
    let endpoints = found.endpoints.iter().map(|it| match it.priority {
        0 => format!("{}*{}", it.address, it.weight),
        priority => format!("{}*{} {priority}", it.address, it.weight),
    });
    (endpoints.collect(), found.ttl)
}

async fn addresses_of(server: &DnsServer, name: &DnsName) -> Result<Vec<String>, Failure> {
    let found = resolve(&system(&[server]), name, &[]).await?;
    Ok(found.endpoints.iter().map(|it| it.address.ip().to_string()).collect())
}

fn many(count: u32) -> Vec<IpAddr> {
    (0..count).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n))).collect()
}

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
async fn the_next_server_is_asked_where_one_fails() {
    let [broken, silent, good] = [(); 3].map(|()| DnsServer::start());
    broken.set_all("api.test", &Says::Code(ResponseCode::ServFail));
    silent.set_all("api.test", &Says::Silence);
    good.set_addresses("api.test", 30, &["10.0.0.1"]);
    let found =
        resolve(&system(&[&broken, &silent, &good]), &strict("api.test"), &[]).await.unwrap();
    assert_eq!(shown(&found).0, ["10.0.0.1:80*1"]);
    // What one says counts for more than another's silence, in any order.
    for servers in [[&broken, &silent], [&silent, &broken]] {
        let failure = resolve(&system(&servers), &strict("api.test"), &[]).await.unwrap_err();
        assert_eq!(failure, Failure::ServFail);
    }
    // An address without a server.
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = Resolvers { servers: [closed].into(), ..resolvers(&[]) };
    let gone = Arc::new(System::new(gone, nowhere()));
    let failure = resolve(&gone, &strict("api.test"), &[]).await.unwrap_err();
    assert_eq!(failure.word(), "unreachable");
}

/// A clock that only the test advances, however long answers take that come over sockets: tokio advances none while a thread
/// blocks. It ends with what it returns, or after so long that the test has failed.
fn stopped_clock() -> std::sync::mpsc::Sender<()> {
    let (end, ended) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(20)));
    end
}

/// Lets time pass, and tasks that waited for it go on.
async fn advance(duration: Duration) {
    tokio::time::advance(duration).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// Which server answered, by the last byte of the address that it gave.
async fn answered_by(servers: &stub::Servers, host: &str) -> u8 {
    let records = servers.look_up(&server::name(host), RecordType::A).await.unwrap();
    let Some(RData::A(ip)) = records.data.first() else { panic!("{records:?}") };
    ip.octets()[3]
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_last_until_it_does() {
    let _clock = stopped_clock();
    let [first, second] = [(); 2].map(|()| DnsServer::start());
    for host in ["a.test", "b.test"] {
        first.set_all(host, &Says::Silence);
        second.set_addresses(host, 30, &["10.0.0.2"]);
    }
    let servers = system(&[&first, &second]).asking().unwrap().servers;
    let timeout = servers.timeout;
    let start = tokio::time::Instant::now();
    let (by, ()) = tokio::join!(answered_by(&servers, "a.test"), advance(timeout));
    assert_eq!((by, start.elapsed()), (2, timeout));
    // The next names do not wait for it, also when it is asked whether it is back.
    for waited in [0, 0, 1, 0, 1, 2, 3, 4, 30, 30] {
        advance(Duration::from_secs(waited)).await;
        let before = tokio::time::Instant::now();
        assert_eq!(answered_by(&servers, "b.test").await, 2);
        assert_eq!(before.elapsed(), Duration::ZERO, "waited for no server");
        // What is asked beside ends.
        advance(2 * timeout).await;
    }
    // Once it is back, one question finds that out, and it is the first again.
    for host in ["a.test", "b.test"] {
        first.set_addresses(host, 30, &["10.0.0.1"]);
    }
    advance(Duration::from_secs(30)).await;
    let before = tokio::time::Instant::now();
    let mut by = Vec::new();
    while by.len() < 10_000 && by.last() != Some(&1) {
        by.push(answered_by(&servers, "a.test").await);
    }
    assert_eq!((by.first(), by.last()), (Some(&2), Some(&1)));
    assert_eq!(before.elapsed(), Duration::ZERO, "waited for no server");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_asked_last_and_one_that_fails_is_not() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let [broken, good] = [(); 2].map(|()| DnsServer::start());
    broken.set_all("api.test", &Says::Code(ResponseCode::ServFail));
    good.set_addresses("api.test", 30, &["10.0.0.1"]);
    let all = [closed, broken.address, good.address];
    let resolvers = Resolvers { servers: all.into(), ..resolvers(&[]) };
    let servers = System::new(resolvers, nowhere()).asking().unwrap().servers;
    assert_eq!(answered_by(&servers, "api.test").await, 1);
    let order = servers.failover.lock().unwrap().order(&all);
    assert_eq!(order, [broken.address, good.address, closed]);
}

#[tokio::test]
async fn a_first_server_that_is_gone_is_asked_for_no_more_names_than_wait_for_it() {
    const NAMES: usize = 8 * ROUNDS_AT_ONCE;
    let [gone, good] = [(); 2].map(|()| DnsServer::start());
    let hosts: Vec<_> = (0..NAMES).map(|n| format!("a{n}.test")).collect();
    for host in &hosts {
        gone.set_all(host, &Says::Silence);
        good.set_addresses(host, 300, &["10.0.0.1"]);
    }
    let (mut dns, mut reports) = Dns::with_paths(resolvers(&[&gone, &good]), nowhere());
    let names: BTreeSet<_> = hosts.iter().map(|host| Arc::new(strict(host))).collect();
    dns.follow(&names);
    for _ in 0..NAMES {
        next_change(&mut dns, &mut reports).await;
    }
    assert!(names.iter().all(|name| dns.is_answered(name)));
    // Each name has two questions, and a round may begin anew once.
    let asked = gone.asked();
    assert!(asked <= 4 * ROUNDS_AT_ONCE, "{asked} questions");
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

/// The next change of what a name stands for.
async fn next_change(dns: &mut Dns, reports: &mut mpsc::Receiver<DnsReport>) -> Change {
    let change = async {
        loop {
            if let Some(change) = dns.on_report(reports.recv().await.unwrap()) {
                return change;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), change).await.expect("a change comes")
}

fn texts(change: &Change) -> Vec<String> {
    change.1.iter().flat_map(|it| it.iter()).map(|it| it.address.to_string()).collect()
}

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
