//! The API server of Kubernetes would accept our manifests: they are read, completed and validated by its own code. That takes minutes to
//! build, so this one is tried only if it is asked for by name.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::repository;
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;
use crate::process::Process;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Go], holds };

/// A cold build, which compiles most of the API server. What was built is kept by Go.
const BUILD_PATIENCE: Duration = Duration::from_secs(280);

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/kubernetes");

fn holds(lab: &Lab) -> Result<()> {
    let program = lab.folder().join("kubernetes");
    let build = ["build", "-C", MODULE, "-buildvcs=false", "-o", &program.to_string_lossy(), "."];
    Process::run(lab.folder(), "go", &build, BUILD_PATIENCE)?.ok().context("go build")?;
    let examples = repository().join("examples/kubernetes");
    let mut files = vec![repository().join("packaging/kubernetes.yaml")];
    for entry in std::fs::read_dir(examples)? {
        files.push(entry?.path());
    }
    let files: Vec<_> = files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = lab.run(&program.to_string_lossy(), &files)?.ok()?;
    for kind in ["ConfigMap", "DaemonSet", "Pod", "Deployment", "Service"] {
        ensure!(said.contains(&format!("Kind={kind}")), "no {kind}: {said}");
    }
    // The validation is not lenient.
    let wrong =
        lab.write("wrong.yaml", "apiVersion: v1\nkind: Pod\nmetadata: { name: x }\nspec: {}\n")?;
    let judged = lab.run(&program.to_string_lossy(), &[&wrong.to_string_lossy()])?.ok();
    ensure!(judged.is_err(), "a pod without a container is accepted");
    Ok(())
}
