//! What this machine says of names: `/etc/resolv.conf`, `/etc/hosts`, `localhost`.
//!
//! Both files are looked at again before each round, by their stamps, and read when they changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::snapshot::Resolvers;
use hickory_proto::rr::Name;

use super::failure::Failure;
use super::stub::Servers;
use crate::files::Stamp;

/// Where a DNS server listens.
const DNS_PORT: u16 = 53;

/// How long a server that the configuration names may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How often each server is asked.
const ATTEMPTS: u32 = 2;

/// What the machine's own configuration may ask for at most, as glibc has it.
const MACHINE_TIMEOUT_MAX: Duration = Duration::from_secs(30);
const MACHINE_ATTEMPTS_MAX: u32 = 5;
const MACHINE_SERVERS_MAX: usize = 3;

/// Bytes of either file: lists that block advertisers have some ten.
const SYSTEM_FILE_BYTES_MAX: u64 = 32 << 20;

/// Where the machine says what it does.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) resolv_conf: PathBuf,
    pub(super) hosts: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

/// Whom to ask, and which names to ask them for.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) servers: Servers,
    /// Domains that are appended to names.
    search: Vec<Name>,
    /// Names with at least so many dots are tried as they are first.
    ndots: usize,
}

impl Asking {
    /// The absolute names that `host` may mean, in the order in which they are asked for.
    pub(super) fn candidates(&self, host: &str) -> Vec<Name> {
        let Ok(mut name) = Name::from_ascii(host) else { return Vec::new() };
        let is_absolute = host.ends_with('.');
        name.set_fqdn(true);
        if is_absolute {
            return vec![name];
        }
        let relative = {
            let mut relative = name.clone();
            relative.set_fqdn(false);
            relative
        };
        // A domain that does not fit behind the name is left out.
        let searched = self.search.iter().filter_map(|it| relative.clone().append_domain(it).ok());
        let mut candidates: Vec<Name> = searched.collect();
        let dots = host.bytes().filter(|b| *b == b'.').count();
        let place = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(place, name);
        candidates
    }
}

/// What the machine says, read again when it changes.
#[derive(Debug)]
pub(super) struct System {
    paths: Paths,
    /// Those of the configuration.
    resolvers: Resolvers,
    /// What those of the configuration come to; none if it names no servers.
    configured: Option<Asking>,
    asking: Mutex<Cached<Option<Asking>>>,
    hosts: Mutex<Cached<Hosts>>,
}

/// What was made of a file.
#[derive(Debug)]
struct Cached<T> {
    /// Of the file as it was read; none if it could not be.
    stamp: Option<Stamp>,
    value: Arc<T>,
    /// Why the file could not be read the last time: what it said before holds.
    error: Option<String>,
}

impl<T: Default> Default for Cached<T> {
    fn default() -> Self {
        Self { stamp: None, value: Arc::default(), error: None }
    }
}

impl<T: Default> Cached<T> {
    fn is_current(&self, path: &Path) -> bool {
        self.stamp.is_some() && Stamp::of(path) == self.stamp
    }

    /// Reads the file at `path`, if it may have changed. What cannot be read is tried again each time: that may be for want of
    /// descriptors.
    fn refresh(&mut self, path: &Path, parse: impl FnOnce(&[u8]) -> T) {
        let stamp = Stamp::of(path);
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        match content(path) {
            Ok(content) => *self = Self { stamp, value: Arc::new(parse(&content)), error: None },
            Err(error) => {
                let is_gone = error.kind() == io::ErrorKind::NotFound;
                let error = error.to_string();
                if is_gone {
                    self.value = Arc::default();
                } else if self.error.as_ref() != Some(&error) {
                    let path = path.display();
                    tracing::warn!("{path} cannot be read: {error}; its previous content is used");
                }
                self.stamp = None;
                self.error = Some(error);
            }
        }
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if found.len() > SYSTEM_FILE_BYTES_MAX {
        let max = SYSTEM_FILE_BYTES_MAX >> 20;
        return Err(io::Error::other(format!("it has more than {max} MiB")));
    }
    std::fs::read(path)
}

impl System {
    pub(super) fn new(resolvers: Resolvers, paths: Paths) -> Self {
        let configured = (!resolvers.servers.is_empty()).then(|| configured(&resolvers));
        let (asking, hosts) = (Mutex::default(), Mutex::default());
        Self { paths, resolvers, configured, asking, hosts }
    }

