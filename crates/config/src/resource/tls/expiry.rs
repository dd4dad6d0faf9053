//! Warnings about the time that certificates of authorities, lists of revoked certificates and OCSP responses
//! have left.

use tls::{CertificateError, Roots};

use crate::date;

/// Seconds before the end of a certificate from which on its renewal is late: at two thirds of 90 days, as it is
/// common, it has failed for two weeks by then.
pub(crate) const EXPIRY_WARNING_SECONDS: u64 = 14 * 86_400;

/// Seconds before the end of a list or an OCSP response from which on its renewal is late: they are issued for
/// days, and renewed well before their end.
const SHORT_LIVED_WARNING_SECONDS: u64 = 86_400;

/// The CA of a file that ends first, if that is soon.
pub(crate) fn authority(roots: &Roots, now: u64) -> Option<String> {
    let (position, end) = roots.authority_ends()?;
    let what = format!("certificate {position} of this file");
    warning(&what, end, now, EXPIRY_WARNING_SECONDS)
}

/// The list of revoked certificates that ends first, if that is soon.
pub(crate) fn list(roots: &Roots, now: u64) -> Option<String> {
    let (position, end) = roots.list_ends()?;
    short_lived(&format!("list {position} of revoked certificates"), end, now)
}

/// The OCSP response that ends at `end`, if that is soon.
pub(crate) fn of_response(end: u64, now: u64) -> Option<String> {
    short_lived("the OCSP response", end, now)
}

/// The same for what is renewed every few days.
fn short_lived(what: &str, end: u64, now: u64) -> Option<String> {
    warning(what, end, now, SHORT_LIVED_WARNING_SECONDS)
}

/// What is to be said of `what`, which ends at `end`, at `now`, from `ahead` seconds before; all in Unix seconds.
pub(crate) fn warning(what: &str, end: u64, now: u64, ahead: u64) -> Option<String> {
    let at = date::rfc3339(end);
    match end.checked_sub(now) {
        None => Some(format!("{what} has expired, at {at}")),
        Some(left) if left > ahead => None,
        Some(left) => {
            let left = match left / 86_400 {
                0 => "less than a day".to_owned(),
                1 => "1 day".to_owned(),
                days => format!("{days} days"),
            };
            Some(format!("{what} expires in {left}, at {at}"))
        }
    }
}

/// What is wrong with a certificate; of dates, when.
pub(crate) fn rule(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired { not_after } => {
            format!("{error}, at {}", date::rfc3339(*not_after))
        }
        CertificateError::NotValidYet { not_before } => {
            format!("{error}, but from {} on", date::rfc3339(*not_before))
        }
        _ => error.to_string(),
    }
}
