//! The proxies that are compared: how each is started, and what it uses.
//!
//! Each runs on one core with one thread that forwards, from a file below `bench/configs`.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::setup::Setup;
use super::tools::Tools;
use super::{Options, generator};
use crate::plain::Plain;
use crate::say;

pub(crate) use crate::bench::binary::Binary;

/// A proxy that runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    /// Name in results.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// How it was started, without this machine's places.
    pub(crate) command: String,
    process: Process,
}

impl Running {
    /// Starts `binary` in front of `upstream` and waits until it answers what `setup` asks.
    ///
    /// # Errors
    ///
    /// If it does not come up, or answers wrongly; its own words are in the file that is named.
    pub(crate) fn start(
        tools: &Tools,
        options: &Options,
        binary: &Binary,
        setup: Setup,
        upstream: SocketAddr,
    ) -> Result<Self> {
        let text = match binary.kind.config() {
            Some(name) => {
                let path = tools.root.join("bench/configs").join(setup.configs()).join(name);
                fs::read_to_string(&path).with_context(|| path.display().to_string())?
            }
            None => String::new(),
        };
        Self::start_with(tools, options, binary, setup, &text, upstream)
    }

    /// The same with this configuration, whose place holders are filled in.
    ///
    /// # Errors
    ///
    /// As [`Running::start`].
    pub(crate) fn start_with(
        tools: &Tools,
        options: &Options,
        binary: &Binary,
        setup: Setup,
        text: &str,
        upstream: SocketAddr,
    ) -> Result<Self> {
        let address = free_address()?;
        let directory = tools.scratch.join(setup.configs());
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let stem = directory.join(file_name(&binary.name));
        let config = match binary.kind.config() {
            Some(name) => {
                let certificate = setup.certificate().map(|which| tools.certificate(which));
                let ending = Path::new(name).extension().unwrap_or_default().to_string_lossy();
                write_text(text, &stem, &ending, certificate.as_deref(), address, upstream)?
            }
            None => String::new(),
        };
        let arguments = binary.kind.arguments(&config, address, upstream);
        let log = with_ending(&stem, "log");
        let (process, command) =
            Process::start(tools, options.proxy_core, &binary.path, &arguments, &log)?;
        let mut running = Self { name: binary.name.clone(), address, command, process };
        let outcome = running.process.wait_until_listening(address).and_then(|()| {
            generator::check(tools, options, setup, address).context("its answers are not right")
        });
        outcome.with_context(|| format!("{} (see {})", running.name, log.display()))?;
        Ok(running)
    }

    /// CPU time used so far.
    ///
    /// # Errors
    ///
    /// If the proxy has died.
    pub(crate) fn cpu(&self) -> Result<CpuTime> {
        let mut total = CpuTime::default();
        for id in self.process.ids()? {
            let time = CpuTime::of(id).with_context(|| format!("{} has died", self.name))?;
            total.user_us += time.user_us;
            total.system_us += time.system_us;
        }
        Ok(total)
    }

    /// Resident memory in KiB.
    ///
    /// # Errors
    ///
    /// If the proxy has died.
    pub(crate) fn rss_kib(&self) -> Result<u64> {
        let mut total = 0;
        for id in self.process.ids()? {
            total += rss_kib_of(id).with_context(|| format!("{} has died", self.name))?;
        }
        Ok(total)
    }

    /// The ids of its processes.
    ///
    /// # Errors
    ///
    /// If the proxy has died.
    pub(crate) fn ids(&self) -> Result<Vec<u32>> {
        self.process.ids()
    }
}

/// CPU time of a process over all of its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// In user mode, microseconds.
    pub(crate) user_us: f64,
    /// In the kernel, microseconds.
    pub(crate) system_us: f64,
}

/// Microseconds of a clock tick in `/proc` (`USER_HZ` is 100 on Linux, whatever the kernel's own).
const TICK_US: f64 = 10_000.0;

impl CpuTime {
    fn of(id: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        Self::parse(&stat).context("no CPU times in /proc/PID/stat")
    }

    /// Reads fields 14 and 15. The second field is the program's name in parentheses and may hold
    /// anything, parentheses included.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        Some(Self { user_us: ticks()? * TICK_US, system_us: ticks()? * TICK_US })
    }
}

/// The value of `VmRSS` in the text of `/proc/PID/status`.
/// The resident memory of a process, KiB.
///
/// # Errors
///
/// There is no such process.
pub(crate) fn rss_kib_of(id: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    vm_rss_kib(&status).context("no VmRSS")
}

