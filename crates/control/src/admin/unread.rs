//! How much memory whole pages may take that clients do not read.
//!
//! A page of metrics is made at once, has some 36 MB with 10,000 clusters, and may be asked for by any client that reaches its address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::answer::Answer;

/// Bytes of pages that were made and not read yet. One page is always made.
const UNREAD_MAX: u64 = 128 << 20;

/// The part of the memory that the process may take at most.
const SHARE_OF_MEMORY: u64 = 8;

/// How long a client has for its page where another needs the room: as long as Prometheus gives a scrape (`scrape_timeout`) by default.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The pages that are being made or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadPages(Arc<Mutex<Unread>>);

#[derive(Debug, Default)]
struct Unread {
    bytes: u64,
    /// Of the last page: the next has about as many.
    last: u64,
    /// Clients that read a page, in the order in which they began.
    readers: BTreeMap<u64, Reader>,
    /// The number of the last one.
    number_last: u64,
}

#[derive(Debug)]
struct Reader {
    began: Instant,
    bytes: u64,
    closes: Arc<Notify>,
}

/// The part of one page, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct UnreadPage {
    pages: UnreadPages,
    bytes: u64,
    /// The number of its reader.
    reader: Option<u64>,
}

impl UnreadPages {
    /// Room for a page that has this many bytes at least; none while the unread ones leave none, and their clients have begun to read them
    /// a short while ago. Those that have had [`READ_WITHIN`] are closed instead, as many as need be, unless that is not enough.
    /// `memory_max` is what the process may take, in bytes, if that is known.
    pub(crate) fn begin(&self, bytes_min: u64, memory_max: Option<u64>) -> Option<UnreadPage> {
        let mut unread = self.lock();
        let bytes = unread.last.max(bytes_min);
        let max = memory_max.map_or(UNREAD_MAX, |max| (max / SHARE_OF_MEMORY).min(UNREAD_MAX));
        let has_room = |unread: u64| unread == 0 || unread.saturating_add(bytes) <= max;
        let of_slow: u64 = unread.slow().map(|(_, reader)| reader.bytes).sum();
        if !has_room(unread.bytes.saturating_sub(of_slow)) {
            return None;
        }
        while !has_room(unread.bytes) && unread.close_slowest() {}
        unread.bytes += bytes;
        drop(unread);
        Some(UnreadPage { pages: self.clone(), bytes, reader: None })
    }

    /// No holder of the lock can panic.
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unread {
    /// The clients that have had their time, the slowest first.
    fn slow(&self) -> impl Iterator<Item = (&u64, &Reader)> {
        self.readers.iter().take_while(|(_, reader)| reader.began.elapsed() >= READ_WITHIN)
    }

    /// Closes the connection of the client that has been reading its page for longest, if it had its time. The room counts as given back
    /// already: the connection drops its page in its next turn, before another has been made.
    fn close_slowest(&mut self) -> bool {
        let slowest = self.slow().next().map(|(number, _)| *number);
        let Some(reader) = slowest.and_then(|number| self.readers.remove(&number)) else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(reader.bytes);
        reader.closes.notify_one();
        true
    }
}

impl UnreadPage {
    /// An empty page that need not grow, unless it has more than the last one: what is left behind by growing takes as much again.
    pub(crate) fn text(&self) -> String {
        let bytes = self.bytes.saturating_add(self.bytes / 16);
        String::with_capacity(usize::try_from(bytes).unwrap_or(0))
    }

    /// The page has been made.
    pub(crate) fn made(&mut self, answer: &Answer) {
        let bytes = u64::try_from(answer.body.capacity()).unwrap_or(u64::MAX);
        let mut unread = self.pages.lock();
        unread.last = bytes;
        unread.bytes = unread.bytes.saturating_sub(self.bytes).saturating_add(bytes);
        drop(unread);
        self.bytes = bytes;
    }

