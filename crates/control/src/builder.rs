//! The thread that reads configurations and builds snapshots.
//!
//! It owns the configuration file and the loader; control asks by [`Builder::read`] and gets one
//! [`Built`] for each question. A configuration of 100,000 hosts takes seconds to build, and control
//! answers signals and the admin interface meanwhile. Control binds a candidate's listeners, and
//! says by [`Builder::keep`] that it counts; commands are taken in their order, so that the next
//! candidate is the successor of one that was kept, and versions rise by one. What comes while a
//! candidate is built is one more question afterwards, however much it was. DNS answers and endpoints that operators drain go
//! along with any question, so that all of it is linked together.
//!
//! Snapshots that are out of use are freed here, too: that takes a tenth of the time of building. What is not a question
//! goes along with the next one, or a second later: waking the thread costs as much as what it does then for a change of
//! an endpoint.

#[cfg(test)]
mod noted;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use config::drained::DrainChange;
use config::snapshot::Snapshot;
use config::{ResourceName, Unbound, Update};
use tokio::sync::mpsc;

use crate::clock;
use crate::dns::Change;
use crate::reload::{
    Candidate, ConfigFile, Endpoints, EndpointsCandidate, Look, NotRenewed, Refused, Starved,
};

/// Answers that wait for control: there is one question at a time.
const BUILT_MAX: usize = 1;

/// How long, ns, what is no question waits for one.
const HELD_MAX: u64 = 1_000_000_000;

/// Under which condition the file is read. Later ones include those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reading {
    /// Not at all: the files that what serves names, if they read differently.
    NamedAlone,
    /// Certificates or endpoints that it names read differently, and it does not.
    IfTextIsSame,
    /// It reads differently than last time.
    IfChanged,
    /// It reads differently, or cannot be read any more.
    UnlessSame,
    /// Always.
    Anyway,
}

/// What became of a question.
#[derive(Debug)]
pub(crate) enum Built<F> {
    /// Nothing is new.
    Same,
    /// The file cannot be read, and was not to be read in that case.
    Unreadable,
    /// Its text is the same, and what it names changed and is refused, and was not to be read in that
    /// case: a certificate and its key are two files, and one of them may be on its way.
    Unsettled,
    /// There was no descriptor to read it, or what it names, with.
    Starved,
    /// It changed, and will not be read again: the process ends.
    Skipped,
    /// Files of endpoints changed, or what host names stand for, or what sources deliver, and nothing else.
    Endpoints(Endpoints<F>),
    /// Files that the configuration in effect names changed, while a later text does not count.
    Renewed(Endpoints<F>),
    /// They changed, and cannot be used.
    NotRenewed(Refused),
    /// A snapshot, or why there is none, and the files that are to be watched from now on.
    Read(Result<Box<Candidate<F>>, Refused>, Vec<PathBuf>),
}

#[derive(Debug)]
enum Command<F> {
    Read(Reading),
    /// The files of these names hold something else.
    ReadFiles(BTreeSet<OsString>),
    NoteAnswers(Vec<Change>),
    NoteDrained(Vec<DrainChange>),
    /// What was noted, by itself.
    LinkNoted,
    Updates(Arc<str>, Arc<[Update]>, Vec<Unbound>),
    Waited(BTreeSet<ResourceName>, Vec<Unbound>),
    LeaveOut(Vec<Unbound>),
    Skip,
    Keep(Box<Candidate<F>>),
    Discard(Box<Candidate<F>>),
    KeepEndpoints(Box<EndpointsCandidate<F>>),
    Free(Arc<Snapshot<F>>),
}

/// Control's end of the thread.
#[derive(Debug)]
pub(crate) struct Builder<F> {
    /// Holds at most one question, what control made of the last answer, and each worker's
    /// snapshots that it stopped using: there are as many as were built.
    commands: mpsc::UnboundedSender<Vec<Command<F>>>,
    /// What goes along with the next question.
    held: Vec<Command<F>>,
    /// Since when; monotonic time, ns.
    held_since: u64,
    state: State,
    /// Whether the question that is open has the file looked at.
    looks_at_file: bool,
    /// Whether something was noted that nothing has which counts.
    has_noted: bool,
    /// Whether there is a file to read.
    has_file: bool,
    /// What the file is called in messages.
    file_name: String,
}

