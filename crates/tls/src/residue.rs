//! What calls have left on the stacks of a thread.
//!
//! A secret that is moved leaves a copy where it was, and a call that has returned leaves its frame: neither is wiped by
//! dropping the secret. The next calls as deep overwrite them in part, and carry the remainder into memory of their own, where
//! a value that is moved has room that is not used. So a handshake is overwritten where it ends, and a thread once it has given
//! its connections away.

use std::hint::black_box;

use crate::handshake::coroutine;

/// Bytes below its end that a handshake touches: 32 KiB and some more. Overwriting them takes a microsecond.
const HANDSHAKE_BYTES: usize = 48 << 10;

/// Bytes below a worker's turn.
const TURN_BYTES: usize = 128 << 10;

/// Overwrites what calls of this thread have left below the caller, and lets go of stacks that handshakes had for
/// themselves and need no more. Takes some microseconds, and makes the thread's stack as large as that.
pub fn wipe_stacks() {
    coroutine::release_stacks();
    overwrite::<TURN_BYTES>();
}

/// Overwrites what a handshake has left below the caller.
pub(crate) fn overwrite_handshake() {
    overwrite::<HANDSHAKE_BYTES>();
}

#[inline(never)]
fn overwrite<const BYTES: usize>() {
    let mut area = [0u8; BYTES];
    // Or the compiler would know that nothing reads it.
    black_box(&mut area);
}
