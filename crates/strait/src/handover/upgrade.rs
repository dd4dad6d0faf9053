//! `strait upgrade`: has the running process start another and hand over to it.

use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ::handover::{Hello, Message, Purpose, UpgradeRequest};
use config::HandoverReader;
use config::snapshot::HandoverOptions;
use io::packets::{Packets, ProcessHandle, own_user};
use io::users::may_be_unmapped;

use super::line::{Incoming, Line, now};
use super::timeouts::PROCESS_END_TIMEOUT;
use super::{access, hint_to_allow, is_allowed, socket_path};
use crate::arguments::Upgrade;
use crate::{Failure, VERSION};

/// The file of a process of which nothing else is said.
const CONFIG: &str = "/etc/strait/strait.yaml";

/// Where the package's service listens, whose unit names the folder to it.
const SOCKET: &str = "/run/strait/handover/strait.sock";

/// How long the running process may be silent. One of an earlier version is, while the new process reads its configuration.
const SILENCE_NS: u64 = 70_000_000_000;

/// How long a reader of the output may pause at the end.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Before each look for the process that has taken the place of one that ended.
const SUCCESSOR_PAUSES: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Runs the command.
pub(crate) fn upgrade(upgrade: &Upgrade) -> Result<(), Failure> {
    let file = file_of_running(upgrade.config.as_deref(), Path::new(CONFIG))?;
    // What is wrong elsewhere in the file, or new in a later version, is for the new process to report.
    let reader = HandoverReader::new().map_err(Failure::Filters)?;
    let options = control::handover_options(&reader, file).map_err(Failure::Config)?;
    let path = socket_path(&options, |name| std::env::var_os(name));
    let path = path.unwrap_or_else(|| PathBuf::from(SOCKET));
    let whole = |path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        path.to_string_lossy().into_owned()
    };
    let request = UpgradeRequest {
        binary: upgrade.binary.as_ref().map(whole),
        config: upgrade.config.as_ref().map(whole),
        is_check: upgrade.check,
    };
    let mut line = connect(&path, &options)?;
    let purpose = if upgrade.back {
        Purpose::GiveBack { reason: "an operator asks for it".to_owned() }
    } else {
        Purpose::Upgrade(request)
    };
    let hello = Message::Hello(Hello::new(VERSION, purpose));
    // A process that refuses this one may have closed the connection already: it has sent why.
    if let Err(error) = line.send_message(&hello)
        && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    {
        return Err(Failure::Ended(format!("the running process does not listen: {error}")));
    }
    let process = line.peer_process().unwrap_or(None);
    let printer = Printer::start(std::io::stdout());
    let result = listen(&mut line, process.as_ref(), &printer);
    let result = match result {
        Err(Silence::Ended) => match successor(&path, line.peer.pid) {
            Some(pid) => {
                printer.print(format!(
                    "the running process ended; process {pid} serves, with the connections that it had received, if any"
                ));
                Ok(())
            }
            None => Err(Failure::Ended("the running process ended".to_owned())),
        },
        Err(Silence::Other(reason)) => Err(Failure::Ended(reason)),
        Ok(()) => Ok(()),
    };
    printer.finish();
    result
}

/// The process that has taken the place of one that ended before it said so, once it is the process.
fn successor(path: &Path, former: u32) -> Option<u32> {
    let serving = || {
        let packets = Packets::connect(path).ok()?;
        let mut line = Line::new(packets).ok()?;
        // It counts others that want nothing as refused. A failure says no less: it is closed then.
        let _ = line.send_message(&Message::Alive);
        Some(line.peer.pid).filter(|pid| *pid != former)
    };
    SUCCESSOR_PAUSES.iter().find_map(|pause| {
        rest(*pause);
        serving()
    })
}

#[expect(clippy::disallowed_methods, reason = "a command with one thread, which waits")]
fn rest(pause: Duration) {
    thread::sleep(pause);
}

/// Why nothing was heard of the outcome.
#[derive(Debug)]
enum Silence {
    /// The running process ended.
    Ended,
    Other(String),
}

/// The file that says where the running process is found: the one that is given, or the usual one.
fn file_of_running<'p>(given: Option<&'p Path>, usual: &'p Path) -> Result<&'p Path, Failure> {
    match given {
        None if !usual.exists() => Err(Failure::Ended(format!(
            "{} does not exist: name the running process's configuration file with --config",
            usual.display()
        ))),
        given => Ok(given.unwrap_or(usual)),
    }
}

fn connect(path: &Path, options: &HandoverOptions) -> Result<Line, Failure> {
    let at = path.display();
    let line = Packets::connect(path).and_then(Line::new).map_err(|error| {
        let (found, hint) = match error.kind() {
            ErrorKind::PermissionDenied => {
                ("no running process is found", ": run this as the user of the process, or as root")
            }
            ErrorKind::WouldBlock => {
                ("no connection is accepted", ": its queue is full, or the process is stopped")
            }
            _ => (
                "no running process is found",
                ": start one with strait run; a process that drains hands nothing over any more",
            ),
        };
        Failure::Ended(format!("{found} at {at}: {error}{hint}"))
    })?;
    let user = line.peer.uid;
    if is_allowed(user, options) || own_user() == 0 && owner_of_folder(path, options) == Some(user)
    {
        Ok(line)
    } else {
        let what = match may_be_unmapped(user) {
            true => hint_to_allow(user),
            false => format!("run this as its user (sudo -u '#{user}' strait upgrade)"),
        };
        Err(Failure::Ended(format!("another user's process listens at {at}: {what}")))
    }
}

