//! One listener has certificates for several names, with two kinds of keys for one of them; a client
//! gets the one for the name that it asks for, with a key that it can check. A chain of its own goes
//! before them.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Openssl, Peer::Curl], holds };

const LISTENER: &str = "tls:
  certificates:
    - { chain: shop.pem, key: shop.key }
    - { chain: shop-rsa.pem, key: shop-rsa.key }
    - { chain: any.pem, key: any.key }
    - { chain: mail.pem, key: mail.key }
chains:
  - name: apart
    match: { server_names: [apart.example] }
    tls: { certificates: [{ chain: apart.pem, key: apart.key }] }
    routes: everything";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let authority = Authority::new(lab, "ca")?;
    authority.issue(lab, "shop", "shop.example")?;
    authority.issue_for(lab, "shop-rsa", "shop.example", &rcgen::PKCS_RSA_SHA256)?;
    authority.issue(lab, "any", "*.example")?;
    authority.issue(lab, "mail", "mail.example")?;
    authority.issue(lab, "apart", "apart.example")?;
    let options = Options { listener: LISTENER, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;

    let rows = [
        ("shop.example", "ECDSA+SHA256", "CN = shop for shop.example"),
        ("shop.example", "RSA-PSS+SHA256:RSA+SHA256", "CN = shop-rsa for shop.example"),
        ("mail.example", "ECDSA+SHA256", "CN = mail for mail.example"),
        ("other.example", "ECDSA+SHA256", "CN = any for *.example"),
        ("apart.example", "ECDSA+SHA256", "CN = apart for apart.example"),
        ("elsewhere.test", "ECDSA+SHA256", "CN = shop for shop.example"),
        ("elsewhere.test", "RSA-PSS+SHA256:RSA+SHA256", "CN = shop-rsa for shop.example"),
    ];
    for (_, version) in super::VERSIONS {
        for (name, keys, subject) in rows {
            let options = [version, "-sigalgs", keys];
            let printed = openssl::shake_hands(lab, strait.address(), name, &options)?.ok()?;
            ensure!(
                printed.contains(&format!("subject={subject}\n")),
                "{version} {name}: {printed}"
            );
        }
    }
    // curl takes no `*` for all of a top-level domain.
    for name in ["shop.example", "mail.example", "apart.example"] {
        let options = ["--cacert", "ca.pem"];
        let printed = super::run_curl(lab, strait.address(), &options, name, "/seen")?.ok()?;
        ensure!(printed.starts_with("GET /seen"), "{name}: {printed}");
    }
    Ok(())
}
