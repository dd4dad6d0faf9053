//! A client of TLS 1.2 that wants to shake hands once more is refused and closed; others go on.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl::Session;
use crate::origin::Origin;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

const GET: &str = "GET /seen HTTP/1.1\r\nhost: shop.example\r\n\r\n";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    let mut other = Session::connect(lab, strait.address(), super::NAME, &["-tls1_2"])?;
    other.types(GET)?;
    other.prints("GET /seen HTTP/1.1")?;

    let options = ["-tls1_2", "-legacy_renegotiation", "-msg"];
    let mut session = Session::connect(lab, strait.address(), super::NAME, &options)?;
    session.types(GET)?;
    session.prints("GET /seen HTTP/1.1")?;
    session.commands("R", "RENEGOTIATING")?;
    session.ends()?;
    let printed = session.printed();
    let (_, after) = printed.split_once("RENEGOTIATING").unwrap_or_default();
    ensure!(after.contains("ClientHello") && !after.contains("ServerHello"), "{printed}");
    ensure!(after.contains("<<< TLS 1.2, Alert"), "{printed}");

    other.types(GET.replace("/seen", "/still"))?;
    other.prints("GET /still HTTP/1.1")
}
