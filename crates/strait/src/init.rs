//! Process 1 of a container stays once another process has taken its place, because the container ends with it.
//!
//! A process that process 1 stays for stays, too, if process 1 would take its end for that of the service: it looks for the next one
//! among its children, and a process of another container never is one of these. To process 1, of whatever version, such a process
//! looks like one that serves.

use std::ffi::{CString, OsString};

use crate::logging;

/// The argument by which a process begins anew that stays.
pub(crate) const INIT: &str = "--stay-as-init-for";

/// The argument by which process 1 knows a successor among the orphans that it adopts.
const TAKES_OVER: &str = "--take-over";

/// The environment variable by which process 1 lets all its successors know that it stays for them: some may end before it has begun
/// anew.
pub(crate) const HAS_INIT: &str = "STRAIT_HAS_INIT";

/// Whether this process is the first of its container.
pub(crate) fn is_init() -> bool {
    std::process::id() == 1
}

/// Stays if the container would end otherwise, now that the process with this id has taken this one's place; 0 for one that has no id
/// here. One that `was_to_end` ends at once where that has none.
pub(crate) fn stay_if_needed(
    successor: u32,
    was_to_end: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) {
    if is_init() {
        tracing::info!(
            successor,
            "this process is the first of its container: it stays to pass signals on"
        );
        stay(successor, was_to_end, &[]);
    } else if has_init(variable) && !::io::init::is_known_to_init(successor) {
        tracing::info!(
            successor,
            "the process that serves runs elsewhere: this one stays, so that its container does"
        );
        stay(successor, was_to_end, &[TAKES_OVER]);
    }
}

/// Whether process 1 is Strait and stays for its successors. One that was started by another program does not have the variable, and
/// neither has one whose process 1 is of an earlier version.
fn has_init(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let has_begun_anew = || ::io::init::argument_of_init().is_some_and(|it| it == INIT.as_bytes());
    variable(HAS_INIT).is_some() || has_begun_anew()
}

fn stay(successor: u32, was_to_end: bool, more: &[&str]) -> ! {
    logging::finish(None);
    let successor_text = successor.to_string();
    let arguments = ["strait", INIT, &successor_text].into_iter().chain(more.iter().copied());
    let arguments: Result<Vec<_>, _> = arguments.map(CString::new).collect();
    if let Ok(arguments) = arguments {
        let error = ::io::init::become_init(&arguments, was_to_end);
        tracing::error!("the process cannot restart itself, and stays as it is: {error}");
    }
    let status = ::io::init::be_init(successor);
    #[expect(clippy::exit, reason = "with the successor's status")]
    std::process::exit(status.into());
}
