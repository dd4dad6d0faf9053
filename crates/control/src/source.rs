//! Sources of resources beside the configuration file.
//!
//! A source has a task of its own on control's runtime. The task asks it for what is new, hands that over, waits for the
//! verdicts, passes them to the source, and only then asks again: however fast a source is, one of its batches is
//! under way, and what changes meanwhile is the source's to put together. docs/new-source.md builds one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::{NamesChanged, ResourceName, Update, Verdict};
use tokio::sync::{Notify, mpsc, oneshot};

/// Where listeners, route configurations, clusters, their endpoints and secrets come from, beside the file.
pub trait Source: fmt::Debug + Send {
    /// What it is called in messages and metrics: `folder`, `etcd`. Each source has a name of its own.
    fn name(&self) -> &'static str;

    /// Whether clusters are followed once a request needs them, and not before. Whatever else resources name is followed as it
    /// is named. A source that has no such cluster says that it is gone, so that requests need not wait for it.
    fn is_on_demand(&self) -> bool {
        false
    }

    /// Follows these too: what resources name and the file has not. A source that delivers all that it has may pass
    /// over this.
    fn subscribe(&mut self, names: &[ResourceName]);

    /// Follows these no more.
    fn unsubscribe(&mut self, names: &[ResourceName]);

    /// Takes note of resources that serve because a former process accepted them from this source, and left them in the
    /// folder `state` or handed them over. Called at most once, before [`Self::next`]. What differs from them is what is new to say: others,
    /// and those that are gone. The first batch, which may be empty, confirms those that it does not name.
    fn on_restored(&mut self, resources: &[Update]);

    /// Waits for what is new: versions of resources, and resources that are gone. May be dropped and called again. An empty batch
    /// says that there is nothing new: it makes the source as fresh as any other (`age_seconds` of `/sources`).
    /// Never is a source asked before it has the verdicts about what it said last.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>>;

    /// Takes note of what became of an update. A refused one leaves the version before it. A version that was
    /// accepted may be refused later, when what it names turns out not to go with it, and accepted again when it does.
    fn on_verdict(&mut self, verdict: &Verdict);
}

/// What a source says, and who waits for the verdicts.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) source: &'static str,
    pub(crate) updates: Vec<Update>,
    pub(crate) verdicts: oneshot::Sender<Vec<Verdict>>,
    /// Which part of what the folder `state` has it is, if it is not from the source itself.
    pub(crate) restored: Option<RestoredPart>,
}

/// What a former process had of a source, in the order in which it is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restored {
    /// The versions that served.
    pub(crate) serving: Vec<Update>,
    /// Versions that were accepted after these and waited, and what was gone and served all the same.
    pub(crate) later: Vec<Update>,
    /// What the loader has already, by name: of a process whose place this one takes.
    pub(crate) known: BTreeMap<ResourceName, Update>,
}

/// A part of [`Restored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoredPart {
    Serving,
    Later,
}

/// Where what the folder `state` has of each source is sent, once it is known.
pub(crate) type Restores = BTreeMap<&'static str, oneshot::Sender<Restored>>;

/// The sources at work.
#[derive(Debug)]
pub(crate) struct Following {
    /// By source.
    followers: BTreeMap<&'static str, Follower>,
}

/// How a source hears what it is to follow.
#[derive(Debug)]
struct Follower {
    is_on_demand: bool,
    unheard: Arc<Unheard>,
}

/// What a source has not heard yet: names that it is to follow, those that it follows in vain, and later verdicts. However slow it
/// is, each name is there once, and of each resource the last verdict.
#[derive(Debug, Default)]
struct Unheard {
    news: Mutex<News>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct News {
    new: BTreeSet<ResourceName>,
    gone: BTreeSet<ResourceName>,
    late: BTreeMap<ResourceName, Verdict>,
}

impl Unheard {
    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what changes. What comes again before the source has heard that it went, never went.
    fn add(&self, names: &NamesChanged) {
        if names.is_empty() {
            return;
        }
        let mut unheard = self.lock();
        for name in &names.gone {
            if !unheard.new.remove(name) {
                unheard.gone.insert(name.clone());
            }
        }
        for name in &names.new {
            if !unheard.gone.remove(name) {
                unheard.new.insert(name.clone());
            }
        }
        drop(unheard);
        self.bell.notify_one();
    }

    /// Adds a later verdict.
    fn add_late(&self, verdict: Verdict) {
        self.lock().late.insert(verdict.name.clone(), verdict);
        self.bell.notify_one();
    }

