//! What Strait connects to without a mark is redirected to it again, until its bound on connections
//! ends that. So it is the mark that keeps other claims' connections from coming back; and taking it
//! up ends the loop without a restart.

use anyhow::{Result, ensure};

use super::{NEEDS, from_the_guide, metric, name_of, start_services, start_strait};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::network::Network;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: NEEDS, holds };

fn holds(lab: &Lab) -> Result<()> {
    let machine = Network::new()?;
    let _services = start_services(lab, &machine)?;
    let marked = from_the_guide("yaml", "original_destination: redirect")?;
    let bounds = "cluster: onward, connections_max: 20, connections_per_client_max: 20 }";
    let marked = marked.replace("cluster: onward }", bounds);
    let _strait = start_strait(lab, &machine, &marked.replace(", mark: 1337", ""))?;
    machine.rules(lab, from_the_guide("nft", "redirect to")?)?;

    let url = "http://203.0.113.10:80/";
    let status = machine.curl(lab, &["-o", "ignored", "-w", "%{http_code}", url])?;
    ensure!(status == "502" || status == "503", "{status}");
    let came = metric(lab, &machine, "strait_downstream_connections_opened_total")?;
    ensure!(came >= 20.0, "{came} connections came, of which one was curl's");

    let text = std::fs::read_to_string(lab.folder().join("strait.yaml"))?;
    let text = text.replace("original_destination: true", "original_destination: true, mark: 1337");
    // Renamed over, so that no half file is ever seen.
    let next = lab.write("strait.next", text)?;
    std::fs::rename(next, lab.folder().join("strait.yaml"))?;
    let name = name_of("203.0.113.10:80")?;
    wait::until("the mark to be taken up", wait::SOON, || {
        machine.curl(lab, &[url]).is_ok_and(|said| said.starts_with(&name))
    })
}
