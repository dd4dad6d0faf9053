//! Texts of delivered resources to the types of the file, with what such a resource may not say: files, hosts and
//! variables are those of this machine, and not for others to name.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::armor;
use super::keys::Masked;
use crate::file;
use crate::findings::{Findings, Path, Position, Problem};
use crate::origins::{ResourceKind, ResourceName};
use crate::outside::Outside;
use crate::resource::assignment::file::Assignment;
use crate::resource::cluster::file::Endpoints;
use crate::resource::route::file::RouteConfig;
use crate::resource::secret::file::Secret;
use crate::resource::tls::file::CertificateFiles;
use crate::resource::{self, SecretPart};
use crate::sections::files::SECRET_PREFIX;
use crate::text::shape::{self, SchemaError, Shape, schema_of};
use crate::text::tree::{self, Node, Site};

/// What stands in a text without anything.
const EMPTY_HINT: &str = "write `{ name: web, endpoints: [\"10.0.0.1:80\"] }`, for instance";

/// What the textual encodings of these are called. No RFC has a label for them.
const OCSP_LABEL: &str = "OCSP RESPONSE";
const TICKET_KEY_LABEL: &str = "TICKET KEY";

/// What may stand in a resource of each kind. Made when the first of a kind arrives: that takes longer than the rest of a start where
/// there are no sources.
#[derive(Debug)]
pub(crate) struct Shapes {
    file: Arc<Shape>,
    assignment: ShapeOf<Assignment>,
    cluster: ShapeOf<file::Cluster>,
    routes: ShapeOf<RouteConfig>,
    secret: ShapeOf<Secret>,
}

impl Shapes {
    /// `file` is the shape of a file, which has a listener's in it.
    pub(crate) fn new(file: Arc<Shape>) -> Self {
        let (assignment, cluster) = (ShapeOf::default(), ShapeOf::default());
        let (routes, secret) = (ShapeOf::default(), ShapeOf::default());
        Self { file, assignment, cluster, routes, secret }
    }
}

/// The shape of a type, once it was asked for.
#[derive(Debug)]
struct ShapeOf<T>(OnceLock<Result<Shape, SchemaError>>, PhantomData<fn() -> T>);

impl<T> Default for ShapeOf<T> {
    fn default() -> Self {
        Self(OnceLock::new(), PhantomData)
    }
}

impl<T: JsonSchema + DeserializeOwned> ShapeOf<T> {
    /// [`read`], of this type.
    fn read(&self, name: &str, text: &str, findings: &mut Findings<'_>) -> Option<(Node, T)> {
        match self.0.get_or_init(|| Shape::new(&schema_of::<T>(), "")) {
            Ok(shape) => read(shape, name, text, findings),
            Err(error) => {
                let problem = Problem::new(error.to_string(), "this is a defect: please report it");
                findings.error(Position::default(), Path::Root, "", problem);
                None
            }
        }
    }
}

/// A text with its tree; none if something is wrong, which is reported.
fn read<T: DeserializeOwned>(
    shape: &Shape,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, T)> {
    // Variables are of this process, and not for others to read.
    let mut root = tree::read(text, EMPTY_HINT, findings)?;
    if !shape::check(&mut root, shape, Path::Root, findings) {
        return None;
    }
    match tree::deserialize::<T>(&root) {
        Ok(read) => {
            if root.find("name").and_then(Node::text) != Some(name) {
                let problem = Problem::new(
                    "the source delivers it under another name",
                    format!("write {name}"),
                );
                Site::root(&root).key("name").error(findings, problem);
            }
            Some((root, read))
        }
        Err(mismatch) => {
            let at = mismatch.at.unwrap_or(root.at);
            let problem = Problem::new(mismatch.message, "see docs/configuration/reference.md");
            findings.error(at, Path::Root, "", problem);
            None
        }
    }
}

pub(crate) fn cluster(
    shapes: &Shapes,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, file::Cluster)> {
    let (root, file) = shapes.cluster.read(name, text, findings)?;
    let hint = "let the source deliver addresses";
    let site = Site::root(&root);
    match &file.endpoints {
        Some(Endpoints::File(_) | Endpoints::Dns(_)) => {
            let problem = Problem::new("a delivered cluster has a list of endpoints", hint);
            site.key("endpoints").error(findings, problem);
        }
        Some(Endpoints::List(endpoints)) => {
            let sites = site.key("endpoints");
            for (endpoint, site) in endpoints.iter().zip(sites.items()) {
                if endpoint.address().address().is_none() {
                    let rule = "a delivered cluster contains addresses only, not host names";
                    site.error(findings, Problem::new(rule, hint));
                }
            }
        }
        None => {}
    }
    Some((root, file))
}

pub(crate) fn assignment(
    shapes: &Shapes,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, Assignment)> {
    shapes.assignment.read(name, text, findings)
}

pub(crate) fn listener(
    shapes: &Shapes,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, file::Listener)> {
    read(shapes.file.items("listeners")?, name, text, findings)
}

