//! What sources have delivered to a process, for the one that takes its place: what the file in the folder `state` has, in the
//! same form, with keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::snapshot::DnsName;
use config::{ResourceName, Update, Verdict, Waits};
use zeroize::Zeroizing;

use super::form::{decode, encode};
use super::{Change, KeptAnswer, KeptResource, LastGood, NameKey, ResourceKey, Serves};
use crate::source::{Restored, RestoredPart};

/// Resources of sources, each in the version that serves and the one that was accepted last, and what host names stand for.
/// Clones share them.
#[derive(Clone, Debug, Default)]
pub struct DeliveredResources(Arc<LastGood>);

/// Why bytes are no resources: they are damaged, or of another version of the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what it sent of them {0}")]
pub struct DeliveredError(String);

impl DeliveredResources {
    /// What another process reads with [`Self::decode`]; none if there are no resources.
    #[must_use]
    pub fn encode(&self) -> Option<Zeroizing<Vec<u8>>> {
        let LastGood { resources, serving, answers, unusable: _ } = &*self.0;
        if resources.is_empty() && serving.is_empty() && answers.is_empty() {
            return None;
        }
        encode(&self.0).ok()
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    ///
    /// [`DeliveredError`], also if a single byte is another.
    pub fn decode(bytes: &[u8]) -> Result<Self, DeliveredError> {
        let last_good = decode(bytes).map_err(|wrong| DeliveredError(wrong.to_string()))?;
        Ok(Self(Arc::new(last_good)))
    }

    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.resources.len()
    }

    /// Whether there are no resources.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.resources.is_empty() && self.0.serving.is_empty()
    }

    /// The same with what host names stand for.
    pub(crate) fn with_answers(
        mut self,
        answers: impl Iterator<Item = (NameKey, KeptAnswer)>,
    ) -> Self {
        let mut answers = answers.peekable();
        if answers.peek().is_some() {
            Arc::make_mut(&mut self.0).answers.extend(answers);
        }
        self
    }

    /// What a host name stood for.
    pub(crate) fn answer(&self, name: &DnsName) -> Option<&KeptAnswer> {
        self.0.answer(name)
    }

    /// Takes note of a change.
    pub(crate) fn note(&mut self, change: Change) {
        Arc::make_mut(&mut self.0).apply(change);
    }

    /// By source.
    pub(crate) fn divide(&self, sources: &[&'static str]) -> Divided {
        LastGood::clone(&self.0).divide(sources)
    }
}

/// Resources by source.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    /// What a source has to deliver for them to serve as they did.
    pub(crate) parts: BTreeMap<&'static str, Restored>,
    /// Those that serve, with when they were accepted; wall-clock time, ns.
    pub(crate) accepted: BTreeMap<&'static str, BTreeMap<ResourceName, u64>>,
    /// How they come to be in a file again.
    pub(crate) changes: Vec<Change>,
}

