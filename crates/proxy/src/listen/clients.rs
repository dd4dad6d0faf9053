//! Clients, by their addresses: what each has of this worker.
//!
//! A client is an IPv4 address, or the /64 of an IPv6 one, which is what one host or one home gets, at
//! one listener, whose bounds concern it: at another listener it is another client. It is looked up when
//! a connection is accepted, or a trusted hop names another one, and is a place in a table from then on:
//! counting needs no look-up. It goes with the last that names it.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use config::snapshot::ListenerId;

use crate::tools::slab::Chunks;

/// Places of the table for each bucket: a look-up passes few, and a connection pays for little.
const PLACES_OF_BUCKET: usize = 4;

/// A client without an address, such as the peer of a unix socket. It is not counted.
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

/// What of a client is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Connection,
    Exchange,
    /// An exchange that has an upstream connection, or a stream on one.
    Held,
}

/// What a client has. A connection may be its client's only one, so this is kept small.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// See [`Clients::id_of`].
    id: u64,
    parts: [u32; 3],
    /// The next in its bucket, or the next free place.
    next: u32,
}

const _: () = assert!(size_of::<Client>() == 24);

/// The clients of a worker. As bounded as connections and exchanges are, each of which names one at
/// most.
///
/// A table of its own, whose entries are never moved: each connection may bring a client, and a map of
/// the standard library takes up to four times as much for it, and all at once when it grows.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    table: Chunks<Client>,
    /// The first client of each bucket.
    buckets: Vec<u32>,
    /// The first free place.
    free: Option<u32>,
    len: usize,
    hasher: RandomState,
}

impl Clients {
    /// Clients that are known.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Counts one more of something for the client at this address and listener; says how many it has now.
    pub(crate) fn enter(
        &mut self,
        address: Option<IpAddr>,
        listener: ListenerId,
        part: Part,
    ) -> (ClientPlace, u32) {
        let Some(address) = address else { return (ClientPlace::UNKNOWN, 0) };
        let id = self.id_of(address, listener);
        let client = ClientPlace(self.find(id).unwrap_or_else(|| self.insert(id)));
        (client, self.add(client, part))
    }

    /// What stands for the client at this address and listener, and how many of something it has.
    pub(crate) fn at(&self, address: IpAddr, listener: ListenerId, part: Part) -> (u64, u32) {
        let id = self.id_of(address, listener);
        let count = self.find(id).map_or(0, |place| self.count_of(ClientPlace(place), part));
        (id, count)
    }

    /// Counts one more of something for this client; says how many it has now.
    #[inline]
    pub(crate) fn add(&mut self, client: ClientPlace, part: Part) -> u32 {
        let Some(entry) = self.table.get_mut(client.0 as usize) else { return 0 };
        let Some(count) = entry.parts.get_mut(part as usize) else { return 0 };
        *count += 1;
        *count
    }

    /// Counts one less.
    #[inline]
    pub(crate) fn remove(&mut self, client: ClientPlace, part: Part) {
        let Some(entry) = self.table.get_mut(client.0 as usize) else { return };
        let Some(count) = entry.parts.get_mut(part as usize) else { return };
        debug_assert!(*count > 0, "it was counted");
        *count = count.saturating_sub(1);
        if entry.parts == [0; 3] {
            self.forget(client.0);
        }
    }

    /// Exchanges of a client.
    pub(crate) fn exchanges_of(&self, client: ClientPlace) -> u32 {
        self.count_of(client, Part::Exchange)
    }

    /// Exchanges of a client that have an upstream connection, or a stream on one.
    pub(crate) fn held_by(&self, client: ClientPlace) -> u32 {
        if client == ClientPlace::COPIES {
            return u32::MAX;
        }
        self.count_of(client, Part::Held)
    }

    /// Gives back what a crowd left behind.
    pub(crate) fn trim(&mut self) {
        if self.len == 0 {
            (self.table, self.buckets, self.free) = Default::default();
        }
    }

    /// How many of something a client has.
    pub(crate) fn count_of(&self, client: ClientPlace, part: Part) -> u32 {
        let entry = self.table.get(client.0 as usize);
        entry.and_then(|entry| entry.parts.get(part as usize).copied()).unwrap_or(0)
    }

