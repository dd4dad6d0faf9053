//! How a process comes up, and how it ends.
//!
//! Order: configuration, descriptors, sockets, then threads. Whatever can fail has failed before
//! the first connection is accepted.

use std::net::SocketAddr;
use std::sync::Arc;

use config::Loader;
use config::snapshot::{Address, ListenerId};
use control::{
    AdminSocket, Answerers, ConfigFile, Control, LogWriter, Outcome, Parts, Refused,
    ServiceManager, Workers,
};
use proxy::Snapshot;
use proxy::filter::Filter;
use telemetry::{Collector, Emitter, LogReader, RECORD_QUEUE_BYTES};
use tokio::sync::mpsc;

use crate::activation::Activation;
use crate::arguments::Run;
use crate::cores::WorkerCount;
use crate::data_path::{DataPath, address_text, hint};
use crate::descriptors::Descriptors;
use crate::filter_list::filter_kinds;
use crate::secrecy::{self, CoreDumps};
use crate::{COMMIT, Failure, VERSION, handover, logging};

/// Reports that wait for control, besides those in the workers' own queue.
const REPORTS_MAX: usize = 1024;

/// Where a process came up.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) listeners: Vec<(ListenerId, Option<SocketAddr>)>,
    pub(crate) admin: Option<SocketAddr>,
}

/// `strait run`.
pub(crate) fn run(run: &Run) -> Result<(), Failure> {
    // Before anything is opened.
    let activation =
        Activation::from_environment(|name| std::env::var_os(name), std::process::id())?;
    logging::start(&run.log).map_err(|error| Failure::Start(error.to_string()))?;
    secrecy::key_log(run)?;
    let core_dumps = if run.core_dumps { CoreDumps::ALLOWED } else { CoreDumps::UNTIL_KEYS };
    serve(ConfigFile::new(&run.config, loader()?), core_dumps, activation, |_| Ok(()))
}

/// A loader that knows every filter.
pub(crate) fn loader() -> Result<Loader<Box<dyn Filter>>, Failure> {
    Loader::new(filter_kinds()?).map_err(Failure::Filters)
}

