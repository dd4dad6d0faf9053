//! nginx as upstream over HTTP/2: large file, ranges, gzip, missing files, uploads, over one
//! connection.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::Curl], holds };

const LEN: usize = 30_000_000;

fn holds(lab: &Lab) -> Result<()> {
    let path = lab.folder().join("large");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    lab.write("page.html", "<p>strait</p>".repeat(1000))?;
    let folder = lab.folder().display();
    let http = format!(
        "  types {{ text/html html; }}
  gzip on;
  gzip_proxied any;
  server {{
    listen LISTEN http2;
    root {folder};
    location /stored {{ dav_methods PUT; }}
    location /seen {{ return 200 \"$server_protocol $host\"; }}
  }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    let options = Options { cluster: "protocol: http2", ..Options::default() };
    let strait = Strait::forwarding_to(lab, nginx.address(), options)?;

    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let seen = lab.curl(&[version, "-H", "host: shop.example", &strait.url("/seen")])?;
        ensure!(seen == "HTTP/2.0 shop.example", "{seen}");
        lab.curl(&[version, "-o", "down", &strait.url("/large")])?;
        pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
        // Compressed on the fly, so without a length.
        let page = lab.curl(&[version, "--compressed", "-i", &strait.url("/page.html")])?;
        ensure!(page.to_lowercase().contains("content-encoding: gzip"), "{page:.300}");
        ensure!(page.matches("<p>strait</p>").count() == 1000, "{page:.300}");
        let page = strait.url("/page.html");
        let part = lab.curl(&[version, "-r", "3-8", "-w", " %{http_code}", &page])?;
        ensure!(part == "strait 206", "{part}");
        let code = ["-o", "/dev/null", "-w", "%{http_code}"];
        let same = lab.curl(&[&[version, "-z", "page.html"][..], &code, &[&page]].concat())?;
        ensure!(same == "304", "{same}");
        let missing = lab.curl(&[&[version][..], &code, &[&strait.url("/none")]].concat())?;
        ensure!(missing == "404", "{missing}");
        let file = path.to_string_lossy();
        let stored = ["-T", &file, &strait.url("/stored")];
        let stored = lab.curl(&[&[version][..], &code, &stored].concat())?;
        ensure!(matches!(stored.as_str(), "201" | "204"), "{stored}");
        pattern::check(File::open(lab.folder().join("stored"))?, LEN)?;
    }
    let connects = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(connects == 1.0, "{connects} connections for requests one after the other");
    Ok(())
}
