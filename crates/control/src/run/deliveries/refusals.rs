//! The resources of sources of which the last version is refused, and why, for the admin interface.
//!
//! A source may have any number of them. The reasons are kept of the first [`REASONS_MAX`], and of the others that they are refused, up
//! to [`REFUSED_MAX`] in all.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{Errors, ResourceKind, ResourceName, Verdict};
use serde_json::{Map, Value, json};

use crate::clock;

/// Refused resources of which the reasons are kept.
const REASONS_MAX: usize = 10_000;

/// Refused resources that are counted and found by name.
const REFUSED_MAX: usize = 100_000;

/// Refused resources that a list of the admin interface has.
const SHOWN_MAX: usize = 100;

/// Bytes of a name, or of a version, that are kept: as many as the longest valid one has.
const KEPT_BYTES_MAX: usize = config::VERSION_BYTES_MAX;

/// A version of a resource that is refused. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::run) struct Refusal {
    version: Arc<str>,
    /// Wall-clock time, ns.
    at: u64,
    /// Why; none if more than [`REASONS_MAX`] were refused before.
    errors: Option<Arc<Errors>>,
}

impl Refusal {
    /// When it was refused, and why.
    pub(in crate::run) fn error_json(&self) -> Value {
        let errors = match &self.errors {
            Some(errors) => json!(errors.errors),
            None => json!([format!(
                "more than {REASONS_MAX} resources of sources are refused, and the reasons of this one were not kept: see the log, or have its source deliver it again once others are accepted"
            )]),
        };
        json!({ "at": clock::rfc3339(self.at), "errors": errors })
    }
}

/// What is refused, by source.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_source: BTreeMap<&'static str, BTreeMap<ResourceName, Refusal>>,
    by_kind: BTreeMap<ResourceKind, usize>,
    len: usize,
    with_reasons: usize,
}

impl Refusals {
    /// Takes note of whether a source's last version of a resource is refused. What is said later of a version before it says
    /// nothing of it.
    pub(super) fn note(&mut self, source: &'static str, verdict: &Verdict, is_late: bool) {
        let Verdict { name, version, refused, .. } = verdict;
        // One that is longer than it may be is refused for that, and is not kept as a whole.
        if name.name.len() > KEPT_BYTES_MAX || version.len() > KEPT_BYTES_MAX {
            let name = ResourceName::new(name.kind, beginning(&name.name));
            let version = beginning(version).into();
            let shorter = Verdict { name, version, ..verdict.clone() };
            return self.note(source, &shorter, is_late);
        }
        let of_source = self.by_source.entry(source).or_default();
        let known = of_source.get(name);
        if is_late && known.is_some_and(|known| known.version != *version) {
            return;
        }
        let is_known = known.is_some();
        if let Some(former) = of_source.remove(name) {
            self.len -= 1;
            self.with_reasons -= usize::from(former.errors.is_some());
            *self.by_kind.entry(name.kind).or_default() -= 1;
        }
        let Some(errors) = refused.as_ref().filter(|_| is_known || self.len < REFUSED_MAX) else {
            return;
        };
        let errors = (self.with_reasons < REASONS_MAX).then(|| Arc::new(errors.clone()));
        self.len += 1;
        self.with_reasons += usize::from(errors.is_some());
        *self.by_kind.entry(name.kind).or_default() += 1;
        let refusal = Refusal { version: Arc::clone(version), at: clock::wall_ns(), errors };
        of_source.insert(name.clone(), refusal);
    }

    /// What this source was refused of a resource, or without one what the first of them was.
    pub(super) fn find(&self, source: Option<&str>, name: &ResourceName) -> Option<&Refusal> {
        match source {
            Some(source) => self.by_source.get(source)?.get(name),
            None => self.by_source.values().find_map(|of_source| of_source.get(name)),
        }
    }

    /// How many resources a source was refused.
    pub(super) fn len_of(&self, source: &str) -> usize {
        self.by_source.get(source).map_or(0, BTreeMap::len)
    }

    /// How many of a kind are refused.
    pub(super) fn len_of_kind(&self, kind: ResourceKind) -> usize {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }

    /// The first ones of a source, or of all sources.
    pub(super) fn shown(&self, source: Option<&str>) -> ShownRefusals {
        let sources =
            self.by_source.iter().filter(|(it, _)| source.is_none_or(|only| only == **it));
        let all =
            sources.flat_map(|(source, of_source)| of_source.iter().map(move |it| (*source, it)));
        let first = all.take(SHOWN_MAX);
        let first = first.map(|(source, (name, refusal))| (source, name.clone(), refusal.clone()));
        ShownRefusals {
            count: source.map_or(self.len, |source| self.len_of(source)),
            first: first.collect(),
        }
    }
}

