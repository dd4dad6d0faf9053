//! The files that a text names: each is read once, and what was made of the same content for the
//! snapshot before is used again.

mod named;
mod unchanged;

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::ErrorKind;
use std::path::Path as FilePath;
use std::sync::Arc;

use tls::{Certificate, CertificatePart, Roots, RootsError, TicketKey};
use zeroize::Zeroizing;

use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::outside::{DanglingLink, Outside};
use crate::resource::tls::certificates::expiry_warning;
use crate::resource::tls::expiry;
use crate::resource::tls::file::CertificateFiles;
use crate::resource::{Secret, SecretPart};
use crate::secrets::is_pem;
use crate::snapshot::{
    CertificateSource, ListenerTls, RootsSource, Signing, Snapshot, TicketKeySource,
};
use crate::text::tree::Site;

/// What a file holds, wiped when it is let go: there are keys among them.
type Content = Zeroizing<Vec<u8>>;

/// The files of one load.
pub(crate) struct Files<'a> {
    outside: &'a dyn Outside,
    contents: Map<Arc<str>, Result<Arc<Content>, Problem>>,
    /// By the paths of chain and key. Of this load, and before that of the former.
    certificates: Map<(Arc<str>, Arc<str>), Arc<CertificateSource>>,
    /// By the paths of authorities, of which none is the system, and of what they took back.
    roots: Map<[Option<Arc<str>>; 2], Arc<RootsSource>>,
    /// Where secrets come from in the place of files, for resources of other sources.
    secrets: Option<Secrets<'a>>,
}

/// The secrets that sources have delivered.
pub(crate) struct Secrets<'a> {
    pub(crate) find: &'a dyn Fn(&str) -> Option<Arc<Secret>>,
    /// Those that are named and not there.
    missing: BTreeSet<Box<str>>,
    /// Whether it is said of a secret that it ends: where it is delivered, and not by each who names it.
    says_ends: bool,
}

/// The bits of a file's mode that say what users may do who are neither its owner nor in its group.
const IS_FOR_OTHERS: u32 = 0o007;

/// What stands before the name of a secret where a file could be named.
pub(crate) const SECRET_PREFIX: &str = "secret:";

impl<'a> Files<'a> {
    pub(crate) fn new<F>(outside: &'a dyn Outside, former: Option<&Snapshot<F>>) -> Self {
        let mut files = Self::none(outside, None);
        let Some(former) = former else { return files };
        for listener in &former.listeners {
            let chains = listener.chains.iter().filter_map(|chain| chain.listener.tls.as_deref());
            for ListenerTls { source, .. } in listener.tls.as_deref().into_iter().chain(chains) {
                files
                    .know(&source.certificates, source.client.as_ref().map(|client| &client.roots));
            }
        }
        for (_, cluster) in former.clusters.iter() {
            for tls in cluster.transports.tls() {
                files.know(tls.source.certificate.as_slice(), tls.source.roots.as_ref());
            }
        }
        files
    }

    /// Those of a load that names no file. `roots` are those whom the system trusts, if they are known.
    pub(crate) fn none(outside: &'a dyn Outside, roots: Option<&Arc<RootsSource>>) -> Self {
        let mut files = Self {
            outside,
            contents: Map::default(),
            certificates: Map::default(),
            roots: Map::default(),
            secrets: None,
        };
        files.know(&[], roots);
        files
    }

    /// Those of a resource of another source: what it names are secrets.
    pub(crate) fn of_secrets(
        outside: &'a dyn Outside,
        roots: Option<&Arc<RootsSource>>,
        find: &'a dyn Fn(&str) -> Option<Arc<Secret>>,
    ) -> Self {
        let secrets = Secrets { find, missing: BTreeSet::new(), says_ends: false };
        Self { secrets: Some(secrets), ..Self::none(outside, roots) }
    }

