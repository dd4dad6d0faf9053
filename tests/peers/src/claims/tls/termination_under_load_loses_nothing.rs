//! SIGTERM while h2load runs over TLS: what was accepted is answered, in either version of HTTP.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::H2load], holds };

fn holds(lab: &Lab) -> Result<()> {
    super::issue_site(lab)?;
    for version in ["--h1", "--npn-list=h2"] {
        let origin = Origin::start()?;
        let options = Options { listener: super::SITE, ..Options::default() };
        let mut strait = Strait::forwarding_to(lab, origin.address(), options)?;
        let url = format!("https://{}/bytes/1000", strait.address());
        let options = [version, "-D", "20", "-c", "16", "-t", "1", &url];
        let h2load = Process::start(lab.folder(), "h2load", &options)?;
        wait::until("load", wait::SOON, || {
            strait.metric("proxy_exchanges_finished_total").is_ok_and(|count| count > 1000.0)
        })?;
        strait.terminate()?;
        strait.expect_clean_end(wait::SOON)?;
        drop(h2load);
        // Every request that Strait saw has a line, none with a cause of its own making.
        let lines = strait.logged()?;
        ensure!(lines.len() > 1000, "{} lines", lines.len());
        for line in &lines {
            let status = line.get("status").and_then(serde_json::Value::as_u64);
            ensure!(status == Some(200) && line.get("cause").is_none(), "{version}: {line}");
        }
    }
    Ok(())
}