/// Serves `config` until a signal or the admin interface ends the process. `came` is called once
/// all is bound.
pub(crate) fn serve(
    mut config: ConfigFile<Box<dyn Filter>>,
    mut core_dumps: CoreDumps,
    activation: Activation,
    came: impl FnOnce(&Came) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let candidate = config.load().map_err(Failure::Config)?;
    let snapshot = Arc::clone(candidate.snapshot());
    activation.check_use(&snapshot)?;
    core_dumps.on_snapshot(&snapshot);
    let workers = worker_count(&snapshot)?;
    let count = workers.count;
    let open_files_max = io::limits::raise_open_files().unwrap_or_else(|error| {
        tracing::warn!("the limit on open files cannot be raised: {error}");
        io::limits::open_files_max()
    });

    let start = |error: std::io::Error| Failure::Start(error.to_string());
    let (mut data_path, crew) = DataPath::new(count, core_dumps, activation).map_err(start)?;
    let bound = data_path
        .bind(&snapshot)
        .map_err(|failures| Failure::Config(Refused::Unbindable(failures)))?;
    let mut first = config.keep(candidate);
    let bind_admin = |address| bind_admin(address, data_path.activation());
    let admin = snapshot.startup.admin.as_ref().map(bind_admin).transpose()?;
    let metrics = snapshot.startup.metrics.as_ref().map(bind_admin).transpose()?;
    let bound_at = |socket: &Option<AdminSocket>| socket.as_ref()?.local_address().ok().flatten();
    let addresses = Came { listeners: bound.addresses.clone(), admin: bound_at(&admin) };

    let open = io::limits::open_files().unwrap_or_default();
    let descriptors = Descriptors::divide(open_files_max, open, count);
    let mut collector = Collector::new(VERSION).built_from(COMMIT);
    let mut reader = LogReader::new();
    let mut emitters = Vec::new();
    for _ in 0..count {
        let (emitter, reports) = Emitter::new(RECORD_QUEUE_BYTES);
        collector.add_worker(reports.counters);
        reader.add_worker(reports.records);
        emitters.push(emitter);
    }
    let (sender, reports) = mpsc::channel(REPORTS_MAX);
    tracing::info!(
        version = VERSION,
        commit = COMMIT,
        config = config.name(),
        workers = count,
        workers_from = %workers,
        descriptors = descriptors.limit,
        admin = %admin_text(snapshot.startup.admin.as_ref(), addresses.admin),
        metrics = %admin_text(snapshot.startup.metrics.as_ref(), bound_at(&metrics)),
        "starting"
    );
    for (id, address) in &addresses.listeners {
        if let Some((_, listener)) = snapshot.listener(*id) {
            let address =
                address.map_or_else(|| address_text(&listener.address), |a| a.to_string());
            tracing::info!(listener = %listener.name, %address, "listening");
        }
    }
    descriptors.warn(&snapshot.limits);
    let log = LogWriter::start(reader, &mut first).map_err(start)?;
    data_path
        .start(crew, &snapshot, bound.sockets, emitters, sender, descriptors)
        .map_err(start)?;
    drop(snapshot);
    let control = Control::new(Parts {
        config,
        first,
        addresses: bound.addresses,
        workers: data_path,
        reports,
        log,
        collector,
        admin,
        metrics,
        answerers: Answerers::default(),
        service_manager: service_manager(),
        version: VERSION,
    });
    came(&addresses)?;
    match control.run() {
        Outcome::Drained => Ok(()),
        Outcome::Stopped => Err(Failure::Ended("stopped before everything had ended".to_owned())),
        Outcome::Failed(reason) => Err(Failure::Ended(reason)),
    }
}

/// The service manager that started this process, if one did.
fn service_manager() -> ServiceManager {
    ServiceManager::from_environment(|name| std::env::var_os(name), std::process::id())
        .unwrap_or_else(|error| {
            tracing::warn!("NOTIFY_SOCKET: {error}; nothing is reported to the service manager");
            ServiceManager::default()
        })
}

/// Where the admin interface listens: as the file says, but with the port that it got.
fn admin_text(asked: Option<&Address>, bound: Option<SocketAddr>) -> String {
    match (bound, asked) {
        (Some(bound), _) => bound.to_string(),
        (None, Some(asked)) => address_text(asked),
        (None, None) => "none".to_owned(),
    }
}

/// How many workers a process with this configuration has, and why.
pub(crate) fn worker_count(snapshot: &Snapshot) -> Result<WorkerCount, Failure> {
    match snapshot.startup.workers {
        Some(count) => Ok(WorkerCount::configured(count.get())),
        None => WorkerCount::automatic()
            .map_err(|error| Failure::Start(format!("counting cores: {error}"))),
    }
}

fn bind_admin(address: &Address, activation: &Activation) -> Result<AdminSocket, Failure> {
    let socket = match activation.find(address) {
        Some(inherited) => inherited.try_clone().map(|fd| AdminSocket::inherit(fd, address)),
        None => handover::bind(address),
    };
    socket.map_err(|error| {
        let (address, hint) = (address_text(address), hint(&error));
        Failure::Start(format!("the admin interface cannot listen on {address}: {error}; {hint}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_interface_is_reported_with_its_port_or_its_path() {
        let (asked, bound) = ("127.0.0.1:0".parse().unwrap(), "127.0.0.1:9901".parse().unwrap());
        assert_eq!(admin_text(Some(&asked), Some(bound)), "127.0.0.1:9901");
        let unix = "unix:/run/strait.sock".parse().unwrap();
        assert_eq!(admin_text(Some(&unix), None), "unix:/run/strait.sock");
        assert_eq!(admin_text(None, None), "none");
    }
}
