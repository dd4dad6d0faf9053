//! logrotate, with the file that the package installs, moves the access log, and each request has its
//! line in the former file or in the new one.

use anyhow::{Result, ensure};
use rustix::process::geteuid;

use super::packaging;
use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Logrotate], holds };

/// What asks systemd for the signal, which sends it to no process here.
const SIGNAL: &str =
    "systemctl kill --signal=USR1 --kill-whom=main strait.service 2>/dev/null || true";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;
    let rules = std::fs::read_to_string(packaging("logrotate"))?;
    ensure!(rules.contains(SIGNAL) && rules.contains("/var/log/strait/*.log"), "{rules}");
    let log = lab.folder().join("access.log");
    let owner = format!("{} {}", geteuid().as_raw(), rustix::process::getegid().as_raw());
    let rules = rules
        .replace(SIGNAL, &format!("kill -USR1 {}", strait.id()))
        .replace("/var/log/strait/*.log", &log.to_string_lossy())
        .replace("strait adm", &owner);
    // Names of users and groups would be looked up, and a folder that others may write to is refused.
    let rules = rules.replace(&format!("su {owner}"), "");
    let rules = lab.write("rules", rules)?;

    client::get(strait.address(), "/before")?;
    wait::until("a line", wait::SOON, || strait.logged().is_ok_and(|lines| lines.len() == 1))?;
    let state = lab.folder().join("state");
    let arguments = ["--force", "--state", &state.to_string_lossy(), &rules.to_string_lossy()];
    lab.run("logrotate", &arguments)?.ok()?;
    let former = std::fs::read_to_string(lab.folder().join("access.log.1"))?;
    ensure!(former.contains("/before"), "{former}");
    let mut sent = 0;
    wait::until("a line in the new file", wait::SOON, || {
        sent += 1;
        client::get(strait.address(), "/after").is_ok()
            && strait.logged().is_ok_and(|lines| !lines.is_empty())
    })?;
    wait::until("all lines", wait::SOON, || {
        let former = std::fs::read_to_string(lab.folder().join("access.log.1"));
        let former = former.map_or(0, |text| text.matches("/after").count());
        strait.logged().is_ok_and(|lines| lines.len() + former == sent)
    })
}
