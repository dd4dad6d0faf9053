//! A hundred processes take each other's place while ten thousand connections are open, half of them over TLS: none is lost or opened
//! anew. All of them ask once before and once behind all handovers, and once in every five: so some handovers move connections of which
//! one after the other asks, and some those of which none does. Each answer is the one to its own request. Ten more of TLS 1.3 update
//! their keys between the handovers. What clients asked, exchanges that finished and lines of the access log are as many.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{all_were_served, handover, upgrade_often_and};
use crate::claim::Claim;
use crate::claims::tls;
use crate::client::Client;
use crate::lab::Lab;
use crate::openssl::Session;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::process::Process;
use crate::strait::{Options, Strait, local};
use crate::{pattern, ports, python, say, wait};

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Python, Peer::Openssl], holds };

/// Of all kinds together, where the limit on open files leaves room for them.
const CONNECTIONS: u64 = 10_000;

/// The fewest that are worth it.
const CONNECTIONS_MIN: u64 = 9000;

/// Of TLS 1.2.
const OLDER: usize = 1000;

/// Of TLS 1.3, with keys that are updated.
const UPDATED: usize = 10;

/// Handovers from one turn of the clients to the next.
const TURN: u32 = 5;

/// Files that Strait keeps for other things than connections, and more.
const FURTHER_FILES: u64 = 200;

/// How long all connections may take to open, or to ask once.
const PATIENCE: Duration = Duration::from_secs(60);

fn holds(lab: &Lab) -> Result<()> {
    let connections = allow_open_files()?;
    tls::issue_site(lab)?;
    let origin = Origin::start()?;
    let plain = local(ports::free()?);
    // They are opened one after the other, and asked on once all are.
    let patient = "timeouts: { idle: 10m, request_head: 10m }";
    let options = Options {
        listener: &format!("{}\n{patient}", tls::SITE),
        listeners: &format!(
            "- {{ name: plain, address: \"{plain}\", routes: everything, {patient} }}"
        ),
        file: &handover(lab),
        ..Options::default()
    };
    let strait = Strait::forwarding_to(lab, origin.address(), options)?;
    let mut clients = Clients::connect(lab, connections - UPDATED, plain, strait.address())?;
    let mut sessions = Vec::new();
    for _ in 0..UPDATED {
        let options = ["-tls1_3", "-CAfile", "ca.pem"];
        let session = Session::connect(lab, strait.address(), tls::NAME, &options)?;
        session.prints("Verify return code: 0")?;
        sessions.push(session);
    }
    clients.begin_turn()?;
    clients.end_turn()?;
    let (mut updates, mut busy) = (0, 0);
    clients.begin_turn()?;
    upgrade_often_and(lab, &strait, |number| {
        busy += u32::from(clients.are_asking());
        let session = sessions.get_mut(updates % UPDATED).context("a session")?;
        update_keys(session).with_context(|| format!("s_client {}", updates % UPDATED))?;
        updates += 1;
        if number % TURN == 0 {
            clients.end_turn()?;
            clients.begin_turn()?;
        }
        Ok(())
    })?;
    clients.end_turn()?;
    ensure!(busy > 0, "no client asked while processes took each other's place");
    for session in &mut sessions {
        session.expect_running()?;
    }
    let expected = connections as f64;
    for metric in ["opened_total", "active"] {
        let found = strait.metric(&format!("strait_downstream_connections_{metric}"))?;
        ensure!(found == expected, "{metric}: {found} connections, and not {expected}");
    }
    let asked = (clients.asked() + updates) as f64;
    let finished = strait.metric("strait_exchanges_finished_total")?;
    ensure!(finished == asked, "{finished} exchanges, and clients asked {asked} times");
    wait::until("a line for each exchange", wait::SOON, || {
        strait.look_at_log(|_| Ok(())).is_ok_and(|lines| lines as f64 == finished)
    })
    .with_context(|| format!("{finished} exchanges"))?;
    all_were_served(&strait)
}

/// Takes new keys for both sides, and asks for a body.
fn update_keys(session: &mut Session) -> Result<()> {
    const LEN: usize = 100;
    session.commands("K", "KEYUPDATE")?;
    session.types(format!("GET /bytes/{LEN} HTTP/1.1\r\nhost: {}\r\n\r\n", tls::NAME))?;
    pattern::check(&*session.body(LEN)?, LEN)
}

