//! Makes the access log's lines, on a thread of its own.
//!
//! The thread takes what workers hand on every [`PACE`], formats it and hands it to the thread of
//! its output, which may block. Once nothing has come for a while, it sleeps until a worker hands something on. This thread never does: control's commands reach it
//! within [`PACE`], but for one that waits at most [`TAKEN_BEFORE_NAMES_NS`].
//! While an output takes nothing, records stay in the workers' queues for a moment, since it may
//! only be slow; after that lines are lost and counted. The same thread keeps the list of slow
//! requests, and warns of requests that fail, which come by the same queues.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use telemetry::{FailureWarning, LogReader, Names};
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::log_output::{LogOutput, OutputThread};
use crate::reload::Accepted;

/// Between two looks at the queues. At full speed a worker fills its queue in twice this time.
const PACE: Duration = Duration::from_millis(20);

/// Looks that find nothing before the thread sleeps.
const IDLE_LOOKS: u32 = 10;

/// How long it sleeps at most, for what follows from time alone, and for the record that came just when it fell asleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// How long records of the former names may wait for the output before these change. Control waits meanwhile.
const TAKEN_BEFORE_NAMES_NS: u64 = 100_000_000;

/// Bytes formatted before they are written.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Commands that wait for the thread, which takes them within [`PACE`].
const COMMANDS_MAX: usize = 64;

/// Notices that wait for control.
const NOTICES_MAX: usize = 16;

/// How long the end waits for a write that blocks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Replaced outputs that still block, each with a thread and a descriptor. An operator may try
/// several; beyond this, lines go nowhere until one of them is read.
const ABANDONED_MAX: usize = 8;

/// What the thread reports to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinesLost(pub(crate) u64);

/// How slow requests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowForm {
    Json,
    /// For the process that takes this one's place.
    Saved,
    /// For people.
    Text,
}

enum Command {
    Names(Arc<Names>, oneshot::Sender<()>),
    Output(Option<LogOutput>),
    Reopen,
    Follow,
    Slow { form: SlowForm, reply: oneshot::Sender<Vec<u8>> },
    AdoptSlow(Vec<u8>),
    Stop,
}

/// Control's end of the thread.
#[derive(Debug)]
pub struct LogWriter {
    commands: SyncSender<Command>,
    thread: Option<JoinHandle<()>>,
    pub(crate) lost: mpsc::Receiver<LinesLost>,
}

