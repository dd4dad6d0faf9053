//! One host that holds as many exchanges as it can, in four ways, while another is served as if alone:
//! bodies that do not come, bodies that stop, responses that are not read, and windows that stay shut.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::say;
use crate::strait::{Options, Strait};
use crate::wait::{self, Stopwatch};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[], holds };

/// The attacker's address, which is not that of the others.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Connections of the cluster, fewer than by default, so that a test can take them all.
const CLUSTER_CONNECTIONS: usize = 64;

/// Connections of the attacker.
const ATTACKERS: usize = 200;

/// Requests of a well-behaved client.
const REQUESTS: usize = 200;

/// Exchanges of the attacker that may give way, half of [`REQUESTS`]: others keep a
/// connection that they have got. All may be ended once for having stalled for long.
const PUSHED_OUT_MAX: f64 = 100.0;

/// A response that no socket buffers hold.
const LARGE: &str = "/bytes/20000000";

/// One way to hold exchanges.
struct Attack {
    name: &'static str,
    /// What each connection says.
    says: Vec<u8>,
    /// Connections of the cluster that it gets hold of before others ask.
    takes: usize,
    /// Whether exchanges have to give way.
    is_pushed_out: bool,
}

fn holds(lab: &Lab) -> Result<()> {
    let post = |length: usize, sent: usize| {
        let head = format!("POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n\r\n");
        [head.into_bytes(), vec![b'a'; sent]].concat()
    };
    let get = format!("GET {LARGE} HTTP/1.1\r\nhost: here\r\n\r\n");
    let attacks = [
        Attack {
            name: "bodies that do not come",
            says: post(8_192, 10),
            takes: CLUSTER_CONNECTIONS / 2,
            is_pushed_out: false,
        },
        Attack {
            name: "bodies that stop",
            says: post(100_000, 20_000),
            takes: CLUSTER_CONNECTIONS,
            is_pushed_out: true,
        },
        Attack {
            name: "responses that are not read",
            says: get.into_bytes(),
            takes: CLUSTER_CONNECTIONS,
            is_pushed_out: true,
        },
        Attack {
            name: "windows that stay shut",
            says: shut_windows(100),
            takes: CLUSTER_CONNECTIONS,
            is_pushed_out: true,
        },
    ];
    for attack in attacks {
        try_one(lab, &attack)?;
    }
    Ok(())
}

fn try_one(lab: &Lab, attack: &Attack) -> Result<()> {
    let origin = Origin::start()?;
    let bound = format!("connections_max: {CLUSTER_CONNECTIONS}");
    let options = Options { cluster: &bound, ..Options::default() };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let (_, before) = ask(&strait)?;

    let mut held = Vec::new();
    for _ in 0..ATTACKERS {
        let mut connection = connect_from(ATTACKER, strait.address())?;
        connection.write_all(&attack.says)?;
        held.push(connection);
    }
    wait::until("the attacker to hold what it gets", wait::SOON, || {
        origin.connections() >= attack.takes
    })?;
    let (slowest, after) = ask(&strait)?;
    say::line(format_args!(
        "    {}: p99 {after:?} during the attack, {before:?} before, {slowest:?} at most",
        attack.name
    ));
    ensure!(slowest < super::PATIENCE, "{}: a client waited {slowest:?}", attack.name);
    let stalled = super::cause(&strait, "stalled")?;
    ensure!((stalled > 0.0) == attack.is_pushed_out, "{}: {stalled} gave way", attack.name);
    ensure!(
        stalled < PUSHED_OUT_MAX,
        "{}: {stalled} gave way for {REQUESTS} requests",
        attack.name
    );
    Ok(())
}

/// What a well-behaved client sees: how long it waits at most, and for 99 of 100 requests.
fn ask(strait: &Strait) -> Result<(Duration, Duration)> {
    let mut took = Vec::new();
    for _ in 0..REQUESTS {
        let stopwatch = Stopwatch::start();
        let response = client::get(strait.address(), "/well-behaved")?;
        ensure!(response.status == 200, "{}", response.head);
        took.push(stopwatch.elapsed());
    }
    took.sort();
    let at =
        |percent: usize| took.get((took.len() - 1) * percent / 100).copied().unwrap_or_default();
    Ok((at(100), at(99)))
}

/// A connection whose client is at `address`, and has next to no room for what comes.
fn connect_from(address: Ipv4Addr, to: SocketAddr) -> Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, 4_096)?;
    bind(&socket, &SocketAddrV4::new(address, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// A connection of HTTP/2 that asks for so many large responses and opens no window for them.
fn shut_windows(streams: u32) -> Vec<u8> {
    // The setting INITIAL_WINDOW_SIZE (RFC 9113, section 6.5.2), 0.
    let settings = [0, 4, 0, 0, 0, 0];
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, 4, 0, 0, &settings);
    for stream in 0..streams {
        // GET and http by index, path and authority without indexing (RFC 7541, section 6.2.2).
        let mut head = vec![0x82, 0x86];
        for (index, text) in [(4, LARGE), (1, "here")] {
            head.extend([index, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
            head.extend(text.bytes());
        }
        frame(&mut bytes, 1, 5, 2 * stream + 1, &head);
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u8::try_from(payload.len()).unwrap_or(u8::MAX);
    bytes.extend([0, 0, length, kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}
