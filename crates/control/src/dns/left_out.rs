//! Addresses of host names that a cluster leaves out, because it has too many endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::snapshot::{Cluster, DnsName, Snapshot};
use serde_json::{Value, json};

use super::{Dns, Status};

impl Dns {
    /// Warns of names of which changed clusters leave out addresses, unless they left out as many in `former`.
    pub(crate) fn warn_of_left_out<F>(
        &mut self,
        snapshot: &Snapshot<F>,
        former: Option<&Snapshot<F>>,
    ) {
        let changes = &snapshot.changes;
        let changed = changes.clusters_added.iter().chain(&changes.clusters_changed);
        for cluster in changed.filter_map(|id| snapshot.cluster(*id)) {
            self.warn_of_cluster(cluster, former.and_then(|former| former.cluster(cluster.id)));
        }
    }

    fn warn_of_cluster(&mut self, cluster: &Cluster, former: Option<&Arc<Cluster>>) {
        for left_out in &cluster.left_out {
            let is_known = former.is_some_and(|former| former.left_out.contains(left_out));
            if is_known || !self.lines.has_room() {
                continue;
            }
            tracing::warn!(
                cluster = %cluster.name,
                name = %left_out.name,
                left_out = left_out.count,
                used = cluster.endpoints.len(),
                "a cluster has too many endpoints: some addresses of a DNS answer are left out"
            );
        }
    }
}

/// What is known of these names, for the admin interface, with the clusters that leave out some of their addresses.
pub(crate) fn names_json<'n, F>(
    names: impl IntoIterator<Item = &'n (Arc<DnsName>, Status)>,
    snapshot: &Snapshot<F>,
    now: u64,
) -> Vec<Value> {
    let mut left_out: BTreeMap<&Arc<DnsName>, Vec<Value>> = BTreeMap::new();
    for (_, cluster) in snapshot.clusters.iter() {
        for it in &cluster.left_out {
            let shown = json!({ "cluster": cluster.name, "addresses": it.count });
            left_out.entry(&it.name).or_default().push(shown);
        }
    }
    let names = names.into_iter().map(|(name, status)| {
        let mut shown = status.to_json(name, now);
        if let Some(shown) = shown.as_object_mut() {
            let left_out = left_out.remove(name).unwrap_or_default();
            shown.insert("left_out".to_owned(), left_out.into());
        }
        shown
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::num::NonZeroU16;

    use config::snapshot::{DnsAnswer, Resolved};

    use super::*;

    #[test]
    fn what_a_cluster_leaves_out_is_logged_once_and_shown_with_the_name() {
        let text = "
listeners: [{ name: edge, address: '127.0.0.1:1', protocol: tcp, cluster: api }]
clusters: [{ name: api, endpoints: ['127.0.0.1:1', { address: 'api.internal:80' }] }]
";
        let mut loader = config::Loader::<()>::new(config::FilterKinds::new()).unwrap();
        let before = loader.load("f", text).unwrap();
        let name = before.clusters.iter().find_map(|(_, it)| it.endpoints_from.names().next());
        let name = Arc::clone(name.unwrap());
        let mut dns = Dns::new(before.resolvers.clone()).0;
        let mut take = |count: u32| {
            let resolved = |n| Resolved {
                address: SocketAddr::new(Ipv4Addr::from_bits(0x0a00_0000 + n).into(), 80),
                weight: NonZeroU16::MIN,
                priority: 0,
                host: "api.internal".into(),
            };
            let answer: DnsAnswer = (0..count).map(resolved).collect();
            let prepared = loader.prepare_answers(vec![(Arc::clone(&name), Some(answer))]);
            loader.keep(prepared.unwrap())
        };
        let (within, beyond) = (take(99_999), take(100_004));
        dns.warn_of_left_out(&within, Some(&before));
        assert_eq!(dns.lines.written, 0);
        dns.warn_of_left_out(&beyond, Some(&within));
        dns.warn_of_left_out(&beyond, Some(&beyond));
        assert_eq!(dns.lines.written, 1);
        let names = [(name, Status::default())];
        let shown = names_json(&names, &beyond, 0);
        assert_eq!(shown[0]["left_out"], json!([{ "cluster": "api", "addresses": 5 }]));
        assert_eq!(names_json(&names, &within, 0)[0]["left_out"], json!([]));
    }
}
