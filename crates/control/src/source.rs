//! Sources of clusters beside the configuration file.
//!
//! A source has a task of its own on control's runtime. The task asks it for what is new, hands that over, waits for the
//! verdicts, passes them to the source, and only then asks again: however fast a source is, one of its batches is
//! under way, and what changes meanwhile is the source's to put together. docs/new-source.md builds one.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use config::{Update, Verdict};
use tokio::sync::{mpsc, oneshot, watch};

/// Where clusters come from, beside the file.
pub trait Source: fmt::Debug + Send {
    /// What it is called in messages and metrics: `folder`, `etcd`. Each source has a name of its own.
    fn name(&self) -> &'static str;

    /// Follows these clusters too: those that rules and listeners name and the file has not. A source that delivers
    /// all that it has may pass over this.
    fn subscribe(&mut self, names: &[Arc<str>]);

    /// Follows these no more.
    fn unsubscribe(&mut self, names: &[Arc<str>]);

    /// Waits for what is new: versions of clusters, and clusters that are gone. May be dropped and called again.
    /// Never is a source asked before it has the verdicts about what it said last.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>>;

    /// Takes note of what became of an update. A refused one leaves the version before it.
    fn on_verdict(&mut self, verdict: &Verdict);
}

/// What a source says, and who waits for the verdicts.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) source: &'static str,
    pub(crate) updates: Vec<Update>,
    pub(crate) verdicts: oneshot::Sender<Vec<Verdict>>,
}

/// The sources at work.
#[derive(Debug)]
pub(crate) struct Following {
    /// The clusters that are wanted.
    wanted: watch::Sender<BTreeSet<Arc<str>>>,
}

impl Following {
    /// Starts a task for each source; they end with this. Deliveries come from the receiver.
    pub(crate) fn start(sources: Vec<Box<dyn Source>>) -> (Self, mpsc::Receiver<Delivery>) {
        let (wanted, _) = watch::channel(BTreeSet::new());
        let (deliveries, delivered) = mpsc::channel(sources.len().max(1));
        for source in sources {
            tokio::spawn(follow(source, wanted.subscribe(), deliveries.clone()));
        }
        (Self { wanted }, delivered)
    }

    /// Says which clusters are wanted from now on.
    pub(crate) fn want(&self, names: BTreeSet<Arc<str>>) {
        self.wanted.send_if_modified(|wanted| {
            let differs = *wanted != names;
            *wanted = names;
            differs
        });
    }
}

async fn follow(
    mut source: Box<dyn Source>,
    mut wanted: watch::Receiver<BTreeSet<Arc<str>>>,
    deliveries: mpsc::Sender<Delivery>,
) {
    let name = source.name();
    let mut followed = BTreeSet::new();
    wanted.mark_changed();
    loop {
        let updates = tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => {
                    let now = wanted.borrow_and_update().clone();
                    subscribe(&mut *source, &followed, &now);
                    followed = now;
                    continue;
                }
                Err(_) => return,
            },
            updates = source.next() => updates,
        };
        let (verdicts, said) = oneshot::channel();
        let delivery = Delivery { source: name, updates, verdicts };
        if deliveries.send(delivery).await.is_err() {
            return;
        }
        // Without them the process ends.
        let Ok(verdicts) = said.await else { return };
        verdicts.iter().for_each(|verdict| source.on_verdict(verdict));
    }
}

fn subscribe(source: &mut dyn Source, before: &BTreeSet<Arc<str>>, now: &BTreeSet<Arc<str>>) {
    let gone: Vec<_> = before.difference(now).cloned().collect();
    let new: Vec<_> = now.difference(before).cloned().collect();
    if !gone.is_empty() {
        source.unsubscribe(&gone);
    }
    if !new.is_empty() {
        source.subscribe(&new);
    }
}
