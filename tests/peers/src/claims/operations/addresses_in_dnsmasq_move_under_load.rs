//! A name's addresses change in dnsmasq, and dnsmasq stands still, while wrk runs: not one error.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait, local};
use crate::{ports, wait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::Dnsmasq], holds };

/// The state of the only name, and its addresses without the port.
pub(super) fn shown(strait: &Strait) -> Result<(String, Vec<String>)> {
    let config: serde_json::Value = serde_json::from_str(&strait.admin("/config")?.text())?;
    let of_name = |key: &str| config.pointer(&format!("/host_names/0/{key}")).cloned();
    let endpoints = of_name("endpoints").unwrap_or_default();
    let addresses = endpoints.as_array().into_iter().flatten().filter_map(|endpoint| {
        Some(endpoint.get("address")?.as_str()?.split(':').next()?.to_owned())
    });
    let state = of_name("state").unwrap_or_default();
    Ok((state.as_str().unwrap_or_default().to_owned(), addresses.collect()))
}

fn holds(lab: &Lab) -> Result<()> {
    let port = ports::free()?;
    let one = Origin::start_at(local(port))?;
    let two = Origin::start_at(SocketAddr::from(([127, 0, 0, 2], port)))?;
    let dns = ports::free()?;
    let hosts = lab.write("hosts", "127.0.0.1 api.test\n")?;
    let (hosts_option, port_option) =
        (format!("--addn-hosts={}", hosts.display()), format!("--port={dns}"));
    let options = [
        "--no-daemon",
        "--no-resolv",
        "--no-hosts",
        "--local=/test/",
        "--local-ttl=1",
        "--user=root",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        &hosts_option,
        &port_option,
    ];
    let dnsmasq = Process::start(lab.folder(), "dnsmasq", &options)?;
    let resolvers = format!("resolvers: {{ servers: [\"127.0.0.1:{dns}\"], timeout: 200ms }}");
    let options = Options { file: &resolvers, ..Options::default() };
    let strait = Strait::forwarding_to(lab, one.address(), options)?;
    let listed = format!("[\"{}\"]", one.address());
    strait.reconfigure(&listed, &format!("{{ dns: \"api.test:{port}\", ttl_min: 100ms }}"))?;
    let url = strait.url("/bytes/1000");
    let mut wrk = Process::start(lab.folder(), "wrk", &["-t1", "-c16", "-d20s", &url])?;
    for addresses in
        [&["127.0.0.2"][..], &["127.0.0.1", "127.0.0.2"], &["127.0.0.1"], &["127.0.0.2"]]
    {
        let lines: String = addresses.iter().map(|ip| format!("{ip} api.test\n")).collect();
        lab.write("hosts", lines)?;
        dnsmasq.signal(Signal::HUP)?;
        wait::until("the next addresses", wait::SOON, || {
            shown(&strait).is_ok_and(|(_, now)| now == addresses)
        })?;
    }
    let state_is = |expected: &'static str| {
        wait::until(expected, wait::SOON, || {
            shown(&strait).is_ok_and(|(state, _)| state == expected)
        })
    };
    dnsmasq.signal(Signal::STOP)?;
    state_is("stale")?;
    dnsmasq.signal(Signal::CONT)?;
    state_is("fresh")?;
    ensure!(wrk.is_running(), "wrk ended before the last change");
    ensure!(wrk.wait(Duration::from_secs(30))?.success(), "{}", wrk.output());
    let printed = wrk.output();
    ensure!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    ensure!(one.connections() > 0 && two.connections() > 0, "one of them was asked for nothing");
    Ok(())
}
