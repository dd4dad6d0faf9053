//! How each kind of resource is lowered: what it names, what it waits for, and what it moves.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Batch, DeliveredVersion, Refusal};
use crate::delivered::{self, Content, Entry};
use crate::findings::{Findings, Problem};
use crate::origins::{ResourceKind, ResourceName};
use crate::resource::RouteConfig;
use crate::resource::assignment::delivered::assignment;
use crate::resource::cluster::build::named_by_listener;
use crate::resource::route::tunnels;
use crate::resource::route::virtual_hosts;
use crate::resource::{cluster, listener};
use crate::sections::delivered::Lowered;
use crate::snapshot::{ClusterProtocol, EndpointsFrom};
use crate::text::tree::Site;

impl<F> Batch<'_, F> {
    pub(super) fn secret(
        &mut self,
        item: &DeliveredVersion,
        findings: &mut Findings<'_>,
    ) -> LoweredEntry {
        let shapes = &self.loader.shapes;
        let secret = delivered::secret(shapes, &item.name, &item.text, self.outside, findings);
        let Some(secret) = secret else { return Ok(None) };
        let former = self.delivered.find(item.kind, &item.name);
        let is_same =
            former.is_some_and(|it| matches!(&it.content, Content::Secret(it) if **it == secret));
        if !is_same {
            self.moved.insert(ResourceName::new(item.kind, &item.name));
        }
        Ok(Some(item.entry(Content::Secret(Arc::new(secret)), Vec::new())))
    }

    pub(super) fn assignment(
        &mut self,
        item: &DeliveredVersion,
        findings: &mut Findings<'_>,
    ) -> LoweredEntry {
        let shapes = &self.loader.shapes;
        let Some((root, file)) = delivered::assignment(shapes, &item.name, &item.text, findings)
        else {
            return Ok(None);
        };
        let assignment = assignment(&file, &Site::root(&root), findings);
        self.moved.insert(ResourceName::new(item.kind, &item.name));
        Ok(Some(item.entry(Content::Assignment(Arc::new(assignment)), Vec::new())))
    }

    pub(super) fn cluster(
        &mut self,
        item: &DeliveredVersion,
        findings: &mut Findings<'_>,
    ) -> LoweredEntry {
        let shapes = &self.loader.shapes;
        let Some((root, file)) = delivered::cluster(shapes, &item.name, &item.text, findings)
        else {
            return Ok(None);
        };
        let site = Site::root(&root);
        let lowered = self.with_context(findings, |context, _, _| {
            cluster::build::delivered(&file, &site, context)
        });
        let Some(Lowered { resource, secrets_missing, assignments_missing, .. }) = lowered else {
            return Ok(None);
        };
        let mut names: Vec<_> = delivered::secrets_of_cluster(&file).collect();
        if resource.endpoints_from == EndpointsFrom::Assignment {
            names.push(ResourceName::new(ResourceKind::Assignment, &item.name));
        }
        let text = (!names.is_empty()).then(|| item.text.clone());
        let mut entry = item.entry(Content::Cluster(text), names);
        let secrets = missing(ResourceKind::Secret, secrets_missing);
        let assignments = missing(ResourceKind::Assignment, assignments_missing);
        self.set_waits(item, &mut entry, secrets, assignments)?;
        if resource.protocol == ClusterProtocol::Http2
            && let Some(origin) = self.tunnels_to(&item.name)
        {
            self.taken.roll_back(self.mark);
            return Err(item.error(tunnels::shared(&origin)).into());
        }
        if entry.waits_for.is_empty() {
            self.check_bound(item, "let the source deliver it without, or the process have it")?;
            let of_all = resource.transports.tls();
            let trusted =
                of_all.filter_map(|it| it.source.roots.clone()).find(|it| it.path.is_none());
            self.roots = self.roots.take().or(trusted);
            self.touched.clusters.push(resource);
        } else {
            self.taken.roll_back(self.mark);
        }
        Ok(Some(entry))
    }

    /// A route configuration and what it names; none if something is wrong, which is reported.
    fn lower_routes(
        &mut self,
        item: &DeliveredVersion,
        findings: &mut Findings<'_>,
    ) -> Result<Option<(RouteConfig, Vec<ResourceName>)>, Refusal> {
        let shapes = &self.loader.shapes;
        let Some((root, file)) = delivered::routes(shapes, &item.name, &item.text, findings) else {
            return Ok(None);
        };
        for host in &file.virtual_hosts {
            let name = virtual_hosts::table_name(&file.name, &host.name);
            let place = self.file.origins.and_then(|it| it.place(ResourceKind::Route, &name));
            if let Some(place) = place {
                let rule =
                    format!("the file has a route table {name}, at {place}, which has precedence");
                return Err(item.error(Problem::new(rule, "rename one of the two")).into());
            }
        }
        let tunnelled = tunnels::tunnelled(&file.virtual_hosts);
        let names = virtual_hosts::clusters_of(&file)
            .map(|it| ResourceName::new(ResourceKind::Cluster, it));
        let names = names.collect();
        let site = Site::root(&root);
        let lowered = self.with_context(findings, |context, values, around| {
            let multiplexes = |name: &str| around.multiplexes(name);
            let site_of_hosts = site.key("virtual_hosts");
            let hosts = &file.virtual_hosts;
            tunnels::check_rules(hosts, &site_of_hosts, &multiplexes, context.findings);
            virtual_hosts::build(file, &site, values, context)
        });
        let Some(virtual_hosts) = lowered else { return Ok(None) };
        Ok(Some((RouteConfig { virtual_hosts, tunnelled }, names)))
    }

    pub(super) fn routes(
        &mut self,
        item: &DeliveredVersion,
        findings: &mut Findings<'_>,
    ) -> LoweredEntry {
        let Some((config, names)) = self.lower_routes(item, findings)? else { return Ok(None) };
        let known = self.delivered.find(item.kind, &item.name);
        let former = known.and_then(|known| match &known.content {
            Content::Routes(config, _) => Some(config),
            _ => None,
        });
        let removed = self.delivered.removed_routes().get(&item.name);
        if removed.is_some() {
            self.restored_routes.insert(Arc::clone(&item.name));
        }
        // A listener that waits for it goes on with what it had until it is lowered again.
        let is_same = former.is_some_and(|former| former.leads_the_same(&config));
        if !is_same {
            self.moved.insert(ResourceName::new(item.kind, &item.name));
        }
        let kept: BTreeSet<_> = config.virtual_hosts.iter().map(|table| table.id).collect();
        let before = former.into_iter().chain(removed.map(|removed| &removed.config));
        let before = before.flat_map(|former| &former.virtual_hosts);
        let gone: Vec<_> = before.filter(|table| !kept.contains(&table.id)).cloned().collect();
        if !gone.is_empty() {
            // A listener that does not become another one now goes on with them.
            let gone = RouteConfig { virtual_hosts: gone, tunnelled: BTreeSet::default() };
            self.removed_routes.push((Arc::clone(&item.name), gone, None));
        }
        self.touched.tables.extend(config.virtual_hosts.iter().cloned());
        let asks = config.virtual_hosts.iter().any(|table| !table.runtime.is_empty());
        let text = asks.then(|| item.text.clone());
        Ok(Some(item.entry(Content::Routes(config, text), names)))
    }

    pub(super) fn listener(
        &mut self,
        item: &DeliveredVersion,
        findings: &mut Findings<'_>,
    ) -> LoweredEntry {
        let shapes = &self.loader.shapes;
        let Some((root, file)) = delivered::listener(shapes, &item.name, &item.text, findings)
        else {
            return Ok(None);
        };
        let known = self.delivered.find(item.kind, &item.name);
        let id = known.and_then(|known| match known.content {
            Content::Listener(_, id) => id,
            _ => None,
        });
        let site = Site::root(&root);
        let lowered = self.with_context(findings, |context, _, around| {
            let find = |name: &str| around.tables(name);
            listener::delivered::delivered(&file, &site, id, &find, context)
        });
        let Some(Lowered { resource, routes_missing, secrets_missing, .. }) = lowered else {
            return Ok(None);
        };
        let mut names: Vec<_> = delivered::secrets_of_listener(&file).collect();
        names.extend(
            listener::delivered::route_names(&file)
                .iter()
                .map(|it| ResourceName::new(ResourceKind::Route, it)),
        );
        let clusters = named_by_listener(&file);
        names.extend(clusters.map(|it| ResourceName::new(ResourceKind::Cluster, it)));
        let mut entry = item.entry(Content::Listener(item.text.clone(), id), names);
        let secrets = missing(ResourceKind::Secret, secrets_missing);
        let routes = missing(ResourceKind::Route, routes_missing);
        self.set_waits(item, &mut entry, secrets, routes)?;
        if !entry.waits_for.is_empty() {
            self.taken.roll_back(self.mark);
            return Ok(Some(entry));
        }
        self.check_bound(item, "free the address, or let the source deliver another")?;
        if let Some(id) = id.filter(|id| *id != resource.id) {
            self.touched.listeners_gone.push(id);
        }
        entry.content = Content::Listener(item.text.clone(), Some(resource.id));
        self.touched.listeners.push(resource);
        Ok(Some(entry))
    }

    /// Has a resource wait for what is not there, or serve without `others` once it has waited for too long.
    ///
    /// # Errors
    ///
    /// It has, and there are secrets among it: nothing takes their place.
    fn set_waits(
        &mut self,
        item: &DeliveredVersion,
        entry: &mut Entry,
        secrets: Vec<ResourceName>,
        others: Vec<ResourceName>,
    ) -> Result<(), Refusal> {
        if !item.has_waited {
            entry.waits_for = secrets.into_iter().chain(others).collect();
        } else if secrets.is_empty() {
            // Once it has all, it waits for what goes later as if it were new.
            entry.has_waited = !others.is_empty();
            entry.missing = others;
        } else {
            self.taken.roll_back(self.mark);
            let names = secrets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let rule = format!("{names} did not arrive within resolvers.initial_fetch_timeout");
            let hint = "let a source deliver it: this version is accepted then";
            let errors = item.error(Problem::new(rule, hint));
            return Err(Refusal { errors, missing: secrets });
        }
        Ok(())
    }

    /// What opens tunnels to a cluster, if anything does. Of route configurations that are delivered with the cluster it is
    /// the new version that counts, if it is going to be taken.
    fn tunnels_to(&mut self, cluster: &str) -> Option<String> {
        if self.loader.tunnelled_by_file.contains(cluster) {
            return Some("a rule of the file".to_owned());
        }
        let mut ending = BTreeSet::new();
        for (name, item) in std::mem::take(&mut self.asked) {
            if self.delivered.opens_tunnels(&name, cluster)
                && item.as_ref().is_none_or(|item| self.is_without_tunnels(item, cluster))
            {
                ending.insert(name.clone());
            }
            self.asked.insert(name, item);
        }
        self.delivered.tunnels_to(cluster, &|name| ending.contains(name))
    }

    /// Whether a version of a route configuration is good, and opens no tunnels to a cluster. Takes no ids.
    fn is_without_tunnels(&mut self, item: &DeliveredVersion, cluster: &str) -> bool {
        let (mark, before) = (self.mark, self.taken.mark());
        let text = item.text.clone();
        let mut findings = Findings::new(&item.origin(), &text);
        let lowered = self.lower_routes(item, &mut findings);
        self.taken.roll_back(before);
        self.mark = mark;
        if findings.into_result().is_err() {
            return false;
        }
        let Ok(Some((config, _))) = lowered else { return false };
        // It is refused if it opens tunnels to another cluster that becomes one of HTTP/2 with it.
        !config.tunnelled.contains(cluster)
            && !self
                .asked_http2
                .iter()
                .any(|(name, text)| config.tunnelled.contains(&**name) && self.is_http2(name, text))
    }

    /// Whether a version of a cluster has exchanges share connections of HTTP/2.
    fn is_http2(&self, name: &str, text: &str) -> bool {
        let mut findings = Findings::new("", text);
        let read = delivered::cluster(&self.loader.shapes, name, text, &mut findings);
        read.is_some_and(|(_, file)| file.protocol == cluster::file::Protocol::Http2)
    }
}

/// What was lowered, if nothing in it is wrong.
pub(super) type LoweredEntry = Result<Option<Entry>, Refusal>;

fn missing(kind: ResourceKind, names: BTreeSet<Box<str>>) -> Vec<ResourceName> {
    names.into_iter().map(|name| ResourceName { kind, name }).collect()
}
