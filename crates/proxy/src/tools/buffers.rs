//! The worker's slab of byte buffers: leased while bytes are in flight, given back after.
//!
//! An idle connection owns none. Buffers come in four sizes; a lease takes the smallest that
//! holds what is asked for. What is given back is handed out again first, so that a busy worker
//! keeps writing to the same few cache lines. Buffers that were not needed for a while go back to
//! the allocator (`trim`), so that memory follows load in both directions.

use std::ops::Range;

use wire::buffer::Buffer;

/// Capacities to lease. The smallest holds the usual head, the largest what one read brings in.
const SIZES: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, BUFFER_BYTES_MAX];

/// The largest buffer there is.
pub(crate) const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Buffers of one size that are allocated at a time when none is free.
const CHUNK_BYTES: usize = 64 << 10;

/// Leases and what they cost, since the worker began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferUse {
    /// Leases out now.
    pub leased: u64,
    /// Leases served from a buffer that was used before.
    pub reused_total: u64,
    /// Buffers that had to be allocated.
    pub allocated_total: u64,
    /// Bytes held, leased or free.
    pub bytes: u64,
}

/// The slab.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: [Vec<Buffer>; SIZES.len()],
    /// The fewest free buffers since the last trim: that many were not needed.
    spare: [usize; SIZES.len()],
    usage: BufferUse,
    /// Bytes beyond which it has to be looked at what is held, if there is a bound.
    threshold_bytes: Option<u64>,
}

impl Buffers {
    /// Whether more is held, with `others` bytes beside buffers, than was set by [`Buffers::set_threshold`].
    #[inline]
    pub(crate) fn is_over_threshold(&self, others: u64) -> bool {
        self.threshold_bytes.is_some_and(|bytes| self.usage.bytes.saturating_add(others) > bytes)
    }

    /// Where `bytes` are to be held at most: sets the threshold an eighth of that beyond it, or beyond what is held now.
    pub(crate) fn set_threshold(&mut self, bytes: Option<u64>, others: u64) {
        let held = self.usage.bytes.saturating_add(others);
        self.threshold_bytes = bytes.map(|bytes| bytes.max(held).saturating_add(bytes / 8));
    }

    /// An empty buffer with room for at least `bytes`. One of more than [`BUFFER_BYTES_MAX`] is made
    /// for this lease alone.
    pub(crate) fn lease(&mut self, bytes: usize) -> Buffer {
        self.usage.leased += 1;
        let class = SIZES.iter().position(|size| *size >= bytes);
        let Some((class, free)) = class.and_then(|class| Some((class, self.free.get_mut(class)?)))
        else {
            self.usage.allocated_total += 1;
            self.usage.bytes += bytes as u64;
            return Buffer::new(bytes);
        };
        if free.is_empty() {
            let size = SIZES.get(class).copied().unwrap_or(BUFFER_BYTES_MAX);
            let count = (CHUNK_BYTES / size).max(1);
            free.extend((0..count).map(|_| Buffer::new(size)));
            self.usage.allocated_total += count as u64;
            self.usage.bytes += (count * size) as u64;
        } else {
            self.usage.reused_total += 1;
        }
        let buffer = free.pop().expect("filled above");
        if let Some(spare) = self.spare.get_mut(class) {
            *spare = (*spare).min(free.len());
        }
        buffer
    }

    /// A buffer that holds these bytes.
    pub(crate) fn lease_with(&mut self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.lease(bytes.len());
        buffer.push(bytes);
        buffer
    }

    /// A buffer with the same bytes and room for `more`.
    pub(crate) fn widen(&mut self, mut buffer: Buffer, more: usize) -> Buffer {
        if buffer.spare_len() >= more {
            return buffer;
        }
        buffer.compact();
        if buffer.spare_len() >= more {
            return buffer;
        }
        let mut wider = self.lease(buffer.len() + more);
        wider.push(buffer.filled());
        self.give_back(buffer);
        wider
    }

