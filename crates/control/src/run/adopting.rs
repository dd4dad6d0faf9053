//! What control goes on with that another process knew.

use serde_json::{Map, Value};
use telemetry::FormerTotals;

use super::handing::Handing;
use super::{Reading, Running, State, breakers};
use crate::admin::own_admin_files;
use crate::handover::{FormerState, KeptAdmin};
use crate::workers::Workers;

impl<W: Workers> Running<W> {
    /// Adds what a former process has counted, or one that gave this one's place back by a handover.
    pub(super) fn add_totals(&mut self, totals: FormerTotals, returned: Option<u64>) {
        if totals.is_empty() {
            return;
        }
        match returned {
            Some(handover) => self.collector.set_returned_totals(handover, totals),
            None => self.collector.set_former_totals(totals),
        }
    }

    /// Goes on with what another process knew of endpoints, and, if it `is_newer`, has measured since this one did.
    pub(super) fn adopt_health(&mut self, written: &[u8], is_newer: bool) {
        let Some(written) = self.health.read(written) else { return };
        self.health.adopt(&self.config.snapshot, &written, is_newer);
        if let Some(drained) = written.get("drained") {
            self.config.drains.adopt(drained);
        }
        self.hand_noted();
        if let Some(over) = written.get("runtime").and_then(Value::as_object) {
            self.adopt_runtime(over);
        }
        if let Some(measured) = written.get("concurrency").and_then(Value::as_object) {
            breakers::adopt_measured(&self.config.snapshot, measured, is_newer);
        }
    }

    /// Puts the values over those of the file that operators had put over them in a former process.
    fn adopt_runtime(&self, over: &Map<String, Value>) {
        let runtime = &self.config.snapshot.runtime;
        for used in runtime.iter() {
            let name = used.cell.name();
            let value = over.get(name).and_then(|it| serde_json::from_value(it.clone()).ok());
            if let (Some(written), None) = (over.get(name), &value) {
                tracing::warn!(
                    "runtime {name}: its override is dropped, because {written} is no value in this version"
                );
            }
            if value != used.cell.get() {
                // It is used: it is one of these.
                let _ = runtime.put_over(&[(name.to_owned(), value)]);
            }
        }
        for name in over.keys().filter(|name| !runtime.iter().any(|it| it.cell.name() == **name)) {
            tracing::warn!("runtime {name}: no rule uses it any more, and its override is dropped");
        }
    }

    /// Gives the listening sockets, and those files of unix sockets that are this process's own, what this configuration says: another
    /// process may have given them something else. Not earlier: until now they were that one's, which might have gone on.
    pub(super) fn own_sockets(&mut self) {
        self.workers.set_socket_options(&self.config.snapshot);
        if let Some(mode) = self.config.snapshot.startup.admin_mode {
            self.admin_handles.set_mode(mode);
        }
        self.bind_lost();
    }

    /// Binds unix listeners and sockets of the admin interface anew whose files were removed, or are stale.
    pub(super) fn bind_lost(&mut self) {
        if self.handing == Handing::None && self.state == State::Ready {
            let listeners = self.workers.bind_lost(&self.config.snapshot);
            self.store_again(&listeners);
            let mode = self.config.snapshot.startup.admin_mode;
            for (socket, scope) in self.admin_handles.bind_lost(mode) {
                self.serve_anew(socket, scope);
            }
        }
    }

    /// Becomes the process that serves. `returned`: by which handover it has its place back, if it had had it before.
    pub(super) fn take_over(&mut self, state: FormerState, returned: Option<u64>) {
        self.add_totals(state.totals, returned);
        self.handing = Handing::None;
        self.adopt_health(&state.health, true);
        self.kept.read();
        self.hold_kept();
        own_admin_files(true);
        self.own_sockets();
        self.admin_handles.set_kept(KeptAdmin::default());
        self.serve_admin();
        if returned.is_some() {
            self.service_manager.status(&self.status());
            // The other process may have had newer answers.
            self.config.dns.ask_again();
            // What changed since may be the reason.
            self.read_config(Reading::IfTextIsSame);
        } else {
            self.read_config(Reading::IfChanged);
        }
    }
}
