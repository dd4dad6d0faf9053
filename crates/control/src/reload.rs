//! From the configuration file to an accepted snapshot, or to the reasons why not.

mod candidate;
mod refused;
mod renewal;
mod text;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::drained::DrainChange;
use config::snapshot::{Listener, Snapshot};
use config::{Loader, PreparedEndpoints, PreparedUpdates, ResourceName, Unbound, Update, Waits};
use telemetry::Names;
use tls::ProcessSessions;
use zeroize::Zeroizing;

pub use self::candidate::{Accepted, Candidate};
pub(crate) use self::candidate::{
    DeliveredUpdates, Endpoints, EndpointsCandidate, Starved, TakenUp,
};
pub use self::refused::Refused;
pub(crate) use self::refused::checked;
pub(crate) use self::renewal::NotRenewed;
use self::renewal::TextInUse;
pub use self::text::{handover_options, read_text};
use self::text::{is_stream, read, read_again, text_of};
use crate::clock;
use crate::dns::{Change, Known, Status};
use crate::expiry::Expiry;
use crate::files::{EndpointFiles, Files, Seen, Stamp, State, is_starved};
use crate::last_good::{DeliveredResources, Divided, LastGood, Resumed, ResumedPart};
use crate::log_output::{LogOutput, OpenError};
use crate::names::names_after;
use crate::source::{RestoredPart, Source};
use crate::warming::listed;

/// Where the configuration comes from, with what was made of it so far.
#[derive(Debug)]
pub struct ConfigFile<F> {
    path: Option<PathBuf>,
    name: String,
    /// The text, if there is no file.
    text: Zeroizing<String>,
    /// The text that counts, whatever became of later ones.
    in_use: Option<TextInUse>,
    /// What the file was like at the last look; none before the first.
    state: Option<State>,
    /// Whether that is not loaded until it changes again.
    is_skipped: bool,
    /// As long as it is this, the file need not be read to see that.
    stamp: Option<Stamp>,
    /// Whether it is a pipe or the like, which is read once.
    is_stream: bool,
    /// The files that it named then.
    seen: Seen,
    /// The files of endpoints among them, until what was loaded counts.
    endpoints_loaded: EndpointFiles,
    /// The files of endpoints of what counts. They are followed whatever becomes of a later text.
    endpoints: EndpointFiles,
    /// Whether the access log could not be opened then, for lack of descriptors.
    is_log_starved: bool,
    /// The names of the snapshot that was kept last.
    names: Arc<Names>,
    /// The host names of the snapshot that was kept first, and what was known of them then.
    known: Known,
    /// What a former process left in the folder `state`.
    last_good: LastGood,
    /// The sources beside it, in the order in which they go before each other.
    sources: Vec<&'static str>,
    /// What it began with of another process.
    resumed: Resumed,
    loader: Loader<F>,
}

/// What a look at the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is new.
    Same,
    /// It, or a file that it names, reads differently.
    Changed,
    /// It cannot be read, unlike last time or for another reason: it may be on its way.
    Unreadable,
    /// There is no descriptor to look with.
    Starved,
}

impl<F> ConfigFile<F> {
    /// The configuration in the file at `path`.
    #[must_use]
    pub fn new(path: &Path, loader: Loader<F>) -> Self {
        let name = path.display().to_string();
        Self { path: Some(path.to_owned()), name, ..Self::fixed("", String::new(), loader) }
    }

    /// A configuration that never changes.
    #[must_use]
    pub fn fixed(name: &str, text: String, loader: Loader<F>) -> Self {
        Self {
            path: None,
            name: name.to_owned(),
            text: Zeroizing::new(text),
            in_use: None,
            state: None,
            is_skipped: false,
            stamp: None,
            is_stream: false,
            seen: Seen::default(),
            endpoints_loaded: EndpointFiles::default(),
            endpoints: EndpointFiles::default(),
            is_log_starved: false,
            names: Arc::default(),
            known: Known::default(),
            last_good: LastGood::default(),
            sources: Vec::new(),
            resumed: Resumed::default(),
            loader,
        }
    }

