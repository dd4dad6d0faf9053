//! The listeners of a snapshot, in order, with structure that is shared from one snapshot to the next.

use std::ops::Index;
use std::sync::Arc;

use super::id::ListenerId;
use super::slots::Slots;
use crate::resource::listener::Listener;

/// Places of a chunk. Exchanges look their listener up by its place, so there is nothing between the list and its chunks.
const CHUNK_PLACES: usize = 64;

type Chunk<F> = [Option<Arc<Listener<F>>>; CHUNK_PLACES];

/// Listeners in the order of the file, and behind them those of other sources in the order in which they came. Each has a place,
/// which another version of it keeps; the next list shares all chunks but those in which it differs.
#[derive(Debug)]
pub struct Listeners<F> {
    chunks: Vec<Arc<Chunk<F>>>,
    places: Slots<u32>,
    /// How many there are, and how many places they take: those that are gone leave theirs empty.
    len: usize,
    places_len: usize,
}

impl<F> Default for Listeners<F> {
    fn default() -> Self {
        Self { chunks: Vec::new(), places: Slots::default(), len: 0, places_len: 0 }
    }
}

impl<F> Clone for Listeners<F> {
    fn clone(&self) -> Self {
        let (chunks, places) = (self.chunks.clone(), self.places.clone());
        Self { chunks, places, len: self.len, places_len: self.places_len }
    }
}

impl<F> FromIterator<Arc<Listener<F>>> for Listeners<F> {
    fn from_iter<I: IntoIterator<Item = Arc<Listener<F>>>>(listeners: I) -> Self {
        let mut all = Self::default();
        listeners.into_iter().for_each(|listener| all.put(listener));
        all
    }
}

impl<'l, F> IntoIterator for &'l Listeners<F> {
    type Item = &'l Arc<Listener<F>>;
    type IntoIter = std::iter::Flatten<
        std::iter::FlatMap<
            std::slice::Iter<'l, Arc<Chunk<F>>>,
            &'l Chunk<F>,
            fn(&'l Arc<Chunk<F>>) -> &'l Chunk<F>,
        >,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.chunks
            .iter()
            .flat_map((|chunk| &**chunk) as fn(&'l Arc<Chunk<F>>) -> &'l Chunk<F>)
            .flatten()
    }
}

impl<F> Index<usize> for Listeners<F> {
    type Output = Arc<Listener<F>>;

    fn index(&self, place: usize) -> &Self::Output {
        self.get(place).expect("a listener has this place")
    }
}

impl<F> Listeners<F> {
    /// All, in order.
    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.into_iter()
    }

    /// All with their places.
    pub fn with_places(&self) -> impl Iterator<Item = (&Arc<Listener<F>>, u32)> {
        let places = self.chunks.iter().flat_map(|chunk| chunk.iter()).zip(0u32..);
        places.filter_map(|(listener, place)| Some((listener.as_ref()?, place)))
    }