/// Whether the thread has a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It has one, and another may wait until control has its answer.
    Busy(Option<Reading>),
}

impl<F: Send + Sync + 'static> Builder<F> {
    /// Starts the thread. Its answers come from the receiver.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(file: ConfigFile<F>) -> io::Result<(Self, mpsc::Receiver<Built<F>>)> {
        let (commands, mut received) = mpsc::unbounded_channel();
        let (answers, built) = mpsc::channel(BUILT_MAX);
        let has_file = file.path().is_some();
        let file_name = file.name().to_owned();
        std::thread::Builder::new()
            .name("strait-builder".to_owned())
            .spawn(move || build(file, &mut received, &answers))?;
        let builder = Self {
            commands,
            held: Vec::new(),
            held_since: 0,
            state: State::Idle,
            looks_at_file: false,
            has_noted: false,
            has_file,
            file_name,
        };
        Ok((builder, built))
    }

    /// What the file is called in messages.
    pub(crate) fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Whether there is a file.
    pub(crate) const fn has_file(&self) -> bool {
        self.has_file
    }

    /// Whether a question is open.
    pub(crate) const fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy(_))
    }

    /// Whether the question that is open has the file looked at, or files that it names.
    pub(crate) const fn looks_at_file(&self) -> bool {
        self.looks_at_file
    }

    /// Asks for the file to be read. While another question is open, this one waits, together with
    /// what else comes in the meantime.
    pub(crate) fn read(&mut self, reading: Reading) {
        match &mut self.state {
            _ if !self.has_file => {}
            State::Busy(next) => *next = (*next).max(Some(reading)),
            State::Idle => self.ask(Command::Read(reading)),
        }
    }

    /// Asks for the files of these names to be read, if they read differently. While another question is open, all files
    /// are looked at afterwards.
    pub(crate) fn read_files(&mut self, names: BTreeSet<OsString>) {
        match self.state {
            State::Idle if self.has_file => self.ask(Command::ReadFiles(names)),
            _ => self.read(Reading::IfChanged),
        }
    }

    /// Notes what host names stand for from now on: it counts with the answer to the next question, whatever that is.
    pub(crate) fn note_answers(&mut self, changes: Vec<Change>) {
        self.note(Command::NoteAnswers(changes));
    }

    /// Notes which endpoints operators drain or take back, in the same way.
    pub(crate) fn note_drained(&mut self, changes: Vec<DrainChange>) {
        self.note(Command::NoteDrained(changes));
    }

    fn note(&mut self, command: Command<F>) {
        self.has_noted = true;
        self.hold(command);
    }

    /// Whether something was noted, and no answer that counts has it.
    pub(crate) const fn has_noted(&self) -> bool {
        self.has_noted
    }

    /// Asks for what was noted, unless another question is open, which has it, or it counts already.
    pub(crate) fn link_noted(&mut self) {
        if self.has_noted && self.state == State::Idle {
            self.has_noted = false;
            self.ask(Command::LinkNoted);
        }
    }

    /// Hands over what a source says, without those that the system does not let this process have. Not while another
    /// question is open.
    pub(crate) fn updates(
        &mut self,
        source: Arc<str>,
        updates: Arc<[Update]>,
        unbound: Vec<Unbound>,
    ) {
        self.ask(Command::Updates(source, updates, unbound));
    }

    /// Lets these wait no longer for route configurations. Not while another question is open.
    pub(crate) fn waited(&mut self, names: BTreeSet<ResourceName>, unbound: Vec<Unbound>) {
        self.ask(Command::Waited(names, unbound));
    }

    /// Has the file loaded without these resources of other sources, until a configuration of it counts.
    pub(crate) fn leave_out(&mut self, unbound: Vec<Unbound>) {
        self.hold(Command::LeaveOut(unbound));
    }

    /// Asks for the file to be taken for read as it is.
    pub(crate) fn skip(&mut self) {
        if self.has_file && self.state == State::Idle {
            self.ask(Command::Skip);
        }
    }

    /// To be called with each answer, once control is done with it: asks what has waited.
    pub(crate) fn on_answered(&mut self) {
        if let State::Busy(next) = self.state {
            self.state = State::Idle;
            if let Some(reading) = next {
                self.read(reading);
            }
        }
    }

    /// Lets a candidate count: the next one is its successor.
    pub(crate) fn keep(&mut self, candidate: Box<Candidate<F>>) {
        self.has_noted = false;
        self.hold(Command::Keep(candidate));
    }

    /// The same for one that differs in endpoints alone. One that is not to count is just dropped: it shares all
    /// but that.
    pub(crate) fn keep_endpoints(&mut self, candidate: Box<EndpointsCandidate<F>>) {
        self.has_noted = false;
        self.hold(Command::KeepEndpoints(candidate));
    }

    /// Frees a candidate that does not count.
    pub(crate) fn discard(&mut self, candidate: Box<Candidate<F>>) {
        self.hold(Command::Discard(candidate));
    }

    /// Frees a snapshot, if this was its last use.
    pub(crate) fn free(&mut self, snapshot: Arc<Snapshot<F>>) {
        self.hold(Command::Free(snapshot));
    }

    fn hold(&mut self, command: Command<F>) {
        if self.held.is_empty() {
            self.held_since = clock::monotonic_ns();
        }
        self.held.push(command);
    }

    /// Hands over what has waited for the next question for long.
    pub(crate) fn on_upkeep(&mut self) {
        let is_long = || clock::monotonic_ns().saturating_sub(self.held_since) > HELD_MAX;
        if !self.held.is_empty() && is_long() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        // At once: one by one, the first would wake the thread, and the next ones again.
        if self.commands.send(std::mem::take(&mut self.held)).is_err() {
            tracing::error!("the thread that reads configurations is gone: restart the process");
        }
    }

    fn ask(&mut self, command: Command<F>) {
        self.state = State::Busy(None);
        self.looks_at_file = matches!(command, Command::Read(_) | Command::ReadFiles(_));
        self.held.push(command);
        self.flush();
    }
}

