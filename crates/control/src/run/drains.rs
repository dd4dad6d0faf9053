//! Endpoints that operators drain by the admin interface.
//!
//! A change reaches the builder once that has time, and is answered once workers have the configuration in which it counts.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use config::drained::{DRAINED_MAX, DrainChange, Drained};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::handing::Handing;
use super::{InEffect, Running, State};
use crate::admin::{Answer, Content};
use crate::names::address_text;
use crate::workers::Workers;

/// Addresses that an answer names where one is wrong.
const ADDRESSES_SHOWN_MAX: usize = 20;

/// The endpoints that operators drain.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// As of the last change, whether the builder knows of it or not.
    drained: Drained,
    /// Changes that the builder does not know of.
    changes: Vec<DrainChange>,
    /// What is answered with them.
    waiting: Vec<Reply>,
    /// The same of changes that the builder has.
    asked: Vec<Reply>,
}

/// Who hears that changes count.
#[derive(Debug)]
enum Reply {
    Operator(oneshot::Sender<Content>, Answer),
    Handover(oneshot::Sender<()>),
}

impl Drains {
    /// Answers changes that count now.
    pub(super) fn answer(&mut self) {
        for reply in self.asked.drain(..) {
            // The client may be gone, and who hands over may have given up.
            match reply {
                Reply::Operator(reply, answer) => drop(reply.send(answer.into())),
                Reply::Handover(reply) => drop(reply.send(())),
            }
        }
    }

    /// Answers changes that another process has, before they count here.
    pub(super) fn answer_waiting(&mut self) {
        self.asked.append(&mut self.waiting);
        self.answer();
    }

    /// Replies once all changes so far count.
    pub(super) fn reply_when_counted(&mut self, reply: oneshot::Sender<()>) {
        self.waiting.push(Reply::Handover(reply));
    }

    /// Writes them down for the process that takes this one's place.
    pub(super) fn write(&self) -> Value {
        let all = self.drained.iter();
        all.map(
            |(cluster, endpoint)| json!({ "cluster": cluster, "endpoint": address_text(endpoint) }),
        )
        .collect()
    }

    /// Goes on with what another process wrote down, which is all that is drained; what cannot be read is left out. Operators have said
    /// nothing to this process since that one had its place.
    pub(super) fn adopt(&mut self, written: &Value) {
        let read = |one: &Value| {
            let cluster = one["cluster"].as_str()?.into();
            let endpoint = one["endpoint"].as_str()?.parse().ok()?;
            Some(DrainChange { cluster, endpoint, is_drained: true })
        };
        let written: Vec<_> = written.as_array().into_iter().flatten().filter_map(read).collect();
        let named: BTreeSet<_> = written.iter().map(|it| (&it.cluster, &it.endpoint)).collect();
        let own = self.drained.iter().filter(|one| !named.contains(one));
        let taken_back = own.map(|(cluster, endpoint)| DrainChange {
            cluster: Arc::clone(cluster),
            endpoint: endpoint.clone(),
            is_drained: false,
        });
        let mut changes: Vec<_> = taken_back.collect();
        changes.extend(written);
        changes.retain(|change| self.drained.apply(change));
        self.changes.extend(changes);
    }
}

