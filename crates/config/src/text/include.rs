//! `include`: further files of the configuration, put together before anything of it is checked.
//!
//! An included file has sections as the first one has. Its listeners, route tables and clusters follow those of the
//! file that includes it; every other section stands in one file alone. Positions in included files are lines
//! behind the last one of the first file (`Findings::add_file`), so that whatever is reported later names
//! the file in which it stands.

use std::io::{self, ErrorKind};
use std::path::{Path as FilePath, PathBuf};

use crate::findings::{Findings, Path, Position, Problem};
use crate::map::Map;
use crate::outside::{DanglingLink, Outside};
use crate::sections::files::unreadable;
use crate::text::tree::{self, Entry, Node, Value};
use crate::wildcard::is_pattern;

/// Files that a configuration may include.
const FILES_MAX: usize = 1_000;

/// Files that include each other, one within the other.
const DEPTH_MAX: usize = 8;

/// The sections that several files may have a part of.
const LISTS: [&str; 3] = ["listeners", "routes", "clusters"];

const KEY: &str = "include";

/// What stands in an included file without anything.
const EMPTY_HINT: &str = "write `clusters:`, for instance, or remove the file";

/// Puts the files that `root` includes behind what it has, and takes its `include` out.
pub(crate) fn resolve(root: &mut Node, outside: &dyn Outside, findings: &mut Findings<'_>) {
    let Some(wanted) = take(root) else { return };
    let sections = sections_of(root);
    let mut including = Including { outside, seen: Map::default(), count: 0, sections };
    including.follow(root, &wanted, &mut Vec::new(), findings);
}

/// The list of `include`, taken out of the file.
fn take(root: &mut Node) -> Option<Node> {
    let Value::Map(entries) = &mut root.value else { return None };
    let place = entries.iter().position(|entry| &*entry.key == KEY)?;
    Some(entries.remove(place).value)
}

struct Including<'o> {
    outside: &'o dyn Outside,
    /// The files that were taken, whatever they are named by.
    seen: Map<PathBuf, ()>,
    count: usize,
    /// Where the sections stand that there are.
    sections: Map<Box<str>, usize>,
}

