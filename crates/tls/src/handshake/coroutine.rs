//! Calls that stop in the middle, on a separate stack, and continue later.
//!
//! rustls asks for a signature by a call that cannot return without one. So rustls is called on
//! another stack, which is left when the signature is wanted and entered again when it is there.
//! This module has no scheduler and no thread, and does not choose what runs next.
//!
//! # Stacks
//!
//! One has 128 KiB of addresses and a guard page below them. Handshakes touch up to 32 KiB of it,
//! measured with every group and kind of key in a build for tests. The rest takes no memory; it is
//! there because the libraries below may change. Each thread keeps up to 32 stacks that are not in
//! use, so that making one is rare, and gives out no more than 256 at a time: as many handshakes
//! can wait for a signer that takes 100 ms while 2,500 come each second. A handshake that gets no
//! stack signs without waiting.
//!
//! # Unwinding
//!
//! A stack that is not needed any more is not unwound, which would be impossible where a panic ends
//! the process. Its call is entered once more with no signature, and returns in the usual way.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::signing::{SignError, SignJob, Signature};

/// Bytes of a stack.
const STACK_BYTES: usize = 128 << 10;

/// Stacks of a thread that may be in use at a time.
const STACKS_IN_USE_MAX: usize = 256;

/// Stacks of a thread that are kept for later.
const STACKS_IDLE_MAX: usize = 32;

/// What a waiting call is resumed with: `None` when it begins, and when there will be no signature.
type Answer = Option<Result<Signature, SignError>>;

type Inner<T> = Coroutine<Answer, SignJob, T, DefaultStack>;

/// A call that waits. Dropping it lets the call end.
pub(super) struct Waiting<T: 'static> {
    /// There but while it is dropped.
    inner: Option<Inner<T>>,
    lease: Option<Lease>,
}

/// How far a call came.
pub(super) enum Step<T: 'static> {
    /// The call has returned.
    Done(T),
    /// The call waits for this job.
    Waits(Waiting<T>, SignJob),
}

/// Makes a call on a separate stack, or gives it back if no stack is free.
pub(super) fn call<T: 'static, F: FnOnce() -> T + 'static>(body: F) -> Result<Step<T>, F> {
    let Some((stack, lease)) = Lease::new() else { return Err(body) };
    let inner = Inner::with_stack(stack, move |yielder, _begin| {
        let _inside = Inside::new(yielder);
        body()
    });
    Ok(step(inner, lease, None))
}

/// Leaves the stack until there is an answer. Where the caller is on no such stack, the job is given
/// back.
pub(crate) fn suspend(job: SignJob) -> Result<Result<Signature, SignError>, SignJob> {
    let Some(yielder) = YIELDER.take() else { return Err(job) };
    // SAFETY: it points to what `corosensei` lends the call on whose stack this is; see `YIELDER`.
    #[expect(unsafe_code, reason = "the way out of a call cannot be handed down through rustls")]
    let answer = unsafe { yielder.as_ref() }.suspend(job);
    YIELDER.set(Some(yielder));
    Ok(answer.unwrap_or(Err(SignError::Cancelled)))
}

thread_local! {
    /// The way out of the call that runs on a stack of its own on this thread, and nothing at any
    /// other time.
    ///
    /// It is set where the call begins, in a frame that the yielder outlives, and is not set any
    /// more when that frame ends, however it does ([`Inside`]). It is not set either while the call
    /// is left ([`suspend`]), so that code on another stack never finds it. A call never goes on on
    /// another thread, because `Coroutine` is not `Send`.
    static YIELDER: Cell<Option<NonNull<Yielder<Answer, SignJob>>>> = const { Cell::new(None) };

    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks { idle: Vec::new(), in_use: 0 }) };
}

/// The frame in which the way out is known.
struct Inside;

/// The stacks of a thread.
struct Stacks {
    idle: Vec<DefaultStack>,
    in_use: usize,
}

/// One of those that may be in use.
struct Lease;

fn step<T>(mut inner: Inner<T>, lease: Lease, answer: Answer) -> Step<T> {
    match inner.resume(answer) {
        CoroutineResult::Return(value) => {
            lease.give_back(inner.into_stack());
            Step::Done(value)
        }
        CoroutineResult::Yield(job) => {
            Step::Waits(Waiting { inner: Some(inner), lease: Some(lease) }, job)
        }
    }
}

impl<T> Waiting<T> {
    /// Goes on.
    pub(super) fn resume(mut self, result: Result<Signature, SignError>) -> Step<T> {
        let (inner, lease) = self.take().expect("it is not being dropped");
        step(inner, lease, Some(result))
    }

    fn take(&mut self) -> Option<(Inner<T>, Lease)> {
        self.inner.take().zip(self.lease.take())
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some((mut inner, lease)) = self.take() else { return };
        // The call may ask for another signature, which it does not get either.
        while let CoroutineResult::Yield(_) = inner.resume(None) {}
        lease.give_back(inner.into_stack());
    }
}

impl Inside {
    fn new(yielder: &Yielder<Answer, SignJob>) -> Self {
        YIELDER.set(Some(NonNull::from(yielder)));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        YIELDER.set(None);
    }
}

/// Lets go of the stacks of this thread that are not in use, with all that calls have left there.
pub(crate) fn release_stacks() {
    STACKS.with_borrow_mut(|stacks| stacks.idle.clear());
}

impl Lease {
    fn new() -> Option<(DefaultStack, Self)> {
        STACKS.with_borrow_mut(|stacks| {
            if stacks.in_use >= STACKS_IN_USE_MAX {
                return None;
            }
            let stack = match stacks.idle.pop() {
                Some(stack) => stack,
                None => DefaultStack::new(STACK_BYTES).ok()?,
            };
            stacks.in_use += 1;
            Some((stack, Self))
        })
    }

    fn give_back(self, stack: DefaultStack) {
        // Where the thread ends, there are no others to keep it with.
        let _ended = STACKS.try_with(|stacks| {
            let idle = &mut stacks.borrow_mut().idle;
            if idle.len() < STACKS_IDLE_MAX {
                idle.push(stack);
            }
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ended = STACKS.try_with(|stacks| stacks.borrow_mut().in_use -= 1);
    }
}
