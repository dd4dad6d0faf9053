//! Names under which a service manager keeps listening sockets for the next process (`FDSTORE`, `FDNAME`).
//!
//! A name of a descriptor has up to 255 printable characters without a colon, and others may keep descriptors there, too: ours
//! begin with a word of our own, and what of a listener's name may not stand there is written as `%` and two digits.

use std::fmt::Write as _;

/// What names of listening sockets begin with.
const PREFIX: &str = "strait.listener.";

/// The name of what a process leaves of its connections.
pub const STORED_CONNECTIONS: &str = "strait.connections";

/// Characters of a name, at most.
const NAME_CHARS_MAX: usize = 255;

/// The name of a listener's sockets; none if it would be too long.
pub(crate) fn stored_name(listener: &str) -> Option<String> {
    let mut name = PREFIX.to_owned();
    for byte in listener.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                name.push(char::from(byte));
            }
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    (name.len() <= NAME_CHARS_MAX).then_some(name)
}

/// The listener of a name; none if it is not ours.
#[must_use]
pub fn stored_listener(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix(PREFIX)?;
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
        for listener in ["edge", "a:b", "ä/ö %41", "", "%"] {
            let name = stored_name(listener).unwrap();
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "{name}");
            assert_eq!(stored_listener(&name).as_deref(), Some(listener));
        }
        assert_eq!(stored_name(&"x".repeat(239)).map(|name| name.len()), Some(255));
        assert_eq!(stored_name(&"x".repeat(240)), None);
        for other in [
            "edge",
            "strait.listener",
            "strait.listener.%",
            "strait.listener.%4",
            "strait.listener.%zz",
            "strait.listener.%ff",
        ] {
            assert_eq!(stored_listener(other), None, "{other}");
        }
    }
}