    /// The place of a bucket; there are none before the first client.
    fn bucket_of(&self, id: u64) -> usize {
        let mask = self.buckets.len().saturating_sub(1);
        usize::try_from(id & mask as u64).unwrap_or(0)
    }

    /// A number for the client at this address and listener. It is keyed, so that no peer can choose addresses with the same one, nor of
    /// one bucket; of a million clients, two have the same by chance once in ten million tables, and then share their bounds.
    ///
    /// While connections of a removed listener end, a new one may have its slot: they count there, too.
    fn id_of(&self, address: IpAddr, listener: ListenerId) -> u64 {
        self.hasher.hash_one((network_of(address), listener.0.slot))
    }

    fn find(&self, id: u64) -> Option<u32> {
        let mut place = *self.buckets.get(self.bucket_of(id))?;
        loop {
            let entry = self.table.get(place as usize)?;
            if entry.id == id {
                return Some(place);
            }
            place = entry.next;
        }
    }

    fn insert(&mut self, id: u64) -> u32 {
        let place = self.free_place();
        let bucket = self.bucket_of(id);
        let next =
            self.buckets.get_mut(bucket).map_or(NONE, |first| std::mem::replace(first, place));
        if let Some(entry) = self.table.get_mut(place as usize) {
            self.free = (entry.next != NONE).then_some(entry.next);
            *entry = Client { id, parts: [0; 3], next };
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
        let number = |place: usize| u32::try_from(place).expect("there are fewer connections");
        self.table.grow(|place| Client { id: 0, parts: [0; 3], next: number(place + 1) });
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
            if entry.parts == [0; 3] {
                continue;
            }
            let bucket = self.bucket_of(entry.id);
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
        let bucket = self.bucket_of(gone.id);
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
            entry.next = self.free.replace(place).unwrap_or(NONE);
        }
        self.len -= 1;
    }
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
        assert_eq!(clients.add(client, Part::Exchange), 1);
        assert_eq!(clients.add(client, Part::Held), 1);
        assert_eq!(clients.held_by(client), 1);
        clients.remove(client, Part::Connection);
        clients.remove(client, Part::Held);
        assert_eq!((clients.len(), clients.held_by(client)), (1, 0));
        clients.remove(client, Part::Exchange);
        assert_eq!(clients.len(), 0);
        assert_eq!(enter(&mut clients, "192.0.2.9").0, client);
        assert_eq!(clients.held_by(client), 0);
    }

    #[test]
    fn a_client_is_another_at_another_listener() {
        let mut clients = Clients::default();
        let address = "192.0.2.1".parse().unwrap();
        let (client, _) = clients.enter(Some(address), EDGE, Part::Connection);
        let (other, count) = clients.enter(Some(address), OTHER, Part::Connection);
        assert_eq!((client != other, count), (true, 1));
        clients.add(other, Part::Connection);
        let counts = [EDGE, OTHER].map(|listener| clients.at(address, listener, Part::Connection));
        assert_eq!(counts.map(|(_, count)| count), [1, 2]);
        clients.remove(client, Part::Connection);
        assert_eq!((clients.count_of(other, Part::Connection), clients.len()), (2, 1));
    }

    #[test]
    fn who_has_no_address_is_not_counted() {
        let mut clients = Clients::default();
        let (client, count) = clients.enter(None, EDGE, Part::Connection);
        assert_eq!((client, count), (ClientPlace::UNKNOWN, 0));
        assert_eq!(clients.add(client, Part::Held), 0);
        clients.remove(client, Part::Held);
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
            clients.remove(places[n as usize].0, Part::Connection);
            places[n as usize] = clients.enter(address(20_000 + n), EDGE, Part::Connection);
        }
        assert_eq!(clients.len(), 10_000);
        for n in 0..10_000u32 {
            let known = if n % 3 == 0 { 20_000 + n } else { n };
            let entered = clients.enter(address(known), EDGE, Part::Held);
            assert_eq!(entered, (places[n as usize].0, 1));
            clients.remove(places[n as usize].0, Part::Held);
        }
        places.iter().for_each(|(place, _)| clients.remove(*place, Part::Connection));
        assert_eq!(clients.len(), 0);
        clients.trim();
        assert!(clients.table.is_empty() && clients.buckets.capacity() == 0);
    }
}
