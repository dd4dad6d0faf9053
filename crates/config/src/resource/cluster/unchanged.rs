//! Clusters whose entry reads as it did when they were lowered: whether all else that decides about them is as it was, too.
//!
//! Beside its entry these are the files that `tls` names, whether bytes that are no HTTP go to the cluster, endpoints that come
//! from elsewhere, and those that operators drain. What the cluster asks for is asked for as if it were lowered: files are read,
//! so that they are watched, and it is a user of its file of endpoints and of its host names.

use crate::resource::cluster::transports::Transport;
use crate::resource::{self, Assignment};
use crate::sections::context::Context;
use crate::snapshot::{Cluster, ClusterTls, Endpoint, EndpointsFrom};
use crate::text::tree::Site;

/// Whether lowering a cluster again would give what it is. If not, nothing is noted of it.
pub(crate) fn is_same<F>(
    cluster: &Cluster,
    is_relayed_to: bool,
    context: &mut Context<'_, '_, F>,
) -> bool {
    // Endpoints come last: their users are noted.
    has_same_drained(cluster, context)
        && cluster.transports.tls().all(|tls| is_same_tls(tls, is_relayed_to, context))
        && has_same_endpoints(cluster, context)
}

/// Warns of what lowering a cluster would warn of: what its entry was warned of, and what its files are like now.
pub(crate) fn warn<F>(cluster: &Cluster, site: &Site<'_>, context: &mut Context<'_, '_, F>) {
    for warning in context.entries.warnings_of_cluster(&cluster.name) {
        site.warn_again(warning, context.findings);
    }
    let mut transports = cluster.transports.all();
    warn_of_files(transports.next(), &site.key("tls"), context);
    for (transport, site) in transports.zip(site.key("transports").items()) {
        warn_of_files(Some(transport), &site.key("tls"), context);
    }
}

/// `site` is that of `tls`.
fn warn_of_files<F>(
    transport: Option<&Transport>,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) {
    let Some(tls) = transport.and_then(|transport| transport.tls.as_ref()) else { return };
    let Context { files, findings, .. } = context;
    if let Some(roots) = &tls.source.roots {
        files.warn_of_ends(&roots.roots, site, findings);
    }
    if let Some(certificate) = &tls.source.certificate {
        files.warn_of_certificate(certificate, &site.key("certificate"), findings);
    }
}

fn is_same_tls<F>(tls: &ClusterTls, is_relayed_to: bool, context: &mut Context<'_, '_, F>) -> bool {
    tls.relay_context.is_some() == is_relayed_to
        && tls.source.roots.as_ref().is_none_or(|it| context.files.are_same_roots(it))
        && tls.source.certificate.as_ref().is_none_or(|it| context.files.is_same_certificate(it))
}

fn has_same_endpoints<F>(cluster: &Cluster, context: &mut Context<'_, '_, F>) -> bool {
    match &cluster.endpoints_from {
        EndpointsFrom::Addresses => true,
        EndpointsFrom::File(path) => {
            context.endpoint_files.is_same(path, cluster.id, context.findings)
        }
        from @ (EndpointsFrom::Names(_) | EndpointsFrom::Dns(_)) => {
            let is_same = is_assigned(cluster, &context.names.answered(from));
            if is_same {
                context.names.add_user(from, cluster.id);
            }
            is_same
        }
        // Those that it has stay where an assignment is gone.
        EndpointsFrom::Assignment => {
            let assignment = context.assignments.find(&cluster.name);
            assignment.is_none_or(|assignment| is_assigned(cluster, &assignment))
        }
    }
}

/// Whether those of its endpoints are drained that operators drain.
fn has_same_drained<F>(cluster: &Cluster, context: &Context<'_, '_, F>) -> bool {
    let drained = context.drained.of(&cluster.name);
    let is_drained = |it: &Endpoint| drained.is_some_and(|all| all.contains(&it.address));
    cluster.endpoints.iter().all(|endpoint| endpoint.is_drained == is_drained(endpoint))
}

/// Whether a cluster has the endpoints of this assignment.
fn is_assigned(cluster: &Cluster, assignment: &Assignment) -> bool {
    let (before, now) = (&cluster.endpoints, &assignment.endpoints);
    before.len() == now.len()
        && before.iter().zip(now).all(|(before, now)| is_of(before, now))
        && cluster.left_out == assignment.left_out
}

fn is_of(endpoint: &Endpoint, resource: &resource::Endpoint) -> bool {
    let traits = &resource.traits;
    let metadata = endpoint.description.as_ref().and_then(|it| it.metadata.as_ref());
    endpoint.address == resource.address
        && endpoint.weight_undrained == traits.health.weight(resource.weight)
        && endpoint.host() == resource.host.as_ref()
        && endpoint.priority == traits.priority
        && endpoint.reported == traits.health
        && endpoint.locality() == traits.locality.as_ref()
        && metadata == traits.metadata.as_ref()
}
