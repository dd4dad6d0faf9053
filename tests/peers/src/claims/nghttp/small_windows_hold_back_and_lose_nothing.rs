//! A client with the smallest windows, and one with the largest, get a large body as it is.

use std::fs::File;

use anyhow::{Context as _, Result};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nghttp, Peer::Nginx], holds };

const LEN: usize = 10 << 20;

fn holds(lab: &Lab) -> Result<()> {
    Pattern::new().write(&mut File::create(lab.folder().join("large"))?, LEN)?;
    let folder = lab.folder().display();
    for (protocol, listen) in [("http1", "LISTEN"), ("http2", "LISTEN http2")] {
        let http = format!("  server {{ listen {listen}; root {folder}; }}");
        let nginx = Nginx::start(lab, &http)?;
        let cluster = format!("protocol: {protocol}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, nginx.address(), options)?;
        for bits in ["10", "16", "30"] {
            let url = strait.url("/large");
            let windows = ["--window-bits", bits, "--connection-window-bits", bits];
            let got = lab.run("nghttp", &[&windows[..], &[&url]].concat())?;
            pattern::check(File::open(got.file)?, LEN).with_context(|| {
                format!("windows of {bits} bits, upstream {protocol}: {:.300}", got.output)
            })?;
        }
    }
    Ok(())
}
