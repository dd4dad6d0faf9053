//! Clients, by their addresses: what each has of this worker.
//!
//! A client is an IPv4 address, or the /64 of an IPv6 one, which is what one host or one home gets.
//! It is looked up when a connection is accepted, or a trusted hop names another one, and is a place
//! in a table from then on: counting needs no look-up. It goes with the last that names it.
//!
//! Connections and exchanges are counted for each listener by itself, whose bounds they are. Turns of
//! clients go over all listeners, and so does what they hold.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use config::snapshot::ListenerId;

use crate::tools::slab::Chunks;

/// Places of the table for each bucket: a look-up passes few, and a connection pays for little.
const PLACES_OF_BUCKET: usize = 4;

/// No place, and no listener. Also a client without an address, such as the peer of a unix socket: it is
/// not counted.
const NONE: u32 = u32::MAX;

/// Where a client stands in the table, for as long as something of it is counted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientPlace(u32);

impl ClientPlace {
    /// No client that is known.
    pub(crate) const UNKNOWN: Self = Self(NONE);

    /// Copies of requests, which wait behind those of all clients.
    pub(crate) const COPIES: Self = Self(NONE - 1);

    #[cfg(test)]
    pub(crate) const fn at(place: u32) -> Self {
        Self(place)
    }
}

/// What of a client is counted at each listener.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Connection,
    Exchange,
}

/// What a client has. A connection may be its client's only one, so this is kept small: what few have
/// stands apart.
#[derive(Clone, Copy, Debug)]
struct Client {
    network: u64,
    /// The listener that it was met at first, or none if the place is free.
    home: u32,
    /// Connections at that listener.
    connections: u32,
    /// Where what it does stands, if it does anything.
    active: u32,
    /// The next in its bucket, or the next free place.
    next: u32,
}

const _: () = assert!(size_of::<Client>() == 24);

impl Client {
    const fn free(next: u32) -> Self {
        Self { network: 0, home: NONE, connections: 0, active: NONE, next }
    }
}

/// What a client does that has an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Active {
    /// Exchanges at its first listener; of a free place, the next such one.
    exchanges: u32,
    /// Exchanges at all listeners that have an upstream connection, or a stream on one.
    held: u32,
}

/// Clients that have exchanges, whose places are used again.
#[derive(Debug, Default)]
struct Actives {
    table: Chunks<Active>,
    free: Option<u32>,
}

impl Actives {
    fn get(&self, place: u32) -> Active {
        self.table.get(place as usize).copied().unwrap_or(Active { exchanges: 0, held: 0 })
    }

    /// What a client does, to be changed; it gets a place if it has none.
    #[inline]
    fn begin(&mut self, place: &mut u32) -> Option<&mut Active> {
        if *place == NONE {
            *place = self.free_place();
        }
        self.table.get_mut(*place as usize)
    }

    /// One thing less is done.
    #[inline]
    fn end(&mut self, place: &mut u32, count: impl FnOnce(&mut Active) -> &mut u32) {
        let Some(active) = self.table.get_mut(*place as usize) else { return };
        take_one(count(active));
        if *active == (Active { exchanges: 0, held: 0 }) {
            active.exchanges = self.free.replace(*place).unwrap_or(NONE);
            *place = NONE;
        }
    }

    fn free_place(&mut self) -> u32 {
        if self.free.is_none() {
            let first = self.table.len();
            self.table.grow(|place| Active { exchanges: number(place + 1), held: 0 });
            let last = self.table.len() - 1;
            if let Some(last) = self.table.get_mut(last) {
                last.exchanges = NONE;
            }
            self.free = Some(number(first));
        }
        let place = self.free.unwrap_or(NONE);
        if let Some(active) = self.table.get_mut(place as usize) {
            let next = std::mem::take(&mut active.exchanges);
            self.free = (next != NONE).then_some(next);
        }
        place
    }
}

/// The clients of a worker. As bounded as connections and exchanges are, each of which names one at
/// most.
///
/// A table of its own, whose entries are never moved: each connection may bring a client, and a map of
/// the standard library takes up to four times as much for it, and all at once when it grows.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    table: Chunks<Client>,
    actives: Actives,
    /// Connections and exchanges at other listeners than the first one of their client, by its place and
    /// the listener.
    elsewhere: BTreeMap<(u32, u32), [u32; 2]>,
    /// The first client of each bucket.
    buckets: Vec<u32>,
    /// The first free place.
    free: Option<u32>,
    len: usize,
    /// Keyed, so that no peer can choose addresses of one bucket.
    hasher: RandomState,
}

