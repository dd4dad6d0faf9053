//! A listener may be a unix socket, and its upstream may stay on TCP.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let socket = lab.folder().join("edge.socket");
    let beside = format!(
        "- name: beside
  address: \"unix:{}\"
  routes: everything",
        socket.display()
    );
    let options = Options { listeners: &beside, ..Options::default() };
    let _strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let seen = lab.curl(&["--unix-socket", &socket.to_string_lossy(), "http://shop.example/a"])?;
    ensure!(seen.starts_with("GET /a HTTP/1.1\r\n"), "{seen}");
    Ok(())
}
