//! Listeners and the admin interface take the sockets that systemd opened, by TCP and by path, and the
//! first connection, which came before the process, is answered.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::local;
use crate::{ports, wait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::SystemdSocketActivate, Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let (edge, admin) = (local(ports::free()?), local(ports::free()?));
    let path = lab.folder().join("edge.sock");
    let path = path.to_string_lossy();
    let config = format!(
        "admin: {{ address: \"{admin}\" }}
workers: 2
listeners:
  - {{ name: edge, address: \"{edge}\", routes: all }}
  - {{ name: local, address: \"unix:{path}\", routes: all }}
routes:
  - {{ name: all, rules: [{{ match: {{ prefix: / }}, respond: {{ status: 200, body: here }} }}] }}
"
    );
    let file = lab.write("strait.yaml", config)?;
    let [edge_text, admin_text] = [edge, admin].map(|address| address.to_string());
    let (strait, file) = (lab.strait.to_string_lossy(), file.to_string_lossy());
    let sockets = ["-l", &*edge_text, "-l", &admin_text, "-l", &path, "--fdname=edge:admin:local"];
    let arguments = [&sockets[..], &[&*strait, "run", "-c", &*file]].concat();
    let mut process = Process::start(lab.folder(), "systemd-socket-activate", &arguments)?;
    // It starts the program with the first connection, which waits in the queue meanwhile.
    process.ready(|| Path::new(&*path).exists())?;
    ensure!(client::get(edge, "/")?.text() == "here");
    wait::until("the admin interface", wait::SOON, || {
        client::get(admin, "/ready").is_ok_and(|ready| ready.status == 200)
    })?;
    let seen = lab.curl(&["--unix-socket", &path, "http://local/"])?;
    ensure!(seen == "here", "{seen}");
    ensure!(process.is_running(), "{}", process.output());
    Ok(())
}
