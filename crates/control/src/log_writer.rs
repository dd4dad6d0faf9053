//! Writes the access log, on a thread of its own because a disk or a pipe may block.
//!
//! The thread takes what workers hand on every [`PACE`], formats it and writes it in one piece.
//! While a write blocks, the workers' queues fill; then workers drop lines and count them. The
//! same thread keeps the list of slow requests, which comes by the same queues.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use config::snapshot::{AccessLog, AccessLogFormat, AccessLogOutput};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use telemetry::{LogFormat, LogReader, Names};
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::names::names_of;
use crate::reload::Accepted;

/// Between two looks at the queues. At full speed a worker fills its queue in twice this time.
const PACE: Duration = Duration::from_millis(20);

/// Bytes formatted before they are written.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Commands that wait while a write blocks.
const COMMANDS_MAX: usize = 64;

/// Notices that wait for control.
const NOTICES_MAX: usize = 16;

/// How long the end waits for a write that blocks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where lines go, opened.
#[derive(Debug)]
pub struct LogOutput {
    sink: Sink,
    format: LogFormat,
}

#[derive(Debug)]
enum Sink {
    Stdout(io::Stdout),
    File(File, Arc<Path>),
}

impl LogOutput {
    /// Opens what the configuration names, relative to `folder`; none if it names nothing.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for appending, or is a pipe that nobody reads.
    pub fn open(access_log: &AccessLog, folder: &Path) -> Result<Option<Self>, OpenError> {
        let format = match access_log.format {
            AccessLogFormat::Json => LogFormat::Json,
            AccessLogFormat::Text => LogFormat::Text,
        };
        let sink = match &access_log.output {
            None => return Ok(None),
            Some(AccessLogOutput::Stdout) => Sink::Stdout(io::stdout()),
            Some(AccessLogOutput::File(path)) => {
                let path = Arc::from(folder.join(path));
                Sink::File(open(&path)?, path)
            }
        };
        Ok(Some(Self { sink, format }))
    }
}

/// The access log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("access log {path}: cannot be opened for appending: {source}", path = path.display())]
pub struct OpenError {
    path: Arc<Path>,
    source: io::Error,
}

/// Never waits for a pipe to be read by somebody: control opens the file, too.
fn open(path: &Arc<Path>) -> Result<File, OpenError> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let opened =
        OpenOptions::new().append(true).create(true).custom_flags(without_waiting).open(path);
    let waiting = opened.and_then(|file| {
        // Writes may wait: they are the thread's, and what does not fit into a pipe is not lost yet.
        fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
        Ok(file)
    });
    waiting.map_err(|error| {
        let is_pipe = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        let source = if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && is_pipe() {
            io::Error::other("nobody reads this pipe; start its reader first")
        } else {
            error
        };
        OpenError { path: Arc::clone(path), source }
    })
}

/// What the thread tells control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinesLost(pub(crate) u64);

enum Command {
    Names(Arc<Names>, oneshot::Sender<()>),
    Output(Option<LogOutput>),
    Reopen,
    Slow { as_text: bool, reply: oneshot::Sender<Vec<u8>> },
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
        reader.set_names(names_of(&first.snapshot));
        reader.set_format(output.as_ref().map(|output| output.format));
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let (notices, lost) = mpsc::channel(NOTICES_MAX);
        let writing = Writing {
            reader,
            output,
            lines: Vec::with_capacity(CHUNK_BYTES_MAX),
            is_torn: false,
            is_failing: false,
            unreported: 0,
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

    /// Sends the slow requests to `reply`, as text or JSON. Nothing comes while a write blocks.
    pub(crate) fn write_slow(&self, as_text: bool, reply: oneshot::Sender<Vec<u8>>) {
        self.send(Command::Slow { as_text, reply });
    }

    /// Writes what is left and ends the thread; gives up on a write that blocks for too long.
    pub(crate) async fn close(mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.send(Command::Stop);
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
            tracing::warn!("the access log's output blocks: a command to its writer is lost");
        }
    }
}

/// The thread's own.
struct Writing {
    reader: LogReader,
    output: Option<LogOutput>,
    lines: Vec<u8>,
    /// Whether the last line that was written lacks its end.
    is_torn: bool,
    /// Whether the last write failed: a failure is told once, and its end too.
    is_failing: bool,
    unreported: u64,
    notices: mpsc::Sender<LinesLost>,
}

