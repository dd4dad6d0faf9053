//! A delivered secret is valid in itself: a key that is not the certificate's, or authorities that cannot be read, are refused
//! when they arrive, and the version before stays. What is made of its parts to see that is kept with it, so that a thousand
//! clusters that trust the same authorities have them in memory once.

use std::sync::Arc;

use super::{Made, Secret, SecretPart};
use crate::findings::Findings;
use crate::outside::Outside;
use crate::resource::tls::file::CertificateFiles;
use crate::sections::files::{Files, SECRET_PREFIX};
use crate::snapshot::Signing;
use crate::text::tree::Site;

/// The secret `name` of these parts, if they are good. `site` is the secret itself.
pub(crate) fn build(
    name: &str,
    parts: Secret,
    site: &Site<'_>,
    outside: &dyn Outside,
    findings: &mut Findings<'_>,
) -> Option<Secret> {
    let secret = Arc::new(parts);
    let find = |_: &str| Some(Arc::clone(&secret));
    let mut files = Files::of_secret(outside, &find);
    let path = |part| secret.part(part).map(|_| format!("{SECRET_PREFIX}{name}"));
    let mut made = Made::default();
    if let (Some(chain), Some(key)) = (path(SecretPart::Chain), path(SecretPart::Key)) {
        let ocsp = path(SecretPart::Ocsp);
        let named = CertificateFiles { chain, key, ocsp, signing: Signing::default() };
        made.certificates.push(files.certificate(&named, site, findings)?);
    }
    let crl = path(SecretPart::Crl);
    if let Some(ca) = path(SecretPart::Ca) {
        made.roots.push(files.roots(Some(&ca), None, site, findings)?);
        if crl.is_some() {
            made.roots.push(files.roots(Some(&ca), crl.as_deref(), site, findings)?);
        }
    } else if let Some(crl) = crl {
        files.check_revocations(&crl, site, findings)?;
    }
    if let Some(key) = path(SecretPart::TicketKey) {
        files.ticket_key(&key, &site.key(SecretPart::TicketKey.key()), findings)?;
    }
    Some(Secret { made, ..Secret::clone(&secret) })
}
