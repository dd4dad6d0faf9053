//! A hundred processes take each other's place between nginx and HAProxy, each in front of Strait and behind it, under wrk: no request
//! fails, and neither proxy in front opens a connection anew. Idle connections to those behind move beside idle ones of clients, each by itself, so that a
//! request may come where none is left, or not there yet: a few are opened at each handover.

use anyhow::{Context as _, Result, ensure};

use super::{HANDOVERS, handover, upgrade_often};
use crate::claim::Claim;
use crate::haproxy::Haproxy;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Strait, local};
use crate::{ports, wait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::Nginx, Peer::Haproxy], holds };

/// Of each wrk: so many requests are under way at any time.
const CONNECTIONS: u32 = 8;

/// Connections to those behind that a handover may open, of the sixteen that there are.
const FEW: u32 = 4;

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let [nginx_behind, haproxy_behind, second] =
        [ports::free()?, ports::free()?, ports::free()?].map(local);
    let config = format!(
        "{}
listeners:
- {{ name: from-nginx, address: \"LISTEN\", routes: to-haproxy }}
- {{ name: from-haproxy, address: \"{second}\", routes: to-nginx }}
routes:
- {{ name: to-haproxy, rules: [{{ match: {{ prefix: / }}, cluster: haproxy }}] }}
- {{ name: to-nginx, rules: [{{ match: {{ prefix: / }}, cluster: nginx }}] }}
clusters:
- {{ name: haproxy, endpoints: [\"{haproxy_behind}\"] }}
- {{ name: nginx, endpoints: [\"{nginx_behind}\"] }}",
        handover(lab)
    );
    let strait = Strait::configured(lab, &config)?;
    let pass = "proxy_http_version 1.1; proxy_set_header connection '';";
    let http = format!(
        "  upstream strait {{ server {}; keepalive 32; keepalive_requests 100000000; }}
  upstream origin {{ server {}; keepalive 32; keepalive_requests 100000000; }}
  keepalive_timeout 10m;
  server {{ listen LISTEN; location / {{ proxy_pass http://strait; {pass} }} }}
  server {{ listen {nginx_behind}; location / {{ proxy_pass http://origin; {pass} }} }}",
        strait.address(),
        origin.address()
    );
    let nginx = Nginx::start(lab, &http)?;
    let frontend = format!(
        "  bind LISTEN
  default_backend strait
backend strait
  http-reuse always
  server strait {second} pool-purge-delay 10m
frontend behind
  bind {haproxy_behind}
  timeout http-keep-alive 10m
  default_backend origin
backend origin
  http-reuse always
  server origin {} pool-purge-delay 10m",
        origin.address()
    );
    let haproxy = Haproxy::start(lab, &frontend)?;
    let connections = format!("-c{CONNECTIONS}");
    let mut loads = Vec::new();
    for (front, address) in [("nginx", nginx.address()), ("haproxy", haproxy.address())] {
        let url = format!("http://{address}/bytes/1000");
        let wrk = Process::start(lab.folder(), "wrk", &["-t1", &connections, "-d60s", &url])?;
        loads.push((front, wrk));
    }
    upgrade_often(lab, &strait)?;
    for (front, wrk) in &mut loads {
        ensure!(wrk.is_running(), "the load behind {front} ended before the last handover");
    }
    let mut counted = 0.0;
    for (front, wrk) in &mut loads {
        ensure!(wrk.wait(wait::SOON * 10)?.success(), "{front}: {}", wrk.output());
        let output = wrk.output();
        let is_clean = !output.contains("Socket errors") && !output.contains("Non-2xx");
        ensure!(is_clean, "{front}: {output}");
        let count = output.lines().find_map(|line| line.split_once(" requests in "));
        counted += count.context("wrk counts")?.0.trim().parse::<f64>()?;
    }
    // As many as requests were under way; a connection that was lost would be one more.
    let most = f64::from(2 * CONNECTIONS);
    let few = f64::from(FEW * HANDOVERS);
    for (side, most) in [("downstream", most), ("upstream", most + few)] {
        let opened = strait.metric(&format!("strait_{side}_connections_opened_total"))?;
        ensure!(opened <= most, "{opened} {side} connections");
    }
    let left = strait.metric("strait_exchanges_finished_total")? - counted;
    ensure!((0.0..=most).contains(&left), "{left} exchanges more than wrk counted");
    Ok(())
}