impl Clients {
    /// Clients that are known.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Counts one more of something at a listener for the client at this address; says how many it has now.
    pub(crate) fn enter(
        &mut self,
        address: Option<IpAddr>,
        listener: ListenerId,
        part: Part,
    ) -> (ClientPlace, u32) {
        let Some(address) = address else { return (ClientPlace::UNKNOWN, 0) };
        let network = network_of(address);
        let place = self.find(network).unwrap_or_else(|| self.insert(network, listener));
        let client = ClientPlace(place);
        (client, self.add(client, listener, part))
    }

    /// The network that stands for a client, and how many of something it has at a listener.
    pub(crate) fn at(&self, address: IpAddr, listener: ListenerId, part: Part) -> (u64, u32) {
        let network = network_of(address);
        let place = self.find(network).map(ClientPlace);
        (network, place.map_or(0, |place| self.count_of(place, listener, part)))
    }

    /// Counts one more of something for this client; says how many it has now at that listener.
    #[inline]
    pub(crate) fn add(&mut self, client: ClientPlace, listener: ListenerId, part: Part) -> u32 {
        let Some(entry) = self.table.get_mut(client.0 as usize) else { return 0 };
        let count = if entry.home != slot_of(listener) {
            let counts = self.elsewhere.entry((client.0, slot_of(listener))).or_default();
            counts.get_mut(part as usize)
        } else {
            match part {
                Part::Connection => Some(&mut entry.connections),
                Part::Exchange => {
                    self.actives.begin(&mut entry.active).map(|active| &mut active.exchanges)
                }
            }
        };
        let Some(count) = count else { return 0 };
        *count += 1;
        *count
    }

    /// Counts one less.
    #[inline]
    pub(crate) fn remove(&mut self, client: ClientPlace, listener: ListenerId, part: Part) {
        let Some(entry) = self.table.get_mut(client.0 as usize) else { return };
        if entry.home != slot_of(listener) {
            self.remove_elsewhere(client, listener, part);
        } else {
            match part {
                Part::Connection => take_one(&mut entry.connections),
                Part::Exchange => self.actives.end(&mut entry.active, |it| &mut it.exchanges),
            }
        }
        self.forget_if_done(client);
    }

    fn remove_elsewhere(&mut self, client: ClientPlace, listener: ListenerId, part: Part) {
        let key = (client.0, slot_of(listener));
        let Some(counts) = self.elsewhere.get_mut(&key) else { return };
        counts.get_mut(part as usize).into_iter().for_each(take_one);
        if *counts == [0; 2] {
            self.elsewhere.remove(&key);
        }
    }

    /// An exchange of this client has an upstream connection, or a stream on one.
    #[inline]
    pub(crate) fn hold(&mut self, client: ClientPlace) {
        let Some(entry) = self.table.get_mut(client.0 as usize) else { return };
        self.actives.begin(&mut entry.active).into_iter().for_each(|active| active.held += 1);
    }

    /// It has it no more.
    #[inline]
    pub(crate) fn let_go(&mut self, client: ClientPlace) {
        let Some(entry) = self.table.get_mut(client.0 as usize) else { return };
        self.actives.end(&mut entry.active, |it| &mut it.held);
        self.forget_if_done(client);
    }

    #[inline]
    fn forget_if_done(&mut self, ClientPlace(place): ClientPlace) {
        let entry = self.table.get(place as usize);
        let is_idle = entry.is_some_and(|it| it.connections == 0 && it.active == NONE);
        if is_idle && !self.is_elsewhere(place) {
            self.forget(place);
        }
    }

    /// Whether a client has anything at another listener than its first one.
    fn is_elsewhere(&self, place: u32) -> bool {
        let mut counts = self.elsewhere.range((place, 0)..=(place, NONE));
        counts.next().is_some()
    }

    /// Exchanges of a client, at all listeners, that have an upstream connection, or a stream on one.
    pub(crate) fn held_by(&self, client: ClientPlace) -> u32 {
        if client == ClientPlace::COPIES {
            return u32::MAX;
        }
        let entry = self.table.get(client.0 as usize);
        entry.map_or(0, |entry| self.actives.get(entry.active).held)
    }

    /// Gives back what a crowd left behind.
    pub(crate) fn trim(&mut self) {
        if self.len == 0 {
            (self.table, self.actives, self.buckets, self.free) = Default::default();
        }
    }

    /// How many of something a client has at a listener.
    pub(crate) fn count_of(&self, client: ClientPlace, listener: ListenerId, part: Part) -> u32 {
        let Some(entry) = self.table.get(client.0 as usize) else { return 0 };
        if entry.home != slot_of(listener) {
            let counts = self.elsewhere.get(&(client.0, slot_of(listener)));
            return counts.and_then(|counts| counts.get(part as usize).copied()).unwrap_or(0);
        }
        match part {
            Part::Connection => entry.connections,
            Part::Exchange => self.actives.get(entry.active).exchanges,
        }
    }

