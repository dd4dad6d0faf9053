//! HAProxy in front takes HTTP/2 and speaks it to Strait on few connections and loses no request
//! and no byte over them.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Haproxy, Peer::H2load, Peer::Curl], holds };

const LEN: usize = 10 << 20;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let backend = format!(
        "  bind LISTEN proto h2
  default_backend strait
backend strait
  http-reuse always
  server strait {} proto h2",
        strait.address()
    );
    let haproxy = Haproxy::start(lab, &backend)?;
    let url = |path: &str| format!("http://{}{path}", haproxy.address());
    let options = ["-n", "5000", "-c", "4", "-m", "20", "-t", "1", &url("/bytes/2000")];
    let printed = lab.run("h2load", &options)?.ok()?;
    ensure!(printed.contains("5000 2xx") && printed.contains("0 failed"), "{printed}");
    lab.curl(&[HTTP2, "-o", "down", &url(&format!("/chunked/{LEN}"))])?;
    pattern::check(File::open(lab.folder().join("down"))?, LEN)?;
    let path = lab.folder().join("upload");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    let url = url(&format!("/check/{LEN}"));
    let printed = lab.curl(&[HTTP2, "-T", &path.to_string_lossy(), &url])?;
    ensure!(printed == "as sent", "{printed}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened <= 16.0, "HAProxy needed {opened} connections");
    Ok(())
}

const HTTP2: &str = "--http2-prior-knowledge";
