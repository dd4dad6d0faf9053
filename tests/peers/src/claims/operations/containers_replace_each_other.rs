//! Strait in one container takes the place of Strait in another, with mount, PID and user namespaces of their own and a shared folder:
//! connections that are kept, a download and a tunnel move, and nothing is lost. Either is process 1. The old one stays until its
//! container is stopped, and both end with status 0. Where the two users differ outside of the containers, the old process refuses the
//! new one before it sends anything, unless `handover.users` has it by its number in the old one's container. Users without a number
//! there are not taken for the one that has the number by which the kernel reports them.

use std::fs::Permissions;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use rustix::process::geteuid;

use super::await_take_over;
use super::handover_load::{get, tunnel};
use crate::claim::Claim;
use crate::client::{self, Client};
use crate::container::{Container, FOLDER};
use crate::lab::Lab;
use crate::origin::Origin;
use crate::pattern::Pattern;
use crate::peer::Peer;
use crate::process::Finished;
use crate::strait::{local, metric};
use crate::{ports, wait};

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Unshare], holds };

/// Connections that carry one request before, and one behind the handover.
const KEPT: usize = 10;

/// Of the download, which is half done at the handover.
const BODY_BYTES: usize = 32 << 20;

/// A user of the machine, and its number in the old process's container.
const OTHER: u32 = 54_321;
const OTHER_THERE: u32 = 1000;

/// Root's number in the container of [`OTHER`].
const ROOT_THERE: u32 = 2000;

/// What the kernel says of a user without a number in a namespace.
const UNKNOWN: u32 = 65_534;

/// Why a process refuses a folder of such a user.
const UNKNOWN_OWNER: &str = "user 65534 owns it, which is any user without a number";

/// Runs a program as the user that has this number.
const AS_UNKNOWN: &[&str] =
    &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL", "--"];

/// A number that no user has.
const ABSENT: u32 = 4242;

fn holds(lab: &Lab) -> Result<()> {
    // Other users may not enter the folder of a build.
    std::fs::copy(&lab.strait, lab.folder().join("strait"))?;
    users_are_the_same(lab).context("the same user")?;
    an_upgraded_one_stays(lab).context("after an upgrade within the old container")?;
    if !geteuid().is_root() {
        return Ok(());
    }
    others_are_refused(lab).context("another user")?;
    others_may_be_named(lab).context("another user with a name")?;
    unknown_ones_are_refused(lab).context("a user without a number")?;
    one_with_the_unknown_ones_number_upgrades(lab).context("the user with its number")
}

fn users_are_the_same(lab: &Lab) -> Result<()> {
    let site = Site::new(lab, "same")?;
    let users = [(0, geteuid().as_raw())];
    let mut old = site.start(&users, &[])?;
    let (mut new, mut kept) = replace_under_load(&site, &old, || site.take_over(&users, &[]))?;
    // The new one is not of its container.
    ensure!(old.is_running(), "the old container ended: {}", old.output());
    old.terminate()?;
    expect_clean_end(&mut old)?;
    get(&mut kept).context("once the old container is stopped")?;
    drop(kept);
    new.terminate()?;
    expect_clean_end(&mut new)
}

/// Process 1 of the old container was replaced within it before, and its successor is replaced by another container's.
fn an_upgraded_one_stays(lab: &Lab) -> Result<()> {
    let site = Site::new(lab, "upgraded")?;
    let users = [(0, geteuid().as_raw())];
    let mut old = site.start(&users, &[])?;
    let (program, file) = (format!("{FOLDER}/strait"), format!("{FOLDER}/upgraded-old.yaml"));
    old.run(lab, &[&program, "upgrade", "--config", &file])?.ok()?;
    old.prints("this process is the first of its container: it stays")?;
    let mut new = site.take_over(&users, &[])?;
    new.ready(|| metric(site.admin, "strait_generation").is_ok_and(|it| it == 2.0))?;
    new.prints("the old process has ended")?;
    let ran = old.run(lab, &["true"]).and_then(Finished::ok);
    ensure!(ran.is_ok() && old.is_running(), "the old container ended: {}", old.output());
    old.terminate()?;
    expect_clean_end(&mut old)?;
    new.terminate()?;
    expect_clean_end(&mut new)
}

