//! What changes at run time beside the configuration, and is one for the process: a cell that all snapshots and workers share,
//! if the configuration asks for it.

use std::fmt;
use std::sync::Arc;

/// A cell, or none. It stays while what it belongs to does, and takes no memory where none is asked for.
pub struct SharedCell<T>(Option<Arc<T>>);

impl<T> SharedCell<T> {
    /// A new cell with this value, or none.
    pub(crate) fn with(value: Option<T>) -> Self {
        Self(value.map(Arc::new))
    }

    /// What it holds.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// Whether both are the same one, or none.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl<T: Default> SharedCell<T> {
    /// A new cell, or that of `former`; none if none is asked for.
    pub(crate) fn new(is_asked: bool, former: Option<&Self>) -> Self {
        if !is_asked {
            return Self::default();
        }
        Self(former.and_then(|former| former.0.clone()).or_else(|| Some(Arc::default())))
    }
}

impl<T> Clone for SharedCell<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for SharedCell<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> PartialEq for SharedCell<T> {
    /// Whether both are there, or none is: what a cell holds is no part of a configuration.
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}

impl<T> Eq for SharedCell<T> {}

impl<T> fmt::Debug for SharedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedCell").field(&self.0.is_some()).finish()
    }
}
