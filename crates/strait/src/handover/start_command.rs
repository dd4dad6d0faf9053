//! How a process was started, and how its successor is.
//!
//! The program is kept as the path that it was started by: what is there later may be another version.

use std::ffi::OsString;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ::handover::UpgradeRequest;

use super::line::{nanos, now};
use super::timeouts::PROCESS_END_TIMEOUT;
use crate::init::{HAS_INIT, is_init};

/// The environment variable that says which process started this one to be replaced by it.
const STARTED_BY: &str = "STRAIT_STARTED_BY";

/// Between two looks whether it has ended.
const END_PAUSE: Duration = Duration::from_millis(5);

/// How a process was started.
#[derive(Clone, Debug)]
pub(crate) struct StartCommand {
    /// The program, as a whole path.
    pub(crate) program: PathBuf,
    /// What stands behind it.
    pub(crate) arguments: Vec<OsString>,
}

impl StartCommand {
    /// Of this process.
    pub(crate) fn of_this_process() -> Self {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_default();
        let program = PathBuf::from(&name);
        let program = if program.components().count() > 1 {
            std::path::absolute(&program).unwrap_or(program)
        } else {
            in_search_path(&program).unwrap_or(program)
        };
        let program = if program.is_file() { program } else { own_program(program) };
        Self { program, arguments: arguments.collect() }
    }

    /// Whether another program or file is asked for than those that this process was started with.
    pub(super) fn differs(&self, request: &UpgradeRequest) -> bool {
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let is_own_file =
            |asked: &String| self.config().is_some_and(|own| whole(own) == whole(Path::new(asked)));
        request.binary.is_some() || request.config.as_ref().is_some_and(|asked| !is_own_file(asked))
    }

    /// The file that it was started with, if its arguments name one.
    fn config(&self) -> Option<&Path> {
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "-c" || argument == "--config" {
                return arguments.next().map(Path::new);
            }
            let text = argument.to_str()?;
            let value = text.strip_prefix("--config=");
            let short = || text.strip_prefix("-c").filter(|_| !text.starts_with("--"));
            if let Some(path) = value.or_else(short) {
                return Some(Path::new(path.strip_prefix('=').unwrap_or(path)));
            }
        }
        None
    }

    /// What starts another process like this one, to take its place.
    pub(super) fn successor(&self, request: &UpgradeRequest) -> Command {
        let program = request.binary.as_ref().map_or_else(|| self.program.clone(), PathBuf::from);
        let mut command = Command::new(program);
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy();
            if text.starts_with("--take-over") {
                continue;
            }
            if request.config.is_some() && (text == "-c" || text == "--config") {
                arguments.next();
                continue;
            }
            let is_config = text.starts_with("--config=") || text.starts_with("-c");
            if request.config.is_some() && is_config && !text.starts_with("--core") {
                continue;
            }
            command.arg(argument);
        }
        if let Some(config) = &request.config {
            command.arg("--config").arg(config);
        }
        let whether = if request.is_check { "check" } else { "required" };
        command.arg(format!("--take-over={whether}"));
        // It has a process id of its own, and gets its sockets otherwise.
        for variable in ["WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
            command.env_remove(variable);
        }
        command.env(STARTED_BY, std::process::id().to_string());
        if is_init() {
            // Later ones inherit it.
            command.env(HAS_INIT, "1");
        }
        command.stdin(Stdio::null());
        command
    }
}

/// Whether this process was started to take the place of one that has ended since, or ends now.
#[expect(clippy::disallowed_methods, reason = "a process that has not started yet, which waits")]
pub(crate) fn has_starter_ended(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let Some(starter) = variable(STARTED_BY).and_then(|pid| pid.to_str()?.parse::<u32>().ok())
    else {
        return false;
    };
    let has_ended = || starter != parent_id();
    // The kernel closes the sockets of a process before it lets its children go.
    let until = now().saturating_add(nanos(PROCESS_END_TIMEOUT));
    while !has_ended() && now() < until {
        thread::sleep(END_PAUSE);
    }
    has_ended()
}

/// The file that this process runs, for a name that is no path of a program (`exec -a`).
fn own_program(name: PathBuf) -> PathBuf {
    std::env::current_exe().unwrap_or(name)
}

pub(super) fn in_search_path(name: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
