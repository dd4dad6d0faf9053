//! Sessions that clients may resume with early data: remembered here, each for one hello, and by one process at any time.
//!
//! ```text
//!  Open ──give──► Given: remembers nothing, and takes nothing on      Expecting ──adopt──► Open
//!    ▲              │ the other process does not take over                notes what it was asked for
//!    └────reopen────┘ (what was written down is in doubt, and forgotten)
//! ```
//!
//! A client whose session is not found begins anew, and what it sent early is not taken. So forgetting is safe, and
//! remembering twice is not: who recorded a hello could have it taken by both processes (RFC 8446, section 8.1).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::StoresServerSessions;
use zeroize::Zeroizing;

use crate::handshake::early::EARLY_SESSIONS_MAX;

/// Bytes that are written down, at most: the newest sessions.
const WRITTEN_BYTES_MAX: usize = 32 << 20;

/// Octets of a scope.
const SCOPE_LEN: usize = 32;

type Scope = [u8; SCOPE_LEN];

/// A session as it is written down: its scope, its id, what is remembered.
type Written = (Scope, Vec<u8>, Zeroizing<Vec<u8>>);

/// The same as it is read.
type Read<'w> = (Scope, &'w [u8], &'w [u8]);

/// The sessions of a process, by scope.
#[derive(Default)]
pub struct EarlyMemory(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    state: State,
    scopes: BTreeMap<Scope, Sessions>,
    /// The place of the next session in the order in which they came.
    next: u64,
}

#[derive(Default)]
enum State {
    #[default]
    Open,
    /// Another process has the memory.
    Given,
    /// Another process has it still. Sessions that were asked for meanwhile are not taken when it comes: their clients have
    /// begun anew, and may have sent again what was early.
    Expecting {
        /// None if there were too many: then none is taken.
        missed: Option<BTreeSet<Vec<u8>>>,
    },
}

/// Those of a scope.
#[derive(Default)]
struct Sessions {
    /// Contexts that have this scope.
    contexts: usize,
    by_id: BTreeMap<Vec<u8>, Session>,
    /// Their ids, by their places.
    order: BTreeMap<u64, Vec<u8>>,
}

struct Session {
    place: u64,
    state: Zeroizing<Vec<u8>>,
}

/// The sessions of one scope, for the contexts that agree on the same with clients.
pub struct EarlySessions {
    memory: Arc<EarlyMemory>,
    scope: Scope,
}

impl EarlyMemory {
    /// Writes all sessions down for the process that takes this one's place, and forgets them: from here on no early data is
    /// taken.
    #[must_use]
    pub fn give(&self) -> Zeroizing<Vec<u8>> {
        let mut memory = self.lock();
        memory.state = State::Given;
        let mut all = BTreeMap::new();
        for (scope, sessions) in &mut memory.scopes {
            sessions.order.clear();
            let sessions = std::mem::take(&mut sessions.by_id).into_iter();
            all.extend(sessions.map(|(id, session)| (session.place, (*scope, id, session.state))));
        }
        let mut len = 0;
        let is_within = |(_, (_, id, state)): &(&u64, &Written)| {
            len += written_len(id, state);
            len <= WRITTEN_BYTES_MAX
        };
        let count = all.iter().rev().take_while(is_within).count();
        let newest = all.into_values().rev().take(count).collect::<Vec<_>>().into_iter().rev();
        write(newest)
    }

    /// Remembers sessions again: the other process is over. What it was given is in doubt, and not taken back.
    pub fn reopen(&self) {
        let mut memory = self.lock();
        if matches!(memory.state, State::Given) {
            memory.state = State::Open;
        }
    }

    /// Another process has sessions that [`EarlyMemory::adopt`] will bring.
    pub fn expect(&self) {
        self.lock().state = State::Expecting { missed: Some(BTreeSet::new()) };
    }

