//! New files are shown to new connections while wrk runs, whether renamed over the old ones or
//! swapped by a link, as Kubernetes does; those that stand go on, and not a request is lost.

use std::os::unix::fs::symlink;

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl::{self, Session};
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::Openssl], holds };

const LINKED: &str = "chains:
  - name: linked
    match: { server_names: [linked.example] }
    tls: { certificates: [{ chain: live/tls.pem, key: live/tls.key }] }
    routes: everything";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let authority = super::issue_site(lab)?;
    link(lab, &authority, 0)?;
    let listener = format!("{}\n{LINKED}", super::SITE);
    let options = Options { listener: &listener, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    shows(lab, &strait, super::NAME, "CN = site for shop.example")?;
    shows(lab, &strait, "linked.example", "CN = linked-0 for linked.example")?;

    let mut kept = Session::connect(lab, strait.address(), super::NAME, &[])?;
    let url = format!("https://{}/bytes/1000", strait.address());
    let mut wrk = Process::start(lab.folder(), "wrk", &["-t1", "-c16", "-d8s", &url])?;
    for n in 1..=5 {
        let next = format!("next-{n}");
        let pair = authority.issue(lab, &next, super::NAME)?;
        std::fs::rename(&pair.key, lab.folder().join("site.key"))?;
        std::fs::rename(&pair.chain, lab.folder().join("site.pem"))?;
        link(lab, &authority, n)?;
        shows(lab, &strait, super::NAME, &format!("CN = {next} for shop.example"))?;
        let linked = format!("CN = linked-{n} for linked.example");
        shows(lab, &strait, "linked.example", &linked)?;
        kept.types(format!("GET /kept/{n} HTTP/1.1\r\nhost: shop.example\r\n\r\n"))?;
        kept.prints(&format!("GET /kept/{n} HTTP/1.1"))?;
    }
    ensure!(wrk.is_running(), "wrk ended before the last certificate");
    ensure!(wrk.wait(wait::SOON)?.success(), "{}", wrk.output());
    let printed = wrk.output();
    ensure!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    kept.expect_running()
}

/// Swaps `live` for a link to another folder with a new pair.
fn link(lab: &Lab, authority: &Authority, n: u32) -> Result<()> {
    let pair = authority.issue(lab, &format!("linked-{n}"), "linked.example")?;
    let version = lab.folder().join(format!("version-{n}"));
    std::fs::create_dir(&version)?;
    std::fs::rename(pair.chain, version.join("tls.pem"))?;
    std::fs::rename(pair.key, version.join("tls.key"))?;
    symlink(&version, lab.folder().join("next"))?;
    Ok(std::fs::rename(lab.folder().join("next"), lab.folder().join("live"))?)
}

/// Waits until new connections are shown this certificate.
fn shows(lab: &Lab, strait: &Strait, name: &str, subject: &str) -> Result<()> {
    let mut printed = String::new();
    wait::until(&format!("{subject} to be shown"), wait::SOON, || {
        let shaken = openssl::shake_hands(lab, strait.address(), name, &["-CAfile", "ca.pem"]);
        printed = shaken.map(|finished| finished.output).unwrap_or_default();
        printed.contains(&format!("subject={subject}\n"))
            && printed.contains("Verify return code: 0 (ok)")
    })
    .with_context(|| printed)
}
