//! Why a file cannot be read, in more words than the kernel has.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use config::outside::DanglingLink;
use rustix::process::{Uid, geteuid};

/// Says more than the kernel does of why there is nothing to read at `path`: to whom it is denied, or which link leads nowhere.
pub(crate) fn explained(error: io::Error, path: &Path) -> io::Error {
    match error.kind() {
        ErrorKind::NotFound => match dangling_link(path) {
            Some(link) => io::Error::new(ErrorKind::NotFound, link),
            None => error,
        },
        _ => with_user(error, geteuid()),
    }
}

/// Links that are followed, one to the next, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// The symbolic link on the way to `path` whose target does not exist.
fn dangling_link(path: &Path) -> Option<DanglingLink> {
    let mut found = None;
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(link) = first_dangling(&at) else { break };
        let target = std::fs::read_link(&link).ok()?;
        // It may lead to another one.
        at = link.parent().unwrap_or_else(|| Path::new("")).join(&target);
        found = Some(DanglingLink { link, target });
    }
    found
}

/// The first part of `path` that is a link to nothing.
fn first_dangling(path: &Path) -> Option<PathBuf> {
    let mut at = PathBuf::new();
    path.components().find_map(|part| {
        at.push(part);
        let is_link = std::fs::symlink_metadata(&at).is_ok_and(|found| found.is_symlink());
        let is_nothing = |error: io::Error| error.kind() == ErrorKind::NotFound;
        let is_dangling = is_link && std::fs::metadata(&at).is_err_and(is_nothing);
        is_dangling.then(|| at.clone())
    })
}

/// Says to whom a file is denied: a service often runs as another user than who looks at its log.
fn with_user(error: io::Error, user: Uid) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            let text = format!("permission denied for the user with the id {}", user.as_raw());
            io::Error::new(ErrorKind::PermissionDenied, text)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_link_to_nothing_is_named_wherever_it_is_on_the_way() {
        let scratch = Scratch::new("files-links");
        let at = |name: &str| scratch.0.join(name);
        for (link, to) in
            [("file", "gone.yaml"), ("folder", "gone"), ("chain", "folder/next"), ("good", "real")]
        {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
        }
        std::fs::create_dir(at("real")).unwrap();
        let why = |name: &str| {
            let error = std::fs::read(at(name)).unwrap_err();
            let explained = explained(error, &at(name));
            assert_eq!(explained.kind(), ErrorKind::NotFound, "{name}");
            explained.to_string()
        };
        for (name, link, to) in [
            ("file", "file", "gone.yaml"),
            ("folder/a.yaml", "folder", "gone"),
            ("chain", "folder", "gone"),
            ("good/../file", "good/../file", "gone.yaml"),
        ] {
            let expected =
                format!("{} is a symbolic link to {to}, which does not exist", at(link).display());
            assert_eq!(why(name), expected, "{name}");
        }
        for name in ["gone", "good/gone"] {
            assert!(why(name).starts_with("No such file or directory"), "{name}");
        }
    }

    #[test]
    fn who_is_denied_a_file_is_told_and_other_errors_stay() {
        let user = Uid::from_raw(1000);
        let denied = with_user(ErrorKind::PermissionDenied.into(), user);
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
        assert_eq!(denied.to_string(), "permission denied for the user with the id 1000");
        assert_eq!(with_user(ErrorKind::NotFound.into(), user).kind(), ErrorKind::NotFound);
    }
}