    /// Goes on with the sessions that the process before this one wrote down, beside those of this one. Of a scope that no
    /// context has, and where something is damaged, they are left out.
    pub fn adopt(&self, written: &[u8]) {
        let mut memory = self.lock();
        let State::Expecting { missed: Some(missed) } = std::mem::take(&mut memory.state) else {
            return;
        };
        let Some(all) = read(written) else { return };
        for (scope, id, state) in all {
            if !missed.contains(id) {
                memory.put(scope, id.to_vec(), Zeroizing::new(state.to_vec()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn put(&mut self, scope: Scope, id: Vec<u8>, state: Zeroizing<Vec<u8>>) -> bool {
        let Some(sessions) = self.scopes.get_mut(&scope) else { return false };
        let place = self.next;
        self.next += 1;
        if let Some(former) = sessions.by_id.insert(id.clone(), Session { place, state }) {
            sessions.order.remove(&former.place);
        }
        sessions.order.insert(place, id);
        if sessions.by_id.len() > EARLY_SESSIONS_MAX
            && let Some((_, oldest)) = sessions.order.pop_first()
        {
            sessions.by_id.remove(&oldest);
        }
        true
    }

    fn take(&mut self, scope: &Scope, id: &[u8]) -> Option<Vec<u8>> {
        let sessions = self.scopes.get_mut(scope)?;
        let Some(mut session) = sessions.by_id.remove(id) else {
            self.miss(id);
            return None;
        };
        sessions.order.remove(&session.place);
        Some(std::mem::take(&mut *session.state))
    }

    /// Notes a session that was asked for and may be in the other process's memory.
    fn miss(&mut self, id: &[u8]) {
        if let State::Expecting { missed } = &mut self.state
            && let Some(ids) = missed
        {
            ids.insert(id.to_vec());
            if ids.len() > EARLY_SESSIONS_MAX {
                *missed = None;
            }
        }
    }
}

impl EarlySessions {
    /// Those of this scope, which differs where clients would have been agreed with on something else.
    #[must_use]
    pub fn new(memory: Arc<EarlyMemory>, scope: [u8; 32]) -> Self {
        memory.lock().scopes.entry(scope).or_default().contexts += 1;
        Self { memory, scope }
    }
}

impl Clone for EarlySessions {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.memory), self.scope)
    }
}

/// Of a context that shares them with no other.
impl Default for EarlySessions {
    fn default() -> Self {
        Self::new(Arc::default(), [0; SCOPE_LEN])
    }
}

impl Drop for EarlySessions {
    fn drop(&mut self) {
        let scopes = &mut self.memory.lock().scopes;
        if let Some(sessions) = scopes.get_mut(&self.scope) {
            sessions.contexts -= 1;
            if sessions.contexts == 0 {
                scopes.remove(&self.scope);
            }
        }
    }
}

impl StoresServerSessions for EarlySessions {
    fn put(&self, id: Vec<u8>, state: Vec<u8>) -> bool {
        let mut memory = self.memory.lock();
        let state = Zeroizing::new(state);
        !matches!(memory.state, State::Given) && memory.put(self.scope, id, state)
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let memory = self.memory.lock();
        let session = memory.scopes.get(&self.scope)?.by_id.get(id)?;
        Some(session.state.to_vec())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.memory.lock().take(&self.scope, id)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for EarlyMemory {
    /// No sessions: there are secrets in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.lock();
        let sessions: usize = memory.scopes.values().map(|it| it.by_id.len()).sum();
        f.debug_struct("EarlyMemory").field("sessions", &sessions).finish_non_exhaustive()
    }
}

impl fmt::Debug for EarlySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlySessions").finish_non_exhaustive()
    }
}

// As it is written: for each session its scope in 32 bytes, then its id and its state, each behind its length in four.

fn written_len(id: &[u8], state: &[u8]) -> usize {
    SCOPE_LEN + 2 * size_of::<u32>() + id.len() + state.len()
}

fn write(sessions: impl Iterator<Item = Written>) -> Zeroizing<Vec<u8>> {
    let sessions: Vec<_> = sessions.collect();
    let len = sessions.iter().map(|(_, id, state)| written_len(id, state)).sum();
    // As long as it gets, so that nothing of it is left behind where it was shorter.
    let mut written = Zeroizing::new(Vec::with_capacity(len));
    for (scope, id, state) in &sessions {
        written.extend_from_slice(scope);
        for part in [id.as_slice(), state.as_slice()] {
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            written.extend_from_slice(&len.to_be_bytes());
            written.extend_from_slice(part);
        }
    }
    written
}

fn read(mut written: &[u8]) -> Option<Vec<Read<'_>>> {
    let mut all = Vec::new();
    while !written.is_empty() {
        let (scope, rest) = written.split_first_chunk()?;
        let (id, rest) = read_part(rest)?;
        let (state, rest) = read_part(rest)?;
        all.push((*scope, id, state));
        written = rest;
    }
    Some(all)
}