impl Including<'_> {
    /// Adds the files that `wanted` lists. `within` are those that are being read.
    fn follow(
        &mut self,
        root: &mut Node,
        wanted: &Node,
        within: &mut Vec<PathBuf>,
        findings: &mut Findings<'_>,
    ) {
        let Value::List(items) = &wanted.value else {
            let hint = "write [conf.d/*.yaml]";
            let problem = Problem::new("a list of paths is needed here", hint);
            return findings.error(
                wanted.at,
                Path::Key(&Path::Root, KEY),
                &wanted.shown(),
                problem,
            );
        };
        for (place, item) in items.iter().enumerate() {
            let list = Path::Key(&Path::Root, KEY);
            let path = Path::Index(&list, place);
            let mut item = item.clone();
            tree::expand(&mut item, self.outside, path, findings);
            if item.is_stand_in {
                continue;
            }
            let found = match item.text() {
                Some(text) if !text.is_empty() => self.find(FilePath::new(text)),
                _ => Err(Problem::new("the path of a file is needed here", "write conf.d/*.yaml")),
            };
            match found {
                Ok(files) => {
                    for file in files {
                        self.add(root, &file, (&item, path), within, findings);
                    }
                }
                Err(problem) => findings.error(item.at, path, &item.shown(), problem),
            }
        }
    }

    /// The files that a path names: one, or those that fit a pattern, in the order of their names.
    fn find(&self, path: &FilePath) -> Result<Vec<PathBuf>, Problem> {
        if path.parent().is_some_and(|parent| parent.to_string_lossy().contains(['*', '?'])) {
            let rule = "a folder name cannot be a pattern";
            return Err(Problem::new(rule, "write one path for each folder"));
        }
        match is_pattern(path) {
            true => self.outside.list(path).map_err(|error| self.unreadable(path, &error)),
            false => Ok(vec![path.to_owned()]),
        }
    }

    /// Why there is nothing to read at this path, which may be a pattern.
    fn unreadable(&self, path: &FilePath, error: &io::Error) -> Problem {
        let name = self.outside.name(path);
        let folder = FilePath::new(&name).parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| FilePath::new("."));
        match error.kind() {
            ErrorKind::NotFound if DanglingLink::is_in(error) => Problem::new(
                format!("there is no {name}: {error}"),
                "mend the link, or write another path",
            ),
            ErrorKind::NotFound if is_pattern(path) => Problem::new(
                format!("there is no folder {} in which files could match", folder.display()),
                "create it, it may be empty; relative paths begin at the folder of the main configuration file",
            ),
            ErrorKind::NotFound => Problem::new(
                format!("there is no file {name}"),
                "create it, or remove the entry; relative paths begin at the folder of the main configuration file",
            ),
            ErrorKind::NotADirectory => Problem::new(
                format!("{} is a file, and no folder with files in it", folder.display()),
                "write the path of the folder",
            ),
            ErrorKind::IsADirectory => Problem::new(
                format!("{name} is a folder"),
                format!("write {} for the files in it", path.join("*.yaml").display()),
            ),
            _ => {
                let Problem { rule, hint } = unreadable(error);
                Problem::new(format!("{name}: {rule}"), hint)
            }
        }
    }

    fn add(
        &mut self,
        root: &mut Node,
        file: &FilePath,
        (item, path): (&Node, Path<'_>),
        within: &mut Vec<PathBuf>,
        findings: &mut Findings<'_>,
    ) {
        let real = self.outside.real_name(&self.outside.name(file));
        let is_first = real == self.outside.real_name(findings.file());
        let mut refuse = |rule: String, hint: &'static str| {
            findings.error(item.at, path, &item.shown(), Problem::new(rule, hint));
        };
        if is_first || within.contains(&real) {
            let rule = format!("{} includes itself, by this or through others", file.display());
            return refuse(rule, "remove one of the two");
        }
        if self.seen.contains_key(&real) {
            let rule = format!("{} is included twice", file.display());
            return refuse(rule, "remove one of the two, or let the pattern fit fewer names");
        }
        if within.len() >= DEPTH_MAX {
            let rule = format!("files include each other up to {DEPTH_MAX} deep");
            return refuse(rule, "include it from the first file");
        }
        self.count += 1;
        if self.count > FILES_MAX {
            // A pattern may have thousands more: the first says enough.
            if self.count == FILES_MAX + 1 {
                let rule = format!(
                    "a configuration may include {FILES_MAX} files, and {} is one more",
                    file.display()
                );
                refuse(rule, "put some of them together");
            }
            return;
        }
        let content = match self.outside.read_included(file) {
            Ok(content) => content,
            Err(error) => {
                let problem = self.unreadable(file, &error);
                return findings.error(item.at, path, &item.shown(), problem);
            }
        };
        self.seen.insert(real.clone(), ());
        let name = self.outside.name(file);
        let text = String::from_utf8_lossy(&content).into_owned();
        // What cannot be read at all is reported with places of that file alone.
        let mut own = Findings::new(&name, &text);
        let read = tree::read(&text, EMPTY_HINT, &mut own);
        match own.into_result() {
            Ok(warnings) => findings.absorb_warnings(&warnings),
            Err(errors) => findings.absorb(errors),
        }
        let Some(mut included) = read else { return };
        shift(&mut included, findings.add_file(&name, &text));
        let wanted = take(&mut included);
        self.merge(root, included, findings);
        if let Some(wanted) = wanted {
            within.push(real);
            self.follow(root, &wanted, within, findings);
            within.pop();
        }
    }

    /// Puts the sections of an included file behind those that there are.
    fn merge(&mut self, root: &mut Node, included: Node, findings: &mut Findings<'_>) {
        let Value::Map(sections) = included.value else {
            let problem =
                Problem::new("an included file has sections", "write `clusters:`, for instance");
            return findings.error(included.at, Path::Root, &included.shown(), problem);
        };
        let Value::Map(entries) = &mut root.value else { return };
        for section in sections {
            let place = self.sections.get(&section.key);
            match place.and_then(|place| entries.get_mut(*place)) {
                None => {
                    self.sections.insert(section.key.clone(), entries.len());
                    entries.push(section);
                }
                Some(known) => add_section(known, section, findings),
            }
        }
    }
}

/// Where each section of a file stands.
fn sections_of(root: &Node) -> Map<Box<str>, usize> {
    let Value::Map(entries) = &root.value else { return Map::default() };
    entries.iter().enumerate().map(|(place, entry)| (entry.key.clone(), place)).collect()
}

/// Moves all places so many lines down.
fn shift(node: &mut Node, lines: u32) {
    let down = |at: &mut Position| at.line = at.line.saturating_add(lines);
    down(&mut node.at);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        Value::Map(entries) => {
            for entry in entries {
                down(&mut entry.key_at);
                shift(&mut entry.value, lines);
            }
        }
        Value::Scalar { .. } | Value::Cut => {}
    }
}

fn add_section(known: &mut Entry, section: Entry, findings: &mut Findings<'_>) {
    let is_list = LISTS.contains(&&*section.key);
    match (&mut known.value.value, section.value.value) {
        (Value::List(items), Value::List(more)) if is_list => items.extend(more),
        // What is no list is reported where it stands, by whichever file is first.
        (Value::List(_), _) if is_list => {
            let problem = Problem::new("a list is needed here", "begin each entry with `- `");
            findings.key_error(section.key_at, Path::Key(&Path::Root, &section.key), problem);
        }
        (_, _) if is_list => {}
        _ => {
            let line = findings.line_name(known.key_at.line);
            let rule = "this section may occur in one file only";
            let problem = Problem::new(rule, format!("{line} has it already; put them together"));
            findings.key_error(section.key_at, Path::Key(&Path::Root, &section.key), problem);
        }
    }
}
