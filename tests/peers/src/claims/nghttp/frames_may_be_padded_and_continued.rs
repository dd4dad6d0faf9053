//! A request in padded frames, with a head that needs CONTINUATION and a trailer,
//! arrives as it was sent.

use std::fs::File;

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::go::GoHttp2;
use crate::lab::Lab;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Nghttp, Peer::GoServer], holds };

const LEN: usize = 10 << 20;

fn holds(lab: &Lab) -> Result<()> {
    let path = lab.folder().join("large");
    Pattern::new().write(&mut File::create(&path)?, LEN)?;
    let file = path.to_string_lossy();
    for protocol in ["http1", "http2"] {
        let server = GoHttp2::start(lab)?;
        let cluster = format!("protocol: {protocol}");
        let options = Options { cluster: &cluster, ..Options::default() };
        let strait = Strait::forwarding_to(lab, server.address(), options)?;
        let url = strait.url("/echo");
        let odd = ["--continuation", "--padding=255", "--header-table-size=0"];
        let request = ["--data", &file, "--trailer=sent: at the end", &url];
        let got = lab.run("nghttp", &[&odd[..], &request[..]].concat())?;
        pattern::check(File::open(got.file)?, LEN)
            .with_context(|| format!("upstream {protocol}: {:.300}", got.output))?;
        let verbose = ["--verbose", "--null-out"];
        let printed = lab.run("nghttp", &[&odd[..], &verbose, &request[..]].concat())?.ok()?;
        ensure!(printed.contains("unannounced: too"), "no trailer from upstream {protocol}");
        // nghttp sends the length, which over HTTP/1.1 leaves no place for trailers.
        let has_passed = printed.contains("seen: at the end");
        ensure!(has_passed || protocol == "http1", "no trailer for upstream {protocol}");
    }
    Ok(())
}
