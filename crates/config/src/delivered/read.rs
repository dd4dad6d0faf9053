//! Texts of delivered resources to the types of the file, with what such a resource may not say: files, hosts and
//! variables are those of this machine, and not for others to name.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use zeroize::Zeroizing;

use super::armor;
use super::keys::Masked;
use crate::build::SECRET_PREFIX;
use crate::file;
use crate::file::cluster::Endpoints;
use crate::file::delivered::{Assignment, RouteConfig, Secret};
use crate::file::tls::CertificateFiles;
use crate::findings::{Findings, Path, Problem};
use crate::origins::{ResourceKind, ResourceName};
use crate::resource::{self, SecretPart};
use crate::shape::{self, SchemaError, Shape, schema_of};
use crate::tree::{self, Node, Site};

/// What stands in a text without anything.
const EMPTY_HINT: &str = "write `{ name: web, endpoints: [\"10.0.0.1:80\"] }`, for instance";

/// What the textual encodings of these are called. No RFC has a label for them.
const OCSP_LABEL: &str = "OCSP RESPONSE";
const TICKET_KEY_LABEL: &str = "TICKET KEY";

/// What may stand in a resource of each kind.
#[derive(Debug)]
pub(crate) struct Shapes {
    assignment: Shape,
    cluster: Shape,
    listener: Shape,
    routes: Shape,
    secret: Shape,
}

impl Shapes {
    /// `file` is the schema of a file.
    pub(crate) fn new(file: &Json) -> Result<Self, SchemaError> {
        let listener = file.pointer("/properties/listeners/items").unwrap_or(&Json::Null);
        Ok(Self {
            assignment: Shape::new(&schema_of::<Assignment>(), "")?,
            cluster: Shape::new(&schema_of::<file::Cluster>(), "")?,
            listener: Shape::new(listener, "")?,
            routes: Shape::new(&schema_of::<RouteConfig>(), "")?,
            secret: Shape::new(&schema_of::<Secret>(), "")?,
        })
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
    let (root, file) = read::<file::Cluster>(&shapes.cluster, name, text, findings)?;
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
    read(&shapes.assignment, name, text, findings)
}

pub(crate) fn listener(
    shapes: &Shapes,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, file::Listener)> {
    read(&shapes.listener, name, text, findings)
}

pub(crate) fn routes(
    shapes: &Shapes,
    name: &str,
    text: &str,
    findings: &mut Findings<'_>,
) -> Option<(Node, RouteConfig)> {
    let (root, file) = read::<RouteConfig>(&shapes.routes, name, text, findings)?;
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
    findings: &mut Findings<'_>,
) -> Option<resource::Secret> {
    let masked = Masked::new(text);
    let (root, file) = read::<Secret>(&shapes.secret, name, &masked.text, findings)?;
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
    Some(resource::Secret::new([chain, key, ca, crl, ocsp, ticket_key]))
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
    let of_transports = file.transports.iter().filter_map(|transport| transport.tls.as_ref());
    let of_tls = file.tls.iter().chain(of_transports).flat_map(|tls| {
        let certificate = tls.certificate.iter().flat_map(paths);
        tls.ca.iter().chain(&tls.crl).chain(certificate)
    });
    of_tls.filter_map(|path| secret_name(path))
}

/// The secrets that a listener and its chains name.
pub(crate) fn secrets_of_listener(file: &file::Listener) -> impl Iterator<Item = ResourceName> {
    let ends = file.chains.iter().map(|chain| &chain.tls).chain([&file.tls]).flatten();
    let of_tls = ends.flat_map(|tls| {
        let client =
            tls.client.iter().flat_map(|client| [&client.ca].into_iter().chain(&client.crl));
        let certificates = tls.certificates.iter().flat_map(paths);
        certificates.chain(client).chain(&tls.session_ticket_files)
    });
    of_tls.filter_map(|path| secret_name(path))
}

fn paths(files: &CertificateFiles) -> impl Iterator<Item = &String> {
    [&files.chain, &files.key].into_iter().chain(&files.ocsp)
}

fn secret_name(path: &str) -> Option<ResourceName> {
    let name = path.strip_prefix(SECRET_PREFIX).filter(|name| !name.is_empty())?;
    Some(ResourceName::new(ResourceKind::Secret, name))
}
