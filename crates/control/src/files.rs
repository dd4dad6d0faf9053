//! The files that a configuration names, from the disk: read once for each load, and remembered by a
//! digest, so that a later look tells whether any has changed. Contents are not kept: there are keys
//! among them. A file whose [`Stamp`] is as it was is not read for that look. Files of endpoints are apart from
//! the others: a change of one is taken up by itself.

mod explained;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::Outside;
use config::outside::{EndpointsFile, NotText};
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::Errno;
use tls::{Roots, RootsError};
use zeroize::Zeroizing;

pub(crate) use self::explained::explained;
use crate::clock;

/// Bytes of a file that a configuration names: bundles of every authority there is have half of one.
const NAMED_BYTES_MAX: u64 = 8 << 20;

/// Where standard input is found as a file.
pub const STDIN: &str = "/dev/stdin";

/// How long a file must have been left alone, ns, for its stamp to be trusted: two writes within a tick of the
/// file system's clock leave the same one. The coarsest of these clocks has ticks of two seconds.
const SETTLED: u64 = 2_000_000_000;

/// Reads the files of one load, relative to a folder.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    seen: RefCell<Seen>,
    endpoints: RefCell<EndpointFiles>,
    included: RefCell<Included>,
    /// Whether `included` is what the text includes, whatever the disk has now.
    is_text_given: bool,
}

/// What a text includes, whose paths are as the text has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Included {
    files: BTreeMap<PathBuf, Zeroizing<Vec<u8>>>,
    /// The files that fit patterns.
    lists: BTreeMap<PathBuf, Vec<PathBuf>>,
}

/// What the files of a load were like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    files: BTreeMap<PathBuf, (Option<Stamp>, State)>,
    /// What they are called in their folders.
    names: BTreeSet<OsString>,
    /// Those of them that the text includes.
    included: BTreeSet<PathBuf>,
}

/// What the files of endpoints were like when they were read last.
#[derive(Debug, Default)]
pub(crate) struct EndpointFiles {
    /// By their names in the configuration.
    files: BTreeMap<Arc<str>, EndpointFile>,
    /// The same names, by those of the files in their folders.
    by_file: BTreeMap<OsString, BTreeSet<Arc<str>>>,
}

#[derive(Debug)]
struct EndpointFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    state: State,
}

/// What the file system says of a file, by which a change is seen without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds, of content and of anything else.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of the file at `path`. None if there is no such file, or if the stamp does not prove that the content is the same
    /// since it was written a moment ago.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        Self::of_found(&std::fs::metadata(path).ok()?)
    }

    fn of_found(found: &Metadata) -> Option<Self> {
        let now = clock::wall_ns();
        let changed_at = |seconds: i64, ns: i64| {
            let ns = i128::from(seconds) * 1_000_000_000 + i128::from(ns);
            i128::from(now) - ns >= i128::from(SETTLED)
        };
        let is_settled = changed_at(found.mtime(), found.mtime_nsec())
            && changed_at(found.ctime(), found.ctime_nsec());
        is_settled.then(|| Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// What a file was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It had content with this digest.
    Digest(u64),
    /// It is a pattern, and the names that fit it have this digest.
    Listing(u64),
    /// It could not be read.
    Unreadable(ErrorKind),
    /// It could not be opened, for lack of descriptors: that says nothing of it.
    Starved,
}

impl Files {
    /// The files beside the configuration file at `path`.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        // Standard input has no folder of its own.
        let is_stdin = path == Path::new(STDIN);
        let folder = if is_stdin { Path::new("") } else { path.parent().unwrap_or(path) };
        let folder = folder.to_owned();
        Self {
            folder,
            seen: RefCell::default(),
            endpoints: RefCell::default(),
            included: RefCell::default(),
            is_text_given: false,
        }
    }

    /// The same, but what the text includes is this.
    pub(crate) fn with_included(self, included: Included) -> Self {
        Self { included: RefCell::new(included), is_text_given: true, ..self }
    }

    /// What relative paths are relative to.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was read: secrets and included text, and endpoints.
    pub(crate) fn into_seen(self) -> (Seen, EndpointFiles) {
        (self.seen.into_inner(), self.endpoints.into_inner())
    }

    /// What the text includes, once.
    pub(crate) fn take_included(&self) -> Included {
        self.included.take()
    }
}

