//! What follows for control from what sources have delivered: who waits for what, which source hears what, and what is kept.
//!
//! A source may deliver a hundred thousand resources at once. They are linked together, but control takes note of a
//! portion of them in each turn, so that probes, signals and questions of filters do not wait for all. The builder is
//! asked nothing meanwhile: what comes is taken up after that.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::vec;

use config::{NamesChanged, ResourceName, Update, Verdict, Waits};
use tokio::sync::oneshot;

use super::{Asked, Question};
use crate::reload::DeliveredUpdates;
use crate::run::Running;
use crate::run::taking_up::warn;
use crate::source::RestoredPart;
use crate::workers::Workers;

/// Names, resources and verdicts that are taken note of in a turn: some microseconds each.
const NOTED_AT_ONCE: usize = 500;

/// What is to be taken note of.
#[derive(Debug, Default)]
pub(super) struct Noting {
    wanted: vec::IntoIter<ResourceName>,
    unwanted: vec::IntoIter<ResourceName>,
    /// Until all that is wanted is known.
    relinked: Option<Relinked>,
    waits: vec::IntoIter<Waits>,
    late: vec::IntoIter<(Arc<str>, Verdict)>,
    /// What turned out not to go with something that came.
    refused_late: BTreeSet<ResourceName>,
    delivery: Option<NotingDelivery>,
}

/// What follows for resources that were delivered before.
#[derive(Debug)]
struct Relinked {
    /// What turned out not to go with others, or to do so again, by source.
    late: Vec<(Arc<str>, Verdict)>,
    /// What waits for others than before, which may be none.
    waits: Vec<Waits>,
}

/// What was delivered, if it is that.
#[derive(Debug)]
struct NotingDelivery {
    source: &'static str,
    updates: Vec<Update>,
    verdicts: Vec<Verdict>,
    /// Whether it was begun with, and of how many of these note is taken.
    is_begun: bool,
    noted: usize,
    reply: oneshot::Sender<Vec<Verdict>>,
    restored: Option<RestoredPart>,
}

impl super::Deliveries {
    /// Whether something is to be taken note of.
    pub(in crate::run) fn is_noting(&self) -> bool {
        !self.noting.is_empty()
    }
}

impl<W: Workers> Running<W> {
    /// Takes note of what became of what sources deliver, and has those hear it who did.
    pub(in crate::run) fn on_delivered(&mut self, delivered: DeliveredUpdates) {
        let DeliveredUpdates { updates, verdicts, late, wanted, waits, warnings } = delivered;
        warn(&warnings);
        let delivery = match mem::take(&mut self.config.deliveries.asked) {
            Question::Open(asked) | Question::Due(asked) => match asked.what {
                Asked::Updates { source, reply, restored, .. } => {
                    let (is_begun, noted) = (false, 0);
                    let delivery = NotingDelivery {
                        source,
                        updates,
                        verdicts,
                        is_begun,
                        noted,
                        reply,
                        restored,
                    };
                    Some(delivery)
                }
                Asked::Waited(_) => None,
            },
            Question::None => None,
        };
        let NamesChanged { new, gone } = wanted;
        self.config.deliveries.noting.push_back(Noting {
            wanted: new.into_iter(),
            unwanted: gone.into_iter(),
            relinked: Some(Relinked { late, waits }),
            delivery,
            ..Noting::default()
        });
        self.note_portion();
    }

    /// Takes note of what follows for resources of sources from what others say, or the file.
    pub(in crate::run) fn on_relinked(
        &mut self,
        late: Vec<(Arc<str>, Verdict)>,
        waits: Vec<Waits>,
    ) {
        let relinked = Some(Relinked { late, waits });
        self.config.deliveries.noting.push_back(Noting { relinked, ..Noting::default() });
        self.note_portion();
    }

