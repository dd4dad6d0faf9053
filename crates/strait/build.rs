//! Names the commit that the program is built from: `STRAIT_COMMIT` of the environment, for builds without
//! a repository, or what git says.
#![forbid(unsafe_code)]

use std::process::Command;

fn main() {
    let set = std::env::var_os("STRAIT_COMMIT").and_then(|commit| commit.into_string().ok());
    let commit = set.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let mut directives = vec![
        format!("cargo::rustc-env=STRAIT_COMMIT={}", commit.as_deref().unwrap_or("unknown")),
        "cargo::rerun-if-changed=build.rs".to_owned(),
        "cargo::rerun-if-env-changed=STRAIT_COMMIT".to_owned(),
    ];
    // A line is added to it with each commit and each change of branch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        directives.push(format!("cargo::rerun-if-changed={log}"));
    }
    for directive in directives {
        println!("{directive}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
