//! A key that does not fit its certificate, a file that holds none, and one that is gone are named,
//! and what was served before is served on; once all is right, it serves.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let authority = super::issue_site(lab)?;
    let options = Options { listener: super::SITE, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let former = "CN = site for shop.example";
    ensure!(shown(lab, &strait)? == former, "{}", shown(lab, &strait)?);

    let right = std::fs::read(lab.folder().join("site.key"))?;
    let other = authority.issue(lab, "other", super::NAME)?;
    std::fs::rename(other.key, lab.folder().join("site.key"))?;
    is_named(&strait, "the key does not fit the certificate")?;
    ensure!(shown(lab, &strait)? == former, "{}", shown(lab, &strait)?);
    lab.write("site.key", right)?;
    accepted(&strait)?;

    lab.write("site.pem", "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")?;
    is_named(&strait, "certificate 1 cannot be read")?;
    ensure!(shown(lab, &strait)? == former, "{}", shown(lab, &strait)?);
    std::fs::remove_file(lab.folder().join("site.pem"))?;
    is_named(&strait, "there is no such file")?;
    ensure!(shown(lab, &strait)? == former, "{}", shown(lab, &strait)?);

    let next = authority.issue(lab, "next", super::NAME)?;
    std::fs::rename(next.chain, lab.folder().join("site.pem"))?;
    std::fs::rename(next.key, lab.folder().join("site.key"))?;
    wait::until("the next certificate", wait::SOON, || {
        shown(lab, &strait).is_ok_and(|subject| subject == "CN = next for shop.example")
    })?;
    accepted(&strait)
}

/// Whose certificate a new connection is shown.
fn shown(lab: &Lab, strait: &Strait) -> Result<String> {
    let printed = openssl::shake_hands(lab, strait.address(), super::NAME, &[])?.ok()?;
    let subject = printed.lines().find_map(|line| line.strip_prefix("subject="));
    Ok(subject.context("no certificate")?.to_owned())
}

fn is_named(strait: &Strait, word: &str) -> Result<()> {
    wait::until(&format!("{word} to be named"), wait::SOON, || {
        strait.last_error().is_ok_and(|error| error.to_string().contains(word))
    })
}

fn accepted(strait: &Strait) -> Result<()> {
    wait::until("no mistake to be left", wait::SOON, || {
        strait.last_error().is_ok_and(|error| error.is_null())
    })
}
