//! The Debian package has what it should, installs into a copy of this system, and what it installs
//! serves as the user that it makes; purging it leaves nothing.
//!
//! The program is the one that is tested, which spares a release build.

use anyhow::{Context as _, Result, ensure};

use super::repository;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;

pub(super) const CLAIM: Claim = Claim {
    module: module_path!(),
    needs: &[
        Peer::CargoDeb,
        Peer::DpkgDeb,
        Peer::DpkgShlibdeps,
        Peer::Unshare,
        Peer::Ip,
        Peer::Curl,
    ],
    holds,
};

/// Stripping and packing a program with debug information.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(180);

/// Installs the package on top of this system, in file systems of its own; asks the service for an answer; purges.
const INSTALL: &str = r#"
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/all"
mount -t proc proc "$1/all/proc"
mount --bind /dev "$1/all/dev"
cp "$2" "$1/all/strait.deb"
ip link set lo up
exec chroot "$1/all" /bin/sh -c '
    set -eu
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C
    dpkg --install --force-depends /strait.deb
    test "$(id -un strait)" = strait
    setpriv --reuid=strait --regid=strait --clear-groups \
        /usr/bin/strait run --config /etc/strait/strait.yaml &
    curl --silent --show-error --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8080/
    kill $!
    wait $!
    dpkg --purge strait
    test ! -e /etc/strait/strait.yaml -a ! -e /etc/logrotate.d/strait -a ! -e /usr/bin/strait
    echo purged
'
"#;

fn holds(lab: &Lab) -> Result<()> {
    let package = build(lab)?;
    contains_what_it_should(lab, &package)?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let root = lab.folder().join("system");
    std::fs::create_dir(&root)?;
    let own = ["--mount", "--net", "--pid", "--fork", "--", "sh", "-c", INSTALL, "sh"];
    let root = root.to_string_lossy();
    let arguments = [&own[..], &[&*root, &*package]].concat();
    let said = Process::run(lab.folder(), "unshare", &arguments, PATIENCE)?.ok()?;
    ensure!(said.contains("Strait runs;") && said.contains("purged"), "{said}");
    Ok(())
}

fn build(lab: &Lab) -> Result<String> {
    let program = Peer::CargoDeb.program().context("cargo-deb")?;
    let package = lab.folder().join("strait.deb").to_string_lossy().into_owned();
    let manifest = repository().join("Cargo.toml");
    let target = lab.strait.parent().and_then(|folder| folder.parent()).context("a target")?;
    let target = format!("CARGO_TARGET_DIR={}", target.display());
    let arguments = [
        &*target,
        &*program.to_string_lossy(),
        "deb",
        "--manifest-path",
        &manifest.to_string_lossy(),
        "--package=strait",
        "--no-build",
        "--profile=dev",
        "--output",
        &package,
    ];
    Process::run(lab.folder(), "env", &arguments, PATIENCE)?.ok()?;
    Ok(package)
}

fn contains_what_it_should(lab: &Lab, package: &str) -> Result<()> {
    let contents = lab.run("dpkg-deb", &["--contents", package])?.ok()?;
    for file in [
        "-rwxr-xr-x 0/0 ./usr/bin/strait",
        "-rw-r--r-- 0/0 ./etc/strait/strait.yaml",
        "-rw-r--r-- 0/0 ./etc/logrotate.d/strait",
        "-rw-r--r-- 0/0 ./usr/lib/systemd/system/strait.service",
        "-rw-r--r-- 0/0 ./usr/share/man/man1/strait.1.gz",
        "-rw-r--r-- 0/0 ./usr/share/man/man5/strait.yaml.5.gz",
    ] {
        let (owned, path) = file.split_once(" ./").context("a path")?;
        let is_listed =
            |line: &str| line.starts_with(owned) && line.ends_with(&format!("./{path}"));
        ensure!(contents.lines().any(is_listed), "{file} is not in\n{contents}");
    }
    ensure!(
        !contents.contains("/usr/lib/debug"),
        "symbols have a package of their own:\n{contents}"
    );
    let control = lab.run("dpkg-deb", &["--info", package])?.ok()?;
    for part in ["Package: strait", "libc6", "adduser", "conffiles", "postinst", "prerm"] {
        ensure!(control.contains(part), "{part} is not in\n{control}");
    }
    Ok(())
}
