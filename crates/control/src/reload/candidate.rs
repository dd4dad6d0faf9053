//! What was made of a configuration, and does not count before it is kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::snapshot::{DnsName, Snapshot};
use config::{
    EndpointsOutcome, Finding, NamesChanged, Prepared, ResourceName, Update, Verdict, Waits,
};
use telemetry::Names;
use zeroize::Zeroizing;

use super::Refused;
use crate::dns::Known;
use crate::expiry::Expiry;
use crate::files::Included;
use crate::log_output::LogOutput;

/// A snapshot made from the file, which does not count before it is kept.
#[derive(Debug)]
pub struct Candidate<F> {
    pub(super) prepared: Prepared<F>,
    pub(super) log_output: Option<LogOutput>,
    pub(super) names: Arc<Names>,
    pub(super) expiry: Expiry,
    pub(super) duration: u64,
    /// What it was made of.
    pub(super) text: Zeroizing<String>,
    /// What that text includes.
    pub(super) included: Included,
}

/// What became of files of endpoints that changed, of host names, or of what sources deliver.
#[derive(Debug)]
pub(crate) struct Endpoints<F> {
    /// A snapshot with other endpoints, if any differ.
    pub(crate) candidate: Option<Box<EndpointsCandidate<F>>>,
    /// Of each file.
    pub(crate) outcomes: Vec<EndpointsOutcome>,
    /// If sources brought them, what became of that.
    pub(crate) delivered: Option<Box<DeliveredUpdates>>,
    /// Whether host names brought them.
    pub(crate) is_dns: bool,
}

/// What became of what sources deliver.
#[derive(Debug)]
pub(crate) struct DeliveredUpdates {
    /// What was delivered, each resource once.
    pub(crate) updates: Vec<Update>,
    /// Of each of these, in the same order.
    pub(crate) verdicts: Vec<Verdict>,
    /// Of others, with their sources.
    pub(crate) late: Vec<(Arc<str>, Verdict)>,
    /// What other sources may have, as far as that is not what it was.
    pub(crate) wanted: NamesChanged,
    /// What listeners and clusters wait for that are new or others, which may be nothing.
    pub(crate) waits: Vec<Waits>,
    /// What looks like a mistake where there is no other snapshot.
    pub(crate) warnings: Vec<Finding>,
}

/// There was no descriptor to read a file with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starved;

/// A snapshot that differs in endpoints alone, and does not count before it is kept.
#[derive(Debug)]
pub(crate) struct EndpointsCandidate<F> {
    pub(super) prepared: Prepared<F>,
    /// The names of everything in it, if they may be others.
    pub(crate) names: Option<Arc<Names>>,
    /// The certificates in it, if they may be others.
    pub(crate) expiry: Option<Expiry>,
    /// Reading and linking took this long, ns.
    pub(crate) duration: u64,
}

impl<F> EndpointsCandidate<F> {
    pub(super) const fn new(prepared: Prepared<F>, duration: u64) -> Self {
        Self { prepared, names: None, expiry: None, duration }
    }

    /// The snapshot.
    pub(crate) const fn snapshot(&self) -> &Arc<Snapshot<F>> {
        self.prepared.snapshot()
    }

    /// What looks like a mistake in the files that changed.
    pub(crate) fn warnings(&self) -> &[Finding] {
        self.prepared.warnings()
    }
}

/// What control keeps of a candidate that is taken up. It was made beside the snapshot, since all of
/// it takes longer the larger the configuration is.
#[derive(Debug)]
pub(crate) struct TakenUp {
    pub(crate) warnings: Vec<Finding>,
    /// What came of each file of endpoints that it names.
    pub(crate) endpoints_read: Vec<EndpointsOutcome>,
    pub(crate) log_output: Option<LogOutput>,
    pub(crate) names: Arc<Names>,
    pub(crate) expiry: Expiry,
    /// What other sources may have.
    pub(crate) wanted: BTreeSet<ResourceName>,
    /// What became of resources of other sources.
    pub(crate) late: Vec<(Arc<str>, Verdict)>,
    /// What these wait for that are others, which may be nothing.
    pub(crate) waits: Vec<Waits>,
    /// Its host names.
    pub(crate) host_names: BTreeSet<Arc<DnsName>>,
    /// Reading and building took this long, ns.
    pub(crate) duration: u64,
}

impl<F> Candidate<F> {
    /// The snapshot.
    #[must_use]
    pub const fn snapshot(&self) -> &Arc<Snapshot<F>> {
        self.prepared.snapshot()
    }

    /// Counts it as the successor of this version of another process, whose place this one takes.
    pub fn continue_versions(&mut self, version: u64) {
        self.prepared.continue_versions(version);
    }

    /// Looks whether its access log can be written, for a process that takes another's place.
    ///
    /// # Errors
    ///
    /// The file system of the log is full.
    pub fn check_room(&self) -> Result<(), Refused> {
        let log = self.log_output.as_ref();
        log.map_or(Ok(()), LogOutput::check_room).map_err(Refused::AccessLog)
    }

    /// What looks like a mistake in it.
    pub(crate) fn warnings(&self) -> &[Finding] {
        self.prepared.warnings()
    }

    /// Whether it has to wait for first answers of DNS.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.unanswered().is_empty()
    }

    /// The host names among its endpoints.
    #[must_use]
    pub fn host_names(&self) -> BTreeSet<Arc<DnsName>> {
        self.prepared.names().into_iter().flatten().cloned().collect()
    }

    /// Those of them without an answer.
    pub(crate) fn unanswered(&self) -> &[Arc<DnsName>] {
        self.prepared.unanswered()
    }

    /// What control keeps, once.
    pub(crate) fn take_up(&mut self) -> TakenUp {
        TakenUp {
            warnings: self.prepared.warnings().to_vec(),
            endpoints_read: self.prepared.endpoints_read().to_vec(),
            log_output: self.log_output.take(),
            names: Arc::clone(&self.names),
            expiry: std::mem::take(&mut self.expiry),
            wanted: self.prepared.wanted().clone(),
            late: self.prepared.late().to_vec(),
            waits: self.prepared.waits(),
            host_names: self.host_names(),
            duration: self.duration,
        }
    }
}

/// A snapshot that is taken up.
#[derive(Debug)]
pub struct Accepted<F> {
    /// The snapshot, which workers have or are about to have.
    pub snapshot: Arc<Snapshot<F>>,
    /// What is allowed but looks like a mistake.
    pub(crate) warnings: Vec<Finding>,
    /// Where access log lines go under it.
    pub(crate) log_output: Option<LogOutput>,
    /// The names of everything in it.
    pub(crate) names: Arc<Names>,
    /// What other sources may have.
    pub(crate) wanted: BTreeSet<ResourceName>,
    /// What came of each file of endpoints that it names.
    pub(crate) endpoints_read: Vec<EndpointsOutcome>,
    /// Its host names, with what is known of them.
    pub(crate) known: Known,
    /// Reading and building took this long, ns.
    pub(crate) duration: u64,
}
