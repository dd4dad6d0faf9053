//! What a delivered resource finds around it: what was delivered before and with it, and what the file has.

use std::sync::Arc;

use super::FileParts;
use crate::delivered::{Changed, Content, Delivered};
use crate::ids::Ids;
use crate::origins::ResourceKind;
use crate::resource::{Assignment, Secret};
use crate::snapshot::{ClusterProtocol, RouteTable, Snapshot};
use crate::store::Touched;

/// What a resource may name.
pub(super) struct Around<'a, F> {
    pub(super) former: Option<&'a Snapshot<F>>,
    pub(super) ids: &'a Ids,
    pub(super) delivered: &'a Delivered,
    pub(super) changed: &'a Changed,
    pub(super) touched: &'a Touched<F>,
    pub(super) file: &'a FileParts<'a>,
}

impl<F> Around<'_, F> {
    /// Whether exchanges with a cluster share connections, as far as it is there.
    pub(super) fn multiplexes(&self, name: &str) -> bool {
        let new = self.touched.clusters.iter().rev().find(|cluster| *cluster.name == *name);
        let is_gone = || {
            let known = self.delivered.find(ResourceKind::Cluster, name);
            let now = self.changed.find(self.delivered, ResourceKind::Cluster, name);
            known.is_some() && now.is_none()
        };
        let former = || self.former?.cluster(self.ids.cluster(name)?).filter(|_| !is_gone());
        let cluster = new.or_else(former);
        cluster.is_some_and(|cluster| cluster.protocol == ClusterProtocol::Http2)
    }

    /// A secret, if it is there.
    pub(super) fn secret(&self, name: &str) -> Option<Arc<Secret>> {
        match &self.changed.find(self.delivered, ResourceKind::Secret, name)?.content {
            Content::Secret(secret) => Some(Arc::clone(secret)),
            _ => None,
        }
    }

    /// The endpoints that are assigned to a cluster, if some are.
    pub(super) fn assignment(&self, cluster: &str) -> Option<Arc<Assignment>> {
        let entry = self.changed.find(self.delivered, ResourceKind::Assignment, cluster)?;
        entry.content.assignment().cloned()
    }

    /// The tables of a route configuration, or the one of the file with this name.
    pub(super) fn tables(&self, name: &str) -> Option<Vec<Arc<RouteTable>>> {
        if let Some(entry) = self.changed.find(self.delivered, ResourceKind::Route, name)
            && let Content::Routes(config, _) = &entry.content
        {
            return Some(config.virtual_hosts.clone());
        }
        let table = match &self.file.tables {
            Some(tables) => tables.get(name).copied(),
            None if self.file.origins?.has(ResourceKind::Route, name) => {
                self.former?.route_table(self.ids.route_table(name)?)
            }
            None => None,
        };
        Some(vec![Arc::clone(table?)])
    }
}