impl LogWriter {
    /// Starts the thread, which reads what `reader`'s workers hand on and writes it to where `first`
    /// says.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub fn start<F>(mut reader: LogReader, first: &mut Accepted<F>) -> io::Result<Self> {
        let output = first.log_output.take();
        reader.set_names(Arc::clone(&first.names));
        reader.set_style(output.as_ref().map(|output| output.style().clone()));
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let (notices, lost) = mpsc::channel(NOTICES_MAX);
        let lost_lines: Arc<AtomicU64> = Arc::default();
        let output = output.map(|output| OutputThread::start(output, &lost_lines)).transpose()?;
        let writing = Writing {
            reader,
            output,
            abandoned: Vec::new(),
            discarded: Vec::new(),
            is_stalled: false,
            lost: lost_lines,
            notices,
        };
        let thread = std::thread::Builder::new()
            .name("strait-log".to_owned())
            .spawn(move || writing.run(&received))?;
        Ok(Self { commands, thread: Some(thread), lost })
    }

    /// Gives the thread the names of a snapshot that workers do not have yet, and waits until it
    /// has them, unless a write blocks.
    pub(crate) async fn set_names(&self, names: Arc<Names>) {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Names(names, done));
        // Late names leave a few lines without them, which is better than a late snapshot.
        let _ = tokio::time::timeout(Duration::from_millis(500), is_done).await;
    }

    /// Where lines go from now on.
    pub(crate) fn set_output(&self, output: Option<LogOutput>) {
        self.send(Command::Output(output));
    }

    /// Opens the file again, after it was renamed.
    pub(crate) fn reopen(&self) {
        self.send(Command::Reopen);
    }

    /// Opens the file again if its path names another one by now. For a process that was replaced, because the program that
    /// rotates the file signals only the one that serves.
    pub(crate) fn follow(&self) {
        self.send(Command::Follow);
    }

    /// Sends the slow requests to `reply`. Nothing comes while a write blocks.
    pub(crate) fn write_slow(&self, form: SlowForm, reply: oneshot::Sender<Vec<u8>>) {
        self.send(Command::Slow { form, reply });
    }

    /// Goes on with the slow requests of another process.
    pub(crate) fn adopt_slow(&self, saved: Vec<u8>) {
        self.send(Command::AdoptSlow(saved));
    }

    /// Writes what is left and ends the thread; gives up on a write that blocks for too long.
    pub(crate) async fn close(mut self) {
        self.send(Command::Stop);
        let Some(thread) = self.thread.take() else { return };
        // The last notice's sender goes with the thread.
        let ended = async { while self.lost.recv().await.is_some() {} };
        if tokio::time::timeout(CLOSE_TIMEOUT, ended).await.is_ok() {
            let _ = thread.join();
        } else {
            tracing::warn!("the access log's output blocks: its last lines are lost");
        }
    }

    fn send(&self, command: Command) {
        if self.commands.try_send(command).is_err() {
            tracing::warn!("the access log's writer does not answer: a command to it is lost");
        }
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// The thread's own.
struct Writing {
    reader: LogReader,
    output: Option<OutputThread>,
    /// Outputs that blocked when they were replaced.
    abandoned: Vec<JoinHandle<()>>,
    /// Holds lines that no output takes, until they are counted.
    discarded: Vec<u8>,
    /// Whether lines are lost because the output blocks: it is logged once, and its end too.
    is_stalled: bool,
    /// Lines lost since the last notice.
    lost: Arc<AtomicU64>,
    notices: mpsc::Sender<LinesLost>,
}

impl Writing {
    fn run(mut self, commands: &Receiver<Command>) {
        let mut idle_looks = 0;
        loop {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break self.close(),
                Ok(command) => {
                    self.on_command(command);
                    continue;
                }
                Err(TryRecvError::Empty) => {}
            }
            let taken = self.reader.records_taken();
            self.take_all();
            self.warn_of_failures();
            self.log_debug_lines();
            let is_idle = self.reader.records_taken() == taken;
            idle_looks = if is_idle { idle_looks + 1 } else { 0 };
            // An output that takes nothing leaves records where they are.
            let is_waiting = self.is_stalled || !self.reader.is_empty();
            if idle_looks < IDLE_LOOKS || is_waiting || self.reader.has_debug_lines() {
                park_timeout(PACE);
            } else {
                idle_looks = IDLE_LOOKS;
                self.reader.park(SLEEP_MAX);
            }
        }
    }

    /// Logs what workers say of connections, at `--log-level debug`.
    fn log_debug_lines(&mut self) {
        while let Some((worker, line)) = self.reader.take_debug_line() {
            tracing::debug!(worker, "{line}");
        }
    }

    /// Says that requests fail, also where no access log is written.
    fn warn_of_failures(&mut self) {
        for warning in self.reader.take_warnings(clock::monotonic_ns()) {
            let FailureWarning { of, cause, failed, detail, endpoint } = warning;
            let of = of.to_string();
            tracing::warn!(of, cause, failed, detail, endpoint, "requests fail");
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Names(names, done) => {
                self.take_until(clock::monotonic_ns() + TAKEN_BEFORE_NAMES_NS);
                self.reader.set_names(names);
                // The caller has left if it took too long.
                let _ = done.send(());
            }
            Command::Output(output) => {
                // What happened before the change is written as before.
                self.take_all();
                self.set_output(output);
            }
            Command::Reopen => {
                self.take_all();
                self.reopen();
            }
            Command::Follow => {
                if self.output.as_ref().is_some_and(OutputThread::is_replaced) {
                    self.take_all();
                    self.reopen();
                }
            }
            Command::Slow { form, reply } => {
                self.take_all();
                let mut out = Vec::new();
                match form {
                    SlowForm::Json => self.reader.write_slow_json(&mut out),
                    SlowForm::Saved => out = self.reader.save_slow(),
                    SlowForm::Text => self.reader.write_slow_text(&mut out),
                }
                let _ = reply.send(out);
            }
            Command::AdoptSlow(saved) => {
                // The clock has to be known.
                self.take_all();
                self.reader.adopt_slow(&saved);
            }
            Command::Stop => {}
        }
    }

    fn reopen(&mut self) {
        let Some(output) = &self.output else { return };
        let Some(path) = output.path().map(Arc::clone) else { return };
        match LogOutput::reopen(output.style().clone(), &path) {
            Ok(opened) => {
                self.set_output(Some(opened));
                tracing::info!(path = %path.display(), "access log opened again");
            }
            Err(error) => tracing::error!("{error}; still writing to the previous file"),
        }
    }

    fn set_output(&mut self, output: Option<LogOutput>) {
        self.reader.set_style(output.as_ref().map(|output| output.style().clone()));
        if let (Some(former), Some(output)) = (&mut self.output, &output)
            && former.takes_over(output)
        {
            return;
        }
        if let Some(former) = self.output.take()
            && let Err(thread) = former.retire()
        {
            self.abandoned.push(thread);
        }
        self.is_stalled = false;
        self.abandoned.retain(|thread| !thread.is_finished());
        let Some(output) = output else { return };
        let started = if self.abandoned.len() > ABANDONED_MAX {
            Err(io::Error::other("too many previous outputs block"))
        } else {
            OutputThread::start(output, &self.lost)
        };
        match started {
            Ok(output) => self.output = Some(output),
            Err(error) => {
                tracing::error!("access log: lines are lost until the next reload: {error}");
            }
        }
    }

    /// Takes all that workers have handed on by now. Returns false if the output has no room for the rest.
    fn take_all(&mut self) -> bool {
        let is_taken = loop {
            let now = clock::monotonic_ns();
            let buffer = self.output.as_mut().and_then(|output| output.buffer(now));
            let is_full = self.output.is_some() && buffer.is_none();
            if is_full && !self.output.as_ref().is_some_and(|output| output.is_stalled(now)) {
                break false;
            }
            self.note_stall(is_full);
            if !self.take(buffer) {
                break true;
            }
        };
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 && self.notices.try_send(LinesLost(lost)).is_err() {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
        is_taken
    }

    /// Takes all records before names change, since a slot may be another rule's afterwards. Waits for an output without room; at the
    /// deadline, what is left gets the new names.
    fn take_until(&mut self, deadline: u64) {
        while !self.take_all() && clock::monotonic_ns() < deadline {
            park_timeout(Duration::from_millis(1));
        }
    }

    /// Takes a chunk into `buffer`; without one its lines are lost. Whether there is more.
    fn take(&mut self, mut buffer: Option<Vec<u8>>) -> bool {
        let into = buffer.as_mut().unwrap_or(&mut self.discarded);
        let polled = self.reader.poll(clock::monotonic_ns(), into, CHUNK_BYTES_MAX);
        let is_taken = match (buffer, &mut self.output) {
            (Some(text), Some(output)) => output.write(text, polled.lines),
            _ => false,
        };
        if !is_taken {
            self.lost.fetch_add(polled.lines, Ordering::Relaxed);
        }
        self.discarded.clear();
        polled.has_more
    }

    fn note_stall(&mut self, is_stalled: bool) {
        match (std::mem::replace(&mut self.is_stalled, is_stalled), is_stalled) {
            (false, true) => tracing::error!("access log: lines are lost: its output blocks"),
            (true, false) => tracing::info!("access log: writing resumed"),
            _ => {}
        }
    }

    /// Writes what is left, however long that takes: control waits only as long as it wants to.
    fn close(mut self) {
        let Some(mut output) = self.output.take() else { return };
        loop {
            let Some(mut text) = output.wait_for_buffer() else { return };
            let polled = self.reader.poll(clock::monotonic_ns(), &mut text, CHUNK_BYTES_MAX);
            output.write(text, polled.lines);
            if !polled.has_more {
                break output.close();
            }
        }
    }
}