impl Writing {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            match commands.recv_timeout(PACE) {
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break self.take_all(),
                Ok(command) => self.on_command(command),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.take_all();
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Names(names, done) => {
                self.reader.set_names(names);
                // Nobody waits any more if it took too long.
                let _ = done.send(());
            }
            Command::Output(output) => {
                self.take_all();
                self.reader.set_format(output.as_ref().map(|output| output.format));
                (self.output, self.is_torn, self.is_failing) = (output, false, false);
            }
            Command::Reopen => {
                self.take_all();
                self.reopen();
            }
            Command::Slow { as_text, reply } => {
                self.take_all();
                let mut out = Vec::new();
                if as_text {
                    self.reader.write_slow_text(&mut out);
                } else {
                    self.reader.write_slow_json(&mut out);
                }
                let _ = reply.send(out);
            }
            Command::Stop => {}
        }
    }

    fn reopen(&mut self) {
        let Some(LogOutput { sink: Sink::File(file, path), .. }) = &mut self.output else { return };
        match open(path) {
            Ok(new) => {
                (*file, self.is_torn, self.is_failing) = (new, false, false);
                tracing::info!(path = %path.display(), "access log opened again");
            }
            Err(error) => tracing::error!("{error}; the former file is written on"),
        }
    }

    /// Writes all that workers have handed on by now.
    fn take_all(&mut self) {
        loop {
            let polled = self.reader.poll(clock::monotonic_ns(), &mut self.lines, CHUNK_BYTES_MAX);
            if let Err(error) = self.write() {
                self.unreported += polled.lines;
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!("access log: lines are lost: {error}");
                }
            } else if polled.lines > 0 && std::mem::replace(&mut self.is_failing, false) {
                tracing::info!("access log: lines are written again");
            }
            self.lines.clear();
            if !polled.has_more {
                break;
            }
        }
        if self.unreported > 0 && self.notices.try_send(LinesLost(self.unreported)).is_ok() {
            self.unreported = 0;
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(output) = self.output.as_mut().filter(|_| !self.lines.is_empty()) else {
            return Ok(());
        };
        let sink: &mut dyn Write = match &mut output.sink {
            Sink::Stdout(stdout) => stdout,
            Sink::File(file, _) => file,
        };
        if self.is_torn {
            write_whole(sink, b"\n", &mut self.is_torn)?;
        }
        write_whole(sink, &self.lines, &mut self.is_torn)?;
        sink.flush()
    }
}

/// Writes `bytes`, which end with a line, and keeps `is_torn` true to what was written.
fn write_whole(sink: &mut dyn Write, bytes: &[u8], is_torn: &mut bool) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match sink.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                let (written, left) = rest.split_at_checked(n).unwrap_or((rest, &[]));
                *is_torn = written.last() != Some(&b'\n');
                rest = left;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `room` bytes, then fails.
    struct Disk {
        room: usize,
        holds: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room - self.holds.len());
            self.holds.extend_from_slice(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_is_opened_only_if_it_is_read_and_then_writes_to_it_wait() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let name = format!("strait-log-{}.fifo", std::process::id());
        let path: Arc<Path> = std::env::temp_dir().join(name).into();
        mknodat(CWD, &*path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("nobody reads this pipe"), "{error}");
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path)
            .unwrap();
        let writer = open(&path).unwrap();
        assert!(!fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK));
        drop(reader);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_line_cut_off_by_a_full_disk_is_known_to_be_torn() {
        for (room, torn) in [(0, false), (1, true), (3, false), (5, true)] {
            let mut disk = Disk { room, holds: Vec::new() };
            let mut is_torn = false;
            assert!(write_whole(&mut disk, b"ab\ncd\n", &mut is_torn).is_err());
            assert_eq!(is_torn, torn, "{room}");
        }
        let mut disk = Disk { room: 6, holds: Vec::new() };
        let mut is_torn = true;
        write_whole(&mut disk, b"ab\ncd\n", &mut is_torn).unwrap();
        assert!(!is_torn);
        assert_eq!(disk.holds, b"ab\ncd\n");
    }
}
