//! Warnings of one entry that are kept, so that they can be given again while the entry stays as it is.
//!
//! An entry that is not lowered again may stand somewhere else by then: in another place of its list, on another line, in another
//! file. A kept warning therefore has the way from its entry to the value that looks like a mistake, and no place.

use std::sync::Arc;

use super::{Path, Problem};

/// A warning, and the entry that it is of.
#[derive(Debug)]
pub(crate) struct EntryWarning {
    /// The section of the entry.
    pub(crate) section: Box<str>,
    /// The place of the entry in it, from 0.
    pub(crate) place: usize,
    pub(crate) kept: KeptWarning,
}

/// A warning of an entry, wherever that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptWarning {
    /// From the entry to the value.
    pub(crate) way: Arc<[Step]>,
    pub(crate) problem: Problem,
}

/// One step from a value to what stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(Box<str>),
    /// The place in a list, from 0.
    Index(usize),
}

impl EntryWarning {
    /// A warning at `path`, if that leads to an entry or into one.
    pub(super) fn new(path: Path<'_>, problem: &Problem) -> Option<Self> {
        let (mut way, mut at) = (Vec::new(), path);
        loop {
            at = match at {
                Path::Index(Path::Key(Path::Root, section), place) => {
                    way.reverse();
                    let kept = KeptWarning { way: way.into(), problem: problem.clone() };
                    return Some(Self { section: (*section).into(), place, kept });
                }
                Path::Root => return None,
                Path::Key(parent, key) => {
                    way.push(Step::Key(key.into()));
                    *parent
                }
                Path::Index(parent, place) => {
                    way.push(Step::Index(place));
                    *parent
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_of_the_entry_that_its_path_leads_into() {
        let problem = Problem::new("no", "yes");
        let clusters = Path::Key(&Path::Root, "clusters");
        let entry = Path::Index(&clusters, 3);
        let endpoints = Path::Key(&entry, "endpoints");
        let weight = Path::Index(&endpoints, 1);
        let weight = Path::Key(&weight, "weight");
        let found = |path| {
            let warning = EntryWarning::new(path, &problem)?;
            Some((warning.section, warning.place, warning.kept.way.to_vec()))
        };
        let way = vec![Step::Key("endpoints".into()), Step::Index(1), Step::Key("weight".into())];
        assert_eq!(found(weight), Some(("clusters".into(), 3, way)));
        assert_eq!(found(entry), Some(("clusters".into(), 3, vec![])));
        assert_eq!(found(clusters), None);
        assert_eq!(found(Path::Index(&Path::Root, 3)), None);
    }
}
