//! The command that asked for an upgrade, as the running process sees it. It may read slowly, be stopped or be gone: the
//! handover does not wait for it.

use std::process::Child;

use ::handover::Message;
use io::packets::ProcessHandle;

use super::line::{KILL_TIMEOUT, Line, now};
use super::spawn;

/// Between two signs that the running process is at it, ns.
const ALIVE_INTERVAL: u64 = 5_000_000_000;

/// How long the outcome may wait for room, ns.
const OUTCOME_TIMEOUT: u64 = 2_000_000_000;

/// Bytes of lines in one frame, about.
const LINES_BYTES: usize = 16 * 1024;

/// Frames that may wait for room.
const FRAMES_MAX: usize = 4096;

/// The command that asked for an upgrade, and the process that was started for it, if one was.
pub(super) struct Requester {
    line: Line,
    pub(super) child: Option<Child>,
    alive_at: u64,
    frames: usize,
}

/// What came of what the command asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// It is done.
    Done,
    /// It is not, and this process continues.
    Continues,
    /// It is not, and this process is ending.
    Ends,
}

impl Requester {
    pub(super) fn new(line: Line, child: Option<Child>) -> Self {
        Self { line, child, alive_at: now().saturating_add(ALIVE_INTERVAL), frames: 0 }
    }

    /// Sends lines to print, as soon as there is room.
    pub(super) fn report(&mut self, lines: impl IntoIterator<Item = String>) {
        let mut text = String::new();
        for line in lines {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&line);
            if text.len() >= LINES_BYTES {
                self.queue(Message::Progress { text: std::mem::take(&mut text) });
            }
        }
        if !text.is_empty() {
            self.queue(Message::Progress { text });
        }
    }

    fn queue(&mut self, message: Message) {
        // A line more is of no use to a command that has read none of so many.
        self.frames = if self.line.is_full() { self.frames + 1 } else { 0 };
        if self.frames < FRAMES_MAX {
            self.line.queue(message.encode());
        }
    }

    /// Sends what waits and has room, and now and then a sign that this process is at it. Does not wait.
    pub(super) fn look(&mut self) {
        self.line.flush();
        let at = now();
        if at >= self.alive_at {
            self.alive_at = at.saturating_add(ALIVE_INTERVAL);
            if !self.line.is_full() {
                self.line.queue(Message::Alive.encode());
            }
        }
    }

    /// Whether frames wait for room.
    pub(super) fn is_full(&self) -> bool {
        self.line.is_full()
    }

    /// Sends the outcome, and waits a moment for room. Returns the process that was started.
    pub(super) fn conclude(mut self, conclusion: Conclusion, text: String) -> Option<Child> {
        if conclusion == Conclusion::Ends {
            self.line.queue(Message::Ends { reason: text.clone() }.encode());
        }
        let is_done = conclusion == Conclusion::Done;
        self.line.queue(Message::Outcome { is_done, text }.encode());
        let until = now().saturating_add(OUTCOME_TIMEOUT);
        while self.line.is_full() && now() < until {
            // Its end empties the queue. It says nothing more.
            drop(self.line.receive(Some(until)));
        }
        self.child
    }

    /// The same, and waits for the end of a process that is not the next one.
    pub(super) fn finish(self, conclusion: Conclusion, text: String) {
        end(self.conclude(conclusion, text));
    }
}

/// Waits for the end of a process that did not become the next one: it has a moment to say why, and is killed then, since
/// one that stands still would do so for ever.
fn end(child: Option<Child>) {
    let Some(mut child) = child else { return };
    spawn("strait-reap", move || {
        let process = ProcessHandle::open(child.id());
        if !process.and_then(|process| process.wait(KILL_TIMEOUT)).unwrap_or(true) {
            // It was started by this process, which therefore may end it.
            let _ = child.kill();
        }
        drop(child.wait());
    });
}

/// Waits for the end of a process that is not the next one, which may take a while: one that ended and is not waited for
/// stays in the process table.
pub(super) fn reap(child: Option<Child>) {
    let Some(mut child) = child else { return };
    spawn("strait-reap", move || drop(child.wait()));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use io::packets::{Packets, Received};

    use super::*;

    #[test]
    fn a_command_that_does_not_read_costs_one_moment_and_one_that_reads_gets_every_line() {
        let (ours, theirs) = Packets::pair().expect("a pair");
        let mut requester = Requester::new(Line::new(ours).expect("a line"), None);
        let began = now();
        for _ in 0..2000 {
            requester.report(["a line of many: ".repeat(10)]);
        }
        requester.look();
        assert!(requester.is_full());
        assert!(now() - began < 1_000_000_000, "nothing waits");
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 100_000];
            let (mut lines, mut outcome) = (0, None);
            while let Ok(received) = theirs.receive(&mut buffer, Duration::from_secs(5)) {
                let Received::Packet(length, _) = received else { break };
                match Message::decode(&buffer[..length]) {
                    Ok(Some(Message::Progress { .. })) => lines += 1,
                    Ok(Some(Message::Outcome { text, .. })) => outcome = Some(text),
                    _ => {}
                }
            }
            (lines, outcome)
        });
        assert!(requester.conclude(Conclusion::Done, "done".to_owned()).is_none());
        assert_eq!(reader.join().expect("it ends"), (2000, Some("done".to_owned())));

        let (ours, unread) = Packets::pair().expect("a pair");
        let mut requester = Requester::new(Line::new(ours).expect("a line"), None);
        requester.report((0..50_000).map(|number| format!("line {number}: {}", "x".repeat(100))));
        let began = now();
        drop(requester.conclude(Conclusion::Done, "done".to_owned()));
        assert!((OUTCOME_TIMEOUT..2 * OUTCOME_TIMEOUT).contains(&(now() - began)));
        drop(unread);
    }
}