/// The user who alone can put a socket there.
fn owner_of_folder(path: &Path, options: &HandoverOptions) -> Option<u32> {
    let owner = Cell::new(None);
    let is_private = io::packets::check_private_folder(path, access(options), |user| {
        owner.set(Some(user));
        true
    });
    owner.get().filter(|_| is_private.is_ok())
}

/// Prints what the running process says, until it says how it ended. That alone decides, whatever becomes of the output.
fn listen(
    line: &mut Line,
    process: Option<&ProcessHandle>,
    printer: &Printer,
) -> Result<(), Silence> {
    let other = |reason: &str| Err(Silence::Other(reason.to_owned()));
    let mut until = now().saturating_add(SILENCE_NS);
    let mut goes_on = "; the running process continues";
    while now() < until {
        let frame = match line.receive(Some(until)) {
            Ok(Incoming::Frame(frame, _)) => frame,
            Ok(Incoming::Nothing) => continue,
            Ok(Incoming::End) => {
                let has_ended =
                    process.is_some_and(|it| it.wait(PROCESS_END_TIMEOUT).unwrap_or(false));
                if has_ended {
                    return Err(Silence::Ended);
                }
                return other(
                    "the running process closed the connection and did not say how this ended: see its log and /handover",
                );
            }
            Err(error) => return other(&error.to_string()),
        };
        until = now().saturating_add(SILENCE_NS);
        match Message::decode(&frame) {
            Ok(Some(Message::Progress { text })) => printer.print(text),
            Ok(Some(Message::Outcome { is_done: true, text })) => {
                printer.print(text);
                return Ok(());
            }
            Ok(Some(Message::Ends { .. })) => goes_on = "",
            Ok(Some(Message::Outcome { text, .. } | Message::GiveUp { reason: text })) => {
                return other(&format!("{text}{goes_on}"));
            }
            // A sign that it is at it, or a message of a later version.
            _ => {}
        }
    }
    other("the running process is silent")
}

/// Prints on a thread of its own: the running process must not wait for a reader of the output.
struct Printer {
    lines: Sender<String>,
    /// Hears of each line that is printed, until the thread ends.
    printed: Receiver<()>,
}

impl Printer {
    fn start(mut to: impl Write + Send + 'static) -> Self {
        let (lines, given) = channel::<String>();
        let (said, printed) = channel();
        let print = move || {
            for line in given {
                // A failed write is no reason to end: the status says how the upgrade ended.
                if writeln!(to, "{line}").and_then(|()| to.flush()).is_err() {
                    return;
                }
                // It is waited for at the end alone.
                let _ = said.send(());
            }
        };
        // Without a thread nothing is printed.
        let _ = thread::Builder::new().spawn(print);
        Self { lines, printed }
    }

    fn print(&self, line: String) {
        // The thread has ended if nothing can be written.
        let _ = self.lines.send(line);
    }

    /// Waits until everything is printed that can be, as long as the output is read.
    fn finish(self) {
        self.finish_within(UNREAD_TIMEOUT);
    }

    fn finish_within(self, timeout: Duration) {
        drop(self.lines);
        while self.printed.recv_timeout(timeout).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_no_failure_and_nothing_waits_for_it() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (ours, theirs) = Packets::pair().unwrap();
        let mut line = Line::new(ours).unwrap();
        let mut theirs = Line::new(theirs).unwrap();
        for _ in 0..10 {
            theirs.send_message(&Message::Progress { text: "line".to_owned() }).unwrap();
        }
        theirs.send_message(&Message::Outcome { is_done: true, text: "done".to_owned() }).unwrap();
        let printer = Printer::start(Full);
        assert!(listen(&mut line, None, &printer).is_ok());
        printer.finish();
        drop(theirs);
        let printer = Printer::start(Vec::new());
        let error = listen(&mut line, None, &printer).unwrap_err();
        assert!(
            matches!(&error, Silence::Other(why) if why.contains("closed the connection")),
            "{error:?}"
        );
    }

    #[test]
    fn without_a_file_the_error_says_how_to_name_one() {
        let (given, missing) = (Path::new("given.yaml"), Path::new("/nowhere/strait.yaml"));
        assert_eq!(file_of_running(Some(given), missing).unwrap(), given);
        assert_eq!(file_of_running(None, Path::new("/")).unwrap(), Path::new("/"));
        let error = file_of_running(None, missing).unwrap_err().to_string();
        assert!(error.contains("/nowhere/strait.yaml does not exist"), "{error}");
        assert!(error.contains("--config"), "{error}");
    }
}
