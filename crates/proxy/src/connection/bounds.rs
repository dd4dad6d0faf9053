//! How much may wait on a connection.

/// Bytes that may wait for a peer of HTTP/2 before nothing more is read from it: what it asks for,
/// and does not take, is bounded. Above what bodies fill, so that they alone never stop the reading.
pub(crate) const UNDELIVERED_BYTES_MAX: usize = 2 * OUTBOX_BYTES_MAX;

/// Bytes that may wait in an outbox before its source is no longer read. One read more may still
/// arrive, so that a connection's queue is bounded by twice this.
pub(crate) const OUTBOX_BYTES_MAX: usize = 64 << 10;