impl Outside for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let whole = self.folder.join(path);
        let (stamp, content) = read(&whole);
        self.seen.borrow_mut().insert(whole.clone(), stamp, State::of(&content));
        let content = content.map(|mut content| std::mem::take(&mut *content));
        content.map_err(|error| explained(error, &whole))
    }

    fn read_included(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.is_text_given {
            let included = self.included.borrow();
            let content = included.files.get(path).map(|content| content.to_vec());
            return content.ok_or_else(|| ErrorKind::NotFound.into());
        }
        self.seen.borrow_mut().included.insert(self.folder.join(path));
        let content = self.read(path)?;
        let kept = Zeroizing::new(content.clone());
        self.included.borrow_mut().files.insert(path.to_owned(), kept);
        Ok(content)
    }

    fn read_endpoints(&self, name: &Path) -> io::Result<EndpointsFile> {
        let path = self.folder.join(name);
        let (stamp, opened) = open(&path);
        let is_elsewhere = opened.as_ref().is_ok_and(|opened| !lies_beside(opened, &path));
        let content = opened.and_then(|(file, found)| read_open(file, &found));
        let content = content.map_err(|error| explained(error, &path));
        let file = EndpointFile { path, stamp, state: State::of(&content) };
        let name = Arc::from(name.to_string_lossy());
        self.endpoints.borrow_mut().insert(name, file);
        content.map(|mut content| EndpointsFile {
            content: std::mem::take(&mut *content),
            is_elsewhere,
        })
    }

    fn list(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        if self.is_text_given {
            let found = self.included.borrow().lists.get(pattern).cloned();
            return found.ok_or_else(|| ErrorKind::NotFound.into());
        }
        let whole = self.folder.join(pattern);
        let found = list(&whole);
        let found = found.map_err(|error| explained(error, &whole));
        self.seen.borrow_mut().insert(whole, None, State::of_listing(&found));
        let folder = pattern.parent().unwrap_or_else(|| Path::new(""));
        let found = found?;
        let found: Vec<_> = found.into_iter().map(|name| folder.join(name)).collect();
        self.included.borrow_mut().lists.insert(pattern.to_owned(), found.clone());
        Ok(found)
    }

    fn name(&self, path: &Path) -> String {
        self.folder.join(path).display().to_string()
    }

    fn real_name(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name))
    }

    fn variable(&self, name: &str) -> Result<Option<String>, NotText> {
        let found = std::env::var_os(name);
        found.map(|value| value.into_string().map_err(|_| NotText)).transpose()
    }

    fn is_link(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(self.folder.join(path)).is_ok_and(|found| found.is_symlink())
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        std::fs::metadata(self.folder.join(path)).ok().map(|found| found.mode())
    }

    fn check_append(&self, path: &Path) -> io::Result<()> {
        let path = self.folder.join(path);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(_) => accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
                let folder = folder.unwrap_or_else(|| Path::new("."));
                let access = Access::WRITE_OK | Access::EXEC_OK;
                accessat(CWD, folder, access, AtFlags::EACCESS)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn system_roots(&self) -> Result<Roots, RootsError> {
        Roots::system()
    }

    fn now(&self) -> u64 {
        clock::wall_ns() / 1_000_000_000
    }
}

impl Seen {
    fn insert(&mut self, path: PathBuf, stamp: Option<Stamp>, state: State) {
        self.names.extend(path.file_name().map(OsString::from));
        self.files.insert(path, (stamp, state));
    }

