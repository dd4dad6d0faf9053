//! What the former process says while it ends the connections that it still has.

use ::handover::{FollowingAction, ListedConnections, TakerAction};
use control::{HandoverFact, HandoverStep, OldProcess};
use telemetry::FormerTotals;
use tokio::sync::mpsc::Sender;

use super::Taking;
use crate::data_path::{Contacts, DataPath};
use crate::handover::timeouts::PROCESS_END_TIMEOUT;
use crate::handover::topics::Topic;

impl Taking {
    /// Passes on what the former process counts, until it has ended.
    pub(crate) fn follow(mut self, contacts: &Contacts, control: &Sender<HandoverStep<DataPath>>) {
        let (pid, returned) = (self.line.peer.pid, self.returned());
        // It may be asked from here on, behind `Committed`. Control ends with the process; the same below.
        let process = OldProcess { pid, lists_connections: self.lists_connections };
        let _ = control.blocking_send(HandoverStep::Heard(HandoverFact::FormerStays(process)));
        let mut is_main = false;
        while !self.taker.is_over() {
            while let Some(action) = self.taker.poll() {
                match action {
                    TakerAction::Following(action) => {
                        if action == FollowingAction::IsMainProcess {
                            contacts.former().note_left();
                            is_main = true;
                        }
                        self.pass_on(action, control);
                    }
                    // A frame without room says that this process runs, which can wait.
                    TakerAction::Send(frame) if self.line.is_full() => drop(frame),
                    TakerAction::Send(frame) => self.line.queue(frame),
                    // It concerns no process that has everything.
                    TakerAction::Enter(_)
                    | TakerAction::Opening(_)
                    | TakerAction::Moving(_)
                    | TakerAction::Finished
                    | TakerAction::Stop(_) => {}
                }
            }
            // It is said once, and waits for room.
            let main = || HandoverStep::Heard(HandoverFact::MainProcess);
            is_main = is_main && control.try_send(main()).is_err();
            contacts.former().flush();
            self.report_and_hear(control, true);
        }
        let takes_back = contacts.former().takes_back();
        contacts.former().keep(None);
        let _ =
            control.blocking_send(HandoverStep::Heard(HandoverFact::FormerEnded { pid, returned }));
        if self.is_return {
            tracing::info!(pid, "the new process has ended, which gave everything back");
        } else if takes_back && !self.has_giver_ended(PROCESS_END_TIMEOUT) {
            tracing::info!(pid, "the old process has everything back");
        } else {
            tracing::info!(pid, "the old process has ended");
        }
    }

    /// By which handover the other process gave this one's place back, if it did.
    fn returned(&self) -> Option<u64> {
        self.is_return.then_some(self.generation)
    }

    /// Where control has no time, the next ones say as much. Nothing here waits for it: the former process ends one that is silent.
    fn pass_on(&self, action: FollowingAction, control: &Sender<HandoverStep<DataPath>>) {
        let step = match action {
            FollowingAction::Update { topic, bytes } if topic == Topic::Totals.name() => {
                HandoverStep::Heard(HandoverFact::Update {
                    totals: FormerTotals::read(&bytes),
                    returned: self.returned(),
                })
            }
            FollowingAction::Update { .. } | FollowingAction::IsMainProcess => return,
            FollowingAction::Listed(ListedConnections { request, rows, next }) => {
                HandoverStep::Heard(HandoverFact::Listed { request, rows, next })
            }
        };
        drop(control.try_send(step));
    }
}