fn others_are_refused(lab: &Lab) -> Result<()> {
    let site = Site::new(lab, "refused")?;
    let mut old = site.start(&[(0, 0), (OTHER_THERE, OTHER)], &[ABSENT])?;
    let mut kept = Client::connect(site.address)?;
    get(&mut kept)?;
    let with_numbers: (&[_], _, _) =
        (&[(0, OTHER), (ROOT_THERE, 0)], ROOT_THERE, "user 1000 may not take over");
    // It does not take the folder's owner for a user that it knows, and says so to the old one, which refuses it.
    let without: (&[_], _, _) = (&[(0, OTHER + 1)], UNKNOWN, UNKNOWN_OWNER);
    for (count, (users, names, reason)) in (1..).zip([with_numbers, without]) {
        let mut new = site.take_over(users, &[names])?;
        let status = new.wait()?;
        let output = new.output();
        ensure!(status.code() == Some(1) && output.contains(reason), "{status}: {output}");
        let refused = metric(site.admin, "strait_handover_failures_total{cause=\"user\"}")?;
        ensure!(refused == f64::from(count), "{refused} refusals");
    }
    // The second one follows too soon for a line.
    old.prints(&format!("a handover is refused: user {OTHER_THERE} may not take over"))?;
    let log = old.output();
    ensure!(!log.contains("handover phase"), "a handover began: {log}");
    get(&mut kept)?;
    let opened = metric(site.admin, "strait_downstream_connections_opened_total")?;
    ensure!(opened == 1.0, "{opened} connections");
    drop(kept);
    old.terminate()?;
    expect_clean_end(&mut old)
}

fn others_may_be_named(lab: &Lab) -> Result<()> {
    let site = Site::new(lab, "named")?;
    let mut old = site.start(&[(0, 0), (OTHER_THERE, OTHER)], &[OTHER_THERE])?;
    let users = [(0, OTHER), (ROOT_THERE, 0)];
    let (mut new, kept) =
        replace_under_load(&site, &old, || site.take_over(&users, &[ROOT_THERE]))?;
    drop(kept);
    new.terminate()?;
    expect_clean_end(&mut new)?;
    ensure!(old.is_running(), "the old container ended: {}", old.output());
    old.terminate()?;
    expect_clean_end(&mut old)
}

/// The old process has the number by which the kernel reports users without one, and lets others connect.
fn unknown_ones_are_refused(lab: &Lab) -> Result<()> {
    let site = Site::new(lab, "unknown")?;
    site.give_folder(OTHER, 0o711)?;
    let mut old = site.run("old", (&[(0, 0), (UNKNOWN, OTHER)], &[UNKNOWN]), AS_UNKNOWN, &[])?;
    site.await_start(&mut old)?;
    old.prints("handover.users: processes of user 65534 are refused")?;
    let mut new = site.take_over(&[(0, OTHER + 1)], &[UNKNOWN])?;
    let status = new.wait()?;
    let output = new.output();
    ensure!(status.code() == Some(1) && output.contains(UNKNOWN_OWNER), "{status}: {output}");
    // What it wanted to say.
    old.prints("a handover is refused: user 65534 may not take over: the kernel reports all")?;
    let generation = metric(site.admin, "strait_generation")?;
    ensure!(generation == 0.0, "{generation} handovers");
    old.terminate()?;
    expect_clean_end(&mut old)
}

/// No other user gets into the folder.
fn one_with_the_unknown_ones_number_upgrades(lab: &Lab) -> Result<()> {
    let site = Site::new(lab, "own")?;
    site.give_folder(OTHER, 0o700)?;
    let mut old = site.run("old", (&[(0, 0), (UNKNOWN, OTHER)], &[]), AS_UNKNOWN, &[])?;
    site.await_start(&mut old)?;
    let (program, file) = (format!("{FOLDER}/strait"), format!("{FOLDER}/own-old.yaml"));
    old.run(lab, &[&program, "upgrade", "--config", &file])?.ok()?;
    old.terminate()?;
    expect_clean_end(&mut old)?;

    // One whose owner has no number may belong to another user.
    site.give_folder(OTHER + 1, 0o700)?;
    let mut other = site.run("other", (&[(0, 0), (UNKNOWN, OTHER)], &[]), AS_UNKNOWN, &[])?;
    let status = other.wait()?;
    let output = other.output();
    ensure!(status.code() == Some(1) && output.contains(UNKNOWN_OWNER), "{status}: {output}");
    Ok(())
}

fn expect_clean_end(container: &mut Container) -> Result<()> {
    let status = container.wait()?;
    ensure!(status.success(), "{status}: {}", container.output());
    Ok(())
}

/// What containers share: addresses, an upstream, the folder of the socket and the access log.
struct Site<'l> {
    lab: &'l Lab,
    name: &'static str,
    origin: Origin,
    address: SocketAddr,
    admin: SocketAddr,
}

impl<'l> Site<'l> {
    fn new(lab: &'l Lab, name: &'static str) -> Result<Self> {
        let (origin, address, admin) =
            (Origin::start()?, local(ports::free()?), local(ports::free()?));
        let log = lab.write(&format!("{name}.log"), "")?;
        std::fs::set_permissions(log, Permissions::from_mode(0o666))?;
        Ok(Self { lab, name, origin, address, admin })
    }

    /// Starts the old process. `users` are those of its container, and `named` stand in its configuration.
    fn start(&self, users: &[(u32, u32)], named: &[u32]) -> Result<Container> {
        let mut old = self.run("old", (users, named), &[], &[])?;
        self.await_start(&mut old)?;
        Ok(old)
    }