impl<F> InEffect<F> {
    /// Why an endpoint cannot be drained or taken back, if it cannot.
    fn check_drain(&self, change: &DrainChange) -> Result<(), Answer> {
        let DrainChange { cluster, endpoint, is_drained } = change;
        let of_cluster = self.drains.drained.of(cluster);
        if of_cluster.is_some_and(|drained| drained.contains(endpoint)) {
            return Ok(());
        }
        let found = self.snapshot.clusters.iter().find(|(_, it)| it.name == *cluster);
        let Some((_, found)) = found else {
            return Err(Answer::text(
                404,
                format!("there is no cluster {cluster:?}: see /clusters\n"),
            ));
        };
        let endpoints = &found.endpoints;
        if !endpoints.iter().any(|it| it.address == *endpoint) {
            let shown = endpoints.iter().take(ADDRESSES_SHOWN_MAX);
            let shown: Vec<_> = shown.map(|it| address_text(&it.address)).collect();
            let known = match endpoints.len() {
                0 => "none".to_owned(),
                len if len > ADDRESSES_SHOWN_MAX => format!("{} and others", shown.join(", ")),
                _ => shown.join(", "),
            };
            let endpoint = address_text(endpoint);
            let text = format!("cluster {cluster:?} has no endpoint {endpoint}, but {known}\n");
            return Err(Answer::text(404, text));
        }
        if *is_drained && self.drains.drained.len() >= DRAINED_MAX {
            let text = format!("{DRAINED_MAX} endpoints are drained: take some of them back\n");
            return Err(Answer::text(409, text));
        }
        Ok(())
    }
}

impl<W: Workers> Running<W> {
    /// An operator drains an endpoint, or takes it back.
    pub(super) fn on_drain(&mut self, change: DrainChange, reply: oneshot::Sender<Content>) {
        let refused = match self.handing.successor() {
            _ if self.is_ending() => {
                Some(Answer::text(409, format!("the process is {}\n", self.state_text())))
            }
            Some(pid) => {
                Some(Answer::text(409, format!("process {pid} has taken over: ask that one\n")))
            }
            _ => self.config.check_drain(&change).err(),
        };
        if let Some(answer) = refused {
            // The client may be gone.
            let _ = reply.send(answer.into());
            return;
        }
        let DrainChange { cluster, endpoint, is_drained } = &change;
        let (endpoint, drains) = (address_text(endpoint), &mut self.config.drains);
        let answer = if *is_drained { "drained" } else { "not drained" };
        let answer = Answer::text(200, format!("{endpoint} of cluster {cluster}: {answer}\n"));
        drains.waiting.push(Reply::Operator(reply, answer));
        if drains.drained.apply(&change) {
            match is_drained {
                true => tracing::info!(
                    cluster = &**cluster,
                    endpoint,
                    "endpoint drained by the admin interface: it gets no new requests"
                ),
                false => tracing::info!(
                    cluster = &**cluster,
                    endpoint,
                    "endpoint not drained any more: the admin interface took it back"
                ),
            }
            drains.changes.push(change);
        }
        self.hand_noted();
    }

    /// Hands over to the builder which endpoints are drained. Nothing is changed during a handover.
    pub(super) fn hand_drains(&mut self) {
        let InEffect { drains, builder, .. } = &mut self.config;
        // A process that takes another's place, or its own again, drains as that one did.
        let is_handing = matches!(self.handing, Handing::Giving { .. } | Handing::Given { .. });
        if (drains.changes.is_empty() && drains.waiting.is_empty()) || is_handing {
            return;
        }
        if matches!(self.state, State::Draining | State::Stopping) {
            *drains = Drains::default();
            return;
        }
        drains.asked.append(&mut drains.waiting);
        match mem::take(&mut drains.changes) {
            changes if changes.is_empty() => {}
            changes => builder.note_drained(changes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_does_not_name_is_not_drained_any_more() {
        let mut drains = Drains::default();
        let list = |ports: &[u16]| -> Value {
            let one = |port| json!({ "cluster": "web", "endpoint": format!("10.0.0.1:{port}") });
            ports.iter().map(one).collect()
        };
        let mut changes = |written: &[u16]| {
            drains.adopt(&list(written));
            let changes = mem::take(&mut drains.changes).into_iter();
            changes.map(|it| (address_text(&it.endpoint), it.is_drained)).collect::<Vec<_>>()
        };
        let at = |port: u16, is_drained| (format!("10.0.0.1:{port}"), is_drained);
        assert_eq!(changes(&[1, 2]), [at(1, true), at(2, true)]);
        assert_eq!(changes(&[2, 3]), [at(1, false), at(3, true)]);
        assert_eq!(changes(&[2, 3]), []);
        assert_eq!(changes(&[]), [at(2, false), at(3, false)]);
    }
}
