//! The command line.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::TypedValueParser as _;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use config::units::Period;

use crate::top::{TopSort, View};
use crate::{Failure, manual};

/// A data plane for service meshes and gateways.
#[derive(Debug, Parser)]
#[command(name = "strait", version, about, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Forward traffic according to a configuration file.
    ///
    /// The file is watched: a change takes effect without a restart, and a wrong one is reported
    /// while the former configuration stays in effect. Signals: SIGTERM, SIGINT and SIGQUIT drain
    /// (a second one stops at once), SIGHUP reads the file again, SIGUSR1 opens the access log
    /// again.
    Run(Run),
    /// Replace the running process by a new one, which takes its sockets and connections over.
    ///
    /// The running process starts the program anew, from where it was started and with its own arguments, and
    /// hands over. Ends with 0 once the new process serves; with 1 and the reason if the former one goes on.
    Upgrade(Upgrade),
    /// Check a configuration file and report every error in it.
    Check(Check),
    /// Say which listener, route and cluster a request would take, and why not others.
    ///
    /// Nothing is sent: the request goes through the code that carries traffic, without a network.
    Explain(Explain),
    /// Show what a running process carries, in the terminal: clusters, listeners, sources, slow requests.
    ///
    /// Keys: 1 to 4 and tab choose what is listed, / filters by name (* stands for anything), s sorts by the next figure, enter shows a
    /// cluster's endpoints, esc goes back, q quits. It goes on while the process restarts.
    Top(TopOptions),
    /// Print the JSON Schema of the configuration file, for editors.
    Schema,
    /// Start with an embedded configuration and services to play with, on real sockets.
    Demo(Demo),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page.
    Man {
        /// Write all pages into this directory instead: strait(1), one for each command, and
        /// strait.yaml(5).
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The configuration file; `-` for standard input, which is read once.
    #[arg(short, long, value_name = "FILE", value_parser = config_path())]
    pub(crate) config: PathBuf,
    /// Write the secrets of TLS connections to the file that SSLKEYLOGFILE names, for Wireshark.
    ///
    /// With the file, recorded connections can be decrypted. For debugging only.
    #[arg(long)]
    pub(crate) tls_key_log: bool,
    /// Take the place of the process that listens on the configuration's `handover.socket`, with its sockets and
    /// connections. Where there is none, start as ever, unless this says `required`.
    #[arg(long, value_enum, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "if-any")]
    pub(crate) take_over: Option<TakeOver>,
    /// Leave core dumps as the system has them, although private keys may be in them.
    ///
    /// Otherwise they are off as soon as a configuration has keys.
    #[arg(long)]
    pub(crate) core_dumps: bool,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// Whether a process takes another's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TakeOver {
    /// If there is one.
    IfAny,
    /// Or it does not start.
    Required,
    /// Only say what would not move, and end.
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The configuration file for the new process. Absent: the one of the running process. Its `handover.socket`, or
    /// that of /etc/strait/strait.yaml, says where the running process is found; it is
    /// /run/strait/handover/strait.sock where neither does.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The program to start, instead of the path from which the running process was started.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
    /// Only say what would not move, by listener, chain and cluster.
    #[arg(long)]
    pub(crate) check: bool,
    /// Go back: the process that took over gives everything back to the one before it, within `handover.probation`.
    #[arg(long, conflicts_with_all = ["binary", "check"])]
    pub(crate) back: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file; `-` for standard input, whose relative paths are relative to the current folder.
    #[arg(short, long, value_name = "FILE", value_parser = config_path())]
    pub(crate) config: PathBuf,
    /// Fail, with status 1, also if there is nothing but warnings.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// How findings are printed: for people on standard error, or as a JSON array on standard output.
    #[arg(long, value_enum, default_value_t = CheckFormat::Text, conflicts_with = "print")]
    pub(crate) format: CheckFormat,
    /// Print the configuration with every default filled in and secrets masked.
    #[arg(long)]
    pub(crate) print: bool,
}

/// How `strait check` prints what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people.
    Text,
    /// An array with an object for each finding: file, line, column, path, level (`error` or `warning`), rule, message
    /// and hint.
    Json,
}

/// `-` is standard input.
fn config_path() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    clap::builder::PathBufValueParser::new()
        .map(|path| if path.as_os_str() == "-" { PathBuf::from(control::STDIN) } else { path })
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The configuration file; `-` for standard input.
    #[arg(short, long, value_name = "FILE", value_parser = config_path(),
          required_unless_present = "admin")]
    pub(crate) config: Option<PathBuf>,
    /// Ask the running process whose admin interface listens at this address, as 127.0.0.1:9901,
    /// localhost:9901 or unix:/run/strait/admin.sock, instead of a file.
    ///
    /// It answers from the configuration that it serves with, the addresses that DNS gave, the runtime values that
    /// count now and what it has counted of the endpoints; and says if it drains.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["config", "cert", "key"])]
    pub(crate) admin: Option<String>,
    /// The request's method.
    #[arg(required_unless_present = "tls")]
    pub(crate) method: Option<String>,
    /// The request's URL, as `https://shop.example/api/x`; or a path, with the host as a header; or
    /// what `CONNECT` asks for, as `db.example:5432`.
    #[arg(required_unless_present = "tls")]
    pub(crate) url: Option<String>,
    /// Only show the certificate and the TLS parameters that a client gets for this host.
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["method", "url", "headers"])]
    pub(crate) tls: Option<String>,
    /// A header field, as curl takes it.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The client's certificate and its intermediate certificates, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of the client's certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// The listener that receives the request, if the URL's port does not determine it.
    #[arg(long, value_name = "NAME")]
    pub(crate) listener: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// The admin interface of the process: an address, a name with a port, or unix:/run/strait/admin.sock.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(crate) admin: String,
    /// What is listed at first.
    #[arg(long, value_enum, default_value_t = View::Clusters)]
    pub(crate) view: View,
    /// By what clusters and listeners are sorted at first.
    #[arg(long, value_enum, default_value_t = TopSort::Exchanges)]
    pub(crate) sort: TopSort,
    /// List only names with this part, in which * stands for anything.
    #[arg(long, value_name = "PART")]
    pub(crate) filter: Option<String>,
    /// Time between two looks, of which rates are the difference: 500ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print the table once, for scripts, after two looks; columns are separated by spaces, the first line has their names.
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: how many lines, without the first.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, requires = "once")]
    pub(crate) limit: usize,
}

/// A time with its unit, as in a configuration.
fn interval(text: &str) -> Result<Duration, String> {
    let time: Result<Period, config::Problem> = text.parse();
    let Period(time) = time.map_err(|problem| format!("{}; {}", problem.rule, problem.hint))?;
    if time < Duration::from_millis(100) { Err("at least 100ms".to_owned()) } else { Ok(time) }
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where the demo takes requests.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Where its admin interface listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// Options of the log on standard error.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Minimum log level: less severe messages are not written to standard error. With debug, each event of a connection's life has
    /// a line, from accept to close, up to 1,000 a second on each worker.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,
    /// Format of log messages.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "strait", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(crate) fn man(dir: Option<&Path>) -> Result<(), Failure> {
    let command = Arguments::command();
    match dir {
        Some(dir) => manual::write(command, dir),
        None => manual::print(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
