//! `cargo xtask tidy`: what no lint checks.
//!
//! Each check reads the tree and hands back findings; all are printed, then the command fails if
//! there is one. Nothing is changed on disk. A rule that a check holds is written where people
//! read it (ARCHITECTURE.md, DEPENDENCIES.md), and the check reads it from there.

mod circles;
mod dead_files;
mod dependencies;
mod documents;
mod exports;
mod imports;
mod layers;
mod parts;
mod phases;
mod unsafe_code;
mod words;

use std::fmt;

use anyhow::{Context as _, Result, bail};

use crate::plain::Plain;
use crate::programs::{self, Programs};
use crate::{Surroundings, say};

/// Runs every check.
///
/// # Errors
///
/// If there is a finding, or the tree cannot be read.
pub(crate) fn run(at: &Surroundings) -> Result<()> {
    let tree = Tree::read(at)?;
    let packages = Package::read_all(at)?;
    let findings: Vec<Finding> = [
        layers::check(&tree, &packages),
        dependencies::check(&tree, &packages),
        unsafe_code::check(&tree),
        circles::check(&tree),
        parts::check(&tree),
        phases::check(&tree),
        imports::check(&tree),
        exports::check(&tree),
        documents::check(&tree),
        dead_files::check(&tree),
        words::check(&tree),
    ]
    .concat();
    for finding in &findings {
        say::line(finding);
    }
    if !findings.is_empty() {
        bail!("{} to tidy", findings.len());
    }
    // Pages that are generated from declarations are compared by tests beside the declarations.
    let pages = Programs::build(at, &programs::EVERYTHING)?.run(Some("is_up_to_date"))?;
    if pages.failed > 0 {
        bail!("{} generated pages to make again", pages.failed);
    }
    say::line("\ntidy");
    Ok(())
}

/// One thing to put right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// File, from the repository's root.
    file: String,
    /// What is wrong with it and what would be right.
    text: String,
}

impl Finding {
    fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: file.into(), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.text)
    }
}

/// The repository's text files: those that git follows, and new ones that it does not ignore.
#[derive(Debug, Default)]
struct Tree {
    files: Vec<(String, String)>,
}

impl Tree {
    fn read(at: &Surroundings) -> Result<Self> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listed = Plain::new(&at.root, "git", &arguments).read()?;
        let mut files = Vec::new();
        for name in listed.split('\0').filter(|name| !name.is_empty()) {
            // A file may be gone from disk and not yet from git, and a corpus need not be text.
            if let Ok(Ok(text)) = std::fs::read(at.root.join(name)).map(String::from_utf8) {
                files.push((name.to_owned(), text));
            }
        }
        Ok(Self { files })
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.files.iter().find(|(file, _)| file == name).map(|(_, text)| text.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, _)| name.as_str())
    }

    fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(name, _)| name.ends_with(end))
            .map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

/// One package of the workspace, as its manifest says.
#[derive(Debug)]
struct Package {
    name: String,
    /// Manifest, from the repository's root.
    manifest: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    /// Whether it is a package of this workspace.
    is_ours: bool,
    /// Whether only tests and benches use it.
    is_dev: bool,
}

impl Package {
    /// The packages of the workspace and of `fuzz/`, which is a workspace of its own.
    fn read_all(at: &Surroundings) -> Result<Vec<Self>> {
        let mut packages = Self::read(at, "Cargo.toml")?;
        if at.root.join("fuzz/Cargo.toml").exists() {
            packages.extend(Self::read(at, "fuzz/Cargo.toml")?);
        }
        Ok(packages)
    }

    fn read(at: &Surroundings, manifest: &str) -> Result<Vec<Self>> {
        let arguments = ["metadata", "--format-version=1", "--no-deps", "--manifest-path"];
        let text = Plain::cargo(&at.root, &arguments).arg(manifest).read()?;
        let metadata: serde_json::Value = serde_json::from_str(&text)?;
        let root = format!("{}/", at.root.canonicalize()?.display());
        let packages = metadata.get("packages").and_then(serde_json::Value::as_array);
        packages
            .context("cargo metadata lists no packages")?
            .iter()
            .map(|package| Self::of_metadata(package, &root))
            .collect::<Option<_>>()
            .context("cargo metadata has another form than expected")
    }

    fn of_metadata(package: &serde_json::Value, root: &str) -> Option<Self> {
        let dependencies = package.get("dependencies")?.as_array()?.iter().map(|dependency| {
            Some(Dependency {
                name: dependency.get("name")?.as_str()?.to_owned(),
                is_ours: dependency.get("path").is_some(),
                is_dev: dependency.get("kind")?.as_str() == Some("dev"),
            })
        });
        let manifest = package.get("manifest_path")?.as_str()?;
        Some(Self {
            name: package.get("name")?.as_str()?.to_owned(),
            manifest: manifest.strip_prefix(root).unwrap_or(manifest).to_owned(),
            dependencies: dependencies.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(own).collect() }
    }
}

#[cfg(test)]
impl Package {
    fn of(name: &str, ours: &[&str], others: &[&str]) -> Self {
        let dependency = |is_ours| {
            move |name: &&str| Dependency { name: (*name).to_owned(), is_ours, is_dev: false }
        };
        let dependencies =
            ours.iter().map(dependency(true)).chain(others.iter().map(dependency(false)));
        Self {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.collect(),
        }
    }
}
