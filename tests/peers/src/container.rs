//! Containers that a claim makes for itself: mount, PID and user namespaces of their own, in which a program is process 1, and the
//! machine's network. Their `/run` has nothing but the claim's folder, as [`FOLDER`].
//!
//! All processes of a container end with its first one, and that ends with this program, however it ends.

use std::process::ExitStatus;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::lab::Lab;
use crate::process::{Finished, Process};
use crate::wait;

/// Where programs in containers find the claim's folder.
pub(crate) const FOLDER: &str = "/run/strait";

/// What happens in the namespaces before the program runs; its words follow the folder.
const PREPARE: &str = r#"mount -t tmpfs tmpfs /run && mkdir /run/strait && mount --bind "$1" /run/strait &&
mount -t proc proc /proc && shift && exec "$@""#;

/// A running container.
#[derive(Debug)]
pub(crate) struct Container {
    /// `unshare`, whose only child is process 1; it ends as that does.
    process: Process,
}

impl Container {
    /// Runs `command` as user 0 of a user namespace. Pairs of `users` are an id in it and the id outside; a program without root's
    /// rights can give its own alone.
    pub(crate) fn start(lab: &Lab, users: &[(u32, u32)], command: &[&str]) -> Result<Self> {
        let namespace = ["--user", "sh", "-c", "echo made; exec cat"];
        // It ends with its input, once the container's processes are in the namespace.
        let (mut holder, _input) = Process::start_with_input(lab.folder(), "unshare", &namespace)?;
        let output = holder.output_file().to_owned();
        holder
            .ready(|| std::fs::read_to_string(&output).is_ok_and(|said| said == "made\n"))
            .context("no user namespace can be made: allow them on this machine")?;
        map(holder.id(), users)?;
        let target = format!("--target={}", holder.id());
        let enter = [&[&*target, "--user"], credentials(), &["--"]].concat();
        // Taking up a user namespace has the kernel forget what was to happen at our end. `mount` is set-user-id, of a user that has
        // another number here.
        let fixed = ["setpriv", "--no-new-privs", "--pdeathsig", "KILL", "--"];
        let namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--"];
        let folder = lab.folder().to_string_lossy();
        let prepare = ["sh", "-c", PREPARE, "sh", &folder];
        let arguments = [&enter, &fixed[..], &namespaces, &prepare, command].concat();
        let process = Process::start(lab.folder(), "nsenter", &arguments)?;
        let mut this = Self { process };
        let has_first = |this: &Self| this.first().is_ok();
        wait::until("a container", wait::SOON, || has_first(&this) || !this.is_running())?;
        Ok(this)
    }

    /// Runs a program in it to its end.
    pub(crate) fn run(&self, lab: &Lab, command: &[&str]) -> Result<Finished> {
        let target = format!("--target={}", self.first()?.as_raw_pid());
        let namespaces = ["--user", "--mount", "--pid"];
        lab.run(
            "nsenter",
            &[&[&*target], &namespaces[..], credentials(), &["--"], command].concat(),
        )
    }

    /// Waits until `is_ready`, or until process 1 has ended, which is an error.
    pub(crate) fn ready(&mut self, is_ready: impl FnMut() -> bool) -> Result<()> {
        self.process.ready(is_ready)
    }

    /// Waits until process 1, or another that writes to the same place, has printed this.
    pub(crate) fn prints(&self, text: &str) -> Result<()> {
        wait::until(&format!("{text:?}"), wait::SOON, || self.output().contains(text))
            .with_context(|| self.output())
    }

    /// What was printed in it so far.
    pub(crate) fn output(&self) -> String {
        self.process.output()
    }

    /// Whether process 1 still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Asks process 1 to end, as engines of containers do.
    pub(crate) fn terminate(&self) -> Result<()> {
        kill_process(self.first()?, Signal::TERM).context("signalling process 1")
    }

    /// Waits for the end of process 1.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        self.process.wait(wait::SOON)
    }

    /// Process 1, by its id outside.
    fn first(&self) -> Result<Pid> {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        let first = children.split_whitespace().next().context("process 1 has ended")?;
        Pid::from_raw(first.parse()?).context("a process id")
    }
}

/// Options by which `nsenter` makes a program user 0 of a user namespace.
fn credentials() -> &'static [&'static str] {
    match geteuid().is_root() {
        true => &["--setuid=0", "--setgid=0"],
        false => &["--preserve-credentials"],
    }
}

/// Gives a user namespace its users, and groups with the same ids.
fn map(process: u32, users: &[(u32, u32)]) -> Result<()> {
    let lines = |own: Option<u32>| -> String {
        let lines = users
            .iter()
            .map(|(inside, outside)| format!("{inside} {} 1\n", own.unwrap_or(*outside)));
        lines.collect()
    };
    let write = |file: &str, text: &str| {
        let path = format!("/proc/{process}/{file}");
        std::fs::write(&path, text).with_context(|| format!("writing {text:?} to {path}"))
    };
    let is_root = geteuid().is_root();
    if !is_root {
        write("setgroups", "deny")?;
    }
    let group = (!is_root).then(|| rustix::process::getegid().as_raw());
    // The kernel takes all lines at once or not at all.
    write("gid_map", &lines(group))?;
    write("uid_map", &lines(None))
}
