//! The control groups of this process, and how much memory they allow it.

use std::path::{Path, PathBuf};

/// Bounds of version 1 from here on mean none: it writes the largest number of whole pages.
const UNBOUNDED_V1: u64 = 1 << 60;

/// Which groups this process is in, and where they are mounted.
#[derive(Clone, Debug)]
pub(crate) struct ControlGroups {
    /// `/proc/self/cgroup`.
    cgroup: String,
    /// `/proc/self/mountinfo`.
    mountinfo: String,
}

/// The version of a hierarchy of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// The folder of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
}

/// A file, if it can be read.
pub(crate) fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

impl ControlGroups {
    pub(crate) fn new(cgroup: &str, mountinfo: &str) -> Self {
        Self { cgroup: cgroup.to_owned(), mountinfo: mountinfo.to_owned() }
    }

    /// Those of this process; none if `/proc` cannot be read.
    pub(crate) fn own() -> Self {
        let text = |path: &str| read(Path::new(path)).unwrap_or_default();
        Self::new(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"))
    }

    /// The folders of the groups that this process is in and that a controller may bound, each with all groups above it as far
    /// as they can be seen from here.
    pub(crate) fn folders(&self, controller: &str) -> Vec<Folder> {
        let mut folders = Vec::new();
        for (version, group) in self.cgroup.lines().filter_map(|line| group_of(line, controller)) {
            let mounts = self.mountinfo.lines();
            for (root, mount) in mounts.filter_map(|line| mount_of(line, version, controller)) {
                // A container sees its own group as the root of what is mounted, whatever its path is.
                let below = Path::new(group).strip_prefix(&root).unwrap_or_else(|_| Path::new(""));
                let leaves = below.components().any(|part| part.as_os_str() == "..");
                let is_root = leaves || below.as_os_str().is_empty();
                let leaf = if is_root { mount.clone() } else { mount.join(below) };
                let all = leaf.ancestors().take_while(|folder| folder.starts_with(&mount));
                folders.extend(all.map(|path| Folder { version, path: path.to_owned() }));
            }
        }
        folders
    }

    /// The least memory that a group of this process may use, in bytes.
    pub(crate) fn memory_bytes_max(&self, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
        let folders = self.folders("memory").into_iter();
        let bounds = folders.filter_map(|Folder { version, path }| {
            let (name, unbounded) = match version {
                // It says `max` if there is none.
                Version::V2 => ("memory.max", u64::MAX),
                Version::V1 => ("memory.limit_in_bytes", UNBOUNDED_V1),
            };
            let bytes: u64 = read(&path.join(name))?.trim().parse().ok()?;
            (bytes > 0 && bytes < unbounded).then_some(bytes)
        });
        bounds.min()
    }
}

/// The path of a group that a controller may bound, from a line `ID:CONTROLLERS:PATH`.
fn group_of<'l>(line: &'l str, controller: &str) -> Option<(Version, &'l str)> {
    let mut fields = line.splitn(3, ':');
    let (_id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if controllers.is_empty() {
        return Some((Version::V2, path));
    }
    controllers.split(',').any(|name| name == controller).then_some((Version::V1, path))
}

/// Where groups of this version are mounted: which group is at the top there, and the folder.
fn mount_of(line: &str, version: Version, controller: &str) -> Option<(PathBuf, PathBuf)> {
    let (front, back) = line.split_once(" - ")?;
    let mut back = back.split(' ');
    let (kind, options) = (back.next()?, back.nth(1)?);
    let is_ours = match version {
        Version::V2 => kind == "cgroup2",
        Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == controller),
    };
    let mut front = front.split(' ').skip(3);
    let (root, mount) = (front.next()?, front.next()?);
    is_ours.then(|| (unescaped(root), unescaped(mount)))
}

/// A path of `mountinfo`, where blanks, tabs, line ends and backslashes are octal numbers.
fn unescaped(path: &str) -> PathBuf {
    let path = path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    path.replace("\\134", "\\").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_on_the_way_up_counts() {
        const V1: &str = "4:memory:/m/pod\n3:cpuacct,cpu:/kube\n0::/\n";
        const V1_MOUNT: &str = "30 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        const V2: &str = "0::/kube.slice/pod.scope\n";
        const V2_MOUNT: &str =
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        const POD: &str = "/sys/fs/cgroup/kube.slice/pod.scope/memory.max";
        const SLICE: &str = "/sys/fs/cgroup/kube.slice/memory.max";
        const POD_V1: &str = "/sys/fs/cgroup/memory/m/pod/memory.limit_in_bytes";
        const ALL_V1: &str = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        const MANY: &str = "9223372036854771712\n";
        for (cgroup, mountinfo, files, expected) in [
            ("", "", &[][..], None),
            (V2, V2_MOUNT, &[(POD, "max\n")], None),
            (V2, V2_MOUNT, &[(POD, "max\n"), (SLICE, "1048576\n")], Some(1 << 20)),
            (V2, V2_MOUNT, &[(POD, "4096\n"), (SLICE, "1048576\n")], Some(4096)),
            (V2, V2_MOUNT, &[(POD, "0\n"), (SLICE, "much")], None),
            (V1, V1_MOUNT, &[(POD_V1, MANY)], None),
            (V1, V1_MOUNT, &[(POD_V1, "536870912\n"), (ALL_V1, MANY)], Some(512 << 20)),
        ] {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| Path::new(name) == path);
                found.map(|(_, text)| (*text).to_owned())
            };
            let found = ControlGroups::new(cgroup, mountinfo).memory_bytes_max(read);
            assert_eq!(found, expected, "{cgroup:?} {files:?}");
        }
    }
}