/// Raises this process's limit, and with it that of those that it starts. Returns how many connections Strait takes: it keeps room for
/// one to a service beside each.
fn allow_open_files() -> Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let room = limit.maximum.map_or(CONNECTIONS, |files| files.saturating_sub(FURTHER_FILES) / 2);
    ensure!(
        room >= CONNECTIONS_MIN,
        "the hard limit on open files leaves room for {room} connections: raise it (ulimit -Hn) for {CONNECTIONS}"
    );
    if room < CONNECTIONS {
        say::line(format_args!("the hard limit on open files leaves room for {room} connections"));
    }
    Ok(usize::try_from(room.min(CONNECTIONS))?)
}

/// Clients in plaintext, which this program is, and of TLS, which Python is. In a turn they ask once on each connection.
struct Clients {
    orders: Sender<usize>,
    plain: JoinHandle<Result<()>>,
    plain_turns: Arc<AtomicUsize>,
    tls: Process,
    tls_orders: ChildStdin,
    turns: usize,
    count: usize,
}

impl Clients {
    /// Opens `count` connections, half of them to each address.
    fn connect(lab: &Lab, count: usize, plain: SocketAddr, over_tls: SocketAddr) -> Result<Self> {
        let of_tls = count / 2;
        let (tls, tls_orders) = python::keep_tls(lab, over_tls, of_tls - OLDER, OLDER)?;
        let mut kept = Vec::new();
        for _ in of_tls..count {
            kept.push(Client::connect(plain)?);
        }
        let (orders, ordered) = mpsc::channel();
        let plain_turns = Arc::new(AtomicUsize::new(0));
        let plain = {
            let turns = Arc::clone(&plain_turns);
            std::thread::spawn(move || ask_in_turns(kept, &ordered, &turns))
        };
        let mut this = Self { orders, plain, plain_turns, tls, tls_orders, turns: 0, count };
        this.wait_for("all connections to open", |this| this.tls.output().contains("open\n"))?;
        Ok(this)
    }

    fn begin_turn(&mut self) -> Result<()> {
        _ = self.orders.send(self.turns);
        self.tls_orders.write_all(b"\n")?;
        self.turns += 1;
        Ok(())
    }

    fn end_turn(&mut self) -> Result<()> {
        self.wait_for("the answers", |this| !this.are_asking())
    }

    fn are_asking(&self) -> bool {
        let of_tls = self.tls.output().matches("answered").count();
        self.plain_turns.load(Ordering::Acquire) < self.turns || of_tls < self.turns
    }

    /// Requests in all turns.
    fn asked(&self) -> usize {
        self.turns * self.count
    }

    /// Waits until this holds, or until a client gives up.
    fn wait_for(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Result<()> {
        let goes_on = wait::for_some(what, PATIENCE, || {
            let goes_on = self.tls.is_running() && !self.plain.is_finished();
            (!goes_on || holds(self)).then_some(goes_on)
        });
        if goes_on.with_context(|| self.tls.output())? {
            return Ok(());
        }
        ensure!(self.tls.is_running(), "clients of TLS: {}", self.tls.output());
        let (orders, _) = mpsc::channel();
        self.orders = orders;
        let ended = std::mem::replace(&mut self.plain, std::thread::spawn(|| Ok(())));
        ended.join().ok().context("a panic")?.context("clients in plaintext")?;
        bail!("the clients in plaintext ended")
    }
}

/// Asks on one connection after the other, in as many turns as are ordered.
fn ask_in_turns(
    mut kept: Vec<Client>,
    ordered: &Receiver<usize>,
    turns: &AtomicUsize,
) -> Result<()> {
    for turn in ordered {
        for (number, client) in kept.iter_mut().enumerate() {
            ask(client, &format!("request {turn} on connection {number} in plaintext"))
                .with_context(|| format!("request {turn} on connection {number}"))?;
        }
        turns.fetch_add(1, Ordering::Release);
    }
    Ok(())
}

fn ask(client: &mut Client, body: &str) -> Result<()> {
    let len = body.len();
    client.send(format!(
        "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len}\r\n\r\n{body}"
    ))?;
    let response = client.response()?;
    let is_right = response.status == 200 && response.body == body.as_bytes();
    ensure!(is_right, "{}{}", response.head, response.text());
    Ok(())
}