    /// The parts of a secret itself, by its own name.
    pub(crate) fn of_secret(
        outside: &'a dyn Outside,
        find: &'a dyn Fn(&str) -> Option<Arc<Secret>>,
    ) -> Self {
        let secrets = Secrets { find, missing: BTreeSet::new(), says_ends: true };
        Self { secrets: Some(secrets), ..Self::none(outside, None) }
    }

    /// The secrets that are named and that no source has delivered (yet).
    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().flat_map(|secrets| &secrets.missing).map(AsRef::as_ref)
    }

    pub(crate) fn know(
        &mut self,
        certificates: &[Arc<CertificateSource>],
        roots: Option<&Arc<RootsSource>>,
    ) {
        for source in certificates {
            let paths = (Arc::clone(&source.chain), Arc::clone(&source.key));
            self.certificates.insert(paths, Arc::clone(source));
        }
        if let Some(source) = roots {
            self.roots.insert([source.path.clone(), source.crl.clone()], Arc::clone(source));
        }
    }

    /// The same of what was made of a secret, in the place of what was made of a version before it.
    fn share(&mut self, certificates: &[Arc<CertificateSource>], roots: &[Arc<RootsSource>]) {
        for source in certificates {
            let paths = (Arc::clone(&source.chain), Arc::clone(&source.key));
            let known = self.certificates.get(&paths);
            if known.is_none_or(|known| known.is_before(source)) {
                self.certificates.insert(paths, Arc::clone(source));
            }
        }
        for source in roots {
            let paths = [source.path.clone(), source.crl.clone()];
            self.roots.insert(paths, Arc::clone(source));
        }
    }

    /// A certificate and its key. `site` is where both stand.
    pub(crate) fn certificate(
        &mut self,
        file: &CertificateFiles,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<CertificateSource>> {
        let chain_pem =
            self.content_of(&file.chain, SecretPart::Chain, &site.key("chain"), findings);
        let key_pem = self.content_of(&file.key, SecretPart::Key, &site.key("key"), findings);
        let ocsp_site = site.key("ocsp");
        let ocsp_der = match &file.ocsp {
            None => None,
            Some(path) => Some(self.content_of(path, SecretPart::Ocsp, &ocsp_site, findings)?),
        };
        let (chain_pem, key_pem) = (chain_pem?, key_pem?);
        let paths = (Arc::from(file.chain.as_str()), Arc::from(file.key.as_str()));
        let key_digest = digest(&key_pem);
        let known = self.certificates.get(&paths);
        let known =
            known.filter(|known| known.is_made_of(&chain_pem, key_digest, &ocsp_der)).cloned();
        let signing = file.signing;
        // Which file the response is in decides what is read and watched at the next reload.
        let is_named =
            |known: &Arc<CertificateSource>| known.ocsp.as_deref() == file.ocsp.as_deref();
        let source = match known.filter(|known| known.signing == signing && is_named(known)) {
            Some(known) => known,
            None => match read_certificate(
                &chain_pem,
                &key_pem,
                ocsp_der.as_ref().map(|der| der.as_slice()),
                signing,
            )
            .and_then(|certificate| self.check_time(certificate, &paths))
            {
                Ok(certificate) => Arc::new(CertificateSource {
                    certificate: Arc::new(certificate),
                    chain: Arc::clone(&paths.0),
                    key: Arc::clone(&paths.1),
                    ocsp: file.ocsp.as_deref().map(Arc::from),
                    chain_pem,
                    key_digest,
                    ocsp_der,
                    signing,
                }),
                Err(error) => {
                    let key = match error.part() {
                        CertificatePart::Chain => "chain",
                        CertificatePart::Key => "key",
                        CertificatePart::Ocsp => "ocsp",
                    };
                    let hint = match (&error, &self.secrets) {
                        (tls::CertificateError::NotValidYet { .. }, Some(_)) => {
                            "check this machine's clock, and let the source deliver it again when it is valid"
                        }
                        (tls::CertificateError::ChainEmpty, _)
                            if tls::pem::private_key(&chain_pem).is_ok() =>
                        {
                            "it has a private key, so exchange `chain` and `key` if that has the certificate"
                        }
                        _ => error.hint(),
                    };
                    let problem = Problem::new(expiry::rule(&error), hint);
                    site.key(key).error(findings, problem);
                    return None;
                }
            },
        };
        self.certificates.insert(paths, Arc::clone(&source));
        self.warn_of_certificate(&source, site, findings);
        Some(source)
    }

    /// Whether a certificate is valid by its dates now, or why not.
    pub(crate) fn validity(&self, source: &CertificateSource) -> Result<(), tls::CertificateError> {
        source.certificate.check_time(self.outside.now())
    }

    /// Warns of what may be wrong with the files of a certificate at any time. `site` is where they stand.
    pub(crate) fn warn_of_certificate(
        &self,
        source: &CertificateSource,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) {
        self.warn_of_readers(&source.key, &site.key("key"), findings);
        if !self.says_ends() {
            return;
        }
        self.warn_of_expiry(&source.certificate, &site.key("chain"), findings);
        let now = self.outside.now();
        if let Some(rule) =
            source.certificate.ocsp_ends().and_then(|end| expiry::of_response(end, now))
        {
            let hint = match self.secrets {
                None => "fetch a new one; Strait watches the file and applies the new one",
                Some(_) => "let the source deliver a new one",
            };
            site.key("ocsp").passing_warning(findings, Problem::new(rule, hint));
        }
    }

    /// Whether what ends is to be reported.
    fn says_ends(&self) -> bool {
        self.secrets.as_ref().is_none_or(|secrets| secrets.says_ends)
    }

    /// A key that every user of the machine may read is known to whatever runs there.
    fn warn_of_readers(&self, path: &str, site: &Site<'_>, findings: &mut Findings<'_>) {
        let mode = match self.secrets {
            None => self.outside.mode(FilePath::new(path)),
            Some(_) => None,
        };
        let Some(mode) = mode else { return };
        if mode & IS_FOR_OTHERS != 0 {
            let rule = format!(
                "every user of this machine may use this key: its mode is {:04o}",
                mode & 0o7777
            );
            let hint = "run `chmod o= FILE`, so that owner and group alone have it";
            site.passing_warning(findings, Problem::new(rule, hint));
        }
    }

    /// A process does not start where other users have more access to the folder of its handovers than they need, or where that is no
    /// folder itself. Who owns it is not looked at: a file may be checked by another user. One that is missing is made at the start.
    pub(crate) fn warn_of_handover_folder(
        &self,
        (socket, users): (&str, &[u32]),
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) {
        let Some(folder) = FilePath::new(socket).parent() else { return };
        let problem = if self.outside.is_link(folder) {
            let rule = "the socket's folder is a symbolic link, so that no process starts with it";
            Problem::new(rule, "write the path of the folder itself")
        } else {
            let Some(mode) = self.outside.mode(folder) else { return };
            let (rule, wanted) = match users {
                [] if mode & 0o077 != 0 => (
                    "other users may enter the socket's folder, so that no process starts with it",
                    "700",
                ),
                [_, ..] if mode & 0o066 != 0 => (
                    "other users may list or change the socket's folder, so that no process starts with it",
                    "711",
                ),
                [_, ..] if mode & 0o011 == 0 => {
                    ("the `users` cannot enter the socket's folder, unless they are root", "711")
                }
                _ => return,
            };
            let (mode, folder) = (mode & 0o7777, folder.display());
            let hint = format!("its mode is {mode:04o}: run `chmod {wanted} {folder}`");
            Problem::new(rule, hint)
        };
        site.warning(findings, problem);
    }

    /// A process does not use a folder that others may write to. One that is missing is made at the start.
    pub(crate) fn warn_of_state_folder(
        &self,
        folder: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) {
        let Some(mode) = self.outside.mode(FilePath::new(folder)) else { return };
        if mode & 0o022 != 0 {
            let rule = format!(
                "other users may write to this folder (mode {:04o}), so that no process uses it",
                mode & 0o7777
            );
            let hint = "use a subfolder, which Strait creates for this process alone";
            site.warning(findings, Problem::new(rule, hint));
        }
    }

    /// Warns of CAs, and of lists of what they have revoked, that end. `site` is where `ca` and `crl` stand.
    pub(crate) fn warn_of_ends(&self, roots: &Roots, site: &Site<'_>, findings: &mut Findings<'_>) {
        if !self.says_ends() {
            return;
        }
        let now = self.outside.now();
        if let Some(rule) = expiry::authority(roots, now) {
            let hint = match self.secrets {
                None => "add its successor to the file; the file is watched",
                Some(_) => "let the source deliver its successor with it",
            };
            site.key("ca").passing_warning(findings, Problem::new(rule, hint));
        }
        if let Some(rule) = expiry::list(roots, now) {
            let hint = "fetch a new one: without a current list, certificates of its authority are refused";
            site.key("crl").passing_warning(findings, Problem::new(rule, hint));
        }
    }

    /// Refuses the file at `path` if it cannot be opened for appending.
    pub(crate) fn check_append(
        &self,
        path: &FilePath,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) {
        let Err(error) = self.outside.check_append(path) else { return };
        let hint = match error.kind() {
            ErrorKind::NotFound => "create its folder, such as with `install -d -o strait FOLDER`",
            ErrorKind::IsADirectory => "write the path of a file in it",
            _ => "let the user of the process write there, and run `strait check` as that user",
        };
        let rule = format!("this file cannot be opened for appending: {error}");
        site.error(findings, Problem::new(rule, hint));
    }

    /// Refuses a certificate that has expired, or is not valid yet, in the place of one that is valid. Where there is none to go on
    /// with, it is better than no configuration at all, and warned of. One that a source delivers has to be valid.
    fn check_time(
        &self,
        certificate: Certificate,
        paths: &(Arc<str>, Arc<str>),
    ) -> Result<Certificate, tls::CertificateError> {
        let now = self.outside.now();
        let former = self.certificates.get(paths);
        let is_former_valid = former.is_some_and(|it| it.certificate.check_time(now).is_ok());
        if self.secrets.is_some() || is_former_valid {
            certificate.check_time(now)?;
        }
        Ok(certificate)
    }

    fn warn_of_expiry(
        &self,
        certificate: &Certificate,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) {
        let Some(rule) = expiry_warning(certificate, self.outside.now()) else { return };
        let hint = match certificate.check_time(self.outside.now()) {
            // It is in use all the same.
            Err(tls::CertificateError::NotValidYet { .. }) => {
                "check this machine's clock; until then, peers refuse it"
            }
            _ => "renew it; Strait watches the files and applies the new one",
        };
        site.passing_warning(findings, Problem::new(rule, hint));
    }

    /// A key of tickets.
    pub(crate) fn ticket_key(
        &mut self,
        path: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<TicketKeySource>> {
        let secret = self.content_of(path, SecretPart::TicketKey, site, findings)?;
        match TicketKey::new(&secret) {
            Ok(key) => Some(Arc::new(TicketKeySource {
                key: Arc::new(key),
                path: Arc::from(path),
                digest: digest(&secret),
            })),
            Err(error) => {
                let hint = match self.secrets {
                    None => "write one with `openssl rand 80`",
                    Some(_) => "make one with `openssl rand -base64 80`",
                };
                site.error(findings, Problem::new(error.to_string(), hint));
                None
            }
        }
    }

    /// CAs by the path of their file, and what they have revoked. Without a
    /// path, those whom the system trusts. `site` is where `ca` and `crl` stand.
    pub(crate) fn roots(
        &mut self,
        path: Option<&str>,
        crl: Option<&str>,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<RootsSource>> {
        let paths: [Option<Arc<str>>; 2] = [path.map(Arc::from), crl.map(Arc::from)];
        let pem = match path {
            Some(path) => self.content_of(path, SecretPart::Ca, &site.key("ca"), findings)?,
            None => Arc::default(),
        };
        let crl_pem = match crl {
            Some(path) => {
                Some(self.content_of(path, SecretPart::Crl, &site.key("crl"), findings)?)
            }
            None => None,
        };
        let known = self.roots.get(&paths);
        if let Some(known) = known.filter(|known| known.pem == pem && known.crl_pem == crl_pem) {
            let known = Arc::clone(known);
            self.warn_of_ends(&known.roots, site, findings);
            return Some(known);
        }
        let roots = match path {
            Some(_) => Roots::from_pem(&pem),
            None => self.outside.system_roots(),
        };
        let roots = match (roots, &crl_pem) {
            (Ok(roots), Some(lists)) => roots.with_revocations(lists),
            (roots, _) => roots,
        };
        match roots {
            Ok(roots) => {
                self.warn_of_ends(&roots, site, findings);
                let [path, crl] = paths.clone();
                let roots = Arc::new(roots);
                let source = Arc::new(RootsSource { roots, path, pem, crl, crl_pem });
                self.roots.insert(paths, Arc::clone(&source));
                Some(source)
            }
            Err(error) => {
                self.report_roots(&error, path.is_some(), site, findings);
                None
            }
        }
    }

    /// Reports why lists of what authorities revoked cannot be used, where these are elsewhere. None if they cannot.
    pub(crate) fn check_revocations(
        &mut self,
        crl: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<()> {
        let pem = self.content_of(crl, SecretPart::Crl, &site.key("crl"), findings)?;
        let checked = Roots::check_revocations(&pem);
        checked.map_err(|error| self.report_roots(&error, false, site, findings)).ok()
    }

    /// `is_named` says whether the authorities are not those of the system.
    fn report_roots(
        &self,
        error: &RootsError,
        is_named: bool,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) {
        let what = if self.secrets.is_some() { "this" } else { "the file" };
        let pem = |label| format!("{what} must be PEM, with `BEGIN {label}` for each of them");
        let is_about_lists =
            matches!(error, RootsError::ListMissing | RootsError::ListUnreadable(_));
        let (site, problem) = if matches!(error, RootsError::ListVersion(_)) {
            let hint = "set `crl_extensions` or `crlnumber` in openssl.cnf, and make the list again with `openssl ca -gencrl`";
            (site.key("crl"), Problem::new(error.to_string(), hint))
        } else if is_about_lists {
            (site.key("crl"), Problem::new(error.to_string(), pem("X509 CRL")))
        } else if is_named {
            (site.key("ca"), Problem::new(error.to_string(), pem("CERTIFICATE")))
        } else {
            let problem = Problem::new(
                "this system has no CA certificates, so it trusts no peer",
                "install `ca-certificates`, or name a file with `ca`",
            );
            (*site, problem)
        };
        site.error(findings, problem);
    }

    /// The content of a file that holds text.
    pub(crate) fn text(
        &mut self,
        path: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<str>> {
        let content = self.content(path, site, findings)?;
        match std::str::from_utf8(&content) {
            Ok(text) => Some(Arc::from(text)),
            Err(error) => {
                let rule = format!("this file is not UTF-8 at octet {}", error.valid_up_to());
                site.error(findings, Problem::new(rule, "save it as UTF-8"));
                None
            }
        }
    }

    /// The content of the file at `path`, or of this part of the secret that stands there.
    fn content_of(
        &mut self,
        path: &str,
        part: SecretPart,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<Content>> {
        let name = path.strip_prefix(SECRET_PREFIX).filter(|name| !name.is_empty());
        let Some((secrets, name)) = self.secrets.as_mut().zip(name) else {
            return self.content(path, site, findings);
        };
        let Some(secret) = (secrets.find)(name) else {
            secrets.missing.insert(name.into());
            return None;
        };
        let made = secret.made();
        self.share(&made.certificates, &made.roots);
        let found = secret.part(part).cloned();
        if found.is_none() {
            let rule = format!("secret {name} has no `{}`", part.key());
            let hint = "let the source deliver it, or name another secret";
            site.error(findings, Problem::new(rule, hint));
        }
        found
    }

    /// The content of the file at `path`, which stands at `site`.
    fn content(
        &mut self,
        path: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<Content>> {
        if site.node().is_stand_in {
            return None;
        }
        if self.secrets.is_some() {
            let rule = "a resource of another source names no files of this machine";
            let hint = "write secret:NAME where a certificate, a key or authorities are needed";
            site.error(findings, Problem::new(rule, hint));
            return None;
        }
        self.read_once(path).clone().map_err(|problem| site.error(findings, problem)).ok()
    }

    fn read_once(&mut self, path: &str) -> &mut Result<Arc<Content>, Problem> {
        let outside = self.outside;
        self.contents.entry(Arc::from(path)).or_insert_with(|| read(path, outside))
    }
}

fn read(path: &str, outside: &dyn Outside) -> Result<Arc<Content>, Problem> {
    if is_pem(path) || path.contains('\n') {
        let hint = "put it into a file of its own, and write the path of that file";
        return Err(Problem::new("the path of a file is needed here, not its content", hint));
    }
    if path.is_empty() {
        let rule = "the path of a file is needed here";
        return Err(Problem::new(rule, "write site.pem, for instance"));
    }
    let content = outside.read(FilePath::new(path));
    let content = content.map(Zeroizing::new).map(Arc::new);
    content.map_err(|error| unreadable(&error))
}

/// Why a file cannot be read.
pub(crate) fn unreadable(error: &std::io::Error) -> Problem {
    let is_link = DanglingLink::is_in(error);
    let hint = match error.kind() {
        ErrorKind::NotFound if is_link => "mend the link, or write another path",
        ErrorKind::NotFound => {
            "write its path, from `/` on or relative to the folder of the main configuration file"
        }
        ErrorKind::PermissionDenied => "let that user read the file and enter its folders",
        ErrorKind::IsADirectory => "write the path of a file in it",
        _ => "look at the file",
    };
    let rule = match error.kind() {
        ErrorKind::NotFound if is_link => format!("there is no such file: {error}"),
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::IsADirectory => "this is a folder".to_owned(),
        _ => format!("the file cannot be read: {error}"),
    };
    Problem::new(rule, hint)
}

impl CertificateSource {
    fn is_made_of(
        &self,
        chain_pem: &Arc<Content>,
        key_digest: u64,
        ocsp_der: &Option<Arc<Content>>,
    ) -> bool {
        self.chain_pem == *chain_pem && self.key_digest == key_digest && self.ocsp_der == *ocsp_der
    }

    /// Whether it is made of other content than `now`. One that was asked for without the response is none for that.
    fn is_before(&self, now: &Self) -> bool {
        let ocsp_der =
            if self.ocsp.is_some() == now.ocsp.is_some() { &now.ocsp_der } else { &self.ocsp_der };
        !self.is_made_of(&now.chain_pem, now.key_digest, ocsp_der)
    }
}

fn read_certificate(
    chain_pem: &[u8],
    key_pem: &[u8],
    ocsp_der: Option<&[u8]>,
    signing: Signing,
) -> Result<Certificate, tls::CertificateError> {
    let certificate = match signing.provider() {
        None => Certificate::from_pem(chain_pem, key_pem)?,
        Some(provider) => Certificate::from_pem_for(provider, chain_pem, key_pem)?,
    };
    match ocsp_der {
        None => Ok(certificate),
        Some(der) => certificate.with_ocsp_response(der),
    }
}

/// A number for what a file holds, by which it is known again.
pub(crate) fn digest(content: &[u8]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    hasher.write(content);
    hasher.finish()
}