    /// The process's own keys of session tickets, which go along when another process takes its place.
    #[must_use]
    pub fn sessions(&self) -> ProcessSessions {
        self.loader.sessions().clone()
    }

    /// The file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file and those that it named when it was read last; empty if there is none.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let in_use = self.in_use.iter().flat_map(TextInUse::paths);
        let named = self.seen.paths().chain(in_use).chain(self.endpoints_loaded.paths());
        let named: BTreeSet<_> = named.chain(self.endpoints.paths()).map(Path::to_owned).collect();
        self.path.iter().cloned().chain(named).collect()
    }

    /// What the file is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the file, and those that it names but for endpoints, compare with last time.
    pub(crate) fn look(&mut self) -> Look {
        let Some(path) = self.path.as_deref().filter(|_| !self.is_stream) else {
            return Look::Same;
        };
        let stamp = Stamp::of(path);
        let is_known = stamp.is_some() && stamp == self.stamp;
        let is_named_changed = match self.is_skipped {
            // What else changes is looked at with the text that counts.
            true => self.seen.is_text_changed(),
            false => self.seen.is_changed() || self.are_refused_changed(),
        };
        if is_known && !self.is_log_starved && !is_named_changed {
            return Look::Same;
        }
        let content = read_again(path);
        let is_same = self.state == Some(State::of(&content));
        if is_same {
            self.stamp = stamp;
        }
        match content {
            Ok(_) if is_same && !self.is_log_starved && !is_named_changed => Look::Same,
            Err(error) if is_starved(&error) => Look::Starved,
            Ok(_) => Look::Changed,
            Err(_) if is_same => Look::Same,
            Err(_) => Look::Unreadable,
        }
    }

    /// Whether a file of endpoints has changed that only a text names which does not count: it may count now.
    fn are_refused_changed(&self) -> bool {
        self.endpoints_loaded.is_any_changed_beside(&self.endpoints)
    }

    /// Whether the text, and not what it names, reads as when it was loaded last.
    pub(crate) fn is_text_same(&self) -> bool {
        let path = self.path.as_deref().filter(|_| !self.is_stream);
        path.is_some_and(|path| self.state == Some(State::of(&read_again(path))))
    }

    /// The same of the text with what it includes.
    pub(crate) fn are_texts_same(&self) -> bool {
        self.is_text_same() && !self.seen.is_text_changed()
    }

    /// Whether something could not be read or opened for lack of descriptors when it was loaded last.
    pub(crate) fn is_starved(&self) -> bool {
        match self.state {
            Some(State::Starved) => true,
            // What it named was not read.
            Some(State::Unreadable(_)) => false,
            Some(State::Digest(_) | State::Listing(_)) | None => {
                self.is_log_starved || self.seen.is_starved() || self.endpoints_loaded.is_starved()
            }
        }
    }

    /// Takes the file for read as it is, so that only a further change of its text is one.
    pub(crate) fn skip(&mut self) {
        self.set_text_apart();
        self.is_skipped = true;
        self.state = self.path.as_deref().map(|path| State::of(&read_again(path)));
        self.seen.refresh();
    }

    /// Reads the file and makes a snapshot of it, the successor of the last one that was kept.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn load(&mut self) -> Result<Candidate<F>, Refused> {
        let began = clock::monotonic_ns();
        self.is_skipped = false;
        // Until it is known to be the same.
        self.set_text_apart();
        let text = if let Some(path) = &self.path {
            self.stamp = Stamp::of(path);
            let content = if self.state.is_none() {
                self.is_stream = is_stream(path);
                read(path)
            } else {
                read_again(path)
            };
            self.state = Some(State::of(&content));
            Zeroizing::new(text_of(path, content)?)
        } else {
            self.text.clone()
        };
        self.build(text, began)
    }

    /// Makes a snapshot of this text.
    fn build(&mut self, text: Zeroizing<String>, began: u64) -> Result<Candidate<F>, Refused> {
        let files = self.files();
        let prepared = self.loader.prepare(&self.name, &text, &files);
        let (folder, included) = (files.folder().to_owned(), files.take_included());
        if let Some(in_use) = &mut self.in_use {
            in_use.compare(&text, &included, self.is_stream);
        }
        (self.seen, self.endpoints_loaded) = files.into_seen();
        let prepared = prepared.map_err(Refused::Invalid)?;
        let access_log = &prepared.snapshot().access_log;
        let log_output = LogOutput::open(access_log, &folder);
        self.is_log_starved = log_output.as_ref().is_err_and(OpenError::is_starved);
        let log_output = log_output.map_err(Refused::AccessLog)?;
        let snapshot = prepared.snapshot();
        let (names, expiry) = (names_after(&self.names, snapshot), Expiry::new(snapshot));
        let duration = clock::monotonic_ns().saturating_sub(began);
        Ok(Candidate { prepared, log_output, names, expiry, duration, text, included })
    }

    /// The latest of a configuration that has served nothing: of the file, if it reads differently and is valid, or else of the same text
    /// with what is known by now.
    ///
    /// # Errors
    ///
    /// What the text names has changed and is refused.
    pub(crate) fn load_later(
        &mut self,
        mut candidate: Candidate<F>,
    ) -> Result<Candidate<F>, Refused> {
        if matches!(self.look(), Look::Changed | Look::Unreadable) {
            match self.load() {
                Ok(latest) => return Ok(latest),
                Err(refused) => {
                    let reasons = refused.to_log(&self.name);
                    tracing::error!(
                        "configuration refused; the one that this process has read before stays in use:\n{reasons}"
                    );
                }
            }
        }
        let text = std::mem::take(&mut candidate.text);
        self.build(text, clock::monotonic_ns())
    }

    fn files(&self) -> Files {
        Files::beside(self.path.as_deref().unwrap_or_else(|| Path::new("")))
    }

    /// Whether of the files that the configuration names, those with these names are files of endpoints, and nothing else
    /// is to be looked at.
    pub(crate) fn are_endpoints(&self, names: &BTreeSet<OsString>) -> bool {
        let is_among = |path: &Path| path.file_name().is_some_and(|name| names.contains(name));
        let mut loaded = self.endpoints_loaded.named(names).into_iter();
        let mut in_use = self.in_use.iter();
        !self.is_log_starved
            && !in_use.any(|it| it.has_any(names))
            && !self.path.as_deref().is_some_and(is_among)
            && !self.seen.has_any(names)
            && loaded.all(|name| self.endpoints.has(&name))
    }

    /// Reads those files of endpoints again that may have changed, and nothing else: all, or those with these names. What was
    /// noted counts with them. None if there is nothing of both.
    ///
    /// # Errors
    ///
    /// [`Starved`]: then none counts as read.
    pub(crate) fn load_endpoints(
        &mut self,
        names: Option<&BTreeSet<OsString>>,
    ) -> Result<Option<Endpoints<F>>, Starved> {
        let began = clock::monotonic_ns();
        let changed = match names {
            Some(names) => self.endpoints.named(names),
            None => self.endpoints.changed(),
        };
        if changed.is_empty() {
            return Ok(self.load_noted());
        }
        let files = self.files();
        let PreparedEndpoints { prepared, outcomes } =
            self.loader.prepare_endpoints(&changed, &files);
        let (_, read) = files.into_seen();
        if read.is_starved() {
            return Err(Starved);
        }
        self.endpoints.update(read);
        let duration = clock::monotonic_ns().saturating_sub(began);
        let candidate = |prepared| Box::new(EndpointsCandidate::new(prepared, duration));
        let candidate = prepared.map(candidate);
        Ok(Some(Endpoints { candidate, outcomes, delivered: None, is_dns: false }))
    }

    /// Takes note of what host names stand for: it counts with what is loaded next.
    pub(crate) fn note_answers(&mut self, changes: Vec<Change>) {
        self.loader.note_answers(changes);
    }

    /// Takes note of endpoints that operators drain or take back, in the same way.
    pub(crate) fn note_drained(&mut self, changes: &[DrainChange]) {
        self.loader.note_drained(changes);
    }

    /// Loads what was noted. None if no endpoint is another.
    pub(crate) fn load_noted(&mut self) -> Option<Endpoints<F>> {
        let began = clock::monotonic_ns();
        let is_dns = self.loader.has_noted_answers_alone();
        let prepared = self.loader.prepare_noted()?;
        let duration = clock::monotonic_ns().saturating_sub(began);
        let candidate = Some(Box::new(EndpointsCandidate::new(prepared, duration)));
        Some(Endpoints { candidate, outcomes: Vec::new(), delivered: None, is_dns })
    }

    /// From now on these sources may deliver resources beside those of the file. To be called before anything is loaded.
    pub fn expect_sources(&mut self, sources: &[Box<dyn Source>]) {
        if !sources.is_empty() {
            self.loader.expect_sources();
        }
        self.sources = sources.iter().map(|source| source.name()).collect();
        if sources.iter().any(|source| source.is_on_demand()) {
            self.loader.expect_demands();
        }
    }

    /// Counts configurations from this version of another process on, whose place this one takes.
    pub fn continue_versions(&mut self, version: u64) {
        self.loader.continue_versions(version);
    }

    /// The candidate of the file that was loaded last, together with what sources had delivered to another process: what served
    /// there serves here from the beginning. Each resource is accepted or refused by itself, as if its source had
    /// delivered it. Host names that DNS has not answered for stand for what they stood for there, until it does.
    ///
    /// # Errors
    ///
    /// What is wrong with the file together with these.
    pub fn restore(
        &mut self,
        mut candidate: Candidate<F>,
        delivered: DeliveredResources,
    ) -> Result<Candidate<F>, Refused> {
        let began = clock::monotonic_ns();
        let Divided { mut parts, .. } = delivered.divide(&self.sources);
        if parts.is_empty() {
            return self.with_answers(candidate, &delivered);
        }
        self.loader.order_sources(self.sources.iter().map(|source| Arc::from(*source)).collect());
        let text = std::mem::take(&mut candidate.text);
        self.known = self.keep(candidate).known;
        let mut resumed = Resumed { delivered: delivered.clone(), ..Resumed::default() };
        for part in [RestoredPart::Serving, RestoredPart::Later] {
            for source in self.sources.clone() {
                let Some(restored) = parts.get_mut(source) else { continue };
                let updates = std::mem::take(match part {
                    RestoredPart::Serving => &mut restored.serving,
                    RestoredPart::Later => &mut restored.later,
                });
                if updates.is_empty() {
                    continue;
                }
                let loaded = self.load_updates(&source.into(), updates.clone(), &[]);
                if let Some(candidate) = loaded.candidate {
                    self.keep_endpoints(*candidate);
                }
                let Some(delivered) = loaded.delivered else { continue };
                resumed.late.extend(delivered.late);
                let verdicts = delivered.verdicts;
                resumed.parts.push(ResumedPart { source, part, updates, verdicts });
            }
        }
        let waiting = self.loader.waiting();
        let waits = waiting.map(|(name, names)| Waits {
            name: name.clone(),
            waits_for: names.to_vec(),
            missing: Vec::new(),
        });
        resumed.waits = waits.collect();
        let candidate = self.build(text, began)?;
        let mut candidate = self.with_answers(candidate, &delivered)?;
        // No worker has any of it.
        candidate.prepared.begin();
        self.resumed = resumed;
        Ok(candidate)
    }

    /// The candidate with what another process was answered for names that have no answer.
    fn with_answers(
        &mut self,
        mut candidate: Candidate<F>,
        delivered: &DeliveredResources,
    ) -> Result<Candidate<F>, Refused> {
        let began = clock::monotonic_ns();
        let unanswered = candidate.unanswered().iter();
        let found = unanswered.filter_map(|name| Some((name, delivered.answer(name)?)));
        let mut changes = Vec::new();
        for (name, kept) in found {
            self.known.insert(Arc::clone(name), Status::restored(kept));
            changes.push((Arc::clone(name), Some(Arc::clone(&kept.endpoints))));
        }
        if changes.is_empty() {
            return Ok(candidate);
        }
        let names: Vec<_> = changes.iter().map(|(name, _)| Arc::clone(name)).collect();
        tracing::warn!(
            "the old process's addresses are used until DNS answers for these names: {}",
            listed(&names)
        );
        self.note_answers(changes);
        let text = std::mem::take(&mut candidate.text);
        self.build(text, began)
    }

    /// What the process began with of another one, once.
    pub(crate) fn take_resumed(&mut self) -> Resumed {
        std::mem::take(&mut self.resumed)
    }

    /// Names the sources in the order in which they go before each other.
    pub(crate) fn order_sources(&mut self, order: Vec<Arc<str>>) {
        self.loader.order_sources(order);
    }

    /// Loads without these resources of other sources, until what is loaded counts.
    pub(crate) fn leave_out(&mut self, unbound: Vec<Unbound>) {
        self.loader.leave_out(unbound);
    }

    /// Takes what a source says of resources, each of which is accepted or refused by itself.
    pub(crate) fn load_updates(
        &mut self,
        source: &Arc<str>,
        updates: Vec<Update>,
        unbound: &[Unbound],
    ) -> Endpoints<F> {
        let (began, files) = (clock::monotonic_ns(), self.files());
        let prepared = self.loader.prepare_updates(source, updates, unbound, &files);
        self.load_done(prepared, began)
    }

    /// Lets these resources wait no longer for route configurations.
    pub(crate) fn load_waited(
        &mut self,
        names: &BTreeSet<ResourceName>,
        unbound: &[Unbound],
    ) -> Endpoints<F> {
        let (began, files) = (clock::monotonic_ns(), self.files());
        let prepared = self.loader.prepare_waited(names, unbound, &files);
        self.load_done(prepared, began)
    }

    fn load_done(&self, updates: PreparedUpdates<F>, began: u64) -> Endpoints<F> {
        let PreparedUpdates { prepared, updates, verdicts, late, wanted, waits, warnings } =
            updates;
        let candidate = prepared.map(|prepared| {
            let snapshot = prepared.snapshot();
            let names = Some(names_after(&self.names, snapshot));
            let former = self.loader.snapshot_latest();
            let expiry = former.filter(|former| touches_certificates(former, snapshot));
            let expiry = expiry.map(|_| Expiry::new(snapshot));
            let duration = clock::monotonic_ns().saturating_sub(began);
            Box::new(EndpointsCandidate { prepared, names, expiry, duration })
        });
        let delivered = DeliveredUpdates { updates, verdicts, late, wanted, waits, warnings };
        let delivered = Some(Box::new(delivered));
        Endpoints { candidate, outcomes: Vec::new(), delivered, is_dns: false }
    }

    /// What is known of host names from now on, for who goes on from there.
    pub(crate) fn set_known(&mut self, known: Known) {
        self.known = known;
    }

    pub(crate) fn set_last_good(&mut self, last_good: LastGood) {
        self.last_good = last_good;
    }

    /// What a former process left in the folder `state`, if that was read.
    pub(crate) const fn last_good(&self) -> &LastGood {
        &self.last_good
    }

    /// The same, once.
    pub(crate) fn take_last_good(&mut self) -> LastGood {
        std::mem::take(&mut self.last_good)
    }

    /// Lets what was loaded last of files of endpoints count.
    pub(crate) fn keep_endpoints(&mut self, candidate: EndpointsCandidate<F>) {
        if let Some(names) = candidate.names {
            self.names = names;
        }
        self.loader.keep(candidate.prepared);
    }

    /// Lets what was loaded last count: everything that it needs is there.
    pub fn keep(&mut self, candidate: Candidate<F>) -> Accepted<F> {
        let mut known = std::mem::take(&mut self.known);
        for name in candidate.host_names() {
            known.entry(name).or_default();
        }
        let Candidate { prepared, log_output, names, duration, text, included, .. } = candidate;
        self.in_use = TextInUse::new(text, included, &self.seen, self.is_stream);
        let warnings = prepared.warnings().to_vec();
        let endpoints_read = prepared.endpoints_read().to_vec();
        let wanted = prepared.wanted().clone();
        let snapshot = self.loader.keep(prepared);
        self.names = Arc::clone(&names);
        self.endpoints = std::mem::take(&mut self.endpoints_loaded);
        Accepted { snapshot, warnings, log_output, names, wanted, endpoints_read, known, duration }
    }
}

