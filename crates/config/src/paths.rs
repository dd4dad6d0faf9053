//! Path ⇒ the first rule that matches, at a cost that does not depend on the number of rules.

/// Index over the paths of a route table's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTable {}

impl PathTable {
    /// The index of the first rule that matches `path`, which is normalised and has no query.
    #[must_use]
    pub fn find(&self, _path: &[u8]) -> Option<usize> {
        None
    }
}
