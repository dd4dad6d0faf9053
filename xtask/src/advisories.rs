//! `cargo xtask advisories`: known vulnerabilities of what we depend on.
//!
//! RustSec's database is a repository of git, a page an advisory, which machines without access to it
//! cannot have; so "not checked" is a result of its own. A copy is kept below the build folder and
//! brought up to date where that is possible; one that cargo-audit or cargo-deny keeps will do, too.
//! cargo-deny checks the same and more (`cargo deny check`), but takes longer to build than Strait.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use semver::{Version, VersionReq};

use crate::plain::Plain;
use crate::{Surroundings, say};

const URL: &str = "https://github.com/RustSec/advisory-db";

/// How long fetching may take.
const FETCH_SECONDS: &str = "60";

/// The workspaces. Each has its own versions.
const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];

/// What to compare with.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The database, a copy of RustSec's repository, which is taken as it is.
    #[arg(long, value_name = "DIR")]
    database: Option<PathBuf>,
    /// That the database cannot be had is a failure.
    #[arg(long)]
    require: bool,
}

/// Looks, and says what it looked at.
///
/// # Errors
///
/// If an advisory is about a version that we use and deny.toml does not list it with a reason; if
/// the database cannot be read, or cannot be had and is required.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    let Some(database) = database(at, options)? else {
        let text = "advisories: not checked, for there is no database: neither could it be fetched \
                    nor is there a copy (--database DIR)";
        if options.require {
            bail!("{text}");
        }
        say::line(text);
        return Ok(());
    };
    let accepted = accepted(&std::fs::read_to_string(at.root.join("deny.toml"))?);
    let (mut looked_at, mut findings) = (0, Vec::new());
    for lock in LOCKS {
        let packages = locked(&std::fs::read_to_string(at.root.join(lock))?);
        for package in packages {
            for (id, text) in pages(&database, &package.name)? {
                looked_at += 1;
                match judge(&package, &text) {
                    Verdict::Unaffected => {}
                    _ if accepted.contains(&id) => {}
                    verdict => findings.push((
                        lock,
                        format!("{} {}", package.name, package.version),
                        id,
                        verdict,
                    )),
                }
            }
        }
    }
    let mut is_vulnerable = false;
    for (lock, package, id, verdict) in &findings {
        say::line(format_args!("{lock}: {package}: {id}: {verdict}"));
        is_vulnerable |= !matches!(verdict, Verdict::Noted(_));
    }
    say::line(format_args!(
        "advisories: {looked_at} about our dependencies were compared with our versions (database of {})",
        date(&database)
    ));
    if is_vulnerable {
        bail!("update what is named above, or list the advisory with a reason in deny.toml");
    }
    Ok(())
}

/// A copy of the database, as new as can be had.
fn database(at: &Surroundings, options: &Options) -> Result<Option<PathBuf>> {
    if let Some(given) = &options.database {
        if !given.join("crates").is_dir() {
            bail!("{} has no folder `crates`: it is no copy of {URL}", given.display());
        }
        return Ok(Some(given.clone()));
    }
    let kept = at.target_directory()?.join("advisory-db");
    let git = |arguments: &[&str]| {
        let words = [&[FETCH_SECONDS, "git"], arguments].concat();
        Plain::new(&at.root, "timeout", &words).env("GIT_TERMINAL_PROMPT", "0")
    };
    let place = kept.to_string_lossy();
    let fetched = if kept.join(".git").exists() {
        git(&["-C", &place, "pull", "--quiet", "--ff-only"]).run()
    } else {
        git(&["clone", "--quiet", "--depth=1", URL, &place]).run()
    };
    if let Err(error) = fetched {
        say::line(format_args!("the database could not be fetched: {error:#}"));
    }
    let others = at.cargo_home.iter().flat_map(|home| {
        // cargo-deny's are below a folder, each with a name of its own.
        let below = std::fs::read_dir(home.join("advisory-dbs")).into_iter().flatten();
        let below = below.filter_map(Result::ok).map(|entry| entry.path());
        std::iter::once(home.join("advisory-db")).chain(below)
    });
    let mut copies = std::iter::once(kept).chain(others);
    Ok(copies.find(|copy| copy.join("crates").is_dir()))
}

/// The day of the database's last change, if it is a repository.
fn date(database: &Path) -> String {
    let log = Plain::new(database, "git", &["log", "-1", "--format=%cs"]).read_quietly();
    log.map_or_else(|_| "an unknown day".to_owned(), |date| date.trim().to_owned())
}

/// The advisories about a package: name and text.
fn pages(database: &Path, package: &str) -> Result<Vec<(String, String)>> {
    let Ok(folder) = std::fs::read_dir(database.join("crates").join(package)) else {
        return Ok(Vec::new());
    };
    let mut pages = Vec::new();
    for entry in folder {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            pages.push((id, text));
        }
    }
    pages.sort();
    Ok(pages)
}

/// A package of a registry, as locked.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
}

/// The packages of a `Cargo.lock` that come from a registry: ours may have names of others'.
fn locked(lock: &str) -> Vec<Package> {
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|text| {
            text.contains("\nsource = \"registry+").then_some(())?;
            Some(Package { name: value(text, "name")?, version: value(text, "version")? })
        })
        .collect()
}

/// The advisories that deny.toml lists, where each has a reason.
fn accepted(deny: &str) -> BTreeSet<String> {
    let ids = deny.split('"').filter(|text| text.starts_with("RUSTSEC-"));
    ids.map(str::to_owned).collect()
}

