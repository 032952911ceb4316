//! What a replica's node wants: requests to the store, orders to the guards, notices for people.

use soloist_core::election::{Claim, Elected, Loss, Purpose, StoreCommand};
use soloist_core::ids;
use soloist_core::node::{Notice, TreeCommand};
use soloist_core::replica::StateName;

use crate::check::Violation;
use crate::gaps::Cause;
use crate::guard::Order;
use crate::hosts::{HeldTree, Soloist};
use crate::queue::{GuardWake, HostId, Request};
use crate::summary::Counter;
use crate::tree::{Tree, TreeTerm};
use crate::world::World;

impl World {
    pub(crate) fn ask_store(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        command: StoreCommand,
    ) -> Result<(), Violation> {
        match command {
            StoreCommand::Read { op } => {
                soloist.request = Some((op, self.now));
                self.send(host, soloist.id, Request::Read { op });
            }
            StoreCommand::Write {
                op,
                base,
                record,
                purpose,
            } => {
                soloist.request = Some((op, self.now));
                if purpose == Purpose::Release {
                    self.check_release(soloist)?;
                    self.summary.count(Counter::Releases);
                    self.note_release(soloist.id);
                    self.log(host, || "releases the lease".to_owned());
                }
                let write = Request::Write {
                    op,
                    base,
                    record,
                    purpose,
                    base_epoch: soloist.newest.epoch,
                };
                self.send(host, soloist.id, write);
            }
            StoreCommand::Watch { watch, after } => {
                soloist.listens_to = Some(watch);
                soloist.watch = None;
                self.send(host, soloist.id, Request::Watch { watch, after });
            }
            StoreCommand::Abandon { .. } => soloist.request = None,
        }
        Ok(())
    }

    pub(crate) fn order(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        id: ids::TreeId,
        command: TreeCommand,
    ) -> Result<(), Violation> {
        if command == TreeCommand::Prepare {
            self.prepare(host, soloist, id);
            return Ok(());
        }
        let Some(tree) = soloist.find_tree(id) else {
            return Ok(());
        };
        match command {
            TreeCommand::Prepare => {}
            TreeCommand::Start {
                term,
                token,
                deadline,
            } => {
                self.check_spawn(soloist)?;
                let begun = self.checks.terms.find(soloist.instance, term);
                self.trees[tree].term = Some(TreeTerm {
                    term,
                    token,
                    began: begun.map_or(0, |b| b.at),
                    epoch: begun.map_or(0, |b| b.epoch),
                });
                self.trees[tree].deadline = deadline;
                self.trees[tree].deadline_given = self.now;
                self.trees[tree].valid_until = soloist.valid_until;
                soloist.draining_since = None;
                self.order_guard(tree, Order::Deadline(deadline));
                self.begin_to_ask_guard(tree);
            }
            TreeCommand::Discard => {
                soloist.trees.retain(|t| t.tree != tree);
                self.order_guard(tree, Order::Closed);
            }
            TreeCommand::Deadline(deadline) => {
                self.trees[tree].deadline = deadline;
                self.trees[tree].deadline_given = self.now;
                self.order_guard(tree, Order::Deadline(deadline));
            }
            TreeCommand::Stop => {
                soloist.draining_since = Some(self.now);
                let now = self.hosts[host].clock.read(self.now);
                self.trees[tree].stop_ordered.get_or_insert(now);
                self.note_end(soloist, Cause::FailingChild);
                self.log(host, || format!("asks tree {tree} to stop"));
                self.order_guard(tree, Order::Stop);
            }
            TreeCommand::Kill => {
                self.check_grace(host, soloist)?;
                self.kill_by_soloist(tree);
            }
        }
        Ok(())
    }

    /// Forks a guard.
    fn prepare(&mut self, host: HostId, soloist: &mut Soloist, id: ids::TreeId) {
        let tree = self.trees.len();
        let timings = &self.plan.timings[host];
        self.trees
            .push(Tree::new(host, soloist.id, soloist.instance, timings));
        self.living.push(tree);
        soloist.trees.push(HeldTree { id, tree });
        let after = self.exec_delay(host);
        self.wake_guard(tree, after, GuardWake::Started);
    }

    pub(crate) fn take_note(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        notice: &Notice,
    ) -> Result<(), Violation> {
        match notice {
            Notice::State { from, to } => {
                if *to == StateName::Follower {
                    let now = self.hosts[host].clock.read(self.now);
                    self.hosts[host].last_step_down = Some(now);
                }
                self.log(host, || format!("{from} -> {to}"));
            }
            Notice::Elected(elected) => {
                soloist.valid_until = elected.valid_until;
                soloist.term = Some(elected.term);
                self.elected(host, soloist, elected)?;
            }
            Notice::Extended { valid_until } => {
                soloist.valid_until = *valid_until;
                if let Some(tree) = soloist.tree() {
                    self.trees[tree].valid_until = *valid_until;
                }
            }
            Notice::Lost(loss) => {
                self.summary.count(Counter::Losses);
                self.log(host, || format!("lease lost: {loss:?}"));
                match loss {
                    Loss::Resigned => {}
                    Loss::RenewDeadline | Loss::Expired => self.note_end(soloist, Cause::CutOff),
                    Loss::Taken(_) | Loss::Emptied | Loss::Deleted | Loss::WrittenBack => {
                        self.note_end(soloist, Cause::RecordEdited);
                    }
                }
                self.check_loss(host, loss)?;
            }
            Notice::Ordered(ordered) => {
                self.log(host, || format!("obeys {ordered:?}"));
                self.note_end(soloist, Cause::PlannedHandover);
                self.check_obeyed(soloist, ordered)?;
            }
            Notice::OrderRefused(refusal) => self.log(host, || format!("refuses: {refusal}")),
            Notice::Paused(pause) => self.log(host, || format!("sees a pause: {pause:?}")),
            Notice::Left
            | Notice::Holder(_)
            | Notice::KillTakesLong { .. }
            | Notice::Refused { .. } => {}
        }
        Ok(())
    }

    fn elected(
        &mut self,
        host: HostId,
        soloist: &Soloist,
        elected: &Elected,
    ) -> Result<(), Violation> {
        self.summary.count(Counter::Terms);
        self.summary.count(match elected.claim {
            Claim::FirstSight => Counter::ClaimFirstSight,
            Claim::Released => Counter::ClaimReleased,
            Claim::Expired => Counter::ClaimExpired,
            Claim::WaitedOut => Counter::ClaimWaitedOut,
            Claim::Own => Counter::ClaimOwn,
            Claim::FormerSelf => Counter::ClaimFormerSelf,
            Claim::HolderGone => Counter::ClaimHolderGone,
        });
        self.log(host, || {
            let Elected {
                term, token, claim, ..
            } = elected;
            format!("elected: term {term}, token {token}, {claim:?}")
        });
        self.check_elected(soloist, elected)
    }
}
