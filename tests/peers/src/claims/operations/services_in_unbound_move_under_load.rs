//! The services of a name change in unbound, and unbound stands still, while wrk runs: not one error. The name has records of
//! the kind SRV, in more answers than a datagram holds.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::addresses_in_dnsmasq_move_under_load::shown;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait, local};
use crate::{ports, wait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::Unbound], holds };

/// Targets of a lower priority, which get requests only where those of the first cannot (RFC 2782), and at which nothing listens; so
/// many that the answer comes over TCP.
const SPARES: u16 = 200;

/// What unbound answers: a service at each of these addresses, and spares behind them.
fn zone(dns: u16, port: u16, addresses: &[&str]) -> String {
    let mut text = format!(
        "server:\n interface: 127.0.0.1@{dns}\n do-daemonize: no\n username: \"\"\n chroot: \"\"\n pidfile: \"\"\n \
         use-syslog: no\n do-not-query-localhost: no\n local-zone: \"test.\" static\n"
    );
    for address in addresses {
        let host = format!("at-{}.test.", address.replace('.', "-"));
        text += &format!(" local-data: \"_http._tcp.api.test. 1 IN SRV 0 1 {port} {host}\"\n");
        text += &format!(" local-data: \"{host} 1 IN A {address}\"\n");
    }
    for spare in 0..SPARES {
        text += &format!(
            " local-data: \"_http._tcp.api.test. 1 IN SRV 9 1 {port} spare-{spare}.test.\"\n"
        );
        text += &format!(" local-data: \"spare-{spare}.test. 1 IN A 127.0.9.{spare}\"\n");
    }
    text
}

fn holds(lab: &Lab) -> Result<()> {
    let port = ports::free()?;
    let one = Origin::start_at(local(port))?;
    let two = Origin::start_at(SocketAddr::from(([127, 0, 0, 2], port)))?;
    let dns = ports::free()?;
    let file = lab.write("unbound.conf", zone(dns, port, &["127.0.0.1"]))?;
    let options = ["-d", "-c", file.to_str().unwrap_or_default()];
    let unbound = Process::start(lab.folder(), "unbound", &options)?;
    let resolvers = format!("resolvers: {{ servers: [\"127.0.0.1:{dns}\"], timeout: 500ms }}");
    let options = Options { file: &resolvers, ..Options::default() };
    let strait = Strait::forwarding_to(lab, one.address(), options)?;
    let listed = format!("[\"{}\"]", one.address());
    let named = "{ dns: _http._tcp.api.test, mode: srv, ttl_min: 100ms }";
    strait.reconfigure(&listed, named)?;
    let has = |addresses: &[&str]| {
        shown(&strait).is_ok_and(|(_, mut now)| {
            let all = now.len();
            now.retain(|address| !address.starts_with("127.0.9."));
            now.sort();
            now == addresses && all == now.len() + usize::from(SPARES)
        })
    };
    wait::until("the first services", wait::SOON, || has(&["127.0.0.1"]))?;
    let url = strait.url("/bytes/1000");
    let mut wrk = Process::start(lab.folder(), "wrk", &["-t1", "-c16", "-d20s", &url])?;
    for addresses in [&["127.0.0.2"][..], &["127.0.0.1", "127.0.0.2"], &["127.0.0.2"]] {
        lab.write("unbound.conf", zone(dns, port, addresses))?;
        unbound.signal(Signal::HUP)?;
        wait::until("the next services", wait::SOON, || has(addresses))?;
    }
    let state_is = |expected: &'static str| {
        wait::until(expected, wait::SOON, || {
            shown(&strait).is_ok_and(|(state, _)| state == expected)
        })
    };
    unbound.signal(Signal::STOP)?;
    state_is("stale")?;
    unbound.signal(Signal::CONT)?;
    state_is("fresh")?;
    ensure!(wrk.is_running(), "wrk ended before the last change");
    ensure!(wrk.wait(Duration::from_secs(30))?.success(), "{}", wrk.output());
    let printed = wrk.output();
    ensure!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    ensure!(one.connections() > 0 && two.connections() > 0, "one of them was asked for nothing");
    Ok(())
}
