//! A soloist process: carries events into the election and the replica, and their wishes out.

use std::collections::VecDeque;

use soloist_core::defect;
use soloist_core::election::{Answer, Claim, Elected, Output, Purpose};
use soloist_core::guard;
use soloist_core::record::Snapshot;
use soloist_core::replica::{Action, Event, StateName};

use crate::check::Violation;
use crate::clock::{MILLI, SECOND};
use crate::hosts::Soloist;
use crate::queue::{Happening, HostId, InTree, Request, SoloistId, ToGuard, ToSoloist};
use crate::summary::Counter;
use crate::tree::Tree;
use crate::world::World;

impl World {
    pub(crate) fn reach_soloist(
        &mut self,
        host: HostId,
        id: SoloistId,
        what: ToSoloist,
    ) -> Result<(), Violation> {
        let Some(mut soloist) = self.hosts[host].soloist.take_if(|s| s.id == id) else {
            return Ok(());
        };
        let now = self.hosts[host].clock.read(self.now);
        let mut actions = Vec::new();
        let mut shown_its_loss = None;
        match what {
            ToSoloist::Wake { generation } => {
                if generation != soloist.wake {
                    self.hosts[host].soloist = Some(soloist);
                    return Ok(());
                }
                soloist.election.handle_timeout(now);
                actions = soloist.replica.handle_timeout(now);
                self.check_progress(&soloist, now)?;
            }
            ToSoloist::Answer { op, answer } => {
                if soloist.request.take_if(|r| *r == op).is_some() {
                    match &answer {
                        Answer::Read(snapshot) => note_term(&mut soloist, snapshot),
                        Answer::Written(version) => soloist.newest = version.get(),
                        _ => {}
                    }
                }
                soloist.election.handle_answer(now, op, answer);
            }
            ToSoloist::Watch { epoch, snapshot } => {
                if epoch == soloist.watch_epoch {
                    shown_its_loss = self.shows_loss(&soloist, &snapshot);
                    note_term(&mut soloist, &snapshot);
                    soloist.election.handle_watch(now, snapshot);
                }
            }
            ToSoloist::WatchBroken { epoch } => {
                if epoch == soloist.watch_epoch {
                    soloist.watch = None;
                    soloist.election.handle_watch_broken(now);
                }
            }
            ToSoloist::Child { tree, event } => {
                if soloist.tree == Some(tree) {
                    if matches!(event, Event::TreeEmpty | Event::SpawnFailed(_)) {
                        soloist.tree = None;
                    }
                    actions = soloist.replica.handle(now, event);
                }
            }
            ToSoloist::Asked(event) => {
                if soloist.replica.state() == StateName::Terminating {
                    self.trouble(host, self.now);
                }
                actions = soloist.replica.handle(now, event);
            }
        }
        self.run_soloist(host, soloist, actions)?;
        self.check_gave_up(shown_its_loss)
    }

    /// Carries out everything that is to be done now, then waits for the next thing.
    pub(crate) fn run_soloist(
        &mut self,
        host: HostId,
        mut soloist: Soloist,
        actions: Vec<Action>,
    ) -> Result<(), Violation> {
        let state_before = soloist.replica.state();
        let mut actions = VecDeque::from(actions);
        loop {
            while let Some(action) = actions.pop_front() {
                self.act(host, &mut soloist, action)?;
            }
            match soloist.election.poll_output() {
                Some(output) => actions.extend(self.carry_out(host, &mut soloist, output)?),
                None => break,
            }
        }
        let state = soloist.replica.state();
        if state != state_before {
            self.log(host, || format!("{state_before} -> {state}"));
        }
        self.check_state(&soloist)?;
        if soloist.exited {
            self.show_dead_holder(soloist.instance);
            let at = self.now + self.dice.between(100 * MILLI, 5 * SECOND);
            self.queue.push(
                at,
                Happening::Start {
                    host,
                    new_identity: true,
                },
            );
            return Ok(());
        }
        self.set_alarm(host, &mut soloist);
        self.hosts[host].soloist = Some(soloist);
        Ok(())
    }

