//! Ten new configurations while wrk runs: not one error, and the last one serves.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let options = Options {
        rules: "- match: { path: /version }
  respond: { status: 200, body: version-0 }",
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let url = strait.url("/bytes/1000");
    let mut wrk = Process::start(lab.folder(), "wrk", &["-t1", "-c16", "-d4s", &url])?;
    for n in 0..10 {
        strait.reconfigure(&format!("version-{n}"), &format!("version-{}", n + 1))?;
    }
    ensure!(wrk.is_running(), "wrk ended before the last configuration");
    ensure!(wrk.wait(wait::SOON)?.success(), "{}", wrk.output());
    let printed = wrk.output();
    ensure!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    let version = lab.curl(&[&strait.url("/version")])?;
    ensure!(version == "version-10", "{version}");
    // Sixteen of wrk, the one with which it looks first, and curl's.
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened <= 18.0, "{opened} connections: a change closed some");
    Ok(())
}