    /// The same without what the text includes.
    pub(crate) fn without_text(&self) -> Self {
        let mut named = Self::default();
        let is_text = |path: &PathBuf, state: &State| {
            matches!(state, State::Listing(_)) || self.included.contains(path)
        };
        let files = self.files.iter().filter(|(path, (_, state))| !is_text(path, state));
        for (path, (stamp, state)) in files {
            named.insert(path.clone(), *stamp, *state);
        }
        named
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether any of the files is called so in its folder.
    pub(crate) fn has_any(&self, names: &BTreeSet<OsString>) -> bool {
        names.iter().any(|name| self.names.contains(name))
    }

    /// Where the files are, or should be.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Whether any could not be read for lack of descriptors.
    pub(crate) fn is_starved(&self) -> bool {
        self.files.values().any(|(_, state)| *state == State::Starved)
    }

    /// Whether any file is not as it was.
    pub(crate) fn is_changed(&mut self) -> bool {
        self.files.iter_mut().any(|(path, (stamp, state))| {
            let now = Stamp::of(path);
            if now.is_some() && now == *stamp {
                return false;
            }
            let is_other = state.again(path) != *state;
            // Of what is not loaded yet nothing is noted, or the next look would find nothing new.
            if !is_other {
                *stamp = now;
            }
            is_other
        })
    }

    /// Whether a file that the text includes is not as it was, or another one fits a pattern of it.
    pub(crate) fn is_text_changed(&self) -> bool {
        self.files.iter().any(|(path, (_, state))| {
            let is_text = matches!(state, State::Listing(_)) || self.included.contains(path);
            is_text && state.again(path) != *state
        })
    }

    /// Takes the files for seen as they are.
    pub(crate) fn refresh(&mut self) {
        for (path, (stamp, state)) in &mut self.files {
            (*stamp, *state) = (Stamp::of(path), state.again(path));
        }
    }
}

impl EndpointFiles {
    fn insert(&mut self, name: Arc<str>, file: EndpointFile) {
        if let Some(of_file) = file.path.file_name() {
            self.by_file.entry(of_file.to_owned()).or_default().insert(Arc::clone(&name));
        }
        self.files.insert(name, file);
    }

    /// Whether there is one of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// The names of those whose files are called so.
    pub(crate) fn named(&self, of_files: &BTreeSet<OsString>) -> Vec<Arc<str>> {
        of_files.iter().filter_map(|name| self.by_file.get(name)).flatten().cloned().collect()
    }

    /// Where the files are, or should be.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.values().map(|file| file.path.as_path())
    }

    /// The names of those that may not be as they were.
    pub(crate) fn changed(&self) -> Vec<Arc<str>> {
        let is_changed = |(name, file): (&Arc<str>, &EndpointFile)| {
            let now = Stamp::of(&file.path);
            (now.is_none() || now != file.stamp).then(|| Arc::clone(name))
        };
        self.files.iter().filter_map(is_changed).collect()
    }

    /// Whether one that is not among these `others` reads differently.
    pub(crate) fn is_any_changed_beside(&self, others: &Self) -> bool {
        let mut files = self.files.iter().filter(|(name, _)| !others.has(name));
        files.any(|(_, EndpointFile { path, stamp, state })| {
            let now = Stamp::of(path);
            (now.is_none() || now != *stamp) && State::at(path) != *state
        })
    }

    /// Takes over what was read again.
    pub(crate) fn update(&mut self, read: Self) {
        read.files.into_iter().for_each(|(name, file)| self.insert(name, file));
    }

    /// Whether any could not be read for lack of descriptors.
    pub(crate) fn is_starved(&self) -> bool {
        self.files.values().any(|file| file.state == State::Starved)
    }
}

impl State {
    /// That of the file at `path`, of whose content nothing stays in memory.
    fn at(path: &Path) -> Self {
        Self::of(&read(path).1)
    }

