//! Names under which a service manager keeps listening sockets for the next process (`FDSTORE`, `FDNAME`).
//!
//! A name of a descriptor has up to 255 printable characters without a colon, and others may keep descriptors there, too: ours
//! begin with a word of our own, and what of a listener's name may not stand there is written as `%` and two digits. That of a unix
//! socket ends with the socket's file, so that the next process can see whether the path still leads to that socket.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// What names of listening sockets begin with.
const PREFIX: &str = "strait.listener.";

/// The name of what a process leaves of its connections.
pub const STORED_CONNECTIONS: &str = "strait.connections";

/// Characters of a name, at most.
const NAME_CHARS_MAX: usize = 255;

/// The file of a unix socket. It exists as long as the socket does, also without a path: no other file has its numbers meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketFileId {
    device: u64,
    inode: u64,
}

impl SocketFileId {
    /// The socket at `path`, if there is one.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        let id = || Self { device: found.dev(), inode: found.ino() };
        found.file_type().is_socket().then(id)
    }
}

/// What the name of a kept socket says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSocket {
    /// Its name.
    pub listener: String,
    /// The socket's file; none for TCP.
    pub file: Option<SocketFileId>,
}

impl StoredSocket {
    /// Reads the name of a descriptor; none if it is not one of ours.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?;
        let Some((listener, file)) = name.split_once('@') else {
            return Some(Self { listener: unescaped(name)?, file: None });
        };
        let (device, inode) = file.split_once('.')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let file = SocketFileId { device: number(device)?, inode: number(inode)? };
        Some(Self { listener: unescaped(listener)?, file: Some(file) })
    }
}

/// The name of a listener's sockets of TCP, or of that with this file; none if it would be too long.
#[must_use]
pub fn stored_name(listener: &str, file: Option<SocketFileId>) -> Option<String> {
    let mut name = PREFIX.to_owned();
    for byte in listener.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                name.push(char::from(byte));
            }
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    if let Some(SocketFileId { device, inode }) = file {
        let _ = write!(name, "@{device:x}.{inode:x}");
    }
    (name.len() <= NAME_CHARS_MAX).then_some(name)
}

fn unescaped(mut rest: &str) -> Option<String> {
    let mut listener = Vec::new();
    while let Some((first, behind)) = rest.as_bytes().split_first() {
        if *first == b'%' {
            let digits = rest.get(1..3)?;
            listener.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(3..)?;
        } else {
            listener.push(*first);
            rest = std::str::from_utf8(behind).ok()?;
        }
    }
    String::from_utf8(listener).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_listener_and_others_to_none() {
        let file = Some(SocketFileId { device: 0x1a, inode: u64::MAX });
        for listener in ["edge", "a:b", "ä/ö %41", "", "%", "a@1.2"] {
            for file in [None, file] {
                let name = stored_name(listener, file).unwrap();
                assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "{name}");
                let socket = StoredSocket { listener: listener.to_owned(), file };
                assert_eq!(StoredSocket::of_name(&name), Some(socket));
            }
        }
        assert_eq!(stored_name("edge", file).unwrap(), "strait.listener.edge@1a.ffffffffffffffff");
        assert_eq!(stored_name(&"x".repeat(239), None).map(|name| name.len()), Some(255));
        assert_eq!(stored_name(&"x".repeat(240), None), None);
        assert_eq!(stored_name(&"x".repeat(239), file), None);
        for other in [
            "edge",
            "strait.listener",
            "strait.listener.%",
            "strait.listener.%4",
            "strait.listener.%zz",
            "strait.listener.%ff",
            "strait.listener.edge@",
            "strait.listener.edge@1",
            "strait.listener.edge@1.x",
        ] {
            assert_eq!(StoredSocket::of_name(other), None, "{other}");
        }
    }
}
