//! A rule's condition on the path, which is normalised and has no query.

use std::fmt;
use std::sync::Arc;

use super::regexes::{Regexes, Searches};
use super::template::Template;
use super::value::Case;

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMatch {
    /// As it stands in the file, in the one spelling that paths have.
    pub text: Arc<str>,
    /// How a path is compared with it.
    pub how: PathKind,
    /// Whether upper and lower case of ASCII letters differ.
    pub case: Case,
}

/// How a path is compared with the text of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// It is the text.
    Exact,
    /// It begins with the text, byte by byte as in Envoy.
    Prefix,
    /// It is the text, or goes on behind it with a slash.
    Segments,
    /// The regular expression at this place among the table's matches all of it.
    Regex(u32),
    /// It has the form of the template, whose expression has this place.
    Template(u32, Arc<Template>),
}

impl PathMatch {
    /// Whether `path` is matched. `regexes` are those of the table's paths.
    ///
    /// This is the meaning of a rule's path; [`crate::resource::route::paths::PathTable`] is the same for many rules at once.
    pub fn matches(&self, path: &[u8], regexes: &Arc<Regexes>, searches: &mut Searches) -> bool {
        match self.how {
            PathKind::Exact => self.is_same(path),
            // `OPTIONS *` asks the server as a whole, which is what `/` stands for.
            PathKind::Prefix if path == b"*" => *self.text == *"/",
            PathKind::Prefix => self.begins(path).is_some(),
            PathKind::Segments => {
                self.begins(path).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
            }
            PathKind::Regex(place) | PathKind::Template(place, _) => {
                searches.is_match(regexes, place, path)
            }
        }
    }

    /// The bytes of a path that it matches which a new prefix takes the place of: all of them, unless it matches
    /// only the beginning.
    #[must_use]
    pub fn replaced_len(&self, path: &[u8]) -> usize {
        match self.how {
            PathKind::Prefix | PathKind::Segments => self.text.len().min(path.len()),
            PathKind::Exact | PathKind::Regex(_) | PathKind::Template(..) => path.len(),
        }
    }

    /// The key that it stands under in a file.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self.how {
            PathKind::Exact => "path",
            PathKind::Prefix => "prefix",
            PathKind::Segments => "segments",
            PathKind::Regex(_) => "regex",
            PathKind::Template(..) => "template",
        }
    }

    /// What is to be said of a path that it does not match.
    pub(crate) const fn mismatch(&self) -> &'static str {
        match self.how {
            PathKind::Exact => "the path is another one",
            PathKind::Prefix => "the path begins otherwise",
            PathKind::Segments => "the path has other segments",
            PathKind::Regex(_) => "the expression does not match the path",
            PathKind::Template(..) => "the path has another form",
        }
    }

    fn begins<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let (start, rest) = path.split_at_checked(self.text.len())?;
        self.is_same(start).then_some(rest)
    }

    fn is_same(&self, path: &[u8]) -> bool {
        match self.case {
            Case::Sensitive => path == self.text.as_bytes(),
            Case::Insensitive => path.eq_ignore_ascii_case(self.text.as_bytes()),
        }
    }
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key(), self.text)?;
        if self.case == Case::Insensitive { f.write_str(" in any case") } else { Ok(()) }
    }
}
