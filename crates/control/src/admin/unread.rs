//! How much memory whole pages may take that clients do not read.
//!
//! A page of metrics is made at once, has some 36 MB with 10,000 clusters, and may be asked for by any client that reaches its address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::body::Bytes;

use super::answer::Answer;

/// Bytes of pages that were made and not read yet. One page is always made.
const UNREAD_MAX: u64 = 128 << 20;

/// The part of the memory that the process may take at most.
const SHARE_OF_MEMORY: u64 = 8;

/// The pages that are being made or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadPages {
    unread: Arc<AtomicU64>,
    /// The last page: the next has about as much.
    last: Arc<AtomicU64>,
}

/// The part of one page, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct UnreadPage {
    pages: UnreadPages,
    bytes: u64,
}

impl UnreadPages {
    /// Room for a page that has this many bytes at least; none while the unread ones leave none. `memory_max` is what the process may
    /// take, in bytes, if that is known.
    pub(crate) fn begin(&self, bytes_min: u64, memory_max: Option<u64>) -> Option<UnreadPage> {
        let bytes = self.last.load(Ordering::Relaxed).max(bytes_min);
        let max = memory_max.map_or(UNREAD_MAX, |max| (max / SHARE_OF_MEMORY).min(UNREAD_MAX));
        let before = self.unread.fetch_add(bytes, Ordering::Relaxed);
        let page = UnreadPage { pages: self.clone(), bytes };
        (before == 0 || before.saturating_add(bytes) <= max).then_some(page)
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
        self.pages.last.store(bytes, Ordering::Relaxed);
        self.pages.unread.fetch_add(bytes, Ordering::Relaxed);
        self.pages.unread.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Its body, which counts until it is sent.
    pub(super) fn body(self, body: Vec<u8>) -> Bytes {
        Bytes::from_owner(Counted { body, _page: self })
    }
}

impl Drop for UnreadPage {
    fn drop(&mut self) {
        self.pages.unread.fetch_sub(self.bytes, Ordering::Relaxed);
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
        let body = first.body(answer.body);
        let part = body.slice(..10);
        drop(body);
        let second = begin(1).unwrap();
        assert!(begin(1).is_none(), "a part of it is not sent");
        drop((second, part));
        assert!(begin(UNREAD_MAX * 2).is_some(), "however large one is");
        assert_eq!(pages.unread.load(Ordering::Relaxed), 0);
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
