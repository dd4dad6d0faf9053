//! The page about one resource (`/config?resource=cluster/web`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::snapshot::{DnsName, EndpointsFrom, Snapshot};
use config::{Errors, ResourceKind, ResourceName};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::deliveries::{AcceptedVersion, Refusal};
use super::pages::error_json;
use super::{EndpointFile, EndpointsRefused, InEffect};
use crate::admin::{Answer, Content};
use crate::clock;
use crate::dns::{Status, names_json};

/// What the page is written from, on another thread.
struct ResourcePage<F> {
    snapshot: Arc<Snapshot<F>>,
    resource: ResourceName,
    refused: Option<Refusal>,
    /// Whether it waits, or is waited for.
    is_warming: bool,
    accepted: Option<AcceptedVersion>,
    /// The version of the configuration since which the addresses from DNS are these.
    resolved: Option<u64>,
    waits_for: Vec<ResourceName>,
    missing: Vec<ResourceName>,
    /// What waits for it, or is used without it.
    lacking: Vec<ResourceName>,
    files: BTreeMap<Arc<str>, EndpointFile>,
    files_refused: EndpointsRefused,
    host_names: Vec<(Arc<DnsName>, Status)>,
}

impl<F: Send + Sync + 'static> InEffect<F> {
    /// Writes the page about one resource of it.
    pub(super) fn show_resource(&self, resource: ResourceName, reply: oneshot::Sender<Content>) {
        let accepted = self.deliveries.accepted(&resource).or_else(|| {
            let is_table = resource.kind == ResourceKind::Route;
            is_table.then(|| self.deliveries.accepted_with_host(&resource.name)).flatten()
        });
        // What a source says beside the file concerns that source alone.
        let refused = self.deliveries.refused(&resource);
        let refused = refused.filter(|_| !self.snapshot.is_in_file(&resource));
        let page = ResourcePage {
            snapshot: Arc::clone(&self.snapshot),
            refused: refused.cloned(),
            is_warming: self.deliveries.is_warming(&resource),
            accepted: accepted.cloned(),
            resolved: self.resolved_since.get(&*resource.name).copied(),
            waits_for: self.deliveries.waits_for(&resource).to_vec(),
            missing: self.deliveries.missing(&resource).to_vec(),
            lacking: self.deliveries.lacking(&resource),
            files: self.endpoint_files.clone(),
            files_refused: self.endpoints_refused.clone(),
            host_names: self.dns.describe(),
            resource,
        };
        tokio::task::spawn_blocking(move || {
            // The client may have gone.
            let _ = reply.send(page.write().into());
        });
    }
}

impl<F> ResourcePage<F> {
    fn write(&self) -> Answer {
        let (mut page, is_used) = match config::resource(&self.snapshot, &self.resource) {
            Ok(Value::Object(found)) => (found, true),
            Ok(other) => return Answer::json(&other),
            Err(hint) => {
                if !self.is_warming && self.refused.is_none() && self.accepted.is_none() {
                    return Answer::text(404, hint + "\n");
                }
                let name = ("resource".to_owned(), json!(self.resource.to_string()));
                (Map::from_iter([name]), false)
            }
        };
        page.insert("referred_by".to_owned(), json!(self.referrers()));
        if is_used {
            self.describe_endpoints(&mut page);
        }
        // An entry of the file goes before what a source says of it.
        let is_of_file = page.get("origin").is_some_and(|origin| !origin.is_null());
        if let Some(AcceptedVersion { source, version }) = &self.accepted
            && !is_of_file
        {
            let (kind, name) = (self.resource.kind.word(), &*self.resource.name);
            let origin = json!({ "source": source, "kind": kind, "name": name });
            page.insert("origin".to_owned(), origin);
            page.insert("version".to_owned(), json!(&**version));
        }
        let last_error = match (&self.refused, self.file_refused()) {
            (Some(refused), _) => refused.error_json(),
            (None, Some(refused)) => error_json(refused),
            (None, None) => Value::Null,
        };
        for (name, value) in [
            ("state", json!(self.state(is_used))),
            ("waits_for", listed(&self.waits_for)),
            ("missing", listed(&self.missing)),
            ("last_error", last_error),
        ] {
            page.insert(name.to_owned(), value);
        }
        Answer::json(&Value::Object(page))
    }

    fn state(&self, is_used: bool) -> &'static str {
        match (&self.refused, is_used) {
            (Some(_), _) => "refused",
            // The cluster itself is as its text says.
            (None, true) if self.is_assignment() && self.file_refused().is_some() => "refused",
            (None, true) => "active",
            // What it says is not shown, or nothing uses it.
            (None, false) if self.accepted.is_some() && self.waits_for.is_empty() => "active",
            (None, false) => "warming",
        }
    }

    fn is_assignment(&self) -> bool {
        self.resource.kind == ResourceKind::Assignment
    }

    /// Who refers to it: what serves, and what lacks it.
    fn referrers(&self) -> Vec<String> {
        let mut all = config::referred_by(&self.snapshot, &self.resource);
        let serving: BTreeSet<String> = all.iter().cloned().collect();
        let lacking = self.lacking.iter().map(ToString::to_string);
        all.extend(lacking.filter(|name| !serving.contains(name)));
        all
    }

    /// Where the endpoints of a cluster come from, if this is one, or its assignment.
    fn endpoints_from(&self) -> Option<&EndpointsFrom> {
        if !matches!(self.resource.kind, ResourceKind::Cluster | ResourceKind::Assignment) {
            return None;
        }
        let mut clusters = self.snapshot.clusters.iter().map(|(_, cluster)| cluster);
        let cluster = clusters.find(|it| *it.name == *self.resource.name)?;
        Some(&cluster.endpoints_from)
    }

    /// Since when the file of its endpoints is refused, if it is, and why.
    fn file_refused(&self) -> Option<&(u64, Errors)> {
        self.files_refused.get(self.endpoints_from()?.file()?)
    }

    /// Adds how its host names are, and for an assignment which version of its file or answers is used.
    fn describe_endpoints(&self, page: &mut Map<String, Value>) {
        let Some(from) = self.endpoints_from() else { return };
        let now = clock::monotonic_ns();
        let names: BTreeSet<_> = from.names().collect();
        let names = self.host_names.iter().filter(|(name, _)| names.contains(name));
        let names = names_json(names, &self.snapshot, now);
        if !names.is_empty() {
            page.insert("host_names".to_owned(), json!(names));
        }
        if !self.is_assignment() {
            return;
        }
        if let Some(known) = from.file().and_then(|file| self.files.get(file)) {
            page.insert("version".to_owned(), json!(known.version));
            page.insert("accepted_at".to_owned(), json!(clock::rfc3339(known.accepted_at)));
        }
        if let Some(version) = self.resolved {
            page.insert("version".to_owned(), json!(version));
        }
    }
}

fn listed(names: &[ResourceName]) -> Value {
    names.iter().map(|name| json!(name.to_string())).collect()
}