/// The thread.
fn build<F>(
    mut file: ConfigFile<F>,
    commands: &mut mpsc::UnboundedReceiver<Vec<Command<F>>>,
    answers: &mpsc::Sender<Built<F>>,
) {
    let batches = std::iter::from_fn(|| commands.blocking_recv());
    for command in batches.flatten() {
        let built = match command {
            Command::Read(reading) => read(&mut file, reading),
            Command::ReadFiles(names) if file.are_endpoints(&names) => {
                read_endpoints(&mut file, Some(&names))
            }
            Command::ReadFiles(_) => read(&mut file, Reading::IfChanged),
            Command::NoteAnswers(changes) => {
                file.note_answers(changes);
                continue;
            }
            Command::NoteDrained(changes) => {
                file.note_drained(&changes);
                continue;
            }
            Command::LinkNoted => file.load_noted().map_or(Built::Same, Built::Endpoints),
            Command::Updates(source, updates, unbound) => {
                Built::Endpoints(file.load_updates(&source, updates.to_vec(), &unbound))
            }
            Command::Waited(names, unbound) => Built::Endpoints(file.load_waited(&names, &unbound)),
            Command::Skip => {
                let is_same = file.look() == Look::Same;
                file.skip();
                if is_same { Built::Same } else { Built::Skipped }
            }
            Command::LeaveOut(unbound) => {
                file.leave_out(unbound);
                continue;
            }
            Command::Keep(candidate) => {
                file.keep(*candidate);
                continue;
            }
            Command::KeepEndpoints(candidate) => {
                file.keep_endpoints(*candidate);
                continue;
            }
            Command::Discard(candidate) => {
                drop(candidate);
                continue;
            }
            Command::Free(snapshot) => {
                drop(snapshot);
                continue;
            }
        };
        if answers.blocking_send(built).is_err() {
            break;
        }
    }
}

