//! HAProxy as upstream over TLS chooses the version of HTTP that Strait offers (ALPN), and one
//! connection of HTTP/2 serves all.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::Curl, Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    super::issue_site(lab)?;
    let file = |end| std::fs::read_to_string(lab.folder().join(format!("site.{end}")));
    lab.write("both.pem", file("pem")? + &file("key")?)?;
    let frontend = format!(
        "  bind LISTEN ssl crt {}/both.pem alpn h2,http/1.1
  http-request return status 200 content-type text/plain lf-string \
         \"%[path] on %[req.ver] by %[ssl_fc_alpn] for %[ssl_fc_sni] in %[ssl_fc_protocol]\"",
        lab.folder().display()
    );
    let haproxy = Haproxy::start(lab, &frontend)?;
    for (protocol, seen) in [("http1", "1.1 by http/1.1"), ("http2", "2.0 by h2")] {
        let cluster =
            format!("protocol: {protocol}\ntls: {{ server_name: {}, ca: ca.pem }}", super::NAME);
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, haproxy.address(), options)?;
        let printed = lab.curl(&[&strait.url("/seen")])?;
        ensure!(printed == format!("/seen on {seen} for shop.example in TLSv1.3"), "{printed}");
        let options = ["-n", "5000", "-c", "4", "-m", "20", "-t", "1", &strait.url("/plain")];
        let printed = lab.run("h2load", &options)?.ok()?;
        ensure!(printed.contains("5000 2xx") && printed.contains("0 failed"), "{printed}");
        let connects = strait.metric("strait_upstream_connections_opened_total")?;
        let most = if protocol == "http2" { 1.0 } else { 80.0 };
        ensure!(connects <= most, "{protocol}: {connects} connections");
    }
    Ok(())
}
