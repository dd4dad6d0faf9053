//! s_client comes back with a request along with its hello: it is answered, once; and what is not
//! safe has to come again.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

const ACCEPTED: &str = "Early data was accepted";
const REJECTED: &str = "Early data was rejected";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let options = Options { listener: super::SITE, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    strait.reconfigure("tls: {", "tls: { early_data: true,")?;
    lab.write("get", "GET /seen HTTP/1.1\r\nHost: early\r\n\r\n")?;
    lab.write("delete", "DELETE /seen HTTP/1.1\r\nHost: early\r\n\r\n")?;

    let ask = |options: &[&str]| super::visit(lab, strait.address(), options);
    ask(&["-tls1_3", "-sess_out", "first"])?;
    let printed =
        ask(&["-tls1_3", "-sess_in", "first", "-early_data", "get", "-sess_out", "second"])?;
    ensure!(printed.contains(ACCEPTED) && printed.contains("early-data: 1"), "{printed}");
    ensure!(printed.matches("HTTP/1.1 200 OK").count() == 2, "{printed}");

    let printed = ask(&["-tls1_3", "-sess_in", "first", "-early_data", "get"])?;
    ensure!(printed.contains(REJECTED) && !printed.contains("early-data: 1"), "{printed}");
    ensure!(printed.matches("HTTP/1.1 200 OK").count() == 1, "{printed}");

    let printed = ask(&["-tls1_3", "-sess_in", "second", "-early_data", "delete"])?;
    ensure!(printed.contains(ACCEPTED) && printed.contains("HTTP/1.1 425 Too Early"), "{printed}");
    ensure!(printed.matches("HTTP/1.1 200 OK").count() == 1, "{printed}");

    let metrics = strait.admin("/metrics")?.text();
    let early = "strait_tls_handshakes_total{listener=\"edge\",kind=\"early\"} 2";
    ensure!(metrics.contains(early), "no {early:?} in {metrics}");
    Ok(())
}