    fn await_start(&self, old: &mut Container) -> Result<()> {
        old.ready(|| client::get(self.admin, "/ready").is_ok_and(|ready| ready.status == 200))
    }

    /// Makes the folder of the socket for a user.
    fn give_folder(&self, user: u32, mode: u32) -> Result<()> {
        let folder = self.lab.folder().join(self.name);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, Permissions::from_mode(mode))?;
        chown(&folder, Some(user), Some(user)).context("the folder's owner")
    }

    /// Starts the new one.
    fn take_over(&self, users: &[(u32, u32)], named: &[u32]) -> Result<Container> {
        self.run("new", (users, named), &[], &["--take-over=required"])
    }

    /// Starts a process, by another program if `by` has one.
    fn run(
        &self,
        role: &str,
        (users, named): (&[(u32, u32)], &[u32]),
        by: &[&str],
        options: &[&str],
    ) -> Result<Container> {
        let (name, address, admin) = (self.name, self.address, self.admin);
        let config = format!(
            "admin: {{ address: \"{admin}\" }}
workers: 1
listeners:
- {{ name: edge, address: \"{address}\", routes: everything }}
routes:
- {{ name: everything, rules: [{{ match: {{ prefix: / }}, cluster: upstream }}] }}
clusters:
- {{ name: upstream, endpoints: [\"{}\"] }}
handover: {{ socket: {FOLDER}/{name}/strait.sock, probation: 0s, users: {named:?} }}
access_log: {{ output: {FOLDER}/{name}.log, format: json }}",
            self.origin.address()
        );
        let file = format!("{name}-{role}.yaml");
        self.lab.write(&file, config)?;
        let (program, file) = (format!("{FOLDER}/strait"), format!("{FOLDER}/{file}"));
        let command = [by, &[&*program, "run", "--config", &file], options].concat();
        Container::start(self.lab, users, &command)
    }

    fn logged(&self) -> Result<usize> {
        let log = self.lab.folder().join(format!("{}.log", self.name));
        Ok(std::fs::read_to_string(log)?.lines().count())
    }
}

/// Has clients of several kinds work while the process in `old` is replaced. Returns the new container, and a connection that was open
/// before.
fn replace_under_load(
    site: &Site<'_>,
    old: &Container,
    replace: impl FnOnce() -> Result<Container>,
) -> Result<(Container, Client)> {
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let mut client = Client::connect(site.address)?;
        get(&mut client)?;
        kept.push(client);
    }
    let mut download = Download::begin(site.address)?;
    download.read(BODY_BYTES / 2)?;
    let is_over = AtomicBool::new(false);
    let new = std::thread::scope(|scope| -> Result<_> {
        let tunnel = scope.spawn(|| tunnel(site.address, &is_over));
        let replaced = (|| {
            wait::until("the tunnel", wait::SOON, || {
                let active = metric(site.admin, "strait_downstream_connections_active");
                active.is_ok_and(|active| active == (KEPT + 2) as f64)
            })?;
            let mut new = replace()?;
            new.ready(|| metric(site.admin, "strait_generation").is_ok_and(|it| it == 1.0))?;
            await_take_over(site.admin, 1)?;
            // Until it has ended, it may still answer on the admin interface.
            old.prints("this process is the first of its container: it stays")?;
            Ok(new)
        })();
        is_over.store(true, Ordering::Relaxed);
        tunnel.join().ok().context("a panic")?.context("the tunnel")?;
        replaced
    })?;
    for client in &mut kept {
        get(client).context("a kept connection")?;
    }
    download.read(BODY_BYTES / 2).context("the download")?;
    let opened = metric(site.admin, "strait_downstream_connections_opened_total")?;
    ensure!(opened == (KEPT + 2) as f64, "{opened} connections were opened");
    let asked = 2 * KEPT + 2;
    wait::until("all exchanges to finish", wait::SOON, || {
        let finished = metric(site.admin, "strait_exchanges_finished_total");
        finished.is_ok_and(|finished| finished == asked as f64)
    })?;
    wait::until("a line for each exchange", wait::SOON, || {
        site.logged().is_ok_and(|lines| lines == asked)
    })?;
    // Its listener's socket has moved, too.
    let mut late = Client::connect(site.address)?;
    get(&mut late).context("a new connection")?;
    Ok((new, kept.pop().context("a connection")?))
}

/// A body that is read as far as one wants it.
struct Download {
    stream: BufReader<TcpStream>,
    pattern: Pattern,
}

impl Download {
    fn begin(address: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(wait::SOON))?;
        let head = format!("GET /bytes/{BODY_BYTES} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(client::read_line(&mut stream, &mut head)? > 0, "{head:?}");
        }
        Ok(Self { stream, pattern: Pattern::new() })
    }

    fn read(&mut self, len: usize) -> Result<()> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        ensure!(self.pattern.is_next(&bytes), "other bytes");
        Ok(())
    }
}