    /// The listener at a place.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&Arc<Listener<F>>> {
        self.chunks.get(place / CHUNK_PLACES)?.get(place % CHUNK_PLACES)?.as_ref()
    }

    /// The listener with this id, and its place.
    #[must_use]
    pub fn find(&self, id: ListenerId) -> Option<(usize, &Arc<Listener<F>>)> {
        let place = *self.places.find(id.0)? as usize;
        Some((place, self.get(place)?))
    }

    /// The first one.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<Listener<F>>> {
        self.iter().next()
    }

    /// Whether nothing differs: all of it is shared.
    #[must_use]
    pub fn is_shared(&self, other: &Self) -> bool {
        let (own, others) = (&self.chunks, &other.chunks);
        own.len() == others.len()
            && own.iter().zip(others).all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a listener in the place of the version before, or behind all others.
    pub(crate) fn put(&mut self, listener: Arc<Listener<F>>) {
        let known = self.find(listener.id).map(|(place, _)| place);
        let place = known.unwrap_or(self.places_len);
        if known.is_none() {
            // 2^32 listeners do not fit into memory before.
            self.places.insert(listener.id.0, u32::try_from(place).unwrap_or(u32::MAX));
            self.len += 1;
            self.places_len += 1;
        }
        if self.chunks.len() * CHUNK_PLACES <= place {
            self.chunks.push(Arc::new([const { None }; CHUNK_PLACES]));
        }
        if let Some(slot) = self.slot_mut(place) {
            *slot = Some(listener);
        }
    }

    /// Takes a listener away, if it is there. Once more places are empty than not, all move together.
    pub(crate) fn remove(&mut self, id: ListenerId) {
        let Some((place, _)) = self.find(id) else { return };
        self.places.remove(id.0);
        self.len -= 1;
        if let Some(slot) = self.slot_mut(place) {
            *slot = None;
        }
        if self.places_len - self.len > self.len + CHUNK_PLACES {
            *self = self.iter().cloned().collect();
        }
    }

    fn slot_mut(&mut self, place: usize) -> Option<&mut Option<Arc<Listener<F>>>> {
        Arc::make_mut(self.chunks.get_mut(place / CHUNK_PLACES)?).get_mut(place % CHUNK_PLACES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Loader;
    use crate::resource::filter::FilterKinds;

    fn listeners(count: u16) -> Vec<Arc<Listener<()>>> {
        let entries = (1..=count).map(|n| {
            format!("{{ name: l{n}, address: '127.0.0.1:{n}', protocol: tcp, cluster: a }}, ")
        });
        let entries: String = entries.collect();
        let text = format!(
            "listeners: [{entries}]\nclusters: [{{ name: a, endpoints: ['10.0.0.1:1'] }}]\n"
        );
        let mut loader = Loader::new(FilterKinds::new()).unwrap();
        loader.load("test.yaml", &text).unwrap().listeners.iter().cloned().collect()
    }

    fn names(listeners: &Listeners<()>) -> Vec<Arc<str>> {
        listeners.iter().map(|listener| Arc::clone(&listener.name)).collect()
    }

    #[test]
    fn the_next_list_shares_all_chunks_but_those_in_which_it_differs() {
        let list = listeners(200);
        let former: Listeners<()> = list.iter().take(199).cloned().collect();
        let mut now = former.clone();
        assert!(now.is_shared(&former));
        now.remove(list[70].id);
        now.put(Arc::clone(&list[199]));
        let shared = now.chunks.iter().zip(&former.chunks);
        let shared: Vec<bool> = shared.map(|(now, former)| Arc::ptr_eq(now, former)).collect();
        assert_eq!(shared, [true, false, true, false]);
        assert!(!now.is_shared(&former));
        assert_eq!((now.len(), former.len()), (199, 199));
        assert!(now.find(list[70].id).is_none() && former.find(list[70].id).is_some());
        // Others keep their places, and another version has that of the one before.
        assert_eq!(now.find(list[71].id).map(|(place, _)| place), Some(71));
        now.put(Arc::clone(&list[3]));
        assert_eq!((now.find(list[3].id).map(|(place, _)| place), now.len()), (Some(3), 199));
        assert!(now.with_places().all(|(it, place)| now.find(it.id).unwrap().0 == place as usize));
    }

    #[test]
    fn places_that_are_empty_are_used_again_once_they_are_many() {
        let list = listeners(300);
        let mut now: Listeners<()> = list.iter().cloned().collect();
        let mut left: Vec<_> = list.iter().map(|it| Arc::clone(&it.name)).collect();
        for listener in list.iter().step_by(2).chain(list.iter().skip(1).step_by(4)) {
            now.remove(listener.id);
            now.remove(listener.id);
            left.retain(|name| *name != listener.name);
            assert_eq!((names(&now), now.len()), (left.clone(), left.len()));
            assert!(now.places_len <= 2 * now.len() + CHUNK_PLACES);
        }
        assert!(now.chunks.len() < 5);
        list.iter().for_each(|listener| now.remove(listener.id));
        assert!(now.is_empty() && now.first().is_none() && now.get(0).is_none());
        now.put(Arc::clone(&list[9]));
        assert_eq!(now[now.find(list[9].id).unwrap().0].name, list[9].name);
    }
}
