//! What control goes on with that another process knew.

use std::path::PathBuf;

use config::file_mode::FileMode;
use config::snapshot::{Address, Snapshot};
use serde_json::{Map, Value};
use telemetry::FormerTotals;

use super::handing::Handing;
use super::{Reading, Running, breakers};
use crate::admin::{own_admin_files, set_socket_mode};
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
        let Ok(written) = serde_json::from_slice::<Value>(written) else { return };
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

    /// Gives the listening sockets, and the files of those of unix, what this configuration says: another process may have given them
    /// something else. Not earlier: until now they were that one's, which might have gone on.
    pub(super) fn own_sockets(&self) {
        self.workers.set_socket_options(&self.config.snapshot);
        set_socket_modes(&self.config.snapshot, &[]);
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

/// Gives the files of unix sockets that another process has bound the modes of this configuration; those in `own`, which a former
/// process of this program has bound for a listener, also the mode that they have without that option.
pub fn set_socket_modes<F>(snapshot: &Snapshot<F>, own: &[PathBuf]) {
    let usual = |address: &Address| match address {
        Address::Unix(path) if own.iter().any(|it| **it == **path) => Some(FileMode::GROUP),
        _ => None,
    };
    let listeners = snapshot.listeners.iter().flat_map(|listener| {
        let mode = listener.socket.mode;
        listener.addresses.iter().map(move |address| (address, mode.or_else(|| usual(address))))
    });
    let startup = &snapshot.startup;
    let admin = startup.admin.iter().chain(&startup.metrics);
    let admin = admin.map(|address| (address, startup.admin_mode));
    for (address, mode) in listeners.chain(admin) {
        let (Address::Unix(path), Some(mode)) = (address, mode) else { continue };
        if let Err(error) = set_socket_mode(path, mode) {
            tracing::warn!("{}: cannot set mode {mode}: {error}", path.display());
        }
    }
}