    /// That of the same file, or the same pattern, now.
    fn again(self, path: &Path) -> Self {
        match self {
            Self::Listing(_) => Self::of_listing(&list(path)),
            Self::Digest(_) | Self::Unreadable(_) | Self::Starved => Self::at(path),
        }
    }

    fn of_listing(found: &io::Result<Vec<OsString>>) -> Self {
        let mut hasher = DefaultHasher::new();
        match found {
            Ok(names) => names.hash(&mut hasher),
            Err(error) => error.kind().hash(&mut hasher),
        }
        Self::Listing(hasher.finish())
    }

    fn of_error(error: &io::Error) -> Self {
        if is_starved(error) { Self::Starved } else { Self::Unreadable(error.kind()) }
    }

    pub(crate) fn of(content: &io::Result<impl AsRef<[u8]>>) -> Self {
        match content {
            Ok(content) => {
                let mut hasher = DefaultHasher::new();
                hasher.write(content.as_ref());
                Self::Digest(hasher.finish())
            }
            Err(error) => Self::of_error(error),
        }
    }
}

/// The names of the files that fit a pattern, in their order.
fn list(pattern: &Path) -> io::Result<Vec<OsString>> {
    let folder = pattern.parent().filter(|it| !it.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or_else(|| Path::new(".")))?;
    let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let is_meant = |name: &OsString| config::wildcard::fits_path(pattern, Path::new(name));
    let mut names: Vec<_> = names?.into_iter().filter(is_meant).collect();
    names.sort_unstable();
    Ok(names)
}

/// Whether a file could not be opened because the process, or the system, has no descriptor left.
pub(crate) fn is_starved(error: &io::Error) -> bool {
    let lack = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| lack.contains(&code))
}

/// What a file holds, and its stamp from before it was read.
fn read(path: &Path) -> (Option<Stamp>, io::Result<Zeroizing<Vec<u8>>>) {
    let (stamp, opened) = open(path);
    (stamp, opened.and_then(|(file, found)| read_open(file, &found)))
}

/// A regular file, and its stamp.
fn open(path: &Path) -> (Option<Stamp>, io::Result<(File, Metadata)>) {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return (None, Err(error)),
    };
    let opened = open_regular(path, &found);
    (Stamp::of_found(opened.as_ref().map_or(&found, |(_, found)| found)), opened)
}

/// Whether this file, which was opened at `path`, lies in the folder of that path or below. The file itself is asked, because
/// the path may lead elsewhere by now.
fn lies_beside((file, found): &(File, Metadata), path: &Path) -> bool {
    // Without a link it lies where it was found: a folder's own path takes a call for each part of it.
    let is_itself =
        |it: Metadata| it.is_file() && it.dev() == found.dev() && it.ino() == found.ino();
    if std::fs::symlink_metadata(path).is_ok_and(is_itself) {
        return true;
    }
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = std::fs::canonicalize(folder.unwrap_or_else(|| Path::new(".")));
    real.is_ok_and(|real| folder.is_ok_and(|folder| real.starts_with(folder)))
}

/// Opens what was found at this path, if it is a regular file, and says what it is by now. A pipe could keep control waiting for ever,
/// also one that takes the file's place just now, and so could a file of the kernel's whose content is to come.
pub(crate) fn open_regular(path: &Path, found: &Metadata) -> io::Result<(File, Metadata)> {
    check_regular(found)?;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let opened = file.metadata()?;
    check_regular(&opened)?;
    Ok((file, opened))
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(())
}