pub(crate) fn routes(
    shapes: &Shapes,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, RouteConfig)> {
    let (root, file) = shapes.routes.read(name, text, findings)?;
    let hosts = Site::root(&root);
    let hosts = hosts.key("virtual_hosts");
    for (host, site) in file.virtual_hosts.iter().zip(hosts.items()) {
        if host.name.contains('/') {
            let rule = "`/` separates the names of a route configuration and its virtual host";
            site.key("name").error(findings, Problem::new(rule, "write another character"));
        }
        for (rule, site) in host.rules.iter().zip(site.key("rules").items()) {
            if rule.cluster_header.is_some() && rule.among.is_none() {
                let rule = "the set of clusters is not known here";
                let hint = "write `among`, with the clusters that the field may name";
                site.key("cluster_header").error(findings, Problem::new(rule, hint));
            }
        }
    }
    Some((root, file))
}

pub(crate) fn secret(
    shapes: &Shapes,
    name: &str,
    text: &str,
    outside: &dyn Outside,
    findings: &mut Findings<'_>,
) -> Option<resource::Secret> {
    let masked = Masked::new(text);
    let (root, file) = shapes.secret.read(name, &masked.text, findings)?;
    if file.chain.is_some() != file.key.is_some() {
        let rule = "a certificate and its key belong together";
        Site::root(&root).error(findings, Problem::new(rule, "add the other of `chain` and `key`"));
    }
    if file.chain.is_none() && file.ca.is_none() && file.ticket_key.is_none() {
        let rule = "this secret is empty";
        let hint = "add `chain` and `key`, `ca`, or `ticket_key`";
        Site::root(&root).error(findings, Problem::new(rule, hint));
    }
    if file.ocsp.is_some() && file.chain.is_none() {
        let problem = Problem::new("there is no certificate here", "add `chain` and `key`");
        Site::root(&root).key(SecretPart::Ocsp.key()).error(findings, problem);
    }
    let [chain, key, ca, crl, ocsp, ticket_key] =
        [&file.chain, &file.key, &file.ca, &file.crl, &file.ocsp, &file.ticket_key]
            .map(|part| Some(masked.fill(part.as_ref()?)));
    let mut octets = |part: SecretPart, text: Option<Zeroizing<Vec<u8>>>, label: &str| {
        let text = text?;
        let octets = armor::decode(&text, label);
        if octets.is_none() {
            let rule = format!("base64 between `BEGIN {label}` and `END {label}` is needed here");
            let hint = "write the octets as `openssl base64` does, between these two lines";
            let site = Site::root(&root);
            site.key(part.key()).error(findings, Problem::new(rule, hint));
        }
        octets
    };
    let ocsp = octets(SecretPart::Ocsp, ocsp, OCSP_LABEL);
    let ticket_key = octets(SecretPart::TicketKey, ticket_key, TICKET_KEY_LABEL);
    if findings.errors_len() > 0 {
        return None;
    }
    let parts = resource::Secret::new([chain, key, ca, crl, ocsp, ticket_key]);
    resource::secret::build::build(name, parts, &Site::root(&root), outside, findings)
}

/// Whether the text of a secret has a private key in it, or cannot be read.
#[must_use]
pub fn holds_key(text: &str) -> bool {
    let masked = Masked::new(text);
    if masked.has_keys() {
        return true;
    }
    let mut findings = Findings::new("", text);
    let root = tree::read(text, EMPTY_HINT, &mut findings);
    let keys = [SecretPart::Key, SecretPart::TicketKey];
    root.is_none_or(|root| keys.iter().any(|part| root.find(part.key()).is_some()))
}

/// The secrets that a cluster names.
pub(crate) fn secrets_of_cluster(file: &file::Cluster) -> impl Iterator<Item = ResourceName> {
    paths_of_cluster(file).filter_map(|path| secret_name(path))
}

/// The files that a cluster names for TLS, or what stands there for secrets.
pub(crate) fn paths_of_cluster(file: &file::Cluster) -> impl Iterator<Item = &String> {
    let of_transports = file.transports.iter().filter_map(|transport| transport.tls.as_ref());
    file.tls.iter().chain(of_transports).flat_map(|tls| {
        let certificate = tls.certificate.iter().flat_map(paths);
        tls.ca.iter().chain(&tls.crl).chain(certificate)
    })
}

/// The secrets that a listener and its chains name.
pub(crate) fn secrets_of_listener(file: &file::Listener) -> impl Iterator<Item = ResourceName> {
    paths_of_listener(file).filter_map(|path| secret_name(path))
}

/// The files that a listener and its chains name for TLS, or what stands there for secrets.
pub(crate) fn paths_of_listener(file: &file::Listener) -> impl Iterator<Item = &String> {
    let ends = file.chains.iter().map(|chain| &chain.tls).chain([&file.tls]).flatten();
    ends.flat_map(|tls| {
        let client =
            tls.client.iter().flat_map(|client| [&client.ca].into_iter().chain(&client.crl));
        let certificates = tls.certificates.iter().flat_map(paths);
        certificates.chain(client).chain(&tls.session_ticket_files)
    })
}

fn paths(files: &CertificateFiles) -> impl Iterator<Item = &String> {
    [&files.chain, &files.key].into_iter().chain(&files.ocsp)
}

fn secret_name(path: &str) -> Option<ResourceName> {
    let name = path.strip_prefix(SECRET_PREFIX).filter(|name| !name.is_empty())?;
    Some(ResourceName::new(ResourceKind::Secret, name))
}
