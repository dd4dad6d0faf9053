//! REDIRECT brings what curl connects to to Strait, which reads or relays it and goes on to where it
//! was going, over IPv4 and IPv6. What Strait itself connects to is marked and goes its way.

use anyhow::{Result, ensure};

use super::{NEEDS, SERVICES, from_the_guide, metric, name_of, start_services, start_strait};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::network::Network;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    let machine = Network::new()?;
    let _services = start_services(lab, &machine)?;
    let config = from_the_guide("yaml", "original_destination: redirect")?;
    let config = config.replace("cluster: onward }", "cluster: onward, http: { via: strait } }");
    let _strait = start_strait(lab, &machine, &config)?;
    machine.rules(lab, from_the_guide("nft", "redirect to")?)?;

    for service in SERVICES {
        let url = format!("http://{service}/");
        // Two requests on one connection, so that it is seen to be kept on both sides.
        let said = machine.curl(lab, &[&url, &url])?;
        let name = name_of(service)?;
        ensure!(said.matches(&name).count() == 2, "{service}: {said}");
        ensure!(said.matches("via=1.1 strait").count() == 2, "{service}: {said}");
        let (first, second) = said.split_at(said.len() / 2);
        ensure!(first == second, "one connection to {service}: {said}");
    }
    let came = metric(lab, &machine, "strait_downstream_connections_opened_total")?;
    ensure!(came == 4.0, "{came} connections came: those of curl, none of Strait's own");

    // What is not HTTP is relayed: nginx answers a request that Strait would have refused.
    let words = "printf '\\0\\r\\n\\r\\n' | curl --silent --max-time 20 telnet://203.0.113.10:80";
    let said = machine.run(lab, "sh", &["-c", words])?;
    ensure!(said.output.contains("<center>nginx"), "{}", said.output);
    let relayed = metric(lab, &machine, "strait_tunnels_started_total")?;
    ensure!(relayed == 1.0, "{relayed} connections were relayed");

    // A client that connects straight to Strait has no other destination.
    let said = machine.curl(lab, &["http://127.0.0.1:15001/", "http://[::1]:15001/"])?;
    ensure!(said.matches("no_original_destination").count() == 2, "{said}");
    Ok(())
}
