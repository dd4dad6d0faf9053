//! curl speaks HTTP and HTTPS to one listener: what Strait reads it answers, what it cannot read
//! reaches nginx as it came, both ways and to the last byte.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nginx, Peer::Curl, Peer::Openssl], holds };

const LEN: usize = 30_000_000;

fn holds(lab: &Lab) -> Result<()> {
    let mut file = BufWriter::new(File::create(lab.folder().join("large"))?);
    Pattern::new().write(&mut file, LEN)?;
    file.flush()?;
    let folder = lab.folder().display();
    let (key, chain) = (format!("{folder}/key.pem"), format!("{folder}/chain.pem"));
    let certificate = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
        "-keyout",
        &key,
        "-out",
        &chain,
    ];
    lab.run("openssl", &certificate)?.ok()?;
    let http = format!(
        "  server {{
    listen LISTEN ssl;
    ssl_certificate {chain};
    ssl_certificate_key {key};
    root {folder};
    location /seen {{ return 200 \"$scheme $ssl_protocol\"; }}
  }}"
    );
    let nginx = Nginx::start(lab, &http)?;
    let options = Options {
        listener: "cluster: upstream",
        rules: "- match: { path: /plain }
  respond: { status: 200, body: read here }",
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
    let secure = |path: &str| format!("https://{}{path}", strait.address());

    let plain = lab.curl(&[&strait.url("/plain")])?;
    ensure!(plain == "read here", "{plain}");
    let seen = lab.curl(&["-k", &secure("/seen")])?;
    ensure!(seen.starts_with("https TLSv1."), "{seen}");
    lab.curl(&["-k", "-o", "down", &secure("/large")])?;
    pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
    let relayed = strait.metric("strait_tunnels_started_total")?;
    ensure!(relayed == 2.0, "{relayed} connections were relayed");
    Ok(())
}
