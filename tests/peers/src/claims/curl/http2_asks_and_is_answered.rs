//! What curl asks over HTTP/2 reaches an upstream of HTTP/1.1 as it would ask that, and the answer
//! to HEAD has a length and no body.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    let fields = ["-H", "Host: shop.example", "-H", "X-Mixed: Case", "-H", "te: trailers"];
    let url = strait.url("/a?b=c%20d");
    let seen = lab.curl(&[&[super::HTTP2, "-X", "DELETE"][..], &fields, &[&url]].concat())?;
    let seen = seen.to_lowercase();
    ensure!(seen.starts_with("delete /a?b=c%20d http/1.1\r\n"), "{seen}");
    for field in ["host: shop.example", "x-mixed: case", "x-forwarded-proto: http"] {
        ensure!(seen.contains(&format!("\r\n{field}\r\n")), "no {field} in {seen}");
    }
    ensure!(seen.matches("\r\nhost:").count() == 1, "{seen}");
    ensure!(!seen.contains("\r\n:") && !seen.contains("transfer-encoding"), "{seen}");

    let head = lab.curl(&[super::HTTP2, "-I", &strait.url("/bytes/123456")])?.to_lowercase();
    ensure!(head.starts_with("http/2 200"), "{head}");
    ensure!(head.contains("content-length: 123456\r\n"), "{head}");
    ensure!(!head.contains("connection:"), "{head}");
    let missing =
        lab.curl(&[super::HTTP2, "-H", "expect: 100-continue", "-d", "x", &strait.url("/echo")])?;
    ensure!(missing == "x", "{missing}");
    Ok(())
}
