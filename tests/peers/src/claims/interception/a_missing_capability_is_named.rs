//! Without CAP_NET_ADMIN, what needs it is refused at the start, by its name.

use anyhow::{Result, ensure};

use super::from_the_guide;
use crate::claim::Claim;
use crate::lab::Lab;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

fn holds(lab: &Lab) -> Result<()> {
    let tproxy = from_the_guide("yaml", "original_destination: tproxy")?;
    let tproxy = tproxy.replace(":15001", ":0");
    let file = lab.write("strait.yaml", &tproxy)?;
    // The started program has no capability in its bounding set, also if root starts it.
    let strait = lab.strait.to_string_lossy();
    let arguments = ["--bounding-set=-all", &strait, "run", "-c", &file.to_string_lossy()];
    let ended = if rustix::process::geteuid().is_root() {
        lab.run("setpriv", &arguments)?
    } else {
        lab.run(&strait, &arguments[2..])?
    };
    ensure!(!ended.status.success(), "{}", ended.output);
    for line in [
        "cluster onward: `mark` needs CAP_NET_ADMIN",
        "listener gateway: cannot listen on 0.0.0.0:0: IP_TRANSPARENT: the process lacks \
         CAP_NET_ADMIN; `original_destination: tproxy` needs it",
        "listener gateway6: cannot listen on [::]:0: IP_TRANSPARENT",
    ] {
        ensure!(ended.output.contains(line), "{line}: {}", ended.output);
    }
    Ok(())
}