    /// Takes note of a portion of what is to be taken note of.
    pub(in crate::run) fn note_portion(&mut self) {
        let Some(mut noting) = self.config.deliveries.noting.pop_front() else { return };
        let mut room = NOTED_AT_ONCE;
        self.note_wanted(&mut noting, &mut room);
        if room > 0
            && let Some(relinked) = noting.relinked.take()
        {
            self.begin_relinked(&mut noting, relinked);
        }
        self.config.deliveries.note_waits(portion(&mut noting.waits, &mut room));
        for (source, verdict) in portion(&mut noting.late, &mut room) {
            if let Some(source) = self.config.deliveries.following.tell(&source, verdict.clone()) {
                self.report_verdict(source, &verdict, true);
                self.note_demands(source, &[], std::slice::from_ref(&verdict));
            }
        }
        // It depends on all of that.
        if room > 0
            && let Some(delivery) = &mut noting.delivery
        {
            self.note_delivery(delivery, &noting.refused_late, &mut room);
        }
        if room == 0 {
            // There may be more.
            self.config.deliveries.noting.push_front(noting);
        } else if let Some(NotingDelivery { source, verdicts, reply, .. }) = noting.delivery {
            self.config.deliveries.following.supersede(source, &verdicts);
            // A source that ended needs none.
            let _ = reply.send(verdicts);
        }
    }

    fn note_wanted(&mut self, noting: &mut Noting, room: &mut usize) {
        let new = portion(&mut noting.wanted, room);
        let gone = portion(&mut noting.unwanted, room);
        let names = NamesChanged { new, gone };
        if !names.is_empty() {
            self.want_others(names);
        }
    }

    /// All that is wanted is known.
    fn begin_relinked(&mut self, noting: &mut Noting, Relinked { late, waits }: Relinked) {
        let refused = late.iter().filter(|(_, verdict)| verdict.refused.is_some());
        noting.refused_late = refused.map(|(_, verdict)| verdict.name.clone()).collect();
        let ended = waits.iter().filter(|it| it.waits_for.is_empty());
        let serves = ended.map(|it| &it.name).filter(|it| !noting.refused_late.contains(*it));
        let is_good = |verdict: &Verdict| verdict.refused.is_none() && verdict.waits_for.is_empty();
        let good_late = late.iter().filter(|(_, verdict)| is_good(verdict));
        let good_late = good_late.map(|(_, verdict)| &verdict.name);
        self.kept.on_serving(serves.chain(good_late), self.config.deliveries.wanted());
        (noting.late, noting.waits) = (late.into_iter(), waits.into_iter());
    }

    fn note_delivery(
        &mut self,
        delivery: &mut NotingDelivery,
        refused_late: &BTreeSet<ResourceName>,
        room: &mut usize,
    ) {
        let NotingDelivery { source, updates, verdicts, is_begun, noted, restored, .. } = delivery;
        let (source, is_begin) = (*source, !mem::replace(is_begun, true));
        let wanted = self.config.deliveries.wanted();
        match restored {
            Some(part) if is_begin => {
                self.kept.on_restored(source, *part, verdicts);
                if *part == RestoredPart::Later {
                    self.kept.on_later_restored(source, updates, verdicts, (refused_late, wanted));
                }
            }
            None if is_begin => self.kept.begin_delivered(source, verdicts),
            _ => {}
        }
        let end = verdicts.len().min(*noted + *room);
        let range = *noted..end;
        let updates = updates.get(range.clone()).unwrap_or_default();
        let verdicts = verdicts.get(range).unwrap_or_default();
        *room -= end - *noted;
        *noted = end;
        self.note_demands(source, updates, verdicts);
        self.config.deliveries.note_accepted(source, updates, verdicts);
        if restored.is_none() {
            let wanted = self.config.deliveries.wanted();
            self.kept.on_delivered(source, updates, verdicts, (refused_late, wanted));
            for verdict in verdicts {
                self.report_verdict(source, verdict, false);
            }
        }
    }
}

/// The next ones, as many as there is room for.
fn portion<T>(of: &mut vec::IntoIter<T>, room: &mut usize) -> Vec<T> {
    let taken: Vec<T> = of.take(*room).collect();
    *room -= taken.len();
    taken
}
