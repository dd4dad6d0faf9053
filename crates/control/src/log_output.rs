//! Where access log lines go: the file or pipe, and the thread that writes to it.
//!
//! A disk or a pipe may block, and only this thread waits for it: chunks of lines come to it in
//! buffers of a bounded number, which it gives back once they are written. An output that is
//! replaced while it blocks is abandoned: its thread ends with the write that blocks, and what was
//! queued for it is lost and counted.
//!
//! During an upgrade two processes write to the same output. What a file is given at once is appended at once; of a pipe or
//! a socket that holds for [`ATOMIC_BYTES_MAX`] alone, so that whole lines of so many bytes are written to it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use config::snapshot::{
    AccessLog, AccessLogCondition, AccessLogField, AccessLogFormat, AccessLogOutput,
};
use rustix::fs::{FileType, OFlags, StatVfs, fcntl_getfl, fcntl_setfl, fstat, fstatvfs};
use rustix::io::Errno;
use rustix::process::geteuid;
use telemetry::{LogCondition, LogField, LogFormat, LogStyle};

use crate::files::is_starved;

/// Buffers of lines between the two threads: one is written while the others are filled.
const BUFFERS_MAX: usize = 4;

/// An output that takes no buffer for so long blocks (ns): lines are no longer kept for it.
const STALL: u64 = 1_000_000_000;

/// Bytes that are written to a pipe in one piece, also while other processes write to it: `PIPE_BUF` of Linux, pipe(7).
const ATOMIC_BYTES_MAX: usize = 4096;

/// How long a replaced output may take to write what is queued for it, before it is abandoned.
const RETIRE_TIMEOUT: Duration = Duration::from_millis(250);

/// Where lines go, opened.
#[derive(Debug)]
pub struct LogOutput {
    sink: Sink,
    style: LogStyle,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    Stderr,
    File(File, Arc<Path>),
}

/// What a sink writes to; the same file under another name is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Stdout,
    Stderr,
    File { device: u64, inode: u64 },
}

impl LogOutput {
    /// Opens what the configuration names, relative to `folder`; none if it names nothing.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for appending, or is a pipe without a reader.
    pub fn open(access_log: &AccessLog, folder: &Path) -> Result<Option<Self>, OpenError> {
        let style = style(access_log);
        let sink = match &access_log.output {
            None => return Ok(None),
            Some(AccessLogOutput::Stdout) => Sink::Stdout,
            Some(AccessLogOutput::Stderr) => Sink::Stderr,
            Some(AccessLogOutput::File(path)) => {
                let path = Arc::from(folder.join(path));
                Sink::File(open(&path)?, path)
            }
        };
        Ok(Some(Self { sink, style }))
    }

    /// How lines are written.
    pub(crate) const fn style(&self) -> &LogStyle {
        &self.style
    }

    /// The file opened anew, after it was renamed; none for standard output.
    pub(crate) fn reopen(style: LogStyle, path: &Arc<Path>) -> Result<Self, OpenError> {
        Ok(Self { sink: Sink::File(open(path)?, Arc::clone(path)), style })
    }

    /// Looks whether anything can be written. A process looks before it takes another's place: if it serves alone, requests matter more
    /// than lines.
    ///
    /// # Errors
    ///
    /// The file system of the file is full.
    pub(crate) fn check_room(&self) -> Result<(), OpenError> {
        let Sink::File(file, path) = &self.sink else { return Ok(()) };
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        if is_file && fstatvfs(file).is_ok_and(|system| is_full(&system, geteuid().is_root())) {
            let source = io::Error::other("its file system is full; free disk space");
            let what = "cannot be written";
            return Err(OpenError { path: Arc::clone(path), what, source });
        }
        Ok(())
    }

    /// Whether what is written at once is appended at once, however much it is.
    fn is_file(&self) -> bool {
        let is_file = |fd: BorrowedFd<'_>| {
            fstat(fd).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_file())
        };
        match &self.sink {
            Sink::Stdout => is_file(io::stdout().as_fd()),
            Sink::Stderr => is_file(io::stderr().as_fd()),
            Sink::File(file, _) => is_file(file.as_fd()),
        }
    }

    fn identity(&self) -> io::Result<Identity> {
        match &self.sink {
            Sink::Stdout => Ok(Identity::Stdout),
            Sink::Stderr => Ok(Identity::Stderr),
            Sink::File(file, _) => Ok(Identity::of(&file.metadata()?)),
        }
    }
}