/// Reads a file. What is read has one place in memory, which is wiped when it has to be larger.
fn read_open(mut file: File, metadata: &Metadata) -> io::Result<Zeroizing<Vec<u8>>> {
    if metadata.len() > NAMED_BYTES_MAX {
        return Err(too_large());
    }
    // With room for one octet more, in which the end is seen.
    let expected = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let mut content = Zeroizing::new(vec![0; expected.saturating_add(1)]);
    let mut filled = 0;
    loop {
        let room = content.get_mut(filled..).unwrap_or_default();
        if room.is_empty() {
            // It is being written.
            let mut larger = Zeroizing::new(vec![0; filled.saturating_mul(2)]);
            larger.get_mut(..filled).unwrap_or_default().copy_from_slice(&content);
            content = larger;
            continue;
        }
        match file.read(room) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled as u64 > NAMED_BYTES_MAX {
            return Err(too_large());
        }
    }
    content.truncate(filled);
    Ok(content)
}

fn too_large() -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("larger than {NAMED_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_pipe_that_takes_the_place_of_a_file_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("strait-files-pipe-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| folder.join(name));
        std::fs::write(&file, "[]").unwrap();
        let found = std::fs::metadata(&file).unwrap();
        rustix::fs::mknodat(
            CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (opened, _) = open_regular(&file, &found).unwrap();
        assert_eq!(opened.metadata().unwrap().len(), 2);
        // It was a file when it was looked at.
        let error = open_regular(&pipe, &found).unwrap_err();
        assert_eq!(error.to_string(), "not a regular file");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_of_endpoints_lies_elsewhere_where_a_link_leads_out_of_its_folder() {
        let scratch = Scratch::new("files-elsewhere");
        let at = |name: &str| scratch.0.join(name);
        for folder in ["named", "named/..1", "other"] {
            std::fs::create_dir(at(folder)).unwrap();
            std::fs::write(at(folder).join("e.yaml"), "[]").unwrap();
        }
        let links = [
            ("named/..data", "..1"),
            ("named/kubernetes.yaml", "..data/e.yaml"),
            ("named/beside.yaml", "e.yaml"),
            ("named/out.yaml", "../other/e.yaml"),
            ("named/out", "../other"),
            ("named/far.yaml", "out/e.yaml"),
            ("to-named", "named"),
        ];
        for (link, to) in links {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
        }
        let files = Files::beside(&at("named/strait.yaml"));
        let is_elsewhere = |name: &str| files.read_endpoints(Path::new(name)).unwrap().is_elsewhere;
        for name in ["e.yaml", "kubernetes.yaml", "beside.yaml", "../to-named/e.yaml", "out/e.yaml"]
        {
            assert!(!is_elsewhere(name), "{name}");
        }
        for name in ["out.yaml", "far.yaml"] {
            assert!(is_elsewhere(name), "{name}");
        }
    }

    #[test]
    fn a_change_is_seen_until_it_is_loaded_however_old_the_file_is() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let link = std::env::temp_dir().join(format!("strait-link-{}", std::process::id()));
        let point_to = |name: &str| {
            _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(package.join(name), &link).unwrap();
        };
        point_to("Cargo.toml");
        let files = Files::beside(&package.join("strait.yaml"));
        files.read(&link).unwrap();
        let (mut seen, _) = files.into_seen();
        assert!(!seen.is_changed());
        point_to("src/lib.rs");
        assert!((0..3).all(|_| seen.is_changed()));
        point_to("Cargo.toml");
        assert!(!seen.is_changed());
        std::fs::remove_file(&link).unwrap();
    }

    #[test]
    fn a_file_has_a_stamp_once_it_was_left_alone_and_only_while_it_is_there() {
        let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(Stamp::of(&old).is_some());
        assert_eq!(Stamp::of(&old), Stamp::of(&old));
        let new = std::env::temp_dir().join(format!("strait-stamp-{}", std::process::id()));
        std::fs::write(&new, "a").unwrap();
        assert_eq!(Stamp::of(&new), None);
        // An old time of its content alone does not do: that can be set.
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&new).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(Stamp::of(&new), None);
        std::fs::remove_file(&new).unwrap();
        assert_eq!(Stamp::of(&new), None);
    }
}