fn read_part(written: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = written.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(memory: &Arc<EarlyMemory>, scope: u8) -> EarlySessions {
        EarlySessions::new(Arc::clone(memory), [scope; SCOPE_LEN])
    }

    fn put(sessions: &EarlySessions, id: u8) -> bool {
        sessions.put(vec![id], vec![id; 100])
    }

    #[test]
    fn a_session_is_taken_once_by_whichever_process() {
        let memories: Vec<_> = (0..3).map(|_| Arc::<EarlyMemory>::default()).collect();
        let of: Vec<_> = memories.iter().map(|memory| sessions(memory, 7)).collect();
        let other_rules = sessions(&memories[1], 8);
        assert!((0..4).all(|id| put(&of[0], id)));
        assert_eq!(of[0].take(&[0]).map(|state| state.len()), Some(100));
        memories[1].expect();
        // Asked for before it came: the client has begun anew.
        assert_eq!(of[1].take(&[1]), None);
        assert!(put(&of[1], 9));
        let written = memories[0].give();
        assert_eq!(of[0].take(&[2]), None, "the memory is another process's");
        assert!(!put(&of[0], 5), "nothing more is promised");
        memories[1].adopt(&written);
        for (id, is_taken) in [(0, false), (1, false), (2, true), (2, false), (9, true)] {
            assert_eq!(of[1].take(&[id]).is_some(), is_taken, "{id}");
            assert_eq!(other_rules.take(&[id]), None);
        }
        memories[2].expect();
        memories[2].adopt(&memories[1].give());
        assert!(of[2].take(&[3]).is_some());
        for (of, memory) in of.iter().zip(&memories) {
            memory.reopen();
            assert!((0..4).all(|id| of.take(&[id]).is_none()), "what was given does not come back");
            assert!(put(of, 5) && of.take(&[5]).is_some());
        }
    }

    #[test]
    fn what_is_damaged_or_was_not_expected_is_not_taken() {
        let from = Arc::<EarlyMemory>::default();
        let of_from = sessions(&from, 7);
        assert!(put(&of_from, 1) && put(&of_from, 2));
        let written = from.give();
        let to = Arc::<EarlyMemory>::default();
        let of_to = sessions(&to, 7);
        to.adopt(&written);
        for end in 1..written.len() {
            to.expect();
            to.adopt(&written[..end]);
            let is_first_whole = end == written.len() / 2;
            assert_eq!(of_to.take(&[1]).is_some(), is_first_whole, "{end}");
            assert_eq!(of_to.take(&[2]), None, "{end}");
        }
        let mut lengths = written.to_vec();
        lengths[SCOPE_LEN] = 0xff;
        to.expect();
        to.adopt(&lengths);
        assert_eq!(of_to.take(&[2]), None);
    }

    #[test]
    fn the_oldest_are_forgotten_and_those_without_a_context() {
        let memory = Arc::<EarlyMemory>::default();
        let of = sessions(&memory, 7);
        for id in 0..=u32::try_from(EARLY_SESSIONS_MAX).unwrap() {
            assert!(of.put(id.to_be_bytes().to_vec(), vec![1]));
        }
        assert_eq!(of.take(&0u32.to_be_bytes()), None);
        assert!(of.take(&1u32.to_be_bytes()).is_some());
        let again = of.clone();
        drop(of);
        assert!(again.take(&2u32.to_be_bytes()).is_some());
        drop(again);
        assert_eq!(sessions(&memory, 7).take(&3u32.to_be_bytes()), None);
    }

    #[test]
    fn no_more_is_written_down_than_a_handover_takes() {
        let memory = Arc::<EarlyMemory>::default();
        let of = sessions(&memory, 7);
        let large = vec![0; 1 << 20];
        assert!((0..40).all(|id| of.put(vec![id], large.clone())));
        let written = memory.give();
        assert!(written.len() <= WRITTEN_BYTES_MAX);
        let ids: Vec<_> = read(&written).unwrap().iter().map(|(_, id, _)| id[0]).collect();
        assert_eq!(ids, (9..40).collect::<Vec<u8>>(), "the newest, in order");
    }
}