/// Whether a file system has no room for this user. One without blocks does not count them.
const fn is_full(system: &StatVfs, is_root: bool) -> bool {
    let free = if is_root { system.f_bfree } else { system.f_bavail };
    system.f_blocks > 0 && free == 0
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self::File { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// How lines are written, of which exchanges.
fn style(access_log: &AccessLog) -> LogStyle {
    let format = match access_log.format {
        AccessLogFormat::Json => LogFormat::Json,
        AccessLogFormat::Text => LogFormat::Text,
        AccessLogFormat::Combined => LogFormat::Combined,
    };
    let captures = &access_log.captures;
    let requests = captures.request.len();
    let referer = captures.request.iter().position(|name| &**name == "referer");
    let style = LogStyle::all(format).with_captures(captures.digest, referer);
    let names = access_log.field_names().unwrap_or_default();
    let fields = access_log.fields.iter().flat_map(|fields| fields.iter()).zip(names);
    let fields = fields.map(|(field, name)| match field {
        AccessLogField::Named(name) => LogField::Named((*name).into()),
        AccessLogField::Request(place) => LogField::Captured { name: name.into(), place: *place },
        AccessLogField::Response(place) => {
            LogField::Captured { name: name.into(), place: requests + place }
        }
    });
    let fields: Vec<LogField> = fields.collect();
    let style = if fields.is_empty() { style } else { style.with_fields(&fields) };
    let conditions = |conditions: &[AccessLogCondition]| conditions.iter().map(condition).collect();
    style.with_conditions(conditions(&access_log.only), conditions(&access_log.except))
}

fn condition(condition: &AccessLogCondition) -> LogCondition {
    let AccessLogCondition { statuses, prefixes, slower_than, one_in } = condition;
    LogCondition {
        statuses: statuses.clone(),
        prefixes: prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect(),
        slower_than: slower_than.map(|bound| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)),
        one_in: *one_in,
    }
}

/// The access log cannot be opened, or has no room.
#[derive(Debug, thiserror::Error)]
#[error("access log {path}: {what}: {source}", path = path.display())]
pub struct OpenError {
    path: Arc<Path>,
    what: &'static str,
    source: io::Error,
}

impl OpenError {
    /// Whether it was for lack of descriptors.
    pub(crate) fn is_starved(&self) -> bool {
        is_starved(&self.source)
    }
}

/// Never waits for the reader of a pipe: control opens the file, too.
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
            io::Error::other("this pipe has no reader; start its reader first")
        } else {
            error
        };
        OpenError { path: Arc::clone(path), what: "cannot be opened for appending", source }
    })
}

/// Lines of whole requests, on their way to the output.
#[derive(Debug)]
struct Chunk {
    text: Vec<u8>,
    lines: u64,
}

/// The other thread's end of an output.
#[derive(Debug)]
pub(crate) struct OutputThread {
    chunks: SyncSender<Chunk>,
    emptied: Receiver<Vec<u8>>,
    /// Buffers that are not with the thread, and those that were never made.
    free: Vec<Vec<u8>>,
    /// Since when all buffers are with the thread.
    full_since: Option<u64>,
    is_abandoned: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    identity: Option<Identity>,
    path: Option<Arc<Path>>,
    style: LogStyle,
}