    /// Tells the source.
    async fn tell(&self, source: &mut dyn Source) {
        let News { new, gone, late } = std::mem::take(&mut *self.lock());
        if !gone.is_empty() {
            source.unsubscribe(&gone.into_iter().collect::<Vec<_>>());
        }
        if !new.is_empty() {
            source.subscribe(&new.into_iter().collect::<Vec<_>>());
        }
        tell_verdicts(source, late.values()).await;
    }
}

/// Verdicts that a source hears before others on control's thread have their turn.
const VERDICTS_AT_ONCE: usize = 500;

async fn tell_verdicts(source: &mut dyn Source, verdicts: impl Iterator<Item = &Verdict>) {
    for (number, verdict) in (1..).zip(verdicts) {
        source.on_verdict(verdict);
        if number % VERDICTS_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Following {
    /// Starts a task for each source, which first waits for what is restored of it and delivers that; they end with this.
    /// Deliveries come from the receiver.
    pub(crate) fn start(
        sources: Vec<Box<dyn Source>>,
    ) -> (Self, mpsc::Receiver<Delivery>, Restores) {
        let mut restores = Restores::new();
        let (deliveries, delivered) = mpsc::channel(sources.len().max(1));
        let mut followers = BTreeMap::new();
        for source in sources {
            let (restore_sender, restored) = oneshot::channel();
            restores.insert(source.name(), restore_sender);
            let unheard = Arc::new(Unheard::default());
            let is_on_demand = source.is_on_demand();
            let follower = Follower { is_on_demand, unheard: Arc::clone(&unheard) };
            followers.insert(source.name(), follower);
            let deliveries = deliveries.clone();
            tokio::spawn(async move {
                let mut source = source;
                // Without it the process ends.
                let Ok(restored) = restored.await else { return };
                if restore(&mut *source, restored, &deliveries).await.is_some() {
                    follow(source, &unheard, deliveries).await;
                }
            });
        }
        (Self { followers }, delivered, restores)
    }

    /// Says what is wanted that was not, and the other way around; and which part of it concerns sources on demand.
    pub(crate) fn want(&self, names: &NamesChanged, demanded: &NamesChanged) {
        for Follower { is_on_demand, unheard } in self.followers.values() {
            unheard.add(if *is_on_demand { demanded } else { names });
        }
    }

    /// Has sources on demand follow one more.
    pub(crate) fn demand(&self, name: ResourceName) {
        let names = NamesChanged { new: vec![name], gone: Vec::new() };
        self.want(&NamesChanged::default(), &names);
    }

    /// Sends a source a later verdict. Returns its name, if there is one.
    pub(crate) fn tell(&self, source: &str, verdict: Verdict) -> Option<&'static str> {
        let (name, follower) = self.followers.get_key_value(source)?;
        follower.unheard.add_late(verdict);
        Some(name)
    }

    /// What a source has not heard of these resources is no news once it gets verdicts about them.
    pub(crate) fn supersede(&self, source: &str, verdicts: &[Verdict]) {
        let Some(follower) = self.followers.get(source) else { return };
        let mut news = follower.unheard.lock();
        if !news.late.is_empty() {
            verdicts.iter().for_each(|verdict| drop(news.late.remove(&verdict.name)));
        }
    }
}

/// Delivers what the folder `state` has of a source. None once the process ends.
async fn restore(
    source: &mut dyn Source,
    restored: Restored,
    deliveries: &mpsc::Sender<Delivery>,
) -> Option<()> {
    let mut known = restored.known;
    for (part, updates) in
        [(RestoredPart::Serving, restored.serving), (RestoredPart::Later, restored.later)]
    {
        if updates.is_empty() {
            continue;
        }
        let (verdicts, said) = oneshot::channel();
        let (source, restored) = (source.name(), Some(part));
        let delivery = Delivery { source, updates: updates.clone(), verdicts, restored };
        deliveries.send(delivery).await.ok()?;
        let accepted = said.await.ok()?.into_iter().filter(|verdict| verdict.refused.is_none());
        let accepted: BTreeSet<_> = accepted.map(|verdict| verdict.name).collect();
        for update in updates {
            let name = ResourceName::new(update.kind, &update.name);
            if !accepted.contains(&name) {
                continue;
            }
            match update.content {
                Some(_) => drop(known.insert(name, update)),
                None => drop(known.remove(&name)),
            }
        }
    }
    if !known.is_empty() {
        source.on_restored(&known.into_values().collect::<Vec<_>>());
    }
    Some(())
}

async fn follow(
    mut source: Box<dyn Source>,
    unheard: &Unheard,
    deliveries: mpsc::Sender<Delivery>,
) {
    let name = source.name();
    loop {
        let updates = tokio::select! {
            () = unheard.bell.notified() => {
                unheard.tell(&mut *source).await;
                continue;
            }
            updates = source.next() => updates,
        };
        let (verdicts, said) = oneshot::channel();
        let delivery = Delivery { source: name, updates, verdicts, restored: None };
        if deliveries.send(delivery).await.is_err() {
            return;
        }
        // Without them the process ends.
        let Ok(verdicts) = said.await else { return };
        tell_verdicts(&mut *source, verdicts.iter()).await;
    }
}
