//! More connections than handshakes may run are opened and left silent: none of them takes a
//! slot of a handshake, so that clients go on being served at once. Then each says half a hello, which
//! does take one: the oldest give way.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::{Options, Strait};
use crate::wait::{self, Stopwatch};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

/// Silent connections, where the limit on open files allows as many; and how many of them there are more than
/// handshakes may run. The default of `limits.handshakes_max` is 4,096.
const SILENT: u64 = 4_100;
const OVER: u64 = 4;

/// A silent connection is one descriptor here and another in Strait, which keeps as many again for
/// upstreams.
const DESCRIPTORS_EACH: u64 = 3;

/// How long a client may wait meanwhile, its own start included.
const PATIENCE: Duration = Duration::from_secs(2);

/// The beginning of a record that holds a hello (RFC 8446, section 5.1), and of the hello.
const HALF_A_HELLO: [u8; 9] = [22, 3, 1, 2, 0, 1, 0, 1, 252];

fn holds(lab: &Lab) -> Result<()> {
    let count = SILENT.min(raise_open_files()? / DESCRIPTORS_EACH);
    let handshakes_max = count.saturating_sub(OVER).max(1);
    let origin = Origin::start()?;
    super::issue_site(lab)?;
    let limits = format!("limits: {{ handshakes_max: {handshakes_max} }}");
    let options = Options {
        listener: &format!("timeouts: {{ tls_handshake: 60s }}\n{}", super::SITE),
        file: &limits,
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;

    let mut silent = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(strait.address());
        silent.push(stream.with_context(|| format!("after {} of {count}", silent.len()))?);
    }
    stand(&strait, count)?;
    is_served_at_once(lab, &strait)?;
    ensure!(strait.metric("strait_tls_handshakes_failed_total")? == 0.0, "none gives way");
    stand(&strait, count)?;

    for stream in &mut silent {
        stream.write_all(&HALF_A_HELLO)?;
    }
    let overflow = "strait_tls_handshakes_failed_total{listener=\"edge\",reason=\"overflow\"} ";
    wait::until("the oldest to give way", wait::SOON, || {
        let page = strait.admin("/metrics").map(|page| page.text()).unwrap_or_default();
        page.contains(&format!("{overflow}{OVER}\n"))
    })?;
    is_served_at_once(lab, &strait)?;
    Ok(())
}

/// Lets this process, and what it starts, open as many files as it may: how many.
fn raise_open_files() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Waits until so many connections stand, that of no other client beside them.
fn stand(strait: &Strait, count: u64) -> Result<()> {
    wait::until(&format!("{count} connections"), wait::SOON, || {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        strait
            .metric("strait_downstream_connections_active")
            .is_ok_and(|active| active == count as f64)
    })
}

/// Several clients of TLS, one after the other.
fn is_served_at_once(lab: &Lab, strait: &Strait) -> Result<()> {
    for (version, _) in super::VERSIONS {
        let stopwatch = Stopwatch::start();
        let printed = super::curl(lab, strait.address(), version, "/seen")?;
        let waited = stopwatch.elapsed();
        ensure!(printed.starts_with("GET /seen"), "{printed}");
        ensure!(waited < PATIENCE, "a client waited {waited:?}");
    }
    Ok(())
}
