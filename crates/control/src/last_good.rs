//! What sources other than files gave last, in the folder `state`: a start whose sources are silent serves it.
//!
//! Control notes what changes ([`Keeper::note`]) and waits for no disk. A thread of its own puts changes together and
//! replaces the file, at most one at a time ([`keeper`]). What the file says is taken whole or not at all ([`form`]), and
//! who may have written it is looked at before that ([`disk`]).

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

pub(crate) use self::keeper::Keeper;
use crate::clock;

/// The last good answers of all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastGood {
    pub(crate) answers: BTreeMap<NameKey, KeptAnswer>,
    pub(crate) resources: BTreeMap<ResourceKey, KeptResource>,
}

impl LastGood {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.resources.is_empty()
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
    Resource(ResourceKey, Option<KeptResource>),
}

impl LastGood {
    /// What a former process left in `folder`. What cannot be used is warned about, and is as nothing.
    pub(crate) fn read(folder: &Path) -> Self {
        match disk::read(folder) {
            Ok(found) => found.unwrap_or_default(),
            Err(unusable) => {
                tracing::warn!("{unusable}");
                Self::default()
            }
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
            None => f.write_str("at a time that the clock is behind"),
        }
    }
}
