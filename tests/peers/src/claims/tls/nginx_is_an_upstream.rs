//! nginx as upstream over TLS, known by its authority and asking for a certificate: a large file both
//! ways in either version, sessions are resumed, connections kept.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::Curl], holds };

const LEN: usize = 20_000_000;

fn holds(lab: &Lab) -> Result<()> {
    let path = lab.folder().join("large");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    super::issue_site(lab)?;
    Authority::new(lab, "clients")?.issue(lab, "strait", "strait.example")?;
    let folder = lab.folder().display();
    let seen =
        "$scheme $ssl_protocol $ssl_server_name $ssl_client_s_dn reused:$ssl_session_reused.";
    let http = format!(
        "  server {{
    listen LISTEN ssl http2;
    ssl_certificate {folder}/site.pem;
    ssl_certificate_key {folder}/site.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:sessions:1m;
    ssl_client_certificate {folder}/clients.pem;
    ssl_verify_client on;
    ssl_verify_depth 2;
    root {folder};
    location /stored {{ dav_methods PUT; }}
    location /seen {{ return 200 '{seen}'; }}
    location /last {{ keepalive_timeout 0; return 200 '{seen}'; }}
  }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    for (protocol, version) in
        [("http1", "1.2"), ("http1", "1.3"), ("http2", "1.2"), ("http2", "1.3")]
    {
        let cluster = super::showing_a_certificate(protocol, version);
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
        let printed = lab.curl(&[&strait.url("/seen")])?;
        let secure = format!("https TLSv{version} shop.example CN=strait for strait.example");
        ensure!(printed.starts_with(&secure), "{printed}");
        ensure!(printed.ends_with("reused:.."), "{printed}");
        lab.curl(&["-o", "down", &strait.url("/large")])?;
        pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
        lab.curl(&["-T", &path.to_string_lossy(), &strait.url("/stored")])?;
        pattern::check(File::open(lab.folder().join("stored"))?, LEN)?;
        let connects = strait.metric("strait_upstream_connections_opened_total")?;
        ensure!(connects == 1.0, "{connects} connections for requests one after the other");
        // The next connection comes back with the ticket of the first. nginx keeps one of HTTP/2.
        if protocol == "http1" {
            lab.curl(&[&strait.url("/last")])?;
            let printed = lab.curl(&[&strait.url("/seen")])?;
            ensure!(printed.starts_with(&secure) && printed.ends_with("reused:r."), "{printed}");
        }
    }
    Ok(())
}
