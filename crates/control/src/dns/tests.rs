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

mod answers;
mod following;
#[path = "../../tests/dns/server.rs"]
mod server;
mod servers;

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
