//! Tens of thousands of requests pass TLS on either side of Strait, in each pair of versions of HTTP,
//! while nginx ends its connections again and again: not one is lost, and the counts agree.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2load, Peer::Nginx], holds };

const REQUESTS: u32 = 10_000;

fn holds(lab: &Lab) -> Result<()> {
    super::issue_site(lab)?;
    let folder = lab.folder().display();
    let http = format!(
        "  server {{
    listen LISTEN ssl http2;
    ssl_certificate {folder}/site.pem;
    ssl_certificate_key {folder}/site.key;
    keepalive_requests 50;
    location / {{ return 200 ok; }}
  }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    for protocol in ["http1", "http2"] {
        for version in ["--h1", "--npn-list=h2"] {
            let cluster =
                format!("protocol: {protocol}\ntls: {{ server_name: shop.example, ca: ca.pem }}");
            let options =
                Options { listener: super::SITE, cluster: &cluster, ..Options::default() };
            let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
            let (count, url) = (REQUESTS.to_string(), format!("https://{}/", strait.address()));
            let options = [version, "-n", &count, "-c", "8", "-m", "4", "-t", "1", &url];
            let printed = lab.run("h2load", &options)?.ok()?;
            let succeeded = format!("{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout");
            ensure!(printed.contains(&succeeded), "{version} to {protocol}: {printed}");
            ensure!(
                printed.contains(&format!("{REQUESTS} 2xx")),
                "{version} to {protocol}: {printed}"
            );
            wait::until("all to be counted", wait::SOON, || {
                let finished = strait.metric("strait_exchanges_finished_total");
                finished.is_ok_and(|count| count == f64::from(REQUESTS))
            })?;
            let faults = strait.metric("strait_exchange_causes_total")?;
            ensure!(faults == 0.0, "{version} to {protocol}: {faults} ended with a cause");
            let connects = strait.metric("strait_upstream_connections_opened_total")?;
            ensure!(connects > 100.0, "nginx ended few connections: {connects} were needed");
        }
    }
    Ok(())
}
