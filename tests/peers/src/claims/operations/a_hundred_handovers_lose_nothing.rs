//! A hundred processes take each other's place over TLS, while wrk and h2load run, a gibibyte goes down and another up, and tunnels
//! are used: no client sees an error or connects anew, every byte is the right one, and what clients counted, exchanges that finished and
//! lines of the access log are as many.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::claim::Claim;
use crate::claims::tls;
use crate::client::Client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::{self, Pattern};
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait, local};
use crate::{ports, wait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Wrk, Peer::H2load], holds };

const HANDOVERS: u32 = 100;

/// Connections of each client; wrk opens one more, with which it looks first.
const CONNECTIONS: u32 = 8;

const BODY_BYTES: usize = 1 << 30;

fn holds(lab: &Lab) -> Result<()> {
    tls::issue_site(lab)?;
    let origin = Origin::start()?;
    let plain = local(ports::free()?);
    let socket = lab.folder().join("handover/strait.sock");
    let handover = format!("handover: {{ socket: \"{}\", probation: 0s }}", socket.display());
    let listeners = format!("- {{ name: plain, address: \"{plain}\", routes: everything }}");
    let options = Options {
        listener: tls::SITE,
        listeners: &listeners,
        file: &handover,
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let url = format!("https://{}/bytes/1000", strait.address());
    let connections = CONNECTIONS.to_string();
    let h2load = ["-m4", "-c", &connections, "-t1", "-D40", &url];
    let mut http2 = Process::start(lab.folder(), "h2load", &h2load)?;
    let wrk = ["-t1", &format!("-c{CONNECTIONS}"), "-d40s", &url];
    let mut wrk = Process::start(lab.folder(), "wrk", &wrk)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let down = scope.spawn(|| download(plain));
        let up = scope.spawn(|| upload(plain));
        let tunnel = scope.spawn(|| tunnel(plain, &is_over));
        let upgraded = upgrade_often(lab, &strait);
        is_over.store(true, Ordering::Relaxed);
        upgraded?;
        for (what, thread) in [("download", down), ("upload", up), ("tunnel", tunnel)] {
            let result = thread.join().ok().context("a panic")?;
            result.with_context(|| what.to_owned())?;
        }
        Ok(())
    })?;
    ensure!(wrk.wait(wait::SOON * 5)?.success(), "{}", wrk.output());
    ensure!(http2.wait(wait::SOON * 5)?.success(), "{}", http2.output());
    let output = wrk.output();
    ensure!(!output.contains("Socket errors") && !output.contains("Non-2xx"), "{output}");
    let output = http2.output();
    ensure!(output.contains(" 0 failed, 0 errored, 0 timeout"), "{output}");
    // The two loads, wrk's look, and the three others.
    let opened = strait.metric("strait_downstream_connections_opened_total")?;
    let expected = f64::from(2 * CONNECTIONS + 1 + 3);
    ensure!(opened == expected, "{opened} connections were opened, and not {expected}");
    wait::until("all connections to end", wait::SOON, || {
        strait.metric("strait_downstream_connections_active").is_ok_and(|active| active == 0.0)
    })?;
    let finished = strait.metric("strait_exchanges_finished_total")?;
    let counted = counted(&wrk.output(), &http2.output())?;
    // Those that a load left when its time was over were not counted by it.
    let left = finished - counted - 3.0;
    ensure!(
        (0.0..=f64::from(5 * CONNECTIONS + 1)).contains(&left),
        "{finished} exchanges, and clients counted {counted}"
    );
    wait::until("a line for each exchange", wait::SOON, || {
        strait.logged().is_ok_and(|lines| lines.len() as f64 == finished)
    })
    .with_context(|| format!("{:?} lines of {finished}", strait.logged().map(|it| it.len())))
}

fn upgrade_often(lab: &Lab, strait: &Strait) -> Result<()> {
    let (program, file) = (lab.strait.to_string_lossy(), strait.file().to_string_lossy());
    for _ in 0..HANDOVERS {
        let output = lab.run(&program, &["upgrade", "--config", &file])?.ok()?;
        ensure!(output.contains("groups of connections moved, 0 stay and drain"), "{output}");
    }
    let generation = strait.metric("strait_generation")?;
    ensure!(generation == f64::from(HANDOVERS), "generation {generation}");
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

fn download(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let path =
        format!("GET /bytes/{BODY_BYTES} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(path.as_bytes())?;
    let mut stream = std::io::BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(crate::client::read_line(&mut stream, &mut head)? > 0, "{head:?}");
    }
    pattern::check(stream, BODY_BYTES)
}

fn upload(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "POST /check/{BODY_BYTES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BODY_BYTES}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Pattern::new().write(&mut stream, BODY_BYTES)?;
    let answer = std::io::read_to_string(stream)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

fn tunnel(address: SocketAddr, is_over: &AtomicBool) -> Result<()> {
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
