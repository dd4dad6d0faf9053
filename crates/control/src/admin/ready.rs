//! `/ready`: whether the process serves, and with `?verbose` what is wrong beside, or with `?namespace` in which container it runs.

use std::fs;

use super::answer::Answer;
use super::pages::ReadyDetail;

/// Lines of the verbose page.
const LINES_MAX: usize = 100;

/// What the page says.
#[derive(Debug)]
pub(crate) struct Readiness {
    pub(crate) is_ready: bool,
    /// In a line: `ready`, or why not.
    pub(crate) reason: String,
    /// What else is to be known, a line each.
    pub(crate) lines: Vec<String>,
}

impl Readiness {
    /// The page.
    pub(crate) fn answer(self, detail: ReadyDetail) -> Answer {
        let Self { is_ready, reason, lines } = self;
        let mut text = format!("{reason}\n");
        if detail == ReadyDetail::Namespace
            && let Ok(namespace) = fs::read_link("/proc/self/ns/mnt")
        {
            text += &format!("mount namespace {}\n", namespace.display());
        }
        if detail == ReadyDetail::Troubles {
            let left_out = lines.len().saturating_sub(LINES_MAX);
            for line in lines.into_iter().take(LINES_MAX) {
                text += &format!("{line}\n");
            }
            if left_out > 0 {
                text += &format!("and {left_out} more lines; see /config\n");
            }
        }
        Answer::text(if is_ready { 200 } else { 503 }, text)
    }
}
