//! `runtime`: values that operators change while the process runs.
//!
//! A value has a name, by which rules ask for it (`fraction: { percent: 10, runtime: canary }`). The file gives it
//! (`runtime: { canary: 5 }`), the admin interface may put another over that, and a rule has its own `percent` where neither
//! does. What stands in the file is part of the tables that ask for it, as everything else is. What the admin
//! interface puts over it is a cell that all snapshots share: workers read it, with one relaxed load, when they look at the
//! rule, so that it counts for the next request and makes no snapshot. It lasts until it is taken back, the process ends
//! without a handover, or no rule asks for the name any more.

pub(crate) mod build;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::nearest;
use crate::percent::Percent;

/// What the admin interface has put over a value of the file.
pub struct RuntimeCell {
    name: Box<str>,
    /// Millionths, or [`NONE`].
    over: AtomicU32,
}

/// Nothing was put over the value.
const NONE: u32 = u32::MAX;

impl RuntimeCell {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), over: AtomicU32::new(NONE) }
    }

    /// Its name in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was put over the value, if anything was.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<Percent> {
        Percent::of_millionths(self.over.load(Ordering::Relaxed))
    }

    fn set(&self, value: Option<Percent>) {
        self.over.store(value.map_or(NONE, Percent::millionths), Ordering::Relaxed);
    }
}

impl PartialEq for RuntimeCell {
    /// Whether both are of one name: what is put over it is no part of a configuration.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RuntimeCell {}

impl fmt::Debug for RuntimeCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuntimeCell").field(&self.name).finish()
    }
}

/// A share that a rule takes, and the value that may stand in for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// As the rule has it.
    pub percent: Percent,
    /// The value that goes before it, if the rule names one.
    pub runtime: Option<RuntimeUse>,
}

/// A value of `runtime` that a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeUse {
    /// As the file has it, if it does.
    pub file: Option<Percent>,
    /// What goes before that.
    pub cell: Arc<RuntimeCell>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeFrom {
    /// From the admin interface.
    Admin,
    /// From `runtime` of the file.
    File,
    /// From the rules: each has its own `percent`.
    Rules,
}

impl RuntimeFrom {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::File => "file",
            Self::Rules => "rules",
        }
    }
}

impl RuntimeUse {
    /// The value, if there is one, and where it comes from.
    #[must_use]
    #[inline]
    pub fn value(&self) -> (Option<Percent>, RuntimeFrom) {
        match (self.cell.get(), self.file) {
            (Some(over), _) => (Some(over), RuntimeFrom::Admin),
            (None, Some(file)) => (Some(file), RuntimeFrom::File),
            (None, None) => (None, RuntimeFrom::Rules),
        }
    }
}

impl Fraction {
    /// The share that counts now.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Percent {
        let runtime = self.runtime.as_ref().and_then(|used| used.value().0);
        runtime.unwrap_or(self.percent)
    }

    /// The share that counts now, and why, for `strait explain`.
    #[must_use]
    pub fn shown(&self) -> String {
        let now = self.now();
        let Some(used) = &self.runtime else { return now.to_string() };
        let name = used.cell.name();
        match used.value().1 {
            RuntimeFrom::Admin => format!("{now}, as the admin interface says of runtime {name}"),
            RuntimeFrom::File => format!("{now}, as the file says of runtime {name}"),
            RuntimeFrom::Rules => format!("{now}, since runtime {name} has no value"),
        }
    }
}

impl fmt::Display for Fraction {
    /// The same for what asks for the same, whatever the values are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fraction {}", self.percent)?;
        match &self.runtime {
            Some(used) => write!(f, " or runtime {}", used.cell.name()),
            None => Ok(()),
        }
    }
}

/// The values that rules of a snapshot ask for, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime(BTreeMap<Box<str>, RuntimeUse>);

impl Runtime {
    pub(crate) fn new<'u>(used: impl IntoIterator<Item = &'u RuntimeUse>) -> Self {
        Self(used.into_iter().map(|used| (used.cell.name.clone(), used.clone())).collect())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&RuntimeUse> {
        self.0.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &RuntimeUse> {
        self.0.values()
    }

    /// Puts values over those of the file, or takes them back: all of these, or none if something is wrong with one.
    ///
    /// # Errors
    ///
    /// Which of them nothing uses, and what was probably meant.
    pub fn put_over(&self, values: &[(String, Option<Percent>)]) -> Result<(), String> {
        for (name, _) in values {
            if self.find(name).is_none() {
                let names = self.0.keys().map(AsRef::as_ref);
                let hint = nearest::hint(name, names, "no rule has `runtime` in its `fraction`");
                return Err(format!("no rule uses runtime {name:?}; {hint}"));
            }
        }
        for (name, value) in values {
            if let Some(used) = self.find(name) {
                used.cell.set(*value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> Percent {
        text.parse().expect("a share")
    }

    fn fraction(file: Option<&str>) -> Fraction {
        let cell = Arc::new(RuntimeCell::new("canary"));
        let runtime = Some(RuntimeUse { file: file.map(percent), cell });
        Fraction { percent: percent("10"), runtime }
    }

    #[test]
    fn the_admin_interface_goes_before_the_file_and_that_before_the_rule() {
        for (file, without) in [(Some("5"), "5"), (None, "10"), (Some("0"), "0")] {
            let fraction = fraction(file);
            let runtime = Runtime::new(&fraction.runtime);
            assert_eq!(fraction.now(), percent(without));
            for over in ["50", "0", "100", "0.0001"] {
                runtime.put_over(&[("canary".into(), Some(percent(over)))]).expect("it is used");
                assert_eq!(fraction.now(), percent(over), "{}", fraction.shown());
                assert!(fraction.shown().contains("admin"));
            }
            runtime.put_over(&[("canary".into(), None)]).expect("it is used");
            assert_eq!(fraction.now(), percent(without), "{}", fraction.shown());
        }
    }

    #[test]
    fn nothing_is_put_over_values_of_which_one_is_unknown() {
        let fraction = fraction(None);
        let runtime = Runtime::new(&fraction.runtime);
        let fifty = Some(percent("50"));
        let error = runtime.put_over(&[("canary".into(), fifty), ("canery".into(), fifty)]);
        let error = error.expect_err("nothing uses it");
        assert!(error.contains("did you mean `canary`?"), "{error}");
        assert_eq!(fraction.now(), percent("10"));
        let none = Runtime::default().put_over(&[("x".into(), None)]).expect_err("there are none");
        assert!(none.contains("no rule has"), "{none}");
    }
}