    fn set_alarm(&mut self, host: HostId, soloist: &mut Soloist) {
        soloist.wake += 1;
        let next = [
            soloist.election.next_deadline(),
            soloist.replica.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min();
        if let Some(moment) = next {
            let at = self.hosts[host].clock.when(moment).max(self.now);
            if at < u64::MAX {
                let late = self.hiccup();
                self.queue.push(
                    at + late,
                    Happening::ToSoloist {
                        host,
                        soloist: soloist.id,
                        what: ToSoloist::Wake {
                            generation: soloist.wake,
                        },
                    },
                );
            }
        }
    }

    fn carry_out(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        output: Output,
    ) -> Result<Vec<Action>, Violation> {
        let now = self.hosts[host].clock.read(self.now);
        let event = match output {
            Output::Read { op } => {
                soloist.request = Some(op);
                self.send(host, soloist.id, Request::Read { op });
                return Ok(vec![]);
            }
            Output::Write {
                op,
                base,
                record,
                purpose,
            } => {
                soloist.request = Some(op);
                if purpose == Purpose::Release {
                    self.check_release(soloist)?;
                    self.summary.count(Counter::Releases);
                    self.log(host, || "releases the lease".to_owned());
                }
                self.send(host, soloist.id, Request::Write { op, base, record });
                return Ok(vec![]);
            }
            Output::Watch { after } => {
                soloist.watch_epoch += 1;
                soloist.watch = None;
                let epoch = soloist.watch_epoch;
                self.send(host, soloist.id, Request::Watch { epoch, after });
                return Ok(vec![]);
            }
            Output::Abandon { .. } => {
                soloist.request = None;
                return Ok(vec![]);
            }
            Output::Holder(_) => return Ok(vec![]),
            Output::Elected(elected) => {
                self.elected(host, soloist, &elected)?;
                Event::Elected(elected)
            }
            Output::Extended { valid_until } => Event::Extended(valid_until),
            Output::Lost(loss) => {
                self.summary.count(Counter::Losses);
                self.log(host, || format!("lease lost: {loss:?}"));
                Event::Lost(loss)
            }
            Output::Left => Event::Left,
            Output::Refused { .. } => Event::Refused,
        };
        Ok(soloist.replica.handle(now, event))
    }

    fn elected(
        &mut self,
        host: HostId,
        soloist: &Soloist,
        elected: &Elected,
    ) -> Result<(), Violation> {
        self.summary.count(Counter::Terms);
        match elected.claim {
            Claim::FirstSight => self.summary.count(Counter::ClaimFirstSight),
            Claim::Released => self.summary.count(Counter::ClaimReleased),
            Claim::Expired => self.summary.count(Counter::ClaimExpired),
            Claim::WaitedOut => self.summary.count(Counter::ClaimWaitedOut),
            Claim::Own => self.summary.count(Counter::ClaimOwn),
            Claim::FormerSelf => self.summary.count(Counter::ClaimFormerSelf),
            Claim::HolderGone => self.summary.count(Counter::ClaimHolderGone),
        }
        self.log(host, || {
            let Elected {
                term, token, claim, ..
            } = elected;
            format!("elected: term {term}, token {token}, {claim:?}")
        });
        self.check_elected(soloist, elected)
    }

    fn act(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        action: Action,
    ) -> Result<(), Violation> {
        let now = self.hosts[host].clock.read(self.now);
        match action {
            Action::Stand => soloist.election.stand(now),
            Action::Resign => soloist.election.resign(now),
            Action::Leave => soloist.election.leave(now),
            Action::Spawn {
                term,
                token,
                deadline,
            } => {
                self.check_spawn(soloist)?;
                let behaviour = self.draw_behaviour(host);
                let tree = self.trees.len();
                self.trees.push(Tree::new(
                    host,
                    soloist.id,
                    (soloist.instance, term, token),
                    deadline,
                    behaviour,
                ));
                self.living.push(tree);
                soloist.tree = Some(tree);
                soloist.draining_since = None;
                let after = self.hiccup();
                self.tell_guard(tree, after, ToGuard::Arm { deadline });
            }
            Action::Deadline(deadline) => {
                if let Some(tree) = soloist.tree {
                    self.trees[tree].deadline = deadline;
                    let after = self.dice.latency(2 * MILLI);
                    let input = guard::Input::Deadline(deadline);
                    self.tell_guard(tree, after, ToGuard::Input(input));
                }
            }
            Action::StopChild => {
                if let Some(tree) = soloist.tree {
                    soloist.draining_since = Some(self.now);
                    self.log(host, || format!("asks tree {tree} to stop"));
                    let at = self.now + self.dice.latency(2 * MILLI);
                    self.queue.push(
                        at,
                        Happening::InTree {
                            tree,
                            what: InTree::StopSignal,
                        },
                    );
                }
            }
            Action::KillTree => {
                if let Some(tree) = soloist.tree {
                    self.check_grace(host, soloist)?;
                    self.kill_by_soloist(tree);
                }
            }
            Action::Exit(outcome) => {
                self.log(host, || {
                    format!("soloist {} exits: {outcome:?}", soloist.id.0)
                });
                soloist.exited = true;
            }
        }
        Ok(())
    }

    fn kill_by_soloist(&mut self, tree: usize) {
        let host = self.trees[tree].host;
        self.log(host, || format!("soloist kills tree {tree}"));
        self.summary.count(Counter::KillsBySoloist);
        self.trees[tree].kill_ordered = true;
        let after = self.dice.latency(2 * MILLI);
        self.tell_guard(tree, after, ToGuard::Input(guard::Input::Kill));
        if defect!(self.defect, NoSubreaper) && !self.trees[tree].guard.alive {
            let (host, soloist) = (self.trees[tree].host, self.trees[tree].soloist);
            let event = Event::TreeEmpty;
            self.tell_soloist(host, soloist, after, ToSoloist::Child { tree, event });
            return;
        }
        let at = self.now + self.hiccup();
        self.queue.push(
            at,
            Happening::InTree {
                tree,
                what: InTree::Kill { by_soloist: true },
            },
        );
    }

    /// A leader's host, if there is one: where faults hurt most.
    pub(crate) fn leading_host(&self) -> Option<HostId> {
        self.hosts.iter().position(|h| {
            h.soloist.as_ref().is_some_and(|s| {
                matches!(
                    s.replica.state(),
                    StateName::Leader | StateName::PreLeader | StateName::PreFollower
                )
            })
        })
    }
}

fn note_term(soloist: &mut Soloist, snapshot: &Snapshot) {
    soloist.newest = soloist.newest.max(snapshot.version.get());
    if let Some(signature) = snapshot.record.as_ref().and_then(|r| r.signed()) {
        let term = (signature.instance, signature.term);
        if soloist.seen.last() != Some(&term) && !soloist.seen.contains(&term) {
            soloist.seen.push(term);
        }
    }
}
