//! TLS 1.0 and 1.1 get a protocol_version alert, as do TLS 1.2 where 1.3 is the least, and 1.3
//! where 1.2 is the most; what has no AEAD or no forward secrecy finds no cipher suite.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

/// With which s_client speaks what Debian would not.
const ANYTHING: [&str; 2] = ["-cipher", "DEFAULT@SECLEVEL=0"];

const VERSION: &str = "alert protocol version";
const HANDSHAKE: &str = "alert handshake failure";

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    let refused = |strait: &Strait, options: &[&str], alert: &str| {
        let finished = openssl::shake_hands(lab, strait.address(), super::NAME, options)?;
        ensure!(!finished.status.success(), "{options:?}: {}", finished.output);
        ensure!(finished.output.contains(alert), "{options:?}: {}", finished.output);
        Ok(())
    };
    for version in ["-tls1", "-tls1_1"] {
        refused(&strait, &[&[version], &ANYTHING[..]].concat(), VERSION)?;
    }
    for suite in ["ECDHE-ECDSA-AES128-SHA256", "AES128-GCM-SHA256", "DHE-RSA-AES128-GCM-SHA256"] {
        refused(&strait, &["-tls1_2", "-cipher", suite], HANDSHAKE)?;
    }
    openssl::shake_hands(lab, strait.address(), super::NAME, &["-tls1_2"])?.ok()?;

    let (least, most) = (r#"min_version: "1.3""#, r#"max_version: "1.2""#);
    for (bound, refused_version, taken) in
        [(least, "-tls1_2", "-tls1_3"), (most, "-tls1_3", "-tls1_2")]
    {
        let listener = super::SITE.replace("tls: {", &format!("tls: {{ {bound},"));
        let options = Options { listener: &listener, ..Options::default() };
        let strait = Strait::forwarding_to(lab, origin.address(), options)?;
        refused(&strait, &[refused_version], VERSION)?;
        openssl::shake_hands(lab, strait.address(), super::NAME, &[taken])?.ok()?;
    }
    Ok(())
}
