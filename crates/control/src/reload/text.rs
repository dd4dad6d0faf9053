//! Reads the text of a configuration, within its bound.

use std::io::{self, Read as _};
use std::path::Path;

use config::snapshot::HandoverOptions;
use config::{FILE_BYTES_MAX, HandoverReader};

use super::Refused;
use crate::files::{Files, open_regular};

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
            io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
        })
    });
    text.map_err(|error| Refused::Unreadable(path.to_owned(), error))
}

/// As [`read`], while the process runs, and nothing but a regular file.
pub(super) fn read_again(path: &Path) -> io::Result<Vec<u8>> {
    let (file, found) = open_regular(path, &std::fs::metadata(path)?)?;
    check_length(found.len())?;
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    check_length(content.len() as u64)?;
    Ok(content)
}

pub(super) fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// What a file holds, or a pipe.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    check_length(std::fs::metadata(path)?.len())?;
    std::fs::read(path)
}

fn check_length(length: u64) -> io::Result<()> {
    if length > FILE_BYTES_MAX as u64 {
        return Err(io::Error::other(format!("larger than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(())
}
