//! curl asks for a host of a chain that wants client certificates over the connection of another
//! host: it gets 421, in either version of HTTP, and its answer over a connection of that host.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

const LISTENER: &str = "tls: { certificates: [{ chain: any.pem, key: any.key }] }
chains:
  - name: members
    match: { server_names: [members.shop.example] }
    tls:
      certificates: [{ chain: any.pem, key: any.key }]
      client: { ca: clients.pem }
    routes: everything";

/// A host of the default chain, and the one of the chain that wants client certificates.
const PUBLIC: &str = "www.shop.example";
const MEMBERS: &str = "members.shop.example";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    Authority::new(lab, "ca")?.issue(lab, "any", "*.shop.example")?;
    Authority::new(lab, "clients")?.issue(lab, "client", "client.example")?;
    let options = Options { listener: LISTENER, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;

    let stranger = ["--cacert", "ca.pem"];
    let member = [&stranger[..], &["--cert", "client.pem", "--key", "client.key"]].concat();
    let mut misdirected = 0;
    for http in ["--http1.1", "--http2"] {
        for (options, name, host, expected) in [
            (&stranger[..], PUBLIC, PUBLIC, Some(200)),
            (&stranger, PUBLIC, MEMBERS, Some(421)),
            // The certificate was not asked for on this connection.
            (&member, PUBLIC, MEMBERS, Some(421)),
            (&member, MEMBERS, MEMBERS, Some(200)),
            (&member, MEMBERS, PUBLIC, Some(421)),
            (&stranger, MEMBERS, MEMBERS, None),
        ] {
            let field = format!("Host: {host}");
            let asked = ["--write-out", "status %{http_code}", "-H", &field, http];
            let options = [options, &asked].concat();
            let finished = super::run_curl(lab, strait.address(), &options, name, "/seen")?;
            let row = format!("{http}, {host} over {name}, {}", options.len());
            ensure!(finished.status.success() == expected.is_some(), "{row}: {}", finished.output);
            let Some(expected) = expected else { continue };
            ensure!(
                finished.output.ends_with(&format!("status {expected}")),
                "{row}: {}",
                finished.output
            );
            let is_seen = finished.output.starts_with("GET /seen");
            ensure!(is_seen == (expected == 200), "{row}: {}", finished.output);
            misdirected += u32::from(expected == 421);
        }
    }
    let page = strait.admin("/metrics")?.text();
    let counted = format!("cause=\"request_misdirected\"}} {misdirected}\n");
    ensure!(page.contains(&counted), "no {counted:?} in {page}");
    Ok(())
}
