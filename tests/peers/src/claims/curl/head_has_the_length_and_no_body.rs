//! HEAD says what GET would send, sends none of it, and the connection serves the next request.

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

    let url = strait.url("/bytes/5000");
    let head = lab.curl(&["--head", &url])?.to_lowercase();
    ensure!(head.starts_with("http/1.1 200"), "{head}");
    ensure!(head.contains("\r\ncontent-length: 5000\r\n"), "{head}");

    let format = ["-w", "%{num_connects} %{size_download}\n", "-o", "/dev/null"];
    let first = [&["--head"], &format[..], &[&url, "--next"]].concat();
    let both = lab.curl(&[&first[..], &format[..], &[&url]].concat())?;
    let lines: Vec<&str> = both.lines().collect();
    ensure!(lines == ["1 0", "0 5000"], "connections and bytes: {lines:?}");
    Ok(())
}
