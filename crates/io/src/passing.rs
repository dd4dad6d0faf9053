//! Signals that a process of Strait passes on to the one that serves. They carry a mark, so that a process that has been replaced
//! in its turn passes them on, too: what comes without the mark is for itself.
//!
//! The mark is the value of `sigqueue`: it gives no rights, and a process of an earlier version takes the signal as any other.
//!
//! A handler notes what has come ([`note`]), until it is taken ([`take`]): what nothing took is known when a process begins anew. It
//! is one of several for a signal: `signal-hook-registry` calls that of `tokio`, too, and calls first what was registered first.
//!
//! Invariants of the unsafe calls: the handler uses atomics alone; the kernel reads a value and no memory.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook_registry::register_sigaction;

/// What a signal carries that was passed on: `stra`.
const MARK: usize = 0x7374_7261;

/// The kernel's flag of a process that is ending (`PF_EXITING`).
const IS_EXITING: u64 = 4;

/// The signals that are noted, a bit for each number.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// Those that have come, a bit for each number.
static ARRIVED: AtomicU64 = AtomicU64::new(0);

/// Those of these with the mark.
static MARKED: AtomicU64 = AtomicU64::new(0);

/// Notes these signals from now on, by their numbers (1 to 63). To be called before anything else takes them; they do not have their
/// default actions any more.
///
/// # Errors
///
/// The kernel's, for a signal that cannot be handled.
pub fn note(signals: &[i32]) -> io::Result<()> {
    for signal in signals {
        let bit = bit(*signal);
        if NOTED.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            continue;
        }
        let handler = move |info: &libc::siginfo_t| {
            let has_value = info.si_code == libc::SI_QUEUE;
            // SAFETY: what comes by `sigqueue` has a value, which is read as a number.
            if has_value && unsafe { info.si_value() }.sival_ptr.addr() == MARK {
                MARKED.fetch_or(bit, Ordering::SeqCst);
            }
            ARRIVED.fetch_or(bit, Ordering::SeqCst);
        };
        // SAFETY: the handler does nothing that a signal may not interrupt.
        unsafe { register_sigaction(*signal, handler) }?;
    }
    Ok(())
}

/// Whether a signal has come and was not taken.
#[must_use]
pub fn has_come(signal: i32) -> bool {
    ARRIVED.load(Ordering::SeqCst) & bit(signal) != 0
}

/// Takes a signal that has come; none that was taken before, or is not noted. Whether it was passed on by another process of
/// Strait.
#[must_use]
pub fn take(signal: i32) -> Option<bool> {
    let has_come = ARRIVED.fetch_and(!bit(signal), Ordering::SeqCst) & bit(signal) != 0;
    let is_marked = MARKED.fetch_and(!bit(signal), Ordering::SeqCst) & bit(signal) != 0;
    has_come.then_some(is_marked)
}

/// Takes what has come and was not taken.
pub(crate) fn take_all() -> impl Iterator<Item = i32> {
    let arrived = ARRIVED.swap(0, Ordering::SeqCst);
    (1..64).filter(move |signal| arrived & bit(*signal) != 0)
}

/// Passes a signal on to the process with this id. Whether it has got it; one that is ending has not.
#[must_use]
pub fn pass_on(process: u32, signal: i32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let (Some(pid), Some(named)) = (pid, Signal::from_named_raw(signal)) else { return false };
    let mark = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(MARK) };
    // SAFETY: see the module's text.
    let is_sent = unsafe { libc::sigqueue(pid.as_raw_pid(), signal, mark) } == 0;
    // A sandbox may know the plain call alone.
    (is_sent || kill_process(pid, named).is_ok()) && !is_ending(pid)
}

/// Whether a process has begun to end, so that no signal reaches it; false without `/proc`.
fn is_ending(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let stat = stat.unwrap_or_default();
    // Behind the name: the state, five numbers, and the flags.
    let behind = stat.rsplit_once(") ").map(|(_, behind)| behind).unwrap_or_default();
    let flags = behind.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok());
    behind.starts_with(['Z', 'X']) || flags.is_some_and(|flags| flags & IS_EXITING != 0)
}

const fn bit(signal: i32) -> u64 {
    if signal > 0 && signal < 64 { 1 << signal } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_passed_on_has_a_mark_and_one_that_is_sent_has_none() {
        let signal = libc::SIGUSR2;
        note(&[signal]).unwrap();
        let arrives = || {
            while !has_come(signal) {
                std::thread::yield_now();
            }
        };
        for _ in 0..3 {
            assert!(pass_on(std::process::id(), signal));
            arrives();
            assert_eq!((take(signal), take(signal)), (Some(true), None));
            kill_process(rustix::process::getpid(), Signal::USR2).unwrap();
            arrives();
            assert_eq!((take(signal), take(signal)), (Some(false), None));
        }
        kill_process(rustix::process::getpid(), Signal::USR2).unwrap();
        arrives();
        assert_eq!(take_all().collect::<Vec<_>>(), [signal]);
        assert_eq!(take_all().count(), 0);
    }

    #[test]
    fn a_process_that_has_ended_gets_no_signal() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        while !is_ending(pid) {
            std::thread::yield_now();
        }
        assert!(!pass_on(child.id(), libc::SIGTERM));
        child.wait().unwrap();
        assert!(!pass_on(child.id(), libc::SIGTERM));
        assert!(!pass_on(0, libc::SIGTERM));
    }
}
