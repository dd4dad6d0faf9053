//! An upstream by another authority, under another name, without TLS, or with too old a version gets
//! no request, and the client a 503; unless `verify` is off.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::openssl::Session;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Openssl, Peer::Nginx, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let known = Authority::new(lab, "ca")?;
    let shop = known.issue(lab, "shop", super::NAME)?;
    let bank = known.issue(lab, "bank", "bank.example")?;
    let stranger = Authority::new(lab, "strangers")?.issue(lab, "stranger", super::NAME)?;
    let (_shop, at_shop) = Session::serve_pages(lab, &shop, &[])?;
    let (_old_shop, at_old_shop) = Session::serve_pages(lab, &shop, &["-tls1_2"])?;
    let (_bank, at_bank) = Session::serve_pages(lab, &bank, &[])?;
    let (_stranger, at_stranger) = Session::serve_pages(lab, &stranger, &[])?;
    let (_http1, at_http1) = Session::serve_pages(lab, &shop, &["-alpn", "http/1.1"])?;
    let plain = Nginx::start(lab, "  server { listen LISTEN; }")?;

    let by_name = "tls: { server_name: shop.example, ca: ca.pem }";
    let rows = [
        ("known", by_name, at_shop, true),
        ("old, but known", by_name, at_old_shop, true),
        (
            "too old",
            r#"tls: { server_name: shop.example, ca: ca.pem, min_version: "1.3" }"#,
            at_old_shop,
            false,
        ),
        ("another's name", by_name, at_bank, false),
        (
            "one of the names",
            "tls: { server_name: shop.example, names: [x.example, bank.example], ca: ca.pem }",
            at_bank,
            true,
        ),
        ("a stranger", by_name, at_stranger, false),
        ("the system's CAs", "tls: { server_name: shop.example }", at_shop, false),
        (
            "no HTTP/2",
            "protocol: http2\ntls: { server_name: shop.example, ca: ca.pem }",
            at_http1,
            false,
        ),
        ("no TLS", by_name, plain.address(), false),
        ("any certificate", "tls: { server_name: shop.example, verify: off }", at_stranger, true),
    ];
    for (what, cluster, upstream, is_used) in rows {
        ask(lab, cluster, upstream, is_used).context(what)?;
    }
    Ok(())
}

fn ask(lab: &Lab, cluster: &str, upstream: SocketAddr, is_used: bool) -> Result<()> {
    let options = Options { cluster, ..Options::default() };
    let strait = Strait::forwarding_to(lab, upstream, options)?;
    let printed = lab.curl(&["-w", "%{http_code}", &strait.url("/")])?;
    if is_used {
        ensure!(printed.contains("s_server -accept") && printed.ends_with("200"), "{printed}");
        return Ok(());
    }
    ensure!(printed.ends_with("503"), "{printed}");
    let cause = r#"strait_exchange_causes_total{cause="upstream_tls_failed"} 1"#;
    wait::until(cause, wait::SOON, || {
        strait.admin("/metrics").is_ok_and(|page| page.text().contains(cause))
    })
}
