//! What sources other than files gave last, in the folder `state`: a start whose sources are silent serves it.
//!
//! Control notes what changes ([`Keeper::note`]) and waits for no disk. A thread of its own puts changes together and
//! replaces the file, at most one at a time ([`keeper`]). What the file says is taken whole or not at all ([`form`]), and
//! who may have written it is looked at before that ([`disk`]).

mod delivered;
mod disk;
mod form;
mod keeper;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::{DnsAnswer, DnsFamily, DnsMode, DnsName};
use config::{ResourceName, Text};

pub use self::delivered::{DeliveredError, DeliveredResources};
pub(crate) use self::delivered::{Divided, Resumed, ResumedPart};
pub(crate) use self::keeper::Keeper;
use crate::clock;

/// The last good answers of all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastGood {
    pub(crate) answers: BTreeMap<NameKey, KeptAnswer>,
    /// What was accepted last.
    pub(crate) resources: BTreeMap<ResourceKey, KeptResource>,
    /// What serves in place of that, if anything does: a version before it, while it waits for something, or although it is
    /// gone.
    pub(crate) serving: BTreeMap<ResourceKey, Option<KeptResource>>,
    /// Why there is nothing of a former process although it left something, if that is so.
    pub(crate) unusable: Option<String>,
}

impl LastGood {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.resources.is_empty() && self.serving.is_empty()
    }
}

/// A host name with all that decides about its answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameKey {
    host: Arc<str>,
    port: Option<NonZeroU16>,
    mode: DnsMode,
    family: DnsFamily,
}

impl From<&DnsName> for NameKey {
    fn from(name: &DnsName) -> Self {
        let DnsName { host, port, mode, family, .. } = name;
        Self { host: Arc::clone(host), port: *port, mode: *mode, family: *family }
    }
}

/// What a host name stands for: at least one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    pub(crate) endpoints: DnsAnswer,
    /// When DNS said so last; wall-clock time, ns.
    pub(crate) at: u64,
}

/// A resource of a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceKey {
    pub(crate) source: Arc<str>,
    pub(crate) name: ResourceName,
}

/// The version of it that was accepted last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptResource {
    pub(crate) version: Arc<str>,
    pub(crate) content: Text,
    /// When it was accepted; wall-clock time, ns.
    pub(crate) at: u64,
}

/// What is another; none for what is gone.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Answer(NameKey, Option<KeptAnswer>),
    Resource(ResourceKey, Option<KeptResource>, Serves),
    /// What a source gave last of it serves from now on.
    Serves(ResourceKey),
}

/// Which version of a resource serves after a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// That which the source gave last; none if it is gone.
    Last,
    /// That which served before.
    Former,
}

/// What changes of a resource. Of several changes that wait, one is made.
#[derive(Clone, Debug)]
struct ResourceChange {
    /// What was accepted last, if that is another; none if it is gone.
    last: Option<Option<KeptResource>>,
    before: Before,
}

/// What serves in place of what was accepted last.
#[derive(Clone, Debug)]
enum Before {
    /// Nothing does.
    Nothing,
    /// What served before the change.
    AsItWas,
    /// What was accepted last before the change.
    FormerLast,
    /// A version that came before another one, if there was one.
    Version(Option<KeptResource>),
}

impl ResourceChange {
    fn new(last: Option<KeptResource>, serves: Serves) -> Self {
        let before = match serves {
            Serves::Last => Before::Nothing,
            Serves::Former => Before::AsItWas,
        };
        Self { last: Some(last), before }
    }

    /// Leaves out versions that are not to be kept.
    fn retain(&mut self, is_kept: impl Fn(&KeptResource) -> bool) {
        if let Some(last) = &mut self.last {
            last.take_if(|it| !is_kept(it));
        }
        if let Before::Version(version) = &mut self.before {
            version.take_if(|it| !is_kept(it));
        }
    }

    const fn serves() -> Self {
        Self { last: None, before: Before::Nothing }
    }

    /// This change, and behind it a later one.
    fn then(self, later: Self) -> Self {
        let Self { last, before } = self;
        let before = match (later.before, before) {
            (Before::AsItWas, Before::Nothing) => match &last {
                Some(served) => Before::Version(served.clone()),
                None => Before::FormerLast,
            },
            (Before::AsItWas, before) => before,
            (later, _) => later,
        };
        Self { last: later.last.or(last), before }
    }
}

