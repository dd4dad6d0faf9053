//! TLS on the ends of scripted peers, which read and write data as on any other end.
//!
//! The keys of a connection follow from the end that asked for it, so that the two ends need not
//! talk about them. A worker's end has no state here: its connection gets a record layer once,
//! right after the turn in which it was accepted or begun ([`Network::take_keys`]), and the worker
//! handles it from then on.
//!
//! ```text
//!   send_some ─► records, whole, in the outbox ───────► the worker's inbox
//!   recv_all ◄─ data ◄─ opened ◄─ beginning of a record ◄─ inbox ◄─ the worker's outbox
//! ```
//!
//! Data counts as read by the other end only once its whole record has arrived: before, it cannot
//! be opened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::time::Duration;

use config::snapshot::Address;
use proxy::ConnKey;
use wire::tls::record::{Opened, RecordError, RecordLayer, TlsRole};

use super::{End, EndId, Happening, Network, Owner, PeerId, Phase};
use crate::random::Random;
use crate::records::{Habits, Sealer, Session};

/// Which connections use TLS, and their keys.
#[derive(Debug)]
pub(super) struct Security {
    random: Random,
    /// Whether keys may be used up before their connections end.
    has_old_keys: bool,
    clients: BTreeSet<PeerId>,
    services: Vec<Address>,
    ends: BTreeMap<EndId, Box<Secure>>,
    /// Connections of each worker that have no record layer yet: whose session theirs is, and the
    /// worker's side of it.
    begun: Vec<Vec<(ConnKey, EndId, TlsRole)>>,
    /// Record layers that were given out.
    begun_total: usize,
    /// Errors in records that peers received.
    complaints: Vec<String>,
    /// Clients' ends whose records were spoiled, and those of them where that was read.
    spoiled: BTreeSet<EndId>,
    found_out: BTreeSet<EndId>,
}

/// The TLS state of a peer's end.
#[derive(Debug)]
struct Secure {
    random: Random,
    habits: Habits,
    opener: RecordLayer,
    sealer: Sealer,
    /// The beginning of a record.
    inbound: Vec<u8>,
    /// Opened, and not read yet.
    data: Vec<u8>,
    over: Option<Over>,
    /// Bytes of records so far, and of data in them.
    sealed_total: u64,
    data_total: u64,
    /// Where records end that the other end has not read, and how much data there is up to there.
    marks: VecDeque<(u64, u64)>,
    /// Data that the other end can have seen.
    seen_total: u64,
    /// We have said that nothing more comes.
    has_ended: bool,
    /// It closes without close_notify where that does no harm.
    is_careless: bool,
    /// A record was corrupted, so that later ones cannot be opened.
    is_spoiled: bool,
    /// Where the corrupted bytes end, if that is known: a reader of so many bytes has seen them.
    spoiled_at: Option<u64>,
}

/// How reading came to its end.
#[derive(Clone, Copy, Debug)]
enum Over {
    Ended,
    Broken(ErrorKind),
}

impl Security {
    pub(super) fn new(random: Random, has_old_keys: bool, workers: usize) -> Self {
        Self {
            random,
            has_old_keys,
            clients: BTreeSet::new(),
            services: Vec::new(),
            ends: BTreeMap::new(),
            begun: vec![Vec::new(); workers],
            begun_total: 0,
            complaints: Vec::new(),
            spoiled: BTreeSet::new(),
            found_out: BTreeSet::new(),
        }
    }

    /// The session of the connection that `asking` asked for, of which Strait has this side.
    fn session(&self, asking: EndId, strait: TlsRole) -> Session {
        Session::of(self.random.split("session", asking.number()), strait, self.has_old_keys)
    }

