//! Of two endpoints, one is behind toxiproxy, which delays, resets and swallows what passes, while wrk runs: not one error, and
//! the endpoint is unhealthy as long as that lasts.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{becomes_healthy, becomes_unhealthy, expect_no_error_of_wrk, forwarding_to};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::ports;
use crate::process::Process;
use crate::strait::{Strait, local};

pub(super) const CLAIM: Claim = Claim {
    module: module_path!(),
    needs: &[Peer::Toxiproxy, Peer::Nginx, Peer::Wrk, Peer::Curl],
    holds,
};

/// What is done to bytes on their way back, and what checks say of it.
const TOXICS: [(&str, &str, &str); 3] = [
    ("latency", "{\"latency\": 2000}", "no answer"),
    ("reset_peer", "{\"timeout\": 0}", "ECONNRESET"),
    ("timeout", "{\"timeout\": 0}", "no answer"),
];

fn holds(lab: &Lab) -> Result<()> {
    // It writes a response in one piece. One that has begun is not replaced, so that a reset during it reaches the client, too.
    let nginx = Nginx::start(lab, "server { listen LISTEN; location / { return 200 nginx; } }")?;
    let (api, through) = (local(ports::free()?), local(ports::free()?));
    let program = Peer::Toxiproxy.program().context("toxiproxy")?;
    let port = api.port().to_string();
    let mut toxiproxy =
        Process::start(lab.folder(), program, &["-host", "127.0.0.1", "-port", &port])?;
    toxiproxy.ready(|| TcpStream::connect(api).is_ok())?;
    let post = |path: &str, body: &str| {
        lab.curl(&["-sf", "-X", "POST", "-d", body, &format!("http://{api}{path}")])
    };
    let upstream = nginx.address();
    post(
        "/proxies",
        &format!(
            "{{\"name\": \"api\", \"listen\": \"{through}\", \"upstream\": \"{upstream}\", \"enabled\": true}}"
        ),
    )?;
    let strait = Strait::configured(lab, &forwarding_to(&[upstream, through]))?;
    becomes_healthy(&strait, through)?;
    let url = strait.url("/");
    let mut wrk = Process::start(lab.folder(), "wrk", &["-t1", "-c16", "-d20s", &url])?;
    for (kind, attributes, reason) in TOXICS {
        let toxic = format!(
            "{{\"name\": \"toxic\", \"type\": \"{kind}\", \"stream\": \"downstream\", \"attributes\": {attributes}}}"
        );
        post("/proxies/api/toxics", &toxic)?;
        becomes_unhealthy(&strait, through, reason)?;
        let gone = format!("http://{api}/proxies/api/toxics/toxic");
        lab.curl(&["-sf", "-X", "DELETE", &gone])?;
        becomes_healthy(&strait, through)?;
    }
    ensure!(wrk.is_running(), "wrk ended before the last change");
    ensure!(wrk.wait(Duration::from_secs(40))?.success(), "{}", wrk.output());
    expect_no_error_of_wrk(&wrk.output())?;
    Ok(())
}