    /// Where the machine's own files are.
    pub(super) const fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Reads both files again where they changed, on a thread that may wait for them: lists that block advertisers take a tenth of a
    /// second.
    pub(super) async fn refresh(self: &Arc<Self>) {
        let is_current = {
            let (asking, hosts) = (locked(&self.asking), locked(&self.hosts));
            (self.configured.is_some() || asking.is_current(&self.paths.resolv_conf))
                && hosts.is_current(&self.paths.hosts)
        };
        if is_current {
            return;
        }
        let this = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let Paths { resolv_conf, hosts } = &this.paths;
            locked(&this.asking).refresh(resolv_conf, |content| Some(self::resolv_conf(content)));
            locked(&this.hosts).refresh(hosts, Hosts::new);
        });
        // A panic was reported; what was read before holds.
        let _ = read.await;
    }

    /// Whom to ask now.
    pub(super) fn asking(&self) -> Result<Asking, Failure> {
        if let Some(configured) = &self.configured {
            return Ok(configured.clone());
        }
        let cached = locked(&self.asking);
        let mut asking = Option::clone(&cached.value).ok_or_else(|| {
            let path = self.paths.resolv_conf.display();
            let error = cached.error.as_deref().unwrap_or("it was not read yet");
            Failure::NoServer(format!(
                "{path} cannot be read: {error}; name DNS servers in resolvers, or mend the file"
            ))
        })?;
        if let Some(timeout) = self.resolvers.timeout {
            asking.servers.timeout = timeout;
        }
        Ok(asking)
    }

    /// The addresses that the machine has for `host` itself, so that no server is asked.
    pub(super) fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let hosts = Arc::clone(&locked(&self.hosts).value);
        if let Some(addresses) = hosts.0.get(host) {
            return Some(addresses.clone());
        }
        // RFC 6761, section 6.3.
        let is_localhost = host == "localhost" || host.ends_with(".localhost");
        is_localhost.then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
    }
}

fn locked<T>(cached: &Mutex<T>) -> MutexGuard<'_, T> {
    cached.lock().unwrap_or_else(PoisonError::into_inner)
}

fn configured(resolvers: &Resolvers) -> Asking {
    Asking {
        servers: Servers {
            addresses: resolvers.servers.to_vec(),
            timeout: resolvers.timeout.unwrap_or(TIMEOUT),
            attempts: ATTEMPTS,
            is_tcp: false,
            failover: Arc::default(),
        },
        search: Vec::new(),
        ndots: 0,
    }
}

fn resolv_conf(content: &[u8]) -> Asking {
    // Lines that are wrong are passed over, as by everything else that reads this file.
    let (parsed, _) = resolv_conf::Config::parse_with_errors(content);
    let servers = parsed.get_nameservers_or_local().into_iter().map(|server| {
        let ip: IpAddr = (&server).into();
        SocketAddr::new(ip, DNS_PORT)
    });
    let search = parsed.get_last_search_or_domain();
    let search = search.filter_map(|domain| {
        let mut domain = Name::from_ascii(domain).ok()?;
        domain.set_fqdn(true);
        Some(domain)
    });
    Asking {
        servers: Servers {
            addresses: servers.take(MACHINE_SERVERS_MAX).collect(),
            timeout: Duration::from_secs(parsed.timeout.max(1).into()).min(MACHINE_TIMEOUT_MAX),
            attempts: parsed.attempts.clamp(1, MACHINE_ATTEMPTS_MAX),
            is_tcp: parsed.use_vc,
            failover: Arc::default(),
        },
        search: search.collect(),
        ndots: parsed.ndots.try_into().unwrap_or(usize::MAX),
    }
}

/// `/etc/hosts`: names in lower case with their addresses.
#[derive(Debug, Default)]
struct Hosts(std::collections::BTreeMap<String, Vec<IpAddr>>);

impl Hosts {
    fn new(content: &[u8]) -> Self {
        let mut hosts = Self::default();
        for line in String::from_utf8_lossy(content).lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            for name in words {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                let addresses = hosts.0.entry(name).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        hosts
    }
}
