//! nginx as upstream: static file, large file, ranges, gzip, missing files, and its connections are kept.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::Curl], holds };

const LEN: usize = 30_000_000;

fn holds(lab: &Lab) -> Result<()> {
    let mut file = BufWriter::new(File::create(lab.folder().join("large"))?);
    Pattern::new().write(&mut file, LEN)?;
    file.flush()?;
    lab.write("page.html", "<p>strait</p>".repeat(1000))?;
    let folder = lab.folder().display();
    let http = format!(
        "  types {{ text/html html; }}
  gzip on;
  gzip_proxied any;
  server {{ listen LISTEN; root {folder}; }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    let strait = Strait::in_front_of(lab, nginx.address())?;

    lab.curl(&["-o", "down", &strait.url("/large")])?;
    pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
    // Compressed on the fly, so without a length: chunked.
    let page = lab.curl(&["--compressed", "-i", &strait.url("/page.html")])?;
    ensure!(page.to_lowercase().contains("content-encoding: gzip"), "{page:.300}");
    ensure!(page.matches("<p>strait</p>").count() == 1000, "{page:.300}");
    let part = lab.curl(&["-r", "3-8", "-w", " %{http_code}", &strait.url("/page.html")])?;
    ensure!(part == "strait 206", "{part}");
    let missing = lab.curl(&["-o", "/dev/null", "-w", "%{http_code}", &strait.url("/none")])?;
    ensure!(missing == "404", "{missing}");
    let connects = strait.metric("strait_upstream_connections_opened_total")?;
    ensure!(connects == 1.0, "{connects} connections for requests one after the other");
    Ok(())
}
