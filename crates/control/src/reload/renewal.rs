//! Files that the configuration in effect names, such as certificates, while a later text does not count.
//!
//! As long as the latest text is the one in effect, what it names is read together with it. A later text that is refused or
//! waits says nothing of the files of the one before, and that one has to go on with certificates that are renewed: it is
//! built again as it was, with the files as they are. The same goes for a text that came by a pipe, which cannot be read
//! again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use zeroize::Zeroizing;

use super::{ConfigFile, Endpoints, EndpointsCandidate, Refused};
use crate::clock;
use crate::expiry::Expiry;
use crate::files::{Included, Seen};
use crate::names::names_after;

/// The text that counts.
#[derive(Debug)]
pub(super) struct TextInUse {
    text: Zeroizing<String>,
    included: Included,
    /// The files that it names, other than text and endpoints.
    named: Seen,
    /// Whether a look at the latest text does not look at these files.
    is_apart: bool,
}

/// Why files that changed are not used.
#[derive(Debug)]
pub(crate) enum NotRenewed {
    /// There was no descriptor to read one with.
    Starved,
    /// They are wrong.
    Refused(Refused),
}

impl TextInUse {
    /// None if it names no files.
    pub(super) fn new(
        text: Zeroizing<String>,
        included: Included,
        seen: &Seen,
        is_stream: bool,
    ) -> Option<Self> {
        let named = seen.without_text();
        (!named.is_empty()).then_some(Self { text, included, named, is_apart: is_stream })
    }

    /// Says that the latest text is this one, with what it includes.
    pub(super) fn compare(&mut self, text: &str, included: &Included, is_stream: bool) {
        self.is_apart = is_stream || *self.text != text || self.included != *included;
    }

    /// Where the files are that it names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.named.paths()
    }

    /// Whether any of them is called so in its folder.
    pub(super) fn has_any(&self, names: &BTreeSet<OsString>) -> bool {
        self.named.has_any(names)
    }
}

impl<F> ConfigFile<F> {
    /// The latest text may be another than the one in effect.
    pub(super) const fn set_text_apart(&mut self) {
        if let Some(in_use) = &mut self.in_use {
            in_use.is_apart = true;
        }
    }

