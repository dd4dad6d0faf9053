//! Networks that a claim has for itself: namespaces of the kernel, with addresses, routes and rules of
//! their own.
//!
//! A namespace has no name and lives as long as a program in it, which ends when its standard input
//! does: nothing is left behind, however this program ends. Root makes namespaces as it is; any
//! other user else does as the root of a user namespace, where the machine allows those.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::{Finished, Process};
use crate::wait;

/// A network with nothing but a loopback interface.
#[derive(Debug)]
pub(crate) struct Network {
    /// Whose namespaces they are.
    holder: Child,
}

impl Network {
    /// Makes one.
    pub(crate) fn new() -> Result<Self> {
        let user: &[&str] = if is_root() { &[] } else { &["--user", "--map-root-user"] };
        Self::made_by(Command::new("unshare").args(user))
    }

    /// Makes another that this one can be joined to.
    pub(crate) fn beside(other: &Self) -> Result<Self> {
        if is_root() {
            return Self::new();
        }
        // In the same user namespace, or the two could not be joined.
        let mut nsenter = Command::new("nsenter");
        nsenter.args([&other.target(), "--user", "--preserve-credentials", "--", "unshare"]);
        Self::made_by(&mut nsenter)
    }

    fn made_by(unshare: &mut Command) -> Result<Self> {
        let mut holder = unshare
            .args(["--net", "sh", "-c", "echo made; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting unshare")?;
        let mut word = String::new();
        let output = holder.stdout.take().context("the holder's output")?;
        BufReader::new(output).read_line(&mut word)?;
        let network = Self { holder };
        if word.trim_end() != "made" {
            bail!("no network of one's own: run as root, or allow user namespaces on this machine");
        }
        network.ip("link set lo up")?;
        Ok(network)
    }

    /// Joins two networks by a cable; each end has a name.
    pub(crate) fn join(&self, name: &str, other: &Self, name_there: &str) -> Result<()> {
        let there = other.holder.id();
        self.ip(&format!("link add {name} type veth peer name {name_there} netns {there}"))?;
        self.ip(&format!("link set {name} up"))?;
        other.ip(&format!("link set {name_there} up"))
    }

    /// Gives an interface an address, as `10.0.0.1/24`.
    pub(crate) fn address(&self, interface: &str, address: &str) -> Result<()> {
        // No other program can have it, so no search is needed.
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.ip(&format!("address add {address} dev {interface} {nodad}"))
    }

    /// Runs `ip` with these words.
    pub(crate) fn ip(&self, words: &str) -> Result<()> {
        let arguments: Vec<&str> = words.split_whitespace().collect();
        let ip = Peer::Ip.program().context("ip")?;
        let output = self.command(&ip, &arguments).output().context("starting ip")?;
        if !output.status.success() {
            bail!("ip {words}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Loads rules for packets.
    pub(crate) fn rules(&self, lab: &Lab, rules: &str) -> Result<()> {
        let file = lab.write("rules.nft", rules)?;
        let nft = Peer::Nft.program().context("nft")?;
        self.run(lab, &nft.to_string_lossy(), &["-f", &file.to_string_lossy()])?.ok().map(drop)
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, lab: &Lab, program: &str, arguments: &[&str]) -> Result<Finished> {
        let enter = self.enter();
        let mut all: Vec<&str> = enter.iter().map(String::as_str).collect();
        all.push(program);
        all.extend(arguments);
        lab.run("nsenter", &all)
    }

    /// Runs curl, silent but for errors, and hands over what it printed.
    pub(crate) fn curl(&self, lab: &Lab, arguments: &[&str]) -> Result<String> {
        let quiet = ["--silent", "--show-error", "--max-time", "20"];
        self.run(lab, "curl", &[&quiet, arguments].concat())?.ok()
    }

    /// Starts a program.
    pub(crate) fn start(&self, lab: &Lab, program: &Path, arguments: &[&str]) -> Result<Process> {
        let (enter, program) = (self.enter(), program.to_string_lossy());
        let mut all: Vec<&str> = enter.iter().map(String::as_str).collect();
        // Taking up a user namespace has the kernel forget what was to happen at our end.
        all.extend(["setpriv", "--pdeathsig", "KILL", "--", &program]);
        all.extend(arguments);
        Process::start(lab.folder(), "nsenter", &all)
    }

    /// Waits until a program listens on this port of an address of the network.
    pub(crate) fn listens(&self, process: &mut Process, port: u16) -> Result<()> {
        let is_listening = || {
            let port = format!("sport = :{port}");
            let output = self.command(Path::new("ss"), &["-Hltn", &port]).output();
            output.is_ok_and(|output| !output.stdout.is_empty())
        };
        process.ready(is_listening)
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(self.enter()).arg(program).args(arguments).stdin(Stdio::null());
        command
    }

    fn enter(&self) -> Vec<String> {
        let mut words = vec![self.target(), "--net".to_owned()];
        if !is_root() {
            words.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        words.push("--".to_owned());
        words
    }

    fn target(&self) -> String {
        format!("--target={}", self.holder.id())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Its input ends, and then it does.
        drop(self.holder.stdin.take());
        let ended =
            wait::for_some("a network's end", wait::SOON, || self.holder.try_wait().ok().flatten());
        if ended.is_err() {
            _ = self.holder.kill();
            _ = self.holder.wait();
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