impl LastGood {
    /// What a former process left in `folder`. What cannot be used is warned about, and is as nothing.
    pub(crate) fn read(folder: &Path) -> Self {
        match disk::read(folder) {
            Ok(found) => found.unwrap_or_default(),
            Err(unusable) => {
                tracing::warn!("{unusable}");
                Self { unusable: Some(unusable.to_string()), ..Self::default() }
            }
        }
    }

    /// Makes a change of a resource.
    fn apply(&mut self, change: Change) {
        match change {
            Change::Answer(..) => {}
            Change::Resource(key, kept, serves) => {
                self.change(key, ResourceChange::new(kept, serves));
            }
            Change::Serves(key) => self.change(key, ResourceChange::serves()),
        }
    }

    fn change(&mut self, key: ResourceKey, change: ResourceChange) {
        match change.before {
            Before::Nothing => drop(self.serving.remove(&key)),
            Before::AsItWas => {
                let served = self.resources.get(&key);
                self.serving.entry(key.clone()).or_insert_with(|| served.cloned());
            }
            Before::FormerLast => {
                let served = self.resources.get(&key).cloned();
                self.serving.insert(key.clone(), served);
            }
            Before::Version(served) => drop(self.serving.insert(key.clone(), served)),
        }
        match change.last {
            Some(Some(last)) => drop(self.resources.insert(key, last)),
            Some(None) => drop(self.resources.remove(&key)),
            None => {}
        }
    }

    /// What a host name stood for.
    pub(crate) fn answer(&self, name: &DnsName) -> Option<&KeptAnswer> {
        self.answers.get(&NameKey::from(name))
    }
}

/// How long ago something was accepted, to the second; not known where the clock is behind that, as it is on a machine that
/// begins without the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(Option<Duration>);

impl Age {
    /// Of a moment, wall-clock time in ns.
    pub(crate) fn of(at: u64) -> Self {
        let passed = clock::wall_ns().checked_sub(at);
        Self(passed.map(|passed| Duration::from_secs(passed / 1_000_000_000)))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(age) => write!(f, "{age:?} ago"),
            None => f.write_str("at an unknown time, because the clock is behind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use config::ResourceKind;

    use super::*;

    /// Whatever part of the changes is put together before it is made, the file says the same.
    #[test]
    fn changes_that_wait_come_to_what_they_are_one_by_one() {
        let key = || ResourceKey {
            source: "folder".into(),
            name: ResourceName::new(ResourceKind::Cluster, "web"),
        };
        let version = |version: &str| KeptResource {
            version: version.into(),
            content: version.into(),
            at: 1,
        };
        let some = |it: &str, serves| ResourceChange::new(Some(version(it)), serves);
        let none = |serves| ResourceChange::new(None, serves);
        // Of each, the last version and the one that serves in its place.
        for (changes, last, served) in [
            (vec![some("1", Serves::Last)], Some("1"), None),
            (vec![some("1", Serves::Former)], Some("1"), None),
            (vec![some("1", Serves::Last), some("2", Serves::Former)], Some("2"), Some("1")),
            (
                vec![some("1", Serves::Last), some("2", Serves::Former), some("3", Serves::Former)],
                Some("3"),
                Some("1"),
            ),
            (
                vec![
                    some("1", Serves::Last),
                    some("2", Serves::Former),
                    ResourceChange::serves(),
                    some("3", Serves::Former),
                ],
                Some("3"),
                Some("2"),
            ),
            (vec![some("1", Serves::Last), none(Serves::Former)], None, Some("1")),
            (
                vec![some("1", Serves::Last), none(Serves::Former), ResourceChange::serves()],
                None,
                None,
            ),
            (vec![some("1", Serves::Last), none(Serves::Last)], None, None),
            (
                vec![some("1", Serves::Last), none(Serves::Former), some("2", Serves::Last)],
                Some("2"),
                None,
            ),
            (
                vec![none(Serves::Last), some("1", Serves::Former), some("2", Serves::Former)],
                Some("2"),
                None,
            ),
        ] {
            for split in 0..=changes.len() {
                let mut kept = LastGood::default();
                let (first, second) = changes.split_at(split);
                for part in [first, second] {
                    let all = part.iter().cloned().reduce(ResourceChange::then);
                    all.into_iter().for_each(|change| kept.change(key(), change));
                }
                let version = |it: &KeptResource| it.version.to_string();
                let serving = kept.serving.get(&key()).and_then(Option::as_ref);
                let both = (kept.resources.get(&key()).map(version), serving.map(version));
                let expected = (last.map(str::to_owned), served.map(str::to_owned));
                assert_eq!(both, expected, "{changes:?} at {split}");
            }
        }
    }
}