    /// The place of a bucket; there are none before the first client.
    fn bucket_of(&self, network: u64) -> usize {
        let mask = self.buckets.len().saturating_sub(1);
        usize::try_from(self.hasher.hash_one(network) & mask as u64).unwrap_or(0)
    }

    fn find(&self, network: u64) -> Option<u32> {
        let mut place = *self.buckets.get(self.bucket_of(network))?;
        loop {
            let entry = self.table.get(place as usize)?;
            if entry.network == network {
                return Some(place);
            }
            place = entry.next;
        }
    }

    fn insert(&mut self, network: u64, listener: ListenerId) -> u32 {
        let place = self.free_place();
        let bucket = self.bucket_of(network);
        let next =
            self.buckets.get_mut(bucket).map_or(NONE, |first| std::mem::replace(first, place));
        if let Some(entry) = self.table.get_mut(place as usize) {
            self.free = (entry.next != NONE).then_some(entry.next);
            *entry = Client { network, home: slot_of(listener), next, ..Client::free(NONE) };
        }
        self.len += 1;
        place
    }

    /// A place that is free, for which the table may have to grow.
    fn free_place(&mut self) -> u32 {
        if let Some(place) = self.free {
            return place;
        }
        let first = self.table.len();
        self.table.grow(|place| Client::free(number(place + 1)));
        let last = self.table.len() - 1;
        if let Some(last) = self.table.get_mut(last) {
            last.next = NONE;
        }
        self.free = Some(number(first));
        if self.table.len() > self.buckets.len() * PLACES_OF_BUCKET {
            self.spread();
        }
        number(first)
    }

    /// Makes enough buckets for all places, and more, and puts all clients into them anew.
    fn spread(&mut self) {
        self.buckets = vec![NONE; (self.table.len() / PLACES_OF_BUCKET).next_power_of_two()];
        for place in 0..self.table.len() {
            let Some(entry) = self.table.get(place).copied() else { continue };
            if entry.home == NONE {
                continue;
            }
            let bucket = self.bucket_of(entry.network);
            if let Some(first) = self.buckets.get_mut(bucket)
                && let Some(entry) = self.table.get_mut(place)
                && let Ok(place) = u32::try_from(place)
            {
                entry.next = std::mem::replace(first, place);
            }
        }
    }

    /// Takes a client of which nothing is counted any more out of its bucket.
    #[cold]
    fn forget(&mut self, place: u32) {
        let Some(gone) = self.table.get(place as usize).copied() else { return };
        let bucket = self.bucket_of(gone.network);
        match self.buckets.get_mut(bucket) {
            Some(first) if *first == place => *first = gone.next,
            Some(first) => {
                let mut at = *first;
                while let Some(entry) = self.table.get_mut(at as usize) {
                    if entry.next == place {
                        entry.next = gone.next;
                        break;
                    }
                    at = entry.next;
                }
            }
            None => {}
        }
        if let Some(entry) = self.table.get_mut(place as usize) {
            *entry = Client::free(self.free.replace(place).unwrap_or(NONE));
        }
        self.len -= 1;
    }
}

/// What stands for a listener. While connections of one that is gone end, another may have its slot: they
/// count there, too.
const fn slot_of(listener: ListenerId) -> u32 {
    listener.0.slot
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("there are fewer connections")
}

fn take_one(count: &mut u32) {
    debug_assert!(*count > 0, "it was counted");
    *count = count.saturating_sub(1);
}

