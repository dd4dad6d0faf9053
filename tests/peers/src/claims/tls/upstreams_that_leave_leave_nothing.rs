//! Every other connection to nginx is cut off anywhere in its handshake or its response: each client is
//! answered, by nginx or with a 5xx, and neither connections nor memory are left behind.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::python::CutOff;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2load, Peer::Nginx, Peer::Python], holds };

fn holds(lab: &Lab) -> Result<()> {
    super::issue_site(lab)?;
    let folder = lab.folder().display();
    let http = format!(
        "  server {{
    listen LISTEN ssl;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {folder}/site.pem;
    ssl_certificate_key {folder}/site.key;
    keepalive_timeout 0;
    location / {{ return 200 ok; }}
  }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    for version in ["1.2", "1.3"] {
        let way = CutOff::start(lab, nginx.address())?;
        let cluster =
            format!("tls: {{ server_name: shop.example, ca: ca.pem, max_version: \"{version}\" }}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, way.address(), options)?;
        // The first ones bring what stays: caches, buffers, pages of the program.
        load(lab, &strait, 300)?;
        let most = strait.resident_bytes()? + super::LEFT_BYTES_MAX;
        load(lab, &strait, 2000)?;
        let (retried, failed) = (
            strait.metric("strait_upstream_retries_total")?,
            strait.metric("strait_exchange_causes_total")?,
        );
        ensure!(retried > 0.0 && failed > 0.0, "{retried} tried again, {failed} failed");
        let now = || strait.resident_bytes().unwrap_or(u64::MAX);
        wait::until("memory to be given back", wait::SOON, || now() <= most)
            .with_context(|| format!("{} bytes, {most} at most", now()))?;
    }
    Ok(())
}

fn load(lab: &Lab, strait: &Strait, count: u32) -> Result<()> {
    let (number, url) = (count.to_string(), strait.url("/"));
    let options = ["--h1", "-n", &number, "-c", "10", "-t", "1", &url];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("0 errored, 0 timeout"), "{printed}");
    let (_, statuses) = printed.split_once("status codes: ").context("no status codes")?;
    let mut numbers = statuses.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
    let numbers = [(); 4].map(|()| numbers.next().unwrap_or_default());
    let [served, _, _, failed] = numbers;
    ensure!(served > count / 2 && served + failed == count, "{printed}");
    let connections =
        ["strait_downstream_connections_active", "strait_upstream_connections_active"];
    super::nothing_is_left(strait, &connections)
}
