//! Bytes that wait to be sent on one connection.
//!
//! Empty, it owns nothing. The first buffer stands in the connection itself; the common message
//! never needs a second.
//!
//! An outbox can *keep* what it sends, so that a request can be sent again on another connection.
//! By default it keeps only while everything fits its first buffer; the byte that does not fit ends that.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use wire::buffer::Buffer;

use crate::tools::buffers::{BUFFER_BYTES_MAX, Buffers};

/// Slices handed to one send.
pub const SLICES_MAX: usize = 16;

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    first: Option<Buffer>,
    /// What follows `first`; present only while `first` is.
    #[expect(clippy::box_collection, reason = "8 bytes in each idle connection instead of 32")]
    rest: Option<Box<VecDeque<Buffer>>>,
    /// Bytes at the front that were sent and are kept.
    kept: u32,
    is_keeping: bool,
    /// Whether it goes on keeping beyond its first buffer.
    keeps_all: bool,
    /// Whether nothing was sent since `keep`.
    is_untouched: bool,
}

impl Outbox {
    /// Nothing waits.
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: None,
            kept: 0,
            is_keeping: false,
            keeps_all: false,
            is_untouched: false,
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        let first = self.first.as_ref().map_or(0, Buffer::len);
        let rest: usize = self.rest.as_ref().map_or(0, |rest| rest.iter().map(Buffer::len).sum());
        first + rest - self.kept as usize
    }

    /// Bytes of its buffers, filled or not.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let rest = self.rest.iter().flat_map(|rest| rest.iter());
        self.first.iter().chain(rest).map(Buffer::capacity).sum()
    }

    /// Keeps from now on what is sent, until it no longer fits or `forget` is called.
    pub(crate) fn keep(&mut self) {
        debug_assert!(self.first.is_none(), "keeping begins with an empty outbox");
        self.is_keeping = true;
        self.is_untouched = true;
    }

    /// Goes on keeping whatever comes, until `forget` is called: who calls this bounds it.
    pub(crate) const fn keep_all(&mut self) {
        self.keeps_all = self.is_keeping;
    }

    /// Whether it keeps beyond its first buffer.
    pub(crate) const fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    /// Whether everything since `keep` is still here.
    pub(crate) const fn is_keeping(&self) -> bool {
        self.is_keeping
    }

    /// Whether nothing was sent since `keep`.
    pub(crate) const fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// Stops keeping and gives back what was kept.
    pub(crate) fn forget(&mut self, buffers: &mut Buffers) {
        self.is_keeping = false;
        self.keeps_all = false;
        self.is_untouched = false;
        let kept = std::mem::take(&mut self.kept) as usize;
        if kept > 0 || self.first.as_ref().is_some_and(Buffer::is_empty) {
            self.drop_front(kept, buffers);
        }
    }

    /// Keeps beyond its first buffer no longer. What is there beyond it ends the keeping.
    pub(crate) fn keep_less(&mut self, buffers: &mut Buffers) {
        self.keeps_all = false;
        if self.rest.is_some() {
            self.stop_keeping(buffers);
        }
    }

    /// Stops keeping; what waits since the beginning is as untouched as before.
    pub(crate) fn stop_keeping(&mut self, buffers: &mut Buffers) {
        let is_untouched = self.is_untouched;
        self.forget(buffers);
        self.is_untouched = is_untouched;
    }

    /// Sets what [`Outbox::is_untouched`] says, for an outbox that was saved.
    pub(crate) const fn restore_untouched(&mut self, is_untouched: bool) {
        self.is_untouched = is_untouched;
    }

    /// Makes what was kept wait to be sent once more.
    pub(crate) fn rewind(&mut self) {
        debug_assert!(self.is_keeping || self.is_untouched, "only what is here is sent again");
        self.kept = 0;
    }

    /// The bytes of its first buffer, sent ones included while they are kept.
    pub(crate) fn first_mut(&mut self) -> Option<&mut [u8]> {
        self.first.as_mut().map(Buffer::filled_mut)
    }

    /// Replaces the first place that `find` sees in one of its buffers. Nothing of it was sent.
    pub(crate) fn replace(
        &mut self,
        mut find: impl FnMut(&[u8]) -> Option<Range<usize>>,
        with: &[u8],
        buffers: &mut Buffers,
    ) {
        debug_assert_eq!(self.kept, 0, "nothing of it was sent");
        let rest = self.rest.iter_mut().flat_map(|rest| rest.iter_mut());
        for buffer in self.first.iter_mut().chain(rest) {
            if let Some(range) = find(buffer.filled()) {
                return buffers.splice(buffer, range, with);
            }
        }
    }

    /// Room for a head of up to `bytes`, to be written whole by the closure into one buffer.
    pub(crate) fn push_with(
        &mut self,
        bytes: usize,
        buffers: &mut Buffers,
        write: impl FnOnce(&mut Buffer),
    ) {
        let room = self.room(bytes, buffers);
        write(room);
        if room.is_empty() {
            // Nothing was written after all, and nothing is owned for it.
            self.drop_last(buffers);
        }
    }

    /// Appends `data`.
    pub(crate) fn push(&mut self, mut data: &[u8], buffers: &mut Buffers) {
        while !data.is_empty() {
            let room = match self.last_mut() {
                Some(last) if last.spare_len() > 0 => last,
                _ => self.room(data.len().min(BUFFER_BYTES_MAX), buffers),
            };
            let taken = room.try_push_some(data);
            data = data.get(taken..).unwrap_or_default();
        }
    }

    /// Appends `header`, with room behind it for up to `bytes` more where one buffer can hold both.
    pub(crate) fn push_together(&mut self, header: &[u8], bytes: usize, buffers: &mut Buffers) {
        let whole = (header.len() + bytes).min(BUFFER_BYTES_MAX);
        self.push_with(whole, buffers, |buffer| buffer.push(header));
    }

    /// Moves the first `n` waiting bytes of `other` behind what waits here.
    pub(crate) fn take_from(&mut self, other: &mut Self, n: usize, buffers: &mut Buffers) {
        let mut left = n;
        while left > 0 {
            let waiting = other.waiting().next().expect("so many bytes wait there");
            let piece = waiting.get(..left).unwrap_or(waiting);
            let (next, count) = (piece, piece.len());
            self.push(next, buffers);
            other.on_sent(count, buffers);
            left -= count;
        }
    }

    /// Takes as many bytes from the front as `out` has room for. So many are there.
    pub(crate) fn take_exact(&mut self, out: &mut [u8], buffers: &mut Buffers) {
        let mut filled = 0;
        while let Some(room) = out.get_mut(filled..).filter(|room| !room.is_empty()) {
            let waiting = self.waiting().next().expect("so many bytes wait there");
            let count = waiting.len().min(room.len());
            for (place, octet) in room.iter_mut().zip(waiting) {
                *place = *octet;
            }
            self.on_sent(count, buffers);
            filled += count;
        }
    }

    /// Fills `slices` with what waits, in order; returns how many were filled.
    #[inline]
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        if self.rest.is_some() {
            return self.many_slices(slices);
        }
        let first = self.first.as_ref().map_or(&[][..], Buffer::filled);
        let bytes = first.get(self.kept as usize..).unwrap_or_default();
        slices[0] = IoSlice::new(bytes);
        usize::from(!bytes.is_empty())
    }

    // Apart, so that what the common message takes is short.
    #[inline(never)]
    fn many_slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        self.waiting().zip(slices).map(|(bytes, slice)| *slice = IoSlice::new(bytes)).count()
    }

    /// Everything that waits, kept bytes apart, in one piece.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.waiting().flatten().copied().collect()
    }

    /// How many bytes were sent and are kept.
    pub(crate) const fn kept(&self) -> u32 {
        self.kept
    }

    /// Everything that is here, kept bytes first.
    pub(crate) fn all_to_vec(&self) -> Vec<u8> {
        self.buffers().flatten().copied().collect()
    }

    /// The bytes of its buffers, one after the other.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &[u8]> {
        let rest = self.rest.iter().flat_map(|rest| rest.iter());
        self.first.iter().chain(rest).map(Buffer::filled)
    }

    /// What waits, piece by piece; none is empty.
    fn waiting(&self) -> impl Iterator<Item = &[u8]> {
        let mut kept = self.kept as usize;
        self.buffers().filter_map(move |bytes| {
            let skipped = kept.min(bytes.len());
            kept -= skipped;
            bytes.get(skipped..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// The first `n` waiting bytes were sent.
    pub(crate) fn on_sent(&mut self, n: usize, buffers: &mut Buffers) {
        self.is_untouched &= n == 0;
        if self.is_keeping {
            let kept = u32::try_from(n).expect("one send takes less than 4 GiB");
            self.kept += kept;
            debug_assert!(
                self.buffers().map(<[u8]>::len).sum::<usize>() >= self.kept as usize,
                "no more is sent than waited"
            );
        } else {
            self.drop_front(n, buffers);
        }
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self, buffers: &mut Buffers) {
        self.is_keeping = false;
        self.keeps_all = false;
        self.kept = 0;
        if let Some(first) = self.first.take() {
            buffers.give_back(first);
        }
        for buffer in self.rest.take().into_iter().flat_map(|rest| *rest) {
            buffers.give_back(buffer);
        }
    }

    fn drop_front(&mut self, mut n: usize, buffers: &mut Buffers) {
        while let Some(first) = &mut self.first {
            let taken = n.min(first.len());
            first.consume(taken);
            n -= taken;
            if !first.is_empty() {
                break;
            }
            let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
            if let Some(done) = std::mem::replace(&mut self.first, next) {
                buffers.give_back(done);
            }
            if self.rest.as_ref().is_some_and(|rest| rest.is_empty()) {
                self.rest = None;
            }
        }
        debug_assert_eq!(n, 0, "no more is sent than waited");
    }

    fn drop_last(&mut self, buffers: &mut Buffers) {
        let last = match &mut self.rest {
            Some(rest) => rest.pop_back(),
            None => self.first.take(),
        };
        if let Some(last) = last {
            buffers.give_back(last);
        }
        if self.rest.as_ref().is_some_and(|rest| rest.is_empty()) {
            self.rest = None;
        }
    }

    fn last_mut(&mut self) -> Option<&mut Buffer> {
        match &mut self.rest {
            Some(rest) => rest.back_mut(),
            None => self.first.as_mut(),
        }
    }

    /// The last buffer if it has room for `bytes` in one piece, else a new one behind it.
    fn room(&mut self, bytes: usize, buffers: &mut Buffers) -> &mut Buffer {
        if self.last_mut().is_none_or(|last| last.spare_len() < bytes) {
            let buffer = buffers.lease(bytes);
            self.append(buffer, buffers);
        }
        self.last_mut().expect("appended above")
    }

    fn append(&mut self, buffer: Buffer, buffers: &mut Buffers) {
        if self.first.is_some() && self.is_keeping && !self.keeps_all {
            self.stop_keeping(buffers);
        }
        if self.first.is_none() {
            self.first = Some(buffer);
        } else {
            self.rest.get_or_insert_default().push_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(outbox: &Outbox) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = outbox.slices(&mut slices);
        slices[..count].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn bytes_come_out_in_order_whatever_the_pieces_sent() {
        let data: Vec<u8> =
            (0..200_000u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        for step in [1_000, 4_096, 65_535, 65_536, 150_000] {
            let (mut outbox, mut buffers) = (Outbox::default(), Buffers::default());
            for piece in data.chunks(777) {
                outbox.push(piece, &mut buffers);
            }
            let mut sent = Vec::new();
            while !outbox.is_empty() {
                let piece = waiting(&outbox);
                let n = piece.len().min(step);
                sent.extend_from_slice(&piece[..n]);
                outbox.on_sent(n, &mut buffers);
            }
            assert!(sent == data, "step {step}");
            assert_eq!(buffers.usage().leased, 0);
        }
    }

    #[test]
    fn what_was_not_written_owns_nothing() {
        let (mut outbox, mut buffers) = (Outbox::default(), Buffers::default());
        outbox.push_with(100, &mut buffers, |_| ());
        assert_eq!(buffers.usage().leased, 0);
        outbox.push(b"first", &mut buffers);
        outbox.push_with(10_000, &mut buffers, |_| ());
        assert_eq!((outbox.len(), buffers.usage().leased), (5, 1));
        outbox.push(b" and more", &mut buffers);
        assert_eq!(waiting(&outbox), b"first and more");
    }

    #[test]
    fn what_was_kept_is_sent_again() {
        let (mut outbox, mut buffers) = (Outbox::default(), Buffers::default());
        outbox.keep();
        outbox.push(b"GET / HTTP/1.1\r\n\r\n", &mut buffers);
        outbox.on_sent(4, &mut buffers);
        assert_eq!(waiting(&outbox), b"/ HTTP/1.1\r\n\r\n");
        outbox.on_sent(14, &mut buffers);
        assert!(outbox.is_empty());
        outbox.rewind();
        assert_eq!(waiting(&outbox), b"GET / HTTP/1.1\r\n\r\n");
        outbox.on_sent(18, &mut buffers);
        outbox.forget(&mut buffers);
        assert_eq!(buffers.usage().leased, 0);
    }

    #[test]
    fn all_is_kept_where_that_is_asked_for() {
        let data: Vec<u8> = (0..150_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let (mut outbox, mut buffers) = (Outbox::default(), Buffers::default());
        outbox.keep();
        outbox.keep_all();
        for piece in data.chunks(7_000) {
            outbox.push(piece, &mut buffers);
            let n = outbox.len().min(5_000);
            outbox.on_sent(n, &mut buffers);
        }
        assert!(outbox.is_keeping());
        assert_eq!(outbox.len() + outbox.kept() as usize, data.len());
        assert_eq!(outbox.to_vec(), data[outbox.kept() as usize..]);
        outbox.on_sent(outbox.len(), &mut buffers);
        assert!(outbox.is_empty());
        outbox.rewind();
        let mut moved = Outbox::default();
        moved.take_from(&mut outbox, 100_000, &mut buffers);
        assert_eq!(moved.to_vec(), data[..100_000]);
        assert_eq!(waiting(&outbox)[..10], data[100_000..100_010]);
        assert_eq!(outbox.all_to_vec(), data);
        outbox.forget(&mut buffers);
        assert_eq!(outbox.to_vec(), data[100_000..]);
        outbox.on_sent(50_000, &mut buffers);
        moved.clear(&mut buffers);
        assert_eq!(buffers.usage().leased, 0);
    }

    #[test]
    fn keeping_ends_when_a_second_buffer_is_needed_and_no_byte_is_lost() {
        let (mut outbox, mut buffers) = (Outbox::default(), Buffers::default());
        outbox.keep();
        outbox.push(b"begin", &mut buffers);
        outbox.on_sent(3, &mut buffers);
        let big = vec![b'x'; 3_000];
        outbox.push(&big, &mut buffers);
        assert!(!outbox.is_keeping());
        let mut expected = b"in".to_vec();
        expected.extend_from_slice(&big);
        assert_eq!(waiting(&outbox), expected);
        outbox.on_sent(expected.len(), &mut buffers);
        assert_eq!(buffers.usage().leased, 0);
    }
}
