//! A soloist process: what reaches it goes into its [`Node`](soloist_core::node::Node), and what the node
//! wants is carried out.

use soloist_core::death::PodReport;
use soloist_core::election::Answer;
use soloist_core::node::{Output, TreeEvent};
use soloist_core::record::{Record, Snapshot};
use soloist_core::replica::{Exit, Outcome, StateName};
use soloist_core::time::Moment;

use crate::check::{Source, Violation};
use crate::clock::{SECOND, nanos};
use crate::faults::wall_time;
use crate::gaps::Cause;
use crate::hosts::{Newest, Soloist};
use crate::plan::WAKE_UP;
use crate::queue::{HostId, SoloistId, ToSoloist};
use crate::summary::Counter;
use crate::world::World;

// In.
impl World {
    pub(crate) fn deliver_to_soloist(
        &mut self,
        host: HostId,
        id: SoloistId,
        what: ToSoloist,
    ) -> Result<(), Violation> {
        match what {
            ToSoloist::KillPass { tree, since } => return self.kill_pass(host, id, tree, since),
            ToSoloist::ChildEnded { tree } => {
                self.ask_guard(host, id, tree);
                return Ok(());
            }
            ToSoloist::CheckGuard { tree, alarm } => {
                self.check_guard(host, id, tree, alarm);
                return Ok(());
            }
            ToSoloist::Pong { tree } => {
                self.hear_guard(host, id, tree);
                return Ok(());
            }
            ToSoloist::Wake { generation }
                if self.soloist(host, id).is_none_or(|s| s.wake != generation) =>
            {
                return Ok(());
            }
            _ => {}
        }
        let Some(mut soloist) = self.hosts[host].soloist.take_if(|s| s.id == id) else {
            return Ok(());
        };
        let shown_its_loss = self.feed(host, &mut soloist, what)?;
        self.run_soloist(host, soloist)?;
        self.check_gave_up(shown_its_loss)
    }

    /// Gives the tree that must be killed because of it.
    fn feed(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        what: ToSoloist,
    ) -> Result<Option<usize>, Violation> {
        let now = self.hosts[host].clock.read(self.now);
        match what {
            ToSoloist::Wake { .. } => {
                soloist.node.handle_timeout(now);
                self.check_progress(soloist, now)?;
            }
            ToSoloist::Answer { op, answer, epoch } => {
                if let Answer::Throttled { wait } = &answer {
                    self.note_patience(nanos(*wait));
                }
                let mut shown_its_loss = None;
                if let Some((_, sent)) = soloist.request.take_if(|(r, _)| *r == op) {
                    soloist.has_written |= matches!(answer, Answer::Written(_) | Answer::LostRace);
                    match &answer {
                        Answer::Read(snapshot) => {
                            shown_its_loss =
                                self.show(host, soloist, snapshot, epoch, Source::Read { sent });
                        }
                        Answer::Refused => {
                            soloist.refused_since.get_or_insert(now);
                        }
                        Answer::Written(version) => {
                            let written = Newest {
                                version: version.get(),
                                write: Some((soloist.instance, op)),
                                since: self.now,
                                epoch,
                            };
                            soloist.landed = Some((op, written));
                            if written.version >= soloist.newest.version {
                                soloist.newest = written;
                            }
                        }
                        _ => {}
                    }
                }
                let answer = match answer {
                    Answer::Read(snapshot) => Answer::Read(self.taken_in(host, soloist, snapshot)),
                    other => other,
                };
                soloist.node.handle_answer(now, op, answer);
                return Ok(shown_its_loss);
            }
            ToSoloist::Watch {
                watch,
                snapshot,
                epoch,
            } if soloist.listens_to == Some(watch) => {
                let shown_its_loss = self.show(host, soloist, &snapshot, epoch, Source::Watch);
                let snapshot = self.taken_in(host, soloist, snapshot);
                soloist.node.handle_watch(now, watch, snapshot);
                return Ok(shown_its_loss);
            }
            ToSoloist::WatchBroken { watch } if soloist.listens_to == Some(watch) => {
                soloist.listens_to = None;
                soloist.watch = None;
                soloist.node.handle_watch_broken(now, watch);
            }
            ToSoloist::Pod { report } => self.hear_of_pod(now, soloist, &report),
            // Of a watch that another one has taken the place of.
            ToSoloist::Watch { .. } | ToSoloist::WatchBroken { .. } => {}
            ToSoloist::Tree { tree, event } => self.feed_tree_event(host, soloist, tree, event),
            ToSoloist::HookBegins => soloist.node.give_way(true),
            ToSoloist::HookEnds => soloist.node.give_way(false),
            ToSoloist::StopSignal => {
                if soloist.node.state() == StateName::Terminating {
                    self.note_disturbance(host, self.now);
                }
                self.note_end(soloist, Cause::PlannedHandover);
                soloist.node.handle_stop_signal(now);
            }
            ToSoloist::HandOver => {
                self.note_end(soloist, Cause::PlannedHandover);
                soloist.node.handle_handover(now, None);
            }
            ToSoloist::KillPass { .. }
            | ToSoloist::ChildEnded { .. }
            | ToSoloist::CheckGuard { .. }
            | ToSoloist::Pong { .. } => {}
        }
        Ok(None)
    }

    /// As the edge hands it on: with the time of day, and with what is known of its holder.
    fn taken_in(&self, host: HostId, soloist: &mut Soloist, mut snapshot: Snapshot) -> Snapshot {
        snapshot.holder_gone |= is_proven_dead(soloist, &snapshot);
        let snapshot = snapshot.received_at(wall_time(self.hosts[host].wall(self.now)));
        soloist.told = Some(snapshot.clone());
        snapshot
    }

