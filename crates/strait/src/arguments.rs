//! The command line.

use std::io::{self, Write};
use std::net::IpAddr;
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
    /// Strait watches the file: a change takes effect without a restart. If a change has errors, they are logged
    /// and the previous configuration stays in use. Signals: SIGTERM, SIGINT and SIGQUIT drain,
    /// at the end of `limits.drain_delay` (a second one during that time ends the delay; one during the drain
    /// stops at once), SIGHUP reads the file again, SIGUSR1 opens the access log again.
    Run(Run),
    /// Replace the running process by a new one, which takes over its sockets and connections.
    ///
    /// The running process starts the program again, from the same path and with its own arguments, and
    /// hands over. The exit status is 0 once the new process serves. If the old process continues, the status is 1 and the
    /// reason is printed.
    Upgrade(Upgrade),
    /// Check a configuration file and report every error in it.
    Check(Check),
    /// Show which listener, route and cluster a request would use, and why others do not match.
    ///
    /// Nothing is sent: the command runs the request through the code of the data path, without a network.
    Explain(Explain),
    /// Show the load of a running process in the terminal: clusters, listeners, sources, slow requests.
    ///
    /// Keys: 1 to 5 and tab select the view, / filters by name (* is a wildcard), s sorts by the next column, enter shows the endpoints of
    /// a cluster, esc goes back, q quits. It continues while the process restarts.
    Top(TopOptions),
    /// Ask whether the running process serves, for probes: status 0 if it does, and otherwise 1, with the reason on standard error.
    Ready(Ready),
    /// Print the JSON Schema of the configuration file, for editors.
    Schema,
    /// Start with an embedded configuration and example services, on real sockets.
    Demo(Demo),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page.
    Man {
        /// Write all pages to this directory instead: strait(1), one page for each command, and
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
    /// This file allows recorded connections to be decrypted. For debugging only.
    #[arg(long)]
    pub(crate) tls_key_log: bool,
    /// Take over the sockets and connections of the process that listens on `handover.socket` of the configuration.
    /// If there is no such process, start normally, or fail with `required`.
    #[arg(long, value_enum, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "if-any")]
    pub(crate) take_over: Option<TakeOver>,
    /// Do not disable core dumps, although they may contain private keys.
    ///
    /// Without this option, core dumps are disabled as soon as a configuration has keys.
    #[arg(long)]
    pub(crate) core_dumps: bool,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// Whether a process takes another's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TakeOver {
    /// If there is a running process.
    IfAny,
    /// Fail if there is no running process.
    Required,
    /// Only print what would not move, and exit.
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The configuration file for the new process. By default the one of the running process. The running process is found by
    /// `handover.socket` of this file, or of /etc/strait/strait.yaml; if neither has it, at
    /// /run/strait/handover/strait.sock.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The program to start, instead of the path from which the running process was started.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
    /// Only print what would not move, by listener, filter chain and cluster.
    #[arg(long)]
    pub(crate) check: bool,
    /// Go back: the new process gives everything back to the old one, within `handover.probation`.
    #[arg(long, conflicts_with_all = ["binary", "check"])]
    pub(crate) back: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file; `-` for standard input, whose relative paths are relative to the current folder.
    #[arg(short, long, value_name = "FILE", value_parser = config_path())]
    pub(crate) config: PathBuf,
    /// Fail with status 1 if there are warnings.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// How findings are printed: for people on standard error, or as a JSON array on standard output.
    #[arg(long, value_enum, default_value_t = CheckFormat::Text, conflicts_with = "print")]
    pub(crate) format: CheckFormat,
    /// Print the configuration with every default filled in and secrets masked.
    #[arg(long)]
    pub(crate) print: bool,
}

/// How `strait check` prints findings.
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
    /// The process answers from its current configuration, addresses from DNS, runtime values and counts of endpoints,
    /// and reports whether it drains.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["config", "cert", "key"])]
    pub(crate) admin: Option<String>,
    /// The request's method.
    #[arg(required_unless_present = "tls")]
    pub(crate) method: Option<String>,
    /// The request's URL, as `https://shop.example/api/x`; or a path, with the host as a header; or
    /// the target of `CONNECT`, as `db.example:5432`.
    #[arg(required_unless_present = "tls")]
    pub(crate) url: Option<String>,
    /// Only show the certificate and the TLS parameters that a client gets for this host.
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["method", "url", "headers"])]
    pub(crate) tls: Option<String>,
    /// A header field, as for curl.
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
    /// The client's IP address, for rules and chains that match sources. Trusted hops are not considered.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<IpAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// The admin interface of the process: an address, a name with a port, or unix:/run/strait/admin.sock.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(crate) admin: String,
    /// The initial view.
    #[arg(long, value_enum, default_value_t = View::Clusters)]
    pub(crate) view: View,
    /// The initial order of clusters and listeners.
    #[arg(long, value_enum, default_value_t = TopSort::Exchanges)]
    pub(crate) sort: TopSort,
    /// List only names that contain this text, in which * is a wildcard.
    #[arg(long, value_name = "PART")]
    pub(crate) filter: Option<String>,
    /// Time between two measurements, from which rates are computed: 500ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print the table once, for scripts, after two measurements. Columns are separated by spaces; the first line has their names.
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: number of lines, without the first; at least 1.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, requires = "once", value_parser = lines)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Ready {
    /// The admin interface of the process, or its `admin.metrics`: an address, a name with a port, or unix:/run/strait/admin.sock.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(crate) admin: String,
    /// Only accept the process of this container (more exactly, of this mount namespace).
    ///
    /// During an upgrade between containers that share a network, the process of either container answers at the address. With
    /// `if-any`, the status is also 0 if the first process of this container is another program.
    #[arg(long, value_enum, value_name = "WHETHER", num_args = 0..=1, require_equals = true,
          default_missing_value = "required")]
    pub(crate) here: Option<Here>,
    /// Ask again until the process is ready, for this time at most: 30s, 2m.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = period)]
    pub(crate) wait: Duration,
}

/// Whether the process of this container is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Here {
    /// It has to be ready.
    Required,
    /// It has to be ready if there is one.
    IfAny,
}

/// A time with its unit, as in a configuration.
fn period(text: &str) -> Result<Duration, String> {
    let time: Result<Period, config::Problem> = text.parse();
    let Period(time) = time.map_err(|problem| format!("{}; {}", problem.rule, problem.hint))?;
    Ok(time)
}

/// The same, and long enough to measure.
fn interval(text: &str) -> Result<Duration, String> {
    let time = period(text)?;
    if time < Duration::from_millis(100) { Err("at least 100ms".to_owned()) } else { Ok(time) }
}

/// How many lines a table has at most.
fn lines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1; for all lines, give a large number, such as 1000000".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("a number of lines, such as 10".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Address on which the demo accepts requests.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Address of its admin interface.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(crate) admin: SocketAddr,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// Options of the log on standard error.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Minimum log level: less severe messages are not written to standard error. With debug, each event of a connection, from
    /// accept to close, has a line, up to 1,000 a second on each worker.
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
