//! s_client, which knows the root alone, is shown what leads there, and finds all of it in order
//! with each cipher suite and group that both have.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl;
use crate::origin::Origin;
use crate::peer::Peer;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Openssl], holds };

const WAYS: [&[&str]; 12] = [
    &["-tls1_3"],
    &["-tls1_2"],
    &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
    &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"],
    &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
    &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
    &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
    &["-tls1_3", "-groups", "X25519"],
    &["-tls1_3", "-groups", "P-256"],
    &["-tls1_2", "-groups", "P-384:P-256"],
    // Its guess is not ours, so that it has to say hello again.
    &["-tls1_3", "-groups", "X448:P-521:P-384"],
];

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = super::secured(lab, origin.address())?;
    for way in WAYS {
        let verify = ["-CAfile", "ca.pem", "-verify_hostname", super::NAME, "-verify_return_error"];
        let options = [&verify[..], &["-showcerts"], way].concat();
        let printed = openssl::shake_hands(lab, strait.address(), super::NAME, &options)?.ok()?;
        ensure!(printed.contains("Verify return code: 0 (ok)"), "{way:?}: {printed}");
        ensure!(printed.contains(" 0 s:CN = site for shop.example\n"), "{way:?}: {printed}");
        ensure!(printed.contains(" 1 s:CN = ca intermediate\n"), "{way:?}: {printed}");
        ensure!(printed.matches("BEGIN CERTIFICATE").count() >= 2, "{way:?}: {printed}");
        if let [_, "-cipher" | "-ciphersuites", suite] = way {
            ensure!(printed.contains(&format!("Cipher is {suite}")), "{way:?}: {printed}");
        }
    }
    Ok(())
}
