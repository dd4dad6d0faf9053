//! What the Dockerfile copies and starts serves as its user, in a root that has only the libraries of
//! the image that it begins with.
//!
//! No container engine is needed: the last stage's lines are read and done in a folder.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{packaging, repository};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Unshare, Peer::Ip, Peer::Curl], holds };

/// Libraries of `gcr.io/distroless/cc-debian12`, as far as a program in Rust may need them.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-"];

/// Where it copies the program from.
const BUILT: &str = "/src/target/release/strait";

/// Starts the image's command as its user; the script's further arguments are the command.
const START: &str = r#"
set -eu
ip link set lo up
root=$1 user=$2
shift 2
chroot --userspec="$user" --groups= "$root" "$@" &
curl --silent --show-error --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8080/
kill $!
wait $!
"#;

fn holds(lab: &Lab) -> Result<()> {
    let dockerfile = std::fs::read_to_string(packaging("Dockerfile"))?;
    let (_, last) = dockerfile.rsplit_once("\nFROM ").context("two stages")?;
    ensure!(last.starts_with("gcr.io/distroless/cc-debian12:nonroot\n"), "{last}");
    let root = lab.folder().join("image");
    let (mut user, mut command) = ("0:0", Vec::new());
    for line in last.lines().skip(1).filter(|line| !line.is_empty()) {
        match line.split_once(' ').context("an instruction")? {
            ("COPY", paths) => copy(lab, &root, paths)?,
            ("USER", name) => user = name,
            ("ENTRYPOINT" | "CMD", words) => {
                command.extend(serde_json::from_str::<Vec<String>>(words)?);
            }
            ("EXPOSE" | "STOPSIGNAL", _) => {}
            (other, _) => anyhow::bail!("{other} is not known here"),
        }
    }
    ensure!(user != "0:0", "it runs as root");
    add_libraries(lab, &root)?;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let root = root.to_string_lossy();
    let own = ["--mount", "--net", "--", "sh", "-c", START, "sh", &root, user];
    let arguments: Vec<&str> = own.into_iter().chain(command.iter().map(String::as_str)).collect();
    let said = lab.run("unshare", &arguments)?.ok()?;
    ensure!(said.contains("Strait runs;"), "{said}");
    Ok(())
}

fn copy(lab: &Lab, root: &Path, paths: &str) -> Result<()> {
    let paths = paths.trim_start_matches("--from=build ");
    let (from, to) = paths.split_once(' ').context("two paths")?;
    let from = if from == BUILT { lab.strait.clone() } else { repository().join(from) };
    place(root, &from, to)
}

fn place(root: &Path, from: &Path, to: &str) -> Result<()> {
    let to = root.join(to.trim_start_matches('/'));
    std::fs::create_dir_all(to.parent().context("a folder")?)?;
    std::fs::copy(from, &to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

/// What the program loads, which must be what the image has.
fn add_libraries(lab: &Lab, root: &Path) -> Result<()> {
    let listed = lab.run("ldd", &[&lab.strait.to_string_lossy()])?.ok()?;
    for path in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let known = LIBRARIES.iter().any(|library| path.contains(library));
        ensure!(known, "{path} is not in the image");
        place(root, Path::new(path), path)?;
    }
    Ok(())
}