fn read<F>(file: &mut ConfigFile<F>, reading: Reading) -> Built<F> {
    if reading == Reading::NamedAlone {
        return read_named(file);
    }
    if reading == Reading::IfTextIsSame && file.path().is_some() && !file.are_texts_same() {
        let name = file.name();
        tracing::warn!(
            "{name} has changed since this process read it, and stays as it was for this process: \
             send SIGHUP to read it, or change it again"
        );
        file.skip();
        return read_named(file);
    }
    match (file.look(), reading) {
        (Look::Same, reading) if reading < Reading::Anyway => read_named(file),
        (Look::Unreadable, reading) if reading <= Reading::IfChanged => Built::Unreadable,
        (Look::Starved, _) => Built::Starved,
        (_, reading) => {
            let is_text_same = file.is_text_same();
            match file.load().map(Box::new) {
                Err(_) if file.is_starved() => Built::Starved,
                Err(_) if reading <= Reading::IfChanged && is_text_same => Built::Unsettled,
                result => Built::Read(result, file.watched()),
            }
        }
    }
}

/// Reads what the configuration in effect names.
fn read_named<F>(file: &mut ConfigFile<F>) -> Built<F> {
    match file.load_renewed() {
        Some(Ok(endpoints)) => Built::Renewed(endpoints),
        Some(Err(NotRenewed::Refused(refused))) => Built::NotRenewed(refused),
        Some(Err(NotRenewed::Starved)) => Built::Starved,
        None => read_endpoints(file, None),
    }
}

fn read_endpoints<F>(file: &mut ConfigFile<F>, names: Option<&BTreeSet<OsString>>) -> Built<F> {
    match file.load_endpoints(names) {
        Ok(None) => Built::Same,
        Ok(Some(endpoints)) => Built::Endpoints(endpoints),
        Err(Starved) => Built::Starved,
    }
}

#[cfg(test)]
mod tests {
    use config::{FilterKinds, Loader};

    use super::*;

    const CONFIG: &str = "
listeners:
  - { name: edge, address: '127.0.0.1:1', routes: all }
routes:
  - { name: all, rules: [{ match: { prefix: / }, respond: {} }] }
";

