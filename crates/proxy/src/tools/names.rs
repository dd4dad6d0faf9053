//! What a snapshot has, by name. Connections from elsewhere name listeners, clusters and endpoints: with ten thousand of each,
//! a search for every one of ten thousand connections would take minutes.
//!
//! An index is built when it is asked for first, in linear time, and goes with its snapshot. A worker to which nothing moves
//! has none.

use std::collections::BTreeMap;

use config::snapshot::{Cluster, ClusterId, Id, RouteTable, RouteTableId};
use config::xxh64;

use crate::Snapshot;
use crate::tools::text::Text;

/// Endpoints of a cluster from which on its addresses get an index.
const ENDPOINTS_MIN: usize = 16;

/// Rules whose places, or whose identities, are kept at a time.
const RULES_MAX: usize = 1024;

/// Values by what they are named.
#[derive(Debug)]
struct Index<T>(Box<[(u64, T)]>);

impl<T: Copy> Index<T> {
    fn of<'n, N: AsRef<[u8]>>(entries: impl Iterator<Item = (N, T)> + 'n) -> Self {
        let mut all: Box<[_]> = entries.map(|(name, value)| (digest(name), value)).collect();
        // Of several of a name the first comes first.
        all.sort_by_key(|(digest, _)| *digest);
        Self(all)
    }

    /// The first value of this name. `is_named`: whether one is, as another name may have the same digest.
    fn find(&self, name: &[u8], is_named: impl Fn(T) -> bool) -> Option<T> {
        let digest = digest(name);
        let first = self.0.partition_point(|(it, _)| *it < digest);
        let alike = self.0.iter().skip(first).take_while(|(it, _)| *it == digest);
        alike.map(|(_, value)| *value).find(|value| is_named(*value))
    }
}

fn digest(name: impl AsRef<[u8]>) -> u64 {
    xxh64(name.as_ref(), 0)
}

/// The names of a snapshot.
#[derive(Debug)]
pub(crate) struct Names {
    /// Places in the list of listeners.
    listeners: Index<u32>,
    clusters: Index<Id>,
    route_tables: Index<Id>,
}

impl Names {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let listeners = snapshot.listeners.with_places();
        let listeners = listeners.map(|(it, place)| (&*it.name, place));
        Self {
            listeners: Index::of(listeners),
            clusters: Index::of(snapshot.clusters.iter().map(|(id, it)| (&*it.name, id))),
            route_tables: Index::of(snapshot.route_tables.iter().map(|(id, it)| (&*it.name, id))),
        }
    }

    /// The place of a listener in the list of all.
    pub(crate) fn listener(&self, name: &str, snapshot: &Snapshot) -> Option<usize> {
        let at = |place: u32| snapshot.listeners.get(place as usize);
        let found =
            self.listeners.find(name.as_bytes(), |it| at(it).is_some_and(|it| *it.name == *name));
        found.map(|place| place as usize)
    }

    pub(crate) fn cluster(&self, name: &str, snapshot: &Snapshot) -> Option<ClusterId> {
        let is_named = |id| snapshot.clusters.find(id).is_some_and(|it| *it.name == *name);
        self.clusters.find(name.as_bytes(), is_named).map(ClusterId)
    }

    pub(crate) fn route_table(&self, name: &str, snapshot: &Snapshot) -> Option<RouteTableId> {
        let is_named = |id| snapshot.route_tables.find(id).is_some_and(|it| *it.name == *name);
        self.route_tables.find(name.as_bytes(), is_named).map(RouteTableId)
    }
}

/// What is found in long lists of a snapshot, as long as that is the newest.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The places of endpoints by their addresses as text.
    addresses: BTreeMap<ClusterId, Index<u32>>,
    /// The places of rules by their identities, and which of several alike.
    places: BTreeMap<(RouteTableId, u32), BTreeMap<String, Option<usize>>>,
    places_len: usize,
    /// The other way.
    identities: BTreeMap<(RouteTableId, usize), Option<(String, usize)>>,
}

impl Found {
    /// The place of the endpoint with this address.
    pub(crate) fn endpoint(&mut self, cluster: &Cluster, address: &[u8]) -> Option<usize> {
        let is_at = |place: u32| {
            let endpoint = cluster.endpoints.get(place as usize);
            endpoint.is_some_and(|it| Text::of_address(Some(&it.address)).as_bytes() == address)
        };
        let mut places = 0..u32::try_from(cluster.endpoints.len()).ok()?;
        if cluster.endpoints.len() < ENDPOINTS_MIN {
            return places.find(|place| is_at(*place)).map(|place| place as usize);
        }
        let index = self.addresses.entry(cluster.id).or_insert_with(|| {
            let texts = cluster.endpoints.iter().map(|it| Text::of_address(Some(&it.address)));
            Index::of(texts.zip(0..))
        });
        index.find(address, is_at).map(|place| place as usize)
    }

    /// [`RouteTable::place_named`].
    pub(crate) fn rule(&mut self, table: &RouteTable, identity: &str, nth: u32) -> Option<usize> {
        let known = self.places.get(&(table.id, nth)).and_then(|all| all.get(identity));
        if let Some(known) = known {
            return *known;
        }
        if self.places_len >= RULES_MAX {
            self.places.clear();
            self.places_len = 0;
        }
        let place = table.place_named(identity, nth as usize);
        self.places.entry((table.id, nth)).or_default().insert(identity.to_owned(), place);
        self.places_len += 1;
        place
    }

    /// [`RouteTable::name_of`].
    pub(crate) fn identity(&mut self, table: &RouteTable, place: usize) -> Option<(String, usize)> {
        if self.identities.len() >= RULES_MAX {
            self.identities.clear();
        }
        let name = || table.name_of(place);
        self.identities.entry((table.id, place)).or_insert_with(name).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_name_is_found_and_what_only_has_its_digest_is_not() {
        let names = ["b", "a", "c", "a", ""];
        let index = Index::of(names.into_iter().zip(0u32..));
        let find = |name: &str| {
            index.find(name.as_bytes(), |place| names.get(place as usize) == Some(&name))
        };
        let found: Vec<_> = ["a", "b", "c", "", "d"].map(find).into();
        assert_eq!(found, [Some(1), Some(0), Some(2), Some(4), None]);
        assert_eq!(index.find(b"a", |place| place == 3), Some(3));
        assert_eq!(index.find(b"a", |_| false), None);
    }
}
