//! The files that `tls` names in a text: where each is named first, and what it holds.

use super::{Files, digest};
use crate::map::Map;
use crate::origins::FileOrigin;
use crate::text::tree::Site;

impl Files<'_> {
    /// The certificates, keys, authorities and ticket keys that the text names by their paths, as far as they were read for it.
    pub(crate) fn named(&self, root: &Site<'_>) -> Map<Box<str>, FileOrigin> {
        let mut named = Map::default();
        each(root, &mut |site| {
            let path = site.node().text().unwrap_or_default();
            if named.contains_key(path) {
                return;
            }
            if let Some(Ok(content)) = self.contents.get(path) {
                let origin = FileOrigin::new(site.at(), site.path(), digest(content));
                named.insert(Box::from(path), origin);
            }
        });
        named
    }
}

/// Calls `found` with the site of each path, in the order of the text's sections.
fn each(root: &Site<'_>, found: &mut impl FnMut(&Site<'_>)) {
    for (section, parts) in [("listeners", "chains"), ("clusters", "transports")] {
        for entry in root.key(section).items() {
            each_of_tls(&entry.key("tls"), found);
            for part in entry.key(parts).items() {
                each_of_tls(&part.key("tls"), found);
            }
        }
    }
}

fn each_of_tls(tls: &Site<'_>, found: &mut impl FnMut(&Site<'_>)) {
    if !tls.is_written() {
        return;
    }
    for certificate in tls.key("certificates").items() {
        each_of_keys(&certificate, &["chain", "key", "ocsp"], found);
    }
    each_of_keys(&tls.key("certificate"), &["chain", "key", "ocsp"], found);
    each_of_keys(&tls.key("client"), &["ca", "crl"], found);
    each_of_keys(tls, &["ca", "crl"], found);
    tls.key("session_ticket_files").items().for_each(|path| found(&path));
}

fn each_of_keys(site: &Site<'_>, keys: &[&str], found: &mut impl FnMut(&Site<'_>)) {
    if site.is_written() {
        for key in keys {
            let path = site.key(key);
            if path.is_written() {
                found(&path);
            }
        }
    }
}
