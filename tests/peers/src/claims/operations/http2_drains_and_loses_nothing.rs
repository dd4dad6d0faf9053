//! New configurations and then SIGTERM while h2load runs over HTTP/2: what was accepted is
//! answered, and no connection ends for a configuration.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::H2load, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    let http = "  server { listen LISTEN http2; location / { return 200 ok; } }";
    let nginx = Nginx::start(lab, http)?;
    let options = Options {
        cluster: "protocol: http2",
        rules: "- match: { path: /version }
  respond: { status: 200, body: version-0 }",
        ..Options::default()
    };
    let mut strait = Strait::forwarding_to(lab, nginx.address(), options)?;
    let url = strait.url("/");
    let options = ["-D", "20", "-c", "8", "-m", "20", "-t", "1", &url];
    let mut h2load = Process::start(lab.folder(), "h2load", &options)?;
    wait::until("load", wait::SOON, || {
        strait.metric("strait_exchanges_finished_total").is_ok_and(|count| count > 1000.0)
    })?;
    for n in 0..5 {
        strait.reconfigure(&format!("version-{n}"), &format!("version-{}", n + 1))?;
    }
    ensure!(h2load.is_running(), "{}", h2load.output());
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    ensure!(opened == 8.0, "{opened} connections: a change closed some");
    strait.terminate()?;
    strait.expect_clean_end(wait::SOON)?;
    drop(h2load);
    super::all_were_served(&strait)
}
