//! At a handover either process is killed, or stopped, as it is about to read a message, whichever it is: the other one serves,
//! connections that were not touched are whole, and nothing hangs for more than five seconds. Behind COMMIT a process that is stopped is
//! killed by the other one, with its connections.
//!
//! strace counts the messages: nothing but the conversation calls `recvmsg`, and the signal comes before the message is read. Each of the
//! new process's threads has a count of its own, so that the first messages of its second thread are not among them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::{Finished, Process};
use crate::strait::{Options, Strait};
use crate::wait::{self, Stopwatch};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Strace], holds };

/// Idle connections at each handover.
const KEPT: usize = 6;

/// More messages than a handover of so few connections has.
const MESSAGES_MAX: u32 = 80;

/// By which message of the new process the former one knows that it accepts: behind its hello and its differences.
const SERVING: u32 = 3;

/// How long a handover may take in which one side stands still: its longest deadline, and what the machine takes.
const STOPPED_MAX: Duration = Duration::from_secs(8);

fn holds(lab: &Lab) -> Result<()> {
    let (phases, last) = kill_the_taker(lab)?;
    ensure!(phases.len() >= 4, "not all phases were met: {phases:?}");
    stop_the_taker(lab, last)?;
    kill_the_giver(lab)
}

/// `name`: of the socket's folder. One that was just killed may still have its own.
fn start(lab: &Lab, origin: &Origin, name: &str, probation: &str) -> Result<Strait> {
    let socket = lab.folder().join(name).join("strait.sock");
    let handover =
        format!("handover: {{ socket: \"{}\", probation: {probation} }}", socket.display());
    Strait::forwarding_to(lab, origin.address(), Options { file: &handover, ..Options::default() })
}

fn get(client: &mut Client, path: &str) -> Result<()> {
    client.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))?;
    let status = client.response()?.status;
    ensure!(status == 200, "{status}");
    Ok(())
}

fn kept(strait: &Strait) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..KEPT {
        let mut client = Client::connect(strait.address())?;
        get(&mut client, "/")?;
        clients.push(client);
    }
    Ok(clients)
}

/// Upgrades to a process that gets a signal at its nth message; an id of its own, since the tracer is a process beside it.
fn upgrade_to_one_that_gets(
    lab: &Lab,
    strait: &Strait,
    signal: &str,
    nth: u32,
) -> Result<Finished> {
    let program = lab.strait.display();
    let script = format!(
        "#!/bin/sh\nexec strace -D -f -qq -o /dev/null -e trace=recvmsg -e inject=recvmsg:signal={signal}:when={nth} \
         {program} \"$@\"\n"
    );
    let path = lab.write("traced", script)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    let (program, file) = (program.to_string(), strait.file().to_string_lossy());
    lab.run(&program, &["upgrade", "--config", &file, "--binary", &path.to_string_lossy()])
}

/// The phase in which a handover ended.
fn phase(output: &str) -> String {
    let mut lines = output.lines().filter_map(|line| line.split_once(" after "));
    lines.next_back().map_or("hello", |(phase, _)| phase).to_owned()
}

/// Whether a handover that failed closed no connection: nothing is said of these where none had been taken out.
fn closed_none(output: &str) -> bool {
    !output.contains("were closed") || output.contains(", 0 were closed")
}

