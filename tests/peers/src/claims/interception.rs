//! Connections that rules of the machine bring to Strait, in networks that each claim makes for itself.
//! The rules are those of the guide.

mod a_missing_capability_is_named;
mod redirected_connections_go_on;
mod tproxied_connections_go_on;
mod without_a_mark_they_come_back;

use anyhow::{Context as _, Result};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::network::Network;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::process::Process;

pub(super) const CLAIMS: &[Claim] = &[
    redirected_connections_go_on::CLAIM,
    tproxied_connections_go_on::CLAIM,
    without_a_mark_they_come_back::CLAIM,
    a_missing_capability_is_named::CLAIM,
];

const NEEDS: &[Peer] = &[Peer::Ip, Peer::Nft, Peer::Curl, Peer::Nginx];

const GUIDE: &str = include_str!("../../../../docs/configuration/README.md");

/// The first block of the guide in this language that holds `word`.
fn from_the_guide(language: &str, word: &str) -> Result<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = GUIDE.split(&fence).skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let found = blocks.find(|block| block.contains(word));
    found.with_context(|| format!("the guide has a block of {language} with {word}"))
}

/// Where the services are: two addresses, each with two ports.
const SERVICES: [&str; 4] =
    ["203.0.113.10:80", "203.0.113.11:8080", "[2001:db8:113::10]:80", "[2001:db8:113::11]:8080"];

/// The services, which say what they were reached at, in a network that `gateway` is joined to.
fn start_services(lab: &Lab, gateway: &Network) -> Result<(Network, Process)> {
    let outside = Network::beside(gateway)?;
    gateway.join("outside", &outside, "inside")?;
    gateway.address("outside", "192.0.2.1/24")?;
    gateway.address("outside", "2001:db8:2::1/64")?;
    outside.address("inside", "192.0.2.2/24")?;
    outside.address("inside", "2001:db8:2::2/64")?;
    gateway.ip("route add default via 192.0.2.2")?;
    gateway.ip("-6 route add default via 2001:db8:2::2")?;
    for host in ["203.0.113.10/32", "203.0.113.11/32"] {
        outside.address("lo", host)?;
    }
    for host in ["2001:db8:113::10/128", "2001:db8:113::11/128"] {
        outside.address("lo", host)?;
    }
    let http = "  server {
    listen 0.0.0.0:80; listen 0.0.0.0:8080; listen [::]:80; listen [::]:8080;
    location / { return 200 \"$server_addr $server_port $connection via=$http_via\"; }
  }";
    let arguments = Nginx::arguments(lab, http)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut nginx = outside.start(lab, &Nginx::program()?, &arguments)?;
    outside.listens(&mut nginx, 8080)?;
    Ok((outside, nginx))
}

/// Strait in a network, with a configuration of the guide.
fn start_strait(lab: &Lab, network: &Network, config: &str) -> Result<Process> {
    // One worker, so that bounds are not split.
    let config = format!("admin: {{ address: 127.0.0.1:9901 }}\nworkers: 1\n{config}");
    let file = lab.write("strait.yaml", config)?;
    let arguments = ["run", "-c", &file.to_string_lossy()];
    let mut strait = network.start(lab, &lab.strait, &arguments)?;
    strait.ready(|| network.curl(lab, &["-f", "http://127.0.0.1:9901/ready"]).is_ok())?;
    Ok(strait)
}

/// Sum over all labels of one of its metrics.
fn metric(lab: &Lab, network: &Network, name: &str) -> Result<f64> {
    let page = network.curl(lab, &["http://127.0.0.1:9901/metrics"])?;
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let lines = lines.filter(|rest| rest.starts_with([' ', '{']));
    let values = lines.map(|rest| {
        let value = rest.rsplit(' ').next().unwrap_or_default();
        value.parse::<f64>().with_context(|| format!("{name}: {rest}"))
    });
    values.sum()
}

/// How a service at `address` names itself, up to the number of its connection.
fn name_of(address: &str) -> Result<String> {
    let (host, port) = address.rsplit_once(':').context("an address with a port")?;
    Ok(format!("{} {port} ", host.trim_matches(['[', ']'])))
}
