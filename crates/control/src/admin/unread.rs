//! How much memory whole pages may take that clients do not read.
//!
//! A page of metrics is made at once, has some 36 MB with 10,000 clusters, and may be asked for by any client that reaches its address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::body::Bytes;

use super::answer::Answer;

/// Bytes of pages that were made and not read yet. One page is always made.
const UNREAD_MAX: u64 = 128 << 20;

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
    /// Room for a page that has this many bytes at least; none while the unread ones leave none.
    pub(crate) fn begin(&self, bytes_min: u64) -> Option<UnreadPage> {
        let bytes = self.last.load(Ordering::Relaxed).max(bytes_min);
        let before = self.unread.fetch_add(bytes, Ordering::Relaxed);
        let page = UnreadPage { pages: self.clone(), bytes };
        (before == 0 || before.saturating_add(bytes) <= UNREAD_MAX).then_some(page)
    }
}

impl UnreadPage {
    /// The page has been made.
    pub(crate) fn made(&mut self, answer: &Answer) {
        let bytes = u64::try_from(answer.body.len()).unwrap_or(u64::MAX);
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
        let mut first = pages.begin(1).unwrap();
        let answer = Answer::text(200, "x".repeat(usize::try_from(UNREAD_MAX / 2).unwrap()));
        first.made(&answer);
        let second = pages.begin(1).unwrap();
        assert!(pages.begin(1).is_none(), "as large as the last one");
        drop(second);
        let body = first.body(answer.body);
        let part = body.slice(..10);
        drop(body);
        let second = pages.begin(1).unwrap();
        assert!(pages.begin(1).is_none(), "a part of it is not sent");
        drop((second, part));
        assert!(pages.begin(UNREAD_MAX * 2).is_some(), "however large one is");
        assert_eq!(pages.unread.load(Ordering::Relaxed), 0);
    }
}
