//! A folder of files, each with one resource: `cluster.web.yaml` holds the cluster `web`.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{ResourceName, Text, Update, Verdict};
use control::Source;

/// The folder, and what was said of it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// What was said last.
    said: BTreeMap<ResourceName, Text>,
    /// Whether what a former process had is to be confirmed.
    confirms: bool,
    /// Counts what was said.
    version: u64,
    /// What became of it.
    pub(crate) heard: Arc<Mutex<Vec<String>>>,
}

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, said: BTreeMap::new(), confirms: false, version: 0, heard: Arc::default() }
    }

    fn hear(&self, text: String) {
        self.heard.lock().expect("nothing panics while it is held").push(text);
    }

    /// What differs from what was said last.
    fn changes(&mut self, now: BTreeMap<ResourceName, Text>) -> Vec<Update> {
        let gone = self.said.keys().filter(|name| !now.contains_key(*name));
        let gone = gone.map(|name| (name, None));
        let new = now.iter().filter(|(name, content)| self.said.get(*name) != Some(*content));
        let new = new.map(|(name, content)| (name, Some(content.clone())));
        let version: Arc<str> = (self.version + 1).to_string().into();
        let update = |(name, content): (&ResourceName, _)| {
            let (version, known_as) = (Arc::clone(&version), Arc::from(&*name.name));
            Update { kind: name.kind, name: known_as, version, content }
        };
        let changes: Vec<Update> = gone.chain(new).map(update).collect();
        self.version += u64::from(!changes.is_empty());
        self.said = now;
        changes
    }
}

impl Source for Folder {
    fn name(&self) -> &'static str {
        "folder"
    }

    fn subscribe(&mut self, names: &[ResourceName]) {
        self.hear(format!("wanted: {}", listed(names)));
    }

    fn unsubscribe(&mut self, names: &[ResourceName]) {
        self.hear(format!("not wanted: {}", listed(names)));
    }

    fn on_restored(&mut self, resources: &[Update]) {
        // What differs from it is said next, also if that is nothing.
        self.confirms = true;
        let known = |it: &Update| Some((ResourceName::new(it.kind, &it.name), it.content.clone()?));
        self.said = resources.iter().filter_map(known).collect();
        let names: Vec<_> = self.said.keys().cloned().collect();
        self.hear(format!("restored: {}", listed(&names)));
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>> {
        Box::pin(async {
            loop {
                // Sources share a thread with probes and signals: what may wait for a disk is done elsewhere.
                let path = self.path.clone();
                let read = tokio::task::spawn_blocking(move || read(&path)).await;
                let changes = read.map(|now| self.changes(now)).unwrap_or_default();
                if !changes.is_empty() || std::mem::take(&mut self.confirms) {
                    return changes;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    fn on_verdict(&mut self, verdict: &Verdict) {
        let Verdict { name, version, waits_for, missing, refused } = verdict;
        let said = match refused {
            None if !missing.is_empty() => format!("accepted, without {}", listed(missing)),
            None if waits_for.is_empty() => "accepted".to_owned(),
            None => format!("accepted, waits for {}", listed(waits_for)),
            Some(errors) => errors.to_string(),
        };
        self.hear(format!("{name} {version}: {said}"));
    }
}

/// The resources that there are now.
fn read(folder: &Path) -> BTreeMap<ResourceName, Text> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(".yaml")?.replacen('.', "/", 1);
        let content = std::fs::read_to_string(entry.path()).ok()?;
        Some((name.parse().ok()?, content.into()))
    });
    files.collect()
}

fn listed(names: &[ResourceName]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