/// Refused resources that a page shows: a copy, to be put in words on another thread.
#[derive(Clone, Debug)]
pub(in crate::run) struct ShownRefusals {
    /// How many there are, with those that are not shown.
    count: usize,
    /// At most [`SHOWN_MAX`].
    first: Vec<(&'static str, ResourceName, Refusal)>,
}

impl ShownRefusals {
    /// Adds them to what a page has, with how many they are in all.
    pub(in crate::run) fn add_to(&self, page: &mut Map<String, Value>) {
        let first = self.first.iter().map(|(source, name, refusal)| {
            let mut shown = json!({
                "source": source,
                "resource": name.to_string(),
                "version": refusal.version,
            });
            if let (Value::Object(shown), Value::Object(error)) = (&mut shown, refusal.error_json())
            {
                shown.extend(error);
            }
            shown
        });
        page.insert("refused_count".to_owned(), json!(self.count));
        page.insert("refused".to_owned(), first.collect());
    }
}

/// As much of a name or of a version as is kept.
fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(KEPT_BYTES_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &str, refused: Option<&Errors>) -> Verdict {
        Verdict {
            name: ResourceName::new(ResourceKind::Cluster, name),
            version: "7".into(),
            waits_for: Vec::new(),
            missing: Vec::new(),
            refused: refused.cloned(),
        }
    }

    fn errors() -> Errors {
        Errors { errors: Vec::new(), more: 0 }
    }

    fn page(refusals: &Refusals, source: Option<&str>) -> Value {
        let mut page = Map::new();
        refusals.shown(source).add_to(&mut page);
        page.into()
    }

    #[test]
    fn refusals_are_shown_with_their_source_and_their_number_in_all() {
        let mut refusals = Refusals::default();
        for n in 0..150 {
            refusals.note("one", &verdict(&format!("c{n:03}"), Some(&errors())), false);
        }
        refusals.note("two", &verdict("c000", Some(&errors())), false);
        let all = page(&refusals, None);
        assert_eq!(all["refused_count"], 151);
        let shown = all["refused"].as_array().unwrap();
        assert_eq!(shown.len(), SHOWN_MAX);
        assert_eq!((&shown[0]["source"], &shown[0]["version"]), (&json!("one"), &json!("7")));
        assert_eq!(shown[0]["resource"], "cluster/c000");
        let of_two = page(&refusals, Some("two"));
        assert_eq!(of_two["refused_count"], 1);
        assert_eq!(of_two["refused"][0]["source"], "two");
        assert_eq!(page(&refusals, Some("three")), json!({ "refused_count": 0, "refused": [] }));
        // One that is accepted counts no more, and only of its source.
        refusals.note("one", &verdict("c000", None), false);
        assert_eq!((refusals.len_of("one"), refusals.len_of("two")), (149, 1));
        assert_eq!(refusals.len_of_kind(ResourceKind::Cluster), 150);
        let name = ResourceName::new(ResourceKind::Cluster, "c000");
        assert!(refusals.find(Some("one"), &name).is_none());
        assert!(refusals.find(None, &name).is_some());
    }

    #[test]
    fn what_is_refused_is_known_beyond_those_whose_reasons_are_kept() {
        let mut refusals = Refusals::default();
        for n in 0..=REFUSED_MAX {
            refusals.note("one", &verdict(&format!("c{n:06}"), Some(&errors())), false);
        }
        assert_eq!(refusals.len_of("one"), REFUSED_MAX);
        let reasons = |refusals: &Refusals, n: usize| {
            let name = ResourceName::new(ResourceKind::Cluster, &format!("c{n:06}"));
            refusals.find(None, &name).map(|it| it.error_json()["errors"].clone())
        };
        assert_eq!(reasons(&refusals, REASONS_MAX - 1), Some(json!([])));
        let text = reasons(&refusals, REASONS_MAX).unwrap()[0].to_string();
        assert!(text.contains("the reasons of this one were not kept"), "{text}");
        assert_eq!(reasons(&refusals, REFUSED_MAX), None);
        // There is room again.
        refusals.note("one", &verdict("c000000", None), false);
        refusals.note("one", &verdict(&format!("c{REASONS_MAX:06}"), Some(&errors())), false);
        assert_eq!(reasons(&refusals, REASONS_MAX), Some(json!([])));
        refusals.note("one", &verdict(&format!("c{REFUSED_MAX:06}"), Some(&errors())), false);
        assert!(reasons(&refusals, REFUSED_MAX).is_some());
    }

    #[test]
    fn of_names_and_versions_that_are_too_long_the_beginning_is_kept() {
        let mut refusals = Refusals::default();
        let long = Verdict {
            version: "7".repeat(9_999).into(),
            ..verdict(&"ü".repeat(9_999), Some(&errors()))
        };
        refusals.note("one", &long, false);
        let (name, refusal) = refusals.by_source["one"].first_key_value().unwrap();
        assert_eq!((name.name.len(), refusal.version.len()), (1_024, 1_024));
        refusals.note("one", &Verdict { refused: None, ..long }, false);
        assert_eq!(refusals.len, 0);
    }

    #[test]
    fn what_is_said_late_of_an_earlier_version_says_nothing_of_the_last() {
        let mut refusals = Refusals::default();
        refusals.note("one", &verdict("c", Some(&errors())), false);
        let earlier = Verdict { version: "6".into(), ..verdict("c", None) };
        refusals.note("one", &earlier, true);
        assert_eq!(refusals.len_of("one"), 1);
        refusals.note("one", &verdict("c", None), true);
        assert_eq!(refusals.len_of("one"), 0);
    }
}
