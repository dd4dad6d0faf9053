//! Reads the text of a configuration, within its bound.
//!
//! It may come through a pipe: standard input, what a shell puts in the place of `<(command)`, or a pipe in the file system. The latter
//! may have no writer at all, and is waited for within a bound.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use config::snapshot::HandoverOptions;
use config::{FILE_BYTES_MAX, HandoverReader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;

use super::Refused;
use crate::files::{Files, explained, open_regular};

/// How many seconds a pipe in the file system may be silent.
const SILENCE_SECONDS_MAX: i64 = 5;

/// The options of handovers in the file at `path`, whatever is wrong with other sections.
///
/// # Errors
///
/// What is wrong with them, or if the file cannot be read.
pub fn handover_options(reader: &HandoverReader, path: &Path) -> Result<HandoverOptions, Refused> {
    let text = text_of(path, read(path))?;
    let name = path.display().to_string();
    reader.read(&name, &text, &Files::beside(path)).map_err(Refused::Invalid)
}

/// The text of a configuration file.
///
/// # Errors
///
/// [`Refused::Unreadable`].
pub fn read_text(path: &Path) -> Result<String, Refused> {
    text_of(path, read(path))
}

pub(super) fn text_of(path: &Path, content: io::Result<Vec<u8>>) -> Result<String, Refused> {
    let text = content.and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| {
            let good = error.as_bytes().get(..error.utf8_error().valid_up_to());
            let line = 1 + good.unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count();
            io::Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
        })
    });
    text.map_err(|error| Refused::Unreadable(path.to_owned(), explained(error, path)))
}

/// As [`read`], while the process runs, and nothing but a regular file.
pub(super) fn read_again(path: &Path) -> io::Result<Vec<u8>> {
    let (file, found) = open_regular(path, &std::fs::metadata(path)?)?;
    check_length(found.len())?;
    read_all(file)
}

pub(super) fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// What a file holds, or a pipe.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    check_length(found.len())?;
    // Who started the process decides what its descriptors are, and when they end.
    let is_descriptor = ["/dev/fd", "/dev/stdin", "/proc"].iter().any(|it| path.starts_with(it));
    match found.file_type() {
        kind if kind.is_fifo() && !is_descriptor => read_all(Pipe::open(path)?),
        kind if kind.is_file() || kind.is_dir() || is_descriptor => read_all(File::open(path)?),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn read_all(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    check_length(content.len() as u64)?;
    Ok(content)
}

/// A pipe in the file system, which is read as its writers write, and fails once they are silent for too long.
struct Pipe(File);

impl Pipe {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let pipe = Self(OpenOptions::new().read(true).custom_flags(flags).open(path)?);
        // Without a writer, it reads as if it had ended.
        pipe.wait()?;
        Ok(pipe)
    }

    fn wait(&self) -> io::Result<()> {
        let timeout = Timespec { tv_sec: SILENCE_SECONDS_MAX, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        match retry_on_intr(|| poll(&mut polled, Some(&timeout)))? {
            0 => {
                let text = format!(
                    "not a regular file, but a pipe to which nothing was written for {SILENCE_SECONDS_MAX} s"
                );
                Err(io::Error::new(ErrorKind::TimedOut, text))
            }
            _ => Ok(()),
        }
    }
}

impl io::Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                read => return read,
            }
        }
    }
}

fn check_length(length: u64) -> io::Result<()> {
    if length > FILE_BYTES_MAX as u64 {
        return Err(io::Error::other(format!("larger than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_pipe_is_read_as_long_as_something_is_written_to_it() {
        let scratch = Scratch::new("text-pipe");
        let pipe = scratch.0.join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let text = "a".repeat(100_000);
        let (path, written) = (pipe.clone(), text.clone());
        let writer = std::thread::spawn(move || std::fs::write(path, written).unwrap());
        assert_eq!(read_text(&pipe).unwrap(), text);
        writer.join().unwrap();
        // Without a writer.
        let error = read_text(&pipe).unwrap_err().to_string();
        assert!(error.ends_with("a pipe to which nothing was written for 5 s"), "{error}");
        // One that only has it open.
        let _held = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let error = read_text(&pipe).unwrap_err().to_string();
        assert!(error.contains("cannot be read: not a regular file, but a pipe"), "{error}");
    }

    #[test]
    fn a_link_to_nothing_is_named() {
        let scratch = Scratch::new("text-link");
        let path = scratch.0.join("strait.yaml");
        std::os::unix::fs::symlink("..data/strait.yaml", &path).unwrap();
        let error = read_text(&path).unwrap_err().to_string();
        let path = path.display();
        assert_eq!(
            error,
            format!(
                "{path}: cannot be read: {path} is a symbolic link to ..data/strait.yaml, which does not exist"
            )
        );
    }

    #[test]
    fn a_device_is_no_configuration_and_what_never_ends_is_too_large() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: cannot be read: not a regular file");
        let file = File::open("/dev/zero").unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let error = read_text(Path::new(&path)).unwrap_err().to_string();
        assert_eq!(error, format!("{path}: cannot be read: larger than 64 MiB"));
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read_text(Path::new(&path)).unwrap(), "");
    }
}