    /// Gives a peer's end its side.
    fn begin(&mut self, id: EndId, asking: EndId, role: TlsRole) {
        let strait = if role == TlsRole::Client { TlsRole::Server } else { TlsRole::Client };
        let session = self.session(asking, strait);
        let mut random = self.random.split("peer", id.number());
        let secure = Secure {
            habits: Habits::some(&mut random),
            opener: session.records(role),
            sealer: session.sealer(role),
            inbound: Vec::new(),
            data: Vec::new(),
            over: None,
            sealed_total: 0,
            data_total: 0,
            marks: VecDeque::new(),
            seen_total: 0,
            has_ended: false,
            is_careless: random.chance(150),
            is_spoiled: false,
            spoiled_at: None,
            random,
        };
        self.ends.insert(id, Box::new(secure));
    }

    /// How much data the other end can have seen that has read so many bytes of this one.
    pub(super) fn seen(&mut self, id: EndId, read_total: u64) -> u64 {
        let Some(secure) = self.ends.get_mut(&id) else { return read_total };
        if secure.spoiled_at.is_some_and(|at| at <= read_total) && self.spoiled.contains(&id) {
            self.found_out.insert(id);
        }
        secure.on_read(read_total)
    }
}

/// Which connections use TLS.
impl Network {
    /// Makes this client's connections use TLS, from their first byte.
    pub(crate) fn secure_client(&mut self, peer: PeerId) {
        self.security.clients.insert(peer);
    }

    /// Makes connections to this address use TLS.
    pub(crate) fn secure_service(&mut self, address: Address) {
        self.security.services.push(address);
    }

    /// Whether this client's connections use TLS.
    pub(crate) fn is_secure_client(&self, peer: PeerId) -> bool {
        self.security.clients.contains(&peer)
    }

    /// Whether connections to this address use TLS.
    pub(super) fn is_secure_service(&self, address: &Address) -> bool {
        self.security.services.contains(address)
    }

    /// Whether a peer's end uses TLS.
    #[must_use]
    pub(crate) fn is_secure(&self, id: EndId) -> bool {
        self.security.ends.contains_key(&id)
    }

    pub(super) fn add_secure_workers(&mut self, workers: usize) {
        let count = self.security.begun.len() + workers;
        self.security.begun.resize_with(count, Vec::new);
    }

    /// Notes what may not be.
    pub(super) fn complain(&mut self, what: String) {
        self.security.complaints.push(what);
    }

    /// Connections of TLS that workers had so far.
    pub(crate) fn secure_total(&self) -> usize {
        self.security.begun_total
    }

    /// Takes the errors in records that peers received.
    pub(crate) fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.security.complaints)
    }

    /// How many clients' connections something came on that is no record of theirs: at least so
    /// many that Strait has read all of it, and at most.
    pub(crate) fn spoiled_clients(&self) -> (usize, usize) {
        (self.security.found_out.len(), self.security.spoiled.len())
    }

    pub(super) fn secure_asking(&mut self, id: EndId, owner: Owner) {
        if let Owner::Peer(peer) = owner
            && self.is_secure_client(peer)
        {
            self.security.begin(id, id, TlsRole::Client);
        }
    }

    /// Begins TLS on the accepting side, which may send tickets.
    pub(super) fn secure_accepted(&mut self, id: EndId, address: &Address) {
        let Some(asking) = self.get(id).and_then(|end| end.other) else { return };
        if self.is_secure_service(address) {
            self.security.begin(id, asking, TlsRole::Server);
            self.talk(id, 500);
        }
    }

    /// Notes that a worker's end wants a record layer, if its connection is one of TLS.
    pub(super) fn note_begun(&mut self, id: EndId, worker: usize, key: ConnKey) {
        let Some(end) = self.get_mut(id) else { return };
        if std::mem::replace(&mut end.is_known, true) {
            // The connection was moved together with its record layer.
            return;
        }
        let side = match (end.phase.clone(), end.other) {
            (Phase::Connecting { target, .. }, _) => {
                self.is_secure_service(&target).then_some((id, TlsRole::Client))
            }
            (_, Some(other)) if self.is_secure(other) => Some((other, TlsRole::Server)),
            _ => None,
        };
        if let (Some((asking, role)), Some(begun)) = (side, self.security.begun.get_mut(worker)) {
            begun.push((key, asking, role));
        }
    }

    /// The record layers of a worker's connections that have none yet.
    pub(crate) fn take_keys(&mut self, worker: usize) -> Vec<(ConnKey, RecordLayer)> {
        let begun = self.security.begun.get_mut(worker).map(std::mem::take).unwrap_or_default();
        self.security.begun_total += begun.len();
        begun
            .into_iter()
            .map(|(key, asking, role)| (key, self.security.session(asking, role).records(role)))
            .collect()
    }
}

