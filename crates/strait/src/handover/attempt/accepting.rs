//! Which of both processes accepts connections, and from which sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::handover::UnusedSocket;
use control::{HandoverChange, HandoverStep, KeptAdmin};
use worker::{KeptListener, Message as Mail};

use super::Attempt;

/// What this process accepts.
#[derive(Default)]
pub(super) struct Accepting {
    /// Sockets from which only this process accepts, once the other one accepts from all others.
    kept: Option<Arc<[KeptListener]>>,
    /// The sockets of the admin interface where only this process answers.
    kept_admin: KeptAdmin,
    /// Whether it accepts from all since the other one does not run.
    stands_in: bool,
}

impl Accepting {
    /// Whether it accepts from all of its sockets.
    pub(super) const fn is_on(&self) -> bool {
        self.kept.is_none()
    }

    /// Whether it accepts from all of them in the place of the other one, which does not run.
    pub(super) const fn stands_in(&self) -> bool {
        self.stands_in
    }

    pub(super) const fn kept_admin(&self) -> KeptAdmin {
        self.kept_admin
    }
}

impl Attempt<'_> {
    /// Leaves new connections to the other process, but those of sockets that it does not use: they are served here until the probation
    /// is over.
    pub(super) fn stop_accepting(&mut self, but: &[UnusedSocket]) {
        let snapshot = self.begun.as_ref().map(|begun| &begun.snapshot);
        let listeners = snapshot.into_iter().flat_map(|snapshot| snapshot.listeners.iter());
        let ids: BTreeMap<_, _> = match but {
            [] => BTreeMap::new(),
            _ => listeners.map(|listener| (&*listener.name, listener.id)).collect(),
        };
        let mut kept = Vec::new();
        for unused in but {
            match unused {
                UnusedSocket::Listener { name, address } => {
                    // It knows an address from the socket itself.
                    let address = address.as_deref().map(str::parse).transpose();
                    if let (Some(id), Ok(address)) = (ids.get(&**name), address) {
                        kept.push(KeptListener { id: *id, address });
                    }
                }
                UnusedSocket::Admin => self.accepting.kept_admin.all = true,
                UnusedSocket::Metrics => self.accepting.kept_admin.metrics = true,
            }
        }
        kept.sort_by_key(|kept| kept.id);
        // Before this process may end, or the files of unix sockets would go with it.
        io::own_socket_files(false);
        self.accepting.kept = Some(kept.into());
        self.accept_kept_alone();
    }

    fn accept_kept_alone(&self) {
        if let Some(but) = &self.accepting.kept {
            self.giving.contacts.deliver_to_all(|| Mail::StopAccepting { but: Arc::clone(but) });
        }
    }

    /// Accepts connections beside the new process, which does not run and cannot be ended. Sessions for early data are the other one's:
    /// none are valid here, as it may run again.
    pub(super) fn stand_in(&mut self) {
        self.accepting.stands_in = true;
        let pid = self.line.peer.pid;
        tracing::error!(
            pid,
            "the new process does not run any more, and this one cannot end it: this one accepts connections again until the new one \
             runs; end that one, or let it run"
        );
        // Those who connect to the socket of handovers go on to see the new process as the other one: it is the process again as soon as
        // it runs, and would not hear that it has to make itself seen there anew. Until then this one only refuses them.
        self.giving.contacts.deliver_to_all(|| Mail::AcceptAgain);
        self.become_again(|totals| HandoverChange::StandIn { totals });
    }

    /// The new process runs again, and is the process.
    pub(super) fn stand_back(&mut self) {
        self.accepting.stands_in = false;
        let pid = self.line.peer.pid;
        tracing::warn!(pid, "the new process runs again: this one accepts no more connections");
        self.accept_kept_alone();
        self.step(HandoverStep::Became(HandoverChange::StandBack));
    }
}