    /// Replaces some of what a buffer holds, which moves to another one if the length changes.
    pub(crate) fn splice(&mut self, buffer: &mut Buffer, range: Range<usize>, with: &[u8]) {
        let Some(old) = buffer.filled_mut().get_mut(range.clone()) else { return };
        if old.len() == with.len() {
            return old.copy_from_slice(with);
        }
        let mut new = self.lease(buffer.len() - range.len() + with.len());
        let (before, behind) =
            (buffer.filled().get(..range.start), buffer.filled().get(range.end..));
        new.push(before.unwrap_or_default());
        new.push(with);
        new.push(behind.unwrap_or_default());
        self.give_back(std::mem::replace(buffer, new));
    }

    /// Takes a leased buffer back; what it still holds is forgotten.
    pub(crate) fn give_back(&mut self, mut buffer: Buffer) {
        buffer.clear();
        self.usage.leased = self.usage.leased.saturating_sub(1);
        let class = SIZES.iter().position(|size| *size == buffer.capacity());
        match class.and_then(|class| self.free.get_mut(class)) {
            Some(free) => free.push(buffer),
            None => self.usage.bytes = self.usage.bytes.saturating_sub(buffer.capacity() as u64),
        }
    }

    /// Gives the allocator what has not been needed since the last call.
    pub(crate) fn trim(&mut self) {
        for ((free, spare), size) in self.free.iter_mut().zip(&mut self.spare).zip(SIZES) {
            let gone = (*spare).min(free.len());
            free.truncate(free.len() - gone);
            if free.is_empty() {
                free.shrink_to_fit();
            }
            self.usage.bytes = self.usage.bytes.saturating_sub((gone * size) as u64);
            *spare = free.len();
        }
    }

    /// Gives the allocator all that is not leased.
    pub(crate) fn release_free(&mut self) {
        self.spare = self.free.each_ref().map(Vec::len);
        self.trim();
    }

    /// Bytes of the leases.
    pub(crate) fn leased_bytes(&self) -> u64 {
        let free = self.free.iter().zip(SIZES).map(|(free, size)| (free.len() * size) as u64);
        self.usage.bytes.saturating_sub(free.sum())
    }

    /// Leases and what they cost.
    pub(crate) const fn usage(&self) -> BufferUse {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_leased_again_empty() {
        let mut buffers = Buffers::default();
        let mut first = buffers.lease(10);
        first.push(b"secret of another peer");
        buffers.give_back(first);
        let allocated = buffers.usage().allocated_total;
        let second = buffers.lease(1024);
        assert!(second.is_empty());
        assert_eq!(buffers.usage().allocated_total, allocated);
        assert_eq!(buffers.usage().leased, 1);
    }

    #[test]
    fn a_lease_is_as_large_as_asked_for() {
        let mut buffers = Buffers::default();
        for bytes in [0, 1, 1024, 1025, 4096, 4097, 16_384, 16_385, BUFFER_BYTES_MAX] {
            assert!(buffers.lease(bytes).capacity() >= bytes, "{bytes}");
        }
        let large = buffers.lease(BUFFER_BYTES_MAX + 1);
        assert_eq!(large.capacity(), BUFFER_BYTES_MAX + 1);
        let held = buffers.usage().bytes;
        buffers.give_back(large);
        let given_back = held - buffers.usage().bytes;
        assert_eq!(given_back, BUFFER_BYTES_MAX as u64 + 1, "a large one is not kept");
    }

    #[test]
    fn memory_returns_when_load_goes() {
        let mut buffers = Buffers::default();
        let leases: Vec<_> = (0..100).map(|_| buffers.lease(10_000)).collect();
        let peak = buffers.usage().bytes;
        leases.into_iter().for_each(|lease| buffers.give_back(lease));
        buffers.trim();
        assert_eq!(buffers.usage().bytes, peak, "all of it was needed since the last trim");
        buffers.trim();
        assert_eq!(buffers.usage().bytes, 0);
        let kept = buffers.lease(BUFFER_BYTES_MAX);
        let given_back = buffers.lease(1);
        buffers.give_back(given_back);
        assert_eq!(buffers.leased_bytes(), BUFFER_BYTES_MAX as u64);
        buffers.release_free();
        assert_eq!(
            buffers.usage().bytes,
            BUFFER_BYTES_MAX as u64,
            "at once, without what is leased"
        );
        buffers.give_back(kept);
    }
}
