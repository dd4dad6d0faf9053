//! Clients of all kinds that work while processes take each other's place: over TLS wrk and h2load; in plaintext a large download and
//! another upload, a WebSocket, a relayed connection, and connections that are kept idle. Nothing is lost, doubled or opened anew.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::claims::tls;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::process::Process;
use crate::strait::{Options, Strait, local};
use crate::{ports, wait};

/// Connections of each client; wrk opens one more, with which it looks first.
const CONNECTIONS: u32 = 8;

/// Connections that carry one request before, and one behind all handovers.
const KEPT: u32 = 20;

/// How much there is to do.
pub(super) struct Load {
    /// How long wrk and h2load run.
    pub(super) seconds: u32,
    /// Of the download and of the upload.
    pub(super) body_bytes: usize,
}

/// Has clients work while `replace` has the process replaced, and compares what they counted with what it did.
pub(super) fn while_clients_work(
    lab: &Lab,
    load: &Load,
    replace: impl FnOnce(&Strait) -> Result<()>,
) -> Result<()> {
    tls::issue_site(lab)?;
    let origin = Origin::start()?;
    let (plain, relay) = (local(ports::free()?), local(ports::free()?));
    let socket = lab.folder().join("handover/strait.sock");
    let handover = format!("handover: {{ socket: \"{}\", probation: 0s }}", socket.display());
    let listeners = format!(
        "- {{ name: plain, address: \"{plain}\", routes: everything }}\n- {{ name: relay, address: \"{relay}\", protocol: tcp, \
         cluster: upstream }}"
    );
    let options = Options {
        listener: tls::SITE,
        listeners: &listeners,
        file: &handover,
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let mut client = Client::connect(plain)?;
        get(&mut client)?;
        kept.push(client);
    }
    let url = format!("https://{}/bytes/1000", strait.address());
    let (connections, seconds) = (CONNECTIONS.to_string(), load.seconds);
    let h2load = ["-m4", "-c", &connections, "-t1", &format!("-D{seconds}"), &url];
    let mut http2 = Process::start(lab.folder(), "h2load", &h2load)?;
    let wrk = ["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s"), &url];
    let mut wrk = Process::start(lab.folder(), "wrk", &wrk)?;
    let (is_over, body_bytes) = (AtomicBool::new(false), load.body_bytes);
    std::thread::scope(|scope| -> Result<()> {
        let down = scope.spawn(|| download(plain, body_bytes));
        let up = scope.spawn(|| upload(plain, body_bytes));
        let websocket = scope.spawn(|| tunnel(plain, &is_over));
        // To the service, the same; Strait does not look into it.
        let relayed = scope.spawn(|| tunnel(relay, &is_over));
        let replaced = replace(&strait);
        is_over.store(true, Ordering::Relaxed);
        replaced?;
        let threads =
            [("download", down), ("upload", up), ("WebSocket", websocket), ("relay", relayed)];
        for (what, thread) in threads {
            let result = thread.join().ok().context("a panic")?;
            result.with_context(|| what.to_owned())?;
        }
        Ok(())
    })?;
    for client in &mut kept {
        get(client).context("a kept connection")?;
    }
    drop(kept);
    ensure!(wrk.wait(wait::SOON * 5)?.success(), "{}", wrk.output());
    ensure!(http2.wait(wait::SOON * 5)?.success(), "{}", http2.output());
    let output = wrk.output();
    ensure!(!output.contains("Socket errors") && !output.contains("Non-2xx"), "{output}");
    let output = http2.output();
    ensure!(output.contains(" 0 failed, 0 errored, 0 timeout"), "{output}");
    // The two loads, wrk's look, the four others, and what was kept.
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    let expected = f64::from(2 * CONNECTIONS + 1 + 4 + KEPT);
    ensure!(opened == expected, "{opened} connections were opened, and not {expected}");
    wait::until("all connections to end", wait::SOON, || {
        strait.metric("strait_downstream_connections_active").is_ok_and(|active| active == 0.0)
    })?;
    let finished = strait.metric("strait_exchanges_finished_total")?;
    let counted = counted(&wrk.output(), &http2.output())?;
    // Those that a load left when its time was over were not counted by it.
    let left = finished - counted - f64::from(4 + 2 * KEPT);
    ensure!(
        (0.0..=f64::from(5 * CONNECTIONS + 1)).contains(&left),
        "{finished} exchanges, and clients counted {counted}"
    );
    wait::until("a line for each exchange", wait::SOON, || {
        strait.logged().is_ok_and(|lines| lines.len() as f64 == finished)
    })
    .with_context(|| format!("{:?} lines of {finished}", strait.logged().map(|it| it.len())))
}

pub(super) fn get(client: &mut Client) -> Result<()> {
    client.send("GET /bytes/9 HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let status = client.response()?.status;
    ensure!(status == 200, "{status}");
    Ok(())
}

/// What the two loads say that they got.
fn counted(wrk: &str, h2load: &str) -> Result<f64> {
    let of_wrk = wrk.lines().find_map(|line| line.split_once(" requests in "));
    let of_wrk: f64 = of_wrk.context("wrk counts")?.0.trim().parse()?;
    let of_h2load = h2load.lines().find_map(|line| line.strip_prefix("status codes: "));
    let of_h2load = of_h2load.and_then(|line| line.split_once(" 2xx")).context("h2load counts")?;
    Ok(of_wrk + of_h2load.0.parse::<f64>()?)
}

fn download(address: SocketAddr, body_bytes: usize) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let path =
        format!("GET /bytes/{body_bytes} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(path.as_bytes())?;
    let mut stream = std::io::BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(crate::client::read_line(&mut stream, &mut head)? > 0, "{head:?}");
    }
    pattern::check(stream, body_bytes)
}

fn upload(address: SocketAddr, body_bytes: usize) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "POST /check/{body_bytes} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {body_bytes}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Pattern::new().write(&mut stream, body_bytes)?;
    let answer = std::io::read_to_string(stream)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// Sends numbers through a tunnel, each once the one before has come back.
pub(super) fn tunnel(address: SocketAddr, is_over: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(address)?;
    client.send(
        "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n",
    )?;
    ensure!(client.response()?.status == 101, "no tunnel");
    let mut n = 0u64;
    while !is_over.load(Ordering::Relaxed) {
        client.send(n.to_be_bytes())?;
        ensure!(client.read(8)? == n.to_be_bytes(), "another echo");
        n += 1;
    }
    Ok(())
}