    /// Builds the configuration in effect again if the latest text is another one, and files that it names have changed. None if
    /// nothing is to be done.
    ///
    /// # Errors
    ///
    /// The files cannot be used. Unless they could not be read, they are not read again before they change.
    pub(crate) fn load_renewed(&mut self) -> Option<Result<Endpoints<F>, NotRenewed>> {
        let began = clock::monotonic_ns();
        let files = self.files();
        let in_use = self.in_use.as_mut()?;
        if !in_use.is_apart || !in_use.named.is_changed() {
            return None;
        }
        let files = files.with_included(std::mem::take(&mut in_use.included));
        let prepared = self.loader.prepare(&self.name, &in_use.text, &files);
        in_use.included = files.take_included();
        let (seen, endpoints) = files.into_seen();
        in_use.named = seen;
        if in_use.named.is_starved() || endpoints.is_starved() {
            return Some(Err(NotRenewed::Starved));
        }
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(errors) => return Some(Err(NotRenewed::Refused(Refused::Invalid(errors)))),
        };
        self.endpoints = endpoints;
        let outcomes = prepared.endpoints_read().to_vec();
        let snapshot = prepared.snapshot();
        let names = Some(names_after(&self.names, snapshot));
        let expiry = Some(Expiry::new(snapshot));
        let duration = clock::monotonic_ns().saturating_sub(began);
        let candidate = EndpointsCandidate { prepared, names, expiry, duration };
        let candidate = Some(Box::new(candidate));
        Some(Ok(Endpoints { candidate, outcomes, delivered: None, is_dns: false }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    use config::{FilterKinds, Loader};

    use super::super::Look;
    use super::*;
    use crate::scratch::Scratch;

    const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/tests/certificates");

    /// A configuration whose certificate is in `now.pem` of the folder, and its key in `now.key`.
    fn text(folder: &Path) -> String {
        let folder = folder.display();
        format!(
            "listeners:
- name: a
  address: '127.0.0.1:1'
  tls: {{ certificates: [{{ chain: {folder}/now.pem, key: {folder}/now.key }}] }}
  routes: [r]
routes: [{{ name: r, hosts: [x], rules: [{{ match: {{ prefix: / }}, respond: {{}} }}] }}]
"
        )
    }

    /// Puts this pair there.
    fn put(pair: &str, folder: &Path) {
        for end in ["pem", "key"] {
            let from = format!("{CERTIFICATES}/{pair}.{end}");
            fs::copy(from, folder.join(format!("now.{end}"))).unwrap();
        }
    }

    fn loaded(path: &Path) -> ConfigFile<()> {
        let mut file = ConfigFile::new(path, Loader::new(FilterKinds::new()).unwrap());
        let candidate = file.load().unwrap();
        file.keep(candidate);
        file
    }

    /// In a folder of its own.
    fn in_folder(name: &str) -> (Scratch, PathBuf, ConfigFile<()>) {
        let scratch = Scratch::new(name);
        put("site", &scratch.0);
        let path = scratch.0.join("strait.yaml");
        fs::write(&path, text(&scratch.0)).unwrap();
        let file = loaded(&path);
        (scratch, path, file)
    }

    fn renew(file: &mut ConfigFile<()>) {
        let renewed = file.load_renewed().unwrap().unwrap().candidate.unwrap();
        assert_eq!(renewed.snapshot().changes.listeners_changed.len(), 1);
        file.keep_endpoints(*renewed);
        assert!(file.load_renewed().is_none(), "nothing changed since");
    }

    #[test]
    fn a_text_that_is_left_unread_stays_so_when_certificates_of_the_one_in_use_are_renewed() {
        let (scratch, path, mut file) = in_folder("renewal-skipped");
        fs::write(&path, text(&scratch.0).replace("respond: {}", "respond: { status: 500 }"))
            .unwrap();
        file.skip();
        put("client", &scratch.0);
        assert_eq!(file.look(), Look::Same);
        renew(&mut file);
        assert_eq!(file.look(), Look::Same);
        fs::write(&path, text(&scratch.0)).unwrap();
        assert_eq!(file.look(), Look::Changed);
        file.load().unwrap();
        put("site", &scratch.0);
        assert_eq!(file.look(), Look::Changed, "the text is not left unread any more");
    }

    #[test]
    fn what_the_latest_text_is_refused_for_is_refused_once() {
        let (scratch, _, mut file) = in_folder("renewal-once");
        fs::copy(format!("{CERTIFICATES}/client.pem"), scratch.0.join("now.pem")).unwrap();
        assert!(file.load().is_err());
        assert!(file.load_renewed().is_none());
        put("client", &scratch.0);
        assert_eq!(file.look(), Look::Changed);
        assert!(file.load_renewed().is_none());
        file.load().unwrap();
    }

    #[test]
    fn certificates_of_a_text_that_came_by_a_pipe_are_renewed() {
        let scratch = Scratch::new("renewal-pipe");
        put("site", &scratch.0);
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(text(&scratch.0).as_bytes()).unwrap();
        drop(writer);
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let mut file = loaded(Path::new(&path));
        assert!(file.load_renewed().is_none(), "nothing changed");
        let names = BTreeSet::from(["now.pem".into()]);
        assert!(!file.are_endpoints(&names), "it is looked at");

        fs::copy(format!("{CERTIFICATES}/client.pem"), scratch.0.join("now.pem")).unwrap();
        let refused = file.load_renewed().unwrap();
        assert!(matches!(refused, Err(NotRenewed::Refused(_))), "{refused:?}");
        assert!(file.load_renewed().is_none(), "it is refused once");

        put("client", &scratch.0);
        renew(&mut file);
    }
}
