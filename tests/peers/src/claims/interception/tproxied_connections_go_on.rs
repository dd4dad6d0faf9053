//! A gateway takes what passes through it by TPROXY and goes on to where it was going, over IPv4 and
//! IPv6: the client believes that it talks to the service itself.

use anyhow::{Result, ensure};

use super::{NEEDS, SERVICES, from_the_guide, metric, name_of, start_services, start_strait};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::network::Network;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    let gateway = Network::new()?;
    let _services = start_services(lab, &gateway)?;
    let client = Network::beside(&gateway)?;
    gateway.join("inside", &client, "eth0")?;
    gateway.address("inside", "10.0.0.1/24")?;
    gateway.address("inside", "fd00::1/64")?;
    client.address("eth0", "10.0.0.2/24")?;
    client.address("eth0", "fd00::2/64")?;
    client.ip("route add default via 10.0.0.1")?;
    client.ip("-6 route add default via fd00::1")?;
    let config = from_the_guide("yaml", "original_destination: tproxy")?;
    let config = config.replace("cluster: onward }", "cluster: onward, http: { via: strait } }");
    let _strait = start_strait(lab, &gateway, &config)?;
    gateway.rules(lab, from_the_guide("nft", "tproxy to")?)?;
    for words in from_the_guide("ip", "fwmark")?.lines() {
        gateway.ip(words)?;
    }

    for service in SERVICES {
        let url = format!("http://{service}/");
        let said = client.curl(lab, &["-w", " from %{remote_ip}:%{remote_port}", &url])?;
        ensure!(said.starts_with(&name_of(service)?), "{service}: {said}");
        ensure!(said.contains("via=1.1 strait"), "{service}: {said}");
        let from = service.replace(['[', ']'], "");
        ensure!(said.ends_with(&format!(" from {from}")), "{service}: {said}");
    }
    let came = metric(lab, &gateway, "strait_downstream_connections_opened_total")?;
    ensure!(came == 4.0, "{came} connections came");

    let said = client.curl(lab, &["http://10.0.0.1:15001/", "http://[fd00::1]:15001/"])?;
    ensure!(said.matches("no_original_destination").count() == 2, "{said}");
    Ok(())
}