fn vm_rss_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// A program on a core of its own, killed with its children on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program` on `core`, with its outputs in the file `log`. Returns the command too,
    /// without paths of this machine.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub(crate) fn start(
        tools: &Tools,
        core: u32,
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<(Self, String)> {
        let output = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new("taskset");
        command.arg("-c").arg(core.to_string()).arg(program).args(arguments);
        command.current_dir(&tools.root).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output);
        let text = format!("taskset -c {core} {} {}", program.display(), arguments.join(" "));
        let text = tools.without_places(&text);
        say::command(&text);
        let child = command.spawn().with_context(|| format!("starting `{text}`"))?;
        Ok((Self { child }, text))
    }

    /// Waits until the program accepts connections at `address`.
    ///
    /// # Errors
    ///
    /// If the program ends or five seconds go by first.
    pub(crate) fn wait_until_listening(&mut self, address: SocketAddr) -> Result<()> {
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("ended at once ({status})");
            }
            pause(Duration::from_millis(50));
        }
        bail!("does not listen on {address}")
    }

    /// The program and its children (nginx forwards in one).
    fn ids(&self) -> Result<Vec<u32>> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
            .context("a program of this run has died")?;
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        Ok(std::iter::once(id).chain(children).collect())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Children first found, all killed by id; one that is gone already is no matter.
        let ids = self.ids().unwrap_or_default();
        let ids = ids.iter().map(u32::to_string).fold(String::new(), |text, id| text + " " + &id);
        let kill = format!("kill -KILL{ids} 2>/dev/null");
        let _ = Plain::new(Path::new("/"), "sh", &["-c", &kill]).read();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A free address of this machine.
///
/// # Errors
///
/// If no port is left.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(listener.local_addr()?)
}

/// Waits, for another program to get somewhere.
#[expect(clippy::disallowed_methods, reason = "other programs take the time that they take")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Fills `template` in and returns the path of what came of it: `stem` with the same ending, as
/// Strait knows by its file's name what it is.
///
/// # Errors
///
/// If a file cannot be read or written.
pub(crate) fn write_config(
    template: &Path,
    stem: &Path,
    certificate: Option<&Path>,
    listen: SocketAddr,
    upstream: SocketAddr,
) -> Result<String> {
    let text = fs::read_to_string(template).with_context(|| template.display().to_string())?;
    let ending = template.extension().unwrap_or_default().to_string_lossy();
    write_text(&text, stem, &ending, certificate, listen, upstream)
}

/// The same with the text of a template.
fn write_text(
    text: &str,
    stem: &Path,
    ending: &str,
    certificate: Option<&Path>,
    listen: SocketAddr,
    upstream: SocketAddr,
) -> Result<String> {
    let directory = stem.parent().context("a file in a directory")?;
    let text = filled_in(text, directory, certificate, listen, upstream);
    let path = with_ending(stem, ending);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

/// Behind whatever dots the name has.
fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}.{ending}", stem.display()))
}

fn filled_in(
    text: &str,
    scratch: &Path,
    certificate: Option<&Path>,
    listen: SocketAddr,
    upstream: SocketAddr,
) -> String {
    let certificate = certificate.unwrap_or_else(|| Path::new(""));
    text.replace("@LISTEN@", &listen.to_string())
        .replace("@LISTEN_HOST@", &listen.ip().to_string())
        .replace("@LISTEN_PORT@", &listen.port().to_string())
        .replace("@UPSTREAM@", &upstream.to_string())
        .replace("@UPSTREAM_HOST@", &upstream.ip().to_string())
        .replace("@UPSTREAM_PORT@", &upstream.port().to_string())
        .replace("@DIRECTORY@", &scratch.to_string_lossy())
        .replace("@CERTIFICATE@", &certificate.to_string_lossy())
}

/// A name as part of a file name: a git reference may hold slashes.
fn file_name(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c), "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::kinds::ProxyKind;

    #[test]
    fn cpu_times_are_found_behind_any_program_name() {
        let stat = "42 (a) b) ) S 1 2 3 4 5 6 7 8 9 10 250 750 13 14 20 0 1 0 99";
        let time = CpuTime::parse(stat).unwrap();
        assert_eq!(time, CpuTime { user_us: 2_500_000.0, system_us: 7_500_000.0 });
        assert_eq!(CpuTime::parse("42 (x) S 1 2"), None);
    }

    #[test]
    fn resident_memory_is_read_in_kib() {
        assert_eq!(vm_rss_kib("VmHWM:\t 9 kB\nVmRSS:\t    1234 kB\nRssAnon: 1 kB"), Some(1234));
        assert_eq!(vm_rss_kib("Name: x"), None);
    }

    #[test]
    fn every_place_holder_of_every_config_is_filled_in() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/configs");
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        for setup in Setup::ALL {
            for kind in ProxyKind::ALL.into_iter().filter(|&kind| setup.has(kind)) {
                let Some(name) = kind.config() else { continue };
                let name = format!("{}/{name}", setup.configs());
                let text = fs::read_to_string(format!("{directory}/{name}")).expect(&name);
                assert!(text.contains("@LISTEN") && text.contains("@UPSTREAM"), "{name}");
                assert_eq!(text.contains("@CERTIFICATE@"), setup.certificate().is_some());
                let place = Path::new("/x");
                let text = filled_in(&text, place, Some(place), address, address);
                let left = text.lines().find(|line| line.replace("\"@type\"", "").contains('@'));
                assert_eq!(left, None, "{name}");
            }
        }
    }

    #[test]
    fn nginx_as_a_service_answers_as_our_own_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/configs/services/nginx.conf");
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let text = fs::read_to_string(path).unwrap();
        let text = filled_in(&text, Path::new("/x"), None, address, address);
        assert!(text.contains("listen 127.0.0.1:80 http2;") && !text.contains('@'), "{text}");
        let (_, body) = text.split_once("return 200 \"").expect("it answers");
        assert_eq!(body.find('"'), Some(1024));
    }

    #[test]
    fn a_reference_with_slashes_makes_one_file_name() {
        assert_eq!(file_name("strait@origin/main~2"), "strait_origin_main_2");
    }
}
