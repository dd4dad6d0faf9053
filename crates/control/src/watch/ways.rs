//! The ways to the watched files: names that are looked up, and folders in which links may be replaced.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use config::wildcard::{fits_path, is_pattern};

/// The names that were looked up on the ways.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) names: BTreeSet<OsString>,
    /// The watched files themselves, in folders without links.
    pub(super) files: BTreeSet<PathBuf>,
    /// Paths whose last part stands for all names that fit it.
    patterns: Vec<PathBuf>,
}

impl Known {
    /// Adds the way to `path`, and the folders of links on it, which may be replaced, to `directories`.
    pub(super) fn add(&mut self, path: &Path, directories: &mut BTreeSet<PathBuf>) {
        add_names(path, LINKS_MAX, &mut self.names, directories);
        if is_pattern(path) {
            self.patterns.push(path.to_owned());
        }
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.names.contains(name))
            || self.patterns.iter().any(|pattern| fits_path(pattern, path))
    }
}

/// Where the watched files lie.
pub(super) struct LookedUp {
    pub(super) known: Known,
    pub(super) directories: BTreeSet<PathBuf>,
}

impl LookedUp {
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let (mut known, mut directories) = (Known::default(), BTreeSet::new());
        for path in paths {
            known.add(path, &mut directories);
            let folder = parent(path).canonicalize().ok();
            let file = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
            known.files.extend(file);
            directories.extend(directory(path));
            if let Ok(real) = path.canonicalize() {
                directories.insert(parent(&real));
            }
        }
        // One may be moved away.
        let mut more = BTreeSet::new();
        directories.iter().for_each(|place| known.add(place, &mut more));
        directories.extend(more);
        Self { known, directories }
    }
}

/// The directory that `path` names, or the nearest one above it that is there.
fn directory(path: &Path) -> Option<PathBuf> {
    let named = parent(path);
    let mut above =
        named.ancestors().map(|place| if place == Path::new("") { Path::new(".") } else { place });
    above.find_map(|place| place.canonicalize().ok())
}

/// Links on the way to a file that are followed, as in the kernel.
const LINKS_MAX: u32 = 40;

/// Adds the names that are looked up on the way to `path`, those of links and of what they lead to among them, and the folders in which
/// these links lie.
fn add_names(
    path: &Path,
    links_max: u32,
    names: &mut BTreeSet<OsString>,
    directories: &mut BTreeSet<PathBuf>,
) {
    let mut place = PathBuf::new();
    for component in path.components() {
        place.push(component);
        let Component::Normal(name) = component else { continue };
        names.insert(name.to_owned());
        let Some(links_max) = links_max.checked_sub(1) else { continue };
        if let Ok(to) = place.read_link() {
            directories.extend(parent(&place).canonicalize());
            add_names(&parent(&place).join(to), links_max, names, directories);
        }
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
