//! Names of entries: which are declared, what they stand for, and which are used.

use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::nearest;
use crate::text::tree::{Node, Site};

/// The names that a section declares, whether their entries are sound or not.
pub(crate) struct Declared {
    names: Vec<Box<str>>,
    /// Whether each entry has a name that can be read. If not, a name that is not found may be
    /// the unreadable one, and it is not reported.
    is_complete: bool,
}

impl Declared {
    /// The names, to be looked up.
    pub(crate) fn set(&self) -> Map<&str, ()> {
        self.names.iter().map(|name| (&**name, ())).collect()
    }

    /// Reads the names of `section` before anything is cut.
    pub(crate) fn read(root: &Node, section: &str) -> Self {
        let Some(section) = root.find(section) else {
            return Self { names: Vec::new(), is_complete: true };
        };
        let names = section.items().iter().filter_map(|item| {
            let name = item.find("name").filter(|name| !name.is_stand_in)?;
            name.text()
        });
        let names: Vec<Box<str>> = names.map(Box::from).collect();
        let is_list = matches!(section.value, crate::text::tree::Value::List(_));
        let is_complete = is_list && names.len() == section.items().len();
        Self { names, is_complete }
    }
}

/// The names of a section with what they stand for, and which of them were referred to.
pub(crate) struct Names<'a, T> {
    pub(crate) declared: &'a Declared,
    pub(crate) known: Map<&'a str, (T, bool)>,
    /// What may come from elsewhere than the text.
    pub(crate) others: Map<Box<str>, T>,
    /// What comes from elsewhere and stands for several, or for none.
    pub(crate) groups: Map<Box<str>, Vec<T>>,
}

/// No names.
static NONE_DECLARED: Declared = Declared { names: Vec::new(), is_complete: true };

impl<T: Copy> Names<'static, T> {
    /// Names of which the text has none.
    pub(crate) fn elsewhere(others: Map<Box<str>, T>, groups: Map<Box<str>, Vec<T>>) -> Self {
        Self { declared: &NONE_DECLARED, known: Map::default(), others, groups }
    }
}

impl<'a, T: Copy> Names<'a, T> {
    pub(crate) fn new(declared: &'a Declared, mut value: impl FnMut(&'a str) -> T) -> Self {
        let mut known = Map::default();
        for name in &declared.names {
            known.insert(name.as_ref(), (value(name), false));
        }
        Self { declared, known, others: Map::default(), groups: Map::default() }
    }

    /// All that `name` stands for; a name without a declaration is reported at `site`.
    pub(crate) fn resolve_all(
        &mut self,
        name: &str,
        what: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Vec<T> {
        match self.groups.get(name) {
            Some(group) => group.clone(),
            None => self.resolve(name, what, site, findings).into_iter().collect(),
        }
    }

    /// What `name` stands for; a name without a declaration is reported at `site`.
    pub(crate) fn resolve(
        &mut self,
        name: &str,
        what: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        if let Some((value, is_used)) = self.known.get_mut(name) {
            *is_used = true;
            return Some(*value);
        }
        if let Some(value) = self.others.get(name) {
            return Some(*value);
        }
        if self.declared.is_complete {
            let names = self.declared.names.iter().map(AsRef::as_ref);
            let hint = match findings.has_room() {
                true => nearest::hint(name, names, "none is declared in this file"),
                false => String::new(),
            };
            site.error(findings, Problem::new(format!("no {what} has this name"), hint));
        }
        None
    }

    /// All names, each of which counts as used from here on.
    pub(crate) fn use_all(&mut self) -> impl Iterator<Item = (&str, T)> {
        self.known.iter_mut().map(|(name, (value, is_used))| {
            *is_used = true;
            (*name, *value)
        })
    }

    /// Counts `name` as used.
    pub(crate) fn note_use(&mut self, name: &str) {
        if let Some((_, is_used)) = self.known.get_mut(name) {
            *is_used = true;
        }
    }

    pub(crate) fn is_used(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|(_, is_used)| *is_used)
    }
}

/// Names of entries of one section, to find one that stands twice.
#[derive(Default)]
pub(crate) struct Once(Map<Box<str>, u32>);

impl Once {
    /// Whether `name` is sound and new; otherwise reports why not.
    pub(crate) fn check(
        &mut self,
        name: &str,
        what: &str,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> bool {
        let site = site.key("name");
        if let Err(problem) = check_name(name) {
            site.error(findings, problem);
            return false;
        }
        match self.0.get(name) {
            Some(line) => {
                let line = findings.line_name(*line);
                let hint = format!("{line} has it already; choose another name");
                site.error(findings, Problem::new(format!("each {what} has its own name"), hint));
                false
            }
            None => {
                self.0.insert(name.into(), site.at().line);
                true
            }
        }
    }
}

/// Bytes of a name: it becomes a label of every metric.
pub(crate) const NAME_BYTES_MAX: usize = 1024;

pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let is_sound = |c: char| !c.is_control() && !c.is_whitespace();
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_sound) {
        return Ok(());
    }
    let rule = match name.contains(char::is_control) {
        true => "a name has no control characters".to_owned(),
        false => format!("a name has 1 to {NAME_BYTES_MAX} bytes and no spaces"),
    };
    Err(Problem::new(rule, "write something like shop-api"))
}
