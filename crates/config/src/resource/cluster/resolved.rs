//! What a cluster says once every default is filled in: the source that its entry of a snapshot keeps, and what
//! `check --print` and `/config` show of it.

use std::sync::Arc;

use crate::resource::cluster::file::{Cluster, Endpoint, Endpoints};
use crate::resource::cluster::transports::Transports;
use crate::resource::tls::resolved::cluster_tls;

pub(crate) fn cluster(file: &Cluster, transports: &Transports) -> Arc<Cluster> {
    let mut all = file.clone();
    if !all.original_destination {
        all.balance.get_or_insert_default();
    }
    if let Some(Endpoints::List(endpoints)) = &mut all.endpoints {
        endpoints.iter_mut().for_each(Endpoint::shorten);
    }
    let of_entries = all.transports.iter_mut().map(|entry| &mut entry.tls);
    for (file, built) in std::iter::once(&mut all.tls).chain(of_entries).zip(transports.all()) {
        if let Some((file, built)) = file.as_mut().zip(built.tls.as_deref()) {
            cluster_tls(file, built);
        }
    }
    Arc::new(all)
}