/// Returns the phases that were met, and the last message before the end of a handover.
fn kill_the_taker(lab: &Lab) -> Result<(Vec<String>, u32)> {
    let origin = Origin::start()?;
    let strait = start(lab, &origin, "kill", "0s")?;
    // It is written down and taken back each time.
    let mut waits = Client::connect(strait.address())?;
    waits.send("GET /hold/bytes/9 HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    wait::until("a request at the service", wait::SOON, || origin.waiting() == 1)?;
    let mut phases: Vec<String> = Vec::new();
    for nth in 1..MESSAGES_MAX {
        let mut clients = kept(&strait)?;
        let finished = upgrade_to_one_that_gets(lab, &strait, "SIGKILL", nth)?;
        let output = &finished.output;
        let case = || format!("killed at message {nth}: {output}");
        for client in &mut clients {
            get(client, "/").with_context(case)?;
        }
        get(&mut Client::connect(strait.address())?, "/").with_context(case)?;
        if finished.status.success() {
            // Its last message was before that.
            origin.release();
            ensure!(waits.response()?.body.len() == 9, "another answer");
            return Ok((phases, nth - 1));
        }
        ensure!(closed_none(output), "{}", case());
        let phase = phase(output);
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
    }
    anyhow::bail!("every message of {MESSAGES_MAX} ended it")
}

fn stop_the_taker(lab: &Lab, last: u32) -> Result<()> {
    let origin = Origin::start()?;
    let strait = start(lab, &origin, "stop", "1m")?;
    for nth in 1..=last {
        let mut clients = kept(&strait)?;
        let stopwatch = Stopwatch::start();
        let output = upgrade_to_one_that_gets(lab, &strait, "SIGSTOP", nth)?;
        let (took, output) = (stopwatch.elapsed(), output.output);
        let case = || format!("stopped at message {nth}: {output}");
        ensure!(took < STOPPED_MAX, "{took:?}: {}", case());
        let has_moved = output.contains(" serves: ");
        let in_time = output.contains("did not answer in time") && closed_none(&output);
        ensure!(has_moved || in_time, "{}", case());
        // Stopped behind COMMIT: the other process serves again once it has noticed.
        get(&mut Client::connect(strait.address())?, "/").with_context(case)?;
        let took = stopwatch.elapsed();
        ensure!(took < STOPPED_MAX, "{took:?}: {}", case());
        for client in &mut clients {
            if has_moved {
                client.expect_close().with_context(case)?;
            } else {
                get(client, "/").with_context(case)?;
            }
        }
    }
    Ok(())
}

fn kill_the_giver(lab: &Lab) -> Result<()> {
    let (mut alone, mut together) = (0, 0);
    for nth in 1..MESSAGES_MAX {
        let origin = Origin::start()?;
        let mut strait = start(lab, &origin, &nth.to_string(), "0s")?;
        let mut clients = kept(&strait)?;
        let (id, inject) =
            (strait.id().to_string(), format!("inject=recvmsg:signal=SIGKILL:when={nth}"));
        let arguments = ["-f", "-p", &id, "-o", "/dev/null", "-e", "trace=recvmsg", "-e", &inject];
        let mut tracer = Process::start(lab.folder(), "strace", &arguments)?;
        let tasks = format!("/proc/{id}/task");
        tracer.ready(|| {
            let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
            let mut statuses =
                tasks.map(|task| std::fs::read_to_string(task.path().join("status")));
            statuses.all(|it| it.is_ok_and(|status| !status.contains("TracerPid:\t0\n")))
        })?;
        // Not started by the former process, or the tracer would count its messages, too.
        let file = strait.file().to_string_lossy().into_owned();
        let arguments = ["run", "--take-over=required", "--config", &file];
        let mut next = Process::start(lab.folder(), &lab.strait, &arguments)?;
        let status = strait.wait_for_end(wait::SOON)?;
        let case = format!("killed at message {nth}: {}", next.output());
        if status.success() {
            ensure!(alone > 0 && together > 0, "too early: {case}");
            return Ok(());
        }
        // Before it accepts, the new process has nothing to go on with.
        let patience = Duration::from_secs(if nth < SERVING { 1 } else { 5 });
        let serves = wait::until("an answer", patience, || {
            Client::connect(strait.address()).is_ok_and(|mut client| get(&mut client, "/").is_ok())
        });
        if nth < SERVING {
            together += 1;
            let ended = next.wait(wait::SOON)?;
            ensure!(serves.is_err() && !ended.success(), "it has nothing to serve with: {case}");
            continue;
        }
        serves.with_context(|| case.clone())?;
        alone += 1;
        // What had not moved is gone with it; nothing hangs.
        for client in &mut clients {
            let answered = get(client, "/");
            ensure!(
                answered.is_ok() || client.expect_close().is_ok(),
                "neither answered nor closed: {case}"
            );
        }
    }
    anyhow::bail!("every message of {MESSAGES_MAX} ended it")
}
