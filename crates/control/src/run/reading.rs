//! When the configuration file is read, and what is reported of that to the service manager.
//!
//! `Builder` reads and builds on a thread of its own; here is when it begins. A file that is away, or files that do not
//! go together, are given a second before they count as mistakes: editors and deployments replace them one by one.

use telemetry::events::ConfigRejected;

use super::{Running, State};
use crate::builder::Reading;
use crate::clock;
use crate::watch::Noticed;
use crate::workers::Workers;

impl<W: Workers> Running<W> {
    pub(super) fn read_config(&mut self, reading: Reading) {
        if self.postpones_reading(reading) {
            return;
        }
        if self.is_ending() {
            self.config.builder.skip();
        } else {
            self.config.builder.read(reading);
        }
    }

    /// Reads what may have changed.
    pub(super) fn read_changed(&mut self, noticed: Noticed) {
        // What is looked at later is looked at now, too: nothing else may take that back.
        let is_open = self.config.trouble.is_open();
        match noticed {
            Noticed::Files(names) if !is_open && !self.is_ending() => {
                if !self.postpones_reading(Reading::IfChanged) {
                    self.config.builder.read_files(names);
                }
            }
            _ => self.read_config(Reading::IfChanged),
        }
    }

    /// Reads the file once it has been away for too long, which says why it cannot be read; and once
    /// files that it names have not gone together for too long, such as a certificate and its key.
    pub(super) fn miss_file(&mut self) {
        if self.config.trouble.take_missed() {
            self.read_config(Reading::UnlessSame);
        }
        if self.config.trouble.take_unsettled() {
            self.read_config(Reading::Anyway);
        }
        if let Some(refused) = self.config.trouble.take_not_renewed() {
            let (at, errors) = (clock::wall_ns(), refused.count());
            let reasons = refused.to_log(self.config.builder.file_name());
            tracing::error!(
                "files that the configuration in effect names changed and are refused; those of before stay in use:\n{reasons}"
            );
            self.collector.config_rejected(&ConfigRejected { errors, at });
            self.config.named_refused = Some((at, refused));
        }
    }

    /// Files that the configuration in effect names changed, and are used.
    pub(super) fn on_renewed(&mut self) {
        self.config.trouble.on_renewed();
        self.config.named_refused = None;
    }

    /// A change that could not be read for lack of descriptors is looked at until it can: nothing else
    /// would tell of it again.
    pub(super) fn look_again(&mut self) {
        if self.config.trouble.take_due() {
            self.read_config(Reading::UnlessSame);
        }
    }

    pub(super) fn on_starved(&mut self) {
        self.config.trouble.on_starved();
        if self.is_descriptor_warning_due() {
            let file = self.config.builder.file_name();
            tracing::warn!(
                "no file descriptor is left to read {file} and the files that it names: Strait tries \
                 again every second; raise the limit on open files (ulimit -n, LimitNOFILE=) or \
                 lower limits.connections_max"
            );
        }
    }

    /// On request: also if nothing changed.
    pub(super) fn reload(&mut self) {
        if !self.config.builder.has_file() {
            tracing::warn!("there is no configuration file to read again");
        } else if self.is_ending() {
            self.config.builder.skip();
            self.warn_of_skip();
        } else if let Some(pid) = self.handing.successor() {
            tracing::warn!(
                "process {pid} has taken over and reads the file: send SIGHUP to that process"
            );
        } else {
            self.report_reloading();
            self.bind_lost();
            self.read_config(Reading::Anyway);
        }
    }

    pub(super) fn warn_of_skip(&self) {
        let (file, state) = (self.config.builder.file_name(), self.state_text());
        tracing::warn!("{file} is not read again: the process is {state}");
    }

    fn report_reloading(&mut self) {
        if self.state == State::Ready {
            self.is_reloading = true;
            let status = format!("reading {}", self.config.builder.file_name());
            self.service_manager.reloading(clock::boot_ns() / 1_000, &status);
        }
    }

    /// Ends a reload, once no question about the file is open.
    pub(super) fn report_reloaded(&mut self) {
        let is_open = self.config.builder.is_busy() || self.config.warming.is_holding();
        if self.state != State::Ready || is_open {
            return;
        }
        let status = self.status();
        if std::mem::take(&mut self.is_reloading) {
            self.service_manager.ready(&status);
        } else {
            self.service_manager.status(&status);
        }
    }

    /// What serves, in a line.
    pub(super) fn status(&self) -> String {
        let config = &self.config;
        let served = format!("configuration version {} serves", config.snapshot.version);
        match &config.refused {
            Some((at, refused)) => {
                let (count, at) = (refused.count(), clock::rfc3339(*at));
                format!("{served}; a later one was refused at {at}, mistakes: {count}")
            }
            None => served,
        }
    }

    /// Asks the workers whether they are alive, where the service manager wants to know.
    pub(super) fn report_alive(&mut self) {
        self.service_manager.flush();
        let now = clock::monotonic_ns();
        if !self.service_manager.is_watchdog_due(now) {
            return;
        }
        let is_serving = matches!(self.state, State::Ready | State::Leaving);
        let count = if is_serving { self.workers.count() } else { 0 };
        let first = self.describe_next;
        self.describe_next += u64::from(count);
        self.service_manager.on_asked(first..self.describe_next, now);
        for (worker, request) in (0..count).zip(first..) {
            self.workers.ask_alive(worker, request);
        }
    }
}