/// Whether certificates may be others than in the snapshot before.
fn touches_certificates<F>(former: &Snapshot<F>, now: &Snapshot<F>) -> bool {
    let changes = &now.changes;
    let listeners = changes.listeners_added.iter().chain(&changes.listeners_changed);
    let mut listeners = listeners.chain(&changes.listeners_removed);
    let clusters = changes.clusters_added.iter().chain(&changes.clusters_changed);
    let mut clusters = clusters.chain(&changes.clusters_removed);
    let has_tls = |listener: &Listener<F>| {
        let mut chains = listener.chains.iter();
        listener.tls.is_some() || chains.any(|chain| chain.listener.tls.is_some())
    };
    let both = [former, now];
    listeners.any(|id| both.iter().any(|it| it.listener(*id).is_some_and(|(_, it)| has_tls(it))))
        || clusters.any(|id| {
            both.iter()
                .any(|it| it.cluster(*id).is_some_and(|it| it.transports.tls().next().is_some()))
        })
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write as _};
    use std::os::fd::AsRawFd as _;

    use config::FilterKinds;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn files_of_endpoints_are_followed_whatever_becomes_of_a_later_text() {
        let scratch = Scratch::new("reload-endpoints");
        let write = |name: &str, text: &str| std::fs::write(scratch.0.join(name), text).unwrap();
        let text = "listeners: [{ name: a, address: '127.0.0.1:1', routes: [r] }]
routes: [{ name: r, hosts: [x], rules: [{ match: { prefix: / }, cluster: web }] }]
clusters: [{ name: web, endpoints: { file: e.yaml } }]
";
        write("strait.yaml", text);
        write("e.yaml", "['127.0.0.1:2']");
        let loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut file = ConfigFile::new(&scratch.0.join("strait.yaml"), loader);
        let candidate = file.load().unwrap();
        file.keep(candidate);
        for (port, later) in (3..).zip([
            "nonsense: [",
            "",
            &text.replace("cluster: web", "cluster: none"),
            &text.replace("e.yaml", "missing.yaml"),
        ]) {
            write("strait.yaml", later);
            write("e.yaml", &format!("['127.0.0.1:{port}']"));
            assert!(file.load().is_err(), "{later}");
            assert!(file.watched().contains(&scratch.0.join("e.yaml")), "{later}");
            let names = [OsString::from("e.yaml")].into();
            assert!(file.are_endpoints(&names), "{later}");
            let loaded = file.load_endpoints(None).unwrap().unwrap();
            let candidate = loaded.candidate.expect("its endpoints are others");
            let web = candidate.snapshot().clusters.iter().next().unwrap().1;
            assert_eq!(web.endpoints[0].address.to_string(), format!("127.0.0.1:{port}"));
            file.keep_endpoints(*candidate);
        }
        assert_eq!(file.look(), Look::Same, "a text that names a missing file is refused once");
        // What only the refused text names may be the reason.
        write("missing.yaml", "['127.0.0.1:9']");
        assert!(!file.are_endpoints(&[OsString::from("missing.yaml")].into()));
        assert_eq!(file.look(), Look::Changed);
        assert!(file.load().is_ok());
    }

    #[test]
    fn a_pipe_is_read_once_and_not_looked_at_again() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"listeners: []").unwrap();
        drop(writer);
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut file = ConfigFile::new(Path::new(&path), loader);
        file.load().unwrap();
        assert_eq!(file.look(), Look::Same);
        assert!(file.load().unwrap_err().to_string().contains("not a regular file"));
    }
}
