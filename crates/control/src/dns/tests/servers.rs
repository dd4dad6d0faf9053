//! Which server is asked.

use super::*;

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