    /// A proof that comes after the record is told with the record that it is for.
    fn hear_of_pod(&mut self, now: Moment, soloist: &mut Soloist, report: &PodReport) {
        soloist.deaths.note(report);
        let (Some(watch), Some(told)) = (soloist.listens_to, &soloist.told) else {
            return;
        };
        if told.holder_gone || !is_proven_dead(soloist, told) {
            return;
        }
        let mut told = told.clone();
        told.holder_gone = true;
        soloist.told = Some(told.clone());
        self.summary.count(Counter::DeathsToldLater);
        soloist.node.handle_watch(now, watch, told);
    }

    /// The replica is shown a state of the record; gives the tree that must be killed because of it.
    fn show(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        snapshot: &Snapshot,
        epoch: u32,
        source: Source,
    ) -> Option<usize> {
        let signature = snapshot.record.as_ref().and_then(|r| r.signature.as_ref());
        let newest = Newest {
            version: snapshot.version.get(),
            write: signature.map(|s| (s.instance, s.write)),
            since: self.now,
            epoch,
        };
        self.log(host, || format!("sees {} by {source:?}", newest.version));
        let loss = self.shows_loss(host, soloist, snapshot, newest, source);
        if source.is_newer(soloist.newest, newest) {
            soloist.newest = newest;
        }
        if epoch < self.store.epoch {
            self.checks.shown_what_was_lost(soloist.id);
        }
        if matches!(source, Source::Watch) {
            self.checks.shown_in_sequence(soloist.id, snapshot.version);
        }
        if let Some(signature) = snapshot.record.as_ref().and_then(|r| r.signed()) {
            let term = (signature.instance, signature.term);
            if soloist.seen.last() != Some(&term) && !soloist.seen.contains(&term) {
                soloist.seen.push(term);
            }
        }
        loss
    }

    /// What is going to end the tree, unless something else already is.
    pub(crate) fn note_end(&mut self, soloist: &Soloist, cause: Cause) {
        if let Some(tree) = soloist.tree() {
            self.trees[tree].end_cause.get_or_insert(cause);
        }
    }

    fn feed_tree_event(
        &mut self,
        host: HostId,
        soloist: &mut Soloist,
        tree: usize,
        event: TreeEvent,
    ) {
        let Some(held) = soloist.trees.iter().position(|t| t.tree == tree) else {
            return;
        };
        let id = soloist.trees[held].id;
        match event {
            TreeEvent::SpawnFailed(_) | TreeEvent::Empty => {
                soloist.trees.swap_remove(held);
            }
            TreeEvent::GuardLost => {
                let since = self.now;
                let after = self.wake_up_delay(host);
                self.send_to_soloist(host, soloist.id, after, ToSoloist::KillPass { tree, since });
            }
            TreeEvent::Ready | TreeEvent::Healthy | TreeEvent::Unhealthy | TreeEvent::Exited(_) => {
            }
        }
        let now = self.hosts[host].clock.read(self.now);
        soloist.node.handle_tree(now, id, event);
    }
}

fn is_proven_dead(soloist: &Soloist, snapshot: &Snapshot) -> bool {
    let proven = |record: &Record| soloist.deaths.prove(record);
    snapshot.record.as_ref().is_some_and(proven)
}

// Out.
impl World {
    /// Carries out everything that is to be done now, then waits for the next thing.
    pub(crate) fn run_soloist(
        &mut self,
        host: HostId,
        mut soloist: Soloist,
    ) -> Result<(), Violation> {
        while let Some(output) = soloist.node.poll_output() {
            match output {
                Output::Store(command) => self.ask_store(host, &mut soloist, command)?,
                Output::Tree(tree, command) => self.order(host, &mut soloist, tree, command)?,
                Output::Notice(notice) => self.take_note(host, &mut soloist, &notice)?,
                Output::Exit(outcome) => {
                    self.log(host, || {
                        format!("soloist {} exits: {outcome:?}", soloist.id.0)
                    });
                    self.check_gave_up_late(host, &soloist, outcome)?;
                    soloist.exited = true;
                    if self.plan.once && outcome == Outcome::Child(Exit::Code(0)) {
                        self.summary.count(Counter::JobsDone);
                        self.job_done = true;
                        self.hosts[host].done = true;
                    }
                }
            }
        }
        self.check_state(host, &soloist)?;
        if soloist.exited {
            self.close_sockets(host, soloist.trees.iter().map(|t| t.tree));
            self.announce_dead_holder(soloist.instance);
            self.container_ends(soloist.instance);
            let most = 5 * SECOND;
            self.restart(host, most, true);
            return Ok(());
        }
        self.set_alarm(host, &mut soloist);
        self.hosts[host].soloist = Some(soloist);
        Ok(())
    }

    fn set_alarm(&mut self, host: HostId, soloist: &mut Soloist) {
        soloist.wake += 1;
        let Some(moment) = soloist.node.next_deadline() else {
            return;
        };
        let at = self.hosts[host].clock.when(moment).max(self.now);
        if at < u64::MAX {
            let after = at - self.now + self.rng.latency(WAKE_UP);
            let generation = soloist.wake;
            self.send_to_soloist(host, soloist.id, after, ToSoloist::Wake { generation });
        }
    }

    /// A leader's host, if there is one: where faults hurt most.
    pub(crate) fn leading_host(&self) -> Option<HostId> {
        let client_go = self.client_go_works().then(|| self.hosts.len() - 1);
        self.leading_soloist().or(client_go)
    }

    pub(crate) fn leading_soloist(&self) -> Option<HostId> {
        self.hosts.iter().position(|h| {
            h.soloist.as_ref().is_some_and(|s| {
                matches!(
                    s.node.state(),
                    StateName::Leader | StateName::PreLeader | StateName::PreFollower
                )
            })
        })
    }
}