impl OutputThread {
    /// Starts a thread that writes to `output` and adds lines that it cannot write to `lost`.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(output: LogOutput, lost: &Arc<AtomicU64>) -> io::Result<Self> {
        let (chunks, received) = sync_channel(BUFFERS_MAX);
        let (give_back, emptied) = sync_channel(BUFFERS_MAX);
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let identity = output.identity().ok();
        let piece_max = if output.is_file() { usize::MAX } else { ATOMIC_BYTES_MAX };
        let style = output.style;
        let (sink, path): (Box<dyn Write + Send>, _) = match output.sink {
            Sink::Stdout => (Box::new(io::stdout()), None),
            Sink::Stderr => (Box::new(io::stderr()), None),
            Sink::File(file, path) => (Box::new(file), Some(path)),
        };
        let writing = Writing {
            sink,
            piece_max,
            is_torn: false,
            is_failing: false,
            is_abandoned: Arc::clone(&is_abandoned),
            lost: Arc::clone(lost),
        };
        let thread = std::thread::Builder::new()
            .name("strait-log-out".to_owned())
            .spawn(move || writing.run(&received, &give_back))?;
        let free = (0..BUFFERS_MAX).map(|_| Vec::new()).collect();
        let full_since = None;
        Ok(Self { chunks, emptied, free, full_since, is_abandoned, thread, identity, path, style })
    }

    /// How lines are written.
    pub(crate) const fn style(&self) -> &LogStyle {
        &self.style
    }

    /// The file's path; none for standard output.
    pub(crate) const fn path(&self) -> Option<&Arc<Path>> {
        self.path.as_ref()
    }

    /// Whether its path names another file by now, as after a rotation.
    pub(crate) fn is_replaced(&self) -> bool {
        let named = self.path.as_deref().and_then(|path| std::fs::metadata(path).ok());
        named.is_some_and(|named| Some(Identity::of(&named)) != self.identity)
    }

    /// Whether `output` writes to the same file or pipe. The thread then goes on, with another style if
    /// need be: one thread for each time that a blocked pipe is configured again would be one too many.
    pub(crate) fn takes_over(&mut self, output: &LogOutput) -> bool {
        let is_same = output.identity().is_ok_and(|identity| self.identity == Some(identity));
        if is_same {
            self.style = output.style.clone();
            if let Sink::File(_, path) = &output.sink {
                self.path = Some(Arc::clone(path));
            }
        }
        is_same
    }

    /// A buffer for lines, unless the thread has all of them. `now` is monotonic time, ns.
    pub(crate) fn buffer(&mut self, now: u64) -> Option<Vec<u8>> {
        self.free.extend(self.emptied.try_iter());
        let buffer = self.free.pop();
        if buffer.is_some() {
            self.full_since = None;
        } else {
            self.full_since.get_or_insert(now);
        }
        buffer
    }

    /// A buffer for lines, once there is one; none if the thread is gone.
    pub(crate) fn wait_for_buffer(&mut self) -> Option<Vec<u8>> {
        self.free.pop().or_else(|| self.emptied.recv().ok())
    }

    /// Whether the output has taken nothing for so long that lines are not kept for it.
    pub(crate) fn is_stalled(&self, now: u64) -> bool {
        self.full_since.is_some_and(|since| now.saturating_sub(since) >= STALL)
    }

    /// Hands `lines` lines in a buffer of this output on; false if they are lost.
    pub(crate) fn write(&mut self, text: Vec<u8>, lines: u64) -> bool {
        if text.is_empty() {
            self.free.push(text);
            return true;
        }
        // There are as many places as buffers, so that only the end of the thread refuses one.
        self.chunks.try_send(Chunk { text, lines }).is_ok()
    }

    /// Ends the thread once it has written what it has. Gives it back if it blocks for too long: it
    /// then loses what is queued, and ends with the write that blocks.
    pub(crate) fn retire(self) -> Result<(), JoinHandle<()>> {
        let Self { chunks, emptied, thread, is_abandoned, .. } = self;
        drop(chunks);
        loop {
            match emptied.recv_timeout(RETIRE_TIMEOUT) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = thread.join();
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {
                    is_abandoned.store(true, Ordering::Relaxed);
                    return Err(thread);
                }
            }
        }
    }

    /// Ends the thread once it has written what it has, however long that takes.
    pub(crate) fn close(self) {
        let Self { chunks, emptied, thread, .. } = self;
        drop(chunks);
        for _ in emptied {}
        let _ = thread.join();
    }
}