impl LastGood {
    /// The resources of these sources.
    pub(crate) fn divide(self, sources: &[&'static str]) -> Divided {
        let mut divided = Divided::default();
        let Divided { parts, accepted, changes } = &mut divided;
        let find = |name: &str| sources.iter().copied().find(|it| *it == name);
        let Self { mut resources, serving, .. } = self;
        let serving = serving.into_iter().filter_map(|(key, kept)| Some((key, kept?)));
        for (key, former) in serving {
            let Some(source) = find(&key.source) else { continue };
            let part = parts.entry(source).or_default();
            let last = resources.remove(&key);
            part.serving.push(update(&key, &former.version, Some(&former)));
            let version = last.as_ref().map_or(&former.version, |last| &last.version);
            part.later.push(update(&key, version, last.as_ref()));
            accepted.entry(source).or_default().insert(key.name.clone(), former.at);
            changes.push(Change::Resource(key.clone(), Some(former), Serves::Last));
            changes.push(Change::Resource(key, last, Serves::Former));
        }
        for (key, last) in resources {
            let Some(source) = find(&key.source) else { continue };
            parts.entry(source).or_default().serving.push(update(&key, &last.version, Some(&last)));
            accepted.entry(source).or_default().insert(key.name.clone(), last.at);
            changes.push(Change::Resource(key, Some(last), Serves::Last));
        }
        divided
    }
}

fn update(key: &ResourceKey, version: &Arc<str>, kept: Option<&KeptResource>) -> Update {
    Update {
        kind: key.name.kind,
        name: (*key.name.name).into(),
        version: Arc::clone(version),
        content: kept.map(|kept| kept.content.clone()),
    }
}

/// What a process began with that had been delivered to the one whose place it takes.
#[derive(Debug, Default)]
pub(crate) struct Resumed {
    pub(crate) delivered: DeliveredResources,
    /// In the order in which they were taken.
    pub(crate) parts: Vec<ResumedPart>,
    /// Of others, with their sources.
    pub(crate) late: Vec<(Arc<str>, Verdict)>,
    /// What waits for something, and for what.
    pub(crate) waits: Vec<Waits>,
}

/// A part of that.
#[derive(Debug)]
pub(crate) struct ResumedPart {
    pub(crate) source: &'static str,
    pub(crate) part: RestoredPart,
    pub(crate) updates: Vec<Update>,
    pub(crate) verdicts: Vec<Verdict>,
}

impl ResumedPart {
    /// Applies what was accepted of it to what a source has.
    pub(crate) fn apply_to(&self, known: &mut BTreeMap<ResourceName, Update>) {
        let accepted = self.verdicts.iter().filter(|verdict| verdict.refused.is_none());
        let accepted: BTreeSet<_> = accepted.map(|verdict| &verdict.name).collect();
        for update in &self.updates {
            let name = ResourceName::new(update.kind, &update.name);
            if !accepted.contains(&name) {
                continue;
            }
            match update.content {
                Some(_) => drop(known.insert(name, update.clone())),
                None => drop(known.remove(&name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::time::Duration;

    use config::ResourceKind;
    use config::snapshot::{DnsFamily, DnsMode};

    use super::*;

    #[test]
    fn what_is_handed_on_has_keys_and_says_which_version_serves() {
        let key = |name: &str| ResourceKey {
            source: "folder".into(),
            name: ResourceName::new(ResourceKind::Secret, name),
        };
        let version = |version: &str| KeptResource {
            version: version.into(),
            content: format!("key {version}").into(),
            at: 7,
        };
        let mut delivered = DeliveredResources::default();
        assert!(delivered.encode().is_none() && delivered.is_empty());
        delivered.note(Change::Resource(key("a"), Some(version("1")), Serves::Last));
        delivered.note(Change::Resource(key("a"), Some(version("2")), Serves::Former));
        delivered.note(Change::Resource(key("b"), Some(version("1")), Serves::Last));
        let shared = delivered.clone();
        delivered.note(Change::Resource(key("b"), None, Serves::Last));
        let read = DeliveredResources::decode(&shared.encode().unwrap()).unwrap();
        assert_eq!((read.len(), &read.0), (2, &shared.0));
        assert!(read.divide(&["other"]).parts.is_empty());
        let Divided { mut parts, accepted, changes } = read.divide(&["other", "folder"]);
        let Restored { serving, later, .. } = parts.remove("folder").unwrap();
        let texts = |updates: Vec<Update>| -> Vec<_> {
            updates.iter().map(|it| it.content.as_deref().map(str::to_owned)).collect()
        };
        assert_eq!(texts(serving), [Some("key 1".to_owned()), Some("key 1".to_owned())]);
        assert_eq!(texts(later), [Some("key 2".to_owned())]);
        assert_eq!(accepted["folder"].len(), 2);
        let mut again = DeliveredResources::default();
        changes.into_iter().for_each(|change| again.note(change));
        assert_eq!(again.0, shared.0);
        let name = DnsName {
            host: "web.test".into(),
            port: NonZeroU16::new(80),
            mode: DnsMode::Strict,
            family: DnsFamily::All,
            ttl_min: Duration::ZERO,
            ttl_max: Duration::ZERO,
        };
        let answer = KeptAnswer { endpoints: [].into(), at: 7 };
        let answers = [(NameKey::from(&name), answer.clone())];
        let alone = DeliveredResources::default().with_answers(answers.into_iter());
        let read = DeliveredResources::decode(&alone.encode().unwrap()).unwrap();
        assert!(read.is_empty());
        assert_eq!(read.answer(&name), Some(&answer));
        let mut bytes = shared.encode().unwrap();
        bytes.pop();
        let error = DeliveredResources::decode(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "what it sent of them is damaged");
    }
}
