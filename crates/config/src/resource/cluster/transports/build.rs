//! How the endpoints of a cluster are spoken to: its own `tls`, and `transports` for some of them.

use std::sync::Arc;

use crate::file;
use crate::findings::Problem;
use crate::resource::cluster::file::Endpoint;
use crate::resource::cluster::subsets::Metadata;
use crate::resource::cluster::transports::{EndpointTransport, Transport, Transports, has_all};
use crate::resource::tls::build as tls;
use crate::sections::context::Context;
use crate::sections::names::Once;
use crate::snapshot::{Cluster, ClusterTls, TransportId};
use crate::text::tree::Site;

/// The transports of a cluster. `site` is that of the cluster.
pub(crate) fn build<F>(
    file: &file::Cluster,
    is_relayed_to: bool,
    former: Option<&Arc<Cluster>>,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> Transports {
    check(file, site, context);
    let mut transport = |name: &str, metadata: &Metadata, written: Written<'_>| {
        let former = former.and_then(|it| Some((it, it.transports.find(name)?)));
        let former_tls = former.and_then(|(_, transport)| transport.tls.as_ref());
        let spoken = tls::ToCluster {
            protocol: file.protocol,
            is_relayed_to,
            has_unix_endpoints: written.has_unix_endpoints,
        };
        let tls = written
            .tls
            .and_then(|(tls, site)| tls::cluster(tls, spoken, &site, former_tls, context));
        let is_same = |(cluster, transport): &(&Arc<Cluster>, &Transport)| {
            cluster.protocol == file.protocol
                && serial(transport.tls.as_deref()) == serial(tls.as_deref())
                && cluster.proxy_protocol == file.proxy_protocol
        };
        let known: Option<TransportId> = former.filter(is_same).map(|(_, former)| former.id);
        let id = known.unwrap_or_else(|| context.ids.transport());
        Transport { id, name: Arc::from(name), tls, metadata: metadata.clone() }
    };
    let at = site.key("transports");
    let own = Written {
        tls: file.tls.as_ref().map(|tls| (tls, site.key("tls"))),
        has_unix_endpoints: has_unix(file, None),
    };
    let own = transport("", &Metadata::new(), own);
    let entries = file.transports.iter().zip(at.items()).zip(0..);
    let matched = entries.map(|((entry, site), place)| {
        let written = Written {
            tls: entry.tls.as_ref().map(|tls| (tls, site.key("tls"))),
            has_unix_endpoints: has_unix(file, Some(place)),
        };
        transport(&entry.name, &entry.metadata, written)
    });
    let matched = matched.collect();
    Transports::new(own, matched)
}

/// What the text says of a transport.
struct Written<'a> {
    tls: Option<(&'a file::ClusterTls, Site<'a>)>,
    has_unix_endpoints: bool,
}

const fn serial(tls: Option<&ClusterTls>) -> Option<u64> {
    match tls {
        Some(tls) => Some(tls.serial),
        None => None,
    }
}

/// Whether the entry at this place, or the cluster's own `tls`, is for a listed endpoint that is a socket of the file system.
fn has_unix(file: &file::Cluster, place: Option<usize>) -> bool {
    let is_of = |endpoint: &&Endpoint| {
        let is_for = |entry: &EndpointTransport| has_all(endpoint.metadata(), &entry.metadata);
        file.transports.iter().position(is_for) == place
    };
    file.listed_endpoints().iter().filter(is_of).any(Endpoint::is_unix)
}

/// Whether an endpoint has these values; where the text does not list the endpoints, some may.
fn is_used(file: &file::Cluster, metadata: &Metadata) -> bool {
    let listed = file.listed_endpoints();
    listed.is_empty() || listed.iter().any(|endpoint| has_all(endpoint.metadata(), metadata))
}

fn check<F>(file: &file::Cluster, site: &Site<'_>, context: &mut Context<'_, '_, F>) {
    let at = site.key("transports");
    let mut once = Once::default();
    let mut former: Vec<&EndpointTransport> = Vec::new();
    for (entry, site) in file.transports.iter().zip(at.items()) {
        once.check(&entry.name, "transport", &site, context.findings);
        let earlier = former.iter().find(|former| has_all(&entry.metadata, &former.metadata));
        if let Some(earlier) = earlier {
            let rule = format!(
                "no endpoint uses this: all that match it match `{}`, which is first",
                earlier.name
            );
            let problem = Problem::new(rule, "put it before that one, or remove it");
            site.key("match").warning(context.findings, problem);
        } else if !is_used(file, &entry.metadata) {
            let rule = "no endpoint has these values in its `metadata`, so that none is spoken to like this";
            let problem = Problem::new(rule, "write values that an endpoint has");
            site.key("match").warning(context.findings, problem);
        }
        former.push(entry);
    }
    if file.transports.is_empty() {
        return;
    }
    if file.proxy_protocol.is_sent() {
        let rule = "a cluster with `proxy_protocol` speaks to all of its endpoints in the same way";
        at.error(context.findings, Problem::new(rule, "remove one of the two"));
    }
    if file.original_destination {
        let rule = "a cluster with `original_destination` has no endpoints with metadata";
        at.error(context.findings, Problem::new(rule, "remove it"));
    }
}
