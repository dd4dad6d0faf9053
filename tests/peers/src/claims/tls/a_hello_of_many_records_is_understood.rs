//! A hello that s_client has to cut into many records is put together again, also where its name
//! picks the chain, and where the protocol is detected by first bytes.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::pki::Authority;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

const STRICT: &str = "tls: { certificates: [{ chain: site.pem, key: site.key }] }";
const PERMISSIVE: &str =
    "tls: { certificates: [{ chain: site.pem, key: site.key }], mode: permissive }";
const CHAINED: &str = "chains:
  - name: shop
    match: { server_names: [shop.example] }
    tls: { certificates: [{ chain: site.pem, key: site.key }] }
    routes: everything";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let authority = Authority::new(lab, "ca")?;
    authority.issue(lab, "site", super::NAME)?;
    for listener in [STRICT, PERMISSIVE, CHAINED] {
        let options = Options { listener, ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        for (protocols, version) in
            [(10, "-tls1_2"), (10, "-tls1_3"), (150, "-tls1_2"), (150, "-tls1_3")]
        {
            // A hundred bytes each; the last one is known.
            let unknown = (0..protocols).map(|n| format!("{n:0>99},"));
            let protocols = unknown.chain(["http/1.1".to_owned()]).collect::<String>();
            let options = [version, "-max_send_frag", "512", "-alpn", &protocols];
            let shaken = openssl::shake_hands(lab, strait.address(), super::NAME, &options)?;
            let printed = shaken.ok()?;
            ensure!(
                printed.contains("subject=CN = site for shop.example"),
                "{listener}: {printed}"
            );
            ensure!(printed.contains("ALPN protocol: http/1.1"), "{listener}: {printed}");
        }
    }
    Ok(())
}
