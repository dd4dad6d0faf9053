//! Ten processes take each other's place while wrk and h2load run: no client sees an error or connects anew,
//! and every answer is counted once.

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::H2load], holds };

/// Connections of each client; wrk opens one more, with which it looks first.
const CONNECTIONS: u32 = 16;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let socket = lab.folder().join("handover/strait.sock");
    let handover = format!("handover: {{ socket: \"{}\", probation: 0s }}", socket.display());
    let options = Options { file: &handover, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let url = strait.url("/bytes/1000");
    let (connections, file) = (CONNECTIONS.to_string(), strait.file().to_string_lossy());
    let h2load = ["-c", &connections, "-t1", "-D5", &url];
    let mut http2 = Process::start(lab.folder(), "h2load", &[&["-m4"], &h2load[..]].concat())?;
    let wrk = ["-t1", &format!("-c{CONNECTIONS}"), "-d5s", &url];
    let mut wrk = Process::start(lab.folder(), "wrk", &wrk)?;
    for _ in 0..10 {
        let program = lab.strait.to_string_lossy();
        let output = lab.run(&program, &["upgrade", "--config", &file])?.ok()?;
        ensure!(output.contains("groups of connections moved, 0 stay and drain"), "{output}");
    }
    ensure!(wrk.is_running() && http2.is_running(), "the load ended before the last handover");
    ensure!(wrk.wait(wait::SOON)?.success(), "{}", wrk.output());
    ensure!(http2.wait(wait::SOON)?.success(), "{}", http2.output());
    let output = wrk.output();
    ensure!(!output.contains("Socket errors") && !output.contains("Non-2xx"), "{output}");
    let output = http2.output();
    ensure!(output.contains(" 0 failed, 0 errored, 0 timeout"), "{output}");
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    let expected = f64::from(2 * CONNECTIONS + 1);
    ensure!(opened == expected, "{opened} connections were opened, and not {expected}");
    wait::until("all connections to end", wait::SOON, || {
        strait.metric("strait_downstream_connections_active").is_ok_and(|active| active == 0.0)
    })?;
    let finished = strait.metric("strait_exchanges_finished_total")?;
    let written = strait.metric("strait_access_log_records_total")?;
    ensure!(written == finished, "{written} lines for {finished} exchanges");
    // What was counted last is on its way to the file for some milliseconds; what was lost never comes.
    wait::until("a line for each exchange", wait::SOON, || {
        strait.logged().is_ok_and(|lines| lines.len() as f64 == finished)
    })
    .with_context(|| format!("{:?} lines of {finished}", strait.logged().map(|lines| lines.len())))
}