    /// Its body, which counts until it is sent. `closes` hears when the connection is to be closed, as others need the room.
    pub(super) fn body(mut self, body: Vec<u8>, closes: &Arc<Notify>) -> Bytes {
        let (began, closes) = (Instant::now(), Arc::clone(closes));
        let mut unread = self.pages.lock();
        unread.number_last += 1;
        let number = unread.number_last;
        unread.readers.insert(number, Reader { began, bytes: self.bytes, closes });
        drop(unread);
        self.reader = Some(number);
        Bytes::from_owner(Counted { body, _page: self })
    }
}

impl Drop for UnreadPage {
    fn drop(&mut self) {
        let mut unread = self.pages.lock();
        // What was closed has been given back.
        if self.reader.is_none_or(|number| unread.readers.remove(&number).is_some()) {
            unread.bytes = unread.bytes.saturating_sub(self.bytes);
        }
    }
}

struct Counted {
    body: Vec<u8>,
    _page: UnreadPage,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_while_what_is_unread_leaves_room_and_one_in_any_case() {
        let pages = UnreadPages::default();
        let begin = |bytes| pages.begin(bytes, None);
        let mut first = begin(1).unwrap();
        let answer = Answer::text(200, "x".repeat(usize::try_from(UNREAD_MAX / 2).unwrap()));
        first.made(&answer);
        let second = begin(1).unwrap();
        assert!(begin(1).is_none(), "as large as the last one");
        drop(second);
        let body = first.body(answer.body, &Arc::default());
        let part = body.slice(..10);
        drop(body);
        let second = begin(1).unwrap();
        assert!(begin(1).is_none(), "a part of it is not sent");
        drop((second, part));
        assert!(begin(UNREAD_MAX * 2).is_some(), "however large one is");
        assert_eq!(pages.lock().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_been_reading_a_page_for_long_makes_room_for_another() {
        let pages = UnreadPages::default();
        let begin = || pages.begin(UNREAD_MAX / 2, None);
        let clients: [Arc<Notify>; 2] = Default::default();
        let read = |client| begin().unwrap().body(vec![7], client);
        let first = read(&clients[0]);
        tokio::time::advance(READ_WITHIN / 2).await;
        let second = read(&clients[1]);
        assert!(begin().is_none(), "both have time yet");
        tokio::time::advance(READ_WITHIN / 2).await;
        let third = begin().unwrap();
        assert!(begin().is_none(), "of the others one has time, and one is being made");
        let closes = clients.map(|client| async move {
            tokio::time::timeout(Duration::ZERO, client.notified()).await.is_ok()
        });
        let [of_first, of_second] = closes;
        assert_eq!((of_first.await, of_second.await), (true, false));
        drop(first);
        assert_eq!(pages.lock().bytes, UNREAD_MAX, "it was given back before");
        drop((second, third));
        let unread = pages.lock();
        assert_eq!((unread.bytes, unread.readers.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn no_client_is_closed_for_a_page_that_finds_no_room_all_the_same() {
        let pages = UnreadPages::default();
        let begin = |bytes| pages.begin(bytes, None);
        let client: Arc<Notify> = Arc::default();
        let slow = begin(UNREAD_MAX / 4).unwrap().body(vec![7], &client);
        tokio::time::advance(READ_WITHIN).await;
        let made = begin(UNREAD_MAX * 3 / 4).unwrap();
        assert!(begin(UNREAD_MAX / 2).is_none());
        assert!(tokio::time::timeout(Duration::ZERO, client.notified()).await.is_err());
        drop((slow, made));
    }

    #[test]
    fn pages_have_a_share_of_the_memory_that_the_process_may_take() {
        let pages = UnreadPages::default();
        let begin = || pages.begin(1 << 20, Some(32 << 20));
        let four: Vec<_> = (0..4).map(|_| begin().unwrap()).collect();
        assert!(begin().is_none());
        let text = four[0].text();
        assert!((1 << 20..5 << 18).contains(&text.capacity()), "{}", text.capacity());
        drop(four);
        assert!(pages.begin(1 << 30, Some(32 << 20)).is_some(), "however large one is");
    }
}