/// The thread's own.
struct Writing {
    sink: Box<dyn Write + Send>,
    /// Bytes of whole lines that are written at once.
    piece_max: usize,
    /// Whether the last line that was written lacks its end.
    is_torn: bool,
    /// Whether the last write failed: a failure is logged once, and its end too.
    is_failing: bool,
    is_abandoned: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Writing {
    fn run(mut self, chunks: &Receiver<Chunk>, give_back: &SyncSender<Vec<u8>>) {
        for Chunk { mut text, lines } in chunks {
            if self.is_abandoned.load(Ordering::Relaxed) {
                self.lost.fetch_add(lines, Ordering::Relaxed);
            } else {
                self.take(&text, lines);
            }
            text.clear();
            // It is refused if the output was replaced.
            let _ = give_back.send(text);
        }
    }

    fn take(&mut self, text: &[u8], lines: u64) {
        if let Err(error) = self.write(text) {
            self.lost.fetch_add(lines, Ordering::Relaxed);
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::error!("access log: lines are lost: {error}");
            }
        } else if std::mem::replace(&mut self.is_failing, false) {
            tracing::info!("access log: writing resumed");
        }
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.is_torn {
            write_whole(&mut *self.sink, b"\n", &mut self.is_torn)?;
        }
        for piece in (Pieces { rest: text, bytes_max: self.piece_max }) {
            write_whole(&mut *self.sink, piece, &mut self.is_torn)?;
            self.sink.flush()?;
        }
        Ok(())
    }
}

/// Lines as they are written: as many whole ones at once as fit, and one at least.
struct Pieces<'t> {
    rest: &'t [u8],
    bytes_max: usize,
}

impl<'t> Iterator for Pieces<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        let after = |newline: usize| newline + 1;
        let fitting = self.rest.get(..self.bytes_max);
        let last =
            fitting.map_or(Some(self.rest.len()), |it| it.iter().rposition(is_end).map(after));
        let first = || self.rest.iter().position(is_end).map(after);
        let end = last.or_else(first).unwrap_or(self.rest.len());
        let (piece, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!piece.is_empty()).then_some(piece)
    }
}

fn is_end(byte: &u8) -> bool {
    *byte == b'\n'
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
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn the_fields_of_the_configuration_are_those_that_lines_have() {
        assert!(config::access_log::FIELDS.into_iter().eq(telemetry::log_field_names()));
    }

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
        use rustix::fs::{CWD, Mode, mknodat};
        let name = format!("strait-log-{}.fifo", std::process::id());
        let path: Arc<Path> = std::env::temp_dir().join(name).into();
        mknodat(CWD, &*path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("this pipe has no reader"), "{error}");
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
    fn a_piece_has_as_many_whole_lines_as_fit_and_one_at_least() {
        let pieces = |bytes_max, text: &'static str| {
            let pieces = Pieces { rest: text.as_bytes(), bytes_max };
            pieces.map(|piece| str::from_utf8(piece).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(pieces(6, "ab\ncd\nef\n"), ["ab\ncd\n", "ef\n"]);
        assert_eq!(pieces(5, "ab\ncd\nef\n"), ["ab\n", "cd\n", "ef\n"]);
        assert_eq!(pieces(3, "a\nabcdefg\nb\n"), ["a\n", "abcdefg\n", "b\n"]);
        assert_eq!(pieces(usize::MAX, "ab\ncd\n"), ["ab\ncd\n"]);
        assert!(pieces(6, "").is_empty());
    }

    #[test]
    fn two_writers_of_a_pipe_do_not_mix_their_lines() {
        let (mut reader, writer) = io::pipe().unwrap();
        let writers = ["a", "b"].map(|letter| {
            let sink = OwnedFd::from(writer.try_clone().unwrap());
            std::thread::spawn(move || {
                let sink = Sink::File(sink.into(), Path::new("pipe").into());
                let style = LogStyle::all(LogFormat::Text);
                let lost = Arc::new(AtomicU64::new(0));
                let mut output = OutputThread::start(LogOutput { sink, style }, &lost).unwrap();
                for length in 1..1_000 {
                    let mut text = output.wait_for_buffer().unwrap();
                    let line = letter.repeat(length % 97 + 1);
                    (0..1_000).for_each(|_| text.extend_from_slice(format!("{line}\n").as_bytes()));
                    assert!(output.write(text, 1_000));
                }
                output.close();
            })
        });
        drop(writer);
        let mut lines = 0;
        for line in io::BufRead::lines(io::BufReader::new(&mut reader)) {
            let line = line.unwrap();
            let first = line.get(..1).unwrap().to_owned();
            assert_eq!(line, first.repeat(line.len()), "mixed");
            lines += 1;
        }
        assert_eq!(lines, 2 * 999 * 1_000);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
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
