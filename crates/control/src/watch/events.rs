//! What an event of the kernel may have changed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use rustix::fs::inotify::ReadFlags;

use super::ways::Known;

/// What events may have changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Whether a way may be another since.
    pub(super) is_way: bool,
    /// The files that may hold something else.
    pub(super) files: BTreeSet<OsString>,
}

impl Changed {
    pub(super) fn is_any(&self) -> bool {
        self.is_way || !self.files.is_empty()
    }

    /// Notes what an event may have changed, and whether that is anything.
    pub(super) fn note(&mut self, flags: ReadFlags, path: Option<&Path>, known: &Known) -> bool {
        let Some(concerned) = concern_of(flags, path, known) else { return false };
        match path.and_then(Path::file_name) {
            // What a link leads to lies elsewhere than the file that is watched, or has another name.
            Some(name)
                if concerned == Concern::Content
                    && path.is_some_and(|path| known.files.contains(path)) =>
            {
                if !self.files.contains(name) {
                    self.files.insert(name.to_owned());
                }
            }
            _ => self.is_way = true,
        }
        true
    }
}

/// What an event may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    /// What a file holds.
    Content,
    /// Where a path leads.
    Way,
}

/// What an event may have changed at this path.
fn concern_of(flags: ReadFlags, path: Option<&Path>, known: &Known) -> Option<Concern> {
    let whole = ReadFlags::QUEUE_OVERFLOW
        | ReadFlags::UNMOUNT
        | ReadFlags::DELETE_SELF
        | ReadFlags::MOVE_SELF
        | ReadFlags::IGNORED;
    if flags.intersects(whole) {
        return Some(Concern::Way);
    }
    let path = path.filter(|path| known.has(path))?;
    // A file in the place of another leads nowhere else.
    let is_file = || path.symlink_metadata().is_ok_and(|it| it.is_file());
    let is_content = flags.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB)
        || flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && is_file();
    Some(if is_content { Concern::Content } else { Concern::Way })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn an_event_concerns_the_content_of_a_file_or_the_way_to_it_or_nothing() {
        let scratch = Scratch::new("watch-events");
        let dir = &scratch.0;
        fs::create_dir(dir.join("1")).unwrap();
        fs::write(dir.join("1/strait.yaml"), "a").unwrap();
        fs::write(dir.join("endpoints.yaml"), "a").unwrap();
        fs::write(dir.join("part"), "a").unwrap();
        symlink("1", dir.join("..data")).unwrap();
        symlink("..data/strait.yaml", dir.join("strait.yaml")).unwrap();
        let mut known = Known::default();
        for name in ["strait.yaml", "endpoints.yaml", "later/secret.pem", "more/*.yaml"] {
            known.add(&dir.join(name), &mut BTreeSet::new());
        }
        let (content, way) = (Some(Concern::Content), Some(Concern::Way));
        let folder = ReadFlags::ISDIR;
        for (flags, path, concerned) in [
            (ReadFlags::CLOSE_WRITE, Some("1/strait.yaml"), content),
            (ReadFlags::CLOSE_WRITE, Some("access.log"), None),
            (ReadFlags::ATTRIB, Some("strait.yaml"), content),
            (ReadFlags::CREATE, Some("part"), None),
            (ReadFlags::MOVED_FROM, Some("part"), None),
            // It fits a pattern.
            (ReadFlags::MOVED_FROM, Some("more/new.yaml"), way),
            (ReadFlags::MOVED_TO, Some("endpoints.yaml"), content),
            // It is gone.
            (ReadFlags::MOVED_FROM | folder, Some("later"), way),
            (ReadFlags::CREATE | folder, Some("later"), way),
            // A link, and a folder.
            (ReadFlags::CREATE, Some("strait.yaml"), way),
            (ReadFlags::MOVED_TO, Some("..data"), way),
            (ReadFlags::MOVED_TO | folder, Some("1"), way),
            (ReadFlags::DELETE, Some("part"), None),
            (ReadFlags::DELETE | folder, Some("other"), None),
            (ReadFlags::DELETE, Some("endpoints.yaml"), way),
            // The watched folder itself, and events that were lost.
            (ReadFlags::DELETE_SELF, Some(""), way),
            (ReadFlags::IGNORED, Some(""), way),
            (ReadFlags::QUEUE_OVERFLOW, None, way),
        ] {
            let path = path.map(|path| dir.join(path));
            assert_eq!(concern_of(flags, path.as_deref(), &known), concerned, "{flags:?} {path:?}");
        }
    }
}