/// The verdict of an advisory on a version.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Unaffected,
    /// A vulnerability, or unsound; what is better.
    Vulnerable {
        patched: Vec<String>,
    },
    /// Something to know: unmaintained, a notice.
    Noted(String),
    /// An advisory that cannot be parsed is reported.
    Unreadable(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unaffected => f.write_str("not affected"),
            Self::Vulnerable { patched } if patched.is_empty() => {
                f.write_str("no version is patched")
            }
            Self::Vulnerable { patched } => write!(f, "patched in {}", patched.join("; ")),
            Self::Noted(what) => write!(f, "{what} (no failure)"),
            Self::Unreadable(why) => write!(f, "the advisory cannot be read: {why}"),
        }
    }
}

/// Reads the front matter, which is TOML of a fixed and checked form.
fn judge(package: &Package, page: &str) -> Verdict {
    let matter = page.split("```toml\n").nth(1).and_then(|text| text.split("\n```").next());
    let Some(matter) = matter else { return Verdict::Unreadable("no front matter".to_owned()) };
    if value(matter, "withdrawn").is_some() {
        return Verdict::Unaffected;
    }
    let Ok(version) = Version::parse(&package.version) else {
        return Verdict::Unreadable(format!("{} is no version", package.version));
    };
    let (_, versions) = matter.split_once("[versions]").unwrap_or((matter, ""));
    let Some(patched) = list(versions, "patched") else {
        return Verdict::Unreadable("it has no list `patched`".to_owned());
    };
    let unaffected = list(versions, "unaffected").unwrap_or_default();
    for requirement in patched.iter().chain(&unaffected) {
        match VersionReq::parse(requirement) {
            Ok(requirement) if requirement.matches(&version) => return Verdict::Unaffected,
            Ok(_) => {}
            Err(error) => return Verdict::Unreadable(format!("{requirement}: {error}")),
        }
    }
    match value(matter, "informational") {
        Some(kind) if kind != "unsound" => Verdict::Noted(kind),
        _ => Verdict::Vulnerable { patched },
    }
}

/// The text behind `key = "` at the beginning of a line.
fn value(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| behind_key(line, key))?;
    Some(value.strip_prefix('"')?.split('"').next()?.to_owned())
}

/// The texts of the list behind `key = [`, which may take several lines.
fn list(text: &str, key: &str) -> Option<Vec<String>> {
    let lines = text.lines().skip_while(|line| behind_key(line, key).is_none());
    let text: String = lines.collect::<Vec<_>>().join(" ");
    let list = behind_key(&text, key)?.strip_prefix('[')?.split(']').next()?;
    Some(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

fn behind_key<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    Some(line.trim_start().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(version: &str, matter: &str) -> Verdict {
        let package = Package { name: "x".to_owned(), version: version.to_owned() };
        judge(
            &package,
            &format!("```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\n{matter}\n```\n# X"),
        )
    }

    #[test]
    fn versions_are_vulnerable_unless_patched_or_unaffected() {
        let matter = "[affected]\narch = [\"x86\"]\n\n[versions]\npatched = [\"< 2.0.0, >= 1.2.3\",\n  \
                      \"^2.1\", # a remark\n]\nunaffected = [\"<1.0\"]";
        for (version, is_vulnerable) in [
            ("0.9.9", false),
            ("1.0.0", true),
            ("1.2.2", true),
            ("1.2.3", false),
            ("2.0.0", true),
            ("2.1.0", false),
            ("3.0.0", true),
        ] {
            let patched = ["< 2.0.0, >= 1.2.3", "^2.1"].map(str::to_owned).to_vec();
            let vulnerable = Verdict::Vulnerable { patched };
            let wanted = if is_vulnerable { vulnerable } else { Verdict::Unaffected };
            assert_eq!(verdict(version, matter), wanted, "{version}");
        }
    }

    #[test]
    fn kinds_of_advisories_differ() {
        let none = "[versions]\npatched = []";
        assert_eq!(verdict("1.0.0", none), Verdict::Vulnerable { patched: Vec::new() });
        let unsound = format!("informational = \"unsound\"\n{none}");
        assert_eq!(verdict("1.0.0", &unsound), Verdict::Vulnerable { patched: Vec::new() });
        let unmaintained = format!("informational = \"unmaintained\"\n{none}");
        assert_eq!(verdict("1.0.0", &unmaintained), Verdict::Noted("unmaintained".to_owned()));
        let withdrawn = format!("withdrawn = \"2026-01-01\"\n{none}");
        assert_eq!(verdict("1.0.0", &withdrawn), Verdict::Unaffected);
    }

    #[test]
    fn what_cannot_be_read_is_not_passed_over() {
        for matter in ["", "[versions]\npatched = \"1\"", "[versions]\npatched = [\"later\"]"] {
            assert!(matches!(verdict("1.0.0", matter), Verdict::Unreadable(_)), "{matter}");
        }
        let package = Package { name: "x".to_owned(), version: "1.0.0".to_owned() };
        assert!(matches!(judge(&package, "# no matter"), Verdict::Unreadable(_)));
    }

    #[test]
    fn only_packages_of_a_registry_are_compared() {
        let lock = "version = 4\n\n[[package]]\nname = \"telemetry\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"rustls\"\nversion = \"0.23.46\"\n\
                    source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
        let rustls = Package { name: "rustls".to_owned(), version: "0.23.46".to_owned() };
        assert_eq!(locked(lock), [rustls]);
        let ours = include_str!("../../Cargo.lock");
        assert!(locked(ours).iter().any(|package| package.name == "rustls"));
    }

    #[test]
    fn advisories_are_accepted_by_name() {
        let deny =
            "[advisories]\nignore = [{ id = \"RUSTSEC-2026-0001\", reason = \"not called\" }]";
        assert!(accepted(deny).contains("RUSTSEC-2026-0001"));
        assert!(accepted("[advisories]").is_empty());
    }
}