/// The /64 of an IPv6 address. IPv4 addresses stand in one that no client has (0000::/8 is reserved,
/// RFC 4291, section 2.4).
fn network_of(address: IpAddr) -> u64 {
    const IPV4: u64 = 1 << 32;
    match address.to_canonical() {
        IpAddr::V4(v4) => IPV4 | u64::from(v4.to_bits()),
        IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 64).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use config::snapshot::Id;

    use super::*;

    const EDGE: ListenerId = ListenerId(Id { slot: 0, generation: 0 });
    const OTHER: ListenerId = ListenerId(Id { slot: 1, generation: 0 });

    fn enter(clients: &mut Clients, address: &str) -> (ClientPlace, u32) {
        clients.enter(Some(address.parse().unwrap()), EDGE, Part::Connection)
    }

    #[test]
    fn an_ipv4_address_and_the_network_of_an_ipv6_one_are_a_client() {
        for (one, other, is_same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::1", "::ffff:0.0.0.0", false),
        ] {
            let mut clients = Clients::default();
            let (first, _) = enter(&mut clients, one);
            let (second, count) = enter(&mut clients, other);
            assert_eq!((first == second, count == 2), (is_same, is_same), "{one} {other}");
        }
    }

    #[test]
    fn a_client_goes_with_the_last_that_names_it_and_its_place_is_used_again() {
        let mut clients = Clients::default();
        let (client, count) = enter(&mut clients, "192.0.2.1");
        assert_eq!(count, 1);
        assert_eq!(clients.add(client, EDGE, Part::Exchange), 1);
        clients.hold(client);
        assert_eq!(clients.held_by(client), 1);
        clients.remove(client, EDGE, Part::Connection);
        clients.let_go(client);
        assert_eq!((clients.len(), clients.held_by(client)), (1, 0));
        clients.remove(client, EDGE, Part::Exchange);
        assert_eq!(clients.len(), 0);
        assert_eq!(enter(&mut clients, "192.0.2.9").0, client);
        assert_eq!(clients.held_by(client), 0);
    }

    #[test]
    fn each_listener_counts_for_itself_and_what_is_held_counts_for_all() {
        for (first, second) in [(EDGE, OTHER), (OTHER, EDGE)] {
            let mut clients = Clients::default();
            let address = Some("192.0.2.1".parse().unwrap());
            let (client, count) = clients.enter(address, first, Part::Connection);
            assert_eq!(count, 1);
            assert_eq!(clients.enter(address, second, Part::Connection), (client, 1));
            assert_eq!(clients.enter(address, second, Part::Connection), (client, 2));
            assert_eq!(clients.add(client, first, Part::Exchange), 1);
            assert_eq!(clients.add(client, second, Part::Exchange), 1);
            clients.hold(client);
            clients.hold(client);
            let of = |clients: &Clients, listener| {
                let parts = [Part::Connection, Part::Exchange];
                parts.map(|part| clients.count_of(client, listener, part))
            };
            assert_eq!((of(&clients, first), of(&clients, second)), ([1, 1], [2, 1]));
            assert_eq!((clients.held_by(client), clients.len()), (2, 1));
            // What is left at another listener keeps the client, and goes on counting there.
            clients.remove(client, first, Part::Connection);
            clients.let_go(client);
            clients.let_go(client);
            clients.remove(client, first, Part::Exchange);
            assert_eq!((of(&clients, first), of(&clients, second)), ([0, 0], [2, 1]));
            assert_eq!(clients.enter(address, first, Part::Connection), (client, 1));
            clients.remove(client, first, Part::Connection);
            clients.remove(client, second, Part::Exchange);
            clients.remove(client, second, Part::Connection);
            assert_eq!(clients.len(), 1);
            clients.remove(client, second, Part::Connection);
            assert_eq!((clients.len(), clients.elsewhere.len()), (0, 0));
        }
    }

    #[test]
    fn who_has_no_address_is_not_counted() {
        let mut clients = Clients::default();
        let (client, count) = clients.enter(None, EDGE, Part::Connection);
        assert_eq!((client, count), (ClientPlace::UNKNOWN, 0));
        clients.hold(client);
        assert_eq!(clients.held_by(client), 0);
        clients.let_go(client);
        assert_eq!(clients.len(), 0);
    }

    #[test]
    fn a_crowd_is_told_apart_and_leaves_no_memory_behind() {
        let mut clients = Clients::default();
        let address = |n: u32| Some(IpAddr::V4(n.into()));
        let mut places: Vec<_> =
            (0..10_000).map(|n| clients.enter(address(n), EDGE, Part::Connection)).collect();
        assert!(places.iter().all(|(_, count)| *count == 1));
        // Every third one goes, and others come.
        for n in (0..10_000u32).step_by(3) {
            clients.remove(places[n as usize].0, EDGE, Part::Connection);
            places[n as usize] = clients.enter(address(20_000 + n), EDGE, Part::Connection);
        }
        assert_eq!(clients.len(), 10_000);
        for n in 0..10_000u32 {
            let known = if n % 3 == 0 { 20_000 + n } else { n };
            let entered = clients.enter(address(known), EDGE, Part::Exchange);
            assert_eq!(entered, (places[n as usize].0, 1));
            clients.remove(places[n as usize].0, EDGE, Part::Exchange);
        }
        places.iter().for_each(|(place, _)| clients.remove(*place, EDGE, Part::Connection));
        assert_eq!(clients.len(), 0);
        clients.trim();
        assert!(clients.table.is_empty() && clients.buckets.capacity() == 0);
    }
}