    fn version(built: Option<Built<()>>) -> (u64, Box<Candidate<()>>) {
        match built {
            Some(Built::Read(Ok(candidate), _)) => (candidate.snapshot().version, candidate),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_comes_during_a_build_is_one_more_and_versions_rise_with_what_is_kept() {
        let name = format!("strait-builder-{}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, CONFIG).unwrap();
        let loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut file = ConfigFile::new(&path, loader);
        let candidate = file.load().unwrap();
        file.keep(candidate);
        let (mut builder, mut built) = Builder::start(file).unwrap();

        builder.read(Reading::Anyway);
        // All of these come before the first answer was taken.
        for reading in [Reading::IfChanged, Reading::Anyway, Reading::UnlessSame] {
            builder.read(reading);
        }
        // Not kept, as if its listeners could not be bound.
        let (first, _) = version(built.blocking_recv());
        builder.on_answered();
        let (second, candidate) = version(built.blocking_recv());
        builder.keep(candidate);
        builder.on_answered();
        assert_eq!((first, second), (2, 2));
        // Nothing waits any more, and nothing changed.
        builder.read(Reading::UnlessSame);
        assert!(matches!(built.blocking_recv(), Some(Built::Same)));
        builder.on_answered();
        builder.read(Reading::Anyway);
        assert_eq!(version(built.blocking_recv()).0, 3);
        builder.on_answered();

        std::fs::remove_file(&path).unwrap();
        builder.read(Reading::IfChanged);
        assert!(matches!(built.blocking_recv(), Some(Built::Unreadable)));
        builder.on_answered();
        builder.skip();
        assert!(matches!(built.blocking_recv(), Some(Built::Skipped)));
        builder.on_answered();
        builder.skip();
        assert!(matches!(built.blocking_recv(), Some(Built::Same)));
    }

    #[test]
    fn of_files_that_changed_those_are_read_that_are_named() {
        let name = format!("strait-builder-files-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(
            "strait.yaml",
            "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, clusters: [{ cluster: a }, { cluster: b }] }] }]
clusters:
  - { name: a, endpoints: { file: a.yaml } }
  - { name: b, endpoints: { file: b.yaml } }
",
        );
        write("a.yaml", "['10.0.0.1:80']");
        write("b.yaml", "['10.0.0.1:80']");
        let loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut file = ConfigFile::new(&folder.join("strait.yaml"), loader);
        let candidate = file.load().unwrap();
        file.keep(candidate);
        let (mut builder, mut built) = Builder::start(file).unwrap();
        let mut read = |names: Option<&[&str]>| {
            match names {
                Some(names) => builder.read_files(names.iter().map(OsString::from).collect()),
                None => builder.read(Reading::IfChanged),
            }
            let read = match built.blocking_recv() {
                Some(Built::Endpoints(endpoints)) => {
                    if let Some(candidate) = endpoints.candidate {
                        builder.keep_endpoints(candidate);
                    }
                    endpoints.outcomes.iter().map(|it| it.file.to_string()).collect::<Vec<_>>()
                }
                Some(Built::Read(result, _)) => {
                    builder.keep(result.unwrap());
                    vec!["all".to_owned()]
                }
                other => vec![format!("{other:?}")],
            };
            builder.on_answered();
            read.join(" ")
        };
        write("a.yaml", "['10.0.0.2:80']");
        write("b.yaml", "['10.0.0.2:80']");
        assert_eq!(read(Some(&["a.yaml"])), "a.yaml");
        assert_eq!(read(Some(&["b.yaml", "c.yaml"])), "b.yaml");
        // What was written a moment ago is read again where nothing says which.
        assert_eq!(read(None), "a.yaml b.yaml");
        let text = std::fs::read_to_string(folder.join("strait.yaml")).unwrap();
        write("strait.yaml", &format!("{text}# more"));
        assert_eq!(read(Some(&["a.yaml"])), "a.yaml");
        assert_eq!(read(Some(&["a.yaml", "strait.yaml"])), "all");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_text_that_changed_stays_unread_where_only_what_it_names_is_to_be_read() {
        let name = format!("strait-builder-texts-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("strait.yaml", &format!("include: ['more-*.yaml']\n{CONFIG}"));
        let cluster = "clusters: [{ name: a, endpoints: { file: list.yaml } }]";
        write("more-1.yaml", cluster);
        write("list.yaml", "['10.0.0.1:80']");
        let loader = Loader::<()>::new(FilterKinds::new()).unwrap();
        let mut file = ConfigFile::new(&folder.join("strait.yaml"), loader);
        let candidate = file.load().unwrap();
        file.keep(candidate);
        let endpoints = |built: Built<()>| match built {
            Built::Endpoints(endpoints) => {
                endpoints.candidate.map(|it| it.snapshot().changes.endpoints_added.len())
            }
            other => panic!("{other:?}"),
        };
        for (number, (changed, text)) in [
            ("more-1.yaml", format!("{cluster} # more")),
            ("more-2.yaml", "limits: { connections_max: 9 }".to_owned()),
            ("strait.yaml", format!("include: ['more-*.yaml']\n{CONFIG}# more")),
        ]
        .into_iter()
        .enumerate()
        {
            write(changed, &text);
            write("list.yaml", &format!("['10.0.1.{number}:80']"));
            assert_eq!(endpoints(read(&mut file, Reading::IfTextIsSame)), Some(1), "{changed}");
            // Nor later, by itself.
            assert_eq!(endpoints(read(&mut file, Reading::IfChanged)), Some(1), "{changed}");
        }
        assert!(matches!(read(&mut file, Reading::Anyway), Built::Read(Ok(_), _)));
        assert!(matches!(read(&mut file, Reading::IfTextIsSame), Built::Endpoints(_)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
