//! `strait upgrade`: has the running process start another and hand over to it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ::handover::{Hello, Message, Purpose, UpgradeRequest};
use config::snapshot::HandoverOptions;
use control::ConfigFile;
use io::packets::Packets;

use super::line::{Incoming, Line, now};
use super::{is_allowed, socket_path};
use crate::arguments::Upgrade;
use crate::filter_list::loader;
use crate::{Failure, VERSION};

/// The file of a process of which nothing else is said.
const CONFIG: &str = "/etc/strait/strait.yaml";

/// Where the package's service listens, whose unit names the folder to it.
const SOCKET: &str = "/run/strait/handover/strait.sock";

/// How long the running process may be silent: a new process reads its configuration meanwhile.
const SILENCE_NS: u64 = 70_000_000_000;

/// Runs the command.
pub(crate) fn upgrade(upgrade: &Upgrade) -> Result<(), Failure> {
    let file = file_of_running(upgrade.config.as_deref(), Path::new(CONFIG))?;
    let candidate = ConfigFile::new(file, loader()?).load().map_err(Failure::Config)?;
    let options = candidate.snapshot().startup.handover.clone();
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
    line.send_message(&hello)?;
    listen(&mut line)
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
    let ended = |error: std::io::Error| {
        Failure::Ended(format!("no running process is found at {at}: {error}"))
    };
    let line = Packets::connect(path).and_then(Line::new).map_err(ended)?;
    if is_allowed(line.peer.uid, options) {
        Ok(line)
    } else {
        Err(Failure::Ended(format!("another user's process listens at {at}")))
    }
}

/// Prints what the running process says, until it says how it ended.
fn listen(line: &mut Line) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut until = now().saturating_add(SILENCE_NS);
    while now() < until {
        let frame = match line.receive(Some(until)) {
            Ok(Incoming::Frame(frame, _)) => frame,
            Ok(Incoming::Nothing) => continue,
            Ok(Incoming::End) => {
                return Err(Failure::Ended("the running process ended".to_owned()));
            }
            Err(error) => return Err(Failure::Ended(error.to_string())),
        };
        until = now().saturating_add(SILENCE_NS);
        match Message::decode(&frame) {
            Ok(Some(Message::Progress { text })) => writeln!(out, "{text}")?,
            Ok(Some(Message::Outcome { is_done: true, text })) => {
                writeln!(out, "{text}")?;
                return Ok(());
            }
            Ok(Some(Message::Outcome { text, .. } | Message::GiveUp { reason: text })) => {
                return Err(Failure::Ended(format!("{text}; the running process continues")));
            }
            // Of a later version.
            _ => {}
        }
    }
    Err(Failure::Ended("the running process is silent".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
