//! What is left of a process that was the first of its PID namespace, as of a container, once another has taken its place: if it
//! ended, the kernel would end all others. It passes signals on, waits for orphans, and ends as its successor ends.
//!
//! A successor that is replaced ends, too. The next one is found among the orphans that process 1 adopts; where it is none
//! ([`is_known_to_init`]), the one that is replaced has to stay in the same way, or the container would end with it.
//!
//! It is the same program, begun anew ([`become_init`]), so that nothing of what it had takes memory. Signals are blocked from
//! before that on, and taken by `sigtimedwait`: none is lost between the two, and none has a handler.
//!
//! Invariants of the unsafe calls: the kernel and the C library read and write live values of this module's own, and the strings
//! that `execv` reads end in a null byte and outlive the call.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use crate::passing;

/// How often a process is looked for that is no child, and so leaves no status.
const LOOK_SECONDS: libc::time_t = 1;

/// What is passed on: the signals that Strait has a meaning for. Any other would end the process that serves, or stop it, where it does
/// nothing to process 1.
const PASSED_ON: [i32; 5] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGUSR1];

/// What the shell adds to a signal's number for a status.
const SIGNAL_STATUS: i32 = 128;

/// Begins the running program anew with these arguments, in this process, with all signals blocked, and with those that have come and
/// that nothing took; also with SIGTERM if the process `was_to_end`. Returns only if that fails.
pub fn become_init(arguments: &[CString], was_to_end: bool) -> io::Error {
    block_signals();
    for signal in was_to_end.then_some(libc::SIGTERM).into_iter().chain(passing::take_all()) {
        // SAFETY: the signal is blocked: it waits for this thread, which begins anew.
        unsafe { libc::raise(signal) };
    }
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|it| it.as_ptr()).collect();
    pointers.push(ptr::null());
    // The file may have been replaced or removed.
    let program = c"/proc/self/exe";
    // SAFETY: see the module's text; the list of pointers ends with a null pointer.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}

fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it writes the whole set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: it was written.
    unsafe { set.assume_init() }
}

fn block_signals() {
    let all = all_signals();
    // SAFETY: see the module's text; the former mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut()) };
}

/// The next signal, within a moment.
fn next_signal() -> Option<i32> {
    let all = all_signals();
    let moment = libc::timespec { tv_sec: LOOK_SECONDS, tv_nsec: 0 };
    // SAFETY: see the module's text; what else is known of the signal is not asked for.
    let number = unsafe { libc::sigtimedwait(&raw const all, ptr::null_mut(), &raw const moment) };
    (number > 0).then_some(number)
}

/// Stays for the process with this id, to that one's end or that of those which take its place; 0 for one that has
/// no id here: then it waits for a signal to end. Returns the status to end with.
#[must_use]
pub fn be_init(successor: u32) -> u8 {
    block_signals();
    let_files_go();
    let mut successor = i32::try_from(successor).ok().and_then(Pid::from_raw);
    // Signals that came as the successor ended, which are for the next one.
    let mut kept = BTreeSet::new();
    loop {
        let mut ended_with = None;
        while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
            if Some(ended) == successor {
                ended_with = Some(status_of(status));
            }
        }
        if ended_with.is_some() || successor.is_some_and(is_gone) {
            let Some(next) = adopted() else { return ended_with.unwrap_or(0) };
            successor = Some(next);
            kept.retain(|number| !passes_on(next, *number));
        }
        match (next_signal(), successor) {
            (Some(libc::SIGCHLD) | None, _) => {}
            (Some(libc::SIGTERM | libc::SIGINT | libc::SIGQUIT), None) => return 0,
            (Some(number), Some(process)) if PASSED_ON.contains(&number) => {
                if !passes_on(process, number) {
                    kept.insert(number);
                }
            }
            (Some(_), _) => {}
        }
    }
}

fn passes_on(process: Pid, number: i32) -> bool {
    passing::pass_on(process.as_raw_pid().unsigned_abs(), number)
}

/// Lets go what was mapped of files to start: code, and what only the dynamic linker reads. It is read again where it is needed.
fn let_files_go() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (range, access, offset) = (fields.next(), fields.next(), fields.next());
        let is_file = fields.nth(2).is_some_and(|path| path.starts_with('/'));
        // What was relocated is readable, too, but does not stand at the beginning of its file.
        let is_unwritten =
            access == Some("r-xp") || access == Some("r--p") && offset == Some("00000000");
        let place = |text: Option<&str>| usize::from_str_radix(text?, 16).ok();
        let mut ends = range.unwrap_or_default().split('-');
        if let (true, true, Some(begin), Some(end)) =
            (is_file, is_unwritten, place(ends.next()), place(ends.next()))
        {
            let length = end.saturating_sub(begin);
            let begin = ptr::with_exposed_provenance_mut(begin);
            // SAFETY: it is a private mapping of a file that was never written to: it reads the same afterwards.
            unsafe { libc::madvise(begin, length, libc::MADV_DONTNEED) };
        }
    }
}

fn is_gone(process: Pid) -> bool {
    rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

fn status_of(status: WaitStatus) -> u8 {
    let by_signal = || status.terminating_signal().map(|signal| SIGNAL_STATUS + signal);
    let status = status.exit_status().or_else(by_signal);
    status.and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX)
}

/// A process that has taken its parent's place: that one has ended, so that it is a child of this one now.
fn adopted() -> Option<Pid> {
    let own = std::process::id();
    let ids =
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found = ids.filter_map(|id| id.parse::<u32>().ok());
    let found = found.find(|id| parent_of(*id) == Some(own) && takes_over(*id))?;
    i32::try_from(found).ok().and_then(Pid::from_raw)
}

/// Whether process 1 knows that the process with this id serves once this one has ended: it is its child then, or process 1 itself,
/// to which this one gave back. Not one that has no id here (0).
#[must_use]
pub fn is_known_to_init(process: u32) -> bool {
    match process {
        0 => false,
        1 => true,
        _ => parent_of(process).is_some_and(|it| it == 1 || it == std::process::id()),
    }
}

/// What stands behind the program's name in the command line of process 1.
#[must_use]
pub fn argument_of_init() -> Option<Vec<u8>> {
    let line = fs::read("/proc/1/cmdline").ok()?;
    line.split(|byte| *byte == 0).nth(1).map(<[u8]>::to_vec)
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether a process was started to take another's place.
fn takes_over(id: u32) -> bool {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let mut arguments = line.split_inclusive(|byte| *byte == 0);
    arguments.any(|argument| {
        CStr::from_bytes_with_nul(argument)
            .is_ok_and(|argument| argument.to_bytes().starts_with(b"--take-over"))
    })
}