/// Reading.
impl Network {
    /// As [`Network::recv_all`], of an end that speaks TLS. An end without close_notify is
    /// `UnexpectedEof`.
    pub(super) fn recv_opened(
        &mut self,
        id: EndId,
        bytes_max: usize,
        into: &mut Vec<u8>,
    ) -> io::Result<bool> {
        self.open(id, bytes_max);
        self.talk(id, 20);
        let Some(secure) = self.security.ends.get_mut(&id) else { return Ok(true) };
        let n = secure.data.len().min(bytes_max);
        into.extend_from_slice(secure.data.get(..n).unwrap_or_default());
        secure.data.drain(..n);
        match secure.over {
            Some(over) if secure.data.is_empty() => match over {
                Over::Ended => Ok(true),
                Over::Broken(kind) => Err(kind.into()),
            },
            _ => Ok(false),
        }
    }

    /// Opens what there is, until there are so many bytes of data.
    fn open(&mut self, id: EndId, bytes_max: usize) {
        let Some(mut secure) = self.security.ends.remove(&id) else { return };
        let mut buffer = [0; 4096];
        while secure.over.is_none() && secure.data.len() < bytes_max {
            match self.recv(id, &mut buffer) {
                Ok(0) if self.is_broken(id) => {
                    secure.over = Some(Over::Broken(ErrorKind::ConnectionReset));
                }
                // An alert has given the reason, or should have.
                Ok(0) if secure.is_spoiled => {
                    secure.over = Some(Over::Broken(ErrorKind::ConnectionAborted));
                }
                Ok(0) => secure.over = Some(Over::Broken(ErrorKind::UnexpectedEof)),
                Ok(n) => {
                    secure.inbound.extend_from_slice(buffer.get(..n).expect("read into it"));
                    if let Err(what) = secure.open() {
                        self.security.complaints.push(format!("{id:?}: {what}: {secure:?}"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => secure.over = Some(Over::Broken(error.kind())),
            }
        }
        self.security.ends.insert(id, secure);
    }
}

/// Writing.
impl Network {
    /// As [`Network::send_some`], of an end that speaks TLS. What is taken is in whole records,
    /// however little room there was: a program waits with the rest of one as the outbox does.
    pub(super) fn send_sealed(&mut self, id: EndId, bytes: &[u8]) -> io::Result<usize> {
        let is_partial = self.chance(self.faults.partial_write);
        let cut = self.random.next();
        self.check_open(id)?;
        let Some(mut secure) = self.security.ends.remove(&id) else { return Ok(0) };
        let result = match self.get_mut(id) {
            Some(_) if secure.has_ended => Err(ErrorKind::BrokenPipe.into()),
            None => Err(ErrorKind::NotConnected.into()),
            Some(end) => {
                let room = end.outbox_max.saturating_sub(end.outbox.len());
                let mut n = bytes.len().min(room);
                if is_partial && n > 0 {
                    n = usize::try_from(cut % n as u64).expect("less than a length");
                    self.after(Duration::from_nanos(1 + cut % 1_000_000), Happening::Space(id));
                }
                let data = bytes.get(..n).unwrap_or_default();
                let sealed = self.seal(id, &mut secure, data);
                if let Some(end) = self.get_mut(id) {
                    end.wants_space |= n < bytes.len();
                }
                self.push(id, &sealed);
                Ok(n)
            }
        };
        self.security.ends.insert(id, secure);
        result
    }

    fn seal(&mut self, id: EndId, secure: &mut Secure, mut data: &[u8]) -> Vec<u8> {
        let (mut sealed, mut records) = (Vec::new(), 0);
        while !data.is_empty() {
            if secure.random.chance(secure.habits.talks) {
                sealed.extend(secure.talk());
            }
            let (n, record) = secure.seal(data, records);
            if !secure.is_spoiled && self.chance(self.faults.spoiled_record) {
                self.trace.note(self.now, "spoils", id.number(), &record);
                if secure.opener.role() == TlsRole::Client {
                    self.security.spoiled.insert(id);
                }
                sealed.extend(secure.spoil(record));
            } else {
                sealed.extend(record);
            }
            records += 1;
            data = data.get(n..).unwrap_or_default();
        }
        sealed
    }

    /// Sends a record without data, so many times out of a thousand. Not to a peer that may be
    /// gone, which would answer with a reset.
    fn talk(&mut self, id: EndId, chance: u32) {
        let is_open = self.get(id).is_some_and(|end| {
            let has_room = end.outbox.len() < end.outbox_max;
            end.phase == Phase::Open && !end.is_shut && !end.has_fin && has_room
        });
        let Some(secure) = self.security.ends.get_mut(&id).filter(|_| is_open) else { return };
        if !secure.has_ended && secure.random.chance(chance) {
            let said = secure.talk();
            self.push(id, &said);
        }
    }

    /// Sends close_notify, if it was not sent and can be. Returns whether it was sent now.
    pub(super) fn say_end(&mut self, id: EndId) -> bool {
        let is_open = self.get(id).is_some_and(|end| end.phase == Phase::Open && !end.is_shut);
        let Some(secure) = self.security.ends.get_mut(&id).filter(|_| is_open) else {
            return false;
        };
        if std::mem::replace(&mut secure.has_ended, true) {
            return false;
        }
        let said = secure.close();
        self.push(id, &said);
        true
    }

    /// Whether the end of what this end sends, which was just said, stays close_notify, and no FIN
    /// follows until it closes.
    pub(super) fn keeps_fin(&mut self, id: EndId) -> bool {
        let secure = self.security.ends.get_mut(&id);
        secure.is_some_and(|secure| secure.random.chance(300))
    }

    /// Whether an end closes without close_notify.
    pub(super) fn is_careless(&self, id: EndId) -> bool {
        self.security.ends.get(&id).is_some_and(|secure| secure.is_careless)
    }

    /// Data that was put into records on an end that speaks TLS.
    pub(super) fn sealed_data(&self, id: EndId) -> Option<u64> {
        self.security.ends.get(&id).map(|secure| secure.data_total)
    }

    /// Makes this end always send close_notify, so that its end differs from a truncation.
    pub(crate) fn be_careful(&mut self, id: EndId) {
        if let Some(secure) = self.security.ends.get_mut(&id) {
            secure.is_careless = false;
        }
    }

    /// Before an end with TLS is closed: reads what has arrived, since a program that closes has
    /// processed records without data, and sends its close_notify, if it does. Returns whether data
    /// is left unread.
    pub(super) fn hear_out(&mut self, id: EndId) -> bool {
        let is_unheard = |end: &End| !end.inbox.is_empty() || !end.late.is_empty();
        loop {
            self.on_late(id);
            self.open(id, usize::MAX);
            let is_over = self.security.ends.get(&id).is_none_or(|secure| secure.over.is_some());
            if is_over || !self.get(id).is_some_and(is_unheard) {
                break;
            }
        }
        let Some(secure) = self.security.ends.get(&id) else { return false };
        let (has_unread, has_asked) = (!secure.data.is_empty(), secure.sealer.has_asked());
        if !has_unread {
            if !self.is_careless(id) {
                self.say_end(id);
            }
            if let Some(end) = self.get_mut(id) {
                end.swallows = has_asked;
                // Bytes behind close_notify.
                end.inbox.clear();
                end.late.clear();
            }
        }
        has_unread
    }

    /// Gives up a connection in the middle: by a reset or, with TLS, by an end without close_notify,
    /// maybe inside a record.
    pub fn break_off(&mut self, id: EndId) {
        if !self.is_secure(id) {
            return self.reset(id);
        }
        let is_reset = self.random.chance(500);
        let waiting = self.get(id).map_or(0, |end| end.outbox.len());
        let kept = self.random.length_below(waiting + 1);
        let can_end =
            |end: &End| end.phase == Phase::Open && end.inbox.is_empty() && end.late.is_empty();
        if is_reset || !self.get(id).is_some_and(can_end) {
            return self.reset(id);
        }
        self.trace.note(self.now, "cut off", id.number(), &[]);
        if let Some(end) = self.get_mut(id) {
            end.outbox.truncate(kept);
        }
        self.finish(id);
    }

    fn push(&mut self, id: EndId, sealed: &[u8]) {
        if let Some(end) = self.get_mut(id) {
            end.outbox.extend(sealed);
            end.written_total += sealed.len() as u64;
            self.move_on(id);
        }
    }
}

impl Secure {
    /// Opens what is there whole.
    ///
    /// # Errors
    ///
    /// Strait broke a rule.
    fn open(&mut self) -> Result<(), String> {
        let mut at = 0;
        let result = loop {
            let rest = self.inbound.get_mut(at..).unwrap_or_default();
            match self.opener.open(rest) {
                Ok((n, opened)) => {
                    at += n;
                    match opened {
                        Opened::NeedMore { .. } => break Ok(()),
                        Opened::Data { bytes, .. } => self.data.extend_from_slice(bytes),
                        Opened::Ticket(_) => break Err("a ticket".to_owned()),
                        Opened::End => {
                            self.over = Some(Over::Ended);
                            break match self.inbound.len() - at {
                                0 => Ok(()),
                                n => Err(format!("{n} bytes behind close_notify")),
                            };
                        }
                    }
                }
                Err(error) => {
                    self.over = Some(Over::Broken(ErrorKind::ConnectionAborted));
                    let is_deserved =
                        self.is_spoiled && matches!(error, RecordError::AlertReceived(_));
                    break if is_deserved { Ok(()) } else { Err(error.to_string()) };
                }
            }
        };
        self.inbound.drain(..at);
        result
    }

    fn seal(&mut self, data: &[u8], records: usize) -> (usize, Vec<u8>) {
        let (n, record) = self.sealer.seal(data, self.habits, records, &mut self.random);
        self.sealed_total += record.len() as u64;
        self.data_total += n as u64;
        if !self.is_spoiled {
            self.marks.push_back((self.sealed_total, self.data_total));
        }
        (n, record)
    }

    fn talk(&mut self) -> Vec<u8> {
        let records = self.sealer.talk(&mut self.random);
        self.sealed_total += records.len() as u64;
        records
    }

    fn close(&mut self) -> Vec<u8> {
        let record = self.sealer.close();
        self.sealed_total += record.len() as u64;
        record
    }

    /// Corrupts a record of data, so that the receiver fails at once or at a later record.
    fn spoil(&mut self, mut record: Vec<u8>) -> Vec<u8> {
        const HEADER_LEN: usize = 5;
        self.is_spoiled = true;
        let random = &mut self.random;
        let kind = random.below(6);
        if kind == 0 {
            // It comes twice.
            self.spoiled_at = Some(self.sealed_total + record.len() as u64);
            record.extend_from_within(..);
            return record;
        }
        self.marks.pop_back();
        match kind {
            // It is lost.
            1 => record.clear(),
            // It is cut short.
            2 => record.truncate(random.length_below(record.len())),
            // It is something else.
            3 => {
                let place = random.length_below(HEADER_LEN);
                record[place] ^= 1 << random.below(8);
            }
            // It is not authentic.
            _ => {
                self.spoiled_at = Some(self.sealed_total);
                let place = random.length_between(HEADER_LEN, record.len() - 1);
                record[place] ^= 1 << random.below(8);
            }
        }
        record
    }

    fn on_read(&mut self, read_total: u64) -> u64 {
        while let Some((sealed, data)) = self.marks.front()
            && *sealed <= read_total
        {
            self.seen_total = *data;
            self.marks.pop_front();
        }
        self.seen_total
    }
}
